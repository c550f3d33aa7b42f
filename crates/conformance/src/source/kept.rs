//! The rows of a read, kept so that a fault can be reported by row, column and value.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use rapidbyte_formats::Texts;
use rapidbyte_runtime::Stream;

use super::Subject;
use crate::bench::Trouble;
use crate::digest::{Digest, hashes};
use crate::read::{Asked, Reading, Step};

/// Rows of one read that are kept, in bytes of their messages.
const MAX_KEPT_BYTES: usize = 96 << 20;
/// Lost rows among which the one is looked for that came with other values.
const MAX_PARTNERS: usize = 1000;
/// Characters of a value that are shown.
const SHOWN: usize = 60;

/// The result of a read.
pub(crate) struct Kept {
    pub schema: SchemaRef,
    /// All rows.
    pub digest: Digest,
    /// The cursor of its last checkpoint.
    pub cursor: Option<String>,
    batches: Vec<RecordBatch>,
    /// Every row is in `batches`.
    is_whole: bool,
}

/// A row of a read.
#[derive(Clone, Copy)]
struct Row<'k> {
    batch: &'k RecordBatch,
    at: usize,
    /// From 0, in the whole read.
    number: usize,
    hash: u64,
}

impl Subject<'_> {
    /// Reads what is asked, in a session of its own.
    pub(super) fn keep(&self, asked: &Asked) -> Result<Kept, Trouble> {
        self.bench.patiently(|| Kept::read(&mut self.begin(asked)?))
    }

    /// Reads a stream as a whole; every row is kept.
    pub(super) fn keep_whole(&self, stream: &Stream) -> Result<Kept, Trouble> {
        let kept = self.keep(&Asked::whole(stream))?;
        match kept.is_whole {
            true => Ok(kept),
            false => Err(Trouble::TooMuch(format!(
                "stream {:?}: more than {} MiB",
                stream.name,
                MAX_KEPT_BYTES >> 20
            ))),
        }
    }

    /// In what a read differs from some rows of a whole read of its stream, in words.
    pub(super) fn told(
        &self,
        stream: &Stream,
        is_expected: impl Fn(usize) -> bool,
        found: &Kept,
    ) -> String {
        match self.keep_whole(stream) {
            Ok(whole) => whole.difference(is_expected, found),
            Err(_) => format!(
                "{} rows that are not those of a whole read",
                found.digest.rows
            ),
        }
    }
}

impl Kept {
    /// Rows that came in another way than by a read.
    ///
    /// # Errors
    /// A type that does not cross the boundary.
    pub fn of(rows: &RecordBatch) -> Result<Self, String> {
        let mut digest = Digest::default();
        digest.add(rows)?;
        Ok(Self {
            schema: rows.schema(),
            digest,
            cursor: None,
            batches: vec![rows.clone()],
            is_whole: true,
        })
    }

    /// Reads to the end.
    pub fn read(reading: &mut Reading<'_>) -> Result<Self, Trouble> {
        let mut kept = Self {
            schema: reading.schema().clone(),
            digest: Digest::default(),
            cursor: None,
            batches: Vec::new(),
            is_whole: true,
        };
        let mut bytes = 0;
        loop {
            match reading.next()? {
                Step::Rows(batch, len) => {
                    kept.digest.add(&batch).map_err(Trouble::Broken)?;
                    bytes += len;
                    kept.is_whole = bytes <= MAX_KEPT_BYTES;
                    if kept.is_whole {
                        kept.batches.push(batch);
                    }
                }
                Step::Checkpoint(cursor) => kept.cursor = Some(cursor),
                Step::Idle => {}
                Step::End => return Ok(kept),
                Step::TooMuch(text) => return Err(Trouble::TooMuch(text)),
                Step::Bad(text) | Step::Spins(text) => return Err(Trouble::Broken(text)),
            }
        }
    }

    /// The names of its columns.
    pub fn names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The digest of some columns of some rows.
    pub fn digest_of(
        &self,
        names: &[String],
        is_meant: impl Fn(usize) -> bool,
    ) -> Result<Digest, Trouble> {
        let mut digest = Digest::default();
        for row in self.rows(names).map_err(Trouble::Broken)? {
            if is_meant(row.number) {
                digest.add_row(row.hash);
            }
        }
        Ok(digest)
    }

    /// The values of a column of whole numbers; none of another one, or where one is NULL.
    pub fn integers(&self, name: &str) -> Option<Vec<i128>> {
        let mut all = Vec::new();
        for batch in &self.batches {
            let values = crate::order::integers(batch.column_by_name(name)?.as_ref())?;
            for value in values {
                all.push(value?);
            }
        }
        Some(all)
    }

    /// Each row with the hash of some columns.
    fn rows(&self, names: &[String]) -> Result<Vec<Row<'_>>, String> {
        let mut rows = Vec::new();
        for batch in &self.batches {
            let mut columns = Vec::new();
            for name in names {
                let column = batch.column_by_name(name);
                let column = column.ok_or_else(|| format!("there is no column {name:?}"))?;
                columns.push(column.as_ref());
            }
            let hashes = hashes(batch.num_rows(), columns.into_iter())?;
            for (at, hash) in hashes.into_iter().enumerate() {
                let number = rows.len();
                rows.push(Row {
                    batch,
                    at,
                    number,
                    hash,
                });
            }
        }
        Ok(rows)
    }

    /// In what `found` differs from some rows of this read, in words: the first row that is
    /// missing, that came too often or that has another value.
    pub fn difference(&self, is_expected: impl Fn(usize) -> bool, found: &Self) -> String {
        self.difference_in(" of a whole read", is_expected, found)
    }

    /// The same, where ` of a whole read` is another place of a row.
    pub fn difference_in(
        &self,
        place: &str,
        is_expected: impl Fn(usize) -> bool,
        found: &Self,
    ) -> String {
        let names = found.names();
        let (expected, came) = match (self.rows(&names), found.rows(&names)) {
            (Ok(expected), Ok(came)) => (expected, came),
            (Err(text), _) | (_, Err(text)) => return text,
        };
        let mut expected = expected;
        expected.retain(|row| is_expected(row.number));
        let counts = match expected.len() == came.len() {
            true => String::new(),
            false => format!("{} rows expected, {} came; ", expected.len(), came.len()),
        };
        let (missing, extra) = (beyond(&expected, &came), beyond(&came, &expected));
        let what = match (missing.first(), extra.first()) {
            (_, Some(extra)) => match partner(extra, &missing, &names) {
                Some((missing, name)) => format!(
                    "row {}, column {name:?}: expected {}, found {}",
                    extra.number + 1,
                    shown(missing.batch, missing.at, name),
                    shown(extra.batch, extra.at, name),
                ),
                None if expected.iter().any(|row| row.hash == extra.hash) => {
                    format!(
                        "row {} comes again: {}",
                        extra.number + 1,
                        extra.text(&names)
                    )
                }
                None => format!(
                    "row {} is not to come: {}",
                    extra.number + 1,
                    extra.text(&names)
                ),
            },
            (Some(missing), None) => format!(
                "row {}{place} is missing: {}",
                missing.number + 1,
                missing.text(&names)
            ),
            (None, None) => "they could not be compared row by row".into(),
        };
        format!("{counts}{what}")
    }
}

impl Row<'_> {
    /// Its first values.
    fn text(&self, names: &[String]) -> String {
        const COLUMNS: usize = 3;
        let values = names.iter().take(COLUMNS);
        let values = values.map(|name| format!("{name} {}", shown(self.batch, self.at, name)));
        values.collect::<Vec<_>>().join(", ")
    }

    fn cell(&self, name: &str) -> Option<u64> {
        let column = self.batch.column_by_name(name)?.slice(self.at, 1);
        hashes(1, std::iter::once(column.as_ref())).ok()?.pop()
    }
}

/// The rows of `these` that the others lack.
fn beyond<'k>(these: &[Row<'k>], others: &[Row<'_>]) -> Vec<Row<'k>> {
    let mut left: HashMap<u64, usize> = HashMap::new();
    for row in others {
        *left.entry(row.hash).or_default() += 1;
    }
    let mut beyond = these.to_vec();
    beyond.retain(|row| match left.get_mut(&row.hash) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    beyond
}

/// The lost row that has the most values of `extra`, and the first column in which the two differ.
fn partner<'k, 'n>(
    extra: &Row<'_>,
    missing: &[Row<'k>],
    names: &'n [String],
) -> Option<(Row<'k>, &'n str)> {
    let alike = |row: &Row<'_>| {
        let same = names
            .iter()
            .filter(|name| row.cell(name) == extra.cell(name));
        same.count()
    };
    let near = missing.iter().take(MAX_PARTNERS);
    // Of several that are as near, the first one.
    let near = near.rev().max_by_key(|row| alike(row))?;
    // Rows with less in common are different rows.
    if 2 * alike(near) < names.len() && names.len() > 1 {
        return None;
    }
    let differs = names
        .iter()
        .find(|name| near.cell(name) != extra.cell(name))?;
    Some((*near, differs))
}

/// A value as text.
fn shown(batch: &RecordBatch, at: usize, name: &str) -> String {
    let Some(column) = batch.column_by_name(name) else {
        return String::new();
    };
    if column
        .logical_nulls()
        .is_some_and(|nulls| nulls.is_null(at))
    {
        return "NULL".into();
    }
    let mut bytes = Vec::new();
    let schema = batch.schema();
    let texts = schema.field_with_name(name).ok();
    let texts = texts.and_then(|field| Texts::new(&Arc::new(field.clone()), column).ok());
    let written = texts.is_some_and(|texts| texts.write(at, &mut bytes).is_ok());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let text = match column.data_type() {
        _ if !written => "a value without a text".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 => format!("{text:?}"),
        _ => text,
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn kept(rows: &[(i64, Option<&str>)]) -> Kept {
        let n: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
        let t: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<StringArray>());
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", n, true), ("t", t, true)]).unwrap();
        let mut digest = Digest::default();
        digest.add(&batch).unwrap();
        let half = batch.num_rows() / 2;
        Kept {
            schema: batch.schema(),
            digest,
            cursor: None,
            batches: vec![
                batch.slice(0, half),
                batch.slice(half, batch.num_rows() - half),
            ],
            is_whole: true,
        }
    }

    #[test]
    fn a_difference_names_row_column_and_both_values() {
        let whole = kept(&[(1, Some("a")), (2, None), (3, Some("c c")), (4, Some("d"))]);
        let all = |_: usize| true;
        let told = |rows: &[(i64, Option<&str>)]| whole.difference(all, &kept(rows));
        assert_eq!(
            told(&[
                (1, Some("a")),
                (2, Some("")),
                (3, Some("c c")),
                (4, Some("d"))
            ]),
            "row 2, column \"t\": expected NULL, found \"\""
        );
        assert_eq!(
            told(&[(1, Some("a")), (2, None), (4, Some("d"))]),
            "4 rows expected, 3 came; row 3 of a whole read is missing: n 3, t \"c c\""
        );
        assert_eq!(
            told(&[
                (1, Some("a")),
                (2, None),
                (3, Some("c c")),
                (3, Some("c c")),
                (4, Some("d"))
            ]),
            "4 rows expected, 5 came; row 4 comes again: n 3, t \"c c\""
        );
        let behind = whole.difference(
            |row| row >= 2,
            &kept(&[(2, None), (3, Some("c c")), (4, Some("d"))]),
        );
        assert_eq!(
            behind,
            "2 rows expected, 3 came; row 1 is not to come: n 2, t NULL"
        );
        assert_eq!(whole.integers("n"), Some(vec![1, 2, 3, 4]));
        assert_eq!(whole.integers("t"), None);
        let names = whole.names();
        let found = whole.digest_of(&names, |row| row >= 2).unwrap();
        assert_eq!(found, kept(&[(4, Some("d")), (3, Some("c c"))]).digest);
    }
}

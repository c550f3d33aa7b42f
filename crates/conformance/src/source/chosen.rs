//! Clauses about what is chosen of a stream: columns, and rows by a condition.

use rapidbyte_runtime::{ErrorKind, Stream};

use super::Subject;
use crate::bench::Trouble;
use crate::read::Asked;
use crate::verdict::*;

/// A text that is a condition in no language.
const NO_FILTER: &str = "conformance ((( no condition of this source";

impl Subject<'_> {
    /// The names of a stream's columns.
    pub(super) fn columns_of(&self, stream: &Stream) -> Vec<String> {
        let fields = super::fields(stream).unwrap_or_else(arrow_schema::Fields::empty);
        fields.iter().map(|field| field.name().clone()).collect()
    }

    pub(super) fn columns(&self) -> Judged {
        const ACTION: &str =
            "give the columns of read-request.columns, in that order, and no others";
        let mut detail = Vec::new();
        self.has_columns.set(Err(&COLUMNS));
        for (stream, _) in self.repeated()? {
            let all = self.columns_of(stream);
            if all.len() < 2 {
                continue;
            }
            let whole = self.keep_whole(stream);
            let whole = whole.map_err(|trouble| trouble.blocks(&READ))?;
            for names in shapes(&all) {
                let failed = |seen: String| {
                    let text = format!(
                        "stream {:?}, columns {}: {seen}",
                        stream.name,
                        names.join(", ")
                    );
                    fail(text, ACTION)
                };
                let asked = Asked {
                    columns: Some(names.clone()),
                    ..Asked::whole(stream)
                };
                let found = self
                    .keep(&asked)
                    .map_err(|trouble| match trouble.fails(ACTION) {
                        Verdict::Fail { seen, .. } => failed(seen),
                        other => other,
                    })?;
                if found.names() != names {
                    return Err(failed(format!("came {}", found.names().join(", "))));
                }
                let expected = whole.digest_of(&names, |_| true);
                let expected = expected.map_err(|trouble| trouble.blocks(&BATCHES))?;
                if found.digest != expected {
                    return Err(failed(whole.difference(|_| true, &found)));
                }
                detail.push(format!("{} of {}", names.len(), all.len()));
            }
        }
        self.has_columns.set(Ok(()));
        match detail.is_empty() {
            true => Err(skip("needs a stream with two columns or more")),
            false => Ok(detail.join(", ")),
        }
    }

    pub(super) fn filter(&self) -> Judged {
        const ACTION: &str = "give the rows that meet read-request.filter and no others, and refuse a text that is no \
                              condition with an error of kind config, schema or data";
        if !self.bench.spec()?.supports_filter {
            return Err(skip(
                "it says that it takes no filter (supports-filter), so that a run refuses `where`",
            ));
        }
        let streams = self.repeated()?;
        let mut detail = Vec::new();
        for (stream, _) in &streams {
            let asked = |filter: String| Asked {
                filter: Some(filter),
                ..Asked::whole(stream)
            };
            let failed = |filter: &str, seen: String| {
                let text = format!("stream {:?}, where {filter}: {seen}", stream.name);
                fail(text, ACTION)
            };
            match self.keep(&asked(NO_FILTER.into())) {
                Ok(found) => {
                    let rows = found.digest.rows;
                    return Err(failed(NO_FILTER, format!("{rows} rows came, and no error")));
                }
                Err(trouble) if is_refused(&trouble) => {}
                Err(trouble) => return Err(trouble.fails(ACTION)),
            }
            let whole = self.keep_whole(stream);
            let whole = whole.map_err(|trouble| trouble.blocks(&READ))?;
            let mut columns = self.columns_of(stream).into_iter();
            let known = columns.find_map(|name| {
                let values = whole.integers(&name).filter(|_| is_plain(&name))?;
                Some((middle(&values)?, name, values))
            });
            let Some((least, name, values)) = known else {
                continue;
            };
            let filter = format!("{name} >= {least}");
            let found = match self.keep(&asked(filter.clone())) {
                Ok(found) => found,
                Err(trouble) if is_refused(&trouble) => continue,
                Err(trouble) => return Err(trouble.fails(ACTION)),
            };
            let is_meant = |row: usize| values.get(row).is_some_and(|value| *value >= least);
            let expected = whole.digest_of(&whole.names(), is_meant);
            if found.digest != expected.map_err(|trouble| trouble.blocks(&BATCHES))? {
                return Err(failed(&filter, whole.difference(is_meant, &found)));
            }
            detail.push(format!("{}: {filter}", stream.name));
        }
        match detail.is_empty() {
            true => Err(skip(
                "needs a stream with a column of whole numbers without NULL, and a source whose conditions \
                 may be `column >= 1`",
            )),
            false => Ok(detail.join(", ")),
        }
    }
}

/// Whether an error says that what was asked cannot be.
pub(super) fn is_refused(trouble: &Trouble) -> bool {
    let Trouble::Error(_, error) = trouble else {
        return false;
    };
    matches!(
        error.kind,
        ErrorKind::Config | ErrorKind::Schema | ErrorKind::Data
    )
}

/// Every second column, backwards; all backwards; the first and the last one alone.
fn shapes(all: &[String]) -> Vec<Vec<String>> {
    let backwards: Vec<String> = all.iter().rev().cloned().collect();
    vec![
        backwards.iter().step_by(2).cloned().collect(),
        all.first().into_iter().cloned().collect(),
        all.last().into_iter().cloned().collect(),
        backwards,
    ]
}

/// A name that needs no quotes in most languages.
fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// A value with as many below it as above. `None` where all are equal.
pub(super) fn middle(values: &[i128]) -> Option<i128> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let middle = *sorted.get(sorted.len() / 2)?;
    (sorted.first() != sorted.last()).then_some(middle)
}

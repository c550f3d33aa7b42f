//! Guesses a schema from the beginnings of CSV files.
//!
//! A column gets the first type of `bool`, `int64`, `decimal(38, s)`, `float64`, `date`, `timestamp`
//! and `timestamptz` (in µs, ms, ns) that writes every sampled value back with the same characters;
//! otherwise it gets `string`. So `007`, `+1`, `1e5`, whole numbers beyond int64 and a space for the
//! `T` of a timestamp stay strings. Prices with two decimals are `decimal(38, 2)`, and numbers with
//! different counts of decimals are `float64` if none ends in a zero.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rapidbyte_wire::counted;
use rapidbyte_wire::name;
use rapidbyte_wire::types::type_name;

use super::decode::{UNION, duplicate, header_name, ragged};
use super::split::{Record, Splitter};
use super::{Dialect, Headers};
use crate::FormatError;
use crate::error::shown;
use crate::sample::{Sampled, Seen};
use crate::spelling::Spelling;
use crate::text::number;

/// Further rows of a sample, where a file brings a new column after enough rows.
const NEW_COLUMN_ROWS: u64 = 1000;

/// A guessed schema: all columns nullable, in order of the first file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inferred {
    /// The columns.
    pub schema: SchemaRef,
    /// One for each column: what was decided and from how many rows.
    pub notes: Vec<String>,
    /// Sampled rows.
    pub rows: u64,
}

/// Infers columns from samples: for each file [`begin_file`](Self::begin_file), [`push`](Self::push) and one
/// of the two ends.
pub struct Sampler {
    splitter: Splitter,
    guesses: Guesses,
}

struct Guesses {
    dialect: Dialect,
    columns: Vec<Guess>,
    /// By field of the current file.
    order: Vec<usize>,
    header_due: bool,
    first_file: bool,
    rows: u64,
    max_rows: u64,
    /// Records with another number of fields are passed over.
    is_lenient: bool,
    scratch: Vec<u8>,
}

impl Sampler {
    /// Reads `max_rows` rows at most. Errors: `invalid_dialect`.
    pub fn new(
        dialect: Dialect,
        max_rows: u64,
        max_record_bytes: usize,
    ) -> Result<Self, FormatError> {
        dialect.validate()?;
        Ok(Self {
            splitter: Splitter::new(&dialect, max_record_bytes),
            guesses: Guesses {
                header_due: dialect.header,
                dialect,
                columns: Vec::new(),
                order: Vec::new(),
                first_file: true,
                rows: 0,
                max_rows,
                is_lenient: false,
                scratch: Vec::new(),
            },
        })
    }

    /// The same, which passes over records with another number of fields than the header.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.guesses.is_lenient = true;
        self
    }

    /// The columns so far.
    pub fn columns(&self) -> usize {
        self.guesses.columns.len()
    }

    /// Begins a file.
    pub fn begin_file(&mut self) {
        self.splitter.begin_file();
        self.guesses.header_due = self.guesses.dialect.header;
        self.guesses.first_file = self.guesses.columns.is_empty();
    }

    /// Reads the next bytes of the file, until there are enough rows.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        let guesses = &mut self.guesses;
        self.splitter
            .push(bytes, |record| guesses.look(record))
            .map(|_| ())
    }

    /// True if the file's header is wanted and has not come yet, however many rows there are.
    pub fn wants_header(&self) -> bool {
        self.guesses.header_due && self.guesses.dialect.headers == Headers::Union
    }

    /// True once there are enough rows.
    pub fn is_done(&self) -> bool {
        self.guesses.rows >= self.guesses.max_rows
    }

    /// Sampled rows so far.
    pub fn rows(&self) -> u64 {
        self.guesses.rows
    }

    /// The file ends here.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        let guesses = &mut self.guesses;
        self.splitter.end_of_file(|record| guesses.look(record))
    }

    /// Ends the sample before the end of the file; half a record is left out.
    pub fn end_of_sample(&mut self) {
        self.splitter.end_of_sample();
    }

    /// The guess. Errors: `csv_missing_header` if not even a header was seen.
    pub fn finish(self) -> Result<Inferred, FormatError> {
        let Guesses { columns, rows, .. } = self.guesses;
        if columns.is_empty() {
            return Err(
                FormatError::new("csv_missing_header", "the sample has no line that names the columns")
                    .hint(
                        "an empty file has no columns: let its writer write the header, or declare the columns under \
                         schema:; if the file begins with many blank lines, raise sample_bytes",
                    ),
            );
        }
        let (fields, notes): (Vec<_>, Vec<_>) =
            columns.iter().map(|guess| guess.decided(rows)).unzip();
        Ok(Inferred {
            schema: Arc::new(Schema::new(fields)),
            notes,
            rows,
        })
    }
}

impl Guesses {
    fn look(&mut self, record: &Record<'_>) -> Result<bool, FormatError> {
        let header_wanted =
            self.header_due && self.dialect.headers == Headers::Union && !self.columns.is_empty();
        if self.rows >= self.max_rows && !header_wanted {
            return Ok(false);
        }
        if self.first_file && self.columns.is_empty() {
            if record.is_blank() && (self.header_due || record.len() > 1) {
                return Ok(true);
            }
            self.name_columns(record)?;
            if std::mem::take(&mut self.header_due) {
                return Ok(true);
            }
        }
        if self.columns.len() > 1 && record.is_blank() {
            return Ok(true);
        }
        if std::mem::take(&mut self.header_due) {
            let known = self.columns.len();
            self.order_columns(record)?;
            if self.columns.len() > known {
                self.max_rows = self.max_rows.max(self.rows + NEW_COLUMN_ROWS);
            }
            return Ok(self.rows < self.max_rows);
        }
        if record.len() != self.order.len() {
            if self.is_lenient {
                return Ok(true);
            }
            return Err(ragged(record, self.order.len()));
        }
        for (at, column) in self.order.iter().enumerate() {
            let (text, quoted) = record.field(at, &mut self.scratch);
            if quoted || !self.dialect.is_null(text) {
                let listed = self.dialect.listed_bool(text).is_some();
                self.columns[*column].look(text, listed);
            }
        }
        self.rows += 1;
        Ok(self.rows < self.max_rows)
    }

    fn name_columns(&mut self, record: &Record<'_>) -> Result<(), FormatError> {
        for at in 0..record.len() {
            let name = match self.header_due {
                true => header_name(record, at)?,
                false => format!("column_{}", at + 1),
            };
            if self.columns.iter().any(|c| c.name == name) {
                return Err(duplicate(&name, record.line));
            }
            self.columns.push(Guess::new(name));
        }
        self.order = (0..record.len()).collect();
        Ok(())
    }

    /// The header of a further file: the same names, in any order, or others too.
    fn order_columns(&mut self, record: &Record<'_>) -> Result<(), FormatError> {
        let line = record.line;
        let known_before = self.columns.len();
        self.order.clear();
        for at in 0..record.len() {
            let name = header_name(record, at)?;
            let known = self.columns.iter().position(|c| c.name == name);
            let column = match known {
                Some(column) => column,
                None if self.dialect.headers == Headers::Union => {
                    self.columns.push(Guess::new(name.clone()));
                    self.columns.len() - 1
                }
                None => {
                    return Err(FormatError::new(
                        "csv_unknown_column",
                        format!(
                            "the header has the column {}, which an earlier file does not have",
                            name::shown(&name)
                        ),
                    )
                    .hint(UNION)
                    .column(&name)
                    .line(line));
                }
            };
            if self.order.contains(&column) {
                return Err(duplicate(&name, line));
            }
            self.order.push(column);
        }
        if self.dialect.headers == Headers::Union {
            let is_stranger = self.order.iter().all(|column| *column >= known_before);
            return match is_stranger {
                true => Err(stranger(line)),
                false => Ok(()),
            };
        }
        let missing = (0..self.columns.len()).find(|column| !self.order.contains(column));
        match missing {
            None => Ok(()),
            Some(column) => {
                let name = &self.columns[column].name;
                Err(FormatError::new(
                    "csv_missing_column",
                    format!(
                        "the header does not have the column {}, which an earlier file has",
                        name::shown(name)
                    ),
                )
                .hint(UNION)
                .column(name)
                .line(line))
            }
        }
    }
}

/// The header of another table, or of a file with another delimiter.
fn stranger(line: u64) -> FormatError {
    let text = "the header has none of the columns of the files before";
    FormatError::new("csv_unknown_column", text)
        .hint("files of another table need a path of their own, or {stream} in the path; check the delimiter, too")
        .line(line)
}

struct Guess {
    name: String,
    /// The types that hold all values so far, the best first.
    possible: Vec<Spelling>,
    values: u64,
    /// Values that the dialect lists as true or false, and those that are so by themselves.
    bools: u64,
    /// The dialect lists one of them.
    any_listed: bool,
    /// A value with a digit was among them; `NaN` alone makes no number.
    any_digit: bool,
    /// Values with a point, and values with a comma that look like numbers.
    fractions: u64,
    commas: u64,
    /// The value that ruled out the last type.
    example: Option<String>,
    seen: Seen,
}

impl Guess {
    fn new(name: String) -> Self {
        Self {
            name,
            possible: Vec::new(),
            values: 0,
            bools: 0,
            any_listed: false,
            any_digit: false,
            fractions: 0,
            commas: 0,
            example: None,
            seen: Seen::default(),
        }
    }

    fn look(&mut self, text: &[u8], listed: bool) {
        self.values += 1;
        self.seen.add(match listed {
            true => Sampled::Listed(text),
            false => Sampled::Text(text),
        });
        self.any_listed |= listed;
        self.bools += u64::from(listed || Spelling::Bool.holds(text));
        self.commas += u64::from(number::has_comma(text));
        if self.example.is_some() {
            return;
        }
        self.fractions += u64::from(text.contains(&b'.'));
        self.any_digit |= text.iter().any(u8::is_ascii_digit);
        if self.values == 1 {
            self.possible = Spelling::candidates(text);
        } else {
            self.possible.retain(|spelling| spelling.holds(text));
        }
        if self.possible.is_empty() {
            self.example = Some(shown(text));
        }
    }

    /// The column, marked with its sample, and the reason for its type.
    fn decided(&self, rows: u64) -> (Field, String) {
        let (field, note) = self.decide(rows);
        (self.seen.mark(field), note)
    }

    fn decide(&self, rows: u64) -> (Field, String) {
        let chosen = self.possible.first();
        if self.any_listed && self.bools == self.values {
            let field = Field::new(&self.name, DataType::Boolean, true);
            let why = all(self.values, rows, TRUE_OR_FALSE);
            let note = format!("{}: {} ({why})", self.name, type_name(&field));
            return (field, note);
        }
        let field = match chosen.filter(|s| self.any_digit || **s == Spelling::Bool) {
            Some(spelling) => spelling.field(&self.name),
            None => Field::new(&self.name, DataType::Utf8, true),
        };
        let why = self.why(rows, field.data_type());
        let note = format!("{}: {} ({why})", self.name, type_name(&field));
        (field, note)
    }

    /// The reason for the choice, for the person who wonders.
    fn why(&self, rows: u64, chosen: &DataType) -> String {
        let values = self.values;
        let all = |words: [&str; 2]| all(values, rows, words);
        let sampled = counted(rows, "sampled row");
        match (&self.example, chosen) {
            _ if values == 0 => format!("no value in {sampled}"),
            _ if self.commas == values => all([
                "has a comma, which is not read as a number",
                "have a comma, which is not read as a number",
            ]),
            (Some(example), _) => {
                format!("{example} is among the values of {sampled}")
            }
            (None, DataType::Boolean) => all(TRUE_OR_FALSE),
            (None, DataType::Int64) => all(WHOLE),
            (None, DataType::Decimal128(_, scale)) => {
                let digits = counted(i64::from(*scale), "digit");
                all([
                    &format!("has {digits} after the point"),
                    &format!("have {digits} after the point"),
                ])
            }
            (None, DataType::Float64) => with_fractions(self.fractions, values, rows),
            (None, DataType::Date32) => all(["is a date", "are dates"]),
            (None, DataType::Timestamp(_, None)) => all(["is a timestamp", "are timestamps"]),
            (None, DataType::Timestamp(_, Some(_))) => {
                all(["is a timestamp in UTC", "are timestamps in UTC"])
            }
            (None, _) => all(["is text", "are text"]),
        }
    }
}

pub(crate) const TRUE_OR_FALSE: [&str; 2] = ["is true or false", "are true or false"];
pub(crate) const WHOLE: [&str; 2] = ["is a whole number", "are whole numbers"];

/// `all 3 values of 4 sampled rows are dates`; the words behind the rows for one value and for several.
pub(crate) fn all(values: u64, rows: u64, [one, several]: [&str; 2]) -> String {
    let sampled = counted(rows, "sampled row");
    match values {
        1 => format!("the only value of {sampled} {one}"),
        _ => format!("all {values} values of {sampled} {several}"),
    }
}

/// `1 of 3 values of 4 sampled rows has a fraction`
pub(crate) fn with_fractions(fractions: u64, values: u64, rows: u64) -> String {
    let (values, sampled) = (counted(values, "value"), counted(rows, "sampled row"));
    let has = if fractions == 1 { "has" } else { "have" };
    format!("{fractions} of {values} of {sampled} {has} a fraction")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(files: &[&str]) -> Result<Inferred, FormatError> {
        infer_as(Dialect::default(), files)
    }

    fn infer_as(dialect: Dialect, files: &[&str]) -> Result<Inferred, FormatError> {
        let mut sampler = Sampler::new(dialect, 1000, 1 << 20)?;
        for file in files {
            sampler.begin_file();
            sampler.push(file.as_bytes())?;
            sampler.end_of_file()?;
        }
        sampler.finish()
    }

    fn guess(values: &[&str]) -> String {
        let file = format!("a,b\n{}\n", values.join(",\n") + ",");
        type_name(infer(&[&file]).unwrap().schema.field(0))
    }

    #[test]
    fn columns_get_the_type_that_loses_nothing() {
        for (values, expected) in [
            (&["1", "-20", ""][..], "int64"),
            (&["1.10", "2.00", "-0.05"], "decimal(38, 2)"),
            (&["1.5"], "decimal(38, 1)"),
            (&["1.5", "2.25"], "float64"),
            (&["1", "2.5"], "float64"),
            (&["1.0", "2.25"], "float64"),
            (&["1", "1.0", "2.25"], "string"),
            (&["1", "2.50"], "string"),
            (&["0.1", "NaN", "-Infinity", "2.25"], "float64"),
            (&["NaN"], "string"),
            (&["1.5e+300", "-0.0"], "float64"),
            (&["1e5"], "string"),
            (&["-0", "1"], "float64"),
            (&["007", "1"], "string"),
            (&["+1"], "string"),
            (&[" 1"], "string"),
            (&["9223372036854775808"], "string"),
            (&["0.12345678901234567890"], "decimal(38, 20)"),
            (&["0.12345678901234567890", "0.5"], "string"),
            (&["9007199254740993", "0.5"], "string"),
            (&["true", "false"], "bool"),
            (&["true", "TRUE"], "string"),
            (&["t", "f"], "string"),
            (&["2026-11-21"], "date"),
            (&["2026-11-21T10:11:12"], "timestamp"),
            (
                &["2026-11-21T10:11:12.120", "2026-11-21T10:11:12"],
                "timestamp(ms)",
            ),
            (&["2026-11-21T10:11:12.123456789"], "timestamp(ns)"),
            (&["2026-11-21 10:11:12.123"], "string"),
            (&["2026-11-21T10:11:12.000"], "string"),
            (&["2026-11-21T10:11:12Z"], "timestamptz"),
            (
                &["2026-11-21T10:11:12Z", "2026-11-21T10:11:12+02"],
                "string",
            ),
            (&["2026-11-21", "2026-11-21T10:11:12"], "string"),
            (&["", ""], "string"),
            (&["\"\"", "1"], "string"),
            (&["\"12\"", "1"], "int64"),
        ] {
            assert_eq!(guess(values), expected, "{values:?}");
        }
    }

    #[test]
    fn notes_say_what_was_decided_and_why() {
        let inferred = infer(&["id,code,x\n1,7,\n2,007,\n", "code,x,id\n8,,3\n"]).unwrap();
        assert_eq!(
            inferred.notes,
            [
                "id: int64 (all 3 values of 3 sampled rows are whole numbers)",
                "code: string (\"007\" is among the values of 3 sampled rows)",
                "x: string (no value in 3 sampled rows)",
            ]
        );
    }

    #[test]
    fn notes_count_what_decided() {
        let why = |values: &[&str]| {
            let file = format!("a;b\n{}\n", values.join(";\n") + ";");
            let dialect = Dialect {
                delimiter: b';',
                ..Dialect::default()
            };
            let mut sampler = Sampler::new(dialect, 1000, 1 << 20).unwrap();
            sampler.begin_file();
            sampler.push(file.as_bytes()).unwrap();
            sampler.end_of_file().unwrap();
            sampler.finish().unwrap().notes.swap_remove(0)
        };
        for (values, expected) in [
            (
                &["1", "2.5", "-3"][..],
                "float64 (1 of 3 values of 3 sampled rows has a fraction)",
            ),
            (
                &["1.10"],
                "decimal(38, 2) (the only value of 1 sampled row has 2 digits after the point)",
            ),
            (
                &["true"],
                "bool (the only value of 1 sampled row is true or false)",
            ),
            (
                &["2026-11-21", ""],
                "date (the only value of 2 sampled rows is a date)",
            ),
            (
                &["1,5", "-1.234,50"],
                "string (all 2 values of 2 sampled rows have a comma, which is not read as a number)",
            ),
            (&["NaN"], "string (the only value of 1 sampled row is text)"),
            (
                &["a"],
                "string (\"a\" is among the values of 1 sampled row)",
            ),
        ] {
            assert_eq!(why(values), format!("a: {expected}"));
        }
    }

    #[test]
    fn files_of_different_columns_are_one_stream_unless_all_must_be_the_same() {
        let names = |files: &[&str]| {
            let fields = infer(files).unwrap().schema.fields().clone();
            fields.iter().map(|f| f.name().clone()).collect::<String>()
        };
        assert_eq!(names(&["a,b\n", "c,a\n", "b\n"]), "abc");
        let code = |files: &[&str]| infer(files).unwrap_err().code;
        // A file of another table, or with another delimiter.
        assert_eq!(code(&["a,b\n", "c;d\n"]), "csv_unknown_column");
        let same = |files: &[&str]| {
            let headers = Headers::Same;
            let dialect = Dialect {
                headers,
                ..Dialect::default()
            };
            infer_as(dialect, files).unwrap_err().code
        };
        assert_eq!(same(&["a,b\n", "a,c\n"]), "csv_unknown_column");
        assert_eq!(same(&["a,b\n", "a\n"]), "csv_missing_column");
        assert_eq!(code(&["a,a\n"]), "csv_duplicate_column");
        assert_eq!(code(&["a,b\n1\n"]), "csv_ragged_row");
        assert_eq!(code(&[""]), "csv_missing_header");
    }

    #[test]
    fn half_a_record_at_the_end_of_a_sample_is_left_out() {
        let mut sampler = Sampler::new(Dialect::default(), 1000, 1 << 20).unwrap();
        sampler.begin_file();
        sampler.push(b"a\n1\n\"x").unwrap();
        sampler.end_of_sample();
        let inferred = sampler.finish().unwrap();
        assert_eq!(type_name(inferred.schema.field(0)), "int64");
        assert_eq!(inferred.rows, 1);
    }
}

//! Files to batches: what is the same for every format.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use rapidbyte_wire::types::{check_portable, is_stored};

use crate::column::Column;
use crate::rows::{Limits, Rejected, Rows};
use crate::text::pattern::TimePattern;
use crate::{Format, FormatError, csv, jsonl};

/// Decodes files of one schema, pushed piece by piece.
///
/// For each file: [`begin_file`](Self::begin_file), [`push`](Self::push) until all bytes are
/// taken, [`end_of_file`](Self::end_of_file). Whenever the batch [is full](Self::is_full),
/// [`take_batch`](Self::take_batch). After an error every call answers `decoder_failed`.
pub struct Decoder {
    records: Records,
    rows: Rows,
    failed: bool,
}

enum Records {
    Csv(Box<csv::Reader>),
    Jsonl(Box<jsonl::Reader>),
}

impl Decoder {
    /// A decoder of files with the columns of `schema`, in its order if the files lack a header.
    /// Batches have the columns named in `wanted`, in that order; without `wanted`, all columns.
    ///
    /// Errors: `invalid_dialect`, `unsupported_type`, `unknown_column`, `no_columns`.
    pub fn new(
        format: &Format,
        schema: SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Self, FormatError> {
        check_portable(&schema)
            .map_err(|error| FormatError::new("unsupported_type", error.to_string()))?;
        let (rows, targets) = Rows::new(&schema, wanted, limits)?;
        let max_record_bytes = limits.max_record_bytes;
        let records = match format {
            Format::Csv(dialect) => {
                let reader = csv::Reader::new(schema, targets, dialect.clone(), max_record_bytes)?;
                Records::Csv(Box::new(reader))
            }
            Format::Jsonl | Format::Json => {
                let layout = match format {
                    Format::Json => jsonl::Layout::Document,
                    _ => jsonl::Layout::Lines,
                };
                let reader = jsonl::Reader::new(layout, schema, targets, max_record_bytes);
                Records::Jsonl(Box::new(reader))
            }
        };
        Ok(Self {
            records,
            rows,
            failed: false,
        })
    }

    /// The same for a schema that a [`Sampler`](crate::Sampler) guessed: a value that its column
    /// would change is refused. In CSV that is one whose text would be written back differently
    /// (`1.10` in a `float64`), in JSON a number that loses digits. Under a declared schema every
    /// spelling of a value is read.
    #[must_use]
    pub fn inferred(mut self) -> Self {
        let keep = match &mut self.records {
            Records::Csv(reader) => {
                reader.inferred();
                Column::keep_text
            }
            Records::Jsonl(_) => Column::keep_digits,
        };
        self.rows.inferred(keep);
        let stored = self.rows.columns.iter_mut();
        let stored = stored.filter(|column| is_stored(column.field()));
        stored.for_each(Column::keep_stored);
        self
    }

    /// The same as [`inferred`](Self::inferred), where these columns were declared nevertheless: they
    /// read every spelling of a value.
    #[must_use]
    pub fn inferred_except(mut self, declared: &[String]) -> Self {
        self = self.inferred();
        let columns = self.rows.columns.iter_mut();
        for column in columns.filter(|column| declared.contains(column.field().name())) {
            column.keep_value();
        }
        self
    }

    /// The same, which reads the header of each CSV file and no row.
    #[must_use]
    pub fn header_only(mut self) -> Self {
        self.only_header(true);
        self
    }

    /// True if the file has a header that was not read yet.
    pub fn wants_header(&self) -> bool {
        match &self.records {
            Records::Csv(reader) => reader.wants_header(),
            Records::Jsonl(_) => false,
        }
    }

    /// The same, which treats keys of JSON objects that the schema does not have so. To collect them the schema has the
    /// column [`jsonl::REST`].
    ///
    /// Errors: `unknown_column`.
    pub fn unknown_keys(self, keys: jsonl::UnknownKeys) -> Result<Self, FormatError> {
        match keys {
            jsonl::UnknownKeys::Add | jsonl::UnknownKeys::Refuse => Ok(self),
            jsonl::UnknownKeys::Ignore => Ok(self.ignore_unknown()),
            jsonl::UnknownKeys::Collect => self.collect_unknown(jsonl::REST),
        }
    }

    /// The same, which reads JSON objects of [`object`](crate::object()) exactly: a string is the text of a document or of a
    /// float that is not finite, and an object with a missing key is refused.
    #[must_use]
    pub fn of_objects(mut self) -> Self {
        if let Records::Jsonl(reader) = &mut self.records {
            reader.whole_rows();
        }
        self.rows.columns.iter_mut().for_each(Column::of_objects);
        self
    }

    /// The same, which reads values as [`ColumnEncoder`](jsonl::ColumnEncoder) writes them: documents and wide numbers as
    /// strings.
    #[must_use]
    pub fn of_values(mut self) -> Self {
        self.rows.columns.iter_mut().for_each(Column::of_objects);
        self
    }

    /// The same, which leaves out keys of JSON objects that the schema does not have.
    #[must_use]
    pub fn ignore_unknown(mut self) -> Self {
        if let Records::Jsonl(reader) = &mut self.records {
            reader.ignore_unknown();
        }
        self
    }

    /// The same, which collects keys of JSON objects that the schema does not have: as one JSON object
    /// in this column of type `json`, which is NULL in a row without any. Where the batches do not
    /// have the column, such keys are left out.
    ///
    /// Errors: `unknown_column`.
    pub fn collect_unknown(mut self, column: &str) -> Result<Self, FormatError> {
        if let Records::Jsonl(reader) = &mut self.records {
            reader.collect_unknown(column)?;
        }
        Ok(self)
    }

    /// The keys that were [collected](Self::collect_unknown) so far.
    pub fn collected(&self) -> Option<&jsonl::Collected> {
        match &self.records {
            Records::Jsonl(reader) => reader.collected(),
            Records::Csv(_) => None,
        }
    }

    /// The same, where texts of a column have a form of their own. A column that the batches do not
    /// have is passed over.
    ///
    /// Errors: `invalid_time_pattern` for a type that the form is not one of.
    pub fn read_as(mut self, column: &str, pattern: TimePattern) -> Result<Self, FormatError> {
        let mut columns = self.rows.columns.iter_mut();
        if let Some(found) = columns.find(|found| found.field().name() == column) {
            found.read_as(pattern)?;
        }
        Ok(self)
    }

    /// The same, but keeps records that cannot be read and continues after them. It still fails where nobody knows
    /// where the next record begins: at a record that is too large, or with quotes in the wrong places.
    #[must_use]
    pub fn keep_rejects(mut self) -> Self {
        self.rows.keep_rejects();
        self
    }

    /// The records that were [kept](Self::keep_rejects) since the last call.
    pub fn take_rejects(&mut self) -> Vec<Rejected> {
        self.rows.take_rejects()
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// Begins a file: line 1, and its header if the dialect has one.
    pub fn begin_file(&mut self) {
        match &mut self.records {
            Records::Csv(reader) => reader.begin_file(),
            Records::Jsonl(reader) => reader.begin_file(),
        }
    }

    /// Begins a file without a header whose CSV records have the fields `names`, as [`Rejected::read_with`] has them.
    ///
    /// Errors: `csv_unknown_column`, `csv_duplicate_column`, `csv_missing_column`.
    pub fn begin_file_with(&mut self, names: &[String]) -> Result<(), FormatError> {
        match &mut self.records {
            Records::Csv(reader) => reader.begin_file_with(names),
            Records::Jsonl(reader) => {
                reader.begin_file();
                Ok(())
            }
        }
    }

    /// True if a record does not say the columns of its values.
    pub fn has_positions(&self) -> bool {
        matches!(self.records, Records::Csv(_))
    }

    /// Takes bytes of the file until the batch is full; gives how many were taken. The rest is to
    /// be pushed again after [`take_batch`](Self::take_batch).
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, FormatError> {
        self.check()?;
        if self.is_full() {
            return Ok(0);
        }
        let pushed = match &mut self.records {
            Records::Csv(reader) => reader.push(bytes, &mut self.rows),
            Records::Jsonl(reader) => reader.push(bytes, &mut self.rows),
        };
        self.failed = pushed.is_err();
        pushed
    }

    /// Reads of a CSV file its header alone, or its records again.
    pub fn only_header(&mut self, only: bool) {
        if let Records::Csv(reader) = &mut self.records {
            reader.only_header(only);
        }
    }

    /// Takes one record with all of its bytes, with or without its line break, as if the file that began had it: the
    /// header of the file still holds. A text with several records is several rows.
    ///
    /// The batch may be full before.
    pub fn push_record(&mut self, record: &[u8]) -> Result<(), FormatError> {
        self.check()?;
        let pushed = match &mut self.records {
            Records::Csv(reader) => reader.push_record(record, &mut self.rows),
            Records::Jsonl(reader) => reader.push_record(record, &mut self.rows),
        };
        self.failed = pushed.is_err();
        pushed
    }

    /// Ends the file; a last record without a line break is a record. A file without any record
    /// is a file without rows.
    pub fn end_of_file(&mut self) -> Result<(), FormatError> {
        self.check()?;
        let ended = match &mut self.records {
            Records::Csv(reader) => reader.end_of_file(&mut self.rows),
            Records::Jsonl(reader) => reader.end_of_file(&mut self.rows),
        };
        self.failed = ended.is_err();
        ended
    }

    /// True once the batch has the bytes or rows of [`Limits`], or many records were kept.
    pub fn is_full(&self) -> bool {
        self.rows.is_full()
    }

    /// Bytes of the batch's columns so far.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// The rows so far as a batch, `None` if there are none; the next one begins empty.
    pub fn take_batch(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        self.check()?;
        self.rows.take()
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.failed {
            return Err(FormatError::new(
                "decoder_failed",
                "the decoder cannot continue after an error",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::csv::Dialect;

    fn decoder(format: &Format) -> Decoder {
        let field = |name: &str| Field::new(name, DataType::Int64, false);
        let schema = Schema::new(vec![field("a"), field("b")]);
        let decoder = Decoder::new(format, schema.into(), None, Limits::default()).unwrap();
        decoder.keep_rejects()
    }

    #[test]
    fn single_records_follow_the_header_and_end_by_themselves() {
        let mut csv = decoder(&Format::Csv(Dialect::default()));
        csv.begin_file_with(&["b".into(), "a".into()]).unwrap();
        for record in [&b"2,1"[..], b"4,3\n", b"\"x\ny\",5", b"6,5\r\n8,7"] {
            csv.push_record(record).unwrap();
        }
        let rejects = csv.take_rejects();
        assert_eq!(rejects.len(), 1);
        assert_eq!(rejects[0].read_with.as_deref(), Some(r#"["b","a"]"#));
        let rows = csv.take_batch().unwrap().unwrap();
        assert_eq!(rows.num_rows(), 4);
        let first = rows.column(0).slice(0, 1);
        assert_eq!(
            first.to_data(),
            arrow_array::Int64Array::from(vec![1]).into()
        );
        // A quote that never ends must not swallow the next record.
        let error = csv.push_record(b"\"1,2").unwrap_err();
        assert_eq!(error.code, "csv_unterminated_quote");
        let mut csv = decoder(&Format::Csv(Dialect::default()));
        let mut names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            csv.begin_file_with(&names).map_err(|error| error.code)
        };
        assert_eq!(names(&["a", "c"]), Err("csv_unknown_column"));
        assert_eq!(names(&["a"]), Err("csv_missing_column"));
        let mut jsonl = decoder(&Format::Jsonl);
        jsonl.begin_file();
        jsonl.push_record(br#"{"a":1,"b":2}"#).unwrap();
        jsonl.push_record(b"{broken").unwrap();
        jsonl.push_record(b"{\"b\":2,\"a\":1}\n").unwrap();
        assert_eq!(jsonl.take_rejects().len(), 1);
        assert_eq!(jsonl.take_batch().unwrap().unwrap().num_rows(), 2);
    }
}

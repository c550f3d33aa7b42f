//! Puts whole columns, each a JSON array, into a batch, and a batch into such columns.

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};
use rapidbyte_wire::types::check_portable;

use crate::FormatError;
use crate::cells::{Cells, Form};
use crate::column::Column;
use crate::json::{self, Stop};
use crate::rows::{self, Limits, Rows};

/// Decodes batches of columns: each column is a JSON array of its values.
///
/// The values are written as in JSON Lines. The line of an error is the row, counted from 1 in each batch.
/// After an error every call answers `decoder_failed`.
pub struct ColumnDecoder {
    rows: Rows,
    max_record_bytes: usize,
    failed: bool,
}

impl ColumnDecoder {
    /// A decoder of the columns of `schema` that are named in `wanted`, in that order; of all
    /// without. Of the limits `max_record_bytes` holds for each value; a batch has the rows of a call.
    ///
    /// Errors: `unsupported_type`, `unknown_column`.
    pub fn new(
        schema: &SchemaRef,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Self, FormatError> {
        check_portable(schema)
            .map_err(|error| FormatError::new("unsupported_type", error.to_string()))?;
        let (rows, _) = Rows::new(schema, wanted, limits)?;
        Ok(Self {
            rows,
            max_record_bytes: limits.max_record_bytes,
            failed: false,
        })
    }

    /// The same, which reads values as [`ColumnEncoder`] writes them: documents and wide numbers as strings.
    #[must_use]
    pub fn of_values(mut self) -> Self {
        self.rows.columns.iter_mut().for_each(Column::of_objects);
        self
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.rows.schema()
    }

    /// One batch of these columns, in order of the schema; `None` if they have no rows.
    ///
    /// Errors: `columns_uneven` for another number of columns or columns of different lengths, and
    /// the errors of JSON Lines.
    pub fn decode(
        &mut self,
        columns: &[impl AsRef<str>],
    ) -> Result<Option<RecordBatch>, FormatError> {
        if self.failed {
            let text = "the decoder cannot continue after an error";
            return Err(FormatError::new("decoder_failed", text));
        }
        let decoded = self.push(columns).and_then(|()| self.rows.take());
        self.failed = decoded.is_err();
        decoded
    }

    fn push(&mut self, columns: &[impl AsRef<str>]) -> Result<(), FormatError> {
        let expected = self.rows.columns.len();
        if columns.len() != expected {
            let text = format!("{} columns where {expected} are expected", columns.len());
            return Err(FormatError::new("columns_uneven", text));
        }
        let mut rows = 0;
        for (at, column) in columns.iter().enumerate() {
            let pushed = self.push_column(at, column.as_ref())?;
            if at > 0 && pushed != rows {
                let text = format!("{pushed} values where the columns before have {rows}");
                let name = self.rows.columns[at].field().name();
                return Err(FormatError::new("columns_uneven", text).column(name));
            }
            rows = pushed;
        }
        self.rows.set_len(rows);
        Ok(())
    }

    /// Appends the values of one array; gives their number.
    fn push_column(&mut self, at: usize, array: &str) -> Result<usize, FormatError> {
        let mut count = 0;
        let rows = &mut self.rows;
        let walked = json::for_items(array, |value| {
            count += 1;
            let line = count as u64;
            if value.len() > self.max_record_bytes {
                let text = format!("a value larger than {} bytes", self.max_record_bytes);
                return Err(FormatError::new("record_too_large", text)
                    .hint("raise resources.max_record_bytes")
                    .column(rows.columns[at].field().name())
                    .line(line));
            }
            let pushed = rows.columns[at].push_json(value);
            pushed.map_err(|misfit| rows.refuse(*misfit, at).line(line))
        });
        match walked {
            Ok(()) => Ok(count),
            Err(Stop::Callback(error)) => Err(error),
            Err(Stop::Broken(error)) => {
                let text = format!("a column that is not a JSON array: {error}");
                let name = self.rows.columns[at].field().name();
                Err(FormatError::new("jsonl_broken_line", text).column(name))
            }
        }
    }
}

/// Encodes batches as columns: each column is a JSON array of its values, for a program that reads
/// JSON by its language's own means.
///
/// The values are written as in JSON Lines, except that decimals and `json` documents are strings with
/// all their characters. With `wide_texts`, whole numbers beyond ±(2^53 - 1) are strings too: a reader
/// that knows floats alone changes none.
pub struct ColumnEncoder {
    schema: SchemaRef,
    form: Form,
}

impl ColumnEncoder {
    /// Errors: `unsupported_type`.
    pub fn new(schema: SchemaRef, wide_texts: bool) -> Result<Self, FormatError> {
        let form = Form::Values { wide_texts };
        schema.fields().iter().try_for_each(Self::holds)?;
        Ok(Self { schema, form })
    }

    /// Whether the values of a column can be written.
    ///
    /// Errors: `unsupported_type`.
    pub fn holds(field: &FieldRef) -> Result<(), FormatError> {
        // A column's builder exists exactly for the types that can be written.
        crate::column::Column::new(field).map(drop)
    }

    /// The columns of a batch, in order.
    ///
    /// Errors: `schema_mismatch`, `value_does_not_fit`, `json_not_finite`, `jsonl_duplicate_key` (in a
    /// map), with the row in the batch.
    pub fn encode(&self, batch: &RecordBatch) -> Result<Vec<Vec<u8>>, FormatError> {
        let columns = rows::cells(&self.schema, batch)?;
        let arrays = columns
            .iter()
            .map(|column| self.array(column, batch.num_rows()));
        arrays.collect()
    }

    fn array(&self, column: &Cells, rows: usize) -> Result<Vec<u8>, FormatError> {
        let mut array = vec![b'['];
        for row in 0..rows {
            if row > 0 {
                array.push(b',');
            }
            column
                .write_json(row, self.form, &mut array)
                .map_err(|misfit| misfit.into_error(column.field().name()).row(row))?;
        }
        array.push(b']');
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::Schema;
    use rapidbyte_wire::types::parse_field;

    use super::*;

    fn decoder(wanted: Option<&[String]>) -> ColumnDecoder {
        let fields = vec![
            parse_field("id", "int64", false).unwrap(),
            parse_field("name", "string", true).unwrap(),
        ];
        let limits = Limits {
            max_record_bytes: 20,
            ..Limits::default()
        };
        ColumnDecoder::new(&Arc::new(Schema::new(fields)), wanted, limits).unwrap()
    }

    #[test]
    fn columns_become_a_batch_and_the_next_one() {
        let mut decoder = decoder(None);
        for _ in 0..2 {
            let batch = decoder
                .decode(&["[1, -2]", r#"["a", null]"#])
                .unwrap()
                .unwrap();
            assert_eq!(
                batch.column(0).as_primitive::<Int64Type>().values(),
                &[1, -2]
            );
            assert_eq!(batch.column(1).as_string::<i32>().value(0), "a");
            assert!(batch.column(1).is_null(1));
        }
        assert!(decoder.decode(&["[]", "[]"]).unwrap().is_none());
    }

    #[test]
    fn a_batch_becomes_columns_that_are_read_back_as_it() {
        let types = [
            ("id", "int64"),
            ("big", "uint64"),
            ("total", "decimal(20, 3)"),
            ("at", "timestamptz"),
            ("raw", "binary"),
            ("x", "float64"),
            ("parts", "list<struct<cents: decimal(4, 2), n: int64>>"),
        ];
        let fields: Vec<_> = types
            .iter()
            .map(|(name, text)| parse_field(name, text, true).unwrap())
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let given = [
            "[9007199254740993,-9007199254740991,null]",
            "[18446744073709551615,9007199254740991,null]",
            r#"["-12345678901234567.125","1.000",null]"#,
            r#"["2026-11-22T10:00:00.500000Z",null,null]"#,
            r#"["\\x00ff","\\x",null]"#,
            "[0.1,-0.0,null]",
            r#"[[{"cents":"1.50","n":9007199254740993}],[],null]"#,
        ];
        let limits = Limits::default();
        let mut decoder = ColumnDecoder::new(&schema, None, limits).unwrap();
        let batch = decoder.decode(&given).unwrap().unwrap();
        let columns = |wide_texts| {
            let encoder = ColumnEncoder::new(schema.clone(), wide_texts).unwrap();
            let columns = encoder.encode(&batch).unwrap();
            let texts = columns.into_iter().map(String::from_utf8);
            texts.collect::<Result<Vec<_>, _>>().unwrap()
        };
        assert_eq!(columns(false), given);
        assert_eq!(
            columns(true)[..2],
            [
                r#"["9007199254740993",-9007199254740991,null]"#,
                r#"["18446744073709551615",9007199254740991,null]"#
            ]
        );
        let nested = r#"[[{"cents":"1.50","n":"9007199254740993"}],[],null]"#;
        assert_eq!(columns(true)[6], nested);
    }

    #[test]
    fn a_document_comes_as_its_text_and_what_json_lacks_is_refused() {
        let fields = vec![
            parse_field("any", "json", true).unwrap(),
            parse_field("x", "float64", true).unwrap(),
        ];
        let schema = Arc::new(Schema::new(fields));
        let encoder = ColumnEncoder::new(schema.clone(), false).unwrap();
        let batch = |x| {
            let any = arrow_array::StringArray::from(vec![r#"{"a": 1.10}"#, "null"]);
            let x = arrow_array::Float64Array::from(vec![1.5, x]);
            RecordBatch::try_new(schema.clone(), vec![Arc::new(any), Arc::new(x)]).unwrap()
        };
        let columns = encoder.encode(&batch(2.0)).unwrap();
        let any: &[u8] = br#"["{\"a\": 1.10}","null"]"#;
        assert_eq!(columns[0], any);
        let error = encoder.encode(&batch(f64::NAN)).unwrap_err();
        let column = error.column.as_deref();
        let found = (error.code, column, error.row);
        assert_eq!(found, ("json_not_finite", Some("x"), Some(2)));
    }

    #[test]
    fn only_wanted_columns_come_in_their_order() {
        let wanted = ["name".to_owned()];
        let mut decoder = decoder(Some(&wanted));
        let batch = decoder.decode(&[r#"["a"]"#]).unwrap().unwrap();
        assert_eq!((batch.num_columns(), batch.num_rows()), (1, 1));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_its_row_and_column() {
        let refused = |columns: &[&str]| {
            let mut decoder = decoder(None);
            let error = decoder.decode(columns).unwrap_err();
            let after = decoder.decode(&["[1]", r#"["a"]"#]).unwrap_err();
            assert_eq!(after.code, "decoder_failed");
            (error.code, error.column.unwrap_or_default(), error.line)
        };
        let id = |code| (code, "id".to_owned());
        for (first, code, line) in [
            ("[1, 2.5]", "value_does_not_fit", Some(2)),
            (r#"[1, "2"]"#, "value_does_not_fit", Some(2)),
            ("[null, 2]", "null_in_required_column", Some(1)),
            ("[1, 9223372036854775808]", "value_does_not_fit", Some(2)),
            ("[1, 2", "jsonl_broken_line", None),
            ("{}", "jsonl_broken_line", None),
        ] {
            let (code, column) = id(code);
            assert_eq!(
                refused(&[first, r#"["a", "b"]"#]),
                (code, column, line),
                "{first}"
            );
        }
        let long = format!("[{:?}]", "x".repeat(30));
        assert_eq!(refused(&["[1]", &long]).0, "record_too_large");
        assert_eq!(
            refused(&["[1]", "[]"]),
            ("columns_uneven", "name".into(), None)
        );
        assert_eq!(refused(&["[1]"]).0, "columns_uneven");
    }
}

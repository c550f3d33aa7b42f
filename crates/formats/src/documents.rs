//! Rows as the fields of JSON objects, for databases of documents.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};

use crate::FormatError;
use crate::cells::{Cells, Form};
use crate::{json, rows};

/// How rows become documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DocumentOptions {
    /// All values of 64-bit integer columns are strings.
    pub text_integers: bool,
    /// The database keeps the digits of each number; without it, a number that a float64 does not hold is refused, such
    /// as an integer beyond ±(2^53 - 1).
    pub exact_numbers: bool,
    /// Bytes are in Base64; without it, `\x` and hexadecimal digits.
    pub base64: bool,
    /// The values of `json` columns are strings; without it they are embedded.
    pub text_json: bool,
    /// A NULL at the top has no field; without it the field is `null`.
    pub omit_nulls: bool,
}

/// The rows of a batch as documents. No number changes: decimals are strings, and a number that the database does not
/// keep is refused. A float that is whole is written with a point, which a database of float64 does not keep.
pub struct Documents {
    columns: Vec<Cells>,
    /// By column: `"total":`.
    keys: Arc<Vec<Vec<u8>>>,
    options: DocumentOptions,
}

impl Documents {
    /// Whether the values of a column can be written.
    ///
    /// Errors: `unsupported_type`.
    pub fn holds(field: &FieldRef) -> Result<(), FormatError> {
        // A column's builder exists exactly for the types that can be written.
        crate::column::Column::new(field).map(drop)
    }

    /// Errors: `schema_mismatch`, `unsupported_type`.
    pub fn new(
        schema: &SchemaRef,
        batch: &RecordBatch,
        options: DocumentOptions,
    ) -> Result<Self, FormatError> {
        let keys = schema.fields().iter().map(|field| {
            let mut key = Vec::new();
            json::write_string(field.name(), &mut key);
            key.push(b':');
            key
        });
        Ok(Self {
            columns: rows::cells(schema, batch)?,
            keys: Arc::new(keys.collect()),
            options,
        })
    }

    /// Appends `,"a":1,"b":"x"`: the fields of a row, each behind a comma.
    ///
    /// Errors: `value_not_exact`, `json_not_finite`, `json_null_value`, `jsonl_duplicate_key`, `json_lone_surrogate`,
    /// `value_does_not_fit`. `out` then ends with half a row.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let DocumentOptions {
            text_integers,
            text_json,
            omit_nulls,
            exact_numbers,
            base64,
        } = self.options;
        let form = Form::Document {
            text_integers,
            text_json,
            exact_numbers,
            base64,
        };
        for (cells, key) in self.columns.iter().zip(self.keys.iter()) {
            if omit_nulls && cells.is_null(row) {
                continue;
            }
            out.push(b',');
            out.extend_from_slice(key);
            cells
                .write_json(row, form, out)
                .map_err(|misfit| misfit.into_error(cells.field().name()).row(row))?;
        }
        Ok(())
    }
}

/// Appends a string of JSON with quotes and escapes.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    json::write_string(text, out);
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};
    use arrow_schema::Schema;
    use rapidbyte_wire::types::parse_field;

    use super::*;

    fn batch() -> (SchemaRef, RecordBatch) {
        let fields = [
            ("n", "int64"),
            ("d", "decimal(10, 2)"),
            ("f", "float64"),
            ("j", "json"),
        ];
        let fields = fields.map(|(name, ty)| parse_field(name, ty, true).unwrap());
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let decimals = Decimal128Array::from(vec![Some(1250), None, Some(-5), None]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![
                Some((1 << 53) - 1),
                Some(1 << 53),
                None,
                Some(1),
            ])),
            Arc::new(decimals.with_precision_and_scale(10, 2).unwrap()),
            Arc::new(Float64Array::from(vec![1.0, 0.5, f64::NAN, 2.0])),
            Arc::new(StringArray::from(vec![
                Some("{\"a\": 1}"),
                None,
                None,
                Some("9007199254740993"),
            ])),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        (schema, batch)
    }

    fn written(options: DocumentOptions) -> Vec<Result<String, &'static str>> {
        let (schema, batch) = batch();
        let documents = Documents::new(&schema, &batch, options).unwrap();
        let rows = (0..batch.num_rows()).map(|row| {
            let mut out = Vec::new();
            let written = documents.write(row, &mut out);
            written.map_err(|error| error.code)?;
            Ok(String::from_utf8(out).unwrap())
        });
        rows.collect()
    }

    #[test]
    fn a_zero_with_a_sign_is_refused() {
        for (ty, array) in [
            (
                "float64",
                Arc::new(Float64Array::from(vec![0.0, -0.0])) as ArrayRef,
            ),
            (
                "float32",
                Arc::new(arrow_array::Float32Array::from(vec![0.0, -0.0])),
            ),
        ] {
            let schema = Arc::new(Schema::new(vec![parse_field("f", ty, true).unwrap()]));
            let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
            let documents = Documents::new(&schema, &batch, DocumentOptions::default()).unwrap();
            let mut out = Vec::new();
            documents.write(0, &mut out).unwrap();
            let error = documents.write(1, &mut out).unwrap_err();
            assert_eq!(
                (error.code, error.column.as_deref()),
                ("value_not_exact", Some("f"))
            );
        }
    }

    #[test]
    fn a_number_that_a_float_does_not_hold_is_refused_or_a_string() {
        let found = written(DocumentOptions::default());
        let first = r#","n":9007199254740991,"d":"12.50","f":1.0,"j":{"a":1}"#;
        assert_eq!(
            found,
            [
                Ok(first.to_owned()),
                Err("value_not_exact"),
                Err("json_not_finite"),
                Err("value_not_exact"),
            ]
        );
        let found = written(DocumentOptions {
            text_integers: true,
            text_json: true,
            omit_nulls: true,
            ..DocumentOptions::default()
        });
        assert_eq!(
            found,
            [
                Ok(r#","n":"9007199254740991","d":"12.50","f":1.0,"j":"{\"a\": 1}""#.to_owned()),
                Ok(r#","n":"9007199254740992","f":0.5"#.to_owned()),
                Err("json_not_finite"),
                Ok(r#","n":"1","f":2.0,"j":"9007199254740993""#.to_owned()),
            ]
        );
    }

    #[test]
    fn a_database_that_keeps_digits_gets_every_number_and_bytes_in_base64() {
        let fields = [
            ("n", "uint64"),
            ("f", "float64"),
            ("j", "json"),
            ("b", "binary"),
        ];
        let fields = fields.map(|(name, ty)| parse_field(name, ty, true).unwrap());
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(arrow_array::UInt64Array::from(vec![u64::MAX, 1])),
            Arc::new(Float64Array::from(vec![-0.0, 1.0])),
            Arc::new(StringArray::from(vec![
                "[9007199254740993, 1.10]",
                "{\"a\":1,\"a\":2}",
            ])),
            Arc::new(arrow_array::BinaryArray::from_vec(vec![
                b"\x00\xff\xfe\xfd",
                b"",
            ])),
        ];
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let options = DocumentOptions {
            exact_numbers: true,
            base64: true,
            ..DocumentOptions::default()
        };
        let documents = Documents::new(&schema, &batch, options).unwrap();
        let mut out = Vec::new();
        documents.write(0, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#","n":18446744073709551615,"f":-0.0,"j":[9007199254740993,1.10],"b":"AP/+/Q==""#
        );
        let error = documents.write(1, &mut Vec::new()).unwrap_err();
        assert_eq!(error.code, "jsonl_duplicate_key");
    }
}

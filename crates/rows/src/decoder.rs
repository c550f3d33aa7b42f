//! Batches to JSON columns.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use rapidbyte_formats::jsonl::ColumnEncoder;
use rapidbyte_wire::declared::declared_type;
use rapidbyte_wire::ipc;
use rapidbyte_wire::types::type_name;
use serde_json::Value;

use crate::{REPORT, Refusal};

/// About this many bytes of Arrow data become columns at a time. The values of a script, and the garbage that they
/// leave, take many times the room.
const PIECE_BYTES: usize = 256 << 10;

/// Reads the batches of one write of a stream.
pub struct Decoder {
    messages: ipc::Decoder,
    columns: ColumnEncoder,
    /// Rows of all batches so far.
    taken: u64,
}

/// Some rows of a batch.
pub struct Piece(RecordBatch);

/// A column that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// Its type, as a source declares it.
    pub type_name: String,
    /// Why its values cannot be written.
    pub refused: Option<String>,
}

/// The columns of an Arrow IPC `Schema` message in order, and the same as the JSON object
/// `{"id": "int64 not null", "name": "string"}`.
///
/// Errors: `invalid_schema`.
pub fn columns(schema: &[u8]) -> Result<(Vec<Held>, String), Refusal> {
    Ok(held(&read(schema)?))
}

/// The same of a schema.
pub(crate) fn held(schema: &Schema) -> (Vec<Held>, String) {
    let mut held = Vec::with_capacity(schema.fields().len());
    let mut declared = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column = Held {
            name: field.name().clone(),
            type_name: type_name(field),
            refused: ColumnEncoder::holds(field).err().map(|error| error.message),
        };
        let text = declared_type(field);
        let [name, text] = [&column.name, &text].map(|text| Value::from(text.as_str()));
        declared.push(format!("{name}:{text}"));
        held.push(column);
    }
    (held, format!("{{{}}}", declared.join(",")))
}

pub(crate) fn read(schema: &[u8]) -> Result<Schema, Refusal> {
    ipc::decode_schema(schema)
        .map_err(|error| Refusal::internal("invalid_schema", error.to_string()).hint(REPORT))
}

impl Decoder {
    /// For batches of an Arrow IPC `Schema` message; `wide_texts` as [`ColumnEncoder::new`] takes it.
    ///
    /// Errors: `invalid_schema`, `unsupported_type`.
    pub fn new(schema: &[u8], wide_texts: bool) -> Result<Self, Refusal> {
        let columns = ColumnEncoder::new(Arc::new(read(schema)?), wide_texts);
        let messages = ipc::Decoder::new(schema)
            .map_err(|error| Refusal::internal("invalid_schema", error.to_string()).hint(REPORT))?;
        Ok(Self {
            messages,
            columns: columns.map_err(|error| Refusal::of(error, 0))?,
            taken: 0,
        })
    }

    /// A batch, in pieces of some rows.
    ///
    /// Errors: `invalid_batch` for bytes that are none of the schema, or of another number of rows.
    pub fn pieces(&self, data: Vec<u8>, rows: u64) -> Result<Vec<Piece>, Refusal> {
        let parts = data.len().div_ceil(PIECE_BYTES).max(1);
        let batch = self.messages.decode(data);
        let batch = batch
            .map_err(|error| Refusal::internal("invalid_batch", error.to_string()).hint(REPORT))?;
        let found = batch.num_rows();
        if found as u64 != rows {
            let text = format!("a batch of {found} rows, but {rows} were announced");
            return Err(Refusal::internal("invalid_batch", text).hint(REPORT));
        }
        let step = found.div_ceil(parts).max(1);
        let begins = (0..found).step_by(step);
        let pieces = begins.map(|from| Piece(batch.slice(from, step.min(found - from))));
        Ok(pieces.collect())
    }

    /// A JSON array of the values of each column; pieces come in their order.
    ///
    /// Errors: the errors of [`ColumnEncoder::encode`], with the row since the decoder was made.
    pub fn columns(&mut self, piece: &Piece) -> Result<Vec<Vec<u8>>, Refusal> {
        let columns = self.columns.encode(&piece.0);
        let columns = columns.map_err(|error| Refusal::of(error, self.taken))?;
        self.taken += piece.rows();
        Ok(columns)
    }
}

impl Piece {
    /// At least one.
    pub fn rows(&self) -> u64 {
        self.0.num_rows() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoder, schema};

    const COLUMNS: &str = r#"{"id":"int64 not null","total":"decimal(10, 2)","any":"json"}"#;

    fn encoder() -> Encoder {
        Encoder::new(COLUMNS, None, 1 << 20).unwrap()
    }

    /// The columns of a batch of one piece.
    fn only_piece(
        decoder: &mut Decoder,
        data: Vec<u8>,
        rows: u64,
    ) -> Result<Vec<Vec<u8>>, Refusal> {
        let pieces = decoder.pieces(data, rows)?;
        assert_eq!(pieces.len(), 1);
        decoder.columns(&pieces[0])
    }

    #[test]
    fn a_large_batch_comes_in_pieces_that_are_all_of_it() {
        let mut encoder = Encoder::new(r#"{"n": "int64"}"#, None, 1 << 20).unwrap();
        let numbers: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
        let given = format!("[{}]", numbers.join(","));
        let batch = encoder.columns(&[&given]).unwrap().unwrap();
        let mut decoder = Decoder::new(encoder.schema_message(), false).unwrap();
        let pieces = decoder.pieces(batch.data, batch.rows).unwrap();
        assert!(pieces.len() > 2, "{}", pieces.len());
        let texts: Vec<String> = pieces
            .iter()
            .map(|piece| {
                let columns = decoder.columns(piece).unwrap();
                assert!(columns[0].len() < 2 * PIECE_BYTES);
                let text = String::from_utf8(columns[0].clone()).unwrap();
                text[1..text.len() - 1].to_owned()
            })
            .collect();
        assert_eq!(format!("[{}]", texts.join(",")), given);
    }

    #[test]
    fn declared_columns_and_rows_of_a_source_come_back() {
        let mut encoder = encoder();
        let (held, declared) = columns(encoder.schema_message()).unwrap();
        assert_eq!(declared, COLUMNS);
        assert!(held.iter().all(|column| column.refused.is_none()));
        let given = [
            "[9007199254740993,2]",
            r#"["1.50",null]"#,
            r#"[["a"],null]"#,
        ];
        let batch = encoder.columns(&given).unwrap().unwrap();
        let mut decoder = Decoder::new(encoder.schema_message(), false).unwrap();
        let back = only_piece(&mut decoder, batch.data, batch.rows).unwrap();
        let texts: Vec<_> = back
            .iter()
            .map(|text| str::from_utf8(text).unwrap())
            .collect();
        // A document is its text, so that a reader of JSON rounds no number in it.
        assert_eq!(texts, [given[0], given[1], r#"["[\"a\"]",null]"#]);
    }

    #[test]
    fn bytes_that_are_not_a_batch_of_the_schema_are_refused() {
        let mut encoder = encoder();
        let batch = encoder.rows(br#"{"id":1}"#).unwrap().unwrap();
        let mut decoder = Decoder::new(encoder.schema_message(), false).unwrap();
        let refused = only_piece(&mut decoder, batch.data.clone(), 2).unwrap_err();
        assert_eq!(refused.code, "invalid_batch");
        let refused = only_piece(&mut decoder, b"no batch".to_vec(), 1).unwrap_err();
        assert_eq!(refused.code, "invalid_batch");
        let columns = only_piece(&mut decoder, batch.data, 1).unwrap();
        assert_eq!(columns[0], b"[1]");
    }

    #[test]
    fn the_row_of_an_error_is_counted_over_all_batches() {
        let float = schema(r#"{"x": "float64"}"#).unwrap();
        let float = Arc::new(float);
        let mut messages = ipc::Encoder::new(&float).unwrap();
        let mut batch = |x: f64| {
            let values = arrow_array::Float64Array::from(vec![1.0, x]);
            let batch = arrow_array::RecordBatch::try_new(float.clone(), vec![Arc::new(values)]);
            messages.encode(&batch.unwrap()).unwrap()
        };
        let (fine, broken) = (batch(2.0), batch(f64::INFINITY));
        let mut decoder = Decoder::new(messages.schema_message(), false).unwrap();
        only_piece(&mut decoder, fine, 2).unwrap();
        let refused = only_piece(&mut decoder, broken, 2).unwrap_err();
        assert_eq!((refused.code, refused.row), ("json_not_finite", Some(4)));
    }
}

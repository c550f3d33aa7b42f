//! A batch survives the crossing; a damaged one is refused without a panic.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, types::Int32Type};
use arrow_schema::Schema;
use proptest::prelude::*;
use rapidbyte_wire::ipc::{Decoder, Encoder};
use rapidbyte_wire::verify::Layout;

fn batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        ),
        (
            "name",
            Arc::new(StringArray::from(vec![Some("ä"), Some(""), None])),
        ),
        (
            "tags",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
                Some(vec![Some(1), None]),
                None,
                Some(vec![]),
            ])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .expect("columns of one length")
}

#[test]
fn a_batch_comes_back_equal() {
    let batch = batch();
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    let decoder = Decoder::new(encoder.schema_message()).unwrap();
    for slice in [batch.clone(), batch.slice(1, 2), batch.slice(0, 0)] {
        let message = encoder.encode(&slice).unwrap();
        let layout = Layout::of(decoder.schema()).unwrap();
        layout.verify(&message, slice.num_rows() as u64).unwrap();
        assert_eq!(decoder.decode(message).unwrap(), slice);
    }
}

#[test]
fn a_batch_without_columns_keeps_its_rows() {
    let schema = Arc::new(Schema::empty());
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(5));
    let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &options).unwrap();
    let mut encoder = Encoder::new(&schema).unwrap();
    let message = encoder.encode(&batch).unwrap();
    Layout::of(&schema).unwrap().verify(&message, 5).unwrap();
    let decoder = Decoder::new(encoder.schema_message()).unwrap();
    assert_eq!(decoder.decode(message).unwrap().num_rows(), 5);
}

#[test]
fn a_lie_about_rows_or_schema_is_seen() {
    let batch = batch();
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    let message = encoder.encode(&batch).unwrap();
    let layout = Layout::of(&batch.schema()).unwrap();
    assert!(
        layout
            .verify(&message, 2)
            .unwrap_err()
            .to_string()
            .contains("3 rows in the header")
    );
    let fewer = Schema::new(batch.schema().fields()[..2].to_vec());
    assert!(Layout::of(&fewer).unwrap().verify(&message, 3).is_err());
    let schema_message = encoder.schema_message().to_vec();
    assert!(layout.verify(&schema_message, 3).is_err());
}

proptest! {
    #[test]
    fn damage_never_panics(at in 0usize..2000, value: u8, cut in 0usize..2000) {
        let batch = batch();
        let mut encoder = Encoder::new(&batch.schema()).unwrap();
        let mut message = encoder.encode(&batch).unwrap();
        let layout = Layout::of(&batch.schema()).unwrap();
        let at = at % message.len();
        message[at] = value;
        message.truncate(message.len() - cut % message.len());
        let _ = layout.verify(&message, 3);
        let decoder = Decoder::new(encoder.schema_message()).unwrap();
        let _ = decoder.decode(message);
    }
}

//! A batch survives the crossing; a damaged one is refused without a panic.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, MapBuilder, StringBuilder};
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
    FixedSizeListArray, Int64Array, LargeBinaryArray, LargeListArray, ListArray, NullArray,
    RecordBatch, StringArray, StructArray, Time32SecondArray, Time64MicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_schema::{DataType, Field, Fields, Schema};
use proptest::prelude::*;
use rapidbyte_wire::ipc::{Decoder, Encoder, encode_schema};
use rapidbyte_wire::size::batch_bytes;
use rapidbyte_wire::verify::{Layout, Unfit};

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
    let all = every_layout();
    let message = Encoder::new(&all.schema()).unwrap().encode(&all).unwrap();
    let schema_message = encode_schema(&all.schema()).unwrap();
    let again = Decoder::new(&schema_message)
        .unwrap()
        .decode(message)
        .unwrap();
    assert_eq!(again, all);
    assert_eq!(
        encoder.schema_message(),
        encode_schema(&batch.schema()).unwrap()
    );
    for slice in [
        batch.clone(),
        batch.slice(1, 2),
        batch.slice(0, 0),
        batch.clone(),
    ] {
        let message = encoder.encode(&slice).unwrap();
        let layout = Layout::of(decoder.schema()).unwrap();
        layout.verify(&message, slice.num_rows() as u64).unwrap();
        assert_eq!(decoder.decode(message).unwrap(), slice);
    }
}

#[test]
fn a_message_takes_its_own_bytes_where_columns_share_a_buffer() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let columns = (0..1600).map(|at| (format!("c{at}"), ids.clone()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut encoder = Encoder::new(&batch.schema()).unwrap();
    let decoder = Decoder::new(encoder.schema_message()).unwrap();
    let message = encoder.encode(&batch).unwrap();
    let once = message.len();
    // All its columns share the message's buffer.
    let shared = decoder.decode(message).unwrap();
    assert_eq!(batch_bytes(&shared), 1600 * 100 * 8);
    let again = encoder.encode(&shared).unwrap();
    assert_eq!((again.len(), again.capacity()), (once, once));
    let few = encoder.encode(&shared.slice(50, 1)).unwrap();
    assert_eq!(few.capacity(), few.len());
}

#[test]
fn the_size_of_a_batch_is_of_its_own_rows() {
    let all = every_layout();
    let whole = batch_bytes(&all);
    let rows = all.num_rows();
    let each: usize = (0..rows).map(|row| batch_bytes(&all.slice(row, 1))).sum();
    // Each slice has an offset and a byte of bits more for a column.
    let more = rows * all.num_columns() * 32;
    assert!((whole..=whole + more).contains(&each), "{whole}, {each}");
    assert_eq!(batch_bytes(&all.slice(1, 0)), batch_bytes(&all.slice(0, 0)));
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
fn the_first_rows_of_a_message_are_the_first_rows_of_its_batch() {
    let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
    for batch in [batch(), every_layout(), none] {
        let mut encoder = Encoder::new(&batch.schema()).unwrap();
        let decoder = Decoder::new(encoder.schema_message()).unwrap();
        let layout = Layout::of(&batch.schema()).unwrap();
        let message = encoder.encode(&batch).unwrap();
        let all = batch.num_rows();
        for rows in 0..all + 2 {
            let mut first = message.clone();
            layout.truncate(&mut first, rows as u64).unwrap();
            let rows = rows.min(all);
            layout.verify(&first, rows as u64).unwrap();
            let decoded = decoder.decode(first).unwrap();
            assert_eq!(decoded, batch.slice(0, rows), "{rows} of {all}");
            for (decoded, column) in decoded.columns().iter().zip(batch.columns()) {
                let expected = column.slice(0, rows).logical_null_count();
                assert_eq!(decoded.logical_null_count(), expected);
            }
        }
    }
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(5));
    let schema = Arc::new(Schema::empty());
    let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &options).unwrap();
    let mut message = Encoder::new(&schema).unwrap().encode(&batch).unwrap();
    let layout = Layout::of(&schema).unwrap();
    layout.truncate(&mut message, 2).unwrap();
    layout.verify(&message, 2).unwrap();
}

#[test]
fn a_message_that_lies_is_not_shortened() {
    let batch = batch();
    let message = Encoder::new(&batch.schema())
        .unwrap()
        .encode(&batch)
        .unwrap();
    let other = Layout::of(&Schema::empty()).unwrap();
    assert!(other.truncate(&mut message.clone(), 1).is_err());
    let layout = Layout::of(&batch.schema()).unwrap();
    for end in [0, 7, 8, message.len() - 1] {
        assert!(layout.truncate(&mut message[..end].to_vec(), 1).is_err());
    }
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

/// A column of every layout.
fn every_layout() -> RecordBatch {
    let ids = Int64Array::from(vec![Some(1), None, Some(3)]);
    let texts = StringArray::from(vec![Some("ä"), Some(""), None]);
    let flags = BooleanArray::from(vec![Some(true), None, Some(false)]);
    let fields = Fields::from(vec![
        Field::new("id", ids.data_type().clone(), true),
        Field::new("name", texts.data_type().clone(), true),
    ]);
    let nulls = NullBuffer::from(vec![true, false, true]);
    let values: Vec<ArrayRef> = vec![Arc::new(ids.clone()), Arc::new(texts.clone())];
    let rows = StructArray::new(fields, values, Some(nulls.clone()));
    let pairs = FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
        vec![Some(vec![Some(1), None]), None, Some(vec![None, Some(2)])],
        2,
    );
    let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(vec![
        Some(vec![Some(1)]),
        None,
        Some(vec![]),
    ]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_null();
    for valid in [true, false, true] {
        map.append(valid).expect("one key for each value");
    }
    let uuids = vec![Some([7_u8; 16]), None, Some([9; 16])].into_iter();
    let uuids =
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).expect("16 bytes each");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("rows", Arc::new(rows)),
        ("flags", Arc::new(flags)),
        ("pairs", Arc::new(pairs)),
        ("large", Arc::new(large)),
        ("map", Arc::new(map.finish())),
        ("uuids", Arc::new(uuids)),
        ("nothing", Arc::new(NullArray::new(3))),
        (
            "decimals",
            Arc::new(Decimal256Array::from(vec![None, None, None])),
        ),
        (
            "bytes",
            Arc::new(LargeBinaryArray::from(vec![Some(&b"x"[..]), None, None])),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
        .expect("columns of one length")
}

fn decimals(precision: u8, values: [Option<i128>; 3]) -> ArrayRef {
    let values = Decimal128Array::from(values.to_vec());
    Arc::new(values.with_data_type(DataType::Decimal128(precision, 2)))
}

fn wide_decimals(precision: u8, values: [Option<&str>; 3]) -> ArrayRef {
    let values = values.map(|value| value.map(|digits| i256::from_string(digits).expect("digits")));
    let values = Decimal256Array::from(values.to_vec());
    Arc::new(values.with_data_type(DataType::Decimal256(precision, 0)))
}

#[test]
fn a_decimal_with_more_digits_than_declared_is_found_wherever_it_is() {
    let nines = "9".repeat(76);
    let (more, less) = (format!("1{}", "0".repeat(76)), format!("-{nines}"));
    let list = |items: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
        Arc::new(ListArray::new(field, offsets, items, None))
    };
    let hidden = {
        let values = vec![99_999, i128::MAX, -99_999];
        let nulls = NullBuffer::from(vec![true, false, true]);
        let values = Decimal128Array::new(values.into(), Some(nulls));
        Arc::new(values.with_data_type(DataType::Decimal128(5, 2)))
    };
    let far = Some(1_700_000_000_000_000_000_000_000_000_000_000_000);
    let largest = 10i128.pow(38) - 1;
    for (column, found) in [
        (decimals(5, [Some(99_999), None, Some(-99_999)]), None),
        (decimals(5, [Some(1), None, Some(100_000)]), Some("1000.00")),
        (decimals(5, [Some(-100_000), None, None]), Some("-1000.00")),
        (
            decimals(5, [None, Some(i128::MIN), None]),
            Some("-1701411834604692317316873037158841057.28"),
        ),
        (
            decimals(5, [None, None, far]),
            Some("17000000000000000000000000000000000.00"),
        ),
        (decimals(38, [Some(largest), Some(-largest), None]), None),
        (
            decimals(38, [Some(largest + 1), None, None]),
            Some("1000000000000000000000000000000000000.00"),
        ),
        (hidden, None),
        (
            Arc::new(Time32SecondArray::from(vec![Some(0), None, Some(86_399)])) as ArrayRef,
            None,
        ),
        (
            Arc::new(Time32SecondArray::from(vec![None, Some(86_400), None])),
            Some("86400 seconds"),
        ),
        (
            Arc::new(Time64MicrosecondArray::from(vec![Some(1), None, Some(-1)])),
            Some("-1 microseconds"),
        ),
        (list(decimals(5, [Some(1), None, Some(99_999)])), None),
        (
            list(decimals(5, [Some(1), None, Some(100_000)])),
            Some("1000.00"),
        ),
        (wide_decimals(76, [Some(&nines), Some(&less), None]), None),
        (wide_decimals(76, [None, None, Some(&more)]), Some(&*more)),
        (wide_decimals(40, [None, Some(&less), None]), Some(&*less)),
    ] {
        let first: ArrayRef = every_layout().column(0).clone();
        let batch =
            RecordBatch::try_from_iter_with_nullable([("a", first, true), ("b", column, true)]);
        let batch = batch.expect("columns of one length");
        let message = Encoder::new(&batch.schema())
            .unwrap()
            .encode(&batch)
            .unwrap();
        let layout = Layout::of(&batch.schema()).unwrap();
        let unfit = layout.verify_values(&message, 3, 1000).unwrap();
        match (unfit, found) {
            (None, None) => {}
            (
                Some(Unfit::Value {
                    column,
                    value,
                    data_type,
                }),
                Some(found),
            ) => {
                assert_eq!((&*column, &*value), ("b", found));
                let of_decimals = data_type.starts_with("decimal(");
                assert!(of_decimals || data_type == "time", "{data_type}");
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_never_panics(
        all: bool,
        places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<usize>()),
    ) {
        let batch = if all { every_layout() } else { batch() };
        let mut encoder = Encoder::new(&batch.schema()).unwrap();
        let mut message = encoder.encode(&batch).unwrap();
        let layout = Layout::of(&batch.schema()).unwrap();
        layout.verify(&message, 3).unwrap();
        for (at, value) in places {
            let at = at % message.len();
            message[at] = value;
        }
        if let Some(cut) = cut {
            message.truncate(cut % message.len());
        }
        let _ = layout.verify(&message, 3);
        let _ = layout.verify_values(&message, 3, 1000);
        let decoder = Decoder::new(encoder.schema_message()).unwrap();
        let _ = decoder.decode(message);
    }
}

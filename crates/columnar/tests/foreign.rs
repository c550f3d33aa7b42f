//! Types of Parquet that others write and that have no type of ours by the same name.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod support;

use std::sync::Arc;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalMonthDayNanoType, TimestampNanosecondType};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rapidbyte_columnar::{ColumnarError, File, Kind, Limits};
use rapidbyte_wire::types::type_name;
use support::read;

/// A file of one optional column `c` whose second row is NULL.
fn file<T: DataType>(column: &str, values: &[T::T]) -> Vec<u8> {
    let message = format!("message m {{ {column} }}");
    let root = Arc::new(parse_message_type(&message).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), root, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let mut levels = vec![1; values.len() + 1];
    levels[1] = 0;
    column
        .typed::<T>()
        .write_batch(values, Some(&levels), None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn bytes(values: &[&str]) -> Vec<ByteArray> {
    values.iter().map(|value| ByteArray::from(*value)).collect()
}

fn only(file: Vec<u8>) -> Result<arrow_array::RecordBatch, ColumnarError> {
    let mut batches = read(Kind::Parquet, file, None, Limits::default())?;
    assert_eq!(batches.len(), 1);
    Ok(batches.remove(0))
}

/// Days and nanoseconds within one, as INT96 has them: Julian days.
fn int96(day: u32, nanos: u64) -> Int96 {
    let mut value = Int96::new();
    value.set_data(nanos as u32, (nanos >> 32) as u32, day);
    value
}

#[test]
fn int96_is_read_where_nanoseconds_hold_it() {
    const EPOCH: u32 = 2_440_588;
    let day = 86_400_000_000_000_u64;
    let good = [
        int96(EPOCH, 1),
        int96(EPOCH - 1, day - 1),
        int96(EPOCH + 20_000, 5),
    ];
    let written = file::<Int96Type>("optional int96 c;", &good);
    let opened = File::open(Kind::Parquet, Arc::new(written.clone())).unwrap();
    assert_eq!(opened.source_types(), ["INT96"]);
    assert!(opened.notes()[0].contains("INT96"), "{:?}", opened.notes());
    let batch = only(written).unwrap();
    let found = batch.column(0).as_primitive::<TimestampNanosecondType>();
    let expected = [Some(1), None, Some(-1), Some(20_000 * day as i64 + 5)];
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    // The year 1000, and 9999.
    for (at, bad) in [(1, int96(2_086_308, 0)), (2, int96(5_373_484, 0))] {
        let mut values = good.to_vec();
        values[at] = bad;
        let error = only(file::<Int96Type>("optional int96 c;", &values)).unwrap_err();
        assert_eq!(
            (error.code, error.row),
            ("value_does_not_fit", Some(at as u64 + 2)),
            "{error}"
        );
    }
}

#[test]
fn intervals_are_read_exactly() {
    let value = |months: u32, days: u32, millis: u32| {
        let mut bytes = months.to_le_bytes().to_vec();
        bytes.extend(days.to_le_bytes());
        bytes.extend(millis.to_le_bytes());
        FixedLenByteArray::from(bytes)
    };
    let column = "optional fixed_len_byte_array(12) c (INTERVAL);";
    let good = [value(14, 3, 4_000_000_000), value(0, 0, 1)];
    let batch = only(file::<FixedLenByteArrayType>(column, &good)).unwrap();
    let found = batch.column(0).as_primitive::<IntervalMonthDayNanoType>();
    let first = found.value(0);
    assert_eq!(
        (first.months, first.days, first.nanoseconds),
        (14, 3, 4_000_000_000_000_000)
    );
    assert!(found.is_null(1));
    let bad = [value(0, 0, 0), value(u32::MAX, 0, 0)];
    let error = only(file::<FixedLenByteArrayType>(column, &bad)).unwrap_err();
    assert_eq!(error.code, "value_does_not_fit");
}

#[test]
fn texts_and_bytes_of_every_name_are_read() {
    for (annotation, type_of_ours, source_type) in [
        ("(UTF8)", "string", "BYTE_ARRAY STRING"),
        ("(ENUM)", "string", "BYTE_ARRAY ENUM"),
        ("(JSON)", "json", "BYTE_ARRAY JSON"),
        ("(BSON)", "binary", "BYTE_ARRAY BSON"),
        ("", "binary", "BYTE_ARRAY"),
    ] {
        let column = format!("optional binary c {annotation};");
        let written = file::<ByteArrayType>(&column, &bytes(&["a", "é"]));
        let opened = File::open(Kind::Parquet, Arc::new(written.clone())).unwrap();
        assert_eq!(
            type_name(opened.schema().field(0)),
            type_of_ours,
            "{annotation}"
        );
        assert_eq!(opened.source_types(), [source_type]);
        let batch = only(written).unwrap();
        assert_eq!((batch.num_rows(), batch.column(0).null_count()), (3, 1));
        // What is no text is refused where a text is due.
        let wrong = [ByteArray::from(vec![0xff_u8, 0xfe])];
        let result = only(file::<ByteArrayType>(&column, &wrong));
        match type_of_ours {
            "binary" => assert!(result.is_ok()),
            _ => assert_eq!(
                result.unwrap_err().code,
                "value_does_not_fit",
                "{annotation}"
            ),
        }
    }
}

#[test]
fn old_annotations_have_their_types() {
    let cases = [
        ("optional int32 c (DATE);", "date"),
        ("optional int32 c (TIME_MILLIS);", "time(ms)"),
        ("optional int32 c (DECIMAL(9, 2));", "decimal(9, 2)"),
        ("optional int32 c (UINT_16);", "uint16"),
    ];
    for (column, expected) in cases {
        let opened =
            File::open(Kind::Parquet, Arc::new(file::<Int32Type>(column, &[5, 6]))).unwrap();
        assert_eq!(type_name(opened.schema().field(0)), expected, "{column}");
    }
    let cases = [
        ("optional int64 c (TIMESTAMP_MICROS);", "timestamptz"),
        (
            "optional int64 c (TIMESTAMP(NANOS, false));",
            "timestamp(ns)",
        ),
        ("optional int64 c (UINT_64);", "uint64"),
    ];
    for (column, expected) in cases {
        let opened =
            File::open(Kind::Parquet, Arc::new(file::<Int64Type>(column, &[5, 6]))).unwrap();
        assert_eq!(type_name(opened.schema().field(0)), expected, "{column}");
    }
}

//! Types of Parquet that others write and that have no type of ours by the same name.

use std::sync::Arc;

use crate::support::{read, write};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float16Type, Float32Type, Int32Type as ArrowInt32,
    IntervalMonthDayNanoType, TimestampNanosecondType,
};
use arrow_array::{
    Array, ArrayRef, Date64Array, FixedSizeListArray, Float16Array, Float32Array, Int32Array,
    RecordBatch,
};
use arrow_buffer::NullBuffer;
use arrow_ipc::writer::FileWriter as IpcWriter;
use arrow_schema::{DataType as Arrow, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type, Int96, Int96Type,
};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rapidbyte_columnar::{ColumnarError, File, FileWriter, Kind, Limits, WriteOptions};
use rapidbyte_wire::types::type_name;

/// Two bytes.
type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// A file of one optional column `c` whose second row is NULL.
fn file<T: DataType>(column: &str, values: &[T::T]) -> Vec<u8> {
    file_of::<T>(column, values, WriterVersion::PARQUET_1_0)
}

fn file_of<T: DataType>(column: &str, values: &[T::T], version: WriterVersion) -> Vec<u8> {
    let message = format!("message m {{ {column} }}");
    let root = Arc::new(parse_message_type(&message).unwrap());
    let properties = WriterProperties::builder().set_writer_version(version);
    let properties = Arc::new(properties.build());
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

fn only(file: Vec<u8>) -> Result<RecordBatch, ColumnarError> {
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
        // Bytes that are not UTF-8 are refused where the column holds strings.
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

/// The same rows as an Arrow file and as a Parquet file of a writer that leaves its Arrow schema.
fn both(batch: &RecordBatch) -> [(Kind, Vec<u8>); 2] {
    let arrow = write(
        Kind::Arrow,
        std::slice::from_ref(batch),
        &WriteOptions::default(),
    );
    let mut parquet = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    parquet.write(batch).unwrap();
    [
        (Kind::Arrow, arrow),
        (Kind::Parquet, parquet.into_inner().unwrap()),
    ]
}

#[test]
fn short_floats_dates_of_milliseconds_and_lists_of_one_length_get_wider_types() {
    const DAY: i64 = 86_400_000;
    let halves: Float16Array = Float32Array::from(vec![Some(0.099_975_586), None, Some(-65504.0)])
        .iter()
        .map(|value| value.map(Half::from_f32))
        .collect();
    let days = Date64Array::from(vec![Some(-DAY), None, Some(20_000 * DAY)]);
    let item = Arc::new(Field::new("element", Arrow::Int32, false));
    // The reader ignores 77 and 78: they are below a NULL.
    let items: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 77, 78, 5, 6]));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let pairs = FixedSizeListArray::try_new(item, 2, items, Some(nulls)).unwrap();
    let columns: [(&str, ArrayRef); 3] = [
        ("h", Arc::new(halves)),
        ("d", Arc::new(days)),
        ("p", Arc::new(pairs)),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, a)| (n, a, true))).unwrap();
    for (kind, bytes) in both(&batch) {
        let opened = File::open(kind, Arc::new(bytes.clone())).unwrap();
        let types: Vec<_> = opened
            .schema()
            .fields()
            .iter()
            .map(|f| type_name(f))
            .collect();
        assert_eq!(types, ["float32", "date", "list<int32>"], "{kind:?}");
        let notes = opened.notes().join("\n");
        for note in [
            "\"h\": float16 is read",
            "\"d\": date64 is read",
            "\"p\": lists of one",
        ] {
            assert!(notes.contains(note), "{kind:?}: {notes}");
        }
        let found = read(kind, bytes, None, Limits::default())
            .unwrap()
            .remove(0);
        let floats = found.column(0).as_primitive::<Float32Type>();
        let expected = [Some(0.099_975_586), None, Some(-65504.0)];
        assert_eq!(floats.iter().collect::<Vec<_>>(), expected, "{kind:?}");
        let days = found.column(1).as_primitive::<Date32Type>();
        assert_eq!(
            days.iter().collect::<Vec<_>>(),
            [Some(-1), None, Some(20_000)]
        );
        let lists = found.column(2).as_list::<i32>();
        let lists: Vec<_> = lists
            .iter()
            .map(|list| list.map(|list| list.as_primitive::<ArrowInt32>().values().to_vec()))
            .collect();
        assert_eq!(
            lists,
            [Some(vec![1, 2]), None, Some(vec![5, 6])],
            "{kind:?}"
        );
    }
}

#[test]
fn a_date_of_milliseconds_within_a_day_is_refused_at_its_row() {
    let values: ArrayRef = Arc::new(Date64Array::from(vec![Some(0), None, Some(86_400_001)]));
    let batch = RecordBatch::try_from_iter([("d", values)]).unwrap();
    let bytes = write(
        Kind::Arrow,
        std::slice::from_ref(&batch),
        &WriteOptions::default(),
    );
    let written = FileWriter::new(
        Kind::Parquet,
        batch.schema(),
        &WriteOptions::default(),
        Vec::new(),
    );
    for error in [
        read(Kind::Arrow, bytes, None, Limits::default()).unwrap_err(),
        written.unwrap().write(&batch).unwrap_err(),
    ] {
        assert_eq!(
            (error.code, error.row),
            ("value_does_not_fit", Some(3)),
            "{error}"
        );
        assert_eq!(
            error.to_string(),
            "row 3: column \"d\": 86400001 ms since 1970 are not whole days, and date64 is read \
             as a date"
        );
    }
}

#[test]
fn an_index_beyond_a_dictionary_of_fixed_values_names_its_column() {
    let value = |byte: u8| FixedLenByteArray::from(vec![byte; 4]);
    let mut values = vec![value(7), value(8)];
    values.extend((0..102).map(|_| value(9)));
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let column = "optional fixed_len_byte_array(4) c;";
        let mut written = file_of::<FixedLenByteArrayType>(column, &values, version);
        let read_back = only(written.clone()).unwrap();
        assert_eq!(
            (read_back.num_rows(), read_back.column(0).null_count()),
            (105, 1)
        );
        // 96 times the third value, of two bits, after eight that are packed.
        let run = [0xc0, 0x01, 0x02];
        let at = written.windows(3).position(|bytes| bytes == run).unwrap();
        written[at + 2] = 3;
        let error = only(written).unwrap_err();
        assert_eq!((error.code, error.group), ("parquet_malformed", Some(1)));
        assert_eq!(
            error.message,
            "column \"c\": an index beyond its dictionary"
        );
    }
}

#[test]
fn sizes_below_zero_are_refused_by_name() {
    let item = Arc::new(Field::new("item", Arrow::Int32, true));
    for (data_type, reason) in [
        (Arrow::FixedSizeBinary(-1), "its values have -1 bytes"),
        (Arrow::FixedSizeList(item, -2), "its lists have -2 items"),
    ] {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        let mut file = Vec::new();
        let mut writer = IpcWriter::try_new(&mut file, &schema).unwrap();
        writer.finish().unwrap();
        drop(writer);
        let error = File::open(Kind::Arrow, Arc::new(file)).err().unwrap();
        assert_eq!(error.code, "unsupported_type");
        assert_eq!(error.message, format!("column \"c\": {reason}"));
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

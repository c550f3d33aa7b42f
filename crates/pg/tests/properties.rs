//! Random rows through the encoder and the decoder, for every portable type.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Decimal128Builder, Int32Builder, ListBuilder};
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Decimal128Array,
    FixedSizeBinaryArray, ListArray, PrimitiveArray, RecordBatch, StringArray,
};
use arrow_buffer::{IntervalMonthDayNano, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Schema};
use proptest::collection::vec;
use proptest::prelude::*;
use rapidbyte_pg::builtin::{self, Builtin, to_numeric_typmod};
use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::insert::Parameter;
use rapidbyte_pg::model::{CompositeField, Kind, PgType};
use rapidbyte_pg::{Column, field};

const ROWS: usize = 20;
const MICROS: std::ops::Range<i64> = -210_866_803_200_000_000..9_223_372_036_854_775_000;

fn numeric(precision: u16, scale: i16) -> Column {
    Column {
        typmod: to_numeric_typmod(precision, scale),
        type_text: format!("numeric({precision},{scale})"),
        ..builtin::NUMERIC.column("n")
    }
}

fn array_of(element: &Builtin, typmod: i32) -> Column {
    let ty = element.array_ty();
    let text = ty.text(typmod);
    Column {
        typmod,
        ..Column::new("l", ty, text)
    }
}

/// `ROWS` values, some of them NULL.
fn some<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Vec<Option<T>>> {
    vec(proptest::option::weighted(0.8, value), ROWS).boxed()
}

fn primitive<T: ArrowPrimitiveType>(
    column: Column,
    value: impl Strategy<Value = T::Native> + 'static,
) -> BoxedStrategy<(Column, ArrayRef)> {
    let data_type = field(&column, false).data_type().clone();
    some(value)
        .prop_map(move |values| {
            let array: PrimitiveArray<T> = values.into_iter().collect();
            let array: ArrayRef = Arc::new(array.with_data_type(data_type.clone()));
            (column.clone(), array)
        })
        .boxed()
}

fn of(
    column: Column,
    array: impl Strategy<Value = ArrayRef> + 'static,
) -> BoxedStrategy<(Column, ArrayRef)> {
    array.prop_map(move |array| (column.clone(), array)).boxed()
}

fn text() -> BoxedStrategy<ArrayRef> {
    some("[^\u{0}]{0,40}")
        .prop_map(|values| Arc::new(StringArray::from(values)) as ArrayRef)
        .boxed()
}

/// Documents of one string, without what would have to be escaped.
fn document() -> BoxedStrategy<ArrayRef> {
    let quoted = |value: Option<String>| value.map(|text| format!("\"{text}\""));
    some("[^\u{0}\"\\\\]{0,40}")
        .prop_map(move |values| {
            let values: Vec<_> = values.into_iter().map(quoted).collect();
            Arc::new(StringArray::from(values)) as ArrayRef
        })
        .boxed()
}

fn interval() -> impl Strategy<Value = IntervalMonthDayNano> {
    (
        any::<i32>(),
        any::<i32>(),
        i64::MIN / 1000..=i64::MAX / 1000,
    )
        .prop_map(|(months, days, micros)| IntervalMonthDayNano::new(months, days, micros * 1000))
}

fn lists() -> BoxedStrategy<(Column, ArrayRef)> {
    let typmod = to_numeric_typmod(20, 5);
    let value = vec(
        proptest::option::of(-10_i128.pow(20) + 1..10_i128.pow(20)),
        0..5,
    );
    some(value)
        .prop_map(move |rows| {
            let column = array_of(&builtin::NUMERIC, typmod);
            let values = Decimal128Builder::new().with_data_type(DataType::Decimal128(20, 5));
            let item = Field::new("item", DataType::Decimal128(20, 5), true);
            let mut list = ListBuilder::new(values).with_field(item);
            rows.into_iter().for_each(|row| list.append_option(row));
            (column, Arc::new(list.finish()) as ArrayRef)
        })
        .boxed()
}

fn columns() -> Vec<BoxedStrategy<(Column, ArrayRef)>> {
    let wide = i256::from_i128(10_i128.pow(38));
    let decimal256 = (any::<bool>(), 0..10_i128.pow(37), 0..10_i128.pow(38)).prop_map(
        move |(negative, high, low)| {
            let value = i256::from_i128(high)
                .wrapping_mul(wide)
                .wrapping_add(i256::from_i128(low));
            if negative {
                value.wrapping_neg()
            } else {
                value
            }
        },
    );
    let fixed = vec(any::<[u8; 16]>(), ROWS).prop_map(|rows| {
        let array = FixedSizeBinaryArray::try_from_iter(rows.iter()).expect("16 bytes");
        Arc::new(array) as ArrayRef
    });
    let bytes = some(vec(any::<u8>(), 0..20)).prop_map(|rows| {
        let rows: BinaryArray = rows.iter().map(|row| row.as_deref()).collect();
        Arc::new(rows) as ArrayRef
    });
    let bools = some(any::<bool>()).prop_map(|rows| Arc::new(BooleanArray::from(rows)) as ArrayRef);
    let limit = |digits: u32| 10_i128.pow(digits) - 1;
    let decimal = |precision: u16, scale: i16| {
        let limit = limit(u32::from(precision));
        primitive::<Decimal128Type>(numeric(precision, scale), -limit..=limit)
    };
    vec![
        of(builtin::BOOL.column("b"), bools),
        primitive::<Int16Type>(builtin::INT2.column("c"), any::<i16>()),
        primitive::<Int32Type>(builtin::INT4.column("c"), any::<i32>()),
        primitive::<Int64Type>(builtin::INT8.column("c"), any::<i64>()),
        primitive::<UInt32Type>(builtin::OID.column("c"), any::<u32>()),
        primitive::<Float32Type>(builtin::FLOAT4.column("c"), any::<f32>()),
        primitive::<Float64Type>(builtin::FLOAT8.column("c"), any::<f64>()),
        of(builtin::TEXT.column("t"), text()),
        of(builtin::VARCHAR.column("t"), text()),
        of(builtin::JSON.column("j"), text()),
        of(builtin::JSONB.column("j"), document()),
        of(builtin::BYTEA.column("y"), bytes),
        of(builtin::UUID.column("u"), fixed),
        decimal(1, 0),
        decimal(1, 1),
        decimal(12, 2),
        decimal(19, 19),
        decimal(38, 0),
        decimal(38, 3),
        decimal(38, 37),
        decimal(38, 38),
        primitive::<Decimal256Type>(numeric(75, 30), decimal256),
        primitive::<Date32Type>(builtin::DATE.column("d"), -2_440_588..2_145_042_000_i32),
        primitive::<Time64MicrosecondType>(builtin::TIME.column("d"), 0..86_400_000_000_i64),
        primitive::<TimestampMicrosecondType>(builtin::TIMESTAMP.column("d"), MICROS),
        primitive::<TimestampMicrosecondType>(builtin::TIMESTAMPTZ.column("d"), MICROS),
        primitive::<IntervalMonthDayNanoType>(builtin::INTERVAL.column("d"), interval()),
        lists(),
    ]
}

/// The values as elements of lists that end at these places, and one list that is NULL; `None` for a
/// type whose arrays are not lists.
fn in_lists((column, values): (Column, ArrayRef), cuts: &[usize]) -> Option<(Column, ArrayRef)> {
    let column = array_of(builtin::by_oid(column.ty.oid)?, column.typmod);
    let DataType::List(item) = field(&column, false).data_type().clone() else {
        return None;
    };
    let mut ends: Vec<i32> = cuts.iter().map(|end| *end as i32).collect();
    ends.extend([0, ROWS as i32, ROWS as i32]);
    ends.sort();
    let nulls = (0..ends.len() - 1)
        .map(|row| row + 2 < ends.len())
        .collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    let lists = ListArray::new(item, offsets, values, Some(nulls));
    Some((column, Arc::new(lists)))
}

/// The columns, with names, and their rows.
fn table(columns: Vec<(Column, ArrayRef)>) -> (Vec<Column>, RecordBatch) {
    let (mut columns, arrays): (Vec<Column>, Vec<ArrayRef>) = columns.into_iter().unzip();
    for (index, column) in columns.iter_mut().enumerate() {
        column.name = format!("c{index}");
    }
    let fields: Vec<_> = columns.iter().map(|column| field(column, false)).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
    (columns, batch.expect("batch"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_rows_come_back(columns in columns(), chunk in 1..400_usize, sliced in 0..ROWS) {
        let (columns, batch) = table(columns);
        let batch = batch.slice(sliced, ROWS - sliced);
        let mut encoder = Encoder::new(batch.schema_ref(), &columns).expect("encoder");
        let mut bytes = Vec::new();
        encoder.header(&mut bytes);
        let rows = encoder.bind(&batch).expect("bind");
        let mut row = 0;
        while row < rows.len() {
            row = rows.encode(row, bytes.len() + 300, &mut bytes).expect("encode");
        }
        drop(rows);
        encoder.trailer(&mut bytes);
        let mut decoder = Decoder::new(&columns, false, 1 << 20);
        for part in bytes.chunks(chunk) {
            decoder.push(part).expect("push");
        }
        decoder.finish().expect("trailer");
        prop_assert_eq!(decoder.rows(), ROWS - sliced);
        prop_assert_eq!(decoder.take_batch().expect("batch"), batch);
    }

    #[test]
    fn lists_of_every_kind_come_back(columns in columns(), cuts in vec(0..=ROWS, 4)) {
        let (columns, batch) = table(columns.into_iter().filter_map(|c| in_lists(c, &cuts)).collect());
        let mut encoder = Encoder::new(batch.schema_ref(), &columns).expect("encoder");
        let mut bytes = Vec::new();
        encoder.header(&mut bytes);
        encoder.encode(&batch, &mut bytes).expect("encode");
        encoder.trailer(&mut bytes);
        let mut decoder = Decoder::new(&columns, false, 1 << 20);
        decoder.push(&bytes).expect("push");
        decoder.finish().expect("trailer");
        prop_assert!(columns.len() >= 20, "{} kinds", columns.len());
        prop_assert_eq!(decoder.take_batch().expect("batch"), batch);
    }

    #[test]
    fn rows_come_back_from_messages(
        columns in columns(),
        chunk in 1..3000_usize,
        shapes in vec(0..8_u8, ROWS),
    ) {
        let (columns, batch) = table(columns);
        let mut encoder = Encoder::new(batch.schema_ref(), &columns).expect("encoder");
        let mut messages = vec![Vec::new()];
        encoder.header(&mut messages[0]);
        let rows = encoder.bind(&batch).expect("bind");
        for (row, shape) in shapes.into_iter().enumerate() {
            let mut bytes = Vec::new();
            rows.encode(row, 0, &mut bytes).expect("encode");
            match shape {
                // With the one before, and in two: servers do neither, poolers may.
                0 => messages.last_mut().expect("a header").append(&mut bytes),
                1 => {
                    let end = bytes.split_off(bytes.len() / 2);
                    messages.extend([bytes, end]);
                }
                _ => messages.push(bytes),
            }
        }
        let mut trailer = Vec::new();
        drop(rows);
        encoder.trailer(&mut trailer);
        messages.push(trailer);
        let mut stream = Vec::new();
        for body in messages {
            stream.push(b'd');
            stream.extend((body.len() as u32 + 4).to_be_bytes());
            stream.extend(body);
        }
        let mut decoder = Decoder::new(&columns, false, 1 << 20);
        let mut buffer = Vec::new();
        for part in stream.chunks(chunk) {
            buffer.extend(part);
            let taken = decoder.push_messages(&buffer).expect("messages");
            buffer.drain(..taken);
        }
        decoder.finish().expect("trailer");
        prop_assert_eq!(decoder.take_batch().expect("batch"), batch);
    }
}

/// The bytes that the server would read for one row of one column.
fn encoded(array: ArrayRef, target: Column) -> Result<Vec<u8>, rapidbyte_pg::PgError> {
    let schema = Schema::new(vec![Field::new("c", array.data_type().clone(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![array]).expect("batch");
    let mut out = Vec::new();
    Encoder::new(batch.schema_ref(), &[target])?.encode(&batch, &mut out)?;
    Ok(out.split_off(2))
}

/// More rows than are written together, of values of one length, of any, and of what shows when written.
fn many_rows() -> (Vec<Column>, RecordBatch) {
    let rows = 0..5000_i64;
    let unless = |null: bool, value: i64| (!null).then_some(value);
    let ids: PrimitiveArray<Int64Type> = rows.clone().map(Some).collect();
    let sparse: PrimitiveArray<Int64Type> = rows.clone().map(|i| unless(i % 3 == 0, i)).collect();
    let words: StringArray = rows
        .clone()
        .map(|i| Some("unwritten".repeat(i as usize % 11)))
        .collect();
    // A NULL may have bytes.
    let (offsets, bytes, _) = words.into_parts();
    let nulls = rows.clone().map(|i| i % 7 != 0).collect();
    let words = StringArray::new(offsets, bytes, Some(nulls));
    let decimals: Decimal128Array = rows.map(|i| (i % 5 != 0).then_some(i.into())).collect();
    let decimals = decimals.with_precision_and_scale(9, 2).expect("decimals");
    table(vec![
        (builtin::INT8.column("c"), Arc::new(ids)),
        (builtin::INT8.column("c"), Arc::new(sparse)),
        (builtin::TEXT.column("c"), Arc::new(words)),
        (numeric(9, 2), Arc::new(decimals)),
    ])
}

#[test]
fn many_rows_are_written_as_they_are_one_by_one_and_come_back() {
    let (columns, batch) = many_rows();
    let mut encoder = Encoder::new(batch.schema_ref(), &columns).expect("encoder");
    let rows = encoder.bind(&batch).expect("bind");
    let (mut ends, mut one_by_one) = (Vec::new(), Vec::new());
    for row in 0..rows.len() {
        rows.encode(row, 0, &mut one_by_one).expect("encode");
        ends.push(one_by_one.len());
    }
    for full_bytes in [1, 777, 10_000, usize::MAX] {
        let (mut all, mut row) = (Vec::new(), 0);
        while row < rows.len() {
            let limit = full_bytes.saturating_add(all.len());
            row = rows.encode(row, limit, &mut all).expect("encode");
            // Not a row more than it takes.
            assert_eq!(all.len(), ends[row - 1]);
            assert!(row < 2 || full_bytes == usize::MAX || ends[row - 2] < limit);
        }
        assert!(all == one_by_one, "{full_bytes} at a time");
    }
    let (mut stream, mut messages) = (Vec::new(), Vec::new());
    drop(rows);
    encoder.header(&mut stream);
    message(&mut messages, &stream);
    let mut start = 0;
    for end in ends {
        message(&mut messages, &one_by_one[start..end]);
        start = end;
    }
    stream.append(&mut one_by_one);
    encoder.trailer(&mut stream);
    message(&mut messages, &stream[stream.len() - 2..]);
    let mut decoder = Decoder::new(&columns, false, 1 << 20);
    decoder.push(&stream).expect("push");
    decoder.finish().expect("trailer");
    assert_eq!(decoder.take_batch().expect("batch"), batch);
    // As the server sends them, and more at once than are scanned together.
    let mut decoder = Decoder::new(&columns, false, 1 << 20);
    let taken = decoder.push_messages(&messages).expect("messages");
    assert_eq!(taken, messages.len());
    decoder.finish().expect("trailer");
    assert_eq!(decoder.take_batch().expect("batch"), batch);
}

/// A CopyData message.
fn message(out: &mut Vec<u8>, body: &[u8]) {
    out.push(b'd');
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
}

/// Decodes rows of one column; each row is a message.
fn decoded_rows(
    column: &Column,
    values: &[Option<&[u8]>],
    max_record_bytes: usize,
) -> Result<RecordBatch, rapidbyte_pg::PgError> {
    let mut messages = Vec::new();
    let header = [b"PGCOPY\n\xff\r\n\0".as_slice(), &[0; 8]].concat();
    message(&mut messages, &header);
    for value in values {
        let mut row = 1_i16.to_be_bytes().to_vec();
        row.extend(value.map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
        row.extend(value.unwrap_or_default());
        message(&mut messages, &row);
    }
    let columns = std::slice::from_ref(column);
    let mut decoder = Decoder::new(columns, false, max_record_bytes).counting_from(100);
    decoder.push_messages(&messages)?;
    let taken = decoder.take_batch();
    // A decoder that failed stays failed.
    assert!(taken.is_ok() || decoder.take_batch().is_err());
    taken
}

#[test]
fn a_null_that_the_catalog_excludes_is_named() {
    let mut column = builtin::INT4.column("c");
    column.not_null = true;
    let one = 1_i32.to_be_bytes();
    let error = decoded_rows(&column, &[Some(&one), None, None], 100);
    let error = error.expect_err("a foreign table may say so");
    assert_eq!(error.code, "value_does_not_fit");
    assert_eq!(error.column.as_deref(), Some("c"));
    assert!(error.message.contains("row 102: NULL"), "{error}");
    assert!(error.hint.is_some());
}

#[test]
fn a_list_that_is_larger_in_memory_than_a_record_may_be_is_named() {
    let column = array_of(&builtin::NUMERIC, builtin::to_numeric_typmod(50, 0));
    let array = |elements: u32| {
        let words = [1, 1, builtin::NUMERIC.oid, elements, 1];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.resize(bytes.len() + elements as usize * 4, 0xff);
        bytes
    };
    let (fits, does_not) = (array(100), array(101));
    assert!(decoded_rows(&column, &[Some(&fits)], 3200).is_ok());
    let error = decoded_rows(&column, &[Some(&fits), Some(&does_not)], 3200);
    let error = error.expect_err("32 bytes an element");
    assert_eq!(error.code, "record_too_large");
    assert!(error.message.contains("row 102:"), "{error}");
}

#[test]
fn elements_that_are_not_written_are_not_checked() {
    // Two rows of three: a batch that was cut off keeps what its lists held.
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c\0", "much too long"]));
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let list = |ends: Vec<i32>| {
        let offsets = OffsetBuffer::new(ends.into());
        Arc::new(ListArray::new(
            Arc::clone(&item),
            offsets,
            Arc::clone(&texts),
            None,
        )) as ArrayRef
    };
    let column = || array_of(&builtin::TEXT, -1);
    assert!(encoded(list(vec![0, 1, 2]), column()).is_ok());
    let error = encoded(list(vec![0, 1, 3]), column()).expect_err("NUL");
    assert_eq!(error.code, "invalid_text");
    assert!(error.message.contains("row 2:"), "{error}");
}

#[test]
fn many_rows_are_one_parameter_as_they_are_many() {
    let (columns, batch) = many_rows();
    let nobody = builtin::INT4.column("nobody");
    let fields = columns.iter().chain([&nobody]);
    let field = |column: &Column| CompositeField {
        name: column.name.clone(),
        typmod: column.typmod,
        type_text: column.type_text.clone(),
        ty: column.ty.clone(),
    };
    let row_type = PgType {
        oid: 99_999,
        schema: "public".into(),
        name: "many".into(),
        kind: Kind::Composite {
            fields: fields.map(field).collect(),
        },
    };
    let parameter = Parameter::new(batch.schema_ref(), &columns, &row_type);
    let mut parameter = parameter.expect("parameter");
    let rows = parameter.bind(&batch).expect("bind");
    // Dimensions, whether NULLs are among the elements, type, length and lower bound.
    const HEAD: usize = 20;
    let mut one_by_one: Vec<u8> = Vec::new();
    for row in 0..rows.len() {
        let mut one = Vec::new();
        let next = rows.encode(row..row + 1, usize::MAX, &mut one);
        assert_eq!(next.expect("encode"), row + 1);
        // The record says how long it is.
        assert_eq!(one[HEAD..HEAD + 4], (one.len() as u32 - 24).to_be_bytes());
        one_by_one.extend(&one[HEAD..]);
    }
    let mut all = Vec::new();
    let end = rows.encode(0..rows.len(), usize::MAX, &mut all);
    assert_eq!(end.expect("encode"), rows.len());
    assert!(all[HEAD..] == one_by_one);
    let mut some = Vec::new();
    let row = rows.encode(0..rows.len(), 50_000, &mut some);
    assert!((50_000..50_500).contains(&some.len()), "{row:?}");
    assert!(some[HEAD..] == one_by_one[..some.len() - HEAD]);
}

#[test]
fn the_first_row_that_cannot_be_written_is_named() {
    let (mut columns, batch) = many_rows();
    let mut fields = batch.schema().fields().to_vec();
    let mut arrays = batch.columns().to_vec();
    // PostgreSQL's last day is in the year 5874897.
    for (column, wrong) in [(4, [3001, 3002]), (5, [3000, 4000])] {
        let name = format!("c{column}");
        let days = (0..5000).map(|row| Some(if wrong.contains(&row) { i32::MAX } else { 0 }));
        columns.push(builtin::DATE.column(&name));
        fields.push(Arc::new(Field::new(&name, DataType::Date32, true)));
        arrays.push(Arc::new(days.collect::<PrimitiveArray<Date32Type>>()));
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("batch");
    let mut encoder = Encoder::new(batch.schema_ref(), &columns).expect("encoder");
    let mut out = vec![1];
    let error = encoder.encode(&batch, &mut out);
    let error = error.expect_err("no such day");
    assert_eq!(out, [1]);
    assert_eq!(error.code, "value_does_not_fit");
    assert_eq!(error.column.as_deref(), Some("c5"));
    assert!(error.message.contains("row 3001:"), "{error}");
}

#[test]
fn a_list_whose_element_cannot_be_written_leaves_nothing_behind() {
    let days: PrimitiveArray<Date32Type> = vec![1, 2, 3, i32::MAX, 4].into();
    let column = array_of(&builtin::DATE, -1);
    let DataType::List(item) = field(&column, false).data_type().clone() else {
        panic!("arrays of days are lists");
    };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 2, 5]));
    let lists = ListArray::new(item, offsets, Arc::new(days), None);
    let (columns, batch) = table(vec![(column, Arc::new(lists))]);
    let encoder = || Encoder::new(batch.schema_ref(), &columns).expect("encoder");
    let mut good = Vec::new();
    let written = encoder().encode(&batch.slice(0, 2), &mut good);
    written.expect("two rows");
    let mut encoder = encoder();
    let rows = encoder.bind(&batch).expect("bind");
    let mut out = Vec::new();
    for row in 0..2 {
        assert_eq!(rows.encode(row, 0, &mut out).expect("encode"), row + 1);
    }
    assert_eq!(out, good);
    for row in [0, 2] {
        let error = rows.encode(row, usize::MAX, &mut out);
        let error = error.expect_err("no such day");
        assert!(error.message.contains("row 3:"), "{error}");
        assert_eq!(out, good);
    }
}

#[test]
fn bytes_of_no_width_are_empty() {
    let none = vec![Some(Vec::<u8>::new()), None];
    let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(none.into_iter(), 0);
    let bytes = encoded(Arc::new(array.expect("array")), builtin::BYTEA.column("c"));
    assert_eq!(
        bytes.expect("bytes"),
        [0, 0, 0, 0, 0, 1, 255, 255, 255, 255]
    );
}

#[test]
fn fields_from_elsewhere_are_encoded_for_wider_columns() {
    let int = |value: i32| -> ArrayRef { Arc::new(PrimitiveArray::<Int32Type>::from(vec![value])) };
    let wide = encoded(int(-2), builtin::INT8.column("c")).expect("int8");
    assert_eq!(wide, [0, 0, 0, 8, 255, 255, 255, 255, 255, 255, 255, 254]);
    // 10000 is one digit of weight one.
    let numeric = encoded(int(-10_000), builtin::NUMERIC.column("c")).expect("numeric");
    assert_eq!(numeric, [0, 0, 0, 10, 0, 1, 0, 1, 0x40, 0, 0, 0, 0, 1]);
    let max = Arc::new(PrimitiveArray::<UInt64Type>::from(vec![u64::MAX]));
    let max = encoded(max, self::numeric(20, 0)).expect("uint64");
    assert_eq!(
        max[4..],
        [
            0, 5, 0, 4, 0, 0, 0, 0, 0x07, 0x34, 0x1A, 0x58, 0x02, 0xE1, 0x03, 0xBB, 0x06, 0x4F
        ][..]
    );
    // Decimal128(3, -2): 123 hundreds.
    let hundreds = PrimitiveArray::<Decimal128Type>::from(vec![123]);
    let hundreds = Arc::new(hundreds.with_data_type(DataType::Decimal128(3, -2)));
    let hundreds = encoded(hundreds, self::numeric(5, 0)).expect("negative scale");
    assert_eq!(
        hundreds,
        [0, 0, 0, 12, 0, 2, 0, 1, 0, 0, 0, 0, 0, 1, 0x08, 0xFC]
    );
    let bools = |rows: &[Option<bool>]| -> ArrayRef {
        let mut builder = BooleanBuilder::new();
        rows.iter().for_each(|row| builder.append_option(*row));
        Arc::new(builder.finish())
    };
    assert_eq!(
        encoded(bools(&[None]), builtin::BOOL.column("c")).expect("null"),
        [255; 4]
    );
}

#[test]
fn times_of_other_units_are_encoded_in_the_servers() {
    fn of<T: ArrowPrimitiveType>(value: T::Native, ty: &Builtin) -> Vec<u8> {
        let array = Arc::new(PrimitiveArray::<T>::from_value(value, 1));
        encoded(array, ty.column("c")).expect("encode")
    }
    let eight = |value: i64| [&[0, 0, 0, 8][..], &value.to_be_bytes()].concat();
    // The server counts from 2000-01-01.
    let (day, second) = (86_400_i64, 946_684_800 + 2);
    let date = of::<Date64Type>((10_957 + 3) * day * 1000, &builtin::DATE);
    assert_eq!(date, [0, 0, 0, 4, 0, 0, 0, 3]);
    let two = eight(2_000_000);
    assert_eq!(of::<TimestampSecondType>(second, &builtin::TIMESTAMP), two);
    let millis = second * 1000;
    assert_eq!(
        of::<TimestampMillisecondType>(millis, &builtin::TIMESTAMP),
        two
    );
    let nanos = second * 1_000_000_000;
    assert_eq!(
        of::<TimestampNanosecondType>(nanos, &builtin::TIMESTAMP),
        two
    );
    assert_eq!(of::<Time32SecondType>(2, &builtin::TIME), two);
    assert_eq!(of::<Time32MillisecondType>(2000, &builtin::TIME), two);
    assert_eq!(
        of::<Time64NanosecondType>(2_000_000_000, &builtin::TIME),
        two
    );
    let half = of::<Float32Type>(0.5, &builtin::FLOAT8);
    assert_eq!(half, eight(0.5_f64.to_bits() as i64));
}

#[test]
fn values_finer_than_a_microsecond_are_refused() {
    let nanos = |value: i64| -> ArrayRef {
        Arc::new(PrimitiveArray::<TimestampNanosecondType>::from(vec![value]))
    };
    assert!(encoded(nanos(1_000), builtin::TIMESTAMP.column("c")).is_ok());
    let error = encoded(nanos(1_001), builtin::TIMESTAMP.column("c")).expect_err("refused");
    assert_eq!(
        (error.code, error.column.as_deref()),
        ("value_does_not_fit", Some("c"))
    );
    let interval = IntervalMonthDayNano::new(0, 0, 1);
    let interval = Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(vec![
        interval,
    ]));
    assert!(encoded(interval, builtin::INTERVAL.column("c")).is_err());
    let day = Arc::new(PrimitiveArray::<Time64MicrosecondType>::from(vec![
        86_400_000_000,
    ]));
    assert!(encoded(day, builtin::TIME.column("c")).is_err());
    // In PostgreSQL's count the second of them is i64::MIN, which means minus infinity.
    for micros in [i64::MIN, i64::MIN + 946_684_800_000_000] {
        let early = Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from(vec![
            micros,
        ]));
        assert!(encoded(early, builtin::TIMESTAMP.column("c")).is_err());
    }
    let forever = Arc::new(PrimitiveArray::<Date32Type>::from(vec![i32::MIN + 10_957]));
    assert!(encoded(forever, builtin::DATE.column("c")).is_err());
    let nul: ArrayRef = Arc::new(StringArray::from(vec![Some("ok"), Some("a\0b")]));
    let error = encoded(nul, builtin::TEXT.column("c")).expect_err("NUL");
    assert_eq!(error.code, "invalid_text");
    assert!(error.message.contains("row 2"), "{error}");
}

#[test]
fn lists_of_lists_are_arrays_only_if_they_are_even() {
    let matrix = |rows: &[&[i32]]| -> ArrayRef {
        let mut lists = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
        for row in rows {
            lists
                .values()
                .append_value(row.iter().map(|value| Some(*value)));
        }
        lists.append(true);
        Arc::new(lists.finish())
    };
    let target = || array_of(&builtin::INT4, -1);
    let bytes = encoded(matrix(&[&[1, 2, 3], &[4, 5, 6]]), target()).expect("even");
    let word = |at: usize| i32::from_be_bytes(bytes[at * 4..][..4].try_into().expect("4"));
    let head: Vec<_> = (0..8).map(word).collect();
    assert_eq!(head, [12 + 16 + 48, 2, 0, 23, 2, 1, 3, 1]);
    assert_eq!(encoded(matrix(&[]), target()).expect("empty")[4..8], [0; 4]);
    for uneven in [&[&[1_i32][..], &[2, 3]][..], &[&[], &[1]], &[&[]]] {
        let error = encoded(matrix(uneven), target()).expect_err("uneven");
        assert_eq!(error.code, "value_does_not_fit");
    }
}

#[test]
fn a_record_above_its_limit_is_refused_before_it_is_kept() {
    let columns = [builtin::BYTEA.column("y")];
    let head = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let mut decoder = Decoder::new(&columns, true, 1000);
    decoder.push(head).expect("header");
    let error = decoder
        .push(&[0, 1, 0x3f, 0, 0, 0, 1])
        .expect_err("too large");
    assert_eq!(error.code, "record_too_large");
    assert!(
        error.message.contains("max_record_bytes is 1000"),
        "{error}"
    );
    assert!(decoder.push(&[0]).is_err() && decoder.take_batch().is_err());
    // Its length in pieces, and after that in one piece with the row.
    let mut decoder = Decoder::new(&columns, true, 1000);
    decoder.push(head).expect("header");
    decoder.push(&[0, 1, 0]).expect("no length yet");
    let error = decoder.push(&[0, 4, 0]).expect_err("too large");
    assert_eq!(error.code, "record_too_large");
    let mut decoder = Decoder::new(&columns, true, 1000);
    let mut bytes = head.to_vec();
    bytes.extend([0, 1, 0, 0, 4, 0]);
    bytes.extend([7; 1024]);
    assert_eq!(
        decoder.push(&bytes).map_err(|e| e.code),
        Err("record_too_large")
    );
}

#[test]
fn text_that_is_not_utf8_names_its_row() {
    for bad in [&[0xff_u8, b'a'][..], &[0xe2, 0x82]] {
        let mut bytes =
            b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x02ab\0\x01\0\0\0\x02".to_vec();
        bytes.extend(bad);
        // The rest of a character in the next row does not mend it.
        bytes.extend(b"\0\x01\0\0\0\x01\xac\xff\xff");
        let mut decoder = Decoder::new(&[builtin::TEXT.column("t")], true, 1000);
        decoder.push(&bytes).expect("the framing is good");
        let error = decoder.take_batch().expect_err("bad text");
        assert_eq!(
            (error.code, error.column.as_deref()),
            ("invalid_text", Some("t"))
        );
        assert!(error.message.contains("row 2"), "{error}");
    }
}

#[test]
fn a_table_without_columns_keeps_its_rows() {
    let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    bytes.extend([0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    for size in [1, 3, 100] {
        let mut decoder = Decoder::new(&[], true, 1000);
        bytes
            .chunks(size)
            .for_each(|part| decoder.push(part).expect("push"));
        assert_eq!(decoder.take_batch().expect("batch").num_rows(), 3);
    }
}

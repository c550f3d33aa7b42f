//! Random batches of every portable type, for what must give values back as they were.

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{Buffer, IntervalMonthDayNano, NullBuffer, i256};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use rapidbyte_wire::types::is_json;

/// `rows` rows of random values, the same for the same `seed`, which has one number at least; a
/// quarter is NULL where that may be. `finite` leaves out what JSON does not have: NaN and infinity.
///
/// Panics for a type that the contract does not carry.
pub fn random(schema: &SchemaRef, rows: usize, seed: &[u64], finite: bool) -> RecordBatch {
    let mut random = Random(seed.to_vec(), 0);
    let fields = schema.fields().iter();
    let arrays: Vec<ArrayRef> = fields
        .map(|field| make_array(array(field, rows, &mut random, finite, false)))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).expect("a batch")
}

/// Random bits, for one value after the other.
struct Random(Vec<u64>, usize);

impl Random {
    fn next(&mut self) -> u64 {
        self.1 += 1;
        let word = self.0[self.1 % self.0.len()];
        // splitmix64, so that short seeds give long streams
        let mut z = word.wrapping_add((self.1 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Often at the edges, often small.
    fn int(&mut self) -> i64 {
        match self.below(6) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => self.below(5) as i64 - 2,
            3 => self.below(4_000_000_000) as i64,
            _ => self.next() as i64,
        }
    }

    fn text(&mut self) -> String {
        const PIECES: &[&str] = &[
            "", "a", " ", ",", "\"", "\"\"", "\n", "\r\n", "\r", "\\", "\\N", "NULL", "é", "😀",
            "\u{feff}", "\u{0}", "\t", "{", "null", ";", "'", "0", "\u{2028}",
        ];
        (0..self.below(6))
            .map(|_| PIECES[self.below(PIECES.len() as u64) as usize])
            .collect()
    }

    fn json(&mut self) -> String {
        match self.below(5) {
            0 => "{\"a\":[1,2.50,null],\"b\":\"x, \\\"y\\\"\"}".into(),
            1 => "[]".into(),
            2 => format!("{}", self.int()),
            3 => "\"a b\"".into(),
            _ => "true".into(),
        }
    }
}

fn ints<T: arrow_buffer::ArrowNativeType>(
    rows: usize,
    random: &mut Random,
    make: impl Fn(&mut Random) -> T,
) -> Vec<Buffer> {
    vec![Buffer::from_vec(
        (0..rows).map(|_| make(random)).collect::<Vec<T>>(),
    )]
}

fn offsets(large: bool, ends: &[usize]) -> Buffer {
    if large {
        Buffer::from_vec(ends.iter().map(|e| *e as i64).collect::<Vec<_>>())
    } else {
        Buffer::from_vec(ends.iter().map(|e| *e as i32).collect::<Vec<_>>())
    }
}

fn lengths(rows: usize, random: &mut Random) -> Vec<usize> {
    let mut ends = vec![0];
    for row in 0..rows {
        ends.push(ends[row] + random.below(4) as usize);
    }
    ends
}

fn bytes(
    rows: usize,
    large: bool,
    random: &mut Random,
    make: impl Fn(&mut Random) -> Vec<u8>,
) -> Vec<Buffer> {
    let (mut ends, mut data) = (vec![0], Vec::new());
    for _ in 0..rows {
        data.extend(make(random));
        ends.push(data.len());
    }
    vec![offsets(large, &ends), Buffer::from_vec(data)]
}

/// A column of random values; `finite` leaves out what JSON does not have.
fn array(field: &Field, rows: usize, random: &mut Random, finite: bool, key: bool) -> ArrayData {
    let per_day = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 86_400_u64,
        TimeUnit::Millisecond => 86_400_000,
        TimeUnit::Microsecond => 86_400_000_000,
        TimeUnit::Nanosecond => 86_400_000_000_000,
    };
    let mut children = vec![];
    let data_type = field.data_type();
    let buffers = match data_type {
        DataType::Null => vec![],
        DataType::Boolean => ints(rows.div_ceil(8), random, |r| r.next() as u8),
        DataType::Int8 | DataType::UInt8 => ints(rows, random, |r| r.int() as u8),
        DataType::Int16 | DataType::UInt16 => ints(rows, random, |r| r.int() as u16),
        DataType::Int32 | DataType::UInt32 | DataType::Date32 => {
            ints(rows, random, |r| r.int() as i32)
        }
        DataType::Int64 | DataType::UInt64 | DataType::Timestamp(..) | DataType::Duration(_) => {
            ints(rows, random, Random::int)
        }
        DataType::Float32 => ints(rows, random, |r| {
            match (f32::from_bits(r.next() as u32), finite) {
                (f, true) if !f.is_finite() => -0.0,
                (f, _) if f.is_nan() => f32::NAN,
                (f, _) => f,
            }
        }),
        DataType::Float64 => ints(rows, random, |r| match (r.below(4), finite) {
            (0, false) => [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0][r.below(4) as usize],
            (1, _) => r.int() as f64 / 100.0,
            _ => f64::from_bits(r.next() & !(1 << 62)),
        }),
        DataType::Decimal128(p, _) => ints(rows, random, |r| {
            let wide = (i128::from(r.int()) << 64) | i128::from(r.next());
            wide % 10_i128.pow((*p).into())
        }),
        DataType::Decimal256(p, _) => ints(rows, random, |r| {
            let wide =
                i256::from_parts(u128::from(r.next()) << 64, (i128::from(r.int()) << 64) | 7);
            wide.checked_rem(
                i256::from_i128(10)
                    .checked_pow((*p).into())
                    .expect("an array"),
            )
            .expect("an array")
        }),
        DataType::Time32(unit) => ints(rows, random, |r| r.below(per_day(unit)) as i32),
        DataType::Time64(unit) => ints(rows, random, |r| r.below(per_day(unit)) as i64),
        DataType::Interval(_) => ints(rows, random, |r| {
            IntervalMonthDayNano::new(r.int() as i32, r.int() as i32, r.int())
        }),
        DataType::FixedSizeBinary(n) => ints(rows * *n as usize, random, |r| r.next() as u8),
        DataType::Utf8 if is_json(field) => bytes(rows, false, random, |r| r.json().into_bytes()),
        DataType::Utf8 if key => ints_as_keys(rows),
        DataType::Utf8 => bytes(rows, false, random, |r| r.text().into_bytes()),
        DataType::LargeUtf8 => bytes(rows, true, random, |r| r.text().into_bytes()),
        DataType::Binary => bytes(rows, false, random, |r| r.text().into_bytes()),
        DataType::LargeBinary => bytes(rows, true, random, |r| {
            r.next().to_le_bytes()[..r.below(8) as usize].into()
        }),
        DataType::List(item) | DataType::LargeList(item) => {
            let ends = lengths(rows, random);
            children.push(array(item, ends[rows], random, true, false));
            vec![offsets(matches!(data_type, DataType::LargeList(_)), &ends)]
        }
        DataType::Struct(fields) => {
            children.extend(fields.iter().map(|f| array(f, rows, random, true, false)));
            vec![]
        }
        DataType::Map(entries, _) => {
            let ends = lengths(rows, random);
            children.push(entries_of(entries, ends[rows], random));
            vec![offsets(false, &ends)]
        }
        other => panic!("{other} has no random values"),
    };
    let nulls = (field.is_nullable() && *data_type != DataType::Null)
        .then(|| NullBuffer::from((0..rows).map(|_| random.below(4) > 0).collect::<Vec<_>>()));
    let builder = ArrayData::builder(data_type.clone())
        .len(rows)
        .buffers(buffers);
    builder
        .nulls(nulls)
        .child_data(children)
        .build()
        .expect("an array")
}

/// Keys that are never equal within a map.
fn ints_as_keys(rows: usize) -> Vec<Buffer> {
    let keys: Vec<String> = (0..rows).map(|row| format!("k \"{row}\"\n")).collect();
    let mut ends = vec![0];
    keys.iter()
        .for_each(|key| ends.push(ends[ends.len() - 1] + key.len()));
    vec![
        offsets(false, &ends),
        Buffer::from_vec(keys.concat().into_bytes()),
    ]
}

fn entries_of(entries: &Field, rows: usize, random: &mut Random) -> ArrayData {
    let DataType::Struct(kv) = entries.data_type() else {
        panic!("a map has entries")
    };
    let keys = match kv[0].data_type() {
        DataType::Utf8 => array(&kv[0], rows, random, true, true),
        DataType::Int32 => ArrayData::builder(DataType::Int32)
            .len(rows)
            .add_buffer(Buffer::from_vec(
                (0..rows as i32).map(|k| k - 5).collect::<Vec<_>>(),
            ))
            .build()
            .expect("an array"),
        other => ArrayData::builder(other.clone())
            .len(rows)
            .add_buffer(Buffer::from_vec(
                (0..rows as i64).map(|k| k * 999_999).collect::<Vec<_>>(),
            ))
            .build()
            .expect("an array"),
    };
    let values = array(&kv[1], rows, random, true, false);
    ArrayData::builder(entries.data_type().clone())
        .len(rows)
        .child_data(vec![keys, values])
        .build()
        .expect("an array")
}

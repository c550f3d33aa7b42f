//! Makes the arrays of one column: whole buffers at a time, each value from its counter alone.

use std::io::Write as _;
use std::sync::Arc;

use arrow_buffer::{
    BooleanBuffer, Buffer, IntervalMonthDayNano, NullBuffer, OffsetBuffer, ScalarBuffer, i256,
};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::prelude::{
    arrow_array::cast::AsArray,
    arrow_array::types::*,
    arrow_schema::{FieldRef, Fields, TimeUnit},
};
use rapidbyte_sdk::types::{is_json, is_uuid};

use crate::config;
use crate::hash::{below, mix, push_bytes, push_text};

/// Lists and maps hold 0 to this many items.
const MAX_ITEMS: u64 = 3;
/// From this depth on they hold 0 or 1, so that deep types stay small.
const DEEP: usize = 3;
/// Counters of items are the list's counter times this, plus the item's place.
const SLOTS: u64 = MAX_ITEMS + 1;
/// The longest document that [`push_json`] writes.
const MAX_JSON: u64 = 45;
/// 2000-01-01T00:00:00Z in seconds since 1970-01-01.
const YEAR_2000: i64 = 946_684_800;

/// Makes the values of one column, or of one place inside a nested one.
///
/// A value is made from the key and a counter: the row's number for a column, and for an item its
/// list's counter and its place in the list.
pub struct Column {
    key: u64,
    /// NULL where the hash of the counter is below it; 0: never.
    null_below: u64,
    shape: Shape,
}

enum Shape {
    Null,
    Bool,
    /// The counter itself, as an integer.
    Sequence(DataType),
    /// One number of a fixed width.
    Number(DataType),
    /// Utf8, LargeUtf8, Binary or LargeBinary, with the least and the greatest length.
    Bytes(DataType, [u32; 2]),
    Json,
    FixedBytes(i32),
    Uuid,
    List(ListKind, FieldRef, u64, Box<Column>),
    Struct(Fields, Vec<Column>),
}

#[derive(Clone, Copy)]
enum ListKind {
    List,
    LargeList,
    Map,
}

/// Bytes of Arrow data in one value, offsets and bits included.
pub struct Width {
    /// The average size of a value.
    pub mean: f64,
    /// The size that no value exceeds.
    pub max: u64,
}

impl Column {
    /// Prepares the column that `key` makes different from all others.
    pub fn new(column: &config::Column, key: u64) -> Result<Self> {
        let mut made = Self::nested(&column.field, column, mix(key, 1), 0)?;
        if column.sequence {
            made.shape = Shape::Sequence(column.field.data_type().clone());
        }
        Ok(made)
    }

    fn nested(field: &Field, column: &config::Column, key: u64, depth: usize) -> Result<Self> {
        let child =
            |field: &Field, index: u64| Self::nested(field, column, mix(key, index + 1), depth + 1);
        let most = if depth < DEEP { MAX_ITEMS } else { 1 };
        let list = |kind, item: &FieldRef, most| -> Result<Shape> {
            let child = child(item, 0)?;
            Ok(Shape::List(kind, Arc::clone(item), most, Box::new(child)))
        };
        let shape = match field.data_type() {
            DataType::Null => Shape::Null,
            DataType::Boolean => Shape::Bool,
            DataType::Utf8 if is_json(field) => Shape::Json,
            DataType::FixedSizeBinary(16) if is_uuid(field) => Shape::Uuid,
            DataType::FixedSizeBinary(width) => Shape::FixedBytes(*width),
            bytes @ (DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary) => Shape::Bytes(bytes.clone(), column.length),
            DataType::List(item) => list(ListKind::List, item, most)?,
            DataType::LargeList(item) => list(ListKind::LargeList, item, most)?,
            DataType::Map(entries, false) => {
                let most = if has_distinct_keys(entries) { most } else { 1 };
                list(ListKind::Map, entries, most)?
            }
            DataType::Struct(fields) => {
                let children = fields.iter().zip(0..).map(|(f, index)| child(f, index));
                Shape::Struct(fields.clone(), children.collect::<Result<_>>()?)
            }
            number if number.primitive_width().is_some() => Shape::Number(number.clone()),
            other => {
                let message = format!("values of type {other} cannot be generated");
                return Err(Error::config("type_not_generated", message));
            }
        };
        let share = if field.is_nullable() {
            column.null_share
        } else {
            0.0
        };
        Ok(Self {
            key,
            // A cast of a float saturates: a share of 1 gives u64::MAX.
            null_below: (share * 2f64.powi(64)) as u64,
            shape,
        })
    }

    /// The width of a value, over all counters.
    pub fn width(&self) -> Width {
        let fixed = |bytes: u64| Width {
            mean: bytes as f64,
            max: bytes,
        };
        let mut width = match &self.shape {
            Shape::Null => return fixed(0),
            Shape::Bool => Width {
                mean: 0.125,
                max: 1,
            },
            Shape::Sequence(t) | Shape::Number(t) => fixed(t.primitive_width().unwrap_or(0) as u64),
            Shape::Bytes(t, [min, max]) => Width {
                mean: offset_bytes(t) as f64 + (f64::from(*min) + f64::from(*max)) / 2.0,
                max: offset_bytes(t) + u64::from(*max),
            },
            Shape::Json => fixed(4 + MAX_JSON),
            Shape::FixedBytes(width) => fixed(width.unsigned_abs().into()),
            Shape::Uuid => fixed(16),
            Shape::List(kind, _, most, item) => {
                let item = item.width();
                Width {
                    mean: kind.offset_bytes() as f64 + *most as f64 / 2.0 * item.mean,
                    max: kind.offset_bytes() + most * item.max,
                }
            }
            Shape::Struct(_, children) => {
                children
                    .iter()
                    .map(Self::width)
                    .fold(fixed(0), |sum, child| Width {
                        mean: sum.mean + child.mean,
                        max: sum.max + child.max,
                    })
            }
        };
        if self.null_below > 0 {
            width.mean += 0.125;
            width.max += 1;
        }
        width
    }

    /// The width of the value at `counter`; a bit counts as a byte, and a JSON
    /// document as the longest one.
    pub fn width_at(&self, counter: u64) -> u64 {
        let hash = mix(self.key, counter);
        match &self.shape {
            Shape::Bytes(t, length) => offset_bytes(t) + length_of(hash, *length) as u64,
            Shape::List(kind, _, most, item) => {
                let items = items_of(counter, below(hash, most + 1));
                kind.offset_bytes() + items.map(|at| item.width_at(at)).sum::<u64>()
            }
            Shape::Struct(_, children) => children.iter().map(|c| c.width_at(counter)).sum(),
            _ => self.width().max,
        }
    }

    /// The values at `counters`, in their order.
    pub fn array(&self, counters: &[u64]) -> Result<ArrayRef> {
        let nulls = self.nulls(counters);
        let key = self.key;
        let hashes = counters.iter().map(move |counter| mix(key, *counter));
        Ok(match &self.shape {
            Shape::Null => Arc::new(NullArray::new(counters.len())),
            Shape::Bool => {
                let bits = BooleanBuffer::collect_bool(counters.len(), |at| {
                    mix(key, counters[at]) >> 63 == 1
                });
                Arc::new(BooleanArray::new(bits, nulls))
            }
            Shape::Sequence(t) => integers(t, counters.iter().copied(), nulls)?,
            Shape::Number(t) => number(t, hashes, nulls)?,
            Shape::Bytes(t, length) => bytes(t, *length, hashes, nulls)?,
            Shape::Json => {
                let mut offsets = Offsets::<i32>::with_capacity(counters.len());
                let mut text = Vec::with_capacity(counters.len() * MAX_JSON as usize);
                for hash in hashes {
                    push_json(&mut text, hash)?;
                    offsets.push(text.len());
                }
                Arc::new(StringArray::try_new(offsets.finish(), text.into(), nulls)?)
            }
            Shape::FixedBytes(width) => {
                let len = width.unsigned_abs() as usize;
                let mut data = Vec::with_capacity(len * counters.len() + 8);
                hashes.for_each(|hash| push_bytes(&mut data, hash, len));
                let data = Buffer::from_vec(data);
                Arc::new(FixedSizeBinaryArray::try_new_with_len(
                    *width,
                    data,
                    nulls,
                    counters.len(),
                )?)
            }
            Shape::Uuid => {
                let data: Vec<[u8; 16]> = hashes.map(uuid).collect();
                let data = Buffer::from_vec(data.into_flattened());
                Arc::new(FixedSizeBinaryArray::try_new(16, data, nulls)?)
            }
            Shape::List(kind, field, most, item) => {
                list(*kind, field, *most, item, counters, hashes, nulls)?
            }
            Shape::Struct(fields, children) => {
                let arrays: Vec<_> = children
                    .iter()
                    .map(|c| c.array(counters))
                    .collect::<Result<_>>()?;
                let rows = counters.len();
                Arc::new(StructArray::try_new_with_length(
                    fields.clone(),
                    arrays,
                    nulls,
                    rows,
                )?)
            }
        })
    }

    fn nulls(&self, counters: &[u64]) -> Option<NullBuffer> {
        let key = mix(self.key, u64::MAX);
        (self.null_below > 0).then(|| {
            NullBuffer::new(BooleanBuffer::collect_bool(counters.len(), |at| {
                mix(key, counters[at]) >= self.null_below
            }))
        })
    }
}

impl ListKind {
    fn offset_bytes(self) -> u64 {
        match self {
            Self::LargeList => 8,
            Self::List | Self::Map => 4,
        }
    }
}

fn offset_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::LargeUtf8 | DataType::LargeBinary => 8,
        _ => 4,
    }
}

/// Whether random keys of a map's entries never meet: only then may a map have several.
fn has_distinct_keys(entries: &Field) -> bool {
    match entries.data_type() {
        DataType::Struct(fields) => fields.first().is_some_and(|key| {
            let text = key.data_type() == &DataType::Utf8 && !is_json(key);
            text || is_uuid(key) || matches!(key.data_type(), DataType::Int64 | DataType::UInt64)
        }),
        _ => false,
    }
}

/// Offsets of a variable-size array, which begin with 0.
struct Offsets<O>(Vec<O>);

impl<O: OffsetSizeTrait> Offsets<O> {
    fn with_capacity(values: usize) -> Self {
        let mut offsets = Vec::with_capacity(values + 1);
        offsets.push(O::default());
        Self(offsets)
    }

    /// The end of the next value. It fits: a batch is planned for [`crate::MAX_BATCH_BYTES`], a
    /// string has at most 1 GiB, and no list is eight times its mean.
    #[inline]
    fn push(&mut self, end: usize) {
        self.0.push(O::usize_as(end));
    }

    fn finish(self) -> OffsetBuffer<O> {
        OffsetBuffer::new(ScalarBuffer::from(self.0))
    }
}

#[inline]
fn length_of(hash: u64, [min, max]: [u32; 2]) -> usize {
    min as usize + below(hash, u64::from(max - min) + 1) as usize
}

/// The counters of the items of one list.
fn items_of(list: u64, length: u64) -> impl Iterator<Item = u64> {
    (0..length).map(move |at| list.wrapping_mul(SLOTS).wrapping_add(at))
}

/// Strings and binary values.
fn bytes(
    data_type: &DataType,
    length: [u32; 2],
    hashes: impl ExactSizeIterator<Item = u64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    fn of<T: ByteArrayType>(
        [min, max]: [u32; 2],
        hashes: impl ExactSizeIterator<Item = u64>,
        nulls: Option<NullBuffer>,
        push: impl Fn(&mut Vec<u8>, u64, usize),
    ) -> Result<ArrayRef> {
        let mut offsets = Offsets::<T::Offset>::with_capacity(hashes.len());
        let mean = (min as usize + max as usize) / 2 + 1;
        let mut data = Vec::with_capacity(hashes.len() * mean + max as usize + 8);
        for hash in hashes {
            push(&mut data, hash, length_of(hash, [min, max]));
            offsets.push(data.len());
        }
        let array = GenericByteArray::<T>::try_new(offsets.finish(), data.into(), nulls)?;
        Ok(Arc::new(array))
    }
    match data_type {
        DataType::Utf8 => of::<Utf8Type>(length, hashes, nulls, push_text),
        DataType::LargeUtf8 => of::<LargeUtf8Type>(length, hashes, nulls, push_text),
        DataType::Binary => of::<BinaryType>(length, hashes, nulls, push_bytes),
        _ => of::<LargeBinaryType>(length, hashes, nulls, push_bytes),
    }
}

fn list(
    kind: ListKind,
    field: &FieldRef,
    most: u64,
    item: &Column,
    counters: &[u64],
    hashes: impl Iterator<Item = u64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    fn offsets<O: OffsetSizeTrait>(
        counters: &[u64],
        lengths: impl Iterator<Item = u64>,
        items: &mut Vec<u64>,
    ) -> OffsetBuffer<O> {
        let mut offsets = Offsets::<O>::with_capacity(counters.len());
        for (counter, length) in counters.iter().zip(lengths) {
            items.extend(items_of(*counter, length));
            offsets.push(items.len());
        }
        offsets.finish()
    }
    let lengths = hashes.map(|hash| below(hash, most + 1));
    let mut items = Vec::with_capacity(counters.len() * most as usize);
    let field = Arc::clone(field);
    Ok(match kind {
        ListKind::List => {
            let offsets = offsets::<i32>(counters, lengths, &mut items);
            Arc::new(ListArray::try_new(
                field,
                offsets,
                item.array(&items)?,
                nulls,
            )?)
        }
        ListKind::LargeList => {
            let offsets = offsets::<i64>(counters, lengths, &mut items);
            Arc::new(LargeListArray::try_new(
                field,
                offsets,
                item.array(&items)?,
                nulls,
            )?)
        }
        ListKind::Map => {
            let offsets = offsets::<i32>(counters, lengths, &mut items);
            let entries = item.array(&items)?.as_struct().clone();
            Arc::new(MapArray::try_new(field, offsets, entries, nulls, false)?)
        }
    })
}

/// A whole array of one primitive type, whose parameters (zone, precision) `data_type` gives.
fn primitive<T: ArrowPrimitiveType>(
    data_type: &DataType,
    values: impl Iterator<Item = T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let values = ScalarBuffer::from(values.collect::<Vec<_>>());
    let array = PrimitiveArray::<T>::try_new(values, nulls)?;
    Ok(Arc::new(array.with_data_type(data_type.clone())))
}

/// The low bits of each value.
fn integers(
    t: &DataType,
    values: impl Iterator<Item = u64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    match t {
        DataType::Int8 => primitive::<Int8Type>(t, values.map(|v| v as i8), nulls),
        DataType::Int16 => primitive::<Int16Type>(t, values.map(|v| v as i16), nulls),
        DataType::Int32 => primitive::<Int32Type>(t, values.map(|v| v as i32), nulls),
        DataType::Int64 => primitive::<Int64Type>(t, values.map(|v| v as i64), nulls),
        DataType::UInt8 => primitive::<UInt8Type>(t, values.map(|v| v as u8), nulls),
        DataType::UInt16 => primitive::<UInt16Type>(t, values.map(|v| v as u16), nulls),
        DataType::UInt32 => primitive::<UInt32Type>(t, values.map(|v| v as u32), nulls),
        DataType::UInt64 => primitive::<UInt64Type>(t, values, nulls),
        other => {
            let message = format!("values of type {other} cannot be generated");
            Err(Error::config("type_not_generated", message))
        }
    }
}

/// Numbers of every kind: integers of the whole range, finite floats within a million, decimals
/// of all digits, dates from 1900 to 2099, timestamps from 2000 to 2034.
fn number(t: &DataType, h: impl Iterator<Item = u64>, n: Option<NullBuffer>) -> Result<ArrayRef> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    const DAY: u64 = 86_400;
    let upto = |n: u64| move |hash| below(hash, n) as i64;
    match t {
        DataType::Float32 => primitive::<Float32Type>(t, h.map(|h| float(h) as f32), n),
        DataType::Float64 => primitive::<Float64Type>(t, h.map(float), n),
        DataType::Decimal128(digits, _) => {
            primitive::<Decimal128Type>(t, h.map(|h| decimal128(h, *digits)), n)
        }
        DataType::Decimal256(digits, _) => {
            primitive::<Decimal256Type>(t, h.map(|h| decimal256(h, *digits)), n)
        }
        DataType::Date32 => {
            primitive::<Date32Type>(t, h.map(|h| below(h, 73_049) as i32 - 25_567), n)
        }
        DataType::Time32(Second) => {
            primitive::<Time32SecondType>(t, h.map(|h| below(h, DAY) as i32), n)
        }
        DataType::Time32(_) => {
            primitive::<Time32MillisecondType>(t, h.map(|h| below(h, DAY * 1000) as i32), n)
        }
        DataType::Time64(Nanosecond) => {
            primitive::<Time64NanosecondType>(t, h.map(upto(DAY * 1_000_000_000)), n)
        }
        DataType::Time64(_) => {
            primitive::<Time64MicrosecondType>(t, h.map(upto(DAY * 1_000_000)), n)
        }
        // 2^30 s, 2^40 ms, 2^50 µs and 2^60 ns are 34 to 36 years.
        DataType::Timestamp(Second, _) => {
            primitive::<TimestampSecondType>(t, h.map(|h| YEAR_2000 + (h >> 34) as i64), n)
        }
        DataType::Timestamp(Millisecond, _) => {
            let from = YEAR_2000 * 1000;
            primitive::<TimestampMillisecondType>(t, h.map(|h| from + (h >> 24) as i64), n)
        }
        DataType::Timestamp(Microsecond, _) => {
            let from = YEAR_2000 * 1_000_000;
            primitive::<TimestampMicrosecondType>(t, h.map(|h| from + (h >> 14) as i64), n)
        }
        DataType::Timestamp(Nanosecond, _) => {
            let from = YEAR_2000 * 1_000_000_000;
            primitive::<TimestampNanosecondType>(t, h.map(|h| from + (h >> 4) as i64), n)
        }
        // 40 bits with a sign: up to 6 days in µs, 17,000 years in s.
        DataType::Duration(unit) => {
            let values = h.map(|h| h as i64 >> 24);
            match unit {
                Second => primitive::<DurationSecondType>(t, values, n),
                Millisecond => primitive::<DurationMillisecondType>(t, values, n),
                Microsecond => primitive::<DurationMicrosecondType>(t, values, n),
                Nanosecond => primitive::<DurationNanosecondType>(t, values, n),
            }
        }
        DataType::Interval(_) => primitive::<IntervalMonthDayNanoType>(t, h.map(interval), n),
        _ => integers(t, h, n),
    }
}

/// From -1e6 to 1e6, with all 53 bits.
#[inline]
fn float(hash: u64) -> f64 {
    ((hash as i64 >> 10) as f64) * (1e6 / 2f64.powi(53))
}

/// Up to a hundred years, a month of days and a day of whole microseconds, each with its own sign.
fn interval(hash: u64) -> IntervalMonthDayNano {
    let within = |n: u64, index| below(mix(hash, index), 2 * n + 1) as i64 - n as i64;
    IntervalMonthDayNano::new(
        within(1200, 0) as i32,
        within(31, 1) as i32,
        within(86_399_999_999, 2) * 1000,
    )
}

/// Groups of at most 18 random digits, which together are `digits` long: the group's digits and
/// its value, most significant first.
fn groups(hash: u64, digits: u8) -> impl Iterator<Item = (u32, u64)> {
    (0..u64::from(digits).div_ceil(18)).map(move |group| {
        let width = u32::from(digits).saturating_sub(group as u32 * 18).min(18);
        (width, mix(hash, group) % 10u64.pow(width))
    })
}

/// At most `digits` (1 to 38) digits, negative for half of the hashes.
fn decimal128(hash: u64, digits: u8) -> i128 {
    let magnitude = groups(hash, digits).fold(0i128, |sum, (width, group)| {
        sum * 10i128.pow(width) + i128::from(group)
    });
    if hash >> 63 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

/// At most `digits` (39 to 76) digits, negative for half of the hashes.
fn decimal256(hash: u64, digits: u8) -> i256 {
    let magnitude = groups(hash, digits).fold(i256::ZERO, |sum, (width, group)| {
        sum.wrapping_mul(i256::from_i128(10i128.pow(width)))
            .wrapping_add(i256::from_i128(group.into()))
    });
    if hash >> 63 == 1 {
        magnitude.wrapping_neg()
    } else {
        magnitude
    }
}

/// A random UUID: RFC 9562, version 4.
fn uuid(hash: u64) -> [u8; 16] {
    let high = mix(hash, 0) & !0xf000 | 0x4000;
    let low = mix(hash, 1) & !(0b11 << 62) | 0b10 << 62;
    (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
}

/// Appends a small document such as `{"n":17,"tag":"kf2mqpxa","ok":true}`.
fn push_json(out: &mut Vec<u8>, hash: u64) -> Result<()> {
    let number = hash as u32;
    write!(out, "{{\"n\":{number},\"tag\":\"").map_err(Error::internal)?;
    push_text(out, hash, 8);
    write!(out, "\",\"ok\":{}}}", hash >> 63 == 1).map_err(Error::internal)
}

//! Writes single Arrow values as PostgreSQL sends and receives them: length, then bytes.

mod block;

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, IntervalMonthDayNano, NullBuffer, i256};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use half::f16;

pub(crate) use block::Layout;
use block::Number;

use crate::error::Problem;
use crate::json_keys;
use crate::oids::Rewrite;
use crate::types::datetime;
use crate::types::numeric::digits as numeric;

/// How the values of one column become bytes. Made by [`mod@crate::fit`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    /// Every value is NULL.
    Null,
    /// As the Arrow type says: booleans, floats, dates, times, decimals, bytes.
    Plain,
    /// Text; `check` if it may hold NUL characters, `limit` if it may be too long.
    Text { check: bool, limit: Option<Limit> },
    /// A version byte, then JSON; `check` as for text, `keys` if an object may repeat one.
    Jsonb { check: bool, keys: bool },
    /// Text as a JSON string, behind a version byte for jsonb.
    JsonString { version: bool },
    /// An integer of this many bytes.
    Int(u8),
    /// An integer as `numeric`.
    IntNumeric,
    /// A float as `float8`.
    Float8,
    /// Bytes whose OIDs change.
    Rewrite(Rewrite),
    /// A list as an array; `depth` dimensions of the element type `oid`.
    List {
        oid: u32,
        depth: usize,
        element: Box<Op>,
    },
}

impl Op {
    /// True if texts, or those in lists, are written as JSON strings.
    pub(crate) fn writes_json_strings(&self) -> bool {
        match self {
            Self::JsonString { .. } => true,
            Self::List { element, .. } => element.writes_json_strings(),
            _ => false,
        }
    }
}

/// The only version of jsonb's binary form (`jsonb_recv`).
const JSONB_VERSION: u8 = 1;

/// How long a text may be. The server itself refuses longer ones, but for surplus blanks at the end,
/// which it cuts and says nothing (`varchar_input`, `bpchar_input`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub chars: u32,
    /// Blanks at the end mean nothing at either side.
    pub ignores_blanks: bool,
    /// Blanks at the end mean something at the source alone: the target pads shorter texts.
    pub refuses_blanks: bool,
}

impl Limit {
    fn check(self, text: &[u8]) -> Result<(), Problem> {
        let limit = self.chars as usize;
        let hides = self.refuses_blanks && text.last() == Some(&b' ');
        if text.len() <= limit && !hides {
            return Ok(());
        }
        let mut end = text.len();
        while self.ignores_blanks && end > 0 && text[end - 1] == b' ' {
            end -= 1;
        }
        // All bytes of UTF-8 but those that continue a character.
        let begins = |byte: &&u8| **byte & 0xC0 != 0x80;
        match text[..end].iter().filter(begins).count() {
            chars if chars > limit => Err(Problem::TooLong(self.chars)),
            // As long as the column: nothing is padded.
            chars if hides && chars < limit => Err(Problem::Blanks),
            _ => Ok(()),
        }
    }
}

/// The values of one column of one batch.
pub(crate) struct Bound<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Null,
    Bool(&'a BooleanBuffer),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U32(&'a [u32]),
    F16(&'a [f16]),
    F32(&'a [f32]),
    F32As64(&'a [f32]),
    F64(&'a [f64]),
    Widened(Ints<'a>, u8),
    Numeric(Ints<'a>),
    Bytes {
        offsets: Offsets<'a>,
        data: &'a [u8],
        version: Option<u8>,
    },
    /// Texts that become JSON strings.
    JsonStrings {
        offsets: Offsets<'a>,
        data: &'a [u8],
        version: Option<u8>,
    },
    Fixed(usize, &'a [u8]),
    Rewritten {
        offsets: Offsets<'a>,
        data: &'a [u8],
        rewrite: &'a Rewrite,
    },
    Decimal128(&'a [i128], i8),
    Decimal256(&'a [i256], i8),
    Date32(&'a [i32]),
    Date64(&'a [i64]),
    Time32(&'a [i32], TimeUnit),
    Time64(&'a [i64], TimeUnit),
    Timestamp(&'a [i64], TimeUnit),
    Duration(&'a [i64], TimeUnit),
    Interval(&'a [IntervalMonthDayNano]),
    List(Box<List<'a>>),
}

#[derive(Clone, Copy)]
enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl Offsets<'_> {
    #[inline]
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::Small(ends) => ends[row] as usize..ends[row + 1] as usize,
            Self::Large(ends) => ends[row] as usize..ends[row + 1] as usize,
        }
    }
}

enum Ints<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

impl<'a> Ints<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Int8 => Self::I8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Self::I16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt8 => Self::U8(array.as_primitive::<UInt8Type>().values()),
            DataType::UInt16 => Self::U16(array.as_primitive::<UInt16Type>().values()),
            DataType::UInt32 => Self::U32(array.as_primitive::<UInt32Type>().values()),
            DataType::UInt64 => Self::U64(array.as_primitive::<UInt64Type>().values()),
            _ => return None,
        })
    }

    fn get(&self, row: usize) -> i128 {
        match self {
            Self::I8(values) => values[row].into(),
            Self::I16(values) => values[row].into(),
            Self::I32(values) => values[row].into(),
            Self::I64(values) => values[row].into(),
            Self::U8(values) => values[row].into(),
            Self::U16(values) => values[row].into(),
            Self::U32(values) => values[row].into(),
            Self::U64(values) => values[row].into(),
        }
    }
}

/// Lists within lists down to the elements.
struct List<'a> {
    oid: u32,
    /// From the outer level to the inner.
    levels: Vec<(Offsets<'a>, Option<&'a NullBuffer>)>,
    elements: Bound<'a>,
}

/// Of an array: its length, how many dimensions it has, whether there are NULLs, the type of its elements.
const HEAD_BYTES: usize = 16;
/// Of each dimension: how many elements, and the number of the first.
const DIMENSION_BYTES: usize = 8;

/// The length of a value that is NULL.
pub(crate) const NULL: [u8; 4] = (-1_i32).to_be_bytes();

/// Appends a number with its length.
fn put_number<N: Number>(out: &mut Vec<u8>, number: N) {
    let at = out.len();
    out.resize(at + N::BYTES, 0);
    number.put(&mut out[at..]);
}

/// Appends bytes with their length, behind a byte that says their version.
fn put_bytes(out: &mut Vec<u8>, version: Option<u8>, value: &[u8]) -> Result<(), Problem> {
    let length = value.len() + usize::from(version.is_some());
    let length = i32::try_from(length).map_err(|_| Problem::TooLarge)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(version);
    out.extend_from_slice(value);
    Ok(())
}

/// Appends a text as a JSON string with its length, behind a byte that says the version.
fn put_json_string(out: &mut Vec<u8>, version: Option<u8>, text: &[u8]) -> Result<(), Problem> {
    let text = std::str::from_utf8(text).map_err(|_| Problem::Malformed)?;
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend(version);
    serde_json::to_writer(&mut *out, text).map_err(|_| Problem::Malformed)?;
    let length = i32::try_from(out.len() - at - 4).map_err(|_| Problem::TooLarge)?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

impl<'a> Bound<'a> {
    /// Takes the column apart. `None`: the array is not of the type the op was made for. A
    /// problem with a row's text is given at once.
    pub(crate) fn new(op: &'a Op, array: &'a ArrayRef) -> Result<Option<Self>, (usize, Problem)> {
        Self::within(op, array, 0..array.len())
    }

    /// The same where only these of its values are written.
    fn within(
        op: &'a Op,
        array: &'a ArrayRef,
        written: Range<usize>,
    ) -> Result<Option<Self>, (usize, Problem)> {
        let Some(values) = Values::new(op, array, written)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            nulls: array.nulls().filter(|nulls| nulls.null_count() > 0),
            values,
        }))
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row)) || matches!(self.values, Values::Null)
    }

    /// Writes length and bytes of one value, -1 for NULL: of an element of a list, or of a kind whose length
    /// is not known before. Whole columns are written by [`Layout::write`].
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        match &self.values {
            Values::Null => out.extend_from_slice(&NULL),
            _ if self.is_null(row) => out.extend_from_slice(&NULL),
            Values::Bool(bits) => put_number(out, u8::from(bits.value(row))),
            Values::I16(values) => put_number(out, values[row]),
            Values::I32(values) => put_number(out, values[row]),
            Values::I64(values) => put_number(out, values[row]),
            Values::U32(values) => put_number(out, values[row]),
            Values::F16(values) => put_number(out, values[row].to_f32()),
            Values::F32(values) => put_number(out, values[row]),
            Values::F32As64(values) => put_number(out, f64::from(values[row])),
            Values::F64(values) => put_number(out, values[row]),
            Values::Widened(values, width) => put_int(values.get(row), *width, out)?,
            Values::Numeric(values) => numeric::encode_i128(values.get(row), 0, out),
            Values::Bytes {
                offsets,
                data,
                version,
            } => put_bytes(out, *version, &data[offsets.range(row)])?,
            Values::JsonStrings {
                offsets,
                data,
                version,
            } => put_json_string(out, *version, &data[offsets.range(row)])?,
            Values::Fixed(width, data) => {
                put_bytes(out, None, &data[row * width..(row + 1) * width])?;
            }
            Values::Rewritten {
                offsets,
                data,
                rewrite,
            } => {
                put_bytes(out, None, &data[offsets.range(row)])?;
                let start = out.len() - offsets.range(row).len();
                rewrite.apply(&mut out[start..])?;
            }
            Values::Decimal128(values, scale) => numeric::encode_i128(values[row], *scale, out),
            Values::Decimal256(values, scale) => numeric::encode_i256(values[row], *scale, out),
            Values::Date32(values) => put_number(out, datetime::encode_date(values[row])?),
            Values::Date64(values) => put_number(out, datetime::encode_date_ms(values[row])?),
            Values::Time32(values, unit) => {
                let micros = datetime::to_micros(values[row].into(), *unit)?;
                put_number(out, datetime::encode_time(micros)?);
            }
            Values::Time64(values, unit) => {
                let micros = datetime::to_micros(values[row], *unit)?;
                put_number(out, datetime::encode_time(micros)?);
            }
            Values::Timestamp(values, unit) => {
                let micros = datetime::to_micros(values[row], *unit)?;
                put_number(out, datetime::encode_timestamp(micros)?);
            }
            Values::Duration(values, unit) => {
                let micros = datetime::to_micros(values[row], *unit)?;
                put_bytes(out, None, &datetime::interval_bytes(micros, 0, 0))?;
            }
            Values::Interval(values) => {
                put_bytes(out, None, &datetime::encode_interval(values[row])?)?;
            }
            Values::List(list) => list.write(row, out)?,
        }
        Ok(())
    }
}

fn put_int(value: i128, width: u8, out: &mut Vec<u8>) -> Result<(), Problem> {
    let out_of_range = |_| Problem::OutOfRange;
    match width {
        2 => put_number(out, i16::try_from(value).map_err(out_of_range)?),
        4 => put_number(out, i32::try_from(value).map_err(out_of_range)?),
        _ => put_number(out, i64::try_from(value).map_err(out_of_range)?),
    }
    Ok(())
}

impl<'a> Values<'a> {
    fn new(
        op: &'a Op,
        array: &'a ArrayRef,
        written: Range<usize>,
    ) -> Result<Option<Self>, (usize, Problem)> {
        Ok(match op {
            Op::Null => Some(Self::Null),
            Op::Plain => Self::plain(array),
            Op::Text { check, limit } => {
                let limit = limit.map(|limit| move |text: &[u8]| limit.check(text));
                return Self::text(array, None, *check, limit, written);
            }
            Op::Jsonb { check, keys } => {
                let keys = keys.then_some(json_keys::check);
                return Self::text(array, Some(JSONB_VERSION), *check, keys, written);
            }
            Op::JsonString { version } => {
                let version = version.then_some(JSONB_VERSION);
                let unchecked = None::<fn(&[u8]) -> Result<(), Problem>>;
                let texts = Self::text(array, version, true, unchecked, written)?;
                return Ok(texts.map(Self::into_json_strings));
            }
            Op::Int(width) => match (array.data_type(), width) {
                (DataType::Int16, 2) => Some(Self::I16(array.as_primitive::<Int16Type>().values())),
                (DataType::Int32, 4) => Some(Self::I32(array.as_primitive::<Int32Type>().values())),
                (DataType::Int64, 8) => Some(Self::I64(array.as_primitive::<Int64Type>().values())),
                _ => Ints::of(array).map(|ints| Self::Widened(ints, *width)),
            },
            Op::IntNumeric => Ints::of(array).map(Self::Numeric),
            Op::Float8 => match array.data_type() {
                DataType::Float32 => {
                    Some(Self::F32As64(array.as_primitive::<Float32Type>().values()))
                }
                _ => Self::plain(array),
            },
            Op::Rewrite(rewrite) => variable(array).map(|(offsets, data)| Self::Rewritten {
                offsets,
                data,
                rewrite,
            }),
            Op::List {
                oid,
                depth,
                element,
            } => List::new(*oid, *depth, element, array, written)?
                .map(|list| Self::List(Box::new(list))),
        })
    }

    fn text(
        array: &'a ArrayRef,
        version: Option<u8>,
        check: bool,
        each: Option<impl Fn(&[u8]) -> Result<(), Problem>>,
        written: Range<usize>,
    ) -> Result<Option<Self>, (usize, Problem)> {
        let Some((offsets, data)) = variable(array) else {
            return Ok(None);
        };
        if check && !written.is_empty() {
            let (start, end) = (
                offsets.range(written.start).start,
                offsets.range(written.end - 1).end,
            );
            if memchr::memchr(0, &data[start..end]).is_some() {
                let holds_nul = |row: &usize| {
                    !array.is_null(*row) && memchr::memchr(0, &data[offsets.range(*row)]).is_some()
                };
                // A NULL's bytes do not count.
                if let Some(row) = written.clone().find(holds_nul) {
                    return Err((row, Problem::Nul));
                }
            }
        }
        if let Some(each) = each {
            for row in written.filter(|row| !array.is_null(*row)) {
                each(&data[offsets.range(row)]).map_err(|problem| (row, problem))?;
            }
        }
        Ok(Some(Self::Bytes {
            offsets,
            data,
            version,
        }))
    }

    /// Texts, written as JSON strings.
    fn into_json_strings(self) -> Self {
        match self {
            Self::Bytes {
                offsets,
                data,
                version,
            } => Self::JsonStrings {
                offsets,
                data,
                version,
            },
            other => other,
        }
    }

    /// The values in the wire form of the Arrow type itself.
    fn plain(array: &'a ArrayRef) -> Option<Self> {
        use TimeUnit::*;
        Some(match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().values()),
            DataType::UInt32 => Self::U32(array.as_primitive::<UInt32Type>().values()),
            DataType::Float16 => Self::F16(array.as_primitive::<Float16Type>().values()),
            DataType::Float32 => Self::F32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Self::F64(array.as_primitive::<Float64Type>().values()),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                let (offsets, data) = variable(array)?;
                Self::Bytes {
                    offsets,
                    data,
                    version: None,
                }
            }
            DataType::FixedSizeBinary(width) => Self::Fixed(
                usize::try_from(*width).ok()?,
                array.as_fixed_size_binary().value_data(),
            ),
            DataType::Decimal128(_, scale) => {
                Self::Decimal128(array.as_primitive::<Decimal128Type>().values(), *scale)
            }
            DataType::Decimal256(_, scale) => {
                Self::Decimal256(array.as_primitive::<Decimal256Type>().values(), *scale)
            }
            DataType::Date32 => Self::Date32(array.as_primitive::<Date32Type>().values()),
            DataType::Date64 => Self::Date64(array.as_primitive::<Date64Type>().values()),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Self::Interval(array.as_primitive::<IntervalMonthDayNanoType>().values())
            }
            DataType::Time32(Second) => {
                Self::Time32(array.as_primitive::<Time32SecondType>().values(), Second)
            }
            DataType::Time32(unit) => Self::Time32(
                array.as_primitive::<Time32MillisecondType>().values(),
                *unit,
            ),
            DataType::Time64(Microsecond) => Self::Time64(
                array.as_primitive::<Time64MicrosecondType>().values(),
                Microsecond,
            ),
            DataType::Time64(unit) => {
                Self::Time64(array.as_primitive::<Time64NanosecondType>().values(), *unit)
            }
            DataType::Timestamp(unit, _) => Self::Timestamp(timestamps(array, *unit), *unit),
            DataType::Duration(unit) => Self::Duration(durations(array, *unit), *unit),
            _ => return None,
        })
    }
}

fn timestamps(array: &ArrayRef, unit: TimeUnit) -> &[i64] {
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().values(),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().values(),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values(),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().values(),
    }
}

fn durations(array: &ArrayRef, unit: TimeUnit) -> &[i64] {
    match unit {
        TimeUnit::Second => array.as_primitive::<DurationSecondType>().values(),
        TimeUnit::Millisecond => array.as_primitive::<DurationMillisecondType>().values(),
        TimeUnit::Microsecond => array.as_primitive::<DurationMicrosecondType>().values(),
        TimeUnit::Nanosecond => array.as_primitive::<DurationNanosecondType>().values(),
    }
}

fn variable(array: &ArrayRef) -> Option<(Offsets<'_>, &[u8])> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            (Offsets::Small(array.value_offsets()), array.value_data())
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            (Offsets::Small(array.value_offsets()), array.value_data())
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            (Offsets::Large(array.value_offsets()), array.value_data())
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            (Offsets::Large(array.value_offsets()), array.value_data())
        }
        _ => return None,
    })
}

impl<'a> List<'a> {
    fn new(
        oid: u32,
        depth: usize,
        element: &'a Op,
        array: &'a ArrayRef,
        written: Range<usize>,
    ) -> Result<Option<Self>, (usize, Problem)> {
        let mut levels = Vec::new();
        let (mut inner, mut elements) = (array, written.clone());
        for _ in 0..depth {
            let (offsets, values) = match inner.data_type() {
                DataType::List(_) => {
                    let list = inner.as_list::<i32>();
                    (Offsets::Small(list.value_offsets()), list.values())
                }
                DataType::LargeList(_) => {
                    let list = inner.as_list::<i64>();
                    (Offsets::Large(list.value_offsets()), list.values())
                }
                _ => return Ok(None),
            };
            // A batch that was cut off has more elements than its rows.
            elements = match elements.is_empty() {
                true => 0..0,
                false => offsets.range(elements.start).start..offsets.range(elements.end - 1).end,
            };
            levels.push((offsets, inner.nulls()));
            inner = values;
        }
        // The index of an element is not a row's; the first row that ends behind it is the row.
        let elements = Bound::within(element, inner, elements).map_err(|(index, problem)| {
            let ends_behind = |row: &usize| {
                let mut range = *row..*row + 1;
                for (offsets, _) in &levels {
                    let (start, end) = (range.start, range.end);
                    if start >= end {
                        return false;
                    }
                    range = offsets.range(start).start..offsets.range(end - 1).end;
                }
                range.end > index
            };
            let mut rows = written.clone();
            (rows.find(ends_behind).unwrap_or(written.start), problem)
        })?;
        Ok(elements.map(|elements| Self {
            oid,
            levels,
            elements,
        }))
    }

    /// Length, dimensions, whether NULLs are among the elements, element type, then length and
    /// lower bound of each dimension, then the elements.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let elements = self.write_dimensions(row, out)?;
        let dimensions = (out.len() - start - HEAD_BYTES) / DIMENSION_BYTES;
        let has_null = elements.clone().any(|index| self.elements.is_null(index));
        for index in elements {
            self.elements.write(index, out)?;
        }
        let length = i32::try_from(out.len() - start - 4).map_err(|_| Problem::TooLarge)?;
        let head = [
            length as u32,
            dimensions as u32,
            u32::from(has_null),
            self.oid,
        ];
        for (place, word) in out[start..].chunks_exact_mut(4).zip(head) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Ok(())
    }

    /// The length and the lower bound of each dimension, of which an empty list has none; gives where the
    /// elements are.
    fn write_dimensions(&self, row: usize, out: &mut Vec<u8>) -> Result<Range<usize>, Problem> {
        let mut range = row..row + 1;
        for (level, (offsets, nulls)) in self.levels.iter().enumerate() {
            let length = offsets.range(range.start).len();
            let uneven = |row: usize| {
                let null = level > 0 && nulls.is_some_and(|nulls| nulls.is_null(row));
                null || offsets.range(row).len() != length
            };
            if range.clone().any(uneven) {
                return Err(Problem::NotRectangular);
            }
            if length == 0 {
                // `{}` has no dimensions at all; a list of empty lists would become it.
                return match level {
                    0 => Ok(0..0),
                    _ => Err(Problem::NotRectangular),
                };
            }
            let words = [i32::try_from(length).map_err(|_| Problem::TooLarge)?, 1];
            for word in words {
                out.extend_from_slice(&word.to_be_bytes());
            }
            range = offsets.range(range.start).start..offsets.range(range.end - 1).end;
        }
        Ok(range)
    }
}

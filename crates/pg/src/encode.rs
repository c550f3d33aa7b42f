//! Writes Arrow values as PostgreSQL sends and receives them: length, then bytes.
//!
//! [`Bound`] asks its [`Encode`] once for a block of rows. [`numbers`], [`Bytes`], [`Fixed`] and [`aside`] are the ones
//! that several families of [`crate::types`] use.

mod block;

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

pub(crate) use block::{Layout, Number, Places};

use crate::error::{Failed, Problem};

/// The values of one column of one batch.
pub(crate) struct Bound<'a> {
    pub(crate) nulls: Option<&'a NullBuffer>,
    /// `None`: all are NULL.
    pub(crate) values: Option<Values<'a>>,
}

/// The values of an array, ready to be written.
pub(crate) struct Values<'a> {
    /// Bytes of each value that is not NULL, with its length, besides the bytes of texts. `None`: the length is known
    /// only when [`append`](Encode::append) writes the value.
    bytes: Option<usize>,
    texts: Option<Offsets<'a>>,
    kind: Box<dyn Encode + 'a>,
}

impl<'a> Values<'a> {
    /// Values that take `bytes` on the line, with their length.
    pub(crate) fn sized(bytes: usize, kind: impl Encode + 'a) -> Self {
        Self {
            bytes: Some(bytes),
            texts: None,
            kind: Box::new(kind),
        }
    }
}

/// How values of one kind are written.
pub(crate) trait Encode: Send + Sync {
    /// Writes length and bytes of each value at its place, -1 for NULL.
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed>;

    /// Appends length and bytes of some values, -1 for NULL.
    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed>;
}

/// Where values are appended: elements of a list, and values whose length is not known before.
pub(crate) struct Appended<'a> {
    nulls: Option<&'a NullBuffer>,
    /// No value starts once `out` has this many bytes.
    full: usize,
    out: &'a mut Vec<u8>,
    /// Where each value ends.
    ends: Option<&'a mut Vec<usize>>,
}

impl Appended<'_> {
    #[inline(always)]
    pub(crate) fn each(
        &mut self,
        rows: Range<usize>,
        write: impl Fn(usize, &mut Vec<u8>) -> Result<(), Problem>,
    ) -> Result<(), Failed> {
        for row in rows {
            if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
                self.out.extend_from_slice(&NULL);
            } else {
                write(row, self.out).map_err(|problem| (row, problem))?;
            }
            if let Some(ends) = &mut self.ends {
                ends.push(self.out.len());
            }
            if self.out.len() >= self.full {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Offsets<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
}

impl Offsets<'_> {
    #[inline]
    pub(crate) fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::Small(ends) => ends[row] as usize..ends[row + 1] as usize,
            Self::Large(ends) => ends[row] as usize..ends[row + 1] as usize,
        }
    }
}

/// The length of a value that is NULL.
pub(crate) const NULL: [u8; 4] = (-1_i32).to_be_bytes();

/// The values of an array of numbers.
pub(crate) fn values<T: ArrowPrimitiveType>(array: &ArrayRef) -> &[T::Native] {
    array.as_primitive::<T>().values()
}

/// Appends bytes with their length, behind a byte that says their version.
pub(crate) fn put_bytes(
    out: &mut Vec<u8>,
    version: Option<u8>,
    value: &[u8],
) -> Result<(), Problem> {
    let length = value.len() + usize::from(version.is_some());
    let length = i32::try_from(length).map_err(|_| Problem::TooLarge)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(version);
    out.extend_from_slice(value);
    Ok(())
}

/// Appends a number with its length.
pub(crate) fn put_number<N: Number>(out: &mut Vec<u8>, number: N) {
    let at = out.len();
    out.resize(at + N::BYTES, 0);
    number.put(&mut out[at..]);
}

/// Values that are numbers on the line.
pub(crate) fn numbers<'a, T: Copy + Send + Sync, N: Number>(
    values: &'a [T],
    number: impl Fn(T) -> Result<N, Problem> + Send + Sync + 'a,
) -> Values<'a> {
    Values::sized(N::BYTES, Numbers { values, number })
}

struct Numbers<'a, T, F> {
    values: &'a [T],
    number: F,
}

impl<T: Copy + Send + Sync, N: Number, F> Encode for Numbers<'_, T, F>
where
    F: Fn(T) -> Result<N, Problem> + Send + Sync,
{
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed> {
        let values = self.values[rows.first()..].iter();
        rows.put_numbers(values.map(|value| (self.number)(*value)))
    }

    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed> {
        to.each(rows, |row, out| {
            put_number(out, (self.number)(self.values[row])?);
            Ok(())
        })
    }
}

/// Values of any length: text, documents and bytes.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    pub offsets: Offsets<'a>,
    pub data: &'a [u8],
    /// The version byte before the value.
    pub version: Option<u8>,
}

impl<'a> Bytes<'a> {
    /// `None` for an array of another type.
    pub(crate) fn of(array: &'a ArrayRef, version: Option<u8>) -> Option<Self> {
        let (offsets, data) = variable(array)?;
        Some(Self {
            offsets,
            data,
            version,
        })
    }

    #[inline]
    pub(crate) fn value(&self, row: usize) -> &'a [u8] {
        &self.data[self.offsets.range(row)]
    }

    pub(crate) fn values(self) -> Values<'a> {
        Values {
            bytes: Some(NULL.len() + usize::from(self.version.is_some())),
            texts: Some(self.offsets),
            kind: Box::new(self),
        }
    }
}

impl Encode for Bytes<'_> {
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed> {
        match self.offsets {
            Offsets::Small(bounds) => rows.put_texts(bounds, self.data, self.version),
            Offsets::Large(bounds) => rows.put_texts(bounds, self.data, self.version),
        }
    }

    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed> {
        to.each(rows, |row, out| {
            put_bytes(out, self.version, self.value(row))
        })
    }
}

/// Values of `width` bytes each.
pub(crate) fn fixed(width: usize, data: &[u8]) -> Values<'_> {
    match width {
        // Most types of time have 8 bytes, uuid has 16. Eight bytes as an array would be copied through memory.
        8 => numbers(data.as_chunks::<8>().0, |bytes| {
            Ok(i64::from_be_bytes(bytes))
        }),
        16 => numbers(data.as_chunks::<16>().0, Ok),
        _ => Values::sized(NULL.len() + width, Fixed { width, data }),
    }
}

struct Fixed<'a> {
    width: usize,
    data: &'a [u8],
}

impl Fixed<'_> {
    fn value(&self, row: usize) -> &[u8] {
        &self.data[row * self.width..(row + 1) * self.width]
    }
}

impl Encode for Fixed<'_> {
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed> {
        let values = (rows.first()..).map(|row| self.value(row));
        rows.put_slices(None, values)
    }

    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed> {
        to.each(rows, |row, out| put_bytes(out, None, self.value(row)))
    }
}

/// Values whose length is known when they are written: `write` appends it and the bytes of a row's value.
pub(crate) fn aside<'a>(
    write: impl Fn(usize, &mut Vec<u8>) -> Result<(), Problem> + Send + Sync + 'a,
) -> Values<'a> {
    Values {
        bytes: None,
        texts: None,
        kind: Box::new(Aside(write)),
    }
}

struct Aside<F>(F);

impl<F> Encode for Aside<F>
where
    F: Fn(usize, &mut Vec<u8>) -> Result<(), Problem> + Send + Sync,
{
    fn place(&self, rows: &mut Places<'_>) -> Result<(), Failed> {
        Err((rows.first(), Problem::Malformed))
    }

    fn append(&self, rows: Range<usize>, to: &mut Appended<'_>) -> Result<(), Failed> {
        to.each(rows, &self.0)
    }
}

impl Bound<'_> {
    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row)) || self.values.is_none()
    }

    /// Appends values until they take `room` bytes or more, at least one. Whole columns are written by
    /// [`Layout::write`].
    pub(crate) fn append(
        &self,
        rows: Range<usize>,
        room: usize,
        out: &mut Vec<u8>,
        ends: Option<&mut Vec<usize>>,
    ) -> Result<(), Failed> {
        let full = out.len().saturating_add(room);
        let to = &mut Appended {
            nulls: self.nulls,
            full,
            out,
            ends,
        };
        match &self.values {
            Some(values) => values.kind.append(rows, to),
            None => to.each(rows, |_, out| {
                out.extend_from_slice(&NULL);
                Ok(())
            }),
        }
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

/// Values of any width and sign.
pub(crate) enum Ints<'a> {
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
    pub(crate) fn of(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Int8 => Self::I8(values::<Int8Type>(array)),
            DataType::Int16 => Self::I16(values::<Int16Type>(array)),
            DataType::Int32 => Self::I32(values::<Int32Type>(array)),
            DataType::Int64 => Self::I64(values::<Int64Type>(array)),
            DataType::UInt8 => Self::U8(values::<UInt8Type>(array)),
            DataType::UInt16 => Self::U16(values::<UInt16Type>(array)),
            DataType::UInt32 => Self::U32(values::<UInt32Type>(array)),
            DataType::UInt64 => Self::U64(values::<UInt64Type>(array)),
            _ => return None,
        })
    }

    pub(crate) fn get(&self, row: usize) -> i128 {
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

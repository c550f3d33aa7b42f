//! Collects values of one kind for an Arrow column.
//!
//! A [`ColumnBuilder`](crate::builder::ColumnBuilder) asks its [`Decode`] once for all rows that were scanned. Several
//! families of [`crate::types`] use [`numbers`], [`Bytes`] and [`Fixed`].

use std::sync::Arc;

use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, FixedSizeBinaryArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::bytes::append;
use crate::error::{Failed, Problem};

/// Where a field's bytes are; a length of -1 is NULL.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cell {
    pub at: u32,
    pub length: i32,
}

impl Cell {
    #[inline]
    pub(crate) fn bytes(self, data: &[u8]) -> &[u8] {
        &data[self.at as usize..][..self.length.max(0) as usize]
    }
}

/// The column's cells: every `width`th.
pub(crate) type Cells<'a> = std::iter::StepBy<std::slice::Iter<'a, Cell>>;

/// The values so far, or why they cannot become an array.
pub(crate) type Taken = Result<ArrayRef, Failed>;

/// Collects values of one kind.
///
/// Each kind has a function of its own: compiled for a component, one function of all of them takes twice as long.
pub(crate) trait Decode: Send + Sync {
    /// Bytes of Arrow data so far.
    fn bytes(&self) -> usize;

    /// Bytes of an element in a list, besides the bytes of its text.
    fn element_bytes(&self) -> usize;

    /// Appends the values of these cells; a default value for NULL.
    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed>;

    /// The values so far as an array. The builder is empty afterwards.
    fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>)
    -> Result<ArrayRef, Failed>;

    /// A value as the server writes it, for the message about one that does not fit.
    fn shown(&self, _value: &[u8]) -> Option<String> {
        None
    }
}

/// Collects values of `N` bytes each.
pub(crate) fn numbers<T: ArrowPrimitiveType, const N: usize>(
    decode: impl Fn([u8; N]) -> Result<T::Native, Problem> + Send + Sync + 'static,
) -> Box<dyn Decode> {
    let values = Vec::new();
    Box::new(Numbers::<T, _, N> { values, decode })
}

struct Numbers<T: ArrowPrimitiveType, F, const N: usize> {
    values: Vec<T::Native>,
    decode: F,
}

impl<T: ArrowPrimitiveType, F, const N: usize> Decode for Numbers<T, F, N>
where
    F: Fn([u8; N]) -> Result<T::Native, Problem> + Send + Sync,
{
    fn bytes(&self) -> usize {
        self.values.len() * self.element_bytes()
    }

    fn element_bytes(&self) -> usize {
        size_of::<T::Native>()
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        let before = self.values.len();
        self.values
            .resize(before + cells.len(), T::Native::default());
        for (index, (cell, value)) in cells.zip(&mut self.values[before..]).enumerate() {
            if cell.length == N as i32 {
                let bytes = data.get(cell.at as usize..).and_then(<[u8]>::first_chunk);
                let bytes = bytes.ok_or((index, Problem::Malformed))?;
                *value = (self.decode)(*bytes).map_err(|problem| (index, problem))?;
            } else if cell.length >= 0 {
                return Err((index, Problem::Malformed));
            }
        }
        Ok(())
    }

    fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>) -> Taken {
        Ok(primitive::<T>(&mut self.values, nulls, data_type))
    }
}

/// Collects values of any length: text, documents and bytes.
pub(crate) struct Bytes {
    offsets: Vec<i32>,
    data: Vec<u8>,
    /// The version byte before the value.
    version: Option<u8>,
}

impl Bytes {
    pub(crate) fn of(version: Option<u8>) -> Box<dyn Decode> {
        Box::new(Self {
            offsets: vec![0],
            data: Vec::new(),
            version,
        })
    }
}

impl Decode for Bytes {
    fn bytes(&self) -> usize {
        self.offsets.len() * 4 + self.data.len()
    }

    fn element_bytes(&self) -> usize {
        4
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        let (offsets, out) = (&mut self.offsets, &mut self.data);
        let before = offsets.len();
        offsets.resize(before + cells.len(), 0);
        for (index, (cell, end)) in cells.zip(&mut offsets[before..]).enumerate() {
            if cell.length >= 0 {
                let (mut at, mut length) = (cell.at as usize, cell.length as usize);
                if let Some(version) = self.version {
                    if length == 0 || data.get(at) != Some(&version) {
                        return Err((index, Problem::Malformed));
                    }
                    (at, length) = (at + 1, length - 1);
                }
                // Both are below 2^31.
                if out.len() + length > i32::MAX as usize {
                    return Err((index, Problem::TooLarge));
                }
                append(out, data, at, length);
            }
            *end = out.len() as i32;
        }
        Ok(())
    }

    fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>) -> Taken {
        let (offsets, data) = (take_offsets(&mut self.offsets), take_vec(&mut self.data));
        variable(data_type, offsets, data, nulls)
    }
}

/// Collects values of `width` bytes each.
pub(crate) struct Fixed {
    width: usize,
    data: Vec<u8>,
}

impl Fixed {
    pub(crate) fn of(width: usize) -> Box<dyn Decode> {
        let data = Vec::new();
        Box::new(Self { width, data })
    }
}

impl Decode for Fixed {
    fn bytes(&self) -> usize {
        self.data.len()
    }

    fn element_bytes(&self) -> usize {
        self.width.max(1)
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        match self.width {
            // Most times, and uuid.
            8 => chunks::<8>(&mut self.data, data, cells),
            16 => chunks::<16>(&mut self.data, data, cells),
            width => slices(&mut self.data, width, data, cells),
        }
    }

    fn take(&mut self, _: &DataType, nulls: Option<NullBuffer>) -> Taken {
        let values = Buffer::from_vec(take_vec(&mut self.data));
        let array = FixedSizeBinaryArray::try_new(self.width as i32, values, nulls);
        Ok(Arc::new(array.map_err(|_| (0, Problem::Malformed))?))
    }
}

#[inline(never)]
fn chunks<const N: usize>(out: &mut Vec<u8>, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
    let before = out.len();
    out.resize(before + cells.len() * N, 0);
    let (places, _) = out[before..].as_chunks_mut::<N>();
    for (index, (cell, place)) in cells.zip(places).enumerate() {
        if cell.length == N as i32 {
            let bytes = data.get(cell.at as usize..).and_then(<[u8]>::first_chunk);
            *place = *bytes.ok_or((index, Problem::Malformed))?;
        } else if cell.length >= 0 {
            return Err((index, Problem::Malformed));
        }
    }
    Ok(())
}

#[inline(never)]
fn slices(out: &mut Vec<u8>, width: usize, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
    out.reserve(cells.len() * width);
    for (index, cell) in cells.enumerate() {
        if cell.length < 0 {
            out.resize(out.len() + width, 0);
        } else if cell.length as usize == width {
            append(out, data, cell.at as usize, width);
        } else {
            return Err((index, Problem::Malformed));
        }
    }
    Ok(())
}

/// Takes the values and leaves room for as many.
fn take_vec<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len();
    std::mem::replace(values, Vec::with_capacity(room))
}

pub(crate) fn take_offsets(offsets: &mut Vec<i32>) -> Vec<i32> {
    let taken = take_vec(offsets);
    offsets.push(0);
    taken
}

pub(crate) fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    let values = ScalarBuffer::from(take_vec(values));
    Arc::new(PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()))
}

/// Text or bytes. Text is checked at once, and searched for the row only if it is wrong.
fn variable(
    data_type: &DataType,
    offsets: Vec<i32>,
    data: Vec<u8>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Failed> {
    let is_text = *data_type == DataType::Utf8;
    let values = Buffer::from_vec(data);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    if !is_text {
        return Ok(Arc::new(BinaryArray::new(offsets, values, nulls)));
    }
    let array = StringArray::try_new(offsets.clone(), values.clone(), nulls);
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|_| {
        let wrong = offsets.windows(2).position(|ends| {
            let text = &values[ends[0] as usize..ends[1] as usize];
            std::str::from_utf8(text).is_err()
        });
        (wrong.unwrap_or(0), Problem::Text)
    })
}

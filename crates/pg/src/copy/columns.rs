//! Builds one Arrow column from the fields of many rows.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeBinaryArray, ListArray,
    PrimitiveArray, StringArray,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBufferBuilder, Buffer, IntervalMonthDayNano, NullBuffer,
    NullBufferBuilder, OffsetBuffer, ScalarBuffer, i256,
};
use arrow_schema::{DataType, Field, FieldRef};

use crate::PgError;
use crate::bytes::append;
use crate::error::Problem;
use crate::form::Form;
use crate::numeric::Wide;
use crate::{datetime, numeric};

/// Where a field's bytes are; a length of -1 is NULL.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    pub at: u32,
    pub length: i32,
}

impl Cell {
    #[inline]
    fn bytes(self, data: &[u8]) -> &[u8] {
        &data[self.at as usize..][..self.length.max(0) as usize]
    }
}

/// Collects the values of one column.
pub(super) struct ColumnBuilder {
    name: String,
    data_type: DataType,
    /// False of a column that the catalog calls NOT NULL.
    is_nullable: bool,
    nulls: NullBufferBuilder,
    rows: usize,
    values: Values,
}

enum Values {
    Bool(BooleanBufferBuilder),
    Int2(Vec<i16>),
    Int4(Vec<i32>),
    Int8(Vec<i64>),
    Oid(Vec<u32>),
    Float4(Vec<f32>),
    Float8(Vec<f64>),
    Date(Vec<i32>),
    Time(Vec<i64>),
    /// With or without a zone.
    Timestamp(Vec<i64>),
    Interval(Vec<IntervalMonthDayNano>),
    Decimal128 {
        values: Vec<i128>,
        scale: i32,
        limit: i128,
    },
    Decimal256 {
        values: Vec<i256>,
        scale: i32,
        limit: i256,
    },
    /// Text, documents and bytes.
    Bytes {
        offsets: Vec<i32>,
        data: Vec<u8>,
        /// The version byte before the value.
        version: Option<u8>,
    },
    Fixed {
        width: usize,
        data: Vec<u8>,
    },
    List {
        offsets: Vec<i32>,
        cells: Vec<Cell>,
        item: FieldRef,
        child: Box<ColumnBuilder>,
        /// Of one value.
        max_bytes: usize,
    },
}

/// The column's cells: every `width`th.
type Cells<'a> = std::iter::StepBy<std::slice::Iter<'a, Cell>>;

/// A problem and the index of its row.
type Failed = (usize, Problem);

impl ColumnBuilder {
    /// A list that takes more than `max_bytes` of memory is refused: elements that are NULL take less on
    /// the line.
    pub(super) fn new(field: &Field, form: &Form, max_bytes: usize) -> Self {
        Self {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            is_nullable: field.is_nullable(),
            nulls: NullBufferBuilder::new(0),
            rows: 0,
            values: Values::new(form, field.data_type(), max_bytes),
        }
    }

    /// Bytes of Arrow data so far.
    pub(super) fn bytes(&self) -> usize {
        self.values.bytes() + self.rows.div_ceil(8)
    }

    /// Takes the cells 0, `width`, 2 `width` …, of which some may be NULL if any cell is; `first_row` is
    /// the number of the first.
    pub(super) fn append(
        &mut self,
        data: &[u8],
        cells: &[Cell],
        width: usize,
        has_null: bool,
        first_row: u64,
    ) -> Result<(), PgError> {
        let extended = self.extend(data, cells, width, has_null);
        extended.map_err(|(index, problem)| {
            let mut error = problem.at(&self.name, first_row + index as u64);
            let cell = cells.get(index * width).filter(|cell| cell.length >= 0);
            if let (DataType::Decimal128(..) | DataType::Decimal256(..), Some(cell)) =
                (&self.data_type, cell)
                && let Some(value) = numeric::shown(cell.bytes(data))
            {
                error.message = format!("{}: {value}", error.message);
            }
            error
        })
    }

    fn extend(
        &mut self,
        data: &[u8],
        cells: &[Cell],
        width: usize,
        has_null: bool,
    ) -> Result<(), Failed> {
        let column = || cells.iter().step_by(width);
        let rows = column().len();
        if has_null && column().any(|cell| cell.length < 0) {
            for cell in column() {
                self.nulls.append(cell.length >= 0);
            }
        } else {
            self.nulls.append_n_non_nulls(rows);
        }
        self.rows += rows;
        self.values.extend(data, column())
    }

    /// The column so far; the builder goes on empty. `first_row` is the number of its first row.
    pub(super) fn take(&mut self, first_row: u64) -> Result<ArrayRef, PgError> {
        self.rows = 0;
        let nulls = self.nulls.finish();
        // Foreign tables may hold what the catalog excludes.
        let null = nulls.as_ref().filter(|_| !self.is_nullable);
        let null = null.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)));
        null.map_or(Ok(()), |row| Err((row, Problem::Null)))
            .and_then(|()| self.values.take(&self.data_type, nulls))
            .map_err(|(index, problem)| problem.at(&self.name, first_row + index as u64))
    }
}

/// Appends values of `N` bytes each. Each kind is a function of its own, and so are the other
/// loops: compiled for a component, one function of all of them takes twice as long.
#[inline(never)]
fn fixed<const N: usize, T: Clone + Default>(
    out: &mut Vec<T>,
    data: &[u8],
    cells: Cells<'_>,
    decode: impl Fn([u8; N]) -> Result<T, Problem>,
) -> Result<(), Failed> {
    let before = out.len();
    out.resize(before + cells.len(), T::default());
    for (index, (cell, value)) in cells.zip(&mut out[before..]).enumerate() {
        if cell.length == N as i32 {
            let bytes = data.get(cell.at as usize..).and_then(<[u8]>::first_chunk);
            let bytes = bytes.ok_or((index, Problem::Malformed))?;
            *value = decode(*bytes).map_err(|problem| (index, problem))?;
        } else if cell.length >= 0 {
            return Err((index, Problem::Malformed));
        }
    }
    Ok(())
}

/// Appends decimals.
#[inline(never)]
fn decimals<T: Wide>(
    out: &mut Vec<T>,
    (scale, limit): (i32, T),
    data: &[u8],
    cells: Cells<'_>,
) -> Result<(), Failed> {
    out.reserve(cells.len());
    for (index, cell) in cells.enumerate() {
        out.push(if cell.length < 0 {
            T::from_small(0)
        } else {
            numeric::decode(cell.bytes(data), scale, limit).map_err(|problem| (index, problem))?
        });
    }
    Ok(())
}

/// Appends values of any length.
#[inline(never)]
fn bytes(
    (offsets, out): (&mut Vec<i32>, &mut Vec<u8>),
    version: Option<u8>,
    data: &[u8],
    cells: Cells<'_>,
) -> Result<(), Failed> {
    let before = offsets.len();
    offsets.resize(before + cells.len(), 0);
    for (index, (cell, end)) in cells.zip(&mut offsets[before..]).enumerate() {
        if cell.length >= 0 {
            let (mut at, mut length) = (cell.at as usize, cell.length as usize);
            if let Some(version) = version {
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

fn word(bytes: &[u8], index: usize) -> Result<i32, Problem> {
    bytes
        .get(index * 4..)
        .and_then(<[u8]>::first_chunk)
        .map(|bytes| i32::from_be_bytes(*bytes))
        .ok_or(Problem::Malformed)
}

/// Finds the elements of one array: dimensions, whether NULLs are among them, element type, then
/// length and lower bound of each dimension, then the elements (`array_send`).
#[inline(never)]
fn elements(data: &[u8], cell: Cell, out: &mut Vec<Cell>) -> Result<(), Problem> {
    const HEAD_WORDS: usize = 3;
    let value = cell.bytes(data);
    let dimensions = word(value, 0)?;
    word(value, 2)?;
    let (count, mut at) = match dimensions {
        0 => (0, HEAD_WORDS * 4),
        1 => {
            if word(value, HEAD_WORDS + 1)? != 1 {
                return Err(Problem::LowerBound);
            }
            (word(value, HEAD_WORDS)?, (HEAD_WORDS + 2) * 4)
        }
        2..=6 => return Err(Problem::Dimensions),
        _ => return Err(Problem::Malformed),
    };
    // Every element has a length, so that the bytes bound the count.
    if count < 0 || count as usize > (value.len() - at) / 4 {
        return Err(Problem::Malformed);
    }
    out.reserve(count as usize);
    for _ in 0..count {
        let rest = &value[at..];
        let length = word(rest, 0)?;
        at += 4;
        if length < -1 || length.max(0) as usize > value.len() - at {
            return Err(Problem::Malformed);
        }
        let place = cell.at as usize + at;
        at += length.max(0) as usize;
        out.push(Cell {
            at: place as u32,
            length,
        });
    }
    if at != value.len() {
        return Err(Problem::Malformed);
    }
    Ok(())
}

/// Appends values of `width` bytes each.
fn fixed_bytes(
    out: &mut Vec<u8>,
    width: usize,
    data: &[u8],
    cells: Cells<'_>,
) -> Result<(), Failed> {
    match width {
        // Most times, and uuid.
        8 => chunks::<8>(out, data, cells),
        16 => chunks::<16>(out, data, cells),
        _ => slices(out, width, data, cells),
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

#[inline(never)]
fn bools(out: &mut BooleanBufferBuilder, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
    let before = out.len();
    out.append_n(cells.len(), false);
    for (index, cell) in cells.enumerate() {
        match (cell.length, data.get(cell.at as usize)) {
            (-1, _) | (1, Some(0)) => {}
            (1, Some(1)) => out.set_bit(before + index, true),
            _ => return Err((index, Problem::Malformed)),
        }
    }
    Ok(())
}

impl Values {
    fn new(form: &Form, data_type: &DataType, max_bytes: usize) -> Self {
        match form {
            Form::Bool => Self::Bool(BooleanBufferBuilder::new(0)),
            Form::Int2 => Self::Int2(Vec::new()),
            Form::Int4 => Self::Int4(Vec::new()),
            Form::Int8 => Self::Int8(Vec::new()),
            Form::Oid => Self::Oid(Vec::new()),
            Form::Float4 => Self::Float4(Vec::new()),
            Form::Float8 => Self::Float8(Vec::new()),
            Form::Date => Self::Date(Vec::new()),
            Form::Time => Self::Time(Vec::new()),
            Form::Timestamp | Form::Timestamptz => Self::Timestamp(Vec::new()),
            Form::Interval => Self::Interval(Vec::new()),
            Form::Decimal128(precision, scale) => Self::Decimal128 {
                values: Vec::new(),
                scale: i32::from(*scale),
                limit: i128::power(u32::from(*precision)).unwrap_or(i128::MAX),
            },
            Form::Decimal256(precision, scale) => Self::Decimal256 {
                values: Vec::new(),
                scale: i32::from(*scale),
                limit: i256::power(u32::from(*precision)).unwrap_or(i256::MAX),
            },
            Form::Uuid => Self::fixed(16),
            Form::Opaque(Some(width)) => Self::fixed(*width as usize),
            Form::Text | Form::TextCast | Form::Json | Form::Bytea | Form::Opaque(None) => {
                Self::bytes_of(None)
            }
            Form::Jsonb => Self::bytes_of(Some(1)),
            Form::List(element) => {
                let item = match data_type {
                    DataType::List(item) => Arc::clone(item),
                    _ => Arc::new(Field::new("item", element.data_type(), true)),
                };
                Self::List {
                    offsets: vec![0],
                    cells: Vec::new(),
                    child: Box::new(ColumnBuilder::new(&item, element, max_bytes)),
                    item,
                    max_bytes,
                }
            }
        }
    }

    fn fixed(width: usize) -> Self {
        Self::Fixed {
            width,
            data: Vec::new(),
        }
    }

    fn bytes_of(version: Option<u8>) -> Self {
        Self::Bytes {
            offsets: vec![0],
            data: Vec::new(),
            version,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Bool(bits) => bits.len().div_ceil(8),
            Self::Int2(values) => values.len() * 2,
            Self::Int4(values) | Self::Date(values) => values.len() * 4,
            Self::Oid(values) => values.len() * 4,
            Self::Float4(values) => values.len() * 4,
            Self::Int8(values) | Self::Time(values) | Self::Timestamp(values) => values.len() * 8,
            Self::Float8(values) => values.len() * 8,
            Self::Interval(values) => values.len() * 16,
            Self::Decimal128 { values, .. } => values.len() * 16,
            Self::Decimal256 { values, .. } => values.len() * 32,
            Self::Bytes { offsets, data, .. } => offsets.len() * 4 + data.len(),
            Self::Fixed { data, .. } => data.len(),
            Self::List { offsets, child, .. } => offsets.len() * 4 + child.bytes(),
        }
    }

    /// Bytes of an element in a list, besides those of its text.
    fn element_bytes(&self) -> usize {
        match self {
            Self::Bool(_) | Self::Int2(_) => 2,
            Self::Int4(_) | Self::Oid(_) | Self::Float4(_) | Self::Date(_) => 4,
            Self::Int8(_) | Self::Float8(_) | Self::Time(_) | Self::Timestamp(_) => 8,
            Self::Interval(_) | Self::Decimal128 { .. } => 16,
            Self::Decimal256 { .. } => 32,
            Self::Bytes { .. } | Self::List { .. } => 4,
            Self::Fixed { width, .. } => (*width).max(1),
        }
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        match self {
            Self::Bool(out) => bools(out, data, cells),
            Self::Int2(out) => fixed(out, data, cells, |b| Ok(i16::from_be_bytes(b))),
            Self::Int4(out) => fixed(out, data, cells, |b| Ok(i32::from_be_bytes(b))),
            Self::Int8(out) => fixed(out, data, cells, |b| Ok(i64::from_be_bytes(b))),
            Self::Oid(out) => fixed(out, data, cells, |b| Ok(u32::from_be_bytes(b))),
            Self::Float4(out) => fixed(out, data, cells, |b| Ok(f32::from_be_bytes(b))),
            Self::Float8(out) => fixed(out, data, cells, |b| Ok(f64::from_be_bytes(b))),
            Self::Date(out) => fixed(out, data, cells, |b| {
                datetime::decode_date(i32::from_be_bytes(b))
            }),
            Self::Time(out) => fixed(out, data, cells, |b| {
                datetime::decode_time(i64::from_be_bytes(b))
            }),
            Self::Timestamp(out) => fixed(out, data, cells, |b| {
                datetime::decode_timestamp(i64::from_be_bytes(b))
            }),
            Self::Interval(out) => fixed(out, data, cells, datetime::decode_interval),
            Self::Decimal128 {
                values,
                scale,
                limit,
            } => decimals(values, (*scale, *limit), data, cells),
            Self::Decimal256 {
                values,
                scale,
                limit,
            } => decimals(values, (*scale, *limit), data, cells),
            Self::Bytes {
                offsets,
                data: out,
                version,
            } => bytes((offsets, out), *version, data, cells),
            Self::Fixed { width, data: out } => fixed_bytes(out, *width, data, cells),
            Self::List {
                offsets,
                cells: items,
                child,
                max_bytes,
                ..
            } => {
                let before = child.rows;
                let first = offsets.len();
                let most = *max_bytes / child.values.element_bytes();
                items.clear();
                for (index, cell) in cells.enumerate() {
                    let others = items.len();
                    if cell.length >= 0 {
                        elements(data, *cell, items).map_err(|problem| (index, problem))?;
                    }
                    if items.len() - others > most {
                        return Err((index, Problem::LongList));
                    }
                    let end = i32::try_from(before + items.len());
                    offsets.push(end.map_err(|_| (index, Problem::TooLarge))?);
                }
                // An element's index is not a row's: the row is found by the offsets.
                child
                    .extend(data, items, 1, true)
                    .map_err(|(index, problem)| {
                        let wanted = (before + index) as i32;
                        let row = offsets[first..].partition_point(|end| *end <= wanted);
                        (row, problem)
                    })
            }
        }
    }

    fn take(
        &mut self,
        data_type: &DataType,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, Failed> {
        Ok(match self {
            Self::Bool(bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Self::Int2(values) => primitive::<Int16Type>(values, nulls, data_type),
            Self::Int4(values) => primitive::<Int32Type>(values, nulls, data_type),
            Self::Int8(values) => primitive::<Int64Type>(values, nulls, data_type),
            Self::Oid(values) => primitive::<UInt32Type>(values, nulls, data_type),
            Self::Float4(values) => primitive::<Float32Type>(values, nulls, data_type),
            Self::Float8(values) => primitive::<Float64Type>(values, nulls, data_type),
            Self::Date(values) => primitive::<Date32Type>(values, nulls, data_type),
            Self::Time(values) => primitive::<Time64MicrosecondType>(values, nulls, data_type),
            Self::Timestamp(values) => {
                primitive::<TimestampMicrosecondType>(values, nulls, data_type)
            }
            Self::Interval(values) => {
                primitive::<IntervalMonthDayNanoType>(values, nulls, data_type)
            }
            Self::Decimal128 { values, .. } => {
                primitive::<Decimal128Type>(values, nulls, data_type)
            }
            Self::Decimal256 { values, .. } => {
                primitive::<Decimal256Type>(values, nulls, data_type)
            }
            Self::Bytes { offsets, data, .. } => {
                let (offsets, data) = (take_offsets(offsets), take_vec(data));
                return variable(data_type, offsets, data, nulls);
            }
            Self::Fixed { width, data } => {
                let values = Buffer::from_vec(take_vec(data));
                let array = FixedSizeBinaryArray::try_new(*width as i32, values, nulls);
                Arc::new(array.map_err(|_| (0, Problem::Malformed))?)
            }
            Self::List {
                offsets,
                item,
                child,
                ..
            } => {
                let offsets = take_offsets(offsets);
                child.rows = 0;
                let child_nulls = child.nulls.finish();
                let values = child.values.take(&child.data_type, child_nulls).map_err(
                    |(index, problem)| {
                        let row = offsets[1..].partition_point(|end| *end as usize <= index);
                        (row, problem)
                    },
                )?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let array = ListArray::try_new(Arc::clone(item), offsets, values, nulls);
                Arc::new(array.map_err(|_| (0, Problem::Malformed))?)
            }
        })
    }
}

/// Takes the values and leaves room for as many.
fn take_vec<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = values.len();
    std::mem::replace(values, Vec::with_capacity(room))
}

fn take_offsets(offsets: &mut Vec<i32>) -> Vec<i32> {
    let taken = take_vec(offsets);
    offsets.push(0);
    taken
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef
where
    T::Native: ArrowNativeType,
{
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

//! Builds one Arrow column from the fields of many rows.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use crate::PgError;
use crate::decode::{Bytes, Cell, Cells, Decode, Fixed, Taken, take_offsets};
use crate::error::{Failed, Problem};
use crate::form::Form;
use crate::types;

/// Collects the values of one column.
pub(crate) struct ColumnBuilder {
    name: String,
    data_type: DataType,
    /// False of a column that the catalog calls NOT NULL.
    is_nullable: bool,
    nulls: NullBufferBuilder,
    /// So far.
    pub rows: usize,
    pub values: Box<dyn Decode>,
}

impl ColumnBuilder {
    /// A list that takes more than `max_bytes` of memory is refused: elements that are NULL take less on
    /// the line.
    pub(crate) fn new(field: &Field, form: &Form, max_bytes: usize) -> Self {
        let values: Box<dyn Decode> = match form {
            Form::Value(ty, data_type) => {
                let held = types::held(*ty).expect("Arrow holds a type with this form");
                (held.decode)(data_type)
            }
            Form::Opaque(Some(width)) => Fixed::of(*width as usize),
            Form::TextCast | Form::Opaque(None) => Bytes::of(None),
            Form::List(element) => Box::new(Lists::of(element, field.data_type(), max_bytes)),
        };
        Self {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            is_nullable: field.is_nullable(),
            nulls: NullBufferBuilder::new(0),
            rows: 0,
            values,
        }
    }

    /// Bytes of Arrow data so far.
    pub(crate) fn bytes(&self) -> usize {
        self.values.bytes() + self.rows.div_ceil(8)
    }

    /// Takes the cells 0, `width`, 2 `width` …; some of them may be NULL if `has_null`. `first_row` is
    /// the number of the first.
    pub(crate) fn append(
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
            if let Some(value) = cell.and_then(|cell| self.values.shown(cell.bytes(data))) {
                error.message = format!("{}: {value}", error.message);
            }
            error
        })
    }

    pub(crate) fn extend(
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
    pub(crate) fn take(&mut self, first_row: u64) -> Result<ArrayRef, PgError> {
        let finished = self.finish();
        finished.map_err(|(index, problem)| problem.at(&self.name, first_row + index as u64))
    }

    pub(crate) fn finish(&mut self) -> Result<ArrayRef, Failed> {
        self.rows = 0;
        let nulls = self.nulls.finish();
        // Foreign tables may hold what the catalog excludes.
        let null = nulls.as_ref().filter(|_| !self.is_nullable);
        let null = null.and_then(|nulls| (0..nulls.len()).find(|row| nulls.is_null(*row)));
        null.map_or(Ok(()), |row| Err((row, Problem::Null)))?;
        self.values.take(&self.data_type, nulls)
    }
}

/// The elements of lists so far.
struct Lists {
    offsets: Vec<i32>,
    /// Of the rows that are decoded together.
    cells: Vec<Cell>,
    item: FieldRef,
    child: ColumnBuilder,
    /// Of one value.
    max_bytes: usize,
}

impl Lists {
    fn of(element: &Form, data_type: &DataType, max_bytes: usize) -> Self {
        let item = match data_type {
            DataType::List(item) => Arc::clone(item),
            _ => Arc::new(Field::new("item", element.data_type(), true)),
        };
        Self {
            offsets: vec![0],
            cells: Vec::new(),
            child: ColumnBuilder::new(&item, element, max_bytes),
            item,
            max_bytes,
        }
    }
}

impl Decode for Lists {
    fn bytes(&self) -> usize {
        self.offsets.len() * 4 + self.child.values.bytes()
    }

    fn element_bytes(&self) -> usize {
        4
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        let before = self.child.rows;
        let first = self.offsets.len();
        let most = self.max_bytes / self.child.values.element_bytes();
        let items = &mut self.cells;
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
            self.offsets
                .push(end.map_err(|_| (index, Problem::TooLarge))?);
        }
        // An element's index is not a row's: the row is found by the offsets.
        let extended = self.child.extend(data, items, 1, true);
        extended.map_err(|(index, problem)| {
            let wanted = (before + index) as i32;
            let row = self.offsets[first..].partition_point(|end| *end <= wanted);
            (row, problem)
        })
    }

    fn take(&mut self, _: &DataType, nulls: Option<NullBuffer>) -> Taken {
        let offsets = take_offsets(&mut self.offsets);
        let values = self.child.finish().map_err(|(index, problem)| {
            let row = offsets[1..].partition_point(|end| *end as usize <= index);
            (row, problem)
        })?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let array = ListArray::try_new(Arc::clone(&self.item), offsets, values, nulls);
        Ok(Arc::new(array.map_err(|_| (0, Problem::Malformed))?))
    }
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

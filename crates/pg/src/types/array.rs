//! Arrays of one dimension, held as lists. Arrays of more travel in their native form or as text.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};

use crate::builtin::{self, Builtin};
use crate::decode::{Cell, Cells, ColumnBuilder, Decode, Taken, take_offsets};
use crate::encode::{Bound, Offsets, Op, Values, aside};
use crate::error::{Failed, Problem};
use crate::fit::{Decision, Fit, Source, plain_type, refused};
use crate::form::Form;
use crate::model::{Column, Kind, PgType};

/// The elements of lists so far.
pub(crate) struct Lists {
    offsets: Vec<i32>,
    /// Of the rows that are decoded together.
    cells: Vec<Cell>,
    item: FieldRef,
    child: ColumnBuilder,
    /// Of one value.
    max_bytes: usize,
}

impl Lists {
    pub(crate) fn of(element: &Form, data_type: &DataType, max_bytes: usize) -> Self {
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

/// `max` in PostgreSQL's arrays.
const MAX_DIMENSIONS: usize = 6;

/// The column for lists of `item`, which is `depth` lists deep; a list of lists is an array of more dimensions.
pub(crate) fn column(item: &Field, depth: usize) -> Result<Column, String> {
    if depth == MAX_DIMENSIONS {
        return Err(format!("arrays have at most {MAX_DIMENSIONS} dimensions"));
    }
    let element = plain_type(item, depth + 1)?;
    if let Kind::Array { .. } = element.ty.kind {
        return Ok(Column {
            dimensions: element.dimensions + 1,
            ..element
        });
    }
    let array = builtin::by_oid(element.ty.oid).map(Builtin::array_ty);
    Ok(Column {
        ty: array.ok_or("the element's type does not have an array type")?,
        type_text: format!("{}[]", element.type_text),
        dimensions: 1,
        ..element
    })
}

/// A list in an array of elements of the type `to`.
pub(crate) fn into(field: &Field, from: (&PgType, i32), to: (&PgType, i32)) -> Decision {
    let Kind::Array { element: from_item } = &from.0.kind else {
        return refused("a single value does not become an array");
    };
    let mut item = field;
    let mut depth = 0;
    while let DataType::List(inner) | DataType::LargeList(inner) = item.data_type() {
        item = inner;
        depth += 1;
    }
    // The element travels by the same rules as a column of its type would.
    let element = Source {
        column: Column {
            typmod: from.1,
            ..Column::new("", (**from_item).clone(), from_item.name.clone())
        },
        is_text_cast: false,
        is_opaque: false,
        is_foreign: true,
    };
    let target = Column {
        typmod: to.1,
        ..Column::new("", to.0.clone(), to.0.name.clone())
    };
    // The mark of a column is about the strings in its lists.
    let item = match rapidbyte_wire::types::is_json_strings(field) {
        true => &item.clone().with_metadata(field.metadata().clone()),
        false => item,
    };
    match element.decide_for(item, &target) {
        Ok((op, note)) => Ok((
            Op::List {
                oid: to.0.oid,
                depth,
                element: Box::new(op),
            },
            note,
        )),
        Err(Fit::Cast(_)) => refused(format!(
            "elements of {} do not become {}",
            from_item.display_name(),
            to.0.display_name()
        )),
        Err(fit) => Err(fit),
    }
}

/// Lists, `depth` of them within each other, as arrays of the element type `oid`.
pub(crate) fn encode_lists<'a>(
    oid: u32,
    depth: usize,
    element: &'a Op,
    array: &'a ArrayRef,
    written: Range<usize>,
) -> Result<Option<Values<'a>>, Failed> {
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
    Ok(elements.map(|elements| {
        let lists = Written {
            oid,
            levels,
            elements,
        };
        aside(move |row, out| lists.write(row, out))
    }))
}

/// Lists within lists down to the elements.
struct Written<'a> {
    oid: u32,
    /// From the outer level to the inner.
    levels: Vec<(Offsets<'a>, Option<&'a NullBuffer>)>,
    elements: Bound<'a>,
}

/// Of an array: its length, how many dimensions it has, whether there are NULLs, the type of its elements.
const HEAD_BYTES: usize = 16;
/// Of each dimension: how many elements, and the number of the first.
const DIMENSION_BYTES: usize = 8;

impl Written<'_> {
    /// Length, dimensions, whether NULLs are among the elements, element type, then length and
    /// lower bound of each dimension, then the elements.
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let elements = self.write_dimensions(row, out)?;
        let dimensions = (out.len() - start - HEAD_BYTES) / DIMENSION_BYTES;
        let has_null = elements.clone().any(|index| self.elements.is_null(index));
        let written = self.elements.append(elements, usize::MAX, out, None);
        written.map_err(|(_, problem)| problem)?;
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

    /// Writes the length and the lower bound of each dimension; an empty list does not have dimensions. Gives
    /// the place of the elements.
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
                // `{}` does not have dimensions; a list of empty lists would become `{}`.
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

//! Takes a column apart: its values as they are written, the elements of its lists by the same rules.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::encode::{self, Bound, Bytes, Offsets, Values, aside, put_bytes, values};
use crate::error::{Failed, Problem};
use crate::op::Op;
use crate::types::{self, integer, json, numeric, text};

impl<'a> Bound<'a> {
    /// Takes the column apart. `None`: the array is not of the type the op was made for. A
    /// problem with a row's text is given at once.
    pub(crate) fn new(op: &'a Op, array: &'a ArrayRef) -> Result<Option<Self>, Failed> {
        Self::within(op, array, 0..array.len())
    }

    /// The same where only these of its values are written.
    pub(crate) fn within(
        op: &'a Op,
        array: &'a ArrayRef,
        written: Range<usize>,
    ) -> Result<Option<Self>, Failed> {
        let values = match op {
            Op::Null => None,
            op => match op.encode(array, written)? {
                None => return Ok(None),
                values => values,
            },
        };
        Ok(Some(Self {
            nulls: array.nulls().filter(|nulls| nulls.null_count() > 0),
            values,
        }))
    }
}

impl Op {
    fn encode<'a>(
        &'a self,
        array: &'a ArrayRef,
        written: Range<usize>,
    ) -> Result<Option<Values<'a>>, Failed> {
        Ok(match self {
            Self::Null => None,
            Self::Plain => types::encode(array),
            Self::Text { check, limit } => text::encode_text(array, *check, *limit, written)?,
            Self::Jsonb { check } => json::encode_jsonb(array, *check, written)?,
            Self::JsonString { version } => json::encode_strings(array, *version, written)?,
            Self::Int(width) => integer::encode_as(array, *width),
            Self::IntNumeric => numeric::encode_integers(array),
            Self::Float8 => encode_double(array),
            Self::Rewrite(rewrite) => Bytes::of(array, None).map(|bytes| {
                aside(move |row, out| {
                    let value = bytes.value(row);
                    put_bytes(out, None, value)?;
                    let start = out.len() - value.len();
                    rewrite.apply(&mut out[start..])
                })
            }),
            Self::List {
                oid,
                depth,
                element,
            } => encode_lists(*oid, *depth, element, array, written)?,
        })
    }
}

/// As `double precision`.
fn encode_double(array: &ArrayRef) -> Option<Values<'_>> {
    match array.data_type() {
        DataType::Float32 => Some(encode::numbers(values::<Float32Type>(array), |value| {
            Ok(f64::from(value))
        })),
        _ => types::encode(array),
    }
}

/// Lists, `depth` of them within each other, as arrays of the element type `oid`.
fn encode_lists<'a>(
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

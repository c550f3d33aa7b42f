//! Writes the rows of a batch a column at a time.
//!
//! Row by row, each value is a decision about its kind and a call; compiled for a component both cost
//! more than writing an integer. Here the lengths of some rows are added up first, which says where each
//! row begins, and then one loop a column writes its values at their places.

use std::ops::Range;

use arrow_array::OffsetSizeTrait;
use arrow_buffer::NullBuffer;

use super::{Bound, NULL, Offsets};
use crate::bytes::copy;
use crate::error::{Failed, Problem};

/// Values that are written together: with more, what they are written to leaves the processor's cache.
const VALUES: usize = 2048;
/// Rows that are written together at least: with fewer, a loop costs more than what it writes.
const ROWS: usize = 16;
/// Bytes of the length before a value, or before a row.
const LENGTH: usize = 4;

/// The parts of a row.
pub(crate) struct Layout {
    /// Each begins with the length of the rest.
    has_length: bool,
    parts: Vec<Part>,
}

enum Part {
    /// The same bytes in each row.
    Same(Vec<u8>),
    /// The value of this column of the batch: its length and its bytes.
    Value(usize),
}

/// A row of the batch that cannot be written, or its value in a column, and why.
pub(crate) struct Refused {
    pub column: Option<usize>,
    pub row: usize,
    pub problem: Problem,
}

impl Layout {
    /// Rows that begin with the length of what follows, if `has_length`.
    pub(crate) fn new(has_length: bool) -> Self {
        Self {
            has_length,
            parts: Vec::new(),
        }
    }

    /// Each row has these bytes next.
    pub(crate) fn same(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some(Part::Same(before)) => before.extend_from_slice(bytes),
            _ => self.parts.push(Part::Same(bytes.to_vec())),
        }
    }

    /// Each row has its value of this column next.
    pub(crate) fn value(&mut self, column: usize) {
        self.parts.push(Part::Value(column));
    }

    /// The columns whose values a row has, in this order.
    fn columns(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| match part {
            Part::Same(_) => None,
            Part::Value(column) => Some(*column),
        })
    }

    /// Bytes of each row besides its values.
    fn bytes(&self) -> usize {
        let bytes = |part: &Part| match part {
            Part::Same(bytes) => bytes.len(),
            Part::Value(_) => 0,
        };
        let length = if self.has_length { LENGTH } else { 0 };
        length + self.parts.iter().map(bytes).sum::<usize>()
    }

    /// Writes rows `row..end` of these columns until `out` holds `full_bytes` or more, at least one;
    /// gives the next row. After an error nothing was added.
    pub(crate) fn write(
        &self,
        columns: &[Bound<'_>],
        mut row: usize,
        end: usize,
        full_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Refused> {
        let start = out.len();
        let aside = self.columns().filter(|c| columns[*c].bytes().is_none());
        let least: usize = self.columns().map(|c| columns[c].least_bytes()).sum();
        let mut block = Block {
            layout: self,
            columns,
            asides: aside.map(Aside::of).collect(),
            least: self.bytes() + least,
            at: Vec::new(),
        };
        let rows_at_once = (VALUES / self.columns().count().max(1)).max(ROWS);
        while row < end {
            match block.write(row, rows_at_once.min(end - row), full_bytes, out) {
                Ok(rows) => row += rows,
                Err(refused) => {
                    out.truncate(start);
                    return Err(refused);
                }
            }
            if out.len() >= full_bytes {
                break;
            }
        }
        Ok(row)
    }
}

struct Block<'a> {
    layout: &'a Layout,
    columns: &'a [Bound<'a>],
    /// In the order of the layout.
    asides: Vec<Aside>,
    /// Bytes that each row has at least.
    least: usize,
    /// How long each row is; then where its next part goes.
    at: Vec<usize>,
}

/// Values of a column that must be written to know how long they are.
struct Aside {
    column: usize,
    /// Their lengths and their bytes.
    bytes: Vec<u8>,
    /// Where each begins, and where the last one ends.
    bounds: Vec<usize>,
    /// Why the next one cannot be written.
    problem: Option<Problem>,
}

impl Aside {
    fn of(column: usize) -> Self {
        Self {
            column,
            bytes: Vec::new(),
            bounds: Vec::new(),
            problem: None,
        }
    }

    /// Writes some of these rows; gives why one of them cannot be written.
    #[inline(never)]
    fn fill(&mut self, values: &Bound<'_>, rows: Range<usize>, room: usize) -> Option<Problem> {
        let written = values.append(rows, room, &mut self.bytes, Some(&mut self.bounds));
        written.err().map(|(_, problem)| problem)
    }
}

impl Block<'_> {
    /// Writes at most `rows` rows from `first` on; gives their number.
    #[inline(never)]
    fn write(
        &mut self,
        first: usize,
        rows: usize,
        full_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Refused> {
        self.at.clear();
        self.at.resize(rows, self.least);
        for column in self.layout.columns() {
            self.columns[column].add_lengths(first, &mut self.at);
        }
        let end = self.place(first, out.len(), full_bytes)?;
        out.resize(end, 0);
        let rows = &mut Places {
            first,
            at: &mut self.at,
            out,
            nulls: None,
        };
        if self.layout.has_length {
            rows.put_lengths(end);
        }
        let mut refused: Option<Refused> = None;
        let mut asides = self.asides.iter();
        for part in &self.layout.parts {
            let column = match part {
                Part::Value(column) => *column,
                Part::Same(bytes) => {
                    rows.put_same(bytes);
                    continue;
                }
            };
            if self.columns[column].bytes().is_none() {
                asides.next().into_iter().for_each(|a| rows.put_aside(a));
            } else if let Err((row, problem)) = self.columns[column].write_all(rows)
                // All columns are checked: the error names the first row that cannot be written.
                && refused.as_ref().is_none_or(|other| row < other.row)
            {
                refused = Some(Refused {
                    column: Some(column),
                    row,
                    problem,
                });
            }
        }
        refused.map_or(Ok(self.at.len()), Err)
    }

    /// Turns the lengths of the rows into where they begin, and gives where the last one ends. Rows that
    /// would begin behind `full_bytes` are left for later.
    #[inline(never)]
    fn place(&mut self, first: usize, mut end: usize, full_bytes: usize) -> Result<usize, Refused> {
        for aside in &mut self.asides {
            aside.bytes.clear();
            aside.bounds.clear();
            aside.bounds.push(0);
            aside.problem = None;
        }
        for index in 0..self.at.len() {
            match self.length(first, index, full_bytes.saturating_sub(end)) {
                Ok(length) => {
                    self.at[index] = end;
                    end += length;
                }
                // The rows before it come first.
                Err(_) if index > 0 => {
                    self.at.truncate(index);
                    break;
                }
                Err(refused) => return Err(refused),
            }
            if end >= full_bytes {
                self.at.truncate(index + 1);
                break;
            }
        }
        Ok(end)
    }

    /// The bytes of a row. Its values that are written aside are written together with the values of the next rows,
    /// as long as there is `room`.
    #[inline(always)]
    fn length(&mut self, first: usize, index: usize, room: usize) -> Result<usize, Refused> {
        let row = first + index;
        let mut length = self.at[index];
        for aside in &mut self.asides {
            let column = aside.column;
            if aside.bounds.len() == index + 1 && aside.problem.is_none() {
                let rows = row..first + self.at.len().min(index + ROWS);
                aside.problem = aside.fill(&self.columns[column], rows, room);
            }
            if let (Some(problem), true) = (aside.problem, aside.bounds.len() == index + 1) {
                return Err(Refused {
                    column: Some(column),
                    row,
                    problem,
                });
            }
            length += aside.bounds[index + 1] - aside.bounds[index];
        }
        if self.layout.has_length && i32::try_from(length).is_err() {
            return Err(Refused {
                column: None,
                row,
                problem: Problem::TooLarge,
            });
        }
        Ok(length)
    }
}

/// Where the next value of each row goes.
pub(crate) struct Places<'a> {
    /// The row of the batch that comes first.
    first: usize,
    at: &'a mut [usize],
    out: &'a mut [u8],
    /// Of the column that is written.
    nulls: Option<&'a NullBuffer>,
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: &mut usize, bytes: [u8; N]) {
    out[*at..*at + N].copy_from_slice(&bytes);
    *at += N;
}

/// Values of one length: numbers, and bytes that are a value already.
pub(crate) trait Number: Copy {
    /// With the length before them.
    const BYTES: usize;

    /// Fills `place`, which has as many bytes.
    fn put(self, place: &mut [u8]);
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Number for $number {
            const BYTES: usize = LENGTH + size_of::<$number>();

            // Two stores: bytes that are put together in memory first are read back before they are all
            // there, and the processor waits.
            #[inline(always)]
            fn put(self, place: &mut [u8]) {
                place[..LENGTH].copy_from_slice(&(size_of::<$number>() as u32).to_be_bytes());
                place[LENGTH..].copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

number!(u8, i16, i32, u32, i64, f32, f64);

impl<const N: usize> Number for [u8; N] {
    const BYTES: usize = LENGTH + N;

    #[inline(always)]
    fn put(self, place: &mut [u8]) {
        place[..LENGTH].copy_from_slice(&(N as u32).to_be_bytes());
        place[LENGTH..].copy_from_slice(&self);
    }
}

impl Places<'_> {
    /// The row of the batch that comes first.
    pub(crate) fn first(&self) -> usize {
        self.first
    }

    /// Each row's length: from where it begins to where the next one does, the last to `end`.
    fn put_lengths(&mut self, end: usize) {
        for index in 0..self.at.len() {
            let next = self.at.get(index + 1).map_or(end, |next| *next);
            let length = (next - self.at[index] - LENGTH) as u32;
            put(self.out, &mut self.at[index], length.to_be_bytes());
        }
    }

    #[inline(never)]
    fn put_same(&mut self, bytes: &[u8]) {
        for at in self.at.iter_mut() {
            copy(&mut self.out[*at..*at + bytes.len()], bytes);
            *at += bytes.len();
        }
    }

    #[inline(never)]
    fn put_aside(&mut self, aside: &Aside) {
        for (at, bounds) in self.at.iter_mut().zip(aside.bounds.windows(2)) {
            let value = &aside.bytes[bounds[0]..bounds[1]];
            copy(&mut self.out[*at..*at + value.len()], value);
            *at += value.len();
        }
    }

    #[inline(always)]
    pub(crate) fn put_numbers<N: Number>(
        &mut self,
        numbers: impl Iterator<Item = Result<N, Problem>>,
    ) -> Result<(), Failed> {
        let (first, nulls, out) = (self.first, self.nulls, &mut *self.out);
        for (index, (at, number)) in self.at.iter_mut().zip(numbers).enumerate() {
            let row = first + index;
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                put(out, at, NULL);
            } else {
                let number = number.map_err(|problem| (row, problem))?;
                number.put(&mut out[*at..*at + N::BYTES]);
                *at += N::BYTES;
            }
        }
        Ok(())
    }

    /// Texts. A function of its own for each kind: in one of all of them nothing would stay in registers.
    #[inline(never)]
    pub(crate) fn put_texts<O: OffsetSizeTrait>(
        &mut self,
        bounds: &[O],
        data: &[u8],
        version: Option<u8>,
    ) -> Result<(), Failed> {
        let values = bounds[self.first..].windows(2);
        let value = |value: &[O]| &data[value[0].as_usize()..value[1].as_usize()];
        self.put_slices(version, values.map(value))
    }

    /// Values of any length, behind a byte that says their version.
    #[inline(always)]
    pub(crate) fn put_slices<'b>(
        &mut self,
        version: Option<u8>,
        values: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), Failed> {
        let (first, nulls, out) = (self.first, self.nulls, &mut *self.out);
        for (index, (at, value)) in self.at.iter_mut().zip(values).enumerate() {
            let row = first + index;
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                put(out, at, NULL);
                continue;
            }
            let length = value.len() + usize::from(version.is_some());
            let length = i32::try_from(length).map_err(|_| (row, Problem::TooLarge))?;
            put(out, at, length.to_be_bytes());
            if let Some(version) = version {
                put(out, at, [version]);
            }
            copy(&mut out[*at..*at + value.len()], value);
            *at += value.len();
        }
        Ok(())
    }
}

/// Adds the lengths of the texts that are not NULL.
#[inline(never)]
fn add_texts<O: OffsetSizeTrait>(
    lengths: &mut [usize],
    first: usize,
    bounds: &[O],
    nulls: Option<&NullBuffer>,
) {
    let values = bounds[first..].windows(2);
    for (index, (length, value)) in lengths.iter_mut().zip(values).enumerate() {
        if nulls.is_none_or(|nulls| nulls.is_valid(first + index)) {
            *length += value[1].as_usize() - value[0].as_usize();
        }
    }
}

impl Bound<'_> {
    /// As [`Values::bytes`](super::Values::bytes).
    fn bytes(&self) -> Option<usize> {
        self.values.as_ref()?.bytes
    }

    /// Bytes that each value takes at least; none if it is written aside.
    fn least_bytes(&self) -> usize {
        match (self.bytes(), self.nulls) {
            (Some(bytes), None) => bytes,
            (Some(_), Some(_)) => LENGTH,
            (None, _) => 0,
        }
    }

    /// Adds to the length of each row, from `first` on, what its value takes beyond the least.
    fn add_lengths(&self, first: usize, lengths: &mut [usize]) {
        if let (Some(bytes), Some(nulls)) = (self.bytes(), self.nulls) {
            for (index, length) in lengths.iter_mut().enumerate() {
                if nulls.is_valid(first + index) {
                    *length += bytes - LENGTH;
                }
            }
        }
        match self.values.as_ref().and_then(|values| values.texts) {
            Some(Offsets::Small(bounds)) => add_texts(lengths, first, bounds, self.nulls),
            Some(Offsets::Large(bounds)) => add_texts(lengths, first, bounds, self.nulls),
            None => {}
        }
    }

    fn write_all<'a>(&'a self, rows: &mut Places<'a>) -> Result<(), Failed> {
        rows.nulls = self.nulls;
        match &self.values {
            Some(values) => values.kind.place(rows),
            // Written aside.
            None => Err((rows.first, Problem::Malformed)),
        }
    }
}

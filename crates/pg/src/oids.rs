//! Type OIDs inside values.
//!
//! Arrays hold their element type's OID and records the OID of each field (`array_send`,
//! `record_send`); ranges and domains hold none of their own, but may hold such values. User
//! types have other OIDs on another server, so a value's OIDs must become the target's. PostgreSQL
//! 12 and 13 refuse a value with others; from 14 on `array_recv` and `record_recv` look at them only
//! where both are built in.

use crate::error::Problem;
use crate::model::{Kind, PgType};

/// The changes to the values of one type. Decided once per column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// Nothing.
    Keep,
    /// An array's element type, and the changes in the elements.
    Array {
        /// The element's OID at the source and at the target.
        oids: (u32, u32),
        /// For each element.
        element: Box<Rewrite>,
    },
    /// The field types of a record, and the changes in the fields.
    Record(Vec<((u32, u32), Rewrite)>),
    /// The changes in the bounds of a range.
    Range(Box<Rewrite>),
    /// The changes in the ranges of a multirange.
    Multirange(Box<Rewrite>),
}

/// Bits of a range's flags (`rangetypes.h`).
const RANGE_EMPTY: u8 = 0x01;
const RANGE_LOWER_INFINITE: u8 = 0x08;
const RANGE_UPPER_INFINITE: u8 = 0x10;
const RANGE_LOWER_NULL: u8 = 0x20;
const RANGE_UPPER_NULL: u8 = 0x40;
const MAX_ARRAY_DIMENSIONS: usize = 6;

impl Rewrite {
    /// Walks both types side by side; they must have the same shape (see [`mod@crate::fit`]).
    pub fn plan(source: &PgType, target: &PgType) -> Self {
        let ((source, _), (target, _)) = (source.stripped(-1), target.stripped(-1));
        match (&source.kind, &target.kind) {
            (Kind::Array { element: from }, Kind::Array { element: to }) => {
                let element = Self::plan(from, to);
                if from.oid == to.oid && element == Self::Keep {
                    return Self::Keep;
                }
                Self::Array {
                    oids: (from.oid, to.oid),
                    element: Box::new(element),
                }
            }
            (Kind::Composite { fields: from }, Kind::Composite { fields: to }) => {
                let fields: Vec<_> = from
                    .iter()
                    .zip(to)
                    .map(|(from, to)| {
                        let oids = (from.ty.oid, to.ty.oid);
                        (oids, Self::plan(&from.ty, &to.ty))
                    })
                    .collect();
                let same =
                    |((from, to), inner): &((u32, u32), Self)| from == to && *inner == Self::Keep;
                if fields.iter().all(same) {
                    return Self::Keep;
                }
                Self::Record(fields)
            }
            (Kind::Range { subtype: from }, Kind::Range { subtype: to }) => {
                Self::plan(from, to).within(Self::Range)
            }
            (Kind::Multirange { range: from }, Kind::Multirange { range: to }) => {
                Self::plan(from, to).within(Self::Multirange)
            }
            _ => Self::Keep,
        }
    }

    fn within(self, outer: fn(Box<Self>) -> Self) -> Self {
        match self {
            Self::Keep => Self::Keep,
            inner => outer(Box::new(inner)),
        }
    }

    /// Changes the OIDs in a value. Bytes that are not of the type are an error.
    pub(crate) fn apply(&self, value: &mut [u8]) -> Result<(), Problem> {
        if *self == Self::Keep {
            return Ok(());
        }
        let mut cursor = Cursor { bytes: value };
        match self {
            Self::Keep => {}
            Self::Array { oids, element } => {
                let dimensions = cursor.count()?;
                cursor.take(4)?;
                cursor.change(*oids)?;
                if dimensions > MAX_ARRAY_DIMENSIONS {
                    return Err(Problem::Malformed);
                }
                cursor.take(dimensions * 8)?;
                while !cursor.bytes.is_empty() {
                    cursor.value(element)?;
                }
            }
            Self::Record(fields) => {
                if cursor.count()? != fields.len() {
                    return Err(Problem::Malformed);
                }
                for (oids, inner) in fields {
                    cursor.change(*oids)?;
                    cursor.value(inner)?;
                }
            }
            Self::Range(bound) => {
                let flags = cursor.take(1)?[0];
                let lower = RANGE_EMPTY | RANGE_LOWER_INFINITE | RANGE_LOWER_NULL;
                let upper = RANGE_EMPTY | RANGE_UPPER_INFINITE | RANGE_UPPER_NULL;
                for absent in [lower, upper] {
                    if flags & absent == 0 {
                        cursor.value(bound)?;
                    }
                }
            }
            Self::Multirange(range) => {
                for _ in 0..cursor.count()? {
                    cursor.value(range)?;
                }
            }
        }
        if cursor.bytes.is_empty() {
            Ok(())
        } else {
            Err(Problem::Malformed)
        }
    }
}

struct Cursor<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a mut [u8], Problem> {
        let bytes = std::mem::take(&mut self.bytes);
        let (taken, rest) = bytes
            .split_at_mut_checked(count)
            .ok_or(Problem::Malformed)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<[u8; 4], Problem> {
        let taken = self.take(4)?;
        taken.first_chunk().copied().ok_or(Problem::Malformed)
    }

    fn count(&mut self) -> Result<usize, Problem> {
        usize::try_from(i32::from_be_bytes(self.word()?)).map_err(|_| Problem::Malformed)
    }

    fn change(&mut self, (from, to): (u32, u32)) -> Result<(), Problem> {
        let place = self.take(4)?;
        if *place != from.to_be_bytes() {
            return Err(Problem::Malformed);
        }
        place.copy_from_slice(&to.to_be_bytes());
        Ok(())
    }

    /// A length, -1 for NULL, and a value.
    fn value(&mut self, inner: &Rewrite) -> Result<(), Problem> {
        let length = i32::from_be_bytes(self.word()?);
        if length == -1 {
            return Ok(());
        }
        let length = usize::try_from(length).map_err(|_| Problem::Malformed)?;
        inner.apply(self.take(length)?)
    }
}

//! PostgreSQL's types by family: each file holds all that is known of its types.
//!
//! A family fills [`Family`] and, for each of its types, a row of [`Type`]: how Arrow holds a value, how the value is
//! decoded and encoded, which type a field of Arrow becomes, which modifiers fit, and which texts a cast accepts. A
//! new type is a row in its family's file, with its OID in [`crate::builtin`]. A new family is a file and a line in
//! [`FAMILIES`]. A type in no family travels in its native form, or as the server's text.

/// Rows of [`Type`]: the types, how Arrow holds them, their modifiers, and which texts a cast accepts.
macro_rules! types {
    ($([$($of:ident),*] $held:expr, $modifier:expr, $spelling:expr;)*) => {
        &[$($crate::types::Type {
            of: &[$($of),*],
            held: $held,
            modifier: $modifier,
            spelling: $spelling,
        }),*]
    };
}

pub(crate) mod array;
mod boolean;
mod bytes;
mod datetime;
pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod json;
mod native;
pub(crate) mod numeric;
pub(crate) mod text;
mod uuid;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};

use crate::builtin::Builtin;
use crate::cast::Spelling;
use crate::decode::Decode;
use crate::encode::Values;
use crate::fit::Decision;
use crate::model::{Column, PgType};

/// All families. The first one that knows a field names its type, so `uuid` and `json` stand before bytes and text.
static FAMILIES: [&Family; 10] = [
    &boolean::FAMILY,
    &integer::FAMILY,
    &float::FAMILY,
    &numeric::FAMILY,
    &datetime::FAMILY,
    &uuid::FAMILY,
    &json::FAMILY,
    &text::FAMILY,
    &bytes::FAMILY,
    &native::FAMILY,
];

/// A family: the compiler names a field that is missing.
pub(crate) struct Family {
    /// Its types.
    types: &'static [Type],
    /// The column to create for a field, without its name.
    column: fn(&Field) -> Option<Column>,
    /// How a field from a type gets into a column of another; `None` if only into the same.
    into: fn(&Field, from: &PgType, to: Builtin, typmod: i32) -> Option<Decision>,
    /// The values of an array whose Arrow type is the family's own, as that type is on the line.
    encode: fn(&ArrayRef) -> Option<Values<'_>>,
}

/// Types that their family treats alike.
struct Type {
    of: &'static [Builtin],
    /// `None`: no type of Arrow is like it.
    held: Option<Held>,
    /// `None`: it has none, or nobody knows what it means.
    modifier: Option<Modifier>,
    /// Which texts a cast accepts.
    spelling: Spelling,
}

/// The effect of a type's modifiers.
pub(crate) struct Modifier {
    /// Why the target's modifier would change a value of the source's, or refuse it.
    pub fits: Fits,
    /// Equal values may be written differently, as 1.2 and 1.20 are.
    pub by_value: bool,
}

/// How Arrow holds the values of a type.
pub(crate) struct Held {
    /// It holds every value, so that nobody needs the native form.
    pub exact: bool,
    /// The Arrow type for a modifier; `None` if the modifier lets through what no Arrow type holds.
    pub data_type: fn(typmod: i32) -> Option<DataType>,
    /// The extension type's name.
    pub extension: Option<&'static str>,
    /// Collects values of `data_type`.
    pub decode: fn(&DataType) -> Box<dyn Decode>,
}

type Fits = fn(from: i32, to: i32) -> Result<(), &'static str>;

/// Equal values of the type are written differently.
const fn by_value(fits: Fits) -> Option<Modifier> {
    let by_value = true;
    Some(Modifier { fits, by_value })
}

/// Equal values of the type are written alike.
const fn by_text(fits: Fits) -> Option<Modifier> {
    let by_value = false;
    Some(Modifier { fits, by_value })
}

/// Arrow holds every value.
const fn exactly(
    data_type: fn(i32) -> Option<DataType>,
    decode: fn(&DataType) -> Box<dyn Decode>,
) -> Option<Held> {
    Some(Held {
        exact: true,
        data_type,
        extension: None,
        decode,
    })
}

/// Arrow holds most values.
const fn partly(
    data_type: fn(i32) -> Option<DataType>,
    decode: fn(&DataType) -> Box<dyn Decode>,
) -> Option<Held> {
    Some(Held {
        exact: false,
        data_type,
        extension: None,
        decode,
    })
}

/// The row of a built-in type.
fn of(oid: u32) -> Option<&'static Type> {
    let mut types = FAMILIES.iter().flat_map(|family| family.types);
    types.find(|ty| ty.of.iter().any(|builtin| builtin.oid == oid))
}

/// How Arrow holds the values of a built-in type.
pub(crate) fn held(ty: Builtin) -> Option<&'static Held> {
    of(ty.oid)?.held.as_ref()
}

/// The values of an array, as its Arrow type is on the line; `None` for a type that no family knows.
pub(crate) fn encode(array: &ArrayRef) -> Option<Values<'_>> {
    FAMILIES.iter().find_map(|family| (family.encode)(array))
}

/// The column to create for a field of a single value, without its name.
pub(crate) fn column(field: &Field) -> Option<Column> {
    FAMILIES.iter().find_map(|family| (family.column)(field))
}

/// How a field gets into a column of another type; `None` if only into the same.
pub(crate) fn into(field: &Field, from: &PgType, to: Builtin, typmod: i32) -> Option<Decision> {
    let mut families = FAMILIES.iter();
    families.find_map(|family| (family.into)(field, from, to, typmod))
}

/// The effect of a type's modifiers, if it is known.
pub(crate) fn modifier(ty: &PgType) -> Option<&'static Modifier> {
    of(ty.oid)?.modifier.as_ref()
}

/// Which texts a cast to a type accepts.
pub(crate) fn spelling(ty: &PgType) -> Spelling {
    of(ty.oid).map_or(Spelling::Own, |ty| ty.spelling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_one_row() {
        let rows = FAMILIES.iter().flat_map(|family| family.types);
        let mut oids: Vec<u32> = rows.flat_map(|row| row.of).map(|ty| ty.oid).collect();
        let rows = oids.len();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), rows);
    }
}

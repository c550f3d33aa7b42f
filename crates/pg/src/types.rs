//! PostgreSQL's types by family: a file holds all that is known of its types side by side.
//!
//! [`Family`] and [`Type`] are what a family says: how Arrow holds a value, how it is decoded and encoded, which type
//! a field of Arrow becomes, which modifiers fit, and which texts a cast accepts. A new type is an entry in its
//! family's file (and its OID in [`crate::builtin`]), a new family is a file and a line in [`FAMILIES`].
//! A type that no family lists travels in its native form, or as the server's text.

pub(crate) mod array;
mod boolean;
mod bytes;
mod datetime;
pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod json;
pub(crate) mod numeric;
pub(crate) mod text;
mod uuid;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use crate::builtin::Builtin;
use crate::decode::Decode;
use crate::encode::Values;

/// All families.
static FAMILIES: [&Family; 9] = [
    &boolean::FAMILY,
    &integer::FAMILY,
    &float::FAMILY,
    &numeric::FAMILY,
    &datetime::FAMILY,
    &uuid::FAMILY,
    &json::FAMILY,
    &text::FAMILY,
    &bytes::FAMILY,
];

/// What a family says.
pub(crate) struct Family {
    /// Its types.
    types: &'static [Type],
    /// The values of an array whose Arrow type is the family's own, as that type is on the line.
    encode: fn(&ArrayRef) -> Option<Values<'_>>,
}

/// What a family says of types that it treats alike.
struct Type {
    of: &'static [Builtin],
    /// `None`: no type of Arrow is like it.
    held: Option<Held>,
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

/// What its family says of a built-in type.
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

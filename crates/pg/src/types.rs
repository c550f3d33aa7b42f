//! PostgreSQL's types by family: each file holds all that is known of its types.
//!
//! A family fills [`Family`] and, for each of its types, a row of [`Type`]: how Arrow holds a value, how the value is
//! decoded and encoded, which type a field of Arrow becomes, which modifiers fit, and which texts a cast accepts. A
//! new type is a row in its family's file, with its OID in [`crate::builtin`]. A new family is a file and a line in
//! [`FAMILIES`]. A type in no family travels in its native form, or as the server's text. Arrays are made
//! of other types, and follow their rules: [`mod@crate::fit`], [`crate::bind`] and [`crate::builder`] know them.

/// Rows of [`Type`]: the types, how Arrow holds them, their modifiers, and which texts a cast accepts.
macro_rules! types {
    ($([$($of:ident),*] $held:expr, $modifier:expr, $spelling:expr;)*) => {
        &[$($crate::types::family::Type {
            of: &[$($of),*],
            held: $held,
            modifier: $modifier,
            spelling: $spelling,
        }),*]
    };
}

mod boolean;
mod bytes;
pub(crate) mod datetime;
pub(crate) mod family;
mod float;
pub(crate) mod integer;
pub(crate) mod json;
mod native;
pub(crate) mod numeric;
pub(crate) mod text;
mod uuid;

use arrow_array::ArrayRef;
use arrow_schema::Field;

use crate::builtin::{self, Builtin, numeric_typmod, to_numeric_typmod};
use crate::decision::Decision;
use crate::encode::Values;
use crate::model::{Column, PgType};
use family::{Family, Held, Modifier, Spelling, Type};

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

/// A type with a modifier, as `format_type` writes it. `None` if no column has this modifier.
pub(crate) fn text(ty: &Builtin, typmod: i32) -> Option<String> {
    let sql = ty.sql;
    if typmod == -1 {
        // Without a modifier, `bit` and `character` would have one character.
        return Some(match *ty {
            builtin::BIT => "\"bit\"".to_owned(),
            builtin::BPCHAR => "bpchar".to_owned(),
            _ => sql.to_owned(),
        });
    }
    Some(match *ty {
        builtin::NUMERIC => {
            let (precision, scale) = numeric_typmod(typmod)?;
            if typmod != to_numeric_typmod(precision, scale) {
                return None;
            }
            format!("{sql}({precision},{scale})")
        }
        builtin::VARCHAR | builtin::BPCHAR => {
            let length = typmod
                .checked_sub(text::HEADER)
                .filter(|length| *length > 0)?;
            format!("{sql}({length})")
        }
        builtin::BIT | builtin::VARBIT if typmod > 0 => format!("{sql}({typmod})"),
        builtin::TIME | builtin::TIMETZ | builtin::TIMESTAMP | builtin::TIMESTAMPTZ
            if (0..=datetime::MAX_DIGITS).contains(&typmod) =>
        {
            let (name, zone) = sql.split_once(' ')?;
            format!("{name}({typmod}) {zone}")
        }
        builtin::INTERVAL => format!("{sql}{}", datetime::Limits::of(typmod)?.text()?),
        _ => return None,
    })
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

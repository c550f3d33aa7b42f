//! Integers: big-endian, of two, four and eight bytes; `oid` is unsigned.

use arrow_array::ArrayRef;
use arrow_array::types::*;
use arrow_schema::{DataType, Field};

use super::family::{Family, Spelling, exactly};
use super::numeric;
use crate::builtin::{self, Builtin, CID, INT2, INT4, INT8, OID, XID, XID8, numeric_typmod};
use crate::decision::{Decision, refused};
use crate::decode::numbers;
use crate::encode::{self, Ints, Values, aside, put_number, values};
use crate::error::Problem;
use crate::model::PgType;
use crate::op::Op;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [INT2] exactly(|_| Some(DataType::Int16), |_| numbers::<Int16Type, 2>(|b| Ok(i16::from_be_bytes(b)))), None, Spelling::Any;
        [INT4] exactly(|_| Some(DataType::Int32), |_| numbers::<Int32Type, 4>(|b| Ok(i32::from_be_bytes(b)))), None, Spelling::Any;
        [INT8] exactly(|_| Some(DataType::Int64), |_| numbers::<Int64Type, 8>(|b| Ok(i64::from_be_bytes(b)))), None, Spelling::Any;
        [OID] exactly(|_| Some(DataType::UInt32), |_| numbers::<UInt32Type, 4>(|b| Ok(u32::from_be_bytes(b)))), None, DIGITS;
        [XID, CID, XID8] None, None, DIGITS;
    },
    column: |field| {
        Some(match field.data_type() {
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => INT2.column(""),
            DataType::Int32 | DataType::UInt16 => INT4.column(""),
            DataType::Int64 | DataType::UInt32 => INT8.column(""),
            DataType::UInt64 => numeric::column(20, 0),
            _ => return None,
        })
    },
    into,
    encode: |array| match array.data_type() {
        DataType::UInt32 => Some(encode::numbers(values::<UInt32Type>(array), Ok)),
        _ => None,
    },
};

/// The server reads numbers with a sign and beyond 32 bits, too, and takes them for others.
const DIGITS: Spelling = Spelling::Also(|text, value| {
    format!(
        r"{value}::pg_catalog.text = pg_catalog.regexp_replace({text}, '^\s*0*(0|[1-9]\d*)\s*$', '\1')"
    )
});

/// Bytes of an integer type, and how many decimal digits hold all its values.
fn integer(data_type: &DataType) -> Option<(u8, u16)> {
    Some(match data_type {
        DataType::Int8 | DataType::UInt8 => (2, 3),
        DataType::Int16 => (2, 5),
        DataType::UInt16 => (4, 5),
        DataType::Int32 => (4, 10),
        DataType::UInt32 => (8, 10),
        DataType::Int64 => (8, 19),
        DataType::UInt64 => (u8::MAX, 20),
        _ => return None,
    })
}

/// An integer in a column of a type that holds all of its Arrow type's values.
fn into(field: &Field, from: &PgType, to: Builtin, to_typmod: i32) -> Option<Decision> {
    let (needs, digits) = integer(field.data_type())?;
    Some(widened(field, (needs, digits), from, to, to_typmod))
}

fn widened(
    field: &Field,
    (needs, digits): (u8, u16),
    from: &PgType,
    to: Builtin,
    to_typmod: i32,
) -> Decision {
    let note = |wider: bool| wider.then(|| format!("{} holds more", to.sql));
    let bytes = match to {
        builtin::INT2 => 2,
        builtin::INT4 => 4,
        builtin::INT8 => 8,
        builtin::OID if from.oid == to.oid => return Ok((Op::Plain, None)),
        builtin::NUMERIC => {
            let (precision, scale) = numeric_typmod(to_typmod).unwrap_or((u16::MAX, 0));
            if scale < 0 || i32::from(precision) - i32::from(scale) < i32::from(digits) {
                return refused("the target's numeric is narrower: fewer digits before the point");
            }
            // UInt64 is held by nothing smaller.
            return Ok((Op::IntNumeric, note(*field.data_type() != DataType::UInt64)));
        }
        _ => return refused(format!("{} does not become {}", from.name, to.sql)),
    };
    if needs > bytes {
        let from = rapidbyte_wire::types::type_name(field);
        return refused(format!("{} is narrower than {from}", to.sql));
    }
    let exact = builtin::by_oid(from.oid).is_some_and(|from| from.oid == to.oid);
    Ok((Op::Int(bytes), note(!exact)))
}

/// Integers of any width in one of `width` bytes that is wide enough.
pub(crate) fn encode_as(array: &ArrayRef, width: u8) -> Option<Values<'_>> {
    Some(match (array.data_type(), width) {
        (DataType::Int16, 2) => encode::numbers(values::<Int16Type>(array), Ok),
        (DataType::Int32, 4) => encode::numbers(values::<Int32Type>(array), Ok),
        (DataType::Int64, 8) => encode::numbers(values::<Int64Type>(array), Ok),
        _ => {
            let ints = Ints::of(array)?;
            aside(move |row, out| put_int(ints.get(row), width, out))
        }
    })
}

fn put_int(value: i128, width: u8, out: &mut Vec<u8>) -> Result<(), Problem> {
    let out_of_range = |_| Problem::OutOfRange;
    match width {
        2 => put_number(out, i16::try_from(value).map_err(out_of_range)?),
        4 => put_number(out, i32::try_from(value).map_err(out_of_range)?),
        _ => put_number(out, i64::try_from(value).map_err(out_of_range)?),
    }
    Ok(())
}

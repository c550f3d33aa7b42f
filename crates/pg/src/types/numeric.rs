//! `numeric` and decimals.

mod digits;

use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::family::{Family, Spelling, by_value, partly};
use crate::builtin::{MONEY, NUMERIC, numeric_typmod, to_numeric_typmod};
use crate::decode::{Cells, Decode, Taken, primitive};
use crate::encode::{Ints, Values, aside, values};
use crate::error::Failed;
use crate::model::{Column, PgType};
use digits::Wide;

pub(super) static FAMILY: Family = Family {
    types: types! {
        [NUMERIC] partly(decimal, decimals), by_value(fits), Spelling::Any;
        [MONEY] None, None, Spelling::Also(amount);
    },
    column: |field| match field.data_type() {
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            let zeros = s.min(&0).unsigned_abs();
            Some(column(
                u16::from(*p) + u16::from(zeros),
                i16::from(*s).max(0),
            ))
        }
        _ => None,
    },
    into: |_, _, _, _| None,
    encode: |array| match array.data_type() {
        DataType::Decimal128(_, scale) => {
            let (values, scale) = (values::<Decimal128Type>(array), *scale);
            Some(aside(move |row, out| {
                digits::encode_i128(values[row], scale, out);
                Ok(())
            }))
        }
        DataType::Decimal256(_, scale) => {
            let (values, scale) = (values::<Decimal256Type>(array), *scale);
            Some(aside(move |row, out| {
                digits::encode_i256(values[row], scale, out);
                Ok(())
            }))
        }
        _ => None,
    },
};

/// `numeric(precision, scale)`.
pub(super) fn column(precision: u16, scale: i16) -> Column {
    Column {
        typmod: to_numeric_typmod(precision, scale),
        type_text: format!("numeric({precision},{scale})"),
        ..NUMERIC.column("")
    }
}

/// `numeric_recv` applies the modifier.
fn fits(from: i32, to: i32) -> Result<(), &'static str> {
    let Some((to_precision, to_scale)) = numeric_typmod(to) else {
        return Ok(());
    };
    let Some((precision, scale)) = numeric_typmod(from) else {
        return Err("the source's has no limit, and the server would round");
    };
    if to_scale < scale {
        return Err("the server would round digits after the point");
    }
    let before_point = |p: u16, s: i16| i32::from(p) - i32::from(s);
    match before_point(to_precision, to_scale) < before_point(precision, scale) {
        true => Err("fewer digits before the point"),
        false => Ok(()),
    }
}

/// The note about a `numeric` whose modifier differs from the target's, which is wider.
pub(crate) fn numeric_note((from, from_typmod): (&PgType, i32), to_typmod: i32) -> Option<String> {
    let differs = from.oid == NUMERIC.oid && from_typmod != to_typmod;
    differs.then(|| "the target's numeric holds more digits".to_owned())
}

/// Integers of any width.
pub(crate) fn encode_integers(array: &ArrayRef) -> Option<Values<'_>> {
    let ints = Ints::of(array)?;
    Some(aside(move |row, out| {
        digits::encode_i128(ints.get(row), 0, out);
        Ok(())
    }))
}

fn decimals(data_type: &DataType) -> Box<dyn Decode> {
    match *data_type {
        DataType::Decimal256(p, s) => Decimals::<Decimal256Type>::of(p, s),
        DataType::Decimal128(p, s) => Decimals::<Decimal128Type>::of(p, s),
        _ => unreachable!("the Arrow type of a numeric is a decimal"),
    }
}

/// A number, with the sign of a currency and commas between thousands.
fn amount(text: &str, value: &str) -> String {
    format!(
        r"CASE WHEN {value}::pg_catalog.text = {text} THEN true WHEN {text} ~ '^\s*[+-]?\$?(\d+|\d{{1,3}}(,\d{{3}})+)(\.\d*)?\s*$' THEN {value}::pg_catalog.numeric = pg_catalog.translate({text}, '$, ', '')::pg_catalog.numeric ELSE false END"
    )
}

fn decimal(typmod: i32) -> Option<DataType> {
    let (precision, scale) = numeric_typmod(typmod)?;
    let digits = u8::try_from(precision)
        .ok()
        .filter(|p| (1..=76).contains(p))?;
    let scale = i8::try_from(scale).ok()?;
    if scale < 0 || i16::from(scale) > i16::from(digits) {
        return None;
    }
    Some(if digits <= 38 {
        DataType::Decimal128(digits, scale)
    } else {
        DataType::Decimal256(digits, scale)
    })
}

struct Decimals<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    scale: i32,
    /// 10^precision.
    limit: T::Native,
}

impl<T: ArrowPrimitiveType> Decimals<T>
where
    T::Native: Wide,
{
    fn of(precision: u8, scale: i8) -> Box<dyn Decode> {
        Box::new(Self {
            values: Vec::new(),
            scale: i32::from(scale),
            limit: Wide::power(u32::from(precision)).expect("a decimal holds all its digits"),
        })
    }
}

impl<T: ArrowPrimitiveType> Decode for Decimals<T>
where
    T::Native: Wide,
{
    fn bytes(&self) -> usize {
        self.values.len() * self.element_bytes()
    }

    fn element_bytes(&self) -> usize {
        size_of::<T::Native>()
    }

    fn extend(&mut self, data: &[u8], cells: Cells<'_>) -> Result<(), Failed> {
        self.values.reserve(cells.len());
        for (index, cell) in cells.enumerate() {
            self.values.push(if cell.length < 0 {
                Wide::from_small(0)
            } else {
                digits::decode(cell.bytes(data), self.scale, self.limit)
                    .map_err(|problem| (index, problem))?
            });
        }
        Ok(())
    }

    fn take(&mut self, data_type: &DataType, nulls: Option<NullBuffer>) -> Taken {
        Ok(primitive::<T>(&mut self.values, nulls, data_type))
    }

    fn shown(&self, value: &[u8]) -> Option<String> {
        digits::shown(value)
    }
}

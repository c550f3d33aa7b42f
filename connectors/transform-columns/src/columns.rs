//! The columns of a batch, as expressions and steps find and read them.

use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use rapidbyte_sdk::prelude::arrow_schema::TimeUnit;
use rapidbyte_sdk::prelude::*;

use crate::expression::{Cells, Misfit, Values};

/// The name that somebody may have meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known
        .map(|known| (strsim::osa_distance(name, known), known))
        .min();
    let most = (name.chars().count() / 3).max(1);
    near.filter(|(distance, _)| *distance <= most)
        .map(|(_, near)| near)
}

/// The column does not exist: names the nearest one, or all.
pub fn unknown(name: &str, schema: &Schema) -> String {
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("the column {name} does not exist; did you mean {near}?"),
        None => {
            const SHOWN: usize = 20;
            let more = names.len().saturating_sub(SHOWN);
            let shown = names[..names.len() - more].join(", ");
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "the column {name} does not exist; the columns are {shown}{more}. Write a text in single quotes: '{name}'"
            )
        }
    }
}

/// Refuses a column whose values have no text here.
pub fn spelled(field: &Field) -> Result<(), String> {
    let portable = crate::native::portable(field).unwrap_or_else(|| field.clone());
    let is_known = rapidbyte_sdk::types::is_uuid(&portable)
        || rapidbyte_sdk::types::extension_name(&portable) != Some(rapidbyte_pg::form::OPAQUE)
            && matches!(
                portable.data_type(),
                DataType::Utf8
                    | DataType::LargeUtf8
                    | DataType::Decimal256(..)
                    | DataType::Time32(_)
                    | DataType::Time64(TimeUnit::Microsecond)
            );
    match is_known {
        true => Ok(()),
        false => Err(format!(
            "the column {} of type {} cannot be computed with",
            field.name(),
            rapidbyte_sdk::types::type_name(field)
        )),
    }
}

/// The values of a column that has a type of expressions.
pub fn cells(column: &ArrayRef) -> Result<Cells, Misfit> {
    macro_rules! ints {
        ($type:ty) => {
            Values::Int(column.as_primitive::<$type>().unary(i64::from))
        };
    }
    let micros = |units: Int64Array, factor: i64| {
        let scaled =
            units.try_unary::<_, Int64Type, ()>(|units| units.checked_mul(factor).ok_or(()));
        scaled.map(Values::Int).map_err(|()| Misfit {
            row: 0,
            reason: "a timestamp is out of the range of microseconds".into(),
        })
    };
    let values = match column.data_type() {
        DataType::Boolean => Values::Bool(column.as_boolean().clone()),
        DataType::Int8 => ints!(Int8Type),
        DataType::Int16 => ints!(Int16Type),
        DataType::Int32 => ints!(Int32Type),
        DataType::Int64 => Values::Int(column.as_primitive::<Int64Type>().clone()),
        DataType::UInt8 => ints!(UInt8Type),
        DataType::UInt16 => ints!(UInt16Type),
        DataType::UInt32 => ints!(UInt32Type),
        DataType::UInt64 => Values::Decimal(column.as_primitive::<UInt64Type>().unary(i128::from)),
        DataType::Float32 => Values::Float(column.as_primitive::<Float32Type>().unary(f64::from)),
        DataType::Float64 => Values::Float(column.as_primitive::<Float64Type>().clone()),
        DataType::Decimal128(..) => {
            Values::Decimal(column.as_primitive::<Decimal128Type>().clone())
        }
        DataType::Utf8 => Values::Text(column.as_string::<i32>().clone()),
        DataType::LargeUtf8 => Values::Text(column.as_string::<i64>().iter().collect()),
        DataType::Date32 => ints!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => {
            let units = column.as_primitive::<TimestampSecondType>();
            micros(units.reinterpret_cast(), 1_000_000)?
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            let units = column.as_primitive::<TimestampMillisecondType>();
            micros(units.reinterpret_cast(), 1_000)?
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let units = column.as_primitive::<TimestampMicrosecondType>();
            Values::Int(units.reinterpret_cast())
        }
        other => {
            return Err(Misfit {
                row: 0,
                reason: format!("a column of {other} in an expression"),
            });
        }
    };
    Ok(Cells::new(values, false))
}

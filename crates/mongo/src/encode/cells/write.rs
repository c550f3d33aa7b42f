//! Appends one value of a column as BSON.

use arrow_buffer::i256;
use rapidbyte_formats::text::{duration, time};

use super::{Cells, Name};
use crate::decimal::{Decimal, NotDecimal};
use crate::error::Problem;
use crate::extjson::{self, object_id};
use crate::put;

const DAY_MS: i64 = 86_400_000;
const FAR: Problem = Problem::Value("the time is out of the range of 64-bit milliseconds");
const DIGITS: Problem = Problem::Value("the number has more than the 34 digits of a Decimal128");

impl Cells {
    /// Appends a value that is not NULL. `tag` is the place of its type.
    #[inline]
    pub(super) fn write(&self, row: usize, tag: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        match self {
            Self::Null | Self::Document(_) => {}
            Self::Bool(values) => out.push(values.value(row).into()),
            Self::I8(values) => put_i32(out, values[row]),
            Self::I16(values) => put_i32(out, values[row]),
            Self::I32(values) => put_i32(out, values[row]),
            Self::U8(values) => put_i32(out, values[row]),
            Self::U16(values) => put_i32(out, values[row]),
            Self::I64(values) => put_i64(out, values[row]),
            Self::U32(values) => put_i64(out, values[row]),
            Self::U64(values) => {
                let value = i64::try_from(values[row]);
                let large =
                    Problem::Value("the number is larger than a 64-bit integer with a sign");
                put_i64(out, value.map_err(|_| large)?);
            }
            Self::F16(values) => put_f64(out, values.value(row).to_f64()),
            Self::F32(values) => put_f64(out, values[row].into()),
            Self::F64(values) => put_f64(out, values[row]),
            Self::Millis(values) => put_i64(out, values[row]),
            Self::Date32(values) => put_i64(out, i64::from(values[row]) * DAY_MS),
            Self::Seconds(values) => put_i64(out, values[row].checked_mul(1000).ok_or(FAR)?),
            Self::Fine(values, per_milli, is_cut) => {
                let value = values[row];
                if !is_cut && value % per_milli != 0 {
                    return Err(Problem::Fine);
                }
                put_i64(out, value.div_euclid(*per_milli));
            }
            Self::String(values) => put::string(out, values.value(row)),
            Self::LargeString(values) => put::string(out, values.value(row)),
            Self::Binary(values) => put::binary(out, 0, values.value(row)),
            Self::LargeBinary(values) => put::binary(out, 0, values.value(row)),
            Self::FixedBinary(values, subtype) => put::binary(out, *subtype, values.value(row)),
            Self::Decimal128(values, scale) => {
                let value = values.value(row);
                put_decimal(out, value < 0, value.unsigned_abs(), *scale)?;
            }
            Self::Decimal256(values, scale) => {
                let value = values.value(row);
                let is_negative = value < i256::ZERO;
                // More than 38 digits are more than 34.
                let small = value.checked_abs().and_then(i256::to_i128).ok_or(DIGITS)?;
                put_decimal(out, is_negative, small.unsigned_abs(), *scale)?;
            }
            Self::ObjectId(values) => {
                let text = values.value(row);
                let not =
                    Problem::Value("the text is not an ObjectId, which has 24 hexadecimal digits");
                out.extend_from_slice(&object_id(text).ok_or(not)?);
            }
            Self::DecimalText(values) => {
                let decimal = values.value(row).parse::<Decimal>();
                let decimal = decimal.map_err(|not| match not {
                    NotDecimal::Text => Problem::Value("the text is not a number"),
                    NotDecimal::Digits => DIGITS,
                })?;
                out.extend_from_slice(&decimal.to_bytes());
            }
            Self::Json(values) => out[tag] = extjson::parse_value(values.value(row), out)?.byte(),
            Self::Value(values) => {
                let Some((kind, value)) = values.value(row).split_first() else {
                    return Err(Problem::Value("a native value is empty"));
                };
                out[tag] = *kind;
                out.extend_from_slice(value);
            }
            Self::List(starts, items) => {
                let start = put::begin(out);
                for (index, at) in (starts[row]..starts[row + 1]).enumerate() {
                    items.write_as(Name::Index(index), at, out)?;
                }
                end(out, start)?;
            }
            Self::FixedList(width, items) => {
                let start = put::begin(out);
                for index in 0..*width {
                    items.write_as(Name::Index(index), row * width + index, out)?;
                }
                end(out, start)?;
            }
            Self::Struct(parts) => {
                let start = put::begin(out);
                for part in parts {
                    part.write(row, out)?;
                }
                end(out, start)?;
            }
            Self::Map(starts, keys, values) => {
                let start = put::begin(out);
                for at in starts[row]..starts[row + 1] {
                    values.write_as(Name::Key(keys.value(at)), at, out)?;
                }
                end(out, start)?;
            }
            other => return other.write_text(row, out),
        }
        Ok(())
    }

    /// The values that are strings in BSON alone.
    fn write_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Self::TimestampText(values, unit, is_zoned) => {
                time::write_timestamp(values[row], *unit, *is_zoned, out);
            }
            Self::Time32(values, unit) => {
                time::write_time(values[row].into(), *unit, out).map_err(Problem::Value)?;
            }
            Self::Time64(values, unit) => {
                time::write_time(values[row], *unit, out).map_err(Problem::Value)?;
            }
            Self::Duration(values, unit) => duration::write_duration(values[row], *unit, out),
            Self::Interval(values) => duration::write_interval(values.value(row), out),
            _ => {}
        }
        out.push(0);
        // Such a text has less than 100 bytes.
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

fn end(out: &mut Vec<u8>, start: usize) -> Result<(), Problem> {
    put::end(out, start).map_err(|_| Problem::TooLarge)
}

#[inline]
fn put_i32(out: &mut Vec<u8>, value: impl Into<i32>) {
    out.extend_from_slice(&value.into().to_le_bytes());
}

#[inline]
fn put_i64(out: &mut Vec<u8>, value: impl Into<i64>) {
    out.extend_from_slice(&value.into().to_le_bytes());
}

#[inline]
fn put_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_decimal(
    out: &mut Vec<u8>,
    is_negative: bool,
    value: u128,
    scale: i8,
) -> Result<(), Problem> {
    let decimal = Decimal::finite(is_negative, value, -i64::from(scale)).ok_or(DIGITS)?;
    out.extend_from_slice(&decimal.to_bytes());
    Ok(())
}

//! The type that the values of a column have in common.

use arrow_schema::{DataType, Field};
use pyo3::prelude::*;
use rapidbyte_bson::Kind;
use rapidbyte_mongo::form::{mark, marked};
use rapidbyte_wire::types::{is_json, is_uuid, parse_field, type_name};

use crate::refusal::{Refusal, Result};
use crate::value::{Found, Known, look};

/// Largest whole number up to which a float holds every one.
pub const EXACT_WHOLE: u64 = 1 << 53;
/// Lists nested deeper are documents.
const MAX_DEPTH: usize = 8;

/// The type of a column, as far as its values tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Nothing but `None`.
    Unknown,
    Bool,
    /// Within 64 bits; true if all are within 2^53.
    Int(bool),
    Float,
    /// Digits before the point, and behind it.
    Decimal(u16, u16),
    Text,
    Bytes,
    Date,
    Time,
    Timestamp,
    Zoned,
    Duration,
    Uuid,
    /// Of MongoDB.
    ObjectId,
    List(Box<Shape>),
    Json,
}

impl Shape {
    /// Of one value.
    pub fn of(value: &Bound<'_, PyAny>, known: &Known) -> Result<Self> {
        Self::at(value, known, 0)
    }

    fn at(value: &Bound<'_, PyAny>, known: &Known, depth: usize) -> Result<Self> {
        Ok(match look(value, known)? {
            Found::Null => Self::Unknown,
            Found::Bool(_) => Self::Bool,
            Found::Int(number) => Self::Int(number.unsigned_abs() <= EXACT_WHOLE),
            Found::Decimal(digits) => Self::of_digits(&digits),
            Found::Float(_) => Self::Float,
            Found::Text(_) => Self::Text,
            Found::Bytes(_) => Self::Bytes,
            Found::Date(_) => Self::Date,
            Found::Time(_) => Self::Time,
            Found::Timestamp(_) => Self::Timestamp,
            Found::Zoned(_) => Self::Zoned,
            Found::Duration(_) => Self::Duration,
            Found::Uuid(_) => Self::Uuid,
            Found::ObjectId(_) => Self::ObjectId,
            Found::Dict(_) => Self::Json,
            Found::List(_) if depth >= MAX_DEPTH => Self::Json,
            Found::List(items) => {
                let mut item = Self::Unknown;
                for value in items.try_iter()? {
                    item = item.join(Self::at(&value?, known, depth + 1)?)?;
                    if item == Self::Json {
                        return Ok(Self::Json);
                    }
                }
                Self::List(Box::new(item))
            }
            Found::Instead(plain) => Self::at(&plain, known, depth)?,
        })
    }

    /// Of a decimal without an exponent.
    pub fn of_digits(text: &str) -> Self {
        let digits = text.trim_start_matches('-');
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let count = |digits: &str| u16::try_from(digits.len()).unwrap_or(u16::MAX);
        Self::Decimal(count(whole.trim_start_matches('0')), count(fraction))
    }

    /// The shape that holds the values of both without a change.
    pub fn join(self, other: Self) -> Result<Self> {
        Ok(match (self, other) {
            (Self::Unknown, shape) | (shape, Self::Unknown) => shape,
            (Self::Int(a), Self::Int(b)) => Self::Int(a && b),
            (Self::Int(true), Self::Float) | (Self::Float, Self::Int(true)) => Self::Float,
            (Self::Int(_), Self::Decimal(whole, fraction))
            | (Self::Decimal(whole, fraction), Self::Int(_)) => {
                Self::Decimal(whole.max(19), fraction)
            }
            (Self::Decimal(a, b), Self::Decimal(c, d)) => Self::Decimal(a.max(c), b.max(d)),
            (Self::List(a), Self::List(b)) => match a.join(*b)? {
                Self::Json => Self::Json,
                item => Self::List(Box::new(item)),
            },
            (a, b) if a == b => a,
            (a, b) if a.is_of_json() && b.is_of_json() => Self::Json,
            (a, b) => {
                let (a, b) = (a.name(), b.name());
                let text = format!("values of the types {a} and {b} in one column");
                return Err(Refusal::data("mixed_types", text)
                    .hint("give the column values of one type, or None"));
            }
        })
    }

    /// Whether JSON has such values.
    fn is_of_json(&self) -> bool {
        match self {
            Self::List(item) => item.is_of_json(),
            Self::Unknown
            | Self::Bool
            | Self::Int(_)
            | Self::Float
            | Self::Decimal(..)
            | Self::Text
            | Self::ObjectId
            | Self::Json => true,
            _ => false,
        }
    }

    /// The name of the column's type.
    pub fn name(&self) -> String {
        match self {
            Self::Unknown | Self::Text | Self::ObjectId => "string".into(),
            Self::Bool => "bool".into(),
            Self::Int(_) => "int64".into(),
            Self::Float => "float64".into(),
            Self::Decimal(whole, fraction) => {
                let precision = if whole + fraction <= 38 { 38 } else { 76 };
                format!("decimal({precision}, {fraction})")
            }
            Self::Bytes => "binary".into(),
            Self::Date => "date".into(),
            Self::Time => "time".into(),
            Self::Timestamp => "timestamp".into(),
            Self::Zoned => "timestamptz".into(),
            Self::Duration => "duration(us)".into(),
            Self::Uuid => "uuid".into(),
            Self::List(item) => format!("list<{}>", item.name()),
            Self::Json => "json".into(),
        }
    }

    /// The column with this name.
    pub fn field(&self, name: &str) -> Result<Field> {
        if let Self::Decimal(whole, fraction) = self
            && whole.saturating_add(*fraction) > 76
        {
            let text = format!(
                "numbers of {whole} digits before the point and {fraction} behind it, and 76 fit"
            );
            return Err(Refusal::data("value_does_not_fit", text).hint("send them as strings"));
        }
        let field = parse_field(name, &self.name(), true)
            .map_err(|error| Refusal::config("invalid_schema", error))?;
        Ok(match self {
            // Other destinations take it as the string of its digits.
            Self::ObjectId => mark(field, Kind::ObjectId),
            _ => field,
        })
    }

    /// The shape of the values that a column of this field takes. `None`: rows of Python do not fill such columns.
    pub fn of_field(field: &Field) -> Option<Self> {
        use arrow_schema::TimeUnit::Microsecond;
        // Narrower columns are narrowed at the end of a batch.
        Some(match field.data_type() {
            _ if is_uuid(field) => Self::Uuid,
            _ if is_json(field) => Self::Json,
            DataType::Utf8 if marked(field) == Some(Kind::ObjectId) => Self::ObjectId,
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Self::Int(false)
            }
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Self::Int(false),
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
                let fraction = u16::try_from(*scale).ok()?;
                Self::Decimal(u16::from(*precision).checked_sub(fraction)?, fraction)
            }
            DataType::Utf8 | DataType::LargeUtf8 => Self::Text,
            DataType::Binary => Self::Bytes,
            DataType::Date32 => Self::Date,
            DataType::Time64(Microsecond) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::Zoned,
            DataType::Duration(Microsecond) => Self::Duration,
            DataType::List(item) => Self::List(Box::new(Self::of_field(item)?)),
            _ => return None,
        })
        .filter(|_| type_name(field) != "null")
    }
}

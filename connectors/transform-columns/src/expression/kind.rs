//! The types of expressions, which are a part of PostgreSQL's types.

use std::fmt;

use rapidbyte_sdk::prelude::arrow_schema::TimeUnit;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types;
use sqlparser::ast::{DataType as SqlType, ExactNumberInfo, TimezoneInfo};

/// The digits of the largest decimal that is computed with.
pub const MAX_DIGITS: u8 = 38;

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric(precision, scale)`
    Decimal(u8, u8),
    /// `text`
    Text,
    /// `date`
    Date,
    /// `timestamp`, in microseconds
    Timestamp,
    /// `timestamptz`, in microseconds
    Timestamptz,
}

impl Kind {
    /// The type that a column has in an expression. `None` if there is none.
    pub fn of(field: &Field) -> Option<Self> {
        if let Some(portable) = crate::native::portable(field) {
            return Self::of(&portable);
        }
        let is_other = |texts| texts != crate::native::Texts::Plain;
        let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8);
        if types::extension_name(field).is_some()
            || is_text && crate::native::text_of(field).is_some_and(is_other)
        {
            return None;
        }
        Some(match field.data_type() {
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::Int2,
            DataType::UInt16 | DataType::Int32 => Self::Int4,
            DataType::UInt32 | DataType::Int64 => Self::Int8,
            DataType::UInt64 => Self::Decimal(20, 0),
            DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            DataType::Decimal128(precision, scale) => {
                Self::Decimal(*precision, u8::try_from(*scale).ok()?)
            }
            DataType::Utf8 | DataType::LargeUtf8 => Self::Text,
            DataType::Date32 => Self::Date,
            DataType::Timestamp(TimeUnit::Nanosecond, _) => return None,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::Timestamptz,
            _ => return None,
        })
    }

    /// The type of a result in Arrow.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            // At most 38.
            Self::Decimal(precision, scale) => DataType::Decimal128(precision, scale as i8),
            Self::Text => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The type by its name in SQL or in a pipeline file.
    pub fn named(text: &str) -> Result<Self, String> {
        if let Ok(field) = types::parse_field("", text, true)
            && let Some(kind) = Self::of(&field)
            && kind.data_type() == *field.data_type()
        {
            return Ok(kind);
        }
        let dialect = sqlparser::dialect::PostgreSqlDialect {};
        let parser = sqlparser::parser::Parser::new(&dialect);
        let mut parser = parser
            .try_with_sql(text)
            .map_err(|error| error.to_string())?;
        let parsed = parser.parse_data_type();
        let at_end = parser.peek_token().token == sqlparser::tokenizer::Token::EOF;
        match parsed {
            Ok(parsed) if at_end => Self::of_sql(&parsed),
            _ => Err(unknown_type(text)),
        }
    }

    pub fn of_sql(sql: &SqlType) -> Result<Self, String> {
        let digits = |info: &ExactNumberInfo| match info {
            ExactNumberInfo::PrecisionAndScale(precision, scale) => {
                let precision = u8::try_from(*precision)
                    .ok()
                    .filter(|p| (1..=MAX_DIGITS).contains(p));
                let scale = u8::try_from(*scale).ok();
                let both = precision.zip(scale).filter(|(p, s)| s <= p);
                both.ok_or_else(|| format!("{sql} has more than {MAX_DIGITS} digits"))
            }
            ExactNumberInfo::Precision(precision) => {
                let precision = u8::try_from(*precision)
                    .ok()
                    .filter(|p| (1..=MAX_DIGITS).contains(p));
                let both = precision.map(|precision| (precision, 0));
                both.ok_or_else(|| format!("{sql} has more than {MAX_DIGITS} digits"))
            }
            ExactNumberInfo::None => Err(format!("{sql} needs its digits, such as {sql}(18, 2)")),
        };
        Ok(match sql {
            SqlType::Bool | SqlType::Boolean => Self::Bool,
            SqlType::SmallInt(None) | SqlType::Int2(None) => Self::Int2,
            SqlType::Int(None) | SqlType::Integer(None) | SqlType::Int4(None) => Self::Int4,
            SqlType::BigInt(None) | SqlType::Int8(None) => Self::Int8,
            SqlType::Real | SqlType::Float4 => Self::Float4,
            SqlType::DoublePrecision | SqlType::Float8 | SqlType::Double(ExactNumberInfo::None) => {
                Self::Float8
            }
            SqlType::Numeric(info) | SqlType::Decimal(info) | SqlType::Dec(info) => {
                let (precision, scale) = digits(info)?;
                Self::Decimal(precision, scale)
            }
            SqlType::Text | SqlType::Varchar(None) | SqlType::CharacterVarying(None) => Self::Text,
            SqlType::Date => Self::Date,
            SqlType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
                Self::Timestamp
            }
            SqlType::Timestamp(None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
                Self::Timestamptz
            }
            other => return Err(unknown_type(&other.to_string())),
        })
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::Float4 | Self::Float8)
    }

    pub fn is_number(self) -> bool {
        self.is_integer() || self.is_float() || matches!(self, Self::Decimal(..))
    }

    /// The smallest and the largest value of an integer.
    pub fn range(self) -> (i64, i64) {
        match self {
            Self::Int2 => (i16::MIN.into(), i16::MAX.into()),
            Self::Int4 => (i32::MIN.into(), i32::MAX.into()),
            _ => (i64::MIN, i64::MAX),
        }
    }

    /// The digits of a number that is not a float.
    pub fn digits(self) -> (u8, u8) {
        match self {
            Self::Int2 => (5, 0),
            Self::Int4 => (10, 0),
            Self::Decimal(precision, scale) => (precision, scale),
            _ => (19, 0),
        }
    }

    /// The type in which values of two types are compared and chosen from, as PostgreSQL finds it.
    pub fn common(self, other: Self) -> Result<Self, String> {
        let kind = match (self, other) {
            (a, b) if a == b => a,
            (Self::Float4 | Self::Float8, b) if b.is_number() => Self::Float8,
            (a, Self::Float4 | Self::Float8) if a.is_number() => Self::Float8,
            (a, b) if a.is_integer() && b.is_integer() => match a.range().1 >= b.range().1 {
                true => a,
                false => b,
            },
            (a, b) if a.is_number() && b.is_number() => {
                let ((p1, s1), (p2, s2)) = (a.digits(), b.digits());
                let scale = s1.max(s2);
                let precision = (p1 - s1).max(p2 - s2) + scale;
                if precision > MAX_DIGITS {
                    return Err(format!(
                        "{a} and {b} together have more than {MAX_DIGITS} digits: cast one of them"
                    ));
                }
                Self::Decimal(precision, scale)
            }
            (Self::Date, Self::Timestamp) | (Self::Timestamp, Self::Date) => Self::Timestamp,
            (a, b) => {
                return Err(format!(
                    "{a} and {b} have no type in common: cast one of them"
                ));
            }
        };
        Ok(kind)
    }
}

fn unknown_type(text: &str) -> String {
    format!(
        "{text:?} is not a type of expressions, which are boolean, smallint, integer, bigint, real, double precision, \
         numeric(p, s), text, date, timestamp and timestamptz"
    )
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "boolean",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Float4 => "real",
            Self::Float8 => "double precision",
            Self::Decimal(precision, scale) => return write!(f, "numeric({precision}, {scale})"),
            Self::Text => "text",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Timestamptz => "timestamptz",
        })
    }
}

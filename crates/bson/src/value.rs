//! The types of BSON and their values.

use crate::Document;

/// The type of an element, by its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Kind {
    Double = 0x01,
    String = 0x02,
    Document = 0x03,
    Array = 0x04,
    Binary = 0x05,
    Undefined = 0x06,
    ObjectId = 0x07,
    Boolean = 0x08,
    DateTime = 0x09,
    Null = 0x0a,
    Regex = 0x0b,
    DbPointer = 0x0c,
    JavaScript = 0x0d,
    Symbol = 0x0e,
    JavaScriptWithScope = 0x0f,
    Int32 = 0x10,
    Timestamp = 0x11,
    Int64 = 0x12,
    Decimal128 = 0x13,
    MaxKey = 0x7f,
    MinKey = 0xff,
}

impl Kind {
    /// The type with this byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x01 => Self::Double,
            0x02 => Self::String,
            0x03 => Self::Document,
            0x04 => Self::Array,
            0x05 => Self::Binary,
            0x06 => Self::Undefined,
            0x07 => Self::ObjectId,
            0x08 => Self::Boolean,
            0x09 => Self::DateTime,
            0x0a => Self::Null,
            0x0b => Self::Regex,
            0x0c => Self::DbPointer,
            0x0d => Self::JavaScript,
            0x0e => Self::Symbol,
            0x0f => Self::JavaScriptWithScope,
            0x10 => Self::Int32,
            0x11 => Self::Timestamp,
            0x12 => Self::Int64,
            0x13 => Self::Decimal128,
            0x7f => Self::MaxKey,
            0xff => Self::MinKey,
            _ => return None,
        })
    }

    /// The byte of the type.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// The name that MongoDB's `$type` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::String => "string",
            Self::Document => "object",
            Self::Array => "array",
            Self::Binary => "binData",
            Self::Undefined => "undefined",
            Self::ObjectId => "objectId",
            Self::Boolean => "bool",
            Self::DateTime => "date",
            Self::Null => "null",
            Self::Regex => "regex",
            Self::DbPointer => "dbPointer",
            Self::JavaScript => "javascript",
            Self::Symbol => "symbol",
            Self::JavaScriptWithScope => "javascriptWithScope",
            Self::Int32 => "int",
            Self::Timestamp => "timestamp",
            Self::Int64 => "long",
            Self::Decimal128 => "decimal",
            Self::MaxKey => "maxKey",
            Self::MinKey => "minKey",
        }
    }
}

/// A value within a document, borrowed from its bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// 64 bits of IEEE 754.
    Double(f64),
    /// UTF-8; may contain NUL bytes.
    String(&'a str),
    /// A document within the document.
    Document(Document<'a>),
    /// A document whose names are not looked at: the values in their order.
    Array(Document<'a>),
    /// Bytes and the meaning that they have, such as 4 for a UUID. Of subtype 2 the bytes begin with a length of their
    /// own, as they were stored.
    Binary {
        /// The meaning.
        subtype: u8,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Deprecated.
    Undefined,
    /// Twelve bytes.
    ObjectId([u8; 12]),
    /// True or false.
    Boolean(bool),
    /// Milliseconds since 1970-01-01 UTC.
    DateTime(i64),
    /// No value.
    Null,
    /// A regular expression.
    Regex {
        /// Its text.
        pattern: &'a str,
        /// Letters in alphabetical order.
        options: &'a str,
    },
    /// Deprecated: a collection and an `_id` in it.
    DbPointer {
        /// The collection.
        namespace: &'a str,
        /// The document's `_id`.
        id: [u8; 12],
    },
    /// A program.
    JavaScript(&'a str),
    /// Deprecated: a string.
    Symbol(&'a str),
    /// Deprecated: a program with its variables.
    JavaScriptWithScope {
        /// The program.
        code: &'a str,
        /// Its variables.
        scope: Document<'a>,
    },
    /// 32 bits with a sign.
    Int32(i32),
    /// The type of the server's own log: seconds since 1970 in the upper 32 bits, and a counter.
    Timestamp(u64),
    /// 64 bits with a sign.
    Int64(i64),
    /// 128 bits of IEEE 754-2008 decimal floating point (BID), little endian.
    Decimal128([u8; 16]),
    /// Larger than every other value.
    MaxKey,
    /// Smaller than every other value.
    MinKey,
}

impl Value<'_> {
    /// The type of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Double(_) => Kind::Double,
            Self::String(_) => Kind::String,
            Self::Document(_) => Kind::Document,
            Self::Array(_) => Kind::Array,
            Self::Binary { .. } => Kind::Binary,
            Self::Undefined => Kind::Undefined,
            Self::ObjectId(_) => Kind::ObjectId,
            Self::Boolean(_) => Kind::Boolean,
            Self::DateTime(_) => Kind::DateTime,
            Self::Null => Kind::Null,
            Self::Regex { .. } => Kind::Regex,
            Self::DbPointer { .. } => Kind::DbPointer,
            Self::JavaScript(_) => Kind::JavaScript,
            Self::Symbol(_) => Kind::Symbol,
            Self::JavaScriptWithScope { .. } => Kind::JavaScriptWithScope,
            Self::Int32(_) => Kind::Int32,
            Self::Timestamp(_) => Kind::Timestamp,
            Self::Int64(_) => Kind::Int64,
            Self::Decimal128(_) => Kind::Decimal128,
            Self::MaxKey => Kind::MaxKey,
            Self::MinKey => Kind::MinKey,
        }
    }

    /// A whole number of any of the types of numbers: servers answer with each of them. `None` for another type, for a
    /// fraction and for a number outside 64 bits.
    pub fn as_whole(&self) -> Option<i64> {
        match *self {
            Self::Int32(number) => Some(number.into()),
            Self::Int64(number) => Some(number),
            // Every whole double within these bounds is a whole number of 64 bits.
            Self::Double(number)
                if number.fract() == 0.0
                    && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0)
                        .contains(&number) =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "checked above")]
                Some(number as i64)
            }
            _ => None,
        }
    }

    /// True for `true` and for a number other than 0: the answer of a command has `ok` as a number.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Boolean(is_true) => *is_true,
            Self::Double(number) => *number != 0.0,
            Self::Int32(number) => *number != 0,
            Self::Int64(number) => *number != 0,
            _ => false,
        }
    }
}

//! The one error of this crate.

use std::borrow::Cow;

use rapidbyte_wire::name::shown;

/// The person who acts on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The operator: a name or a setting.
    Config,
    /// The owner of the data: a table or type is not as needed.
    Schema,
    /// The owner of the data: a value that cannot be held.
    Data,
    /// The author of this crate or of its caller, or the sender of broken bytes.
    Internal,
}

/// A value, a type or bytes that cannot be carried exactly.
///
/// | code | owner | when |
/// | --- | --- | --- |
/// | `value_does_not_fit` | data | the form chosen for the column cannot hold this value |
/// | `record_too_large` | data | a row or an array above `max_record_bytes`, or a column of a batch above 2 GiB |
/// | `invalid_text` | data | text that is not UTF-8, or holds a NUL character |
/// | `type_refused` | schema | the target column cannot take the field |
/// | `needs_cast` | schema | the target column must be loaded as text and cast |
/// | `missing_type` | schema | a type the target lacks and this crate may not create |
/// | `invalid_name` | config | a name the server would cut or cannot hold |
/// | `invalid_metadata` | internal | a field's PostgreSQL metadata does not parse |
/// | `invalid_catalog` | internal | a catalog answer does not parse |
/// | `malformed_copy` | internal | COPY bytes that are not the binary format |
/// | `malformed_value` | internal | a value's bytes are not of its type |
/// | `truncated_copy` | internal | the stream ended before its trailer |
/// | `schema_mismatch` | internal | a batch that is not of the encoder's schema |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PgError {
    /// The person who acts on this error.
    pub owner: Owner,
    /// Stable and short: one of the table above.
    pub code: &'static str,
    /// A lower-case fragment: what happened, with the row where it is known.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The row that a batch was written from, as the message counts it.
    pub row: Option<u64>,
}

impl PgError {
    pub(crate) fn new(owner: Owner, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            owner,
            code,
            message: message.into(),
            hint: None,
            column: None,
            row: None,
        }
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(Owner::Internal, "malformed_copy", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(Owner::Data, "record_too_large", message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn in_column(mut self, column: &str) -> Self {
        self.column = Some(column.to_owned());
        self
    }
}

/// A problem and its row's index.
pub(crate) type Failed = (usize, Problem);

/// The fault of one value; small, because the hot loops return it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The bytes are not of the type.
    Malformed,
    NotANumber,
    Infinite,
    Precision,
    Scale,
    OutOfRange,
    EndOfDay,
    SubMicrosecond,
    /// The target has fewer digits or parts.
    Finer,
    Dimensions,
    LowerBound,
    NotRectangular,
    Text,
    Nul,
    TooLarge,
    /// A list that takes more memory than a record may.
    LongList,
    /// NULL in a column that has none.
    Null,
    /// More than this many characters.
    TooLong(u32),
    /// Blanks at the end, which the target's padding hides.
    Blanks,
    /// A JSON object that has a key twice.
    RepeatedKey,
    /// A JSON number that is -0.
    NegativeZero,
    /// JSON that is nested too deeply to be checked.
    JsonDepth,
}

impl Problem {
    /// The whole error: where, what, and what to do.
    pub(crate) fn at(self, column: &str, row: u64) -> PgError {
        let (owner, code) = match self {
            Self::Malformed => (Owner::Internal, "malformed_value"),
            Self::Text | Self::Nul => (Owner::Data, "invalid_text"),
            Self::TooLarge | Self::LongList => (Owner::Data, "record_too_large"),
            _ => (Owner::Data, "value_does_not_fit"),
        };
        let message = format!("column {}, row {row}: {}", shown(column), self.what());
        let error = PgError {
            row: Some(row),
            ..PgError::new(owner, code, message).in_column(column)
        };
        match owner {
            Owner::Data => error.hint(self.advice()),
            _ => error,
        }
    }

    fn what(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Malformed => "the value's bytes do not match the column's type",
            Self::NotANumber => "NaN does not fit into a decimal",
            Self::Infinite => "an infinite value does not fit",
            Self::Precision => "more digits before the point than the decimal holds",
            Self::Scale => "more digits after the point than the decimal holds",
            Self::OutOfRange => "the value is out of range for the other side",
            Self::EndOfDay => "24:00:00 is not a time of day",
            Self::SubMicrosecond => "the value is finer than a microsecond",
            Self::Finer => {
                "the value is finer than the target's column, and the server would round it"
            }
            Self::Dimensions => {
                "an array with more or fewer than one dimension does not fit into a list"
            }
            Self::LowerBound => "an array that does not start at index 1 does not fit into a list",
            Self::NotRectangular => "nested lists of different lengths are not an array",
            Self::Text => "the text is not UTF-8",
            Self::Nul => "the text contains a NUL character, which PostgreSQL cannot store",
            Self::TooLarge => "the value or the batch exceeds 2 GiB",
            Self::LongList => "the array needs more memory than max_record_bytes",
            Self::Null => "NULL in a column that the server declares NOT NULL",
            Self::TooLong(limit) => {
                return Cow::Owned(format!(
                    "the text has more than the {limit} characters of the target's column \
                         (blanks at its end count)"
                ));
            }
            Self::Blanks => {
                "the text ends with blanks, which character(n) does not distinguish from its \
                     padding"
            }
            Self::RepeatedKey => {
                "a JSON object has a key twice, and jsonb would keep only the last value"
            }
            Self::NegativeZero => "a JSON number is -0, and jsonb would keep 0",
            Self::JsonDepth => "the JSON is nested more than 65,536 levels deep",
        })
    }

    fn advice(self) -> &'static str {
        match self {
            Self::SubMicrosecond => "round the value to microseconds in the source",
            Self::Finer => "give the column a finer type, or round the value in the source",
            Self::Nul | Self::Text => "clean the text in the source",
            Self::NotRectangular => {
                "make the inner lists equally long and not null, or write \
                 JSON"
            }
            Self::TooLarge => "lower resources.batch_bytes",
            Self::LongList => "raise resources.max_record_bytes",
            Self::Precision | Self::Scale => {
                "give the decimal more digits (`numeric:` of source-postgres), leave the column \
                     out, or convert it in the source"
            }
            Self::Infinite | Self::EndOfDay => {
                "leave such rows out by `where:`, read the column as text through a view (SELECT …::text), or \
                 write to PostgreSQL, which gets the value as it is"
            }
            Self::Dimensions => {
                "declare the column's dimensions (ALTER TABLE … ALTER COLUMN … TYPE integer[][]), and it is \
                 read as text; or read it through a view with to_jsonb(…)"
            }
            Self::Null => "drop NOT NULL there, or leave such rows out by `where:`",
            Self::Blanks => "give the target's column the type varchar or text",
            Self::RepeatedKey | Self::NegativeZero | Self::JsonDepth => {
                "change the target's column to json, which keeps the text"
            }
            Self::TooLong(_) => {
                "make the target's column longer (ALTER TABLE … ALTER COLUMN … TYPE …), or cut the \
                 text in the source"
            }
            _ => {
                "choose a destination that stores PostgreSQL's own values, leave the column out, \
                     or convert it in the source"
            }
        }
    }
}

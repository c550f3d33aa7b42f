//! CSV (RFC 4180) to Arrow and back.
//!
//! The standard leaves these points open, and this reader decides them:
//! - Lines end with LF or CRLF. A CR alone is data within quotes and refused outside them
//!   (`csv_bare_cr`), for a file whose lines end so would look like one long header. A UTF-8 byte
//!   order mark is skipped.
//! - A field is quoted if its first character is a quote; a quote further on in an unquoted field
//!   is data. After the closing quote only a delimiter or the end of the line may come.
//! - An unquoted field that equals a null text is NULL; a quoted one never is. By default the null
//!   text is empty, so `,,` holds a NULL and `,"",` an empty string, as in PostgreSQL's CSV.
//! - White space belongs to the value.
//! - An empty line is skipped if there are two or more columns. With one column it is a row whose
//!   field is empty (NULL by default), the last line too: the encoder writes such rows so.
//! - A file without any line is a file without rows, also where a header was due.
//! - The header names the columns, in any order, no other and none twice. A declared column that is
//!   nullable may be missing in a file: its rows have NULL. Without a declaration all files have the
//!   same columns, or any of them ([`Headers`]).
//!
//! Lists, structs and maps are JSON in one field. The text of all other values: [`crate::text`].

mod decode;
mod encode;
pub(crate) mod infer;
mod split;

pub(crate) use decode::Reader;
pub use encode::Encoder;
pub use infer::{Inferred, Sampler};

use crate::FormatError;

/// The variables of CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Between two fields; one ASCII character.
    pub delimiter: u8,
    /// Around fields that need it, doubled inside them; one ASCII character.
    pub quote: u8,
    /// The first line of every file names the columns.
    pub header: bool,
    /// Unquoted fields with one of these texts are NULL. The first one is written for NULL.
    pub null_text: Vec<String>,
    /// Which columns the files of one stream have, where nobody declared them.
    pub headers: Headers,
    /// Fields that are true in a column of `bool`, besides `true`, `t` and `1`.
    pub true_values: Vec<String>,
    /// Fields that are false in a column of `bool`, besides `false`, `f` and `0`.
    pub false_values: Vec<String>,
}

/// Which columns the files of one stream have, where nobody declared them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Headers {
    /// All the same, in any order.
    Same,
    /// Together they have all; a file that lacks one has NULL there.
    #[default]
    Union,
}

impl Default for Dialect {
    /// Comma, double quote, a header, the empty field for NULL.
    fn default() -> Self {
        Self {
            delimiter: b',',
            quote: b'"',
            header: true,
            null_text: vec![String::new()],
            headers: Headers::default(),
            true_values: Vec::new(),
            false_values: Vec::new(),
        }
    }
}

impl Dialect {
    /// Refuses a dialect whose files could not be read back (`invalid_dialect`).
    pub fn validate(&self) -> Result<(), FormatError> {
        let bad = |message: String| Err(FormatError::new("invalid_dialect", message));
        let newline = |byte: u8| matches!(byte, b'\n' | b'\r');
        for (name, byte) in [("delimiter", self.delimiter), ("quote", self.quote)] {
            if !byte.is_ascii() || newline(byte) {
                return bad(format!(
                    "the {name} must be a single ASCII character, and not a line break"
                ));
            }
        }
        if self.delimiter == self.quote {
            return bad(format!(
                "{:?} cannot be both delimiter and quote",
                char::from(self.quote)
            ));
        }
        for text in &self.null_text {
            if text
                .bytes()
                .any(|b| newline(b) || b == self.delimiter || b == self.quote)
            {
                return bad(format!(
                    "the null text {text:?} contains a delimiter, a quote or a line break"
                ));
            }
        }
        if let Some(both) = (self.true_values.iter()).find(|text| self.false_values.contains(text))
        {
            return bad(format!("{both:?} cannot mean both true and false"));
        }
        Ok(())
    }

    /// The value of a field of a `bool` column, by the lists of the dialect.
    fn listed_bool(&self, field: &[u8]) -> Option<bool> {
        let is_in = |texts: &[String]| texts.iter().any(|text| text.as_bytes() == field);
        match (is_in(&self.true_values), is_in(&self.false_values)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// True for an unquoted field that is NULL.
    fn is_null(&self, field: &[u8]) -> bool {
        self.null_text.iter().any(|text| text.as_bytes() == field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_that_contradicts_itself_is_refused() {
        let plain = Dialect::default();
        assert_eq!(plain.validate(), Ok(()));
        for dialect in [
            Dialect {
                delimiter: b'"',
                ..plain.clone()
            },
            Dialect {
                delimiter: b'\n',
                ..plain.clone()
            },
            Dialect {
                quote: 0xc3,
                ..plain.clone()
            },
            Dialect {
                null_text: vec!["a,b".into()],
                ..plain.clone()
            },
        ] {
            assert_eq!(dialect.validate().unwrap_err().code, "invalid_dialect");
        }
    }
}

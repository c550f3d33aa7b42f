//! Building and reading the contract's error.

use std::fmt;

use crate::bindings::types::{CheckItem, Error, ErrorKind};

impl crate::Spec {
    /// A connector without modes and abilities. Set the other fields afterwards.
    pub fn plain(
        name: impl Into<String>,
        version: impl Into<String>,
        description: impl Into<String>,
        config_schema: impl Into<String>,
    ) -> Self {
        rapidbyte_wire::plain_spec!(crate::Spec, name, version, description, config_schema)
    }
}

impl Error {
    /// An error of a kind, with a short stable code and a lower-case fragment.
    pub fn new(kind: ErrorKind, code: &str, message: impl fmt::Display) -> Self {
        Self {
            kind,
            code: code.into(),
            message: message.to_string(),
            hint: None,
            stream: None,
            column: None,
            location: None,
        }
    }

    /// The configuration is wrong; the operator acts.
    pub fn config(code: &str, message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Config, code, message)
    }

    /// A value cannot be read or held.
    pub fn data(code: &str, message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Data, code, message)
    }

    /// A table or column is not as declared.
    pub fn schema(code: &str, message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Schema, code, message)
    }

    /// A fault of the connector itself.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Internal, "internal", message)
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Names the stream.
    #[must_use]
    pub fn in_stream(mut self, stream: impl Into<String>) -> Self {
        self.stream = Some(stream.into());
        self
    }

    /// Names the column.
    #[must_use]
    pub fn in_column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    /// Names the place: `file:line`, or a key of the configuration as `config.key`.
    #[must_use]
    pub fn at(mut self, location: impl Into<String>) -> Self {
        self.location = Some(location.into());
        self
    }
}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::internal(error)
    }
}

impl From<rapidbyte_wire::WireError> for Error {
    fn from(error: rapidbyte_wire::WireError) -> Self {
        Self::new(ErrorKind::Internal, "malformed_batch", error)
    }
}

impl CheckItem {
    /// Something that is well.
    pub fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            problem: None,
            detail: detail.into(),
        }
    }

    /// Something that is not.
    pub fn failed(name: impl Into<String>, problem: Error) -> Self {
        Self {
            name: name.into(),
            problem: Some(problem),
            detail: String::new(),
        }
    }
}

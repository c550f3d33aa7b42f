//! Mistakes in a pipeline file, and their places.

use std::fmt;

use serde::Serialize;

/// A place in a text file, as editors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Location {
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
}

/// The first mistake that was found; the operator is the one to act.
///
/// Shown as `file:line:column: message (hint)`. No value that came from the environment or from
/// a file is ever part of it: such a scalar is shown as it is written in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentError {
    /// A short stable name for programs; one of the constants in [`code`].
    pub code: &'static str,
    /// The file that holds the mistake: the pipeline file or the `.env` file.
    pub file: String,
    /// From 1; 0 if the mistake concerns the whole file.
    pub line: u32,
    /// From 1, in characters; 0 if the mistake concerns the whole file.
    pub column: u32,
    /// The key path, such as `source.streams[1].columns`; empty where there is none.
    pub path: String,
    /// The mistake, as a lower-case fragment.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
}

pub(super) type Result<T, E = DocumentError> = std::result::Result<T, E>;

/// The values of [`DocumentError::code`].
pub mod code {
    /// The text is not YAML, or uses a part of YAML that a pipeline file may not use.
    pub const YAML_SYNTAX: &str = "yaml_syntax";
    /// A key that does not belong where it is.
    pub const UNKNOWN_KEY: &str = "unknown_key";
    /// A mapping, a list, a text or a number where something else is due.
    pub const WRONG_TYPE: &str = "invalid_type";
    /// A required key is not there.
    pub const MISSING_KEY: &str = "missing_key";
    /// `${NAME}` names a variable that is not set.
    pub const UNSET_VARIABLE: &str = "unset_variable";
    /// `${…}` in an invalid form.
    pub const INVALID_INTERPOLATION: &str = "invalid_interpolation";
    /// One key twice in one mapping.
    pub const DUPLICATE_KEY: &str = "duplicate_key";
    /// One stream name twice.
    pub const DUPLICATE_STREAM: &str = "duplicate_stream";
    /// A value of the right type that is not allowed.
    pub const BAD_VALUE: &str = "invalid_value";
    /// A file does not exist.
    pub const FILE_NOT_FOUND: &str = "file_not_found";
    /// A directory, or another thing that is not a regular file.
    pub const NOT_A_FILE: &str = "not_a_file";
    /// The system refuses to read the file.
    pub const FILE_UNREADABLE: &str = "file_unreadable";
    /// More bytes than are read.
    pub const FILE_TOO_LARGE: &str = "file_too_large";
    /// Bytes that are not UTF-8.
    pub const INVALID_UTF8: &str = "invalid_utf8";
    /// Nothing but white space and comments.
    pub const EMPTY_FILE: &str = "empty_file";
    /// A line of a `.env` file is not `NAME=value`.
    pub const ENV_SYNTAX: &str = "env_syntax";
    /// Another user can have written the `.env` file.
    pub const ENV_UNTRUSTED: &str = "env_file_untrusted";
}

impl DocumentError {
    /// A mistake that concerns the whole file.
    pub(super) fn whole(code: &'static str, file: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: String::new(),
            message: message.into(),
            hint: None,
        }
    }

    pub(super) fn at(mut self, place: Location) -> Self {
        self.line = place.line;
        self.column = place.column;
        self
    }

    pub(super) fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for DocumentError {}

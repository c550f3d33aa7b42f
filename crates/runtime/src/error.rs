//! The one error of this crate: who failed, where, and what to do.

use std::fmt;

use crate::Phase;
use crate::bindings::types::{Error as ConnectorError, ErrorKind, Spec};

/// Why a call into a connector, or the loading of one, did not succeed.
#[derive(Debug)]
pub enum Error {
    /// The run was cancelled; nobody is to blame.
    Cancelled,
    /// Everything else. The inner error classifies it, whether the connector reported it or the host
    /// found it (a trap, a limit, a broken contract).
    Failed {
        /// The connector's file name without `.wasm`.
        connector: String,
        /// The function of the contract that was called, such as `reader.next`; `load` before
        /// the instance exists.
        export: &'static str,
        /// The phase that the connector reported, such as `decode`. `None` before the instance exists.
        phase: Option<Phase>,
        /// The error.
        error: Box<ConnectorError>,
    },
}

impl Error {
    /// The connector's or the host's classification; none when cancelled.
    pub fn failure(&self) -> Option<&ConnectorError> {
        match self {
            Self::Cancelled => None,
            Self::Failed { error, .. } => Some(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Failed {
                connector,
                export,
                error,
                ..
            } => {
                write!(f, "{connector} ({export}): {}", error.message)
            }
        }
    }
}

impl std::error::Error for Error {}

impl Spec {
    /// A connector without modes and abilities. Set the other fields afterwards.
    pub fn plain(
        name: impl Into<String>,
        version: impl Into<String>,
        description: impl Into<String>,
        config_schema: impl Into<String>,
    ) -> Self {
        rapidbyte_wire::plain_spec!(Spec, name, version, description, config_schema)
    }
}

impl ConnectorError {
    /// An error that the host itself found.
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

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

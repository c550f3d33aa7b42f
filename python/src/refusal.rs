//! Errors on their way to Python.

use std::fmt;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rapidbyte::batches::{ConnectorError, ErrorKind};
use rapidbyte::{Class, Failure};
use rapidbyte_columnar::ColumnarError;
use rapidbyte_formats::{FormatError, Owner};

/// Rows that cannot be taken, or the exception of the caller's code.
pub enum Refusal {
    /// A mistake in the caller's rows or arguments.
    Given(Box<Given>),
    /// The caller's code raised it.
    Raised(PyErr),
}

/// A mistake in what the caller gave.
#[derive(Debug, Clone)]
pub struct Given {
    /// The kind of the contract.
    pub kind: &'static str,
    /// Stable and short.
    pub code: String,
    /// The description of the mistake, without its place.
    pub message: String,
    /// The next action.
    pub hint: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// The row of the input, from 0.
    pub row: Option<u64>,
}

/// The place of an error in the caller's rows, before the number of the row.
const ROW: &str = "input row ";

/// The result of work on the caller's rows.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    /// A value or a row that cannot be taken.
    pub fn data(code: &str, message: impl fmt::Display) -> Self {
        Self::new("data", code, message)
    }

    /// An argument that cannot be taken.
    pub fn config(code: &str, message: impl fmt::Display) -> Self {
        Self::new("config", code, message)
    }

    /// The call was cancelled.
    pub fn cancelled() -> Self {
        Self::new("cancelled", "cancelled", "the call was cancelled")
    }

    fn new(kind: &'static str, code: &str, message: impl fmt::Display) -> Self {
        Self::Given(Box::new(Given {
            kind,
            code: code.to_owned(),
            message: message.to_string(),
            hint: None,
            column: None,
            row: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Given)) -> Self {
        if let Self::Given(given) = &mut self {
            change(given);
        }
        self
    }

    /// The same for the engine, whose run ends with it.
    pub fn into_connector(self) -> ConnectorError {
        let given = match self {
            Self::Given(given) => given,
            Self::Raised(error) => {
                return ConnectorError::new(ErrorKind::Data, "caller_raised", error);
            }
        };
        let mut error = ConnectorError::new(ErrorKind::Data, &given.code, given.message);
        error.location = given.row.map(|row| format!("{ROW}{row}"));
        error.hint = given.hint;
        error.column = given.column;
        error
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(self, hint: impl fmt::Display) -> Self {
        self.with(|given| given.hint = Some(hint.to_string()))
    }

    /// Names the column, unless it is named.
    #[must_use]
    pub fn in_column(self, column: &str) -> Self {
        self.with(|given| {
            given.column.get_or_insert_with(|| column.to_owned());
        })
    }

    /// Adds the rows before to the row.
    #[must_use]
    pub fn after(self, rows: u64) -> Self {
        self.in_row_of(|row| row + rows)
    }

    /// Replaces the row of an item by the row that holds the item.
    #[must_use]
    pub fn in_row_of(self, row_of: impl FnOnce(u64) -> u64) -> Self {
        self.with(|given| given.row = given.row.map(row_of))
    }

    /// Names the row in the message alone.
    #[must_use]
    pub fn in_words(self, words: impl FnOnce(u64) -> String) -> Self {
        self.with(|given| {
            if let Some(row) = given.row.take() {
                given.message = format!("{}: {}", words(row), given.message);
            }
        })
    }

    /// Names the row, unless it is named.
    #[must_use]
    pub fn at_row(self, row: u64) -> Self {
        self.with(|given| {
            given.row.get_or_insert(row);
        })
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<FormatError> for Refusal {
    fn from(error: FormatError) -> Self {
        let kind = match error.owner() {
            Owner::Config => "config",
            Owner::Schema => "schema",
            Owner::Data => "data",
            Owner::Internal => "internal",
        };
        Self::Given(Box::new(Given {
            kind,
            code: error.code.to_owned(),
            message: error.message,
            hint: error.hint,
            column: error.column,
            row: error.line.map(|line| line.saturating_sub(1)),
        }))
    }
}

impl From<ColumnarError> for Refusal {
    fn from(error: ColumnarError) -> Self {
        Self::Given(Box::new(Given {
            kind: "data",
            code: error.code.to_owned(),
            message: error.message,
            hint: error.hint,
            column: error.column,
            row: error.row.map(|row| row.saturating_sub(1)),
        }))
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        let given = match refusal {
            Refusal::Given(given) => given,
            Refusal::Raised(error) => return error,
        };
        Python::attach(|py| {
            exception(py, |fields| {
                fields.set_item("kind", given.kind)?;
                fields.set_item("code", &given.code)?;
                fields.set_item("message", &given.message)?;
                fields.set_item("hint", &given.hint)?;
                fields.set_item("column", &given.column)?;
                fields.set_item("row", given.row)
            })
        })
    }
}

/// The exception for a failure of the engine, with its details as a JSON document.
pub fn of_failure(py: Python<'_>, failure: &Failure) -> PyErr {
    exception(py, |fields| {
        fields.set_item("kind", kind(failure))?;
        fields.set_item("code", &failure.code)?;
        fields.set_item("message", &failure.message)?;
        fields.set_item("hint", &failure.hint)?;
        fields.set_item("stream", &failure.stream)?;
        fields.set_item("column", &failure.column)?;
        let row = failure
            .location
            .as_ref()
            .and_then(|place| place.strip_prefix(ROW));
        match row.and_then(|row| row.parse::<u64>().ok()) {
            Some(row) => fields.set_item("row", row)?,
            None => fields.set_item("location", &failure.location)?,
        }
        let details = serde_json::json!({
            "failure": failure, "streams": failure.streams.reports,
        });
        fields.set_item("details", details.to_string())
    })
}

/// The contract's name for the kind of a failure; the engine's own failures have the kind of who has to act.
fn kind(failure: &Failure) -> &'static str {
    match (&failure.kind, failure.class) {
        (_, Class::Cancelled) => "cancelled",
        (_, Class::Busy) => "busy",
        // The engine says it, too, where it finds a newer run before the destination does.
        _ if failure.code == "run_superseded" => "superseded",
        (Some(kind), _) => match kind {
            ErrorKind::Config => "config",
            ErrorKind::Auth => "auth",
            ErrorKind::Connection => "connection",
            ErrorKind::Data => "data",
            ErrorKind::Schema => "schema",
            ErrorKind::Transient => "transient",
            ErrorKind::RateLimited(_) => "rate_limited",
            ErrorKind::Superseded => "superseded",
            ErrorKind::Internal => "internal",
        },
        (None, Class::Config) => "config",
        (None, Class::Environment) => "environment",
        (None, Class::Contract) => "schema",
        (None, Class::Run) => "run",
    }
}

/// Calls the function that makes exceptions of fields.
fn exception(py: Python<'_>, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) -> PyErr {
    let made = || {
        let fields = PyDict::new(py);
        fill(&fields)?;
        let make = py.import("rapidbyte._errors")?.getattr("make")?;
        make.call((), Some(&fields))
    };
    match made() {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

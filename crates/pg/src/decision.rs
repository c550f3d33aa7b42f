//! How a value gets into a column, or that it does not.

use crate::op::Op;

/// How a field gets into a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Bytes for the column itself; every value stays what it is.
    Direct,
    /// The same in another form, which the string names.
    Converted(String),
    /// Bytes for the column itself. Its type is wider, or differs in the way that the string names.
    Widened(String),
    /// Bytes for the column itself; the server reads them, and the string names the part that it keeps.
    Checked(String),
    /// The text must be loaded into a `text` column and cast on the server: `column::type`.
    Cast(String),
    /// Not without losing something; the reason.
    Refused(String),
}

pub(crate) type Decision = Result<(Op, Option<String>), Fit>;

pub(crate) fn refused<T>(reason: impl Into<String>) -> Result<T, Fit> {
    Err(Fit::Refused(reason.into()))
}

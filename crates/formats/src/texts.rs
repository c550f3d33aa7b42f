//! Single values as text and back, for values outside the file, in the names of directories.

use arrow_array::{Array, ArrayRef};
use arrow_schema::FieldRef;

use crate::FormatError;
use crate::cells::Cells;
use crate::column::Column;

/// The values of one column of a batch as texts.
pub struct Texts(Cells);

impl Texts {
    /// Errors: `unsupported_type`.
    pub fn new(field: &FieldRef, array: &ArrayRef) -> Result<Self, FormatError> {
        Cells::new(field, array).map(Self)
    }

    /// True where the value is NULL, which does not have a text.
    pub fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    /// Appends the text of a value, as [`crate::text`] has it. Errors: `value_does_not_fit`.
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let written = self.0.write_text(row, out);
        written.map_err(|misfit| misfit.into_error(self.0.field().name()).row(row))
    }
}

/// `rows` times the value that a text is, or NULL.
///
/// Errors: `unsupported_type`, `value_does_not_fit`, `null_in_required_column`.
pub fn repeat(field: &FieldRef, text: Option<&str>, rows: usize) -> Result<ArrayRef, FormatError> {
    let mut column = Column::new(field)?;
    for _ in 0..rows {
        let pushed = match text {
            Some(text) => column.push_text(text.as_bytes()),
            None => column.push_null(),
        };
        pushed.map_err(|misfit| misfit.into_error(field.name()))?;
    }
    let array = column.finish()?;
    debug_assert_eq!(array.len(), rows);
    Ok(array)
}

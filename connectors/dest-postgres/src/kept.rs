//! Whether the server did with rows what a statement says: triggers and rules may drop rows, or keep them.

use rapidbyte_pg_client::Rows;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;

/// A row that the server did not keep is lost; that may not go unsaid.
pub(crate) fn ensure_all(name: &Name, sent: u64, taken: u64) -> Result<()> {
    if sent == taken {
        return Ok(());
    }
    let text = format!("{sent} rows were sent to {name}, and the server kept {taken}");
    Err(Error::data("rows_not_kept", text).hint(
        "change the trigger or rule of the table that drops or redirects rows, or write to \
             another table",
    ))
}

/// Triggers may have kept rows of a DELETE: `left` is whether there are any.
pub(crate) fn ensure_empty(name: &Name, left: &Rows) -> Result<()> {
    if left.single()? == "false" {
        return Ok(());
    }
    let text = format!("deleted rows of {name} are still there");
    Err(Error::schema("rows_kept", text)
        .hint("drop the BEFORE DELETE trigger that keeps them, or write to another table"))
}

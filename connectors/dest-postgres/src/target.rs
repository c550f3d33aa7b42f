//! What the target of a stream says of its rows before the server is asked.

use rapidbyte_sdk::prelude::*;

/// True where rows may come again.
pub(crate) fn rows_may_come_again(target: &Target) -> bool {
    target.write_mode == WriteMode::Append && !target.dedup_fields.is_empty()
}

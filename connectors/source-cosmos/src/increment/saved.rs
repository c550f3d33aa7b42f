//! The cursor as the destination keeps it, in JSON.

use std::collections::HashSet;
use std::fmt::Display;

use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use super::mark::Mark;

pub(super) const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    pub(super) version: u32,
    pub(super) field: String,
    pub(super) from: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) seen: Vec<String>,
}

fn unreadable(text: impl Display) -> Error {
    Error::config("cursor_unreadable", text).hint(
        "somebody edited it, or another version wrote it: print it with `rapidbyte state get PIPELINE STREAM`, or read \
         the stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM` replaces the rows of the \
         target",
    )
}

/// Errors: `cursor_unreadable`, `cursor_changed`.
pub(super) fn parse(json: &str, field: &str) -> Result<(Mark, HashSet<u64>)> {
    let saved: Saved = serde_json::from_str(json)
        .map_err(|_| unreadable("the stored cursor is not one of source-cosmos"))?;
    if saved.version != VERSION {
        let version = saved.version;
        let text = format!(
            "the stored cursor has version {version}, and this source reads version {VERSION}"
        );
        return Err(unreadable(text));
    }
    if saved.field != field {
        let was = &saved.field;
        let text = format!("the cursor was written with {was}, but the stream is read by {field}");
        return Err(Error::config("cursor_changed", text).hint(
            "set cursor_field back, or start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`",
        ));
    }
    let mark = Mark::of_json(&saved.from);
    let mark =
        mark.ok_or_else(|| unreadable("the stored cursor: from is not a number or a string"))?;
    let seen = saved.seen.iter().map(|hash| u64::from_str_radix(hash, 16));
    let seen = seen.collect::<std::result::Result<_, _>>();
    let seen = seen.map_err(|_| unreadable("the stored cursor: seen has more than hashes"))?;
    Ok((mark, seen))
}

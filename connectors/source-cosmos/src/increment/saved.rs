//! The cursor as the destination keeps it, in JSON.

use std::collections::HashSet;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::saved::{Form, unreadable};
use serde::{Deserialize, Serialize};

use super::mark::Mark;

pub(super) const FORM: Form = Form {
    source: "source-cosmos",
    version: 1,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    pub(super) version: u32,
    pub(super) field: String,
    pub(super) from: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) seen: Vec<String>,
}

/// Errors: `cursor_unreadable`, `cursor_changed`.
pub(super) fn parse(json: &str, field: &str) -> Result<(Mark, HashSet<u64>)> {
    let saved: Saved = FORM.parse(json, field)?;
    let mark = Mark::of_json(&saved.from);
    let mark =
        mark.ok_or_else(|| unreadable("the stored cursor: from is not a number or a string"))?;
    let seen = saved.seen.iter().map(|hash| u64::from_str_radix(hash, 16));
    let seen = seen.collect::<std::result::Result<_, _>>();
    let seen = seen.map_err(|_| unreadable("the stored cursor: seen has more than hashes"))?;
    Ok((mark, seen))
}

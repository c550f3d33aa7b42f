//! Incremental reads: documents from a value of one field on, and the cursor between two runs.
//!
//! An account gives the documents of a query over several partitions in no order, so a read has one checkpoint, behind its
//! last page. The next read asks for the documents from the cursor's value on. Cosmos DB compares numbers with numbers, and
//! strings by their characters. This module does the same.
//!
//! **`_ts`** is the second in which the server wrote a document, and a read of several pages is not a snapshot: while it reads
//! one partition, documents may change in another. Therefore a cursor of `_ts` does not pass [`HOLD_BACK_S`] before the
//! beginning of the read, by the server's clock. Where rows may come again, the read gives every document, and the next one
//! gives the documents of the last seconds again. Otherwise it holds back the documents of the last seconds for the next read.
//!
//! **Any other field**: the cursor is the greatest value. Where rows must not come again, it also has the hashes of the
//! documents with this value.
//!
//! The cursor is JSON that only this connector reads:
//!
//! ```json
//! {"version":1,"field":"_ts","from":1767225600}
//! {"version":1,"field":"updated_at","from":"2026-01-01T00:00:00Z","seen":["00c0ffee00c0ffee"]}
//! ```

mod lag;
mod mark;
mod saved;

use std::cmp::Ordering;
use std::collections::HashSet;

use rapidbyte_cosmos::{Param, find};
use rapidbyte_formats::write_string;
use rapidbyte_sdk::prelude::*;
use sha2::{Digest, Sha256};

use lag::Lag;
use mark::{Mark, initial_value};
use saved::{FORM, Saved, parse};

/// The field with the second in which the server wrote a document.
pub(crate) const WRITTEN: &str = "_ts";
/// Seconds before the beginning of a read that a cursor of `_ts` does not pass: the clocks of servers differ, and `_ts`
/// does not have a fraction.
pub(crate) const HOLD_BACK_S: u64 = 1;
/// At most this many documents may have the greatest value, where rows must not come again.
const MAX_TIES: usize = 10_000;

/// Follows one incremental read.
pub(crate) struct Tracker {
    field: String,
    allow_duplicates: bool,
    /// Documents below it are not read.
    from: Option<Mark>,
    /// The second of `_ts` that the cursor does not pass.
    limit_s: Option<u64>,
    /// The cursor's value, and then the greatest value.
    greatest: Option<Mark>,
    /// The cursor's value, and the documents with it that were delivered before.
    delivered: Option<(Mark, HashSet<u64>)>,
    /// The documents with the greatest value.
    ties: HashSet<u64>,
    /// Set by the first document that is delivered.
    is_ahead: bool,
}

/// Columns that can order a read: `_ts` first, then times, then numbers.
pub(crate) fn candidates(schema: &Schema) -> Vec<String> {
    let rank = |field: &Field| {
        Some(match field.data_type() {
            _ if field.name() == WRITTEN => 0,
            DataType::Timestamp(_, Some(_)) => 1,
            DataType::Int64 => 2,
            _ => return None,
        })
    };
    let ranked = schema.fields().iter();
    let ranked = ranked.filter_map(|field| Some((rank(field)?, field.name())));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, name)| name.clone()).collect()
}

impl Tracker {
    /// Errors: `too_many_cursor_fields`, `unknown_cursor_field`, `cosmos_no_xmin`, `invalid_lag`, `invalid_cursor_initial`
    /// (config), `cursor_unreadable`, `cursor_changed`.
    pub fn new(increment: &Increment, schema: &Schema, saved: Option<&str>) -> Result<Self> {
        let [field] = &increment.cursor_fields[..] else {
            let text = "source-cosmos reads from a value of one field on";
            return Err(
                Error::config("too_many_cursor_fields", text).hint("write one cursor_field")
            );
        };
        let Ok(column) = schema.field_with_name(field) else {
            let text = format!("the cursor field {field} is not a column of the stream");
            let hint = match field == WRITTEN {
                true => "set system_fields: true, so that _ts is a column",
                false => "use a field of the sample, or declare it under types",
            };
            return Err(Error::config("unknown_cursor_field", text)
                .hint(hint)
                .in_column(field));
        };
        let lag = match &increment.late_rows {
            LateRows::Lag(lag) => lag.as_deref(),
            LateRows::Exact => {
                let text = "change_detection: xmin is for PostgreSQL";
                return Err(Error::config("cosmos_no_xmin", text).hint("remove change_detection"));
            }
        };
        let lag = lag.map(|lag| Lag::parse(lag, column)).transpose()?;
        let saved = saved.map(|json| parse(json, field)).transpose()?;
        let initial = increment.initial.iter().flatten().next();
        let initial = initial
            .map(|text| initial_value(text, column))
            .transpose()?;
        let from = match (&saved, lag) {
            (Some((mark, _)), Some(lag)) => Some(lag.below(mark, field)?),
            (Some((mark, _)), None) => Some(mark.clone()),
            (None, _) => initial,
        };
        let ties = saved.as_ref().map(|(_, seen)| seen.clone());
        Ok(Self {
            field: field.clone(),
            allow_duplicates: increment.allow_duplicates,
            from,
            limit_s: None,
            greatest: saved.as_ref().map(|(mark, _)| mark.clone()),
            ties: ties.unwrap_or_default(),
            delivered: saved,
            is_ahead: false,
        })
    }

    /// Begins the read: `now` is asked for the seconds since 1970 by the server's clock, if the cursor depends on them.
    pub fn begin(&mut self, now: impl FnOnce() -> Result<u64>) -> Result<()> {
        if self.field == WRITTEN {
            self.limit_s = Some(now()?.saturating_sub(HOLD_BACK_S));
        }
        Ok(())
    }

    /// The conditions of the query and their parameters. None for all documents.
    pub fn conditions(&self) -> (Vec<String>, Vec<Param>) {
        let mut name = Vec::new();
        write_string(&self.field, &mut name);
        let value = format!("c[{}]", String::from_utf8_lossy(&name));
        let (mut conditions, mut params) = (Vec::new(), Vec::new());
        if let Some(from) = &self.from {
            let is_type = match from {
                Mark::Number(_) => "IS_NUMBER",
                Mark::Text(_) => "IS_STRING",
            };
            // A comparison leaves out values of other types, behind which nobody would look again.
            let other = format!(
                "(IS_DEFINED({value}) AND NOT IS_NULL({value}) AND NOT {is_type}({value}))"
            );
            conditions.push(match self.field == WRITTEN {
                true => format!("{value} >= @from"),
                false => format!("({value} >= @from OR {other})"),
            });
            params.push(Param::new("@from", from.json()));
        }
        if let Some(until) = self.limit_s.filter(|_| !self.allow_duplicates) {
            conditions.push(format!("{value} < @until"));
            params.push(Param::new("@until", until));
        }
        (conditions, params)
    }

    /// Takes a document into account. False for a document that was delivered before.
    ///
    /// # Errors
    /// `cosmos_cursor_value`, `cosmos_too_many_ties` (data).
    pub fn takes(&mut self, document: &str) -> Result<bool> {
        let Some(mark) = self.mark(document)? else {
            self.is_ahead = true;
            return Ok(true);
        };
        let is_tied = !self.allow_duplicates && self.limit_s.is_none();
        let hash = if is_tied { identity(document) } else { 0 };
        if let Some((at, seen)) = &self.delivered
            && is_tied
            && *at == mark
            && seen.contains(&hash)
        {
            return Ok(false);
        }
        let order = match &self.greatest {
            None => Ordering::Greater,
            Some(greatest) => mark.compare(greatest).ok_or_else(|| {
                self.refused(
                    "values of several types, which have no common order",
                    document,
                )
            })?,
        };
        if order == Ordering::Greater {
            self.greatest = Some(mark);
            self.ties.clear();
        }
        if order != Ordering::Less && is_tied {
            self.ties.insert(hash);
            if self.ties.len() > MAX_TIES {
                let field = &self.field;
                let text = format!("more than {MAX_TIES} documents have the same value of {field}");
                return Err(Error::data("cosmos_too_many_ties", text)
                    .in_column(field)
                    .hint(
                        "use write_mode: upsert, which has no such limit, or cursor_field: _ts",
                    ));
            }
        }
        self.is_ahead = true;
        Ok(true)
    }

    /// The cursor behind the read. `None` if no document came, or none with a value.
    pub fn checkpoint(&self) -> Result<Option<String>> {
        let Some(greatest) = self.greatest.as_ref().filter(|_| self.is_ahead) else {
            return Ok(None);
        };
        let from = match self.limit_s.map(Mark::seconds) {
            None => greatest.clone(),
            // All documents below it were delivered.
            Some(limit) if !self.allow_duplicates => limit,
            Some(limit) => match greatest.compare(&limit) {
                Some(Ordering::Less) => greatest.clone(),
                _ => limit,
            },
        };
        // A server whose clock went back.
        let before = self.delivered.as_ref().map(|(mark, _)| mark);
        let from = match before.filter(|mark| from.compare(mark) == Some(Ordering::Less)) {
            Some(before) => before.clone(),
            None => from,
        };
        let mut seen: Vec<String> = self
            .ties
            .iter()
            .map(|hash| format!("{hash:016x}"))
            .collect();
        seen.sort();
        let saved = Saved {
            version: FORM.version,
            field: self.field.clone(),
            from: from.json(),
            seen,
        };
        serde_json::to_string(&saved)
            .map(Some)
            .map_err(Error::internal)
    }

    /// The value of a document. `None`: it does not have the field, or its value is null.
    fn mark(&self, document: &str) -> Result<Option<Mark>> {
        let Some(text) = find(document, std::slice::from_ref(&self.field)) else {
            return Ok(None);
        };
        let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        match Mark::of_json(&value) {
            Some(mark) => Ok(Some(mark)),
            None if value.is_null() => Ok(None),
            None => Err(self.refused("a value that is neither a number nor a string", document)),
        }
    }

    fn refused(&self, what: &str, document: &str) -> Error {
        let field = &self.field;
        let id = find(document, &["id".to_owned()]).unwrap_or("null");
        let text =
            format!("documents have {what}, in the cursor field {field}: one has the id {id}");
        Error::data("cosmos_cursor_value", text)
            .hint(
                "choose another cursor_field, such as _ts, or leave such documents out by `where`",
            )
            .in_column(field)
    }
}

/// A version of a document: the server's name of the document and of its version, or else the text.
fn identity(document: &str) -> u64 {
    let part = |name: &str| find(document, &[name.to_owned()]);
    let digest = match (part("_rid"), part("_etag")) {
        (Some(document), Some(version)) => Sha256::digest(format!("{document}{version}")),
        _ => Sha256::digest(document),
    };
    digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

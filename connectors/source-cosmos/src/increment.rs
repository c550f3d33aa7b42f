//! Incremental reads: documents from a value of one field on, and the cursor between two runs.
//!
//! An account gives the documents of a query over several partitions in no order, so a read has one checkpoint, behind its
//! last page. The next read asks for the documents from the cursor's value on. Cosmos DB compares numbers with numbers, and
//! strings by their characters; so does this module.
//!
//! **`_ts`** is the second in which the server wrote a document, and a read of several pages is no snapshot: while it reads
//! one partition, documents may change in another. Therefore a cursor of `_ts` does not pass [`HOLD_BACK_S`] before the
//! beginning of the read, by the server's clock. Where rows may come again, the read gives every document, and the next one
//! gives those of the last seconds again. Otherwise it holds back the documents of the last seconds for the next read.
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

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Display;

use arrow_schema::TimeUnit;
use rapidbyte_cosmos::{Param, find};
use rapidbyte_formats::text::time;
use rapidbyte_formats::write_string;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const VERSION: u32 = 1;
/// The field with the second in which the server wrote a document.
pub(crate) const WRITTEN: &str = "_ts";
/// Seconds before the beginning of a read that a cursor of `_ts` does not pass: the clocks of servers differ, and `_ts`
/// has no fraction.
pub(crate) const HOLD_BACK_S: u64 = 1;
/// At most this many documents may have the greatest value, where rows must not come again.
const MAX_TIES: usize = 10_000;
/// The largest number up to which a float64 holds every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value that can be put in order.
#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Number(f64),
    Text(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    version: u32,
    field: String,
    from: serde_json::Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seen: Vec<String>,
}

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

impl Mark {
    fn of_json(value: &serde_json::Value) -> Option<Self> {
        match value {
            serde_json::Value::Number(number) => number.as_f64().map(Self::Number),
            serde_json::Value::String(text) => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            #[expect(clippy::cast_possible_truncation, reason = "checked")]
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
                (*number as i64).into()
            }
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds are far below 2^53")]
    fn seconds(seconds: u64) -> Self {
        Self::Number(seconds as f64)
    }

    /// `None` for values of two types.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.partial_cmp(other),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }
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
            version: VERSION,
            field: self.field.clone(),
            from: from.json(),
            seen,
        };
        serde_json::to_string(&saved)
            .map(Some)
            .map_err(Error::internal)
    }

    /// The value of a document. `None`: it has no value, or null.
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

fn unreadable(text: impl Display) -> Error {
    Error::config("cursor_unreadable", text).hint(
        "somebody edited it, or another version wrote it: print it with `rapidbyte state get PIPELINE STREAM`, or read \
         the stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM` replaces the rows of the \
         target",
    )
}

/// Errors: `cursor_unreadable`, `cursor_changed`.
fn parse(json: &str, field: &str) -> Result<(Mark, HashSet<u64>)> {
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
    let mark = mark.ok_or_else(|| unreadable("the stored cursor: from is no number or string"))?;
    let seen = saved.seen.iter().map(|hash| u64::from_str_radix(hash, 16));
    let seen = seen.collect::<std::result::Result<_, _>>();
    let seen = seen.map_err(|_| unreadable("the stored cursor: seen has more than hashes"))?;
    Ok((mark, seen))
}

fn is_number(column: &Field) -> bool {
    column.data_type().is_numeric()
}

/// `cursor_initial`: a number for columns of numbers, and the text for all others.
fn initial_value(text: &str, column: &Field) -> Result<Mark> {
    if !is_number(column) {
        return Ok(Mark::Text(text.to_owned()));
    }
    let seconds = |text: &str| {
        // The seconds of `_ts` may be written as a time.
        let parsed = time::parse_timestamp(text.as_bytes(), TimeUnit::Second, true).ok()?;
        u64::try_from(parsed).ok().map(Mark::seconds)
    };
    let number = text
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite());
    let found = match column.name() == WRITTEN {
        true => number.map(Mark::Number).or_else(|| seconds(text)),
        false => number.map(Mark::Number),
    };
    found.ok_or_else(|| {
        let field = column.name();
        let text = format!("cursor_initial {text:?} is not a number, as {field} is");
        Error::config("invalid_cursor_initial", text)
            .hint("write a number, or for _ts a time such as 2026-01-01T00:00:00Z")
    })
}

/// How far below the cursor a read begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lag {
    /// For numbers; of `_ts` in seconds.
    Number(f64),
    /// For times, in seconds.
    Seconds(i64),
}

impl Lag {
    /// Errors: `invalid_lag`.
    fn parse(text: &str, column: &Field) -> Result<Self> {
        let is_time = matches!(column.data_type(), DataType::Timestamp(_, Some(_)));
        let number = text.trim().parse::<f64>().ok();
        let number = number.filter(|number| number.is_finite() && *number >= 0.0);
        #[expect(clippy::cast_precision_loss, reason = "seconds of a lag")]
        let lag = match (duration_s(text), number) {
            (Some(seconds), _) if is_time => Some(Self::Seconds(seconds)),
            (Some(seconds), _) if column.name() == WRITTEN => Some(Self::Number(seconds as f64)),
            (None, Some(number)) if is_number(column) => Some(Self::Number(number)),
            _ => None,
        };
        lag.ok_or_else(|| {
            let (name, ty) = (column.name(), type_name(column));
            invalid_lag(format!(
                "the lag {text:?} does not fit {name}, a column of {ty}"
            ))
        })
    }

    fn below(self, mark: &Mark, field: &str) -> Result<Mark> {
        match (self, mark) {
            (Self::Number(lag), Mark::Number(number)) => Ok(Mark::Number(number - lag)),
            (Self::Seconds(lag), Mark::Text(text)) => {
                let bytes = text.as_bytes();
                let parsed = time::parse_timestamp(bytes, TimeUnit::Nanosecond, true);
                let nanos = parsed
                    .map_err(|why| invalid_lag(format!("the cursor {text:?} of {field} {why}")))?;
                let seconds = nanos.div_euclid(1_000_000_000).saturating_sub(lag);
                let mut text = Vec::new();
                // Without a zone it is less than every text of this second, with a fraction and without one.
                time::write_timestamp(seconds, TimeUnit::Second, false, &mut text);
                Ok(Mark::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            _ => Err(invalid_lag(format!(
                "the cursor has a {field} of a type that the lag does not fit"
            ))),
        }
    }
}

fn invalid_lag(text: String) -> Error {
    Error::config("invalid_lag", text).hint(
        "write a duration such as `5 minutes` for _ts and for times in UTC, and a number such as 1000 for numbers; \
         strings have no lag",
    )
}

/// `5 minutes`, `1 hour`, in whole seconds.
fn duration_s(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: i64 = text[..end].parse().ok()?;
    let unit = match text[end..].trim() {
        "ms" | "millisecond" | "milliseconds" => return Some(number.div_euclid(1000) + 1),
        "s" | "second" | "seconds" => 1,
        "min" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn increment(field: &str, allow_duplicates: bool) -> Increment {
        Increment {
            cursor_fields: vec![field.into()],
            initial: None,
            late_rows: LateRows::Lag(None),
            allow_duplicates,
        }
    }

    fn schema() -> Schema {
        let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        Schema::new(vec![
            Field::new("_ts", DataType::Int64, true),
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("at", zone, true),
        ])
    }

    fn tracker(field: &str, allow_duplicates: bool, saved: Option<&str>, now: u64) -> Tracker {
        let increment = increment(field, allow_duplicates);
        let mut tracker = Tracker::new(&increment, &schema(), saved).unwrap();
        tracker.begin(|| Ok(now)).unwrap();
        tracker
    }

    fn asked(tracker: &Tracker) -> (String, String) {
        let (conditions, params) = tracker.conditions();
        (
            conditions.join(" AND "),
            serde_json::to_string(&params).unwrap(),
        )
    }

    #[test]
    fn the_last_second_is_held_back_where_rows_must_not_come_again() {
        let mut first = tracker("_ts", false, None, 1000);
        let until = r#"[{"name":"@until","value":999}]"#;
        let expected = (r#"c["_ts"] < @until"#.to_owned(), until.to_owned());
        assert_eq!(asked(&first), expected);
        assert_eq!(first.checkpoint().unwrap(), None);
        assert!(first.takes(r#"{"id":"1","_ts":990}"#).unwrap());
        assert!(first.takes(r#"{"id":"2","_ts":998}"#).unwrap());
        let saved = first.checkpoint().unwrap().unwrap();
        assert_eq!(saved, r#"{"version":1,"field":"_ts","from":999}"#);
        let second = tracker("_ts", false, Some(&saved), 1000);
        let (conditions, params) = asked(&second);
        assert_eq!(conditions, r#"c["_ts"] >= @from AND c["_ts"] < @until"#);
        assert!(params.contains(r#""@from","value":999"#), "{params}");
        // The server's clock went back: the cursor does not.
        let mut back = tracker("_ts", false, Some(&saved), 500);
        assert!(back.takes(r#"{"_ts":499}"#).unwrap());
        assert_eq!(back.checkpoint().unwrap().unwrap(), saved);
    }

    #[test]
    fn documents_of_the_last_seconds_come_again_where_rows_may() {
        let mut first = tracker("_ts", true, None, 1000);
        assert_eq!(asked(&first), (String::new(), "[]".to_owned()));
        for seconds in [990, 1000, 1001] {
            let document = format!("{{\"_ts\":{seconds}}}");
            assert!(first.takes(&document).unwrap());
        }
        let saved = first.checkpoint().unwrap().unwrap();
        assert_eq!(saved, r#"{"version":1,"field":"_ts","from":999}"#);
        let mut second = tracker("_ts", true, Some(&saved), 2000);
        assert_eq!(asked(&second).0, r#"c["_ts"] >= @from"#);
        assert_eq!(second.checkpoint().unwrap(), None);
        assert!(second.takes(r#"{"_ts":1001}"#).unwrap());
        let saved = second.checkpoint().unwrap().unwrap();
        assert_eq!(saved, r#"{"version":1,"field":"_ts","from":1001}"#);
    }

    #[test]
    fn equal_values_of_another_field_are_neither_lost_nor_doubled() {
        let mut first = tracker("n", false, None, 0);
        let one = |rid: &str, etag: &str, n: &str| {
            format!("{{\"_rid\":\"{rid}\",\"_etag\":\"{etag}\",\"n\":{n}}}")
        };
        for document in [one("a", "1", "5"), one("b", "1", "7"), one("c", "1", "7.0")] {
            assert!(first.takes(&document).unwrap());
        }
        assert!(first.takes("{\"id\":\"none\"}").unwrap());
        let saved = first.checkpoint().unwrap().unwrap();
        assert!(saved.contains("\"from\":7,"), "{saved}");
        let mut second = tracker("n", false, Some(&saved), 0);
        let (conditions, _) = asked(&second);
        assert!(
            conditions.contains("NOT IS_NUMBER(c[\"n\"])"),
            "{conditions}"
        );
        for (document, is_new) in [
            (one("b", "1", "7"), false),
            // A new version of a document.
            (one("c", "2", "7"), true),
            (one("d", "1", "7"), true),
            (one("e", "1", "8"), true),
        ] {
            assert_eq!(second.takes(&document).unwrap(), is_new, "{document}");
        }
        let third = second.checkpoint().unwrap().unwrap();
        assert!(third.contains("\"from\":8,"), "{third}");
        let mut again = tracker("n", true, Some(&saved), 0);
        assert!(again.takes(&one("b", "1", "7")).unwrap());
    }

    #[test]
    fn values_without_an_order_are_refused() {
        for documents in [
            &[r#"{"n":1}"#, r#"{"n":"a"}"#][..],
            &[r#"{"n":true}"#],
            &[r#"{"n":[1]}"#],
        ] {
            let mut tracker = tracker("n", true, None, 0);
            let taken: Result<Vec<bool>> = documents.iter().map(|one| tracker.takes(one)).collect();
            assert_eq!(taken.unwrap_err().code, "cosmos_cursor_value");
        }
    }

    #[test]
    fn a_lag_and_a_first_value_are_those_of_the_column() {
        let with = |field: &str, lag: Option<&str>, initial: Option<&str>, saved: Option<&str>| {
            let increment = Increment {
                initial: initial.map(|text| vec![text.to_owned()]),
                late_rows: LateRows::Lag(lag.map(str::to_owned)),
                ..increment(field, true)
            };
            let tracker = Tracker::new(&increment, &schema(), saved);
            tracker.map(|tracker| tracker.from.map(|mark| mark.json().to_string()))
        };
        let saved = |field: &str, from: &str| {
            format!("{{\"version\":1,\"field\":\"{field}\",\"from\":{from}}}")
        };
        for (field, lag, from, expected) in [
            ("_ts", "5 minutes", "1000", "700"),
            ("_ts", "10", "1000", "990"),
            ("n", "1000", "1", "-999"),
            (
                "at",
                "1 s",
                "\"2026-01-01T00:00:00.5Z\"",
                "\"2025-12-31T23:59:59\"",
            ),
        ] {
            let found = with(field, Some(lag), None, Some(&saved(field, from))).unwrap();
            assert_eq!(found.as_deref(), Some(expected), "{field} {lag}");
        }
        for (field, lag) in [
            ("n", "5 minutes"),
            ("s", "5"),
            ("at", "5"),
            ("n", "-1"),
            ("n", "x"),
        ] {
            let refused = with(field, Some(lag), None, None).unwrap_err();
            assert_eq!(refused.code, "invalid_lag", "{field} {lag}");
        }
        for (field, initial, expected) in [
            ("_ts", "1970-01-01T00:01:00Z", "60"),
            ("n", "1.5", "1.5"),
            ("s", "007", "\"007\""),
        ] {
            let found = with(field, None, Some(initial), None).unwrap();
            assert_eq!(found.as_deref(), Some(expected), "{field}");
        }
        let refused = with("n", None, Some("x"), None).unwrap_err();
        assert_eq!(refused.code, "invalid_cursor_initial");
        for (json, code) in [
            ("{", "cursor_unreadable"),
            (r#"{"version":2,"field":"n","from":1}"#, "cursor_unreadable"),
            (
                r#"{"version":1,"field":"n","from":null}"#,
                "cursor_unreadable",
            ),
            (r#"{"version":1,"field":"s","from":1}"#, "cursor_changed"),
        ] {
            assert_eq!(with("n", None, None, Some(json)).unwrap_err().code, code);
        }
    }
}

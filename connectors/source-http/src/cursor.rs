//! The cursor of an incremental stream, from which the next run resumes.
//!
//! A server gives its records in any order, so a read has one checkpoint, after its last page. It has the greatest
//! value of the cursor field, and the next read asks from this value on. Where records must not come twice, the
//! checkpoint also has the hashes of the records with this value. The next read leaves out these records, and records
//! below the value.

use std::cmp::Ordering;
use std::collections::HashSet;

use arrow_schema::TimeUnit;
use rapidbyte_formats::text::{number, time};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::saved;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::Param;
use crate::config::CursorFormat;
use crate::json::{entries, scalar};
use crate::page::hash;
use crate::settings::Cursor;

/// At most this many records may have the greatest value, where records must not come twice.
const MAX_TIES: usize = 10_000;
const NANOS: i128 = 1_000_000_000;
const DAY_SECONDS: i128 = 86_400;

/// A value that can be put in order.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    /// Also one that the server writes as a text: "9" comes before "10".
    Number(i128),
    /// Days since 1970.
    Date(i32),
    /// Nanoseconds since 1970 UTC.
    Instant(i128),
    /// The same in a time zone that nobody named.
    Local(i128),
    Text(String),
}

/// The content of a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Saved {
    field: String,
    /// As the server wrote it.
    at: String,
    is_number: bool,
    /// Hashes of the records with this value, in hexadecimal.
    #[serde(default)]
    seen: Vec<String>,
}

#[derive(Debug, Clone)]
struct Mark {
    key: Key,
    text: String,
    is_number: bool,
}

/// Follows one incremental read.
pub(crate) struct Tracker {
    cursor: Cursor,
    /// Records may come again: none is left out.
    allow_duplicates: bool,
    /// Where the first read begins.
    initial: Option<Mark>,
    since: Option<Mark>,
    delivered: HashSet<u64>,
    greatest: Option<Mark>,
    ties: HashSet<u64>,
}

impl Tracker {
    /// Errors: `http_cursor_field`, `http_no_lag` (config), `cursor_unreadable`,
    /// `cursor_changed` (config).
    pub fn new(cursor: &Cursor, increment: &Increment, saved: Option<&str>) -> Result<Self> {
        if increment.cursor_fields != [cursor.field.as_str()] {
            let text = format!(
                "the stream's cursor_field is {}, but the source asks the server by {}",
                increment.cursor_fields.join(", "),
                cursor.field
            );
            return Err(Error::config("http_cursor_field", text).hint(format!(
                "write cursor_field: {} for the stream",
                cursor.field
            )));
        }
        match &increment.late_rows {
            LateRows::Lag(None) => {}
            LateRows::Lag(Some(_)) | LateRows::Exact => {
                let text = "source-http supports neither a lag nor change_detection: xmin: it \
                     asks the server for records from the cursor on";
                return Err(
                    Error::config("http_no_lag", text).hint("remove lag and change_detection")
                );
            }
        }
        let saved = saved.map(|text| parse(text, &cursor.field)).transpose()?;
        let (since, delivered) = match saved {
            None => (None, HashSet::new()),
            Some((mark, seen)) => (Some(mark), seen),
        };
        let initial = increment.initial.iter().flatten().next();
        let initial = initial.filter(|_| since.is_none()).map(|text| {
            let key = key(text, false).ok_or_else(|| wrong_initial(text, &cursor.field))?;
            Ok::<_, Error>(Mark {
                key,
                text: text.clone(),
                is_number: false,
            })
        });
        Ok(Self {
            cursor: cursor.clone(),
            allow_duplicates: increment.allow_duplicates,
            initial: initial.transpose()?,
            greatest: since.clone(),
            ties: delivered.clone(),
            since,
            delivered,
        })
    }

    /// The parameter that a request adds. Error: `http_cursor_type`.
    pub fn param(&self) -> Result<Option<Param>> {
        let Some(mark) = self.since.as_ref().or(self.initial.as_ref()) else {
            return Ok(None);
        };
        let (text, is_number) = written(mark, self.cursor.format)?;
        Ok(Some(Param {
            name: self.cursor.param.clone(),
            text,
            is_number,
        }))
    }

    /// False for a record that was delivered before, or that is before `cursor_initial`.
    ///
    /// # Errors
    /// `http_cursor_type`, `http_too_many_ties` (data).
    pub fn takes(&mut self, record: &RawValue) -> Result<bool> {
        let mark = self.mark(record)?;
        if let Some(initial) = &self.initial {
            let (text, field) = (&initial.text, &self.cursor.field);
            let first = initial.key.like(&mark.key);
            let first = first.ok_or_else(|| {
                wrong_initial(text, field).hint(format!(
                    "write cursor_initial as the server writes {field}, such as {:?}",
                    mark.text
                ))
            })?;
            if compare(&mark.key, &first, field)? == Ordering::Less {
                return Ok(false);
            }
        }
        let hash = hash(record.get().as_bytes());
        if let Some(since) = &self.since {
            let is_old = match compare(&mark.key, &since.key, &self.cursor.field)? {
                Ordering::Less => true,
                Ordering::Equal => self.delivered.contains(&hash),
                Ordering::Greater => false,
            };
            if is_old && !self.allow_duplicates {
                return Ok(false);
            }
        }
        let order = match &self.greatest {
            None => Ordering::Greater,
            Some(greatest) => compare(&mark.key, &greatest.key, &self.cursor.field)?,
        };
        if order == Ordering::Greater {
            self.greatest = Some(mark);
            self.ties.clear();
        }
        if order != Ordering::Less && !self.allow_duplicates {
            self.ties.insert(hash);
            if self.ties.len() > MAX_TIES {
                let field = &self.cursor.field;
                let text = format!("more than {MAX_TIES} records have the same value of {field}");
                return Err(Error::data("http_too_many_ties", text)
                    .in_column(field)
                    .hint("use write_mode: upsert, which has no such limit"));
            }
        }
        Ok(true)
    }

    /// The cursor for the next read. `None` where there never was a record.
    pub fn checkpoint(&self) -> Result<Option<String>> {
        let Some(greatest) = &self.greatest else {
            return Ok(None);
        };
        let mut seen: Vec<String> = self
            .ties
            .iter()
            .map(|hash| format!("{hash:016x}"))
            .collect();
        seen.sort();
        let saved = Saved {
            field: self.cursor.field.clone(),
            at: greatest.text.clone(),
            is_number: greatest.is_number,
            seen,
        };
        serde_json::to_string(&saved)
            .map(Some)
            .map_err(Error::internal)
    }

    fn mark(&self, record: &RawValue) -> Result<Mark> {
        let field = &self.cursor.field;
        let wrong = |what: &str| {
            let text = format!("a record has {what} as its cursor field {field}");
            Error::data("http_cursor_type", text).in_column(field)
        };
        // A record that is not an object counts as a record without the cursor field.
        let found = entries(record).unwrap_or_default();
        let found = found.into_iter().find(|(key, _)| key == field);
        let value = found
            .map(|(_, value)| value)
            .ok_or_else(|| wrong("nothing"))?;
        let text = scalar(value).map_err(wrong)?.ok_or_else(|| wrong("null"))?;
        let is_number = !value.get().starts_with('"');
        let key = key(&text, is_number).ok_or_else(|| wrong("neither an integer nor a string"))?;
        Ok(Mark {
            key,
            text,
            is_number,
        })
    }
}

fn key(text: &str, is_number: bool) -> Option<Key> {
    let bytes = text.as_bytes();
    if is_number {
        return number::parse_i64(bytes)
            .ok()
            .map(|number| Key::Number(number.into()));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // An integer with more digits than fit is refused: as a string it would sort wrongly among shorter ones.
        return text.parse().ok().map(Key::Number);
    }
    let instant = |zoned| {
        let nanos = time::parse_timestamp(bytes, TimeUnit::Nanosecond, zoned).map(i128::from);
        nanos.or_else(|_| {
            let seconds = time::parse_timestamp(bytes, TimeUnit::Microsecond, zoned);
            seconds.map(|micros| i128::from(micros) * 1000)
        })
    };
    Some(if let Ok(nanos) = instant(true) {
        Key::Instant(nanos)
    } else if let Ok(nanos) = instant(false) {
        Key::Local(nanos)
    } else if let Ok(days) = time::parse_date(bytes) {
        Key::Date(days)
    } else {
        Key::Text(text.to_owned())
    })
}

impl Key {
    /// The same value in the kind of another one. A day begins at midnight, and a time without a zone counts as UTC.
    fn like(&self, other: &Self) -> Option<Self> {
        let nanos = match self {
            Self::Date(days) => i128::from(*days) * DAY_SECONDS * NANOS,
            Self::Instant(nanos) | Self::Local(nanos) => *nanos,
            Self::Number(_) | Self::Text(_) => 0,
        };
        let is_time = matches!(self, Self::Date(_) | Self::Instant(_) | Self::Local(_));
        match other {
            Self::Instant(_) if is_time => Some(Self::Instant(nanos)),
            Self::Local(_) if is_time => Some(Self::Local(nanos)),
            _ => (std::mem::discriminant(self) == std::mem::discriminant(other))
                .then(|| self.clone()),
        }
    }
}

fn wrong_initial(text: &str, field: &str) -> Error {
    let text = format!("cursor_initial {text:?} cannot be compared with the values of {field}");
    Error::config("http_cursor_type", text)
}

fn compare(a: &Key, b: &Key, field: &str) -> Result<Ordering> {
    Ok(match (a, b) {
        (Key::Number(a), Key::Number(b)) => a.cmp(b),
        (Key::Date(a), Key::Date(b)) => a.cmp(b),
        (Key::Instant(a), Key::Instant(b)) | (Key::Local(a), Key::Local(b)) => a.cmp(b),
        (Key::Text(a), Key::Text(b)) => a.cmp(b),
        _ => {
            let text = format!("values of {field} have several types, which have no common order");
            return Err(Error::data("http_cursor_type", text).in_column(field));
        }
    })
}

/// A value as a request writes it.
fn written(mark: &Mark, format: CursorFormat) -> Result<(String, bool)> {
    let seconds = match (&mark.key, format) {
        (_, CursorFormat::AsIs) => return Ok((mark.text.clone(), mark.is_number)),
        (Key::Instant(nanos) | Key::Local(nanos), _) => *nanos,
        (Key::Date(days), _) => i128::from(*days) * DAY_SECONDS * NANOS,
        (Key::Number(_) | Key::Text(_), _) => {
            let text = format!(
                "{:?} is not a timestamp, so it cannot be converted to another format",
                mark.text
            );
            return Err(Error::config("http_cursor_type", text).hint("remove `format`"));
        }
    };
    Ok(match format {
        CursorFormat::AsIs => (mark.text.clone(), mark.is_number),
        CursorFormat::UnixSeconds => (seconds.div_euclid(NANOS).to_string(), true),
        CursorFormat::UnixMillis => (seconds.div_euclid(1_000_000).to_string(), true),
        CursorFormat::Date => {
            let days = seconds.div_euclid(NANOS * DAY_SECONDS);
            let mut text = Vec::new();
            time::write_date(i32::try_from(days).map_err(Error::internal)?, &mut text);
            (String::from_utf8_lossy(&text).into_owned(), false)
        }
    })
}

/// A message shows at most this many characters of a cursor.
const MAX_SHOWN_CHARS: usize = 200;

fn parse(text: &str, field: &str) -> Result<(Mark, HashSet<u64>)> {
    let unreadable = || {
        let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        let text = format!("the cursor {shown} is not a cursor of this source");
        saved::unreadable(text)
    };
    let saved: Saved = serde_json::from_str(text).map_err(|_| unreadable())?;
    if saved.field != field {
        let text = format!(
            "the stored cursor belongs to {}, not to {field}",
            saved.field
        );
        return Err(Error::config("cursor_changed", text)
            .hint("read the stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM`"));
    }
    let seen = saved.seen.iter().map(|hash| u64::from_str_radix(hash, 16));
    let seen = seen.collect::<Result<_, _>>().map_err(|_| unreadable())?;
    let mark = Mark {
        key: key(&saved.at, saved.is_number).ok_or_else(unreadable)?,
        text: saved.at,
        is_number: saved.is_number,
    };
    Ok((mark, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(saved: Option<&str>, allow_duplicates: bool, format: CursorFormat) -> Tracker {
        beginning("0", saved, allow_duplicates, format)
    }

    fn beginning(
        initial: &str,
        saved: Option<&str>,
        allow_duplicates: bool,
        format: CursorFormat,
    ) -> Tracker {
        let cursor = Cursor {
            field: "t".into(),
            param: "since".into(),
            format,
        };
        let increment = Increment {
            cursor_fields: vec!["t".into()],
            initial: Some(vec![initial.into()]),
            late_rows: LateRows::Lag(None),
            allow_duplicates,
        };
        Tracker::new(&cursor, &increment, saved).unwrap()
    }

    fn take(tracker: &mut Tracker, records: &[&str]) -> Result<Vec<bool>> {
        let records = records.iter();
        records
            .map(|text| tracker.takes(serde_json::from_str(text).unwrap()))
            .collect()
    }

    #[test]
    fn a_value_is_asked_for_again_and_its_records_come_once() {
        let mut first = tracker(None, false, CursorFormat::AsIs);
        assert_eq!(first.param().unwrap().unwrap().text, "0");
        let rows = [
            r#"{"t":5,"id":1}"#,
            r#"{"t":7,"id":2}"#,
            r#"{"t":6,"id":3}"#,
            r#"{"t":7,"id":4}"#,
        ];
        assert_eq!(take(&mut first, &rows).unwrap(), [true; 4]);
        let saved = first.checkpoint().unwrap().unwrap();
        let mut second = tracker(Some(&saved), false, CursorFormat::AsIs);
        assert_eq!(second.param().unwrap().unwrap().text, "7");
        let rows = [
            r#"{"t":7,"id":2}"#,
            r#"{"t":7,"id":5}"#,
            r#"{"t":6,"id":6}"#,
            r#"{"t":8,"id":7}"#,
        ];
        assert_eq!(
            take(&mut second, &rows).unwrap(),
            [false, true, false, true]
        );
        // Nothing new: what was delivered stays known.
        let third = tracker(Some(&saved), false, CursorFormat::AsIs);
        assert_eq!(third.checkpoint().unwrap().unwrap(), saved);
        let mut upsert = tracker(Some(&saved), true, CursorFormat::AsIs);
        assert_eq!(take(&mut upsert, &rows).unwrap(), [true; 4]);
    }

    #[test]
    fn timestamps_are_ordered_as_instants() {
        let mut times = beginning("2026-11-21", None, false, CursorFormat::UnixMillis);
        let rows = [
            r#"{"t":"2026-11-21T10:00:00Z"}"#,
            r#"{"t":"2026-11-21T10:00:00.5Z"}"#,
            r#"{"t":"2026-11-21T11:00:00+02:00"}"#,
        ];
        take(&mut times, &rows).unwrap();
        let saved = times.checkpoint().unwrap().unwrap();
        assert!(saved.contains("10:00:00.5Z"), "{saved}");
        let param = |format| {
            tracker(Some(&saved), false, format)
                .param()
                .unwrap()
                .unwrap()
                .text
        };
        assert_eq!(param(CursorFormat::UnixMillis), "1795255200500");
        assert_eq!(param(CursorFormat::UnixSeconds), "1795255200");
        assert_eq!(param(CursorFormat::Date), "2026-11-21");
        assert_eq!(param(CursorFormat::AsIs), "2026-11-21T10:00:00.5Z");
    }

    #[test]
    fn values_without_an_order_are_refused() {
        for rows in [
            &[r#"{"t":1}"#, r#"{"t":"a"}"#][..],
            &[r#"{"t":null}"#],
            &[r#"{"t":1.5}"#],
            &[r#"{"t":[]}"#],
            &["{}"],
        ] {
            let refused = take(&mut tracker(None, false, CursorFormat::AsIs), rows);
            assert_eq!(refused.unwrap_err().code, "http_cursor_type", "{rows:?}");
        }
    }

    #[test]
    fn numbers_in_quotes_are_ordered_as_numbers() {
        let mut first = tracker(None, false, CursorFormat::AsIs);
        let rows = [r#"{"t":"9"}"#, r#"{"t":"10"}"#, r#"{"t":"8"}"#];
        assert_eq!(take(&mut first, &rows).unwrap(), [true; 3]);
        let saved = first.checkpoint().unwrap().unwrap();
        let mut second = tracker(Some(&saved), false, CursorFormat::AsIs);
        assert_eq!(second.param().unwrap().unwrap().text, "10");
        let rows = [r#"{"t":"9"}"#, r#"{"t":"10","new":1}"#, r#"{"t":"11"}"#];
        assert_eq!(take(&mut second, &rows).unwrap(), [false, true, true]);
    }

    #[test]
    fn the_first_read_begins_where_it_is_told() {
        let begin = "2026-09-21T15:00:00Z";
        let mut times = beginning(begin, None, true, CursorFormat::UnixSeconds);
        assert_eq!(times.param().unwrap().unwrap().text, "1790002800");
        let rows = [
            r#"{"t":"2026-09-21T16:59:59+02:00"}"#,
            r#"{"t":"2026-09-21T15:00:00Z"}"#,
        ];
        assert_eq!(take(&mut times, &rows).unwrap(), [false, true]);
        let mut days = beginning("2026-09-21", None, true, CursorFormat::AsIs);
        let rows = [
            r#"{"t":"2026-09-20T23:00:00Z"}"#,
            r#"{"t":"2026-09-21T00:00:00Z"}"#,
        ];
        assert_eq!(take(&mut days, &rows).unwrap(), [false, true]);
        let mut wrong = beginning("yesterday", None, false, CursorFormat::AsIs);
        let refused = take(&mut wrong, &rows).unwrap_err();
        assert_eq!(refused.code, "http_cursor_type");
        assert!(matches!(refused.kind, ErrorKind::Config), "{refused:?}");
        let unsent = beginning("yesterday", None, false, CursorFormat::Date);
        assert_eq!(unsent.param().unwrap_err().code, "http_cursor_type");
    }
}

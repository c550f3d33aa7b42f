//! The cursor of an incremental read: its content, and the checks whether it still fits the source.
//!
//! The cursor is JSON that only this connector reads, in one of two forms:
//!
//! ```json
//! {"mode":"ordered","version":1,"fields":[{"name":"updated_at","type":"timestamptz"}],
//!  "values":["2026-11-21 10:11:12.123456+00"],
//!  "source":{"system":"7410000000000000000","wal":{"timeline":1,"lsn":"0/16B3748"},
//!            "database":5,"relation":16390,"columns":[4],"file":{"number":16390,"next":"755"}}}
//! {"mode":"exact","version":1,"system":"7410000000000000000","timeline":"00000001",
//!  "database":5,"first":"740","next":"755","tables":{"16390":[16390,"0af37c11"]},"gone":[]}
//! ```
//!
//! `source` is missing in cursors of earlier versions, and after `rapidbyte state rebind`: the next read adds its own.
//! Values are the server's own text under fixed settings (ISO dates, UTC, all digits of a float). Only the server
//! compares them, after a cast back to the type of the column.

use std::collections::BTreeMap;

use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::saved::unreadable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the form of cursors. A cursor of another version is refused.
pub(crate) const VERSION: u32 = 1;

/// The place where a read resumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub(crate) enum Cursor {
    /// After all rows up to some values.
    Ordered(Ordered),
    /// After the row versions of all transactions below an id.
    Exact(Exact),
}

/// The values of the last row that was delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ordered {
    pub version: u32,
    pub fields: Vec<Field>,
    /// One value for each field. `None` if the read has delivered only the rows without values, or no rows.
    pub values: Option<Vec<String>>,
    /// The server, database and table that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Identity>,
}

/// Tells a relation from another relation of the same name. A standby has the identity of its primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// `system_identifier` of `pg_control_system()`, if the role may call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The server's place in its log at the time of the read, if the role may ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<Wal>,
    /// The OID of the database.
    pub database: u32,
    /// The OID of the table or view.
    pub relation: u32,
    /// `pg_attribute.attnum` of the cursor's fields, in their order. A column keeps its number when it is renamed, and
    /// no other column of the relation ever gets that number. Empty in cursors of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<i16>,
    /// The file of the table's rows. `None` for views, and for tables with several parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<TableFile>,
}

/// The file of a table's rows. TRUNCATE, and each statement that rewrites all rows, gives the table another file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableFile {
    pub number: u32,
    /// The next transaction id at the time of the read, 32 bits. Rows that were read have older ids.
    pub next: String,
    /// The values of the cursor when the table was in another file than before and had no row up to them. A row up to
    /// these values was written later, and would never be read. The fact stays in the cursor while the cursor moves on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emptied_at: Option<Vec<String>>,
}

/// A place in the write-ahead log. Everything that a read saw is before it. A server that was restored or promoted
/// continues from an older place in a new timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wal {
    pub timeline: u32,
    pub lsn: Lsn,
}

/// A position in the log, as the server writes it: two halves in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Lsn(u64);

/// The server and the relation that a read finds.
#[derive(Debug)]
pub(crate) struct Here {
    pub identity: Identity,
    /// `pg_attribute.attnum` of all columns by name.
    pub numbers: BTreeMap<String, i16>,
    pub is_standby: bool,
    /// The place where the timeline began, if the server was a standby and took over since it started. A server that
    /// was restored and did not follow another server has `None`.
    pub took_over_at: Option<Lsn>,
}

/// One field of an ordered cursor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Field {
    pub name: String,
    /// The type's name in the catalog, below all domains.
    #[serde(rename = "type")]
    pub ty: String,
    /// The rule that orders texts, with its version if the server knows one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collation: Option<String>,
}

/// The progress of reads by windows of transaction ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exact {
    pub version: u32,
    /// `system_identifier` of `pg_control_system()`.
    pub system: String,
    /// Eight digits. A server that was restored or promoted continues in another timeline.
    pub timeline: String,
    /// The OID of the database.
    pub database: u32,
    /// The end of the first window, 64 bits.
    #[serde(with = "text")]
    pub first: u64,
    /// The beginning of the next window, 64 bits.
    #[serde(with = "text")]
    pub next: u64,
    /// The tables whose rows were read, by OID: the number of the file that holds the rows, and a
    /// fingerprint of the columns.
    pub tables: BTreeMap<String, (u32, String)>,
    /// Tables whose rows were read before and which no longer belong to the stream.
    pub gone: Vec<u32>,
}

impl Cursor {
    /// Errors: `cursor_unreadable`.
    pub fn parse(json: &str) -> Result<Self> {
        let refuse = |text: String| Err(unreadable(text));
        let Ok(value) = serde_json::from_str::<Value>(json) else {
            return refuse("the stored cursor is not JSON".to_owned());
        };
        let Value::Object(object) = &value else {
            return refuse(format!(
                "the stored cursor is {}, where source-postgres stores a JSON object",
                shape(&value)
            ));
        };
        match object.get("version") {
            Some(version) if *version == VERSION => {}
            Some(Value::Number(version)) => {
                let text = format!(
                    "the stored cursor has version {version}, and this source reads version {VERSION}"
                );
                return refuse(text);
            }
            Some(other) => {
                let text = format!(
                    "\"version\" of the stored cursor is {}, not a number",
                    shape(other)
                );
                return refuse(text);
            }
            None => return refuse("the stored cursor has no \"version\"".to_owned()),
        }
        let keys = match object.get("mode").and_then(Value::as_str) {
            Some("ordered") => "version, fields (each with a name and a type), values and source",
            Some("exact") => "version, system, timeline, database, first, next, tables and gone",
            _ => {
                let text = "\"mode\" of the stored cursor is neither \"ordered\" nor \"exact\"";
                return refuse(text.to_owned());
            }
        };
        // An absent value is written as null. If the key is missing, the cursor does not say where the read resumes.
        if object.get("mode").is_some_and(|mode| mode == "ordered")
            && !object.contains_key("values")
        {
            return refuse("the stored cursor has no \"values\"".to_owned());
        }
        serde_json::from_str(json).or_else(|_| {
            refuse(format!(
                "a key of the stored cursor is missing, unknown or of another kind; it has {keys}"
            ))
        })
    }

    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(Error::internal)
    }
}

/// A cursor, or a value in it, cut to the length that a message shows.
pub(crate) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The kind of a value in words, without its content.
fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl Field {
    /// Whether values of the other field are read and ordered in the same way. A column may become wider.
    fn is_like(&self, other: &Self) -> bool {
        const INTEGERS: [&str; 3] = ["int2", "int4", "int8"];
        const TEXTS: [&str; 2] = ["text", "varchar"];
        let both = |of: &[&str]| of.contains(&&*self.ty) && of.contains(&&*other.ty);
        self.collation == other.collation
            && (self.ty == other.ty || both(&INTEGERS) || both(&TEXTS))
    }

    fn shown(&self) -> String {
        let collation = self.collation.as_ref();
        let collation = collation.map_or(String::new(), |name| format!(", collation {name}"));
        format!("{} ({}{collation})", self.name, self.ty)
    }
}

impl Ordered {
    fn emptied_at(&self) -> Option<&[String]> {
        self.source.as_ref().and_then(Identity::emptied_at)
    }

    /// The numbers of the cursor's columns, if they are known.
    fn numbers(&self) -> Option<&[i16]> {
        let numbers = self.source.as_ref().map(|source| &source.columns[..]);
        numbers.filter(|numbers| numbers.len() == self.fields.len())
    }

    /// Columns are the same if they have the same number, whatever their names are. A cursor without numbers is
    /// compared by names. Errors: `cursor_changed` if the cursor has other fields.
    pub fn check(&self, fields: &[Field], here: &Here) -> Result<()> {
        let numbers = self.numbers();
        let is_column = |place: usize, field: &Field| match numbers {
            Some(numbers) => here.numbers.get(&field.name) == Some(&numbers[place]),
            None => self.fields[place].name == field.name,
        };
        let mut both = self.fields.iter().zip(fields).enumerate();
        if let Some(numbers) = numbers
            && let Some((place, (_, field))) =
                both.find(|(place, (then, now))| then.name == now.name && !is_column(*place, now))
        {
            return Err(replaced(&field.name, here.name(numbers[place])));
        }
        let mut both = self.fields.iter().zip(fields).enumerate();
        let is_same = self.fields.len() == fields.len()
            && both.all(|(place, (then, now))| is_column(place, now) && then.is_like(now))
            && self.values.as_ref().is_none_or(|v| v.len() == fields.len())
            && self.emptied_at().is_none_or(|v| v.len() == fields.len());
        if is_same {
            return Ok(());
        }
        let shown = |fields: &[Field]| -> String {
            let shown: Vec<_> = fields.iter().map(Field::shown).collect();
            shown.join(", ")
        };
        let (was, is) = (shown(&self.fields), shown(fields));
        Err(changed(format!(
            "the cursor was written with {was}, but the stream is read by {is}"
        )))
    }
}

impl Here {
    /// The name that the column of this number has now.
    fn name(&self, number: i16) -> Option<&str> {
        let mut columns = self.numbers.iter();
        let found = columns.find(|(_, other)| **other == number);
        found.map(|(name, _)| &**name)
    }
}

impl Identity {
    /// Refuses a cursor of another relation, and a cursor below which rows may be written again. Errors:
    /// `cursor_of_another_source`.
    pub fn check(&self, here: &Here) -> Result<()> {
        let read = &here.identity;
        let systems = self.system.as_ref().zip(read.system.as_ref());
        let other = if systems.is_some_and(|(cursor, here)| cursor != here) {
            "server"
        } else if self.database != read.database {
            "database"
        } else if self.relation != read.relation {
            "table: it was dropped and created again, or renamed"
        } else {
            return match (&self.wal, &read.wal) {
                (Some(cursor), Some(now)) if !here.is_standby => cursor.check(now, here),
                _ => Ok(()),
            };
        };
        let text = format!(
            "the cursor belongs to another {other}; rows below it would never be \
             read"
        );
        Err(Error::config(OTHER_SOURCE, text).hint(
            "start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`; after a restore or an upgrade that kept the rows, \
             `rapidbyte state rebind PIPELINE STREAM` keeps the cursor",
        ))
    }

    /// This identity, completed by the parts that only the cursor knows.
    pub fn merged(self, cursor: Option<&Self>, is_standby: bool) -> Self {
        let known = |of: fn(&Self) -> Option<&Wal>| cursor.and_then(of).cloned();
        let wal = match (known(|cursor| cursor.wal.as_ref()), self.wal) {
            // A standby may be behind the server of the last read, and learns its timeline late.
            (Some(cursor), Some(now)) if is_standby && now.timeline <= cursor.timeline => {
                Some(Wal {
                    lsn: cursor.lsn.max(now.lsn),
                    ..cursor
                })
            }
            (cursor, now) => now.or(cursor),
        };
        let emptied_at = cursor.and_then(Self::emptied_at);
        let file = self.file.map(|file| TableFile {
            emptied_at: emptied_at.map(<[String]>::to_vec),
            ..file
        });
        Self {
            system: self
                .system
                .or_else(|| cursor.and_then(|cursor| cursor.system.clone())),
            wal,
            file,
            ..self
        }
    }

    /// Whether a cursor with this identity can stay as it is, because only its place in the log differs.
    pub fn is_kept_by(&self, cursor: &Self) -> bool {
        let timeline = |of: &Self| of.wal.as_ref().map(|wal| wal.timeline);
        let is_same = timeline(self) == timeline(cursor);
        is_same
            && (&self.system, self.database, self.relation)
                == (&cursor.system, cursor.database, cursor.relation)
            && self.columns == cursor.columns
            && self.file_number() == cursor.file_number()
            && self.emptied_at() == cursor.emptied_at()
    }

    /// See [`TableFile::emptied_at`].
    pub fn emptied_at(&self) -> Option<&[String]> {
        self.file.as_ref()?.emptied_at.as_deref()
    }

    fn file_number(&self) -> Option<u32> {
        self.file.as_ref().map(|file| file.number)
    }
}

/// The error for a table in which all rows up to the cursor are new.
pub(crate) fn reloaded() -> Error {
    let text = "the table was emptied and filled again since its rows were read, and has rows up to the cursor: they \
                would never be read";
    Error::config(OTHER_SOURCE, text).hint(
        "start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`; if the rows up to the cursor are those \
         that were read, `rapidbyte state rebind PIPELINE STREAM` keeps the cursor",
    )
}

const OTHER_SOURCE: &str = "cursor_of_another_source";

impl Wal {
    /// Checks that the source still has everything that the cursor's read saw. That is known of a primary that is in
    /// the same timeline and further on, or that was a standby and took over after that place. Errors:
    /// `cursor_of_another_source`.
    fn check(&self, now: &Self, here: &Here) -> Result<()> {
        // Only a superuser may read the history of timelines. A timeline that directly follows the cursor's timeline
        // began in it.
        let is_next = now.timeline.checked_sub(1) == Some(self.timeline);
        let again = "rows that are written again below the cursor would never be read";
        let text = match here.took_over_at.filter(|_| is_next) {
            _ if now.timeline == self.timeline && now.lsn >= self.lsn => return Ok(()),
            _ if now.timeline == self.timeline => format!(
                "the source is at {}, before the {} of the cursor: it was restored from an older copy; {again}",
                now.lsn, self.lsn
            ),
            Some(began) if began >= self.lsn => {
                log::info(format_args!(
                    "a standby took over the source (timeline {} after {}) with everything that the cursor knows",
                    now.timeline, self.timeline
                ));
                return Ok(());
            }
            Some(began) => format!(
                "a standby took over the source (timeline {} after {}) without all that the cursor knows: it was at \
                 {began}, and the cursor is of {}; {again}",
                now.timeline, self.timeline, self.lsn
            ),
            None => format!(
                "the source is in timeline {}, and the cursor is of timeline {}: the server was restored from a \
                 backup, or a standby took over; after a restore to an earlier moment, {again}",
                now.timeline, self.timeline
            ),
        };
        Err(Error::config(OTHER_SOURCE, text).hint(
            "find out which it was; if a standby took over, or the backup was restored to a moment after the last run, \
             no row is missing: `rapidbyte state rebind PIPELINE STREAM` (or `--all`) keeps the cursor. If the source \
             lost rows, start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`",
        ))
    }

    /// The warning for a standby in a newer timeline than the cursor, if the role cannot ask where that timeline began.
    pub fn warning(&self, here: &Here) -> Option<String> {
        let now = here.identity.wal.as_ref()?.timeline;
        (here.is_standby && now > self.timeline).then(|| {
            format!(
                "the source is a standby in timeline {now}, and the cursor is of timeline {}: its primary was replaced \
                 or restored. After a restore to an earlier moment, rows that are written again below the cursor are \
                 not read: then start over with `rapidbyte run PIPELINE --full-refresh --select STREAM`",
                self.timeline
            )
        })
    }
}

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & u64::from(u32::MAX))
    }
}

impl From<Lsn> for String {
    fn from(lsn: Lsn) -> Self {
        lsn.to_string()
    }
}

impl TryFrom<String> for Lsn {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let half = |text: &str| u32::from_str_radix(text, 16).ok().map(u64::from);
        let halves = text.split_once('/');
        let number = halves.and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        number
            .map(Self)
            .ok_or("a position in the log is two hexadecimal numbers with a slash")
    }
}

/// The error for a cursor of other fields or of another server.
pub(crate) fn changed(text: impl std::fmt::Display) -> Error {
    Error::config("cursor_changed", text)
        .hint("run with --full-refresh to start over, or undo the change")
}

/// The error for a column that has the name of the cursor's column and is another one. `renamed`: the name that the
/// cursor's column has now.
fn replaced(name: &str, renamed: Option<&str>) -> Error {
    let (what, other) = match renamed {
        Some(now) => (
            format!("which is called {now:?} now"),
            format!("to go on with it, set cursor_field to {now:?}"),
        ),
        None => (
            "which was dropped".to_owned(),
            "if its values are the same, `rapidbyte state rebind PIPELINE STREAM` keeps the cursor"
                .to_owned(),
        ),
    };
    let text = format!(
        "{name:?} is another column than the one that the cursor was written with, {what}: rows below the cursor \
         would never be read"
    );
    Error::config("cursor_changed", text)
        .hint(format!(
            "{other}; to start over, run `rapidbyte run PIPELINE --full-refresh --select STREAM`"
        ))
        .in_column(name)
}

/// Numbers of 64 bits as text, because other readers of JSON may cut them.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&number.to_string())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn both_forms_come_back_and_others_are_refused() {
        for json in [
            r#"{"mode":"ordered","version":1,"fields":[{"name":"a","type":"int4"}],"values":["7"]}"#,
            r#"{"mode":"ordered","version":1,"fields":[{"name":"a","type":"text","collation":"C"}],"values":null}"#,
            r#"{"mode":"ordered","version":1,"fields":[],"values":null,"source":{"database":5,"relation":7}}"#,
            r#"{"mode":"ordered","version":1,"fields":[],"values":null,"source":{"system":"7","wal":{"timeline":3,"lsn":"1F/A0"},"database":5,"relation":7}}"#,
            r#"{"mode":"ordered","version":1,"fields":[],"values":null,"source":{"database":5,"relation":7,"columns":[2],"file":{"number":8,"next":"9","emptied_at":["1"]}}}"#,
            r#"{"mode":"exact","version":1,"system":"7","timeline":"00000001","database":5,"first":"740","next":"18446744073709551615","tables":{"16390":[16391,"ab"]},"gone":[1]}"#,
        ] {
            assert_eq!(Cursor::parse(json).unwrap().to_json().unwrap(), json);
        }
        for (wrong, words) in [
            ("", "is not JSON"),
            ("{", "is not JSON"),
            ("null", "is null,"),
            ("7", "is a number,"),
            ("[1]", "is a list,"),
            ("{}", "has no \"version\""),
            (r#"{"version":null}"#, "is null, not a number"),
            (
                r#"{"mode":"ordered","version":2,"fields":[],"values":null}"#,
                "has version 2, and this source reads version 1",
            ),
            (
                r#"{"mode":"ordered","version":1,"fields":[],"values":null,"more":1}"#,
                "unknown",
            ),
            (r#"{"mode":"exact","version":1,"system":7}"#, "timeline"),
            (
                r#"{"mode":"ordered","version":1,"fields":null,"values":null}"#,
                "fields",
            ),
            (
                r#"{"mode":"ordered","version":1,"fields":[{"name":"a","type":"int4"}]}"#,
                "has no \"values\"",
            ),
            (
                r#"{"mode":"ordered","version":1,"fields":[],"values":null,"source":{"database":5,"relation":7,"wal":{"timeline":1,"lsn":"x"}}}"#,
                "source",
            ),
            (r#"{"mode":"other","version":1}"#, "\"mode\""),
            (r#"{"version":1}"#, "\"mode\""),
        ] {
            let error = Cursor::parse(wrong).unwrap_err();
            assert_eq!(error.code, "cursor_unreadable", "{wrong}");
            let message = &error.message;
            assert!(message.contains(words), "{wrong}: {message}");
            assert!(
                !message.contains("line 1") && !message.contains("expected"),
                "{message}"
            );
            let hint = error.hint.unwrap();
            for verb in ["state get", "state set", "state clear", "--full-refresh"] {
                assert!(hint.contains(verb), "{hint}");
            }
        }
    }

    #[test]
    fn a_cursor_fits_its_own_fields_and_wider_ones() {
        let field = |ty: &str, collation: Option<&str>| Field {
            name: "a".into(),
            ty: ty.into(),
            collation: collation.map(Into::into),
        };
        let cursor = |field: Field| Ordered {
            version: VERSION,
            source: None,
            fields: vec![field],
            values: None,
        };
        let here = Here {
            identity: Identity {
                system: None,
                wal: None,
                database: 5,
                relation: 7,
                columns: vec![1],
                file: None,
            },
            numbers: BTreeMap::from([("a".into(), 1)]),
            is_standby: false,
            took_over_at: None,
        };
        let fits = |from: Field, to: Field| cursor(from).check(&[to], &here).is_ok();
        assert!(fits(field("int4", None), field("int8", None)));
        assert!(fits(field("text", Some("C")), field("varchar", Some("C"))));
        assert!(!fits(field("text", Some("C")), field("text", Some("C 2"))));
        assert!(!fits(field("int4", None), field("numeric", None)));
        assert!(!fits(field("timestamp", None), field("timestamptz", None)));
        let two = [field("int4", None), field("int4", None)];
        let error = cursor(field("int4", None)).check(&two, &here).unwrap_err();
        assert_eq!(error.code, "cursor_changed");
    }
}

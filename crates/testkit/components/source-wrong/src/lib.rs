//! A source that keeps the contract but for one clause, which `deed` names: each [`Deed`] proves that
//! `rapidbyte connector test` can fail that clause, and that one alone.
//!
//! Its stream `rows` counts in `n` and says so in `t`; it can be gone on with by `n`. What it says of
//! itself stands in constants: a test changes bytes of the file to have them wrong.

mod rows;

use std::cell::RefCell;

use rapidbyte_sdk::bindings::exports_source::{self as wit, Guest, GuestReader, GuestSession};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{Spec, files, ipc};
use serde_json::{Map, Value};

use crate::rows::{Rows, schema};

/// The JSON Schema of the settings.
const CONFIG_SCHEMA: &str = r#"{"type":"object","properties":{"deed":{"type":"string"},"rows":{"type":"integer","minimum":0},"state":{"type":"string","x-grant":"write"}},"required":["deed","rows"],"additionalProperties":false}"#;
/// The one stream.
const STREAM: &str = "rows";
/// A file that nobody grants.
const ELSEWHERE: &str = "/etc/hostname";

/// The one thing that is wrong.
#[derive(serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Nothing.
    None,
    /// `unknown-key`: takes keys that it does not know.
    TakesUnknownKey,
    /// `missing-key`: makes up the number of rows.
    TakesMissingKey,
    /// `check`: has looked at nothing.
    ChecksNothing,
    /// `denied`: panics when `state` is not granted.
    DiesWhenDenied,
    /// `discover`: has a source type too few.
    MiscountsTypes,
    /// `discover-again`: has another key when `state` is there, which it makes.
    ChangesItsKey,
    /// `read`: an error after the first batch.
    FailsInTheMiddle,
    /// `read-schema`: reads a column as nullable that is discovered as it is not.
    ReadsOtherSchema,
    /// `batches`: a row more than there is.
    MiscountsRows,
    /// `batches`: NULL where none may be.
    GivesNulls,
    /// `batch-bytes`: all rows in one batch.
    GivesOneBatch,
    /// `whole`: a batch behind the end.
    GoesOnBehindEnd,
    /// `whole`: a checkpoint that nobody asked for.
    GivesCheckpoint,
    /// `wait`: idle for ever, at once.
    Spins,
    /// `read-again`: values that depend on the time.
    MakesUpValues,
    /// `columns`: gives all of them.
    IgnoresColumns,
    /// `unknown-stream`: every name will do.
    TakesAnyStream,
    /// `unknown-column`: leaves those out that it does not have.
    TakesAnyColumn,
    /// `checkpoints`: none behind the last row.
    ForgetsLastCheckpoint,
    /// `order`: counts from the greatest number down, and goes on behind a checkpoint all the same.
    CountsBackwards,
    /// `resume`: the last row comes again.
    RepeatsARow,
    /// `foreign-cursor`: begins at the beginning.
    TakesAnyCursor,
    /// `cancel`: the file `state` is there while it reads, and stops another reader.
    LeavesALock,
    /// `reach`: opens a file of its own choice.
    ReachesOut,
    /// `no-trap`: panics at the first row.
    Panics,
    /// `limits`: keeps all memory that there is.
    Hoards,
    /// `errors`: an error without a proper code.
    ShoutsItsCode,
}

/// What stands under `config:`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The one thing that is wrong.
    pub deed: Deed,
    /// How many rows there are.
    pub rows: u64,
    /// A file that may be written.
    pub state: Option<String>,
}

/// The connector, opened with one configuration.
pub struct Session(Config);

/// One read.
pub struct Reading(RefCell<Rows>);

/// What is exported.
pub struct Export;

impl Config {
    /// Reads the settings.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |error: serde_json::Error| Error::config("invalid_config", error);
        let mut keys: Map<String, Value> = serde_json::from_str(text).map_err(refused)?;
        let missing = |key: &str| Error::config("missing_key", format!("{key} is missing"));
        let deed = keys.remove("deed").ok_or_else(|| missing("deed"))?;
        let deed: Deed = serde_json::from_value(deed).map_err(refused)?;
        let rows = match keys.remove("rows") {
            None if deed == Deed::TakesMissingKey => 7.into(),
            rows => rows.ok_or_else(|| missing("rows"))?,
        };
        let state = keys.remove("state");
        match keys.keys().next() {
            Some(key) if deed != Deed::TakesUnknownKey => {
                Err(Error::config("unknown_key", format!("{key} is not known")))
            }
            _ => Ok(Self {
                deed,
                rows: serde_json::from_value(rows).map_err(refused)?,
                state: state.and_then(|state| state.as_str().map(str::to_owned)),
            }),
        }
    }

    /// Whether the file `state` is there.
    fn has_state(&self) -> Result<bool> {
        let path = self.state.as_deref().unwrap_or_default();
        Ok(!files::find(path)?.is_empty())
    }

    fn make_state(&self) -> Result<()> {
        files::create(self.state.as_deref().unwrap_or_default())?.commit()
    }

    fn remove_state(&self) -> Result<()> {
        files::remove(self.state.as_deref().unwrap_or_default())
    }
}

impl Guest for Export {
    type Session = Session;
    type Reader = Reading;

    fn describe() -> Spec {
        Spec {
            name: "source-wrong".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: "Does one wrong thing, for tests of the tests".into(),
            config_schema: CONFIG_SCHEMA.into(),
            sync_modes: vec![SyncMode::FullRefresh, SyncMode::Incremental],
            write_modes: Vec::new(),
            native_forms: Vec::new(),
            takes_filter: false,
            keeps_cursor: false,
            drops_repeats: false,
        }
    }

    fn open(config: String) -> Result<wit::Session> {
        Ok(wit::Session::new(Session(Config::parse(&config)?)))
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>> {
        match self.0.deed {
            Deed::ChecksNothing => return Ok(Vec::new()),
            Deed::DiesWhenDenied => {
                let path = self.0.state.as_deref().unwrap_or_default();
                files::probe(path).expect("it can be written");
            }
            _ => {}
        }
        Ok(vec![CheckItem::ok(
            "count",
            format!("{} rows", self.0.rows),
        )])
    }

    fn discover(&self, _forms: Vec<String>) -> Result<Vec<Stream>> {
        let deed = self.0.deed;
        if deed == Deed::ReachesOut {
            files::open(ELSEWHERE)?;
        }
        let mut stream = Stream::new(STREAM, &schema(deed, false))?;
        stream.primary_key = vec!["n".into()];
        stream.cursor_fields = vec!["n".into()];
        match deed {
            Deed::MiscountsTypes => drop(stream.source_types.pop()),
            Deed::ChangesItsKey if self.0.has_state()? => stream.primary_key = vec!["t".into()],
            Deed::ChangesItsKey => self.0.make_state()?,
            _ => {}
        }
        Ok(vec![stream])
    }

    fn snapshot(&self, _streams: Vec<Selection>) -> Result<String> {
        Ok(String::new())
    }

    fn read(&self, request: ReadRequest) -> Result<wit::Reader> {
        if request.stream != STREAM && self.0.deed != Deed::TakesAnyStream {
            let code = match self.0.deed {
                Deed::ShoutsItsCode => "NO SUCH STREAM!",
                _ => "unknown_stream",
            };
            let text = format!("there is no stream {}", request.stream);
            return Err(Error::schema(code, text));
        }
        let rows = Rows::new(self.0.clone(), &request)?;
        if self.0.deed == Deed::LeavesALock {
            if self.0.has_state()? {
                let text = "another reader is at work";
                return Err(Error::new(ErrorKind::Transient, "locked", text));
            }
            self.0.make_state()?;
        }
        Ok(wit::Reader::new(Reading(RefCell::new(rows))))
    }

    fn acknowledge(&self, _stream: String, _cursor: String) -> Result<()> {
        Ok(())
    }
}

impl GuestReader for Reading {
    fn schema(&self) -> Vec<u8> {
        ipc::encode_schema(&self.0.borrow().schema).unwrap_or_default()
    }

    fn next(&self, _wait_ms: u32) -> Result<wit::Event> {
        self.0.borrow_mut().next()
    }
}

// A native shared library cannot carry the contract's symbol names.
#[cfg(target_family = "wasm")]
rapidbyte_sdk::bindings::source_world::export_source_world!(
    Export with_types_in rapidbyte_sdk::bindings::source_world
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_as_the_schema_says() {
        let good = Config::parse(r#"{"deed": "none", "rows": 3, "state": "s"}"#).unwrap();
        assert_eq!(
            (good.deed, good.rows, good.state.as_deref()),
            (Deed::None, 3, Some("s"))
        );
        for (text, named) in [
            (r#"{"rows": 3}"#, "deed"),
            (r#"{"deed": "none"}"#, "rows"),
            (r#"{"deed": "none", "rows": 3, "more": 1}"#, "more"),
        ] {
            assert!(
                Config::parse(text).unwrap_err().message.contains(named),
                "{text}"
            );
        }
        assert!(Config::parse(r#"{"deed": "takes_missing_key"}"#).is_ok());
        assert!(Config::parse(r#"{"deed": "takes_unknown_key", "rows": 1, "more": 1}"#).is_ok());
        assert!(serde_json::from_str::<Value>(CONFIG_SCHEMA).is_ok());
    }
}

//! A source that keeps the contract but for one clause, which `deed` names: each [`Deed`] proves that
//! `rapidbyte connector test` can fail that clause, and that one alone.
//!
//! Its stream `rows` counts in `n`, and `others` counts in steps of two. Each has values of some more
//! types, and resumes by `n`. Constants describe the source: a test changes bytes of the file to have
//! them wrong.

mod rows;
mod values;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rapidbyte_sdk::bindings::exports_source::{self as wit, Guest, GuestReader, GuestSession};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{Spec, files, ipc, one};
use serde_json::{Map, Value};

use crate::rows::Rows;
use crate::values::schema;

/// The JSON Schema of the settings.
const CONFIG_SCHEMA: &str = r#"{"type":"object","properties":{"deed":{"type":"string"},"rows":{"type":"integer","minimum":0},"state":{"type":"string","x-grant":"write"}},"required":["deed","rows"],"additionalProperties":false}"#;
/// The streams; the second one has a tenth of the rows.
const STREAMS: [&str; 2] = ["rows", "others"];
/// The snapshot that `snapshot` returns.
const SNAPSHOT: &str = "now";
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
    /// `read`: does not know its second stream, which it discovers.
    RefusesItsStream,
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
    /// `discover`: declares a column of a type that does not exist, as a connector in Python may.
    DeclaresNoType,
    /// `columns`: gives all of them.
    IgnoresColumns,
    /// `unknown-stream`: every name will do.
    TakesAnyStream,
    /// `unknown-column`: leaves those out that it does not have.
    TakesAnyColumn,
    /// `checkpoints`: none behind the last row.
    ForgetsLastCheckpoint,
    /// `order`: counts down from the greatest number, and still resumes behind a checkpoint.
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
    /// `read`: nanoseconds in a column of microseconds.
    MistakesTimeUnit,
    /// `read`: midnight as 24:00.
    WritesMidnightAs24,
    /// `read`: a decimal of more digits than its type has.
    OverflowsDecimal,
    /// `other-batches`: the last row of a full batch is lost.
    DropsRowAtBorder,
    /// `other-batches`: the last row of a full batch is the first of the next one too.
    DoublesRowAtBorder,
    /// `other-batches`: the last batch is lost if it is full.
    DropsLastFullBatch,
    /// `other-batches`: the last batch is lost unless it is full.
    DropsLastPartialBatch,
    /// `other-batches`: counts from the batch on which values are NULL.
    ShiftsNulls,
    /// `batch-bytes`: 500 rows, whatever is asked.
    IgnoresBatchBytes,
    /// `max-record`: cuts the text of a record that is too large.
    CutsLongRecords,
    /// `max-record`: leaves such a record out.
    SkipsLongRecords,
    /// `columns`: gives them in the order of the table.
    SortsColumns,
    /// `columns`: names them as asked, and fills columns of one type in the order of the table.
    MixesUpColumns,
    /// `columns`: the key comes too.
    AddsItsKey,
    /// `columns`: numbers lose their sign when columns are chosen.
    LosesSignOfChosen,
    /// `cursor-columns`: the cursor field comes too.
    AddsCursorField,
    /// `filter`: all rows, whatever the condition.
    IgnoresFilter,
    /// `filter`: `>` in place of `>=`.
    FiltersOffByOne,
    /// `session`: a second read continues where the first read ended.
    GoesOnInSession,
    /// `session`: a second read has the columns of the first one.
    KeepsColumnsInSession,
    /// `snapshot`: another session does not know it.
    KeepsSnapshotToItself,
    /// `unknown-column`: a cursor field that there is not is `n`.
    TakesAnyCursorField,
    /// `checkpoints`: reads up to the last row, and without it.
    LeavesOutLastRow,
    /// `checkpoints`: times are an hour later in an incremental read.
    DropsZoneInIncrements,
    /// `resume`: the checkpoint behind a batch comes before it.
    ChecksInTooEarly,
    /// `resume`: the first row behind a cursor is lost.
    LosesARow,
    /// `initial`: begins at the beginning.
    IgnoresInitial,
    /// `initial`: begins behind the value and not with it.
    BeginsBehindInitial,
    /// `initial`: reads a string that is not an integer as 0.
    TakesAnyInitial,
    /// `initial`: begins there again although there is a cursor.
    PrefersInitial,
    /// `late-rows`: reads by order where `exact` is asked.
    IgnoresExact,
    /// `late-rows`: reads from the cursor on where a lag is asked.
    IgnoresLag,
    /// `other-cursor`: begins at the beginning with a cursor of another stream.
    TakesOthersCursor,
    /// `other-cursor`: skips as many rows as the cursor of another stream says.
    MixesUpCursors,
    /// No fault: its cursors are places in a log, so that `exact` and an ordered read have the same ones.
    ReadsALog,
    /// Nothing sees it: an empty text is NULL, everywhere.
    EmptyTextIsNull,
    /// Nothing sees it: times are an hour later, everywhere.
    DropsZone,
}

/// The connector's `config:`.
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
pub struct Session {
    config: Config,
    memory: Memory,
    /// It gave its snapshot.
    has_snapshot: Cell<bool>,
}

/// The state that a session should not keep from one read to the next.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Where the last read is.
    pub at: Rc<Cell<u64>>,
    /// The columns of the first read.
    pub columns: Rc<RefCell<Option<Vec<String>>>>,
}

/// One read.
pub struct Reading(RefCell<Rows>);

/// The component's exports.
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
            sync_modes: vec![SyncMode::FullRefresh, SyncMode::Incremental],
            supports_filter: true,
            ..Spec::plain(
                "source-wrong",
                env!("CARGO_PKG_VERSION"),
                "Does one wrong thing, for tests of the tests",
                CONFIG_SCHEMA,
            )
        }
    }

    fn open(config: String) -> Result<wit::Session> {
        Ok(wit::Session::new(Session {
            config: Config::parse(&config)?,
            memory: Memory::default(),
            has_snapshot: Cell::new(false),
        }))
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>> {
        match self.config.deed {
            Deed::ChecksNothing => return Ok(Vec::new()),
            Deed::DiesWhenDenied => {
                let path = self.config.state.as_deref().unwrap_or_default();
                files::probe(path).expect("it can be written");
            }
            _ => {}
        }
        Ok(vec![CheckItem::ok(
            "count",
            format!("{} rows", self.config.rows),
        )])
    }

    fn discover(&self, _forms: Vec<String>) -> Result<Vec<Stream>> {
        let deed = self.config.deed;
        if deed == Deed::ReachesOut {
            files::open(ELSEWHERE)?;
        }
        if deed == Deed::DeclaresNoType {
            let text = "column \"product\": unknown type \"strin\"";
            return Err(Error::schema("unknown_type", text).in_column("product"));
        }
        let mut streams = Vec::new();
        for name in STREAMS {
            let mut stream = Stream::new(name, &schema(deed, false))?;
            stream.primary_key = vec!["n".into()];
            stream.cursor_fields = vec!["n".into()];
            streams.push(stream);
        }
        match deed {
            Deed::MiscountsTypes => drop(streams[0].source_types.pop()),
            Deed::ChangesItsKey if self.config.has_state()? => {
                streams[0].primary_key = vec!["t".into()];
            }
            Deed::ChangesItsKey => self.config.make_state()?,
            _ => {}
        }
        Ok(streams)
    }

    fn describe_query(&self, _: String, _: String, _: Vec<String>) -> Result<Stream> {
        Err(Error::internal("it has no queries"))
    }

    fn digest_limits(&self, _: Selection, _: Option<String>) -> Result<Vec<RowLimit>> {
        Err(Error::internal("it has no digests"))
    }

    fn digest(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: Option<Buckets>,
        _: u8,
    ) -> Result<Vec<Bucket>> {
        Err(Error::internal("it has no digests"))
    }

    fn digest_rows(
        &self,
        _: Selection,
        _: Option<String>,
        _: String,
        _: Vec<RowLimit>,
        _: ChosenRows,
        _: u32,
    ) -> Result<Vec<DigestedRow>> {
        Err(Error::internal("it has no digests"))
    }

    fn snapshot(&self, _streams: Vec<Selection>) -> Result<String> {
        self.has_snapshot.set(true);
        Ok(SNAPSHOT.into())
    }

    fn read(&self, requests: Vec<ReadRequest>) -> Result<wit::Reader> {
        let deed = self.config.deed;
        let request = one::only(requests, "reads-together");
        let mut request = request.map_err(Error::internal)?;
        let forgets = deed == Deed::RefusesItsStream && request.stream == STREAMS[1];
        if !STREAMS.contains(&request.stream.as_str()) || forgets {
            let code = match deed {
                Deed::TakesAnyStream => "",
                Deed::ShoutsItsCode => "NO SUCH STREAM!",
                _ => "unknown_stream",
            };
            let text = format!("there is no stream {}", request.stream);
            if deed != Deed::TakesAnyStream {
                return Err(Error::schema(code, text));
            }
            request.stream = STREAMS[0].into();
        }
        if deed == Deed::KeepsSnapshotToItself && !self.has_snapshot.get() {
            let text = format!("there is no snapshot {}", request.snapshot);
            return Err(Error::config("unknown_snapshot", text));
        }
        let rows = Rows::new(self.config.clone(), &request, self.memory.clone())?;
        if deed == Deed::LeavesALock {
            if self.config.has_state()? {
                let text = "another reader is at work: remove its lock when it has ended";
                return Err(Error::config("locked", text));
            }
            self.config.make_state()?;
        }
        Ok(wit::Reader::new(Reading(RefCell::new(rows))))
    }
}

impl GuestReader for Reading {
    fn schemas(&self) -> Vec<Vec<u8>> {
        vec![ipc::encode_schema(&self.0.borrow().schema).unwrap_or_default()]
    }

    fn next(&self, _wait_ms: u32) -> Result<wit::Event> {
        self.0.borrow_mut().next()
    }

    fn acknowledge(&self, _positions: Vec<wit::Position>) -> Result<()> {
        Ok(())
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

//! A destination that keeps the contract but for one clause, which `deed` names: each [`Deed`] proves
//! that `rapidbyte connector test` can fail that clause, and that one alone.
//!
//! It counts: what is committed of a stream is a file `state` with its progress, and a file `rows` with
//! one line for each row, for a peer to read.

mod state;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_sdk::bindings::exports_destination::{self as wit, Guest, GuestSession, GuestWriter};
use rapidbyte_sdk::ipc::Decoder;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use rapidbyte_sdk::{Spec, files};
use serde_json::{Map, Value};

use crate::state::{Place, State};

/// The JSON Schema of the settings.
const CONFIG_SCHEMA: &str = r#"{"type":"object","properties":{"deed":{"type":"string"},"rows":{"type":"string","x-grant":"write"},"state":{"type":"string","x-grant":"write"},"look":{"type":"string","x-grant":"read"}},"required":["deed","rows","state","look"],"additionalProperties":false}"#;

/// The one thing that is wrong.
#[derive(serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Nothing.
    None,
    /// `plan`: names the columns in another order.
    TurnsColumns,
    /// `write`: a row less in the receipt.
    MiscountsRows,
    /// `types`: plans for bytes and fails to write them.
    FailsAtBytes,
    /// `empty`: a stream without rows is an error.
    FailsWithoutRows,
    /// `staged`: rows are visible when they are flushed.
    ShowsEarly,
    /// `abort`: what was flushed stays.
    KeepsAborted,
    /// `bad-batch`: drops what it cannot decode.
    TakesGarbage,
    /// `progress`: forgets the cursor.
    ForgetsCursor,
    /// `commit-once`: does not count commits.
    CommitsTwice,
    /// `fence`: older runs may commit too.
    LetsBothCommit,
    /// `cancel`: who writes locks the stream until it commits or aborts.
    LeavesALock,
}

/// What stands under `config:`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Config {
    deed: Deed,
    rows: String,
    state: String,
    look: String,
}

/// What one stream of this session has not committed.
struct Open {
    place: Place,
    epoch: u64,
    replaces: bool,
    flushed: u64,
}

type Streams = Rc<RefCell<BTreeMap<String, Open>>>;

/// The connector, opened with one configuration.
pub struct Session {
    config: Config,
    open: Streams,
}

/// Writes one stream.
pub struct Writing {
    deed: Deed,
    stream: String,
    open: Streams,
    decoder: Decoder,
    rows: RefCell<u64>,
}

/// What is exported.
pub struct Export;

fn parse(text: &str) -> Result<Config> {
    let refused = |error: serde_json::Error| Error::config("invalid_config", error);
    let keys: Map<String, Value> = serde_json::from_str(text).map_err(refused)?;
    let known = ["deed", "rows", "state", "look"];
    if let Some(key) = keys.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(Error::config("unknown_key", format!("{key} is not known")));
    }
    serde_json::from_value(Value::Object(keys)).map_err(refused)
}

impl Guest for Export {
    type Session = Session;
    type Writer = Writing;

    fn describe() -> Spec {
        Spec {
            name: "dest-wrong".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: "Does one wrong thing, for tests of the tests".into(),
            config_schema: CONFIG_SCHEMA.into(),
            sync_modes: Vec::new(),
            write_modes: vec![WriteMode::Append, WriteMode::Replace],
            native_forms: Vec::new(),
            takes_filter: false,
            keeps_cursor: true,
            drops_repeats: false,
        }
    }

    fn open(config: String) -> Result<wit::Session> {
        Ok(wit::Session::new(Session {
            config: parse(&config)?,
            open: Streams::default(),
        }))
    }
}

impl Session {
    fn place(&self, stream: &str) -> Place {
        let Config {
            rows, state, look, ..
        } = &self.config;
        Place::new([rows, state, look], stream)
    }

    fn answer(&self, state: &State) -> Progress {
        let forgets = self.config.deed == Deed::ForgetsCursor;
        Progress {
            epoch: state.epoch,
            seq: state.seq,
            cursor: state.cursor.clone().filter(|_| !forgets),
            run_id: state.run_id.clone(),
            complete: state.complete,
            lost_rows: None,
        }
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>> {
        let path = self.place("check").rows;
        Ok(vec![match files::probe(&path) {
            Ok(()) => CheckItem::ok("write", "a file can be created"),
            Err(error) => CheckItem::failed("write", error),
        }])
    }

    fn plan(&self, target: Target) -> Result<Plan> {
        let place = self.place(&target.stream);
        let schema = target.arrow_schema()?;
        let columns = schema.fields().iter().map(|field| ColumnPlan {
            column: field.name().clone(),
            target_type: type_name(field),
            fit: Fit::Exact,
            note: None,
        });
        let mut columns: Vec<ColumnPlan> = columns.collect();
        if self.config.deed == Deed::TurnsColumns {
            columns.reverse();
        }
        Ok(Plan {
            is_new: !place.has_rows()?,
            location: place.rows,
            columns,
            statements: Vec::new(),
            notes: Vec::new(),
        })
    }

    fn progress(&self, target: Target, _pipeline: String) -> Result<Option<Progress>> {
        let state = self.place(&target.stream).read()?;
        Ok(state.map(|state| self.answer(&state)))
    }

    fn working(&self, _pipeline: String) -> Result<Vec<wit::Worker>> {
        Ok(Vec::new())
    }

    fn beat(&self, _presence: wit::Presence) -> Result<bool> {
        Ok(false)
    }

    fn fence(&self, target: Target, run: Run) -> Result<Progress> {
        let place = self.place(&target.stream);
        let mut state = place.read()?.unwrap_or_default();
        state.epoch += 1;
        state.complete &= state.run_id == run.id;
        state.run_id = run.id;
        place.write(&state)?;
        let progress = self.answer(&state);
        let open = Open {
            place,
            epoch: state.epoch,
            replaces: target.write_mode == WriteMode::Replace,
            flushed: 0,
        };
        self.open.borrow_mut().insert(target.stream, open);
        Ok(progress)
    }

    fn open_writer(
        &self,
        target: Target,
        _epoch: u64,
        _cursor: Option<String>,
    ) -> Result<wit::Writer> {
        if self.config.deed == Deed::LeavesALock {
            self.place(&target.stream).lock()?;
        }
        Ok(wit::Writer::new(Writing {
            deed: self.config.deed,
            decoder: Decoder::new(&target.schema)?,
            stream: target.stream,
            open: Rc::clone(&self.open),
            rows: RefCell::default(),
        }))
    }

    fn commit(
        &self,
        stream: String,
        parts: Vec<Part>,
        seq: u64,
        cursor: Option<String>,
        complete: bool,
    ) -> Result<Receipt> {
        let deed = self.config.deed;
        let rows: u64 = parts.iter().map(|part| part.rows).sum();
        if deed == Deed::FailsWithoutRows && !parts.is_empty() && rows == 0 {
            return Err(Error::data("no_rows", "there is no row"));
        }
        let mut open = self.open.borrow_mut();
        let open = open
            .get_mut(&stream)
            .ok_or_else(|| Error::internal("nobody was let in"))?;
        let mut state = open.place.read()?.unwrap_or_default();
        if state.epoch != open.epoch && deed != Deed::LetsBothCommit {
            let text = format!("the run {} was let in", state.run_id);
            return Err(Error::new(ErrorKind::Superseded, "run_superseded", text));
        }
        if state.seq != seq && deed != Deed::CommitsTwice {
            return Err(Error::internal(format!("{} commits, not {seq}", state.seq)));
        }
        state.rows = rows + if open.replaces { 0 } else { state.rows };
        (state.seq, state.cursor, state.complete) = (state.seq + 1, cursor, complete);
        open.flushed = 0;
        open.place.write(&state)?;
        open.place.show(state.rows)?;
        if deed == Deed::LeavesALock {
            open.place.unlock()?;
        }
        Ok(Receipt {
            rows: rows - u64::from(deed == Deed::MiscountsRows && rows > 0),
            bytes: rows,
            location: open.place.rows.clone(),
        })
    }

    fn abort(&self, stream: String) -> Result<()> {
        let Some(open) = self.open.borrow_mut().remove(&stream) else {
            return Ok(());
        };
        match self.config.deed {
            Deed::LeavesALock => open.place.unlock(),
            Deed::KeepsAborted if open.flushed > 0 => open.place.show(open.flushed),
            Deed::ShowsEarly if open.flushed > 0 => open.place.hide(),
            _ => Ok(()),
        }
    }
}

impl GuestWriter for Writing {
    fn write(&self, batch: wit::Batch) -> Result<()> {
        let decoded = match self.decoder.decode(batch.data) {
            Ok(decoded) if decoded.num_rows() as u64 == batch.rows => decoded,
            _ if self.deed == Deed::TakesGarbage => return Ok(()),
            Ok(_) => return Err(Error::internal("another number of rows than was said")),
            Err(error) => return Err(error.into()),
        };
        let schema = decoded.schema();
        let bytes = schema
            .fields()
            .iter()
            .find(|field| field.data_type() == &DataType::Binary);
        if let (Deed::FailsAtBytes, Some(field)) = (self.deed, bytes) {
            return Err(Error::data(
                "no_bytes",
                format!("{} has bytes", field.name()),
            ));
        }
        *self.rows.borrow_mut() += batch.rows;
        Ok(())
    }

    fn flush(&self) -> Result<Part> {
        let rows = self.rows.take();
        if let Some(open) = self.open.borrow_mut().get_mut(&self.stream) {
            open.flushed += rows;
            if self.deed == Deed::ShowsEarly {
                open.place.show(open.flushed)?;
            }
        }
        Ok(Part {
            data: Vec::new(),
            rows,
            bytes: rows,
        })
    }
}

// A native shared library cannot carry the contract's symbol names.
#[cfg(target_family = "wasm")]
rapidbyte_sdk::bindings::destination_world::export_destination_world!(
    Export with_types_in rapidbyte_sdk::bindings::destination_world
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_as_the_schema_says() {
        let good = r#"{"deed": "none", "rows": "r", "state": "s", "look": "s"}"#;
        assert_eq!(parse(good).unwrap().deed, Deed::None);
        let missing = parse(r#"{"deed": "none", "rows": "r", "look": "s"}"#).unwrap_err();
        assert!(missing.message.contains("state"), "{}", missing.message);
        let unknown = parse(&good.replace("look", "more")).unwrap_err();
        assert!(unknown.message.contains("more"), "{}", unknown.message);
        assert!(serde_json::from_str::<Value>(CONFIG_SCHEMA).is_ok());
    }
}

//! Records that do not get into the target, in a collection of their own: rows that this destination or the server
//! refuses, and records that the source cannot read.
//!
//! A reject has an `_id` like a row (`ids.rs`), so that the rejects of an attempt that was not committed are known: they
//! are not listed, and the next run deletes them. `first` has the order: the time at which the record was first kept, and
//! the `_id` that it had then.

use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_bson::{Builder, Value};
use rapidbyte_formats::object;
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::bulk::{Source, rows_missing};
use crate::config::{Settings, check_collection};
use crate::ids::{self, Tag};
use crate::ledger;

/// Rejects are sent when they have this many bytes.
const PENDING_BYTES: usize = 1 << 20;

/// The collection for the rejects of a target. `None` if it keeps none. Errors: `invalid_name`, `shared_target`.
pub(crate) fn collection(
    settings: &Settings,
    target: &Target,
    filled: &str,
) -> Result<Option<String>> {
    let Some(rejects) = &target.rejects else {
        return Ok(None);
    };
    named(settings, &rejects.to)?;
    match rejects.to == filled {
        true => {
            let text = format!("{filled} cannot keep rejects: a stream is written to it");
            Err(Error::config("shared_target", text)
                .hint("name another collection, such as rejects")
                .at("rejects.to"))
        }
        false => Ok(Some(rejects.to.clone())),
    }
}

pub(crate) fn named(settings: &Settings, to: &str) -> Result<()> {
    check_collection(&settings.database, to).map_err(|error| {
        error
            .hint("name a collection, such as rejects")
            .at("rejects.to")
    })?;
    match settings.is_own(to) {
        false => Ok(()),
        true => {
            let text = format!("{to:?} is a collection of Rapidbyte itself");
            Err(Error::config("invalid_name", text)
                .hint("name another collection, such as rejects")
                .at("rejects.to"))
        }
    }
}

/// Keeps the rejects of a load.
pub(crate) struct Keeper {
    pub to: String,
    run: Run,
    stream: String,
    target: String,
    tag: Tag,
    epoch: u32,
    /// The number of the next reject in this epoch.
    pub next: u64,
    /// The places of the rejects that are replayed, for records that fail again.
    first: VecDeque<Vec<u8>>,
    /// The refused rows that the host does not know yet.
    refused: Refused,
    pending: Vec<u8>,
    pending_rows: u64,
}

impl Keeper {
    pub fn new(
        to: String,
        run: &Run,
        stream: &str,
        target: String,
        (tag, epoch): (Tag, u32),
        first: Vec<Vec<u8>>,
    ) -> Self {
        Self {
            to,
            run: run.clone(),
            stream: stream.to_owned(),
            target,
            tag,
            epoch,
            next: 0,
            first: first.into(),
            refused: Refused::default(),
            pending: Vec::new(),
            pending_rows: 0,
        }
    }

    /// The rows that were refused since the last call.
    pub fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }

    /// Keeps a row.
    pub fn refuse(&mut self, source: &Source, error: &Error) -> Result<()> {
        let (data, is_cut) = object(&source.batch, source.row);
        let reject = Reject {
            data,
            is_cut,
            location: Some(format!("row {}", source.number)),
            column: error.column.clone(),
            code: error.code.clone(),
            message: error.message.clone(),
            read_with: None,
        };
        self.refused.add(&reject);
        self.keep(RejectOrigin::Destination, &reject)
    }

    /// Keeps a record, or a row.
    pub fn keep(&mut self, origin: RejectOrigin, reject: &Reject) -> Result<()> {
        let id = ids::id(self.tag, self.epoch, self.next)?;
        self.next += 1;
        // A record that was divided into several may fail more than once.
        let first = match self.first.len() {
            0 | 1 => self.first.front().cloned(),
            _ => self.first.pop_front(),
        };
        let now = now();
        let own = || [&now.to_be_bytes()[..], &id].concat();
        let mut document = Builder::onto(std::mem::take(&mut self.pending));
        document
            .binary("_id", &id)
            .binary("first", &first.unwrap_or_else(own))
            .value("rejected_at", &Value::DateTime(now))
            .string("pipeline", &self.run.pipeline)
            .string("run_id", &self.run.id)
            .string("stream", &self.stream)
            .string("target", &self.target)
            .string("origin", origin.name())
            .string("code", &reject.code)
            .string("message", &reject.message);
        for (name, text) in [
            ("location", &reject.location),
            ("column", &reject.column),
            ("read_with", &reject.read_with),
        ] {
            if let Some(text) = text {
                document.string(name, text);
            }
        }
        match std::str::from_utf8(&reject.data) {
            Ok(record) => document.string("record", record),
            Err(_) => document.binary("record", &reject.data),
        };
        document.boolean("record_is_cut", reject.is_cut);
        self.pending = document.finish().map_err(Error::internal)?;
        self.pending_rows += 1;
        Ok(())
    }

    /// Whether the rejects have to be sent before more are added.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_BYTES
    }

    /// Writes the rejects into their collection. No answer may be due on the connection.
    pub fn send(&mut self, client: &mut Client, settings: &Settings) -> Result<()> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        let documents = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.pending_rows);
        let mut command = Builder::new();
        command.string("insert", &self.to).boolean("ordered", false);
        settings.add_write_concern(&mut command);
        let written = client.write(&settings.database, command, "documents", &documents)?;
        if let Some(concern) = written.concern {
            return Err(ledger::unconcerned(&concern.message));
        }
        if let Some(failed) = written.errors.into_iter().next() {
            let to = settings.namespace(&self.to);
            let text = format!("{to} does not take rejects: {}", failed.error.message);
            return Err(Error::new(failed.error.kind, &failed.error.code, text).at("rejects.to"));
        }
        match written.count == rows {
            true => Ok(()),
            false => {
                let count = written.count;
                let text = format!(
                    "the server says that it wrote {count} of {rows} rejects, and names no error"
                );
                Err(rows_missing(text))
            }
        }
    }
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Makes the index by which rejects are read in their order.
pub(crate) fn make(client: &mut Client, settings: &Settings, to: &str) -> Result<()> {
    let mut command = Builder::new();
    command
        .string("createIndexes", to)
        .open_array("indexes")
        .open_document("0")
        .open_document("key")
        .int32("pipeline", 1)
        .int32("first", 1)
        .int32("_id", 1)
        .close()
        .string("name", "pipeline_1_first_1__id_1")
        .close()
        .close();
    settings.add_write_concern(&mut command);
    client.command(&settings.database, command).map(|_| ())
}

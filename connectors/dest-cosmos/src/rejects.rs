//! Records that do not get into the target, in a container of their own: rows that this destination or the server
//! refuses, and records that the source cannot read.
//!
//! A reject has an id like a row (`ids.rs`), so that the rejects of an attempt that was not committed are known: they are
//! not listed, and the next run deletes them. `place` has the order: the time at which the record was first kept and the
//! id that it had then, a point, and its id.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use rapidbyte_cosmos::{Container, Operation, Outcome, Param, PartitionKey, check_name, find};
use rapidbyte_formats::object;
use rapidbyte_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::ids::{self, Epochs};
use crate::ledger::{self, PARTITION};
use crate::replay;
use crate::server::Server;
use crate::writer::Source;

/// Rejects of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of the records and messages of a page, which may be one reject longer.
const PAGE_BYTES: usize = 1 << 20;
/// Rejects are sent when they have this many bytes.
const PENDING_BYTES: usize = 1 << 20;
const PAGE_ITEMS: u32 = 200;

/// The container for the rejects of a target. `None` if it keeps none. Errors: `invalid_name`, `shared_target`.
pub(crate) fn container(
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
                .hint("name another container, such as rejects")
                .at("rejects.to"))
        }
        false => Ok(Some(rejects.to.clone())),
    }
}

fn named(settings: &Settings, to: &str) -> Result<()> {
    check_name(to, "container").map_err(|error| {
        error
            .hint("name a container, such as rejects")
            .at("rejects.to")
    })?;
    match to == settings.checkpoint_container {
        false => Ok(()),
        true => {
            let text = format!("{to:?} is a container of Rapidbyte itself");
            Err(Error::config("invalid_name", text)
                .hint("name another container, such as rejects")
                .at("rejects.to"))
        }
    }
}

/// The container of rejects, made if it does not exist. Errors: `rejects_differ`.
pub(crate) fn make(server: &mut Server, to: &str) -> Result<()> {
    let container = server.make(to, &PartitionKey::parse(PARTITION)?, None)?;
    ensure_ours(&container)
}

/// The rejects of a pipeline are one partition, so that their order holds. Errors: `rejects_differ`.
fn ensure_ours(container: &Container) -> Result<()> {
    match container.partition.to_string() == PARTITION {
        true => Ok(()),
        false => {
            let text = format!(
                "the container {} has the partition key {}, and rejects need {PARTITION}",
                container.name, container.partition
            );
            Err(Error::schema("rejects_differ", text)
                .hint("name another container for rejects")
                .at("rejects.to"))
        }
    }
}

/// A reject as its document has it.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    id: String,
    place: String,
    rejected_at: String,
    pipeline: String,
    run_id: String,
    stream: String,
    target: String,
    origin: String,
    code: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    column: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read_with: Option<String>,
    /// The record, as text or, where it is not UTF-8, as hexadecimal digits.
    record: String,
    record_is_hex: bool,
    record_is_cut: bool,
    #[serde(rename = "_etag", default, skip_serializing)]
    etag: String,
}

/// Keeps the rejects of a load.
pub(crate) struct Keeper {
    pub to: String,
    run: Run,
    stream: String,
    target: String,
    tag: String,
    epoch: u32,
    /// The number of the next reject in this epoch.
    pub next: u64,
    /// The places of the rejects that are replayed, for records that fail again.
    first: VecDeque<String>,
    /// The refused rows that the host does not know yet.
    refused: Refused,
    pending: Vec<String>,
    pending_bytes: usize,
}

impl Keeper {
    pub fn new(
        to: String,
        run: &Run,
        stream: &str,
        target: String,
        (tag, epoch): (String, u32),
        first: Vec<String>,
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
            pending_bytes: 0,
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
        let id = ids::id(&self.tag, self.epoch, self.next)?;
        self.next += 1;
        // A record that was divided into several may fail more than once.
        let first = match self.first.len() {
            0 | 1 => self.first.front().cloned(),
            _ => self.first.pop_front(),
        };
        let ms = now_ms();
        let first = first.unwrap_or_else(|| format!("{ms:016x}{id}"));
        let (record, record_is_hex) = match std::str::from_utf8(&reject.data) {
            Ok(record) => (record.to_owned(), false),
            Err(_) => {
                let digits = reject.data.iter().map(|byte| format!("{byte:02x}"));
                (digits.collect(), true)
            }
        };
        let stored = Stored {
            place: format!("{first}.{id}"),
            id,
            rejected_at: time_text(ms),
            pipeline: self.run.pipeline.clone(),
            run_id: self.run.id.clone(),
            stream: self.stream.clone(),
            target: self.target.clone(),
            origin: origin.name().to_owned(),
            code: reject.code.clone(),
            message: reject.message.clone(),
            location: reject.location.clone(),
            column: reject.column.clone(),
            read_with: reject.read_with.clone(),
            record,
            record_is_hex,
            record_is_cut: reject.is_cut,
            etag: String::new(),
        };
        let document = serde_json::to_string(&stored).map_err(Error::internal)?;
        self.pending_bytes += document.len();
        self.pending.push(document);
        Ok(())
    }

    /// Whether the rejects have to be sent before more are added.
    pub fn is_full(&self) -> bool {
        self.pending_bytes >= PENDING_BYTES
    }

    /// Writes the rejects into their container.
    pub fn send(&mut self, server: &mut Server) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        make(server, &self.to)?;
        self.pending_bytes = 0;
        let partition = ledger::partition_of(&self.run.pipeline)?;
        let mut calls = Vec::new();
        for document in std::mem::take(&mut self.pending) {
            let operation = Operation::Create { document };
            calls.push(server.client.single(&self.to, &partition, &operation));
        }
        for answer in server.client.ask_all(&calls)? {
            match answer?.outcome() {
                // 409: the answer to an earlier attempt was lost, and no other document has such an id.
                Outcome::Done | Outcome::Refused { status: 409, .. } => {}
                Outcome::Refused { mut error, .. } => {
                    if matches!(error.kind, ErrorKind::Data) {
                        error.kind = ErrorKind::Config;
                    }
                    return Err(error.at("rejects.to"));
                }
            }
        }
        Ok(())
    }
}

fn now_ms() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The first part of a place, and the id behind its point. Errors: `reject_missing`.
pub(crate) fn parse_place(text: &str) -> Result<(&str, &str)> {
    let place = text.split_once('.').filter(|(first, id)| {
        ids::parts(id).is_some() && first.bytes().all(|c| c.is_ascii_hexdigit())
    });
    place.ok_or_else(|| replay::missing(&format!("there is no reject {text:?}: it was")))
}

/// What a document of a container of rejects says, and its version. Errors: `rejects_differ`.
pub(crate) fn read(document: &str, to: &str) -> Result<KeptReject> {
    let stored: Stored = serde_json::from_str(document).map_err(|_| {
        let text = format!("{to} has a document that is not a reject");
        Error::schema("rejects_differ", text)
            .hint("name another container for rejects")
            .at("rejects.to")
    })?;
    let data = match stored.record_is_hex {
        false => stored.record.into_bytes(),
        true => bytes(&stored.record),
    };
    Ok(KeptReject {
        id: stored.place,
        version: stored.etag,
        stream: stored.stream,
        run_id: stored.run_id,
        time: stored.rejected_at,
        origin: match stored.origin.as_str() {
            "source" => RejectOrigin::Source,
            "transform" => RejectOrigin::Transform,
            _ => RejectOrigin::Destination,
        },
        reject: Reject {
            data,
            is_cut: stored.record_is_cut,
            location: stored.location,
            column: stored.column,
            code: stored.code,
            message: stored.message,
            read_with: stored.read_with,
        },
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// `2026-05-01 06:30:00 UTC`, of milliseconds since 1970.
fn time_text(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Which rejects of a pipeline are committed.
pub(crate) struct Visible {
    /// By the tags of streams.
    epochs: BTreeMap<String, Epochs>,
    /// A replay that is not committed.
    replay: Option<String>,
    /// The rejects that a replay has removed, as far as the server still has them.
    removed: HashSet<String>,
}

impl Visible {
    pub fn new(
        epochs: BTreeMap<String, Epochs>,
        replay: Option<String>,
        removed: impl IntoIterator<Item = String>,
    ) -> Self {
        let removed = removed.into_iter().collect();
        Self {
            epochs,
            replay,
            removed,
        }
    }

    fn has(&self, id: &str) -> bool {
        if self.removed.contains(id) {
            return false;
        }
        let Some((tag, epoch, number)) = ids::parts(id) else {
            return true;
        };
        match self.epochs.get(tag) {
            _ if self.replay.as_deref() == Some(tag) => false,
            Some(epochs) => epochs.has(epoch, number),
            None => true,
        }
    }
}

/// A page of the rejects of a pipeline behind the reject `after`, without records unless `with_data`.
pub(crate) fn page(
    server: &mut Server,
    settings: &Settings,
    (to, pipeline): (&str, &str),
    after: Option<&str>,
    with_data: bool,
) -> Result<Vec<KeptReject>> {
    named(settings, to)?;
    after.map(parse_place).transpose()?;
    let Some(container) = server.container(to)? else {
        return Ok(Vec::new());
    };
    ensure_ours(&container)?;
    let visible = replay::visible(server, settings, pipeline, to)?;
    let query =
        "SELECT * FROM c WHERE c.pipeline = @pipeline AND c.place > @after ORDER BY c.place";
    let params = [
        Param::new("@pipeline", pipeline),
        Param::new("@after", after.unwrap_or("")),
    ];
    let partition = ledger::partition_of(pipeline)?;
    let (mut all, mut bytes, mut continuation) = (Vec::new(), 0, None);
    loop {
        let page = server.client.query(
            to,
            (query, &params),
            Some(&partition),
            PAGE_ITEMS,
            continuation.as_deref(),
        )?;
        for document in &page.documents {
            let id = find(document.get(), &["id".to_owned()]).unwrap_or_default();
            let id: String = serde_json::from_str(id).unwrap_or_default();
            if !visible.has(&id) {
                continue;
            }
            let mut kept = read(document.get(), to)?;
            bytes += kept.reject.data.len() + kept.reject.message.len();
            if !with_data {
                (kept.reject.data, kept.version) = (Vec::new(), String::new());
            }
            all.push(kept);
            if all.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                return Ok(all);
            }
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TAG: &str = "aaaaaaaaaaaaaaaa";

    #[test]
    fn a_time_is_written_for_people() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time_text(1_777_617_000_999), "2026-05-01 06:30:00 UTC");
        assert_eq!(time_text(951_782_400_000), "2000-02-29 00:00:00 UTC");
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let id = ids::id(TAG, 1, 2).unwrap();
        let place = format!("00ff{id}.{id}");
        assert_eq!(parse_place(&place).unwrap().1, id);
        for text in ["", "00", "00.1", &format!("x.{id}")] {
            assert_eq!(parse_place(text).unwrap_err().code, "reject_missing");
        }
    }

    #[test]
    fn rejects_of_an_attempt_that_was_not_committed_are_not_listed() {
        let other = "bbbbbbbbbbbbbbbb";
        let epochs = Epochs::default().with(2, 3);
        let removed = [ids::id(TAG, 2, 1).unwrap()];
        let visible = Visible::new(
            BTreeMap::from([(TAG.to_owned(), epochs)]),
            Some(other.to_owned()),
            removed,
        );
        for (tag, epoch, number, expected) in [
            (TAG, 2, 0, true),
            (TAG, 2, 1, false),
            (TAG, 2, 2, true),
            (TAG, 2, 3, false),
            (TAG, 1, 0, false),
            (TAG, 3, 0, false),
            (other, 0, 0, false),
            ("cccccccccccccccc", 0, 0, true),
        ] {
            let id = ids::id(tag, epoch, number).unwrap();
            assert_eq!(visible.has(&id), expected, "{epoch} {number}");
        }
    }
}

//! Records that do not get into the target, in a collection of their own: rows that the destination or the server
//! refuses, and records that the source cannot read.
//!
//! A reject has an id like a row ([`RowId`]), so that the rejects of an attempt that was not committed are known: they are
//! not listed, and the next run deletes them. Rejects are listed by their [`Place`].

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_schema::TimeUnit;
use rapidbyte_formats::object;
use rapidbyte_formats::text::time::write_timestamp;
use rapidbyte_sdk::prelude::*;

use crate::epochs::Epochs;
use crate::hex;
use crate::ids::{RowId, Tag};
use crate::load::Source;
use crate::replay::{self, ReplayKey};
use crate::store::Store;

/// Rejects are sent when they have this many bytes.
const PENDING_BYTES: usize = 1 << 20;
/// Rejects of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of the records and messages of a page, which may be one reject longer.
const PAGE_BYTES: usize = 1 << 20;

/// A reject on its way into its collection.
#[derive(Debug)]
pub struct Record<'a> {
    /// Its id.
    pub id: RowId,
    /// The first part of its place.
    pub first: &'a [u8],
    /// Milliseconds since 1970-01-01 UTC.
    pub rejected_at_ms: i64,
    /// The run that keeps it.
    pub run: &'a Run,
    /// The stream of the record.
    pub stream: &'a str,
    /// Where the stream is written.
    pub target: &'a str,
    /// The stage that has refused the record.
    pub origin: RejectOrigin,
    /// The record, and the reason.
    pub reject: &'a Reject,
}

/// The place of a reject in the order of its collection, which is also its id for the host: hexadecimal digits of both
/// parts, with a point between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The milliseconds at which the record was first kept, in eight bytes, and the id that it had then.
    pub first: Vec<u8>,
    /// Its id.
    pub id: Vec<u8>,
}

impl Place {
    /// Errors: `reject_missing`.
    pub fn parse(text: &str) -> Result<Self> {
        let place = text.split_once('.').and_then(|(first, id)| {
            Some(Self {
                first: hex::decode(first)?,
                id: hex::decode(id)?,
            })
        });
        place.ok_or_else(|| replay::missing(&format!("the reject {text:?} does not exist: it was")))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", hex::encode(&self.first), hex::encode(&self.id))
    }
}

/// Keeps the rejects of a load.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub key: ReplayKey,
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
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
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
            key: ReplayKey {
                pipeline: run.pipeline.clone(),
                to,
            },
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
    pub fn refuse<S: Store>(&mut self, source: &Source, error: &Error) -> Result<()> {
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
        self.keep::<S>(RejectOrigin::Destination, &reject)
    }

    /// Keeps a record, or a row.
    pub fn keep<S: Store>(&mut self, origin: RejectOrigin, reject: &Reject) -> Result<()> {
        let id = RowId::new(self.tag, self.epoch, self.next)?;
        self.next += 1;
        // A record that was divided into several may fail more than once.
        let first = match self.first.len() {
            0 | 1 => self.first.front().cloned(),
            _ => self.first.pop_front(),
        };
        let rejected_at_ms = now_ms();
        let own = || [&rejected_at_ms.to_be_bytes()[..], &id.bytes()].concat();
        let document = S::encode_reject(&Record {
            id,
            first: &first.unwrap_or_else(own),
            rejected_at_ms,
            run: &self.run,
            stream: &self.stream,
            target: &self.target,
            origin,
            reject,
        })?;
        self.pending_bytes += document.len();
        self.pending.push(document);
        Ok(())
    }

    /// Whether the rejects have to be sent before more are added.
    pub fn is_full(&self) -> bool {
        self.pending_bytes >= PENDING_BYTES
    }

    /// Writes the rejects into their collection. The server may not owe an answer.
    pub fn send<S: Store>(&mut self, store: &mut S) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.pending_bytes = 0;
        store.add_rejects(&self.key, std::mem::take(&mut self.pending))
    }
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |time| {
        i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
    })
}

/// `2026-05-01 06:30:00 UTC`, of milliseconds since 1970.
pub fn time_text(ms: i64) -> String {
    let mut text = Vec::new();
    write_timestamp(ms.div_euclid(1000), TimeUnit::Second, false, &mut text);
    let text = String::from_utf8_lossy(&text);
    format!("{} UTC", text.replace('T', " "))
}

/// The stage with this name; the destination if no other stage has it.
pub fn origin_of(name: Option<&str>) -> RejectOrigin {
    let stages = [RejectOrigin::Source, RejectOrigin::Transform];
    let named = stages.into_iter().find(|stage| Some(stage.name()) == name);
    named.unwrap_or(RejectOrigin::Destination)
}

/// Which rejects of a pipeline are committed.
#[derive(Debug, Default)]
pub struct Visible {
    /// By the tags of streams.
    epochs: BTreeMap<Tag, Epochs>,
    /// Replays that are not committed.
    replays: HashSet<Tag>,
    /// The rejects that a replay has removed, as far as the server still has them.
    removed: HashSet<Vec<u8>>,
}

impl Visible {
    /// Which rejects of a pipeline in a collection are committed.
    pub fn of<S: Store>(store: &mut S, key: &ReplayKey) -> Result<Self> {
        let replay = store.replay(key)?.unwrap_or_default();
        let checkpoints = store.checkpoints(&key.pipeline)?.into_iter();
        let overtaken = replay.overtaken.into_iter().map(|(tag, _)| tag);
        Ok(Self {
            epochs: checkpoints
                .map(|found| (found.tag, found.reject_epochs))
                .collect(),
            replays: overtaken.chain(replay.holder).collect(),
            removed: replay.removing.into_iter().collect(),
        })
    }

    /// Whether the reject with this id is committed. An id of another form belongs to no attempt of a run.
    pub fn has(&self, id: &[u8]) -> bool {
        if self.removed.contains(id) {
            return false;
        }
        let Some(RowId { tag, epoch, number }) = RowId::from_bytes(id) else {
            return true;
        };
        match self.epochs.get(&tag) {
            _ if self.replays.contains(&tag) => false,
            Some(epochs) => epochs.has(epoch, number),
            None => true,
        }
    }
}

/// A page of rejects for the host.
#[derive(Debug, Default)]
pub struct Page {
    rejects: Vec<KeptReject>,
    bytes: usize,
}

impl Page {
    /// Adds a reject, without its record unless `with_data`. True: the page is full.
    pub fn push(&mut self, mut kept: KeptReject, with_data: bool) -> bool {
        self.bytes += kept.reject.data.len() + kept.reject.message.len();
        if !with_data {
            (kept.reject.data, kept.version) = (Vec::new(), String::new());
        }
        self.rejects.push(kept);
        self.rejects.len() >= PAGE_ROWS || self.bytes >= PAGE_BYTES
    }

    /// Its rejects.
    pub fn finish(self) -> Vec<KeptReject> {
        self.rejects
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_for_people() {
        assert_eq!(time_text(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time_text(1_777_617_000_999), "2026-05-01 06:30:00 UTC");
        assert_eq!(time_text(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(time_text(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = Place {
            first: vec![0, 1, 255],
            id: vec![16],
        };
        assert_eq!(place.to_string(), "0001ff.10");
        assert_eq!(Place::parse("0001ff.10").unwrap(), place);
        for text in ["", "00", "0.1", "00.1", "zz.00", "x.00", "00.0", "é0.00"] {
            assert_eq!(Place::parse(text).unwrap_err().code, "reject_missing");
        }
    }

    #[test]
    fn a_stage_is_found_by_its_name() {
        let names = [Some("source"), Some("transform"), Some("destination"), None];
        let origins = names.map(origin_of);
        assert_eq!(
            origins,
            [
                RejectOrigin::Source,
                RejectOrigin::Transform,
                RejectOrigin::Destination,
                RejectOrigin::Destination
            ]
        );
    }

    #[test]
    fn rejects_of_an_attempt_that_was_not_committed_are_not_listed() {
        let tag = |letter: u8| Tag::from_bytes(&[letter; 8]).unwrap();
        let id = |letter, epoch, number| RowId::new(tag(letter), epoch, number).unwrap();
        let visible = Visible {
            epochs: BTreeMap::from([(tag(b'a'), Epochs::default().with(2, 3, false))]),
            replays: HashSet::from([tag(b'b')]),
            removed: HashSet::from([id(b'a', 2, 1).bytes().to_vec()]),
        };
        for (letter, epoch, number, expected) in [
            (b'a', 2, 0, true),
            (b'a', 2, 1, false),
            (b'a', 2, 2, true),
            (b'a', 2, 3, false),
            (b'a', 1, 0, false),
            (b'a', 3, 0, false),
            (b'b', 0, 0, false),
            (b'c', 0, 0, true),
        ] {
            let id = id(letter, epoch, number).bytes();
            assert_eq!(visible.has(&id), expected, "{epoch} {number}");
        }
        assert!(visible.has(b"another"));
    }
}

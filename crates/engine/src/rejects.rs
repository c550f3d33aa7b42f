//! Rejects that a destination keeps: lists them, and replays them through their pipeline.
//!
//! A replay is a run of one stream whose records are rejects. They enter where they were refused: records of the source
//! through the source, which parses them by its own rules, rows before the transforms through the transforms, and rows
//! behind them through the destination alone. The commit of the rows removes the rejects, or neither happens. Records
//! that fail again are kept as new rejects in the same commit.

use std::collections::{HashMap, HashSet};

use arrow_schema::Schema;
use rapidbyte_formats::{Decoder, Format, FormatError, Limits};
use rapidbyte_runtime::{
    Batch, Clock, Destination, DroppedColumn, KeptReject, NewColumn, RejectOrigin, SyncMode,
    TypeChange, WriteMode,
};
use rapidbyte_wire::{counted, ipc};

use crate::document::{Document, Verify};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::base;
use crate::narrow::Narrowing;
use crate::overlap::turn_of_replay;
use crate::plan::{
    Prepared, Replay, StreamPlan, open_destination, refuse_rejects, rejects, write_mode,
    write_mode_key,
};
use crate::report::RejectReport;

/// The most bytes of records that one commit of a replay has.
const MAX_BYTES: usize = 8 << 20;
/// Counted for each reject beside its record.
const REJECT_BYTES: usize = 512;

/// The rejects of a pipeline, in the destination.
pub struct Kept {
    document: Document,
    to: String,
    session: Destination,
    /// Whether the destination reaches a server.
    has_network: bool,
}

impl Kept {
    /// Opens the pipeline's destination.
    ///
    /// # Errors
    /// `no_rejects` if the pipeline keeps none, `unsupported_rejects` if the destination keeps none, and the errors of
    /// opening the destination.
    pub fn open(document: &Document, host: &Host) -> Result<Self, Failure> {
        let Some(to) = document.rejects.to.clone() else {
            let text = format!("the pipeline {} keeps no rejects", document.pipeline);
            let failure = Failure::new(Class::Config, "no_rejects", text);
            return Err(failure.hint(
                "the first record that fails stops its stream, or makes its job of `rapidbyte serve` dead; to keep such \
                 records, set rejects: { max_rows: 100, to: rejects }",
            ));
        };
        let (stage, session) = open_destination(document, host, &Clock::new(), false)?;
        refuse_rejects(document, &stage)?;
        Ok(Self {
            document: document.clone(),
            to,
            session,
            has_network: stage.grants.has_network(),
        })
    }

    /// Calls `each` with the rejects, in the order in which they were kept, until it returns false.
    ///
    /// # Errors
    /// Errors of the destination, and of `each`.
    pub fn each(
        &mut self,
        with_data: bool,
        mut each: impl FnMut(KeptReject) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let page = self.page(after.as_ref(), with_data)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            for kept in page {
                if !each(kept)? {
                    return Ok(());
                }
            }
        }
    }

    fn page(
        &mut self,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>, Failure> {
        let pipeline = &self.document.pipeline;
        let page = self.session.rejects(&self.to, pipeline, after, with_data);
        page.map_err(|e| Failure::from_runtime(e, &self.document, "destination"))
    }
}

/// A reject that somebody has repaired.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// Its [`KeptReject::id`].
    pub id: String,
    /// The record to replay instead.
    pub record: Vec<u8>,
    /// The run that kept it, as [`KeptReject::run_id`] has it. `None` if nobody knows: then its id alone tells.
    pub run_id: Option<String>,
    /// Its place, such as `fixed.jsonl:3`.
    pub place: String,
}

/// The result of a replay.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    /// Rejects that were replayed.
    pub rejects: u64,
    /// Rows that are in the target now.
    pub rows: u64,
    /// Records that failed again and are kept as new rejects.
    pub rejected: u64,
    /// The first of them: at most ten.
    pub first: Vec<RejectReport>,
    /// The runs that replayed them.
    pub runs: Vec<String>,
}

/// Replays the rejects of a stream: the `repaired` ones, or all of them as they are.
///
/// # Errors
/// `replay_not_possible`, `already_running`, `reject_missing`, `record_incomplete`, `record_does_not_fit`, and errors of
/// planning and running. Nothing of the commit that failed has changed.
pub fn replay(
    document: &Document,
    host: &Host,
    stream: &str,
    repaired: Option<Vec<Repaired>>,
) -> Result<Replayed, Failure> {
    ensure_replayable(document, stream)?;
    let mut kept = Kept::open(document, host)?;
    let _turn = match kept.has_network {
        true => None,
        false => turn_of_replay(document, host)?,
    };
    let mut replaying = Replaying {
        document: for_replay(document),
        host,
        stream,
        max_bytes: max_bytes(document),
        done: Replayed::default(),
        replayed: HashSet::new(),
    };
    let repaired: Option<HashMap<String, Repaired>> =
        repaired.map(|all| all.into_iter().map(|one| (one.id.clone(), one)).collect());
    let wanted = |kept: &mut KeptReject| {
        if kept.stream != stream {
            return false;
        }
        let Some(repaired) = &repaired else {
            return true;
        };
        let of_run = |one: &&Repaired| one.run_id.as_ref().is_none_or(|id| *id == kept.run_id);
        let Some(one) = repaired.get(&kept.id).filter(of_run) else {
            return false;
        };
        kept.reject.data.clone_from(&one.record);
        kept.reject.is_cut = false;
        true
    };
    // Nothing may change before it is known that all of them can be replayed.
    let mut found = HashSet::new();
    kept.each(true, |mut kept| {
        if wanted(&mut kept) {
            ensure_whole(&kept, stream)?;
            if repaired.is_some() {
                found.insert(kept.id);
            }
        }
        Ok(true)
    })?;
    let missing = repaired.iter().flat_map(HashMap::values);
    let missing = missing.filter(|one| !found.contains(&one.id));
    if let Some(missing) = missing.min_by_key(|one| &one.place) {
        let to = document.rejects.to.as_deref().unwrap_or_default();
        let text = format!("{to} has no reject {} of the stream", missing.id);
        let mut failure = Failure::new(Class::Contract, "reject_missing", text).in_stream(stream);
        failure.location = Some(missing.place.clone());
        return Err(failure.hint(
            "it was replayed or deleted before: remove the line, and replay the others; nothing was changed",
        ));
    }
    // An upsert keeps the last row of a key, so the rows land in the order in which they were rejected first. A record
    // that fails again takes the place of one of its group, so no reject that stays may lie between them.
    let entry = document.source.entry_for(stream);
    let is_ordered = entry.is_some_and(|entry| {
        write_mode(document, &document.source.streams[entry]) == WriteMode::Upsert
    });
    // Otherwise one group for each origin.
    let mut groups: [Vec<KeptReject>; 3] = Default::default();
    let (mut bytes, mut is_apart) = (0, false);
    kept.each(true, |mut kept| {
        if kept.stream != stream {
            return Ok(true);
        }
        // Records that failed again come once more.
        if !replaying.replayed.contains(base(&kept.run_id)) && wanted(&mut kept) {
            // A run may have kept it a moment ago.
            ensure_whole(&kept, stream)?;
            let size = kept.reject.data.len() + REJECT_BYTES;
            let place = if is_ordered { 0 } else { kept.origin as usize };
            let is_other = groups[place]
                .first()
                .is_some_and(|first| first.origin != kept.origin);
            if bytes + size > replaying.max_bytes || is_other || (is_apart && is_ordered) {
                replaying.run_all(&mut groups)?;
                bytes = 0;
            }
            is_apart = false;
            bytes += size;
            groups[place].push(kept);
        } else {
            is_apart = true;
        }
        Ok(true)
    })?;
    replaying.run_all(&mut groups)?;
    Ok(replaying.done)
}

/// Rejects of a replay share a sixteenth of the stream's memory.
fn max_bytes(document: &Document) -> usize {
    let resources = &document.resources;
    let share = resources.memory as usize / resources.parallelism.max(1) as usize;
    MAX_BYTES.min(share / 16)
}

/// Whether a stream can take single records.
///
/// # Errors
/// `replay_not_possible`, or `unknown_stream` for a stream that the pipeline does not have.
pub fn ensure_replayable(document: &Document, stream: &str) -> Result<(), Failure> {
    let Some(entry) = document.source.entry_for(stream) else {
        let text = format!("the pipeline has no stream {stream:?}");
        return Err(Failure::new(Class::Config, "unknown_stream", text)
            .hint("`rapidbyte rejects list PIPELINE` names the streams that have rejects"));
    };
    let asked = &document.source.streams[entry];
    if write_mode(document, asked) == WriteMode::Replace {
        let text = "each run replaces all rows of the target, also the replayed ones";
        let key = write_mode_key(document, entry);
        return Err(Failure::at_key(document, &key, "replay_not_possible", text)
            .in_stream(stream)
            .hint("repair the records at the source and run the pipeline again"));
    }
    if document.rejects.to.is_some() && rejects(document).is_none() {
        let text = "rejects allows no reject, and a record of a replay may fail again";
        let key = "rejects";
        return Err(Failure::at_key(document, key, "replay_not_possible", text)
            .hint("set max_rows to 1 or more"));
    }
    Ok(())
}

/// The pipeline without the limit on the share of rejects, because all records of a replay failed before, and without
/// a comparison at the end.
fn for_replay(document: &Document) -> Document {
    let mut document = document.clone();
    document.verify = Verify::Off;
    let limits = &mut document.rejects;
    if limits.max_share.take().is_some() && limits.max_rows.is_none() {
        limits.max_rows = Some(u64::MAX);
    }
    document
}

/// Refuses a stream whose columns differ from its target: only a run changes a target, and says so.
fn refuse_changes(stream: &StreamPlan) -> Result<(), Failure> {
    let Some(first) = stream
        .placed
        .statements
        .first()
        .filter(|_| !stream.placed.is_new)
    else {
        return Ok(());
    };
    let text = format!(
        "the columns have changed since the last run, which a replay does not follow: {first}"
    );
    let failure = Failure::new(Class::Config, "replay_not_possible", text);
    Err(failure
        .in_stream(&stream.name)
        .hint("run the pipeline first, and then replay"))
}

fn ensure_whole(kept: &KeptReject, stream: &str) -> Result<(), Failure> {
    let why = match &kept.reject {
        reject if reject.is_cut => "only the first part of its record was kept",
        reject if reject.data.trim_ascii().is_empty() => "its record is empty or not known",
        _ => return Ok(()),
    };
    let text = format!("the reject {} cannot be replayed as it is: {why}", kept.id);
    let mut failure = Failure::new(Class::Contract, "record_incomplete", text).in_stream(stream);
    failure.location.clone_from(&kept.reject.location);
    Err(failure.hint(
        "write the whole record into a file and replay it with --from FILE, or leave the reject out of the file; nothing \
         was changed",
    ))
}

/// A replay of one stream.
struct Replaying<'a> {
    document: Document,
    host: &'a Host,
    stream: &'a str,
    max_bytes: usize,
    done: Replayed,
    /// The runs of this replay.
    replayed: HashSet<String>,
}

impl Replaying<'_> {
    fn run_all(&mut self, groups: &mut [Vec<KeptReject>]) -> Result<(), Failure> {
        let mut groups = groups.iter_mut().map(std::mem::take);
        groups.try_for_each(|group| self.run(group))
    }

    /// Replays rejects of one origin in one commit.
    fn run(&mut self, group: Vec<KeptReject>) -> Result<(), Failure> {
        let Some(origin) = group.first().map(|kept| kept.origin) else {
            return Ok(());
        };
        let count = group.len() as u64;
        let narrowing = Narrowing {
            select: vec![self.stream.to_owned()],
            ..Narrowing::default()
        };
        let mut prepared = Prepared::narrowed(self.document.clone(), self.host, &narrowing)?;
        let (streams, refused) = (&prepared.plan.streams, &prepared.plan.refused);
        if let Some(refused) = refused.first() {
            return Err(refused.failure.clone());
        }
        if !matches!(streams.as_slice(), [one] if one.name == self.stream) {
            let text = format!(
                "{:?} names {} of the pipeline",
                self.stream,
                counted(streams.len(), "stream")
            );
            return Err(Failure::new(Class::Config, "unknown_stream", text)
                .hint("name one stream as `rapidbyte rejects list PIPELINE` does"));
        }
        let source = prepared.plan.source.spec.clone();
        let stream = &mut prepared.plan.streams[0];
        refuse_changes(stream)?;
        let ids = group.iter();
        let ids = ids.map(|kept| (kept.id.clone(), kept.version.clone()));
        let ids = ids.collect();
        let replay = match origin {
            RejectOrigin::Source if source.supports_rejects => {
                Replay::Records(group.into_iter().map(|kept| kept.reject).collect())
            }
            RejectOrigin::Source => {
                let text = format!("{} does not read single records", source.name);
                return Err(self.not_possible(&text));
            }
            RejectOrigin::Transform => match stream.transforms.as_slice() {
                [step] => Replay::Rows(self.rows(&step.input.schema, &group)?),
                steps => {
                    let steps = counted(steps.len(), "transform");
                    let text = format!(
                        "the stream has {steps}, and nobody knows which of them refused the rows"
                    );
                    return Err(self.not_possible(&text));
                }
            },
            RejectOrigin::Destination => {
                let rows = self.rows(&stream.target.schema, &group)?;
                stream.transforms.clear();
                Replay::Rows(rows)
            }
        };
        as_replay(stream, replay, ids);
        let progress = crate::run::progress(&prepared.plan);
        let done = &mut self.done;
        let replayed = &mut self.replayed;
        crate::run::run(prepared, self.host, &progress, None, None, |ended| {
            let Ok(report) = ended else { return };
            replayed.insert(base(&report.run_id).to_owned());
            done.runs.push(report.run_id.clone());
            done.rejects += count;
            for stream in &report.streams {
                done.rows += stream.rows;
                done.rejected += stream.rejected;
                let room = 10_usize.saturating_sub(done.first.len());
                done.first.extend(stream.rejects.iter().take(room).cloned());
            }
        })
    }

    fn not_possible(&self, text: &str) -> Failure {
        Failure::new(Class::Config, "replay_not_possible", text)
            .in_stream(self.stream)
            .hint("repair the records at the source and run the pipeline again")
    }

    /// The rows of JSON objects, with the columns of a `Schema` message.
    fn rows(&self, schema: &[u8], group: &[KeptReject]) -> Result<Vec<Batch>, Failure> {
        let broken = |e| Failure::new(Class::Run, "contract_broken", e).in_stream(self.stream);
        let schema = ipc::decode_schema(schema).map_err(broken)?;
        let mut encoder = ipc::Encoder::new(&schema).map_err(broken)?;
        let mut decoder = self.decoder(schema)?;
        let mut batches = Vec::new();
        let mut take = |decoder: &mut Decoder| {
            let batch = decoder.take_batch();
            let batch = batch.map_err(|e| self.misfit(None, &e))?;
            if let Some(batch) = batch {
                batches.push(Batch {
                    data: encoder.encode(&batch).map_err(broken)?,
                    rows: batch.num_rows() as u64,
                });
            }
            Ok::<(), Failure>(())
        };
        for kept in group {
            let pushed = decoder.push_record(&kept.reject.data);
            pushed.map_err(|e| self.misfit(Some(kept), &e))?;
            if decoder.is_full() {
                take(&mut decoder)?;
            }
        }
        take(&mut decoder)?;
        Ok(batches)
    }

    fn decoder(&self, schema: Schema) -> Result<Decoder, Failure> {
        let resources = &self.document.resources;
        let limits = Limits {
            batch_bytes: resources.batch_bytes as usize,
            max_record_bytes: resources.max_record_bytes as usize,
            ..Limits::default()
        };
        let decoder = Decoder::new(&Format::Jsonl, schema.into(), None, limits);
        let mut decoder = decoder.map_err(|error| {
            let text = format!(
                "a row cannot be read from its JSON object: {}",
                error.message
            );
            self.not_possible(&text)
        })?;
        decoder.begin_file();
        Ok(decoder.of_objects())
    }

    /// The failure for a JSON object that is not a row of the stream.
    fn misfit(&self, kept: Option<&KeptReject>, error: &FormatError) -> Failure {
        let record = kept.map_or("a record".into(), |kept| format!("the reject {}", kept.id));
        let text = format!("{record} is not a row of the stream: {}", error.message);
        let failure = Failure::new(Class::Contract, "record_does_not_fit", text);
        let mut failure = failure.in_stream(self.stream);
        failure.column.clone_from(&error.column);
        failure.location = kept.and_then(|kept| kept.reject.location.clone());
        failure.hint(
            "repair the record in a file and replay it with --from FILE; nothing of this commit was changed",
        )
    }
}

/// Makes the plan of a stream the plan of a replay or a repair.
pub(crate) fn as_replay(stream: &mut StreamPlan, replay: Replay, ids: Vec<(String, String)>) {
    stream.replay = Some(replay);
    stream.sync_mode = SyncMode::FullRefresh;
    (stream.increment, stream.progress, stream.keys) = (None, None, None);
    stream.backfills = false;
    stream.target.is_incremental = false;
    stream.target.deletes = None;
    // The plan has found no change. One that comes after it fails the load.
    let changes = &mut stream.target.schema_changes;
    changes.type_change = TypeChange::Fail;
    if changes.new_column == NewColumn::Add {
        changes.new_column = NewColumn::Fail;
    }
    if changes.dropped_column == DroppedColumn::Drop {
        changes.dropped_column = DroppedColumn::Keep;
    }
    if let Some(rejects) = &mut stream.target.rejects {
        rejects.replayed = ids;
    }
}

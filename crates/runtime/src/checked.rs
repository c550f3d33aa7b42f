//! The sessions as the host uses them: whatever they are made of, what they hand over is compared with the contract and
//! with the limits of their sandbox.

use std::time::{Duration, Instant};

use rapidbyte_wire::verify::{Layout, Unfit};

use crate::bindings::destination::{
    KeptReject, LoadRequest, Part, Plan, Presence, Progress, Receipt, Refused, StreamCommit,
    Target, Worker,
};
use crate::bindings::source::{Change, Event, Position, ReadRequest, Selection};
use crate::bindings::transform::{Plan as TransformPlan, Relation};
use crate::bindings::types::{
    Batch, Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error as ConnectorError, ErrorKind,
    Reject, RejectOrigin, RowLimit, Spec, Stream,
};
use crate::cursors::{self, Cursors};
use crate::ended;
use crate::session::{DestinationSession, Digests, Session, SourceSession, TransformSession};
use crate::{Error, Result, Sandbox};

/// Bytes of a config schema: as values of JSON it takes up to sixteen times as many. Ours have 20 KB.
const MAX_CONFIG_SCHEMA: usize = 1 << 20;
/// Bytes of what a connector says of itself beside its config schema.
const MAX_WORDS: usize = 64 << 10;
/// Streams of one source: a database with more tables is read in parts.
const MAX_STREAMS: usize = 100_000;
/// Bytes of a stream's name: longer than any path.
const MAX_STREAM_NAME: usize = 4096;
/// Rejects of one event of a source, or of one answer of a transform.
const MAX_REJECTS: usize = 1000;
/// Bytes of the record of a reject.
const MAX_REJECT_DATA: usize = 64 << 10;
/// Rejects that a writer shows at a time.
const MAX_FIRST_REFUSED: usize = 10;
/// Runs that a destination says are at work: one is enough to know whom to wait for.
const MAX_WORKERS: usize = 64;
/// Bytes of what a destination says of such a run.
const MAX_WORKER: usize = 4096;

/// One stream of a read, and what is known of what it may give.
struct Reading {
    layout: Layout,
    cursors: Cursors,
    keeps_rejects: bool,
    /// The columns to compare a change with. `None` where the host follows no changes.
    followed: Option<Followed>,
}

/// The columns of a stream that the host follows.
struct Followed {
    stream: String,
    /// All of them, as the request has them.
    schema: Vec<u8>,
    new_columns: bool,
    types: Vec<String>,
}

/// A source, with one session and one reader at most.
pub struct Source {
    session: Box<dyn SourceSession>,
    made: Instant,
    /// The streams of the read.
    reading: Vec<Reading>,
    /// Since when `next` has given no row.
    empty_since: Option<Instant>,
}

impl Source {
    pub(crate) fn new(session: Box<dyn SourceSession>) -> Self {
        Self {
            session,
            made: Instant::now(),
            reading: Vec::new(),
            empty_since: None,
        }
    }

    /// As [`SourceSession::describe`].
    pub fn describe(&mut self) -> Result<Spec> {
        let spec = self.session.describe()?;
        look_at_spec(self.session.as_mut(), &spec)?;
        Ok(spec)
    }

    /// As [`SourceSession::open`].
    pub fn open(&mut self, config: &str) -> Result<()> {
        self.session.open(config)
    }

    /// As [`SourceSession::check`].
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        let mut items = self.session.check()?;
        ended::shorten_all(&mut items, &self.session.sandbox().redact);
        Ok(items)
    }

    /// As [`SourceSession::discover`].
    pub fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let mut streams = self.session.discover(forms)?;
        look_at_streams(self.session.as_mut(), "session.discover", &streams)?;
        let redact = &self.session.sandbox().redact;
        for stream in &mut streams {
            ended::shorten_stream(stream, redact);
        }
        Ok(streams)
    }

    /// As [`Session::is_usable`].
    pub fn is_usable(&self) -> bool {
        self.session.is_usable()
    }

    /// As [`SourceSession::describe_query`].
    pub fn describe_query(
        &mut self,
        stream: &str,
        query: &str,
        forms: &[String],
    ) -> Result<Stream> {
        const DESCRIBE_QUERY: &str = "session.describe-query";
        let mut found = self.session.describe_query(stream, query, forms)?;
        let session = self.session.as_mut();
        look_at_streams(session, DESCRIBE_QUERY, std::slice::from_ref(&found))?;
        if found.name != stream {
            let text = format!("the stream {stream:?} is described as {:?}", found.name);
            return broken(session, DESCRIBE_QUERY, text);
        }
        ended::shorten_stream(&mut found, &session.sandbox().redact);
        Ok(found)
    }

    /// As [`Session::hand_over`].
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.session.hand_over(sandbox)
    }

    /// The time since the session was made.
    pub fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Whether the token that the session was made with is cancelled: what it has connected is gone then.
    pub fn is_cancelled(&self) -> bool {
        self.session.sandbox().cancel.is_cancelled()
    }

    /// As [`SourceSession::digest_limits`].
    pub fn digest_limits(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
    ) -> Result<Vec<RowLimit>> {
        self.session.digest_limits(selection, snapshot)
    }

    /// As [`SourceSession::digest`].
    pub fn digest(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        self.session.digest(selection, asked, within, bits)
    }

    /// As [`SourceSession::digest_rows`].
    pub fn digest_rows(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let found = self.session.digest_rows(selection, asked, rows, max)?;
        match found.len() > max as usize {
            true => {
                let text = format!("{} rows, above {max}", found.len());
                broken(self.session.as_mut(), "session.digest-rows", text)
            }
            false => Ok(found),
        }
    }

    /// As [`SourceSession::bytes_at_hand`].
    pub fn bytes_at_hand(&self) -> Option<usize> {
        self.session.bytes_at_hand()
    }

    /// As [`SourceSession::snapshot`].
    pub fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        self.session.snapshot(streams)
    }

    /// As [`SourceSession::read`].
    pub fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        const SCHEMAS: &str = "reader.schemas";
        let schemas = self.session.read(requests)?;
        let session = self.session.as_mut();
        ensure_one_for_each(session, SCHEMAS, schemas.len(), requests.len(), "schema")?;
        self.reading.clear();
        for (schema, request) in schemas.iter().zip(requests) {
            let layout = rapidbyte_wire::ipc::decode_schema(schema).and_then(|s| Layout::of(&s));
            let cursors = Cursors::of(request.increment.is_some());
            match layout {
                Ok(layout) => self.reading.push(Reading {
                    layout,
                    cursors,
                    keeps_rejects: request.keeps_rejects,
                    followed: Followed::of(request),
                }),
                Err(error) => return broken(session, SCHEMAS, error),
            }
        }
        Ok(schemas)
    }

    /// As [`SourceSession::next`]; a batch's header has been checked.
    pub fn next(&mut self, wait_ms: u32) -> Result<Event> {
        const NEXT: &str = "reader.next";
        let Self {
            session,
            reading,
            empty_since,
            ..
        } = self;
        let session = session.as_mut();
        let mut event = session.next(wait_ms)?;
        // A native session that waits for its own program does not see it.
        if matches!(event, Event::Idle) && session.sandbox().cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        match &event {
            Event::Batch((_, batch)) if batch.rows > 0 => *empty_since = None,
            Event::Rejects((_, rejects)) if !rejects.is_empty() => *empty_since = None,
            // The time of the host between two calls is in it only where it was given nothing.
            _ => {
                let since = empty_since.get_or_insert_with(Instant::now);
                if since.elapsed() > session.sandbox().limits.stall {
                    let error = session.stalled();
                    return Err(session.refuse(NEXT, error));
                }
            }
        }
        let number = match &event {
            Event::Batch((stream, _))
            | Event::Rejects((stream, _))
            | Event::Changed((stream, _)) => *stream,
            Event::Checkpoint(position) => position.stream,
            Event::Idle | Event::End => return Ok(event),
        };
        let count = reading.len();
        let Some(reading) = reading.get_mut(number as usize) else {
            let text = format!("an event of the stream {number} in a read of {count}");
            return broken(session, NEXT, text);
        };
        match &mut event {
            Event::Batch((_, batch)) => look_at(session, NEXT, batch, &reading.layout)?,
            Event::Rejects((_, rejects)) => {
                if let Some(wrong) = wrong_rejects(rejects, reading.keeps_rejects) {
                    return broken(session, NEXT, wrong);
                }
                ended::shorten_rejects(rejects, &session.sandbox().redact);
            }
            Event::Checkpoint(position) => {
                if let Err(wrong) = reading.cursors.take(&position.cursor) {
                    return broken(session, NEXT, wrong);
                }
            }
            Event::Changed((_, change)) => {
                let described = std::slice::from_ref(&change.described);
                look_at_streams(session, NEXT, described)?;
                if let Some(wrong) = Followed::wrong(reading.followed.as_ref(), change) {
                    return broken(session, NEXT, wrong);
                }
                let redact = &session.sandbox().redact;
                ended::shorten_stream(&mut change.described, redact);
                ended::shorten(&mut change.cause, redact);
            }
            Event::Idle | Event::End => {}
        }
        Ok(event)
    }

    /// As [`SourceSession::acknowledge`].
    pub fn acknowledge(&mut self, positions: &[Position]) -> Result<()> {
        self.session.acknowledge(positions)
    }

    /// As [`SourceSession::finish`].
    pub fn finish(&mut self) -> bool {
        self.empty_since = None;
        self.reading.clear();
        self.session.finish()
    }

    /// As [`Session::close`].
    pub fn close(self) {
        self.session.close();
    }
}

impl Followed {
    fn of(request: &ReadRequest) -> Option<Self> {
        let follows = request.follows_columns || !request.follows_types.is_empty();
        follows.then(|| Self {
            stream: request.stream.clone(),
            schema: request.schema.clone(),
            new_columns: request.follows_columns,
            types: request.follows_types.clone(),
        })
    }

    /// Why the host cannot follow a change. None if it can.
    fn wrong(followed: Option<&Self>, change: &Change) -> Option<String> {
        let Some(followed) = followed else {
            return Some("a change that the host does not follow".into());
        };
        let described = &change.described;
        if described.name != followed.stream {
            let text = format!("a change of the stream {:?}, and", described.name);
            return Some(format!("{text} {:?} is read", followed.stream));
        }
        let decode = rapidbyte_wire::ipc::decode_schema;
        let (before, now) = match (decode(&followed.schema), decode(&described.schema)) {
            (Ok(before), Ok(now)) => (before, now),
            (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
        };
        let mut is_new = now.fields().len() > before.fields().len();
        if is_new && !followed.new_columns {
            return Some("a change with new columns, which the host does not follow".into());
        }
        for field in before.fields() {
            let Some((_, found)) = now.fields().find(field.name()) else {
                return Some(format!("a change without the column {}", field.name()));
            };
            if found != field && !followed.types.contains(field.name()) {
                let column = field.name();
                return Some(format!(
                    "a change of the column {column}, which the host does not follow"
                ));
            }
            is_new |= found != field;
        }
        (!is_new).then(|| "a change to the same columns".into())
    }
}

/// A transform, with one session and one transformer at most.
pub struct Transform {
    session: Box<dyn TransformSession>,
    layout: Option<Layout>,
    keeps_rejects: bool,
}

impl Transform {
    pub(crate) fn new(session: Box<dyn TransformSession>) -> Self {
        Self {
            session,
            layout: None,
            keeps_rejects: false,
        }
    }

    /// As [`TransformSession::describe`].
    pub fn describe(&mut self) -> Result<Spec> {
        let spec = self.session.describe()?;
        look_at_spec(self.session.as_mut(), &spec)?;
        Ok(spec)
    }

    /// As [`TransformSession::open`].
    pub fn open(&mut self, config: &str) -> Result<()> {
        self.session.open(config)
    }

    /// As [`TransformSession::plan`]. The stream has kept its name, each column has a type of its source or none, and
    /// the key consists of columns.
    pub fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let mut plan = self.session.plan(input)?;
        if let Err(wrong) = look_at_relation(input, &plan.output) {
            return broken(self.session.as_mut(), "session.plan", wrong);
        }
        ended::shorten_transform(&mut plan, &self.session.sandbox().redact);
        Ok(plan)
    }

    /// As [`TransformSession::begin`].
    pub fn begin(&mut self, input: &Relation, keeps_rejects: bool) -> Result<Vec<u8>> {
        let schema = self.session.begin(input, keeps_rejects)?;
        self.keeps_rejects = keeps_rejects;
        let layout = rapidbyte_wire::ipc::decode_schema(&schema).and_then(|s| Layout::of(&s));
        match layout {
            Ok(layout) => self.layout = Some(layout),
            Err(error) => return broken(self.session.as_mut(), "transformer.schema", error),
        }
        Ok(schema)
    }

    /// As [`TransformSession::put`].
    pub fn put(&mut self, batch: &Batch) -> Result<()> {
        self.session.put(batch)
    }

    #[expect(
        clippy::should_implement_trait,
        reason = "the call of the contract has this name"
    )]
    /// As [`TransformSession::next`]; a batch's header has been checked, and it has rows.
    pub fn next(&mut self) -> Result<Option<Batch>> {
        const NEXT: &str = "transformer.next";
        let batch = self.session.next()?;
        if let Some(batch) = &batch {
            if batch.rows == 0 {
                return broken(self.session.as_mut(), NEXT, "a batch without rows");
            }
            let layout = self.layout.as_ref().expect("begin comes first");
            look_at(self.session.as_mut(), NEXT, batch, layout)?;
        }
        Ok(batch)
    }

    /// As [`TransformSession::rejects`].
    pub fn rejects(&mut self) -> Result<Vec<Reject>> {
        let mut rejects = self.session.rejects()?;
        if let Some(wrong) = wrong_rejects(&rejects, self.keeps_rejects) {
            return broken(self.session.as_mut(), "transformer.rejects", wrong);
        }
        ended::shorten_rejects(&mut rejects, &self.session.sandbox().redact);
        Ok(rejects)
    }

    /// As [`TransformSession::finish`].
    pub fn finish(&mut self) -> bool {
        self.layout = None;
        self.session.finish()
    }

    /// As [`Session::close`].
    pub fn close(self) {
        self.session.close();
    }
}

/// How far a destination is with a stream.
pub struct Standing {
    /// None when no run has fenced yet, or the destination does not fence runs of the target.
    pub progress: Option<Progress>,
    /// False if the destination does not fence runs of the target: an older run can then commit after a newer one.
    pub fences: bool,
}

/// A destination, with one session and one load at a time.
pub struct Destination {
    session: Box<dyn DestinationSession>,
    made: Instant,
}

impl Destination {
    pub(crate) fn new(session: Box<dyn DestinationSession>) -> Self {
        Self {
            session,
            made: Instant::now(),
        }
    }

    /// As [`DestinationSession::describe`].
    pub fn describe(&mut self) -> Result<Spec> {
        let spec = self.session.describe()?;
        look_at_spec(self.session.as_mut(), &spec)?;
        Ok(spec)
    }

    /// As [`DestinationSession::open`].
    pub fn open(&mut self, config: &str) -> Result<()> {
        self.session.open(config)
    }

    /// As [`DestinationSession::check`].
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        let mut items = self.session.check()?;
        ended::shorten_all(&mut items, &self.session.sandbox().redact);
        Ok(items)
    }

    /// As [`DestinationSession::plan`].
    pub fn plan(&mut self, target: &Target) -> Result<Plan> {
        let columns = target_columns(target);
        let mut plan = self.session.plan(target)?;
        if plan.columns.len() != columns {
            let text = format!("a plan of {} columns for {columns}", plan.columns.len());
            return broken(self.session.as_mut(), "session.plan", text);
        }
        let is_column = |name: &String| plan.columns.iter().any(|column| column.column == *name);
        if !plan.new_columns.iter().all(is_column) {
            let text = "a plan with new columns that the stream does not have";
            return broken(self.session.as_mut(), "session.plan", text);
        }
        ended::shorten_plan(&mut plan, &self.session.sandbox().redact);
        Ok(plan)
    }

    /// As [`Session::hand_over`].
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.session.hand_over(sandbox)
    }

    /// The time since the session was made.
    pub fn age(&self) -> Duration {
        self.made.elapsed()
    }

    /// Whether the token that the session was made with is cancelled: what it has connected is gone then.
    pub fn is_cancelled(&self) -> bool {
        self.session.sandbox().cancel.is_cancelled()
    }

    /// The progress of a stream; none when no run has fenced yet, or the destination does not fence runs of the target.
    pub fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        Ok(self.standing(target, pipeline)?.progress)
    }

    /// The same, and whether the destination fences runs of this target.
    pub fn standing(&mut self, target: &Target, pipeline: &str) -> Result<Standing> {
        let found = self.session.progress(target, pipeline)?;
        if let Some(progress) = &found {
            look_at_progress(self.session.as_mut(), "session.progress", progress)?;
        }
        let fences = found.as_ref().is_none_or(|progress| progress.epoch > 0);
        Ok(Standing {
            progress: found.filter(|_| fences),
            fences,
        })
    }

    /// As [`DestinationSession::digest_recipe`].
    pub fn digest_recipe(&mut self, target: &Target, forms: &[String]) -> Result<String> {
        self.session.digest_recipe(target, forms)
    }

    /// As [`DestinationSession::digest`].
    pub fn digest(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        self.session.digest(target, asked, within, bits)
    }

    /// As [`DestinationSession::digest_rows`].
    pub fn digest_rows(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let found = self.session.digest_rows(target, asked, rows, max)?;
        match found.len() > max as usize {
            true => {
                let text = format!("{} rows, above {max}", found.len());
                broken(self.session.as_mut(), "session.digest-rows", text)
            }
            false => Ok(found),
        }
    }

    /// As [`DestinationSession::working`].
    pub fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let workers = self.session.working(pipeline)?;
        look_at_workers(self.session.as_mut(), &workers)?;
        Ok(workers)
    }

    /// As [`DestinationSession::beat`].
    pub fn beat(&mut self, presence: &Presence) -> Result<bool> {
        self.session.beat(presence)
    }

    /// As [`DestinationSession::rejects`].
    pub fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        const REJECTS: &str = "session.rejects";
        let mut page = self.session.rejects(to, pipeline, after, with_data)?;
        if page.len() > MAX_REJECTS {
            let text = format!("{} rejects at a time, above {MAX_REJECTS}", page.len());
            return broken(self.session.as_mut(), REJECTS, text);
        }
        // A page that begins again would never end.
        if page.last().is_some_and(|last| Some(&last.id) == after) {
            let text = "a page of rejects that ends where the page before it ended";
            return broken(self.session.as_mut(), REJECTS, text);
        }
        for kept in &mut page {
            let data = kept.reject.data.len();
            let texts = [&kept.id, &kept.stream, &kept.run_id, &kept.time];
            if data > MAX_REJECT_DATA || texts.iter().any(|text| text.len() > MAX_STREAM_NAME) {
                let text = format!("a kept reject with {data} bytes of its record, or a long name");
                return broken(self.session.as_mut(), REJECTS, text);
            }
            let reject = std::slice::from_mut(&mut kept.reject);
            ended::shorten_rejects(reject, &self.session.sandbox().redact);
        }
        Ok(page)
    }

    /// As [`Session::is_usable`].
    pub fn is_usable(&self) -> bool {
        self.session.is_usable()
    }

    /// As [`DestinationSession::begin`].
    pub fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>> {
        const PROGRESS: &str = "load.progress";
        let progress = self.session.begin(requests)?;
        let session = self.session.as_mut();
        ensure_one_for_each(
            session,
            PROGRESS,
            progress.len(),
            requests.len(),
            "progress",
        )?;
        for one in &progress {
            look_at_progress(session, PROGRESS, one)?;
        }
        Ok(progress)
    }

    /// As [`DestinationSession::open_writer`].
    pub fn open_writer(&mut self, stream: u32, cursor: Option<&String>) -> Result<()> {
        self.session.open_writer(stream, cursor)
    }

    /// As [`DestinationSession::schema_changes`].
    pub fn schema_changes(&mut self, stream: u32) -> Result<Vec<String>> {
        let mut statements = self.session.schema_changes(stream)?;
        ended::shorten_notes(&mut statements, &self.session.sandbox().redact);
        Ok(statements)
    }

    /// As [`DestinationSession::write`].
    pub fn write(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        self.session.write(stream, batch)
    }

    /// As [`DestinationSession::reject`].
    pub fn reject(&mut self, stream: u32, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        self.session.reject(stream, origin, rejects)
    }

    /// As [`DestinationSession::refused`].
    pub fn refused(&mut self, stream: u32) -> Result<Refused> {
        let mut refused = self.session.refused(stream)?;
        if refused.first.len() > MAX_FIRST_REFUSED {
            let text = format!(
                "{} rejects at a time, above {MAX_FIRST_REFUSED}",
                refused.first.len()
            );
            return broken(self.session.as_mut(), "writer.refused", text);
        }
        ended::shorten_rejects(&mut refused.first, &self.session.sandbox().redact);
        Ok(refused)
    }

    /// As [`DestinationSession::flush`].
    pub fn flush(&mut self, stream: u32) -> Result<Part> {
        self.session.flush(stream)
    }

    /// As [`DestinationSession::open_keys`].
    pub fn open_keys(&mut self, stream: u32) -> Result<()> {
        self.session.open_keys(stream)
    }

    /// As [`DestinationSession::write_keys`].
    pub fn write_keys(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        self.session.write_keys(stream, batch)
    }

    /// As [`DestinationSession::flush_keys`].
    pub fn flush_keys(&mut self, stream: u32) -> Result<Part> {
        self.session.flush_keys(stream)
    }

    /// As [`DestinationSession::commit`].
    pub fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>> {
        let mut receipts = self.session.commit(commits)?;
        let session = self.session.as_mut();
        ensure_one_for_each(
            session,
            "load.commit",
            receipts.len(),
            commits.len(),
            "receipt",
        )?;
        let redact = &session.sandbox().redact;
        for receipt in &mut receipts {
            ended::shorten_location(&mut receipt.location, redact);
        }
        Ok(receipts)
    }

    /// As [`DestinationSession::finish`].
    pub fn finish(&mut self) -> bool {
        self.session.finish()
    }

    /// As [`Session::close`].
    pub fn close(self) {
        self.session.close();
    }

    /// As [`DestinationSession::abort`].
    pub fn abort(&mut self) -> Result<()> {
        self.session.abort()
    }
}

/// The problem with the rejects of a source or a transform. `None` if they are right.
fn wrong_rejects(rejects: &[Reject], are_kept: bool) -> Option<String> {
    let longest = rejects.iter().map(|reject| reject.data.len()).max();
    match longest {
        _ if !are_kept => Some("rejects that nobody asked for".into()),
        _ if rejects.len() > MAX_REJECTS => {
            let count = rejects.len();
            Some(format!("{count} rejects at a time, above {MAX_REJECTS}"))
        }
        Some(len) if len > MAX_REJECT_DATA => Some(format!(
            "a reject with {len} bytes of its record, above {MAX_REJECT_DATA}"
        )),
        _ => None,
    }
}

/// Compares a batch with its schema and its limits.
fn look_at(
    session: &mut (impl Session + ?Sized),
    export: &'static str,
    batch: &Batch,
    layout: &Layout,
) -> Result<()> {
    let limits = &session.sandbox().limits;
    let (limit, value_limit) = (limits.batch_bytes, limits.value_bytes);
    if batch.data.len() > limit {
        let len = batch.data.len();
        return broken(
            session,
            export,
            format!("a batch of {len} bytes, above {limit}"),
        );
    }
    match layout.verify_values(&batch.data, batch.rows, value_limit as u64) {
        Err(error) => broken(session, export, error),
        Ok(None) => Ok(()),
        Ok(Some(Unfit::Value {
            column,
            value,
            data_type,
        })) => {
            let text = format!("{value} does not fit {data_type}");
            let hint = match data_type == "time" {
                true => "correct the value at its source: a time of day is below 24:00",
                false => "correct the value at its source, or declare more digits there",
            };
            let mut error =
                ConnectorError::new(ErrorKind::Data, "value_does_not_fit", text).hint(hint);
            error.column = Some(column);
            Err(session.refuse(export, error))
        }
        Ok(Some(Unfit::Long(len))) => {
            let text = format!("a value of {len} bytes, above {value_limit}");
            let error = ConnectorError::new(ErrorKind::Internal, "too_large", text)
                .hint("raise resources.max_record_bytes if records are that large");
            Err(session.refuse(export, error))
        }
    }
}

/// Refuses a description that nobody could read: it is parsed, kept and shown.
fn look_at_spec(session: &mut (impl Session + ?Sized), spec: &Spec) -> Result<()> {
    const DESCRIBE: &str = "describe";
    let schema = spec.config_schema.len();
    if schema > MAX_CONFIG_SCHEMA {
        let text = format!("a config schema of {schema} bytes, above {MAX_CONFIG_SCHEMA}");
        return broken(session, DESCRIBE, text);
    }
    let forms = spec.native_forms.iter().map(String::len);
    let texts = [&spec.name, &spec.version, &spec.description].map(|text| text.len());
    let words = texts.into_iter().chain(forms).sum::<usize>() + spec.native_forms.len();
    let words = words + spec.sync_modes.len() + spec.write_modes.len();
    match words > MAX_WORDS {
        true => broken(
            session,
            DESCRIBE,
            format!("names and texts of {words} bytes, above {MAX_WORDS}"),
        ),
        false => Ok(()),
    }
}

/// Refuses more streams, or longer names, than a system has.
fn look_at_streams(
    session: &mut (impl Session + ?Sized),
    export: &'static str,
    streams: &[Stream],
) -> Result<()> {
    if streams.len() > MAX_STREAMS {
        let text = format!("{} streams, above {MAX_STREAMS}", streams.len());
        return broken(session, export, text);
    }
    let long = streams.iter().map(|stream| stream.name.len());
    match long.max().filter(|len| *len > MAX_STREAM_NAME) {
        Some(len) => {
            let text = format!("a stream's name of {len} bytes, above {MAX_STREAM_NAME}");
            broken(session, export, text)
        }
        None => Ok(()),
    }
}

/// Compares the rows after a transform with those before it.
fn look_at_relation(input: &Relation, output: &Relation) -> Result<(), String> {
    let schema = rapidbyte_wire::ipc::decode_schema(&output.schema).map_err(|e| e.to_string())?;
    rapidbyte_wire::types::check_portable(&schema).map_err(|e| e.to_string())?;
    let (types, columns) = (output.source_types.len(), schema.fields().len());
    if output.stream != input.stream {
        return Err("the plan has another stream".into());
    }
    if types != columns {
        return Err(format!("{types} source types for {columns} columns"));
    }
    let mut keys = output.primary_key.iter();
    match keys.find(|key| schema.index_of(key).is_err()) {
        Some(key) => Err(format!(
            "the column {key} of the primary key does not exist"
        )),
        None => Ok(()),
    }
}

/// Refuses more runs at work, or longer texts about them, than anybody reads.
fn look_at_workers(session: &mut (impl Session + ?Sized), workers: &[Worker]) -> Result<()> {
    const WORKING: &str = "session.working";
    if workers.len() > MAX_WORKERS {
        let text = format!("{} other running runs, above {MAX_WORKERS}", workers.len());
        return broken(session, WORKING, text);
    }
    let process = |worker: &Worker| worker.process.as_ref().map_or(0, String::len);
    let bytes = |worker: &Worker| worker.run_id.len() + worker.place.len() + process(worker);
    match workers.iter().map(bytes).max() {
        Some(bytes) if bytes > MAX_WORKER => broken(
            session,
            WORKING,
            format!("{bytes} bytes about one run, above {MAX_WORKER}"),
        ),
        _ => Ok(()),
    }
}

/// Refuses a cursor that no source can have given, and longer texts than a run id and a reason have.
fn look_at_progress(
    session: &mut (impl Session + ?Sized),
    export: &'static str,
    progress: &Progress,
) -> Result<()> {
    // Somebody may have edited it: its source says what is wrong with it.
    if let Some(Err(wrong)) = progress.cursor.as_deref().map(cursors::check_length) {
        return broken(session, export, wrong);
    }
    let bytes = progress.run_id.len() + progress.lost_rows.as_ref().map_or(0, String::len);
    match bytes > MAX_WORDS {
        true => broken(
            session,
            export,
            format!("texts of {bytes} bytes, above {MAX_WORDS}"),
        ),
        false => Ok(()),
    }
}

/// Refuses an answer that is not about each stream of a read or a load.
fn ensure_one_for_each(
    session: &mut (impl Session + ?Sized),
    export: &'static str,
    answers: usize,
    streams: usize,
    what: &str,
) -> Result<()> {
    if answers == streams {
        return Ok(());
    }
    let text = format!("{answers} times {what} for {streams} streams");
    broken(session, export, text)
}

fn broken<T>(
    session: &mut (impl Session + ?Sized),
    export: &'static str,
    message: impl std::fmt::Display,
) -> Result<T> {
    let error = ConnectorError::new(ErrorKind::Internal, "contract_broken", message)
        .hint("report it to the connector's author: the connector has a bug");
    Err(session.refuse(export, error))
}

fn target_columns(target: &Target) -> usize {
    rapidbyte_wire::ipc::decode_schema(&target.schema).map_or(0, |schema| schema.fields().len())
}

//! Every row exactly once, whatever call fails: on tables in memory, where a run takes milliseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte::memory::Tables;
use rapidbyte::{
    Control, Engine, Environment, Failure, Narrowing, NativeConnector, Pipeline, Report, RunOptions,
};
use rapidbyte_runtime::{
    Batch, CheckItem, ConnectorError, DestinationSession, Error, ErrorKind, Event, LoadRequest,
    Native, NativeSession, Part, Plan, Position, Presence, Progress, ReadRequest, Receipt,
    Relation, Result as Called, Sandbox, Selection, Session, SourceSession, Spec, Stream,
    StreamCommit, Target, TransformPlan, TransformSession, Worker,
};
use tempfile::TempDir;

/// Three steps of a read. The last step is not full.
const ROWS: i64 = 600;
/// Waits for a commit that is due after a second, of a quarter of a second each.
const MOST_IDLE: usize = 240;
/// Runs that wait for their retry.
const AT_A_TIME: usize = 32;

/// The one call that fails, counted from 0 over all calls of both sides that a run makes behind its plan.
#[derive(Clone)]
struct Fault {
    calls: Arc<AtomicU64>,
    at: u64,
    kind: ErrorKind,
    /// The call does its work, and its answer is lost.
    is_late: bool,
    /// The source reads all streams together.
    is_together: bool,
    /// The native forms with which the streams were found.
    forms: Arc<Mutex<Vec<String>>>,
    /// The cursors that the engine has acknowledged, by stream.
    acknowledged: Arc<Mutex<BTreeMap<String, String>>>,
    /// The number of streams of each commit.
    commits: Arc<Mutex<Vec<usize>>>,
    /// Notified at each commit.
    has_committed: Arc<Condvar>,
    /// After its first checkpoints, the source emits only `idle` until a commit.
    pauses: bool,
    /// An answer that breaks the contract.
    lie: Option<Lie>,
}

/// An answer that breaks the contract.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lie {
    Schemas,
    BatchOf(u32),
    CheckpointOf(u32),
    Progress,
    Receipts,
    ReceiptRows,
    PartRows,
}

impl Fault {
    /// Counts the calls, and lets none fail.
    fn never() -> Self {
        Self {
            calls: Arc::default(),
            at: u64::MAX,
            kind: ErrorKind::Data,
            is_late: false,
            is_together: false,
            forms: Arc::default(),
            acknowledged: Arc::default(),
            commits: Arc::default(),
            has_committed: Arc::default(),
            pauses: false,
            lie: None,
        }
    }

    /// Makes a call, or fails in its place or behind it.
    fn around<T>(&self, export: &'static str, call: impl FnOnce() -> Called<T>) -> Called<T> {
        let is_now = self.calls.fetch_add(1, Ordering::Relaxed) == self.at;
        if !is_now {
            return call();
        }
        if self.is_late {
            call()?;
        }
        Err(Error::Failed {
            connector: "faulty".into(),
            export,
            phase: None,
            error: Box::new(ConnectorError::new(self.kind, "on_purpose", "a fault")),
        })
    }

    fn has_happened(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.at
    }
}

/// A session with a fault in it.
struct Faulty<S: ?Sized> {
    fault: Fault,
    session: Box<S>,
    /// The streams of the read.
    read: Vec<String>,
    /// The checkpoints of the read so far, if the source pauses behind them.
    checkpoints: usize,
    idle: usize,
}

impl<S: Session + ?Sized> Session for Faulty<S> {
    fn sandbox(&self) -> &Sandbox {
        self.session.sandbox()
    }
    fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.session.hand_over(sandbox)
    }
    fn is_usable(&self) -> bool {
        self.session.is_usable()
    }
    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error {
        self.session.refuse(export, error)
    }
    fn stalled(&self) -> ConnectorError {
        self.session.stalled()
    }
    fn close(self: Box<Self>) {}
}

impl SourceSession for Faulty<dyn SourceSession> {
    fn describe(&mut self) -> Called<Spec> {
        let mut spec = self.session.describe()?;
        spec.native_forms = vec!["memory".into()];
        spec.reads_together = self.fault.is_together;
        Ok(spec)
    }
    fn open(&mut self, config: &str) -> Called<()> {
        self.session.open(config)
    }
    fn check(&mut self) -> Called<Vec<CheckItem>> {
        self.session.check()
    }
    fn discover(&mut self, forms: &[String]) -> Called<Vec<Stream>> {
        *self.fault.forms.lock().expect("no panic") = forms.to_vec();
        self.session.discover(forms)
    }
    fn snapshot(&mut self, streams: &[Selection]) -> Called<String> {
        self.session.snapshot(streams)
    }
    fn read(&mut self, requests: &[ReadRequest]) -> Called<Vec<Vec<u8>>> {
        let found = self.fault.forms.lock().expect("no panic").clone();
        for request in requests {
            assert_eq!(request.forms, found, "as the streams were found");
        }
        let streams = requests.iter().map(|request| request.stream.clone());
        self.read = streams.collect();
        let session = &mut self.session;
        let read = || session.read(requests);
        let mut schemas = self.fault.around("session.read", read)?;
        if self.fault.lie == Some(Lie::Schemas) {
            schemas.pop();
        }
        Ok(schemas)
    }
    fn next(&mut self, wait_ms: u32) -> Called<Event> {
        if self.fault.pauses && self.checkpoints == self.read.len() {
            let commits = self.fault.commits.lock().expect("no panic");
            let wait = Duration::from_millis(wait_ms.into());
            let is_open = |commits: &mut Vec<usize>| commits.is_empty();
            let committed = &self.fault.has_committed;
            let waited = committed.wait_timeout_while(commits, wait, is_open);
            if waited.expect("no panic").1.timed_out() {
                self.idle += 1;
                assert!(self.idle < MOST_IDLE, "a commit is due by time");
                return Ok(Event::Idle);
            }
        }
        let session = &mut self.session;
        let mut event = self.fault.around("reader.next", || session.next(wait_ms))?;
        match (&mut event, self.fault.lie) {
            (Event::Batch((stream, _)), Some(Lie::BatchOf(other))) => *stream = other,
            (Event::Checkpoint(position), Some(Lie::CheckpointOf(other))) => {
                position.stream = other;
            }
            (Event::Checkpoint(_), _) => self.checkpoints += 1,
            _ => {}
        }
        Ok(event)
    }
    fn acknowledge(&mut self, positions: &[Position]) -> Called<()> {
        let mut known = self.fault.acknowledged.lock().expect("no panic");
        for Position { stream, cursor } in positions {
            let stream = self.read[*stream as usize].clone();
            known.insert(stream, cursor.clone());
        }
        drop(known);
        let session = &mut self.session;
        self.fault
            .around("reader.acknowledge", || session.acknowledge(positions))
    }
    fn finish(&mut self) -> bool {
        self.session.finish()
    }
}

impl DestinationSession for Faulty<dyn DestinationSession> {
    fn describe(&mut self) -> Called<Spec> {
        let mut spec = self.session.describe()?;
        spec.native_forms = vec!["memory".into()];
        Ok(spec)
    }
    fn open(&mut self, config: &str) -> Called<()> {
        self.session.open(config)
    }
    fn check(&mut self) -> Called<Vec<CheckItem>> {
        self.session.check()
    }
    fn plan(&mut self, target: &Target) -> Called<Plan> {
        self.session.plan(target)
    }
    fn progress(&mut self, target: &Target, pipeline: &str) -> Called<Option<Progress>> {
        self.session.progress(target, pipeline)
    }
    fn working(&mut self, pipeline: &str) -> Called<Vec<Worker>> {
        self.session.working(pipeline)
    }
    fn beat(&mut self, presence: &Presence) -> Called<bool> {
        self.session.beat(presence)
    }
    fn begin(&mut self, requests: &[LoadRequest]) -> Called<Vec<Progress>> {
        let session = &mut self.session;
        let begin = || session.begin(requests);
        let mut progress = self.fault.around("session.begin", begin)?;
        if self.fault.lie == Some(Lie::Progress) {
            progress.pop();
        }
        Ok(progress)
    }
    fn open_writer(&mut self, stream: u32, cursor: Option<&String>) -> Called<()> {
        let session = &mut self.session;
        let open = || session.open_writer(stream, cursor);
        self.fault.around("load.open-writer", open)
    }
    fn write(&mut self, stream: u32, batch: &Batch) -> Called<()> {
        let session = &mut self.session;
        let write = || session.write(stream, batch);
        self.fault.around("writer.write", write)
    }
    fn flush(&mut self, stream: u32) -> Called<Part> {
        let session = &mut self.session;
        let flush = || session.flush(stream);
        let mut part = self.fault.around("writer.flush", flush)?;
        part.rows += u64::from(self.fault.lie == Some(Lie::PartRows));
        Ok(part)
    }
    fn commit(&mut self, commits: &[StreamCommit]) -> Called<Vec<Receipt>> {
        let session = &mut self.session;
        let commit = || session.commit(commits);
        let mut receipts = self.fault.around("load.commit", commit)?;
        let mut known = self.fault.commits.lock().expect("no panic");
        known.push(commits.len());
        drop(known);
        self.fault.has_committed.notify_all();
        match self.fault.lie {
            Some(Lie::Receipts) => drop(receipts.pop()),
            Some(Lie::ReceiptRows) => receipts[0].rows += 1,
            _ => {}
        }
        Ok(receipts)
    }
    fn finish(&mut self) -> bool {
        self.session.finish()
    }
    fn abort(&mut self) -> Called<()> {
        self.session.abort()
    }
}

/// A transform that passes every batch through, with a fault in it.
struct Through {
    native: Native,
    fault: Fault,
    batch: Option<Batch>,
}

impl NativeSession for Through {
    fn native(&self) -> &Native {
        &self.native
    }
    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl TransformSession for Through {
    fn describe(&mut self) -> Called<Spec> {
        Ok(Spec::plain("through", "1.0.0", "Passes rows through", "{}"))
    }
    fn open(&mut self, _: &str) -> Called<()> {
        Ok(())
    }
    fn plan(&mut self, input: &Relation) -> Called<TransformPlan> {
        let (output, notes) = (input.clone(), Vec::new());
        Ok(TransformPlan { output, notes })
    }
    fn begin(&mut self, input: &Relation, _: bool) -> Called<Vec<u8>> {
        let begin = || Ok(input.schema.clone());
        self.fault.around("session.begin", begin)
    }
    fn put(&mut self, batch: &Batch) -> Called<()> {
        let kept = &mut self.batch;
        self.fault.around("transformer.put", || {
            *kept = Some(batch.clone());
            Ok(())
        })
    }
    fn next(&mut self) -> Called<Option<Batch>> {
        let kept = &mut self.batch;
        self.fault.around("transformer.next", || Ok(kept.take()))
    }
    fn finish(&mut self) -> bool {
        true
    }
}

/// An engine that reads `from` and writes `to`, each with the fault in it.
fn engine(from: &Tables, to: &Tables, fault: &Fault) -> Engine {
    let (tables, of) = (from.clone(), fault.clone());
    let source = NativeConnector::source("source-memory", move |native| {
        Box::new(Faulty {
            fault: of.clone(),
            session: tables.source_session("source-memory", native),
            read: Vec::new(),
            checkpoints: 0,
            idle: 0,
        })
    });
    let (tables, of) = (to.clone(), fault.clone());
    let destination = NativeConnector::destination("dest-memory", move |native| {
        Box::new(Faulty {
            fault: of.clone(),
            session: tables.destination_session("dest-memory", native),
            read: Vec::new(),
            checkpoints: 0,
            idle: 0,
        })
    });
    let builder = Engine::builder().without_bundled();
    let of = fault.clone();
    let through = NativeConnector::transform("through", move |native| {
        Box::new(Through {
            native,
            fault: of.clone(),
            batch: None,
        })
    });
    let connectors = [source, through, destination].into_iter();
    let builder = connectors.fold(builder, |builder, one| builder.connector(one));
    builder.build().expect("an engine")
}

fn items(rows: std::ops::Range<i64>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let ids = Arc::new(Int64Array::from_iter_values(rows));
    RecordBatch::try_new(schema, vec![ids]).expect("a batch")
}

/// Tables of the same rows.
fn filled(rows: i64, names: &[&str]) -> Tables {
    let tables = Tables::new();
    for name in names {
        let batch = items(0..rows);
        tables.set(name, batch.schema(), &["id"], vec![batch]);
    }
    tables
}

/// How often each id is there.
fn counts(tables: &Tables, name: &str) -> BTreeMap<i64, u32> {
    let mut counts = BTreeMap::new();
    for batch in tables.get(name).unwrap_or_default() {
        for id in batch.column(0).as_primitive::<Int64Type>().values() {
            *counts.entry(*id).or_default() += 1;
        }
    }
    counts
}

/// A pipeline that moves the streams `names`, each with the keys `stream`.
fn pipeline((names, stream): (&[&str], &str), write_mode: &str) -> String {
    let streams = names.iter();
    let streams = streams.map(|name| format!("{{ name: {name}, {stream} }}"));
    let streams: Vec<String> = streams.collect();
    let streams = streams.join(", ");
    format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 3, backoff_seconds: 1 }}\n\
         checkpoint: {{ every_rows: 300 }}\nresources: {{ batch_bytes: 4kb }}\n\
         source:\n  use: source-memory\n  streams: [{streams}]\n\
         destination:\n  use: dest-memory\n  write_mode: {write_mode}\n"
    )
}

fn run(
    engine: &Engine,
    folder: &Path,
    streams: (&[&str], &str),
    write_mode: &str,
) -> Result<Report, Failure> {
    run_text(engine, folder, &pipeline(streams, write_mode))
}

fn run_text(engine: &Engine, folder: &Path, text: &str) -> Result<Report, Failure> {
    let pipeline = Pipeline::from_str(text, folder, &Environment::process()).expect("a pipeline");
    engine.run(&pipeline, &RunOptions::default(), &Control::default())
}

/// A run in which each call fails once.
#[derive(Clone, Copy)]
struct Case<'a> {
    /// The keys of each stream.
    stream: &'a str,
    write_mode: &'a str,
    kind: ErrorKind,
    is_late: bool,
    is_together: bool,
}

impl Case<'_> {
    fn names(&self) -> &'static [&'static str] {
        match self.is_together {
            true => &["a", "b", "c"],
            false => &["a", "b"],
        }
    }

    /// Fails each call once, many at a time because a retry waits. Gives the number of calls at least.
    #[track_caller]
    fn each_call_fails_once(self) -> u64 {
        for from in (0..).step_by(AT_A_TIME) {
            let happened = std::thread::scope(|scope| {
                let calls = from..from + AT_A_TIME as u64;
                let fails = |at| scope.spawn(move || self.call_fails(at));
                let threads: Vec<_> = calls.map(fails).collect();
                let mut ended = threads
                    .into_iter()
                    .map(|thread| thread.join().expect("a run"));
                ended.all(|one| one)
            });
            if !happened {
                return from;
            }
        }
        unreachable!("a run has an end")
    }

    /// Fails one call. False if the run has fewer calls.
    fn call_fails(self, at: u64) -> bool {
        let Self {
            stream,
            write_mode,
            kind,
            is_late,
            is_together,
        } = self;
        let about = format!("{stream} {write_mode}, {kind:?} at call {at}, late: {is_late}");
        let fault = Fault {
            at,
            kind,
            is_late,
            is_together,
            ..Fault::never()
        };
        let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
        let names = self.names();
        let engine = engine(&filled(ROWS, names), &to, &fault);
        let mut ended = run(&engine, folder.path(), (names, stream), write_mode);
        let (happened, passes) = (fault.has_happened(), matches!(kind, ErrorKind::Transient));
        if happened && !passes {
            let failure = ended.expect_err(&about);
            assert_eq!(failure.code, "on_purpose", "{about}: {failure:?}");
            if is_together {
                let found = names.iter().map(|name| counts(&to, name));
                let found: Vec<_> = found.collect();
                assert!(found.windows(2).all(|two| two[0] == two[1]), "{about}");
            }
            ended = run(&engine, folder.path(), (names, stream), write_mode);
        }
        ended.unwrap_or_else(|failure| panic!("{about}: {failure:?}"));
        let times = |times| {
            (0..ROWS)
                .map(|id| (id, times))
                .collect::<BTreeMap<i64, u32>>()
        };
        for name in names {
            let found = counts(&to, name);
            // The run after one that failed in part is another run: it appends a stream again that was complete.
            let is_whole = !stream.contains("incremental");
            let is_again = !passes && write_mode == "append" && is_whole && !is_together;
            let is_right = found == times(1) || is_again && found == times(2);
            assert!(is_right, "{about}: {name} has {} ids", found.len());
        }
        happened
    }
}

const INCREMENTAL: &str = "sync_mode: incremental, cursor_field: id";

#[test]
fn streams_that_move_together_have_every_row_once_and_the_same_commits_whatever_call_fails() {
    let transforms = format!("{INCREMENTAL}, transforms: [{{ use: through }}]");
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for (stream, write_mode) in [
            (INCREMENTAL, "append"),
            (INCREMENTAL, "upsert"),
            (&transforms, "append"),
            ("sync_mode: full_refresh", "append"),
            ("sync_mode: full_refresh", "replace"),
        ] {
            for is_late in [false, true] {
                let case = Case {
                    stream,
                    write_mode,
                    kind,
                    is_late,
                    is_together: true,
                };
                // A transform answers late as it answers in time.
                if !is_late || !stream.contains("through") {
                    case.each_call_fails_once();
                }
            }
        }
    }
}

#[test]
fn streams_that_move_together_have_one_reader_and_each_commit_has_all_of_them() {
    let fault = Fault {
        is_together: true,
        ..Fault::never()
    };
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let names = &["a", "b", "c"];
    let from = filled(ROWS, names);
    let engine = engine(&from, &to, &fault);
    let report = run(&engine, folder.path(), (names, INCREMENTAL), "append");
    let report = report.expect("it ends well");
    // 256 rows of each stream come before a checkpoint.
    assert_eq!(*fault.commits.lock().expect("no panic"), [3, 3, 3]);
    let acknowledged = fault.acknowledged.lock().expect("no panic").clone();
    let last = r#"{"fields":["id"],"values":[599]}"#;
    let last = names.map(|name| (name.to_owned(), last.to_owned()));
    assert_eq!(acknowledged, BTreeMap::from(last));
    for stream in &report.streams {
        assert_eq!((stream.rows, stream.commits), (ROWS as u64, 3));
        let other = stream.together_with.as_deref();
        assert_eq!(other, (stream.name != "a").then_some("a"));
    }
    // A stream without new rows moves nothing.
    let batch = items(0..ROWS + 5);
    from.set("b", batch.schema(), &["id"], vec![batch]);
    let report = run(&engine, folder.path(), (names, INCREMENTAL), "append");
    assert_eq!(report.expect("it ends well").rows, 5);
    assert_eq!(counts(&to, "b").len() as i64, ROWS + 5);
}

/// Rows before a checkpoint become visible in time, also if the source gives nothing more for long.
#[test]
fn a_commit_is_due_by_time_also_if_no_event_comes() {
    let fault = Fault {
        is_together: true,
        pauses: true,
        ..Fault::never()
    };
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let names = &["a", "b", "c"];
    let engine = engine(&filled(ROWS, names), &to, &fault);
    let text = pipeline((names, INCREMENTAL), "append");
    let text = text.replace("every_rows: 300", "every_seconds: 1");
    let report = run_text(&engine, folder.path(), &text);
    assert_eq!(report.expect("it ends well").rows, 3 * ROWS as u64);
}

/// The host checks each answer about a group. A wrong answer before the commit leaves no row of the group.
#[test]
fn an_answer_about_other_streams_ends_the_run() {
    let names = &["a", "b", "c"];
    for (lie, export, text) in [
        (
            Lie::Schemas,
            "reader.schemas",
            "2 times schema for 3 streams",
        ),
        (
            Lie::BatchOf(3),
            "reader.next",
            "the stream 3 in a read of 3",
        ),
        (
            Lie::CheckpointOf(9),
            "reader.next",
            "the stream 9 in a read of 3",
        ),
        // The checkpoints of the other two never come.
        (
            Lie::CheckpointOf(0),
            "reader.next",
            "ended without a last checkpoint",
        ),
        (
            Lie::Progress,
            "load.progress",
            "2 times progress for 3 streams",
        ),
        (
            Lie::PartRows,
            "writer.flush",
            "received 256 rows and reports 257",
        ),
        (
            Lie::Receipts,
            "load.commit",
            "2 times receipt for 3 streams",
        ),
        (
            Lie::ReceiptRows,
            "load.commit",
            "received 256 rows and reports 257",
        ),
    ] {
        let fault = Fault {
            is_together: true,
            lie: Some(lie),
            ..Fault::never()
        };
        let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
        let engine = engine(&filled(ROWS, names), &to, &fault);
        let ended = run(&engine, folder.path(), (names, INCREMENTAL), "append");
        let failures = ended.expect_err(text).streams.failures;
        let follows = |failure: &&Failure| failure.message.starts_with("moves together with");
        let (others, causes): (Vec<_>, Vec<_>) = failures.iter().partition(follows);
        let ([failure], 2) = (causes.as_slice(), others.len()) else {
            panic!("{failures:?}");
        };
        assert_eq!(failure.code, "contract_broken", "{failure:?}");
        assert_eq!(failure.export, Some(export), "{failure:?}");
        assert!(failure.message.contains(text), "{failure:?}");
        if export != "load.commit" {
            assert_eq!(to.get("a").map_or(0, |rows| rows.len()), 0, "{text}");
        }
    }
}

#[test]
fn a_destination_that_compares_no_keys_is_refused_before_any_row() {
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let engine = engine(&filled(ROWS, &["a"]), &to, &Fault::never());
    let stream = "deletes: { mode: compare }, primary_key: [id]";
    let failure = run(&engine, folder.path(), (&["a"], stream), "upsert").expect_err("a refusal");
    assert_eq!(failure.code, "deletes_unsupported", "{failure:?}");
    assert!(
        failure.message.starts_with("dest-memory cannot"),
        "{failure:?}"
    );
    assert!(to.get("a").is_none());
}

/// A stream that an interrupted run has appended does not hold up the others, and is not appended twice.
#[test]
fn a_stream_that_is_done_stays_out_of_its_group() {
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let whole = "sync_mode: full_refresh";
    let only = |names: &[&str], fault: &Fault| {
        let engine = engine(&filled(ROWS, names), &to, fault);
        run(&engine, folder.path(), (names, whole), "append")
    };
    let counted = Fault::never();
    let calls = {
        let to = Tables::new();
        let engine = engine(&filled(ROWS, &["a"]), &to, &counted);
        let elsewhere = TempDir::new().expect("a folder");
        run(&engine, elsewhere.path(), (&["a"], whole), "append").expect("it ends well");
        counted.calls.load(Ordering::Relaxed)
    };
    // The last call is the commit, and its answer is lost.
    let lost = Fault {
        at: calls - 1,
        is_late: true,
        ..Fault::never()
    };
    only(&["a"], &lost).expect_err("a lost answer");
    let together = Fault {
        is_together: true,
        ..Fault::never()
    };
    let report = only(&["a", "b", "c"], &together).expect("it ends well");
    let before = report.streams.iter().map(|stream| stream.committed_before);
    assert_eq!(before.collect::<Vec<_>>(), [true, false, false]);
    for name in ["a", "b", "c"] {
        assert_eq!(
            counts(&to, name),
            (0..ROWS).map(|id| (id, 1)).collect(),
            "{name}"
        );
    }
}

#[test]
fn incremental_streams_have_every_row_once_whatever_call_fails() {
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for is_late in [false, true] {
            for write_mode in ["append", "upsert"] {
                let case = Case {
                    stream: INCREMENTAL,
                    write_mode,
                    kind,
                    is_late,
                    is_together: false,
                };
                let calls = case.each_call_fails_once();
                assert!(calls >= 32, "{calls}");
            }
        }
    }
}

#[test]
fn streams_with_transforms_have_every_row_once_whatever_call_fails() {
    let transforms = "transforms: [{ use: through }, { use: through }]";
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for (mode, write_mode) in [
            ("incremental, cursor_field: id", "upsert"),
            ("incremental, cursor_field: id", "append"),
            ("full_refresh", "append"),
        ] {
            let case = Case {
                stream: &format!("sync_mode: {mode}, {transforms}"),
                write_mode,
                kind,
                is_late: false,
                is_together: false,
            };
            let calls = case.each_call_fails_once();
            assert!(calls >= 32, "{calls}");
        }
    }
}

#[test]
fn whole_streams_have_every_row_once_whatever_call_fails() {
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for is_late in [false, true] {
            for write_mode in ["append", "replace", "upsert"] {
                let case = Case {
                    stream: "sync_mode: full_refresh",
                    write_mode,
                    kind,
                    is_late,
                    is_together: false,
                };
                case.each_call_fails_once();
            }
        }
    }
}

#[test]
fn the_next_run_of_an_incremental_stream_moves_what_is_new() {
    let never = Fault::never();
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    for (rows, moved) in [(ROWS, ROWS), (ROWS, 0), (ROWS + 7, 7)] {
        let names = &["a", "b"];
        let engine = engine(&filled(rows, names), &to, &never);
        let report = run(&engine, folder.path(), (names, INCREMENTAL), "append");
        assert_eq!(report.expect("it ends well").rows, 2 * moved as u64);
    }
    let all = (0..ROWS + 7).map(|id| (id, 1)).collect();
    assert_eq!(counts(&to, "a"), all);
}

/// A stream is read in the forms in which it was found, also if a stream with a transform does not move this time.
#[test]
fn a_selected_stream_is_read_in_the_forms_in_which_it_was_found() {
    let fault = Fault::never();
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let text = "version: 1\npipeline: t\nsource:\n  use: source-memory\n  \
                streams: [a, { name: b, transforms: [{ use: through }] }]\n\
                destination:\n  use: dest-memory\n  write_mode: append\n";
    let pipeline = Pipeline::from_str(text, folder.path(), &Environment::process());
    let options = RunOptions {
        narrowing: Narrowing {
            select: vec!["a".into()],
            ..Narrowing::default()
        },
        ..RunOptions::default()
    };
    let engine = engine(&filled(ROWS, &["a", "b"]), &to, &fault);
    let report = engine.run(
        &pipeline.expect("a pipeline"),
        &options,
        &Control::default(),
    );
    assert_eq!(report.expect("it ends well").rows, ROWS as u64);
    // The transform knows no native form.
    assert!(fault.forms.lock().expect("no panic").is_empty());
}

//! Every row exactly once, whatever call fails: on tables in memory, where a run takes milliseconds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte::memory::Tables;
use rapidbyte::{
    Control, Engine, Environment, Failure, Narrowing, NativeConnector, Pipeline, Report, RunOptions,
};
use rapidbyte_runtime::{
    Batch, CheckItem, ConnectorError, DestinationSession, Error, ErrorKind, Event, Native,
    NativeSession, Part, Plan, Presence, Progress, ReadRequest, Receipt, Relation,
    Result as Called, Run, Sandbox, Selection, Session, SourceSession, Spec, Stream, Target,
    TransformPlan, TransformSession, Worker,
};
use tempfile::TempDir;

const ROWS: i64 = 1000;
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
    /// The native forms with which the streams were found.
    forms: Arc<Mutex<Vec<String>>>,
}

impl Fault {
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
    fn read(&mut self, request: &ReadRequest) -> Called<Vec<u8>> {
        let found = self.fault.forms.lock().expect("no panic").clone();
        assert_eq!(request.forms, found, "as the streams were found");
        let session = &mut self.session;
        self.fault.around("session.read", || session.read(request))
    }
    fn next(&mut self, wait_ms: u32) -> Called<Event> {
        let session = &mut self.session;
        self.fault.around("reader.next", || session.next(wait_ms))
    }
    fn finish(&mut self) -> bool {
        self.session.finish()
    }
    fn acknowledge(&mut self, stream: &str, cursor: &str) -> Called<()> {
        self.session.acknowledge(stream, cursor)
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
    fn fence(&mut self, target: &Target, run: &Run) -> Called<Progress> {
        let session = &mut self.session;
        self.fault
            .around("session.fence", || session.fence(target, run))
    }
    fn open_writer(&mut self, target: &Target, epoch: u64, cursor: Option<&String>) -> Called<()> {
        let session = &mut self.session;
        let open = || session.open_writer(target, epoch, cursor);
        self.fault.around("session.open-writer", open)
    }
    fn write(&mut self, batch: &Batch) -> Called<()> {
        let session = &mut self.session;
        self.fault.around("writer.write", || session.write(batch))
    }
    fn flush(&mut self) -> Called<Part> {
        let session = &mut self.session;
        self.fault.around("writer.flush", || session.flush())
    }
    fn commit(
        &mut self,
        stream: &str,
        parts: &[Part],
        seq: u64,
        cursor: Option<&String>,
        complete: bool,
    ) -> Called<Receipt> {
        let session = &mut self.session;
        self.fault.around("session.commit", || {
            session.commit(stream, parts, seq, cursor, complete)
        })
    }
    fn finish(&mut self) -> bool {
        self.session.finish()
    }
    fn abort(&mut self, stream: &str) -> Called<()> {
        self.session.abort(stream)
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
        Ok(Spec {
            name: "through".into(),
            version: "1.0.0".into(),
            description: "Passes rows through".into(),
            config_schema: "{}".into(),
            sync_modes: Vec::new(),
            write_modes: Vec::new(),
            native_forms: Vec::new(),
            supports_filter: false,
            supports_checkpoints: false,
            deduplicates_appends: false,
        })
    }
    fn open(&mut self, _: &str) -> Called<()> {
        Ok(())
    }
    fn plan(&mut self, input: &Relation) -> Called<TransformPlan> {
        let (output, notes) = (input.clone(), Vec::new());
        Ok(TransformPlan { output, notes })
    }
    fn begin(&mut self, input: &Relation) -> Called<Vec<u8>> {
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
        })
    });
    let (tables, of) = (to.clone(), fault.clone());
    let destination = NativeConnector::destination("dest-memory", move |native| {
        Box::new(Faulty {
            fault: of.clone(),
            session: tables.destination_session("dest-memory", native),
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

/// Tables `a` and `b` of the same rows.
fn filled(rows: i64) -> Tables {
    let tables = Tables::new();
    for name in ["a", "b"] {
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

fn run(engine: &Engine, folder: &Path, stream: &str, write_mode: &str) -> Result<Report, Failure> {
    let text = format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 3, backoff_seconds: 1 }}\n\
         checkpoint: {{ every_rows: 300 }}\nresources: {{ batch_bytes: 4kb }}\n\
         source:\n  use: source-memory\n  streams: [{{ name: a, {stream} }}, {{ name: b, {stream} }}]\n\
         destination:\n  use: dest-memory\n  write_mode: {write_mode}\n"
    );
    let pipeline = Pipeline::from_str(&text, folder, &Environment::process()).expect("a pipeline");
    engine.run(&pipeline, &RunOptions::default(), &Control::default())
}

/// Fails each call once, many at a time because a retry waits. Gives the number of calls at least.
#[track_caller]
fn each_call_fails_once(stream: &str, write_mode: &str, kind: &ErrorKind, is_late: bool) -> u64 {
    for from in (0..).step_by(AT_A_TIME) {
        let happened = std::thread::scope(|scope| {
            let calls = from..from + AT_A_TIME as u64;
            let fails = |at| scope.spawn(move || call_fails(at, stream, write_mode, kind, is_late));
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
fn call_fails(at: u64, stream: &str, write_mode: &str, kind: &ErrorKind, is_late: bool) -> bool {
    let about = format!("{stream} {write_mode}, {kind:?} at call {at}, late: {is_late}");
    let fault = Fault {
        calls: Arc::default(),
        at,
        kind: *kind,
        is_late,
        forms: Arc::default(),
    };
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let engine = engine(&filled(ROWS), &to, &fault);
    let mut ended = run(&engine, folder.path(), stream, write_mode);
    let (happened, passes) = (fault.has_happened(), matches!(kind, ErrorKind::Transient));
    if happened && !passes {
        let failure = ended.expect_err(&about);
        assert_eq!(failure.code, "on_purpose", "{about}: {failure:?}");
        ended = run(&engine, folder.path(), stream, write_mode);
    }
    ended.unwrap_or_else(|failure| panic!("{about}: {failure:?}"));
    let times = |times| {
        (0..ROWS)
            .map(|id| (id, times))
            .collect::<BTreeMap<i64, u32>>()
    };
    for name in ["a", "b"] {
        let found = counts(&to, name);
        // The run after one that failed in part is another run: it appends a stream again that was complete.
        let is_again = !passes && write_mode == "append" && !stream.contains("incremental");
        let is_right = found == times(1) || is_again && found == times(2);
        assert!(is_right, "{about}: {name} has {} ids", found.len());
    }
    happened
}

#[test]
fn incremental_streams_have_every_row_once_whatever_call_fails() {
    let stream = "sync_mode: incremental, cursor_field: id";
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for is_late in [false, true] {
            for write_mode in ["append", "upsert"] {
                let calls = each_call_fails_once(stream, write_mode, &kind, is_late);
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
            let stream = format!("sync_mode: {mode}, {transforms}");
            let calls = each_call_fails_once(&stream, write_mode, &kind, false);
            assert!(calls >= 32, "{calls}");
        }
    }
}

#[test]
fn whole_streams_have_every_row_once_whatever_call_fails() {
    for kind in [ErrorKind::Transient, ErrorKind::Data] {
        for is_late in [false, true] {
            for write_mode in ["append", "replace", "upsert"] {
                each_call_fails_once("sync_mode: full_refresh", write_mode, &kind, is_late);
            }
        }
    }
}

#[test]
fn the_next_run_of_an_incremental_stream_moves_what_is_new() {
    let never = Fault {
        calls: Arc::default(),
        at: u64::MAX,
        kind: ErrorKind::Data,
        is_late: false,
        forms: Arc::default(),
    };
    let (to, folder) = (Tables::new(), TempDir::new().expect("a folder"));
    let stream = "sync_mode: incremental, cursor_field: id";
    for (rows, moved) in [(ROWS, ROWS), (ROWS, 0), (ROWS + 7, 7)] {
        let engine = engine(&filled(rows), &to, &never);
        let report = run(&engine, folder.path(), stream, "append").expect("it ends well");
        assert_eq!(report.rows, 2 * moved as u64);
    }
    let all = (0..ROWS + 7).map(|id| (id, 1)).collect();
    assert_eq!(counts(&to, "a"), all);
}

/// A stream is read in the forms in which it was found, also if a stream with a transform does not move this time.
#[test]
fn a_selected_stream_is_read_in_the_forms_in_which_it_was_found() {
    let fault = Fault {
        calls: Arc::default(),
        at: u64::MAX,
        kind: ErrorKind::Data,
        is_late: false,
        forms: Arc::default(),
    };
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
    let engine = engine(&filled(ROWS), &to, &fault);
    let report = engine.run(
        &pipeline.expect("a pipeline"),
        &options,
        &Control::default(),
    );
    assert_eq!(report.expect("it ends well").rows, ROWS as u64);
    // The transform knows no native form.
    assert!(fault.forms.lock().expect("no panic").is_empty());
}

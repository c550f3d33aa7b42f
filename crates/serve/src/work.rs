//! The runs of the queue: pending jobs of one stream become one run.
//!
//! A stream has one run at a time, and several streams run at once. A run goes on while its stream has jobs ([`live`]). If
//! data stop a run, the job that the reader blames is dead; if it blames none, the jobs are split until the bad one is
//! alone. The others go on. Any other failure is tried again.

mod cancel;
mod live;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rapidbyte::batches::ErrorKind;
use rapidbyte::{Cancel, Class, Control, Engine, Failure, History, Pipeline, Report, RunOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agenda::{Agenda, Key, Next, Standing, Turn};
use crate::log::Log;
use crate::metrics::{Ended, Metrics};
use crate::queue::{self, READER, Reader, SCHEMA, SHARED, Segment, mark};
use crate::registry::Pipelines;
use crate::runs::Runs;
use crate::spool::{Spool, make_private};
use crate::store::{Pending, Retention, Store, StoreError, Tried};
use live::{Left, Live};

/// Jobs that are committed together.
const MAX_JOBS: u32 = 1000;
/// No more jobs are committed together after this many bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of their small bodies, which are in memory until they are files.
const MAX_INLINE: u64 = 4 << 20;
/// The time between two looks at what can be forgotten.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// The parts that all threads share.
struct Shared {
    engine: Engine,
    reader: Arc<Reader>,
    pipelines: Arc<Pipelines>,
    store: Store,
    spool: Spool,
    log: Log,
    /// The folder of the bodies of the runs at work.
    folder: PathBuf,
    retention: Retention,
    metrics: Metrics,
    messages: Arc<Runs>,
    cancel: Cancel,
    agenda: Mutex<Agenda>,
    changed: Condvar,
    /// For the thread that forgets, so that it takes no call from those that run.
    ending: Condvar,
    /// For those that wait for a stream: a turn has ended.
    freed: Condvar,
    /// Runs at a time.
    threads: usize,
    /// The runs at work.
    live: Mutex<HashMap<Key, Arc<Live>>>,
    /// Runs so far.
    runs: AtomicU64,
    /// Changes whenever jobs are done or dead.
    ended: watch::Sender<()>,
}

/// What the work is made of.
pub struct Parts {
    /// Runs the pipelines.
    pub engine: Engine,
    /// Reads the bodies.
    pub reader: Arc<Reader>,
    /// The pipelines.
    pub pipelines: Arc<Pipelines>,
    /// The jobs.
    pub store: Store,
    /// The large bodies.
    pub spool: Spool,
    /// The receiver of messages.
    pub log: Log,
    /// The folder of the bodies of the runs at work.
    pub folder: PathBuf,
    /// How long ended jobs are kept.
    pub retention: Retention,
    /// Runs at a time.
    pub runs: usize,
    /// Counts runs.
    pub metrics: Metrics,
    /// Records the messages of `notify`.
    pub messages: Arc<Runs>,
}

/// The threads that run pipelines.
pub struct Work {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Tells that a stream has a new job, and how streams are. Clones tell the same work.
#[derive(Clone)]
pub struct Notice(Arc<Shared>);

impl Work {
    /// Begins with the jobs that are there.
    ///
    /// # Errors
    /// A thread that cannot be started, a folder that cannot be emptied, and errors of the store.
    pub fn start(parts: Parts) -> io::Result<Self> {
        let Parts {
            engine,
            reader,
            pipelines,
            store,
            spool,
            log,
            folder,
            retention,
            runs,
            metrics,
            messages,
        } = parts;
        // What a process left that ended in the middle of a run.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => make_private(&folder)?,
        }
        let waiting = store.waiting().map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            engine,
            reader,
            pipelines,
            store,
            spool,
            log,
            folder,
            retention,
            metrics,
            messages,
            cancel: Cancel::new(),
            agenda: Mutex::default(),
            changed: Condvar::new(),
            ending: Condvar::new(),
            freed: Condvar::new(),
            threads: runs,
            live: Mutex::default(),
            runs: AtomicU64::new(0),
            ended: watch::Sender::new(()),
        });
        let mut work = Self {
            shared,
            threads: Vec::new(),
        };
        for backlog in waiting {
            work.shared.due((backlog.pipeline, backlog.stream));
        }
        for number in 0..runs {
            work.spawn(format!("run-{number}"), Shared::work)?;
        }
        work.spawn("keeper".into(), Shared::keep)?;
        Ok(work)
    }

    fn spawn(&mut self, name: String, work: fn(&Arc<Shared>)) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name);
        self.threads.push(thread.spawn(move || work(&shared))?);
        Ok(())
    }

    /// The sender of news about jobs.
    pub fn notice(&self) -> Notice {
        Notice(Arc::clone(&self.shared))
    }

    /// Cancels the runs at work, whose jobs stay pending, and waits for the threads.
    pub fn stop(mut self) {
        self.shared.end();
        for thread in self.threads.drain(..) {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Notice {
    /// A stream has a new job.
    pub fn tell(&self, pipeline: &str, stream: &str) {
        self.0.due((pipeline.to_owned(), stream.to_owned()));
    }

    /// Begins no more runs, and waits until those at work have ended, at most for this time.
    pub fn drain(&self, time: Duration) {
        self.0.drain(time);
    }

    /// Changes whenever jobs are done or dead.
    pub fn ended(&self) -> watch::Receiver<()> {
        self.0.ended.subscribe()
    }

    /// Streams that wait after a failure are tried now: those of a pipeline, or one of them.
    pub fn retry(&self, pipeline: &str, stream: Option<&str>) {
        let is_meant = |key: &Key| key.0 == pipeline && stream.is_none_or(|stream| key.1 == stream);
        if self.0.agenda().retry(is_meant) {
            self.0.changed.notify_all();
        }
    }

    /// The destination of a stream is looked at again before the next run.
    pub fn distrust(&self, pipeline: &str, stream: &str) {
        let key = (pipeline.to_owned(), stream.to_owned());
        self.0.agenda().distrust(&key);
    }

    /// The streams that the server has seen, ordered.
    pub fn streams(&self) -> Vec<(Key, Standing)> {
        let agenda = self.0.agenda();
        let streams = agenda.streams().iter();
        let streams = streams.map(|(key, standing)| (key.clone(), standing.clone()));
        let mut streams: Vec<(Key, Standing)> = streams.collect();
        drop(agenda);
        streams.sort_by(|one, other| one.0.cmp(&other.0));
        streams
    }
}

/// The outcome of some jobs.
enum Moved {
    /// They are done or dead.
    All,
    /// The rest is tried again, for this reason.
    Rest(Problem),
}

impl Shared {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, HashMap<Key, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self, key: Key) {
        let mut agenda = self.agenda();
        let is_ready = agenda.due(key.clone());
        let has_thread = agenda.running() < self.threads;
        drop(agenda);
        match is_ready {
            true if has_thread => self.changed.notify_one(),
            true => {
                // The run that has waited longest gives its thread.
                let idle = self.live();
                let idle = idle
                    .values()
                    .filter_map(|live| Some((live.idle_since()?, live)));
                if let Some((_, live)) = idle.min_by_key(|(since, _)| *since) {
                    live.end();
                }
            }
            false => {
                if let Some(live) = self.live().get(&key) {
                    live.wake();
                }
            }
        }
    }

    /// Whether no run begins any more.
    fn has_ended(&self) -> bool {
        self.agenda().ends()
    }

    /// Whether streams wait for a thread.
    fn needs_a_thread(&self) -> bool {
        let agenda = self.agenda();
        agenda.has_ready() && agenda.running() >= self.threads
    }

    fn drain(&self, drain: Duration) {
        let until = Instant::now() + drain;
        let mut agenda = self.agenda();
        agenda.end();
        self.changed.notify_all();
        self.ending.notify_all();
        drop(agenda);
        self.wake_all();
        let mut agenda = self.agenda();
        while agenda.running() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(agenda, left);
            agenda = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The runs at work look whether they end.
    fn wake_all(&self) {
        self.live().values().for_each(|live| live.wake());
    }

    fn end(&self) {
        self.agenda().end();
        self.cancel.cancel();
        self.wake_all();
        self.changed.notify_all();
        self.ending.notify_all();
    }

    fn work(self: &Arc<Self>) {
        while let Some((key, is_reconciled)) = self.next() {
            // A stream that panics is tried again like one that fails.
            let turn = AssertUnwindSafe(|| self.turn(&key, is_reconciled));
            let turn = catch_unwind(turn).unwrap_or_else(|_| Err(Problem::Panicked));
            let turn = turn.unwrap_or_else(|problem| {
                let told = problem.told();
                if !self.cancel.is_cancelled() {
                    let text = format!("{}.{}: {problem}", key.0, key.1);
                    let facts = json!({ "pipeline": key.0, "stream": key.1, "error": told });
                    self.log.warn(text, facts);
                    self.tell_failure(&key, &told);
                }
                Turn::Later(told)
            });
            self.agenda().ended(key, turn, Instant::now());
            // For a thread that waits for work, and for one that waits for the end.
            self.changed.notify_all();
            self.freed.notify_all();
        }
    }

    /// Records a message about the first of several failures of a stream.
    fn tell_failure(&self, key: &Key, error: &Value) {
        let failures = self.agenda().streams().get(key).map(|one| one.failures);
        if failures.unwrap_or(0) > 0 {
            return;
        }
        if let Some(pipeline) = self.pipelines.get(&key.0) {
            self.messages.queue_failed(&pipeline, &key.1, error);
        }
    }

    /// Waits for a stream that is due. `None` at the end.
    fn next(&self) -> Option<(Key, bool)> {
        let mut agenda = self.agenda();
        loop {
            let now = Instant::now();
            agenda = match agenda.next(now) {
                Next::End => return None,
                Next::Stream(key, is_reconciled) => {
                    if agenda.has_ready() {
                        self.changed.notify_one();
                    }
                    return Some((key, is_reconciled));
                }
                Next::Wait(None) => {
                    let waited = self.changed.wait(agenda);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Next::Wait(Some(until)) => {
                    let waited = self.changed.wait_timeout(agenda, until - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Moves the next jobs of a stream.
    fn turn(self: &Arc<Self>, key: &Key, is_reconciled: bool) -> Result<Turn, Problem> {
        let (pipeline, stream) = key;
        let known = self.pipelines.get(pipeline);
        let of_queue = known.and_then(|known| known.of_queue(stream));
        let of_queue = of_queue.ok_or(Problem::NoPipeline)?;
        let tried = match is_reconciled {
            true => self.store.tried(pipeline, stream)?,
            false => self.reconcile(&of_queue, key)?,
        };
        let Some((jobs, _)) = self.take(pipeline, stream)? else {
            return Ok(Turn::Empty);
        };
        let Some(last) = jobs.last() else {
            return Ok(Turn::More);
        };
        let tried = Tried {
            tried: tried.tried.max(last.id),
            ..tried
        };
        let all: Vec<&Pending> = jobs.iter().collect();
        let (problem, left) = match self.run(&of_queue, key, &tried, &all, true) {
            Ok(()) => return Ok(Turn::More),
            Err(stopped) => stopped,
        };
        let Left { last, is_first, .. } = left;
        let tried = match is_first {
            true => tried,
            // Other jobs are committed since, by this run or by another queue.
            false => match self.reconcile(&of_queue, key) {
                Ok(tried) => tried,
                Err(shared @ (Problem::Foreign | Problem::Restored { .. })) => return Err(shared),
                Err(_) => return Err(problem),
            },
        };
        let (failure, last) = match (problem, last) {
            (Problem::Run(failure), Some(last)) if is_of_bodies(&failure, &of_queue) => {
                (failure, last)
            }
            (problem, _) => return Err(problem),
        };
        let jobs = match is_first {
            true => jobs,
            false => {
                let pending = self.pending(pipeline, stream)?.into_iter();
                pending.take_while(|job| job.id <= last).collect()
            }
        };
        // The target may have changed since a run that has gone on was planned: another one plans anew.
        let is_known = is_first || failure.connector.as_deref() == Some(READER);
        let failure = is_known.then_some(failure);
        match self.move_jobs(&of_queue, key, &tried, &jobs, failure)? {
            Moved::All => Ok(Turn::More),
            Moved::Rest(problem) => Err(problem),
        }
    }

    fn pending(&self, pipeline: &str, stream: &str) -> Result<Vec<Pending>, StoreError> {
        let key = (pipeline, stream);
        self.store.pending(key, MAX_JOBS, MAX_BYTES, MAX_INLINE)
    }

    /// The next jobs of a stream, which a run now has, and the name of the queue. `None` if it has no jobs. No jobs if some
    /// were cancelled meanwhile.
    fn take(
        &self,
        pipeline: &str,
        stream: &str,
    ) -> Result<Option<(Vec<Pending>, String)>, StoreError> {
        let jobs = self.pending(pipeline, stream)?;
        let Some(last) = jobs.last() else {
            return Ok(None);
        };
        let (pending, queue) = self.store.try_through(pipeline, stream, last.id)?;
        match pending == jobs.len() as u64 {
            true => Ok(Some((jobs, queue))),
            false => Ok(Some((Vec::new(), queue))),
        }
    }

    /// Asks the destination which jobs it has: a run may have committed them without having said so.
    ///
    /// # Errors
    /// `Foreign` and `Restored` where the destination does not tell which of the jobs it has.
    fn reconcile(&self, pipeline: &Pipeline, (name, stream): &Key) -> Result<Tried, Problem> {
        // A run that goes on has had more jobs since it began.
        let tried = self.store.tried(name, stream)?;
        let mut cursors = self
            .engine
            .cursors(pipeline, None, false, &self.control())?;
        let progress = cursors.progress(stream)?;
        let Some(cursor) = progress.and_then(|progress| progress.cursor) else {
            return Ok(tried);
        };
        match Segment::job_of(&cursor, &tried.queue) {
            Some(job) if job > tried.tried => Err(Problem::Restored {
                has: job,
                tried: tried.tried,
            }),
            Some(job) => {
                self.store.done_through(name, stream, job)?;
                self.ended.send_replace(());
                Ok(tried)
            }
            None => {
                let seen = Some(mark(&cursor));
                if tried.seen == seen {
                    return Ok(tried);
                }
                if tried.tried > 0 {
                    return Err(Problem::Foreign);
                }
                self.store.saw(name, stream, seen.clone())?;
                Ok(Tried { seen, ..tried })
            }
        }
    }

    fn control(&self) -> Control {
        Control::default().cancel(&self.cancel)
    }

    /// Moves these jobs in one run. If their data stop it, more runs find the jobs that cannot be moved: they are dead.
    /// `failure` is the one of a run that had all of them.
    fn move_jobs(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        key: &Key,
        tried: &Tried,
        jobs: &[Pending],
        mut failure: Option<Box<Failure>>,
    ) -> Result<Moved, Problem> {
        // Inferred columns are those of all bodies of a run: alone, a body may have others.
        let is_declared = pipeline.source_config().contains_key(SCHEMA);
        let mut parts: Vec<Vec<&Pending>> = vec![jobs.iter().collect()];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let stopped = match failure.take() {
                Some(failure) => failure,
                None => match self.run(pipeline, key, tried, &part, false) {
                    Ok(()) => continue,
                    Err((Problem::Run(failure), _)) if is_of_bodies(&failure, pipeline) => failure,
                    Err((problem @ Problem::Run(_), _)) => return Ok(Moved::Rest(problem)),
                    Err((other, _)) => return Err(other),
                },
            };
            let bad = blamed(&part, &stopped);
            match bad {
                _ if part.len() == 1 => self.bury(pipeline, key, part[0], &stopped)?,
                Some(bad) if is_declared => {
                    self.bury(pipeline, key, part.remove(bad), &stopped)?;
                    parts.push(part);
                }
                // The order stays: the cursor of a later job says that those before it are done.
                Some(bad) => {
                    parts.push(part.split_off(bad + 1));
                    parts.push(part.split_off(bad));
                    parts.push(part);
                }
                None => {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                }
            }
        }
        Ok(Moved::All)
    }

    /// A job whose data have stopped a run is dead.
    fn bury(
        &self,
        pipeline: &Pipeline,
        key: &Key,
        job: &Pending,
        failure: &Failure,
    ) -> Result<(), Problem> {
        // A run may fail behind its commit, but not while it reads.
        if failure.connector.as_deref() != Some(READER) {
            self.reconcile(pipeline, key)?;
        }
        let reason = reason(failure, job.id);
        // Before the job is dead: a process that ends in between finds the job, and tells of it once more.
        self.messages.job_died(pipeline, &key.1, job.id, &reason);
        self.store.dead(job.id, &reason)?;
        let text = format!(
            "{}.{}: the job {} is dead: {}",
            key.0,
            key.1,
            job.id,
            told(&reason)
        );
        let facts = json!({ "pipeline": key.0, "stream": key.1, "job": job.id, "error": reason });
        self.log.warn(text, facts);
        self.ended.send_replace(());
        Ok(())
    }

    /// Moves these jobs in one run, after which they are done. With `goes_on`, the run then takes more jobs of the stream.
    fn run(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        key: &Key,
        tried: &Tried,
        jobs: &[&Pending],
        goes_on: bool,
    ) -> Result<(), (Problem, Left)> {
        let live = Live::new(self, key, tried, jobs);
        let live = live.map_err(|problem| (problem, Left::nothing()))?;
        self.live().insert(key.clone(), Arc::clone(&live));
        let ran = {
            let _removed = Unlisted(self, key);
            self.move_rows(pipeline, &live, goes_on)
        };
        let failure = match ran {
            Ok(report) => {
                let ended = live.ended(report.rows);
                return ended.map_err(|problem| (problem, live.left()));
            }
            Err(failure) => failure,
        };
        let ended = match failure.class {
            Class::Cancelled => Ended::Cancelled,
            _ => Ended::Failed,
        };
        let left = live.left();
        self.metrics.ran((&key.0, &key.1), ended, left.at.elapsed());
        Err((failure.into(), left))
    }

    fn move_rows(
        &self,
        pipeline: &Pipeline,
        live: &Arc<Live>,
        goes_on: bool,
    ) -> Result<Report, Failure> {
        let source = queue::source(live.clone(), &self.reader);
        let engine = self.engine.with_connectors([source]);
        // The store is the history: streams of one pipeline run at once, and each resumes from its cursor.
        let options = RunOptions {
            history: History::Off,
            commit_at_checkpoints: goes_on,
            ..RunOptions::default()
        };
        let told = Arc::clone(live);
        let control = self.control().on_event(move |event| told.take_event(event));
        let planned = engine.plan_run(pipeline, &options, &control);
        let planned = planned.map_err(|unplanned| *unplanned.failure)?;
        if goes_on && live::grows(planned.plan()) {
            live.go_on();
        }
        let mut report = None;
        let ended = planned.run(|ended| report = ended.ok().cloned());
        ended.map_err(|failure| pipeline.redacted(&failure))?;
        report.ok_or_else(|| Failure::new(Class::Run, "internal", "a run without a report"))
    }

    /// A new folder for the bodies of a run.
    fn new_folder(&self) -> io::Result<Removed> {
        // A folder of an earlier run that could not be removed is not read again.
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let folder = Removed(self.folder.join(number.to_string()));
        make_private(&folder.0)?;
        Ok(folder)
    }

    /// Forgets what is old, until the end.
    fn keep(self: &Arc<Self>) {
        let mut agenda = self.agenda();
        while !agenda.ends() {
            let waited = self.ending.wait_timeout(agenda, KEEP_EVERY);
            let (held, slept) = waited.unwrap_or_else(PoisonError::into_inner);
            agenda = held;
            if slept.timed_out() {
                drop(agenda);
                if let Err(problem) = self.forget() {
                    let facts = json!({ "error": problem.told() });
                    self.log
                        .warn(format!("old jobs are not removed: {problem}"), facts);
                }
                agenda = self.agenda();
            }
        }
    }

    fn forget(&self) -> Result<(), Problem> {
        loop {
            let forgotten = self.store.forget(self.retention)?;
            self.spool.remove(&forgotten.files)?;
            if !forgotten.has_more || self.cancel.is_cancelled() {
                return Ok(());
            }
        }
    }
}

/// A run that is not listed any more when this is dropped, whatever ended it.
struct Unlisted<'a>(&'a Shared, &'a Key);

impl Drop for Unlisted<'_> {
    fn drop(&mut self) {
        self.0.live().remove(self.1);
    }
}

/// A folder that is removed when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // What stays is removed at the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The code of a run with more rejects than the pipeline allows.
const TOO_MANY_REJECTS: &str = "too_many_rejects";

/// The digits of a job's id in the name of its file: names are in the order of the ids.
const ID_DIGITS: usize = 20;

fn file_name(job: &Pending) -> String {
    let ending = match job.encoding.as_deref() {
        Some("gzip") => ".gz",
        Some("zstd") => ".zst",
        _ => "",
    };
    format!("{:0ID_DIGITS$}.{}{ending}", job.id, job.format)
}

/// Codes that blame the target, or the place where the rejects are kept, whatever the bodies have.
const OF_TARGET: [&str; 4] = [
    "target_missing",
    "target_lost_rows",
    "checkpoint_invalid",
    "cursor_missing",
];

/// A name that the destination cannot give to a column of a new table.
const INVALID_NAME: &str = "invalid_name";

/// Whether the bodies are to blame, and not the pipeline file, the destination or the way to it: the reader cannot read
/// them, they have too many rejects, the destination refuses their rows while it writes or commits them, or it refuses the
/// columns that were inferred from them. Columns that the pipeline file declares are the same for all bodies.
fn is_of_bodies(failure: &Failure, pipeline: &Pipeline) -> bool {
    let passes = matches!(
        failure.class,
        Class::Cancelled | Class::Busy | Class::Environment
    );
    if passes || failure.passes_after_ms.is_some() || OF_TARGET.contains(&failure.code.as_str()) {
        return false;
    }
    let export = failure.export.unwrap_or_default();
    if failure.connector.as_deref() == Some(READER) {
        // It opens with the settings of the pipeline file, and then looks at the bodies.
        return failure.class != Class::Config || !export.ends_with("open");
    }
    let is_inferred = !pipeline.source_config().contains_key(SCHEMA);
    let of_rows = matches!(failure.kind, Some(ErrorKind::Data))
        || export.starts_with("writer.")
        || failure.code == TOO_MANY_REJECTS;
    match failure.class {
        Class::Contract => is_inferred || of_rows,
        _ => is_inferred && failure.code == INVALID_NAME,
    }
}

/// The place of the job whose file the reader blames.
fn blamed(jobs: &[&Pending], failure: &Failure) -> Option<usize> {
    let location = failure.location.as_deref()?;
    let is_of_reader = failure.connector.as_deref() == Some(READER);
    let place = jobs
        .iter()
        .position(|job| in_file(location, job.id).is_some());
    place.filter(|_| is_of_reader)
}

/// The part of a location behind the beginning of the name of a job's file.
fn in_file(location: &str, job: i64) -> Option<&str> {
    let (_, rest) = location.split_once(&format!("{job:0ID_DIGITS$}."))?;
    Some(rest)
}

/// The reason of a dead job. Its place is a line of the body, and not a file.
fn reason(failure: &Failure, job: i64) -> Value {
    let line = failure.location.as_deref().and_then(|location| {
        let (_, line) = in_file(location, job)?.split_once(':')?;
        line.parse::<u64>().ok()
    });
    json!({
        "code": failure.code, "message": failure.message, "hint": hint(failure),
        "column": failure.column, "line": line,
    })
}

/// The next action of a client. The reader's hints are about files.
fn hint(failure: &Failure) -> Option<&str> {
    match failure.code.as_str() {
        "compressed_damaged" | "compressed_unknown" => {
            Some("send the Content-Encoding that the body has, or none")
        }
        "compressed_truncated" | "file_not_utf8" => Some("send the body again, as UTF-8"),
        _ => failure.hint.as_deref(),
    }
}

/// A dead job in one line.
fn told(reason: &Value) -> String {
    let text = |key: &str| reason[key].as_str().unwrap_or_default().to_owned();
    let line = reason["line"].as_u64();
    let line = line.map_or(String::new(), |line| format!(" line {line}:"));
    format!("error[{}]{line} {}", text("code"), text("message"))
}

/// The reason why the jobs of a stream stay pending.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("error[{}] {}", .0.code, .0.message)]
    Run(Box<Failure>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the disk of the server: {0}")]
    Disk(#[from] io::Error),
    #[error("no pipeline file has this stream any more")]
    NoPipeline,
    #[error(
        "another queue has written to the target of this stream, and may have the place of jobs of this one"
    )]
    Foreign,
    #[error(
        "the destination has the jobs up to {has} of this queue, and this store has given only those up to {tried} to \
         a run: it is older than the destination, such as one that was restored from a backup"
    )]
    Restored { has: i64, tried: i64 },
    #[error("the thread of the run panicked: the server has a bug")]
    Panicked,
}

const REBIND_HINT: &str = "cancel the pending jobs whose rows the destination has; then \
    POST /v1/pipelines/PIPELINE/streams/STREAM/rebind moves all others";

const CLEAR_HINT: &str = "if the table is meant to be gone, `rapidbyte state clear FILE STREAM` lets the stream begin \
    with a new one; then replay the jobs whose rows are needed";

impl Problem {
    /// As JSON: the code, what happened, what to do next.
    fn told(&self) -> Value {
        let of = |code: &str, hint: Option<&str>| json!({ "code": code, "message": self.to_string(), "hint": hint });
        match self {
            Self::Run(failure) => {
                let mut told = json!(failure);
                if OF_TARGET.contains(&failure.code.as_str()) {
                    told["hint"] = CLEAR_HINT.into();
                }
                told
            }
            Self::Store(_) => of("store_failed", None),
            Self::Disk(_) => of(
                "spool_failed",
                Some("free space, or make the folder of the server writable"),
            ),
            Self::NoPipeline => of(
                "unknown_stream",
                Some("put the file back, or cancel the jobs"),
            ),
            Self::Foreign => of(SHARED, Some(REBIND_HINT)),
            Self::Restored { .. } => of("queue_restored", Some(REBIND_HINT)),
            Self::Panicked => of("internal", None),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Run(Box::new(failure))
    }
}

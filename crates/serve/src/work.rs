//! The runs of the queue: pending jobs of one stream become one run.
//!
//! A stream has one run at a time, and several streams run at once. A run that fails because of its data is split by job,
//! until the job that cannot be moved is alone: it is dead, and the others go on. Any other failure is tried again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rapidbyte::{Cancel, Class, Control, Engine, Failure, Pipeline, RunOptions};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::ingest::{Catalogue, Ingest};
use crate::queue::{NAME, READER, Segment};
use crate::server::ServeError;
use crate::spool::Spool;
use crate::store::{Body, Pending, Store, StoreError};

/// Jobs of one run.
const MAX_JOBS: u32 = 1000;
/// A run takes no more jobs after this many bytes.
const MAX_BYTES: u64 = 64 << 20;
/// The pause before a run is tried again, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Pipelines by name.
pub struct Pipelines(HashMap<String, Pipeline>);

impl Pipelines {
    /// Those of them that read the queue: their source is `ingest`.
    ///
    /// # Errors
    /// `DeletesRows` and `DuplicatePipeline`.
    pub fn new(pipelines: impl IntoIterator<Item = Pipeline>) -> Result<Self, ServeError> {
        let mut known = HashMap::new();
        let of_queue = pipelines
            .into_iter()
            .filter(|pipeline| pipeline.source() == NAME);
        for pipeline in of_queue {
            let name = pipeline.name().to_owned();
            if pipeline.deletes_rows() {
                return Err(ServeError::DeletesRows(name));
            }
            if known.insert(name.clone(), pipeline).is_some() {
                return Err(ServeError::DuplicatePipeline(name));
            }
        }
        Ok(Self(known))
    }
}

impl Catalogue for Pipelines {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        let is_known = self.0.get(pipeline)?.streams().contains(&stream);
        is_known.then(Ingest::default)
    }
}

/// A pipeline and one of its streams.
type Key = (String, String);

/// The parts that all threads share.
struct Shared {
    engine: Engine,
    pipelines: Arc<Pipelines>,
    store: Store,
    spool: Spool,
    /// The folder of the bodies of the runs at work.
    folder: PathBuf,
    /// The time for which the server keeps the bodies of done jobs.
    retain: Duration,
    cancel: Cancel,
    agenda: Mutex<Agenda>,
    changed: Condvar,
    /// Runs so far.
    runs: AtomicU64,
    /// Changes whenever jobs are done or dead.
    ended: watch::Sender<()>,
}

/// The streams that are due.
#[derive(Default)]
struct Agenda {
    ready: VecDeque<Key>,
    /// Streams whose last run failed.
    later: BTreeMap<Instant, Vec<Key>>,
    streams: HashMap<Key, Standing>,
    ends: bool,
}

/// The state of a stream.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    is_due: bool,
    is_running: bool,
    /// A job came while the stream ran.
    is_due_again: bool,
    /// Runs that failed one after the other.
    failures: u32,
    /// The store knows what the destination has.
    is_reconciled: bool,
}

/// The threads that run pipelines.
pub struct Work {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Tells that a stream has a new job. Clones tell the same work.
#[derive(Clone)]
pub struct Notice(Arc<Shared>);

impl Work {
    /// Begins with the jobs that are there.
    ///
    /// # Errors
    /// A thread that cannot be started, a folder that cannot be emptied, and errors of the store.
    pub fn start(
        engine: Engine,
        pipelines: Arc<Pipelines>,
        store: Store,
        spool: Spool,
        (folder, retain, runs): (PathBuf, Duration, usize),
    ) -> io::Result<Self> {
        // What a process left that ended in the middle of a run.
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => private().create(&folder)?,
        }
        let waiting = store.waiting().map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            engine,
            pipelines,
            store,
            spool,
            folder,
            retain,
            cancel: Cancel::new(),
            agenda: Mutex::default(),
            changed: Condvar::new(),
            runs: AtomicU64::new(0),
            ended: watch::Sender::new(()),
        });
        let mut work = Self {
            shared,
            threads: Vec::new(),
        };
        waiting.into_iter().for_each(|key| work.shared.due(key));
        for number in 0..runs {
            let shared = Arc::clone(&work.shared);
            let thread = std::thread::Builder::new().name(format!("run-{number}"));
            work.threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(work)
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

    /// Changes whenever jobs are done or dead.
    pub fn ended(&self) -> watch::Receiver<()> {
        self.0.ended.subscribe()
    }
}

/// The outcome of some jobs.
enum Ended {
    /// They are done or dead.
    All,
    /// They are done or dead, and the stream may have more. Other streams come first.
    More,
    /// The rest is tried again.
    Later,
}

impl Shared {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self, key: Key) {
        let mut agenda = self.agenda();
        let standing = agenda.streams.entry(key.clone()).or_default();
        if standing.is_running {
            standing.is_due_again = true;
        } else if !std::mem::replace(&mut standing.is_due, true) {
            agenda.ready.push_back(key);
            self.changed.notify_one();
        }
    }

    fn end(&self) {
        self.agenda().ends = true;
        self.cancel.cancel();
        self.changed.notify_all();
    }

    fn work(&self) {
        while let Some((key, standing)) = self.next() {
            // A stream that panics is tried again like one that fails.
            let run = AssertUnwindSafe(|| self.run_stream(&key, standing.is_reconciled));
            let ended = catch_unwind(run).unwrap_or(Ok(Ended::Later));
            self.ended(key, &ended);
        }
    }

    /// Waits for a stream that is due. `None` at the end.
    fn next(&self) -> Option<(Key, Standing)> {
        let mut agenda = self.agenda();
        loop {
            if agenda.ends {
                return None;
            }
            let now = Instant::now();
            while let Some(first) = agenda
                .later
                .first_entry()
                .filter(|first| *first.key() <= now)
            {
                let keys = first.remove();
                agenda.ready.extend(keys);
            }
            if let Some(key) = agenda.ready.pop_front() {
                if !agenda.ready.is_empty() {
                    self.changed.notify_one();
                }
                let standing = agenda.streams.entry(key.clone()).or_default();
                (standing.is_due, standing.is_running) = (false, true);
                return Some((key, *standing));
            }
            agenda = match agenda.later.keys().next().copied() {
                None => {
                    let waited = self.changed.wait(agenda);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(first) => {
                    let waited = self.changed.wait_timeout(agenda, first - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn ended(&self, key: Key, ended: &Result<Ended, Problem>) {
        let mut agenda = self.agenda();
        let standing = agenda.streams.entry(key.clone()).or_default();
        standing.is_running = false;
        let mut is_due = std::mem::take(&mut standing.is_due_again);
        match ended {
            Ok(moved @ (Ended::All | Ended::More)) => {
                (standing.failures, standing.is_reconciled) = (0, true);
                is_due |= matches!(moved, Ended::More);
            }
            Ok(Ended::Later) | Err(_) => {
                standing.failures = standing.failures.saturating_add(1);
                // What the last run committed is not known.
                (standing.is_reconciled, standing.is_due) = (false, true);
                let pause = FIRST_PAUSE.saturating_mul(1 << (standing.failures - 1).min(10));
                let at = Instant::now() + pause.min(MAX_PAUSE);
                agenda.later.entry(at).or_default().push(key);
                self.changed.notify_one();
                return;
            }
        }
        if is_due {
            standing.is_due = true;
            agenda.ready.push_back(key);
            self.changed.notify_one();
        }
    }

    /// Moves the next jobs of a stream.
    fn run_stream(&self, key: &Key, is_reconciled: bool) -> Result<Ended, Problem> {
        let (pipeline, stream) = key;
        let known = self.pipelines.0.get(pipeline);
        let Some(of_queue) = known.and_then(|known| known.of_queue(stream)) else {
            // Its file is gone. Its jobs wait until it is back.
            return Ok(Ended::Later);
        };
        if !is_reconciled {
            self.reconcile(&of_queue, key)?;
        }
        let jobs = self.store.pending(pipeline, stream, MAX_JOBS, MAX_BYTES)?;
        if jobs.is_empty() {
            self.forget()?;
            return Ok(Ended::All);
        }
        match self.move_jobs(&of_queue, key, &jobs)? {
            Ended::All => Ok(Ended::More),
            other => Ok(other),
        }
    }

    /// Removes the bodies of jobs that have been done for long enough.
    fn forget(&self) -> Result<(), Problem> {
        for name in self.store.forget_bodies(self.retain)? {
            match fs::remove_file(self.spool.path(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Jobs whose rows a run committed that could not say so.
    fn reconcile(&self, pipeline: &Pipeline, (name, stream): &Key) -> Result<(), Problem> {
        let mut cursors = self
            .engine
            .cursors(pipeline, None, false, &self.control())?;
        let progress = cursors.progress(stream)?;
        let cursor = progress.and_then(|progress| progress.cursor);
        let job = |cursor| Segment::job_of(cursor, self.store.name());
        if let Some(last) = cursor.as_deref().and_then(job) {
            self.store.done_through(name, stream, last)?;
            self.ended.send_replace(());
        }
        Ok(())
    }

    fn control(&self) -> Control {
        Control::default().cancel(&self.cancel)
    }

    /// Moves these jobs in one run; if their data stop it, in two.
    fn move_jobs(
        &self,
        pipeline: &Pipeline,
        key: &Key,
        jobs: &[Pending],
    ) -> Result<Ended, Problem> {
        let failure = match self.run(pipeline, key, jobs) {
            Ok(last) => {
                self.store.done_through(&key.0, &key.1, last)?;
                self.ended.send_replace(());
                return Ok(Ended::All);
            }
            Err(Problem::Run(failure)) if is_of_bodies(&failure) => failure,
            Err(Problem::Run(_)) => return Ok(Ended::Later),
            Err(other) => return Err(other),
        };
        if let [alone] = jobs {
            // A run may fail behind its commit.
            self.reconcile(pipeline, key)?;
            self.store.dead(alone.id, &reason(&failure, alone.id))?;
            self.ended.send_replace(());
            return Ok(Ended::All);
        }
        let (first, second) = jobs.split_at(jobs.len() / 2);
        match self.move_jobs(pipeline, key, first)? {
            Ended::All => self.move_jobs(pipeline, key, second),
            other => Ok(other),
        }
    }

    /// Returns the id of the last job.
    fn run(
        &self,
        pipeline: &Pipeline,
        (_, stream): &Key,
        jobs: &[Pending],
    ) -> Result<i64, Problem> {
        let (Some(first), Some(last)) = (jobs.first(), jobs.last()) else {
            return Ok(0);
        };
        // A folder of an earlier run that could not be removed is not read again.
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("{}-{number}", first.id));
        private().create(&folder)?;
        let removed = Removed(folder.clone());
        for job in jobs {
            let path = folder.join(file_name(job));
            match &job.body {
                Body::Inline(bytes) => fs::write(path, bytes)?,
                Body::Spooled(name) => fs::hard_link(self.spool.path(name), path)?,
            }
        }
        let segment = Segment {
            stream: stream.clone(),
            folder,
            format: first.format.clone(),
            first: first.id,
            last: last.id,
            queue: self.store.name().to_owned(),
        };
        let source = segment.source(&self.engine)?;
        let engine = self.engine.with_connectors([source]);
        engine.run(pipeline, &RunOptions::default(), &self.control())?;
        drop(removed);
        Ok(last.id)
    }
}

/// Makes folders that only the server reads: bodies are nobody else's.
fn private() -> fs::DirBuilder {
    let mut maker = fs::DirBuilder::new();
    maker.mode(0o700);
    maker
}

/// A folder that is removed when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // What stays is removed at the next start.
        let _ = fs::remove_dir_all(&self.0);
    }
}

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

/// Whether the bodies are to blame, and not the destination or the way to it: the reader cannot read them, or the
/// destination refuses their rows while it writes them. A table that was dropped blames no body.
fn is_of_bodies(failure: &Failure) -> bool {
    let passes = matches!(
        failure.class,
        Class::Cancelled | Class::Busy | Class::Environment
    );
    let is_of_reader = failure.connector.as_deref() == Some(READER);
    let export = failure.export.unwrap_or_default();
    let is_of_rows = failure.class == Class::Contract && export.starts_with("writer.");
    !passes && failure.passes_after_ms.is_none() && (is_of_reader || is_of_rows)
}

/// The reason of a dead job. Its place is a line of the body, and not a file.
fn reason(failure: &Failure, job: i64) -> Value {
    let line = failure.location.as_deref().and_then(|location| {
        let (_, rest) = location.split_once(&format!("{job:0ID_DIGITS$}."))?;
        let (_, line) = rest.split_once(':')?;
        line.parse::<u64>().ok()
    });
    json!({
        "code": failure.code, "message": failure.message, "hint": failure.hint,
        "column": failure.column, "line": line,
    })
}

/// The reason why the jobs of a stream stay pending.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    Run(Box<Failure>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Run(Box::new(failure))
    }
}

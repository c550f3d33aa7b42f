//! The runs of the queue: pending jobs of one stream become one run.
//!
//! A stream has one run at a time, and several streams run at once. A run goes on while its stream has jobs ([`live`]). If
//! data stop a run, the job that the reader blames is dead; if it blames none, the jobs are split until the bad one is
//! alone. The others go on. Any other failure is tried again.

mod blame;
mod bodies;
mod cancel;
mod ends;
mod live;
mod problem;
mod split;
mod spooled;
mod turn;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use rapidbyte::{Cancel, Engine};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agenda::{Agenda, Key, Next, Standing, Turn};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::queue::Reader;
use crate::registry::Pipelines;
use crate::runs::Runs;
use crate::spool::Spool;
use crate::store::{NextJob, Retention, Store};
use ends::Ends;
use live::Live;
use problem::Problem;
pub use spooled::broken;

/// Jobs that are committed together.
const MAX_JOBS: u32 = 1000;
/// The same where each body is looked at alone: those with other columns are taken again by the next run.
const MAX_INFERRED: u32 = 100;
/// No more jobs are committed together after this many bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of their small bodies, which are in memory until they are committed.
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
    /// Where the connectors of runs see the bodies: no disk has this folder.
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
    /// For requests that wait for their jobs.
    ends: Ends,
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
    /// Where the connectors of runs see the bodies. Earlier versions wrote the bodies there: what the disk has is removed.
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
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
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
            ends: Ends::default(),
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
        self.shared.engine.close_idle();
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

    /// The name of the queue of a run that waits for a job of this stream.
    pub fn expects(&self, pipeline: &str, stream: &str) -> Option<String> {
        let key = (pipeline.to_owned(), stream.to_owned());
        let live = self.0.live().get(&key).cloned();
        live.and_then(|live| live.expects())
    }

    /// Gives a job to the run that waits for it. The run reads it and waits with the rows until `on_disk` has something.
    pub fn give(&self, next: NextJob, on_disk: Receiver<()>) {
        let NextJob {
            pipeline,
            stream,
            job,
            queue,
        } = next;
        let live = self.0.live().get(&(pipeline, stream)).cloned();
        if let Some(live) = live {
            live.give(job, &queue, on_disk);
        }
    }

    /// Begins no more runs, and waits until those at work have ended, at most for this time.
    pub fn drain(&self, time: Duration) {
        self.0.drain(time);
    }

    /// Changes whenever jobs of this stream are done, dead or cancelled.
    pub fn ended(&self, pipeline: &str, stream: &str) -> watch::Receiver<()> {
        self.0
            .ends
            .subscribe((pipeline.to_owned(), stream.to_owned()))
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
                self.fails(&key, &problem, told.clone());
                if !self.cancel.is_cancelled() {
                    self.tell_failure(&key, &told);
                }
                Turn::Later(told)
            });
            let is_well = self.agenda().ended(key.clone(), turn, Instant::now());
            if is_well {
                self.works_again(&key);
            }
            // For a thread that waits for work, and for one that waits for the end.
            self.changed.notify_all();
            self.freed.notify_all();
        }
    }

    /// A stream fails, and is retried. The log has the first failure, and another one where the reason is another.
    fn fails(&self, key: &Key, problem: &Problem, told: Value) {
        if self.cancel.is_cancelled() || !self.agenda().fails(key, told.clone()) {
            return;
        }
        let hint = match told["hint"].as_str() {
            Some(hint) => format!("; {}", hint.replace('\n', " ")),
            None => String::new(),
        };
        let text = format!("{}.{}: {problem}{hint}", key.0, key.1);
        let facts = json!({ "pipeline": key.0, "stream": key.1, "error": told });
        self.log.warn(text, facts);
    }

    /// A stream that has failed is well.
    fn works_again(&self, key: &Key) {
        let text = format!("{}.{}: works again", key.0, key.1);
        let facts = json!({ "pipeline": key.0, "stream": key.1 });
        self.log.info(text, facts);
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

//! Runs of pipelines with any source: their schedules, the requests for them, and what became of each.
//!
//! Runs are rows of `runs.db`, a SQLite file in the folder of the server. A run is recorded before it begins, and its end is
//! recorded before the next run of its pipeline begins. A run that was at work when the process ended is `interrupted`, and
//! another one resumes it: the engine reads on from the last commit.
//!
//! [`timer`] records the runs that schedules ask for, [`work`] runs what is queued, [`http`] shows and begins runs.
//!
//! [`messages`] has the messages of `notify`, which are rows of the same file ([`outbox`]). [`deliver`] sends them.

mod changes;
mod deliver;
mod http;
mod live;
mod messages;
mod outbox;
mod record;
mod signature;
mod standing;
mod store;
mod timer;
mod work;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rapidbyte::{Cancel, Engine, Pipeline};
use serde_json::{Value, json};
use tokio::sync::watch;
use ureq::tls::RootCerts;

use crate::log::Log;
use crate::store::now_ms;

pub use record::{Options, Run, RunState, Trigger};

pub(crate) use changes::{Change, ChangeFilter};
use deliver::Tried;
pub use http::routes;
pub(crate) use http::{checked, end_early, find, queue};
use live::Live;
use messages::{Draft, Wanted, redacted};
use outbox::{Receiver, Told};
use standing::Ended;
pub(crate) use standing::{AtWork, Standing};
pub(crate) use store::Filter;
use store::Store;

const STORE: &str = "runs.db";
/// The name of the thread of the timer.
const TIMER: &str = "schedule";
/// Receivers of `notify` that are sent to at the same time.
const SENDERS: usize = 4;

/// The pipelines of a server.
pub trait PipelineSource: Send + Sync {
    /// The pipeline with a name, as its file is now. `None` if it does not exist, or cannot be read.
    fn pipeline(&self, name: &str) -> Option<Pipeline>;

    /// The names of all pipelines.
    fn names(&self) -> Vec<String>;
}

/// The settings of [`Runs`].
#[derive(Clone)]
pub struct RunSettings {
    /// The folder of `runs.db`, which exists and belongs to one server.
    pub folder: PathBuf,
    /// Runs at the same time. Others wait.
    pub threads: usize,
    /// The longest wait of a request with `wait=true`.
    pub wait: Duration,
    /// Receives each problem that no run shows, such as a full disk.
    pub log: Log,
    /// The authorities that sign the certificates of the receivers of `notify`.
    pub(crate) authorities: RootCerts,
}

impl RunSettings {
    /// Four runs at the same time, and nobody who listens to problems.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            threads: 4,
            wait: Duration::from_secs(60),
            log: Log::default(),
            authorities: RootCerts::WebPki,
        }
    }
}

/// The reason why runs cannot be recorded or shown.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// SQLite could not do it. Nothing of the call is stored.
    #[error("the store of runs: {0}")]
    Sqlite(String),
    /// A newer version of the program has written the file.
    #[error("the store of runs has version {0}, which this program does not know")]
    Version(i64),
    /// Too many requests wait for the disk.
    #[error("the store of runs is busy")]
    Busy,
    /// The server ends.
    #[error("the store of runs is closed")]
    Closed,
    /// The system refused something.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

impl From<rusqlite::Error> for RunsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error.to_string())
    }
}

/// Milliseconds since 1970-01-01 UTC.
type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Runs, and the threads that begin them. If it is dropped, it ends as after [`Runs::stop`].
pub struct Runs {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The parts that all threads share.
struct Shared {
    engine: Engine,
    pipelines: Arc<dyn PipelineSource>,
    store: Store,
    settings: RunSettings,
    clock: Clock,
    ended: Ended,
    /// Held while a run begins, so that a run is either queued in the store or known to be at work here, and while the end
    /// begins.
    begins: Mutex<()>,
    agenda: Mutex<Agenda>,
    /// Wakes the threads that run pipelines.
    work: Condvar,
    /// Wakes the timer.
    timer: Condvar,
    /// Wakes the threads that send messages.
    mail: Condvar,
    /// Those that a message is being sent to.
    busy: Mutex<Vec<Receiver>>,
    /// Changes whenever a run is queued, begins or ends; true at the end of the server.
    changed: watch::Sender<bool>,
}

#[derive(Default)]
struct Agenda {
    /// The runs at work, by their ids.
    active: HashMap<i64, Active>,
    /// Rises whenever a run may begin.
    queued: u64,
    /// Rises whenever a message was recorded, or may be sent now.
    messages: u64,
    /// Pipelines have changed since the timer looked.
    is_changed: bool,
    /// No run begins any more.
    drains: bool,
    ends: bool,
}

/// A run at work.
struct Active {
    cancel: Cancel,
    /// Why it was cancelled.
    ended_by: Option<EndedBy>,
    deadline: Option<Instant>,
    live: Arc<Live>,
}

/// The reason why the server cancelled a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    Client,
    NewerRun,
    Timeout,
    Server,
}

/// The outcome of a request to cancel a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It ends soon, or it has not begun and will not.
    Yes,
    /// It is not queued and not running.
    NotActive,
}

impl Runs {
    /// Opens the store, marks runs that were interrupted, and begins to run what is queued and due. Not for a thread of an
    /// asynchronous runtime: it waits for the disk.
    ///
    /// # Errors
    /// A store that cannot be used, and a thread that cannot be started.
    pub fn start(
        settings: RunSettings,
        engine: Engine,
        pipelines: Arc<dyn PipelineSource>,
    ) -> Result<Arc<Self>, RunsError> {
        Self::start_with(settings, engine, pipelines, Arc::new(now_ms))
    }

    fn start_with(
        settings: RunSettings,
        engine: Engine,
        pipelines: Arc<dyn PipelineSource>,
        clock: Clock,
    ) -> Result<Arc<Self>, RunsError> {
        let store = Store::open(&settings.folder.join(STORE))?;
        let known = Arc::clone(&pipelines);
        let told = store.recover(clock(), move |name| {
            Wanted::of(known.pipeline(name).as_ref())
        })?;
        let threads = settings.threads;
        let shared = Arc::new(Shared {
            engine,
            pipelines,
            store,
            settings,
            clock,
            ended: Ended::default(),
            begins: Mutex::default(),
            agenda: Mutex::default(),
            work: Condvar::new(),
            timer: Condvar::new(),
            mail: Condvar::new(),
            busy: Mutex::default(),
            changed: watch::Sender::new(false),
        });
        let runs = Arc::new(Self {
            shared,
            threads: Mutex::default(),
        });
        for number in 0..threads {
            runs.spawn(&format!("pipeline-{number}"), Shared::work)?;
        }
        runs.spawn(TIMER, |shared| shared.keep_time())?;
        runs.shared.told(told);
        for number in 0..SENDERS {
            runs.spawn(&format!("notify-{number}"), |shared| shared.deliver())?;
        }
        Ok(runs)
    }

    fn spawn(&self, name: &str, work: fn(&Arc<Shared>)) -> Result<(), RunsError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || work(&shared));
        let thread = thread.map_err(|error| RunsError::System("cannot start a thread", error))?;
        self.threads().push(thread);
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pipelines were added, removed or changed: their schedules count from now on.
    pub fn pipelines_changed(&self) {
        let mut agenda = self.shared.agenda();
        agenda.is_changed = true;
        agenda.messages += 1;
        drop(agenda);
        self.shared.timer.notify_all();
        self.shared.mail.notify_all();
    }

    /// A stream of the queue begins to fail: `error` says why. Waits for the disk.
    pub(crate) fn queue_failed(&self, pipeline: &Pipeline, stream: &str, error: &Value) {
        let error = redacted(pipeline, error);
        let of = |now_ms| messages::of_stream(pipeline.name(), stream, &error, now_ms);
        self.shared.tell_of_queue(pipeline, of);
    }

    /// A job of the queue is dead: `error` says why. Waits for the disk.
    pub(crate) fn job_died(&self, pipeline: &Pipeline, stream: &str, job: i64, error: &Value) {
        let error = redacted(pipeline, error);
        let of = |now_ms| messages::of_dead(pipeline.name(), stream, job, &error, now_ms);
        self.shared.tell_of_queue(pipeline, of);
    }

    /// Sends each receiver of a pipeline a message that is about nothing. Not for a thread of an asynchronous runtime: it
    /// waits for the answers.
    ///
    /// # Errors
    /// `System`: no random bytes.
    pub(crate) fn try_receivers(&self, pipeline: &Pipeline) -> Result<Vec<Tried>, RunsError> {
        self.shared.try_receivers(pipeline)
    }

    /// The messages of a pipeline that wait, as JSON. `None` if it has no key `notify`.
    pub(crate) async fn outbox(&self, pipeline: &Pipeline) -> Result<Option<Value>, RunsError> {
        let Some(notify) = pipeline.notify() else {
            return Ok(None);
        };
        let outbox = self.shared.store.outbox(pipeline.name().to_owned()).await?;
        Ok(Some(json!({
            "success": notify.success.is_some(), "failure": notify.failure.is_some(),
            "schema_change": notify.schema_change.is_some(), "is_signed": notify.secret.is_some(),
            "waiting": outbox.waiting, "oldest_ms": outbox.oldest_ms, "last_failure": outbox.last_failure,
        })))
    }

    /// Cancels a run. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn cancel(&self, id: i64) -> Result<Cancelled, RunsError> {
        self.shared.cancel(id)
    }

    /// The newest runs, of one pipeline or of all, at most `limit`. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn last(&self, pipeline: Option<&str>, limit: u32) -> Result<Vec<Run>, RunsError> {
        self.shared.store.look(Filter {
            pipelines: pipeline.map(|pipeline| vec![pipeline.to_owned()]),
            limit,
            ..Filter::default()
        })
    }

    /// No run begins any more. Waits until the runs at work have ended, at most for this time.
    pub fn drain(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut agenda = self.shared.agenda();
        agenda.drains = true;
        self.shared.work.notify_all();
        self.shared.timer.notify_all();
        while !agenda.active.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.work.wait_timeout(agenda, left);
            agenda = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Begins to end: no run begins, the runs at work are cancelled, and requests that follow them are answered. Returns at
    /// once. A server calls this before it waits for its open requests.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Ends, and waits for the threads. Runs that are cancelled here are `interrupted`, and the next start resumes them.
    /// Queued runs stay queued.
    pub fn stop(&self) {
        self.end();
        let threads: Vec<_> = self.threads().drain(..).collect();
        for thread in threads {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> i64 {
        (self.clock)()
    }

    fn tell(&self, what: &str, error: &RunsError) {
        self.warn(&format!("{what}: {error}"), "store_failed", json!({}));
    }

    /// Something that the operator should look at.
    fn warn(&self, text: &str, code: &str, mut facts: Value) {
        facts["code"] = code.into();
        self.settings.log.warn(text, facts);
    }

    /// Messages were recorded.
    fn told(&self, told: Told) {
        if told.dropped > 0 {
            let text = format!(
                "too many messages of notify wait: the oldest are dropped ({})",
                told.dropped
            );
            self.warn(&text, "notify_dropped", json!({ "dropped": told.dropped }));
        }
        if told.recorded > 0 {
            self.agenda().messages += 1;
            self.mail.notify_all();
        }
    }

    /// Records a message about the queue, if the pipeline wants to be told.
    fn tell_of_queue(&self, pipeline: &Pipeline, draft: impl FnOnce(i64) -> Draft) {
        if !Wanted::of(Some(pipeline)).failure {
            return;
        }
        let now_ms = self.now_ms();
        match self.store.add_message(draft(now_ms), now_ms) {
            Ok(told) => self.told(told),
            // The stream and the job show the same.
            Err(error) => self.tell("a message of notify is not recorded", &error),
        }
    }

    /// A run was queued.
    fn queued(&self) {
        self.agenda().queued += 1;
        self.work.notify_all();
        self.changed.send_modify(|_| ());
    }

    fn cancel(&self, id: i64) -> Result<Cancelled, RunsError> {
        let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cancel_active(id, EndedBy::Client) {
            return Ok(Cancelled::Yes);
        }
        let cancelled = self.store.cancel_queued(id, self.now_ms())?;
        drop(begins);
        if let Some(pipeline) = cancelled {
            self.ended.count(&pipeline, RunState::Cancelled, 1);
            self.changed.send_modify(|_| ());
            return Ok(Cancelled::Yes);
        }
        Ok(Cancelled::NotActive)
    }

    /// Cancels a run at work. Returns false if it is not at work.
    fn cancel_active(&self, id: i64, by: EndedBy) -> bool {
        let mut agenda = self.agenda();
        let Some(active) = agenda.active.get_mut(&id) else {
            return false;
        };
        active.ended_by.get_or_insert(by);
        let cancel = active.cancel.clone();
        drop(agenda);
        cancel.cancel();
        true
    }

    /// The run at work that a new one replaces.
    fn replace(&self, id: Option<i64>) {
        if let Some(id) = id {
            let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
            self.cancel_active(id, EndedBy::NewerRun);
            drop(begins);
        }
    }

    fn live(&self, id: i64) -> Option<Arc<Live>> {
        self.agenda()
            .active
            .get(&id)
            .map(|active| Arc::clone(&active.live))
    }

    fn end(&self) {
        // A run that waits for one that is interrupted here does not begin any more.
        let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        let mut agenda = self.agenda();
        agenda.ends = true;
        let mut cancels = Vec::new();
        for active in agenda.active.values_mut() {
            active.ended_by.get_or_insert(EndedBy::Server);
            cancels.push(active.cancel.clone());
        }
        drop((agenda, begins));
        cancels.iter().for_each(Cancel::cancel);
        self.work.notify_all();
        self.timer.notify_all();
        self.mail.notify_all();
        self.changed.send_replace(true);
    }
}

#[cfg(test)]
mod tests;

//! Sessions that wait for the next run of a program: connecting, logging in and instantiating a connector take longer than
//! to write a few rows.
//!
//! A run leaves the session that has read or written its last stream, and the next run with the same settings plans with it.
//! Only a connector that can plan again after a load takes part: its config schema has the mark [`MARK`]. A session is kept
//! for a few seconds, and its age is limited, too: a changed password or address is noticed within that time.
//!
//! A session may have lost its server while it waited. So a run that cannot plan with such a session closes all that wait,
//! and plans again with new ones: nothing is written by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte_runtime::{
    Cancel, Clock, Destination, Limits, MemoryBudget, Result, Sandbox, Source, no_secrets,
};
use serde_json::Value;

use crate::failure::{Class, Failure};
use crate::plan::Stage;

/// A connector with this mark in its config schema can plan and load again after a load, or discover and read again after
/// a read, in the same session.
const MARK: &str = "x-plans-again";
/// Sessions that wait at the same time. Each has a connection, and a server allows about a hundred.
const MAX_SESSIONS: usize = 8;
/// How long a session waits. Middleboxes forget silent connections after minutes.
const IDLE: Duration = Duration::from_secs(5);
/// A session that is older is not used for another run.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Linear memory of a session that waits, in bytes. Ours have 2 MiB.
const MAX_BYTES: usize = 16 << 20;

/// Whether the connector can plan again, by its config schema.
pub(crate) fn plans_again(schema: &Value) -> bool {
    schema.get(MARK) == Some(&Value::Bool(true))
}

/// Sessions that wait. Clones are the same sessions.
#[derive(Clone, Default)]
pub struct IdleSessions(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// All sessions were closed: the thread that closes old ones has nothing to wait for.
    closed: Condvar,
}

#[derive(Default)]
struct State {
    /// The session that has waited longest is the first.
    waiting: Vec<Waiting>,
    has_thread: bool,
}

struct Waiting {
    key: Key,
    session: Session,
    since: Instant,
}

/// The settings of a session. A hash, because they contain secrets.
type Key = blake3::Hash;

/// A session of either side.
pub(crate) enum Session {
    Source(Source),
    Destination(Destination),
}

impl Session {
    fn close(self) {
        match self {
            Self::Source(session) => session.close(),
            Self::Destination(session) => session.close(),
        }
    }
}

impl IdleSessions {
    /// Closes all sessions that wait.
    pub fn close(&self) {
        let waiting = std::mem::take(&mut self.0.state().waiting);
        self.0.closed.notify_all();
        close_all(waiting);
    }

    /// How many sessions wait.
    pub fn len(&self) -> usize {
        self.0.state().waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self, key: &Key) -> Option<Session> {
        let mut state = self.0.state();
        // The newest one is the least likely to have lost its server.
        let at = state.waiting.iter().rposition(|one| one.key == *key)?;
        let taken = state.waiting.remove(at);
        drop(state);
        match taken.since.elapsed() < IDLE {
            true => Some(taken.session),
            false => {
                taken.session.close();
                None
            }
        }
    }

    fn put(&self, key: Key, session: Session) {
        let since = Instant::now();
        let mut state = self.0.state();
        let mut over = Vec::new();
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("idle".into());
            match thread.spawn(move || shared.close_old()) {
                Ok(_) => state.has_thread = true,
                // Nobody would close it.
                Err(_) => {
                    drop(state);
                    return session.close();
                }
            }
        }
        state.waiting.push(Waiting {
            key,
            session,
            since,
        });
        while state.waiting.len() > MAX_SESSIONS {
            over.push(state.waiting.remove(0));
        }
        drop(state);
        close_all(over);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes sessions that have waited too long. Ends if none waits when it wakes: a run takes the session of the run before,
    /// and leaves it again, and the thread sleeps meanwhile.
    fn close_old(&self) {
        let mut state = self.state();
        while let Some(first) = state.waiting.first() {
            let left = IDLE.saturating_sub(first.since.elapsed());
            if left.is_zero() {
                let old = state.waiting.remove(0);
                drop(state);
                old.session.close();
                state = self.state();
                continue;
            }
            let waited = self.closed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.has_thread = false;
    }
}

fn close_all(waiting: Vec<Waiting>) {
    waiting.into_iter().for_each(|one| one.session.close());
}

/// The sessions that a run may take and leave. Clones belong to the same run.
#[derive(Clone)]
pub struct Reuse {
    idle: IdleSessions,
    /// Runs with the same text have the same pipeline.
    name: Arc<str>,
    run: Arc<OfRun>,
}

#[derive(Default)]
struct OfRun {
    /// It plans with a session of an earlier run.
    has_taken: AtomicBool,
    /// It takes no more of them.
    is_careful: AtomicBool,
}

impl Reuse {
    /// For a run of the pipeline that `name` stands for: its whole text, with the values of its variables. Runs with the
    /// same text share sessions.
    pub fn new(idle: &IdleSessions, name: &str) -> Self {
        Self {
            idle: idle.clone(),
            name: name.into(),
            run: Arc::default(),
        }
    }

    /// Whether another attempt to plan may succeed with new sessions: the run has a session that waited before, or
    /// sessions that wait take the places of a server that has no more. Closes them then.
    pub(crate) fn is_to_blame(&self, failure: &Failure) -> bool {
        let has_taken = self.run.has_taken.swap(false, Ordering::SeqCst);
        let may_pass = failure.passes_after_ms.is_some() && !self.idle.is_empty();
        let was_careful = self.run.is_careful.swap(true, Ordering::SeqCst);
        let is_to_blame =
            !was_careful && failure.class != Class::Cancelled && (has_taken || may_pass);
        if is_to_blame {
            self.idle.close();
        }
        is_to_blame
    }

    fn key(&self, stage: &Stage) -> Key {
        let mut hasher = blake3::Hasher::new();
        let files = stage.grants.tls_stamps();
        let parts = [
            &*self.name,
            &stage.key,
            &stage.connector.identity(),
            &stage.config,
        ];
        let grants = stage.may.iter().map(String::as_str);
        let files = files.iter().map(String::as_str);
        for part in parts.into_iter().chain(grants).chain(files) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }

    /// A session that an earlier run has left, in this sandbox.
    fn take<S: Side>(&self, stage: &Stage, sandbox: &Sandbox) -> Option<S> {
        if !stage.plans_again || self.run.is_careful.load(Ordering::SeqCst) {
            return None;
        }
        let mut session = S::of(self.idle.take(&self.key(stage))?)?;
        if !session.hand_over(sandbox.clone()) {
            return None;
        }
        self.run.has_taken.store(true, Ordering::SeqCst);
        Some(session)
    }

    /// Leaves a session that has read or committed its last stream.
    pub(crate) fn leave<S: Side>(&self, stage: &Stage, mut session: S) {
        if stage.plans_again
            && session.finish()
            && session.age() < MAX_AGE
            && session.hand_over(resting(stage))
            && !session.is_cancelled()
        {
            self.idle.put(self.key(stage), session.waiting());
        }
    }
}

/// A side of a pipeline whose sessions can wait. [`Source`] and [`Destination`] have these methods.
pub(crate) trait Side: Sized {
    /// A session that is not open.
    fn connect(stage: &Stage, sandbox: Sandbox) -> Result<Self>;
    fn open(&mut self, config: &str) -> Result<()>;
    fn hand_over(&mut self, sandbox: Sandbox) -> bool;
    fn finish(&mut self) -> bool;
    fn age(&self) -> Duration;
    fn is_cancelled(&self) -> bool;
    /// The session of this side. `None` for the other side.
    fn of(session: Session) -> Option<Self>;
    fn waiting(self) -> Session;
}

macro_rules! side {
    ($side:ident, $connect:ident) => {
        impl Side for $side {
            fn connect(stage: &Stage, sandbox: Sandbox) -> Result<Self> {
                stage.connector.$connect(sandbox)
            }
            fn open(&mut self, config: &str) -> Result<()> {
                $side::open(self, config)
            }
            fn hand_over(&mut self, sandbox: Sandbox) -> bool {
                $side::hand_over(self, sandbox)
            }
            fn finish(&mut self) -> bool {
                $side::finish(self)
            }
            fn age(&self) -> Duration {
                $side::age(self)
            }
            fn is_cancelled(&self) -> bool {
                $side::is_cancelled(self)
            }
            fn of(session: Session) -> Option<Self> {
                match session {
                    Session::$side(session) => Some(session),
                    _ => None,
                }
            }
            fn waiting(self) -> Session {
                Session::$side(self)
            }
        }
    };
}

side!(Source, source);
side!(Destination, destination);

/// An open session: one that an earlier run has left, or a new one.
///
/// # Errors
/// The errors of a new session.
pub(crate) fn session<S: Side>(
    reuse: Option<&Reuse>,
    stage: &Stage,
    sandbox: Sandbox,
) -> Result<S> {
    match reuse.and_then(|reuse| reuse.take(stage, &sandbox)) {
        Some(kept) => Ok(kept),
        None => new_session(reuse, stage, sandbox),
    }
}

/// A new session, which later runs can use if `reuse` says so.
///
/// # Errors
/// The errors of the connector when it is instantiated and opened.
pub(crate) fn new_session<S: Side>(
    reuse: Option<&Reuse>,
    stage: &Stage,
    sandbox: Sandbox,
) -> Result<S> {
    let mut session = match reuse.filter(|_| stage.plans_again) {
        None => S::connect(stage, sandbox)?,
        Some(_) => {
            let mut session = S::connect(stage, outliving(&sandbox))?;
            match session.hand_over(sandbox.clone()) {
                true => session,
                // The session has too little memory.
                false => S::connect(stage, sandbox)?,
            }
        }
    };
    session.open(&stage.config)?;
    Ok(session)
}

/// The same sandbox with a token of its own: what a session connects lives as long as the token that it was made with, and
/// the session may outlive the run.
fn outliving(sandbox: &Sandbox) -> Sandbox {
    Sandbox {
        cancel: Cancel::new(),
        // Its memory is charged to the run when it is handed over.
        memory: MemoryBudget::new(sandbox.memory.total()),
        ..sandbox.clone()
    }
}

/// The sandbox of a session that waits. It says nothing to anybody.
fn resting(stage: &Stage) -> Sandbox {
    Sandbox {
        grants: Arc::clone(&stage.grants),
        memory: MemoryBudget::new(MAX_BYTES),
        limits: Limits {
            batch_bytes: 0,
            ..stage.limits.clone()
        },
        clock: Clock::new(),
        cancel: Cancel::new(),
        log: Arc::new(|_, _, _, _| ()),
        redact: no_secrets(),
        stream: None,
    }
}

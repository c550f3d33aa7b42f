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
/// Sessions that wait at a time: each one has a connection, of which a server has some hundred.
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
    /// Sessions were taken: the thread that closes old ones has less to wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The one that has waited longest first.
    waiting: Vec<Waiting>,
    has_thread: bool,
}

struct Waiting {
    key: Key,
    session: Session,
    since: Instant,
}

/// What a session was opened with. A hash, because it contains secrets.
type Key = blake3::Hash;

enum Session {
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
        self.0.changed.notify_all();
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
        self.0.changed.notify_all();
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

    /// Closes sessions that have waited too long, until none waits.
    fn close_old(&self) {
        let mut state = self.state();
        loop {
            let Some(first) = state.waiting.first() else {
                state.has_thread = false;
                return;
            };
            let left = IDLE.saturating_sub(first.since.elapsed());
            if left.is_zero() {
                let old = state.waiting.remove(0);
                drop(state);
                old.session.close();
                state = self.state();
                continue;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
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

    fn take<S>(
        &self,
        stage: &Stage,
        of_kind: impl Fn(Session) -> Option<S>,
        hand_over: impl Fn(&mut S) -> bool,
    ) -> Option<S> {
        if !stage.plans_again || self.run.is_careful.load(Ordering::SeqCst) {
            return None;
        }
        let mut session = of_kind(self.idle.take(&self.key(stage))?)?;
        if !hand_over(&mut session) {
            return None;
        }
        self.run.has_taken.store(true, Ordering::SeqCst);
        Some(session)
    }

    /// A source that an earlier run has left, in this sandbox.
    pub(crate) fn take_source(&self, stage: &Stage, sandbox: &Sandbox) -> Option<Source> {
        let of_kind = |session| match session {
            Session::Source(session) => Some(session),
            Session::Destination(_) => None,
        };
        self.take(stage, of_kind, |session: &mut Source| {
            session.hand_over(sandbox.clone())
        })
    }

    /// The same for a destination.
    pub(crate) fn take_destination(&self, stage: &Stage, sandbox: &Sandbox) -> Option<Destination> {
        let of_kind = |session| match session {
            Session::Destination(session) => Some(session),
            Session::Source(_) => None,
        };
        self.take(stage, of_kind, |session: &mut Destination| {
            session.hand_over(sandbox.clone())
        })
    }

    /// Leaves a source that has read its last stream.
    pub(crate) fn leave_source(&self, stage: &Stage, mut session: Source) {
        if stage.plans_again
            && session.finish()
            && session.age() < MAX_AGE
            && session.hand_over(resting(stage))
            && !session.is_cancelled()
        {
            self.idle.put(self.key(stage), Session::Source(session));
        }
    }

    /// Leaves a destination that has committed its last stream.
    pub(crate) fn leave_destination(&self, stage: &Stage, mut session: Destination) {
        if stage.plans_again
            && session.finish()
            && session.age() < MAX_AGE
            && session.hand_over(resting(stage))
            && !session.is_cancelled()
        {
            self.idle
                .put(self.key(stage), Session::Destination(session));
        }
    }
}

/// An open session of a source: one that an earlier run has left, or a new one.
///
/// # Errors
/// Those of a new session.
pub(crate) fn source(reuse: Option<&Reuse>, stage: &Stage, sandbox: Sandbox) -> Result<Source> {
    match reuse.and_then(|reuse| reuse.take_source(stage, &sandbox)) {
        Some(kept) => Ok(kept),
        None => new_source(reuse, stage, sandbox),
    }
}

/// A new session of a source, which later runs can use if `reuse` says so.
///
/// # Errors
/// Those of a new session.
pub(crate) fn new_source(reuse: Option<&Reuse>, stage: &Stage, sandbox: Sandbox) -> Result<Source> {
    let mut session = match reuse.filter(|_| stage.plans_again) {
        None => stage.connector.source(sandbox)?,
        Some(_) => {
            let mut session = stage.connector.source(outliving(&sandbox))?;
            match session.hand_over(sandbox.clone()) {
                true => session,
                // It says that it has too little memory.
                false => stage.connector.source(sandbox)?,
            }
        }
    };
    session.open(&stage.config)?;
    Ok(session)
}

/// The same as [`source`] for a destination.
///
/// # Errors
/// Those of a new session.
pub(crate) fn destination(
    reuse: Option<&Reuse>,
    stage: &Stage,
    sandbox: Sandbox,
) -> Result<Destination> {
    match reuse.and_then(|reuse| reuse.take_destination(stage, &sandbox)) {
        Some(kept) => Ok(kept),
        None => new_destination(reuse, stage, sandbox),
    }
}

/// The same as [`new_source`] for a destination.
///
/// # Errors
/// Those of a new session.
pub(crate) fn new_destination(
    reuse: Option<&Reuse>,
    stage: &Stage,
    sandbox: Sandbox,
) -> Result<Destination> {
    let mut session = match reuse.filter(|_| stage.plans_again) {
        None => stage.connector.destination(sandbox)?,
        Some(_) => {
            let mut session = stage.connector.destination(outliving(&sandbox))?;
            match session.hand_over(sandbox.clone()) {
                true => session,
                // It says that it has too little memory.
                false => stage.connector.destination(sandbox)?,
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

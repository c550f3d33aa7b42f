//! A run says that it is at work, where the destination cannot see that by itself: a server behind a
//! pooler lists no session of the run.
//!
//! The session that planned says it first, before any stream is written. A thread with a session of its own
//! says it again every few seconds, whatever the streams wait for, and takes it back at the end.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rapidbyte_runtime::{
    Cancel, Clock, Destination, Error, Level, Limits, LogSink, MemoryBudget, Presence, Run, Sandbox,
};
use rapidbyte_state::process;

use crate::document::Document;
use crate::event::ENGINE;
use crate::failure::Failure;
use crate::host::Host;
use crate::plan::{Prepared, Stage};
use crate::usage::Usage;

/// How often a run says that it is at work.
const EVERY: Duration = Duration::from_secs(5);
/// The time limit of one call: the end of a run waits for the last call.
const PATIENCE: Duration = Duration::from_secs(10);
/// Memory of the session that says it: it holds no row.
const MEMORY: usize = 16 << 20;

/// Says that a run is at work until it is dropped.
pub(crate) struct Beat {
    /// Dropped, it ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Beat {
    /// Says it for the first time. None where the destination needs no more, or cannot record it: that is a
    /// warning, because the rows are right without.
    ///
    /// # Errors
    /// A connector that breaks the contract in this call.
    pub(crate) fn begin(
        prepared: &Prepared,
        host: &Host,
        run: &Run,
    ) -> Result<Option<Self>, Failure> {
        let plan = &prepared.plan;
        let mut beating = Beating {
            stage: plan.destination.clone(),
            document: plan.document.clone(),
            log: host.log_sink(),
            usage: host.usage.clone(),
            presence: Presence {
                run: run.clone(),
                place: process::place(),
                process: process::name(),
                is_over: false,
            },
            is_told: false,
            is_recorded: false,
        };
        let told = prepared.sessions.with_writer(|session| {
            match session.beat(&beating.presence) {
                Ok(goes_on) => {
                    beating.is_recorded = goes_on;
                    Ok(goes_on)
                }
                // The run ends by itself.
                Err(Error::Cancelled) => Ok(false),
                Err(error) if session.is_usable() => Ok(beating.warn(error)),
                Err(error) => Err(Failure::from_runtime(error, &plan.document, "destination")),
            }
        });
        let goes_on = told.transpose()?.unwrap_or(false);
        if !goes_on {
            return Ok(None);
        }
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("beat".into());
        match thread.spawn(move || beating.until(&stopped)) {
            Ok(thread) => Ok(Some(Self {
                stop: Some(stop),
                thread: Some(thread),
            })),
            Err(error) => {
                let text = format!("other runs will not see this one: {error}");
                host.log(None, Level::Warn, &text);
                Ok(None)
            }
        }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread ends within its patience. A thread that panicked makes no more calls.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The state of the thread.
struct Beating {
    stage: Stage,
    document: Document,
    log: LogSink,
    usage: Usage,
    presence: Presence,
    /// The operator knows that it does not work.
    is_told: bool,
    /// A call was answered: the destination may have the run until it hears of its end.
    is_recorded: bool,
}

impl Beating {
    fn until(mut self, stopped: &Receiver<()>) {
        let usage = self.usage.clone();
        let _counted = usage.of_thread();
        let mut session = None;
        self.once(&mut session);
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.once(&mut session);
        }
        // A destination that does not answer holds up the end of the run by two calls at most.
        if self.is_recorded {
            self.presence.is_over = true;
            self.once(&mut session);
        }
        if let Some(session) = session {
            session.close();
        }
    }

    fn once(&mut self, session: &mut Option<Destination>) {
        let said = match session {
            Some(session) => session.beat(&self.presence),
            None => self
                .open()
                .and_then(|opened| session.insert(opened).beat(&self.presence)),
        };
        // After a trap another instance tries it.
        session.take_if(|session| !session.is_usable());
        match said {
            Ok(_) => self.is_recorded = true,
            Err(error) => {
                self.warn(error);
            }
        }
    }

    fn open(&self) -> Result<Destination, Error> {
        let limits = &self.stage.limits;
        let sandbox = Sandbox {
            grants: Arc::new(self.stage.grants.to_look()),
            memory: MemoryBudget::part_of(&self.usage.memory, MEMORY, MEMORY),
            limits: Limits {
                busy: limits.busy.min(PATIENCE),
                stall: limits.stall.min(PATIENCE),
                abort: limits.abort.min(PATIENCE),
                ..limits.clone()
            },
            clock: Clock::new(),
            // An interrupted run takes back what it said, too.
            cancel: Cancel::new(),
            log: Arc::clone(&self.log),
            redact: self.document.redactor(),
            stream: None,
        };
        let mut session = self.stage.connector.destination(sandbox)?;
        session.open(&self.stage.config)?;
        Ok(session)
    }

    /// Says once that other runs may not see this one. True if the same may succeed later.
    fn warn(&mut self, error: Error) -> bool {
        let mut failure = Failure::from_runtime(error, &self.document, "destination");
        failure.redact(&self.document);
        if !std::mem::replace(&mut self.is_told, true) {
            let hint = failure.hint.map(|hint| format!("; {hint}"));
            let text = format!(
                "other runs of the pipeline may not see that this one is running: {}{}",
                failure.message,
                hint.unwrap_or_default()
            );
            (self.log)(ENGINE, None, Level::Warn, &text);
        }
        failure.passes_after_ms.is_some()
    }
}

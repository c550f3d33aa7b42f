//! File calls on a thread that nobody has to wait for.
//!
//! The system cannot cancel a file call: a network file system whose server went away may hold it
//! for ever. So an instance's file calls run on a thread of their own, one at a time. The waiting
//! instance gives up when the run is cancelled or nothing has moved for too long. It leaves that
//! thread behind, which ends with its call, or with the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select, unbounded};
use wasmtime::component::ResourceTable;

use crate::state::{Cancelled, Stalled, State};

/// The time that a call to a healthy disk may still take after the run was cancelled: the call then
/// ends as usual, and its temporary file is removed.
const GRACE: Duration = Duration::from_secs(2);
/// Most calls are over by then, and need nothing that wakes the waiting thread.
const USUAL: Duration = Duration::from_millis(50);

type Call = Box<dyn FnOnce() + Send>;

/// The thread of an instance's file calls, from its first one on.
#[derive(Default)]
pub(crate) struct Apart {
    calls: Option<Sender<Call>>,
    /// A thread was left to a call that did not end.
    has_lost_one: bool,
}

/// Whether the guest that made a call has been given up. A call with several steps checks this before
/// the step that others can see.
#[derive(Clone, Default)]
pub(crate) struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// An error once nobody waits any more.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(std::io::Error::other("the run was aborted meanwhile")),
        }
    }
}

impl Apart {
    fn begin(&mut self, call: Call) -> std::io::Result<()> {
        let call = match &self.calls {
            None => call,
            // A thread that has panicked takes none.
            Some(calls) => match calls.send(call) {
                Ok(()) => return Ok(()),
                Err(refused) => refused.into_inner(),
            },
        };
        // One call at a time is asked for, so nothing piles up here.
        let (sender, calls) = unbounded::<Call>();
        std::thread::Builder::new()
            .name("files".into())
            .spawn(move || calls.iter().for_each(|call| call()))?;
        // The thread holds the other end.
        let _ = sender.send(call);
        self.calls = Some(sender);
        Ok(())
    }

    /// Leaves the thread to its call: the next call has another one.
    fn abandon(&mut self) {
        self.calls = None;
        self.has_lost_one = true;
    }

    /// Drops what an instance left, for as long as `patience`: that removes temporary files.
    pub(crate) fn clean_up(&mut self, left: ResourceTable, patience: Duration) {
        if self.calls.is_none() && !self.has_lost_one {
            return;
        }
        let patience = match self.has_lost_one {
            true => patience.min(GRACE),
            false => patience,
        };
        let (done, is_done) = bounded(1);
        let begun = self.begin(Box::new(move || {
            drop(left);
            let _ = done.send(());
        }));
        if begun.is_ok() {
            // Late is well too: the next run removes what this one could not.
            let _ = is_done.recv_timeout(patience);
        }
    }
}

impl State {
    /// Makes a file call on a thread that can be given up. The error names `what` when nothing moves for too long.
    pub(crate) fn apart<T: Send + 'static>(
        &mut self,
        what: &str,
        call: impl FnOnce(&Abandoned) -> T + Send + 'static,
    ) -> wasmtime::Result<T> {
        let (answer, answered) = bounded(1);
        let abandoned = Abandoned::default();
        let told = abandoned.clone();
        self.apart.begin(Box::new(move || {
            // Nobody listens once it was given up: what it opened is dropped here.
            let _ = answer.send(call(&told));
        }))?;
        match answered.recv_timeout(USUAL) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Disconnected) => Err(self.panicked()),
            Err(RecvTimeoutError::Timeout) => self.wait_apart(what, &answered, &abandoned),
        }
    }

    fn wait_apart<T>(
        &mut self,
        what: &str,
        answered: &Receiver<T>,
        abandoned: &Abandoned,
    ) -> wasmtime::Result<T> {
        let (cancel, cancelled) = bounded::<()>(1);
        let registration = self.sandbox.cancel.on_cancel(move || {
            let _ = cancel.try_send(());
        });
        select! {
            recv(answered) -> result => return result.map_err(|_| self.panicked()),
            recv(cancelled) -> _ => {}
            default(self.patience()) => {}
        }
        drop(registration);
        let is_cancelled = self.sandbox.cancel.is_cancelled();
        // From here on the call may end, and may change nothing that others see.
        abandoned.0.store(true, Ordering::SeqCst);
        if is_cancelled {
            let _ = answered.recv_timeout(GRACE);
        }
        self.apart.abandon();
        self.waits_for = Some(crate::ended::short(what).to_owned());
        match is_cancelled {
            true => Err(Cancelled.into()),
            false => Err(Stalled.into()),
        }
    }

    fn panicked(&mut self) -> wasmtime::Error {
        // Its thread ends, and takes no other call.
        self.apart.calls = None;
        std::io::Error::other("a file call panicked").into()
    }
}

#[cfg(test)]
#[path = "apart/tests.rs"]
mod tests;

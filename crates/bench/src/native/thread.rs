//! A connector on a thread of its own.
//!
//! The engine moves a session from the thread that plans to the thread of a stage. The SDK lets a connector hold
//! values that may not move, because a component has one thread. So the connector stays on one thread, and the calls
//! come to it: some microseconds for each.

use std::sync::mpsc;
use std::thread::JoinHandle;

use rapidbyte_runtime::{Clock, Native, Phase, Result};
use rapidbyte_sdk::phase::{self, Kind, Outside};

use super::twins;

type Call<C> = Box<dyn FnOnce(&mut C) + Send>;

/// The thread. It ends when this is dropped, after the connector has logged out.
pub struct Thread<C> {
    calls: Option<mpsc::SyncSender<Call<C>>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Default + 'static> Thread<C> {
    /// Starts with a connector that is not open yet.
    pub fn start() -> Self {
        // A session has one call at a time.
        let (calls, called) = mpsc::sync_channel::<Call<C>>(1);
        let work = move || {
            let mut connector = C::default();
            while let Ok(call) = called.recv() {
                call(&mut connector);
            }
        };
        Self {
            calls: Some(calls),
            thread: Some(std::thread::spawn(work)),
        }
    }

    /// Makes one call of the contract. The clock of the session follows what the connector does.
    pub fn call<T: Send + 'static>(
        &self,
        native: &Native,
        export: &'static str,
        work: impl FnOnce(&mut C) -> rapidbyte_sdk::Result<T> + Send + 'static,
    ) -> Result<T> {
        let clock = native.sandbox().clock.clone();
        native.call(export, Phase::Other, || {
            let (tell, told) = mpsc::sync_channel(1);
            let call: Call<C> = Box::new(move |connector| {
                follow(&clock);
                // The caller waits for it.
                let _ = tell.send(work(connector));
            });
            let sent = self.calls.as_ref().map(|calls| calls.send(call).is_ok());
            let done = told.recv().ok().filter(|_| sent == Some(true));
            let done = done.unwrap_or_else(|| Err(rapidbyte_sdk::Error::internal("it panicked")));
            done.map_err(twins::error)
        })
    }
}

impl<C> Drop for Thread<C> {
    fn drop(&mut self) {
        drop(self.calls.take());
        if let Some(thread) = self.thread.take() {
            // A call has told about a panic.
            let _ = thread.join();
        }
    }
}

/// The error for a call that comes before another one that it needs.
pub fn out_of_order(what: &str) -> rapidbyte_sdk::Error {
    rapidbyte_sdk::Error::internal(format!("{what} is not open"))
}

/// From now on a clock follows what the connector on this thread does.
pub fn follow(clock: &Clock) {
    let followed = clock.clone();
    phase::watch(move |kind, outside| {
        followed.enter(phase_of(kind, outside));
    });
}

/// As the host counts it for a component: a call to the outside belongs to what the connector is
/// about, or else is one of its own.
fn phase_of(kind: Kind, outside: Option<Outside>) -> Phase {
    match (kind, outside) {
        (Kind::Connect, _) => Phase::Connect,
        (Kind::Query, _) => Phase::Query,
        (Kind::Flush, _) => Phase::Flush,
        (Kind::Commit, _) => Phase::Commit,
        (_, Some(Outside::Connect)) => Phase::Connect,
        (_, Some(Outside::Read)) => Phase::Fetch,
        (_, Some(Outside::Write)) => Phase::Flush,
        (Kind::Decode, None) => Phase::Decode,
        (Kind::Transform, None) => Phase::Transform,
        (Kind::Encode, None) => Phase::Encode,
        (Kind::ArrowEncode, None) => Phase::ArrowEncode,
        (Kind::ArrowDecode, None) => Phase::ArrowDecode,
        (Kind::Other, None) => Phase::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_for_the_server_does_not_count_as_work_on_values() {
        let waits = |kind| phase_of(kind, Some(Outside::Read));
        assert_eq!(waits(Kind::Decode), Phase::Fetch);
        assert_eq!(waits(Kind::Other), Phase::Fetch);
        assert_eq!(waits(Kind::Commit), Phase::Commit);
        assert_eq!(phase_of(Kind::Encode, Some(Outside::Write)), Phase::Flush);
        assert_eq!(phase_of(Kind::Encode, None), Phase::Encode);
    }

    #[test]
    fn the_clock_follows_the_connector_of_its_thread() {
        let clock = Clock::new();
        follow(&clock);
        {
            let _phase = phase::enter(Kind::ArrowEncode);
            std::hint::black_box((0..10_000).sum::<u64>());
        }
        assert!(clock.spent(Phase::ArrowEncode) > Duration::ZERO);
        assert_eq!(clock.spent(Phase::ArrowDecode), Duration::ZERO);
    }
}

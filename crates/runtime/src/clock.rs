//! Splits a stage's wall time into phases, without overlap and without a gap.
//!
//! A clock is always in exactly one phase; entering another one adds the time since the last
//! change to the phase that ends. So the parts sum to the stage's wall time by construction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wasmtime::CallHook;

use crate::bindings::phase::Kind;

/// The present work of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Reading a connector's compiled code, or compiling it.
    Load,
    /// Making an instance of it.
    Instantiate,
    /// Connecting to the outside.
    Connect,
    /// Waiting for the answer to a statement that gives no rows yet.
    Query,
    /// Waiting for bytes of rows from the outside.
    Fetch,
    /// The source's work on values.
    Decode,
    /// Arrow to IPC messages.
    ArrowEncode,
    /// IPC messages to Arrow.
    ArrowDecode,
    /// A transform's work on values.
    Transform,
    /// The destination's work on values.
    Encode,
    /// Handing bytes to the outside.
    Flush,
    /// Making rows visible.
    Commit,
    /// Copies and calls between host and guest.
    Crossing,
    /// Compressing batches for the channel.
    Compress,
    /// The reverse.
    Decompress,
    /// Waiting for another stage.
    ChannelWait,
    /// Everything else.
    Other,
}

impl Phase {
    /// All phases, in the order of a batch's way.
    pub const ALL: [Self; 17] = [
        Self::Load,
        Self::Instantiate,
        Self::Connect,
        Self::Query,
        Self::Fetch,
        Self::Decode,
        Self::ArrowEncode,
        Self::Crossing,
        Self::Compress,
        Self::ChannelWait,
        Self::Decompress,
        Self::ArrowDecode,
        Self::Transform,
        Self::Encode,
        Self::Flush,
        Self::Commit,
        Self::Other,
    ];
}

impl Phase {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Instantiate => "instantiate",
            Self::Connect => "connect",
            Self::Query => "query",
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::ArrowEncode => "arrow_encode",
            Self::ArrowDecode => "arrow_decode",
            Self::Transform => "transform",
            Self::Encode => "encode",
            Self::Flush => "flush",
            Self::Commit => "commit",
            Self::Crossing => "crossing",
            Self::Compress => "compress",
            Self::Decompress => "decompress",
            Self::ChannelWait => "channel_wait",
            Self::Other => "other",
        }
    }
}

impl From<Kind> for Phase {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Connect => Self::Connect,
            Kind::Query => Self::Query,
            Kind::Decode => Self::Decode,
            Kind::Encode => Self::Encode,
            Kind::ArrowEncode => Self::ArrowEncode,
            Kind::ArrowDecode => Self::ArrowDecode,
            Kind::Flush => Self::Flush,
            Kind::Commit => Self::Commit,
            Kind::Transform => Self::Transform,
            Kind::Other => Self::Other,
        }
    }
}

/// A stage's clock. Clones are the same clock.
#[derive(Clone)]
pub struct Clock(Arc<Mutex<Inner>>);

struct Inner {
    phase: Phase,
    since: Instant,
    spent: [Duration; Phase::ALL.len()],
    /// The phase that time inside the guest counts for.
    guest: Kind,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Starts in [`Phase::Other`].
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            phase: Phase::Other,
            since: Instant::now(),
            spent: [Duration::ZERO; Phase::ALL.len()],
            guest: Kind::Other,
        })))
    }

    /// Ends the current phase, begins another and returns the old phase.
    pub fn enter(&self, phase: Phase) -> Phase {
        self.lock().enter(phase)
    }

    /// The time in a phase so far.
    pub fn spent(&self, phase: Phase) -> Duration {
        let mut inner = self.lock();
        let now = inner.phase;
        inner.enter(now);
        inner.spent[phase as usize]
    }

    /// All phases so far; the sum is the time since the clock was made.
    pub fn parts(&self) -> Vec<(Phase, Duration)> {
        let mut inner = self.lock();
        let now = inner.phase;
        inner.enter(now);
        Phase::ALL
            .iter()
            .map(|phase| (*phase, inner.spent[*phase as usize]))
            .collect()
    }

    /// From now on guest code counts as `kind`; gives the kind before.
    pub(crate) fn set_guest(&self, kind: Kind) -> Kind {
        std::mem::replace(&mut self.lock().guest, kind)
    }

    /// The phase that guest code counts for now.
    pub(crate) fn guest(&self) -> Option<Phase> {
        Some(self.lock().guest.into())
    }

    /// Follows wasmtime from host to guest and back.
    pub(crate) fn hook(&self, hook: CallHook) {
        let mut inner = self.lock();
        let phase = match hook {
            CallHook::CallingWasm | CallHook::ReturningFromHost => inner.guest.into(),
            CallHook::CallingHost | CallHook::ReturningFromWasm => Phase::Crossing,
        };
        inner.enter(phase);
    }

    /// Runs a host call that moves bytes. It counts as what the guest is about (connecting, a
    /// query, a commit), or else as `phase`.
    pub(crate) fn outside<T>(&self, phase: Phase, call: impl FnOnce() -> T) -> T {
        let before = {
            let mut inner = self.lock();
            let phase = match inner.guest {
                kind @ (Kind::Connect | Kind::Query | Kind::Flush | Kind::Commit) => kind.into(),
                _ => phase,
            };
            inner.enter(phase)
        };
        let result = call();
        self.enter(before);
        result
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn enter(&mut self, phase: Phase) -> Phase {
        let now = Instant::now();
        self.spent[self.phase as usize] += now - self.since;
        self.since = now;
        std::mem::replace(&mut self.phase, phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_sum_to_the_whole() {
        let before = Instant::now();
        let clock = Clock::new();
        let since = Instant::now();
        for phase in Phase::ALL {
            clock.enter(phase);
            std::hint::black_box((0..1000).sum::<u64>());
        }
        let least = since.elapsed();
        let sum: Duration = clock.parts().iter().map(|(_, spent)| *spent).sum();
        assert!(least <= sum && sum <= before.elapsed());
        assert!(
            clock
                .parts()
                .iter()
                .all(|(phase, spent)| *spent > Duration::ZERO || *phase == Phase::Other)
        );
    }
}

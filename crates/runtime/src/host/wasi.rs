//! The standard WASI set, which answers empty or denied.
//!
//! Compilers import it whatever the program does. A guest sees only the environment variables that
//! were granted by name, and no argument, directory or socket. Clocks and random numbers work, but
//! stand still for a guest that describes itself. Standard output is dropped. Standard error goes
//! into a small ring, where a panic's message arrives. Cancelling must wake a sleeping guest, which
//! the library's own clock cannot do. So this module replaces two functions of
//! `wasi:clocks/monotonic-clock`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamResult, subscribe};
use wasmtime_wasi::{Deterministic, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder};

use crate::Grants;
use crate::state::State;

/// Bytes of standard error that are kept of its end.
const STDERR_BYTES: usize = 16 << 10;
/// And of its beginning: there a message begins that is too long for the end.
const HEAD_BYTES: usize = 1 << 10;

/// Random bytes that one call may ask for: the host makes them in its own memory.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

/// The first and the last bytes that a guest wrote to standard error.
#[derive(Clone, Default)]
pub struct Stderr(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Something between the two was left out.
    is_cut: bool,
}

impl Stderr {
    /// The text so far, lossily decoded.
    pub fn text(&self) -> String {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = written.head.clone();
        if written.is_cut {
            bytes.extend_from_slice(b" ... ");
        }
        bytes.extend(&written.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl IsTerminal for Stderr {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stderr {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Stderr {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEAD_BYTES.saturating_sub(written.head.len());
        let (head, tail) = bytes.split_at(room.min(bytes.len()));
        written.head.extend_from_slice(head);
        // Of what is too long for it only the end is ever put there.
        let last = tail.len().saturating_sub(STDERR_BYTES);
        written.is_cut |= last > 0;
        written.tail.extend(&tail[last..]);
        let excess = written.tail.len().saturating_sub(STDERR_BYTES);
        written.tail.drain(..excess);
        written.is_cut |= excess > 0;
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STDERR_BYTES)
    }
}

#[async_trait::async_trait]
impl Pollable for Stderr {
    async fn ready(&mut self) {}
}

/// The time of every clock of a guest that describes itself: 2000-01-01 00:00:00 UTC.
const STILL: Duration = Duration::from_secs(946_684_800);

/// A stopped clock.
struct Still;

impl HostWallClock for Still {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        STILL
    }
}

impl HostMonotonicClock for Still {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

/// A context that grants nothing but the variables of these grants.
pub fn context(stderr: &Stderr, grants: &Grants) -> WasiCtx {
    let mut builder = WasiCtxBuilder::new();
    builder
        .stderr(stderr.clone())
        .envs(grants.env())
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .allow_blocking_current_thread(true)
        .max_random_size(MAX_RANDOM_BYTES);
    if grants.describes() {
        let numbers = || Deterministic::new((0..=u8::MAX).collect());
        builder
            .wall_clock(Still)
            .monotonic_clock(Still)
            .secure_random(numbers())
            .insecure_random(numbers())
            .insecure_random_seed(0);
    }
    builder.build()
}

/// Ends after its time, or when the run is cancelled.
struct Sleep {
    duration: Duration,
    wake: Arc<Notify>,
}

#[async_trait::async_trait]
impl Pollable for Sleep {
    async fn ready(&mut self) {
        // After an elapsed time or a wake-up the guest continues; the epoch check then stops it.
        let _ = tokio::time::timeout(self.duration, self.wake.notified()).await;
    }
}

/// Adds the set to a linker.
pub fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_sync(linker)?;
    linker.allow_shadowing(true);
    let clock = "wasi:clocks/monotonic-clock@0.2.12";
    let mut clock = linker.instance(clock)?;
    clock.func_wrap(
        "subscribe-duration",
        |store: StoreContextMut<'_, State>, (nanos,): (u64,)| Ok((sleep(store, nanos)?,)),
    )?;
    clock.func_wrap(
        "subscribe-instant",
        |mut store: StoreContextMut<'_, State>, (when,): (u64,)| {
            use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::Host;
            let now = wasmtime_wasi::clocks::WasiClocksView::clocks(store.data_mut()).now()?;
            Ok((sleep(store, when.saturating_sub(now))?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn sleep(
    mut store: StoreContextMut<'_, State>,
    nanos: u64,
) -> wasmtime::Result<Resource<DynPollable>> {
    let state = store.data_mut();
    state.waits_for = Some("a pause of its own".into());
    let sleep = Sleep {
        // Longer than nothing may move, nobody sleeps: the epoch check then stops the guest.
        duration: Duration::from_nanos(nanos).min(state.patience()),
        wake: Arc::clone(&state.wake),
    };
    let sleep = state.table.push(sleep)?;
    subscribe(&mut state.table, sleep)
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi::WasiView;
    use wasmtime_wasi::clocks::WasiClocksView;
    use wasmtime_wasi::p2::bindings::clocks::{monotonic_clock, wall_clock};
    use wasmtime_wasi::p2::bindings::random::random::Host;

    use super::*;
    use crate::{Cancel, Clock, Limits, MemoryBudget, Sandbox};

    /// The time and chance that a guest with these grants reads: wall clock, other clock, random number.
    fn heard(grants: Grants) -> [u64; 3] {
        let sandbox = Sandbox {
            grants: Arc::new(grants),
            memory: MemoryBudget::new(1 << 20),
            limits: Limits::default(),
            clock: Clock::new(),
            cancel: Cancel::new(),
            log: Arc::new(|_, _, _, _| {}),
            redact: crate::no_secrets(),
            stream: None,
        };
        let mut state = State::new("test".into(), sandbox);
        let wall = wall_clock::Host::now(&mut state.clocks()).expect("a time");
        let other = monotonic_clock::Host::now(&mut state.clocks()).expect("a time");
        let random = state.ctx().ctx.random();
        [
            wall.seconds,
            other,
            random.get_random_u64().expect("a number"),
        ]
    }

    #[test]
    fn time_stands_still_and_chance_repeats_itself_for_a_guest_that_describes_itself() {
        let still = heard(Grants::to_describe());
        assert_eq!(still[..2], [STILL.as_secs(), 0]);
        assert_eq!(heard(Grants::to_describe()), still);
        let moving = heard(Grants::none());
        assert!(moving[0] > still[0] && moving[2] != heard(Grants::none())[2]);
    }
}

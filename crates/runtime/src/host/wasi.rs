//! The standard WASI set, which answers empty or denied.
//!
//! Compilers import it whatever the program does. There is no environment but the variables that
//! were granted by name, no argument, no directory and no socket; clocks and random numbers work; standard output is dropped; standard
//! error goes into a small ring, which is where a panic's message arrives. A sleeping guest is
//! woken by cancelling, which the library's own clock cannot do, so that two functions of
//! `wasi:clocks/monotonic-clock` are replaced here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{DynPollable, OutputStream, Pollable, StreamResult, subscribe};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};

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

/// A context that grants nothing but these variables.
pub fn context(stderr: &Stderr, env: &[(String, String)]) -> WasiCtx {
    let mut builder = WasiCtxBuilder::new();
    builder
        .stderr(stderr.clone())
        .envs(env)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .allow_blocking_current_thread(true)
        .max_random_size(MAX_RANDOM_BYTES);
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
        // An elapsed time and a wake-up both mean: go on; the epoch check then stops the guest.
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

//! Waiting for what HTTP moves: the functions of `wasi:io` that block, with the stage's clock,
//! limits and cancelling around them.
//!
//! The library's own do not know any of that: one of a request that nobody sends, or whose server
//! takes no more of it, waits for ever. Time in them counts as waiting for bytes, or as handing them over.

use std::sync::Arc;

use tokio::time::timeout;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::p2::bindings::sync::io::streams;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, StreamResult};
use wasmtime_wasi::runtime::in_tokio;
use wasmtime_wasi_io::bindings::wasi::io::poll::{Host as Polls, HostPollable as Pollables};
use wasmtime_wasi_io::bindings::wasi::io::streams::{
    HostInputStream as Inputs, HostOutputStream as Outputs,
};

use super::exchange::until;
use crate::Phase;
use crate::state::{Stalled, State};

type Io<T> = Result<T, streams::StreamError>;

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut polls = linker.instance("wasi:io/poll@0.2.12")?;
    polls.func_wrap(
        "poll",
        |mut store: StoreContextMut<'_, State>, (all,): (Vec<Resource<DynPollable>>,)| {
            let ready = wait(store.data_mut(), Phase::Fetch, async |table| {
                Polls::poll(table, all).await
            })?;
            Ok((ready?,))
        },
    )?;
    polls.func_wrap(
        "[method]pollable.block",
        |mut store: StoreContextMut<'_, State>, (one,): (Resource<DynPollable>,)| {
            wait(store.data_mut(), Phase::Fetch, async |table| {
                Pollables::block(table, one).await
            })?
        },
    )?;
    let mut io = linker.instance("wasi:io/streams@0.2.12")?;
    io.func_wrap(
        "[method]input-stream.blocking-read",
        |mut store: StoreContextMut<'_, State>,
         (stream, len): (Resource<DynInputStream>, u64)|
         -> wasmtime::Result<(Io<Vec<u8>>,)> {
            moved(store.data_mut(), Phase::Fetch, async |table| {
                Inputs::blocking_read(table, stream, len).await
            })
        },
    )?;
    io.func_wrap(
        "[method]input-stream.blocking-skip",
        |mut store: StoreContextMut<'_, State>,
         (stream, len): (Resource<DynInputStream>, u64)|
         -> wasmtime::Result<(Io<u64>,)> {
            moved(store.data_mut(), Phase::Fetch, async |table| {
                Inputs::blocking_skip(table, stream, len).await
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-write-and-flush",
        |mut store: StoreContextMut<'_, State>,
         (stream, bytes): (Resource<DynOutputStream>, Vec<u8>)|
         -> wasmtime::Result<(Io<()>,)> {
            moved(store.data_mut(), Phase::Flush, async |table| {
                Outputs::blocking_write_and_flush(table, stream, bytes).await
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-flush",
        |mut store: StoreContextMut<'_, State>,
         (stream,): (Resource<DynOutputStream>,)|
         -> wasmtime::Result<(Io<()>,)> {
            moved(store.data_mut(), Phase::Flush, async |table| {
                Outputs::blocking_flush(table, stream).await
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-write-zeroes-and-flush",
        |mut store: StoreContextMut<'_, State>,
         (stream, len): (Resource<DynOutputStream>, u64)|
         -> wasmtime::Result<(Io<()>,)> {
            moved(store.data_mut(), Phase::Flush, async |table| {
                Outputs::blocking_write_zeroes_and_flush(table, stream, len).await
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-splice",
        |mut store: StoreContextMut<'_, State>,
         (to, from, len): (Resource<DynOutputStream>, Resource<DynInputStream>, u64)|
         -> wasmtime::Result<(Io<u64>,)> {
            moved(store.data_mut(), Phase::Flush, async |table| {
                Outputs::blocking_splice(table, to, from, len).await
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Runs a call that may wait. If the run is cancelled or stalls, the guest ends here, whatever it waits for.
fn wait<T>(
    state: &mut State,
    phase: Phase,
    call: impl AsyncFnOnce(&mut ResourceTable) -> T,
) -> wasmtime::Result<T> {
    state.check_cancelled()?;
    if state.waits_for.is_none() {
        state.waits_for.clone_from(&state.http.requests.peer);
    }
    let clock = state.sandbox.clock.clone();
    let (patience, wake) = (state.patience(), Arc::clone(&state.wake));
    let stop = async {
        // Cancelled or stalled: the code below checks which.
        let _ = timeout(patience, wake.notified()).await;
    };
    let table = &mut state.table;
    let result = clock.outside(phase, || in_tokio(until(stop, call(table))));
    if state.http.has_moved() {
        state.progress();
    }
    state.check_cancelled()?;
    result.ok_or_else(|| Stalled.into())
}

fn moved<T>(
    state: &mut State,
    phase: Phase,
    call: impl AsyncFnOnce(&mut ResourceTable) -> StreamResult<T>,
) -> wasmtime::Result<(Io<T>,)> {
    match wait(state, phase, call)? {
        Ok(value) => Ok((Ok(value),)),
        Err(error) => {
            let error = streams::Host::convert_stream_error(&mut state.table, error)?;
            Ok((Err(error),))
        }
    }
}

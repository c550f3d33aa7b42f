//! Waiting for what HTTP moves: the functions of `wasi:io` that block, with the stage's clock,
//! limits and cancelling around them.
//!
//! The library's own do not know any of that. Time in them counts as waiting for bytes, or as
//! handing them over.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::p2::bindings::sync::io::{poll, streams};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, DynPollable, StreamResult};

use crate::Phase;
use crate::state::State;

type Io<T> = Result<T, streams::StreamError>;

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut polls = linker.instance("wasi:io/poll@0.2.12")?;
    polls.func_wrap(
        "poll",
        |mut store: StoreContextMut<'_, State>, (all,): (Vec<Resource<DynPollable>>,)| {
            let ready = wait(store.data_mut(), Phase::Fetch, |table| {
                poll::Host::poll(table, all)
            })?;
            Ok((ready?,))
        },
    )?;
    polls.func_wrap(
        "[method]pollable.block",
        |mut store: StoreContextMut<'_, State>, (one,): (Resource<DynPollable>,)| {
            wait(store.data_mut(), Phase::Fetch, |table| {
                poll::HostPollable::block(table, one)
            })?
        },
    )?;
    let mut io = linker.instance("wasi:io/streams@0.2.12")?;
    io.func_wrap(
        "[method]input-stream.blocking-read",
        |mut store: StoreContextMut<'_, State>,
         (stream, len): (Resource<DynInputStream>, u64)|
         -> wasmtime::Result<(Io<Vec<u8>>,)> {
            moved(store.data_mut(), Phase::Fetch, |table| {
                streams::HostInputStream::blocking_read(table, stream, len)
            })
        },
    )?;
    io.func_wrap(
        "[method]input-stream.blocking-skip",
        |mut store: StoreContextMut<'_, State>,
         (stream, len): (Resource<DynInputStream>, u64)|
         -> wasmtime::Result<(Io<u64>,)> {
            moved(store.data_mut(), Phase::Fetch, |table| {
                streams::HostInputStream::blocking_skip(table, stream, len)
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-write-and-flush",
        |mut store: StoreContextMut<'_, State>,
         (stream, bytes): (Resource<DynOutputStream>, Vec<u8>)|
         -> wasmtime::Result<(Io<()>,)> {
            moved(store.data_mut(), Phase::Flush, |table| {
                streams::HostOutputStream::blocking_write_and_flush(table, stream, bytes)
            })
        },
    )?;
    io.func_wrap(
        "[method]output-stream.blocking-flush",
        |mut store: StoreContextMut<'_, State>,
         (stream,): (Resource<DynOutputStream>,)|
         -> wasmtime::Result<(Io<()>,)> {
            moved(store.data_mut(), Phase::Flush, |table| {
                streams::HostOutputStream::blocking_flush(table, stream)
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Runs a call that may wait; cancelled or stalled, the guest ends here.
fn wait<T>(
    state: &mut State,
    phase: Phase,
    call: impl FnOnce(&mut ResourceTable) -> T,
) -> wasmtime::Result<T> {
    state.check_cancelled()?;
    if state.waits_for.is_none() {
        state.waits_for.clone_from(&state.http.requests.peer);
    }
    let clock = state.sandbox.clock.clone();
    let result = clock.outside(phase, || call(&mut state.table));
    if state.http.has_moved() {
        state.progress();
    }
    state.check_cancelled()?;
    Ok(result)
}

fn moved<T>(
    state: &mut State,
    phase: Phase,
    call: impl FnOnce(&mut ResourceTable) -> StreamResult<T>,
) -> wasmtime::Result<(Io<T>,)> {
    match wait(state, phase, call)? {
        Ok(value) => Ok((Ok(value),)),
        Err(error) => {
            let error = streams::Host::convert_stream_error(&mut state.table, error)?;
            Ok((Err(error),))
        }
    }
}

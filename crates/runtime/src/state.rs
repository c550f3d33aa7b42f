//! The data of one instance's store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use wasmtime::component::ResourceTable;
use wasmtime::{StoreContextMut, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::bindings::types::{Error, ErrorKind};
use crate::host::apart::Apart;
use crate::host::http::Http;
use crate::host::log::LogSink;
use crate::host::wasi::Stderr;
use crate::limits::MemoryLimiter;
use crate::{Cancel, Clock, Grants, Limits, MemoryBudget, Registration};

/// The grants and limits of an instance, and the receivers of its messages.
#[derive(Clone)]
pub struct Sandbox {
    /// The files, servers and variables that it may reach.
    pub grants: Arc<Grants>,
    /// The memory it shares with other instances.
    pub memory: Arc<MemoryBudget>,
    /// Its other limits.
    pub limits: Limits,
    /// The stage's clock.
    pub clock: Clock,
    /// The token that stops it.
    pub cancel: Cancel,
    /// Where its messages go.
    pub log: LogSink,
    /// Takes secrets out of a text, before it is cut or its lines are joined.
    pub redact: Redact,
    /// The stream it works on, for messages.
    pub stream: Option<String>,
}

/// Gives a text without the secrets that are known so far.
pub type Redact = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Where no secret is known.
pub fn no_secrets() -> Redact {
    Arc::new(str::to_owned)
}

/// How often the epoch moves on: the longest a busy guest runs after it was cancelled.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Ends the guest because the run was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("cancelled")]
pub(crate) struct Cancelled;

/// Ends the guest because nothing has moved for too long.
#[derive(Debug, thiserror::Error)]
#[error("stalled")]
pub(crate) struct Stalled;

/// Ends the guest because it ran without progress.
#[derive(Debug, thiserror::Error)]
#[error("no progress")]
pub(crate) struct Busy;

/// An instance is used for another stream if it holds no more than this part of a stream's memory:
/// what the streams before it needed is not to be missing for the next one.
const REUSED_SHARE: usize = 8;

pub(crate) struct State {
    pub connector: String,
    pub sandbox: Sandbox,
    pub memory: MemoryLimiter,
    pub table: ResourceTable,
    pub wasi: WasiCtx,
    pub stderr: Stderr,
    pub log_lines: u32,
    pub log_bytes: usize,
    /// Connections that are open or being opened.
    pub connections: Arc<AtomicU32>,
    pub files: u32,
    /// Where its file calls run.
    pub apart: Apart,
    /// Bytes that the host holds for it, as [`State::hold`] counts them.
    held_bytes: usize,
    pub http: Http,
    /// Epoch ticks seen in guest code since the last progress.
    busy_ticks: u32,
    /// When something moved last.
    moved: Instant,
    /// The file, server or pause that it waited for last, for messages.
    pub waits_for: Option<String>,
    /// When its last call has to be over.
    ends_at: Option<Instant>,
    /// Wakes a guest that sleeps.
    pub wake: Arc<Notify>,
    _wake_on_cancel: Registration,
    /// Stops it with the stage that it was handed over to.
    _stopped_with: Option<Registration>,
}

impl State {
    pub fn new(connector: String, sandbox: Sandbox) -> Self {
        let stderr = Stderr::default();
        let connections = Arc::default();
        let table = table(sandbox.limits.handles);
        let wake = Arc::new(Notify::new());
        let woken = Arc::clone(&wake);
        Self {
            http: Http::new(&connector, &sandbox, Arc::clone(&connections)),
            connector,
            memory: MemoryLimiter::new(Arc::clone(&sandbox.memory)),
            table,
            wasi: crate::host::wasi::context(&stderr, &sandbox.grants),
            stderr,
            log_lines: 0,
            log_bytes: 0,
            connections,
            files: 0,
            apart: Apart::default(),
            held_bytes: 0,
            busy_ticks: 0,
            moved: Instant::now(),
            waits_for: None,
            ends_at: None,
            wake,
            _wake_on_cancel: sandbox.cancel.on_cancel(move || woken.notify_one()),
            _stopped_with: None,
            sandbox,
        }
    }

    /// Moves the instance to another stage. Its connections keep the token that they were made with, so
    /// this token is cancelled with the stage's. Returns false, and changes nothing, if the stage's share
    /// of memory is too small for the memory that the instance holds.
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        if !self.memory.move_to(&sandbox.memory) {
            return false;
        }
        let cancel = self.sandbox.cancel.clone();
        let stopped = cancel.clone();
        self._stopped_with = Some(sandbox.cancel.on_cancel(move || stopped.cancel()));
        self.sandbox = Sandbox { cancel, ..sandbox };
        (self.log_lines, self.log_bytes) = (0, 0);
        true
    }

    /// True while the instance leaves most of a stream's memory to the other one and to itself.
    pub fn is_small(&self) -> bool {
        self.memory.held_bytes() <= self.memory.budget_bytes() / REUSED_SHARE
    }

    /// Something moved: the guest is not busy for nothing.
    pub fn progress(&mut self) {
        self.busy_ticks = 0;
        self.moved = Instant::now();
        self.waits_for = None;
    }

    /// Time until nothing may be waited for any more.
    pub fn patience(&self) -> Duration {
        let stall = self.sandbox.limits.stall;
        let left = stall.saturating_sub(self.moved.elapsed());
        match self.ends_at {
            None => left,
            Some(end) => left.min(end.saturating_duration_since(Instant::now())),
        }
    }

    /// Limits the time of the instance's next call, which is its last one.
    pub fn ends_after(&mut self, time: Duration) {
        self.ends_at = Some(Instant::now() + time);
    }

    /// Bytes that the host may still hold for it.
    pub fn host_room(&self) -> usize {
        let limit = self.sandbox.limits.host_bytes;
        limit.saturating_sub(self.held_bytes)
    }

    /// Counts bytes that the host is about to hold for it.
    ///
    /// # Errors
    /// `host_memory_limit` where they are too many.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.host_room() {
            self.held_bytes += bytes;
            return Ok(());
        }
        let limit = self.sandbox.limits.host_bytes;
        let text =
            format!("the host would use more than {limit} bytes for its connections and files");
        Err(Error::new(ErrorKind::Internal, "host_memory_limit", text)
            .hint("if this is normal here, raise permissions: { limits: { host_memory: … } }"))
    }

    /// Gives back what [`State::hold`] counted.
    pub fn release(&mut self, bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
    }

    /// To be asked before a host call waits, and after.
    pub fn check_cancelled(&self) -> wasmtime::Result<()> {
        if self.sandbox.cancel.is_cancelled() {
            Err(Cancelled.into())
        } else if self.patience().is_zero() {
            Err(Stalled.into())
        } else {
            Ok(())
        }
    }

    pub fn memory_refused(&self) -> bool {
        self.memory.refused.load(Ordering::Relaxed)
    }
}

impl Drop for State {
    /// Files that are left over are removed where that cannot hold up the host for long.
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.table);
        self.apart.clean_up(left, self.sandbox.limits.abort);
    }
}

fn table(handles: usize) -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(handles);
    table
}

/// Called in guest code at each epoch tick; time blocked in the host is one tick at most.
pub(crate) fn on_epoch(mut store: StoreContextMut<'_, State>) -> wasmtime::Result<UpdateDeadline> {
    let state = store.data_mut();
    state.check_cancelled()?;
    state.busy_ticks += 1;
    if EPOCH_TICK * state.busy_ticks > state.sandbox.limits.busy {
        return Err(Busy.into());
    }
    Ok(UpdateDeadline::Continue(1))
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

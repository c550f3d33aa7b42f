//! The progress of a run, for display.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Counts of all streams of a run, updated by the stages while they work.
#[derive(Debug, Default)]
pub struct Progress {
    /// In the plan's order.
    pub streams: Vec<StreamProgress>,
}

/// Counts of one stream.
#[derive(Debug, Default)]
pub struct StreamProgress {
    /// The stream.
    pub name: String,
    /// The source's estimate, for a percentage.
    pub estimated_rows: Option<u64>,
    rows: AtomicU64,
    bytes: AtomicU64,
    state: AtomicU8,
    source_waits: AtomicBool,
    destination_waits: AtomicBool,
}

/// The state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamState {
    /// Its turn has not come.
    Waiting,
    /// Rows are moving.
    Running,
    /// Committed.
    Done,
    /// Failed or cancelled.
    Failed,
}

impl StreamProgress {
    /// A stream that waits.
    pub fn new(name: &str, estimated_rows: Option<u64>) -> Self {
        Self {
            name: name.into(),
            estimated_rows,
            ..Self::default()
        }
    }

    /// Rows that the destination has taken.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Bytes of Arrow data that the destination has taken.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Its state.
    pub fn state(&self) -> StreamState {
        match self.state.load(Ordering::Relaxed) {
            0 => StreamState::Waiting,
            1 => StreamState::Running,
            2 => StreamState::Done,
            _ => StreamState::Failed,
        }
    }

    /// At this moment the source waits for the destination to take a batch.
    pub fn source_waits(&self) -> bool {
        self.source_waits.load(Ordering::Relaxed)
    }

    /// At this moment the destination waits for a batch of the source.
    pub fn destination_waits(&self) -> bool {
        self.destination_waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_source_waits(&self, waits: bool) {
        self.source_waits.store(waits, Ordering::Relaxed);
    }

    pub(crate) fn set_destination_waits(&self, waits: bool) {
        self.destination_waits.store(waits, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An attempt failed: only what is committed counts.
    pub(crate) fn reset(&self, rows: u64, bytes: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_state(&self, state: StreamState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }
}

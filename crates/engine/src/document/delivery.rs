//! `checkpoint`, `retry` and their kin: when rows become visible, and what a failure means.

use serde::Serialize;

use super::declare::{keys, words};
use super::error::Result;
use super::kinds::{MIB, size, whole};
use super::read::Spot;

const MAX_CHECKPOINT: u64 = 1 << 40;
const MAX_SECONDS: u64 = 86_400;
const MAX_BACKOFF: u64 = 3_600;
const MAX_ATTEMPTS: u64 = 100;

keys! {
    /// `checkpoint`: when an incremental stream commits the rows so far, with the cursor to resume
    /// from. The first limit that is reached counts, at the next place from which the source can
    /// resume.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct Checkpoint: Default {
        /// Commit after this many bytes of Arrow data, at least 1mb (default 1gb).
        ///
        /// At most 1024gb.
        pub every_bytes: u64 = size(MIB, MAX_CHECKPOINT).or(1 << 30),
        /// Commit after this many rows (default: no limit).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub every_rows: Option<u64> = whole(u64::MAX).optional(),
        /// Commit after this many seconds (default 60).
        pub every_seconds: u64 = whole(MAX_SECONDS).or(60),
    }
}

keys! {
    /// `retry`: what a run does when a stream fails with a transient error, such as a broken connection.
    /// The stream resumes from the last commit of the destination.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub struct Retry: Default {
        /// Plan a run, and try a stream, at most this many times (default 4).
        ///
        /// A commit counts anew.
        pub max_attempts: u32 = whole(MAX_ATTEMPTS).or(4),
        /// Wait this many seconds before the second attempt, then twice as long each time (default
        /// 1).
        ///
        /// Each pause has a random part.
        pub backoff_seconds: u64 = whole(MAX_BACKOFF).or(1),
        /// Wait at most this many seconds (default 30).
        ///
        /// If `backoff_seconds` is more, that is the default.
        pub max_backoff_seconds: u64 = whole(MAX_SECONDS).or(30),
    }
}

/// Raises the longest pause to the first pause, unless the file sets it.
pub(super) fn longest_pause(at: &Spot<'_>, mut retry: Retry) -> Result<Retry> {
    if at.key("max_backoff_seconds").is_none() {
        retry.max_backoff_seconds = retry.max_backoff_seconds.max(retry.backoff_seconds);
    }
    Ok(retry)
}

words! {
    /// `on_stream_failure`: what a failed stream means for the other streams of the run.
    pub enum OnStreamFailure {
        /// The run tries every other stream, then fails with the list of failures.
        #[default]
        Continue = "continue",
        /// The run stops all other streams.
        Stop = "stop",
    }
}

words! {
    /// `when_running`: what a run does while another run of the pipeline is at work.
    pub enum WhenRunning {
        /// It fails at once with `already_running`.
        #[default]
        Refuse = "refuse",
        /// It waits until the other run has ended.
        Wait = "wait",
        /// It fences the other run, which then fails with `run_superseded`.
        Replace = "replace",
    }
}

words! {
    /// `verify`: whether a run compares its targets with its source.
    pub enum Verify {
        /// It does not.
        #[default]
        Off = "off",
        /// At its end, as of the snapshot that it read.
        AfterRun = "after_run",
    }
}

//! Events of a plan or a run, for whoever watches it.

use std::sync::Arc;
use std::time::Duration;

use rapidbyte_runtime::Level;

use crate::failure::Failure;
use crate::progress::Progress;

/// Something that happened, without the secrets of the pipeline that are known by then. Names of streams are as they
/// are.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A connector has a message, or the engine, which is called `rapidbyte`.
    Log {
        /// The name of the connector, or `rapidbyte`.
        from: &'a str,
        /// The stream that it worked on.
        stream: Option<&'a str>,
        /// How much it matters.
        level: Level,
        /// The message.
        message: &'a str,
    },
    /// A run begins to move rows.
    Started {
        /// As in the history.
        run_id: &'a str,
        /// An earlier attempt of this run did not finish.
        resumes: bool,
        /// Counts that the run keeps up to date while it works.
        progress: &'a Arc<Progress>,
    },
    /// A stream begins to move.
    StreamStarted {
        /// The stream.
        stream: &'a str,
    },
    /// Rows of a stream are committed: they stay whatever happens next.
    Committed {
        /// The stream.
        stream: &'a str,
        /// Rows of this commit.
        rows: u64,
        /// Bytes of Arrow data of these rows.
        bytes: u64,
        /// The cursor that was committed with them. `None` for a full refresh.
        cursor: Option<&'a str>,
    },
    /// The destination has changed the columns of a stream's target, before it writes rows. The change stays whatever
    /// happens next.
    SchemaChanged {
        /// The stream.
        stream: &'a str,
        /// The statements that changed the target. A [`Event::Log`] tells each, too.
        statements: &'a [String],
    },
    /// A transient failure: the work is retried after a pause.
    Retrying {
        /// The stream. `None` while the run is planned.
        stream: Option<&'a str>,
        /// Why.
        failure: &'a Failure,
        /// The number of the attempt that follows, from 2.
        attempt: u32,
        /// The wait before it.
        pause: Duration,
        /// All of it in a sentence.
        message: &'a str,
    },
    /// A stream failed, and the others continue.
    StreamFailed {
        /// The stream.
        stream: &'a str,
        /// Why.
        failure: &'a Failure,
    },
    /// A stream is complete.
    StreamDone {
        /// The stream.
        stream: &'a str,
    },
}

/// A receiver of events. Many threads call it, and each waits until it returns.
pub type EventSink = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// The engine's name in [`Event::Log`].
pub const ENGINE: &str = "rapidbyte";

/// An event as a line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The name of the connector, or `rapidbyte`.
    pub from: String,
    /// The stream.
    pub stream: Option<String>,
    /// How much it matters.
    pub level: Level,
    /// The message. A connector's message may have several lines.
    pub message: String,
}

impl Event<'_> {
    /// The event for a log. `None` for one that only programs need.
    pub fn line(&self) -> Option<Line> {
        let (from, stream, level, message) = match *self {
            Self::Log {
                from,
                stream,
                level,
                message,
            } => (from, stream, level, message.to_owned()),
            Self::Started {
                run_id, resumes, ..
            } => {
                if !resumes {
                    return None;
                }
                let text = format!("resumes the run {run_id}, which did not finish");
                (ENGINE, None, Level::Info, text)
            }
            Self::StreamStarted { stream } => {
                (ENGINE, Some(stream), Level::Debug, "started".to_owned())
            }
            Self::Committed { stream, rows, .. } => {
                let text = format!("committed {}", rapidbyte_wire::counted(rows, "row"));
                (ENGINE, Some(stream), Level::Debug, text)
            }
            Self::SchemaChanged { .. } => return None,
            Self::Retrying {
                stream, message, ..
            } => (ENGINE, stream, Level::Warn, message.to_owned()),
            // The list of failures comes at the end of the run, which may be hours away.
            Self::StreamFailed { stream, failure } => {
                let text = format!("failed with {}; the other streams continue", failure.code);
                (ENGINE, Some(stream), Level::Warn, text)
            }
            Self::StreamDone { stream } => {
                (ENGINE, Some(stream), Level::Debug, "committed".to_owned())
            }
        };
        Some(Line {
            from: from.to_owned(),
            stream: stream.map(str::to_owned),
            level,
            message,
        })
    }
}

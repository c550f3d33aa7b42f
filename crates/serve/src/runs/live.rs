//! What a run tells while it works: its progress, and its last lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rapidbyte::{Event, Level, Pipeline, Progress, StreamState};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Lines that are kept of a run.
const MAX_LINES: usize = 1000;
/// Bytes of their messages.
const MAX_BYTES: usize = 1 << 20;
/// Bytes of a message; the rest is cut off.
const MAX_MESSAGE: usize = 8 << 10;

/// Lines of a run that stay when it has ended.
const MAX_LAST: usize = 200;
/// Bytes of their messages.
const MAX_LAST_BYTES: usize = 64 << 10;

/// A line of the log of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LogLine {
    /// The connector, or `rapidbyte`.
    pub from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    pub level: &'static str,
    pub message: String,
}

/// One run at work.
pub(super) struct Live {
    lines: Mutex<Lines>,
    progress: OnceLock<Arc<Progress>>,
    /// The number of lines so far.
    told: watch::Sender<u64>,
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<LogLine>,
    bytes: usize,
    /// The number of the first kept line: those before it were dropped.
    first: u64,
}

/// Lines that a reader has not seen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unseen {
    /// Lines that were dropped before the reader came for them.
    pub lost: u64,
    pub lines: Vec<LogLine>,
    /// The number of the line behind them.
    pub next: u64,
}

impl Live {
    pub(super) fn new() -> Self {
        Self {
            lines: Mutex::default(),
            progress: OnceLock::new(),
            told: watch::Sender::new(0),
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event of the engine, without the secrets of the pipeline. Never waits for a reader.
    pub(super) fn take(&self, event: &Event<'_>, pipeline: &Pipeline) {
        if let Some(line) = event.line() {
            self.push(LogLine {
                from: line.from,
                stream: line.stream,
                level: level(line.level),
                message: pipeline.redact(&line.message),
            });
        }
    }

    pub(super) fn push(&self, mut line: LogLine) {
        if line.message.len() > MAX_MESSAGE {
            let end = line.message.floor_char_boundary(MAX_MESSAGE);
            line.message.truncate(end);
            line.message.push('…');
        }
        let mut lines = self.lines();
        lines.bytes += line.message.len();
        lines.kept.push_back(line);
        while lines.kept.len() > MAX_LINES || lines.bytes > MAX_BYTES {
            let dropped = lines.kept.pop_front();
            lines.bytes -= dropped.map_or(0, |line| line.message.len());
            lines.first += 1;
        }
        let next = lines.first + lines.kept.len() as u64;
        drop(lines);
        self.told.send_replace(next);
    }

    /// The lines from `from` on, at most a number of them.
    pub(super) fn unseen(&self, from: u64, most: usize) -> Unseen {
        let lines = self.lines();
        let end = lines.first + lines.kept.len() as u64;
        // A reader of an earlier run may come with any number.
        let from = from.min(end);
        let skipped = from.saturating_sub(lines.first);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let taken: Vec<LogLine> = lines
            .kept
            .iter()
            .skip(skipped)
            .take(most)
            .cloned()
            .collect();
        let lost = lines.first.saturating_sub(from);
        Unseen {
            next: from + lost + taken.len() as u64,
            lost,
            lines: taken,
        }
    }

    /// The last lines as JSON, within the limits of lines that stay. `None` without lines.
    pub(super) fn last(&self) -> Option<Value> {
        let lines = self.lines();
        let mut bytes = 0;
        let newest = lines.kept.iter().rev().take(MAX_LAST);
        let newest = newest.take_while(|line| {
            bytes += line.message.len();
            bytes <= MAX_LAST_BYTES
        });
        let mut last: Vec<&LogLine> = newest.collect();
        last.reverse();
        (!last.is_empty()).then(|| json!(last))
    }

    /// Changes with each line.
    pub(super) fn told(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }

    /// The counts of each stream. `None` while the run is planned.
    pub(super) fn progress(&self) -> Option<Value> {
        let progress = self.progress.get()?;
        let streams: Vec<Value> = progress.streams.iter().map(shown).collect();
        let rows: u64 = progress.streams.iter().map(|stream| stream.rows()).sum();
        let bytes: u64 = progress.streams.iter().map(|stream| stream.bytes()).sum();
        Some(json!({ "rows": rows, "bytes": bytes, "streams": streams }))
    }

    /// Sets the counts of a run that is planned.
    pub(super) fn set_progress(&self, progress: Arc<Progress>) {
        // A run is planned once.
        let _ = self.progress.set(progress);
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
    }
}

fn shown(stream: &rapidbyte::StreamProgress) -> Value {
    let state = match stream.state() {
        StreamState::Waiting => "waiting",
        StreamState::Running => "running",
        StreamState::Done => "done",
        StreamState::Failed => "failed",
    };
    json!({
        "name": stream.name, "state": state, "rows": stream.rows(), "bytes": stream.bytes(),
        "estimated_rows": stream.estimated_rows,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rapidbyte::Environment;

    use super::*;

    fn line(message: String) -> LogLine {
        LogLine {
            from: "source-file".into(),
            stream: None,
            level: "info",
            message,
        }
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_lines_and_learns_how_many() {
        let live = Live::new();
        (0..MAX_LINES + 10).for_each(|number| live.push(line(number.to_string())));
        let unseen = live.unseen(3, 2);
        assert_eq!((unseen.lost, unseen.next), (7, 12));
        let texts: Vec<&str> = unseen.lines.iter().map(|line| &*line.message).collect();
        assert_eq!(texts, ["10", "11"]);
        let rest = live.unseen(unseen.next, usize::MAX);
        assert_eq!(
            (rest.lost, rest.next, rest.lines.len()),
            (0, 1010, MAX_LINES - 2)
        );
        let none = live.unseen(7_000, 10);
        assert_eq!(
            none,
            Unseen {
                lost: 0,
                lines: vec![],
                next: 1010
            }
        );
    }

    #[test]
    fn the_last_lines_stay_within_their_limits() {
        let live = Live::new();
        assert_eq!(live.last(), None);
        (0..=MAX_LAST).for_each(|number| live.push(line(number.to_string())));
        let last = live.last().expect("lines");
        let last = last.as_array().expect("a list");
        let message = |at: usize| last[at]["message"].as_str().expect("a text");
        assert_eq!(
            (last.len(), message(0), message(MAX_LAST - 1)),
            (MAX_LAST, "1", "200")
        );
        (0..MAX_LAST).for_each(|_| live.push(line("a".repeat(MAX_MESSAGE))));
        let last = live.last().expect("lines");
        let lines = last.as_array().map(Vec::len);
        assert_eq!(lines, Some(MAX_LAST_BYTES / MAX_MESSAGE));
    }

    #[test]
    fn long_messages_are_cut_and_many_of_them_do_not_fill_the_memory() {
        let live = Live::new();
        (0..MAX_LINES).for_each(|_| live.push(line("ä".repeat(MAX_MESSAGE))));
        let lines = live.lines();
        assert!(lines.bytes <= MAX_BYTES, "{}", lines.bytes);
        assert_eq!(
            lines.bytes,
            lines
                .kept
                .iter()
                .map(|line| line.message.len())
                .sum::<usize>()
        );
        assert_eq!(lines.kept[0].message.len(), MAX_MESSAGE + '…'.len_utf8());
    }

    #[test]
    fn a_message_of_the_engine_has_no_secret_of_the_pipeline() {
        let environment = Environment::from_fn(|_| None).without_env_file();
        let text = format!(
            "{}notify: {{ failure: \"https://a/b\", secret: 0123456789abcdef }}\n",
            rapidbyte::EXAMPLE
        );
        let pipeline = Pipeline::from_str(&text, Path::new("."), &environment);
        let event = Event::Log {
            from: "rapidbyte",
            stream: None,
            level: Level::Warn,
            message: "cannot open 0123456789abcdef.csv",
        };
        let live = Live::new();
        live.take(&event, &pipeline.expect("a pipeline"));
        let unseen = live.unseen(0, 1);
        assert_eq!(unseen.lines[0].message, "cannot open ***.csv");
    }
}

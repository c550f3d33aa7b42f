//! Shows how far a run is: a line for each stream on a terminal, plain lines elsewhere.

mod line;

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rapidbyte::{Progress, StreamProgress, StreamState};

use crate::output::{Output, one_line};
use line::Limit;
pub use line::Seen;

/// The interval of redraws on a terminal, and of samples.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Lines elsewhere: a log should not fill up.
pub const LINE_EVERY: Duration = Duration::from_secs(30);
/// Lines at a time on a terminal; further running streams are only counted at the end.
const MAX_LINES: usize = 16;
/// How far back the rate and the limiting stage look: 5 s of samples.
const SAMPLES: usize = 50;
/// Columns that stay free at the end of a line: some terminals break the line at the last one, and
/// the `^C` that they show must not break it either, or a line is left behind.
const FREE_COLUMNS: usize = 3;
/// Columns and lines of a terminal that does not say how many it has.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

/// The characters of a line on the terminal, and the lines at a time.
pub fn size(output: &Output) -> (usize, usize) {
    let size = match output.live {
        true => console::Term::stderr().size_checked(),
        false => None,
    };
    let (height, width) = size.map_or((HEIGHT, WIDTH), |(h, w)| (h.into(), w.into()));
    let most = MAX_LINES.min(height.saturating_sub(1));
    (width.saturating_sub(FREE_COLUMNS), most)
}

/// Watches until dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to show `progress`.
    pub fn start(progress: Arc<Progress>, output: &Output) -> Self {
        if output.quiet {
            return Self {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = bounded::<()>(0);
        let output = output.clone();
        let watch = move || {
            let mut view = View::new(progress, output);
            while stopped.recv_timeout(DRAW_EVERY) == Err(RecvTimeoutError::Timeout) {
                view.look();
            }
            view.clear();
        };
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(watch)
            .ok();
        Self {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A view that panicked has shown what it could.
            let _ = thread.join();
        }
    }
}

struct View {
    progress: Arc<Progress>,
    output: Output,
    streams: Vec<Option<Running>>,
    start: Instant,
    /// When plain lines were written last.
    told: Instant,
}

impl View {
    fn new(progress: Arc<Progress>, output: Output) -> Self {
        let streams = progress.streams.iter().map(|_| None).collect();
        let start = Instant::now();
        Self {
            progress,
            output,
            streams,
            start,
            told: start,
        }
    }

    /// Whether it is time for plain lines again.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now - self.told >= LINE_EVERY;
        if is_due {
            self.told = now;
        }
        is_due
    }

    /// Takes a sample of every running stream, and shows what is due.
    fn look(&mut self) {
        let now = Instant::now();
        let is_due = self.is_due(now);
        let (width, most) = size(&self.output);
        let longest = self.progress.streams.iter();
        let longest = longest.map(|s| console::measure_text_width(&one_line(&s.name)));
        let longest = longest.max().unwrap_or_default();
        let mut lines = Vec::new();
        for (stream, running) in self.progress.streams.iter().zip(&mut self.streams) {
            if stream.state() != StreamState::Running {
                *running = None;
                continue;
            }
            let running = running.get_or_insert_with(|| Running::new(now));
            let seen = Seen {
                name_columns: longest,
                ..running.sample(stream, now)
            };
            if self.output.live {
                if lines.len() < most {
                    lines.push(seen.line(width));
                }
            } else if is_due {
                let secs = self.start.elapsed().as_secs_f64();
                self.output.info(&seen.sentence(), seen.document(secs));
            }
        }
        if self.output.live {
            self.output.draw(lines);
        }
    }

    /// The result follows where the lines were.
    fn clear(&self) {
        if self.output.live {
            self.output.draw(Vec::new());
        }
    }
}

/// The recent samples of a running stream.
struct Running {
    start: Instant,
    samples: VecDeque<Sample>,
}

struct Sample {
    at: Instant,
    rows: u64,
    source_waits: bool,
    destination_waits: bool,
}

impl Running {
    fn new(now: Instant) -> Self {
        Self {
            start: now,
            samples: VecDeque::with_capacity(SAMPLES),
        }
    }

    fn sample(&mut self, stream: &StreamProgress, now: Instant) -> Seen {
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        let rows = stream.rows();
        self.samples.push_back(Sample {
            at: now,
            rows,
            source_waits: stream.source_waits(),
            destination_waits: stream.destination_waits(),
        });
        Seen {
            name: one_line(&stream.name),
            name_columns: 0,
            rows,
            bytes: stream.bytes(),
            estimated_rows: stream.estimated_rows.filter(|rows| *rows > 0),
            rows_per_sec: self.rate(rows, now),
            limit: self.limit(),
        }
    }

    /// Rows a second, of the samples that are kept.
    fn rate(&self, rows: u64, now: Instant) -> f64 {
        let (at, before) = match self.samples.front() {
            Some(first) if self.samples.len() == SAMPLES => (first.at, first.rows),
            _ => (self.start, 0),
        };
        let secs = (now - at).max(DRAW_EVERY).as_secs_f64();
        rows.saturating_sub(before) as f64 / secs
    }

    /// The stage that the other one has waited for in more than half of the samples.
    fn limit(&self) -> Option<Limit> {
        let half = self.samples.len() / 2;
        let waits = |of: fn(&Sample) -> bool| self.samples.iter().filter(|s| of(s)).count();
        if waits(|sample| sample.destination_waits) > half {
            Some(Limit::Source)
        } else if waits(|sample| sample.source_waits) > half {
            Some(Limit::Destination)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_that_is_waited_for_is_the_limit() {
        let now = Instant::now();
        let mut running = Running::new(now);
        let sample = |source_waits, destination_waits| Sample {
            at: now,
            rows: 0,
            source_waits,
            destination_waits,
        };
        assert_eq!(running.limit(), None);
        running.samples.extend((0..6).map(|_| sample(false, true)));
        assert_eq!(running.limit(), Some(Limit::Source));
        running.samples.extend((0..6).map(|_| sample(false, false)));
        assert_eq!(running.limit(), None);
        running.samples.extend((0..20).map(|_| sample(true, false)));
        assert_eq!(running.limit(), Some(Limit::Destination));
    }

    #[test]
    fn a_log_gets_its_lines_every_thirty_seconds() {
        let arguments =
            <crate::args::Arguments as clap::Parser>::parse_from(["rapidbyte", "version"]);
        let mut view = View::new(Arc::default(), Output::new(&arguments.common));
        let start = view.told;
        let due: Vec<u64> = (1..=90)
            .filter(|secs| view.is_due(start + Duration::from_secs(*secs)))
            .collect();
        assert_eq!(due, [30, 60, 90]);
    }

    #[test]
    fn the_rate_forgets_what_is_long_ago() {
        let start = Instant::now();
        let mut running = Running::new(start);
        for n in 0..SAMPLES as u32 {
            running.samples.push_back(Sample {
                at: start + DRAW_EVERY * (100 + n),
                rows: 1000,
                source_waits: false,
                destination_waits: false,
            });
        }
        let now = start + DRAW_EVERY * 150;
        assert!((running.rate(1000, now)).abs() < 1e-9);
        assert!((running.rate(1500, now) - 100.0).abs() < 1e-6);
    }
}

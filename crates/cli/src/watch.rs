//! Shows how far a run is: bars on a terminal, plain lines elsewhere.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rapidbyte_engine::{Progress, StreamState};
use serde_json::json;

use crate::output::{Output, bytes, count, rate};

/// Redraws on a terminal.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Lines elsewhere: a log should not fill up.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Bars at a time; further running streams are only counted at the end.
const MAX_BARS: usize = 16;

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
        let every = if output.live { DRAW_EVERY } else { LINE_EVERY };
        let watch = move || {
            let mut view = View::new(progress, output);
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                view.draw();
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
    all: MultiProgress,
    bars: Vec<Option<(ProgressBar, Instant)>>,
    start: Instant,
}

impl View {
    fn new(progress: Arc<Progress>, output: Output) -> Self {
        let bars = progress.streams.iter().map(|_| None).collect();
        Self {
            progress,
            output,
            all: MultiProgress::new(),
            bars,
            start: Instant::now(),
        }
    }

    fn draw(&mut self) {
        let live = self.output.live;
        let mut shown = self.bars.iter().flatten().count();
        for (stream, bar) in self.progress.streams.iter().zip(&mut self.bars) {
            if stream.state() != StreamState::Running {
                if let Some((bar, _)) = bar.take() {
                    bar.finish_and_clear();
                    shown -= 1;
                }
                continue;
            }
            if !live {
                let secs = self.start.elapsed().as_secs_f64();
                let (rows, size) = (stream.rows(), stream.bytes());
                let text = format!("{}: {} rows, {}", stream.name, count(rows), bytes(size));
                let fields =
                    json!({ "stream": stream.name, "rows": rows, "bytes": size, "secs": secs });
                self.output.info(&text, fields);
                continue;
            }
            if bar.is_none() {
                if shown >= MAX_BARS {
                    continue;
                }
                shown += 1;
                *bar = Some((self.all.add(new_bar(stream.estimated_rows)), Instant::now()));
            }
            if let Some((bar, since)) = bar {
                let rows = stream.rows();
                let rate = rate(rows, since.elapsed().max(DRAW_EVERY).as_secs_f64());
                bar.set_position(rows);
                bar.set_message(format!(
                    "{}  {} rows  {}  {rate}",
                    stream.name,
                    count(rows),
                    bytes(stream.bytes())
                ));
                bar.tick();
            }
        }
    }

    fn clear(&mut self) {
        for (bar, _) in self.bars.iter_mut().filter_map(Option::take) {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(estimated_rows: Option<u64>) -> ProgressBar {
    let (bar, template) = match estimated_rows.filter(|rows| *rows > 0) {
        Some(rows) => (ProgressBar::new(rows), "{bar:24} {percent:>3}%  {wide_msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {wide_msg}"),
    };
    let style = ProgressStyle::with_template(template);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

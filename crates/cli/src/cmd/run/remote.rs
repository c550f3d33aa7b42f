//! `rapidbyte run NAME --server URL`: the server runs its pipeline, and this command shows the run.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use rapidbyte::Failure;
use rapidbyte_serve::{Client, ClientError, Counts, Options, RunEvent};
use serde_json::{Map, Value, json};

use super::summary;
use crate::args::{Common, Run as Arguments};
use crate::output::{Output, one_line, rows};
use crate::server;
use crate::setup;
use crate::watch::{self, Seen};

/// The code of a run during which the server ended.
const INTERRUPTED: &str = "interrupted";
/// The newest runs among which the one is that resumes an interrupted run. The server records it at its start.
const NEWEST: u32 = 100;
/// Attempts to cancel the run after a signal.
const MAX_CANCELS: u32 = 30;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(
    arguments: &Arguments,
    common: &Common,
    client: &Client,
    output: &Output,
) -> Result<(), Failure> {
    let narrow = &arguments.narrow;
    server::refuse(
        &[
            ("--exclude", !narrow.exclude.is_empty()),
            ("--limit", narrow.limit.is_some()),
            ("--dry-run", arguments.dry_run),
            ("--plan", arguments.plan.is_some()),
            ("--fail-fast", arguments.fail_fast),
            ("--state", arguments.history.state.is_some()),
            ("--report", arguments.report.is_some()),
        ],
        common,
    )?;
    let name = server::name(&arguments.pipeline)?;
    let options = Options {
        select: narrow.select.clone(),
        full_refresh: arguments.full_refresh,
    };
    let cancel = setup::cancel()?;
    let begun = client.begin(name, &options).map_err(server::failure)?;
    let Some(id) = begun["id"].as_i64() else {
        let text = "the run has no id".to_owned();
        let error = ClientError::Unexpected(client.url().to_owned(), text);
        return Err(server::failure(error));
    };
    output.follow(Arc::new(OnceLock::from(id.to_string())));
    let facts = json!({ "run": id, "url": client.url() });
    output.info(&format!("run {id} of {name} on {}", client.url()), facts);
    let mut view = View::new(output);
    let followed = std::thread::scope(|scope| {
        // A signal before this line is noticed here.
        let (signal, signalled) = bounded(1);
        let registered = cancel.on_cancel(move || {
            // One signal is enough.
            let _ = signal.try_send(());
        });
        scope.spawn(move || cancel_after(&signalled, client, id, output));
        let followed = client.follow(id, |event| view.show(event));
        drop(registered);
        followed
    });
    view.clear();
    let ended = followed.map_err(server::failure)?;
    let resumes = match ended["error"]["code"] == INTERRUPTED {
        true => resumed_by(client, name, id),
        false => None,
    };
    let hint = resumes.map(|resumes| {
        let url = client.url();
        format!("run {resumes} resumes it: rapidbyte runs {name} --server {url}")
    });
    finish(ended, hint, output)
}

/// The run that resumes an interrupted one, if the server answers and has one.
fn resumed_by(client: &Client, name: &str, id: i64) -> Option<i64> {
    let runs = client.runs(name, NEWEST).ok()?;
    let resumes = |run: &&Value| run["resumes"].as_i64() == Some(id);
    runs.iter().find(resumes)?["id"].as_i64()
}

/// Cancels the run after a signal. Ends when nobody can send one any more.
fn cancel_after(signalled: &Receiver<()>, client: &Client, id: i64, output: &Output) {
    if signalled.recv().is_err() {
        return;
    }
    output.info(&format!("cancelling run {id}"), json!({ "run": id }));
    for attempt in 1..=MAX_CANCELS {
        match client.cancel(id) {
            Ok(()) => return,
            // It has ended by itself: its end is shown.
            Err(ClientError::Refused { code, .. }) if code == "run_ended" => return,
            Err(error) if !error.is_transient() || attempt == MAX_CANCELS => {
                output.warn(&format!("run {id} is not cancelled: {error}"));
                return;
            }
            Err(_) => sleep(PAUSE),
        }
    }
}

/// Shows the end of a run, as of a run on this machine. `hint` is better than the server's own.
fn finish(mut run: Value, hint: Option<String>, output: &Output) -> Result<(), Failure> {
    let report = run.get_mut("report").map(Value::take).unwrap_or_default();
    if let Some(run) = run.as_object_mut() {
        run.shift_remove("report");
    }
    for warning in report["warnings"].as_array().into_iter().flatten() {
        let text = |key: &str| warning[key].as_str().unwrap_or_default();
        output.warn(&format!("{}: {}", text("stream"), text("message")));
    }
    let mut known = match report.clone() {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    if run["state"] == "succeeded" {
        output.committed();
        known.insert("run".into(), run);
        output.document(&Value::Object(known));
        output.text(&summary::of_json(&report, output));
        return Ok(());
    }
    if let Some(text) = summary::partial_of_json(&report) {
        output.text(&text);
    }
    let mut failure = server::failure_of(&run["error"]);
    if let Some(hint) = hint {
        failure = failure.hint(hint);
    }
    known.shift_remove("status");
    known.insert("run".into(), run);
    output.known(Value::Object(known));
    Err(failure)
}

/// How far the run is: lines that are drawn over on a terminal, plain lines elsewhere.
struct View<'a> {
    output: &'a Output,
    start: Instant,
    told: Instant,
    /// The state of each stream, since when, and its rows at that moment.
    streams: HashMap<String, Option<(String, Instant, u64)>>,
    is_lost: bool,
}

impl<'a> View<'a> {
    fn new(output: &'a Output) -> Self {
        let now = Instant::now();
        Self {
            output,
            start: now,
            told: now,
            streams: HashMap::new(),
            is_lost: false,
        }
    }

    fn show(&mut self, event: RunEvent<'_>) {
        match event {
            RunEvent::Reconnects(error) => {
                // A server that restarts is told once.
                if !std::mem::replace(&mut self.is_lost, true) {
                    self.output
                        .warn(&format!("{error}; connecting again, and the run goes on"));
                }
                return;
            }
            RunEvent::Line(line) => self.output.connector_line(&line),
            RunEvent::Lost(lines) => self.output.warn(&format!(
                "{lines} messages of the run were not received in time"
            )),
            RunEvent::Progress(streams) => self.progress(&streams),
        }
        self.is_lost = false;
    }

    fn progress(&mut self, streams: &[Counts]) {
        let now = Instant::now();
        let is_due = now - self.told >= watch::LINE_EVERY;
        if is_due {
            self.told = now;
        }
        let names = streams.iter().map(|stream| one_line(&stream.name));
        let longest = names.map(|name| console::measure_text_width(&name)).max();
        let (mut lines, (width, most)) = (Vec::new(), watch::size(self.output));
        for stream in streams {
            let name = one_line(&stream.name);
            let fresh = (stream.state.clone(), now, stream.rows);
            let known = self.streams.entry(stream.name.clone()).or_default();
            let has_changed = known.as_ref().is_none_or(|known| known.0 != stream.state);
            if has_changed {
                *known = Some(fresh);
            }
            let (since, before) = known.as_ref().map_or((now, 0), |known| (known.1, known.2));
            let secs = (now - since).as_secs_f64();
            let moved = stream.rows.saturating_sub(before) as f64;
            let seen = Seen {
                name: name.clone(),
                name_columns: longest.unwrap_or_default(),
                rows: stream.rows,
                bytes: stream.bytes,
                estimated_rows: stream.estimated_rows.filter(|rows| *rows > 0),
                rows_per_sec: if secs > 0.0 { moved / secs } else { 0.0 },
                limit: None,
            };
            match stream.state.as_str() {
                "running" if self.output.live && lines.len() < most => lines.push(seen.line(width)),
                "running" if is_due && !self.output.live => {
                    let secs = self.start.elapsed().as_secs_f64();
                    self.output.info(&seen.sentence(), seen.document(secs));
                }
                state @ ("done" | "failed") if has_changed && !self.output.live => {
                    let text = format!("{name}: {state}, {}", rows(stream.rows));
                    let facts =
                        json!({ "stream": stream.name, "state": state, "rows": stream.rows });
                    self.output.info(&text, facts);
                }
                _ => {}
            }
        }
        if self.output.live {
            self.output.draw(lines);
        }
    }

    fn clear(&self) {
        if self.output.live {
            self.output.draw(Vec::new());
        }
    }
}

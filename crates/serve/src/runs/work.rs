//! The threads that run what is queued.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rapidbyte::{Cancel, Class, Control, Event, Failure, History, Narrowing, Pipeline, RunOptions};
use serde_json::{Value, json};

use super::live::{Live, LogLine};
use super::messages::{Wanted, changes_of};
use super::record::{Outcome, Run, RunState, Trigger, error};
use super::{Active, EndedBy, RunsError, Shared};
use crate::queue;

/// The pause after the store could not do something.
const PAUSE: Duration = Duration::from_secs(5);

/// A run that was begun.
struct Begun {
    run: Run,
    cancel: Cancel,
    live: Arc<Live>,
}

impl Shared {
    /// Runs what is queued, until the end.
    pub(super) fn work(self: &Arc<Self>) {
        loop {
            let queued = {
                let agenda = self.agenda();
                if agenda.ends || agenda.drains {
                    return;
                }
                agenda.queued
            };
            match self.begin() {
                Ok(Some(begun)) => self.run(&begun),
                // Something queued since then is looked at; otherwise somebody wakes this thread.
                Ok(None) => {
                    let agenda = self.agenda();
                    let is_idle = |agenda: &mut super::Agenda| {
                        !agenda.ends && !agenda.drains && agenda.queued == queued
                    };
                    let waited = self.work.wait_while(agenda, is_idle);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
                Err(error) => {
                    self.tell("a run cannot begin", &error);
                    self.pause();
                }
            }
        }
    }

    /// Waits some seconds, or for the end. Returns true at the end.
    fn pause(&self) -> bool {
        let agenda = self.agenda();
        let waited = self
            .work
            .wait_timeout_while(agenda, PAUSE, |agenda| !agenda.ends);
        waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    fn begin(&self) -> Result<Option<Begun>, RunsError> {
        let begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        if self.agenda().ends {
            return Ok(None);
        }
        let Some(run) = self.store.begin(self.now_ms())? else {
            return Ok(None);
        };
        let (cancel, live) = (Cancel::new(), Arc::new(Live::new()));
        let active = Active {
            cancel: cancel.clone(),
            ended_by: None,
            deadline: None,
            live: Arc::clone(&live),
        };
        self.agenda().active.insert(run.id, active);
        drop(begins);
        self.changed.send_modify(|_| ());
        Ok(Some(Begun { run, cancel, live }))
    }

    /// Moves the rows of a run, and records its end.
    fn run(self: &Arc<Self>, begun: &Begun) {
        let id = begun.run.id;
        let ended = catch_unwind(AssertUnwindSafe(|| self.outcome(begun)));
        let mut outcome = ended.unwrap_or_else(|_| {
            let hint = "report it, with the log of the server";
            let error = error(
                "internal",
                "the thread of the run panicked: the server has a bug",
                Some(hint),
            );
            Outcome::of_error(RunState::Failed, error)
        });
        outcome.log = begun.live.last();
        let wanted = Wanted::of(self.pipelines.pipeline(&begun.run.pipeline).as_ref());
        loop {
            let now_ms = self.now_ms();
            let ended = match outcome.state {
                RunState::Interrupted => {
                    // Another run resumes it: that is not a failure.
                    let wanted = Wanted {
                        failure: false,
                        ..wanted
                    };
                    self.store.interrupt(&begun.run, &outcome, wanted, now_ms)
                }
                _ => self.store.end(&begun.run, &outcome, wanted, now_ms),
            };
            let error = match ended {
                Ok(told) => {
                    self.ended.count(&begun.run.pipeline, outcome.state, 1);
                    self.log_failure(&begun.run, &outcome);
                    self.told(told);
                    break;
                }
                Err(error) => error,
            };
            // Until it is recorded, no run of the pipeline begins. The next start finds it interrupted.
            self.tell(
                &format!("the end of the run {id} cannot be recorded"),
                &error,
            );
            if self.pause() {
                break;
            }
        }
        self.agenda().active.remove(&id);
        // Another run of the pipeline may have waited for this one.
        self.queued();
    }

    fn log_failure(&self, run: &Run, outcome: &Outcome) {
        if outcome.state != RunState::Failed {
            return;
        }
        let error = outcome.error.as_ref().unwrap_or(&Value::Null);
        let text = |key| error[key].as_str().unwrap_or_default();
        let (name, id) = (&run.pipeline, run.id);
        let hint = match text("hint") {
            "" => String::new(),
            hint => format!("; {}", hint.replace('\n', " ")),
        };
        let line = format!(
            "{name}: the run {id} failed: error[{}] {}{hint}",
            text("code"),
            text("message")
        );
        let facts = json!({ "pipeline": name, "run": id, "error": error });
        self.settings.log.warn(line, facts);
    }

    fn outcome(self: &Arc<Self>, begun: &Begun) -> Outcome {
        let Begun { run, cancel, live } = begun;
        let Some(pipeline) = self.pipelines.pipeline(&run.pipeline) else {
            let text = format!(
                "the server has no pipeline {:?}, or cannot read its file",
                run.pipeline
            );
            let hint =
                "look for the file in the folder of pipelines, and check it: rapidbyte check FILE";
            return Outcome::of_error(
                RunState::Failed,
                error("unknown_pipeline", &text, Some(hint)),
            );
        };
        if pipeline.source() == queue::NAME {
            let text = format!(
                "the pipeline {:?} reads the queue of the server",
                run.pipeline
            );
            let hint = "send rows to its streams: POST /v1/ingest/PIPELINE/STREAM";
            return Outcome::of_error(RunState::Failed, error("reads_queue", &text, Some(hint)));
        }
        let limit = pipeline
            .schedule()
            .and_then(|schedule| schedule.timeout_seconds);
        if let Some(seconds) = limit.filter(|_| run.trigger == Trigger::Schedule) {
            self.limit(run.id, Duration::from_secs(seconds));
        }
        let control = {
            let (live, pipeline, id) = (Arc::clone(live), pipeline.clone(), run.id);
            let shared = Arc::clone(self);
            Control::default().cancel(cancel).on_event(move |event| {
                if let Event::SchemaChanged { stream, statements } = event {
                    shared.target_changed(&pipeline, Some(id), stream, statements);
                }
                live.take(event, &pipeline);
            })
        };
        match self.move_rows(&pipeline, run, &control, live) {
            Ok(outcome) => outcome,
            Err(failure) => Outcome {
                changes: changes_of(&failure.streams.reports, &pipeline),
                ..self.failed(run, &pipeline.redacted(&failure))
            },
        }
    }

    /// The timer cancels the run after this time.
    fn limit(&self, id: i64, time: Duration) {
        let mut agenda = self.agenda();
        if let Some(active) = agenda.active.get_mut(&id) {
            active.deadline = Instant::now().checked_add(time);
        }
        agenda.is_changed = true;
        drop(agenda);
        self.timer.notify_all();
    }

    fn move_rows(
        &self,
        pipeline: &Pipeline,
        run: &Run,
        control: &Control,
        live: &Live,
    ) -> Result<Outcome, Failure> {
        let options = RunOptions {
            narrowing: Narrowing {
                select: run.options.select.clone(),
                full_refresh: run.options.full_refresh,
                ..Narrowing::default()
            },
            // As of the command: a run of either resumes one of the other.
            history: History::Beside,
            ..RunOptions::default()
        };
        let planned = self.engine.plan_run(pipeline, &options, control);
        let mut planned = planned.map_err(|unplanned| *unplanned.failure)?;
        live.set_progress(planned.progress());
        if let Some(failure) = planned.open_history()? {
            live.push(LogLine {
                from: "rapidbyte".into(),
                stream: None,
                level: "warn",
                message: format!("cannot open the history of runs: {}", failure.message),
            });
        }
        let mut outcome = None;
        planned.run(|ended| {
            let of = |report: &rapidbyte::Report| {
                Outcome::of_report(report, changes_of(&report.streams, pipeline))
            };
            outcome = ended.ok().map(of);
        })?;
        outcome.ok_or_else(|| Failure::new(Class::Run, "internal", "a run without a report"))
    }

    fn failed(&self, run: &Run, failure: &Failure) -> Outcome {
        let ended_by = self
            .agenda()
            .active
            .get(&run.id)
            .and_then(|active| active.ended_by);
        let with = |state, code: &str, text: &str, hint: Option<&str>| Outcome {
            error: Some(error(code, text, hint)),
            ..Outcome::of_failure(state, failure)
        };
        match ended_by {
            Some(EndedBy::Server) => Outcome::of_failure(RunState::Interrupted, failure),
            Some(EndedBy::Client) => with(
                RunState::Cancelled,
                "cancelled",
                "a client cancelled the run",
                None,
            ),
            Some(EndedBy::NewerRun) => {
                let text = "a newer run of the pipeline took its place (when_running: replace)";
                with(RunState::Cancelled, "run_replaced", text, None)
            }
            Some(EndedBy::Timeout) => {
                let text = "the run took longer than schedule.timeout_seconds";
                let hint =
                    "raise schedule.timeout_seconds; the next run resumes from the last commit";
                with(RunState::Failed, "run_timeout", text, Some(hint))
            }
            // A run of the command, or of another machine.
            None if failure.class == Class::Busy && run.trigger == Trigger::Schedule => {
                Outcome::of_failure(RunState::Skipped, failure)
            }
            None => Outcome::of_failure(RunState::Failed, failure),
        }
    }
}

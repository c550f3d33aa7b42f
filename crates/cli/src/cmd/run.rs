//! `rapidbyte run PIPELINE`

mod remote;
mod summary;

use std::time::SystemTime;

use rapidbyte::{
    AttemptRecord, Failure, Narrowing, Plan, PlannedRun, Recorded, RunOptions, Streams, Unplanned,
};
use serde_json::{Map, Value, json};

use crate::args::{Common, Run as Arguments};
use crate::cmd::plan::Saved;
use crate::output::Output;
use crate::page::{Facts, Page, Paper, Shelf};
use crate::samples::Sampler;
use crate::server;
use crate::setup::{self, Session};
use crate::watch::Watch;
use rapidbyte_page::clock::utc;

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    if let Some(client) = server::client(&arguments.on, output)? {
        return remote::run(arguments, common, &client, output);
    }
    let narrowing = Narrowing {
        full_refresh: arguments.full_refresh,
        ..arguments.narrow.narrowing()
    };
    let saved = arguments.plan.as_deref().map(Saved::read).transpose()?;
    if arguments.dry_run {
        let saved = saved.as_ref();
        return super::plan::show(&arguments.pipeline, &narrowing, saved, common, output);
    }
    let mut facts = Facts {
        file: arguments.pipeline.file.display().to_string(),
        started: utc(SystemTime::now()),
        run: None,
    };
    let paper = arguments.report.as_deref().map(Paper::at).transpose()?;
    let mut pages = Pages { paper, shelf: None };
    let (known, planned) = plan(arguments, &narrowing, common, output, &facts, &mut pages);
    let mut planned = match planned {
        Ok(planned) => planned,
        Err(Unplanned { failure, recorded }) => {
            let attempt = recorded.as_ref().and_then(Recorded::attempt);
            facts.run = attempt.as_ref().map(named);
            if !pages.is_empty() {
                let page = Page {
                    plan: &known,
                    ended: Err(&failure),
                    samples: &[],
                    facts: &facts,
                    progress: None,
                };
                let kept = recorded.as_ref().zip(attempt.as_ref());
                output.known(pages.write(&page, kept, output));
            }
            return Err(*failure);
        }
    };
    let plan = planned.plan();
    if let Some(saved) = saved {
        saved.ensure_same(&super::plan::document(plan))?;
    }
    for stream in &plan.streams {
        for message in stream.warnings() {
            output.warn(&format!("{}: {message}", stream.name));
        }
    }
    pages.refuse_targets(plan)?;
    if let Some(failure) = planned.open_history()? {
        output.warn(&format!(
            "cannot open the history of runs: {}",
            failure.message
        ));
    }
    let recorded = planned.recorded().cloned();
    if let Some(recorded) = &recorded {
        output.follow(recorded.run_id());
    }
    let progress = planned.progress();
    let shown = (!pages.is_empty()).then(|| super::plan::document(planned.plan()));
    let sampler = shown.map(|plan| (Sampler::start(planned.progress()), plan));
    let watch = Watch::start(planned.progress(), output);
    planned.run(|ended| {
        drop(watch);
        let mut told = None;
        if let Some((sampler, plan)) = sampler {
            let attempt = recorded.as_ref().and_then(Recorded::attempt);
            facts.run = attempt.as_ref().map(named);
            let page = Page {
                plan: &plan,
                ended,
                samples: &sampler.stop(),
                facts: &facts,
                progress: Some(&progress),
            };
            let kept = recorded.as_ref().zip(attempt.as_ref());
            told = Some(pages.write(&page, kept, output));
        }
        match ended {
            Ok(report) => {
                output.committed();
                let mut document = json!(report);
                if let (Some(document), Some(Value::Object(told))) =
                    (document.as_object_mut(), told)
                {
                    document.extend(told);
                }
                output.document(&document);
                output.text(&summary::text(report, output));
            }
            // The caller prints the error itself.
            Err(failure) => {
                let mut known = match told {
                    Some(Value::Object(told)) => told,
                    _ => Map::new(),
                };
                let Streams {
                    reports, warnings, ..
                } = failure.streams.as_ref();
                if !reports.is_empty() || !warnings.is_empty() {
                    known.extend(committed(failure));
                }
                if !reports.is_empty() {
                    output.text(&summary::partial(&failure.streams.reports));
                }
                output.known(Value::Object(known));
            }
        }
    })
}

/// The members of a report that a failed run also has, for the streams that it committed.
fn committed(failure: &Failure) -> Map<String, Value> {
    let Streams {
        reports, warnings, ..
    } = failure.streams.as_ref();
    let mut known = Map::new();
    let rows: u64 = reports.iter().map(|stream| stream.rows).sum();
    let bytes: u64 = reports.iter().map(|stream| stream.bytes).sum();
    known.insert("rows".into(), json!(rows));
    known.insert("bytes".into(), json!(bytes));
    known.insert("warnings".into(), json!(warnings));
    known.insert("streams".into(), json!(reports));
    known
}

fn named(attempt: &AttemptRecord) -> (String, u64) {
    (attempt.run_id.clone(), attempt.attempt)
}

/// Where the page of the run goes to: a file, a directory, both or nowhere.
struct Pages {
    paper: Option<Paper>,
    shelf: Option<Shelf>,
}

impl Pages {
    fn is_empty(&self) -> bool {
        self.paper.is_none() && self.shelf.is_none()
    }

    fn refuse_targets(&self, plan: &Plan) -> Result<(), Failure> {
        let paper = self.paper.as_ref().map(|paper| paper.refuse_targets(plan));
        let shelf = self.shelf.as_ref().map(|shelf| shelf.refuse_targets(plan));
        paper.into_iter().chain(shelf).collect()
    }

    /// Writes the page to every place, and says for programs whether it is there. A missing page is only a warning: an
    /// operator who sees an error runs the pipeline again, and appends rows that are there.
    fn write(
        &mut self,
        page: &Page<'_>,
        kept: Option<(&Recorded, &AttemptRecord)>,
        output: &Output,
    ) -> Value {
        let mut told = Map::new();
        if let Some(shelf) = self.shelf.take() {
            let old = shelf.old();
            let run = page.facts.run.as_ref();
            match shelf.paper(run.map(|(id, attempt)| (id.as_str(), *attempt))) {
                Err(failure) => output.missed(&failure),
                Ok(paper) => {
                    told.insert("page".into(), write(&paper, page, output));
                    let noted = kept.map_or(Ok(()), |(recorded, attempt)| {
                        recorded.set_report(attempt, paper.path())
                    });
                    if let Err(failure) = noted {
                        let why = &failure.message;
                        output.warn(&format!("the history does not record the report: {why}"));
                    }
                }
            }
            if let Err(error) = old.remove() {
                output.warn(&format!("older reports were not removed: {error}"));
            }
        }
        if let Some(paper) = self.paper.take() {
            told.insert("report".into(), write(&paper, page, output));
        }
        Value::Object(told)
    }
}

/// Takes the pipeline's turn and plans; beside it what the page tells of a run that could not be planned.
fn plan(
    arguments: &Arguments,
    narrowing: &Narrowing,
    common: &Common,
    output: &Output,
    facts: &Facts,
    pages: &mut Pages,
) -> (Value, Result<PlannedRun, Unplanned>) {
    let file = &arguments.pipeline.file;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut known = json!({ "pipeline": name });
    let mut plan = || {
        let pipeline = setup::pipeline_with_source(&arguments.pipeline, common)?;
        known = json!({
            "pipeline": pipeline.name(),
            "source": { "connector": pipeline.source() },
            "destination": { "connector": pipeline.destination() },
        });
        if let Some(wanted) = pipeline.pages() {
            let (folder, name) = (pipeline.folder(), pipeline.name());
            pages.shelf = Some(Shelf::new(wanted, folder, name, &facts.started)?);
        }
        let Session { engine, control } = setup::session(output, Some(&pipeline))?;
        let options = RunOptions {
            narrowing: narrowing.clone(),
            fail_fast: arguments.fail_fast,
            history: setup::history(&arguments.history),
            ..RunOptions::default()
        };
        let planned = engine.plan_run(&pipeline, &options, &control);
        planned.inspect_err(|unplanned| {
            if let Some(recorded) = &unplanned.recorded {
                output.follow(recorded.run_id());
            }
        })
    };
    let planned = plan();
    (known, planned)
}

/// Writes the page to one place.
fn write(paper: &Paper, page: &Page<'_>, output: &Output) -> Value {
    let problem = paper.write(page).err();
    if let Some(failure) = &problem {
        output.missed(failure);
    }
    json!({ "file": paper.path().to_string_lossy(), "problem": problem })
}

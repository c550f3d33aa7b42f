//! What pages do with names, messages and files that are hostile.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use rapidbyte::{Class, Environment, Failure, Pipeline};
use serde_json::json;

use super::pipelines::States;
use super::*;
use crate::agenda::Standing;
use crate::registry::{Broken, Everything, Known, Reach};
use crate::runs::{AtWork, Change, Options, Run, RunState, Trigger};
use crate::server::Settings;
use crate::store::{Job, JobState, StreamState};

const HOSTILE: &str = "<script>alert(1)</script>\"' onload=\"x\u{202e}";

/// HTML in which no hostile text is markup, and no attribute ends early.
#[track_caller]
fn assert_escaped(html: &str) {
    assert!(html.contains("&lt;script&gt;"), "nothing hostile: {html}");
    assert!(!html.contains("<script>alert"), "{html}");
    assert!(!html.contains("\"' onload"), "{html}");
    assert!(!html.contains('\u{202e}'), "{html}");
}

fn known(stream: &str) -> Known {
    let quoted = json!(stream);
    let text = format!(
        "version: 1\npipeline: p\nsource: {{ use: ingest, streams: [{quoted}] }}\n\
         destination: {{ use: dest-postgres, write_mode: append }}\n"
    );
    let environment = Environment::from_fn(|_| None).without_env_file();
    let pipeline = Pipeline::from_str(&text, std::path::Path::new("/"), &environment);
    Known {
        pipeline: pipeline.expect("a pipeline"),
        file: Some(PathBuf::from(HOSTILE)),
        reach: Arc::new([Reach {
            key: HOSTILE.into(),
            connector: HOSTILE.into(),
            version: HOSTILE.into(),
            may: vec![HOSTILE.into()],
        }]),
        problem: Some(failure_of()),
    }
}

fn failure_of() -> Failure {
    Failure::new(Class::Config, HOSTILE, HOSTILE).hint(HOSTILE)
}

fn job(state: JobState) -> Job {
    Job {
        id: 7,
        pipeline: HOSTILE.into(),
        stream: HOSTILE.into(),
        format: HOSTILE.into(),
        encoding: Some(HOSTILE.into()),
        bytes: 1,
        sha256: HOSTILE.into(),
        idempotency_key: Some(HOSTILE.into()),
        replay_of: Some(6),
        state,
        reason: Some(json!({
            "code": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "column": HOSTILE, "line": 3,
        })),
        has_body: true,
        received_ms: 0,
        ended_ms: Some(1),
    }
}

fn run_of(state: RunState) -> Run {
    let error = json!({
        "code": HOSTILE, "message": HOSTILE, "hint": HOSTILE, "location": HOSTILE,
        "failures": [{ "stream": HOSTILE, "code": HOSTILE, "message": HOSTILE }],
    });
    let stage = json!({ "wall_secs": 1.0, "parts": { HOSTILE: 1.0 } });
    let report = json!({
        "rows": 5, "bytes": 80, "total_secs": 2.0, "plan_secs": 0.5,
        "warnings": [{ "stream": HOSTILE, "message": HOSTILE }],
        "streams": [{
            "name": HOSTILE, "location": HOSTILE, "rows": 5, "rejected": 1, "start_secs": 0.5, "wall_secs": 1.0,
            "rejects": [{ "location": HOSTILE, "code": HOSTILE, "message": HOSTILE }],
            "schema_changes": [HOSTILE], "source": stage, "destination": stage,
        }],
    });
    Run {
        id: 7,
        pipeline: HOSTILE.into(),
        trigger: Trigger::Manual,
        scheduled_ms: Some(0),
        state,
        options: Options {
            select: vec![HOSTILE.into()],
            full_refresh: true,
        },
        attempt: 2,
        resumes: Some(6),
        queued_ms: 0,
        started_ms: Some(0),
        ended_ms: state.is_end().then_some(1),
        rows: Some(5),
        error: Some(error),
        report: Some(report),
        log: Some(
            json!([{ "from": HOSTILE, "stream": HOSTILE, "level": HOSTILE, "message": HOSTILE }]),
        ),
    }
}

/// A pipeline of a source that is not the queue.
fn scheduled() -> Known {
    let text = format!(
        "{}schedule: {{ cron: '30 2 * * *', timezone: Europe/Berlin, jitter_seconds: 5 }}\n",
        rapidbyte::EXAMPLE.replace("[in]", "['<script>']")
    );
    let environment = Environment::from_fn(|_| None).without_env_file();
    let pipeline = Pipeline::from_str(&text, std::path::Path::new("/"), &environment);
    Known {
        pipeline: pipeline.expect("a pipeline"),
        file: None,
        reach: Arc::default(),
        problem: None,
    }
}

fn states(stream: &str) -> States {
    let key = ("p".to_owned(), stream.to_owned());
    let problem = json!({ "code": HOSTILE, "message": HOSTILE, "hint": HOSTILE });
    let mut standing = Standing::default();
    (standing.failures, standing.problem) = (3, Some(problem));
    let jobs = StreamState {
        pipeline: "p".into(),
        stream: stream.into(),
        pending: 2,
        pending_bytes: 10,
        oldest_ms: Some(0),
        dead: 1,
    };
    States {
        jobs: [(key.clone(), jobs)].into(),
        standings: [(key, standing)].into(),
        runs: HashMap::new(),
    }
}

fn of_runs() -> States {
    let standing = schedule::Standing {
        last: vec![run_of(RunState::Failed), run_of(RunState::Running)],
        next_ms: Some(86_400_000),
        lag_ms: Some(7_200_000),
        ..schedule::Standing::default()
    };
    States {
        runs: [("copy".to_owned(), standing)].into(),
        ..States::default()
    }
}

#[test]
fn hostile_text_is_escaped_on_every_page() {
    let (known, states) = (known(HOSTILE), states(HOSTILE));
    let everything = Everything {
        broken: vec![Broken {
            file: HOSTILE.into(),
            problem: failure_of(),
        }],
        ..Everything::default()
    };
    let mut settings = Settings::new(std::path::Path::new(HOSTILE));
    settings.is_behind_proxy = true;
    for html in [
        pipelines::table(&[("p", &known)], &states),
        pipelines::table(&[(HOSTILE, &known)], &States::default()),
        pipelines::broken(&everything),
        pipelines::without_pipeline(&everything, &states),
        pipeline::content("p", &known, &states, true),
        pipeline::content(HOSTILE, &known, &States::default(), false),
        jobs::table(&[job(JobState::Dead)]),
        runs::table("Runs", &[run_of(RunState::Failed)], true),
        run::content(&run_of(RunState::Failed), &AtWork::default(), true),
        run::content(
            &Run {
                log: None,
                ..run_of(RunState::Running)
            },
            &AtWork {
                progress: Some(json!({ "streams": [{ "name": HOSTILE, "state": HOSTILE }] })),
                log: Some(json!([{ "message": HOSTILE }])),
            },
            true,
        ),
        pipeline::content("copy", &scheduled(), &of_runs(), true),
        pipelines::table(&[("copy", &scheduled())], &of_runs()),
        jobs::LIST.filters(
            &list::Query {
                pipeline: HOSTILE.into(),
                state: HOSTILE.into(),
                before: None,
            },
            &[HOSTILE],
            [HOSTILE],
        ),
        job::content(&job(JobState::Pending), true),
        changes::table(&[Change {
            id: 1,
            pipeline: HOSTILE.into(),
            stream: HOSTILE.into(),
            run: Some(7),
            at_ms: 0,
            statement: HOSTILE.into(),
        }]),
        connectors::reach(&[("p", &known)]),
        settings::content(&settings, true),
        of_error(
            StatusCode::NOT_FOUND,
            &json!({ "code": HOSTILE, "message": HOSTILE, "hint": HOSTILE }),
        ),
        Page {
            title: HOSTILE,
            entry: None,
            live: Live::No,
            body: String::new(),
        }
        .html(),
    ] {
        assert_escaped(&html);
    }
    // In links, a name is one part of the path or one value of the query.
    let links = jobs::LIST.pages(
        &list::Query {
            pipeline: "a&b=\"c\"/../d".into(),
            ..list::Query::default()
        },
        Some(3),
    );
    let expected = "href=\"/jobs?pipeline=a%26b%3D%22c%22%2F%2E%2E%2Fd&amp;state=&amp;before=3\"";
    assert!(links.contains(expected), "{links}");
}

#[test]
fn a_job_that_cannot_be_replayed_any_more_is_marked_in_the_list() {
    let marked = |state, has_body| {
        let job = Job {
            has_body,
            ..job(state)
        };
        jobs::table(&[job]).contains("without its body")
    };
    assert!(marked(JobState::Dead, false) && marked(JobState::Cancelled, false));
    assert!(!marked(JobState::Dead, true) && !marked(JobState::Done, false));
}

#[test]
fn buttons_are_those_that_the_state_and_the_scope_allow() {
    for (state, may_operate, expected) in [
        (JobState::Pending, true, &["cancel"][..]),
        (JobState::Dead, true, &["replay", "discard"]),
        (JobState::Done, true, &["replay", "discard"]),
        (JobState::Cancelled, true, &["replay", "discard"]),
        (JobState::Dead, false, &[]),
    ] {
        let html = job::content(&job(state), may_operate);
        for action in ["cancel", "replay", "discard"] {
            let has = html.contains(&format!("action=\"/jobs/7/{action}\""));
            assert_eq!(
                has,
                expected.contains(&action),
                "{state:?} {action}: {html}"
            );
        }
    }
    let (known, states) = (known("s"), states("s"));
    for may_operate in [true, false] {
        let html = pipeline::content("p", &known, &states, may_operate);
        let has = html.contains("action=\"/pipelines/p/retry\"");
        assert_eq!(has, may_operate, "{html}");
    }
}

#[test]
fn a_run_has_the_button_of_its_state() {
    for (state, may_operate, expected) in [
        (RunState::Queued, true, Some("cancel")),
        (RunState::Running, true, Some("cancel")),
        (RunState::Succeeded, true, Some("again")),
        (RunState::Interrupted, true, Some("again")),
        (RunState::Running, false, None),
        (RunState::Failed, false, None),
    ] {
        let html = run::content(&run_of(state), &AtWork::default(), may_operate);
        for action in ["cancel", "again"] {
            let has = html.contains(&format!("action=\"/runs/7/{action}\""));
            assert_eq!(has, expected == Some(action), "{state:?} {action}: {html}");
        }
    }
    for may_operate in [true, false] {
        let html = pipeline::content("copy", &scheduled(), &of_runs(), may_operate);
        assert_eq!(
            html.contains("/pipelines/copy/run\""),
            may_operate,
            "{html}"
        );
    }
}

#[test]
fn a_scheduled_pipeline_shows_its_next_runs_its_lag_and_its_rows() {
    let html = pipeline::content("copy", &scheduled(), &of_runs(), true);
    for part in [
        "<code class=\"cron\">30 2 * * *</code> Europe/Berlin",
        "<span class=\"late\">2 hours</span>",
        // The first fires after 1970-01-01T00:00:00Z.
        "1970-01-01 01:30:00 UTC",
        "1970-01-01 02:30 CET",
        "1970-01-05 02:30 CET",
        "up to 5 seconds later",
        "aria-label=\"The last runs, the newest at the end: 5 rows, running; 5 rows, failed\"",
        "href=\"/runs?pipeline=copy\"",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let listed = pipelines::table(&[("copy", &scheduled())], &of_runs());
    for part in ["<rect class=\"bad\"", "1970-01-02 00:00:00 UTC", "failing"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
}

#[test]
fn a_table_has_a_caption_and_names_its_columns() {
    let table = Table {
        caption: "Things",
        head: &["thing", "#size"],
        rows: vec![vec!["a".into(), "1".into()]],
        none: "none",
    };
    let html = table.html();
    for part in [
        "<caption>Things</caption>",
        "<th role=\"columnheader\" scope=\"col\">thing</th>",
        "<th scope=\"row\" role=\"rowheader\" data-name=\"thing\">a</th>",
        "<td class=\"n\" role=\"cell\" data-name=\"size\">1</td>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

//! The parts of pages about pipelines whose runs a schedule or a request begins.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike, Utc};
use chrono_tz::OffsetName;
use rapidbyte::{Pipeline, Schedule};
use rapidbyte_page::clock::words;
use rapidbyte_page::figures::{count, rows};
use rapidbyte_page::section;
use tokio::task::spawn_blocking;

use super::runs::{of_state, table};
use super::{Table, badge, coming, encoded, escape, moment, properties, when};
use crate::answer::Refusal;
use crate::ingest::Shared;
use crate::registry::Known;
pub(super) use crate::runs::Standing;
use crate::runs::{Run, RunState, RunsError};
use crate::schedule::Timetable;

/// Runs whose rows are drawn.
const DRAWN: u32 = 20;
/// Runs in the table of a pipeline.
const LISTED: usize = 5;
/// Coming runs in the table of a pipeline.
const COMING: usize = 5;
/// The size of a bar with the gap behind it, and of the drawing.
const BAR: f64 = 6.0;
const HEIGHT: f64 = 24.0;

/// How the pipelines are whose source is not the queue.
pub(super) async fn standings(
    shared: &Shared,
    known: impl Iterator<Item = &Known>,
) -> Result<HashMap<String, Standing>, Refusal> {
    let others = known.filter(|known| !known.reads_queue());
    let others: Vec<Pipeline> = others.map(|known| known.pipeline.clone()).collect();
    let Some(runs) = shared.runs.clone().filter(|_| !others.is_empty()) else {
        return Ok(HashMap::new());
    };
    let standings = spawn_blocking(move || runs.stand(&others, DRAWN)).await;
    Ok(standings.map_err(|_| RunsError::Closed)??)
}

/// The state of a pipeline in one word.
pub(super) fn state(standing: &Standing) -> String {
    let told = standing
        .last
        .iter()
        .enumerate()
        .find(|(at, run)| match run.state {
            RunState::Succeeded | RunState::Failed => true,
            // Another run resumes it, unless too many attempts were.
            RunState::Interrupted => *at == 0,
            _ => false,
        });
    let is_failing = told.is_some_and(|(_, run)| run.state != RunState::Succeeded);
    match () {
        () if standing.running > 0 => badge("running", "running"),
        () if standing.queued > 0 => badge("waiting", "waiting"),
        () if is_failing => badge("failing", "bad"),
        () if standing.lag_ms.is_some_and(|lag| lag > 0) => badge("late", "waiting"),
        () => badge("idle", "ok"),
    }
}

/// The expression of a schedule and its time zone.
pub(super) fn of_cron(schedule: &Schedule) -> String {
    format!(
        "<code class=\"cron\">{}</code> {}",
        escape(schedule.cron.text()),
        escape(schedule.timezone.name())
    )
}

/// The last run: its state, and when it ended or began.
pub(super) fn last_run(standing: &Standing) -> String {
    standing.last.first().map_or(String::new(), |run| {
        let at_ms = run.ended_ms.or(run.started_ms).unwrap_or(run.queued_ms);
        format!(
            "<a href=\"/runs/{}\">{}</a> {}",
            run.id,
            of_state(run.state),
            when(at_ms)
        )
    })
}

/// The time since the first run that was due after the last success began. Empty for a pipeline that is on time.
pub(super) fn lag(standing: &Standing) -> String {
    let lag_ms = standing
        .lag_ms
        .and_then(|lag_ms| u64::try_from(lag_ms).ok());
    lag_ms
        .filter(|lag_ms| *lag_ms > 0)
        .map_or(String::new(), |lag_ms| {
            let lag = words(Duration::from_millis(lag_ms));
            format!("<span class=\"late\">{lag}</span>")
        })
}

/// Bars with the rows of the last runs, the newest on the right.
pub(super) fn spark(last: &[Run]) -> String {
    if last.is_empty() {
        return String::new();
    }
    let of = |run: &Run| match (run.rows, run.state) {
        (Some(moved), RunState::Succeeded) => rows(moved),
        (Some(moved), state) => format!("{}, {}", rows(moved), state.name()),
        (None, state) => state.name().to_owned(),
    };
    let peak = last.iter().filter_map(|run| run.rows).max().unwrap_or(0);
    let bars = last.iter().take(DRAWN as usize).rev().enumerate();
    let bars: String = bars
        .map(|(at, run)| {
            let share = run.rows.unwrap_or(0) as f64 / peak.max(1) as f64;
            let height = 2.0 + share * (HEIGHT - 2.0);
            let class = match run.state {
                RunState::Succeeded => "ok",
                RunState::Failed | RunState::Interrupted => "bad",
                _ => "none",
            };
            format!(
                "<rect class=\"{class}\" x=\"{:.0}\" y=\"{:.1}\" width=\"5\" height=\"{height:.1}\"><title>run {}: {}</title></rect>",
                at as f64 * BAR,
                HEIGHT - height,
                run.id,
                of(run)
            )
        })
        .collect();
    let told: Vec<String> = last.iter().take(DRAWN as usize).rev().map(of).collect();
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 {:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"The last runs, the newest at the end: {}\">{bars}</svg>",
        f64::from(DRAWN) * BAR,
        told.join("; ")
    )
}

/// The schedule of a pipeline, its last runs, and the form that begins one.
pub(super) fn content(known: &Known, standing: &Standing, may_operate: bool) -> String {
    let pipeline = &known.pipeline;
    let name = encoded(pipeline.name());
    let mut values = Vec::new();
    if let Some(schedule) = pipeline.schedule() {
        values.push(("schedule", of_cron(schedule)));
        if let Some(next_ms) = standing.next_ms {
            values.push(("next run", coming(next_ms)));
        }
        let late = match lag(standing) {
            late if late.is_empty() => "on time".to_owned(),
            late => format!("{late} since a run was due that has not succeeded"),
        };
        values.push(("lag", late));
    } else {
        let text = "none: a request begins a run".to_owned();
        values.push(("schedule", text));
    }
    let success = standing.success_ms.map_or("none".to_owned(), when);
    values.push(("last success", success));
    values.push((
        "runs",
        format!(
            "<a href=\"/runs?pipeline={name}\">all</a>, <a href=\"/runs?pipeline={name}&amp;state=succeeded\">succeeded</a>, \
             <a href=\"/runs?pipeline={name}&amp;state=failed\">failed</a>"
        ),
    ));
    let mut body = properties(&values);
    if may_operate {
        body += &form(pipeline.name());
    }
    let listed = &standing.last[..standing.last.len().min(LISTED)];
    let drawn = match standing.last.len() {
        0 => String::new(),
        runs => format!(
            "<figure class=\"rows\"><figcaption class=\"quiet\">Rows of the last {}, the newest on the right</figcaption>{}</figure>\n",
            if runs == 1 {
                "run".into()
            } else {
                format!("{} runs", count(runs as u64))
            },
            spark(&standing.last)
        ),
    };
    let about = "The server keeps the last 1,000 runs of a pipeline.";
    let runs = format!("{drawn}{}", table("The last runs", listed, false));
    body += &section("Last runs", about, &runs);
    if let Some(schedule) = pipeline.schedule() {
        body += &fires(pipeline.name(), schedule, standing.now_ms);
    }
    body
}

/// The coming moments of a schedule, in UTC and in its own time zone.
fn fires(name: &str, schedule: &Schedule, now_ms: i64) -> String {
    let table = Timetable::new(name, schedule);
    let each = std::iter::successors(table.next(now_ms), |last| table.next(*last));
    let rows = each.take(COMING).map(|fire_ms| {
        let local = in_zone(fire_ms, schedule.timezone.rules());
        vec![moment(fire_ms), local.unwrap_or_default()]
    });
    let zone = escape(schedule.timezone.name());
    let about = match schedule.jitter_seconds {
        0 => "The moments that the schedule names.".to_owned(),
        most => format!(
            "The moments that the schedule names. A run begins up to {most} seconds later (jitter_seconds)."
        ),
    };
    let table = Table {
        caption: "The next moments of the schedule",
        head: &["UTC", &zone],
        rows: rows.collect(),
        none: "The schedule names no moment.",
    };
    section("Next runs", &about, &table.html())
}

/// A moment on the wall of a time zone: `2026-05-01 14:00 CEST`.
fn in_zone(ms: i64, zone: chrono_tz::Tz) -> Option<String> {
    let at = DateTime::<Utc>::from_timestamp_millis(ms)?.with_timezone(&zone);
    Some(format!(
        "{:04}-{:02}-{:02} {:02}:{:02} {}",
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minute(),
        at.offset().abbreviation().unwrap_or_default()
    ))
}

fn form(name: &str) -> String {
    format!(
        "<form class=\"begin\" method=\"post\" action=\"/pipelines/{}/run\">\n<button>Run now</button>\n\
         <details><summary>Options</summary>\n\
         <p><label for=\"select\">Select: patterns of streams and columns, one on each line. Empty: everything.</label>\n\
         <textarea id=\"select\" name=\"select\" rows=\"3\" spellcheck=\"false\"></textarea></p>\n\
         <p><label><input type=\"checkbox\" name=\"full_refresh\" value=\"true\"> Full refresh: incremental streams begin \
         again with their first row.</label></p>\n</details>\n</form>\n",
        encoded(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_is_failing_if_its_last_outcome_says_so() {
        let run = |state| Run {
            id: 1,
            pipeline: "p".into(),
            trigger: crate::runs::Trigger::Manual,
            scheduled_ms: None,
            state,
            options: crate::runs::Options::default(),
            attempt: 1,
            resumes: None,
            queued_ms: 0,
            started_ms: None,
            ended_ms: None,
            rows: None,
            error: None,
            report: None,
            log: None,
        };
        use RunState::{Cancelled, Failed, Interrupted, Skipped, Succeeded};
        for (last, queued, lag_ms, expected) in [
            (&[][..], 0, None, "idle"),
            (&[Succeeded, Failed], 0, Some(0), "idle"),
            (&[Succeeded], 0, Some(1), "late"),
            (&[Failed, Succeeded], 0, Some(1), "failing"),
            (&[Skipped, Failed], 0, None, "failing"),
            (&[Cancelled, Interrupted, Succeeded], 0, None, "idle"),
            // No run resumes it.
            (&[Interrupted, Succeeded], 0, None, "failing"),
            (&[Failed], 1, None, "waiting"),
        ] {
            let standing = Standing {
                last: last.iter().map(|state| run(*state)).collect(),
                queued,
                lag_ms,
                ..Standing::default()
            };
            let shown = state(&standing);
            assert!(
                shown.contains(&format!(">{expected}<")),
                "{last:?}: {shown}"
            );
        }
    }

    #[test]
    fn a_moment_is_shown_on_the_wall_of_its_zone() {
        // 2026-03-29T01:00:00Z, the moment of the change to summer time.
        let change = 1_774_746_000_000;
        let berlin = chrono_tz::Tz::Europe__Berlin;
        let shown = |ms| in_zone(ms, berlin).expect("a moment");
        assert_eq!(shown(change - 60_000), "2026-03-29 01:59 CET");
        assert_eq!(shown(change), "2026-03-29 03:00 CEST");
    }
}

//! The rules of the store, on a real file.

use rusqlite::Connection;

use super::super::outbox::Next;
use super::*;

const CRON: &str = "0 * * * * UTC";

fn open(folder: &tempfile::TempDir) -> Store {
    Store::open(&folder.path().join("runs.db")).expect("a store")
}

fn fire(at_ms: i64) -> NewFire {
    NewFire {
        at_ms,
        waits: false,
    }
}

fn record(store: &Store, at_ms: i64, rule: WhenRunning) -> Recorded {
    let recorded = store.record("p", (CRON, at_ms), vec![fire(at_ms)], rule, at_ms);
    recorded.expect("recorded")
}

fn begin(store: &Store) -> Option<i64> {
    let begun = store.begin(7).expect("a store");
    begun.map(|run| run.id)
}

fn end(store: &Store, id: i64, state: RunState) {
    let run = block(store.get(id)).expect("a store").expect("a run");
    let outcome = Outcome::of_error(state, error("c", "m", None));
    let ended = store.end(&run, &outcome, Wanted::default(), 9);
    assert_eq!(ended.expect("ended"), Told::default());
}

/// All runs of `p`, the oldest first.
fn states(store: &Store) -> Vec<(i64, RunState)> {
    let filter = Filter {
        limit: 5000,
        ..Filter::default()
    };
    let runs = store.look(filter).expect("runs");
    runs.iter().rev().map(|run| (run.id, run.state)).collect()
}

fn code(store: &Store, id: i64) -> String {
    let run = block(store.get(id)).expect("a store").expect("a run");
    run.error.expect("an error")["code"]
        .as_str()
        .expect("a code")
        .to_owned()
}

fn submit(store: &Store, rule: WhenRunning) -> Submitted {
    block(store.submit("p".into(), Options::default(), rule, 5)).expect("an answer")
}

fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(work)
}

#[test]
fn a_fire_is_recorded_once_and_its_position_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    assert_eq!(store.position("p", CRON, 50).expect("a position"), 50);
    assert_eq!(record(&store, 100, WhenRunning::Wait).queued, [1]);
    // A position that was not stored, as of a clock that went back.
    assert_eq!(record(&store, 100, WhenRunning::Wait), Recorded::default());
    drop(store);
    let store = open(&folder);
    assert_eq!(store.position("p", CRON, 900).expect("a position"), 100);
    // Another expression begins when it is seen.
    assert_eq!(
        store
            .position("p", "5 * * * * UTC", 900)
            .expect("a position"),
        900
    );
    assert_eq!(states(&store), [(1, RunState::Queued)]);
}

#[test]
fn a_fire_that_refuses_is_skipped_while_a_run_waits_or_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    assert_eq!(record(&store, 1, WhenRunning::Refuse).queued, [1]);
    assert_eq!(record(&store, 2, WhenRunning::Refuse).skipped, 1);
    assert_eq!(begin(&store), Some(1));
    assert_eq!(record(&store, 3, WhenRunning::Refuse).skipped, 1);
    assert_eq!(submit(&store, WhenRunning::Refuse), Submitted::Active(1));
    end(&store, 1, RunState::Succeeded);
    assert_eq!(record(&store, 4, WhenRunning::Refuse).queued.len(), 1);
    let states: Vec<RunState> = states(&store).into_iter().map(|(_, state)| state).collect();
    assert_eq!(
        states,
        [
            RunState::Succeeded,
            RunState::Skipped,
            RunState::Skipped,
            RunState::Queued
        ]
    );
    assert_eq!(code(&store, 2), "already_running");
}

#[test]
fn a_fire_that_waits_is_queued_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Wait);
    assert_eq!(begin(&store), Some(1));
    assert_eq!(record(&store, 2, WhenRunning::Wait).queued.len(), 1);
    assert_eq!(record(&store, 3, WhenRunning::Wait).skipped, 1);
    assert_eq!(code(&store, 3), "already_queued");
    // A request is not lost for a fire.
    assert!(matches!(
        submit(&store, WhenRunning::Wait),
        Submitted::Queued { replaces: None, .. }
    ));
    // No run begins while one of its pipeline works; a run of another does.
    assert_eq!(begin(&store), None);
    let other = block(store.submit("q".into(), Options::default(), WhenRunning::Refuse, 5));
    assert!(matches!(other, Ok(Submitted::Queued { .. })));
    let other = store.begin(8).expect("a store").expect("a run");
    assert_eq!((other.pipeline.as_str(), other.started_ms), ("q", Some(8)));
    end(&store, 1, RunState::Failed);
    assert_eq!(begin(&store), Some(2));
}

#[test]
fn a_fire_that_replaces_names_the_run_that_has_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Replace);
    assert_eq!(begin(&store), Some(1));
    let recorded = record(&store, 2, WhenRunning::Replace);
    assert_eq!((recorded.queued.len(), recorded.replaces), (1, Some(1)));
    assert_eq!(record(&store, 3, WhenRunning::Replace).skipped, 1);
}

#[test]
fn fires_that_are_caught_up_wait_for_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    let fires = (1..=20)
        .map(|at_ms| NewFire { at_ms, waits: true })
        .collect();
    let recorded = store.record("p", (CRON, 20), fires, WhenRunning::Refuse, 30);
    assert_eq!(recorded.expect("recorded").queued.len(), 20);
}

#[test]
fn a_run_that_the_end_of_the_process_interrupts_is_queued_once_more_but_not_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Refuse);
    for attempt in 1..=MAX_ATTEMPTS {
        let run = store.begin(7).expect("a store").expect("a run");
        assert_eq!((run.attempt, run.id), (attempt, i64::from(attempt)));
        assert_eq!(run.resumes, (attempt > 1).then_some(run.id - 1));
        let told = store.recover(9, |_| Wanted {
            failure: true,
            ..Wanted::default()
        });
        // A run that another one resumes is not a failure.
        let messages = usize::from(attempt == MAX_ATTEMPTS);
        assert_eq!(told.expect("recovered").recorded, messages);
    }
    assert_eq!(begin(&store), None);
    let Next::Send(message) = store.take_message(9, Vec::new()).expect("a store") else {
        panic!("no message");
    };
    let body: serde_json::Value = serde_json::from_str(&message.body).expect("JSON");
    assert_eq!(
        (&body["run"]["state"], &body["run"]["id"]),
        (&"interrupted".into(), &MAX_ATTEMPTS.into())
    );
    assert!(
        states(&store)
            .iter()
            .all(|(_, state)| *state == RunState::Interrupted)
    );
    // An operator who restarts the server is not a run that takes it down.
    record(&store, 2, WhenRunning::Refuse);
    for _ in 0..=MAX_ATTEMPTS {
        let run = store.begin(7).expect("a store").expect("a run");
        assert_eq!(run.attempt, 1);
        let outcome = Outcome::of_error(RunState::Interrupted, error("c", "m", None));
        let told = store.interrupt(&run, &outcome, Wanted::default(), 9);
        assert_eq!(told.expect("interrupted"), Told::default());
    }
}

#[test]
fn an_interrupted_run_is_not_queued_beside_one_that_does_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Wait);
    assert_eq!(begin(&store), Some(1));
    record(&store, 2, WhenRunning::Wait);
    store.recover(9, |_| Wanted::default()).expect("recovered");
    assert_eq!(
        states(&store),
        [(1, RunState::Interrupted), (2, RunState::Queued)]
    );
}

#[test]
fn the_last_thousand_runs_of_a_pipeline_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Refuse);
    assert_eq!(begin(&store), Some(1));
    let fires = (2..=1500).map(fire).collect();
    let recorded = store.record("p", (CRON, 1500), fires, WhenRunning::Refuse, 2000);
    assert_eq!(recorded.expect("recorded").skipped, 1499);
    let kept = states(&store);
    // The run at work stays, whatever came after it.
    assert_eq!(
        (kept.len(), kept[0], kept[1].0),
        (1001, (1, RunState::Running), 501)
    );
    end(&store, 1, RunState::Failed);
    assert_eq!(states(&store).len(), 1000);
}

#[test]
fn the_last_success_stays_among_a_thousand_failures() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Refuse);
    assert_eq!(begin(&store), Some(1));
    end(&store, 1, RunState::Succeeded);
    record(&store, 2, WhenRunning::Refuse);
    assert_eq!(begin(&store), Some(2));
    let fires = (3..=1500).map(fire).collect();
    let recorded = store.record("p", (CRON, 1500), fires, WhenRunning::Refuse, 2000);
    assert_eq!(recorded.expect("recorded").skipped, 1498);
    end(&store, 2, RunState::Failed);
    let kept = states(&store);
    assert_eq!((kept.len(), kept[0]), (1001, (1, RunState::Succeeded)));
}

#[test]
fn a_pipeline_stands_as_its_runs_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    assert_eq!(store.position("p", CRON, 3).expect("a position"), 3);
    let part = Options {
        select: vec!["orders".into()],
        ..Options::default()
    };
    for options in [Options::default(), part] {
        let submitted = block(store.submit("p".into(), options, WhenRunning::Wait, 5));
        let Submitted::Queued { run, .. } = submitted.expect("an answer") else {
            panic!("it is not queued");
        };
        assert_eq!(begin(&store), Some(run.id));
        end(&store, run.id, RunState::Succeeded);
    }
    record(&store, 10, WhenRunning::Wait);
    assert_eq!(begin(&store), Some(3));
    record(&store, 20, WhenRunning::Wait);
    let names = vec!["p".to_owned(), "q".to_owned()];
    let standings = store.stand(names, 2).expect("standings");
    let [of_p, of_q] = &*standings else {
        panic!("{standings:?}");
    };
    let ids: Vec<i64> = of_p.last.iter().map(|run| run.id).collect();
    assert_eq!((ids, of_p.queued, of_p.running), (vec![4, 3], 1, 1));
    // The second run moved a part of the pipeline. The schedule is as it was at 3.
    let success = of_p.success.expect("a success");
    assert_eq!(
        (success.id, success.started_ms, success.ended_ms),
        (1, 7, 9)
    );
    assert_eq!(of_p.since_ms, Some(3));
    assert_eq!(
        (of_q.last.len(), of_q.success, of_q.since_ms),
        (0, None, None)
    );
    assert_eq!(block(store.active()).expect("counts"), (1, 1));
    // Another expression is new.
    store
        .position("p", "1 * * * * UTC", 40)
        .expect("a position");
    let changed = store.stand(vec!["p".into()], 0).expect("standings");
    assert_eq!(changed[0].since_ms, Some(40));
}

#[test]
fn a_queue_has_an_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    let fires = (1..=MAX_QUEUED + 1)
        .map(|at_ms| NewFire { at_ms, waits: true })
        .collect();
    let recorded = store
        .record("p", (CRON, 9999), fires, WhenRunning::Wait, 9999)
        .expect("recorded");
    assert_eq!(
        (recorded.queued.len() as i64, recorded.skipped),
        (MAX_QUEUED, 1)
    );
    assert_eq!(submit(&store, WhenRunning::Wait), Submitted::Full);
}

#[test]
fn pages_go_back_in_time_and_a_list_has_no_long_texts() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    for at_ms in 1..=5 {
        record(&store, at_ms, WhenRunning::Refuse);
    }
    let page = |state, before, limit| {
        let filter = Filter {
            pipelines: Some(vec!["p".into()]),
            state,
            before,
            limit,
        };
        let runs = block(store.list(filter)).expect("runs");
        runs.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, None, 2), [5, 4]);
    assert_eq!(page(None, Some(4), 2), [3, 2]);
    assert_eq!(page(Some(RunState::Queued), None, 9), [1]);
    let run = block(store.get(1)).expect("a store").expect("a run");
    let outcome = Outcome {
        report: Some(serde_json::json!({ "rows": 1 })),
        ..Outcome::of_error(
            RunState::Failed,
            error("c", &"x".repeat(10_000), Some("do")),
        )
    };
    let ended = store.end(&run, &outcome, Wanted::default(), 9);
    assert_eq!(ended.expect("ended"), Told::default());
    let listed = store
        .look(Filter {
            before: Some(2),
            limit: 1,
            ..Filter::default()
        })
        .expect("runs");
    let error = listed[0].error.as_ref().expect("an error");
    assert_eq!(
        (error["code"].as_str(), error["hint"].as_str()),
        (Some("c"), Some("do"))
    );
    assert_eq!(error["message"].as_str().map(str::len), Some(1000));
    assert_eq!(listed[0].report, None);
    let whole = block(store.get(1)).expect("a store").expect("a run");
    assert_eq!((whole.error, whole.report), (outcome.error, outcome.report));
}

#[test]
fn the_store_of_a_newer_program_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("runs.db");
    let connection = Connection::open(&file).expect("a file");
    connection
        .pragma_update(None, "user_version", 7)
        .expect("a version");
    assert!(matches!(Store::open(&file), Err(RunsError::Version(7))));
}

#[test]
fn the_message_about_a_run_is_stored_with_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder);
    record(&store, 1, WhenRunning::Refuse);
    let run = store.begin(7).expect("a store").expect("a run");
    let wanted = Wanted {
        success: true,
        ..Wanted::default()
    };
    let outcome = Outcome {
        rows: Some(5),
        ..Outcome::of_error(RunState::Succeeded, serde_json::Value::Null)
    };
    let told = store.end(&run, &outcome, wanted, 9).expect("ended");
    assert_eq!(told.recorded, 1);
    drop(store);
    let store = open(&folder);
    let outbox = block(store.outbox("p".into())).expect("an outbox");
    assert_eq!((outbox.waiting, outbox.oldest_ms), (1, Some(9)));
}

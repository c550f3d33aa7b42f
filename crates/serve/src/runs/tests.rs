//! The timer and the threads, with real runs and a clock of the test.

use std::sync::atomic::{AtomicI64, Ordering};

use axum::extract::State;
use axum::http::HeaderMap;
use rapidbyte::Environment;

use super::*;

/// 2026-05-01T12:00:00Z
const NOON: i64 = 1_777_636_800_000;
const MINUTE_MS: i64 = 60_000;

struct Pipelines(Vec<Pipeline>);

impl PipelineSource for Pipelines {
    fn pipeline(&self, name: &str) -> Option<Pipeline> {
        self.0.iter().find(|one| one.name() == name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|one| one.name().to_owned()).collect()
    }
}

struct Test {
    folder: tempfile::TempDir,
    clock: Arc<AtomicI64>,
    /// The time at which the timer looked last.
    looked: Arc<AtomicI64>,
    /// The text of the only pipeline.
    text: String,
}

impl Test {
    /// A pipeline with more rows than a test waits for, each minute.
    fn endless(more: &str) -> Self {
        let text = rapidbyte::EXAMPLE_OF_MANY_ROWS;
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            clock: Arc::new(AtomicI64::new(NOON)),
            looked: Arc::default(),
            text: format!("{text}schedule: {{ cron: '* * * * *' }}\n{more}"),
        }
    }

    fn start_unscheduled(&self) -> Arc<Runs> {
        let environment = Environment::from_fn(|_| None).without_env_file();
        let folder = self.folder.path();
        let pipeline = Pipeline::from_str(&self.text, folder, &environment).expect("a pipeline");
        let cache = rapidbyte::user_cache().ok();
        let engine = Engine::builder().cache(cache).build().expect("an engine");
        let (clock, looked) = (Arc::clone(&self.clock), Arc::clone(&self.looked));
        let clock: Clock = Arc::new(move || {
            let now_ms = clock.load(Ordering::SeqCst);
            if std::thread::current().name() == Some(TIMER) {
                looked.store(now_ms, Ordering::SeqCst);
            }
            now_ms
        });
        let pipelines = Arc::new(Pipelines(vec![pipeline]));
        let runs = Runs::start_with(RunSettings::new(folder), engine, pipelines, clock);
        runs.expect("a server")
    }

    fn start(&self) -> Arc<Runs> {
        let runs = self.start_unscheduled();
        // A schedule begins with the first look at it.
        let file = self.folder.path().join(STORE);
        let store = rusqlite::Connection::open(file).expect("a store");
        let sql = "SELECT count(*) FROM schedule";
        while store
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .expect("a store")
            == 0
        {
            std::thread::yield_now();
        }
        runs
    }

    /// The clock goes on, and the timer looks at it.
    fn pass(&self, runs: &Runs, ms: i64) {
        let now_ms = self.clock.fetch_add(ms, Ordering::SeqCst) + ms;
        runs.pipelines_changed();
        while self.looked.load(Ordering::SeqCst) != now_ms {
            std::thread::yield_now();
        }
    }
}

/// All runs, the oldest first, once they are as they should be.
fn until(runs: &Runs, are_right: impl Fn(&[Run]) -> bool) -> Vec<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let mut changed = runs.shared.changed.subscribe();
    let limit = Duration::from_secs(60);
    let found = async {
        loop {
            changed.mark_unchanged();
            let filter = Filter {
                limit: 100,
                ..Filter::default()
            };
            let mut found = runs.shared.store.list(filter).await.expect("runs");
            found.reverse();
            if are_right(&found) {
                return found;
            }
            let next = tokio::time::timeout(limit, changed.changed());
            next.await
                .unwrap_or_else(|_| panic!("{found:#?}"))
                .expect("a server");
        }
    };
    runtime.expect("a runtime").block_on(found)
}

fn states(runs: &[Run]) -> Vec<RunState> {
    runs.iter().map(|run| run.state).collect()
}

#[test]
fn a_schedule_that_is_new_begins_with_its_next_time_and_overlaps_are_skipped() {
    let test = Test::endless("");
    let runs = test.start();
    test.pass(&runs, MINUTE_MS);
    let first = until(&runs, |found| states(found) == [RunState::Running]);
    assert_eq!(
        (first[0].scheduled_ms, first[0].trigger),
        (Some(NOON + MINUTE_MS), Trigger::Schedule)
    );
    test.pass(&runs, MINUTE_MS);
    let both = until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Skipped]
    });
    let reason = both[1].error.as_ref().expect("a reason");
    assert_eq!(reason["code"], "already_running");
    assert_eq!(reason["message"], "the run 1 of the pipeline was active");
    assert_eq!(runs.cancel(1).expect("cancelled"), Cancelled::Yes);
    let ended = until(&runs, |found| {
        states(found) == [RunState::Cancelled, RunState::Skipped]
    });
    assert_eq!(
        ended[0].error.as_ref().map(|error| &error["code"]),
        Some(&"cancelled".into())
    );
    assert_eq!(runs.cancel(1).expect("an answer"), Cancelled::NotActive);
    runs.stop();
}

#[test]
fn a_pipeline_is_behind_since_the_first_run_that_was_due_after_its_last_success() {
    let test = Test::endless("");
    let runs = test.start();
    let pipeline = runs.shared.pipelines.pipeline("many").expect("a pipeline");
    let lag = |pipeline: &Pipeline| {
        let standings = runs.stand(std::slice::from_ref(pipeline), 1);
        let standing = standings.expect("standings").remove("many");
        let standing = standing.expect("the pipeline");
        (
            standing.lag_ms,
            standing.next_ms.map(|next_ms| next_ms - NOON),
        )
    };
    assert_eq!(lag(&pipeline), (Some(0), Some(MINUTE_MS)));
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| states(found) == [RunState::Running]);
    // The run at work has not succeeded.
    test.pass(&runs, 90_000);
    assert_eq!(lag(&pipeline), (Some(90_000), Some(3 * MINUTE_MS)));
    runs.cancel(1).expect("cancelled");
    until(&runs, |found| found[0].state == RunState::Cancelled);
    assert_eq!(lag(&pipeline).0, Some(90_000));
    // A run that began at 12:02:10 and succeeded is of all fires up to 12:02.
    let store = rusqlite::Connection::open(test.folder.path().join(STORE)).expect("a store");
    store
        .execute(
            "UPDATE run SET state = 'succeeded', started_ms = ?1 WHERE id = 1",
            [NOON + 130_000],
        )
        .expect("changed");
    assert_eq!(lag(&pipeline).0, Some(0));
    test.pass(&runs, 45_000);
    assert_eq!(lag(&pipeline).0, Some(15_000));
    // Without a schedule a pipeline is never behind.
    let environment = Environment::from_fn(|_| None).without_env_file();
    let text = rapidbyte::EXAMPLE_OF_MANY_ROWS;
    let unscheduled = Pipeline::from_str(text, test.folder.path(), &environment);
    assert_eq!(lag(&unscheduled.expect("a pipeline")), (None, None));
    let ended = runs.ended();
    assert_eq!(ended.get(&("many".to_owned(), "cancelled")), Some(&1));
    assert!(
        ended.get(&("many".to_owned(), "skipped")) >= Some(&1),
        "{ended:?}"
    );
    runs.stop();
}

#[test]
fn a_stop_keeps_the_queue_and_the_next_start_resumes() {
    let test = Test::endless("when_running: wait\n");
    let runs = test.start();
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| states(found) == [RunState::Running]);
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Queued]
    });
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Queued, RunState::Skipped]
    });
    runs.stop();
    // The one that waits does what the interrupted one would do.
    let stopped = runs.last(None, 10).expect("runs");
    let stopped: Vec<RunState> = stopped.iter().rev().map(|run| run.state).collect();
    assert_eq!(
        stopped,
        [RunState::Interrupted, RunState::Queued, RunState::Skipped]
    );
    drop(runs);
    let runs = test.start();
    until(&runs, |found| found[1].state == RunState::Running);
    runs.stop();
    let resumed = runs.last(None, 1).expect("runs");
    assert_eq!(
        (resumed[0].state, resumed[0].resumes, resumed[0].attempt),
        (RunState::Queued, Some(2), 1)
    );
}

#[test]
fn a_queued_run_is_cancelled_before_it_begins() {
    let test = Test::endless("when_running: wait\n");
    let runs = test.start();
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| states(found) == [RunState::Running]);
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Queued]
    });
    assert_eq!(runs.cancel(2).expect("cancelled"), Cancelled::Yes);
    until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Cancelled]
    });
    runs.stop();
}

#[test]
fn a_clock_that_jumps_an_hour_back_and_on_begins_no_run_twice() {
    // These runs end by themselves: the folder of the source is missing.
    let mut test = Test::endless("");
    let text = rapidbyte::EXAMPLE;
    test.text = format!("{text}schedule: {{ cron: '* * * * *', catchup: all }}\n");
    let runs = test.start();
    let ended = |count| {
        move |found: &[Run]| found.len() == count && found.iter().all(|run| run.state.is_end())
    };
    test.pass(&runs, 3 * MINUTE_MS);
    let first = until(&runs, ended(3));
    assert!(
        first.iter().all(|run| run.state == RunState::Failed),
        "{first:#?}"
    );
    test.pass(&runs, -60 * MINUTE_MS);
    test.pass(&runs, 59 * MINUTE_MS);
    test.pass(&runs, 3 * MINUTE_MS);
    let all = until(&runs, ended(5));
    let times: Vec<i64> = all.iter().filter_map(|run| run.scheduled_ms).collect();
    assert_eq!(
        times,
        (1..=5)
            .map(|minute| NOON + minute * MINUTE_MS)
            .collect::<Vec<_>>()
    );
    runs.stop();
}

#[test]
fn a_pipeline_that_is_gone_fails_its_run() {
    let test = Test::endless("");
    let runs = test.start();
    let store = &runs.shared.store;
    let submitted = store.submit(
        "gone".into(),
        Options::default(),
        rapidbyte::WhenRunning::Refuse,
        1,
    );
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime
        .expect("a runtime")
        .block_on(submitted)
        .expect("queued");
    runs.shared.queued();
    let found = until(&runs, |found| {
        found.first().is_some_and(|run| run.state.is_end())
    });
    assert_eq!(
        found[0].error.as_ref().map(|error| &error["code"]),
        Some(&"unknown_pipeline".into())
    );
    runs.stop();
}

#[test]
fn a_schedule_that_was_removed_and_comes_back_is_new() {
    let mut test = Test::endless("");
    test.start().stop();
    let scheduled = std::mem::replace(&mut test.text, rapidbyte::EXAMPLE_OF_MANY_ROWS.to_owned());
    let runs = test.start_unscheduled();
    test.pass(&runs, 60 * MINUTE_MS);
    runs.stop();
    test.text = scheduled;
    let runs = test.start();
    test.pass(&runs, 1);
    runs.stop();
    assert_eq!(runs.last(None, 9).expect("runs"), []);
}

/// A server that waits for its open requests does not wait for a run.
#[test]
fn the_end_of_the_server_ends_the_streams_of_events() {
    let test = Test::endless("when_running: wait\n");
    let runs = test.start();
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| states(found) == [RunState::Running]);
    test.pass(&runs, MINUTE_MS);
    until(&runs, |found| {
        states(found) == [RunState::Running, RunState::Queued]
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let bodies = runtime.expect("a runtime").block_on(async {
        let mut bodies = Vec::new();
        for id in 1..=2 {
            let asked = http::events(
                State(Arc::clone(&runs)),
                crate::request::Place(id.to_string()),
                crate::access::Granted::everything(),
                HeaderMap::new(),
            )
            .await;
            bodies.push(asked.expect("an answer").into_body());
        }
        runs.end();
        let mut texts = Vec::new();
        for body in bodies {
            let whole = axum::body::to_bytes(body, 1 << 20);
            let whole = tokio::time::timeout(Duration::from_secs(30), whole).await;
            let bytes = whole.expect("the stream ends").expect("a body");
            texts.push(String::from_utf8(bytes.to_vec()).expect("text"));
        }
        texts
    });
    assert!(
        bodies[0].contains("event: end\n") && bodies[0].contains("\"interrupted\""),
        "{bodies:#?}"
    );
    assert!(!bodies[1].contains("event: end\n"), "{bodies:#?}");
    runs.stop();
}

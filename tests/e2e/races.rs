//! Two runs of one pipeline at once, and a run that is stopped in the middle of its commit and continues
//! after its successor: nothing is doubled or lost, and nobody waits for ever.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::faults::{number, points};
use crate::network::until;
use crate::support::{Ended, Folder};
use crate::wired::{Bench, HANGS, NAMES, Run, end_of, named};

/// Races with a stopped run in a run of all tests; `RAPIDBYTE_FAULTS_RACES` sets another number.
const SELECTED: usize = 8;
const WORKERS: usize = 3;
/// The failpoints of the first races: where an older run does the most harm.
const FIRST: [&str; 8] = [
    "dest-postgres.checkpointing",
    "dest-postgres.flushed",
    "dest-postgres.commit_sent",
    "dest-postgres.fence_committed",
    "dest-postgres.merged",
    "engine.commit",
    "dest-postgres.committed",
    "dest-postgres.cleared",
];

/// Each failpoint of the destination and the engine with each scenario. The failpoints of [`FIRST`] come
/// first, each with a scenario that reaches it.
fn races() -> Vec<(String, usize)> {
    let reaches = [2, 4, 0, 3, 4, 1, 2, 1];
    let first = FIRST.map(str::to_owned).into_iter().zip(reaches);
    let all: BTreeSet<String> = points();
    let mut races: Vec<(String, usize)> = first.collect();
    for round in 0..NAMES.len() {
        for (n, point) in all.iter().enumerate() {
            let race = (point.clone(), (n + round) % NAMES.len());
            let is_of_the_commit =
                point.starts_with("dest-postgres.") || point.starts_with("engine.");
            if is_of_the_commit && !races.contains(&race) {
                races.push(race);
            }
        }
    }
    races
}

/// A run that stops itself, as by SIGSTOP.
struct Stopped {
    child: Child,
    /// Its standard error, up to its end.
    told: JoinHandle<String>,
}

impl Stopped {
    /// Nothing when the run does not come by the point and has ended.
    fn at(run: &Run<'_>, point: &str) -> Result<Self, Ended> {
        let mut child = run.start(&format!("{point}=stop"));
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (tell, told_of) = mpsc::channel();
        let told = std::thread::spawn(move || {
            let mut told = String::new();
            for line in lines {
                let line = line.expect("UTF-8");
                if line.starts_with("fault: ") {
                    // Nobody listens to the second one.
                    let _ = tell.send(());
                }
                told += &line;
                told.push('\n');
            }
            told
        });
        match told_of.recv_timeout(HANGS) {
            Ok(()) => {
                let stat = format!("/proc/{}/stat", child.id());
                let is_stopped = || {
                    let stat = std::fs::read_to_string(&stat).expect("a process");
                    stat.rsplit_once(") ")
                        .is_some_and(|(_, rest)| rest.starts_with('T'))
                };
                until(is_stopped, "the run has stopped");
                Ok(Self { child, told })
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Self { child, told }.end(point)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill().expect("killed");
                panic!("it hangs before {point}");
            }
        }
    }

    /// Goes on, to its end.
    fn goes_on(self, about: &str) -> Ended {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it is there");
        self.end(about)
    }

    fn end(self, about: &str) -> Ended {
        let mut ended = end_of(self.child, about);
        ended.stderr = self.told.join().expect("read");
        ended
    }
}

/// Whether both runs of a scenario with `deletes` ended because of each other.
fn both_gave_up(scenario: &str, codes: &[Option<String>]) -> bool {
    let is_superseded = |code: &Option<String>| code.as_deref() == Some("run_superseded");
    scenario.contains("deletes") && codes.iter().all(is_superseded)
}

/// The code of an error, nothing of a run that went well.
#[track_caller]
fn code_of(ended: &Ended, about: &str) -> Option<String> {
    assert!(!ended.stderr.contains("panicked"), "{about}: {ended:?}");
    if ended.code == Some(0) {
        return None;
    }
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let code = document["error"]["code"].as_str().expect("a code");
    let message = document["error"]["message"].as_str().expect("a message");
    match code {
        // The message says which run fenced this one.
        "run_superseded" => assert!(
            message.contains("newer run") || message.contains("resumed the stream again"),
            "{about}: {message}"
        ),
        // Two first runs that make one schema or table: one of them finds it made.
        "table_appeared" | "target_missing" | "connection_lost" | "snapshot_gone" => {}
        // The division by zero is how the server refuses the commit of an older run.
        code if code.starts_with("pg_") && code != "pg_22012" => {}
        _ => panic!("{about}: {document:#}"),
    }
    Some(code.to_owned())
}

fn newer_replaces() -> Bench {
    let mut bench = Bench::new();
    bench.replaces = true;
    bench
}

/// A table that takes rows twice, for a pipeline that adds.
fn prepare(run: &mut Run<'_>) {
    if run.adds() {
        let sql = "CREATE SCHEMA raw; \
                   CREATE TABLE raw.t (id bigint NOT NULL, at timestamptz, gone boolean, v text)";
        run.target.client().batch_execute(sql).expect("a table");
    }
    run.prepare();
}

/// Checks the rows of a stopped run and its successor; false when the run does not reach the failpoint.
fn race(bench: &mut Bench, (point, scenario): &(String, usize), is_apart: bool) -> bool {
    let scenario = named(NAMES[*scenario]);
    let about = format!("{point}, {}, apart: {is_apart}", scenario.name);
    let mut run = bench.begin(scenario);
    prepare(&mut run);
    let Ok(older) = Stopped::at(&run, point) else {
        return false;
    };
    let elsewhere = Folder::new();
    let folder = if is_apart { &elsewhere } else { &run.folder };
    let newer = end_of(run.start_in(folder, ""), &about);
    assert_eq!(newer.code, Some(0), "{about}: {newer:?}");
    let older = older.goes_on(&about);
    let code = code_of(&older, &about);
    println!(
        "races: {about}: {} {}",
        code.as_deref().unwrap_or("well"),
        older.stderr
    );
    settle(&mut run, &[&newer, &older], &about);
    true
}

/// Of a pipeline that adds, each run that went well has added once; of the others one more run
/// changes nothing that is not to be changed.
#[track_caller]
fn settle(run: &mut Run<'_>, ended: &[&Ended], about: &str) {
    if run.adds() {
        let went_well = ended.iter().filter(|ended| ended.code == Some(0));
        // Some run whose answer was lost may have added its rows: it goes on and is done with.
        run.holds(went_well.count(), about);
    } else {
        run.is_right(about);
        run.goes_well();
        run.is_right(about);
        run.change();
        run.goes_well();
        run.is_right(&format!("after {about}"));
    }
}

#[test]
fn a_run_that_wakes_up_after_its_successor_doubles_nothing() {
    let wanted = number("RAPIDBYTE_FAULTS_RACES").map_or(SELECTED, |races| races as usize);
    let races = races();
    let (next, fired) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut bench = newer_replaces();
                while fired.load(Ordering::SeqCst) < wanted {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    let Some(case) = races.get(n) else { return };
                    if race(&mut bench, case, n % 2 == 1) {
                        fired.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let fired = fired.load(Ordering::SeqCst);
    println!("races: {fired} with a stopped run");
    assert!(fired >= wanted, "{fired} of {wanted}");
}

/// Both start at the same moment. In two directories neither knows of the other.
#[test]
fn two_runs_at_once_lose_nothing_and_double_nothing() {
    let mut bench = newer_replaces();
    let rounds = number("RAPIDBYTE_FAULTS_RACES").map_or(1, |races| races.div_ceil(10));
    for round in 0..rounds {
        for scenario in NAMES.map(named) {
            for is_apart in [false, true] {
                let about = format!(
                    "{} at once, round {round}, apart: {is_apart}",
                    scenario.name
                );
                let mut run = bench.begin(scenario);
                prepare(&mut run);
                let elsewhere = Folder::new();
                let folder = if is_apart { &elsewhere } else { &run.folder };
                let one = run.start("");
                let other = run.start_in(folder, "");
                let (one, other) = (end_of(one, &about), end_of(other, &about));
                let codes = [code_of(&one, &about), code_of(&other, &about)];
                println!("races: {about}: {codes:?}");
                // A run that compares keys gives up if the run that it fences had fenced after its plan: then both end.
                let gave_up = both_gave_up(scenario.name, &codes);
                assert!(
                    codes.contains(&None) || gave_up,
                    "{about}: {one:?} {other:?}"
                );
                if gave_up {
                    // Neither has changed the target: that is left to the next run.
                    run.goes_well();
                }
                settle(&mut run, &[&one, &other], &about);
            }
        }
    }
}

/// The older run meets a cursor beyond its snapshot, a file that the newer run has removed, or a commit
/// that is refused: each time it says that it was overtaken.
#[test]
fn a_run_that_was_overtaken_says_so_whatever_it_meets() {
    let mut bench = newer_replaces();
    for (point, scenario) in [
        ("dest-postgres.fencing", "incremental exact"),
        ("dest-postgres.checkpointing", "upsert"),
        (
            "dest-file.manifest_linked",
            "files, incremental append, begun anew",
        ),
        ("dest-file.linking", "files, incremental append"),
    ] {
        let about = format!("{point}, {scenario}");
        let mut run = bench.begin(named(scenario));
        prepare(&mut run);
        let older = Stopped::at(&run, point).expect("it comes by");
        run.change();
        let newer = end_of(run.start(""), &about);
        assert_eq!(newer.code, Some(0), "{about}: {newer:?}");
        let older = older.goes_on(&about);
        assert_eq!(older.code, Some(1), "{about}: {older:?}");
        let code = code_of(&older, &about);
        assert_eq!(code.as_deref(), Some("run_superseded"), "{about}");
        run.is_right(&about);
    }
}

//! The delivery rule under faults: anything may be killed at any time, and after another run every
//! row is there once.
//!
//! A scan finds every failpoint of the sources (`point("…")`, `point_of_run("…")`). A case is a
//! scenario, a failpoint, the fault there, and the hit at which the fault fires. `cargo xtask test`
//! runs a selection, `cargo xtask faults` all of them: `RAPIDBYTE_FAULTS_CASES` says how many,
//! `RAPIDBYTE_FAULTS_SEED` which.

mod drift;
mod fire;
mod random;
pub mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rapidbyte_testkit::numbers::Numbers;
use scenario::{SCENARIOS, SWAP};

use crate::wired::Bench;

/// The faults at a failpoint. The run itself retries after an injected error.
pub const ACTIONS: [&str; 4] = ["kill", "error", "panic", "stall"];
/// The hits of a failpoint at which a fault fires: the first or the third one.
const HITS: [u32; 2] = [1, 3];
/// Failpoints that a run reaches only if a COMMIT gets no answer; `tests/e2e/network.rs` tests them.
pub const UNANSWERED: [&str; 2] = ["dest-postgres.settling", "dest-postgres.settled"];
/// Cases of a run of all tests; `cargo xtask faults` runs more.
const SELECTED: usize = 24;

/// One fault, and perhaps another one while the run is made good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    scenario: usize,
    point: String,
    action: &'static str,
    hit: u32,
    /// The failpoint at which the recovery is killed, too.
    second: Option<String>,
}

pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is {text:?}, which is not a number")))
}

/// The Rust files of the host and of the bundled connectors.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = ["crates/engine/src", "crates/runtime/src", "connectors"]
        .map(|folder| root.join(folder))
        .into();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_owned();
            if path.is_dir() && name != "target" && name != "tests" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// The names of all points.
pub fn points() -> BTreeSet<String> {
    let mut points = BTreeSet::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        for (at, _) in text.match_indices("point") {
            let call = text[at..].trim_start_matches("point");
            let Some(name) = call.trim_start_matches("_of_run").strip_prefix("(\"") else {
                continue;
            };
            let name = name.split('"').next().unwrap_or_default();
            // A name has its owner in front. `dest_mongodb.rs`, `mongodb.rs`, `dest_cosmos.rs` and `dest_opensearch.rs` have
            // the failpoints of these.
            let owner = name.split('.').next().unwrap_or_default();
            let elsewhere = ["-mongodb", "-cosmos", "-opensearch"];
            let is_elsewhere = elsewhere.iter().any(|end| owner.ends_with(end));
            if name.contains('.') && !is_elsewhere {
                points.insert(name.to_owned());
            }
        }
    }
    points
}

/// Every point with every action in every scenario, in an order that the seed decides; but each
/// point with each action comes once before any comes twice.
fn cases(seed: u64) -> Vec<Case> {
    let mut numbers = Numbers::new(seed);
    let points: Vec<String> = points().into_iter().collect();
    let mut all = Vec::new();
    for (scenario, about) in SCENARIOS.iter().enumerate() {
        // The other destination's points are not reached.
        let other = match about.through_files {
            true => "dest-postgres.",
            false => "dest-file.",
        };
        for point in points.iter().filter(|point| !point.starts_with(other)) {
            for action in ACTIONS {
                for hit in HITS {
                    let second = numbers.below(points.len() * 2);
                    all.push(Case {
                        scenario,
                        point: point.clone(),
                        action,
                        hit,
                        second: points.get(second).cloned(),
                    });
                }
            }
        }
    }
    for at in (1..all.len()).rev() {
        all.swap(at, numbers.below(at + 1));
    }
    let mut seen: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let round = |case: &Case, seen: &mut BTreeMap<(String, &'static str), usize>| {
        let times = seen.entry((case.point.clone(), case.action)).or_default();
        *times += 1;
        *times
    };
    let mut rounds: Vec<(usize, Case)> = all
        .into_iter()
        .map(|case| (round(&case, &mut seen), case))
        .collect();
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, case)| case).collect()
}

/// Runs cases until `wanted` faults have fired; a case whose failpoint is not reached does not count.
/// `completes` also runs the cases of failpoints that have not fired. Gives the number of faults, and the
/// failpoints that never fired, each with its action.
fn sweep(wanted: usize, seed: u64, completes: bool) -> (usize, BTreeSet<(String, &'static str)>) {
    let mut bench = Bench::new();
    let mut missing: BTreeSet<(String, &'static str)> = points()
        .into_iter()
        .flat_map(|point| ACTIONS.map(|action| (point.clone(), action)))
        .collect();
    let mut fired = 0;
    for case in cases(seed) {
        let is_new = missing.contains(&(case.point.clone(), case.action));
        if fired >= wanted && !(is_new && completes) {
            continue;
        }
        if scenario::run(&mut bench, &case) {
            fired += 1;
            missing.remove(&(case.point.clone(), case.action));
        }
    }
    (fired, missing)
}

#[test]
fn every_row_is_there_once_whatever_was_killed() {
    let all = number("RAPIDBYTE_FAULTS_CASES");
    let wanted = all.map_or(SELECTED, |cases| cases as usize);
    let seed = number("RAPIDBYTE_FAULTS_SEED").unwrap_or(1);
    let (fired, missing) = sweep(wanted, seed, all.is_some());
    println!("faults: {fired} cases, seed {seed}");
    if all.is_some() {
        let missing: Vec<_> = missing
            .iter()
            .filter(|(point, _)| !UNANSWERED.contains(&point.as_str()))
            .collect();
        assert!(missing.is_empty(), "not reached: {missing:?}");
    }
}

#[test]
fn a_swap_that_is_killed_leaves_the_old_table_or_the_new_one() {
    let mut bench = Bench::new();
    let mut names = SCENARIOS.iter().map(|scenario| scenario.name);
    let scenario = names.position(|name| name == SWAP).expect("a scenario");
    // The tables are exchanged in the transaction; then the commit is on its way.
    for point in ["dest-postgres.checkpointing", "dest-postgres.commit_sent"] {
        let case = Case {
            scenario,
            point: point.into(),
            action: "kill",
            hit: 1,
            second: None,
        };
        assert!(scenario::run(&mut bench, &case), "{point} is not reached");
    }
}

#[test]
fn points_are_found_and_each_has_an_owner() {
    let points = points();
    for owner in [
        "engine.",
        "source-postgres.",
        "dest-postgres.",
        "dest-file.",
    ] {
        let of_owner = points.iter().filter(|point| point.starts_with(owner));
        assert!(of_owner.count() >= 2, "{owner} in {points:?}");
    }
    let cases = cases(1);
    let first: BTreeSet<(&str, &str)> = cases[..points.len() * ACTIONS.len()]
        .iter()
        .map(|case| (case.point.as_str(), case.action))
        .collect();
    assert_eq!(first.len(), points.len() * ACTIONS.len());
}

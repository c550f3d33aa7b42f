//! Runs into MongoDB that are killed at moments that nobody chose: no document is lost, doubled or changed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rapidbyte_mongo_client::bson::{Builder, Document, Value as Bson};
use rapidbyte_testkit::mongodb;
use rapidbyte_testkit::numbers::Numbers;

use crate::copied_documents::{Copies as _, Driver as _, Scenario};
use crate::dest_mongodb::{Copied, SCENARIOS, client, each, find};

/// Kills in each test; `RAPIDBYTE_KILLS` for a longer run.
const KILLS: usize = 8;
/// Kills of one pipeline before a run may end, and so resumes of resumes.
const KILLS_OF_A_ROUND: usize = 3;
/// A round without a kill is one whose runs were faster than its moments.
const MAX_ROUNDS_OF_A_KILL: usize = 10;

/// Every field of a document that a row of the source has.
type Row = (i64, i64, bool, String);

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

fn row(document: Document<'_>) -> Row {
    let get = |name: &str| document.get(name).expect("BSON");
    match (get("id"), get("at"), get("gone"), get("v")) {
        (Some(id), Some(Bson::DateTime(at)), Some(Bson::Boolean(gone)), Some(Bson::String(v))) => {
            (id.as_whole().expect("a number"), at, gone, v.to_owned())
        }
        other => panic!("{other:?}"),
    }
}

impl Copied {
    /// The target has each row of the source once, every field the same.
    #[track_caller]
    fn has_every_row_once(&self, scenario: &Scenario, about: &str) {
        let sql = scenario.expected.replace(
            "id, v",
            "id, (extract(epoch FROM at) * 1000)::int8, gone, v",
        );
        let rows = self.source.client().query(&sql, &[]).expect("rows");
        let mut expected: Vec<Row> = rows
            .iter()
            .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
            .collect();
        let mut found = Vec::new();
        each(&self.target, find("t"), |document| {
            found.push(row(document))
        });
        expected.sort();
        found.sort();
        assert_eq!(found.len(), expected.len(), "{about}");
        assert_eq!(found, expected, "{about}");
        self.is_right(scenario, about);
    }

    /// Whether the history has a good end of the last run.
    fn newest_is_done(&self) -> bool {
        let ended = self
            .folder
            .rapidbyte(&["runs", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        let runs: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        runs["runs"][0]["status"] == "ok"
    }
}

/// Rows from this number on, of a day behind those that were read: so many that most of a run is writes and commits.
fn add_rows(copied: &Copied, day: &str, from: i64, to: i64) {
    let sql = format!(
        "INSERT INTO t SELECT i, timestamptz '{day}' + i * interval '1 second', false, 'more' || i
         FROM generate_series({from}::int8, {to} - 1) i"
    );
    copied.source.client().batch_execute(&sql).expect("rows");
}

#[test]
fn runs_that_are_killed_at_random_leave_every_document_once() {
    if mongodb::shared().is_none() {
        return;
    }
    let wanted = number("RAPIDBYTE_KILLS").map_or(KILLS, |kills| kills as usize);
    let mut numbers = Numbers::new(number("RAPIDBYTE_FAULTS_SEED").unwrap_or(1));
    let (mut killed, mut rounds) = (0, 0);
    while killed < wanted {
        assert!(
            rounds < wanted * MAX_ROUNDS_OF_A_KILL,
            "{killed} kills in {rounds} rounds"
        );
        let scenario = &SCENARIOS[rounds % SCENARIOS.len()];
        rounds += 1;
        let copied = Copied::new(scenario).expect("the server is there");
        copied
            .folder
            .write("p.yaml", copied.pipeline(scenario, None));
        add_rows(&copied, "2026-01-15", 2_000, 6_000);
        // The first run, of a table that is not there, is killed in one scenario of four.
        let is_second = !scenario.change.is_empty();
        let begun = Instant::now();
        if is_second {
            copied.runs();
            add_rows(&copied, "2026-03-01", 10_000, 14_000);
            copied.change(scenario.change);
        } else {
            let ended = copied.folder.rapidbyte(&["check", "p.yaml"]);
            assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        }
        // A moment within such a run on this machine.
        let longest = begun.elapsed().as_millis().clamp(1, 10_000) as usize;
        let mut is_done = false;
        for _ in 0..KILLS_OF_A_ROUND {
            let mut child = copied
                .folder
                .command(&["run", "p.yaml", "--quiet"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the program starts");
            // The moment is the fault: no matter what the program does by then.
            std::thread::sleep(Duration::from_millis(numbers.below(longest) as u64));
            child.kill().expect("killed");
            let has_ended = child.wait().expect("it ends").success();
            killed += usize::from(!has_ended);
            // A full refresh that appends would add its rows again after a good end. Between the last word in the
            // history and its end a process can be killed, too.
            is_done = has_ended || copied.newest_is_done();
            if !is_second && is_done {
                break;
            }
        }
        if is_second || !is_done {
            copied.runs();
        }
        let about = format!("{}, round {rounds}, {killed} kills", scenario.write);
        copied.has_every_row_once(scenario, &about);
        // The server has all databases in memory.
        let mut drop = Builder::new();
        drop.int32("dropDatabase", 1);
        let dropped = client(&copied.target).command(copied.target.name(), drop);
        dropped.expect("an answer");
    }
    println!("mongodb: {rounds} rounds, {killed} kills");
}

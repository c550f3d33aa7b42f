//! The pipelines that run while something breaks, and the rows that must be there afterwards.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rapidbyte_testkit::postgres::Client;

use super::Case;
use crate::wired::{Bench, FILES, Run};

/// A pipeline between two databases, and what happens to its source meanwhile.
pub struct Scenario {
    pub name: &'static str,
    /// Made once.
    pub seed: &'static str,
    /// SQL that changes the source before the run with the fault; `$N` is a number that grows.
    pub change: &'static str,
    /// A run copies rows before that change, so that the next one resumes or replaces something.
    pub moves_before: bool,
    pub streams: &'static str,
    pub write: &'static str,
    /// More keys of the database's `config`, each with a comma before it.
    pub config: &'static str,
    /// The rows that the target must hold, as a query on the source.
    pub expected: &'static str,
    /// Another run without a reason adds the rows again.
    pub adds: bool,
    /// All rows of a run appear in one moment.
    pub is_whole: bool,
    /// The rows go to files, and from there to the target only to be compared.
    pub through_files: bool,
    /// The run with the fault begins anew.
    pub full_refresh: bool,
}

/// Ties, NULLs and a few hundred rows for each batch to come.
const SEED: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, gone boolean, v text);
INSERT INTO t SELECT i, timestamptz '2026-01-01' + (i / 7) * interval '1 second', false, 'v' || i
    FROM generate_series(1, 900) i;
INSERT INTO t SELECT i, NULL, false, 'null' FROM generate_series(901, 905) i;";

/// New rows, changed rows, deleted ones.
const CHANGE: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + $N * interval '1 hour' + (i % 1000 / 7) * interval '1 second',
    false, 'new' || i FROM generate_series($N * 1000, $N * 1000 + 700) i;
UPDATE t SET v = v || '+', gone = id % 20 = 0,
    at = timestamptz '2026-02-01' + $N * interval '1 hour' + interval '30 minutes'
    WHERE id % 10 = 0 AND at IS NOT NULL;";

const ADDED: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + $N * interval '1 hour' + (i % 1000 / 7) * interval '1 second',
    false, 'new' || i FROM generate_series($N * 1000, $N * 1000 + 700) i;";

/// New rows, changed rows, and rows that go without a trace.
const LESS: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + $N * interval '1 hour' + (i % 1000 / 7) * interval '1 second',
    false, 'new' || i FROM generate_series($N * 1000, $N * 1000 + 700) i;
UPDATE t SET v = v || '+', at = timestamptz '2026-02-01' + $N * interval '1 hour' + interval '30 minutes'
    WHERE id % 10 = 0 AND at IS NOT NULL;
DELETE FROM t WHERE id % 11 = $N % 11 AND id % 10 <> 0;";

/// Rows that are only added, read on from where the last run ended.
const GROWS: Scenario = Scenario {
    name: "incremental append",
    seed: SEED,
    change: ADDED,
    moves_before: true,
    streams: "[{ name: public.t, sync_mode: incremental, cursor_field: [at, id] }]",
    write: "write_mode: append",
    config: "",
    expected: "SELECT * FROM t",
    adds: false,
    is_whole: false,
    through_files: false,
    full_refresh: false,
};

/// All rows, once.
const APPEND: Scenario = Scenario {
    name: "append",
    change: "",
    moves_before: false,
    streams: "[public.t]",
    adds: true,
    is_whole: true,
    ..GROWS
};

/// All rows in the place of those before.
const REPLACE: Scenario = Scenario {
    name: "replace",
    change: CHANGE,
    streams: "[public.t]",
    write: "write_mode: replace",
    is_whole: true,
    ..GROWS
};

/// The name of the scenario in which a new table takes the place of the old one.
pub const SWAP: &str = "replace by a swap";

pub const SCENARIOS: &[Scenario] = &[
    APPEND,
    REPLACE,
    GROWS,
    Scenario {
        name: "incremental exact",
        streams: "[{ name: public.t, sync_mode: incremental, change_detection: xmin }]",
        is_whole: true,
        ..GROWS
    },
    Scenario {
        name: "upsert",
        change: CHANGE,
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute }]",
        write: "write_mode: upsert\n  deleted_field: gone",
        expected: "SELECT * FROM t WHERE NOT gone",
        ..GROWS
    },
    Scenario {
        name: "append with a lag",
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute, primary_key: [id] }]",
        ..GROWS
    },
    Scenario {
        name: SWAP,
        config: ", replace_method: swap",
        ..REPLACE
    },
    Scenario {
        name: "files, append",
        is_whole: false,
        through_files: true,
        ..APPEND
    },
    Scenario {
        name: "files, incremental append",
        through_files: true,
        ..GROWS
    },
    Scenario {
        name: "files, replace",
        is_whole: false,
        through_files: true,
        ..REPLACE
    },
    Scenario {
        name: "upsert with deletes",
        change: LESS,
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute, \
            deletes: { mode: compare, max_share: 0.5 } }]",
        write: "write_mode: upsert",
        ..GROWS
    },
    Scenario {
        name: "incremental append, begun anew",
        full_refresh: true,
        ..GROWS
    },
    Scenario {
        name: "files, incremental append, begun anew",
        through_files: true,
        full_refresh: true,
        ..GROWS
    },
];

/// Rows of the target.
fn count(client: &mut Client) -> i64 {
    let row = client.query_one("SELECT count(*) FROM raw.t", &[]);
    row.expect("a count").get(0)
}

/// The time until a [`Reader`] looks again. A destination takes longer between two commits. Without a pause the
/// reader and its server take as much CPU time as the run.
const LOOKS_AGAIN: Duration = Duration::from_millis(1);

/// Somebody who looks at the target all the time.
struct Reader {
    done: Arc<AtomicBool>,
    /// The numbers of rows that were there. `None` where the table was not.
    seen: JoinHandle<BTreeSet<Option<i64>>>,
}

impl Reader {
    fn start(mut client: Client) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&done);
        let seen = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !ends.load(Ordering::Relaxed) {
                let rows = client.query_one("SELECT count(*) FROM raw.t", &[]);
                seen.insert(rows.ok().map(|row| row.get(0)));
                std::thread::sleep(LOOKS_AGAIN);
            }
            seen
        });
        Self { done, seen }
    }

    fn stop(self) -> BTreeSet<Option<i64>> {
        self.done.store(true, Ordering::Relaxed);
        self.seen.join().expect("a reader")
    }
}

/// How a run with a fault in it ended.
#[derive(Debug)]
pub struct Broken {
    /// The fault happened.
    pub fired: bool,
    pub is_ok: bool,
    /// Its standard error and standard output.
    pub told: String,
}

/// Runs a case; false when its point was not reached.
pub fn run(bench: &mut Bench, case: &Case) -> bool {
    let scenario = &SCENARIOS[case.scenario];
    let mut run = bench.begin(scenario);
    run.prepare();
    let mut client = run.target.client();
    let before = scenario
        .is_whole
        .then(|| scenario.moves_before.then(|| count(&mut client)));
    let fault = format!("{}={}@{}", case.point, case.action, case.hit);
    let reader = Reader::start(run.target.client());
    let broken = breaks(&run, &fault);
    let about = format!("{}: {case:?}: {}", scenario.name, broken.told);
    cursor_is_not_ahead(&mut client, &about);
    let mut is_ok = broken.is_ok;
    if let (Some(second), true, false) = (&case.second, broken.fired, is_ok) {
        is_ok = breaks(&run, &format!("{second}=kill")).is_ok;
    }
    // An appended table is complete after the run that did not fail, and only then.
    if !(scenario.adds && is_ok) {
        run.goes_well();
    }
    let seen = reader.stop();
    run.is_right(&about);
    nothing_is_left(&run, &mut client, &about);
    if let Some(before) = before {
        let whole = [before, Some(count(&mut client))];
        assert!(
            seen.iter().all(|rows| whole.contains(rows)),
            "{seen:?} {about}"
        );
    }
    if !scenario.adds {
        run.change();
        run.goes_well();
        run.is_right(&format!("{}: after {case:?}", scenario.name));
    }
    broken.fired
}

/// Runs with a fault; a run that waits for ever is killed once it says so.
pub fn breaks(run: &Run<'_>, fault: &str) -> Broken {
    let mut child = run.start(fault);
    let mut told = String::new();
    let mut fired = false;
    let stderr = child.stderr.take().expect("piped");
    for line in BufReader::new(stderr).lines() {
        let line = line.expect("UTF-8");
        fired |= line.starts_with("fault: ");
        if line.starts_with("fault: ") && line.ends_with("stall") {
            child.kill().expect("killed");
        }
        told += &line;
        told.push('\n');
    }
    let ended = child.wait_with_output().expect("it ends");
    told += &String::from_utf8_lossy(&ended.stdout);
    Broken {
        fired,
        is_ok: ended.status.success(),
        told,
    }
}

/// The committed rows reach as far as the cursor.
fn cursor_is_not_ahead(client: &mut Client, about: &str) {
    let sql = "SELECT (cursor::json->'values'->>0)::timestamptz <= (SELECT max(at) FROM raw.t) \
               FROM _rapidbyte.checkpoint WHERE cursor::json->>'mode' = 'ordered' \
               AND cursor::json->'values'->>0 IS NOT NULL";
    // Before the first commit the tables are not there.
    let rows = client.query(sql, &[]).unwrap_or_default();
    // A row that is deleted is not there, and the change makes none of the last ones so.
    assert!(rows.iter().all(|row| row.get(0)), "{about}");
}

/// The target's schemas hold the table and the checkpoints, and nobody's leftovers; the folder
/// no lock of a run.
fn nothing_is_left(run: &Run<'_>, client: &mut Client, about: &str) {
    let sql = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class \
               WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND (relnamespace = 'raw'::regnamespace \
               OR relnamespace = '_rapidbyte'::regnamespace)";
    let left: String = client.query_one(sql, &[]).expect("names").get(0);
    assert_eq!(left, "checkpoint t", "{about}");
    let manifests = run.folder.path().join(FILES).join("_manifest");
    for entry in std::fs::read_dir(manifests).into_iter().flatten() {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(name.ends_with(".json"), "{name} {about}");
    }
    let files = run.folder.files(".rapidbyte");
    assert!(
        files.iter().all(|name| !name.ends_with(".lock")),
        "{files:?} {about}"
    );
}

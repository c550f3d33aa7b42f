//! What is moved while something breaks, and what must be there afterwards.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rapidbyte_testkit::postgres::{Client, Database, shared};

use super::Case;
use crate::postgres::content;
use crate::support::Folder;

/// A pipeline between two databases, and what happens to its source meanwhile.
pub struct Scenario {
    pub name: &'static str,
    /// Made once.
    pub seed: &'static str,
    /// What changes the source before the run with the fault; `$N` is a number that grows.
    pub change: &'static str,
    /// Moved before that, so that there is something to go on from or to be replaced.
    pub moves_before: bool,
    pub streams: &'static str,
    pub write: &'static str,
    /// What the target must hold, as a query on the source.
    pub expected: &'static str,
    /// Another run without a reason adds the rows again.
    pub adds: bool,
    /// All rows of a run appear in one moment.
    pub is_whole: bool,
    /// The rows go to files, and from there to the target only to be compared.
    pub through_files: bool,
}

/// Where the files lie, and what reads them back.
const FILES: &str = "out/public.t";
const BACK: &str = "\
version: 1
pipeline: back
source:
  use: source-file
  config:
    path: \"out/public.t/*.jsonl\"
    stream: t
    schema: { id: int64, at: timestamptz, gone: boolean, v: string }
  streams: [t]
destination:
  use: dest-postgres
  config: { url: \"$URL\", schema: raw }
  write_mode: replace
";

const KEYS: &str = "\nresources: { batch_bytes: 4kb, memory: 64mb }\n\
                    checkpoint: { every_rows: 300 }\n\
                    retry: { max_attempts: 3, backoff_seconds: 1, max_backoff_seconds: 1 }\n";

/// The server notices within a second that a client has gone.
const PATIENCE: Duration = Duration::from_secs(30);

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

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "append",
        seed: SEED,
        change: "",
        moves_before: false,
        streams: "[public.t]",
        write: "write_mode: append",
        expected: "SELECT * FROM t",
        adds: true,
        is_whole: true,
        through_files: false,
    },
    Scenario {
        name: "replace",
        seed: SEED,
        change: CHANGE,
        moves_before: true,
        streams: "[public.t]",
        write: "write_mode: replace",
        expected: "SELECT * FROM t",
        adds: false,
        is_whole: true,
        through_files: false,
    },
    Scenario {
        name: "incremental append",
        seed: SEED,
        change: ADDED,
        moves_before: true,
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: [at, id] }]",
        write: "write_mode: append",
        expected: "SELECT * FROM t",
        adds: false,
        is_whole: false,
        through_files: false,
    },
    Scenario {
        name: "incremental exact",
        seed: SEED,
        change: ADDED,
        moves_before: true,
        streams: "[{ name: public.t, sync_mode: incremental, late_rows: exact }]",
        write: "write_mode: append",
        expected: "SELECT * FROM t",
        adds: false,
        is_whole: true,
        through_files: false,
    },
    Scenario {
        name: "upsert",
        seed: SEED,
        change: CHANGE,
        moves_before: true,
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute }]",
        write: "write_mode: upsert\n  deleted_field: gone",
        expected: "SELECT * FROM t WHERE NOT gone",
        adds: false,
        is_whole: false,
        through_files: false,
    },
    Scenario {
        name: "files, append",
        seed: SEED,
        change: "",
        moves_before: false,
        streams: "[public.t]",
        write: "write_mode: append",
        expected: "SELECT * FROM t",
        adds: true,
        is_whole: false,
        through_files: true,
    },
    Scenario {
        name: "files, incremental append",
        seed: SEED,
        change: ADDED,
        moves_before: true,
        streams: "[{ name: public.t, sync_mode: incremental, cursor_field: [at, id] }]",
        write: "write_mode: append",
        expected: "SELECT * FROM t",
        adds: false,
        is_whole: false,
        through_files: true,
    },
    Scenario {
        name: "files, replace",
        seed: SEED,
        change: CHANGE,
        moves_before: true,
        streams: "[public.t]",
        write: "write_mode: replace",
        expected: "SELECT * FROM t",
        adds: false,
        is_whole: false,
        through_files: true,
    },
];

/// Rows of the target.
fn count(client: &mut Client) -> i64 {
    let row = client.query_one("SELECT count(*) FROM raw.t", &[]);
    row.expect("a count").get(0)
}

/// Somebody who looks at the target all the time.
struct Reader {
    done: Arc<AtomicBool>,
    /// The numbers of rows that were there; none where the table was not.
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

/// Waits until every transaction that is older has ended, of other tests and of what was killed: it
/// would hold back rows of `late_rows: exact`, because all databases are on one server.
pub fn wait_for_older(client: &mut Client) {
    let mut ask = |what: &str| -> i64 {
        let sql = format!("SELECT txid_snapshot_{what}(txid_current_snapshot())");
        client.query_one(&sql, &[]).expect("a number").get(0)
    };
    let newest = ask("xmax");
    let begin = Instant::now();
    while ask("xmin") < newest {
        assert!(begin.elapsed() < PATIENCE, "older transactions do not end");
        std::thread::yield_now();
    }
}

/// Two databases and the number of the next change.
pub struct Bench {
    source: Database<'static>,
    target: Database<'static>,
    n: u64,
}

/// How a run with a fault in it ended.
#[derive(Debug)]
struct Broken {
    fired: bool,
    is_ok: bool,
    told: String,
}

impl Bench {
    pub fn new() -> Self {
        Self {
            source: shared().database(),
            target: shared().database(),
            n: 1,
        }
    }

    /// Begins a scenario from nothing.
    pub fn begin(&mut self, scenario: &Scenario) -> Run<'_> {
        const NOTHING: &str =
            "DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS raw, _rapidbyte CASCADE;";
        let (mut from, mut to) = (self.source.client(), self.target.client());
        from.batch_execute(NOTHING).expect("nothing");
        to.batch_execute(NOTHING).expect("nothing");
        from.batch_execute(scenario.seed).expect("a source");
        let folder = Folder::new();
        let destination = match scenario.through_files {
            true => "dest-file\n  config: { path: \"out/{stream}/p-{part}.jsonl\" }".to_owned(),
            false => format!(
                "dest-postgres\n  config: {{ url: \"{}\", schema: raw }}",
                self.target.url()
            ),
        };
        let pipeline = format!(
            "version: 1\npipeline: faults\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: {}\n\
             destination:\n  use: {destination}\n  {}{KEYS}",
            self.source.url(),
            scenario.streams,
            scenario.write,
        );
        if scenario.through_files {
            folder.write("back.yaml", BACK.replace("$URL", &self.target.url()));
        }
        folder.write("p.yaml", pipeline);
        let n = &mut self.n;
        Run {
            expected: scenario.expected,
            through_files: scenario.through_files,
            from,
            to,
            folder,
            n,
        }
    }

    /// One case; false when its point was not reached.
    pub fn run(&mut self, scenario: &'static Scenario, case: &Case) -> bool {
        let target = self.target.client();
        let mut run = self.begin(scenario);
        let mut before = None;
        if scenario.moves_before {
            run.goes_well();
            run.change(scenario);
            before = scenario.is_whole.then(|| count(&mut run.to));
        }
        let fault = format!("{}={}@{}", case.point, case.action, case.hit);
        let reader = Reader::start(target);
        let broken = run.breaks(&fault);
        let about = format!("{}: {case:?}: {}", scenario.name, broken.told);
        run.cursor_is_not_ahead(&about);
        let mut is_ok = broken.is_ok;
        if let (Some(second), true, false) = (&case.second, broken.fired, is_ok) {
            is_ok = run.breaks(&format!("{second}=kill")).is_ok;
        }
        // An appended table is complete after the run that did not fail, and only then.
        if !(scenario.adds && is_ok) {
            run.goes_well();
        }
        let seen = reader.stop();
        run.is_right(&about);
        run.nothing_is_left(&about);
        if scenario.is_whole {
            let whole = [before, Some(count(&mut run.to))];
            assert!(
                seen.iter().all(|rows| whole.contains(rows)),
                "{seen:?} {about}"
            );
        }
        if !scenario.adds {
            run.change(scenario);
            run.goes_well();
            run.is_right(&format!("{}: after {case:?}", scenario.name));
        }
        broken.fired
    }
}

/// One scenario under way.
pub struct Run<'a> {
    expected: &'static str,
    through_files: bool,
    from: Client,
    to: Client,
    pub folder: Folder,
    n: &'a mut u64,
}

impl Run<'_> {
    pub fn change(&mut self, scenario: &Scenario) {
        *self.n += 1;
        let sql = scenario.change.replace("$N", &self.n.to_string());
        self.from.batch_execute(&sql).expect("a change");
    }

    /// A run, once what is older has ended.
    #[track_caller]
    pub fn goes_well(&mut self) {
        wait_for_older(&mut self.from);
        self.runs_well("p.yaml");
    }

    #[track_caller]
    fn runs_well(&self, pipeline: &str) {
        let ended = self.folder.rapidbyte(&["run", pipeline, "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    }

    /// The program with a fault in it.
    pub fn start(&self, faults: &str) -> Child {
        self.folder
            .command(&["run", "p.yaml", "--quiet"])
            .env("RAPIDBYTE_FAULTS", faults)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// Runs with a fault; a run that waits for ever is killed once it says so.
    fn breaks(&self, fault: &str) -> Broken {
        let mut child = self.start(fault);
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
        let status = child.wait().expect("it ends");
        Broken {
            fired,
            is_ok: status.success(),
            told,
        }
    }

    /// What is committed reaches as far as the cursor.
    fn cursor_is_not_ahead(&mut self, about: &str) {
        let sql = "SELECT (cursor::json->'values'->>0)::timestamptz <= (SELECT max(at) FROM raw.t) \
                   FROM _rapidbyte.checkpoint WHERE cursor::json->>'mode' = 'ordered' \
                   AND cursor::json->'values'->>0 IS NOT NULL";
        // Before the first commit the tables are not there.
        let rows = self.to.query(sql, &[]).unwrap_or_default();
        // A row that is deleted is not there, and the change makes none of the last ones so.
        assert!(rows.iter().all(|row| row.get(0)), "{about}");
    }

    /// The target's schemas hold the table and the checkpoints, and nobody's leftovers; the folder
    /// no lock of a run.
    fn nothing_is_left(&mut self, about: &str) {
        let sql = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class \
                   WHERE relkind IN ('r', 'p', 'v', 'm', 'S') AND (relnamespace = 'raw'::regnamespace \
                   OR relnamespace = '_rapidbyte'::regnamespace)";
        let left: String = self.to.query_one(sql, &[]).expect("names").get(0);
        assert_eq!(left, "checkpoint t", "{about}");
        let manifests = self.folder.path().join(FILES).join("_manifest");
        for entry in std::fs::read_dir(manifests).into_iter().flatten() {
            let name = entry.expect("an entry").file_name();
            let name = name.to_string_lossy();
            assert!(name.ends_with(".json"), "{name} {about}");
        }
        let files = self.folder.files(".rapidbyte");
        assert!(
            files.iter().all(|name| !name.ends_with(".lock")),
            "{files:?} {about}"
        );
    }

    /// The target holds exactly what it should.
    #[track_caller]
    pub fn is_right(&mut self, about: &str) {
        let expected = content(&mut self.from, &format!("({})", self.expected));
        if self.through_files {
            self.runs_well("back.yaml");
            assert_eq!(self.lines_by_pattern(), expected.0, "{about}");
        }
        let found = content(&mut self.to, "raw.t");
        assert_eq!(found, expected, "{about}");
        let keys = "SELECT count(*) - count(DISTINCT id) FROM raw.t";
        let doubled: i64 = self.to.query_one(keys, &[]).expect("a count").get(0);
        assert_eq!(doubled, 0, "{about}");
    }

    /// Rows for whoever knows nothing of manifests.
    fn lines_by_pattern(&self) -> i64 {
        let entries = std::fs::read_dir(self.folder.path().join(FILES)).expect("a folder");
        let files = entries.map(|entry| entry.expect("an entry").path());
        let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        let lines = files.map(|file| {
            std::fs::read_to_string(file)
                .expect("UTF-8")
                .lines()
                .count()
        });
        lines.sum::<usize>() as i64
    }
}

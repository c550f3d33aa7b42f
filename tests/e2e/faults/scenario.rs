//! What is moved while something breaks, and what must be there afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use rapidbyte_testkit::postgres::{Client, Database, shared};

use super::Case;
use crate::postgres::content;
use crate::support::Folder;

/// A pipeline between two databases, and what happens to its source meanwhile.
pub struct Scenario {
    pub name: &'static str,
    /// Made once.
    seed: &'static str,
    /// What changes the source before the run with the fault; `$N` is a number that grows.
    change: &'static str,
    /// Moved before that, so that there is something to go on from or to be replaced.
    moves_before: bool,
    streams: &'static str,
    write: &'static str,
    /// What the target must hold, as a query on the source.
    expected: &'static str,
    /// Another run without a reason adds the rows again.
    pub adds: bool,
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

/// Ties, NULLs and a few hundred rows for each batch to come.
const SEED: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, gone boolean, v text);
INSERT INTO t SELECT i, timestamptz '2026-01-01' + (i / 7) * interval '1 second', false, 'v' || i
    FROM generate_series(1, 900) i;
INSERT INTO t SELECT i, NULL, false, 'null' FROM generate_series(901, 905) i;";

/// New rows, changed rows, deleted ones.
const CHANGE: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + $N * interval '1 hour' + (i / 7) * interval '1 second',
    false, 'new' || i FROM generate_series($N * 1000, $N * 1000 + 700) i;
UPDATE t SET v = v || '+', gone = id % 5 = 0,
    at = timestamptz '2026-02-01' + $N * interval '1 hour' + interval '30 minutes'
    WHERE id % 10 = 0 AND at IS NOT NULL;";

const ADDED: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + $N * interval '1 hour' + (i / 7) * interval '1 second',
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
        through_files: true,
    },
];

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
        let mut run = self.begin(scenario);
        if scenario.moves_before {
            run.goes_well();
            run.change(scenario);
        }
        let fault = format!("{}={}@{}", case.point, case.action, case.hit);
        let broken = run.breaks(&fault);
        let mut is_ok = broken.is_ok;
        if let (Some(second), true, false) = (&case.second, broken.fired, is_ok) {
            is_ok = run.breaks(&format!("{second}=kill")).is_ok;
        }
        // An appended table is complete after the run that did not fail, and only then.
        if !(scenario.adds && is_ok) {
            run.goes_well();
        }
        run.is_right(&format!("{}: {case:?}: {}", scenario.name, broken.told));
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

    #[track_caller]
    pub fn goes_well(&self) {
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

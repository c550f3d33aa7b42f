//! A pipeline between two databases, each reached by a way that may break, and what must be there
//! afterwards: the scenarios of the faults, with several runs at once or behind proxies.

use std::process::{Child, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rapidbyte_testkit::postgres::{Client, Options, Server, shared};
use rapidbyte_testkit::proxy::Proxy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::faults::scenario::{SCENARIOS, Scenario};
use crate::postgres::content;
use crate::support::{Ended, Folder};

/// Longer than any deadline of these pipelines: who is not done by then hangs.
pub const HANGS: Duration = Duration::from_secs(90);

/// The files of a scenario through files, and the source that reads them back.
pub const FILES: &str = "out/public.t";
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
                    checkpoint: { every_rows: 300 }\n";

/// A scenario by its name.
#[track_caller]
pub fn named(name: &str) -> &'static Scenario {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.unwrap_or_else(|| panic!("no scenario {name}"))
}

/// The scenarios between two databases.
pub const NAMES: [&str; 7] = [
    "append",
    "replace",
    "incremental append",
    "incremental exact",
    "upsert",
    "append with a lag",
    "upsert with deletes",
];

/// A database and the way to it.
pub struct End {
    /// For the program.
    url: String,
    /// Further settings of its connector: `, key: value`.
    pub settings: &'static str,
    /// For the test, past everything that breaks.
    client: Box<dyn Fn() -> Client + Send>,
}

impl End {
    pub fn new(url: String, client: impl Fn() -> Client + Send + 'static) -> Self {
        Self {
            url,
            settings: "",
            client: Box::new(client),
        }
    }

    /// A fresh database of a server.
    pub fn fresh(server: &'static Server) -> Self {
        let database = server.database();
        Self::new(database.url(), move || database.client())
    }

    /// The same behind a proxy.
    pub fn behind(proxy: &Proxy, server: &'static Server) -> Self {
        let database = server.database();
        Self::new(database.url_through(proxy), move || database.client())
    }

    pub fn client(&self) -> Client {
        (self.client)()
    }
}

/// The server of all sources: on one where others write, their open transactions would keep rows
/// from a read by windows of transaction ids.
pub fn sources() -> &'static Server {
    static SOURCES: OnceLock<Server> = OnceLock::new();
    SOURCES.get_or_init(|| Server::start(&Options::default()).expect("a server"))
}

/// Waits until every transaction that is older has ended, in whatever database: it would keep rows
/// from a read by windows of transaction ids.
pub fn wait_for_older(client: &mut Client) {
    let mut ask = |what: &str| -> i64 {
        let sql = format!("SELECT txid_snapshot_{what}(txid_current_snapshot())");
        client.query_one(&sql, &[]).expect("a number").get(0)
    };
    let newest = ask("xmax");
    let begin = Instant::now();
    while ask("xmin") < newest {
        assert!(begin.elapsed() < HANGS, "older transactions do not end");
        std::thread::yield_now();
    }
}

/// Two databases and the number of the next change.
pub struct Bench {
    pub source: End,
    pub target: End,
    pub max_attempts: u32,
    /// A newer run fences an older one.
    pub replaces: bool,
    n: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::between(End::fresh(sources()), End::fresh(shared()))
    }

    pub fn between(source: End, target: End) -> Self {
        Self {
            source,
            target,
            max_attempts: 3,
            replaces: false,
            n: 1,
        }
    }

    /// Begins a scenario from nothing.
    pub fn begin(&mut self, scenario: &'static Scenario) -> Run<'_> {
        const NOTHING: &str =
            "DROP TABLE IF EXISTS t; DROP SCHEMA IF EXISTS raw, _rapidbyte CASCADE;";
        let (mut from, mut to) = (self.source.client(), self.target.client());
        from.batch_execute(NOTHING).expect("nothing");
        to.batch_execute(NOTHING).expect("nothing");
        from.batch_execute(scenario.seed).expect("a source");
        wait_for_older(&mut from);
        let folder = Folder::new();
        let destination = match scenario.through_files {
            true => "dest-file\n  config: { path: \"out/{stream}/p-{part}.jsonl\" }".to_owned(),
            false => format!(
                "dest-postgres\n  config: {{ url: \"{}\", schema: raw{}{} }}",
                self.target.url, self.target.settings, scenario.config
            ),
        };
        let pipeline = format!(
            "version: 1\npipeline: faults\n{}\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\"{} }}\n  streams: {}\n\
             destination:\n  use: {destination}\n  {}{KEYS}\
             retry: {{ max_attempts: {}, backoff_seconds: 1, max_backoff_seconds: 1 }}\n",
            match self.replaces {
                true => "when_running: replace\n",
                false => "",
            },
            self.source.url,
            self.source.settings,
            scenario.streams,
            scenario.write,
            self.max_attempts,
        );
        if scenario.through_files {
            folder.write("back.yaml", BACK.replace("$URL", &self.target.url));
        }
        folder.write("p.yaml", &pipeline);
        Run {
            scenario,
            source: &self.source,
            target: &self.target,
            folder,
            pipeline,
            n: &mut self.n,
        }
    }
}

/// One scenario under way.
pub struct Run<'a> {
    scenario: &'static Scenario,
    pub source: &'a End,
    pub target: &'a End,
    pub folder: Folder,
    pipeline: String,
    n: &'a mut u64,
}

impl Run<'_> {
    pub fn change(&mut self) {
        *self.n += 1;
        let sql = self.scenario.change.replace("$N", &self.n.to_string());
        let mut client = self.source.client();
        client.batch_execute(&sql).expect("a change");
        wait_for_older(&mut client);
    }

    /// Another run without a reason adds the rows again.
    pub fn adds(&self) -> bool {
        self.scenario.adds
    }

    /// The history says that the newest run has done everything.
    pub fn newest_is_done(&self) -> bool {
        let ended = self
            .folder
            .rapidbyte(&["runs", "p.yaml", "--output", "json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        let runs: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        runs["runs"][0]["status"] == "ok"
    }

    /// Makes the first run and its change, if the scenario wants them before the run with the fault.
    pub fn prepare(&mut self) {
        if self.scenario.moves_before {
            self.goes_well();
            self.change();
        }
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

    /// The program with a fault in it; its report or error comes as JSON.
    pub fn start(&self, faults: &str) -> Child {
        self.start_in(&self.folder, faults)
    }

    /// The same in another folder, which shares no local history with this one.
    pub fn start_in(&self, folder: &Folder, faults: &str) -> Child {
        // Another run may be reading it.
        if folder.path() != self.folder.path() {
            folder.write("p.yaml", &self.pipeline);
        }
        let mut command = folder.command(&["run", "p.yaml", "--quiet", "--output", "json"]);
        if self.scenario.full_refresh {
            command.arg("--full-refresh");
        }
        command
            .env("RAPIDBYTE_FAULTS", faults)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// The target holds exactly what it should.
    #[track_caller]
    pub fn is_right(&mut self, about: &str) {
        self.holds(1, about);
    }

    /// The target holds the expected rows `times` times; only runs that add can make that more than once.
    #[track_caller]
    pub fn holds(&mut self, times: usize, about: &str) {
        let mut from = self.source.client();
        let mut to = self.target.client();
        let expected = self.scenario.expected;
        let all = vec![expected; times].join(" UNION ALL ");
        let expected = content(&mut from, &format!("({all})"));
        if self.scenario.through_files {
            self.runs_well("back.yaml");
            assert_eq!(self.lines_by_pattern(), expected.0, "{about}");
        }
        let found = content(&mut to, "raw.t");
        assert_eq!(found, expected, "{about}");
        let keys = "SELECT coalesce(max(n), 0) FROM \
                    (SELECT count(*) AS n FROM raw.t GROUP BY id) AS t";
        let most: i64 = to.query_one(keys, &[]).expect("a count").get(0);
        assert_eq!(most, times as i64, "{about}");
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

/// How a program ends that must not hang; one that does is killed.
#[track_caller]
pub fn end_of(child: Child, about: &str) -> Ended {
    let pid = Pid::from_child(&child);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let output = told.recv_timeout(HANGS).unwrap_or_else(|_| {
        // Failing, it has ended just now.
        let _ = kill_process(pid, Signal::KILL);
        panic!("it hangs: {about}");
    });
    output.expect("it ends").into()
}

//! Copies of a table into destinations that store documents: each row is there once, whatever breaks.

use std::io::Read as _;
use std::ops::Range;

use rapidbyte_testkit::http::{Reply, Request, Server};
use rapidbyte_testkit::numbers::Numbers;
use rapidbyte_testkit::postgres::Database;
use rapidbyte_testkit::proxy::{Break, Fault, Proxy, Way, When};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kept_documents::ran;
use crate::overlap::Started;
use crate::support::{Ended, Folder};
use crate::tls::authority;

/// A pipeline `p.yaml` that copies a table into the collection `t` of a database of its own.
pub(crate) trait Copies {
    /// The folder of the pipeline.
    fn folder(&self) -> &Folder;

    /// The database of the table.
    fn source(&self) -> &Database<'static>;

    /// The key and `v` of all documents of `t`, in order.
    fn rows(&self) -> Vec<(i64, String)>;

    /// The names of all collections, in order.
    fn collections(&self) -> Vec<String>;

    /// The names of the collection `t` and of the collection of checkpoints, in order.
    fn expected_collections(&self) -> Vec<String> {
        vec!["_rapidbyte_checkpoint".to_owned(), "t".to_owned()]
    }

    #[track_caller]
    fn runs(&self) {
        let ended = self.folder().rapidbyte(&["run", "p.yaml", "--quiet"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    }

    /// Changes the table.
    fn change(&self, sql: &str) {
        let mut client = self.source().client();
        client.batch_execute(sql).expect("a change");
        crate::wired::wait_for_older(&mut client);
    }

    /// A run, and a change of the table that the next run copies. Nothing happens if the change is empty.
    fn runs_before(&self, change: &str) {
        if !change.is_empty() {
            self.runs();
            self.change(change);
        }
    }

    /// The target has the rows that `expected` selects once, and nothing else is left.
    #[track_caller]
    fn has(&self, expected: &str, about: &str) {
        let rows = self.source().client().query(expected, &[]);
        let rows = rows.expect("rows").into_iter();
        let mut expected: Vec<(i64, String)> = rows.map(|row| (row.get(0), row.get(1))).collect();
        expected.sort();
        let found = self.rows();
        assert_eq!(found.len(), expected.len(), "{about}");
        assert_eq!(found, expected, "{about}");
        assert_eq!(self.collections(), self.expected_collections(), "{about}");
    }

    /// A run with a fault that kills it, such as `engine.flush=kill@2`, and the run behind it. False: the run did not reach
    /// the fault, and succeeded.
    #[track_caller]
    fn is_killed(&self, fault: &str) -> bool {
        let mut command = self.folder().command(&["run", "p.yaml", "--quiet"]);
        let ended: Ended = command
            .env("RAPIDBYTE_FAULTS", fault)
            .output()
            .expect("the program starts")
            .into();
        if ended.code.is_none() {
            self.runs();
            return true;
        }
        assert_eq!(ended.code, Some(0), "{fault}: {}", ended.stderr);
        false
    }

    /// A run that stops at a failpoint, and goes on after a newer run has succeeded: the newer run has fenced it.
    #[track_caller]
    fn is_fenced(&self, point: &str, pipeline: &str) {
        // Folders of their own: they share no history, and so no turn.
        let older = Folder::new();
        older.write("p.yaml", pipeline);
        let mut child = Started::stopped_at(&older, point).child;
        self.runs();
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::CONT).expect("a process");
        let mut output = String::new();
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_to_string(&mut output).expect("UTF-8");
        child.wait().expect("it ends");
        let report: Value = serde_json::from_str(&output).expect("one JSON document");
        assert!(output.contains("run_superseded"), "{point}: {report:#}");
    }

    /// A run whose connection ends once at this moment.
    #[track_caller]
    fn is_cut_off(&self, proxy: &Proxy, when: When) {
        proxy.arm(Fault {
            when,
            what: Break::Reset,
            is_everywhere: false,
        });
        self.runs();
        assert_eq!(proxy.counts().faults, 1);
    }

    /// The cursor of an incremental stream is behind its last row: a run copies nothing.
    #[track_caller]
    fn is_done(&self) {
        let (report, code) = ran(self.folder());
        assert_eq!((code, &report["rows"]), (0, &Value::from(0)), "{report:#}");
    }
}

/// A way to load a table, and what changes in it between two runs.
pub(crate) struct Scenario {
    pub(crate) stream: &'static str,
    /// A property of the target, which the driver knows.
    pub(crate) target: &'static str,
    pub(crate) write: &'static str,
    pub(crate) change: &'static str,
    /// The query for the key and `v` of the rows that the target then has.
    pub(crate) expected: &'static str,
}

/// A destination whose copies these tests make: a new pipeline for each scenario.
pub(crate) trait Driver: Copies + Sized {
    const SCENARIOS: &'static [Scenario];
    /// The points that each run of this destination reaches, with the hits at which it is killed.
    const KILLED: &'static [(&'static str, &'static [u32])];
    /// Scenarios by their number, and the point at which a newer run overtakes.
    const FENCED: &'static [(usize, &'static str)];
    /// A text that only a last commit sends.
    const COMMIT: &'static str;

    /// A table and a target. `None` if the server is not on this machine.
    fn new(scenario: &Scenario) -> Option<Self>;

    /// The port of the server.
    fn port(&self) -> u16;

    /// The address of the server, with another port if one is given.
    fn address(&self, port: Option<u16>) -> String;

    /// The text of the pipeline into the server of an address. `more` are settings of the destination behind a comma.
    fn pipeline_at(&self, scenario: &Scenario, address: &str, more: &str) -> String;

    /// The text of the pipeline, with another port of the server if one is given.
    fn pipeline(&self, scenario: &Scenario, port: Option<u16>) -> String {
        self.pipeline_at(scenario, &self.address(port), "")
    }

    /// The scenarios whose runs reach a point.
    fn reaching(point: &str) -> Range<usize> {
        let _ = point;
        0..Self::SCENARIOS.len()
    }

    fn write(&self, scenario: &Scenario) {
        let pipeline = self.pipeline(scenario, None);
        self.folder().write("p.yaml", pipeline);
    }

    /// The target has the rows of the source once, and nothing else is left.
    #[track_caller]
    fn is_right(&self, scenario: &Scenario, about: &str) {
        self.has(scenario.expected, about);
    }
}

pub(crate) fn each_mode_writes_every_row_once<D: Driver>() {
    for (at, scenario) in D::SCENARIOS.iter().enumerate() {
        let Some(copied) = D::new(scenario) else {
            return;
        };
        copied.write(scenario);
        copied.runs_before(scenario.change);
        copied.runs();
        copied.is_right(scenario, &format!("scenario {at}"));
    }
}

pub(crate) fn a_killed_run_is_made_good<D: Driver>() {
    let mut unfired: Vec<&str> = D::KILLED.iter().map(|(point, _)| *point).collect();
    for (at, (point, hits)) in D::KILLED.iter().enumerate() {
        for (more, hit) in hits.iter().enumerate() {
            for other in 0..2 {
                // Each point in two scenarios, which differ from point to point.
                let reaching = &D::SCENARIOS[D::reaching(point)];
                let first = match reaching.len() == D::SCENARIOS.len() {
                    true => at + more + other,
                    false => 0,
                };
                let scenario = &reaching[(first + other) % reaching.len()];
                let Some(copied) = D::new(scenario) else {
                    return;
                };
                copied.write(scenario);
                copied.runs_before(scenario.change);
                let fault = format!("{point}=kill@{hit}");
                if copied.is_killed(&fault) {
                    unfired.retain(|left| left != point);
                }
                copied.is_right(scenario, &format!("{fault}: {}", scenario.write));
            }
        }
    }
    assert!(unfired.is_empty(), "never killed at {unfired:?}");
}

/// In the first scenarios: of the others, each run that succeeds adds all rows again.
pub(crate) fn a_run_that_is_killed_again_and_again_is_made_good<D: Driver>(scenarios: usize) {
    let mut numbers = Numbers::new(20_261_129);
    for (at, scenario) in D::SCENARIOS[..scenarios].iter().enumerate() {
        let Some(copied) = D::new(scenario) else {
            return;
        };
        copied.write(scenario);
        copied.runs_before(scenario.change);
        let mut faults = Vec::new();
        for _ in 0..3 {
            let (point, _) = D::KILLED[numbers.below(D::KILLED.len())];
            let fault = format!("{point}=kill@{}", 1 + numbers.below(3));
            let mut command = copied.folder().command(&["run", "p.yaml", "--quiet"]);
            let ended = command.env("RAPIDBYTE_FAULTS", &fault).output();
            let ended: Ended = ended.expect("the program starts").into();
            assert!(
                matches!(ended.code, None | Some(0)),
                "{fault}: {}",
                ended.stderr
            );
            faults.push(fault);
        }
        copied.runs();
        copied.is_right(scenario, &format!("scenario {at}: {faults:?}"));
    }
}

/// The second scenario behind a front that speaks TLS and answers some requests itself. Returns the front. `None` if the
/// server is not on this machine.
pub(crate) fn is_right_behind<D: Driver>(
    answer: impl Fn(u16, &Request) -> Reply + Send + Sync + 'static,
    more: &str,
) -> Option<Server> {
    let scenario = &D::SCENARIOS[1];
    let copied = D::new(scenario)?;
    copied.folder().write("ca.pem", authority().pem());
    let port = copied.port();
    let certificate = authority().issue("localhost", |_| {});
    let front = Server::start_tls(&certificate, move |request| answer(port, request));
    let more = format!(", sslrootcert: ca.pem{more}");
    let pipeline = copied.pipeline_at(scenario, &front.url("/"), &more);
    copied.folder().write("p.yaml", pipeline);
    copied.runs();
    copied.is_right(scenario, "behind a front");
    assert!(!front.requests().is_empty());
    Some(front)
}

/// Settings, each with the code and a part of the message of the error that refuses them. The pipeline asks nobody.
#[track_caller]
pub(crate) fn settings_are_refused<S: AsRef<str>>(
    pipeline: impl Fn(&str) -> String,
    cases: &[(S, &str, &str)],
) {
    let folder = Folder::new();
    for (config, code, part) in cases {
        let config = config.as_ref();
        folder.refuses(&pipeline(config), code, 2, &[part]);
        let checked = folder.rapidbyte(&["check", "p.yaml"]);
        let told = format!("{}{}", checked.stdout, checked.stderr);
        assert!(told.contains(code), "{config}: {told}");
    }
}

/// The clauses of the contract that a destination does not keep. `peer` is a source that reads what it has written, and
/// its config.
#[track_caller]
pub(crate) fn broken_clauses(
    connector: &str,
    config: &Value,
    peer: Option<(&str, &Value)>,
) -> Vec<String> {
    let config = config.to_string();
    let mut arguments = vec!["connector", "test", connector, "--config", &config];
    let peer = peer.map(|(name, config)| (name, config.to_string()));
    if let Some((name, config)) = &peer {
        arguments.extend(["--peer", name, "--peer-config", config]);
    }
    arguments.extend(["--output", "json"]);
    let ended = Folder::new().rapidbyte(&arguments);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let clauses = document["clauses"].as_array().expect("clauses").iter();
    // Without a peer, some clauses are skipped.
    let failed = clauses.filter(|clause| match peer {
        Some(_) => clause["verdict"] != "pass",
        None => clause["verdict"] == "fail",
    });
    let failed = failed.filter_map(|clause| clause["id"].as_str());
    failed.map(str::to_owned).collect()
}

pub(crate) fn the_older_run_is_fenced<D: Driver>() {
    for (at, point) in D::FENCED {
        let scenario = &D::SCENARIOS[*at];
        let Some(copied) = D::new(scenario) else {
            return;
        };
        let pipeline = copied.pipeline(scenario, None);
        copied.folder().write("p.yaml", &pipeline);
        copied.runs_before(scenario.change);
        copied.is_fenced(point, &pipeline);
        let about = format!("{point}: {}", scenario.write);
        copied.is_right(scenario, &about);
    }
}

/// The answer of the commit is lost, or the server never hears of it.
pub(crate) fn a_commit_without_an_answer_counts_once<D: Driver>() {
    for when in [
        When::Before(D::COMMIT),
        When::After(D::COMMIT, Way::ToServer, 0),
    ] {
        for (at, scenario) in D::SCENARIOS.iter().enumerate() {
            let Some(copied) = D::new(scenario) else {
                return;
            };
            let proxy = Proxy::to(copied.port()).expect("a proxy");
            let pipeline = copied.pipeline(scenario, Some(proxy.port()));
            copied.folder().write("p.yaml", pipeline);
            copied.is_cut_off(&proxy, when);
            copied.is_right(scenario, &format!("{when:?}: {}", scenario.write));
            if at == 0 {
                copied.is_done();
            }
        }
    }
}

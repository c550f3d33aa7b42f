//! Copies of a table into destinations that store documents: each row is there once, whatever breaks.

use std::io::Read as _;

use rapidbyte_testkit::postgres::Database;
use rapidbyte_testkit::proxy::{Break, Fault, Proxy, When};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::kept_documents::ran;
use crate::overlap::Started;
use crate::support::{Ended, Folder};

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

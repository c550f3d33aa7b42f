//! Folders that grow: manifests, fences, cursors, and what a killed run leaves.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::common;
use dest_file::Files;
use proptest::prelude::*;
use rapidbyte_manifest::{Hash, Link, Manifest};
use rapidbyte_sdk::destination::{self, Loading};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array};
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};

fn open(folder: &Path, mut config: Value) -> destination::Session<Files> {
    let path = folder.join(config["path"].as_str().unwrap());
    config["path"] = json!(path.to_str().unwrap());
    destination::open::<Files>(&config.to_string()).unwrap()
}

fn lines() -> Value {
    json!({"path": "o/p-{part}.jsonl"})
}

fn batch(ids: Range<i64>) -> RecordBatch {
    let days: ArrayRef = Arc::new(ids.clone().map(|id| id % 2).collect::<Int64Array>());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("day", DataType::Int64, false),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![ids, days]).unwrap()
}

fn target(write_mode: WriteMode) -> Target {
    common::target("s", &batch(0..0).schema(), write_mode)
}

fn request(write_mode: WriteMode, id: &str) -> LoadRequest {
    LoadRequest {
        target: target(write_mode),
        run: Run {
            pipeline: "p".into(),
            id: id.into(),
        },
    }
}

/// A run that has fenced the older runs.
struct Session {
    files: destination::Session<Files>,
    load: Loading<Files>,
    seq: u64,
    epoch: u64,
}

impl Session {
    fn begin(folder: &Path, config: Value, mode: WriteMode, id: &str) -> Result<Self> {
        let mut files = open(folder, config);
        let mut load = files.begin(&[request(mode, id)])?;
        let fenced = load.progress().clone();
        load.open_writer(fenced.cursor.as_deref())?;
        Ok(Self {
            files,
            load,
            seq: fenced.seq,
            epoch: fenced.epoch,
        })
    }

    fn append(folder: &Path, id: &str) -> Self {
        Self::begin(folder, lines(), WriteMode::Append, id).unwrap()
    }

    fn write(&mut self, ids: Range<i64>) -> Vec<Part> {
        self.load.write(&batch(ids)).unwrap();
        vec![self.load.flush().unwrap()]
    }

    fn commit(&mut self, ids: Range<i64>, cursor: &str, complete: bool) -> Result<Receipt> {
        let parts = self.write(ids);
        let receipt = self.load.commit(Commit {
            stream: "s",
            parts,
            seq: self.seq,
            cursor: Some(cursor),
            complete,
        })?;
        self.seq += 1;
        Ok(receipt)
    }

    /// As a process that is killed: nothing is cleaned up.
    fn end_by_kill(self) {
        std::mem::forget((self.files, self.load));
    }
}

/// All files below a folder, hidden ones too.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// The files that a pattern finds.
fn visible(folder: &Path) -> Vec<String> {
    let mut files = tree(folder);
    files.retain(|file| !file.contains("_manifest/"));
    files
}

fn ids_of(folder: &Path, files: &[String]) -> Vec<i64> {
    let text = |file: &String| fs::read_to_string(folder.join(file)).unwrap();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_i64();
    let mut ids: Vec<i64> = files
        .iter()
        .flat_map(|file| {
            text(file)
                .lines()
                .map(|l| id(l).unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// The chain, each link checked, and the paths of all files that count.
fn chain(folder: &Path) -> (Vec<Manifest>, Vec<String>) {
    let mut manifests: Vec<Manifest> = Vec::new();
    let mut last: Option<Link> = None;
    for number in 1.. {
        let path = folder.join(format!("o/_manifest/{number:08}.json"));
        let Ok(bytes) = fs::read(path) else { break };
        let link = Link::decode(number, &bytes).unwrap();
        Link::is_before(last.as_ref(), &link).unwrap();
        manifests.push(link.manifest.clone());
        last = Some(link);
    }
    let begins = manifests.last().map_or(0, |last| last.begins);
    let count = manifests.iter().filter(|m| m.number >= begins);
    let files = count.flat_map(|manifest| &manifest.files);
    let mut paths: Vec<String> = files.map(|file| format!("o/{}", file.path)).collect();
    paths.sort();
    (manifests, paths)
}

#[test]
fn a_folder_grows_by_commits_that_manifests_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::append(folder.path(), "r1");
    session.commit(0..3, "3", false).unwrap();
    let receipt = session.commit(3..5, "5", true).unwrap();
    assert_eq!((receipt.rows, receipt.bytes), (2, 34));
    let mut session = Session::append(folder.path(), "r2");
    assert_eq!((session.seq, session.epoch), (2, 2));
    session.commit(5..6, "6", true).unwrap();
    let files = [
        "o/p-0001-00000002-00000.jsonl",
        "o/p-0001-00000003-00000.jsonl",
        "o/p-0002-00000005-00000.jsonl",
    ];
    assert_eq!(visible(folder.path()), files);
    assert_eq!(
        ids_of(folder.path(), &visible(folder.path())),
        [0, 1, 2, 3, 4, 5]
    );
    let (manifests, paths) = chain(folder.path());
    assert_eq!(paths, files);
    let last = manifests.last().unwrap();
    assert_eq!((last.number, last.seq, last.epoch, last.rows), (5, 3, 2, 6));
    for file in manifests.iter().flat_map(|manifest| &manifest.files) {
        let bytes = fs::read(folder.path().join("o").join(&file.path)).unwrap();
        assert_eq!(
            (bytes.len() as u64, Hash::of(&bytes)),
            (file.size, file.sha256.clone())
        );
    }
    let mut files = open(folder.path(), lines());
    let progress = files
        .progress(&target(WriteMode::Append), "p")
        .unwrap()
        .unwrap();
    assert_eq!((progress.cursor.as_deref(), progress.seq), (Some("6"), 3));
    assert_eq!((progress.run_id.as_str(), progress.complete), ("r2", true));
}

#[test]
fn an_older_run_cannot_commit_any_more_and_says_which_is_newer() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = Session::append(folder.path(), "old");
    old.commit(0..1, "1", false).unwrap();
    let mut new = Session::append(folder.path(), "new");
    let error = old.commit(1..2, "2", false).unwrap_err();
    assert_eq!(error.code, "run_superseded");
    assert!(
        error
            .message
            .contains("the newer run new fenced the run old (epoch 2 after 1)")
    );
    new.commit(1..3, "3", true).unwrap();
    // The newer run removes the uncommitted files of an older run.
    let mut old = Session::append(folder.path(), "old");
    let parts = old.write(5..6);
    drop(Session::append(folder.path(), "newest"));
    let commit = Commit {
        stream: "s",
        parts,
        seq: old.seq,
        cursor: Some("6"),
        complete: true,
    };
    let error = old.load.commit(commit).unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    assert_eq!(ids_of(folder.path(), &visible(folder.path())), [0, 1, 2]);
    assert_eq!(chain(folder.path()).1, visible(folder.path()));
    assert!(
        !tree(folder.path())
            .iter()
            .any(|file| file.contains("pending"))
    );
}

#[test]
fn a_cursor_is_set_and_cleared_without_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = open(folder.path(), lines());
    assert!(
        files
            .progress(&target(WriteMode::Append), "p")
            .unwrap()
            .is_none()
    );
    let mut set = |cursor: Option<&str>| {
        let request = request(WriteMode::Append, "state");
        let mut load = files.begin(&[request]).unwrap();
        let commit = Commit {
            stream: "s",
            parts: Vec::new(),
            seq: load.progress().seq,
            cursor,
            complete: false,
        };
        load.commit(commit).unwrap();
        let progress = files.progress(&target(WriteMode::Append), "p").unwrap();
        progress.unwrap().cursor
    };
    assert_eq!(set(Some("7")).as_deref(), Some("7"));
    assert_eq!(set(None), None);
    assert!(visible(folder.path()).is_empty());
}

#[test]
fn an_aborted_load_leaves_only_the_fence() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "o/p-{part}.jsonl", "split": {"rows": 2}});
    let mut session = Session::begin(folder.path(), config, WriteMode::Append, "r").unwrap();
    session.write(0..5);
    assert_eq!(tree(folder.path()).len(), 4);
    session.load.abort().unwrap();
    assert_eq!(tree(folder.path()), ["o/_manifest/00000001.json"]);
}

#[test]
fn the_next_run_cleans_up_after_a_killed_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::append(folder.path(), "r1");
    session.commit(0..2, "2", false).unwrap();
    session.commit(2..4, "4", false).unwrap();
    session.write(4..6);
    session.end_by_kill();
    // Between the last manifest and the name.
    let name = "p-0001-00000003-00000.jsonl";
    let (own, pending) = (format!("o/{name}"), format!("o/_manifest/{name}.pending"));
    fs::rename(folder.path().join(&own), folder.path().join(&pending)).unwrap();
    // Of a commit that did not happen, and one that is under way.
    for left in [
        "p-0001-00000004-00000.jsonl.pending",
        ".p-0001-00000004-00001.jsonl.pending.12-3.tmp",
        ".00000004.json.12-3.tmp",
        "p-0003-00000009-00000.jsonl.pending",
    ] {
        fs::write(folder.path().join("o/_manifest").join(left), "x").unwrap();
    }
    assert_eq!(visible(folder.path()).len(), 1);
    let session = Session::append(folder.path(), "r2");
    assert_eq!(session.seq, 2);
    assert_eq!(ids_of(folder.path(), &visible(folder.path())), [0, 1, 2, 3]);
    let left: Vec<_> = tree(folder.path())
        .into_iter()
        .filter(|file| file.contains("_manifest/") && !file.ends_with("json"))
        .collect();
    assert_eq!(left, ["o/_manifest/p-0003-00000009-00000.jsonl.pending"]);
}

#[test]
fn a_folder_that_grows_is_replaced_by_a_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = Session::append(folder.path(), "r1");
    old.commit(0..3, "3", false).unwrap();
    let begin = || Session::begin(folder.path(), lines(), WriteMode::Replace, "r2").unwrap();
    begin().commit(7..9, "9", true).unwrap();
    assert_eq!(ids_of(folder.path(), &visible(folder.path())), [7, 8]);
    let (manifests, paths) = chain(folder.path());
    assert_eq!(paths, visible(folder.path()));
    assert_eq!(manifests.last().unwrap().rows, 2);
    let error = old.commit(3..4, "4", true).unwrap_err();
    assert_eq!(error.code, "run_superseded");
    // And it grows on.
    Session::append(folder.path(), "r3")
        .commit(9..10, "10", true)
        .unwrap();
    assert_eq!(ids_of(folder.path(), &visible(folder.path())), [7, 8, 9]);
}

#[test]
fn settings_that_could_double_or_lose_rows_are_refused_by_name() {
    let begin = |folder: &Path, config: Value, mode| Session::begin(folder, config, mode, "r");
    let folder = tempfile::tempdir().unwrap();
    // Replaced as a whole, and then added to.
    let mut files = open(folder.path(), lines());
    let replaces = request(WriteMode::Replace, "r");
    let mut load = files.begin(&[replaces]).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(0..2)).unwrap();
    let part = load.flush().unwrap();
    load.commit(Commit::whole("s", vec![part])).unwrap();
    let error = begin(folder.path(), lines(), WriteMode::Append)
        .err()
        .unwrap();
    assert_eq!(error.code, "folder_not_appendable");
    let plan = files.plan(&target(WriteMode::Append));
    assert_eq!(plan.err().unwrap().code, "folder_not_appendable");
    // An unannounced cursor to resume from, and no place to keep it.
    for (config, mode) in [
        (lines(), WriteMode::Replace),
        (json!({"path": "o.jsonl"}), WriteMode::Append),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut session = begin(folder.path(), config, mode).unwrap();
        let error = session.commit(0..1, "1", true).unwrap_err();
        assert_eq!(error.code, "cursor_needs_folder");
        assert!(visible(folder.path()).is_empty());
    }
    // Names that do not differ.
    let config = json!({"path": "o/a.jsonl", "partition_by": ["day"]});
    let error = begin(folder.path(), config, WriteMode::Append)
        .err()
        .unwrap();
    assert_eq!(error.code, "missing_part");
    // The folder of another pipeline.
    let folder = tempfile::tempdir().unwrap();
    begin(folder.path(), lines(), WriteMode::Append).unwrap();
    let mut other = request(WriteMode::Append, "r");
    other.run.pipeline = "q".into();
    let mut files = open(folder.path(), lines());
    let error = files.begin(&[other]).err().unwrap();
    assert_eq!(error.code, "folder_of_another_stream");
    // No later manifest holds the hash of the newest one. The destination still rejects values that no run writes.
    let edited = tempfile::tempdir().unwrap();
    begin(edited.path(), lines(), WriteMode::Append).unwrap();
    let manifests = edited.path().join("o/_manifest");
    let count = fs::read_dir(&manifests).unwrap().count();
    let newest = manifests.join(format!("{count:08}.json"));
    let kept = fs::read_to_string(&newest).unwrap();
    let value: serde_json::Value = serde_json::from_str(&kept).unwrap();
    for (key, changed) in [
        ("cursor", json!("hello")),
        ("epoch", json!(-1)),
        ("epoch", json!(9)),
        ("seq", json!(null)),
        ("seq", json!(7)),
        ("rows", json!(3)),
        ("begins", json!(1)),
    ] {
        let mut value = value.clone();
        value[key] = changed;
        fs::write(&newest, value.to_string()).unwrap();
        let mut files = open(edited.path(), lines());
        let mut appends = target(WriteMode::Append);
        appends.is_incremental = true;
        let error = files.progress(&appends, "p").unwrap_err();
        assert_eq!(error.code, "manifest_broken", "{key}: {error:?}");
        let named = format!("o/_manifest: the manifest {count} ");
        assert!(error.message.contains(&named), "{key}: {error:?}");
    }
    // A manifest is gone, or another one.
    begin(folder.path(), lines(), WriteMode::Append).unwrap();
    fs::write(folder.path().join("o/_manifest/00000001.json"), "{}").unwrap();
    let error = begin(folder.path(), lines(), WriteMode::Append)
        .err()
        .unwrap();
    assert_eq!(error.code, "manifest_broken");
    fs::remove_file(folder.path().join("o/_manifest/00000001.json")).unwrap();
    let error = begin(folder.path(), lines(), WriteMode::Append)
        .err()
        .unwrap();
    assert!(
        error.message.contains("manifest 1 does not follow"),
        "{}",
        error.message
    );
}

#[test]
fn partitions_grow_too_and_a_first_stream_without_rows_has_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = || json!({"path": "o/p-{part}.jsonl", "partition_by": ["day"]});
    for id in ["a", "b"] {
        let begun = Session::begin(folder.path(), config(), WriteMode::Append, id);
        begun.unwrap().commit(0..4, "4", true).unwrap();
    }
    assert_eq!(
        visible(folder.path()),
        [
            "o/day=0/p-0001-00000002-00000.jsonl",
            "o/day=0/p-0002-00000004-00000.jsonl",
            "o/day=1/p-0001-00000002-00001.jsonl",
            "o/day=1/p-0002-00000004-00001.jsonl",
        ]
    );
    let folder = tempfile::tempdir().unwrap();
    for id in ["a", "b"] {
        let csv = json!({"path": "o/{part}.csv"});
        let begun = Session::begin(folder.path(), csv, WriteMode::Append, id);
        begun.unwrap().commit(0..0, "0", true).unwrap();
    }
    assert_eq!(visible(folder.path()), ["o/0001-00000002-00000.csv"]);
}

#[test]
fn a_run_that_begins_again_after_its_last_commit_knows_that_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    Session::append(folder.path(), "r")
        .commit(0..1, "1", true)
        .unwrap();
    let mut files = open(folder.path(), lines());
    for (id, complete) in [("r", true), ("s", false)] {
        let load = files.begin(&[request(WriteMode::Append, id)]).unwrap();
        assert_eq!(load.progress().complete, complete, "{id}");
    }
}

/// The next step of one of two runs.
#[derive(Debug, Clone, Copy)]
enum Step {
    Begin,
    Commit(i64),
    /// The run writes rows, and the process is killed.
    KilledBefore(i64),
    /// The manifest has its name, the files do not.
    KilledAfter(i64),
    /// All rows so far are replaced.
    Replace(i64),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let rows = 0..4_i64;
    let step = prop_oneof![
        2 => Just(Step::Begin),
        4 => rows.clone().prop_map(Step::Commit),
        1 => rows.clone().prop_map(Step::KilledBefore),
        1 => rows.clone().prop_map(Step::KilledAfter),
        1 => rows.prop_map(Step::Replace),
    ];
    (0..2_usize, step)
}

/// Two runs, and what must be there.
struct Model {
    folder: tempfile::TempDir,
    sessions: [Option<Session>; 2],
    /// The run that fenced last.
    owner: usize,
    next: i64,
    committed: BTreeSet<i64>,
}

impl Model {
    fn begin(&mut self, who: usize, mode: WriteMode) {
        let config = json!({"path": "o/p-{part}.jsonl", "split": {"rows": 2}});
        let begun = Session::begin(self.folder.path(), config, mode, &who.to_string());
        self.sessions[who] = Some(begun.unwrap());
        self.owner = who;
    }

    /// Commits rows that nobody else has; whether that is possible is known before.
    fn commit(&mut self, who: usize, rows: i64) -> Result<(), TestCaseError> {
        let ids = self.next..self.next + rows;
        self.next = ids.end;
        let Some(session) = &mut self.sessions[who] else {
            return Ok(());
        };
        let done = session.commit(ids.clone(), "c", false);
        if self.owner == who {
            prop_assert!(done.is_ok(), "{:?}", done.err());
            self.committed.extend(ids);
        } else {
            prop_assert_eq!(
                done.err().map(|e| e.code),
                Some("run_superseded".to_owned())
            );
            self.sessions[who] = None;
        }
        Ok(())
    }

    fn act(&mut self, who: usize, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Begin => {
                if let Some(session) = self.sessions[who].take() {
                    session.end_by_kill();
                }
                self.begin(who, WriteMode::Append);
            }
            Step::Commit(rows) => self.commit(who, rows)?,
            Step::KilledBefore(rows) => {
                if let Some(mut session) = self.sessions[who].take() {
                    session.write(self.next..self.next + rows);
                    self.next += rows;
                    session.end_by_kill();
                }
            }
            Step::KilledAfter(rows) => {
                let before = visible(self.folder.path());
                self.commit(who, rows)?;
                let after = visible(self.folder.path());
                let new = after.iter().filter(|file| !before.contains(file));
                for file in new {
                    let name = file.rsplit('/').next().unwrap();
                    let pending = format!("o/_manifest/{name}.pending");
                    let folder = self.folder.path();
                    fs::rename(folder.join(file), folder.join(pending)).unwrap();
                }
                if let Some(session) = self.sessions[who].take() {
                    session.end_by_kill();
                }
            }
            Step::Replace(rows) => {
                if self.sessions.iter().all(Option::is_none) {
                    return Ok(());
                }
                self.begin(who, WriteMode::Replace);
                self.committed.clear();
                self.commit(who, rows)?;
            }
        }
        Ok(())
    }

    /// A reader that uses a pattern sees only committed rows, and no row twice.
    fn is_sound(&self) -> Result<(), TestCaseError> {
        let ids = ids_of(self.folder.path(), &visible(self.folder.path()));
        let once: BTreeSet<i64> = ids.iter().copied().collect();
        prop_assert_eq!(once.len(), ids.len());
        prop_assert!(once.is_subset(&self.committed));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_committed_row_of_two_runs_is_there_once(
        steps in proptest::collection::vec(step(), 1..25),
    ) {
        let mut model = Model {
            folder: tempfile::tempdir().unwrap(),
            sessions: [None, None],
            owner: 0,
            next: 0,
            committed: BTreeSet::new(),
        };
        for (who, step) in steps {
            model.act(who, step)?;
            model.is_sound()?;
        }
        model.begin(0, WriteMode::Append);
        let folder = model.folder.path();
        let (_, paths) = chain(folder);
        prop_assert_eq!(&visible(folder), &paths);
        let committed: Vec<i64> = model.committed.iter().copied().collect();
        prop_assert_eq!(ids_of(folder, &paths), committed);
        let left = |file: &String| file.contains("pending") || file.ends_with(".tmp");
        prop_assert!(!tree(folder).iter().any(left), "{:?}", tree(folder));
    }
}

//! Rejects of destinations that store documents: rows that the server refuses, and their replays.

use serde_json::Value;

use crate::support::{Ended, Folder};

/// A database of a test, with a collection `t` that takes each value of `v` once.
pub(crate) trait Documents: Sized {
    /// The connector.
    const CONNECTOR: &'static str;
    /// The column of numbers.
    const KEY: &'static str;
    /// The code of a document whose `v` is taken.
    const CODE: &'static str;

    /// Runs `t.csv`, whose columns are the key and `v`, into `t`, with `top` at the top of the pipeline file.
    fn load(&self, folder: &Folder, top: &str) -> (Value, i32);

    /// The key and `v` of all documents, in order.
    fn rows(&self) -> Vec<(i64, String)>;

    /// Deletes the document whose `v` is `a`.
    fn delete_a(&self);
}

/// Three rejects. A replay can write one of them.
struct Kept<D> {
    target: D,
    folder: Folder,
}

const UNREADABLE: (&str, &str) = ("value_does_not_fit", r#""five,d""#);

fn pair(key: i64, v: &str) -> (i64, String) {
    (key, v.to_owned())
}

/// The result of a run of `p.yaml`.
pub(crate) fn ran(folder: &Folder) -> (Value, i32) {
    let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    let document = serde_json::from_str(&ended.stdout);
    let document = document.unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr));
    (document, ended.code.expect("an exit code"))
}

impl<D: Documents> Kept<D> {
    fn new(target: D) -> Self {
        let folder = Folder::new();
        let key = D::KEY;
        folder.write(
            "t.csv",
            format!("{key},v\n1,a\n2,b\n3,a\n4,c\nfive,d\n6,b\n"),
        );
        // Without rejects the first of them ends the run, and nothing of it stays.
        let (document, code) = target.load(&folder, "");
        assert_ne!(code, 0, "{document:#}");
        assert_eq!(target.rows(), []);
        let (document, code) = target.load(&folder, "rejects: { max_rows: 10, to: bad }\n");
        assert_eq!(code, 0, "{document:#}");
        let kept = Self { target, folder };
        assert_eq!(
            kept.target.rows(),
            [pair(1, "a"), pair(2, "b"), pair(4, "c")]
        );
        kept.lists(&[(3, "a"), (6, "b")]);
        kept.target.delete_a();
        kept
    }

    fn replay(&self, fault: &str) -> Ended {
        let arguments = ["rejects", "replay", "p.yaml", "--stream", "t"];
        let mut command = self.folder.command(&arguments);
        command.env("RAPIDBYTE_FAULTS", fault);
        command.output().expect("the program starts").into()
    }

    /// The replay is killed at a failpoint, when it reaches it for the time `hit`. It has two loads: records that the source
    /// could not read, and rows.
    #[track_caller]
    fn is_killed(&self, point: &str, hit: u32) {
        let ended = self.replay(&format!("{}.{point}=kill@{hit}", D::CONNECTOR));
        assert_eq!(ended.code, None, "{point}: {}", ended.stderr);
    }

    /// A replay writes the row whose `v` is free, and keeps the other rejects.
    #[track_caller]
    fn is_replayed(&self, about: &str) {
        let ended = self.replay("");
        assert!(ended.code.is_some(), "{}{}", ended.stderr, ended.stdout);
        assert_eq!(
            self.target.rows(),
            [pair(2, "b"), pair(3, "a"), pair(4, "c")],
            "{about}"
        );
        self.lists(&[(6, "b")]);
    }

    /// These rows are kept, by their code and their record, and the record that the source cannot read.
    #[track_caller]
    fn lists(&self, rows: &[(i64, &str)]) {
        let arguments = ["rejects", "show", "p.yaml", "--output", "json"];
        let ended = self.folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        let rejects = document["rejects"].as_array().expect("rejects").iter();
        let mut found: Vec<(String, String)> = rejects
            .map(|reject| {
                let code = reject["code"].as_str().unwrap_or_default();
                (code.to_owned(), reject["record"].to_string())
            })
            .collect();
        found.sort();
        let key = D::KEY;
        let rows = rows.iter();
        let rows = rows.map(|(k, v)| (D::CODE.to_owned(), format!(r#"{{"{key}":{k},"v":"{v}"}}"#)));
        let (code, record) = UNREADABLE;
        let unreadable = (code.to_owned(), record.to_owned());
        let expected: Vec<_> = rows.chain([unreadable]).collect();
        assert_eq!(found, expected, "{document:#}");
    }
}

/// Rows that the server refuses are kept, and a replay writes those that it takes now.
pub(crate) fn are_kept_and_replayed(target: impl Documents) {
    Kept::new(target).is_replayed("");
}

/// A replay that is killed anywhere is made good by the next.
pub(crate) fn survive_kills<D: Documents>(target: impl Fn() -> D) {
    for (point, hits) in [
        ("replay_held", &[1, 2][..]),
        ("replay_claimed", &[1, 2]),
        // The first load does not have rows.
        ("write_sent", &[1]),
        ("flushed", &[1, 2]),
        ("replay_committing", &[1, 2]),
        ("replay_committed", &[1, 2]),
    ] {
        for hit in hits {
            let kept = Kept::new(target());
            kept.is_killed(point, *hit);
            kept.is_replayed(point);
        }
    }
}

/// Rows of a replay that died are deleted, also when the next replay dies before it deletes them.
pub(crate) fn survive_kills_in_turn(target: impl Documents) {
    let kept = Kept::new(target);
    kept.is_killed("replay_committing", 2);
    assert!(kept.target.rows().contains(&pair(3, "a")));
    for _ in 0..2 {
        kept.is_killed("replay_held", 1);
    }
    kept.is_replayed("in turn");
}

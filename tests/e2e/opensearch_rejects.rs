//! Rows that OpenSearch refuses: they are kept, and replayed once the server takes them.

use rapidbyte_testkit::opensearch::{self, OpenSearchServer, OpenSearchSpace};
use serde_json::{Value, json};

use crate::dest_opensearch::documents;
use crate::kept_documents::ran;
use crate::support::{Ended, Folder};

/// Rows whose `v` the server reads as a number, and rows of which it refuses `v` or `w`.
struct Kept {
    target: OpenSearchSpace<'static>,
    folder: Folder,
}

impl Kept {
    fn new(server: &'static OpenSearchServer) -> Self {
        let (target, folder) = (server.space(), Folder::new());
        let mappings = json!({ "mappings": { "properties": { "v": { "type": "long" }, "w": { "type": "ip" } } } });
        target.done("PUT", "t", &mappings.to_string());
        folder.write(
            "t.csv",
            "k,v,w\n1,1,::1\n2,b,::1\n3,3,::1\nfour,4,::1\n5,5,x\n6,c,::1\n",
        );
        let prefix = target.name("");
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: p\nrejects: {{ max_rows: 10, to: {prefix}bad }}\nsource:\n  use: source-file\n  \
                 config: {{ path: t.csv, schema: {{ k: int64, v: string, w: string }} }}\n  streams: [t]\ndestination:\n  \
                 use: dest-opensearch\n  config: {{ url: \"{}\", index: \"{prefix}{{stream}}\", checkpoint_index: \
                 {prefix}checkpoint }}\n  write_mode: append\n",
                target.url()
            ),
        );
        let (report, code) = ran(&folder);
        assert_eq!(code, 0, "{report:#}");
        let kept = Self { target, folder };
        assert_eq!(kept.keys(), [1, 3]);
        assert_eq!(kept.records(), ["2", "5", "6", "four"]);
        // From now on the server takes every `v`.
        let mapping =
            json!({ "properties": { "v": { "type": "long", "ignore_malformed": true } } });
        kept.target.done("PUT", "t/_mapping", &mapping.to_string());
        kept
    }

    fn keys(&self) -> Vec<i64> {
        self.target.done("POST", "t/_refresh", "");
        let all = documents(&self.target, "t").into_iter();
        let mut keys: Vec<i64> = all
            .map(|(_, source)| source["k"].as_i64().expect("a number"))
            .collect();
        keys.sort_unstable();
        keys
    }

    /// The keys of the rejects.
    fn records(&self) -> Vec<String> {
        let arguments = ["rejects", "show", "p.yaml", "--output", "json"];
        let ended = self.folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
        let rejects = document["rejects"].as_array().expect("rejects").iter();
        let key = |reject: &Value| match &reject["record"] {
            Value::Object(row) => row["k"].to_string(),
            text => text
                .as_str()
                .expect("a text")
                .split(',')
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        let mut keys: Vec<String> = rejects.map(key).collect();
        keys.sort();
        keys
    }

    fn replay(&self, fault: &str) -> Ended {
        let arguments = ["rejects", "replay", "p.yaml", "--stream", "t"];
        let mut command = self.folder.command(&arguments);
        command.env("RAPIDBYTE_FAULTS", fault);
        command.output().expect("the program starts").into()
    }

    #[track_caller]
    fn is_killed(&self, point: &str, hit: u32) {
        let ended = self.replay(&format!("dest-opensearch.{point}=kill@{hit}"));
        assert_eq!(
            ended.code, None,
            "{point}: {}{}",
            ended.stderr, ended.stdout
        );
    }

    #[track_caller]
    fn is_replayed(&self, about: &str) {
        let ended = self.replay("");
        assert!(ended.code.is_some(), "{}{}", ended.stderr, ended.stdout);
        assert_eq!(
            self.keys(),
            [1, 2, 3, 6],
            "{about}: {}{}",
            ended.stderr,
            ended.stdout
        );
        assert_eq!(self.records(), ["5", "four"], "{about}");
    }
}

#[test]
fn rows_that_the_server_refuses_are_kept_and_replayed() {
    if let Some(server) = opensearch::shared() {
        Kept::new(server).is_replayed("");
    }
}

#[test]
fn a_replay_that_is_killed_anywhere_is_made_good_by_the_next() {
    let Some(server) = opensearch::shared() else {
        return;
    };
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
            let kept = Kept::new(server);
            kept.is_killed(point, *hit);
            kept.is_replayed(point);
        }
    }
    // Rows of a replay that died are deleted, also when the next replay dies before it deletes them.
    let kept = Kept::new(server);
    kept.is_killed("replay_committing", 2);
    assert!(kept.keys().len() > 2);
    for _ in 0..2 {
        kept.is_killed("replay_held", 1);
    }
    kept.is_replayed("in turn");
}

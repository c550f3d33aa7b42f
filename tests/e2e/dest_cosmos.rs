//! From PostgreSQL and files to Azure Cosmos DB: every row once, whatever breaks. The server is the one of the test kit,
//! where it has it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rapidbyte_testkit::cosmosdb::{self, CosmosDatabase, CosmosServer, KEY};
use rapidbyte_testkit::http::{Reply, Server};
use rapidbyte_testkit::postgres::{self, Database};
use serde_json::{Value, json};

use crate::copied_documents::{self, Copies, Driver, Scenario};
use crate::kept_documents::{self, Documents, ran};
use crate::support::Folder;

/// A pipeline into a database of its own.
struct Copied {
    source: Database<'static>,
    target: CosmosDatabase<'static>,
    folder: Folder,
}

const SEED: &str = "\
CREATE TABLE t (k bigint PRIMARY KEY, at timestamptz, gone boolean, p text, v text);
INSERT INTO t SELECT i, timestamptz '2026-01-01' + (i / 7) * interval '1 second', false, 'p' || i % 4, 'v' || i
    FROM generate_series(1, 400) i;
CREATE VIEW u AS SELECT * FROM t;";

/// New rows, changed rows, deleted ones.
const CHANGE: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'p' || i % 4, 'new' || i
    FROM generate_series(1000, 1300) i;
UPDATE t SET v = v || '+', gone = k % 20 = 0, at = timestamptz '2026-02-02' WHERE k % 10 = 0;";

const ADDED: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'é\"' || i % 4, 'new' || i
    FROM generate_series(1000, 1300) i;";

const REPLACED: &str = "\
DELETE FROM t WHERE k % 3 = 0;
UPDATE t SET v = v || '+' WHERE k % 10 = 0;";

const SCENARIOS: &[Scenario] = &[
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: [at, k] }",
        target: "/p",
        write: "write_mode: append",
        change: ADDED,
        expected: "SELECT k, v FROM t",
    },
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute }",
        target: "/p",
        write: "write_mode: upsert\n  deleted_field: gone",
        change: CHANGE,
        expected: "SELECT k, v FROM t WHERE NOT gone",
    },
    // The key is the id, and each document a partition.
    Scenario {
        stream: "public.t",
        target: "/id",
        write: "write_mode: replace",
        change: REPLACED,
        expected: "SELECT k, v FROM t",
    },
    // The connector makes the ids.
    Scenario {
        stream: "{ name: public.u, target: { name: t } }",
        target: "/p",
        write: "write_mode: replace",
        change: REPLACED,
        expected: "SELECT k, v FROM t",
    },
    // The first run fails: nothing was there before. Each document is a partition.
    Scenario {
        stream: "public.t",
        target: "/id",
        write: "write_mode: append",
        change: "",
        expected: "SELECT k, v FROM t",
    },
];

impl Driver for Copied {
    const SCENARIOS: &'static [Scenario] = SCENARIOS;
    const KILLED: &'static [(&'static str, &'static [u32])] = &[
        ("dest-cosmos.asked", &[1]),
        ("dest-cosmos.fencing", &[1]),
        ("dest-cosmos.fenced", &[1]),
        ("dest-cosmos.cleaned", &[1]),
        ("dest-cosmos.writing", &[1, 2]),
        ("dest-cosmos.write_sent", &[1, 2]),
        ("dest-cosmos.flushed", &[1, 2]),
        ("dest-cosmos.committing", &[1, 2]),
        ("dest-cosmos.purging", &[1]),
        ("dest-cosmos.purged", &[1]),
        ("dest-cosmos.checkpointing", &[1, 2]),
        ("dest-cosmos.committed", &[1, 2]),
    ];
    const FENCED: &'static [(usize, &'static str)] = &[
        (0, "dest-cosmos.writing"),
        (0, "dest-cosmos.checkpointing"),
        (1, "dest-cosmos.checkpointing"),
        (2, "dest-cosmos.committing"),
        (2, "dest-cosmos.purging"),
        (3, "dest-cosmos.writing"),
        (3, "dest-cosmos.purging"),
        (4, "dest-cosmos.checkpointing"),
    ];
    const COMMIT: &'static str = "\"complete_run\":\"";

    fn new(scenario: &Scenario) -> Option<Self> {
        let _ = scenario;
        let target = cosmosdb::shared()?.database();
        let source = postgres::shared().database();
        source.client().batch_execute(SEED).expect("a table");
        Some(Self {
            source,
            target,
            folder: Folder::new(),
        })
    }

    fn port(&self) -> u16 {
        cosmosdb::shared().expect("the server").port()
    }

    fn address(&self, port: Option<u16>) -> String {
        let at = |port| format!("http://127.0.0.1:{port}/");
        port.map_or_else(|| self.target.endpoint(), at)
    }

    fn pipeline_at(&self, scenario: &Scenario, endpoint: &str, more: &str) -> String {
        format!(
            "version: 1\npipeline: p\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{}]\n\
             destination:\n  use: dest-cosmos\n  config: {{ endpoint: \"{endpoint}\", key: \"{KEY}\", database: {}, \
             partition_key: {}{more} }}\n  {}\n\
             resources: {{ batch_bytes: 4kb, memory: 64mb }}\ncheckpoint: {{ every_rows: 150 }}\n\
             retry: {{ max_attempts: 3, backoff_seconds: 1, max_backoff_seconds: 1 }}\n",
            self.source.url(),
            scenario.stream,
            self.target.name(),
            scenario.target,
            scenario.write
        )
    }

    fn reaching(point: &str) -> Range<usize> {
        match point.contains("purg") {
            // Only a run that replaces reaches it.
            true => 2..4,
            false => 0..SCENARIOS.len(),
        }
    }
}

impl Copies for Copied {
    fn folder(&self) -> &Folder {
        &self.folder
    }

    fn source(&self) -> &Database<'static> {
        &self.source
    }

    fn rows(&self) -> Vec<(i64, String)> {
        pairs(&self.target, "t")
    }

    fn collections(&self) -> Vec<String> {
        containers(&self.target)
    }
}

fn documents(target: &CosmosDatabase<'_>, container: &str) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&target.read(Some(container))).expect("JSON");
    document["Documents"].as_array().expect("documents").clone()
}

/// The fields `k` and `v` of a container.
fn pairs(target: &CosmosDatabase<'_>, container: &str) -> Vec<(i64, String)> {
    let documents = documents(target, container);
    let pairs = documents.iter().map(|document| {
        let v = document["v"].as_str().expect("a string").to_owned();
        (document["k"].as_i64().expect("a number"), v)
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    pairs
}

fn containers(target: &CosmosDatabase<'_>) -> Vec<String> {
    let document: Value = serde_json::from_slice(&target.read(None)).expect("JSON");
    let all = document["DocumentCollections"]
        .as_array()
        .expect("containers");
    let mut names: Vec<String> = all
        .iter()
        .map(|one| one["id"].as_str().expect("a name").to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn each_mode_writes_every_row_once_and_continues() {
    copied_documents::each_mode_writes_every_row_once::<Copied>();
}

#[test]
fn a_run_that_is_killed_anywhere_is_made_good_by_the_next() {
    copied_documents::a_killed_run_is_made_good::<Copied>();
}

#[test]
fn of_two_runs_at_once_the_older_one_is_fenced_and_leaves_nothing() {
    copied_documents::the_older_run_is_fenced::<Copied>();
}

#[test]
fn a_commit_without_an_answer_counts_once() {
    copied_documents::a_commit_without_an_answer_counts_once::<Copied>();
}

#[test]
fn a_run_that_is_killed_again_and_again_is_made_good() {
    copied_documents::a_run_that_is_killed_again_and_again_is_made_good::<Copied>(4);
}

#[test]
fn a_throttled_account_is_asked_again_when_it_says_over_tls() {
    let asked = AtomicU32::new(0);
    let front = copied_documents::is_right_behind::<Copied>(
        move |port, request| match asked.fetch_add(1, Ordering::Relaxed) % 3 {
            1 => Reply::status(429, "{\"message\":\"Request rate is large\"}")
                .header("x-ms-retry-after-ms", "7"),
            2 => Reply::status(449, "{}"),
            _ => cosmosdb::forward(port, request),
        },
        ", requests_in_flight: 2",
    );
    for request in front.iter().flat_map(Server::requests) {
        let signed = request.header("authorization").expect("a signature");
        assert!(signed.starts_with("type%3Dmaster%26ver%3D1.0%26sig%3D"));
        assert!(!request.text().contains(KEY));
    }
}

/// A run of `t.csv` into a container, as JSON.
fn load(
    folder: &Folder,
    target: &CosmosDatabase<'_>,
    (schema, top, more): (&str, &str, &str),
    write: &str,
) -> (Value, i32) {
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: p\n{top}source:\n  use: source-file\n  config: {{ path: t.csv{schema} }}\n  \
             streams: [t]\ndestination:\n  use: dest-cosmos\n  config: {{ endpoint: \"{}\", key: \"{KEY}\", \
             database: {}{more} }}\n  {write}\n",
            target.endpoint(),
            target.name()
        ),
    );
    ran(folder)
}

const SCHEMA: &str = ", schema: { k: int64, v: string }";

impl Documents for CosmosDatabase<'static> {
    const CONNECTOR: &'static str = "dest-cosmos";
    const KEY: &'static str = "k";
    const CODE: &'static str = "cosmos_conflict";

    fn load(&self, folder: &Folder, top: &str) -> (Value, i32) {
        load(folder, self, (SCHEMA, top, ""), "write_mode: append")
    }

    fn rows(&self) -> Vec<(i64, String)> {
        pairs(self, "t")
    }

    fn delete_a(&self) {
        let all = documents(self, "t");
        let first = all.iter().find(|document| document["v"] == "a");
        let id = first.expect("a document")["id"].as_str().expect("an id");
        self.delete("t", "[{}]", id);
    }
}

/// A database for rejects. No document has the partition key: all are in one partition, where each has another `v`.
fn unique(server: &'static CosmosServer) -> CosmosDatabase<'static> {
    let target = server.database();
    target.make("t", "/none", Some("/v"));
    target
}

#[test]
fn rows_that_the_server_refuses_are_kept_and_replayed() {
    if let Some(server) = cosmosdb::shared() {
        kept_documents::are_kept_and_replayed(unique(server));
    }
}

#[test]
fn a_replay_that_is_killed_anywhere_is_made_good_by_the_next() {
    if let Some(server) = cosmosdb::shared() {
        kept_documents::survive_kills(|| unique(server));
    }
}

#[test]
fn rows_of_a_replay_that_died_are_deleted_also_when_the_next_one_dies_before_it_does_so() {
    if let Some(server) = cosmosdb::shared() {
        kept_documents::survive_kills_in_turn(unique(server));
    }
}

#[test]
fn a_key_becomes_the_id_and_rows_with_it_are_replaced() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let target = server.database();
    let folder = Folder::new();
    let ids = |container: &str| -> BTreeMap<String, String> {
        let documents = documents(&target, container).into_iter();
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        documents
            .map(|document| (text(&document["id"]), text(&document["v"])))
            .collect()
    };
    let expected = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(id, v)| ((*id).to_owned(), (*v).to_owned()))
            .collect()
    };
    // The last row of a key counts, in whatever request it is.
    folder.write("t.csv", "id,v\n1,a\n2,b\n1,c\n1,d\n");
    let write = "write_mode: upsert\n  primary_key: [id]";
    let (document, code) = load(&folder, &target, ("", "", ""), write);
    assert_eq!(code, 0, "{document:#}");
    assert_eq!(ids("t"), expected(&[("1", "d"), ("2", "b")]));
    folder.write("t.csv", "k,v\n2,a/b|\n2,x\n");
    let write = "write_mode: upsert\n  primary_key: [v, k]";
    let (document, code) = load(&folder, &target, ("", "", ", container: keys"), write);
    assert_eq!(code, 0, "{document:#}");
    assert_eq!(
        ids("keys"),
        expected(&[("a%2Fb%7C|2", "a/b|"), ("x|2", "x")])
    );
    // An id that the server does not take is refused by its row.
    folder.write("t.csv", "id,v\na,1\na/b,2\n");
    let (document, code) = load(&folder, &target, ("", "", ""), "write_mode: append");
    assert_ne!(code, 0);
    assert_eq!(document["error"]["code"], "invalid_id", "{document:#}");
}

#[test]
fn no_value_changes_silently() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let (source, target, folder) = (
        postgres::shared().database(),
        server.database(),
        Folder::new(),
    );
    let setup = "CREATE TABLE t (k bigint PRIMARY KEY, d numeric(10, 2), j jsonb, f float8);
        INSERT INTO t VALUES (1, 12.50, '{\"a\": [1.5, null]}', 0.1), (9007199254740993, NULL, NULL, NULL);";
    source.client().batch_execute(setup).expect("a table");
    let pipeline = |more: &str, columns: &str, container: &str| {
        format!(
            "version: 1\npipeline: p\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
             streams: [{{ name: public.t{columns} }}]\ndestination:\n  use: dest-cosmos\n  config: {{ endpoint: \"{}\", key: \"{KEY}\", \
             database: {}, container: {container}{more} }}\n  write_mode: append\n",
            source.url(),
            target.endpoint(),
            target.name()
        )
    };
    folder.refuses(&pipeline("", "", "a"), "column_refused", 4, &["decimals"]);
    folder.refuses(
        &pipeline(", decimals: text", "", "a"),
        "value_not_exact",
        4,
        &["9007199254740993", "integers: text"],
    );
    folder.report(&pipeline(
        ", decimals: text, integers: text, nulls: omit",
        "",
        "b",
    ));
    let mut documents = documents(&target, "b");
    documents.sort_by_key(|document| document["k"].to_string().len());
    let without = |document: &Value| {
        let fields = document.as_object().expect("an object").clone();
        let own = fields
            .into_iter()
            .filter(|(name, _)| name != "id" && !name.starts_with('_'));
        Value::Object(own.collect())
    };
    let found: Vec<Value> = documents.iter().map(without).collect();
    assert_eq!(
        found,
        [
            json!({ "k": "1", "d": "12.50", "j": { "a": [1.5, null] }, "f": 0.1 }),
            json!({ "k": "9007199254740993" }),
        ]
    );
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_by_name() {
    let pipeline = |config: &str| {
        format!(
            "version: 1\npipeline: p\nsource:\n  use: source-generate\n  config: {{ rows: 1, preset: narrow }}\n  \
             streams: [rows]\ndestination:\n  use: dest-cosmos\n  config: {{ endpoint: \"http://127.0.0.1:1/\", {config} }}\n  write_mode: append\n"
        )
    };
    let good = format!("key: \"{KEY}\", database: d");
    let cases = [
        (
            "key: \"no key\", database: d".to_owned(),
            "invalid_setting",
            "Base64",
        ),
        (
            format!("key: \"{KEY}\", database: a/b"),
            "invalid_name",
            "a/b",
        ),
        (
            format!("{good}, requests_in_flight: 33"),
            "invalid_setting",
            "33",
        ),
        (
            format!("{good}, max_retries: 101"),
            "invalid_setting",
            "101",
        ),
        (
            format!("{good}, partition_key: id"),
            "invalid_partition_key",
            "id",
        ),
        (
            format!("key: \"{KEY}\", database: \"..\""),
            "invalid_name",
            "is not a name of a database",
        ),
        (
            format!("{good}, container: \"..\""),
            "invalid_name",
            "is not a name of a container",
        ),
        (
            format!("{good}, container: \"../{{stream}}\""),
            "invalid_name",
            "is not a name of a container",
        ),
        (
            format!("{good}, checkpoint_container: \".\""),
            "invalid_name",
            "is not a name of a container",
        ),
        (
            format!("{good}, container: _rapidbyte_checkpoint"),
            "invalid_name",
            "Rapidbyte",
        ),
        (
            format!("{good}, container: \"x_{{strem}}\""),
            "unknown_placeholder",
            "{strem} is not",
        ),
    ];
    copied_documents::settings_are_refused(pipeline, &cases);
}

/// A stream's name that its placeholder makes a name of a container.
#[test]
fn a_stream_whose_name_no_container_may_have_is_refused_by_the_plan() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let (folder, target) = (Folder::new(), server.database());
    folder.write("in/a.csv", "id\n1\n");
    for (stream, target_key) in [
        ("a#b", ""),
        ("..", ""),
        ("a", ", target: { name: \"x?y\" }"),
    ] {
        let text = format!(
            "version: 1\npipeline: p\nsource:\n  use: source-file\n  config: {{ path: in/a.csv, stream: \"{stream}\" }}\n  \
             streams: [{{ name: \"{stream}\"{target_key} }}]\ndestination:\n  use: dest-cosmos\n  \
             config: {{ endpoint: \"{}\", key: \"{KEY}\", database: {} }}\n  write_mode: append\n",
            target.endpoint(),
            target.name()
        );
        folder.refuses(&text, "invalid_name", 2, &[stream]);
        let plan = folder.rapidbyte(&["plan", "p.yaml"]);
        assert_eq!(plan.code, Some(2), "{plan:?}");
    }
}

#[test]
fn the_destination_keeps_the_contract() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let target = server.database();
    let config = json!({
        "endpoint": target.endpoint(), "key": KEY, "database": target.name(),
        "integers": "text", "decimals": "text",
    });
    let peer = json!({
        "endpoint": target.endpoint(), "key": KEY, "database": target.name(),
    });
    let peer = Some(("source-cosmos", &peer));
    let broken = copied_documents::broken_clauses("dest-cosmos", &config, peer);
    // Cosmos DB does not have transactions over partitions, and does not rename containers.
    assert_eq!(broken, ["staged"]);
}

//! From PostgreSQL and files to OpenSearch: every row once, whatever breaks. The server is a real one, where the test kit
//! has it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rapidbyte_testkit::http::{Reply, Server};
use rapidbyte_testkit::opensearch::{self, OpenSearchSpace};
use rapidbyte_testkit::postgres::{self, Database};
use serde_json::{Map, Value, json};

use crate::copied_documents::{self, Copies, Driver, Scenario};
use crate::support::Folder;

/// A pipeline into indices of its own.
struct Copied {
    source: Database<'static>,
    target: OpenSearchSpace<'static>,
    folder: Folder,
}

const SEED: &str = "\
CREATE TABLE t (k bigint PRIMARY KEY, at timestamptz, gone boolean, v text);
INSERT INTO t SELECT i, timestamptz '2026-01-01' + (i / 7) * interval '1 second', false, 'v' || i
    FROM generate_series(1, 400) i;
CREATE VIEW u AS SELECT * FROM t;";

/// New rows, changed rows, deleted ones.
const CHANGE: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'new' || i
    FROM generate_series(1000, 1300) i;
UPDATE t SET v = v || '+', gone = k % 20 = 0, at = timestamptz '2026-02-02' WHERE k % 10 = 0;";

const ADDED: &str = "\
INSERT INTO t SELECT i, timestamptz '2026-02-01' + (i % 1000 / 7) * interval '1 second', false, 'é\"' || i
    FROM generate_series(1000, 1300) i;";

const REPLACED: &str = "\
DELETE FROM t WHERE k % 3 = 0;
UPDATE t SET v = v || '+' WHERE k % 10 = 0;";

/// Somebody else has made the index.
const PLAIN: &str = "plain";

const SCENARIOS: &[Scenario] = &[
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: [at, k] }",
        target: "",
        write: "write_mode: append",
        change: ADDED,
        expected: "SELECT k, v FROM t",
    },
    Scenario {
        stream: "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 1 minute }",
        target: "",
        write: "write_mode: upsert\n  deleted_field: gone",
        change: CHANGE,
        expected: "SELECT k, v FROM t WHERE NOT gone",
    },
    // An index is filled and becomes the target.
    Scenario {
        stream: "public.t",
        target: "",
        write: "write_mode: replace",
        change: REPLACED,
        expected: "SELECT k, v FROM t",
    },
    // The index stays: by keys, and by ids that the connector makes.
    Scenario {
        stream: "public.t",
        target: PLAIN,
        write: "write_mode: replace",
        change: REPLACED,
        expected: "SELECT k, v FROM t",
    },
    Scenario {
        stream: "{ name: public.u, target: { name: \"PREFIXt\" } }",
        target: PLAIN,
        write: "write_mode: replace",
        change: REPLACED,
        expected: "SELECT k, v FROM t",
    },
    // The first run fails: nothing was there before.
    Scenario {
        stream: "public.t",
        target: "",
        write: "write_mode: append",
        change: "",
        expected: "SELECT k, v FROM t",
    },
];

impl Driver for Copied {
    const SCENARIOS: &'static [Scenario] = SCENARIOS;
    const KILLED: &'static [(&'static str, &'static [u32])] = &[
        ("dest-opensearch.asked", &[1]),
        ("dest-opensearch.fencing", &[1]),
        ("dest-opensearch.fenced", &[1]),
        ("dest-opensearch.cleaned", &[1]),
        ("dest-opensearch.writing", &[1, 2]),
        ("dest-opensearch.write_sent", &[1, 2]),
        ("dest-opensearch.flushed", &[1, 2]),
        ("dest-opensearch.committing", &[1, 2]),
        ("dest-opensearch.purging", &[1]),
        ("dest-opensearch.purged", &[1]),
        ("dest-opensearch.publishing", &[1]),
        ("dest-opensearch.published", &[1]),
        ("dest-opensearch.checkpointing", &[1, 2]),
        ("dest-opensearch.committed", &[1, 2]),
    ];
    const FENCED: &'static [(usize, &'static str)] = &[
        (0, "dest-opensearch.writing"),
        (0, "dest-opensearch.checkpointing"),
        (1, "dest-opensearch.checkpointing"),
        (2, "dest-opensearch.committing"),
        (2, "dest-opensearch.publishing"),
        (3, "dest-opensearch.committing"),
        (3, "dest-opensearch.purging"),
        (4, "dest-opensearch.writing"),
        (4, "dest-opensearch.purging"),
        (5, "dest-opensearch.checkpointing"),
    ];
    const COMMIT: &'static str = "\"complete_run\":\"";

    fn new(scenario: &Scenario) -> Option<Self> {
        let target = opensearch::shared()?.space();
        if scenario.target == PLAIN {
            target.done("PUT", "t", "{}");
        }
        let source = postgres::shared().database();
        source.client().batch_execute(SEED).expect("a table");
        Some(Self {
            source,
            target,
            folder: Folder::new(),
        })
    }

    fn port(&self) -> u16 {
        opensearch::shared().expect("the server").port()
    }

    fn address(&self, port: Option<u16>) -> String {
        let at = |port| format!("http://127.0.0.1:{port}");
        port.map_or_else(|| self.target.url(), at)
    }

    fn pipeline_at(&self, scenario: &Scenario, url: &str, more: &str) -> String {
        let prefix = self.target.name("");
        format!(
            "version: 1\npipeline: p\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{}]\n\
             destination:\n  use: dest-opensearch\n  config: {{ url: \"{url}\", index: \"{prefix}{{stream}}\", \
             checkpoint_index: {prefix}checkpoint, bulk_rows: 50{more} }}\n  {}\n\
             resources: {{ batch_bytes: 4kb, memory: 64mb }}\ncheckpoint: {{ every_rows: 150 }}\n\
             retry: {{ max_attempts: 3, backoff_seconds: 1, max_backoff_seconds: 1 }}\n",
            self.source.url(),
            scenario.stream.replace("PREFIX", &prefix),
            scenario.write
        )
    }

    fn reaching(point: &str) -> Range<usize> {
        match point {
            // Only a run that replaces reaches it.
            "dest-opensearch.purging" | "dest-opensearch.purged" => 3..5,
            "dest-opensearch.publishing" | "dest-opensearch.published" => 2..3,
            _ => 0..SCENARIOS.len(),
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
        let found = self.target.done("GET", "*/_alias?expand_wildcards=all", "");
        let found: Map<String, Value> = serde_json::from_str(&found).expect("JSON");
        let prefix = self.target.name("").len();
        let mut names: Vec<String> = found
            .iter()
            .map(|(index, value)| {
                // An index that became the target has its name as an alias.
                let aliases = value["aliases"].as_object().expect("aliases");
                aliases.keys().next().unwrap_or(index)[prefix..].to_owned()
            })
            .collect();
        names.sort();
        names
    }

    fn expected_collections(&self) -> Vec<String> {
        vec!["checkpoint".to_owned(), "t".to_owned()]
    }
}

/// The `_id` and the `_source` of all documents that searches find.
pub(crate) fn documents(target: &OpenSearchSpace<'_>, index: &str) -> Vec<(String, Value)> {
    let found = target.done("POST", &format!("{index}/_search?size=5000"), "{}");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let hits = found["hits"]["hits"].as_array().expect("hits").iter();
    hits.map(|hit| {
        let id = hit["_id"].as_str().expect("an id").to_owned();
        (id, hit["_source"].clone())
    })
    .collect()
}

/// The fields `k` and `v` of an index, as searches find them.
fn pairs(target: &OpenSearchSpace<'_>, index: &str) -> Vec<(i64, String)> {
    let pair = |(_, source): (String, Value)| {
        let v = source["v"].as_str().expect("a string").to_owned();
        (source["k"].as_i64().expect("a number"), v)
    };
    let mut pairs: Vec<_> = documents(target, index).into_iter().map(pair).collect();
    pairs.sort();
    pairs
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
fn a_run_that_is_killed_again_and_again_is_made_good() {
    // Of the last one, each run that succeeds adds all rows again.
    copied_documents::a_run_that_is_killed_again_and_again_is_made_good::<Copied>(5);
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
fn a_cluster_that_is_busy_is_asked_again_over_tls_with_a_login() {
    let asked = AtomicU32::new(0);
    let front = copied_documents::is_right_behind::<Copied>(
        move |port, request| {
            let is_write = request.path.ends_with("/_bulk");
            match asked.fetch_add(u32::from(is_write), Ordering::Relaxed) % 3 {
                1 if is_write => Reply::status(
                    429,
                    "{\"error\":{\"type\":\"es_rejected_execution_exception\"}}",
                )
                .header("retry-after", "0"),
                _ => opensearch::forward(port, request),
            }
        },
        ", username: u, password: s3cret",
    );
    for request in front.iter().flat_map(Server::requests) {
        assert_eq!(request.header("authorization"), Some("Basic dTpzM2NyZXQ="));
    }
}

/// One generated row into the cluster at `url`. `config` are settings beside the URL.
fn one_row(url: &str, config: &str) -> String {
    format!(
        "version: 1\npipeline: p\nsource:\n  use: source-generate\n  config: {{ rows: 1, preset: narrow }}\n  \
         streams: [rows]\ndestination:\n  use: dest-opensearch\n  config:\n    url: \"{url}\"\n{config}  \
         write_mode: append\nretry: {{ max_attempts: 1 }}\n"
    )
}

/// The line of `url` in [`one_row`].
const LINE_OF_URL: &str = "p.yaml:10:";

#[test]
fn a_url_with_credentials_is_refused_with_the_settings_to_use() {
    let folder = Folder::new();
    let text = one_row("https://u:s3cret@search.example.com:9200", "");
    let (error, exit) = folder.error(&text);
    assert_eq!(
        (&error["code"], exit),
        (&json!("http_invalid_url"), 2),
        "{error:#}"
    );
    let shown = error.to_string();
    for part in ["username and password", "api_key", LINE_OF_URL] {
        assert!(shown.contains(part), "{part}: {error:#}");
    }
    assert!(!shown.contains("s3cret"), "{error:#}");
}

#[test]
fn a_path_in_the_url_goes_before_each_request_and_is_named_if_the_cluster_does_not_take_it() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let (folder, target) = (Folder::new(), server.space());
    let names = format!(
        "    index: \"{}\"\n    checkpoint_index: \"{}\"\n",
        target.name("{stream}"),
        target.name("checkpoint")
    );
    for (path, code) in [
        ("/a/b", "opensearch_refused"),
        ("/search", "opensearch_not_found"),
    ] {
        let text = one_row(&format!("{}{path}", target.url()), &names);
        let said = format!("the path {path},");
        folder.refuses(&text, code, 2, &[&said, LINE_OF_URL]);
    }
    // A proxy takes it away.
    let port = server.port();
    let proxy = Server::start(move |request| {
        let mut request = request.clone();
        match request.path.strip_prefix("/search") {
            Some(path) => request.path = format!("/{}", path.trim_start_matches('/')),
            None => return Reply::status(404, "no such path"),
        }
        opensearch::forward(port, &request)
    });
    let report = folder.report(&one_row(&proxy.url("/search"), &names));
    assert_eq!(report["streams"][0]["rows"], 1, "{report:#}");
}

#[test]
fn a_redirect_is_refused_and_says_where_it_leads() {
    let folder = Folder::new();
    let leads = Server::start(|_| {
        Reply::status(302, "").header("location", "https://login.example.com/in?token=s3cret")
    });
    let text = one_row(&leads.url("/"), "");
    let parts = ["302", "https://login.example.com/in", LINE_OF_URL];
    folder.refuses(&text, "http_redirect", 2, &parts);
    let (error, _) = folder.error(&text);
    assert!(!error.to_string().contains("s3cret"), "{error:#}");
    assert!(leads.requests().iter().all(|request| request.path == "/"));
    let nowhere = Server::start(|_| Reply::status(302, ""));
    let text = one_row(&nowhere.url("/"), "");
    folder.refuses(&text, "http_redirect", 2, &["without a URL"]);
}

#[test]
fn check_gives_up_on_a_busy_cluster_and_a_run_says_that_it_waits() {
    let folder = Folder::new();
    let busy = Server::start(|_| Reply::status(429, "busy"));
    folder.write("p.yaml", one_row(&busy.url("/"), ""));
    let check = folder.rapidbyte(&["check", "p.yaml"]);
    let told = format!("{}{}", check.stdout, check.stderr);
    assert_eq!(check.code, Some(1), "{told}");
    assert!(told.contains("opensearch_rate_limited"), "{told}");
    // One request for the version, with fewer retries than a run makes.
    assert_eq!(busy.requests().len(), 4);
    let busy = Server::start(|_| Reply::status(429, "busy").header("retry-after", "2"));
    folder.write("p.yaml", one_row(&busy.url("/"), "    max_retries: 1\n"));
    let run = folder.rapidbyte(&["run", "p.yaml"]);
    let said = "the server answers 429: busy; the request is sent again in 2.0 s";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
}

#[test]
fn a_configuration_that_cannot_be_meant_is_refused_by_name() {
    let pipeline = |config: &str| one_row("http://127.0.0.1:1/", &format!("    {config}\n"));
    let cases = [
        ("username: u", "invalid_setting", "without a password"),
        ("password: p", "invalid_setting", "without a username"),
        (
            "api_key: k\n    username: u\n    password: p",
            "invalid_setting",
            "beside",
        ),
        ("requests_in_flight: 17", "invalid_setting", "17"),
        ("max_retries: 101", "invalid_setting", "101"),
        ("bulk_rows: 0", "invalid_setting", "0 is not"),
        ("bulk_bytes: 1kb", "invalid_setting", "1024"),
        ("index: Upper", "invalid_name", "upper case"),
        ("index: rapidbyte-checkpoint", "invalid_name", "Rapidbyte"),
        ("checkpoint_index: _x", "invalid_name", "_x"),
        (
            "index: \"x_{strem}\"",
            "unknown_placeholder",
            "{strem} is not",
        ),
    ];
    copied_documents::settings_are_refused(pipeline, &cases);
}

#[test]
fn the_destination_keeps_the_contract() {
    let Some(server) = opensearch::shared() else {
        return;
    };
    let target = server.space();
    let config = json!({
        "url": target.url(), "index": target.name("{stream}"), "checkpoint_index": target.name("checkpoint"),
    });
    let broken = copied_documents::broken_clauses("dest-opensearch", &config, None);
    // OpenSearch does not have transactions.
    assert_eq!(broken, ["staged"]);
}

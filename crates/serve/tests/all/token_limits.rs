//! Limits of a token for pending jobs and for rows.

use std::path::Path;
use std::sync::Arc;

use rapidbyte_serve::{Catalogue, Ingest, Log, NewToken, Scope, Server, Settings, TokenFile};
use rapidbyte_testkit::postgres::shared;

use crate::served;
use crate::support::{Answer, Client, FORM, form};

/// The pipeline `a` has the stream `s`. Nobody runs it, so its jobs stay pending.
struct One;

impl Catalogue for One {
    fn ingest(&self, pipeline: &str, stream: &str) -> Option<Ingest> {
        (self.has(pipeline) && stream == "s").then(Ingest::default)
    }

    fn has(&self, pipeline: &str) -> bool {
        pipeline == "a"
    }
}

/// The header of a new token.
fn token(folder: &Path, rows_per_second: Option<u64>, open_jobs: Option<u64>) -> String {
    let scope = |text: &str| Scope::try_from(text.to_owned()).expect("a scope");
    let new = NewToken {
        name: "test".into(),
        scopes: vec![scope("ingest"), scope("operate")],
        requests_per_second: None,
        bytes_per_second: None,
        rows_per_second,
        open_jobs,
    };
    let (_, secret) = TokenFile::of(folder).add(new).expect("a token");
    format!("Authorization: Bearer {secret}\r\n")
}

const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";

/// The seconds of `Retry-After`.
fn seconds(answer: &Answer) -> u64 {
    let head = answer.head.to_lowercase();
    let mut lines = head.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("retry-after: "));
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or_else(|| panic!("no Retry-After: {head}"))
}

#[track_caller]
fn assert_refused(answer: &Answer, code: &str) {
    assert_eq!(
        (answer.status, &answer.body["error"]["code"]),
        (429, &code.into()),
        "{}",
        answer.body
    );
    assert!(seconds(answer) > 0);
}

#[test]
fn a_token_with_its_pending_jobs_waits_and_others_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let limited = format!("{JSON_LINES}{}", token(folder.path(), None, Some(2)));
    let free = format!("{JSON_LINES}{}", token(folder.path(), None, None));
    let path = "/v1/ingest/a/s";
    // The count is that of the store: another server of the folder knows it.
    for is_first in [true, false] {
        let server = Server::start(Settings::new(folder.path()), Arc::new(One)).expect("a server");
        let mut client = Client::new(server.address());
        if is_first {
            let parts: [(&str, &[u8]); 3] = [
                ("name=\"f\"; filename=\"a.jsonl\"", b"1"),
                ("name=\"f\"; filename=\"b.jsonl\"", b"2"),
                ("name=\"f\"; filename=\"c.jsonl\"", b"3"),
            ];
            let authorization = limited.trim_start_matches(JSON_LINES);
            let headers = format!("{FORM}{authorization}");
            let refused = client.post(path, &headers, &form(&parts));
            assert_refused(&refused, "too_many_open_jobs");
            for body in ["1", "2"] {
                assert_eq!(client.post(path, &limited, body.as_bytes()).status, 202);
            }
        }
        assert_refused(&client.post(path, &limited, b"3"), "too_many_open_jobs");
        assert_eq!(client.post(path, &free, b"4").status, 202);
        if !is_first {
            let cancelled = client.post("/v1/jobs/1/cancel", &limited, b"");
            assert_eq!(cancelled.status, 200, "{}", cancelled.body);
            assert_eq!(client.post(path, &limited, b"5").status, 202);
            assert_refused(&client.post(path, &limited, b"6"), "too_many_open_jobs");
        }
        server.stop();
    }
}

#[test]
fn a_token_waits_after_a_run_for_the_rows_of_its_jobs() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "version: 1\npipeline: a\n\
         source: {{ use: ingest, config: {{ schema: {{ id: int64 }} }}, streams: [s] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
        database.url()
    );
    let settings = served::settings(folder.path());
    let limited = format!("{JSON_LINES}{}", token(&settings.folder, Some(1), None));
    let fast = format!(
        "{JSON_LINES}{}",
        token(&settings.folder, Some(1_000_000), None)
    );
    let server = served::serve(folder.path(), &text, settings, Log::default());
    let mut client = Client::new(server.address());
    let rows: String = (0..5000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let path = "/v1/ingest/a/s?wait=true";
    let done = client.post(path, &limited, rows.as_bytes());
    assert_eq!(done.status, 200, "{}", done.body);
    let refused = client.post(path, &limited, b"{\"id\":1}");
    assert_refused(&refused, "rate_limited");
    // 5,000 rows at one a second, without the time that has passed.
    let waits = seconds(&refused);
    assert!((4000..=5000).contains(&waits), "{waits}");
    assert_eq!(client.post(path, &fast, b"{\"id\":1}").status, 200);
    server.stop();
}

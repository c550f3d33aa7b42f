//! A run goes on while its stream has jobs.

use std::path::Path;

use rapidbyte_serve::{Log, Server, Settings};
use rapidbyte_testkit::postgres::{Database, shared};
use serde_json::Value;

use crate::served::{self, Told, told_of};
use crate::support::Client;

const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";

/// The pipeline `p` with the streams `a`, `b` and `c`, and as many threads.
fn start(folder: &Path, database: &Database<'_>, threads: usize, more: &str) -> Server {
    start_with(folder, database, threads, ("", more))
}

/// The same with settings of the source.
fn start_with(
    folder: &Path,
    database: &Database<'_>,
    threads: usize,
    settings: (&str, &str),
) -> Server {
    start_telling(folder, database, threads, settings, Log::default())
}

/// The same with a log.
fn start_telling(
    folder: &Path,
    database: &Database<'_>,
    threads: usize,
    (config, more): (&str, &str),
    log: Log,
) -> Server {
    let text = format!(
        "version: 1\npipeline: p\nsource: {{ use: ingest, config: {{ {config} }}, streams: [a, b, c] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n{more}",
        database.url()
    );
    let settings = Settings {
        streams: threads,
        ..served::settings(folder)
    };
    served::serve(folder, &text, settings, log)
}

fn send(client: &mut Client, stream: &str, body: &str) {
    let path = format!("/v1/ingest/p/{stream}?wait=true");
    let answer = client.post(&path, JSON_LINES, body.as_bytes());
    assert_eq!(answer.status, 200, "{body}: {}", answer.body);
}

/// The numbers in a column, in the order of the ids.
fn column(database: &Database<'_>, stream: &str, column: &str) -> Vec<Option<i64>> {
    let sql = format!("SELECT {column} FROM public.{stream} ORDER BY id");
    let rows = database.client().query(&sql, &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The processes of the server that have written, by the rows that each has in the table `log`.
fn sessions(database: &Database<'_>) -> Vec<i64> {
    let sql = "SELECT count(*) FROM public.log GROUP BY pid ORDER BY min(id)";
    let rows = database.client().query(sql, &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The table `a`, which notes the session that writes each row.
fn watched(database: &Database<'_>) {
    let sql = "CREATE TABLE log (id int8, pid int4); CREATE TABLE a (id int8); \
               CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN INSERT INTO public.log VALUES (NEW.id, pg_backend_pid()); RETURN NEW; END $$; \
               CREATE TRIGGER note BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION note()";
    database.client().batch_execute(sql).expect("tables");
}

#[test]
fn commits_of_a_stream_share_a_session_and_a_run_until_its_columns_change() {
    let database = shared().database();
    // Each run has another epoch.
    let runs = || {
        let sql = "SELECT epoch FROM _rapidbyte.checkpoint WHERE stream = 'a'";
        let row = database.client().query_one(sql, &[]).expect("a checkpoint");
        row.get::<_, i64>(0)
    };
    watched(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database, 2, "");
    let mut client = Client::new(server.address());
    for id in 1..=5 {
        send(&mut client, "a", &format!("{{\"id\":{id}}}"));
    }
    send(&mut client, "a", "{\"id\":6}");
    assert_eq!((sessions(&database), runs()), (vec![6], 1));
    send(&mut client, "a", "{\"id\":7,\"x\":70}");
    send(&mut client, "a", "{\"id\":8,\"x\":80}");
    assert_eq!((sessions(&database), runs()), (vec![8], 2));
    let changes = &client.get("/v1/changes?pipeline=p").body["changes"];
    assert_eq!(changes.as_array().map(Vec::len), Some(1), "{changes}");
    let statement = changes[0]["statement"].as_str().unwrap_or_default();
    assert!(statement.ends_with(" x bigint"), "{changes}");
    assert_eq!(
        (&changes[0]["stream"], &changes[0]["run"]),
        (&"a".into(), &Value::Null)
    );
    let ids: Vec<_> = (1..=8).map(Some).collect();
    assert_eq!(column(&database, "a", "id"), ids);
    let x = column(&database, "a", "x");
    assert_eq!(x[6..], [Some(70), Some(80)]);
    server.stop();
}

#[test]
fn a_body_that_cannot_be_read_is_dead_and_those_around_it_are_not() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database, 1, "");
    let mut client = Client::new(server.address());
    for round in 0..3 {
        let id = 10 * round;
        send(&mut client, "a", &format!("{{\"id\":{id}}}"));
        for body in [format!("{{\"id\":{}}}", id + 1), "{".into()] {
            let path = "/v1/ingest/p/a";
            assert_eq!(client.post(path, JSON_LINES, body.as_bytes()).status, 202);
        }
        send(&mut client, "a", &format!("{{\"id\":{}}}", id + 2));
    }
    let expected = [0, 1, 2, 10, 11, 12, 20, 21, 22].map(Some);
    assert_eq!(column(&database, "a", "id"), expected);
    let dead = client.get("/v1/jobs?pipeline=p&state=dead");
    assert_eq!(dead.body["jobs"].as_array().map(Vec::len), Some(3));
    server.stop();
}

#[test]
fn a_body_that_the_reader_blames_stops_one_run() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start_with(folder.path(), &database, 1, ("schema: { id: int64 }", ""));
    let mut client = Client::new(server.address());
    for id in 0..60 {
        let body = match id % 10 {
            7 => "{\"id\":\"x\"}".to_owned(),
            _ => format!("{{\"id\":{id}}}"),
        };
        let answer = client.post("/v1/ingest/p/a", JSON_LINES, body.as_bytes());
        assert_eq!(answer.status, 202, "{}", answer.body);
    }
    send(&mut client, "a", "{\"id\":60}");
    let expected: Vec<_> = (0..=60).filter(|id| id % 10 != 7).map(Some).collect();
    assert_eq!(column(&database, "a", "id"), expected);
    let dead = client.get("/v1/jobs?pipeline=p&state=dead");
    assert_eq!(dead.body["jobs"].as_array().map(Vec::len), Some(6));
    let metrics = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
    let metrics = Client::new(server.address()).rest(metrics);
    let failed = "rapidbyte_runs_total{pipeline=\"p\",stream=\"a\",result=\"failed\"} 6\n";
    assert!(metrics.contains(failed), "{metrics}");
    server.stop();
}

#[test]
fn bodies_of_other_formats_share_the_run() {
    let database = shared().database();
    watched(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let server = start_with(folder.path(), &database, 1, ("schema: { id: int64 }", ""));
    let mut client = Client::new(server.address());
    for id in (1..=9).step_by(3) {
        send(&mut client, "a", &format!("{{\"id\":{id}}}"));
        for (kind, body) in [
            ("text/csv", format!("id\n{}\n", id + 1)),
            ("application/json", format!("[{{\"id\":{}}}]", id + 2)),
        ] {
            let headers = format!("Content-Type: {kind}\r\n");
            let answer = client.post("/v1/ingest/p/a?wait=true", &headers, body.as_bytes());
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    }
    let ids: Vec<_> = (1..=9).map(Some).collect();
    assert_eq!(column(&database, "a", "id"), ids);
    assert_eq!(sessions(&database), [9]);
    server.stop();
}

#[test]
fn a_run_that_fails_after_commits_says_why() {
    let database = shared().database();
    let sql = "CREATE TABLE a (id int8); CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN IF NEW.id = 3 AND NOT EXISTS (SELECT FROM pg_class WHERE relname = 'allowed') \
               THEN RAISE 'not now' USING ERRCODE = 'XX000'; END IF; RETURN NEW; END $$; \
               CREATE TRIGGER refuse BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.client().batch_execute(sql).expect("a table");
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database, 1, "");
    for id in 1..=2 {
        send(
            &mut Client::new(server.address()),
            "a",
            &format!("{{\"id\":{id}}}"),
        );
    }
    // A connection that waits for ten seconds is closed, and a busy machine takes that long.
    let mut client = Client::new(server.address());
    let mut standing = || {
        let stream = &client.get("/v1/pipelines/p").body["pipeline"]["streams"][0];
        stream.clone()
    };
    let sent = Client::new(server.address()).post("/v1/ingest/p/a", JSON_LINES, b"{\"id\":3}");
    assert_eq!(sent.status, 202);
    let problem = loop {
        let problem = standing()["problem"].clone();
        if !problem.is_null() {
            break problem;
        }
        std::thread::yield_now();
    };
    assert_eq!(problem["code"], "pg_XX000", "{problem}");
    let allow = "CREATE TABLE allowed ()";
    database.client().batch_execute(allow).expect("a table");
    let mut other = Client::new(server.address());
    let retry = "/v1/pipelines/p/streams/a/retry";
    assert_eq!(other.post(retry, "", b"").status, 202);
    send(&mut other, "a", "{\"id\":4}");
    // The run goes on, and is well.
    let standing = standing();
    assert_eq!(
        (&standing["problem"], &standing["failures"]),
        (&Value::Null, &0.into()),
        "{standing}"
    );
    assert_eq!(column(&database, "a", "id"), [1, 2, 3, 4].map(Some));
    server.stop();
}

#[test]
fn a_job_that_the_destination_cannot_take_for_no_known_reason_is_dead_when_others_were_moved() {
    let database = shared().database();
    let sql = "CREATE TABLE a (id int8); \
               CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               IF NEW.id = 2 THEN RAISE 'no' USING ERRCODE = 'RB001'; END IF; RETURN NEW; END $$; \
               CREATE TRIGGER refuse BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.client().batch_execute(sql).expect("tables");
    let folder = tempfile::tempdir().expect("a folder");
    let server = start_with(folder.path(), &database, 1, ("schema: { id: int64 }", ""));
    let mut client = Client::new(server.address());
    send(&mut client, "a", "{\"id\":1}");
    for id in 2..=5 {
        let body = format!("{{\"id\":{id}}}");
        let sent = client.post("/v1/ingest/p/a", JSON_LINES, body.as_bytes());
        assert_eq!(sent.status, 202);
    }
    // Somebody has it tried again and again. Otherwise it takes about a minute.
    let (mut failures, mut dead) = (0, Value::Null);
    for _ in 0..100_000 {
        let stream = &client.get("/v1/pipelines/p").body["pipeline"]["streams"][0];
        failures = failures.max(stream["failures"].as_u64().unwrap_or(0));
        dead = client.get("/v1/jobs?pipeline=p&state=dead").body["jobs"].take();
        let retry = "/v1/pipelines/p/streams/a/retry";
        assert_eq!(client.post(retry, "", b"").status, 202);
        if dead[0].is_object() {
            break;
        }
    }
    send(&mut client, "a", "{\"id\":6}");
    assert!(failures >= 7, "{failures}");
    assert_eq!(column(&database, "a", "id"), [1, 3, 4, 5, 6].map(Some));
    assert_eq!(dead[0]["reason"]["code"], "pg_RB001", "{dead}");
    server.stop();
}

#[test]
fn more_streams_than_threads_take_turns() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database, 1, "");
    let address = server.address();
    std::thread::scope(|scope| {
        for stream in ["a", "b", "c"] {
            scope.spawn(move || {
                let mut client = Client::new(address);
                for id in 0..20 {
                    send(&mut client, stream, &format!("{{\"id\":{id}}}"));
                }
            });
        }
    });
    let ids: Vec<_> = (0..20).map(Some).collect();
    for stream in ["a", "b", "c"] {
        assert_eq!(column(&database, stream, "id"), ids, "{stream}");
    }
    server.stop();
}

#[test]
fn the_limit_of_rejects_is_of_each_commit() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let rejects = "rejects: { max_share: 0.5, to: rej.bad }\n";
    let settings = ("schema: { id: int64 not null }", rejects);
    let server = start_with(folder.path(), &database, 1, settings);
    let mut client = Client::new(server.address());
    send(&mut client, "a", "{\"id\":1}\n{\"id\":2}\n{\"id\":3}");
    let body = b"{\"id\":4}\n{}\n{}\n";
    let answer = client.post("/v1/ingest/p/a?wait=true", JSON_LINES, body);
    let code = &answer.body["job"]["reason"]["code"];
    assert_eq!((answer.status, code), (422, &"too_many_rejects".into()));
    send(&mut client, "a", "{\"id\":5}\n{}\n");
    // A body without a row is done, too.
    send(&mut client, "a", "\n");
    assert_eq!(column(&database, "a", "id"), [1, 2, 3, 5].map(Some));
    server.stop();
}

#[test]
fn a_server_that_loses_its_sessions_opens_others() {
    let database = shared().database();
    watched(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(
        folder.path(),
        &database,
        1,
        "retry: { backoff_seconds: 1 }\n",
    );
    let mut client = Client::new(server.address());
    for id in 1..=4_i64 {
        send(&mut client, "a", &format!("{{\"id\":{id}}}"));
        let sql = "SELECT pg_terminate_backend(pid) FROM log WHERE id = $1";
        let ended = database.client().query_one(sql, &[&id]).expect("an answer");
        assert!(ended.get::<_, bool>(0));
    }
    assert_eq!(sessions(&database), [1, 1, 1, 1]);
    assert_eq!(column(&database, "a", "id"), [1, 2, 3, 4].map(Some));
    server.stop();
}

#[test]
fn a_run_follows_a_column_that_comes_behind_the_sample() {
    let database = shared().database();
    watched(&database);
    let folder = tempfile::tempdir().expect("a folder");
    let server = start_with(folder.path(), &database, 1, ("sample_rows: 1", ""));
    let mut client = Client::new(server.address());
    send(&mut client, "a", "{\"id\":1}");
    send(&mut client, "a", "{\"id\":2}\n{\"id\":3,\"x\":30}");
    end_session(&database, 3);
    send(&mut client, "a", "{\"id\":4}\n{\"id\":5,\"x\":50}");
    let x = column(&database, "a", "x");
    assert_eq!(x, [None, None, Some(30), None, Some(50)]);
    server.stop();
}

/// Ends the session that has written a row, and waits until it is gone.
fn end_session(database: &Database<'_>, id: i64) {
    let sql = "SELECT pg_terminate_backend(pid, 60000) FROM log WHERE id = $1";
    let ended = database.client().query_one(sql, &[&id]).expect("an answer");
    assert!(ended.get::<_, bool>(0), "{id}");
}

#[test]
fn a_session_that_is_lost_between_two_commits_is_told_once_and_nothing_beside_it() {
    for commits in 1..=3 {
        let database = shared().database();
        watched(&database);
        let folder = tempfile::tempdir().expect("a folder");
        let told = Told::default();
        let server = start_telling(folder.path(), &database, 1, ("", ""), told.log());
        let mut client = Client::new(server.address());
        // The last session has nothing to write when it is lost: the run ends, because another stream needs its thread.
        for id in 1..=commits {
            send(&mut client, "a", &format!("{{\"id\":{id}}}"));
            end_session(&database, id);
        }
        send(&mut client, "b", "{\"id\":1}");
        let lost = ["pg_57P01".to_owned(), "works again".to_owned()];
        let expected = lost.iter().cycle().take(2 * commits as usize);
        let expected: Vec<_> = expected.cloned().collect();
        assert_eq!(told_of(&told.text(), "p.a"), expected, "{}", told.text());
        let standing = &client.get("/v1/pipelines/p").body["pipeline"]["streams"][0];
        assert_eq!(standing["problem"], Value::Null, "{standing}");
        send(&mut client, "a", "{\"id\":9}");
        let ids: Vec<_> = (1..=commits).chain([9]).map(Some).collect();
        assert_eq!(column(&database, "a", "id"), ids);
        server.stop();
    }
}

#[test]
fn a_stream_that_fails_again_and_again_is_told_once_for_each_reason() {
    let database = shared().database();
    let refuse = |code: &str| {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.id = 2 THEN RAISE 'not now' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$"
        );
        database.client().batch_execute(&sql).expect("a function");
    };
    refuse("RB001");
    let sql = "CREATE TABLE a (id int8); \
               CREATE TRIGGER refuse BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.client().batch_execute(sql).expect("a table");
    let folder = tempfile::tempdir().expect("a folder");
    let told = Told::default();
    let server = start_telling(folder.path(), &database, 1, ("", ""), told.log());
    let mut client = Client::new(server.address());
    send(&mut client, "a", "{\"id\":1}");
    let sent = client.post("/v1/ingest/p/a", JSON_LINES, b"{\"id\":2}");
    assert_eq!(sent.status, 202, "{}", sent.body);
    let retry = "/v1/pipelines/p/streams/a/retry";
    // Waits until the stream has failed so often for this reason.
    let mut failed = |times: u64, code: &str| {
        loop {
            let stream = &client.get("/v1/pipelines/p").body["pipeline"]["streams"][0];
            if stream["failures"].as_u64() >= Some(times) && stream["problem"]["code"] == code {
                break;
            }
            assert_eq!(client.post(retry, "", b"").status, 202);
        }
    };
    failed(2, "pg_RB001");
    refuse("RB002");
    failed(4, "pg_RB002");
    let allow = "DROP TRIGGER refuse ON a";
    database.client().batch_execute(allow).expect("allowed");
    assert_eq!(client.post(retry, "", b"").status, 202);
    send(&mut client, "a", "{\"id\":3}");
    assert_eq!(
        told_of(&told.text(), "p.a"),
        ["pg_RB001", "pg_RB002", "works again"],
        "{}",
        told.text()
    );
    assert_eq!(column(&database, "a", "id"), [1, 2, 3].map(Some));
    server.stop();
}

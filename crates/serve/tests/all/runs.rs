//! Jobs become rows of a real PostgreSQL, each once.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rapidbyte::{Environment, Pipeline};
use rapidbyte_serve::{Log, Pipelines, ServeError, Server};
use rapidbyte_testkit::postgres::{self, Database, shared};

use crate::served::{self, Told};
use crate::support::{Client, FORM, form};

pub const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";
pub const ROWS: &str = "/v1/ingest/orders/orders";
pub const ROWS_AND_WAIT: &str = "/v1/ingest/orders/orders?wait=true";

/// The pipeline `orders` with the streams `orders` and `others`.
pub fn text(url: &str) -> String {
    format!(
        "version: 1\npipeline: orders\n\
         source: {{ use: ingest, config: {{ schema: {{ id: int64, name: string }} }}, streams: [orders, others] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n"
    )
}

/// Upserts by `id`, with the columns that each body has.
pub fn upserts(pipeline: &str, stream: &str, url: &str) -> String {
    format!(
        "version: 1\npipeline: {pipeline}\n\
         source: {{ use: ingest, streams: [{{ name: {stream}, primary_key: [id] }}] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: upsert }}\n"
    )
}

pub fn start(folder: &Path, url: &str) -> Server {
    start_text(folder, &text(url)).0
}

pub fn start_text(folder: &Path, text: &str) -> (Server, Told) {
    let told = Told::default();
    let server = served::serve(folder, text, served::settings(folder), told.log());
    (server, told)
}

/// Sends a body, whose rows are then committed.
#[track_caller]
pub fn done(client: &mut Client, body: &str) {
    let answer = client.post(ROWS_AND_WAIT, JSON_LINES, body.as_bytes());
    assert_eq!(
        (answer.status, &answer.body["job"]["state"]),
        (200, &"done".into()),
        "{}",
        answer.body
    );
}

/// Sends a body, whose job then waits.
#[track_caller]
pub fn taken(client: &mut Client, body: &str) {
    let answer = client.post(ROWS, JSON_LINES, body.as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.body);
}

/// Asks for an action of an operator, such as `retry`.
#[track_caller]
pub fn operate(client: &mut Client, path: &str, status: u16) {
    let answer = client.post(path, "", b"");
    assert_eq!(answer.status, status, "{path}: {}", answer.body);
}

/// The only file of the spool.
pub fn spooled(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder.join("server/spool")).expect("a folder");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    let [file] = files.as_slice() else {
        panic!("{files:?}");
    };
    file.clone()
}

/// A session that locks a table, so that runs wait for it until it commits.
pub fn lock(database: &Database<'_>, table: &str) -> postgres::Client {
    let mut holder = database.client();
    let sql = format!("BEGIN; LOCK TABLE public.{table}");
    holder.batch_execute(&sql).expect("a lock");
    holder
}

/// The ids in the table, in order.
pub fn ids(database: &Database<'_>) -> Vec<i64> {
    let sql = "SELECT id FROM public.orders ORDER BY id";
    let rows = database.client().query(sql, &[]).expect("rows");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn jobs_are_rows_and_a_bad_job_is_dead_alone() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    let first = client.post(
        ROWS_AND_WAIT,
        JSON_LINES,
        b"{\"id\":1,\"name\":\"a\"}\n{\"id\":2}\n",
    );
    assert_eq!(
        (first.status, &first.body["job"]["state"]),
        (200, &"done".into()),
        "{}",
        first.body
    );
    assert_eq!(ids(&database), [1, 2]);
    // Many jobs at once, of two formats, of which two are broken.
    for id in 3..20 {
        let (headers, body) = match id {
            7 => (JSON_LINES, "{\"id\":7}\n{\"id\":\"seven\"}\n".to_owned()),
            9 => (JSON_LINES, "{\"id\":9".to_owned()),
            // A body of the spool.
            11 => (
                JSON_LINES,
                format!("{{\"id\":11,\"name\":\"{}\"}}", "x".repeat(200_000)),
            ),
            12 | 13 => ("Content-Type: text/csv\r\n", format!("id,name\n{id},x\n")),
            _ => (JSON_LINES, format!("{{\"id\":{id}}}\n")),
        };
        assert_eq!(client.post(ROWS, headers, body.as_bytes()).status, 202);
    }
    done(&mut client, "{\"id\":20}");
    let expected: Vec<i64> = (1..=20).filter(|id| ![7, 9].contains(id)).collect();
    assert_eq!(ids(&database), expected);
    let page = client.get("/v1/jobs?limit=1000");
    let jobs = page.body["jobs"].as_array().expect("jobs");
    let dead: Vec<_> = jobs.iter().filter(|job| job["state"] == "dead").collect();
    assert_eq!(dead.len(), 2);
    assert_eq!(
        (&dead[0]["id"], &dead[0]["reason"]["line"]),
        (&6.into(), &2.into()),
        "{}",
        dead[0]
    );
    assert_eq!(
        (&dead[0]["reason"]["code"], &dead[0]["reason"]["column"]),
        (&"value_does_not_fit".into(), &"id".into())
    );
    assert_eq!(jobs.iter().filter(|job| job["state"] == "done").count(), 17);
    // A body that is not what its headers say blames itself, and no job behind it waits.
    let zipped = client.post(ROWS_AND_WAIT, JSON_LINES, b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    assert_eq!(
        (zipped.status, &zipped.body["job"]["state"]),
        (422, &"dead".into()),
        "{}",
        zipped.body
    );
    // A dead job is told to the client that waits for it, and to one that sends it again.
    let keyed = format!("{JSON_LINES}Idempotency-Key: k\r\n");
    assert_eq!(client.post(ROWS_AND_WAIT, &keyed, b"??").status, 422);
    let again = client.post(ROWS, &keyed, b"??");
    assert_eq!(
        (again.status, &again.body["job"]["state"]),
        (422, &"dead".into()),
        "{}",
        again.body
    );
    let told = client.post(ROWS_AND_WAIT, JSON_LINES, b"?");
    assert_eq!(
        (told.status, &told.body["job"]["state"]),
        (422, &"dead".into()),
        "{}",
        told.body
    );
    server.stop();
    // Small bodies are in the store alone.
    assert!(!folder.path().join("server/runs").exists());
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_json_document_is_a_row_or_rows_and_a_bad_element_names_its_line() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    for (body, status) in [
        (&b"{\n \"id\": 1, \"name\": \"]\"\n}"[..], 200),
        (b"[{\"id\":2},\n {\"id\":3}]\n", 200),
        (b"[]", 200),
    ] {
        let answer = client.post(ROWS_AND_WAIT, JSON, body);
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    for (body, code, line) in [
        (
            &b"[{\"id\":4},\n{\"id\":5},\n{\n\"id\":\"x\"}]"[..],
            "value_does_not_fit",
            4,
        ),
        (b"[{\"id\":4},\n{\"id\":5},]", "json_broken_document", 2),
        (b"[{\"id\":4}\n", "json_truncated", 2),
        (b"", "json_truncated", 1),
        (b"4", "json_not_rows", 1),
        (b"[\n4]", "jsonl_not_an_object", 2),
    ] {
        let dead = client.post(ROWS_AND_WAIT, JSON, body);
        assert_eq!(
            (dead.status, &dead.body["job"]["state"]),
            (422, &"dead".into()),
            "{}",
            dead.body
        );
        let reason = &dead.body["job"]["reason"];
        assert_eq!(
            (&reason["code"], &reason["line"]),
            (&code.into(), &line.into()),
            "{reason}"
        );
    }
    assert_eq!(ids(&database), [1, 2, 3]);
    server.stop();
}

#[test]
fn files_of_one_request_are_rows_when_the_request_has_waited() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    let good = form(&[
        ("filename=a.jsonl", b"{\"id\":1}\n{\"id\":2}"),
        ("filename=a.csv", b"id,name\n3,x\n"),
        ("filename=a.json", b"[{\"id\":4}]"),
    ]);
    let done = client.post(ROWS_AND_WAIT, FORM, &good);
    assert_eq!(done.status, 200, "{}", done.body);
    let states = done.body["jobs"].as_array().expect("jobs").iter();
    assert!(states.clone().all(|job| job["state"] == "done") && states.count() == 3);
    assert_eq!(ids(&database), [1, 2, 3, 4]);
    let bad = form(&[
        ("filename=a.json", b"[{\"id\":5},\n{\"id\":\"x\"}]"),
        ("filename=a.json", b"{\"id\":6}"),
    ]);
    let half = client.post(ROWS_AND_WAIT, FORM, &bad);
    assert_eq!(half.status, 422, "{}", half.body);
    assert_eq!(
        (
            &half.body["jobs"][0]["state"],
            &half.body["jobs"][0]["reason"]["line"],
            &half.body["jobs"][1]["state"]
        ),
        (&"dead".into(), &2.into(), &"done".into())
    );
    assert_eq!(ids(&database), [1, 2, 3, 4, 6]);
    server.stop();
}

/// A server with one pipeline `p`, whose source and rejects are as given. Also gets its messages.
fn start_with(folder: &Path, url: &str, config: &str, more: &str) -> (Server, Told) {
    let text = format!(
        "version: 1\npipeline: p\nsource: {{ use: ingest, config: {{ {config} }}, streams: [s] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n{more}"
    );
    start_text(folder, &text)
}

const P: &str = "/v1/ingest/p/s";
const P_AND_WAIT: &str = "/v1/ingest/p/s?wait=true";

#[test]
fn many_bad_jobs_among_good_ones_are_no_sign_of_a_backup() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, told) = start_with(folder.path(), &database.url(), "schema: { id: int64 }", "");
    let mut client = Client::new(server.address());
    for id in 0..60 {
        let body = match id % 10 {
            3 => "{\"id\":\"x\"}".to_owned(),
            _ => format!("{{\"id\":{id}}}"),
        };
        assert_eq!(client.post(P, JSON_LINES, body.as_bytes()).status, 202);
    }
    assert_eq!(
        client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":60}").status,
        200
    );
    server.stop();
    let told = told.lines();
    assert_eq!(
        told.iter().filter(|text| text.contains("is dead")).count(),
        6,
        "{told:?}"
    );
    assert!(told.iter().all(|text| !text.contains("backup")), "{told:?}");
}

#[test]
fn a_body_with_a_name_that_no_new_table_can_have_is_dead_alone() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _told) = start_with(folder.path(), &database.url(), "", "");
    let mut client = Client::new(server.address());
    let long = format!("{{\"id\":1,\"{}\":1}}", "k".repeat(201));
    for body in ["{\"id\":1,\"\":1}", "{\"id\":1,\"xmin\":1}", &long] {
        let answer = client.post(P_AND_WAIT, JSON_LINES, body.as_bytes());
        assert_eq!(answer.status, 422, "{body} {}", answer.body);
    }
    let answer = client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":3}");
    assert_eq!(answer.status, 200, "{}", answer.body);
    server.stop();
}

#[test]
fn a_body_without_rows_is_done_where_columns_are_inferred() {
    const JSON: &str = "Content-Type: application/json\r\n";
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _told) = start_with(folder.path(), &database.url(), "", "");
    let mut client = Client::new(server.address());
    let mut send = |kind: &str, body: &str, status: u16| {
        let answer = client.post(P_AND_WAIT, kind, body.as_bytes());
        assert_eq!(answer.status, status, "{body:?} {}", answer.body);
    };
    // Before there is a table, and while a run goes on.
    for id in 1..=2 {
        send(JSON, "[]", 200);
        send(JSON, " [ \n] ", 200);
        send(JSON_LINES, "", 200);
        send(JSON_LINES, "\n\n", 200);
        // A row without columns cannot be written.
        send(JSON, "[{}]", 422);
        send(JSON, &format!("[{{\"id\":{id}}}]"), 200);
    }
    let sql = "SELECT id FROM public.s ORDER BY id";
    let rows = database.client().query(sql, &[]).expect("rows");
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, [1, 2]);
    let done = client.get("/v1/jobs?pipeline=p&state=done");
    assert_eq!(done.body["jobs"].as_array().map(Vec::len), Some(10));
    server.stop();
}

#[test]
fn a_body_whose_rows_are_refused_by_their_commit_is_dead_alone() {
    let database = shared().database();
    database
        .client()
        .batch_execute(
            "CREATE TABLE s (k text PRIMARY KEY, v int8 UNIQUE DEFERRABLE INITIALLY DEFERRED); \
             INSERT INTO s VALUES ('a', 1)",
        )
        .expect("a table");
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "version: 1\npipeline: p\nsource:\n  use: ingest\n  config: {{ schema: {{ k: string not null, v: int64 }} }}\n  \
         streams: [s]\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: upsert\n  \
         primary_key: [k]\n",
        database.url()
    );
    let (server, _told) = start_text(folder.path(), &text);
    let mut client = Client::new(server.address());
    // The rows of a second commit are refused like those of the first.
    for (key, again) in [("b", 2), ("c", 3)] {
        // No index takes it: its letters do not compress.
        let mut seed = 1_u64;
        let letter = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (seed >> 59) as u8 % 26)
        };
        let long: String = (0..6000).map(letter).collect();
        let long = format!("{{\"k\":\"{long}\",\"v\":9}}");
        for body in [long.as_str(), "{\"k\":\"d\",\"v\":1}"] {
            assert_eq!(client.post(P, JSON_LINES, body.as_bytes()).status, 202);
        }
        let good = format!("{{\"k\":\"{key}\",\"v\":{again}}}");
        let answer = client.post(P_AND_WAIT, JSON_LINES, good.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let rows = database
        .client()
        .query("SELECT k FROM s ORDER BY k", &[])
        .expect("rows");
    let keys: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    let dead = client.get("/v1/jobs?pipeline=p&state=dead");
    assert_eq!(
        dead.body["jobs"].as_array().map(Vec::len),
        Some(4),
        "{}",
        dead.body
    );
    server.stop();
}

#[test]
fn a_body_whose_columns_are_refused_is_dead_alone() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _told) = start_with(folder.path(), &database.url(), "", "");
    let mut client = Client::new(server.address());
    assert_eq!(
        client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":1}").status,
        200
    );
    let long = format!("{{\"id\":2,\"{}\":1}}", "k".repeat(201));
    for body in [
        "{\"id\":2,\"ctid\":1}",
        "{\"id\":2,\"\":1}",
        "{\"id\":2,\"a\\u0000b\":1}",
        long.as_str(),
        // No column of the table, alone.
        "{\"q\":2}",
    ] {
        let answer = client.post(P_AND_WAIT, JSON_LINES, body.as_bytes());
        assert_eq!(answer.status, 422, "{body} {}", answer.body);
        assert_eq!(
            answer.body["job"]["state"], "dead",
            "{body} {}",
            answer.body
        );
    }
    assert_eq!(
        client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":3}").status,
        200
    );
    let rows = database
        .client()
        .query("SELECT id FROM public.s ORDER BY id", &[])
        .expect("rows");
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, [1, 3]);
    server.stop();
}

#[test]
fn the_limit_of_rejects_is_of_one_job() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let schema = "schema: { id: \"int64 not null\" }";
    let rejects = "rejects: { max_rows: 3, to: rej.bad }\n";
    let (server, _told) = start_with(folder.path(), &database.url(), schema, rejects);
    let mut client = Client::new(server.address());
    for id in 0..20 {
        let body = format!("{{\"id\":{id}}}\n{{\"id\":\"x\"}}\n");
        assert_eq!(client.post(P, JSON_LINES, body.as_bytes()).status, 202);
    }
    let answer = client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":99}\n{}\n{}\n{}\n{}\n");
    assert_eq!(
        (answer.status, &answer.body["job"]["reason"]["code"]),
        (422, &"too_many_rejects".into())
    );
    assert_eq!(
        client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":20}").status,
        200
    );
    let row = database
        .client()
        .query_one("SELECT count(*), max(id) FROM public.s", &[])
        .expect("rows");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (21, 20));
    server.stop();
}

#[test]
fn a_format_that_has_columns_of_its_own_is_refused_where_they_are_declared() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _told) = start_with(folder.path(), &database.url(), "schema: { id: int64 }", "");
    let mut client = Client::new(server.address());
    let parquet = "Content-Type: application/vnd.apache.parquet\r\n";
    let latin = "Content-Type: text/csv; charset=latin1\r\n";
    for headers in [parquet, latin] {
        let answer = client.post(P, headers, b"PAR1");
        assert_eq!(
            (answer.status, &answer.body["error"]["code"]),
            (415, &"unknown_format".into())
        );
    }
    let utf8 = "Content-Type: text/csv; charset=\"UTF-8\"\r\n";
    assert_eq!(client.post(P_AND_WAIT, utf8, b"id\n1\n").status, 200);
    server.stop();
}

#[test]
fn a_pipeline_that_deletes_rows_does_not_read_the_queue() {
    let environment = Environment::from_fn(|_| None).without_env_file();
    let compares = "deletes: { mode: compare }\n";
    for (mode, more) in [("replace", ""), ("upsert, primary_key: [id]", compares)] {
        let text = format!(
            "version: 1\npipeline: p\nsource: {{ use: ingest, streams: [s] }}\n\
             destination: {{ use: dest-postgres, write_mode: {mode} }}\n{more}"
        );
        let read = Pipeline::from_str(&text, Path::new("/"), &environment);
        let refused = Pipelines::new([read.expect("a pipeline")]);
        assert!(
            matches!(refused.err(), Some(ServeError::DeletesRows(_))),
            "{mode}"
        );
    }
}

/// Waits until the stream `orders` has a problem, and returns its code.
pub fn problem(client: &mut Client) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let answer = client.get("/v1/pipelines/orders");
        let stream = &answer.body["pipeline"]["streams"][0];
        if let Some(code) = stream["problem"]["code"].as_str() {
            return code.to_owned();
        }
        std::thread::yield_now();
    }
    panic!("the stream has no problem");
}

const REBIND: &str = "/v1/pipelines/orders/streams/orders/rebind";

#[test]
fn an_upsert_keeps_what_a_body_does_not_name_whatever_comes_beside_it() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let text = upserts("p", "s", &database.url());
    let (server, _told) = start_text(folder.path(), &text);
    let mut client = Client::new(server.address());
    let first = client.post(
        P_AND_WAIT,
        JSON_LINES,
        b"{\"id\":9,\"a\":\"A\",\"b\":\"B\"}",
    );
    assert_eq!(first.status, 200, "{}", first.body);
    // The first body waits for the table, and the others come meanwhile.
    let mut holder = lock(&database, "s");
    for body in [
        "{\"id\":1,\"a\":\"x\"}",
        "{\"id\":9,\"a\":\"A1\"}",
        "{\"id\":7,\"b\":\"x\"}",
        "{\"b\":\"no key\"}",
        "{\"id\":8,\"a\":\"y\"}",
    ] {
        assert_eq!(client.post(P, JSON_LINES, body.as_bytes()).status, 202);
    }
    holder.batch_execute("COMMIT").expect("released");
    let last = client.post(P_AND_WAIT, JSON_LINES, b"{\"id\":10,\"b\":\"z\"}");
    assert_eq!(last.status, 200, "{}", last.body);
    let sql =
        "SELECT concat_ws(' ', id, coalesce(a, '-'), coalesce(b, '-')) FROM public.s ORDER BY id";
    let rows = database.client().query(sql, &[]).expect("rows");
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, ["1 x -", "7 - x", "8 y -", "9 A1 B", "10 - z"]);
    let dead = client.get("/v1/jobs?pipeline=p&state=dead").body["jobs"].clone();
    let dead: Vec<_> = dead.as_array().into_iter().flatten().collect();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["reason"]["code"], "unknown_column", "{}", dead[0]);
    server.stop();
}

#[test]
fn a_body_that_the_disk_has_lost_is_named_and_the_others_go_on_without_it() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    let mut holder = lock(&database, "orders");
    let rows: String = (0..20_000).map(|_| "{\"id\":3}\n").collect();
    for body in ["{\"id\":2}", &rows, "{\"id\":4}"] {
        taken(&mut client, body);
    }
    let file = spooled(folder.path());
    // At the end of a line: the rest is right, and is not all.
    let file = std::fs::OpenOptions::new().write(true).open(file);
    file.expect("the body").set_len(90).expect("cut off");
    holder.batch_execute("COMMIT").expect("released");
    assert_eq!(problem(&mut client), "spool_failed");
    let stream = client.get("/v1/pipelines/orders").body["pipeline"]["streams"][0].clone();
    let message = stream["problem"]["message"].to_string();
    assert!(
        message.contains("the job 3,") && message.contains("has 90 bytes of 180000"),
        "{message}"
    );
    let cancelled = client.post("/v1/jobs/3/cancel", "", b"");
    assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    let retry = "/v1/pipelines/orders/streams/orders/retry";
    operate(&mut client, retry, 202);
    done(&mut client, "{\"id\":5}");
    assert_eq!(ids(&database), [1, 2, 4, 5]);
    server.stop();
}

#[test]
fn a_store_that_is_older_than_the_destination_stops_its_stream() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    server.stop();
    let (store, backup) = (
        folder.path().join("server/jobs.db"),
        folder.path().join("backup"),
    );
    std::fs::copy(&store, &backup).expect("a backup");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":2}");
    server.stop();
    // The restored store gives the id of the second job to other rows.
    std::fs::copy(&backup, &store).expect("restored");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    taken(&mut client, "{\"id\":3}");
    assert_eq!(problem(&mut client), "queue_restored");
    assert_eq!(ids(&database), [1, 2]);
    // The operator says that the destination does not have the pending jobs.
    operate(&mut client, REBIND, 202);
    done(&mut client, "{\"id\":4}");
    assert_eq!(ids(&database), [1, 2, 3, 4]);
    server.stop();
}

#[test]
fn a_queue_goes_on_from_another_one_but_two_at_once_stop() {
    let database = shared().database();
    let (one, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (one, other) = (one.expect("a folder"), other.expect("a folder"));
    let first = start(one.path(), &database.url());
    let mut client = Client::new(first.address());
    done(&mut client, "{\"id\":1}");
    // A new server takes over.
    let second = start(other.path(), &database.url());
    let mut new = Client::new(second.address());
    done(&mut new, "{\"id\":2}");
    // The old one does not know any more which of its jobs the destination has.
    taken(&mut client, "{\"id\":3}");
    assert_eq!(problem(&mut client), "queue_shared");
    done(&mut new, "{\"id\":4}");
    assert_eq!(ids(&database), [1, 2, 4]);
    first.stop();
    second.stop();
}

#[test]
fn a_job_that_a_run_has_had_is_cancelled_if_its_rows_are_not_committed() {
    let database = shared().database();
    let sql = "CREATE TABLE orders (id int8, name text); \
               CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN IF NEW.id = 2 THEN RAISE 'not now' USING ERRCODE = 'XX000'; END IF; RETURN NEW; END $$; \
               CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.client().batch_execute(sql).expect("a table");
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    for id in 2..=3 {
        let body = format!("{{\"id\":{id}}}");
        taken(&mut client, &body);
    }
    problem(&mut client);
    let cancelled = client.post("/v1/jobs/2/cancel", "", b"");
    assert_eq!(
        (cancelled.status, &cancelled.body["job"]["state"]),
        (200, &"cancelled".into()),
        "{}",
        cancelled.body
    );
    let retry = "/v1/pipelines/orders/streams/orders/retry";
    operate(&mut client, retry, 202);
    done(&mut client, "{\"id\":4}");
    assert_eq!(ids(&database), [1, 3, 4]);
    // As if the server had been killed before it wrote down what was committed.
    let store = rusqlite::Connection::open(folder.path().join("server/jobs.db"));
    let store = store.expect("the store");
    let sql = "UPDATE job SET state = 'pending', ended = NULL WHERE id = 3";
    assert_eq!(store.execute(sql, []), Ok(1));
    let refused = client.post("/v1/jobs/3/cancel", "", b"");
    assert_eq!(
        (refused.status, &refused.body["error"]["code"]),
        (409, &"job_state".into()),
        "{}",
        refused.body
    );
    assert_eq!(client.get("/v1/jobs/3").body["job"]["state"], "done");
    assert_eq!(ids(&database), [1, 3, 4]);
    server.stop();
}

#[test]
fn streams_of_one_pipeline_run_at_once() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    let mut locker = lock(&database, "orders");
    taken(&mut client, "{\"id\":2}");
    // The run of the first stream waits for the lock, and the second stream does not wait for it.
    let others = "/v1/ingest/orders/others?wait=true";
    assert_eq!(client.post(others, JSON_LINES, b"{\"id\":7}").status, 200);
    locker.batch_execute("COMMIT").expect("unlocked");
    done(&mut client, "{\"id\":3}");
    assert_eq!(ids(&database), [1, 2, 3]);
    server.stop();
}

#[test]
fn a_dead_job_is_repaired_replayed_and_discarded() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    let large = format!(
        "{{\"id\":1,\"name\":\"{}\"}}\n{{\"id\":\"x\"}}",
        "n".repeat(100_000)
    );
    let dead = client.post(ROWS_AND_WAIT, JSON_LINES, large.as_bytes());
    assert_eq!((dead.status, &dead.body["job"]["id"]), (422, &1.into()));
    // Its body, to repair it.
    let mut body = Client::new(server.address());
    let request = b"GET /v1/jobs/1/body HTTP/1.0\r\nHost: localhost\r\n\r\n";
    assert_eq!(body.rest(request), large);
    // As it is, it is dead again, under a new id.
    operate(&mut client, "/v1/jobs/1/replay", 202);
    done(&mut client, "{\"id\":3}");
    let replay = client.get("/v1/jobs/2");
    assert_eq!(
        (
            &replay.body["job"]["state"],
            &replay.body["job"]["replay_of"]
        ),
        (&"dead".into(), &1.into())
    );
    let page = client.get("/v1/jobs?pipeline=orders&stream=orders&state=dead");
    assert_eq!(page.body["jobs"].as_array().map(Vec::len), Some(2));
    // The file stays until no job has it.
    let files = || {
        std::fs::read_dir(folder.path().join("server/spool"))
            .expect("a folder")
            .count()
    };
    operate(&mut client, "/v1/jobs/1/discard", 200);
    assert_eq!(files(), 1);
    operate(&mut client, "/v1/jobs/2/discard", 200);
    assert_eq!(files(), 0);
    operate(&mut client, "/v1/jobs/2/replay", 410);
    // A job that is done is moved again by a replay.
    operate(&mut client, "/v1/jobs/3/replay", 202);
    done(&mut client, "{\"id\":5}");
    assert_eq!(ids(&database), [3, 3, 5]);
    operate(&mut client, "/v1/jobs/3/cancel", 409);
    server.stop();
}

#[test]
fn the_folder_of_pipelines_is_read_again() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let files = folder.path().join("pipelines");
    std::fs::create_dir(&files).expect("a folder");
    let broken = text(&database.url()).replace("id: int64", "id: int65");
    std::fs::write(files.join("orders.yaml"), broken).expect("written");
    let pipelines = Pipelines::of_folder(&files, |path| {
        Pipeline::from_file(path, &Environment::from_fn(|_| None).without_env_file())
    });
    let (told, tells) = mpsc::channel();
    let log = Log::new(move |message| {
        told.send(message.text.clone()).ok();
    });
    let settings = served::settings(folder.path());
    let server = Server::run(settings, served::engine(), pipelines, log).expect("a server");
    let mut client = Client::new(server.address());
    // A column of an unknown type is found when the bodies are read, and the key `schem` at once.
    let unknown = text(&database.url()).replace("schema:", "schem:");
    std::fs::write(
        files.join("wrong.yaml"),
        unknown.replace("pipeline: orders", "pipeline: wrong"),
    )
    .expect("written");
    assert!(
        tells
            .iter()
            .any(|text| text.contains("wrong.yaml is wrong"))
    );
    let all = client.get("/v1/pipelines");
    assert_eq!(
        all.body["broken"][0]["problem"]["code"], "unknown_key",
        "{}",
        all.body
    );
    std::fs::write(files.join("orders.yaml"), text(&database.url())).expect("written");
    assert!(tells.iter().any(|text| text.contains("pipeline orders: ")));
    done(&mut client, "{\"id\":1}");
    std::fs::remove_file(files.join("orders.yaml")).expect("removed");
    assert!(tells.iter().any(|text| text.contains("its file is gone")));
    assert_eq!(client.post(ROWS, JSON_LINES, b"{\"id\":2}").status, 404);
    server.stop();
}

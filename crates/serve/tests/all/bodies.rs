//! Bodies on the disk, and tables that are not as the queue left them.

use rapidbyte_testkit::postgres::{Database, shared};

use crate::runs::{
    JSON_LINES, ROWS, ROWS_AND_WAIT, done, ids, lock, operate, problem, spooled, start, start_text,
    taken, text, upserts,
};
use crate::support::{Answer, Client};

const RETRY: &str = "/v1/pipelines/orders/streams/orders/retry";

fn code(answer: &Answer) -> (u16, &str) {
    let code = answer.body["error"]["code"].as_str();
    (answer.status, code.unwrap_or_default())
}

#[test]
fn a_large_body_with_other_bytes_than_were_sent_is_never_committed() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    let rows: String = (0..20_000).map(|_| "{\"id\":3}\n").collect();
    // As rows that nobody has sent, and as what is no JSON, for which the client must not be blamed. At the begin, which
    // is also sampled, and at the end.
    for (number, (at, byte)) in [(6, b'4'), (0, b'?'), (179_997, b'9')]
        .into_iter()
        .enumerate()
    {
        // The first body waits for the table, so that the file is not read yet.
        let mut holder = lock(&database, "orders");
        let last = 5 * number as i64 + 3;
        for body in ["{\"id\":2}", &rows, "{\"id\":5}"] {
            taken(&mut client, body);
        }
        let file = spooled(folder.path());
        let sent = std::fs::read(&file).expect("the body");
        let mut damaged = sent.clone();
        damaged[at] = byte;
        std::fs::write(&file, damaged).expect("written");
        holder.batch_execute("COMMIT").expect("released");
        assert_eq!(problem(&mut client), "spool_failed");
        let stream = client.get("/v1/pipelines/orders").body["pipeline"]["streams"][0].clone();
        let message = stream["problem"]["message"].to_string();
        assert!(
            message.contains(&format!("the job {last},")) && message.contains("SHA-256"),
            "{message}"
        );
        let job = client.get(&format!("/v1/jobs/{last}"));
        assert_eq!(job.body["job"]["state"], "pending", "{}", job.body);
        assert!(!ids(&database).contains(&3) && !ids(&database).contains(&4));
        // The right bytes are back.
        std::fs::write(&file, sent).expect("written");
        operate(&mut client, RETRY, 202);
        done(&mut client, "{\"id\":6}");
        let moved = ids(&database);
        assert_eq!(moved.iter().filter(|id| **id == 3).count(), 20_000);
        assert_eq!(moved.len(), 20_004);
        let discard = format!("/v1/jobs/{last}/discard");
        operate(&mut client, &discard, 200);
        holder
            .batch_execute(
                "DELETE FROM public.orders WHERE id > 1; UPDATE public.orders SET id = 0",
            )
            .expect("deleted");
        done(&mut client, "{\"id\":1}");
        holder
            .batch_execute("DELETE FROM public.orders WHERE id = 0")
            .expect("deleted");
    }
    server.stop();
}

#[test]
fn a_replay_of_a_body_that_the_disk_has_lost_is_refused() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    let large = format!(
        "{{\"id\":1,\"name\":\"{}\"}}\n{{\"id\":\"x\"}}",
        "n".repeat(100_000)
    );
    assert_eq!(
        client
            .post(ROWS_AND_WAIT, JSON_LINES, large.as_bytes())
            .status,
        422
    );
    let file = spooled(folder.path());
    let away = folder.path().join("away");
    std::fs::rename(&file, &away).expect("moved away");
    let refused = client.post("/v1/jobs/1/replay", "", b"");
    assert_eq!(code(&refused), (410, "body_missing"), "{}", refused.body);
    let message = refused.body["error"]["message"].to_string();
    let name = file.file_name().and_then(|name| name.to_str());
    assert!(
        message.contains("the job 1,") && message.contains(name.expect("a name")),
        "{message}"
    );
    let body = client.get("/v1/jobs/1/body");
    assert_eq!(code(&body), (410, "body_missing"), "{}", body.body);
    std::fs::write(&file, &large[..large.len() - 1]).expect("a file");
    let cut_off = client.post("/v1/jobs/1/replay", "", b"");
    assert_eq!(code(&cut_off), (410, "body_missing"), "{}", cut_off.body);
    // No job was made.
    let jobs = client.get("/v1/jobs").body["jobs"].clone();
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{jobs}");
    std::fs::rename(&away, &file).expect("brought back");
    operate(&mut client, "/v1/jobs/1/replay", 202);
    server.stop();
}

#[test]
fn discarded_jobs_are_listed_apart_from_other_dead_ones() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    for (body, status) in [("?", 422), ("??", 422), ("{\"id\":1}", 200)] {
        let sent = client.post(ROWS_AND_WAIT, JSON_LINES, body.as_bytes());
        assert_eq!(sent.status, status, "{}", sent.body);
    }
    operate(&mut client, "/v1/jobs/1/discard", 200);
    // The body of a job that is done, which retention forgets, too.
    operate(&mut client, "/v1/jobs/3/discard", 200);
    for (query, expected) in [
        ("", &[1, 2, 3][..]),
        ("state=dead", &[1, 2]),
        ("discarded=true", &[1]),
        ("discarded=false", &[2, 3]),
        ("state=dead&discarded=false", &[2]),
        ("state=done&discarded=true", &[]),
        ("pipeline=orders&stream=orders&discarded=true", &[1]),
    ] {
        let jobs = client.get(&format!("/v1/jobs?{query}")).body["jobs"].clone();
        let jobs = jobs.as_array().expect("jobs");
        let found: Vec<_> = jobs.iter().filter_map(|job| job["id"].as_i64()).collect();
        assert_eq!(found, expected, "{query}");
    }
    assert_eq!(
        code(&client.get("/v1/jobs?discarded=1")),
        (400, "invalid_query")
    );
    let page = |query: &str| {
        let request = format!("GET /jobs?{query} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        Client::new(server.address()).rest(request.as_bytes())
    };
    for (query, expected) in [
        ("state=dead", [true, true, false]),
        ("state=discarded", [true, false, false]),
        ("state=discarded&pipeline=orders", [true, false, false]),
        ("state=&pipeline=", [true, true, true]),
    ] {
        let html = page(query);
        let found = [1, 2, 3].map(|job| html.contains(&format!("href=\"/jobs/{job}\"")));
        assert_eq!(found, expected, "{query}: {html}");
    }
    assert!(page("state=discarded").contains("<option value=\"discarded\" selected>"));
    server.stop();
}

#[test]
fn small_bodies_are_taken_while_the_folder_of_large_ones_is_away() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, told) = start_text(folder.path(), &text(&database.url()));
    let mut client = Client::new(server.address());
    let ready = || {
        let request = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n";
        Client::new(server.address()).rest(request)
    };
    assert_eq!(ready(), "ok\n");
    let (spool, away) = (
        folder.path().join("server/spool"),
        folder.path().join("away"),
    );
    std::fs::rename(&spool, &away).expect("moved away");
    done(&mut client, "{\"id\":1}");
    let large = format!("{{\"id\":2,\"name\":\"{}\"}}", "n".repeat(100_000));
    let refused = client.post(ROWS, JSON_LINES, large.as_bytes());
    assert_eq!(code(&refused), (500, "spool_failed"), "{}", refused.body);
    assert!(ready().contains("spool/"), "{}", ready());
    let message = told.wait("above 64 KiB are refused");
    assert!(
        message.contains(spool.to_str().expect("UTF-8")),
        "{message}"
    );
    std::fs::rename(&away, &spool).expect("brought back");
    let large = client.post(ROWS_AND_WAIT, JSON_LINES, large.as_bytes());
    assert_eq!(large.status, 200, "{}", large.body);
    assert_eq!(ready(), "ok\n");
    assert_eq!(ids(&database), [1, 2]);
    server.stop();
}

#[test]
fn a_table_that_was_emptied_or_dropped_goes_on_as_the_hint_says() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, told) = start_text(folder.path(), &text(&database.url()));
    let mut client = Client::new(server.address());
    let send = |client: &mut Client, path: &str, id: i64| {
        let body = format!("{{\"id\":{id}}}");
        client.post(path, JSON_LINES, body.as_bytes())
    };
    assert_eq!(send(&mut client, ROWS_AND_WAIT, 1).status, 200);
    for (id, change, expected, verb) in [
        (2, "TRUNCATE public.orders", "target_lost_rows", "rebind"),
        (3, "DROP TABLE public.orders", "target_missing", "clear"),
    ] {
        database.client().batch_execute(change).expect("changed");
        assert_eq!(send(&mut client, ROWS, id).status, 202);
        assert_eq!(problem(&mut client), expected);
        let hint = format!("rapidbyte state {verb} PIPELINE STREAM --server URL");
        let message = told.wait(expected);
        assert!(message.contains(&hint), "{message}");
        let path = format!("/v1/pipelines/orders/cursors/{verb}");
        let all = client.post(&path, "", b"{\"all\":true}");
        assert_eq!(code(&all), (409, "reads_queue"), "{}", all.body);
        let unknown = client.post(&path, "", b"{\"stream\":\"nothing\"}");
        assert_eq!(code(&unknown), (404, "unknown_stream"), "{}", unknown.body);
        let moved = client.post(&path, "", b"{\"stream\":\"orders\"}");
        assert_eq!(moved.status, 200, "{}", moved.body);
        assert_eq!(moved.body["streams"][0]["name"], "orders", "{}", moved.body);
        let next = send(&mut client, ROWS_AND_WAIT, 10 * id);
        assert_eq!(next.status, 200, "{}", next.body);
        // Each pending job once, and none that was done before.
        assert_eq!(ids(&database), [id, 10 * id]);
    }
    server.stop();
}

/// Alone, `-0.0` is the number -0, which a numeric column does not have. Beside `007`, it would be a text.
#[test]
fn a_body_without_schema_is_what_it_is_alone_whatever_comes_beside_it() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    database
        .client()
        .batch_execute("CREATE TABLE public.orders (id numeric, name text)")
        .expect("a table");
    let (server, _told) = start_text(folder.path(), &inferred(&database.url()));
    let mut client = Client::new(server.address());
    let mut send = |path: &str, id: &str, name: &str| {
        let body = format!("id,name\n{id},{name}\n");
        let headers = "Content-Type: text/csv\r\n";
        client.post(path, headers, body.as_bytes()).status
    };
    let bodies = [("-0.0", "a"), ("007", "b"), ("-0.0", "c"), ("8.50", "1.50")];
    // One after the other, and then all at once: the first one waits for the table.
    for (id, name) in bodies {
        let status = send(ROWS_AND_WAIT, id, name);
        assert_eq!(status, if id == "-0.0" { 422 } else { 200 }, "{id}");
    }
    assert_eq!(send(ROWS_AND_WAIT, "1", "x"), 200);
    let mut holder = lock(&database, "orders");
    assert_eq!(send(ROWS, "2", "x"), 202);
    for (id, name) in bodies {
        assert_eq!(send(ROWS, id, name), 202);
    }
    holder.batch_execute("COMMIT").expect("released");
    assert_eq!(send(ROWS_AND_WAIT, "3", "x"), 200);
    let sql = "SELECT concat_ws(' ', id, name) FROM public.orders ORDER BY ctid";
    let rows = database.client().query(sql, &[]).expect("rows");
    let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        rows,
        ["7 b", "8.50 1.50", "1 x", "2 x", "7 b", "8.50 1.50", "3 x"]
    );
    let dead = client.get("/v1/jobs?state=dead").body["jobs"].clone();
    let dead = dead.as_array().expect("jobs").iter();
    let dead: Vec<_> = dead.map(|job| job["reason"]["code"].clone()).collect();
    assert_eq!(dead, ["value_does_not_fit"; 4]);
    server.stop();
}

#[test]
fn a_body_that_is_touched_while_it_is_read_is_not_the_clients_fault() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let mut client = Client::new(server.address());
    done(&mut client, "{\"id\":1}");
    // The table takes no rows, so that the run stops in the middle of the file.
    let mut holder = lock(&database, "orders");
    let name = "n".repeat(900);
    let rows: String = (0..60_000)
        .map(|_| format!("{{\"id\":2,\"name\":\"{name}\"}}\n"))
        .collect();
    taken(&mut client, &rows);
    wait_for_lock(&database);
    let mut client = Client::new(server.address());
    let file = std::fs::File::options()
        .write(true)
        .open(spooled(folder.path()));
    let touched = file.and_then(|file| file.set_modified(std::time::UNIX_EPOCH));
    touched.expect("another time");
    holder.batch_execute("COMMIT").expect("released");
    done(&mut client, "{\"id\":3}");
    assert_eq!(client.get("/v1/jobs/2").body["job"]["state"], "done");
    assert_eq!(ids(&database).len(), 60_002);
    server.stop();
}

#[test]
fn a_fault_of_the_table_alone_makes_no_body_dead() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let text = upserts("orders", "orders", &database.url());
    let (server, _told) = start_text(folder.path(), &text);
    let mut client = Client::new(server.address());
    let mut owner = database.client();
    done(&mut client, "{\"id\":1}");
    owner
        .batch_execute("ALTER TABLE public.orders DROP CONSTRAINT orders_pkey")
        .expect("no key");
    taken(&mut client, "{\"id\":2}");
    assert_eq!(problem(&mut client), "no_unique_index");
    assert_eq!(client.get("/v1/jobs/2").body["job"]["state"], "pending");
    owner
        .batch_execute("ALTER TABLE public.orders ADD PRIMARY KEY (id)")
        .expect("a key");
    operate(&mut client, RETRY, 202);
    done(&mut client, "{\"id\":3}");
    assert_eq!(ids(&database), [1, 2, 3]);
    server.stop();
}

/// A pipeline whose bodies have inferred columns.
fn inferred(url: &str) -> String {
    text(url).replace("config: { schema: { id: int64, name: string } }, ", "")
}

/// Waits until somebody waits for the table, which another session has locked.
fn wait_for_lock(database: &Database<'_>) {
    let mut looks = database.client();
    let waits =
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'public.orders'::regclass";
    while looks
        .query_one(waits, &[])
        .expect("a count")
        .get::<_, i64>(0)
        == 0
    {
        std::thread::yield_now();
    }
}

#[test]
fn bodies_with_the_same_inferred_columns_are_committed_together_and_others_apart() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    database
        .client()
        .batch_execute("CREATE TABLE public.orders (id int8, name text)")
        .expect("a table");
    let mut holder = lock(&database, "orders");
    let (server, _told) = start_text(folder.path(), &inferred(&database.url()));
    let mut client = Client::new(server.address());
    taken(&mut client, "{\"id\":0}");
    wait_for_lock(&database);
    let mut client = Client::new(server.address());
    for id in 1..=40 {
        let body = match id {
            10 => String::new(),
            20 => "{\"id\":20,\"name\":\"other\"}".into(),
            30 => "{\"id\":".into(),
            // Columns that the beginning of the body does not show: that one is taken, and this one refused.
            35 => format!("{}{{\"id\":35,\"late\":1}}", "{\"id\":35}\n".repeat(2000)),
            40 => format!("{}{{\"id\":\"x\"}}", "{\"id\":40}\n".repeat(2000)),
            _ => format!("{{\"id\":{id}}}"),
        };
        taken(&mut client, &body);
    }
    holder.batch_execute("COMMIT").expect("released");
    done(&mut client, "{\"id\":41}");
    let sql = "SELECT id, xmin::text FROM public.orders ORDER BY ctid";
    let rows = database.client().query(sql, &[]).expect("rows");
    let mut found: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(found.iter().filter(|id| **id == 35).count(), 2001);
    found.dedup();
    let expected: Vec<i64> = (0..=41).filter(|id| ![10, 30, 40].contains(id)).collect();
    assert_eq!(found, expected);
    let mut commits: Vec<String> = rows.iter().map(|row| row.get(1)).collect();
    commits.dedup();
    assert!(commits.len() <= 12, "{commits:?}");
    let sql = "SELECT id FROM public.orders WHERE late = 1";
    let late = database.client().query(sql, &[]).expect("rows");
    assert_eq!(late.len(), 1);
    let dead = client.get("/v1/jobs?state=dead").body["jobs"].clone();
    let dead = dead.as_array().expect("jobs").iter();
    let dead: Vec<_> = dead.map(|job| job["id"].clone()).collect();
    assert_eq!(dead, [31, 41]);
    server.stop();
}

/// The server of the table ends the session of the run once, in the middle of bodies that are committed together.
#[test]
fn bodies_with_inferred_columns_are_moved_once_after_a_lost_connection() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    database
        .client()
        .batch_execute(
            "CREATE TABLE public.orders (id int8, name text); CREATE SEQUENCE ended; \
             CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.id = 15 AND nextval('ended') = 1 \
             THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$; \
             CREATE TRIGGER ends BEFORE INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION ends()",
        )
        .expect("a table");
    let mut holder = lock(&database, "orders");
    let (server, _told) = start_text(folder.path(), &inferred(&database.url()));
    let mut client = Client::new(server.address());
    taken(&mut client, "{\"id\":0}");
    wait_for_lock(&database);
    let mut client = Client::new(server.address());
    for id in 1..=30 {
        let body = format!("{{\"id\":{id}}}");
        taken(&mut client, &body);
    }
    holder.batch_execute("COMMIT").expect("released");
    done(&mut client, "{\"id\":31}");
    assert_eq!(ids(&database), (0..=31).collect::<Vec<i64>>());
    let ended = "SELECT last_value FROM ended";
    let ended = database.client().query_one(ended, &[]).expect("a value");
    assert_eq!(ended.get::<_, i64>(0), 2);
    server.stop();
}

/// The commit of one row fails once, when the run has already looked at the next body, which belongs to another run.
#[test]
fn a_body_is_not_taken_for_the_one_before_when_a_commit_is_retried() {
    for (next, moved) in [
        ("{\"id\":3,\"name\":\"a\"}", &[0, 1, 2, 3, 4][..]),
        ("{\"id\":", &[0, 1, 2, 4]),
    ] {
        let database = shared().database();
        let folder = tempfile::tempdir().expect("a folder");
        database
            .client()
            .batch_execute(
                "CREATE TABLE public.orders (id int8, name text, k int8); CREATE SEQUENCE failed; \
                 CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF NEW.id = 2 AND nextval('failed') = 1 \
                 THEN RAISE 'not now' USING ERRCODE = '40001'; END IF; RETURN NEW; END $$; \
                 CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON public.orders \
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fails()",
            )
            .expect("a table");
        let mut holder = lock(&database, "orders");
        let (server, _told) = start_text(folder.path(), &inferred(&database.url()));
        let mut client = Client::new(server.address());
        taken(&mut client, "{\"id\":0}");
        wait_for_lock(&database);
        let mut client = Client::new(server.address());
        for body in ["{\"id\":1,\"name\":\"a\"}", "{\"id\":2,\"k\":5}", next] {
            taken(&mut client, body);
        }
        holder.batch_execute("COMMIT").expect("released");
        let last = client.post(ROWS_AND_WAIT, JSON_LINES, b"{\"id\":4}");
        assert_eq!(last.status, 200, "{next} {}", last.body);
        assert_eq!(ids(&database), moved, "{next}");
        let failed = "SELECT last_value FROM failed";
        let failed = database.client().query_one(failed, &[]).expect("a value");
        assert_eq!(failed.get::<_, i64>(0), 2);
        let dead = client.get("/v1/jobs?state=dead").body["jobs"].clone();
        let dead = dead.as_array().expect("jobs").len();
        assert_eq!(dead, 5 - moved.len(), "{next}");
        server.stop();
    }
}

#[test]
fn a_body_whose_format_does_not_have_a_setting_of_the_pipeline_is_dead() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let setting = "config: { schema: { id: int64, name: string }, delimiter: \";\" }";
    let text =
        text(&database.url()).replace("config: { schema: { id: int64, name: string } }", setting);
    let (server, _told) = start_text(folder.path(), &text);
    let mut client = Client::new(server.address());
    let csv = "Content-Type: text/csv\r\n";
    assert_eq!(
        client.post(ROWS_AND_WAIT, csv, b"id;name\n1;a\n").status,
        200
    );
    let other = client.post(ROWS_AND_WAIT, JSON_LINES, b"{\"id\":2}");
    assert_eq!(other.status, 422, "{}", other.body);
    assert_eq!(other.body["job"]["reason"]["code"], "unused_option");
    assert_eq!(
        client.post(ROWS_AND_WAIT, csv, b"id;name\n3;a\n").status,
        200
    );
    assert_eq!(ids(&database), [1, 3]);
    server.stop();
}

#[test]
fn a_table_that_changes_while_a_body_waits_for_it_makes_no_body_dead() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    database
        .client()
        .batch_execute("CREATE TABLE public.orders (id int8)")
        .expect("a table");
    let mut owner = lock(&database, "orders");
    let (server, _told) = start_text(folder.path(), &inferred(&database.url()));
    let mut client = Client::new(server.address());
    // A run would add the column, as wide as the number is: the plan of the run after it takes the narrower one.
    let body = "{\"id\":1,\"n\":5}";
    taken(&mut client, body);
    wait_for_lock(&database);
    let mut client = Client::new(server.address());
    owner
        .batch_execute("ALTER TABLE public.orders ADD n int2; COMMIT")
        .expect("changed");
    done(&mut client, "{\"id\":2,\"n\":6}");
    let job = client.get("/v1/jobs/1");
    assert_eq!(job.body["job"]["state"], "done", "{}", job.body);
    assert_eq!(ids(&database), [1, 2]);
    server.stop();
}

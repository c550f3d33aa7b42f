//! Something that is waited for and does not come has an end, and the one who holds it is named.

use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use crate::common::*;
use dest_postgres::Postgres;
use rapidbyte_sdk::prelude::{Error, Target, WriteMode};
use rapidbyte_testkit::postgres::{Client, Database, shared};
use rapidbyte_testkit::proxy::{Break, Proxy};
use serde_json::{Value, json};

fn set_up(database: &Database<'_>) -> (Client, Client) {
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text); \
             INSERT INTO raw.t VALUES (1, 'old')",
        )
        .unwrap();
    (client, database.client())
}

fn open_limited(database: &Database<'_>, mut limits: Value) -> Session {
    limits["schema"] = json!("raw");
    open_with(&database.url(), limits)
}

fn target_of(mode: WriteMode) -> Target {
    Target {
        primary_key: vec!["id".into()],
        ..target("t", &batch(&[1]).schema(), mode)
    }
}

/// The error says who holds what.
fn names(error: &Error, code: &str, holder: &mut Client) {
    assert_eq!(
        (error.code.as_str(), kind(error)),
        (code, "Transient".into()),
        "{error:?}"
    );
    let pid = one(holder, "SELECT pg_backend_pid()");
    assert!(
        error.message.contains(&format!("session {pid} of ")),
        "{error:?}"
    );
    assert!(error.message.contains("with: "), "{error:?}");
}

/// A server checks a value in one step, in which it does not notice that its client is gone.
#[test]
fn a_check_that_takes_too_long_ends_with_its_load() {
    let database = database();
    let mut client = database.client();
    // Each place of the text is compared with all places behind it.
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (t text CHECK (t !~ '(?=a*b)a'))")
        .unwrap();
    let text = "a".repeat(1_000_000);
    let rows = texts(&[("t", &[Some(text.as_str())])]);
    let mut to = open_limited(&database, json!({"write_timeout": 1}));
    let error = append(&mut to, "t", &rows).unwrap_err();
    assert_eq!(error.code, "write_stalled", "{error:?}");
    let sql = "SET lock_timeout = '20s'; DROP TABLE raw.t";
    client.batch_execute(sql).unwrap();
}

#[test]
fn a_commit_that_waits_for_another_session_ends_in_time_and_changes_nothing() {
    let database = database();
    let (mut client, mut holder) = set_up(&database);
    for mode in [WriteMode::Append, WriteMode::Upsert] {
        let mut to = open_limited(&database, json!({"commit_timeout": 1}));
        let target = target_of(mode);
        let mut load = fence(&mut to, &target, run("r")).unwrap();
        load.open_writer(None).unwrap();
        let ids_of = if mode == WriteMode::Append {
            [2, 3]
        } else {
            [1, 3]
        };
        load.write(&batch(&ids_of)).unwrap();
        let part = load.flush().unwrap();
        // The checkpoint's row, or one that the merge has to change.
        let held = match mode {
            WriteMode::Append => "BEGIN; UPDATE _rapidbyte.checkpoint SET updated_at = now()",
            _ => "BEGIN; UPDATE raw.t SET t = 'held' WHERE id = 1",
        };
        holder.batch_execute(held).unwrap();
        let error = load
            .commit(whole("t", vec![part], load.progress().seq))
            .unwrap_err();
        assert!(error.message.contains("waits for a lock"), "{error:?}");
        names(&error, "commit_stalled", &mut holder);
        holder.batch_execute("ROLLBACK").unwrap();
        assert_eq!(ids(&mut client, "raw.t"), "1");
        assert_eq!(
            one(&mut client, "SELECT seq FROM _rapidbyte.checkpoint"),
            "0"
        );
        // Nothing of it waits any longer.
        let waiting = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
             WHERE NOT granted AND datname = current_database()";
        assert_eq!(one(&mut client, waiting), "0");
    }
    // The next run goes through.
    let mut to = open_limited(&database, json!({"commit_timeout": 1}));
    write_to(&mut to, &target_of(WriteMode::Upsert), &[batch(&[1, 2])]).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
}

#[test]
fn a_commit_that_the_server_works_on_may_take_longer() {
    let database = database();
    let (mut client, _) = set_up(&database);
    client
        .batch_execute(
            "CREATE FUNCTION raw.slow() RETURNS trigger LANGUAGE plpgsql AS \
               $$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON raw.t DEFERRABLE INITIALLY DEFERRED \
               FOR EACH ROW EXECUTE FUNCTION raw.slow()",
        )
        .unwrap();
    let mut to = open_limited(&database, json!({"commit_timeout": 1}));
    append(&mut to, "t", &batch(&[2])).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
}

#[test]
fn a_lock_that_is_not_given_ends_the_wait_as_configured() {
    let database = database();
    let (mut client, mut holder) = set_up(&database);
    let mut to = open_limited(&database, json!({"lock_timeout": 1}));
    // The table.
    for mode in [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert] {
        let target = target_of(mode);
        holder
            .batch_execute("BEGIN; LOCK TABLE raw.t IN SHARE MODE")
            .unwrap();
        let mut load = fence(&mut to, &target, run("r")).unwrap();
        let error = load.open_writer(None).unwrap_err();
        names(&error, "lock_timeout", &mut holder);
        holder.batch_execute("ROLLBACK").unwrap();
    }
    // A row of it.
    let target = target_of(WriteMode::Upsert);
    let mut load = fence(&mut to, &target, run("r")).unwrap();
    load.open_writer(None).unwrap();
    load.write(&batch(&[1])).unwrap();
    let part = load.flush().unwrap();
    holder
        .batch_execute("BEGIN; UPDATE raw.t SET t = 'held'")
        .unwrap();
    let error = load
        .commit(whole("t", vec![part], load.progress().seq))
        .unwrap_err();
    names(&error, "lock_timeout", &mut holder);
    holder.batch_execute("ROLLBACK").unwrap();
    // The row of the checkpoint.
    holder
        .batch_execute("BEGIN; UPDATE _rapidbyte.checkpoint SET updated_at = now()")
        .unwrap();
    let error = fence(&mut to, &target, run("r")).err().unwrap();
    names(&error, "lock_timeout", &mut holder);
    holder.batch_execute("ROLLBACK").unwrap();
    write_to(&mut to, &target, &[batch(&[1, 2])]).unwrap();
    assert_eq!(ids(&mut client, "raw.t"), "1,2");
}

#[test]
fn settings_out_of_range_are_refused() {
    for (key, value) in [
        ("lock_timeout", json!(2_000_001)),
        ("checkpoint_schema", json!("pg_x")),
        ("checkpoint_schema", json!("")),
    ] {
        let config = json!({"url": "postgres://a@127.0.0.1:1/b", key: value});
        let error = rapidbyte_sdk::destination::open::<Postgres>(&config.to_string())
            .err()
            .unwrap();
        assert_eq!(error.location.unwrap(), format!("config.{key}"));
        assert_eq!(
            error.code,
            if key == "lock_timeout" {
                "invalid_setting"
            } else {
                "invalid_name"
            }
        );
    }
    let url = "postgres://a@127.0.0.1:1/b";
    let mut to = open_with(url, json!({"schema": "_rapidbyte"}));
    let error = plan(&mut to, "checkpoint", &batch(&[1])).unwrap_err();
    assert_eq!(error.code, "invalid_name", "{error:?}");
}

/// The session waits without a limit, and not only until the run warns.
const WAIT_ON: &str = "wait_event_type = 'Lock' AND query NOT LIKE '%lock_timeout = 1000%'";
/// The locks that a run waits for: the row of its stream, its turn to create the table of checkpoints, and its
/// turn to create schemas.
const ROW: &str = "BEGIN; SELECT FROM _rapidbyte.checkpoint FOR UPDATE";
const TURN: &str = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('rapidbyte.checkpoint'))";
const SCHEMAS: &str = "BEGIN; SELECT pg_advisory_xact_lock(hashtext('rapidbyte.schema'))";

/// Holds a lock that a run waits for. For `ROW`, a first run creates the row.
fn hold(database: &Database<'_>, holder: &mut Client, what: &str) {
    if what == ROW {
        let mut to = open_with(&database.url(), json!({"schema": "new"}));
        fence(&mut to, &target_of(WriteMode::Append), run("first")).unwrap();
    }
    holder.batch_execute(what).unwrap();
}

/// Starts a run that fences the older runs, then creates a schema and a table.
fn second_run(url: String) -> JoinHandle<Result<(), Error>> {
    thread::spawn(move || {
        let mut to = open_with(&url, json!({"schema": "new"}));
        let target = target_of(WriteMode::Append);
        fence(&mut to, &target, run("second"))?.open_writer(None)
    })
}

/// Whether the server checks that a client is still there.
fn is_noticed(client: &mut Client) -> bool {
    let known = "SELECT current_setting('client_connection_check_interval', true)";
    cfg!(target_os = "linux") && one(client, known) != "NULL"
}

#[test]
fn a_run_that_is_gone_while_it_waits_does_nothing_when_its_turn_comes() {
    for (what, untouched) in [
        (
            ROW,
            "SELECT (run_id, epoch) = ('first', 1) FROM _rapidbyte.checkpoint",
        ),
        (TURN, "SELECT to_regclass('_rapidbyte.checkpoint') IS NULL"),
        (SCHEMAS, "SELECT to_regnamespace('new') IS NULL"),
    ] {
        let database = database();
        let (mut client, mut holder) = (database.client(), database.client());
        if !is_noticed(&mut client) {
            return;
        }
        hold(&database, &mut holder, what);
        let proxy = Proxy::to(shared().port()).unwrap();
        let second = second_run(database.url_through(&proxy));
        until(&mut client, &sessions_that(WAIT_ON), "1");
        proxy.break_now(Break::Close);
        let error = second.join().unwrap().unwrap_err();
        assert_eq!(kind(&error), "Connection", "{what}: {error:?}");
        // It waits no longer, although nobody has let it.
        until(&mut client, &sessions_that("true"), "0");
        holder.batch_execute("COMMIT").unwrap();
        assert_eq!(one(&mut client, untouched), "true", "{what}");
    }
}

#[test]
fn a_run_that_waits_for_its_fence_is_not_ended_by_a_limit_for_people() {
    for what in [ROW, TURN, SCHEMAS] {
        let database = database();
        let (mut client, mut holder) = (database.client(), database.client());
        let limit = "SET statement_timeout = '500ms'";
        client
            .batch_execute(&format!("ALTER DATABASE {} {limit}", database.name()))
            .unwrap();
        hold(&database, &mut holder, what);
        let second = second_run(database.url());
        let waits = format!("{WAIT_ON} AND now() - query_start > '600ms'");
        until(&mut client, &sessions_that(&waits), "1");
        holder.batch_execute("COMMIT").unwrap();
        second.join().unwrap().unwrap();
    }
}

#[test]
fn an_end_of_waiting_that_is_configured_holds_for_turns_too() {
    let database = database();
    let mut holder = database.client();
    for what in [TURN, SCHEMAS] {
        holder.batch_execute(what).unwrap();
        let mut to = open_with(&database.url(), json!({"schema": "new", "lock_timeout": 1}));
        let error = begin(&mut to, &target_of(WriteMode::Append)).err().unwrap();
        assert_eq!(error.code, "lock_timeout", "{error:?}");
        holder.batch_execute("COMMIT").unwrap();
    }
}

/// A role that may not lock the table waits when its COPY begins, which nobody waits for yet.
#[test]
fn a_load_that_is_given_up_waits_for_nobody() {
    let database = database();
    let (mut client, mut holder) = set_up(&database);
    client
        .batch_execute(
            "CREATE ROLE filler LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA raw TO filler; \
             GRANT INSERT (id, t) ON raw.t TO filler",
        )
        .unwrap();
    may_checkpoint(&mut client, "filler");
    holder
        .batch_execute("BEGIN; LOCK TABLE raw.t IN SHARE MODE")
        .unwrap();
    let (url, (tell, told), (go, may_go)) = (database.url_of("filler", "w"), channel(), channel());
    let load = thread::spawn(move || {
        let mut to = open_with(&url, json!({"schema": "raw"}));
        let target = target("t", &batch(&[1]).schema(), WriteMode::Append);
        let mut load = begin(&mut to, &target).unwrap();
        tell.send("begun").unwrap();
        may_go.recv().unwrap();
        load.abort().unwrap();
        tell.send("given up").unwrap();
        may_go.recv().unwrap();
    });
    assert_eq!(told.recv_timeout(HANGS), Ok("begun"));
    until(&mut client, &sessions_that(WAIT_ON), "1");
    go.send(()).unwrap();
    assert_eq!(told.recv_timeout(HANGS), Ok("given up"));
    if is_noticed(&mut client) {
        until(&mut client, &sessions_that("true"), "0");
    }
    holder.batch_execute("ROLLBACK").unwrap();
    go.send(()).unwrap();
    load.join().unwrap();
    client
        .batch_execute("DROP OWNED BY filler; DROP ROLE filler")
        .unwrap();
}

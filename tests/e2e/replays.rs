//! Rejects are listed, shown and replayed: a record that has landed is never applied twice.

use std::process::{Command, Stdio};

use rapidbyte_testkit::postgres::{Client, shared};
use serde_json::{Value, json};

use crate::network::until;
use crate::rejects::{ALLOWED, APPEND, Loaded, SCHEMA, document};
use crate::support::{Ended, Folder};

/// Without a key: a record that lands twice is seen.
const OPEN: &str = "CREATE TABLE raw.t (id bigint NOT NULL, name text, total float8, CONSTRAINT low CHECK (total < 100))";
const REPAIR: &str = "ALTER TABLE raw.t DROP CONSTRAINT low";
const ROWS: &str = "id,name,total\n1,a,1.5\nx,b,2\n3,c\n4,d,4\n5,e,500\n,h,8\n";

impl Loaded {
    fn rejects(&self, verb: &str, more: &[&str]) -> Ended {
        let arguments = [&["rejects", verb, "p.yaml"], more].concat();
        self.folder.rapidbyte(&arguments)
    }

    fn shown(&self, verb: &str, more: &[&str]) -> Value {
        let more = [&["--output", "json"], more].concat();
        document(&self.rejects(verb, &more), 0)
    }

    /// Replays the stream as it is, or the repaired records of `fixed.jsonl`.
    fn replay(&self, more: &[&str], code: i32) -> Value {
        let more = [&["--stream", "t", "--output", "json"], more].concat();
        document(&self.rejects("replay", &more), code)
    }

    /// The command of [`Loaded::replay`], which a test starts in its own way.
    fn replaying(&self, more: &[&str]) -> Command {
        let arguments = ["rejects", "replay", "p.yaml", "--stream", "t"];
        self.folder.command(&[&arguments, more].concat())
    }

    fn rejected(&self) -> String {
        self.text("SELECT string_agg(location, ' ' ORDER BY location) FROM raw.bad")
    }
}

fn loaded() -> Loaded {
    let loaded = Loaded::new(OPEN);
    loaded.folder.write("t.csv", ROWS);
    document(&loaded.run(ALLOWED, APPEND), 0);
    assert_eq!(loaded.ids(), "1 4");
    loaded
}

fn change(client: &mut Client, sql: &str) {
    client.batch_execute(sql).expect("a statement");
}

#[test]
fn kept_rejects_are_counted_and_shown_with_what_to_do() {
    let loaded = Loaded::new(OPEN);
    loaded.folder.write("t.csv", ROWS);
    let none = loaded.run("", APPEND);
    assert_eq!(none.code, Some(4), "{none:?}");
    let failed = document(&loaded.rejects("list", &["--output", "json"]), 2);
    assert_eq!(failed["error"]["code"], "no_rejects", "{failed:#}");
    // The table does not exist yet.
    loaded.with("plan", ALLOWED, SCHEMA, APPEND, None);
    assert_eq!(loaded.shown("list", &[])["rejects"], 0);
    let empty = loaded.rejects("list", &[]);
    assert_eq!(empty.stdout, "raw.bad has no rejects of p\n");
    document(&loaded.run(ALLOWED, APPEND), 0);
    let listed = loaded.shown("list", &[]);
    let group = |code: &str, column: Value| {
        let groups = listed["groups"].as_array().expect("groups");
        let is_it = |one: &&Value| one["code"] == code && one["column"] == column;
        groups.iter().find(is_it).map(|one| one["rejects"].clone())
    };
    assert_eq!(listed["rejects"], 4, "{listed:#}");
    for (code, column) in [
        ("csv_ragged_row", Value::Null),
        ("value_does_not_fit", json!("id")),
        ("pg_23514", Value::Null),
        ("pg_23502", json!("id")),
    ] {
        assert_eq!(group(code, column), Some(json!(1)), "{code} {listed:#}");
    }
    let text = loaded.rejects("list", &[]).stdout;
    assert!(
        text.starts_with("4 rejects of p in raw.bad; the newest: row 4: "),
        "{text}"
    );
    assert!(
        text.contains("rapidbyte rejects replay p.yaml --stream t"),
        "{text}"
    );
    let ragged = loaded.shown("show", &["--code", "csv_ragged_row"]);
    let one = &ragged["rejects"][0];
    assert_eq!(
        (&one["record"], &one["location"], &one["origin"]),
        (&json!("3,c"), &json!("t.csv:4"), &json!("source"))
    );
    assert_eq!(ragged["rejects"].as_array().map(Vec::len), Some(1));
    let some = loaded.shown("show", &["--limit", "1", "--column", "id"]);
    assert_eq!(
        some["rejects"].as_array().map(Vec::len),
        Some(1),
        "{some:#}"
    );
    assert_eq!(some["complete"], false);
    let text = loaded.rejects("show", &["--stream", "t"]).stdout;
    assert!(
        text.contains("t.csv:4 [csv_ragged_row] refused by the source"),
        "{text}"
    );
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(
        lines.contains(r#""record":{"id":5,"name":"e","total":500.0}"#),
        "{lines}"
    );
    assert_eq!(
        loaded.shown("show", &["--stream", "u"])["rejects"],
        json!([])
    );
    for verb in ["list", "show"] {
        let other = loaded.rejects(verb, &["--stream", "u"]).stdout;
        let expected = "raw.bad has no rejects of u; it has rejects of t\n";
        assert_eq!(other, expected, "{verb}");
    }
    let none = loaded.rejects("show", &["--limit", "0"]);
    let hint = none.stderr.contains("`rapidbyte rejects list` counts them");
    assert!(none.code == Some(2) && hint, "{none:?}");
    loaded.folder.write("fixed.jsonl", "\n");
    let empty = loaded.replay(&["--from", "fixed.jsonl"], 2);
    assert_eq!(empty["error"]["code"], "replay_file_invalid", "{empty:#}");
}

/// Rejects of an earlier version, whose table lacks columns, and of several pages.
#[test]
fn rejects_of_many_pages_and_of_an_older_table_are_listed_in_their_order() {
    let loaded = loaded();
    let mut client = loaded.client();
    change(
        &mut client,
        "ALTER TABLE raw.bad DROP COLUMN first_id, DROP COLUMN read_with; \
         INSERT INTO raw.bad (pipeline, run_id, stream, target, origin, code, message, record, record_is_cut) \
         SELECT CASE WHEN i % 2 = 0 THEN 'p' ELSE 'q' END, 'r', 't', 'raw.t', 'source', 'x', 'm', i::text, false \
         FROM generate_series(1, 5000) i",
    );
    let assert_all = || {
        assert_eq!(loaded.shown("list", &[])["rejects"], 2504);
        let lines = loaded.rejects("show", &["--jsonl", "--code", "x"]).stdout;
        let records = lines.lines().map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["record"].as_str().expect("a record").to_owned()
        });
        let expected: Vec<String> = (1..=2500).map(|i| (2 * i).to_string()).collect();
        assert_eq!(records.collect::<Vec<_>>(), expected);
    };
    assert_all();
    // The next run adds the columns, and leaves four more rejects.
    document(&loaded.run(ALLOWED, APPEND), 0);
    change(&mut client, "DELETE FROM raw.bad WHERE id > 5004");
    assert_all();
}

#[test]
fn repaired_records_land_once_and_the_others_stay() {
    let loaded = loaded();
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    let fixed = lines
        .replace("\"x,b,2\"", "\"2,b,2\"")
        .replace("\"3,c\"", "\"3,c,three\"")
        .replace("\"total\":500.0", "\"total\":50");
    let some: Vec<&str> = fixed
        .lines()
        .filter(|line| !line.contains("pg_23502"))
        .collect();
    assert_eq!(some.len(), 3, "{fixed}");
    loaded.folder.write("fixed.jsonl", some.join("\n"));
    let from = ["--from", "fixed.jsonl"];
    let replayed = loaded.replay(&from, 0);
    let counts = [
        &replayed["replayed"],
        &replayed["rows"],
        &replayed["rejected"],
    ];
    assert_eq!(counts, [&json!(3), &json!(2), &json!(1)], "{replayed:#}");
    assert_eq!(loaded.ids(), "1 2 4 5");
    assert_eq!(loaded.text("SELECT total FROM raw.t WHERE id = 5"), "50");
    // It failed again, at its place of before.
    let bad = loaded.bad();
    assert!(
        bad.contains("t.csv:4|total|value_does_not_fit|3,c,three"),
        "{bad}"
    );
    assert_eq!(loaded.rejected(), "row 4 t.csv:4");
    // The same file once more.
    let again = loaded.replay(&from, 4);
    assert_eq!(again["error"]["code"], "reject_missing", "{again:#}");
    assert!(
        again["error"]["location"]
            .as_str()
            .expect("a place")
            .starts_with("fixed.jsonl:")
    );
    assert_eq!(
        (loaded.ids(), loaded.rejected()),
        ("1 2 4 5".into(), "row 4 t.csv:4".into())
    );
    // The next run is as if nothing was replayed.
    document(&loaded.run(ALLOWED, APPEND), 0);
    assert_eq!(loaded.ids(), "1 1 2 4 4 5");
}

#[test]
fn stored_records_are_replayed_after_their_target_or_a_step_was_repaired() {
    let loaded = loaded();
    change(&mut loaded.client(), REPAIR);
    let replayed = loaded.replay(&[], 0);
    let counts = [
        &replayed["replayed"],
        &replayed["rows"],
        &replayed["rejected"],
    ];
    assert_eq!(counts, [&json!(4), &json!(1), &json!(3)], "{replayed:#}");
    assert_eq!(
        (loaded.ids(), loaded.rejected()),
        ("1 4 5".into(), "row 2 t.csv:3 t.csv:4".into())
    );
    change(
        &mut loaded.client(),
        "ALTER TABLE raw.t ALTER id DROP NOT NULL",
    );
    assert_eq!(loaded.replay(&[], 0)["rows"], 1);
    assert_eq!(loaded.rejected(), "t.csv:3 t.csv:4");
    // A limit that more of them break: nothing changes.
    loaded.with(
        "plan",
        "rejects: { max_rows: 1, to: raw.bad }\n",
        SCHEMA,
        APPEND,
        None,
    );
    let failed = loaded.replay(&[], 4);
    assert_eq!(failed["error"]["code"], "too_many_rejects", "{failed:#}");
    assert_eq!(loaded.text("SELECT count(*) FROM raw.bad"), "2");

    let loaded = Loaded::new("");
    loaded
        .folder
        .write("t.csv", "id,name,total\n1,a,4\n2,b,x\n3,c,0\n");
    let source = "schema: { id: int64, name: string, total: string }";
    let pipeline = |steps: &str| {
        loaded.with("plan", ALLOWED, source, APPEND, None);
        let file = loaded.folder.read("p.yaml");
        let streams = format!("streams:\n  - name: t\n    transforms: {steps}");
        loaded
            .folder
            .write("p.yaml", file.replace("streams: [t]", &streams));
    };
    pipeline(r#"[{ cast: { total: int32 } }, { set: { part: "12 / total" } }]"#);
    document(
        &loaded
            .folder
            .rapidbyte(&["run", "p.yaml", "--output", "json"]),
        0,
    );
    assert_eq!(loaded.ids(), "1");
    pipeline(
        r#"[{ filter: "total <> '0'" }, { set: { total: "'4'" } }, { cast: { total: int32 } }, { set: { part: "12 / total" } }]"#,
    );
    let replayed = loaded.replay(&[], 0);
    let counts = [
        &replayed["replayed"],
        &replayed["rows"],
        &replayed["rejected"],
    ];
    // The filter drops one of them.
    assert_eq!(counts, [&json!(2), &json!(1), &json!(0)], "{replayed:#}");
    assert_eq!(
        (loaded.ids(), loaded.rejected()),
        ("1 2".into(), "none".into())
    );
    assert_eq!(loaded.replay(&[], 0)["replayed"], 0);
}

#[test]
fn records_are_read_with_the_header_of_their_file() {
    let loaded = Loaded::new(OPEN);
    let source = "schema: { id: int64, name: string, total: float64 }, delimiter: \";\"";
    loaded
        .folder
        .write("t.csv", "name;total;id\n\"a;1\";1;1\n\"b\n2\";2;x\n");
    document(&loaded.with("run", ALLOWED, source, APPEND, None), 0);
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    loaded
        .folder
        .write("fixed.jsonl", lines.replace("2;x", "2;2"));
    assert_eq!(loaded.replay(&["--from", "fixed.jsonl"], 0)["rows"], 1);
    assert_eq!(loaded.text("SELECT name FROM raw.t WHERE id = 2"), "b\n2");
}

#[test]
fn a_replay_that_cannot_be_exact_is_refused_and_changes_nothing() {
    let loaded = loaded();
    let refused = |more: &[&str], exit: i32, code: &str| {
        let failed = loaded.replay(more, exit);
        assert_eq!(failed["error"]["code"], code, "{failed:#}");
        assert_eq!(loaded.ids(), "1 4");
        assert_eq!(loaded.text("SELECT count(*) FROM raw.bad"), "4");
    };
    let from = ["--from", "fixed.jsonl"];
    refused(&from, 2, "replay_file_unreadable");
    for (lines, exit, code) in [
        ("{broken", 2, "replay_file_invalid"),
        (r#"{"id":"1"}"#, 2, "replay_file_invalid"),
        (
            "{\"id\":\"1\",\"record\":\"2,b,2\"}\n{\"id\":\"1\",\"record\":\"2,b,2\"}",
            2,
            "replay_file_invalid",
        ),
        (r#"{"id":"99","record":"2,b,2"}"#, 4, "reject_missing"),
        // The quote never ends.
        (
            r#"{"id":"1","record":"\"2,b,2"}"#,
            4,
            "csv_unterminated_quote",
        ),
    ] {
        loaded.folder.write("fixed.jsonl", lines);
        refused(&from, exit, code);
    }
    let of_row = loaded.text("SELECT min(id) FROM raw.bad WHERE origin = 'destination'");
    let text = format!(r#"{{"id":"{of_row}","record":{{"other":1}}}}"#);
    loaded.folder.write("fixed.jsonl", text);
    refused(&from, 4, "record_does_not_fit");
    let unknown = document(
        &loaded.rejects("replay", &["--stream", "u", "--output", "json"]),
        2,
    );
    assert_eq!(unknown["error"]["code"], "unknown_stream", "{unknown:#}");
    change(
        &mut loaded.client(),
        "UPDATE raw.bad SET record_is_cut = true WHERE location = 't.csv:3'",
    );
    refused(&[], 4, "record_incomplete");
    loaded.with("plan", ALLOWED, SCHEMA, " }\n  write_mode: replace", None);
    refused(&[], 2, "replay_not_possible");
}

#[test]
fn a_replay_that_is_killed_lands_each_record_exactly_once() {
    let loaded = Loaded::new(OPEN);
    let mut client = loaded.client();
    let rows = "id,name,total\n1,a,1\n2,b,200\n3,c,300\n";
    loaded.folder.write("t.csv", rows);
    document(&loaded.run(ALLOWED, APPEND), 0);
    let saved = "CREATE TABLE raw.saved AS TABLE raw.bad; ALTER TABLE raw.saved DROP id";
    change(&mut client, &format!("{REPAIR}; {saved}"));
    for fault in [
        "dest-postgres.opened=kill",
        "dest-postgres.writing=kill",
        "dest-postgres.flushed=kill",
        "dest-postgres.committing=kill",
        "dest-postgres.checkpointing=kill",
        "dest-postgres.commit_sent=kill",
        "dest-postgres.commit_sent=error",
        "dest-postgres.committed=kill",
        "engine.committed=kill",
    ] {
        let columns = "rejected_at, pipeline, run_id, stream, target, origin, location, column_name, code, message, \
                       record, record_bytes, record_is_cut";
        change(
            &mut client,
            &format!(
                "DELETE FROM raw.t WHERE id > 1; DELETE FROM raw.bad; \
                 INSERT INTO raw.bad ({columns}) SELECT {columns} FROM raw.saved"
            ),
        );
        let mut command = loaded.replaying(&[]);
        let killed = command.env("RAPIDBYTE_FAULTS", fault).output();
        let killed = killed.expect("the program starts");
        let is_killed = killed.status.code().is_none();
        assert_eq!(is_killed, fault.ends_with("kill"), "{fault} {killed:?}");
        if is_killed {
            // The server may still be at the end of the transaction.
            let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND application_name = 'rapidbyte'";
            until(
                || {
                    client
                        .query_one(busy, &[])
                        .expect("a count")
                        .get::<_, i64>(0)
                        == 0
                },
                "the killed session has ended",
            );
        }
        let rows = loaded.text("SELECT count(*) FROM raw.t");
        let bad = loaded.text("SELECT count(*) FROM raw.bad");
        let whole = [("1", "2"), ("3", "0")];
        let is_whole = whole.contains(&(rows.as_str(), bad.as_str()));
        assert!(is_whole, "{fault}: {rows} rows and {bad} rejects");
        if bad != "0" {
            loaded.replay(&[], 0);
        }
        let left = (loaded.ids(), loaded.rejected());
        assert_eq!(left, ("1 2 3".into(), "none".into()), "{fault}");
    }
}

#[test]
fn of_two_replays_at_once_one_lands_the_records() {
    let loaded = Loaded::new(OPEN);
    loaded
        .folder
        .write("t.csv", "id,name,total\n1,a,1\n2,b,200\n3,c,300\n");
    document(&loaded.run(ALLOWED, APPEND), 0);
    let mut client = loaded.client();
    change(&mut client, REPAIR);
    let mut held = loaded.client();
    let mut held = held.transaction().expect("a transaction");
    held.execute("SELECT FROM raw.bad FOR UPDATE", &[])
        .expect("locks");
    let replay = || {
        let mut command = loaded.replaying(&["--output", "json"]);
        command.stdout(Stdio::piped());
        command.spawn().expect("a program")
    };
    let both = [replay(), replay()];
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until(
        || {
            client
                .query_one(waiting, &[])
                .expect("a count")
                .get::<_, i64>(0)
                == 2
        },
        "both replays wait for the rejects",
    );
    held.rollback().expect("the end");
    let both = both.map(|child| Ended::from(child.wait_with_output().expect("an end")));
    let (done, refused): (Vec<&Ended>, Vec<&Ended>) =
        both.iter().partition(|one| one.code == Some(0));
    assert_eq!((done.len(), refused.len()), (1, 1), "{both:?}");
    let failed = document(refused[0], 4);
    assert_eq!(failed["error"]["code"], "reject_missing", "{failed:#}");
    assert_eq!(document(done[0], 0)["rows"], 2);
    assert_eq!(
        (loaded.ids(), loaded.rejected()),
        ("1 2 3".into(), "none".into())
    );
}

#[test]
fn a_record_keeps_the_columns_of_its_file_when_the_header_changes() {
    let loaded = Loaded::new("CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, total float8)");
    let upsert = " }\n  write_mode: upsert\n  primary_key: [id]";
    loaded
        .folder
        .write("t.csv", "id,name,total\n1,10,5\n2,b,x\n");
    document(&loaded.run(ALLOWED, upsert), 0);
    // The next file has its columns in another order, and a name where the older one had a number.
    loaded.folder.write("t.csv", "id,total,name\n4,1,2\n");
    document(&loaded.run(ALLOWED, upsert), 0);
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    loaded
        .folder
        .write("fixed.jsonl", lines.replace("2,b,x", "2,20,7"));
    std::fs::remove_file(loaded.folder.path().join("t.csv")).expect("a file");
    loaded.folder.write("t.csv", "id,total,name\n");
    assert_eq!(loaded.replay(&["--from", "fixed.jsonl"], 0)["rows"], 1);
    let row = loaded.text("SELECT concat_ws('|', name, total) FROM raw.t WHERE id = 2");
    assert_eq!(row, "20|7");
}

#[test]
fn an_upsert_replays_records_in_the_order_in_which_they_were_first_rejected() {
    let loaded = Loaded::new(
        "CREATE TABLE raw.t (id bigint PRIMARY KEY, name text, total float8, CONSTRAINT low CHECK (total > 0))",
    );
    let upsert = " }\n  write_mode: upsert\n  primary_key: [id]";
    // The older one is refused by the destination, the newer ones by the source.
    for line in ["5,old,-1", "5,newer,x", "5,newest,y"] {
        loaded
            .folder
            .write("t.csv", format!("id,name,total\n{line}\n"));
        document(&loaded.run(ALLOWED, upsert), 0);
    }
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    let of_newer: Vec<&str> = lines
        .lines()
        .filter(|line| line.contains("newer"))
        .collect();
    // It fails again, and stays before the newest.
    loaded.folder.write("fixed.jsonl", of_newer.join("\n"));
    assert_eq!(loaded.replay(&["--from", "fixed.jsonl"], 0)["rejected"], 1);
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    let order = ["old", "newer", "newest"].map(|name| lines.find(name));
    assert!(order.is_sorted(), "{lines}");
    let fixed = lines
        .replace("\"total\":-1.0", "\"total\":1")
        .replace("newer,x", "newer,2")
        .replace("newest,y", "newest,3");
    loaded.folder.write("fixed.jsonl", fixed);
    let replayed = loaded.replay(&["--from", "fixed.jsonl"], 0);
    assert_eq!(replayed["replayed"], 3, "{replayed:#}");
    assert_eq!(loaded.text("SELECT name FROM raw.t"), "newest");
}

#[test]
fn a_row_that_the_destination_refused_comes_back_exactly_or_is_refused() {
    let loaded = Loaded::new(
        "CREATE TABLE raw.t (id bigint NOT NULL, j json, b jsonb, f float8, CONSTRAINT low CHECK (id < 0))",
    );
    let source = "schema: { id: int64, j: json, b: json, f: float64 }";
    let rows = "id,j,b,f\n1,null,null,NaN\n2,\"\"\"null\"\"\",\"\"\"x\"\"\",Infinity\n3,\"[1,\n2]\",\"{\"\"a\"\":1}\",1.5\n\
                4, 1.50,1.50,-0\n";
    loaded.folder.write("t.csv", rows);
    document(&loaded.with("run", ALLOWED, source, APPEND, None), 0);
    assert_eq!(loaded.text("SELECT count(*) FROM raw.bad"), "4");
    let mut client = loaded.client();
    let whole = "(SELECT string_agg(concat_ws('|', id, j, b, f), ' ' ORDER BY id) FROM raw.t)";
    change(&mut client, REPAIR);
    loaded.folder.write(
        "other.jsonl",
        "{\"id\":\"1\",\"record\":{\"id\":1,\"j\":null}}\n",
    );
    let failed = loaded.replay(&["--from", "other.jsonl"], 4);
    assert_eq!(failed["error"]["code"], "record_does_not_fit", "{failed:#}");
    let text = failed["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("\"b\", \"f\""), "{failed:#}");
    assert_eq!(loaded.replay(&[], 0)["rows"], 4);
    let replayed = loaded.text(whole);
    change(&mut client, "DELETE FROM raw.t");
    document(&loaded.with("run", ALLOWED, source, APPEND, None), 0);
    assert_eq!(replayed, loaded.text(whole));
}

#[test]
fn a_replay_that_fails_for_a_moment_is_retried_and_not_taken_for_an_older_run() {
    let loaded = loaded();
    change(&mut loaded.client(), REPAIR);
    let fixed = loaded.rejects("show", &["--jsonl"]).stdout;
    let fixed = fixed.lines().filter(|line| line.contains("pg_23514"));
    loaded
        .folder
        .write("fixed.jsonl", fixed.collect::<Vec<_>>().join("\n"));
    let file = loaded.folder.read("p.yaml");
    let retry = "retry: { max_attempts: 3, backoff_seconds: 1 }\n";
    loaded.folder.write("p.yaml", format!("{file}{retry}"));
    let mut command = loaded.replaying(&["--from", "fixed.jsonl"]);
    let ended = command
        .env("RAPIDBYTE_FAULTS", "engine.write=error@1")
        .output();
    let ended = ended.expect("the program starts");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(loaded.ids(), "1 4 5");
}

#[test]
fn a_reject_that_somebody_edits_while_a_replay_waits_for_it_stays() {
    let loaded = loaded();
    let lines = loaded.rejects("show", &["--jsonl"]).stdout;
    let fixed = lines.replace("\"x,b,2\"", "\"2,b,2\"");
    let one = fixed.lines().filter(|line| line.contains("2,b,2"));
    loaded
        .folder
        .write("fixed.jsonl", one.collect::<Vec<_>>().join("\n"));
    let mut client = loaded.client();
    change(
        &mut client,
        "BEGIN; UPDATE raw.bad SET record = '7,g,7' WHERE record = 'x,b,2'",
    );
    let mut other = loaded.client();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'rapidbyte' AND wait_event_type = 'Lock'";
    let mut command = loaded.replaying(&["--output", "json", "--from", "fixed.jsonl"]);
    let replaying = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let replaying = replaying.expect("the program starts");
    let is_waiting = || {
        let count = other.query_one(waits, &[]).expect("a count");
        count.get::<_, i64>(0) == 1
    };
    until(is_waiting, "the replay waits for the reject");
    change(&mut client, "COMMIT");
    let ended = replaying.wait_with_output().expect("a replay");
    let failed = document(&ended.into(), 4);
    assert_eq!(failed["error"]["code"], "reject_missing", "{failed:#}");
    assert_eq!(loaded.ids(), "1 4");
    let edited = "SELECT count(*) FROM raw.bad WHERE record = '7,g,7'";
    assert_eq!(loaded.text(edited), "1");
}

/// A reject keeps a value in the form of its type: the server's bytes, or digits that another type would round.
#[test]
fn a_value_of_a_type_that_its_column_no_longer_has_is_not_replayed() {
    let database = shared().database();
    let mut client = database.client();
    for (value, from, to) in [
        ("12.5", "numeric", "text"),
        ("12.55", "numeric(10,2)", "numeric(10,1)"),
        ("2024-07-01", "date", "text"),
        ("2024-07-01 10:00", "timestamp", "timestamptz"),
        ("{1,2}", "int[]", "text"),
        ("a", "bytea", "text"),
        ("0.1", "real", "float8"),
        ("ab", "char(4)", "text"),
        ("7", "int", "bigint"),
    ] {
        change(
            &mut client,
            &format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; DROP TABLE IF EXISTS c; CREATE SCHEMA raw;
                 CREATE TABLE c (id int PRIMARY KEY, n {from}); INSERT INTO c VALUES (1, '{value}'), (2, '{value}');
                 CREATE TABLE raw.c (id int PRIMARY KEY, n {from}, CONSTRAINT low CHECK (id < 2))"
            ),
        );
        let folder = Folder::new();
        let url = database.url();
        folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: p\n{ALLOWED}source:\n  use: source-postgres\n  config: {{ url: \"{url}\" }}\n  \
                 streams: [public.c]\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  \
                 write_mode: upsert\n"
            ),
        );
        let ended = folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for schema in ["public", "raw"] {
            let alter = format!("ALTER TABLE {schema}.c ALTER n TYPE {to} USING n::{to}");
            change(&mut client, &alter);
        }
        change(&mut client, "ALTER TABLE raw.c DROP CONSTRAINT low");
        let replay = [
            "rejects", "replay", "p.yaml", "--stream", "public.c", "--output", "json",
        ];
        let is_plain = to == "bigint";
        let replayed = document(&folder.rapidbyte(&replay), if is_plain { 0 } else { 4 });
        if !is_plain {
            let code = &replayed["error"]["code"];
            assert_eq!(code, "reject_columns_changed", "{from} {replayed:#}");
        }
        let rows = "SELECT count(*) FROM raw.c AS a JOIN c AS b ON a::text = b::text";
        let equal: i64 = client.query_one(rows, &[]).expect("a count").get(0);
        assert_eq!(equal, if is_plain { 2 } else { 1 }, "{from}");
    }
}

/// Otherwise a replay would silently change the target, and drop a column with its values.
#[test]
fn a_replay_changes_no_column_of_the_target() {
    let database = shared().database();
    let mut client = database.client();
    change(
        &mut client,
        "CREATE TABLE c (id int PRIMARY KEY, a text, b text); INSERT INTO c VALUES (1, 'a1', 'b1'), (2, 'a2', 'b2');
         CREATE SCHEMA raw;
         CREATE TABLE raw.c (id int PRIMARY KEY, a text, b text, CONSTRAINT low CHECK (id < 2))",
    );
    let folder = Folder::new();
    let url = database.url();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: p\n{ALLOWED}schema_changes: {{ dropped_column: drop }}\nsource:\n  \
             use: source-postgres\n  config: {{ url: \"{url}\" }}\n  streams: [public.c]\ndestination:\n  \
             use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  write_mode: upsert\n"
        ),
    );
    assert_eq!(folder.rapidbyte(&["run", "p.yaml"]).code, Some(0));
    let kept = folder
        .rapidbyte(&["rejects", "show", "p.yaml", "--jsonl"])
        .stdout;
    let fixed = kept.replace(",\\\"b\\\":\\\"b2\\\"", "");
    folder.write("fixed.jsonl", fixed.replace(",\"b\":\"b2\"", ""));
    change(
        &mut client,
        "ALTER TABLE c DROP b; ALTER TABLE raw.c DROP CONSTRAINT low",
    );
    let replay = [
        "rejects",
        "replay",
        "p.yaml",
        "--stream",
        "public.c",
        "--output",
        "json",
        "--from",
        "fixed.jsonl",
    ];
    let refused = document(&folder.rapidbyte(&replay), 2);
    assert_eq!(
        refused["error"]["code"], "replay_not_possible",
        "{refused:#}"
    );
    assert!(
        refused["error"]["message"]
            .to_string()
            .contains("DROP COLUMN"),
        "{refused:#}"
    );
    let rows = "SELECT string_agg(x::text, ' ') FROM raw.c x";
    let text =
        |client: &mut Client| -> String { client.query_one(rows, &[]).expect("rows").get(0) };
    assert_eq!(text(&mut client), "(1,a1,b1)");
    // A run changes the column, and the repaired record has the columns of now.
    assert_eq!(folder.rapidbyte(&["run", "p.yaml"]).code, Some(0));
    assert_eq!(text(&mut client), "(1,a1) (2,a2)");
}

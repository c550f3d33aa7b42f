//! `rapidbyte verify --repair`, and `verify: after_run`.

use std::process::Stdio;

use serde_json::Value;

use crate::network::until;
use crate::support::{Ended, Folder};
use crate::verify::{SHOP, Shop, differing};

/// Differences of each kind between `public.orders` and `raw.orders`.
const DAMAGE: &str = "
    UPDATE raw.orders SET b = set_bit(b, 0, 1 - get_bit(b, 0)) WHERE id = 11;
    UPDATE raw.orders SET name = '' WHERE id = 14;
    UPDATE raw.orders a SET f = o.f FROM public.orders o WHERE a.id + o.id = 41 AND a.id IN (20, 21);
    DELETE FROM raw.orders WHERE id IN (30, 31, 32);
    INSERT INTO raw.orders (shop, id) VALUES (9, 0), (9, 1), (9, 2)";

fn repaired(verified: &Value) -> Vec<&str> {
    let rows = verified["streams"][0]["repaired"].as_array();
    let rows = rows.expect("rows").iter();
    rows.filter_map(|row| row["difference"].as_str()).collect()
}

#[test]
fn only_the_rows_that_differ_move_again_in_every_write_mode() {
    for mode in ["replace", "upsert", "append"] {
        let mut shop = Shop::new(SHOP);
        shop.copy("public.orders", mode);
        shop.sql("ALTER TABLE raw.orders ADD COLUMN note text DEFAULT 'new'");
        shop.sql("UPDATE raw.orders SET note = 'mine'");
        shop.sql(DAMAGE);
        let verified = shop.verify(&["--repair"], 0);
        let stream = &verified["streams"][0];
        assert_eq!(stream["equal"], true, "{verified:#}");
        assert_eq!(stream["source"], stream["target"]);
        let of = |what| {
            repaired(&verified)
                .iter()
                .filter(|one| **one == what)
                .count()
        };
        let counts = ["changed", "only_in_source", "only_in_target"].map(of);
        assert_eq!(counts, [4, 3, 3], "{mode}: {verified:#}");
        let (all, old): (i64, i64) = {
            let sql = "SELECT count(*), count(*) FILTER (WHERE note = 'mine') FROM raw.orders";
            let row = shop.client.query_one(sql, &[]).expect("counts");
            (row.get(0), row.get(1))
        };
        // An update keeps the columns that the stream does not have, of the rows that were there.
        let kept = 24_997;
        assert_eq!((all, old), (25_000, kept), "{mode}");
        assert!(repaired(&shop.verify(&["--repair"], 0)).is_empty());
    }
}

#[test]
fn a_repair_updates_in_place_what_other_rows_refer_to_and_spells_keys_as_the_source() {
    let mut shop = Shop::new(
        "CREATE TABLE t (k numeric PRIMARY KEY, v int); INSERT INTO t VALUES (1.00, 1), (2, 2), (3, 3);
         CREATE TABLE raw.t (k numeric PRIMARY KEY, v int, mine text DEFAULT 'new')",
    );
    // A table with such children cannot be replaced.
    for mode in ["append", "upsert"] {
        shop.sql("DROP TABLE IF EXISTS raw.child; DELETE FROM raw.t");
        shop.copy("public.t", mode);
        shop.sql(
            "UPDATE raw.t SET k = 1.0, mine = 'kept' WHERE k = 1; UPDATE raw.t SET v = 7, mine = 'kept' WHERE k = 2;
             CREATE TABLE raw.child (k numeric REFERENCES raw.t ON DELETE CASCADE);
             INSERT INTO raw.child VALUES (1), (2), (3)",
        );
        let verified = shop.verify(&["--repair"], 0);
        assert_eq!(verified["streams"][0]["equal"], true, "{verified:#}");
        let sql = "SELECT string_agg(concat_ws('|', k, v, mine), ' ' ORDER BY k) FROM raw.t";
        let rows: String = shop.client.query_one(sql, &[]).expect("a row").get(0);
        assert_eq!(rows, "1.00|1|kept 2|2|kept 3|3|new", "{mode}");
        let sql = "SELECT count(*) FROM raw.child";
        let children: i64 = shop.client.query_one(sql, &[]).expect("a row").get(0);
        assert_eq!(children, 3, "{mode}");
    }
}

/// The keys are equal for the target alone, so a row of the source and its row in the target seem to be two.
#[test]
fn rows_whose_keys_are_spelled_otherwise_stay_whatever_a_comparison_sees_of_them() {
    let mut shop = Shop::new(
        "CREATE COLLATION raw.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE t (k text PRIMARY KEY, v int); INSERT INTO t SELECT 'Key' || i, i FROM generate_series(1, 3000) i;
         CREATE TABLE raw.t (k text COLLATE raw.any_case PRIMARY KEY, v int, mine text)",
    );
    shop.copy("public.t", "upsert");
    shop.sql(
        "CREATE TABLE raw.child (k text COLLATE raw.any_case REFERENCES raw.t ON DELETE CASCADE ON UPDATE CASCADE);
         INSERT INTO raw.child SELECT k FROM raw.t; UPDATE raw.t SET mine = 'mine', k = upper(k);
         INSERT INTO raw.t VALUES ('ghost', 0, 'mine')",
    );
    let counts = |shop: &mut Shop| -> String {
        let sql = "SELECT concat_ws(' ', count(*), count(mine), (SELECT count(*) FROM raw.child)) FROM raw.t";
        shop.client.query_one(sql, &[]).expect("counts").get(0)
    };
    // Rows that only the target has stay in a sample.
    shop.folder
        .rapidbyte(&["verify", "p.yaml", "--repair", "--sample", "30"]);
    assert_eq!(counts(&mut shop), "3001 3001 3000");
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(verified["streams"][0]["equal"], true, "{verified:#}");
    assert_eq!(counts(&mut shop), "3000 3000 3000");
}

/// A run that commits newer rows than the repair has read would lose them to it.
#[test]
fn no_run_works_beside_a_repair() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, at int, v text); INSERT INTO t SELECT i, i, 'v' || i FROM generate_series(1, 9) i",
    );
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at }";
    shop.copy(stream, "upsert");
    shop.sql("UPDATE raw.t SET v = 'bad' WHERE id IN (1, 5)");
    let mut other = shop.database.client();
    let mut held = other.transaction().expect("a transaction");
    held.execute("SELECT FROM raw.t WHERE id = 1 FOR UPDATE", &[])
        .expect("a lock");
    let mut command = shop.folder.command(&["verify", "p.yaml", "--repair"]);
    let repair = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let repair = repair.expect("the program starts");
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let is_waiting = || {
        let count = shop.client.query_one(waits, &[]).expect("a count");
        count.get::<_, i64>(0) == 1
    };
    until(is_waiting, "the repair waits for the row");
    for verb in [&["run", "p.yaml"][..], &["verify", "p.yaml", "--repair"]] {
        let ended = shop
            .folder
            .rapidbyte(&[verb, &["--output", "json"]].concat());
        assert!(ended.stdout.contains("already_running"), "{ended:?}");
    }
    held.rollback().expect("a rollback");
    let ended = repair.wait_with_output().expect("a repair");
    assert!(ended.status.success(), "{ended:?}");
    shop.sql("UPDATE t SET v = 'PAID', at = 20 WHERE id = 5");
    last_run(&shop.folder, 0);
    assert_eq!(shop.verify(&[], 0)["streams"][0]["equal"], true);
}

#[test]
fn more_rows_than_one_comparison_names_are_repaired_and_the_text_says_how_many() {
    let mut shop = Shop::new(SHOP);
    shop.copy("public.orders", "upsert");
    shop.sql(
        "UPDATE raw.orders SET amount = amount + 1 WHERE id <= 3000; DELETE FROM raw.orders WHERE id > 24500",
    );
    let ended = shop.folder.rapidbyte(&["verify", "p.yaml", "--repair"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let expected =
        "3,500 rows repaired (3,000 changed, 500 added), now equal, 25,000 rows, checksum ";
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
}

#[test]
fn a_repair_moves_no_cursor_and_takes_no_row_that_the_next_run_would_read() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL, v text);
         INSERT INTO t SELECT i, '2026-01-01'::timestamptz + i * interval '1 minute', 'v' FROM generate_series(1, 50) i",
    );
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at }";
    shop.copy(stream, "upsert");
    let checkpoint = |shop: &mut Shop| -> String {
        let sql = "SELECT string_agg(c::text, ' ') FROM _rapidbyte.checkpoint AS c";
        shop.client.query_one(sql, &[]).expect("a row").get(0)
    };
    let before = checkpoint(&mut shop);
    shop.sql(
        "INSERT INTO t VALUES (60, '2026-01-01 00:00:30', 'late'), (61, '2026-02-01', 'new');
         DELETE FROM t WHERE id = 7",
    );
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(repaired(&verified), ["only_in_source", "only_in_target"]);
    assert_eq!(checkpoint(&mut shop), before);
    let sql = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM raw.t WHERE id = 7 OR id > 50";
    let rows: String = shop.client.query_one(sql, &[]).expect("a row").get(0);
    assert_eq!(rows, "60");
    let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    shop.verify(&[], 0);
}

#[test]
fn a_repair_that_is_killed_leaves_the_rows_as_they_were_or_as_they_should_be() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 9) AS i",
    );
    for mode in ["replace", "upsert"] {
        shop.copy("public.t", mode);
        for point in [
            "opened",
            "removed",
            "writing",
            "flushed",
            "committing",
            "checkpointing",
            "commit_sent",
            "committed",
        ] {
            shop.sql(
                "UPDATE raw.t SET v = 'x' WHERE id = 1; DELETE FROM raw.t WHERE id = 2; INSERT INTO raw.t VALUES (10)",
            );
            let fault = format!("dest-postgres.{point}=kill");
            let mut command = shop.folder.command(&["verify", "p.yaml", "--repair"]);
            let killed = command.env("RAPIDBYTE_FAULTS", &fault).output();
            let killed = killed.expect("the program starts");
            assert_eq!(killed.status.code(), None, "{fault} {killed:?}");
            let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND application_name = 'rapidbyte'";
            let is_over = || {
                let busy = shop.client.query_one(busy, &[]).expect("a count");
                busy.get::<_, i64>(0) == 0
            };
            until(is_over, "the killed session has ended");
            let sql = "SELECT string_agg(id || coalesce(v, ''), ' ' ORDER BY id) FROM raw.t WHERE id IN (1, 2, 10)";
            let found: String = shop.client.query_one(sql, &[]).expect("a row").get(0);
            assert!(
                ["1x 10", "1v1 2v2"].contains(&found.as_str()),
                "{fault}: {found}"
            );
            let verified = shop.verify(&["--repair"], 0);
            assert_eq!(
                verified["streams"][0]["equal"], true,
                "{fault} {verified:#}"
            );
        }
    }
}

#[test]
fn rows_that_cannot_be_repaired_are_refused_by_name_or_still_differ() {
    let mut shop = Shop::new(
        "CREATE TABLE n (id int, v text); INSERT INTO n VALUES (1, 'a');
         CREATE TABLE t (id int PRIMARY KEY, at int, v text, gone boolean); INSERT INTO t VALUES (1, 1, 'a', false)",
    );
    let refused = |shop: &Shop, part: &str| {
        let verified = shop.verify(&["--repair"], 2);
        let error = &verified["error"];
        assert_eq!(error["code"], "repair_not_possible", "{verified:#}");
        let text = format!("{} {}", error["message"], error["hint"]);
        assert!(text.contains(part), "{part}: {text}");
    };
    shop.copy("public.n", "replace");
    refused(&shop, "has no key");
    shop.copy(
        "{ name: public.t, sync_mode: incremental, cursor_field: at, target: { name: a } }",
        "append",
    );
    refused(&shop, "keeps each version");
    let marks = "upsert\ndeletes: { mode: compare, action: mark, column: deleted_at }";
    shop.copy("{ name: public.t, target: { name: m } }", marks);
    refused(&shop, "only a run sets");
    // A trigger of the target changes the row each time.
    shop.copy("public.t", "upsert");
    shop.sql(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v = ''other''; RETURN NEW; END';
         CREATE TRIGGER r BEFORE INSERT OR UPDATE ON raw.t FOR EACH ROW EXECUTE FUNCTION f();
         UPDATE raw.t SET v = v",
    );
    let verified = shop.verify(&["--repair"], 1);
    assert_eq!(differing(&verified), ["1 changed v"]);
    assert!(repaired(&verified).is_empty(), "{verified:#}");
}

fn last_run(folder: &Folder, code: i32) -> Value {
    let ended = folder.rapidbyte(&["run", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(code), "{}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[test]
fn a_run_compares_its_targets_as_of_the_snapshot_that_it_read() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 900) AS i;
         CREATE TABLE raw.t (LIKE t INCLUDING ALL);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE public.t SET v = ''later'' WHERE id < 9; RETURN NULL; END';
         CREATE TRIGGER s AFTER INSERT ON raw.t FOR EACH STATEMENT EXECUTE FUNCTION f()",
    );
    for (mode, stream) in [("replace", "public.t"), ("upsert", "public.t")] {
        shop.sql("UPDATE t SET v = 'v' || id");
        shop.pipeline(stream, &format!("{mode}\nverify: after_run"));
        let run = last_run(&shop.folder, 0);
        let verified = &run["streams"][0]["verified"];
        assert_eq!(verified["equal"], true, "{run:#}");
        assert_eq!(
            (&verified["rows"], &verified["differing"]),
            (&900.into(), &0.into())
        );
        // The source has other rows by now.
        assert_eq!(
            shop.verify(&[], 1)["streams"][0]["rows"]
                .as_array()
                .map(Vec::len),
            Some(8)
        );
    }
    let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
    assert!(
        ended.stdout.contains("900 rows, equal to the source"),
        "{}",
        ended.stdout
    );
}

/// The rows of the run are within the lag.
#[test]
fn a_run_with_a_lag_compares_the_rows_that_it_moved() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, at int, v text);
         INSERT INTO t SELECT i, i, 'v' || i FROM generate_series(1, 9) i; INSERT INTO t VALUES (10, NULL, 'x');
         CREATE TABLE raw.t (LIKE t INCLUDING ALL);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v = ''''; RETURN NEW; END';
         CREATE TRIGGER r BEFORE INSERT ON raw.t FOR EACH ROW WHEN (NEW.id = 9) EXECUTE FUNCTION f()",
    );
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at, lag: 100 }";
    shop.pipeline(stream, "upsert\nverify: after_run");
    let run = last_run(&shop.folder, 1);
    assert_eq!(run["error"]["code"], "rows_differ", "{run:#}");
    shop.sql("DROP TRIGGER r ON raw.t");
    let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
    assert!(
        ended
            .stdout
            .contains("9 rows up to the cursor equal to the source"),
        "{ended:?}"
    );
}

#[test]
fn a_run_whose_target_differs_fails_after_its_commit() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, at int, v text); INSERT INTO t SELECT i, i, 'v' || i FROM generate_series(1, 9) AS i;
         CREATE TABLE raw.t (LIKE t INCLUDING ALL);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id = 3 THEN NEW.v = ''''; END IF; RETURN NEW; END';
         CREATE TRIGGER r BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION f()",
    );
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at }";
    shop.pipeline(stream, "upsert\nverify: after_run");
    let run = last_run(&shop.folder, 1);
    assert_eq!(run["error"]["code"], "rows_differ", "{run:#}");
    assert_eq!(run["error"]["stream"], "public.t", "{run:#}");
    let rows: i64 = shop
        .client
        .query_one("SELECT count(*) FROM raw.t", &[])
        .expect("a count")
        .get(0);
    assert_eq!(rows, 9, "what was committed stays");
    // The next run is a new one, which resumes behind the cursor.
    shop.sql("DROP TRIGGER r ON raw.t; INSERT INTO t VALUES (10, 10, 'v10')");
    let run = last_run(&shop.folder, 1);
    assert_eq!(run["error"]["code"], "rows_differ", "{run:#}");
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(repaired(&verified), ["changed"]);
    shop.sql("INSERT INTO t VALUES (11, 11, 'v11')");
    let run = last_run(&shop.folder, 0);
    assert_eq!(run["streams"][0]["verified"]["rows"], 11, "{run:#}");
}

/// A column may have the name that a statement could give to a key.
#[test]
fn keys_of_several_columns_with_short_names_are_repaired() {
    let mut shop = Shop::new(
        "CREATE TABLE t (k0 int, k1 text, v text, PRIMARY KEY (k0, k1));
         INSERT INTO t VALUES (1, 'a', 'x'), (1, 'b', 'y')",
    );
    shop.copy("public.t", "upsert");
    shop.sql("UPDATE raw.t SET v = 'z' WHERE k1 = 'b'");
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(repaired(&verified), ["changed"]);
}

/// Runs a command whose digest of the source waits for a lock, and ends that session while it waits.
fn while_its_session_is_ended(shop: &mut Shop, arguments: &[&str]) -> Ended {
    shop.sql("SELECT pg_advisory_lock(7)");
    let mut command = shop.folder.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let waiting = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 \
                   AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let ends_it = || {
        let ended = shop.client.query_one(waiting, &[]).expect("a count");
        ended.get::<_, i64>(0) == 1
    };
    until(ends_it, "a digest waits for the lock");
    shop.sql("SELECT pg_advisory_unlock(7)");
    child.wait_with_output().expect("the program ends").into()
}

#[test]
fn a_comparison_survives_a_lost_session() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a');
         CREATE FUNCTION waits() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
             IF current_query() LIKE '%hashtextextended%' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
             RETURN 7; END $$;
         CREATE VIEW u AS SELECT id, v, waits() AS n FROM t",
    );
    shop.pipeline("public.u", "replace\nverify: after_run");
    let run = ["run", "p.yaml", "--output", "json"];
    let ended = while_its_session_is_ended(&mut shop, &run);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let run: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(run["streams"][0]["verified"]["equal"], true, "{run:#}");
    let told = "compared with the rows that the source has now";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    let file = shop.folder.path().join("p.yaml");
    let text = std::fs::read_to_string(&file).expect("a pipeline");
    let text = text.replace("max_attempts: 1", "max_attempts: 2");
    shop.folder.write("p.yaml", text);
    let ended = while_its_session_is_ended(&mut shop, &["verify", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let told = "the comparison begins again";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}

#[test]
fn rows_of_files_and_of_transforms_are_read_and_staged_to_be_compared() {
    let mut shop = Shop::new("SELECT 1");
    let rows: String = (1..=3000)
        .map(|i| format!("{i},name {i},{i}.50\n"))
        .collect();
    // The last row of a key counts.
    let rows = format!("id,name,total\n7,older,1.00\n{rows}");
    shop.folder.write("in/orders.csv", &rows);
    let url = shop.database.url();
    let pipeline = |mode: &str, more: &str| {
        format!(
            "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-file\n  config: {{ path: \
             \"in/{{stream}}.csv\" }}\n  streams:\n    - {{ name: orders, primary_key: [id]{more} }}\ndestination:\n  use: \
             dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  write_mode: {mode}\n"
        )
    };
    let run = |shop: &Shop| {
        let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    };
    let steps = ", transforms: [{ upper: [name] }, { filter: id <> 9 }, { cast: { total: 'numeric(12,3)' } }]";
    for (mode, more, count) in [("upsert", "", 3000), ("upsert", steps, 2999)] {
        shop.sql("DROP TABLE IF EXISTS raw.orders");
        shop.folder.write("p.yaml", pipeline(mode, more));
        run(&shop);
        let verified = shop.verify(&[], 0);
        assert_eq!(
            verified["streams"][0]["source"]["rows"], count,
            "{verified:#}"
        );
        shop.sql(
            "UPDATE raw.orders SET total = total + 0.01 WHERE id = 11; DELETE FROM raw.orders WHERE id = 12;
             INSERT INTO raw.orders (id) VALUES (9999)",
        );
        let found = [
            "11 changed total",
            "12 only_in_source ",
            "9999 only_in_target ",
        ];
        assert_eq!(differing(&shop.verify(&[], 1)), found);
        let verified = shop.verify(&["--repair"], 2);
        assert_eq!(
            verified["error"]["code"], "repair_not_possible",
            "{verified:#}"
        );
        run(&shop);
        assert_eq!(
            differing(&shop.verify(&[], 1)),
            ["9999 only_in_target "],
            "a run upserts"
        );
    }
    let left =
        "SELECT count(*) FROM pg_class WHERE relname IN ('rapidbyte_rows', 'rapidbyte_staged')";
    // The server drops them when it notices the end of the session.
    let mut has_none = || {
        let left: i64 = shop.client.query_one(left, &[]).expect("a count").get(0);
        left == 0
    };
    until(&mut has_none, "no table of a comparison is left");
    shop.folder
        .write("p.yaml", pipeline("upsert\nverify: after_run", ""));
    let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("read all rows twice"),
        "{}",
        ended.stderr
    );
    // A record that cannot be read ends the comparison, not only with rejects.
    shop.folder.write("p.yaml", pipeline("upsert", ""));
    shop.folder
        .write("in/orders.csv", "id,name,total\n1,a,1.5\n2,b,x\n");
    let ended = shop.folder.rapidbyte(&["verify", "p.yaml"]);
    assert_ne!(ended.code, Some(0), "{}", ended.stdout);
}

/// The target has a column that the stream lacks and that takes no NULL, texts that the server reads as other types, or
/// it is a view.
#[test]
fn rows_are_staged_for_every_target_that_a_run_can_fill() {
    let mut shop = Shop::new(
        "CREATE TABLE raw.orders (id bigint PRIMARY KEY, day date NOT NULL, more int NOT NULL DEFAULT 7);
         CREATE TABLE raw.under (id bigint, day text);
         CREATE VIEW raw.seen AS SELECT id, day FROM raw.under",
    );
    let url = shop.database.url();
    for (name, key, mode) in [
        ("orders", "", "replace"),
        ("orders", ", primary_key: [id]", "upsert"),
        ("seen", "", "append"),
    ] {
        shop.folder.write(
            &format!("in/{name}.csv"),
            "id,day\n1,2026-01-01\n2,2026-01-02\n",
        );
        shop.folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: {name}-{mode}\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-file\n  \
                 config: {{ path: \"in/{{stream}}.csv\", schema: {{ id: int64, day: string }} }}\n  streams:\n    - {{ name: \
                 {name}{key} }}\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", \
                 schema: raw }}\n  write_mode: {mode}\n"
            ),
        );
        let ended = shop.folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{name} {mode}: {}", ended.stderr);
        let verified = shop.verify(&[], 0);
        assert_eq!(verified["streams"][0]["source"]["rows"], 2, "{verified:#}");
    }
    // The view has no key.
    shop.sql("UPDATE raw.under SET day = 'x' WHERE id = 1");
    let differs = differing(&shop.verify(&[], 1));
    assert_eq!(differs, [" only_in_source ", " only_in_target "]);
}

#[test]
fn a_comparison_that_a_run_could_not_make_is_refused_before_anything_moves() {
    let mut shop =
        Shop::new("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')");
    for (stream, mode, part) in [
        ("public.t", "append", "keeps the rows of earlier runs"),
        (
            "{ name: public.t, transforms: [{ upper: [v] }] }",
            "replace",
            "transforms make other rows",
        ),
        (
            "public.t",
            "replace\nrejects: { max_rows: 5, to: raw.rejects }",
            "rejects keeps rows out",
        ),
        (
            "{ name: public.t, sync_mode: incremental, cursor_field: id, columns: [v] }",
            "append",
            "columns of the cursor",
        ),
    ] {
        shop.pipeline(stream, &format!("{mode}\nverify: after_run"));
        for verb in ["plan", "run"] {
            let ended = shop.folder.rapidbyte(&[verb, "p.yaml"]);
            assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
            assert!(
                ended.stderr.contains("unsupported_verify"),
                "{}",
                ended.stderr
            );
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
    }
    let made = "SELECT count(*) FROM pg_class WHERE relnamespace = 'raw'::regnamespace";
    let made: i64 = shop.client.query_one(made, &[]).expect("a count").get(0);
    assert_eq!(made, 0);
    shop.pipeline("public.t", "replace\nverify: after_run");
    let ended = shop
        .folder
        .rapidbyte(&["run", "p.yaml", "--limit", "1", "--limit-replaces"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// An array is compared as a text.
#[test]
fn a_key_with_an_array_is_spelled_as_in_the_source() {
    let mut shop = Shop::new(
        "CREATE TABLE t (k numeric, c int[], v text, PRIMARY KEY (k, c)); \
         INSERT INTO t VALUES (1.0, '{1,2}', 'a'), (2, '{}', 'b'), (3, '{3}', 'c')",
    );
    shop.copy("public.t", "upsert");
    shop.sql("ALTER TABLE raw.t ADD COLUMN mine text DEFAULT 'new'");
    shop.sql("UPDATE raw.t SET mine = 'mine', k = 1.00 WHERE k = 1; UPDATE raw.t SET v = 'x' WHERE k = 2");
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(verified["streams"][0]["equal"], true, "{verified:#}");
    let sql = "SELECT string_agg(concat_ws('|', k, c, v, mine), ' ' ORDER BY k) FROM raw.t";
    let rows: String = shop.client.query_one(sql, &[]).expect("a row").get(0);
    assert_eq!(rows, "1.0|{1,2}|a|mine 2|{}|b|new 3|{3}|c|new");
}

#[test]
fn a_repair_keeps_no_rejects() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT g, g FROM generate_series(1, 20) g;
         CREATE TABLE raw.t (id int PRIMARY KEY, n int CHECK (n < 18))",
    );
    shop.copy(
        "public.t",
        "upsert\nrejects: { max_rows: 5, to: raw.rejects }",
    );
    shop.sql("UPDATE raw.t SET n = 0 WHERE id < 3");
    let rejects = |shop: &mut Shop| -> i64 {
        let sql = "SELECT count(*) FROM raw.rejects";
        shop.client.query_one(sql, &[]).expect("a count").get(0)
    };
    assert_eq!(rejects(&mut shop), 3);
    // The rows of the rejects differ, too, and the target refuses them.
    let verified = shop.verify(&["--repair"], 4);
    assert_eq!(verified["error"]["code"], "pg_23514", "{verified:#}");
    assert_eq!(rejects(&mut shop), 3);
    shop.sql("DELETE FROM t WHERE id > 17");
    let verified = shop.verify(&["--repair"], 0);
    assert_eq!(repaired(&verified), ["changed", "changed"]);
    assert_eq!(rejects(&mut shop), 3);
}

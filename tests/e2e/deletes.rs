//! Rows that were deleted at the source without a trace: `deletes` compares keys and finds them.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

use crate::overlap::{Started, resume};
use crate::support::{Ended, Folder};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, v text, at timestamptz NOT NULL DEFAULT now()); \
    INSERT INTO t SELECT i, 'v' || i, '2026-01-01'::timestamptz + i * interval '1 second' FROM generate_series(1, 500) i";
const BY_TIME: &str = ", sync_mode: incremental, cursor_field: at";
const COMPARE: &str = "deletes: { mode: compare }\n";
const MARK: &str = "deletes: { mode: compare, action: mark, column: deleted_at }\n";

struct Copied {
    folder: Folder,
    source: Database<'static>,
    target: Database<'static>,
}

impl Copied {
    fn new(table: &str) -> Self {
        let (source, target) = (shared().database(), shared().database());
        source.client().batch_execute(table).expect("a table");
        let folder = Folder::new();
        Self {
            folder,
            source,
            target,
        }
    }

    /// Runs a pipeline with these lines at the top and these keys of its stream.
    fn run(&self, top: &str, stream: &str) -> Ended {
        self.with(&["run"], "p", top, stream, None)
    }

    fn with(
        &self,
        verb: &[&str],
        pipeline: &str,
        top: &str,
        stream: &str,
        fault: Option<&str>,
    ) -> Ended {
        let mode = match stream.contains("write_mode") {
            true => "append",
            false => "upsert",
        };
        let text = format!(
            "version: 1\npipeline: {pipeline}\n{top}source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
             streams: [{{ name: public.t{stream} }}]\ndestination:\n  use: dest-postgres\n  \
             config: {{ url: \"{}\", schema: raw }}\n  write_mode: {mode}\n",
            self.source.url(),
            self.target.url()
        );
        let file = format!("{pipeline}.yaml");
        self.folder.write(&file, &text);
        let arguments = [verb, &[&file, "--output", "json"]].concat();
        let mut command = self.folder.command(&arguments);
        if let Some(fault) = fault {
            command.env("RAPIDBYTE_FAULTS", fault);
        }
        command.output().expect("the program starts").into()
    }

    fn change(&self, sql: &str) {
        self.source.client().batch_execute(sql).expect(sql);
    }

    fn target(&self) -> Client {
        self.target.client()
    }

    fn one(&self, sql: &str) -> String {
        self.target().query_one(sql, &[]).expect(sql).get(0)
    }

    /// Compares the rows of the source and of the target, by these columns.
    #[track_caller]
    fn assert_same(&self, columns: &str, about: &str) {
        let rows = |client: &mut Client, table: &str| -> String {
            let sql = format!(
                "SELECT count(*) || ' ' || coalesce(md5(string_agg(x::text, '|' ORDER BY x::text)), '') \
                 FROM (SELECT {columns} FROM {table}) x"
            );
            client.query_one(&sql, &[]).expect("rows").get(0)
        };
        let expected = rows(&mut self.source.client(), "public.t");
        assert_eq!(rows(&mut self.target(), "raw.t"), expected, "{about}");
    }
}

#[track_caller]
fn document(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[track_caller]
fn refused(ended: &Ended, exit: i32, code: &str) -> Value {
    let failed = document(ended, exit);
    assert_eq!(failed["error"]["code"], code, "{failed:#}");
    failed
}

const CHANGE: &str = "DELETE FROM t WHERE id % 20 = 0; UPDATE t SET v = 'new', at = '2026-02-01' WHERE id = 7; \
    INSERT INTO t VALUES (501, 'v501', '2026-02-01')";

#[test]
fn an_incremental_upsert_deletes_the_rows_that_the_source_deleted() {
    // A transaction of another test on the same server holds up a read by transaction ids.
    for stream in [BY_TIME, ""] {
        let copied = Copied::new(TABLE);
        let first = document(&copied.run(COMPARE, stream), 0);
        let none = json!({"rows": 0, "action": "delete"});
        assert_eq!(first["streams"][0]["deleted"], none, "{first:#}");
        copied.change(CHANGE);
        let plan = copied.with(&["plan"], "p", COMPARE, stream, None);
        let notes = document(&plan, 0)["streams"][0]["notes"].to_string();
        let says = "compares all keys of the table with those of the source and deletes the rows";
        assert!(notes.contains(says) && notes.contains("10 %"), "{notes}");
        let pages = format!("{COMPARE}report: {{ directory: pages }}\n");
        let report = document(&copied.run(&pages, stream), 0);
        let some = json!({"rows": 25, "action": "delete"});
        assert_eq!(report["streams"][0]["deleted"], some, "{report:#}");
        if stream == BY_TIME {
            // The rows of the cursor and behind it, and no others.
            assert_eq!(report["rows"], 2, "{report:#}");
        }
        copied.assert_same("id, v, at", stream);
        let page = copied.folder.files("pages").into_iter();
        let page = page.clone().rfind(|file| file.ends_with(".html"));
        let page = copied
            .folder
            .read(&format!("pages/{}", page.expect("a page")));
        assert!(page.contains("public.t: 25 rows deleted"), "{page}");
        // A run that finds nothing deletes nothing.
        let report = document(&copied.run(COMPARE, stream), 0);
        assert_eq!(report["streams"][0]["deleted"], none, "{report:#}");
        copied.assert_same("id, v, at", stream);
    }
}

#[test]
fn the_summary_of_a_run_names_the_deleted_rows() {
    let copied = Copied::new(TABLE);
    document(&copied.run(COMPARE, BY_TIME), 0);
    copied.change(CHANGE);
    let ended = copied.folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(said.contains("25 rows deleted"), "{said}");
}

#[test]
fn marked_rows_stay_and_lose_their_mark_when_their_key_comes_back() {
    let copied = Copied::new(TABLE);
    document(&copied.run(MARK, BY_TIME), 0);
    let column = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute \
        WHERE attrelid = 'raw.t'::regclass AND attname = 'deleted_at'";
    assert_eq!(copied.one(column), "timestamp with time zone");
    copied.change("DELETE FROM t WHERE id IN (1, 2, 3)");
    let report = document(&copied.run(MARK, BY_TIME), 0);
    let marked = json!({"rows": 3, "action": "mark"});
    assert_eq!(report["streams"][0]["deleted"], marked, "{report:#}");
    let marks = "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') || ' of ' || (SELECT count(*) FROM raw.t) \
        FROM raw.t WHERE deleted_at IS NOT NULL";
    assert_eq!(copied.one(marks), "1,2,3 of 500");
    // One comes back with its old cursor, so that the incremental read does not bring it, and one with a new one.
    let times = "SELECT string_agg(deleted_at::text, ',') FROM raw.t WHERE id = 3";
    let time = copied.one(times);
    copied.change(
        "INSERT INTO t VALUES (1, 'v1', '2026-01-01 00:00:01+00'), (2, 'again', '2026-03-01'); DELETE FROM t WHERE id = 4",
    );
    let report = document(&copied.run(MARK, BY_TIME), 0);
    let marked = json!({"rows": 1, "action": "mark"});
    assert_eq!(report["streams"][0]["deleted"], marked, "{report:#}");
    assert_eq!(copied.one(marks), "3,4 of 500");
    assert_eq!(copied.one(times), time, "a mark stays as it is");
    assert_eq!(copied.one("SELECT v FROM raw.t WHERE id = 2"), "again");
}

#[test]
fn a_mass_delete_is_refused_and_leaves_the_target_as_it_was() {
    for (top, action) in [(COMPARE, "delete"), (MARK, "mark")] {
        let copied = Copied::new(TABLE);
        document(&copied.run(top, BY_TIME), 0);
        let before = copied.one("SELECT md5(string_agg(x::text, '|' ORDER BY id)) FROM raw.t x");
        copied.change(
            "DELETE FROM t WHERE id <= 52; INSERT INTO t VALUES (900, 'new', '2026-05-01')",
        );
        let failed = refused(&copied.run(top, BY_TIME), 4, "mass_delete");
        let text = failed["error"]["message"].to_string();
        assert!(text.contains("52 of the 500 rows"), "{text}");
        assert!(text.contains(&format!("would {action} them")), "{text}");
        copied.change("TRUNCATE t");
        let failed = refused(&copied.run(top, BY_TIME), 4, "mass_delete");
        let text = failed["error"]["message"].to_string();
        assert!(text.contains(&format!("{action} all 500 rows")), "{text}");
        // As many other rows as there may be do not make the share smaller.
        copied.change("INSERT INTO t SELECT 10000 + i, 'other' FROM generate_series(1, 9000) i");
        let failed = refused(&copied.run(top, ""), 4, "mass_delete");
        let text = failed["error"]["message"].to_string();
        assert!(text.contains("500 of the 500 rows"), "{text}");
        copied.change("TRUNCATE t");
        let after = copied.one("SELECT md5(string_agg(x::text, '|' ORDER BY id)) FROM raw.t x");
        assert_eq!(after, before);
        let all = top.replace(" }", ", max_share: 1 }");
        let report = document(&copied.run(&all, BY_TIME), 0);
        assert_eq!(report["streams"][0]["deleted"]["rows"], 500, "{report:#}");
        // The run knows that it emptied the table itself, so the stream resumes.
        copied.change("INSERT INTO t VALUES (1000, 'later', '2026-06-01')");
        document(&copied.run(&all, BY_TIME), 0);
        assert_eq!(copied.one("SELECT v FROM raw.t WHERE id = 1000"), "later");
    }
}

/// A row without a key gets into no target: its reject stands for it, and its key is not compared.
#[test]
fn rows_with_null_in_their_key_are_rejects_and_the_others_are_compared() {
    let copied = Copied::new(
        "CREATE TABLE t (id int, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 500) i",
    );
    let keyed = ", primary_key: [id]";
    document(&copied.run(COMPARE, keyed), 0);
    copied.change("DELETE FROM t WHERE id = 7; UPDATE t SET id = NULL WHERE id IN (1, 2, 300)");
    refused(&copied.run(COMPARE, keyed), 4, "null_key");
    let top = format!("{COMPARE}rejects: {{ max_rows: 10, to: raw.bad }}\n");
    let report = document(&copied.run(&top, keyed), 0);
    let stream = &report["streams"][0];
    assert_eq!(stream["rejected"], 3, "{report:#}");
    assert_eq!(stream["deleted"]["rows"], 4, "{report:#}");
    let left = copied.one("SELECT string_agg(i::text, ' ') FROM generate_series(1, 500) i WHERE i NOT IN (SELECT id FROM raw.t)");
    assert_eq!(left, "1 2 7 300");
}

#[test]
fn a_run_that_dies_or_fails_around_the_commit_deletes_exactly_once() {
    for point in [
        "engine.read_keys",
        "engine.open_keys",
        "engine.commit",
        "engine.committed",
        "dest-postgres.keys_staged",
        "dest-postgres.compared",
        "dest-postgres.checkpointing",
        "dest-postgres.commit_sent",
        "dest-postgres.committed",
    ] {
        for (how, deletes) in [("kill", COMPARE), ("error", MARK)] {
            let copied = Copied::new(TABLE);
            let top = format!("{deletes}checkpoint: {{ every_rows: 100 }}\n");
            document(&copied.run(&top, BY_TIME), 0);
            copied.change(CHANGE);
            let fault = format!("{point}={how}");
            let once = format!("{top}retry: {{ max_attempts: 1 }}\n");
            let ended = copied.with(&["run"], "p", &once, BY_TIME, Some(&fault));
            // A commit whose answer is lost counts as done.
            if how == "kill" {
                assert_ne!(ended.code, Some(0), "{fault}: {ended:?}");
            }
            document(&copied.run(&top, BY_TIME), 0);
            match how {
                "kill" => copied.assert_same("id, v, at", &fault),
                _ => {
                    let living = "SELECT count(*) FILTER (WHERE deleted_at IS NULL) || ' ' || count(*) FROM raw.t";
                    assert_eq!(copied.one(living), "476 501", "{fault}");
                }
            }
        }
    }
}

#[test]
fn a_retried_stream_compares_keys_of_the_snapshot_of_its_rows() {
    for stream in [BY_TIME, ""] {
        let copied = Copied::new(TABLE);
        document(&copied.run(COMPARE, stream), 0);
        copied.change(CHANGE);
        for fault in ["engine.read_keys=error@1", "dest-postgres.compared=error@1"] {
            let ended = copied.with(&["run"], "p", COMPARE, stream, Some(fault));
            let report = document(&ended, 0);
            assert_eq!(report["streams"][0]["attempts"], 2, "{report:#}");
            copied.assert_same("id, v, at", fault);
            copied.change("DELETE FROM t WHERE id IN (31, 32)");
        }
    }
}

#[test]
fn the_keys_are_those_of_the_snapshot_of_the_rows() {
    for stream in [BY_TIME, ""] {
        let copied = Copied::new(TABLE);
        document(&copied.run(COMPARE, stream), 0);
        copied.change("DELETE FROM t WHERE id = 1");
        let started = Started::stopped_at(&copied.folder, "engine.read_keys");
        // After the snapshot. The key of 3 changes: the row of the new key comes with the next run.
        copied.change(
            "DELETE FROM t WHERE id = 2; UPDATE t SET id = 600, at = '2026-04-01' WHERE id = 3",
        );
        let (code, report) = resume(started);
        assert_eq!(code, Some(0), "{report:#}");
        assert_eq!(report["streams"][0]["deleted"]["rows"], 1, "{report:#}");
        let few =
            "SELECT string_agg(id::text, ',' ORDER BY id) FROM raw.t WHERE id < 5 OR id > 500";
        assert_eq!(copied.one(few), "2,3,4", "{stream}");
        document(&copied.run(COMPARE, stream), 0);
        assert_eq!(copied.one(few), "4,600", "{stream}");
    }
}

#[test]
fn an_older_run_deletes_no_row_of_a_newer_one() {
    for point in ["engine.read_keys", "dest-postgres.compared"] {
        let copied = Copied::new(TABLE);
        document(&copied.run(COMPARE, BY_TIME), 0);
        copied.change("DELETE FROM t WHERE id = 9");
        let started = Started::stopped_at(&copied.folder, point);
        copied
            .change("INSERT INTO t VALUES (700, 'new', '2026-05-01'); DELETE FROM t WHERE id = 1");
        let newer = format!("{COMPARE}when_running: replace\n");
        document(&copied.run(&newer, BY_TIME), 0);
        copied.assert_same("id, v, at", point);
        let (code, report) = resume(started);
        assert_ne!(code, Some(0), "{report:#}");
        assert_eq!(report["error"]["code"], "run_superseded", "{report:#}");
        copied.assert_same("id, v, at", point);
    }
}

#[test]
fn keys_of_many_types_and_collations_under_new_names_are_compared_by_the_server() {
    let cases = [
        // A composite key, in another order than the columns, and one with a new name.
        (
            "CREATE TABLE t (b text, a int, v text, PRIMARY KEY (a, b)); \
             INSERT INTO t SELECT 'b' || i % 7, i, 'v' FROM generate_series(1, 100) i",
            ", rename: { b: bee }",
            "",
        ),
        (
            "CREATE TABLE t (k numeric PRIMARY KEY); INSERT INTO t SELECT i + 0.10 FROM generate_series(1, 100) i; \
             INSERT INTO t VALUES ('NaN')",
            "",
            "",
        ),
        (
            "CREATE TABLE t (k uuid PRIMARY KEY); INSERT INTO t SELECT gen_random_uuid() FROM generate_series(1, 100)",
            "",
            "",
        ),
        (
            "CREATE TABLE t (k inet PRIMARY KEY); INSERT INTO t SELECT '10.0.0.0'::inet + i FROM generate_series(1, 100) i",
            "",
            "",
        ),
        (
            "CREATE TABLE t (k text COLLATE \"C\" PRIMARY KEY); \
             INSERT INTO t SELECT chr(97 + i % 26) || i FROM generate_series(1, 100) i",
            "",
            "",
        ),
        // Texts that the target holds as numbers.
        (
            "CREATE TABLE t (k text PRIMARY KEY); INSERT INTO t SELECT i::text FROM generate_series(1, 100) i",
            "",
            "CREATE SCHEMA raw; CREATE TABLE raw.t (k numeric PRIMARY KEY)",
        ),
    ];
    for (table, stream, target) in cases {
        let copied = Copied::new(table);
        copied.target().batch_execute(target).expect(target);
        document(&copied.run(COMPARE, stream), 0);
        copied.change("DELETE FROM t WHERE ctid IN (SELECT ctid FROM t ORDER BY random() LIMIT 9)");
        let report = document(&copied.run(COMPARE, stream), 0);
        assert_eq!(
            report["streams"][0]["deleted"]["rows"], 9,
            "{table}: {report:#}"
        );
        let rows = "SELECT count(*)::text FROM raw.t";
        let left = copied
            .source
            .client()
            .query_one("SELECT count(*)::text FROM t", &[]);
        assert_eq!(
            copied.one(rows),
            left.expect("a count").get::<_, String>(0),
            "{table}"
        );
    }
}

#[test]
fn a_target_that_another_pipeline_writes_is_refused() {
    let copied = Copied::new(TABLE);
    document(&copied.with(&["run"], "other", "", BY_TIME, None), 0);
    for verb in ["plan", "run"] {
        let ended = copied.with(&[verb], "p", COMPARE, BY_TIME, None);
        let failed = refused(&ended, 2, "target_has_other_writer");
        let text = failed["error"]["message"].to_string();
        assert!(text.contains("public.t of the pipeline other"), "{text}");
    }
    // The way out that the hint gives.
    let failed = document(&copied.run(COMPARE, BY_TIME), 2);
    let hint = failed["error"]["hint"].as_str().expect("a hint").to_owned();
    let statement = hint
        .split("run on the target: ")
        .nth(1)
        .expect("a statement");
    copied.target().batch_execute(statement).expect(statement);
    document(&copied.run(COMPARE, BY_TIME), 0);
}

#[test]
fn deletes_is_refused_where_it_could_not_be_exact() {
    let copied = Copied::new(TABLE);
    let own = |keys: &str| format!("{BY_TIME}, deletes: {{ mode: compare }}{keys}");
    for (verb, top, stream, code) in [
        (
            &["run"][..],
            COMPARE,
            ", write_mode: append".to_owned(),
            "deletes_need_upsert",
        ),
        (
            &["run"],
            "",
            own(", write_mode: append"),
            "deletes_need_upsert",
        ),
        (
            &["run"],
            COMPARE,
            format!("{BY_TIME}, where: id > 3"),
            "deletes_need_all_rows",
        ),
        (
            &["plan"],
            COMPARE,
            format!("{BY_TIME}, where: id > 3"),
            "deletes_need_all_rows",
        ),
        (
            &["run"],
            "",
            own(", transforms: [{ filter: 'id > 3' }]"),
            "deletes_need_all_rows",
        ),
        (
            &["run", "--limit", "5"],
            COMPARE,
            String::new(),
            "deletes_need_all_rows",
        ),
        (
            &["run"],
            "deletes: { mode: compare, action: mark, column: v }\n",
            BY_TIME.to_owned(),
            "mark_column_moved",
        ),
        (
            &["run"],
            "deletes: { action: mark }\n",
            String::new(),
            "missing_key",
        ),
        (
            &["run"],
            "deletes: { mode: compare, action: mark }\n",
            String::new(),
            "missing_key",
        ),
        (
            &["run"],
            "deletes: { mode: compare, column: x }\n",
            String::new(),
            "invalid_value",
        ),
        (
            &["run"],
            "deletes: { mode: compare, max_share: 10% }\n",
            String::new(),
            "invalid_value",
        ),
    ] {
        let ended = copied.with(verb, "p", top, &stream, None);
        let failed = refused(&ended, 2, code);
        assert!(failed["error"]["hint"].is_string(), "{failed:#}");
        assert!(failed["error"]["location"].is_string(), "{failed:#}");
    }
    let exists: bool = copied
        .target()
        .query_one("SELECT to_regclass('raw.t') IS NOT NULL", &[])
        .expect("a row")
        .get(0);
    assert!(!exists, "nothing moved");
    // A stream that does not want what the top level says.
    let none = "deletes: { mode: none, action: mark, column: gone_at, max_share: 0 }";
    let stream = format!("{BY_TIME}, where: id > 3, {none}");
    let report = document(&copied.run(COMPARE, &stream), 0);
    assert!(report["streams"][0]["deleted"].is_null(), "{report:#}");
}

#[test]
fn deletes_is_refused_by_connectors_that_cannot_compare() {
    let copied = Copied::new(TABLE);
    let (source, target) = (copied.source.url(), copied.target.url());
    let folder = &copied.folder;
    folder.write("t.csv", "id,v\n1,a\n");
    let csv = format!(
        "version: 1\npipeline: p\ndeletes: {{ mode: compare }}\n\
         source: {{ use: source-file, config: {{ path: t.csv }}, streams: [\"*\"] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{target}\" }}, write_mode: upsert, primary_key: [id] }}\n"
    );
    folder.write("p.yaml", &csv);
    let failed = refused(
        &folder.rapidbyte(&["run", "p.yaml", "--output", "json"]),
        2,
        "deletes_unsupported",
    );
    assert!(
        failed["error"]["message"]
            .to_string()
            .contains("source-file cannot"),
        "{failed:#}"
    );
    let files = format!(
        "version: 1\npipeline: p\ndeletes: {{ mode: compare }}\n\
         source: {{ use: source-postgres, config: {{ url: \"{source}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-file, config: {{ path: out.csv }}, write_mode: replace }}\n"
    );
    folder.write("p.yaml", &files);
    refused(
        &folder.rapidbyte(&["run", "p.yaml", "--output", "json"]),
        2,
        "deletes_need_upsert",
    );
}

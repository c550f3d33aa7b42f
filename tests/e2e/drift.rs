//! A source whose columns change between runs, and a target in PostgreSQL that follows.

use std::process::Stdio;

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

use crate::support::{Ended, Folder};

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, name varchar(5), old text); \
    INSERT INTO t VALUES (1, 'a', 'x')";
/// A column more, a longer text, and a column less.
const DRIFT: &str = "ALTER TABLE t ADD COLUMN note text, ALTER COLUMN name TYPE varchar(20), DROP COLUMN old; \
    INSERT INTO t VALUES (2, 'longer than five', 'new')";
const ALTER: &str = "ALTER TABLE raw.t ALTER COLUMN name TYPE character varying(20), ADD COLUMN IF NOT EXISTS note text";

struct Copied {
    folder: Folder,
    source: Database<'static>,
    target: Database<'static>,
}

impl Copied {
    fn new() -> Self {
        let (source, target) = (shared().database(), shared().database());
        source.client().batch_execute(TABLES).expect("a table");
        Self {
            folder: Folder::new(),
            source,
            target,
        }
    }

    /// Runs the pipeline with these lines at the top and these keys of its stream.
    fn run(&self, top: &str, stream: &str, mode: &str) -> Ended {
        self.types("run", top, stream, mode, None)
    }

    fn types(&self, verb: &str, top: &str, stream: &str, mode: &str, fault: Option<&str>) -> Ended {
        let text = format!(
            "version: 1\npipeline: p\n{top}source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
             streams: [{{ name: public.t{stream} }}]\ndestination:\n  use: dest-postgres\n  \
             config: {{ url: \"{}\", schema: raw }}\n  write_mode: {mode}\n",
            self.source.url(),
            self.target.url()
        );
        self.folder.write("p.yaml", &text);
        let mut command = self.folder.command(&[verb, "p.yaml", "--output", "json"]);
        if let Some(fault) = fault {
            command.env("RAPIDBYTE_FAULTS", fault);
        }
        command.output().expect("the program starts").into()
    }

    fn target(&self) -> Client {
        self.target.client()
    }

    fn rows(&self) -> String {
        let sql = "SELECT string_agg(x::text, ' ' ORDER BY id) FROM raw.t x";
        self.target().query_one(sql, &[]).expect("rows").get(0)
    }
}

#[track_caller]
fn document(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[test]
fn a_target_follows_its_source_and_says_what_changed() {
    for (mode, expected) in [
        ("append", "(1,a,x,) (1,a,,) (2,\"longer than five\",,new)"),
        ("replace", "(1,a,,) (2,\"longer than five\",,new)"),
        ("upsert", "(1,a,x,) (2,\"longer than five\",,new)"),
    ] {
        let copied = Copied::new();
        document(&copied.run("", "", mode), 0);
        if mode == "append" {
            let key = "ALTER TABLE raw.t DROP CONSTRAINT t_pkey";
            copied.target().batch_execute(key).expect("no key");
        }
        copied
            .source
            .client()
            .batch_execute(DRIFT)
            .expect("a change");
        let plan = document(&copied.types("plan", "", "", mode, None), 0);
        let statements = plan["streams"][0]["statements"]
            .as_array()
            .expect("statements");
        assert!(statements.contains(&json!(ALTER)), "{plan:#}");
        let pages = "report: { directory: pages }\n";
        let report = document(&copied.run(pages, "", mode), 0);
        let mut page = copied.folder.files("pages").into_iter();
        let page = page.rfind(|file| file.ends_with(".html"));
        let page = copied
            .folder
            .read(&format!("pages/{}", page.expect("a page")));
        assert!(page.contains("<h2>Changes of targets</h2>"), "{page}");
        assert!(
            page.contains(&format!("<li>public.t: {ALTER}</li>")),
            "{page}"
        );
        assert_eq!(
            report["streams"][0]["schema_changes"],
            json!([ALTER]),
            "{report:#}"
        );
        assert_eq!(copied.rows(), expected, "{mode}");
        let sql = "SELECT count(*)::text || min(statement) FROM _rapidbyte.schema_change WHERE run_id LIKE $1 || '%'";
        let run = report["run_id"].as_str().expect("an id");
        let listed: String = copied
            .target()
            .query_one(sql, &[&run])
            .expect("a row")
            .get(0);
        assert_eq!(listed, format!("1{ALTER}"));
        // The target as a source has one table.
        let found = copied.folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(found.code, Some(0), "{found:?}");
        assert!(!found.stdout.contains("ALTER TABLE"), "{}", found.stdout);
    }
}

#[test]
fn a_stream_says_for_itself_and_frozen_changes_nothing() {
    let copied = Copied::new();
    document(&copied.run("", "", "replace"), 0);
    copied
        .source
        .client()
        .batch_execute(DRIFT)
        .expect("a change");
    let failed = document(&copied.run("schema_changes: frozen\n", "", "replace"), 4);
    assert_eq!(failed["error"]["code"], "column_dropped", "{failed:#}");
    // The pipeline's settings hold for every key that the stream leaves out.
    let own = ", schema_changes: { new_column: ignore }";
    let failed = document(&copied.run("schema_changes: frozen\n", own, "replace"), 4);
    assert_eq!(failed["error"]["code"], "column_dropped", "{failed:#}");
    let own = ", schema_changes: { new_column: ignore, dropped_column: keep, type_change: widen }";
    let report = document(&copied.run("schema_changes: frozen\n", own, "replace"), 0);
    let changed = &report["streams"][0]["schema_changes"];
    let widened = "ALTER TABLE raw.t ALTER COLUMN name TYPE character varying(20)";
    assert_eq!(*changed, json!([widened]));
    assert_eq!(copied.rows(), "(1,a,) (2,\"longer than five\",)");
    for (top, code, says) in [
        ("schema_changes: frosen\n", "invalid_value", "frozen"),
        (
            "schema_changes: { new_columns: add }\n",
            "unknown_key",
            "new_column",
        ),
        (
            "schema_changes: { new_column: keep }\n",
            "invalid_value",
            "add, ignore, fail",
        ),
        (
            "schema_changes: []\n",
            "invalid_type",
            "schema_changes: frozen",
        ),
    ] {
        let error = &document(&copied.run(top, "", "replace"), 2)["error"];
        assert_eq!(error["code"], code, "{error:#}");
        assert!(error.to_string().contains(says), "{says}: {error:#}");
    }
}

#[test]
fn columns_that_one_run_leaves_out_stay_in_the_target() {
    let copied = Copied::new();
    let make = "ALTER TABLE t ALTER COLUMN name SET NOT NULL";
    copied
        .source
        .client()
        .batch_execute(make)
        .expect("a change");
    let drop = "schema_changes: { dropped_column: drop }\n";
    document(&copied.run(drop, "", "upsert"), 0);
    let columns = "SELECT string_agg(attname || attnotnull, ' ' ORDER BY attnum) FROM pg_attribute \
         WHERE attrelid = 'raw.t'::regclass AND attnum > 0";
    let columns = || -> String {
        let row = copied.target().query_one(columns, &[]);
        row.expect("columns").get(0)
    };
    let before = columns();
    for (column, code) in [("name", 0), ("old", 4)] {
        let column = format!("public.t.{column}");
        let select = ["--select", "public.t.id", "--select", &column];
        let arguments = [&["run", "p.yaml", "--output", "json"], &select[..]].concat();
        let ended = document(&copied.folder.rapidbyte(&arguments), code);
        if code == 4 {
            assert_eq!(ended["error"]["code"], "unfilled_column", "{ended:#}");
        }
        assert_eq!(columns(), before, "{column}");
    }
    // A run drops the columns that the source dropped, and keeps the columns that the operator leaves out.
    document(&copied.run(drop, ", columns: [id, name]", "upsert"), 0);
    assert_eq!(columns(), before);
    let ended = document(&copied.run(drop, ", columns: [id, old]", "upsert"), 4);
    assert_eq!(ended["error"]["code"], "unfilled_column", "{ended:#}");
    assert_eq!(columns(), before);
    let gone = "ALTER TABLE t DROP COLUMN old";
    copied
        .source
        .client()
        .batch_execute(gone)
        .expect("a change");
    document(&copied.run(drop, "", "upsert"), 0);
    assert!(!columns().contains("old"), "{}", columns());
}

#[test]
fn a_renamed_column_keeps_its_values_and_its_name_in_the_pipeline_counts() {
    let copied = Copied::new();
    document(&copied.run("", "", "upsert"), 0);
    let source = "ALTER TABLE t RENAME name TO title; INSERT INTO t VALUES (2, 'b', 'y')";
    copied
        .source
        .client()
        .batch_execute(source)
        .expect("a change");
    let report = document(&copied.run("", "", "upsert"), 0);
    let rename = "ALTER TABLE raw.t RENAME COLUMN name TO title";
    assert_eq!(report["streams"][0]["schema_changes"], json!([rename]));
    assert_eq!(copied.rows(), "(1,a,x) (2,b,y)");
    // An operator who gives it another name means the same column, too.
    let renamed = ", rename: { title: heading }";
    let report = document(&copied.run("", renamed, "upsert"), 0);
    let rename = "ALTER TABLE raw.t RENAME COLUMN title TO heading";
    assert_eq!(report["streams"][0]["schema_changes"], json!([rename]));
    // A transform that makes new values of it makes another column.
    let lower = ", rename: { title: heading }, transforms: [{ set: { small: lower(heading) } }, { drop: [heading] }]";
    let report = document(&copied.run("", lower, "upsert"), 0);
    let add = "ALTER TABLE raw.t ADD COLUMN IF NOT EXISTS small text";
    assert_eq!(report["streams"][0]["schema_changes"], json!([add]));
    assert_eq!(copied.rows(), "(1,a,x,a) (2,b,y,b)");
}

/// Two streams fill one table. The source of one renames its column: its older rows keep their values under the old name,
/// so the other stream neither renames nor drops that column.
#[test]
fn a_column_with_values_of_another_stream_is_neither_renamed_nor_dropped() {
    for change in ["DROP COLUMN v", "RENAME COLUMN v TO y"] {
        let copied = Copied::new();
        let sql = |sql: &str| copied.source.client().batch_execute(sql).expect(sql);
        let run = |stream: &str| {
            let url = (copied.source.url(), copied.target.url());
            let text = format!(
                "version: 1\npipeline: {stream}\nschema_changes: {{ dropped_column: drop }}\nsource:\n  \
                 use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [{{ name: public.{stream}, \
                 target: {{ name: t }} }}]\ndestination:\n  use: dest-postgres\n  config: {{ url: \"{}\", \
                 schema: raw }}\n  write_mode: append\n",
                url.0, url.1
            );
            copied.folder.write("p.yaml", &text);
            let ended = copied.folder.rapidbyte(&["run", "p.yaml"]);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        };
        sql(
            "CREATE TABLE a (id int, v text); INSERT INTO a VALUES (1, 'of a'); \
             CREATE TABLE b (id int, v text); INSERT INTO b VALUES (2, 'of b')",
        );
        run("a");
        run("b");
        sql("ALTER TABLE a RENAME COLUMN v TO z; DELETE FROM a; DELETE FROM b");
        run("a");
        run("a");
        sql(&format!("ALTER TABLE b {change}"));
        run("b");
        let count = "SELECT count(*) FROM raw.t WHERE v IN ('of a', 'of b')";
        let count: i64 = copied.target().query_one(count, &[]).expect("v").get(0);
        assert_eq!(count, 2, "{change}");
    }
}

#[test]
fn a_change_that_stays_after_a_failed_load_is_reported() {
    let copied = Copied::new();
    document(&copied.run("", "", "append"), 0);
    let check = "ALTER TABLE raw.t DROP CONSTRAINT t_pkey; ALTER TABLE raw.t ADD CHECK (id < 2)";
    copied.target().batch_execute(check).expect("a check");
    copied
        .source
        .client()
        .batch_execute(DRIFT)
        .expect("a change");
    let pages = "report: { directory: pages }\n";
    let ended = copied.run(pages, "", "append");
    let failed = document(&ended, 4);
    assert_eq!(failed["error"]["code"], "pg_23514", "{failed:#}");
    let says = format!("the target was changed before the stream failed: {ALTER}");
    let warning = json!({ "stream": "public.t", "message": says });
    let warnings = failed["warnings"].as_array().expect("warnings");
    assert!(warnings.contains(&warning), "{failed:#}");
    assert!(ended.stderr.contains(&says), "{}", ended.stderr);
    let page = &copied.folder.files("pages")[0];
    let page = copied.folder.read(&format!("pages/{page}"));
    assert!(page.contains(&says), "{page}");
}

#[test]
fn a_file_with_one_more_column_goes_into_its_table() {
    let target = shared().database();
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: p\nsource: {{ use: source-file, config: {{ path: rows.csv }}, streams: [rows] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }} }}\n",
        target.url()
    );
    folder.write("rows.csv", "id,name\n1,a\n");
    folder.report(&pipeline);
    folder.write("rows.csv", "id,email,name\n2,b@c,b\n");
    folder.report(&pipeline);
    folder.write("rows.csv", "name,id\nc,3\n");
    folder.report(&pipeline);
    let sql = "SELECT string_agg(x::text, ' ' ORDER BY id) FROM raw.rows x";
    let rows: String = target.client().query_one(sql, &[]).expect("rows").get(0);
    assert_eq!(rows, "(1,a,) (2,b,b@c) (3,c,)");
}

#[test]
fn a_run_that_dies_behind_the_change_is_finished_by_the_next() {
    for mode in ["append", "replace", "upsert"] {
        for how in ["kill", "error"] {
            let copied = Copied::new();
            copied
                .source
                .client()
                .batch_execute("ALTER TABLE t DROP CONSTRAINT t_pkey")
                .expect("no key");
            let key = if mode == "upsert" {
                ", primary_key: [id]"
            } else {
                ""
            };
            document(&copied.run("", key, mode), 0);
            copied
                .source
                .client()
                .batch_execute(DRIFT)
                .expect("a change");
            let fault = format!("dest-postgres.prelude_committed={how}");
            let ended = copied.types(
                "run",
                "retry: { max_attempts: 1 }\n",
                key,
                mode,
                Some(&fault),
            );
            assert_ne!(ended.code, Some(0), "{ended:?}");
            document(&copied.run("", key, mode), 0);
            let expected = match mode {
                "append" => "(1,a,x,) (1,a,,) (2,\"longer than five\",,new)",
                "replace" => "(1,a,,) (2,\"longer than five\",,new)",
                _ => "(1,a,x,) (2,\"longer than five\",,new)",
            };
            assert_eq!(copied.rows(), expected, "{mode} {how}");
            let sql = "SELECT count(*) FROM _rapidbyte.schema_change";
            let listed: i64 = copied.target().query_one(sql, &[]).expect("a count").get(0);
            assert_eq!(listed, 1, "{mode} {how}");
        }
    }
}

const BACKFILL: &str = "schema_changes: { backfill: true }\n";
/// By id: a row that has a new value in another column alone would not come again.
const BY_ID: &str = ", sync_mode: incremental, cursor_field: id";

/// Adds a column with values and a 901st row to a table; a run has copied the first 900 rows.
fn with_new_column() -> Copied {
    let copied = Copied::new();
    let mut source = copied.source.client();
    let more = "INSERT INTO t SELECT i, 'n' || i FROM generate_series(2, 900) i";
    source.batch_execute(more).expect("rows");
    document(&copied.run(BACKFILL, BY_ID, "upsert"), 0);
    let add = "ALTER TABLE t ADD COLUMN note text; UPDATE t SET note = 'of ' || id; \
        INSERT INTO t VALUES (901, 'new', 'o', 'of 901')";
    source.batch_execute(add).expect("a change");
    copied
}

/// The rows, and how many of them have the value of the new column.
fn filled(copied: &Copied) -> String {
    let sql = "SELECT count(*) || ' ' || count(*) FILTER (WHERE note = 'of ' || id) FROM raw.t";
    copied.target().query_one(sql, &[]).expect("rows").get(0)
}

#[test]
fn backfill_reads_the_stream_again_and_fills_a_new_column_in_old_rows() {
    let copied = with_new_column();
    let notes = |top| {
        let plan = document(&copied.types("plan", top, BY_ID, "upsert", None), 0);
        plan["streams"][0]["notes"].to_string()
    };
    let fills = notes(BACKFILL);
    assert!(
        fills.contains("from its first row") && fills.contains("new columns: note"),
        "{fills}"
    );
    assert!(notes("").contains("are not read again for the new columns: note"));
    // A second attempt resumes behind the commits of the first one.
    let fault = Some("engine.committed=error@1");
    document(&copied.types("run", BACKFILL, BY_ID, "upsert", fault), 0);
    assert_eq!(filled(&copied), "901 901");
    // A run that adds nothing resumes: an upsert reads the row of its cursor again.
    let report = document(&copied.run(BACKFILL, BY_ID, "upsert"), 0);
    assert_eq!(report["rows"], 1, "{report:#}");
}

#[test]
fn backfill_replaces_the_values_of_a_dropped_column_whose_name_another_one_took() {
    let copied = with_new_column();
    document(&copied.run(BACKFILL, BY_ID, "upsert"), 0);
    let again = "ALTER TABLE t DROP note; ALTER TABLE t ADD note text; UPDATE t SET note = 'of ' || id; \
        UPDATE t SET note = 'of 7' WHERE id = 7";
    copied
        .source
        .client()
        .batch_execute(again)
        .expect("a change");
    let spoil = "UPDATE raw.t SET note = 'of another column'";
    copied.target().batch_execute(spoil).expect("a change");
    document(&copied.run(BACKFILL, BY_ID, "upsert"), 0);
    assert_eq!(filled(&copied), "901 901");
}

#[test]
fn backfill_survives_a_run_that_dies_before_and_after_it_adds_the_column() {
    for point in [
        "engine.begins_anew",
        "dest-postgres.prelude_committed",
        "engine.commit",
    ] {
        for how in ["kill", "error"] {
            let copied = with_new_column();
            let fault = format!("{point}={how}");
            let text = format!("{BACKFILL}retry: {{ max_attempts: 1 }}\n");
            let ended = copied.types("run", &text, BY_ID, "upsert", Some(&fault));
            assert_ne!(ended.code, Some(0), "{fault}: {ended:?}");
            document(&copied.run(BACKFILL, BY_ID, "upsert"), 0);
            assert_eq!(filled(&copied), "901 901", "{fault}");
        }
    }
}

#[test]
fn backfill_is_refused_where_rows_cannot_be_updated() {
    let copied = Copied::new();
    for (top, own) in [(BACKFILL, ""), ("", ", schema_changes: { backfill: true }")] {
        let failed = document(&copied.run(top, own, "append"), 2);
        assert_eq!(
            failed["error"]["code"], "backfill_needs_upsert",
            "{failed:#}"
        );
    }
    let failed = document(
        &copied.run("schema_changes: { backfill: yes }\n", "", "upsert"),
        2,
    );
    assert_eq!(
        failed["error"]["hint"], "use one of: true, false",
        "{failed:#}"
    );
}

/// Columns with defaults: each has the value of its default in row 1, and another one in row 2.
const WITH_DEFAULTS: &str = "CREATE TYPE mood AS ENUM ('sad', 'it''s, fine'); \
    ALTER TABLE t ADD COLUMN i int NOT NULL DEFAULT 7, ADD COLUMN s text DEFAULT E'a''b, {\"c\\\\d\"}', \
        ADD COLUMN e text DEFAULT '', ADD COLUMN n numeric DEFAULT 1.50, ADD COLUMN p numeric(6,3) DEFAULT 0.125, \
        ADD COLUMN f float8 DEFAULT 0.1, ADD COLUMN b bool DEFAULT true, ADD COLUMN d date DEFAULT '2026-02-03', \
        ADD COLUMN z timestamptz DEFAULT now(), ADD COLUMN v interval DEFAULT '1 mon 2 days -03:04:05.6', \
        ADD COLUMN a int[] DEFAULT '{1,NULL,3}', ADD COLUMN j jsonb DEFAULT '{\"a\": [1, \"x\"]}', \
        ADD COLUMN y bytea DEFAULT '\\x00ff', ADD COLUMN u uuid DEFAULT '12345678-1234-1234-1234-123456789abc', \
        ADD COLUMN net inet DEFAULT '10.0.0.0/8', ADD COLUMN m mood DEFAULT 'it''s, fine', \
        ADD COLUMN ms mood[] DEFAULT '{sad,\"it''s, fine\"}', ADD COLUMN c char(5) DEFAULT 'ab', \
        ADD COLUMN \"Odd \"\"name\" varchar(3) DEFAULT 'xyz', ADD COLUMN r int4range DEFAULT '[1,5)', \
        ADD COLUMN bits bit(3) DEFAULT B'101', ADD COLUMN inf float8 DEFAULT 'NaN'; \
    INSERT INTO t (id, name, old, i, s) VALUES (2, 'b', 'y', 8, 'other')";

#[test]
fn older_rows_get_the_default_of_a_column_that_the_source_added() {
    for (mode, stream) in [("append", BY_ID), ("upsert", BY_ID), ("upsert", "")] {
        let copied = Copied::new();
        document(&copied.run("", stream, mode), 0);
        let mut source = copied.source.client();
        source.batch_execute(WITH_DEFAULTS).expect("a change");
        let plan = document(&copied.types("plan", "", stream, mode, None), 0);
        let plan = plan["streams"][0].to_string();
        assert!(plan.contains("i integer DEFAULT '7'"), "{plan}");
        assert!(plan.contains("older rows get '7' in i"), "{plan}");
        let report = document(&copied.run("", stream, mode), 0);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("older rows get '7' in i"), "{warnings}");
        let sql = |table| {
            format!(
                "SELECT string_agg(x::text, ' ' ORDER BY id) FROM (SELECT DISTINCT * FROM {table}) x"
            )
        };
        let of_source: String = source.query_one(&sql("t"), &[]).expect("rows").get(0);
        let mut target = copied.target();
        let of_target: String = target.query_one(&sql("raw.t"), &[]).expect("rows").get(0);
        assert_eq!(of_target, of_source, "{mode} {stream}");
        let sql = "SELECT count(*) FROM pg_catalog.pg_attrdef WHERE adrelid = 'raw.t'::regclass";
        let defaults: i64 = target.query_one(sql, &[]).expect("a count").get(0);
        assert_eq!(defaults, 0);
    }
}

#[test]
fn older_rows_have_null_where_nothing_proves_their_default() {
    let added =
        "ALTER TABLE t ADD COLUMN k int DEFAULT 7; INSERT INTO t (id, name, k) VALUES (2, 'b', 8)";
    let hides = ", transforms: [{ set: { k: k + 1 } }]";
    const IGNORES: &str = "schema_changes: { new_column: ignore }\n";
    type Between = fn(&Copied);
    let nothing: Between = |_| ();
    let cases: [(&str, &str, &str, Between); 9] = [
        ("proved", "", added, nothing),
        ("behind a transform", hides, added, nothing),
        // Row 2 was read without the column, and has another value in it.
        ("read before", "", added, |copied| {
            document(&copied.run(IGNORES, BY_ID, "append"), 0);
        }),
        (
            "no constant",
            "",
            "ALTER TABLE t ADD COLUMN k int DEFAULT random() * 0 + 7",
            nothing,
        ),
        (
            "rewritten",
            "",
            "ALTER TABLE t ADD COLUMN k int DEFAULT 7; VACUUM FULL t",
            nothing,
        ),
        (
            "money",
            "",
            "ALTER TABLE t ADD COLUMN k money DEFAULT 7",
            nothing,
        ),
        (
            "a domain",
            "",
            "CREATE DOMAIN d AS int CHECK (VALUE > 0); ALTER TABLE t ADD COLUMN k d DEFAULT 7",
            nothing,
        ),
        (
            "a name",
            "",
            "ALTER TABLE t ADD COLUMN k regclass DEFAULT 't'::regclass",
            nothing,
        ),
        // Another pipeline, from another program, wrote into the target.
        ("another stream", "", added, |copied| {
            let other = "INSERT INTO _rapidbyte.checkpoint (pipeline, stream, target, run_id, epoch, seq, complete, \
                updated_at, target_oid) SELECT 'other', stream, target, run_id, epoch, seq, complete, updated_at, \
                target_oid FROM _rapidbyte.checkpoint";
            copied.target().batch_execute(other).expect("a record");
        }),
    ];
    for (case, stream, change, between) in cases {
        let copied = Copied::new();
        document(&copied.run("", BY_ID, "append"), 0);
        let mut source = copied.source.client();
        for statement in change.split("; ") {
            source.batch_execute(statement).expect("a change");
        }
        between(&copied);
        document(&copied.run("", &format!("{BY_ID}{stream}"), "append"), 0);
        let sql = "SELECT k::text FROM raw.t WHERE id = 1";
        let older: Option<String> = copied.target().query_one(sql, &[]).expect("a row").get(0);
        let expected = (case == "proved").then_some("7");
        assert_eq!(older.as_deref(), expected, "{case}");
    }
}

/// Row 2 arrives without the column, and not by a run that records what it read.
#[test]
fn rows_that_came_without_the_column_take_the_proof_back() {
    let query = ", query: \"SELECT id, name, old FROM public.t WHERE id > 1\"";
    let columns = ", columns: [id, name, old]";
    for (stream, mode) in [(query, "append"), (columns, "upsert")] {
        let copied = Copied::new();
        document(&copied.run("", "", mode), 0);
        let added = "ALTER TABLE t ADD COLUMN k int DEFAULT 7; INSERT INTO t (id, name, k) VALUES (2, 'b', 8); \
            DELETE FROM t WHERE id = 1";
        copied
            .source
            .client()
            .batch_execute(added)
            .expect("a change");
        if mode == "append" {
            document(&copied.run("", stream, mode), 0);
        } else {
            document(&copied.types("plan", "", stream, mode, None), 0);
            let repair = ["verify", "p.yaml", "--repair", "--output", "json"];
            let ended = copied.folder.rapidbyte(&repair);
            assert!(ended.stdout.contains("repaired"), "{ended:?}");
        }
        // The next run has no row 2.
        let empty = "DELETE FROM t";
        copied
            .source
            .client()
            .batch_execute(empty)
            .expect("a change");
        document(&copied.run("", "", mode), 0);
        let sql =
            "SELECT string_agg(DISTINCT id || ' ' || coalesce(k::text, 'NULL'), ', ') FROM raw.t";
        let found: String = copied.target().query_one(sql, &[]).expect("rows").get(0);
        let expected = match mode {
            "append" => "1 NULL, 2 NULL",
            _ => "2 NULL",
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_label_that_the_run_adds_is_not_a_default_in_the_same_run() {
    let copied = Copied::new();
    let mut source = copied.source.client();
    let typed =
        "CREATE TYPE mood AS ENUM ('sad'); ALTER TABLE t ADD COLUMN m mood; UPDATE t SET m = 'sad'";
    source.batch_execute(typed).expect("a column");
    document(&copied.run("", BY_ID, "append"), 0);
    for change in [
        "ALTER TYPE mood ADD VALUE 'happy'",
        "ALTER TABLE t ADD COLUMN k mood DEFAULT 'happy'",
    ] {
        source.batch_execute(change).expect("a change");
    }
    document(&copied.run("", BY_ID, "append"), 0);
    assert_eq!(copied.rows(), "(1,a,x,sad,)");
}

/// Two pipelines with different columns add them to one table at the same time, while somebody reads it.
#[test]
fn two_runs_at_once_with_different_columns_lose_none_and_readers_see_whole_rows() {
    const ROUNDS: i32 = 5;
    let copied = Copied::new();
    let sql = |sql: &str| copied.source.client().batch_execute(sql).expect(sql);
    let file = |stream: &str| format!("{stream}.yaml");
    for (stream, first) in [("a", 1), ("b", 1001)] {
        sql(&format!(
            "CREATE TABLE {stream} (id int PRIMARY KEY, v int NOT NULL); \
             INSERT INTO {stream} SELECT i, 0 FROM generate_series({first}, {first} + 499) i"
        ));
        let text = format!(
            "version: 1\npipeline: {stream}\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  \
             streams: [{{ name: public.{stream}, target: {{ name: t }} }}]\ndestination:\n  use: dest-postgres\n  \
             config: {{ url: \"{}\", schema: raw }}\n  write_mode: upsert\n",
            copied.source.url(),
            copied.target.url()
        );
        copied.folder.write(&file(stream), &text);
        let ended = copied.folder.rapidbyte(&["run", &file(stream)]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        let mut target = copied.target();
        let is_over = &is_over;
        let reader = scope.spawn(move || {
            let mut looks = 0;
            while !is_over.load(order) {
                // All rows of a stream are of one run.
                let read = "SELECT count(*), count(DISTINCT v) FILTER (WHERE id <= 500), \
                     count(DISTINCT v) FILTER (WHERE id > 1000) FROM raw.t";
                let row = target.query_one(read, &[]).expect("rows");
                assert_eq!(
                    (row.get(0), row.get(1), row.get(2)),
                    (1000_i64, 1_i64, 1_i64)
                );
                looks += 1;
            }
            looks
        });
        for round in 1..=ROUNDS {
            for stream in ["a", "b"] {
                sql(&format!(
                    "ALTER TABLE {stream} ADD COLUMN {stream}{round} int; UPDATE {stream} SET v = {round}, \
                     {stream}{round} = id + {round}"
                ));
            }
            let start = |stream| {
                let mut command = copied.folder.command(&["run", &file(stream)]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().expect("the program starts")
            };
            let ended = ["a", "b"]
                .map(start)
                .map(|child| Ended::from(child.wait_with_output().expect("it ends")));
            for ended in ended {
                assert_eq!(ended.code, Some(0), "{round} {ended:?}");
            }
        }
        is_over.store(true, order);
        assert!(reader.join().expect("a reader") > 0);
    });
    let all = |stream: &str| {
        let columns = (1..=ROUNDS).map(|round| format!("{stream}{round} = id + {round}"));
        columns.collect::<Vec<_>>().join(" AND ")
    };
    let sql = format!(
        "SELECT count(*) FILTER (WHERE {} AND b1 IS NULL), count(*) FILTER (WHERE {} AND a1 IS NULL) FROM raw.t",
        all("a"),
        all("b")
    );
    let row = copied.target().query_one(&sql, &[]).expect("rows");
    assert_eq!((row.get(0), row.get(1)), (500_i64, 500_i64));
}

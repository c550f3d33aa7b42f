//! The refusals, their errors, and the method that fills a table.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::prelude::arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use rapidbyte_sdk::prelude::{DataType, Field, Fit, Schema, Target, WriteMode};
use rapidbyte_testkit::postgres::{Database, Options, Server};
use serde_json::json;

/// A table `raw.t` made by `columns`, and what a plan, and a load of `id, t` say.
fn against(database: &Database<'_>, columns: &str, method: &str) -> (String, String) {
    let mut client = database.client();
    client
        .batch_execute(&format!(
            "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; CREATE TABLE raw.t ({columns})"
        ))
        .unwrap();
    let config = json!({"schema": "raw", "load_method": method});
    let mut to = open_with(&database.url(), config);
    let planned = plan(&mut to, "t", &batch(&[1, 2]));
    let written = append(&mut to, "t", &batch(&[1, 2]));
    let planned = match planned {
        Ok(plan) => {
            let refused = plan.columns.iter().find(|c| c.fit == Fit::Refused);
            refused.map_or_else(
                || "fits".into(),
                |c| format!("{}: {}", c.column, c.note.clone().unwrap()),
            )
        }
        Err(error) => format!("{}: {}", error.code, error.message),
    };
    let written = match written {
        Ok(_) => ids(&mut client, "raw.t"),
        Err(error) => {
            assert_eq!(one(&mut client, "SELECT count(*) FROM raw.t"), "0");
            assert_eq!(error.stream.as_deref(), Some("t"));
            format!("{} {}", error.code, error.column.unwrap_or_default())
        }
    };
    (planned, written)
}

#[test]
fn an_existing_table_takes_what_fits_and_refuses_the_rest_by_name() {
    let database = database();
    for (columns, plan_says, load_says) in [
        ("id int8, t text", "fits", "1,2"),
        ("t text, id numeric(20)", "fits", "1,2"),
        (
            "id int8, t varchar(5) NOT NULL DEFAULT 'x'",
            "fits",
            "pg_23502 t",
        ),
        ("id int8, t text, extra int", "fits", "1,2"),
        (
            "id int8, t text, extra int NOT NULL DEFAULT 1",
            "fits",
            "1,2",
        ),
        (
            "id int8, t text, extra int GENERATED ALWAYS AS IDENTITY",
            "fits",
            "1,2",
        ),
        (
            "id int8, t text, extra int8 GENERATED ALWAYS AS (id * 2) STORED",
            "fits",
            "1,2",
        ),
        (
            "id int8 GENERATED ALWAYS AS IDENTITY, t text",
            "fits",
            "1,2",
        ),
        (
            "id int8, t text, extra int PRIMARY KEY",
            "unfilled_column: the column extra of raw.t is NOT NULL",
            "unfilled_column extra",
        ),
        (
            "id int4, t text",
            "id: integer is narrower",
            "column_refused id",
        ),
        (
            "id numeric(18), t text",
            "id: the target's numeric is narrower",
            "column_refused id",
        ),
        ("id int8, t varchar(3)", "fits", "1,2"),
        (
            "id date, t text",
            "id: int8 does not become date",
            "column_refused id",
        ),
        (
            "id int8, t text GENERATED ALWAYS AS ('x') STORED",
            "t: the server computes this column: leave the column out with `columns:`",
            "column_refused t",
        ),
        ("id int8 CHECK (id < 2), t text", "fits", "pg_23514 "),
        (
            "id int8 UNIQUE, t text UNIQUE, CHECK (id > 0)",
            "fits",
            "1,2",
        ),
    ] {
        for method in ["copy", "insert"] {
            let (planned, written) = against(&database, columns, method);
            assert!(planned.starts_with(plan_says), "{columns}: {planned}");
            assert_eq!(written, load_says, "{columns} {method}");
        }
    }
}

#[test]
fn a_unique_violation_is_the_servers_own_and_leaves_the_table_as_it_was() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, t text); INSERT INTO raw.t VALUES (2)")
        .unwrap();
    for mut to in [open(&database), open_insert(&database)] {
        let error = append(&mut to, "t", &batch(&[1, 2, 3])).unwrap_err();
        assert_eq!(
            (error.code.as_str(), kind(&error).as_str()),
            ("pg_23505", "Data")
        );
        assert!(error.message.contains("(id)=(2)"), "{error:?}");
        assert_eq!(ids(&mut client, "raw.t"), "2");
        // The session stays usable.
        append(&mut to, "other", &batch(&[1])).unwrap();
    }
    // One that is checked at the commit.
    client
        .batch_execute("CREATE TABLE raw.d (id int8 UNIQUE DEFERRABLE INITIALLY DEFERRED, t text)")
        .unwrap();
    let error = append(&mut open(&database), "d", &batch(&[1, 1])).unwrap_err();
    assert_eq!(error.code, "pg_23505");
    assert_eq!(ids(&mut client, "raw.d"), "NULL");
}

#[test]
fn rows_that_a_trigger_drops_are_an_error() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); CREATE FUNCTION raw.drop_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.id = 2 THEN RETURN NULL; END IF; RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON raw.t FOR EACH ROW EXECUTE FUNCTION raw.drop_it()")
        .unwrap();
    for mut to in [open(&database), open_insert(&database)] {
        let error = append(&mut to, "t", &batch(&[1, 2, 3])).unwrap_err();
        assert_eq!(error.code, "rows_not_kept");
        assert!(error.message.contains("3 rows were sent"), "{error:?}");
        assert_eq!(ids(&mut client, "raw.t"), "NULL");
        append(&mut to, "t", &batch(&[])).unwrap();
    }
    // A trigger that keeps rows which replace deletes.
    client
        .batch_execute("CREATE TABLE raw.k (id int8, t text); INSERT INTO raw.k VALUES (9); CREATE FUNCTION raw.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER g BEFORE DELETE ON raw.k FOR EACH ROW EXECUTE FUNCTION raw.keep()")
        .unwrap();
    let error = replace(&mut open(&database), "k", &batch(&[1])).unwrap_err();
    assert_eq!(error.code, "rows_kept");
    assert_eq!(ids(&mut client, "raw.k"), "9");
}

#[test]
fn triggers_see_the_users_own_search_path() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE public.audit (id int8);
             CREATE FUNCTION raw.log() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO audit VALUES (coalesce(NEW.id, -OLD.id)); RETURN coalesce(NEW, OLD); END';
             CREATE FUNCTION raw.log_late() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO audit VALUES (100 + OLD.id); RETURN NULL; END'",
        )
        .unwrap();
    for mut to in [open(&database), open_insert(&database)] {
        client
            .batch_execute(
                "DROP TABLE IF EXISTS raw.t; TRUNCATE audit; CREATE TABLE raw.t (id int8, t text);
                 CREATE TRIGGER g BEFORE INSERT OR DELETE ON raw.t
                    FOR EACH ROW EXECUTE FUNCTION raw.log();
                 CREATE CONSTRAINT TRIGGER l AFTER DELETE ON raw.t DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION raw.log_late()",
            )
            .unwrap();
        append(&mut to, "t", &batch(&[1, 2])).unwrap();
        assert_eq!(ids(&mut client, "public.audit"), "1,2");
        replace(&mut to, "t", &batch(&[3])).unwrap();
        assert_eq!(ids(&mut client, "public.audit"), "-2,-1,1,2,3,101,102");
        // The run reads the stream again from its beginning, and the stream is empty now.
        let mut target = target("t", &batch(&[]).schema(), WriteMode::Replace);
        target.is_incremental = true;
        write_to(&mut to, &target, &[]).unwrap();
        assert_eq!(
            ids(&mut client, "public.audit"),
            "-3,-2,-1,1,2,3,101,102,103"
        );
    }
}

#[test]
fn no_rows_run_no_triggers_for_statements() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE public.audit (id int8); CREATE TABLE raw.t (id int8, t text);
             CREATE FUNCTION raw.log() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO audit VALUES (1); RETURN NULL; END';
             CREATE TRIGGER g AFTER INSERT ON raw.t EXECUTE FUNCTION raw.log()",
        )
        .unwrap();
    for mut to in [open(&database), open_insert(&database)] {
        client.batch_execute("TRUNCATE audit").unwrap();
        for mode in [WriteMode::Append, WriteMode::Replace] {
            let target = target("t", &batch(&[]).schema(), mode);
            write_to(&mut to, &target, &[]).unwrap();
            assert_eq!(ids(&mut client, "public.audit"), "NULL", "{mode:?}");
        }
        append(&mut to, "t", &batch(&[1])).unwrap();
        assert_eq!(ids(&mut client, "public.audit"), "1");
    }
}

#[test]
fn insert_is_chosen_where_copy_would_pass_something_over() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.log (id int8);
             CREATE TABLE raw.ruled (id int8, t text);
             CREATE RULE r AS ON INSERT TO raw.ruled DO ALSO INSERT INTO raw.log VALUES (NEW.id);
             CREATE VIEW raw.seen AS SELECT * FROM raw.ruled;
             CREATE TABLE raw.plain (id int8, t text);
             CREATE TABLE raw.cast_it (id int8, t date);
             CREATE TABLE raw.secured (id int8, t text);
             CREATE ROLE writer_1 LOGIN PASSWORD 'w';
             GRANT USAGE ON SCHEMA raw TO writer_1; GRANT INSERT ON raw.secured TO writer_1;
             CREATE POLICY p ON raw.secured FOR INSERT WITH CHECK (id < 3);
             ALTER TABLE raw.secured ENABLE ROW LEVEL SECURITY;",
        )
        .unwrap();
    let mut to = open(&database);
    for (stream, says) in [
        ("ruled", "loaded by INSERT: COPY bypasses the table's rules"),
        ("seen", "loaded by INSERT: it is a view"),
        ("plain", "loaded by COPY in binary"),
    ] {
        let planned = plan(&mut to, stream, &batch(&[1])).unwrap();
        assert!(
            planned.notes.iter().any(|note| note == says),
            "{:?}",
            planned.notes
        );
        append(&mut to, stream, &batch(&[1, 2])).unwrap();
        assert_eq!(
            one(&mut client, &format!("SELECT max(id) FROM raw.{stream}")),
            "2"
        );
    }
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.log"), "4");
    may_checkpoint(&mut client, "writer_1");
    let url = database.url_of("writer_1", "w");
    let mut writer = open_with(&url, json!({"schema": "raw"}));
    let planned = plan(&mut writer, "secured", &batch(&[1])).unwrap();
    assert!(
        planned.notes.iter().any(|note| note.contains("row-level")),
        "{:?}",
        planned.notes
    );
    append(&mut writer, "secured", &batch(&[1, 2])).unwrap();
    let error = append(&mut writer, "secured", &batch(&[2, 3])).unwrap_err();
    assert_eq!(error.code, "pg_42501");
    assert_eq!(ids(&mut client, "raw.secured"), "1,2");
    let error = replace(&mut writer, "secured", &batch(&[1])).unwrap_err();
    assert_eq!(error.code, "replace_not_possible");
    drop((to, writer));
    client
        .batch_execute("DROP OWNED BY writer_1; DROP ROLE writer_1")
        .unwrap();
}

#[test]
fn missing_privileges_are_reported_with_the_grant_to_run() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute("CREATE SCHEMA raw; CREATE SCHEMA other; CREATE TABLE raw.t (id int8, t text); CREATE ROLE writer_2 LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA raw TO writer_2; REVOKE TEMP ON DATABASE test_1 FROM PUBLIC".replace("test_1", database.name()).as_str())
        .unwrap();
    let url = database.url_of("writer_2", "w");
    let said = |config: serde_json::Value, stream: &str, hint: &str| {
        let mut to = open_with(&url, config);
        let error = append(&mut to, stream, &batch(&[1])).unwrap_err();
        assert_eq!(error.code, "no_privilege", "{error:?}");
        assert_eq!(kind(&error), "Auth");
        let told = error.hint.unwrap();
        assert!(told.contains(hint), "{told}");
    };
    said(
        json!({"schema": "raw"}),
        "t",
        "GRANT INSERT ON raw.t TO writer_2",
    );
    said(
        json!({"schema": "raw"}),
        "new",
        "GRANT USAGE, CREATE ON SCHEMA raw TO writer_2",
    );
    said(
        json!({"schema": "Nowhere"}),
        "new",
        "CREATE SCHEMA \"Nowhere\" AUTHORIZATION writer_2",
    );
    // A plan names the privileges for the checkpoints beside those for the table.
    let mut to = open_with(&url, json!({"schema": "raw"}));
    let hint = plan(&mut to, "t", &batch(&[1])).unwrap_err().hint.unwrap();
    for statement in [
        "GRANT INSERT ON raw.t TO writer_2;",
        "CREATE SCHEMA IF NOT EXISTS _rapidbyte;",
        "GRANT USAGE ON SCHEMA _rapidbyte TO writer_2;",
    ] {
        assert!(hint.contains(statement), "{hint}");
    }
    client
        .batch_execute("GRANT INSERT ON raw.t TO writer_2")
        .unwrap();
    let error = append(
        &mut open_with(&url, json!({"schema": "raw"})),
        "t",
        &batch(&[1]),
    )
    .unwrap_err();
    assert_eq!(error.code, "checkpoint_not_allowed", "{error:?}");
    may_checkpoint(&mut client, "writer_2");
    let mut to = open_with(&url, json!({"schema": "raw"}));
    append(&mut to, "t", &batch(&[1])).unwrap();
    let error = replace(&mut to, "t", &batch(&[1])).unwrap_err();
    assert!(error.hint.unwrap().contains("DELETE ON raw.t"));
    let items = open_with(&url, json!({"schema": "missing"}))
        .check()
        .unwrap();
    assert!(items.iter().any(|item| item.problem.is_some()));
    let items = open(&database).check().unwrap();
    assert!(items.iter().all(|item| item.problem.is_none()), "{items:?}");
    drop(to);
    let name = database.name();
    client
        .batch_execute(&format!("REVOKE CONNECT ON DATABASE {name} FROM PUBLIC"))
        .unwrap();
    let mut to = open_with(&url, json!({"schema": "raw"}));
    let error = append(&mut to, "t", &batch(&[1])).unwrap_err();
    assert_eq!(
        (error.code.as_str(), kind(&error)),
        ("pg_42501", "Auth".into())
    );
    assert!(error.message.contains(name), "{error:?}");
    client
        .batch_execute("DROP OWNED BY writer_2; DROP ROLE writer_2")
        .unwrap();
}

#[test]
fn a_privilege_revoked_after_the_plan_is_reported_with_the_grant_too() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, t text); CREATE ROLE writer_3 LOGIN PASSWORD 'w';
             GRANT USAGE ON SCHEMA raw TO writer_3",
        )
        .unwrap();
    may_checkpoint(&mut client, "writer_3");
    let url = database.url_of("writer_3", "w");
    for (mode, taken, grant) in [
        (
            WriteMode::Append,
            "ALL",
            "GRANT INSERT ON raw.t TO writer_3;",
        ),
        (
            WriteMode::Replace,
            "DELETE",
            "GRANT SELECT, INSERT, DELETE ON raw.t TO writer_3",
        ),
        (
            WriteMode::Replace,
            "ALL",
            "GRANT INSERT ON raw.t TO writer_3",
        ),
    ] {
        client
            .batch_execute("GRANT SELECT, INSERT, DELETE ON raw.t TO writer_3")
            .unwrap();
        let mut to = open_with(&url, json!({"schema": "raw"}));
        let target = target("t", &batch(&[1]).schema(), mode);
        to.plan(&target).unwrap();
        client
            .batch_execute(&format!("REVOKE {taken} ON raw.t FROM writer_3"))
            .unwrap();
        let error = begin(&mut to, &target).err().unwrap();
        assert_eq!(error.code, "no_privilege", "{mode:?} {taken}: {error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.contains(grant), "{hint}");
    }
    client
        .batch_execute("DROP OWNED BY writer_3; DROP ROLE writer_3")
        .unwrap();
}

#[test]
fn replace_is_refused_where_it_would_change_or_miss_rows_elsewhere() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw;
             CREATE TABLE raw.parent (id int8 PRIMARY KEY, t text); INSERT INTO raw.parent VALUES (1);
             CREATE TABLE raw.child (p int8 REFERENCES raw.parent ON DELETE CASCADE); INSERT INTO raw.child VALUES (1);
             CREATE TABLE raw.named (id int8 PRIMARY KEY, t text); INSERT INTO raw.named VALUES (1);
             CREATE TABLE raw.naming (p int8 REFERENCES raw.named); INSERT INTO raw.naming VALUES (1);
             CREATE TABLE raw.mother (id int8, t text); CREATE TABLE raw.daughter () INHERITS (raw.mother);
             CREATE VIEW raw.v AS SELECT * FROM raw.mother",
        )
        .unwrap();
    let mut to = open(&database);
    for (stream, code) in [
        ("parent", "replace_not_possible"),
        ("mother", "replace_not_possible"),
        ("v", "replace_not_possible"),
        ("named", "pg_23503"),
    ] {
        let error = replace(&mut to, stream, &batch(&[1])).unwrap_err();
        assert_eq!(error.code, code, "{stream}: {error:?}");
    }
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.child"), "1");
    assert_eq!(one(&mut client, "SELECT count(*) FROM raw.named"), "1");
}

#[test]
fn names_and_configurations_that_cannot_be_are_refused() {
    let database = database();
    let mut to = open(&database);
    let long = format!("public.{}", "x".repeat(64));
    for (stream, code) in [(long.as_str(), "invalid_name"), ("", "invalid_name")] {
        let error = append(&mut to, stream, &batch(&[1])).unwrap_err();
        assert_eq!(error.code, code, "{stream:?}");
    }
    let long = Schema::new(vec![Field::new("x".repeat(64), DataType::Int64, true)]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let long = RecordBatch::try_new(Arc::new(long), vec![column]).unwrap();
    assert_eq!(
        append(&mut to, "a", &long).unwrap_err().code,
        "invalid_name"
    );
    for name in ["ctid", "xmin", "cmin", "xmax", "cmax", "tableoid"] {
        let batch = texts(&[("a", &[]), (name, &[])]);
        let error = plan(&mut to, "a", &batch).unwrap_err();
        assert_eq!(error.code, "invalid_name", "{name}: {error:?}");
        assert_eq!(error.column.as_deref(), Some(name));
        let hint = error.hint.unwrap_or_default();
        assert!(hint.contains("rename:"), "{hint}");
    }
    // No system columns: the case of letters counts, and no server has oids any more.
    append(&mut to, "free", &texts(&[("CTID", &[]), ("oid", &[])])).unwrap();
    let config = json!({"schema": "raw", "table": "one"});
    let mut to = open_with(&database.url(), config);
    append(&mut to, "a", &batch(&[1])).unwrap();
    assert_eq!(
        append(&mut to, "b", &batch(&[1])).unwrap_err().code,
        "shared_target"
    );
    let mut client = database.client();
    let mut to = open_with(&database.url(), json!({"table": "stg_{stream}"}));
    append(&mut to, "public.orders", &batch(&[1])).unwrap();
    assert_eq!(ids(&mut client, "public.stg_orders"), "1");
    for config in [
        json!({"url": "postgres://a@b/c", "insert_rows": 0}),
        json!({"url": "postgres://a@b/c", "copy_flush_bytes": 1}),
        json!({"url": "postgres://a@b/c", "tables": "x"}),
        json!({"host": "b"}),
    ] {
        let opened =
            rapidbyte_sdk::destination::open::<dest_postgres::Postgres>(&config.to_string());
        assert!(opened.is_err(), "{config}");
    }
}

#[test]
fn a_standby_or_read_only_server_is_refused() {
    let database = database();
    let url = format!(
        "{}?options=-c%20default_transaction_read_only%3Don",
        database.url()
    );
    let mut to = open_with(&url, json!({"schema": "raw"}));
    assert_eq!(
        append(&mut to, "t", &batch(&[1])).unwrap_err().code,
        "read_only_server"
    );
    let items = to.check().unwrap();
    assert!(items.iter().any(|item| item.problem.is_some()));
}

#[test]
fn a_server_that_stops_in_the_middle_is_a_connection_error_and_nothing_is_left() {
    let mut server = Server::start(&Options::default()).unwrap();
    for insert in [false, true] {
        let config = match insert {
            true => json!({"schema": "raw", "load_method": "insert"}),
            false => json!({"schema": "raw"}),
        };
        let mut to = open_with(&server.url("postgres"), config);
        let rows = batch(&(0..5_000).collect::<Vec<_>>());
        let mut load = begin(&mut to, &target("t", &rows.schema(), WriteMode::Append)).unwrap();
        load.write(&rows).unwrap();
        server.stop();
        let mut error = None;
        for _ in 0..1_000 {
            if let Err(failed) = load.write(&rows) {
                error = Some(failed);
                break;
            }
        }
        let error = error.unwrap();
        assert_eq!(kind(&error), "Connection", "{error:?}");
        assert_eq!(error.stream.as_deref(), Some("t"));
        let hint = error.hint.unwrap();
        assert!(hint.contains("nothing of this load is visible"), "{hint}");
        load.abort().unwrap();
        server.run_again().unwrap();
        let mut client = server.client("postgres");
        assert_eq!(one(&mut client, "SELECT to_regclass('raw.t')"), "NULL");
    }
}

#[test]
fn a_value_that_cannot_be_held_names_its_column_and_row() {
    let database = database();
    let mut to = open(&database);
    let schema = Schema::new(vec![Field::new("t", DataType::Utf8, true)]);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["a", "b\0"]));
    let rows = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    let error = append(&mut to, "t", &rows).unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.column.as_deref()),
        ("invalid_text", Some("t"))
    );
    assert!(error.message.contains("row 2"), "{error:?}");
}

#[test]
fn a_constraint_that_refuses_rows_is_named_with_what_to_do() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    for (columns, code, names, hint) in [
        (
            "id int8 CONSTRAINT whole PRIMARY KEY, t text",
            "pg_23505",
            "\"whole\"; Key (id)=(2) already exists. (table raw.t)",
            "use write_mode: upsert with primary_key to update rows whose key is already in raw.t, \
             or write_mode: replace",
        ),
        (
            "id int8, t text, CONSTRAINT apart EXCLUDE (id WITH =)",
            "pg_23P01",
            "\"apart\"",
            "upsert with primary_key",
        ),
        (
            "id int8, t text NOT NULL DEFAULT 'x'",
            "pg_23502",
            "column \"t\"",
            "ALTER TABLE raw.t ALTER COLUMN t DROP NOT NULL; or leave such rows out with `where:`",
        ),
        (
            "id int8, t text PRIMARY KEY",
            "pg_23502",
            "column \"t\"",
            "If it is in the table's primary key, it needs a value in the source",
        ),
        (
            "id int8, t full_text",
            "pg_23502",
            "domain full_text",
            "ALTER DOMAIN … DROP NOT NULL",
        ),
        (
            "id int8 CONSTRAINT known REFERENCES others, t text",
            "pg_23503",
            "\"known\"; Key (id)=(1) is not present in table \"others\".",
            "refers to first",
        ),
        (
            "id int8 CONSTRAINT small CHECK (id < 3 AND id <> 1), t text",
            "pg_23514",
            "\"small\"",
            "break a CHECK of raw.t",
        ),
    ] {
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; DROP TABLE IF EXISTS others; \
                 DROP DOMAIN IF EXISTS full_text; CREATE DOMAIN full_text AS text NOT NULL; \
                 CREATE TABLE others (id int8 PRIMARY KEY); INSERT INTO others VALUES (2); \
                 CREATE SCHEMA raw; CREATE TABLE raw.t ({columns}); INSERT INTO raw.t VALUES (2, 'x')"
            ))
            .unwrap();
        let error = append(&mut to, "t", &batch(&[1, 2])).unwrap_err();
        assert_eq!(error.code, code, "{error:?}");
        assert!(error.message.contains(names), "{names}: {error:?}");
        let said = error.hint.clone().unwrap_or_default();
        assert!(said.contains(hint), "{hint}: {error:?}");
    }
}

#[test]
fn a_null_in_the_primary_key_of_a_replaced_table_names_its_column_and_what_to_do() {
    let database = database();
    let mut to = open(&database);
    let rows = batch(&[1, 2]);
    let target = Target {
        primary_key: vec!["t".into()],
        ..target("t", &rows.schema(), WriteMode::Replace)
    };
    let error = write_to(&mut to, &target, &[rows]).unwrap_err();
    assert_eq!(error.code, "pg_23502", "{error:?}");
    assert_eq!(error.column.as_deref(), Some("t"), "{error:?}");
    let hint = error.hint.unwrap_or_default();
    assert!(hint.contains("give t a value in the source"), "{hint}");
    assert!(!hint.contains("DROP NOT NULL"), "{hint}");
}

#[test]
fn a_column_that_nobody_fills_may_have_been_renamed() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    for (columns, says) in [
        (
            "id int8, \"Old\" text NOT NULL",
            "its new name is t, which the table lacks: run on the target: ALTER TABLE raw.t RENAME COLUMN \"Old\" TO t;",
        ),
        (
            "old text NOT NULL, \"U\" text",
            "one of those that the table lacks (id, t): run on the target: ALTER TABLE raw.t RENAME COLUMN old TO",
        ),
        (
            "id int8, t text, old text PRIMARY KEY",
            "run on the target: ALTER TABLE raw.t ALTER COLUMN old DROP NOT NULL",
        ),
    ] {
        execute(
            &mut client,
            &format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; CREATE TABLE raw.t ({columns})"
            ),
        );
        let batch = batch(&[1]);
        let mut fields = batch.schema().fields().to_vec();
        let mut columns_of = batch.columns().to_vec();
        if columns.contains("\"U\"") {
            fields.push(Arc::new(Field::new("U", DataType::Utf8, true)));
            columns_of.push(batch.column(1).clone());
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns_of).unwrap();
        let error = plan(&mut to, "t", &batch).unwrap_err();
        assert_eq!(error.code, "unfilled_column", "{error:?}");
        let hint = error.hint.unwrap();
        assert!(hint.contains(says), "{says}: {hint}");
        assert!(hint.contains("DROP NOT NULL"), "{hint}");
        let may_be_renamed = hint.contains("renamed");
        assert_eq!(may_be_renamed, !columns.contains(", t text"), "{hint}");
    }
}

/// Each is in the table under the type that a file's values were inferred as, and comes in a declared one.
#[test]
fn a_column_of_an_inferred_type_comes_with_the_statement_that_makes_the_declared_one_fit() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let decimal = Arc::new(
        Decimal128Array::from(vec![150])
            .with_precision_and_scale(12, 2)
            .unwrap(),
    ) as ArrayRef;
    let (int, float) = (
        Arc::new(Int64Array::from(vec![7])) as ArrayRef,
        Arc::new(Float64Array::from(vec![0.5])) as ArrayRef,
    );
    let day = Arc::new(Date32Array::from(vec![20_000])) as ArrayRef;
    for (was, value, declared, may_change) in [
        ("float8", "1.25", &decimal, true),
        ("float8", "1.255", &decimal, false),
        ("float8", "NULL", &decimal, true),
        ("float8", "1e300", &decimal, false),
        ("int8", "17", &decimal, true),
        ("int8", "17000000000", &decimal, false),
        ("text", "'1.5'", &decimal, true),
        ("text", "'1.555'", &decimal, false),
        ("text", "'x'", &decimal, false),
        ("text", "'17'", &int, true),
        ("text", "'1.5'", &int, false),
        ("text", "'1.5'", &float, true),
        ("text", "'0.12345678901234567890'", &float, false),
        ("float8", "3", &int, true),
        ("float8", "3.5", &int, false),
        ("int8", "9007199254740993", &float, false),
        ("int8", "5", &float, true),
        ("timestamp", "'2026-11-25 00:00'", &day, true),
        ("timestamp", "'2026-11-25 00:01'", &day, false),
    ] {
        execute(
            &mut client,
            &format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; CREATE TABLE raw.t (v {was}); \
                 INSERT INTO raw.t VALUES ({value})"
            ),
        );
        let field = Field::new("v", declared.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![field]));
        let rows = RecordBatch::try_new(schema, vec![declared.clone()]).unwrap();
        let error = append(&mut to, "t", &rows).unwrap_err();
        let what = format!("{was} {value} {:?}: {error:?}", declared.data_type());
        assert_eq!(error.code, "column_refused", "{what}");
        let (_, sql) = error.message.split_once("ALTER TABLE").expect(&what);
        let changed = client.batch_execute(&format!("ALTER TABLE{sql}"));
        assert_eq!(changed.is_ok(), may_change, "{what}: {changed:?}");
        if may_change {
            let ty = if was == "text" { "numeric" } else { was };
            let kept = format!(
                "SELECT count(*) FROM raw.t WHERE v::{ty} IS NOT DISTINCT FROM {value}::{ty}"
            );
            assert_eq!(one(&mut client, &kept), "1", "{what}");
            append(&mut to, "t", &rows).unwrap();
        }
    }
}

#[test]
fn a_column_that_does_not_fit_comes_with_the_statement_that_makes_it_fit() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let statement =
        "run on the target: ALTER TABLE raw.t ALTER COLUMN id TYPE bigint USING id::bigint";
    for (ty, before, is_told) in [
        ("int4", "7", true),
        ("numeric(10,2)", "7", false),
        ("date", "NULL", false),
    ] {
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw; \
                 CREATE TABLE raw.t (id {ty}, t text); INSERT INTO raw.t VALUES ({before})"
            ))
            .unwrap();
        let planned = plan(&mut to, "t", &batch(&[1])).unwrap();
        let note = planned.columns[0].note.clone().unwrap();
        let error = append(&mut to, "t", &batch(&[1])).unwrap_err();
        assert_eq!(error.code, "column_refused");
        // None that would round or cut what is there.
        assert_eq!(note.contains("ALTER"), is_told, "{ty}: {note}");
        if !is_told {
            continue;
        }
        assert!(note.contains(statement), "{ty}: {note}");
        assert!(error.message.contains(statement), "{error:?}");
        let (_, sql) = note.split_once("ALTER TABLE").unwrap();
        client.batch_execute(&format!("ALTER TABLE{sql}")).unwrap();
        append(&mut to, "t", &batch(&[1])).unwrap();
        let kept = format!("SELECT count(*) FROM raw.t WHERE id IS NOT DISTINCT FROM {before}");
        assert_eq!(one(&mut client, &kept), "1", "{ty}");
    }
}

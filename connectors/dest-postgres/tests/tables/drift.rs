//! A stream whose columns are not those of its table: what each policy makes of it.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_pg::model::{Column, Kind, PgType};
use rapidbyte_pg::{builtin, form};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{
    DataType, Error, Field, Fit, Receipt, Result, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{DroppedColumn, NewColumn, TypeChange};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

const MODES: [WriteMode; 3] = [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
const FROZEN: SchemaChanges = SchemaChanges {
    new_column: NewColumn::Fail,
    dropped_column: DroppedColumn::Fail,
    type_change: TypeChange::Fail,
};

/// One row: `id`, and a text in each of these columns.
fn row(id: i64, texts: &[(&str, &str)]) -> RecordBatch {
    let mut fields = vec![Field::new("id", DataType::Int64, false)];
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![id]))];
    for (name, text) in texts {
        fields.push(Field::new(*name, DataType::Utf8, true));
        columns.push(Arc::new(StringArray::from(vec![*text])));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// One row of a column of PostgreSQL, whose values are texts.
fn of_postgres(column: Column, text: &str) -> RecordBatch {
    let schema = Schema::new(vec![form::field(&column, true)]);
    let values: ArrayRef = Arc::new(StringArray::from(vec![text]));
    RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
}

fn varchar(chars: i32) -> Column {
    Column {
        typmod: chars + 4,
        type_text: format!("varchar({chars})"),
        ..builtin::VARCHAR.column("v")
    }
}

fn target_of(batch: &RecordBatch, mode: WriteMode, schema_changes: SchemaChanges) -> Target {
    let primary_key = match mode {
        WriteMode::Upsert => vec!["id".into()],
        _ => Vec::new(),
    };
    Target {
        primary_key,
        schema_changes,
        ..target("t", &batch.schema(), mode)
    }
}

fn write_by(
    to: &mut Session,
    batch: &RecordBatch,
    mode: WriteMode,
    changes: SchemaChanges,
) -> Result<Receipt> {
    let target = target_of(batch, mode, changes);
    write_to(to, &target, std::slice::from_ref(batch))
}

/// The columns with their types, `!` where NULL is refused.
fn columns(client: &mut Client) -> String {
    one(
        client,
        "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) \
             || CASE WHEN attnotnull THEN '!' ELSE '' END, ', ' ORDER BY attnum) \
         FROM pg_attribute WHERE attrelid = 'raw.t'::regclass AND attnum > 0 AND NOT attisdropped",
    )
}

fn rows(client: &mut Client) -> String {
    one(
        client,
        "SELECT string_agg(x::text, ' ' ORDER BY id) FROM raw.t x",
    )
}

fn history(client: &mut Client) -> String {
    one(
        client,
        "SELECT string_agg(concat_ws('|', pipeline, run_id, stream, target, statement), '; ' ORDER BY changed_at) \
         FROM _rapidbyte.schema_change",
    )
}

#[test]
fn a_new_column_is_added_and_listed() {
    for mode in MODES {
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        let changes = SchemaChanges::default();
        write_by(&mut to, &row(1, &[("a", "x")]), mode, changes).unwrap();
        let wider = row(2, &[("a", "y"), ("New", "z")]);
        let target = target_of(&wider, mode, changes);
        let alter = "ALTER TABLE raw.t ADD COLUMN IF NOT EXISTS \"New\" text";
        let plan = to.plan(&target).unwrap();
        assert!(plan.statements.contains(&alter.to_owned()), "{plan:?}");
        assert!(
            plan.columns.iter().all(|column| column.fit == Fit::Exact),
            "{plan:?}"
        );
        // The plan has changed nothing.
        assert!(!columns(&mut client).contains("New"));
        let mut load = begin(&mut to, &target).unwrap();
        assert_eq!(load.schema_changes(), [alter]);
        load.write(&wider).unwrap();
        let part = load.flush().unwrap();
        let seq = load.progress().seq;
        load.commit(whole("t", vec![part], seq)).unwrap();
        let expected = match mode {
            WriteMode::Replace => "(2,y,z)",
            _ => "(1,x,) (2,y,z)",
        };
        assert_eq!(rows(&mut client), expected, "{mode:?}");
        assert_eq!(history(&mut client), format!("p|r|t|raw.t|{alter}"));
        // The next run finds it.
        write_by(&mut to, &row(3, &[("a", "y"), ("New", "z")]), mode, FROZEN).unwrap();
        assert_eq!(history(&mut client), format!("p|r|t|raw.t|{alter}"));
    }
}

#[test]
fn a_new_column_is_left_out_or_refused_where_the_policy_says_so() {
    let ignore = SchemaChanges {
        new_column: NewColumn::Ignore,
        ..FROZEN
    };
    for (method, mode) in [
        ("copy", WriteMode::Append),
        ("insert", WriteMode::Append),
        ("copy", WriteMode::Replace),
        ("copy", WriteMode::Upsert),
    ] {
        let database = database();
        let mut client = database.client();
        let config = json!({"schema": "raw", "load_method": method});
        let mut to = open_with(&database.url(), config);
        write_by(&mut to, &row(1, &[("a", "x")]), mode, FROZEN).unwrap();
        let wider = row(1, &[("new", "z"), ("a", "y")]);
        let plan = to.plan(&target_of(&wider, mode, ignore)).unwrap();
        let fits: Vec<Fit> = plan.columns.iter().map(|column| column.fit).collect();
        assert_eq!(fits, [Fit::Exact, Fit::Ignored, Fit::Exact], "{plan:?}");
        write_by(&mut to, &wider, mode, ignore).unwrap();
        let expected = match mode {
            WriteMode::Append => "(1,x) (1,y)",
            _ => "(1,y)",
        };
        assert_eq!(rows(&mut client), expected, "{method} {mode:?}");
        let error = write_by(&mut to, &wider, mode, FROZEN).unwrap_err();
        assert_eq!(error.code, "column_refused", "{error:?}");
        let says = "raw.t has no column new, and schema_changes.new_column is fail; run on the target: ALTER TABLE \
                    raw.t ADD COLUMN new text";
        assert!(error.message.contains(says), "{error:?}");
        assert_eq!(rows(&mut client), expected);
    }
    // What identifies the rows cannot be left out.
    let database = database();
    execute(
        &mut database.client(),
        "CREATE SCHEMA raw; CREATE TABLE raw.t (a text)",
    );
    let error = write_by(
        &mut open(&database),
        &row(1, &[("a", "x")]),
        WriteMode::Upsert,
        ignore,
    );
    let error = error.unwrap_err();
    assert!(error.message.contains("identifies rows"), "{error:?}");
}

#[test]
fn a_column_that_the_source_dropped_stays_goes_or_stops_the_run() {
    let policies = [
        DroppedColumn::Keep,
        DroppedColumn::Drop,
        DroppedColumn::Fail,
    ];
    for mode in MODES {
        for dropped_column in policies {
            let database = database();
            let mut client = database.client();
            let mut to = open(&database);
            let make = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8 PRIMARY KEY, a text NOT NULL, b text, \
                 at text DEFAULT 'now'); INSERT INTO raw.t VALUES (1, 'x', 'y')";
            execute(&mut client, make);
            let changes = SchemaChanges {
                dropped_column,
                ..SchemaChanges::default()
            };
            let written = write_by(&mut to, &row(2, &[]), mode, changes);
            let is_replaced = mode == WriteMode::Replace;
            match dropped_column {
                DroppedColumn::Keep => {
                    written.unwrap();
                    let old = if is_replaced { "" } else { "(1,x,y,now) " };
                    assert_eq!(rows(&mut client), format!("{old}(2,,,now)"));
                    assert!(columns(&mut client).contains("a text, b text"));
                }
                DroppedColumn::Drop => {
                    written.unwrap();
                    let old = if is_replaced { "" } else { "(1,now) " };
                    assert_eq!(rows(&mut client), format!("{old}(2,now)"));
                }
                DroppedColumn::Fail => {
                    let error = written.unwrap_err();
                    assert_eq!(error.code, "column_dropped", "{error:?}");
                    assert_eq!(error.column.as_deref(), Some("a"));
                    assert_eq!(rows(&mut client), "(1,x,y,now)");
                }
            }
        }
    }
}

#[test]
fn a_type_is_widened_where_no_row_changes_and_rewritten_where_that_is_allowed() {
    let rewrite = SchemaChanges {
        type_change: TypeChange::Rewrite,
        ..SchemaChanges::default()
    };
    let long = "x".repeat(9);
    let texts = of_postgres(varchar(9), &long);
    let ints = |name: &str| {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1 << 40]));
        let schema = Schema::new(vec![Field::new(name, DataType::Int64, true)]);
        RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
    };
    let number = (1_i64 << 40).to_string();
    for (was, batch, changes, becomes, value) in [
        (
            "varchar(3)",
            &texts,
            SchemaChanges::default(),
            "character varying(9)",
            Ok(&long),
        ),
        (
            "varchar(12)",
            &texts,
            rewrite,
            "character varying(12)",
            Ok(&long),
        ),
        (
            "varchar(3)",
            &texts,
            FROZEN,
            "character varying(3)",
            Err("value_does_not_fit"),
        ),
        (
            "int4",
            &ints("v"),
            SchemaChanges::default(),
            "integer",
            Err("column_refused"),
        ),
        ("int4", &ints("v"), rewrite, "bigint", Ok(&number)),
        ("int4", &ints("v"), FROZEN, "integer", Err("column_refused")),
        // A date is no number, whatever may be rewritten.
        ("date", &ints("v"), rewrite, "date", Err("column_refused")),
    ] {
        let database = database();
        let mut client = database.client();
        let make = format!(
            "CREATE SCHEMA raw; CREATE TABLE raw.t (v {was}); INSERT INTO raw.t VALUES (NULL)"
        );
        execute(&mut client, &make);
        let written = write_by(&mut open(&database), batch, WriteMode::Append, changes);
        match (&written, value) {
            (Ok(_), Ok(value)) => assert_eq!(one(&mut client, "SELECT max(v) FROM raw.t"), *value),
            (Err(error), Err(code)) => assert_eq!(error.code, code, "{was}: {error:?}"),
            _ => panic!("{was} {changes:?}: {written:?}"),
        }
        assert_eq!(columns(&mut client), format!("v {becomes}"));
    }
    // The text of a file has no length: that of the table is somebody's choice.
    let database = database();
    execute(
        &mut database.client(),
        "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, a varchar(3))",
    );
    let error = write_by(
        &mut open(&database),
        &row(1, &[("a", "long")]),
        WriteMode::Append,
        rewrite,
    );
    assert_eq!(error.unwrap_err().code, "value_does_not_fit");
}

#[test]
fn labels_of_an_enum_are_added_where_they_stand() {
    let column = |labels: &[&str]| {
        let ty = PgType {
            oid: 20_000,
            schema: "raw".into(),
            name: "mood".into(),
            kind: Kind::Enum {
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            },
        };
        Column::new("v", ty, "raw.mood")
    };
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let mut add = |labels: &[&str], value: &str, changes| {
        let batch = of_postgres(column(labels), value);
        write_by(&mut to, &batch, WriteMode::Append, changes)
    };
    add(&["sad", "happy"], "sad", SchemaChanges::default()).unwrap();
    let error = add(&["sad", "so-so", "happy"], "so-so", FROZEN).unwrap_err();
    assert_eq!(error.code, "column_refused", "{error:?}");
    add(
        &["sad", "so-so", "happy"],
        "so-so",
        SchemaChanges::default(),
    )
    .unwrap();
    add(&["sad", "so-so", "happy"], "happy", FROZEN).unwrap();
    let sorted = one(
        &mut client,
        "SELECT string_agg(v::text, ' ' ORDER BY v) FROM raw.t",
    );
    assert_eq!(sorted, "sad so-so happy");
    // A new column of a type that is not there.
    let mut other = column(&["a"]);
    (other.name, other.ty.name, other.type_text) = ("w".into(), "kind".into(), "raw.kind".into());
    let schema = Schema::new(vec![
        form::field(&column(&["sad", "so-so", "happy"]), true),
        form::field(&other, true),
    ]);
    let values: Vec<ArrayRef> = ["sad", "a"]
        .map(|text| Arc::new(StringArray::from(vec![text])) as ArrayRef)
        .to_vec();
    let batch = RecordBatch::try_new(Arc::new(schema), values).unwrap();
    write_by(&mut to, &batch, WriteMode::Append, SchemaChanges::default()).unwrap();
    assert_eq!(columns(&mut client), "v raw.mood, w raw.kind");
}

#[test]
fn who_does_not_own_the_table_gets_the_statement() {
    let database = database();
    let mut client = database.client();
    execute(
        &mut client,
        "CREATE ROLE drifter LOGIN PASSWORD 'p'; CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, b text NOT NULL); \
         GRANT USAGE ON SCHEMA raw TO drifter; GRANT ALL ON raw.t TO drifter",
    );
    may_checkpoint(&mut client, "drifter");
    let mut to = open_with(&database.url_of("drifter", "p"), json!({"schema": "raw"}));
    let refused = |to: &mut Session, batch: &RecordBatch| -> Error {
        write_by(to, batch, WriteMode::Append, SchemaChanges::default()).unwrap_err()
    };
    let error = refused(&mut to, &row(1, &[("b", "x"), ("a", "x")]));
    assert_eq!(error.code, "column_refused", "{error:?}");
    for says in [
        "drifter may not change",
        "ALTER TABLE raw.t ADD COLUMN a text",
    ] {
        assert!(error.message.contains(says), "{says}: {error:?}");
    }
    let error = refused(&mut to, &row(1, &[]));
    assert_eq!(error.code, "unfilled_column", "{error:?}");
    execute(&mut client, "DROP OWNED BY drifter; DROP ROLE drifter");
}

#[test]
fn a_run_that_was_fenced_changes_nothing() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let changes = SchemaChanges::default();
    write_by(&mut to, &row(1, &[]), WriteMode::Append, changes).unwrap();
    let wider = target_of(&row(1, &[("a", "x")]), WriteMode::Append, changes);
    let mut older = fence(&mut open(&database), &wider, run("older")).unwrap();
    // Behind the back of the session, which a newer run would end.
    execute(
        &mut client,
        "UPDATE _rapidbyte.checkpoint SET epoch = epoch + 1, run_id = 'newer'",
    );
    let error = older.open_writer(None).unwrap_err();
    assert_eq!(error.code, "run_superseded", "{error:?}");
    assert_eq!(columns(&mut client), "id bigint!");
}

#[test]
fn a_reader_holds_a_change_up_and_is_named() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let changes = SchemaChanges::default();
    write_by(&mut to, &row(1, &[]), WriteMode::Append, changes).unwrap();
    let mut reader = database.client();
    let mut transaction = reader.transaction().unwrap();
    transaction.query("SELECT FROM raw.t", &[]).unwrap();
    let error = write_by(&mut to, &row(2, &[("a", "x")]), WriteMode::Append, changes).unwrap_err();
    assert_eq!(error.code, "lock_timeout", "{error:?}");
    assert!(error.message.contains("SELECT FROM raw.t"), "{error:?}");
    // In the meantime others read: nobody waits for long behind the change.
    transaction.commit().unwrap();
    write_by(&mut to, &row(2, &[("a", "x")]), WriteMode::Append, changes).unwrap();
    assert_eq!(rows(&mut client), "(1,) (2,x)");
}

#[test]
fn a_view_that_needs_a_column_stops_the_change_with_what_to_do() {
    let database = database();
    let mut client = database.client();
    execute(
        &mut client,
        "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, a text); CREATE VIEW raw.v AS SELECT a FROM raw.t",
    );
    let changes = SchemaChanges {
        dropped_column: DroppedColumn::Drop,
        ..SchemaChanges::default()
    };
    let error = write_by(
        &mut open(&database),
        &row(1, &[]),
        WriteMode::Append,
        changes,
    )
    .unwrap_err();
    assert_eq!(error.code, "pg_2BP01", "{error:?}");
    assert!(
        error
            .hint
            .as_deref()
            .unwrap_or_default()
            .contains("DROP COLUMN IF EXISTS a"),
        "{error:?}"
    );
    assert_eq!(columns(&mut client), "id bigint, a text");
}

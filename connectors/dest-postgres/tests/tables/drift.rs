//! Streams whose columns differ from their table, under each policy.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::*;
use rapidbyte_pg::model::{Column, Kind, PgType};
use rapidbyte_pg::{builtin, catalog, form};
use rapidbyte_sdk::prelude::arrow_array::{self, ArrayRef, Int64Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{
    DataType, Error, Field, Fit, Receipt, Result, Schema, SchemaChanges, Target, WriteMode,
};
use rapidbyte_sdk::{DroppedColumn, NewColumn, RenamedColumn, TypeChange};
use rapidbyte_testkit::postgres::Client;
use serde_json::json;

const MODES: [WriteMode; 3] = [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
const FROZEN: SchemaChanges = SchemaChanges {
    new_column: NewColumn::Fail,
    dropped_column: DroppedColumn::Fail,
    type_change: TypeChange::Fail,
    renamed: RenamedColumn::Off,
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
        type_text: format!("character varying({chars})"),
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
    // A column that identifies rows cannot be left out.
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

/// A table in the schema `src` of the same server, as source-postgres reads it: its columns say where they came from.
fn read(client: &mut Client, table: &str) -> RecordBatch {
    client.batch_execute(catalog::SESSION_SETTINGS).unwrap();
    let oid: u32 = one(
        client,
        &format!("SELECT 'src.{table}'::regclass::oid::int8"),
    )
    .parse()
    .unwrap();
    let texts = |client: &mut Client, sql: &str| -> Vec<String> {
        client
            .query(sql, &[])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect()
    };
    let described = texts(client, &catalog::shapes_query(&[oid]));
    let described = catalog::Described::parse(described.iter().map(String::as_str)).unwrap();
    let types = match described.types_query() {
        Some(sql) => texts(client, &sql),
        None => Vec::new(),
    };
    let types = catalog::Types::parse(types.iter().map(String::as_str)).unwrap();
    let relation = described.relations(&types).remove(0).unwrap();
    let schema = form::schema(&relation.columns, true, &relation.table());
    let values = schema.fields().iter().map(|field| -> ArrayRef {
        let sql = format!(
            "SELECT \"{}\"::text FROM src.{table} ORDER BY 1",
            field.name()
        );
        let texts = client.query(&sql, &[]).unwrap();
        let texts: Vec<Option<String>> = texts.iter().map(|row| row.get(0)).collect();
        let number =
            |text: &Option<String>| text.as_deref().map(|text| text.parse::<i64>().unwrap());
        match field.data_type() {
            DataType::Int64 => Arc::new(texts.iter().map(number).collect::<Int64Array>()),
            DataType::Utf8 => Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>()),
            other => arrow_array::new_null_array(other, texts.len()),
        }
    });
    let values = values.collect();
    RecordBatch::try_new(Arc::new(schema), values).unwrap()
}

/// The batch without these columns.
fn without(batch: &RecordBatch, names: &[&str]) -> RecordBatch {
    let schema = batch.schema();
    let keeps = |place: &usize| !names.contains(&schema.field(*place).name().as_str());
    let kept: Vec<usize> = (0..schema.fields().len()).filter(keeps).collect();
    batch.project(&kept).unwrap()
}

/// The warnings of a plan, one after the other.
fn warnings(
    to: &mut Session,
    batch: &RecordBatch,
    mode: WriteMode,
    changes: SchemaChanges,
) -> String {
    let plan = to.plan(&target_of(batch, mode, changes)).unwrap();
    plan.notes
        .into_iter()
        .filter(|note| note.starts_with("warning: "))
        .collect()
}

fn with_drop() -> SchemaChanges {
    SchemaChanges {
        dropped_column: DroppedColumn::Drop,
        ..SchemaChanges::default()
    }
}

const SOURCE: &str = "CREATE SCHEMA src; CREATE TABLE src.t (id int8 NOT NULL, a text NOT NULL, b text); \
    INSERT INTO src.t VALUES (1, 'x', 'y')";
/// The next row.
const SECOND: &str = "UPDATE src.t SET id = 2";
/// The columns that the owner of the target adds.
const OWN: &str = "ALTER TABLE raw.t ADD COLUMN own text, ADD COLUMN at text DEFAULT 'now'";

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
            execute(&mut client, SOURCE);
            let changes = SchemaChanges {
                dropped_column,
                ..SchemaChanges::default()
            };
            write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
            execute(&mut client, OWN);
            execute(
                &mut client,
                &format!("ALTER TABLE src.t DROP COLUMN a, DROP COLUMN b; {SECOND}"),
            );
            let written = write_by(&mut to, &read(&mut client, "t"), mode, changes);
            let is_replaced = mode == WriteMode::Replace;
            match dropped_column {
                DroppedColumn::Keep => {
                    written.unwrap();
                    let old = if is_replaced { "" } else { "(1,x,y,,now) " };
                    assert_eq!(rows(&mut client), format!("{old}(2,,,,now)"));
                    assert!(columns(&mut client).contains("a text, b text"));
                }
                DroppedColumn::Drop => {
                    written.unwrap();
                    // The owner's own columns stay.
                    let old = if is_replaced { "" } else { "(1,,now) " };
                    assert_eq!(rows(&mut client), format!("{old}(2,,now)"));
                    let says = warnings(&mut to, &read(&mut client, "t"), mode, changes);
                    assert!(says.contains("own stays, although"), "{says}");
                    assert!(says.contains("no run has recorded"), "{says}");
                }
                DroppedColumn::Fail => {
                    let error = written.unwrap_err();
                    assert_eq!(error.code, "column_dropped", "{error:?}");
                    assert_eq!(error.column.as_deref(), Some("a"));
                    assert_eq!(rows(&mut client), "(1,x,y,,now)");
                }
            }
        }
    }
}

#[test]
fn a_column_that_the_source_still_has_is_not_dropped() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let mode = WriteMode::Append;
    write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
    // The operator left it out.
    execute(&mut client, SECOND);
    let narrow = without(&read(&mut client, "t"), &["b"]);
    let says = warnings(&mut to, &narrow, mode, with_drop());
    assert!(says.contains("b stays, although"), "{says}");
    assert!(
        says.contains("the source still has the column, as b"),
        "{says}"
    );
    write_by(&mut to, &narrow, mode, with_drop()).unwrap();
    assert_eq!(rows(&mut client), "(1,x,y) (2,x,)");
    // The destination removes NOT NULL only from a column that the source dropped.
    let narrow = without(&read(&mut client, "t"), &["a"]);
    let error = write_by(&mut to, &narrow, mode, SchemaChanges::default()).unwrap_err();
    assert_eq!(error.code, "unfilled_column", "{error:?}");
    // The destination still knows a column that the operator left out for a while. Now the source drops it.
    execute(
        &mut client,
        "ALTER TABLE src.t DROP COLUMN b; UPDATE src.t SET id = 3",
    );
    write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
    assert_eq!(rows(&mut client), "(1,x) (2,x) (3,x)");
}

#[test]
fn nothing_is_dropped_where_the_source_proves_nothing() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let mode = WriteMode::Append;
    // A file.
    write_by(
        &mut to,
        &row(1, &[("a", "x"), ("b", "y")]),
        mode,
        with_drop(),
    )
    .unwrap();
    let says = warnings(&mut to, &row(2, &[("a", "x")]), mode, with_drop());
    assert!(says.contains("b stays, although"), "{says}");
    assert!(
        says.contains("the source does not tell dropped columns from"),
        "{says}"
    );
    write_by(&mut to, &row(2, &[("a", "x")]), mode, with_drop()).unwrap();
    assert_eq!(rows(&mut client), "(1,x,y) (2,x,)");
    // A table that was made again.
    execute(&mut client, "DROP TABLE raw.t");
    execute(&mut client, SOURCE);
    write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
    execute(
        &mut client,
        "DROP TABLE src.t; CREATE TABLE src.t (id int8, a text); INSERT INTO src.t VALUES (2, 'z')",
    );
    write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
    assert_eq!(rows(&mut client), "(1,x,y) (2,z,)");
}

#[test]
fn a_renamed_column_keeps_its_values_under_its_new_name() {
    for mode in MODES {
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        let changes = with_drop();
        execute(&mut client, SOURCE);
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        execute(&mut client, "CREATE VIEW raw.v AS SELECT a FROM raw.t");
        execute(
            &mut client,
            &format!(
                "ALTER TABLE src.t RENAME a TO \"New A\"; ALTER TABLE src.t ADD a text; {SECOND}"
            ),
        );
        // Another column has the old name.
        let both = read(&mut client, "t");
        let plan = to.plan(&target_of(&both, mode, changes)).unwrap();
        let statements = plan.statements.join(";");
        assert!(
            statements.contains("RENAME COLUMN a TO")
                && statements.contains("ADD COLUMN IF NOT EXISTS a text"),
            "{plan:?}"
        );
        execute(&mut client, "ALTER TABLE src.t DROP COLUMN a");
        let batch = read(&mut client, "t");
        let rename = "ALTER TABLE raw.t RENAME COLUMN a TO \"New A\"";
        let plan = to.plan(&target_of(&batch, mode, changes)).unwrap();
        assert!(plan.statements.contains(&rename.to_owned()), "{plan:?}");
        assert!(
            plan.columns.iter().all(|column| column.fit == Fit::Exact),
            "{plan:?}"
        );
        write_by(&mut to, &batch, mode, changes).unwrap();
        let old = if mode == WriteMode::Replace {
            ""
        } else {
            "(1,x,y) "
        };
        assert_eq!(rows(&mut client), format!("{old}(2,x,y)"), "{mode:?}");
        assert_eq!(columns(&mut client), "id bigint!, New A text!, b text");
        assert_eq!(history(&mut client), format!("p|r|t|raw.t|{rename}"));
        // Once more, together with another type; and then it is gone.
        execute(
            &mut client,
            "DROP VIEW raw.v; ALTER TABLE src.t RENAME \"New A\" TO c; UPDATE src.t SET id = 3",
        );
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        assert_eq!(columns(&mut client), "id bigint!, c text!, b text");
        execute(
            &mut client,
            "ALTER TABLE src.t DROP COLUMN c; UPDATE src.t SET id = 4",
        );
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        assert_eq!(columns(&mut client), "id bigint!, b text");
    }
}

#[test]
fn columns_that_exchange_or_shift_their_names_keep_their_values() {
    for (change, expected, count) in [
        (
            "RENAME a TO x; ALTER TABLE src.t RENAME b TO a; ALTER TABLE src.t RENAME x TO b; ALTER TABLE src.t ADD d text",
            "id bigint!, b text!, a text, d text",
            3,
        ),
        (
            "RENAME b TO c; ALTER TABLE src.t RENAME a TO b",
            "id bigint!, b text!, c text",
            2,
        ),
        // Only the numbers of the columns differ from before.
        (
            "RENAME a TO x; ALTER TABLE src.t RENAME b TO a; ALTER TABLE src.t RENAME x TO b",
            "id bigint!, b text!, a text",
            3,
        ),
    ] {
        for mode in MODES {
            let database = database();
            let mut client = database.client();
            let mut to = open(&database);
            execute(&mut client, SOURCE);
            let changes = with_drop();
            write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
            execute(
                &mut client,
                &format!("ALTER TABLE src.t {change}; {SECOND}"),
            );
            write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
            assert_eq!(columns(&mut client), expected, "{mode:?}");
            let more = if expected.contains("d text") { "," } else { "" };
            let old = match mode {
                WriteMode::Replace => String::new(),
                _ => format!("(1,x,y{more}) "),
            };
            assert_eq!(rows(&mut client), format!("{old}(2,x,y{more})"), "{mode:?}");
            assert_eq!(history(&mut client).matches("RENAME").count(), count);
        }
    }
}

#[test]
fn a_name_that_another_column_had_is_reported() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let (mode, changes) = (WriteMode::Append, SchemaChanges::default());
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    let again = "ALTER TABLE src.t DROP b; ALTER TABLE src.t ADD b text";
    for change in [again, &format!("{again}; ALTER TABLE src.t ADD c text")] {
        execute(&mut client, change);
        let batch = read(&mut client, "t");
        let says = warnings(&mut to, &batch, mode, changes);
        assert!(
            says.contains("another column of the source was called b before"),
            "{change}: {says}"
        );
        write_by(&mut to, &batch, mode, changes).unwrap();
        assert_eq!(warnings(&mut to, &batch, mode, changes), "", "{change}");
    }
}

/// A source whose role may not ask for the identity of its server sends no numbers of columns.
#[test]
fn a_source_that_no_longer_proves_its_columns_is_reported() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let changes = SchemaChanges::default();
    let proved = read(&mut client, "t");
    let schema = proved.schema();
    let table = form::Table {
        origin: None,
        ..form::table_of(&schema).unwrap()
    };
    assert!(table.identity.is_some());
    let metadata = [(form::METADATA_KEY.to_owned(), json!(table).to_string())];
    let schema = Schema::new_with_metadata(schema.fields().clone(), HashMap::from(metadata));
    let unproved = RecordBatch::try_new(Arc::new(schema), proved.columns().to_vec()).unwrap();
    // Nothing was proved before.
    let mode = WriteMode::Append;
    write_by(&mut to, &unproved, mode, changes).unwrap();
    assert_eq!(warnings(&mut to, &unproved, mode, changes), "");
    write_by(&mut to, &proved, mode, changes).unwrap();
    assert_eq!(warnings(&mut to, &proved, mode, changes), "");
    for mode in MODES {
        if mode == WriteMode::Upsert {
            execute(
                &mut client,
                "DELETE FROM raw.t; CREATE UNIQUE INDEX ON raw.t (id)",
            );
        }
        let says = warnings(&mut to, &unproved, mode, changes);
        let is_told =
            says.contains("does not prove any more") && says.contains("pg_control_system");
        assert_eq!(is_told, mode != WriteMode::Replace, "{mode:?}: {says}");
    }
}

#[test]
fn a_column_of_the_owner_is_not_taken_for_one_that_the_source_dropped() {
    for owner in [
        // The run dropped it, and somebody made another one.
        "ALTER TABLE src.t DROP b; SELECT 1",
        "ALTER TABLE raw.t DROP b; ALTER TABLE raw.t ADD b text; ALTER TABLE src.t DROP b",
        "CREATE TABLE raw.n (LIKE raw.t); DROP TABLE raw.t; ALTER TABLE raw.n RENAME TO t; ALTER TABLE src.t DROP b",
        // Another table inherits the column.
        "CREATE TABLE raw.child () INHERITS (raw.t); ALTER TABLE src.t DROP b",
    ] {
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        execute(&mut client, SOURCE);
        let (mode, changes) = (WriteMode::Append, with_drop());
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        execute(&mut client, owner);
        if owner.ends_with('1') {
            write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
            execute(&mut client, "ALTER TABLE raw.t ADD b text");
        }
        execute(&mut client, SECOND);
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        assert!(columns(&mut client).ends_with(", b text"), "{owner}");
    }
}

#[test]
fn a_column_that_two_sources_fill_is_neither_dropped_nor_renamed() {
    for change in [
        "ALTER TABLE src.t DROP b",
        "ALTER TABLE src.t RENAME b TO c",
    ] {
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        execute(&mut client, SOURCE);
        execute(
            &mut client,
            "CREATE TABLE src.u AS SELECT id + 10 AS id, a, b FROM src.t",
        );
        let (mode, changes) = (WriteMode::Append, with_drop());
        for table in ["t", "u"] {
            let batch = read(&mut client, table);
            let target = target_of(&batch, mode, changes);
            let config = json!({"schema": "raw", "table": "t"});
            let mut to = open_with(&database.url(), config);
            let target = Target {
                stream: table.into(),
                ..target
            };
            write_to(&mut to, &target, std::slice::from_ref(&batch)).unwrap();
        }
        execute(&mut client, &format!("{change}; {SECOND}"));
        let batch = read(&mut client, "t");
        let says = warnings(&mut to, &batch, mode, changes);
        assert!(
            says.contains("b stays") && says.contains("another stream fills it"),
            "{says}"
        );
        write_by(&mut to, &batch, mode, changes).unwrap();
        assert!(columns(&mut client).contains(", b text"), "{change}");
    }
}

#[test]
fn an_earlier_state_of_the_source_proves_nothing() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let (mode, changes) = (WriteMode::Append, with_drop());
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    // As if the source had come from a backup since.
    execute(
        &mut client,
        "UPDATE _rapidbyte.checkpoint SET origins = jsonb_set(origins, '{xid}', '4000000000'); \
         ALTER TABLE src.t RENAME b TO c",
    );
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    assert_eq!(columns(&mut client), "id bigint!, a text!, b text, c text");
    // The run replaces an invalid or missing record.
    for origins in [
        "'1'",
        "'{}'",
        "'{\"relation\": \"r\", \"columns\": [1]}'",
        "NULL",
    ] {
        execute(
            &mut client,
            &format!("UPDATE _rapidbyte.checkpoint SET origins = {origins}"),
        );
        write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
        let kept = one(
            &mut client,
            "SELECT jsonb_typeof(origins -> 'columns') FROM _rapidbyte.checkpoint",
        );
        assert_eq!(kept, "object", "{origins}");
    }
}

#[test]
fn a_role_that_may_not_rename_a_column_gets_the_statement() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, SOURCE);
    let mode = WriteMode::Append;
    let changes = SchemaChanges::default();
    write_by(&mut open(&database), &read(&mut client, "t"), mode, changes).unwrap();
    execute(
        &mut client,
        "CREATE ROLE renamer LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA raw TO renamer; GRANT ALL ON raw.t TO renamer; \
         ALTER TABLE src.t RENAME b TO c",
    );
    may_checkpoint(&mut client, "renamer");
    let mut to = open_with(&database.url_of("renamer", "p"), json!({"schema": "raw"}));
    let error = write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap_err();
    assert_eq!(error.code, "column_refused", "{error:?}");
    assert!(
        error
            .message
            .contains("ALTER TABLE raw.t RENAME COLUMN b TO c"),
        "{error:?}"
    );
    // Columns that exchange their names fit by name, and must not be mixed.
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME c TO b; ALTER TABLE src.t RENAME a TO x; ALTER TABLE src.t RENAME b TO a; \
         ALTER TABLE src.t RENAME x TO b",
    );
    let error = write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap_err();
    assert_eq!(error.code, "columns_renamed", "{error:?}");
    let hint = error.hint.unwrap();
    assert!(
        hint.contains("have the owner run: ALTER TABLE raw.t RENAME COLUMN"),
        "{hint}"
    );
    execute(&mut client, "DROP OWNED BY renamer; DROP ROLE renamer");
}

#[test]
fn the_column_that_marks_deleted_rows_is_not_exchanged_unnoticed() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, SOURCE);
    let (mode, changes) = (WriteMode::Upsert, SchemaChanges::default());
    let mut to = open(&database);
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME b TO gone; ALTER TABLE src.t ADD b text",
    );
    let batch = read(&mut client, "t");
    let target = |field: &str| Target {
        deleted_field: Some(field.into()),
        ..target_of(&batch, mode, changes)
    };
    let error = to.plan(&target("b")).unwrap_err();
    assert_eq!(error.code, "columns_renamed", "{error:?}");
    assert_eq!(error.hint.as_deref(), Some("set deleted_field: gone"));
    to.plan(&target("gone")).unwrap();
}

#[test]
fn a_key_whose_columns_exchanged_their_names_is_reported_by_its_new_names() {
    let database = database();
    let mut client = database.client();
    execute(&mut client, SOURCE);
    execute(
        &mut client,
        "ALTER TABLE src.t ADD k bigint NOT NULL DEFAULT 0",
    );
    let (mode, changes) = (WriteMode::Upsert, SchemaChanges::default());
    let mut to = open(&database);
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME id TO x; ALTER TABLE src.t RENAME k TO id; ALTER TABLE src.t RENAME x TO k",
    );
    let batch = read(&mut client, "t");
    let target = |key: &str| Target {
        primary_key: vec![key.into()],
        ..target_of(&batch, mode, changes)
    };
    let error = to.plan(&target("id")).unwrap_err();
    assert_eq!(error.code, "no_unique_index", "{error:?}");
    let hint = error.hint.unwrap();
    assert!(hint.starts_with("set primary_key: [k]: "), "{hint}");
    assert!(
        hint.contains("(id is now k)") && hint.contains("CREATE UNIQUE INDEX"),
        "{hint}"
    );
    to.plan(&target("k")).unwrap();
}

#[test]
fn a_load_that_was_given_up_leaves_columns_that_are_known() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let (mode, changes) = (WriteMode::Append, with_drop());
    execute(&mut client, SOURCE);
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    execute(&mut client, "ALTER TABLE src.t ADD c text, ADD d text");
    let batch = read(&mut client, "t");
    begin(&mut to, &target_of(&batch, mode, changes))
        .unwrap()
        .abort()
        .unwrap();
    assert_eq!(
        columns(&mut client),
        "id bigint!, a text!, b text, c text, d text"
    );
    execute(
        &mut client,
        &format!("ALTER TABLE src.t DROP c; ALTER TABLE src.t RENAME d TO e; {SECOND}"),
    );
    write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
    assert_eq!(columns(&mut client), "id bigint!, a text!, b text, e text");
}

#[test]
fn a_renamed_key_stays_the_key_and_off_takes_it_for_a_new_column() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let upsert = |to: &mut Session, batch: &RecordBatch, key: &str, changes: SchemaChanges| {
        let target = Target {
            primary_key: vec![key.into()],
            ..target_of(batch, WriteMode::Upsert, changes)
        };
        write_to(to, &target, std::slice::from_ref(batch))
    };
    upsert(
        &mut to,
        &read(&mut client, "t"),
        "id",
        SchemaChanges::default(),
    )
    .unwrap();
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME id TO key; UPDATE src.t SET b = 'new'",
    );
    upsert(
        &mut to,
        &read(&mut client, "t"),
        "key",
        SchemaChanges::default(),
    )
    .unwrap();
    let all = "SELECT string_agg(x::text, ' ') FROM raw.t x";
    assert_eq!(one(&mut client, all), "(1,x,new)");
    let off = SchemaChanges {
        renamed: RenamedColumn::Off,
        ..SchemaChanges::default()
    };
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME b TO d; UPDATE src.t SET d = 'newer'",
    );
    upsert(&mut to, &read(&mut client, "t"), "key", off).unwrap();
    assert_eq!(one(&mut client, all), "(1,x,new,newer)");
}

#[test]
fn an_append_with_a_lag_knows_its_rows_by_a_renamed_key() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(&mut client, SOURCE);
    let append = |to: &mut Session, batch: &RecordBatch, key: &str, version: &str| {
        let target = Target {
            primary_key: vec![key.into()],
            dedup_fields: vec![version.into()],
            ..target_of(batch, WriteMode::Append, SchemaChanges::default())
        };
        write_to(to, &target, std::slice::from_ref(batch)).unwrap();
    };
    append(&mut to, &read(&mut client, "t"), "id", "b");
    execute(
        &mut client,
        "ALTER TABLE src.t RENAME id TO key; ALTER TABLE src.t RENAME b TO version",
    );
    append(&mut to, &read(&mut client, "t"), "key", "version");
    let all = "SELECT string_agg(x::text, ' ') FROM raw.t x";
    assert_eq!(one(&mut client, all), "(1,x,y)");
}

#[test]
fn a_dependent_object_keeps_its_column_as_it_is() {
    for (tie, what) in [
        ("CREATE VIEW raw.w AS SELECT a FROM raw.t", "view raw.w"),
        (
            "CREATE UNIQUE INDEX both_of ON raw.t (b, a)",
            "index raw.both_of",
        ),
        (
            "ALTER TABLE raw.t ADD CONSTRAINT not_both CHECK (a <> id::text)",
            "constraint not_both",
        ),
    ] {
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        let mode = WriteMode::Append;
        execute(&mut client, SOURCE);
        execute(&mut client, "ALTER TABLE src.t ALTER a TYPE varchar(3)");
        write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
        execute(&mut client, &format!("{tie}; CREATE INDEX ON raw.t (a)"));
        execute(
            &mut client,
            "ALTER TABLE src.t ALTER a TYPE varchar(5); UPDATE src.t SET id = 2, b = 'z'",
        );
        // Values that fit go in all the same.
        write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
        let type_of_a = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute \
            WHERE attrelid = 'raw.t'::regclass AND attname = 'a'";
        let kept = one(&mut client, type_of_a) == "character varying(3)";
        assert_eq!(kept, what.starts_with("view"), "{what}");
        execute(
            &mut client,
            "ALTER TABLE src.t DROP COLUMN a; UPDATE src.t SET id = 3, b = 'w'",
        );
        let says = warnings(&mut to, &read(&mut client, "t"), mode, with_drop());
        assert!(
            says.contains("a stays, although") && says.contains(what),
            "{what}: {says}"
        );
        write_by(&mut to, &read(&mut client, "t"), mode, with_drop()).unwrap();
        assert!(
            columns(&mut client).contains("a character varying"),
            "{what}"
        );
    }
}

#[test]
fn a_wider_column_keeps_its_collation() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    execute(
        &mut client,
        "CREATE SCHEMA raw; CREATE TABLE raw.t (v varchar(3) COLLATE \"C\" UNIQUE)",
    );
    let batch = of_postgres(varchar(9), "longer");
    write_by(&mut to, &batch, WriteMode::Append, SchemaChanges::default()).unwrap();
    let collation = "SELECT collname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute a \
        JOIN pg_collation c ON c.oid = a.attcollation WHERE attrelid = 'raw.t'::regclass AND attname = 'v'";
    assert_eq!(one(&mut client, collation), "C character varying(9)");
}

#[test]
fn a_stream_without_a_column_of_its_table_is_refused() {
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let ignore = SchemaChanges {
        new_column: NewColumn::Ignore,
        ..SchemaChanges::default()
    };
    write_by(&mut to, &row(1, &[("a", "x")]), WriteMode::Append, ignore).unwrap();
    let column: ArrayRef = Arc::new(StringArray::from(vec!["2;y"]));
    let schema = Schema::new(vec![Field::new("id;a", DataType::Utf8, true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    for (mode, changes) in [
        (WriteMode::Replace, SchemaChanges::default()),
        (WriteMode::Append, ignore),
    ] {
        let error = write_by(&mut to, &batch, mode, changes).unwrap_err();
        assert_eq!(error.code, "no_common_column", "{error:?}");
        assert!(
            error
                .message
                .contains("it has \"id;a\", and the table has id, a"),
            "{error:?}"
        );
        assert_eq!(rows(&mut client), "(1,x)");
    }
    // Each run warns about the values that it leaves out.
    let says = warnings(
        &mut to,
        &row(2, &[("a", "x"), ("b", "y")]),
        WriteMode::Append,
        ignore,
    );
    assert!(
        says.contains("their values are left out") && says.ends_with("ignore: b"),
        "{says}"
    );
}

#[test]
fn a_new_column_whose_type_means_another_thing_is_refused_before_it_is_added() {
    for (there, here) in [
        ("CREATE DOMAIN src.d AS text", "CREATE DOMAIN src.d AS int8"),
        (
            "CREATE TYPE src.d AS ENUM ('a')",
            "CREATE TYPE src.d AS ENUM ('a', 'b')",
        ),
    ] {
        let source = database();
        let mut client = source.client();
        execute(
            &mut client,
            &format!("{SOURCE}; {here}; ALTER TABLE src.t ADD d src.d"),
        );
        let batch = read(&mut client, "t");
        let database = database();
        let mut client = database.client();
        let mut to = open(&database);
        let mode = WriteMode::Append;
        write_by(
            &mut to,
            &without(&batch, &["d"]),
            mode,
            SchemaChanges::default(),
        )
        .unwrap();
        execute(&mut client, &format!("CREATE SCHEMA src; {there}"));
        let plan = to
            .plan(&target_of(&batch, mode, SchemaChanges::default()))
            .unwrap();
        let fit = plan.columns.last().unwrap();
        assert_eq!(fit.fit, Fit::Refused, "{plan:?}");
        assert!(plan.statements.is_empty(), "{plan:?}");
        let error = write_by(&mut to, &batch, mode, SchemaChanges::default()).unwrap_err();
        assert_eq!(error.code, "column_refused", "{error:?}");
        assert!(!columns(&mut client).contains("d src.d"), "{there}");
        // The same in a table that is to be made.
        let other = Target {
            stream: "u".into(),
            ..target_of(&batch, mode, SchemaChanges::default())
        };
        let plan = to.plan(&other).unwrap();
        assert_eq!(plan.columns.last().unwrap().fit, Fit::Refused, "{plan:?}");
    }
}

#[test]
fn labels_come_for_an_enum_and_its_array_at_once() {
    let source = database();
    let mut from = source.client();
    execute(
        &mut from,
        &format!(
            "{SOURCE}; CREATE TYPE src.mood AS ENUM ('a'); ALTER TABLE src.t ADD m src.mood, ADD ms src.mood[]"
        ),
    );
    let database = database();
    let mut client = database.client();
    let mut to = open(&database);
    let target =
        |batch: &RecordBatch| target_of(batch, WriteMode::Append, SchemaChanges::default());
    let made = to.plan(&target(&read(&mut from, "t"))).unwrap();
    for statement in &made.statements {
        execute(&mut client, statement);
    }
    execute(&mut from, "ALTER TYPE src.mood ADD VALUE 'b' BEFORE 'a'");
    let plan = to.plan(&target(&read(&mut from, "t"))).unwrap();
    let added = "ALTER TYPE src.mood ADD VALUE IF NOT EXISTS 'b' BEFORE 'a'".to_owned();
    assert_eq!(
        plan.statements.iter().filter(|sql| **sql == added).count(),
        1,
        "{plan:?}"
    );
    assert!(
        plan.columns.iter().all(|column| column.fit == Fit::Exact),
        "{plan:?}"
    );
    let warns = |plan: &rapidbyte_sdk::Plan| {
        plan.notes
            .iter()
            .any(|note| note.contains("renamed a label"))
    };
    assert!(!warns(&plan), "{plan:?}");
    // A renamed label is a new one beside the older one.
    execute(&mut from, "ALTER TYPE src.mood RENAME VALUE 'a' TO 'z'");
    let plan = to.plan(&target(&read(&mut from, "t"))).unwrap();
    assert!(warns(&plan), "{plan:?}");
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
        // A date does not become a number, even with `rewrite`.
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
    // A text of a file carries no length, so the run keeps the length of the table.
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
fn a_role_that_does_not_own_the_table_gets_the_statement() {
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
fn values_of_two_columns_are_not_mixed_where_the_target_cannot_follow_a_rename() {
    let exchange = "ALTER TABLE src.t RENAME a TO x; ALTER TABLE src.t RENAME b TO a; ALTER TABLE src.t RENAME x TO b";
    let fails = |field: &str| match field {
        "dropped" => SchemaChanges {
            dropped_column: DroppedColumn::Fail,
            renamed: RenamedColumn::Off,
            ..SchemaChanges::default()
        },
        _ => SchemaChanges::default(),
    };
    for (before, change, policy, hint) in [
        // The target has a column of the new name that is not the source's.
        (
            "ALTER TABLE raw.t ADD note text DEFAULT 'own'",
            "ALTER TABLE src.t RENAME b TO note",
            "",
            "rename or drop the column note of raw.t",
        ),
        // The usual way of changing a type: a column with the new type takes the place of the old one.
        (
            "SELECT 1",
            "ALTER TABLE src.t DROP a; ALTER TABLE src.t RENAME b TO a",
            "",
            "ALTER TABLE raw.t DROP COLUMN a; ALTER TABLE raw.t RENAME COLUMN b TO a",
        ),
        ("SELECT 1", exchange, "dropped", "their defaults"),
        (
            "SELECT 1",
            "ALTER TABLE src.t DROP b; ALTER TABLE src.t ADD b text",
            "dropped",
            "their defaults",
        ),
    ] {
        for mode in [WriteMode::Append, WriteMode::Upsert] {
            let database = database();
            let mut client = database.client();
            let mut to = open(&database);
            execute(&mut client, SOURCE);
            let changes = SchemaChanges::default();
            write_by(&mut to, &read(&mut client, "t"), mode, changes).unwrap();
            execute(&mut client, before);
            execute(&mut client, &format!("{change}; {SECOND}"));
            let batch = read(&mut client, "t");
            let error = to
                .plan(&target_of(&batch, mode, fails(policy)))
                .unwrap_err();
            assert_eq!(error.code, "columns_renamed", "{change}: {error:?}");
            assert!(
                error.hint.as_deref().unwrap_or_default().contains(hint),
                "{error:?}"
            );
            if let Some((_, statements)) = hint.split_once("ALTER") {
                execute(&mut client, &format!("ALTER{statements}"));
                write_by(&mut to, &batch, mode, changes).unwrap();
                assert_eq!(rows(&mut client), "(1,y) (2,y)", "{mode:?}");
            }
            let off = SchemaChanges {
                renamed: RenamedColumn::Off,
                ..changes
            };
            write_by(&mut to, &batch, mode, off).unwrap();
            // All rows are new.
            to.plan(&target_of(&batch, WriteMode::Replace, changes))
                .unwrap();
        }
    }
}

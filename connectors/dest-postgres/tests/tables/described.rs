//! Descriptions of columns that whoever writes a file or a body can forge, or that a program has not kept up with its
//! values.

use std::sync::Arc;

use crate::common::*;
use crate::relations::each_way;
use rapidbyte_pg::builtin::{BPCHAR, Builtin, INT4, JSONB, TEXT, TIMESTAMP, VARCHAR};
use rapidbyte_pg::form;
use rapidbyte_pg::{Column, Kind, PgType};
use rapidbyte_sdk::prelude::arrow_array::builder::{ListBuilder, StringBuilder};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{Error, Result, Schema, Target, WriteMode};
use rapidbyte_sdk::{DroppedColumn, NewColumn, RenamedColumn, SchemaChanges, TypeChange};
use serde_json::json;

fn user(schema: &str, name: &str, kind: Kind) -> PgType {
    PgType {
        oid: 20_000,
        schema: schema.into(),
        name: name.into(),
        kind,
    }
}

/// A column `c` of an enum that the target lacks.
fn of_enum(schema: &str, name: &str) -> Column {
    let labels = vec!["a".into()];
    let ty = user(schema, name, Kind::Enum { labels });
    let text = ty.text(-1);
    Column::new("c", ty, text)
}

/// A row `a` in this column.
fn row(column: &Column) -> RecordBatch {
    let schema = Schema::new(vec![form::field(column, false)]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
}

fn place(result: Result<impl std::fmt::Debug>) -> (String, Option<String>, Option<String>) {
    let error: Error = result.unwrap_err();
    (error.code, error.stream, error.column)
}

/// A table and a type of a schema cannot have one name.
#[test]
fn no_type_takes_a_name_that_a_table_needs() {
    each_way("", |method, client, to| {
        let stream = "raw.orders";
        for (schema, name) in [
            ("raw", "orders"),
            ("_rapidbyte", "schema_change"),
            ("_rapidbyte", "anything"),
            ("raw", "rapidbyte_swap_0000000000000000"),
        ] {
            let refused = append(to, stream, &row(&of_enum(schema, name)));
            assert_eq!(
                place(refused),
                (
                    "reserved_type_name".into(),
                    Some(stream.into()),
                    Some("c".into())
                ),
                "{schema}.{name} {method}"
            );
        }
        for name in ["citext", "hstore"] {
            let refused = append(to, stream, &row(&of_enum("public", name)));
            assert_eq!(place(refused).0, "missing_type", "{name} {method}");
        }
        let sql = "SELECT count(*) FROM pg_type WHERE typtype = 'e'";
        assert_eq!(one(client, sql), "0", "{method}");
        append(to, stream, &row(&of_enum("raw", "order"))).unwrap();
    });
}

#[test]
fn no_stream_makes_a_type_under_the_name_of_the_table_of_another() {
    let database = database();
    let orders = |to: &mut Session| plan(to, "raw.orders", &batch(&[1]));
    let types = |to: &mut Session| plan(to, "raw.b", &row(&of_enum("raw", "orders")));
    for is_first in [true, false] {
        let mut to = open_with(&database.url(), json!({}));
        let second = match is_first {
            true => orders(&mut to).and_then(|_| types(&mut to)),
            false => types(&mut to).and_then(|_| orders(&mut to)),
        };
        let (code, ..) = place(second);
        assert_eq!(code, "reserved_type_name", "{is_first}");
    }
}

#[test]
fn no_type_takes_the_name_of_the_table_of_a_stream_that_is_not_planned() {
    let database = database();
    let orders = target("raw.orders", &batch(&[1]).schema(), WriteMode::Append);
    let ask = |to: &mut Session| to.progress(&orders, "p");
    let types = |to: &mut Session| plan(to, "raw.b", &row(&of_enum("raw", "orders")));
    let mut to = open_with(&database.url(), json!({}));
    ask(&mut to).unwrap();
    assert_eq!(place(types(&mut to)).0, "reserved_type_name");
    let mut to = open_with(&database.url(), json!({}));
    types(&mut to).unwrap();
    let refused = place(ask(&mut to));
    assert_eq!(
        (refused.0.as_str(), refused.1.as_deref()),
        ("reserved_type_name", Some("raw.orders"))
    );
}

#[test]
fn a_type_that_stands_in_the_way_of_a_table_is_named_with_the_way_out() {
    let sql = "CREATE TYPE raw.orders AS ENUM ('a'); CREATE DOMAIN raw.plain AS text; \
               CREATE TYPE raw.x AS ENUM ('a')";
    each_way(sql, |method, client, to| {
        for stream in ["raw.orders", "raw.plain"] {
            let error = append(to, stream, &batch(&[1])).unwrap_err();
            assert_eq!(error.code, "type_in_the_way", "{method}");
            let hint = error.hint.unwrap();
            let rename = hint.strip_prefix("run on the target: ").unwrap();
            let (rename, _) = rename.split_once(", or DROP").unwrap();
            client.batch_execute(rename).unwrap();
            append(to, stream, &batch(&[1])).unwrap();
        }
        // The server gives the array of a type another name.
        append(to, "raw._x", &batch(&[1])).unwrap();
    });
}

#[test]
fn a_description_that_disagrees_with_itself_is_refused_before_anything_is_made() {
    let domain = |base: PgType, typmod: i32, base_text: &str| {
        let kind = Kind::Domain {
            base: Box::new(base),
            typmod,
            base_text: base_text.into(),
            not_null: false,
            checks: Vec::new(),
            default: None,
        };
        Column::new("c", user("app", "d", kind), "app.d")
    };
    for column in [
        Column::new("c", TIMESTAMP.ty(), "timestamp(0) without time zone"),
        Column::new("c", TEXT.ty(), "integer"),
        Column::new("c", INT4.ty(), "text"),
        Column::new("c", VARCHAR.ty(), "character varying(3)"),
        domain(VARCHAR.ty(), -1, "character varying(3)"),
        domain(TEXT.ty(), -1, "integer"),
    ] {
        each_way("", |method, client, to| {
            let schema = Schema::new(vec![form::field(&column, false)]);
            let planned = to.plan(&target("raw.t", &schema, WriteMode::Append));
            assert_eq!(
                place(planned),
                (
                    "invalid_metadata".into(),
                    Some("raw.t".into()),
                    Some("c".into())
                ),
                "{column:?} {method}"
            );
            let sql = "SELECT count(*) FROM pg_type WHERE typname IN ('t', 'd')";
            assert_eq!(one(client, sql), "0");
        });
    }
}

/// The description says how long the texts are, and they are longer: the server would cut blanks at their end.
#[test]
fn texts_that_are_longer_than_their_description_are_refused_with_their_blanks() {
    let described = |of: Builtin, text: &str| Column {
        typmod: 3 + 4,
        type_text: text.into(),
        ..of.column("c")
    };
    let domain = PgType {
        oid: 20_000,
        schema: "raw".into(),
        name: "short".into(),
        kind: Kind::Domain {
            base: Box::new(VARCHAR.ty()),
            typmod: 3 + 4,
            base_text: "character varying(3)".into(),
            not_null: false,
            checks: Vec::new(),
            default: None,
        },
    };
    let list = Column {
        typmod: 3 + 4,
        dimensions: 1,
        ..Column::new("c", VARCHAR.array_ty(), "character varying(3)[]")
    };
    let array = |is_list: bool, text: &str| -> ArrayRef {
        if !is_list {
            return Arc::new(StringArray::from(vec!["ab ", text]));
        }
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("ab ")]);
        lists.append_value([None, Some(text)]);
        Arc::new(lists.finish())
    };
    for (table, column, is_list) in [
        ("v", described(VARCHAR, "character varying(3)"), false),
        ("p", described(BPCHAR, "character(3)"), false),
        ("d", Column::new("c", domain, "raw.short"), false),
        ("l", list, true),
    ] {
        let schema = Arc::new(Schema::new(vec![form::field(&column, false)]));
        each_way("", |_, client, to| {
            let rows =
                |text| RecordBatch::try_new(schema.clone(), vec![array(is_list, text)]).unwrap();
            append(to, table, &rows("äb ")).unwrap();
            // Blanks at the end of a character(n) are padding, whoever wrote them.
            let too_long = if table == "p" { "abcd" } else { "ab    " };
            let error = append(to, table, &rows(too_long)).unwrap_err();
            assert_eq!(
                (error.code.as_str(), error.column.as_deref()),
                ("value_does_not_fit", Some("c")),
                "{table}: {error:?}"
            );
            let sql = format!("SELECT count(*) FROM raw.{table}");
            assert_eq!(one(client, &sql), "2");
        });
    }
}

#[test]
fn two_types_of_one_name_are_refused_before_anything_is_made() {
    let named = |name: &str, label: &str| {
        let labels = vec![label.to_owned()];
        let ty = user("app", "e", Kind::Enum { labels });
        Column::new(name, ty, "app.e")
    };
    let below = Kind::Domain {
        base: Box::new(named("c", "a").ty),
        typmod: -1,
        base_text: "app.e".into(),
        not_null: false,
        checks: Vec::new(),
        default: None,
    };
    let below = Column::new("c", user("app", "e", below), "app.e");
    for columns in [vec![named("b", "b"), named("c", "a")], vec![below]] {
        each_way("", |method, client, to| {
            let fields = columns.iter().map(|column| form::field(column, false));
            let schema = Schema::new(fields.collect::<Vec<_>>());
            let planned = to.plan(&target("raw.t", &schema, WriteMode::Append));
            assert_eq!(
                place(planned),
                (
                    "invalid_metadata".into(),
                    Some("raw.t".into()),
                    Some("c".into())
                ),
                "{method}"
            );
            let sql = "SELECT count(*) FROM pg_type WHERE typname = 'e'";
            assert_eq!(one(client, sql), "0");
        });
    }
}

/// Documents that are said to come from a jsonb, which has no key twice.
#[test]
fn documents_with_a_repeated_key_do_not_pass_as_jsonb() {
    let schema = Arc::new(Schema::new(vec![form::field(&JSONB.column("c"), false)]));
    let rows = |text: &str| {
        let values: ArrayRef = Arc::new(StringArray::from(vec![text]));
        RecordBatch::try_new(schema.clone(), vec![values]).unwrap()
    };
    each_way("", |method, client, to| {
        let error = append(to, "t", &rows(r#"{"a": 1, "a": 2}"#)).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.column.as_deref()),
            ("value_does_not_fit", Some("c")),
            "{method}"
        );
        append(to, "t", &rows(r#"{"b": 1, "a": 2}"#)).unwrap();
        assert_eq!(one(client, "SELECT c FROM raw.t"), r#"{"a": 2, "b": 1}"#);
    });
}

/// The columns of `raw.t` with the schemas and types of the database.
const SHAPE: &str = "SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) \
     || '; ' || enum_range(NULL::raw.mood)::text || '; ' || (SELECT count(*) FROM pg_type WHERE typtype IN ('d', 'e')) \
     || '; ' || (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^(pg|_rapidbyte)') FROM pg_attribute a \
     WHERE a.attrelid = 'raw.t'::regclass AND a.attnum > 0";

/// The documentation names this setting for tables that clients fill (SECURITY.md, docs/guides/serve.md).
#[test]
fn a_frozen_table_keeps_its_schema_whatever_a_body_describes() {
    let sql = "CREATE TYPE raw.mood AS ENUM ('a'); CREATE TABLE raw.t (m raw.mood, v varchar(3))";
    let labels = vec!["a".into(), "b".into()];
    let mood = Column {
        name: "m".into(),
        ..Column::new("m", user("raw", "mood", Kind::Enum { labels }), "raw.mood")
    };
    let longer = Column {
        typmod: -1,
        ..TEXT.column("v")
    };
    let new = of_enum("other", "new");
    let frozen = SchemaChanges {
        new_column: NewColumn::Fail,
        dropped_column: DroppedColumn::Fail,
        type_change: TypeChange::Fail,
        renamed: RenamedColumn::Off,
    };
    for columns in [
        vec![&mood, &longer],
        vec![&mood, &longer, &new],
        vec![&longer],
    ] {
        each_way(sql, |method, client, to| {
            let before = one(client, SHAPE);
            let fields = columns.iter().map(|column| form::field(column, false));
            let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let values = columns.iter().map(|_| {
                let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
                values
            });
            let rows = RecordBatch::try_new(schema.clone(), values.collect()).unwrap();
            let by_default = target("raw.t", &schema, WriteMode::Append);
            let target = Target {
                schema_changes: frozen,
                ..by_default.clone()
            };
            write_to(to, &target, std::slice::from_ref(&rows)).unwrap_err();
            assert_eq!(one(client, SHAPE), before, "{method}");
            // Without the setting, the same description changes the table.
            write_to(to, &by_default, &[rows]).unwrap();
            assert_ne!(one(client, SHAPE), before, "{method}");
        });
    }
}

/// `ADD COLUMN` would write the default into rows for which nobody has said it.
#[test]
fn older_rows_do_not_get_the_default_of_a_domain() {
    let domain = |base: PgType, name: &str, not_null: bool| {
        let base_text = match &base.kind {
            Kind::Domain { .. } => base.text(-1),
            _ => "text".to_owned(),
        };
        let kind = Kind::Domain {
            base: Box::new(base),
            typmod: -1,
            base_text,
            not_null,
            checks: Vec::new(),
            default: None,
        };
        let ty = user("raw", name, kind);
        let text = ty.text(-1);
        Column::new(name, ty, text)
    };
    let plain = domain(TEXT.ty(), "plain", false);
    let columns = [
        plain.clone(),
        domain(plain.ty.clone(), "below", false),
        domain(TEXT.ty(), "filled", true),
    ];
    let sql = "CREATE DOMAIN raw.plain AS text DEFAULT 'x'; CREATE DOMAIN raw.below AS raw.plain; \
               CREATE DOMAIN raw.filled AS text DEFAULT 'y' NOT NULL; \
               CREATE TABLE raw.t (id int); INSERT INTO raw.t VALUES (1)";
    each_way(sql, |method, client, to| {
        let id = Column::new("id", INT4.ty(), "integer");
        let fields = [&id].into_iter().chain(&columns);
        let fields: Vec<_> = fields.map(|column| form::field(column, false)).collect();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![2]));
        let values = vec![ids, texts.clone(), texts.clone(), texts];
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), values).unwrap();
        let target = target("raw.t", &rows.schema(), WriteMode::Append);
        let notes = to.plan(&target).unwrap().notes.join("\n");
        let warnings = notes.matches("older rows get the default of the domain");
        assert_eq!(warnings.count(), 1, "{method}: {notes}");
        write_to(to, &target, &[rows]).unwrap();
        let sql = "SELECT string_agg(concat_ws(',', id, COALESCE(plain, '-'), COALESCE(below, '-'), filled), ' ' ORDER BY id) \
                   FROM raw.t";
        assert_eq!(one(client, sql), "1,-,-,y 2,a,a,a", "{method}");
        // A program that leaves the column out gets the default of the domain, as in a table that is new.
        client
            .batch_execute("INSERT INTO raw.t (id, filled) VALUES (3, 'b')")
            .unwrap();
        let sql = "SELECT plain || below FROM raw.t WHERE id = 3";
        assert_eq!(one(client, sql), "xx", "{method}");
    });
}

//! The server changes some values silently: it rounds, cuts and pads. The destination stores a value as it
//! is, or its error names the column.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::prelude::arrow_array::builder::{ListBuilder, StringBuilder};
use rapidbyte_sdk::prelude::arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{DataType, Error, Field, Schema, Target, WriteMode};
use rapidbyte_sdk::types;
use serde_json::json;

/// One column `v` of text.
fn texts(values: &[Option<&str>]) -> RecordBatch {
    let column: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
    let schema = Schema::new(vec![Field::new("v", DataType::Utf8, true)]);
    RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap()
}

/// Writes one text into a new table `raw.t (v <type>)` and reads it back.
fn through(method: &str, ty: &str, value: &RecordBatch) -> Result<String, Error> {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(&format!(
            "CREATE SCHEMA raw; CREATE TYPE raw.pair AS (n numeric(4,2), t varchar(3)); \
             CREATE DOMAIN raw.cents AS numeric(4,2); CREATE TYPE raw.whole AS (n numeric); \
             CREATE TABLE raw.t (v {ty})"
        ))
        .unwrap();
    let config = json!({"schema": "raw", "load_method": method});
    append(&mut open_with(&database.url(), config), "t", value)?;
    Ok(one(&mut client, "SELECT v FROM raw.t"))
}

#[test]
fn a_text_goes_into_a_shorter_column_whole_or_not_at_all() {
    for method in ["copy", "insert"] {
        for (ty, text, arrives) in [
            ("varchar(3)", "abc", Some("abc")),
            ("varchar(3)", "äöü", Some("äöü")),
            ("varchar(3)", "ab ", Some("ab ")),
            ("varchar(3)", "abc ", None),
            ("varchar(3)", "    ", None),
            ("varchar(3)", "abcd", None),
            ("char(3)", "ab", Some("ab ")),
            ("char(3)", "abc ", None),
            ("char(3)", "a  ", Some("a  ")),
            ("char(3)", "a ", None),
            ("char(3)", "äöüß", None),
        ] {
            match (through(method, ty, &texts(&[Some(text)])), arrives) {
                (Ok(found), Some(arrives)) => {
                    // Its cast to text takes the blanks of a char(n) away.
                    assert_eq!(found.trim_end(), arrives.trim_end(), "{ty} {text:?}");
                }
                (Err(error), None) => {
                    assert_eq!(error.code, "value_does_not_fit", "{ty} {text:?} {error:?}");
                    assert_eq!(error.column.as_deref(), Some("v"));
                    assert!(error.message.contains("row 1"), "{error:?}");
                }
                (found, _) => panic!("{method} {ty} {text:?}: {found:?}"),
            }
        }
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("abc"), Some("abc ")]);
        let list = lists.finish();
        let schema = Schema::new(vec![Field::new("v", list.data_type().clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(list) as ArrayRef]);
        let error = through(method, "varchar(3)[]", &batch.unwrap()).unwrap_err();
        assert_eq!(error.code, "value_does_not_fit", "{error:?}");
    }
}

#[test]
fn a_text_that_the_server_would_round_or_cut_is_refused_with_its_column() {
    for (ty, text, arrives) in [
        ("numeric(4,2)", "1.2", Some("1.20")),
        ("numeric(4,2)", "NaN", Some("NaN")),
        ("numeric(4,2)", "1.239", None),
        ("numeric(4,2)[]", "{1.2,NULL}", Some("{1.20,NULL}")),
        ("numeric(4,2)[]", "{1.2,1.239}", None),
        (
            "timestamp(0)",
            "2026-11-21 10:11:12.0",
            Some("2026-11-21 10:11:12"),
        ),
        ("timestamp(0)", "2026-11-21 10:11:12.5", None),
        ("timestamptz(3)", "2026-11-21 10:11:12.1234Z", None),
        ("time(1)", "10:11:12.55", None),
        ("timetz(1)", "10:11:12.55+01", None),
        ("interval(0)", "1 month 00:00:00.5", None),
        ("interval day", "1 day", Some("1 day")),
        ("interval day", "1 day 01:00", None),
        ("interval month", "1 month 1 day", None),
        ("bit(3)", "101", Some("101")),
        ("bit(3)", "1010", None),
        ("bit(3)", "10", None),
        ("bit", "11", None),
        ("varbit(3)", "10", Some("10")),
        ("varbit(3)", "1010", None),
        ("varbit(3)[]", "{1010}", None),
        ("varchar(3)[]", "{abc}", Some("{abc}")),
        ("varchar(3)[]", "{abcd}", None),
        ("char(3)[]", "{ab}", Some("{\"ab \"}")),
        ("char(3)[]", "{abcd}", None),
        ("char(3)[]", "{\"a  \",NULL}", Some("{\"a  \",NULL}")),
        ("char(3)[]", "{ab,\"a \"}", None),
        ("char(3)[]", "{\"abc \"}", None),
        ("char(3)[]", "{\"    \"}", None),
        ("\"char\"", "a", Some("a")),
        ("\"char\"", "ab", None),
        ("raw.cents", "1.2", Some("1.20")),
        ("raw.cents", "1.239", None),
        ("raw.whole", "(1.239)", Some("(1.239)")),
        ("numeric", "1.239", Some("1.239")),
        ("timestamp", "2020-01-01 00:00:00+05", None),
        ("date", "now", None),
        ("xid", "5000000000", None),
        ("date", "-4712-01-01", None),
        ("timestamp(0)", "-4712-01-01T00:00:00", None),
        ("timestamptz", "+12345-01-01T00:00:00Z", None),
        ("timestamptz", "0000-01-01T00:00:00Z", None),
        ("date", "4713-01-01 BC", Some("4713-01-01 BC")),
        ("cidr", "192.168", None),
        ("cidr", "192.168/16", Some("192.168.0.0/16")),
        ("cidr", "192.168.1.0", Some("192.168.1.0/32")),
        ("cidr[]", "{10.0.0.0/8,192.168}", None),
        ("money", "$1.005", None),
        ("real", "16777217", None),
        ("jsonb", r#"{"b": 1,  "a": 2}"#, Some(r#"{"a": 2, "b": 1}"#)),
        // For a dropped object, the server writes its number, which may belong to another object here.
        ("regclass", "-", Some("-")),
        ("regclass", "pg_class", Some("pg_class")),
        ("regclass", "99999", None),
        ("regtype", "integer", Some("integer")),
        ("regtype", "23", None),
        ("regoper", "0", Some("0")),
    ] {
        match (through("copy", ty, &texts(&[Some(text)])), arrives) {
            (Ok(found), Some(arrives)) => assert_eq!(found, arrives, "{ty} {text:?}"),
            (Err(error), None) => {
                assert_eq!(error.code, "value_does_not_fit", "{ty} {text:?} {error:?}");
                assert_eq!(error.column.as_deref(), Some("v"));
                let quoted = text.escape_debug().to_string();
                assert!(error.message.contains(&quoted), "{error:?}");
            }
            (found, _) => panic!("{ty} {text:?}: {found:?}"),
        }
    }
    for method in ["copy", "insert"] {
        for (json, code) in [
            (r#"{"a": 1, "a": 2}"#, "value_does_not_fit"),
            (r#"[{"b": {"a": 1, "\u0061": 2}}]"#, "value_does_not_fit"),
            ("{", "pg_22P02"),
        ] {
            let error = through(method, "jsonb", &texts(&[Some(json)])).unwrap_err();
            assert_eq!(error.code, code, "{json} {error:?}");
        }
    }
    let unread = through("copy", "integer[]", &texts(&[Some("[1]")])).unwrap_err();
    let named = (unread.code.as_str(), unread.column.as_deref());
    assert_eq!(named, ("pg_22P02", Some("v")), "{unread:?}");
    let null = through("copy", "numeric(4,2)", &texts(&[None])).unwrap();
    assert_eq!(null, "NULL");
    // Where parts are rounded nobody could see it.
    for ty in ["raw.pair", "raw.pair[]", "raw.cents[]"] {
        let error = through("copy", ty, &texts(&[Some("{}")])).unwrap_err();
        assert_eq!(error.code, "column_refused", "{ty} {error:?}");
        assert!(error.message.contains("round"), "{error:?}");
    }
}

/// `n` rows of the strings `id`, `a` and `b`. `refused` replaces some of them: (row, column, text).
fn numbered(n: usize, refused: &[(usize, usize, &str)]) -> RecordBatch {
    let text = |row: usize, column: usize| {
        let other = refused
            .iter()
            .find(|cell| (cell.0, cell.1) == (row, column));
        Some(other.map_or_else(|| row.to_string(), |cell| cell.2.to_owned()))
    };
    let column = |column| {
        let texts = (1..=n).map(|row| text(row, column));
        Arc::new(StringArray::from_iter(texts)) as ArrayRef
    };
    let fields = ["id", "a", "b"].map(|name| Field::new(name, DataType::Utf8, true));
    let columns = vec![column(0), column(1), column(2)];
    RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), columns).unwrap()
}

const SMALL: &str = "CREATE SCHEMA raw; CREATE DOMAIN raw.small AS int CHECK (VALUE < 5000); \
    CREATE TABLE raw.t (id int8 PRIMARY KEY, a raw.small, b int)";

#[test]
fn a_text_that_the_server_cannot_read_is_named_with_its_row_and_column() {
    for mode in [WriteMode::Append, WriteMode::Replace, WriteMode::Upsert] {
        for (cells, code, row, column, text) in [
            (&[(3000, 2, "1.0")][..], "pg_22P02", 3000, "b", "\"1.0\""),
            (&[(1, 0, "x")], "pg_22P02", 1, "id", "\"x\""),
            (
                &[(4000, 2, "99999999999")],
                "pg_22003",
                4000,
                "b",
                "\"99999999999\"",
            ),
            // Of a domain the server says neither the value nor the column.
            (
                &[(2500, 1, "6000"), (2501, 2, "y")],
                "pg_23514",
                2500,
                "a",
                "\"6000\"",
            ),
            (
                &[(3999, 1, "z"), (3999, 2, "y")],
                "pg_22P02",
                3999,
                "a",
                "\"z\"",
            ),
        ] {
            let database = database();
            database.client().batch_execute(SMALL).unwrap();
            let config = json!({"schema": "raw", "insert_rows": 700});
            let mut to = open_with(&database.url(), config);
            let whole = numbered(4000, cells);
            let target = Target {
                primary_key: vec!["id".into()],
                ..target("t", &whole.schema(), mode)
            };
            // The server's answer to one comes while the next one is on its way.
            let pieces = [
                (0, 1500),
                (1500, 400),
                (1900, 1100),
                (3000, 990),
                (3990, 10),
            ];
            let batches = pieces.map(|(first, rows)| whole.slice(first, rows));
            let error = write_to(&mut to, &target, &batches).unwrap_err();
            let found = (error.code.as_str(), error.column.as_deref());
            assert_eq!(found, (code, Some(column)), "{mode:?} {error:?}");
            let place = format!("row {row}, column {column:?}: ");
            let message = &error.message;
            assert!(message.starts_with(&place), "{mode:?} {error:?}");
            assert!(message.contains(text), "{mode:?} {error:?}");
            assert!(error.hint.is_some(), "{error:?}");
            // A text is not repeated whole.
            assert!(message.len() < 1000, "{error:?}");
            let rows = one(&mut database.client(), "SELECT count(*) FROM raw.t");
            assert_eq!(rows, "0", "{mode:?}");
        }
    }
}

#[test]
fn a_long_text_that_the_server_cannot_read_is_cut() {
    let database = database();
    let make = "CREATE SCHEMA raw; CREATE TABLE raw.t (id int8, a date, b xml)";
    database.client().batch_execute(make).unwrap();
    let long = "<".repeat(5000);
    let batch = numbered(
        3,
        &[(2, 1, &long), (1, 1, "2026-01-01"), (3, 1, "2026-01-02")],
    );
    let error = append(&mut open(&database), "t", &batch).unwrap_err();
    let shown = format!("the text {:?}… as date", "<".repeat(100));
    assert!(error.message.contains(&shown), "{error:?}");
    assert!(error.message.len() < 3000, "{}", error.message.len());
}

#[test]
fn json_that_the_server_cannot_read_is_named_with_its_row_in_the_stream() {
    let database = database();
    let make = "CREATE SCHEMA raw; CREATE TABLE raw.t (id text PRIMARY KEY, a jsonb, b text)";
    database.client().batch_execute(make).unwrap();
    for mode in [WriteMode::Append, WriteMode::Upsert] {
        let whole = numbered(40, &[(33, 1, "{\"a\": tru}")]);
        let target = Target {
            primary_key: vec!["id".into()],
            ..target("t", &whole.schema(), mode)
        };
        let mut to = open(&database);
        to.plan(&target).unwrap();
        let mut writer = begin(&mut to, &target).unwrap();
        // The server counts anew in each COPY.
        writer.write(&whole.slice(0, 10)).unwrap();
        writer.flush().unwrap();
        let error = (writer.write(&whole.slice(10, 30)))
            .and_then(|()| writer.flush())
            .unwrap_err();
        let found = (error.code.as_str(), error.column.as_deref());
        assert_eq!(found, ("pg_22P02", Some("a")), "{mode:?} {error:?}");
        let message = &error.message;
        assert!(
            message.starts_with("row 33, column \"a\": "),
            "{mode:?} {error:?}"
        );
        assert!(message.contains("tru"), "{mode:?} {error:?}");
    }
}

#[test]
fn a_year_with_a_sign_is_refused_with_the_way_to_read_it() {
    for (ty, text) in [
        ("date", "-4712-01-01"),
        ("timestamptz", " 0000-01-01T00:00:00Z"),
    ] {
        let error = through("copy", ty, &texts(&[Some(text)])).unwrap_err();
        let hint = error.hint.unwrap_or_default();
        assert!(
            hint.contains("declare the column as a date"),
            "{text:?}: {hint}"
        );
    }
    let error = through("copy", "date", &texts(&[Some("now")])).unwrap_err();
    assert!(!error.hint.unwrap_or_default().contains("declare"));
}

/// The same column, read from JSON.
fn from_json(batch: &RecordBatch) -> RecordBatch {
    let schema = Arc::new(types::mark_json_strings(&batch.schema()));
    RecordBatch::try_new(schema, batch.columns().to_vec()).unwrap()
}

/// A column of numeric without limits, whose values a source that infers types sends as texts.
#[test]
fn the_zero_of_a_float_with_a_sign_does_not_become_another_zero() {
    let inferred = |text: &str| {
        let batch = texts(&[Some(text)]);
        let field = types::mark_stored(batch.schema().field(0).clone());
        RecordBatch::try_new(Arc::new(Schema::new(vec![field])), batch.columns().to_vec()).unwrap()
    };
    for method in ["copy", "insert"] {
        for text in ["-0", "-0.0", "-0e5", "-0.00E-3"] {
            let error = through(method, "numeric", &inferred(text)).unwrap_err();
            assert_eq!(error.code, "value_does_not_fit", "{text} {error:?}");
        }
        for (text, arrives) in [
            ("0.0", "0.0"),
            ("-1e-3", "-0.001"),
            ("1e-0", "1"),
            ("NaN", "NaN"),
        ] {
            let found = through(method, "numeric", &inferred(text)).unwrap();
            assert_eq!(found, arrives, "{text}");
        }
        assert_eq!(through(method, "text", &inferred("-0.0")).unwrap(), "-0.0");
        // A text that is no float is a spelling.
        let spelled = through(method, "numeric", &texts(&[Some("-0.0")])).unwrap();
        assert_eq!(spelled, "0.0");
        let document = texts(&[Some(r#"{"a": [-0.0]}"#)]);
        let error = through(method, "jsonb", &document).unwrap_err();
        assert_eq!(error.code, "value_does_not_fit", "{error:?}");
        assert!(error.message.contains("-0"), "{error:?}");
        let kept = through(method, "json", &document).unwrap();
        assert_eq!(kept, r#"{"a": [-0.0]}"#);
    }
}

#[test]
fn a_string_from_json_is_stored_as_a_json_string() {
    let given = ["5", "null", "true", "{\"a\":1}", "", "a \"b\" \\ \n\u{1} é"];
    for method in ["copy", "insert"] {
        for ty in ["json", "jsonb"] {
            for text in given {
                let batch = from_json(&texts(&[Some(text)]));
                let found = through(method, ty, &batch).unwrap();
                assert_eq!(found, serde_json::to_string(text).unwrap(), "{method} {ty}");
            }
            let null = through(method, ty, &from_json(&texts(&[None]))).unwrap();
            assert_eq!(null, "NULL");
        }
        let mut lists = ListBuilder::new(StringBuilder::new());
        lists.append_value([Some("5"), None, Some("null")]);
        let list = lists.finish();
        let schema = Schema::new(vec![Field::new("v", list.data_type().clone(), true)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(list) as ArrayRef]);
        let found = through(method, "jsonb[]", &from_json(&batch.unwrap())).unwrap();
        assert_eq!(found, r#"{"\"5\"",NULL,"\"null\""}"#);
        // Into a text it is the text, and of a text from elsewhere the server reads a document.
        let text = through(method, "text", &from_json(&texts(&[Some("5")]))).unwrap();
        let document = through(method, "jsonb", &texts(&[Some("5")])).unwrap();
        assert_eq!((text.as_str(), document.as_str()), ("5", "5"));
        let nul = from_json(&texts(&[Some("\0")]));
        let error = through(method, "jsonb", &nul).unwrap_err();
        assert_eq!(error.code, "invalid_text", "{error:?}");
    }
}

#[test]
fn the_plan_says_how_texts_go_into_documents() {
    let database = database();
    let mut client = database.client();
    client
        .batch_execute(
            "CREATE SCHEMA raw; CREATE TABLE raw.json (v json); CREATE TABLE raw.jsonb (v jsonb)",
        )
        .unwrap();
    let mut to = open(&database);
    let batch = texts(&[]);
    for table in ["json", "jsonb"] {
        let mut planned = |batch: &RecordBatch| {
            let column = plan(&mut to, table, batch).unwrap().columns.remove(0);
            (format!("{:?}", column.fit), column.note.unwrap_or_default())
        };
        let (fit, note) = planned(&from_json(&batch));
        assert!(fit.ends_with("Exact"), "{fit}");
        assert_eq!(note, "texts become JSON strings");
        let (fit, note) = planned(&batch);
        assert!(fit.ends_with("Checked"), "{fit}");
        assert!(
            note.starts_with(&format!("the server casts the text to {table}")),
            "{note}"
        );
    }
}

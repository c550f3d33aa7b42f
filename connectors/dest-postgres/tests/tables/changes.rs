//! The server changes some values without a word: it rounds, cuts and pads. None of that happens
//! here unsaid: a value goes in as it is, or its column is named.

use std::sync::Arc;

use crate::common::*;
use rapidbyte_sdk::prelude::arrow_array::builder::{ListBuilder, StringBuilder};
use rapidbyte_sdk::prelude::arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use rapidbyte_sdk::prelude::{DataType, Error, Field, Schema};
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
        ("\"char\"", "a", Some("a")),
        ("\"char\"", "ab", None),
        ("raw.cents", "1.2", Some("1.20")),
        ("raw.cents", "1.239", None),
        ("raw.whole", "(1.239)", Some("(1.239)")),
        ("numeric", "1.239", Some("1.239")),
        ("timestamp", "2020-01-01 00:00:00+05", None),
        ("date", "now", None),
        ("xid", "5000000000", None),
        ("money", "$1.005", None),
        ("real", "16777217", None),
        ("jsonb", r#"{"b": 1,  "a": 2}"#, Some(r#"{"a": 2, "b": 1}"#)),
        // What is written for an object that is gone is the number of another one here.
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
                assert!(error.message.contains(text), "{error:?}");
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

//! The steps, one by one and behind each other.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::sync::Arc;

use common::{open, relation, transform};
use rapidbyte_formats::{Picked, jsonl};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::arrow_array::builder::{Int64Builder, ListBuilder};
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};

const EMAIL_HASH: &str = "6c73dbb38e056b26a9e2f8be5a8c5a8af4f88436fbd2add54c4e2607740035f4";
const ID_HASH: &str = "f9ada583d3d57cc63930bd0ccecddb51c82b3f0ab88bcbc6823d9589fb36265a";

fn customers() -> RecordBatch {
    let mut scores = ListBuilder::new(Int64Builder::new());
    scores.append_value([Some(1), None]);
    scores.append_null();
    scores.append_value([]);
    let street: ArrayRef = Arc::new(StringArray::from(vec!["A", "B", "C"]));
    let number: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    let fields = vec![
        Field::new("street", DataType::Utf8, false),
        Field::new("number", DataType::Int64, true),
    ];
    let nulls = vec![true, false, true].into();
    let address = StructArray::new(fields.into(), vec![street, number], Some(nulls));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        (
            "email",
            Arc::new(StringArray::from(vec![
                Some("Ann@example.org"),
                None,
                Some("böb"),
            ])),
        ),
        (
            "card",
            Arc::new(LargeStringArray::from(vec![
                Some("4000 1234"),
                Some("1234567"),
                None,
            ])),
        ),
        ("scores", Arc::new(scores.finish())),
        ("address", Arc::new(address)),
    ];
    let columns = columns.map(|(name, column)| (name, column, name != "id"));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The rows as JSON.
fn rows(batch: &RecordBatch) -> Vec<Value> {
    let encoder = jsonl::Encoder::new(batch.schema()).unwrap();
    let mut out = Vec::new();
    encoder
        .encode(Picked::all(batch), 0, &mut out, usize::MAX)
        .unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn after(steps: Value) -> Vec<Value> {
    rows(&transform(steps, &customers()).unwrap())
}

/// The key, the message and the column of the error.
fn refused(steps: Value) -> (String, String) {
    let error = transform(steps, &customers()).unwrap_err();
    assert!(error.stream.is_some(), "{error:?}");
    let place = error.location.or(error.column).unwrap_or_default();
    (place, error.message)
}

#[test]
fn columns_are_renamed_dropped_and_chosen_by_their_new_names() {
    let found = after(json!([
        { "rename": { "id": "email", "email": "id" } },
        { "drop": ["card", "scores", "address"] },
        { "filter": "email = 1" },
    ]));
    assert_eq!(found, [json!({ "email": 1, "id": "Ann@example.org" })]);
    let (place, text) = refused(json!([{ "rename": { "id": "email" } }]));
    assert_eq!(place, "config.steps[0].rename");
    assert!(text.contains("two columns would be named email"), "{text}");
    let (place, text) = refused(json!([{ "filter": "true" }, { "drop": ["emial"] }]));
    assert_eq!(place, "config.steps[1].drop");
    assert!(text.ends_with("did you mean email?"), "{text}");
    let (_, text) = refused(json!([{ "drop": ["id", "email", "card", "scores", "address"] }]));
    assert_eq!(text, "no column is left");
}

#[test]
fn expressions_of_one_step_see_the_columns_before_it() {
    let found = after(json!([
        { "drop": ["card", "scores", "address"] },
        { "set": { "id": "id + 10", "before": "id", "domain": "split_part(email, '@', 2)", "one": 1, "yes": true } },
        { "filter": "id > 11" },
        { "default": { "email": "none" } },
    ]));
    let expected = [
        json!({ "id": 12, "email": "none", "before": 2, "domain": null, "one": 1, "yes": true }),
        json!({ "id": 13, "email": "böb", "before": 3, "domain": "", "one": 1, "yes": true }),
    ];
    assert_eq!(found, expected);
    let moved = transform(
        json!([{ "default": { "email": "" } }, { "cast": { "id": "numeric(5, 1)" } }]),
        &customers(),
    );
    let schema = moved.unwrap().schema();
    assert!(!schema.field_with_name("email").unwrap().is_nullable());
    assert_eq!(
        schema.field_with_name("id").unwrap().data_type(),
        &DataType::Decimal128(5, 1)
    );
}

#[test]
fn a_mistake_in_a_step_is_reported_before_any_row() {
    for (step, place, words) in [
        (json!({ "set": { "x": "DE" } }), "set.x", "'DE'"),
        (
            json!({ "set": { "x": "id +" } }),
            "set.x",
            "not an expression",
        ),
        (
            json!({ "set": { "x": "id; DROP TABLE t" } }),
            "set.x",
            "after its end",
        ),
        (
            json!({ "set": { "x": "sum(id)" } }),
            "set.x",
            "the function sum does not exist",
        ),
        (
            json!({ "set": { "x": "lenght(email)" } }),
            "set.x",
            "did you mean length?",
        ),
        (
            json!({ "set": { "x": "(SELECT 1)" } }),
            "set.x",
            "not part of the expressions",
        ),
        (
            json!({ "set": { "x": "id + email" } }),
            "set.x",
            "not numbers",
        ),
        (
            json!({ "set": { "x": "address = 1" } }),
            "set.x",
            "cannot be computed with",
        ),
        (json!({ "set": { "x": null } }), "set.x", "write a number"),
        (json!({ "filter": "id" }), "filter", "must be boolean"),
        (
            json!({ "filter": "id = 'one'" }),
            "filter",
            "\"one\" cannot be read as bigint",
        ),
        (
            json!({ "cast": { "id": "money" } }),
            "cast.id",
            "not a type of expressions",
        ),
        (
            json!({ "cast": { "id": "numeric" } }),
            "cast.id",
            "needs its digits",
        ),
        (
            json!({ "default": { "id": "x" } }),
            "default.id",
            "cannot be read as bigint",
        ),
        (json!({ "trim": ["id"] }), "trim.id", "takes text"),
        (
            json!({ "mask": { "columns": ["id"] } }),
            "mask.columns",
            "only text is masked",
        ),
        (
            json!({ "hash": { "columns": ["id"], "salt": "short" } }),
            "hash.salt",
            "16 bytes",
        ),
        (json!({ "flatten": ["id"] }), "flatten", "not a struct"),
        (json!({ "explode": "id" }), "explode", "not a list"),
    ] {
        let (found, text) = refused(json!([step]));
        assert_eq!(found, format!("config.steps[0].{place}"), "{text}");
        assert!(text.contains(words), "{step}: {text}");
    }
    assert_eq!(open(&json!([])).err().unwrap().code, "no_steps");
    let many = format!("1{} > 0", " + 1".repeat(700));
    assert!(refused(json!([{ "filter": many }])).1.contains("above 300"));
    let long: Vec<String> = (0..2000).map(|id| id.to_string()).collect();
    let kept = after(json!([{ "filter": format!("id IN ({})", long.join(",")) }]));
    assert_eq!(kept.len(), 3);
    for (value, words) in [
        (json!(12345678901234567.89_f64), "write it in quotes"),
        (json!(1.5), "cannot be read as bigint"),
        (json!(true), "cannot be read as bigint"),
        (json!("1.0"), "cannot be read as bigint"),
    ] {
        let (_, text) = refused(json!([{ "default": { "id": value } }]));
        assert!(text.contains(words), "{value}: {text}");
    }
    let (_, text) = refused(json!([{ "default": { "email": 1.10 } }]));
    assert!(text.contains("in quotes"), "{text}");
    assert!(open(&json!(vec![json!({ "filter": "true" }); 257])).is_err());
    let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    assert!(
        refused(json!([{ "set": { "x": deep } }]))
            .1
            .contains("nested deeper")
    );
}

#[test]
fn a_value_that_does_not_fit_is_reported_with_its_row_in_the_stream() {
    let steps = json!([{ "filter": "id <> 1" }, { "explode": "scores" }, { "set": { "x": "1 / (id - 3)" } }]);
    let mut transform = open(&steps).unwrap();
    let batch = customers();
    let mut transforming = transform.begin(&relation(&batch, &[])).unwrap();
    let first = batch.slice(0, 2);
    transforming.put(first.clone()).unwrap();
    assert_eq!(transforming.next().unwrap().unwrap().num_rows(), 1);
    let error = transforming.put(batch).unwrap_err();
    assert_eq!(error.code, "transform_failed");
    assert_eq!(error.column.as_deref(), Some("x"));
    assert!(
        error
            .message
            .contains("row 5 of the stream: division by zero"),
        "{error:?}"
    );
}

#[test]
fn hashes_are_keyed_and_equal_for_equal_values() {
    let steps = |salt: &str| {
        json!([
            { "hash": { "columns": ["email", "id"], "salt": salt } },
            { "drop": ["card", "scores", "address"] },
        ])
    };
    let found = after(steps("Jefe and 16 bytes"));
    // By Python's hmac module.
    assert_eq!(found[0]["email"], EMAIL_HASH);
    assert_eq!(found[0]["id"], ID_HASH);
    assert_eq!(found[1]["email"], Value::Null);
    assert_eq!(after(steps("Jefe and 16 bytes")), found);
    assert_ne!(after(steps("another 16 bytes!")), found);
}

#[test]
fn masks_show_no_more_than_they_are_told() {
    let found = after(json!([
        { "mask": { "columns": ["card"], "keep_last": 4 } },
        { "mask": { "columns": ["email"], "keep_domain": true } },
    ]));
    assert_eq!(found[0]["card"], "*****1234");
    assert_eq!(found[1]["card"], "*******", "4 of 7 are too many");
    assert_eq!(found[0]["email"], "***@example.org");
    assert_eq!(found[2]["email"], "***", "no address");
    let (place, _) =
        refused(json!([{ "mask": { "columns": ["card"], "keep_last": 1, "keep_domain": true } }]));
    assert_eq!(place, "config.steps[0].mask");
}

#[test]
fn nested_columns_are_taken_apart() {
    let found = after(json!([
        { "flatten": ["address"] }, { "explode": "scores" }, { "drop": ["email", "card"] },
    ]));
    let row = |id, score, street, number| json!({ "id": id, "scores": score, "address_street": street, "address_number": number });
    let (some, none) = (json!(1), Value::Null);
    assert_eq!(
        found,
        [
            row(1, some.clone(), json!("A"), some.clone()),
            row(1, none.clone(), json!("A"), some),
            row(2, none.clone(), none.clone(), none.clone()),
            row(3, none, json!("C"), json!(3)),
        ]
    );
}

#[test]
fn a_key_stays_only_where_its_columns_do() {
    let key = |steps: Value| {
        let mut transform = open(&steps).unwrap();
        let planned = transform.plan(&relation(&customers(), &["id"])).unwrap();
        let columns = ipc::decode_schema(&planned.output.schema)
            .unwrap()
            .fields()
            .len();
        assert_eq!(planned.output.source_types.len(), columns);
        assert_eq!(
            planned.notes.is_empty(),
            !planned.output.primary_key.is_empty()
        );
        planned.output.primary_key
    };
    assert_eq!(
        key(json!([{ "filter": "id > 1" }, { "trim": ["email"] }])),
        ["id"]
    );
    assert_eq!(key(json!([{ "rename": { "id": "number" } }])), ["number"]);
    let none: [&str; 0] = [];
    assert_eq!(key(json!([{ "drop": ["id"] }])), none);
    assert_eq!(key(json!([{ "set": { "id": "id / 2" } }])), none);
    assert_eq!(key(json!([{ "explode": "scores" }])), none);
    assert_eq!(
        key(json!([{ "hash": { "columns": ["id"], "salt": "sixteen bytes or" } }])),
        none
    );
}

#[test]
fn a_batch_without_rows_left_has_the_columns_all_the_same() {
    let found = transform(
        json!([{ "filter": "false" }, { "set": { "x": "1 / 0" } }]),
        &customers(),
    );
    let found = found.unwrap();
    assert_eq!((found.num_rows(), found.num_columns()), (0, 6));
}

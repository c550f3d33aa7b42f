//! The transform as the host drives it, natively: `cargo test`.

use std::sync::Arc;

use {{crate}}::Mask;

use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::transform;

/// A stream with a number and a text.
fn people() -> (Relation, SchemaRef) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]));
    let relation = Relation {
        stream: "people".into(),
        schema: ipc::encode_schema(&schema).expect("a schema"),
        source_types: vec!["bigint".into(), "text".into()],
        primary_key: vec!["id".into()],
    };
    (relation, schema)
}

#[test]
fn texts_are_hidden_and_everything_else_stays() {
    let (input, schema) = people();
    let mut mask = transform::open::<Mask>(r#"{"column": "name"}"#).expect("a configuration");
    let output = mask.plan(&input).expect("a plan").output;
    assert_eq!(output.schema, input.schema);
    assert_eq!(output.primary_key, ["id"]);
    let batch = |names: Vec<Option<&str>>| {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let names: ArrayRef = Arc::new(StringArray::from(names));
        RecordBatch::try_new(Arc::clone(&schema), vec![ids, names]).expect("a batch")
    };
    let mut masking = mask.begin(&input).expect("a transformer");
    masking
        .put(batch(vec![Some("Ada"), None, Some("")]))
        .expect("taken");
    let found = masking.next().expect("a batch");
    assert_eq!(found, Some(batch(vec![Some("***"), None, Some("***")])));
    assert_eq!(masking.next().expect("nothing more"), None);
}

#[test]
fn a_column_that_has_no_text_is_refused() {
    let (input, _) = people();
    for config in [r#"{"column": "id"}"#, r#"{"column": "email"}"#] {
        let mut mask = transform::open::<Mask>(config).expect("a configuration");
        let error = mask.plan(&input).expect_err("no text");
        assert_eq!(error.code, "unknown_column");
    }
}

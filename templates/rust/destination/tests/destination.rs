//! The destination as the host drives it, natively: `cargo test`.

use std::sync::Arc;

use {{crate}}::Lines;

use rapidbyte_sdk::destination::{self, Loading, Session};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;

/// A destination that writes into a folder of the test, and a target of one column.
fn opened(test: &str) -> (Session<Lines>, Target, SchemaRef) {
    let folder = std::env::temp_dir().join(format!("{{name}}-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("{stream}.jsonl");
    let config = serde_json::json!({ "path": path }).to_string();
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let target = Target {
        stream: "numbers".into(),
        schema: ipc::encode_schema(&schema).expect("a schema"),
        write_mode: WriteMode::Replace,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    };
    (
        destination::open(&config).expect("a configuration"),
        target,
        schema,
    )
}

/// The host asks a session for the load of one stream.
fn begin(lines: &mut Session<Lines>, target: Target) -> Loading<Lines> {
    let run = Run {
        pipeline: "test".into(),
        id: "1".into(),
    };
    lines.begin(&[LoadRequest { target, run }]).expect("a load")
}

#[test]
fn rows_are_there_after_the_commit_and_not_before() {
    let (mut lines, target, schema) = opened("commit");
    let plan = lines.plan(&target).expect("a plan");
    assert!(plan.is_new);
    let file = plan.location;
    let numbers = Int64Array::from(vec![Some(1), None]);
    let batch = RecordBatch::try_new(schema, vec![Arc::new(numbers)]).expect("a batch");
    let mut load = begin(&mut lines, target.clone());
    load.open_writer(None).expect("a writer");
    load.write(&batch).expect("written");
    let part = load.flush().expect("a part");
    assert!(!std::fs::exists(&file).expect("known"));
    let receipt = load
        .commit(Commit::whole("numbers", vec![part]))
        .expect("a receipt");
    assert_eq!(receipt.rows, 2);
    let written = std::fs::read_to_string(&file).expect("a file");
    assert_eq!(written, "{\"n\":1}\n{\"n\":null}\n");
    assert!(!lines.plan(&target).expect("a plan").is_new);
    std::fs::remove_dir_all(std::path::Path::new(&file).parent().expect("a folder")).expect("gone");
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let (mut lines, target, _) = opened("abort");
    let file = lines.plan(&target).expect("a plan").location;
    let mut load = begin(&mut lines, target);
    load.open_writer(None).expect("a writer");
    load.flush().expect("a part");
    load.abort().expect("given up");
    let folder = std::path::Path::new(&file).parent().expect("a folder");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0);
    std::fs::remove_dir_all(folder).expect("gone");
}

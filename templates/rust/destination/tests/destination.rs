//! The destination as the host drives it, natively: `cargo test`.

use std::sync::Arc;

use {{crate}}::Lines;

use rapidbyte_sdk::destination::{self, Session};
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
        is_incremental: false,
    };
    (
        destination::open(&config).expect("a configuration"),
        target,
        schema,
    )
}

fn run() -> Run {
    Run {
        pipeline: "test".into(),
        id: "1".into(),
    }
}

#[test]
fn rows_are_there_after_the_commit_and_not_before() {
    let (mut lines, target, schema) = opened("commit");
    let plan = lines.plan(&target).expect("a plan");
    assert!(plan.is_new);
    let file = plan.location;
    let numbers = Int64Array::from(vec![Some(1), None]);
    let batch = RecordBatch::try_new(schema, vec![Arc::new(numbers)]).expect("a batch");
    lines.fence(&target, &run()).expect("a load");
    let mut writer = lines.open_writer(&target, 0, None).expect("a writer");
    writer.write(&batch).expect("written");
    let part = writer.flush().expect("a part");
    assert!(!std::fs::exists(&file).expect("known"));
    let receipt = lines
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
    lines.fence(&target, &run()).expect("a load");
    let mut writer = lines.open_writer(&target, 0, None).expect("a writer");
    writer.flush().expect("a part");
    lines.abort("numbers").expect("given up");
    let folder = std::path::Path::new(&file).parent().expect("a folder");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0);
    std::fs::remove_dir_all(folder).expect("gone");
}

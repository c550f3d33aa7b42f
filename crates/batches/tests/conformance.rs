//! The source keeps the contract that every connector has to keep: the clauses of `connector test` judge it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte_batches::{Batches, Input};
use rapidbyte_conformance::{Outcome, Trial, Verdict, test};
use rapidbyte_engine::{Host, Settings, Usage};
use rapidbyte_runtime::{Cancel, Runtime};

/// Rows whose texts have this many letters.
fn rows(from: i64, to: i64, letters: usize) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]);
    let texts = (from..to).map(|n| (n % 3 != 0).then(|| "x".repeat(letters)));
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from_iter_values(from..to)),
            Arc::new(texts.collect::<StringArray>()),
        ],
    )
    .expect("a batch")
}

#[test]
fn the_source_keeps_the_contract() {
    let open = || {
        let batches = [rows(0, 3, 1), rows(3, 3, 1), rows(3, 5000, 20)];
        Ok(Box::new(batches.into_iter().map(Ok)) as Batches)
    };
    let long = || {
        let batches = [rows(1, 2, 1 << 20), rows(2, 3, 1)];
        Ok(Box::new(batches.into_iter().map(Ok)) as Batches)
    };
    let empty = || Ok(Box::new(std::iter::empty()) as Batches);
    let schema = rows(0, 0, 0).schema();
    let input = Input::new()
        .again("items", Arc::clone(&schema), &["id"], open)
        .again("long", Arc::clone(&schema), &["id"], long)
        .again("empty", schema, &[], empty);
    let host = Host {
        runtime: Runtime::new(None, |_| ()).expect("a runtime"),
        connector_dirs: Vec::new(),
        embedded: &[],
        native: Arc::new([input.source("python")]),
        events: Arc::new(|_| ()),
        cancel: Cancel::new(),
        longest_pause: Duration::MAX,
        usage: Usage::default(),
        reuse: None,
    };
    let origin = host.find("python", &PathBuf::from("."));
    let connector = host.runtime.load(&origin.expect("it is known"));
    let trial = Trial {
        connector: connector.expect("it is loaded"),
        host,
        settings: Some(Settings::default()),
        base_dir: std::env::temp_dir(),
        streams: Vec::new(),
        peer: None,
    };
    let report = test(&trial, &mut |_| ());
    let failed = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Fail { .. });
    let failed: Vec<_> = report.clauses.iter().filter(failed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let is_skipped = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Skip { .. });
    let skipped = report.clauses.iter().filter(is_skipped);
    let skipped: Vec<_> = skipped.map(|outcome| outcome.clause.id).collect();
    // It takes no condition, and reads whole streams.
    let expected = [
        "filter",
        "checkpoints",
        "order",
        "resume",
        "cursor-columns",
        "initial",
        "late-rows",
        "other-cursor",
        "foreign-cursor",
    ];
    assert_eq!(skipped, expected);
}

//! The clauses of the contract hold for native sessions too: the same ones as `connector test` judges.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte_conformance::{Outcome, Peer, Report, Trial, Verdict, test};
use rapidbyte_engine::{Host, Settings, Usage};
use rapidbyte_memory::Tables;
use rapidbyte_runtime::{Cancel, Connector, Runtime};
use serde_json::Value;

/// A host that knows these tables as `source-memory` and `dest-memory`.
fn host(tables: &Tables) -> Host {
    Host {
        runtime: Runtime::new(None, |_| ()).expect("a runtime"),
        connector_dirs: Vec::new(),
        embedded: &[],
        native: Arc::new([
            tables.source("source-memory"),
            tables.destination("dest-memory"),
        ]),
        events: Arc::new(|_| ()),
        cancel: Cancel::new(),
        longest_pause: Duration::MAX,
        usage: Usage::default(),
        reuse: None,
    }
}

fn connector(host: &Host, name: &str) -> Connector {
    let origin = host.find(name, &PathBuf::from(".")).expect("it is known");
    host.runtime.load(&origin).expect("it is loaded")
}

fn trial(host: Host, name: &str, peer: Option<Peer>) -> Trial {
    Trial {
        connector: connector(&host, name),
        host,
        settings: Some(Settings::default()),
        base_dir: std::env::temp_dir(),
        streams: Vec::new(),
        peer,
    }
}

/// The ids of the clauses that were skipped. Fails for one that did.
#[track_caller]
fn skipped(report: &Report) -> Vec<&str> {
    let failed: Vec<&Outcome> = report
        .clauses
        .iter()
        .filter(|outcome| matches!(outcome.verdict, Verdict::Fail { .. }))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let is_skipped = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Skip { .. });
    let skipped = report.clauses.iter().filter(is_skipped);
    skipped.map(|outcome| outcome.clause.id).collect()
}

fn tables() -> Tables {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
    ]));
    let batch = |from: i64, to: i64| {
        let names = (from..to).map(|n| (n % 3 != 0).then(|| format!("name {n}")));
        RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from_iter_values(from..to)),
                Arc::new(names.collect::<StringArray>()),
            ],
        )
        .expect("a batch")
    };
    let tables = Tables::new();
    tables.set(
        "items",
        Arc::clone(&schema),
        &["id"],
        vec![batch(0, 1000), batch(1000, 5000)],
    );
    let long = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(Int64Array::from(vec![1, 2])),
            Arc::new(StringArray::from(vec!["x".repeat(1 << 20), "y".into()])),
        ],
    );
    tables.set(
        "long",
        Arc::clone(&schema),
        &["id"],
        vec![long.expect("a batch")],
    );
    tables.set("empty", schema, &[], Vec::new());
    tables
}

#[test]
fn the_source_keeps_the_contract() {
    let report = test(&trial(host(&tables()), "source-memory", None), &mut |_| ());
    // It takes no condition.
    assert_eq!(skipped(&report), ["filter"]);
    assert_eq!(report.kind, "source");
}

#[test]
fn the_destination_keeps_the_contract() {
    let host = host(&Tables::new());
    let peer = Peer {
        connector: connector(&host, "source-memory"),
        settings: Settings::default(),
        schema: Value::Null,
        stream: None,
    };
    let report = test(&trial(host, "dest-memory", Some(peer)), &mut |_| ());
    assert_eq!(skipped(&report), Vec::<&str>::new());
    assert_eq!(report.kind, "destination");
}

//! The transform without a host.

use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};
use transform_columns::Columns;

/// A stream of the batch's columns.
pub fn relation(batch: &RecordBatch, primary_key: &[&str]) -> Relation {
    Relation {
        stream: "rows".into(),
        schema: ipc::encode_schema(&batch.schema()).unwrap(),
        source_types: vec!["its type".into(); batch.num_columns()],
        primary_key: primary_key.iter().map(|name| (*name).into()).collect(),
    }
}

pub fn open(steps: &Value) -> Result<Columns> {
    rapidbyte_sdk::transform::open(&json!({ "steps": steps }).to_string())
}

/// The batch after the steps, whose schema is the one of the plan.
pub fn transform(steps: Value, batch: &RecordBatch) -> Result<RecordBatch> {
    let relation = relation(batch, &[]);
    let mut transform = open(&steps)?;
    let planned = transform.plan(&relation)?;
    let mut transforming = transform.begin(&relation)?;
    assert_eq!(
        planned.output.schema,
        ipc::encode_schema(&transforming.schema())?
    );
    transforming.put(batch.clone())?;
    let moved = transforming.next()?.unwrap();
    assert_eq!(moved.schema(), transforming.schema());
    assert!(transforming.next()?.is_none());
    Ok(moved)
}

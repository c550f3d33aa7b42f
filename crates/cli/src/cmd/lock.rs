//! `rapidbyte lock PIPELINE`

use rapidbyte::{Failure, LOCK_FILE};
use serde_json::{Value, json};

use crate::args::{Common, Lock as Arguments};
use crate::output::{Output, table};
use crate::setup::{self, Session};

pub fn run(arguments: &Arguments, common: &Common, output: &Output) -> Result<(), Failure> {
    let pipeline = setup::pipeline_with_source(&arguments.pipeline, common)?;
    let Session { engine, control } = setup::session(output, Some(&pipeline))?;
    let locked = engine.lock(&pipeline, arguments.update, &control)?;
    let found = locked.iter().map(|one| {
        json!({
            "connector": one.connector, "change": one.change.name(), "sha256": one.pin.sha256,
            "asks_for": one.pin.asks_for,
        })
    });
    let found: Vec<Value> = found.collect();
    output.document(&json!({ "status": "ok", "file": LOCK_FILE, "connectors": found }));
    let rows = locked.iter().map(|one| {
        let change = one.change.name().into();
        vec![one.connector.clone(), change, one.pin.asks_for.join(", ")]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    output.text(&match rows.as_slice() {
        [] => "all connectors are inside the program: nothing to lock".into(),
        rows => table(rows, ""),
    });
    Ok(())
}

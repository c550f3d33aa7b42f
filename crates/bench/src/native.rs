//! The PostgreSQL connectors as native code: what the same copy costs without a sandbox.
//!
//! The engine runs the same pipeline as the program does, with the sources of the same connectors compiled for this
//! machine. It is a process of its own, so that it starts and connects as the program does. The time of each stage is
//! split by the same clock, which here the SDK moves instead of the host.

mod destination;
mod source;
mod thread;
mod twins;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_engine::{Document, Environment, Host, Narrowing, Prepared, Usage, progress, run};
use rapidbyte_runtime::{
    Cancel, DestinationSession, Native, NativeConnector, Runtime, SourceSession,
};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::run::table_pipeline;
use destination::Writing;
use source::Reading;

/// Copies and gives the report of the run, without the parts that native code does not have. The variables of the
/// pipeline and `BENCH_WRITE_MODE` say what to copy.
pub fn copy() -> Result<Value, Failure> {
    let mode = std::env::var("BENCH_WRITE_MODE")
        .map_err(|_| Failure("BENCH_WRITE_MODE is not set for `native`".into()))?;
    let environment = Environment::process().without_env_file();
    let text = table_pipeline(&mode);
    let document = Document::parse(&text, "native", Path::new("."), &environment)?;
    let host = host()?;
    let failed = |failure: rapidbyte_engine::Failure| Failure(failure.to_string());
    let prepared = Prepared::narrowed(document, &host, &Narrowing::default()).map_err(failed)?;
    let progress = progress(&prepared.plan);
    let mut report = Value::Null;
    let ended = run(prepared, &host, &progress, None, None, |ended| {
        report = json!(ended.ok());
    });
    ended.map_err(failed)?;
    Ok(shown(report))
}

/// The engine with both connectors and no others.
fn host() -> Result<Host, Failure> {
    let native = [
        NativeConnector::source("source-postgres", reading),
        NativeConnector::destination("dest-postgres", writing),
    ];
    Ok(Host {
        runtime: Runtime::new(None, |_| ())?,
        connector_dirs: Vec::new(),
        embedded: &[],
        native: native.into(),
        events: Arc::new(|_| ()),
        cancel: Cancel::new(),
        longest_pause: Duration::MAX,
        usage: Usage::default(),
        reuse: None,
    })
}

fn reading(native: Native) -> Box<dyn SourceSession> {
    Box::new(Reading::new(native))
}

fn writing(native: Native) -> Box<dyn DestinationSession> {
    Box::new(Writing::new(native))
}

/// A report with the CPU time of the whole process: the connectors have threads that the engine does not count.
fn shown(mut report: Value) -> Value {
    report["cpu_secs"] = json!(crate::machine::cpu_secs());
    report["peak_rss_bytes"] = json!(crate::machine::peak_rss_bytes());
    if let Some(timing) = report["timing"].as_object_mut() {
        drop_zeros(timing);
    }
    report
}

/// Native code is not loaded, and crosses no boundary.
fn drop_zeros(timing: &mut Map<String, Value>) {
    timing.retain(|_, secs| secs.as_f64() > Some(0.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_native_code_does_not_have_are_left_out() {
        let report = json!({
            "timing": {"source_arrow_encode_secs": 0.25, "module_load_secs": 0.0},
            "streams": [{"bytes": 10}],
        });
        let shown = shown(report);
        assert_eq!(shown["timing"], json!({"source_arrow_encode_secs": 0.25}));
        assert_eq!(shown.pointer("/streams/0/bytes"), Some(&json!(10)));
    }
}

//! The failures of a build.

use rapidbyte_engine::{Class, Failure};

/// A build that does not come to its end.
pub(crate) fn failed(text: String) -> Failure {
    Failure::new(Class::Run, "build_failed", text)
}

/// A tool that is not there or does not start.
pub(crate) fn missing(tool: &str, error: &std::io::Error) -> Failure {
    let text = format!("{tool} does not start: {error}");
    Failure::new(Class::Environment, "tool_missing", text)
}

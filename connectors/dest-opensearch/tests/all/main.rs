//! The connector against a real OpenSearch, where the test kit has it, and against a server between that answers wrongly.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod answers;
mod modes;
mod support;
mod types;

//! Reads of a real server. One program for many tests: each program starts a server of its own.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;
mod cursor_types;
mod ordered;
mod queries;
mod reads;
mod rewritten;
mod session;
mod stall;
mod values;

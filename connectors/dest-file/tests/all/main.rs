//! Files that the connector writes.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod appends;
mod common;
mod drift;
mod sets;
mod writes;

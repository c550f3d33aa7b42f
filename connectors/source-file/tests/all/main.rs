//! Reads of files.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod columns;
mod committed;
mod documents;
mod reads;
mod waits;

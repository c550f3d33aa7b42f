//! Files to batches and back.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod compression;
mod decode;
mod documents;
mod encode;
mod inference;
mod round_trip;
mod support;

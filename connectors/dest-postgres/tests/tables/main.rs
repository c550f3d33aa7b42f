//! Everything that is tried on tables of a real server: one program, so that it is linked once and
//! starts one server.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod casts;
mod changes;
mod checkpoints;
mod commit;
#[path = "../common/mod.rs"]
mod common;
mod deletes;
mod described;
mod drift;
mod goes_on;
mod json_strings;
mod model;
mod pooler;
mod refuses;
mod relations;
mod repeats;
mod round_trips;
mod stalls;
mod swap;
mod types;
mod upsert;
mod writes;

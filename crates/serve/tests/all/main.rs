//! The server over real connections.

mod access;
mod ingest;
mod runs;
mod schedules;
mod support;

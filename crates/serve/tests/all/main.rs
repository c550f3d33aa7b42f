//! The server over real connections.

mod ingest;
mod runs;
mod schedules;
mod support;

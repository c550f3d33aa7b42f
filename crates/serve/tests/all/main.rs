//! The server over real connections.

mod access;
mod ingest;
mod notify;
mod pages;
mod runs;
mod schedules;
mod support;

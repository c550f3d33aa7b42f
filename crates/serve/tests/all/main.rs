//! The server over real connections.

mod access;
mod ingest;
mod multipart;
mod pages;
mod run_pages;
mod runs;
mod schedules;
mod support;

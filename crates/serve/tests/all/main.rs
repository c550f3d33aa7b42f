//! The server over real connections.

mod access;
mod bodies;
mod ingest;
mod kills;
mod limits;
mod live;
mod multipart;
mod notify;
mod pages;
mod run_pages;
mod runs;
mod schedules;
mod served;
mod support;
mod token_limits;

//! The server over real connections.

mod access;
mod ingest;
mod multipart;
mod runs;
mod support;

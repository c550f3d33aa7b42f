//! The interfaces that a connector may import, one file for each.

pub(crate) mod apart;
pub mod connection;
mod dial;
mod digest;
mod exclusive;
pub mod files;
pub mod folder;
pub mod http;
pub mod log;
mod phase;
mod tls;
pub mod wasi;

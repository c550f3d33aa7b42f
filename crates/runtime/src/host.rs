//! What a connector may import, one file for each interface.

pub(crate) mod apart;
pub mod connection;
mod dial;
mod exclusive;
pub mod files;
pub mod folder;
pub mod http;
pub mod log;
mod phase;
mod tls;
pub mod wasi;

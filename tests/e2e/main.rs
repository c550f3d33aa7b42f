//! End to end: the real binary, the real components, real files.
//!
//! `cargo xtask test` builds what is needed and says where it is.

mod bad_input;
mod columnar;
mod connectors;
mod files;
mod hostile;
mod interrupt;
mod output;
mod pooler;
mod postgres;
mod settings;
mod support;
mod tls;
mod types;

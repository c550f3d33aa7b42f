//! End to end: the real binary, the real components, real files.
//!
//! `cargo xtask test` builds what is needed and says where it is.

mod bad_input;
mod codes;
mod columnar;
mod compressed;
mod connectors;
mod files;
mod hostile;
mod installed;
mod interrupt;
mod narrow;
mod output;
mod pooler;
mod postgres;
mod schema;
mod settings;
mod support;
mod terminal;
mod tls;
mod types;

//! The data between the host and a connector: Arrow IPC messages and the names of types.
//!
//! This crate owns facts that both sides need: how a schema and a batch are laid out as
//! bytes ([`ipc`]), what the host checks before it passes a batch on ([`verify`]), how a
//! column's type is written by a person ([`types`], [`declared`]), how files and streams are matched
//! ([`pattern`]), how streams with parts are named ([`name`]), how partition folders are named ([`hive`]) and what a
//! connector of one stream at a time refuses ([`one`]). It does no I/O and knows no connector.
//!
//! Byte layout: the encapsulated message format of the Arrow columnar specification
//! ("Serialization and Interprocess Communication"). A schema is one `Schema` message; it
//! travels once per stream. A batch is one `RecordBatch` message without dictionaries.

pub mod declared;
pub mod hive;
pub mod ipc;
pub mod name;
pub mod one;
pub mod pattern;
pub mod sampled;
pub mod size;
pub mod types;
pub mod verify;

/// A destination's note that begins with this is shown by every run, not by `plan` alone.
pub const WARNING_NOTE: &str = "warning: ";

/// A number with its noun in a text for people: `1 row`, `2 rows`. For nouns that take an `s`.
///
/// ```
/// assert_eq!(rapidbyte_wire::counted(1u64, "row"), "1 row");
/// assert_eq!(rapidbyte_wire::counted(0u64, "sampled row"), "0 sampled rows");
/// ```
pub fn counted<N: std::fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let s = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// Bytes that are not the message they should be, or a type outside the contract.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The schema message does not parse.
    #[error("malformed schema message: {0}")]
    Schema(String),
    /// The batch message does not parse, or lies about its lengths.
    #[error("malformed batch message: {0}")]
    Batch(String),
    /// Arrow refused to encode or decode.
    #[error("arrow: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The text is not a type name, or the type may not cross the boundary.
    #[error("{0}")]
    Type(String),
}

/// A description of a connector without modes and abilities, in the type that bindings have for `spec` of the contract.
///
/// ```text
/// Spec { write_modes, ..plain_spec!(Spec, name, version, description, config_schema) }
/// ```
#[macro_export]
macro_rules! plain_spec {
    ($spec:path, $name:expr, $version:expr, $description:expr, $config_schema:expr) => {{
        type Plain = $spec;
        Plain {
            name: $name.into(),
            version: $version.into(),
            description: $description.into(),
            config_schema: $config_schema.into(),
            sync_modes: Vec::new(),
            write_modes: Vec::new(),
            native_forms: Vec::new(),
            supports_filter: false,
            supports_queries: false,
            supports_checkpoints: false,
            deduplicates_appends: false,
            supports_rejects: false,
            reads_together: false,
            commits_together: false,
            repeatable_reads: false,
            compares_keys: false,
            names_targets: false,
            has_namespaces: false,
            digest_forms: Vec::new(),
        }
    }};
}

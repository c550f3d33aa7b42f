//! BSON documents as bytes: [`Document`] reads them without a copy, [`Builder`] writes them.
//!
//! No I/O, no Arrow, no model of a document in memory. Elements keep their order, and names may repeat. The source is
//! the BSON specification, version 1.1 (bsonspec.org).
//!
//! Bytes come from servers, so no length in them is trusted: a document that contradicts itself is a [`BsonError`].
//!
//! ```
//! use rapidbyte_bson::{Builder, Document, Value};
//!
//! let mut command = Builder::new();
//! command.int32("hello", 1).string("$db", "admin");
//! let bytes = command.finish()?;
//! let document = Document::parse(&bytes)?;
//! assert_eq!(document.get("hello")?, Some(Value::Int32(1)));
//! # Ok::<(), rapidbyte_bson::BsonError>(())
//! ```

mod builder;
mod document;
mod value;

pub use builder::Builder;
pub use document::{Document, Elements};
pub use value::{Kind, Value};

/// An empty document: its length, and its end.
pub const MIN_DOCUMENT_BYTES: usize = 5;

/// Documents within documents that are followed. A server of MongoDB allows 100, and a few more around a stored
/// document in its answers.
pub const MAX_DEPTH: usize = 200;

/// Why bytes are not BSON, or why a document cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BsonError {
    /// The bytes end within something.
    #[error("the document ends within {0}")]
    Truncated(&'static str),
    /// A length that does not fit the bytes around it.
    #[error("{what} has the length {length}, which does not fit the document")]
    Length {
        /// The thing that has the length.
        what: &'static str,
        /// As it was read.
        length: i64,
    },
    /// A byte that is not a type.
    #[error("the element {name:?} has the unknown type 0x{kind:02x}")]
    UnknownKind {
        /// The element.
        name: String,
        /// The byte.
        kind: u8,
    },
    /// A string that is not UTF-8.
    #[error("{0} is not valid UTF-8")]
    NotUtf8(&'static str),
    /// A byte that is neither 0 nor 1.
    #[error("a boolean has the value {0}")]
    Boolean(u8),
    /// Documents within documents, too many of them.
    #[error("documents are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// A name or pattern to write that BSON ends at a NUL byte.
    #[error("{0:?} contains a NUL byte")]
    NulByte(String),
    /// A document to write that is longer than a length can say.
    #[error("a document is longer than 2 GiB")]
    TooLong,
    /// A document was not closed, or closed once too often.
    #[error("a document is not closed")]
    Unclosed,
}

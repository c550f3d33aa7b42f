//! A MongoDB client for connectors: small, synchronous, over the host's connection.
//!
//! [`Settings`] come from a `mongodb://` URL; [`Client::connect`] finds a server that will do, proves who we are and
//! agrees on compression. Then:
//!
//! - [`Client::command`]: any command and its answer;
//! - [`Client::find`]: a command that answers with a cursor, read batch by batch;
//! - [`Client::write`]: `insert`, `update` and `delete` with many documents in one message, and an error for each
//!   document that failed.
//!
//! Documents go in and out as bytes, see [`rapidbyte_bson`]: their meaning is the caller's. Every error is a
//! [`rapidbyte_sdk::Error`]. An error of the server has the code `mongo_` and its number, such as `mongo_11000`, and the
//! kind that says who acts.
//!
//! The sources of the protocol are the MongoDB manual, "MongoDB Wire Protocol" (OP_MSG, OP_COMPRESSED) and "Connection
//! Strings", and the driver specifications "MongoDB Handshake", "Authentication", "Wire Compression" and "Server
//! Selection". A server must know OP_MSG, which MongoDB does since 3.6.
//!
//! No length that a server sends is trusted: a message, a document and uncompressed bytes all have a limit. A connection
//! that failed between a request and the end of its answer is of no further use; every later call says so
//! (`connection_unusable`).

mod auth;
mod client;
mod compression;
mod connect;
mod cursor;
mod error;
mod hello;
mod message;
mod name;
mod settings;
mod wire;
mod written;

pub use client::{Client, Reply};
pub use cursor::{Batch, Cursor};
pub use error::{number_of, protocol};
pub use hello::Hello;
pub use name::check_database;
pub use rapidbyte_bson as bson;
pub use settings::{
    Compressor, Host, Login, Mechanism, ReadPreference, Settings, Tls, W, WriteConcern,
};
pub use written::{WriteError, Written};

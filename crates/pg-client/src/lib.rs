//! A PostgreSQL client for connectors: small, synchronous, over the host's connection.
//!
//! [`Settings`] come from a URL or from separate keys; [`Client::connect`] finds a server, agrees on
//! TLS and proves who we are. Then:
//!
//! - [`Client::simple_query`], [`Client::execute`]: SQL as text, several statements at once;
//! - [`Client::query`]: one statement with parameters;
//! - [`Client::prepare`], [`Client::execute_prepared`], [`Client::pipeline`]: one INSERT many times;
//! - [`Client::copy_out`], [`Client::copy_in`]: COPY in bulk.
//!
//! Bytes go in and out as they are: their meaning is the caller's. Every error is a
//! [`rapidbyte_sdk::Error`]. An error of the server has the code `pg_` and its SQLSTATE, such as
//! `pg_23505`, and the kind that says who acts. The PostgreSQL manual describes the protocol,
//! "Frontend/Backend Protocol", version 3.0; the crate `postgres-protocol` reads and writes its
//! messages.
//!
//! A connection that failed between a request and the end of its answer is of no further use;
//! every later call says so (`connection_unusable`).

mod auth;
mod cancel;
mod client;
mod config;
mod connect;
mod copy_in;
mod copy_out;
mod digest;
mod error;
mod extended;
mod repeated;
mod rows;
mod tls;
mod wire;

pub use cancel::CancelToken;
pub use client::{Client, TransactionStatus};
pub use config::{ChannelBinding, Fields, Host, Settings, SslMode, TargetSession};
pub use copy_in::{COPY_HEADER_BYTES, CopyAsked, CopyIn};
pub use copy_out::{CopyOut, CopyRead};
pub use digest::{buckets, digested_rows};
pub use error::{ROW_SECURITY, line_of_copy};
pub use extended::{Format, Param, Pipeline, Statement};
pub use rows::{Column, Row, Rows};

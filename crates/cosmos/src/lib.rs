//! A synchronous client of Azure Cosmos DB (API for NoSQL) over HTTP, for both connectors: signed requests, several at the
//! same time, retries, session tokens, containers, queries by page, and writes in batches and bulk requests.
//!
//! The facts are those of "Azure Cosmos DB: REST API Reference" of Microsoft: access control, common headers, status
//! codes, and the operations on databases, containers and documents. Transactional batches, bulk requests and the hashes of
//! partition keys are not in that reference; their form is the form that Microsoft's public clients send.

mod account;
mod client;
mod container;
mod date;
mod documents;
mod error;
mod json;
mod query;
mod ranges;
mod writes;

pub use account::{Account, MAX_IN_FLIGHT, check_name};
pub use client::{Answer, Asked, Call, Client};
pub use container::{Container, PartitionKey};
pub use documents::{MAX_DOCUMENT_BYTES, Operation, Outcome, check_id};
pub use json::{SYSTEM_FIELDS, find, is_same};
pub use query::{Page, Param};
pub use writes::Write;

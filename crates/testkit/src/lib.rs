//! Tools that only tests need: a real PostgreSQL server, which the tests start and remove, an HTTP
//! server that answers as a test says, a network that breaks, servers of MongoDB, Cosmos DB and OpenSearch, a server that lies, random numbers and
//! random batches.
//!
//! A dev-dependency only. The components beside it (`components/`, `components-python/`) are
//! packages of their own.

pub mod batches;
pub mod cosmosdb;
pub mod http;
pub mod liar;
pub mod mongodb;
pub mod numbers;
pub mod opensearch;
pub mod postgres;
pub mod proxy;

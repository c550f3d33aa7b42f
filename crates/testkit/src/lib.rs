//! What tests need and no user does: a real PostgreSQL server, started and removed by the tests, an
//! HTTP server that answers as a test says, a network that breaks, a server that lies, random numbers
//! and random batches.
//!
//! A dev-dependency only. The components beside it (`components/`, `components-python/`) are
//! packages of their own.

pub mod batches;
pub mod http;
pub mod liar;
pub mod numbers;
pub mod postgres;
pub mod proxy;

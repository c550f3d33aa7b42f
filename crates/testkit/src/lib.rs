//! What tests need and no user does: a real PostgreSQL server, started and removed by the tests.
//!
//! A dev-dependency only. The components beside it (`components/`, `components-python/`) are
//! packages of their own.

pub mod postgres;

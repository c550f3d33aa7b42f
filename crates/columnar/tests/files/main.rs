//! Files of columns, as one program: what it links takes longer to compile than the tests.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod damaged;
mod foreign;
mod interop;
mod limits;
mod round_trip;
mod support;

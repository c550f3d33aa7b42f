//! Reads of a server. One program for many tests: each program starts a server of its own.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;
mod declared;
mod increments;
mod reads;

/// A database of the shared server, or the end of the test where there is no server.
#[macro_export]
macro_rules! database {
    () => {
        match rapidbyte_testkit::mongodb::shared() {
            Some(server) => server.database(),
            None => return,
        }
    };
}

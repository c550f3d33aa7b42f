//! Other products that copy a table from one PostgreSQL database to another.

use crate::failure::Failure;
use crate::process::Timed;
use crate::run::{Pair, Programs};

/// One that is installed.
#[derive(Debug, Clone)]
pub struct Peer {
    name: &'static str,
}

impl Peer {
    /// Those that `cargo xtask bench-peers-setup` left.
    pub fn installed() -> Result<Vec<Self>, Failure> {
        Ok(Vec::new())
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Copies the table into the one that is there.
    pub fn run(&self, _programs: &Programs, _pair: &Pair<'_>) -> Result<Timed, Failure> {
        Err(Failure(format!("{} is not installed", self.name)))
    }
}

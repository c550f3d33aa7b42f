//! `phase`: the guest names its work.

use crate::bindings::phase::{Host, Kind};
use crate::state::State;

impl Host for State {
    fn enter(&mut self, kind: Kind) -> wasmtime::Result<Kind> {
        Ok(self.sandbox.clock.set_guest(kind))
    }
}

impl crate::bindings::types::Host for State {}

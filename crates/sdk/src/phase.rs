//! Names the work done inside the connector, so that the host's timing adds up.
//!
//! The SDK names decoding, encoding and the IPC work around a connector by itself; a connector
//! names what only it knows, such as a query or a flush. Natively a phase is only remembered.

pub use crate::bindings::phase::Kind;

/// Time counts as `kind` until the guard is dropped, then as before.
#[must_use = "the phase ends when the guard is dropped"]
pub fn enter(kind: Kind) -> Guard {
    Guard {
        before: switch(kind),
    }
}

/// Ends a phase when dropped.
pub struct Guard {
    before: Kind,
}

impl Drop for Guard {
    fn drop(&mut self) {
        switch(self.before);
    }
}

#[cfg(target_family = "wasm")]
pub(crate) fn switch(kind: Kind) -> Kind {
    crate::bindings::phase::enter(kind)
}

#[cfg(not(target_family = "wasm"))]
pub(crate) fn switch(kind: Kind) -> Kind {
    use std::cell::Cell;
    thread_local!(static NOW: Cell<Kind> = const { Cell::new(Kind::Other) });
    NOW.replace(kind)
}

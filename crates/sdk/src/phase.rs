//! Names the work done inside the connector, so that the host's timing adds up.
//!
//! The SDK names decoding, encoding and the IPC work around a connector by itself; a connector
//! names what only it knows, such as a query or a flush. Natively a phase is remembered, and told to
//! whoever [`watch`]es.

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
pub use native::{Outside, watch};
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{outside, switch};

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::cell::{Cell, RefCell};

    use super::Kind;

    /// A call to the system, which inside the sandbox the host makes and counts.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Outside {
        /// Opening a connection.
        Connect,
        /// Taking bytes, or waiting for them.
        Read,
        /// Giving bytes.
        Write,
    }

    type Watcher = Box<dyn FnMut(Kind, Option<Outside>)>;

    thread_local! {
        static NOW: Cell<Kind> = const { Cell::new(Kind::Other) };
        static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    }

    /// From now on calls `watcher` whenever work of a kind begins on this thread, or within it a call
    /// of a [`Connection`](crate::connection::Connection) to the outside. A program that holds
    /// connectors as native code can measure them as a host does. The last watcher of a thread counts;
    /// its own work is not reported.
    pub fn watch(watcher: impl FnMut(Kind, Option<Outside>) + 'static) {
        WATCHER.set(Some(Box::new(watcher)));
    }

    pub(crate) fn switch(kind: Kind) -> Kind {
        let before = NOW.replace(kind);
        tell(None);
        before
    }

    pub(crate) fn outside<T>(what: Outside, call: impl FnOnce() -> T) -> T {
        tell(Some(what));
        let given = call();
        tell(None);
        given
    }

    fn tell(outside: Option<Outside>) {
        WATCHER.with(|watcher| {
            if let Ok(mut watcher) = watcher.try_borrow_mut()
                && let Some(watcher) = watcher.as_mut()
            {
                watcher(NOW.get(), outside);
            }
        });
    }

    #[cfg(test)]
    mod tests {
        use std::rc::Rc;

        use super::super::enter;
        use super::*;

        #[test]
        fn a_watcher_sees_the_phase_that_begins_and_the_phase_that_continues() {
            let told = Rc::new(RefCell::new(Vec::new()));
            let log = Rc::clone(&told);
            watch(move |kind, outside| {
                // Not told, and no endless recursion.
                drop(enter(kind));
                log.borrow_mut().push((kind, outside));
            });
            let query = enter(Kind::Query);
            outside(Outside::Read, || drop(enter(Kind::Decode)));
            drop(query);
            let expected = [
                (Kind::Query, None),
                (Kind::Query, Some(Outside::Read)),
                (Kind::Decode, None),
                (Kind::Query, None),
                (Kind::Query, None),
                (Kind::Other, None),
            ];
            assert_eq!(*told.borrow(), expected);
        }
    }
}

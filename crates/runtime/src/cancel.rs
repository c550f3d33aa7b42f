//! Cancelling: one flag, and what must be woken when it is set.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Cancels a run. Clones are the same token.
///
/// A busy guest sees the flag at its next epoch tick; a guest that waits in the host is woken by
/// what the waiting call registered with [`Cancel::on_cancel`].
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

type Waker = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Inner {
    flag: AtomicBool,
    next: AtomicU64,
    wakers: Mutex<HashMap<u64, Waker>>,
    /// Ends the link to the parent with this token.
    parent: Mutex<Option<Registration>>,
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag and wakes everybody. Further calls do nothing.
    pub fn cancel(&self) {
        if self.0.flag.swap(true, Ordering::SeqCst) {
            return;
        }
        // Called without the lock: a waker may drop the last handle of a child, which
        // unregisters itself here.
        let wakers: Vec<Waker> = self.wakers().values().cloned().collect();
        wakers.iter().for_each(|wake| wake());
    }

    /// True once cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::SeqCst)
    }

    /// A token that is cancelled with this one, and alone when it is cancelled itself.
    pub fn child(&self) -> Self {
        let child = Self::new();
        let inner = Arc::downgrade(&child.0);
        let link = self.on_cancel(move || {
            if let Some(inner) = inner.upgrade() {
                Self(inner).cancel();
            }
        });
        *child
            .0
            .parent
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(link);
        child
    }

    /// Calls `wake` when cancelled, at once if that is so already, until the registration is
    /// dropped; it may be called twice. `wake` must not block.
    pub fn on_cancel(&self, wake: impl Fn() + Send + Sync + 'static) -> Registration {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let wake: Waker = Arc::new(wake);
        self.wakers().insert(id, Arc::clone(&wake));
        // `cancel` sets the flag before it looks for wakers, so that one of the two calls it.
        if self.is_cancelled() {
            wake();
        }
        Registration {
            cancel: self.clone(),
            id,
        }
    }

    fn wakers(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a waker registered.
pub struct Registration {
    cancel: Cancel,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cancel.wakers().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_child_follows_its_parent_and_not_the_other_way() {
        let parent = Cancel::new();
        let (one, two) = (parent.child(), parent.child());
        one.cancel();
        assert!(one.is_cancelled() && !parent.is_cancelled() && !two.is_cancelled());
        parent.cancel();
        assert!(two.is_cancelled() && parent.child().is_cancelled());
    }

    #[test]
    fn a_waker_is_called_while_it_is_registered() {
        let cancel = Cancel::new();
        let calls = Arc::new(AtomicU32::new(0));
        let count = |calls: &Arc<AtomicU32>| {
            let calls = Arc::clone(calls);
            move || {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        drop(cancel.on_cancel(count(&calls)));
        let _kept = cancel.on_cancel(count(&calls));
        cancel.cancel();
        cancel.cancel();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        let _late = cancel.on_cancel(count(&calls));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn children_that_end_while_the_parent_is_cancelled_do_no_harm() {
        for _ in 0..200 {
            let parent = Cancel::new();
            std::thread::scope(|scope| {
                scope.spawn(|| (0..50).for_each(|_| drop(parent.child())));
                scope.spawn(|| parent.cancel());
            });
        }
    }
}

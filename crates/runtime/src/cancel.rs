//! Cancelling: one flag, and what must be woken when it is set.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Cancels a run. Clones are the same token.
///
/// A busy guest sees the flag at its next epoch tick; a guest that waits in the host is woken by
/// what the waiting call registered with [`Cancel::on_cancel`].
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    flag: AtomicBool,
    next: AtomicU64,
    wakers: Mutex<HashMap<u64, Box<dyn Fn() + Send>>>,
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
        let wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.values().for_each(|wake| wake());
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
    /// dropped. `wake` must not block and must not register.
    pub fn on_cancel(&self, wake: impl Fn() + Send + 'static) -> Registration {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: `cancel` sets the flag first, so that one of the two calls `wake`.
        if self.is_cancelled() {
            wake();
        }
        wakers.insert(id, Box::new(wake));
        Registration {
            cancel: self.clone(),
            id,
        }
    }
}

/// Keeps a waker registered.
pub struct Registration {
    cancel: Cancel,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let inner = &self.cancel.0;
        inner
            .wakers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

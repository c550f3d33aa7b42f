//! The memory that all runs of an engine may have together.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rapidbyte_engine::{Class, Failure};
use rapidbyte_runtime::Cancel;

/// Bytes that runs take before they plan and give back at their end.
pub(crate) struct MemoryOfRuns {
    total: u64,
    taken: Mutex<u64>,
    changed: Condvar,
    /// Runs that wait for memory.
    waiting: AtomicUsize,
}

/// The memory that one run has taken.
pub(crate) struct Taken {
    of: Arc<MemoryOfRuns>,
    bytes: u64,
}

impl MemoryOfRuns {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            taken: Mutex::new(0),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Whether a run waits for memory.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits until the other runs have given back enough.
    ///
    /// # Errors
    /// `memory_of_engine` for more than there ever is, and a cancelled wait.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, cancel: &Cancel) -> Result<Taken, Failure> {
        if bytes > self.total {
            let text = format!(
                "the pipeline needs {bytes} bytes of memory, and all runs of this program may have {} together",
                self.total
            );
            return Err(Failure::new(Class::Config, "memory_of_engine", text)
                .hint("lower resources.memory, or give the program more memory for its runs"));
        }
        let of = Arc::clone(self);
        let _woken = cancel.on_cancel(move || {
            // A run that is about to wait holds the lock. Taking the lock first makes sure that the run is notified.
            drop(of.taken.lock());
            of.changed.notify_all();
        });
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |taken: &mut u64| *taken + bytes > self.total && !cancel.is_cancelled();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = self.changed.wait_while(taken, waits);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        if cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        *taken += bytes;
        Ok(Taken {
            of: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let taken = self.of.taken.lock();
        *taken.unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_run_waits_for_memory_until_it_is_cancelled_and_too_much_is_refused() {
        let all = Arc::new(MemoryOfRuns::new(10));
        let cancel = Cancel::new();
        let refused = all.take(11, &cancel).map(drop).expect_err("too much");
        assert_eq!(refused.code, "memory_of_engine");
        let first = all.take(6, &cancel).expect("there is room");
        let second = all.take(4, &cancel).expect("there is room");
        std::thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            scope.spawn({
                let (all, cancel) = (&all, &cancel);
                move || {
                    let third = all.take(5, cancel);
                    tell.send(third.is_ok()).expect("somebody listens");
                }
            });
            assert!(told.try_recv().is_err(), "there is no room yet");
            while !all.is_wanted() {
                std::thread::yield_now();
            }
            drop(second);
            drop(first);
            assert!(told.recv().expect("an answer"));
            assert!(!all.is_wanted());
        });
        let all_of_it = all.take(10, &cancel).expect("everything was given back");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| all.take(1, &cancel).map(drop));
            cancel.cancel();
            let ended = waiting.join().expect("a thread").expect_err("cancelled");
            assert_eq!(ended.class, Class::Cancelled);
        });
        drop(all_of_it);
    }
}

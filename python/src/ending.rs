//! The end of the interpreter, which no call may outlive.
//!
//! Once the interpreter ends, it stops each thread that comes back to it. Up to CPython 3.13 it unwinds the thread's stack for
//! that, and a process aborts whose stack has Rust code above Python code. So [`end`], which `atexit` calls while threads
//! still run, refuses new calls, cancels the others, and waits until no thread is in this crate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use pyo3::intern;
use pyo3::prelude::*;
use rapidbyte::{Cancel, Registration};

use crate::desk::SIGNAL_PAUSE;

/// The number of calls and runs, and in the upper half their process: one that `fork` made has none of its parent.
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// The calls that the end cancels, and their process. Only a thread that has the interpreter locks it, so it is free after
/// `fork`.
static CANCEL: Mutex<Option<(u32, Cancel)>> = Mutex::new(None);
/// An exception like those that calls get from now on.
static REFUSED: OnceLock<Py<PyAny>> = OnceLock::new();
/// Woken when the last call is over. Before the end nobody locks it.
static LEFT: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// A call or a run that the end waits for.
pub struct Inside {
    process: u32,
}

/// A run on a thread of its own. The end cancels it, and waits for it.
pub struct Run {
    _inside: Inside,
    _cancelled: Registration,
}

impl Inside {
    fn new() -> Self {
        let process = std::process::id();
        let more = |all| {
            let count = u64::from(count(all, process)) + 1;
            Some(u64::from(process) << 32 | count)
        };
        // It cannot fail.
        let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        Self { process }
    }

    /// Begins what may run Python code. `None`: the interpreter ends.
    pub fn try_new() -> Option<Self> {
        // Counted first: the end waits for all that it does not refuse.
        let inside = Self::new();
        REFUSED.get().is_none().then_some(inside)
    }

    /// The same.
    ///
    /// # Errors
    /// The exception for the caller.
    pub fn of_call(py: Python<'_>) -> PyResult<Self> {
        let inside = Self::new();
        match REFUSED.get() {
            None => Ok(inside),
            Some(example) => Err(like(example.bind(py))),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // A call that its parent has begun does not count for a child.
        let less = |all| (count(all, self.process) > 0).then(|| all - 1);
        let before = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        if REFUSED.get().is_some() && before.is_ok_and(|all| count(all, self.process) == 1) {
            drop(LEFT.0.lock());
            LEFT.1.notify_all();
        }
    }
}

impl Run {
    /// Of this token.
    pub fn new(py: Python<'_>, token: &Cancel) -> Self {
        let token = token.clone();
        Self {
            _inside: Inside::new(),
            _cancelled: cancel(py).on_cancel(move || token.cancel()),
        }
    }
}

/// The number of calls and runs of this process.
fn count(all: u64, process: u32) -> u32 {
    match all >> 32 == u64::from(process) {
        true => (all & u64::from(u32::MAX)) as u32,
        false => 0,
    }
}

/// The token of this process that the end cancels.
pub fn cancel(_: Python<'_>) -> Cancel {
    let process = std::process::id();
    let mut known = CANCEL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((owner, cancel)) if *owner == process => cancel.clone(),
        _ => {
            let cancel = Cancel::new();
            // A thread of the parent may have locked the older one.
            std::mem::forget(known.replace((process, cancel.clone())));
            cancel
        }
    }
}

/// Refuses new calls with exceptions like this one, cancels the others, and waits for them up to a number of seconds.
/// Returns how many calls and runs are left.
#[pyfunction]
pub fn end(py: Python<'_>, refused: Py<PyAny>, seconds: f64) -> PyResult<u32> {
    // The second call waits for what the first one left.
    let _ = REFUSED.set(refused);
    cancel(py).cancel();
    let process = std::process::id();
    let begun = Instant::now();
    loop {
        let left = count(INSIDE.load(Ordering::SeqCst), process);
        if left == 0 || begun.elapsed().as_secs_f64() >= seconds {
            return Ok(left);
        }
        py.detach(|| {
            let guard = LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
            let is_inside = |(): &mut ()| count(INSIDE.load(Ordering::SeqCst), process) > 0;
            drop(LEFT.1.wait_timeout_while(guard, SIGNAL_PAUSE, is_inside));
        });
        py.check_signals()?;
    }
}

/// Another exception with the fields of this one. It runs no Python code, where the interpreter could stop this thread.
fn like(example: &Bound<'_, PyAny>) -> PyErr {
    let py = example.py();
    let made = || {
        let kind = example.get_type();
        let message = example.getattr(intern!(py, "message"))?;
        let made = kind.call_method1(intern!(py, "__new__"), (&kind, message))?;
        let fields = example.getattr(intern!(py, "__dict__"))?;
        made.getattr(intern!(py, "__dict__"))?
            .call_method1(intern!(py, "update"), (fields,))?;
        Ok(made)
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

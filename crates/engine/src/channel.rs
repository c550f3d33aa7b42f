//! A channel between two threads that is bounded by bytes and has an explicit end.
//!
//! It owns the queue between a source's thread and a destination's thread. One producer, one
//! consumer; both block on a condition variable, never in a loop. Two limits hold: the bytes of
//! the messages in the queue, and their number. A message leaves the budget when it is received,
//! so each side may hold one more message in its own hands.
//!
//! The channel can end in four ways:
//! - [`Sender::end`] says that all messages were sent without an error. Only then does the
//!   receiver get [`Received::End`], after the last message.
//! - A sender that is dropped without `end` (an error, a panic) is [`Received::Aborted`]. The
//!   receiver learns of it at once: what is still queued will not be committed anyway.
//! - A receiver that is dropped makes [`Sender::send`] fail at once with [`SendError::Closed`].
//! - [`Cancel::cancel`] wakes both sides at once. It comes before all other results.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Messages between two stages at most, whatever their size.
pub const MAX_MESSAGES: usize = 1024;

/// Batches between two stages at most, by their bytes. A source that runs further ahead gains nothing: where
/// the destination is slower, the source's server takes CPU time from it.
pub const MAX_BATCHES: usize = 4;

/// The usual excess of a batch over `resources.batch_bytes`: the last piece that was read, a header, padding.
pub const BATCH_EXCESS: usize = 128 << 10;

/// A channel that holds at most `max_messages` messages of `budget_bytes` in all.
///
/// A message larger than `budget_bytes` passes alone, when the channel is empty. The same holds
/// for every message if `budget_bytes` is zero; `max_messages` of zero counts as one.
pub fn channel<T>(budget_bytes: usize, max_messages: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            queue: VecDeque::new(),
            bytes: 0,
            ended: false,
            sender_gone: false,
            receiver_gone: false,
            cancelled: false,
            sender_waits: false,
            receiver_waits: false,
        }),
        space: Condvar::new(),
        arrival: Condvar::new(),
        budget_bytes,
        max_messages: max_messages.max(1),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
    };
    (sender, Receiver { shared })
}

/// The producer's side.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The consumer's side.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// Stops both sides from a third thread.
#[derive(Clone)]
pub struct Cancel {
    channel: Arc<dyn Cancellable + Send + Sync>,
}

/// The result of [`Receiver::recv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received<T> {
    /// The next message, in the order of sending.
    Item(T),
    /// The sender has sent `end`, and the receiver has all messages.
    End,
    /// The sender is gone and did not say `end`: nothing of this stream may be committed.
    Aborted,
    /// The run was cancelled.
    Cancelled,
}

/// Why a message was not taken. The message is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver is gone; its own error says why.
    #[error("the receiving stage has stopped")]
    Closed,
    /// The run was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl<T> Sender<T> {
    /// Puts a message of `bytes` bytes into the channel and waits for room first.
    pub fn send(&mut self, item: T, bytes: usize) -> Result<(), SendError> {
        let mut state = self.shared.lock();
        loop {
            state.refusal()?;
            if state.has_room(bytes, self.shared.budget_bytes, self.shared.max_messages) {
                break;
            }
            state.sender_waits = true;
            state = wait(&self.shared.space, state);
            state.sender_waits = false;
        }
        state.bytes += bytes;
        state.queue.push_back((item, bytes));
        let wake = state.receiver_waits;
        drop(state);
        if wake {
            self.shared.arrival.notify_one();
        }
        Ok(())
    }

    /// Says that all messages were sent without an error.
    ///
    /// Fails as [`Sender::send`] does if the receiver is gone or the run was cancelled.
    pub fn end(self) -> Result<(), SendError> {
        let mut state = self.shared.lock();
        state.refusal()?;
        state.ended = true;
        Ok(())
        // Dropping `self` wakes the receiver.
    }
}

impl<T: Send + 'static> Sender<T> {
    /// A handle that stops both sides.
    pub fn cancel_handle(&self) -> Cancel {
        Cancel {
            channel: Arc::clone(&self.shared) as Arc<dyn Cancellable + Send + Sync>,
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.sender_gone = true;
        let lost = if state.ended {
            VecDeque::new()
        } else {
            state.clear()
        };
        drop(state);
        self.shared.arrival.notify_one();
        drop(lost);
    }
}

impl<T> Receiver<T> {
    /// Waits for the next message or for the end of the channel.
    ///
    /// After a result that is not an item, later calls return it again, or `Cancelled` once the run is cancelled.
    pub fn recv(&mut self) -> Received<T> {
        loop {
            // Without a time limit the wait always returns a result.
            if let Some(received) = self.recv_until(None) {
                return received;
            }
        }
    }

    /// The same, but waits no longer than `until`: then it returns `None`.
    pub fn recv_until(&mut self, until: Option<Instant>) -> Option<Received<T>> {
        let mut state = self.shared.lock();
        let (received, wake) = loop {
            if state.cancelled {
                break (Received::Cancelled, false);
            }
            if state.sender_gone && !state.ended {
                break (Received::Aborted, false);
            }
            if let Some((item, bytes)) = state.queue.pop_front() {
                state.bytes -= bytes;
                break (Received::Item(item), state.sender_waits);
            }
            if state.ended {
                break (Received::End, false);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state.receiver_waits = true;
            let arrival = &self.shared.arrival;
            state = match left {
                None => wait(arrival, state),
                Some(left) => {
                    let woken = arrival.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.receiver_waits = false;
        };
        drop(state);
        if wake {
            self.shared.space.notify_one();
        }
        Some(received)
    }
}

impl<T: Send + 'static> Receiver<T> {
    /// A handle that stops both sides.
    pub fn cancel_handle(&self) -> Cancel {
        Cancel {
            channel: Arc::clone(&self.shared) as Arc<dyn Cancellable + Send + Sync>,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.receiver_gone = true;
        let unread = state.clear();
        drop(state);
        self.shared.space.notify_one();
        drop(unread);
    }
}

impl Cancel {
    /// Wakes both sides. From now on each of their calls returns `Cancelled`.
    pub fn cancel(&self) {
        self.channel.cancel();
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cancel")
    }
}

/// Hides the type of the messages, so that a run can keep the handles of all its channels.
trait Cancellable {
    fn cancel(&self);
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    /// Room has been made, or the sender's wait is over for another reason.
    space: Condvar,
    /// A message has come, or the receiver's wait is over for another reason.
    arrival: Condvar,
    budget_bytes: usize,
    max_messages: usize,
}

/// A message is never dropped while this is locked: its destructor is not ours.
#[derive(Debug)]
struct State<T> {
    queue: VecDeque<(T, usize)>,
    /// The sum over the queue. Cannot overflow: only a lone message may exceed the budget.
    bytes: usize,
    ended: bool,
    sender_gone: bool,
    receiver_gone: bool,
    cancelled: bool,
    sender_waits: bool,
    receiver_waits: bool,
}

impl<T> Shared<T> {
    /// No code of others runs under the lock, so a poisoned state is a whole state.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Cancellable for Shared<T> {
    fn cancel(&self) {
        let mut state = self.lock();
        state.cancelled = true;
        let unread = state.clear();
        drop(state);
        self.space.notify_one();
        self.arrival.notify_one();
        drop(unread);
    }
}

impl<T> State<T> {
    fn refusal(&self) -> Result<(), SendError> {
        if self.cancelled {
            return Err(SendError::Cancelled);
        }
        if self.receiver_gone {
            return Err(SendError::Closed);
        }
        Ok(())
    }

    fn has_room(&self, bytes: usize, budget_bytes: usize, max_messages: usize) -> bool {
        if self.queue.is_empty() {
            return true;
        }
        let fits = self
            .bytes
            .checked_add(bytes)
            .is_some_and(|sum| sum <= budget_bytes);
        fits && self.queue.len() < max_messages
    }

    fn clear(&mut self) -> VecDeque<(T, usize)> {
        self.bytes = 0;
        mem::take(&mut self.queue)
    }
}

fn wait<'a, T>(on: &Condvar, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
    on.wait(state).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! A channel between two stages, bounded by bytes.
//!
//! One mutex and two condition variables: a stage that has to wait sleeps. The end is said with
//! [`Sender::end`]; a sender that is dropped without it aborts, which is never an end.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The writing end.
pub struct Sender<T>(Arc<Shared<T>>);

/// The reading end.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Wakes both ends and makes them give up.
pub struct CancelHandle<T>(Arc<Shared<T>>);

/// What [`Receiver::recv`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The next message.
    Item(T),
    /// The sender said that there is no more.
    End,
    /// The sender went away without saying so.
    Aborted,
    /// The run was cancelled.
    Cancelled,
}

/// The other end is gone, or the run was cancelled; the message was not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Something came, or the sender is done.
    filled: Condvar,
    /// Something was taken, or the receiver is gone.
    drained: Condvar,
    budget_bytes: usize,
    max_messages: usize,
}

struct Queue<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    sender: SenderState,
    receiver_gone: bool,
    cancelled: bool,
}

#[derive(PartialEq)]
enum SenderState {
    Open,
    Ended,
    Aborted,
}

/// A channel that holds at most `budget_bytes` and `max_messages`. A message larger than the
/// budget passes when the channel is empty.
pub fn channel<T>(budget_bytes: usize, max_messages: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            items: VecDeque::new(),
            bytes: 0,
            sender: SenderState::Open,
            receiver_gone: false,
            cancelled: false,
        }),
        filled: Condvar::new(),
        drained: Condvar::new(),
        budget_bytes,
        max_messages: max_messages.max(1),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// Waits for room, then hands the message over.
    pub fn send(&self, item: T, bytes: usize) -> Result<(), Closed> {
        let shared = &*self.0;
        let full = |queue: &mut Queue<T>| {
            let over = queue.bytes.saturating_add(bytes) > shared.budget_bytes
                || queue.items.len() >= shared.max_messages;
            over && !queue.items.is_empty() && !queue.receiver_gone && !queue.cancelled
        };
        let waited = shared.drained.wait_while(shared.lock(), full);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.receiver_gone || queue.cancelled {
            return Err(Closed);
        }
        queue.bytes += bytes;
        queue.items.push_back((item, bytes));
        shared.filled.notify_one();
        Ok(())
    }

    /// Says that there is no more.
    pub fn end(self) {
        // Dropping `self` then wakes the receiver.
        self.0.lock().sender = SenderState::Ended;
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        if queue.sender == SenderState::Open {
            queue.sender = SenderState::Aborted;
        }
        self.0.filled.notify_one();
    }
}

impl<T> Receiver<T> {
    /// Waits for the next message. An abort is reported at once, whatever is still queued.
    pub fn recv(&self) -> Received<T> {
        let nothing = |queue: &mut Queue<T>| {
            queue.items.is_empty() && queue.sender == SenderState::Open && !queue.cancelled
        };
        let waited = self.0.filled.wait_while(self.0.lock(), nothing);
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        if queue.cancelled {
            return Received::Cancelled;
        }
        if queue.sender == SenderState::Aborted {
            return Received::Aborted;
        }
        match queue.items.pop_front() {
            Some((item, bytes)) => {
                queue.bytes -= bytes;
                self.0.drained.notify_one();
                Received::Item(item)
            }
            None => Received::End,
        }
    }

    /// What cancels the channel from a third thread.
    pub fn cancel_handle(&self) -> CancelHandle<T> {
        CancelHandle(Arc::clone(&self.0))
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.receiver_gone = true;
        queue.items.clear();
        queue.bytes = 0;
        self.0.drained.notify_one();
    }
}

impl<T> CancelHandle<T> {
    /// Both ends give up, now and from now on.
    pub fn cancel(&self) {
        self.0.lock().cancelled = true;
        self.0.filled.notify_all();
        self.0.drained.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn an_end_comes_after_everything_and_an_abort_before() {
        let (sender, receiver) = channel(100, 10);
        sender.send(1, 10).unwrap();
        sender.end();
        assert_eq!(receiver.recv(), Received::Item(1));
        assert_eq!(receiver.recv(), Received::End);
        let (sender, receiver) = channel(100, 10);
        sender.send(1, 10).unwrap();
        drop(sender);
        assert_eq!(receiver.recv(), Received::Aborted);
    }

    #[test]
    fn a_message_above_the_budget_passes_alone() {
        let (sender, receiver) = channel(100, 10);
        sender.send(1, 1_000).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                sender.send(2, 1).unwrap();
                sender.send(3, 1_000).unwrap();
                sender.end();
            });
            assert_eq!(receiver.recv(), Received::Item(1));
            assert_eq!(receiver.recv(), Received::Item(2));
            assert_eq!(receiver.recv(), Received::Item(3));
            assert_eq!(receiver.recv(), Received::End);
        });
    }

    #[test]
    fn a_waiting_end_learns_that_the_other_is_gone_or_cancelled() {
        let (sender, receiver) = channel(10, 10);
        sender.send(1, 10).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send(2, 10));
            drop(receiver);
            assert_eq!(waiting.join().unwrap(), Err(Closed));
        });
        let (sender, receiver) = channel::<u8>(10, 10);
        let handle = receiver.cancel_handle();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| receiver.recv());
            handle.cancel();
            assert_eq!(waiting.join().unwrap(), Received::Cancelled);
        });
        assert_eq!(sender.send(1, 1), Err(Closed));
    }

    #[test]
    fn nothing_is_lost_and_the_budget_holds_under_load() {
        const BUDGET: usize = 1_000;
        for round in 0..20_usize {
            let (sender, receiver) = channel(BUDGET, 7 + round);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..5_000_usize {
                        sender.send(i, 1 + (i * 7919 + round) % 400).unwrap();
                        assert!(sender.0.lock().bytes <= BUDGET);
                    }
                    sender.end();
                });
                for expected in 0..5_000 {
                    assert_eq!(receiver.recv(), Received::Item(expected));
                }
                assert_eq!(receiver.recv(), Received::End);
            });
        }
    }
}

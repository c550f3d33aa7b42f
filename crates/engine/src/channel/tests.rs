use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;

/// Returns once the sender waits.
fn until_sender_waits<T>(shared: &Shared<T>) {
    while !shared.lock().sender_waits {
        thread::yield_now();
    }
}

/// Returns once the receiver waits.
fn until_receiver_waits<T>(shared: &Shared<T>) {
    while !shared.lock().receiver_waits {
        thread::yield_now();
    }
}

#[test]
fn gives_the_end_after_the_last_message_and_again() {
    let (mut sender, mut receiver) = channel(10, 4);
    sender.send("a", 1).unwrap();
    sender.send("b", 1).unwrap();
    sender.end().unwrap();
    assert_eq!(receiver.recv(), Received::Item("a"));
    assert_eq!(receiver.recv(), Received::Item("b"));
    assert_eq!(receiver.recv(), Received::End);
    assert_eq!(receiver.recv(), Received::End);
}

#[test]
fn a_sender_dropped_without_end_is_an_abort_never_an_end() {
    let (mut sender, mut receiver) = channel(10, 4);
    sender.send("queued", 1).unwrap();
    drop(sender);
    assert_eq!(receiver.recv(), Received::Aborted);
    assert_eq!(receiver.recv(), Received::Aborted);
}

#[test]
fn a_panic_in_the_producer_is_an_abort() {
    let (mut sender, mut receiver) = channel(10, 4);
    let producer = thread::spawn(move || {
        sender.send(1, 1).unwrap();
        panic::resume_unwind(Box::new("the producer dies"));
    });
    assert!(producer.join().is_err(), "the fault fired");
    assert_eq!(receiver.recv(), Received::<i32>::Aborted);
}

#[test]
fn an_abort_wakes_a_waiting_receiver() {
    let (sender, mut receiver) = channel::<u8>(10, 4);
    let shared = Arc::clone(&sender.shared);
    let consumer = thread::spawn(move || receiver.recv());
    until_receiver_waits(&shared);
    drop(sender);
    assert_eq!(consumer.join().unwrap(), Received::Aborted);
}

#[test]
fn an_end_wakes_a_waiting_receiver() {
    let (sender, mut receiver) = channel::<u8>(10, 4);
    let shared = Arc::clone(&sender.shared);
    let consumer = thread::spawn(move || receiver.recv());
    until_receiver_waits(&shared);
    sender.end().unwrap();
    assert_eq!(consumer.join().unwrap(), Received::End);
}

#[test]
fn a_dropped_receiver_fails_the_next_send_and_the_end() {
    let (mut sender, receiver) = channel(10, 4);
    drop(receiver);
    assert_eq!(sender.send(1, 1), Err(SendError::Closed));
    assert_eq!(sender.end(), Err(SendError::Closed));
}

#[test]
fn a_dropped_receiver_wakes_a_blocked_sender() {
    let (mut sender, receiver) = channel(10, 4);
    let shared = Arc::clone(&receiver.shared);
    let producer = thread::spawn(move || {
        sender.send(1, 10).unwrap();
        sender.send(2, 1)
    });
    until_sender_waits(&shared);
    drop(receiver);
    assert_eq!(producer.join().unwrap(), Err(SendError::Closed));
}

#[test]
fn cancelling_wakes_a_blocked_sender_and_reaches_the_receiver() {
    let (mut sender, mut receiver) = channel(10, 4);
    let cancel = receiver.cancel_handle();
    let shared = Arc::clone(&receiver.shared);
    let producer = thread::spawn(move || {
        sender.send(1, 10).unwrap();
        let blocked = sender.send(2, 1);
        (blocked, sender.end())
    });
    until_sender_waits(&shared);
    cancel.cancel();
    let cancelled = Err(SendError::Cancelled);
    assert_eq!(
        producer.join().unwrap(),
        (cancelled, Err(SendError::Cancelled))
    );
    assert_eq!(
        receiver.recv(),
        Received::Cancelled,
        "before the queued item"
    );
}

#[test]
fn cancelling_wakes_a_waiting_receiver() {
    let (sender, mut receiver) = channel::<u8>(10, 4);
    let shared = Arc::clone(&sender.shared);
    let consumer = thread::spawn(move || receiver.recv());
    until_receiver_waits(&shared);
    sender.cancel_handle().cancel();
    assert_eq!(consumer.join().unwrap(), Received::Cancelled);
}

#[test]
fn a_message_above_the_budget_passes_alone() {
    let (mut sender, mut receiver) = channel(10, 4);
    let shared = Arc::clone(&receiver.shared);
    let producer = thread::spawn(move || {
        sender.send("small", 1).unwrap();
        sender.send("huge", usize::MAX).unwrap();
        sender.send("behind", 1).unwrap();
        sender.end().unwrap();
    });
    until_sender_waits(&shared);
    assert_eq!(
        shared.lock().bytes,
        1,
        "the huge one is not in beside another"
    );
    assert_eq!(receiver.recv(), Received::Item("small"));
    while shared.lock().bytes != usize::MAX {
        thread::yield_now();
    }
    until_sender_waits(&shared);
    assert_eq!(receiver.recv(), Received::Item("huge"));
    assert_eq!(receiver.recv(), Received::Item("behind"));
    assert_eq!(receiver.recv(), Received::End);
    producer.join().unwrap();
}

#[test]
fn the_number_of_messages_is_bounded_too() {
    let (mut sender, mut receiver) = channel(usize::MAX, 2);
    let shared = Arc::clone(&receiver.shared);
    let producer = thread::spawn(move || {
        for i in 0..3 {
            sender.send(i, 0).unwrap();
        }
        sender.end().unwrap();
    });
    until_sender_waits(&shared);
    assert_eq!(shared.lock().queue.len(), 2);
    assert_eq!(receiver.recv(), Received::Item(0));
    producer.join().unwrap();
}

#[test]
fn a_limit_of_no_messages_counts_as_one() {
    let (mut sender, mut receiver) = channel(0, 0);
    sender.send(1, 5).unwrap();
    assert_eq!(receiver.recv(), Received::Item(1));
}

/// Counts its own bytes from before the send to after the receive.
struct Counted {
    number: usize,
    bytes: usize,
}

/// Sends `sizes` through a channel of `budget` and checks every promise on the way.
fn stress(sizes: &[usize], budget: usize, max_messages: usize) {
    let (sender, mut receiver) = channel(budget, max_messages);
    let shared = Arc::clone(&receiver.shared);
    let highest = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = sender;
            for (number, &bytes) in sizes.iter().enumerate() {
                sender.send(Counted { number, bytes }, bytes).unwrap();
                let state = shared.lock();
                let queued: usize = state.queue.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(queued, state.bytes);
                assert!(state.queue.len() <= max_messages);
                assert!(queued <= budget || state.queue.len() == 1);
                highest.fetch_max(queued, Ordering::Relaxed);
            }
            sender.end().unwrap();
        });
        for (number, &bytes) in sizes.iter().enumerate() {
            let Received::Item(item) = receiver.recv() else {
                panic!("message {number} is lost");
            };
            assert_eq!((item.number, item.bytes), (number, bytes));
        }
        assert!(matches!(receiver.recv(), Received::End));
    });
    let lone = sizes.iter().copied().max().unwrap_or(0);
    assert!(highest.into_inner() <= budget.max(lone));
    assert_eq!(shared.lock().bytes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_and_the_budget_holds(
        sizes in proptest::collection::vec(0_usize..40, 0..400),
        budget in 0_usize..100,
        max_messages in 1_usize..6,
    ) {
        stress(&sizes, budget, max_messages);
    }
}

#[test]
fn no_wake_up_is_lost_in_a_long_ping_pong() {
    let sizes: Vec<usize> = (0..50_000).map(|i| i % 7).collect();
    stress(&sizes, 6, 1);
}

#[test]
fn cancelling_at_any_moment_stops_both_sides() {
    for round in 0..40 {
        let (mut sender, mut receiver) = channel(4, 2);
        let cancel = sender.cancel_handle();
        let producer = thread::spawn(move || {
            let mut sent = 0_usize;
            while sender.send(sent, sent % 5).is_ok() {
                sent += 1;
            }
        });
        let consumer = thread::spawn(move || {
            let mut next = 0;
            loop {
                match receiver.recv() {
                    Received::Item(item) => assert_eq!(item, next),
                    other => return other,
                }
                next += 1;
            }
        });
        for _ in 0..round {
            thread::yield_now();
        }
        cancel.cancel();
        producer.join().unwrap();
        // The producer stops and goes away too; whichever the receiver sees first, no end.
        let last = consumer.join().unwrap();
        assert_eq!(last, Received::Cancelled);
    }
}

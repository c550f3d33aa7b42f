//! The rules of the outbox, on a real file.

use rusqlite::{Connection, TransactionBehavior};
use serde_json::json;

use super::super::messages::of_dead;
use super::*;

const DAY_MS: i64 = 24 * 3_600_000;

fn open() -> Connection {
    let connection = Connection::open_in_memory().expect("a store");
    connection.execute_batch(TABLES).expect("tables");
    connection
}

fn write<T>(connection: &mut Connection, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> T {
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = begun.expect("a transaction");
    let done = work(&transaction).expect("done");
    transaction.commit().expect("committed");
    done
}

fn draft(event: Event, number: i64) -> Draft {
    Draft {
        event,
        pipeline: "p".into(),
        stream: None,
        content: json!({ "number": number }),
    }
}

fn record(connection: &mut Connection, event: Event, number: i64) -> Told {
    write(connection, |all| add(all, &[draft(event, number)], number))
}

fn taken(connection: &mut Connection, now_ms: i64) -> Option<Message> {
    match write(connection, |all| take(all, now_ms, &[])) {
        Next::Send(message) => Some(*message),
        Next::Wait(_) => None,
    }
}

fn failure(is_of_receiver: bool) -> Failed {
    Failed {
        status: Some(500),
        text: "no".into(),
        retry_after_ms: Some(0),
        is_of_receiver,
    }
}

#[test]
fn a_message_that_was_taken_and_not_sent_comes_again_with_its_id() {
    let mut connection = open();
    assert_eq!(
        record(&mut connection, Event::Failure, 5),
        Told {
            recorded: 1,
            dropped: 0
        }
    );
    let first = taken(&mut connection, 5).expect("a message");
    let body: Value = serde_json::from_str(&first.body).expect("JSON");
    assert_eq!(body, json!({ "id": first.delivery, "number": 5 }));
    assert_eq!((first.attempt, first.delivery.len()), (1, 36));
    // As if the process had ended here.
    assert_eq!(
        write(&mut connection, |all| take(all, 6, &[])),
        Next::Wait(Some(5 + FIRST_PAUSE_MS))
    );
    let second = taken(&mut connection, 5 + FIRST_PAUSE_MS).expect("a message");
    assert_eq!(
        (&second.delivery, &second.body, second.attempt),
        (&first.delivery, &first.body, 2)
    );
    write(&mut connection, |all| remove(all, second.id));
    assert_eq!(
        write(&mut connection, |all| take(all, DAY_MS, &[])),
        Next::Wait(None)
    );
}

#[test]
fn pauses_grow_to_an_hour_and_a_message_is_given_up_after_a_day() {
    let mut connection = open();
    record(&mut connection, Event::Failure, 0);
    let (mut now_ms, mut pauses) = (0, Vec::new());
    loop {
        let message = taken(&mut connection, now_ms).expect("a message");
        let is_given_up = write(&mut connection, |all| {
            fail(all, &message, &failure(false), now_ms)
        });
        let next = write(&mut connection, |all| take(all, now_ms, &[]));
        let Next::Wait(Some(due_ms)) = next else {
            assert!(is_given_up && next == Next::Wait(None), "{next:?}");
            break;
        };
        assert!(!is_given_up);
        pauses.push(due_ms - now_ms);
        now_ms = due_ms;
    }
    assert_eq!(pauses[..4], [1_000, 2_000, 4_000, 8_000]);
    assert_eq!(pauses.iter().max(), Some(&MAX_PAUSE_MS));
    assert!(
        (DAY_MS..DAY_MS + MAX_PAUSE_MS).contains(&now_ms),
        "{now_ms}"
    );
    let outbox = write(&mut connection, |all| of_pipeline(all, "p"));
    let last = outbox.last_failure.expect("a failure");
    assert_eq!(
        (outbox.waiting, &last["given_up"], &last["attempts"]),
        (0, &json!(true), &json!(pauses.len() + 1))
    );
}

#[test]
fn a_receiver_that_is_gone_gets_its_other_messages_later_and_others_get_theirs() {
    let mut connection = open();
    for event in [Event::Failure, Event::Failure, Event::Success] {
        record(&mut connection, event, 0);
    }
    let first = taken(&mut connection, 0).expect("a message");
    write(&mut connection, |all| fail(all, &first, &failure(true), 10));
    let other = taken(&mut connection, 10).expect("a message");
    assert_eq!(other.event, Event::Success);
    // A message that the receiver does not like holds up no other.
    write(&mut connection, |all| {
        fail(all, &other, &failure(false), 10)
    });
    assert_eq!(taken(&mut connection, 10), None);
    let again = [1_010; 3].map(|now_ms| taken(&mut connection, now_ms).expect("one").event);
    assert_eq!(again, [Event::Failure, Event::Failure, Event::Success]);
    // A pause that the receiver asks for, within limits.
    let asks = Failed {
        retry_after_ms: Some(30_000),
        ..failure(false)
    };
    write(&mut connection, |all| fail(all, &first, &asks, 2_000));
    let due: i64 = connection
        .query_row(
            "SELECT due_ms FROM message WHERE id = ?1",
            [first.id],
            |row| row.get(0),
        )
        .expect("a message");
    assert_eq!(due, 32_000);
}

#[test]
fn a_busy_receiver_holds_up_no_other() {
    let mut connection = open();
    for (event, number) in [
        (Event::Failure, 0),
        (Event::Failure, 1),
        (Event::Success, 2),
    ] {
        record(&mut connection, event, number);
    }
    let first = taken(&mut connection, 5).expect("a message");
    let busy = [first.receiver()];
    let next = write(&mut connection, |all| take(all, 5, &busy));
    let Next::Send(other) = next else {
        panic!("{next:?}");
    };
    assert_eq!((first.event, other.event), (Event::Failure, Event::Success));
    let busy = [first.receiver(), other.receiver()];
    // Only what was taken is due later.
    assert_eq!(
        write(&mut connection, |all| take(all, 5, &busy)),
        Next::Wait(Some(5 + FIRST_PAUSE_MS))
    );
    write(&mut connection, |all| remove(all, first.id));
    let second = taken(&mut connection, 5).expect("a message");
    assert_eq!(second.receiver(), first.receiver());
}

#[test]
fn dead_jobs_of_a_minute_are_one_message_with_their_number() {
    let mut connection = open();
    let mut dead = |stream: &str, job: i64, now_ms: i64| {
        let draft = of_dead("p", stream, job, &json!({ "code": "c" }), now_ms);
        write(&mut connection, |all| {
            let told = add_dead(all, &draft, now_ms)?;
            Ok((told.recorded, take(all, now_ms, &[])?))
        })
    };
    let queue = |next: Next| match next {
        Next::Send(message) => {
            let body: Value = serde_json::from_str(&message.body).expect("JSON");
            Some((
                body["queue"]["dead_jobs"].clone(),
                body["queue"]["last_dead_job"].clone(),
            ))
        }
        Next::Wait(_) => None,
    };
    let is_sent = |(recorded, next): (usize, Next)| (recorded, queue(next));
    assert_eq!(
        is_sent(dead("s", 1, 0)),
        (1, Some((json!(1), json!(1)))),
        "the first one is sent at once"
    );
    // The message that was sent may come again: it is not changed.
    assert_eq!(is_sent(dead("s", 2, 10)), (1, None));
    assert_eq!(is_sent(dead("s", 3, 20)), (0, None));
    assert_eq!(
        is_sent(dead("t", 4, 30)),
        (1, Some((json!(1), json!(4)))),
        "another stream"
    );
    let mut messages = Vec::new();
    while let Some(message) = taken(&mut connection, DEAD_EVERY_MS) {
        let body: Value = serde_json::from_str(&message.body).expect("JSON");
        messages.push((message.attempt, body["queue"].clone()));
    }
    let counts: Vec<_> = messages
        .iter()
        .filter(|(attempt, _)| *attempt == 1)
        .map(|(_, queue)| (&queue["dead_jobs"], &queue["last_dead_job"]))
        .collect();
    assert_eq!(counts, [(&json!(2), &json!(3))]);
}

#[test]
fn the_oldest_messages_are_dropped_where_too_many_wait() {
    let mut connection = open();
    let told = write(&mut connection, |all| {
        let drafts: Vec<Draft> = (0..=MAX_WAITING as i64)
            .map(|number| draft(Event::Failure, number))
            .collect();
        add(all, &drafts, 0)
    });
    assert_eq!(told.dropped, 1);
    let oldest = taken(&mut connection, 0).expect("a message");
    let body: Value = serde_json::from_str(&oldest.body).expect("JSON");
    assert_eq!(body["number"], 1);
    let outbox = write(&mut connection, |all| of_pipeline(all, "p"));
    assert_eq!(outbox.waiting, MAX_WAITING as u64);
}

#[test]
fn a_clock_that_was_far_ahead_does_not_silence_messages() {
    let mut connection = open();
    record(&mut connection, Event::Failure, 400 * DAY_MS);
    let message = taken(&mut connection, 0).expect("a message");
    assert_eq!(message.created_ms, 400 * DAY_MS);
}

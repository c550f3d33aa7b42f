//! The messages that wait in `runs.db`. A message is recorded in the transaction of the event that it tells.
//!
//! A message is taken before it is sent, and removed after the receiver took it: if the process ends in between, the next
//! one sends it again, with the same id.

use ring::rand::{SecureRandom, SystemRandom};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::{Value, json};

use super::RunsError;
use super::messages::{Draft, Event, join};
use super::store::Store;

/// Messages that wait. The oldest is dropped for a new one.
const MAX_WAITING: usize = 10_000;
/// The pause after the first attempt. Each pause is twice as long as the one before.
const FIRST_PAUSE_MS: i64 = 1_000;
/// The longest pause between two attempts.
const MAX_PAUSE_MS: i64 = 3_600_000;
/// A message that is as old as this after an attempt is given up.
const GIVEN_UP_AFTER_MS: i64 = 24 * 3_600_000;
/// The time between two messages about dead jobs of a stream.
const DEAD_EVERY_MS: i64 = 60_000;
/// Random bytes of an id.
const ID_BYTES: usize = 16;

pub(super) const TABLES: &str = r#"
-- Messages of notify that wait. Times are milliseconds since 1970.
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The id that receivers see, the same for each attempt.
    delivery TEXT NOT NULL UNIQUE,
    pipeline TEXT NOT NULL,
    event TEXT NOT NULL,
    -- The stream whose dead jobs the message counts: later ones join it before its first attempt.
    stream TEXT,
    body TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    due_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX message_by_due ON message (due_ms);
CREATE INDEX message_by_pipeline ON message (pipeline, id);
-- The last attempt of each pipeline that failed, as JSON.
CREATE TABLE failed_delivery (
    pipeline TEXT PRIMARY KEY,
    failure TEXT NOT NULL
) STRICT;
-- When the last message about dead jobs of a stream was due.
CREATE TABLE dead_told (
    pipeline TEXT NOT NULL,
    stream TEXT NOT NULL,
    due_ms INTEGER NOT NULL,
    PRIMARY KEY (pipeline, stream)
) STRICT;
"#;

type Result<T> = std::result::Result<T, RunsError>;

/// A message at an attempt to send it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    pub id: i64,
    pub delivery: String,
    pub pipeline: String,
    pub event: Event,
    pub body: String,
    pub created_ms: i64,
    /// From 1.
    pub attempt: u32,
}

impl Message {
    /// As the query of [`take`] writes it. Names of pipelines have no line break.
    pub(super) fn receiver(&self) -> Receiver {
        format!("{}\n{}", self.pipeline, self.event.name())
    }
}

/// Who gets a message: one URL of a pipeline, which gets one at a time.
pub(super) type Receiver = String;

/// The next step of a thread that sends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    Send(Box<Message>),
    /// Nothing is due before this moment, or until a message is recorded.
    Wait(Option<i64>),
}

/// The outcome of recording messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub recorded: usize,
    /// Older messages that were dropped for them.
    pub dropped: usize,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failed {
    /// The status of the answer. `None` without one.
    pub status: Option<u16>,
    /// What happened, without secrets.
    pub text: String,
    /// Another attempt may succeed, after this many milliseconds at least.
    pub retry_after_ms: Option<i64>,
    /// The receiver cannot be reached, or asks for a pause: its other messages wait, too.
    pub is_of_receiver: bool,
}

/// The messages of a pipeline, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outbox {
    pub waiting: u64,
    pub oldest_ms: Option<i64>,
    pub last_failure: Option<Value>,
}

impl Store {
    /// Records a message about the queue.
    pub(super) fn add_message(&self, draft: Draft, now_ms: i64) -> Result<Told> {
        self.call(move |transaction| match draft.stream {
            Some(_) => add_dead(transaction, &draft, now_ms),
            None => add(transaction, &[draft], now_ms),
        })
    }

    /// Takes the next message that is due, but none of these receivers.
    pub(super) fn take_message(&self, now_ms: i64, busy: Vec<Receiver>) -> Result<Next> {
        self.call(move |transaction| take(transaction, now_ms, &busy))
    }

    /// Forgets a message.
    pub(super) fn remove_message(&self, id: i64) -> Result<()> {
        self.call(move |transaction| remove(transaction, id))
    }

    /// Records an attempt that failed. Returns whether the message was given up.
    pub(super) fn fail_message(
        &self,
        message: &Message,
        failed: &Failed,
        now_ms: i64,
    ) -> Result<bool> {
        let (message, failed) = (message.clone(), failed.clone());
        self.call(move |transaction| fail(transaction, &message, &failed, now_ms))
    }

    pub(super) async fn outbox(&self, pipeline: String) -> Result<Outbox> {
        self.ask(move |transaction| of_pipeline(transaction, &pipeline))
            .await
    }
}

/// Records messages.
pub(super) fn add(transaction: &Transaction<'_>, drafts: &[Draft], now_ms: i64) -> Result<Told> {
    let mut told = Told::default();
    for draft in drafts {
        insert(transaction, draft, now_ms, now_ms)?;
        told.recorded += 1;
    }
    if told.recorded > 0 {
        told.dropped = drop_oldest(transaction)?;
    }
    Ok(told)
}

/// Records a dead job of a stream: in a message that waits for its first attempt, or in a new one, which is due at least a
/// minute after the last one.
fn add_dead(transaction: &Transaction<'_>, draft: &Draft, now_ms: i64) -> Result<Told> {
    let sql =
        "SELECT id, body FROM message WHERE pipeline = ?1 AND stream = ?2 AND attempts = 0 LIMIT 1";
    let waiting = transaction.query_row(sql, params![draft.pipeline, draft.stream], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
    });
    if let Some((id, body)) = waiting.optional()? {
        let mut body: Value = serde_json::from_str(&body).map_err(unreadable)?;
        join(&mut body, &draft.content);
        let sql = "UPDATE message SET body = ?2 WHERE id = ?1";
        transaction.execute(sql, params![id, body.to_string()])?;
        return Ok(Told::default());
    }
    let key = params![draft.pipeline, draft.stream];
    let sql = "SELECT due_ms FROM dead_told WHERE pipeline = ?1 AND stream = ?2";
    let last: Option<i64> = transaction
        .query_row(sql, key, |row| row.get(0))
        .optional()?;
    // A clock that was set back makes the pause no longer.
    let due_ms = last.map_or(now_ms, |last| last.saturating_add(DEAD_EVERY_MS));
    let due_ms = due_ms.clamp(now_ms, now_ms.saturating_add(DEAD_EVERY_MS));
    // Streams that have no dead jobs any more are forgotten.
    let sql = "DELETE FROM dead_told WHERE due_ms < ?1";
    transaction.execute(sql, [now_ms.saturating_sub(DEAD_EVERY_MS)])?;
    let sql = "INSERT INTO dead_told (pipeline, stream, due_ms) VALUES (?1, ?2, ?3) \
               ON CONFLICT (pipeline, stream) DO UPDATE SET due_ms = ?3";
    transaction.execute(sql, params![draft.pipeline, draft.stream, due_ms])?;
    insert(transaction, draft, now_ms, due_ms)?;
    Ok(Told {
        recorded: 1,
        dropped: drop_oldest(transaction)?,
    })
}

fn insert(transaction: &Transaction<'_>, draft: &Draft, now_ms: i64, due_ms: i64) -> Result<()> {
    let delivery = new_id()?;
    let mut body = json!({ "id": delivery });
    if let (Value::Object(body), Value::Object(content)) = (&mut body, draft.content.clone()) {
        body.extend(content);
    }
    let sql = "INSERT INTO message (delivery, pipeline, event, stream, body, created_ms, attempts, due_ms) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7)";
    transaction.prepare_cached(sql)?.execute(params![
        delivery,
        draft.pipeline,
        draft.event.name(),
        draft.stream,
        body.to_string(),
        now_ms,
        due_ms,
    ])?;
    Ok(())
}

fn drop_oldest(transaction: &Transaction<'_>) -> Result<usize> {
    let sql = "DELETE FROM message WHERE id <= (SELECT id FROM message ORDER BY id DESC LIMIT 1 OFFSET ?1)";
    Ok(transaction.prepare_cached(sql)?.execute([MAX_WAITING])?)
}

/// Takes the next message that is due, whose receiver is none of these. If its attempt ends without a word, it is due again
/// after a pause.
fn take(transaction: &Transaction<'_>, now_ms: i64, busy: &[Receiver]) -> Result<Next> {
    // A moment that no pause reaches comes from a clock that was wrong.
    let furthest_ms = now_ms.saturating_add(MAX_PAUSE_MS);
    let sql = "UPDATE message SET due_ms = ?1 WHERE due_ms > ?2";
    transaction
        .prepare_cached(sql)?
        .execute([now_ms, furthest_ms])?;
    let sql = "SELECT id, delivery, pipeline, event, body, created_ms, attempts FROM message WHERE due_ms <= ?1 \
               AND pipeline || char(10) || event NOT IN (SELECT value FROM json_each(?2)) ORDER BY due_ms, id LIMIT 1";
    let busy = json!(busy).to_string();
    let mut statement = transaction.prepare_cached(sql)?;
    let next = statement.query_row(params![now_ms, busy], message_of);
    let Some(message) = next.optional()? else {
        // Whoever sends to a busy receiver wakes the others.
        let sql = "SELECT min(due_ms) FROM message WHERE due_ms > ?1";
        return Ok(Next::Wait(
            transaction.query_row(sql, [now_ms], |row| row.get(0))?,
        ));
    };
    let sql = "UPDATE message SET attempts = ?2, due_ms = ?3 WHERE id = ?1";
    let due_ms = now_ms.saturating_add(pause_ms(message.attempt));
    transaction
        .prepare_cached(sql)?
        .execute(params![message.id, message.attempt, due_ms])?;
    Ok(Next::Send(Box::new(message)))
}

/// The receiver took the message, or nobody receives it.
fn remove(transaction: &Transaction<'_>, id: i64) -> Result<()> {
    transaction.execute("DELETE FROM message WHERE id = ?1", [id])?;
    Ok(())
}

/// The attempt failed. Returns whether the message was given up.
fn fail(
    transaction: &Transaction<'_>,
    message: &Message,
    failed: &Failed,
    now_ms: i64,
) -> Result<bool> {
    let is_old = now_ms.saturating_sub(message.created_ms) >= GIVEN_UP_AFTER_MS;
    let again = failed.retry_after_ms.filter(|_| !is_old);
    let failure = json!({
        "at_ms": now_ms, "event": message.event.name(), "id": message.delivery, "attempts": message.attempt,
        "status": failed.status, "message": failed.text, "given_up": again.is_none(),
    });
    let sql = "INSERT INTO failed_delivery (pipeline, failure) VALUES (?1, ?2) \
               ON CONFLICT (pipeline) DO UPDATE SET failure = ?2";
    transaction.execute(sql, params![message.pipeline, failure.to_string()])?;
    let Some(at_least_ms) = again else {
        remove(transaction, message.id)?;
        return Ok(true);
    };
    let pause_ms = pause_ms(message.attempt).max(at_least_ms).min(MAX_PAUSE_MS);
    let due_ms = now_ms.saturating_add(pause_ms);
    let sql = "UPDATE message SET due_ms = ?2 WHERE id = ?1";
    transaction.execute(sql, params![message.id, due_ms])?;
    if failed.is_of_receiver {
        let sql =
            "UPDATE message SET due_ms = ?3 WHERE pipeline = ?1 AND event = ?2 AND due_ms < ?3";
        transaction.execute(sql, params![message.pipeline, message.event.name(), due_ms])?;
    }
    Ok(false)
}

/// The messages of a pipeline that wait, and its last attempt that failed.
fn of_pipeline(transaction: &Transaction<'_>, pipeline: &str) -> Result<Outbox> {
    let sql = "SELECT count(*), min(created_ms) FROM message WHERE pipeline = ?1";
    let (waiting, oldest_ms) =
        transaction.query_row(sql, [pipeline], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sql = "SELECT failure FROM failed_delivery WHERE pipeline = ?1";
    let failure: Option<String> = transaction
        .query_row(sql, [pipeline], |row| row.get(0))
        .optional()?;
    Ok(Outbox {
        waiting,
        oldest_ms,
        last_failure: failure.and_then(|text| serde_json::from_str(&text).ok()),
    })
}

fn pause_ms(attempt: u32) -> i64 {
    let factor = 1_i64 << attempt.saturating_sub(1).min(20);
    FIRST_PAUSE_MS.saturating_mul(factor).min(MAX_PAUSE_MS)
}

fn message_of(row: &Row<'_>) -> rusqlite::Result<Message> {
    let (event, attempts): (String, u32) = (row.get(3)?, row.get(6)?);
    let unknown = || rusqlite::Error::InvalidColumnName(format!("a message about {event:?}"));
    Ok(Message {
        id: row.get(0)?,
        delivery: row.get(1)?,
        pipeline: row.get(2)?,
        event: Event::of(&event).ok_or_else(unknown)?,
        body: row.get(4)?,
        created_ms: row.get(5)?,
        attempt: attempts.saturating_add(1),
    })
}

/// An id that nobody else has, also after the store was restored from a backup.
pub(super) fn new_id() -> Result<String> {
    let mut bytes = [0; ID_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| RunsError::System("no random bytes", std::io::Error::other("ring")))?;
    Ok(format!("msg_{}", super::signature::hex(&bytes)))
}

fn unreadable(error: serde_json::Error) -> RunsError {
    RunsError::Sqlite(format!("a message is not JSON: {error}"))
}

#[cfg(test)]
mod tests;

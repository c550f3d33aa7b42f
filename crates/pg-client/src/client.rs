//! A session with a server: SQL as text, and the state that everything else shares.

use std::time::Duration;

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::config::Host;
use crate::error::{protocol, unsendable};
use crate::repeated::Repeated;
use crate::rows::{Column, Row, Rows, affected, columns};
use crate::wire::{Deadline, Wire, position, server_error};

/// A statement that takes longer than this has most likely lost its server.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);
/// Answers are held in memory; what is large belongs into a COPY.
const MAX_RESULT_BYTES: usize = 16 << 20;
/// Messages of one answer: a hundred times the messages of a script, and as many rows as may be held. A
/// server whose answer never ends is an error.
const MAX_ANSWER_MESSAGES: u32 = 1 << 22;
/// The largest process id of Linux. Poolers make up ids of 32 random bits.
const MAX_PROCESS_ID: i32 = 1 << 22;

/// The state of a session's transaction, as the server reports it after each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// There is none.
    Idle,
    /// One is open.
    Open,
    /// One has failed and can only be rolled back.
    Failed,
}

/// Whether the next request can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Between a request and the end of its answer; after a failure there, for ever.
    Unusable,
}

/// A session with a server. Dropping it closes the connection; [`Client::close`] says good-bye
/// first.
pub struct Client {
    pub(crate) wire: Wire,
    pub(crate) host: Host,
    pub(crate) process_id: i32,
    pub(crate) secret_key: i32,
    pub(crate) next_statement: u32,
    state: State,
    status: TransactionStatus,
    /// The answer to a ROLLBACK comes before that to the next request.
    is_rolling_back: bool,
    /// The server has answered the last request, at least in part.
    pub(crate) is_heard: bool,
    /// The server's tag of the last command, of the last request.
    last_command: String,
    /// See [`Client::error_position`].
    error_position: Option<usize>,
    reply_timeout: Duration,
    max_result_bytes: usize,
    /// See [`Client::is_process`].
    is_other_process: bool,
    repeated: Repeated,
    /// See [`Client::requests`].
    requests: u64,
}

impl Client {
    /// Over a connection whose server has accepted the login.
    pub(crate) fn new(wire: Wire, host: Host, process_id: i32, secret_key: i32) -> Self {
        Self {
            wire,
            host,
            process_id,
            secret_key,
            next_statement: 0,
            state: State::Ready,
            status: TransactionStatus::Idle,
            is_rolling_back: false,
            is_heard: false,
            last_command: String::new(),
            error_position: None,
            reply_timeout: REPLY_TIMEOUT,
            max_result_bytes: MAX_RESULT_BYTES,
            is_other_process: false,
            repeated: Repeated::default(),
            requests: 0,
        }
    }

    /// Runs one or more statements and gives the answer of each, values as text. Counts as the
    /// phase `query`. Errors: the server's; `result_too_large`; `timeout`.
    pub fn simple_query(&mut self, sql: &str) -> Result<Vec<Rows>> {
        let _phase = phase::enter(Kind::Query);
        self.ask(sql)?;
        self.receive_rows()
    }

    /// Runs statements in one send, and gives the answers of the statements that give rows, values as
    /// text. Questions that do not need each other's answers cost one round trip this way.
    /// Counts as the phase `query`. Errors: the errors of [`Client::simple_query`]; `protocol_violation`
    /// if the number of answers is not `questions`.
    pub fn query_each(&mut self, sql: &str, questions: usize) -> Result<Vec<Rows>> {
        let mut answers = self.simple_query(sql)?;
        answers.retain(|rows| !rows.columns.is_empty());
        if answers.len() == questions {
            return Ok(answers);
        }
        self.state = State::Unusable;
        let given = answers.len();
        Err(protocol(format!(
            "{given} answers to {questions} questions"
        )))
    }

    /// As [`Client::query_each`], of a number of questions that is known.
    pub fn query_all<const N: usize>(&mut self, sql: &str) -> Result<[Rows; N]> {
        let answers = self.query_each(sql, N)?;
        answers
            .try_into()
            .map_err(|_| Error::internal("answers that were counted are too few"))
    }

    /// As [`Client::query_each`], of some statements and then of questions that a load asks again and again: the session
    /// prepares them when their texts come for the second time. Behind a pooler it does not.
    pub fn query_again(
        &mut self,
        statements: &str,
        questions: &[String],
        count: usize,
    ) -> Result<Vec<Rows>> {
        let is_kept = !self.is_pgbouncer();
        let ask = |question: &String| match is_kept {
            true => self.repeated.ask(question),
            false => question.clone(),
        };
        let questions: Vec<String> = questions.iter().map(ask).collect();
        let answers = self.query_each(&format!("{statements}{}", questions.join("; ")), count);
        self.repeated.answered(answers.is_ok());
        answers
    }

    /// The statements that execute `sql`, one statement with the parameters `$1`, `$2` and so on, which a load sends again
    /// and again with other arguments (SQL literals). `None` where the arguments have to stand in the statement: the first
    /// time, and behind a pooler. When the request is answered, [`Client::has_prepared`] must follow.
    pub fn prepared(&mut self, sql: &str, arguments: &[String]) -> Option<String> {
        match self.is_pgbouncer() {
            true => None,
            false => self
                .repeated
                .prepared(sql, &format!("({})", arguments.join(", "))),
        }
    }

    /// A request with [`Client::prepared`] was answered. `is_ok`: without an error.
    pub fn has_prepared(&mut self, is_ok: bool) {
        self.repeated.answered(is_ok);
    }

    /// Sends ROLLBACK and does not wait for the answer. The next request does not wait either: it reads the
    /// answer to the ROLLBACK before its own answer, and fails if the ROLLBACK failed.
    pub fn send_rollback(&mut self) -> Result<()> {
        self.rolled_back()?;
        self.ask("ROLLBACK")?;
        self.state = State::Ready;
        self.status = TransactionStatus::Idle;
        self.is_rolling_back = true;
        Ok(())
    }

    /// Reads the answer to a ROLLBACK, if one is due.
    fn rolled_back(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_rolling_back) {
            return Ok(());
        }
        let state = std::mem::replace(&mut self.state, State::Unusable);
        for is_done in [false, true] {
            match self.wire.next(self.deadline())? {
                Message::CommandComplete(body)
                    if !is_done && body.tag().map_err(protocol)? == "ROLLBACK" => {}
                Message::ReadyForQuery(body) if is_done && body.status() == b'I' => {}
                Message::ErrorResponse(body) => return Err(server_error(&body)),
                _ => return Err(protocol("a response to something other than ROLLBACK")),
            }
        }
        self.state = state;
        Ok(())
    }

    /// Runs one or more statements for their effect, and gives the rows that the last one touched.
    /// Counts as the caller's phase, so that a COMMIT can be one.
    pub fn execute(&mut self, sql: &str) -> Result<u64> {
        self.send(sql)?;
        self.receive()
    }

    /// Sends what [`Client::execute`] would, and does not wait: [`Client::receive`] or
    /// [`Client::receive_rows`] must follow.
    pub fn send(&mut self, sql: &str) -> Result<()> {
        self.ask(sql)
    }

    /// Whether the server has begun to answer what was sent, or does so within this time. Errors:
    /// `connection_lost`.
    pub fn is_answered(&mut self, within: Duration) -> Result<bool> {
        self.rolled_back()?;
        Ok(!self.wire.input().is_empty() || self.wire.fill(within)?)
    }

    /// The answer to [`Client::send`], as [`Client::execute`] gives it.
    pub fn receive(&mut self) -> Result<u64> {
        let mut touched = 0;
        self.answer(|message| {
            if let Message::CommandComplete(body) = message {
                touched = affected(body.tag().map_err(protocol)?);
            }
            Ok(())
        })?;
        Ok(touched)
    }

    /// The answer to [`Client::send`] of something that ends with COMMIT, as [`Client::execute`]
    /// gives it. Errors: `not_committed` when the server says that it did something else, such as
    /// ROLLBACK; then nobody knows what became of it, and the client is of no further use.
    pub fn receive_commit(&mut self) -> Result<u64> {
        let touched = self.receive()?;
        if self.last_command == "COMMIT" && self.status == TransactionStatus::Idle {
            return Ok(touched);
        }
        self.state = State::Unusable;
        let text = format!("the server answers COMMIT with {:?}", self.last_command);
        Err(Error::new(ErrorKind::Connection, "not_committed", text)
            .hint("read the server's log; a pooler or proxy in between may have a log too"))
    }

    /// The answer to [`Client::send`], as [`Client::simple_query`] gives it.
    pub fn receive_rows(&mut self) -> Result<Vec<Rows>> {
        let mut answers = Answers::new(self.max_result_bytes);
        self.answer(|message| answers.add(message))?;
        Ok(answers.complete)
    }

    /// A parameter that the server reported, such as `server_version` or `is_superuser`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.wire.parameters.get(name).map(String::as_str)
    }

    /// The server's version as `server_version_num` has it: 150018 for 15.18, 90624 for 9.6.24;
    /// 0 when it cannot be read.
    pub fn server_version(&self) -> u32 {
        version(self.parameter("server_version").unwrap_or_default())
    }

    /// The server process of this session, as `pg_backend_pid()`; a pooler makes one up.
    pub fn process_id(&self) -> i32 {
        self.process_id
    }

    /// Whether a pooler such as PgBouncer is in between. It forwards everything the server reports,
    /// but its process ids are random: one in a thousand looks like one that a system gives, which
    /// [`Client::is_process`] finds out. Behind a pooler, prepared statements and settings may not
    /// outlive a transaction.
    pub fn is_pgbouncer(&self) -> bool {
        self.is_other_process || !(1..=MAX_PROCESS_ID).contains(&self.process_id)
    }

    /// A condition in SQL: the server process has the id that the login gave. It is false behind a
    /// pooler; [`Client::found_other_process`] takes note of that.
    pub fn is_process(&self) -> String {
        format!("pg_catalog.pg_backend_pid() = {}", self.process_id)
    }

    /// [`Client::is_process`] was false.
    pub fn found_other_process(&mut self) {
        self.is_other_process = true;
    }

    /// The server that we are connected to.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The requests so far, each of which costs the way to the server and back.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// As of the last request that was answered.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    /// Whether another request can be sent; not after a failure within one.
    pub fn is_usable(&self) -> bool {
        self.state != State::Unusable
    }

    /// How long the server may say nothing while an answer is due, and take no bytes while some are
    /// to be sent; an hour unless set. Error then: `timeout`.
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// How large an answer may be that is held whole, in bytes; 16 MiB unless set. Error then:
    /// `result_too_large`.
    pub fn set_max_result_bytes(&mut self, bytes: usize) {
        self.max_result_bytes = bytes;
    }

    /// How much is asked of the connection at a time, in bytes; 64 KiB unless set.
    pub fn set_read_bytes(&mut self, bytes: u32) {
        self.wire.read_bytes = bytes.max(1);
    }

    pub(crate) fn max_result_bytes(&self) -> usize {
        self.max_result_bytes
    }

    /// Says good-bye and closes the connection. The server rolls an open transaction back.
    pub fn close(mut self) {
        if self.is_usable() {
            frontend::terminate(&mut self.wire.output);
            // The connection is closed all the same.
            let _ = self.wire.send(Deadline::after(Duration::from_secs(1)));
        }
        self.wire.connection.close();
    }

    /// The deadline of what is asked or sent now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.reply_timeout)
    }

    /// Marks the begin of a request.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.state == State::Unusable {
            return Err(Error::new(
                ErrorKind::Internal,
                "connection_unusable",
                "the connection is in the middle of a request",
            ));
        }
        self.state = State::Unusable;
        self.requests += 1;
        self.is_heard = false;
        self.last_command.clear();
        self.error_position = None;
        if self.is_rolling_back {
            return Ok(());
        }
        // An unasked answer would be taken for the answer to this request.
        match self.wire.buffered()? {
            None => Ok(()),
            // Such as that an administrator ends the session.
            Some(Message::ErrorResponse(body)) => Err(server_error(&body)),
            Some(_) => Err(protocol("a response before the query")),
        }
    }

    /// Sends a request of the simple protocol.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<()> {
        self.begin()?;
        let end = self.wire.output.len();
        if let Err(error) = frontend::query(sql, &mut self.wire.output) {
            // Nothing was sent.
            self.wire.output.truncate(end);
            self.state = State::Ready;
            return Err(unsendable(error));
        }
        self.wire.send(self.deadline())
    }

    /// Nothing of a request was sent after all.
    pub(crate) fn take_back(&mut self) {
        self.wire.output.clear();
        self.state = State::Ready;
    }

    /// The next answer of the server, whatever it is.
    pub(crate) fn next(&mut self) -> Result<Message> {
        self.rolled_back()?;
        let message = self.wire.next(self.deadline())?;
        self.is_heard |= !matches!(message, Message::ReadyForQuery(_));
        Ok(message)
    }

    /// Reads to the end of an answer. The server's first error ends it too, after the rest was
    /// read; an error of `take` leaves the connection unusable.
    pub(crate) fn answer(&mut self, mut take: impl FnMut(&Message) -> Result<()>) -> Result<()> {
        let mut first = None;
        for _ in 0..MAX_ANSWER_MESSAGES {
            let message = match self.next() {
                Ok(message) => message,
                // The server's own word says more than that it is gone.
                Err(error) => return Err(first.unwrap_or(error)),
            };
            if let Message::CommandComplete(body) = &message {
                body.tag()
                    .map_err(protocol)?
                    .clone_into(&mut self.last_command);
            }
            match message {
                Message::ReadyForQuery(_) if !self.is_heard => {
                    return Err(protocol("no response to a query"));
                }
                Message::ReadyForQuery(body) => {
                    self.ready(body.status())?;
                    return first.map_or(Ok(()), Err);
                }
                Message::ErrorResponse(body) => {
                    if first.is_none() {
                        self.error_position = position(&body);
                    }
                    first.get_or_insert_with(|| server_error(&body));
                }
                Message::CopyInResponse(_) => {
                    frontend::copy_fail("no COPY was expected", &mut self.wire.output)
                        .map_err(unsendable)?;
                    self.wire.send(self.deadline())?;
                    first.get_or_insert_with(unexpected_copy);
                }
                Message::CopyOutResponse(_) => {
                    first.get_or_insert_with(unexpected_copy);
                }
                Message::CopyData(_) | Message::CopyDone => {}
                message if first.is_none() => take(&message)?,
                _ => {}
            }
        }
        Err(first.unwrap_or_else(|| protocol("a response without an end")))
    }

    /// The place in the statement that the server named with the error of the last request: the number of a character,
    /// from 1.
    pub fn error_position(&self) -> Option<usize> {
        self.error_position
    }

    /// The server waits for the next request.
    pub(crate) fn ready(&mut self, status: u8) -> Result<()> {
        self.status = match status {
            b'I' => TransactionStatus::Idle,
            b'T' => TransactionStatus::Open,
            b'E' => TransactionStatus::Failed,
            _ => return Err(protocol(format!("a transaction of status {status}"))),
        };
        self.state = State::Ready;
        Ok(())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("host", &self.host)
            .field("process_id", &self.process_id)
            .field("state", &self.state)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Collects answers up to a number of bytes.
pub(crate) struct Answers {
    /// Of the statements that have ended.
    pub complete: Vec<Rows>,
    current: Rows,
    left_bytes: usize,
}

impl Answers {
    pub fn new(max_bytes: usize) -> Self {
        Self {
            complete: Vec::new(),
            current: Rows::default(),
            left_bytes: max_bytes,
        }
    }

    pub fn add(&mut self, message: &Message) -> Result<()> {
        match message {
            Message::RowDescription(body) => {
                self.current.columns = columns(body)?;
                let names = self.current.columns.iter().map(|column| column.name.len());
                let bytes = names.map(|len| len + size_of::<Column>()).sum();
                self.hold(bytes)?;
            }
            Message::DataRow(body) => {
                let (row, bytes) = Row::read(body)?;
                let (given, described) = (row.len(), self.current.columns.len());
                if given != described {
                    let text = format!("a row of {given} values under {described} columns");
                    return Err(protocol(text));
                }
                self.hold(bytes + size_of::<Row>())?;
                self.current.rows.push(row);
            }
            Message::CommandComplete(body) => {
                self.hold(size_of::<Rows>())?;
                self.current.affected = affected(body.tag().map_err(protocol)?);
                self.complete.push(std::mem::take(&mut self.current));
            }
            _ => {}
        }
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

fn too_large() -> Error {
    Error::data("result_too_large", "the response exceeds the memory limit")
        .hint("ask for fewer rows, or read them by COPY")
}

fn unexpected_copy() -> Error {
    Error::internal("a COPY statement where none is expected")
}

/// `15.18 (Debian …)`, `9.6.24`, `17beta1`.
fn version(text: &str) -> u32 {
    let number = |text: &str| {
        let end = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        text[..end].parse::<u32>().unwrap_or(0).min(9999)
    };
    let mut parts = text.split_whitespace().next().unwrap_or("").split('.');
    let mut next = || parts.next().map_or(0, number);
    let (major, minor) = (next(), next());
    if major >= 10 {
        major * 10_000 + minor
    } else {
        major * 10_000 + minor * 100 + next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (text, number) in [
            ("15.18 (Debian 15.18-0+deb12u1)", 150_018),
            ("9.6.24", 90_624),
            ("18beta1", 180_000),
            ("", 0),
            ("é.é", 0),
        ] {
            assert_eq!(version(text), number, "{text}");
        }
    }
}

//! Messages over a connection: whole ones out, whole ones or their bytes in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{
    ErrorResponseBody, Message, NoticeResponseBody, ParameterStatusBody,
};
use rapidbyte_sdk::connection::{Connection, Readiness};
use rapidbyte_sdk::{Error, ErrorKind, Result, log};

use crate::error;

/// A server sends about 8 KiB at a time; more asks for no more (measured, 1M rows by COPY).
const READ_BYTES: u32 = 64 << 10;
/// Tag and length.
pub(crate) const HEADER_BYTES: usize = 5;
/// Messages of a server are short before it accepts the login; as libpq.
const MAX_GREETING_BYTES: usize = 64 << 10;
/// A message is kept in memory whole, so a hostile length is refused before it is used.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// A server reports about fifteen.
const MAX_PARAMETERS: usize = 128;
/// Of a parameter's name and value together. Longer parameters are of no use to us.
const MAX_PARAMETER_BYTES: usize = 4 << 10;
/// The most reads, of notices for example, before a write.
const MAX_UNASKED_READS: usize = 16;
/// How long we listen for a reason when a write failed; it is there already, or never comes.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Notices and the like that may come before the reason.
const MAX_LAST_MESSAGES: usize = 64;

/// A moment by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub fn after(time: Duration) -> Self {
        // Too far away to be written down is never.
        Self(Instant::now().checked_add(time))
    }

    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(Instant::now())
        })
    }

    fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// A connection with its input that was not yet consumed, and its output that was not yet sent.
pub(crate) struct Wire {
    pub connection: Connection,
    /// To be sent by [`Wire::send`].
    pub output: BytesMut,
    /// The parameters that the server reported.
    pub parameters: BTreeMap<String, String>,
    input: Vec<u8>,
    /// The bytes of `input` before this place were consumed.
    at: usize,
    max_message_bytes: usize,
    /// Asked of the connection at a time.
    pub read_bytes: u32,
}

impl Wire {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            output: BytesMut::new(),
            parameters: BTreeMap::new(),
            input: Vec::new(),
            at: 0,
            max_message_bytes: MAX_GREETING_BYTES,
            read_bytes: READ_BYTES,
        }
    }

    /// The server has accepted the login: its messages may be long now.
    pub fn admitted(&mut self) {
        self.max_message_bytes = MAX_MESSAGE_BYTES;
    }

    /// Sends what is in `output`.
    pub fn send(&mut self, deadline: Deadline) -> Result<()> {
        let output = self.output.split();
        self.write(&output, deadline)
    }

    /// Sends bytes that are framed already. When the server closed the connection with a reason,
    /// the reason is the error.
    pub fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<()> {
        match self.connection.write(bytes, deadline.left()) {
            Ok(()) => Ok(()),
            Err(error) if is_timeout(&error) => {
                Err(late("the server does not accept more bytes", "writing"))
            }
            Err(error) => Err(self.last_words().unwrap_or(error)),
        }
    }

    /// The next message that is an answer; notices and parameters are dealt with on the way, and
    /// put off no deadline, however many come.
    pub fn next(&mut self, deadline: Deadline) -> Result<Message> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            if deadline.has_passed() || !self.fill(deadline.left())? {
                return Err(late("the server did not respond in time", "waiting"));
            }
        }
    }

    /// An answer that has come although none is waited for; does not wait for one, but for room
    /// to write. A server that never ceases to send notices is written to all the same.
    pub fn unasked(&mut self, deadline: Deadline) -> Result<Option<Message>> {
        for read in 0.. {
            if let Some(message) = self.buffered()? {
                return Ok(Some(message));
            }
            let both = [Readiness::Readable, Readiness::Writable];
            let ready = self.connection.wait(&both, deadline.left())?;
            if ready.is_empty() || deadline.has_passed() {
                return Err(late("the server does not accept more bytes", "writing"));
            }
            let is_readable = ready.contains(&Readiness::Readable);
            let is_enough = read >= MAX_UNASKED_READS && ready.contains(&Readiness::Writable);
            if is_enough || !is_readable || !self.fill(Duration::from_millis(1))? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The bytes that were read and not yet consumed.
    pub fn input(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// Marks the first `len` bytes of the input as consumed.
    pub fn consume(&mut self, len: usize) {
        self.at = (self.at + len).min(self.input.len());
    }

    /// Consumes `len` bytes and gives them.
    pub fn take(&mut self, len: usize) -> &[u8] {
        let begin = self.at;
        self.consume(len);
        &self.input[begin..self.at]
    }

    /// Reads more into the input; false when nothing came in time.
    pub fn fill(&mut self, wait: Duration) -> Result<bool> {
        let bytes = match self.connection.read(self.read_bytes, wait) {
            Ok(bytes) => bytes,
            Err(error) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Err(Error::new(
                ErrorKind::Connection,
                "connection_lost",
                "the server closed the connection",
            )
            .hint(
                "read the server's log: it restarted or crashed, or somebody ended the \
                 connection",
            ));
        }
        if self.at == self.input.len() {
            // Everything was consumed: the new bytes take the place of the old, uncopied.
            self.input = bytes;
        } else {
            self.input.drain(..self.at);
            self.input.extend_from_slice(&bytes);
        }
        self.at = 0;
        Ok(true)
    }

    /// The tag of the next message and the length of its body, as soon as both have come.
    pub fn header(&self) -> Result<Option<(u8, usize)>> {
        let [tag, a, b, c, d, ..] = *self.input() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([a, b, c, d]);
        match len.checked_sub(4) {
            Some(body) if i32::try_from(len).is_ok() => Ok(Some((tag, body as usize))),
            _ => Err(error::protocol(format!("a message of {len} bytes"))),
        }
    }

    /// As [`Wire::header`], of a message that is to be held in memory whole.
    pub fn bounded_header(&self) -> Result<Option<(u8, usize)>> {
        let header = self.header()?;
        if let Some((_, body)) = header.filter(|(_, body)| *body > self.max_message_bytes) {
            let limit = self.max_message_bytes;
            return Err(Error::data(
                "message_too_large",
                format!("the server announces a message of {body} bytes, but {limit} are allowed"),
            )
            .hint("a single row is too large, or the server is not PostgreSQL"));
        }
        Ok(header)
    }

    /// The next answer among what was read already.
    pub fn buffered(&mut self) -> Result<Option<Message>> {
        self.buffered_but(None)
    }

    /// As [`Wire::buffered`], but nothing when a message of tag `but` is next.
    pub fn buffered_but(&mut self, but: Option<u8>) -> Result<Option<Message>> {
        while let Some((tag, body)) = self.header()? {
            if Some(tag) == but {
                return Ok(None);
            }
            self.bounded_header()?;
            let len = HEADER_BYTES + body;
            if self.input().len() < len {
                return Ok(None);
            }
            let mut bytes = BytesMut::from(self.take(len));
            let parsed = Message::parse(&mut bytes).map_err(error::protocol)?;
            match parsed {
                Some(Message::NoticeResponse(notice)) => show(&notice),
                Some(Message::ParameterStatus(status)) => self.record(&status)?,
                Some(Message::NotificationResponse(_)) => {}
                Some(message) => return Ok(Some(message)),
                None => return Err(error::protocol("a message shorter than it says")),
            }
        }
        Ok(None)
    }

    fn record(&mut self, status: &ParameterStatusBody) -> Result<()> {
        let name = status.name().map_err(error::protocol)?;
        let value = status.value().map_err(error::protocol)?;
        let is_known = self.parameters.contains_key(name);
        let has_room = is_known || self.parameters.len() < MAX_PARAMETERS;
        if has_room && name.len() + value.len() <= MAX_PARAMETER_BYTES {
            self.parameters.insert(name.into(), value.into());
        }
        Ok(())
    }

    /// The error that the server sent before it closed the connection.
    fn last_words(&mut self) -> Option<Error> {
        let deadline = Deadline::after(LAST_WORDS);
        (0..MAX_LAST_MESSAGES)
            .map_while(|_| self.next(deadline).ok())
            .find_map(|message| match message {
                Message::ErrorResponse(body) => Some(server_error(&body)),
                _ => None,
            })
    }
}

/// The error that the server reports, or why it cannot be read.
pub(crate) fn server_error(body: &ErrorResponseBody) -> Error {
    match error::Report::read(body.fields()) {
        Ok(report) => report.into_error(),
        Err(error) => error,
    }
}

/// The place in the statement that an error of the server names.
pub(crate) fn position(body: &ErrorResponseBody) -> Option<usize> {
    let mut fields = body.fields();
    while let Ok(Some(field)) = fields.next() {
        if field.type_() == b'P' {
            return std::str::from_utf8(field.value_bytes()).ok()?.parse().ok();
        }
    }
    None
}

/// Writes a notice to the log, at level debug.
fn show(notice: &NoticeResponseBody) {
    if let Ok(report) = error::Report::read(notice.fields()) {
        log::debug(format_args!("server: {}", report.sentence()));
    }
}

pub(crate) fn is_timeout(error: &Error) -> bool {
    error.code == "timeout"
}

fn late(what: &str, doing: &str) -> Error {
    Error::new(ErrorKind::Transient, "timeout", format!("{what}, {doing}"))
        .hint("check that the server is up and reachable; pg_stat_activity shows what it does")
}

//! A session with a server: commands and their answers.

use std::time::Duration;

use rapidbyte_bson::{Builder, Document};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, ErrorKind, Result};

use crate::error::{malformed, reported, unsendable};
use crate::hello::Hello;
use crate::message::{Answer, Sequence};
use crate::settings::{Host, ReadPreference};
use crate::wire::{Deadline, Wire};
use crate::written::Written;

/// A command that takes longer than this has most likely lost its server.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);

/// A session with a server. Dropping it closes the connection.
pub struct Client {
    pub(crate) wire: Wire,
    pub(crate) host: Host,
    pub(crate) hello: Hello,
    pub(crate) read_preference: ReadPreference,
    pub(crate) reply_timeout: Duration,
    /// Between a request and the end of its answer; after a failure there, for ever.
    pub(crate) is_unusable: bool,
    /// The request whose answer was not read yet.
    pub(crate) asked: Option<i32>,
}

impl Client {
    /// Facts about the server.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The server, as the URL names it.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// True until a request failed without its answer.
    pub fn is_usable(&self) -> bool {
        !self.is_unusable
    }

    /// From now on an answer may take this long.
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// Runs a command in a database; `$db` and the read preference are added. Errors: the server's; `timeout`.
    pub fn command(&mut self, database: &str, command: Builder) -> Result<Reply> {
        self.send(database, command)?;
        self.receive()
    }

    /// Runs two short commands in one round trip: both are sent before the first answer is read. A server works on the
    /// commands of a connection in their order, and on the second one also if the first one fails. Errors: outside the
    /// connection's and `timeout`, inside the server's.
    pub fn command_both(
        &mut self,
        database: &str,
        commands: [Builder; 2],
    ) -> Result<[Result<Reply>; 2]> {
        self.ensure_idle()?;
        let [first, second] = commands.map(|command| finished(database, self.preferring(command)));
        let (first, second) = (first?, second?);
        self.is_unusable = true;
        let deadline = Deadline::after(self.reply_timeout);
        let [first, second] = self.wire.send_both([&first, &second], deadline)?;
        let first = Reply(self.wire.receive(first, deadline)?);
        let second = Reply(self.wire.receive(second, deadline)?);
        self.is_unusable = false;
        Ok([first.checked(), second.checked()])
    }

    /// Sends what [`Client::command`] would, and does not wait: [`Client::receive`] must follow.
    pub fn send(&mut self, database: &str, command: Builder) -> Result<()> {
        let command = self.preferring(command);
        self.ask(database, command, None, true)
    }

    /// The command with the read preference.
    fn preferring(&self, mut command: Builder) -> Builder {
        if let Some(mode) = self.read_preference.sent() {
            command
                .open_document("$readPreference")
                .string("mode", mode)
                .close();
        }
        command
    }

    /// The answer to [`Client::send`]. Counts as the caller's phase. Errors: the server's; `timeout`.
    pub fn receive(&mut self) -> Result<Reply> {
        self.answer()?.checked()
    }

    /// Runs `insert`, `update` or `delete` with documents in a section of their own: `field` is `documents`, `updates` or
    /// `deletes`, and `documents` are whole documents, one behind the other. The caller keeps them within
    /// [`Hello::max_message_bytes`] and [`Hello::max_writes`]. Documents that failed are in the answer, not an error.
    /// Errors: the command itself failed; `timeout`.
    pub fn write(
        &mut self,
        database: &str,
        command: Builder,
        field: &str,
        documents: &[u8],
    ) -> Result<Written> {
        self.send_write(database, command, field, documents)?;
        self.receive_written()
    }

    /// Sends what [`Client::write`] would, and does not wait: [`Client::receive_written`] must follow.
    pub fn send_write(
        &mut self,
        database: &str,
        command: Builder,
        field: &str,
        documents: &[u8],
    ) -> Result<()> {
        let _phase = phase::enter(Kind::Flush);
        let sequence = Sequence {
            name: field,
            documents,
        };
        self.ask(database, command, Some(sequence), true)
    }

    /// The answer to [`Client::send_write`].
    pub fn receive_written(&mut self) -> Result<Written> {
        let reply = self.receive()?;
        Written::read(reply.document()?)
    }

    /// A command of a login, which is never compressed (driver specification "Wire Compression").
    pub(crate) fn quiet_command(&mut self, database: &str, command: Builder) -> Result<Reply> {
        self.ask(database, command, None, false)?;
        self.receive()
    }

    fn ask(
        &mut self,
        database: &str,
        command: Builder,
        sequence: Option<Sequence<'_>>,
        is_compressed: bool,
    ) -> Result<()> {
        self.ensure_idle()?;
        let command = finished(database, command)?;
        self.is_unusable = true;
        let deadline = Deadline::after(self.reply_timeout);
        let request = self
            .wire
            .send(&command, sequence, is_compressed, deadline)?;
        self.asked = Some(request);
        Ok(())
    }

    fn answer(&mut self) -> Result<Reply> {
        let Some(request) = self.asked.take() else {
            self.ensure_usable()?;
            return Err(Error::internal("an answer without a request"));
        };
        let deadline = Deadline::after(self.reply_timeout);
        let answer = self.wire.receive(request, deadline)?;
        self.is_unusable = false;
        Ok(Reply(answer))
    }

    fn ensure_idle(&self) -> Result<()> {
        match self.asked {
            None => self.ensure_usable(),
            Some(_) => Err(Error::internal("a request before the answer to another")),
        }
    }

    fn ensure_usable(&self) -> Result<()> {
        match self.is_unusable {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::Connection,
                "connection_unusable",
                "the connection failed before",
            )),
        }
    }
}

/// The command for a database, as bytes.
fn finished(database: &str, mut command: Builder) -> Result<Vec<u8>> {
    command.string("$db", database);
    command.finish().map_err(unsendable)
}

/// The answer to a command.
#[derive(Debug, Clone)]
pub struct Reply(Answer);

impl Reply {
    /// The document.
    pub fn document(&self) -> Result<Document<'_>> {
        Document::parse(self.0.bytes()).map_err(malformed)
    }

    /// Errors: the server's, if the command failed.
    fn checked(self) -> Result<Self> {
        let document = self.document()?;
        let is_ok = document.get("ok").map_err(malformed)?;
        match is_ok.is_some_and(|ok| ok.is_true()) {
            true => Ok(self),
            false => Err(reported(document).map_err(malformed)?),
        }
    }
}

#[cfg(test)]
mod tests;

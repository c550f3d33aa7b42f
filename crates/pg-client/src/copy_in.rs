//! `COPY … FROM STDIN`: bytes in bulk, and the server's objection as soon as it is there.

use std::borrow::BorrowMut;

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use rapidbyte_sdk::{Error, Result};

use crate::client::Client;
use crate::copy_out::not_a_copy;
use crate::error::{protocol, unsendable};
use crate::wire::{HEADER_BYTES, server_error};

/// Room for the header in front of the bytes given to [`CopyIn::send_framed`].
pub const COPY_HEADER_BYTES: usize = HEADER_BYTES;
/// Fastest on the writing side (measured: 64 to 128 KiB; 8 KiB costs a fifth).
const MESSAGE_BYTES: usize = 128 << 10;
/// Of a message that the caller framed; the server holds it in memory whole.
const MAX_FRAMED_BYTES: usize = 64 << 20;
/// The message `CopyDone`.
const COPY_DONE: [u8; 5] = [b'c', 0, 0, 0, 4];
/// The error code of the server for a copy that we gave up.
const GIVEN_UP: &str = "pg_57014";

/// A copy into the server, over a client that is owned or borrowed. Dropped before
/// [`CopyIn::finish`] or [`CopyIn::fail`] it leaves a borrowed client unusable, and the server keeps
/// nothing of it.
#[derive(Debug)]
pub struct CopyIn<C: BorrowMut<Client>> {
    client: C,
    begun: Begun,
    /// A message that is not full: room for its header, then payload.
    message: Vec<u8>,
    /// The server has ended the copy with an error, or takes no more of it.
    has_ended: bool,
}

/// How far a copy has begun.
#[derive(Debug)]
enum Begun {
    /// The statements that ask for it, and how many of them come before the COPY, go with the first bytes.
    Later(String, usize),
    /// It was asked for. This many answers come before that to the COPY.
    Asked(usize),
    /// The server takes data.
    Ready { is_binary: bool },
}

/// A copy that the server was asked for, and whose answer was not waited for. Dropped it leaves a
/// borrowed client unusable.
#[derive(Debug)]
pub struct CopyAsked<C: BorrowMut<Client>>(CopyIn<C>);

impl Client {
    /// Begins `COPY … FROM STDIN`; the client is borrowed until the copy is dropped.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn<&mut Self>> {
        CopyAsked::send(self, &[], sql)?.ready()
    }

    /// As [`Client::copy_in`], for a writer that owns its connection and has a few rows: the request goes with the first
    /// bytes, and if they are all, nobody waits in between. Statements that give no rows may go `before` the COPY. Errors
    /// of the request come with the bytes. They come at once if the client cannot be used.
    pub fn into_copy_of_few(self, before: &[&str], sql: &str) -> CopyIn<Self> {
        let statements = [before, &[sql]].concat().join("; ");
        CopyIn::new(self, Begun::Later(statements, before.len()))
    }

    /// As [`Client::copy_in`], for a writer that owns its connection and does not wait yet. Statements
    /// that give no rows may go `before` the COPY in the same send.
    pub fn into_copy_in(self, before: &[&str], sql: &str) -> Result<CopyAsked<Self>> {
        CopyAsked::send(self, before, sql)
    }
}

impl<C: BorrowMut<Client>> CopyAsked<C> {
    /// Sends statements for their effect, and `COPY … FROM STDIN` behind them.
    pub(crate) fn send(mut client: C, before: &[&str], sql: &str) -> Result<Self> {
        let statements = [before, &[sql]].concat();
        client.borrow_mut().ask(&statements.join("; "))?;
        Ok(Self(CopyIn::new(client, Begun::Asked(before.len()))))
    }

    /// Waits until the server is ready for data. Errors: the server's; `internal` for a statement that
    /// is no such COPY.
    pub fn ready(mut self) -> Result<CopyIn<C>> {
        self.0.wait_ready()?;
        Ok(self.0)
    }
}

impl<C: BorrowMut<Client>> CopyIn<C> {
    fn new(client: C, begun: Begun) -> Self {
        Self {
            client,
            begun,
            message: vec![0; HEADER_BYTES],
            has_ended: false,
        }
    }

    /// Whether the server takes COPY's binary format. False before it has said so.
    pub fn is_binary(&self) -> bool {
        matches!(self.begun, Begun::Ready { is_binary: true })
    }

    /// Sends bytes of the stream, cut anywhere, collected into messages of 128 KiB. Errors: the
    /// server's, when it has refused what was sent before; `connection_lost`; `timeout`.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = HEADER_BYTES + MESSAGE_BYTES - self.message.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.message.extend_from_slice(now);
            bytes = later;
            if self.message.len() == HEADER_BYTES + MESSAGE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Sends one message without copying it: its first [`COPY_HEADER_BYTES`] are overwritten with the
    /// header, what follows is the stream. 64 to 128 KiB are best. Errors: as [`CopyIn::send`].
    pub fn send_framed(&mut self, message: &mut [u8]) -> Result<()> {
        self.flush()?;
        self.write(message)
    }

    /// Ends the copy and gives the number of rows. Errors: the server's.
    pub fn finish(&mut self) -> Result<u64> {
        self.check_open()?;
        // The last bytes and the end in one send, for which the server wakes once.
        let mut message = std::mem::take(&mut self.message);
        match message.len() == HEADER_BYTES {
            true => message.clear(),
            false => frame(&mut message)?,
        }
        message.extend_from_slice(&COPY_DONE);
        let written = self.write_framed(&message);
        self.has_ended = true;
        written?;
        self.wait_ready()?;
        self.client.borrow_mut().receive()
    }

    /// Gives the copy up: the server keeps nothing of it. A copy that has ended by an error is left
    /// as it is. Errors: `connection_lost` and the like.
    pub fn fail(&mut self, reason: &str) -> Result<()> {
        if self.has_ended {
            return Ok(());
        }
        self.has_ended = true;
        self.message.truncate(HEADER_BYTES);
        match self.begun {
            // The server knows nothing of it.
            Begun::Later(..) => return Ok(()),
            Begun::Asked(_) => {
                if let Err(error) = self.wait_ready() {
                    // The server's error leaves the session as the end of a copy does.
                    let is_usable = self.client.borrow_mut().is_usable();
                    return if is_usable { Ok(()) } else { Err(error) };
                }
            }
            Begun::Ready { .. } => {}
        }
        let session = self.client.borrow_mut();
        let reason = reason.replace('\0', " ");
        frontend::copy_fail(&reason, &mut session.wire.output).map_err(unsendable)?;
        session.wire.send(session.deadline())?;
        match session.answer(|_| Ok(())) {
            // After any answer that leaves the session usable, the server has dropped the copy and waits for a request.
            Err(error) if error.code != GIVEN_UP && !session.is_usable() => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives the client back. It is usable only when the copy has ended.
    pub fn into_client(self) -> C {
        self.client
    }

    /// Sends the message that is not full.
    fn flush(&mut self) -> Result<()> {
        if self.message.len() == HEADER_BYTES {
            return Ok(());
        }
        let mut message = std::mem::take(&mut self.message);
        let written = self.write(&mut message);
        message.truncate(HEADER_BYTES);
        self.message = message;
        written
    }

    fn write(&mut self, message: &mut [u8]) -> Result<()> {
        self.check_open()?;
        frame(message)?;
        let written = self.write_framed(message);
        // A message may be cut off: what came behind it would be taken for rows.
        self.has_ended |= written.is_err();
        written
    }

    /// Writes messages that are framed, behind the request if that was not sent yet.
    fn write_framed(&mut self, messages: &[u8]) -> Result<()> {
        if let Begun::Later(statements, before) = &mut self.begun {
            let (statements, before) = (std::mem::take(statements), *before);
            self.begun = Begun::Asked(before);
            let session = self.client.borrow_mut();
            session.begin()?;
            if let Err(error) = frontend::query(&statements, &mut session.wire.output) {
                session.take_back();
                return Err(unsendable(error));
            }
            session.wire.output.extend_from_slice(messages);
            return session.wire.send(session.deadline());
        }
        self.wait_ready()?;
        self.listen()?;
        let session = self.client.borrow_mut();
        session.wire.write(messages, session.deadline())
    }

    /// Waits until the server takes data, if nobody has done so yet.
    fn wait_ready(&mut self) -> Result<()> {
        let Begun::Asked(mut left) = self.begun else {
            return Ok(());
        };
        let session = self.client.borrow_mut();
        let is_binary = loop {
            match session.next()? {
                Message::CommandComplete(_) if left > 0 => left -= 1,
                Message::CopyInResponse(body) if left == 0 => break body.format() == 1,
                Message::ErrorResponse(body) => {
                    let error = server_error(&body);
                    // Later messages say less than the error.
                    let _ = session.answer(|_| Ok(()));
                    return Err(error);
                }
                _ => return Err(not_a_copy("FROM STDIN")),
            }
        };
        self.begun = Begun::Ready { is_binary };
        Ok(())
    }

    /// Takes notice of an error that the server has sent in the middle.
    fn listen(&mut self) -> Result<()> {
        let session = self.client.borrow_mut();
        let Some(message) = session.wire.unasked(session.deadline())? else {
            return Ok(());
        };
        self.has_ended = true;
        match message {
            Message::ErrorResponse(body) => {
                let error = server_error(&body);
                // The server ends the request without our word, and ignores what it gets until then.
                let _ = session.answer(|_| Ok(()));
                Err(error)
            }
            _ => Err(protocol("a response in the middle of a COPY")),
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.has_ended {
            return Err(Error::internal("the COPY has ended"));
        }
        Ok(())
    }
}

/// Writes the header of a message with data into the room before them.
fn frame(message: &mut [u8]) -> Result<()> {
    let len = u32::try_from(message.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let header = message.first_chunk_mut::<HEADER_BYTES>();
    let Some(header) = header.filter(|_| len as usize <= MAX_FRAMED_BYTES) else {
        return Err(Error::internal(format!(
            "a message of {len} bytes for COPY; it begins with room for a header and has at most {MAX_FRAMED_BYTES}"
        )));
    };
    let [a, b, c, d] = len.to_be_bytes();
    *header = [b'd', a, b, c, d];
    Ok(())
}

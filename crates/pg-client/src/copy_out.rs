//! `COPY … TO STDOUT`: bytes in bulk.
//!
//! The server sends one CopyData message for each row. Their payloads, one after the other, are
//! the stream that COPY makes; where one message ends matters to nobody but us.

use std::borrow::BorrowMut;
use std::time::Duration;

use postgres_protocol::message::backend::{COPY_DATA_TAG, Message};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, Result};

use crate::client::Client;
use crate::error::protocol;
use crate::wire::{Deadline, HEADER_BYTES, server_error};

/// What [`CopyOut::read_into`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyRead {
    /// This many bytes were appended.
    Data(usize),
    /// Nothing came within the wait; the copy goes on.
    Idle,
    /// The copy is complete.
    End,
}

/// What [`CopyOut::next`] came to.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyNext<'a> {
    /// The payload of one message: one row, in text and in binary.
    Data(&'a [u8]),
    /// No whole message came within the wait; the copy goes on.
    Idle,
    /// The copy is complete.
    End,
}

/// A copy out of the server, over a client that is owned or borrowed. Dropped before its end it
/// leaves a borrowed client unusable.
#[derive(Debug)]
pub struct CopyOut<C: BorrowMut<Client>> {
    client: C,
    is_binary: bool,
    /// Payload of the current message that has not come or was not handed out yet.
    left_bytes: usize,
    has_ended: bool,
    /// As the server says at the end.
    rows: u64,
}

impl<C: BorrowMut<Client>> CopyOut<C> {
    /// Sends the statement and waits until the server begins. Errors: the server's;
    /// `internal` for a statement that is no such COPY.
    pub(crate) fn begin(mut client: C, sql: &str) -> Result<Self> {
        let _phase = phase::enter(Kind::Query);
        let session = client.borrow_mut();
        session.ask(sql)?;
        let is_binary = match session.next()? {
            Message::CopyOutResponse(body) => body.format() == 1,
            Message::ErrorResponse(body) => {
                let error = server_error(&body);
                // What follows an error says less than the error.
                let _ = session.answer(|_| Ok(()));
                return Err(error);
            }
            _ => return Err(not_a_copy("TO STDOUT")),
        };
        Ok(Self {
            client,
            is_binary,
            left_bytes: 0,
            has_ended: false,
            rows: 0,
        })
    }

    /// Whether the stream is of COPY's binary format.
    pub fn is_binary(&self) -> bool {
        self.is_binary
    }

    /// Appends what is there, up to `max_bytes`; waits up to `wait` only when nothing is. A row may
    /// be cut anywhere. Errors: the server's, among them those it meets in the middle of the
    /// copy; `connection_lost`.
    pub fn read_into(
        &mut self,
        buffer: &mut Vec<u8>,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<CopyRead> {
        if self.has_ended {
            return Ok(CopyRead::End);
        }
        let mut has_waited = false;
        loop {
            let taken = self.take_payloads(buffer, max_bytes.max(1))?;
            if taken > 0 {
                return Ok(CopyRead::Data(taken));
            }
            if self.left_bytes == 0 {
                if self.ends_here()? {
                    return Ok(CopyRead::End);
                }
                if self.is_data_next()? {
                    continue;
                }
            }
            // What a wait brought may be the begin of a header; it is not waited for twice.
            if has_waited || !self.client.borrow_mut().wire.fill(wait)? {
                return Ok(CopyRead::Idle);
            }
            has_waited = true;
        }
    }

    /// Hands what came from the connection to `take` as it is, the heads of CopyData messages
    /// among it: for a decoder that steps over them itself, and so saves a copy. `take` gives how
    /// many bytes it took; where not all, what is left begins with the head of a message. Waits up
    /// to `wait` only when nothing is there. Not to be mixed with the other ways to read on one
    /// copy. Errors: as [`CopyOut::read_into`], and those of `take`.
    pub fn feed(
        &mut self,
        wait: Duration,
        mut take: impl FnMut(&[u8]) -> Result<usize>,
    ) -> Result<CopyRead> {
        if self.has_ended {
            return Ok(CopyRead::End);
        }
        let mut has_waited = false;
        loop {
            let wire = &mut self.client.borrow_mut().wire;
            let there = wire.input().len();
            if there > 0 {
                let taken = take(wire.input())?;
                wire.consume(taken);
                if taken > 0 {
                    return Ok(CopyRead::Data(taken));
                }
                if self.ends_here()? {
                    return Ok(CopyRead::End);
                }
                // A notice stood before the next CopyData.
                if self.client.borrow_mut().wire.input().len() < there {
                    continue;
                }
            }
            // As in `read_into`.
            if has_waited || !self.client.borrow_mut().wire.fill(wait)? {
                return Ok(CopyRead::Idle);
            }
            has_waited = true;
        }
    }

    /// One message as it came. Errors: as [`CopyOut::read_into`]; `message_too_large`.
    pub fn next(&mut self, wait: Duration) -> Result<CopyNext<'_>> {
        if self.has_ended {
            return Ok(CopyNext::End);
        }
        let deadline = Deadline::after(wait);
        loop {
            if self.left_bytes == 0 && self.ends_here()? {
                return Ok(CopyNext::End);
            }
            let wire = &mut self.client.borrow_mut().wire;
            if self.left_bytes == 0
                && let Some((COPY_DATA_TAG, body)) = wire.bounded_header()?
                && wire.input().len() >= HEADER_BYTES + body
            {
                wire.consume(HEADER_BYTES);
                return Ok(CopyNext::Data(self.client.borrow_mut().wire.take(body)));
            }
            // What `read_into` left of a message.
            if self.left_bytes > 0 && wire.input().len() >= self.left_bytes {
                let len = std::mem::take(&mut self.left_bytes);
                return Ok(CopyNext::Data(self.client.borrow_mut().wire.take(len)));
            }
            if !wire.fill(deadline.left())? {
                return Ok(CopyNext::Idle);
            }
        }
    }

    /// The rows that the server says it has sent; 0 before [`CopyRead::End`].
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives the client back. It is usable only when the copy has ended.
    pub fn into_client(self) -> C {
        self.client
    }

    /// Moves the payloads that are there, and looks at nothing but the headers between them.
    fn take_payloads(&mut self, buffer: &mut Vec<u8>, max_bytes: usize) -> Result<usize> {
        let wire = &mut self.client.borrow_mut().wire;
        let begin = buffer.len();
        loop {
            if self.left_bytes == 0 {
                match wire.header()? {
                    Some((COPY_DATA_TAG, body)) => {
                        wire.consume(HEADER_BYTES);
                        self.left_bytes = body;
                    }
                    Some(_) | None => break,
                }
            }
            let room = max_bytes - (buffer.len() - begin);
            let len = self.left_bytes.min(room).min(wire.input().len());
            buffer.extend_from_slice(wire.take(len));
            self.left_bytes -= len;
            if self.left_bytes > 0 {
                break;
            }
        }
        Ok(buffer.len() - begin)
    }

    /// Deals with a message that is no CopyData, if such a one is next; true at the end.
    fn ends_here(&mut self) -> Result<bool> {
        let session = self.client.borrow_mut();
        match session.wire.buffered_but(Some(COPY_DATA_TAG))? {
            None => Ok(false),
            Some(Message::CopyDone) => {
                self.has_ended = true;
                self.rows = session.receive()?;
                Ok(true)
            }
            Some(Message::ErrorResponse(body)) => {
                self.has_ended = true;
                let error = server_error(&body);
                // What follows an error says less than the error.
                let _ = session.answer(|_| Ok(()));
                Err(error)
            }
            Some(_) => Err(protocol("an answer in the middle of a COPY")),
        }
    }

    fn is_data_next(&mut self) -> Result<bool> {
        let header = self.client.borrow_mut().wire.header()?;
        Ok(matches!(header, Some((COPY_DATA_TAG, _))))
    }
}

pub(crate) fn not_a_copy(direction: &str) -> Error {
    Error::internal(format!("the statement is no COPY … {direction}"))
}

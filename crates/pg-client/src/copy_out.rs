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
use crate::wire::server_error;

/// The result of [`CopyOut::feed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyRead {
    /// This many bytes were taken.
    Data(usize),
    /// Nothing came within the wait; the copy is still open.
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
    has_ended: bool,
    /// As the server says at the end.
    rows: u64,
}

impl Client {
    /// Begins `COPY … TO STDOUT`; the client is borrowed until the copy is dropped. Counts as the
    /// phase `query`.
    pub fn copy_out(&mut self, sql: &str) -> Result<CopyOut<&mut Self>> {
        CopyOut::begin(self, sql)
    }

    /// As [`Client::copy_out`], for a reader that owns its connection.
    pub fn into_copy_out(self, sql: &str) -> Result<CopyOut<Self>> {
        CopyOut::begin(self, sql)
    }

    /// The answer to [`Client::send`] of a `COPY … TO STDOUT`, as [`Client::into_copy_out`] gives it.
    pub fn receive_copy_out(self) -> Result<CopyOut<Self>> {
        CopyOut::begun(self)
    }
}

impl<C: BorrowMut<Client>> CopyOut<C> {
    /// Sends the statement and waits until the server begins. Errors: the server's;
    /// `internal` for a statement that is no such COPY.
    pub(crate) fn begin(mut client: C, sql: &str) -> Result<Self> {
        let _phase = phase::enter(Kind::Query);
        client.borrow_mut().ask(sql)?;
        Self::begun(client)
    }

    /// Waits until the server begins with a statement that was sent.
    pub(crate) fn begun(mut client: C) -> Result<Self> {
        let session = client.borrow_mut();
        let is_binary = match session.next()? {
            Message::CopyOutResponse(body) => body.format() == 1,
            Message::ErrorResponse(body) => {
                let error = server_error(&body);
                // Later messages say less than the error.
                let _ = session.answer(|_| Ok(()));
                return Err(error);
            }
            _ => return Err(not_a_copy("TO STDOUT")),
        };
        Ok(Self {
            client,
            is_binary,
            has_ended: false,
            rows: 0,
        })
    }

    /// Whether the stream is of COPY's binary format.
    pub fn is_binary(&self) -> bool {
        self.is_binary
    }

    /// Hands the bytes of the connection to `take` as they are, with the heads of CopyData messages. A
    /// decoder that steps over the heads itself saves a copy this way. `take` gives the number of bytes
    /// that it took; the rest, if any, begins with the head of a message. Waits up to `wait` only if no
    /// bytes are there yet. Errors: the server's, also in the middle of the copy; `connection_lost`; the
    /// errors of `take`.
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
            // A wait may bring only the beginning of a head. The loop does not wait a second time.
            if has_waited || !self.client.borrow_mut().wire.fill(wait)? {
                return Ok(CopyRead::Idle);
            }
            has_waited = true;
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

    /// Handles the next message if it is complete and not a CopyData; true at the end of the copy.
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
                // Later messages say less than the error.
                let _ = session.answer(|_| Ok(()));
                Err(error)
            }
            Some(_) => Err(protocol("a response in the middle of a COPY")),
        }
    }
}

pub(crate) fn not_a_copy(direction: &str) -> Error {
    Error::internal(format!("the statement is not a COPY … {direction}"))
}

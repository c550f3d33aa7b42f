//! Statements with parameters, once or many times.
//!
//! PostgreSQL manual, "Extended Query" and "Pipelining".

use std::borrow::BorrowMut;

use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend::{self, BindError};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::{Error, Result};

use crate::client::{Answers, Client};
use crate::error::{protocol, unsendable};
use crate::rows::{Column, Rows, affected, columns};
use crate::wire::server_error;

/// The server stops reading when nobody reads its answers; so few that they always find room.
const MAX_PIPELINED: usize = 64;
/// Requests are sent in pieces of about this size.
const SEND_BYTES: usize = 64 << 10;

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As in SQL.
    Text,
    /// As the type's send and receive functions have it.
    Binary,
}

impl Format {
    fn code(self) -> i16 {
        i16::from(self == Self::Binary)
    }
}

/// A value for a `$1` of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Param<'a> {
    /// The type; 0 lets the server find it out.
    pub type_oid: u32,
    /// How `value` is written.
    pub format: Format,
    /// Absent for NULL.
    pub value: Option<&'a [u8]>,
}

impl<'a> Param<'a> {
    /// Text of a type that the server finds out.
    pub fn text(value: Option<&'a str>) -> Self {
        Self {
            type_oid: 0,
            format: Format::Text,
            value: value.map(str::as_bytes),
        }
    }

    /// A binary value of a type.
    pub fn binary(type_oid: u32, value: Option<&'a [u8]>) -> Self {
        Self {
            type_oid,
            format: Format::Binary,
            value,
        }
    }
}

/// A statement that the server has parsed; it lives as long as the session.
#[derive(Debug, Clone)]
pub struct Statement {
    name: String,
    /// The types of its parameters, in order, as the server found them.
    pub param_oids: Vec<u32>,
    /// Of the rows it gives; empty when it gives none. Whether values come in binary is decided
    /// later.
    pub columns: Vec<Column>,
}

impl Client {
    /// Runs one statement with parameters and gives its rows, values in `results`. Counts as the
    /// phase `query`. Errors: the server's; `unsendable`; `result_too_large`.
    pub fn query(&mut self, sql: &str, params: &[Param<'_>], results: Format) -> Result<Rows> {
        let _phase = phase::enter(Kind::Query);
        self.request(|client| {
            let oids = params.iter().map(|param| param.type_oid);
            let output = &mut client.wire.output;
            frontend::parse("", sql, oids, output).map_err(unsendable)?;
            client.bind("", params, results)?;
            let output = &mut client.wire.output;
            frontend::describe(b'P', "", output).map_err(unsendable)?;
            frontend::execute("", 0, output).map_err(unsendable)
        })?;
        let mut answers = Answers::new(self.max_result_bytes());
        self.answer(|message| answers.add(message))?;
        Ok(answers.complete.pop().unwrap_or_default())
    }

    /// Parses a statement under a name of our own; types that are 0 or missing the server finds
    /// out. Counts as the phase `query`. Errors: the server's.
    pub fn prepare(&mut self, sql: &str, param_oids: &[u32]) -> Result<Statement> {
        let _phase = phase::enter(Kind::Query);
        let name = format!("rapidbyte_{}", self.next_statement);
        self.next_statement = self.next_statement.wrapping_add(1);
        self.request(|client| {
            let output = &mut client.wire.output;
            let oids = param_oids.iter().copied();
            frontend::parse(&name, sql, oids, output).map_err(unsendable)?;
            frontend::describe(b'S', &name, output).map_err(unsendable)
        })?;
        let mut statement = Statement {
            name,
            param_oids: Vec::new(),
            columns: Vec::new(),
        };
        self.answer(|message| {
            match message {
                Message::ParameterDescription(body) => {
                    use fallible_iterator::FallibleIterator;
                    statement.param_oids = body.parameters().collect().map_err(protocol)?;
                }
                Message::RowDescription(body) => statement.columns = columns(body)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(statement)
    }

    /// Runs a prepared statement for its effect and gives the rows it touched. Counts as the
    /// caller's phase.
    pub fn execute_prepared(&mut self, statement: &Statement, params: &[Param<'_>]) -> Result<u64> {
        self.request(|client| client.bind_and_execute(statement, params))?;
        let mut touched = 0;
        self.answer(|message| {
            if let Message::CommandComplete(body) = message {
                touched = affected(body.tag().map_err(protocol)?);
            }
            Ok(())
        })?;
        Ok(touched)
    }

    /// Gives up a prepared statement.
    pub fn forget(&mut self, statement: Statement) -> Result<()> {
        self.request(|client| {
            frontend::close(b'S', &statement.name, &mut client.wire.output).map_err(unsendable)
        })?;
        self.answer(|_| Ok(()))
    }

    /// Begins to run prepared statements without waiting for each. Outside a transaction they are
    /// one: what an error meets, it undoes with everything before it.
    pub fn pipeline(&mut self) -> Result<Pipeline<&mut Self>> {
        Pipeline::begin(self)
    }

    /// As [`Client::pipeline`], for a writer that owns its connection.
    pub fn into_pipeline(self) -> Result<Pipeline<Self>> {
        Pipeline::begin(self)
    }

    /// Writes a request and sends it with the Sync that ends it; nothing is sent of one that cannot
    /// be written.
    fn request(&mut self, write: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.begin()?;
        if let Err(error) = write(self) {
            self.take_back();
            return Err(error);
        }
        frontend::sync(&mut self.wire.output);
        self.wire.send(self.deadline())
    }

    fn bind(&mut self, statement: &str, params: &[Param<'_>], results: Format) -> Result<()> {
        frontend::bind(
            "",
            statement,
            params.iter().map(|param| param.format.code()),
            params,
            |param, output| {
                let Some(value) = param.value else {
                    return Ok(IsNull::Yes);
                };
                output.extend_from_slice(value);
                Ok(IsNull::No)
            },
            [results.code()],
            &mut self.wire.output,
        )
        .map_err(|error| match error {
            BindError::Conversion(error) => unsendable(error),
            BindError::Serialization(error) => unsendable(error),
        })
    }

    fn bind_and_execute(&mut self, statement: &Statement, params: &[Param<'_>]) -> Result<()> {
        let (wanted, given) = (statement.param_oids.len(), params.len());
        if wanted != given {
            return Err(Error::internal(format!(
                "{given} parameters for a statement of {wanted}"
            )));
        }
        self.bind(&statement.name, params, Format::Binary)?;
        frontend::execute("", 0, &mut self.wire.output).map_err(unsendable)
    }
}

/// Prepared statements on their way, at most 64 unanswered, over a client that is owned or borrowed. Dropped
/// before [`Pipeline::finish`] it leaves a borrowed client unusable, and outside a transaction the server
/// keeps nothing.
#[derive(Debug)]
pub struct Pipeline<C: BorrowMut<Client>> {
    client: C,
    unanswered: usize,
    affected: u64,
    /// The first error; the server ignores everything after it.
    failed: Option<Error>,
    /// Nothing more can be sent to the server.
    is_lost: bool,
}

impl<C: BorrowMut<Client>> Pipeline<C> {
    fn begin(mut client: C) -> Result<Self> {
        client.borrow_mut().begin()?;
        Ok(Self {
            client,
            unanswered: 0,
            affected: 0,
            failed: None,
            is_lost: false,
        })
    }

    /// Sends one execution, soon. Errors: the server's, of an earlier one, `connection_lost`, `timeout`;
    /// [`Pipeline::finish`] is still to be called, and says the same.
    pub fn execute(&mut self, statement: &Statement, params: &[Param<'_>]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let client = self.client.borrow_mut();
        let before = client.wire.output.len();
        if let Err(error) = client.bind_and_execute(statement, params) {
            client.wire.output.truncate(before);
            return Err(error);
        }
        self.unanswered += 1;
        if let Err(error) = self.go_on() {
            self.is_lost = true;
            self.failed.get_or_insert(error);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Sends what is enough, and waits where too much is on its way.
    fn go_on(&mut self) -> Result<()> {
        if self.unanswered >= MAX_PIPELINED {
            // Half of them stay on their way, so that the server always has something to do.
            return self.answered_up_to(MAX_PIPELINED / 2);
        }
        let client = self.client.borrow_mut();
        if client.wire.output.len() >= SEND_BYTES {
            client.wire.send(client.deadline())?;
        }
        Ok(())
    }

    /// Sends what is buffered, and waits until at most `unanswered` executions have no response. Errors as for
    /// [`Pipeline::execute`].
    pub fn wait(&mut self, unanswered: usize) -> Result<()> {
        if self.failed.is_none()
            && let Err(error) = self.answered_up_to(unanswered)
        {
            self.is_lost = true;
            self.failed.get_or_insert(error);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Flushes, and reads responses until at most `unanswered` are missing.
    fn answered_up_to(&mut self, unanswered: usize) -> Result<()> {
        let client = self.client.borrow_mut();
        frontend::flush(&mut client.wire.output);
        client.wire.send(client.deadline())?;
        while self.unanswered > unanswered && self.failed.is_none() {
            self.read_one()?;
        }
        Ok(())
    }

    /// Waits for everything and gives the rows that were touched; called once. Errors: the server's first.
    pub fn finish(&mut self) -> Result<u64> {
        let ended = match self.is_lost {
            true => Ok(0),
            false => self.end(),
        };
        self.failed.take().map_or(ended, Err)
    }

    /// Gives the client back. It is usable only when the pipeline was finished.
    pub fn into_client(self) -> C {
        self.client
    }

    /// Says that nothing more comes, and reads what is left.
    fn end(&mut self) -> Result<u64> {
        let client = self.client.borrow_mut();
        // To nothing the server says no more than that it is ready.
        client.is_heard |= self.unanswered == 0;
        frontend::sync(&mut client.wire.output);
        client.wire.send(client.deadline())?;
        let mut touched = self.affected;
        client.answer(|message| {
            if let Message::CommandComplete(body) = message {
                touched = touched.saturating_add(affected(body.tag().map_err(protocol)?));
            }
            Ok(())
        })?;
        Ok(touched)
    }

    /// Reads up to the end of one execution.
    fn read_one(&mut self) -> Result<()> {
        loop {
            match self.client.borrow_mut().next()? {
                Message::CommandComplete(body) => {
                    let rows = affected(body.tag().map_err(protocol)?);
                    self.affected = self.affected.saturating_add(rows);
                    break;
                }
                Message::EmptyQueryResponse => break,
                Message::ErrorResponse(body) => {
                    self.failed = Some(server_error(&body));
                    break;
                }
                Message::BindComplete | Message::DataRow(_) => {}
                _ => return Err(protocol("a response that no execution has")),
            }
        }
        self.unanswered -= 1;
        Ok(())
    }
}

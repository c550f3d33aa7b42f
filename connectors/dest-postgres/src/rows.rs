//! The rows of one transaction on their way to the server: by COPY or by INSERT.

mod sort;

use std::sync::Arc;

use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg::insert::Parameter;
use rapidbyte_pg::{Column, PgError};
use rapidbyte_pg_client::{
    COPY_HEADER_BYTES, Client, CopyAsked, CopyIn, Pipeline, Statement, TransactionStatus,
};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::pieces::Pieces;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::size::batch_bytes;

use crate::checkpoint::Key;
use crate::comparison::{Compared, Comparison};
use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::{Decision, Method};
use crate::digest;
use crate::inserts::{self, INSERT_BYTES};
use crate::kept::ensure_all;
use crate::lock;
use crate::place::Place;
use crate::refusal::Casts;
use crate::stage::Stage;
use crate::swap::Swap;
use crate::transaction::OWN_PATH;

/// A buffer above this is sent in pieces and given back: one huge row must not keep its room.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// Rows that a COPY leaves out at most.
const MAX_MISFITS: usize = 1000;
/// A batch above this is not kept while the next one is made.
const MAX_UNANSWERED_BYTES: usize = 4 << 20;

/// Takes the rows of one transaction. Dropped, the server forgets them with the connection.
pub(crate) struct Sink {
    name: Name,
    wire: Wire,
    method: Rows,
    /// For COPY: the statement.
    copy: String,
    /// For upsert and rows that may come again: where the rows go first.
    stage: Option<(Stage, SchemaRef)>,
    /// For replace by a new table, which the rows go to.
    swap: Option<Swap>,
    targets: Vec<Column>,
    /// Which of the targets the server reads from text.
    cast: Vec<usize>,
    /// The columns of a batch that go to the table. `None`: all of them.
    kept: Option<Vec<usize>>,
    /// The INSERT takes the number of the row before its first one.
    numbers_rows: bool,
    copy_flush_bytes: usize,
    insert_rows: usize,
    /// Room for a message's header, then what is encoded and not sent.
    buffer: Vec<u8>,
    /// Rows of the stream in earlier transactions.
    before: u64,
    rows: u64,
    bytes: u64,
    /// Rows that the server has confirmed.
    confirmed: u64,
    /// Batches with texts that the server casts and has not answered yet, each with the number of its first row in
    /// the stream. Where a cast fails, its row is in one of them.
    unanswered: Vec<(u64, RecordBatch)>,
    /// Rows and bytes of the parts so far.
    flushed: (u64, u64),
    /// Each batch is written for itself, and rows that do not go in are set aside.
    keeps_rejects: bool,
    /// Rows that were refused in this transaction.
    refused: u64,
    /// See [`Stage::empty`].
    dead: u64,
    /// For rejects.
    guard: Guard,
    /// For rejects: the rows of a batch that are not written yet.
    pieces: Pieces,
    /// The keys of the source, which have the connection then.
    keys: Option<Box<Self>>,
}

/// The state of the savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// There is none.
    Open,
    /// There is one, and the rows behind it stay.
    Passed,
    /// There is one, and the rows behind it go.
    Failed,
}

/// Rows of a piece of a batch that cannot be encoded, in order.
#[derive(Default)]
struct Misfits {
    rows: Vec<(usize, Error)>,
    /// The row that the whole piece is refused for.
    refused_at: Option<usize>,
    /// The number in the stream of the first row of the piece.
    first_row: u64,
}

/// The result of the rows of a transaction.
pub(crate) struct Finished {
    pub(crate) client: Client,
    /// Bytes that were sent.
    pub(crate) bytes: u64,
    pub(crate) compared: Compared,
}

/// How rows become bytes.
enum Rows {
    Copy(Encoder),
    Insert(Parameter, Statement),
}

impl Rows {
    /// From now on errors name rows as if `rows` rows had come before.
    fn count_from(&mut self, rows: u64) {
        match self {
            Self::Copy(encoder) => encoder.count_from(rows),
            Self::Insert(parameter, _) => parameter.count_from(rows),
        }
    }
}

/// The state of the connection.
enum Wire {
    Idle(Client),
    /// A COPY was asked for.
    Asked(CopyAsked<Client>),
    Copying(CopyIn<Client>, u64),
    /// INSERTs of this many rows are on their way.
    Inserting(Pipeline<Client>, u64),
    /// It failed and was given up.
    Lost,
}

impl Sink {
    /// In the transaction that is open, whose table is there; `before` rows of the stream have been
    /// committed.
    pub(crate) fn new(
        mut client: Client,
        place: &Place<'_>,
        decided: Decision,
        before: u64,
    ) -> Result<Self> {
        let Place {
            settings,
            target,
            name,
            schema,
            ..
        } = *place;
        let kept = decided.kept.as_ref().map(|kept| schema.project(kept));
        let kept = kept.transpose()?;
        let schema = kept.as_ref().unwrap_or(schema);
        let columns = &decided.targets;
        let staged = digest::staged();
        let filled = decided.swap.as_ref().map_or(name, Swap::new_table);
        let filled = if decided.stages { &staged } else { filled };
        let mut copy = copy_statement(filled, columns, decided.is_frozen);
        let mut stage = None;
        let mut method = match decided.method {
            Method::Copy if let Some(merge) = decided.merge => {
                let made = Stage::new(merge, schema, columns, before)?;
                made.make(&mut client)?;
                copy = made.copy_statement();
                let schema = numbered(schema);
                let encoder = Encoder::new(&schema, &made.columns()).map_err(convert)?;
                stage = Some((made, schema));
                Rows::Copy(encoder)
            }
            Method::Copy => {
                let encoder = Encoder::new(schema, columns).map_err(convert)?;
                Rows::Copy(encoder)
            }
            Method::Insert { staged: is_staged } => {
                let row_type = decided.row_type.as_ref();
                if row_type.is_none() && !is_staged {
                    return Err(Error::internal("an INSERT into a table that was not found"));
                }
                let row_type = row_type.filter(|_| !is_staged);
                let (parameter, statement) =
                    inserts::prepare(&mut client, filled, schema, columns, row_type)?;
                Rows::Insert(parameter, statement)
            }
        };
        method.count_from(before);
        // A COPY of no rows would run the table's triggers for statements for nothing.
        let is_plain = target.rejects.is_none();
        let is_harmless =
            is_plain && (stage.is_some() || !target.is_incremental && !decided.runs_triggers);
        // As the operator wrote it, the limit is for the server's work, not for waiting for the source.
        let is_limited = settings.server.sets("statement_timeout");
        let wire = match &method {
            // The server gets ready while the first rows are on their way.
            Rows::Copy(_) if is_harmless && !is_limited => {
                Wire::Asked(client.into_copy_in(&[OWN_PATH], &copy)?)
            }
            Rows::Copy(_) => Wire::Idle(client),
            Rows::Insert(..) => {
                client.execute(OWN_PATH)?;
                Wire::Idle(client)
            }
        };
        Ok(Self {
            copy,
            stage,
            swap: decided.swap,
            numbers_rows: decided.method == Method::Insert { staged: true },
            cast: decided.cast,
            targets: decided.targets,
            kept: decided.kept,
            name: name.clone(),
            wire,
            method,
            copy_flush_bytes: settings.copy_flush_bytes,
            insert_rows: settings.insert_rows,
            buffer: vec![0; COPY_HEADER_BYTES],
            before,
            rows: 0,
            bytes: 0,
            confirmed: 0,
            unanswered: Vec::new(),
            flushed: (0, 0),
            keeps_rejects: !is_plain,
            refused: 0,
            dead: 0,
            guard: Guard::Open,
            pieces: Pieces::default(),
            keys: None,
        })
    }

    /// Makes the table of the source's keys, and is ready for them. All rows are flushed.
    pub(crate) fn open_keys(&mut self, settings: &Settings, schema: &Schema) -> Result<()> {
        let Some((stage, _)) = &self.stage else {
            return Err(Error::internal("keys of rows that are not staged"));
        };
        let stage = Stage::of_keys(stage, schema)?;
        let Wire::Idle(mut client) = std::mem::replace(&mut self.wire, Wire::Lost) else {
            return Err(lost());
        };
        stage.make(&mut client)?;
        let schema = numbered(schema);
        let columns = stage.columns();
        let encoder = Encoder::new(&schema, &columns).map_err(convert)?;
        self.keys = Some(Box::new(Self {
            name: self.name.clone(),
            wire: Wire::Idle(client),
            method: Rows::Copy(encoder),
            copy: stage.copy_statement(),
            stage: Some((stage, schema)),
            swap: None,
            targets: columns,
            cast: Vec::new(),
            kept: None,
            numbers_rows: false,
            copy_flush_bytes: settings.copy_flush_bytes,
            insert_rows: settings.insert_rows,
            buffer: vec![0; COPY_HEADER_BYTES],
            before: 0,
            rows: 0,
            bytes: 0,
            confirmed: 0,
            unanswered: Vec::new(),
            flushed: (0, 0),
            keeps_rejects: self.keeps_rejects,
            refused: 0,
            dead: 0,
            guard: Guard::Open,
            pieces: Pieces::default(),
            keys: None,
        }));
        Ok(())
    }

    /// The keys of the source, once they are open.
    pub(crate) fn keys(&mut self) -> Result<&mut Self> {
        let keys = self.keys.as_deref_mut();
        keys.ok_or_else(|| Error::internal("keys that are not open"))
    }

    /// Writes a batch of the source's keys. A key with NULL belongs to no row of the target. Where rejects are kept its
    /// row is one of them, and otherwise it is an error. Errors: `null_key`; the server's.
    pub(crate) fn write_keys(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut rest = batch.clone();
        while rest.num_rows() > 0 {
            let stage = self.stage.as_ref().map(|(stage, _)| stage);
            let found = stage.and_then(|stage| stage.null_key(&rest, self.rows + self.refused + 1));
            let Some((row, error)) = found else {
                return self.write(&rest);
            };
            if !self.keeps_rejects {
                let hint = "set `rejects:`, so that such rows become rejects, or name another key";
                return Err(error.hint(hint));
            }
            self.write(&rest.slice(0, row))?;
            self.refused += 1;
            rest = rest.slice(row + 1, rest.num_rows() - row - 1);
        }
        Ok(())
    }

    /// Flushes the source's keys, and counts those that were left out, too.
    pub(crate) fn flush_keys(&mut self) -> Result<Part> {
        let part = self.flush()?;
        let rows = part.rows + std::mem::take(&mut self.refused);
        Ok(Part { rows, ..part })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let kept = self.kept.as_ref().map(|kept| batch.project(kept));
        let kept = kept.transpose()?;
        let batch = kept.as_ref().unwrap_or(batch);
        match (&self.method, &self.stage) {
            (Rows::Copy(_), Some((stage, schema))) => {
                if let Some((_, error)) = stage.null_key(batch, self.before + self.rows + 1) {
                    return Err(error);
                }
                let batch = with_numbers(batch, schema, self.rows)?;
                self.copy(&batch).map_err(|error| self.placed(error))?;
            }
            (Rows::Copy(_), None) => self.copy(batch).map_err(|error| self.placed(error))?,
            (Rows::Insert(..), _) => self.insert(batch)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn copy(&mut self, batch: &RecordBatch) -> Result<()> {
        let Rows::Copy(encoder) = &mut self.method else {
            return Ok(());
        };
        begin_copy(&mut self.wire, &[], &self.copy, encoder, &mut self.buffer)?;
        let Wire::Copying(copy, sent) = &mut self.wire else {
            return Err(lost());
        };
        let full_bytes = self.copy_flush_bytes + COPY_HEADER_BYTES;
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            encoder.bind(batch).map_err(convert)?
        };
        let mut row = 0;
        while row < rows.len() {
            {
                let _phase = phase::enter(Kind::Encode);
                row = rows
                    .encode(row, full_bytes, &mut self.buffer)
                    .map_err(convert)?;
            }
            if self.buffer.len() >= full_bytes {
                self.bytes += send(copy, &mut self.buffer)?;
            }
        }
        *sent += rows.len() as u64;
        Ok(())
    }

    fn insert(&mut self, batch: &RecordBatch) -> Result<()> {
        let number = self.before + self.rows;
        if self.cast.is_empty() {
            return self.send_inserts(batch, number, None).map(drop);
        }
        self.unanswered
            .push((self.before + self.rows + 1, batch.clone()));
        // The server reads this batch's texts while the next one is made. A large one is not kept beside it.
        let sent = self.send_inserts(batch, number, None);
        let waited = sent.and_then(|statements| match batch_bytes(batch) {
            ..=MAX_UNANSWERED_BYTES => self.wait(statements, 1),
            _ => self.wait(0, 0),
        });
        waited.map_err(|error| self.unread(error))
    }

    /// Waits until the server has answered all INSERTs but the last `statements`, which hold the last `batches`.
    fn wait(&mut self, statements: usize, batches: usize) -> Result<()> {
        let _phase = phase::enter(Kind::Flush);
        let Wire::Inserting(pipeline, _) = &mut self.wire else {
            return Err(lost());
        };
        if let Err(error) = pipeline.wait(statements) {
            let _ = self.end_insert();
            return Err(error);
        }
        let answered = self.unanswered.len().saturating_sub(batches);
        self.unanswered.drain(..answered);
        Ok(())
    }

    /// Finds the row that a failed cast is about, in the batches that are unanswered.
    fn unread(&mut self, error: Error) -> Error {
        let casts = Casts {
            targets: &self.targets,
            places: &self.cast,
            first_row: 0,
        };
        if !casts.may_have_raised(&error) {
            return casts.explained_alone(error);
        }
        let Wire::Idle(client) = &mut self.wire else {
            return error;
        };
        for (first_row, batch) in &self.unanswered {
            if !client.is_usable() {
                break;
            }
            let first_row = *first_row;
            let casts = Casts { first_row, ..casts };
            match inserts::located(client, casts, &error, batch, self.insert_rows) {
                Ok(Some(found)) => return found,
                Ok(None) => {}
                // The connection has ended: the first error is the cause.
                Err(_) => break,
            }
        }
        error
    }

    /// The error of a COPY with its row in the stream: the server counts from the beginning of the COPY.
    fn placed(&self, error: Error) -> Error {
        let first_row = self.before + self.confirmed;
        let context = error.location.as_deref().unwrap_or_default();
        let Some(line) = rapidbyte_pg_client::line_of_copy(context) else {
            return error;
        };
        let column = self.column_of(&error);
        let row = first_row + line;
        let place = match &column {
            Some(column) => format!("row {row}, column {column:?}"),
            None => format!("row {row}"),
        };
        Error {
            message: format!("{place}: {}", error.message),
            column,
            location: None,
            ..error
        }
    }

    /// The column of the stream that an error of the server names.
    fn column_of(&self, error: &Error) -> Option<String> {
        let name = error.column.as_ref()?;
        if self.stage.is_none() {
            return Some(name.clone());
        }
        let place: usize = name.strip_prefix('c')?.parse().ok()?;
        Some(self.targets.get(place)?.name.clone())
    }

    /// Gives how many INSERTs the batch took. `number` rows of the stream come before it. The row of an error is put
    /// into `misfits`.
    fn send_inserts(
        &mut self,
        batch: &RecordBatch,
        number: u64,
        mut misfits: Option<&mut Misfits>,
    ) -> Result<usize> {
        self.wire = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Idle(client) => Wire::Inserting(client.into_pipeline()?, 0),
            other => other,
        };
        let (Rows::Insert(parameter, statement), Wire::Inserting(pipeline, sent)) =
            (&mut self.method, &mut self.wire)
        else {
            return Err(lost());
        };
        let rows = {
            let _phase = phase::enter(Kind::Encode);
            let bound = parameter.bind(batch);
            bound.map_err(|error| refused(error, &mut misfits))?
        };
        let _phase = phase::enter(Kind::Flush);
        let (mut row, mut statements) = (0, 0);
        while row < rows.len() {
            self.buffer.clear();
            let first = (number + row as u64).to_be_bytes();
            {
                let _phase = phase::enter(Kind::Encode);
                let some = row..row.saturating_add(self.insert_rows);
                let encoded = rows.encode(some, INSERT_BYTES, &mut self.buffer);
                row = encoded.map_err(|error| refused(error, &mut misfits))?;
            }
            self.bytes += self.buffer.len() as u64;
            let params = inserts::parameters(&self.buffer, &first);
            // Only a statement that casts wants the number of the first row.
            let params = &params[..1 + usize::from(self.numbers_rows)];
            if let Err(error) = pipeline.execute(statement, params) {
                drop(rows);
                // The session can be closed in order then; why is known.
                let _ = self.end_insert();
                return Err(error);
            }
            statements += 1;
        }
        *sent += rows.len() as u64;
        self.buffer.shrink_to(MAX_KEPT_BYTES);
        Ok(statements)
    }

    /// Waits for the answers to the INSERTs.
    fn end_insert(&mut self) -> Result<()> {
        let (mut pipeline, sent) = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Inserting(pipeline, sent) => (pipeline, sent),
            other => {
                self.wire = other;
                return Ok(());
            }
        };
        let touched = pipeline.finish();
        self.wire = Wire::Idle(pipeline.into_client());
        let touched = touched?;
        self.confirmed += touched;
        ensure_all(&self.name, sent, touched)
    }

    /// Ends the COPY, or the INSERTs: every row is in the transaction then.
    pub(crate) fn flush(&mut self) -> Result<Part> {
        let _phase = phase::enter(Kind::Flush);
        self.end_copy().map_err(|error| self.placed(error))?;
        self.end_insert().map_err(|error| self.unread(error))?;
        self.unanswered.clear();
        if self.confirmed != self.rows {
            return Err(Error::internal(format!(
                "{} rows were written, but the server has {}",
                self.rows, self.confirmed
            )));
        }
        let (rows, bytes) = self.flushed;
        self.flushed = (self.rows, self.bytes);
        Ok(Part {
            data: Vec::new(),
            rows: self.rows - rows,
            bytes: self.bytes - bytes,
        })
    }

    fn end_copy(&mut self) -> Result<()> {
        if let (Rows::Copy(encoder), Wire::Asked(_)) = (&self.method, &self.wire) {
            begin_copy(&mut self.wire, &[], &self.copy, encoder, &mut self.buffer)?;
        }
        let (mut copy, sent) = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Copying(copy, sent) => (copy, sent),
            other => {
                self.wire = other;
                return Ok(());
            }
        };
        if let Rows::Copy(encoder) = &self.method {
            encoder.trailer(&mut self.buffer);
        }
        let ended = send_last(&mut copy, &mut self.buffer).and_then(|bytes| {
            self.bytes += bytes;
            copy.finish()
        });
        let taken = match ended {
            Ok(taken) => taken,
            Err(error) => {
                if let Some(client) = give_up_copy(copy) {
                    self.wire = Wire::Idle(client);
                }
                return Err(error);
            }
        };
        self.wire = Wire::Idle(copy.into_client());
        self.confirmed += taken;
        ensure_all(&self.name, sent, taken)
    }

    /// Brings what is staged into the table, compares the keys that came, and gives the client back for the commit of
    /// these rows, which are all flushed. The transaction is open.
    pub(crate) fn finish(
        mut self,
        rows: u64,
        settings: &Settings,
        checkpoint: &Key,
    ) -> Result<Finished> {
        let keys = self.keys.take().map(|keys| *keys);
        let keys = keys.map(|keys| {
            self.wire = keys.wire;
            (keys.stage, keys.rows, keys.bytes)
        });
        if let Wire::Asked(_) = self.wire {
            // Nothing came, and nothing had to be flushed.
            self.end_copy()?;
        }
        let Wire::Idle(mut client) = self.wire else {
            return Err(lost());
        };
        if client.transaction_status() != TransactionStatus::Open {
            return Err(Error::internal("a commit without an open transaction"));
        }
        if let Rows::Insert(_, statement) = self.method {
            // Behind a pooler the next session would find its name taken.
            client.forget(statement)?;
        }
        let compare = self
            .stage
            .as_ref()
            .and_then(|(stage, _)| stage.compare().cloned());
        // A source with other keys must not make the share of the rows that it deletes small.
        let rows_before = match &compare {
            Some(compare) if keys.is_some() => compare.count(&mut client, &self.name)?,
            _ => None,
        };
        // A sink that keeps rejects has merged each batch.
        if let Some((stage, _)) = self.stage.filter(|_| rows > 0 && !self.keeps_rejects) {
            let merged = stage.merge(&mut client, settings, &self.name, rows);
            let casts = Casts {
                targets: &self.targets,
                places: &self.cast,
                first_row: self.before + 1,
            };
            merged.map_err(|error| {
                let error = stage.located(&mut client, casts, error, 0..rows);
                if client.is_usable() && client.execute("ROLLBACK").is_ok() {
                    return lock::timed_out(&mut client, error, &self.name.sql());
                }
                error
            })?;
        }
        if let Some(swap) = self.swap {
            swap.finish(&mut client, settings, rows)?;
        }
        let mut finished = Finished {
            client,
            bytes: self.bytes,
            compared: Compared::default(),
        };
        if let (Some(compare), Some((Some((stage, _)), keys, bytes))) = (compare, keys) {
            let comparison = Comparison {
                client: &mut finished.client,
                settings,
                name: &self.name,
                checkpoint,
                stage: &stage,
                keys,
                rows_before,
            };
            finished.bytes += bytes;
            finished.compared = comparison.apply(&compare).map_err(|error| {
                let client = &mut finished.client;
                let casts = Casts {
                    targets: stage.targets(),
                    places: &[],
                    first_row: 0,
                };
                let error = casts.explained_alone(error);
                match client.is_usable() && client.execute("ROLLBACK").is_ok() {
                    true => lock::timed_out(client, error, &self.name.sql()),
                    false => error,
                }
            })?;
        }
        Ok(finished)
    }

    /// Rolls back, and gives the client back if it can be used again.
    pub(crate) fn give_up(self) -> Option<Client> {
        if let Some(keys) = self.keys {
            return keys.give_up();
        }
        let mut client = match self.wire {
            Wire::Idle(client) => client,
            Wire::Copying(copy, _) => give_up_copy(copy)?,
            // The statement may wait for a lock: the connection is closed, and the server notices it.
            Wire::Asked(_) | Wire::Inserting(..) | Wire::Lost => return None,
        };
        if !client.is_usable() || client.execute("ROLLBACK").is_err() {
            return None;
        }
        if let Rows::Insert(_, statement) = self.method {
            client.forget(statement).ok()?;
        }
        Some(client)
    }
}

/// The error of a row that cannot be encoded; its place is put into `misfits`.
fn refused(error: PgError, misfits: &mut Option<&mut Misfits>) -> Error {
    if let Some(misfits) = misfits {
        let place = error.row.and_then(|row| row.checked_sub(misfits.first_row));
        misfits.refused_at = place.and_then(|place| usize::try_from(place).ok());
    }
    convert(error)
}

/// The stream's schema with the row's number behind it.
fn numbered(schema: &Schema) -> SchemaRef {
    let number = Arc::new(Field::new("n", DataType::Int64, false));
    let fields: Vec<_> = schema.fields().iter().cloned().chain([number]).collect();
    Arc::new(Schema::new(fields))
}

/// The batch with the numbers of its rows, from `first` on.
fn with_numbers(batch: &RecordBatch, schema: &SchemaRef, first: u64) -> Result<RecordBatch> {
    let first = first as i64;
    let numbers = Int64Array::from_iter_values(first..first + batch.num_rows() as i64);
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(numbers));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn copy_statement(name: &Name, columns: &[Column], is_frozen: bool) -> String {
    let names: Vec<_> = columns.iter().map(|c| quote_ident(&c.name)).collect();
    // SQL does not allow an empty list; COPY without a list means the same for a table without columns.
    let list = match names.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    let frozen = if is_frozen { ", FREEZE" } else { "" };
    format!("COPY {name}{list} FROM STDIN (FORMAT binary{frozen})")
}

/// Begins a COPY where none is under way, behind the statements `before`.
fn begin_copy(
    wire: &mut Wire,
    before: &[&str],
    statement: &str,
    encoder: &Encoder,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let _phase = phase::enter(Kind::Query);
    let copy = match std::mem::replace(wire, Wire::Lost) {
        Wire::Idle(client) if before.is_empty() => client.into_copy_of_few(&[OWN_PATH], statement),
        // A savepoint has to be there whatever becomes of the rows.
        Wire::Idle(client) => client
            .into_copy_in(&[before, &[OWN_PATH]].concat(), statement)?
            .ready()?,
        Wire::Asked(asked) => asked.ready()?,
        other => {
            *wire = other;
            return Ok(());
        }
    };
    *wire = Wire::Copying(copy, 0);
    buffer.truncate(COPY_HEADER_BYTES);
    encoder.header(buffer);
    Ok(())
}

/// Gives the client back; failing, the connection is closed, and the server rolls back by itself.
fn give_up_copy(mut copy: CopyIn<Client>) -> Option<Client> {
    copy.fail("the load was aborted").ok()?;
    Some(copy.into_client())
}

/// Sends what is behind the header's room and gives its bytes.
fn send(copy: &mut CopyIn<Client>, buffer: &mut Vec<u8>) -> Result<u64> {
    let _phase = phase::enter(Kind::Flush);
    if buffer.len() - COPY_HEADER_BYTES > MAX_KEPT_BYTES {
        return send_last(copy, buffer);
    }
    copy.send_framed(buffer)?;
    Ok(emptied(buffer))
}

/// The same through the messages that the COPY collects: its end goes with the last of them.
fn send_last(copy: &mut CopyIn<Client>, buffer: &mut Vec<u8>) -> Result<u64> {
    copy.send(&buffer[COPY_HEADER_BYTES..])?;
    Ok(emptied(buffer))
}

/// Leaves the header's room, and gives the bytes that were behind it.
fn emptied(buffer: &mut Vec<u8>) -> u64 {
    let bytes = buffer.len() - COPY_HEADER_BYTES;
    buffer.truncate(COPY_HEADER_BYTES);
    buffer.shrink_to(MAX_KEPT_BYTES);
    bytes as u64
}

pub(crate) fn lost() -> Error {
    Error::internal("the load failed and was aborted")
}

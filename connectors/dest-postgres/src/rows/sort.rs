//! Finds the rows of a batch that do not go in, and lets the others in.
//!
//! A batch is written behind a savepoint. If it fails because of a row, the transaction returns to the savepoint, and
//! the batch is written in pieces: where the server names the row, the rows before it, the row and the rows behind it;
//! otherwise its halves. A row that fails alone is a reject. Rows that cannot be encoded cost no savepoint: a COPY
//! leaves them out.

use rapidbyte_pg::PgError;
use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg_client::{Client, CopyIn, TransactionStatus, line_of_copy};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use super::{
    COPY_HEADER_BYTES, Guard, MAX_MISFITS, Misfits, Rows, Sink, Wire, begin_copy, give_up_copy,
    lost, send, with_numbers,
};
use crate::config::Settings;
use crate::convert;
use crate::inserts;
use crate::refusal::Casts;
use crate::rejects::Keeper;
use crate::stage::Stage;

/// The state before an attempt.
const SAVEPOINT: &str = "rapidbyte_rows";
/// Classes of the server's error codes that are about the values of a row: data exceptions, constraints, views with a
/// check, limits of an index, errors that triggers raise.
const ROW_CLASSES: [&str; 5] = ["22", "23", "44", "54", "P0"];
/// All other classes of the server's own codes (appendix A of its manual). A trigger may raise codes of other classes,
/// which are about a row.
const OTHER_CLASSES: [&str; 36] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "24",
    "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "53",
    "55", "57", "58", "F0",
];
/// The same, of foreign data wrappers and of faults inside the server.
const INTERNAL_CLASSES: [&str; 3] = ["72", "HV", "XX"];
/// Errors that may end when other rows are in the table: foreign keys, unique keys, exclusion constraints, triggers.
const PASSING: [&str; 4] = ["pg_23503", "pg_23505", "pg_23P01", "pg_P0001"];
/// Rows of a batch that are tried again at most.
const MAX_WAITING: usize = 1000;
/// Rounds in which they are.
const MAX_ROUNDS: usize = 8;
/// Where the server reads values from text, also names and types that do not exist.
const CAST_CLASSES: [&str; 3] = ["3F", "42", "0A"];
/// An error of class 42 that is about the role, not about a text.
const NO_PRIVILEGE: &str = "pg_42501";

/// A piece of a batch that the server, or the connector, has refused as a whole.
struct Refusal {
    error: Error,
    /// The place of the row in the piece, if it is known.
    row: Option<usize>,
}

/// The counters of a sink before an attempt.
#[derive(Clone, Copy)]
struct Mark {
    rows: u64,
    bytes: u64,
    confirmed: u64,
}

impl Sink {
    /// Writes the rows of a batch that go in, and gives the others to `keeper`. Stops early with more rejects than are
    /// allowed. Errors: those that are about no row.
    pub(crate) fn sort(
        &mut self,
        batch: &RecordBatch,
        keeper: &mut Keeper,
        settings: &Settings,
    ) -> Result<()> {
        let kept = self.kept.as_ref().map(|kept| batch.project(kept));
        let kept = kept.transpose()?;
        // A reject has the row as it came.
        let whole = batch;
        let batch = kept.as_ref().unwrap_or(batch);
        let first = self.before + self.rows + self.refused;
        // Rows that may go in once the others of the batch are there.
        let mut waiting: Vec<usize> = Vec::new();
        self.pieces.begin(batch.num_rows());
        while let Some(piece) = self.pieces.take() {
            if keeper.is_above() {
                break;
            }
            let rows = batch.slice(piece.start, piece.len());
            let mut misfits = Misfits {
                first_row: first + piece.start as u64 + 1,
                ..Misfits::default()
            };
            let refusal = self.attempt(&rows, settings, &mut misfits)?;
            let Some(Refusal { error, row }) = refusal else {
                self.pieces.passed(&piece);
                for (row, error) in misfits.rows {
                    let row = piece.start + row;
                    self.refuse(keeper, whole, row, first, &error)?;
                }
                continue;
            };
            if !self.pieces.failed(&piece, row) {
                continue;
            }
            if waiting.len() < MAX_WAITING && self.may_pass(&error) {
                waiting.push(piece.start);
            } else {
                self.refuse(keeper, whole, piece.start, first, &error)?;
            }
        }
        self.try_again(batch, first, waiting, settings, |it, row, error| {
            it.refuse(keeper, whole, row, first, error)
        })?;
        self.send(keeper)?;
        match self.guard {
            Guard::Failed => self.settle(),
            Guard::Open | Guard::Passed => Ok(()),
        }
    }

    /// Tries rows again that may go in now that the others of the batch are there, as long as one of them does. The
    /// others are given to `refuse` with their errors.
    fn try_again(
        &mut self,
        batch: &RecordBatch,
        first: u64,
        mut waiting: Vec<usize>,
        settings: &Settings,
        mut refuse: impl FnMut(&mut Self, usize, &Error) -> Result<()>,
    ) -> Result<()> {
        for round in 1..=MAX_ROUNDS {
            let mut refused = Vec::new();
            for row in &waiting {
                let mut misfits = Misfits {
                    first_row: first + *row as u64 + 1,
                    ..Misfits::default()
                };
                let refusal = self.attempt(&batch.slice(*row, 1), settings, &mut misfits)?;
                refused.extend(refusal.map(|refusal| (*row, refusal.error)));
            }
            let is_over = round == MAX_ROUNDS || refused.len() == waiting.len();
            if is_over {
                return refused
                    .iter()
                    .try_for_each(|(row, error)| refuse(self, *row, error));
            }
            waiting = refused.into_iter().map(|(row, _)| row).collect();
        }
        Ok(())
    }

    /// Whether a row may go in once other rows of its batch are there. An older version of a key must not follow a newer
    /// one.
    fn may_pass(&self, error: &Error) -> bool {
        let is_upsert = |(stage, _): &(Stage, SchemaRef)| stage.merge.version.is_none();
        PASSING.contains(&error.code.as_str()) && !self.stage.as_ref().is_some_and(is_upsert)
    }

    fn refuse(
        &mut self,
        keeper: &mut Keeper,
        batch: &RecordBatch,
        row: usize,
        first: u64,
        error: &Error,
    ) -> Result<()> {
        self.refused += 1;
        keeper.refuse(batch, row, first + row as u64 + 1, error);
        match keeper.is_full() {
            true => self.send(keeper),
            false => Ok(()),
        }
    }

    /// Writes the rejects so far into their table.
    pub(crate) fn send(&mut self, keeper: &mut Keeper) -> Result<()> {
        if !keeper.is_empty() {
            self.settle()?;
            keeper.send(self.client()?)?;
        }
        Ok(())
    }

    /// Keeps or drops what was written behind the savepoint, and the savepoint itself.
    fn settle(&mut self) -> Result<()> {
        let sql = match self.guard {
            Guard::Open => return Ok(()),
            Guard::Passed => format!("RELEASE SAVEPOINT {SAVEPOINT}"),
            Guard::Failed => {
                format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}")
            }
        };
        self.client()?.execute(&sql)?;
        self.guard = Guard::Open;
        Ok(())
    }

    /// The statements before an attempt.
    fn guarded(&self) -> Vec<String> {
        let set = format!("SAVEPOINT {SAVEPOINT}");
        match self.guard {
            Guard::Open => vec![set],
            Guard::Passed => vec![format!("RELEASE {set}"), set],
            // The savepoint stays.
            Guard::Failed => vec![format!("ROLLBACK TO {set}")],
        }
    }

    /// Writes a piece of a batch. None: all of its rows but the misfits are written.
    fn attempt(
        &mut self,
        rows: &RecordBatch,
        settings: &Settings,
        misfits: &mut Misfits,
    ) -> Result<Option<Refusal>> {
        let mark = self.mark();
        let put = self.put(rows, settings, misfits);
        self.guard = Guard::Passed;
        let Err(error) = put else {
            return Ok(None);
        };
        let row = self.row_of(&error, rows.num_rows(), misfits);
        self.recover();
        if !self.is_about_row(&error) || !matches!(self.wire, Wire::Idle(_)) {
            return Err(error);
        }
        let error = match rows.num_rows() {
            1 => self.explained(error, rows, misfits.first_row)?,
            _ => error,
        };
        self.guard = Guard::Failed;
        self.back_to(mark);
        Ok(Some(Refusal { error, row }))
    }

    /// Writes rows, waits until the server has taken them, and merges them if they are staged.
    fn put(
        &mut self,
        rows: &RecordBatch,
        settings: &Settings,
        misfits: &mut Misfits,
    ) -> Result<()> {
        let number = misfits.first_row - 1;
        self.dead += rows.num_rows() as u64;
        match (&self.method, &self.stage) {
            (Rows::Copy(_), Some((stage, schema))) => {
                if let Some((row, error)) = stage.null_key(rows, misfits.first_row) {
                    // The savepoint is there for the next attempt.
                    let guarded = self.guarded().join("; ");
                    self.client()?.execute(&guarded)?;
                    misfits.refused_at = Some(row);
                    return Err(error);
                }
                let rows = with_numbers(rows, schema, number - self.before)?;
                self.copy_fitting(&rows, misfits)?;
            }
            (Rows::Copy(_), None) => self.copy_fitting(rows, misfits)?,
            (Rows::Insert(..), _) => {
                let guarded = self.guarded().join("; ");
                self.client()?.execute(&guarded)?;
                self.method.count_from(number);
                self.send_inserts(rows, number, Some(misfits)).map(drop)?;
            }
        }
        self.end_copy()?;
        self.end_insert()?;
        let written = (rows.num_rows() - misfits.rows.len()) as u64;
        self.rows += written;
        if let (Some((stage, _)), Wire::Idle(client), 1..) = (&self.stage, &mut self.wire, written)
        {
            stage.merge(client, settings, &self.name, written)?;
            client.execute(&stage.empty(&mut self.dead))?;
        }
        Ok(())
    }

    /// Copies the rows of a piece that can be encoded.
    fn copy_fitting(&mut self, rows: &RecordBatch, misfits: &mut Misfits) -> Result<()> {
        let guarded = self.guarded();
        let before: Vec<&str> = guarded.iter().map(String::as_str).collect();
        let Rows::Copy(encoder) = &self.method else {
            return Err(lost());
        };
        begin_copy(
            &mut self.wire,
            &before,
            &self.copy,
            encoder,
            &mut self.buffer,
        )?;
        let mut row = 0;
        while row < rows.num_rows() {
            row = self.copy_until_misfit(rows, row, misfits)?;
        }
        Ok(())
    }

    /// Copies rows from `from` on, up to the first one that cannot be encoded, which is left out. Gives the row behind it.
    fn copy_until_misfit(
        &mut self,
        rows: &RecordBatch,
        from: usize,
        misfits: &mut Misfits,
    ) -> Result<usize> {
        let (Rows::Copy(encoder), Wire::Copying(copy, sent)) = (&mut self.method, &mut self.wire)
        else {
            return Err(lost());
        };
        let number = misfits.first_row - 1 + from as u64;
        let (mut done, mut end) = (0, rows.num_rows() - from);
        let mut misfit = None;
        loop {
            encoder.count_from(number);
            let piece = rows.slice(from, end);
            let mut copying = Copying {
                copy,
                buffer: &mut self.buffer,
                full_bytes: self.copy_flush_bytes + COPY_HEADER_BYTES,
                bytes: &mut self.bytes,
            };
            let Some(error) = copying.put(encoder, &piece, &mut done)? else {
                break;
            };
            let place = error.row.and_then(|row| row.checked_sub(number + 1));
            let place = place.and_then(|place| usize::try_from(place).ok());
            let Some(place) = place.filter(|place| (done..end).contains(place)) else {
                return Err(convert(error));
            };
            // The rows before it go first.
            end = place;
            misfit = Some(error);
        }
        *sent += end as u64;
        match misfit {
            Some(error) => {
                misfits.push(from + end, convert(error))?;
                Ok(from + end + 1)
            }
            None => Ok(from + end),
        }
    }

    /// The place in the piece of the row that an error names.
    fn row_of(&self, error: &Error, rows: usize, misfits: &Misfits) -> Option<usize> {
        if misfits.refused_at.is_some() {
            return misfits.refused_at;
        }
        let line = line_of_copy(error.location.as_deref()?)?;
        let mut row = usize::try_from(line).ok()?.checked_sub(1)?;
        // The server does not count the rows that were left out.
        for (left_out, _) in &misfits.rows {
            row += usize::from(*left_out <= row);
        }
        Some(row).filter(|row| *row < rows)
    }

    fn is_about_row(&self, error: &Error) -> bool {
        let Some(code) = error.code.strip_prefix("pg_") else {
            return matches!(error.kind, ErrorKind::Data) && error.code != "rows_not_kept";
        };
        let is_in = |classes: &[&str]| code.get(..2).is_some_and(|class| classes.contains(&class));
        let is_cast = !self.cast.is_empty() && is_in(&CAST_CLASSES) && error.code != NO_PRIVILEGE;
        let is_own = !is_in(&OTHER_CLASSES) && !is_in(&INTERNAL_CLASSES);
        let is_malformed = code == "08P01" && matches!(error.kind, ErrorKind::Data);
        is_in(&ROW_CLASSES) || is_own || is_cast || is_malformed
    }

    /// The error of a row with its column, where the server's message does not name it.
    fn explained(&mut self, error: Error, row: &RecordBatch, first_row: u64) -> Result<Error> {
        let error = self.in_column(error);
        let casts = Casts {
            targets: &self.targets,
            places: &self.cast,
            first_row,
        };
        if !casts.may_have_raised(&error) {
            return Ok(casts.explained_alone(error));
        }
        // The search costs several questions.
        if let ([place], None) = (self.cast.as_slice(), &error.column) {
            let column = self.targets.get(*place).map(|column| column.name.clone());
            return Ok(Error { column, ..error });
        }
        let Wire::Idle(client) = &mut self.wire else {
            return Ok(error);
        };
        if let Some((stage, _)) = &self.stage {
            let casts = Casts {
                first_row: self.before + 1,
                ..casts
            };
            let staged = first_row - 1 - self.before;
            return Ok(stage.located(client, casts, error, staged..staged + 1));
        }
        client.execute(&format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}"))?;
        let found = inserts::found(client, casts, &error, row, self.insert_rows)?;
        Ok(found.unwrap_or(error))
    }

    /// The server names the columns of staged rows by their places.
    fn in_column(&self, error: Error) -> Error {
        if !error.code.starts_with("pg_") {
            return error;
        }
        let column = self.column_of(&error);
        Error { column, ..error }
    }

    /// Ends what is under way, so that the client can be used again if the connection is there.
    fn recover(&mut self) {
        self.buffer.truncate(COPY_HEADER_BYTES);
        self.wire = match std::mem::replace(&mut self.wire, Wire::Lost) {
            Wire::Copying(copy, _) => give_up_copy(copy).map_or(Wire::Lost, Wire::Idle),
            Wire::Inserting(pipeline, sent) => {
                self.wire = Wire::Inserting(pipeline, sent);
                // The first error is the cause.
                let _ = self.end_insert();
                std::mem::replace(&mut self.wire, Wire::Lost)
            }
            other => other,
        };
    }

    fn client(&mut self) -> Result<&mut Client> {
        match &mut self.wire {
            Wire::Idle(client) if client.transaction_status() != TransactionStatus::Idle => {
                Ok(client)
            }
            _ => Err(lost()),
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            rows: self.rows,
            bytes: self.bytes,
            confirmed: self.confirmed,
        }
    }

    fn back_to(&mut self, mark: Mark) {
        self.rows = mark.rows;
        self.bytes = mark.bytes;
        self.confirmed = mark.confirmed;
    }
}

/// A COPY that is under way.
struct Copying<'a> {
    copy: &'a mut CopyIn<Client>,
    buffer: &'a mut Vec<u8>,
    full_bytes: usize,
    bytes: &'a mut u64,
}

impl Copying<'_> {
    /// Sends the rows of a piece from `done` on, and says how many are sent. Returns the error of a row that cannot be
    /// encoded.
    fn put(
        &mut self,
        encoder: &mut Encoder,
        piece: &RecordBatch,
        done: &mut usize,
    ) -> Result<Option<PgError>> {
        let bound = {
            let _phase = phase::enter(Kind::Encode);
            encoder.bind(piece)
        };
        let bound = match bound {
            Ok(bound) => bound,
            Err(error) => return Ok(Some(error)),
        };
        while *done < bound.len() {
            let encoded = {
                let _phase = phase::enter(Kind::Encode);
                bound.encode(*done, self.full_bytes, self.buffer)
            };
            match encoded {
                Ok(next) => *done = next,
                Err(error) => return Ok(Some(error)),
            }
            if self.buffer.len() >= self.full_bytes {
                *self.bytes += send(self.copy, self.buffer)?;
            }
        }
        Ok(None)
    }
}

impl Misfits {
    /// Leaves a row out. With too many of them, the row is an error of the whole piece.
    pub(super) fn push(&mut self, row: usize, error: Error) -> Result<()> {
        if self.rows.len() >= MAX_MISFITS {
            self.refused_at = Some(row);
            return Err(error);
        }
        self.rows.push((row, error));
        Ok(())
    }
}

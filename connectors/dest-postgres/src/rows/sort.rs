//! Finds the rows of a batch that do not go in, and lets the others in.
//!
//! A batch is written behind a savepoint. If it fails because of a row, the transaction returns to the savepoint, and
//! the batch is written in pieces: where the server names the row, the rows before it, the row and the rows behind it;
//! otherwise its halves. A row that fails alone is a reject. Rows that cannot be encoded cost no savepoint: a COPY
//! leaves them out.

use std::ops::Range;

use rapidbyte_pg_client::{Client, TransactionStatus, line_of_copy};
use rapidbyte_sdk::prelude::*;

use super::{MAX_MISFITS, Misfits, Rows, Sink, Wire, give_up_copy, lost, with_numbers};
use crate::config::Settings;
use crate::inserts;
use crate::refusal::Casts;
use crate::rejects::Keeper;

/// The state before an attempt.
const SAVEPOINT: &str = "rapidbyte_rows";
/// Classes of the server's error codes that are about the values of a row: data exceptions, constraints, views with a
/// check, limits of an index, errors that triggers raise.
const ROW_CLASSES: [&str; 5] = ["22", "23", "44", "54", "P0"];
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
    /// Writes the rows of a batch that go in, and gives the others to `keeper`. Errors: those that are about no row;
    /// `too_many_rejects`.
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
        let mut left: Vec<Range<usize>> = vec![0..batch.num_rows()];
        while let Some(piece) = left.pop() {
            let number = first + piece.start as u64;
            let rows = batch.slice(piece.start, piece.len());
            let mut misfits = Misfits {
                first_row: number + 1,
                ..Misfits::default()
            };
            let refusal = self.attempt(&rows, settings, &mut misfits)?;
            let Some(Refusal { error, row }) = refusal else {
                for (row, error) in misfits.rows {
                    let row = piece.start + row;
                    self.refuse(keeper, whole, row, first, &error)?;
                }
                continue;
            };
            if piece.len() == 1 {
                self.refuse(keeper, whole, piece.start, first, &error)?;
                continue;
            }
            let pieces = match row {
                Some(row) => {
                    let row = piece.start + row;
                    [piece.start..row, row..row + 1, row + 1..piece.end]
                }
                None => {
                    let middle = piece.start + piece.len() / 2;
                    [piece.start..middle, middle..piece.end, 0..0]
                }
            };
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
            left.extend(pieces.rev());
        }
        self.send(keeper)
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
        keeper.refuse(batch, row, first + row as u64 + 1, error)?;
        match keeper.is_full() {
            true => self.send(keeper),
            false => Ok(()),
        }
    }

    /// Writes the rejects so far into their table.
    pub(crate) fn send(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.send(self.client()?)
    }

    /// Writes a piece of a batch. None: all of its rows but the misfits are written.
    fn attempt(
        &mut self,
        rows: &RecordBatch,
        settings: &Settings,
        misfits: &mut Misfits,
    ) -> Result<Option<Refusal>> {
        let mark = self.mark();
        self.client()?.execute(&format!("SAVEPOINT {SAVEPOINT}"))?;
        let Err(error) = self.put(rows, settings, misfits) else {
            self.client()?
                .execute(&format!("RELEASE SAVEPOINT {SAVEPOINT}"))?;
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
        self.client()?.execute(&format!(
            "ROLLBACK TO SAVEPOINT {SAVEPOINT}; RELEASE SAVEPOINT {SAVEPOINT}"
        ))?;
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
        match &mut self.method {
            Rows::Copy(encoder) => encoder.count_from(number),
            Rows::Insert(parameter, _) => parameter.count_from(number),
        }
        match (&self.method, &self.stage) {
            (Rows::Copy(_), Some((stage, schema))) => {
                misfits.refused_at = stage.null_key(rows).map(|(row, _)| row);
                stage.refuse_null_keys(rows, misfits.first_row)?;
                let rows = with_numbers(rows, schema, number - self.before)?;
                self.copy(&rows, Some(misfits))?;
            }
            (Rows::Copy(_), None) => self.copy(rows, Some(misfits))?,
            (Rows::Insert(..), _) => {
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
            client.execute(&stage.empty())?;
        }
        Ok(())
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
        is_in(&ROW_CLASSES) || is_cast
    }

    /// The error of a row with its column, where the server's message does not name it.
    fn explained(&mut self, error: Error, row: &RecordBatch, first_row: u64) -> Result<Error> {
        let casts = Casts {
            targets: &self.targets,
            places: &self.cast,
            first_row,
        };
        if !casts.may_have_raised(&error) {
            let error = casts.explained_alone(error);
            return Ok(self.in_column(error));
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

    fn in_column(&self, error: Error) -> Error {
        let column = self.column_of(&error);
        Error { column, ..error }
    }

    /// Ends what is under way, so that the client can be used again if the connection is there.
    fn recover(&mut self) {
        self.buffer.truncate(super::COPY_HEADER_BYTES);
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

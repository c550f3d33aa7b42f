//! Finds the rows of a batch that cannot be transformed, and transforms the others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_select::concat::concat_batches;
use rapidbyte_formats::object;
use rapidbyte_sdk::prelude::*;

use crate::steps::{Fault, Program};

/// Bytes of a row that are kept.
const MAX_ROW_BYTES: usize = 64 << 10;
/// Rejects that are given at once, and bytes of them.
const MAX_TAKEN: usize = 1000;
const MAX_TAKEN_BYTES: usize = 1 << 20;
/// Rows that are transformed at once at least.
const LEAST_PIECE: usize = 16;

/// The rows of the last batch that cannot be transformed.
pub struct Rejects {
    batch: Option<RecordBatch>,
    faults: VecDeque<Fault>,
    /// Rows of the stream before the batch.
    before: u64,
    /// Rows that are transformed at once. A piece with a fault is transformed again without its row, so pieces become
    /// smaller while rows fail, and larger again while none does.
    piece_rows: usize,
}

impl Rejects {
    pub fn new() -> Self {
        Self {
            batch: None,
            faults: VecDeque::new(),
            before: 0,
            piece_rows: usize::MAX,
        }
    }

    /// Transforms the rows of a batch that can be transformed. `before` rows of the stream came before it.
    ///
    /// # Errors
    /// A fault that is not of a row.
    pub fn sort(
        &mut self,
        program: &Program,
        batch: RecordBatch,
        before: u64,
    ) -> Result<RecordBatch, Fault> {
        self.before = before;
        let mut moved = Vec::new();
        let mut left: Vec<Range<usize>> = Vec::new();
        left.push(0..batch.num_rows());
        while let Some(mut piece) = left.pop() {
            if piece.len() > self.piece_rows {
                let end = piece.start + self.piece_rows;
                left.push(end..piece.end);
                piece.end = end;
            }
            let fault = match program.run(batch.slice(piece.start, piece.len())) {
                Ok(rows) => {
                    if piece.len() >= self.piece_rows {
                        self.piece_rows = self.piece_rows.saturating_mul(2);
                    }
                    moved.push(rows);
                    continue;
                }
                Err(fault) if !fault.is_of_row || fault.row >= piece.len() => return Err(fault),
                Err(fault) => fault,
            };
            let row = piece.start + fault.row;
            if piece.len() == 1 {
                self.faults.push_back(Fault { row, ..fault });
                continue;
            }
            self.piece_rows = (piece.len() / 2).max(LEAST_PIECE);
            let pieces = [piece.start..row, row..row + 1, row + 1..piece.end];
            let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
            left.extend(pieces.rev());
        }
        self.batch = Some(batch);
        match moved.as_slice() {
            [] => Ok(RecordBatch::new_empty(Arc::clone(program.schema()))),
            [only] => Ok(only.clone()),
            pieces => concat_batches(program.schema(), pieces).map_err(Fault::internal),
        }
    }

    /// The next rejects of the last batch.
    pub fn take(&mut self) -> Vec<Reject> {
        let Some(batch) = self.batch.as_ref().filter(|_| !self.faults.is_empty()) else {
            self.batch = None;
            return Vec::new();
        };
        let (mut rejects, mut bytes) = (Vec::new(), 0);
        while rejects.len() < MAX_TAKEN
            && bytes < MAX_TAKEN_BYTES
            && let Some(fault) = self.faults.pop_front()
        {
            let (data, is_cut) = object(batch, fault.row, MAX_ROW_BYTES);
            bytes += data.len();
            rejects.push(Reject {
                data,
                is_cut,
                location: Some(format!("row {}", self.before + fault.row as u64 + 1)),
                column: Some(fault.column).filter(|column| !column.is_empty()),
                code: "transform_failed".into(),
                message: fault.reason,
            });
        }
        rejects
    }
}

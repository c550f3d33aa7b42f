//! Finds the rows of a batch that cannot be transformed, and transforms the others.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_select::concat::concat_batches;
use rapidbyte_formats::object;
use rapidbyte_sdk::pieces::Pieces;
use rapidbyte_sdk::prelude::*;

use crate::steps::{Fault, Program};

/// Rejects that are given at once, and bytes of them.
const MAX_TAKEN: usize = 1000;
const MAX_TAKEN_BYTES: usize = 1 << 20;

/// The rows of the last batch that cannot be transformed.
pub struct Rejects {
    batch: Option<RecordBatch>,
    faults: VecDeque<Fault>,
    /// Rows of the stream before the batch.
    before: u64,
    /// The rows of the batch that are not transformed yet.
    pieces: Pieces,
}

impl Rejects {
    pub fn new() -> Self {
        Self {
            batch: None,
            faults: VecDeque::new(),
            before: 0,
            pieces: Pieces::default(),
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
        self.pieces.begin(batch.num_rows());
        while let Some(piece) = self.pieces.take() {
            match program.run(batch.slice(piece.start, piece.len())) {
                Ok(rows) => {
                    self.pieces.passed(&piece);
                    moved.push(rows);
                }
                Err(fault) if !fault.is_of_row || fault.row >= piece.len() => return Err(fault),
                Err(fault) => {
                    if self.pieces.failed(&piece, Some(fault.row)) {
                        let row = piece.start;
                        self.faults.push_back(Fault { row, ..fault });
                    }
                }
            }
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
            let (data, is_cut) = object(batch, fault.row);
            bytes += data.len();
            rejects.push(Reject {
                data,
                is_cut,
                location: Some(format!("row {}", self.before + fault.row as u64 + 1)),
                column: Some(fault.column).filter(|column| !column.is_empty()),
                code: "transform_failed".into(),
                message: fault.reason,
                read_with: None,
            });
        }
        rejects
    }
}

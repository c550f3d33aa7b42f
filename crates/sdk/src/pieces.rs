//! Pieces of a batch, for connectors that keep rejects: which rows to try at once, where a piece with a row that fails
//! fails as a whole.
//!
//! A piece that fails is tried again in smaller pieces, until a row fails alone. So pieces become smaller while rows
//! fail, and larger again while none does.

use std::ops::Range;

/// The rows of a batch that are still to be tried, in their order.
#[derive(Debug)]
pub struct Pieces {
    /// The next ones last.
    left: Vec<Range<usize>>,
    /// Rows that are tried at once.
    rows: usize,
}

impl Default for Pieces {
    /// No row. The first batch is tried as a whole.
    fn default() -> Self {
        Self {
            left: Vec::new(),
            rows: usize::MAX,
        }
    }
}

impl Pieces {
    /// Begins a batch of this many rows. The pieces of the batch before are forgotten, but their size is kept.
    pub fn begin(&mut self, rows: usize) {
        self.left.clear();
        self.push(0..rows);
    }

    /// The next rows to try. `None`: all rows of the batch have passed, or failed alone.
    pub fn take(&mut self) -> Option<Range<usize>> {
        let mut piece = self.left.pop()?;
        if piece.len() > self.rows {
            let end = piece.start + self.rows;
            self.push(end..piece.end);
            piece.end = end;
        }
        Some(piece)
    }

    /// All rows of a piece have passed.
    pub fn passed(&mut self, piece: &Range<usize>) {
        if piece.len() >= self.rows {
            self.rows = self.rows.saturating_mul(2);
        }
    }

    /// A piece has failed. True if it is one row. Otherwise its rows are tried again: those before the row that has
    /// failed, this row, and those behind it; or, if that row is not known, the halves of the piece. `row` is its place in
    /// the piece.
    pub fn failed(&mut self, piece: &Range<usize>, row: Option<usize>) -> bool {
        if piece.len() <= 1 {
            return true;
        }
        self.rows = piece.len() / 2;
        match row.filter(|row| *row < piece.len()) {
            Some(row) => {
                let row = piece.start + row;
                self.push(row + 1..piece.end);
                self.push(row..row + 1);
                self.push(piece.start..row);
            }
            None => {
                let middle = piece.start + piece.len() / 2;
                self.push(middle..piece.end);
                self.push(piece.start..middle);
            }
        }
        false
    }

    fn push(&mut self, piece: Range<usize>) {
        if !piece.is_empty() {
            self.left.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that pass and the rows that fail, where these are bad, and the number of tries.
    fn sorted(bad: &[usize], rows: usize, is_told: bool) -> (Vec<usize>, Vec<usize>, usize) {
        let mut pieces = Pieces::default();
        pieces.begin(rows);
        let (mut passed, mut failed, mut tries) = (Vec::new(), Vec::new(), 0);
        while let Some(piece) = pieces.take() {
            tries += 1;
            let Some(row) = piece.clone().position(|row| bad.contains(&row)) else {
                pieces.passed(&piece);
                passed.extend(piece);
                continue;
            };
            if pieces.failed(&piece, is_told.then_some(row)) {
                failed.push(piece.start);
            }
        }
        (passed, failed, tries)
    }

    #[test]
    fn every_row_passes_or_fails_once_in_its_order() {
        let all: Vec<usize> = (0..100).collect();
        for bad in [&[][..], &[0], &[99], &[7, 8, 50], &all] {
            for is_told in [true, false] {
                let (passed, failed, tries) = sorted(bad, 100, is_told);
                assert_eq!(failed, bad);
                let good = all.iter().filter(|row| !bad.contains(row));
                assert_eq!(passed, good.copied().collect::<Vec<_>>());
                assert!(
                    tries < 1 + 20 * (bad.len() + 1),
                    "{tries} tries for {bad:?}"
                );
            }
        }
        assert_eq!(sorted(&[], 0, true), (vec![], vec![], 0));
    }

    #[test]
    fn a_row_that_is_not_in_its_piece_counts_as_unknown() {
        let mut pieces = Pieces::default();
        pieces.begin(4);
        assert_eq!(pieces.take(), Some(0..4));
        assert!(!pieces.failed(&(0..4), Some(4)));
        assert_eq!(pieces.take(), Some(0..2));
        assert_eq!(pieces.take(), Some(2..4));
        assert_eq!(pieces.take(), None);
    }
}

//! Which rows of a stream are committed.

use rapidbyte_sdk::Result;
use serde::{Deserialize, Serialize};

use crate::ids::{IdRange, RowId, Tag};

/// A checkpoint knows the rows of this many epochs. The connection of a run that failed before them has ended long ago.
const MAX_EPOCHS: usize = 32;

/// The rows that an epoch has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// The epoch.
    pub epoch: u32,
    /// Rows with ids that it has committed.
    pub rows: u64,
    /// The epochs from this one to `epoch` are complete: each has committed all rows that it has written, and writes no
    /// more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_from: Option<u32>,
}

impl Committed {
    /// The first epoch of the entry.
    fn first(&self) -> u32 {
        self.complete_from.unwrap_or(self.epoch)
    }
}

/// The epochs of a stream that have committed rows, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Epochs {
    known: Vec<Committed>,
    is_cut: bool,
}

/// Epochs as a document has them.
#[derive(Deserialize)]
struct Stored {
    known: Vec<Committed>,
    is_cut: bool,
}

impl TryFrom<Stored> for Epochs {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        Self::new(stored.known, stored.is_cut).ok_or("the epochs are not in their order")
    }
}

impl Epochs {
    /// Epochs as a checkpoint has them. `is_cut`: it has forgotten older ones. `None` if they are not in their order: rows
    /// between two epochs are deleted, so a checkpoint that was mixed up would cost committed rows.
    pub fn new(known: Vec<Committed>, is_cut: bool) -> Option<Self> {
        let is_ordered = known.is_sorted_by(|one, next| one.epoch < next.first())
            && known.iter().all(|known| known.first() <= known.epoch);
        is_ordered.then_some(Self { known, is_cut })
    }

    /// The entries, oldest first.
    pub fn known(&self) -> &[Committed] {
        &self.known
    }

    /// Older ones were forgotten.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The same, where `epoch`, which is the last one, has committed this many rows. `is_complete`: it writes no more.
    #[must_use]
    pub fn with(&self, epoch: u32, rows: u64, is_complete: bool) -> Self {
        let mut epochs = self.clone();
        epochs.known.retain(|known| known.epoch != epoch);
        let known = &mut epochs.known;
        let complete = known
            .last()
            .filter(|last| last.epoch.checked_add(1) == Some(epoch));
        let complete_from = match complete.and_then(|last| last.complete_from) {
            // One entry for all of them, or the oldest would soon be forgotten.
            Some(from) if is_complete => {
                known.pop();
                Some(from)
            }
            _ => is_complete.then_some(epoch),
        };
        if rows > 0 || is_complete {
            known.push(Committed {
                epoch,
                rows,
                complete_from,
            });
        }
        while epochs.known.len() > MAX_EPOCHS {
            epochs.known.remove(0);
            epochs.is_cut = true;
        }
        epochs
    }

    /// Whether a commit has this row.
    pub fn has(&self, epoch: u32, number: u64) -> bool {
        let holds = |known: &&Committed| (known.first()..=known.epoch).contains(&epoch);
        match self.known.iter().find(holds) {
            Some(known) => known.complete_from.is_some() || number < known.rows,
            // Of a forgotten epoch.
            None => self.is_cut && self.known.first().is_some_and(|first| epoch < first.epoch),
        }
    }

    /// The same after the rows of all epochs before were deleted, such as by a collection that replaced theirs. Rows that
    /// an epoch may still write are uncommitted.
    #[must_use]
    pub fn of_new_collection(&self) -> Self {
        let mut epochs = self.clone();
        epochs.known.retain(|known| known.complete_from.is_some());
        epochs.is_cut = false;
        epochs
    }

    /// The ranges of ids below the epoch `end` that no commit has, and where rows may be. Empty if each run was complete.
    pub fn uncommitted(&self, tag: Tag, end: u32) -> Result<Vec<IdRange>> {
        let mut ranges = Vec::new();
        // Where the next range begins, and the first epoch in it that may have written. The first epoch is 1.
        let mut next = match self.is_cut {
            false => Some((RowId::first(tag, 0), 1)),
            true => None,
        };
        for known in &self.known {
            if let Some((begin, _)) = next.filter(|(_, open)| *open < known.first()) {
                ranges.push((begin, RowId::first(tag, known.first())));
            }
            next = Some(match known.complete_from {
                Some(_) => {
                    let behind = known.epoch.saturating_add(1);
                    (RowId::first(tag, behind), behind)
                }
                None => (RowId::new(tag, known.epoch, known.rows)?, known.epoch),
            });
        }
        if let Some((begin, _)) = next.filter(|(_, open)| *open < end) {
            ranges.push((begin, RowId::first(tag, end)));
        }
        Ok(ranges)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tag() -> Tag {
        Tag::from_bytes(b"12345678").unwrap()
    }

    fn at(epoch: u32, number: u64) -> RowId {
        RowId::new(tag(), epoch, number).unwrap()
    }

    fn ranges(epochs: &Epochs, end: u32) -> Vec<IdRange> {
        epochs.uncommitted(tag(), end).unwrap()
    }

    #[test]
    fn what_no_commit_has_is_between_the_commits() {
        let none = Epochs::default();
        assert_eq!(ranges(&none, 3), [(at(0, 0), at(3, 0))]);
        let some = none.with(2, 10, false).with(4, 7, false);
        let expected = [
            (at(0, 0), at(2, 0)),
            (at(2, 10), at(4, 0)),
            (at(4, 7), at(5, 0)),
        ];
        assert_eq!(ranges(&some, 5), expected);
        // A later commit of the same epoch.
        let more = some.with(4, 9, false);
        assert_eq!(ranges(&more, 5)[2], (at(4, 9), at(5, 0)));
        assert_eq!(none.with(1, 0, false), none);
    }

    #[test]
    fn complete_epochs_have_no_uncommitted_rows() {
        let mut epochs = Epochs::default();
        for epoch in 1..=40 {
            epochs = epochs.with(epoch, u64::from(epoch % 3), true);
            assert_eq!(ranges(&epochs, epoch + 1), []);
        }
        assert_eq!((epochs.known.len(), epochs.is_cut), (1, false));
        assert!(epochs.has(1, 0) && epochs.has(40, 0) && !epochs.has(41, 0));
        // The run 41 has committed a part and was killed, and nothing is known of 42.
        let killed = epochs.with(41, 5, false);
        assert_eq!(ranges(&killed, 43), [(at(41, 5), at(43, 0))]);
        let later = killed.with(43, 2, true);
        assert_eq!(ranges(&later, 44), [(at(41, 5), at(43, 0))]);
        assert!(later.has(41, 4) && !later.has(41, 5) && !later.has(42, 0));
        // In a new collection, all rows of 41 and 42 would be uncommitted.
        assert_eq!(
            ranges(&later.of_new_collection(), 44),
            [(at(41, 0), at(43, 0))]
        );
        // The first run was killed before it committed.
        let first = Epochs::default().with(2, 7, true);
        assert_eq!(ranges(&first, 3), [(at(0, 0), at(2, 0))]);
    }

    #[test]
    fn rows_of_forgotten_epochs_are_never_taken_for_uncommitted() {
        let mut epochs = Epochs::default();
        for epoch in 1..=40 {
            epochs = epochs.with(epoch, 5, false);
        }
        assert_eq!(epochs.known.len(), MAX_EPOCHS);
        let ranges = ranges(&epochs, 41);
        assert_eq!(ranges[0].0, at(9, 5));
        assert_eq!(ranges.len(), MAX_EPOCHS);
        assert!(epochs.has(3, 100) && epochs.has(40, 4) && !epochs.has(40, 5));
        assert!(!epochs.has(41, 0));
    }

    #[test]
    fn epochs_without_complete_runs_are_read_and_go_on() {
        // As dest-cosmos wrote them before it merged complete runs.
        let old = r#"{"known":[{"epoch":1,"rows":4},{"epoch":3,"rows":2}],"is_cut":false}"#;
        let epochs: Epochs = serde_json::from_str(old).unwrap();
        assert_eq!(serde_json::to_string(&epochs).unwrap(), old);
        assert_eq!(
            ranges(&epochs, 4),
            [(at(1, 4), at(3, 0)), (at(3, 2), at(4, 0))]
        );
        let next = epochs.with(4, 1, true).with(5, 1, true);
        assert_eq!(next.known.len(), 3);
        assert!(next.has(1, 3) && !next.has(1, 4) && !next.has(2, 0) && next.has(4, 0));
        assert_eq!(
            serde_json::to_string(&next.known[2]).unwrap(),
            r#"{"epoch":5,"rows":1,"complete_from":4}"#
        );
        for mixed_up in [
            r#"{"known":[{"epoch":3,"rows":4},{"epoch":1,"rows":2}],"is_cut":false}"#,
            r#"{"known":[{"epoch":3,"rows":4,"complete_from":4}],"is_cut":false}"#,
            r#"{"known":[{"epoch":3,"rows":4},{"epoch":5,"rows":4,"complete_from":2}],"is_cut":false}"#,
        ] {
            assert!(serde_json::from_str::<Epochs>(mixed_up).is_err());
        }
    }
}

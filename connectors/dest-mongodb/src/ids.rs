//! The `_id` of rows that bring none: 18 bytes that say which commit the row belongs to.
//!
//! Eight bytes of the stream's tag, a random number that its checkpoint keeps; four bytes of the epoch of the run; six
//! bytes of the row's number in the epoch. All are big endian, so that the rows of a run are one range. A row of an
//! attempt that failed has an epoch, or a number, that no commit has: the next run finds these rows and deletes them.

use rapidbyte_bson::{Builder, Value};
use rapidbyte_sdk::{Error, Result};

/// The random part of a stream's ids.
pub(crate) type Tag = [u8; 8];

/// The bytes of an id.
pub(crate) const ID_BYTES: usize = 18;
/// Rows of a run that get an id.
const MAX_NUMBER: u64 = (1 << 48) - 1;
/// A checkpoint knows the rows of this many epochs. The connection of a run that failed before them has ended long ago.
const MAX_EPOCHS: usize = 32;

/// A new tag.
pub(crate) fn tag() -> Result<Tag> {
    let mut tag = Tag::default();
    getrandom::fill(&mut tag)
        .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
    Ok(tag)
}

/// The id of a row.
pub(crate) fn id(tag: Tag, epoch: u32, number: u64) -> Result<[u8; ID_BYTES]> {
    if number > MAX_NUMBER {
        return Err(Error::internal("more rows in a run than 48 bits count"));
    }
    let mut id = [0; ID_BYTES];
    id[..8].copy_from_slice(&tag);
    id[8..12].copy_from_slice(&epoch.to_be_bytes());
    id[12..].copy_from_slice(&number.to_be_bytes()[2..]);
    Ok(id)
}

/// The tag, the epoch and the number of an id.
pub(crate) fn parts(id: &[u8; ID_BYTES]) -> (Tag, u32, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, number @ ..] = *id;
    let [m, n, o, p, q, r] = number;
    (
        [a, b, c, d, e, f, g, h],
        u32::from_be_bytes([i, j, k, l]),
        u64::from_be_bytes([0, 0, m, n, o, p, q, r]),
    )
}

/// The rows that an epoch has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Committed {
    pub epoch: u32,
    pub rows: u64,
    /// The epochs from this one to `epoch` are complete: each has committed all rows that it has written, and writes no
    /// more.
    pub complete_from: Option<u32>,
}

/// The epochs of a stream that have committed rows, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Epochs {
    pub known: Vec<Committed>,
    /// Older ones were forgotten.
    pub is_cut: bool,
}

impl Epochs {
    /// The same, where `epoch`, which is the last one, has committed this many rows. `is_complete`: it writes no more.
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
        let holds = |known: &&Committed| {
            (known.complete_from.unwrap_or(known.epoch)..=known.epoch).contains(&epoch)
        };
        match self.known.iter().find(holds) {
            Some(known) => known.complete_from.is_some() || number < known.rows,
            // Of a forgotten epoch.
            None => self.is_cut && self.known.first().is_some_and(|first| epoch < first.epoch),
        }
    }

    /// The same after the collection has been replaced: no row of an epoch before is there any more. Rows that an epoch may
    /// still write are uncommitted.
    pub fn of_new_collection(&self) -> Self {
        let mut epochs = self.clone();
        epochs.known.retain(|known| known.complete_from.is_some());
        epochs.is_cut = false;
        epochs
    }

    /// The ranges of ids below `end` that no commit has, and where rows may be: from the first, up to the second, which is
    /// outside. Empty if each run was complete.
    pub fn uncommitted(&self, tag: Tag, end: u32) -> Result<Vec<([u8; ID_BYTES], [u8; ID_BYTES])>> {
        let mut ranges = Vec::new();
        // Where the next range begins, and the first epoch in it that may have written. The first epoch is 1.
        let mut next = match self.is_cut {
            false => Some((id(tag, 0, 0)?, 1)),
            true => None,
        };
        for known in &self.known {
            let first = known.complete_from.unwrap_or(known.epoch);
            if let Some((begin, _)) = next.filter(|(_, open)| *open < first) {
                ranges.push((begin, id(tag, first, 0)?));
            }
            next = Some(match known.complete_from {
                Some(_) => {
                    let behind = known.epoch.saturating_add(1);
                    (id(tag, behind, 0)?, behind)
                }
                None => (id(tag, known.epoch, known.rows)?, known.epoch),
            });
        }
        if let Some((begin, _)) = next.filter(|(_, open)| *open < end) {
            ranges.push((begin, id(tag, end, 0)?));
        }
        Ok(ranges)
    }
}

/// A condition for documents whose `_id` is in a range.
pub(crate) fn within(builder: &mut Builder, begin: &[u8], end: &[u8]) {
    let binary = |bytes| Value::Binary { subtype: 0, bytes };
    builder
        .open_document("_id")
        .value("$gte", &binary(begin))
        .value("$lt", &binary(end))
        .close();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TAG: Tag = *b"12345678";

    #[test]
    fn ids_are_in_the_order_of_epochs_and_rows() {
        let ids = [(1, 0), (1, 1), (1, 256), (1, MAX_NUMBER), (2, 0), (256, 5)];
        let ids = ids.map(|(epoch, number)| id(TAG, epoch, number).unwrap());
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(id(TAG, 1, MAX_NUMBER + 1).is_err());
        assert_eq!(parts(&ids[3]), (TAG, 1, MAX_NUMBER));
    }

    #[test]
    fn what_no_commit_has_is_between_the_commits() {
        let at = |epoch, number| id(TAG, epoch, number).unwrap();
        let ranges = |epochs: &Epochs, end| epochs.uncommitted(TAG, end).unwrap();
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
        let at = |epoch, number| id(TAG, epoch, number).unwrap();
        let ranges = |epochs: &Epochs, end| epochs.uncommitted(TAG, end).unwrap();
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
        let ranges = epochs.uncommitted(TAG, 41).unwrap();
        assert_eq!(ranges[0].0, id(TAG, 9, 5).unwrap());
        assert_eq!(ranges.len(), MAX_EPOCHS);
        assert!(epochs.has(3, 100) && epochs.has(40, 4) && !epochs.has(40, 5));
        assert!(!epochs.has(41, 0));
    }
}

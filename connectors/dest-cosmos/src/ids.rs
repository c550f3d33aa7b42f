//! The ids of rows that bring none: 36 hexadecimal digits that say which commit the row belongs to.
//!
//! 16 digits of the stream's tag, a random number that its checkpoint keeps; 8 digits of the epoch of the run; 12 digits
//! of the row's number in the epoch. So the rows of a run are one range of strings. A row of an attempt that failed has
//! an epoch, or a number, that no commit has: the next run finds these rows and deletes them.

use rapidbyte_sdk::{Error, Result};
use serde::{Deserialize, Serialize};

/// Digits of a tag.
pub(crate) const TAG_DIGITS: usize = 16;
/// Digits of a tag and an epoch.
const EPOCH_DIGITS: usize = TAG_DIGITS + 8;
/// Digits of an id.
pub(crate) const ID_DIGITS: usize = EPOCH_DIGITS + 12;
/// Rows of a run that get an id.
const MAX_NUMBER: u64 = (1 << 48) - 1;
/// Epochs whose rows are known. A run that ended badly so many runs ago sends nothing any more.
const MAX_EPOCHS: usize = 32;

/// A new tag: the random part of a stream's ids.
pub(crate) fn tag() -> Result<String> {
    let mut tag = [0; TAG_DIGITS / 2];
    getrandom::fill(&mut tag)
        .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
    Ok(tag.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The beginning of the ids of an epoch.
pub(crate) fn mark(tag: &str, epoch: u32) -> String {
    format!("{tag}{epoch:08x}")
}

/// The id of a row.
pub(crate) fn id(tag: &str, epoch: u32, number: u64) -> Result<String> {
    match number > MAX_NUMBER {
        true => Err(Error::internal("more rows in a run than 48 bits count")),
        false => Ok(format!("{}{number:012x}", mark(tag, epoch))),
    }
}

/// The tag, the epoch and the number of an id that has this form.
pub(crate) fn parts(id: &str) -> Option<(&str, u32, u64)> {
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|c| c.is_ascii_hexdigit());
    let epoch = u32::from_str_radix(id.get(TAG_DIGITS..EPOCH_DIGITS)?, 16).ok()?;
    let number = u64::from_str_radix(id.get(EPOCH_DIGITS..)?, 16).ok()?;
    is_id.then(|| (&id[..TAG_DIGITS], epoch, number))
}

/// The rows that an epoch has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Committed {
    pub epoch: u32,
    pub rows: u64,
}

/// The epochs of a stream that have committed rows, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Epochs {
    pub known: Vec<Committed>,
    /// Older ones were forgotten.
    pub is_cut: bool,
}

impl Epochs {
    /// The same, where `epoch` has committed this many rows.
    pub fn with(&self, epoch: u32, rows: u64) -> Self {
        let mut epochs = self.clone();
        epochs.known.retain(|known| known.epoch != epoch);
        if rows > 0 {
            epochs.known.push(Committed { epoch, rows });
        }
        while epochs.known.len() > MAX_EPOCHS {
            epochs.known.remove(0);
            epochs.is_cut = true;
        }
        epochs
    }

    /// Whether a commit has this row.
    pub fn has(&self, epoch: u32, number: u64) -> bool {
        let found = self.known.iter().find(|known| known.epoch == epoch);
        match found {
            Some(known) => number < known.rows,
            // Of a forgotten epoch.
            None => self.is_cut && self.known.first().is_some_and(|first| epoch < first.epoch),
        }
    }

    /// The ranges of ids below the epoch `end` that no commit has: from the first, up to the second, which is outside.
    pub fn uncommitted(&self, tag: &str, end: u32) -> Result<Vec<(String, String)>> {
        let mut ranges = Vec::new();
        // Where the next range begins.
        let mut begin = match self.is_cut {
            false => Some(id(tag, 0, 0)?),
            true => None,
        };
        for known in &self.known {
            if let Some(begin) = begin {
                ranges.push((begin, id(tag, known.epoch, 0)?));
            }
            begin = Some(id(tag, known.epoch, known.rows)?);
        }
        if let Some(begin) = begin {
            ranges.push((begin, id(tag, end, 0)?));
        }
        ranges.retain(|(begin, end)| begin < end);
        Ok(ranges)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TAG: &str = "0123456789abcdef";

    #[test]
    fn ids_are_in_the_order_of_epochs_and_rows() {
        let ids = [(1, 0), (1, 1), (1, 256), (1, MAX_NUMBER), (2, 0), (256, 5)];
        let ids = ids.map(|(epoch, number)| id(TAG, epoch, number).unwrap());
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(id(TAG, 1, MAX_NUMBER + 1).is_err());
        assert_eq!(parts(&ids[3]), Some((TAG, 1, MAX_NUMBER)));
        for other in ["", "x", &"g".repeat(ID_DIGITS), &"é".repeat(ID_DIGITS / 2)] {
            assert_eq!(parts(other), None);
        }
        assert_eq!(tag().unwrap().len(), TAG_DIGITS);
    }

    #[test]
    fn what_no_commit_has_is_between_the_commits() {
        let at = |epoch, number| id(TAG, epoch, number).unwrap();
        let ranges = |epochs: &Epochs, end| epochs.uncommitted(TAG, end).unwrap();
        let none = Epochs::default();
        assert_eq!(ranges(&none, 3), [(at(0, 0), at(3, 0))]);
        let some = none.with(2, 10).with(4, 7);
        let expected = [
            (at(0, 0), at(2, 0)),
            (at(2, 10), at(4, 0)),
            (at(4, 7), at(5, 0)),
        ];
        assert_eq!(ranges(&some, 5), expected);
        // A later commit of the same epoch.
        let more = some.with(4, 9);
        assert_eq!(ranges(&more, 5)[2], (at(4, 9), at(5, 0)));
        assert_eq!(none.with(1, 0), none);
    }

    #[test]
    fn rows_of_forgotten_epochs_are_never_taken_for_uncommitted() {
        let mut epochs = Epochs::default();
        for epoch in 1..=40 {
            epochs = epochs.with(epoch, 5);
        }
        assert_eq!(epochs.known.len(), MAX_EPOCHS);
        let ranges = epochs.uncommitted(TAG, 41).unwrap();
        assert_eq!(ranges[0].0, id(TAG, 9, 5).unwrap());
        assert_eq!(ranges.len(), MAX_EPOCHS);
        assert!(epochs.has(3, 100) && epochs.has(40, 4) && !epochs.has(40, 5));
        assert!(!epochs.has(41, 0));
    }
}

//! Checks a read's cursors without knowing their meaning.
//!
//! A cursor is a JSON document that only its source reads, so the host cannot compare two cursors.
//! The host rejects a cursor of a read without checkpoints, a cursor that is not JSON, and a cursor
//! that is too long for some destination. It also rejects a cursor that returns after another one:
//! the rows between the two would be delivered twice.

use std::collections::HashSet;

/// Bytes of one cursor. It is kept in a row of the destination and of the local history.
const MAX_CURSOR_BYTES: usize = 1 << 20;
/// Cursors of one read that are remembered. Later ones are compared with these.
const MAX_REMEMBERED: usize = 65_536;

/// Whether every destination can keep it.
///
/// # Errors
/// The problem, in words.
pub(crate) fn check_length(cursor: &str) -> Result<(), String> {
    let len = cursor.len();
    match len > MAX_CURSOR_BYTES {
        true => Err(format!("a cursor of {len} bytes, above {MAX_CURSOR_BYTES}")),
        false => Ok(()),
    }
}

/// The cursors of one read.
pub(crate) struct Cursors {
    /// It is a read with checkpoints.
    due: bool,
    last: Option<[u8; 32]>,
    seen: HashSet<[u8; 32]>,
}

impl Cursors {
    pub fn of(due: bool) -> Self {
        Self {
            due,
            last: None,
            seen: HashSet::new(),
        }
    }

    /// Takes the next one.
    ///
    /// # Errors
    /// The problem, in words.
    pub fn take(&mut self, cursor: &str) -> Result<(), String> {
        if !self.due {
            return Err("a checkpoint in a read without checkpoints".into());
        }
        check_length(cursor)?;
        if let Err(error) = serde_json::from_str::<serde_json::Value>(cursor) {
            return Err(format!("a cursor that is not JSON: {error}"));
        }
        let hash = *blake3::hash(cursor.as_bytes()).as_bytes();
        if self.last == Some(hash) {
            return Ok(());
        }
        if self.seen.contains(&hash) {
            return Err("a cursor that an earlier checkpoint of this read already had".into());
        }
        if self.seen.len() < MAX_REMEMBERED {
            self.seen.insert(hash);
        }
        self.last = Some(hash);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_moves_on_or_stays() {
        let mut cursors = Cursors::of(true);
        for cursor in ["1", "1", "2", "\"a\"", "{}"] {
            cursors.take(cursor).unwrap();
        }
        assert!(cursors.take("2").unwrap_err().contains("already had"));
        assert!(cursors.take("{").unwrap_err().contains("not JSON"));
        let long = format!("\"{}\"", "x".repeat(MAX_CURSOR_BYTES));
        assert!(cursors.take(&long).unwrap_err().contains("1048578 bytes"));
        assert!(Cursors::of(false).take("1").is_err());
    }

    #[test]
    fn the_number_of_remembered_cursors_is_bounded() {
        let mut cursors = Cursors::of(true);
        for n in 0..MAX_REMEMBERED + 10 {
            cursors.take(&n.to_string()).unwrap();
        }
        assert_eq!(cursors.seen.len(), MAX_REMEMBERED);
        assert!(cursors.take("7").is_err());
    }
}

//! Places in a file, for the errors of records.

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The line, from 1.
    pub line: u64,
    /// Characters before the place in its line.
    pub before: u64,
}

impl Place {
    /// The beginning of a file.
    pub(crate) const BEGIN: Self = Self { line: 1, before: 0 };

    /// The place behind `text`, which begins here. Counts each character once, and bytes that are not UTF-8 as
    /// characters.
    pub(crate) fn after(self, text: &[u8]) -> Self {
        let (breaks, last) = match memchr::memrchr(b'\n', text) {
            None => (0, text),
            Some(at) => {
                let before = memchr::memchr_iter(b'\n', &text[..at]).count();
                (before as u64 + 1, &text[at + 1..])
            }
        };
        let characters = last.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64;
        Self {
            line: self.line + breaks,
            before: match breaks {
                0 => self.before + characters,
                _ => characters,
            },
        }
    }

    /// The place of `part`, which is a part of `text`, which begins here.
    pub(crate) fn of_part(self, text: &str, part: &str) -> Self {
        let offset = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
        let before = offset.and_then(|offset| text.as_bytes().get(..offset));
        before.map_or(self, |before| self.after(before))
    }

    /// The number of the character here, from 1.
    pub(crate) fn character(self) -> u64 {
        self.before + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_are_counted_across_pieces() {
        let text = "ab\né😀\n\n xyz".as_bytes();
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            let place = Place::BEGIN.after(first).after(second);
            assert_eq!((place.line, place.character()), (4, 5), "{cut}");
        }
        let text = "{\"a\":1,\n \"b\":\"é\"}";
        let place = Place { line: 3, before: 2 };
        assert_eq!(place.of_part(text, &text[5..6]).before, 7);
        let value = place.of_part(text, &text[13..]);
        assert_eq!((value.line, value.before), (4, 5));
    }
}

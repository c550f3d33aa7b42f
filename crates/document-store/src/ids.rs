//! The ids of rows that bring none. An id says which commit the row belongs to.
//!
//! An id has 18 bytes: eight of the stream's tag, a random number that its checkpoint keeps; four of the epoch of the
//! run; six of the row's number in the epoch. All are big endian, so that the rows of a run are one range. A store whose
//! ids are strings writes the bytes as hexadecimal digits, which have the same order. A row of an attempt that failed has
//! an epoch, or a number, that no commit has: the next run finds these rows and deletes them.

use std::fmt;

use rapidbyte_sdk::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hex;

/// Bytes of a tag.
const TAG_BYTES: usize = 8;
/// Bytes of an id.
pub const ID_BYTES: usize = 18;
/// The largest number of a row: 48 bits.
pub(crate) const MAX_NUMBER: u64 = (1 << 48) - 1;

/// The random part of a stream's ids. As a string, 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag([u8; TAG_BYTES]);

impl Tag {
    /// A new tag. Errors: `internal` if the system does not give random numbers.
    pub fn random() -> Result<Self> {
        let mut tag = [0; TAG_BYTES];
        getrandom::fill(&mut tag).map_err(|error| {
            Error::internal(format!("the system does not give random numbers: {error}"))
        })?;
        Ok(Self(tag))
    }

    /// The tag with these bytes. `None` if they are not eight.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The tag with these digits. `None` if they are not 16 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::from_bytes(&hex::decode(text)?)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; TAG_BYTES] {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let tag = Self::from_hex(&text);
        tag.ok_or_else(|| serde::de::Error::custom("a tag has 16 hexadecimal digits"))
    }
}

/// The id of a row or a reject. As a string, 36 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId {
    /// Of the stream, or of a replay.
    pub tag: Tag,
    /// Of the run; 0 in a replay.
    pub epoch: u32,
    /// Of the row in the epoch, from 0.
    pub number: u64,
}

/// Ids from the first up to the second, which is outside.
pub type IdRange = (RowId, RowId);

impl RowId {
    /// Errors: `internal` for a number of more than 48 bits.
    pub fn new(tag: Tag, epoch: u32, number: u64) -> Result<Self> {
        match number > MAX_NUMBER {
            true => Err(Error::internal("more rows in a run than 48 bits count")),
            false => Ok(Self { tag, epoch, number }),
        }
    }

    /// Before every id of the epoch.
    pub fn first(tag: Tag, epoch: u32) -> Self {
        Self {
            tag,
            epoch,
            number: 0,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id[..TAG_BYTES].copy_from_slice(&self.tag.0);
        id[TAG_BYTES..12].copy_from_slice(&self.epoch.to_be_bytes());
        id[12..].copy_from_slice(&self.number.to_be_bytes()[2..]);
        id
    }

    /// The id with these bytes. `None` if they are not 18.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first_chunk::<TAG_BYTES>()?;
        let (epoch, number) = rest.split_first_chunk::<4>()?;
        let [a, b, c, d, e, f] = *number else {
            return None;
        };
        Some(Self {
            tag: Tag(*tag),
            epoch: u32::from_be_bytes(*epoch),
            number: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        })
    }

    /// The id with these digits. `None` if they are not 36 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::from_bytes(&hex::decode(text)?)
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.bytes()))
    }
}

/// The digits that start the ids of an epoch.
pub fn epoch_prefix(tag: Tag, epoch: u32) -> String {
    format!("{tag}{epoch:08x}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TAG: Tag = Tag(*b"12345678");

    #[test]
    fn ids_are_in_the_order_of_epochs_and_rows() {
        let ids = [(1, 0), (1, 1), (1, 256), (1, MAX_NUMBER), (2, 0), (256, 5)];
        let ids = ids.map(|(epoch, number)| RowId::new(TAG, epoch, number).unwrap());
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.is_sorted_by(|a, b| a.bytes() < b.bytes()));
        assert!(ids.is_sorted_by(|a, b| a.to_string() < b.to_string()));
        assert!(RowId::new(TAG, 1, MAX_NUMBER + 1).is_err());
        assert_eq!(RowId::from_bytes(&ids[3].bytes()), Some(ids[3]));
        assert_eq!(RowId::from_hex(&ids[3].to_string()), Some(ids[3]));
        for other in ["", "x", &"g".repeat(36), &"é".repeat(18), &"0".repeat(35)] {
            assert_eq!(RowId::from_hex(other), None);
        }
        assert_eq!(
            RowId::new(TAG, 10, 11).unwrap().to_string(),
            "31323334353637380000000a00000000000b"
        );
        assert_eq!(epoch_prefix(TAG, 10), "31323334353637380000000a");
    }

    #[test]
    fn a_tag_is_a_string_of_digits_in_json() {
        let text = serde_json::to_string(&TAG).unwrap();
        assert_eq!(text, "\"3132333435363738\"");
        assert_eq!(serde_json::from_str::<Tag>(&text).unwrap(), TAG);
        for other in ["\"\"", "\"31323334353637\"", "\"313233343536373x\"", "7"] {
            assert!(serde_json::from_str::<Tag>(other).is_err(), "{other}");
        }
        assert_ne!(Tag::random().unwrap(), Tag::random().unwrap());
    }
}

//! Keyed hashes, which the host computes (`wit/digest`): in the sandbox they take several times as long.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;

/// HMAC-SHA-256 (RFC 2104) with one key.
///
/// ```
/// let keyed = rapidbyte_sdk::digest::HmacSha256::new(b"a secret of the operator");
/// let digests = keyed.digests([&b"one"[..], b"two"].into_iter());
/// assert_eq!(digests.len(), 2 * rapidbyte_sdk::digest::DIGEST_BYTES);
/// ```
pub struct HmacSha256 {
    #[cfg_attr(
        not(target_family = "wasm"),
        expect(dead_code, reason = "the host has it")
    )]
    key: Vec<u8>,
    keyed: Hmac<Sha256>,
}

impl HmacSha256 {
    /// With a key of any length.
    pub fn new(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            // HMAC takes keys of any length.
            keyed: Hmac::new_from_slice(key)
                .unwrap_or_else(|_| unreachable!("a key of any length")),
        }
    }

    /// The digests of all values, one after the other.
    pub fn digests<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut all = Vec::with_capacity(values.size_hint().0 * DIGEST_BYTES);
        let mut piece = Piece::default();
        for value in values {
            if value.len() > Piece::MAX_BYTES {
                piece.hash(self, &mut all);
                all.extend(self.digest(value));
                continue;
            }
            if !piece.holds(value) {
                piece.hash(self, &mut all);
            }
            piece.push(value);
        }
        piece.hash(self, &mut all);
        all
    }

    fn digest(&self, value: &[u8]) -> [u8; DIGEST_BYTES] {
        let mut keyed = self.keyed.clone();
        keyed.update(value);
        keyed.finalize().into_bytes().into()
    }
}

/// Values of one call of the host.
#[derive(Default)]
struct Piece {
    data: Vec<u8>,
    ends: Vec<u32>,
}

impl Piece {
    /// The host's limits.
    const MAX_VALUES: usize = 1 << 16;
    const MAX_BYTES: usize = 4 << 20;

    fn holds(&self, value: &[u8]) -> bool {
        self.ends.len() < Self::MAX_VALUES && self.data.len() + value.len() <= Self::MAX_BYTES
    }

    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        // At most MAX_BYTES.
        self.ends.push(self.data.len() as u32);
    }

    /// Adds the digests of the values, and takes the values out.
    fn hash(&mut self, keyed: &HmacSha256, all: &mut Vec<u8>) {
        #[cfg(target_family = "wasm")]
        all.extend(crate::bindings::digest::hmac_sha256(
            &keyed.key, &self.data, &self.ends,
        ));
        #[cfg(not(target_family = "wasm"))]
        {
            let mut start = 0;
            for end in &self.ends {
                all.extend(keyed.digest(&self.data[start..*end as usize]));
                start = *end as usize;
            }
        }
        self.data.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_do_not_depend_on_the_pieces() {
        let keyed = HmacSha256::new(b"key");
        let large = vec![b'x'; Piece::MAX_BYTES + 1];
        let half = &large[..Piece::MAX_BYTES / 2 + 1];
        let mut values: Vec<&[u8]> = vec![b"", b"a", &large, half, half, b"b"];
        values.extend(std::iter::repeat_n(&b"c"[..], Piece::MAX_VALUES + 3));
        let digests = keyed.digests(values.iter().copied());
        let each = values.iter().flat_map(|value| keyed.digest(value));
        assert!(digests.iter().copied().eq(each));
    }
}

//! `digest`: hashes for bundled connectors.

use ring::hmac::{HMAC_SHA256, Key, sign};

use crate::bindings::digest::Host;
use crate::state::State;

/// Of one call, as the interface says.
const MAX_VALUES: usize = 1 << 16;
const MAX_BYTES: usize = 4 << 20;

impl Host for State {
    fn hmac_sha256(
        &mut self,
        key: Vec<u8>,
        data: Vec<u8>,
        ends: Vec<u32>,
    ) -> wasmtime::Result<Vec<u8>> {
        digests(&key, &data, &ends).map_err(wasmtime::Error::msg)
    }
}

fn digests(key: &[u8], data: &[u8], ends: &[u32]) -> Result<Vec<u8>, &'static str> {
    if ends.len() > MAX_VALUES || data.len() > MAX_BYTES || key.len() > MAX_BYTES {
        return Err("hmac-sha256 takes fewer values a call");
    }
    let key = Key::new(HMAC_SHA256, key);
    let mut digests = Vec::with_capacity(ends.len() * 32);
    let mut start = 0;
    for end in ends {
        let end = *end as usize;
        let value = data
            .get(start..end)
            .ok_or("hmac-sha256 takes ends that rise")?;
        digests.extend_from_slice(sign(&key, value).as_ref());
        start = end;
    }
    match start == data.len() {
        true => Ok(digests),
        false => Err("hmac-sha256 takes ends up to the end of the data"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 1 and 2 of RFC 4231.
    #[test]
    fn digests_are_those_of_the_standard() {
        let hex =
            |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let first = digests(&[0x0b; 20], b"Hi There", &[8]).expect("a digest");
        assert_eq!(
            hex(&first),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        let twice = digests(b"Jefe", b"what do ya want for nothing?", &[28, 28]).expect("digests");
        assert_eq!(
            hex(&twice[..32]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(twice[32..], digests(b"Jefe", b"", &[0]).expect("a digest"));
    }

    #[test]
    fn values_that_are_not_in_the_data_are_refused() {
        for (data, ends) in [
            (&b"abc"[..], &[2, 1, 3][..]),
            (b"abc", &[4]),
            (b"abc", &[2]),
            (b"abc", &[]),
        ] {
            assert!(digests(b"key", data, ends).is_err(), "{ends:?}");
        }
        assert!(digests(b"key", b"", &vec![0; MAX_VALUES + 1]).is_err());
        assert!(digests(b"key", &vec![0; MAX_BYTES + 1], &[1]).is_err());
        assert!(digests(b"key", b"", &vec![0; MAX_VALUES]).is_ok());
    }
}

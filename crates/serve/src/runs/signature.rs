//! The header `Rapidbyte-Signature`: a receiver that has the secret knows who sent a message, and when.

use ring::hmac::{HMAC_SHA256, Key, sign};

/// `t=SECONDS,v1=HEX`: the HMAC-SHA-256 of `SECONDS.BODY`, where SECONDS is the time of the attempt since 1970-01-01 UTC.
pub(super) fn signature(secret: &str, seconds: i64, body: &str) -> String {
    let key = Key::new(HMAC_SHA256, secret.as_bytes());
    let tag = sign(&key, format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex(tag.as_ref()))
}

/// Two digits for each byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef` gives this value.
    #[test]
    fn a_signature_is_the_one_of_openssl() {
        assert_eq!(
            signature("0123456789abcdef", 1_700_000_000, "{\"a\":1}"),
            "t=1700000000,v1=9eb18f493f8ec135d9eb2dad817c369bb4e9cbfa818657897a7437c1cd8c3a23"
        );
    }
}

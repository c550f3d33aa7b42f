//! Bytes as hexadecimal digits, and UUIDs.

use super::Reason;
use crate::json::LARGE_BYTES;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Reads `\x` and two hexadecimal digits for each byte, appending the bytes to `out`; on an error
/// `out` is as it was.
pub fn parse_binary(text: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let Some(digits) = text.strip_prefix(b"\\x") else {
        return Err("does not start with \\x, as binary values do");
    };
    if digits.len() % 2 != 0 {
        return Err("has an odd number of hexadecimal digits");
    }
    let before = out.len();
    out.reserve(digits.len() / 2);
    for pair in digits.chunks_exact(2) {
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
            out.truncate(before);
            return Err("has a character that is not a hexadecimal digit");
        };
        out.push(high << 4 | low);
    }
    Ok(())
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Writes `\x` and two lower-case hexadecimal digits for each byte.
pub fn write_binary(bytes: &[u8], out: &mut Vec<u8>) {
    let room = 2 + 2 * bytes.len();
    match bytes.len() > LARGE_BYTES {
        // A vector would make twice as much.
        true => out.reserve_exact(room + 64),
        false => out.reserve(room),
    }
    out.extend_from_slice(b"\\x");
    write_hex(bytes, out);
}

/// Reads a UUID, with hyphens at their four places or with none.
pub fn parse_uuid(text: &[u8]) -> Result<[u8; 16], Reason> {
    const NOT_A_UUID: Reason = "is not a UUID";
    let hyphens = [8, 13, 18, 23];
    let hyphenated = match text.len() {
        36 => hyphens.iter().all(|at| text[*at] == b'-'),
        32 => false,
        _ => return Err(NOT_A_UUID),
    };
    let mut digits = text
        .iter()
        .enumerate()
        .filter(|(at, _)| !(hyphenated && hyphens.contains(at)))
        .map(|(_, byte)| digit(*byte).ok_or(NOT_A_UUID));
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        let mut next = || digits.next().unwrap_or(Err(NOT_A_UUID));
        *byte = next()? << 4 | next()?;
    }
    match digits.next() {
        None => Ok(uuid),
        Some(_) => Err(NOT_A_UUID),
    }
}

/// Writes a UUID in lower case with hyphens. `uuid` is 16 bytes, big-endian.
pub fn write_uuid(uuid: &[u8; 16], out: &mut Vec<u8>) {
    for (part, range) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
        if part > 0 {
            out.push(b'-');
        }
        write_hex(&uuid[range], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_comes_back_or_says_why() {
        let mut out = Vec::new();
        write_binary(&[0, 0xff, 0x1a], &mut out);
        assert_eq!(out, b"\\x00ff1a");
        let mut bytes = vec![7];
        parse_binary(b"\\x00FF1a", &mut bytes).unwrap();
        assert_eq!(bytes, [7, 0, 0xff, 0x1a]);
        for text in [&b"00ff"[..], b"\\x0", b"\\x0g", b"\\x00gg", b""] {
            assert!(parse_binary(text, &mut bytes).is_err(), "{text:?}");
            assert_eq!(bytes, [7, 0, 0xff, 0x1a]);
        }
    }

    #[test]
    fn uuids_come_back_or_are_refused() {
        let uuid = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
        let mut out = Vec::new();
        write_uuid(&uuid, &mut out);
        assert_eq!(out, b"00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(parse_uuid(&out), Ok(uuid));
        assert_eq!(parse_uuid(b"00112233445566778899AABBCCDDEEFF"), Ok(uuid));
        for text in [
            &b""[..],
            b"00112233-4455-6677-8899-aabbccddeef",
            b"0011223-34455-6677-8899-aabbccddeeff",
            b"00112233-4455-6677-8899-aabbccddeefg",
            b"0011223344556677889-aabbccddeeff000a",
        ] {
            assert!(parse_uuid(text).is_err(), "{text:?}");
        }
    }
}

//! Bytes as hexadecimal digits, lower case.

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// The digits of these bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of these digits, in either case. `None`: a character is not a digit, or one digit is missing.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn digits_become_the_same_bytes() {
        assert_eq!(encode(&[0, 0x1f, 255]), "001fff");
        assert_eq!(decode("001fFF"), Some(vec![0, 0x1f, 255]));
        assert_eq!(decode(""), Some(Vec::new()));
        for other in ["0", "0g", "+1", "é0", "00 "] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}

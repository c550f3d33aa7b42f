//! Whole numbers and floats.

use super::Reason;

const NOT_WHOLE: Reason = "is not a whole number";
const OUT_OF_RANGE: Reason = "is out of range";
const NOT_A_NUMBER: Reason = "is not a number";

/// True for what looks like a number with a decimal comma or with separators of thousands.
pub(crate) fn has_comma(text: &[u8]) -> bool {
    let of_numbers = |byte: &u8| byte.is_ascii_digit() || b"+-,. \'".contains(byte);
    text.contains(&b',') && text.iter().any(u8::is_ascii_digit) && text.iter().all(of_numbers)
}

/// The sign and size of a whole number.
fn parse_magnitude(text: &[u8]) -> Result<(bool, u64), Reason> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(NOT_WHOLE);
    }
    let mut value = 0_u64;
    // 19 digits fit u64, whatever they are.
    let (safe, rest) = digits.split_at(digits.len().min(19));
    for byte in safe {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NOT_WHOLE);
        }
        value = value * 10 + u64::from(digit);
    }
    let mut fits = true;
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NOT_WHOLE);
        }
        match value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit)))
        {
            Some(next) => value = next,
            None => fits = false,
        }
    }
    if fits {
        Ok((negative, value))
    } else {
        Err(OUT_OF_RANGE)
    }
}

/// Reads a signed whole number, for example `-12`.
pub fn parse_i64(text: &[u8]) -> Result<i64, Reason> {
    let (negative, size) = parse_magnitude(text)?;
    if negative {
        0_i64.checked_sub_unsigned(size).ok_or(OUT_OF_RANGE)
    } else {
        i64::try_from(size).map_err(|_| OUT_OF_RANGE)
    }
}

/// Reads an unsigned whole number.
pub fn parse_u64(text: &[u8]) -> Result<u64, Reason> {
    match parse_magnitude(text)? {
        (true, size) if size > 0 => Err(OUT_OF_RANGE),
        (_, size) => Ok(size),
    }
}

/// Reads a whole number into a narrower signed type.
pub fn parse_signed<T: TryFrom<i64>>(text: &[u8]) -> Result<T, Reason> {
    T::try_from(parse_i64(text)?).map_err(|_| OUT_OF_RANGE)
}

/// Reads a whole number into a narrower unsigned type.
pub fn parse_unsigned<T: TryFrom<u64>>(text: &[u8]) -> Result<T, Reason> {
    T::try_from(parse_u64(text)?).map_err(|_| OUT_OF_RANGE)
}

/// Writes a whole number of any width.
pub fn write_int(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// A float of this module: `f32` or `f64`.
pub trait Float: Copy + PartialEq + std::str::FromStr + zmij::Float {
    /// Not a number.
    const NAN: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// Zero.
    const ZERO: Self;
    /// True for what is neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

macro_rules! float {
    ($t:ty) => {
        impl Float for $t {
            const NAN: Self = <$t>::NAN;
            const INFINITY: Self = <$t>::INFINITY;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            const ZERO: Self = 0.0;
            fn is_finite(self) -> bool {
                <$t>::is_finite(self)
            }
        }
    };
}
float!(f32);
float!(f64);

/// Reads a float: the one nearest to the text. A finite text beyond the largest float, or one
/// that only zero is nearest to, is out of range.
pub fn parse_float<T: Float>(text: &[u8]) -> Result<T, Reason> {
    match text {
        b"NaN" => return Ok(T::NAN),
        b"Infinity" => return Ok(T::INFINITY),
        b"-Infinity" => return Ok(T::NEG_INFINITY),
        _ => {}
    }
    let plain = |b: &u8| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let text = std::str::from_utf8(text).map_err(|_| NOT_A_NUMBER)?;
    if !text.as_bytes().iter().all(plain) {
        return Err(NOT_A_NUMBER);
    }
    let value: T = text.parse().map_err(|_| NOT_A_NUMBER)?;
    let vanished = value == T::ZERO
        && text
            .bytes()
            .take_while(|b| !matches!(b, b'e' | b'E'))
            .any(|b| (b'1'..=b'9').contains(&b));
    if value.is_finite() && !vanished {
        Ok(value)
    } else {
        Err(OUT_OF_RANGE)
    }
}

/// Writes the shortest text that reads back as the same float.
pub fn write_float<T: Float>(value: T, out: &mut Vec<u8>) {
    let text: &[u8] = if value.is_finite() {
        return out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    } else if value == T::INFINITY {
        b"Infinity"
    } else if value == T::NEG_INFINITY {
        b"-Infinity"
    } else {
        b"NaN"
    };
    out.extend_from_slice(text);
}

/// The same, and whole values without `.0` if `bare`.
pub fn write_float_as(value: f64, bare: bool, out: &mut Vec<u8>) {
    write_float(value, out);
    if bare && out.ends_with(b".0") {
        out.truncate(out.len() - 2);
    }
}

/// True for a number that is -0.
pub(crate) fn is_negative_zero(text: &[u8]) -> bool {
    let mut digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    text.first() == Some(&b'-') && !digits.any(|byte| (b'1'..=b'9').contains(byte))
}

/// True if reading `text` as `float64` and writing it again gives the same number: no digit of it
/// is lost. `text` is a decimal number, an exponent allowed.
pub fn float_keeps_digits(text: &[u8]) -> bool {
    keeps_digits::<f64>(text)
}

/// The same for `float32`. A whole number is the same only if it is exactly the value: people count with all of its digits.
pub fn float32_keeps_digits(text: &[u8]) -> bool {
    let is_whole = !text.iter().any(|byte| b".eE".contains(byte));
    match parse_float::<f32>(text) {
        Ok(value) if is_whole && value.is_finite() => {
            // All digits of the value, without an exponent.
            super::decimal::same_number(text, f64::from(value).to_string().as_bytes())
        }
        _ => keeps_digits::<f32>(text),
    }
}

fn keeps_digits<T: Float>(text: &[u8]) -> bool {
    let Ok(value) = parse_float::<T>(text) else {
        return false;
    };
    if !value.is_finite() {
        return true;
    }
    let mut written = Vec::with_capacity(24);
    write_float(value, &mut written);
    super::decimal::same_number(text, &written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        write_float(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_float32_keeps_whole_numbers_that_it_holds() {
        for (text, is_kept) in [
            ("16777216", true),
            ("16777217", false),
            ("123456790", false),
            ("123456792", true),
            ("1.2345679e8", true),
            ("123456790.0", true),
            ("1000000000000000", false),
            ("-0", true),
            ("0.1", true),
            ("0.123456789", false),
        ] {
            assert_eq!(float32_keeps_digits(text.as_bytes()), is_kept, "{text}");
        }
    }

    #[test]
    fn whole_numbers_end_at_their_limits() {
        assert_eq!(parse_i64(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), Err(OUT_OF_RANGE));
        assert_eq!(parse_u64(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), Err(OUT_OF_RANGE));
        assert_eq!(parse_u64(b"-1"), Err(OUT_OF_RANGE));
        assert_eq!(parse_signed::<i8>(b"-128"), Ok(-128));
        assert_eq!(parse_signed::<i8>(b"128"), Err(OUT_OF_RANGE));
        assert_eq!(parse_unsigned::<u8>(b"256"), Err(OUT_OF_RANGE));
        assert_eq!(parse_i64(b"00000000000000000000000007"), Ok(7));
        for text in [
            &b""[..],
            b"-",
            b"+",
            b"1.0",
            b"1e3",
            b" 1",
            b"12345678901234567890x",
        ] {
            assert_eq!(parse_i64(text), Err(NOT_WHOLE), "{text:?}");
        }
    }

    #[test]
    fn floats_are_written_shortest_and_read_back() {
        for (value, text) in [
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float(value), text);
        }
        for value in [f64::MAX, f64::MIN_POSITIVE, 5e-324, -1.5e300, 1e15] {
            assert_eq!(parse_float::<f64>(float(value).as_bytes()), Ok(value));
        }
        assert_eq!(parse_float::<f64>(b"1e999"), Err(OUT_OF_RANGE));
        assert_eq!(parse_float::<f64>(b"1e-999"), Err(OUT_OF_RANGE));
        assert_eq!(parse_float::<f64>(b"0e-999"), Ok(0.0));
        assert_eq!(parse_float::<f32>(b"1e39"), Err(OUT_OF_RANGE));
        for text in [
            &b"inf"[..],
            b"nan",
            b"",
            b"-",
            b"1,5",
            b"0x1p3",
            b"infinity",
        ] {
            assert_eq!(parse_float::<f64>(text), Err(NOT_A_NUMBER));
        }
    }

    #[test]
    fn digits_that_a_float_loses_are_seen() {
        for text in [
            &b"12.50"[..],
            b"0.1",
            b"1e5",
            b"9007199254740992",
            b"0.00",
            b"-1.25E-7",
        ] {
            assert!(float_keeps_digits(text), "{text:?}");
        }
        for text in [
            &b"9007199254740993"[..],
            b"0.123456789012345678",
            b"1e999",
            b"abc",
        ] {
            assert!(!float_keeps_digits(text), "{text:?}");
        }
    }
}

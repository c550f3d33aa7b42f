//! Decimals: `decimal(p, s)` is a whole number of p digits, counted in units of 10^-s.

use arrow_buffer::i256;

use super::Reason;

/// The most digits a decimal has.
pub const MAX_DIGITS: usize = 76;
const HALF: i128 = 10_i128.pow(38);
const NOT_A_NUMBER: Reason = "is not a decimal number";
const TOO_LARGE: Reason = "has more digits before the point than the type holds";
const TOO_FINE: Reason = "has more digits after the point than the type holds";

/// A number as it is written: its digits, and the place of its point.
struct Written<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Written<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, Reason> {
        let (negative, rest) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits(rest),
            rest => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(NOT_A_NUMBER);
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', exponent @ ..] => parse_exponent(exponent)?,
            _ => return Err(NOT_A_NUMBER),
        };
        Ok(Self {
            negative,
            whole,
            fraction,
            exponent,
        })
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> + '_ {
        self.whole.iter().chain(self.fraction).map(|b| b - b'0')
    }

    /// How many digits are before the first that is not zero. `None` if all are zeros.
    fn leading_zeros(&self) -> Option<usize> {
        self.digits().position(|d| d != 0)
    }

    /// How many digits the number needs before its point and behind it. `None` if there are more than any type has.
    fn needed(&self) -> Option<(u16, u16)> {
        let Some(first) = self.leading_zeros() else {
            return Some((0, 0));
        };
        let last = self.digits().rev().position(|d| d != 0).unwrap_or(0);
        let end = self.whole.len() + self.fraction.len() - last;
        let point = self.whole.len() as i64 + self.exponent;
        let digits = |digits: i64| u16::try_from(digits.max(0)).ok();
        digits(point - first as i64).zip(digits(end as i64 - point))
    }

    /// The digits of the number in units of 10^-scale, without leading zeros.
    fn scaled(
        &self,
        precision: u8,
        scale: i8,
        out: &mut [u8; MAX_DIGITS],
    ) -> Result<usize, Reason> {
        let Some(zeros) = self.leading_zeros() else {
            return Ok(0);
        };
        // How many of the written digits, zeros added if there are too few, stand before the end.
        let end = self.whole.len() as i64 + self.exponent + i64::from(scale);
        let len = end - zeros as i64;
        if len > i64::from(precision) || len > MAX_DIGITS as i64 {
            return Err(TOO_LARGE);
        }
        let end = usize::try_from(end).unwrap_or(0);
        if self.digits().skip(end).any(|d| d != 0) {
            return Err(TOO_FINE);
        }
        let len = usize::try_from(len).unwrap_or(0);
        let digits = self.digits().skip(zeros).chain(std::iter::repeat(0));
        for (slot, digit) in out.iter_mut().zip(digits.take(len)) {
            *slot = digit;
        }
        Ok(len)
    }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// An exponent, cut to ±2^40. No number has enough digits to come back into range from there.
fn parse_exponent(text: &[u8]) -> Result<i64, Reason> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NOT_A_NUMBER);
    }
    // Above the length of any record, below any overflow.
    const FAR: i64 = 1 << 40;
    let size = digits
        .iter()
        .fold(0_i64, |n, b| (n * 10 + i64::from(b - b'0')).min(FAR));
    Ok(if negative { -size } else { size })
}

fn fold(digits: &[u8]) -> i128 {
    if digits.len() <= 18 {
        return digits
            .iter()
            .fold(0_i64, |n, d| n * 10 + i64::from(*d))
            .into();
    }
    digits.iter().fold(0, |n, d| n * 10 + i128::from(*d))
}

/// How many digits a decimal needs before its point and behind it: `(2, 1)` for `012.50`. `None` for what is not a
/// decimal, and for a number with far more digits than a decimal has.
pub(crate) fn digits(text: &[u8]) -> Option<(u16, u16)> {
    Written::parse(text).ok()?.needed()
}

/// Reads a decimal of at most 38 digits into units of 10^-scale.
pub fn parse_i128(text: &[u8], precision: u8, scale: i8) -> Result<i128, Reason> {
    let written = Written::parse(text)?;
    let mut digits = [0; MAX_DIGITS];
    let len = written.scaled(precision.min(38), scale, &mut digits)?;
    let size = fold(&digits[..len]);
    Ok(if written.negative { -size } else { size })
}

/// Reads a decimal of at most 76 digits into units of 10^-scale.
pub fn parse_i256(text: &[u8], precision: u8, scale: i8) -> Result<i256, Reason> {
    let written = Written::parse(text)?;
    let mut digits = [0; MAX_DIGITS];
    let len = written.scaled(precision, scale, &mut digits)?;
    let (high, low) = digits[..len].split_at(len.saturating_sub(38));
    // Below 10^76, so nothing wraps.
    let size = i256::from_i128(fold(high))
        .wrapping_mul(i256::from_i128(HALF))
        .wrapping_add(i256::from_i128(fold(low)));
    Ok(if written.negative {
        size.wrapping_neg()
    } else {
        size
    })
}

/// Writes a decimal of at most 38 digits.
pub fn write_i128(value: i128, scale: i8, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let mut digits = itoa::Buffer::new();
    place_point(digits.format(value.unsigned_abs()).as_bytes(), scale, out);
}

/// Writes a decimal of at most 76 digits.
pub fn write_i256(value: i256, scale: i8, out: &mut Vec<u8>) -> Result<(), Reason> {
    let too_large = "has more than 76 digits";
    let (high, low) = value
        .checked_div_rem(i256::from_i128(HALF))
        .and_then(|(high, low)| Some((high.to_i128()?, low.to_i128()?)))
        .filter(|(high, _)| high.unsigned_abs() < HALF.unsigned_abs())
        .ok_or(too_large)?;
    if value.is_negative() {
        out.push(b'-');
    }
    let (mut upper, mut lower) = (itoa::Buffer::new(), itoa::Buffer::new());
    let lower = lower.format(low.unsigned_abs()).as_bytes();
    if high == 0 {
        place_point(lower, scale, out);
        return Ok(());
    }
    let mut digits = [b'0'; MAX_DIGITS];
    let upper = upper.format(high.unsigned_abs()).as_bytes();
    digits[..upper.len()].copy_from_slice(upper);
    let len = upper.len() + 38;
    digits[len - lower.len()..len].copy_from_slice(lower);
    place_point(&digits[..len], scale, out);
    Ok(())
}

/// Writes digits with `scale` of them after the point and at least one before it.
fn place_point(digits: &[u8], scale: i8, out: &mut Vec<u8>) {
    let scale = usize::try_from(scale).unwrap_or(0);
    if scale == 0 {
        return out.extend_from_slice(digits);
    }
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(scale));
    out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    out.push(b'.');
    out.resize(out.len() + scale - fraction.len(), b'0');
    out.extend_from_slice(fraction);
}

/// True if two texts are the same decimal number: `1.50` and `15e-1`.
pub(crate) fn same_number(a: &[u8], b: &[u8]) -> bool {
    let (Ok(a), Ok(b)) = (Written::parse(a), Written::parse(b)) else {
        return false;
    };
    let (Some(a_zeros), Some(b_zeros)) = (a.leading_zeros(), b.leading_zeros()) else {
        return a.leading_zeros() == b.leading_zeros();
    };
    let first = |n: &Written<'_>, zeros: usize| n.whole.len() as i64 + n.exponent - zeros as i64;
    fn significant<'a>(n: &'a Written<'_>, zeros: usize) -> impl Iterator<Item = u8> + 'a {
        let ends = n.digits().rev().take_while(|d| *d == 0).count();
        let all = n.whole.len() + n.fraction.len();
        n.digits().take(all - ends).skip(zeros)
    }
    a.negative == b.negative
        && first(&a, a_zeros) == first(&b, b_zeros)
        && significant(&a, a_zeros).eq(significant(&b, b_zeros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: i128, scale: i8) -> String {
        let mut out = Vec::new();
        write_i128(value, scale, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn decimals_are_plain_digits() {
        assert_eq!(written(-5, 2), "-0.05");
        assert_eq!(written(0, 2), "0.00");
        assert_eq!(written(123_456, 4), "12.3456");
        assert_eq!(written(7, 0), "7");
    }

    #[test]
    fn a_decimal_fits_or_says_why() {
        let parse = |text: &str| parse_i128(text.as_bytes(), 5, 2);
        assert_eq!(parse("123.45"), Ok(12_345));
        assert_eq!(parse("-.5"), Ok(-50));
        assert_eq!(parse("7."), Ok(700));
        assert_eq!(parse("0001.5000"), Ok(150));
        assert_eq!(parse("1.5e2"), Ok(15_000));
        assert_eq!(parse("12345e-2"), Ok(12_345));
        assert_eq!(parse("0e99999999999999999999"), Ok(0));
        assert_eq!(parse("1000"), Err(TOO_LARGE));
        assert_eq!(parse("1e99999999999999999999"), Err(TOO_LARGE));
        assert_eq!(parse("1.234"), Err(TOO_FINE));
        assert_eq!(parse("0.001"), Err(TOO_FINE));
        assert_eq!(parse("1e-99999999999999999999"), Err(TOO_FINE));
        for text in ["", "-", ".", "1e", "1e+", "NaN", "1 ", "1.2.3", "e5"] {
            assert_eq!(parse(text), Err(NOT_A_NUMBER), "{text}");
        }
    }

    #[test]
    fn seventy_six_digits_come_back() {
        let nines = "9".repeat(76);
        for (text, scale) in [
            (nines.as_str(), 0),
            (
                "-0.0000000000000000000000000000000000000000000000000000000000000000000000000001",
                76,
            ),
            ("-100000000000000000000000000000000000000.5", 1),
        ] {
            let value = parse_i256(text.as_bytes(), 76, scale).expect(text);
            let mut out = Vec::new();
            write_i256(value, scale, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert_eq!(parse_i256(b"1e76", 76, 0), Err(TOO_LARGE));
        assert!(write_i256(i256::MIN, 0, &mut Vec::new()).is_err());
    }

    #[test]
    fn one_number_has_many_texts() {
        for (a, b) in [
            ("1.50", "15e-1"),
            ("0.0", "0"),
            ("-12", "-1.2e1"),
            ("100", "1e2"),
        ] {
            assert!(same_number(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
        for (a, b) in [("1.5", "1.51"), ("1", "-1"), ("0", "1"), ("10", "1")] {
            assert!(!same_number(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
    }
}

//! PostgreSQL's `numeric` in binary, and decimals.
//!
//! The form (`numeric_send`): digit count, weight, sign, scale, as four i16, then digits to the
//! base 10000; the first digit counts 10000^weight. Zeros at both ends are left out.

use arrow_buffer::i256;

use crate::error::Problem;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;
/// Decimal256 has 76 digits, and a negative scale adds up to 128 zeros.
const MAX_DIGITS: usize = 208;
const MAX_GROUPS: usize = MAX_DIGITS / 4 + 2;
/// Twenty digits and up to three zeros, in groups of four, and the first and last in part.
const U64_GROUPS: usize = 7;
/// The value's length and its four words.
const HEAD_BYTES: usize = 12;

/// A whole number wide enough for a decimal.
pub(crate) trait Wide: Copy + PartialOrd {
    fn from_small(value: i64) -> Self;
    fn mul_add(self, factor: i64, add: i64) -> Option<Self>;
    fn negate(self) -> Self;
    /// 10^exponent, or none where it does not fit.
    fn power(exponent: u32) -> Option<Self>;
}

/// For at most [`SMALL_GROUPS`] digits and [`SMALL_ZEROS`] zeros behind them, which cannot
/// overflow: checked and 128-bit multiplication are slow in WebAssembly.
impl Wide for i64 {
    #[inline]
    fn from_small(value: i64) -> Self {
        value
    }

    #[inline]
    fn mul_add(self, factor: i64, add: i64) -> Option<Self> {
        Some(self.wrapping_mul(factor).wrapping_add(add))
    }

    #[inline]
    fn negate(self) -> Self {
        -self
    }

    fn power(exponent: u32) -> Option<Self> {
        10_i64.checked_pow(exponent)
    }
}

impl Wide for i128 {
    #[inline]
    fn from_small(value: i64) -> Self {
        i128::from(value)
    }

    #[inline]
    fn mul_add(self, factor: i64, add: i64) -> Option<Self> {
        self.checked_mul(i128::from(factor))?
            .checked_add(i128::from(add))
    }

    #[inline]
    fn negate(self) -> Self {
        -self
    }

    #[inline]
    fn power(exponent: u32) -> Option<Self> {
        10_i128.checked_pow(exponent)
    }
}

impl Wide for i256 {
    fn from_small(value: i64) -> Self {
        i256::from_i128(i128::from(value))
    }

    fn mul_add(self, factor: i64, add: i64) -> Option<Self> {
        self.checked_mul(Self::from_small(factor))?
            .checked_add(Self::from_small(add))
    }

    fn negate(self) -> Self {
        self.wrapping_neg()
    }

    fn power(exponent: u32) -> Option<Self> {
        Self::from_small(10).checked_pow(exponent)
    }
}

const SMALL_POWERS: [i64; 5] = [1, 10, 100, 1000, 10_000];

/// Characters of a value that a message shows.
const SHOWN_CHARS: usize = 80;

/// The value as the server writes it, for a message: cut where it is long, none where the bytes are not a value.
pub(crate) fn shown(bytes: &[u8]) -> Option<String> {
    let header: &[u8; 8] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (weight, scale) = (i32::from(word(2).cast_signed()), usize::from(word(6)));
    let sign = match word(4) {
        0 => "",
        NEGATIVE => "-",
        _ => return None,
    };
    // At least one digit before the point, and no more groups than are shown.
    let first = weight.max(0);
    let last = -(i32::try_from(scale.div_ceil(4)).ok()?);
    let group = |power: i32| {
        let index = usize::try_from(weight - power).ok()?;
        let pair: &[u8; 2] = bytes.get(8 + index * 2..)?.first_chunk()?;
        Some(u16::from_be_bytes(*pair))
    };
    let (mut whole, mut fraction) = (String::new(), String::new());
    for power in (last..=first).rev().take(SHOWN_CHARS) {
        let digits = format!("{:04}", group(power).unwrap_or(0));
        match power >= 0 {
            true => whole += &digits,
            false => fraction += &digits,
        }
    }
    fraction.truncate(scale);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let text = format!("{sign}{whole}{point}{fraction}");
    Some(match text.len() > SHOWN_CHARS {
        true => format!("{}…", &text[..SHOWN_CHARS]),
        false => text,
    })
}

/// Decodes a `numeric` into a whole number of units of 10^-scale; `limit` is 10^precision.
///
/// NaN and infinities, digits after the scale and values of `limit` or more are errors.
#[inline]
pub(crate) fn decode<T: Wide>(bytes: &[u8], scale: i32, limit: T) -> Result<T, Problem> {
    let header: &[u8; 8] = bytes.first_chunk().ok_or(Problem::Malformed)?;
    let count = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let weight = i32::from(i16::from_be_bytes([header[2], header[3]]));
    let sign = u16::from_be_bytes([header[4], header[5]]);
    match sign {
        0 | NEGATIVE => {}
        NAN => return Err(Problem::NotANumber),
        INFINITY | NEGATIVE_INFINITY => return Err(Problem::Infinite),
        _ => return Err(Problem::Malformed),
    }
    let digits = &bytes[8..];
    if digits.len() != count * 2 {
        return Err(Problem::Malformed);
    }
    let exponent = weight * 4 + scale;
    let zeros = exponent - (count as i32 - 1) * 4;
    let value = if count <= SMALL_GROUPS && zeros <= SMALL_ZEROS {
        T::from_small(decode_digits::<i64>(digits, exponent)?)
    } else {
        decode_digits::<T>(digits, exponent)?
    };
    if value >= limit {
        return Err(Problem::Precision);
    }
    Ok(if sign == NEGATIVE {
        value.negate()
    } else {
        value
    })
}

/// Four groups of four digits and two zeros have 18 digits, and an i64 holds all of those.
const SMALL_GROUPS: usize = 4;
const SMALL_ZEROS: i32 = 2;

/// Digits to the base 10000; the first digit counts 10^exponent.
#[inline]
fn decode_digits<T: Wide>(digits: &[u8], mut exponent: i32) -> Result<T, Problem> {
    let mut value = T::from_small(0);
    let mut is_zero = true;
    for pair in digits.chunks_exact(2) {
        let digit = i64::from(u16::from_be_bytes([pair[0], pair[1]]));
        if digit > 9999 {
            return Err(Problem::Malformed);
        }
        is_zero &= digit == 0;
        if exponent >= 0 {
            value = value.mul_add(10_000, digit).ok_or(Problem::Precision)?;
        } else {
            let cut = exponent.unsigned_abs();
            let part = SMALL_POWERS.get(cut as usize).copied().unwrap_or(10_000);
            if digit % part != 0 {
                return Err(Problem::Scale);
            }
            let factor = 10_000 / part;
            value = value
                .mul_add(factor, digit / part)
                .ok_or(Problem::Precision)?;
        }
        exponent -= 4;
    }
    let zeros = exponent + 4;
    if zeros > 0 && !is_zero {
        // Zeros that numeric_send left out at the end.
        for _ in 0..zeros / 4 {
            value = value.mul_add(10_000, 0).ok_or(Problem::Precision)?;
        }
        let rest = SMALL_POWERS[(zeros % 4) as usize];
        value = value.mul_add(rest, 0).ok_or(Problem::Precision)?;
    }
    Ok(value)
}

/// Writes length and `numeric` of a value of at most 64 bits; `scale` from 0 to 18.
#[inline]
fn encode_small(negative: bool, value: u64, scale: u32, out: &mut Vec<u8>) {
    let pad = (4 - scale % 4) % 4;
    let groups_after_point = (scale + pad) / 4;
    let mut groups = [0_u16; U64_GROUPS];
    let mut first = groups.len();
    let mut rest = value;
    // The lowest group is short of `pad` digits; the others are whole.
    let part = SMALL_POWERS[(4 - pad) as usize] as u64;
    let mut push = |group: u64| {
        first -= 1;
        groups[first] = group as u16;
    };
    push((rest % part) * SMALL_POWERS[pad as usize] as u64);
    rest /= part;
    while rest > 0 {
        push(rest % 10_000);
        rest /= 10_000;
    }
    let weight = (groups.len() - first) as i32 - 1 - groups_after_point as i32;
    const BYTES: usize = HEAD_BYTES + 2 * U64_GROUPS;
    finish::<BYTES>(negative, &groups[first..], weight, scale as u16, out);
}

/// Leaves zeros at both ends out and writes the length and the value, `N` bytes at most.
#[inline]
fn finish<const N: usize>(
    negative: bool,
    groups: &[u16],
    weight: i32,
    scale: u16,
    out: &mut Vec<u8>,
) {
    let leading = groups.iter().take_while(|group| **group == 0).count();
    let groups = &groups[leading..];
    let trailing = groups.iter().rev().take_while(|group| **group == 0).count();
    let groups = &groups[..groups.len() - trailing];
    let weight = if groups.is_empty() {
        0
    } else {
        weight - leading as i32
    };
    let sign = if negative && !groups.is_empty() {
        NEGATIVE
    } else {
        0
    };
    let mut bytes = [0; N];
    let length = 8 + groups.len() * 2;
    bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
    bytes[4..6].copy_from_slice(&(groups.len() as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&(weight as i16).to_be_bytes());
    bytes[8..10].copy_from_slice(&sign.to_be_bytes());
    bytes[10..12].copy_from_slice(&scale.to_be_bytes());
    for (group, place) in groups.iter().zip(bytes[HEAD_BYTES..].chunks_exact_mut(2)) {
        place.copy_from_slice(&group.to_be_bytes());
    }
    out.extend_from_slice(&bytes[..4 + length]);
}

/// Writes the length and the `numeric` of `value` units of 10^-scale.
#[inline]
pub(crate) fn encode_i128(value: i128, scale: i8, out: &mut Vec<u8>) {
    if let (Ok(magnitude), 0..=18) = (u64::try_from(value.unsigned_abs()), scale) {
        return encode_small(value < 0, magnitude, scale as u32, out);
    }
    let mut digits = Digits::default();
    let mut rest = value.unsigned_abs();
    while rest > 0 {
        digits.push((rest % 10) as u8);
        rest /= 10;
    }
    digits.encode(value < 0, scale, out);
}

/// Writes the length and the `numeric` of `value` units of 10^-scale.
pub(crate) fn encode_i256(value: i256, scale: i8, out: &mut Vec<u8>) {
    if let Some(small) = value.to_i128() {
        return encode_i128(small, scale, out);
    }
    let ten = i256::from_i128(10);
    let negative = value < i256::ZERO;
    let mut digits = Digits::default();
    let mut rest = value;
    while rest != i256::ZERO {
        // The remainder has the sign of the value.
        let digit = rest.wrapping_rem(ten).as_i128().unsigned_abs();
        digits.push(digit as u8);
        rest = rest.wrapping_div(ten);
    }
    digits.encode(negative, scale, out);
}

/// Decimal digits, the lowest first.
struct Digits {
    digits: [u8; MAX_DIGITS],
    count: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self {
            digits: [0; MAX_DIGITS],
            count: 0,
        }
    }
}

impl Digits {
    fn push(&mut self, digit: u8) {
        self.digits[self.count] = digit;
        self.count += 1;
    }

    fn encode(&self, negative: bool, scale: i8, out: &mut Vec<u8>) {
        // The position of a digit counts from the decimal point; groups begin at multiples of 4.
        let lowest = -i32::from(scale);
        let first_group = lowest.div_euclid(4);
        let last_group = (lowest + self.count as i32).div_euclid(4);
        let mut groups = [0_u16; MAX_GROUPS];
        let count = (last_group - first_group + 1) as usize;
        for (at, digit) in self.digits[..self.count].iter().enumerate() {
            let position = lowest + at as i32;
            let from_top = (last_group - position.div_euclid(4)) as usize;
            let power = SMALL_POWERS[position.rem_euclid(4) as usize] as u16;
            groups[from_top] += u16::from(*digit) * power;
        }
        let scale = scale.max(0) as u16;
        const BYTES: usize = HEAD_BYTES + 2 * MAX_GROUPS;
        finish::<BYTES>(negative, &groups[..count], last_group, scale, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight as u16, sign, 0];
        let words = head.iter().chain(digits);
        words.flat_map(|word| word.to_be_bytes()).collect()
    }

    fn read(weight: i16, digits: &[u16], scale: i32, precision: u32) -> Result<i128, Problem> {
        let limit = i128::power(precision).expect("at most 38 digits");
        decode(&bytes(weight, 0, digits), scale, limit)
    }

    #[test]
    fn a_value_is_shown_as_the_server_writes_it() {
        let bytes = |weight: i16, sign: u16, scale: u16, groups: &[u16]| {
            let mut bytes = Vec::new();
            let head = [groups.len() as u16, weight.cast_unsigned(), sign, scale];
            for word in head.iter().chain(groups) {
                bytes.extend(word.to_be_bytes());
            }
            bytes
        };
        for (value, expected) in [
            (bytes(0, 0, 0, &[]), Some("0")),
            (bytes(0, 0, 2, &[1, 5000]), Some("1.50")),
            (bytes(-2, NEGATIVE, 5, &[1000]), Some("-0.00001")),
            (bytes(1, 0, 0, &[12]), Some("120000")),
            (bytes(1, 0, 1, &[12, 34, 5000]), Some("120034.5")),
            (bytes(-1, 0, 4, &[25]), Some("0.0025")),
            (bytes(0, NAN, 0, &[]), None),
            (vec![0; 7], None),
        ] {
            assert_eq!(shown(&value).as_deref(), expected, "{value:?}");
        }
        let long = shown(&bytes(i16::MAX, 0, 0, &[7])).unwrap();
        assert!(long.starts_with("7000") && long.ends_with('…'), "{long}");
        assert_eq!(long.chars().count(), SHOWN_CHARS + 1);
        let long = shown(&bytes(0, 0, 16000, &[7])).unwrap();
        assert!(long.starts_with("7.0000") && long.ends_with('…'), "{long}");
    }

    #[test]
    fn values_beyond_the_decimal_are_refused_and_those_within_are_exact() {
        assert_eq!(read(0, &[12, 5000], 2, 4), Ok(1250));
        assert_eq!(read(0, &[12, 5000], 1, 3), Ok(125));
        assert_eq!(read(0, &[12, 5000], 0, 3), Err(Problem::Scale));
        assert_eq!(read(-2, &[1], 8, 38), Ok(1));
        assert_eq!(read(-2, &[1], 7, 38), Err(Problem::Scale));
        assert_eq!(read(-3, &[1], 2, 38), Err(Problem::Scale));
        assert_eq!(read(0, &[100], 0, 3), Ok(100));
        assert_eq!(read(0, &[100], 0, 2), Err(Problem::Precision));
        // Zeros that are not sent: 10^20, 10^36, 10^40, 10^131068.
        assert_eq!(read(5, &[1], 0, 38), Ok(10_i128.pow(20)));
        assert_eq!(read(9, &[1], 0, 38), Ok(10_i128.pow(36)));
        assert_eq!(read(10, &[1], 0, 38), Err(Problem::Precision));
        assert_eq!(read(i16::MAX, &[1], 0, 38), Err(Problem::Precision));
        assert_eq!(read(i16::MAX, &[], 0, 38), Ok(0));
        assert_eq!(read(4, &[1, 0, 0, 0], 18, 38), Ok(10_i128.pow(34)));
    }

    #[test]
    fn values_that_are_not_numbers_are_refused() {
        let of = |sign: u16| decode(&bytes(0, sign, &[1]), 0, 100_i128);
        assert_eq!(of(NEGATIVE), Ok(-1));
        assert_eq!(of(NAN), Err(Problem::NotANumber));
        assert_eq!(of(INFINITY), Err(Problem::Infinite));
        assert_eq!(of(NEGATIVE_INFINITY), Err(Problem::Infinite));
        assert_eq!(of(1), Err(Problem::Malformed));
        assert_eq!(read(0, &[10_000], 0, 38), Err(Problem::Malformed));
        let whole = bytes(0, 0, &[1, 2]);
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end], 8, 1_i128), Err(Problem::Malformed));
        }
    }
}

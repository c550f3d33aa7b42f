//! Numbers and text from a key and a counter, so that any row can be made without its predecessors.

/// The value at `counter` of the sequence that `key` names.
///
/// SplitMix64 with the counter in place of its state: Steele, Lea, Flood, "Fast Splittable
/// Pseudorandom Number Generators", 2014. A permutation of the counter for each key.
#[inline]
pub fn mix(key: u64, counter: u64) -> u64 {
    let z = key.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a text, such as a stream's name.
pub fn key_of(text: &str) -> u64 {
    text.bytes()
        .fold(mix(0, text.len() as u64), |key, byte| mix(key, byte.into()))
}

/// A number from 0 to `n - 1`, nearly uniform; 0 when `n` is 0.
#[inline]
pub fn below(hash: u64, n: u64) -> u64 {
    if n <= u64::from(u32::MAX) {
        // A multiplication where a remainder would cost a division.
        ((hash >> 32) * n) >> 32
    } else {
        hash % n
    }
}

/// Appends `len` ASCII characters of `a` to `z` and `0` to `5`.
#[inline]
pub fn push_text(out: &mut Vec<u8>, hash: u64, len: usize) {
    push_words(out, hash, len, letters);
}

/// Appends `len` bytes of any value.
#[inline]
pub fn push_bytes(out: &mut Vec<u8>, hash: u64, len: usize) {
    push_words(out, hash, len, |word| word);
}

/// Eight bytes at a time; what is too much is cut off again, which is cheaper than a short copy.
#[inline]
fn push_words(out: &mut Vec<u8>, hash: u64, len: usize, form: impl Fn(u64) -> u64) {
    let end = out.len() + len;
    for word in 0..len.div_ceil(8) as u64 {
        out.extend_from_slice(&form(mix(hash, word)).to_le_bytes());
    }
    out.truncate(end);
}

/// Eight letters from the low five bits of each byte of `word`, all eight at once.
#[inline]
fn letters(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let five_bits = word & (ONES * 31);
    // 1 in each byte from 26 on: those become digits.
    let is_digit = ((five_bits + ONES * (128 - 26)) >> 7) & ONES;
    five_bits + ONES * u64::from(b'a') - is_digit * u64::from(b'a' + 26 - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_asked_length_and_alphabet() {
        let mut seen = [false; 256];
        for len in 0..100 {
            let mut out = b"x".to_vec();
            push_text(&mut out, mix(1, len), len as usize);
            assert_eq!(out.len(), 1 + len as usize);
            out[1..]
                .iter()
                .for_each(|byte| seen[usize::from(*byte)] = true);
        }
        let alphabet: Vec<u8> = (0..=255).filter(|b| seen[usize::from(*b)]).collect();
        assert_eq!(alphabet, b"012345abcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn below_stays_below_and_reaches_both_ends() {
        for n in [1, 2, 3, 1 << 20, 86_400_000_000] {
            assert!((0..1000).all(|i| below(mix(7, i), n) < n), "{n}");
        }
        for wanted in [0, 2] {
            assert!((0..100).any(|i| below(mix(7, i), 3) == wanted));
        }
        assert_eq!(below(u64::MAX, 0), 0);
    }
}

//! Copying short values.

/// Of most texts and numbers.
const SHORT: usize = 32;

/// Appends `data[at..at + length]`. A short value is copied together with the bytes after it, which are cut
/// off again. A copy of a length that the compiler knows does not need a call, and a call costs more than a
/// copy, most of all out of a component.
///
/// Panics as slicing does.
#[inline(always)]
pub(crate) fn append(out: &mut Vec<u8>, data: &[u8], at: usize, length: usize) {
    let behind = &data[at..];
    match behind.first_chunk::<SHORT>() {
        Some(chunk) if length <= SHORT => {
            let end = out.len() + length;
            out.extend_from_slice(chunk);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&behind[..length]),
    }
}

/// Copies `from` to `to`, which is as long, and of most values no byte by a call: of a short one both ends
/// are copied with lengths that the compiler knows, and may overlap.
///
/// Panics where the lengths differ.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        16..=SHORT => copy_ends::<16>(to, from),
        8..16 => copy_ends::<8>(to, from),
        4..8 => copy_ends::<4>(to, from),
        2..4 => copy_ends::<2>(to, from),
        1 => copy_ends::<1>(to, from),
        0 => copy_ends::<0>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    let last = from.len() - N;
    to[..N].copy_from_slice(&from[..N]);
    to[last..].copy_from_slice(&from[last..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_values_are_appended_wherever_they_stand() {
        let data: Vec<u8> = (0..100).collect();
        for at in 0..=data.len() {
            for length in 0..=data.len() - at {
                let mut out = vec![255];
                append(&mut out, &data, at, length);
                assert_eq!(out[1..], data[at..at + length], "{at}, {length}");
            }
        }
    }

    #[test]
    fn short_and_long_values_are_copied() {
        let data: Vec<u8> = (1..100).collect();
        for length in 0..data.len() {
            let mut to = vec![0; length];
            copy(&mut to, &data[..length]);
            assert_eq!(to, data[..length], "{length}");
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn a_copy_fills_its_place() {
        copy(&mut [0; 5], &[0; 4]);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_value_that_is_not_there_is_refused() {
        append(&mut Vec::new(), &[0; 40], 30, 11);
    }
}

//! Copying short values.

/// Of most texts and numbers.
const SHORT: usize = 32;

/// Appends `data[at..at + length]`. A short value is copied with what stands behind it, which is cut off
/// again: a copy of a length that the compiler knows needs no call, and a call costs more than a copy,
/// most of all out of a component.
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
    #[should_panic(expected = "out of range")]
    fn a_value_that_is_not_there_is_refused() {
        append(&mut Vec::new(), &[0; 40], 30, 11);
    }
}

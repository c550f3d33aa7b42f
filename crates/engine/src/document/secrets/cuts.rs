//! Parts of secrets where a text was cut.
//!
//! A connector or a driver may cut a long text before the host sees it, and the cut may fall within a secret. Then the
//! text ends with the beginning of the secret. At a place where a text may have been cut, at least half of a secret is
//! redacted, too. Anywhere else, such a part is a word like any other.

use memchr::memmem::{self, Finder};

use super::MIN_SECRET_BYTES;
use super::escapes::View;

/// Our own messages show at least this much of a text. A shorter text without a mark was not cut.
const MIN_CUT_BYTES: usize = 60;
/// A text with more marks is made of dots.
const MAX_MARKS: usize = 64;
/// The longest escape, which may be cut itself.
const MAX_ESCAPE: usize = 10;
/// Closing signs, and what replaces a cut character, between a part of a secret and the place of the cut.
const MAX_CLOSING: usize = 3;
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// The places where a text may have been cut.
pub(super) struct Cuts {
    /// Places where a text ends: before a mark such as `…`, and at the end of a long text.
    ends: Vec<usize>,
    /// Places behind a mark.
    starts: Vec<usize>,
}

impl Cuts {
    pub fn of(text: &str) -> Self {
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        for mark in ["…", "..."] {
            for at in memmem::find_iter(text.as_bytes(), mark).take(MAX_MARKS) {
                ends.push(at);
                starts.push(at + mark.len());
            }
        }
        if text.len() >= MIN_CUT_BYTES {
            ends.push(text.len());
        }
        Self { ends, starts }
    }

    /// Adds the parts of the shown text that are at least half of a secret and lie at a cut.
    pub fn find(&self, view: &View, secrets: &[Finder<'static>], found: &mut Vec<(usize, usize)>) {
        for end in &self.ends {
            let before = view.before(*end);
            for to in ends(before) {
                let lengths = secrets
                    .iter()
                    .filter_map(|secret| beginning(&before[..to], secret.needle()));
                if let Some(len) = lengths.max() {
                    found.push(view.place(to - len, to));
                }
            }
        }
        for start in &self.starts {
            let (at, behind) = view.behind(*start);
            let blanks = behind.iter().take(MAX_CLOSING);
            let from = blanks.take_while(|byte| is_closing(**byte)).count();
            for from in [0, from] {
                let lengths = secrets
                    .iter()
                    .filter_map(|secret| ending(&behind[from..], secret.needle()));
                if let Some(len) = lengths.max() {
                    found.push(view.place(at + from, at + from + len));
                }
            }
        }
    }
}

/// How much of a secret is taken for a part of it.
fn least(secret: &[u8]) -> usize {
    secret.len().div_ceil(2).max(MIN_SECRET_BYTES)
}

/// The length of the longest beginning of a secret at the end of a text.
fn beginning(text: &[u8], secret: &[u8]) -> Option<usize> {
    let window = &text[text.len().saturating_sub(secret.len() - 1)..];
    let last = window.len().checked_sub(least(secret))?;
    memchr::memchr_iter(secret[0], &window[..=last])
        .map(|at| &window[at..])
        .find(|part| secret.starts_with(part))
        .map(<[u8]>::len)
}

/// The length of the longest end of a secret at the start of a text.
fn ending(text: &[u8], secret: &[u8]) -> Option<usize> {
    let window = &text[..text.len().min(secret.len() - 1)];
    let first = least(secret) - 1;
    let last = *secret.last()?;
    memchr::memrchr_iter(last, window.get(first..)?)
        .map(|at| &window[..=first + at])
        .find(|part| secret.ends_with(part))
        .map(<[u8]>::len)
}

/// Where a secret may end in a text that was cut at its end: there, before closing signs, and before an escape that was
/// cut itself.
fn ends(text: &[u8]) -> impl Iterator<Item = usize> {
    let mut end = text.len();
    for _ in 0..MAX_CLOSING {
        end = match &text[..end] {
            [.., last] if is_closing(*last) => end - 1,
            before if before.ends_with(REPLACEMENT) => end - REPLACEMENT.len(),
            _ => break,
        };
    }
    let last = &text[end.saturating_sub(MAX_ESCAPE)..end];
    let sign = memchr::memrchr3(b'%', b'\\', b'&', last).map(|at| end - last.len() + at);
    let closed = (end < text.len()).then_some(end);
    std::iter::once(text.len()).chain(closed).chain(sign)
}

fn is_closing(byte: u8) -> bool {
    // The view of base64 has a NUL after each word.
    matches!(byte, b'"' | b'\'' | b'`' | b')' | b' ' | 0)
}

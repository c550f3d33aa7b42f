//! Key paths: `source.streams[1].columns`, and `source.config["a.b"]` for a key with other
//! characters than letters, digits, `_` and `-`.

use std::fmt::Write;

/// One step from a node to a node in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// A key longer than this is cut in a message.
const MAX_SHOWN_CHARS: usize = 64;

/// Adds one step to a path that is text already.
pub(super) fn push(path: &mut String, step: &Step<'_>) {
    match step {
        Step::Index(index) => {
            let _ = write!(path, "[{index}]");
        }
        Step::Key(key) if is_bare(key) => {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&shown(key));
        }
        Step::Key(key) => {
            let _ = write!(path, "[{:?}]", shown(key));
        }
    }
}

/// A key or value as it is shown in a message: cut when it is long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Takes the first step off a path given as text: the step, owned, and the rest.
///
/// Nothing if the path is empty or not well formed.
pub(super) fn split_first(path: &str) -> Option<(OwnedStep, &str)> {
    if let Some(inner) = path.strip_prefix('[') {
        if let Some(quoted) = inner.strip_prefix('"') {
            return split_quoted(quoted);
        }
        let (digits, rest) = inner.split_once(']')?;
        return Some((OwnedStep::Index(digits.parse().ok()?), rest));
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (key, rest) = path.split_at(end);
    (!key.is_empty()).then(|| (OwnedStep::Key(key.to_owned()), rest))
}

/// The other direction of what `push` writes for an unusual key.
fn split_quoted(text: &str) -> Option<(OwnedStep, &str)> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => key.push(chars.next()?.1),
            '"' => {
                let rest = text[at + 1..].strip_prefix(']')?;
                return Some((OwnedStep::Key(key), rest));
            }
            other => key.push(other),
        }
    }
    None
}

/// A [`Step`] read from text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnedStep {
    Key(String),
    Index(usize),
}

//! Functions of texts, which count characters.

/// The characters from the position `from`, which counts from 1, and no more than `count`. A position before the first
/// character counts too.
///
/// # Errors
/// A count below zero.
pub fn substring(text: &str, from: i64, count: Option<i64>) -> Result<&str, String> {
    let end = match count {
        Some(count) if count < 0 => return Err("substring: the length is negative".into()),
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let from = from.max(1);
    Ok(between(text, from - 1, end - 1))
}

/// The first characters; with a negative count all but the last ones.
pub fn left(text: &str, count: i64) -> &str {
    let end = match count < 0 {
        true => characters(text) + count,
        false => count,
    };
    between(text, 0, end)
}

/// The last characters; with a negative count all but the first ones.
pub fn right(text: &str, count: i64) -> &str {
    let begin = match count < 0 {
        true => -count,
        false => (characters(text) - count).max(0),
    };
    between(text, begin, i64::MAX)
}

/// Never more than the bytes of a text.
pub fn characters(text: &str) -> i64 {
    text.chars().count() as i64
}

/// The characters from position `begin` to before `end`, which count from 0.
fn between(text: &str, begin: i64, end: i64) -> &str {
    if end <= begin {
        return "";
    }
    let at = |position: i64| {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        let found = text.char_indices().nth(position);
        found.map_or(text.len(), |(index, _)| index)
    };
    &text[at(begin)..at(end)]
}

/// The part with this number, which counts from 1, or from the end if it is negative. Empty if there is none.
///
/// # Errors
/// The number 0.
pub fn split_part<'a>(text: &'a str, separator: &str, number: i64) -> Result<&'a str, String> {
    if number == 0 {
        return Err("split_part: there is no part 0".into());
    }
    if separator.is_empty() {
        let is_whole = number == 1 || number == -1;
        return Ok(if is_whole { text } else { "" });
    }
    let index = usize::try_from(number.unsigned_abs() - 1).unwrap_or(usize::MAX);
    // From the front both times: parts that overlap are found as PostgreSQL finds them.
    let part = match number > 0 {
        true => text.split(separator).nth(index),
        false => {
            let parts: Vec<&str> = text.split(separator).collect();
            let position = parts.len().checked_sub(index + 1);
            position.map(|position| parts[position])
        }
    };
    Ok(part.unwrap_or_default())
}

/// Replaces each occurrence; an empty text occurs nowhere.
pub fn replace(text: &str, from: &str, to: &str, out: &mut String) {
    if from.is_empty() {
        return out.push_str(text);
    }
    let mut end = 0;
    for (at, found) in text.match_indices(from) {
        out.push_str(&text[end..at]);
        out.push_str(to);
        end = at + found.len();
    }
    out.push_str(&text[end..]);
}

/// Without these characters at its ends.
pub fn trim<'a>(text: &'a str, characters: &str, start: bool, end: bool) -> &'a str {
    let is_taken = |c: char| characters.contains(c);
    let text = match start {
        true => text.trim_start_matches(is_taken),
        false => text,
    };
    match end {
        true => text.trim_end_matches(is_taken),
        false => text,
    }
}

/// In lower case, one character for each, as PostgreSQL's default rules have it.
pub fn lower(text: &str) -> String {
    text.chars().map(|c| single(c, c.to_lowercase())).collect()
}

/// In upper case, one character for each: `ß` stays.
pub fn upper(text: &str) -> String {
    text.chars().map(|c| single(c, c.to_uppercase())).collect()
}

fn single(c: char, mut changed: impl Iterator<Item = char>) -> char {
    match (changed.next(), changed.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

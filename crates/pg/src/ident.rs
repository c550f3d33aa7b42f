//! Identifiers and literals in SQL, quoted like the server's `quote_ident` and `quote_literal`.

use std::sync::LazyLock;

use crate::{Owner, PgError};
use rapidbyte_wire::name::shown;

/// Words that `quote_ident` quotes: the words of `pg_get_keywords()` whose category is not `U`
/// (unreserved), of PostgreSQL 15 and, added to them, of 16 to 18. Sorted. An older server quotes
/// a few fewer, which means the same.
static KEYWORDS: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("keywords.txt").lines().collect());

/// Bytes of a name that the server keeps (`NAMEDATALEN` - 1); it silently cuts the rest.
pub const MAX_NAME_BYTES: usize = 63;

/// The name in SQL: bare if that means the same, else in double quotes.
pub fn quote_ident(name: &str) -> String {
    if is_bare(name) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `quote_identifier` of `ruleutils.c`: a lower-case letter or underscore, then also digits, and
/// no keyword.
fn is_bare(name: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
    let Some((first, rest)) = name.as_bytes().split_first() else {
        return false;
    };
    letter(first)
        && rest
            .iter()
            .all(|byte| letter(byte) || byte.is_ascii_digit())
        && KEYWORDS.binary_search(&name).is_err()
}

/// `schema.name`, both quoted where needed.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_ident(schema), quote_ident(name))
}

/// The text as a literal; with backslashes it becomes `E'…'`.
pub fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// The columns that every table has (`SystemAttributeDefinition`); no other column may have such a name.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "cmin", "xmax", "cmax", "tableoid"];

/// Refuses names of columns that [`check_name`] refuses, and the names of system columns.
pub fn check_column_name(name: &str) -> Result<(), PgError> {
    check_name(name)?;
    if !SYSTEM_COLUMNS.contains(&name) {
        return Ok(());
    }
    let text = format!(
        "the name {name:?} is that of a system column, which every table of PostgreSQL has"
    );
    Err(PgError::new(Owner::Config, "invalid_name", text).hint(
        "give the column another name by `rename:` of the stream, or leave it out by `columns:`",
    ))
}

/// Refuses names that the server cannot hold (empty, with NUL) or would cut (above 63 bytes).
pub fn check_name(name: &str) -> Result<(), PgError> {
    let bad = |what: &str| {
        Err(PgError::new(
            Owner::Config,
            "invalid_name",
            format!("the name {} {what}", shown(name)),
        )
        .hint("rename it in the pipeline"))
    };
    if name.is_empty() {
        return bad("is empty");
    }
    if name.contains('\0') {
        return bad("contains a NUL character");
    }
    if name.len() > MAX_NAME_BYTES {
        return bad("has more than 63 bytes, and the server would cut it");
    }
    Ok(())
}

/// Names that quoting gets wrong easily; the same for the same `count`. For tests.
///
/// Keywords, their neighbours, and words over an alphabet of letters, digits, quotes, blanks,
/// control characters and multi-byte letters, up to 63 bytes, none empty, none with NUL.
pub fn nasty_names(count: usize) -> Vec<String> {
    const ALPHABET: [&str; 24] = [
        "a", "z", "_", "0", "9", "A", "Z", "$", "\"", "'", "\\", " ", ".", "-", ";", "\n", "\t",
        "ä", "ß", "é", "日", "🦀", "%", "/",
    ];
    let mut names: Vec<String> = KEYWORDS.iter().map(|word| (*word).to_owned()).collect();
    names.extend(KEYWORDS.iter().map(|word| word.to_uppercase()));
    names.extend(KEYWORDS.iter().map(|word| format!("{word}_")));
    // A linear congruential generator: the names must be the same everywhere.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % below as u64) as usize
    };
    while names.len() < count {
        let length = 1 + next(20);
        // Every second name only of the harmless first letters, so that bare ones are met.
        let letters = if next(2) == 0 { 5 } else { ALPHABET.len() };
        let mut name = String::new();
        for _ in 0..length {
            let letter = ALPHABET[next(letters)];
            if name.len() + letter.len() <= MAX_NAME_BYTES {
                name.push_str(letter);
            }
        }
        names.push(name);
    }
    names.truncate(count);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_in_its_error() {
        let error = check_column_name(&"n".repeat(5000)).expect_err("it is too long");
        assert_eq!(error.code, "invalid_name");
        let has = |chars: usize| error.message.contains(&"n".repeat(chars));
        assert!(has(100) && !has(101), "{}", error.message);
    }
}

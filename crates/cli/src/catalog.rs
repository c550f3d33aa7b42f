//! The meaning of every error code: `docs/errors.md`, which the program carries and reads when
//! asked.
//!
//! The file is the only place of these texts. Its form: a `##` heading for each area, below it a
//! `###` heading with the code in backticks, then a paragraph that begins with `Exit code`, an
//! optional one that begins with `**Why.**`, and one that begins with `**What to do.**`.

use serde::Serialize;

/// How the codes of a PostgreSQL server begin; its SQLSTATE follows.
const PG: &[u8] = b"pg_";
const TEXT: &str = include_str!("../../../docs/errors.md");

/// The entry of one code in `docs/errors.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// As printed in `error[…]`; an `x` in a PostgreSQL code stands for any character.
    pub code: String,
    /// The heading above it.
    pub area: String,
    /// The exit codes of a command that ends with it, the usual one first.
    pub exit_codes: Vec<u8>,
    /// The description of the error.
    pub what: String,
    /// Why it usually happens; empty where `what` says it all.
    pub why: String,
    /// The steps for the operator.
    pub what_to_do: String,
}

/// All entries in the order of the file.
pub fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut area = String::new();
    for paragraph in TEXT.split("\n\n") {
        let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(code) = paragraph.strip_prefix("### ") {
            entries.push(Entry {
                code: code.trim_matches('`').into(),
                area: area.clone(),
                exit_codes: Vec::new(),
                what: String::new(),
                why: String::new(),
                what_to_do: String::new(),
            });
        } else if let Some(heading) = paragraph.strip_prefix("## ") {
            area = heading.into();
        } else if let Some(entry) = entries.last_mut() {
            entry.read(&paragraph);
        }
    }
    entries
}

impl Entry {
    fn read(&mut self, paragraph: &str) {
        if let Some(text) = paragraph.strip_prefix("**Why.** ") {
            self.why = text.into();
        } else if let Some(text) = paragraph.strip_prefix("**What to do.** ") {
            self.what_to_do = text.into();
        } else if let Some((codes, what)) = paragraph
            .strip_prefix("Exit code ")
            .and_then(|text| text.split_once(". "))
        {
            let codes = codes.split(", ").flat_map(|codes| codes.split(" or "));
            // Of words none is left, which a test finds.
            let codes: Result<_, _> = codes.map(str::parse).collect();
            self.exit_codes = codes.unwrap_or_default();
            self.what = what.into();
        }
    }

    /// Whether this entry is about `code`, exactly or by its class.
    fn covers(&self, code: &str) -> bool {
        let is_same = |(own, other): (&u8, &u8)| {
            *own == b'x' && other.is_ascii_alphanumeric() || own.eq_ignore_ascii_case(other)
        };
        let (own, code) = (self.code.as_bytes(), code.as_bytes());
        own.starts_with(PG)
            && code
                .get(..PG.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(PG))
            && own.len() == code.len()
            && own[PG.len()..].iter().zip(&code[PG.len()..]).all(is_same)
    }
}

/// The entry of a code in any case: its own, else the entry of its class.
pub fn find(code: &str) -> Option<Entry> {
    let mut entries = entries();
    let is_own = |entry: &Entry| entry.code.eq_ignore_ascii_case(code);
    let own = entries.iter().position(is_own);
    let at = own.or_else(|| entries.iter().position(|entry| entry.covers(code)))?;
    Some(entries.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_whole_and_there_once() {
        let entries = entries();
        assert!(entries.len() > 200);
        let headings = TEXT.lines().filter(|line| line.starts_with("### ")).count();
        assert_eq!(entries.len(), headings);
        for (at, entry) in entries.iter().enumerate() {
            let code = &entry.code;
            assert!(!entries[..at].iter().any(|e| e.code == *code), "{code}");
            assert!(!entry.exit_codes.is_empty(), "{code}: no exit code");
            assert!(!entry.exit_codes.contains(&0), "{code}: exit code 0");
            for text in [&entry.area, &entry.what, &entry.what_to_do] {
                assert!(!text.is_empty(), "{code}: a part is missing");
            }
        }
    }

    #[test]
    fn a_code_of_the_server_without_an_entry_has_that_of_its_class() {
        let code = |asked: &str| find(asked).map(|entry| entry.code);
        assert_eq!(code("pg_28P01").as_deref(), Some("pg_28P01"));
        assert_eq!(code("pg_22P02").as_deref(), Some("pg_22xxx"));
        assert_eq!(code("pg_XX000").as_deref(), Some("pg_xxxxx"));
        assert_eq!(code("PG_28p01").as_deref(), Some("pg_28P01"));
        assert_eq!(code("Pg_22p02").as_deref(), Some("pg_22xxx"));
        assert_eq!(code("UNKNOWN_Key").as_deref(), Some("unknown_key"));
        assert_eq!(code("pg_"), None);
        assert_eq!(code("pg_\u{e4}\u{e4}x"), None);
        assert_eq!(code("no_such_code"), None);
    }
}

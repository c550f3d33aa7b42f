//! `rapidbyte explain [CODE]`

use rapidbyte::{Class, Failure, nearest};
use serde_json::json;

use crate::args::Explain;
use crate::catalog::{self, Entry};
use crate::output::{Output, wrapped};

/// Explains one code, or lists all.
pub fn run(explain: &Explain, output: &Output) -> Result<(), Failure> {
    let Some(code) = &explain.code else {
        list(&catalog::entries(), output);
        return Ok(());
    };
    let code = meant(code);
    let entry = catalog::find(&code).ok_or_else(|| unknown(&code))?;
    output.document(&json!({ "status": "ok", "error": entry }));
    output.text(&text_of(&entry, output));
    Ok(())
}

/// The code that was typed, as it is shown (`error[unknown_key]`) in words (`unknown key`), or
/// as a server's own (`28P01`).
fn meant(typed: &str) -> String {
    let code = typed.trim();
    let shown = ["error", "warning"].iter().find_map(|word| {
        let rest = code.strip_prefix(word)?.strip_prefix('[')?;
        Some(rest.split(']').next().unwrap_or(rest))
    });
    let words = shown.unwrap_or(code).split([' ', '\t', '-']);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let code = words.join("_");
    let class = code.get(..2).unwrap_or_default().to_ascii_uppercase();
    let is_sqlstate = code.len() == 5
        && code.bytes().all(|b| b.is_ascii_alphanumeric())
        && SQLSTATE_CLASSES.contains(&class.as_str());
    match is_sqlstate {
        true => format!("pg_{code}"),
        false => code,
    }
}

/// The classes of PostgreSQL's SQLSTATEs ("PostgreSQL Error Codes" in its manual). Five characters
/// of another class are not a code of a server.
const SQLSTATE_CLASSES: [&str; 44] = [
    "00", "01", "02", "03", "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22",
    "23", "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40",
    "42", "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX",
];

/// Codes that a hint names at most.
const MAX_NAMED: usize = 5;

fn unknown(code: &str) -> Failure {
    let entries = catalog::entries();
    let codes = || entries.iter().map(|entry| entry.code.as_str());
    let lower = code.to_ascii_lowercase();
    let part: Vec<&str> = codes()
        .filter(|known| !lower.is_empty() && known.to_ascii_lowercase().contains(&lower))
        .collect();
    let hint = match nearest(&lower, codes()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if (1..=MAX_NAMED).contains(&part.len()) => {
            format!("these codes contain it: {}", part.join(", "))
        }
        None => "a connector that is not bundled has codes of its own, and its documents explain them; run \
                 `rapidbyte explain` without a code to list all codes"
            .into(),
    };
    Failure::new(
        Class::Config,
        "unknown_code",
        format!("Rapidbyte itself has no error code {code:?}"),
    )
    .hint(hint)
}

fn text_of(entry: &Entry, output: &Output) -> String {
    let codes: Vec<String> = entry.exit_codes.iter().map(u8::to_string).collect();
    let mut text = format!(
        "{}  {}, exit code {}\n\n{}",
        output.bold(&entry.code),
        entry.area,
        codes.join(" or "),
        wrapped(&entry.what, output.width, "  ", "  "),
    );
    for (head, part) in [("why:  ", &entry.why), ("do:   ", &entry.what_to_do)] {
        if !part.is_empty() {
            let part = wrapped(part, output.width, &format!("  {head}"), "        ");
            text.push_str(&format!("\n\n{part}"));
        }
    }
    text
}

fn list(entries: &[Entry], output: &Output) {
    output.document(&json!({ "status": "ok", "errors": entries }));
    let longest = entries.iter().map(|entry| entry.code.len()).max();
    let longest = longest.unwrap_or_default();
    let below = " ".repeat(longest + 4);
    let mut text = String::new();
    let mut area = "";
    for entry in entries {
        if entry.area != area {
            let gap = if area.is_empty() { "" } else { "\n" };
            area = &entry.area;
            text.push_str(&format!("{gap}{}\n", output.bold(area)));
        }
        let head = format!("  {:<longest$}  ", entry.code);
        text.push_str(&wrapped(&entry.what, output.width, &head, &below));
        text.push('\n');
    }
    output.text(text.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_known_however_it_is_typed() {
        for typed in [
            "unknown_key",
            " unknown_key\n",
            "UNKNOWN_KEY",
            "unknown key",
            "unknown-key",
            "error[unknown_key]",
            "error[unknown_key] p.yaml:3:1: unknown key \"a\"",
            "warning[unknown_key]: no",
        ] {
            let found = catalog::find(&meant(typed)).map(|entry| entry.code);
            assert_eq!(found.as_deref(), Some("unknown_key"), "{typed:?}");
        }
    }

    #[test]
    fn five_characters_are_a_code_of_a_server_only_in_its_classes() {
        for (typed, known) in [
            ("28P01", true),
            ("22p02", true),
            ("E1234", false),
            ("X1234", false),
        ] {
            assert_eq!(catalog::find(&meant(typed)).is_some(), known, "{typed}");
        }
    }

    #[test]
    fn similar_codes_are_named() {
        for (typed, named) in [
            ("UNKNWON_KEY", "\"unknown_key\""),
            ("ragged", "csv_ragged_row"),
            ("e", "to list all codes"),
            (
                "no_price",
                "a connector that is not bundled has codes of its own",
            ),
            ("bogus", "to list all codes"),
            ("", "to list all codes"),
            ("DATA_ERROR", "to list all codes"),
            ("E1234", "to list all codes"),
            ("X1234", "to list all codes"),
        ] {
            let hint = unknown(&meant(typed)).hint.unwrap_or_default();
            assert!(hint.contains(named), "{typed:?}: {hint}");
        }
    }
}

//! `rapidbyte explain [CODE]`

use rapidbyte_engine::{Class, Failure, nearest};
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
    // As it is shown: `error[unknown_key]`.
    let code = code.trim_start_matches("error[").trim_end_matches(']');
    let entry = catalog::find(code).ok_or_else(|| unknown(code))?;
    output.document(&json!({ "status": "ok", "error": entry }));
    output.text(&text_of(&entry, output));
    Ok(())
}

fn unknown(code: &str) -> Failure {
    let entries = catalog::entries();
    let hint = match nearest(code, entries.iter().map(|entry| entry.code.as_str())) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "`rapidbyte explain` without a code lists all".into(),
    };
    Failure::new(
        Class::Config,
        "unknown_code",
        format!("no error has the code {code:?}"),
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

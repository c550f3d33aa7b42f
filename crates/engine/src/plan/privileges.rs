//! Missing privileges of both sides as one failure, with one script for whoever may grant.

use std::fmt::Write as _;

use crate::failure::{Class, Failure};

/// A role of a side lacks privileges, and the hint has the statements that give them.
pub(super) fn is_missing(failure: &Failure) -> bool {
    is_code(&failure.code)
}

/// The code of such an error.
pub(super) fn is_code(code: &str) -> bool {
    matches!(
        code,
        "no_privilege" | "checkpoint_not_allowed" | "nothing_readable"
    )
}

/// All of them as one; a single one as it is. Nothing for none.
pub(super) fn merged(missing: Vec<(&'static str, Failure)>) -> Option<Failure> {
    let mut missing = missing.into_iter();
    let first = missing.next()?;
    let rest: Vec<_> = missing.collect();
    if rest.is_empty() {
        return Some(first.1);
    }
    let all = || [&first].into_iter().chain(&rest);
    let mut messages: Vec<String> = Vec::new();
    let mut script = String::from("-- a script for psql, one part for each side:");
    for side in ["source", "destination"] {
        let failures: Vec<&Failure> = all()
            .filter(|(of, _)| *of == side)
            .map(|(_, f)| f)
            .collect();
        if failures.is_empty() {
            continue;
        }
        let _ = write!(script, "\n-- {side}");
        let mut lines: Vec<String> = Vec::new();
        for failure in failures {
            for message in failure.message.lines() {
                let message = format!("{side}: {message}");
                if !messages.contains(&message) {
                    messages.push(message);
                }
            }
            for line in failure.hint.iter().flat_map(|hint| hint.lines()) {
                // Lines that are not statements become comments of the script.
                let line = match line.ends_with(';') || line.starts_with("--") {
                    true => line.to_owned(),
                    false => format!("-- {line}"),
                };
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        for line in lines {
            let _ = write!(script, "\n{line}");
        }
    }
    Some(Failure::new(Class::Environment, "no_privilege", messages.join("\n")).hint(script))
}

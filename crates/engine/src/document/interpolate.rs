//! The parts of a scalar: `${NAME}`, `${NAME:-default}`, `${file:path}`, `$$`.
//!
//! A `$` that neither `{` nor `$` follows stands for itself, so that most passwords need no
//! escape. The reader of the document looks up the values of the parts.

use super::environment::is_name;

/// A piece of a scalar, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Stands for itself.
    Literal(&'a str),
    /// `${NAME}` or `${NAME:-default}`; the default holds also if the variable is empty.
    Variable {
        name: &'a str,
        default: Option<&'a str>,
    },
    /// `${file:path}`.
    File(&'a str),
}

/// Why a scalar is malformed, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) message: String,
    pub(super) hint: &'static str,
}

/// Splits a scalar into its parts; gives only literals if it holds no `${…}`.
pub(super) fn parts(text: &str) -> Result<Vec<Part<'_>>, Malformed> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        if !before.is_empty() {
            parts.push(Part::Literal(before));
        }
        let after = &from[1..];
        if let Some(inner) = after.strip_prefix('{') {
            let Some((inside, behind)) = inner.split_once('}') else {
                return Err(Malformed {
                    message: "\"${\" without a \"}\"".to_owned(),
                    hint: "write ${NAME}, or $${ for a literal ${",
                });
            };
            parts.push(reference(inside)?);
            rest = behind;
        } else {
            parts.push(Part::Literal("$"));
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    Ok(parts)
}

/// Parses the text between `${` and `}`.
fn reference(inside: &str) -> Result<Part<'_>, Malformed> {
    if inside.contains("${") {
        return Err(Malformed {
            message: "\"${\" inside another \"${…}\"".to_owned(),
            hint: "write a plain default; to combine variables, set the variable in .env",
        });
    }
    if let Some(path) = inside.strip_prefix("file:") {
        return match path.trim() {
            "" => Err(unknown_form(inside)),
            path => Ok(Part::File(path)),
        };
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        return Err(unknown_form(inside));
    }
    Ok(Part::Variable { name, default })
}

fn unknown_form(inside: &str) -> Malformed {
    let shown = super::path::shown(inside);
    Malformed {
        message: format!("\"${{{shown}}}\" is not a valid reference"),
        hint: "write ${NAME}, ${NAME:-default} or ${file:path}, or $${ for a literal ${",
    }
}

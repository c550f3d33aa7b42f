//! Names of streams that have parts, such as `schema.table`.
//!
//! A dot separates the parts. A part that holds a dot itself, or begins with a double quote, is
//! written in double quotes, in which a quote is written twice: `"b.c".orders`. Other parts are
//! written as they are, in their own letters: `public.Orders`.

/// Longer names are cut in messages: those of columns come from data, and may have any length.
const SHOWN_CHARS: usize = 100;

/// A name for a message: in double quotes, cut to 100 characters.
pub fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_CHARS) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}

/// The parts of a name. Nothing where a quoted part does not end, or more than a dot follows it.
pub fn parts(name: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = name;
    loop {
        let (part, behind) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        parts.push(part);
        if behind.is_empty() {
            return Some(parts);
        }
        rest = behind.strip_prefix('.')?;
    }
}

/// The text of a quoted part and what follows its closing quote.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = quoted;
    loop {
        let end = rest.find('"')?;
        text.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                text.push('"');
                rest = behind;
            }
            None => return Some((text, rest)),
        }
    }
}

/// The name of these parts.
pub fn join<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let quote = |part: &str| match part.contains('.') || part.starts_with('"') {
        true => format!("\"{}\"", part.replace('"', "\"\"")),
        false => part.to_owned(),
    };
    let parts: Vec<String> = parts.into_iter().map(quote).collect();
    parts.join(".")
}

/// The name without quotes that it does not need, so that two spellings of one name are equal. A
/// name whose quotes do not pair is its own spelling.
pub fn canonical(name: &str) -> String {
    match parts(name) {
        Some(parts) => join(parts.iter().map(String::as_str)),
        None => name.to_owned(),
    }
}

/// Whether a pattern covers a name, where `covers` says whether a pattern covers a text. With
/// quotes in either, each part of the pattern stands for one part of the name; a pattern of one part
/// stands for the whole name without its quotes.
pub fn covered(pattern: &str, name: &str, covers: impl Fn(&str, &str) -> bool) -> bool {
    if !pattern.contains('"') && !name.contains('"') {
        return covers(pattern, name);
    }
    let (Some(of_pattern), Some(of_name)) = (parts(pattern), parts(name)) else {
        return covers(pattern, name);
    };
    match of_pattern.as_slice() {
        [one] => covers(one, &of_name.join(".")),
        _ => {
            let mut pairs = of_pattern.iter().zip(&of_name);
            of_pattern.len() == of_name.len() && pairs.all(|(pattern, part)| covers(pattern, part))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::matches;

    #[test]
    fn a_long_name_is_cut_in_messages_at_a_character() {
        assert_eq!(shown("a\"b"), r#""a\"b""#);
        let whole = "é".repeat(SHOWN_CHARS);
        assert_eq!(shown(&whole), format!("\"{whole}\""));
        assert_eq!(shown(&(whole.clone() + "é")), format!("\"{whole}\"…"));
    }

    #[test]
    fn a_name_comes_back_from_its_parts() {
        for (name, expected) in [
            ("orders", vec!["orders"]),
            ("public.Orders", vec!["public", "Orders"]),
            ("\"b.c\".orders", vec!["b.c", "orders"]),
            ("b.\"c.orders\"", vec!["b", "c.orders"]),
            ("b.\"\"\"q\"\"\"", vec!["b", "\"q\""]),
            ("b.in\"side", vec!["b", "in\"side"]),
            ("a..b", vec!["a", "", "b"]),
            ("", vec![""]),
        ] {
            assert_eq!(
                parts(name).as_deref(),
                Some(&expected.iter().map(|&p| p.to_owned()).collect::<Vec<_>>()[..])
            );
            assert_eq!(join(expected), name);
            assert_eq!(canonical(name), name);
        }
        assert_eq!(canonical("\"b\".\"Orders\""), "b.Orders");
        for name in ["\"b", "\"b\"c.d", "a.\"", "\"b.c\"\".d"] {
            assert_eq!(parts(name), None, "{name}");
            assert_eq!(canonical(name), name);
        }
    }

    #[test]
    fn a_part_of_a_pattern_stands_for_a_part_of_a_name() {
        for (pattern, name, expected) in [
            ("b.*", "b.orders", true),
            ("b.*", "b.\"c.orders\"", true),
            ("b.*", "\"b.c\".orders", false),
            ("b*.orders", "\"b.c\".orders", true),
            ("\"b.c\".*", "\"b.c\".orders", true),
            ("\"b.c\".*", "b.\"c.orders\"", false),
            ("\"b\".*", "b.orders", true),
            ("*.orders", "b.\"c.orders\"", false),
            ("*orders", "b.\"c.orders\"", true),
            ("*", "\"b.c\".orders", true),
            ("\"b", "\"b", true),
        ] {
            assert_eq!(
                covered(pattern, name, matches),
                expected,
                "{pattern} {name}"
            );
        }
    }
}

//! Names of partition folders, `day=2026-11-21`, as Hive and Spark write them.
//!
//! Source: `escapePathName` and `unescapePathName` of both projects, which agree.

/// Stands for NULL in the place of a value.
pub const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A folder's name may have this many bytes on every common file system.
pub const MAX_NAME_BYTES: usize = 255;

/// Writes a column's name or a value for a folder's name: control characters, and characters that
/// mean something in paths, patterns and URLs, become `%` and two hexadecimal digits. The result
/// never is `.` or `..` as a part of `column=value`, and never holds a `/`.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) {
            // All of these are ASCII.
            escaped.push_str(&format!("%{:02X}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// The text that [`escape`] was given; `None` where that is not UTF-8. A `%` without two
/// hexadecimal digits stands for itself, as other programs have it.
pub fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digit = |at: usize| rest.get(at).and_then(|b| char::from(*b).to_digit(16));
        if let (b'%', Some(high), Some(low)) = (first, digit(1), digit(2)) {
            // Two hexadecimal digits are a byte.
            bytes.push((high * 16 + low) as u8);
            rest = &rest[3..];
        } else {
            bytes.push(*first);
            rest = more;
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_escaped(character: char) -> bool {
    character.is_ascii_control()
        || matches!(
            character,
            '"' | '#' | '%' | '\'' | '*' | '/' | ':' | '=' | '?' | '\\' | '{' | '[' | ']' | '^'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hive_and_spark() {
        for (text, name) in [
            ("2026-11-21", "2026-11-21"),
            ("a/b", "a%2Fb"),
            ("..", ".."),
            ("10:11:12", "10%3A11%3A12"),
            ("50%", "50%25"),
            ("a=b", "a%3Db"),
            ("x\u{7f}\n\0", "x%7F%0A%00"),
            ("Ä ü+", "Ä ü+"),
            ("*?{}[]^\\\"'#", "%2A%3F%7B}%5B%5D%5E%5C%22%27%23"),
            ("", ""),
        ] {
            assert_eq!(escape(text), name);
            assert_eq!(unescape(name).as_deref(), Some(text));
        }
        assert_eq!(unescape("100%"), Some("100%".into()));
        assert_eq!(unescape("%zz%2"), Some("%zz%2".into()));
        assert_eq!(unescape("%C3%84"), Some("Ä".into()));
        assert_eq!(unescape("%FF"), None);
    }
}

//! Characters that do not stand for themselves: one table for text, JSON and the report's page.

/// Characters that steer a terminal, end a line, change the order of letters, or cannot be seen: a
/// text with them may look like another one.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // The soft hyphen, and what joins letters without being seen.
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            // Marks of direction, in Arabic and everywhere; blanks without width.
            | '\u{61c}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}'
            // Separators of lines and paragraphs, embeddings and overrides; word joiners, isolates.
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{ffa0}' | '\u{2800}'
            // Marks of shorthand and of music.
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // The mark of byte order, and of notes between lines.
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // Tags: letters that nobody sees.
            | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Text in which such characters are written as `\u{1b}`, but for line breaks and tabs.
pub fn text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) && c != '\n' && c != '\t' {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// JSON in which they are written as `\u001b`. Control characters are escaped there already, and the
/// others stand inside of strings.
pub fn json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        match steers(c) && c != '\n' {
            true => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    shown += &format!("\\u{unit:04x}");
                }
            }
            false => shown.push(c),
        }
    }
    shown
}

/// Text as HTML shows it, in elements and in attributes.
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in self::text(text).chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_is_shown_as_it_is_in_any_form() {
        for c in [
            '\u{1b}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2800}',
            '\u{1d173}',
            '\u{2069}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0041}',
        ] {
            let said = format!("a{c}b");
            let value = serde_json::Value::from(said.as_str());
            for shown in [text(&said), json(&value.to_string()), html(&said)] {
                assert!(!shown.chars().any(steers), "{c:?}: {shown:?}");
            }
            let read: serde_json::Value =
                serde_json::from_str(&json(&value.to_string())).expect("JSON");
            assert_eq!(read, value);
        }
        for plain in ["Zürich, שלום, 日本 😀\u{fe0f}", "a\n\tb"] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(
            html("<a href=\"x\">'&'\u{1}</a>"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\\u{1}&lt;/a&gt;"
        );
    }
}

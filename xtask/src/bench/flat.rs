//! The scalars of a JSON document by their path, enough to read the program's own reports.

use std::collections::BTreeMap;

use crate::step::Failure;

/// Deeper documents are refused: reports have five levels.
const MAX_DEPTH: usize = 32;

/// Scalars by path, such as `connectors.0.load_secs`.
#[derive(Debug)]
pub struct Flat(BTreeMap<String, String>);

impl Flat {
    /// Reads one JSON document. Text that is cut off or followed by more is refused; escapes in
    /// strings stay as they are written.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let mut reader = Reader {
            rest: text,
            found: BTreeMap::new(),
        };
        let read = reader.value("", 0).and_then(|()| match reader.peek() {
            None => Ok(()),
            Some(_) => Err("the end"),
        });
        match read {
            Ok(()) => Ok(Self(reader.found)),
            Err(expected) => Err(Failure::new(format!(
                "the program printed no JSON document: expected {expected} at byte {}",
                text.len() - reader.rest.len()
            ))),
        }
    }

    /// The scalar at `path` as it is written, a string without its quotes.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// The number at `path`; none when it is not there or no number.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.text(path)?.parse().ok()
    }

    /// The number at `path`, which the program always prints.
    pub fn required(&self, path: &str) -> Result<f64, Failure> {
        self.number(path)
            .ok_or_else(|| Failure::new(format!("the report has no number `{path}`")))
    }
}

struct Reader<'a> {
    rest: &'a str,
    found: BTreeMap<String, String>,
}

/// The error says what was expected where the rest begins.
impl<'a> Reader<'a> {
    fn value(&mut self, path: &str, depth: usize) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err("fewer levels");
        }
        match self.peek() {
            Some('{') => self.members(path, depth),
            Some('[') => self.items(path, depth),
            Some('"') => {
                let text = self.string()?;
                self.found.insert(path.to_owned(), text.to_owned());
                Ok(())
            }
            _ => self.bare(path),
        }
    }

    fn members(&mut self, path: &str, depth: usize) -> Result<(), &'static str> {
        self.expect('{', "{")?;
        if self.take('}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(':', "a colon")?;
            self.value(&join(path, key), depth + 1)?;
            if self.take('}') {
                return Ok(());
            }
            self.expect(',', "a comma or }")?;
        }
    }

    fn items(&mut self, path: &str, depth: usize) -> Result<(), &'static str> {
        self.expect('[', "[")?;
        if self.take(']') {
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.value(&join(path, &index.to_string()), depth + 1)?;
            if self.take(']') {
                return Ok(());
            }
            self.expect(',', "a comma or ]")?;
            index += 1;
        }
    }

    fn string(&mut self) -> Result<&'a str, &'static str> {
        self.expect('"', "a string")?;
        let mut escaped = false;
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    let text = &self.rest[..at];
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                _ => {}
            }
        }
        Err("the end of a string")
    }

    /// A number, `true`, `false` or `null`.
    fn bare(&mut self, path: &str) -> Result<(), &'static str> {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(length);
        let number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && text.parse::<f64>().is_ok();
        if !number && !matches!(text, "true" | "false" | "null") {
            return Err("a value");
        }
        self.rest = rest;
        self.found.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        there
    }

    fn expect(&mut self, wanted: char, name: &'static str) -> Result<(), &'static str> {
        if self.take(wanted) { Ok(()) } else { Err(name) }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_at_its_own_level_only() {
        let text = r#"{ "streams": [ { "rows": 1, "x": {} }, { "rows": 2.5e-7 } ],
            "name": "a \"rows\": 9 }", "empty": [], "rows": 3, "from_cache": true }"#;
        let flat = Flat::parse(text).unwrap();
        assert_eq!(flat.number("rows"), Some(3.0));
        assert_eq!(flat.number("streams.0.rows"), Some(1.0));
        assert_eq!(flat.number("streams.1.rows"), Some(2.5e-7));
        assert_eq!(flat.text("name"), Some(r#"a \"rows\": 9 }"#));
        assert_eq!(flat.text("from_cache"), Some("true"));
    }

    #[test]
    fn missing_numbers_are_not_made_up() {
        let flat = Flat::parse(r#"{ "a": "x", "b": null, "c": { "d": 1 } }"#).unwrap();
        for path in ["a", "b", "c", "d", "e"] {
            assert_eq!(flat.number(path), None, "{path}");
        }
        let failure = flat.required("e").unwrap_err();
        assert!(failure.message.contains("`e`"), "{}", failure.message);
    }

    #[test]
    fn a_text_that_is_not_a_document_is_refused() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Flat::parse(&nested(MAX_DEPTH + 1)).is_ok());
        let deep = nested(MAX_DEPTH + 2);
        for text in [
            "",
            "{",
            r#"{ "a": 1"#,
            r#"{ "a" 1 }"#,
            "[1 2]",
            "{} {}",
            "nan",
            "inf",
            r#"" "#,
            &deep,
        ] {
            assert!(Flat::parse(text).is_err(), "{text}");
        }
    }
}

//! Finds values in a JSON text without changing a character of them.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Keys and positions that lead to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    parts: Vec<String>,
    text: String,
}

/// Steps of a path.
const MAX_PARTS: usize = 32;

impl Path {
    /// Reads `data.items` or the JSON Pointer `/data/items`; an empty text is the whole document.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<String> = match text.strip_prefix('/') {
            _ if text.is_empty() => Vec::new(),
            Some(pointer) => pointer
                .split('/')
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
            None => text.split('.').map(str::to_owned).collect(),
        };
        if parts.len() > MAX_PARTS {
            return Err(format!("a path has at most {MAX_PARTS} parts"));
        }
        if !text.starts_with('/') && parts.iter().any(String::is_empty) {
            return Err(format!("{text:?} has an empty part between two dots"));
        }
        Ok(Self {
            parts,
            text: text.into(),
        })
    }

    /// The path to a key of what is there.
    pub fn then(&self, key: &str) -> String {
        let parts = self.parts.iter().map(String::as_str);
        let parts: Vec<&str> = parts.chain([key]).collect();
        let is_pointer = self.text.starts_with('/') || key.is_empty() || key.contains(['.', '/']);
        match is_pointer {
            true => parts
                .iter()
                .map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1")))
                .collect(),
            false => parts.join("."),
        }
    }

    /// The value there, if there is one. In an array a part is a position, from 0, or from the end
    /// on from -1.
    pub fn find<'a>(&self, document: &'a RawValue) -> serde_json::Result<Option<&'a RawValue>> {
        let mut found = document;
        for part in &self.parts {
            let next = match found.get().as_bytes().first() {
                Some(b'{') => entries(found)?
                    .into_iter()
                    .find(|(key, _)| key == part)
                    .map(|(_, value)| value),
                Some(b'[') => {
                    let items = items(found)?;
                    position(part, items.len()).map(|at| items[at])
                }
                _ => None,
            };
            match next {
                Some(value) => found = value,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn position(part: &str, len: usize) -> Option<usize> {
    let at: i64 = part.parse().ok()?;
    let at = if at < 0 {
        i64::try_from(len).ok()? + at
    } else {
        at
    };
    usize::try_from(at).ok().filter(|at| *at < len)
}

/// The keys and values of an object in their order, each as often as it comes.
pub(crate) fn entries(object: &RawValue) -> serde_json::Result<Vec<(Cow<'_, str>, &RawValue)>> {
    struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);
    #[derive(Deserialize)]
    struct Key<'a>(#[serde(borrow)] Cow<'a, str>);
    impl<'de> Deserialize<'de> for Entries<'de> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct All;
            impl<'de> Visitor<'de> for All {
                type Value = Entries<'de>;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Entries<'de>, A::Error> {
                    let mut entries = Vec::new();
                    while let Some((Key(key), value)) =
                        map.next_entry::<Key<'de>, &'de RawValue>()?
                    {
                        entries.push((key, value));
                    }
                    Ok(Entries(entries))
                }
            }
            deserializer.deserialize_map(All)
        }
    }
    serde_json::from_str::<Entries<'_>>(object.get()).map(|entries| entries.0)
}

/// The items of an array.
pub(crate) fn items(array: &RawValue) -> serde_json::Result<Vec<&RawValue>> {
    serde_json::from_str(array.get())
}

/// The text of a string, or of a number or boolean as it is written; nothing for `null`, and for
/// objects and arrays an error that says what they are.
pub(crate) fn scalar(value: &RawValue) -> Result<Option<String>, &'static str> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'{') => Err("an object"),
        Some(b'[') => Err("an array"),
        Some(b'"') => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| "not valid Unicode"),
        _ => Ok(Some(text.to_owned())),
    }
}

/// Appends a value on one line: a line break in a JSON text is only between its parts.
pub(crate) fn push_line(value: &[u8], lines: &mut Vec<u8>) {
    lines.extend(value.iter().map(|b| match b {
        b'\n' | b'\r' => b' ',
        b => *b,
    }));
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_text_as_it_is_written() {
        let document = r#"{"data": {"a.b": [1.10, {"x": "\u00e9"}], "n": null}, "é/~": 1e400}"#;
        let document: &RawValue = serde_json::from_str(document).expect("JSON");
        for (path, expected) in [
            ("data.n", Some("null")),
            ("/data/a.b/0", Some("1.10")),
            ("/data/a.b/-1/x", Some(r#""\u00e9""#)),
            ("/data/a.b/2", None),
            ("/data/a.b/-3", None),
            ("/é~1~0", Some("1e400")),
            ("data.x.y", None),
            ("data.n.y", None),
            ("", Some(document.get())),
        ] {
            let path = Path::parse(path).expect("a path");
            let found = path.find(document).expect("JSON").map(RawValue::get);
            assert_eq!(found, expected, "{path}");
        }
        for (path, key, expected) in [
            ("", "items", "items"),
            ("data", "items", "data.items"),
            ("data", "a.b", "/data/a.b"),
            ("/d~1e", "x~/y", "/d~1e/x~0~1y"),
        ] {
            let to_key = Path::parse(path).expect("a path").then(key);
            assert_eq!(to_key, expected);
            let parts = Path::parse(&to_key).expect("a path").parts;
            assert_eq!(parts.last().map(String::as_str), Some(key));
        }
        assert!(Path::parse("a..b").is_err() && Path::parse(&"a.".repeat(99)).is_err());
    }

    #[test]
    fn a_record_over_several_lines_becomes_one() {
        let mut lines = Vec::new();
        push_line(b"{\n \"a\\n\": 1\r\n}", &mut lines);
        assert_eq!(lines, b"{  \"a\\n\": 1  }\n");
    }
}

//! A number of bytes as a person writes it in a configuration.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Bytes: a number, or a text with `kb`, `mb` or `gb` (also `kib` …), counted in 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl Size {
    fn parse(text: &str) -> Option<Self> {
        let text = text.replace('_', "");
        let text = text.trim();
        let bytes = text
            .strip_suffix(['b', 'B'])
            .filter(|number| number.ends_with(|c: char| c.is_ascii_digit() || c == ' '));
        let parsed = rapidbyte_wire::size::parse(bytes.unwrap_or(text));
        // Too large for 64 bits.
        parsed.filter(|bytes| *bytes < u64::MAX).map(Self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes such as 1000000 or 256mb")
            }
            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text)
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Bytes)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "string", "pattern": "^[0-9_]+ *([bB]|[kKmMgG][iI]?[bB])?$" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_the_pipeline_file() {
        for (text, bytes) in [
            ("1000", Some(1000)),
            ("256mb", Some(256 << 20)),
            ("1 GiB", Some(1 << 30)),
            ("64_000kb", Some(64_000 << 10)),
            ("1.5mb", None),
            ("mb", None),
            ("10 tb", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(Size::parse(text), bytes.map(Size), "{text}");
        }
    }
}

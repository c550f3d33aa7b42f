//! Keys as text: which texts are one key.

use arrow_schema::{DataType, Field};
use serde_json::Value;

/// The key of a field's metadata with the column of PostgreSQL that it is, as JSON.
const POSTGRESQL: &str = "rapidbyte.postgresql";
/// Types of PostgreSQL whose equal values may have different texts.
const SEVERAL: [&str; 5] = ["interval", "citext", "jsonb", "numrange", "nummultirange"];
/// Such a type, of which each value has a shortest text.
const NUMERIC: &str = "numeric";

/// How the texts of a key column tell its values apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyTexts {
    /// Different texts are different keys.
    Exact,
    /// Numbers, of which [`shortest_number`] is one text for each.
    Numbers,
    /// The source has this type, whose equal values may have different texts.
    Several(String),
}

impl KeyTexts {
    /// Those of a column, which may come from PostgreSQL as the server's text.
    pub fn of(field: &Field) -> Self {
        Self::of_postgresql(field).unwrap_or(Self::Exact)
    }

    fn of_postgresql(field: &Field) -> Option<Self> {
        if !matches!(field.data_type(), DataType::Utf8 | DataType::Interval(_)) {
            return None;
        }
        let column = field.metadata().get(POSTGRESQL)?;
        let column: Value = serde_json::from_str(column).ok()?;
        let mut ty = &column["type"];
        while ty["kind"] == "domain" {
            ty = &ty["base"];
        }
        let name = ty["name"].as_str()?;
        Some(match name {
            NUMERIC => Self::Numbers,
            _ if ty["kind"] == "composite" || SEVERAL.contains(&name) => {
                Self::Several(name.to_owned())
            }
            _ => Self::Exact,
        })
    }
}

/// The shortest text of a number without an exponent: 1.0 and 1.00 are 1.
pub fn shortest_number(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ty: &str) -> KeyTexts {
        let metadata = [(POSTGRESQL.to_owned(), format!("{{\"type\":{ty}}}"))];
        let field = Field::new("k", DataType::Utf8, false);
        KeyTexts::of(&field.with_metadata(metadata))
    }

    #[test]
    fn equal_keys_of_postgresql_have_one_text_or_several() {
        let numeric = r#"{"name":"numeric","kind":"base"}"#;
        assert_eq!(of(numeric), KeyTexts::Numbers);
        let domain = format!(r#"{{"name":"amount","kind":"domain","base":{numeric}}}"#);
        assert_eq!(of(&domain), KeyTexts::Numbers);
        let several = KeyTexts::Several("citext".into());
        assert_eq!(of(r#"{"name":"citext","kind":"base"}"#), several);
        let several = KeyTexts::Several("pair".into());
        assert_eq!(of(r#"{"name":"pair","kind":"composite"}"#), several);
        assert_eq!(of(r#"{"name":"inet","kind":"base"}"#), KeyTexts::Exact);
        let plain = Field::new("k", DataType::Utf8, false);
        assert_eq!(KeyTexts::of(&plain), KeyTexts::Exact);
    }

    #[test]
    fn a_number_has_one_shortest_text() {
        for (text, expected) in [
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("100", "100"),
            ("0.00", "0"),
            ("-0.10", "-0.1"),
            ("NaN", "NaN"),
        ] {
            assert_eq!(shortest_number(text), expected);
        }
    }
}

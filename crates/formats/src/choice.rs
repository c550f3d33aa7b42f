//! The choices of an operator about a file, as they are in a connector's configuration.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::{Compression, Format, FormatError, csv};

/// The name of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FormatName {
    /// Comma-separated values, or with another delimiter.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// One JSON document: an array of objects, or one object.
    Json,
    /// Apache Parquet; another crate reads and writes it.
    Parquet,
    /// Arrow IPC, also known as Feather; another crate reads and writes it.
    Arrow,
}

/// The format that follows from a [`Choice`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// A format of this crate.
    Text(Format),
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC.
    Arrow,
}

/// One text or several that stand for NULL; the first one is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullText(pub Vec<String>);

impl<'de> Deserialize<'de> for NullText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = NullText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string (in quotes if it looks like a number) or a list of strings")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<NullText, E> {
                Ok(NullText(vec![text.to_owned()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NullText, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = items.next_element()? {
                    texts.push(text);
                }
                Ok(NullText(texts))
            }
        }
        deserializer.deserialize_any(Texts)
    }
}

impl JsonSchema for NullText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NullText".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } },
            ],
        })
    }
}

/// The choices of an operator about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice<'a> {
    /// Its ending tells the format if nothing else does: `.csv`, `.tsv`, `.jsonl`, `.ndjson`,
    /// `.json`, before an ending that tells a [`Compression`]; `.parquet`, `.pq`, `.arrow`, `.feather`,
    /// `.ipc`.
    pub path: &'a str,
    /// By the path's ending if absent.
    pub format: Option<FormatName>,
    /// One character, `\t` or `tab`. A comma if absent, a tab for `.tsv`.
    pub delimiter: Option<&'a str>,
    /// One character. A double quote if absent.
    pub quote: Option<&'a str>,
    /// True if absent.
    pub header: Option<bool>,
    /// The empty text if absent.
    pub null_text: Option<&'a NullText>,
    /// Of files that are read: the same columns in each if absent.
    pub headers: Option<csv::Headers>,
    /// Of files that are read: none if absent.
    pub true_values: Option<&'a [String]>,
    /// Of files that are read: none if absent.
    pub false_values: Option<&'a [String]>,
}

impl Choice<'_> {
    /// Settles the format. The error's `column` is the key to change.
    ///
    /// Errors: `unknown_format`, `unused_option` (an option of CSV beside another format),
    /// `invalid_dialect`, `compressed_columns` (a file of columns compressed as a whole).
    pub fn settle(&self) -> Result<Chosen, FormatError> {
        let (compression, path) = Compression::of_path(self.path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        let ending = ending.unwrap_or_default().to_ascii_lowercase();
        let told = match ending.as_str() {
            "csv" | "tsv" => Some(FormatName::Csv),
            "jsonl" | "ndjson" => Some(FormatName::Jsonl),
            "json" => Some(FormatName::Json),
            "parquet" | "pq" => Some(FormatName::Parquet),
            "arrow" | "feather" | "ipc" => Some(FormatName::Arrow),
            _ => None,
        };
        let Some(format) = self.format.or(told) else {
            let text = format!("the ending of {:?} does not name a format", self.path);
            return Err(FormatError::new("unknown_format", text)
                .hint("set format: csv, jsonl, parquet or arrow, or json for files that are read")
                .column("format"));
        };
        let columns = match format {
            FormatName::Csv => return self.dialect(&ending).map(|d| Chosen::Text(Format::Csv(d))),
            FormatName::Jsonl => {
                self.without_options("JSON Lines", false)?;
                return Ok(Chosen::Text(Format::Jsonl));
            }
            FormatName::Json => {
                self.without_options("JSON", false)?;
                return Ok(Chosen::Text(Format::Json));
            }
            FormatName::Parquet => ("Parquet", Chosen::Parquet),
            FormatName::Arrow => ("Arrow", Chosen::Arrow),
        };
        self.without_options(columns.0, true)?;
        if compression != Compression::None {
            let text = format!(
                "{:?}: {} is compressed inside its file, not as a whole",
                self.path, columns.0
            );
            return Err(FormatError::new("compressed_columns", text)
                .hint("remove the last ending")
                .column("path"));
        }
        Ok(columns.1)
    }

    fn dialect(&self, ending: &str) -> Result<csv::Dialect, FormatError> {
        let plain = csv::Dialect::default();
        let character = |key: &str, text: Option<&str>, default: u8| match text {
            None => Ok(default),
            Some("\\t" | "tab") => Ok(b'\t'),
            Some(text) => match text.as_bytes() {
                [byte] => Ok(*byte),
                _ => {
                    let text = format!("{text:?} is not a single ASCII character");
                    Err(FormatError::new("invalid_dialect", text).column(key))
                }
            },
        };
        let comma = if ending == "tsv" {
            b'\t'
        } else {
            plain.delimiter
        };
        let dialect = csv::Dialect {
            delimiter: character("delimiter", self.delimiter, comma)?,
            quote: character("quote", self.quote, plain.quote)?,
            header: self.header.unwrap_or(plain.header),
            null_text: self
                .null_text
                .map_or(plain.null_text, |texts| texts.0.clone()),
            headers: self.headers.unwrap_or_default(),
            true_values: self.true_values.unwrap_or_default().to_vec(),
            false_values: self.false_values.unwrap_or_default().to_vec(),
        };
        if !dialect.header && self.headers.is_some() {
            let text = "without a header, no file names its columns";
            return Err(FormatError::new("unused_option", text)
                .hint("remove headers, or remove header: false")
                .column("headers"));
        }
        dialect.validate()?;
        Ok(dialect)
    }

    /// `has_headers`: each file says which columns it has.
    fn without_options(&self, format: &str, has_headers: bool) -> Result<(), FormatError> {
        let options = [
            ("delimiter", self.delimiter.is_some()),
            ("quote", self.quote.is_some()),
            ("header", self.header.is_some()),
            ("null_text", self.null_text.is_some()),
            ("headers", self.headers.is_some() && !has_headers),
            ("true_values", self.true_values.is_some()),
            ("false_values", self.false_values.is_some()),
        ];
        match options.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((key, _)) => {
                let text = format!("{format} has no {key}");
                Err(FormatError::new("unused_option", text)
                    .hint("remove it, or set format: csv")
                    .column(key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(
        path: &str,
        format: Option<FormatName>,
        delimiter: Option<&str>,
    ) -> Result<Chosen, FormatError> {
        let choice = Choice {
            path,
            format,
            delimiter,
            ..Choice::default()
        };
        choice.settle()
    }

    #[test]
    fn the_ending_tells_the_format_unless_it_is_said() {
        let csv = |delimiter| {
            Chosen::Text(Format::Csv(csv::Dialect {
                delimiter,
                ..csv::Dialect::default()
            }))
        };
        let said = Some(FormatName::Csv);
        assert_eq!(settle("a/b.CSV", None, None), Ok(csv(b',')));
        assert_eq!(settle("*.tsv", None, None), Ok(csv(b'\t')));
        assert_eq!(settle("x.tsv", None, Some(";")), Ok(csv(b';')));
        assert_eq!(settle("x.txt", said, Some("\\t")), Ok(csv(b'\t')));
        let jsonl = Chosen::Text(Format::Jsonl);
        assert_eq!(settle("x.ndjson", None, None), Ok(jsonl));
        assert_eq!(settle("x.tsv.gz", None, None), Ok(csv(b'\t')));
        assert_eq!(
            settle("x.jsonl.ZST", None, None),
            Ok(Chosen::Text(Format::Jsonl))
        );
        for path in ["x.json", "x.JSON.gz", "x.json.zst"] {
            assert_eq!(settle(path, None, None), Ok(Chosen::Text(Format::Json)));
        }
        for path in ["a.parquet", "A.PQ"] {
            assert_eq!(settle(path, None, None), Ok(Chosen::Parquet));
        }
        for path in ["a.arrow", "a.feather", "a.ipc"] {
            assert_eq!(settle(path, None, None), Ok(Chosen::Arrow));
        }
        let parquet = Some(FormatName::Parquet);
        assert_eq!(settle("a.csv", parquet, None), Ok(Chosen::Parquet));
        for (path, delimiter, code, key) in [
            ("a.csv/b", None, "unknown_format", "format"),
            ("a.csv", Some("ab"), "invalid_dialect", "delimiter"),
            ("a.jsonl", Some(","), "unused_option", "delimiter"),
            ("a.json", Some(","), "unused_option", "delimiter"),
            ("a.pq", Some(","), "unused_option", "delimiter"),
            ("a.parquet.gz", None, "compressed_columns", "path"),
        ] {
            let error = settle(path, None, delimiter).unwrap_err();
            assert_eq!((error.code, error.column.as_deref()), (code, Some(key)));
        }
    }

    #[test]
    fn a_null_text_is_one_text_or_several() {
        let read = |json: &str| serde_json::from_str::<NullText>(json);
        assert_eq!(read("\"x\"").unwrap(), NullText(vec!["x".into()]));
        assert_eq!(read("[\"\",\"x\"]").unwrap().0.len(), 2);
        for wrong in ["5", "[5]", "{}"] {
            let message = read(wrong).unwrap_err().to_string();
            assert!(message.contains("expected a "), "{message}");
            assert!(!message.contains("untagged"), "{message}");
        }
    }
}

//! Keys that the schema does not have.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use super::lines::duplicate;
use crate::FormatError;
use rapidbyte_wire::name::shown;

/// Names that are remembered for the person who reads about them, and characters of each.
const MAX_NAMES: usize = 20;
const NAME_CHARS: usize = 60;

/// The column that [collects](UnknownKeys::Collect) keys.
pub const REST: &str = "_rest";

/// Keys that are not columns: `add` them as columns, if the columns are inferred and `schema_changes` allows new
/// columns; `collect` them as JSON in the column `_rest`; `ignore` or `refuse` them.
#[derive(serde::Deserialize, schemars::JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UnknownKeys {
    /// The reader infers the columns again. Where it cannot, the stream ends with an error.
    Add,
    /// The column `_rest` takes them.
    Collect,
    /// The stream ends with an error.
    Refuse,
    /// They are left out.
    Ignore,
}

/// The treatment of a key that the schema does not have.
pub(super) enum Unknown {
    /// It is an error.
    Refuse,
    /// It is left out.
    Ignore,
    /// It becomes a member of the object in a column.
    Collect(Box<Collect>),
}

pub(super) struct Collect {
    /// The column's name.
    column: String,
    /// The wanted column.
    target: usize,
    /// The row's object so far, without its closing brace.
    object: String,
    /// The row's keys so far.
    keys: HashSet<String>,
    collected: Collected,
}

/// The keys that were collected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// Rows with such a key.
    pub rows: u64,
    /// The names of the first 20 keys, of each at most 60 characters.
    pub names: BTreeSet<String>,
    /// There are keys that `names` lacks.
    pub more: bool,
}

impl fmt::Display for Collected {
    /// Writes `3 records have keys that are not columns (a, b); the column _rest keeps them`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let more = if self.more { " and more" } else { "" };
        match self.rows {
            1 => f.write_str("1 record has")?,
            rows => write!(f, "{rows} records have")?,
        }
        let names = names.join(", ");
        write!(
            f,
            " keys that are not columns ({names}{more}); the column {REST} keeps them"
        )
    }
}

impl Unknown {
    pub(super) fn collect(column: String, target: usize) -> Self {
        Self::Collect(Box::new(Collect {
            column,
            target,
            object: String::new(),
            keys: HashSet::new(),
            collected: Collected::default(),
        }))
    }

    /// Whether keys are collected in a column of this name.
    pub(super) fn is_column(&self, name: &str) -> bool {
        matches!(self, Self::Collect(collect) if collect.column == name)
    }

    /// The wanted column that keys are collected in.
    pub(super) fn target(&self) -> Option<usize> {
        match self {
            Self::Collect(collect) => Some(collect.target),
            _ => None,
        }
    }

    pub(super) fn collected(&self) -> Option<&Collected> {
        match self {
            Self::Collect(collect) => Some(&collect.collected),
            _ => None,
        }
    }

    /// The error does not have a line.
    pub(super) fn take(&mut self, key: &str, value: &str) -> Result<(), FormatError> {
        let collect = match self {
            Self::Ignore => return Ok(()),
            Self::Collect(collect) => collect,
            Self::Refuse => {
                let text = format!("the key {} is not in the schema", shown(key));
                return Err(FormatError::new("jsonl_unknown_field", text)
                    .hint(
                        "declare it in the schema, raise sample_rows so that the sample contains it, or set \
                             unknown_keys: collect or ignore",
                    )
                    .column(key));
            }
        };
        if !collect.keys.insert(key.to_owned()) {
            return Err(duplicate(key));
        }
        let found = &mut collect.collected;
        let end = key.char_indices().nth(NAME_CHARS);
        let name = &key[..end.map_or(key.len(), |(at, _)| at)];
        if !found.names.contains(name) {
            match found.names.len() < MAX_NAMES {
                true => drop(found.names.insert(name.to_owned())),
                false => found.more = true,
            }
        }
        let object = &mut collect.object;
        object.push(if object.is_empty() { '{' } else { ',' });
        object.push_str(&serde_json::Value::from(key).to_string());
        object.push(':');
        object.push_str(value);
        Ok(())
    }

    /// The row did not become one.
    pub(super) fn forget_row(&mut self) {
        if let Self::Collect(collect) = self {
            collect.keys.clear();
            collect.object.clear();
        }
    }

    /// The row's object; nothing if the row has no such key.
    pub(super) fn end_row(&mut self) -> Option<String> {
        let Self::Collect(collect) = self else {
            return None;
        };
        if collect.object.is_empty() {
            return None;
        }
        collect.keys.clear();
        collect.collected.rows += 1;
        let mut object = std::mem::take(&mut collect.object);
        object.push('}');
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_schema::Schema;
    use rapidbyte_wire::types::parse_field;

    use super::*;
    use crate::{Decoder, Format, Limits};

    fn decoder(wanted: Option<&[String]>) -> Decoder {
        let fields = vec![
            parse_field("id", "int64", false).unwrap(),
            parse_field("_rest", "json", true).unwrap(),
        ];
        let schema = Arc::new(Schema::new(fields));
        Format::Jsonl
            .decoder(schema, wanted, Limits::default())
            .unwrap()
    }

    fn push(decoder: &mut Decoder, lines: &str) -> Result<(), FormatError> {
        decoder.begin_file();
        decoder.push(lines.as_bytes())?;
        decoder.end_of_file()
    }

    #[test]
    fn unknown_keys_are_collected_without_losing_a_character() {
        let mut decoder = decoder(None).collect_unknown("_rest").unwrap();
        let lines = concat!(
            r#"{"new":1.10,"id":1,"a\"b":{"x":[1e400]}}"#,
            "\n{\"id\":2}\n",
            r#"{"id":3,"_rest":{"new":2}}"#,
            "\n"
        );
        push(&mut decoder, lines).unwrap();
        let batch = decoder.take_batch().unwrap().unwrap();
        let rest: Vec<_> = batch.column(1).as_string::<i32>().iter().collect();
        assert_eq!(
            rest,
            [
                Some(r#"{"new":1.10,"a\"b":{"x":[1e400]}}"#),
                None,
                Some(r#"{"_rest":{"new":2}}"#)
            ]
        );
        let collected = decoder.collected().unwrap();
        assert_eq!(collected.rows, 2);
        let names: Vec<_> = collected.names.iter().map(String::as_str).collect();
        assert_eq!(
            (names, collected.more),
            (vec!["_rest", "a\"b", "new"], false)
        );
        let twice = push(&mut decoder, "{\"id\":1,\"x\":1,\"x\":2}\n").unwrap_err();
        assert_eq!(twice.code, "jsonl_duplicate_key");
    }

    #[test]
    fn unknown_keys_are_refused_or_left_out() {
        let refused = push(&mut decoder(None), "{\"id\":1,\"new\":1}\n").unwrap_err();
        assert_eq!(refused.code, "jsonl_unknown_field");
        let mut ignoring = decoder(None).ignore_unknown();
        push(&mut ignoring, "{\"id\":1,\"new\":1}\n").unwrap();
        assert!(ignoring.collected().is_none());
        // A column that nobody wants collects nothing.
        let wanted = ["id".to_owned()];
        let mut unwanted = decoder(Some(&wanted)).collect_unknown("_rest").unwrap();
        push(&mut unwanted, "{\"id\":1,\"new\":1}\n").unwrap();
        assert!(unwanted.collected().is_none());
    }
}

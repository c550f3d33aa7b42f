//! From nodes to values: interpolation, types, and the errors that say where.

use std::fmt;
use std::path::Path as FilePath;

use serde_json::{Map, Value};

use super::environment::Variables;
use super::error::{DocumentError, Location, code};
use super::interpolate::{self, Part};
use super::node::{Entry, Node, NodeValue, Scalar};
use super::path::{self, Path, Step};
use super::secrets::Secrets;
use super::{core, file};

/// The content of one `${file:…}`.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// All values from the environment and from files together: a file may name one value often.
const MAX_INTERPOLATED_BYTES: usize = 16 << 20;

/// What reading needs beside the tree, and what it remembers.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) base_dir: &'a FilePath,
    pub(super) variables: &'a Variables<'a>,
    /// What came from outside of the document so far.
    pub(super) secrets: Secrets,
    /// Bytes of interpolated text so far.
    pub(super) interpolated: usize,
}

/// A scalar after interpolation.
pub(super) struct Text {
    pub(super) text: String,
    quoted: bool,
    /// It holds something from the environment or a file, and is not to be shown.
    pub(super) secret: bool,
}

/// A value and the way to it.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) node: &'a Node,
    /// The place of its key; an item of a list has none, and gives its own.
    pub(super) key_at: Location,
    pub(super) path: Path<'a>,
}

impl<'a> Spot<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Self {
            node,
            key_at: node.at,
            path: Path::ROOT,
        }
    }

    /// Where a mistake in the value is shown: a scalar's own place, a collection's key.
    pub(super) fn place(&self) -> Location {
        self.node.place(self.key_at)
    }

    pub(super) fn below<'b>(&'b self, entry: &'b Entry) -> Spot<'b> {
        Spot {
            node: &entry.value,
            key_at: entry.at,
            path: self.path.then(Step::Key(&entry.key)),
        }
    }

    /// The entries of a mapping; none of anything else.
    pub(super) fn entries(&self) -> &'a [Entry] {
        match &self.node.value {
            NodeValue::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key that is in the file.
    pub(super) fn key(&self, key: &str) -> Option<Spot<'_>> {
        let entry = self.entries().iter().find(|entry| entry.key == key);
        entry.map(|entry| self.below(entry))
    }

    /// The items of a list; none of anything else.
    pub(super) fn items(&self) -> impl Iterator<Item = Spot<'_>> {
        let items = match &self.node.value {
            NodeValue::Sequence(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().enumerate().map(|(index, node)| Spot {
            node,
            key_at: node.at,
            path: self.path.then(Step::Index(index)),
        })
    }
}

impl fmt::Display for Spot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Text {
    /// How to speak of it in a message: as it is written in the file.
    pub(super) fn shown(&self, at: &Spot<'_>) -> String {
        let NodeValue::Scalar(scalar) = &at.node.value else {
            return String::new();
        };
        let shown = path::shown(&scalar.text);
        if self.secret {
            format!("the value of \"{shown}\"")
        } else {
            format!("\"{shown}\"")
        }
    }
}

impl Reader<'_> {
    pub(super) fn error(
        &self,
        code: &'static str,
        place: Location,
        path: &Path<'_>,
        message: impl Into<String>,
    ) -> DocumentError {
        DocumentError::whole(code, self.file, message)
            .at(place)
            .path(path.to_string())
    }

    pub(super) fn bad_value(&self, at: &Spot<'_>, message: impl Into<String>) -> DocumentError {
        self.error(code::BAD_VALUE, at.place(), &at.path, message)
    }

    /// A key of the mapping at `at` has no use there; also one that the file does not hold.
    pub(super) fn bad_key(&self, at: &Spot<'_>, key: &str, message: String) -> DocumentError {
        let place = at.key(key).map_or(at.node.at, |below| below.key_at);
        let path = at.path.then(Step::Key(key));
        self.error(code::BAD_VALUE, place, &path, message)
    }

    /// The value is not `expected`.
    pub(super) fn wrong_type(
        &self,
        place: Location,
        at: &Spot<'_>,
        expected: &str,
    ) -> DocumentError {
        let message = format!("{at} must be {expected}, but is {}", at.node.kind());
        self.error(code::WRONG_TYPE, place, &at.path, message)
    }

    /// The entries of a mapping.
    pub(super) fn mapping<'n>(&self, at: &Spot<'n>) -> Result<&'n [Entry], DocumentError> {
        match &at.node.value {
            NodeValue::Mapping(entries) => Ok(entries),
            _ => Err(self
                .wrong_type(at.place(), at, "a mapping")
                .hint("write its keys below it, indented by two spaces")),
        }
    }

    /// A scalar after interpolation, before it has a type.
    pub(super) fn text(&mut self, at: &Spot<'_>) -> Result<Text, DocumentError> {
        match &at.node.value {
            NodeValue::Scalar(scalar) => self.interpolate(scalar, at),
            _ => Err(self.wrong_type(at.node.at, at, "a single value")),
        }
    }

    /// Text that is not empty.
    pub(super) fn name(&mut self, at: &Spot<'_>) -> Result<String, DocumentError> {
        if !matches!(at.node.value, NodeValue::Scalar(_)) {
            return Err(self.wrong_type(at.node.at, at, "a string"));
        }
        let text = self.text(at)?;
        let found = match self.typed(&text, at)? {
            Value::String(text) if !text.trim().is_empty() => return Ok(text),
            Value::String(_) | Value::Null => {
                return Err(self.bad_value(at, format!("{at} is empty")));
            }
            Value::Bool(_) => "true or false",
            _ => "a number",
        };
        let message = format!("{at} must be a string, but is {found}");
        let error = self.error(code::WRONG_TYPE, at.place(), &at.path, message);
        Err(error.hint("put it in quotes"))
    }

    /// A whole mapping as JSON.
    pub(super) fn object(&mut self, at: &Spot<'_>) -> Result<Map<String, Value>, DocumentError> {
        let mut map = Map::new();
        for entry in self.mapping(at)? {
            let value = self.json(&at.below(entry))?;
            map.insert(entry.key.clone(), value);
        }
        Ok(map)
    }

    fn json(&mut self, at: &Spot<'_>) -> Result<Value, DocumentError> {
        match &at.node.value {
            NodeValue::Scalar(_) => {
                let text = self.text(at)?;
                self.typed(&text, at)
            }
            NodeValue::Sequence(_) => {
                let items = at.items().map(|item| self.json(&item));
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            NodeValue::Mapping(_) => self.object(at).map(Value::Object),
        }
    }

    /// The value of a scalar: text if it is quoted, else by the core schema.
    fn typed(&self, text: &Text, at: &Spot<'_>) -> Result<Value, DocumentError> {
        if text.quoted {
            return Ok(Value::String(text.text.clone()));
        }
        core::value(&text.text).map_err(|refused| {
            let message = format!("{at}: {} is {}", text.shown(at), refused.message);
            self.bad_value(at, message).hint(refused.hint)
        })
    }

    fn interpolate(&mut self, scalar: &Scalar, at: &Spot<'_>) -> Result<Text, DocumentError> {
        let mut text = String::new();
        let mut secret = false;
        let parts = interpolate::parts(&scalar.text).map_err(|bad| {
            let message = format!("{at}: {}", bad.message);
            let error = self.error(code::INVALID_INTERPOLATION, at.place(), &at.path, message);
            error.hint(bad.hint)
        })?;
        for part in parts {
            let outside = match part {
                Part::Literal(literal) => {
                    text.push_str(literal);
                    continue;
                }
                Part::Variable { name, default } => match (self.variable(name, at)?, default) {
                    (Some(value), None) => value,
                    (Some(value), Some(_)) if !value.is_empty() => value,
                    (_, Some(default)) => {
                        text.push_str(&default.replace("$$", "$"));
                        continue;
                    }
                    (None, None) => return Err(self.unset(name, at)),
                },
                Part::File(name) => self.content(name, at)?,
            };
            self.interpolated = self.interpolated.saturating_add(outside.len());
            if self.interpolated > MAX_INTERPOLATED_BYTES {
                let limit = MAX_INTERPOLATED_BYTES >> 20;
                let message = format!("{at}: the values of all ${{…}} together exceed {limit} MiB");
                return Err(self.bad_value(at, message));
            }
            text.push_str(&outside);
            secret = true;
            self.remember(outside);
        }
        Ok(Text {
            text,
            quoted: scalar.quoted,
            secret,
        })
    }

    fn remember(&mut self, value: String) {
        self.secrets.add(&value);
    }

    fn variable(&self, name: &str, at: &Spot<'_>) -> Result<Option<String>, DocumentError> {
        self.variables.get(name).map_err(|_| {
            let message = format!("{at}: the variable {name} is not UTF-8 text");
            self.bad_value(at, message)
        })
    }

    /// The value of a variable that must be set; it is not shown from now on.
    pub(super) fn required(&mut self, name: &str, at: &Spot<'_>) -> Result<String, DocumentError> {
        let value = self.variable(name, at)?;
        let value = value.ok_or_else(|| {
            self.unset(name, at)
                .hint("set it in the environment or in .env")
        })?;
        self.remember(value.clone());
        Ok(value)
    }

    fn unset(&self, name: &str, at: &Spot<'_>) -> DocumentError {
        let not_read = self.variables.not_read.as_ref();
        let not_read = not_read.map_or(String::new(), |why| format!("; {why}, and was not read"));
        let message = format!("{at}: the variable {name} is not set{not_read}");
        self.error(code::UNSET_VARIABLE, at.place(), &at.path, message)
            .hint(format!(
                "set it in the environment or in .env, or give a default: ${{{name}:-…}}"
            ))
    }

    /// What a file holds, without its last line break.
    fn content(&self, name: &str, at: &Spot<'_>) -> Result<String, DocumentError> {
        let text = file::read_text(&self.base_dir.join(name), MAX_FILE_BYTES);
        let mut text = text.map_err(|problem| {
            let message = format!("{at}: the file {name} {}", problem.message);
            let error = self.error(problem.code, at.place(), &at.path, message);
            if problem.code == code::FILE_NOT_FOUND {
                return error.hint(
                    "write the path relative to the pipeline's directory, or \
                     absolute",
                );
            }
            error
        })?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        Ok(text)
    }
}

/// The known name that was most likely meant.
pub(super) fn nearest<'n>(word: &str, known: &[&'n str]) -> Option<&'n str> {
    // Enough for a swap and a slip in a long key, and for one slip in `use`.
    let limit = (word.chars().count() / 3).clamp(1, 3);
    if word.len() > 64 {
        return None;
    }
    if let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(word)) {
        return Some(name);
    }
    known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), *name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

//! From nodes to values: interpolation, types, and the errors that say where.

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
    secret: bool,
}

impl Text {
    /// How to speak of it in a message: as it is written in the file.
    pub(super) fn shown(&self, node: &Node) -> String {
        let NodeValue::Scalar(scalar) = &node.value else {
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
    /// An error at the place of `node`.
    pub(super) fn error(
        &self,
        code: &'static str,
        at: Location,
        path: &Path<'_>,
        message: impl Into<String>,
    ) -> DocumentError {
        DocumentError::whole(code, self.file, message)
            .at(at)
            .path(path.to_string())
    }

    pub(super) fn bad_value(
        &self,
        at: Location,
        path: &Path<'_>,
        message: impl Into<String>,
    ) -> DocumentError {
        self.error(code::BAD_VALUE, at, path, message)
    }

    /// `path` is not `expected`.
    pub(super) fn wrong_type(
        &self,
        at: Location,
        path: &Path<'_>,
        expected: &str,
        found: &str,
    ) -> DocumentError {
        let message = format!("{path} must be {expected}, but is {found}");
        self.error(code::WRONG_TYPE, at, path, message)
    }

    /// The entries of a mapping; `at` is where to complain.
    pub(super) fn mapping<'n>(
        &self,
        entry: &'n Entry,
        path: &Path<'_>,
    ) -> Result<&'n [Entry], DocumentError> {
        match &entry.value.value {
            NodeValue::Mapping(entries) => Ok(entries),
            _ => Err(self
                .wrong_type(entry.place(), path, "a mapping", entry.value.kind())
                .hint("write its keys below it, indented by two spaces")),
        }
    }

    /// The items of a list that has some.
    pub(super) fn list<'n>(
        &self,
        entry: &'n Entry,
        path: &Path<'_>,
        example: &str,
    ) -> Result<&'n [std::sync::Arc<Node>], DocumentError> {
        match &entry.value.value {
            NodeValue::Sequence(items) if !items.is_empty() => Ok(items),
            NodeValue::Sequence(_) => Err(self
                .bad_value(entry.place(), path, format!("{path} is an empty list"))
                .hint(format!("write {example}"))),
            _ => Err(self
                .wrong_type(entry.place(), path, "a list", entry.value.kind())
                .hint(format!("write {example}"))),
        }
    }

    /// A scalar after interpolation, before it has a type.
    pub(super) fn text(&mut self, node: &Node, path: &Path<'_>) -> Result<Text, DocumentError> {
        match &node.value {
            NodeValue::Scalar(scalar) => self.interpolate(scalar, node.at, path),
            _ => Err(self.wrong_type(node.at, path, "a single value", node.kind())),
        }
    }

    /// Text that is not empty.
    pub(super) fn name(&mut self, node: &Node, path: &Path<'_>) -> Result<String, DocumentError> {
        if !matches!(node.value, NodeValue::Scalar(_)) {
            return Err(self.wrong_type(node.at, path, "a string", node.kind()));
        }
        let text = self.text(node, path)?;
        match self.typed(&text, node, path) {
            Ok(Value::String(text)) if !text.trim().is_empty() => Ok(text),
            Ok(Value::String(_) | Value::Null) => {
                Err(self.bad_value(node.at, path, format!("{path} is empty")))
            }
            Ok(Value::Bool(_)) => Err(self
                .wrong_type(node.at, path, "a string", "true or false")
                .hint("put it in quotes")),
            Ok(_) => Err(self
                .wrong_type(node.at, path, "a string", "a number")
                .hint("put it in quotes")),
            Err(error) => Err(error),
        }
    }

    /// Text that is one of `names`, by its position in them.
    pub(super) fn one_of(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        names: &[&str],
    ) -> Result<usize, DocumentError> {
        let text = self.text(node, path)?;
        if let Some(position) = names.iter().position(|name| *name == text.text) {
            return Ok(position);
        }
        let message = format!("{path} cannot be {}", text.shown(node));
        let error = self.bad_value(node.at, path, message);
        Err(match nearest(&text.text, names) {
            Some(name) if !text.secret => error.hint(format!("did you mean {name:?}?")),
            _ => error.hint(format!("use one of: {}", names.join(", "))),
        })
    }

    /// Names that are not empty, each once; the items of a list.
    pub(super) fn names(
        &mut self,
        entry: &Entry,
        path: &Path<'_>,
        example: &str,
    ) -> Result<Vec<String>, DocumentError> {
        let mut names: Vec<String> = Vec::new();
        let mut lines = std::collections::HashMap::new();
        for (index, item) in self.list(entry, path, example)?.iter().enumerate() {
            let step = Step::Index(index);
            let path = path.then(&step);
            let name = self.name(item, &path)?;
            if let Some(line) = lines.insert(name.clone(), item.at.line) {
                let shown = self.text(item, &path)?.shown(item);
                let message = format!("{shown} is already in line {line}");
                return Err(self
                    .bad_value(item.at, &path, message)
                    .hint("remove one of them"));
            }
            names.push(name);
        }
        Ok(names)
    }

    /// A mapping of names to names, each value once.
    pub(super) fn pairs(
        &mut self,
        entry: &Entry,
        path: &Path<'_>,
    ) -> Result<Vec<(String, String)>, DocumentError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for entry in self.mapping(entry, path)? {
            let step = Step::Key(&entry.key);
            let path = path.then(&step);
            let to = self.name(&entry.value, &path)?;
            if pairs.iter().any(|(_, other)| *other == to) {
                let message = format!("{path}: another column is also renamed to {to:?}");
                return Err(self.bad_value(entry.value.at, &path, message));
            }
            pairs.push((entry.key.clone(), to));
        }
        Ok(pairs)
    }

    /// A whole mapping as JSON.
    pub(super) fn object(
        &mut self,
        entry: &Entry,
        path: &Path<'_>,
    ) -> Result<Map<String, Value>, DocumentError> {
        self.mapping(entry, path)?;
        match self.json(&entry.value, path)? {
            Value::Object(map) => Ok(map),
            _ => Ok(Map::new()),
        }
    }

    fn json(&mut self, node: &Node, path: &Path<'_>) -> Result<Value, DocumentError> {
        match &node.value {
            NodeValue::Scalar(_) => {
                let text = self.text(node, path)?;
                self.typed(&text, node, path)
            }
            NodeValue::Sequence(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    let step = Step::Index(index);
                    self.json(item, &path.then(&step))
                });
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            NodeValue::Mapping(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    let step = Step::Key(&entry.key);
                    let value = self.json(&entry.value, &path.then(&step))?;
                    map.insert(entry.key.clone(), value);
                }
                Ok(Value::Object(map))
            }
        }
    }

    /// The value of a scalar: text if it is quoted, else by the core schema.
    fn typed(&self, text: &Text, node: &Node, path: &Path<'_>) -> Result<Value, DocumentError> {
        if text.quoted {
            return Ok(Value::String(text.text.clone()));
        }
        core::value(&text.text).map_err(|refused| {
            let message = format!("{path}: {} is {}", text.shown(node), refused.message);
            self.bad_value(node.at, path, message).hint(refused.hint)
        })
    }

    fn interpolate(
        &mut self,
        scalar: &Scalar,
        at: Location,
        path: &Path<'_>,
    ) -> Result<Text, DocumentError> {
        let mut text = String::new();
        let mut secret = false;
        let parts = interpolate::parts(&scalar.text).map_err(|bad| {
            self.error(
                code::INVALID_INTERPOLATION,
                at,
                path,
                format!("{path}: {}", bad.message),
            )
            .hint(bad.hint)
        })?;
        for part in parts {
            let outside = match part {
                Part::Literal(literal) => {
                    text.push_str(literal);
                    continue;
                }
                Part::Variable { name, default } => match (self.variable(name, at, path)?, default)
                {
                    (Some(value), None) => value,
                    (Some(value), Some(_)) if !value.is_empty() => value,
                    (_, Some(default)) => {
                        text.push_str(&default.replace("$$", "$"));
                        continue;
                    }
                    (None, None) => return Err(self.unset(name, at, path)),
                },
                Part::File(name) => self.content(name, at, path)?,
            };
            self.interpolated = self.interpolated.saturating_add(outside.len());
            if self.interpolated > MAX_INTERPOLATED_BYTES {
                let limit = MAX_INTERPOLATED_BYTES >> 20;
                let message =
                    format!("{path}: the values of all ${{…}} together exceed {limit} MiB");
                return Err(self.bad_value(at, path, message));
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

    fn variable(
        &self,
        name: &str,
        at: Location,
        path: &Path<'_>,
    ) -> Result<Option<String>, DocumentError> {
        self.variables.get(name).map_err(|_| {
            let message = format!("{path}: the variable {name} is not UTF-8 text");
            self.bad_value(at, path, message)
        })
    }

    /// The value of a variable that must be set; it is not shown from now on.
    pub(super) fn required(
        &mut self,
        name: &str,
        at: Location,
        path: &Path<'_>,
    ) -> Result<String, DocumentError> {
        let value = self.variable(name, at, path)?;
        let value = value.ok_or_else(|| {
            self.unset(name, at, path)
                .hint("set it in the environment or in .env")
        })?;
        self.remember(value.clone());
        Ok(value)
    }

    fn unset(&self, name: &str, at: Location, path: &Path<'_>) -> DocumentError {
        let not_read = self.variables.not_read.as_ref();
        let not_read = not_read.map_or(String::new(), |why| format!("; {why}, and was not read"));
        let message = format!("{path}: the variable {name} is not set{not_read}");
        self.error(code::UNSET_VARIABLE, at, path, message)
            .hint(format!(
                "set it in the environment or in .env, or give a default: ${{{name}:-…}}"
            ))
    }

    /// What a file holds, without its last line break.
    fn content(&self, name: &str, at: Location, path: &Path<'_>) -> Result<String, DocumentError> {
        let text = file::read_text(&self.base_dir.join(name), MAX_FILE_BYTES);
        let mut text = text.map_err(|problem| {
            let message = format!("{path}: the file {name} {}", problem.message);
            let error = self.error(problem.code, at, path, message);
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

//! From nodes to values: interpolation, types, and the errors that say where.

use std::cell::Cell;
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::environment::Variables;
use super::error::{DocumentError, Location, Result, code};
use super::interpolate::{self, Part};
use super::node::{Entry, Node, NodeValue, Scalar};
use super::path::{self, Step};
use super::secrets::Secrets;
use super::{core, file};

/// The content of one `${file:…}`.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// All values from the environment and from files together: a file may name one value often.
const MAX_INTERPOLATED_BYTES: usize = 16 << 20;

/// The surroundings and the state of a read.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) base_dir: &'a Path,
    pub(super) variables: &'a Variables<'a>,
    /// The values from outside of the document so far.
    pub(super) secrets: Secrets,
    /// Bytes of interpolated text so far.
    interpolated: Cell<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, base_dir: &'a Path, variables: &'a Variables<'a>) -> Self {
        Self {
            file,
            base_dir,
            variables,
            secrets: Secrets::default(),
            interpolated: Cell::new(0),
        }
    }
}

/// A value, the way to it, and what reads it.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    reader: &'a Reader<'a>,
    pub(super) node: &'a Node,
    /// The place of its key; an item of a list has none, and gives its own.
    pub(super) key_at: Location,
    above: Option<&'a Spot<'a>>,
    pub(super) step: Option<Step<'a>>,
}

/// A scalar after interpolation.
pub(super) struct Text<'a> {
    pub(super) text: String,
    scalar: &'a Scalar,
    /// It holds something from the environment or a file, and is not to be shown.
    pub(super) secret: bool,
}

impl Text<'_> {
    /// How to speak of it in a message: as it is written in the file.
    pub(super) fn shown(&self) -> String {
        let shown = path::shown(&self.scalar.text);
        match self.secret {
            true => format!("the value of \"{shown}\""),
            false => format!("\"{shown}\""),
        }
    }
}

impl fmt::Display for Spot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path())
    }
}

// The way through the tree.
impl<'a> Spot<'a> {
    pub(super) fn root(reader: &'a Reader<'a>, node: &'a Node) -> Self {
        Self {
            reader,
            node,
            key_at: node.at,
            above: None,
            step: None,
        }
    }

    pub(super) fn path(&self) -> String {
        let mut path = self.above.map_or(String::new(), Spot::path);
        if let Some(step) = &self.step {
            path::push(&mut path, step);
        }
        path
    }

    /// The way to a key that may be absent.
    fn path_to(&self, key: &str) -> String {
        let mut path = self.path();
        path::push(&mut path, &Step::Key(key));
        path
    }

    /// Where a mistake in the value is shown: a scalar's own place, a collection's key.
    pub(super) fn place(&self) -> Location {
        self.node.place(self.key_at)
    }

    pub(super) fn below<'b>(&'b self, entry: &'b Entry) -> Spot<'b> {
        Spot {
            node: &entry.value,
            key_at: entry.at,
            above: Some(self),
            step: Some(Step::Key(&entry.key)),
            reader: self.reader,
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
            above: Some(self),
            step: Some(Step::Index(index)),
            reader: self.reader,
        })
    }
}

// Secrets.
impl Spot<'_> {
    /// The value is a secret of the document, wherever it comes from.
    pub(super) fn keep_secret(&self, value: &str) {
        self.reader.secrets.add(value);
    }

    /// The user and the password of a URL are secrets of the document.
    pub(super) fn keep_credentials(&self, url: &str) {
        self.reader.secrets.add_credentials(url);
    }
}

// Errors.
impl Spot<'_> {
    pub(super) fn error(&self, code: &'static str, message: impl Into<String>) -> DocumentError {
        DocumentError::whole(code, self.reader.file, message)
            .at(self.place())
            .path(self.path())
    }

    pub(super) fn bad_value(&self, message: impl Into<String>) -> DocumentError {
        self.error(code::BAD_VALUE, message)
    }

    /// The value is not `expected`.
    pub(super) fn wrong_type(&self, expected: &str) -> DocumentError {
        let message = format!("{self} must be {expected}, but is {}", self.node.kind());
        self.error(code::WRONG_TYPE, message)
    }

    /// A mistake in a key of this mapping, even if the file does not hold the key.
    pub(super) fn bad_key(&self, key: &str, message: String) -> DocumentError {
        let place = self.key(key).map_or(self.node.at, |below| below.key_at);
        let error = self.bad_value(message).at(place);
        error.path(self.path_to(key))
    }

    pub(super) fn missing(&self, key: &str, hint: &str) -> DocumentError {
        let path = self.path_to(key);
        let error = self.error(code::MISSING_KEY, format!("the key {path} is missing"));
        error.path(path).hint(hint)
    }
}

// The value.
impl<'a> Spot<'a> {
    /// The entries of a mapping.
    pub(super) fn mapping(&self) -> Result<&'a [Entry]> {
        match &self.node.value {
            NodeValue::Mapping(entries) => Ok(entries),
            _ => Err(self
                .wrong_type("a mapping")
                .hint("write its keys below it, indented by two spaces")),
        }
    }

    /// A scalar after interpolation, before it has a type.
    pub(super) fn text(&self) -> Result<Text<'a>> {
        match &self.node.value {
            NodeValue::Scalar(scalar) => self.interpolate(scalar),
            _ => Err(self.wrong_type("a single value").at(self.node.at)),
        }
    }

    /// Text that is not empty.
    pub(super) fn name(&self) -> Result<String> {
        if !matches!(self.node.value, NodeValue::Scalar(_)) {
            return Err(self.wrong_type("a string").at(self.node.at));
        }
        let found = match self.json()? {
            Value::String(text) if !text.trim().is_empty() => return Ok(text),
            Value::String(_) | Value::Null => {
                return Err(self.bad_value(format!("{self} is empty")));
            }
            Value::Bool(_) => "true or false",
            _ => "a number",
        };
        let message = format!("{self} must be a string, but is {found}");
        let error = self.error(code::WRONG_TYPE, message);
        Err(error.hint("put it in quotes"))
    }

    /// A whole mapping as JSON.
    pub(super) fn object(&self) -> Result<Map<String, Value>> {
        let entries = self.mapping()?.iter();
        let values = entries.map(|entry| Ok((entry.key.clone(), self.below(entry).json()?)));
        values.collect()
    }

    fn json(&self) -> Result<Value> {
        match &self.node.value {
            NodeValue::Scalar(scalar) => {
                let text = self.text()?;
                if scalar.quoted {
                    return Ok(Value::String(text.text));
                }
                core::value(&text.text).map_err(|refused| {
                    let message = format!("{self}: {} is {}", text.shown(), refused.message);
                    self.bad_value(message).hint(refused.hint)
                })
            }
            NodeValue::Sequence(_) => {
                let items = self.items().map(|item| item.json());
                items.collect::<Result<_>>().map(Value::Array)
            }
            NodeValue::Mapping(_) => self.object().map(Value::Object),
        }
    }

    fn interpolate(&self, scalar: &'a Scalar) -> Result<Text<'a>> {
        let mut text = String::new();
        let mut secret = false;
        let parts = interpolate::parts(&scalar.text).map_err(|bad| {
            let message = format!("{self}: {}", bad.message);
            let error = self.error(code::INVALID_INTERPOLATION, message);
            error.hint(bad.hint)
        })?;
        for part in parts {
            let outside = match part {
                Part::Literal(literal) => {
                    text.push_str(literal);
                    continue;
                }
                Part::Variable { name, default } => match (self.variable(name)?, default) {
                    (Some(value), None) => value,
                    (Some(value), Some(_)) if !value.is_empty() => value,
                    (_, Some(default)) => {
                        text.push_str(&default.replace("$$", "$"));
                        continue;
                    }
                    (None, None) => return Err(self.unset(name)),
                },
                Part::File(name) => self.content(name)?,
            };
            let interpolated = &self.reader.interpolated;
            interpolated.set(interpolated.get().saturating_add(outside.len()));
            if interpolated.get() > MAX_INTERPOLATED_BYTES {
                let limit = MAX_INTERPOLATED_BYTES >> 20;
                let message =
                    format!("{self}: the values of all ${{…}} together exceed {limit} MiB");
                return Err(self.bad_value(message));
            }
            text.push_str(&outside);
            secret = true;
            self.reader.secrets.add(&outside);
        }
        Ok(Text {
            text,
            scalar,
            secret,
        })
    }

    fn variable(&self, name: &str) -> Result<Option<String>> {
        self.reader.variables.get(name).map_err(|_| {
            let message = format!("{self}: the variable {name} is not UTF-8 text");
            self.bad_value(message)
        })
    }

    /// The value of a variable that must be set; it is not shown from now on.
    pub(super) fn required(&self, name: &str) -> Result<String> {
        let value = self.variable(name)?.ok_or_else(|| {
            let error = self.unset(name);
            error.hint("set it in the environment or in .env")
        })?;
        self.reader.secrets.add(&value);
        Ok(value)
    }

    fn unset(&self, name: &str) -> DocumentError {
        let not_read = self.reader.variables.not_read.as_ref();
        let not_read = not_read.map_or(String::new(), |why| format!("; {why}, and was not read"));
        let message = format!("{self}: the variable {name} is not set{not_read}");
        let hint =
            format!("set it in the environment or in .env, or give a default: ${{{name}:-…}}");
        self.error(code::UNSET_VARIABLE, message).hint(hint)
    }

    /// The content of a file, without its last line break.
    fn content(&self, name: &str) -> Result<String> {
        let text = file::read_text(&self.reader.base_dir.join(name), MAX_FILE_BYTES);
        let mut text = text.map_err(|problem| {
            let message = format!("{self}: the file {name} {}", problem.message);
            let error = self.error(problem.code, message);
            match problem.code {
                code::FILE_NOT_FOUND => {
                    error.hint("write the path relative to the pipeline's directory, or absolute")
                }
                _ => error,
            }
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

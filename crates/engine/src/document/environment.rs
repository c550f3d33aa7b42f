//! Where `${NAME}` gets its value: the real environment, then a `.env` file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{DocumentError, Location, code};
use super::file;

/// A `.env` file of more is not read.
const MAX_ENV_FILE_BYTES: u64 = 1 << 20;

/// The variables that a pipeline file can name.
///
/// The real environment wins over the `.env` file. By default that file is `.env` beside the
/// pipeline file, and may be absent.
pub struct Environment<'a> {
    pub(super) lookup: Box<Lookup<'a>>,
    pub(super) env_file: EnvFile,
}

pub(super) type Lookup<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

pub(super) enum EnvFile {
    /// `.env` in the pipeline's folder, if it is there.
    Beside,
    /// This one, which must be there.
    Named(PathBuf),
    None,
}

impl Environment<'static> {
    /// The variables of this process.
    pub fn process() -> Self {
        Self {
            lookup: Box::new(|name| std::env::var_os(name)),
            env_file: EnvFile::Beside,
        }
    }
}

impl<'a> Environment<'a> {
    /// Variables from a function, without regard to the process.
    pub fn from_fn(lookup: impl Fn(&str) -> Option<String> + 'a) -> Self {
        Self {
            lookup: Box::new(move |name| lookup(name).map(OsString::from)),
            env_file: EnvFile::Beside,
        }
    }

    /// Reads this file in place of the `.env` beside the pipeline; it must exist. A relative
    /// path is relative to the working directory.
    #[must_use]
    pub fn with_env_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.env_file = EnvFile::Named(path.into());
        self
    }

    /// Reads no `.env` file.
    #[must_use]
    pub fn without_env_file(mut self) -> Self {
        self.env_file = EnvFile::None;
        self
    }

    /// Reads the `.env` file, if there is one to be read.
    pub(super) fn open(&self, base_dir: &Path) -> Result<Variables<'_>, DocumentError> {
        let (path, required) = match &self.env_file {
            EnvFile::None => (None, false),
            // A folder of that name is a habit of Python's virtual environments.
            EnvFile::Beside => {
                let path = base_dir.join(".env");
                ((!path.is_dir()).then_some(path), false)
            }
            EnvFile::Named(path) => (Some(path.clone()), true),
        };
        let mut from_file = BTreeMap::new();
        if let Some(path) = path {
            let shown = path.display().to_string();
            match file::read_text(&path, MAX_ENV_FILE_BYTES) {
                Ok(text) => from_file = parse(&text, &shown)?,
                Err(problem) if problem.code == code::FILE_NOT_FOUND && !required => {}
                Err(problem) => return Err(problem.into_error(&shown, "the env file")),
            }
        }
        Ok(Variables {
            lookup: &*self.lookup,
            from_file,
        })
    }
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}

/// An [`Environment`] whose file has been read.
pub(super) struct Variables<'a> {
    lookup: &'a Lookup<'a>,
    from_file: BTreeMap<String, String>,
}

/// The variable is set, to bytes that are not UTF-8.
pub(super) struct NotUtf8;

impl Variables<'_> {
    pub(super) fn get(&self, name: &str) -> Result<Option<String>, NotUtf8> {
        match (self.lookup)(name) {
            Some(value) => value.into_string().map(Some).map_err(|_| NotUtf8),
            None => Ok(self.from_file.get(name).cloned()),
        }
    }
}

/// Whether `${name}` may name it.
pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads the lines of a `.env` file: `NAME=value`, with or without `export` before it.
///
/// A value without quotes ends at the end of the line or before ` #`; white space around it is
/// dropped. In single quotes everything stands for itself. In double quotes `\n`, `\r`, `\t`,
/// `\\`, `\"` and `\$` are escapes. A quoted value may hold line breaks. `$` stands for itself.
fn parse(text: &str, file: &str) -> Result<BTreeMap<String, String>, DocumentError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut values = BTreeMap::new();
    let mut lines_of: BTreeMap<String, u32> = BTreeMap::new();
    let mut reader = Lines {
        file,
        rest: text,
        line: 1,
    };
    while let Some((name, value, line)) = reader.next_assignment()? {
        if let Some(earlier) = lines_of.insert(name.clone(), line) {
            let message = format!("{name} is already set in line {earlier}");
            return Err(reader
                .error(code::DUPLICATE_KEY, line, message)
                .hint("remove one of them"));
        }
        values.insert(name, value);
    }
    Ok(values)
}

struct Lines<'a> {
    file: &'a str,
    /// Begins at the start of a line.
    rest: &'a str,
    /// Of the start of `rest`.
    line: u32,
}

impl<'a> Lines<'a> {
    /// The next name, its value and its line.
    fn next_assignment(&mut self) -> Result<Option<(String, String, u32)>, DocumentError> {
        while !self.rest.is_empty() {
            let line = self.line;
            let start = self.rest.trim_start_matches([' ', '\t']);
            let end = start.find('\n').unwrap_or(start.len());
            let text = start[..end].trim_end();
            if text.is_empty() || text.starts_with('#') {
                self.advance(&start[end..]);
                continue;
            }
            let text = match text.strip_prefix("export") {
                Some(after) if after.starts_with([' ', '\t']) => after.trim_start(),
                _ => text,
            };
            let Some((name, _)) = text.split_once('=') else {
                return Err(self
                    .error(code::ENV_SYNTAX, line, "this line has no \"=\"")
                    .hint("write NAME=value, or start a comment with #"));
            };
            let name = name.trim_end();
            if !is_name(name) {
                let message = "the text before \"=\" is not a variable name";
                return Err(self
                    .error(code::ENV_SYNTAX, line, message)
                    .hint("use letters, digits and _, and do not start with a digit"));
            }
            // The first "=" of the line: a name holds none, nor does `export`.
            let at = start.find('=').map_or(start.len(), |at| at + 1);
            let value = self.value(&start[at..])?;
            return Ok(Some((name.to_owned(), value, line)));
        }
        Ok(None)
    }

    /// The value at the start of `text`; moves to the line after it.
    fn value(&mut self, text: &'a str) -> Result<String, DocumentError> {
        let text = text.trim_start_matches([' ', '\t']);
        match text.chars().next() {
            Some(quote @ ('"' | '\'')) => self.quoted(&text[1..], quote),
            _ => {
                let end = text.find('\n').unwrap_or(text.len());
                let line = &text[..end];
                self.advance(&text[end..]);
                let comment = if line.starts_with('#') {
                    Some(0)
                } else {
                    line.find(" #").or_else(|| line.find("\t#"))
                };
                Ok(line[..comment.unwrap_or(line.len())].trim_end().to_owned())
            }
        }
    }

    /// The text after an opening quote, up to the closing one.
    fn quoted(&mut self, text: &'a str, quote: char) -> Result<String, DocumentError> {
        let opened = self.line;
        let mut value = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                return self.after_quote(&text[at + 1..]).map(|()| value);
            }
            if c == '\n' {
                self.line += 1;
            }
            if c != '\\' || quote == '\'' {
                value.push(c);
                continue;
            }
            value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                Some((_, same @ ('\\' | '"' | '$'))) => same,
                _ => {
                    let message = "in double quotes, a backslash precedes a character that has \
                         no escape";
                    return Err(self
                        .error(code::ENV_SYNTAX, self.line, message)
                        .hint("write \\\\ for a backslash, or use single quotes"));
                }
            });
        }
        let message = "a quote opens in this line and never closes";
        Err(self
            .error(code::ENV_SYNTAX, opened, message)
            .hint(format!("close it with {quote}")))
    }

    fn after_quote(&mut self, text: &'a str) -> Result<(), DocumentError> {
        let end = text.find('\n').unwrap_or(text.len());
        let tail = text[..end].trim();
        if !tail.is_empty() && !tail.starts_with('#') {
            return Err(self
                .error(code::ENV_SYNTAX, self.line, "text after a closing quote")
                .hint("put the whole value in quotes"));
        }
        self.advance(&text[end..]);
        Ok(())
    }

    /// Moves behind the line break that `rest` begins with.
    fn advance(&mut self, rest: &'a str) {
        self.rest = rest.strip_prefix('\n').unwrap_or(rest);
        self.line = self.line.saturating_add(1);
    }

    fn error(&self, code: &'static str, line: u32, message: impl Into<String>) -> DocumentError {
        DocumentError::whole(code, self.file, message).at(Location { line, column: 1 })
    }
}

//! Where `${NAME}` gets its value: the real environment, then a `.env` file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rapidbyte_runtime::owner;

use super::error::{DocumentError, Location, code};
use super::file::{self, Problem};

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
        let mut not_read = None;
        let (path, required) = match &self.env_file {
            EnvFile::None => (None, false),
            EnvFile::Beside => {
                let path = base_dir.join(".env");
                not_read = why_not_read(&path);
                (not_read.is_none().then_some(path), false)
            }
            EnvFile::Named(path) => (Some(path.clone()), true),
        };
        let mut from_file = BTreeMap::new();
        if let Some(path) = path {
            let shown = path.display().to_string();
            let read = trusted_link(&path, base_dir).and_then(|()| {
                file::read_checked(&path, MAX_ENV_FILE_BYTES, |found| trusted(found, base_dir))
            });
            match read {
                Ok(text) => from_file = parse(&text, &shown)?,
                Err(problem) if problem.code == code::FILE_NOT_FOUND && !required => {}
                Err(problem) => {
                    let is_untrusted = problem.code == code::ENV_UNTRUSTED;
                    let error = problem.into_error(&shown, "the env file");
                    return Err(match is_untrusted {
                        true => error.hint(TRUST_IT),
                        false => error,
                    });
                }
            }
        }
        Ok(Variables {
            lookup: &*self.lookup,
            from_file,
            not_read,
        })
    }
}

/// Why a `.env` that is there holds no variables. It is an error only for a pipeline that misses a variable: a
/// directory with this name is a habit of Python's virtual environments.
fn why_not_read(path: &Path) -> Option<String> {
    let link = std::fs::symlink_metadata(path).ok()?;
    let why = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => "is a directory",
        Err(error) if link.is_symlink() && error.kind() == ErrorKind::NotFound => {
            "is a link to a file that does not exist"
        }
        _ => return None,
    };
    let path: PathBuf = path.components().collect();
    Some(format!("{} {why}", path.display()))
}

const TRUST_IT: &str = "check its content; then make it a file of your own (chown) that others cannot write (chmod o-w)";

/// Refuses a link that another user made: it can lead to a file of ours that is not meant.
fn trusted_link(path: &Path, base_dir: &Path) -> Result<(), Problem> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() && !owner::is_trusted(found.uid(), base_dir) => {
            let message = format!("is a link of another user (uid {})", found.uid());
            Err(Problem::new(code::ENV_UNTRUSTED, message))
        }
        _ => Ok(()),
    }
}

/// Refuses a file that another user can have written: its variables say which server gets the password.
fn trusted(found: &Metadata, base_dir: &Path) -> Result<(), Problem> {
    let message = match (
        owner::is_trusted(found.uid(), base_dir),
        found.mode() & 0o002,
    ) {
        (false, _) => format!("belongs to another user (uid {})", found.uid()),
        (true, 0) => return Ok(()),
        (true, _) => "can be written by every user".to_owned(),
    };
    Err(Problem::new(code::ENV_UNTRUSTED, message))
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
    /// Why the `.env` beside the pipeline was not read, although it is there.
    pub(super) not_read: Option<String>,
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
            // The first "=" of the line: neither a name nor `export` holds one.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

    use super::*;

    fn refused(folder: &Path) -> Option<(&'static str, String, Option<String>)> {
        let environment = Environment::process();
        let read = environment.open(folder).err();
        read.map(|error| (error.code, error.message, error.hint))
    }

    #[track_caller]
    fn is_refused(folder: &Path, told: &str) {
        let (code, message, hint) = refused(folder).expect("an error");
        assert_eq!(code, "env_file_untrusted");
        assert!(message.contains(told), "{message}");
        assert_eq!(hint.as_deref(), Some(TRUST_IT));
    }

    #[test]
    fn an_unset_variable_names_an_env_file_that_cannot_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, file) = (folder.path(), folder.path().join(".env"));
        let text = "version: 1\npipeline: \"${PW}\"\n";
        let unset = || {
            let environment = Environment::from_fn(|_| None);
            crate::Document::parse(text, "p.yaml", folder, &environment)
                .expect_err("PW is not set")
                .to_string()
        };
        assert!(!unset().contains("was not read"), "{}", unset());
        std::fs::create_dir(&file).expect("a folder");
        let told = format!("{} is a directory, and was not read", file.display());
        assert!(unset().contains(&told), "{}", unset());
        std::fs::remove_dir(&file).expect("no folder");
        symlink("elsewhere", &file).expect("a link");
        let told = "is a link to a file that does not exist, and was not read";
        assert!(unset().contains(told), "{}", unset());
    }

    #[test]
    fn an_env_file_that_another_user_can_have_written_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (folder, file) = (folder.path(), folder.path().join(".env"));
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).expect("a mode");
        };
        std::fs::write(&file, "A=1\n").expect("a file");
        for ours in [0o600, 0o644, 0o664] {
            mode(ours);
            assert_eq!(refused(folder), None, "{ours:o}");
        }
        for everybodys in [0o602, 0o666] {
            mode(everybodys);
            is_refused(folder, "can be written by every user");
        }
        mode(0o600);
        // Only root can make a file of another user.
        if chown(&file, Some(65534), None).is_err() {
            return;
        }
        is_refused(folder, "belongs to another user (uid 65534)");
        // The pipeline is that user's, too.
        chown(folder, Some(65534), None).expect("another owner");
        assert_eq!(refused(folder), None);
        chown(folder, Some(0), None).expect("the old owner");
        chown(&file, Some(0), None).expect("the old owner");
        std::fs::rename(&file, folder.join("elsewhere")).expect("renamed");
        symlink("elsewhere", &file).expect("a link");
        assert_eq!(refused(folder), None);
        lchown(&file, Some(65534), None).expect("a link of another user");
        is_refused(folder, "is a link of another user (uid 65534)");
    }
}

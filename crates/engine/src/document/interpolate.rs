//! `${VAR}`, `${VAR:-default}`, `${file:path}` and `$$` in values.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::DocumentError;

/// Where variables come from.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The real environment: it wins.
    pub variables: HashMap<String, String>,
    /// A file of `KEY=VALUE` lines; without one, `.env` beside the pipeline if there is one.
    pub env_file: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process. Variables that are no UTF-8 do not exist for a pipeline.
    pub fn of_process(env_file: Option<PathBuf>) -> Self {
        let text = |s: std::ffi::OsString| s.into_string().ok();
        let variables = std::env::vars_os()
            .filter_map(|(k, v)| Some((text(k)?, text(v)?)))
            .collect();
        Self {
            variables,
            env_file,
        }
    }
}

/// What is wrong with one scalar.
pub(crate) struct Mistake {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
}

/// Replaces references in one scalar.
pub(crate) trait Interpolate {
    fn scalar(&mut self, text: &str) -> Result<String, Mistake>;
}

/// A `${file:…}` above this size is not a secret or a query.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Shorter values are not redacted: they would blacken unrelated text.
const MIN_SECRET: usize = 4;

pub(crate) struct Variables<'a> {
    environment: &'a Environment,
    from_file: HashMap<String, String>,
    base_dir: &'a Path,
    /// Values that came from outside the document.
    pub secrets: Vec<String>,
}

impl<'a> Variables<'a> {
    pub fn new(environment: &'a Environment, base_dir: &'a Path) -> Result<Self, DocumentError> {
        let beside = base_dir.join(".env");
        let path = match &environment.env_file {
            Some(path) => Some(path.clone()),
            None => beside.is_file().then_some(beside),
        };
        let from_file = match path {
            Some(path) => read_env_file(&path)?,
            None => HashMap::new(),
        };
        Ok(Self {
            environment,
            from_file,
            base_dir,
            secrets: Vec::new(),
        })
    }

    fn variable(&self, name: &str) -> Option<&String> {
        self.environment
            .variables
            .get(name)
            .or_else(|| self.from_file.get(name))
    }

    fn remember(&mut self, value: &str) {
        if value.len() >= MIN_SECRET {
            self.secrets.push(value.to_owned());
        }
    }

    fn reference(&mut self, inside: &str) -> Result<String, Mistake> {
        if let Some(path) = inside.strip_prefix("file:") {
            let value = read_text(&self.base_dir.join(path)).map_err(|error| Mistake {
                code: "file_not_found",
                message: format!("${{file:{path}}}: {error}"),
                hint: Some("the path is relative to the pipeline file".into()),
            })?;
            let value = value.trim_end_matches(['\n', '\r']).to_owned();
            self.remember(&value);
            return Ok(value);
        }
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !valid {
            return Err(Mistake {
                code: "bad_value",
                message: format!("${{{inside}}} names no variable"),
                hint: Some("write ${NAME}, ${NAME:-default}, ${file:path}, or $$ for a $".into()),
            });
        }
        match (self.variable(name).cloned(), default) {
            // As in a shell, the default also stands in for an empty value.
            (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
            (Some(value), _) => {
                self.remember(&value);
                Ok(value)
            }
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => Err(Mistake {
                code: "unset_variable",
                message: format!("the variable {name} is not set"),
                hint: Some(format!(
                    "set it in the environment or in .env, or write ${{{name}:-default}}"
                )),
            }),
        }
    }
}

impl Interpolate for Variables<'_> {
    fn scalar(&mut self, text: &str) -> Result<String, Mistake> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let Some(end) = after.find('}') else {
                    return Err(Mistake {
                        code: "bad_value",
                        message: "${ without }".into(),
                        hint: Some("close the brace, or write $$ for a $".into()),
                    });
                };
                out.push_str(&self.reference(&after[..end])?);
                rest = &after[end + 1..];
            } else {
                out.push('$');
            }
        }
        out.push_str(rest);
        Ok(out)
    }
}

pub(super) fn read_text(path: &Path) -> std::io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("not a regular file"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(std::io::Error::other("larger than 1 MiB"));
    }
    std::fs::read_to_string(path)
}

fn read_env_file(path: &Path) -> Result<HashMap<String, String>, DocumentError> {
    let file = path.display().to_string();
    let text = read_text(path)
        .map_err(|error| DocumentError::new(&file, "file_not_found", format!("{file}: {error}")))?;
    let mut variables = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let wrong =
            || DocumentError::new(&file, "bad_value", "a line is not KEY=VALUE").at(index + 1, 1);
        let (key, value) = line.split_once('=').ok_or_else(wrong)?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(wrong());
        }
        variables.insert(key.to_owned(), unquote(value.trim()).ok_or_else(wrong)?);
    }
    Ok(variables)
}

/// `'…'` as it stands, `"…"` with `\n`, `\"` and `\\`, otherwise up to ` #`.
fn unquote(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        return rest.split_once('\'').map(|(inside, _)| inside.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        return Some(
            value
                .split(" #")
                .next()
                .unwrap_or(value)
                .trim_end()
                .to_owned(),
        );
    };
    let mut out = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
}

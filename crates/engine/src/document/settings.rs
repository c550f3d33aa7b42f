//! The settings under `config:`, without a pipeline around them.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::{DocumentError, code};
use super::node;
use super::path::Step;
use super::read::{Reader, Spot};
use super::secrets::Secrets;
use super::{Environment, MAX_DOCUMENT_BYTES, file};

/// A connector's settings, with the values of `${…}` in them: show text through
/// [`Settings::redact`] only.
#[derive(Clone, Default)]
pub struct Settings {
    /// The configuration object.
    pub config: Map<String, Value>,
    secrets: Secrets,
}

impl Settings {
    /// Reads a YAML or JSON mapping; `name` stands for it in errors, `base_dir` is the folder of
    /// `${file:…}` and of `.env`.
    ///
    /// # Errors
    /// The errors of a pipeline file's `config:`, with line and column.
    pub fn parse(
        text: &str,
        name: &str,
        base_dir: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, DocumentError> {
        let Some(root) = node::parse(text, name)?.filter(|root| !root.is_empty()) else {
            return Ok(Self::default());
        };
        let variables = environment.open(base_dir)?;
        let reader = Reader::new(name, base_dir, &variables);
        let mut at = Spot::root(&reader, &root);
        at.step = Some(Step::Key("config"));
        let config = at.object()?;
        let secrets = reader.secrets;
        Ok(Self { config, secrets })
    }

    /// The same from a file of at most 4 MiB.
    ///
    /// # Errors
    /// A file that cannot be read, and the errors of [`Settings::parse`].
    pub fn load(
        path: &Path,
        base_dir: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, DocumentError> {
        let name = path.display().to_string();
        let text = file::read_text(path, MAX_DOCUMENT_BYTES).map_err(|problem| {
            let absent = [code::NOT_A_FILE, code::FILE_NOT_FOUND].contains(&problem.code);
            let error = problem.into_error(&name, "the configuration file");
            match absent {
                true => error.hint("give the path of a YAML or JSON file with the keys of config:"),
                false => error,
            }
        })?;
        Self::parse(&text, &name, base_dir, environment)
    }

    /// Remembers what a connector's config schema marks as secret (`x-secret`).
    pub fn keep_secrets(&self, schema: &Value) {
        self.secrets.add_marked(schema, &self.config);
    }

    /// `text` with every secret in it replaced by `***`, as [`super::Document::redact`] does.
    pub fn redact(&self, text: &str) -> String {
        self.secrets.redact(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(text: &str) -> Result<Settings, DocumentError> {
        let environment = Environment::from_fn(|name| (name == "TOKEN").then(|| "s3cr3t!".into()))
            .without_env_file();
        Settings::parse(text, "--config", Path::new("."), &environment)
    }

    #[test]
    fn settings_are_yaml_or_json_with_variables() {
        let expected = json!({ "rows": 3, "token": "s3cr3t!", "list": [1, "a"] });
        for text in [
            r#"{"rows": 3, "token": "${TOKEN}", "list": [1, "a"]}"#,
            "{ rows: 3, token: \"${TOKEN}\", list: [1, a] }",
            "rows: 3\ntoken: ${TOKEN}\nlist: [1, a]\n",
        ] {
            let settings = parse(text).unwrap();
            assert_eq!(Value::Object(settings.config.clone()), expected, "{text}");
            assert_eq!(settings.redact("it is s3cr3t!"), "it is ***");
        }
        assert!(parse("").unwrap().config.is_empty());
        let marked = parse("{ password: hidden }").unwrap();
        marked.keep_secrets(&json!({ "properties": { "password": { "x-secret": true } } }));
        assert_eq!(marked.redact("hidden"), "***");
    }

    #[test]
    fn settings_that_are_not_a_mapping_are_refused_with_their_place() {
        for (text, line) in [
            ("[1]", 1),
            ("3", 1),
            ("{ a: ${NOT_SET} }", 1),
            ("{ a: 1", 2),
        ] {
            let error = parse(text).err().expect(text);
            assert_eq!(
                (error.file.as_str(), error.line),
                ("--config", line),
                "{text}: {error:?}"
            );
        }
    }
}

//! The folder of a connector in the making: what says that it is one, and its files at the start.
//!
//! The files come from `templates/` and, for Rust, the SDK's own folders: the build script put
//! them into the program, so that whoever has the program has all that a project needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rapidbyte_engine::{Class, Failure};
use rapidbyte_runtime::Kind;
use serde::{Deserialize, Serialize};

use crate::failure::failed;

// The tables of the build script: `TEMPLATES` and `SDK`, paths and texts.
include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// The file that says so.
const FILE: &str = "rapidbyte-connector.json";
/// Longer ones are something else.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Of [`Project::version`].
const VERSION: u32 = 1;
/// Longest name of a connector.
const MAX_NAME: usize = 64;
/// The folder of a project that has the SDK, or the glue of a scripting language.
const SDK_FOLDER: &str = "rapidbyte";
/// The interface of connectors in scripting languages, among the SDK's files.
const SCRIPT_WIT: &str = "crates/rows/wit/script.wit";
/// Names that cargo, or the project's own dependencies, have taken.
const TAKEN: [&str; 10] = [
    "alloc",
    "core",
    "proc-macro",
    "rapidbyte-sdk",
    "rapidbyte-wire",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "test",
];

/// The language of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// The SDK, as a crate.
    Rust,
    /// With componentize-py.
    Python,
    /// With componentize-js.
    Javascript,
}

impl Language {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::Rust, Self::Python, Self::Javascript];

    /// Its name in commands and project files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::Javascript => "javascript",
        }
    }

    /// The language of this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|language| language.name() == name)
    }
}

/// A connector's project: what its `rapidbyte-connector.json` says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    version: u32,
    /// Of the connector; its component is `<name>.wasm`.
    pub name: String,
    /// Its place in a pipeline.
    #[serde(with = "kind")]
    pub kind: Kind,
    /// The language of its code.
    pub language: Language,
    /// It makes requests: its world has HTTP. In Rust the SDK has it, and what is not used is not
    /// imported.
    #[serde(default)]
    pub http: bool,
}

/// A kind by its name.
mod kind {
    use rapidbyte_runtime::Kind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
        kind.name().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        let name = String::deserialize(deserializer)?;
        let kind = Kind::named(&name);
        kind.ok_or_else(|| Error::unknown_variant(&name, &["source", "transform", "destination"]))
    }
}

impl Project {
    /// A new project.
    ///
    /// # Errors
    /// `invalid_argument` for a name that some language or system does not take as a file, package or crate.
    pub fn new(name: &str, kind: Kind, language: Language) -> Result<Self, Failure> {
        let is_letter = |c: char| c.is_ascii_lowercase();
        let is_valid = name.starts_with(is_letter)
            && name.len() <= MAX_NAME
            && name.split('-').all(|word| {
                !word.is_empty() && word.chars().all(|c| is_letter(c) || c.is_ascii_digit())
            });
        if !is_valid || TAKEN.contains(&name) || is_keyword(name) {
            let text = format!("{name:?} is not a valid connector name");
            return Err(Failure::new(Class::Config, "invalid_argument", text).hint(
                "use 1 to 64 lower-case letters and digits, words joined by \"-\", starting with \
                     a letter, such as source-shop; not a Rust keyword and not the name of a \
                     crate that connectors use",
            ));
        }
        Ok(Self {
            version: VERSION,
            name: name.to_owned(),
            kind,
            language,
            http: false,
        })
    }

    /// The same with HTTP.
    ///
    /// # Errors
    /// `invalid_argument` where the language has it anyway, or cannot have it.
    pub fn with_http(self) -> Result<Self, Failure> {
        if self.language == Language::Rust {
            let text = "projects in Rust always have HTTP: rapidbyte_sdk::http";
            let failure = Failure::new(Class::Config, "invalid_argument", text);
            return Err(failure.hint("remove --http"));
        }
        if self.kind == Kind::Transform {
            let text = "a transform makes no requests";
            let failure = Failure::new(Class::Config, "invalid_argument", text);
            return Err(failure.hint("remove --http"));
        }
        if self.kind == Kind::Destination {
            let text = "destinations in Python and JavaScript write files, and have no HTTP";
            let failure = Failure::new(Class::Config, "invalid_argument", text);
            return Err(failure.hint("remove --http, or use --lang rust"));
        }
        Ok(Self { http: true, ..self })
    }

    /// The project in a folder.
    ///
    /// # Errors
    /// `not_a_connector_project`.
    pub fn load(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join(FILE);
        let read = std::fs::metadata(&path).and_then(|meta| match meta.len() {
            0..=MAX_FILE_BYTES => std::fs::read_to_string(&path),
            _ => Err(std::io::Error::other("the file exceeds 64 KiB")),
        });
        let hint = "name a directory that `rapidbyte connector new` created, or change to it";
        let failed = |why: String| {
            let text = format!("{}: {why}", path.display());
            Failure::new(Class::Config, "not_a_connector_project", text).hint(hint)
        };
        let text = read.map_err(|error| failed(error.to_string()))?;
        let project: Self =
            serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if project.version != VERSION {
            let why = format!(
                "it has version {}, and this program supports {VERSION}",
                project.version
            );
            return Err(failed(why));
        }
        // Its name becomes a path.
        let known = Self::new(&project.name, project.kind, project.language)?;
        Ok(Self {
            http: project.http,
            ..known
        })
    }

    /// The component's place in the project's folder.
    pub fn component(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.wasm", self.name))
    }

    /// Refuses a component of another kind.
    ///
    /// # Errors
    /// `build_failed`.
    pub fn expects(&self, kind: Kind) -> Result<(), Failure> {
        if kind == self.kind {
            return Ok(());
        }
        let text = format!(
            "the component is a {}, the project is a {}",
            kind.name(),
            self.kind.name()
        );
        Err(failed(text).hint("export the kind that rapidbyte-connector.json says"))
    }

    /// Every file at the start: its path in the folder, and its text.
    pub(crate) fn files(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut files = vec![(FILE.to_owned(), self.own_file()?)];
        for (path, text) in self.template() {
            files.push((file_name(path), self.filled(text)));
        }
        match self.language {
            Language::Rust => files.extend(sdk()),
            Language::Python | Language::Javascript => files.extend(contract()),
        }
        Ok(files)
    }

    /// Its template: of a file that several layers have, the last one's.
    fn template(&self) -> BTreeMap<&'static str, &'static str> {
        let layers: &[&str] = match (self.language, self.kind) {
            (Language::Rust, Kind::Source) => &["rust/source/"],
            (Language::Rust, Kind::Transform) => &["rust/transform/"],
            (Language::Rust, Kind::Destination) => &["rust/destination/"],
            (Language::Python, Kind::Source) if self.http => {
                &["python/common/", "python/source/", "python/source-http/"]
            }
            (Language::Python, Kind::Source) => &["python/common/", "python/source/"],
            (Language::Python, Kind::Destination) => &["python/common/", "python/destination/"],
            (Language::Javascript, Kind::Source) if self.http => &[
                "javascript/common/",
                "javascript/source/",
                "javascript/source-http/",
            ],
            (Language::Javascript, Kind::Source) => &["javascript/common/", "javascript/source/"],
            (Language::Javascript, Kind::Destination) => {
                &["javascript/common/", "javascript/destination/"]
            }
            (Language::Python, Kind::Transform) => &["python/common/", "python/transform/"],
            (Language::Javascript, Kind::Transform) => {
                &["javascript/common/", "javascript/transform/"]
            }
        };
        let of_layer = |layer: &&'static str| {
            let layer = *layer;
            let files = TEMPLATES.iter();
            files.filter_map(move |(path, text)| Some((path.strip_prefix(layer)?, *text)))
        };
        layers.iter().flat_map(of_layer).collect()
    }

    fn own_file(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(self);
        let text = text.map_err(|error| Failure::new(Class::Run, "file_io", error))?;
        Ok(text + "\n")
    }

    fn filled(&self, text: &str) -> String {
        text.replace("{{name}}", &self.name)
            .replace("{{crate}}", &self.name.replace('-', "_"))
    }
}

/// The SDK as a workspace of its own; the versions that it was tested with are the project's.
fn sdk() -> impl Iterator<Item = (String, String)> {
    let parts = SDK.iter().filter(|(path, _)| *path != SCRIPT_WIT);
    parts.map(|(path, text)| {
        let path = match *path {
            "Cargo.lock" | "rust-toolchain.toml" => (*path).to_owned(),
            path => format!("{SDK_FOLDER}/{path}"),
        };
        (path, (*text).to_owned())
    })
}

/// The contract and the interface of scripts, as the tools of scripting languages look for them.
fn contract() -> impl Iterator<Item = (String, String)> {
    let places = [
        ("wit/rapidbyte.wit", "deps/connector/rapidbyte.wit"),
        (SCRIPT_WIT, "deps/script/script.wit"),
    ];
    let texts = SDK.iter().filter_map(move |(path, text)| {
        let (_, to) = places.iter().find(|(from, _)| from == path)?;
        Some((*to, *text))
    });
    let worlds = TEMPLATES.iter();
    let worlds = worlds.filter_map(|(path, text)| Some((path.strip_prefix("wit/")?, *text)));
    let all = worlds.chain(texts);
    all.map(|(path, text)| (format!("{SDK_FOLDER}/wit/{path}"), text.to_owned()))
}

/// The name of a template's file in a project. In the repository some files have other names, so that no tool takes
/// them for its own: `Cargo.toml.in`, `gitignore.in`.
fn file_name(path: &str) -> String {
    match path.strip_suffix(".in") {
        Some("gitignore") => ".gitignore".into(),
        Some(name) => name.into(),
        None => path.into(),
    }
}

/// Whether Rust has taken a word for itself (The Rust Reference, "Keywords").
fn is_keyword(name: &str) -> bool {
    const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn \
        else enum extern false final fn for gen if impl in let loop macro match mod move mut \
        override priv pub ref return self static struct super trait true try type typeof unsafe \
        unsized use virtual where while yield";
    KEYWORDS.split_whitespace().any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str) -> Result<Project, Failure> {
        Project::new(name, Kind::Source, Language::Rust)
    }

    #[test]
    fn names_are_file_names_and_crates_everywhere() {
        for name in ["a", "source-shop", "s3", "source-2"] {
            assert!(project(name).is_ok(), "{name}");
        }
        let long = "a".repeat(65);
        let bad = [
            "", "-a", "a-", "a--b", "3s", "A", "a_b", "a/b", "..", "a.b", "é", "fn", "std", "test",
            &long,
        ];
        for name in bad {
            assert!(project(name).is_err(), "{name}");
        }
    }

    #[test]
    fn no_file_of_a_project_has_a_hole_left() {
        use Kind::{Destination, Source, Transform};
        for (kind, language, expected) in [
            (
                Source,
                Language::Rust,
                ["Cargo.toml", "rapidbyte/wit/rapidbyte.wit"],
            ),
            (
                Destination,
                Language::Rust,
                ["src/lib.rs", "rapidbyte/Cargo.toml"],
            ),
            (
                Transform,
                Language::Rust,
                ["tests/transform.rs", "rapidbyte/wit/rapidbyte.wit"],
            ),
            (
                Source,
                Language::Python,
                ["connector.py", "rapidbyte/wit/deps/script/script.wit"],
            ),
            (
                Source,
                Language::Javascript,
                ["package.json", "rapidbyte/wit/world.wit"],
            ),
            (
                Transform,
                Language::Python,
                ["connector.py", "rapidbyte/glue/transform.py"],
            ),
            (
                Transform,
                Language::Javascript,
                ["connector.test.js", "rapidbyte/glue.js"],
            ),
            (
                Destination,
                Language::Python,
                ["connector.py", "rapidbyte/glue/destination.py"],
            ),
            (
                Destination,
                Language::Javascript,
                ["connector.js", "rapidbyte/native.mjs"],
            ),
        ] {
            let project = Project::new("source-shop", kind, language).expect("a project");
            let files = project.files().expect("files");
            for name in [&expected[..], &[".gitignore", "README.md", "pipeline.yaml"]].concat() {
                assert!(files.iter().any(|(path, _)| path == name), "{name}");
            }
            for (path, text) in files {
                let is_ours = path.starts_with("rapidbyte/");
                assert!(is_ours || !text.contains("{{"), "{path}");
            }
        }
        for (language, file) in [
            (Language::Python, "connector.py"),
            (Language::Javascript, "connector.js"),
        ] {
            let project = Project::new("source-shop", Source, language);
            let project = project.and_then(Project::with_http).expect("a project");
            let files = project.files().expect("files");
            let mut found = files.iter().filter(|(path, _)| path == file);
            assert!(
                found
                    .next()
                    .is_some_and(|(_, text)| text.contains("base_url"))
            );
            assert!(found.next().is_none());
        }
        for language in [Language::Python, Language::Javascript] {
            let project = Project::new("dest-shop", Destination, language).expect("a name");
            assert!(project.with_http().is_err());
            let project = Project::new("transform-mask", Transform, language).expect("a name");
            assert!(project.with_http().is_err());
        }
    }

    #[test]
    fn a_folder_of_another_version_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let known = project("a").expect("a project");
        let text = known.own_file().expect("a text");
        std::fs::write(folder.path().join(FILE), &text).expect("written");
        assert_eq!(Project::load(folder.path()).expect("a project"), known);
        for text in [
            text.replace(": 1", ": 2"),
            text.replace("\"a\"", "\"../a\""),
            "{}".into(),
        ] {
            std::fs::write(folder.path().join(FILE), text).expect("written");
            assert!(Project::load(folder.path()).is_err());
        }
    }
}

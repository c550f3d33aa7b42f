//! The name of a pipeline and the place of its history, without the rest of the file.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::error::DocumentError;
use super::read::{Reader, Spot};
use super::{HISTORY, keys, read_document, root_of};

/// The parts of a pipeline file that a command about past runs needs. The other keys are not read, so that the
/// variables in them need no value.
pub struct Named {
    /// The pipeline's name.
    pub pipeline: String,
    /// The file, as it was named.
    pub file: String,
    base_dir: PathBuf,
}

impl Named {
    /// Reads the name in a pipeline file.
    ///
    /// # Errors
    /// A file that cannot be read or is not YAML, and a missing or invalid name.
    pub fn load(path: &Path, environment: &Environment<'_>) -> Result<Self, DocumentError> {
        let (text, file, base_dir) = read_document(path)?;
        let root = root_of(&text, &file)?;
        let variables = environment.open(&base_dir)?;
        let reader = Reader::new(&file, &base_dir, &variables);
        let pipeline = keys::name_alone(&Spot::root(&reader, &root))?;
        Ok(Self {
            pipeline,
            file,
            base_dir,
        })
    }

    /// Where the history of its runs is, unless the operator names another file.
    pub fn history(&self) -> PathBuf {
        self.base_dir.join(HISTORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_beside_variables_without_a_value_and_keys_with_mistakes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("p.yaml");
        let load = |text: &str| {
            std::fs::write(&file, text).expect("written");
            let unset = Environment::from_fn(|name| (name == "SHOP").then(|| "shop".into()));
            Named::load(&file, &unset)
        };
        let named = load(
            "version: 1\npipeline: \"${SHOP}-sync\"\nsource: { config: { url: \"${PW}\" } }\nnosuch: 1\n",
        );
        let named = named.expect("a name");
        assert_eq!(named.pipeline, "shop-sync");
        let folder = folder.path().canonicalize().expect("a folder");
        assert_eq!(named.history(), folder.join(".rapidbyte/state.db"));
        for (text, code) in [
            ("version: 1\nsource: {}\n", "missing_key"),
            ("version: 2\npipeline: a\n", "invalid_value"),
            ("pipeline: a\n", "missing_key"),
            ("version: 1\npipeline: \"${PW}\"\n", "unset_variable"),
            ("", "empty_file"),
        ] {
            let error = load(text).err().map(|error| error.code);
            assert_eq!(error, Some(code), "{text}");
        }
    }
}

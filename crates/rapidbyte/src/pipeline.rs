//! Pipelines as they are read.

use std::path::Path;

use rapidbyte_engine::{Document, Environment, Failure};

/// A pipeline that was read: every key is known and every variable has its value.
#[derive(Debug, Clone)]
pub struct Pipeline {
    pub(crate) document: Document,
}

impl Pipeline {
    /// Reads a pipeline file of at most 4 MiB, and the `.env` beside it.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_file(file: &Path, environment: &Environment<'_>) -> Result<Self, Failure> {
        let document = Document::load(file, environment)?;
        Ok(Self { document })
    }

    /// Reads the text of a pipeline file. Its paths are relative to `folder`, whose `.env` is read.
    ///
    /// # Errors
    /// The first mistake, with its line and column.
    pub fn from_str(
        text: &str,
        folder: &Path,
        environment: &Environment<'_>,
    ) -> Result<Self, Failure> {
        let document = Document::parse(text, TEXT, folder, environment)?;
        Ok(Self { document })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.document.pipeline
    }
}

/// The name of a text in errors.
const TEXT: &str = "pipeline";

impl From<Document> for Pipeline {
    fn from(document: Document) -> Self {
        Self { document }
    }
}

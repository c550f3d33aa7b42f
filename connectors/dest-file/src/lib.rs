//! Writes CSV and JSON Lines files: one new file for each stream, complete or not at all.
//!
//! Rows go to a temporary file beside the target; the commit gives it its name in one atomic step.
//! A committed file is never appended to, so every run writes all its rows: there is no cursor to
//! go on from. How values and rows stand in a file is the crate `rapidbyte-formats`.

mod config;
mod plan;
mod write;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_formats::{FormatError, Owner};
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

pub use config::Config;
use config::Settings;
pub use write::FileWriter;
use write::Unfinished;

/// The connector, opened with one configuration.
pub struct Files {
    settings: Settings,
    open: OpenFiles,
    /// Which stream each path belongs to, in this session.
    owners: BTreeMap<String, String>,
}

/// Files that are not committed, by stream: shared with the writers, because the commit is the
/// destination's and not the writer's.
pub(crate) type OpenFiles = Rc<RefCell<BTreeMap<String, Unfinished>>>;

impl Destination for Files {
    type Config = Config;
    type Writer = FileWriter;
    const NAME: &str = "dest-file";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes CSV and JSON Lines files";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: config.settle()?,
            open: OpenFiles::default(),
            owners: BTreeMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let path = &self.settings.path;
        let name = format!("write {path}");
        // Any name will do: the folder is what matters.
        Ok(vec![match files::probe(&self.settings.path_of("check")?) {
            Ok(()) => CheckItem::ok(name, "a file can be created"),
            Err(error) => CheckItem::failed(name, error),
        }])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let path = self.settings.path_of(&target.stream)?;
        plan::plan(&self.settings, target, path)
    }

    fn open_writer(&mut self, target: &Target, _epoch: u64) -> Result<FileWriter> {
        let path = self.settings.path_of(&target.stream)?;
        match self.owners.get(&path) {
            Some(owner) if *owner != target.stream => {
                let text = format!(
                    "{owner} and {} would both be written to {path}",
                    target.stream
                );
                return Err(Error::config("shared_target", text)
                    .hint("put {stream} into the path")
                    .in_stream(&target.stream)
                    .at("config.path"));
            }
            _ => {}
        }
        plan::refuse_existing(target, &path)?;
        let file = Unfinished::create(&self.settings, target, path.clone())?;
        self.owners.insert(path, target.stream.clone());
        self.open.borrow_mut().insert(target.stream.clone(), file);
        Ok(FileWriter::new(self.open.clone(), target.stream.clone()))
    }

    fn commit(
        &mut self,
        stream: &str,
        parts: Vec<Part>,
        _seq: u64,
        _cursor: Option<&str>,
    ) -> Result<Receipt> {
        let Some(file) = self.open.borrow_mut().remove(stream) else {
            return Err(
                Error::internal("a commit without a file that is written").in_stream(stream)
            );
        };
        let rows: u64 = parts.iter().map(|part| part.rows).sum();
        file.commit(rows).map_err(|error| error.in_stream(stream))
    }

    fn abort(&mut self, stream: &str) -> Result<()> {
        // Dropping it removes the temporary file.
        self.open.borrow_mut().remove(stream);
        Ok(())
    }
}

/// The contract's error for an error of the formats.
pub(crate) fn convert(error: FormatError) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, error.to_string());
    converted.hint = error.hint;
    converted.column = error.column;
    converted
}

rapidbyte_sdk::export_destination!(Files);

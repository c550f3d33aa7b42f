//! Writes CSV, JSON Lines, Parquet and Arrow files: a new file or folder of files for each stream, complete or not
//! at all.
//!
//! Rows go to a temporary file or folder beside the target; the commit gives it its name in one
//! atomic step. Where files lie is the part of `layout`, one file that of `write`, a folder that of
//! `set`.
//! A committed file is never appended to, so every run writes all its rows: there is no cursor to
//! go on from. How values and rows stand in a file are the crates `rapidbyte-formats` and
//! `rapidbyte-columnar`.

mod columns;
mod config;
mod layout;
mod partition;
mod plan;
mod set;
mod size;
mod write;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_formats::{FormatError, Owner};
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

use config::Settings;
pub use config::{Config, Split};
use set::FileSet;
pub use size::Size;
pub use write::FileWriter;
use write::{OneFile, Unfinished};

/// The connector, opened with one configuration.
pub struct Files {
    settings: Rc<Settings>,
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
    const DESCRIPTION: &str = "Writes CSV, JSON Lines, Parquet and Arrow files";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: Rc::new(config.settle()?),
            open: OpenFiles::default(),
            owners: BTreeMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let layout = &self.settings.layout;
        let name = format!("write {}", layout.shown());
        // Any name will do: the folder is what matters.
        Ok(vec![match files::probe(&layout.example("check")?) {
            Ok(()) => CheckItem::ok(name, "a file can be created"),
            Err(error) => CheckItem::failed(name, error),
        }])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        plan::plan(&self.settings, target)
    }

    fn open_writer(
        &mut self,
        target: &Target,
        _epoch: u64,
        _cursor: Option<&str>,
    ) -> Result<FileWriter> {
        let layout = &self.settings.layout;
        let place = match &layout.set {
            None => layout.file(&target.stream)?,
            Some(_) => layout.folder(&target.stream)?.0,
        };
        match self.owners.get(&place) {
            Some(owner) if *owner != target.stream => {
                let text = format!(
                    "{owner} and {} would both be written to {place}",
                    target.stream
                );
                let hint = match &layout.set {
                    None => "put {stream} into the path",
                    Some(_) => "put {stream} into a folder of the path: a set has its own",
                };
                return Err(Error::config("shared_target", text)
                    .hint(hint)
                    .in_stream(&target.stream)
                    .at("config.path"));
            }
            _ => {}
        }
        plan::refuse_existing(&self.settings, target)?;
        let files = self
            .begin(target)
            .map_err(|error| error.in_stream(&target.stream))?;
        self.owners.insert(place, target.stream.clone());
        self.open.borrow_mut().insert(target.stream.clone(), files);
        Ok(FileWriter::new(self.open.clone(), target.stream.clone()))
    }

    fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        let Some(file) = self.open.borrow_mut().remove(commit.stream) else {
            return Err(
                Error::internal("a commit without a file that is written").in_stream(commit.stream)
            );
        };
        file.commit(commit.rows())
            .map_err(|error| error.in_stream(commit.stream))
    }

    fn abort(&mut self, stream: &str) -> Result<()> {
        // Dropping it removes the temporary file.
        self.open.borrow_mut().remove(stream);
        Ok(())
    }
}

impl Files {
    fn begin(&self, target: &Target) -> Result<Unfinished> {
        let settings = &self.settings;
        let location = settings.layout.pattern(&target.stream)?;
        let files = match &settings.layout.set {
            None => {
                let schema = target.arrow_schema()?;
                // What cannot be written is refused before a file is there.
                plan::refuse_types(&settings.format, &schema)?;
                let output = files::create(&location)?;
                let file = OneFile::begin(settings, schema, output, write::BUFFER_BYTES)?;
                write::Shape::One(Box::new(file))
            }
            Some(set) => {
                let set = FileSet::begin(settings.clone(), set.clone(), target)?;
                write::Shape::Set(Box::new(set))
            }
        };
        Ok(Unfinished::new(files, location))
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

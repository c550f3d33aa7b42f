//! Writes CSV, JSON Lines, Parquet and Arrow files: a new file or folder of files for each stream, complete or not
//! at all.
//!
//! Rows go to a temporary file or folder beside the target; the commit gives it its name in one
//! atomic step. Where files lie is the part of `layout`, one file that of `write`, a folder that of
//! `set`.
//! A committed file is never appended to; a folder may get more files, and keeps in manifests which of
//! them are committed and how far the stream is (`chain`). How values and rows stand in a file are the crates `rapidbyte-formats` and
//! `rapidbyte-columnar`.

mod chain;
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

use chain::{Lease, Place};
use config::Settings;
pub use config::{Config, Split};
pub use rapidbyte_sdk::bytes::Size;
use set::FileSet;
pub use write::FileWriter;
use write::{OneFile, Unfinished};

/// The connector, opened with one configuration.
pub struct Files {
    settings: Rc<Settings>,
    open: OpenFiles,
    /// By stream: what a run was let in with, until its writer takes it.
    fenced: BTreeMap<String, Lease>,
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
    const SUPPORTS_CHECKPOINTS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: Rc::new(config.settle()?),
            open: OpenFiles::default(),
            fenced: BTreeMap::new(),
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
        self.own(&target.stream)?;
        plan::plan(&self.settings, target)
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let in_stream = |error: Error| error.in_stream(&target.stream);
        let Some(place) = Place::of(&self.settings.layout, &target.stream)? else {
            return Ok(Some(unfenced(String::new())));
        };
        let appends = target.is_incremental && matches!(target.write_mode, WriteMode::Append);
        let progress = place.progress(pipeline, appends).map_err(in_stream)?;
        // A directory without manifests is replaced as a whole, by whichever run commits last.
        let grows = progress.is_some() || plan::grows(&self.settings, target).map_err(in_stream)?;
        Ok(progress.or_else(|| (!grows).then(|| unfenced(String::new()))))
    }

    fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let stream = &target.stream;
        // What an older run of the stream in this session wrote is given up.
        self.abort(stream)?;
        match self.let_in(target, run) {
            Err(error) => Err(error.in_stream(stream)),
            Ok(Some(lease)) => {
                let progress = lease.progress();
                self.fenced.insert(stream.clone(), lease);
                Ok(progress)
            }
            Ok(None) => Ok(unfenced(run.id.clone())),
        }
    }

    fn open_writer(
        &mut self,
        target: &Target,
        epoch: u64,
        _cursor: Option<&str>,
    ) -> Result<FileWriter> {
        self.own(&target.stream)?;
        plan::refuse_existing(&self.settings, target)?;
        let lease = self.fenced.remove(&target.stream);
        let (known, wanted) = (
            lease.as_ref().map(|l| l.progress().epoch),
            plan::grows(&self.settings, target)?,
        );
        if known.unwrap_or(0) != epoch || known.is_some() != wanted {
            let text = format!("no run with epoch {epoch} fenced this stream");
            return Err(Error::internal(text).in_stream(&target.stream));
        }
        let files = self
            .begin(target, lease)
            .map_err(|error| error.in_stream(&target.stream))?;
        self.open.borrow_mut().insert(target.stream.clone(), files);
        Ok(FileWriter::new(self.open.clone(), target.stream.clone()))
    }

    fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        let stream = commit.stream;
        let files = self.open.borrow_mut().remove(stream);
        let Some(files) = files else {
            return self
                .commit_cursor(&commit)
                .map_err(|error| error.in_stream(stream));
        };
        let (receipt, files) = files
            .commit(&commit)
            .map_err(|error| error.in_stream(stream))?;
        if let Some(files) = files {
            self.open.borrow_mut().insert(stream.to_owned(), files);
        }
        Ok(receipt)
    }

    fn abort(&mut self, stream: &str) -> Result<()> {
        // Dropping it removes the temporary file.
        self.open.borrow_mut().remove(stream);
        self.fenced.remove(stream);
        Ok(())
    }
}

impl Files {
    /// Refuses a file or folder that belongs to another stream: the commit of one would replace the files of the
    /// other. Errors: `shared_target`.
    fn own(&mut self, stream: &str) -> Result<()> {
        let layout = &self.settings.layout;
        let place = match &layout.set {
            None => layout.file(stream)?,
            Some(_) => layout.folder(stream)?.0,
        };
        let hint = match &layout.set {
            None => "put {stream} into the path",
            Some(_) => {
                "put {stream} into a folder of the path, such as out/{stream}/{part}.csv: each stream needs a \
                 folder of its own"
            }
        };
        let owner = self
            .owners
            .entry(place)
            .or_insert_with(|| stream.to_owned());
        if owner == stream {
            return Ok(());
        }
        let text = format!(
            "{owner} and {stream} would both be written to {}",
            layout.shown()
        );
        Err(Error::config("shared_target", text)
            .hint(hint)
            .in_stream(stream)
            .at("config.path"))
    }

    /// The right to commit to a folder that grows; none where a file or a folder is replaced.
    fn let_in(&self, target: &Target, run: &Run) -> Result<Option<Lease>> {
        if !plan::grows(&self.settings, target)? {
            return Ok(None);
        }
        let place = Place::of(&self.settings.layout, &target.stream)?;
        place.map(|place| place.fence(run)).transpose()
    }

    /// A commit without a writer.
    fn commit_cursor(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let Some(mut lease) = self.fenced.remove(commit.stream) else {
            let location = self.settings.layout.pattern(commit.stream)?;
            return Err(write::no_cursor(&location));
        };
        if commit.rows() > 0 {
            return Err(Error::internal("a commit without written rows"));
        }
        let committed = lease.commit(commit, Vec::new(), false);
        committed.map_err(|error| lease.explain(error))?;
        let location = lease.place.pattern.clone();
        if !commit.complete {
            self.fenced.insert(commit.stream.to_owned(), lease);
        }
        Ok(Receipt {
            rows: 0,
            bytes: 0,
            location,
        })
    }

    fn begin(&self, target: &Target, lease: Option<Lease>) -> Result<Unfinished> {
        let settings = &self.settings;
        let location = settings.layout.pattern(&target.stream)?;
        let files = match &settings.layout.set {
            None => {
                let schema = target.arrow_schema()?;
                // What cannot be written is refused before a file is there.
                plan::refuse_types(&settings.format, &schema)?;
                let output = write::Sink::new(files::create(&location)?);
                let file = OneFile::begin(settings, schema, output, write::BUFFER_BYTES)?;
                write::Shape::One(Box::new(file))
            }
            Some(set) => {
                let set = FileSet::begin(settings.clone(), set.clone(), target, lease.as_ref())?;
                let set = Box::new(set);
                match lease {
                    None => write::Shape::Set(set),
                    Some(lease) => write::Shape::Chain {
                        set,
                        lease: Box::new(lease),
                        replaces: target.write_mode == WriteMode::Replace,
                    },
                }
            }
        };
        Ok(Unfinished::new(files, location))
    }
}

/// The answer for a file or directory that is replaced as a whole: nothing remembers the runs, so none is fenced.
fn unfenced(run_id: String) -> Progress {
    Progress {
        epoch: 0,
        seq: 0,
        cursor: None,
        run_id,
        complete: false,
        lost_rows: None,
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

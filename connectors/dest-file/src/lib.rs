//! Writes CSV, JSON Lines, Parquet and Arrow files: a new file or folder of files for each stream, complete or not
//! at all.
//!
//! Rows go to a temporary file or directory beside the target; the commit gives it its name in one
//! atomic step. `layout` names the files, `write` writes one file, `set` writes a directory.
//! A committed file never grows. A directory may get more files: its manifests name the committed
//! files and hold the cursor (`chain`). The crates `rapidbyte-formats` and `rapidbyte-columnar`
//! encode rows.

mod chain;
mod columns;
mod config;
mod drift;
mod id;
mod kept;
mod layout;
mod partition;
mod plan;
mod refused;
mod rejects;
mod set;
mod settings;
mod sink;
mod size;
mod unfinished;
mod write;

use std::cell::RefCell;
use std::rc::Rc;

use rapidbyte_formats::{FormatError, Owner};
use rapidbyte_sdk::destination::Owners;
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

use chain::{Lease, Place};

pub use config::{Config, Split};
use id::Claim;
use kept::Listing;
pub use rapidbyte_sdk::bytes::Size;
use rejects::Keeper;
use set::FileSet;
use settings::Settings;
use unfinished::Unfinished;
use write::OneFile;

/// The connector, opened with one configuration.
pub struct Files(Rc<Home>);

/// The state that the streams of a session share.
struct Home {
    settings: Rc<Settings>,
    /// Which stream each file or folder belongs to, in this session.
    owners: Owners,
    /// The rejects that the pages list.
    listing: RefCell<Option<Listing>>,
}

/// A stream that a run writes. Dropped, it leaves no file that is not committed.
pub struct FileLoad {
    home: Rc<Home>,
    target: Target,
    /// The run's lease, until rows come. `None` where the run replaces a file or a directory.
    lease: Option<Lease>,
    files: Option<Unfinished>,
    /// The places of the columns that go to the files. `None`: all of them.
    kept: Option<Vec<usize>>,
}

impl Destination for Files {
    type Config = Config;
    type Load = FileLoad;
    const NAME: &str = "dest-file";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes CSV, JSON Lines, Parquet and Arrow files";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const SUPPORTS_REJECTS: bool = true;
    const NAMES_TARGETS: bool = true;

    fn open(config: Config) -> Result<Self> {
        Ok(Self(Rc::new(Home {
            settings: Rc::new(config.settle()?),
            owners: Owners::default(),
            listing: RefCell::default(),
        })))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let layout = &self.0.settings.layout;
        let name = format!("write {}", layout.shown());
        // Any name will do: the folder is what matters.
        Ok(vec![match files::probe(&layout.example("check")?) {
            Ok(()) => CheckItem::ok(name, "a file can be created"),
            Err(error) => CheckItem::failed(name, error),
        }])
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        self.0.own(target)?;
        plan::plan(&self.0.settings, target)
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let settings = &self.0.settings;
        let in_stream = |error: Error| error.in_stream(&target.stream);
        let Some(place) = Place::of(settings, target)? else {
            return Ok(Some(Progress::unfenced("")));
        };
        let appends = target.is_incremental && matches!(target.write_mode, WriteMode::Append);
        let progress = place.progress(pipeline, appends).map_err(in_stream)?;
        // A directory without manifests is replaced as a whole, by whichever run commits last.
        let grows = progress.is_some() || plan::grows(settings, target).map_err(in_stream)?;
        Ok(progress.or_else(|| (!grows).then(|| Progress::unfenced(""))))
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let layout = &self.0.settings.layout;
        if !layout.set.as_ref().is_some_and(|set| set.counted) {
            return Err(rejects::without_manifests());
        }
        let mut listing = self.0.listing.borrow_mut();
        let is_next = listing.as_ref().is_some_and(|one| one.is_of(to, pipeline));
        if after.is_none() || !is_next {
            *listing = Some(Listing::of(layout, to, pipeline)?);
        }
        let page = listing.as_ref().map(|one| one.page(after, with_data));
        page.unwrap_or_else(|| Ok(Vec::new()))
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(FileLoad, Progress)> {
        rejects::refuse(target, plan::grows(&self.0.settings, target)?)?;
        let lease = self.0.let_in(target, run)?;
        let progress = match &lease {
            Some(lease) => lease.progress(),
            None => Progress::unfenced(&run.id),
        };
        let load = FileLoad {
            home: self.0.clone(),
            target: target.clone(),
            lease,
            files: None,
            kept: None,
        };
        Ok((load, progress))
    }
}

impl Home {
    /// Refuses a file or folder that belongs to another stream: the commit of one would replace the files of the
    /// other. Errors: `shared_target`.
    fn own(&self, target: &Target) -> Result<()> {
        let layout = &self.settings.layout;
        let (place, hint) = match &layout.set {
            None => (
                layout.file(target)?,
                "put {stream} into the path, or give one of them another name with `target:`",
            ),
            Some(_) => (
                layout.folder(target)?.0,
                "put {stream} into a folder of the path, such as out/{stream}/{part}.csv: each stream needs a \
                 folder of its own",
            ),
        };
        let owned = self.owners.take(place, &target.stream, layout.shown());
        owned.map_err(|error| error.hint(hint).at("config.path"))
    }

    /// The right to commit to a folder that grows. `None` where a file or a folder is replaced.
    fn let_in(&self, target: &Target, run: &Run) -> Result<Option<Lease>> {
        if !plan::grows(&self.settings, target)? {
            return Ok(None);
        }
        let Some(place) = Place::of(&self.settings, target)? else {
            return Ok(None);
        };
        let mut lease = place.fence(run, kept::is_replay(target))?;
        lease.claim = Claim::of(target, &lease)?;
        Ok(Some(lease))
    }

    fn begin(&self, target: &Target, lease: Option<Lease>) -> Result<Unfinished> {
        let settings = &self.settings;
        let location = settings.layout.pattern(target)?;
        let files = match &settings.layout.set {
            None => {
                let schema = target.arrow_schema()?;
                // Types that the format cannot hold are refused before the file is created.
                plan::refuse_types(&settings.format, &schema)?;
                let output = sink::Sink::new(files::create(&location)?);
                let file = OneFile::begin(settings, schema, output, sink::BUFFER_BYTES)?;
                unfinished::Shape::One(Box::new(file))
            }
            Some(set) => {
                let partition_by = set.partition_by(&target.stream);
                let keeper = lease
                    .as_ref()
                    .map(|lease| Keeper::new(settings, target, partition_by, lease));
                let keeper = keeper.transpose()?.flatten();
                let set = FileSet::begin(settings.clone(), set.clone(), target, lease.as_ref())?;
                let set = Box::new(set);
                match lease {
                    None => unfinished::Shape::Set(set),
                    Some(lease) => unfinished::Shape::Chain {
                        set,
                        lease: Box::new(lease),
                        keeper: keeper.map(Box::new),
                        replaces: target.write_mode == WriteMode::Replace,
                    },
                }
            }
        };
        Ok(Unfinished::new(files, location))
    }
}

impl Load for FileLoad {
    fn open_writer(&mut self, _cursor: Option<&str>) -> Result<()> {
        let Self { home, target, .. } = self;
        home.own(target)?;
        plan::refuse_existing(&home.settings, target)?;
        let mut lease = self.lease.take();
        // A run of another mode may have begun to keep manifests meanwhile.
        if lease.is_some() != plan::grows(&home.settings, target)? {
            let text = "the directory began to keep manifests, or lost them, after the fence";
            return Err(Error::internal(text));
        }
        let mut narrow = None;
        if let Some(lease) = &mut lease {
            narrow = plan::narrowed(&home.settings, target, lease)?;
            let set = home.settings.layout.set.as_ref();
            lease.partition_by =
                set.map_or_else(Vec::new, |set| set.partition_by(&target.stream).to_vec());
            lease.schema = narrow
                .as_ref()
                .map_or(&*target, |(target, _)| target)
                .arrow_schema()?;
        }
        let (target, kept) = match narrow {
            Some((narrow, kept)) => (narrow, Some(kept)),
            None => (target.clone(), None),
        };
        self.files = Some(home.begin(&target, lease)?);
        self.kept = kept;
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let narrow = self
            .kept
            .as_ref()
            .map(|kept| batch.project(kept))
            .transpose()?;
        self.with_files(|files| files.write(narrow.as_ref().unwrap_or(batch)))
    }

    fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        self.with_files(|files| {
            let keeper = files.keeper();
            let keeper = keeper.ok_or_else(|| Error::internal("nobody keeps rejects"))?;
            let mut rejects = rejects.iter();
            rejects.try_for_each(|reject| keeper.keep(origin, reject))
        })
    }

    fn refused(&mut self) -> Refused {
        let files = self.files.as_mut();
        let keeper = files.and_then(Unfinished::keeper);
        keeper.map(Keeper::take_refused).unwrap_or_default()
    }

    fn flush(&mut self) -> Result<Part> {
        self.with_files(Unfinished::flush)
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let Some(files) = self.files.take() else {
            return self.commit_cursor(commit);
        };
        let (receipt, files) = files.commit(commit)?;
        self.files = files;
        Ok(receipt)
    }
}

impl FileLoad {
    fn with_files<T>(&mut self, act: impl FnOnce(&mut Unfinished) -> Result<T>) -> Result<T> {
        let Some(files) = &mut self.files else {
            return Err(Error::internal("the file is committed, and cannot grow"));
        };
        let done = act(files).map_err(|error| files.explain(error));
        if done.is_err() {
            // A buffer may hold half a row: nothing can be committed any more.
            self.files = None;
        }
        done
    }

    /// A commit without a writer.
    fn commit_cursor(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let Some(lease) = &mut self.lease else {
            let layout = &self.home.settings.layout;
            return Err(plan::no_cursor(&layout.pattern(&self.target)?));
        };
        let committed = lease.commit(commit, (Vec::new(), Vec::new()), false);
        committed.map_err(|error| lease.explain(error))?;
        Ok(Receipt {
            rows: 0,
            bytes: 0,
            location: lease.place.pattern.clone(),
            deleted: 0,
        })
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

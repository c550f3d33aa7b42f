//! The chain of manifests of a directory that grows: which run may commit, and what a commit is.
//!
//! A run fences older runs with a manifest that only raises the epoch. This manifest takes the next
//! number, so an older run can never commit again, whenever it wakes up. A commit is the next
//! manifest: its files are complete and on the disk before it, and get their names after it. The next
//! run that fences repairs the files of a killed run: it renames the files of a manifest and removes
//! the others.

use std::rc::Rc;
use std::sync::Arc;

use rapidbyte_manifest::{
    self as manifest, Column, FOLDER, File, Form, Link, Manifest, ManifestError, PENDING,
};
use rapidbyte_sdk::files;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::drift;
use crate::id::Claim;
use crate::layout::PART;
use crate::settings::Settings;

/// Few runs fence between a look and a try; this bounds an endless race.
const MAX_TRIES: usize = 32;
/// How often a chain is read before it counts as broken.
const MAX_LOOKS: usize = 3;
const BROKEN: &str = "manifest_broken";
/// A manifest of the most files that a commit may have takes about a third of it.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;
const READ_BYTES: u32 = 1 << 20;

/// The folder of a stream that grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub folder: String,
    /// Of its files, with `{part}`.
    pub name: String,
    /// All files that it may have.
    pub pattern: String,
    pub stream: String,
    /// How the run writes its files.
    form: Form,
    /// Whether the run keeps the files that are there.
    appends: bool,
}

impl Place {
    /// The place of a stream. `None` if its path does not have `{part}`.
    pub(crate) fn of(settings: &Settings, target: &Target) -> Result<Option<Self>> {
        let layout = &settings.layout;
        let Some(set) = layout.set.as_ref().filter(|set| set.counted) else {
            return Ok(None);
        };
        let (folder, name) = layout.folder(target)?;
        Ok(Some(Self {
            folder,
            form: settings
                .format
                .form(&name, set.partition_by(&target.stream)),
            appends: target.write_mode == WriteMode::Append,
            name,
            pattern: layout.pattern(target)?,
            stream: target.stream.clone(),
        }))
    }

    pub(crate) fn pending(&self, name: &str) -> String {
        format!("{}/{FOLDER}/{name}{PENDING}", self.folder)
    }

    fn broken(&self, number: u64, error: &ManifestError) -> Error {
        broken(&self.folder, number, error)
    }

    /// The number of the manifest that a file was written for; none of other files.
    fn number_of(&self, name: &str) -> Option<u64> {
        let (before, after) = self.name.split_once(PART)?;
        manifest::number_of_part(name.strip_prefix(before)?.strip_suffix(after)?)
    }

    /// The same, also of a file of rejects.
    fn number_of_any(&self, name: &str) -> Option<u64> {
        self.number_of(name)
            .or_else(|| manifest::number_of_rejects(name))
    }

    /// The newest manifest. `None` where the folder has none. Errors: `manifest_broken`.
    pub(crate) fn newest(&self) -> Result<Option<Link>> {
        let _phase = phase::enter(Kind::Query);
        for _ in 1..MAX_LOOKS {
            match self.look() {
                // The names are not listed in one moment: a newer run may have added some meanwhile.
                Err(error) if error.code == BROKEN => {}
                found => return found,
            }
        }
        self.look()
    }

    fn look(&self) -> Result<Option<Link>> {
        let mut numbers = self.numbers()?;
        numbers.sort_unstable();
        let Some(newest) = numbers.last().copied() else {
            return Ok(None);
        };
        let missing = (1..).zip(&numbers).find(|(at, number)| at != *number);
        if let Some((at, _)) = missing {
            let error = ManifestError::Broken("it is missing".into());
            return Err(self.broken(at, &error));
        }
        let link = self.read(newest)?;
        let before = match newest {
            1 => None,
            _ => Some(self.read(newest - 1)?),
        };
        Link::is_before(before.as_ref(), &link).map_err(|error| self.broken(newest, &error))?;
        Ok(Some(link))
    }

    /// The directory grows: a run has fenced with a manifest.
    pub(crate) fn has_manifests(&self) -> Result<bool> {
        Ok(!self.numbers()?.is_empty())
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        let found = files::find(&format!("{}/{FOLDER}/*.json", self.folder))?;
        let name = |path: &str| manifest::number(path.rsplit('/').next().unwrap_or_default());
        Ok(found.iter().filter_map(|entry| name(&entry.path)).collect())
    }

    fn read(&self, number: u64) -> Result<Link> {
        read(&self.folder, number)
    }

    /// Makes a manifest: whole, on the disk, and only if its number is free. `None` if it is taken.
    fn link(&self, manifest: &Manifest) -> Result<Option<Link>> {
        let _phase = phase::enter(Kind::Commit);
        let number = manifest.number;
        let broken = |error| self.broken(number, &error);
        let bytes = manifest.encode().map_err(broken)?;
        let mut output = files::create_new(&path(&self.folder, number)?)?;
        output.write(&bytes)?;
        output.sync()?;
        match output.commit() {
            Ok(()) => Link::decode(number, &bytes).map(Some).map_err(broken),
            Err(error) if error.code == "file_exists" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How far the stream is. Changes nothing. `appends` refuses a stream that would append every row again.
    pub(crate) fn progress(&self, pipeline: &str, appends: bool) -> Result<Option<Progress>> {
        let newest = self.newest()?;
        if let Some(link) = &newest {
            self.refuse_other(&link.manifest, pipeline)?;
            if appends {
                self.refuse_edited_cursor(&link.manifest)?;
            }
        }
        Ok(newest.as_ref().map(progress))
    }

    /// Somebody took the cursor away, or full refreshes wrote the rows. `state clear` commits without files and
    /// without an end: then the operator wants all rows again.
    fn refuse_edited_cursor(&self, found: &Manifest) -> Result<()> {
        found
            .check_cursor()
            .map_err(|error| self.broken(found.number, &error))?;
        let is_of_rows = found.complete || !found.files.is_empty();
        if found.cursor.is_some() || found.rows == 0 || !is_of_rows {
            return Ok(());
        }
        let number = found.number;
        let text = format!(
            "{folder} has {} rows, and the manifest {number} in {folder}/{FOLDER} has no cursor: \
                 the stream would start with its first row and append every row again",
            found.rows,
            folder = self.folder,
        );
        Err(Error::schema("cursor_missing", text).hint(
            "resume after the rows that the folder has: `rapidbyte state set PIPELINE STREAM CURSOR`; or replace \
             them: `rapidbyte run PIPELINE --full-refresh --select STREAM`; or append all rows to them: \
             `rapidbyte state clear PIPELINE STREAM`, then run",
        ))
    }

    /// A folder belongs to one stream of one pipeline.
    fn refuse_other(&self, found: &Manifest, pipeline: &str) -> Result<()> {
        if (found.pipeline.as_str(), &found.stream) == (pipeline, &self.stream) {
            return Ok(());
        }
        let text = format!(
            "{} belongs to the stream {} of the pipeline {}",
            self.folder, found.stream, found.pipeline
        );
        Err(Error::config("folder_of_another_stream", text)
            .hint("write to another directory: this one also holds the cursor of that stream")
            .at("config.path"))
    }

    /// Refuses files in another form than the files of the run: no reader could read both with one pattern and one set
    /// of options. A run that replaces all files finds them by their names. Errors: `format_changed`.
    pub(crate) fn refuse_other_form(&self, found: &Manifest) -> Result<()> {
        let Some(form) = &found.form else {
            return Ok(());
        };
        let Some((key, found, new)) = form.difference(&self.form) else {
            return Ok(());
        };
        if !self.appends
            && (form.name == self.form.name && form.partition_by == self.form.partition_by)
        {
            return Ok(());
        }
        let text = format!(
            "the files of {} were written with {key}: {found}, and the pipeline has {new}: no reader could read all of \
             them with one pattern and one set of options",
            self.folder
        );
        Err(Error::config("format_changed", text)
            .hint(match key {
                "path" | "partition_by" => {
                    format!("set {key} as before, or write to a new directory")
                }
                _ => format!(
                    "set {key} as before, write to a new directory, or write all files again with --full-refresh or \
                     write_mode: replace"
                ),
            })
            .at(format!("config.{key}"))
            .in_stream(&self.stream))
    }

    /// Refuses to append to files without manifests: readers of the manifests would miss them.
    pub(crate) fn refuse_unknown_files(&self) -> Result<()> {
        let found = files::find(&self.pattern)?;
        let Some(file) = found.first() else {
            return Ok(());
        };
        let text = format!(
            "{} exists, and no manifest names it: `append` did not write it",
            file.path
        );
        Err(Error::config("folder_not_appendable", text)
            .hint("write to a new directory, or move the files of this one away")
            .at("config.path"))
    }

    /// Fences older runs and repairs the files of killed runs. Errors: `folder_of_another_stream`, `format_changed`,
    /// `folder_not_appendable`, `manifest_broken`, `fence_contended`, errors of files.
    pub(crate) fn fence(self, run: &Run, is_replay: bool) -> Result<Lease> {
        for _ in 0..MAX_TRIES {
            let newest = self.newest()?;
            match &newest {
                Some(link) => {
                    self.refuse_other(&link.manifest, &run.pipeline)?;
                    // It writes no files.
                    if run.id != STATE {
                        self.refuse_other_form(&link.manifest)?;
                    }
                }
                None => self.refuse_unknown_files()?,
            }
            let before = newest.as_ref().map(|newest| &newest.manifest.run_id);
            let owner = before.filter(|_| is_replay).unwrap_or(&run.id).clone();
            let mut next = Link::follow(newest.as_ref(), self.run(run, &owner))
                .map_err(|error| self.broken(0, &error))?;
            next.epoch += 1;
            failpoint("dest-file.fencing")?;
            let Some(last) = self.link(&next)? else {
                continue;
            };
            failpoint("dest-file.fence_linked")?;
            let lease = Lease {
                place: Rc::new(self),
                run: run.clone(),
                owner,
                is_replay,
                last,
                schema: Arc::new(Schema::empty()),
                partition_by: Vec::new(),
                claim: Claim::default(),
            };
            lease.settle().map_err(|error| lease.explain(error))?;
            failpoint("dest-file.settled")?;
            return Ok(lease);
        }
        let text = format!(
            "{}: other runs fence the stream again and again",
            self.folder
        );
        Err(Error::new(ErrorKind::Transient, "fence_contended", text)
            .hint("let one run of a pipeline end before another begins"))
    }

    fn run<'a>(&'a self, run: &'a Run, id: &'a str) -> manifest::Run<'a> {
        manifest::Run {
            pipeline: &run.pipeline,
            stream: &self.stream,
            id,
        }
    }

    /// Gives a committed file its name. It has it already if a newer run was faster.
    fn publish(&self, file: &File) -> Result<()> {
        let path = format!("{}/{}", self.folder, file.path);
        match files::rename(&self.pending(file.name()), &path) {
            Err(error) if error.code == "file_not_found" => match files::find(&path)?.is_empty() {
                true => Err(error),
                false => Ok(()),
            },
            Err(error) if error.code == "file_exists" => {
                // Where a rename takes two steps, a run may have been killed in between.
                if files::find(&path)?
                    .iter()
                    .any(|entry| entry.size == file.size)
                {
                    return files::remove(&self.pending(file.name()));
                }
                let text = format!("{path} already exists, and this stream did not write it");
                Err(Error::config("file_exists", text).hint("move it away and run again"))
            }
            renamed => renamed,
        }
    }

    /// Removes the files that a later commit has replaced.
    fn remove_replaced(&self, begins: u64) -> Result<()> {
        for entry in files::find(&self.pattern)? {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            if self.number_of(name).is_some_and(|number| number < begins) {
                files::remove(&entry.path)?;
            }
        }
        Ok(())
    }
}

/// The path of a manifest of a folder.
fn path(folder: &str, number: u64) -> Result<String> {
    let name = manifest::name(number).map_err(|error| broken(folder, number, &error))?;
    Ok(format!("{folder}/{FOLDER}/{name}"))
}

/// Reads a manifest of a folder. Errors: `manifest_broken`.
pub(crate) fn read(folder: &str, number: u64) -> Result<Link> {
    let input = files::open(&path(folder, number)?)?;
    let size = input.size();
    if size > MAX_MANIFEST_BYTES {
        let error = ManifestError::Malformed(format!("it has {size} bytes"));
        return Err(broken(folder, number, &error));
    }
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let piece = input.read(bytes.len() as u64, READ_BYTES)?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(&piece);
    }
    Link::decode(number, &bytes).map_err(|error| broken(folder, number, &error))
}

/// The error for a manifest of a folder.
pub(crate) fn broken(folder: &str, number: u64, error: &ManifestError) -> Error {
    let text = format!("{folder}/{FOLDER}: the manifest {number} {error}");
    Error::new(ErrorKind::Schema, BROKEN, text).hint(
        "restore the directory, or write to a new one: the directory holds the rows and the cursor",
    )
}

fn progress(link: &Link) -> Progress {
    let manifest = &link.manifest;
    Progress {
        epoch: manifest.epoch,
        seq: manifest.seq,
        cursor: manifest.cursor.clone(),
        run_id: manifest.run_id.clone(),
        complete: manifest.complete,
        lost_rows: None,
    }
}

/// A run's right to commit a stream, until a newer run fences it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub place: Rc<Place>,
    run: Run,
    /// The id of the run that the manifests name. A replay leaves the id, the cursor and the end of the run before it, so
    /// that the next run knows whether that one was interrupted.
    owner: String,
    is_replay: bool,
    last: Link,
    /// The columns of the files that the run adds, and the columns that become directories.
    pub schema: SchemaRef,
    pub partition_by: Vec<String>,
    /// The rejects that the next commit replays.
    pub claim: Claim,
}

impl Lease {
    /// The columns of the files that count.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.last.manifest.columns
    }

    /// The progress of the stream in this run. A replay has always something to write.
    pub(crate) fn progress(&self) -> Progress {
        let progress = progress(&self.last);
        Progress {
            complete: progress.complete && !self.is_replay,
            ..progress
        }
    }

    pub(crate) fn run(&self) -> &Run {
        &self.run
    }

    /// The number of the next commit's manifest.
    pub(crate) fn next(&self) -> u64 {
        self.last.manifest.number + 1
    }

    /// Nothing was ever committed.
    pub(crate) fn is_first(&self) -> bool {
        self.last.manifest.seq == 0
    }

    /// Repairs the files of older runs, which cannot commit any more.
    fn settle(&self) -> Result<()> {
        let place = &self.place;
        let last = &self.last.manifest;
        // The manifest of the current file: the files of one manifest follow each other.
        let mut known: Option<Link> = None;
        for entry in files::find(&format!("{}/{FOLDER}/*{PENDING}", place.folder))? {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            let name = name.strip_suffix(PENDING).unwrap_or_default();
            // The files of a newer run have a higher number.
            let Some(number) = place.number_of_any(name).filter(|n| *n <= last.number) else {
                continue;
            };
            if known.as_ref().is_none_or(|k| k.manifest.number != number) {
                known = Some(place.read(number)?);
            }
            let mut files = known.iter().flat_map(|link| &link.manifest.files);
            let mut rejects = known.iter().flat_map(|link| &link.manifest.rejects);
            let counts = number >= last.begins;
            let file = files.find(|file| counts && file.name() == name);
            // A later replace leaves the rejects of older commits.
            match file.or_else(|| rejects.find(|file| file.name() == name)) {
                Some(file) => place.publish(file)?,
                None => files::remove(&place.pending(name))?,
            }
        }
        if last.begins > 0 {
            place.remove_replaced(last.begins)?;
        }
        self.remove_temporary()
    }

    /// Removes the hidden files of killed runs.
    fn remove_temporary(&self) -> Result<()> {
        let place = &self.place;
        for entry in files::find(&format!("{}/{FOLDER}/.*.tmp", place.folder))? {
            let name = entry.path.rsplit('/').next().unwrap_or_default();
            // `.NAME.pending.123-0.tmp`, `.00000002.json.123-0.tmp`
            let name = name.strip_prefix('.').unwrap_or_default();
            let name = name
                .strip_suffix(".tmp")
                .and_then(|name| name.rsplit_once('.'))
                .map_or("", |(name, _)| name);
            let of_file = name
                .strip_suffix(PENDING)
                .and_then(|n| place.number_of_any(n));
            let number = of_file.or_else(|| manifest::number(name));
            if number.is_some_and(|number| number <= self.last.manifest.number) {
                files::remove(&format!("{}/{FOLDER}/{}", place.folder, entry_name(&entry)))?;
            }
        }
        Ok(())
    }

    /// Makes complete files visible and moves the cursor, in the one step in which the manifest gets
    /// its name. With `replaces`, the older files go. Errors: `run_superseded`; errors of files, after
    /// which only the next run that fences knows whether the commit happened.
    pub(crate) fn commit(
        &mut self,
        commit: &Commit<'_>,
        (files, rejects): (Vec<File>, Vec<File>),
        replaces: bool,
    ) -> Result<()> {
        let place = self.place.clone();
        let mut next = Link::follow(Some(&self.last), place.run(&self.run, &self.owner))
            .map_err(|error| place.broken(self.next(), &error))?;
        let rows: u64 = files.iter().map(|file| file.rows).sum();
        next.seq += 1;
        if self.is_replay {
            next.replayed = std::mem::take(&mut self.claim.lines);
        } else {
            next.cursor = commit.cursor.map(str::to_owned);
            next.complete = commit.complete;
        }
        next.rows = rows + if replaces { 0 } else { next.rows };
        if replaces {
            next.begins = next.number;
            next.columns.clear();
        }
        // The columns of older files are not known if no manifest names them.
        let is_known = next.rows == rows || !next.columns.is_empty();
        if !files.is_empty() && is_known {
            next.columns = drift::united(&next.columns, &self.schema, &self.partition_by);
        }
        if !files.is_empty() {
            next.form = Some(place.form.clone());
        }
        (next.files, next.rejects) = (files, rejects);
        failpoint("dest-file.linking")?;
        let Some(link) = self.place.link(&next)? else {
            let all = [next.files, next.rejects].concat();
            return Err(self.superseded(&all));
        };
        self.last = link;
        failpoint("dest-file.manifest_linked")?;
        let _phase = phase::enter(Kind::Commit);
        for file in next.rejects.iter().chain(&next.files) {
            place.publish(file)?;
            failpoint("dest-file.published")?;
        }
        if replaces {
            place.remove_replaced(next.begins)?;
            failpoint("dest-file.replaced_removed")?;
        }
        failpoint("dest-file.committed")
    }

    /// A newer run takes away what older ones have not committed, and renames and removes files while
    /// this one looks at them: then the error is about that.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if matches!(error.kind, ErrorKind::Superseded) {
            return error;
        }
        match self.place.newest() {
            Ok(Some(newest)) if newest.manifest.epoch > self.last.manifest.epoch => {
                self.superseded(&[])
            }
            _ => error,
        }
    }

    /// The number is taken: what was written for it can never count.
    fn superseded(&self, files: &[File]) -> Error {
        for file in files {
            if let Err(error) = files::remove(&self.place.pending(file.name())) {
                log::debug(format!("left for the next run: {}", error.message));
            }
        }
        let (id, epoch) = (&self.run.id, self.last.manifest.epoch);
        let newest = self.place.newest().ok().flatten();
        let newest = newest.as_ref().map(|newest| &newest.manifest);
        let (text, hint) = match newest {
            Some(newest) if newest.run_id == *id => (
                format!(
                    "the run {id} resumed the stream again, or a replay fenced it (epoch {} after {epoch}), and the older \
                     attempt cannot commit",
                    newest.epoch
                ),
                ONE_AT_A_TIME,
            ),
            Some(newest) if newest.run_id == STATE => (
                format!(
                    "`rapidbyte state` moved the cursor during the run {id} (epoch {} after {epoch}), which cannot \
                     commit any more",
                    newest.epoch
                ),
                "run again: the next run resumes from the cursor that was set",
            ),
            Some(newest) => (
                format!(
                    "the newer run {} fenced the run {id} (epoch {} after {epoch}), which cannot commit any more",
                    newest.run_id, newest.epoch
                ),
                ONE_AT_A_TIME,
            ),
            None => (
                format!(
                    "the run {id} cannot commit any more: somebody changed the manifests in {}",
                    self.place.folder
                ),
                "put the folder back as it was, then run again: the next run resumes from its newest manifest",
            ),
        };
        Error::new(ErrorKind::Superseded, "run_superseded", text).hint(hint)
    }
}

/// The id of the run by which a verb of `state` moves a cursor.
const STATE: &str = "state";
const ONE_AT_A_TIME: &str =
    "let one run of a pipeline end before another begins; the newer one continues";

fn entry_name(entry: &files::Entry) -> &str {
    entry.path.rsplit('/').next().unwrap_or_default()
}

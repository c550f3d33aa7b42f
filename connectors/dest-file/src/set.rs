//! A directory of files on its way: split by size or rows, and by the values of partition columns.
//!
//! A set that replaces is written to a directory with a hidden name, which replaces the older directory
//! as a whole at the commit. The files of a directory that grows wait for their manifest (`chain`). A
//! file is complete and closed before the next file of its partition begins, so few files are open at
//! the same time.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rapidbyte_formats::Picked;
use rapidbyte_manifest::{self as manifest, File};
use rapidbyte_sdk::files::{self, OutputFolder};
use rapidbyte_sdk::prelude::*;

use crate::chain::{Lease, Place};
use crate::layout::{PART, Set, numbered};
use crate::partition::Partitions;
use crate::settings::Settings;
use crate::sink::{BUFFER_BYTES, Sink, Synced};
use crate::write::OneFile;

/// A buffer of each of many files.
const SMALL_BUFFER_BYTES: usize = 1 << 16;
/// Files of one folder: the host looks at twice as many entries, folders among them.
const MAX_FILES: u64 = 50_000;

/// The files of one stream. Dropped, they leave nothing behind.
pub(crate) struct FileSet {
    settings: Rc<Settings>,
    set: Set,
    /// The columns that become folders.
    partition_by: Vec<String>,
    goes: Goes,
    folder: String,
    /// The file's name, perhaps with a counter.
    name: String,
    /// The columns of the files.
    schema: SchemaRef,
    partitions: Option<Partitions>,
    /// By the folder of a partition; the empty one without partitions.
    places: HashMap<String, Partition>,
    /// The partitions whose files are open, by when they were last written to.
    open: BTreeMap<u64, String>,
    /// Of the next commit.
    files: u64,
    /// The stream's rows so far, and how many of them are committed.
    rows: u64,
    committed_rows: u64,
    /// Bytes of the complete files.
    bytes: u64,
    /// Counts the writes to partitions.
    clock: u64,
}

/// Where complete files are until the commit.
enum Goes {
    /// In a folder with a hidden name.
    Folder(OutputFolder),
    /// In the folder of the manifests.
    Pending(Pending),
}

/// Files that wait for their manifest. Dropped, they go.
struct Pending {
    place: Rc<Place>,
    epoch: u64,
    /// Of the next manifest.
    number: u64,
    /// Files of this commit that were begun.
    begun: u64,
    complete: Vec<File>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        for file in &self.complete {
            // The next run removes files that stay.
            let _ = files::remove(&self.place.pending(file.name()));
        }
    }
}

/// The files of one partition.
#[derive(Default)]
struct Partition {
    open: Option<Box<OneFile>>,
    /// The path of the open file, below the folder.
    path: String,
    /// The number of the next file.
    next: u32,
    /// When it was last written to, by the clock.
    used: u64,
}

impl FileSet {
    /// Begins the files of a directory that is replaced or grows.
    pub(crate) fn begin(
        settings: Rc<Settings>,
        set: Set,
        target: &Target,
        lease: Option<&Lease>,
    ) -> Result<Self> {
        let schema = target.arrow_schema()?;
        let partition_by = set.partition_by(&target.stream).to_vec();
        let (partitions, schema) = match partition_by.as_slice() {
            [] => (None, schema),
            columns => {
                let key = set.partition_key(&target.stream);
                let (partitions, rest) = Partitions::new(columns, &schema, &key)?;
                (Some(partitions), rest)
            }
        };
        let (folder, name) = settings.layout.folder(target)?;
        let pattern = settings.layout.pattern(target)?;
        // Types that the format cannot hold are refused before the directory is created.
        crate::plan::refuse_types(&settings.format, &schema)?;
        Ok(Self {
            goes: match lease {
                None => Goes::Folder(files::create_folder(&folder, &pattern)?),
                Some(lease) => Goes::Pending(Pending {
                    place: lease.place.clone(),
                    epoch: lease.progress().epoch,
                    number: lease.next(),
                    begun: 0,
                    complete: Vec::new(),
                }),
            },
            settings,
            set,
            partition_by,
            folder,
            name,
            schema,
            partitions,
            places: HashMap::new(),
            open: BTreeMap::new(),
            files: 0,
            rows: 0,
            committed_rows: 0,
            bytes: 0,
            clock: 0,
        })
    }

    /// Writes a batch; `before` rows of the stream came before it.
    pub(crate) fn write(&mut self, batch: &RecordBatch, before: u64) -> Result<()> {
        let rows = before + batch.num_rows() as u64;
        // None has more rows than `split` says.
        let uncommitted = rows.saturating_sub(self.committed_rows);
        let least = self.set.split.rows;
        let least = least.map_or(0, |most| uncommitted.div_ceil(most));
        self.refuse_too_many(least.saturating_sub(self.files), 0)?;
        self.rows = rows;
        let Some(partitions) = &self.partitions else {
            return self.write_to("", Picked::all(batch), before);
        };
        let groups = partitions.group(batch, before)?;
        let is_new = |place: &&String| !self.places.contains_key(*place);
        let new = groups.keys().filter(is_new).count() as u64;
        self.refuse_too_many(new, rows)?;
        let kept = partitions.without_columns(batch)?;
        for (place, rows) in groups {
            // The rows of one partition keep their order.
            self.write_to(&place, Picked::of(&kept, &rows), before)?;
        }
        Ok(())
    }

    fn write_to(&mut self, place: &str, rows: Picked<'_>, before: u64) -> Result<()> {
        let split = self.set.split;
        let mut at = 0;
        while at < rows.len() {
            let file = self.file_of(place)?;
            at = file
                .write(rows, at, split)
                .map_err(|refused| refused.told(before))?;
            if file.is_full(split) {
                self.end(place)?;
            }
        }
        Ok(())
    }

    /// The open file of a partition, which is opened if need be.
    fn file_of(&mut self, place: &str) -> Result<&mut OneFile> {
        let known = self.places.get(place);
        let is_open = known.is_some_and(|place| place.open.is_some());
        if !is_open {
            self.begin_file(place)?;
        }
        self.clock += 1;
        let clock = self.clock;
        let entry = self.places.get_mut(place);
        let open = entry.and_then(|place| {
            let before = std::mem::replace(&mut place.used, clock);
            Some((before, place.open.as_deref_mut()?))
        });
        let Some((before, file)) = open else {
            return Err(Error::internal("a partition without its file"));
        };
        let name = self.open.remove(&before);
        self.open
            .insert(clock, name.unwrap_or_else(|| place.to_owned()));
        Ok(file)
    }

    fn begin_file(&mut self, place: &str) -> Result<()> {
        if self.open.len() >= self.set.open_files {
            self.end_idle()?;
        }
        self.refuse_too_many(1, 0)?;
        self.files += 1;
        let next = self.places.get(place).map_or(0, |place| place.next);
        let (path, output) = match &mut self.goes {
            Goes::Folder(folder) => {
                let path = format!("{place}{}", numbered(&self.name, next));
                let output = folder.create(&format!("{}/{path}", self.folder))?;
                (path, Sink::new(output))
            }
            Goes::Pending(pending) => {
                let part = manifest::part(pending.epoch, pending.number, pending.begun);
                pending.begun += 1;
                let name = self.name.replace(PART, &part);
                let output = files::create(&pending.place.pending(&name))?;
                (format!("{place}{name}"), Sink::hashed(output))
            }
        };
        let buffer = match self.partitions {
            Some(_) => SMALL_BUFFER_BYTES,
            None => BUFFER_BYTES,
        };
        let file = OneFile::begin(&self.settings, self.schema.clone(), output, buffer)?;
        let entry = self.places.entry(place.to_owned()).or_default();
        entry.open = Some(Box::new(file));
        entry.path = path;
        entry.next = next + 1;
        Ok(())
    }

    /// Refuses `more` files than may be; before any of a batch is written.
    fn refuse_too_many(&self, more: u64, rows: u64) -> Result<()> {
        if self.files + more <= MAX_FILES {
            return Ok(());
        }
        let within = match (rows, self.partition_by.as_slice()) {
            (0, _) | (_, []) => String::new(),
            (rows, columns) => format!(
                "; the first {rows} rows have {} or more values of {}",
                self.places.len() as u64 + more,
                columns.join(", ")
            ),
        };
        let text = format!(
            "{} would get more than {MAX_FILES} files{within}",
            self.folder
        );
        Err(Error::config("too_many_parts", text)
            .hint("partition by columns with fewer values, or split into larger files"))
    }

    /// Ends the file that was not written to for the longest time.
    fn end_idle(&mut self) -> Result<()> {
        if !self.set.counted {
            let text = format!(
                "rows of more than {} partitions are mixed, and each partition keeps one file \
                     open",
                self.set.open_files
            );
            return Err(Error::config("too_many_partitions", text)
                .hint(
                    "put {part} into the file's name, so that a partition may have several \
                         files, or raise open_files",
                )
                .at("config.open_files"));
        }
        let idle = self.open.first_key_value().map(|(_, place)| place.clone());
        idle.map_or(Ok(()), |place| self.end(&place))
    }

    /// Ends the open file of a partition.
    fn end(&mut self, place: &str) -> Result<()> {
        let Some(known) = self.places.get_mut(place) else {
            return Ok(());
        };
        if let Some(file) = known.open.take() {
            self.open.remove(&known.used);
            let path = std::mem::take(&mut known.path);
            self.bytes += match &mut self.goes {
                Goes::Folder(_) => file.commit(Synced::WithFolder)?.bytes,
                Goes::Pending(pending) => {
                    let written = file.commit(Synced::Alone)?;
                    pending.complete.push(File {
                        path,
                        size: written.bytes,
                        sha256: written.sha256,
                        rows: written.rows,
                    });
                    written.bytes
                }
            };
        }
        Ok(())
    }

    /// Bytes handed to the host.
    pub(crate) fn bytes(&self) -> u64 {
        let open = self
            .open
            .values()
            .filter_map(|place| self.places.get(place));
        let files = open.filter_map(|place| place.open.as_ref());
        self.bytes + files.map(|file| file.bytes()).sum::<u64>()
    }

    /// Ends all files; without one, one that says so if `is_empty` asks for it.
    fn end_all(&mut self, is_empty: bool) -> Result<()> {
        if is_empty && self.files == 0 && self.partitions.is_none() {
            self.file_of("")?;
        }
        let mut open: Vec<String> = self.open.values().cloned().collect();
        open.sort();
        open.iter().try_for_each(|place| self.end(place))
    }

    /// Ends all files and makes the folder visible. A stream without rows has one file that says
    /// so, or no partition.
    pub(crate) fn commit(mut self) -> Result<u64> {
        self.end_all(true)?;
        match self.goes {
            Goes::Folder(folder) => folder.commit()?,
            Goes::Pending(_) => return Err(Error::internal("a directory that grows is replaced")),
        }
        Ok(self.bytes)
    }

    /// Ends all files of a folder that grows and gives them, on the disk, for their manifest. From
    /// now on only the manifest decides what becomes of them.
    pub(crate) fn finish(&mut self, is_empty: bool) -> Result<Vec<File>> {
        self.end_all(is_empty)?;
        match &mut self.goes {
            Goes::Folder(_) => Err(Error::internal("a directory that is replaced grows")),
            Goes::Pending(pending) => Ok(std::mem::take(&mut pending.complete)),
        }
    }

    /// Begins the files of the manifest after a commit.
    pub(crate) fn go_on(&mut self, next: u64) {
        self.files = 0;
        self.committed_rows = self.rows;
        // The names of partitions take memory, and a later commit may have others.
        self.places.clear();
        self.open.clear();
        if let Goes::Pending(pending) = &mut self.goes {
            pending.number = next;
            pending.begun = 0;
        }
    }
}

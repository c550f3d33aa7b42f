//! A folder of files on its way: split by size or rows, and by the values of partition columns.
//!
//! Everything is written to a folder with a hidden name, which takes the place of the older one as
//! a whole at the commit. A file is complete, and closed, before the next one of its partition
//! begins, so that few are open at a time however many there are.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rapidbyte_formats::Picked;
use rapidbyte_sdk::files::{self, OutputFolder};
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::layout::{Set, numbered};
use crate::partition::Partitions;
use crate::write::{BUFFER_BYTES, OneFile, Synced};

/// A buffer of each of many files.
const SMALL_BUFFER_BYTES: usize = 1 << 16;
/// Files of one folder: the host looks at twice as many entries, folders among them.
const MAX_FILES: u64 = 50_000;

/// The files of one stream. Dropped, they leave nothing behind.
pub(crate) struct FileSet {
    settings: Rc<Settings>,
    set: Set,
    output: OutputFolder,
    folder: String,
    /// The file's name, perhaps with a counter.
    name: String,
    /// The columns of the files.
    schema: SchemaRef,
    partitions: Option<Partitions>,
    /// By the folder of a partition; the empty one without partitions.
    places: HashMap<String, Place>,
    /// The partitions whose files are open, by when they were last written to.
    open: BTreeMap<u64, String>,
    files: u64,
    /// Bytes of the complete files.
    bytes: u64,
    /// Counts the writes to partitions.
    clock: u64,
}

/// The files of one partition.
#[derive(Default)]
struct Place {
    open: Option<Box<OneFile>>,
    /// The number of the next file.
    next: u32,
    /// When it was last written to, by the clock.
    used: u64,
}

impl FileSet {
    pub(crate) fn begin(settings: Rc<Settings>, set: Set, target: &Target) -> Result<Self> {
        let schema = target.arrow_schema()?;
        let (partitions, schema) = match set.partition_by.as_slice() {
            [] => (None, schema),
            columns => {
                let (partitions, rest) = Partitions::new(columns, &schema)?;
                (Some(partitions), rest)
            }
        };
        let (folder, name) = settings.layout.folder(&target.stream)?;
        let pattern = settings.layout.pattern(&target.stream)?;
        // What no file can be written of is refused before the folder is there.
        crate::plan::refuse_types(&settings.format, &schema)?;
        Ok(Self {
            output: files::create_folder(&folder, &pattern)?,
            settings,
            set,
            folder,
            name,
            schema,
            partitions,
            places: HashMap::new(),
            open: BTreeMap::new(),
            files: 0,
            bytes: 0,
            clock: 0,
        })
    }

    /// Writes a batch; `before` rows of the stream came before it.
    pub(crate) fn write(&mut self, batch: &RecordBatch, before: u64) -> Result<()> {
        let rows = before + batch.num_rows() as u64;
        // None has more rows than `split` says.
        let least = self.set.split.rows.map_or(0, |most| rows.div_ceil(most));
        self.refuse_too_many(least.saturating_sub(self.files), 0)?;
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
        let path = format!("{}/{place}{}", self.folder, numbered(&self.name, next));
        let output = self.output.create(&path)?;
        let buffer = match self.partitions {
            Some(_) => SMALL_BUFFER_BYTES,
            None => BUFFER_BYTES,
        };
        let file = OneFile::begin(&self.settings, self.schema.clone(), output, buffer)?;
        let entry = self.places.entry(place.to_owned()).or_default();
        entry.open = Some(Box::new(file));
        entry.next = next + 1;
        Ok(())
    }

    /// Refuses `more` files than may be; before any of a batch is written.
    fn refuse_too_many(&self, more: u64, rows: u64) -> Result<()> {
        if self.files + more <= MAX_FILES {
            return Ok(());
        }
        let within = match (rows, self.set.partition_by.as_slice()) {
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
            .hint("partition by columns of fewer values, or split into larger files"))
    }

    /// Ends the file that was not written to for the longest time.
    fn end_idle(&mut self) -> Result<()> {
        if !self.set.counted {
            let text = format!(
                "rows of more than {} partitions come mixed, and each has one file that is open",
                self.set.open_files
            );
            return Err(Error::config("too_many_partitions", text)
                .hint(
                    "put {part} into the file's name, so that a partition may have several files, \
                     or raise open_files",
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
            self.bytes += file.commit(Synced::WithFolder)?;
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

    /// Ends all files and makes the folder visible. A stream without rows has one file that says
    /// so, or no partition.
    pub(crate) fn commit(mut self) -> Result<u64> {
        if self.files == 0 && self.partitions.is_none() {
            self.file_of("")?;
        }
        let mut open: Vec<String> = self.open.values().cloned().collect();
        open.sort();
        for place in open {
            self.end(&place)?;
        }
        self.output.commit()?;
        Ok(self.bytes)
    }
}

//! Manifests: which files of a folder are committed, in which order, and how far their stream is.
//!
//! A folder of files that grows has a folder `_manifest` with `00000001.json`, `00000002.json` and so
//! on. They are a chain: each manifest names the hash of the manifest before it. A writer creates a manifest
//! only if its number is free, so one of two writers makes number n and the other learns that it is behind.
//! A run fences older runs by a manifest without files. Every commit is a manifest with the files that it adds.
//! A fenced run therefore finds its next number taken for ever.
//!
//! A file waits as `_manifest/NAME.pending` until its manifest is there, and gets its name after
//! that. A reader that lists the folder by a pattern sees committed files only. A reader of the
//! manifests sees a commit as a whole, once all its files are in their place.
//!
//! This crate is names, bytes and rules; it does no I/O.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The folder of the manifests, in the folder of the files.
pub const FOLDER: &str = "_manifest";
/// Behind the name of a file that waits for its manifest.
pub const PENDING: &str = ".pending";
/// Behind the name of a file of rejects.
pub const REJECTS: &str = ".rejects.jsonl";
/// The form of the manifests that are written.
const VERSION: u32 = 1;
/// Digits of a number in a name.
const DIGITS: usize = 8;
/// The last number that has a name.
const MAX_NUMBER: u64 = 99_999_999;

/// One link of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// 1.
    pub version: u32,
    /// Its place in the chain, from 1 on.
    pub number: u64,
    /// The SHA-256 of the manifest before, in hexadecimal digits; none of the first.
    pub previous: Option<String>,
    /// Whose rows these are.
    pub pipeline: String,
    /// Of the pipeline.
    pub stream: String,
    /// The run that fenced last.
    pub run_id: String,
    /// Runs that have fenced so far.
    pub epoch: u64,
    /// Commits so far.
    pub seq: u64,
    /// Where the source resumes, as it wrote it.
    pub cursor: Option<String>,
    /// That run has committed everything.
    pub complete: bool,
    /// The files of manifests with smaller numbers were replaced.
    pub begins: u64,
    /// Rows of all files that count now.
    pub rows: u64,
    /// The columns of all files that count now, in the order in which they came. A file may lack some of them, and have a
    /// narrower type. Absent before the first commit with files, and in manifests of versions before 0.2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// How the newest files are named and written, and those before them since manifests say so. Absent before the first
    /// commit with files, and in manifests of versions before 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// The files that this commit adds.
    pub files: Vec<File>,
    /// The file with the rejects of this commit, in [`FOLDER`]. Nobody reads it as rows of the stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejects: Vec<File>,
    /// The rejects that this commit replays and so removes: the number of their manifest and of their line, `7.2`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replayed: Vec<String>,
}

/// A column of committed files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type as a pipeline file names it, such as `decimal(18, 4)`. Values of partitions are names of folders.
    #[serde(rename = "type")]
    pub ty: String,
}

/// How the files of a directory are named and written: the same for all files, because one reader with one pattern and
/// one set of options reads them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Of the files, with a counter: `part-{part}.csv`.
    pub name: String,
    /// Columns that are folders, from the outermost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<String>,
    /// `csv`, `jsonl`, `parquet` or `arrow`.
    pub format: String,
    /// Of CSV and JSON Lines: `none`, `gzip`, `zstd` or `lz4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// Of CSV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<Csv>,
}

/// The form of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Csv {
    /// Between fields.
    pub delimiter: char,
    /// Around fields.
    pub quote: char,
    /// The first line names the columns.
    pub header: bool,
    /// Stands for NULL.
    pub null_text: String,
}

impl Form {
    /// The first setting in which two forms differ, by its key in a pipeline file, with both values.
    pub fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let (ours, theirs) = (self.settings(), other.settings());
        let mut pairs = ours.into_iter().zip(theirs);
        pairs.find_map(|((key, ours), (_, theirs))| (ours != theirs).then_some((key, ours, theirs)))
    }

    /// Each setting by its key, in one order.
    fn settings(&self) -> [(&'static str, String); 8] {
        let csv = |value: fn(&Csv) -> String| self.csv.as_ref().map(value).unwrap_or_default();
        [
            (
                "partition_by",
                format!("[{}]", self.partition_by.join(", ")),
            ),
            ("format", self.format.clone()),
            ("path", self.name.clone()),
            ("compression", self.compression.clone().unwrap_or_default()),
            ("delimiter", csv(|csv| format!("{:?}", csv.delimiter))),
            ("quote", csv(|csv| format!("{:?}", csv.quote))),
            ("header", csv(|csv| csv.header.to_string())),
            ("null_text", csv(|csv| format!("{:?}", csv.null_text))),
        ]
    }
}

/// A committed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Below the folder of the files: `day=2026-11-21/part-0001-00000002-00000.csv`.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// Of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// In the file.
    pub rows: u64,
}

impl File {
    /// The name without folders, which no other file of the folder has.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Why a chain cannot be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It was not written by this version, or not by us at all.
    #[error("is not a valid manifest: {0}")]
    Malformed(String),
    /// A number is missing, a manifest names another hash than its predecessor has, or a key was changed.
    #[error("does not follow the manifest before it: {0}")]
    Broken(String),
    /// All numbers are used.
    #[error("has the highest possible number")]
    Full,
}

/// `00000002.json`.
///
/// # Errors
/// [`ManifestError::Full`].
pub fn name(number: u64) -> Result<String, ManifestError> {
    match number <= MAX_NUMBER {
        true => Ok(format!("{number:0DIGITS$}.json")),
        false => Err(ManifestError::Full),
    }
}

/// The number of a manifest's name. `None` if it is not such a name.
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let is_number = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

/// The part of a file's name that no other file of its folder has. `0002-00000007-00000` is the first file that
/// the second run writes for the manifest 7.
pub fn part(epoch: u64, number: u64, file: u64) -> String {
    format!("{epoch:04}-{number:0DIGITS$}-{file:05}")
}

/// The number of the manifest that a file is written for.
pub fn number_of_part(part: &str) -> Option<u64> {
    let mut parts = part.split('-');
    let numbers = [parts.next()?, parts.next()?, parts.next()?];
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if parts.next().is_some() || !numbers.iter().all(|text| is_number(text)) {
        return None;
    }
    numbers[1].parse().ok()
}

/// The number of the manifest that a file of rejects is written for: `rejects.0002-00000007-00000.rejects.jsonl`.
pub fn number_of_rejects(name: &str) -> Option<u64> {
    number_of_part(name.strip_suffix(REJECTS)?.rsplit_once('.')?.1)
}

/// The SHA-256 of bytes that come in pieces, in hexadecimal digits.
#[derive(Clone, Default)]
pub struct Hash(Sha256);

impl Hash {
    /// Takes a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// 64 digits.
    pub fn finish(self) -> String {
        let digest = self.0.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of bytes that are all there.
    pub fn of(bytes: &[u8]) -> String {
        let mut hash = Self::default();
        hash.update(bytes);
        hash.finish()
    }
}

/// A manifest with the hash by which its follower names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The manifest.
    pub manifest: Manifest,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
}

impl Link {
    /// Reads the manifest of a number.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`].
    pub fn decode(number: u64, bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Manifest = serde_json::from_slice(bytes)
            .map_err(|error| ManifestError::Malformed(error.to_string()))?;
        let malformed = |text: &str| Err(ManifestError::Malformed(text.to_owned()));
        if manifest.version != VERSION {
            return malformed("its version is not 1");
        }
        if manifest.number != number {
            return malformed("its number differs from its name");
        }
        if manifest.begins > manifest.number {
            return malformed("its key `begins` is above its number");
        }
        let leads_out = |file: &File| {
            file.path
                .split('/')
                .any(|part| matches!(part, "" | "." | "..") || part.contains(['*', '?']))
        };
        let mut all = manifest.files.iter().chain(&manifest.rejects);
        if all.any(leads_out) {
            return malformed("it names a file outside its directory");
        }
        Ok(Self {
            manifest,
            sha256: Hash::of(bytes),
        })
    }

    /// The link after this one with nothing new in it, and none after `last`.
    ///
    /// # Errors
    /// [`ManifestError::Full`].
    pub fn follow(last: Option<&Self>, run: Run<'_>) -> Result<Manifest, ManifestError> {
        let number = last.map_or(1, |last| last.manifest.number + 1);
        name(number)?;
        let before = last.map(|last| &last.manifest);
        Ok(Manifest {
            version: VERSION,
            number,
            previous: last.map(|last| last.sha256.clone()),
            pipeline: run.pipeline.to_owned(),
            stream: run.stream.to_owned(),
            run_id: run.id.to_owned(),
            epoch: before.map_or(0, |before| before.epoch),
            seq: before.map_or(0, |before| before.seq),
            cursor: before.and_then(|before| before.cursor.clone()),
            complete: before.is_some_and(|before| before.complete && before.run_id == run.id),
            begins: before.map_or(0, |before| before.begins),
            rows: before.map_or(0, |before| before.rows),
            columns: before.map_or_else(Vec::new, |before| before.columns.clone()),
            form: before.and_then(|before| before.form.clone()),
            files: Vec::new(),
            rejects: Vec::new(),
            replayed: Vec::new(),
        })
    }

    /// Checks that `next` may follow this manifest; `None` is the beginning of the chain.
    ///
    /// # Errors
    /// [`ManifestError::Broken`].
    pub fn is_before(this: Option<&Self>, next: &Self) -> Result<(), ManifestError> {
        let expected = this.map_or(1, |this| this.manifest.number + 1);
        let next = &next.manifest;
        if next.number != expected {
            let text = format!("{expected} is missing");
            return Err(ManifestError::Broken(text));
        }
        if next.previous.as_deref() != this.map(|this| this.sha256.as_str()) {
            let text = "that manifest was changed, or belongs to another directory".to_owned();
            return Err(ManifestError::Broken(text));
        }
        match next.changed_by_hand(this.map(|this| &this.manifest)) {
            Some(key) => Err(ManifestError::Broken(format!("its {key} was changed"))),
            None => Ok(()),
        }
    }
}

/// The run that makes a manifest.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The pipeline.
    pub pipeline: &'a str,
    /// Of the pipeline.
    pub stream: &'a str,
    /// The run's id.
    pub id: &'a str,
}

impl Manifest {
    /// A key with a value that no run writes after `before`. A run that fences raises the epoch alone; a commit
    /// raises `seq` and counts its files. This also covers the newest manifest, whose hash no follower holds.
    fn changed_by_hand(&self, before: Option<&Self>) -> Option<&'static str> {
        let (epoch, seq) = before.map_or((0, 0), |before| (before.epoch, before.seq));
        let rows = before.map_or(0, |before| before.rows);
        let begins = before.map_or(0, |before| before.begins);
        let cursor = before.and_then(|before| before.cursor.as_deref());
        if self.epoch == epoch.saturating_add(1) {
            let columns = before.map_or(&[][..], |before| &before.columns);
            let form = before.and_then(|before| before.form.as_ref());
            let differs = [
                (self.columns != columns, "columns"),
                (self.form.as_ref() != form, "form"),
                (self.seq != seq, "seq"),
                (self.cursor.as_deref() != cursor, "cursor"),
                (self.rows != rows, "rows"),
                (self.begins != begins, "begins"),
                (!self.files.is_empty(), "files"),
                (!self.rejects.is_empty(), "rejects"),
                (!self.replayed.is_empty(), "replayed"),
            ];
            return differs
                .iter()
                .find_map(|(differs, key)| differs.then_some(*key));
        }
        let replaces = self.begins == self.number;
        let added = self
            .files
            .iter()
            .fold(0, |sum: u64, file| sum.saturating_add(file.rows));
        let expected = added.saturating_add(if replaces { 0 } else { rows });
        let differs = [
            (self.epoch != epoch, "epoch"),
            (self.seq != seq.saturating_add(1), "seq"),
            (!replaces && self.begins != begins, "begins"),
            (self.rows != expected, "rows"),
        ];
        differs
            .iter()
            .find_map(|(differs, key)| differs.then_some(*key))
    }

    /// Refuses a cursor that no source gives.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`].
    pub fn check_cursor(&self) -> Result<(), ManifestError> {
        let Some(cursor) = &self.cursor else {
            return Ok(());
        };
        let parsed = serde_json::from_str::<serde::de::IgnoredAny>(cursor);
        parsed.map(drop).map_err(|error| {
            ManifestError::Malformed(format!("its cursor is not a JSON document ({error})"))
        })
    }

    /// The bytes of the file, with a line's end behind them.
    ///
    /// # Errors
    /// [`ManifestError::Malformed`], which would be a fault of this crate.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| ManifestError::Malformed(error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

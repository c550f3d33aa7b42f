//! Where the files of a stream are: one file, or a directory of files.

use std::collections::BTreeMap;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{hive, pattern};

use crate::config::{Config, Split};

/// Stands for the stream's name in a path.
const STREAM: &str = "{stream}";
/// Stands for the number of a file, counted from 00000 in each folder.
pub(crate) const PART: &str = "{part}";
/// Partitions whose files are open at the same time, by default.
const OPEN_FILES: u32 = 32;
/// A file that is written needs a buffer and a codec: about 1 MiB with zstd.
const MAX_OPEN_FILES: u32 = 512;

/// The settings `path`, `split` and `partition_by`, checked.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    path: String,
    /// None: one file.
    pub set: Option<Set>,
}

/// A folder of files.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub split: Split,
    partition_by: Vec<String>,
    partition_by_stream: BTreeMap<String, Vec<String>>,
    pub open_files: usize,
    /// The path has a counter: a partition may have several files.
    pub counted: bool,
}

impl Layout {
    pub(crate) fn settle(config: &Config) -> Result<Self> {
        let path = &config.path;
        let invalid = |text: &str| Err(Error::config("invalid_path", text).at("config.path"));
        if path.is_empty() || path.ends_with('/') {
            return invalid("the path does not name a file");
        }
        if pattern::is_pattern(path) {
            return invalid("a path to write to cannot contain * or ?");
        }
        if let Some(other) = unknown_placeholder(path) {
            let text = format!("{other} is not a known placeholder");
            return Err(Error::config("unknown_placeholder", text)
                .hint("write {stream} for the stream's name, {part} for a file's number")
                .at("config.path"));
        }
        Ok(Self {
            path: path.clone(),
            set: Set::settle(config)?,
        })
    }

    /// The path as the operator wrote it.
    pub(crate) fn shown(&self) -> &str {
        &self.path
    }

    /// The one file of a stream. The name that the operator chose for its target replaces `{stream}`, otherwise its own
    /// name does.
    pub(crate) fn file(&self, target: &Target) -> Result<String> {
        let name = target.name.as_deref().unwrap_or(&target.stream);
        let in_stream = |error: Error| error.in_stream(&target.stream);
        self.refuse_name(target).map_err(in_stream)?;
        self.named(name).map_err(in_stream)
    }

    /// Refuses a chosen name that has no effect, and one that the grants do not cover.
    fn refuse_name(&self, target: &Target) -> Result<()> {
        let Some(name) = &target.name else {
            return Ok(());
        };
        if !self.path.contains(STREAM) {
            let text = format!(
                "the path does not have {STREAM}, so the target name {name:?} has no effect"
            );
            return Err(Error::config("unused_option", text)
                .hint(format!(
                    "put {STREAM} into the path, or remove `target:` of the stream"
                ))
                .at("config.path"));
        }
        let set = self.set.as_ref();
        if set.is_some_and(|set| set.partition_by_stream.contains_key(&target.stream)) {
            let text =
                format!("the stream has partitions of its own, and the target name {name:?}");
            return Err(Error::config("invalid_config", text)
                .hint("set partition_by for all streams, or remove `target:` of the stream")
                .at("config.partition_by_stream"));
        }
        Ok(())
    }

    fn named(&self, name: &str) -> Result<String> {
        if !self.path.contains(STREAM) {
            return Ok(self.path.clone());
        }
        let is_name = !name.is_empty()
            && !matches!(name, "." | "..")
            && !name.contains(['/', '\\', '\0', '*', '?'])
            && !name.contains(PART)
            && !name.contains(STREAM);
        if !is_name {
            let text = format!("{name:?} cannot be part of a file name");
            return Err(Error::config("invalid_file_name", text)
                .hint(
                    "give the stream another name with `target: { name: … }`, or write it to a path without {stream}",
                )
                .at("config.path"));
        }
        Ok(self.path.replace(STREAM, name))
    }

    /// The folder of a stream's set, and in the place of its file's name the rest.
    pub(crate) fn folder(&self, target: &Target) -> Result<(String, String)> {
        Ok(split(&self.file(target)?))
    }

    /// A pattern of all files that a stream may have.
    pub(crate) fn pattern(&self, target: &Target) -> Result<String> {
        Ok(self.pattern_of(&target.stream, self.file(target)?))
    }

    fn pattern_of(&self, stream: &str, path: String) -> String {
        let Some(set) = &self.set else {
            return path;
        };
        let (folder, name) = split(&path);
        let any = |column: &String| format!("{}=*/", hive::escape(column));
        let partitions: String = set.partition_by(stream).iter().map(any).collect();
        format!("{folder}/{partitions}{}", name.replace(PART, "*"))
    }

    /// A pattern of the folders of all streams.
    pub(crate) fn folders(&self) -> String {
        split(&self.path.replace(STREAM, "*")).0
    }

    /// A file that a stream may have, to try whether it can be written.
    pub(crate) fn example(&self, stream: &str) -> Result<String> {
        let pattern = self.pattern_of(stream, self.named(stream)?);
        Ok(pattern.replace('*', "0"))
    }
}

/// The directory and the name of a file. `settle` has seen to it that there is a directory where one is needed.
fn split(path: &str) -> (String, String) {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    (folder.to_owned(), name.to_owned())
}

/// The file's name with its number in the place of the counter.
pub(crate) fn numbered(name: &str, part: u32) -> String {
    name.replace(PART, &format!("{part:05}"))
}

impl Set {
    /// The columns of a stream that become folders.
    pub(crate) fn partition_by(&self, stream: &str) -> &[String] {
        let of_stream = self.partition_by_stream.get(stream);
        of_stream.unwrap_or(&self.partition_by)
    }

    /// The key that says so, for an error.
    pub(crate) fn partition_key(&self, stream: &str) -> String {
        match self.partition_by_stream.contains_key(stream) {
            true => format!("config.partition_by_stream.{stream}"),
            false => "config.partition_by".to_owned(),
        }
    }

    /// True where a stream may have partitions.
    pub(crate) fn partitions_any(&self) -> bool {
        let mut all = self.partition_by_stream.values();
        !self.partition_by.is_empty() || all.any(|columns| !columns.is_empty())
    }

    fn settle(config: &Config) -> Result<Option<Self>> {
        let refused = |code: &str, text: String, hint: &str, key: &str| {
            let error = Error::config(code, text).hint(hint);
            Err(error.at(format!("config.{key}")))
        };
        let split = config.split.unwrap_or_default();
        let (folder, name) = config.path.rsplit_once('/').unwrap_or(("", &config.path));
        let counted = name.contains(PART);
        if folder.contains(PART) || name.matches(PART).count() > 1 {
            let text = format!("{PART} is allowed once, and only in the file's name");
            return refused(
                "invalid_path",
                text,
                "write a path such as orders/part-{part}.csv",
                "path",
            );
        }
        if config.split.is_some() && split == Split::default() {
            let text = "split has neither bytes nor rows".to_owned();
            return refused(
                "invalid_config",
                text,
                "write, for example, split: { bytes: 256mb }",
                "split",
            );
        }
        if split.rows == Some(0) || split.bytes.is_some_and(|size| size.0 == 0) {
            let text = "a file of this size would be empty".to_owned();
            return refused("invalid_config", text, "set 1 or more", "split");
        }
        let by_stream = &config.partition_by_stream;
        let is_one_file = config.partition_by.is_empty() && by_stream.is_empty();
        if is_one_file && config.split.is_none() && !counted {
            if config.open_files.is_some() {
                let text = "open_files has no effect without partition_by".to_owned();
                return refused(
                    "unused_option",
                    text,
                    "set partition_by, or remove open_files",
                    "open_files",
                );
            }
            return Ok(None);
        }
        if config.split.is_some() && !counted {
            let text = format!("{PART} is missing: several files need different names");
            return refused(
                "missing_part",
                text,
                "write a path such as orders/part-{part}.csv",
                "path",
            );
        }
        let last = folder.rsplit('/').next().unwrap_or_default();
        if matches!(last, "" | "." | "..") {
            let text = "a set of files needs its own directory, which the run replaces as a whole";
            let hint = "write a path such as orders/part-{part}.csv";
            return refused("invalid_path", text.to_owned(), hint, "path");
        }
        let of_streams = by_stream
            .iter()
            .map(|(stream, columns)| (format!("partition_by_stream.{stream}"), columns));
        let of_all = ("partition_by".to_owned(), &config.partition_by);
        for (key, columns) in std::iter::once(of_all).chain(of_streams) {
            for (at, column) in columns.iter().enumerate() {
                let text = match column.as_str() {
                    "" => "a column's name cannot be empty".to_owned(),
                    _ if columns[..at].contains(column) => {
                        format!("column {column:?} is named twice")
                    }
                    _ => continue,
                };
                let hint = "name each column once";
                return refused("invalid_config", text, hint, &key);
            }
        }
        let open_files = config.open_files.unwrap_or(OPEN_FILES);
        if !(1..=MAX_OPEN_FILES).contains(&open_files) {
            let text = format!("{open_files} open files are not allowed");
            let hint = format!("set 1 to {MAX_OPEN_FILES}");
            return refused("invalid_config", text, &hint, "open_files");
        }
        Ok(Some(Self {
            split,
            partition_by: config.partition_by.clone(),
            partition_by_stream: by_stream.clone(),
            open_files: open_files as usize,
            counted,
        }))
    }
}

/// A word in braces that stands for nothing.
fn unknown_placeholder(path: &str) -> Option<&str> {
    let mut rest = path;
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        let end = rest.find('}')? + 1;
        let word = &rest[1..end - 1];
        let is_word =
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        if is_word && !matches!(&rest[..end], STREAM | PART) {
            return Some(&rest[..end]);
        }
        rest = &rest[1..];
    }
    None
}

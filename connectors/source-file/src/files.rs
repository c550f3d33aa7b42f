//! Which files there are, and which stream each belongs to.

use rapidbyte_formats::Compression;
use rapidbyte_formats::csv::Headers;
use rapidbyte_sdk::files::{self, Entry};
use rapidbyte_sdk::pattern;
use rapidbyte_sdk::prelude::*;

use crate::committed;
use crate::settings::{STREAM, Settings};

/// The files of one stream, ordered by path. Only a stream that `schemas` declares may have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStream {
    pub name: String,
    /// Path and size in bytes when it was looked for.
    pub files: Vec<(String, u64)>,
    /// How many files are left out because no manifest names them; nothing without a folder with manifests.
    pub left_out: Option<usize>,
}

impl FileStream {
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    /// Whether its files may have different columns. Files that manifests name may: a stream that grows keeps its files
    /// when it gets a column.
    pub(crate) fn headers(&self, asked: Headers) -> Headers {
        match self.left_out {
            Some(_) => Headers::Union,
            None => asked,
        }
    }

    /// A note on which files are read.
    pub(crate) fn manifest_note(&self) -> Option<String> {
        Some(match self.left_out? {
            0 => "reads the files that the manifests name".to_owned(),
            files => format!("reads the files that the manifests name; skips {files} others"),
        })
    }

    /// A note on the sizes; `said` is the configured compression.
    pub(crate) fn compression_note(&self, said: Option<Compression>) -> Option<String> {
        let mut names: Vec<&str> = self
            .files
            .iter()
            .map(|(path, _)| said.unwrap_or_else(|| Compression::of_path(path).0))
            .filter(|compression| *compression != Compression::None)
            .map(Compression::name)
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| {
            format!(
                "sizes are of the compressed files ({})",
                names.join(" and ")
            )
        })
    }
}

/// Refuses a folder or a pipe: it exists, but is not a file.
fn refuse_other_kinds(path: &str) -> Result<()> {
    if pattern::is_pattern(path) || path.contains(STREAM) {
        return Ok(());
    }
    match files::open(path) {
        Err(error) if error.code == "not_a_file" => Err(error
            .hint(format!(
                "give the path of a regular file; for the files of a directory write {path}/*.csv"
            ))
            .at("config.path")),
        _ => Ok(()),
    }
}

/// The streams, ordered by name: streams that have files, and streams that `schemas` declares, whose files may be
/// missing. It is an error if no file matches, or if a declaration seems to mean another stream.
pub(crate) fn find(settings: &Settings) -> Result<Vec<FileStream>> {
    let path = &settings.path;
    let (entries, left_out) = committed::find(&path.replace(STREAM, "*"))?;
    if entries.is_empty() {
        refuse_other_kinds(path)?;
        let text = format!("no file matches {path}");
        return Err(Error::config("no_file_matches", text)
            .hint("correct the path, which is relative to the pipeline file")
            .at("config.path"));
    }
    let Some((before, after)) = path.split_once(STREAM) else {
        let name = settings.stream.clone().unwrap_or_else(|| stem(path));
        if let Some(other) = settings.schemas.keys().find(|declared| **declared != name) {
            return Err(undeclared(other, &[&name]));
        }
        let files = entries.into_iter().map(|e| (e.path, e.size)).collect();
        return Ok(vec![FileStream {
            name,
            files,
            left_out,
        }]);
    };
    let mut streams = group(before, after, entries, left_out);
    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
    let mut gone: Vec<&String> = settings.schemas.keys().collect();
    gone.retain(|name| !names.contains(&name.as_str()));
    // The files of a mistyped stream would be read with other columns than it declares.
    let is_meant = |name: &&String| {
        let mut undeclared = names.iter();
        undeclared.any(|other| !settings.schemas.contains_key(*other) && is_slip(name, other))
    };
    if let Some(name) = gone.iter().find(|name| is_meant(name)) {
        return Err(undeclared(name, &names));
    }
    streams.extend(gone.into_iter().map(|name| FileStream {
        name: name.clone(),
        files: Vec::new(),
        left_out: None,
    }));
    streams.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(streams)
}

/// Whether one name seems to be the other one, mistyped. Names that differ in numbers alone are a series.
fn is_slip(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let letters = |name: &str| -> String { name.chars().filter(|c| !c.is_numeric()).collect() };
    let slips = one.chars().count() / 4;
    let is_series = one != other && letters(&one) == letters(&other);
    !is_series && strsim::damerau_levenshtein(&one, &other) <= slips
}

/// The error for a stream that `schemas` declares and that does not have a file.
pub(crate) fn without_file(settings: &Settings, name: &str) -> Error {
    let text = format!("no file belongs to the stream {name:?} that schemas declares");
    let path = settings.path.replace(STREAM, name);
    Error::config("unknown_stream", text)
        .hint(format!(
            "put the file back ({path}), or remove the stream from schemas and from the pipeline"
        ))
        .in_stream(name)
        .at(format!("config.schemas.{name}"))
}

fn undeclared(name: &str, names: &[&str]) -> Error {
    no_file_of(name, names).at(format!("config.schemas.{name}"))
}

pub(crate) fn unknown_stream(name: &str, streams: &[FileStream]) -> Error {
    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
    no_file_of(name, &names)
}

fn no_file_of(name: &str, names: &[&str]) -> Error {
    // A handful tells enough.
    const SHOWN: usize = 8;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Error::config(
        "unknown_stream",
        format!("no file belongs to the stream {name:?}"),
    )
    .hint(format!("use one of {shown}{more}"))
    .in_stream(name)
}

/// Puts each file to the stream that its path names.
fn group(
    before: &str,
    after: &str,
    entries: Vec<Entry>,
    left_out: Option<usize>,
) -> Vec<FileStream> {
    // Counted from the end: the host may give a path by another beginning than it was asked for.
    let below = after.matches('/').count();
    let prefix = before.rsplit('/').next().unwrap_or_default();
    let suffix = after.split('/').next().unwrap_or_default();
    let mut streams: Vec<FileStream> = Vec::new();
    for entry in entries {
        let part = entry.path.rsplit('/').nth(below).unwrap_or_default();
        let Some(name) = name_within(prefix, suffix, part).map(str::to_owned) else {
            continue;
        };
        let file = (entry.path, entry.size);
        match streams.iter_mut().find(|s| s.name == name) {
            Some(stream) => stream.files.push(file),
            None => streams.push(FileStream {
                name,
                files: vec![file],
                left_out,
            }),
        }
    }
    streams.sort_by(|a, b| a.name.cmp(&b.name));
    streams
}

/// The shortest text that stands for the stream between two patterns: `orders` of
/// `orders-2026-11.csv` in `{stream}-*.csv`.
fn name_within<'a>(prefix: &str, suffix: &str, part: &'a str) -> Option<&'a str> {
    let ends = |from: usize| {
        let rest = part[from..]
            .char_indices()
            .skip(1)
            .map(move |(i, _)| from + i);
        rest.chain([part.len()])
    };
    let starts = part.char_indices().map(|(i, _)| i);
    starts
        .filter(|start| pattern::matches(prefix, &part[..*start]))
        .find_map(|start| {
            let end = ends(start).find(|end| pattern::matches(suffix, &part[*end..]))?;
            Some(&part[start..end])
        })
}

/// `orders` of `data/orders-*.csv`; the folder's name if nothing is left of the file's.
fn stem(path: &str) -> String {
    let plain = |part: &str| {
        let part: String = part.chars().filter(|c| !matches!(c, '*' | '?')).collect();
        part.trim_matches(['-', '_', '.']).to_owned()
    };
    let mut parts = path.rsplit('/');
    let (_, file) = Compression::of_path(parts.next().unwrap_or_default());
    let file = file.rsplit_once('.').map_or(file, |(name, _)| name);
    std::iter::once(plain(file))
        .chain(parts.map(plain))
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "files".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_after_its_file() {
        for (path, name) in [
            ("data/orders.csv", "orders"),
            ("orders-*.csv", "orders"),
            ("data/2026_?.jsonl", "2026"),
            ("data/a.b.csv", "a.b"),
            ("in/events/*.csv", "events"),
            ("*.csv", "files"),
            ("plain", "plain"),
            ("data/orders.csv.gz", "orders"),
            ("in/events/*.jsonl.zst", "events"),
        ] {
            assert_eq!(stem(path), name, "{path}");
        }
    }

    #[test]
    fn a_slip_is_not_a_series_and_not_another_word() {
        for (one, other, expected) in [
            ("ordrs", "orders", true),
            ("Orders", "orders", true),
            ("customer", "customers", true),
            ("orders_2025", "orders_2026", false),
            ("a", "b", false),
            ("orders", "events", false),
        ] {
            assert_eq!(is_slip(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_hint_lists_some_streams_and_counts_the_others() {
        let names: Vec<String> = (0..11).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let hint = no_file_of("a", &names).hint.unwrap();
        assert_eq!(hint, "use one of s0, s1, s2, s3, s4, s5, s6, s7 and 3 more");
        assert_eq!(
            no_file_of("a", &names[..2]).hint.unwrap(),
            "use one of s0, s1"
        );
    }

    #[test]
    fn files_go_to_the_stream_that_their_path_names() {
        let names = |path: &str, files: &[&str]| {
            let (before, after) = path.split_once(STREAM).unwrap();
            let entry = |path: &&str| Entry {
                path: (*path).into(),
                size: 1,
            };
            let streams = group(before, after, files.iter().map(entry).collect(), None);
            let shown = streams
                .iter()
                .map(|s| format!("{}:{}", s.name, s.files.len()));
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            names("d/{stream}.csv", &["d/b.csv", "d/a.x.csv"]),
            "a.x:1 b:1"
        );
        assert_eq!(names("../d/{stream}.csv", &["/abs/d/b.csv"]), "b:1");
        assert_eq!(
            names(
                "{stream}-*.csv",
                &["o-2026-1.csv", "o-2026-2.csv", "p-.csv"]
            ),
            "o:2 p:1"
        );
        assert_eq!(
            names("d/{stream}/*.csv", &["d/é/1.csv", "d/é/2.csv"]),
            "é:2"
        );
        assert_eq!(names("x?_{stream}.csv", &["xé_é.csv"]), "é:1");
    }
}

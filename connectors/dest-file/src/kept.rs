//! Rejects that are kept in the files of directories that grow: lists them, and says which of them a load replays.
//!
//! A reject is a line of a file, and keeps its id: the directory, the number of the manifest that names the file, and the
//! number of the line. The manifest of a replay names the rejects that it removes, so no file of rejects changes. A record
//! that fails again is a new line, which takes the place of a removed line in the order.

use std::collections::{BTreeMap, HashMap, HashSet};

use rapidbyte_manifest::{self as manifest, FOLDER, File, Hash, Link, Manifest, PENDING, REJECTS};
use rapidbyte_pg::behind::Columns;
use rapidbyte_sdk::files;
use rapidbyte_sdk::prelude::*;

use crate::chain::{self, Lease};
use crate::id::{Claim, Id, Place, missing, parted};
use crate::layout::Layout;

/// Rejects of a page.
const PAGE_ROWS: usize = 1000;
/// Bytes of the lines of a page, which may be one line longer.
const PAGE_BYTES: usize = 1 << 20;
/// A line with a record of 64 KiB, all of whose bytes are escaped, and as much of what its source read it with.
const MAX_LINE_BYTES: usize = 1 << 20;
const READ_BYTES: u32 = 1 << 18;
const BOM: &[u8] = "\u{feff}".as_bytes();

/// Whether a load replays rejects.
pub(crate) fn is_replay(target: &Target) -> bool {
    let rejects = target.rejects.as_ref();
    rejects.is_some_and(|rejects| !rejects.replayed.is_empty())
}

/// The files of rejects of one pipeline in one place, as they were at the first page.
pub(crate) struct Listing {
    to: String,
    pipeline: String,
    folders: BTreeMap<String, Folder>,
}

#[derive(Default)]
struct Folder {
    /// The files of runs, whose lines come in the order of their ids, by the numbers of their manifests. The lines of
    /// replays may belong anywhere in that order.
    ordered: BTreeMap<u64, File>,
    of_replays: BTreeMap<u64, File>,
    /// The lines that were replayed.
    gone: HashSet<Place>,
}

impl Folder {
    /// Notes what a manifest names.
    fn add(&mut self, found: &Manifest, to: &str) {
        let places = found
            .replayed
            .iter()
            .filter_map(|place| Place::parse(place));
        self.gone.extend(places);
        let files = match found.replayed.is_empty() {
            true => &mut self.ordered,
            false => &mut self.of_replays,
        };
        for file in &found.rejects {
            let name = file.name().strip_suffix(REJECTS);
            let name = name.and_then(|name| Some(name.rsplit_once('.')?.0));
            if name == Some(to) {
                files.insert(found.number, file.clone());
            }
        }
    }
}

/// The directory and the name of a manifest.
fn parts_of(path: &str) -> (&str, &str) {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let folder = folder.strip_suffix(FOLDER).unwrap_or(folder);
    (folder.trim_end_matches('/'), name)
}

impl Listing {
    /// Reads the manifests of all directories that the layout may have. Errors: `manifest_broken`.
    pub(crate) fn of(layout: &Layout, to: &str, pipeline: &str) -> Result<Self> {
        let mut folders: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in files::find(&format!("{}/{FOLDER}/*.json", layout.folders()))? {
            let (folder, name) = parts_of(&entry.path);
            if let Some(number) = manifest::number(name) {
                folders.entry(folder.to_owned()).or_default().push(number);
            }
        }
        let mut listing = Self {
            to: to.to_owned(),
            pipeline: pipeline.to_owned(),
            folders: BTreeMap::new(),
        };
        for (folder, mut numbers) in folders {
            numbers.sort_unstable();
            let (mut found, mut last) = (Folder::default(), None);
            for number in numbers {
                let link = chain::read(&folder, number)?;
                Link::is_before(last.as_ref(), &link)
                    .map_err(|error| chain::broken(&folder, number, &error))?;
                found.add(&link.manifest, to);
                last = Some(link);
            }
            if last.is_some_and(|last| last.manifest.pipeline == pipeline) {
                listing.folders.insert(folder, found);
            }
        }
        Ok(listing)
    }

    /// Whether these are the rejects of a place and a pipeline.
    pub(crate) fn is_of(&self, to: &str, pipeline: &str) -> bool {
        self.to == to && self.pipeline == pipeline
    }

    /// A page of the rejects behind `after`, in the order of directories, manifests and lines.
    pub(crate) fn page(&self, after: Option<&str>, with_data: bool) -> Result<Vec<KeptReject>> {
        let after = after.map(parted).transpose()?;
        let mut kept = Vec::new();
        for (path, folder) in &self.folders {
            let after = match after {
                Some((behind, _)) if path.as_str() < behind => continue,
                Some((behind, id)) if path == behind => Some(id),
                _ => None,
            };
            let mut page = Page::default();
            folder.fill(path, after, &mut page)?;
            kept.extend(page.lines.into_iter().map(|(id, line)| (path, id, line)));
            if !kept.is_empty() {
                break;
            }
        }
        let kept = kept.into_iter();
        kept.map(|(path, id, line)| line.kept(&format!("{path}#{id}"), with_data))
            .collect()
    }
}

/// The first lines behind a place.
#[derive(Default)]
struct Page {
    lines: BTreeMap<Id, Line>,
    bytes: usize,
}

impl Page {
    fn is_full(&self) -> bool {
        self.lines.len() >= PAGE_ROWS || self.bytes >= PAGE_BYTES
    }

    /// Whether a line with this id, and any later one, stays out.
    fn ends_before(&self, id: Id) -> bool {
        let last = self.lines.last_key_value();
        self.is_full() && last.is_some_and(|(last, _)| *last < id)
    }

    fn add(&mut self, id: Id, line: Line) {
        if self.ends_before(id) {
            return;
        }
        self.bytes += line.text_bytes;
        self.lines.insert(id, line);
        // The page may be full without its last line.
        while let Some((_, last)) = self.lines.last_key_value() {
            let rest = (self.lines.len() - 1, self.bytes - last.text_bytes);
            if rest.0 < PAGE_ROWS && rest.1 < PAGE_BYTES {
                break;
            }
            self.bytes = rest.1;
            self.lines.pop_last();
        }
    }
}

impl Folder {
    /// Adds the lines behind `after` to a page.
    fn fill(&self, path: &str, after: Option<Id>, page: &mut Page) -> Result<()> {
        let add = |id: Id, line: Line, page: &mut Page| {
            if after.is_none_or(|after| id > after) && !self.gone.contains(&id.line()) {
                page.add(id, line);
            }
        };
        let from = after.map_or(0, |after| after.first.number);
        for (number, file) in self.ordered.range(from..) {
            let start = Place {
                number: *number,
                line: 0,
            };
            if page.ends_before(Id {
                first: start,
                again: None,
            }) {
                break;
            }
            each_line(path, file, *number, |id, line| {
                add(id, line, page);
                Ok(!page.ends_before(id))
            })?;
        }
        for (number, file) in &self.of_replays {
            each_line(path, file, *number, |id, line| {
                add(id, line, page);
                Ok(true)
            })?;
        }
        Ok(())
    }
}

/// A line of a file of rejects.
#[derive(Debug, serde::Deserialize)]
struct Line {
    time: String,
    run_id: String,
    stream: String,
    origin: String,
    location: Option<String>,
    column: Option<String>,
    code: String,
    message: String,
    is_cut: bool,
    record: Option<String>,
    record_hex: Option<String>,
    read_with: Option<serde_json::Value>,
    /// [`Id::first`] of a record that failed again.
    first: Option<String>,
    /// The hash of the line, and its length.
    #[serde(skip)]
    version: String,
    #[serde(skip)]
    text_bytes: usize,
}

impl Line {
    fn origin(&self) -> RejectOrigin {
        match self.origin.as_str() {
            "source" => RejectOrigin::Source,
            "transform" => RejectOrigin::Transform,
            _ => RejectOrigin::Destination,
        }
    }

    /// Errors: `reject_columns_changed`.
    fn refuse_other(&self, id: &str, columns: &Columns) -> Result<()> {
        let then = self.read_with.as_ref().map(text_of);
        let Some(column) = then.and_then(|then| columns.changed(&self.origin, &then)) else {
            return Ok(());
        };
        let text = format!(
            "the reject {id} cannot be replayed: {column:?} is another column at the source than when the row was \
             rejected, or has another type"
        );
        Err(Error::data("reject_columns_changed", text)
            .in_column(&column)
            .hint("write the values under the names of now into a file for --from, and remove read_with from the line"))
    }

    fn kept(self, id: &str, with_data: bool) -> Result<KeptReject> {
        let origin = self.origin();
        let data = match (self.record, self.record_hex) {
            (_, Some(hex)) => from_hex(&hex).ok_or_else(|| {
                unreadable(id, "its record_hex is not a row of hexadecimal digits")
            })?,
            (record, None) => record.unwrap_or_default().into_bytes(),
        };
        Ok(KeptReject {
            id: id.to_owned(),
            version: if with_data {
                self.version
            } else {
                String::new()
            },
            stream: self.stream,
            run_id: self.run_id,
            time: self.time,
            origin,
            reject: Reject {
                data: if with_data { data } else { Vec::new() },
                is_cut: self.is_cut,
                location: self.location,
                column: self.column,
                code: self.code,
                message: self.message,
                read_with: self.read_with.filter(|_| with_data).as_ref().map(text_of),
            },
        })
    }
}

/// A text, or the JSON that somebody wrote in its place.
fn text_of(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

/// Calls `each` with the lines of a file, until it returns false. Errors: `rejects_unreadable`.
fn each_line(
    folder: &str,
    file: &File,
    number: u64,
    mut each: impl FnMut(Id, Line) -> Result<bool>,
) -> Result<()> {
    let path = format!("{folder}/{}", file.path);
    let pending = format!("{folder}/{FOLDER}/{}{PENDING}", file.name());
    // A commit is under way, or was interrupted between its manifest and the names of its files.
    let input = match files::open(&path) {
        Err(error) if error.code == "file_not_found" => {
            files::open(&pending).map_err(|_| unreadable(&path, "it does not exist"))?
        }
        opened => opened?,
    };
    let (mut offset, mut rest, mut line) = (0, Vec::new(), 0);
    loop {
        let piece = input.read(offset, READ_BYTES)?;
        offset += piece.len() as u64;
        let is_end = piece.is_empty();
        rest.extend_from_slice(&piece);
        let mut start = 0;
        while start < rest.len() {
            let found = memchr::memchr(b'\n', &rest[start..]);
            let end = match found {
                Some(at) => start + at,
                None if is_end => rest.len(),
                None => break,
            };
            line += 1;
            let place = Place { number, line };
            let (id, parsed) = parsed(&rest[start..end], place)
                .map_err(|why| unreadable(&format!("{path}:{line}"), &why))?;
            start = end + 1;
            if !each(id, parsed)? {
                return Ok(());
            }
        }
        rest.drain(..start.min(rest.len()));
        if rest.len() > MAX_LINE_BYTES {
            let why = format!("it is longer than {MAX_LINE_BYTES} bytes");
            return Err(unreadable(&format!("{path}:{}", line + 1), &why));
        }
        if is_end && line == file.rows {
            return Ok(());
        }
        if is_end {
            let lines = rapidbyte_sdk::counted(line, "line");
            let why = format!("it has {lines}, and was committed with {}", file.rows);
            return Err(unreadable(&path, &why));
        }
    }
}

fn parsed(text: &[u8], place: Place) -> Result<(Id, Line), String> {
    // An editor may have put a mark in front of the first line.
    let line = serde_json::from_slice::<Line>(text.strip_prefix(BOM).unwrap_or(text));
    let mut line = line.map_err(|error| format!("it is not a reject: {error}"))?;
    line.version = Hash::of(text);
    line.text_bytes = text.len();
    let id = match &line.first {
        None => Id {
            first: place,
            again: None,
        },
        Some(first) => {
            let first = Place::parse(first);
            let first = first.ok_or("its key first is not the place of a reject")?;
            Id {
                first,
                again: Some(place),
            }
        }
    };
    Ok((id, line))
}

fn unreadable(place: &str, why: &str) -> Error {
    let text = format!("{place} cannot be read: {why}");
    Error::schema("rejects_unreadable", text)
        .hint("restore the file: each line is one reject, and all lines stay in their places")
        .at(place)
}

impl Claim {
    /// The claim of a load that has fenced all others. Empty for a load that replays nothing. Errors: `reject_missing`,
    /// `reject_columns_changed`.
    pub(crate) fn of(target: &Target, lease: &Lease) -> Result<Self> {
        let mut claim = Self::default();
        let Some(rejects) = target.rejects.as_ref().filter(|_| is_replay(target)) else {
            return Ok(claim);
        };
        let path = &lease.place.folder;
        // The ids have the path as files are listed.
        let found = files::find(&format!("{path}/{FOLDER}/*.json"))?;
        let listed = found.first().map_or("", |entry| parts_of(&entry.path).0);
        let mut folder = Folder::default();
        for number in 1..lease.next() {
            folder.add(&chain::read(path, number)?.manifest, &rejects.to);
        }
        let mut wanted: BTreeMap<u64, HashMap<Place, &str>> = BTreeMap::new();
        for (id, version) in &rejects.replayed {
            let (of, end) = parted(id)?;
            if of != listed || folder.gone.contains(&end.line()) {
                return Err(missing(&format!(
                    "the reject {id} was replayed before, or is not of this stream"
                )));
            }
            let lines = wanted.entry(end.line().number).or_default();
            lines.insert(end.line(), version);
            claim.lines.push(end.line().to_string());
            claim.first.push_back(end.first);
        }
        let columns = columns(target)?;
        for (number, mut lines) in wanted {
            let files = [&folder.ordered, &folder.of_replays];
            if let Some(file) = files.iter().find_map(|files| files.get(&number)) {
                each_line(path, file, number, |id, line| {
                    if lines.get(&id.line()) == Some(&line.version.as_str()) {
                        line.refuse_other(&format!("{listed}#{id}"), &columns)?;
                        lines.remove(&id.line());
                    }
                    Ok(true)
                })?;
            }
            if let Some(place) = lines.keys().min() {
                let what = format!("the reject {listed}#{place} was changed or removed");
                return Err(missing(&what));
            }
        }
        Ok(claim)
    }
}

/// The columns at the source behind the columns of a target.
pub(crate) fn columns(target: &Target) -> Result<Columns> {
    let columns = Columns::of(target.arrow_schema()?.as_ref());
    columns.map_err(|error| Error::internal(error.to_string()))
}

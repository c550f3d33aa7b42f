//! Folders with manifests: exactly the files that the chain names are read.
//!
//! A folder that `dest-file` adds to says in `_manifest` what is committed. A commit counts once all its files are in
//! their place; until then the folder is as it was before the commit. A file that the chain names and that does not
//! exist is an error, never fewer rows.

use std::collections::{BTreeMap, HashMap};

use rapidbyte_manifest::{self as manifest, FOLDER, File, Link, ManifestError, PENDING};
use rapidbyte_sdk::files::{self, Entry};
use rapidbyte_sdk::pattern;
use rapidbyte_sdk::prelude::*;

/// Looks again while a commit is under way; one step of it takes far less than a look.
const MAX_LOOKS: usize = 5;
/// As many as the host grants, so that a path has an end.
const MAX_FOLDERS: usize = 16;
/// As the writer has it.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;
const READ_BYTES: u32 = 1 << 20;

/// The chain of one folder, in its order.
struct Folder {
    path: String,
    links: Vec<Link>,
}

/// The files that a pattern finds, without those that a folder's manifests do not name; and how many
/// these are, if a folder with manifests is among them.
pub(crate) fn find(asked: &str) -> Result<(Vec<Entry>, Option<usize>)> {
    if !pattern::is_pattern(asked) {
        return Ok((files::find(asked)?, None));
    }
    let mut looks = 0;
    loop {
        // Before the files: what is named by then is there afterwards.
        let folders = folders(asked)?;
        let entries = files::find(asked)?;
        if folders.is_empty() {
            return Ok((entries, None));
        }
        looks += 1;
        match choose(asked, &folders, entries) {
            // A later commit has replaced it, or it got its name in between.
            Err(error) if error.code == "committed_file_missing" && looks < MAX_LOOKS => {}
            chosen => return chosen.map(|(entries, left)| (entries, Some(left))),
        }
    }
}

fn choose(asked: &str, folders: &[Folder], entries: Vec<Entry>) -> Result<(Vec<Entry>, usize)> {
    let found: HashMap<&str, u64> = entries.iter().map(|e| (e.path.as_str(), e.size)).collect();
    let mut committed: HashMap<String, u64> = HashMap::new();
    for folder in folders {
        let asked = |file: &File| is_asked(asked, &file.path);
        for file in folder.files(&found)?.filter(|file| asked(file)) {
            let path = folder.at(&file.path);
            match found.get(path.as_str()) {
                Some(size) if *size == file.size => {}
                Some(size) => {
                    let text = format!(
                        "{path} has {size} bytes, but was committed with {}",
                        file.size
                    );
                    return Err(Error::data("committed_file_changed", text)
                        .hint("restore the file: a committed file never changes")
                        .at(&path));
                }
                None => {
                    let text = format!("{path} is committed, but does not exist");
                    return Err(Error::data("committed_file_missing", text)
                        .hint("restore the file; to remove rows, use write_mode: replace")
                        .at(&path));
                }
            }
            committed.insert(path, file.size);
        }
    }
    let all = entries.len();
    let is_below = |path: &str| {
        folders
            .iter()
            .any(|folder| path.starts_with(&folder.at("")))
    };
    let entries: Vec<Entry> = entries
        .into_iter()
        .filter(|entry| committed.contains_key(&entry.path) || !is_below(&entry.path))
        .collect();
    let left = all - entries.len();
    Ok((entries, left))
}

/// Whether a file of a folder is meant by a pattern: it is compared from its end on, because a path
/// may begin otherwise than it was asked for.
fn is_asked(asked: &str, inside: &str) -> bool {
    let depth = inside.split('/').count();
    let parts: Vec<&str> = asked.split('/').collect();
    let from = parts.len().saturating_sub(depth);
    pattern::matches(&parts[from..].join("/"), inside)
}

/// The folders with manifests that hold files of a pattern.
fn folders(asked: &str) -> Result<Vec<Folder>> {
    let mut found: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let mut folder = asked.rsplit_once('/').map_or("", |(folder, _)| folder);
    for _ in 0..MAX_FOLDERS {
        let slash = if folder.is_empty() { "" } else { "/" };
        for entry in files::find(&format!("{folder}{slash}{FOLDER}/*.json"))? {
            let Some((path, name)) = entry.path.rsplit_once('/') else {
                continue;
            };
            let Some(number) = manifest::number(name) else {
                continue;
            };
            let path = path.strip_suffix(FOLDER).unwrap_or_default();
            let path = path.strip_suffix('/').unwrap_or(path);
            found
                .entry(path.to_owned())
                .or_default()
                .push((number, entry.path.clone()));
        }
        // Folders of partitions are below the folder with the manifests.
        let (above, last) = folder.rsplit_once('/').unwrap_or(("", folder));
        if !last.contains('=') {
            break;
        }
        folder = above;
    }
    let read = |(path, manifests)| Folder::read(path, manifests);
    found.into_iter().map(read).collect()
}

impl Folder {
    fn read(path: String, mut manifests: Vec<(u64, String)>) -> Result<Self> {
        manifests.sort();
        let mut links: Vec<Link> = Vec::with_capacity(manifests.len());
        for (number, manifest) in manifests {
            let broken = |error: ManifestError| {
                let text = format!("{manifest} {error}");
                Error::schema("manifest_broken", text)
                    .hint("restore the directory")
                    .at(&manifest)
            };
            let bytes = read(&manifest)?;
            let link = Link::decode(number, &bytes).map_err(broken)?;
            Link::is_before(links.last(), &link).map_err(broken)?;
            links.push(link);
        }
        Ok(Self { path, links })
    }

    fn at(&self, inside: &str) -> String {
        match self.path.as_str() {
            "" => inside.to_owned(),
            path => format!("{path}/{inside}"),
        }
    }

    /// The files that count, without the files of commits that are not complete yet.
    fn files(&self, found: &HashMap<&str, u64>) -> Result<impl Iterator<Item = &File>> {
        let pending = files::find(&self.at(&format!("{FOLDER}/*{PENDING}")))?;
        let waits = |file: &File| {
            let is_there = found.contains_key(self.at(&file.path).as_str());
            let name = |entry: &Entry| {
                let name = entry.path.rsplit('/').next().unwrap_or_default();
                name.strip_suffix(PENDING) == Some(file.name())
            };
            !is_there && pending.iter().any(name)
        };
        let is_there = |link: &Link| !link.manifest.files.iter().any(waits);
        let complete = self.links.iter().take_while(|link| is_there(link)).count();
        let links = &self.links[..complete];
        let begins = links.last().map_or(0, |last| last.manifest.begins);
        let count = links
            .iter()
            .filter(move |link| link.manifest.number >= begins);
        Ok(count.flat_map(|link| &link.manifest.files))
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    let input = files::open(path)?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < MAX_MANIFEST_BYTES {
        let piece = input.read(bytes.len() as u64, READ_BYTES)?;
        if piece.is_empty() {
            break;
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

//! The files of grants: which paths they cover, and where these are on the disk.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use rapidbyte_wire::pattern;

use super::{Grants, PART, STREAM};

/// A longer path or pattern is none: Linux takes no longer one (`PATH_MAX`), and to compare a pattern
/// takes time for each of its signs.
pub(super) const MAX_PATH_BYTES: usize = 4096;

impl Grants {
    /// The files that are read for these streams, now or, by a pattern, once they are there.
    pub fn read_for<'a>(&self, streams: impl IntoIterator<Item = &'a str>) -> ReadFiles {
        let streams: Vec<&str> = streams.into_iter().collect();
        let mut files = ReadFiles::default();
        for read in &self.read_by_stream {
            // The disk is asked once for each, however many there are.
            let streams = match read.contains(STREAM) {
                true => streams.as_slice(),
                false => &streams[..streams.len().min(1)],
            };
            for stream in streams {
                files.add(&read.replace(STREAM, stream));
            }
        }
        files
    }

    /// True if `path` may be written here and is one of the files that are read.
    pub fn writes_what_is_read(&self, path: &str, read: &ReadFiles) -> bool {
        let Some(target) = self.writable(path) else {
            return false;
        };
        let target = on_disk(&target.path);
        let is_read = |pattern: &String| pattern::matches(pattern, &target);
        // The target is a pattern too if the destination writes a folder of files.
        let is_pattern = pattern::is_pattern(&target);
        let holds = |file: &String| pattern::matches(&target, file);
        read.exact.contains(&target)
            || read.patterns.iter().any(is_read)
            || (is_pattern && read.exact.iter().chain(&read.patterns).any(holds))
    }

    /// The absolute form of a path or pattern that may be read.
    pub(crate) fn readable(&self, path: &str) -> Option<Granted> {
        self.granted(&self.read, path)
    }

    fn granted(&self, grants: &[String], path: &str) -> Option<Granted> {
        if path.len() > MAX_PATH_BYTES {
            return None;
        }
        let path = absolute(&self.base_dir, path);
        // A folder beside a file is the connector's own, with the hidden names of files that it has begun.
        let hidden = || -> Vec<String> {
            let beside = grants.iter().filter(|grant| self.beside.contains(grant));
            beside
                .filter_map(|grant| Some(format!("{}.*", grant.strip_suffix('*')?)))
                .collect()
        };
        let found = granted(grants, path.clone()).or_else(|| granted(&hidden(), path));
        self.rooted(found?)
    }

    /// The operator did not write the name of an `x-beside` folder: a link in its place may not lead out.
    fn rooted(&self, mut granted: Granted) -> Option<Granted> {
        let is_beside = |grant: &str| self.beside.iter().any(|beside| beside == grant);
        let plain = granted
            .grant
            .strip_suffix(".*")
            .map(|dir| format!("{dir}*"));
        if (is_beside(&granted.grant) || plain.is_some_and(|plain| is_beside(&plain)))
            && granted.root.ends_with(beside_name(&granted))
        {
            granted.root.pop();
        }
        granted.trusted = self.owner;
        Some(granted)
    }

    /// The absolute form of a path that may be written.
    pub(crate) fn writable(&self, path: &str) -> Option<Granted> {
        self.granted(&self.write, path)
            .filter(|granted| !self.is_own(&granted.path))
    }

    /// True for a file that is never granted for writing: the pipeline, its lock, `.env` and the
    /// history, whatever links lead there.
    pub(crate) fn is_own(&self, path: &str) -> bool {
        if path.len() > MAX_PATH_BYTES {
            return false;
        }
        let path = on_disk(&absolute(&self.base_dir, path));
        self.own_on_disk().iter().any(|own| is_within(&path, own))
    }

    /// The files that may not be written, without links. Only a connector that writes files asks, so a short run does not
    /// wait for the disk.
    fn own_on_disk(&self) -> &[String] {
        let own = || self.own.iter().map(|file| on_disk(file)).collect();
        self.own_on_disk.get_or_init(own)
    }

    /// A folder that may be replaced as a whole: the pattern is below it, and all files of the pattern
    /// may be written.
    pub(crate) fn folder(&self, folder: &str, pattern: &str) -> Option<GrantedFolder> {
        if folder.len() > MAX_PATH_BYTES {
            return None;
        }
        let folder = absolute(&self.base_dir, folder);
        let Granted {
            path,
            root,
            trusted,
            ..
        } = self.writable(pattern)?;
        let is_below = path.strip_prefix(&folder)?.starts_with('/');
        let reaches_out = !Path::new(&folder).starts_with(&root);
        // The whole folder is replaced, and what is in it goes.
        let there = on_disk(&format!("{folder}/"));
        let there = there.trim_end_matches('/');
        let reaches_out = reaches_out || self.own_on_disk().iter().any(|own| is_within(own, there));
        (is_below && !reaches_out && !pattern::is_pattern(&folder)).then_some(GrantedFolder {
            folder,
            pattern: path,
            root,
            trusted,
        })
    }
}

/// Files that a source reads, named as the disk has them.
#[derive(Debug, Default)]
pub struct ReadFiles {
    exact: HashSet<String>,
    patterns: Vec<String>,
}

impl ReadFiles {
    fn add(&mut self, read: &str) {
        // A link is read as what it leads to.
        let file = std::fs::canonicalize(read);
        let file = file.ok().and_then(|file| file.to_str().map(str::to_owned));
        let named = on_disk(file.as_deref().unwrap_or(read));
        match pattern::is_pattern(&named) {
            true => self.patterns.push(named),
            false => {
                self.exact.insert(named);
            }
        }
    }
}

/// A folder whose files may all be written.
pub(crate) struct GrantedFolder {
    /// Absolute and without `..`.
    pub folder: String,
    /// The files in it, absolute.
    pub pattern: String,
    /// The longest part of the grant that is a folder without a pattern.
    pub root: PathBuf,
    /// As of [`Granted`].
    pub trusted: Option<u32>,
}

/// A path under the grant that allows it.
pub(crate) struct Granted {
    /// The path or pattern, absolute and without `..`.
    pub path: String,
    /// The grant, absolute.
    pub grant: String,
    /// The longest part of the grant that is a folder without a pattern: nothing outside of it
    /// is touched, whatever links are inside.
    pub root: PathBuf,
    /// The owner of the pipeline's folder, whose links on the way to `root` may be followed.
    pub trusted: Option<u32>,
}

impl Granted {
    /// The path below the grant's folder.
    pub fn inside(&self) -> std::io::Result<PathBuf> {
        let inside = Path::new(&self.path).strip_prefix(&self.root);
        Ok(inside.map_err(std::io::Error::other)?.to_path_buf())
    }
}

fn granted(grants: &[String], path: String) -> Option<Granted> {
    let grant = grants
        .iter()
        .find(|grant| pattern::matches_path(grant, &path))?
        .clone();
    let parts: Vec<&str> = grant.split('/').collect();
    let literal = parts
        .iter()
        .take(parts.len() - 1)
        .take_while(|p| !pattern::is_pattern(p));
    let root = PathBuf::from(
        literal.fold(String::new(), |root, part| match root.as_str() {
            "" => format!("/{part}"),
            "/" => format!("/{part}"),
            _ => format!("{root}/{part}"),
        }),
    );
    Some(Granted {
        path,
        grant,
        root,
        trusted: None,
    })
}

/// True for the folder itself and for each path below it.
fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of the last folder of a grant.
fn beside_name(granted: &Granted) -> &str {
    granted.grant.rsplit('/').nth(1).unwrap_or_default()
}

/// Joins and removes `.` and `..` without looking at the disk; placeholders become `*`.
pub(super) fn absolute(base_dir: &Path, path: &str) -> String {
    normal(base_dir, &path.replace(STREAM, "*").replace(PART, "*"))
}

/// The same, with `{stream}` as it is.
pub(super) fn normal(base_dir: &Path, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let joined = base_dir.join(path);
    for component in joined.components() {
        match component {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => {
                parts.pop();
            }
            _ => {}
        }
    }
    format!("/{}", parts.join("/"))
}

/// A path or pattern whose folder, as far as it is there, is named as the disk has it: without
/// links.
pub(super) fn on_disk(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let folders = parts.len() - 1;
    let literal = parts[..folders]
        .iter()
        .take_while(|part| !pattern::is_pattern(part));
    for known in (1..=literal.count()).rev() {
        let folder = std::fs::canonicalize(format!("{}/", parts[..known].join("/")));
        let folder = folder.ok().and_then(|f| f.to_str().map(str::to_owned));
        if let Some(folder) = folder {
            let folder = folder.trim_end_matches('/');
            return format!("{folder}/{}", parts[known..].join("/"));
        }
    }
    path.to_owned()
}

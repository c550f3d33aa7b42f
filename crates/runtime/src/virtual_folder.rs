//! A folder that only connectors see: the program puts files in it, and no disk has the folder.
//!
//! To write a small body to the disk and to open it again takes longer than to parse it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rapidbyte_wire::pattern;

use crate::digested::Digested;
use crate::grants::Granted;

/// The folder. Its files may change between two runs that read it.
pub struct VirtualFolder {
    path: PathBuf,
    files: Mutex<BTreeMap<String, VirtualFile>>,
}

/// A file of a [`VirtualFolder`].
#[derive(Debug, Clone)]
pub enum VirtualFile {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// A file of the disk, which the program chose: no grant limits its path.
    OnDisk {
        /// Where it is.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Hashes its bytes as connectors read them.
        digested: Arc<Digested>,
    },
}

impl VirtualFile {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::OnDisk { bytes, .. } => *bytes,
        }
    }
}

impl VirtualFolder {
    /// An empty folder at an absolute path without `..`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            files: Mutex::default(),
        }
    }

    /// Where connectors see it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces all files, whose names do not begin with a dot. An input that is open keeps its bytes.
    pub fn replace(&self, files: BTreeMap<String, VirtualFile>) {
        *self.files() = files;
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, VirtualFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a path or pattern in this folder. It is empty if the path leads deeper, where nothing is. `None` for
    /// paths elsewhere.
    fn name<'a>(&self, granted: &'a Granted) -> Option<&'a str> {
        let inside = Path::new(&granted.path).strip_prefix(&self.path).ok()?;
        let name = inside.to_str().filter(|name| !name.contains('/'));
        Some(name.unwrap_or_default())
    }

    /// Paths and sizes of the files that both the asked pattern and the grant cover, ordered. `None` if the pattern is for
    /// another folder.
    pub(crate) fn find(&self, granted: &Granted) -> Option<Vec<(String, u64)>> {
        let asked = self.name(granted)?;
        let files = self.files();
        let meant = files.iter().filter_map(|(name, file)| {
            let path = self.path.join(name).to_str()?.to_owned();
            let is_meant =
                pattern::matches(asked, name) && pattern::matches_path(&granted.grant, &path);
            is_meant.then(|| (path, file.len()))
        });
        Some(meant.collect())
    }

    /// The file of this path, or that there is none. `None` if the path is for another folder.
    pub(crate) fn get(&self, granted: &Granted) -> Option<Option<VirtualFile>> {
        let name = self.name(granted)?;
        Some(self.files().get(name).cloned())
    }
}

/// Without the bytes, which are somebody's data.
impl fmt::Debug for VirtualFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualFolder")
            .field("path", &self.path)
            .field("files", &self.files().len())
            .finish()
    }
}

/// Grants with the same folder are equal, whatever is in it.
impl PartialEq for VirtualFolder {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for VirtualFolder {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Grants;

    fn folder() -> (Arc<VirtualFolder>, Grants) {
        let folder = Arc::new(VirtualFolder::new(Path::new("/none/of/the/disk")));
        let on_disk = VirtualFile::OnDisk {
            path: "/elsewhere".into(),
            bytes: 7,
            digested: Arc::default(),
        };
        folder.replace(BTreeMap::from([
            ("b.csv".into(), VirtualFile::Bytes(Arc::from(*b"id\n1"))),
            ("a.csv".into(), on_disk),
            ("c.json".into(), VirtualFile::Bytes(Arc::from(*b"{}"))),
        ]));
        let schema = json!({"properties": {"path": {"x-grant": "read"}}});
        let config = json!({"path": "*.csv"});
        let config = config.as_object().expect("an object");
        let grants = Grants::from_config(&schema, config, folder.path());
        (Arc::clone(&folder), grants.with_folder(folder))
    }

    #[test]
    fn a_pattern_finds_what_its_grant_covers() {
        let (folder, grants) = folder();
        let find = |path: &str| folder.find(&grants.readable(path).expect("granted"));
        let at = |name: &str| format!("/none/of/the/disk/{name}");
        assert_eq!(
            find("*.csv"),
            Some(vec![(at("a.csv"), 7), (at("b.csv"), 4)])
        );
        assert_eq!(find("b.csv"), Some(vec![(at("b.csv"), 4)]));
        assert_eq!(find("x.csv"), Some(Vec::new()));
        assert!(grants.readable("c.json").is_none());
        assert!(grants.readable("../disk2/a.csv").is_none());
    }

    #[test]
    fn paths_of_other_folders_are_left_to_the_disk() {
        let (folder, _) = folder();
        let granted = |path: &str| Granted {
            path: path.into(),
            grant: path.into(),
            root: "/none/of/the".into(),
            trusted: None,
        };
        for path in ["/none/of/the/disk2/a.csv", "/none/of/the", "/elsewhere"] {
            assert!(folder.find(&granted(path)).is_none(), "{path}");
            assert!(folder.get(&granted(path)).is_none(), "{path}");
        }
        let deeper = granted("/none/of/the/disk/_manifest/*");
        assert_eq!(folder.find(&deeper), Some(Vec::new()));
        let bytes = folder.get(&granted("/none/of/the/disk/b.csv"));
        assert!(matches!(bytes, Some(Some(VirtualFile::Bytes(bytes))) if &*bytes == b"id\n1"));
        let missing = folder.get(&granted("/none/of/the/disk/deep/b.csv"));
        assert!(matches!(missing, Some(None)));
    }
}

//! The cache of ahead-of-time compiled connectors.
//!
//! Compiled code is native code: to load it is to trust it. So the folder belongs to the user
//! alone (0700), a file's name is a hash of the `.wasm`, of wasmtime's compatibility hash and of
//! our own engine settings, and a file's content ends with a keyed BLAKE3 hash of the rest, under
//! a key outside the folder (0600). The connector is compiled again if its entry does not match. The
//! cache never accepts a `.cwasm` from elsewhere. The same holds for compiled functions, which are
//! parts of native code (`functions.rs`).
//!
//! An authenticated entry is mapped in place. A rename puts it there, and nothing writes to it again.
//! Only this user could change it in between, and this user has the key as well.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::regular;

/// A folder of compiled code and the key that authenticates it.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
    key: [u8; KEY_BYTES],
}

/// The contents of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The folder.
    pub dir: PathBuf,
    /// Compiled connectors.
    pub entries: usize,
    /// The size of all entries, including entries of compiled functions.
    pub bytes: u64,
    /// Files that will not be used, because they are cut off, changed, or not of this key.
    pub damaged: Vec<PathBuf>,
}

/// How the names of entries end that hold compiled functions instead of a connector.
pub(crate) const PACK: &str = ".functions";

const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = blake3::OUT_LEN;
/// Larger files are not ours: a connector's code takes about 10 MB.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Read, hashed and copied at once: what fits into a core's own cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Entries that are kept, and their bytes: whichever is reached first. Somebody who writes or tests
/// connectors makes a small entry with each build, and these should not drive out the bundled ones,
/// which take seconds to compile.
const MAX_ENTRIES: usize = 256;
const MAX_BYTES: u64 = 2 << 30;

impl Cache {
    /// Opens the cache in `dir` with the key in `key_file`; makes both if they are missing.
    ///
    /// # Errors
    /// When either belongs to another user or others may write to it, or cannot be made.
    pub fn open(dir: &Path, key_file: &Path) -> io::Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let metadata = fs::symlink_metadata(dir)?;
        if !metadata.is_dir() || metadata.uid() != own_uid() {
            return Err(io::Error::other(format!(
                "{} is not a directory of this user",
                dir.display()
            )));
        }
        if metadata.mode() & 0o077 != 0 {
            fs::set_permissions(dir, Permissions::from_mode(0o700))?;
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            key: read_or_make_key(key_file)?,
        })
    }

    /// The name of the entry for a `.wasm` with this hash under some settings.
    pub fn name(wasm: &[u8; 32], compatibility: u64, settings: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&compatibility.to_le_bytes());
        hasher.update(&(settings.len() as u64).to_le_bytes());
        hasher.update(settings.as_bytes());
        hasher.update(wasm);
        hasher.finalize().to_hex().to_string()
    }

    /// The file of an entry, authenticated: code to be mapped, and the hash behind it. None when it
    /// is missing, damaged or not ours.
    pub fn get(&self, name: &str) -> Option<File> {
        let mut file = self.open_entry(name)?;
        let len = file.metadata().ok()?.len().checked_sub(MAC_BYTES as u64)?;
        let mut hasher = self.hasher(name);
        copy_hashed((&mut file).take(len), &mut hasher, &mut io::sink()).ok()?;
        let mut mac = [0; MAC_BYTES];
        file.read_exact(&mut mac).ok()?;
        // blake3::Hash compares in constant time.
        let ours = hasher.finalize() == blake3::Hash::from_bytes(mac);
        if ours {
            keep(&file);
        }
        ours.then_some(file)
    }

    /// A copy of the authenticated content of an entry: compiled functions, and code for systems that cannot map it.
    pub fn copy(&self, name: &str) -> Option<Vec<u8>> {
        let mut code = Vec::new();
        let mut file = self.open_entry(name)?;
        (&mut file)
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut code)
            .ok()?;
        let mac = code.split_off(code.len().checked_sub(MAC_BYTES)?);
        let mac = blake3::Hash::from_slice(&mac).ok()?;
        let ours = self.mac(name, &code) == mac;
        if ours {
            keep(&file);
        }
        ours.then_some(code)
    }

    /// A regular file of this user and of a connector's size.
    fn open_entry(&self, name: &str) -> Option<File> {
        let file = regular::open_own(&self.path(name)).ok()?;
        let metadata = file.metadata().ok()?;
        let ours = metadata.uid() == own_uid();
        (ours && metadata.len() <= MAX_FILE_BYTES).then_some(file)
    }

    /// Stores an entry in one atomic step.
    pub fn put(&self, name: &str, code: &[u8]) -> io::Result<()> {
        // Two threads may have compiled functions of the same interpreter.
        static PUT: AtomicU64 = AtomicU64::new(0);
        let put = PUT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}.{put}.tmp", std::process::id());
        let temporary = self.dir.join(temporary);
        let mut file = create_own(&temporary)?;
        let written = file
            .write_all(code)
            .and_then(|()| file.write_all(self.mac(name, code).as_bytes()))
            .and_then(|()| fs::rename(&temporary, self.path(name)));
        if written.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
        }
        self.prune();
        written
    }

    /// Looks at every entry, for `rapidbyte doctor`. Entries of other versions of the program are
    /// whole too: they are used by those.
    pub fn inspect(&self) -> io::Result<Inspection> {
        let mut found = Inspection {
            dir: self.dir.clone(),
            entries: 0,
            bytes: 0,
            damaged: Vec::new(),
        };
        // More than `MAX_ENTRIES` are there only for the moment before the next one is put.
        for entry in fs::read_dir(&self.dir)?.take(MAX_ENTRIES * 4) {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(name) = name.strip_suffix(".cwasm") else {
                continue;
            };
            found.entries += usize::from(!name.ends_with(PACK));
            found.bytes += fs::symlink_metadata(&path).map_or(0, |metadata| metadata.len());
            if self.get(name).is_none() {
                found.damaged.push(path.clone());
            }
        }
        found.damaged.sort();
        Ok(found)
    }

    /// Keeps the entries that were used last. The next call retries a removal that fails.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return;
        };
        let mut files: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, entry.path(), metadata.len()))
            })
            .collect();
        files.sort();
        let mut bytes = 0;
        for (newer, (_, path, len)) in files.iter().rev().enumerate() {
            bytes += len;
            // The newest is about to be used, however large it is.
            if newer >= MAX_ENTRIES || (newer > 0 && bytes > MAX_BYTES) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.cwasm"))
    }

    fn mac(&self, name: &str, code: &[u8]) -> blake3::Hash {
        self.hasher(name).update(code).finalize()
    }

    /// The hash includes the name, so that no entry can replace another.
    fn hasher(&self, name: &str) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(name.as_bytes());
        hasher
    }
}

/// Marks an entry as used, because the oldest entries are removed first. A failure only means a compile some day.
fn keep(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}

/// The BLAKE3 hash of all that is read.
///
/// # Errors
/// When reading fails.
pub fn hash(from: impl Read) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    copy_hashed(from, &mut hasher, &mut io::sink())?;
    Ok(*hasher.finalize().as_bytes())
}

/// Hashes and copies to the end.
fn copy_hashed(
    mut from: impl Read,
    hasher: &mut blake3::Hasher,
    to: &mut impl Write,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                hasher.update(&chunk[..len]);
                to.write_all(&chunk[..len])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file of this user alone, in the place of one that a killed process left.
fn create_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    regular::check(options.custom_flags(regular::OWN).open(path)?)
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn read_or_make_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    match read_key(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
    }
    let mut key = [0; KEY_BYTES];
    let filled = rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    if filled != KEY_BYTES {
        return Err(io::Error::other("no random numbers"));
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let mut file = create_own(&temporary)?;
    file.write_all(&key)?;
    // A link fails where a key is already: of two first runs, one key wins.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read_key(path),
    }
}

fn read_key(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut file = regular::open(path)?;
    let metadata = file.metadata()?;
    if metadata.uid() != own_uid() || metadata.mode() & 0o077 != 0 {
        let text = format!("{} must belong to this user with mode 0600", path.display());
        return Err(io::Error::other(text));
    }
    let mut key = [0; KEY_BYTES];
    file.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(wasm: &[u8], compatibility: u64, settings: &str) -> String {
        Cache::name(&hash(wasm).unwrap(), compatibility, settings)
    }

    fn get(cache: &Cache, name: &str) -> Option<Vec<u8>> {
        let copy = cache.copy(name);
        assert_eq!(cache.get(name).is_some(), copy.is_some());
        copy
    }

    #[test]
    fn only_what_this_key_wrote_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (cache_dir, key) = (dir.path().join("cache"), dir.path().join("key"));
        let cache = Cache::open(&cache_dir, &key).unwrap();
        let entry = name(b"wasm", 1, "settings");
        assert_ne!(entry, name(b"wasm", 2, "settings"));
        assert_ne!(entry, name(b"wasm", 1, "other"));
        assert_eq!(get(&cache, &entry), None);
        cache.put(&entry, b"native code").unwrap();
        assert_eq!(
            get(&Cache::open(&cache_dir, &key).unwrap(), &entry).unwrap(),
            b"native code"
        );
        assert_eq!(fs::metadata(&cache_dir).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);

        let path = cache.path(&entry);
        let good = fs::read(&path).unwrap();
        for at in [0, MAC_BYTES, good.len() - 1] {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(get(&cache, &entry), None, "byte {at}");
        }
        fs::write(&path, &good[..10]).unwrap();
        assert_eq!(get(&cache, &entry), None);
        let other = name(b"other", 1, "settings");
        fs::write(cache.path(&other), &good).unwrap();
        assert_eq!(get(&cache, &other), None, "an entry under another's name");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(cache.path(&other), &path).unwrap();
        assert_eq!(get(&cache, &entry), None, "a link");
        let planted = Cache::open(&cache_dir, &dir.path().join("key2")).unwrap();
        fs::remove_file(&path).unwrap();
        planted.put(&entry, b"planted").unwrap();
        assert_eq!(get(&cache, &entry), None, "under another key");
    }

    #[test]
    fn an_inspection_counts_entries_and_names_damaged_ones() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache"), &dir.path().join("key")).unwrap();
        cache.put("good", b"code").unwrap();
        cache.put("bad", b"code").unwrap();
        fs::write(cache.path("bad"), b"cut").unwrap();
        let found = cache.inspect().unwrap();
        assert_eq!((found.entries, found.bytes), (2, 3 + 4 + MAC_BYTES as u64));
        assert_eq!(found.damaged, [cache.path("bad")]);
        // Functions take room too, but do not count as connectors.
        let pack = format!("pack{PACK}");
        cache.put(&pack, b"functions").unwrap();
        let found = cache.inspect().unwrap();
        let bytes = 3 + 4 + 9 + 2 * MAC_BYTES as u64;
        assert_eq!((found.entries, found.bytes), (2, bytes));
        fs::write(cache.path(&pack), b"cut").unwrap();
        let found = cache.inspect().unwrap();
        assert_eq!(found.damaged, [cache.path("bad"), cache.path(&pack)]);
    }

    #[test]
    fn the_entries_that_were_used_last_stay() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache"), &dir.path().join("key")).unwrap();
        let age = |name: &str, secs| {
            let file = File::open(cache.path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(secs))
                .unwrap();
        };
        for n in 0..MAX_ENTRIES {
            let name = format!("entry{n}");
            cache.put(&name, b"code").unwrap();
            age(&name, n as u64);
        }
        assert!(cache.get("entry0").is_some());
        assert!(cache.copy("entry2").is_some());
        for n in 0..5 {
            cache.put(&format!("new{n}"), b"code").unwrap();
        }
        assert_eq!(fs::read_dir(&cache.dir).unwrap().count(), MAX_ENTRIES);
        assert!(cache.get("entry0").is_some());
        assert!(cache.get("new4").is_some());
        assert!(cache.get("entry1").is_none());
        assert!(cache.copy("entry2").is_some());
        // Too large for the cache, and not used for long.
        let large = File::create(cache.path("large")).unwrap();
        large.set_len(MAX_BYTES + 1).unwrap();
        age("large", 1);
        cache.put("newest", b"code").unwrap();
        assert!(!cache.path("large").exists());
        assert!(cache.get("newest").is_some());
    }

    #[test]
    fn threads_that_store_one_entry_leave_one_of_their_contents() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("cache"), &dir.path().join("key")).unwrap();
        std::thread::scope(|scope| {
            for content in 1..=4 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..50 {
                        cache.put("entry", &vec![content; 100_000]).unwrap();
                        assert!(cache.copy("entry").is_some());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&cache.dir).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        fs::write(&key, [7; KEY_BYTES]).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
        assert!(
            Cache::open(dir.path(), &key)
                .unwrap_err()
                .to_string()
                .contains("0600")
        );
    }
}

//! Files that the configuration names: through the host inside the sandbox, straight to the
//! system natively (relative to the working directory).

use crate::Result;

#[cfg(target_family = "wasm")]
use crate::bindings::files as system;

#[cfg(not(target_family = "wasm"))]
use native as system;

pub use crate::bindings::files::Entry;

/// The files that match a path or pattern (`*` and `?` within one name), ordered by path.
pub fn find(pattern: &str) -> Result<Vec<Entry>> {
    system::find(pattern)
}

/// Opens a regular file for reading.
pub fn open(path: &str) -> Result<Input> {
    system::open(path).map(Input)
}

/// Begins a file under a temporary name beside `path`.
pub fn create(path: &str) -> Result<Output> {
    system::create(path).map(|output| Output { output, bytes: 0 })
}

/// The same for a file that must not be there. Of several writers of one `path` one commit
/// succeeds, in one atomic step, and the other commits fail with code `file_exists`.
pub fn create_new(path: &str) -> Result<Output> {
    system::create_new(path).map(|output| Output { output, bytes: 0 })
}

/// Gives a file that may be written another name, in one atomic step; folders that miss are made.
/// Errors: `file_exists` where there is one of that name, `file_not_found` where there is none to
/// be renamed.
pub fn rename(from: &str, to: &str) -> Result<()> {
    system::rename(from, to)
}

/// Removes a file that may be written. A file that does not exist is not an error.
pub fn remove(path: &str) -> Result<()> {
    system::remove(path)
}

/// Answers whether a file could be created at `path`, and leaves none.
pub fn probe(path: &str) -> Result<()> {
    system::probe(path)
}

/// Begins a folder that takes the place of `folder` as a whole, under a temporary name beside it.
/// `pattern` says which files belong into it, by their paths below `folder`; a folder that holds
/// anything else is refused with `foreign_file`, here and at the commit.
pub fn create_folder(folder: &str, pattern: &str) -> Result<OutputFolder> {
    system::create_folder(folder, pattern).map(OutputFolder)
}

/// A folder that is written. Dropped without [`OutputFolder::commit`], it leaves nothing behind.
pub struct OutputFolder(system::OutputFolder);

impl OutputFolder {
    /// Begins a file; `path` is its place after the folder's commit. The file's own commit says
    /// that it is complete.
    pub fn create(&self, path: &str) -> Result<Output> {
        let output = self.0.create(path)?;
        Ok(Output { output, bytes: 0 })
    }

    /// Puts the folder with its complete files in the place of the older one, in one atomic step
    /// (natively in two), and removes the older one.
    pub fn commit(self) -> Result<()> {
        self.0.commit()
    }
}

/// A file that is read.
pub struct Input(system::Input);

impl Input {
    /// Its length in bytes now.
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// When it was last written to: nanoseconds since 1970, 0 where nobody knows.
    pub fn modified(&self) -> u64 {
        self.0.modified()
    }

    /// At most `len` bytes from `offset`; empty at the end of the file.
    pub fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>> {
        self.0.read(offset, len)
    }
}

/// A file that is written. Dropped without [`Output::commit`], it leaves nothing behind.
pub struct Output {
    output: system::Output,
    bytes: u64,
}

impl Output {
    /// Appends; give 64 KiB to 1 MiB at a time.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.output.write(data)?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes everything to the disk; what follows can only be [`Output::commit`].
    pub fn sync(&self) -> Result<()> {
        self.output.sync()
    }

    /// Gives the file its final name in one atomic step, replacing an older file unless it was
    /// begun by [`create_new`].
    pub fn commit(self) -> Result<()> {
        self.output.commit()
    }
}

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::cell::Cell;
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::UNIX_EPOCH;

    use super::Entry;
    use crate::{Error, ErrorKind, Result};

    pub struct Input(File);

    pub struct Output {
        file: File,
        temporary: PathBuf,
        path: PathBuf,
        is_new: bool,
        committed: Cell<bool>,
    }

    pub fn find(pattern: &str) -> Result<Vec<Entry>> {
        let mut found = vec![if pattern.starts_with('/') {
            PathBuf::from("/")
        } else {
            PathBuf::new()
        }];
        for part in pattern.split('/').filter(|p| !p.is_empty()) {
            if !rapidbyte_wire::pattern::is_pattern(part) {
                found = found
                    .into_iter()
                    .map(|dir| dir.join(part))
                    .filter(|p| p.exists())
                    .collect();
                continue;
            }
            let mut next = Vec::new();
            for dir in &found {
                let dir = if dir.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    dir
                };
                let Ok(entries) = fs::read_dir(dir) else {
                    continue;
                };
                for entry in entries.flatten() {
                    let name = entry.file_name();
                    let Some(name) = name.to_str() else { continue };
                    // As the host does, and shells: signs do not stand for a hidden name's dot.
                    if name.starts_with('.') <= part.starts_with('.')
                        && rapidbyte_wire::pattern::matches(part, name)
                    {
                        next.push(if dir == Path::new(".") {
                            name.into()
                        } else {
                            dir.join(name)
                        });
                    }
                }
            }
            found = next;
        }
        let mut entries: Vec<Entry> = found
            .into_iter()
            .filter_map(|path| {
                let metadata = fs::metadata(&path).ok().filter(|m| m.is_file())?;
                Some(Entry {
                    path: path.to_str()?.to_owned(),
                    size: metadata.len(),
                })
            })
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    pub fn open(path: &str) -> Result<Input> {
        let file = File::open(path).map_err(|e| failed(path, &e))?;
        if !file.metadata().map_err(|e| failed(path, &e))?.is_file() {
            return Err(Error::config(
                "not_a_file",
                format!("{path} is not a regular file"),
            ));
        }
        Ok(Input(file))
    }

    pub fn probe(path: &str) -> Result<()> {
        create(path).map(drop)
    }

    pub fn create_new(path: &str) -> Result<Output> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Several writers of one name may be at work in this process.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut output = begin(path, &format!("{}-{number}", std::process::id()))?;
        output.is_new = true;
        Ok(output)
    }

    pub fn rename(from: &str, to: &str) -> Result<()> {
        if let Some(dir) = Path::new(to).parent() {
            fs::create_dir_all(dir).map_err(|e| failed(to, &e))?;
        }
        fs::hard_link(from, to).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => failed(to, &e),
            _ => failed(from, &e),
        })?;
        fs::remove_file(from).map_err(|e| failed(from, &e))
    }

    pub fn remove(path: &str) -> Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &e)),
            _ => Ok(()),
        }
    }

    pub fn create(path: &str) -> Result<Output> {
        begin(path, &std::process::id().to_string())
    }

    fn begin(path: &str, unique: &str) -> Result<Output> {
        let path = PathBuf::from(path);
        let shown = path.display().to_string();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("file");
        let temporary = path.with_file_name(format!(".{name}.{unique}.tmp"));
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(dir).map_err(|e| failed(&shown, &e))?;
        }
        let file = File::create(&temporary).map_err(|e| failed(&shown, &e))?;
        Ok(Output {
            file,
            temporary,
            path,
            is_new: false,
            committed: Cell::new(false),
        })
    }

    pub struct OutputFolder {
        folder: String,
        pattern: String,
        temporary: String,
    }

    pub fn create_folder(folder: &str, pattern: &str) -> Result<OutputFolder> {
        let path = Path::new(folder);
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or("folder");
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let created = OutputFolder {
            folder: folder.into(),
            pattern: pattern.into(),
            temporary: temporary.display().to_string(),
        };
        created.refuse_foreign(path)?;
        fs::create_dir_all(&temporary).map_err(|e| failed(folder, &e))?;
        Ok(created)
    }

    impl OutputFolder {
        fn refuse_foreign(&self, at: &Path) -> Result<()> {
            let Ok(entries) = fs::read_dir(at) else {
                return Ok(());
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path.is_dir() {
                    self.refuse_foreign(&path)?;
                } else if !rapidbyte_wire::pattern::matches(
                    &self.pattern,
                    &path.display().to_string(),
                ) {
                    let text = format!("{} is not a file of this stream", path.display());
                    return Err(Error::config("foreign_file", text));
                }
            }
            Ok(())
        }

        pub fn create(&self, path: &str) -> Result<Output> {
            let inside = path.strip_prefix(&self.folder).unwrap_or(path);
            create(&format!("{}{inside}", self.temporary))
        }

        pub fn commit(&self) -> Result<()> {
            let (new, old) = (&self.temporary, format!("{}.old", self.temporary));
            let folder = Path::new(&self.folder);
            self.refuse_foreign(folder)?;
            let told = |e: std::io::Error| failed(&self.folder, &e);
            let is_there = folder.exists();
            if is_there {
                fs::rename(folder, &old).map_err(told)?;
            }
            fs::rename(new, folder).map_err(told)?;
            match is_there {
                true => fs::remove_dir_all(old).map_err(told),
                false => Ok(()),
            }
        }
    }

    impl Drop for OutputFolder {
        fn drop(&mut self) {
            // Gone after a commit.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }

    impl Input {
        pub fn size(&self) -> u64 {
            self.0.metadata().map_or(0, |m| m.len())
        }

        pub fn modified(&self) -> u64 {
            let modified = self.0.metadata().and_then(|m| m.modified()).ok();
            let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            since.map_or(0, |since| {
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            })
        }

        pub fn read(&self, offset: u64, len: u32) -> Result<Vec<u8>> {
            let mut buffer = vec![0; len as usize];
            let read = self
                .0
                .read_at(&mut buffer, offset)
                .map_err(|e| failed("read", &e))?;
            buffer.truncate(read);
            Ok(buffer)
        }
    }

    impl Output {
        pub fn write(&self, data: &[u8]) -> Result<()> {
            (&self.file)
                .write_all(data)
                .map_err(|e| failed("write", &e))
        }

        pub fn sync(&self) -> Result<()> {
            self.file.sync_all().map_err(|e| failed("sync", &e))
        }

        pub fn commit(&self) -> Result<()> {
            self.sync()?;
            let shown = self.path.display().to_string();
            if self.is_new {
                // The temporary name goes with the output.
                return fs::hard_link(&self.temporary, &self.path).map_err(|e| failed(&shown, &e));
            }
            fs::rename(&self.temporary, &self.path).map_err(|e| failed(&shown, &e))?;
            self.committed.set(true);
            Ok(())
        }
    }

    impl Drop for Output {
        fn drop(&mut self) {
            if !self.committed.get() {
                // Nothing else can be done about a temporary file that is gone already.
                let _ = fs::remove_file(&self.temporary);
            }
        }
    }

    fn failed(path: &str, error: &std::io::Error) -> Error {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => "file_not_found",
            std::io::ErrorKind::PermissionDenied => "permission_denied",
            std::io::ErrorKind::AlreadyExists => "file_exists",
            _ => "file_io",
        };
        Error::new(ErrorKind::Config, code, format!("{path}: {error}"))
    }
}

//! The file that a page goes to.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rapidbyte::{Class, Failure, Plan, create_own_file, foreign_link, open_regular_file};

use super::{DOCTYPE, Index, MARK, Page};

/// The doctype and the mark stand within them.
const HEAD_BYTES: u64 = 1024;

/// The file that a page goes to, found writable before anything moves.
///
/// It is made when the page is: until then nothing of it lies where the run may write.
pub struct Paper {
    path: PathBuf,
    /// Beside it; the page has this name until it is whole.
    temporary: PathBuf,
    /// The option or key that names the file, for hints.
    named_by: &'static str,
}

impl Paper {
    /// Checks that `path`, a new file or an older report, is writable. Errors: `report_not_written`, and `link_refused`
    /// for a link of another user.
    pub fn at(path: &Path) -> Result<Self, Failure> {
        Self::typed(path, "--report")
    }

    /// The same for the page of `runs --page`.
    pub fn of_index(path: &Path) -> Result<Self, Failure> {
        Self::typed(path, "--page")
    }

    fn typed(path: &Path, named_by: &'static str) -> Result<Self, Failure> {
        let directory = path.parent().unwrap_or(path);
        refuse_foreign_links(directory, Path::new("."), named_by)?;
        Self::named(path, named_by)
    }

    pub(super) fn named(path: &Path, named_by: &'static str) -> Result<Self, Failure> {
        let path = path.to_path_buf();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unwritten = |why: &dyn std::fmt::Display| unwritten(&path, why, named_by);
        if path.is_dir() || name.is_empty() {
            return Err(unwritten(&"it is a directory"));
        }
        refuse_other(&path, named_by)?;
        let temporary = path.with_file_name(format!(".{name}.{}.report", std::process::id()));
        create_own_file(&temporary)
            .and_then(|_| std::fs::remove_file(&temporary))
            .map_err(|error| unwritten(&error))?;
        Ok(Self {
            path,
            temporary,
            named_by,
        })
    }

    /// Refuses a file that the run will make, and a place within a folder that it will replace.
    /// Errors: `report_not_written`.
    pub fn refuse_targets(&self, plan: &Plan) -> Result<(), Failure> {
        if plan.destination.grants.written().is_empty() {
            return Ok(());
        }
        let report = on_disk(&self.path);
        for stream in &plan.streams {
            let location = &stream.placed.location;
            let target = plan.document.base_dir.join(location);
            let folder = fixed(&target);
            let is_file = folder == target;
            let folder = on_disk(&folder);
            if report == folder || (!is_file && report.starts_with(&folder)) {
                let text = format!(
                    "{}: this run writes {} itself (stream {})",
                    self.path.display(),
                    stream.location,
                    stream.name
                );
                return Err(Failure::new(Class::Config, CODE, text).hint(format!(
                    "set {} to a file in another directory",
                    self.named_by
                )));
            }
        }
        Ok(())
    }

    /// Gives the file its content and its name. Errors: `report_not_written`.
    pub fn write(&self, page: &Page) -> Result<(), Failure> {
        self.put(&page.html())
    }

    /// The same with a list of runs. Errors: `report_not_written`.
    pub fn write_index(&self, index: &Index) -> Result<(), Failure> {
        self.put(&index.html(&on_disk(&self.path)))
    }

    fn put(&self, html: &str) -> Result<(), Failure> {
        // The run itself may have made a file of this name.
        refuse_other(&self.path, self.named_by)?;
        let written = create_own_file(&self.temporary)
            .and_then(|mut file| file.write_all(html.as_bytes()))
            .and_then(|()| std::fs::rename(&self.temporary, &self.path));
        written.map_err(|error| {
            // It may not be there at all.
            let _ = std::fs::remove_file(&self.temporary);
            unwritten(&self.path, &error, self.named_by)
        })
    }

    /// The file, as it was typed.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a directory behind a link of another user than root, this user and the owner of `base_dir`. Errors:
/// `link_refused`.
pub(super) fn refuse_foreign_links(
    directory: &Path,
    base_dir: &Path,
    named_by: &str,
) -> Result<(), Failure> {
    let Some(link) = foreign_link(directory, base_dir) else {
        return Ok(());
    };
    let text = format!("{}: {link}", directory.display());
    let hint = format!(
        "set {named_by} to the path that the link leads to, or create the link again as your own user"
    );
    Err(Failure::new(Class::Environment, "link_refused", text).hint(hint))
}

/// Refuses to replace a file that is not a report: it may be the data, or the pipeline.
fn refuse_other(path: &Path, named_by: &str) -> Result<(), Failure> {
    match is_ours(path) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unwritten(path, &error, named_by)),
        Ok(false) => {
            let why = "the file exists and is not a report";
            Err(unwritten(path, &why, named_by))
        }
    }
}

/// Whether a file is a page of ours, or empty.
pub(super) fn is_ours(path: &Path) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    let file = open_regular_file(path)?;
    file.take(HEAD_BYTES).read_to_end(&mut begin)?;
    let begin = String::from_utf8_lossy(&begin);
    Ok(begin.is_empty() || begin.starts_with(DOCTYPE) && begin.contains(MARK))
}

const CODE: &str = "report_not_written";

pub(super) fn unwritten(path: &Path, why: &dyn std::fmt::Display, named_by: &str) -> Failure {
    let text = format!("{}: {why}", path.display());
    Failure::new(Class::Config, CODE, text)
        .hint(format!("set {named_by} to a file in a writable directory"))
}

/// The path before its first component with `*` or `?`: the whole path if it has neither.
fn fixed(path: &Path) -> PathBuf {
    let is_fixed = |part: &std::path::Component<'_>| {
        let part = part.as_os_str().to_string_lossy();
        !part.contains(['*', '?'])
    };
    path.components().take_while(is_fixed).collect()
}

/// The absolute path without links, as far as it is there.
pub(super) fn on_disk(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let found = path.ancestors().find_map(|folder| {
        let rest = path.strip_prefix(folder).ok()?;
        Some((std::fs::canonicalize(folder).ok()?, rest))
    });
    match found {
        Some((folder, rest)) if rest.as_os_str().is_empty() => folder,
        Some((folder, rest)) => folder.join(rest),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_set_ends_before_its_first_sign() {
        for (path, folder) in [
            ("/a/out/in.csv", "/a/out/in.csv"),
            ("/a/out/in/*.csv", "/a/out/in"),
            ("/a/out/day=*/??.csv", "/a/out"),
        ] {
            assert_eq!(fixed(Path::new(path)), Path::new(folder));
        }
    }

    #[test]
    fn links_and_missing_parts_do_not_hide_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        let real = std::fs::canonicalize(real).unwrap();
        assert_eq!(on_disk(&folder.path().join("link/x/y")), real.join("x/y"));
        assert_eq!(on_disk(&folder.path().join("link")), real);
    }
}

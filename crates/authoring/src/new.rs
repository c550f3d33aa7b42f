//! The folder of a new connector.

use std::path::{Path, PathBuf};

use rapidbyte_engine::{Class, Failure};

use crate::build::{INSTALL_JAVASCRIPT, INSTALL_PYTHON};
use crate::project::{Language, Project};

/// A project that was made.
#[derive(Debug)]
pub struct Created {
    /// Its folder.
    pub folder: PathBuf,
    /// How many files it has.
    pub files: usize,
    /// The command that installs the language's tools in the folder. `None` where nothing is to be installed.
    pub install: Option<&'static str>,
}

/// Makes the folder of a project in `dir`; one that holds anything is left as it is.
///
/// # Errors
/// `file_exists`, and `file_io` for what the system refuses.
pub fn create(project: &Project, dir: &Path) -> Result<Created, Failure> {
    let files = project.files()?;
    let folder = match dir.as_os_str() == "." {
        true => PathBuf::from(&project.name),
        false => dir.join(&project.name),
    };
    is_free(&folder)?;
    for (path, text) in &files {
        let path = folder.join(path);
        write(&path, text).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(Created {
        folder,
        files: files.len(),
        install: match project.language {
            Language::Rust => None,
            Language::Python => Some(INSTALL_PYTHON),
            Language::Javascript => Some(INSTALL_JAVASCRIPT),
        },
    })
}

/// Refuses a folder that holds anything.
fn is_free(folder: &Path) -> Result<(), Failure> {
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(folder, &error)),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    let text = format!("{} already exists and is not empty", folder.display());
    Err(Failure::new(Class::Config, "file_exists", text)
        .hint("choose another name, or another parent directory with --dir"))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{}: {error}", path.display());
    Failure::new(Class::Environment, "file_io", text).hint("choose a writable directory with --dir")
}

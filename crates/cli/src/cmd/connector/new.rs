//! `rapidbyte connector new`

use std::path::{Path, PathBuf};

use rapidbyte_engine::{Class, Failure};
use serde_json::json;

use super::build::{INSTALL_JAVASCRIPT, INSTALL_PYTHON};
use super::project::Project;
use crate::args::{Language, NewConnector};
use crate::output::Output;

/// Makes the folder; one that holds anything is left as it is.
pub fn run(new: &NewConnector, output: &Output) -> Result<(), Failure> {
    let mut project = Project::new(&new.name, new.kind, new.lang)?;
    if new.http {
        project = project.with_http()?;
    }
    let files = project.files()?;
    let folder = match new.dir.as_os_str() == "." {
        true => PathBuf::from(&project.name),
        false => new.dir.join(&project.name),
    };
    is_free(&folder)?;
    for (path, text) in &files {
        let path = folder.join(path);
        write(&path, text).map_err(|error| unwritable(&path, &error))?;
    }
    let shown = folder.display().to_string();
    output.document(&json!({ "status": "ok", "folder": shown, "files": files.len() }));
    let count = files.len();
    let mut text = format!("created {shown}: {count} files, described in README.md\n");
    let install = match new.lang {
        Language::Rust => None,
        Language::Python => Some(INSTALL_PYTHON),
        Language::Javascript => Some(INSTALL_JAVASCRIPT),
    };
    let begin = [Some(format!("cd {shown}")), install.map(Into::into)];
    let rest = ["rapidbyte connector build", "rapidbyte run pipeline.yaml"].map(Into::into);
    for (number, step) in begin.into_iter().flatten().chain(rest).enumerate() {
        text += &format!("\n{}. {step}", number + 1);
    }
    output.text(&text);
    Ok(())
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

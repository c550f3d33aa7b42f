//! A folder of components under the names that people use.

use std::fs;
use std::path::Path;

use crate::step::Failure;
use crate::workspace::{Component, Workspace};

/// Makes `folder` hold exactly `components`, each as `<name>.wasm`. A file that has not changed
/// keeps its time stamp; a changed one is replaced in one step, so that a running program sees
/// the old or the new one; the component of a package that is gone is removed.
pub fn refresh(
    workspace: &Workspace,
    components: &[Component],
    folder: &Path,
) -> Result<(), Failure> {
    let shown = workspace.shown(folder);
    let failed =
        |what: &str, error: std::io::Error| Failure::new(format!("{what} in {shown}: {error}"));
    fs::create_dir_all(folder).map_err(|error| failed("cannot write", error))?;
    let mut copied = 0;
    for component in components {
        let bytes = fs::read(&component.artifact).map_err(|error| {
            Failure::new(format!(
                "{} cannot be read: {error}; has the package `{}` crate-type cdylib?",
                workspace.shown(&component.artifact),
                component.name
            ))
        })?;
        let to = folder.join(component.file());
        if replace_if_changed(&to, &bytes).map_err(|error| failed(&component.file(), error))? {
            copied += 1;
        }
    }
    let removed =
        remove_others(components, folder).map_err(|error| failed("cannot clear", error))?;
    eprintln!(
        "    {shown}: {} components, {copied} changed, {removed} removed",
        components.len()
    );
    Ok(())
}

/// Answers whether the file had to be written.
fn replace_if_changed(file: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    if fs::read(file).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let temporary = file.with_extension("tmp");
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, file)?;
    Ok(true)
}

fn remove_others(components: &[Component], folder: &Path) -> std::io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let kept = components.iter().any(|component| {
            path.file_name()
                .is_some_and(|name| *name == *component.file())
        });
        if path
            .extension()
            .is_some_and(|extension| extension == "wasm")
            && !kept
        {
            fs::remove_file(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A component whose build left `bytes`, or nothing.
    fn component(workspace: &Workspace, name: &str, bytes: Option<&[u8]>) -> Component {
        let artifact = workspace.path("target/built.wasm");
        if let Some(bytes) = bytes {
            fs::create_dir_all(workspace.path("target")).unwrap();
            fs::write(&artifact, bytes).unwrap();
        }
        Component {
            name: name.to_owned(),
            artifact,
        }
    }

    #[test]
    fn a_bundle_holds_exactly_its_components() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        let component = component(&workspace, "source-a", Some(b"new"));
        fs::create_dir_all(workspace.bundle()).unwrap();
        fs::write(workspace.bundle().join("source-a.wasm"), b"old").unwrap();
        fs::write(workspace.bundle().join("renamed.wasm"), b"stale").unwrap();
        fs::write(workspace.bundle().join("README"), b"not ours").unwrap();

        refresh(&workspace, &[component], &workspace.bundle()).unwrap();

        assert_eq!(names(&workspace.bundle()), ["README", "source-a.wasm"]);
        let written = fs::read(workspace.bundle().join("source-a.wasm")).unwrap();
        assert_eq!(written, b"new");
    }

    #[test]
    fn an_unchanged_component_is_not_written_again() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a.wasm");
        assert!(replace_if_changed(&file, b"bytes").unwrap());
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        assert!(!replace_if_changed(&file, b"bytes").unwrap());
        assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
    }

    #[test]
    fn a_component_that_was_not_built_is_named() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        let component = component(&workspace, "dest-b", None);
        let failure = refresh(&workspace, &[component], &workspace.bundle()).unwrap_err();
        let expected = "target/built.wasm cannot be read";
        assert!(failure.message.starts_with(expected), "{}", failure.message);
    }
}

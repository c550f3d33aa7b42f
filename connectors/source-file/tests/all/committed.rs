//! Folders with manifests: what counts is what they name.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rapidbyte_manifest::{File, Hash, Link, Run};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::source;
use serde_json::json;
use source_file::Files;

/// A folder that is written as dest-file does.
struct Folder {
    folder: tempfile::TempDir,
    last: Option<Link>,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("o/_manifest")).unwrap();
        Self { folder, last: None }
    }

    fn path(&self, inside: &str) -> std::path::PathBuf {
        self.folder.path().join("o").join(inside)
    }

    fn write(&self, inside: &str, text: &str) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A manifest that names these files; with `replaces` only they count from now on.
    fn commit(&mut self, files: &[(&str, &str)], replaces: bool) {
        let run = Run {
            pipeline: "p",
            stream: "s",
            id: "r",
        };
        let mut next = Link::follow(self.last.as_ref(), run).unwrap();
        next.files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).to_owned(),
                size: text.len() as u64,
                sha256: Hash::of(text.as_bytes()),
                rows: 1,
            })
            .collect();
        next.seq += 1;
        if replaces {
            next.begins = next.number;
            next.rows = 0;
        }
        next.rows += next.files.len() as u64;
        let bytes = next.encode().unwrap();
        self.write(
            &format!("_manifest/{:08}.json", next.number),
            std::str::from_utf8(&bytes).unwrap(),
        );
        self.last = Some(Link::decode(next.number, &bytes).unwrap());
    }

    fn commit_written(&mut self, files: &[(&str, &str)]) {
        for (path, text) in files {
            self.write(path, text);
        }
        self.commit(files, false);
    }
}

fn ids(folder: &Path, path: &str) -> Result<(Vec<i64>, Vec<String>)> {
    let path = folder.join(path);
    let config = json!({"path": path.to_str().unwrap(), "stream": "s", "schema": {"id": "int64"}});
    let mut source = source::open::<Files>(&config.to_string())?;
    let notes = source.discover(&[])?.remove(0).notes;
    let stream = source.discover(&[])?.remove(0);
    let mut reader = source.read(&ReadRequest::of(&stream))?;
    let mut ids = Vec::new();
    loop {
        match reader.next(Duration::from_secs(60))? {
            Event::Batch(batch) => {
                let column = batch.column(0).as_any();
                let column = column.downcast_ref::<arrow_array::Int64Array>().unwrap();
                ids.extend(column.values());
            }
            Event::End => break,
            _ => {}
        }
    }
    ids.sort_unstable();
    Ok((ids, notes))
}

#[test]
fn exactly_what_manifests_name_is_read() {
    let mut folder = Folder::new();
    folder.commit_written(&[("p-0001-00000001-00000.csv", "id\n1\n")]);
    folder.write("p-0001-00000009-00000.csv", "id\n9\n");
    let (found, notes) = ids(folder.folder.path(), "o/*.csv").unwrap();
    assert_eq!(found, [1]);
    assert!(notes.contains(&"reads the files that the manifests name; skips 1 others".to_owned()));
    // A folder without manifests is read whole, and a path without a pattern reads its file.
    fs::create_dir(folder.folder.path().join("n")).unwrap();
    fs::write(folder.folder.path().join("n/a.csv"), "id\n7\n").unwrap();
    assert_eq!(ids(folder.folder.path(), "?/*.csv").unwrap().0, [1, 7]);
    assert_eq!(
        ids(folder.folder.path(), "o/p-0001-00000009-00000.csv")
            .unwrap()
            .0,
        [9]
    );
}

#[test]
fn a_commit_is_read_once_all_its_files_are_in_their_place() {
    let mut folder = Folder::new();
    folder.commit_written(&[("day=1/a-1.csv", "id\n1\n")]);
    // The first file has its name, the second one waits.
    folder.write("day=1/a-2.csv", "id\n2\n");
    folder.write("_manifest/b-2.csv.pending", "id\n3\n");
    folder.commit(
        &[("day=1/a-2.csv", "id\n2\n"), ("day=2/b-2.csv", "id\n3\n")],
        false,
    );
    assert_eq!(ids(folder.folder.path(), "o/day=*/*.csv").unwrap().0, [1]);
    fs::create_dir(folder.path("day=2")).unwrap();
    fs::rename(
        folder.path("_manifest/b-2.csv.pending"),
        folder.path("day=2/b-2.csv"),
    )
    .unwrap();
    assert_eq!(
        ids(folder.folder.path(), "o/day=*/*.csv").unwrap().0,
        [1, 2, 3]
    );
    // A part of the folder.
    assert_eq!(ids(folder.folder.path(), "o/day=2/*.csv").unwrap().0, [3]);
    // Files that a commit replaced are not read, although they still exist.
    folder.write("day=1/a-3.csv", "id\n4\n");
    folder.commit(&[("day=1/a-3.csv", "id\n4\n")], true);
    assert_eq!(ids(folder.folder.path(), "o/day=*/*.csv").unwrap().0, [4]);
}

#[test]
fn a_missing_or_changed_committed_file_is_an_error() {
    let mut folder = Folder::new();
    folder.commit_written(&[("a.csv", "id\n1\n"), ("b.csv", "id\n2\n")]);
    folder.commit(&[], false);
    let code = |folder: &Folder| ids(folder.folder.path(), "o/*.csv").unwrap_err().code;
    folder.write("b.csv", "id\n2\n3\n");
    assert_eq!(code(&folder), "committed_file_changed");
    fs::remove_file(folder.path("b.csv")).unwrap();
    assert_eq!(code(&folder), "committed_file_missing");
    fs::remove_file(folder.path("_manifest/00000001.json")).unwrap();
    assert_eq!(code(&folder), "manifest_broken");
}

use std::fs;

use super::*;

fn granted(root: &Path) -> GrantedFolder {
    let folder = format!("{}/orders", root.to_str().expect("UTF-8"));
    GrantedFolder {
        pattern: format!("{folder}/day=*/p-*.csv"),
        folder,
        root: root.to_owned(),
        trusted: None,
    }
}

/// Begins the folder with these files in it, all complete.
fn written(root: &Path, files: &[&str]) -> Result<OutputFolder, Error> {
    let folder = begin(granted(root), "orders".into())?;
    for file in files {
        let path = format!("{}/{file}", folder.granted.folder);
        let mut output = folder.create(&path, file).expect("a file");
        output.write_and_commit(b"new");
    }
    Ok(folder)
}

fn names(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(root).expect("below");
                found.push(inside.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn old(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, "old").expect("a file");
    }
}

#[test]
fn the_commit_replaces_exactly_the_older_folder() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let before = ["orders/day=1/p-0.csv", "orders/day=2/p-0.csv", "other.csv"];
    old(root, &before);
    let folder = written(root, &["day=2/p-0.csv", "day=3/p-0.csv"]).expect("a folder");
    let visible = |name: &String| !name.starts_with('.');
    assert!(names(root).into_iter().filter(visible).eq(before));
    assert_eq!(folder.files.waiting(), 2, "not on the disk yet");
    folder.commit(&Abandoned::default()).expect("a commit");
    assert_eq!(folder.files.waiting(), 0, "all on the disk");
    drop(folder);
    assert_eq!(
        names(root),
        ["orders/day=2/p-0.csv", "orders/day=3/p-0.csv", "other.csv"]
    );
    let text = fs::read(root.join("orders/day=2/p-0.csv")).expect("a file");
    assert_eq!(text, b"new");
    assert_eq!(
        fs::read_dir(root).expect("a folder").count(),
        2,
        "nothing hidden"
    );
}

#[test]
fn a_folder_that_is_dropped_leaves_the_older_one_and_nothing_else() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    old(root, &["orders/day=1/p-0.csv"]);
    let folder = written(root, &["day=2/p-0.csv"]).expect("a folder");
    let path = format!("{}/day=2/p-1.csv", folder.granted.folder);
    let unfinished = folder.create(&path, "p-1").expect("a file");
    let error = folder
        .commit(&Abandoned::default())
        .expect_err("a file is not complete");
    assert_eq!(error.code, "file_not_committed");
    drop(unfinished);
    drop(folder);
    assert_eq!(names(root), ["orders/day=1/p-0.csv"]);
    assert_eq!(fs::read_dir(root).expect("a folder").count(), 1);
}

#[test]
fn anything_else_in_the_folder_is_not_ours_to_replace() {
    for foreign in [
        "orders/notes.txt",
        "orders/day=1/x/p-0.csv",
        "orders/day=1/q.csv",
        "orders/p-0.csv",
    ] {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        old(root, &["orders/day=1/p-0.csv", foreign]);
        let error = written(root, &[]).map(drop).expect_err(foreign);
        assert_eq!(error.code, "foreign_file", "{foreign}");
        fs::remove_file(root.join(foreign)).expect("removed");
        if foreign.contains("/x/") {
            fs::remove_dir(root.join("orders/day=1/x")).expect("removed");
        }
        // It came while the new folder was written.
        let folder = written(root, &["day=2/p-0.csv"]).expect("a folder");
        old(root, &[foreign]);
        let error = folder.commit(&Abandoned::default()).expect_err(foreign);
        assert_eq!(error.code, "foreign_file", "{foreign}");
        drop(folder);
        assert_eq!(names(root).len(), 2, "{foreign}");
    }
}

#[test]
fn a_link_or_a_file_in_the_place_of_the_folder_is_left_alone() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    fs::create_dir(root.join("elsewhere")).expect("a folder");
    std::os::unix::fs::symlink("elsewhere", root.join("orders")).expect("a link");
    let error = written(root, &[]).map(drop).expect_err("a link");
    assert_eq!(error.code, "foreign_file");
    fs::remove_file(root.join("orders")).expect("removed");
    fs::write(root.join("orders"), "a file").expect("a file");
    let error = written(root, &[]).map(drop).expect_err("a file");
    assert_eq!(error.code, "foreign_file");
}

#[test]
fn leftovers_of_killed_runs_are_removed_and_files_of_active_runs_stay() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    old(
        root,
        &[
            ".orders.1-0.tmp/day=1/p-0.csv",
            ".orders.x.tmp/day=1/p-0.csv",
        ],
    );
    let running = written(root, &["day=7/p-0.csv"]).expect("a folder");
    let folder = written(root, &["day=2/p-0.csv"]).expect("a folder");
    assert!(!root.join(".orders.1-0.tmp").exists());
    assert!(root.join(".orders.x.tmp").exists(), "not ours");
    folder.commit(&Abandoned::default()).expect("a commit");
    running
        .commit(&Abandoned::default())
        .expect("the other run ends later");
    drop((folder, running));
    assert_eq!(
        names(root),
        [".orders.x.tmp/day=1/p-0.csv", "orders/day=7/p-0.csv"]
    );
}

#[test]
fn no_file_of_a_folder_replaces_another_one() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = written(root.path(), &["day=1/p-0.csv"]).expect("a folder");
    let path = format!("{}/day=1/p-0.csv", folder.granted.folder);
    let mut again = folder.create(&path, "p-0").expect("a file");
    assert!(again.commit_for_test().is_err());
}

#[test]
fn files_that_arrive_between_the_check_and_the_exchange_stay() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    old(root, &["orders/day=1/p-0.csv"]);
    let folder = written(root, &["day=2/p-0.csv"]).expect("a folder");
    // The check was before: a commit continues from here.
    old(root, &["orders/notes.txt"]);
    folder.exchange().expect("exchanged");
    assert!(!root.join("orders/notes.txt").exists(), "out of sight");
    let error = folder
        .refuse_displaced()
        .expect_err("a file of somebody else");
    assert_eq!(error.code, "foreign_file");
    assert!(error.message.contains("notes.txt"), "{}", error.message);
    drop(folder);
    assert_eq!(names(root), ["orders/day=1/p-0.csv", "orders/notes.txt"]);
    assert_eq!(
        fs::read_dir(root).expect("a folder").count(),
        1,
        "nothing hidden"
    );
}

#[test]
fn folders_around_a_folder_go_with_it() {
    let root = tempfile::tempdir().expect("a folder");
    let below = root.path().join("a/b");
    drop(written(&below, &["day=2/p-0.csv"]).expect("a folder"));
    assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 0);
    let folder = written(&below, &["day=2/p-0.csv"]).expect("a folder");
    folder.commit(&Abandoned::default()).expect("a commit");
    drop(folder);
    assert_eq!(names(root.path()), ["a/b/orders/day=2/p-0.csv"]);
}

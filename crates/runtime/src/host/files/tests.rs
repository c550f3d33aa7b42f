//! Files of a folder of the disk.

use std::path::Path;

use cap_std::ambient_authority;

use super::input::open_regular;
use super::output::{open_stale, remove_stale};
use super::*;
use crate::host::apart::Abandoned;
use rustix::fs::{CWD, FileType, Mode, mknodat};

#[test]
fn a_probe_stays_in_the_granted_folder_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (root, outside) = (folder.path().join("out"), folder.path().join("outside"));
    std::fs::create_dir_all(root.join("here")).expect("folders");
    std::fs::create_dir(&outside).expect("a folder");
    std::os::unix::fs::symlink(&outside, root.join("link")).expect("a link");
    let granted = |root: &Path, inside: &str| Granted {
        path: root.join(inside).to_str().expect("UTF-8").to_owned(),
        grant: String::new(),
        root: root.to_path_buf(),
        trusted: None,
    };
    for inside in ["a.csv", "here/a.csv", "new/deep/a.csv"] {
        probe(&granted(&root, inside)).expect("it may be made");
    }
    probe(&granted(&folder.path().join("new/out"), "a.csv")).expect("it may be made");
    probe(&granted(&root, "link/a.csv")).expect_err("it leads out");
    probe(&granted(&root, "link/new/a.csv")).expect_err("it leads out");
    let left = |folder: &Path| std::fs::read_dir(folder).expect("a folder").count();
    assert_eq!(
        (left(&root), left(&outside), left(folder.path())),
        (2, 0, 2)
    );
}

#[test]
fn folders_go_with_the_file_that_they_were_made_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let granted = |inside: &str| Granted {
        path: folder
            .path()
            .join(inside)
            .to_str()
            .expect("UTF-8")
            .to_owned(),
        grant: String::new(),
        root: folder.path().join("o"),
        trusted: None,
    };
    let names = || std::fs::read_dir(folder.path()).expect("a folder").count();
    for number in 0..20 {
        drop(create(&granted(&format!("o/d{number}/e/x")), "x").expect("a file"));
    }
    assert_eq!(names(), 0, "nothing is left, not even the grant's folder");
    // Each directory counts once, for the output that made it.
    let first = create(&granted("o/d/e/x"), "x").expect("a file");
    let second = create(&granted("o/d/f/x"), "x").expect("a file");
    assert_eq!((first.made.new_ones(), second.made.new_ones()), (3, 1));
    drop((first, second));
    assert_eq!(names(), 0);
    // Nor by several that share one, in whatever order they go.
    let shared = || ["o/s/x", "o/s/y", "o/s/t/z"].map(|p| create(&granted(p), p).expect("it"));
    drop(shared());
    assert_eq!(names(), 0);
    for output in shared().into_iter().rev() {
        drop(output);
    }
    assert_eq!(names(), 0);
    // A file that somebody else has put there in the meantime stays.
    let output = create(&granted("o/d/x"), "x").expect("a file");
    std::fs::write(folder.path().join("o/d/other"), "x").expect("a file");
    drop(output);
    assert!(folder.path().join("o/d/other").exists());
    assert_eq!(
        std::fs::read_dir(folder.path().join("o/d"))
            .expect("it")
            .count(),
        1
    );
    let mut kept = create(&granted("o/kept/x"), "x").expect("a file");
    kept.write_and_commit(b"x");
    drop(kept);
    assert!(folder.path().join("o/kept/x").exists());
}

#[test]
fn outputs_that_share_a_new_folder_do_not_take_it_from_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let root = folder.path().to_owned();
            scope.spawn(move || {
                for number in 0..300 {
                    let path = root.join(format!("d/{thread}-{number}"));
                    let granted = Granted {
                        path: path.to_str().expect("UTF-8").to_owned(),
                        grant: String::new(),
                        root: root.clone(),
                        trusted: None,
                    };
                    drop(create(&granted, "x").expect("a file"));
                }
            });
        }
    });
}

#[test]
fn a_link_that_leads_out_leaves_the_other_files_of_a_pattern() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("in");
    std::fs::create_dir(&root).expect("a folder");
    std::fs::write(folder.path().join("other.csv"), "x").expect("a file");
    std::fs::write(root.join("a.csv"), "a").expect("a file");
    std::os::unix::fs::symlink("../other.csv", root.join("b.csv")).expect("a link");
    std::os::unix::fs::symlink("a.csv", root.join("c.csv")).expect("a link");
    let of = |name: &str| {
        let path = root.join(name).to_str().expect("UTF-8").to_owned();
        let (grant, root) = (path.clone(), root.clone());
        let trusted = None;
        find(
            &Granted {
                path,
                grant,
                root,
                trusted,
            },
            1 << 20,
        )
    };
    let found = of("*.csv").expect("the others");
    let ends = |path: &String| path.rsplit('/').next().map(str::to_owned);
    let names: Vec<_> = found
        .files
        .iter()
        .filter_map(|(path, _)| ends(path))
        .collect();
    assert!(names.contains(&"a.csv".into()) && names.contains(&"c.csv".into()));
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(
        found
            .outward
            .iter()
            .filter_map(ends)
            .eq(["b.csv".to_owned()])
    );
    assert!(
        of("b.csv").is_err(),
        "a link that the operator named is refused"
    );
}

#[test]
fn a_committed_file_cannot_be_written_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder
        .path()
        .join("a.csv")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    let granted = Granted {
        grant: path.clone(),
        path: path.clone(),
        root: folder.path().to_owned(),
        trusted: None,
    };
    let mut output = create(&granted, "a.csv").expect("a file");
    output.write_and_commit(b"kept");
    let again = [output.write(b"more"), output.commit(&Abandoned::default())];
    for result in again {
        assert_eq!(result.expect_err("refused").code, "output_committed");
    }
    drop(output);
    assert_eq!(std::fs::read(&path).expect("the file"), b"kept");
}

#[test]
fn planning_changes_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = serde_json::json!({"properties": {"out": {"x-grant": "write"}}});
    let config = serde_json::json!({"out": "out/*.csv"});
    let config = config.as_object().expect("an object");
    let grants = crate::Grants::from_config(&schema, config, folder.path());
    std::fs::create_dir(folder.path().join("out")).expect("a folder");
    std::fs::write(folder.path().join("out/a.csv"), "a").expect("a file");
    let mut state = State::new(
        "test".into(),
        crate::Sandbox {
            grants: Arc::new(grants.to_look()),
            memory: crate::MemoryBudget::new(1 << 20),
            limits: crate::Limits::default(),
            clock: crate::Clock::new(),
            cancel: crate::Cancel::new(),
            log: Arc::new(|_, _, _, _| {}),
            redact: crate::no_secrets(),
            stream: None,
        },
    );
    let (a, b) = ("out/a.csv".to_owned(), "out/b.csv".to_owned());
    let refused = [
        Host::create(&mut state, a.clone())
            .expect("no trap")
            .map(drop),
        Host::create_new(&mut state, b.clone())
            .expect("no trap")
            .map(drop),
        Host::rename(&mut state, a.clone(), b.clone()).expect("no trap"),
        Host::remove(&mut state, a.clone()).expect("no trap"),
        Host::create_folder(&mut state, "out".into(), "out/*.csv".into())
            .expect("no trap")
            .map(drop),
    ];
    for result in refused {
        assert_eq!(result.expect_err("refused").code, "writes_while_planning");
    }
    Host::probe(&mut state, b.clone())
        .expect("no trap")
        .expect("it could be made");
    let names = std::fs::read_dir(folder.path().join("out")).expect("a folder");
    assert_eq!(names.count(), 1);
    // The run itself may.
    let work = crate::Sandbox {
        grants: Arc::new(grants),
        ..state.sandbox.clone()
    };
    assert!(state.hand_over(work));
    Host::create(&mut state, b)
        .expect("no trap")
        .expect("a file");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("a.csv");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("a folder");
    let error = open_regular(&dir, Path::new("a.csv")).expect_err("no file");
    assert_eq!(error.kind(), Io::InvalidInput);
    std::fs::write(folder.path().join("b.csv"), "a\n").expect("a file");
    open_regular(&dir, Path::new("b.csv")).expect("a file");
}

#[test]
fn a_pipe_or_link_in_place_of_a_stale_file_is_neither_awaited_nor_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("other"), "x").expect("a file");
    // As a neighbour who wins the race leaves them between the look and the opening.
    mknodat(
        CWD,
        at(".a.1-0.tmp"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("pipe");
    std::os::unix::fs::symlink("other", at(".a.1-1.tmp")).expect("a link");
    for name in [".a.1-0.tmp", ".a.1-1.tmp"] {
        assert!(open_stale(&dir, Path::new(name)).is_none(), "{name}");
    }
    std::fs::write(at(".a.1-2.tmp"), "x").expect("a file");
    assert!(open_stale(&dir, Path::new(".a.1-2.tmp")).is_some());
    remove_stale(&dir, Path::new("a"));
    assert!(at(".a.1-0.tmp").exists() && at(".a.1-1.tmp").exists() && at("other").exists());
    assert!(!at(".a.1-2.tmp").exists());
}

//! Two commits, built apart and measured in turn by `crates/bench`.
//!
//! Each is built in a git worktree below `target/`, which is removed afterwards, whatever happened,
//! and into the target folder of this one, where other packages' crates are compiled already. A
//! program that was built is kept for the next time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use super::postgres::{bench_program, build_bench};
use crate::build;
use crate::step::{Failure, Steps, capture, run};
use crate::workspace::Workspace;

/// The files as they are, instead of a commit.
const HERE: &str = ".";
/// Where a release has a heading.
const CHANGES: &str = "CHANGELOG.md";
/// As a folder keeps it.
const PROGRAM: &str = "rapidbyte";
/// Programs that are kept for the next time, of some 60 MB each.
const MAX_KEPT: usize = 6;

/// The options of `cargo xtask bench-compare`.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    refs: [String; 2],
    /// For the bench program.
    options: Vec<String>,
}

/// A build that can be measured.
struct Build {
    name: String,
    program: PathBuf,
}

/// Builds both, measures them, and fails on a regression.
pub fn compare(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let request = parse(arguments)?;
    let server = crate::postgres::programs_folder(workspace, steps)?;
    let home = workspace.bench_compare();
    let worktrees = Worktrees::begin(workspace, home.join("worktrees"))?;
    let mut builds = Vec::new();
    for reference in &request.refs {
        builds.push(match reference.as_str() {
            HERE => Build {
                name: "here".to_owned(),
                program: workspace.binary(),
            },
            _ => commit(workspace, steps, &worktrees, &home, reference)?,
        });
    }
    drop(worktrees);
    // The last, so that the target folder holds the build of these files again.
    build::build(workspace, steps)?;
    build_bench(workspace, steps)?;
    let [old, new] = builds.as_slice() else {
        return Err(Failure::usage("bench-compare takes two commits"));
    };
    let mut program = bench_program(workspace);
    program
        .args(["compare", "--old"])
        .arg(&old.program)
        .arg("--new")
        .arg(&new.program)
        .args(["--names", &format!("{},{}", old.name, new.name)])
        .args(&request.options)
        .env(crate::postgres::VARIABLE, server);
    let title = format!("bench: {} against {}", new.name, old.name);
    steps.program(&title, program)
}

/// A short one of the files as they are against the last tag, or what is nearest to one; says which.
pub fn against_last_tag(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let Some(base) = Base::of(workspace) else {
        steps.note(
            "bench-compare: no tag and no commit before this one, so nothing to compare with",
        );
        return Ok(());
    };
    steps.note(&format!(
        "bench-compare: with {}, {}",
        base.reference, base.what
    ));
    if !base.is_tag {
        steps
            .note("      there is no tag: `git tag -a v<version> <commit>` makes one of a release");
    }
    let small = [base.reference.as_str(), HERE, "10000", "--iters", "5"].map(str::to_owned);
    compare(workspace, steps, &small)
}

/// The base to compare the current files with.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    /// For git.
    reference: String,
    /// For people.
    what: &'static str,
    is_tag: bool,
}

impl Base {
    /// The last tag; without one the last commit that wrote a version's heading into the list of
    /// changes; without that what this change goes out from. Nothing where there is only one commit.
    fn of(workspace: &Workspace) -> Option<Self> {
        let found = |reference: String, what, is_tag| Self {
            reference,
            what,
            is_tag,
        };
        let git = |arguments: &[&str]| answer(workspace, arguments);
        if let Some(tag) = git(&["describe", "--tags", "--abbrev=0"]) {
            return Some(found(tag, "the last tag", true));
        }
        let heading = [
            "log",
            "-1",
            "--format=%h",
            "-G",
            r"^## \[[0-9]",
            "--",
            CHANGES,
        ];
        if let Some(release) = git(&heading) {
            return Some(found(
                release,
                "the last release of the list of changes",
                false,
            ));
        }
        let head = git(&["rev-parse", "--short", "HEAD"])?;
        let branched = ["main", "origin/main"].into_iter().find_map(|main| {
            let base = git(&["merge-base", "HEAD", main])?;
            git(&["rev-parse", "--short", &base])
        });
        if let Some(base) = branched.filter(|base| *base != head) {
            return Some(found(base, "where this branch has left main", false));
        }
        match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(_) => Some(found(
                head,
                "the commit that files have changed since",
                false,
            )),
            None => {
                let before = git(&["rev-parse", "--short", "HEAD~1"])?;
                Some(found(before, "the commit before this one", false))
            }
        }
    }
}

/// The output of git; nothing when git prints nothing or fails.
fn answer(workspace: &Workspace, arguments: &[&str]) -> Option<String> {
    let mut git = workspace.command("git");
    git.args(arguments).stderr(Stdio::null());
    let output = git.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let needed = || Failure::usage("bench-compare takes two commits: `bench-compare main .`");
    let [old, new, rest @ ..] = arguments else {
        return Err(needed());
    };
    if [old, new].iter().any(|name| name.starts_with('-')) {
        return Err(needed());
    }
    let mut options = rest.to_vec();
    if rest.first().is_some_and(|rows| !rows.starts_with('-')) {
        options.insert(0, "--rows".to_owned());
    }
    Ok(Request {
        refs: [old.clone(), new.clone()],
        options,
    })
}

fn commit(
    workspace: &Workspace,
    steps: &mut Steps,
    worktrees: &Worktrees<'_>,
    home: &Path,
    reference: &str,
) -> Result<Build, Failure> {
    let mut git = workspace.command("git");
    git.args(["rev-parse", "--verify", "--short=12"])
        .arg(format!("{reference}^{{commit}}"));
    let hash = capture(git)?;
    let folder = home.join(&hash);
    let build = Build {
        // Two commas would be three names.
        name: reference.replace(',', " "),
        program: folder.join(PROGRAM),
    };
    if build.program.is_file() {
        steps.note(&format!("{reference}: {hash} was built before"));
        return Ok(build);
    }
    let tree = worktrees.add(&hash)?;
    steps.program(
        &format!("build: {reference} ({hash}) in a worktree"),
        cargo_build(workspace, &tree),
    )?;
    steps.step(&format!("keep: {reference} ({hash})"), || {
        make_room(home, MAX_KEPT - 1);
        keep(&workspace.binary(), &workspace.bundle(), &folder)
    })?;
    Ok(build)
}

/// With the toolchain and the steps of that commit, not with ours.
fn cargo_build(workspace: &Workspace, tree: &Path) -> Command {
    let mut cargo = workspace.command("cargo");
    cargo
        .args(["xtask", "build"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", workspace.target())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    cargo
}

/// Leaves the newest of the kept programs.
fn make_room(home: &Path, left: usize) {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let mut kept: Vec<(SystemTime, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|folder| {
            let program = folder.join(PROGRAM);
            Some((fs::metadata(program).ok()?.modified().ok()?, folder))
        })
        .collect();
    kept.sort();
    kept.reverse();
    for (_, folder) in kept.into_iter().skip(left) {
        // One that cannot be removed is in nobody's way.
        let _ = fs::remove_dir_all(folder);
    }
}

/// The program last, so that a folder with a program is whole.
fn keep(program: &Path, bundle: &Path, folder: &Path) -> Result<(), Failure> {
    let copy = || {
        copy_folder(bundle, &folder.join("connectors"))?;
        let unfinished = folder.join("unfinished");
        fs::copy(program, &unfinished)?;
        fs::rename(unfinished, folder.join(PROGRAM))
    };
    copy().map_err(|error: std::io::Error| {
        Failure::new(format!("the built program cannot be kept: {error}"))
    })
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

/// Removes every worktree that it added, when it is dropped, and those that an interrupted command
/// has left, when it begins.
struct Worktrees<'a> {
    workspace: &'a Workspace,
    home: PathBuf,
}

impl<'a> Worktrees<'a> {
    fn begin(workspace: &'a Workspace, home: PathBuf) -> Result<Self, Failure> {
        let worktrees = Self { workspace, home };
        worktrees.remove_all();
        fs::create_dir_all(&worktrees.home).map_err(|error| {
            let shown = workspace.shown(&worktrees.home);
            Failure::new(format!("{shown} cannot be made: {error}"))
        })?;
        Ok(worktrees)
    }

    fn add(&self, hash: &str) -> Result<PathBuf, Failure> {
        let tree = self.home.join(hash);
        let mut git = self.workspace.command("git");
        git.args(["worktree", "add", "--quiet", "--detach"])
            .arg(&tree)
            .arg(hash);
        run(git)?;
        Ok(tree)
    }

    /// Goes as far as it can: what is left is removed the next time.
    fn remove_all(&self) {
        let entries = fs::read_dir(&self.home).into_iter().flatten().flatten();
        for entry in entries {
            let mut git = self.workspace.command("git");
            git.args(["worktree", "remove", "--force"])
                .arg(entry.path())
                .stderr(Stdio::null());
            let _ = git.status();
            let _ = fs::remove_dir_all(entry.path());
        }
        let mut git = self.workspace.command("git");
        git.args(["worktree", "prune"]).stderr(Stdio::null());
        let _ = git.status();
    }
}

impl Drop for Worktrees<'_> {
    fn drop(&mut self) {
        self.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn two_commits_and_a_number_of_rows() {
        let request = parsed("v1 . 20000 --iters 5").unwrap();
        assert_eq!(request.refs, ["v1", "."]);
        assert_eq!(request.options, ["--rows", "20000", "--iters", "5"]);
        assert_eq!(parsed("v1 v2").unwrap().options, [""; 0]);
        for line in ["", "v1", "v1 --iters 5"] {
            assert_eq!(parsed(line).unwrap_err().code, 2, "{line}");
        }
    }

    fn git(root: &Path, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(root)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(arguments);
        assert!(git.status().unwrap().success(), "git {arguments:?}");
    }

    #[test]
    fn without_a_tag_the_nearest_thing_is_compared_with() {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        let workspace = Workspace::at(at);
        let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
        let commit = |text: &str| {
            git(at, &["add", "--all"]);
            git(at, &["commit", "--quiet", "--allow-empty", "-m", text]);
            answer(&workspace, &["rev-parse", "--short", "HEAD"]).unwrap()
        };
        let base = || Base::of(&workspace).map(|base| (base.reference, base.is_tag));
        git(at, &["init", "--quiet", "--initial-branch=main"]);
        assert_eq!(base(), None);
        write(CHANGES, "## [Unreleased]\n");
        let first = commit("one");
        assert_eq!(base(), None);
        write(CHANGES, "## [Unreleased]\n\n- more\n");
        assert_eq!(base(), Some((first.clone(), false)));
        let second = commit("two");
        assert_eq!(base(), Some((first, false)));
        git(at, &["checkout", "--quiet", "-b", "change"]);
        commit("three");
        commit("four");
        assert_eq!(base(), Some((second, false)));
        write(CHANGES, "## [Unreleased]\n\n## [0.1.0] - 2026-11-22\n");
        let release = commit("release");
        commit("five");
        assert_eq!(base(), Some((release, false)));
        git(at, &["tag", "v0.1.0", "HEAD~1"]);
        assert_eq!(base(), Some(("v0.1.0".to_owned(), true)));
    }

    #[test]
    fn the_newest_programs_are_kept() {
        let home = tempfile::tempdir().unwrap();
        let begun = SystemTime::now();
        for age in 0..4_u32 {
            let folder = home.path().join(format!("of-age-{age}"));
            fs::create_dir(&folder).unwrap();
            let program = fs::File::create(folder.join(PROGRAM)).unwrap();
            let made = begun - std::time::Duration::from_secs(age.into());
            program.set_modified(made).unwrap();
        }
        fs::create_dir(home.path().join("worktrees")).unwrap();
        make_room(home.path(), 2);
        let left = ["of-age-0", "of-age-1", "worktrees"];
        let mut names: Vec<_> = fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, left);
    }

    #[test]
    fn worktrees_are_gone_after_a_failure_and_after_an_interruption() {
        let root = tempfile::tempdir().unwrap();
        git(root.path(), &["init", "--quiet"]);
        git(
            root.path(),
            &["commit", "--quiet", "--allow-empty", "-m", "one"],
        );
        let workspace = Workspace::at(root.path());
        let home = root.path().join("target/trees");
        let fails = || -> Result<(), Failure> {
            let trees = Worktrees::begin(&workspace, home.clone())?;
            assert!(trees.add("HEAD")?.join(".git").exists());
            Err(Failure::new("a build failed"))
        };
        assert!(fails().is_err());
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        // As a kill leaves it.
        let trees = Worktrees::begin(&workspace, home.clone()).unwrap();
        trees.add("HEAD").unwrap();
        std::mem::forget(trees);
        drop(Worktrees::begin(&workspace, home.clone()).unwrap());
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        let mut list = workspace.command("git");
        list.args(["worktree", "list"]);
        assert_eq!(capture(list).unwrap().lines().count(), 1);
    }

    #[test]
    fn a_kept_program_has_its_connectors_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let (bundle, folder) = (root.path().join("connectors"), root.path().join("kept"));
        let program = root.path().join("rapidbyte");
        fs::create_dir_all(bundle.join("parts")).unwrap();
        fs::write(bundle.join("a.wasm"), "a").unwrap();
        fs::write(bundle.join("parts/b.wasm"), "b").unwrap();
        assert!(keep(&program, &bundle, &folder).is_err());
        assert!(!folder.join("rapidbyte").exists());
        fs::write(&program, "b").unwrap();
        keep(&program, &bundle, &folder).unwrap();
        for kept in ["connectors/a.wasm", "connectors/parts/b.wasm", "rapidbyte"] {
            assert!(folder.join(kept).is_file(), "{kept}");
        }
    }
}

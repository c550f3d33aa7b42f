//! Two commits, built apart and measured in turn by `crates/bench`.
//!
//! Each is built in a git worktree below `target/`, which is removed afterwards, whatever happened,
//! and into the target folder of this one, where other packages' crates are compiled already. A
//! program that was built is kept for the next time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::postgres::{bench_program, build_bench};
use crate::build;
use crate::step::{Failure, Steps, capture, run};
use crate::workspace::Workspace;

/// The files as they are, instead of a commit.
const HERE: &str = ".";

/// What was asked of `cargo xtask bench-compare`.
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
    // The last, so that what lies in the target folder is of these files again.
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

/// A short one of the working tree against the last tag; says so when there is none.
pub fn against_last_tag(workspace: &Workspace, steps: &mut Steps) -> Result<(), Failure> {
    let mut git = workspace.command("git");
    git.args(["describe", "--tags", "--abbrev=0"])
        .stderr(Stdio::null());
    let output = git.output();
    let tag = output
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match tag {
        Some(tag) => {
            let small = [tag.as_str(), HERE, "10000", "--iters", "5"].map(str::to_owned);
            compare(workspace, steps, &small)
        }
        None => {
            steps.note("bench-compare: there is no tag yet, so nothing to compare with");
            Ok(())
        }
    }
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
        program: folder.join(format!("rapidbyte{}", std::env::consts::EXE_SUFFIX)),
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

/// The program last, so that a folder with a program is whole.
fn keep(program: &Path, bundle: &Path, folder: &Path) -> Result<(), Failure> {
    let connectors = folder.join("connectors");
    let copy = || {
        fs::create_dir_all(&connectors)?;
        for entry in fs::read_dir(bundle)? {
            let entry = entry?;
            fs::copy(entry.path(), connectors.join(entry.file_name()))?;
        }
        let unfinished = folder.join("unfinished");
        fs::copy(program, &unfinished)?;
        fs::rename(
            unfinished,
            folder.join(program.file_name().unwrap_or_default()),
        )
    };
    copy().map_err(|error: std::io::Error| {
        Failure::new(format!("the built program cannot be kept: {error}"))
    })
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
        fs::create_dir_all(&bundle).unwrap();
        fs::write(bundle.join("a.wasm"), "a").unwrap();
        assert!(keep(&program, &bundle, &folder).is_err());
        assert!(!folder.join("rapidbyte").exists());
        fs::write(&program, "b").unwrap();
        keep(&program, &bundle, &folder).unwrap();
        assert!(folder.join("connectors/a.wasm").is_file() && folder.join("rapidbyte").is_file());
    }
}

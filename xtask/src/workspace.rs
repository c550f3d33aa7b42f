//! Where things are: the repository, the target folder, the packages that become components.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Failure;

/// The wasm target of every component.
pub const TARGET: &str = "wasm32-wasip2";
/// The package of the benchmarks.
pub const BENCH: &str = "rapidbyte-bench";
/// Packages whose tests no other test run needs: the benchmarks, and replacements for our crates under fuzzing.
const WITHOUT_TESTS: [&str; 5] = [
    BENCH,
    "rapidbyte-fuzz-mongo-client",
    "rapidbyte-fuzz-pg-client",
    "rapidbyte-fuzz-runtime",
    "rapidbyte-fuzz-sdk",
];
/// Flags for the compiler where it compiles for [`TARGET`].
const RUSTFLAGS: &str = "CARGO_TARGET_WASM32_WASIP2_RUSTFLAGS";

/// Which cargo profiles build the host and the connectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// For users and benchmarks: full optimisation.
    Release,
    /// For the tests: builds in less than half the time.
    Quick,
    /// For the demo: builds fastest, and runs slowest. Has the connectors of the quick start alone.
    Demo,
}

impl Flavor {
    /// The profile of the host, which names its folder below `target/` too.
    pub fn host(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "ci",
            Self::Demo => "demo",
        }
    }

    /// The profile of the connectors.
    fn connectors(self) -> &'static str {
        match self {
            Self::Release => "connector",
            Self::Quick => "connector-ci",
            Self::Demo => "connector-demo",
        }
    }
}

/// Folders of this repository and of its build output, all absolute.
pub struct Workspace {
    root: PathBuf,
    target: PathBuf,
    flavor: Flavor,
    is_checked: bool,
}

/// A project that builds into a component; its folder has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Such as `source-file`; of a workspace package, the package's name.
    pub name: String,
    /// The file that its build leaves.
    pub artifact: PathBuf,
}

impl Component {
    /// The file that people name, such as `source-file.wasm`.
    pub fn file(&self) -> String {
        format!("{}.wasm", self.name)
    }
}

impl Workspace {
    /// The workspace whose `cargo xtask` is running.
    pub fn locate() -> Result<Self, Failure> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .ok_or_else(|| Failure::usage("start this program as `cargo xtask`"))?;
        let root = Path::new(&manifest)
            .parent()
            .ok_or_else(|| Failure::new("the xtask package stands outside a workspace"))?
            .to_owned();
        let here = std::env::current_dir()
            .map_err(|error| Failure::new(format!("the current folder cannot be read: {error}")))?;
        // Cargo takes a relative CARGO_TARGET_DIR from the folder it was started in, as we do.
        let target = match std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
            Some(dir) => here.join(dir),
            None => root.join("target"),
        };
        Ok(Self {
            root,
            target,
            flavor: Flavor::Release,
            is_checked: false,
        })
    }

    /// The same workspace, built with other profiles.
    pub fn built_as(self, flavor: Flavor) -> Self {
        Self { flavor, ..self }
    }

    /// The same workspace, whose crates are checked while they are built ([`crate::compiler`]).
    pub fn checked(self) -> Self {
        Self {
            is_checked: true,
            ..self
        }
    }

    /// Whether crates are checked while they are built.
    pub fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The profile that builds the host.
    pub fn host_profile(&self) -> &'static str {
        self.flavor.host()
    }

    #[cfg(test)]
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            target: root.join("target"),
            flavor: Flavor::Release,
            is_checked: false,
        }
    }

    /// A path in the repository.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Where cargo builds.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The `rapidbyte` binary that `build` leaves.
    pub fn binary(&self) -> PathBuf {
        self.target
            .join(self.host_profile())
            .join(format!("rapidbyte{}", std::env::consts::EXE_SUFFIX))
    }

    /// The folder of bundled connectors, beside the binary.
    pub fn bundle(&self) -> PathBuf {
        self.target.join(self.host_profile()).join("connectors")
    }

    /// The adapters around connectors of scripting languages, and inside them. They are in the folder of
    /// this name below a folder of connectors.
    pub fn parts(&self) -> ([Component; 4], &'static str) {
        let artifacts = self.component_artifacts();
        let part = |part: &str| Component {
            name: format!("rapidbyte-part-{part}"),
            artifact: artifacts.join(format!("rapidbyte_part_{part}.wasm")),
        };
        (
            ["source", "transform", "destination", "sink"].map(part),
            "parts",
        )
    }

    /// Where cargo leaves components.
    fn component_artifacts(&self) -> PathBuf {
        self.target.join(TARGET).join(self.flavor.connectors())
    }

    /// The folder of components that only tests use.
    pub fn testkit(&self) -> PathBuf {
        self.target.join("testkit")
    }

    /// Where archives for people are left.
    pub fn dist(&self) -> PathBuf {
        self.target.join("dist")
    }

    /// Where the Python package is left for people.
    pub fn wheels(&self) -> PathBuf {
        self.target.join("wheels")
    }

    /// Where tests leave the Python package.
    pub fn wheels_of_tests(&self) -> PathBuf {
        self.target.join("wheels-test")
    }

    /// The output of `bench`: logs, and the files of its pipelines.
    pub fn bench(&self) -> PathBuf {
        self.target.join("bench")
    }

    /// Builds of other commits, to be measured beside this one.
    pub fn bench_compare(&self) -> PathBuf {
        self.target.join("bench-compare")
    }

    /// Which other products the bench may measure: a file for each, with its program.
    pub fn bench_peers(&self) -> PathBuf {
        self.target.join("bench-peers")
    }

    /// Where Python guests, and tools from the Python package index, are kept.
    pub fn python(&self) -> PathBuf {
        self.target.join("python")
    }

    /// Where what makes components of JavaScript is kept.
    pub fn javascript(&self) -> PathBuf {
        self.target.join("javascript")
    }

    /// Where the programs are that compile C into components.
    pub fn c_compiler(&self) -> PathBuf {
        self.target.join("c-compiler")
    }

    /// Where a PostgreSQL server for the tests is kept when the system has none.
    pub fn postgres(&self) -> PathBuf {
        self.target.join("postgres")
    }

    /// Where a server of MongoDB's protocol for the tests is kept.
    pub fn mongodb(&self) -> PathBuf {
        self.target.join("mongodb")
    }

    /// Where OpenSearch for the tests is kept.
    pub fn opensearch(&self) -> PathBuf {
        self.target.join("opensearch")
    }

    /// Where a server of Cosmos DB's protocol for the tests is kept.
    pub fn cosmosdb(&self) -> PathBuf {
        self.target.join("cosmosdb")
    }

    /// `path` as a person would write it from the top of the repository.
    pub fn shown(&self, path: &Path) -> String {
        if let Ok(inside) = path.strip_prefix(&self.root) {
            return inside.display().to_string();
        }
        match path.strip_prefix(&self.target) {
            Ok(inside) => format!("$CARGO_TARGET_DIR/{}", inside.display()),
            Err(_) => path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// Every connector of `connectors/`, the template included.
    pub fn connectors(&self) -> Result<Vec<Component>, Failure> {
        self.packages("connectors")
    }

    /// The connectors that users get: all but the template for new ones.
    pub fn bundled(&self) -> Result<Vec<Component>, Failure> {
        let mut all = self.connectors()?;
        all.retain(|connector| connector.name != "template");
        Ok(all)
    }

    /// The components that only tests use.
    pub fn testkit_components(&self) -> Result<Vec<Component>, Failure> {
        self.packages("crates/testkit/components")
    }

    /// The test kit's components that are written in Python.
    pub fn python_guests(&self) -> Result<Vec<Component>, Failure> {
        let names = self.folders("crates/testkit/components-python", "app.py")?;
        let component = |name: String| Component {
            artifact: self.python().join(format!("{name}.wasm")),
            name,
        };
        Ok(names.into_iter().map(component).collect())
    }

    /// A cargo that works on this workspace.
    pub fn cargo<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = self.command(&cargo);
        // They are built before the program, and not a second time by its build script.
        command
            .args(arguments)
            .env("RAPIDBYTE_EMBED", self.bundle());
        command
    }

    /// A cargo that works on every package of the host. The quick build leaves out the benchmarks, which
    /// `cargo xtask ci` tests by themselves. The demo builds only the program, without the tools that build
    /// connectors in Python and JavaScript.
    pub fn cargo_for_host(&self, arguments: &[&str]) -> Command {
        let mut cargo = self.cargo([]);
        cargo
            .args(arguments)
            .args(["--profile", self.host_profile()]);
        self.give_compiler(&mut cargo);
        match self.flavor {
            Flavor::Release => cargo.arg("--workspace"),
            // Clippy looks at the benchmarks too.
            Flavor::Quick if self.is_checked && arguments.contains(&"--no-run") => {
                cargo.arg("--workspace")
            }
            Flavor::Quick => {
                let excluded = WITHOUT_TESTS.iter().flat_map(|name| ["--exclude", name]);
                cargo.arg("--workspace").args(excluded)
            }
            Flavor::Demo => {
                cargo.args(["-p", "rapidbyte-cli", "--no-default-features"]);
                cargo.args(["--features", "quick-code"])
            }
        };
        cargo
    }

    /// A cargo that works on the connectors of this workspace. With SIMD they copy, search and check text 16
    /// bytes at a time.
    ///
    /// Not by `.cargo/config.toml`: that would also apply to the worktrees of other commits below `target/`.
    pub fn cargo_for_connectors(&self, command: &str) -> Command {
        let mut cargo = self.cargo([
            command,
            "--profile",
            self.flavor.connectors(),
            "--target",
            TARGET,
        ]);
        cargo.env(RUSTFLAGS, "-C target-feature=+simd128");
        if command == "build" {
            self.give_compiler(&mut cargo);
        }
        cargo
    }

    /// Cargo's own option instead of a variable, which the cargo of a test would take too.
    fn give_compiler(&self, cargo: &mut Command) {
        if self.is_checked {
            let this = std::env::current_exe().unwrap_or_else(|_| "xtask".into());
            cargo.arg("--config");
            cargo.arg(format!(
                "build.rustc-workspace-wrapper={:?}",
                this.display().to_string()
            ));
        }
    }

    /// A cargo that downloads the crates of the host and the connectors.
    pub fn fetch(&self) -> Command {
        self.cargo(["fetch", "--target", "host-tuple", "--target", TARGET])
    }

    /// A program that starts at the top of the repository.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        if std::env::var_os("CARGO_TARGET_DIR").is_some() {
            command.env("CARGO_TARGET_DIR", &self.target);
        }
        // `cargo run` describes the xtask package to us in variables; passed on, they would make
        // build scripts that look at such a variable run again after every `cargo build`.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_us(name)) {
            command.env_remove(name);
        }
        command
    }

    /// The packages in a folder, and where cargo leaves their components.
    fn packages(&self, folder: &str) -> Result<Vec<Component>, Failure> {
        let artifacts = self.component_artifacts();
        let component = |name: String| Component {
            artifact: artifacts.join(format!("{}.wasm", name.replace('-', "_"))),
            name,
        };
        let names = self.folders(folder, "Cargo.toml")?;
        Ok(names.into_iter().map(component).collect())
    }

    /// The names of the folders in `parent` that hold a file `mark`, in order. A parent that is
    /// not there has none.
    fn folders(&self, parent: &str, mark: &str) -> Result<Vec<String>, Failure> {
        let unreadable =
            |error: std::io::Error| Failure::new(format!("{parent} cannot be read: {error}"));
        let entries = match std::fs::read_dir(self.path(parent)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|_| path.join(mark).is_file()) {
                found.push(name.to_owned());
            }
        }
        found.sort();
        Ok(found)
    }
}

fn is_about_us(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_connectors(names: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for name in names {
            let folder = root.path().join("connectors").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("Cargo.toml"), "").unwrap();
        }
        root
    }

    #[test]
    fn the_template_is_built_but_not_bundled() {
        let root = with_connectors(&["template", "source-b", "dest-a"]);
        // A folder without a package, as a checkout of another branch leaves it.
        std::fs::create_dir_all(root.path().join("connectors/gone/src")).unwrap();
        let workspace = Workspace::at(root.path());
        let names = |components: Vec<Component>| {
            components
                .into_iter()
                .map(|component| component.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(workspace.connectors().unwrap()),
            ["dest-a", "source-b", "template"]
        );
        assert_eq!(names(workspace.bundled().unwrap()), ["dest-a", "source-b"]);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_components() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        assert_eq!(workspace.connectors().unwrap(), []);
        assert_eq!(workspace.testkit_components().unwrap(), []);
        assert_eq!(workspace.python_guests().unwrap(), []);
    }

    #[test]
    fn cargo_names_artifacts_with_underscores() {
        let root = with_connectors(&["source-file"]);
        let workspace = Workspace::at(root.path());
        let component = workspace.connectors().unwrap().remove(0);
        assert!(component.artifact.ends_with("connector/source_file.wasm"));
        assert_eq!(component.file(), "source-file.wasm");
    }

    #[test]
    fn quick_builds_stand_beside_those_for_users() {
        let release = Workspace::at(Path::new("/srv/rapidbyte"));
        for flavor in [Flavor::Quick, Flavor::Demo] {
            let other = Workspace::at(Path::new("/srv/rapidbyte")).built_as(flavor);
            assert_ne!(other.binary(), release.binary());
            assert_ne!(other.bundle(), release.bundle());
            assert_ne!(other.parts().0, release.parts().0);
        }
    }

    #[test]
    fn shown_paths_name_no_folder_of_the_machine() {
        let workspace = Workspace::at(Path::new("/srv/rapidbyte"));
        assert_eq!(
            workspace.shown(&workspace.binary()),
            "target/release/rapidbyte"
        );
        let elsewhere = Workspace {
            target: "/var/build".into(),
            ..workspace
        };
        assert_eq!(
            elsewhere.shown(&elsewhere.bundle()),
            "$CARGO_TARGET_DIR/release/connectors"
        );
    }
}

//! Every test of the workspace, with the real binary and the real components at hand.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Aside, Failure, Steps};
use crate::workspace::Workspace;
use crate::{
    build, check, columnar, cosmosdb, ferretdb, javascript, mongodb, opensearch, pgbouncer,
    postgres, python, wheel,
};

/// The options of `cargo xtask test`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// For cargo: which packages and test targets.
    targets: Vec<String>,
    /// For the test programs: parts of names.
    filters: Vec<String>,
    /// Whether the code is checked too.
    lints: bool,
    /// Only the tests of the Python package.
    python: bool,
    /// Also the tests of its examples, with the tools that they are for.
    integrations: bool,
    /// The tests of MongoDB also against FerretDB; with a filter, against FerretDB alone.
    ferretdb: bool,
    /// Also the tests that need a server of Azure Cosmos DB's protocol.
    cosmos: bool,
    /// Also the tests that need OpenSearch.
    opensearch: bool,
}

impl Selection {
    fn is_all(&self) -> bool {
        self.targets.is_empty() && self.filters.is_empty()
    }

    /// Takes the names after `--with`, with commas between them.
    fn take(&mut self, names: Option<&String>) -> Result<(), Failure> {
        const KNOWN: &str =
            "`integrations`, `ferretdb`, `cosmos` and `opensearch`, with commas between them";
        let names = names.map_or("", String::as_str);
        for name in names.split(',') {
            match name {
                "integrations" => self.integrations = true,
                "ferretdb" => self.ferretdb = true,
                "cosmos" => self.cosmos = true,
                "opensearch" => self.opensearch = true,
                _ => return Err(Failure::usage(format!("`--with` takes {KNOWN}"))),
            }
        }
        Ok(())
    }
}

/// Where proptest takes its seed from. It is fixed unless the variable is set (another number
/// looks further), so that two runs of one commit give one answer.
const SEED: &str = "PROPTEST_RNG_SEED";

/// The tests of MongoDB, besides those of whole pipelines.
const OF_MONGODB: [&str; 5] = [
    "-p",
    "rapidbyte-mongo-client",
    "-p",
    "source-mongodb",
    "--tests",
];

/// How many tests of a test program run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

/// Where tests make temporary folders.
const TEMPORARY: &str = "TMPDIR";
/// A file system in memory. The tests make many thousand small files, which takes half the CPU time there.
const MEMORY: &str = "/dev/shm";
/// The name of a folder there, before the number of the process.
const SCRATCH: &str = "rapidbyte-tests-";
/// All tests together have less than this in temporary folders.
const ROOM_KIB: u64 = 8 << 20;

/// Builds what tests need and runs them. Tests find it by fourteen variables, all absolute:
/// `RAPIDBYTE_BIN` the binary, `RAPIDBYTE_CONNECTORS` the folder of bundled connectors,
/// `RAPIDBYTE_TESTKIT` the folder of the test kit's components, `RAPIDBYTE_POSTGRES_BIN` the folder
/// of PostgreSQL's server programs, `RAPIDBYTE_PGBOUNCER` that program or nothing,
/// `RAPIDBYTE_MONGODB` the folder of the classes of mongo-java-server or nothing,
/// `RAPIDBYTE_FERRETDB` the folder of FerretDB, which then takes its place, or nothing,
/// `RAPIDBYTE_COSMOSDB` the folder of the packages of cosmosdb-server or nothing,
/// `RAPIDBYTE_OPENSEARCH` the folder of the classes of OpenSearch or nothing,
/// `RAPIDBYTE_PYTHON` a Python with validators of JSON Schema and OpenAPI,
/// `RAPIDBYTE_COLUMNAR_PYTHON` an interpreter with pyarrow, DuckDB and polars or nothing,
/// `RAPIDBYTE_COMPONENTIZE_PY` a virtual environment with that tool, `RAPIDBYTE_COMPONENTIZE_JS` a
/// folder with its packages, and `RAPIDBYTE_NODE_BIN` the folder of node, or both nothing.
pub fn test(workspace: Workspace, steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    match parse(arguments)?.lints {
        true => {
            let checked = workspace.checked();
            check::before_building(&checked, steps)?;
            with(&checked, steps, arguments, &[])?;
            check::dependencies(&checked, steps)
        }
        false => with(&workspace, steps, arguments, &[]),
    }
}

/// The same with more variables.
pub fn with(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
    variables: &[(&str, String)],
) -> Result<(), Failure> {
    let selection = parse(arguments)?;
    let server = postgres::programs_folder(workspace, steps)?;
    let is_all = selection.is_all();
    if (selection.python || selection.integrations) && !is_all {
        return Err(Failure::usage(
            "`--python` and `--with integrations` go without a filter",
        ));
    }
    if selection.python && selection.ferretdb {
        return Err(Failure::usage(
            "the tests of the Python package do not use FerretDB",
        ));
    }
    let host = match is_all {
        true => build::Host::Tests,
        false => build::Host::Program,
    };
    let tools = Tools::beside(workspace, steps, &selection, |steps| {
        build::before_testkit(workspace, steps, host)
    })?;
    build::testkit(workspace, steps)?;
    let scratch = Scratch::in_memory();
    let seed = std::env::var(SEED).unwrap_or_else(|_| "20261121".to_owned());
    let prepare = |program: &mut Command| {
        program
            .env("RAPIDBYTE_BIN", workspace.binary())
            .env("RAPIDBYTE_CONNECTORS", workspace.bundle())
            .env("RAPIDBYTE_TESTKIT", workspace.testkit())
            .env(postgres::VARIABLE, &server)
            .env(pgbouncer::VARIABLE, &tools.pooler)
            .env(mongodb::VARIABLE, &tools.mongodb)
            .env(ferretdb::VARIABLE, "")
            .env(cosmosdb::VARIABLE, &tools.cosmosdb)
            .env(opensearch::VARIABLE, &tools.opensearch)
            .env(python::VARIABLE, &tools.validator)
            .env(columnar::VARIABLE, &tools.columnar)
            .env(python::TOOLS, &tools.componentize)
            .envs(javascript::VARIABLES.into_iter().zip(&tools.javascript))
            .env(SEED, &seed)
            .envs(scratch.iter().map(|scratch| (TEMPORARY, &scratch.0)))
            .envs(variables.iter().map(|(name, value)| (*name, value)));
    };
    let cargo = |targets: &[&str]| {
        let mut program = match selection.targets.iter().any(|argument| argument == "-p") {
            true => workspace.cargo(["test", "--profile", workspace.host_profile()]),
            false => workspace.cargo_for_host(&["test"]),
        };
        program
            .arg("--no-fail-fast")
            .args(&selection.targets)
            .args(targets);
        prepare(&mut program);
        program
    };
    let against_ferretdb = |mut program: Command| {
        program.env(ferretdb::VARIABLE, &tools.ferretdb);
        program
    };
    if is_all {
        let rust = match selection.python {
            true => Ok(()),
            false => all(steps, cargo),
        };
        let python = match &tools.packer {
            Some(packer) => {
                let more = selection.integrations;
                wheel::test(workspace, steps, packer, &tools.columnar, more, prepare)
            }
            None => Ok(()),
        };
        if tools.ferretdb.as_os_str().is_empty() {
            return rust.and(python);
        }
        let mut pipelines = cargo(&["--test", "e2e"]);
        pipelines.args(["--", "mongodb::", "ferretdb::"]);
        let mut others = workspace.cargo(["test", "--profile", workspace.host_profile()]);
        others.arg("--no-fail-fast").args(OF_MONGODB);
        prepare(&mut others);
        let others = steps.program("test: FerretDB", against_ferretdb(others));
        let pipelines = against_ferretdb(pipelines);
        let pipelines = steps.program("test: FerretDB, whole pipelines", pipelines);
        return rust.and(python).and(others).and(pipelines);
    }
    let mut program = against_ferretdb(cargo(&[]));
    program.arg("--").args(&selection.filters);
    steps.program("test: workspace (shares the host's dependencies)", program)
}

/// A folder in memory for temporary folders, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    /// None if the caller has chosen a place, if memory is scarce, or if this account may not write there.
    fn in_memory() -> Option<Self> {
        if std::env::var_os(TEMPORARY).is_some() {
            return None;
        }
        let told = Command::new("df").args(["-Pk", MEMORY]).output().ok()?;
        if free_kib(&String::from_utf8_lossy(&told.stdout))? < ROOM_KIB {
            return None;
        }
        remove_abandoned();
        let folder = Path::new(MEMORY).join(format!("{SCRATCH}{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The tests have removed their own folders, so at worst a little memory stays taken.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of runs that were killed: they take memory.
fn remove_abandoned() {
    for entry in std::fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            // One of another account stays.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The fourth column of the second line of `df -Pk`.
fn free_kib(told: &str) -> Option<u64> {
    told.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// The programs that tests use, besides PostgreSQL's server. A path is empty where a program is missing.
struct Tools {
    pooler: PathBuf,
    mongodb: PathBuf,
    /// Empty unless the caller asks for it.
    ferretdb: PathBuf,
    /// Empty unless the caller asks for it.
    cosmosdb: PathBuf,
    /// Empty unless the caller asks for it.
    opensearch: PathBuf,
    columnar: PathBuf,
    /// With maturin; none unless all tests run.
    packer: Option<PathBuf>,
    validator: PathBuf,
    componentize: PathBuf,
    javascript: [OsString; 2],
}

impl Tools {
    /// Installs missing packages while `work` runs: an installation mostly waits for the network.
    fn beside(
        workspace: &Workspace,
        steps: &mut Steps,
        selection: &Selection,
        work: impl FnOnce(&mut Steps) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut of_tools = steps.beside();
        let (tools, worked) = std::thread::scope(|scope| {
            let tools = scope.spawn(|| Self::set_up(workspace, &mut of_tools, selection));
            let worked = work(steps);
            (tools.join(), worked)
        });
        steps.add(&of_tools);
        worked?;
        tools.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn set_up(
        workspace: &Workspace,
        steps: &mut Steps,
        selection: &Selection,
    ) -> Result<Self, Failure> {
        let ferretdb = { selection.ferretdb }.then(|| ferretdb::folder(workspace, steps));
        let cosmosdb = { selection.cosmos }.then(|| cosmosdb::packages(workspace, steps));
        let opensearch = { selection.opensearch }.then(|| opensearch::classes(workspace, steps));
        Ok(Self {
            pooler: pgbouncer::program(workspace, steps).unwrap_or_default(),
            mongodb: mongodb::classes(workspace, steps).unwrap_or_default(),
            ferretdb: ferretdb.flatten().unwrap_or_default(),
            cosmosdb: cosmosdb.flatten().unwrap_or_default(),
            opensearch: opensearch.flatten().unwrap_or_default(),
            columnar: columnar::interpreter(workspace, steps).unwrap_or_default(),
            packer: selection
                .is_all()
                .then(|| packer(workspace, steps))
                .flatten(),
            validator: python::validator(workspace, steps)?,
            componentize: python::tools(workspace, steps)?,
            javascript: javascript::tools(workspace, steps),
        })
    }
}

/// The virtual environment with maturin, for the tests of the Python package.
fn packer(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    let packer = wheel::packer(workspace, steps);
    if let Err(error) = &packer {
        let text = &error.message;
        steps.note(&format!("tests of the Python package are SKIPPED: {text}"));
    }
    packer.ok()
}

/// All tests of Rust programs. The tests of whole pipelines take most of the time and sometimes wait, so the others run at
/// the same time, and one more of them than this machine has cores.
fn all(steps: &mut Steps, cargo: impl Fn(&[&str]) -> Command) -> Result<(), Failure> {
    let others = ["--lib", "--bins", "--test", "[!e]*", "--test", "e[!2]*"];
    let others = Aside::start(&cargo(&others))?;
    let mut pipelines = cargo(&["--test", "e2e"]);
    if std::env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        pipelines.env(THREADS, (cores + 1).to_string());
    }
    let pipelines = steps.program("test: whole pipelines", pipelines);
    let others = steps.step("test: everything else", || others.end());
    let examples = steps.program("test: examples of the documentation", cargo(&["--doc"]));
    pipelines.and(others).and(examples)
}

fn parse(arguments: &[String]) -> Result<Selection, Failure> {
    let mut selection = Selection::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-p" | "--package" | "--test" => {
                let value = arguments
                    .next()
                    .ok_or_else(|| Failure::usage(format!("`{argument}` needs a name after it")))?;
                let flag = if argument == "--test" { "--test" } else { "-p" };
                selection.targets.extend([flag.to_owned(), value.clone()]);
            }
            "--" => selection.filters.extend(arguments.by_ref().cloned()),
            "--lint" => selection.lints = true,
            "--python" => selection.python = true,
            "--with" => selection.take(arguments.next())?,
            flag if flag.starts_with('-') => {
                return Err(Failure::usage(format!(
                    "`test` knows no option `{flag}` (options of the test programs follow `--`)"
                )));
            }
            _ => selection.filters.push(argument.clone()),
        }
    }
    if selection.lints && !(selection.targets.is_empty() && selection.filters.is_empty()) {
        return Err(Failure::usage("`--lint` goes with all tests"));
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Selection, Failure> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments)
    }

    #[test]
    fn filters_and_targets_are_told_apart() {
        let selection = parsed("csv --package wire --test e2e -- --ignored").unwrap();
        assert_eq!(selection.targets, ["-p", "wire", "--test", "e2e"]);
        assert_eq!(selection.filters, ["csv", "--ignored"]);
    }

    #[test]
    fn several_names_follow_with() {
        let selection = parsed("--with integrations,ferretdb,cosmos,opensearch").unwrap();
        assert!(selection.integrations && selection.ferretdb);
        assert!(selection.cosmos && selection.opensearch);
        let selection = parsed("mongodb --with ferretdb").unwrap();
        assert!(!selection.integrations && selection.ferretdb && !selection.is_all());
    }

    #[test]
    fn free_memory_is_read_from_the_table_of_df() {
        let told = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                    tmpfs 24689340 12 24689328 1% /dev/shm\n";
        assert_eq!(free_kib(told), Some(24_689_328));
        assert_eq!(free_kib(""), None);
    }

    #[test]
    fn unknown_and_unfinished_options_are_refused() {
        for line in [
            "--relase",
            "csv -p",
            "--lint csv",
            "--lint -p wire",
            "--with",
            "--with more",
            "--with ferretdb,",
            "--with ferretdb,more",
        ] {
            assert_eq!(parsed(line).unwrap_err().code, 2, "{line}");
        }
    }
}

//! `cargo xtask`: set-up, build, demo, tests and checks of this repository, all in one place.
//!
//! Each command is a list of steps. A step is announced, timed, and ends the command when it
//! fails; its exit code becomes ours. Progress goes to standard error, so that
//! `cargo xtask run … --output json` leaves standard output to the pipeline.
//!
//! The crate depends on the standard library alone: it is compiled before anything else.

use std::process::ExitCode;

mod bench;
mod build;
mod bundle;
mod c_compiler;
mod check;
mod columnar;
mod compiler;
mod cosmosdb;
mod demo;
mod dist;
mod faults;
mod ferretdb;
mod fuzz;
mod integrations;
mod java;
mod javascript;
mod mongodb;
mod opensearch;
mod pgbouncer;
mod postgres;
mod python;
mod stand_in;
mod step;
mod test;
mod toolchain;
mod wheel;
mod workspace;

use step::{Failure, Steps};
use workspace::{Flavor, Workspace};

const HELP: &str = "\
Usage: cargo xtask <command> [arguments]

Commands:
  setup                    install what the build needs: the connectors' target with rustup, a C
                           compiler for it from the Python package index (below target/)
  build                    setup, host and connectors in release, connectors compiled ahead of time
  dist                     build, and pack the program into an archive below target/dist
  wheel                    build, and pack the Python package into a wheel below target/wheels
  demo                     build quickly, run pipelines/quickstart.yaml and quickstart-parquet.yaml,
                           show the first rows, write a report page
  run <pipeline> [flags]   build, then `rapidbyte run <pipeline> [flags]`
  test [options] [filter]  build, then every test; a filter picks tests by a part of their name
                           options: -p <package>, --test <target>, --python (those of the Python package),
                           --with <names with commas> (integrations: also the examples of the Python package, with
                           Airflow, Dagster, dbt, dlt and Jupyter; ferretdb: the tests of MongoDB also against
                           FerretDB, or with a filter against FerretDB alone; cosmos: also the tests of Azure Cosmos
                           DB, with cosmosdb-server; opensearch: also the tests of OpenSearch), or
                           --lint without a filter, which also checks the code: formatting, clippy,
                           documentation, cargo-deny
  faults [options]         build, then kill the program at every named point and run it again
                           options: --cases <n>, --seed <n>; or --random <rounds> (kill it at
                           random moments), --drift <rounds> (the same while the columns of the source change),
                           --fire <rounds> (incremental runs while others write),
                           --races <n> (stop it in a commit while another run passes),
                           --network <n> (connections reset, stalled, half open)
  fuzz <seconds> [target…] install cargo-fuzz below target/, build what hostile bytes meet first, and
                           fuzz it so long in all; the targets: arrow, bson, copy, csv, cursor,
                           document, grants, ipc, json, jsonl, manifest, parquet,
                           server
  bench [options]          build, then measure INSERT and COPY between two PostgreSQL databases
                           beside psql and the same connectors natively; options: --rows <n,n>,
                           --iters <n>, --workload <narrow,hard,wide,fat,tiny,upsert,files,steps>,
                           --compression <none,lz4,zstd>, --latency <ms,ms> (each way),
                           --timeout <seconds of a run>, --peers, --no-build (measure the last build)
  bench-compare <old> <new> [rows] [--iters <n>]
                           build two commits (`.` for the files as they are), measure them in turn,
                           fail on a regression beyond limit and noise
  bench-profile <rows> <insert|copy> [narrow|hard|wide|fat]
                           build, then sample where one copy spends its processor time, by samply
                           or perf, with the names of host and guest
  bench-serve [options]    build, then measure the server that takes rows over HTTP, with a PostgreSQL of its own;
                           options: --secs <seconds of a measurement>, --no-build
  bench-parts [name] [options]
                           build, then measure the parts of a batch's way by Criterion: decoding and
                           encoding by type, IPC, compression, channel, loading, instances, and a
                           row alone against rows in bulk; a name picks parts that match it
  bench-peers-setup        install what `bench --peers` measures beside us, below target/: pinned
                           versions from the Python package index, pgcopydb from Debian's
  bench-engine [options]   build, then measure what needs no server against the goals
                           options: --rows <n>, --iters <n>, --no-build
  bench-python [options] [group…]
                           build the wheel, then measure it beside ADBC, DuckDB, polars and connectorx;
                           groups: write, read, documents, threads, small. Two groups go alone: mongodb, beside
                           pymongo, MongoEngine and pymongoarrow, and cosmos, beside azure-cosmos;
                           options: --rows <n>, --rounds <n>, --no-build, --mongodb <url>
  components <folder>      put the bundled connectors into a folder
  lint                     formatting, clippy for the host and for the connectors, documentation,
                           cargo-deny
  fmt                      format the code
  ci                       test --lint, the benchmarks' tests, then a short bench-compare with the last tag or
                           what is nearest to one

Everything is built below `target/`, or below $CARGO_TARGET_DIR when that is set.
";

/// The profiles that a command builds with.
fn flavor(command: &str) -> Flavor {
    match command {
        "demo" => Flavor::Demo,
        "test" | "faults" | "lint" => Flavor::Quick,
        _ => Flavor::Release,
    }
}

fn main() -> ExitCode {
    // First: maturin's `cargo rustc …` looks like cargo's call of a compiler.
    if let Some(code) = stand_in::if_called_as_one() {
        return code;
    }
    if let Some(code) = compiler::if_called_as_one() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("--help", &[][..]),
    };
    if matches!(name, "--help" | "-h" | "help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let mut steps = Steps::begin(name);
    let result = Workspace::locate().and_then(|workspace| {
        let workspace = workspace.built_as(flavor(name));
        dispatch(name, rest, &workspace, &mut steps)
    });
    steps.finish(result)
}

fn dispatch(
    name: &str,
    arguments: &[String],
    workspace: &Workspace,
    steps: &mut Steps,
) -> Result<(), Failure> {
    match name {
        "run" => return demo::run(workspace, steps, arguments),
        "components" => return build::components_into(workspace, steps, arguments),
        "test" => {
            let quick = Workspace::locate()?.built_as(Flavor::Quick);
            return test::test(quick, steps, arguments);
        }
        "faults" => return faults::faults(workspace, steps, arguments),
        "fuzz" => return fuzz::fuzz(workspace, steps, arguments),
        "bench" => return bench::postgres::postgres(workspace, steps, arguments),
        "bench-compare" => return bench::compare::compare(workspace, steps, arguments),
        "bench-parts" => return bench::postgres::parts(workspace, steps, arguments),
        "bench-serve" => return bench::postgres::serve(workspace, steps, arguments),
        "bench-profile" => return bench::postgres::profile(workspace, steps, arguments),
        "bench-python" => return bench::python::python(workspace, steps, arguments),
        "bench-engine" => return bench::bench(workspace, steps, arguments),
        _ => {}
    }
    if let Some(unknown) = arguments.first() {
        return Err(Failure::usage(format!(
            "`{name}` takes no argument `{unknown}`"
        )));
    }
    match name {
        "setup" => {
            toolchain::setup(workspace, steps)?;
            c_compiler::setup(workspace, steps).map(drop)
        }
        "bench-peers-setup" => bench::peers::setup(workspace, steps),
        "build" => build::build(workspace, steps),
        "dist" => dist::dist(workspace, steps),
        "wheel" => wheel::wheel(workspace, steps),
        "demo" => demo::demo(workspace, steps),
        "lint" => check::lint(workspace, steps),
        "fmt" => check::fmt(workspace, steps),
        "ci" => {
            let quick = Workspace::locate()?.built_as(Flavor::Quick);
            let of_benchmarks = ["-p".to_owned(), workspace::BENCH.to_owned()];
            test::with(&quick, steps, &of_benchmarks, &[])?;
            test::test(quick, steps, &["--lint".to_owned()])?;
            bench::compare::against_last_tag(workspace, steps)
        }
        _ => Err(Failure::usage(format!("no command `{name}`"))),
    }
}

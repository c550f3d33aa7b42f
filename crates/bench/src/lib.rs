//! Measures what copies between PostgreSQL databases, and files, cost: `cargo xtask bench` and its kin
//! build and start this program.
//!
//! ```text
//! (options)  whole processes beside psql, native connectors and peers     bench, scenario
//! compare    two builds of the program in turn; fails on a regression     compare
//! profile    one copy under samply or perf                                profile
//! serve      a server that takes rows over HTTP                           serve
//! native     one copy by the connectors as native code; the bench starts it itself
//! ```
//!
//! Criterion measures the cost of a value, a row and a batch in each part of its way, in a program of
//! its own: `benches/parts`.
//!
//! The server is its own, with PostgreSQL's defaults for durability and logged tables; after each
//! run every value is compared by a hash.

use std::process::ExitCode;

mod bench;
mod chart;
mod compare;
mod compiled;
mod databases;
pub mod failure;
mod figures;
pub mod machine;
mod measure;
mod native;
pub mod parts;
mod peers;
mod process;
mod profile;
mod run;
mod scenario;
mod serve;
mod settings;
mod stats;
mod workload;

use bench::Bench;
use failure::Failure;
use settings::{Settings, USAGE};

/// Does what the command line asks for: 0, 1 after a failure or a regression, 2 for a wrong command.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    if arguments
        .iter()
        .any(|argument| matches!(argument.as_str(), "--help" | "-h"))
    {
        println!("{}", usage(arguments.first().map(String::as_str)));
        return ExitCode::SUCCESS;
    }
    let result = match arguments.first().map(String::as_str) {
        Some("native") if rest.is_empty() => native::copy().map(|report| println!("{report}")),
        Some("compare") => match compare::Request::parse(rest) {
            Ok(request) => compare::run(&request),
            Err(failure) => return refuse(&failure, compare::USAGE),
        },
        Some("profile") => match profile::Request::parse(rest) {
            Ok(request) => profile::run(&request),
            Err(failure) => return refuse(&failure, profile::USAGE),
        },
        Some("serve") => match serve::Request::parse(rest) {
            Ok(request) => serve::run(&request),
            Err(failure) => return refuse(&failure, serve::USAGE),
        },
        _ => match Settings::parse(&arguments) {
            Ok(settings) => Bench::start(settings).and_then(scenario::run),
            Err(failure) => return refuse(&failure, USAGE),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("bench: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Of a command, or of all.
fn usage(command: Option<&str>) -> String {
    match command {
        Some("compare") => compare::USAGE.into(),
        Some("profile") => profile::USAGE.into(),
        Some("serve") => serve::USAGE.into(),
        _ => [USAGE, compare::USAGE, profile::USAGE, serve::USAGE].join("\n"),
    }
}

/// The command line is wrong.
fn refuse(Failure(text): &Failure, usage: &str) -> ExitCode {
    eprintln!("{text}\n{usage}");
    ExitCode::from(2)
}

//! A program in Python, `benches/python`, measures the Python package beside others.

use super::postgres::NO_BUILD;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;
use crate::{python, wheel};

/// psycopg prepares the tables, and pyarrow holds the rows; the others are measured.
const PACKAGES: [&str; 9] = [
    "connectorx==0.4.6",
    "psycopg[binary]==3.3.9",
    "pyarrow==26.0.1",
    "polars==2.1.0",
    "pandas==3.1.1",
    "sqlalchemy==2.0.44",
    "adbc-driver-postgresql==1.13.0",
    "duckdb==1.5.5",
    "duckdb-extension-postgres-scanner==1.5.5",
];

/// The group of MongoDB has packages of its own: pymongoarrow takes another pyarrow. mongo-java-server does not answer
/// pymongo 4.8 and later.
const MONGODB: &str = "mongodb";
const OTHERS: [&str; 5] = ["write", "read", "documents", "threads", "small"];
const OF_MONGODB: [&str; 3] = [
    "pymongo==4.7.3",
    "mongoengine==0.29.3",
    "pymongoarrow==1.15.0",
];

/// Builds and installs the wheel, then has the program start a server and measure.
pub fn python(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let server = crate::postgres::programs_folder(workspace, steps)?;
    let why = "the bench compares with packages that need it";
    let is_mongodb = is_mongodb(arguments)?;
    let packages = match is_mongodb {
        true => &OF_MONGODB[..],
        false => &PACKAGES[..],
    };
    let classes = is_mongodb.then(|| crate::mongodb::classes(workspace, steps));
    let classes = classes.flatten().unwrap_or_default();
    let venv = python::environment(workspace, steps, packages, why)?;
    let packages = match arguments.iter().any(|argument| argument == NO_BUILD) {
        true => wheel::released_before(workspace)?,
        false => wheel::released_packages(workspace, steps)?,
    };
    let mut program = workspace.command(python::program(&venv, "python3"));
    program
        .arg("benches/python/bench.py")
        .arg("--log")
        .arg(workspace.bench())
        .args(arguments.iter().filter(|argument| *argument != NO_BUILD))
        .env("PYTHONPATH", packages)
        .env(crate::postgres::VARIABLE, server)
        .env(crate::mongodb::VARIABLE, classes);
    steps.program("bench: Python package", program)
}

/// Whether the group of MongoDB is asked for, which goes alone.
fn is_mongodb(arguments: &[String]) -> Result<bool, Failure> {
    let names = |group: &str| arguments.iter().any(|argument| argument == group);
    match names(MONGODB) && OTHERS.iter().any(|other| names(other)) {
        true => Err(Failure::usage(
            "the group `mongodb` goes alone: its packages are not those of the others",
        )),
        false => Ok(names(MONGODB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_mongodb_goes_alone() {
        let of = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            is_mongodb(&arguments).map_err(|failure| failure.code)
        };
        assert_eq!(of("mongodb --rounds 3").ok(), Some(true));
        assert_eq!(of("small --rows 10").ok(), Some(false));
        assert_eq!(of("small mongodb").err(), Some(2));
    }
}

//! A program in Python, `benches/python`, measures the Python package beside others.

use std::path::PathBuf;

use super::postgres::NO_BUILD;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;
use crate::{javascript, python, wheel};

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

const OTHERS: [&str; 5] = ["write", "read", "documents", "threads", "small"];

/// Groups whose packages are not those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// pymongoarrow takes another pyarrow. mongo-java-server does not answer pymongo 4.8 and later.
    MongoDb,
    /// Its server comes from npm.
    Cosmos,
}

impl Apart {
    const ALL: [Self; 2] = [Self::MongoDb, Self::Cosmos];

    fn group(self) -> &'static str {
        match self {
            Self::MongoDb => "mongodb",
            Self::Cosmos => "cosmos",
        }
    }

    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::MongoDb => &[
                "pymongo==4.7.3",
                "mongoengine==0.29.3",
                "pymongoarrow==1.15.0",
            ],
            Self::Cosmos => &["azure-cosmos==4.7.0", "pyarrow==26.0.1"],
        }
    }

    /// Where the program finds the server that it starts.
    fn server(
        self,
        workspace: &Workspace,
        steps: &mut Steps,
    ) -> Result<(&'static str, PathBuf), Failure> {
        match self {
            Self::MongoDb => {
                let classes = crate::mongodb::classes(workspace, steps);
                // The program says that it is missing, unless it gets the address of another server.
                Ok((crate::mongodb::VARIABLE, classes.unwrap_or_default()))
            }
            Self::Cosmos => {
                let packages = crate::cosmosdb::packages(workspace, steps);
                let packages = packages.ok_or_else(|| {
                    Failure::new(
                        "the group `cosmos` needs cosmosdb-server: install node 20 with npm",
                    )
                })?;
                Ok((crate::cosmosdb::VARIABLE, packages))
            }
        }
    }
}

/// Builds and installs the wheel, then has the program start a server and measure.
pub fn python(
    workspace: &Workspace,
    steps: &mut Steps,
    arguments: &[String],
) -> Result<(), Failure> {
    let server = crate::postgres::programs_folder(workspace, steps)?;
    let why = "the bench compares with packages that need it";
    let apart = apart(arguments)?;
    let packages = apart.map_or(&PACKAGES[..], Apart::packages);
    let of_group = apart.map(|apart| apart.server(workspace, steps));
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
        .envs(of_group.transpose()?);
    if let (Some(Apart::Cosmos), Some(node)) = (apart, javascript::system_node(workspace)) {
        program.env(javascript::VARIABLES[1], node);
    }
    steps.program("bench: Python package", program)
}

/// The group that is asked for, if it is one that goes alone.
fn apart(arguments: &[String]) -> Result<Option<Apart>, Failure> {
    let names = |group: &str| arguments.iter().any(|argument| argument == group);
    let mut asked = Apart::ALL.into_iter().filter(|apart| names(apart.group()));
    let first = asked.next();
    let others = asked.next().is_some() || OTHERS.iter().any(|other| names(other));
    match first {
        Some(apart) if others => Err(Failure::usage(format!(
            "the group `{}` goes alone: its packages are not those of the others",
            apart.group()
        ))),
        first => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_packages_of_its_own_goes_alone() {
        let of = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            apart(&arguments).map_err(|failure| failure.code)
        };
        assert_eq!(of("mongodb --rounds 3").ok(), Some(Some(Apart::MongoDb)));
        assert_eq!(of("cosmos").ok(), Some(Some(Apart::Cosmos)));
        assert_eq!(of("small --rows 10").ok(), Some(None));
        assert_eq!(of("small mongodb").err(), Some(2));
        assert_eq!(of("cosmos mongodb").err(), Some(2));
    }
}

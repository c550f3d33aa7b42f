//! The examples of the Python package with the tools that they are for: `cargo xtask test --with integrations`.
//!
//! Each tool comes into a virtual environment of its own below `target/`. One that cannot be had is SKIPPED with the reason.

use std::path::Path;
use std::process::Command;

use crate::python;
use crate::step::{Failure, Steps};
use crate::workspace::Workspace;

/// A tool and the file of `python/integrations` that tests with it.
struct Tool {
    file: &'static str,
    packages: &'static [&'static str],
}

const TOOLS: [Tool; 5] = [
    Tool {
        file: "test_airflow.py",
        packages: &["apache-airflow==3.3.2"],
    },
    Tool {
        file: "test_dagster.py",
        packages: &["dagster==1.13.29"],
    },
    Tool {
        file: "test_dbt.py",
        packages: &["dbt-core==1.10.23", "dbt-postgres==1.9.1"],
    },
    Tool {
        file: "test_dlt.py",
        packages: &["dlt==1.31.0"],
    },
    Tool {
        file: "test_notebook.py",
        packages: &["nbclient==0.11.0", "ipykernel==7.4.0", "polars==2.1.0"],
    },
];

/// Runs all tests and fails if one of them did. `unittest` makes the command for an interpreter and its arguments.
pub fn test(
    workspace: &Workspace,
    steps: &mut Steps,
    unittest: impl Fn(&Path, &[&str]) -> Command,
) -> Result<(), Failure> {
    let mut result = Ok(());
    for tool in &TOOLS {
        let why = "the examples run with the tools that they are for";
        let venv = match python::environment(workspace, steps, tool.packages, why) {
            Ok(venv) => venv,
            Err(error) => {
                let (file, text) = (tool.file, &error.message);
                steps.note(&format!("{file} is SKIPPED: {text}"));
                continue;
            }
        };
        let folder = ["discover", "-s", "python/integrations", "-p", tool.file];
        let tests = unittest(&python::program(&venv, "python3"), &folder);
        result = result.and(steps.program(&format!("test: {}", tool.file), tests));
    }
    result
}

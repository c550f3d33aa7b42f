//! Other readers and writers of Parquet and Arrow files, for the tests: pyarrow, DuckDB and polars,
//! pinned, from the Python package index into a folder below `target/`. The tests of the Python package also exchange
//! rows with them, with pandas and pydantic, and with the driver of MongoDB, the last one that mongo-java-server answers.
//!
//! Where they cannot be had the tests that need them say that they are skipped.

use std::path::PathBuf;

use crate::python;
use crate::step::Steps;
use crate::workspace::Workspace;

/// The interpreter that has them, as the tests read it.
pub const VARIABLE: &str = "RAPIDBYTE_COLUMNAR_PYTHON";

const PACKAGES: [&str; 6] = [
    "pyarrow==26.0.1",
    "duckdb==2.0.0",
    "polars==2.1.0",
    "pandas==3.1.1",
    "pydantic==2.14.4",
    "pymongo==4.7.3",
];

/// The interpreter, if it can be had.
pub fn interpreter(workspace: &Workspace, steps: &mut Steps) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return Some(named.into()).filter(|named: &PathBuf| !named.as_os_str().is_empty());
    }
    let why = "tests read Parquet and Arrow files with other programs";
    match python::environment(workspace, steps, &PACKAGES, why) {
        Ok(venv) => Some(python::program(&venv, "python3")),
        Err(error) => {
            let text = &error.message;
            steps.note(&format!(
                "tests with pyarrow, DuckDB, polars, pandas and pydantic are SKIPPED: {text}"
            ));
            None
        }
    }
}

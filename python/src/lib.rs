//! The extension module `rapidbyte._engine`: the engine and the command, for the package in `python/rapidbyte`.
//!
//! ```text
//! feed     objects with rows: lists, iterators, JSON text, files, Arrow data
//!   rows     Python values to columns (value: one value, shape: the type that values have in common, column: builders,
//!            extended: values in documents for MongoDB)
//!   json     JSON text to columns (split: text to records)
//!   arrow    Arrow data of other libraries, in and out: the only unsafe code (documents: its structs as JSON)
//!   stored   the types of the table that rows go to
//!   marked   rows that are deleted
//! run      run, plan, check, discover, verify
//!   desk     serves a run on the caller's thread
//! sink     a run that takes rows as they come
//! reader   rows while a run brings them (batch: what Python gets, objects: its values)
//! ending   the end of the interpreter, before which calls end
//! refusal  errors as exceptions (arguments and words: the arguments of a call in them, instead of keys of a pipeline)
//! ```

// `cargo test --lib` makes a test program of every library, and without an interpreter this one would not link.
#![cfg(not(test))]

use std::ffi::OsString;

use pyo3::prelude::*;

mod arguments;
mod arrow;
mod batch;
mod column;
mod desk;
mod documents;
mod ending;
mod engine;
mod extended;
mod feed;
mod json;
mod marked;
mod objects;
mod reader;
mod refusal;
mod rows;
mod run;
mod shape;
mod sink;
mod split;
mod stored;
mod threads;
mod value;
mod words;

/// The module.
#[pymodule]
mod _engine {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::ending::end;
    #[pymodule_export]
    use super::engine::close_idle;
    #[pymodule_export]
    use super::extended::extended_json;
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::reader::{Reader, read};
    #[pymodule_export]
    use super::run::{Canceller, check, discover, plan, run, verify};
    #[pymodule_export]
    use super::sink::Sink;
    #[pymodule_export]
    use super::version;
}

/// Runs the command with these arguments, the program's name first, and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| rapidbyte_cli::main(arguments))
}

/// The version of the engine.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

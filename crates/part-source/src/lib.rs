//! The interface `source` of the contract around one of `rapidbyte:script`: `rapidbyte connector build`
//! puts this component around a source in Python or JavaScript.
//!
//! It asks for steps, makes batches of rows, and refuses what the script declared not to do.

#[cfg(target_family = "wasm")]
mod part;

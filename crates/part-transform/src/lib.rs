//! The interface `transform` of the contract around one of `rapidbyte:script`: `rapidbyte connector build`
//! puts this component around a transform in Python or JavaScript.
//!
//! It makes columns of batches and batches of the rows that come back. A column that the script leaves as it is keeps
//! its field, and so the type that it has in the source.

#[cfg(target_family = "wasm")]
mod part;

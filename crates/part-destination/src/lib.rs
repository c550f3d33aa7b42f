//! The interface `destination` of the contract around one of `rapidbyte:script`: `rapidbyte connector build`
//! puts this component around a destination in Python or JavaScript.
//!
//! It makes columns of batches, counts, and gives a stream to the script as a whole: it keeps no
//! cursor, so that the host begins a stream again after a failure.

#[cfg(target_family = "wasm")]
mod part;

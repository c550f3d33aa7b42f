//! Rows as JSON to the batches of the contract, for connectors in scripting languages.
//!
//! Built for `wasm32-wasip2` this crate is the component that exports `rapidbyte:rows/encode` of
//! `wit/rows.wit`. `rapidbyte connector build` puts it into a connector in Python or JavaScript, so
//! that their authors need no Arrow library and the host loads one component as ever. How values
//! stand in JSON is the matter of `rapidbyte-formats`: exact, or refused with column and row.

mod declared;
mod encoder;

#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
mod export;

pub use declared::schema;
pub use encoder::{Encoded, Encoder, Refusal};

//! Rows as JSON to the batches of the contract and back, for connectors in scripting languages.
//!
//! The components `crates/part-source` and `crates/part-destination` use it, which `rapidbyte connector build`
//! puts around a connector in Python or JavaScript (`wit/script.wit`), so that their authors need no
//! Arrow library and the host loads one component as ever. How values stand in JSON is the matter of
//! `rapidbyte-formats`: exact, or refused with column and row.

mod declared;
mod decoder;
mod encoder;
mod refused;

pub use declared::schema;
pub use decoder::{Decoder, Held, Piece, columns};
pub use encoder::{Encoded, Encoder, REPORT, Refusal};
pub use rapidbyte_formats::Owner;
pub use rapidbyte_wire::one;

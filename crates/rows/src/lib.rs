//! Rows as JSON to the batches of the contract and back, for connectors in scripting languages.
//!
//! `rapidbyte connector build` puts the components `crates/part-source`, `part-transform` and `part-destination` around a
//! connector in Python or JavaScript (`wit/script.wit`). These components use this crate: authors do not need an Arrow
//! library, and the host loads one component as usual. `rapidbyte-formats` defines how values look in JSON: exact, or
//! refused with column and row.

mod declared;
mod decoder;
mod encoder;
mod refused;
mod relation;

pub use declared::schema;
pub use decoder::{Decoder, Held, Piece, columns};
pub use encoder::{Encoded, Encoder, REPORT, Refusal};
pub use rapidbyte_formats::Owner;
pub use rapidbyte_wire::{one, plain_spec};
pub use relation::Relation;

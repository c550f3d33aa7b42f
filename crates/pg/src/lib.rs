//! Arrow to PostgreSQL and back, without I/O.
//!
//! This crate owns what both PostgreSQL connectors must agree on: how a column's type is written
//! down ([`model`]), how its values are held in Arrow ([`mod@form`]), the binary COPY format
//! ([`copy`]), rows as one parameter ([`insert`]), text that is cast ([`cast`]), which field fits which column ([`mod@fit`]),
//! identifiers ([`ident`]), statements ([`ddl`]), wider types ([`widen`]) and the questions to the catalog ([`catalog`]).
//! It opens no connection and knows no stream: bytes and catalog rows come in, batches,
//! statements and bytes go out. All of it treats bytes and metadata as hostile.

pub mod behind;
mod bind;
mod builder;
pub mod builtin;
mod bytes;
pub mod cast;
pub mod catalog;
pub mod copy;
pub mod ddl;
mod decision;
mod decode;
pub mod digest;
mod encode;
mod error;
pub mod fit;
pub mod form;
pub mod ident;
pub mod insert;
mod json_keys;
pub mod model;
pub mod oids;
mod op;
mod patterns;
mod types;
pub mod widen;
mod written;

pub use decision::Fit;
pub use error::{Owner, PgError};
pub use fit::fit;
pub use form::{Form, NATIVE_FORM, Table, column_of, field, form, select_expression};
pub use model::{Column, Kind, PgType};

//! Expressions over the columns of a row: a part of SQL, with PostgreSQL's rules for NULL.
//!
//! `parse` turns text into a [`Typed`] tree and refuses text that does not fit the columns; `build` makes the nodes.
//! `compute` evaluates a tree for all rows of a batch. The result of a tree depends on its row alone, and the
//! evaluation always ends.

mod build;
mod call;
mod cast;
mod cells;
mod compute;
mod default;
mod kind;
mod like;
mod literal;
mod parse;
mod rows;
mod text;
mod tree;

pub use build::boolean;
pub use cells::{Cells, Values};
pub use compute::cells;
pub use default::with_default;
pub use kind::Kind;
pub use literal::value as literal;
pub use parse::parse;
pub use rows::{Misfit, Rows};
pub use tree::Typed;

//! Whether the rows of a target are the rows of its source.
//!
//! Each side digests its rows in its own system: 128 bits for each row, which are added up. Rows whose digests begin with
//! the same bits are a bucket. The buckets that differ lead to the rows that differ, in a few questions and without an
//! order that both systems would have to share.
//!
//! A repair moves the rows that differ once more, by their keys, in one commit for at most 1,000 rows.

mod after;
mod compared;
mod repair;
mod sides;
mod staged;
mod streams;
mod way;

pub(crate) use after::after_run;
pub use compared::{Compared, Difference, Row, Sum, Verified};
pub use repair::Repair;
pub use streams::verify;
pub(crate) use way::{refuse_after_run, staged_target};

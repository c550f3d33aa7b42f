//! Does a connector keep the contract? The host asks it, clause by clause.
//!
//! ```text
//! asked     the arguments of a test become a trial
//! trial     a loaded connector, its settings, whether a peer reads what it writes
//! bench     opens instances of it as a run does, and remembers every error that came back
//! common    clauses for every connector: what it says of itself, its settings, its errors
//! source    clauses for what is read       (whole, columns, checkpoints, cancelling)
//! transform  clauses for what becomes of batches (plan, schema, the same rows again)
//! destination  clauses for what is written (values, types, modes, commits, aborts, runs that shut each other out)
//! peer      reads what a destination wrote, and same compares it with what was written
//! run       the parts of a test in their order; judges tells each outcome
//! verdict   PASS, FAIL or SKIP for each clause, and what to do
//! ```
//!
//! A clause checks one promise. If something else prevents the check, the clause is skipped and names the clause to
//! see, so that one fault fails one clause. Unlike a run, this crate decodes batches here; a malformed batch is an
//! error and not a panic.
//!
//! It prints nothing, names no connector, and reads of each stream 500,000 rows, 256 MiB or a minute at
//! most. A destination is written to: streams named `conformance_…` stay there.

mod asked;
mod bench;
mod common;
mod destination;
mod digest;
mod discovery;
mod judges;
mod order;
mod peer;
mod read;
mod run;
mod same;
mod source;
mod spec;
mod transform;
mod trial;
mod values;
mod verdict;

pub use asked::Asked;
pub use run::test;
pub use trial::{Peer, Trial};
pub use verdict::{Clause, Outcome, Report, Verdict, clauses};

//! The names of targets that a run does not write: whatever the description of a column asks the destination to make, they
//! stay free for the other streams of the pipeline.

use std::collections::HashSet;

use rapidbyte_runtime::{Destination, Spec};

use super::planned::StreamPlan;
use crate::cursors;
use crate::document::Document;
use crate::failure::Failure;

/// The destination's code for a type that would take the name of a target.
const RESERVED: &str = "reserved_type_name";
/// Statements that make something else than the target itself.
const MAKERS: [&str; 2] = ["CREATE TYPE ", "CREATE DOMAIN "];

/// Tells the destination, which has planned `planned`, of the targets of all other streams of the pipeline: those that
/// `--select` leaves out, and those that the queue of a server moves in runs of their own. `found` are the streams of the
/// source. A destination hears of a target when it is asked for its progress, and the contract has no other call for
/// this; so it is asked only if it makes types.
///
/// # Errors
/// `reserved_type_name`.
pub(super) fn refuse_taken(
    document: &Document,
    spec: &Spec,
    found: &HashSet<String>,
    planned: &[StreamPlan],
    destination: &mut Destination,
) -> Result<(), Failure> {
    let mut statements = planned.iter().flat_map(|one| &one.placed.statements);
    let makes_types = statements.any(|text| MAKERS.iter().any(|maker| text.starts_with(maker)));
    if !makes_types || !spec.supports_checkpoints {
        return Ok(());
    }
    for stream in others(document, found, planned) {
        let target = cursors::target(document, stream, false)?;
        let asked = destination.progress(&target, &document.pipeline);
        let refused = asked
            .err()
            .map(|error| Failure::from_runtime(error, document, "destination"));
        match refused {
            Some(failure) if failure.code == RESERVED || !destination.is_usable() => {
                return Err(failure);
            }
            // The run does not read the progress of this stream.
            _ => {}
        }
    }
    Ok(())
}

/// The streams of the pipeline that are not planned, in order.
fn others<'a>(
    document: &'a Document,
    found: &'a HashSet<String>,
    planned: &[StreamPlan],
) -> Vec<&'a str> {
    let own = document.source.streams.iter().chain(&document.beside);
    let own = own.filter(|entry| !entry.is_pattern());
    let named = own.map(|entry| entry.name.as_str());
    let planned: HashSet<&str> = planned.iter().map(|one| one.name.as_str()).collect();
    let all = named.chain(found.iter().map(String::as_str));
    let others: HashSet<&str> = all.filter(|name| !planned.contains(name)).collect();
    let mut others: Vec<&str> = others.into_iter().collect();
    others.sort_unstable();
    others
}

//! Streams that a run cannot move, and the one failure that tells of all of them.

use super::privileges;
use crate::failure::Failure;

/// A stream of the pipeline that cannot be moved.
pub struct Refused {
    /// Its name, or the pattern that covers no stream.
    pub stream: String,
    /// Why.
    pub failure: Failure,
}

/// What a command comes to that moves nothing because of these: one failure for missing privileges, with one
/// script for whoever may grant, or one that lists all. `streams` is how many the pipeline asks for, `destination`
/// the name of its connector. None for none.
pub(super) fn refusal(refused: Vec<Refused>, streams: usize, destination: &str) -> Option<Failure> {
    let is_missing = |refused: &Refused| privileges::is_missing(&refused.failure);
    if refused.iter().all(is_missing) {
        let of_side = |refused: Refused| {
            let is_destination = refused.failure.connector.as_deref() == Some(destination);
            let side = match is_destination {
                true => "destination",
                false => "source",
            };
            (side, refused.failure)
        };
        return privileges::merged(refused.into_iter().map(of_side).collect());
    }
    let count = refused.len();
    let mut failures: Vec<Failure> = refused.into_iter().map(|refused| refused.failure).collect();
    // A fault that is not of a stream is the same for each.
    failures.dedup_by(|one, other| {
        let key = |failure: &Failure| (failure.code.clone(), failure.message.clone());
        key(one) == key(other) && one.location == other.location && one.column == other.column
    });
    if let [failure] = failures.as_mut_slice()
        && count > 1
    {
        failure.stream = None;
    }
    let text = format!("{count} of {streams} streams cannot be moved");
    Failure::of_several(failures, text, "follow the hint of each error")
}

//! Streams that a run cannot move, and the one failure that tells of all of them.

use super::privileges;
use crate::failure::{Class, Failure};

/// A stream of the pipeline that cannot be moved.
#[derive(Clone)]
pub struct Refused {
    /// Its name, or the pattern that covers no stream.
    pub stream: String,
    /// Why.
    pub failure: Failure,
}

/// The failure of a command that moves nothing because of `refused`. If all of them lack privileges, it has one script
/// for whoever may grant them; otherwise it lists all failures. `streams` is how many streams the pipeline asks for,
/// `destination` the name of its connector. None if nothing is refused.
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
    // One fault outside the streams, such as a missing schema, is found for each of them.
    let is_same = |failure: &Failure| {
        let first = &failures[0];
        let text = |failure: &Failure| (failure.code.clone(), failure.message.clone());
        let is_of_stream = failure.stream.is_some() || failure.column.is_some();
        !is_of_stream && text(failure) == text(first) && failure.location == first.location
    };
    if failures.iter().all(is_same) {
        failures.truncate(1);
    }
    let text = format!("{count} of {streams} streams cannot be moved");
    Failure::of_several(failures, text, "follow the hint of each error")
}

/// Whether the other streams can be moved. They cannot where the command is interrupted, the server is away, or the
/// pipeline sends two streams to one target, a stream to what it reads, or runs against each other: then moving one of
/// them does harm.
pub(super) fn is_of_stream(failure: &Failure) -> bool {
    let is_of_all = matches!(
        failure.code.as_str(),
        SHARED_TARGET | TARGET_IS_SOURCE | CANNOT_REPLACE_RUN
    );
    !is_of_all && !failure.stops_run && failure.class != Class::Cancelled
}

/// Two streams have one target. Connectors have the same code.
pub(super) const SHARED_TARGET: &str = "shared_target";
/// The run would write what it reads. Connectors have the same code.
pub(super) const TARGET_IS_SOURCE: &str = "target_is_source";
/// `when_running: replace`, and the destination does not fence the run that is replaced.
pub(super) const CANNOT_REPLACE_RUN: &str = "cannot_replace_run";

/// The failure where no stream can be moved. A transient failure is returned as it is, because planning is then
/// retried.
pub(super) fn refused_all(refused: Vec<Refused>, streams: usize, destination: &str) -> Failure {
    let passes = |refused: &&Refused| refused.failure.passes_after_ms.is_some();
    if let Some(passing) = refused.iter().find(passes) {
        return passing.failure.clone();
    }
    refusal(refused, streams, destination)
        .unwrap_or_else(|| Failure::new(Class::Run, "internal", "a refusal without a reason"))
}

/// True if asking for fewer streams would not help: the server is away, the connector is broken, or the failure is
/// transient.
pub(super) fn stops(failure: &Failure) -> bool {
    let is_broken = failure.class == Class::Run && failure.stream.is_none();
    let is_cancelled = failure.class == Class::Cancelled;
    failure.stops_run || is_cancelled || is_broken || failure.passes_after_ms.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(streams: &[Option<&str>]) -> Vec<Option<String>> {
        let refused = streams.iter().map(|stream| {
            let failure = Failure::new(Class::Config, "no_schema", "no schema \"raw\"");
            let failure = match stream {
                Some(stream) => failure.in_stream(stream),
                None => failure,
            };
            Refused {
                stream: stream.unwrap_or("s").to_owned(),
                failure,
            }
        });
        let failure = refusal(refused.collect(), 5, "dest").expect("a failure");
        match failure.streams.failures.is_empty() {
            true => vec![failure.stream],
            false => failure
                .streams
                .failures
                .into_iter()
                .map(|f| f.stream)
                .collect(),
        }
    }

    #[test]
    fn a_shared_reason_is_told_once_and_a_reason_of_one_stream_for_each() {
        assert_eq!(told(&[None, None, None]), [None]);
        let all = [Some("a"), Some("b"), Some("c")];
        assert_eq!(told(&all), all.map(|name| name.map(str::to_owned)));
        assert!(refusal(Vec::new(), 0, "dest").is_none());
    }
}

//! The moment of a run: the source reads all streams in one consistent snapshot. The source fixes the moment, and may
//! refuse streams.

use rapidbyte_runtime::{Cancel, Clock, Phase, Selection, Source};

use super::planned::Taken;
use super::refused::stops;
use crate::document::Document;
use crate::failure::Failure;
use crate::usage::Usage;

/// Asks for the moment of the `left` streams until no stream is refused, each time without those that were.
/// `first` is an answer that is there already, of these streams at least.
///
/// # Errors
/// A failure that stops the whole run, and a refusal of several streams that the source accepts one by one.
pub(super) fn take_readable(
    names: &[&str],
    mut left: Vec<usize>,
    first: Option<Result<String, Failure>>,
    ask: &mut impl FnMut(&[usize]) -> Result<String, Failure>,
) -> Result<Taken, Failure> {
    let mut refused = Vec::new();
    let mut answer = first;
    while !left.is_empty() {
        let is_of_more = answer.is_some();
        let failure = match answer.take().unwrap_or_else(|| ask(&left)) {
            Ok(snapshot) => return Ok(Taken { snapshot, refused }),
            Err(failure) => failure,
        };
        if stops(&failure) {
            return Err(failure);
        }
        let is_of_left = |index: &usize| Some(names[*index]) == failure.stream.as_deref();
        if is_of_more && failure.stream.is_some() && !left.iter().any(is_of_left) {
            continue;
        }
        let found = find(names, &left, failure.clone(), ask)?;
        if found.is_empty() {
            return Err(failure);
        }
        left.retain(|index| found.iter().all(|(other, _)| other != index));
        refused.extend(found);
    }
    Ok(Taken {
        snapshot: String::new(),
        refused,
    })
}

/// Finds the streams of a `part` that the source refuses, after it refused the part with `failure`. If the failure
/// names a stream, it is that one. Otherwise both halves are asked for.
fn find(
    names: &[&str],
    part: &[usize],
    failure: Failure,
    ask: &mut impl FnMut(&[usize]) -> Result<String, Failure>,
) -> Result<Vec<(usize, Failure)>, Failure> {
    let is_named = |index: &&usize| Some(names[**index]) == failure.stream.as_deref();
    if let Some(index) = part.iter().find(is_named) {
        return Ok(vec![(*index, failure)]);
    }
    if let [index] = part {
        return Ok(vec![(*index, failure.in_stream(names[*index]))]);
    }
    let mut found = Vec::new();
    let (one, other) = part.split_at(part.len() / 2);
    for half in [one, other] {
        match ask(half) {
            Ok(_) => {}
            Err(failure) if stops(&failure) => return Err(failure),
            Err(failure) => found.extend(find(names, half, failure, ask)?),
        }
    }
    Ok(found)
}

/// The source, about to fix the moment of a run while the destination plans.
pub(super) struct Moment<'a> {
    pub(super) source: &'a mut Source,
    pub(super) cancel: &'a Cancel,
    pub(super) clock: &'a Clock,
    pub(super) usage: &'a Usage,
    pub(super) selections: Vec<Selection>,
}

impl Moment<'_> {
    /// Fixes it after `place` has had the destination plan.
    pub(super) fn fix_after<T>(
        &mut self,
        document: &Document,
        place: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Result<String, Failure>), Failure> {
        let placed = place()?;
        Ok((placed, self.take(document)))
    }

    /// Fixes it on a thread of its own while `place` has the destination plan. If the destination fails, its failure is
    /// returned and the source is stopped.
    pub(super) fn fix_beside<T>(
        &mut self,
        document: &Document,
        place: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(T, Result<String, Failure>), Failure> {
        let (cancel, usage) = (self.cancel, self.usage);
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let _counted = usage.of_thread();
                self.take(document)
            });
            let placed = place();
            if placed.is_err() {
                cancel.cancel();
            }
            let taken = taking.join();
            let taken = taken.unwrap_or_else(|_| Err(Failure::panicked("source")));
            Ok((placed?, taken))
        })
    }

    pub(super) fn take(&mut self, document: &Document) -> Result<String, Failure> {
        self.clock.enter(Phase::Other);
        let taken = self.source.snapshot(&self.selections);
        self.clock.enter(Phase::ChannelWait);
        taken.map_err(|e| Failure::from_runtime(e, document, "source"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Class;

    /// A source that refuses streams, and names the stream or not.
    fn taken(streams: usize, refuses: &[usize], is_named: bool) -> (Result<Taken, Failure>, usize) {
        let names: Vec<String> = (0..streams).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut asked = 0;
        let mut ask = |wanted: &[usize]| {
            asked += 1;
            let bad = wanted.iter().find(|index| refuses.contains(index));
            let failure = Failure::new(Class::Environment, "no_privilege", "may not");
            match bad {
                None => Ok(format!("{wanted:?}")),
                Some(bad) if is_named => Err(failure.in_stream(names[*bad])),
                Some(_) => Err(failure),
            }
        };
        let taken = take_readable(&names, (0..streams).collect(), None, &mut ask);
        (taken, asked)
    }

    #[test]
    fn the_streams_that_a_source_refuses_are_found_and_the_others_share_one_moment() {
        for is_named in [true, false] {
            for refuses in [&[][..], &[3], &[0, 4], &[0, 1, 2, 3, 4]] {
                let taken = taken(5, refuses, is_named).0.expect("a moment");
                let mut found: Vec<usize> = taken.refused.iter().map(|(index, _)| *index).collect();
                found.sort_unstable();
                assert_eq!(found, refuses);
                let left: Vec<usize> = (0..5).filter(|n| !refuses.contains(n)).collect();
                let moment = match left.is_empty() {
                    true => String::new(),
                    false => format!("{left:?}"),
                };
                assert_eq!(taken.snapshot, moment);
                for (index, failure) in taken.refused {
                    assert_eq!(failure.stream, Some(format!("s{index}")));
                }
            }
        }
        // One stream of a thousand is found by halves.
        let (found, asked) = taken(1000, &[777], false);
        assert_eq!(found.expect("a moment").refused.len(), 1);
        assert!(asked <= 25, "{asked} questions");
    }

    #[test]
    fn a_source_that_refuses_only_all_together_stops_the_run() {
        let mut ask = |wanted: &[usize]| match wanted.len() {
            1 => Ok(String::new()),
            _ => Err(Failure::new(Class::Config, "too_many", "too many")),
        };
        let taken = take_readable(&["a", "b"], vec![0, 1], None, &mut ask);
        assert_eq!(
            taken.err().map(|failure| failure.code).as_deref(),
            Some("too_many")
        );
    }
}

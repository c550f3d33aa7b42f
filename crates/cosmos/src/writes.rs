//! Writes of many documents in few requests.
//!
//! A partition with many of the documents gets transactional batches. The others travel in bulk requests, each with
//! documents of one range of partitions. The server accepts or refuses each document of a bulk request by itself. A document
//! that it does not accept goes again in a request of its own, whose answer says why.

use std::collections::BTreeMap;

use rapidbyte_sdk::{Error, Result};

use crate::client::{Call, Client};
use crate::container::Container;
use crate::documents::{MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS, MAX_BULK_BYTES, Operation, Outcome};

/// A partition with at least this many documents gets requests of its own.
const BATCH_FROM: usize = 20;

/// A document to write.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The header with its partition.
    pub partition: &'a str,
    /// The operation, with the document.
    pub operation: &'a Operation,
}

impl Write<'_> {
    fn bytes(&self) -> usize {
        self.operation.bytes(self.partition)
    }
}

/// Writes that travel together, by their places.
#[derive(Debug, PartialEq, Eq)]
enum Together {
    /// One alone.
    One(usize),
    /// Of one partition.
    Batch(Vec<usize>),
    /// Of one range.
    Bulk(String, Vec<usize>),
}

impl Together {
    fn places(&self) -> &[usize] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Batch(places) | Self::Bulk(_, places) => places,
        }
    }
}

impl Client {
    /// Writes documents in any order. An id may be in `writes` once. The outcomes are in the order of `writes`.
    ///
    /// # Errors
    /// The server does not answer a request, or is too busy for it. Some documents may be written then.
    pub fn write(&mut self, container: &Container, writes: &[Write<'_>]) -> Result<Vec<Outcome>> {
        let mut by_partition: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, write) in writes.iter().enumerate() {
            by_partition.entry(write.partition).or_default().push(place);
        }
        let small = |places: &Vec<usize>| places.len() < BATCH_FROM;
        let is_bulk =
            writes.len() > 1 && by_partition.len() > 1 && by_partition.values().any(small);
        let ranges = match is_bulk {
            true => self.ranges(container)?,
            false => None,
        };
        let range_of = |partition: &str| ranges.as_ref().and_then(|ranges| ranges.of(partition));
        let requests = divide(by_partition, range_of, |place| writes[place].bytes());
        let calls: Vec<Call> = requests
            .iter()
            .map(|request| self.call(&container.name, writes, request))
            .collect();
        let mut outcomes: Vec<Option<Outcome>> = writes.iter().map(|_| None).collect();
        for (request, answer) in requests.iter().zip(self.ask_all(&calls)?) {
            let answer = answer.inspect_err(|_| self.forget_ranges(container))?;
            match request {
                Together::One(place) => outcomes[*place] = Some(answer.outcome()),
                // The server takes it as a whole or not at all.
                Together::Batch(places) if answer.is_batch_done(places.len())? => {
                    for place in places {
                        outcomes[*place] = Some(Outcome::Done);
                    }
                }
                Together::Batch(_) => {}
                Together::Bulk(_, places) => match answer.are_done(places.len())? {
                    Some(done) => {
                        for (place, is_done) in places.iter().zip(done) {
                            outcomes[*place] = is_done.then_some(Outcome::Done);
                        }
                    }
                    // Its partitions are elsewhere now, or the server does not know bulk requests.
                    None if answer.status == 410 => self.forget_ranges(container),
                    None => self.refuse_ranges(container),
                },
            }
        }
        let left = (0..writes.len()).filter(|place| outcomes[*place].is_none());
        let alone: Vec<Together> = left.map(Together::One).collect();
        let calls: Vec<Call> = alone
            .iter()
            .map(|request| self.call(&container.name, writes, request))
            .collect();
        for (request, answer) in alone.iter().zip(self.ask_all(&calls)?) {
            let outcome = answer?.outcome();
            for place in request.places() {
                outcomes[*place] = Some(outcome.clone());
            }
        }
        let all: Option<Vec<Outcome>> = outcomes.into_iter().collect();
        all.ok_or_else(|| Error::internal("a document without an answer"))
    }

    fn call(&self, container: &str, writes: &[Write<'_>], request: &Together) -> Call {
        let of = |places: &[usize]| -> Vec<Write<'_>> {
            places.iter().map(|place| writes[*place]).collect()
        };
        match request {
            Together::One(place) => {
                let write = writes[*place];
                self.single(container, write.partition, write.operation)
            }
            Together::Batch(places) => self.batch(container, &of(places)),
            Together::Bulk(range, places) => self.bulk(container, range, &of(places)),
        }
    }
}

/// The requests for the writes of each partition.
fn divide(
    by_partition: BTreeMap<&str, Vec<usize>>,
    range_of: impl Fn(&str) -> Option<String>,
    bytes: impl Fn(usize) -> usize,
) -> Vec<Together> {
    let mut requests = Vec::new();
    let mut by_range: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (partition, places) in by_partition {
        let range = match places.len() < BATCH_FROM {
            true => range_of(partition),
            false => None,
        };
        match range {
            Some(range) => by_range.entry(range).or_default().extend(places),
            None => {
                let parts = cut(places, MAX_BATCH_BYTES, &bytes).into_iter();
                requests.extend(parts.map(|part| match part.as_slice() {
                    [place] => Together::One(*place),
                    _ => Together::Batch(part),
                }));
            }
        }
    }
    for (range, places) in by_range {
        let parts = cut(places, MAX_BULK_BYTES, &bytes).into_iter();
        requests.extend(parts.map(|part| match part.as_slice() {
            [place] => Together::One(*place),
            _ => Together::Bulk(range.clone(), part),
        }));
    }
    requests
}

/// Parts that keep to the limits of a request. One write may be larger.
fn cut(places: Vec<usize>, max_bytes: usize, bytes: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let (mut parts, mut part, mut sum) = (Vec::new(), Vec::new(), 0);
    for place in places {
        let more = bytes(place);
        let is_full = part.len() >= MAX_BATCH_OPERATIONS || sum + more > max_bytes;
        if is_full && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            sum = 0;
        }
        part.push(place);
        sum += more;
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each request: how many of its partition or range.
    fn shown(requests: &[Together]) -> Vec<String> {
        let shown = requests.iter().map(|request| match request {
            Together::One(_) => "one".to_owned(),
            Together::Batch(places) => format!("batch {}", places.len()),
            Together::Bulk(range, places) => format!("bulk {range} {}", places.len()),
        });
        shown.collect()
    }

    #[test]
    fn a_request_has_one_partition_or_one_range_and_keeps_to_the_limits() {
        const LARGE: usize = 1 << 20;
        let mut sizes = vec![10; 550];
        let mut by_partition: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        by_partition.insert("a", (0..250).collect());
        by_partition.insert("b", vec![250]);
        sizes.extend([LARGE, LARGE, 10]);
        by_partition.insert("c", (550..553).collect());
        let names: Vec<String> = (251..550).map(|place| format!("d{place}")).collect();
        for (name, place) in names.iter().zip(251..) {
            by_partition.insert(name, vec![place]);
        }
        let range_of = |partition: &str| match partition.as_bytes() {
            b"b" => None,
            [.., last] => Some((last % 2).to_string()),
            [] => None,
        };
        let requests = divide(by_partition.clone(), range_of, |place| sizes[place]);
        let expected = [
            "batch 100",
            "batch 100",
            "batch 50",
            "one",
            "bulk 0 100",
            "bulk 0 49",
            "one",
            "one",
            "bulk 1 100",
            "bulk 1 51",
        ];
        assert_eq!(shown(&requests), expected);
        let mut places: Vec<usize> = requests
            .iter()
            .flat_map(Together::places)
            .copied()
            .collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..sizes.len()));
        // A server without ranges gets a request for each partition.
        let requests = divide(by_partition, |_| None, |place| sizes[place]);
        assert_eq!(requests.len(), 3 + 1 + 2 + 299);
    }
}

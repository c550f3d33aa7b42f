//! Bulk requests: several documents at a time, each with a result of its own.

use std::ops::Range;

use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Answer, Call, Client, Verb, wait_for};
use crate::error::{self, Said};
use crate::index::path_of;

/// What is needed of an answer.
const FILTER: &str = "items.*._id,items.*.status,items.*.error";

/// An operation on one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Puts it into the place of the document with its `_id`, or adds it.
    Index,
    /// Adds it; 409 if the `_id` is taken.
    Create,
    /// Deletes the document with the `_id`; 404 if it is not there.
    Delete,
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Create => "create",
            Self::Delete => "delete",
        }
    }
}

/// A document on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub op: Op,
    pub id: String,
    /// Empty for a deletion.
    pub document: Vec<u8>,
    /// Only this version: `_seq_no` and `_primary_term`; 409 if it is another one.
    pub version: Option<(u64, u64)>,
}

impl Item {
    pub fn new(op: Op, id: String, document: Vec<u8>) -> Self {
        Self {
            op,
            id,
            document,
            version: None,
        }
    }

    /// Bytes in a request, about.
    pub fn bytes(&self) -> usize {
        self.document.len() + self.id.len() + 32
    }

    fn add_to(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(b"{\"");
        body.extend_from_slice(self.op.name().as_bytes());
        body.extend_from_slice(b"\":{\"_id\":");
        body.extend_from_slice(Value::from(self.id.as_str()).to_string().as_bytes());
        if let Some((seq_no, term)) = self.version {
            let version = format!(",\"if_seq_no\":{seq_no},\"if_primary_term\":{term}");
            body.extend_from_slice(version.as_bytes());
        }
        body.extend_from_slice(b"}}\n");
        if self.op != Op::Delete {
            body.extend_from_slice(&self.document);
            body.push(b'\n');
        }
    }
}

/// The result of an operation.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// It is done.
    Done,
    /// The server refuses it.
    Refused {
        /// Such as 409.
        status: u16,
        /// The reason.
        error: Error,
    },
}

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub rows: usize,
    pub bytes: usize,
}

#[derive(Deserialize)]
struct Results {
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct ItemSaid {
    #[serde(rename = "_id")]
    id: String,
    status: u16,
    #[serde(default)]
    error: Option<Said>,
}

/// Carries the operations out, which have different ids. Sends those again that the server cannot take now. The outcomes
/// are in the order of the operations.
///
/// # Errors
/// Of a request as a whole, and of an operation that the server could not take until the last attempt.
pub(crate) fn send(
    client: &Client,
    index: &str,
    items: &[Item],
    limits: Limits,
) -> Result<Vec<Outcome>> {
    let _phase = phase::enter(Kind::Flush);
    let mut outcomes: Vec<Option<Outcome>> = items.iter().map(|_| None).collect();
    let mut left: Vec<Vec<usize>> = divide(items, 0..items.len(), limits);
    // Rounds since the last one in which a row was done.
    let mut attempt = 1;
    while !left.is_empty() {
        let call = |place: usize| {
            let mut body =
                Vec::with_capacity(left[place].iter().map(|at| items[*at].bytes()).sum());
            for at in &left[place] {
                items[*at].add_to(&mut body);
            }
            let path = format!("{}/_bulk", path_of(index));
            Call::new(Verb::Post, path, format!("write to {index}"))
                .with("filter_path", FILTER)
                .lines(body)
        };
        let answers = client.ask_all(left.len(), call)?;
        let (mut smaller, mut again, mut last) = (Vec::new(), Vec::new(), None);
        for (places, answer) in left.iter().zip(&answers) {
            match (answer.status, places.as_slice()) {
                (413, [one]) => {
                    outcomes[*one] = Some(Outcome::Refused {
                        status: 413,
                        error: answer.error(),
                    })
                }
                (413, several) => {
                    let (one, other) = several.split_at(several.len() / 2);
                    smaller.extend([one.to_vec(), other.to_vec()]);
                }
                _ => {
                    for (place, outcome) in places.iter().zip(judge(items, places, answer, index)?)
                    {
                        match outcome {
                            Outcome::Refused { error, .. } if is_for_later(&error) => {
                                again.push(*place);
                                last = Some(error);
                            }
                            other => outcomes[*place] = Some(other),
                        }
                    }
                }
            }
        }
        let done = left.iter().map(Vec::len).sum::<usize>() > again.len();
        if done {
            attempt = 1;
        }
        if let Some(error) = last {
            let wait = client.retry().after_error(attempt, &error);
            let Some(wait) = wait else { return Err(error) };
            let what = match again.len() {
                1 => "the row".to_owned(),
                count => format!("each of {count} rows"),
            };
            wait_for(wait, &what, &error.message);
        }
        attempt += 1;
        left = smaller;
        left.extend(again.chunks(limits.rows.max(1)).map(<[usize]>::to_vec));
    }
    Ok(outcomes.into_iter().flatten().collect())
}

/// Whether the server may take the operation later.
fn is_for_later(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::RateLimited(_) | ErrorKind::Transient)
}

/// The operations of each request.
fn divide(items: &[Item], places: Range<usize>, limits: Limits) -> Vec<Vec<usize>> {
    let mut requests = Vec::new();
    let (mut request, mut bytes) = (Vec::new(), 0);
    for place in places {
        let more = items[place].bytes();
        let is_full = request.len() >= limits.rows || bytes + more > limits.bytes;
        if is_full && !request.is_empty() {
            requests.push(std::mem::take(&mut request));
            bytes = 0;
        }
        request.push(place);
        bytes += more;
    }
    if !request.is_empty() {
        requests.push(request);
    }
    requests
}

/// The outcomes of the operations at `places`, which were one request. Errors: of the request; `protocol_violation`.
fn judge(items: &[Item], places: &[usize], answer: &Answer, index: &str) -> Result<Vec<Outcome>> {
    let said: Results = answer.read()?;
    if said.items.len() != places.len() {
        let text = format!(
            "{} results of {} operations",
            said.items.len(),
            places.len()
        );
        return Err(error::violation(text));
    }
    let outcome = |(place, said): (&usize, Value)| {
        let item = &items[*place];
        // The name of the operation around its result.
        let said = said.get(item.op.name()).cloned();
        let said: Option<ItemSaid> = said.and_then(|said| serde_json::from_value(said).ok());
        let said = said.filter(|said| said.id == item.id);
        let said = said.ok_or_else(|| {
            error::violation(format!("no result of the operation on {:?}", item.id))
        })?;
        match (said.status, said.error) {
            (200..=299, None) => Ok(Outcome::Done),
            (status @ (200..=299 | 0..=99), _) => Err(error::violation(format!(
                "a result of {:?} with the status {status} and an error",
                item.id
            ))),
            (status, reason) => {
                let reason = reason.unwrap_or_default();
                let mut error = error::of(status, &reason, None, &format!("write to {index}"));
                error.column = reason.field().map(str::to_owned);
                Ok(Outcome::Refused { status, error })
            }
        }
    };
    places.iter().zip(said.items).map(outcome).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_to_the_limits_unless_one_row_is_larger() {
        let item = |bytes: usize| Item::new(Op::Index, "1".into(), vec![b'x'; bytes]);
        let items: Vec<Item> = [10, 10, 10, 500, 10, 200, 200].map(item).into();
        let limits = Limits {
            rows: 2,
            bytes: 400,
        };
        let requests = divide(&items, 0..items.len(), limits);
        assert_eq!(
            requests,
            [vec![0, 1], vec![2], vec![3], vec![4, 5], vec![6]]
        );
    }

    #[test]
    fn an_operation_is_one_or_two_lines() {
        let mut body = Vec::new();
        Item::new(Op::Create, "a\"\n".into(), b"{\"x\":1}".to_vec()).add_to(&mut body);
        let mut item = Item::new(Op::Delete, "b".into(), Vec::new());
        item.version = Some((7, 2));
        item.add_to(&mut body);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "{\"create\":{\"_id\":\"a\\\"\\n\"}}\n{\"x\":1}\n\
             {\"delete\":{\"_id\":\"b\",\"if_seq_no\":7,\"if_primary_term\":2}}\n"
        );
    }
}

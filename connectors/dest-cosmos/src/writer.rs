//! Documents on their way to a container. Documents of one partition travel together in a transactional batch. Several
//! requests travel at the same time.

use std::collections::{BTreeMap, HashSet};

use rapidbyte_cosmos::{
    Call, Client, MAX_BATCH_BYTES, MAX_BATCH_OPERATIONS, Operation, Outcome, is_same,
};
use rapidbyte_document_store::{RefusedRow, Source};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::layout::Written;

/// Documents and bytes that are held before they go out.
const HELD_ROWS: usize = 2000;
const HELD_BYTES: usize = 4 << 20;

struct Held {
    written: Written,
    source: Source,
}

/// Writes to one container. Rows with the same id go out in their order.
pub(crate) struct Writer {
    container: String,
    held: Vec<Held>,
    bytes: usize,
    /// The partitions and ids that are held.
    ids: HashSet<(String, String)>,
    refused: Vec<RefusedRow>,
}

impl Writer {
    pub fn new(container: &str) -> Self {
        Self {
            container: container.to_owned(),
            held: Vec::new(),
            bytes: 0,
            ids: HashSet::new(),
            refused: Vec::new(),
        }
    }

    /// Takes a row.
    pub fn put(&mut self, client: &mut Client, written: Written, source: Source) -> Result<()> {
        let bytes = written.operation.bytes(&written.partition);
        let key = (written.partition.clone(), written.id.clone());
        let is_full = self.held.len() >= HELD_ROWS
            || (!self.held.is_empty() && self.bytes + bytes > HELD_BYTES)
            // Of two versions of a row, the server has to see the later one later.
            || self.ids.contains(&key);
        if is_full {
            self.flush(client)?;
        }
        self.ids.insert(key);
        self.bytes += bytes;
        self.held.push(Held { written, source });
        Ok(())
    }

    /// Sends everything, and waits for the answers.
    pub fn flush(&mut self, client: &mut Client) -> Result<()> {
        self.ids.clear();
        self.bytes = 0;
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        failpoint("dest-cosmos.writing")?;
        let _phase = phase::enter(Kind::Flush);
        let requests = divide(&held);
        let calls: Vec<Call> = requests
            .iter()
            .map(|places| self.call(client, &held, places))
            .collect();
        let answers = client.ask_all(&calls)?;
        failpoint("dest-cosmos.write_sent")?;
        // Of a batch that is not done, each row is sent alone: the server takes a batch as a whole or not at all.
        let mut alone: Vec<usize> = Vec::new();
        for (places, answer) in requests.iter().zip(answers) {
            let answer = answer?;
            match places.as_slice() {
                [place] => self.judge(client, &held[*place], answer.outcome())?,
                places if answer.is_batch_done(places.len())? => {}
                places => alone.extend(places),
            }
        }
        let calls: Vec<Call> = alone
            .iter()
            .map(|place| self.call(client, &held, std::slice::from_ref(place)))
            .collect();
        for (place, answer) in alone.iter().zip(client.ask_all(&calls)?) {
            self.judge(client, &held[*place], answer?.outcome())?;
        }
        Ok(())
    }

    fn call(&self, client: &Client, held: &[Held], places: &[usize]) -> Call {
        let partition = places
            .first()
            .map_or("[{}]", |place| held[*place].written.partition.as_str());
        match places {
            [place] => client.single(&self.container, partition, &held[*place].written.operation),
            _ => {
                let operations: Vec<Operation> = places
                    .iter()
                    .map(|place| held[*place].written.operation.clone())
                    .collect();
                client.batch(&self.container, partition, &operations)
            }
        }
    }

    /// Judges the answer to a row that was sent alone.
    fn judge(&mut self, client: &mut Client, held: &Held, outcome: Outcome) -> Result<()> {
        let Outcome::Refused { status, error } = outcome else {
            return Ok(());
        };
        let is_done = match (&held.written.operation, status) {
            // An earlier attempt of the run wrote it, if it is the same.
            (Operation::Create { document }, 409) => {
                let Written { id, partition, .. } = &held.written;
                let stored = client.find(&self.container, partition, id)?;
                stored.is_some_and(|stored| is_same(document, stored.get()))
            }
            (Operation::Delete { .. }, 404) => true,
            _ => false,
        };
        if is_done {
            return Ok(());
        }
        if !matches!(error.kind, ErrorKind::Data) {
            return Err(error);
        }
        self.refused.push(RefusedRow {
            source: held.source.clone(),
            error,
        });
        Ok(())
    }

    /// The rows that the server refused since the last call.
    pub fn take_refused(&mut self) -> Vec<RefusedRow> {
        std::mem::take(&mut self.refused)
    }
}

/// The rows of each request: one, or several of one partition.
fn divide(held: &[Held]) -> Vec<Vec<usize>> {
    let mut partitions: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, one) in held.iter().enumerate() {
        let of = partitions
            .entry(one.written.partition.as_str())
            .or_default();
        of.push(place);
    }
    let mut requests = Vec::new();
    for places in partitions.into_values() {
        let (mut request, mut bytes) = (Vec::new(), 0);
        for place in places {
            let written = &held[place].written;
            let more = written.operation.bytes(&written.partition);
            let is_full = request.len() >= MAX_BATCH_OPERATIONS || bytes + more > MAX_BATCH_BYTES;
            if is_full && !request.is_empty() {
                requests.push(std::mem::take(&mut request));
                bytes = 0;
            }
            request.push(place);
            bytes += more;
        }
        requests.push(request);
    }
    requests
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn held(partition: &str, bytes: usize) -> Held {
        let batch = RecordBatch::new_empty(std::sync::Arc::new(Schema::empty()));
        Held {
            written: Written {
                id: "1".into(),
                partition: partition.into(),
                operation: Operation::Create {
                    document: "x".repeat(bytes),
                },
            },
            source: Source {
                batch: std::rc::Rc::new(batch),
                row: 0,
                number: 1,
            },
        }
    }

    #[test]
    fn a_request_has_one_partition_and_keeps_to_the_limits() {
        let mut all: Vec<Held> = (0..250).map(|_| held("[\"a\"]", 10)).collect();
        all.insert(1, held("[\"b\"]", 10));
        all.extend([
            held("[\"c\"]", 1 << 20),
            held("[\"c\"]", 1 << 20),
            held("[\"c\"]", 10),
        ]);
        let requests = divide(&all);
        let sizes: Vec<usize> = requests.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50, 1, 1, 2]);
        assert_eq!(requests[3], [1]);
        let mut places: Vec<usize> = requests.concat();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..all.len()));
    }
}

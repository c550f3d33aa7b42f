//! Documents on their way to a container: they are held until there are many, and go out together.

use std::collections::HashSet;

use rapidbyte_cosmos::{Client, Container, Operation, Outcome, Write, is_same};
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
    container: Container,
    held: Vec<Held>,
    bytes: usize,
    /// The partitions and ids that are held.
    ids: HashSet<(String, String)>,
    refused: Vec<RefusedRow>,
}

impl Writer {
    pub fn new(container: &Container) -> Self {
        Self {
            container: container.clone(),
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
        let writes: Vec<Write<'_>> = held
            .iter()
            .map(|Held { written, .. }| Write {
                partition: &written.partition,
                operation: &written.operation,
            })
            .collect();
        let outcomes = client.write(&self.container, &writes)?;
        failpoint("dest-cosmos.write_sent")?;
        for (held, outcome) in held.iter().zip(outcomes) {
            self.judge(client, held, outcome)?;
        }
        Ok(())
    }

    /// Judges what became of a row.
    fn judge(&mut self, client: &mut Client, held: &Held, outcome: Outcome) -> Result<()> {
        let Outcome::Refused { status, error } = outcome else {
            return Ok(());
        };
        let is_done = match (&held.written.operation, status) {
            // An earlier attempt of the run wrote it, if it is the same.
            (Operation::Create { document }, 409) => {
                let Written { id, partition, .. } = &held.written;
                let stored = client.find(&self.container.name, partition, id)?;
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

//! Writes documents to a collection, unordered and many at once. The server works on one write while the connector fills
//! the next.

use std::collections::HashSet;
use std::rc::Rc;

use rapidbyte_bson::{Builder, Document};
use rapidbyte_document_store::{RefusedRow, Source};
use rapidbyte_mongo_client::{Client, WriteError, Written, protocol};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::layout::of_element;
use crate::ledger::unconcerned;

/// Kept free in a message beside the documents: the command with its names, and the header.
const OVERHEAD_BYTES: usize = 16 << 10;
/// A write that is full at this size goes out even if the server would take more: two of them are in memory at a time.
const BULK_BYTES: usize = 8 << 20;
/// Beside the document in an entry of `update`: names, lengths and the `_id` once more.
const ENTRY_BYTES: usize = 128;

/// The verb of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    /// The document replaces the one with its `_id`, or is inserted.
    Upsert,
    Delete,
}

/// The limits of a server for one write.
#[derive(Debug, Clone, Copy)]
struct Limits {
    rows: usize,
    bytes: usize,
    document: usize,
}

/// One write that is being filled, or that the server works on.
struct Bulk {
    verb: Verb,
    bytes: Vec<u8>,
    /// Where each document ends.
    ends: Vec<usize>,
    sources: Vec<Source>,
}

impl Bulk {
    fn new(verb: Verb) -> Self {
        Self {
            verb,
            bytes: Vec::new(),
            ends: Vec::new(),
            sources: Vec::new(),
        }
    }

    fn document(&self, place: usize) -> Result<Document<'_>> {
        let begin = match place {
            0 => 0,
            place => self.ends[place - 1],
        };
        Document::parse(&self.bytes[begin..self.ends[place]]).map_err(Error::internal)
    }

    /// Every document was written, or the server names it in an error, once. Errors: of the server, where the whole write
    /// failed; `rows_missing`; `protocol_violation`.
    fn ensure_complete(&self, written: &Written) -> Result<()> {
        let len = self.ends.len();
        let mut named = HashSet::new();
        for error in &written.errors {
            if error.index >= len {
                return Err(protocol("an error names a document that was not sent"));
            }
            if !named.insert(error.index) {
                return Err(protocol("two errors name the same document"));
            }
            // The whole write failed, such as on a primary that stepped down.
            if !matches!(error.error.kind, ErrorKind::Data | ErrorKind::Config) {
                return Err(error.error.clone());
            }
        }
        let (len, failed, count) = (len as u64, named.len() as u64, written.count);
        // A document that is to be deleted need not be there.
        let least = match self.verb {
            Verb::Delete => 0,
            Verb::Insert | Verb::Upsert => len - failed,
        };
        // Some servers count the documents that failed, too.
        if (least..=len).contains(&count) {
            return Ok(());
        }
        let text = format!(
            "the server says that it wrote {count} of {len} documents, and names {failed} that failed"
        );
        Err(rows_missing(text))
    }
}

/// Documents that the server neither wrote nor refused. The stream is retried.
pub(crate) fn rows_missing(text: String) -> Error {
    Error::new(ErrorKind::Connection, "rows_missing", text)
        .hint("read the server's log, and check what is between it and this machine")
}

/// Writes to one collection. Rows go out in their order where they have the same `_id`.
pub(crate) struct BulkWriter {
    settings: Rc<Settings>,
    collection: String,
    limits: Limits,
    /// The collection may have rows of an attempt of this stream that was not committed.
    may_repeat: bool,
    filling: Bulk,
    /// Filled beside upserts: no `_id` is in both.
    deleting: Bulk,
    /// The `_id`s in both.
    ids: HashSet<Vec<u8>>,
    sent: Option<Bulk>,
    refused: Vec<RefusedRow>,
}

impl BulkWriter {
    pub fn new(
        settings: &Rc<Settings>,
        client: &Client,
        collection: &str,
        is_upsert: bool,
        may_repeat: bool,
    ) -> Self {
        let hello = client.hello();
        let room = hello.max_message_bytes.saturating_sub(OVERHEAD_BYTES);
        let verb = match is_upsert {
            true => Verb::Upsert,
            false => Verb::Insert,
        };
        Self {
            settings: settings.clone(),
            collection: collection.to_owned(),
            limits: Limits {
                rows: settings.bulk_rows.min(hello.max_writes),
                bytes: room,
                document: hello.max_bson_bytes.min(room.saturating_sub(ENTRY_BYTES)),
            },
            may_repeat,
            filling: Bulk::new(verb),
            deleting: Bulk::new(Verb::Delete),
            ids: HashSet::new(),
            sent: None,
            refused: Vec::new(),
        }
    }

    /// Takes a document to insert or upsert, with its element `_id`. Errors: `document_too_large`, which concerns the row
    /// alone; of the server.
    pub fn put(
        &mut self,
        client: &mut Client,
        id: &[u8],
        document: &[u8],
        source: Source,
    ) -> Result<()> {
        let most = self.limits.document;
        if document.len() > most {
            let text = format!(
                "the document has {} bytes, and the server takes {most} at most",
                document.len()
            );
            return Err(Error::data("document_too_large", text)
                .hint("leave the row out, or store large values elsewhere"));
        }
        let is_upsert = self.filling.verb == Verb::Upsert;
        let bytes = match is_upsert {
            true => document.len() + id.len() + ENTRY_BYTES,
            false => document.len(),
        };
        self.make_room(client, is_upsert, id, bytes)?;
        let out = &mut self.filling.bytes;
        match is_upsert {
            false => out.extend_from_slice(document),
            true => {
                let query = of_element(id);
                let mut entry = Builder::onto(std::mem::take(out));
                entry
                    .document("q", Document::parse(&query).map_err(Error::internal)?)
                    .document("u", Document::parse(document).map_err(Error::internal)?)
                    .boolean("upsert", true);
                *out = entry.finish().map_err(Error::internal)?;
            }
        }
        self.filling.ends.push(self.filling.bytes.len());
        self.filling.sources.push(source);
        Ok(())
    }

    /// Takes an `_id` to delete.
    pub fn delete(&mut self, client: &mut Client, id: &[u8], source: Source) -> Result<()> {
        self.make_room(client, true, id, id.len() + ENTRY_BYTES)?;
        let query = of_element(id);
        let mut entry = Builder::onto(std::mem::take(&mut self.deleting.bytes));
        entry
            .document("q", Document::parse(&query).map_err(Error::internal)?)
            .int32("limit", 1);
        self.deleting.bytes = entry.finish().map_err(Error::internal)?;
        self.deleting.ends.push(self.deleting.bytes.len());
        self.deleting.sources.push(source);
        Ok(())
    }

    fn make_room(
        &mut self,
        client: &mut Client,
        has_ids: bool,
        id: &[u8],
        bytes: usize,
    ) -> Result<()> {
        let Self {
            filling,
            deleting,
            ids,
            limits,
            ..
        } = self;
        let rows = filling.ends.len() + deleting.ends.len();
        let held = filling.bytes.len() + deleting.bytes.len();
        let is_full = rows >= limits.rows
            || (held > 0 && held + bytes > limits.bytes.min(BULK_BYTES))
            // Of two versions of a row, the server has to see the later one later.
            || (has_ids && ids.contains(id));
        if is_full {
            self.send(client)?;
        }
        if has_ids {
            self.ids.insert(id.to_vec());
        }
        Ok(())
    }

    /// Sends what was taken. The server may still work on the last write then.
    fn send(&mut self, client: &mut Client) -> Result<()> {
        self.ids.clear();
        for verb in [self.filling.verb, Verb::Delete] {
            let bulk = match verb {
                Verb::Delete => &mut self.deleting,
                _ => &mut self.filling,
            };
            if bulk.ends.is_empty() {
                continue;
            }
            let bulk = std::mem::replace(bulk, Bulk::new(verb));
            self.receive(client)?;
            failpoint("dest-mongodb.writing")?;
            self.ask(client, &bulk)?;
            self.sent = Some(bulk);
            failpoint("dest-mongodb.write_sent")?;
        }
        Ok(())
    }

    fn ask(&self, client: &mut Client, bulk: &Bulk) -> Result<()> {
        let (name, field) = match bulk.verb {
            Verb::Insert => ("insert", "documents"),
            Verb::Upsert => ("update", "updates"),
            Verb::Delete => ("delete", "deletes"),
        };
        let mut command = Builder::new();
        command
            .string(name, &self.collection)
            .boolean("ordered", false);
        self.settings.add_write_concern(&mut command);
        client.send_write(&self.settings.database, command, field, &bulk.bytes)
    }

    /// Reads the answer to the last write.
    pub fn receive(&mut self, client: &mut Client) -> Result<()> {
        let Some(bulk) = self.sent.take() else {
            return Ok(());
        };
        let written = {
            let _phase = phase::enter(Kind::Flush);
            client.receive_written()?
        };
        if let Some(error) = &written.concern {
            return Err(unconcerned(&error.message));
        }
        bulk.ensure_complete(&written)?;
        for error in self.own_aside(client, &bulk, &written)? {
            let source = &bulk.sources[error.index];
            let is_duplicate = error.is_duplicate();
            let mut refused = error.error;
            refused.kind = ErrorKind::Data;
            if is_duplicate {
                refused = refused.hint(
                    "another document has this value; write_mode: upsert replaces documents by their key",
                );
            }
            self.refused.push(RefusedRow {
                source: source.clone(),
                error: refused,
            });
        }
        Ok(())
    }

    /// The errors without the duplicates that the collection already has, each byte the same: an earlier attempt of the
    /// run wrote these documents.
    fn own_aside(
        &self,
        client: &mut Client,
        bulk: &Bulk,
        written: &Written,
    ) -> Result<Vec<WriteError>> {
        let mut errors = written.errors.clone();
        let is_own = bulk.verb == Verb::Insert && self.may_repeat;
        if !is_own || !errors.iter().any(WriteError::is_duplicate) {
            return Ok(errors);
        }
        let _phase = phase::enter(Kind::Query);
        // Within the limit of a document, which the list of ids has to fit in.
        let most = self.limits.document / 4;
        let mut same = HashSet::new();
        let places: Vec<usize> = errors
            .iter()
            .filter(|error| error.is_duplicate() && error.index < bulk.ends.len())
            .map(|error| error.index)
            .collect();
        let mut rest = places.as_slice();
        while !rest.is_empty() {
            let mut command = Builder::new();
            command
                .string("find", &self.collection)
                .open_document("filter")
                .open_document("_id")
                .open_array("$in");
            let mut taken = 0;
            while let Some(place) = rest.get(taken) {
                if taken > 0 && command.written() > most {
                    break;
                }
                let document = bulk.document(*place)?;
                if let Some(id) = document.get("_id").map_err(Error::internal)? {
                    command.value(&taken.to_string(), &id);
                }
                taken += 1;
            }
            command.close().close().close();
            let cursor = client.find(&self.settings.database, command)?;
            let mut cursor = cursor.at_most(taken);
            let mut stored = HashSet::new();
            while let Some(batch) = cursor.next(client, 0)? {
                for document in batch.documents()? {
                    stored.insert(document?.as_bytes().to_vec());
                }
            }
            for place in &rest[..taken] {
                if stored.contains(bulk.document(*place)?.as_bytes()) {
                    same.insert(*place);
                }
            }
            rest = &rest[taken..];
        }
        errors.retain(|error| !(error.is_duplicate() && same.contains(&error.index)));
        Ok(errors)
    }

    /// Sends everything, and waits for the answers.
    pub fn flush(&mut self, client: &mut Client) -> Result<()> {
        self.send(client)?;
        self.receive(client)
    }

    /// The rows that the server refused since the last call.
    pub fn take_refused(&mut self) -> Vec<RefusedRow> {
        std::mem::take(&mut self.refused)
    }
}

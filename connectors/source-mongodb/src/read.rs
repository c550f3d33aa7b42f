//! One read: the documents of a collection as rows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rapidbyte_bson::Document;
use rapidbyte_mongo::extjson::{self, Style};
use rapidbyte_mongo::form::ID;
use rapidbyte_mongo::{Decoder, Owner};
use rapidbyte_mongo_client::{Client, Cursor};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, is_stored, type_name};

use crate::error::{about, convert, malformed};
use crate::increment::Tracker;

/// Documents of the first batch, before their size is known.
pub(crate) const FIRST_DOCUMENTS: i32 = 200;
const MAX_DOCUMENTS: usize = 100_000;
/// Rejects of one event.
const MAX_REJECTS: usize = 1000;
/// Bytes of a reject.
const MAX_REJECT_BYTES: usize = 64 << 10;

/// A connection that nobody uses.
pub(crate) type Idle = Rc<RefCell<Option<Client>>>;

/// Reads the rows of one collection. Holds one answer of the server, and the batches of it.
pub struct Rows {
    stream: String,
    /// The key of the stream's settings that has the types of columns.
    types_key: &'static str,
    from: From,
    decoder: Decoder,
    tracker: Option<Tracker>,
    limits: Limits,
    ready: VecDeque<Event>,
    rejects: Vec<Reject>,
    keeps_rejects: bool,
    has_ended: bool,
}

/// Where documents come from.
enum From {
    Server(Box<Reading>),
    /// Records that are read again.
    Records(std::vec::IntoIter<Reject>),
}

/// A cursor on the server.
struct Reading {
    /// Nothing after the last document.
    open: Option<(Client, Cursor)>,
    idle: Idle,
    fetch_bytes: usize,
    documents: u64,
    bytes: u64,
}

/// The sizes of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub batch_bytes: usize,
    pub max_record_bytes: u64,
}

impl Reading {
    /// Documents of the next answer: about as many bytes as were asked for.
    fn next_documents(&self) -> u32 {
        let each = (self.bytes / self.documents.max(1)).max(1);
        let wanted = self.fetch_bytes as u64 / each;
        u32::try_from(wanted.clamp(1, MAX_DOCUMENTS as u64)).unwrap_or(1)
    }
}

impl Drop for Reading {
    /// The server would keep the cursor for minutes.
    fn drop(&mut self) {
        if let Some((mut client, cursor)) = self.open.take()
            && client.is_usable()
            && cursor.close(&mut client).is_ok()
        {
            self.idle.replace(Some(client));
        }
    }
}

impl Rows {
    pub(crate) fn new(
        stream: &str,
        decoder: Decoder,
        tracker: Option<Tracker>,
        limits: Limits,
        keeps_rejects: bool,
    ) -> Self {
        Self {
            stream: stream.to_owned(),
            types_key: "types",
            from: From::Records(Vec::new().into_iter()),
            decoder,
            tracker,
            limits,
            ready: VecDeque::new(),
            rejects: Vec::new(),
            keeps_rejects,
            has_ended: false,
        }
    }

    /// All columns are declared under `schema`.
    pub(crate) fn declared(mut self) -> Self {
        self.types_key = "schema";
        self
    }

    /// Reads the documents of a cursor.
    pub(crate) fn reading(
        mut self,
        client: Client,
        cursor: Cursor,
        idle: &Idle,
        fetch_bytes: usize,
    ) -> Self {
        self.from = From::Server(Box::new(Reading {
            open: Some((client, cursor)),
            idle: idle.clone(),
            fetch_bytes,
            documents: 0,
            bytes: 0,
        }));
        self
    }

    /// Reads records that were rejects before.
    pub(crate) fn replaying(mut self, records: Vec<Reject>) -> Self {
        self.from = From::Records(records.into_iter());
        self
    }

    /// Reads the next documents.
    fn go_on(&mut self) -> Result<()> {
        match &mut self.from {
            From::Records(records) => match records.next() {
                Some(record) => self.replay(record),
                None => self.finish(),
            },
            From::Server(reading) => {
                let Some((mut client, mut cursor)) = reading.open.take() else {
                    return self.finish();
                };
                let documents = reading.next_documents();
                let Some(batch) = cursor.next(&mut client, documents)? else {
                    reading.idle.replace(Some(client));
                    return self.finish();
                };
                reading.bytes += batch.bytes()? as u64;
                reading.documents += batch.documents()?.count() as u64;
                // The server works on the next answer meanwhile.
                let documents = reading.next_documents();
                cursor.ask(&mut client, documents)?;
                reading.open = Some((client, cursor));
                let _phase = phase::enter(Kind::Decode);
                for document in batch.documents()? {
                    self.push(document?)?;
                }
                Ok(())
            }
        }
    }

    fn push(&mut self, document: Document<'_>) -> Result<()> {
        if let Some(tracker) = &mut self.tracker {
            tracker.push(document)?;
        }
        let bytes = document.as_bytes().len();
        let pushed = if bytes as u64 > self.limits.max_record_bytes {
            let limit = self.limits.max_record_bytes;
            let text = format!("a document of {bytes} bytes, above max_record_bytes of {limit}");
            Err(Error::data("record_too_large", text).hint("raise resources.max_record_bytes"))
        } else {
            match self.decoder.push(document) {
                Ok(()) => Ok(()),
                Err(error) if error.owner == Owner::Data => Err(self.advise(convert(error))),
                Err(error) => return Err(convert(error)),
            }
        };
        if let Err(error) = pushed {
            let id = id_of(document);
            if !self.keeps_rejects {
                return Err(match id {
                    Some(id) => error.at(format!("_id {id}")),
                    None => error,
                });
            }
            self.rejects.push(reject(&error, record(document), id));
        }
        let is_full = self.decoder.bytes() >= self.limits.batch_bytes;
        if is_full || self.rejects.len() == MAX_REJECTS {
            self.take(false)?;
        }
        Ok(())
    }

    fn replay(&mut self, record: Reject) -> Result<()> {
        let mut bytes = Vec::new();
        let text = std::str::from_utf8(&record.data).unwrap_or_default();
        let parsed = extjson::parse_document(text, &mut bytes)
            .map_err(|problem| Error::data("mongo_invalid_json", format!("the record: {problem}")));
        let pushed = parsed.and_then(|()| {
            let document = Document::parse(&bytes).map_err(malformed)?;
            let pushed = self.decoder.push(document).map_err(convert);
            pushed.map_err(|error| self.advise(error))
        });
        if let Err(error) = pushed {
            let is_of_record = matches!(error.kind, ErrorKind::Data);
            if !is_of_record || !self.keeps_rejects {
                return Err(error);
            }
            let again = Reject {
                column: error.column,
                code: error.code,
                message: error.message,
                ..record
            };
            self.rejects.push(again);
        }
        let is_full = self.decoder.bytes() >= self.limits.batch_bytes;
        if is_full || self.rejects.len() == MAX_REJECTS {
            self.take(false)?;
        }
        Ok(())
    }

    /// Says where the type of a column that does not hold a value is declared.
    fn advise(&self, mut error: Error) -> Error {
        let column = error.column.as_deref();
        let schema = self.decoder.schema();
        let field = column.and_then(|column| schema.field_with_name(column).ok());
        let Some(field) = field.filter(|_| error.code == "value_does_not_fit") else {
            return error;
        };
        if is_json(field) {
            return error;
        }
        let (name, stream, key) = (field.name(), &self.stream, self.types_key);
        error.hint = Some(match is_stored(field) {
            true => format!(
                "the target has the type {} for {name}: declare a type that holds the value, such as float64 or json, \
                 under config.streams.{stream}.{key}, and set schema_changes: {{ type_change: rewrite }} or change the \
                 target as `rapidbyte plan` says",
                type_name(field)
            ),
            false => format!(
                "declare another type for {name} under config.streams.{stream}.{key}, such as json, which holds every \
                 value; or leave such documents out by `where`"
            ),
        });
        error
    }

    /// Puts everything so far into `ready`.
    fn take(&mut self, is_end: bool) -> Result<()> {
        if !self.rejects.is_empty() {
            let rejects = std::mem::take(&mut self.rejects);
            self.ready.push_back(Event::Rejects(rejects));
        }
        while let Some(batch) = self.decoder.take_batch().map_err(convert)? {
            self.ready.push_back(Event::Batch(batch));
        }
        let checkpoint = self
            .tracker
            .as_mut()
            .map(|tracker| tracker.checkpoint(is_end));
        let checkpoint = checkpoint.transpose()?.flatten();
        self.ready.extend(checkpoint.map(Event::Checkpoint));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.has_ended = true;
        self.take(true)
    }

    fn step(&mut self, wait: Duration) -> Result<Event> {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.ready.pop_front() {
                if matches!(event, Event::Checkpoint(_)) {
                    log::failpoint("source-mongodb.checkpoint")?;
                }
                return Ok(event);
            }
            if self.has_ended {
                return Ok(Event::End);
            }
            self.go_on()?;
            // Rows that come slowly are given as they come, with the cursor to resume from.
            if !self.has_ended && begun.elapsed() >= wait {
                self.take(false)?;
                if self.ready.is_empty() {
                    return Ok(Event::Idle);
                }
            }
        }
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema().clone()
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        self.step(wait).map_err(|error| about(error, &self.stream))
    }
}

/// The `_id` of a document as JSON, for people.
fn id_of(document: Document<'_>) -> Option<String> {
    let id = document.get(ID).ok()??;
    let mut json = Vec::new();
    extjson::write_value(&id, Style::Relaxed, &mut json).ok()?;
    String::from_utf8(json).ok()
}

/// A document as a record of a reject: its types come back when it is read again. Empty where JSON cannot hold it.
fn record(document: Document<'_>) -> Vec<u8> {
    let mut json = Vec::new();
    match extjson::write_document(document, Style::Canonical, &mut json) {
        Ok(()) => json,
        Err(_) => Vec::new(),
    }
}

fn reject(error: &Error, mut data: Vec<u8>, id: Option<String>) -> Reject {
    let is_cut = data.len() > MAX_REJECT_BYTES;
    data.truncate(MAX_REJECT_BYTES);
    Reject {
        data,
        is_cut,
        location: id.map(|id| format!("_id {id}")),
        column: error.column.clone(),
        code: error.code.clone(),
        message: error.message.clone(),
        read_with: None,
    }
}

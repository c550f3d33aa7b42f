//! Reading documents: `find`, `aggregate` and the like, `getMore` and `killCursors`.

use rapidbyte_bson::{Builder, Document, Value};
use rapidbyte_sdk::Result;
use rapidbyte_sdk::phase::{self, Kind};

use crate::client::{Client, Reply};
use crate::error::{malformed, protocol};

/// A server may answer with an empty batch now and then, for example where a shard has nothing. A cursor with this many
/// in a row does not end.
const MAX_EMPTY_BATCHES: u32 = 1_000;

/// Documents of a cursor on the server, batch by batch.
///
/// The server keeps a cursor for some minutes between two batches. [`Cursor::close`] frees it; dropping it does not.
#[derive(Debug)]
pub struct Cursor {
    database: String,
    collection: String,
    /// 0: the server has no more documents.
    id: i64,
    /// The first batch, until it is taken.
    first: Option<Batch>,
    /// Added to each `getMore`, such as a session.
    more: Vec<u8>,
    /// The request for the next batch was sent.
    is_asked: bool,
    /// Empty batches since the last document.
    empty: u32,
    /// The documents that may still come.
    left: Option<usize>,
}

/// Some documents of a cursor.
#[derive(Debug, Clone)]
pub struct Batch(Reply);

impl Batch {
    /// The documents in their order.
    pub fn documents(&self) -> Result<impl Iterator<Item = Result<Document<'_>>>> {
        let documents = batch(self.0.document()?)?;
        Ok(documents.elements().map(|element| match element {
            Ok((_, Value::Document(document))) => Ok(document),
            Ok(_) => Err(protocol("a batch with something that is not a document")),
            Err(error) => Err(malformed(error)),
        }))
    }

    /// True if it has no document.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(batch(self.0.document()?)?.is_empty())
    }

    /// The bytes of the whole answer.
    pub fn bytes(&self) -> Result<usize> {
        Ok(self.0.document()?.as_bytes().len())
    }
}

fn cursor(document: Document<'_>) -> Result<Document<'_>> {
    match document.get("cursor").map_err(malformed)? {
        Some(Value::Document(cursor)) => Ok(cursor),
        _ => Err(protocol("an answer without a cursor")),
    }
}

fn batch(document: Document<'_>) -> Result<Document<'_>> {
    let cursor = cursor(document)?;
    for name in ["firstBatch", "nextBatch"] {
        if let Some(Value::Array(documents)) = cursor.get(name).map_err(malformed)? {
            return Ok(documents);
        }
    }
    Err(protocol("a cursor without a batch"))
}

impl Client {
    /// Runs a command that answers with a cursor, such as `find`, `aggregate` or `listCollections`. Counts as the phase
    /// `query`.
    pub fn find(&mut self, database: &str, command: Builder) -> Result<Cursor> {
        let _phase = phase::enter(Kind::Query);
        Cursor::of(self.command(database, command)?)
    }
}

impl Cursor {
    /// The cursor that a server has opened with this answer. Errors: `protocol_violation`.
    pub fn of(reply: Reply) -> Result<Self> {
        let found = cursor(reply.document()?)?;
        let id = cursor_id(found)?;
        let namespace = match found.get("ns").map_err(malformed)? {
            Some(Value::String(namespace)) => namespace,
            _ => return Err(protocol("a cursor without a namespace")),
        };
        // The first dot: a collection may have dots in its name.
        let Some((database, collection)) = namespace.split_once('.') else {
            return Err(protocol("a namespace without a collection"));
        };
        let (database, collection) = (database.to_owned(), collection.to_owned());
        Ok(Self {
            database,
            collection,
            id,
            first: Some(Batch(reply)),
            more: Vec::new(),
            is_asked: false,
            empty: 0,
            left: None,
        })
    }

    /// Adds the elements of this document to each `getMore`, such as `lsid`.
    pub fn with(mut self, elements: Document<'_>) -> Self {
        self.more = elements.as_bytes().to_vec();
        self
    }

    /// The server has at most this many documents to give: [`Cursor::next`] fails with `protocol_violation` if more
    /// come. For reads whose documents are kept in memory.
    pub fn at_most(mut self, documents: usize) -> Self {
        self.left = Some(documents);
        self
    }

    /// The id on the server; 0 if the server has no more documents.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The next batch, of at most `documents` (0: as many as the server likes) and about 16 MiB. It may be empty. `None`
    /// after the last one. Waiting counts as the phase `query`. Errors: the server's; `protocol_violation` for a cursor that
    /// does not end.
    pub fn next(&mut self, client: &mut Client, documents: u32) -> Result<Option<Batch>> {
        if let Some(first) = self.first.take() {
            return self.counted(first).map(Some);
        }
        if !self.ask(client, documents)? {
            return Ok(None);
        }
        self.is_asked = false;
        let _phase = phase::enter(Kind::Query);
        let reply = client.receive()?;
        self.id = cursor_id(cursor(reply.document()?)?)?;
        self.counted(Batch(reply)).map(Some)
    }

    /// The batch, if the server may still give it.
    fn counted(&mut self, batch: Batch) -> Result<Batch> {
        self.empty = match batch.is_empty()? {
            true => self.empty + 1,
            false => 0,
        };
        if self.empty > MAX_EMPTY_BATCHES {
            let text =
                format!("a cursor with {MAX_EMPTY_BATCHES} empty batches, one after the other");
            return Err(protocol(text));
        }
        if let Some(left) = self.left {
            let left = left.checked_sub(batch.documents()?.count());
            let too_many = || protocol("a cursor with more documents than there can be");
            self.left = Some(left.ok_or_else(too_many)?);
        }
        Ok(batch)
    }

    /// Asks for the next batch and does not wait, so that the server works while the caller does. Only
    /// [`Cursor::next`] and [`Cursor::close`] may use the client then. False: no more batches come.
    pub fn ask(&mut self, client: &mut Client, documents: u32) -> Result<bool> {
        if self.is_asked || self.id == 0 {
            return Ok(self.is_asked);
        }
        let mut command = Builder::new();
        command
            .int64("getMore", self.id)
            .string("collection", &self.collection);
        if let Ok(documents @ 1..) = i32::try_from(documents) {
            command.int32("batchSize", documents);
        }
        if !self.more.is_empty() {
            command.elements_of(Document::parse(&self.more).map_err(malformed)?);
        }
        client.send(&self.database, command)?;
        self.is_asked = true;
        Ok(true)
    }

    /// Frees the cursor on the server.
    pub fn close(mut self, client: &mut Client) -> Result<()> {
        if std::mem::take(&mut self.is_asked) {
            let reply = client.receive()?;
            self.id = cursor_id(cursor(reply.document()?)?)?;
        }
        if self.id == 0 {
            return Ok(());
        }
        let mut command = Builder::new();
        command
            .string("killCursors", &self.collection)
            .open_array("cursors")
            .int64("0", self.id)
            .close();
        client.command(&self.database, command).map(|_| ())
    }
}

fn cursor_id(cursor: Document<'_>) -> Result<i64> {
    let id = cursor.get("id").map_err(malformed)?;
    id.and_then(|id| id.as_whole())
        .ok_or_else(|| protocol("a cursor without an id"))
}

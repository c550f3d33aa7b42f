//! The rows of a load on their way into its collection: into the target itself, or into a collection that becomes the
//! target at the commit.

use std::rc::Rc;
use std::time::Duration;

use rapidbyte_document_store::{IdOf, Lease, Put, RefusedRow, RowId, Source, Writer};
use rapidbyte_sdk::log::failpoint;
use rapidbyte_sdk::prelude::*;

use crate::bulk::BulkWriter;
use crate::catalog;
use crate::layout::{Action, Documents, Layout, made};
use crate::server::Server;

/// The longest wait for the answer to a write that is undone.
const UNDO_WAIT: Duration = Duration::from_secs(30);

/// A collection that is filled to become the target.
#[derive(Debug)]
struct Staging {
    name: String,
    /// The target exists, and the commit drops it.
    replaces: bool,
}

/// The writer of a load.
pub struct CollectionWriter {
    collection: String,
    mode: WriteMode,
    layout: Rc<Layout>,
    bulk: BulkWriter,
    /// Until the first commit.
    staging: Option<Staging>,
    /// The rows have replaced older ones, and are not committed.
    has_replaced: bool,
    /// The `_id` and the document of a row, kept for their memory.
    id: Vec<u8>,
    document: Vec<u8>,
}

impl CollectionWriter {
    /// `staging`: the name of the collection that becomes the target, and whether it replaces one.
    pub(crate) fn new(
        server: &Server,
        (collection, mode): (&str, WriteMode),
        layout: Layout,
        staging: Option<(String, bool)>,
    ) -> Self {
        let staging = staging.map(|(name, replaces)| Staging { name, replaces });
        let bulk = bulk(server, (collection, mode), &layout, staging.as_ref());
        Self {
            collection: collection.to_owned(),
            mode,
            layout: Rc::new(layout),
            bulk,
            staging,
            has_replaced: false,
            id: Vec::new(),
            document: Vec::new(),
        }
    }
}

fn bulk(
    server: &Server,
    (collection, mode): (&str, WriteMode),
    layout: &Layout,
    staging: Option<&Staging>,
) -> BulkWriter {
    let is_upsert = match (&layout.id_of, mode) {
        (IdOf::Made, _) => false,
        (_, WriteMode::Upsert) => true,
        // Rows behind those that replaced the target: the key says which row they are.
        (_, WriteMode::Replace) => staging.is_none(),
        (_, WriteMode::Append) => false,
    };
    BulkWriter::new(
        &server.settings,
        &server.client,
        staging.map_or(collection, |staging| &staging.name),
        is_upsert,
        staging.is_none(),
    )
}

/// Puts the collection that was filled into the place of the target.
fn publish(
    server: &mut Server,
    lease: &mut Lease,
    staging: &Staging,
    collection: &str,
) -> Result<()> {
    // A newer run drops the collection after it has fenced: then this run has nothing to put there.
    lease.hold_by_write(server)?;
    failpoint("dest-mongodb.publishing")?;
    let Staging { name, replaces } = staging;
    let (client, settings) = (&mut server.client, &server.settings);
    if !catalog::publish(client, settings, name, collection, *replaces)? {
        lease.hold(server)?;
        let text = format!("{name} is gone: somebody dropped it during the run");
        return Err(Error::new(ErrorKind::Transient, "staging_missing", text));
    }
    failpoint("dest-mongodb.published")
}

impl Writer<Server> for CollectionWriter {
    type Rows = Documents;

    fn makes_ids(&self) -> bool {
        self.layout.id_of == IdOf::Made
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Documents> {
        self.layout.rows(batch)
    }

    fn put(
        &mut self,
        server: &mut Server,
        rows: &Documents,
        source: &Source,
        id: Option<&RowId>,
    ) -> Result<Put> {
        let (own, document) = (&mut self.id, &mut self.document);
        own.clear();
        document.clear();
        if let Some(id) = id {
            made(&id.bytes(), own);
        }
        let client = &mut server.client;
        let encoded = rows.encode(source.row, own, document);
        let put = encoded.and_then(|action| match action {
            Action::Write => self.bulk.put(client, own, document, source.clone()),
            Action::Delete => self.bulk.delete(client, own, source.clone()),
        });
        match put {
            Ok(()) => Ok(Put::Taken(document.len() as u64)),
            Err(error) if matches!(error.kind, ErrorKind::Data) => Ok(Put::Refused(error)),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self, server: &mut Server) -> Result<()> {
        self.bulk.flush(&mut server.client)
    }

    fn receive(&mut self, server: &mut Server) -> Result<()> {
        self.bulk.receive(&mut server.client)
    }

    fn take_refused(&mut self) -> Vec<RefusedRow> {
        self.bulk.take_refused()
    }

    fn publish(&mut self, server: &mut Server, lease: &mut Lease) -> Result<bool> {
        let Some(staging) = &self.staging else {
            return Ok(false);
        };
        publish(server, lease, staging, &self.collection)?;
        self.has_replaced = staging.replaces;
        self.staging = None;
        Ok(true)
    }

    fn committed(&mut self, server: &Server) {
        // From now on rows go to the target itself.
        let to = (self.collection.as_str(), self.mode);
        self.bulk = bulk(server, to, &self.layout, None);
        self.has_replaced = false;
    }

    fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    fn stop(&mut self, server: &mut Server) {
        // An insert that the server still works on would come after the delete. Whether it fails does not matter.
        server.client.set_reply_timeout(UNDO_WAIT);
        let _ = self.bulk.receive(&mut server.client);
    }

    fn discard(&mut self, server: &mut Server) -> Result<bool> {
        let Some(staging) = &self.staging else {
            return Ok(false);
        };
        catalog::drop(&mut server.client, &server.settings, &staging.name)?;
        Ok(true)
    }
}

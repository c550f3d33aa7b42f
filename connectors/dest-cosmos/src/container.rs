//! The rows of a load on their way into its container, and the documents that they replace.

use std::rc::Rc;

use rapidbyte_cosmos::{Container, Param};
use rapidbyte_document_store::{
    IdOf, Lease, Naming as _, Opening, Put, RefusedRow, Right, RowId, Source, Writer, epoch_prefix,
};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;

use crate::config::{Decimals, Settings};
use crate::layout::{Layout, MARK, Rows, id_of};
use crate::rejects;
use crate::server::Server;
use crate::writer::Writer as Requests;

/// The writer of a load.
pub struct ContainerWriter {
    container: String,
    layout: Rc<Layout>,
    requests: Requests,
    is_upsert: bool,
    /// The first commit deletes the documents that were there before.
    replaces: bool,
    /// It has deleted them, and is not done.
    has_purged: bool,
}

/// Fails if the container has another partition key than the operator says. Errors: `partition_key_differs`.
pub(crate) fn ensure_partition_key(settings: &Settings, container: &Container) -> Result<()> {
    match &settings.partition_key {
        Some(key) if *key != container.partition => {
            let text = format!(
                "{} has the partition key {}, and the configuration says {key}",
                settings.namespace(&container.name),
                container.partition
            );
            Err(Error::schema("partition_key_differs", text)
                .hint("remove partition_key: it is only for containers that do not exist yet")
                .at("config.partition_key"))
        }
        _ => Ok(()),
    }
}

impl ContainerWriter {
    /// Makes the container if it does not exist. Errors: `target_missing`; of [`ensure_partition_key`] and
    /// [`Layout::new`].
    pub(crate) fn open(server: &mut Server, opening: &Opening<'_>) -> Result<Self> {
        let target = opening.target;
        let settings = server.settings.clone();
        let schema = target.arrow_schema()?;
        let container = match server.container(opening.collection)? {
            Some(found) => found,
            None if opening.cursor.is_some() => {
                let namespace = settings.namespace(opening.collection);
                let text = format!("{namespace} does not exist, and the stream has a cursor");
                return Err(Error::schema("target_missing", text)
                    .hint(rapidbyte_document_store::READ_AGAIN));
            }
            None => {
                let key = settings.new_partition_key()?;
                server.make(opening.collection, &key, settings.throughput)?
            }
        };
        ensure_partition_key(&settings, &container)?;
        if let Some(to) = opening.rejects {
            rejects::make(server, to)?;
        }
        let is_replay = matches!(opening.right, Right::Replay(_));
        let is_replace = target.write_mode == WriteMode::Replace;
        let id_of = id_of(target, &schema)?;
        let (tag, epoch) = opening.right.marks();
        // A row that is replayed has a tag of its own, so the next run that replaces deletes it.
        let mark = (is_replace && id_of != IdOf::Made).then(|| epoch_prefix(tag, epoch));
        let allows_decimals = settings.decimals == Decimals::Text;
        let layout = Layout::new(
            target,
            &schema,
            settings.documents,
            allows_decimals,
            container,
            mark,
        )?;
        Ok(Self {
            container: opening.collection.to_owned(),
            requests: Requests::new(&layout.container),
            is_upsert: *layout.ids.id_of() != IdOf::Made && target.write_mode != WriteMode::Append,
            layout: Rc::new(layout),
            // A replay adds to the rows that are there.
            replaces: is_replace && opening.cursor.is_none() && !is_replay,
            has_purged: false,
        })
    }
}

impl Writer<Server> for ContainerWriter {
    type Rows = Rows;

    fn makes_ids(&self) -> bool {
        *self.layout.ids.id_of() == IdOf::Made
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        self.layout.rows(batch)
    }

    fn put(
        &mut self,
        server: &mut Server,
        rows: &Rows,
        source: &Source,
        id: Option<&RowId>,
    ) -> Result<Put> {
        let made = id.map_or_else(String::new, RowId::to_string);
        let written = match rows.row(source.row, &made, self.is_upsert) {
            Ok(written) => written,
            Err(error) if matches!(error.kind, ErrorKind::Data) => return Ok(Put::Refused(error)),
            Err(error) => return Err(error),
        };
        let bytes = written.operation.bytes("") as u64;
        self.requests
            .put(&mut server.client, written, source.clone())?;
        Ok(Put::Taken(bytes))
    }

    fn flush(&mut self, server: &mut Server) -> Result<()> {
        self.requests.flush(&mut server.client)
    }

    fn take_refused(&mut self) -> Vec<RefusedRow> {
        self.requests.take_refused()
    }

    /// Deletes the documents that were there before the rows of this run.
    fn publish(&mut self, server: &mut Server, lease: &mut Lease) -> Result<bool> {
        if !self.replaces {
            return Ok(false);
        }
        lease.hold_by_write(server)?;
        failpoint("dest-cosmos.purging")?;
        self.has_purged = true;
        // Documents of a newer run of the stream stay, should this run wake up late.
        let tag = lease.checkpoint.tag.to_string();
        let mark = epoch_prefix(lease.checkpoint.tag, lease.checkpoint.epoch);
        let condition = match self.makes_ids() {
            true => "NOT STARTSWITH(c.id, @tag) OR c.id < @mark".to_owned(),
            false => {
                let field = format!("c[\"{MARK}\"]");
                format!(
                    "NOT IS_DEFINED({field}) OR NOT STARTSWITH({field}, @tag) OR {field} < @mark"
                )
            }
        };
        let params = [
            Param::new("@tag", tag.as_str()),
            Param::new("@mark", mark.as_str()),
        ];
        let deleted = server.delete_where(&self.container, &condition, &params)?;
        log::debug(format!("{deleted} older documents were deleted"));
        failpoint("dest-cosmos.purged")?;
        self.replaces = false;
        Ok(true)
    }

    fn committed(&mut self, _: &Server) {
        self.has_purged = false;
    }

    fn has_replaced(&self) -> bool {
        self.has_purged
    }
}

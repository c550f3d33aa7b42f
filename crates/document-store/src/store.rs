//! The database as a load needs it.

use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{Checkpoint, Key, Lease};
use crate::ids::{IdRange, RowId};
use crate::load::{RefusedRow, Right, Source};
use crate::rejects::{Place, Record};
use crate::replay::{Replay, ReplayChange, ReplayKey};

/// A database that stores documents: the connection of one load. A change of one document is atomic; nothing else needs
/// to be.
pub trait Store: Sized + 'static {
    /// The name of the connector, which starts the names of its failpoints.
    const NAME: &'static str;
    /// A load that replaces its target leaves the older rows where they are until the commit, which removes them all. So
    /// nothing has to be deleted before.
    const REPLACES_COLLECTIONS: bool;
    /// Rejects of one replay at most: their ids have to fit in a document.
    const MAX_REPLAYED: usize;
    /// Writes rows.
    type Writer: Writer<Self>;

    /// Whether the server has answered that it did not carry a request out. By default, the outcome of a request that
    /// failed is unknown.
    fn was_refused(error: &Error) -> bool {
        let _ = error;
        false
    }

    /// Connects again, if the connection may owe an answer.
    fn reconnect(&mut self) -> Result<()> {
        Ok(())
    }

    /// Raises the epoch of a checkpoint for a run, and makes the checkpoint if it does not exist. Errors: of the server;
    /// `checkpoint_differs`.
    fn fence(&mut self, key: &Key, run: &Run) -> Result<Checkpoint>;

    /// The checkpoint. `None` if no run has fenced. Errors: of the server; `checkpoint_differs`.
    fn checkpoint(&mut self, key: &Key) -> Result<Option<Checkpoint>>;

    /// The checkpoints of all streams of a pipeline. Documents that are not checkpoints are passed over.
    fn checkpoints(&mut self, pipeline: &str) -> Result<Vec<Checkpoint>>;

    /// Changes the checkpoint `from`, as this run has left it, into `to`, and returns it. `None`: it is not `from` any
    /// more.
    fn swap(&mut self, key: &Key, from: &Checkpoint, to: &Checkpoint)
    -> Result<Option<Checkpoint>>;

    /// Deletes the documents of a collection with an id in one of these ranges, of which there is at least one. Returns how
    /// many it deleted.
    fn delete_ranges(&mut self, collection: &str, ranges: &[IdRange]) -> Result<u64>;

    /// Called when a load begins, behind the deletes: removes anything else that earlier attempts have left.
    fn clean(&mut self, collection: &str, lease: &Lease) -> Result<()> {
        let _ = (collection, lease);
        Ok(())
    }

    /// Prepares for rows. Makes the collections that the load needs.
    fn open(&mut self, opening: &Opening<'_>) -> Result<Self::Writer>;

    /// The document of a reject.
    fn encode_reject(record: &Record<'_>) -> Result<Vec<u8>>;

    /// Adds documents of rejects to their collection.
    fn add_rejects(&mut self, to: &ReplayKey, documents: Vec<Vec<u8>>) -> Result<()>;

    /// Deletes rejects that a committed replay has replayed, if they are there.
    fn delete_rejects(&mut self, from: &ReplayKey, ids: &[Vec<u8>]) -> Result<()>;

    /// How many of these rejects of a stream still have the version that belongs to them.
    fn count_unchanged(
        &mut self,
        of: &ReplayKey,
        stream: &str,
        rejects: &[(&Place, &str)],
    ) -> Result<usize>;

    /// The document that says which replay may commit. `None` if it does not exist.
    fn replay(&mut self, key: &ReplayKey) -> Result<Option<Replay>>;

    /// Changes the document `from`, and returns it. `None`: another replay has changed it, and the change did not happen.
    fn change_replay(
        &mut self,
        key: &ReplayKey,
        from: &Replay,
        change: &ReplayChange<'_>,
    ) -> Result<Option<Replay>>;
}

/// Deletes the documents of attempts that were not committed: their ids are in these ranges.
pub(crate) fn delete_uncommitted<S: Store>(
    store: &mut S,
    collection: &str,
    ranges: &[IdRange],
) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let deleted = store.delete_ranges(collection, ranges)?;
    if deleted > 0 {
        log::info(format!(
            "{deleted} documents of an attempt that was not committed were deleted"
        ));
    }
    Ok(())
}

/// The rows to come.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The stream and its schema.
    pub target: &'a Target,
    /// Where it is written.
    pub collection: &'a str,
    /// The rows are behind it.
    pub cursor: Option<&'a str>,
    /// Whether the rows move the stream, or replay rejects.
    pub right: &'a Right,
    /// The collection for rejects.
    pub rejects: Option<&'a str>,
}

/// The result for a row.
#[derive(Debug)]
pub enum Put {
    /// It is on its way, with this number of bytes.
    Taken(u64),
    /// It cannot be written.
    Refused(Error),
}

/// The writer of one load.
pub trait Writer<S> {
    /// The rows of a batch, ready to be written.
    type Rows;

    /// Whether rows get ids that the connector makes.
    fn makes_ids(&self) -> bool;

    /// Prepares the rows of a batch.
    fn rows(&self, batch: &RecordBatch) -> Result<Self::Rows>;

    /// Takes a row. `id`: its id, if the connector makes it. Rows with the same id go out in their order.
    fn put(
        &mut self,
        store: &mut S,
        rows: &Self::Rows,
        source: &Source,
        id: Option<&RowId>,
    ) -> Result<Put>;

    /// Sends everything, and waits for the answers.
    fn flush(&mut self, store: &mut S) -> Result<()>;

    /// Waits for the answers that the server owes, before it is asked something else.
    fn receive(&mut self, store: &mut S) -> Result<()> {
        let _ = store;
        Ok(())
    }

    /// The rows that the server refused since the last call.
    fn take_refused(&mut self) -> Vec<RefusedRow>;

    /// Called before the checkpoint moves: makes the rows visible, and removes those that they replace. True: no row of an
    /// older epoch is there any more.
    fn publish(&mut self, store: &mut S, lease: &mut Lease) -> Result<bool>;

    /// Called after the checkpoint has moved.
    fn committed(&mut self, store: &S);

    /// Whether older rows are gone which no commit has replaced. Then the rows of this load stay: the next run decides.
    fn has_replaced(&self) -> bool;

    /// Called before the rows of this load are deleted: waits a limited time for a write that the server still works on.
    fn stop(&mut self, store: &mut S) {
        let _ = store;
    }

    /// Deletes the rows of this load if they are in a place of their own. False: they are in the target.
    fn discard(&mut self, store: &mut S) -> Result<bool> {
        let _ = store;
        Ok(false)
    }
}

//! The protocol of destinations that store documents and have no transactions, without a database: for dest-mongodb,
//! dest-cosmos and dest-opensearch.
//!
//! A change of one document is atomic, and nothing else is. So rows get ids that say whose they are ([`RowId`]), a
//! checkpoint that moves last says which of them are committed ([`Epochs`]), and the next run finds and deletes the
//! others. A connector implements [`Store`] and [`Writer`] for its database and [`Naming`] for its configuration;
//! [`DocumentLoad`] is then the load of a stream.

mod checkpoint;
mod epochs;
pub mod hex;
mod ids;
mod keys;
mod load;
mod naming;
mod reject_document;
mod rejects;
mod replay;
mod store;
mod text_ids;

use rapidbyte_sdk::Result;
use rapidbyte_sdk::log::failpoint;

pub use checkpoint::{Checkpoint, Key, Lease};
pub use epochs::{Committed, Epochs};
pub use ids::{ID_BYTES, IdRange, RowId, Tag, epoch_prefix};
pub use keys::{IdOf, ensure_one_text, is_deleted, null_key};
pub use load::{Destined, DocumentLoad, RefusedRow, Right, Source};
pub use naming::{Naming, Pattern};
pub use reject_document::RejectDocument;
pub use rejects::{Page, Place, Record, Visible, origin_of, time_text};
pub use replay::{Claim, MAX_OVERTAKEN, Replay, ReplayChange, ReplayKey};
pub use store::{Opening, Put, Store, Writer};
pub use text_ids::{SEPARATOR, TextIds, of_format};

/// What to do about a target that does not exist any more although its stream has a cursor (`target_missing`). The host
/// writes the names of the pipeline and the stream into it.
pub const READ_AGAIN: &str =
    "read this stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM`";

/// The failpoints that a load reaches here, behind the name of its connector and a point. The connector lists them in
/// their order with its own.
pub const POINTS: [&str; 14] = [
    "fencing",
    "fenced",
    "cleaned",
    "flushed",
    "committing",
    "checkpointing",
    "checkpoint_sent",
    "settling",
    "settled",
    "replay_held",
    "replay_claimed",
    "replay_committing",
    "replay_committed",
    "committed",
];

/// Reaches a failpoint of the connector.
fn reach<S: Store>(point: &str) -> Result<()> {
    failpoint(&format!("{}.{point}", S::NAME))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_failpoint_is_listed_and_reached() {
        let mut reached = BTreeSet::new();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let calls = text.split("reach::<S>(\"").skip(1);
            let names = calls.filter_map(|call| call.split('"').next());
            reached.extend(names.map(str::to_owned));
        }
        // The pattern of the search itself.
        reached.remove(").skip(1);");
        let listed: BTreeSet<String> = super::POINTS.map(str::to_owned).into();
        assert_eq!(reached, listed);
    }
}

//! Rows, rejects and collections that an attempt has left without a commit: who deletes them, and when.
//!
//! A load that fails deletes its own (`undo`). A run that begins deletes those of the runs before it (`clean`), and once
//! more after its last commit (`clean_up`).

use std::time::Duration;

use rapidbyte_bson::Builder;
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::catalog;
use crate::config::Settings;
use crate::ids::{self, ID_BYTES};
use crate::ledger;
use crate::load::{CollectionLoad, Right};

/// The longest wait for the answer to a write that is undone.
const UNDO_WAIT: Duration = Duration::from_secs(30);

impl CollectionLoad {
    /// Deletes what earlier attempts have left: rows that no commit has, and collections that no target became.
    /// `replaces`: the run will replace the target, and its readers keep what they have until then.
    pub(crate) fn clean(&mut self, replaces: bool) -> Result<()> {
        let Right::Lease(lease) = &self.right else {
            return Ok(());
        };
        let (client, settings) = (&mut self.client, &self.settings);
        if !replaces {
            let ranges = lease.epochs.uncommitted(lease.tag, lease.epoch)?;
            delete_ranges(client, settings, &self.collection, &ranges)?;
        }
        if let Some(keeper) = &self.keeper {
            let ranges = lease.reject_epochs.uncommitted(lease.tag, lease.epoch)?;
            delete_ranges(client, settings, &keeper.to, &ranges)?;
        }
        let found = catalog::drop_staging(client, settings, lease.tag, &self.collection)?;
        self.target_found = Some(found);
        failpoint("dest-mongodb.cleaned")
    }

    /// Deletes what this load has written and not committed, as far as that can be told.
    pub(crate) fn undo(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        // An insert that the server still works on would come after the delete. Whether it fails does not matter.
        self.client.set_reply_timeout(UNDO_WAIT);
        let _ = open.writer.receive(&mut self.client);
        // The rows may be committed, or the older rows are gone: then the next run decides.
        if self.right.is_unsettled() || open.has_replaced {
            return Ok(());
        }
        // The connection may be of no use any more, or still owe an answer.
        let mut client = self.settings.connect()?;
        if let Some(staging) = &open.staging {
            return catalog::drop(&mut client, &self.settings, &staging.name);
        }
        let (tag, epoch) = self.right.marks();
        let (rows, rejects) = self.right.committed();
        let range =
            |from, to| Ok::<_, Error>([(ids::id(tag, epoch, from)?, ids::id(tag, epoch, to)?)]);
        if rows < open.next {
            let range = range(rows, open.next)?;
            delete_ranges(&mut client, &self.settings, &self.collection, &range)?;
        }
        match self.keeper.as_ref().filter(|keeper| rejects < keeper.next) {
            Some(keeper) => {
                let range = range(rejects, keeper.next)?;
                delete_ranges(&mut client, &self.settings, &keeper.to, &range)
            }
            None => Ok(()),
        }
    }

    /// Rows of a run that was fenced may have come after this run had begun. The next run deletes them if this fails.
    pub(crate) fn clean_up(&mut self) {
        let Right::Lease(lease) = &self.right else {
            return;
        };
        let ranges = lease.epochs.uncommitted(lease.tag, lease.epoch);
        let cleaned = ranges.and_then(|ranges| {
            delete_ranges(&mut self.client, &self.settings, &self.collection, &ranges)
        });
        if let Err(error) = cleaned {
            log::debug(format!("rows of older runs may be left: {}", error.message));
        }
    }
}

/// Deletes the documents with an `_id` in one of these ranges, the second end of which is outside.
pub(crate) fn delete_ranges(
    client: &mut Client,
    settings: &Settings,
    collection: &str,
    ranges: &[([u8; ID_BYTES], [u8; ID_BYTES])],
) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let _phase = phase::enter(Kind::Query);
    let mut deletes = Vec::new();
    for (begin, end) in ranges {
        let mut entry = Builder::onto(deletes);
        entry.open_document("q");
        ids::within(&mut entry, begin, end);
        entry.close().int32("limit", 0);
        deletes = entry.finish().map_err(Error::internal)?;
    }
    let mut command = Builder::new();
    command
        .string("delete", collection)
        .boolean("ordered", false);
    settings.add_write_concern(&mut command);
    let written = client.write(&settings.database, command, "deletes", &deletes)?;
    let count = ledger::ensure_deleted(written)?;
    if count > 0 {
        log::info(format!(
            "{count} rows of an attempt that was not committed were deleted"
        ));
    }
    Ok(())
}

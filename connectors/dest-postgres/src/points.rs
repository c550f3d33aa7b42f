//! The failpoints of the delivery protocol: where a crash would matter, in the order in which a
//! load reaches them. Fault tests end the process there ([`rapidbyte_sdk::log::failpoint`]).

/// Every name that is reached in this connector.
pub const POINTS: [&str; 25] = [
    // A run asks how far a stream is. It changes nothing.
    "dest-postgres.asked",
    // The table of checkpoints is missing and about to be made.
    "dest-postgres.checkpoint_missing",
    // It is made and committed.
    "dest-postgres.checkpoint_made",
    // Nothing of the fence is sent yet.
    "dest-postgres.fencing",
    // The fence is sent, and nothing is known of its end.
    "dest-postgres.fence_sent",
    // The epoch is ours, and an older run's backend may still live.
    "dest-postgres.fence_committed",
    // The older run's backend is gone, or was not ours to end.
    "dest-postgres.older_ended",
    // Schemas and types are made and committed, the load has not begun.
    "dest-postgres.prelude_committed",
    // The table for rejects is made and committed.
    "dest-postgres.rejects_made",
    // The load's transaction is open: the table is made or locked, nothing is changed in it.
    "dest-postgres.opened",
    // Replace: the older rows are deleted in the transaction.
    "dest-postgres.cleared",
    // A repair: the rows with the keys are deleted in the transaction.
    "dest-postgres.removed",
    // Upsert: the temporary table is there.
    "dest-postgres.stage_made",
    // Rows are about to be sent.
    "dest-postgres.writing",
    // The rows of a part are in the transaction: in the table, or staged.
    "dest-postgres.flushed",
    // A commit has begun, nothing of it is sent.
    "dest-postgres.committing",
    // Upsert: the rows whose last version is deleted are gone in the transaction.
    "dest-postgres.deleted",
    // Upsert: the staged rows are in the table, in the transaction.
    "dest-postgres.merged",
    // Deletes: all keys of the source are staged, and nothing is compared.
    "dest-postgres.keys_staged",
    // Deletes: the rows whose keys did not come are deleted or marked, in the transaction.
    "dest-postgres.compared",
    // The checkpoint is about to be moved and the transaction to be committed, in one send.
    "dest-postgres.checkpointing",
    // Checkpoint and COMMIT are sent, and nothing is known of their end.
    "dest-postgres.commit_sent",
    // The answer to COMMIT did not come: what became of it is about to be asked.
    "dest-postgres.settling",
    // It is known what became of it.
    "dest-postgres.settled",
    // The commit is done, and the run has not reported it.
    "dest-postgres.committed",
];

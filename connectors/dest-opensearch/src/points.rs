//! The failpoints of the delivery protocol: where a crash would matter, in the order in which a load reaches them. Fault
//! tests end the process there ([`rapidbyte_sdk::log::failpoint`]).

/// Every name that is reached in this connector.
pub const POINTS: [&str; 21] = [
    // A run asks how far a stream is. It changes nothing.
    "dest-opensearch.asked",
    // Nothing of the fence is sent yet.
    "dest-opensearch.fencing",
    // The epoch is ours.
    "dest-opensearch.fenced",
    // Rows and indices that earlier attempts have left are deleted.
    "dest-opensearch.cleaned",
    // Rows are about to be sent.
    "dest-opensearch.writing",
    // Their answers have come.
    "dest-opensearch.write_sent",
    // The server has the rows of a part.
    "dest-opensearch.flushed",
    // A commit has begun, nothing of it is sent.
    "dest-opensearch.committing",
    // Replace, in an index that somebody else has made: the older documents are about to be deleted.
    "dest-opensearch.purging",
    // They are deleted, and the checkpoint was not moved.
    "dest-opensearch.purged",
    // Replace: the index that was filled is about to become the target.
    "dest-opensearch.publishing",
    // It is the target, and the checkpoint was not moved.
    "dest-opensearch.published",
    // The checkpoint is about to be moved.
    "dest-opensearch.checkpointing",
    // The answer has come, or has not.
    "dest-opensearch.checkpoint_sent",
    // The answer did not come: the run is about to ask for the outcome of the commit.
    "dest-opensearch.settling",
    // The outcome is known.
    "dest-opensearch.settled",
    // A replay has taken the right to commit, and the rows of older ones are still there.
    "dest-opensearch.replay_held",
    // A replay has taken the right to commit, and the rows of older ones are deleted.
    "dest-opensearch.replay_claimed",
    // A replay is about to be committed.
    "dest-opensearch.replay_committing",
    // It is committed, and its rejects are still there.
    "dest-opensearch.replay_committed",
    // The commit is done, and the run has not reported it.
    "dest-opensearch.committed",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::POINTS;

    #[test]
    fn every_failpoint_is_listed_and_reached() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut reached = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("the sources") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("UTF-8");
            let calls = text.split("failpoint(\"").skip(1);
            let names = calls.filter_map(|call| call.split('"').next());
            reached.extend(names.filter(|name| name.contains('.')).map(str::to_owned));
        }
        let shared = rapidbyte_document_store::POINTS;
        reached.extend(shared.map(|point| format!("dest-opensearch.{point}")));
        let listed: BTreeSet<String> = POINTS.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed.len(), POINTS.len());
        assert_eq!(listed, reached);
    }
}

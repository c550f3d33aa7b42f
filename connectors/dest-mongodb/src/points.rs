//! The failpoints of the delivery protocol: where a crash would matter, in the order in which a load reaches them. Fault
//! tests end the process there ([`rapidbyte_sdk::log::failpoint`]).

/// Every name that is reached in this connector.
pub const POINTS: [&str; 20] = [
    // A run asks how far a stream is. It changes nothing.
    "dest-mongodb.asked",
    // Nothing of the fence is sent yet.
    "dest-mongodb.fencing",
    // The epoch is ours.
    "dest-mongodb.fenced",
    // Rows that earlier attempts have left are deleted.
    "dest-mongodb.cleaned",
    // Replace: the collection that will be filled is there.
    "dest-mongodb.staging_made",
    // Rows are about to be sent.
    "dest-mongodb.writing",
    // They are sent, and nothing is known of them.
    "dest-mongodb.write_sent",
    // The server has the rows of a part.
    "dest-mongodb.flushed",
    // A commit has begun, nothing of it is sent.
    "dest-mongodb.committing",
    // Replace: the collection is about to take the place of the target.
    "dest-mongodb.publishing",
    // It has taken the place, and the checkpoint was not moved.
    "dest-mongodb.published",
    // The checkpoint is about to be moved.
    "dest-mongodb.checkpointing",
    // The answer has come, or has not.
    "dest-mongodb.checkpoint_sent",
    // The answer did not come: the run is about to ask for the outcome of the commit.
    "dest-mongodb.settling",
    // The outcome is known.
    "dest-mongodb.settled",
    // A replay has taken the right to commit, and the rows of older ones are still there.
    "dest-mongodb.replay_held",
    // A replay has taken the right to commit, and the rows of older ones are deleted.
    "dest-mongodb.replay_claimed",
    // A replay is about to be committed.
    "dest-mongodb.replay_committing",
    // It is committed, and its rejects are still there.
    "dest-mongodb.replay_committed",
    // The commit is done, and the run has not reported it.
    "dest-mongodb.committed",
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
        reached.extend(shared.map(|point| format!("dest-mongodb.{point}")));
        let listed: BTreeSet<String> = POINTS.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed.len(), POINTS.len());
        assert_eq!(listed, reached);
    }
}

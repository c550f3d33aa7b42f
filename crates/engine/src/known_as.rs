//! The run ids that destinations see.
//!
//! A destination remembers which run completed a stream. For a stream that is read whole and appended, that decides
//! whether a resumed run reads it again: it must not, or its rows are there twice. It must, where the earlier attempt
//! moved other rows: with `--limit`, without some columns, or where another condition held. So the id of such a stream
//! also stands for what was asked: `20260131-235959-0a1b2c3d.4e5f6071`. Streams without a limit, a condition or a choice
//! of columns go by the run's own id.

use std::collections::HashMap;

use rapidbyte_runtime::{Run, SyncMode, WriteMode};

use crate::plan::{Plan, StreamPlan};

/// Before the part that stands for what was asked. No id of a run has it.
const MARK: char = '.';

/// The run as the destination knows it, for the streams whose id is not that of `run`. `resumed` has the ids of earlier
/// runs by stream.
pub(crate) fn all(
    plan: &Plan,
    run: &Run,
    resumed: &HashMap<String, String>,
) -> HashMap<String, Run> {
    let of = |stream: &StreamPlan| {
        let id = id(
            resumed.get(&stream.name).unwrap_or(&run.id),
            stream,
            plan.limit,
        );
        let run = Run { id, ..run.clone() };
        (stream.name.clone(), run)
    };
    let all = plan.streams.iter().map(of);
    all.filter(|(_, known)| known.id != run.id).collect()
}

/// The id under which the destination moves a stream of the run `base`.
pub(crate) fn id(base: &str, stream: &StreamPlan, limit: Option<u64>) -> String {
    let asked = (&stream.columns, &stream.filter, limit);
    if !is_added_once(stream) || asked == (&None, &None, None) {
        return base.to_owned();
    }
    // Strings and numbers are always JSON.
    let asked = serde_json::to_vec(&asked).unwrap_or_default();
    let hash = blake3::hash(&asked).to_hex();
    format!("{base}{MARK}{}", &hash[..8])
}

/// The stream is read whole and appended: a run that has committed all of it must not do that twice.
pub(crate) fn is_added_once(stream: &StreamPlan) -> bool {
    stream.sync_mode == SyncMode::FullRefresh && stream.target.write_mode == WriteMode::Append
}

/// The id of the run in the history and in messages.
pub(crate) fn base(id: &str) -> &str {
    id.split_once(MARK).map_or(id, |(base, _)| base)
}

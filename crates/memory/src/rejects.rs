//! Rejects: kept with the rows around them, removed by the commit that replays them.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::temporal_conversions::timestamp_s_to_datetime;
use rapidbyte_runtime::{
    ConnectorError, ErrorKind, KeptReject, LoadRequest, Reject, RejectOrigin, Target,
};

/// The most rejects that one page lists.
const MAX_PAGE: usize = 1_000;

/// The rejects of all places.
#[derive(Default)]
pub(crate) struct Kept {
    /// The rejects of each place and pipeline, in their order.
    places: BTreeMap<(String, String), Vec<KeptReject>>,
    last_id: u64,
}

/// The change that a commit makes to the rejects of a stream.
pub(crate) struct Change {
    place: (String, String),
    /// The ids of the rejects that the commit replays.
    replayed: Vec<String>,
    new: Vec<KeptReject>,
}

/// Whether a load replays rejects, and so fences no run and moves no cursor.
pub(crate) fn is_replay(target: &Target) -> bool {
    let rejects = target.rejects.as_ref();
    rejects.is_some_and(|rejects| !rejects.replayed.is_empty())
}

impl Kept {
    /// A page of the rejects of a pipeline, after the one with the id `after`.
    pub(crate) fn page(
        &self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Vec<KeptReject> {
        let kept = self.places.get(&(to.to_owned(), pipeline.to_owned()));
        let kept = kept.map(Vec::as_slice).unwrap_or_default();
        let behind = after.map(|id| 1 + kept.iter().take_while(|one| one.id != *id).count());
        let kept = kept.iter().skip(behind.unwrap_or(0)).take(MAX_PAGE);
        kept.cloned()
            .map(|mut one| {
                if !with_data {
                    one.version.clear();
                    one.reject.data.clear();
                    one.reject.read_with = None;
                }
                one
            })
            .collect()
    }

    /// The change that a commit makes with `staged` rejects. `None` for a stream without rejects. Errors:
    /// `reject_missing`.
    pub(crate) fn change(
        &self,
        request: &LoadRequest,
        staged: Vec<(RejectOrigin, Reject)>,
    ) -> Result<Option<Change>, ConnectorError> {
        let Some(rejects) = &request.target.rejects else {
            return Ok(None);
        };
        let place = (rejects.to.clone(), request.run.pipeline.clone());
        let kept = self.places.get(&place);
        let is_kept = |id: &str, version: &str| {
            let mut kept = kept.into_iter().flatten();
            kept.any(|one| one.id == id && one.version == version)
        };
        for (id, version) in &rejects.replayed {
            if !is_kept(id, version) {
                let text = format!("the reject {id} is not kept any more");
                return Err(ConnectorError::new(ErrorKind::Data, "reject_missing", text));
            }
        }
        let time = now();
        let new = staged.into_iter().map(|(origin, reject)| KeptReject {
            id: String::new(),
            version: "1".into(),
            stream: request.target.stream.clone(),
            run_id: request.run.id.clone(),
            time: time.clone(),
            origin,
            reject,
        });
        Ok(Some(Change {
            place,
            new: new.collect(),
            replayed: rejects.replayed.iter().map(|(id, _)| id.clone()).collect(),
        }))
    }

    /// Removes what was replayed, and keeps what was rejected: in the place of the former, or at the end.
    pub(crate) fn apply(&mut self, change: Change) {
        let Change {
            place,
            replayed,
            mut new,
        } = change;
        for one in &mut new {
            self.last_id += 1;
            one.id = self.last_id.to_string();
        }
        let kept = self.places.entry(place).or_default();
        let first = kept.iter().position(|one| replayed.contains(&one.id));
        let at = first.unwrap_or(kept.len());
        kept.retain(|one| !replayed.contains(&one.id));
        kept.splice(at..at, new);
    }
}

/// Such as `2026-05-01 06:30:00 UTC`.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    let time = timestamp_s_to_datetime(i64::try_from(seconds).unwrap_or(0));
    time.map(|time| format!("{time} UTC")).unwrap_or_default()
}

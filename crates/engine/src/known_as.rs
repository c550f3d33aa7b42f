//! The run ids that destinations see.
//!
//! A destination remembers which run completed a stream. For a stream that is read whole and appended, that decides
//! whether a resumed run reads it again: it must not, or its rows are there twice. It must, where the earlier attempt
//! moved other rows: with `--limit`, without some columns, where another condition held, or with other settings of the
//! source. So the id of such a stream also stands for what was asked: `20260131-235959-0a1b2c3d.4e5f6071`. Streams
//! without a limit, a condition or a choice of columns go by the run's own id, with the settings that it began with.

use std::collections::HashMap;

use rapidbyte_runtime::{Run, SyncMode, WriteMode};
use rapidbyte_state::State;

use crate::document::without_marked;
use crate::failure::Failure;
use crate::plan::{Plan, StreamPlan};

/// Before the part that stands for what was asked. No id of a run has it.
const MARK: char = '.';

/// What decides under which id a stream is moved, beside the run.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    limit: Option<u64>,
    /// Stands for the settings of the source.
    settings: String,
    /// The runs that began with other settings.
    others: Vec<String>,
}

impl Asked {
    /// Compares what is asked now with what these runs began with. A run whose settings are not known counts as one
    /// with the same.
    pub(crate) fn compared<'a>(
        plan: &Plan,
        history: Option<&State>,
        runs: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Failure> {
        let settings = settings(plan);
        let mut others = Vec::new();
        if let Some(history) = history {
            for run in runs {
                let known = history.settings_of(run).map_err(Failure::of_state)?;
                let is_other = |known: &String| !known.is_empty() && *known != settings;
                if known.as_ref().is_some_and(is_other) {
                    others.push(run.to_owned());
                }
            }
        }
        Ok(Self {
            limit: plan.limit,
            settings,
            others,
        })
    }

    /// The run began with other settings of the source.
    pub(crate) fn is_other(&self, run: &str) -> bool {
        self.others.iter().any(|other| other == run)
    }

    /// The id under which the destination moves a stream of the run `base`.
    pub(crate) fn id(&self, base: &str, stream: &StreamPlan) -> String {
        let other = self.is_other(base).then_some(&self.settings);
        let asked = (&stream.columns, &stream.filter, self.limit);
        // Strings and numbers are always JSON.
        let asked = match (asked, other) {
            _ if !is_added_once(stream) => return base.to_owned(),
            ((None, None, None), None) => return base.to_owned(),
            (asked, None) => serde_json::to_vec(&asked).unwrap_or_default(),
            (asked, Some(other)) => serde_json::to_vec(&(asked, other)).unwrap_or_default(),
        };
        format!("{base}{MARK}{}", short_hash(&asked))
    }

    /// The run as the destination knows it, for the streams whose id is not that of `run`. `resumed` has the ids of
    /// earlier runs by stream.
    pub(crate) fn all(
        &self,
        plan: &Plan,
        run: &Run,
        resumed: &HashMap<String, String>,
    ) -> HashMap<String, Run> {
        let of = |stream: &StreamPlan| {
            let id = self.id(resumed.get(&stream.name).unwrap_or(&run.id), stream);
            let run = Run { id, ..run.clone() };
            (stream.name.clone(), run)
        };
        let all = plan.streams.iter().map(of);
        all.filter(|(_, known)| known.id != run.id).collect()
    }
}

/// Stands for the connector and the settings of the source: two plans with the same read the same. Secrets do not count,
/// because they change without the rows.
pub(crate) fn settings(plan: &Plan) -> String {
    let (document, source) = (&plan.document, &plan.source);
    let schema = serde_json::from_str(&source.spec.config_schema).unwrap_or_default();
    let config = without_marked(&schema, &document.source.config);
    short_hash(format!("{} {config}", document.source.connector).as_bytes())
}

fn short_hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..8].to_owned()
}

/// The stream is read whole and appended: a run that has committed all of it must not do that twice.
pub(crate) fn is_added_once(stream: &StreamPlan) -> bool {
    stream.sync_mode == SyncMode::FullRefresh && stream.target.write_mode == WriteMode::Append
}

/// The id of the run in the history and in messages.
pub(crate) fn base(id: &str) -> &str {
    id.split_once(MARK).map_or(id, |(base, _)| base)
}

//! The run ids that destinations see.
//!
//! A destination remembers which run completed a stream. For a full refresh with `append`, this decides whether a
//! resumed run reads the stream again.
//!
//! - It must not, if the earlier attempt moved the same rows: they would be in the target twice.
//! - It must, if the earlier attempt moved other rows: with `--limit`, without some columns, with another condition or
//!   query, with other transforms, or with other settings of the source.
//!
//! So the id of such a stream also stands for the rows that the run asks for: `20260131-235959-0a1b2c3d.4e5f6071`.
//! Streams without a limit, a condition, a query, a choice of columns or transforms have the run's own id, unless the settings of
//! the source have changed since the run began. A full refresh that replaces or updates rows has an id that stands for
//! its write mode.

use std::collections::{HashMap, HashSet};

use rapidbyte_runtime::{Run, SyncMode, Target, WriteMode};
use rapidbyte_state::State;
use serde_json::{Map, Value};

use crate::document::{self, Document, StreamTarget, without_marked};
use crate::failure::Failure;
use crate::plan::{Plan, Stage, Step, StreamPlan, write_mode_name};

/// Separates the run's id from the part that stands for the rows. No id of a run contains it.
const MARK: char = '.';

/// Everything besides the run and the stream that decides the id of a stream.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    limit: Option<u64>,
    /// A hash of the settings of the source. Empty without a history.
    settings: String,
    /// Runs that began with other settings.
    others: Vec<String>,
}

impl Asked {
    /// Compares the settings of now with the settings that these runs began with. If the history does not know the
    /// settings of a run, they count as equal.
    pub(crate) fn compared<'a>(
        plan: &Plan,
        history: Option<&State>,
        runs: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Failure> {
        let mut others = Vec::new();
        let mut settings = String::new();
        // Without a history, no run is known that began with other settings.
        if let Some(history) = history {
            settings = self::settings(plan);
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

    /// Whether the run began with other settings of the source.
    pub(crate) fn is_other(&self, run: &str) -> bool {
        self.others.iter().any(|other| other == run)
    }

    /// The id under which the destination knows a stream of the run `base`.
    pub(crate) fn id(&self, base: &str, stream: &StreamPlan) -> String {
        let other = self.is_other(base).then_some(&self.settings);
        let asked = (&stream.columns, &stream.filter, self.limit);
        let steps: Vec<String> = stream.transforms.iter().map(|step| step.hash()).collect();
        let is_plain = asked == (&None, &None, None)
            && stream.query.is_none()
            && other.is_none()
            && steps.is_empty();
        // Rows that replace or update others say nothing about rows that are appended.
        if !is_added_once(stream) && stream.sync_mode == SyncMode::FullRefresh {
            return of_mode(base, stream.target.write_mode);
        }
        if !is_added_once(stream) || is_plain {
            return base.to_owned();
        }
        // Strings and numbers are always JSON.
        let asked = match (&stream.query, other, steps.is_empty()) {
            (Some(query), other, _) => serde_json::to_vec(&(asked, other, steps, query)),
            (None, None, true) => serde_json::to_vec(&asked),
            (None, Some(other), true) => serde_json::to_vec(&(asked, other)),
            (None, _, false) => serde_json::to_vec(&(asked, other, steps)),
        };
        format!("{base}{MARK}{}", short_hash(&asked.unwrap_or_default()))
    }

    /// The run of each stream whose id differs from `run`, for the destination. `resumed` has the ids of earlier runs
    /// by stream.
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

/// A hash of the destination and its settings: together with the name of a stream, it stands for the target. Secrets do
/// not count.
pub(crate) fn target(destination: &Stage, document: &Document) -> String {
    let document::Destination {
        connector, config, ..
    } = &document.destination;
    settings_of(destination, connector, config)
}

/// The same with the target that the operator chose for one stream.
pub(crate) fn target_of(target: &str, chosen: Option<&StreamTarget>) -> String {
    match chosen {
        None => target.to_owned(),
        Some(StreamTarget { name, schema }) => {
            let chosen = serde_json::to_vec(&(target, name, schema));
            short_hash(&chosen.unwrap_or_default())
        }
    }
}

/// A hash of the connector and the settings of the source. Two plans with the same hash read the same rows. Secrets do
/// not count, because somebody may change a password and the rows stay the same.
pub(crate) fn settings(plan: &Plan) -> String {
    let source = &plan.document.source;
    settings_of(&plan.source, &source.connector, &source.config)
}

impl Plan {
    /// Hashes of the settings of the source and of the destination. Secrets do not count.
    pub fn settings(&self) -> [String; 2] {
        [settings(self), target(&self.destination, &self.document)]
    }
}

impl StreamPlan {
    /// A hash of what the pipeline asks for: which rows are read, the transforms with their settings, and how the
    /// destination takes the rows. Secrets of transforms do not count.
    pub fn asked(&self) -> String {
        let steps: Vec<String> = self.transforms.iter().map(Step::hash).collect();
        let read = (&self.columns, &self.filter, &self.query, &self.increment);
        // The plan shows the columns themselves.
        let target = Target {
            schema: Vec::new(),
            ..self.target.clone()
        };
        short_hash(format!("{:?}", (read, steps, target)).as_bytes())
    }
}

/// The same of one stage.
fn settings_of(stage: &Stage, connector: &str, config: &Map<String, Value>) -> String {
    let config = without_marked(&stage.schema, config);
    short_hash(format!("{connector} {config}").as_bytes())
}

impl Step {
    /// A hash of the transform and its settings. The place of its file does not count.
    fn hash(&self) -> String {
        let identity = self.stage.connector.identity();
        settings_of(&self.stage, &identity, &self.asked.config)
    }
}

/// The ids under which a stream was appended to a target, of what the history knows of the stream.
pub(crate) fn appended_to<'a>(
    known: &'a HashSet<String>,
    target: &str,
) -> impl Iterator<Item = &'a str> {
    let parts = known.iter().filter_map(|known| known.split_once(' '));
    parts.filter_map(move |(id, of)| (of == target).then_some(id))
}

/// The id of a full refresh that replaces or updates rows.
fn of_mode(base: &str, mode: WriteMode) -> String {
    format!(
        "{base}{MARK}{}",
        short_hash(write_mode_name(mode).as_bytes())
    )
}

/// Whether the run under this id replaced all rows.
pub(crate) fn has_replaced(id: &str) -> bool {
    id == of_mode(base(id), WriteMode::Replace)
}

/// Whether the run under this id appended rows, of a full refresh.
pub(crate) fn has_appended(id: &str) -> bool {
    !has_replaced(id) && id != of_mode(base(id), WriteMode::Upsert)
}

fn short_hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..8].to_owned()
}

/// Whether the stream is a full refresh with `append`: a run must not append it twice.
pub(crate) fn is_added_once(stream: &StreamPlan) -> bool {
    stream.sync_mode == SyncMode::FullRefresh && stream.target.write_mode == WriteMode::Append
}

/// The id of the run in the history and in messages, without the part that stands for the rows.
pub(crate) fn base(id: &str) -> &str {
    id.split_once(MARK).map_or(id, |(base, _)| base)
}

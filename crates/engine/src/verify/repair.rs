//! Moves the rows that differ again, by their keys, beside the runs of the pipeline.

use std::collections::HashSet;

use rapidbyte_runtime::{Buckets, KeyedRows, SyncMode, WriteMode};

use super::compared::{Compared, Difference, Row};
use super::sides::Sides;
use super::staged::alone;
use super::way::Way;
use crate::document::DeletesAction;
use crate::failure::{Class, Failure};
use crate::plan::{Plan, Replay, StreamPlan};
use crate::rejects::as_replay;

/// Comparisons after a repair. Each finds at most 1,000 rows, and half of them may have to wait.
const MAX_ROUNDS: usize = 40;

/// How a comparison treats rows that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repair {
    /// It names them.
    #[default]
    Nothing,
    /// It moves them again, and compares again.
    Rows,
}

/// Refuses a stream whose rows cannot be repaired.
pub(super) fn refuse(plan: &Plan, stream: &StreamPlan) -> Result<(), Failure> {
    let deletes = plan.document.source.entry_for(&stream.name);
    let deletes = deletes.and_then(|at| {
        let asked = &plan.document.source.streams[at];
        plan.document.deletes_of(asked)
    });
    let appends = stream.target.write_mode == WriteMode::Append;
    let (text, hint) = if Way::of(plan, stream)?.is_staged {
        (
            "its rows are compared by reading all of them",
            "read the stream again: `rapidbyte run PIPELINE --full-refresh --select STREAM`",
        )
    } else if appends && stream.sync_mode == SyncMode::Incremental {
        (
            "write_mode: append keeps each version of a row, and the next run would append the repaired rows again",
            "read the stream again: `rapidbyte run PIPELINE --full-refresh --select STREAM`",
        )
    } else if stream.target.primary_key.is_empty() {
        (
            "the stream has no key, so its rows cannot be told apart",
            "name the columns that identify a row with primary_key, or read the stream again with --full-refresh",
        )
    } else if deletes.is_some_and(|deletes| deletes.action == DeletesAction::Mark) {
        (
            "with deletes: { action: mark } only a run sets and removes marks",
            "run the pipeline, which compares all keys, and then compare",
        )
    } else {
        return Ok(());
    };
    let failure = Failure::new(Class::Config, "repair_not_possible", text).hint(hint);
    Err(failure.in_stream(&stream.name))
}

impl Sides<'_> {
    /// Compares, and moves the rows that differ until both sides are equal or the rows stay as they are. Rows that only
    /// the target has are deleted last, and not in a sample: the target may spell the key of a row of the source in
    /// another way, and an update of that row finds it and corrects its key.
    pub(super) fn repair(&self, within: Option<&Buckets>) -> Result<Compared, Failure> {
        let mut compared = self.compare(within)?;
        let mut known = HashSet::new();
        let mut repaired: Vec<Row> = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let rows = compared.rows.iter();
            let rows = rows.filter(|row| {
                let has_changed = row.difference != Difference::Changing;
                has_changed && !row.key.is_empty() && !known.contains(&row.key)
            });
            let (mut rows, extra): (Vec<Row>, Vec<Row>) = rows
                .cloned()
                .partition(|row| row.difference != Difference::Extra);
            if within.is_none() && (rows.is_empty() || !compared.has_more) {
                rows.extend(extra);
            }
            if rows.is_empty() {
                break;
            }
            self.move_again(&rows).map_err(|mut failure| {
                let text = match repaired.len() as u64 {
                    0 => "the rows that differ could not be repaired, and stay as they were".into(),
                    before => format!(
                        "{} repaired, but the other rows that differ could not be",
                        match before {
                            1 => "1 row was".to_owned(),
                            _ => format!("{before} rows were"),
                        }
                    ),
                };
                failure.message = format!("{text}: {}", failure.message);
                failure
            })?;
            known.extend(rows.iter().map(|row| row.key.clone()));
            repaired.extend(rows);
            let seconds = compared.seconds;
            compared = self.compare(within)?;
            compared.seconds += seconds;
        }
        let differs: HashSet<&Vec<String>> = compared.rows.iter().map(|row| &row.key).collect();
        repaired.retain(|row| !differs.contains(&row.key));
        compared.repaired = repaired;
        Ok(compared)
    }

    /// Moves the rows with these keys in one commit: those that the source has are updated or added, the others are
    /// deleted.
    fn move_again(&self, rows: &[Row]) -> Result<(), Failure> {
        let mut prepared = alone(self.prepared, &self.stream.name, self.host)?;
        let stream = &mut prepared.plan.streams[0];
        let of = |is_extra: bool| {
            let rows = rows.iter();
            let rows = rows.filter(|row| (row.difference == Difference::Extra) == is_extra);
            rows.map(|row| row.key.clone()).collect::<Vec<_>>()
        };
        let recipe = self.recipe.clone();
        stream.target.repairs = Some(rapidbyte_runtime::Repair {
            recipe: recipe.clone(),
            present: of(false),
            gone: of(true),
        });
        // An update keeps the values of columns that the stream does not have, and the rows that refer to the row.
        stream.target.write_mode = WriteMode::Upsert;
        // A row that the target refuses does not become a new reject: the message names it.
        stream.target.rejects = None;
        let keys = rows.iter().map(|row| row.key.clone()).collect();
        as_replay(stream, Replay::Keys(KeyedRows { recipe, keys }), Vec::new());
        let progress = crate::run::progress(&prepared.plan);
        crate::run::run(prepared, self.host, &progress, None, None, |_| {})
    }
}

//! A plan as a value: what a run will do with each stream.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use rapidbyte_runtime::{
    Batch, ColumnPlan, Fit, Increment, KeyedRows, Plan as Placed, Progress, Reject, Selection,
    Stream, SyncMode, Target,
};
use rapidbyte_wire::{WARNING_NOTE, ipc, sampled, types};

use super::deletes::KeyRead;
use super::open::Stage;
use super::refused::{Refused, refusal};
use super::step::Step;
use crate::document::Document;
use crate::failure::{Class, Failure};

/// Everything that a run will do, settled before the first row. A plan is a value: it holds no session.
#[derive(Clone)]
pub struct Plan {
    /// The pipeline.
    pub document: Document,
    /// The reading side.
    pub source: Stage,
    /// The writing side.
    pub destination: Stage,
    /// The streams that move, in order.
    pub streams: Vec<StreamPlan>,
    /// Streams of the pipeline that could not be planned: the source does not have them, or the destination
    /// refuses them.
    pub refused: Vec<Refused>,
    /// The names of all streams that the source has and the pipeline asks for, also of those that do not move
    /// this time.
    pub(crate) found: HashSet<String>,
    /// The native forms that all stages of the pipeline know, including stages of streams that do not move this time:
    /// the streams were found with them.
    pub(crate) forms: Vec<String>,
    /// Rows of each stream at most.
    pub limit: Option<u64>,
    /// Incremental streams begin again with their first row.
    pub full_refresh: bool,
    /// Incremental streams commit at each checkpoint, whatever the pipeline says: their source waits for
    /// the commit. The limits of rejects count since the last commit.
    pub commits_at_checkpoints: bool,
}

/// One stream's way.
#[derive(Clone)]
pub struct StreamPlan {
    /// The source's name of it.
    pub name: String,
    /// How it is read.
    pub sync_mode: SyncMode,
    /// The wanted columns; none means all.
    pub columns: Option<Vec<String>>,
    /// The stream as the source described it.
    pub discovered: Stream,
    /// Only rows that meet it.
    pub filter: Option<String>,
    /// The query whose rows it consists of; none for a stream of the source's own.
    pub query: Option<String>,
    /// How the stream resumes; none unless it is incremental.
    pub increment: Option<Increment>,
    /// How far the destination was when it was planned; none when it knows nothing of the stream,
    /// or where it does not matter.
    pub progress: Option<Progress>,
    /// The run adds columns to its target, and reads it from its first row to fill them.
    pub backfills: bool,
    /// The columns that the arguments leave out.
    pub(crate) left_out: Vec<String>,
    /// The policy allows that types change.
    pub(super) follows_types: bool,
    /// The transforms of its rows, in order.
    pub transforms: Vec<Step>,
    /// The columns that the destination gets, under their new names.
    pub schema: Schema,
    /// The read of its keys behind its rows, if the destination compares them.
    pub(crate) keys: Option<KeyRead>,
    /// The `Schema` message that the reader must give: the columns that move, under the source's names.
    pub(crate) read_schema: Vec<u8>,
    /// The source's own names of the columns' types.
    pub source_types: Vec<String>,
    /// The request to the destination.
    pub target: Target,
    /// The destination's plan. The engine compares its location, which may hold secrets.
    pub placed: Placed,
    /// The location without secrets, to be shown.
    pub location: String,
    /// The rejects that move instead of the rows of the source.
    pub(crate) replay: Option<Replay>,
}

/// A column of a stream on its way.
#[derive(Debug, Clone)]
pub struct PlannedColumn<'a> {
    /// The name that the destination gets.
    pub name: &'a str,
    /// The source's own name of its type.
    pub source_type: &'a str,
    /// The Arrow type that it has in between, by its name in a pipeline file.
    pub arrow_type: String,
    /// The destination's type.
    pub target_type: &'a str,
    /// How the type of the destination holds the values.
    pub fit: Fit,
    /// What the destination says about the column.
    pub note: Option<&'a str>,
}

/// The rows that a stream moves instead of the rows of its source.
#[derive(Clone)]
pub(crate) enum Replay {
    /// The source parses these records.
    Records(Vec<Reject>),
    /// The source is not asked.
    Rows(Vec<Batch>),
    /// The source reads the rows with these keys, which are repaired.
    Keys(KeyedRows),
}

/// The moment of a run, and the streams that cannot be read at it or held by the destination.
#[derive(Clone)]
pub struct Taken {
    /// The source's name of the moment; empty where no stream is left to read.
    pub(crate) snapshot: String,
    /// Positions in [`Plan::streams`], each with the reason.
    pub(crate) refused: Vec<(usize, Failure)>,
}

impl StreamPlan {
    /// The columns that move, in order.
    pub fn planned_columns(&self) -> Vec<PlannedColumn<'_>> {
        let fields = self.schema.fields().iter();
        let fields = fields.zip(&self.source_types).zip(&self.placed.columns);
        fields
            .map(|((field, from), to)| PlannedColumn {
                name: field.name(),
                source_type: from,
                arrow_type: types::type_name(field),
                target_type: &to.target_type,
                fit: to.fit,
                note: to.note.as_deref(),
            })
            .collect()
    }

    /// Warnings for the operator of a run, from the notes of the transforms and the destination.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let notes = self.placed.notes.iter();
        let placed = notes.filter_map(|note| note.strip_prefix(WARNING_NOTE));
        self.transforms
            .iter()
            .flat_map(Step::warnings)
            .chain(placed)
    }
}

impl Plan {
    /// One failure for all streams that cannot be moved, also those that the moment of the run refused. None if all
    /// streams can be moved.
    pub fn refusal(&self, taken: &Taken) -> Option<Failure> {
        let refused = self.all_refused(taken);
        let streams = self.streams.len() + self.refused.len();
        refusal(refused, streams, self.destination.connector.name())
    }

    /// All streams that cannot be moved, also those that the moment of the run refused.
    pub fn all_refused(&self, taken: &Taken) -> Vec<Refused> {
        let mut refused = self.refused.clone();
        let of_moment = taken.refused.iter();
        refused.extend(of_moment.map(|(index, failure)| Refused {
            stream: self.streams[*index].name.clone(),
            failure: failure.clone(),
        }));
        refused
    }

    /// The streams of `left` that move together, by their positions in [`Plan::streams`]. Each moves alone, unless the
    /// source reads several streams with one reader and the destination commits them together.
    pub(crate) fn groups(&self, left: impl Iterator<Item = usize>) -> VecDeque<Vec<usize>> {
        if self.source.spec.reads_together && self.destination.spec.commits_together {
            let group: Vec<usize> = left.collect();
            return [group].into_iter().filter(|one| !one.is_empty()).collect();
        }
        left.map(|index| vec![index]).collect()
    }

    /// All stages: the source, the transforms of the streams, and the destination.
    pub fn stages(&self) -> Vec<&Stage> {
        let transforms = self.streams.iter().flat_map(|stream| &stream.transforms);
        let mut known = HashSet::new();
        // Streams of one entry share it.
        let transforms = transforms.filter(|step| known.insert(&step.stage.key));
        let transforms = transforms.map(|step| &step.stage);
        let stages = [&self.source].into_iter().chain(transforms);
        stages.chain([&self.destination]).collect()
    }
}

/// The type of texts, as a pipeline file names it.
const TEXT: &str = "string";

/// The type of a column of a target without types.
const ANY: &str = "any";

impl StreamPlan {
    /// The request to the source.
    pub(crate) fn selection(&self, full_refresh: bool) -> Selection {
        let reached = self.progress.as_ref().filter(|_| !full_refresh);
        Selection {
            stream: self.name.clone(),
            columns: self.columns.clone(),
            filter: self.filter.clone(),
            query: self.query.clone(),
            increment: self.increment.clone(),
            cursor: reached.and_then(|progress| progress.cursor.clone()),
        }
    }

    /// The columns of the source whose inferred types may change while the stream is read: the target does not have them
    /// before the first commit, or has no types, and no setting depends on their values.
    pub(crate) fn free_types(&self) -> Vec<String> {
        let read = ipc::decode_schema(&self.read_schema);
        let Ok(read) = read.as_ref().map(Schema::fields) else {
            return Vec::new();
        };
        if !self.transforms.is_empty() || !self.follows_types {
            return Vec::new();
        }
        let Target {
            primary_key,
            dedup_fields,
            deleted_field,
            ..
        } = &self.target;
        let cursor = self.increment.iter().flat_map(|one| &one.cursor_fields);
        let cursor: HashSet<&String> = cursor.collect();
        let is_free = |(from, to): &(&Arc<Field>, &Arc<Field>)| {
            let name = to.name();
            // A target that the run changes before the first row has the type of the sample from then on.
            let is_added =
                self.placed.statements.is_empty() && self.placed.new_columns.contains(name);
            let mut stored = self.placed.columns.iter();
            let takes_any =
                stored.any(|one| one.column == *name && one.stored_type.as_deref() == Some(ANY));
            let is_new = self.placed.is_new || is_added || takes_any;
            let is_used = primary_key.contains(name)
                || dedup_fields.contains(name)
                || deleted_field.as_ref() == Some(name)
                || cursor.contains(from.name());
            is_new && !is_used && self.discovered.inferred.contains(from.name())
        };
        let columns = read.iter().zip(self.schema.fields()).filter(is_free);
        columns.map(|(from, _)| from.name().clone()).collect()
    }

    /// The stream with the types of the target in inferred columns that the target refuses, in columns of numbers that are
    /// wider in the target, and in columns of JSON for which the target has texts. `None` if there are none. A type of the target that does not hold the sample is not
    /// taken: the plan refuses the column.
    pub(super) fn as_stored(&self) -> Option<Stream> {
        let has_type =
            |column: &ColumnPlan| column.stored_type.as_ref().is_some_and(|ty| ty != ANY);
        if !self.transforms.is_empty() || !self.placed.columns.iter().any(has_type) {
            return None;
        }
        let read = ipc::decode_schema(&self.read_schema).ok()?;
        let mut discovered = self.discovered.clone();
        let all = ipc::decode_schema(&discovered.schema).ok()?;
        let mut fields: Vec<Arc<Field>> = all.fields().iter().cloned().collect();
        let mut is_changed = false;
        // The next run compares the values of a cursor as this run has read them.
        let cursor = self.increment.iter().flat_map(|one| &one.cursor_fields);
        let cursor: HashSet<&String> = cursor.collect();
        for (column, field) in self.placed.columns.iter().zip(read.fields()) {
            let name = field.name();
            let Some(stored) = column.stored_type.as_ref().filter(|ty| *ty != ANY) else {
                continue;
            };
            let takes_texts = types::is_json(field) || types::is_json_strings(field);
            // Behind the sample may be values that the sample does not need.
            let is_wider = column.fit == Fit::Widened
                && !cursor.contains(name)
                && is_exact_number(field)
                && types::parse_field(name, stored, true).is_ok_and(|ty| is_exact_number(&ty))
                && sampled::holds_sampled(field, stored);
            let is_other =
                is_wider || column.fit == Fit::Refused || (stored == TEXT && takes_texts);
            if !is_other || !discovered.inferred.contains(name) {
                continue;
            }
            // A record of the sample would fail in the run, unless the run keeps such records.
            let holds = sampled::holds_sampled(field, stored);
            if !holds && self.target.rejects.is_none() {
                continue;
            }
            let stored_field = match stored == TEXT && types::type_name(field) == TEXT {
                // What its metadata says of the strings stays true.
                true => field.as_ref().clone(),
                false => types::parse_field(name, stored, field.is_nullable()).ok()?,
            };
            let stored_field = types::mark_stored(stored_field);
            let at = all.index_of(name).ok()?;
            is_changed |= *fields[at] != stored_field;
            fields[at] = Arc::new(stored_field);
            if types::is_json_strings(field) {
                continue;
            }
            let of_column = format!("{name}: ");
            discovered
                .notes
                .retain(|note| !note.starts_with(&of_column));
            let but = match holds {
                true => "",
                false => ", which does not hold values of the sample: their records are rejects",
            };
            discovered
                .notes
                .push(format!("{name}: {stored} (the type of the target{but})"));
        }
        let schema = Schema::new_with_metadata(fields, all.metadata().clone());
        discovered.schema = ipc::encode_schema(&schema).ok()?;
        is_changed.then_some(discovered)
    }

    /// Refuses columns of texts that the destination would cast, where the source has already seen a text that no server
    /// reads so: the run would fail at it. Not where records that fail are kept.
    pub(super) fn refuse_texts(&mut self) {
        let Ok(read) = ipc::decode_schema(&self.read_schema) else {
            return;
        };
        if !self.transforms.is_empty() || self.target.rejects.is_some() {
            return;
        }
        let columns = self.placed.columns.iter_mut();
        for (column, field) in columns.zip(read.fields()) {
            let is_inferred = self.discovered.inferred.contains(field.name());
            let stored = column.stored_type.as_deref().unwrap_or_default();
            if column.fit == Fit::Checked && is_inferred && sampled::refuses_texts(field, stored) {
                column.fit = Fit::Refused;
                let text = format!(
                    "{} does not hold all texts that the source has sampled",
                    column.target_type
                );
                column.note = Some(text);
            }
        }
    }

    /// Why the destination cannot hold the stream: all columns that it refuses. None if it can.
    pub(super) fn unfit(&self) -> Option<Failure> {
        let columns = self.placed.columns.iter();
        let refused: Vec<_> = columns.filter(|c| c.fit == Fit::Refused).collect();
        let note = |column: &ColumnPlan| {
            let note = column.note.clone();
            note.unwrap_or_else(|| "the destination cannot hold its type".into())
        };
        let text = match refused.as_slice() {
            [] => return None,
            [column] => note(column),
            several => {
                let line = |column: &&ColumnPlan| format!("{}: {}", column.column, note(column));
                let lines: Vec<String> = several.iter().map(line).collect();
                format!(
                    "the destination refuses {} columns\n{}",
                    lines.len(),
                    lines.join("\n")
                )
            }
        };
        let it = if refused.len() == 1 { "it" } else { "them" };
        let mut failure = Failure::new(Class::Contract, "column_refused", text)
            .in_stream(&self.name)
            .hint(format!(
                "leave {it} out with columns:, choose another type at the source (schema:, if it has that key), or \
                 change the destination"
            ));
        if let [column] = refused.as_slice() {
            failure.column = Some(column.column.clone());
        }
        Some(failure)
    }
}

/// Whether a column holds integers or decimals, of which a wider type holds the same values.
fn is_exact_number(field: &Field) -> bool {
    let ty = field.data_type();
    ty.is_signed_integer() || matches!(ty, DataType::Decimal128(..) | DataType::Decimal256(..))
}

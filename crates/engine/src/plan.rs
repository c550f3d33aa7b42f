//! A document becomes a plan: connectors loaded and opened, streams found, types compared.
//! Nothing is written.

mod check;
mod choose;
mod deletes;
mod delivery;
mod fences;
mod moment;
mod open;
mod prepared;
mod privileges;
mod refused;
mod replan;
pub(crate) mod shown;
mod step;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use arrow_schema::{Field, Schema};
use rapidbyte_runtime::{
    ColumnPlan, Destination, DroppedColumn, Fit, Grants, Increment, NewColumn, Plan as Placed,
    Progress, Rejects, Relation, RenamedColumn, SchemaChanges, Selection, Spec, Stream, SyncMode,
    Target, TypeChange, WriteMode,
};
use rapidbyte_wire::{WARNING_NOTE, ipc, types};

use crate::document::{self, Document, StreamTarget, WhenRunning};
use crate::failure::{Class, Failure};
use crate::meant::did_you_mean;
use crate::rejects::Replay;
pub use check::{Checked, Looked, check};
use choose::{Chosen, some_of};
pub(crate) use deletes::KeyRead;
pub(crate) use delivery::{asked_increment, lost_rows};
use delivery::{identify, increment, refuse_computed, refuse_lost, refuse_repeats};
pub(crate) use fences::{fences_all, fences_runs};
pub use moment::Taken;
use open::Transforming;
pub use open::{Clocks, Discovered, SourceColumn, Stage, discover, granted, open_destination};
pub(crate) use open::{open_source, planning_sandbox};
pub(crate) use prepared::Held;
pub use prepared::Prepared;
pub use refused::Refused;
use refused::refusal;
pub(crate) use replan::{difference, replan};
pub use step::Step;

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
    follows_types: bool,
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

/// Whether the other streams can be moved. They cannot where the command is interrupted, the server is away, or the
/// pipeline sends two streams to one target, a stream to what it reads, or runs against each other: then moving one of
/// them does harm.
fn is_of_stream(failure: &Failure) -> bool {
    let is_of_all = matches!(
        failure.code.as_str(),
        SHARED_TARGET | TARGET_IS_SOURCE | CANNOT_REPLACE_RUN
    );
    !is_of_all && !failure.stops_run && failure.class != Class::Cancelled
}

/// Two streams have one target. Connectors have the same code.
const SHARED_TARGET: &str = "shared_target";
/// The run would write what it reads. Connectors have the same code.
const TARGET_IS_SOURCE: &str = "target_is_source";
/// Columns of the source have other names now. Connectors have the same code.
const COLUMNS_RENAMED: &str = "columns_renamed";
/// `when_running: replace`, and the destination does not fence the run that is replaced.
const CANNOT_REPLACE_RUN: &str = "cannot_replace_run";

/// The failure where no stream can be moved. A transient failure is returned as it is, because planning is then
/// retried.
fn refused_all(refused: Vec<Refused>, streams: usize, destination: &str) -> Failure {
    let passes = |refused: &&Refused| refused.failure.passes_after_ms.is_some();
    if let Some(passing) = refused.iter().find(passes) {
        return passing.failure.clone();
    }
    refusal(refused, streams, destination)
        .unwrap_or_else(|| Failure::new(Class::Run, "internal", "a refusal without a reason"))
}

/// The write mode that the pipeline asks for.
pub(crate) fn write_mode(document: &Document, stream: &document::Stream) -> WriteMode {
    match document.write_mode_of(stream) {
        document::WriteMode::Append => WriteMode::Append,
        document::WriteMode::Replace => WriteMode::Replace,
        document::WriteMode::Upsert => WriteMode::Upsert,
    }
}

/// The key that decides on the write mode of a stream.
pub(crate) fn write_mode_key(document: &Document, entry: usize) -> String {
    match document.source.streams[entry].write_mode {
        Some(_) => format!("source.streams[{entry}].write_mode"),
        None => "destination.write_mode".to_owned(),
    }
}

/// The policy for differences between the columns of a stream and the columns of its target.
pub(crate) fn schema_changes(document: &Document, stream: &document::Stream) -> SchemaChanges {
    let asked = stream.schema_changes.unwrap_or_default();
    let asked = asked.or(document.schema_changes);
    SchemaChanges {
        new_column: match asked.new_column.unwrap_or_default() {
            document::NewColumn::Add => NewColumn::Add,
            document::NewColumn::Ignore => NewColumn::Ignore,
            document::NewColumn::Fail => NewColumn::Fail,
        },
        dropped_column: match asked.dropped_column.unwrap_or_default() {
            document::DroppedColumn::Keep => DroppedColumn::Keep,
            document::DroppedColumn::Drop => DroppedColumn::Drop,
            document::DroppedColumn::Fail => DroppedColumn::Fail,
        },
        type_change: match asked.type_change.unwrap_or_default() {
            document::TypeChange::Widen => TypeChange::Widen,
            document::TypeChange::Rewrite => TypeChange::Rewrite,
            document::TypeChange::Fail => TypeChange::Fail,
        },
        renamed: match asked.renamed.unwrap_or_default() {
            document::Renamed::Detect => RenamedColumn::Detect,
            document::Renamed::Off => RenamedColumn::Off,
        },
    }
}

/// Whether the pipeline says what happens to types.
fn says_types(document: &Document, stream: &document::Stream) -> bool {
    let asked = stream.schema_changes.unwrap_or_default();
    asked.or(document.schema_changes).type_change.is_some()
}

/// The same for a run whose arguments leave columns out: their columns in the target stay as they are.
fn for_one_run(policy: SchemaChanges) -> SchemaChanges {
    SchemaChanges {
        dropped_column: DroppedColumn::Keep,
        type_change: TypeChange::Fail,
        ..policy
    }
}

fn sync_mode(mode: document::SyncMode) -> SyncMode {
    match mode {
        document::SyncMode::FullRefresh => SyncMode::FullRefresh,
        document::SyncMode::Incremental => SyncMode::Incremental,
        document::SyncMode::Cdc => SyncMode::Cdc,
    }
}

/// A mode's name in the pipeline file.
pub fn sync_mode_name(mode: SyncMode) -> &'static str {
    match mode {
        SyncMode::FullRefresh => "full_refresh",
        SyncMode::Incremental => "incremental",
        SyncMode::Cdc => "cdc",
    }
}

/// A mode's name in the pipeline file.
pub fn write_mode_name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Append => "append",
        WriteMode::Replace => "replace",
        WriteMode::Upsert => "upsert",
    }
}

fn check_modes(
    document: &Document,
    destination: &Stage,
    full_refresh: bool,
) -> Result<(), Failure> {
    let known = &destination.spec.write_modes;
    let name = destination.connector.name();
    if document.when_running == WhenRunning::Replace && !destination.spec.supports_checkpoints {
        let text =
            format!("{name} does not fence older runs: one of them could commit after this run");
        return Err(cannot_replace_run(document, text));
    }
    refuse_backfill(document)?;
    refuse_targets(document, destination)?;
    for (index, stream) in document.source.streams.iter().enumerate() {
        let mode = write_mode(document, stream);
        let grows = stream.sync_mode == document::SyncMode::Incremental;
        let key = format!("source.streams[{index}]");
        if !known.contains(&mode) {
            let known: Vec<_> = known.iter().map(|mode| write_mode_name(*mode)).collect();
            let text = format!(
                "{name} does not support write_mode {}",
                write_mode_name(mode)
            );
            let key = write_mode_key(document, index);
            return Err(
                Failure::at_key(document, &key, "unsupported_write_mode", text)
                    .hint(format!("it knows {}", known.join(", "))),
            );
        }
        if grows && !destination.spec.supports_checkpoints {
            let text = format!("{name} cannot store a cursor");
            return Err(
                Failure::at_key(document, &key, "unsupported_sync_mode", text)
                    .hint("set sync_mode: full_refresh, or write to another destination"),
            );
        }
        let replaces = grows && full_refresh && mode == WriteMode::Append;
        if replaces && !known.contains(&WriteMode::Replace) {
            let text = format!("{name} cannot replace rows, which --full-refresh needs");
            return Err(
                Failure::at_key(document, &key, "unsupported_write_mode", text)
                    .hint("empty the target yourself, then `rapidbyte state clear PIPELINE --all`"),
            );
        }
    }
    refuse_rejects(document, destination)?;
    refuse_repeats(document, destination)
}

/// A destination that does not know these keys would write to another target.
fn refuse_targets(document: &Document, destination: &Stage) -> Result<(), Failure> {
    let Spec {
        names_targets,
        has_namespaces,
        ..
    } = destination.spec;
    for (index, stream) in document.source.streams.iter().enumerate() {
        let Some(StreamTarget { name, schema }) = &stream.target else {
            continue;
        };
        let refused = [
            ("name", name.is_some() && !names_targets, "names of targets"),
            ("schema", schema.is_some() && !has_namespaces, "schemas"),
        ];
        if let Some((key, _, what)) = refused.iter().find(|(_, is_refused, _)| *is_refused) {
            let text = format!("{} does not have {what}", destination.connector.name());
            let key = format!("source.streams[{index}].target.{key}");
            return Err(Failure::at_key(document, &key, "unsupported_target", text)
                .hint("remove the key: the configuration of the destination says where rows go"));
        }
    }
    Ok(())
}

/// Without a key, rows that come again would be new rows.
fn refuse_backfill(document: &Document) -> Result<(), Failure> {
    let streams = document.source.streams.iter().enumerate();
    let mut appended =
        streams.filter(|(_, stream)| document.write_mode_of(stream) != document::WriteMode::Upsert);
    let fills = |policy: Option<document::SchemaChanges>| {
        policy.is_some_and(|policy| policy.backfill == Some(true))
    };
    let has_upsert = appended.clone().count() < document.source.streams.len();
    let key = match appended.find(|(_, stream)| fills(stream.schema_changes)) {
        Some((index, _)) => format!("source.streams[{index}].schema_changes.backfill"),
        None if fills(Some(document.schema_changes)) && !has_upsert => {
            "schema_changes.backfill".to_owned()
        }
        None => return Ok(()),
    };
    let text = "backfill updates rows that are there, which needs write_mode: upsert";
    Err(
        Failure::at_key(document, &key, "backfill_needs_upsert", text).hint(
            "set write_mode: upsert, or remove backfill: old rows then have NULL in new columns",
        ),
    )
}

/// How the rejects of a stream are kept. `None`: the first reject fails the stream.
pub(crate) fn rejects(document: &Document) -> Option<Rejects> {
    let rejects = &document.rejects;
    let to = rejects.to.clone().filter(|_| rejects.are_allowed())?;
    let max_rows = rejects.max_rows;
    Some(Rejects {
        to,
        max_rows,
        replayed: Vec::new(),
    })
}

/// Refuses rejects where the destination does not keep them.
pub(crate) fn refuse_rejects(document: &Document, destination: &Stage) -> Result<(), Failure> {
    if destination.spec.supports_rejects || rejects(document).is_none() {
        return Ok(());
    }
    let name = destination.connector.name();
    let text = format!("{name} has no place for rejects");
    let key = "rejects";
    Err(Failure::at_key(document, key, "unsupported_rejects", text)
        .hint("remove rejects: then the first record that fails stops its stream"))
}

/// The older run continues, and nothing would stop its last commit.
fn cannot_replace_run(document: &Document, text: String) -> Failure {
    let key = "when_running";
    Failure::at_key(document, key, CANNOT_REPLACE_RUN, text)
        .hint("set when_running: wait or when_running: refuse")
}

/// Plans a stream. A column whose type is inferred, and does not fit an existing target, gets the type of the target if
/// the target then refuses fewer columns: the source reads each value as that type, or refuses it.
fn place(
    document: &Document,
    chosen: Chosen,
    transforms: &mut [Transforming],
    destination: &mut Destination,
    full_refresh: bool,
) -> Result<StreamPlan, Failure> {
    let (columns, left_out) = (chosen.columns.clone(), chosen.left_out.clone());
    let entry = chosen.entry;
    let placed = place_as(document, chosen, transforms, destination, full_refresh)?;
    let Some(discovered) = placed.as_stored() else {
        return Ok(placed);
    };
    let chosen = Chosen {
        entry,
        discovered,
        columns,
        left_out,
    };
    let again = place_as(document, chosen, transforms, destination, full_refresh)?;
    let refused = |plan: &StreamPlan| {
        let columns = plan.placed.columns.iter();
        columns.filter(|column| column.fit == Fit::Refused).count()
    };
    let is_better = refused(&again) == 0 || refused(&again) < refused(&placed);
    Ok(if is_better { again } else { placed })
}

/// Plans a stream with the columns that the source describes.
fn place_as(
    document: &Document,
    chosen: Chosen,
    transforms: &mut [Transforming],
    destination: &mut Destination,
    full_refresh: bool,
) -> Result<StreamPlan, Failure> {
    let Chosen {
        entry,
        mut discovered,
        columns: wanted_columns,
        left_out,
    } = chosen;
    let asked = &document.source.streams[entry];
    let broken = |e: rapidbyte_wire::WireError| {
        Failure::new(Class::Run, "contract_broken", e).in_stream(&discovered.name)
    };
    let all = ipc::decode_schema(&discovered.schema).map_err(broken)?;
    types::check_portable(&all).map_err(broken)?;
    let mut wanted: Vec<usize> = (0..all.fields().len()).collect();
    if let Some(columns) = &wanted_columns {
        let names = all.fields().iter().map(|field| field.name().as_str());
        let known: HashMap<&str, usize> = names.zip(0..).collect();
        wanted = columns
            .iter()
            .map(|column| {
                let found = known.get(column.as_str()).copied();
                found.ok_or_else(|| unknown_column(document, entry, &discovered, &all, column))
            })
            .collect::<Result<_, _>>()?;
    }
    let read = all.project(&wanted).map_err(|e| broken(e.into()))?;
    let mut renamed = rename(document, entry, &discovered, &read, &left_out)?;
    if !transforms.is_empty() {
        renamed.metadata.remove(types::OLDER_VALUES);
    }
    let source_types: Vec<String> = wanted
        .iter()
        .map(|i| discovered.source_types.get(*i).cloned().unwrap_or_default())
        .collect();
    let relation = Relation {
        stream: discovered.name.clone(),
        schema: ipc::encode_schema(&renamed).map_err(broken)?,
        source_types: source_types.clone(),
        primary_key: moved_key(&discovered.primary_key, &read, &renamed),
    };
    let (transforms, relation) = step::all(document, entry, transforms, relation)?;
    let schema = ipc::decode_schema(&relation.schema).map_err(broken)?;
    let increment = increment(document, entry, &discovered, &all)?;
    if let (Some(_), Some(column)) = (&increment, left_out.first()) {
        let key = format!("source.streams[{entry}].sync_mode");
        let text = format!("without {column}, the next run would never deliver its values");
        return Err(Failure::at_key(document, &key, "columns_incremental", text)
            .in_stream(&discovered.name)
            .hint("leave columns out in the pipeline file: columns: [...]"));
    }
    // A transform may have given the columns their types.
    let is_guessed = !discovered.inferred.is_empty() && transforms.is_empty();
    let policy = match left_out.is_empty() {
        true => schema_changes(document, asked),
        false => for_one_run(schema_changes(document, asked)),
    };
    let mut target = Target {
        stream: discovered.name.clone(),
        name: asked.target.as_ref().and_then(|target| target.name.clone()),
        namespace: asked
            .target
            .as_ref()
            .and_then(|target| target.schema.clone()),
        schema: relation.schema,
        write_mode: write_mode(document, asked),
        primary_key: relation.primary_key,
        deleted_field: None,
        dedup_fields: Vec::new(),
        is_incremental: increment.is_some(),
        schema_changes: match is_guessed && !says_types(document, asked) {
            false => policy,
            // It asks for no other type of the target.
            true => SchemaChanges {
                type_change: TypeChange::Fail,
                ..policy
            },
        },
        rejects: rejects(document),
        deletes: deletes::asked(document, asked),
        repairs: None,
        stages: false,
    };
    identify(document, entry, (&read, &renamed), &schema, &mut target)?;
    let after = (&schema, relation.source_types.as_slice());
    refuse_computed(document, entry, &target, (&renamed, &source_types), after)?;
    let keys = deletes::key_read(document, entry, (&read, &renamed), &target)?;
    if increment.is_some() && target.write_mode == WriteMode::Append {
        // Each version of a row that was changed becomes a row of its own.
        if target.dedup_fields.is_empty() {
            target.primary_key.clear();
        }
        if full_refresh {
            target.write_mode = WriteMode::Replace;
        }
    }
    let failed = |e| {
        let failure = Failure::from_runtime(e, document, "destination");
        match failure.code == COLUMNS_RENAMED && !left_out.is_empty() {
            true => failure.hint(
                "run the stream with all of its columns first: that renames those of the target",
            ),
            false => failure,
        }
    };
    let mut placed = shown::placed(document, destination.plan(&target).map_err(failed)?);
    let replaces = document.when_running == WhenRunning::Replace;
    let standing = match replaces || increment.is_some() || keys.is_some() {
        true => {
            let standing = destination.standing(&target, &document.pipeline);
            Some(standing.map_err(failed)?)
        }
        false => None,
    };
    if replaces && standing.as_ref().is_some_and(|standing| !standing.fences) {
        let text = format!(
            "the destination does not fence older runs that write {}: one of them could still write it after this run",
            placed.location
        );
        return Err(cannot_replace_run(document, text).in_stream(&target.stream));
    }
    let progress = standing.filter(|_| increment.is_some() || keys.is_some());
    let mut progress = progress.and_then(|standing| standing.progress);
    if let (None, Some(progress)) = (&increment, &mut progress) {
        // A full refresh does not resume, whatever an earlier run left.
        progress.cursor = None;
    }
    let backfills = increment.is_some()
        && !full_refresh
        && fills_new_columns(document, asked, &mut placed, &target);
    if let (true, Some(progress)) = (backfills, &mut progress) {
        progress.cursor = None;
    }
    if !full_refresh {
        let place = |target: &Target| {
            let placed = destination.plan(target).map_err(failed)?;
            Ok(shown::placed(document, placed))
        };
        refuse_lost(progress.as_ref(), &target, &mut placed, place)?;
    }
    let reached = progress.as_ref().filter(|_| !full_refresh);
    let is_part = increment.as_ref().is_some_and(|increment| {
        increment.initial.is_some() || reached.is_some_and(|progress| progress.cursor.is_some())
    });
    if is_part {
        // The source estimates all rows, not only the rows that are left.
        (discovered.estimated_rows, discovered.estimated_bytes) = (None, None);
    }
    placed.notes.extend(hidden_in_rejects(asked, &target));
    Ok(StreamPlan {
        name: discovered.name.clone(),
        sync_mode: sync_mode(asked.sync_mode),
        columns: wanted_columns,
        filter: asked.filter.clone(),
        query: asked.query.clone(),
        increment,
        progress,
        backfills,
        left_out,
        follows_types: policy.type_change != TypeChange::Fail,
        keys,
        read_schema: ipc::encode_schema(&read).map_err(broken)?,
        transforms,
        schema,
        source_types: relation.source_types,
        target,
        location: document.redact(&placed.location),
        placed,
        discovered,
        replay: None,
    })
}

/// A note where rejects have values that the target does not have.
fn hidden_in_rejects(asked: &document::Stream, target: &Target) -> Option<String> {
    let rejects = target.rejects.as_ref()?;
    let how = match (asked.columns.is_some(), asked.transforms.is_empty()) {
        (true, true) => "with the fields that `columns` leaves out",
        (_, false) => "with the values as they are before the transforms",
        (false, true) => return None,
    };
    Some(format!("{} can have records {how}", rejects.to))
}

/// Whether the run reads the stream again to fill the columns that it adds. Adds a note about the rows that are there.
fn fills_new_columns(
    document: &Document,
    asked: &document::Stream,
    placed: &mut Placed,
    target: &Target,
) -> bool {
    if placed.new_columns.is_empty() || target.write_mode == WriteMode::Replace {
        return false;
    }
    let policy = asked
        .schema_changes
        .unwrap_or_default()
        .or(document.schema_changes);
    let fills = policy.backfill == Some(true) && target.write_mode == WriteMode::Upsert;
    let names = placed.new_columns.join(", ");
    let note = match (fills, target.is_incremental) {
        (true, true) => format!(
            "the run reads the stream from its first row, because schema_changes.backfill is true: new columns: {names}"
        ),
        // Every row comes anyway.
        (true, false) => return false,
        (false, _) => {
            format!("rows that are in the table are not read again for the new columns: {names}")
        }
    };
    placed.notes.push(note);
    fills
}

/// The source's key under the new names of its columns; none when one of them does not move,
/// because the rest need not be unique. `read` and `schema` are the same columns.
fn moved_key(key: &[String], read: &Schema, schema: &Schema) -> Vec<String> {
    let moved = |column: &String| {
        let index = read.index_of(column).ok()?;
        Some(schema.field(index).name().clone())
    };
    key.iter()
        .map(moved)
        .collect::<Option<_>>()
        .unwrap_or_default()
}

/// The columns under the names that the pipeline gives them. Batches carry no names, so nothing
/// else changes.
fn rename(
    document: &Document,
    entry: usize,
    stream: &Stream,
    read: &Schema,
    left_out: &[String],
) -> Result<Schema, Failure> {
    let asked = &document.source.streams[entry];
    let key = format!("source.streams[{entry}].rename");
    let mut fields: Vec<Arc<Field>> = read.fields().iter().cloned().collect();
    for (from, to) in asked
        .rename
        .iter()
        .filter(|(from, _)| !left_out.contains(from))
    {
        let index = read.index_of(from).map_err(|_| {
            let mut failure = unknown_column(document, entry, stream, read, from);
            failure.locate(document, &key);
            failure
        })?;
        fields[index] = Arc::new(fields[index].as_ref().clone().with_name(to));
    }
    let renamed = Schema::new_with_metadata(fields, read.metadata().clone());
    types::check_portable(&renamed).map_err(|error| {
        Failure::at_key(document, &key, "invalid_rename", error).in_stream(&stream.name)
    })?;
    Ok(renamed)
}

fn unknown_column(
    document: &Document,
    entry: usize,
    stream: &Stream,
    schema: &Schema,
    column: &str,
) -> Failure {
    let names: Vec<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let hint = match did_you_mean(column, names.iter().map(String::as_str)) {
        Some(near) => near,
        None => format!("it has {}", some_of(&names)),
    };
    let text = format!("the stream does not have a column {column:?}");
    let key = format!("source.streams[{entry}].columns");
    Failure::at_key(document, &key, "unknown_column", text)
        .in_stream(&stream.name)
        .hint(hint)
}

/// Two streams in one file would overwrite each other.
fn refuse_shared_targets(document: &Document, streams: &[StreamPlan]) -> Result<(), Failure> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for stream in streams {
        let location = stream.placed.location.as_str();
        if location.is_empty() {
            continue;
        }
        if let Some(other) = seen.insert(location, &stream.name) {
            let text = format!(
                "{other} and {} would both be written to {location}",
                stream.name
            );
            let key = "destination.config";
            return Err(Failure::at_key(document, key, SHARED_TARGET, text)
                .hint(
                    "put {stream} into the destination's path or table, or give one of them a name with `target:`",
                ));
        }
    }
    Ok(())
}

/// A file that is read and replaced would be lost if the new one is not what was meant, and what is
/// written into the pattern that is read would be read by the next run.
fn refuse_own_source(
    document: &Document,
    source: &Grants,
    destination: &Grants,
    streams: &[StreamPlan],
) -> Result<(), Failure> {
    let read = source.read_for(streams.iter().map(|stream| stream.name.as_str()));
    for stream in streams {
        let location = stream.placed.location.as_str();
        if destination.writes_what_is_read(location, &read) {
            let text = format!("the run would write {location}, which the source reads");
            let key = "destination.config";
            return Err(Failure::at_key(document, key, TARGET_IS_SOURCE, text)
                .in_stream(&stream.name)
                .hint("write to another file or directory"));
        }
    }
    Ok(())
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

    /// The stream with the types of the target in inferred columns that the target refuses, and in columns of JSON for
    /// which the target has texts. `None` if there are none.
    fn as_stored(&self) -> Option<Stream> {
        if !self.transforms.is_empty() {
            return None;
        }
        let read = ipc::decode_schema(&self.read_schema).ok()?;
        let mut discovered = self.discovered.clone();
        let all = ipc::decode_schema(&discovered.schema).ok()?;
        let mut fields: Vec<Arc<Field>> = all.fields().iter().cloned().collect();
        let mut is_changed = false;
        for (column, field) in self.placed.columns.iter().zip(read.fields()) {
            let name = field.name();
            let Some(stored) = column.stored_type.as_ref().filter(|ty| *ty != ANY) else {
                continue;
            };
            let takes_texts = types::is_json(field) || types::is_json_strings(field);
            let is_other = column.fit == Fit::Refused || (stored == TEXT && takes_texts);
            if !is_other || !discovered.inferred.contains(name) {
                continue;
            }
            let stored_field = types::parse_field(name, stored, field.is_nullable()).ok()?;
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
            discovered
                .notes
                .push(format!("{name}: {stored} (the type of the target)"));
        }
        let schema = Schema::new_with_metadata(fields, all.metadata().clone());
        discovered.schema = ipc::encode_schema(&schema).ok()?;
        is_changed.then_some(discovered)
    }

    /// Why the destination cannot hold the stream: all columns that it refuses. None if it can.
    fn unfit(&self) -> Option<Failure> {
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

#[cfg(test)]
mod tests {
    use arrow_schema::DataType;

    use super::*;

    #[test]
    fn a_key_moves_whole_under_its_new_names_or_not_at_all() {
        let schema = |names: &[&str]| {
            let field = |name: &&str| Field::new(*name, DataType::Int64, false);
            Schema::new(names.iter().map(field).collect::<Vec<_>>())
        };
        let (read, renamed) = (schema(&["b", "a", "c"]), schema(&["a", "id", "c"]));
        for (key, moved) in [
            (&["a", "b"][..], &["id", "a"][..]),
            (&["c"], &["c"]),
            (&["a", "left_out"], &[]),
            (&[], &[]),
        ] {
            let key: Vec<String> = key.iter().map(|name| (*name).into()).collect();
            assert_eq!(moved_key(&key, &read, &renamed), moved, "{key:?}");
        }
    }
}

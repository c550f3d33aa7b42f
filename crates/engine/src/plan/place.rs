//! The destination plans a stream.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema};
use rapidbyte_runtime::{
    Destination, Fit, Grants, Plan as Placed, Relation, SchemaChanges, Spec, Stream, Target,
    TypeChange, WriteMode,
};
use rapidbyte_wire::{ipc, types};

use super::choose::{Chosen, unknown_column};
use super::delivery::{identify, increment, refuse_computed, refuse_lost};
use super::modes::{for_one_run, rejects, says_types, schema_changes, sync_mode, write_mode};
use super::open::Transforming;
use super::planned::StreamPlan;
use super::refused::{SHARED_TARGET, TARGET_IS_SOURCE};
use super::support::cannot_replace_run;
use super::{deletes, shown, step};
use crate::document::{self, Document, WhenRunning};
use crate::failure::{Class, Failure};

/// Columns of the source have other names now. Connectors have the same code.
const COLUMNS_RENAMED: &str = "columns_renamed";

/// Plans a stream. A column whose type is inferred, and does not fit an existing target, gets the type of the target if
/// the target then refuses fewer columns: the source reads each value as that type, or refuses it. `source` describes the
/// source.
pub(super) fn place(
    document: &Document,
    source: &Spec,
    chosen: Chosen,
    transforms: &mut [Transforming],
    destination: &mut Destination,
    full_refresh: bool,
) -> Result<StreamPlan, Failure> {
    let (columns, left_out) = (chosen.columns.clone(), chosen.left_out.clone());
    let entry = chosen.entry;
    let placed = place_as(
        document,
        source,
        chosen,
        transforms,
        destination,
        full_refresh,
    )?;
    let Some(discovered) = placed.as_stored() else {
        return Ok(placed);
    };
    let chosen = Chosen {
        entry,
        discovered,
        columns,
        left_out,
    };
    let again = place_as(
        document,
        source,
        chosen,
        transforms,
        destination,
        full_refresh,
    )?;
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
    source: &Spec,
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
                found.ok_or_else(|| {
                    unknown_column(document, source, entry, (&discovered, &all), column)
                })
            })
            .collect::<Result<_, _>>()?;
    }
    let read = all.project(&wanted).map_err(|e| broken(e.into()))?;
    let mut renamed = rename(document, source, entry, (&discovered, &read), &left_out)?;
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
    let read_schema = match renamed == read {
        true => relation.schema.clone(),
        false => ipc::encode_schema(&read).map_err(broken)?,
    };
    let (transforms, relation) = step::all(document, entry, transforms, relation)?;
    let schema = match transforms.is_empty() {
        true => renamed.clone(),
        false => ipc::decode_schema(&relation.schema).map_err(broken)?,
    };
    let increment = increment(document, source, entry, (&discovered, &all))?;
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
    let mut planned = StreamPlan {
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
        read_schema,
        transforms,
        schema,
        source_types: relation.source_types,
        target,
        location: document.redact(&placed.location),
        placed,
        discovered,
        replay: None,
    };
    planned.refuse_texts();
    Ok(planned)
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
    source: &Spec,
    entry: usize,
    (stream, read): (&Stream, &Schema),
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
            let mut failure = unknown_column(document, source, entry, (stream, read), from);
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

/// Two streams in one file would overwrite each other.
pub(super) fn refuse_shared_targets(
    document: &Document,
    streams: &[StreamPlan],
) -> Result<(), Failure> {
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
pub(super) fn refuse_own_source(
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

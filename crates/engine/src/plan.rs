//! A document becomes a plan: connectors loaded and opened, streams found, types compared.
//! Nothing is written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{Field, Schema};
use rapidbyte_runtime::{
    Clock, Connector, Destination, Fit, Grants, Kind, Limits, MemoryBudget, Phase, Plan as Placed,
    Sandbox, Selection, Source, Spec, Stream, SyncMode, Target, WriteMode,
};
use rapidbyte_wire::{ipc, types};
use serde_json::{Map, Value};

use crate::document::{self, Document};
use crate::failure::{Class, Failure};
use crate::host::{Host, nearest};
use crate::narrow::{Candidate, Narrowing};

/// Everything that a run will do, settled before the first row.
pub struct Plan {
    /// What was asked for.
    pub document: Document,
    /// The reading side.
    pub source: Stage,
    /// The writing side.
    pub destination: Stage,
    /// What moves, in order.
    pub streams: Vec<StreamPlan>,
    /// Rows of each stream at most.
    pub limit: Option<u64>,
    /// Where the time of planning went.
    pub clocks: Clocks,
    /// Kept open for the whole run: it holds the snapshot.
    /// Used by the running thread alone; the mutex lets the stages share the plan.
    pub(crate) coordinator: Mutex<Source>,
}

/// One clock for each side: both are opened at a time, and wait for each other.
pub struct Clocks {
    /// Of the source.
    pub source: Clock,
    /// Of the destination.
    pub destination: Clock,
}

/// One side of the pipeline.
pub struct Stage {
    /// The loaded connector.
    pub connector: Connector,
    /// What it says of itself.
    pub spec: Spec,
    /// Its configuration as JSON.
    pub config: String,
    /// What it may reach.
    pub grants: Arc<Grants>,
}

/// One stream's way.
pub struct StreamPlan {
    /// The source's name of it.
    pub name: String,
    /// How it is read.
    pub sync_mode: SyncMode,
    /// The wanted columns; none means all.
    pub columns: Option<Vec<String>>,
    /// What the source said.
    pub discovered: Stream,
    /// Only rows that meet it.
    pub filter: Option<String>,
    /// The columns that move, under their new names.
    pub schema: Schema,
    /// The `Schema` message that the reader must give: the same columns under the source's names.
    pub(crate) read_schema: Vec<u8>,
    /// The source's own names of the columns' types.
    pub source_types: Vec<String>,
    /// What the destination is asked to write.
    pub target: Target,
    /// What the destination will do.
    pub placed: Placed,
}

/// Native forms that both sides know.
fn common_forms(source: &Spec, destination: &Spec) -> Vec<String> {
    let takes = &destination.native_forms;
    source
        .native_forms
        .iter()
        .filter(|form| takes.contains(form))
        .cloned()
        .collect()
}

impl Plan {
    /// Loads, opens and asks both connectors.
    pub fn new(document: Document, host: &Host) -> Result<Self, Failure> {
        Self::narrowed(document, host, &Narrowing::default())
    }

    /// The same for a part of what the pipeline moves.
    pub fn narrowed(
        document: Document,
        host: &Host,
        narrowing: &Narrowing,
    ) -> Result<Self, Failure> {
        narrowing.check(&document)?;
        let clocks = Clocks {
            source: Clock::new(),
            destination: Clock::new(),
        };
        let opened = open_both(&document, host, &clocks)?;
        let (source, coordinator, found) = opened.reading;
        let (destination, mut writer) = opened.writing;
        check_modes(&document, &destination)?;
        clocks.source.enter(Phase::ChannelWait);
        clocks.destination.enter(Phase::Other);
        let mut streams = Vec::new();
        let selected = select(&document, &source.spec, found?)?;
        for chosen in narrow(&document, selected, narrowing)? {
            streams.push(place(&document, chosen, &mut writer)?);
        }
        refuse_shared_targets(&document, &streams)?;
        drop(writer);
        clocks.source.enter(Phase::Other);
        clocks.destination.enter(Phase::ChannelWait);
        Ok(Self {
            document,
            source,
            destination,
            streams,
            limit: narrowing.limit,
            clocks,
            coordinator: Mutex::new(coordinator),
        })
    }

    /// Fixes the moment of the run; the source refuses what it cannot read as it is selected, which
    /// only `plan` and `check` throw away then.
    pub fn snapshot(&mut self) -> Result<String, Failure> {
        let selections: Vec<Selection> = self
            .streams
            .iter()
            .map(|stream| Selection {
                stream: stream.name.clone(),
                columns: stream.columns.clone(),
                filter: stream.filter.clone(),
            })
            .collect();
        self.coordinator()
            .snapshot(&selections)
            .map_err(|e| Failure::from_runtime(e, &self.document, "source"))
    }

    pub(crate) fn coordinator(&mut self) -> &mut Source {
        self.coordinator
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Native forms that both sides know.
    pub(crate) fn forms(&self) -> Vec<String> {
        common_forms(&self.source.spec, &self.destination.spec)
    }
}

/// Both sides, open.
struct Opened {
    /// With what the source has, or why it could not say.
    reading: (Stage, Source, Result<Vec<Stream>, Failure>),
    writing: (Stage, Destination),
}

/// Opens both sides at a time, each on a thread: most of it is loading code and logging in. A
/// failure of the source is told first.
fn open_both(document: &Document, host: &Host, clocks: &Clocks) -> Result<Opened, Failure> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let clock = &clocks.destination;
            let stage = open_stage(document, host, clock, Side::DESTINATION)?;
            // Nobody listens when the source has failed.
            let _ = tell.send(stage.spec.clone());
            drop(tell);
            let writer = begin_destination(&stage, document, host, clock)?;
            clock.enter(Phase::ChannelWait);
            Ok((stage, writer))
        });
        let clock = &clocks.source;
        let reading = open_source(document, host, clock).map(|(stage, mut source)| {
            let before = clock.enter(Phase::ChannelWait);
            let other = told.recv();
            clock.enter(before);
            let found = match other {
                Ok(other) => source
                    .discover(&common_forms(&stage.spec, &other))
                    .map_err(|e| Failure::from_runtime(e, document, "source")),
                // Its failure is the one that is told.
                Err(_) => Ok(Vec::new()),
            };
            (stage, source, found)
        });
        clock.enter(Phase::ChannelWait);
        let writing = writing.join().unwrap_or_else(|_| {
            let text = "the destination's thread panicked: this is a fault of the engine";
            Err(Failure::new(Class::Run, "internal", text))
        });
        Ok(Opened {
            reading: reading?,
            writing: writing?,
        })
    })
}

/// Loads the source, checks its configuration and opens a session.
pub fn open_source(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<(Stage, Source), Failure> {
    let stage = open_stage(document, host, clock, Side::SOURCE)?;
    let failed = |e| Failure::from_runtime(e, document, "source");
    let sandbox = planning_sandbox(document, host, clock, &stage.grants);
    let mut source = stage.connector.source(sandbox).map_err(failed)?;
    source.open(&stage.config).map_err(failed)?;
    Ok((stage, source))
}

/// Loads the destination, checks its configuration and opens a session.
pub fn open_destination(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<(Stage, Destination), Failure> {
    let stage = open_stage(document, host, clock, Side::DESTINATION)?;
    let destination = begin_destination(&stage, document, host, clock)?;
    Ok((stage, destination))
}

fn begin_destination(
    stage: &Stage,
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<Destination, Failure> {
    let failed = |e| Failure::from_runtime(e, document, "destination");
    let sandbox = planning_sandbox(document, host, clock, &stage.grants);
    let mut destination = stage.connector.destination(sandbox).map_err(failed)?;
    destination.open(&stage.config).map_err(failed)?;
    Ok(destination)
}

struct Side {
    name: &'static str,
    kind: Kind,
}

impl Side {
    const SOURCE: Self = Self {
        name: "source",
        kind: Kind::Source,
    };
    const DESTINATION: Self = Self {
        name: "destination",
        kind: Kind::Destination,
    };
}

fn open_stage(
    document: &Document,
    host: &Host,
    clock: &Clock,
    side: Side,
) -> Result<Stage, Failure> {
    let key = format!("{}.use", side.name);
    let (used, config) = match side.kind {
        Kind::Source => (&document.source.connector, &document.source.config),
        Kind::Destination => (
            &document.destination.connector,
            &document.destination.config,
        ),
    };
    let located = |mut failure: Failure| {
        let place = Failure::at_key(document, &key, "", "");
        failure.location = place.location;
        failure.key = place.key;
        failure
    };
    let origin = host.find(used, &document.base_dir).map_err(located)?;
    let before = clock.enter(Phase::Load);
    let loaded = host.runtime.load(&origin);
    clock.enter(before);
    let connector = loaded.map_err(|e| located(Failure::from_runtime(e, document, side.name)))?;
    if connector.kind() != side.kind {
        let text = format!(
            "{used} is a {}",
            if side.name == "source" {
                "destination"
            } else {
                "source"
            }
        );
        return Err(located(Failure::new(Class::Config, "wrong_world", text))
            .hint(format!("name a {} here", side.name)));
    }
    let spec = host
        .describe(&connector, clock)
        .map_err(|e| Failure::from_runtime(e, document, side.name))?;
    let schema: Value = serde_json::from_str(&spec.config_schema).map_err(|error| {
        let text = format!(
            "{}: the config schema is no JSON: {error}",
            connector.name()
        );
        Failure::new(Class::Run, "contract_broken", text)
    })?;
    document.keep_secrets(&schema, config);
    let config_key = format!("{}.config", side.name);
    refuse_unknown_keys(document, &schema, &schema, config, &config_key, 0)?;
    let grants = Arc::new(Grants::from_config(&schema, config, &document.base_dir));
    let config = Value::Object(config.clone()).to_string();
    Ok(Stage {
        connector,
        spec,
        config,
        grants,
    })
}

/// Each side may take half of the memory for planning, before a run has all of it: a source that
/// samples may have to hold one whole record.
fn planning_sandbox(
    document: &Document,
    host: &Host,
    clock: &Clock,
    grants: &Arc<Grants>,
) -> Sandbox {
    Sandbox {
        grants: Arc::clone(grants),
        memory: MemoryBudget::new(document.resources.memory as usize / 2),
        limits: Limits::default(),
        clock: clock.clone(),
        cancel: host.cancel.clone(),
        log: Arc::clone(&host.log),
        stream: None,
    }
}

/// Configuration objects nested deeper than this are left to the connector.
const MAX_CONFIG_DEPTH: usize = 16;

/// A key that the connector's schema does not know, with the nearest known one.
fn refuse_unknown_keys(
    document: &Document,
    root: &Value,
    schema: &Value,
    config: &Map<String, Value>,
    at: &str,
    depth: usize,
) -> Result<(), Failure> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (key, value) in config {
        let path = format!("{at}.{key}");
        let Some(property) = properties.and_then(|p| p.get(key)) else {
            if !closed {
                continue;
            }
            let known = properties.map(|p| p.keys().map(String::as_str).collect::<Vec<_>>());
            let known = known.unwrap_or_default();
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => "this connector takes no configuration".into(),
                None => format!("known are {}", known.join(", ")),
            };
            let text = format!("unknown key {key:?}");
            return Err(Failure::at_key(document, &path, "unknown_key", text).hint(hint));
        };
        let reference = property.get("$ref").and_then(Value::as_str);
        let property = reference
            .and_then(|r| root.pointer(r.trim_start_matches('#')))
            .unwrap_or(property);
        if let (Value::Object(inner), true) = (value, depth < MAX_CONFIG_DEPTH) {
            refuse_unknown_keys(document, root, property, inner, &path, depth + 1)?;
        }
    }
    Ok(())
}

fn write_mode(document: &Document) -> WriteMode {
    match document.destination.write_mode {
        document::WriteMode::Append => WriteMode::Append,
        document::WriteMode::Replace => WriteMode::Replace,
        document::WriteMode::Upsert => WriteMode::Upsert,
    }
}

fn sync_mode(mode: document::SyncMode) -> SyncMode {
    match mode {
        document::SyncMode::FullRefresh => SyncMode::FullRefresh,
        document::SyncMode::Incremental => SyncMode::Incremental,
        document::SyncMode::Cdc => SyncMode::Cdc,
    }
}

/// A mode's name as it stands in the pipeline file.
pub fn sync_mode_name(mode: SyncMode) -> &'static str {
    match mode {
        SyncMode::FullRefresh => "full_refresh",
        SyncMode::Incremental => "incremental",
        SyncMode::Cdc => "cdc",
    }
}

/// A mode's name as it stands in the pipeline file.
pub fn write_mode_name(mode: WriteMode) -> &'static str {
    match mode {
        WriteMode::Append => "append",
        WriteMode::Replace => "replace",
        WriteMode::Upsert => "upsert",
    }
}

fn check_modes(document: &Document, destination: &Stage) -> Result<(), Failure> {
    let mode = write_mode(document);
    let known = &destination.spec.write_modes;
    if known.contains(&mode) {
        return Ok(());
    }
    let name = destination.connector.name();
    let known: Vec<_> = known.iter().map(|mode| write_mode_name(*mode)).collect();
    let text = format!("{name} does not know write_mode {}", write_mode_name(mode));
    Err(Failure::at_key(
        document,
        "destination.write_mode",
        "unsupported_write_mode",
        text,
    )
    .hint(format!("it knows {}", known.join(", "))))
}

/// The found streams that the document asks for, in its order. An exact name wins over a
/// wildcard; a stream that several wildcards cover moves once, by the first.
fn select(
    document: &Document,
    source: &Spec,
    found: Vec<Stream>,
) -> Result<Vec<(usize, Stream)>, Failure> {
    let names: Vec<String> = found.iter().map(|stream| stream.name.clone()).collect();
    for (index, entry) in document.source.streams.iter().enumerate() {
        let key = format!("source.streams[{index}]");
        let mode = sync_mode(entry.sync_mode);
        if !source.sync_modes.contains(&mode) {
            let name = sync_mode_name(mode);
            let text = format!("{} does not know sync_mode {name}", source.name);
            return Err(Failure::at_key(
                document,
                &key,
                "unsupported_sync_mode",
                text,
            ));
        }
        if entry.filter.is_some() && !source.takes_filter {
            let key = format!("{key}.where");
            let text = format!("{} cannot filter rows", source.name);
            return Err(Failure::at_key(document, &key, "unsupported_where", text)
                .hint("leave where: out, or filter behind the pipeline"));
        }
        if names.iter().any(|name| entry.matches(name)) {
            continue;
        }
        let (code, text) = if entry.is_pattern() {
            (
                "wildcard_matches_nothing",
                format!("{:?} matches no stream", entry.name),
            )
        } else {
            ("unknown_stream", format!("no stream {:?}", entry.name))
        };
        let hint = match nearest(&entry.name, names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("the source has {}", some_of(&names)),
        };
        return Err(Failure::at_key(document, &key, code, text).hint(hint));
    }
    let mut selected: Vec<(usize, Stream)> = found
        .into_iter()
        .filter_map(|stream| Some((document.source.entry_for(&stream.name)?, stream)))
        .collect();
    selected.sort_by_key(|(index, _)| *index);
    Ok(selected)
}

fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names.len() {
        0 => "no streams".into(),
        n if n > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

/// A stream that moves, and why.
struct Chosen {
    /// Its entry in the pipeline.
    entry: usize,
    discovered: Stream,
    /// The wanted columns; none means all.
    columns: Option<Vec<String>>,
    /// Columns of the pipeline that do not move this time.
    left_out: Vec<String>,
}

/// What is left of the selected streams and their columns.
fn narrow(
    document: &Document,
    selected: Vec<(usize, Stream)>,
    narrowing: &Narrowing,
) -> Result<Vec<Chosen>, Failure> {
    let candidate = |(entry, stream): &(usize, Stream)| {
        let asked = document.source.streams[*entry].columns.clone();
        let columns = match asked {
            Some(columns) => columns,
            None => {
                let schema = ipc::decode_schema(&stream.schema).map_err(|error| {
                    Failure::new(Class::Run, "contract_broken", error).in_stream(&stream.name)
                })?;
                schema.fields().iter().map(|f| f.name().clone()).collect()
            }
        };
        Ok(Candidate {
            name: stream.name.clone(),
            columns,
        })
    };
    let candidates: Vec<Candidate> = selected
        .iter()
        .map(candidate)
        .collect::<Result<_, Failure>>()?;
    let kept = narrowing.kept(&candidates)?;
    let mut chosen = Vec::new();
    for (((entry, discovered), candidate), kept) in selected.into_iter().zip(candidates).zip(kept) {
        let Some(kept) = kept else { continue };
        let mut left_out = candidate.columns;
        left_out.retain(|column| !kept.contains(column));
        let asked = &document.source.streams[entry].columns;
        let columns = match left_out.is_empty() {
            true => asked.clone(),
            false => Some(kept),
        };
        chosen.push(Chosen {
            entry,
            discovered,
            columns,
            left_out,
        });
    }
    Ok(chosen)
}

fn place(
    document: &Document,
    chosen: Chosen,
    destination: &mut Destination,
) -> Result<StreamPlan, Failure> {
    let Chosen {
        entry,
        discovered,
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
        wanted = columns
            .iter()
            .map(|column| {
                all.index_of(column)
                    .map_err(|_| unknown_column(document, entry, &discovered, &all, column))
            })
            .collect::<Result<_, _>>()?;
    }
    let read = all.project(&wanted).map_err(|e| broken(e.into()))?;
    let schema = rename(document, entry, &discovered, &read, &left_out)?;
    let source_types = wanted
        .iter()
        .map(|i| discovered.source_types.get(*i).cloned().unwrap_or_default())
        .collect();
    let asked_key = &document.destination.primary_key;
    let target = Target {
        stream: discovered.name.clone(),
        schema: ipc::encode_schema(&schema).map_err(broken)?,
        write_mode: write_mode(document),
        primary_key: match asked_key.is_empty() {
            true => moved_key(&discovered.primary_key, &read, &schema),
            false => asked_key.clone(),
        },
    };
    let placed = destination
        .plan(&target)
        .map_err(|e| Failure::from_runtime(e, document, "destination"))?;
    Ok(StreamPlan {
        name: discovered.name.clone(),
        sync_mode: sync_mode(asked.sync_mode),
        columns: wanted_columns,
        filter: asked.filter.clone(),
        read_schema: ipc::encode_schema(&read).map_err(broken)?,
        schema,
        source_types,
        target,
        placed,
        discovered,
    })
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
        Failure::at_key(document, &key, "bad_rename", error).in_stream(&stream.name)
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
    let hint = match nearest(column, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!("it has {}", some_of(&names)),
    };
    let text = format!("no column {column:?}");
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
            return Err(Failure::at_key(document, key, "shared_target", text)
                .hint("put {stream} into the destination's path or table"));
        }
    }
    Ok(())
}

impl StreamPlan {
    /// Refuses what the destination cannot hold, before the first row.
    pub fn refuse_unfit(&self) -> Result<(), Failure> {
        let refused = self
            .placed
            .columns
            .iter()
            .find(|column| column.fit == Fit::Refused);
        let Some(column) = refused else { return Ok(()) };
        let note = column
            .note
            .as_deref()
            .unwrap_or("the destination cannot hold its type");
        let mut failure = Failure::new(Class::Contract, "column_refused", note)
            .in_stream(&self.name)
            .hint(
                "leave it out with columns:, have the source give another type (schema:, where it \
                 takes one), or change the destination",
            );
        failure.column = Some(column.column.clone());
        Err(failure)
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

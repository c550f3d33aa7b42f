//! `source.streams`: what is read, and how each stream goes on.

use rapidbyte_wire::{counted, name::canonical};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::changes::{SchemaChanges, schema_changes};
use super::covers_stream;
use super::declare::{Keys, Kind, keys, words};
use super::deletes::{Deletes, deletes};
use super::error::{Result, code};
use super::keys::{PRIMARY_KEY_EXAMPLE, WriteMode, connector, ensure_upserts};
use super::kinds::{Distinct, list, mapping, name, names, object, one_or_more, pairs, value, word};
use super::node::NodeValue;
use super::read::Spot;

/// Transforms of one stream. Each has a thread and an instance of its own.
const MAX_TRANSFORMS: usize = 16;
/// Steps of one stream.
const MAX_STEPS: usize = 256;
/// The connector whose steps are entries of `transforms`.
pub(super) const BUILT_IN: &str = "transform-columns";
const TRANSFORMS_EXAMPLE: &str = "transforms: [{ use: ./mask.wasm }]";
const COLUMNS_EXAMPLE: &str = "columns: [id, total], or remove the key to take all columns";

keys! {
    /// One entry of `source.streams`: a name alone, or a mapping.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Stream {
        /// A stream of the source; * and ? match several. An exact name overrides a wildcard.
        pub name: String = name().or(String::new()).required("write - name: public.orders"),
        /// The stream consists of the rows of this query, in the source's own language (SQL).
        ///
        /// Read with sync_mode: full_refresh. A source without queries refuses it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub query: Option<String> = name().optional(),
        /// How to read a stream (default full_refresh).
        pub sync_mode: SyncMode = word().or(SyncMode::FullRefresh),
        /// The columns to move, in this order (default: all).
        pub columns: Option<Vec<String>> = names(COLUMNS_EXAMPLE).optional(),
        /// Move only rows that match this condition, in the source's own language (SQL).
        ///
        /// A source without conditions refuses it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub filter as "where": Option<String> = name().optional(),
        /// New names of columns in the destination: old name to new name.
        #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
        pub rename: Vec<(String, String)> = pairs().or(Vec::new()),
        /// For incremental: the columns that order the rows, the most significant first.
        ///
        /// Under the source's names. May be left out with `change_detection: xmin`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub cursor_field: Vec<String> = cursor_field().or(Vec::new()),
        /// The values at which the first read starts: one for each of cursor_field.
        ///
        /// In the source's own form. Absent: with the first row.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cursor_initial: Option<Vec<String>> =
            one_or_more(value(), list(value(), "cursor_initial: [2026-01-01, 1000]", None))
                .optional(),
        /// How an incremental read finds new and changed rows. cursor: by the values of
        /// cursor_field; rows committed late are found only within lag. xmin: by PostgreSQL's
        /// transaction ids; no row is missed, and each run scans the whole table.
        #[serde(skip_serializing_if = "ChangeDetection::is_default")]
        pub change_detection: ChangeDetection = word().or(ChangeDetection::Cursor),
        /// Read again the rows up to this far below the cursor, such as 5 minutes or 1000.
        ///
        /// In the source's own form; with `change_detection: cursor`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub lag: Option<String> = value().optional(),
        /// The target of this stream (default: as the configuration of the destination says).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target: Option<StreamTarget> = mapping::<StreamTarget>().then(named).optional(),
        /// What happens to the rows that are already in the target (default: write_mode of destination).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub write_mode: Option<WriteMode> = word().optional(),
        /// The columns that identify a row; for upsert, or append with a lag.
        ///
        /// Under their new names; else those of `destination`, else, with `upsert`, the source's
        /// own key.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub primary_key: Vec<String> = names(PRIMARY_KEY_EXAMPLE).or(Vec::new()),
        /// For upsert: the column that marks a row as deleted.
        ///
        /// A row is deleted in the destination if its value is true, or not null where it is not
        /// boolean; else that of `destination`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deleted_field: Option<String> = name().optional(),
        /// What happens if the columns of the stream and those of its target differ (default of each key:
        /// schema_changes at the top level).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub schema_changes: Option<SchemaChanges> = schema_changes().optional(),
        /// For upsert: what happens to rows of the target that the source has deleted (default: deletes at
        /// the top level).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deletes: Option<Deletes> = deletes().optional(),
        /// The transforms of the rows, in this order, after columns, where and rename.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub transforms: Vec<Transform> = transforms().or(Vec::new()),
    }
}

keys! {
    /// `target` of a stream: where its rows go.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
    pub struct StreamTarget {
        /// The name of the table, or the text for {stream} in the path of files.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String> = name().optional(),
        /// The schema of the table.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub schema: Option<String> = name().optional(),
    }
}

keys! {
    /// One entry of a stream's `transforms`.
    #[derive(Clone, PartialEq, Eq, Serialize)]
    pub struct Transform {
        /// A bundled transform, or the path of a .wasm file.
        pub connector as "use": String = connector("name the path of a .wasm file"),
        /// The transform's own configuration.
        pub config: Map<String, Value> = object().or(Map::new()),
        ;
        /// Its place in the file.
        #[serde(skip)]
        pub(super) place: Place,
    }
}

/// The place of a transform in the list of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Its entry, or the first of its steps.
    entry: usize,
    /// It consists of entries that are steps of the built-in transform.
    has_steps: bool,
}

impl Transform {
    /// The path in the file of the thing at `path` below the transform. `path` names a step as `config.steps[0]`, even
    /// if the step is an entry of its own in the file.
    pub(super) fn path_in_file(&self, path: &str) -> String {
        let Place { entry, has_steps } = self.place;
        let step = || {
            let (number, rest) = path.strip_prefix(".config.steps[")?.split_once(']')?;
            Some((number.parse::<usize>().ok()?, rest))
        };
        match step().filter(|_| has_steps) {
            Some((number, rest)) => format!("[{}]{rest}", entry + number),
            None if has_steps => format!("[{entry}]"),
            None => format!("[{entry}]{path}"),
        }
    }
}

keys! {
    /// `defaults`: what holds for every stream that does not say otherwise.
    #[derive(Clone)]
    pub(super) struct Defaults: Default {
        /// How to read a stream (default full_refresh).
        sync_mode: SyncMode = word().or(SyncMode::FullRefresh),
        /// For incremental: the columns that order the rows, the most significant first.
        cursor_field: Vec<String> = cursor_field().or(Vec::new()),
        /// How an incremental read finds new and changed rows. cursor: by the values of
        /// cursor_field; rows committed late are found only within lag. xmin: by PostgreSQL's
        /// transaction ids; no row is missed, and each run scans the whole table.
        change_detection: ChangeDetection = word().or(ChangeDetection::Cursor),
        /// Read again the rows up to this far below the cursor, such as 5 minutes or 1000.
        lag: Option<String> = value().optional(),
    }
}

words! {
    /// `sync_mode`: how a stream is read. `defaults: { sync_mode }` sets it for every stream that
    /// does not say.
    pub enum SyncMode {
        /// All rows, each time.
        #[default]
        FullRefresh = "full_refresh",
        /// The rows that are new since the last run, by a cursor.
        Incremental = "incremental",
        /// The changes, from the system's own log.
        Cdc = "cdc",
    }
}

words! {
    /// `change_detection`: how an incremental read finds the rows that are new or changed.
    pub enum ChangeDetection {
        /// By the values of `cursor_field`. Rows that are committed late, below the cursor, are
        /// found only where `lag` reads them again.
        #[default]
        Cursor = "cursor",
        /// By PostgreSQL's transaction ids: no row is missed, however late it is committed. Each
        /// read scans the whole table.
        Xmin = "xmin",
    }
}

impl ChangeDetection {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Stream {
    /// A stream that is read whole, with all its columns.
    pub(super) fn named(name: String) -> Self {
        Self {
            name,
            ..Self::absent().expect("every key has a default")
        }
    }

    /// Whether rows below the cursor are read again, by a lag.
    pub fn is_read_again(&self) -> bool {
        let by_lag = self.change_detection == ChangeDetection::Cursor && self.lag.is_some();
        by_lag && self.sync_mode == SyncMode::Incremental
    }

    /// Whether the name holds a wildcard.
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }

    /// Whether the name, with its wildcards, matches a discovered stream.
    pub fn matches(&self, stream: &str) -> bool {
        covers_stream(&self.name, stream)
    }
}

fn as_map<S: serde::Serializer>(
    pairs: &[(String, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(from, to)| (from, to)))
}

/// The streams of a source, each a name or a mapping.
pub(super) fn streams() -> Kind<Vec<Stream>> {
    let distinct = Distinct {
        name: |stream: &Stream| canonical(&stream.name),
        code: code::DUPLICATE_STREAM,
        what: "the stream ",
    };
    let alone = || (name().with("description", "A stream's name.").schema)();
    let schema = move || json!({ "anyOf": [alone(), Stream::schema()] });
    let stream = Kind::new(schema, |at| match at.node.value {
        NodeValue::Mapping(_) => Stream::read(at),
        _ => at.name().map(Stream::named),
    });
    list(stream, "streams: [public.orders]", Some(distinct))
}

/// The transforms of a stream. Entries that are steps of the built-in transform follow each other in one of them.
fn transforms() -> Kind<Vec<Transform>> {
    let schema = || json!({ "anyOf": [Transform::schema()] });
    let entry = Kind::new(schema, |at| match step(at)? {
        Some(step) => Ok(step),
        None => Transform::read(at),
    });
    let entry = entry.expecting("a mapping", TRANSFORMS_EXAMPLE);
    let all = list(entry, TRANSFORMS_EXAMPLE, None).with("maxItems", MAX_STEPS);
    all.then(|at, entries| {
        if entries.len() > MAX_STEPS {
            let text = format!("{} entries, above {MAX_STEPS}", entries.len());
            return Err(at.bad_value(text));
        }
        let mut transforms: Vec<Transform> = Vec::new();
        for (index, mut entry) in entries.into_iter().enumerate() {
            match transforms.last_mut() {
                Some(last) if last.place.has_steps && entry.place.has_steps => last.append(entry),
                _ => {
                    entry.place.entry = index;
                    transforms.push(entry);
                }
            }
        }
        match transforms.len() {
            ..=MAX_TRANSFORMS => Ok(transforms),
            more => Err(at.bad_value(format!("{more} transforms, above {MAX_TRANSFORMS}"))),
        }
    })
}

/// The step that an entry of `transforms` is, as a transform of this step alone.
fn step(at: &Spot<'_>) -> Result<Option<Transform>> {
    let NodeValue::Mapping(entries) = &at.node.value else {
        return Ok(None);
    };
    let keys = || entries.iter().map(|entry| entry.key.as_str());
    let known = Transform::properties();
    let is_transform = keys().any(|key| known.iter().any(|(name, ..)| *name == key));
    match entries.as_slice() {
        _ if is_transform => Ok(None),
        [_] => {
            let steps = Value::Array(vec![Value::Object(at.object()?)]);
            let place = Place {
                entry: 0,
                has_steps: true,
            };
            Ok(Some(Transform {
                connector: BUILT_IN.into(),
                config: [("steps".to_owned(), steps)].into_iter().collect(),
                place,
            }))
        }
        [] => Ok(None),
        _ => {
            let keys = keys().collect::<Vec<_>>().join(", ");
            let error = at.bad_value(format!("{at} has several keys: {keys}"));
            Err(error.hint("write one step in each entry, or use: and config: of a transform"))
        }
    }
}

impl Transform {
    /// Adds the steps of another one.
    fn append(&mut self, other: Self) {
        if let (Some(Value::Array(all)), Some(Value::Array(more))) = (
            self.config.get_mut("steps"),
            other.config.into_iter().next().map(|(_, steps)| steps),
        ) {
            all.extend(more);
        }
    }
}

/// A target that says something.
fn named(at: &Spot<'_>, target: StreamTarget) -> Result<StreamTarget> {
    if target.name.is_none() && target.schema.is_none() {
        let error = at.bad_value(format!("{at} has neither a name nor a schema"));
        return Err(error.hint("write target: { name: orders, schema: sales }, or remove the key"));
    }
    Ok(target)
}

fn cursor_field() -> Kind<Vec<String>> {
    one_or_more(name(), names("cursor_field: [updated_at, id]"))
}

impl Defaults {
    /// Fills in what the streams at `at` leave to the defaults.
    pub(super) fn apply(&self, streams: &mut [Stream], at: &Spot<'_>) {
        for (stream, at) in streams.iter_mut().zip(at.items()) {
            let says = |key: &str| at.key(key).is_some();
            if !says("sync_mode") {
                stream.sync_mode = self.sync_mode;
            }
            if stream.sync_mode != SyncMode::Incremental {
                continue;
            }
            if stream.cursor_field.is_empty() && stream.cursor_initial.is_none() {
                stream.cursor_field.clone_from(&self.cursor_field);
            }
            if !says("change_detection") && !says("lag") {
                stream.change_detection = self.change_detection;
                stream.lag.clone_from(&self.lag);
            }
        }
    }
}

/// Checks that the keys of a stream go together, once the defaults and the destination are known. `at` is the place
/// of `stream` in `source.streams`.
pub(super) fn ensure_fits(stream: &Stream, at: &Spot<'_>, mode: WriteMode) -> Result<()> {
    let wrong = |key: &str, message: String, hint: &str| Err(at.bad_key(key, message).hint(hint));
    let repeats = mode == WriteMode::Append && stream.is_read_again();
    ensure_upserts(at, mode, repeats)?;
    if stream.query.is_some() {
        ensure_reads_query(stream, at)?;
    }
    if stream.sync_mode != SyncMode::Incremental {
        let of_cursor = ["cursor_field", "cursor_initial", "change_detection", "lag"];
        let has_no_use = |key: &&str| {
            let is_default = *key == "change_detection" && stream.change_detection.is_default();
            at.key(key).is_some() && !is_default
        };
        return match of_cursor.into_iter().find(has_no_use) {
            Some(key) => {
                let mode = stream.sync_mode.name();
                let text = format!("{key} has no effect with sync_mode: {mode}");
                wrong(key, text, "set sync_mode: incremental, or remove the key")
            }
            None => Ok(()),
        };
    }
    if mode == WriteMode::Replace {
        let text = "with write_mode: replace, an incremental read would remove the earlier rows";
        let hint = "set write_mode: append or upsert, or sync_mode: full_refresh";
        return wrong("sync_mode", text.into(), hint);
    }
    if stream.change_detection == ChangeDetection::Xmin && stream.lag.is_some() {
        let text = "change_detection: xmin misses no row, and has no use for a lag";
        return wrong("lag", text.into(), "remove lag, or change_detection");
    }
    if stream.change_detection == ChangeDetection::Cursor && stream.cursor_field.is_empty() {
        let hint = "name a column whose values grow, such as cursor_field: updated_at";
        return Err(at.missing("cursor_field", hint));
    }
    match &stream.cursor_initial {
        Some(initial) if initial.len() != stream.cursor_field.len() => {
            let text = format!(
                "cursor_initial has {} for {} of cursor_field",
                counted(initial.len(), "value"),
                counted(stream.cursor_field.len(), "column")
            );
            wrong("cursor_initial", text, "write one value for each column")
        }
        _ => Ok(()),
    }
}

/// A query is one stream, and it is read whole: nothing says that its rows come back in the order of a cursor.
fn ensure_reads_query(stream: &Stream, at: &Spot<'_>) -> Result<()> {
    if stream.is_pattern() {
        let text = "the name of a query has no wildcards".to_owned();
        return Err(at
            .bad_key("name", text)
            .hint("write one name, such as big_orders"));
    }
    if stream.sync_mode == SyncMode::FullRefresh {
        return Ok(());
    }
    let text = format!(
        "a query cannot be read with sync_mode: {}",
        stream.sync_mode.name()
    );
    let key = if at.key("sync_mode").is_some() {
        "sync_mode"
    } else {
        "query"
    };
    Err(at.bad_key(key, text).hint(
        "set sync_mode: full_refresh for this stream; or create a view of the query in the source, and read the view \
         incrementally",
    ))
}

//! The top level of a pipeline file, its source and its destination.
//!
//! A mapping is read in the order of the file, so that the first mistake in the file is the one
//! reported; then comes what is missing and what does not go together.

use std::cell::LazyCell;
use std::path::PathBuf;
use std::sync::Arc;

use rapidbyte_runtime::Permissions;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::changes::{SchemaChanges, schema_changes};
use super::declare::{Key, Keys, Kind, keys, mappings, unknown, words};
use super::deletes::{Deletes, DeletesMode, deletes};
use super::delivery::{Checkpoint, OnStreamFailure, Retry, Verify, WhenRunning, longest_pause};
use super::error::{Result, code};
use super::kinds::{mapping, name, names, object, or_variable, variable, word};
use super::node::{Entry, Node, NodeValue};
use super::notify::{Notify, has_url};
use super::pages::Pages;
use super::permissions::permissions;
use super::read::Spot;
use super::rejects::{Rejects, kept};
use super::resources::{Resources, share};
use super::schedule::Schedule;
use super::secrets::Secrets;
use super::streams::{self, Defaults, Stream, StreamTarget, streams};
use super::{VERSION, covers_stream};

const MAX_PIPELINE_NAME_CHARS: usize = 64;
pub(super) const PRIMARY_KEY_EXAMPLE: &str = "primary_key: [id]";

keys! {
    /// A pipeline file whose every key is known and whose values go together.
    ///
    /// Serialised, it has the keys of the file, with the values of `${…}` in it: pass what is shown
    /// through [`Document::redact`].
    #[derive(Clone, Serialize)]
    pub struct Document {
        /// The version of this file format.
        pub version: u32 = version(),
        /// The pipeline's name; cursors, history and reports are stored under it.
        ///
        /// 1 to 64 letters, digits, `_`, `-` and `.`.
        pub pipeline: String = pipeline_name(),
        /// The source of the rows.
        pub source: Source = mapping().required("add the source of the rows: source:"),
        /// Defaults for streams that do not set these keys.
        #[serde(skip)]
        pub(super) defaults: Defaults = mapping().or(Defaults::default()),
        /// The destination of the rows.
        pub destination: Destination =
            mapping().required("add the destination of the rows: destination:"),
        /// What happens if the columns of a stream and those of its target differ: a mapping, or
        /// frozen (nothing changes).
        ///
        /// For streams that do not say.
        pub schema_changes: SchemaChanges = schema_changes().or(SchemaChanges::default()),
        /// How many records may fail before a stream fails, and where these records are kept (default: the first one
        /// fails the stream).
        pub rejects: Rejects = mapping().then(kept).or(Rejects::default()),
        /// For upsert: what happens to rows of a target that the source has deleted (default: they stay).
        ///
        /// For streams that do not say.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deletes: Option<Deletes> = deletes().optional(),
        /// Limits and settings of memory. Sizes are bytes, or have a unit: kb, mb, gb.
        pub resources: Resources = mapping().then(share).or(Resources::default()),
        /// When an incremental stream commits: at the first of these limits.
        pub checkpoint: Checkpoint = mapping().or(Checkpoint::default()),
        /// How to retry a run or a stream after a transient error.
        pub retry: Retry = mapping().then(longest_pause).or(Retry::default()),
        /// After a stream fails: run the others, then fail with a list of failures (continue, the
        /// default), or stop them (stop).
        pub on_stream_failure: OnStreamFailure = word().or(OnStreamFailure::Continue),
        /// Write a report page for each run.
        ///
        /// Absent: only where `--report` asks for one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub report: Option<Pages> = mapping().optional(),
        /// While another run of the pipeline is running: fail at once with exit code 5 (refuse, the
        /// default), wait until it ends (wait), or fence it (replace).
        pub when_running: WhenRunning = word().or(WhenRunning::Refuse),
        /// Compare each target with its source at the end of a run, as of the snapshot that the run read, and
        /// fail the run with rows_differ if a row differs (after_run), or do not (off, the default).
        pub verify: Verify = word().or(Verify::Off),
        /// When rapidbyte serve runs the pipeline (default: only when it is asked to).
        ///
        /// No other command uses it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub schedule: Option<Schedule> = mapping().optional(),
        /// The URLs to which rapidbyte serve sends messages about runs (default: none).
        ///
        /// No other command uses them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub notify: Option<Notify> = mapping().then(has_url).optional(),
        ;
        /// Streams of the file that this part of the pipeline does not read. Their targets have names, too.
        #[serde(skip)]
        pub beside: Vec<Stream>,
        /// The folder of the file, absolute after [`Document::load`]: relative paths in a pipeline
        /// begin there.
        #[serde(skip)]
        pub base_dir: PathBuf,
        /// The file, as it was given.
        #[serde(skip)]
        pub file: String,
        #[serde(skip)]
        pub(super) secrets: Secrets,
        #[serde(skip)]
        pub(super) root: Arc<Node>,
    }
}

keys! {
    /// `source`: where the rows come from.
    #[derive(Clone, PartialEq, Serialize)]
    pub struct Source {
        /// A bundled connector, or the path of a .wasm file.
        pub connector as "use": String = connector(
            "name a connector, such as use: source-postgres, or the path of a .wasm file",
        ),
        /// The connector's own configuration.
        pub config: Map<String, Value> = object().or(Map::new()),
        /// Grants beyond the hosts and paths in the connector's config, or none of them.
        #[serde(skip)]
        pub permissions: Permissions = permissions().or(Permissions::default()),
        /// The streams to read, in this order.
        ///
        /// Each name once.
        pub streams: Vec<Stream> = streams()
            .required("name the streams to read, such as streams: [public.orders]"),
        /// Streams that the wildcards of streams do not match; * and ? match several.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub exclude: Vec<String> = names("exclude: [public.audit_log]").or(Vec::new()),
    }
}

keys! {
    /// `destination`: where the rows go to.
    #[derive(Clone, PartialEq, Serialize)]
    pub struct Destination {
        /// A bundled connector, or the path of a .wasm file.
        pub connector as "use": String = connector(
            "name a connector, such as use: dest-postgres, or the path of a .wasm file",
        ),
        /// The connector's own configuration.
        pub config: Map<String, Value> = object().or(Map::new()),
        /// Grants beyond the hosts and paths in the connector's config, or none of them.
        #[serde(skip)]
        pub permissions: Permissions = permissions().or(Permissions::default()),
        /// Keep existing rows (append), replace them at the moment when the new rows become
        /// visible (replace), or update the rows that have the same key (upsert).
        ///
        /// For streams that do not say.
        pub write_mode: WriteMode = word().or(WriteMode::Append),
        /// For upsert: the columns that identify a row (default: the source's key). For append
        /// with a lag: the columns that identify rows that were read before.
        ///
        /// For streams that name none.
        pub primary_key: Vec<String> = names(PRIMARY_KEY_EXAMPLE).or(Vec::new()),
        /// For upsert: the column that marks a row as deleted.
        ///
        /// For streams that name none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deleted_field: Option<String> = name().optional(),
    }
}

words! {
    /// `destination.write_mode`: what happens to the rows that are already there.
    pub enum WriteMode {
        /// They stay; the new ones are added.
        #[default]
        Append = "append",
        /// They go, in the same moment as the new ones appear.
        Replace = "replace",
        /// A row with the same primary key takes their place. `merge` is another word for it.
        Upsert = "upsert" | "merge",
    }
}

/// Reads the whole document.
pub(super) fn root(at: &Spot<'_>) -> Result<Document> {
    if !matches!(at.node.value, NodeValue::Mapping(_)) {
        let kind = at.node.kind();
        let message = format!("a pipeline file must be a mapping, but is {kind}");
        let error = at.error(code::WRONG_TYPE, message);
        return Err(error.hint("start with version: 1"));
    }
    // Before all else: a later version may have other keys.
    if at.key("version").is_some() {
        version().read_from(at, "version")?;
    }
    // A key that stands one level too high explains why it is missing below: told first.
    let mappings = LazyCell::new(mappings);
    let is_stray = |entry: &&Entry| {
        let is_known = Document::KEYS.contains(&entry.key.as_str());
        !is_known && mappings.iter().any(|(_, keys)| keys.contains(&entry.key))
    };
    if let Some(entry) = at.entries().iter().find(is_stray) {
        return Err(unknown::<Document>(entry, &at.below(entry)));
    }
    let mut document = Document::read(at)?;
    ensure_fits(at, &mut document)?;
    Ok(document)
}

/// Applies the defaults, and checks the streams, the defaults and the destination against each other.
fn ensure_fits(at: &Spot<'_>, document: &mut Document) -> Result<()> {
    let (source, destination) = (at.key("source"), at.key("destination"));
    let streams = source.as_ref().and_then(|source| source.key("streams"));
    let (Some(at), Some(destination_at)) = (streams, destination) else {
        return Ok(());
    };
    document.defaults.apply(&mut document.source.streams, &at);
    let document = &*document;
    let streams = &document.source.streams;
    for (stream, at) in streams.iter().zip(at.items()) {
        streams::ensure_fits(stream, &at, document.write_mode_of(stream))?;
        let excludes = |pattern: &&String| covers_stream(pattern, &stream.name);
        if let Some(pattern) = document.source.exclude.iter().find(excludes)
            && !stream.is_pattern()
            && stream.query.is_none()
        {
            let message = format!(
                "exclude leaves out the stream {:?} that is named here",
                stream.name
            );
            let hint = format!("remove it, or {pattern:?} from source.exclude");
            return Err(at.bad_value(message).hint(hint));
        }
    }
    let mode_of = |stream: &Stream| document.write_mode_of(stream);
    if streams
        .iter()
        .any(|stream| mode_of(stream) == WriteMode::Upsert)
    {
        return Ok(());
    }
    let repeats = |stream: &Stream| mode_of(stream) == WriteMode::Append && stream.is_read_again();
    ensure_upserts(
        &destination_at,
        document.destination.write_mode,
        streams.iter().any(repeats),
    )
}

impl Document {
    /// How the destination treats the rows that are already in the target of a stream.
    pub fn write_mode_of(&self, stream: &Stream) -> WriteMode {
        stream.write_mode.unwrap_or(self.destination.write_mode)
    }

    /// How deleted rows of a stream are found, if they are.
    pub fn deletes_of<'a>(&'a self, stream: &'a Stream) -> Option<&'a Deletes> {
        let asked = stream.deletes.as_ref().or(self.deletes.as_ref());
        asked.filter(|deletes| deletes.mode == DeletesMode::Compare)
    }

    /// The target that the operator chose for a stream.
    pub fn target_of(&self, stream: &str) -> Option<&StreamTarget> {
        if let Some(entry) = self.source.entry_for(stream) {
            return self.source.streams[entry].target.as_ref();
        }
        let beside = self.beside.iter().find(|one| one.name == stream)?;
        beside.target.as_ref()
    }
}

/// The name alone; the other keys are not read.
pub(super) fn name_alone(at: &Spot<'_>) -> Result<String> {
    version().read_from(at, "version")?;
    pipeline_name().read_from(at, "pipeline")
}

fn version() -> Key<u32> {
    let version = Kind::new(
        || json!({ "const": VERSION }),
        |at| {
            let text = at.text()?;
            if text.text == VERSION.to_string() {
                return Ok(VERSION);
            }
            let error = at.bad_value(format!("version {} is unknown", text.shown()));
            Err(error.hint(format!(
                "write version: {VERSION}, or use a newer program for a newer file"
            )))
        },
    );
    version.required("start the file with version: 1")
}

fn pipeline_name() -> Key<String> {
    let schema = || {
        let mut schema = or_variable(vec![json!({ "pattern": r"^[A-Za-z0-9_.-]{1,64}$" })]);
        schema["type"] = "string".into();
        schema
    };
    let name = Kind::new(schema, |at| {
        let name = at.name()?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        // A name of dots alone would be a folder to whoever stores something under it.
        let good = name.len() <= MAX_PIPELINE_NAME_CHARS
            && name.chars().all(allowed)
            && name.chars().any(|c| c != '.');
        if good {
            return Ok(name);
        }
        let shown = at.text()?.shown();
        let error = at.bad_value(format!("{shown} is not a valid pipeline name"));
        Err(error.hint(format!(
            "use 1 to {MAX_PIPELINE_NAME_CHARS} letters, digits, \"_\", \"-\" and \".\""
        )))
    });
    name.required("name the pipeline: pipeline: orders")
}

/// The connector of a stage; the schema adds the names of the bundled ones.
pub(super) fn connector(hint: &'static str) -> Key<String> {
    let path = || json!({ "type": "string", "pattern": r"/|\.wasm$" });
    let schema = move || json!({ "anyOf": [path(), variable()] });
    Kind::new(schema, |at| at.name()).required(hint)
}

/// Refuses the keys of an upsert in another mode. `repeats`: the run appends rows that it reads again, and these rows
/// may have a primary key.
pub(super) fn ensure_upserts(at: &Spot<'_>, mode: WriteMode, repeats: bool) -> Result<()> {
    for (key, hint, has_use) in [
        (
            "primary_key",
            ", give an incremental stream a lag,",
            repeats,
        ),
        ("deleted_field", ",", false),
    ] {
        if at.key(key).is_some() && mode != WriteMode::Upsert && !has_use {
            let message = format!("{key} has no effect with write_mode: {}", mode.name());
            let hint = format!("set write_mode: upsert{hint} or remove {key}");
            return Err(at.bad_key(key, message).hint(hint));
        }
    }
    Ok(())
}

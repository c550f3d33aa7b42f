//! Opens the stages: connectors loaded, their settings checked, what they may reach granted.

use std::sync::Arc;

use arrow_schema::FieldRef;
use rapidbyte_runtime::{
    Cancel, CheckItem, Clock, Connector, Destination, Grants, Kind, Limits, MemoryBudget,
    Permissions, Phase, Sandbox, Source, Spec, Stream, Transform, unmarked_tls,
};
use rapidbyte_wire::{ipc, types};
use serde_json::{Map, Value};

use super::readable::readable;
use super::{privileges, shown};
use crate::document::local_path::{self, NotLocal};
use crate::document::{self, Document};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::idle::{self, Reuse};
use crate::lock::{self, Lock};
use crate::meant::did_you_mean;
use crate::retry::until_it_passes;
use crate::usage::Usage;

/// One clock for each side: both sides open at the same time, and wait for each other.
#[derive(Clone)]
pub struct Clocks {
    /// Of the source.
    pub source: Clock,
    /// Of the destination.
    pub destination: Clock,
}

/// The source, a transform or the destination of a pipeline.
#[derive(Clone)]
pub struct Stage {
    /// Its key in the pipeline file, such as `source` or `source.streams[0].transforms[1]`.
    pub key: String,
    /// The loaded connector.
    pub connector: Connector,
    /// The description that the connector gives.
    pub spec: Spec,
    /// The config schema of the description.
    pub(crate) schema: Arc<Value>,
    /// Its configuration as JSON.
    pub config: String,
    /// The grants of the connector.
    pub grants: Arc<Grants>,
    /// The grants as text, a line for each grant, without the secrets of the pipeline.
    pub may: Vec<String>,
    /// The limits of each of its instances.
    pub limits: Limits,
    /// A session can plan again after a run.
    pub(crate) plans_again: bool,
}

impl Clocks {
    pub(super) fn new() -> Self {
        Self {
            source: Clock::new(),
            destination: Clock::new(),
        }
    }
}

/// All stages, open.
pub(super) struct Opened {
    pub(super) reading: Reading,
    /// The transforms of each entry of `source.streams`.
    pub(super) transforming: Vec<Vec<Transforming>>,
    pub(super) writing: Writing,
    /// Of the run that plans.
    pub(super) usage: Usage,
    /// Its sides plan one after the other.
    pub(super) is_short: bool,
}

/// A transform that plans.
pub(super) struct Transforming {
    pub(super) stage: Stage,
    sandbox: Sandbox,
    /// Open while the streams of its entry are planned: a pipeline may have more transforms than fit into memory.
    session: Option<Transform>,
}

impl Transforming {
    /// A transform that is not open yet.
    pub(super) fn new(
        document: &Document,
        host: &Host,
        clock: &Clock,
        stage: Stage,
        memory: Arc<MemoryBudget>,
    ) -> Self {
        Self {
            sandbox: Sandbox {
                memory,
                ..planning_sandbox(document, host, clock, &stage)
            },
            stage,
            session: None,
        }
    }

    /// Its session, which is opened if it is not open.
    pub(super) fn session(&mut self, document: &Document) -> Result<&mut Transform, Failure> {
        let failed = |e| Failure::from_runtime(e, document, &self.stage.key);
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let sandbox = self.sandbox.clone();
                let mut session = self.stage.connector.transform(sandbox).map_err(failed)?;
                session.open(&self.stage.config).map_err(failed)?;
                session
            }
        };
        Ok(self.session.insert(session))
    }

    /// Ends its session.
    pub(super) fn close(&mut self) {
        self.session = None;
    }
}

/// The source, open.
pub(super) struct Reading {
    pub(super) stage: Stage,
    pub(super) session: Source,
    /// Stops the session.
    pub(super) cancel: Cancel,
    /// The checked items; empty unless the caller asked for a check.
    pub(super) checked: Vec<CheckItem>,
    /// Its streams, or why it could not list them. Empty where a check found a problem or another stage failed.
    pub(super) found: Result<Vec<Stream>, Failure>,
}

/// The destination, open.
pub(super) struct Writing {
    pub(super) stage: Stage,
    pub(super) session: Destination,
    /// The checked items; empty unless the caller asked for a check.
    pub(super) checked: Vec<CheckItem>,
}

/// The native forms that all stages know.
pub(super) fn common_forms<'a>(
    source: &Spec,
    others: impl Iterator<Item = &'a Spec>,
) -> Vec<String> {
    let mut forms = source.native_forms.clone();
    for other in others {
        forms.retain(|form| other.native_forms.contains(form));
    }
    forms
}

/// Opens both sides at the same time, each on a thread: most of the work is loading code and logging
/// in. The destination's thread also loads the transforms, which reach nothing. A failure of the source
/// comes first. With `look` each side checks what it needs before anything else, because its role may
/// have only one connection.
pub(super) fn open_all(
    document: &Document,
    host: &Host,
    clocks: &Clocks,
    look: bool,
) -> Result<Opened, Failure> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let write = || {
        let clock = &clocks.destination;
        let stage = load_destination(document, host, clock)?;
        let transforming = transforming(document, host, clock)?;
        let transforms = transforming.iter().flatten();
        let specs = transforms.map(|one| one.stage.spec.clone());
        // Nobody listens when the source has failed.
        let _ = tell.send(specs.chain([stage.spec.clone()]).collect());
        drop(tell);
        let writing = begin_destination(stage, document, host, clock, look)?;
        Ok((transforming, writing))
    };
    let read = || {
        let clock = &clocks.source;
        let reading = begin_source(document, host, clock, look, || told.recv().ok());
        clock.enter(Phase::ChannelWait);
        reading
    };
    let (reading, writing) = match host.is_short() {
        true => {
            // The specifications fit in the channel.
            let writing = write();
            (read(), writing)
        }
        false => std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let _counted = host.usage.of_thread();
                write()
            });
            let reading = read();
            let writing = writing.join();
            let writing = writing.unwrap_or_else(|_| Err(Failure::panicked("destination")));
            (reading, writing)
        }),
    };
    let reading = reading?;
    let (transforming, writing) = writing?;
    Ok(Opened {
        reading,
        transforming,
        writing,
        usage: host.usage.clone(),
        is_short: host.is_short(),
    })
}

/// The transforms of each entry of `source.streams`, which share a quarter of the memory while they plan.
fn transforming(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<Vec<Vec<Transforming>>, Failure> {
    let memory = document.resources.memory as usize;
    let memory = MemoryBudget::part_of(&host.usage.memory, memory, memory / 4);
    let transforming =
        |stage: Stage| Transforming::new(document, host, clock, stage, Arc::clone(&memory));
    let stages = load_transforms(document, host, clock)?.into_iter();
    Ok(stages
        .map(|stages| stages.into_iter().map(transforming).collect())
        .collect())
}

/// Loads the transforms of each entry of `source.streams` and checks their configuration.
fn load_transforms(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<Vec<Vec<Stage>>, Failure> {
    let entries = document.source.streams.iter().enumerate();
    entries
        .map(|(entry, stream)| {
            let transforms = stream.transforms.iter().enumerate();
            transforms
                .map(|(index, transform)| {
                    let role = Role::of_transform(entry, index, transform);
                    open_stage(document, host, clock, &role)
                })
                .collect()
        })
        .collect()
}

/// `others` waits for the descriptions of the transforms and the destination. It returns none if one of them
/// failed; the caller then returns that failure.
fn begin_source(
    document: &Document,
    host: &Host,
    clock: &Clock,
    look: bool,
    others: impl FnOnce() -> Option<Vec<Spec>>,
) -> Result<Reading, Failure> {
    let failed = |e| Failure::from_runtime(e, document, "source");
    let (stage, mut session, cancel) = open_reading(document, host, clock, idle::session)?;
    let checked = match look {
        true => session.check().map_err(failed)?,
        false => Vec::new(),
    };
    let before = clock.enter(Phase::ChannelWait);
    let others = others();
    clock.enter(before);
    // If only privileges are missing, planning continues and names all of them.
    let stops = |item: &CheckItem| {
        let problem = item.problem.as_ref();
        problem.is_some_and(|error| !privileges::is_code(&error.code))
    };
    let found = match others {
        Some(others) if !checked.iter().any(stops) => session
            .discover(&common_forms(&stage.spec, others.iter()))
            .map_err(failed),
        _ => Ok(Vec::new()),
    };
    let found = found.map(|found| shown::streams(document, found));
    Ok(Reading {
        stage,
        session,
        cancel,
        checked,
        found,
    })
}

/// The streams of a source.
pub struct Discovered {
    /// The streams whose columns are known.
    pub streams: Vec<Stream>,
    /// One failure for all other streams. None if the columns of all streams are known.
    pub unreadable: Option<Failure>,
}

/// A column as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceColumn {
    /// The name.
    pub name: String,
    /// The Arrow type, by its name in a pipeline file.
    pub arrow_type: String,
    /// The source's own name of the type.
    pub source_type: String,
    /// It may be null.
    pub is_nullable: bool,
}

impl Discovered {
    /// The columns of a stream, in order.
    ///
    /// # Errors
    /// `contract_broken`: the source describes the stream in another form than Arrow's.
    pub fn columns(stream: &Stream) -> Result<Vec<SourceColumn>, Failure> {
        let schema = ipc::decode_schema(&stream.schema)
            .map_err(|e| Failure::new(Class::Run, "contract_broken", e).in_stream(&stream.name))?;
        let columns = schema.fields().iter().enumerate();
        let column = |(at, field): (usize, &FieldRef)| SourceColumn {
            name: field.name().clone(),
            arrow_type: types::type_name(field),
            source_type: stream.source_types.get(at).cloned().unwrap_or_default(),
            is_nullable: field.is_nullable(),
        };
        Ok(columns.map(column).collect())
    }
}

/// Lists the streams of the source without the destination. Transient failures are retried as `retry` says.
pub fn discover(document: &Document, host: &Host) -> Result<Discovered, Failure> {
    let clock = Clock::new();
    until_it_passes(document, host, |attempt| {
        let (_, mut source) = open_source(document, host, &clock)?;
        let found = source.discover(&[]);
        let found = found.map_err(|error| Failure::from_runtime(error, document, "source"))?;
        let count = found.len();
        let (streams, refused) = readable(document, found, |stream| stream, &mut source)?;
        let failures: Vec<Failure> = refused.into_iter().map(|one| one.failure).collect();
        let passes = |failure: &&Failure| failure.passes_after_ms.is_some();
        if let Some(passing) = failures.iter().find(passes)
            && (attempt < document.retry.max_attempts || streams.is_empty())
        {
            return Err(passing.clone());
        }
        let text = format!("{} of {count} streams cannot be read", failures.len());
        Ok(Discovered {
            streams: shown::streams(document, streams),
            unreadable: Failure::of_several(failures, text, "follow the hint of each error"),
        })
    })
}

/// Loads the source, checks its configuration and opens a session.
pub(crate) fn open_source(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<(Stage, Source), Failure> {
    let (stage, source, _) = open_reading(document, host, clock, idle::new_session)?;
    Ok((stage, source))
}

fn open_reading(
    document: &Document,
    host: &Host,
    clock: &Clock,
    open: impl FnOnce(Option<&Reuse>, &Stage, Sandbox) -> rapidbyte_runtime::Result<Source>,
) -> Result<(Stage, Source, Cancel), Failure> {
    let stage = open_stage(document, host, clock, &Role::source(document))?;
    let failed = |e| Failure::from_runtime(e, document, "source");
    let sandbox = planning_sandbox(document, host, clock, &stage);
    let cancel = sandbox.cancel.clone();
    let source = open(host.reuse.as_ref(), &stage, sandbox).map_err(failed)?;
    Ok((stage, source, cancel))
}

/// Loads the destination, checks its configuration and opens a session.
///
/// It may write files only where the caller `changes` something.
pub fn open_destination(
    document: &Document,
    host: &Host,
    clock: &Clock,
    changes: bool,
) -> Result<(Stage, Destination), Failure> {
    let stage = load_destination(document, host, clock)?;
    let sandbox = match changes {
        true => working_sandbox(document, host, clock, &stage),
        false => planning_sandbox(document, host, clock, &stage),
    };
    let session = open_session(document, &stage, sandbox)?;
    Ok((stage, session))
}

/// Loads the destination and checks its configuration.
pub(super) fn load_destination(
    document: &Document,
    host: &Host,
    clock: &Clock,
) -> Result<Stage, Failure> {
    open_stage(document, host, clock, &Role::destination(document))
}

/// Opens a session of the destination.
pub(super) fn open_session(
    document: &Document,
    stage: &Stage,
    sandbox: Sandbox,
) -> Result<Destination, Failure> {
    let failed = |e| Failure::from_runtime(e, document, "destination");
    let mut session = stage.connector.destination(sandbox).map_err(failed)?;
    session.open(&stage.config).map_err(failed)?;
    Ok(session)
}

/// All stages with their grants, by their descriptions alone: none is opened. The source comes first, the destination
/// last.
pub fn granted(document: &Document, host: &Host) -> Result<Vec<Stage>, Failure> {
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let clock = Clock::new();
            let destination = load_destination(document, host, &clock)?;
            Ok((load_transforms(document, host, &clock)?, destination))
        });
        let source = open_stage(document, host, &Clock::new(), &Role::source(document));
        let writing = writing.join();
        let writing = writing.unwrap_or_else(|_| Err(Failure::panicked("destination")));
        let mut stages = vec![source?];
        let (transforms, destination) = writing?;
        stages.extend(transforms.into_iter().flatten());
        stages.push(destination);
        Ok(stages)
    })
}

fn begin_destination(
    stage: Stage,
    document: &Document,
    host: &Host,
    clock: &Clock,
    look: bool,
) -> Result<Writing, Failure> {
    let failed = |e| Failure::from_runtime(e, document, "destination");
    let sandbox = planning_sandbox(document, host, clock, &stage);
    let mut session: Destination =
        idle::session(host.reuse.as_ref(), &stage, sandbox).map_err(failed)?;
    let checked = match look {
        true => session.check().map_err(failed)?,
        false => Vec::new(),
    };
    Ok(Writing {
        stage,
        session,
        checked,
    })
}

/// A stage as the pipeline file asks for it.
struct Role<'a> {
    /// As [`Stage::key`].
    key: String,
    kind: Kind,
    used: &'a str,
    config: &'a Map<String, Value>,
    /// None: nothing can be granted.
    permissions: Option<&'a Permissions>,
}

impl<'a> Role<'a> {
    fn source(document: &'a Document) -> Self {
        let source = &document.source;
        Self {
            key: "source".into(),
            kind: Kind::Source,
            used: &source.connector,
            config: &source.config,
            permissions: Some(&source.permissions),
        }
    }

    fn of_transform(entry: usize, index: usize, transform: &'a document::Transform) -> Self {
        Self {
            key: format!("source.streams[{entry}].transforms[{index}]"),
            kind: Kind::Transform,
            used: &transform.connector,
            config: &transform.config,
            permissions: None,
        }
    }

    fn destination(document: &'a Document) -> Self {
        let destination = &document.destination;
        Self {
            key: "destination".into(),
            kind: Kind::Destination,
            used: &destination.connector,
            config: &destination.config,
            permissions: Some(&destination.permissions),
        }
    }
}

fn open_stage(
    document: &Document,
    host: &Host,
    clock: &Clock,
    role: &Role<'_>,
) -> Result<Stage, Failure> {
    let Role {
        key, used, config, ..
    } = role;
    let use_key = format!("{key}.use");
    let located = |mut failure: Failure| {
        let place = Failure::at_key(document, &use_key, "", "");
        failure.location = place.location;
        failure.key = place.key;
        failure
    };
    let origin = host
        .find_as(role.kind, used, &document.base_dir)
        .map_err(located)?;
    let before = clock.enter(Phase::Load);
    let loaded = host.runtime.load(&origin);
    clock.enter(before);
    let connector = loaded.map_err(|e| located(Failure::from_runtime(e, document, key)))?;
    if connector.kind() != role.kind {
        let text = format!("{used} is a {}", connector.kind().name());
        return Err(located(Failure::new(Class::Config, "invalid_world", text))
            .hint(format!("name a {} here", role.kind.name())));
    }
    let lock = Lock::read(&document.base_dir)?;
    if let Some(lock) = &lock {
        let checked = lock.check_bytes(used, &origin, &connector);
        checked.map_err(located)?;
    }
    let nothing = Permissions::default();
    let permissions = role.permissions.unwrap_or(&nothing);
    let spec = host
        .describe(&connector, permissions, clock)
        .map_err(|e| Failure::from_runtime(e, document, key))?;
    let schema = connector.config_schema(&spec).map_err(|error| {
        let text = format!(
            "{}: the config schema is not JSON: {error}",
            connector.name()
        );
        Failure::new(Class::Run, "contract_broken", text)
    })?;
    if let Some(key) = unmarked_tls(&schema) {
        let text = format!(
            "{}: its schema has a key `{key}` that is not marked as a TLS setting",
            connector.name()
        );
        return Err(Failure::new(Class::Run, "contract_broken", text)
            .hint("report it to the connector's author, who has to add `x-grant: tls-mode`"));
    }
    if role.kind == Kind::Transform {
        refuse_grants(&connector, &schema)?;
    }
    if let Some(lock) = &lock {
        let checked = lock.check_wishes(used, &origin, &connector, &schema);
        checked.map_err(located)?;
    }
    document.keep_secrets(&schema, config);
    let config_key = format!("{key}.config");
    check_keys(document, &schema, &schema, config, &config_key, 0)?;
    let mut grants = Grants::from_config(&schema, config, &document.base_dir).with(permissions);
    // Fails only for an empty name: the text does not come from a file.
    if let Ok(pipeline) = std::path::absolute(&document.file) {
        grants = grants.protecting(&pipeline);
    }
    let grants = Arc::new(grants);
    let mut may = grants.describe();
    shown::texts(document, &mut may);
    let config = Value::Object((*config).clone()).to_string();
    Ok(Stage {
        key: key.clone(),
        connector,
        spec,
        schema: Arc::clone(&schema),
        config,
        grants,
        may,
        limits: permissions.limits(),
        plans_again: idle::plans_again(&schema),
    })
}

/// Refuses a transform whose schema grants something: the same rows have to come of the same batch.
fn refuse_grants(connector: &Connector, schema: &Value) -> Result<(), Failure> {
    let asks_for = lock::asks_for(connector, schema)?;
    match asks_for.iter().find(|wish| wish.starts_with("config.")) {
        None => Ok(()),
        Some(wish) => {
            let text = format!(
                "{}: its schema grants `{wish}`, and a transform is granted nothing",
                connector.name()
            );
            Err(Failure::new(Class::Run, "contract_broken", text)
                .hint("report it to the connector's author, who has to remove `x-grant`"))
        }
    }
}

/// Bytes of what one call may hand over while planning: names and schemas of streams, no batch.
const PLAN_BYTES: usize = 32 << 20;

/// As [`working_sandbox`], but it changes no file: nobody has seen yet what the run may write.
pub(crate) fn planning_sandbox(
    document: &Document,
    host: &Host,
    clock: &Clock,
    stage: &Stage,
) -> Sandbox {
    Sandbox {
        grants: Arc::new(stage.grants.to_look()),
        ..working_sandbox(document, host, clock, stage)
    }
}

/// Each side may take half of the memory for planning, before a run has all of it: a source that
/// samples may have to hold one whole record.
fn working_sandbox(document: &Document, host: &Host, clock: &Clock, stage: &Stage) -> Sandbox {
    let memory = document.resources.memory as usize;
    Sandbox {
        grants: Arc::clone(&stage.grants),
        memory: MemoryBudget::part_of(&host.usage.memory, memory, memory / 2),
        limits: Limits {
            batch_bytes: PLAN_BYTES,
            ..stage.limits.clone()
        },
        clock: clock.clone(),
        cancel: host.cancel.child(),
        log: host.log_sink(),
        redact: document.redactor(),
        stream: None,
    }
}

/// Configuration objects nested deeper than this are left to the connector.
const MAX_CONFIG_DEPTH: usize = 16;

/// The values of `x-grant` that mark a path.
const PATH_MARKS: [&str; 5] = ["read", "write", "tls-root-cert", "tls-cert", "tls-key"];

/// Refuses a URL and `~` where a setting names files.
fn check_paths(document: &Document, value: &Value, key: &str) -> Result<(), Failure> {
    let texts = match value {
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    for text in texts.iter().filter_map(Value::as_str) {
        local_path::check(text).map_err(|NotLocal { message, hint }| {
            Failure::at_key(document, key, "not_a_local_path", message).hint(hint)
        })?;
    }
    Ok(())
}

/// Whether a schema takes true and false, and nothing else but null.
fn is_boolean(schema: &Value) -> bool {
    takes_only(schema, "boolean")
}

/// Whether a schema takes strings, and nothing else but null.
fn is_text(schema: &Value) -> bool {
    takes_only(schema, "string")
}

/// Whether a schema takes values of this type, and nothing else but null.
fn takes_only(schema: &Value, of_type: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == of_type,
        Some(Value::Array(names)) => {
            let known = names.iter().all(|name| name == of_type || name == "null");
            known && names.iter().any(|name| name == of_type)
        }
        _ => false,
    }
}

/// Whether a schema leaves the type open, as for the body of a request, where null is a value.
fn is_free(schema: &Value) -> bool {
    let says = ["type", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"];
    !says.iter().any(|word| schema.get(word).is_some())
}

/// Refuses null: the connector would use the default of the key, and write to another schema, for example.
fn no_value(document: &Document, path: &str, key: &str) -> Failure {
    let text = format!("{key} has no value");
    let hint = "give it a value, or remove the key to get its default; an unquoted variable that is empty is not a value";
    Failure::at_key(document, path, "invalid_type", text).hint(hint)
}

/// A string where true or false is due: the words of YAML 1.1 are strings in YAML 1.2.
fn no_boolean(document: &Document, path: &str, key: &str, text: &str) -> Failure {
    let meant = match text.to_ascii_lowercase().as_str() {
        "yes" | "y" | "on" | "true" => Some("true"),
        "no" | "n" | "off" | "false" => Some("false"),
        _ => None,
    };
    // Another value may be a secret.
    let (found, hint) = match meant {
        Some(meant) => (
            format!("the string {text:?}"),
            format!("write {key}: {meant}, without quotes"),
        ),
        None => (
            "a string".into(),
            format!("write {key}: true or {key}: false"),
        ),
    };
    let text = format!("{key} must be true or false, but is {found}");
    Failure::at_key(document, path, "invalid_type", text).hint(hint)
}

/// The value itself is not shown: it may be a secret.
fn no_text(document: &Document, path: &str, key: &str, value: &Value) -> Failure {
    let found = match value {
        Value::Bool(_) => "true or false",
        _ => "a number",
    };
    let text = format!("{key} must be a string, but is {found}");
    Failure::at_key(document, path, "invalid_type", text).hint(format!(
        "put the value in quotes: {key}: \"...\"; around a variable too: {key}: \"${{NAME}}\""
    ))
}

/// Refuses a key that the connector's schema does not know, naming the nearest known one, and a path
/// that is not local.
fn check_keys(
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
            let hint = match did_you_mean(key, known.iter().copied()) {
                Some(near) => near,
                None if known.is_empty() => "this connector takes no configuration".into(),
                None => format!("known are {}", known.join(", ")),
            };
            let (place, text) = document.unknown_key(&path, key);
            let mut failure = Failure::at_key(document, &path, "unknown_key", text);
            failure.set_place(document, place);
            return Err(failure.hint(hint));
        };
        let mark = property.get("x-grant").and_then(Value::as_str);
        if mark.is_some_and(|mark| PATH_MARKS.contains(&mark)) {
            check_paths(document, value, &path)?;
        }
        let reference = property.get("$ref").and_then(Value::as_str);
        let property = reference
            .and_then(|r| root.pointer(r.trim_start_matches('#')))
            .unwrap_or(property);
        if let Value::String(text) = value
            && is_boolean(property)
        {
            return Err(no_boolean(document, &path, key, text));
        }
        if (value.is_number() || value.is_boolean()) && is_text(property) {
            return Err(no_text(document, &path, key, value));
        }
        if value.is_null() && !is_free(property) {
            return Err(no_value(document, &path, key));
        }
        if let (Value::Object(inner), true) = (value, depth < MAX_CONFIG_DEPTH) {
            check_keys(document, root, property, inner, &path, depth + 1)?;
        }
    }
    Ok(())
}

//! From a `.wasm` file to a connector that can be instantiated.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Take};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde_json::Value;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm};

use crate::bindings::destination_world::DestinationConnectorPre;
use crate::bindings::source_world::SourceConnectorPre;
use crate::bindings::transform_world::TransformConnectorPre;
use crate::bindings::types::{Error as ConnectorError, ErrorKind, Spec};
use crate::cache::{self, Cache};
use crate::native::NativeConnector;
use crate::session::SourceSession;
use crate::state::{EPOCH_TICK, State};
use crate::wasm::{WasmDestination, WasmSource, WasmTransform};
use crate::{
    Destination, Error, Grants, Result, Sandbox, Source, Transform, functions, host, regular,
};

/// The interface that a component exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `rapidbyte:connector/source`.
    Source,
    /// `rapidbyte:connector/transform`.
    Transform,
    /// `rapidbyte:connector/destination`.
    Destination,
}

impl Kind {
    /// All kinds, in the order of a batch's way.
    pub const ALL: [Self; 3] = [Self::Source, Self::Transform, Self::Destination];

    /// Its name in commands, documents and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Transform => "transform",
            Self::Destination => "destination",
        }
    }

    /// The interface that a component of this kind exports.
    fn export(self) -> String {
        format!("{INTERFACES}{}@{CONTRACT}", self.name())
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Where a connector's code is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A `.wasm` file.
    File(PathBuf),
    /// The program itself.
    Embedded(&'static Embedded),
    /// A type of the program.
    Native(NativeConnector),
}

/// A connector that the program carries inside. Two are the same if their hashes are.
#[derive(Debug)]
pub struct Embedded {
    /// Such as `source-file`.
    pub name: &'static str,
    /// BLAKE3 of the `.wasm`.
    pub hash: [u8; 32],
    /// Bytes of the `.wasm`.
    pub size: usize,
    /// The `.wasm` as one zstd frame.
    pub zstd: &'static [u8],
}

impl PartialEq for Embedded {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Embedded {}

impl Hash for Embedded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Not its bytes: each run looks for its connectors.
        self.hash.hash(state);
    }
}

/// How a connector was loaded.
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// True when the code came from the cache, false when it was compiled now.
    pub from_cache: bool,
    /// Reading, authenticating and loading or compiling.
    pub load: Duration,
}

/// Loads connectors. One for a process; clones share everything.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    engine: Engine,
    linker: Linker<State>,
    cache: Option<Cache>,
    /// Components above this size are compiled by the functions that the cache keeps.
    large_bytes: usize,
    tell: Box<Tell>,
    loaded: Mutex<HashMap<Origin, Kept>>,
    ticker: Ticker,
}

/// A connector that was loaded before.
struct Kept {
    connector: Connector,
    /// Of the file it came from.
    stamp: Option<Stamp>,
}

/// It changes when a file is written or replaced: device, inode, bytes, and the times of its last change in
/// seconds and nanoseconds.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

/// Hears the name of a connector that is about to be compiled.
type Tell = dyn Fn(&str) + Send + Sync;

/// The last owner drops it, which ends the epoch thread.
type Ticker = Arc<Sender<()>>;

/// A connector that is loaded and checked. Clones share the code.
#[derive(Clone)]
pub struct Connector {
    name: Arc<str>,
    world: World,
    loaded: Loaded,
    /// BLAKE3 of the `.wasm` that was loaded.
    hash: [u8; 32],
    imports: Arc<[String]>,
    /// Its description, once it was asked. It does not depend on a run, and each run needs it.
    described: Arc<OnceLock<Spec>>,
    /// The config schema of the description, once it was parsed.
    schema: Arc<OnceLock<Arc<Value>>>,
    /// A connector may outlive its runtime, and its guests must be stopped all the same.
    _ticker: Ticker,
}

#[derive(Clone)]
enum World {
    Source(SourceConnectorPre<State>),
    Transform(TransformConnectorPre<State>),
    Destination(DestinationConnectorPre<State>),
    Native(NativeConnector),
}

/// Everything in [`engine_config`] that wasmtime's compatibility hash does not cover.
const SETTINGS: &str = "rapidbyte 2: speed, epochs";
/// A `.wasm` above this size is refused before it is read.
const MAX_WASM_BYTES: u64 = 512 << 20;
/// Stack of a guest: deep recursion traps before it reaches the thread's end.
const GUEST_STACK_BYTES: usize = 1 << 20;

pub(crate) fn engine_config() -> Config {
    let mut config = Config::new();
    let (level, registers) = match cfg!(feature = "quick-code") {
        true => (OptLevel::None, RegallocAlgorithm::SinglePass),
        false => (OptLevel::Speed, RegallocAlgorithm::Backtracking),
    };
    config
        .cranelift_opt_level(level)
        .cranelift_regalloc_algorithm(registers)
        .epoch_interruption(true)
        // Stacks are walked by frame pointers. Tables are a twentieth of the code to hash, and are registered
        // with the unwinder at each load.
        .native_unwind_info(false)
        .max_wasm_stack(GUEST_STACK_BYTES)
        .generate_address_map(false)
        // Not covered by the compatibility hash, but without effect on compiled code.
        .wasm_backtrace_max_frames(None);
    config
}

impl Runtime {
    /// A runtime that keeps compiled code in `cache`; without one it compiles every time. As that takes
    /// seconds, `tell` hears the connector's name before.
    pub fn new(cache: Option<Cache>, tell: impl Fn(&str) + Send + Sync + 'static) -> Result<Self> {
        Self::with(cache, functions::LARGE_BYTES, tell)
    }

    fn with(
        cache: Option<Cache>,
        large_bytes: usize,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self> {
        let failed = |error: wasmtime::Error| load_error("host", internal(&error));
        let engine = Engine::new(&engine_config()).map_err(failed)?;
        let mut linker = Linker::new(&engine);
        link(&mut linker).map_err(failed)?;
        let stop = tick(&engine).map_err(|e| failed(e.into()))?;
        let inner = Inner {
            engine,
            linker,
            cache,
            large_bytes,
            tell: Box::new(tell),
            loaded: Mutex::default(),
            ticker: Arc::new(stop),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Loads a connector: from memory when this runtime has it and its file has not changed, from the cache, or by
    /// compiling.
    /// Two threads may load two connectors at a time.
    pub fn load(&self, origin: &Origin) -> Result<Connector> {
        let loaded = || self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is read: what changes meanwhile is read again the next time.
        let stamp = origin.stamp();
        if let Some(kept) = loaded().get(origin).filter(|kept| kept.stamp == stamp) {
            return Ok(kept.connector.clone());
        }
        let name = origin.name().to_owned();
        let start = Instant::now();
        if let Origin::Native(native) = origin {
            return Ok(Connector {
                name: name.into(),
                world: World::Native(native.clone()),
                loaded: Loaded {
                    from_cache: true,
                    load: Duration::ZERO,
                },
                hash: [0; 32],
                imports: Arc::from([]),
                described: Arc::default(),
                schema: Arc::default(),
                _ticker: Arc::clone(&self.0.ticker),
            });
        }
        let (component, from_cache, hash) = self
            .component(origin)
            .map_err(|error| load_error(&name, error))?;
        let world = self
            .world(&component, origin)
            .map_err(|error| load_error(&name, error))?;
        let timing = Loaded {
            from_cache,
            load: start.elapsed(),
        };
        let connector = Connector {
            name: name.into(),
            world,
            loaded: timing,
            hash,
            imports: self.imports(&component),
            described: Arc::default(),
            schema: Arc::default(),
            _ticker: Arc::clone(&self.0.ticker),
        };
        let kept = Kept {
            connector: connector.clone(),
            stamp,
        };
        loaded().insert(origin.clone(), kept);
        Ok(connector)
    }

    /// The interfaces of ours that it asks for, and `http`; the standard set grants nothing by
    /// itself.
    fn imports(&self, component: &Component) -> Arc<[String]> {
        // Its types alone reach nobody.
        const HTTP: &str = "wasi:http/outgoing-handler@";
        let component = component.component_type();
        let imports = component.imports(&self.0.engine);
        let ours = imports.filter_map(|(name, _)| {
            if name.starts_with(HTTP) {
                return Some("http".to_owned());
            }
            let name = name.strip_prefix(INTERFACES)?;
            Some(name.split('@').next().unwrap_or(name).to_owned())
        });
        let mut ours: Vec<String> = ours.filter(|name| name != "types").collect();
        ours.sort();
        ours.into()
    }

    /// True if it came from the cache; and the BLAKE3 of the `.wasm`.
    fn component(&self, origin: &Origin) -> Result<(Component, bool, [u8; 32]), ConnectorError> {
        let Inner {
            engine,
            cache,
            tell,
            ..
        } = &*self.0;
        let name = |hash| Cache::name(&hash, compatibility(engine), SETTINGS);
        if let Some(cache) = cache {
            let hash = origin.hash()?;
            if let Some(component) = trust(engine, cache, &name(hash), None) {
                return Ok((component, true, hash));
            }
        }
        let wasm = origin.wasm()?;
        // A file may be another one by now.
        let hash = *blake3::hash(&wasm).as_bytes();
        let name = name(hash);
        refuse_other_contract(&wasm, origin)?;
        tell(origin.name());
        if let Some(component) = self.by_functions(&wasm, &name) {
            return Ok((component, false, hash));
        }
        let component = Component::new(engine, &wasm).map_err(|error| {
            ConnectorError::new(
                ErrorKind::Config,
                "invalid_component",
                format!("{origin} is damaged or truncated: {error:#}"),
            )
            .hint("build or download it again")
        })?;
        if let (Some(cache), Ok(code)) = (cache, component.serialize()) {
            // A cache that cannot be written costs time at the next start and nothing else.
            let _ = cache.put(&name, &code);
        }
        Ok((component, false, hash))
    }

    /// Compiles an interpreter with its script, with the functions of the last compilation at hand. None for other
    /// components and without a cache; and where it fails, so that the usual way says why.
    fn by_functions(&self, wasm: &[u8], name: &str) -> Option<Component> {
        let Inner { engine, cache, .. } = &*self.0;
        let cache = cache.as_ref()?;
        if wasm.len() <= self.0.large_bytes {
            return None;
        }
        let pack = functions::pack_name(wasm, compatibility(engine), SETTINGS)?;
        let code = functions::compile(engine_config(), cache, &pack, wasm).ok()?;
        // Code that is not in the cache runs from memory, and is compiled again at the next start.
        let _ = cache.put(name, &code);
        trust(engine, cache, name, Some(code))
    }

    fn world(&self, component: &Component, origin: &Origin) -> Result<World, ConnectorError> {
        let Inner { engine, linker, .. } = &*self.0;
        let exports: Vec<String> = component
            .component_type()
            .exports(engine)
            .map(|(name, _)| name.to_owned())
            .collect();
        let wrong = |message: String| {
            let [source, transform, destination] = Kind::ALL.map(Kind::export);
            let hint = format!(
                "name a connector: a component that exports {source}, {transform} or {destination}"
            );
            ConnectorError::new(ErrorKind::Config, "invalid_world", message).hint(hint)
        };
        let is_exported = |kind: &Kind| exports.contains(&kind.export());
        let Some(kind) = Kind::ALL.into_iter().find(is_exported) else {
            let what = if exports.is_empty() {
                "nothing".into()
            } else {
                exports.join(", ")
            };
            return Err(wrong(format!(
                "{origin} is not a connector: it exports {what}"
            )));
        };
        let pre = linker.instantiate_pre(component);
        let world = match kind {
            Kind::Source => pre.and_then(SourceConnectorPre::new).map(World::Source),
            Kind::Transform => pre
                .and_then(TransformConnectorPre::new)
                .map(World::Transform),
            Kind::Destination => pre
                .and_then(DestinationConnectorPre::new)
                .map(World::Destination),
        };
        world.map_err(|error| wrong(format!("{origin} does not match the contract: {error:#}")))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Embedded(Embedded { name, .. }) => write!(f, "{name} in the program"),
            Self::Native(native) => write!(f, "{} in the program", native.name()),
        }
    }
}

impl Origin {
    /// The file's name without `.wasm`.
    fn name(&self) -> &str {
        match self {
            Self::File(path) => {
                let stem = path.file_stem().and_then(|stem| stem.to_str());
                stem.unwrap_or("connector")
            }
            Self::Embedded(embedded) => embedded.name,
            Self::Native(native) => native.name(),
        }
    }

    /// The BLAKE3 of the `.wasm` in hexadecimal: it identifies a connector for a person.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn hash_text(&self) -> Result<String> {
        let hash = self
            .hash()
            .map_err(|error| load_error(self.name(), error))?;
        Ok(blake3::Hash::from_bytes(hash).to_hex().to_string())
    }

    /// The SHA-256 of the `.wasm` in hexadecimal, if `connector` was loaded from it. `None` if the
    /// file has changed since.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn sha256_of(&self, connector: &Connector) -> Result<Option<String>> {
        let wasm = self
            .wasm()
            .map_err(|error| load_error(self.name(), error))?;
        if *blake3::hash(&wasm).as_bytes() != connector.hash {
            return Ok(None);
        }
        let sha256 = ring::digest::digest(&ring::digest::SHA256, &wasm);
        Ok(Some(
            sha256.as_ref().iter().map(|b| format!("{b:02x}")).collect(),
        ))
    }

    /// None where it does not come from a file, or there is no such file.
    fn stamp(&self) -> Option<Stamp> {
        let Self::File(path) = self else {
            return None;
        };
        let meta = std::fs::metadata(path).ok()?;
        let written = (meta.mtime(), meta.mtime_nsec());
        let changed = (meta.ctime(), meta.ctime_nsec());
        Some((meta.dev(), meta.ino(), meta.len(), written, changed))
    }

    /// Of the `.wasm`: reading all of a file at once would cost more than hashing it.
    fn hash(&self) -> Result<[u8; 32], ConnectorError> {
        match self {
            Self::File(path) => {
                cache::hash(open(path, MAX_WASM_BYTES)?).map_err(|error| unread(path, &error))
            }
            Self::Embedded(embedded) => Ok(embedded.hash),
            Self::Native(native) => Err(no_component(native)),
        }
    }

    fn wasm(&self) -> Result<Vec<u8>, ConnectorError> {
        match self {
            Self::File(path) => read(path, MAX_WASM_BYTES),
            Self::Embedded(embedded) => zstd::bulk::decompress(embedded.zstd, embedded.size)
                .map_err(|error| {
                    let text = format!("{self}: {error}");
                    ConnectorError::new(ErrorKind::Internal, "not_a_component", text)
                        .hint("install the program again: it is damaged")
                }),
            Self::Native(native) => Err(no_component(native)),
        }
    }
}

impl Connector {
    /// The file's name without `.wasm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface that it exports.
    pub fn kind(&self) -> Kind {
        match &self.world {
            World::Source(_) => Kind::Source,
            World::Transform(_) => Kind::Transform,
            World::Destination(_) => Kind::Destination,
            World::Native(native) => native.kind(),
        }
    }

    /// Two connectors with the same text have the same code: the BLAKE3 of the `.wasm` in hexadecimal, or the name of a
    /// native connector.
    pub fn identity(&self) -> String {
        match &self.world {
            World::Native(native) => native.name().to_owned(),
            _ => blake3::Hash::from_bytes(self.hash).to_hex().to_string(),
        }
    }

    /// The interfaces that it imports from the host, such as `connection` and `files`, in order.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }

    /// How it was loaded.
    pub fn loaded(&self) -> Loaded {
        self.loaded
    }

    /// Its description and the settings that it takes. It runs without a grant, a running clock or chance,
    /// whatever the sandbox has, so its answer is the same each time, and it is asked once.
    ///
    /// # Errors
    /// The errors of instantiating, and of an answer that breaks the contract.
    pub fn describe(&self, sandbox: Sandbox) -> Result<Spec> {
        if let Some(spec) = self.described.get() {
            return Ok(spec.clone());
        }
        let sandbox = Sandbox {
            grants: Arc::new(Grants::to_describe()),
            ..sandbox
        };
        let spec = match self.kind() {
            Kind::Source => self.source(sandbox)?.describe()?,
            Kind::Transform => self.transform(sandbox)?.describe()?,
            Kind::Destination => self.destination(sandbox)?.describe()?,
        };
        // Of two threads, the first one decides.
        Ok(self.described.get_or_init(|| spec).clone())
    }

    /// The config schema of the description `spec`, as JSON. It is parsed once: each run needs it, and those of ours have
    /// 20 KB.
    ///
    /// # Errors
    /// A text that is not JSON.
    pub fn config_schema(&self, spec: &Spec) -> serde_json::Result<Arc<Value>> {
        if let Some(schema) = self.schema.get() {
            return Ok(Arc::clone(schema));
        }
        let schema = Arc::new(serde_json::from_str(&spec.config_schema)?);
        Ok(Arc::clone(self.schema.get_or_init(|| schema)))
    }

    /// Instantiates a source.
    pub fn source(&self, sandbox: Sandbox) -> Result<Source> {
        Ok(Source::new(self.source_session(sandbox)?))
    }

    /// The same without the check of what it returns, for a native source that hands its calls on to a component: the
    /// host checks what the native source returns.
    ///
    /// # Errors
    /// `invalid_world` for another connector, and the errors of instantiating.
    pub fn source_session(&self, sandbox: Sandbox) -> Result<Box<dyn SourceSession>> {
        match &self.world {
            World::Source(pre) => Ok(Box::new(WasmSource::of(pre, &self.name, sandbox)?)),
            World::Native(native) => native
                .source_session(sandbox)
                .ok_or_else(|| self.is_not("source")),
            World::Transform(_) | World::Destination(_) => Err(self.is_not("source")),
        }
    }

    /// Instantiates a transform.
    pub fn transform(&self, sandbox: Sandbox) -> Result<Transform> {
        match &self.world {
            World::Transform(pre) => {
                let session = WasmTransform::of(pre, &self.name, sandbox)?;
                Ok(Transform::new(Box::new(session)))
            }
            World::Native(native) => {
                let session = native.transform_session(sandbox);
                session
                    .map(Transform::new)
                    .ok_or_else(|| self.is_not("transform"))
            }
            World::Source(_) | World::Destination(_) => Err(self.is_not("transform")),
        }
    }

    /// Instantiates a destination.
    pub fn destination(&self, sandbox: Sandbox) -> Result<Destination> {
        match &self.world {
            World::Destination(pre) => {
                let session = WasmDestination::of(pre, &self.name, sandbox)?;
                Ok(Destination::new(Box::new(session)))
            }
            World::Native(native) => {
                let session = native.destination_session(sandbox);
                session
                    .map(Destination::new)
                    .ok_or_else(|| self.is_not("destination"))
            }
            World::Source(_) | World::Transform(_) => Err(self.is_not("destination")),
        }
    }

    fn is_not(&self, kind: &str) -> Error {
        let text = format!("{} is not a {kind}", self.name);
        load_error(
            &self.name,
            ConnectorError::new(ErrorKind::Config, "invalid_world", text),
        )
    }
}

fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    use crate::bindings::{connection, digest, files, log, phase, types};
    type Own = wasmtime::component::HasSelf<State>;
    host::wasi::add_to_linker(linker)?;
    host::http::add_to_linker(linker)?;
    types::add_to_linker::<_, Own>(linker, |state| state)?;
    connection::add_to_linker::<_, Own>(linker, |state| state)?;
    files::add_to_linker::<_, Own>(linker, |state| state)?;
    log::add_to_linker::<_, Own>(linker, |state| state)?;
    digest::add_to_linker::<_, Own>(linker, |state| state)?;
    phase::add_to_linker::<_, Own>(linker, |state| state)
}

/// Moves the epoch on until the sender is dropped.
fn tick(engine: &Engine) -> std::io::Result<Sender<()>> {
    let (stop, stopped) = bounded::<()>(0);
    let engine = engine.clone();
    std::thread::Builder::new()
        .name("epoch".into())
        .spawn(move || {
            while stopped.recv_timeout(EPOCH_TICK) == Err(RecvTimeoutError::Timeout) {
                engine.increment_epoch();
            }
        })?;
    Ok(stop)
}

pub(crate) fn compatibility(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

/// Maps code of the cache, or copies it where it cannot be mapped (not on Linux, no `/proc`, a file
/// system that holds no programs). `made` is the same code, if this process has just compiled it.
#[expect(
    unsafe_code,
    reason = "wasmtime loads native code only through an unsafe function"
)]
fn trust(engine: &Engine, cache: &Cache, name: &str, made: Option<Vec<u8>>) -> Option<Component> {
    if let Some(file) = cache.get(name) {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: `Cache::get` gives only code that this user's key authenticates, which
        // `Component::serialize` or `Engine::precompile_component` of an engine with these settings
        // made. It is the same open file, which nobody but this user can write to, and entries are
        // replaced, never written to.
        if let Ok(component) = unsafe { Component::deserialize_file(engine, path) } {
            return Some(component);
        }
    }
    let code = made.or_else(|| cache.copy(name))?;
    // SAFETY: authenticated in the same way, or given by the compiler in this process; in memory of our own.
    unsafe { Component::deserialize(engine, &code) }.ok()
}

fn no_component(native: &NativeConnector) -> ConnectorError {
    let text = format!(
        "{} is a part of the program, and no component",
        native.name()
    );
    ConnectorError::new(ErrorKind::Config, "not_a_component", text)
}

fn not_loadable(path: &Path, code: &str, what: &dyn std::fmt::Display) -> ConnectorError {
    ConnectorError::new(
        ErrorKind::Config,
        code,
        format!("{}: {what}", path.display()),
    )
}

fn unread(path: &Path, error: &std::io::Error) -> ConnectorError {
    not_loadable(path, "connector_not_found", error)
}

fn not_regular(path: &Path) -> ConnectorError {
    not_loadable(path, "not_a_component", &"is not a regular file")
        .hint("give the path of a .wasm file")
}

/// `size` is not known of a file that grows while it is read.
fn too_large(path: &Path, size: Option<u64>, limit: u64) -> ConnectorError {
    let size = size.map_or_else(
        || format!("more than {limit} bytes"),
        |size| format!("{size} bytes"),
    );
    let text = format!("has a size of {size}, and a connector has at most {limit} bytes");
    not_loadable(path, "not_a_component", &text)
        .hint("check that the file is a connector; if it is, build it without debug information")
}

/// Opens a regular file; it ends behind `limit`.
fn open(path: &Path, limit: u64) -> Result<Take<File>, ConnectorError> {
    let failed = |error| unread(path, &error);
    let file = regular::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => not_regular(path),
        _ => failed(error),
    })?;
    let size = file.metadata().map_err(failed)?.len();
    if size > limit {
        return Err(too_large(path, Some(size), limit));
    }
    // The file may have grown since the check.
    Ok(file.take(limit + 1))
}

/// The bytes of a component, at most `limit` of them.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ConnectorError> {
    let config = |code: &str, what: &dyn std::fmt::Display| not_loadable(path, code, what);
    let mut wasm = Vec::new();
    let len = open(path, limit)?
        .read_to_end(&mut wasm)
        .map_err(|error| unread(path, &error))?;
    if len as u64 > limit {
        return Err(too_large(path, None, limit));
    }
    match wasm.get(..8) {
        Some([0, b'a', b's', b'm', _, _, 1, 0]) => Ok(wasm),
        Some([0, b'a', b's', b'm', 1, 0, 0, 0]) => Err(config(
            "not_a_component",
            &"a core WebAssembly module, not a component",
        )
        .hint("build it for wasm32-wasip2")),
        _ => Err(config("not_a_component", &"not a WebAssembly component")
            .hint("build it for wasm32-wasip2")),
    }
}

fn internal(error: &wasmtime::Error) -> ConnectorError {
    ConnectorError::new(ErrorKind::Internal, "internal", format!("{error:#}"))
}

fn load_error(connector: &str, error: ConnectorError) -> Error {
    Error::Failed {
        connector: connector.into(),
        export: "load",
        phase: None,
        error: Box::new(error),
    }
}

/// The version of the contract that this program has (`wit/rapidbyte.wit`).
pub const CONTRACT: &str = "0.2.0";

/// The interfaces of the contract.
const INTERFACES: &str = "rapidbyte:connector/";

/// Refuses a component that was built for another version of the contract, before it takes seconds to compile. The
/// file contains the names of its exports as plain text.
fn refuse_other_contract(wasm: &[u8], origin: &Origin) -> Result<(), ConnectorError> {
    let Some(found) = other_contract(wasm) else {
        return Ok(());
    };
    let text = format!(
        "{origin} was built for the contract {found}, and this program has the contract {CONTRACT}"
    );
    let error = ConnectorError::new(ErrorKind::Config, "other_contract", text);
    Err(error.hint("build the connector again with the SDK of this version, or use the program that it was built for"))
}

/// The version of the contract that a component exports. `None` if it exports ours, or no contract.
fn other_contract(wasm: &[u8]) -> Option<String> {
    /// Bytes of a version that is shown.
    const MOST: usize = 32;
    let mut other = None;
    for kind in Kind::ALL {
        let export = format!("{INTERFACES}{}@", kind.name());
        for at in memchr::memmem::find_iter(wasm, export.as_bytes()) {
            let rest = &wasm[at + export.len()..];
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+".contains(byte);
            let version = rest
                .iter()
                .copied()
                .take(MOST)
                .take_while(is_part)
                .collect();
            let version = String::from_utf8(version).unwrap_or_default();
            // The bytes after the version in the file may look like a part of it.
            if version.starts_with(CONTRACT) {
                return None;
            }
            other.get_or_insert(version);
        }
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit_and_no_further() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.wasm");
        let component = b"\0asm\x0d\0\x01\0";
        std::fs::write(&path, component).expect("a file");
        assert_eq!(read(&path, 8).expect("a component"), component);
        let error = read(&path, 7).expect_err("too large");
        assert_eq!(error.code, "not_a_component");
        let words = "has a size of 8 bytes, and a connector has at most 7 bytes";
        assert!(error.message.contains(words), "{}", error.message);
        assert!(error.hint.is_some_and(|hint| hint.contains("debug")));
        let error = read(folder.path(), 7).expect_err("a directory");
        assert!(
            error.message.contains("not a regular file"),
            "{}",
            error.message
        );
        assert!(error.hint.is_some_and(|hint| hint.contains(".wasm")));
        // The system reports the size zero, but the file has more.
        let endless = Path::new("/proc/self/maps");
        if endless.exists() {
            let error = read(endless, 100).expect_err("too large");
            assert!(error.message.contains("size"), "{}", error.message);
        }
    }

    #[test]
    fn a_large_component_is_compiled_with_the_functions_that_the_cache_keeps() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.wasm");
        let wasm = functions::tests::component_of("(module (func (result i32) (i32.const 7)))");
        std::fs::write(&path, &wasm).expect("a file");
        let origin = Origin::File(path);
        let names = |large_bytes: usize, cache: &str| {
            let dir = folder.path().join(cache);
            let cache = Cache::open(&dir, &folder.path().join("key")).expect("a cache");
            let runtime = Runtime::with(Some(cache), large_bytes, |_| {}).expect("a runtime");
            let load = || runtime.component(&origin).expect("a component");
            assert!(!load().1 && load().1, "compiled, then from the cache");
            let names = std::fs::read_dir(&dir).expect("the cache");
            let mut names: Vec<_> = names
                .map(|entry| entry.expect("a name").file_name())
                .collect();
            names.sort_by_key(|name| name.to_string_lossy().ends_with(".functions.cwasm"));
            let code = std::fs::read(dir.join(&names[0])).expect("its code");
            (code, names)
        };
        let (plain, usual) = names(wasm.len(), "small");
        assert_eq!(usual.len(), 1);
        let (code, both) = names(wasm.len() - 1, "large");
        assert!(code == plain, "other code");
        assert_eq!(both.len(), 2);
        assert_eq!(both[0], usual[0]);
        assert!(both[1].to_string_lossy().ends_with(".functions.cwasm"));
    }
}

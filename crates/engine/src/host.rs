//! The environment of every plan and run: the runtime, the bundled connectors, the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_runtime::{
    Cancel, Clock, Connector, Embedded, Grants, Kind, Level, Limits, LogSink, MemoryBudget,
    NativeConnector, Origin, Permissions, Runtime, Sandbox, Spec, no_secrets,
};

use crate::event::{ENGINE, Event, EventSink};
use crate::failure::{Class, Failure};
use crate::idle::Reuse;
use crate::meant::did_you_mean;
use crate::usage::Usage;

/// The parts of the process that a pipeline runs on.
#[derive(Clone)]
pub struct Host {
    /// Loads connectors.
    pub runtime: Runtime,
    /// Folders with bundled connectors, first match wins.
    pub connector_dirs: Vec<PathBuf>,
    /// Connectors inside the program, for names that are in no folder.
    pub embedded: &'static [Embedded],
    /// Connectors of the caller's own, before all others.
    pub native: Arc<[NativeConnector]>,
    /// The receiver of all events.
    pub events: EventSink,
    /// Interrupts everything.
    pub cancel: Cancel,
    /// The longest pause before the first row. The command ends if a server asks for a longer pause.
    pub longest_pause: Duration,
    /// CPU time and memory of the run. It belongs to one run: clones count together.
    pub usage: Usage,
    /// The sessions of earlier runs that a run may use. `None`: it opens its own, and closes them.
    pub reuse: Option<Reuse>,
}

/// The longest pause of a command that a person waits for.
const HURRIED_PAUSE: Duration = Duration::from_secs(30);

/// Memory of an instance that only describes itself.
const DESCRIBE_BYTES: usize = 64 << 20;
/// And its time, unless the operator gives it more: it asks nobody.
const DESCRIBE_TIME: Duration = Duration::from_secs(10);

impl Host {
    /// For a command that only looks: a server that asks for a long pause ends it.
    #[must_use]
    pub fn hurried(mut self) -> Self {
        self.longest_pause = HURRIED_PAUSE;
        self
    }

    /// The bundled connectors' names, ordered.
    pub fn bundled(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .connector_dirs
            .iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten())
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".wasm")
                    .map(Into::into)
            })
            .chain(self.embedded.iter().map(|known| known.name.to_owned()))
            .chain(self.native.iter().map(|known| known.name().to_owned()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// The file of a bundled name, or of a path to a `.wasm` relative to `base_dir`.
    pub fn find(&self, name: &str, base_dir: &Path) -> Result<Origin, Failure> {
        if name.contains('/') || name.ends_with(".wasm") {
            // Without `.` in the middle, which a message would show.
            return Ok(Origin::File(base_dir.join(name).components().collect()));
        }
        if let Some(native) = self.native.iter().find(|known| known.name() == name) {
            return Ok(Origin::Native(native.clone()));
        }
        let file = format!("{name}.wasm");
        let found = self
            .connector_dirs
            .iter()
            .map(|dir| dir.join(&file))
            .find(|path| path.is_file())
            .map(Origin::File);
        let embedded = || self.embedded.iter().find(|known| known.name == name);
        found
            .or_else(|| embedded().map(Origin::Embedded))
            .ok_or_else(|| {
                let bundled = self.bundled();
                let hint = match did_you_mean(name, bundled.iter().map(String::as_str)) {
                    Some(near) => near,
                    None if bundled.is_empty() => {
                        "build the connectors first: none are installed beside the program".into()
                    }
                    None => format!(
                        "use a bundled connector ({}), or give the path of a .wasm file",
                        bundled.join(", ")
                    ),
                };
                Failure::new(
                    Class::Config,
                    "unknown_connector",
                    format!("the connector {name:?} does not exist"),
                )
                .hint(hint)
            })
    }

    /// The same for a connector of this kind: a program may have a source and a destination of one name.
    pub fn find_as(&self, kind: Kind, name: &str, base_dir: &Path) -> Result<Origin, Failure> {
        let is_it = |known: &&NativeConnector| known.name() == name && known.kind() == kind;
        match self.native.iter().find(is_it) {
            Some(native) => Ok(Origin::Native(native.clone())),
            None => self.find(name, base_dir),
        }
    }

    /// Loads the connector of a bundled name, or of a path to a `.wasm` relative to `base_dir`, outside a pipeline.
    ///
    /// # Errors
    /// `unknown_connector`, and the errors of loading.
    pub fn load(&self, name: &str, base_dir: &Path) -> Result<(Origin, Connector), Failure> {
        let origin = self.find(name, base_dir)?;
        let connector = self.runtime.load(&origin).map_err(outside)?;
        Ok((origin, connector))
    }

    /// The description that a connector gives outside a pipeline.
    ///
    /// # Errors
    /// The errors of the connector.
    pub fn describe_alone(&self, connector: &Connector) -> Result<Spec, Failure> {
        let described = self.describe(connector, &Permissions::default(), &Clock::new());
        described.map_err(outside)
    }

    /// A sandbox that grants nothing.
    pub fn bare_sandbox(&self, clock: &Clock) -> Sandbox {
        Sandbox {
            grants: Arc::new(Grants::none()),
            memory: MemoryBudget::new(DESCRIBE_BYTES),
            limits: describe_limits(),
            clock: clock.clone(),
            cancel: self.cancel.clone(),
            log: self.log_sink(),
            // The connector does not get a configuration, so it knows no secrets.
            redact: no_secrets(),
            stream: None,
        }
    }

    /// Where messages of connectors go.
    pub fn log_sink(&self) -> LogSink {
        let events = Arc::clone(&self.events);
        Arc::new(move |from, stream, level, message| {
            events(&Event::Log {
                from,
                stream,
                level,
                message,
            });
        })
    }

    /// Whether its runs are short: their sessions are those of earlier runs, and one side is mostly rows of the program. So
    /// a thread for a few calls takes longer than the calls.
    pub(crate) fn is_short(&self) -> bool {
        self.reuse.is_some()
    }

    /// Whether a plan failed because of sessions of earlier runs, which are closed now.
    pub(crate) fn is_reuse_to_blame(&self, failure: &Failure) -> bool {
        let reuse = self.reuse.as_ref();
        reuse.is_some_and(|reuse| reuse.is_to_blame(failure))
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        (self.events)(event);
    }

    /// A message of the engine's own.
    pub(crate) fn log(&self, stream: Option<&str>, level: Level, message: &str) {
        self.tell(&Event::Log {
            from: ENGINE,
            stream,
            level,
            message,
        });
    }

    /// A step of the engine's own, for those who ask for details.
    pub(crate) fn say(&self, stream: &str, message: &str) {
        self.log(Some(stream), Level::Debug, message);
    }

    /// The description that a loaded connector gives, within the limits of its stage.
    pub fn describe(
        &self,
        connector: &Connector,
        permissions: &Permissions,
        clock: &Clock,
    ) -> rapidbyte_runtime::Result<Spec> {
        let sandbox = Sandbox {
            limits: permissions.limits_over(describe_limits()),
            ..self.bare_sandbox(clock)
        };
        connector.describe(sandbox)
    }
}

/// The failure of a connector that no pipeline uses.
fn outside(error: rapidbyte_runtime::Error) -> Failure {
    let class = match error {
        rapidbyte_runtime::Error::Cancelled => Class::Cancelled,
        _ => Class::Config,
    };
    let Some(inner) = error.failure() else {
        return Failure::cancelled();
    };
    let failure = Failure::new(class, &inner.code, &inner.message);
    match &inner.hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn describe_limits() -> Limits {
    Limits {
        busy: DESCRIBE_TIME,
        stall: DESCRIBE_TIME,
        batch_bytes: 0,
        ..Limits::default()
    }
}

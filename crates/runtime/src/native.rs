//! Native connectors: types of the program that implement the sessions themselves.
//!
//! No sandbox confines a native connector. The host checks everything that it returns, like everything that a component
//! returns. The sandbox also cancels, times and limits it, but only as far as the connector asks the sandbox.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::bindings::types::{Error as ConnectorError, ErrorKind};
use crate::session::{DestinationSession, Session, SourceSession, TransformSession};
use crate::{Error, Kind, Phase, Registration, Result, Sandbox};

/// Makes the sessions of a source.
type MakeSource = dyn Fn(Native) -> Box<dyn SourceSession> + Send + Sync;
/// Makes the sessions of a transform.
type MakeTransform = dyn Fn(Native) -> Box<dyn TransformSession> + Send + Sync;
/// Makes the sessions of a destination.
type MakeDestination = dyn Fn(Native) -> Box<dyn DestinationSession> + Send + Sync;

/// A connector that is part of the program. Clones are equal to their original.
#[derive(Clone)]
pub struct NativeConnector(Arc<Inner>);

struct Inner {
    name: String,
    make: Make,
}

enum Make {
    Source(Box<MakeSource>),
    Transform(Box<MakeTransform>),
    Destination(Box<MakeDestination>),
}

impl NativeConnector {
    /// A source with the name that pipelines write after `use:`. `make` makes a session that is not open yet.
    pub fn source(
        name: &str,
        make: impl Fn(Native) -> Box<dyn SourceSession> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Make::Source(Box::new(make)))
    }

    /// A transform with the name that pipelines write after `use:`. `make` makes a session that is not open yet.
    pub fn transform(
        name: &str,
        make: impl Fn(Native) -> Box<dyn TransformSession> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Make::Transform(Box::new(make)))
    }

    /// A destination with the name that pipelines write after `use:`. `make` makes a session that is not open yet.
    pub fn destination(
        name: &str,
        make: impl Fn(Native) -> Box<dyn DestinationSession> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Make::Destination(Box::new(make)))
    }

    fn new(name: &str, make: Make) -> Self {
        let name = name.to_owned();
        Self(Arc::new(Inner { name, make }))
    }

    /// The name of the connector.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is a source, a transform or a destination.
    pub fn kind(&self) -> Kind {
        match self.0.make {
            Make::Source(_) => Kind::Source,
            Make::Transform(_) => Kind::Transform,
            Make::Destination(_) => Kind::Destination,
        }
    }

    pub(crate) fn source_session(&self, sandbox: Sandbox) -> Option<Box<dyn SourceSession>> {
        match &self.0.make {
            Make::Source(make) => Some(make(Native::new(self.name(), sandbox))),
            Make::Transform(_) | Make::Destination(_) => None,
        }
    }

    pub(crate) fn transform_session(&self, sandbox: Sandbox) -> Option<Box<dyn TransformSession>> {
        match &self.0.make {
            Make::Transform(make) => Some(make(Native::new(self.name(), sandbox))),
            Make::Source(_) | Make::Destination(_) => None,
        }
    }

    pub(crate) fn destination_session(
        &self,
        sandbox: Sandbox,
    ) -> Option<Box<dyn DestinationSession>> {
        match &self.0.make {
            Make::Destination(make) => Some(make(Native::new(self.name(), sandbox))),
            Make::Source(_) | Make::Transform(_) => None,
        }
    }
}

impl PartialEq for NativeConnector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for NativeConnector {}

impl Hash for NativeConnector {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for NativeConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NativeConnector")
            .field(&self.name())
            .finish()
    }
}

/// The state of every native session: its sandbox, and whether it has failed.
pub struct Native {
    connector: String,
    sandbox: Sandbox,
    dead: bool,
    /// Cancels the session together with the stage that it was handed over to.
    _stopped_with: Option<Registration>,
}

/// A session that is built on [`Native`], which implements the calls that all sessions have in common.
pub trait NativeSession: Send {
    /// The state that the session is built on.
    fn native(&self) -> &Native;
    /// The state that the session is built on.
    fn native_mut(&mut self) -> &mut Native;
}

impl Native {
    fn new(connector: &str, sandbox: Sandbox) -> Self {
        Self {
            connector: connector.to_owned(),
            sandbox,
            dead: false,
            _stopped_with: None,
        }
    }

    /// The grants, the limits and the clock of the session.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs the work of one call and counts its time as `phase`. `export` is the function of the contract, such as
    /// `reader.next`.
    ///
    /// # Errors
    /// The error of the work, with its place. [`Error::Cancelled`] if the run was cancelled.
    pub fn call<T>(
        &self,
        export: &'static str,
        phase: Phase,
        work: impl FnOnce() -> Result<T, ConnectorError>,
    ) -> Result<T> {
        if self.dead {
            let text = "the session failed before and cannot be used again";
            return Err(self.failed(
                export,
                Some(phase),
                ConnectorError::new(ErrorKind::Internal, "instance_unusable", text),
            ));
        }
        if self.sandbox.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let before = self.sandbox.clock.enter(phase);
        let done = work();
        self.sandbox.clock.enter(before);
        done.map_err(|error| self.failed(export, Some(phase), error))
    }

    fn failed(
        &self,
        export: &'static str,
        phase: Option<Phase>,
        mut error: ConnectorError,
    ) -> Error {
        if error.stream.is_none() {
            error.stream.clone_from(&self.sandbox.stream);
        }
        Error::Failed {
            connector: self.connector.clone(),
            export,
            phase,
            error: Box::new(error),
        }
    }
}

/// The schema of a configuration without settings.
pub const NO_SETTINGS: &str =
    r#"{ "type": "object", "properties": {}, "additionalProperties": false }"#;

/// Refuses every setting, for a connector that describes itself with [`NO_SETTINGS`].
///
/// # Errors
/// `unknown_key` for a setting, and `invalid_config` for what is not an object of JSON.
pub fn no_settings(config: &str) -> Result<(), ConnectorError> {
    let wrong = |code, text: String| Err(ConnectorError::new(ErrorKind::Config, code, text));
    match serde_json::from_str(config) {
        Ok(serde_json::Value::Object(keys)) => match keys.keys().next() {
            None => Ok(()),
            Some(key) => wrong(
                "unknown_key",
                format!("unknown key {key:?}: there are no settings"),
            ),
        },
        _ => wrong(
            "invalid_config",
            "the settings are not an object of JSON".into(),
        ),
    }
}

/// The error of a native session that the host calls against the contract.
pub fn broken(error: impl fmt::Display) -> ConnectorError {
    ConnectorError::new(ErrorKind::Internal, "contract_broken", error)
}

/// The error for a row of a native source that is larger than `max_record_bytes`.
pub fn record_too_large(bytes: usize, max_record_bytes: u64) -> ConnectorError {
    let text = format!("a row of {bytes} bytes, above {max_record_bytes}");
    ConnectorError::new(ErrorKind::Data, "record_too_large", text)
        .hint("raise resources.max_record_bytes")
}

impl<T: NativeSession> Session for T {
    fn sandbox(&self) -> &Sandbox {
        &self.native().sandbox
    }

    fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        let native = self.native_mut();
        if native.dead {
            return false;
        }
        let cancel = native.sandbox.cancel.clone();
        let stopped = cancel.clone();
        native._stopped_with = Some(sandbox.cancel.on_cancel(move || stopped.cancel()));
        native.sandbox = Sandbox { cancel, ..sandbox };
        true
    }

    fn is_usable(&self) -> bool {
        !self.native().dead
    }

    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error {
        let native = self.native_mut();
        native.dead = true;
        native.failed(export, None, error)
    }

    fn stalled(&self) -> ConnectorError {
        let seconds = self.native().sandbox.limits.stall.as_secs();
        let text = format!("nothing has moved for {seconds} s");
        ConnectorError::new(ErrorKind::Internal, "stalled", text)
    }

    fn close(self: Box<Self>) {}
}

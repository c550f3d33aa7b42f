//! Opens instances of the connector as a run does, and remembers what came back.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rapidbyte_runtime::{
    Cancel, CheckItem, Clock, Connector, ConnectorError, Destination, Error, ErrorKind, Grants,
    Limits, MemoryBudget, Sandbox, Source, Spec, Transform,
};
use serde_json::{Map, Value};

use crate::trial::Trial;
use crate::verdict::{Clause, LIMITS, NO_TRAP, REACH, Verdict, fail, outside, setup, skip};

/// The default memory of a stage: half of the default of `resources.memory`.
pub(crate) const MEMORY_BYTES: usize = 128 << 20;
/// CPU time without moving a byte: shorter than a run's, because a test is waited for.
const BUSY: Duration = Duration::from_secs(30);
/// Time without anything moving.
const STALL: Duration = Duration::from_secs(60);
/// How often a call is tried again when something outside failed.
const RETRIES: u32 = 3;
/// The pause before the first of them; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause, whatever the other side asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Errors that are kept; a connector that gives more has shown what it does.
const MAX_HEARD: usize = 1000;

/// The connector under test.
pub(crate) struct Bench<'a> {
    pub trial: &'a Trial,
    /// Its spec; nothing until `describe` was judged.
    pub spec: Option<Spec>,
    /// Its config schema; `Null` until it was judged.
    pub schema: Value,
    pub grants: Arc<Grants>,
    heard: RefCell<Heard>,
    /// The last error of a peer that did not find a stream.
    peer_error: RefCell<Option<String>>,
    /// That error may be about another stream, because the peer's settings do not name the wanted stream.
    peer_error_of_others: Cell<bool>,
    /// How the names of the streams begin that were written to a destination.
    pub left: RefCell<Option<String>>,
}

impl Heard {
    /// The most memory that one instance had, in bytes.
    pub fn peak_bytes(&self) -> usize {
        let peaks = self.memories.iter().map(|memory| memory.peak());
        peaks.max().unwrap_or(0)
    }
}

/// Everything that came back from all calls.
#[derive(Default)]
pub(crate) struct Heard {
    /// Errors that the connector gave, each with the call.
    pub errors: Vec<(&'static str, ConnectorError)>,
    /// Calls that ended in a trap, and how.
    pub traps: Vec<String>,
    /// Calls that the host stopped because of a limit, and which.
    pub limits: Vec<String>,
    /// Resources that the connector reached for without a grant.
    pub denied: Vec<String>,
    /// The memory of each instance.
    memories: Vec<Arc<MemoryBudget>>,
}

/// Why a call gave nothing.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    /// The connector's error, and the call.
    Error(&'static str, ConnectorError),
    /// It died, and how.
    Trap(String),
    /// It was stopped by a limit.
    Limit(String),
    /// It reached for what is not granted.
    Denied(String),
    /// Its result breaks the contract.
    Broken(String),
    /// There is more than a test reads.
    TooMuch(String),
    /// The peer cannot be asked, and why.
    Peer(String),
    /// The peer's settings are wrong, and why.
    PeerSettings(String),
    /// Cancelled by the test or by the operator.
    Cancelled,
}

/// The access of a session, and the meaning of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Everything that the settings name.
    Granted,
    /// The same, but no file is changed, as while a run is planned.
    Looks,
    /// Nothing, and it should not try.
    Nothing,
    /// Nothing; how it ends is judged by the caller alone.
    Denied,
}

impl<'a> Bench<'a> {
    pub fn new(trial: &'a Trial) -> Self {
        Self {
            trial,
            spec: None,
            schema: Value::Null,
            grants: Arc::new(Grants::none()),
            heard: RefCell::default(),
            peer_error: RefCell::default(),
            peer_error_of_others: Cell::new(false),
            left: RefCell::default(),
        }
    }

    /// Remembers why a peer does not find a stream; `of_others`: another stream may be the reason.
    pub fn peer_failed(&self, error: Option<String>, of_others: bool) {
        *self.peer_error.borrow_mut() = error;
        self.peer_error_of_others.set(of_others);
    }

    /// Whether a peer did not find a stream because of an error that may be about another stream.
    pub fn peer_failed_of_others(&self) -> bool {
        self.peer_error_of_others.get()
    }

    /// Why a peer does not find a stream, if it gave a reason. The end of a sentence.
    pub fn peer_error(&self) -> String {
        let error = self.peer_error.take();
        error.map_or_else(String::new, |error| format!(" ({error})"))
    }

    pub fn heard(&self) -> std::cell::Ref<'_, Heard> {
        self.heard.borrow()
    }

    /// The settings, or a skip that says what to give.
    pub fn config(&self) -> Result<&Map<String, Value>, Verdict> {
        let given = self
            .trial
            .settings
            .as_ref()
            .map(|settings| &settings.config);
        given.ok_or_else(|| skip("needs settings: give --config or --config-file"))
    }

    /// The settings, for clauses that only come after [`Self::config`].
    pub fn settings(&self) -> Map<String, Value> {
        self.config().cloned().unwrap_or_default()
    }

    /// The connector's spec.
    pub fn spec(&self) -> Result<&Spec, Verdict> {
        let missing = || skip("what the connector is is not known: see describe");
        self.spec.as_ref().ok_or_else(missing)
    }

    fn sandbox(&self, reach: Reach, cancel: Cancel) -> Sandbox {
        let host = &self.trial.host;
        let memory = MemoryBudget::new(MEMORY_BYTES);
        self.heard.borrow_mut().memories.push(Arc::clone(&memory));
        Sandbox {
            grants: match reach {
                Reach::Granted => Arc::clone(&self.grants),
                Reach::Looks => Arc::new(self.grants.to_look()),
                Reach::Nothing | Reach::Denied => Arc::new(Grants::none()),
            },
            memory,
            limits: Limits {
                busy: BUSY,
                stall: STALL,
                ..Limits::default()
            },
            clock: Clock::new(),
            cancel,
            log: host.log_sink(),
            redact: rapidbyte_runtime::no_secrets(),
            stream: None,
        }
    }

    /// A source, opened with `config`.
    pub fn source(&self, config: &Map<String, Value>, reach: Reach) -> Result<Source, Trouble> {
        self.source_until(config, reach, self.trial.host.cancel.child())
    }

    /// The same, which `cancel` stops.
    pub fn source_until(
        &self,
        config: &Map<String, Value>,
        reach: Reach,
        cancel: Cancel,
    ) -> Result<Source, Trouble> {
        let sandbox = self.sandbox(reach, cancel);
        let mut source = self.note_as(reach, self.trial.connector.source(sandbox))?;
        let opened = source.open(&Value::Object(config.clone()).to_string());
        self.note_as(reach, opened)?;
        Ok(source)
    }

    /// A transform, opened with `config`. It is granted nothing.
    pub fn transform(&self, config: &Map<String, Value>) -> Result<Transform, Trouble> {
        let sandbox = self.sandbox(Reach::Granted, self.trial.host.cancel.child());
        let mut transform = self.note(self.trial.connector.transform(sandbox))?;
        self.note(transform.open(&Value::Object(config.clone()).to_string()))?;
        Ok(transform)
    }

    /// A destination, opened with `config`.
    pub fn destination(
        &self,
        config: &Map<String, Value>,
        reach: Reach,
    ) -> Result<Destination, Trouble> {
        self.destination_until(config, reach, self.trial.host.cancel.child())
    }

    /// The same, which `cancel` stops.
    pub fn destination_until(
        &self,
        config: &Map<String, Value>,
        reach: Reach,
        cancel: Cancel,
    ) -> Result<Destination, Trouble> {
        let sandbox = self.sandbox(reach, cancel);
        let mut destination = self.note_as(reach, self.trial.connector.destination(sandbox))?;
        let opened = destination.open(&Value::Object(config.clone()).to_string());
        self.note_as(reach, opened)?;
        Ok(destination)
    }

    /// A source that reads what a destination wrote; its errors are not the connector's.
    pub fn peer(
        &self,
        connector: &Connector,
        config: &Map<String, Value>,
        grants: &Arc<Grants>,
    ) -> Result<Source, Error> {
        let sandbox = Sandbox {
            grants: Arc::clone(grants),
            ..self.sandbox(Reach::Nothing, self.trial.host.cancel.child())
        };
        let mut source = connector.source(sandbox)?;
        source.open(&Value::Object(config.clone()).to_string())?;
        Ok(source)
    }

    /// Tries again what failed because of something outside, as a run does; gives the last result.
    pub fn patiently<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut pause = FIRST_PAUSE;
        for _ in 0..RETRIES {
            let result = attempt();
            let Some(asked) = result.as_ref().err().and_then(Trouble::passes_after) else {
                return result;
            };
            self.pause(pause.max(asked).min(LONGEST_PAUSE));
            pause *= 2;
        }
        attempt()
    }

    /// Waits, until the operator cancels the test.
    fn pause(&self, pause: Duration) {
        let (wake, woken) = mpsc::channel();
        let _registration = self.trial.host.cancel.on_cancel(move || {
            // Nobody waits any more.
            let _ = wake.send(());
        });
        if !self.trial.host.cancel.is_cancelled() {
            let _ = woken.recv_timeout(pause);
        }
    }

    /// Remembers what came back from a call under the connector's grants.
    pub fn note<T>(&self, result: rapidbyte_runtime::Result<T>) -> Result<T, Trouble> {
        self.note_as(Reach::Granted, result)
    }

    /// The same of a session that may reach `reach`.
    pub fn note_as<T>(
        &self,
        reach: Reach,
        result: rapidbyte_runtime::Result<T>,
    ) -> Result<T, Trouble> {
        result.map_err(|error| {
            let trouble = Trouble::of(error);
            self.heard.borrow_mut().keep(reach, &trouble);
            trouble
        })
    }
}

impl Heard {
    fn keep(&mut self, reach: Reach, trouble: &Trouble) {
        if let Trouble::Error(call, error) = trouble
            && self.errors.len() < MAX_HEARD
        {
            self.errors.push((call, error.clone()));
        }
        let (list, text) = match (trouble, reach) {
            (_, Reach::Denied) => return,
            (Trouble::Trap(text), _) => (&mut self.traps, text),
            (Trouble::Limit(text), _) => (&mut self.limits, text),
            (Trouble::Denied(text), Reach::Granted | Reach::Looks) => (&mut self.denied, text),
            _ => return,
        };
        if list.len() < MAX_HEARD {
            list.push(text.clone());
        }
    }
}

/// Codes by which the host says that a guest died.
const TRAPS: &[&str] = &["panicked", "trapped", "stack_overflow"];
/// Codes by which the host says which limit was met.
const BOUNDS: &[&str] = &[
    "memory_limit",
    "no_progress",
    "stalled",
    "too_large",
    "too_many_handles",
];
/// The code and the words by which the host says that a decimal or a time of a batch is outside its column's type.
const UNFIT: (&str, [&str; 2]) = (
    "value_does_not_fit",
    [" does not fit decimal(", " does not fit time"],
);
/// Codes by which the host refuses what is not granted.
const DENIALS: &[&str] = &[
    "file_not_granted",
    "network_not_granted",
    "address_not_granted",
];

/// Codes by which the adapter of connectors in Python and JavaScript refuses columns that the connector declared. A
/// type that a setting declares is an error of kind config.
const DECLARED: &[&str] = &["unknown_type", "invalid_schema"];

/// Whether the host found a value outside its type: unlike a connector it names no stream and no place.
fn is_unfit(error: &ConnectorError) -> bool {
    let (code, words) = UNFIT;
    error.code == code
        && words.iter().any(|words| error.message.contains(words))
        && error.stream.is_none()
        && error.location.is_none()
}

impl Trouble {
    fn of(error: Error) -> Self {
        let Error::Failed { export, error, .. } = error else {
            return Self::Cancelled;
        };
        let code = error.code.as_str();
        let text = format!("{export}: {}", error.message);
        let by_host = matches!(error.kind, ErrorKind::Internal);
        if by_host && TRAPS.contains(&code) {
            Self::Trap(text)
        } else if by_host && BOUNDS.contains(&code) {
            Self::Limit(format!("{text} ({code})"))
        } else if by_host && code == "contract_broken" {
            Self::Broken(text)
        } else if DENIALS.contains(&code) {
            Self::Denied(text)
        } else {
            Self::Error(export, *error)
        }
    }

    /// The event, on one line.
    pub fn text(&self) -> String {
        match self {
            Self::Error(call, error) => {
                let column = error.column.iter().map(|name| format!("column {name:?}: "));
                let column = column.collect::<String>();
                let place = error.location.iter().map(|place| format!("{place}: "));
                let place = place.collect::<String>();
                format!("{call}: {place}{column}{} [{}]", error.message, error.code)
            }
            Self::Trap(text)
            | Self::Limit(text)
            | Self::Denied(text)
            | Self::Broken(text)
            | Self::Peer(text)
            | Self::PeerSettings(text)
            | Self::TooMuch(text) => text.clone(),
            Self::Cancelled => "interrupted".into(),
        }
    }

    /// For a transient failure of something outside: how long the other side asks to wait.
    pub fn passes_after(&self) -> Option<Duration> {
        let Self::Error(_, error) = self else {
            return None;
        };
        match error.kind {
            ErrorKind::Connection | ErrorKind::Transient => Some(Duration::ZERO),
            ErrorKind::RateLimited(after) => Some(Duration::from_millis(after.unwrap_or(0))),
            _ => None,
        }
    }

    /// It says nothing of the connector, so that no clause fails because of it.
    fn outside(&self) -> Option<Verdict> {
        let text = || {
            format!(
                "the other side answered {}: run the test again",
                self.text()
            )
        };
        self.passes_after().map(|_| outside(text()))
    }

    /// It says nothing of the connector: something outside failed, or the settings or the data are wrong.
    pub fn is_outside(&self) -> bool {
        self.passes_after().is_some() || self.accuses_setup()
    }

    /// Whether the error names the operator or the data as the one who acts: settings, a credential or a
    /// privilege, a table or file that is not as declared, or a value at a place that it names.
    pub fn accuses_setup(&self) -> bool {
        let Self::Error(_, error) = self else {
            return false;
        };
        match error.kind {
            ErrorKind::Schema if DECLARED.contains(&error.code.as_str()) => false,
            ErrorKind::Config | ErrorKind::Auth | ErrorKind::Schema => true,
            // The host found a value outside its column's type, and the connector wrote that type.
            ErrorKind::Data if is_unfit(error) => false,
            ErrorKind::Data => error.column.is_some() || error.location.is_some(),
            _ => false,
        }
    }

    /// The same as [`Self::fails`] where the settings and the data meet the connector for the first time:
    /// an error that accuses these says nothing of the connector.
    pub fn fails_first(&self, action: impl Into<String>) -> Verdict {
        match self.accuses_setup() {
            true => self.wrong_setup(),
            false => self.fails(action),
        }
    }

    /// The same of a destination, which gets the test's own rows: an error of kind config or auth.
    pub fn fails_first_write(&self, action: impl Into<String>) -> Verdict {
        match self {
            Self::Error(_, error) if matches!(error.kind, ErrorKind::Config | ErrorKind::Auth) => {
                self.wrong_setup()
            }
            _ => self.fails(action),
        }
    }

    fn wrong_setup(&self) -> Verdict {
        let what = match self {
            Self::Error(_, error) if matches!(error.kind, ErrorKind::Config) => "the settings",
            Self::Error(_, error) if matches!(error.kind, ErrorKind::Auth) => {
                "the credential or its privileges"
            }
            _ => "the data, or the settings that declare them",
        };
        setup(format!("{}: correct {what}", self.text()))
    }

    /// The same as [`Self::fails`] of a destination that has taken rows with these settings: an error of kind
    /// config says that they do not allow what the clause needs.
    pub fn fails_unless_settings(&self, action: impl Into<String>) -> Verdict {
        match self {
            Self::Error(_, error) if matches!(error.kind, ErrorKind::Config) => skip(format!(
                "cannot be judged with these settings: {}; {}",
                self.text(),
                error.hint.as_deref().unwrap_or("give others")
            )),
            _ => self.fails(action),
        }
    }

    /// The clause that judges it, unless it is an error or something broken.
    fn owner(&self) -> Option<&'static Clause> {
        match self {
            Self::Trap(_) => Some(&NO_TRAP),
            Self::Limit(_) => Some(&LIMITS),
            Self::Denied(_) => Some(&REACH),
            _ => None,
        }
    }

    /// The verdict of a clause that it keeps from being judged; `clause` judges it, if no other does.
    pub fn blocks(&self, clause: &Clause) -> Verdict {
        if let Some(verdict) = self.outside() {
            return verdict;
        }
        if let Self::Peer(_) | Self::PeerSettings(_) = self {
            return self.fails("");
        }
        let clause = self.owner().unwrap_or(clause);
        skip(format!("{}: see {}", self.text(), clause.id))
    }

    /// It fails this clause, if no other judges it.
    pub fn fails(&self, action: impl Into<String>) -> Verdict {
        match self {
            Self::Cancelled => skip("interrupted"),
            Self::TooMuch(text) => skip(format!("{text}: give settings with less")),
            Self::Peer(text) => outside(format!("{text}: mend the peer or --peer-config")),
            Self::PeerSettings(text) => setup(format!("{text}: correct --peer-config")),
            _ if self.owner().is_some() || self.passes_after().is_some() => self.blocks(&NO_TRAP),
            _ => fail(self.text(), action),
        }
    }
}

/// Problems of a check count as its errors.
pub(crate) fn problems(items: Vec<CheckItem>) -> Result<(), Trouble> {
    let problem = items.into_iter().find_map(|item| item.problem);
    problem.map_or(Ok(()), |error| Err(Trouble::Error("session.check", error)))
}

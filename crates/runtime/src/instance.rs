//! Typed calls into one instance.

use std::time::Instant;

use wasmtime::component::ResourceAny;
use wasmtime::{Store, Trap};

use crate::bindings::destination::{Part, Plan, Progress, Receipt, Target};
use crate::bindings::destination_world::{DestinationConnector, DestinationConnectorPre};
use crate::bindings::phase::Kind;
use crate::bindings::source::{Event, ReadRequest, Selection};
use crate::bindings::source_world::{SourceConnector, SourceConnectorPre};
use crate::bindings::types::{
    Batch, CheckItem, Error as ConnectorError, ErrorKind, Run, Spec, Stream,
};
use crate::state::{Busy, Cancelled, Stalled, State, on_epoch};
use crate::{Error, Phase, Result, Sandbox};
use rapidbyte_wire::verify::Layout;

/// Bytes that one call may hand to the host beside a batch.
const COPY_OVERHEAD: usize = 32 << 20;

/// One instance and its store. After a trap it cannot be entered again.
struct Instance {
    store: Store<State>,
    dead: bool,
}

impl Instance {
    fn new(connector: &str, sandbox: Sandbox, engine: &wasmtime::Engine) -> Self {
        let mut store = Store::new(engine, State::new(connector.to_owned(), sandbox));
        store.limiter(|state| &mut state.memory);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(on_epoch);
        limit_copies(&mut store);
        store.call_hook(|context, hook| {
            context.data().sandbox.clock.hook(hook);
            Ok(())
        });
        Self { store, dead: false }
    }

    /// See [`Destination::hand_over`].
    fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        let moved = !self.dead && self.store.data_mut().hand_over(sandbox);
        limit_copies(&mut self.store);
        moved
    }

    /// Calls an export whose guest time counts as `kind`.
    fn call<T>(
        &mut self,
        export: &'static str,
        kind: Kind,
        call: impl FnOnce(&mut Store<State>) -> wasmtime::Result<Result<T, ConnectorError>>,
    ) -> Result<T> {
        if self.dead {
            let text = "the instance has failed before and cannot be used";
            return Err(self.failed(
                export,
                ConnectorError::new(ErrorKind::Internal, "dead", text),
            ));
        }
        let state = self.store.data_mut();
        if state.sandbox.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        state.progress();
        let clock = state.sandbox.clock.clone();
        clock.set_guest(kind);
        let before = clock.enter(Phase::Crossing);
        let result = call(&mut self.store);
        clock.enter(before);
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failed(export, error)),
            Err(trap) => {
                self.dead = true;
                Err(self.trapped(export, &trap))
            }
        }
    }

    fn failed(&self, export: &'static str, mut error: ConnectorError) -> Error {
        let state = self.store.data();
        if error.stream.is_none() {
            error.stream.clone_from(&state.sandbox.stream);
        }
        Error::Failed {
            connector: state.connector.clone(),
            export,
            error: Box::new(error),
        }
    }

    /// Says why the guest ended: cancelled, out of memory or time, a panic with its message.
    fn trapped(&self, export: &'static str, trap: &wasmtime::Error) -> Error {
        let state = self.store.data();
        if trap.is::<Cancelled>() || state.sandbox.cancel.is_cancelled() {
            return Error::Cancelled;
        }
        let internal =
            |code, message: String| ConnectorError::new(ErrorKind::Internal, code, message);
        let said = state.stderr.text();
        let error = if state.memory_refused() {
            let mib = state.memory.budget_bytes() >> 20;
            internal(
                "memory_limit",
                format!("needs more memory than the {mib} MiB it shares"),
            )
            .hint(
                "raise resources.memory, or lower batch_bytes or parallelism; a record takes several \
                 times its size, so lower max_record_bytes to have large ones refused by name",
            )
        } else if trap.is::<Busy>() {
            let seconds = state.sandbox.limits.busy.as_secs();
            internal(
                "no_progress",
                format!("computed for {seconds} s without reading or writing"),
            )
            .hint(RAISE_LIMITS)
        } else if trap.is::<Stalled>() {
            stalled(state)
        } else if format!("{trap:#}").contains(TOO_MUCH_COPIED) {
            let mib = (state.sandbox.limits.batch_bytes + COPY_OVERHEAD) >> 20;
            internal("too_large", format!("handed over more than {mib} MiB in one call"))
                .hint("this is a fault of the connector unless one record is that large: then raise resources.max_record_bytes")
        } else if trap.downcast_ref::<Trap>() == Some(&Trap::StackOverflow) {
            internal("stack_overflow", "ran out of stack".into())
        } else if let Some(message) = panic_message(&said) {
            internal("panicked", format!("panicked: {message}"))
        } else {
            let tail = said.lines().last().unwrap_or_default();
            let cause = trap.root_cause();
            let said = if tail.is_empty() {
                String::new()
            } else {
                format!("; it said: {tail}")
            };
            // Recursion runs over the end of the guest's own stack before wasmtime's.
            let known = match trap.downcast_ref::<Trap>() {
                Some(Trap::MemoryOutOfBounds) => " (deep recursion does that)",
                _ => "",
            };
            internal("trapped", format!("stopped: {cause}{known}{said}"))
                .hint("this is a fault of the connector: tell its author")
        };
        self.failed(export, error)
    }

    fn broken<T>(&mut self, export: &'static str, message: impl std::fmt::Display) -> Result<T> {
        self.dead = true;
        let error = ConnectorError::new(ErrorKind::Internal, "contract_broken", message)
            .hint("this is a fault of the connector: tell its author");
        Err(self.failed(export, error))
    }
}

fn limit_copies(store: &mut Store<State>) {
    let bytes = store.data().sandbox.limits.batch_bytes + COPY_OVERHEAD;
    store.set_hostcall_fuel(bytes);
}

/// What an operator can do about a limit.
const RAISE_LIMITS: &str =
    "if that is normal here, raise it under permissions: { limits: … }; else tell its author";

/// Nothing has moved for too long.
fn stalled(state: &State) -> ConnectorError {
    let seconds = state.sandbox.limits.stall.as_secs();
    let what = match &state.waits_for {
        Some(what) => format!("nothing has moved for {seconds} s, waiting for {what}"),
        None => format!("nothing has moved for {seconds} s"),
    };
    ConnectorError::new(ErrorKind::Internal, "stalled", what).hint(RAISE_LIMITS)
}

/// wasmtime's words when a guest's lists exceed the store's limit; the error's type is private.
const TOO_MUCH_COPIED: &str = "too much data is being copied";

/// Bytes of a panic's message that are shown.
const MAX_PANIC: usize = 4 << 10;

/// What a guest said on standard error before it ended, on one line: the last line of a Python
/// traceback, or the message of the last Rust panic with its place.
fn panic_message(stderr: &str) -> Option<String> {
    const TRACEBACK: &str = "Traceback (most recent call last)";
    const PANIC: &str = "panicked at ";
    if let Some(at) = stderr.rfind(TRACEBACK) {
        let frames = stderr[at..]
            .lines()
            .skip(1)
            .skip_while(|line| line.starts_with(' '));
        return frames
            .map(str::trim)
            .find(|line| !line.is_empty())
            .map(Into::into);
    }
    let at = stderr.rfind(PANIC)?;
    let text = &stderr[at + PANIC.len()..];
    let text = text.split("\nnote:").next().unwrap_or(text);
    let (place, message) = text.split_once(":\n").unwrap_or(("", text));
    let message = message.trim().replace('\n', " ");
    let message = &message[..message.floor_char_boundary(MAX_PANIC)];
    Some(if place.is_empty() {
        message.to_owned()
    } else {
        format!("{message} (at {place})")
    })
}

/// An instance of a source, with one session and one reader at most.
pub struct Source {
    instance: Instance,
    bindings: SourceConnector,
    session: Option<ResourceAny>,
    reader: Option<(ResourceAny, Layout)>,
    /// Since when `next` has given no row.
    empty_since: Option<Instant>,
}

impl Source {
    pub(crate) fn new(
        pre: &SourceConnectorPre<State>,
        connector: &str,
        sandbox: Sandbox,
    ) -> Result<Self> {
        let clock = sandbox.clock.clone();
        let before = clock.enter(Phase::Instantiate);
        let mut instance = Instance::new(connector, sandbox, pre.engine());
        let made = pre.instantiate(&mut instance.store);
        clock.enter(before);
        match made {
            Ok(bindings) => Ok(Self {
                instance,
                bindings,
                session: None,
                reader: None,
                empty_since: None,
            }),
            Err(trap) => Err(instance.trapped("instantiate", &trap)),
        }
    }

    /// What the connector is and takes.
    pub fn describe(&mut self) -> Result<Spec> {
        let guest = self.bindings.rapidbyte_connector_source();
        self.instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))
    }

    /// Opens the session with a configuration object as JSON.
    pub fn open(&mut self, config: &str) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_source();
        let session = self
            .instance
            .call("open", Kind::Other, |s| guest.call_open(s, config))?;
        self.session = Some(session);
        Ok(())
    }

    fn session(&self) -> ResourceAny {
        self.session.expect("open comes first")
    }

    /// Looks at everything a run would need.
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })
    }

    /// What can be read.
    pub fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.discover", Kind::Query, |s| {
            guest.call_discover(s, session, forms)
        })
    }

    /// As [`Destination::hand_over`].
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.instance.hand_over(sandbox)
    }

    /// Fixes one moment for all streams.
    pub fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.snapshot", Kind::Query, |s| {
            guest.call_snapshot(s, session, streams)
        })
    }

    /// Begins to read; gives the `Schema` message of the batches to come.
    pub fn read(&mut self, request: &ReadRequest) -> Result<Vec<u8>> {
        let session = self.session();
        let source = self.bindings.rapidbyte_connector_source();
        let reader = self.instance.call("session.read", Kind::Query, |s| {
            source.session().call_read(s, session, request)
        })?;
        let schema = self.instance.call("reader.schema", Kind::Other, |s| {
            source.reader().call_schema(s, reader).map(Ok)
        })?;
        let layout = rapidbyte_wire::ipc::decode_schema(&schema).and_then(|s| Layout::of(&s));
        match layout {
            Ok(layout) => self.reader = Some((reader, layout)),
            Err(error) => return self.instance.broken("reader.schema", error),
        }
        Ok(schema)
    }

    /// The next event; a batch's header has been checked.
    pub fn next(&mut self, wait_ms: u32) -> Result<Event> {
        const NEXT: &str = "reader.next";
        let Self {
            instance,
            bindings,
            reader,
            empty_since,
            ..
        } = self;
        let (reader, layout) = reader.as_ref().expect("read comes first");
        let guest = bindings.rapidbyte_connector_source().reader();
        let event = instance.call(NEXT, Kind::Decode, |s| guest.call_next(s, *reader, wait_ms))?;
        match &event {
            Event::Batch(batch) if batch.rows > 0 => *empty_since = None,
            // The time of the host between two calls is in it only where it was given nothing.
            _ => {
                let since = empty_since.get_or_insert_with(Instant::now);
                let state = instance.store.data();
                if since.elapsed() > state.sandbox.limits.stall {
                    instance.dead = true;
                    let error = stalled(instance.store.data());
                    return Err(instance.failed(NEXT, error));
                }
            }
        }
        if let Event::Batch(batch) = &event {
            let limit = instance.store.data().sandbox.limits.batch_bytes;
            if batch.data.len() > limit {
                let len = batch.data.len();
                return instance.broken(NEXT, format!("a batch of {len} bytes, above {limit}"));
            }
            if let Err(error) = layout.verify(&batch.data, batch.rows) {
                return instance.broken(NEXT, error);
            }
        }
        Ok(event)
    }

    /// The destination holds everything up to the cursor.
    pub fn acknowledge(&mut self, stream: &str, cursor: &String) -> Result<()> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.acknowledge", Kind::Other, |s| {
            guest.call_acknowledge(s, session, stream, cursor)
        })
    }
}

/// An instance of a destination, with one session and one writer at most.
pub struct Destination {
    instance: Instance,
    bindings: DestinationConnector,
    session: Option<ResourceAny>,
    writer: Option<ResourceAny>,
}

impl Destination {
    pub(crate) fn new(
        pre: &DestinationConnectorPre<State>,
        connector: &str,
        sandbox: Sandbox,
    ) -> Result<Self> {
        let clock = sandbox.clock.clone();
        let before = clock.enter(Phase::Instantiate);
        let mut instance = Instance::new(connector, sandbox, pre.engine());
        let made = pre.instantiate(&mut instance.store);
        clock.enter(before);
        match made {
            Ok(bindings) => Ok(Self {
                instance,
                bindings,
                session: None,
                writer: None,
            }),
            Err(trap) => Err(instance.trapped("instantiate", &trap)),
        }
    }

    /// What the connector is and takes.
    pub fn describe(&mut self) -> Result<Spec> {
        let guest = self.bindings.rapidbyte_connector_destination();
        self.instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))
    }

    /// Opens the session with a configuration object as JSON.
    pub fn open(&mut self, config: &str) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_destination();
        let session = self
            .instance
            .call("open", Kind::Other, |s| guest.call_open(s, config))?;
        self.session = Some(session);
        Ok(())
    }

    fn session(&self) -> ResourceAny {
        self.session.expect("open comes first")
    }

    /// Looks at everything a run would need.
    pub fn check(&mut self) -> Result<Vec<CheckItem>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })
    }

    /// What a run would do.
    pub fn plan(&mut self, target: &Target) -> Result<Plan> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let columns = target_columns(target);
        let plan = self.instance.call("session.plan", Kind::Query, |s| {
            guest.call_plan(s, session, target)
        })?;
        if plan.columns.len() != columns {
            let text = format!("a plan of {} columns for {columns}", plan.columns.len());
            return self.instance.broken("session.plan", text);
        }
        Ok(plan)
    }

    /// The session goes on in another sandbox of the same grants, under the clock, the limits and the
    /// share of memory that are given there; either cancel token stops it. False, and nothing
    /// changes, when the share is too small for what the instance holds, or it has failed.
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.instance.hand_over(sandbox)
    }

    /// How far a stream is; none when no run was ever let in.
    pub fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.progress", Kind::Query, |s| {
            guest.call_progress(s, session, target, pipeline)
        })
    }

    /// Lets the run in and shuts out older runs of the stream.
    pub fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.fence", Kind::Query, |s| {
            guest.call_fence(s, session, target, run)
        })
    }

    /// Begins to write rows that come behind `cursor`.
    pub fn open_writer(
        &mut self,
        target: &Target,
        epoch: u64,
        cursor: Option<&String>,
    ) -> Result<()> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let writer = self
            .instance
            .call("session.open-writer", Kind::Query, |s| {
                guest.call_open_writer(s, session, target, epoch, cursor)
            })?;
        self.writer = Some(writer);
        Ok(())
    }

    fn writer(&self) -> ResourceAny {
        self.writer.expect("open_writer comes first")
    }

    /// Hands over one batch.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        let writer = self.writer();
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance.call("writer.write", Kind::Encode, |s| {
            guest.call_write(s, writer, batch)
        })
    }

    /// Ends a part.
    pub fn flush(&mut self) -> Result<Part> {
        let writer = self.writer();
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance
            .call("writer.flush", Kind::Flush, |s| guest.call_flush(s, writer))
    }

    /// Makes the parts visible and moves the cursor; `complete` goes with a run's last commit.
    pub fn commit(
        &mut self,
        stream: &str,
        parts: &[Part],
        seq: u64,
        cursor: Option<&String>,
        complete: bool,
    ) -> Result<Receipt> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.commit", Kind::Commit, |s| {
            guest.call_commit(s, session, stream, parts, seq, cursor, complete)
        })
    }

    /// Gives up everything that is not committed.
    pub fn abort(&mut self, stream: &str) -> Result<()> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.abort", Kind::Other, |s| {
            guest.call_abort(s, session, stream)
        })
    }
}

fn target_columns(target: &Target) -> usize {
    rapidbyte_wire::ipc::decode_schema(&target.schema).map_or(0, |schema| schema.fields().len())
}

#[cfg(test)]
mod tests {
    use super::panic_message;

    #[test]
    fn the_last_words_of_a_guest() {
        let rust =
            "\nthread '<unnamed>' (1) panicked at src/lib.rs:3:5:\non purpose\nnote: run with";
        assert_eq!(
            panic_message(rust).unwrap(),
            "on purpose (at src/lib.rs:3:5)"
        );
        let python = "Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\nKeyError: 'x'\n\
                      thread 'main' panicked at a.rs:1:1:\nPython function threw an unexpected exception\n";
        assert_eq!(panic_message(python).unwrap(), "KeyError: 'x'");
        assert_eq!(panic_message("nothing of note"), None);
    }
}

//! Typed calls into one instance.

use std::time::Instant;

use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::bindings::destination::{Part, Plan, Presence, Progress, Receipt, Target, Worker};
use crate::bindings::destination_world::{DestinationConnector, DestinationConnectorPre};
use crate::bindings::phase::Kind;
use crate::bindings::source::{Event, ReadRequest, Selection};
use crate::bindings::source_world::{SourceConnector, SourceConnectorPre};
use crate::bindings::types::{
    Batch, CheckItem, Error as ConnectorError, ErrorKind, Run, Spec, Stream,
};
use crate::cursors::Cursors;
use crate::ended::{self, COPY_OVERHEAD};
use crate::state::{State, on_epoch};
use crate::{Error, Phase, Result, Sandbox};
use rapidbyte_wire::verify::{Layout, Unfit};

/// Bytes of a config schema: as values of JSON it takes up to sixteen times as many. Ours have 20 KB.
const MAX_CONFIG_SCHEMA: usize = 1 << 20;
/// Bytes of what a connector says of itself beside its config schema.
const MAX_WORDS: usize = 64 << 10;
/// Streams of one source: a database with more tables is read in parts.
const MAX_STREAMS: usize = 100_000;
/// Bytes of a stream's name: longer than any path.
const MAX_STREAM_NAME: usize = 4096;
/// Runs that a destination says are at work: one is enough to know whom to wait for.
const MAX_WORKERS: usize = 64;
/// Bytes of what a destination says of such a run.
const MAX_WORKER: usize = 4096;

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
        let handles = store.data().sandbox.limits.handles;
        store.set_max_component_handles(handles);
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

    /// Drops a resource of the guest. True if the instance can be used for another stream.
    fn finish(&mut self, export: &'static str, resource: Option<ResourceAny>) -> bool {
        let Some(resource) = resource else {
            return false;
        };
        let drop = |s: &mut Store<State>| resource.resource_drop(s).map(Ok);
        self.call(export, Kind::Other, drop).is_ok() && self.store.data().is_small()
    }

    /// Ends the session, so that the connector can take leave of its server. It is the last call, and
    /// has [`Limits::abort`](crate::Limits::abort) for it.
    fn close(mut self, session: Option<ResourceAny>) {
        let state = self.store.data_mut();
        let time = state.sandbox.limits.abort;
        state.ends_after(time);
        // Whatever it does then, the instance is dropped.
        let _ = self.finish("session.drop", session);
    }

    /// Calls an export whose guest time counts as `kind`.
    fn call<T>(
        &mut self,
        export: &'static str,
        kind: Kind,
        call: impl FnOnce(&mut Store<State>) -> wasmtime::Result<Result<T, ConnectorError>>,
    ) -> Result<T> {
        if self.dead {
            let text = "the instance failed before and cannot be used again";
            return Err(self.failed(
                export,
                ConnectorError::new(ErrorKind::Internal, "instance_unusable", text),
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
            // A pause that was cut off at the limit is no end of waiting.
            Ok(Ok(_)) if self.store.data().patience().is_zero() => {
                self.dead = true;
                let error = ended::stalled(self.store.data());
                Err(self.failed(export, error))
            }
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.failed(export, error)),
            Err(trap) => {
                self.dead = true;
                Err(self.trapped(export, &trap))
            }
        }
    }

    fn failed(&self, export: &'static str, error: ConnectorError) -> Error {
        let state = self.store.data();
        ended::failed(state, export, error)
    }

    /// Says why the guest ended.
    fn trapped(&self, export: &'static str, trap: &wasmtime::Error) -> Error {
        ended::trapped(self.store.data(), export, trap)
    }

    /// Compares a batch with its schema and its limits.
    fn look_at(&mut self, batch: &Batch, layout: &Layout) -> Result<()> {
        const NEXT: &str = "reader.next";
        let limits = &self.store.data().sandbox.limits;
        let (limit, value_limit) = (limits.batch_bytes, limits.value_bytes);
        if batch.data.len() > limit {
            let len = batch.data.len();
            return self.broken(NEXT, format!("a batch of {len} bytes, above {limit}"));
        }
        match layout.verify_values(&batch.data, batch.rows, value_limit as u64) {
            Err(error) => self.broken(NEXT, error),
            Ok(None) => Ok(()),
            Ok(Some(Unfit::Value {
                column,
                value,
                data_type,
            })) => {
                self.dead = true;
                let text = format!("{value} does not fit {data_type}");
                let hint = match data_type == "time" {
                    true => "correct the value at its source: a time of day is below 24:00",
                    false => "correct the value at its source, or declare more digits there",
                };
                let mut error =
                    ConnectorError::new(ErrorKind::Data, "value_does_not_fit", text).hint(hint);
                error.column = Some(column);
                Err(self.failed(NEXT, error))
            }
            Ok(Some(Unfit::Long(len))) => {
                self.dead = true;
                let text = format!("a value of {len} bytes, above {value_limit}");
                let error = ConnectorError::new(ErrorKind::Internal, "too_large", text)
                    .hint("raise resources.max_record_bytes if records are that large");
                Err(self.failed(NEXT, error))
            }
        }
    }

    /// Refuses a description that nobody could read: it is parsed, kept and shown.
    fn look_at_spec(&mut self, spec: &Spec) -> Result<()> {
        const DESCRIBE: &str = "describe";
        let schema = spec.config_schema.len();
        if schema > MAX_CONFIG_SCHEMA {
            let text = format!("a config schema of {schema} bytes, above {MAX_CONFIG_SCHEMA}");
            return self.broken(DESCRIBE, text);
        }
        let forms = spec.native_forms.iter().map(String::len);
        let texts = [&spec.name, &spec.version, &spec.description].map(|text| text.len());
        let words = texts.into_iter().chain(forms).sum::<usize>() + spec.native_forms.len();
        let words = words + spec.sync_modes.len() + spec.write_modes.len();
        match words > MAX_WORDS {
            true => self.broken(
                DESCRIBE,
                format!("names and texts of {words} bytes, above {MAX_WORDS}"),
            ),
            false => Ok(()),
        }
    }

    /// Refuses more streams, or longer names, than a system has.
    fn look_at_streams(&mut self, streams: &[Stream]) -> Result<()> {
        const DISCOVER: &str = "session.discover";
        if streams.len() > MAX_STREAMS {
            let text = format!("{} streams, above {MAX_STREAMS}", streams.len());
            return self.broken(DISCOVER, text);
        }
        let long = streams.iter().map(|stream| stream.name.len());
        match long.max().filter(|len| *len > MAX_STREAM_NAME) {
            Some(len) => {
                let text = format!("a stream's name of {len} bytes, above {MAX_STREAM_NAME}");
                self.broken(DISCOVER, text)
            }
            None => Ok(()),
        }
    }

    /// Refuses more runs at work, or longer texts about them, than anybody reads.
    fn look_at_workers(&mut self, workers: &[Worker]) -> Result<()> {
        const WORKING: &str = "session.working";
        if workers.len() > MAX_WORKERS {
            let text = format!("{} other running runs, above {MAX_WORKERS}", workers.len());
            return self.broken(WORKING, text);
        }
        let process = |worker: &Worker| worker.process.as_ref().map_or(0, String::len);
        let bytes = |worker: &Worker| worker.run_id.len() + worker.place.len() + process(worker);
        match workers.iter().map(bytes).max() {
            Some(bytes) if bytes > MAX_WORKER => self.broken(
                WORKING,
                format!("{bytes} bytes about one run, above {MAX_WORKER}"),
            ),
            _ => Ok(()),
        }
    }

    fn broken<T>(&mut self, export: &'static str, message: impl std::fmt::Display) -> Result<T> {
        self.dead = true;
        let error = ConnectorError::new(ErrorKind::Internal, "contract_broken", message)
            .hint("report it to the connector's author: the connector has a bug");
        Err(self.failed(export, error))
    }
}

fn limit_copies(store: &mut Store<State>) {
    let bytes = store.data().sandbox.limits.batch_bytes + COPY_OVERHEAD;
    store.set_hostcall_fuel(bytes);
}

/// One read, and what is known of what it may give.
struct Reading {
    reader: ResourceAny,
    layout: Layout,
    cursors: Cursors,
}

/// An instance of a source, with one session and one reader at most.
pub struct Source {
    instance: Instance,
    bindings: SourceConnector,
    session: Option<ResourceAny>,
    reader: Option<Reading>,
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
        let spec = self
            .instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))?;
        self.instance.look_at_spec(&spec)?;
        Ok(spec)
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
        let mut items = self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })?;
        ended::shorten_all(&mut items);
        Ok(items)
    }

    /// What can be read.
    pub fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        let mut streams = self.instance.call("session.discover", Kind::Query, |s| {
            guest.call_discover(s, session, forms)
        })?;
        self.instance.look_at_streams(&streams)?;
        streams.iter_mut().for_each(ended::shorten_stream);
        Ok(streams)
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
            Ok(layout) => {
                let cursors = Cursors::of(request.increment.is_some());
                self.reader = Some(Reading {
                    reader,
                    layout,
                    cursors,
                });
            }
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
        let reading = reader.as_mut().expect("read comes first");
        let guest = bindings.rapidbyte_connector_source().reader();
        let reader = reading.reader;
        let event = instance.call(NEXT, Kind::Decode, |s| guest.call_next(s, reader, wait_ms))?;
        match &event {
            Event::Batch(batch) if batch.rows > 0 => *empty_since = None,
            // The time of the host between two calls is in it only where it was given nothing.
            _ => {
                let since = empty_since.get_or_insert_with(Instant::now);
                let state = instance.store.data();
                if since.elapsed() > state.sandbox.limits.stall {
                    instance.dead = true;
                    let error = ended::stalled(instance.store.data());
                    return Err(instance.failed(NEXT, error));
                }
            }
        }
        match &event {
            Event::Batch(batch) => instance.look_at(batch, &reading.layout)?,
            Event::Checkpoint(cursor) => {
                if let Err(wrong) = reading.cursors.take(cursor) {
                    return instance.broken(NEXT, wrong);
                }
            }
            Event::Idle | Event::End => {}
        }
        Ok(event)
    }

    /// Ends a read whose end was given. True if the session can read another stream.
    pub fn finish(&mut self) -> bool {
        self.empty_since = None;
        let reader = self.reader.take().map(|reading| reading.reader);
        self.instance.finish("reader.drop", reader)
    }

    /// Ends the session of a source that reads no more.
    pub fn close(self) {
        self.instance.close(self.session);
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

/// An instance of a destination, with one session and one writer at a time.
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
        let spec = self
            .instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))?;
        self.instance.look_at_spec(&spec)?;
        Ok(spec)
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
        let mut items = self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })?;
        ended::shorten_all(&mut items);
        Ok(items)
    }

    /// What a run would do.
    pub fn plan(&mut self, target: &Target) -> Result<Plan> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let columns = target_columns(target);
        let mut plan = self.instance.call("session.plan", Kind::Query, |s| {
            guest.call_plan(s, session, target)
        })?;
        if plan.columns.len() != columns {
            let text = format!("a plan of {} columns for {columns}", plan.columns.len());
            return self.instance.broken("session.plan", text);
        }
        ended::shorten_plan(&mut plan);
        Ok(plan)
    }

    /// The session goes on in another sandbox of the same grants, under the clock, the limits and the
    /// share of memory that are given there; either cancel token stops it. False, and nothing
    /// changes, when the share is too small for what the instance holds, or it has failed.
    pub fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.instance.hand_over(sandbox)
    }

    /// How far a stream is; none when no run was ever let in, also because the destination lets none in.
    pub fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let found = self.ask_progress(target, pipeline)?;
        Ok(found.filter(|progress| progress.epoch > 0))
    }

    /// False if the destination does not fence runs of this target: an older run can then commit after a newer one.
    pub fn fences(&mut self, target: &Target, pipeline: &str) -> Result<bool> {
        let found = self.ask_progress(target, pipeline)?;
        Ok(found.is_none_or(|progress| progress.epoch > 0))
    }

    fn ask_progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.progress", Kind::Query, |s| {
            guest.call_progress(s, session, target, pipeline)
        })
    }

    /// The runs of the pipeline that are at work, as far as the destination knows.
    pub fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let workers = self.instance.call("session.working", Kind::Query, |s| {
            guest.call_working(s, session, pipeline)
        })?;
        self.instance.look_at_workers(&workers)?;
        Ok(workers)
    }

    /// Records that a run is at work. True if that is to be done again every few seconds.
    pub fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.beat", Kind::Query, |s| {
            guest.call_beat(s, session, presence)
        })
    }

    /// Whether it can be called again; not after a trap, a limit or a broken contract.
    pub fn is_usable(&self) -> bool {
        !self.instance.dead
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
        let mut receipt = self.instance.call("session.commit", Kind::Commit, |s| {
            guest.call_commit(s, session, stream, parts, seq, cursor, complete)
        })?;
        ended::shorten_location(&mut receipt.location);
        Ok(receipt)
    }

    /// Ends the writing of a stream that is committed as a whole. True if the session can write
    /// another stream.
    pub fn finish(&mut self) -> bool {
        let writer = self.writer.take();
        self.instance.finish("writer.drop", writer)
    }

    /// Ends the session of a destination that writes no more.
    pub fn close(self) {
        self.instance.close(self.session);
    }

    /// Gives up everything that is not committed. It is the last call, and has
    /// [`Limits::abort`](crate::Limits::abort) for it.
    pub fn abort(&mut self, stream: &str) -> Result<()> {
        let session = self.session();
        let state = self.instance.store.data_mut();
        let time = state.sandbox.limits.abort;
        state.ends_after(time);
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.abort", Kind::Other, |s| {
            guest.call_abort(s, session, stream)
        })
    }
}

fn target_columns(target: &Target) -> usize {
    rapidbyte_wire::ipc::decode_schema(&target.schema).map_or(0, |schema| schema.fields().len())
}

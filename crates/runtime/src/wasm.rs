//! Typed calls into one instance of a WebAssembly component.

use std::collections::BTreeMap;

use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::bindings::destination::{
    KeptReject, LoadRequest, Part, Plan, Presence, Progress, Receipt, Refused, StreamCommit,
    Target, Worker,
};
use crate::bindings::destination_world::{DestinationConnector, DestinationConnectorPre};
use crate::bindings::phase::Kind;
use crate::bindings::source::{Event, Position, ReadRequest, Selection};
use crate::bindings::source_world::{SourceConnector, SourceConnectorPre};
use crate::bindings::transform::{Plan as TransformPlan, Relation};
use crate::bindings::transform_world::{TransformConnector, TransformConnectorPre};
use crate::bindings::types::{
    Batch, Bucket, Buckets, CheckItem, ChosenRows, DigestedRow, Error as ConnectorError, ErrorKind,
    Reject, RejectOrigin, RowLimit, Spec, Stream,
};
use crate::ended::{self, COPY_OVERHEAD};
use crate::session::{DestinationSession, Digests, Session, SourceSession, TransformSession};
use crate::state::{State, on_epoch};
use crate::{Error, Phase, Result, Sandbox};

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

    /// See [`Session::hand_over`].
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
        // The instance is dropped, whatever the call returns.
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
            // A pause that the host cut off at the limit counts as a stall.
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
}

fn limit_copies(store: &mut Store<State>) {
    let bytes = store.data().sandbox.limits.batch_bytes + COPY_OVERHEAD;
    store.set_hostcall_fuel(bytes);
}

/// An instance with its session, which has one read, transform or load at a time.
pub(crate) struct Wasm<B> {
    instance: Instance,
    bindings: B,
    session: Option<ResourceAny>,
    /// The reader, the transformer or the load.
    work: Option<ResourceAny>,
    /// The writers of the load, by the number of their stream.
    writers: BTreeMap<u32, ResourceAny>,
    /// The writers of keys, by the number of their stream.
    key_writers: BTreeMap<u32, ResourceAny>,
}

/// An instance of a source.
pub(crate) type WasmSource = Wasm<SourceConnector>;
/// An instance of a transform.
pub(crate) type WasmTransform = Wasm<TransformConnector>;
/// An instance of a destination.
pub(crate) type WasmDestination = Wasm<DestinationConnector>;

impl<B> Wasm<B> {
    fn new(
        connector: &str,
        sandbox: Sandbox,
        engine: &wasmtime::Engine,
        instantiate: impl FnOnce(&mut Store<State>) -> wasmtime::Result<B>,
    ) -> Result<Self> {
        let clock = sandbox.clock.clone();
        let before = clock.enter(Phase::Instantiate);
        let mut instance = Instance::new(connector, sandbox, engine);
        let made = instantiate(&mut instance.store);
        clock.enter(before);
        match made {
            Ok(bindings) => Ok(Self {
                instance,
                bindings,
                session: None,
                work: None,
                writers: BTreeMap::new(),
                key_writers: BTreeMap::new(),
            }),
            Err(trap) => Err(instance.trapped("instantiate", &trap)),
        }
    }

    fn session(&self) -> ResourceAny {
        self.session.expect("open comes first")
    }

    fn work(&self) -> ResourceAny {
        self.work.expect("read or begin comes first")
    }

    fn writer(&self, stream: u32) -> ResourceAny {
        let writer = self.writers.get(&stream);
        *writer.expect("open_writer comes first")
    }

    fn key_writer(&self, stream: u32) -> ResourceAny {
        let writer = self.key_writers.get(&stream);
        *writer.expect("open_keys comes first")
    }

    /// Drops the writers, and the reader, the transformer or the load.
    fn finish_work(&mut self, export: &'static str) -> bool {
        let writers = std::mem::take(&mut self.writers).into_values();
        let keys = std::mem::take(&mut self.key_writers).into_values();
        let mut writers = writers.chain(keys);
        let work = self.work.take();
        writers.all(|writer| self.instance.finish("writer.drop", Some(writer)))
            && self.instance.finish(export, work)
    }
}

impl<B: Send> Session for Wasm<B> {
    fn sandbox(&self) -> &Sandbox {
        &self.instance.store.data().sandbox
    }

    fn hand_over(&mut self, sandbox: Sandbox) -> bool {
        self.instance.hand_over(sandbox)
    }

    fn is_usable(&self) -> bool {
        !self.instance.dead
    }

    fn refuse(&mut self, export: &'static str, error: ConnectorError) -> Error {
        self.instance.dead = true;
        self.instance.failed(export, error)
    }

    fn stalled(&self) -> ConnectorError {
        ended::stalled(self.instance.store.data())
    }

    fn close(self: Box<Self>) {
        self.instance.close(self.session);
    }
}

impl WasmSource {
    pub(crate) fn of(
        pre: &SourceConnectorPre<State>,
        connector: &str,
        sandbox: Sandbox,
    ) -> Result<Self> {
        Self::new(connector, sandbox, pre.engine(), |store| {
            pre.instantiate(store)
        })
    }
}

impl SourceSession for WasmSource {
    fn describe(&mut self) -> Result<Spec> {
        let guest = self.bindings.rapidbyte_connector_source();
        self.instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_source();
        let session = self
            .instance
            .call("open", Kind::Other, |s| guest.call_open(s, config))?;
        self.session = Some(session);
        Ok(())
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.discover", Kind::Query, |s| {
            guest.call_discover(s, session, forms)
        })
    }

    fn describe_query(&mut self, stream: &str, query: &str, forms: &[String]) -> Result<Stream> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance
            .call("session.describe-query", Kind::Query, |s| {
                guest.call_describe_query(s, session, stream, query, forms)
            })
    }

    fn digest_limits(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
    ) -> Result<Vec<RowLimit>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance
            .call("session.digest-limits", Kind::Query, |s| {
                guest.call_digest_limits(s, session, selection, snapshot)
            })
    }

    fn digest(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        let Digests {
            snapshot,
            recipe,
            limits,
        } = *asked;
        self.instance.call("session.digest", Kind::Query, |s| {
            guest.call_digest(
                s, session, selection, snapshot, recipe, limits, within, bits,
            )
        })
    }

    fn digest_rows(
        &mut self,
        selection: &Selection,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        let Digests {
            snapshot,
            recipe,
            limits,
        } = *asked;
        self.instance.call("session.digest-rows", Kind::Query, |s| {
            guest.call_digest_rows(s, session, selection, snapshot, recipe, limits, rows, max)
        })
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_source().session();
        self.instance.call("session.snapshot", Kind::Query, |s| {
            guest.call_snapshot(s, session, streams)
        })
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let session = self.session();
        let source = self.bindings.rapidbyte_connector_source();
        let reader = self.instance.call("session.read", Kind::Query, |s| {
            source.session().call_read(s, session, requests)
        })?;
        let schemas = self.instance.call("reader.schemas", Kind::Other, |s| {
            source.reader().call_schemas(s, reader).map(Ok)
        })?;
        self.work = Some(reader);
        Ok(schemas)
    }

    fn next(&mut self, wait_ms: u32) -> Result<Event> {
        let reader = self.work();
        let guest = self.bindings.rapidbyte_connector_source().reader();
        self.instance.call("reader.next", Kind::Decode, |s| {
            guest.call_next(s, reader, wait_ms)
        })
    }

    fn acknowledge(&mut self, positions: &[Position]) -> Result<()> {
        let reader = self.work();
        let guest = self.bindings.rapidbyte_connector_source().reader();
        self.instance.call("reader.acknowledge", Kind::Other, |s| {
            guest.call_acknowledge(s, reader, positions)
        })
    }

    fn finish(&mut self) -> bool {
        self.finish_work("reader.drop")
    }
}

impl WasmTransform {
    pub(crate) fn of(
        pre: &TransformConnectorPre<State>,
        connector: &str,
        sandbox: Sandbox,
    ) -> Result<Self> {
        Self::new(connector, sandbox, pre.engine(), |store| {
            pre.instantiate(store)
        })
    }
}

impl TransformSession for WasmTransform {
    fn describe(&mut self) -> Result<Spec> {
        let guest = self.bindings.rapidbyte_connector_transform();
        self.instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_transform();
        let session = self
            .instance
            .call("open", Kind::Other, |s| guest.call_open(s, config))?;
        self.session = Some(session);
        Ok(())
    }

    fn plan(&mut self, input: &Relation) -> Result<TransformPlan> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_transform().session();
        self.instance.call("session.plan", Kind::Other, |s| {
            guest.call_plan(s, session, input)
        })
    }

    fn begin(&mut self, input: &Relation, keeps_rejects: bool) -> Result<Vec<u8>> {
        let session = self.session();
        let transform = self.bindings.rapidbyte_connector_transform();
        let transformer = self.instance.call("session.begin", Kind::Other, |s| {
            let guest = transform.session();
            guest.call_begin(s, session, input, keeps_rejects)
        })?;
        let schema = self.instance.call("transformer.schema", Kind::Other, |s| {
            transform.transformer().call_schema(s, transformer).map(Ok)
        })?;
        self.work = Some(transformer);
        Ok(schema)
    }

    fn put(&mut self, batch: &Batch) -> Result<()> {
        let transformer = self.work();
        let guest = self.bindings.rapidbyte_connector_transform().transformer();
        self.instance.call("transformer.put", Kind::Transform, |s| {
            guest.call_put(s, transformer, batch)
        })
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let transformer = self.work();
        let guest = self.bindings.rapidbyte_connector_transform().transformer();
        self.instance
            .call("transformer.next", Kind::Transform, |s| {
                guest.call_next(s, transformer)
            })
    }

    fn rejects(&mut self) -> Result<Vec<Reject>> {
        let transformer = self.work();
        let guest = self.bindings.rapidbyte_connector_transform().transformer();
        self.instance
            .call("transformer.rejects", Kind::Transform, |s| {
                guest.call_rejects(s, transformer).map(Ok)
            })
    }

    fn finish(&mut self) -> bool {
        self.finish_work("transformer.drop")
    }
}

impl WasmDestination {
    pub(crate) fn of(
        pre: &DestinationConnectorPre<State>,
        connector: &str,
        sandbox: Sandbox,
    ) -> Result<Self> {
        Self::new(connector, sandbox, pre.engine(), |store| {
            pre.instantiate(store)
        })
    }

    /// Gives a batch to a writer of rows or of keys.
    fn write_to(&mut self, writer: ResourceAny, batch: &Batch) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance.call("writer.write", Kind::Encode, |s| {
            guest.call_write(s, writer, batch)
        })
    }

    /// Ends a part of a writer of rows or of keys.
    fn flush_of(&mut self, writer: ResourceAny) -> Result<Part> {
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance
            .call("writer.flush", Kind::Flush, |s| guest.call_flush(s, writer))
    }
}

impl DestinationSession for WasmDestination {
    fn describe(&mut self) -> Result<Spec> {
        let guest = self.bindings.rapidbyte_connector_destination();
        self.instance
            .call("describe", Kind::Other, |s| guest.call_describe(s).map(Ok))
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let guest = self.bindings.rapidbyte_connector_destination();
        let session = self
            .instance
            .call("open", Kind::Other, |s| guest.call_open(s, config))?;
        self.session = Some(session);
        Ok(())
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.check", Kind::Query, |s| {
            guest.call_check(s, session)
        })
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.plan", Kind::Query, |s| {
            guest.call_plan(s, session, target)
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.progress", Kind::Query, |s| {
            guest.call_progress(s, session, target, pipeline)
        })
    }

    fn digest_recipe(&mut self, target: &Target, forms: &[String]) -> Result<String> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance
            .call("session.digest-recipe", Kind::Query, |s| {
                guest.call_digest_recipe(s, session, target, forms)
            })
    }

    fn digest(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let Digests { recipe, limits, .. } = asked;
        self.instance.call("session.digest", Kind::Query, |s| {
            guest.call_digest(s, session, target, recipe, limits, within, bits)
        })
    }

    fn digest_rows(
        &mut self,
        target: &Target,
        asked: &Digests<'_>,
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        let Digests { recipe, limits, .. } = asked;
        self.instance.call("session.digest-rows", Kind::Query, |s| {
            guest.call_digest_rows(s, session, target, recipe, limits, rows, max)
        })
    }

    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.working", Kind::Query, |s| {
            guest.call_working(s, session, pipeline)
        })
    }

    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.beat", Kind::Query, |s| {
            guest.call_beat(s, session, presence)
        })
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&String>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let session = self.session();
        let guest = self.bindings.rapidbyte_connector_destination().session();
        self.instance.call("session.rejects", Kind::Query, |s| {
            guest.call_rejects(
                s,
                session,
                to,
                pipeline,
                after.map(String::as_str),
                with_data,
            )
        })
    }

    fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>> {
        let session = self.session();
        let destination = self.bindings.rapidbyte_connector_destination();
        let load = self.instance.call("session.begin", Kind::Query, |s| {
            destination.session().call_begin(s, session, requests)
        })?;
        let progress = self.instance.call("load.progress", Kind::Other, |s| {
            destination.load().call_progress(s, load).map(Ok)
        })?;
        self.work = Some(load);
        Ok(progress)
    }

    fn open_writer(&mut self, stream: u32, cursor: Option<&String>) -> Result<()> {
        let load = self.work();
        let guest = self.bindings.rapidbyte_connector_destination().load();
        let writer = self.instance.call("load.open-writer", Kind::Query, |s| {
            guest.call_open_writer(s, load, stream, cursor)
        })?;
        self.writers.insert(stream, writer);
        Ok(())
    }

    fn schema_changes(&mut self, stream: u32) -> Result<Vec<String>> {
        let load = self.work();
        let guest = self.bindings.rapidbyte_connector_destination().load();
        self.instance.call("load.schema-changes", Kind::Other, |s| {
            guest.call_schema_changes(s, load, stream).map(Ok)
        })
    }

    fn write(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        self.write_to(self.writer(stream), batch)
    }

    fn reject(&mut self, stream: u32, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        let writer = self.writer(stream);
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance.call("writer.reject", Kind::Encode, |s| {
            guest.call_reject(s, writer, origin, rejects)
        })
    }

    fn refused(&mut self, stream: u32) -> Result<Refused> {
        let writer = self.writer(stream);
        let guest = self.bindings.rapidbyte_connector_destination().writer();
        self.instance.call("writer.refused", Kind::Other, |s| {
            guest.call_refused(s, writer).map(Ok)
        })
    }

    fn flush(&mut self, stream: u32) -> Result<Part> {
        self.flush_of(self.writer(stream))
    }

    fn open_keys(&mut self, stream: u32) -> Result<()> {
        let load = self.work();
        let guest = self.bindings.rapidbyte_connector_destination().load();
        let writer = self.instance.call("load.open-keys", Kind::Query, |s| {
            guest.call_open_keys(s, load, stream)
        })?;
        self.key_writers.insert(stream, writer);
        Ok(())
    }

    fn write_keys(&mut self, stream: u32, batch: &Batch) -> Result<()> {
        self.write_to(self.key_writer(stream), batch)
    }

    fn flush_keys(&mut self, stream: u32) -> Result<Part> {
        self.flush_of(self.key_writer(stream))
    }

    fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>> {
        let load = self.work();
        let guest = self.bindings.rapidbyte_connector_destination().load();
        self.instance.call("load.commit", Kind::Commit, |s| {
            guest.call_commit(s, load, commits)
        })
    }

    fn finish(&mut self) -> bool {
        self.finish_work("load.drop")
    }

    fn abort(&mut self) -> Result<()> {
        let load = self.work();
        let state = self.instance.store.data_mut();
        let time = state.sandbox.limits.abort;
        state.ends_after(time);
        let guest = self.bindings.rapidbyte_connector_destination().load();
        self.instance
            .call("load.abort", Kind::Other, |s| guest.call_abort(s, load))
    }
}

//! dest-postgres as a native destination of the engine.

use dest_postgres::Postgres;
use rapidbyte_runtime::{
    Batch, CheckItem, DestinationSession, LoadRequest, Native, NativeSession, Part, Plan, Presence,
    Progress, Receipt, Result, Spec, StreamCommit, Target, Worker,
};
use rapidbyte_sdk::destination::{self, Loading, Session};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::Commit;

use super::thread::{Thread, out_of_order};
use super::twins;

/// A session of the destination.
pub struct Writing {
    native: Native,
    thread: Thread<Connector>,
}

/// The connector, as far as it is open.
#[derive(Default)]
struct Connector {
    session: Option<Session<Postgres>>,
    load: Option<Load>,
}

struct Load {
    loading: Loading<Postgres>,
    decoder: ipc::Decoder,
}

impl Writing {
    pub fn new(native: Native) -> Self {
        let thread = Thread::start();
        Self { native, thread }
    }

    /// Makes a call of an open destination.
    fn call<T: Send + 'static>(
        &self,
        export: &'static str,
        work: impl FnOnce(&mut Session<Postgres>) -> rapidbyte_sdk::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.thread.call(&self.native, export, |connector| {
            let session = connector.session.as_mut();
            work(session.ok_or_else(|| out_of_order("the destination"))?)
        })
    }

    /// Makes a call of a load.
    fn load<T: Send + 'static>(
        &self,
        export: &'static str,
        work: impl FnOnce(&mut Load) -> rapidbyte_sdk::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.thread.call(&self.native, export, |connector| {
            let load = connector.load.as_mut();
            work(load.ok_or_else(|| out_of_order("the load"))?)
        })
    }
}

impl NativeSession for Writing {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl DestinationSession for Writing {
    fn describe(&mut self) -> Result<Spec> {
        Ok(twins::spec(destination::spec::<Postgres>()))
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let config = config.to_owned();
        self.thread.call(&self.native, "open", move |connector| {
            connector.session = Some(destination::open::<Postgres>(&config)?);
            Ok(())
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let items = self.call("session.check", Session::check)?;
        Ok(items.into_iter().map(twins::check_item).collect())
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let target = twins::target(target);
        let plan = self.call("session.plan", move |session| session.plan(&target))?;
        Ok(twins::plan(plan))
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        let (target, pipeline) = (twins::target(target), pipeline.to_owned());
        let found = self.call("session.progress", move |session| {
            session.progress(&target, &pipeline)
        })?;
        Ok(found.map(twins::progress))
    }

    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let pipeline = pipeline.to_owned();
        let found = self.call("session.working", move |session| session.working(&pipeline))?;
        Ok(found.into_iter().map(twins::worker).collect())
    }

    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let presence = twins::presence(presence);
        self.call("session.beat", move |session| session.beat(&presence))
    }

    fn begin(&mut self, requests: &[LoadRequest]) -> Result<Vec<Progress>> {
        let requests: Vec<_> = requests.iter().map(twins::load_request).collect();
        let begin = move |connector: &mut Connector| {
            let session = connector.session.as_mut();
            let session = session.ok_or_else(|| out_of_order("the destination"))?;
            let loading = session.begin(&requests)?;
            let progress = loading.progress().clone();
            // `begin` has refused several streams.
            let schema = requests.first().map(|request| &request.target.schema);
            let decoder = ipc::Decoder::new(schema.map_or(&[][..], Vec::as_slice))?;
            connector.load = Some(Load { loading, decoder });
            Ok(vec![progress])
        };
        let begun = self.thread.call(&self.native, "session.begin", begin)?;
        Ok(begun.into_iter().map(twins::progress).collect())
    }

    fn open_writer(&mut self, _: u32, cursor: Option<&String>) -> Result<()> {
        let cursor = cursor.cloned();
        self.load("load.open-writer", move |load| {
            load.loading.open_writer(cursor.as_deref())
        })
    }

    fn schema_changes(&mut self, _: u32) -> Result<Vec<String>> {
        self.load("load.schema-changes", |load| {
            Ok(load.loading.schema_changes())
        })
    }

    fn write(&mut self, _: u32, batch: &Batch) -> Result<()> {
        let (data, rows) = (batch.data.clone(), batch.rows);
        self.load("writer.write", move |load| {
            let batch = {
                let _phase = phase::enter(Kind::ArrowDecode);
                load.decoder.decode(data)?
            };
            if batch.num_rows() as u64 != rows {
                let text = "the batch has another number of rows than announced";
                return Err(rapidbyte_sdk::Error::internal(text));
            }
            load.loading.write(&batch)
        })
    }

    fn flush(&mut self, _: u32) -> Result<Part> {
        let part = self.load("writer.flush", |load| load.loading.flush())?;
        Ok(twins::part(part))
    }

    fn commit(&mut self, commits: &[StreamCommit]) -> Result<Vec<Receipt>> {
        let commits = commits.to_vec();
        let commit = move |load: &mut Load| {
            let stream = load.loading.stream().to_owned();
            let mut receipts = Vec::new();
            for commit in commits {
                receipts.push(load.loading.commit(Commit {
                    stream: &stream,
                    parts: commit.parts.into_iter().map(twins::part_back).collect(),
                    seq: commit.seq,
                    cursor: commit.cursor.as_deref(),
                    complete: commit.complete,
                })?);
            }
            Ok(receipts)
        };
        let receipts = self.load("load.commit", commit)?;
        Ok(receipts.into_iter().map(twins::receipt).collect())
    }

    fn finish(&mut self) -> bool {
        let end = |connector: &mut Connector| {
            connector.load = None;
            Ok(())
        };
        self.thread.call(&self.native, "load.drop", end).is_ok()
    }

    fn abort(&mut self) -> Result<()> {
        let abort = |connector: &mut Connector| match connector.load.take() {
            Some(mut load) => load.loading.abort(),
            None => Ok(()),
        };
        self.thread.call(&self.native, "load.abort", abort)
    }
}

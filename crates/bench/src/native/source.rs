//! source-postgres as a native source of the engine.

use std::time::Duration;

use rapidbyte_runtime::{
    Batch, CheckItem, Event, Native, NativeSession, Position, ReadRequest, Result, Selection,
    SourceSession, Spec, Stream,
};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::{Reader, Source};
use rapidbyte_sdk::{ipc, source};
use source_postgres::Postgres;

use super::thread::{Thread, out_of_order};
use super::twins;

/// A session of the source.
pub struct Reading {
    native: Native,
    thread: Thread<Connector>,
}

/// The connector, as far as it is open.
#[derive(Default)]
struct Connector {
    source: Option<Postgres>,
    rows: Option<Rows>,
}

struct Rows {
    reader: <Postgres as Source>::Reader,
    encoder: ipc::Encoder,
}

impl Reading {
    pub fn new(native: Native) -> Self {
        let thread = Thread::start();
        Self { native, thread }
    }

    /// Makes a call of an open source.
    fn call<T: Send + 'static>(
        &self,
        export: &'static str,
        work: impl FnOnce(&mut Postgres) -> rapidbyte_sdk::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.thread.call(&self.native, export, |connector| {
            let source = connector.source.as_mut();
            work(source.ok_or_else(|| out_of_order("the source"))?)
        })
    }
}

impl NativeSession for Reading {
    fn native(&self) -> &Native {
        &self.native
    }

    fn native_mut(&mut self) -> &mut Native {
        &mut self.native
    }
}

impl SourceSession for Reading {
    fn describe(&mut self) -> Result<Spec> {
        Ok(twins::spec(source::spec::<Postgres>()))
    }

    fn open(&mut self, config: &str) -> Result<()> {
        let config = config.to_owned();
        self.thread.call(&self.native, "open", move |connector| {
            connector.source = Some(source::open::<Postgres>(&config)?);
            Ok(())
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let items = self.call("session.check", Postgres::check)?;
        Ok(items.into_iter().map(twins::check_item).collect())
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let forms = forms.to_vec();
        let found = self.call("session.discover", move |source| source.discover(&forms))?;
        Ok(found.into_iter().map(twins::stream).collect())
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        let streams: Vec<_> = streams.iter().map(twins::selection).collect();
        self.call("session.snapshot", move |source| source.snapshot(&streams))
    }

    fn read(&mut self, requests: &[ReadRequest]) -> Result<Vec<Vec<u8>>> {
        let requests: Vec<_> = requests.iter().map(twins::read_request).collect();
        let read = move |connector: &mut Connector| {
            let source = connector.source.as_mut();
            let source = source.ok_or_else(|| out_of_order("the source"))?;
            let [request] = requests.as_slice() else {
                return Err(rapidbyte_sdk::Error::internal("a read has one stream"));
            };
            let reader = source.read(request)?;
            let encoder = ipc::Encoder::new(&reader.schema())?;
            let schema = encoder.schema_message().to_vec();
            connector.rows = Some(Rows { reader, encoder });
            Ok(vec![schema])
        };
        self.thread.call(&self.native, "session.read", read)
    }

    fn next(&mut self, wait_ms: u32) -> Result<Event> {
        let wait = Duration::from_millis(wait_ms.into());
        let next = move |connector: &mut Connector| {
            let rows = connector.rows.as_mut();
            rows.ok_or_else(|| out_of_order("the reader"))?.next(wait)
        };
        self.thread.call(&self.native, "reader.next", next)
    }

    fn acknowledge(&mut self, positions: &[Position]) -> Result<()> {
        let cursors: Vec<String> = positions.iter().map(|one| one.cursor.clone()).collect();
        let acknowledge = move |connector: &mut Connector| {
            let rows = connector.rows.as_mut();
            let rows = rows.ok_or_else(|| out_of_order("the reader"))?;
            let mut cursors = cursors.iter();
            cursors.try_for_each(|cursor| rows.reader.acknowledge(cursor))
        };
        let export = "reader.acknowledge";
        self.thread.call(&self.native, export, acknowledge)
    }

    fn finish(&mut self) -> bool {
        let end = |connector: &mut Connector| {
            connector.rows = None;
            Ok(())
        };
        let ended = self.thread.call(&self.native, "reader.drop", end);
        ended.is_ok()
    }
}

impl Rows {
    fn next(&mut self, wait: Duration) -> rapidbyte_sdk::Result<Event> {
        Ok(match self.reader.next(wait)? {
            rapidbyte_sdk::Event::Batch(batch) => {
                let _phase = phase::enter(Kind::ArrowEncode);
                let data = self.encoder.encode(&batch)?;
                let rows = batch.num_rows() as u64;
                Event::Batch((0, Batch { data, rows }))
            }
            rapidbyte_sdk::Event::Rejects(rejects) => {
                let rejects = rejects.into_iter().map(twins::reject);
                Event::Rejects((0, rejects.collect()))
            }
            rapidbyte_sdk::Event::Checkpoint(cursor) => {
                Event::Checkpoint(Position { stream: 0, cursor })
            }
            // The tests of the connectors cover it. Nothing that is measured changes its columns.
            rapidbyte_sdk::Event::Changed(change) => return Err(change.cause),
            rapidbyte_sdk::Event::Idle => Event::Idle,
            rapidbyte_sdk::Event::End => Event::End,
        })
    }
}

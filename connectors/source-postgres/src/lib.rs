//! Reads tables, views and queries of PostgreSQL by binary COPY.
//!
//! [`Config`] is the operator's configuration. `relation` lists the relations, `session` gives all streams one
//! consistent snapshot, `query` makes a relation of a query, and `Rows` is one read. `increment` decides which rows an incremental read delivers: in the
//! order of some columns (`order`), or by windows of transaction ids (`window`). A `cursor` says where the next read
//! resumes. The crate `rapidbyte-pg` maps types and values to Arrow; `rapidbyte-pg-client` speaks the protocol.

mod ask;
mod below;
mod check;
mod config;
mod copies;
mod cursor;
mod digest;
mod discover;
mod error;
mod explain;
mod increment;
mod look;
mod order;
mod query;
mod read;
mod relation;
mod session;
mod stall;
mod trial;
mod window;

use rapidbyte_pg::NATIVE_FORM;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

pub use config::Config;
use config::Settled;
use digest::Asked;
use error::about;
pub use read::Rows;
use relation::Relation;
use session::{Exported, Joined};
use stall::Backend;

/// The connector, opened with one configuration.
pub struct Postgres {
    settings: Settled,
    /// The connection that discovered, for the snapshot that follows: logging in takes both sides
    /// milliseconds of work, and the server knows the catalog by then.
    idle: Option<Idle>,
    /// The transaction that exported the snapshot: readers can join it while it is open, and the
    /// tables' shapes stay as they are.
    coordinator: Option<Coordinator>,
    /// The transaction of the last reader, for the next one.
    joined: Joined,
}

/// A connection without a transaction, and the relations that it found.
struct Idle {
    client: Client,
    relations: Vec<Relation>,
}

/// Holds a snapshot.
struct Coordinator {
    client: Client,
    exported: Exported,
    /// How many streams are read under it.
    streams: usize,
}

impl Source for Postgres {
    type Config = Config;
    type Reader = Rows;
    const NAME: &str = "source-postgres";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Reads tables, views and queries of PostgreSQL";
    const SYNC_MODES: &'static [SyncMode] = &[SyncMode::FullRefresh, SyncMode::Incremental];
    const NATIVE_FORMS: &'static [&'static str] = &[NATIVE_FORM];
    const SUPPORTS_FILTER: bool = true;
    const REPEATABLE_READS: bool = true;
    const SUPPORTS_QUERIES: bool = true;
    const DIGEST_FORMS: &[&str] = &[rapidbyte_pg::digest::FORM];

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            settings: config.settle()?,
            idle: None,
            coordinator: None,
            joined: Joined::default(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(check::items(&self.settings))
    }

    fn discover(&mut self, forms: &[String]) -> Result<Vec<Stream>> {
        let mut client = match self.joined.free() {
            Some(client) => client,
            None => session::connect(&self.settings)?,
        };
        let begin = session::beginning(&client, &self.settings, None);
        let native = forms.iter().any(|form| form == NATIVE_FORM);
        let backend = Backend::of(&client, &self.settings);
        let (relations, streams) = discover::streams(&mut client, &self.settings, &begin, native)
            .map_err(|error| backend.explain(error, "the catalog"))?;
        client.send_rollback()?;
        self.idle = Some(Idle { client, relations });
        Ok(streams)
    }

    fn describe_query(&mut self, stream: &str, query: &str, forms: &[String]) -> Result<Stream> {
        let (mut client, relations) = match self.idle.take() {
            Some(Idle { client, relations }) if client.is_usable() => (client, relations),
            _ => (session::connect(&self.settings)?, Vec::new()),
        };
        let native = forms.iter().any(|form| form == NATIVE_FORM);
        let backend = Backend::of(&client, &self.settings);
        let described = discover::of_query(&mut client, &self.settings, (stream, query), native)
            .map_err(|error| about(backend.explain(error, "a query's columns"), stream));
        if client.is_usable() {
            client.send_rollback()?;
            self.idle = Some(Idle { client, relations });
        }
        described
    }

    fn snapshot(&mut self, streams: &[Selection]) -> Result<String> {
        // An older one is given up first: it may be all the connections that we may have.
        self.coordinator = None;
        let idle = self.idle.take().map(|mut idle| {
            let exported = self.export(&mut idle.client, streams, &idle.relations);
            (idle.client, exported)
        });
        let (client, exported) = match idle {
            Some((client, Ok(exported))) => (client, exported),
            // It may have been ended while nobody needed it.
            Some((_, Err(error))) if !matches!(error.kind, ErrorKind::Connection) => {
                return Err(error);
            }
            _ => {
                let mut client = session::connect(&self.settings)?;
                let exported = self.export(&mut client, streams, &[])?;
                (client, exported)
            }
        };
        let token = exported.token.clone();
        self.coordinator = Some(Coordinator {
            client,
            exported,
            streams: streams.len(),
        });
        Ok(token)
    }

    fn digest_limits(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
    ) -> Result<Vec<RowLimit>> {
        self.digesting(selection, snapshot, |client, settings, snapshot| {
            digest::limits(client, settings, selection, snapshot)
        })
    }

    fn digest(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
        recipe: &str,
        limits: &[RowLimit],
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        let by = (recipe, limits);
        self.digesting(selection, snapshot, |client, settings, snapshot| {
            let asked = Asked::new(settings, selection, snapshot, by);
            digest::sums(client, &asked, within, bits)
        })
    }

    fn digest_rows(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
        recipe: &str,
        limits: &[RowLimit],
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        let by = (recipe, limits);
        self.digesting(selection, snapshot, |client, settings, snapshot| {
            let asked = Asked::new(settings, selection, snapshot, by);
            digest::rows(client, &asked, rows, max)
        })
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Rows> {
        // Nobody else will join: the only stream is read by the transaction itself.
        let is_ours = |c: &mut Coordinator| c.streams == 1 && c.exported.token == request.snapshot;
        let ours = self.coordinator.take_if(is_ours);
        let (client, seen) = match ours {
            Some(ours) => (Some(ours.client), ours.exported.seen),
            None => (None, None),
        };
        Rows::begin(&self.settings, request, client, seen, &self.joined)
            .map_err(|error| about(error, &request.stream))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.joined.close();
    }
}

impl Postgres {
    /// Lets `ask` ask for digests on a connection without a transaction. Without a snapshot they are of now, and the
    /// one that is held ends.
    fn digesting<T>(
        &mut self,
        selection: &Selection,
        snapshot: Option<&str>,
        ask: impl FnOnce(&mut Client, &Settled, Option<&str>) -> Result<T>,
    ) -> Result<T> {
        let held = match snapshot {
            None => self.coordinator.take().map(|held| held.client),
            Some(_) => None,
        };
        if let Some(mut client) = held.filter(Client::is_usable) {
            client.send_rollback()?;
            let relations = Vec::new();
            self.idle = Some(Idle { client, relations });
        }
        let at = snapshot.map(|token| session::at(&self.settings, token));
        let (settings, snapshot) = match at.transpose()? {
            Some((settings, snapshot)) => (settings, Some(snapshot)),
            None => (self.settings.clone(), None),
        };
        let idle = self.idle.take().filter(|idle| {
            idle.client.is_usable() && settings.connection.hosts.contains(idle.client.host())
        });
        let Idle {
            mut client,
            relations,
        } = match idle {
            Some(idle) => idle,
            None => Idle {
                client: session::connect(&settings)?,
                relations: Vec::new(),
            },
        };
        let answer = ask(&mut client, &settings, snapshot.as_deref());
        if client.is_usable() {
            self.idle = Some(Idle { client, relations });
        }
        answer.map_err(|error| about(error, &selection.stream))
    }

    fn export(
        &self,
        client: &mut Client,
        streams: &[Selection],
        known: &[Relation],
    ) -> Result<Exported> {
        let backend = Backend::of(client, &self.settings);
        session::export(client, &self.settings, streams, known)
            .map_err(|error| backend.explain(error, "the snapshot"))
    }
}

rapidbyte_sdk::export_source!(Postgres);

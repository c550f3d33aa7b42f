//! Writes to tables of PostgreSQL, each stream in transactions that move its cursor, too.
//!
//! A table that is missing is made with the exact types of the columns; one that is there is
//! compared by name, and what does not fit is refused before the first row. Rows go by COPY in
//! binary, or by INSERT where COPY cannot. How values and types become bytes and statements is the
//! crate `rapidbyte-pg`, how they travel `rapidbyte-pg-client`.

mod beat;
mod checkpoint;
mod columns;
mod commit;
mod config;
mod decide;
mod inserts;
mod load;
mod lock;
mod look;
mod points;
mod privileges;
mod refusal;
mod repeats;
mod rows;
mod stall;
mod swap;
mod transaction;
mod upsert;
mod working;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rapidbyte_pg::{Owner, PgError};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use checkpoint::{Fills, Key, Lease};
pub use config::{Config, LoadMethod, ReplaceMethod};
use config::{Connected, Name, Settings};
use load::Load;
use lock::Lock;
use look::Within;
pub use points::POINTS;

/// Older servers lack what the catalog is asked for.
const MIN_VERSION: u32 = 120_000;

/// The connector, opened with one configuration.
pub struct Postgres {
    settings: Rc<Settings>,
    /// The first one connects as soon as the destination is opened, while the engine still waits for
    /// the source; why it could not is told to whoever needs it.
    first: Option<Result<Connected>>,
    /// Connected and without a transaction.
    idle: Option<Client>,
    /// By stream: what a run was let in with, until its writer takes it.
    fenced: BTreeMap<String, (Client, Lease)>,
    open: OpenLoads,
    /// By stream: what was planned for a table that is there, until its writer takes it.
    planned: BTreeMap<String, (WriteMode, Lock)>,
    /// Which stream each table belongs to, in this session.
    owners: BTreeMap<Name, String>,
}

/// Loads that are not committed, by stream: shared with the writers, because the commit is the
/// destination's and not the writer's.
type OpenLoads = Rc<RefCell<BTreeMap<String, Load>>>;

impl Destination for Postgres {
    type Config = Config;
    type Writer = PostgresWriter;
    const NAME: &str = "dest-postgres";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes to tables of PostgreSQL";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    const NATIVE_FORMS: &[&str] = &[rapidbyte_pg::NATIVE_FORM];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const DEDUPLICATES_APPENDS: bool = true;

    fn open(config: Config) -> Result<Self> {
        let settings = config.settle()?;
        Ok(Self {
            first: Some(settings.connect()),
            idle: None,
            settings: Rc::new(settings),
            fenced: BTreeMap::new(),
            planned: BTreeMap::new(),
            open: OpenLoads::default(),
            owners: BTreeMap::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let connect = format!("connect {}", self.settings.server);
        let mut client = match self.client() {
            Ok(client) => client,
            Err(error) => return Ok(vec![CheckItem::failed(connect, error)]),
        };
        let mut items = vec![CheckItem::ok(connect, version_text(&client))];
        items.extend(check_session(&mut client, self.settings.fixed_schema())?);
        self.keep(client);
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let name = self.settings.name_of(&target.stream)?;
        let schema = target.arrow_schema()?;
        let mut client = self.client()?;
        let process_id = client.process_id();
        let place = load::Place {
            settings: &self.settings,
            target,
            name: &name,
            schema: &schema,
            is_made: false,
        };
        let ground = checkpoint::ground(&self.settings);
        let decided = place.decide_beside(&mut client, Within::Own, Some(ground));
        let decided = decided.and_then(|(decided, ground)| {
            let makers = checkpoint::makers(&self.settings, &ground.unwrap_or_default());
            match (decided, makers) {
                (Ok(decided), Ok(makers)) => Ok((decided, makers)),
                (Err(first), Err(second)) if is_privilege(&first) && is_privilege(&second) => {
                    Err(privileges::both(first, second).in_stream(&target.stream))
                }
                (Err(error), _) => Err(error),
                (_, Err(error)) => Err(error.in_stream(&target.stream)),
            }
        });
        let what = format!("looking at {name}");
        let decided =
            decided.map_err(|error| stall::explain(&self.settings, process_id, error, &what));
        let beats = match client.is_pgbouncer() && decided.is_ok() {
            true => beat::makers(&mut client, &self.settings)?,
            false => Vec::new(),
        };
        self.keep(client);
        let (decided, mut statements) = decided?;
        // The statements for the checkpoints make the schema.
        statements.extend(
            beats
                .into_iter()
                .filter(|one| !one.starts_with("CREATE SCHEMA")),
        );
        statements.extend(decided.statements());
        if let (Some(lock), true) = (&decided.lock, decided.prelude.is_empty()) {
            let planned = (target.write_mode, lock.clone());
            self.planned.insert(target.stream.clone(), planned);
        }
        Ok(Plan {
            location: name.sql(),
            statements,
            is_new: decided.makes_table(),
            columns: decided.columns,
            notes: decided.notes,
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        log::failpoint("dest-postgres.asked")?;
        let key = self.key(target, pipeline)?;
        let mut client = self.client()?;
        let process_id = client.process_id();
        let what = "reading the checkpoint";
        let progress = checkpoint::progress(&mut client, &self.settings, &key, target)
            .map_err(|error| stall::explain(&self.settings, process_id, error, what));
        self.keep(client);
        progress.map_err(|error| error.in_stream(&target.stream))
    }

    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let mut client = self.client()?;
        let process_id = client.process_id();
        let what = "looking for other runs";
        let workers = working::working(&mut client, &self.settings, pipeline)
            .map_err(|error| stall::explain(&self.settings, process_id, error, what));
        self.keep(client);
        workers
    }

    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let mut client = self.client()?;
        // Otherwise the server lists the session that loads.
        let is_needed = client.is_pgbouncer();
        let said = match is_needed {
            true => beat::beat(&mut client, &self.settings, presence),
            false => Ok(()),
        };
        self.keep(client);
        said.map(|()| is_needed)
    }

    fn fence(&mut self, target: &Target, run: &Run) -> Result<Progress> {
        let stream = &target.stream;
        let key = self.key(target, &run.pipeline)?;
        // An older load of the stream in this session is given up.
        self.abort(stream)?;
        let mut client = self.client()?;
        let process_id = client.process_id();
        let what = "fencing older runs";
        let (lease, progress) = checkpoint::fence(&mut client, &self.settings, key, run)
            .map_err(|error| stall::explain(&self.settings, process_id, error, what))
            .map_err(|error| given_up(error, stream))?;
        self.fenced.insert(stream.clone(), (client, lease));
        Ok(progress)
    }

    fn open_writer(
        &mut self,
        target: &Target,
        epoch: u64,
        cursor: Option<&str>,
    ) -> Result<PostgresWriter> {
        let stream = &target.stream;
        let name = self.settings.name_of(stream)?;
        self.own(&name, stream)?;
        let fenced = self.fenced.remove(stream);
        let Some((client, lease)) = fenced.filter(|(_, lease)| lease.epoch == epoch) else {
            let text = format!("no run with epoch {epoch} fenced this stream");
            return Err(Error::internal(text).in_stream(stream));
        };
        let planned = self.planned.remove(stream);
        let lock = planned.filter(|(mode, _)| *mode == target.write_mode);
        let lock = lock.map(|(_, lock)| lock);
        let load = Load::begin(client, &self.settings, target, name, lease, cursor, lock)
            .map_err(|error| given_up(error, stream))?;
        self.open.borrow_mut().insert(stream.clone(), load);
        Ok(PostgresWriter {
            open: self.open.clone(),
            stream: stream.as_str().into(),
        })
    }

    fn commit(&mut self, commit: Commit<'_>) -> Result<Receipt> {
        let stream = commit.stream;
        let Some(mut load) = self.open.borrow_mut().remove(stream) else {
            return self.commit_cursor(&commit);
        };
        let receipt = load
            .commit(&commit)
            .map_err(|error| given_up(load.why_it_ended(error), stream))?;
        if !commit.complete {
            self.open.borrow_mut().insert(stream.into(), load);
        } else if let Some(client) = load.into_idle() {
            self.keep(client);
        }
        Ok(receipt)
    }

    fn abort(&mut self, stream: &str) -> Result<()> {
        if let Some(load) = self.open.borrow_mut().remove(stream) {
            load.give_up();
        }
        if let Some((client, _)) = self.fenced.remove(stream) {
            client.close();
        }
        Ok(())
    }
}

impl Postgres {
    /// The connection that does nothing, or a new one.
    fn client(&mut self) -> Result<Client> {
        let client = match self.idle.take() {
            Some(client) if client.is_usable() => client,
            _ => match self.first.take() {
                Some(connected) => connected?.ready()?,
                None => self.settings.connect()?.ready()?,
            },
        };
        if client.server_version() < MIN_VERSION {
            let text = format!("{}; 12 is needed", version_text(&client));
            return Err(Error::config("old_server", text).hint("upgrade the server"));
        }
        Ok(client)
    }

    /// The row of the table of checkpoints that is a stream's.
    fn key(&self, target: &Target, pipeline: &str) -> Result<Key> {
        let name = self.settings.name_of(&target.stream)?;
        Ok(Key::new(&self.settings, pipeline, &target.stream, &name))
    }

    /// Refuses a table that belongs to another stream.
    fn own(&mut self, name: &Name, stream: &str) -> Result<()> {
        let owner = self.owners.entry(name.clone()).or_insert(stream.into());
        if owner == stream {
            return Ok(());
        }
        let text = format!("{owner} and {stream} would both be written to {name}");
        Err(Error::config("shared_target", text)
            .hint("put {stream} into `table`, or remove `schema`")
            .in_stream(stream)
            .at("config.table"))
    }

    /// A commit without a writer.
    fn commit_cursor(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let stream = commit.stream;
        let fenced = self.fenced.remove(stream);
        let Some((mut client, mut lease)) = fenced.filter(|_| commit.rows() == 0) else {
            let text = "a commit without written rows";
            return Err(Error::internal(text).in_stream(stream));
        };
        let location = lease.target().to_owned();
        // A run that had nothing to write is complete: any other such commit is an operator's.
        let fills = match commit.complete {
            true => Fills::Nothing,
            false => checkpoint::fills_of_operator(&mut client, &lease, commit.cursor)
                .map_err(|error| given_up(error, stream))?,
        };
        let client = commit::commit(client, &self.settings, &mut lease, commit, fills)
            .map_err(|error| given_up(error, stream))?;
        match commit.complete {
            true => self.keep(client),
            false => drop(self.fenced.insert(stream.into(), (client, lease))),
        }
        Ok(Receipt {
            rows: 0,
            bytes: 0,
            location,
        })
    }

    fn keep(&mut self, client: Client) {
        if client.is_usable() {
            self.idle = Some(client);
        }
    }
}

fn version_text(client: &Client) -> String {
    let version = client.parameter("server_version").unwrap_or("unknown");
    format!("PostgreSQL {version}")
}

fn is_privilege(error: &Error) -> bool {
    matches!(
        error.code.as_str(),
        "no_privilege" | "checkpoint_not_allowed"
    )
}

/// What the session may do.
fn check_session(client: &mut Client, schema: Option<&str>) -> Result<Vec<CheckItem>> {
    let mut items = Vec::new();
    if client.is_pgbouncer() {
        items.push(CheckItem::ok(
            "pooler",
            "a pooler such as PgBouncer seems to be in between; every load stays in one \
                 transaction",
        ));
    }
    let wanted = schema.unwrap_or("public");
    let facts = look::facts(client, &mut Within::Own, wanted, "")?;
    items.push(if facts.in_recovery || facts.read_only {
        CheckItem::failed("write", decide::read_only(facts.in_recovery))
    } else {
        CheckItem::ok("write", format!("{} may write transactions", facts.user))
    });
    let name = format!("schema {wanted}");
    items.push(match (facts.has_schema, facts.may_create_table) {
        (true, true) => CheckItem::ok(name, "tables may be created"),
        // Enough for tables that are there.
        (true, false) => CheckItem::ok(
            name,
            "tables cannot be created; only existing ones can be written",
        ),
        (false, _) if facts.may_create_schema => CheckItem::ok(name, "missing, will be created"),
        (false, _) => CheckItem::failed(
            name,
            Error::new(
                ErrorKind::Auth,
                "no_privilege",
                format!("it is missing, and {} may not create schemas", facts.user),
            )
            .hint("have its owner create the schema, or GRANT CREATE ON DATABASE"),
        ),
    });
    Ok(items)
}

/// Writes the rows of one stream.
pub struct PostgresWriter {
    open: OpenLoads,
    stream: Arc<str>,
}

impl PostgresWriter {
    fn with_load<T>(&self, act: impl FnOnce(&mut Load) -> Result<T>) -> Result<T> {
        let mut open = self.open.borrow_mut();
        let Some(load) = open.get_mut(&*self.stream) else {
            let text = "the load was already committed or aborted";
            return Err(Error::internal(text).in_stream(&*self.stream));
        };
        let done = act(load);
        done.map_err(|error| {
            let Some(load) = open.remove(&*self.stream) else {
                return given_up(error, &self.stream);
            };
            // Nothing of it can be committed any more: the locks go now.
            let error = load.why_it_ended(error);
            load.give_up();
            given_up(error, &self.stream)
        })
    }
}

impl Writer for PostgresWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.with_load(|load| load.write(batch))
    }

    fn flush(&mut self) -> Result<Part> {
        self.with_load(Load::flush)
    }
}

/// The error that ends a load. Without its connection the server keeps nothing of it; a commit of
/// which that is not known is no error of the connection any more.
fn given_up(error: Error, stream: &str) -> Error {
    let error = error.in_stream(stream);
    if !matches!(error.kind, ErrorKind::Connection) || error.code == "commit_unknown" {
        return error;
    }
    let next = error.hint.clone();
    let next = next.unwrap_or_else(|| "run again once the server is back".into());
    error.hint(format!("nothing of this load is visible; {next}"))
}

/// The contract's error for an error of the codec.
pub(crate) fn convert(error: PgError) -> Error {
    let kind = match error.owner {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let mut converted = Error::new(kind, error.code, &error.message);
    converted.hint = error.hint;
    converted.column = error.column;
    converted
}

rapidbyte_sdk::export_destination!(Postgres);

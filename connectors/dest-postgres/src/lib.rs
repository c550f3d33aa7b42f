//! Writes to tables of PostgreSQL, each stream in transactions that move its cursor, too.
//!
//! A table that is missing is made with the exact types of the columns; one that is there is
//! compared by name, and what does not fit is refused before the first row. Rows go by COPY in
//! binary, or by INSERT where COPY cannot. How values and types become bytes and statements is the
//! crate `rapidbyte-pg`, how they travel `rapidbyte-pg-client`.

mod beat;
mod changes;
mod checkpoint;
mod columns;
mod commit;
mod comparison;
mod config;
mod decide;
mod deletes;
mod digest;
mod fence;
mod home;
mod inserts;
mod kept;
mod lease;
mod load;
mod lock;
mod look;
mod origins;
mod place;
mod points;
mod privileges;
mod refusal;
mod rejects;
mod repeats;
mod rows;
mod stage;
mod stall;
mod swap;
mod target;
mod transaction;
mod types;
mod upsert;
mod working;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rapidbyte_pg::{Owner, PgError};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use checkpoint::Key;
use config::Name;
pub use config::{Config, LoadMethod, ReplaceMethod};
use decide::Decision;
use digest::Existing;
use home::{Home, given_up, version_text};
use lease::{Aside, Lease};
use load::TableLoad;
use lock::Lock;
use look::Within;
use place::Place;
pub use points::POINTS;
use rejects::{Claim, Keeper};

/// The connector, opened with one configuration.
pub struct Postgres {
    home: Rc<Home>,
    /// By stream: what was planned for a table that is there, until its load begins.
    planned: BTreeMap<String, (WriteMode, Lock)>,
    /// The targets and the tables of rejects that were planned.
    targets: BTreeSet<Name>,
    rejects: BTreeSet<Name>,
    /// The types that the loads of these targets would make.
    types: BTreeSet<Name>,
}

impl Destination for Postgres {
    type Config = Config;
    type Load = TableLoad;
    const NAME: &str = "dest-postgres";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &str = "Writes to tables of PostgreSQL";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append, WriteMode::Replace, WriteMode::Upsert];
    const NATIVE_FORMS: &[&str] = &[rapidbyte_pg::NATIVE_FORM];
    const SUPPORTS_CHECKPOINTS: bool = true;
    const DEDUPLICATES_APPENDS: bool = true;
    const SUPPORTS_REJECTS: bool = true;
    const COMPARES_KEYS: bool = true;
    const NAMES_TARGETS: bool = true;
    const HAS_NAMESPACES: bool = true;
    const DIGEST_FORMS: &[&str] = &[rapidbyte_pg::digest::FORM];

    fn open(config: Config) -> Result<Self> {
        Ok(Self {
            home: Rc::new(Home::open(config.settle()?)),
            planned: BTreeMap::new(),
            targets: BTreeSet::new(),
            rejects: BTreeSet::new(),
            types: BTreeSet::new(),
        })
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        let connect = format!("connect {}", self.home.settings.server);
        let mut client = match self.home.client() {
            Ok(client) => client,
            Err(error) => return Ok(vec![CheckItem::failed(connect, error)]),
        };
        let mut items = vec![CheckItem::ok(connect, version_text(&client))];
        items.extend(check_session(
            &mut client,
            self.home.settings.fixed_schema(),
        )?);
        self.home.keep(client);
        Ok(items)
    }

    fn plan(&mut self, target: &Target) -> Result<Plan> {
        let name = self.home.settings.name_of(target)?;
        let schema = target.arrow_schema()?;
        let rejects = rejects::table(&self.home.settings, target, &name)?;
        self.refuse_rejects_in_target(&name, rejects.as_ref())
            .map_err(|error| error.in_stream(&target.stream))?;
        // Of an earlier plan, which may have been another one.
        self.planned.remove(&target.stream);
        let mut client = self.home.client()?;
        let session = client.cancel_token();
        let place = Place {
            settings: &self.home.settings,
            target,
            name: &name,
            schema: &schema,
            is_made: false,
        };
        let ground = checkpoint::ground(&self.home.settings);
        let decided = place.decide_beside(&mut client, Within::Own, Some(ground));
        let decided = decided.and_then(|(decided, ground)| {
            let makers = checkpoint::makers(&self.home.settings, &ground.unwrap_or_default());
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
            decided.map_err(|error| stall::explain(&self.home.settings, &session, error, &what));
        let beats = match client.is_pgbouncer() && decided.is_ok() {
            true => beat::makers(&mut client, &self.home.settings)?,
            false => Vec::new(),
        };
        let makers = match (&rejects, &decided) {
            (Some(table), Ok(_)) => rejects::makers(&mut client, table)?,
            _ => Vec::new(),
        };
        self.home.keep(client);
        let (mut decided, mut statements) = decided?;
        self.refuse_types_in_targets(&decided)
            .map_err(|error| error.in_stream(&target.stream))?;
        if let Some(table) = &rejects {
            decided.notes.push(rejects::note(table));
        }
        statements.extend(makers);
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
            new_columns: decided.new_columns,
            columns: decided.columns,
            notes: decided.notes,
        })
    }

    fn progress(&mut self, target: &Target, pipeline: &str) -> Result<Option<Progress>> {
        log::failpoint("dest-postgres.asked")?;
        let key = self.key(target, pipeline)?;
        // Also of a stream that is not planned.
        self.refuse_type_in_target(&self.home.settings.name_of(target)?)
            .map_err(|error| error.in_stream(&target.stream))?;
        let mut client = self.home.client()?;
        let session = client.cancel_token();
        let what = "reading the checkpoint";
        let is_alone = match target.deletes {
            Some(_) => key.refuse_others(&mut client),
            None => Ok(()),
        };
        let progress = is_alone
            .and_then(|()| checkpoint::progress(&mut client, &self.home.settings, &key, target))
            .map_err(|error| stall::explain(&self.home.settings, &session, error, what));
        self.home.keep(client);
        progress.map_err(|error| error.in_stream(&target.stream))
    }

    fn digest_recipe(&mut self, target: &Target, _: &[String]) -> Result<String> {
        self.digesting(target, |existing, _| existing.recipe(target))
    }

    fn digest(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        within: Option<&Buckets>,
        bits: u8,
    ) -> Result<Vec<Bucket>> {
        self.digesting(target, |existing, client| {
            existing.sums(client, target, (recipe, limits), within, bits)
        })
    }

    fn digest_rows(
        &mut self,
        target: &Target,
        recipe: &str,
        limits: &[RowLimit],
        rows: &ChosenRows,
        max: u32,
    ) -> Result<Vec<DigestedRow>> {
        self.digesting(target, |existing, client| {
            existing.rows(client, target, (recipe, limits), rows, max)
        })
    }

    fn working(&mut self, pipeline: &str) -> Result<Vec<Worker>> {
        let mut client = self.home.client()?;
        let session = client.cancel_token();
        let what = "looking for other runs";
        let workers = working::working(&mut client, &self.home.settings, pipeline)
            .map_err(|error| stall::explain(&self.home.settings, &session, error, what));
        self.home.keep(client);
        workers
    }

    fn beat(&mut self, presence: &Presence) -> Result<bool> {
        let mut client = self.home.client()?;
        // Otherwise the server lists the session that loads.
        let is_needed = client.is_pgbouncer();
        let said = match is_needed {
            true => beat::beat(&mut client, &self.home.settings, presence),
            false => Ok(()),
        };
        self.home.keep(client);
        said.map(|()| is_needed)
    }

    fn rejects(
        &mut self,
        to: &str,
        pipeline: &str,
        after: Option<&str>,
        with_data: bool,
    ) -> Result<Vec<KeptReject>> {
        let mut client = self.home.client()?;
        let page = rejects::page(&mut client, to, pipeline, after, with_data);
        self.home.keep(client);
        page
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(TableLoad, Progress)> {
        let settings = &self.home.settings;
        let key = self.key(target, &run.pipeline)?;
        let mut client = self.home.client()?;
        let session = client.cancel_token();
        let what = "fencing older runs";
        let name = settings.name_of(target)?;
        let rejects = rejects::table(settings, target, &name)?;
        let aside = match &target.repairs {
            _ if target.stages => Some(Aside::Staging),
            Some(_) => Some(Aside::Repair),
            None => Claim::of(target, &run.pipeline, rejects.as_ref())?.map(Aside::Replay),
        };
        let (lease, progress) = match aside {
            Some(aside) => {
                if !matches!(aside, Aside::Staging) {
                    origins::unprove(&mut client, settings, target, &name)?;
                }
                let lease = Lease::beside(key, run, aside);
                (lease, Progress::unfenced(&run.id))
            }
            None => fence::fence(&mut client, settings, key, run)
                .map_err(|error| stall::explain(settings, &session, error, what))
                .map_err(given_up)?,
        };
        let planned = self.planned.remove(&target.stream);
        let planned = planned.filter(|(mode, _)| *mode == target.write_mode);
        let lock = planned.map(|(_, lock)| lock);
        let replayed = match &lease.aside {
            Some(Aside::Replay(claim)) => claim.first_ids(),
            _ => Vec::new(),
        };
        let keeper = rejects.map(|table| Keeper::new(table, run, target, &name, replayed));
        let keeper = keeper.transpose()?;
        let load = TableLoad::new(&self.home, client, target, name, lease, lock)?;
        let load = load.keeping(keeper);
        Ok((load, progress))
    }
}

/// Why a type may not have the name of a table.
const OF_ANOTHER: &str = "a stream writes to a table of that name";

impl Postgres {
    /// Calls `ask` with a target that is there.
    fn digesting<T>(
        &mut self,
        target: &Target,
        ask: impl FnOnce(&Existing<'_>, &mut Client) -> Result<T>,
    ) -> Result<T> {
        let settings = &self.home.settings;
        let name = settings.name_of(target)?;
        let mut client = self.home.client()?;
        let answer = Existing::new(&mut client, settings, target, &name)
            .and_then(|existing| ask(&existing, &mut client));
        self.home.keep(client);
        answer
    }

    /// Refuses a table of rejects that a stream is written to.
    fn refuse_rejects_in_target(&mut self, name: &Name, rejects: Option<&Name>) -> Result<()> {
        self.targets.insert(name.clone());
        self.rejects.extend(rejects.cloned());
        match self.targets.intersection(&self.rejects).next() {
            Some(both) => Err(rejects::is_target(both)),
            None => Ok(()),
        }
    }

    /// Refuses a table whose name a planned type has.
    fn refuse_type_in_target(&mut self, name: &Name) -> Result<()> {
        self.targets.insert(name.clone());
        match self.types.contains(name) {
            true => Err(types::reserved(name, OF_ANOTHER)),
            false => Ok(()),
        }
    }

    /// Refuses types under the names of tables that another stream needs.
    fn refuse_types_in_targets(&mut self, decided: &Decision) -> Result<()> {
        self.types.extend(decided.types.iter().cloned());
        let mut tables = self.targets.union(&self.rejects);
        match tables.find(|table| self.types.contains(table)) {
            Some(both) => Err(types::reserved(both, OF_ANOTHER)),
            None => Ok(()),
        }
    }

    /// The row of the table of checkpoints that is a stream's.
    fn key(&self, target: &Target, pipeline: &str) -> Result<Key> {
        let name = self.home.settings.name_of(target)?;
        Ok(Key::new(
            &self.home.settings,
            pipeline,
            &target.stream,
            &name,
        ))
    }
}

fn is_privilege(error: &Error) -> bool {
    matches!(
        error.code.as_str(),
        "no_privilege" | "checkpoint_not_allowed"
    )
}

/// Checks the rights of the session.
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
        CheckItem::failed("write", transaction::read_only(facts.in_recovery))
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

//! `replace` by a new table that takes the place of the old one.
//!
//! The rows go into a table made LIKE the old one in the load's transaction. At the end the old table
//! is dropped, the new one gets its name, and the properties that LIKE does not copy are created
//! again. Before the commit the catalog describes both tables: a difference takes the swap back, so a
//! property that this file does not know cannot get lost.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::config::{Name, ReplaceMethod, Settings};
use crate::kept::ensure_all;
use crate::lock;
use crate::look::swap::{FEW_ROWS, LEAST_BYTES, SwapFacts, fill, new_name, question};
use crate::transaction::{NO_PATH, OWN_PATH};

/// Every property of a table.
const DESCRIBE: &str = include_str!("../sql/describe.sql");
/// The statements that put the new table in the place of the old one.
const FINISH: &str = include_str!("../sql/finish.sql");
/// The statements that bring the rows into the old table if a swap is impossible.
const DELETE: &str = include_str!("../sql/delete.sql");

const SAVEPOINT: &str = "SAVEPOINT rapidbyte_swap";
const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT rapidbyte_swap";
const RELEASE: &str = "RELEASE SAVEPOINT rapidbyte_swap";
/// A try and its pause take a second.
const MAX_TRIES: u32 = 10;
const LIMIT: &str =
    "SELECT setting || unit FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'";
/// The server ended one of two transactions that waited for each other.
const DEADLOCK: &str = "pg_40P01";
/// Reasons that an error or note lists; more only make it long.
const MAX_LISTED: usize = 5;

/// How a table is going to be swapped.
#[derive(Debug, Clone)]
pub(crate) struct Swap {
    name: Name,
    /// The table that takes the rows until it gets the name of the old one.
    new: Name,
    create: String,
    shape: Vec<String>,
    /// The operator asked for a swap and for nothing else.
    is_explicit: bool,
}

/// Decides whether the table is swapped, and says so or why not. `by_insert` is whether its rows go by
/// INSERT; a table without facts is small.
pub(crate) fn decide(
    settings: &Settings,
    name: &Name,
    facts: Option<&SwapFacts>,
    by_insert: bool,
    notes: &mut Vec<String>,
) -> Result<Option<Swap>> {
    let is_explicit = settings.replace_method == ReplaceMethod::Swap;
    if !is_explicit && settings.replace_method != ReplaceMethod::Auto {
        return Ok(None);
    }
    let mut reasons = facts.map_or_else(Vec::new, |facts| facts.reasons.clone());
    if by_insert {
        reasons.push("its rows are loaded by INSERT".into());
    }
    let why = match facts {
        _ if !reasons.is_empty() => listed(&reasons),
        Some(facts) => {
            notes.push(note(settings, name));
            return Ok(Some(Swap {
                name: name.clone(),
                new: new_name(name),
                create: facts.create.clone(),
                shape: facts.shape.clone(),
                is_explicit,
            }));
        }
        None => format!(
            "it has at most {FEW_ROWS} rows, or less than {} MiB",
            LEAST_BYTES >> 20
        ),
    };
    if is_explicit {
        return Err(refused(name, &why));
    }
    notes.push(format!("{name} is not swapped: {why}"));
    Ok(None)
}

/// The note about the effects on other sessions while the table is replaced.
fn note(settings: &Settings, name: &Name) -> String {
    format!(
        "load into a new table that replaces {name} at the commit: readers see the old rows \
             until then and wait for a moment, other writers wait for the whole load; tables of \
             one run are swapped one after another; if a session holds {name} for longer than {} \
             s, the load falls back to DELETE",
        tries(settings)
    )
}

fn listed(reasons: &[String]) -> String {
    let more = reasons.len().saturating_sub(MAX_LISTED);
    let mut text = reasons[..reasons.len() - more].join(", ");
    if more > 0 {
        text += &format!(", and {more} more");
    }
    text
}

fn refused(name: &Name, why: &str) -> Error {
    let text = format!("{name} cannot be swapped: {why}");
    Error::schema("replace_not_possible", text)
        .hint(
            "set replace_method: delete, which keeps the table and everything that depends on \
             it",
        )
        .at("config.replace_method")
}

/// How often the lock is tried for; `lock_timeout` is the longest that all tries may take.
fn tries(settings: &Settings) -> u32 {
    match settings.lock_timeout_secs {
        0 => MAX_TRIES,
        secs => secs.min(MAX_TRIES),
    }
}

impl Swap {
    /// The table that the rows go to.
    pub(crate) fn new_table(&self) -> &Name {
        &self.new
    }

    /// The statement that makes the new table.
    pub(crate) fn statement(&self) -> &str {
        &self.create
    }

    /// Makes the new table in the load's transaction. Gives false, with the transaction as before,
    /// where the server refuses: DELETE is left then.
    pub(crate) fn make(&self, client: &mut Client) -> Result<bool> {
        // The server takes frozen rows only where no savepoint is open that is newer than the table.
        // The role's default would put the table where the old one is not.
        let mut sql = format!(
            "{SAVEPOINT}; SET LOCAL default_tablespace = ''; {}",
            self.create
        );
        for statement in &self.shape {
            sql += &format!("; {statement}");
        }
        match client.simple_query(&format!("{sql}; {RELEASE}")) {
            Ok(_) => Ok(true),
            Err(error) if may_pass(&error) => Err(error),
            Err(error) if client.is_usable() && !self.is_explicit => {
                client.execute(ROLLBACK)?;
                self.warn(&error.message);
                Ok(false)
            }
            Err(error) if client.is_usable() => Err(refused(&self.name, &error.message)),
            Err(error) => Err(error),
        }
    }

    fn warn(&self, why: &str) {
        log::warn(format!(
            "{} is not swapped, so the load deletes its rows and inserts the new ones: {why}",
            self.name
        ));
    }

    /// Puts the new table with its `rows` rows in the place of the old one, or brings the rows into
    /// the old one. The transaction stays open.
    pub(crate) fn finish(&self, client: &mut Client, settings: &Settings, rows: u64) -> Result<()> {
        // A constraint that waits for the commit would forbid to change the table.
        let limit = client.query_each(
            &format!("SET CONSTRAINTS ALL IMMEDIATE; {NO_PATH}; {LIMIT}; {SAVEPOINT}"),
            1,
        )?;
        let limit = limit.first().map(Rows::single).transpose()?.unwrap_or("0");
        let limit = format!("SET LOCAL lock_timeout = {}", quote_literal(limit));
        if rows > 0 {
            self.analyze(client)?;
        }
        let why = match self.lock_readers(client, settings)? {
            false => "another session holds it".to_owned(),
            true => match self.exchange(client) {
                Ok(None) => {
                    return client
                        .simple_query(&format!("{RELEASE}; {limit}"))
                        .map(drop);
                }
                Ok(Some(reason)) if self.is_explicit => return Err(refused(&self.name, &reason)),
                Ok(Some(reason)) => reason,
                Err(error) if !client.is_usable() => return Err(error),
                Err(error) if did_not_get_it(&error) => "another session holds it".into(),
                Err(error) if may_pass(&error) => return Err(error),
                Err(error) if self.is_explicit => return Err(refused(&self.name, &error.message)),
                Err(error) => error.message,
            },
        };
        self.warn(&why);
        client.simple_query(&format!("{ROLLBACK}; {RELEASE}; {limit}"))?;
        self.copy_over(client, rows)
    }

    /// The planner knows nothing of a new table, and queries must not wait for autovacuum to get good
    /// plans.
    fn analyze(&self, client: &mut Client) -> Result<()> {
        match client.simple_query(&format!("ANALYZE {}", self.new)) {
            Ok(_) => Ok(()),
            Err(error) if client.is_usable() => {
                log::debug(format!("{} is not analyzed: {}", self.new, error.message));
                client.execute(ROLLBACK).map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Locks the old table for everybody. False where others hold it all the time.
    fn lock_readers(&self, client: &mut Client, settings: &Settings) -> Result<bool> {
        let name = &self.name;
        let sql = format!(
            "SET LOCAL lock_timeout = {}; LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE",
            lock::SHORT_MS
        );
        for attempt in 0..tries(settings) {
            match client.simple_query(&sql) {
                Ok(_) => return Ok(true),
                Err(error) if client.is_usable() && did_not_get_it(&error) => {}
                Err(error) => return Err(error),
            }
            client.simple_query(ROLLBACK)?;
            if attempt == 0 {
                log::warn(format!(
                    "waits for a lock on {name} to swap it, which another session holds: {}",
                    lock::holders(client, &name.sql())?
                ));
            }
            client.simple_query(lock::PAUSE)?;
        }
        Ok(false)
    }

    /// Swaps the tables. Gives the reason where the new one cannot take the place of the old one.
    fn exchange(&self, client: &mut Client) -> Result<Option<String>> {
        let describe = self.ask(DESCRIBE);
        let version = client.server_version();
        let ground = question(&oid_of(&self.name), &self.name, version);
        let questions = [ground, describe.clone(), self.ask(FINISH)];
        // The lock is held, so these questions see all changes that others made while the rows came.
        let answers = client.query_each(&questions.join("; "), questions.len())?;
        let [ground, before, statements] = answers.as_slice() else {
            return Err(Error::internal("questions without answers"));
        };
        let ground: SwapFacts = serde_json::from_str(ground.single()?)
            .map_err(|error| Error::internal(format!("an answer of the catalog: {error}")))?;
        if !ground.reasons.is_empty() {
            return Ok(Some(listed(&ground.reasons)));
        }
        client.simple_query(&texts(statements)?.join("; "))?;
        let [after] = client.query_all(&describe)?;
        let difference = difference(&pairs(before)?, &pairs(&after)?);
        Ok(difference.map(|what| format!("{what} would change")))
    }

    /// Brings the rows of the new table into the old one.
    fn copy_over(&self, client: &mut Client, rows: u64) -> Result<()> {
        let statements = client.query_all(&self.ask(DELETE))?;
        let [statements] = &statements;
        let mut copied = 0;
        // Triggers and rules of the table prevent a swap, but not expressions of its own.
        client.simple_query(OWN_PATH)?;
        for statement in texts(statements)? {
            let answers = client.simple_query(statement)?;
            if statement.starts_with("INSERT") {
                copied = answers.iter().map(|rows| rows.affected).sum();
            }
        }
        ensure_all(&self.name, rows, copied)
    }

    /// A question about the table and the new one.
    fn ask(&self, question: &str) -> String {
        fill(question, &oid_of(&self.name), &self.name)
    }
}

fn oid_of(name: &Name) -> String {
    format!("{}::pg_catalog.regclass", quote_literal(&name.sql()))
}

/// The lock did not come in time, or the server gave it to the other side of a deadlock.
fn did_not_get_it(error: &Error) -> bool {
    matches!(error.code.as_str(), lock::NOT_AVAILABLE | DEADLOCK)
}

/// An error that says nothing about the table: the run is retried as a whole. The server's class 55 is
/// about the state of an object, which another run may find again.
fn may_pass(error: &Error) -> bool {
    let is_of_an_object = error.code.starts_with("pg_55");
    matches!(error.kind, ErrorKind::Transient | ErrorKind::Connection) && !is_of_an_object
}

fn texts(rows: &Rows) -> Result<Vec<&str>> {
    let texts = rows.rows.iter().map(|row| row.text(0));
    texts
        .map(|text| text.map(Option::unwrap_or_default))
        .collect()
}

/// A property and its description, which may be NULL.
type Property<'a> = (&'a str, Option<&'a str>);

fn pairs(rows: &Rows) -> Result<Vec<Property<'_>>> {
    let mut pairs = Vec::with_capacity(rows.rows.len());
    for row in &rows.rows {
        pairs.push((row.text(0)?.unwrap_or_default(), row.text(1)?));
    }
    Ok(pairs)
}

/// The first property that two tables do not have in common.
fn difference(before: &[Property<'_>], after: &[Property<'_>]) -> Option<String> {
    let lacks = |some: &[Property<'_>], others: &[Property<'_>]| {
        let one = some.iter().find(|property| !others.contains(property));
        one.map(|(what, _)| (*what).to_owned())
    };
    let is_same = before == after;
    (!is_same).then(|| {
        let different = lacks(before, after).or_else(|| lacks(after, before));
        different.unwrap_or_else(|| "a property".into())
    })
}

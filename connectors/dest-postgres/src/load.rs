//! One stream on its way into its table: one transaction after another on a connection of its own.

use std::cell::RefCell;
use std::rc::Rc;

use rapidbyte_pg::Column;
use rapidbyte_pg::digest::{Recipe, SETTINGS, SETTINGS_AS_SET};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::{CancelToken, Client, Rows, TransactionStatus};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::changes;
use crate::commit;
use crate::comparison::Compared;
use crate::config::{Name, Settings};
use crate::convert;
use crate::decide::{Decision, Method, Remembered};
use crate::digest;
use crate::home::{Home, given_up};
use crate::kept::ensure_empty;
use crate::lease::{self, Aside, Fills, Lease};
use crate::lock::{self, Lock, Mode, lock_prelude};
use crate::look::{self, Within, local_settings};
use crate::origins;
use crate::place::Place;
use crate::rejects::{self, Keeper};
use crate::rows::{Finished, Sink, lost};
use crate::stall;
use crate::transaction::{self, NO_PATH, OWN_PATH};

/// The table that is written is gone.
const VANISHED: &str = "target_missing";
/// Foreign keys that allow it are checked when the new rows are there.
const DEFERRED: &str = "SET CONSTRAINTS ALL DEFERRED";

/// A stream that a run writes. Dropped, the server forgets what is not committed with the
/// connection.
pub struct TableLoad {
    home: Rc<Home>,
    target: Target,
    name: Name,
    schema: SchemaRef,
    lease: Lease,
    /// Its session, also while a statement runs there.
    session: CancelToken,
    /// Taken again in every transaction.
    lock: Option<Lock>,
    /// Rows so far.
    committed: u64,
    /// The statements that changed the table.
    changes: Vec<String>,
    /// It adds to the rows of an earlier run.
    resumes: bool,
    /// Keeps the rejects, if the operator allows some.
    keeper: Option<Keeper>,
    remembered: RefCell<Remembered>,
    state: State,
}

/// The outcome of a commit.
#[derive(Default)]
struct Committed {
    /// Bytes that were sent.
    bytes: u64,
    /// Rows that were deleted or marked because the source does not have their keys.
    deleted: u64,
}

/// How a transaction of a load begins.
#[derive(Clone, Copy)]
enum First<'a> {
    /// The decision to make the table.
    Make(&'a Decision),
    /// The first of a load, on a table that is there: replace empties it.
    Fill,
    /// It is not the first.
    Again,
}

enum State {
    /// The run has fenced, and no row has come yet.
    Fenced(Client),
    /// Between two transactions.
    Idle(Client),
    /// A transaction is open.
    Open(Box<Sink>),
    /// It failed and was given up.
    Lost,
}

impl TableLoad {
    /// The load of a run that has fenced. `planned` is the lock of a table that existed and fitted a moment ago.
    pub(crate) fn new(
        home: &Rc<Home>,
        client: Client,
        target: &Target,
        name: Name,
        lease: Lease,
        planned: Option<Lock>,
    ) -> Result<Self> {
        Ok(Self {
            home: home.clone(),
            target: match target.stages {
                // They are only added: whoever compares them picks the last of each key.
                true => Target {
                    write_mode: WriteMode::Append,
                    ..target.clone()
                },
                false => target.clone(),
            },
            lock: planned,
            schema: target.arrow_schema()?,
            name,
            lease,
            session: client.cancel_token(),
            committed: 0,
            changes: Vec::new(),
            resumes: false,
            keeper: None,
            remembered: RefCell::default(),
            state: State::Fenced(client),
        })
    }

    /// The same, which keeps rejects.
    pub(crate) fn keeping(self, keeper: Option<Keeper>) -> Self {
        Self { keeper, ..self }
    }

    /// Prepares the table in a transaction and is ready for rows behind `cursor`. Nothing is
    /// visible before the commit, apart from schemas and types that were missing.
    fn open(&mut self, mut client: Client, cursor: Option<&str>) -> Result<()> {
        if self.target.stages {
            return self.open_staged(client);
        }
        if let Some(keeper) = &self.keeper {
            rejects::make(&mut client, keeper.table())?;
        }
        if self.lock.is_some() {
            match self.prepare(&mut client, First::Fill) {
                // Then it is made anew.
                Err(error) if error.code == VANISHED && cursor.is_none() && client.is_usable() => {
                    client.execute("ROLLBACK")?;
                }
                prepared => return self.take_rows(client, prepared?),
            }
        }
        let place = self.place();
        let decided = self.explained(place.decide(&mut client, Within::Own))?;
        if cursor.is_some() && decided.makes_table() {
            return Err(self.vanished());
        }
        decided.ensure_loadable(&self.name)?;
        if !decided.prelude.is_empty() {
            let changed = place.make_prelude(&mut client, &self.lease);
            let changed = self.explained(changed)?;
            failpoint("dest-postgres.prelude_committed")?;
            self.changes.extend(changed);
        }
        self.lock.clone_from(&decided.lock);
        let first = match decided.makes_table() {
            true => First::Make(&decided),
            false => First::Fill,
        };
        let prepared = self.prepare(&mut client, first)?;
        self.take_rows(client, prepared)?;
        // The table is there now, and is held in every further transaction, too.
        if decided.makes_table() {
            self.lock = Some(Lock::of(&self.name, Mode::Add));
        }
        Ok(())
    }

    /// Makes a temporary table like the target, and is ready for rows. Errors: `unsupported_verify` behind a pooler; as of
    /// [`digest::ensure_settled`].
    fn open_staged(&mut self, mut client: Client) -> Result<()> {
        if client.is_pgbouncer() {
            let text = "a pooler is in between, and the rows have to be staged in one session of the server";
            return Err(Error::config("unsupported_verify", text)
                .hint("compare through a direct connection to the server"));
        }
        let decided = self.explained(self.place().decide(&mut client, Within::Own))?;
        digest::ensure_settled(&decided, &self.name)?;
        let begin = begin(&client, &self.home.settings);
        let mut decided =
            self.explained(self.place().decide(&mut client, Within::Opening(&begin)))?;
        digest::ensure_settled(&decided, &self.name)?;
        client
            .execute(&digest::make_staged(&self.name))
            .map_err(|error| match error.code == lock::NO_PRIVILEGE {
                true => error.hint(format!(
                    "the rows are staged in a temporary table with the columns of the target: have the owners run GRANT \
                     TEMPORARY ON DATABASE … and GRANT SELECT ON {} TO the role of the pipeline",
                    self.name
                )),
                false => error,
            })?;
        decided.stages = true;
        // The rows go to a plain table, whatever the target is.
        (decided.merge, decided.swap) = (None, None);
        decided.method = match decided.cast.is_empty() {
            true => Method::Copy,
            false => Method::Insert { staged: true },
        };
        self.take_rows(client, decided)
    }

    fn place(&self) -> Place<'_> {
        Place {
            settings: &self.home.settings,
            target: &self.target,
            name: &self.name,
            schema: &self.schema,
            is_made: false,
        }
    }

    /// Opens a transaction and decides in it: the table is held then, and the server's own numbers of
    /// its types are known.
    fn prepare(&self, client: &mut Client, first: First<'_>) -> Result<Decision> {
        self.explained(self.decide_inside(client, first))
    }

    /// Says what was waited for in vain: while its session is there, that can be seen.
    fn explained<T>(&self, prepared: Result<T>) -> Result<T> {
        prepared.map_err(|error| {
            let what = format!("preparing {}", self.name);
            stall::explain(&self.home.settings, &self.session, error, &what)
        })
    }

    fn take_rows(&mut self, client: Client, decided: Decision) -> Result<()> {
        if self.committed == 0 {
            self.lease.origins = origins::filled(&self.schema, decided.kept.as_deref())?;
            self.lease.is_unproved = self.lease.origins.is_none();
        }
        let refused = self.keeper.as_ref().map_or(0, |keeper| keeper.refused_rows);
        let before = self.committed + refused;
        let sink = self.explained(Sink::new(client, &self.place(), decided, before))?;
        self.state = State::Open(Box::new(sink));
        Ok(())
    }

    fn decide_inside(&self, client: &mut Client, first: First<'_>) -> Result<Decision> {
        let name = &self.name;
        let begin = begin(client, &self.home.settings);
        let (mut decided, lost_rows) = match first {
            First::Make(planned) => (self.make(client, &begin, &planned.create)?, None),
            First::Fill | First::Again => self.hold(client, &begin)?,
        };
        if decided.makes_table() {
            return Err(self.vanished());
        }
        decided.ensure_loadable(name)?;
        if !decided.prelude.is_empty() {
            if let First::Make(planned) = first {
                self.refuse_other_types(client, planned)?;
            }
            let text = format!("another session changed the columns of {name} during the run");
            return Err(Error::new(ErrorKind::Transient, "target_changed", text));
        }
        if let Some(answer) = lost_rows {
            self.refuse_lost_rows(&answer)?;
        }
        if let Some(Aside::Replay(claim)) = &self.lease.aside {
            claim.hold(client)?;
        }
        failpoint("dest-postgres.opened")?;
        if let (First::Fill, Some(rows)) = (first, &self.target.repairs) {
            self.remove(client, &decided, rows)?;
        }
        if let (First::Fill, Some(swap)) = (first, &decided.swap) {
            if swap.make(client)? {
                decided.is_frozen = true;
                return Ok(decided);
            }
            decided.swap = None;
        }
        if let (First::Fill, Some(clear)) = (first, &decided.clear) {
            let left = format!("SELECT EXISTS (SELECT FROM {name})::text");
            let clear = format!("{DEFERRED}; {OWN_PATH}; {clear}; {NO_PATH}; {left}");
            let cleared = client.query_all(&clear);
            let [left] = cleared.map_err(|e| self.explain(client, still_referenced(e)))?;
            ensure_empty(name, &left)?;
            decided.is_frozen = decided.is_truncated && self.keeper.is_none();
            failpoint("dest-postgres.cleared")?;
        }
        Ok(decided)
    }

    /// Deletes the rows that are gone, and gives those that come their keys as they are spelled. Errors: `rows_kept` if
    /// rows that are gone stay.
    fn remove(&self, client: &mut Client, decided: &Decision, rows: &Repair) -> Result<()> {
        let name = &self.name;
        let columns = digest::columns(&self.schema, decided);
        let recipe = Recipe::parse(&rows.recipe, columns.len()).map_err(convert)?;
        if !rows.gone.is_empty() {
            let gone = format!(
                "({}) AND NOT ({})",
                recipe.has_key(&columns, &rows.gone),
                recipe.has_key(&columns, &rows.present)
            );
            let remove = format!(
                "{SETTINGS}; {DEFERRED}; {OWN_PATH}; DELETE FROM {name} AS t WHERE {gone}; {NO_PATH}; \
                 SELECT EXISTS (SELECT FROM {name} AS t WHERE {gone})::text; {SETTINGS_AS_SET}"
            );
            let removed = client.query_all(&remove);
            let [left] = removed.map_err(|e| self.explain(client, still_referenced(e)))?;
            ensure_empty(name, &left)?;
        }
        if !rows.present.is_empty() {
            let respell = recipe.respell(&name.sql(), &columns, &rows.present);
            let respell = format!(
                "{SETTINGS}; {DEFERRED}; {OWN_PATH}; {respell}; {NO_PATH}; {SETTINGS_AS_SET}"
            );
            let respelled = client.execute(&respell);
            respelled.map_err(|e| self.explain(client, still_referenced(e)))?;
        }
        failpoint("dest-postgres.removed")
    }

    /// The question whether somebody took rows out of the table during the run, for a load that adds rows behind a cursor.
    /// The open transaction keeps TRUNCATE and DROP away until its end; a DELETE beside it is not noticed.
    fn lost_rows_question(&self, may_read: bool) -> Option<String> {
        let target = &self.target;
        // Rows of an upsert may all be deleted.
        let grows = target.is_incremental && target.write_mode != WriteMode::Replace;
        // A stream that starts over brings every row again. The stored cursor belongs to an earlier read.
        let resumes = self.resumes || self.committed > 0;
        let is_asked = grows && resumes && target.deleted_field.is_none();
        let question = self.lease.lost_rows_question(may_read);
        question.filter(|_| is_asked)
    }

    fn refuse_lost_rows(&self, answer: &Rows) -> Result<()> {
        let Some(why) = self.lease.lost_rows(answer)? else {
            return Ok(());
        };
        let text = format!(
            "{why} during the run, and the stream would resume behind the rows that it held"
        );
        // The engine adds the hint, as it does where it refuses such a stream itself.
        Err(Error::schema("target_lost_rows", text))
    }

    /// Makes the table.
    fn make(&self, client: &mut Client, begin: &str, create: &[String]) -> Result<Decision> {
        let name = &self.name;
        let [table, more @ ..] = create else {
            return Err(Error::internal("a table without a statement that makes it"));
        };
        lock::make(client, begin, name, table).map_err(|e| made_meanwhile(name, e))?;
        if !more.is_empty() {
            client.execute(&more.join("; "))?;
        }
        let mut place = self.place();
        place.is_made = true;
        let mut decided = place.decide(client, Within::Open)?;
        // Behind a savepoint the server does not freeze rows.
        decided.is_frozen = self.keeper.is_none();
        Ok(decided)
    }

    /// The table that this transaction has made differs from what the stream needs, so the description of a column is
    /// not the type that the server made of it.
    fn refuse_other_types(&self, client: &mut Client, planned: &Decision) -> Result<()> {
        let made = look::columns_of(client, &self.name)?.columns;
        let differs = |(planned, made): &(&Column, &Column)| {
            planned.type_text != made.type_text || planned.typmod != made.typmod
        };
        let Some((planned, made)) = planned.targets.iter().zip(&made).find(differs) else {
            return Ok(());
        };
        let text = format!(
            "the server makes a column of the type {} of the description {}",
            made.type_text, planned.type_text
        );
        Err(Error::schema("invalid_metadata", text).in_column(&planned.name))
    }

    /// Locks the table that is there and decides. With the decision comes the answer to the question for lost rows, if
    /// that has to be asked.
    fn hold(&self, client: &mut Client, begin: &str) -> Result<(Decision, Option<Rows>)> {
        let may_read = self.remembered.borrow().may_read();
        if let Some(question) = self.lost_rows_question(may_read)
            && let Some(held) = self.hold_asking(client, begin, question)?
        {
            return Ok(held);
        }
        let decided = self.hold_alone(client, begin)?;
        let question = self.lost_rows_question(false);
        let ask = |question| self.lease.ask_lost_rows(client, question);
        Ok((decided, question.map(ask).transpose()?))
    }

    /// The same in one send. `None` if the server refuses a part of it: asked one by one, it is known which.
    fn hold_asking(
        &self,
        client: &mut Client,
        begin: &str,
        question: String,
    ) -> Result<Option<(Decision, Option<Rows>)>> {
        match self.attempt(client, begin, Some(question)) {
            Ok((decided, answer)) => Ok(Some((decided?, answer))),
            Err(_) if client.transaction_status() == TransactionStatus::Failed => {
                client.execute("ROLLBACK")?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a transaction, locks the table if nobody else does, and decides, with a question in the same send.
    fn attempt(
        &self,
        client: &mut Client,
        begin: &str,
        question: Option<String>,
    ) -> Result<(Result<Decision>, Option<Rows>)> {
        let attempt = self
            .lock
            .as_ref()
            .map(|lock| format!("{begin}; {}", lock.attempt()));
        let within = Within::Opening(attempt.as_deref().unwrap_or(begin));
        let remembered = &mut *self.remembered.borrow_mut();
        self.place()
            .decide_again(client, within, question, remembered)
    }

    fn hold_alone(&self, client: &mut Client, begin: &str) -> Result<Decision> {
        let decided = self.attempt(client, begin, None);
        let decided = decided.and_then(|(decided, _)| decided);
        let (lock, refused) = match (&self.lock, decided) {
            (Some(lock), Err(error))
                if client.transaction_status() == TransactionStatus::Failed =>
            {
                (lock, error)
            }
            (_, decided) => return decided,
        };
        let taken = lock::take(client, &self.name, lock, refused);
        taken.map_err(|error| match error.code.as_str() {
            "pg_42P01" | "pg_3F000" => self.vanished(),
            lock::NO_PRIVILEGE => self.why_not_allowed(client, error),
            _ => error,
        })?;
        self.place().decide(client, Within::Open)
    }

    /// The privilege that the role lacks: the server's error for LOCK does not name it.
    fn why_not_allowed(&self, client: &mut Client, error: Error) -> Error {
        if !client.is_usable() || client.execute("ROLLBACK").is_err() {
            return error;
        }
        match self.place().decide(client, Within::Own) {
            Err(reason) if client.is_usable() => reason,
            _ => error,
        }
    }

    /// A table that held the rows before the cursor and is gone.
    fn vanished(&self) -> Error {
        let name = &self.name;
        let text = format!(
            "{name} does not exist any more, so the stream cannot resume after the rows that it \
                 had"
        );
        Error::schema(VANISHED, text).hint(
            "read this stream from its first row: `rapidbyte run PIPELINE --full-refresh --select STREAM`",
        )
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        self.open_again()?;
        if batch.num_rows() == 0 {
            // Rows follow: the transaction has begun meanwhile.
            return Ok(());
        }
        failpoint("dest-postgres.writing")?;
        let State::Open(sink) = &mut self.state else {
            return Err(lost());
        };
        match &mut self.keeper {
            Some(keeper) => sink.sort(batch, keeper, &self.home.settings),
            None => sink.write(batch),
        }
    }

    /// Begins a new transaction behind a commit.
    fn open_again(&mut self) -> Result<()> {
        if let State::Idle(_) = self.state
            && let State::Idle(mut client) = std::mem::replace(&mut self.state, State::Lost)
        {
            let decided = self.prepare(&mut client, First::Again)?;
            self.take_rows(client, decided)?;
        }
        Ok(())
    }

    /// Keeps rejects of the stages before.
    fn keep(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        self.open_again()?;
        let (State::Open(sink), Some(keeper)) = (&mut self.state, &mut self.keeper) else {
            return Err(lost());
        };
        for reject in rejects {
            keeper.add(origin, reject.clone());
            if keeper.is_full() {
                sink.send(keeper)?;
            }
        }
        sink.send(keeper)
    }

    fn end_part(&mut self) -> Result<Part> {
        let part = match &mut self.state {
            State::Open(sink) => sink.flush()?,
            // Nothing came since the last commit.
            State::Idle(_) => Part {
                data: Vec::new(),
                rows: 0,
                bytes: 0,
            },
            State::Fenced(_) | State::Lost => return Err(lost()),
        };
        failpoint("dest-postgres.flushed")?;
        Ok(part)
    }

    /// Begins to take the keys of the source, in the transaction of the rows before them or in a new one.
    fn begin_keys(&mut self) -> Result<()> {
        self.open_again()?;
        let schema = self.target.key_schema()?;
        let State::Open(sink) = &mut self.state else {
            return Err(lost());
        };
        sink.flush()?;
        sink.open_keys(&self.home.settings, &schema)
    }

    /// Takes or ends the keys.
    fn with_keys<T>(&mut self, act: impl FnOnce(&mut Sink) -> Result<T>) -> Result<T> {
        let done = match &mut self.state {
            State::Open(sink) => sink.keys().and_then(act),
            State::Fenced(_) | State::Idle(_) | State::Lost => Err(lost()),
        };
        done.map_err(|error| self.ended(error))
    }

    /// Makes the rows of the parts visible and moves the cursor.
    fn commit_rows(&mut self, commit: &Commit<'_>) -> Result<Committed> {
        let replaces = self.target.write_mode == WriteMode::Replace;
        if replaces && !commit.complete {
            let text = "a replace commits once, at the end";
            return Err(Error::internal(text));
        }
        let _phase = phase::enter(Kind::Commit);
        failpoint("dest-postgres.committing")?;
        let rows = commit.rows();
        let finished = match std::mem::replace(&mut self.state, State::Lost) {
            State::Open(sink) => sink.finish(rows, &self.home.settings, &self.lease.key)?,
            State::Idle(client) if rows == 0 => Finished {
                client,
                bytes: 0,
                compared: Compared::default(),
            },
            _ => return Err(lost()),
        };
        let Finished {
            client,
            bytes,
            compared,
        } = finished;
        let fills = match compared.is_empty {
            true => Fills::Unknown,
            false => Fills::of(rows, replaces),
        };
        let client = commit::commit(client, &self.home.settings, &mut self.lease, commit, fills)?;
        self.state = State::Idle(client);
        self.committed += rows;
        Ok(Committed {
            bytes,
            deleted: compared.rows,
        })
    }

    /// A commit without a writer.
    fn commit_cursor(&mut self, mut client: Client, commit: &Commit<'_>) -> Result<()> {
        // A run that had nothing to write is complete: any other such commit is an operator's.
        let fills = match commit.complete {
            true => Fills::Nothing,
            false => lease::fills_of_operator(&mut client, &self.lease, commit.cursor)?,
        };
        let client = commit::commit(client, &self.home.settings, &mut self.lease, commit, fills)?;
        self.state = State::Fenced(client);
        Ok(())
    }

    /// Ends a load that cannot commit anything any more, and frees its locks now.
    fn ended(&mut self, error: Error) -> Error {
        let error = self.why_it_ended(error);
        self.give_up();
        given_up(error)
    }

    /// Rolls back what is open. The connection is closed then: the server knows it as this
    /// stream's.
    fn give_up(&mut self) {
        match std::mem::replace(&mut self.state, State::Lost) {
            State::Fenced(client) => client.close(),
            State::Open(sink) => {
                if let Some(client) = sink.give_up() {
                    client.close();
                }
            }
            State::Idle(_) | State::Lost => {}
        }
    }

    /// Says why a load ended whose connection was ended, or on which nothing came.
    fn why_it_ended(&self, error: Error) -> Error {
        let error = violated(error, &self.name, &self.target);
        let what = format!("writing to {}", self.name);
        let error = stall::explain(&self.home.settings, &self.session, error, &what);
        commit::superseded(&self.home.settings, &self.lease, error)
    }

    fn explain(&self, client: &mut Client, error: Error) -> Error {
        if client.is_usable() && client.execute("ROLLBACK").is_ok() {
            return lock::timed_out(client, error, &self.name.sql());
        }
        error
    }
}

impl Load for TableLoad {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        let (owners, name) = (&self.home.owners, &self.name);
        owners
            .take(name.sql(), &self.target.stream, name)
            .map_err(|error| {
                error
                    .hint("put {stream} into `table`, or remove `schema`")
                    .at("config.table")
            })?;
        let State::Fenced(client) = std::mem::replace(&mut self.state, State::Lost) else {
            return Err(lost());
        };
        self.resumes = cursor.is_some();
        self.open(client, cursor).map_err(|error| {
            // The fence of a newer run may have ended the session.
            let error = commit::superseded(&self.home.settings, &self.lease, error);
            given_up(error)
        })
    }

    fn schema_changes(&self) -> Vec<String> {
        self.changes.clone()
    }

    /// Takes a batch, in a new transaction behind a commit.
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.take(batch).map_err(|error| self.ended(error))
    }

    fn reject(&mut self, origin: RejectOrigin, rejects: &[Reject]) -> Result<()> {
        self.keep(origin, rejects)
            .map_err(|error| self.ended(error))
    }

    fn refused(&mut self) -> Refused {
        let keeper = self.keeper.as_mut();
        keeper.map(Keeper::take_refused).unwrap_or_default()
    }

    /// Ends a part: every row is in the transaction then.
    fn flush(&mut self) -> Result<Part> {
        self.end_part().map_err(|error| self.ended(error))
    }

    fn open_keys(&mut self) -> Result<()> {
        self.begin_keys().map_err(|error| self.ended(error))
    }

    fn write_keys(&mut self, batch: &RecordBatch) -> Result<()> {
        self.with_keys(|keys| keys.write_keys(batch))
    }

    fn flush_keys(&mut self) -> Result<Part> {
        self.with_keys(Sink::flush_keys)
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        let Committed { bytes, deleted } = match std::mem::replace(&mut self.state, State::Lost) {
            State::Fenced(client) => {
                self.commit_cursor(client, commit).map_err(given_up)?;
                Committed::default()
            }
            state => {
                self.state = state;
                let committed = self.commit_rows(commit);
                committed.map_err(|error| self.ended(error))?
            }
        };
        if commit.complete
            && let State::Fenced(client) | State::Idle(client) =
                std::mem::replace(&mut self.state, State::Lost)
        {
            self.home.keep(client);
        }
        Ok(Receipt {
            rows: commit.rows(),
            bytes,
            location: self.name.sql(),
            deleted,
        })
    }

    fn abort(mut self) -> Result<()> {
        self.give_up();
        Ok(())
    }
}

impl Place<'_> {
    /// Makes schemas and types and changes the table, one stream at a time: of two that need the same, the second finds
    /// it. Returns the statements that changed a table that was there.
    fn make_prelude(&self, client: &mut Client, lease: &Lease) -> Result<Vec<String>> {
        for attempt in 0..MAX_TRIES {
            match self.try_prelude(client, lease) {
                Err(error) if error.code == lock::NOT_AVAILABLE && client.is_usable() => {
                    client.execute("ROLLBACK")?;
                    let holders = lock::holders(client, &self.name.sql())?;
                    if attempt + 1 == MAX_TRIES {
                        return Err(lock::too_long(
                            &format!("a lock on {}", self.name),
                            &holders,
                        ));
                    }
                    if attempt == 0 {
                        log::warn(format!(
                            "waits for a lock on {} to change its columns, which another session holds: {holders}",
                            self.name
                        ));
                    }
                    client.simple_query(lock::PAUSE)?;
                }
                Err(error) if error.code == commit::DIVIDED_BY_ZERO && client.is_usable() => {
                    client.execute("ROLLBACK")?;
                    return Err(commit::refused_by_fence(
                        client,
                        self.settings,
                        lease,
                        error,
                    ));
                }
                made => return made,
            }
        }
        Err(Error::internal("a table that cannot be changed"))
    }

    fn try_prelude(&self, client: &mut Client, lease: &Lease) -> Result<Vec<String>> {
        let begin = begin(client, self.settings);
        let turn = client.simple_query(&format!("{begin}; {}", lock_prelude()));
        turn.map_err(|error| lock::no_turn(error, "schemas and types"))?;
        let decided = self.decide(client, Within::Open)?;
        decided.ensure_loadable(self.name)?;
        let is_there = !decided.makes_table();
        if is_there {
            client.simple_query(&format!("SET LOCAL lock_timeout = {}", lock::SHORT_MS))?;
            client.simple_query(&lease.hold())?;
        }
        for statement in &decided.prelude {
            let done = client.simple_query(statement);
            done.map_err(|error| unchanged(error, self.name, statement))?;
        }
        if is_there && !decided.prelude.is_empty() {
            changes::record(client, self.settings, lease, &decided.prelude)?;
            // If the run dies before its first commit, the next run must know where these columns came from.
            let origins = origins::filled(self.schema, decided.kept.as_deref())?;
            if let Some(record) = origins.and_then(|origins| lease.record(&origins)) {
                client.simple_query(&record)?;
            }
        }
        client.execute("COMMIT")?;
        Ok(match is_there {
            true => decided.prelude,
            false => Vec::new(),
        })
    }
}

/// How often the lock for a change is tried for; a try and its pause take a second.
const MAX_TRIES: u32 = 20;

/// Why the server did not change a table, and what to do.
fn unchanged(mut error: Error, name: &Name, statement: &str) -> Error {
    let by_hand = || {
        format!(
            "drop what depends on the column or change {name} by hand, or set schema_changes so that the run does \
             not change it; the server refused: {statement}"
        )
    };
    match error.code.as_str() {
        lock::NOT_AVAILABLE => error,
        lock::NO_PRIVILEGE => error.hint(format!("have the owner run: {statement}")),
        // An object that depends on a column, such as a view, prevents the change; the server's hint would drop it.
        "pg_2BP01" | "pg_0A000" => {
            error.kind = ErrorKind::Schema;
            error.hint(by_hand())
        }
        _ if error.hint.is_none() => error.hint(by_hand()),
        _ => error,
    }
}

/// Begins the transaction of a load.
fn begin(client: &Client, settings: &Settings) -> String {
    let begin = transaction::begin(client, settings);
    format!("{begin}; {}", local_settings())
}

/// A foreign key that is checked at once prevents the run from deleting all rows first.
fn still_referenced(error: Error) -> Error {
    if error.code != "pg_23503" {
        return error;
    }
    error.hint(
        "make the foreign key DEFERRABLE (ALTER TABLE … ALTER CONSTRAINT … DEFERRABLE), so that \
             the server checks it at the end: rows of another table refer to rows that the run \
             replaces",
    )
}

/// Says what to do about rows that a constraint refuses: the server names it, the table and the values.
fn violated(error: Error, name: &Name, target: &Target) -> Error {
    if error.hint.is_some() {
        return error;
    }
    let leave = "or leave such rows out with `where:`";
    let hint = match (error.code.as_str(), &error.column) {
        ("pg_23505" | "pg_23P01", _) => match target.write_mode {
            WriteMode::Append => format!(
                "use write_mode: upsert with primary_key to update rows whose key is already in \
                     {name}, or write_mode: replace to replace all rows; {leave}"
            ),
            WriteMode::Replace => format!(
                "two rows of the stream have these values: if the columns of this constraint identify a row, use \
                     write_mode: upsert with them as primary_key to keep the last one; if they do not any more, drop \
                     the constraint, {leave}"
            ),
            WriteMode::Upsert => format!(
                "if the columns of this constraint identify a row, name them as primary_key: \
                     another row of {name} has these values; drop the constraint, {leave}"
            ),
        },
        ("pg_23502", Some(column)) if target.primary_key.contains(column) => format!(
            "the columns of primary_key identify a row, so none of them can be NULL: give {column} a value in the source, \
             name other columns as primary_key, {leave}"
        ),
        // A domain that refuses NULL is named instead of the column.
        ("pg_23502", Some(column)) if names(&error.message, column) => format!(
            "the stream has NULL there, run on the target: ALTER TABLE {name} ALTER COLUMN {} DROP \
             NOT NULL; {leave}. If it is in the table's primary key, it needs a value in the source",
            quote_ident(column)
        ),
        ("pg_23502", _) => format!(
            "the stream has NULL there; run on the target: ALTER DOMAIN … DROP NOT NULL, or give \
                 the column another type; {leave}"
        ),
        ("pg_23503" | "pg_23001", _) => format!(
            "write the table that the foreign key refers to first, make the key DEFERRABLE, or \
                 drop it; {leave}"
        ),
        ("pg_23514", _) => format!(
            "change the CHECK or add a partition: the values break a CHECK of {name}, or fit \
                 none of its partitions; {leave}"
        ),
        _ => return error,
    };
    error.hint(hint)
}

/// True where the server's own words name the column, and not only the place that we put before them.
fn names(message: &str, column: &str) -> bool {
    let place = format!(", column {column:?}: ");
    let said = message.split_once(&place).map_or(message, |(_, said)| said);
    said.contains(&format!("\"{column}\""))
}

/// Another session may make the same table between our look and our statement; what the server
/// says then depends on how far it was.
fn made_meanwhile(name: &Name, error: Error) -> Error {
    match error.code.as_str() {
        "pg_42P07" | "pg_23505" | "pg_42710" => {
            let text = format!(
                "another session created {name} at the same time: {}",
                error.message
            );
            Error::new(ErrorKind::Transient, "table_appeared", text).hint("run again")
        }
        _ => error,
    }
}

//! The right of a run to commit a stream, and the statements by which a commit proves it.
//!
//! They fail if a newer run has fenced, or if the row of the stream is not as the run left it.

use rapidbyte_pg::ident::quote_literal;
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::{Key, MAY_LOOK, differs, found, is_target_empty, read_progress};
use crate::config::Settings;
use crate::origins;
use crate::rejects::Claim;
use crate::transaction::{self, BEGIN};

/// The right of a run to commit a stream, until a newer run fences.
#[derive(Debug)]
pub(crate) struct Lease {
    pub key: Key,
    pub run_id: String,
    pub epoch: u64,
    /// The number of commits so far.
    pub seq: u64,
    /// Whether the table of checkpoints has the columns `target_oid` and `origins`.
    pub knows_target: bool,
    pub knows_origins: bool,
    /// The result of [`origins::filled`], which the next commit writes.
    pub origins: Option<String>,
    /// Nothing is known of where the rows of the load come from.
    pub is_unproved: bool,
    /// The run moves no stream: it fences nothing, and moves no cursor.
    pub aside: Option<Aside>,
}

/// A run that writes beside the runs that move the stream.
#[derive(Debug)]
pub(crate) enum Aside {
    /// It replays these rejects.
    Replay(Claim),
    /// It repairs single rows.
    Repair,
    /// It stages rows that only its session sees.
    Staging,
}

/// The effect of a commit on its target table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fills {
    /// The commit adds rows, or replaces all rows by new ones.
    Some,
    /// The commit adds no rows.
    Nothing,
    /// The commit leaves the table empty, or an operator accepts the empty table or wants all rows again.
    Unknown,
}

impl Fills {
    pub(crate) fn of(rows: u64, is_replaced: bool) -> Self {
        match (rows, is_replaced) {
            (0, true) => Self::Unknown,
            (0, false) => Self::Nothing,
            _ => Self::Some,
        }
    }
}

/// The effect of a cursor that an operator sets. If the table has rows, the cursor belongs to this table from now on.
/// If the table was emptied, the operator accepts that. A stream that starts over accepts any table.
pub(crate) fn fills_of_operator(
    client: &mut Client,
    lease: &Lease,
    cursor: Option<&str>,
) -> Result<Fills> {
    if cursor.is_none() || is_target_empty(client, &lease.key)? == Some(true) {
        return Ok(Fills::Unknown);
    }
    Ok(Fills::Some)
}

impl Lease {
    /// The right to write rows beside the runs that move the stream.
    pub(crate) fn beside(key: Key, run: &Run, aside: Aside) -> Self {
        Self {
            key,
            run_id: run.id.clone(),
            epoch: 0,
            seq: 0,
            knows_target: false,
            knows_origins: false,
            origins: None,
            is_unproved: false,
            aside: Some(aside),
        }
    }

    /// The table of checkpoints, with its schema, quoted.
    pub(crate) fn table(&self) -> &str {
        &self.key.table
    }

    /// A statement that fails if a newer run has fenced, and until the end of the transaction keeps one from fencing.
    pub(crate) fn hold(&self) -> String {
        if self.aside.is_some() {
            return "SELECT 1".to_owned();
        }
        format!(
            "SELECT 1 / pg_catalog.count(*) FROM (SELECT FROM {} AS c WHERE {} AND c.epoch = {} FOR SHARE) AS held",
            self.key.table,
            self.key.condition(),
            self.epoch
        )
    }

    /// The statement that records origins without a commit of rows. `None` if the table lacks the column.
    pub(crate) fn record(&self, origins: &str) -> Option<String> {
        let update = || {
            format!(
                "UPDATE {} AS c SET {} WHERE {} AND c.epoch = {}",
                self.key.table,
                origins::assignment(&self.key.oid, origins),
                self.key.condition(),
                self.epoch
            )
        };
        self.knows_origins.then(update)
    }

    /// The question whether committed rows are still in the target, for an open transaction that holds it. `None` if
    /// nobody can know. `may_read`: the server answers a short question, unless the role has lost its right to read.
    pub(crate) fn lost_rows_question(&self, may_read: bool) -> Option<String> {
        let Key {
            table, target, oid, ..
        } = &self.key;
        // The inner query runs only if the role may read the table.
        let inner = quote_literal(&format!("SELECT EXISTS (SELECT FROM {target}) AS has"));
        let is_empty = match may_read {
            true => format!("NOT EXISTS (SELECT FROM {target})"),
            false => format!(
                "pg_catalog.query_to_xml({inner}, false, true, '')::text LIKE '%<has>false%'"
            ),
        };
        let ask = || {
            format!(
                "SELECT CASE WHEN c.target_oid <> t.oid THEN 'other' WHEN {MAY_LOOK} AND {is_empty} THEN 'empty' END \
                 FROM {table} AS c JOIN pg_catalog.pg_class AS t ON t.oid = ({oid}) \
                 WHERE {} AND c.cursor IS NOT NULL AND c.target_oid IS NOT NULL",
                self.key.condition()
            )
        };
        self.knows_target.then(ask)
    }

    /// Asks [`Lease::lost_rows_question`].
    pub(crate) fn ask_lost_rows(&self, client: &mut Client, question: String) -> Result<Rows> {
        let answers = client.query_again("", &[question], 1);
        let answers = answers.map_err(|error| differs(&self.key.table, error))?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Why committed rows are no longer in the target, as the answer says. `None` if they are there.
    pub(crate) fn lost_rows(&self, answer: &Rows) -> Result<Option<String>> {
        let target = &self.key.target;
        let lost = match answer.rows.first() {
            Some(row) => row.text(0)?,
            None => None,
        };
        Ok(lost.map(|lost| match lost {
            "other" => format!("{target} was dropped and made again"),
            _ => format!("{target} was emptied"),
        }))
    }

    /// The last statement of a commit. It fails if a newer run has fenced or if `seq` has changed. Then the server does
    /// not run a COMMIT that follows in the same send.
    pub(crate) fn advance(
        &self,
        client: &mut Client,
        cursor: Option<&str>,
        complete: bool,
        fills: Fills,
    ) -> String {
        match &self.aside {
            Some(Aside::Replay(claim)) => return claim.removal(),
            Some(Aside::Repair | Aside::Staging) => return "SELECT 1".to_owned(),
            None => {}
        }
        // A complete run removes its backend: nobody has to end the backend of a run that has nothing more to do.
        let backend = match complete {
            true => ", backend_pid = NULL, backend_start = NULL",
            false => "",
        };
        let target = match fills {
            _ if !self.knows_target => String::new(),
            Fills::Some => format!(", target_oid = ({})", self.key.oid),
            Fills::Nothing => String::new(),
            Fills::Unknown => ", target_oid = NULL".into(),
        };
        let origins = match &self.origins {
            Some(origins) if self.knows_origins => {
                format!(", {}", origins::assignment(&self.key.oid, origins))
            }
            _ if self.is_unproved && self.knows_origins => format!(", {}", origins::UNPROVED),
            _ => String::new(),
        };
        let statement = |cursor: &str, epoch: &str, seq: &str| {
            format!(
                "WITH moved AS (UPDATE {} AS c SET seq = c.seq + 1, cursor = {cursor}, complete = {complete}, \
                 updated_at = pg_catalog.clock_timestamp(){backend}{target}{origins} \
                 WHERE {} AND c.epoch = {epoch} AND c.seq = {seq} RETURNING 1) \
                 SELECT 1 / pg_catalog.count(*) FROM moved",
                self.key.table,
                self.key.condition(),
            )
        };
        let arguments = [
            cursor.map_or_else(|| "NULL".to_owned(), quote_literal),
            self.epoch.to_string(),
            self.seq.to_string(),
        ];
        let [cursor, epoch, seq] = &arguments;
        let again = match self.origins {
            // The first commit of a load says what no other does.
            Some(_) => None,
            None => client.prepared(&statement("$1", "$2", "$3"), &arguments),
        };
        again.unwrap_or_else(|| statement(cursor, epoch, seq))
    }

    /// Why the server refused [`Lease::advance`]: `run_superseded`, `checkpoint_changed`, or `error` if it is neither.
    /// The transaction is rolled back.
    pub(crate) fn refused(&self, client: &mut Client, error: Error) -> Error {
        match &self.aside {
            Some(Aside::Replay(claim)) => return claim.refused(client, error),
            Some(Aside::Repair | Aside::Staging) => return error,
            None => {}
        }
        match self.look(client) {
            Ok(Some(found)) if (found.epoch, found.seq) == (self.epoch, self.seq) => error,
            Ok(found) => self.overtaken(found.as_ref()),
            Err(_) => error,
        }
    }

    /// Whether the last commit that was sent happened. Waits until the server has decided. If the commit did not
    /// happen, it never will, because this call raises the epoch. Errors: `run_superseded`, `checkpoint_changed`, and
    /// the errors of the connection.
    pub(crate) fn settle(&mut self, client: &mut Client, settings: &Settings) -> Result<bool> {
        match &self.aside {
            Some(Aside::Replay(claim)) => return claim.has_happened(client),
            // A repair that comes again has the same effect, and staged rows are gone with their session.
            Some(Aside::Repair | Aside::Staging) => return Ok(false),
            None => {}
        }
        let sql = format!(
            "UPDATE {} AS c SET epoch = c.epoch + 1, updated_at = pg_catalog.clock_timestamp() \
             WHERE {} AND c.epoch = {} AND c.seq = {}",
            self.key.table,
            self.key.condition(),
            self.epoch,
            self.seq
        );
        let unhurried = transaction::unhurried(client, settings);
        let answers = client.simple_query(&format!("{BEGIN}; {unhurried}{sql}; COMMIT"));
        let answers = answers.map_err(|error| differs(&self.key.table, error))?;
        if answers.iter().any(|rows| rows.affected > 0) {
            // This run raised the epoch, not a newer run.
            self.epoch += 1;
            return Ok(false);
        }
        let found = self.look(client)?;
        match &found {
            Some(found) if (found.epoch, found.seq) == (self.epoch, self.seq + 1) => Ok(true),
            found => Err(self.overtaken(found.as_ref())),
        }
    }

    /// Reads the row. `None` if somebody deleted it.
    fn look(&self, client: &mut Client) -> Result<Option<Progress>> {
        let sql = format!(
            "SELECT c.epoch, c.seq, c.cursor, c.complete, c.run_id FROM {} AS c WHERE {}",
            self.key.table,
            self.key.condition()
        );
        let answers = client.simple_query(&sql);
        let answers = answers.map_err(|error| differs(&self.key.table, error))?;
        found(&answers)
            .map(|row| read_progress(row, &self.key))
            .transpose()
    }

    /// Why this run may no longer commit: `run_superseded` if another run fenced, `checkpoint_changed` if
    /// none did.
    fn overtaken(&self, found: Option<&Progress>) -> Error {
        let Self {
            run_id, epoch, seq, ..
        } = self;
        let Some(found) = found else {
            return self.changed("somebody deleted it");
        };
        let text = if found.run_id != *run_id {
            newer_run(&found.run_id, found.epoch, run_id, *epoch)
        } else if found.epoch > *epoch {
            format!(
                "the run {run_id} resumed the stream again (epoch {} after {epoch}), and the older attempt cannot \
                 commit",
                found.epoch
            )
        } else {
            let (column, is, was) = match found.epoch == *epoch {
                true => ("seq", found.seq, *seq),
                false => ("epoch", found.epoch, *epoch),
            };
            return self.changed(&format!(
                "somebody set its {column} to {is}, which was {was} after the last commit"
            ));
        };
        let hint = match found.run_id == STATE {
            true => "run again: the next run resumes from the cursor that was set",
            false => "let one run of a pipeline end before another begins; the newer one continues",
        };
        Error::new(ErrorKind::Superseded, "run_superseded", text).hint(hint)
    }

    /// The error for a row that somebody edited during the run.
    fn changed(&self, how: &str) -> Error {
        let Self { key, run_id, .. } = self;
        let text = format!(
            "the row of the run {run_id} in {} changed during the run ({}): {how}",
            key.table,
            key.row()
        );
        Error::schema("checkpoint_changed", text).hint(
            "no run does that, and this run committed nothing after it; check the cursor with `rapidbyte state get \
             PIPELINE STREAM`, then run again",
        )
    }
}

/// The id of the run by which a verb of `state` moves a cursor.
const STATE: &str = "state";

/// The message of a run that a newer run has fenced.
fn newer_run(newer: &str, newer_epoch: u64, run: &str, epoch: u64) -> String {
    let epochs = format!("(epoch {newer_epoch} after {epoch})");
    match newer {
        STATE => format!(
            "`rapidbyte state` moved the cursor during the run {run} {epochs}, which cannot commit any more"
        ),
        _ => format!(
            "the newer run {newer} fenced the run {run} {epochs}, which cannot commit any more"
        ),
    }
}

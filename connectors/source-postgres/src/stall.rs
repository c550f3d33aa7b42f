//! A server that sends nothing: how long a read waits for it, and which session blocks it.

use std::time::Duration;

use rapidbyte_pg_client::{CancelToken, Client, Host};
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;

/// The time limit to ask what blocks the server. Without an answer by then, the error does not name it.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Of a statement that blocks us.
const SHOWN_CHARS: u32 = 200;

/// The state and the wait of the session `$PID`, and the sessions that block it: two texts in a row.
const KEPT_BY: &str = "\
SELECT COALESCE((SELECT pg_catalog.concat_ws(' ', s.state, s.wait_event_type, s.wait_event)
        FROM pg_catalog.pg_stat_activity s WHERE s.pid = $PID), ''),
    COALESCE((SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', 'process', b.pid,
            'of', a.usename, '(' || a.state || '):',
            pg_catalog.left(pg_catalog.regexp_replace(a.query, '\\s+', ' ', 'g'), $CHARS)), '; ')
        FROM (SELECT x.pid FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($PID)) AS x(pid)
              LIMIT 3) AS b
        LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid), '')";

/// Time without rows after which a read that shares its snapshot first asks whether a change blocks it. Each further
/// question comes after twice the time.
const FIRST_ASK: Duration = Duration::from_secs(5);

/// A server that sorts, or waits for a table below a view, does not even begin to answer.
pub(crate) const FIRST_ROWS: &str = "the first rows";

/// Whether a session waits for the run whose snapshot the transaction `$RUN` exported, and for which
/// relation: schema-qualified name and session, two texts in a row. Readers under a snapshot hold back
/// the same transactions as the session that exported it. Only this mode keeps readers off. The session
/// waits before `$PID`, or before whoever it may be.
const QUEUED: &str = "\
WITH run AS MATERIALIZED (
    SELECT s.pid FROM pg_catalog.pg_locks v
    JOIN pg_catalog.pg_stat_activity c ON c.pid = v.pid
    JOIN pg_catalog.pg_stat_activity s ON s.pid = c.pid
        OR s.datid = c.datid AND s.usesysid = c.usesysid AND s.backend_xmin = c.backend_xmin
            AND s.application_name = c.application_name
    WHERE v.locktype = 'virtualxid' AND v.virtualxid = '$RUN' AND v.granted
)
SELECT pg_catalog.format('%I.%I', n.nspname, r.relname),
    pg_catalog.concat_ws(' ', 'process', l.pid, 'of', a.usename, '(' || a.state || '):',
        pg_catalog.left(pg_catalog.regexp_replace(a.query, '\\s+', ' ', 'g'), $CHARS))
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_class r ON r.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE NOT l.granted AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
        WHERE d.datname = pg_catalog.current_database())
    AND EXISTS (SELECT FROM run WHERE run.pid = ANY (pg_catalog.pg_blocking_pids(l.pid)))
    AND ($PID IS NULL OR l.pid = ANY (pg_catalog.pg_blocking_pids($PID)))
ORDER BY a.xact_start LIMIT 1";

/// Whom a change keeps off that waits for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Somebody, or nobody any more.
    Run,
    /// This session, now.
    Session,
}

/// How to ask about a session over another connection.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    settings: Settled,
    token: CancelToken,
    host: Host,
    /// Nothing behind a pooler, which makes one up.
    process_id: Option<i32>,
}

impl Backend {
    pub fn of(client: &Client, settings: &Settled) -> Self {
        Self {
            settings: settings.clone(),
            token: client.cancel_token(),
            host: client.host().clone(),
            process_id: (!client.is_pgbouncer()).then(|| client.process_id()),
        }
    }

    /// The error of a client that waited in vain becomes ours; another one stays.
    pub fn explain(&self, error: Error, what: &str) -> Error {
        if error.code == "timeout" {
            self.stalled(what)
        } else {
            error
        }
    }

    /// `read_stalled`: the server was silent for the whole timeout. Asks it to stop.
    pub fn stalled(&self, what: &str) -> Error {
        let seconds = self.settings.read_timeout.as_secs();
        let mut text = format!("the server sent nothing for {seconds} s; waited for {what}");
        let mut is_blocked = false;
        if let Some((state, blockers)) = self.kept_by() {
            if !state.is_empty() {
                text += &format!("; it is {state}");
            }
            is_blocked = !blockers.is_empty();
            if is_blocked {
                text += &format!("; blocked by {blockers}");
            }
        }
        self.cancel();
        let hint = if is_blocked {
            "end that transaction (pg_terminate_backend), or raise read_timeout to wait for it"
        } else {
            "create an index on the cursor fields if the server sorts the rows first; or raise \
                 read_timeout in the source's config (0 for no limit)"
        };
        Error::new(ErrorKind::Transient, "read_stalled", text).hint(hint)
    }

    /// Nobody waits for the statement any more. Failing, it ends when it gets to us.
    fn cancel(&self) {
        let _ = self.token.cancel(&self.settings.connection, ASK_TIMEOUT);
    }

    /// The session's state and wait, and the sessions that block it; nothing when the server does not say.
    fn kept_by(&self) -> Option<(String, String)> {
        self.ask(&KEPT_BY.replace("$PID", &self.process_id?.to_string()))
    }

    /// `lock_queued`, if a change waits for the run whose snapshot the transaction `run` exported and keeps
    /// it off.
    pub fn queued(&self, run: &str, of: Of) -> Option<Error> {
        let pid = match of {
            Of::Run => "NULL::int".to_owned(),
            Of::Session => self.process_id?.to_string(),
        };
        let (relation, who) = self.ask(&QUEUED.replace("$RUN", run).replace("$PID", &pid))?;
        Some(lock_queued(&relation, &who))
    }

    /// The first row of two texts.
    fn ask(&self, sql: &str) -> Option<(String, String)> {
        let mut settings = self.settings.connection.clone();
        settings.hosts.retain(|host| *host == self.host);
        let mut client = Client::connect(&settings).ok()?;
        client.set_reply_timeout(ASK_TIMEOUT);
        let sql = sql.replace("$CHARS", &SHOWN_CHARS.to_string());
        let answer = client.simple_query(&sql).ok()?.pop()?;
        let row = answer.rows.first()?;
        let text = |column| Some(row.text(column).ok()??.to_owned());
        let found = (text(0)?, text(1)?);
        client.close();
        Some(found)
    }
}

/// How long the server has been silent since the request.
#[derive(Debug)]
pub(crate) struct Patience {
    backend: Backend,
    /// Nothing: for ever.
    limit: Option<Duration>,
    waited: Duration,
    /// The transaction that exported the snapshot, where others hold it too.
    run: Option<String>,
    /// When it is asked whether a change waits for them.
    ask_at: Duration,
}

impl Patience {
    pub fn new(backend: Backend, run: Option<String>) -> Self {
        let limit = backend.settings.read_timeout;
        Self {
            backend,
            limit: (!limit.is_zero()).then_some(limit),
            waited: Duration::ZERO,
            run,
            ask_at: FIRST_ASK,
        }
    }

    /// The longest that may be waited now.
    pub fn at_most(&self, wait: Duration) -> Duration {
        let until = |limit: Duration| limit.saturating_sub(self.waited);
        let wait = match &self.run {
            Some(_) => wait.min(until(self.ask_at)),
            None => wait,
        };
        self.limit.map_or(wait, |limit| wait.min(until(limit)))
    }

    /// As [`Backend::explain`].
    pub fn explain(&self, error: Error, what: &str) -> Error {
        self.backend.explain(error, what)
    }

    /// Something came.
    pub fn reset(&mut self) {
        self.waited = Duration::ZERO;
        self.ask_at = FIRST_ASK;
    }

    /// Nothing came for this long, of what is waited for. Errors: `lock_queued`, `read_stalled`.
    pub fn waited(&mut self, time: Duration, what: &str) -> Result<()> {
        self.waited += time;
        if let Some(run) = self.run.as_deref().filter(|_| self.waited >= self.ask_at) {
            self.ask_at *= 2;
            if let Some(queued) = self.backend.queued(run, Of::Session) {
                self.backend.cancel();
                return Err(queued);
            }
        }
        match self.limit {
            Some(limit) if self.waited >= limit => Err(self.backend.stalled(what)),
            _ => Ok(()),
        }
    }
}

/// Another session waits to change `relation`; `who` is that session, if the server names it.
pub(crate) fn lock_queued(relation: &str, who: &str) -> Error {
    let mut text = format!(
        "another session waits to change {relation} and is let in before this read, which it waits for"
    );
    if !who.is_empty() {
        text += &format!(": {who}");
    }
    Error::schema("lock_queued", text).hint(
        "run again: with the end of this run it goes on; LOCK, ALTER TABLE, TRUNCATE, VACUUM FULL \
         and the like are best kept away from tables that a run has still to read",
    )
}

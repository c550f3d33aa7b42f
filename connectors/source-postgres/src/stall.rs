//! A server that says nothing: how long it is waited for, and what keeps it.

use std::time::Duration;

use rapidbyte_pg_client::{CancelToken, Client, Host};
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;

/// For asking what keeps the server; the error is told without it otherwise.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Of a statement that blocks us.
const SHOWN_CHARS: u32 = 200;

/// What the session `$PID` waits for, and who stands in its way: two texts in a row.
const KEPT_BY: &str = "\
SELECT COALESCE((SELECT pg_catalog.concat_ws(' ', s.state, s.wait_event_type, s.wait_event)
        FROM pg_catalog.pg_stat_activity s WHERE s.pid = $PID), ''),
    COALESCE((SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', 'process', b.pid,
            'of', a.usename, '(' || a.state || '):',
            pg_catalog.left(pg_catalog.regexp_replace(a.query, '\\s+', ' ', 'g'), $CHARS)), '; ')
        FROM (SELECT x.pid FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($PID)) AS x(pid)
              LIMIT 3) AS b
        LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid), '')";

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

    /// `read_stalled`: the server said nothing for all the time that it has. Asks it to stop.
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
        // Nobody waits for it any more. Failing, it ends when it gets to us.
        let _ = self.token.cancel(&self.settings.connection, ASK_TIMEOUT);
        let hint = if is_blocked {
            "end that transaction (pg_terminate_backend), or raise read_timeout to wait for it"
        } else {
            "create an index on the cursor fields if the server sorts the rows first; or raise \
                 read_timeout in the source's config (0 for no limit)"
        };
        Error::new(ErrorKind::Transient, "read_stalled", text).hint(hint)
    }

    /// What the session waits for and who blocks it; nothing when the server does not say.
    fn kept_by(&self) -> Option<(String, String)> {
        let pid = self.process_id?.to_string();
        let mut settings = self.settings.connection.clone();
        settings.hosts.retain(|host| *host == self.host);
        let mut client = Client::connect(&settings).ok()?;
        client.set_reply_timeout(ASK_TIMEOUT);
        let sql = KEPT_BY
            .replace("$PID", &pid)
            .replace("$CHARS", &SHOWN_CHARS.to_string());
        let answer = client.simple_query(&sql).ok()?.pop()?;
        let row = answer.rows.first()?;
        let text = |column| Some(row.text(column).ok()??.to_owned());
        let found = (text(0)?, text(1)?);
        client.close();
        Some(found)
    }
}

/// How long the server has said nothing while it was asked.
#[derive(Debug)]
pub(crate) struct Patience {
    backend: Backend,
    /// Nothing: for ever.
    limit: Option<Duration>,
    waited: Duration,
}

impl Patience {
    pub fn new(backend: Backend) -> Self {
        let limit = backend.settings.read_timeout;
        Self {
            backend,
            limit: (!limit.is_zero()).then_some(limit),
            waited: Duration::ZERO,
        }
    }

    /// The longest that may be waited now.
    pub fn at_most(&self, wait: Duration) -> Duration {
        self.limit
            .map_or(wait, |limit| wait.min(limit.saturating_sub(self.waited)))
    }

    /// Something came.
    pub fn reset(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Nothing came for this long. Errors: `read_stalled`.
    pub fn waited(&mut self, time: Duration) -> Result<()> {
        self.waited += time;
        match self.limit {
            Some(limit) if self.waited >= limit => Err(self.backend.stalled("the next rows")),
            _ => Ok(()),
        }
    }
}

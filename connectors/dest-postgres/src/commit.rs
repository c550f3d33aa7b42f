//! The end of a commit: the checkpoint and COMMIT in one send, and what became of them when no
//! answer comes.

use std::time::Duration;

use rapidbyte_pg_client::{Client, TransactionStatus};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::differs;
use crate::config::Settings;
use crate::lease::{Fills, Lease};
use crate::lock::{self, Wait};
use crate::transaction::{self, OWN_PATH};

/// The longest wait to cancel a statement, or to ask what it waits for. The commit's own limit
/// applies if it is shorter.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// The error code of a commit that waits too long.
const STALLED: &str = "commit_stalled";
const ASKS: &str = "run again: the run asks the server first whether the commit happened";
/// The error code of `SELECT 1 / 0`.
pub(crate) const DIVIDED_BY_ZERO: &str = "pg_22012";

/// Moves the checkpoint and commits the transaction that is open, or one of its own. Gives the
/// connection back, or a new one. Errors: `run_superseded`; `commit_stalled`; `commit_unknown`;
/// what the server says.
pub(crate) fn commit(
    mut client: Client,
    settings: &Settings,
    lease: &mut Lease,
    commit: &Commit<'_>,
    fills: Fills,
) -> Result<Client> {
    failpoint("dest-postgres.checkpointing")?;
    let begin = match client.transaction_status() {
        TransactionStatus::Idle => transaction::begin(&client, settings),
        // For triggers that wait for the commit: where no row came, nobody has set it.
        _ => OWN_PATH.to_owned(),
    };
    let advance = lease.advance(&mut client, commit.cursor, commit.complete, fills);
    let sent = client.send(&format!("{begin}; {advance}; COMMIT"));
    failpoint("dest-postgres.commit_sent")?;
    let answered = sent.and_then(|()| committed(&mut client, settings));
    client.has_prepared(answered.is_ok());
    if let Err(error) = answered {
        if client.is_usable() {
            return Err(refused(&mut client, settings, lease, error));
        }
        client = settle(settings, lease, error)?;
    }
    lease.seq += 1;
    lease.origins = None;
    failpoint("dest-postgres.committed")?;
    Ok(client)
}

/// The same as [`answer`], of what ends with COMMIT: `not_committed` when the server says that it did
/// something else. The connection cannot be used then.
fn committed(client: &mut Client, settings: &Settings) -> Result<u64> {
    answer_by(client, settings, Client::receive_commit)
}

/// The server's answer to what was sent, or why it does not come: `commit_stalled`. Then the
/// connection is usable only if it is known that what was sent had no effect.
pub(crate) fn answer(client: &mut Client, settings: &Settings) -> Result<u64> {
    answer_by(client, settings, Client::receive)
}

fn answer_by(
    client: &mut Client,
    settings: &Settings,
    receive: fn(&mut Client) -> Result<u64>,
) -> Result<u64> {
    let limit = settings.commit_timeout.unwrap_or(Duration::MAX);
    while !client.is_answered(limit)? {
        let asked = stands_still(client, settings);
        let reason = match asked {
            Ok(None) => {
                log::warn(format!(
                    "the commit takes longer than {} s, and the server is still working on it",
                    limit.as_secs()
                ));
                continue;
            }
            Ok(Some(wait)) if wait.is_for_standby => wait.reason,
            Ok(Some(wait)) => match cancel(client, settings, receive) {
                Some(touched) => return Ok(touched),
                None => wait.reason,
            },
            Err(error) => format!("and the server does not answer: {}", error.message),
        };
        let text = format!(
            "the server did not answer the commit for {} s: {reason}",
            limit.as_secs()
        );
        return Err(Error::new(ErrorKind::Transient, STALLED, text)
            .hint("let the other session end, or raise commit_timeout"));
    }
    receive(client)
}

fn ask_timeout(settings: &Settings) -> Duration {
    let limit = settings.commit_timeout.unwrap_or(ASK_TIMEOUT);
    limit.min(ASK_TIMEOUT)
}

/// The reason why the session waits. `None` while it works.
fn stands_still(client: &Client, settings: &Settings) -> Result<Option<Wait>> {
    let mut other = Client::connect(&settings.server)?;
    other.set_reply_timeout(ask_timeout(settings));
    lock::waits_for(&mut other, client.process_id())
}

/// Cancels the statement, so that it blocks nobody. Returns the answer if it still came.
fn cancel(
    client: &mut Client,
    settings: &Settings,
    receive: fn(&mut Client) -> Result<u64>,
) -> Option<u64> {
    let patience = ask_timeout(settings);
    if let Err(error) = client.cancel_token().cancel(&settings.server, patience) {
        log::debug(format!(
            "the commit could not be cancelled: {}",
            error.message
        ));
        return None;
    }
    match client.is_answered(patience) {
        Ok(true) => receive(client).ok(),
        _ => None,
    }
}

/// The server refused, and has rolled back.
fn refused(client: &mut Client, settings: &Settings, lease: &Lease, error: Error) -> Error {
    let is_over = client.transaction_status() == TransactionStatus::Idle
        || client.execute("ROLLBACK").is_ok();
    // One with a place is of a trigger that waited for the commit.
    let error = match error.location {
        None => differs(lease.table(), error),
        Some(_) => error,
    };
    match (error.code.as_str(), is_over) {
        (DIVIDED_BY_ZERO, _) => refused_by_fence(client, settings, lease, error),
        (_, true) => lock::timed_out(client, error, lease.table()),
        (_, false) => error,
    }
}

/// The newer run that moved the epoch ends this session at any moment: then another one asks.
pub(crate) fn refused_by_fence(
    client: &mut Client,
    settings: &Settings,
    lease: &Lease,
    error: Error,
) -> Error {
    let reason = lease.refused(client, error);
    if reason.code != DIVIDED_BY_ZERO || client.is_usable() {
        return reason;
    }
    match Client::connect(&settings.server) {
        Ok(mut client) => {
            client.set_reply_timeout(ask_timeout(settings));
            lease.refused(&mut client, reason)
        }
        Err(_) => reason,
    }
}

/// Gives a connection if the commit happened, and `error` if it did not and never will.
/// `commit_unknown` where nobody can say.
fn settle(settings: &Settings, lease: &mut Lease, error: Error) -> Result<Client> {
    failpoint("dest-postgres.settling")?;
    let asked = Client::connect(&settings.server).and_then(|mut client| {
        let patience = match error.code == STALLED {
            true => ask_timeout(settings),
            false => settings.commit_timeout.unwrap_or(Duration::MAX),
        };
        client.set_reply_timeout(patience);
        let happened = lease.settle(&mut client, settings)?;
        Ok((client, happened))
    });
    failpoint("dest-postgres.settled")?;
    match asked {
        Ok((client, true)) => Ok(client),
        Ok((_, false)) => Err(error),
        Err(reason) if ["run_superseded", "checkpoint_changed"].contains(&reason.code.as_str()) => {
            Err(reason)
        }
        Err(reason) if error.code == STALLED => {
            let text = format!(
                "{}; its outcome is unknown: {}",
                error.message, reason.message
            );
            Err(Error::new(ErrorKind::Transient, STALLED, text).hint(ASKS))
        }
        Err(reason) => {
            let text = format!(
                "the server did not answer the commit, so its outcome is unknown: {}; {}",
                error.message, reason.message
            );
            Err(Error::new(ErrorKind::Connection, "commit_unknown", text).hint(ASKS))
        }
    }
}

/// `run_superseded` if a newer run has fenced this one, which may have ended the connection. `error`
/// if not, or if the server cannot be asked.
pub(crate) fn superseded(settings: &Settings, lease: &Lease, error: Error) -> Error {
    // A fenced session may fail with a transient error of the server, not only with a connection error.
    let may_be = matches!(error.kind, ErrorKind::Connection | ErrorKind::Transient);
    if !may_be || error.code == "commit_unknown" {
        return error;
    }
    match Client::connect(&settings.server) {
        Ok(mut client) => {
            client.set_reply_timeout(ask_timeout(settings));
            lease.refused(&mut client, error)
        }
        Err(_) => error,
    }
}

//! A server that does not answer while rows are written: the error, with the reason of the wait.

use std::time::Duration;

use rapidbyte_pg_client::{CancelToken, Client};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::lock;

/// The longest wait for the reason; after it, the error says that the server does not answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// `write_stalled` for the error of a session that waited in vain; another error stays. The rows are
/// not visible: the statement is cancelled, the session is left, and the server rolls back.
pub(crate) fn explain(
    settings: &Settings,
    session: &CancelToken,
    error: Error,
    what: &str,
) -> Error {
    if error.code != "timeout" {
        return error;
    }
    let seconds = settings.write_timeout.as_secs();
    let asked = ask(settings, session.process_id());
    let is_there = asked.is_ok();
    let reason = match asked {
        Ok(Some(reason)) => reason,
        Ok(None) => "it is still working on it".into(),
        Err(error) => format!("and it does not answer: {}", error.message),
    };
    // A server that notices that we are gone does so only between two steps of its work: one check of a value may take hours.
    if is_there && let Err(error) = session.cancel(&settings.server, ASK_TIMEOUT) {
        log::debug(format!(
            "the statement could not be cancelled: {}",
            error.message
        ));
    }
    let text = format!(
        "the server neither sent nor accepted anything for {seconds} s while \
         {what}: {reason}"
    );
    Error::new(ErrorKind::Transient, "write_stalled", text).hint(
        "let the other session end, check the network, or raise write_timeout; nothing of this \
             load is visible",
    )
}

fn ask(settings: &Settings, process_id: i32) -> Result<Option<String>> {
    let mut client = Client::connect(&settings.server)?;
    client.set_reply_timeout(ASK_TIMEOUT);
    let wait = lock::waits_for(&mut client, process_id)?;
    client.close();
    Ok(wait.map(|wait| wait.reason))
}

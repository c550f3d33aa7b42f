//! A server that does not answer while rows are written: the error, with the reason of the wait.

use std::time::Duration;

use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

use crate::config::Settings;
use crate::lock;

/// The longest wait for the reason; after it, the error says that the server does not answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// `write_stalled` for the error of a session that waited in vain; another error stays. The rows are
/// not visible: the session is left, and the server rolls back.
pub(crate) fn explain(settings: &Settings, process_id: i32, error: Error, what: &str) -> Error {
    if error.code != "timeout" {
        return error;
    }
    let seconds = settings.write_timeout.as_secs();
    let reason = match ask(settings, process_id) {
        Ok(Some(reason)) => reason,
        Ok(None) => "it is still working on it".into(),
        Err(error) => format!("and it does not answer: {}", error.message),
    };
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

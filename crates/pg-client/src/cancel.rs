//! Asks a server to stop what a session is doing, over a connection of its own.

use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rapidbyte_sdk::Result;
use rapidbyte_sdk::connection::Connection;

use crate::client::Client;
use crate::config::{Host, Settings};
use crate::connect::secure;
use crate::wire::{Deadline, is_timeout};

/// The host and the keys with which this session's statement can be cancelled.
#[derive(Clone)]
pub struct CancelToken {
    host: Host,
    process_id: i32,
    secret_key: i32,
}

impl Client {
    /// The token with which [`CancelToken::cancel`] stops this session's statement from elsewhere.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken {
            host: self.host.clone(),
            process_id: self.process_id,
            secret_key: self.secret_key,
        }
    }
}

impl CancelToken {
    /// The server's process of the session.
    pub fn process_id(&self) -> i32 {
        self.process_id
    }

    /// Asks the server; the statement then fails with `pg_57014`, unless it had ended. The server
    /// does not say whether it cancelled a statement. Errors: the errors of connecting.
    pub fn cancel(&self, settings: &Settings, timeout: Duration) -> Result<()> {
        let deadline = Deadline::after(timeout);
        let (connection, _) = secure(&self.host, settings, settings.sslmode, deadline)?;
        let mut request = BytesMut::new();
        frontend::cancel_request(self.process_id, self.secret_key, &mut request);
        connection.write(&request, deadline.left())?;
        wait_for_the_end(&connection, deadline)
    }
}

/// The server closes the connection when it has passed the request on.
fn wait_for_the_end(connection: &Connection, deadline: Deadline) -> Result<()> {
    match connection.read(1, deadline.left()) {
        Err(error) if is_timeout(&error) => Err(error),
        // However it closes, it is done.
        Ok(_) | Err(_) => Ok(()),
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelToken")
            .field("host", &self.host)
            .field("process_id", &self.process_id)
            .finish_non_exhaustive()
    }
}

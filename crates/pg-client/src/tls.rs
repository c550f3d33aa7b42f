//! TLS is the host's: this is the one place that asks for it.

use std::time::Duration;

use rapidbyte_sdk::connection::Connection;
use rapidbyte_sdk::{Error, Result};

/// Whether TLS can be had at all; a connector that is built natively has none.
pub(crate) const AVAILABLE: bool = false;

/// Begins TLS and gives the hash of the server's certificate for channel binding
/// (`tls-server-end-point`, RFC 5929), empty when its algorithm names none.
pub(crate) fn start(
    _connection: &Connection,
    _server_name: &str,
    _timeout: Duration,
) -> Result<Vec<u8>> {
    let text = "a connector that is built natively has no TLS";
    Err(Error::config("tls_unavailable", text)
        .hint("run the connector as a component, or set sslmode=disable"))
}

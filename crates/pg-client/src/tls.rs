//! TLS is the host's: this is the one place that asks for it.

use std::time::Duration;

use rapidbyte_sdk::Result;
use rapidbyte_sdk::connection::Connection;

/// Whether TLS can be had at all; a connector that is built natively has none.
pub(crate) const AVAILABLE: bool = cfg!(target_family = "wasm");

/// Begins TLS and gives the hash of the server's certificate for channel binding
/// (`tls-server-end-point`, RFC 5929), empty when its algorithm names none.
pub(crate) fn start(
    connection: &Connection,
    server_name: &str,
    timeout: Duration,
) -> Result<Vec<u8>> {
    Ok(connection.start_tls(server_name, timeout)?.end_point)
}

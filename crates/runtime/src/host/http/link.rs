//! Connections that are used again: a page of a list is rarely the only one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::time::timeout;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::WasiBody;

use crate::host::connection::Place;

/// Connections that are kept without a request.
const MAX_IDLE: usize = 4;
/// How long a connection whose last answer has ended may need to be ready for the next request.
const READY: Duration = Duration::from_millis(100);

/// An open connection. Dropped, it is closed.
pub(super) struct Link {
    pub sender: SendRequest<WasiBody>,
    /// Moves its bytes.
    pub _driver: AbortOnDropJoinHandle<()>,
    pub _place: Place,
    /// `host:port`, and whether it is secure.
    pub key: (String, bool),
}

/// The connections of one instance that wait for a request.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<Link>>>);

impl Idle {
    /// A connection to a server that can take a request now.
    pub async fn take(&self, key: &(String, bool)) -> Option<Link> {
        loop {
            let mut link = {
                let mut links = self.links();
                let at = links.iter().position(|link| link.key == *key)?;
                links.swap_remove(at)
            };
            // The server may have closed it.
            if let Ok(Ok(())) = timeout(READY, link.sender.ready()).await {
                return Some(link);
            }
        }
    }

    /// Keeps a connection whose answer has ended; the oldest goes for it.
    pub fn give_back(&self, link: Link) {
        let mut links = self.links();
        if links.len() == MAX_IDLE {
            links.remove(0);
        }
        links.push(link);
    }

    /// Closes all.
    pub fn clear(&self) {
        self.links().clear();
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! `wasi:http`: requests to granted servers, so that `fetch`, the usual clients of Python and plain
//! Rust ones work.
//!
//! The interface, its resources and the framing of HTTP/1.1 are `wasmtime-wasi-http`'s and hyper's.
//! The decisions are here. The server of each request must be granted (`host:port` of the URL). Its name
//! is resolved once, and each address is checked ([`super::dial`]). The host does TLS and checks the
//! certificate. Waiting obeys the stage's limits, and ends when the run is cancelled.
//!
//! A redirect is an answer like any other: the guest follows it with another request. A connection whose
//! answer has ended is kept for the next request to the same server. A refused request gives
//! `internal-error` with the text `code: message`, and a hint on the next line.
//!
//! For each request the host holds at most twice [`MAX_HEAD_BYTES`] of incoming and twice
//! [`OUTGOING_CHUNK_BYTES`] of outgoing bytes. Requests count as connections
//! ([`crate::Limits::connections`]). Headers of the guest are at most [`MAX_FIELDS_BYTES`] for each
//! of at most [`MAX_HANDLES`] handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http::uri::Scheme;
use http::{Method, Request, Response};
use tokio::sync::watch;
use wasmtime::component::Linker;
use wasmtime_wasi_http::{
    Error as HttpError, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
    WasiHttpView,
};

use crate::bindings::types::{Error, ErrorKind};
use crate::grants::tls::Policy;
use crate::host::connection::Place;
use crate::host::tls;
use crate::state::State;
use crate::{Grants, Lookups, Registration, Sandbox};

mod exchange;
mod handle;
mod link;
#[cfg(test)]
mod tests;
mod wait;

use exchange::{Exchange, Times};
use link::Idle;

/// Bytes of an answer's head, and of its body that are read ahead; hyper looks at it between two reads,
/// so that it may be twice as much.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Bytes of a request's body that a guest hands over at a time.
const OUTGOING_CHUNK_BYTES: usize = 64 << 10;
/// Bytes of one set of headers that a guest makes.
const MAX_FIELDS_BYTES: usize = 32 << 10;
/// Resources of an instance at a time: files, connections, headers, streams.
pub const MAX_HANDLES: usize = 4096;
/// Time to connect if the guest names none, TLS included.
const CONNECT: Duration = Duration::from_secs(60);
/// Time until an answer begins, and between two pieces of it, if the guest names none.
const ANSWER: Duration = Duration::from_secs(600);

/// HTTP of one instance.
pub struct Http {
    context: WasiHttpCtx,
    requests: Requests,
}

/// Decides about requests and makes them.
struct Requests {
    connector: String,
    grants: Arc<Grants>,
    /// Connections that are open or being opened, and how many may be.
    taken: Arc<AtomicU32>,
    limit: u32,
    lookups: Lookups,
    stall: Duration,
    /// True once the run is cancelled.
    cancelled: watch::Receiver<bool>,
    /// Bytes came since the last check.
    moved: Arc<AtomicBool>,
    /// The server of the last request.
    peer: Option<String>,
    idle: Idle,
    _cancel: Registration,
}

/// A server and how it is spoken to.
struct Target {
    host: String,
    port: u16,
    /// `host:port`, for messages.
    peer: String,
    /// Absent: plaintext.
    tls: Option<(Policy, Arc<rustls::ClientConfig>)>,
}

impl Http {
    /// `taken` counts the instance's connections.
    pub fn new(connector: &str, sandbox: &Sandbox, taken: Arc<AtomicU32>) -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(MAX_FIELDS_BYTES);
        let (cancel, cancelled) = watch::channel(false);
        let requests = Requests {
            connector: connector.to_owned(),
            grants: Arc::clone(&sandbox.grants),
            taken,
            limit: sandbox.limits.connections,
            lookups: sandbox.limits.lookups.clone(),
            stall: sandbox.limits.stall,
            cancelled,
            moved: Arc::default(),
            peer: None,
            idle: Idle::default(),
            _cancel: sandbox.cancel.on_cancel(move || {
                // Without a request, nobody receives this.
                let _ = cancel.send_replace(true);
            }),
        };
        Self { context, requests }
    }

    /// True if bytes came since the last call.
    fn has_moved(&self) -> bool {
        self.requests.moved.swap(false, Ordering::AcqRel)
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.http.requests,
            table: &mut self.table,
            ctx: &mut self.http.context,
        }
    }
}

type Sent = Result<(Response<WasiBody>, Ending), HttpError>;
type Ending = Box<dyn Future<Output = Result<(), HttpError>> + Send>;

impl WasiHttpHooks for Requests {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _sent: Ending,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let exchange = self.prepare(&request, options.unwrap_or_default());
        Box::new(async move { exchange.map_err(said)?.run(request).await })
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        1
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        OUTGOING_CHUNK_BYTES
    }
}

impl Requests {
    fn prepare(
        &mut self,
        request: &Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<Exchange, Error> {
        let target = target(&self.connector, &self.grants, request)?;
        let place = Place::take(&self.taken, self.limit).or_else(|| {
            // Those that wait for a request make room.
            self.idle.clear();
            Place::take(&self.taken, self.limit)
        });
        let Some(place) = place else {
            let text = format!("more than {} open connections", self.limit);
            return Err(
                Error::new(ErrorKind::Internal, "too_many_connections", text)
                    .hint("read a response to its end, or drop it, before the next request"),
            );
        };
        self.peer = Some(target.peer.clone());
        // Longer than nothing may move, nobody waits.
        let time = |asked: Option<Duration>, usual: Duration| {
            asked
                .unwrap_or(usual)
                .min(self.stall)
                .max(Duration::from_millis(1))
        };
        Ok(Exchange {
            target,
            place: Some(place),
            grants: Arc::clone(&self.grants),
            lookups: self.lookups.clone(),
            times: Times {
                connect: time(options.connect_timeout, CONNECT),
                first_byte: time(options.first_byte_timeout, ANSWER),
                between_bytes: time(options.between_bytes_timeout, ANSWER),
            },
            cancelled: self.cancelled.clone(),
            moved: Arc::clone(&self.moved),
            idle: self.idle.clone(),
        })
    }
}

/// The server of a request, if it is granted.
fn target(connector: &str, grants: &Grants, request: &Request<WasiBody>) -> Result<Target, Error> {
    let uri = request.uri();
    let invalid = |what: &str| Error::new(ErrorKind::Internal, "http_invalid_request", what);
    let secure = uri.scheme() == Some(&Scheme::HTTPS);
    let authority = uri
        .authority()
        .ok_or_else(|| invalid("the URL does not have a host"))?;
    if authority.as_str().contains('@') {
        return Err(invalid("the URL contains a user and password")
            .hint("send them as a header: authorization: Basic …"));
    }
    if request.method() == Method::CONNECT {
        return Err(invalid("CONNECT makes a tunnel, which is not granted"));
    }
    let host = authority.host();
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host).to_ascii_lowercase();
    let port = match (authority.port_u16(), authority.as_str().rsplit_once(':')) {
        (Some(port), _) => port,
        (None, Some((_, port))) if !port.contains(']') && !port.is_empty() => {
            return Err(invalid("the URL's port is none"));
        }
        (None, _) if secure => 443,
        (None, _) => 80,
    };
    let shown = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let Some(settings) = grants.tls(&host, port) else {
        let text = format!("{shown} is not granted to {connector}");
        return Err(
            Error::new(ErrorKind::Config, "network_not_granted", text).hint(format!(
                "name the host in the configuration, or add permissions: {{ network: \
                 [\"{shown}\"] }}"
            )),
        );
    };
    let tls = if secure {
        let policy = settings.https()?;
        if policy.mode == crate::grants::tls::Mode::Disable {
            return Err(tls::explain::disabled(&shown));
        }
        let mut config = tls::client_config(&policy, grants)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some((policy, Arc::new(config)))
    } else if settings.policy()?.requires_tls() {
        let text = format!("{shown} is asked in plaintext, and TLS is required");
        return Err(
            Error::new(ErrorKind::Auth, "tls_required", text).hint("use https:// for this server")
        );
    } else {
        None
    };
    Ok(Target {
        host,
        port,
        peer: shown,
        tls,
    })
}

/// The error for the guest: only `internal-error` carries a text.
fn said(error: Error) -> HttpError {
    let hint = error.hint.map(|hint| format!("\n{hint}"));
    let text = format!(
        "{}: {}{}",
        error.code,
        error.message,
        hint.unwrap_or_default()
    );
    HttpError::InternalError(Some(text))
}

/// Adds the interfaces to a linker that has the standard set.
pub fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_sync(linker)?;
    handle::add_to_linker(linker)?;
    wait::add_to_linker(linker)
}

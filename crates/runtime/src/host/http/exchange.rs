//! One request and its answer.

use std::net::TcpStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{Sleep, timeout};
use tokio_rustls::TlsConnector;
use wasmtime_wasi::runtime::spawn;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error as HttpError, WasiBody};

use super::link::{Idle, Link};
use super::{MAX_HEAD_BYTES, Sent, Target, said};
use crate::bindings::types::{Error, ErrorKind};
use crate::host::connection::Place;
use crate::host::dial;
use crate::host::tls::Broken;
use crate::{Grants, Lookups};

/// How long what is waited for.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub connect: Duration,
    pub first_byte: Duration,
    pub between_bytes: Duration,
}

/// A request that may be made.
pub(super) struct Exchange {
    pub target: Target,
    /// Until there is a connection.
    pub place: Option<Place>,
    pub grants: Arc<Grants>,
    pub lookups: Lookups,
    pub times: Times,
    pub cancelled: watch::Receiver<bool>,
    pub moved: Arc<AtomicBool>,
    pub idle: Idle,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Exchange {
    /// Gives the answer when its head is there; its body is read from the connection as the guest
    /// asks for it.
    pub async fn run(self, request: Request<WasiBody>) -> Sent {
        let mut cancelled = self.cancelled.clone();
        let work = self.ask(request);
        match until(stopped(&mut cancelled), work).await {
            Some(sent) => sent.map_err(said),
            None => Err(said(cancelled_error())),
        }
    }

    async fn ask(
        mut self,
        mut request: Request<WasiBody>,
    ) -> Result<(Response<WasiBody>, super::Ending), Error> {
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str()).to_owned();
        *request.uri_mut() = Uri::try_from(path)
            .map_err(|error| Error::new(ErrorKind::Internal, "http_invalid_request", error))?;
        let key = (self.target.peer.clone(), self.target.tls.is_some());
        let kept = self.idle.take(&key).await;
        let (answer, link) = match kept {
            None => self.ask_anew(request, key).await?,
            Some(mut link) => {
                let spare = again(&request);
                match (self.send(&mut link, request).await, spare) {
                    (Ok(Ok(answer)), _) => (answer, link),
                    // It was closed before the request went out, or before it was answered.
                    (Ok(Err(request)), _) => self.ask_anew(request, key).await?,
                    (Err(error), Some(request)) if error.code == "connection_lost" => {
                        self.ask_anew(request, key).await?
                    }
                    (Err(error), _) => return Err(error),
                }
            }
        };
        let answer = answer.map(|incoming| self.received(incoming, link).boxed_unsync());
        Ok((answer, Box::new(async { Ok(()) })))
    }

    /// Over a connection of its own.
    async fn ask_anew(
        &mut self,
        request: Request<WasiBody>,
        key: (String, bool),
    ) -> Result<(Response<Incoming>, Link), Error> {
        let mut link = self.open(key).await?;
        match self.send(&mut link, request).await? {
            Ok(answer) => Ok((answer, link)),
            Err(_) => {
                let text = format!("{}: closed before the request was sent", self.target.peer);
                Err(Error::new(ErrorKind::Connection, "connection_lost", text))
            }
        }
    }

    async fn open(&mut self, key: (String, bool)) -> Result<Link, Error> {
        let peer = &self.target.peer;
        let time = self.times.connect;
        let deadline = Instant::now() + time;
        let place = self.place.take();
        let place = place.ok_or_else(|| Error::new(ErrorKind::Internal, "connect_failed", peer))?;
        let grants = Arc::clone(&self.grants);
        let (stream, place) = connect(&self.target, place, grants, &self.lookups, time).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let stream = match timeout(left, secure(&self.target, stream)).await {
            Ok(stream) => stream?,
            Err(_) => return Err(late(peer, "the TLS handshake did not start", time)),
        };
        self.moved.store(true, Ordering::Release);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(peer, &error))?;
        // The request or the answer's body reports its errors.
        let driver = spawn(async move {
            let _ = connection.await;
        });
        Ok(Link {
            sender,
            _driver: driver,
            _place: place,
            key,
        })
    }

    /// The answer, or the request where nothing of it was sent.
    async fn send(
        &self,
        link: &mut Link,
        request: Request<WasiBody>,
    ) -> Result<Result<Response<Incoming>, Request<WasiBody>>, Error> {
        let (peer, time) = (&self.target.peer, self.times.first_byte);
        let answer = match timeout(time, link.sender.try_send_request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(mut failed)) => match failed.take_message() {
                Some(request) => return Ok(Err(request)),
                None => return Err(broken(peer, failed.error())),
            },
            Err(_) => return Err(late(peer, "no response", time)),
        };
        self.moved.store(true, Ordering::Release);
        Ok(Ok(answer))
    }

    fn received(self, incoming: Incoming, link: Link) -> Received {
        let mut cancelled = self.cancelled;
        let between = self.times.between_bytes;
        let mut received = Received {
            incoming,
            peer: self.target.peer,
            between,
            pause: Box::pin(tokio::time::sleep(between)),
            cancelled: Box::pin(async move { stopped(&mut cancelled).await }),
            moved: self.moved,
            link: Some(link),
            idle: self.idle,
        };
        received.give_back_at_end();
        received
    }
}

/// A request that does no harm twice, once more: RFC 9110, 9.2.2.
fn again(request: &Request<WasiBody>) -> Option<Request<WasiBody>> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_safe || !request.body().is_end_stream() {
        return None;
    }
    let body = Empty::new().map_err(|never| match never {});
    let mut copy = Request::new(body.boxed_unsync());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Looking a name up cannot be interrupted, so that it has a thread of its own, which ends by
/// itself and keeps its place until then.
async fn connect(
    target: &Target,
    place: Place,
    grants: Arc<Grants>,
    lookups: &Lookups,
    time: Duration,
) -> Result<(TcpStream, Place), Error> {
    let (sender, connected) = oneshot::channel();
    let (host, port) = (target.host.clone(), target.port);
    let deadline = Instant::now() + time;
    let lookup = lookups.take();
    let lookup = lookup.ok_or_else(|| dial::Refused::too_many(&target.host, target.port))?;
    std::thread::Builder::new()
        .name("connect".into())
        .spawn(move || {
            let _until_then = lookup;
            let connected = dial::connect(&host, port, &grants, dial::resolve, deadline);
            // Nobody listens any more when the request was given up.
            let _ = sender.send(connected.map(|stream| (stream, place)));
        })
        .map_err(|error| Error::new(ErrorKind::Internal, "connect_failed", error))?;
    let refused = match timeout(time, connected).await {
        Ok(Ok(Ok(connected))) => return Ok(connected),
        Ok(Ok(Err(refused))) => refused,
        Ok(Err(_)) | Err(_) => {
            dial::Refused::late(u32::try_from(time.as_millis()).unwrap_or(u32::MAX))
        }
    };
    Err(refused.explain(&target.host, target.port))
}

async fn secure(target: &Target, stream: TcpStream) -> Result<Box<dyn Stream>, Error> {
    let lost = |error| Error::new(ErrorKind::Connection, "connect_failed", error);
    let stream = tokio::net::TcpStream::from_std(stream).map_err(lost)?;
    let Some((policy, config)) = &target.tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(target.host.clone()).map_err(|_| {
        let text = format!(
            "`{}` is not a name that a certificate can have",
            target.host
        );
        Error::new(ErrorKind::Config, "tls_handshake", text)
    })?;
    match TlsConnector::from(Arc::clone(config))
        .connect(name, stream)
        .await
    {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => {
            let said = error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>());
            let broken = match said {
                Some(said) => Broken::Tls(said.clone()),
                None if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    Broken::ClosedInHandshake
                }
                None => Broken::Io(error),
            };
            Err(broken.explain(&target.peer, policy))
        }
    }
}

/// The body of an answer.
struct Received {
    incoming: Incoming,
    peer: String,
    between: Duration,
    /// Ends when nothing came for `between`.
    pause: Pin<Box<Sleep>>,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    moved: Arc<AtomicBool>,
    /// Until the body has ended; a body that is given up closes it.
    link: Option<Link>,
    idle: Idle,
}

impl Received {
    fn give_back_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(link) = self.link.take()
        {
            self.idle.give_back(link);
        }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                self.moved.store(true, Ordering::Release);
                let until = tokio::time::Instant::now() + self.between;
                self.pause.as_mut().reset(until);
                match &frame {
                    // A broken connection is not kept.
                    Some(Err(_)) => self.link = None,
                    _ => self.give_back_at_end(),
                }
                let frame = frame.map(|f| f.map_err(|e| said(broken(&self.peer, &e))));
                Poll::Ready(frame)
            }
            Poll::Pending if self.cancelled.as_mut().poll(context).is_ready() => {
                Poll::Ready(Some(Err(said(cancelled_error()))))
            }
            Poll::Pending => {
                ready!(self.pause.as_mut().poll(context));
                let error = late(
                    &self.peer,
                    "the rest of the response did not arrive",
                    self.between,
                );
                Poll::Ready(Some(Err(said(error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Waits for the end of the run.
async fn stopped(cancelled: &mut watch::Receiver<bool>) {
    // An error means that the instance is gone.
    let _ = cancelled.wait_for(|is| *is).await;
}

/// The result of `work`, if it ends before `stop`.
pub(super) async fn until<T>(
    stop: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => stop.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// The guest never sees it: the host stops the guest before it continues.
fn cancelled_error() -> Error {
    Error::new(ErrorKind::Transient, "cancelled", "the run was cancelled")
}

fn late(peer: &str, what: &str, time: Duration) -> Error {
    let text = format!("{peer}: {what} within {} ms", time.as_millis());
    Error::new(ErrorKind::Transient, "timeout", text)
}

/// The error that hyper reported.
fn broken(peer: &str, error: &hyper::Error) -> Error {
    let mut text = format!("{peer}: {error}");
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    if error.is_parse_too_large() {
        let kib = MAX_HEAD_BYTES >> 10;
        let text = format!("{peer}: the head of the response exceeds {kib} KiB or 100 headers");
        Error::new(ErrorKind::Data, "http_head_too_large", text)
    } else if error.is_parse() {
        Error::new(ErrorKind::Connection, "http_protocol", text)
            .hint("check host and port: the program there is not a valid HTTP/1.1 server")
    } else {
        Error::new(ErrorKind::Connection, "connection_lost", text)
    }
}

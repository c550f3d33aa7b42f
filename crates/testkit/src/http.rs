//! A real HTTP/1.1 server on a port of this machine, that answers as a test says: well, slowly,
//! brokenly or for ever, with TLS or without.
//!
//! One connection is one request, unless the test's answer says otherwise; each has a thread. All
//! requests are remembered. A connection that nobody ends is ended after 30 seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

mod reply;
#[cfg(test)]
mod tests;

pub use reply::Reply;

/// Bytes of a request's head and of its body.
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// A connection on which nothing moves is ended.
const QUIET: Duration = Duration::from_secs(30);

/// A client's request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// The path without the query, as it was sent.
    pub path: String,
    /// The query's parameters in order, decoded.
    pub query: Vec<(String, String)>,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As the header `content-length` or its chunks say.
    pub body: Vec<u8>,
}

impl Request {
    /// The first value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        value_of(&self.query, name)
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        value_of(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = pairs.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

/// The server; dropped, it accepts nobody any more.
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    seen: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Serving {
    tls: Option<Arc<ServerConfig>>,
    answer: Box<Answer>,
    seen: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    /// Answers every request by `answer`, without TLS.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve(None, Box::new(answer))
    }

    /// The same with TLS, by a certificate with its key, both as PEM.
    ///
    /// # Panics
    /// If they are none, or no port can be had.
    pub fn start_tls(
        (certificate, key): &(String, String),
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.expect("a certificate")],
                key.expect("a key"),
            )
            .expect("a certificate and its key");
        Self::serve(Some(Arc::new(config)), Box::new(answer))
    }

    fn serve(tls: Option<Arc<ServerConfig>>, answer: Box<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (seen, ended) = (Arc::default(), Arc::<AtomicBool>::default());
        let serving = Arc::new(Serving {
            tls,
            answer,
            seen: Arc::clone(&seen),
            ended: Arc::clone(&ended),
        });
        let thread = std::thread::spawn(move || serving.accept(&listener));
        Self {
            address,
            scheme,
            seen,
            ended,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:<port>` and the path, or with TLS `https://localhost:<port>`.
    pub fn url(&self, path: &str) -> String {
        let host = match self.scheme {
            "https" => "localhost",
            _ => "127.0.0.1",
        };
        format!("{}://{host}:{}{path}", self.scheme, self.port())
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.seen).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

trait Channel: Read + Write {}
impl<T: Read + Write> Channel for T {}

impl Serving {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            let serving = Arc::clone(self);
            std::thread::spawn(move || {
                // A client that goes away is what some tests are about.
                let _ = serving.answer(stream);
            });
        }
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(QUIET))?;
        stream.set_write_timeout(Some(QUIET))?;
        stream.set_nodelay(true)?;
        let mut channel: Box<dyn Channel> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config));
                let session = session.map_err(std::io::Error::other)?;
                Box::new(StreamOwned::new(session, stream))
            }
        };
        let mut reader = BufReader::new(channel.as_mut());
        let Some(request) = read(&mut reader)? else {
            return Ok(());
        };
        drop(reader);
        lock(&self.seen).push(request.clone());
        (self.answer)(&request).send(channel.as_mut())
    }
}

/// One request; none when the client says nothing.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut head = reader.by_ref().take(MAX_REQUEST_BYTES);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: method.into(),
        path: path.into(),
        query: pairs(query),
        ..Request::default()
    };
    loop {
        let mut line = String::new();
        head.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let pair = (name.to_ascii_lowercase(), value.trim().to_owned());
        request.headers.push(pair);
    }
    let length = request.header("content-length");
    let length: u64 = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = reader.take(length.min(MAX_REQUEST_BYTES));
    body.read_to_end(&mut request.body)?;
    Ok(Some(request))
}

/// The parameters of a query or a form.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_encoding::percent_decode_str(&text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

//! HTTP through the host: a small blocking client over `wasi:http`.
//!
//! The host looks a name up, checks the grant, does TLS and bounds the memory that it holds. The
//! configuration must name the server in a key that is marked `"x-grant" = "url"` (or `"host"` and
//! `"port"`), or the pipeline must list it under `permissions.network`. This side builds the request,
//! follows redirects, turns a status into an error and bounds the body.
//!
//! ```no_run
//! use rapidbyte_sdk::http::{Request, Url};
//!
//! # fn main() -> rapidbyte_sdk::Result<()> {
//! let url = Url::parse("https://api.example.com/v1/orders")?.with_query([("page", "1")])?;
//! let request = Request::get(url).secret_header("authorization", "Bearer …");
//! let body = request.send()?.expect_success()?.body(16 << 20)?;
//! # Ok(()) }
//! ```
//!
//! Natively, as in unit tests, a request goes to any server without TLS; one to `https://` answers
//! `no_http`.

#[cfg(not(target_family = "wasm"))]
mod native;
mod redirect;
mod retry;
mod status;
mod url;
#[cfg(target_family = "wasm")]
mod wasi;

use std::fmt;
use std::time::Duration;

use crate::{Error, Result};

pub use retry::Retry;
pub use status::retry_after_ms;
pub use url::{Url, encode_component};

#[cfg(not(target_family = "wasm"))]
use native as system;
#[cfg(target_family = "wasm")]
use wasi as system;

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Sends a body.
    Post,
    /// Puts a body into the place of a document.
    Put,
    /// Deletes a document.
    Delete,
}

impl Method {
    /// As a request writes it.
    #[cfg_attr(
        target_family = "wasm",
        expect(dead_code, reason = "the host writes it")
    )]
    fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }
}

/// A request. Headers that carry a secret are not shown by `Debug`.
#[derive(Clone)]
pub struct Request {
    method: Method,
    url: Url,
    headers: Vec<Header>,
    body: Vec<u8>,
    timeout: Duration,
    retry: Retry,
}

#[derive(Clone)]
struct Header {
    name: String,
    value: String,
    is_secret: bool,
}

/// The default timeout: until an answer begins, and between two pieces of it.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Request {
    fn new(method: Method, url: Url, body: Vec<u8>) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            body,
            timeout: TIMEOUT,
            retry: match method {
                Method::Get => Retry::default(),
                Method::Post | Method::Put | Method::Delete => Retry::NEVER,
            },
        }
    }

    /// Asks for the document at `url`.
    pub fn get(url: Url) -> Self {
        Self::new(Method::Get, url, Vec::new())
    }

    /// Sends `body` to `url`; its kind is the header `content-type`.
    pub fn post(url: Url, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Method::Post, url, body.into())
    }

    /// Puts `body` into the place of the document at `url`; its kind is the header `content-type`.
    pub fn put(url: Url, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Method::Put, url, body.into())
    }

    /// Deletes the document at `url`.
    pub fn delete(url: Url) -> Self {
        Self::new(Method::Delete, url, Vec::new())
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(Header {
            name: name.into().to_ascii_lowercase(),
            value: value.into(),
            is_secret: false,
        });
        self
    }

    /// Adds a header that is sent to this server alone, not to one that it redirects to.
    #[must_use]
    pub fn secret_header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let mut request = self.header(name, value);
        if let Some(header) = request.headers.last_mut() {
            header.is_secret = true;
        }
        request
    }

    /// Waits this long for the beginning of an answer, and for each further piece.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Retries it so; without this a GET is retried by [`Retry::default`], and another request, which the
    /// server may have carried out already, is not.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Where it goes.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Makes the request and gives the answer, whatever its status, when its head is there. The
    /// statuses 429, 502, 503 and 504, and failures before an answer, are retried first ([`Retry`]);
    /// the last answer is given as it is.
    /// Redirects are followed: at most 5, never from https to http; to another server without
    /// secret headers, `authorization` and `cookie`, and never with a body. Each server must be
    /// granted.
    ///
    /// # Errors
    /// `network_not_granted`, `address_not_granted`, `http_redirect` (config); `connect_failed`,
    /// `connection_lost`, `http_protocol`, `tls_…` (connection, auth); `timeout` (transient);
    /// `http_head_too_large` (data); `http_invalid_request` (internal).
    pub fn send(&self) -> Result<Response> {
        retry::retrying(self.retry, std::thread::sleep, || {
            redirect::follow(self.clone(), system::exchange)
        })
    }

    /// Sends the request and does not wait for the answer: [`Started::finish`] does. Several requests of a
    /// component can be on their way at the same time; each counts as a connection until its answer is dropped or
    /// read to its end. A redirect is an answer like any other, and nothing is retried. Natively, the request is sent
    /// when its answer is asked for.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn start(&self) -> Result<Started> {
        system::start(self).map(Started)
    }
}

/// A request that was sent.
pub struct Started(system::Pending);

impl Started {
    /// Waits for the head of the answer.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn finish(self) -> Result<Response> {
        self.0.finish()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.headers.iter().map(|header| header.name.as_str());
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("headers", &names.collect::<Vec<_>>())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// An answer; its body is still to be read.
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    url: Url,
    body: Box<dyn Body>,
}

/// Gives a body piece by piece; an empty piece is its end.
trait Body {
    fn read(&mut self) -> Result<Vec<u8>>;
}

impl Response {
    /// The status, such as 200.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The URL that gave the answer, after redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The value of a header; of several of one name, all with commas between them.
    pub fn header(&self, name: &str) -> Option<String> {
        let named = self.headers.iter();
        let values: Vec<&str> = named
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The next piece of the body; empty at its end.
    ///
    /// # Errors
    /// `connection_lost` where the connection ends before the body does, `timeout`.
    pub fn read(&mut self) -> Result<Vec<u8>> {
        self.body.read()
    }

    /// The whole body, at most `limit` bytes.
    ///
    /// # Errors
    /// `http_body_too_large` and `http_encoding` (data), and the errors of [`Response::read`].
    pub fn body(mut self, limit: usize) -> Result<Vec<u8>> {
        if let Some(coding) = self.header("content-encoding")
            && !coding.eq_ignore_ascii_case("identity")
        {
            let text = format!(
                "{}: the response is encoded as {coding}",
                self.url.without_query()
            );
            return Err(Error::data("http_encoding", text).hint(
                "configure the server or proxy to respect accept-encoding: the request \
                     asked for plain bytes",
            ));
        }
        let mut body = Vec::new();
        loop {
            let piece = self.read()?;
            if piece.is_empty() {
                return Ok(body);
            }
            if body.len() + piece.len() > limit {
                let url = self.url.without_query();
                let text = format!("{url}: the response exceeds {limit} bytes");
                return Err(Error::data("http_body_too_large", text));
            }
            body.extend_from_slice(&piece);
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

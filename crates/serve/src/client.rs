//! A client of the server: it begins runs, follows them and cancels them, and shows and moves what destinations keep.

mod events;
mod kept;

use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ureq::http::{Response, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::WithBody;
use ureq::{Agent, Body, RequestBuilder};

pub use events::{Counts, RunEvent};
pub use kept::{MovedCursors, Replayed, SetCursor};

use crate::runs::Options;

/// The longest time from the connection to the end of an answer. The server answers these requests at once.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence of a stream of events: the server sends something each 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 32 << 20;
/// Bytes of a file of certificates.
const MAX_CERTIFICATES: u64 = 4 << 20;
const USER_AGENT: &str = concat!("rapidbyte/", env!("CARGO_PKG_VERSION"));
/// The characters of a path that stay as they are.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The reason why a server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The text is not the URL of a server, for this reason. The text itself is not repeated: it may have a password.
    #[error("the URL of the server {0}")]
    InvalidUrl(&'static str),
    /// The token is not a value of a header.
    #[error("the token has characters that no token has")]
    InvalidToken,
    /// The certificates of the authorities cannot be read.
    #[error("the certificates in {0} cannot be used: {1}")]
    Certificates(String, String),
    /// No answer came from this place.
    #[error("{0} does not answer: {1}")]
    Unreachable(String, String),
    /// The server refused the request.
    #[error("{message}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// A code from `docs/errors.md`.
        code: String,
        /// What happened.
        message: String,
        /// What to do next.
        hint: Option<String>,
        /// The error as the server shows it: one of the engine also has a class, a place and the like.
        error: Value,
    },
    /// Another program answers at this place.
    #[error("{0} does not answer as a server of Rapidbyte: {1}")]
    Unexpected(String, String),
}

impl ClientError {
    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(..) => true,
            // Also a proxy in front of a server that starts.
            Self::Refused { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            _ => false,
        }
    }
}

/// One server. Many threads may use it.
pub struct Client {
    agent: Agent,
    /// The URL without a slash at its end.
    base: String,
    /// The header with the token.
    authorization: Option<String>,
}

impl Client {
    /// The server with this URL. `certificates` is a file (PEM) with the authorities that sign its certificate; without it
    /// these are the public ones.
    ///
    /// # Errors
    /// `InvalidUrl`, `InvalidToken` and `Certificates`. The server is not asked.
    pub fn new(
        url: &str,
        token: Option<&str>,
        certificates: Option<&Path>,
    ) -> Result<Self, ClientError> {
        let base = base_of(url).map_err(ClientError::InvalidUrl)?;
        let is_visible = |c: char| c.is_ascii_graphic();
        if token.is_some_and(|token| !token.chars().all(is_visible)) {
            return Err(ClientError::InvalidToken);
        }
        let roots = match certificates {
            None => RootCerts::WebPki,
            Some(file) => authorities(file)
                .map_err(|why| ClientError::Certificates(file.display().to_string(), why))?,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A token is for the server that was named.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .user_agent(USER_AGENT);
        Ok(Self {
            agent: config.build().new_agent(),
            base,
            authorization: token.map(|token| format!("Bearer {token}")),
        })
    }

    /// Its URL, without a slash at its end.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Whether a token would cross a network as plain text.
    pub fn exposes_token(&self) -> bool {
        let host = self.base.strip_prefix("http://").map(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            let rest = &rest[..end];
            rest.rsplit_once(':').map_or(rest, |(host, _)| host)
        });
        let is_here =
            |host: &str| host == "localhost" || host == "[::1]" || host.starts_with("127.");
        self.authorization.is_some() && host.is_some_and(|host| !is_here(host))
    }

    /// Begins a run of a pipeline. Returns the run as the API shows it.
    ///
    /// # Errors
    /// The server refuses it, or does not answer: then the run may have begun.
    pub fn begin(&self, pipeline: &str, options: &Options) -> Result<Value, ClientError> {
        let name = utf8_percent_encode(pipeline, PATH);
        let body = json!(options).to_string();
        let answer = self.post(&format!("/v1/pipelines/{name}/runs"), &body)?;
        self.member(answer, "run")
    }

    /// Cancels a run. It may end later.
    ///
    /// # Errors
    /// The server does not answer, or refuses it: `run_ended` for a run that has ended.
    pub fn cancel(&self, run: i64) -> Result<(), ClientError> {
        self.post(&format!("/v1/runs/{run}/cancel"), "").map(drop)
    }

    /// The newest runs of a pipeline as the API shows them, at most 1000.
    ///
    /// # Errors
    /// The server refuses it, or does not answer.
    pub fn runs(&self, pipeline: &str, limit: u32) -> Result<Vec<Value>, ClientError> {
        let name = utf8_percent_encode(pipeline, PATH);
        let path = format!("/v1/runs?pipeline={name}&limit={limit}");
        let answer = self.get(&path, TIMEOUT)?;
        match self.member(answer, "runs")? {
            Value::Array(runs) => Ok(runs),
            _ => Err(self.unexpected("the runs are not a list")),
        }
    }

    fn get(&self, path: &str, limit: Duration) -> Result<Value, ClientError> {
        let request = self.authorized(self.agent.get(self.place(path)));
        let request = request.config().timeout_global(Some(limit)).build();
        self.answer(request.call())
    }

    fn post(&self, path: &str, body: &str) -> Result<Value, ClientError> {
        self.send(self.agent.post(self.place(path)), body, TIMEOUT)
    }

    fn send(
        &self,
        request: RequestBuilder<WithBody>,
        body: &str,
        limit: Duration,
    ) -> Result<Value, ClientError> {
        let request = self.authorized(request);
        let request = request.config().timeout_global(Some(limit)).build();
        let request = request.header("content-type", "application/json");
        self.answer(request.send(body))
    }

    fn place(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// The JSON of an answer.
    fn answer(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Value, ClientError> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let body = answer
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER)
            .read_to_vec();
        let body = body.map_err(|error| self.unreachable(&error))?;
        let body: Option<Value> = serde_json::from_slice(&body).ok();
        if status.is_success() {
            return body.ok_or_else(|| self.unexpected("the answer is not JSON"));
        }
        Err(self.refused(status.as_u16(), &body.unwrap_or_default()))
    }

    /// The error of an answer.
    fn refused(&self, status: u16, answer: &Value) -> ClientError {
        let error = &answer["error"];
        let text = |key: &str| error[key].as_str().map(str::to_owned);
        match (text("code"), text("message")) {
            (Some(code), Some(message)) => ClientError::Refused {
                status,
                code,
                message,
                hint: text("hint"),
                error: error.clone(),
            },
            // A proxy in front of a server that is not there.
            _ if matches!(status, 502..=504) => {
                ClientError::Unreachable(self.base.clone(), format!("the status is {status}"))
            }
            _ => self.unexpected(&format!("the status is {status}")),
        }
    }

    /// An answer, or a member of it, as its type.
    fn typed<T: DeserializeOwned>(&self, answer: Value) -> Result<T, ClientError> {
        serde_json::from_value(answer).map_err(|error| {
            self.unexpected(&format!(
                "the answer is not what this program knows: {error}"
            ))
        })
    }

    fn member(&self, mut answer: Value, name: &str) -> Result<Value, ClientError> {
        match answer.get_mut(name).map(Value::take) {
            Some(value) if !value.is_null() => Ok(value),
            _ => Err(self.unexpected(&format!("the answer has no member {name:?}"))),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> ClientError {
        let why = match error {
            ureq::Error::Timeout(_) => "it takes too long".to_owned(),
            ureq::Error::HostNotFound => "the name of the host is not known".to_owned(),
            other => other.to_string(),
        };
        ClientError::Unreachable(self.base.clone(), why)
    }

    fn unexpected(&self, why: &str) -> ClientError {
        ClientError::Unexpected(self.base.clone(), why.to_owned())
    }
}

/// The URL without a slash at its end, or what is wrong with it.
fn base_of(url: &str) -> Result<String, &'static str> {
    let uri = Uri::from_str(url).map_err(|_| "is not valid")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err("does not begin with http:// or https://");
    }
    let authority = uri.authority().ok_or("has no host")?;
    if authority.as_str().contains('@') {
        return Err("has a user or a password, and the token is in a variable");
    }
    if uri.query().is_some() {
        return Err("has a query (?)");
    }
    // The parser drops it.
    if url.contains('#') {
        return Err("has a fragment (#)");
    }
    if uri.path() != "/" {
        return Err("has a path, and the API is at the root of the server");
    }
    // The parser takes any number, and a connection would go to the usual port.
    let port = authority.as_str().strip_prefix(authority.host());
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if port
        .and_then(|port| port.strip_prefix(':'))
        .is_some_and(|port| !is_port(port))
    {
        return Err("has a port that does not exist (1 to 65535)");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The certificates of a file.
pub(crate) fn authorities(file: &Path) -> Result<RootCerts, String> {
    let found = fs::metadata(file).map_err(|error| error.to_string())?;
    if found.len() > MAX_CERTIFICATES {
        return Err("the file is too large".into());
    }
    let pem = fs::read(file).map_err(|error: io::Error| error.to_string())?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| error.to_string())? {
            let der = CertificateDer::from_slice(certificate.der());
            let added = RootCertStore::empty().add(der);
            added.map_err(|error| format!("a certificate cannot be used: {error}"))?;
            certificates.push(certificate);
        }
    }
    match certificates.is_empty() {
        true => Err("the file has no certificate (PEM)".into()),
        false => Ok(RootCerts::Specific(Arc::new(certificates))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_server_has_a_scheme_and_a_host_and_no_password() {
        for (url, expected) in [
            ("http://127.0.0.1:8465", Ok("http://127.0.0.1:8465")),
            ("https://shop.example/", Ok("https://shop.example")),
            ("http://[::1]:8465", Ok("http://[::1]:8465")),
            ("http://h:65535", Ok("http://h:65535")),
            (
                "shop.example",
                Err("does not begin with http:// or https://"),
            ),
            (
                "ftp://shop.example",
                Err("does not begin with http:// or https://"),
            ),
            (
                "https://me:pw@shop.example",
                Err("has a user or a password, and the token is in a variable"),
            ),
            ("https://shop.example/?a=b", Err("has a query (?)")),
            ("https://", Err("is not valid")),
            ("http://h:1#x", Err("has a fragment (#)")),
            ("http://h:1/#x", Err("has a fragment (#)")),
            (
                "http://h/x",
                Err("has a path, and the API is at the root of the server"),
            ),
            (
                "https://h:8465/v1/",
                Err("has a path, and the API is at the root of the server"),
            ),
            (
                "http://h:65536",
                Err("has a port that does not exist (1 to 65535)"),
            ),
            (
                "http://h:99999/",
                Err("has a port that does not exist (1 to 65535)"),
            ),
            (
                "http://h:0",
                Err("has a port that does not exist (1 to 65535)"),
            ),
            (
                "http://h:",
                Err("has a port that does not exist (1 to 65535)"),
            ),
            (
                "http://[::1]:65537",
                Err("has a port that does not exist (1 to 65535)"),
            ),
        ] {
            let base = base_of(url);
            assert_eq!(base.as_deref().map_err(|why| *why), expected, "{url}");
        }
    }

    #[test]
    fn a_token_is_not_sent_as_plain_text_to_another_machine_unnoticed() {
        let exposes = |url, token| {
            Client::new(url, token, None)
                .expect("a client")
                .exposes_token()
        };
        for here in [
            "http://127.0.0.1:1",
            "http://localhost",
            "http://[::1]:8465",
            "https://a.example",
        ] {
            assert!(!exposes(here, Some("rb_x")), "{here}");
        }
        assert!(exposes("http://a.example:80", Some("rb_x")));
        assert!(!exposes("http://a.example:80", None));
        assert!(Client::new("http://a.example", Some("rb x\n"), None).is_err());
    }
}

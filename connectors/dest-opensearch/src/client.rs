//! Requests to one cluster and their answers.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rapidbyte_sdk::http::{Request, Response, Retry, Started, Url, retry_after_ms};
use rapidbyte_sdk::{Error, ErrorKind, Result, log};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{self, Said};

/// Bytes of an answer. The largest are pages of documents and of results of rows, which are counted.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Attempts of a request that fails for another reason than load: then the host retries the stream.
const MAX_ATTEMPTS: u32 = 5;
/// Until an answer begins, and between two pieces of it. A server waits a minute for a shard before it answers.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A wait from which on a warning says that the cluster is busy: shorter ones pass unnoticed.
const TOLD_WAIT: Duration = Duration::from_secs(2);
/// Attempts of a request of `check`: somebody waits for its answer, about 3 seconds.
const CHECK_ATTEMPTS: u32 = 4;

/// A shorter password is not taken out of messages, as in the host: it would take letters out of every word.
const MIN_SECRET_BYTES: usize = 4;

/// How the client shows who it is.
pub(crate) enum Login {
    None,
    Password(String, String),
    ApiKey(String),
}

/// A cluster, and how it is asked.
pub(crate) struct Cluster {
    pub url: Url,
    pub login: Login,
    /// How often a request or a row is sent that the server cannot take now.
    pub retry: Retry,
    /// Requests on their way at the same time.
    pub in_flight: usize,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("url", &self.shown())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Where it is, for people.
    pub fn shown(&self) -> String {
        self.url.without_query()
    }

    /// The header `authorization`.
    fn authorization(&self) -> Option<String> {
        match &self.login {
            Login::None => None,
            Login::Password(user, password) => {
                let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {pair}"))
            }
            Login::ApiKey(key) => Some(format!("ApiKey {key}")),
        }
    }

    /// A server may repeat what it was sent.
    fn without_secrets(&self, mut error: Error) -> Error {
        let secrets = match &self.login {
            Login::None => return error,
            Login::Password(user, password) => {
                let pair = BASE64_STANDARD.encode(format!("{user}:{password}"));
                vec![pair, password.clone()]
            }
            Login::ApiKey(key) => vec![key.clone()],
        };
        for secret in secrets
            .iter()
            .filter(|secret| secret.len() >= MIN_SECRET_BYTES)
        {
            error.message = error.message.replace(secret, "***");
        }
        error
    }
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    verb: Verb,
    /// Behind the URL of the cluster. Its parts are encoded.
    path: String,
    query: Vec<(&'static str, String)>,
    body: Vec<u8>,
    content_type: &'static str,
    /// A second time does no harm. Otherwise a request is repeated only if the server says that it did nothing.
    is_repeatable: bool,
    /// For messages.
    what: String,
}

impl Call {
    /// `what` says what is asked, such as `read a checkpoint`.
    pub fn new(verb: Verb, path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            verb,
            path: path.into(),
            query: Vec::new(),
            body: Vec::new(),
            content_type: "application/json",
            is_repeatable: true,
            what: what.into(),
        }
    }

    /// With a body.
    #[must_use]
    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self
    }

    /// With a body that is JSON already.
    #[must_use]
    pub fn text(mut self, body: String) -> Self {
        self.body = body.into_bytes();
        self
    }

    /// With a body of several lines.
    #[must_use]
    pub fn lines(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self.content_type = "application/x-ndjson";
        self
    }

    /// With a parameter.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// It must not be repeated when its outcome is unknown.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.is_repeatable = false;
        self
    }
}

/// An answer that was read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Such as 201.
    pub status: u16,
    body: Vec<u8>,
    what: String,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The error of the status.
    pub fn error(&self) -> Error {
        error::of(self.status, &self.said(), None, &self.what)
    }

    /// Why the server refuses the request.
    pub fn said(&self) -> Said {
        Said::of(&self.body)
    }

    /// The body of a request of Rapidbyte itself that succeeded. Errors: of the status; `protocol_violation`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        match self.is_success() {
            true => self.parse(),
            false => Err(error::not_of_row(self.error())),
        }
    }

    /// The body, whatever the status. Errors: `protocol_violation`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .map_err(|error| error::violation(format!("{}: {error}", self.what)))
    }
}

/// Asks one cluster.
pub(crate) struct Client {
    cluster: Rc<Cluster>,
    /// How often a request is sent that the server cannot take now.
    retry: Retry,
}

impl Client {
    /// Connects to nothing yet.
    pub fn new(cluster: &Rc<Cluster>) -> Self {
        Self {
            cluster: cluster.clone(),
            retry: cluster.retry,
        }
    }

    /// The same, which gives up after seconds.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self {
            retry: self.retry.at_most(CHECK_ATTEMPTS),
            ..self
        }
    }

    /// The path of the URL of the cluster; `/` for none.
    pub fn path(&self) -> &str {
        self.cluster.url.path()
    }

    /// How often a request is repeated.
    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// Makes one request, and repeats it where that may help. An answer with an error's status that no repetition changes
    /// is an answer.
    pub fn ask(&self, call: &Call) -> Result<Answer> {
        let mut answers = self.ask_all(1, |_| call.clone())?.into_iter();
        answers
            .next()
            .ok_or_else(|| Error::internal("a request without an answer"))
    }

    /// Makes `count` requests, several at the same time and in no order. The answers are in the order of the requests. A
    /// request is made when it goes out, so that only the requests on their way take memory.
    pub fn ask_all(&self, count: usize, call: impl Fn(usize) -> Call) -> Result<Vec<Answer>> {
        let mut answers: Vec<Option<Answer>> = (0..count).map(|_| None).collect();
        let mut left: Vec<usize> = (0..count).collect();
        let mut failures = vec![0; count];
        // Rounds since the last one in which a request was done.
        let mut attempt = 1;
        while !left.is_empty() {
            let (mut again, mut longest) = (Vec::new(), Duration::ZERO);
            let mut reason = String::new();
            let mut waiting: VecDeque<(usize, Waiting)> = VecDeque::new();
            let mut next = left.iter().copied();
            loop {
                // Another one goes out as soon as the oldest is answered.
                while waiting.len() < self.cluster.in_flight
                    && let Some(place) = next.next()
                {
                    waiting.push_back((place, self.start(call(place))?));
                }
                let Some((place, started)) = waiting.pop_front() else {
                    break;
                };
                let is_repeatable = started.is_repeatable;
                match self.finish(started) {
                    Ok(answer) => answers[place] = Some(answer),
                    Err(error) => {
                        let wait = { may_repeat(is_repeatable, &error, &mut failures[place]) }
                            .then(|| self.retry.after_error(attempt, &error));
                        let Some(wait) = wait.flatten() else {
                            return Err(error);
                        };
                        longest = longest.max(wait);
                        again.push(place);
                        reason = error.message;
                    }
                }
            }
            attempt = match again.len() < left.len() {
                true => 1,
                false => attempt + 1,
            };
            left = again;
            if !left.is_empty() {
                let what = match left.len() {
                    1 => "the request".to_owned(),
                    count => format!("each of {count} requests"),
                };
                wait_for(longest, &what, &reason);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn start(&self, call: Call) -> Result<Waiting> {
        let url = match call.path.is_empty() {
            true => self.cluster.url.clone(),
            false => self.cluster.url.under(&call.path)?,
        };
        let query = call
            .query
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let url = url.with_query(query)?;
        let has_body = matches!(call.verb, Verb::Post | Verb::Put);
        let mut request = match call.verb {
            Verb::Get => Request::get(url),
            Verb::Post => Request::post(url, call.body),
            Verb::Put => Request::put(url, call.body),
            Verb::Delete => Request::delete(url),
        };
        request = request
            .retry(Retry::NEVER)
            .timeout(TIMEOUT)
            .header("accept", "application/json")
            .header(
                "user-agent",
                concat!("rapidbyte-opensearch/", env!("CARGO_PKG_VERSION")),
            );
        if has_body {
            request = request.header("content-type", call.content_type);
        }
        if let Some(login) = self.cluster.authorization() {
            request = request.secret_header("authorization", login);
        }
        Ok(Waiting {
            started: request.start(),
            is_repeatable: call.is_repeatable,
            what: call.what,
        })
    }

    /// Errors: of the connection, and of the statuses that a repetition may change.
    fn finish(&self, waiting: Waiting) -> Result<Answer> {
        let Waiting { started, what, .. } = waiting;
        let read = started.and_then(Started::finish).and_then(|response| {
            let status = response.status();
            if (300..400).contains(&status) {
                return Err(redirected(&response));
            }
            let asked = response.header("retry-after");
            let wait_ms = asked.and_then(|text| retry_after_ms(&text, SystemTime::now()));
            response
                .body(MAX_ANSWER_BYTES)
                .map(|body| (status, wait_ms, body))
        });
        let (status, wait_ms, body) = read.map_err(|mut error| {
            error.message = format!("{what}: {}", error.message);
            self.cluster.without_secrets(error)
        })?;
        if matches!(status, 401 | 403 | 408 | 429 | 500..) {
            let error = error::of(status, &Said::of(&body), wait_ms, &what);
            return Err(self.cluster.without_secrets(error));
        }
        Ok(Answer { status, body, what })
    }
}

/// An answer that sends the request elsewhere, as proxies and login pages do. Nothing is sent there: rows and logins are
/// for the server of the configuration alone.
fn redirected(response: &Response) -> Error {
    let status = response.status();
    let to = response.header("location");
    let to = to.and_then(|to| response.url().join(&to).ok());
    let text = match to {
        Some(to) => format!(
            "the server answers {status}, and sends to {}",
            // A query may hold a secret.
            to.without_query()
        ),
        None => format!("the server answers {status}, without a URL to go to"),
    };
    Error::config("http_redirect", text)
        .hint("write the URL of the cluster itself: requests do not follow redirects")
        .at("config.url")
}

/// Waits before the cluster is asked again. `what` is sent again, because of `reason`.
pub(crate) fn wait_for(wait: Duration, what: &str, reason: &str) {
    let text = format!(
        "{reason}; {what} is sent again in {:.1} s",
        wait.as_secs_f64()
    );
    match wait >= TOLD_WAIT {
        true => log::warn(text),
        false => log::debug(text),
    }
    std::thread::sleep(wait);
}

/// A request on its way.
struct Waiting {
    started: Result<Started>,
    is_repeatable: bool,
    what: String,
}

/// Whether the request may be sent again after this error. `failures` counts its errors of another reason than load.
fn may_repeat(is_repeatable: bool, error: &Error, failures: &mut u32) -> bool {
    match error.kind {
        ErrorKind::RateLimited(_) => true,
        ErrorKind::Connection | ErrorKind::Transient => {
            *failures += 1;
            *failures < MAX_ATTEMPTS && (is_repeatable || error.code == "connect_failed")
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let cluster = |login| Cluster {
            url: Url::parse("https://u:9200/x?y=z").unwrap(),
            login,
            retry: Retry::NEVER,
            in_flight: 1,
        };
        let password = cluster(Login::Password("u".into(), "s3cret".into()));
        assert_eq!(
            password.authorization().as_deref(),
            Some("Basic dTpzM2NyZXQ=")
        );
        let error = password.without_secrets(Error::internal("a s3cret dTpzM2NyZXQ= b"));
        assert_eq!(error.message, "a *** *** b");
        assert!(!format!("{password:?}").contains("s3cret"));
        let key = cluster(Login::ApiKey("k3y!".into()));
        assert_eq!(key.authorization().as_deref(), Some("ApiKey k3y!"));
        assert_eq!(key.without_secrets(Error::internal("k3y!")).message, "***");
        // A short password does not make a message unreadable. Its encoded pair is a secret still.
        let short = cluster(Login::Password("u".into(), "e".into()));
        let error = short.without_secrets(Error::internal("the server dTpl"));
        assert_eq!(error.message, "the server ***");
    }
}

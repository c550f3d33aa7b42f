//! Requests and their answers.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rapidbyte_sdk::http::{Request, Response, Retry, Started};
use rapidbyte_sdk::{Error, ErrorKind, Result, log};

use crate::account::{Account, MAX_IN_FLIGHT};
use crate::container::Container;
use crate::ranges::Ranges;
use crate::{date, error};

/// The version of the protocol that the documents of this crate describe.
const VERSION: &str = "2018-12-31";
/// Attempts of a request that the server cannot carry out for another reason than its load: then the host retries the
/// stream.
const MAX_ATTEMPTS: u32 = 5;
/// Bytes of an answer: the server divides larger ones into pages of 4 MB.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Ranges of partitions whose session tokens are kept, and the bytes of the header with them.
const MAX_SESSION_RANGES: usize = 1024;
const MAX_SESSION_BYTES: usize = 16 << 10;

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Reads.
    Get,
    /// Creates, upserts, queries, or sends a batch.
    Post,
    /// Replaces.
    Put,
    /// Deletes.
    Delete,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

/// What may be repeated when no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A second time does no harm.
    Always,
    /// Only if the server says that it did not carry the request out.
    IfRefused,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) verb: Verb,
    /// The kind of the resource, such as `docs`.
    pub(crate) kind: &'static str,
    /// The resource that the signature names.
    pub(crate) link: String,
    /// The path of the URL.
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Its session tokens are sent and kept.
    pub(crate) container: Option<String>,
    pub(crate) repeat: Repeat,
    /// It names a range of partitions, which may be gone.
    pub(crate) is_of_range: bool,
    /// For messages.
    pub(crate) what: String,
}

impl Call {
    /// A call that must not be repeated when it is not known what became of it.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.repeat = Repeat::IfRefused;
        self
    }
}

/// An answer that was read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Such as 201.
    pub status: u16,
    /// The version of the document.
    pub etag: Option<String>,
    /// Where the next page begins.
    pub continuation: Option<String>,
    /// The body.
    pub body: Vec<u8>,
    /// When the server answered, in seconds since 1970.
    pub(crate) date: Option<u64>,
    substatus: Option<String>,
    what: String,
}

impl Answer {
    /// The answer if its status is 200 to 299. Errors: those of the crate's table of status codes.
    pub fn expect_success(self) -> Result<Self> {
        match self.status {
            200..=299 => Ok(self),
            _ => Err(self.error()),
        }
    }

    /// The error of the status.
    pub fn error(&self) -> Error {
        let sub = self.substatus.as_deref();
        error::of(self.status, sub, None, &self.body, &self.what)
    }
}

/// A request that was sent.
pub struct Asked {
    call: Call,
    started: Result<Started>,
}

/// Asks one account.
pub struct Client {
    account: Rc<Account>,
    /// By container, and by the range of its partitions: how far this client has seen them.
    sessions: BTreeMap<String, BTreeMap<String, String>>,
    /// By container. `None`: it takes no bulk requests.
    ranges: BTreeMap<String, Option<Rc<Ranges>>>,
}

impl Client {
    /// Connects to nothing yet.
    pub fn new(account: &Rc<Account>) -> Self {
        Self {
            account: account.clone(),
            sessions: BTreeMap::new(),
            ranges: BTreeMap::new(),
        }
    }

    /// The account that is asked.
    pub fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Makes one request, and repeats it where that may help. An answer with an error's status that no repetition changes
    /// is an answer.
    pub fn ask(&mut self, call: Call) -> Result<Answer> {
        let answers = self.ask_all(&[call])?;
        let mut answers = answers.into_iter();
        answers
            .next()
            .unwrap_or_else(|| Err(Error::internal("a request without an answer")))
    }

    /// Sends a request, whose answer [`Client::finish`] waits for.
    pub(crate) fn begin(&self, call: Call) -> Result<Asked> {
        let started = self.request(&call)?.start();
        Ok(Asked { call, started })
    }

    /// The answer to a request that was sent. Repeats it as [`Client::ask`] does.
    pub(crate) fn finish(&mut self, asked: Asked) -> Result<Answer> {
        let Asked { call, started } = asked;
        let error = match self.answer(&call, started) {
            Err(error) if may_repeat(&call, &error, &mut 0) => error,
            answer => return answer,
        };
        match self.account.retry.after_error(1, &error) {
            Some(wait) => {
                std::thread::sleep(wait);
                self.ask(call)
            }
            None => Err(error),
        }
    }

    /// Makes all requests, several at the same time and in no order. The answers are in the order of the requests.
    pub fn ask_all(&mut self, calls: &[Call]) -> Result<Vec<Result<Answer>>> {
        let mut answers: Vec<Option<Result<Answer>>> = calls.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..calls.len()).collect();
        let mut failures = vec![0; calls.len()];
        let in_flight = self.account.in_flight.clamp(1, MAX_IN_FLIGHT);
        // Rounds since the last one in which a request was done.
        let mut attempt = 1;
        while !left.is_empty() {
            let (mut again, mut longest) = (Vec::new(), Duration::ZERO);
            let mut waiting = VecDeque::with_capacity(in_flight);
            let mut next = left.iter().copied();
            loop {
                // Another one goes out as soon as the oldest is answered.
                while waiting.len() < in_flight
                    && let Some(place) = next.next()
                {
                    waiting.push_back((place, self.request(&calls[place])?.start()));
                }
                let Some((place, started)) = waiting.pop_front() else {
                    break;
                };
                let call = &calls[place];
                let answer = self.answer(call, started);
                let wait = match &answer {
                    Err(error) if may_repeat(call, error, &mut failures[place]) => {
                        self.account.retry.after_error(attempt, error)
                    }
                    _ => None,
                };
                match wait {
                    Some(wait) => {
                        longest = longest.max(wait);
                        again.push(place);
                    }
                    None => answers[place] = Some(answer),
                }
            }
            attempt = match again.len() < left.len() {
                true => 1,
                false => attempt + 1,
            };
            left = again;
            if !left.is_empty() {
                log::debug(format!(
                    "{} requests are sent again in {} ms",
                    left.len(),
                    longest.as_millis()
                ));
                std::thread::sleep(longest);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn request(&self, call: &Call) -> Result<Request> {
        let url = self.account.endpoint.under(&call.path)?;
        let mut request = match call.verb {
            Verb::Get => Request::get(url),
            Verb::Post => Request::post(url, call.body.clone()),
            Verb::Put => Request::put(url, call.body.clone()),
            Verb::Delete => Request::delete(url),
        };
        let date = date::now();
        let signed = self
            .account
            .authorization(call.verb.name(), call.kind, &call.link, &date);
        request = request
            .retry(Retry::NEVER)
            .timeout(self.account.timeout)
            .header("x-ms-date", date)
            .header("x-ms-version", VERSION)
            .header("accept", "application/json")
            .header(
                "user-agent",
                concat!("rapidbyte-cosmos/", env!("CARGO_PKG_VERSION")),
            )
            .secret_header("authorization", signed);
        let tokens = call
            .container
            .as_ref()
            .and_then(|name| self.sessions.get(name));
        if let Some(tokens) = tokens {
            let tokens = tokens
                .iter()
                .map(|(range, token)| format!("{range}:{token}"));
            let tokens = tokens.collect::<Vec<_>>().join(",");
            if tokens.len() <= MAX_SESSION_BYTES {
                request = request.header("x-ms-session-token", tokens);
            }
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        Ok(request)
    }

    fn answer(&mut self, call: &Call, started: Result<Started>) -> Result<Answer> {
        let read = started.and_then(Started::finish).and_then(|response| {
            let head = Head::of(&response);
            response.body(MAX_ANSWER_BYTES).map(|body| (head, body))
        });
        let (head, body) = read.map_err(|mut error| {
            error.message = format!("{}: {}", call.what, error.message);
            self.account.without_secrets(error)
        })?;
        if let (Some(container), Some(tokens)) = (&call.container, &head.session) {
            self.keep_session(container, tokens);
        }
        let is_gone = head.status == 410 && call.is_of_range;
        if matches!(head.status, 408 | 410 | 429 | 449 | 500..) && !is_gone {
            let error = error::of(
                head.status,
                head.substatus.as_deref(),
                head.retry_after_ms,
                &body,
                &call.what,
            );
            return Err(self.account.without_secrets(error));
        }
        Ok(Answer {
            status: head.status,
            etag: head.etag,
            continuation: head.continuation,
            body,
            date: head.date,
            substatus: head.substatus,
            what: call.what.clone(),
        })
    }

    /// The ranges of a container, which are asked for once. `None`: it takes no bulk requests.
    pub(crate) fn ranges(&mut self, container: &Container) -> Result<Option<Rc<Ranges>>> {
        if let Some(known) = self.ranges.get(&container.name) {
            return Ok(known.clone());
        }
        let found = self.read_ranges(container)?.map(Rc::new);
        self.ranges.insert(container.name.clone(), found.clone());
        Ok(found)
    }

    /// The next write asks for the ranges again.
    pub(crate) fn forget_ranges(&mut self, container: &Container) {
        self.ranges.remove(&container.name);
    }

    /// The server refuses bulk requests for this container.
    pub(crate) fn refuse_ranges(&mut self, container: &Container) {
        self.ranges.insert(container.name.clone(), None);
    }

    /// `0:-1#12` or several with commas between: the range, and how far it is.
    fn keep_session(&mut self, container: &str, tokens: &str) {
        let kept = self.sessions.entry(container.to_owned()).or_default();
        for token in tokens.split(',') {
            if let Some((range, token)) = token.trim().split_once(':')
                && (kept.contains_key(range) || kept.len() < MAX_SESSION_RANGES)
            {
                kept.insert(range.to_owned(), token.to_owned());
            }
        }
    }
}

/// The head of an answer.
struct Head {
    status: u16,
    etag: Option<String>,
    continuation: Option<String>,
    session: Option<String>,
    substatus: Option<String>,
    retry_after_ms: Option<u64>,
    date: Option<u64>,
}

impl Head {
    fn of(response: &Response) -> Self {
        let retry_after_ms = response.header("x-ms-retry-after-ms");
        Self {
            status: response.status(),
            etag: response.header("etag"),
            continuation: response
                .header("x-ms-continuation")
                .filter(|token| !token.is_empty()),
            session: response.header("x-ms-session-token"),
            substatus: response.header("x-ms-substatus"),
            date: response.header("date").as_deref().and_then(date::parse),
            // Some answers have a fraction.
            retry_after_ms: retry_after_ms
                .and_then(|text| text.trim().parse::<f64>().ok())
                .map(|ms| ms.max(0.0).ceil() as u64),
        }
    }
}

/// Whether the request may be sent again after this error. `failures` counts its errors of another reason than the load.
fn may_repeat(call: &Call, error: &Error, failures: &mut u32) -> bool {
    match error.kind {
        ErrorKind::RateLimited(_) => true,
        ErrorKind::Connection | ErrorKind::Transient => {
            *failures += 1;
            let is_refused = matches!(error.code.as_str(), "connect_failed" | "cosmos_retry_with");
            *failures < MAX_ATTEMPTS && (is_refused || call.repeat == Repeat::Always)
        }
        _ => false,
    }
}

//! Makes requests: adds credentials, keeps to the rate, and retries where that may help.

use std::time::{Duration, Instant};

use rapidbyte_sdk::http::{Request, Response, Retry, Url, encode_component};
use rapidbyte_sdk::log;
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;

use crate::config::{MethodName, SendIn};
use crate::settings::{Client as OauthClient, Credentials, Server, Settled};

/// Bytes of an answer with a token.
const MAX_TOKEN_BYTES: usize = 256 << 10;
/// A token is asked for again this long before it ends.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// How long a token without a lifetime is used.
const TOKEN_SECONDS: u64 = 300;

/// Asks one server.
#[derive(Clone)]
pub(crate) struct Client {
    server: Server,
    token: Option<Token>,
    /// The next request does not begin before.
    not_before: Option<Instant>,
}

#[derive(Clone)]
struct Token {
    text: String,
    until: Instant,
}

/// A parameter of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Param {
    pub name: String,
    pub text: String,
    /// In a body it is a number.
    pub is_number: bool,
}

/// An answer that was read to its end.
pub(crate) struct Answer {
    pub body: Vec<u8>,
    pub link: Option<String>,
    pub url: Url,
    /// Status 204: the server sends no body on purpose.
    pub is_empty: bool,
}

impl Client {
    pub fn new(server: Server) -> Self {
        Self {
            server,
            token: None,
            not_before: None,
        }
    }

    /// Requests a page of a stream: the stream's own URL with `params`, or the URL that the server named.
    pub fn ask(
        &mut self,
        stream: &Settled,
        named: Option<&Url>,
        params: &[Param],
    ) -> Result<Answer> {
        let asked = self.ask_again(stream, named, params);
        asked.map_err(|error| self.without_secrets(error).in_stream(&stream.name))
    }

    fn ask_again(
        &mut self,
        stream: &Settled,
        named: Option<&Url>,
        params: &[Param],
    ) -> Result<Answer> {
        let mut attempt = 1;
        let mut had_token = self.token.is_some();
        loop {
            let error = match self.ask_once(stream, named, params) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // A token may end before its time; a new one is asked for once.
            if error.code == "http_unauthorized" && had_token {
                (self.token, had_token) = (None, false);
                continue;
            }
            let Some(wait) = self.server.retry.after_error(attempt, &error) else {
                return Err(error);
            };
            attempt += 1;
            // A shorter one is over before anybody has read of it.
            if wait >= Duration::from_secs(1) {
                let Error { message, .. } = self.without_secrets(error);
                log::warn(format!(
                    "{message}; retries in {} s",
                    wait.as_millis().div_ceil(1000)
                ));
            }
            std::thread::sleep(wait);
        }
    }

    fn ask_once(
        &mut self,
        stream: &Settled,
        named: Option<&Url>,
        params: &[Param],
    ) -> Result<Answer> {
        // Each attempt keeps to the rate and checks its token, so the SDK does not retry.
        let mut request = request(stream, named, params)?
            .retry(Retry::NEVER)
            .timeout(self.server.timeout)
            .header(
                "user-agent",
                concat!("rapidbyte-source-http/", env!("CARGO_PKG_VERSION")),
            );
        let named = |name: &str| {
            let mut all = self.server.headers.keys().chain(stream.headers.keys());
            all.any(|key| key.eq_ignore_ascii_case(name))
        };
        if !named("accept") {
            request = request.header("accept", "application/json");
        }
        for (name, value) in &self.server.headers {
            let again = stream
                .headers
                .keys()
                .any(|key| key.eq_ignore_ascii_case(name));
            if !again {
                request = request.secret_header(name, value);
            }
        }
        for (name, value) in &stream.headers {
            request = request.secret_header(name, value);
        }
        if let Some((name, value)) = self.authorization()? {
            request = request.secret_header(name, value);
        }
        self.pause();
        let response = request.send()?.expect_success()?;
        answer(response, self.server.max_response_bytes)
    }

    /// The header that says who is asking.
    fn authorization(&mut self) -> Result<Option<(String, String)>> {
        let client = match &self.server.credentials {
            Credentials::None => return Ok(None),
            Credentials::Header(name, value) => return Ok(Some((name.clone(), value.clone()))),
            Credentials::Client(client) => client.clone(),
        };
        let now = Instant::now();
        let token = match self.token.take().filter(|token| token.until > now) {
            Some(token) => token,
            None => {
                self.pause();
                ask_for_token(&client, self.server.timeout)?
            }
        };
        let value = format!("Bearer {}", token.text);
        self.token = Some(token);
        Ok(Some(("authorization".into(), value)))
    }

    /// Keeps to the number of requests in a second.
    fn pause(&mut self) {
        let now = Instant::now();
        if let Some(left) = self
            .not_before
            .and_then(|at| at.checked_duration_since(now))
        {
            std::thread::sleep(left);
        }
        self.not_before = Instant::now().checked_add(self.server.pause);
    }

    /// A server may repeat what it was sent.
    fn without_secrets(&self, mut error: Error) -> Error {
        let mut secrets: Vec<&str> = Vec::new();
        match &self.server.credentials {
            Credentials::None => {}
            Credentials::Header(_, value) => {
                secrets.push(value);
                secrets.extend(value.split_once(' ').map(|(_, rest)| rest));
            }
            Credentials::Client(client) => secrets.push(&client.secret),
        }
        secrets.extend(self.token.as_ref().map(|token| token.text.as_str()));
        for secret in secrets.into_iter().filter(|secret| !secret.is_empty()) {
            for spelling in spellings(secret) {
                error.message = error.message.replace(&spelling, "***");
                error.hint = error.hint.map(|hint| hint.replace(&spelling, "***"));
            }
        }
        error
    }
}

/// A secret as it is, as in JSON and as in a URL.
fn spellings(secret: &str) -> [String; 3] {
    let json = serde_json::Value::from(secret).to_string();
    let json = json.trim_start_matches('"');
    let json = json.strip_suffix('"').unwrap_or(json).to_owned();
    [secret.to_owned(), json, encode_component(secret)]
}

fn request(stream: &Settled, named: Option<&Url>, params: &[Param]) -> Result<Request> {
    if stream.method == MethodName::Get {
        let pairs = params.iter().map(|p| (p.name.as_str(), p.text.as_str()));
        let url = match named {
            Some(url) => url.clone(),
            None => stream.url.clone().with_query(pairs)?,
        };
        return Ok(Request::get(url));
    }
    let mut body = stream.body.clone();
    for param in params {
        let value = match param.is_number {
            true => serde_json::from_str(&param.text).map_err(Error::internal)?,
            false => serde_json::Value::String(param.text.clone()),
        };
        body.insert(param.name.clone(), value);
    }
    let body = serde_json::to_vec(&body).map_err(Error::internal)?;
    let url = named.unwrap_or(&stream.url).clone();
    Ok(Request::post(url, body).header("content-type", "application/json"))
}

fn answer(response: Response, limit: usize) -> Result<Answer> {
    let link = response.header("link");
    let url = response.url().clone();
    let is_empty = response.status() == 204;
    let body = response
        .body(limit)
        .map_err(|error| match error.code.as_str() {
            "http_body_too_large" => {
                error.hint("ask for smaller pages, or raise config.max_response_bytes")
            }
            _ => error,
        })?;
    Ok(Answer {
        body,
        link,
        url,
        is_empty,
    })
}

/// The client-credentials grant of RFC 6749, 4.4.
fn ask_for_token(client: &OauthClient, timeout: Duration) -> Result<Token> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: String,
        #[serde(default)]
        token_type: Option<String>,
        #[serde(default)]
        expires_in: Option<f64>,
    }
    let mut form = "grant_type=client_credentials".to_owned();
    let mut add = |name: &str, value: &str| {
        form.push_str(&format!("&{name}={}", encode_component(value)));
    };
    if client.send_in == SendIn::Body {
        add("client_id", &client.id);
        add("client_secret", &client.secret);
    }
    if let Some(scope) = &client.scope {
        add("scope", scope);
    }
    let mut request = Request::post(client.token_url.clone(), form)
        .timeout(timeout)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json");
    if client.send_in == SendIn::Header {
        let (id, secret) = (
            encode_component(&client.id),
            encode_component(&client.secret),
        );
        request = request.secret_header("authorization", crate::basic::credentials(&id, &secret));
    }
    let asked = Instant::now();
    let response = request.send()?.expect_success().map_err(|mut error| {
        // RFC 6749, 5.2: what is wrong with the client is answered with 400.
        if error.code == "http_refused" {
            error.kind = ErrorKind::Auth;
            error.code = "http_unauthorized".into();
            error.hint = Some("check client_id, client_secret and scope".into());
        }
        error
    })?;
    let body = response.body(MAX_TOKEN_BYTES)?;
    // The parser's message may hold a part of the token.
    let no_token = || {
        let text = format!(
            "the answer of {} has no token",
            client.token_url.without_query()
        );
        Error::new(ErrorKind::Auth, "http_no_token", text)
            .hint("set token_url to the URL that gives tokens for client credentials")
            .at("config.auth.token_url")
    };
    let granted: Granted = serde_json::from_slice(&body).map_err(|_| no_token())?;
    let is_bearer = granted
        .token_type
        .is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    if granted.access_token.is_empty() || !is_bearer {
        return Err(no_token());
    }
    let seconds = granted
        .expires_in
        .map_or(TOKEN_SECONDS, |seconds| seconds.max(0.0) as u64);
    let lasts = Duration::from_secs(seconds.min(365 * 86_400)).saturating_sub(TOKEN_MARGIN);
    Ok(Token {
        text: granted.access_token,
        until: asked + lasts,
    })
}

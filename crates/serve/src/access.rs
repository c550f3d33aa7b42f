//! Who may do what: tokens with scopes, and the checks of requests that come from web pages.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, ORIGIN, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::answer::Refusal;
use crate::head::{host_of, of_one_meaning, of_this_machine};
use crate::store::TokenLimits;
use crate::tokens::{Action, Token, TokenFile, sha256};

/// Seconds of its rate that a token may use at once.
const BURST_SECONDS: f64 = 2.0;
/// Paths that need no token: they say nothing about this server but that it works.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/v1/openapi.json"];

/// The rules of a server. Clones are the same rules.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    file: TokenFile,
    /// Whether a request needs a token although there is none yet.
    is_open_to_others: bool,
    known: RwLock<Arc<HashMap<String, Arc<Holder>>>>,
}

/// A token, and what it has used.
struct Holder {
    token: Token,
    requests: Mutex<Bucket>,
    bytes: Mutex<Bucket>,
}

/// What a token has left of a rate. Below zero it has to wait.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Option<u64>) -> Mutex<Self> {
        Mutex::new(Self {
            left: rate.unwrap_or(0) as f64 * BURST_SECONDS,
            at: Instant::now(),
        })
    }

    /// Takes `amount`. Returns the seconds after which there is something again, if nothing was left.
    fn take(bucket: &Mutex<Self>, rate: Option<u64>, amount: f64) -> Result<(), u64> {
        let Some(rate) = rate.map(|rate| rate as f64) else {
            return Ok(());
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let more = now.duration_since(bucket.at).as_secs_f64() * rate;
        (bucket.left, bucket.at) = ((bucket.left + more).min(rate * BURST_SECONDS), now);
        if bucket.left <= 0.0 {
            return Err((-bucket.left / rate).ceil().max(1.0) as u64);
        }
        bucket.left -= amount;
        Ok(())
    }
}

/// The rights of a request.
#[derive(Clone)]
pub struct Granted(Option<Arc<Holder>>);

impl Granted {
    /// For the tests of a handler.
    #[cfg(test)]
    pub fn everything() -> Self {
        Self(None)
    }

    /// Refuses what the token does not allow. Without a pipeline: for all of them.
    ///
    /// # Errors
    /// `scope_missing`.
    pub fn may(&self, action: Action, pipeline: Option<&str>) -> Result<(), Refusal> {
        if self.allows(action, pipeline) {
            return Ok(());
        }
        let of = pipeline.map_or(String::new(), |name| format!(":{name}"));
        let text = format!("the token does not have the scope {}{of}", action.name());
        let hint = "use a token with this scope: rapidbyte serve token add --scope SCOPE";
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "scope_missing",
            text,
            hint,
        ))
    }

    /// The same as a question.
    pub fn allows(&self, action: Action, pipeline: Option<&str>) -> bool {
        let Some(holder) = &self.0 else {
            return true;
        };
        holder.token.allows(action, pipeline)
    }

    /// Whether the request has a token. Without one, the server has none.
    pub fn has_token(&self) -> bool {
        self.0.is_some()
    }

    /// The limits of the token that the store keeps.
    pub fn limits(&self) -> Option<TokenLimits> {
        self.0.as_ref()?.token.limits()
    }

    /// Counts the bytes of a body: the next request may have to wait for them.
    pub fn spend(&self, bytes: u64) {
        if let Some(holder) = &self.0 {
            // What is used up is known before the next request.
            let _ = Bucket::take(&holder.bytes, holder.token.bytes_per_second, bytes as f64);
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Granted {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let granted = parts.extensions.get::<Self>().cloned();
        granted.ok_or_else(|| Refusal::spool_failed("the request was not checked"))
    }
}

impl Access {
    /// The tokens of a file. `listen` is the address of the server: on another address than loopback each request needs a
    /// token.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(file: TokenFile, listen: IpAddr) -> io::Result<Self> {
        let access = Self(Arc::new(Inner {
            file,
            is_open_to_others: !listen.is_loopback(),
            known: RwLock::default(),
        }));
        access.reload()?;
        Ok(access)
    }

    /// Reads the file again. What a token has used stays.
    ///
    /// # Errors
    /// The file cannot be read: the tokens stay as they are.
    pub fn reload(&self) -> io::Result<()> {
        let tokens = self.0.file.read()?;
        let before = self.known();
        if tokens.is_empty() && !before.is_empty() && !self.0.file.exists() {
            // Who removes the last token leaves an empty list. Without a file, nobody has decided to let everybody in.
            return Err(io::Error::other("tokens.json is gone"));
        }
        let known = tokens.into_iter().map(|token| {
            let same = before.get(&token.id).filter(|known| known.token == token);
            let holder = same.cloned().unwrap_or_else(|| {
                Arc::new(Holder {
                    requests: Bucket::full(token.requests_per_second),
                    bytes: Bucket::full(token.bytes_per_second),
                    token,
                })
            });
            (holder.token.id.clone(), holder)
        });
        let known = Arc::new(known.collect());
        *self.0.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Whether requests need a token.
    pub fn needs_token(&self) -> bool {
        self.0.is_open_to_others || !self.known().is_empty()
    }

    /// Whether there is a token.
    pub fn has_token(&self) -> bool {
        !self.known().is_empty()
    }

    fn known(&self) -> Arc<HashMap<String, Arc<Holder>>> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&known)
    }

    fn grant(&self, uri: &Uri, headers: &HeaderMap) -> Result<Granted, Refusal> {
        if !self.needs_token() {
            of_this_machine(uri, headers)?;
            return Ok(Granted(None));
        }
        let given = secret(headers).ok_or_else(|| unauthorized("the request has no token"))?;
        let known = self.known();
        let found = Token::id_of(&given).and_then(|id| known.get(id));
        let holder = found
            .filter(|holder| holder.token.is(&sha256(&given)))
            .ok_or_else(|| unauthorized("the token is not known"))?;
        let token = &holder.token;
        Bucket::take(&holder.requests, token.requests_per_second, 1.0)
            .and_then(|()| Bucket::take(&holder.bytes, token.bytes_per_second, 0.0))
            .map_err(Refusal::rate_limited)?;
        Ok(Granted(Some(Arc::clone(holder))))
    }
}

/// Checks a request before its handler sees it.
pub async fn check(State(access): State<Access>, mut request: Request, next: Next) -> Response {
    let is_open = OPEN.contains(&request.uri().path());
    let (uri, headers) = (request.uri(), request.headers());
    let checked = of_one_meaning(uri, request.version(), headers)
        .and_then(|()| of_no_other_site(request.method(), uri, headers))
        .and_then(|()| match is_open {
            true => Ok(Granted(None)),
            false => access.grant(uri, headers),
        });
    let mut response = match checked {
        Ok(granted) => {
            request.extensions_mut().insert(granted);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in SAFE {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if response.status() == StatusCode::UNAUTHORIZED {
        let value = HeaderValue::from_static("Basic realm=\"rapidbyte\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
    response
}

/// Headers of all answers: no page of another site shows or reads them.
const SAFE: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
];

fn unauthorized(text: &str) -> Refusal {
    let hint = "send Authorization: Bearer TOKEN; rapidbyte serve token add makes a token";
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", text, hint)
}

/// The token of a request: as a bearer, or as the password that a browser asks for.
fn secret(headers: &HeaderMap) -> Option<String> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = given.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64.decode(value).ok()?).ok()?;
    decoded
        .split_once(':')
        .map(|(_, password)| password.to_owned())
}

/// A request of a web page of another site, with which a browser would send the password of this one.
fn of_no_other_site(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if method == Method::GET || method == Method::HEAD {
        return Ok(());
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_told =
        text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let origin = headers
        .get(ORIGIN)
        .map(|origin| origin.to_str().unwrap_or(""));
    let is_other = origin.is_some_and(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_none() || authority != host_of(uri, headers)
    });
    if !is_told && !is_other {
        return Ok(());
    }
    let hint = "send it from a program, or from the pages of this server";
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "cross_site",
        "the request comes from a page of another site",
        hint,
    ))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::tokens::{NewToken, Scope};

    #[test]
    fn tokens_whose_file_is_gone_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = TokenFile::of(folder.path());
        let access = Access::open(file.clone(), Ipv4Addr::LOCALHOST.into()).expect("no tokens");
        assert!(!access.needs_token());
        let scope = Scope::try_from("read".to_owned()).expect("a scope");
        let new = NewToken {
            name: String::new(),
            scopes: vec![scope],
            requests_per_second: None,
            bytes_per_second: None,
            rows_per_second: None,
            open_jobs: None,
        };
        let (token, _) = file.add(new).expect("a token");
        access.reload().expect("tokens");
        std::fs::remove_file(folder.path().join("tokens.json")).expect("removed");
        assert!(access.reload().is_err());
        assert!(access.needs_token());
        // The list without tokens is a decision.
        std::fs::write(
            folder.path().join("tokens.json"),
            "{\"version\":1,\"tokens\":[]}",
        )
        .expect("written");
        access.reload().expect("no tokens");
        assert!(!access.needs_token());
        assert!(!file.remove(&token.id).expect("not there"));
    }
}

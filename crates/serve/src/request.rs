//! The parts of a request, with errors in the form of the project.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::answer::Refusal;

/// As of [`BodyWait`], where a test calls a handler without a server.
const SMALL_BODY: Duration = Duration::from_secs(30);

/// The parts of the path that a route names.
pub struct Place<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Path::from_request_parts(parts, state).await;
        let Path(found) = found.map_err(|error| {
            let hint = "encode names in the path as UTF-8, percent-encoded";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_path",
                error.body_text(),
                hint,
            )
        })?;
        Ok(Self(found))
    }
}

/// A value that a query may have.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
}

impl Kind {
    /// Why the value is not allowed, if it is not.
    fn refuses(self, value: &str) -> Option<String> {
        match self {
            Self::Text => None,
            Self::Flag => Self::OneOf(&["true", "false"]).refuses(value),
            Self::Number(first, last) => {
                let number = whole_number(value);
                let is_allowed = number.is_some_and(|number| (first..=last).contains(&number));
                match last {
                    _ if is_allowed => None,
                    MAX_NUMBER => Some(format!("is not a whole number from {first} on")),
                    last => Some(format!("is not a whole number from {first} to {last}")),
                }
            }
            Self::OneOf(allowed) if allowed.contains(&value) => None,
            Self::OneOf(allowed) => Some(format!("is not one of {}", allowed.join(", "))),
        }
    }
}

/// A whole number in its one spelling: digits without a sign, and without a zero before others. A cache, a log and an access
/// rule in front of the server must not see two addresses of one thing.
pub fn whole_number(text: &str) -> Option<u64> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = !text.starts_with('0') || text == "0";
    text.parse().ok().filter(|_| is_digits && is_short)
}

/// The id in a path, as the store has it. `None` if no job and no run can have it.
pub fn id_of(text: &str) -> Option<i64> {
    i64::try_from(whole_number(text)?).ok()
}

/// The largest number of a query that has no other limit: that of the store.
pub const MAX_NUMBER: u64 = i64::MAX as u64;
/// Jobs or runs of a page, unless the client asks for another number.
pub const PAGE: u32 = 100;
/// Jobs or runs of a page at most.
pub const MAX_PAGE: u32 = 1000;
/// The parameter `limit` of a page.
pub const LIMIT: (&str, Kind) = ("limit", Kind::Number(1, MAX_PAGE as u64));
/// Characters of a value that a message repeats.
const MAX_SHOWN: usize = 100;

/// The query of a route.
pub trait Parameters {
    /// The names, and the values that each may have.
    const ALL: &'static [(&'static str, Kind)];
}

/// The query of a request.
pub struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Parameters + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let given: Result<Query<Vec<(String, String)>>, _> = Query::try_from_uri(&parts.uri);
        let Query(given) = given.map_err(|_| invalid_query("the query is not UTF-8".to_owned()))?;
        ensure_allowed(T::ALL, &given).map_err(invalid_query)?;
        // What remains are rules that the parameters do not tell.
        let found = Query::try_from_uri(&parts.uri);
        let Query(found) = found.map_err(|_| invalid_query("the query cannot be read".into()))?;
        Ok(Self(found))
    }
}

/// Refuses the query of a path that has no parameters.
///
/// # Errors
/// `invalid_query`.
pub async fn no_query(request: Request, next: Next) -> Result<Response, Refusal> {
    match request.uri().query() {
        None | Some("") => Ok(next.run(request).await),
        Some(query) => Err(invalid_query(format!(
            "this path has no parameters, and the request has the query {}",
            shown(query)
        ))),
    }
}

fn invalid_query(text: String) -> Refusal {
    let hint = "correct the part of the URL after the question mark";
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_query", text, hint)
}

/// Each parameter is one of the route, is there once, and has a value that it may have.
fn ensure_allowed(all: &[(&str, Kind)], given: &[(String, String)]) -> Result<(), String> {
    for (at, (name, value)) in given.iter().enumerate() {
        let Some((_, kind)) = all.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "this path has no parameter {}: it has {}",
                shown(name),
                names.join(", ")
            ));
        };
        if given[..at].iter().any(|(before, _)| before == name) {
            return Err(format!("the parameter {name} is there twice"));
        }
        if let Some(why) = kind.refuses(value) {
            return Err(format!("{name}={} {why}", shown(value)));
        }
    }
    Ok(())
}

/// A text of a client, quoted and not too long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// The longest wait for the whole of a small body. Each request has it as an extension.
#[derive(Clone, Copy)]
pub struct BodyWait(pub Duration);

/// Waits for the extractor of a small body. A client that sends half of one would otherwise hold its connection for ever.
async fn in_time<T>(
    wait: Option<BodyWait>,
    extracted: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let BodyWait(wait) = wait.unwrap_or(BodyWait(SMALL_BODY));
    let late = |_| Refusal::body_late(wait, "send the request again, with its whole body");
    timeout(wait, extracted).await.map_err(late)
}

/// A small body, whose limit the route says.
pub struct Given(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Given {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let wait = request.extensions().get().copied();
        let given = in_time(wait, Bytes::from_request(request, state)).await?;
        given.map(Self).map_err(|rejected| {
            let (code, hint) = match rejected.status() {
                StatusCode::PAYLOAD_TOO_LARGE => ("body_too_large", "send less"),
                _ => (
                    "invalid_body",
                    "send the request again, with its whole body",
                ),
            };
            Refusal::new(rejected.status(), code, rejected.body_text(), hint)
        })
    }
}

/// The JSON object in a body.
///
/// # Errors
/// `invalid_options` with the hint.
pub fn body_of<T: DeserializeOwned>(body: &[u8], hint: &'static str) -> Result<T, Refusal> {
    let refused =
        |text: String| Refusal::new(StatusCode::BAD_REQUEST, "invalid_options", text, hint);
    // Values of the fields in an array are values, too, to the parser.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(refused("the body is not a JSON object".into()));
    }
    serde_json::from_slice(body).map_err(|error| refused(format!("the body: {error}")))
}

/// The fields of a form.
pub struct Filled<T>(pub T);

impl<S: Send + Sync, T> FromRequest<S> for Filled<T>
where
    Form<T>: FromRequest<S, Rejection = FormRejection>,
{
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let wait = request.extensions().get().copied();
        let found = in_time(wait, Form::from_request(request, state)).await?;
        let Form(found) = found.map_err(|error: FormRejection| {
            let hint = "send the fields of the page's form as application/x-www-form-urlencoded";
            Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_form",
                error.body_text(),
                hint,
            )
        })?;
        Ok(Self(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_refused_by_the_name_the_value_and_what_is_allowed() {
        const ALL: &[(&str, Kind)] = &[
            LIMIT,
            ("after", Kind::Number(0, MAX_NUMBER)),
            ("wait", Kind::Flag),
            ("state", Kind::OneOf(&["done", "dead"])),
            ("stream", Kind::Text),
        ];
        let long = "x".repeat(200);
        let cut = format!(
            "this path has no parameter \"{}\"…: it has limit, after, wait, state, stream",
            "x".repeat(100)
        );
        for (name, value, expected) in [
            ("limit", "1000", None),
            (
                "limit",
                "0",
                Some("limit=\"0\" is not a whole number from 1 to 1000"),
            ),
            (
                "limit",
                "1001",
                Some("limit=\"1001\" is not a whole number from 1 to 1000"),
            ),
            (
                "limit",
                "+5",
                Some("limit=\"+5\" is not a whole number from 1 to 1000"),
            ),
            (
                "limit",
                "05",
                Some("limit=\"05\" is not a whole number from 1 to 1000"),
            ),
            (
                "limit",
                "",
                Some("limit=\"\" is not a whole number from 1 to 1000"),
            ),
            ("after", "0", None),
            (
                "after",
                "00",
                Some("after=\"00\" is not a whole number from 0 on"),
            ),
            ("after", "9223372036854775807", None),
            (
                "after",
                "9223372036854775808",
                Some("after=\"9223372036854775808\" is not a whole number from 0 on"),
            ),
            ("wait", "true", None),
            (
                "wait",
                "yes",
                Some("wait=\"yes\" is not one of true, false"),
            ),
            (
                "state",
                "Dead",
                Some("state=\"Dead\" is not one of done, dead"),
            ),
            ("stream", "", None),
            (&long, "", Some(&cut)),
        ] {
            let given = [(name.to_owned(), value.to_owned())];
            assert_eq!(
                ensure_allowed(ALL, &given).err().as_deref(),
                expected,
                "{name}={value}"
            );
        }
        let twice = [
            ("limit".to_owned(), "1".to_owned()),
            ("limit".to_owned(), "2".to_owned()),
        ];
        let text = "the parameter limit is there twice";
        assert_eq!(ensure_allowed(ALL, &twice).err().as_deref(), Some(text));
    }

    #[test]
    fn an_id_has_one_spelling() {
        for (text, id) in [("1", 1), ("0", 0), ("9223372036854775807", i64::MAX)] {
            assert_eq!(id_of(text), Some(id), "{text}");
        }
        for text in [
            "",
            "01",
            "00",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1.0",
            "1e0",
            "0x1",
            "\u{661}",
            "9223372036854775808",
        ] {
            assert_eq!(id_of(text), None, "{text:?}");
        }
    }
}

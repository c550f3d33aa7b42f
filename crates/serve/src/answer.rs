//! Errors in the form of the project: a code, what happened, what to do next.

use std::io;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::runs::RunsError;
use crate::store::{Spent, StoreError};

/// Seconds after which a client of a full queue tries again.
const RETRY_SECONDS: u64 = 5;

/// An answer as JSON, with a newline at its end: the prompt of a shell is on a line of its own.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut body = match serde_json::to_vec(&self.0) {
            Ok(body) => body,
            // Values of our own types always are JSON.
            Err(error) => return Refusal::spool_failed(&error.to_string()).into_response(),
        };
        body.push(b'\n');
        let json = HeaderValue::from_static("application/json");
        ([(CONTENT_TYPE, json)], body).into_response()
    }
}

/// A request that was not taken.
#[derive(Debug, Clone)]
pub struct Refusal {
    status: StatusCode,
    /// Seconds after which the request may be sent again.
    retry_after: Option<u64>,
    code: &'static str,
    message: String,
    hint: &'static str,
}

impl Refusal {
    /// With a code from `docs/errors.md`.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        let is_for_now = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        Self {
            status,
            retry_after: is_for_now.then_some(RETRY_SECONDS),
            code,
            message: message.into(),
            hint,
        }
    }

    /// Its code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The same about one part of a request, counted from 1. The parts are jobs together, or not at all.
    #[must_use]
    pub fn of_part(mut self, part: usize) -> Self {
        self.message = format!("part {part}: {}; no part is stored", self.message);
        self
    }

    /// A body that is not parts as its headers say.
    pub fn invalid_multipart(why: impl Into<String>) -> Self {
        let hint = "send 1 to 100 files as multipart/form-data, such as: curl -F file=@a.jsonl";
        Self::new(StatusCode::BAD_REQUEST, "invalid_multipart", why, hint)
    }

    /// A token that has used up its rate.
    pub fn rate_limited(seconds: u64) -> Self {
        let text = "the token has used up its rate";
        let hint = "send it again after the seconds of Retry-After";
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", text, hint)
        }
    }

    /// A token that has used up a limit of the store.
    pub fn spent(spent: Spent) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        match spent {
            Spent::OpenJobs(limit) => {
                let text = format!("the token may have {limit} pending jobs, and has them");
                let hint = "send it again when some of its jobs have ended, as fewer jobs if it has several parts";
                Self::new(status, "too_many_open_jobs", text, hint)
            }
            Spent::Rows(seconds) => Self {
                message: "the token has used up its rows a second".to_owned(),
                ..Self::rate_limited(seconds)
            },
        }
    }

    /// A body above the limit.
    pub fn body_too_large(limit: u64) -> Self {
        let text = format!("the body has more than {limit} bytes");
        let hint = "send it in several requests";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", text, hint)
    }

    /// A client that does not go on.
    pub fn body_timeout(waited: Duration) -> Self {
        let text = format!("no byte of the body came for {} s", waited.as_secs());
        let hint = "send the request again; with an Idempotency-Key it is stored once";
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", text, hint)
    }

    /// A body that has to come whole.
    pub fn body_late(wait: Duration, hint: &'static str) -> Self {
        let text = format!("the body did not come within {} s", wait.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", text, hint)
    }

    /// A client that goes on too slowly.
    pub fn body_too_slow(slowest: u64) -> Self {
        let text = format!("the body comes with less than {slowest} bytes a second");
        let hint = "send smaller bodies, or compress them";
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", text, hint)
    }

    /// A body that ended before its end.
    pub fn body_broken(why: &str) -> Self {
        let text = format!("the body could not be read: {why}");
        let hint = "send the request again; with an Idempotency-Key it is stored once";
        Self::new(StatusCode::BAD_REQUEST, "body_broken", text, hint)
    }

    /// No room for a body.
    pub fn disk_full() -> Self {
        let text = "the disk of the server has no room for the body";
        let hint = "send it again later; the operator has to free space, or to lower --keep-free";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "disk_full", text, hint)
    }

    /// No room in the queue.
    pub fn queue_full() -> Self {
        let text =
            "the queue has as many jobs, or as many bytes of pending and dead jobs, as it may have";
        let hint = "send it again after the seconds of Retry-After";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", text, hint)
    }

    /// The disk did not take the body.
    pub fn of_spool(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::disk_full(),
            _ => Self::spool_failed(&error.to_string()),
        }
    }

    /// The body could not be written.
    pub fn spool_failed(why: &str) -> Self {
        let text = format!("the body could not be stored: {why}");
        let hint = "send it again; the log of the server has the error";
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "spool_failed",
            text,
            hint,
        )
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let hint = "send it again after the seconds of Retry-After";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        match error {
            StoreError::Busy => Self::new(status, "store_busy", error.to_string(), hint),
            StoreError::Closed => Self::new(status, "server_ends", "the server ends", hint),
            StoreError::Sqlite(_) | StoreError::Version(_) => {
                Self::new(status, "store_failed", error.to_string(), hint)
            }
        }
    }
}

impl From<RunsError> for Refusal {
    fn from(error: RunsError) -> Self {
        let hint = "send it again after the seconds of Retry-After";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        match error {
            RunsError::Busy => Self::new(status, "store_busy", error.to_string(), hint),
            RunsError::Closed => Self::new(status, "server_ends", "the server ends", hint),
            RunsError::Sqlite(_) | RunsError::Version(_) | RunsError::System(..) => {
                Self::new(status, "store_failed", error.to_string(), hint)
            }
        }
    }
}

/// An error as JSON, with its code, what happened and what to do next. Answers have it as an extension, for those that show
/// it as a page.
#[derive(Debug, Clone)]
pub struct Told(pub Value);

impl Told {
    /// The answer.
    pub fn into_response(self, status: StatusCode) -> Response {
        let body = json!({ "status": "error", "error": self.0 });
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "message": self.message, "hint": self.hint });
        let mut response = Told(error).into_response(self.status);
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        // For those that count it.
        response.extensions_mut().insert(self);
        response
    }
}

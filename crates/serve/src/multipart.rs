//! `multipart/form-data`: several files in one request, each a job.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, TryStreamExt};
use http_body_util::BodyDataStream;
use multer::{Field, Multipart, parse_boundary};
use serde_json::json;
use tokio::time::timeout;

use crate::answer::{Json, Refusal};
use crate::ingest::{
    Arrived, Ends, Form, Shared, Wanted, admit, coding, encoding, format, key, media_type_of,
    of_ended, of_state, refusal_of,
};
use crate::store::Admitted;

/// Parts of a request. Each is a job, and the jobs are stored in one transaction.
const MAX_PARTS: usize = 100;
/// Bytes that come before the data of a part: its boundary and its headers. Whatever else the parser holds is one piece
/// of the body.
const MAX_HEAD: usize = 16 << 10;
const MEDIA_TYPE: &str = "multipart/form-data";

/// Media types that say nothing about the format of a file.
const PLAIN: [&str; 5] = [
    "",
    "application/octet-stream",
    "application/gzip",
    "application/x-gzip",
    "application/zstd",
];
/// Endings of file names and their formats.
const ENDINGS: [(&str, &str); 9] = [
    ("jsonl", "jsonl"),
    ("ndjson", "jsonl"),
    ("json", "json"),
    ("csv", "csv"),
    ("parquet", "parquet"),
    ("pq", "parquet"),
    ("arrow", "arrow"),
    ("arrows", "arrow"),
    ("feather", "arrow"),
];
/// Endings behind them, and their content codings.
const PACKED: [(&str, &str); 2] = [(".gz", "gzip"), (".zst", "zstd")];

/// Whether the body of a request has parts.
pub(crate) fn is_multipart(headers: &HeaderMap) -> bool {
    media_type_of(headers).eq_ignore_ascii_case(MEDIA_TYPE)
}

/// Receives all parts, then makes them jobs: all of them, or none.
///
/// # Errors
/// `invalid_multipart`, and the errors of a body, with the number of the part from 1.
pub(crate) async fn take(
    shared: &Shared,
    wanted: &Wanted,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Vec<Admitted>, Refusal> {
    let rules = wanted.rules(shared)?;
    for given in headers.get_all(CONTENT_ENCODING) {
        coding(given.to_str().unwrap_or("?"), MEDIA_TYPE)?;
    }
    let key = key(headers)?;
    wanted.ensure_unspent(shared).await?;
    let given = headers
        .get(CONTENT_TYPE)
        .and_then(|given| given.to_str().ok());
    let boundary = parse_boundary(given.unwrap_or_default());
    let boundary = boundary.map_err(|error| Refusal::invalid_multipart(error.to_string()))?;
    let head = Arc::new(AtomicUsize::new(MAX_HEAD));
    let pieces = Pieces {
        body: BodyDataStream::new(body),
        head: Arc::clone(&head),
        rests: false,
    };
    let mut parts = Multipart::new(pieces, boundary);
    let mut arrived = Vec::new();
    while let Some(part) = next(shared, &mut parts, &head).await? {
        let number = arrived.len() + 1;
        if number > MAX_PARTS {
            let text = format!("the request has more than {MAX_PARTS} parts");
            return Err(Refusal::invalid_multipart(text));
        }
        let form = form(&part).and_then(|form| rules.takes(form.format).map(|()| form));
        let form = form.map_err(|refusal| refusal.of_part(number))?;
        let key = key.as_ref().map(|key| format!("{key}/{number}"));
        let data = part.map_err(|error| told(&error));
        let received = shared.receiver.receive(data, None).await;
        let received = received.map_err(|refusal| refusal.of_part(number))?;
        arrived.push(Arrived::new(wanted, rules, form, key, received));
    }
    if arrived.is_empty() {
        return Err(Refusal::invalid_multipart("the request has no part"));
    }
    let outcome = admit(shared, arrived).await?;
    outcome.map_err(|(at, refused)| refusal_of(refused).of_part(at + 1))
}

/// The next part, whose data is not received yet.
async fn next<'b>(
    shared: &Shared,
    parts: &mut Multipart<'b>,
    head: &AtomicUsize,
) -> Result<Option<Field<'b>>, Refusal> {
    head.store(MAX_HEAD, Ordering::Relaxed);
    let idle = shared.receiver.idle();
    let part = timeout(idle, parts.next_field()).await;
    let part = part.map_err(|_| Refusal::body_timeout(idle))?;
    head.store(usize::MAX, Ordering::Relaxed);
    part.map_err(|error| match &error {
        multer::Error::StreamReadFailed(cause) if !cause.is::<HeadTooLong>() => {
            Refusal::body_broken(&cause.to_string())
        }
        _ => Refusal::invalid_multipart(told(&error)),
    })
}

/// The error with its cause, which it does not tell itself.
fn told(error: &multer::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The format of a part: by its Content-Type, or by the ending of its file name if that says nothing. Its compression: by
/// its Content-Encoding, or by the ending.
fn form(part: &Field<'_>) -> Result<Form, Refusal> {
    let headers = part.headers();
    let name = part.file_name().unwrap_or_default().to_ascii_lowercase();
    let mut packed = PACKED.iter();
    let packed = packed.find_map(|(ending, coding)| Some((name.strip_suffix(ending)?, *coding)));
    let (name, packed) =
        packed.map_or((name.as_str(), None), |(name, coding)| (name, Some(coding)));
    let given = media_type_of(headers);
    let is_plain = PLAIN.iter().any(|plain| given.eq_ignore_ascii_case(plain));
    let format = match is_plain {
        false => format(headers)?,
        true => by_ending(name)?,
    };
    let encoding = match packed {
        _ if headers.contains_key(CONTENT_ENCODING) => encoding(headers, format)?,
        Some(packed) => coding(packed, format)?,
        None => None,
    };
    Ok(Form { format, encoding })
}

fn by_ending(name: &str) -> Result<&'static str, Refusal> {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let mut known = ENDINGS.iter();
    let format = known.find(|(known, _)| *known == ending);
    format.map(|(_, format)| *format).ok_or_else(|| {
        Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_format",
            format!("neither a Content-Type nor the file name {name:?} says the format"),
            "give the part a Content-Type, or a file name that ends with .jsonl, .json, .csv, .parquet or .arrow",
        )
    })
}

/// The answer about all parts: 422 if one of their jobs is known as dead or cancelled, or 202 if one is new, or 200. If
/// the request waits: 422 if one is dead or cancelled, or 202 if one is still pending, or 200.
pub(crate) async fn answer_of(
    shared: &Shared,
    admitted: Vec<Admitted>,
    waits: bool,
    ends: Option<Ends>,
) -> Response {
    let is_new = admitted.iter().any(|one| matches!(one, Admitted::New(_)));
    let jobs = admitted.into_iter().map(Admitted::into_job);
    let mut jobs: Vec<_> = jobs.collect();
    let of_job = match waits {
        false => of_state,
        true => {
            jobs = shared.ends_of(jobs, ends).await;
            of_ended
        }
    };
    let of_all = |wanted: StatusCode| jobs.iter().any(|job| of_job(job.state) == wanted);
    let status = if of_all(StatusCode::UNPROCESSABLE_ENTITY) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else if of_all(StatusCode::ACCEPTED) || is_new && !waits {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    (status, Json(json!({ "status": "ok", "jobs": jobs }))).into_response()
}

/// More bytes than the head of a part may have.
#[derive(Debug, thiserror::Error)]
#[error("the headers of a part have more than {MAX_HEAD} bytes")]
struct HeadTooLong;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body for the parser, which takes everything that is there. So that it holds one piece at a time, and only a
/// limited number while it looks for the data of a part, this is not ready after each piece.
struct Pieces<'b> {
    body: BodyDataStream<&'b mut Body>,
    /// Bytes that the parser may take now.
    head: Arc<AtomicUsize>,
    /// A piece was given.
    rests: bool,
}

impl Stream for Pieces<'_> {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.rests) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = this.head.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Some(Err(HeadTooLong.into())));
        }
        let piece = ready!(Pin::new(&mut this.body).poll_next(context));
        if let Some(Ok(bytes)) = &piece {
            this.rests = true;
            if left != usize::MAX {
                this.head
                    .store(left.saturating_sub(bytes.len()), Ordering::Relaxed);
            }
        }
        Poll::Ready(piece.map(|piece| piece.map_err(Into::into)))
    }
}

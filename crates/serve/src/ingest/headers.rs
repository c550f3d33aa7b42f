//! The headers of a request with a body: its format, its compression and its key.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode};

use crate::answer::Refusal;

/// Media types and the formats of their bodies.
const FORMATS: [(&str, &str); 7] = [
    ("application/x-ndjson", "jsonl"),
    ("application/jsonl", "jsonl"),
    ("application/jsonlines", "jsonl"),
    ("application/json", "json"),
    ("text/csv", "csv"),
    ("application/vnd.apache.parquet", "parquet"),
    ("application/vnd.apache.arrow.stream", "arrow"),
];
/// Content codings.
const ENCODINGS: [&str; 2] = ["gzip", "zstd"];
/// Characters of an `Idempotency-Key`.
const MAX_KEY: usize = 255;
const KEY: &str = "idempotency-key";

/// The media type of a body, without parameters. Empty if it has none.
pub(crate) fn media_type_of(headers: &HeaderMap) -> &str {
    let given = headers.get(CONTENT_TYPE);
    let given = given.and_then(|value| value.to_str().ok()).unwrap_or("");
    given.split(';').next().unwrap_or("").trim()
}

/// The character set that the media type names.
fn charset_of(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let mut parameters = given.split(';').skip(1);
    parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"'))
    })
}

/// The format of the body, by its media type.
pub(crate) fn format(headers: &HeaderMap) -> Result<&'static str, Refusal> {
    let given = media_type_of(headers);
    if let Some(charset) = charset_of(headers)
        && !charset.eq_ignore_ascii_case("utf-8")
    {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_format",
            format!("the charset {charset:?} is not known"),
            "send text as UTF-8",
        ));
    }
    let mut known = FORMATS.iter();
    let format = known.find(|(name, _)| given.eq_ignore_ascii_case(name));
    format.map(|(_, format)| *format).ok_or_else(|| {
        let text = match given {
            "" => "the request has no Content-Type".to_owned(),
            given => format!("the Content-Type {given:?} is not known"),
        };
        let hint = "send application/x-ndjson, application/json, text/csv, application/vnd.apache.parquet or \
                    application/vnd.apache.arrow.stream, or such files as multipart/form-data";
        Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unknown_format",
            text,
            hint,
        )
    })
}

/// The media type of a format.
pub(crate) fn media_type(format: &str) -> HeaderValue {
    let mut known = FORMATS.iter();
    let name = known.find(|(_, known)| *known == format);
    HeaderValue::from_static(name.map_or("application/octet-stream", |(name, _)| name))
}

/// The content coding of the body. `None` for a body that is not compressed.
pub(crate) fn encoding(headers: &HeaderMap, format: &str) -> Result<Option<&'static str>, Refusal> {
    let transfer = listed(headers, &TRANSFER_ENCODING);
    if !transfer.is_empty() && !transfer.eq_ignore_ascii_case("chunked") {
        return Err(unknown_encoding("Transfer-Encoding", &transfer, format));
    }
    let given = listed(headers, &CONTENT_ENCODING);
    match given.is_empty() {
        true => Ok(None),
        false => coding(&given, format),
    }
}

/// All values of a header as one list.
fn listed(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<&str> = values
        .map(|value| value.to_str().unwrap_or("?").trim())
        .collect();
    values.join(", ")
}

/// The content coding with this name.
pub(crate) fn coding(given: &str, format: &str) -> Result<Option<&'static str>, Refusal> {
    if given.eq_ignore_ascii_case("identity") {
        return Ok(None);
    }
    let mut known = ENCODINGS.into_iter();
    let found = known.find(|name| is_text(format) && given.eq_ignore_ascii_case(name));
    found
        .map(Some)
        .ok_or_else(|| unknown_encoding("Content-Encoding", given, format))
}

fn unknown_encoding(header: &str, given: &str, format: &str) -> Refusal {
    let text = format!("the {header} {given:?} is not known for {format}");
    let hint = "send CSV, JSON Lines and JSON as gzip, zstd or without compression, and other formats without";
    Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unknown_encoding",
        text,
        hint,
    )
}

/// Whether a format may be compressed as a whole. Parquet and Arrow compress their columns.
fn is_text(format: &str) -> bool {
    matches!(format, "jsonl" | "json" | "csv")
}

/// The client's name for this request.
pub(crate) fn key(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(given) = headers.get(KEY) else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or("").trim();
    let is_twice = headers.get_all(KEY).iter().nth(1).is_some();
    if text.is_empty() || text.len() > MAX_KEY || is_twice {
        let hint = "send one of up to 255 visible characters, such as a UUID";
        let text = match is_twice {
            true => "the Idempotency-Key is there twice",
            false => "the Idempotency-Key is empty, too long, or not ASCII",
        };
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "invalid_idempotency_key",
            text,
            hint,
        ));
    }
    Ok(Some(text.to_owned()))
}

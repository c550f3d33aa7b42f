//! The error of a status, and who acts on it.

use rapidbyte_sdk::{Error, ErrorKind};
use serde::Deserialize;

/// Characters of an answer that a message shows.
const SHOWN_CHARS: usize = 300;

/// The error of an answer ("HTTP status codes for Azure Cosmos DB"). `retry_after_ms` is what the server asks for.
pub(crate) fn of(
    status: u16,
    substatus: Option<&str>,
    retry_after_ms: Option<u64>,
    body: &[u8],
    asked: &str,
) -> Error {
    let (kind, code, hint) = match status {
        401 => (
            ErrorKind::Auth,
            "cosmos_unauthorized",
            "check the key, and the clock of this machine: a signature is valid for 15 minutes",
        ),
        403 => (
            ErrorKind::Auth,
            "cosmos_unauthorized",
            "check the firewall of the account, that the key may write, and that the partition is not full",
        ),
        404 => (
            ErrorKind::Config,
            "cosmos_not_found",
            "check the names of the database and the container",
        ),
        409 => (
            ErrorKind::Data,
            "cosmos_conflict",
            "another document has this id, or a value that must be unique; write_mode: upsert replaces documents by their id",
        ),
        412 => (
            ErrorKind::Data,
            "cosmos_precondition",
            "run again: somebody changed the document meanwhile",
        ),
        413 => (
            ErrorKind::Data,
            "document_too_large",
            "leave the row out, or store large values elsewhere",
        ),
        429 => (
            ErrorKind::RateLimited(retry_after_ms),
            "cosmos_rate_limited",
            "raise the throughput of the container, or lower requests_in_flight",
        ),
        449 => (
            ErrorKind::Transient,
            "cosmos_retry_with",
            "run again later: others write the same document",
        ),
        408 | 410 | 424 | 500.. => (
            ErrorKind::Transient,
            "cosmos_unavailable",
            "run again later",
        ),
        _ => (
            ErrorKind::Data,
            "cosmos_refused",
            "change the document, the query or the settings as the server says",
        ),
    };
    let sub = substatus.filter(|sub| *sub != "0" && !sub.is_empty());
    let sub = sub.map_or(String::new(), |sub| format!(".{sub}"));
    let said = said(body);
    let text = match said.is_empty() {
        true => format!("{asked}: the server answers {status}{sub}"),
        false => format!("{asked}: the server answers {status}{sub}: {said}"),
    };
    Error::new(kind, code, text).hint(hint)
}

/// The first characters of the server's message, on one line.
fn said(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let text = match serde_json::from_slice::<Said>(body) {
        Ok(said) => said.message,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let text = words.join(" ");
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// An answer that is not of the protocol.
pub(crate) fn violation(what: &str) -> Error {
    let text = format!("the server's answer is not one of Cosmos DB: {what}");
    Error::new(ErrorKind::Connection, "protocol_violation", text)
        .hint("check that endpoint is the URL of an account of Azure Cosmos DB for NoSQL")
}

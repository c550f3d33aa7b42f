//! The error of a status, and who acts on it.

use rapidbyte_sdk::{Error, ErrorKind};
use serde::Deserialize;

/// Characters of an answer that a message shows.
const SHOWN_CHARS: usize = 400;
/// Causes of a reason that a message shows.
const SHOWN_CAUSES: usize = 3;

/// Why the server refuses a request or a row.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Said {
    /// Such as `mapper_parsing_exception`.
    #[serde(default, rename = "type")]
    pub ty: String,
    /// For people.
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    caused_by: Option<Box<Said>>,
}

impl Said {
    /// The reason of an answer with an error's status.
    pub fn of(body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Whole {
            error: Said,
        }
        match serde_json::from_slice::<Whole>(body) {
            Ok(whole) => whole.error,
            // A proxy, or a short form of the server.
            Err(_) => Self {
                reason: Some(String::from_utf8_lossy(body).into_owned()),
                ..Self::default()
            },
        }
    }

    /// The first characters of the reason with its causes, on one line.
    fn shown(&self) -> String {
        let mut parts = Vec::new();
        let mut next = Some(self);
        while let Some(said) = next.filter(|_| parts.len() <= SHOWN_CAUSES) {
            parts.extend(said.reason.as_deref());
            next = said.caused_by.as_deref();
        }
        parts.dedup();
        let text = parts.join(": ");
        let words: Vec<&str> = text
            .split(|c: char| c.is_whitespace() || c.is_control())
            .filter(|word| !word.is_empty())
            .collect();
        let text = words.join(" ");
        let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        match self.ty.is_empty() {
            true => shown,
            false => format!("{}: {shown}", self.ty),
        }
    }

    /// The field that the reason names: `failed to parse field [n] of type [long]`.
    pub fn field(&self) -> Option<&str> {
        let (_, rest) = self.reason.as_deref()?.split_once("field [")?;
        rest.split_once(']').map(|(name, _)| name)
    }
}

/// The error of a status, of a request or of a row. `asked` says what was asked.
pub(crate) fn of(status: u16, said: &Said, retry_after_ms: Option<u64>, asked: &str) -> Error {
    let (kind, code, hint) = match status {
        401 => (
            ErrorKind::Auth,
            "opensearch_unauthorized",
            "check username and password, or api_key",
        ),
        // An index whose writes are blocked answers so, too.
        403 => (
            ErrorKind::Auth,
            "opensearch_unauthorized",
            "check the privileges of the user, and that the index does not block writes",
        ),
        404 => (
            ErrorKind::Schema,
            "opensearch_not_found",
            "check that nobody deletes the index while a run writes to it",
        ),
        409 => (
            ErrorKind::Data,
            "opensearch_conflict",
            "another document has this _id; write_mode: upsert replaces documents by their _id",
        ),
        413 => (
            ErrorKind::Data,
            "document_too_large",
            "leave the row out, or raise http.max_content_length of the cluster",
        ),
        429 => (
            ErrorKind::RateLimited(retry_after_ms),
            "opensearch_rate_limited",
            "lower requests_in_flight and bulk_rows, give the cluster more nodes, or free disk space if the reason says so",
        ),
        408 | 500.. => (
            ErrorKind::Transient,
            "opensearch_unavailable",
            "check the health of the cluster, and run again later",
        ),
        _ => (
            ErrorKind::Data,
            "opensearch_refused",
            "change the row, the mapping of the index or the settings as the server says",
        ),
    };
    let shown = said.shown();
    let text = match shown.is_empty() {
        true => format!("{asked}: the server answers {status}"),
        false => format!("{asked}: the server answers {status}: {shown}"),
    };
    Error::new(kind, code, text).hint(hint)
}

/// An answer that is not of the protocol.
pub(crate) fn violation(what: impl std::fmt::Display) -> Error {
    let text = format!("the server's answer is not one of OpenSearch: {what}");
    Error::new(ErrorKind::Connection, "protocol_violation", text)
        .hint("check that url is the URL of an OpenSearch or Elasticsearch cluster")
}

/// The server has refused a request of Rapidbyte itself, and not a row.
pub(crate) fn not_of_row(mut error: Error) -> Error {
    if matches!(error.kind, ErrorKind::Data) {
        error.kind = ErrorKind::Config;
    }
    error
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_shown_with_its_causes_and_names_its_field() {
        let body = br#"{"error":{"root_cause":[],"type":"mapper_parsing_exception","reason":"failed to parse field [n] of type [long] in document with id 'b'",
            "caused_by":{"type":"illegal_argument_exception","reason":"For input\n string: \"x\""}},"status":400}"#;
        let said = Said::of(body);
        assert_eq!(said.field(), Some("n"));
        let error = of(400, &said, None, "write");
        assert_eq!(
            error.message,
            "write: the server answers 400: mapper_parsing_exception: failed to parse field [n] of type [long] in document \
             with id 'b': For input string: \"x\""
        );
        assert!(matches!(error.kind, ErrorKind::Data));
        let plain = of(502, &Said::of(b"<html>"), None, "write");
        assert!(plain.message.ends_with("502: <html>"), "{}", plain.message);
    }
}

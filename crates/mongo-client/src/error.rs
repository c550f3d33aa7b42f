//! What a server reports, as errors that say who acts.

use rapidbyte_bson::{BsonError, Document, Value};
use rapidbyte_sdk::{Error, ErrorKind};

/// Starts the code of an error that a server reports.
const PREFIX: &str = "mongo_";
/// A longer message of a server is cut: it may repeat a whole document.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// A server that breaks the protocol: `protocol_violation`, for a connection that is of no further use.
pub fn protocol(what: impl std::fmt::Display) -> Error {
    let text = format!("the server breaks the protocol: {what}");
    Error::new(ErrorKind::Connection, "protocol_violation", text)
        .hint("check that a MongoDB server listens there, and what is between it and this machine")
}

/// A document that is not BSON.
pub(crate) fn malformed(error: BsonError) -> Error {
    protocol(error)
}

/// A document that cannot be sent.
pub(crate) fn unsendable(error: BsonError) -> Error {
    Error::data("invalid_document", error)
        .hint("names of fields and databases cannot contain a NUL byte")
}

/// The number of the server's error that this is; `None` for any other error.
pub fn number_of(error: &Error) -> Option<i32> {
    error.code.strip_prefix(PREFIX)?.parse().ok()
}

/// An error that an answer reports: a command that failed, or a write concern that was not met.
pub(crate) fn reported(document: Document<'_>) -> Result<Error, BsonError> {
    let number = document.get("code")?.and_then(|code| code.as_whole());
    let number = number.and_then(|number| i32::try_from(number).ok());
    let message = match document.get("errmsg")? {
        Some(Value::String(text)) => text,
        _ => "the server reports an error without a message",
    };
    let has_label = |name: &str| -> Result<bool, BsonError> {
        let Some(Value::Array(labels)) = document.get("errorLabels")? else {
            return Ok(false);
        };
        for label in labels.elements() {
            if label?.1 == Value::String(name) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let is_transient = has_label("TransientTransactionError")? || has_label("RetryableWriteError")?;
    Ok(server_error(number.unwrap_or(0), message, is_transient))
}

/// The error with this number and message.
pub(crate) fn server_error(number: i32, message: &str, is_transient: bool) -> Error {
    let (kind, hint) = about(number);
    let kind = match is_transient {
        true => ErrorKind::Transient,
        false => kind,
    };
    let error = Error::new(kind, &format!("{PREFIX}{number}"), cut(message));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A message that is not longer than messages may be.
fn cut(message: &str) -> &str {
    match message.len() > MAX_MESSAGE_BYTES {
        true => &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)],
        false => message,
    }
}

/// Who acts, and how, by the number (MongoDB manual, "Error Codes").
fn about(number: i32) -> (ErrorKind, Option<&'static str>) {
    const RIGHTS: &str = "check that the URL has a user, and grant the user a role with this right, such as readWrite of the \
         database";
    const ELECTION: &str = "the run retries; if it repeats, check rs.status()";
    match number {
        // Unauthorized.
        13 => (ErrorKind::Auth, Some(RIGHTS)),
        // AuthenticationFailed; of Atlas.
        18 | 8000 => (
            ErrorKind::Auth,
            Some("check user, password and authSource of the URL"),
        ),
        // UserNotFound, MechanismUnavailable.
        11 | 334 => (
            ErrorKind::Auth,
            Some("check user, authSource and authMechanism of the URL"),
        ),
        // NotWritablePrimary and its kin, InterruptedDueToReplStateChange, PrimarySteppedDown, ShutdownInProgress.
        10058 | 10107 | 11600 | 11602 | 13435 | 13436 | 189 | 91 => {
            (ErrorKind::Transient, Some(ELECTION))
        }
        // HostUnreachable, HostNotFound, NetworkTimeout, SocketException, LockTimeout, LockBusy, WriteConflict,
        // ExceededTimeLimit, StaleConfig, MaxTimeMSExpired, SnapshotTooOld, SnapshotUnavailable.
        6 | 7 | 24 | 46 | 50 | 89 | 9001 | 112 | 134 | 150 | 239 | 246 | 262 | 13388 => {
            (ErrorKind::Transient, None)
        }
        // CursorNotFound, CursorKilled, QueryPlanKilled.
        43 | 237 | 175 => (
            ErrorKind::Transient,
            Some("the server closed the cursor: it restarted, or the read waited for too long"),
        ),
        // WriteConcernFailed.
        64 => (
            ErrorKind::Transient,
            Some("check that enough members of the replica set run, or raise wtimeoutMS"),
        ),
        // Of Azure Cosmos DB: too many requests.
        16500 => (ErrorKind::RateLimited(None), None),
        // DuplicateKey and its older numbers, DocumentValidationFailure, BSONObjectTooLarge.
        11000 | 11001 | 12582 | 121 | 10334 | 17280 => (ErrorKind::Data, None),
        // NamespaceNotFound, NamespaceExists, IndexNotFound.
        26 | 48 | 27 => (ErrorKind::Schema, None),
        // InvalidNamespace.
        73 => (
            ErrorKind::Config,
            Some("choose another name for the collection: the server does not accept this one"),
        ),
        // BadValue, FailedToParse, TypeMismatch.
        2 | 9 | 14 => (
            ErrorKind::Config,
            Some(
                "correct the value that the message names: `where` of the stream, or an option of the URL",
            ),
        ),
        // CommandNotFound.
        59 => (
            ErrorKind::Config,
            Some("the server is too old for this, or not MongoDB"),
        ),
        // UnknownReplWriteConcern, CannotSatisfyWriteConcern.
        79 | 100 => (
            ErrorKind::Config,
            Some("check the write concern (`w`) against the members of the replica set"),
        ),
        _ => (ErrorKind::Config, None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rapidbyte_bson::Builder;

    use super::*;

    #[test]
    fn an_error_of_the_server_has_its_number_and_says_who_acts() {
        let report = |code: i32, label: &str| {
            let mut builder = Builder::new();
            builder
                .int32("ok", 0)
                .string("errmsg", "no")
                .int32("code", code);
            builder.open_array("errorLabels").string("0", label).close();
            let bytes = builder.finish().unwrap();
            reported(Document::parse(&bytes).unwrap()).unwrap()
        };
        let error = report(11000, "Other");
        assert_eq!(
            (error.code.as_str(), number_of(&error)),
            ("mongo_11000", Some(11000))
        );
        assert!(matches!(error.kind, ErrorKind::Data));
        assert!(matches!(report(18, "").kind, ErrorKind::Auth));
        let hint = report(2, "").hint.unwrap();
        assert!(hint.contains("`where`"), "{hint}");
        assert!(matches!(report(10107, "").kind, ErrorKind::Transient));
        let labelled = report(251, "TransientTransactionError");
        assert!(matches!(labelled.kind, ErrorKind::Transient));
        assert_eq!(number_of(&protocol("x")), None);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = server_error(1, &"ü".repeat(MAX_MESSAGE_BYTES), false);
        assert_eq!(error.message.len(), MAX_MESSAGE_BYTES);
        let error = server_error(1, &format!("a{}", "ü".repeat(MAX_MESSAGE_BYTES)), false);
        assert_eq!(error.message.len(), MAX_MESSAGE_BYTES - 1);
    }
}

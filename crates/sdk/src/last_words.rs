//! The error of a connector when a library that it calls panics.
//!
//! Some decoders panic for damaged data. A native program can catch a panic. A component ends with it, and
//! the host would report a fault of the connector. This module gives the host a better error to report.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

use crate::Error;

/// The prefix of the line on standard error by which the host knows the error of a component that
/// has ended.
const MARK: &str = "rapidbyte-error: ";

thread_local! {
    static PENDING: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Runs `decode`. If it panics, the component ends and the host reports `error`, with the kind
/// `data`.
pub fn decoding<T>(error: Error, decode: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            if let Some(error) = PENDING.take() {
                eprintln!("{MARK}{}", line(&error));
            }
        }));
    });
    PENDING.set(Some(error));
    let decoded = decode();
    PENDING.set(None);
    decoded
}

fn line(error: &Error) -> serde_json::Value {
    serde_json::json!({
        "code": error.code, "message": error.message, "hint": error.hint,
        "stream": error.stream, "column": error.column, "location": error.location,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_for_a_panic_and_no_longer() {
        let error = || Error::data("damaged", "a page").at("a.parquet");
        assert_eq!(decoding(error(), || 7), 7);
        assert!(PENDING.take().is_none());
        let panicked = panic::catch_unwind(|| decoding(error(), || panic!("on purpose")));
        assert!(panicked.is_err() && PENDING.take().is_none());
        assert_eq!(line(&error())["location"], "a.parquet");
    }
}

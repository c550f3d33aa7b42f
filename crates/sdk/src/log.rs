//! Messages for the operator; natively they go to standard error.

pub use crate::bindings::log::Level;

/// Sends one message. Tell facts, not progress: the host limits how much a connector may say.
pub fn log(level: Level, message: &str) {
    #[cfg(target_family = "wasm")]
    crate::bindings::log::log(level, message);
    #[cfg(not(target_family = "wasm"))]
    eprintln!("{level:?}: {message}");
}

/// Something the operator should look at although the run goes on.
pub fn warn(message: impl std::fmt::Display) {
    log(Level::Warn, &message.to_string());
}

/// A fact of the run.
pub fn info(message: impl std::fmt::Display) {
    log(Level::Info, &message.to_string());
}

/// Shown with `-v` only.
pub fn debug(message: impl std::fmt::Display) {
    log(Level::Debug, &message.to_string());
}

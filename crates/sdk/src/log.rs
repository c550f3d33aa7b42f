//! Messages for the operator; natively they go to standard error.

pub use crate::bindings::log::Level;

/// Sends one message. Tell facts, not progress: the host limits how much a connector may say.
pub fn log(level: Level, message: &str) {
    #[cfg(target_family = "wasm")]
    crate::bindings::log::log(level, message);
    #[cfg(not(target_family = "wasm"))]
    eprintln!("{level:?}: {message}");
}

/// Reaches a failpoint of the delivery protocol, such as `dest-postgres.commit`: a place where a crash
/// would matter. Tests of faults end the process here.
///
/// # Errors
/// When such a test asks for one.
pub fn failpoint(name: &str) -> crate::Result<()> {
    #[cfg(target_family = "wasm")]
    return crate::bindings::log::failpoint(name);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = name;
        Ok(())
    }
}

/// A warning that the operator should check although the run continues.
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

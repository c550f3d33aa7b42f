//! Errors that end the bench, and errors that end only one run.

use std::time::Duration;

/// The error that ended the bench, for people.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        Self(text)
    }
}

impl Failure {
    /// An error of a connector that runs natively.
    pub fn of_connector(error: rapidbyte_sdk::Error) -> Self {
        Self(format!("{}: {}", error.code, error.message))
    }
}

/// Why a run gave no figures.
#[derive(Debug)]
pub enum Missed {
    /// It was ended when it had taken so long.
    TimedOut(Duration),
    /// It failed by itself.
    Failed(Failure),
    /// It failed and the bench printed why; the others run without it.
    LeftOut,
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<E: std::error::Error> From<E> for Missed {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Missed> for Failure {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::TimedOut(limit) => Self(timed_out(limit)),
            Missed::Failed(failure) => failure,
            Missed::LeftOut => Self("left out".into()),
        }
    }
}

/// The text in the run's column.
pub fn timed_out(limit: Duration) -> String {
    format!("timed out after {} s", limit.as_secs_f64())
}

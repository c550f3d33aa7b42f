//! What ends the bench.

/// What ended the bench, for the person who reads it.
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
    pub fn of_connector(error: &rapidbyte_sdk::Error) -> Self {
        Self(format!("{}: {}", error.code, error.message))
    }
}

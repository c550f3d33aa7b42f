//! HTTP Basic (RFC 7617).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The value of `authorization` for a user and a password.
pub(crate) fn credentials(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            credentials("Aladdin", "open sesame"),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        );
    }
}

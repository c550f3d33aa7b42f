//! An account: where it is, and the key that signs requests.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rapidbyte_sdk::digest::HmacSha256;
use rapidbyte_sdk::http::{Retry, Url, encode_component};
use rapidbyte_sdk::{Error, Result};

/// Requests on their way at the same time: a sandbox has 64 connections.
pub const MAX_IN_FLIGHT: usize = 32;
/// A name of a database or a container has at most so many characters.
const MAX_NAME_CHARS: usize = 255;

/// An account and how it is asked.
pub struct Account {
    pub(crate) endpoint: Url,
    key: HmacSha256,
    /// The key as it was given, and in other spellings, for messages.
    secrets: Vec<String>,
    /// The database of all containers.
    pub database: String,
    /// Until an answer begins, and between two pieces of it.
    pub timeout: Duration,
    /// How often a request is sent that the server did not carry out.
    pub retry: Retry,
    /// Requests on their way at the same time.
    pub in_flight: usize,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("endpoint", &self.endpoint.without_query())
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// `key` is the primary or secondary key, in Base64. Errors: `http_invalid_url`, `invalid_setting`, `invalid_name`.
    pub fn new(endpoint: &str, key: &str, database: &str) -> Result<Self> {
        let url = Url::parse(endpoint).map_err(|error| error.at("config.endpoint"))?;
        let bytes = BASE64_STANDARD.decode(key.trim()).ok();
        let bytes = bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
            Error::config("invalid_setting", "the key is not in Base64")
                .hint("copy the primary or secondary key of the account, to its end")
                .at("config.key")
        })?;
        check_name(database, "database").map_err(|error| error.at("config.database"))?;
        let key = key.trim();
        Ok(Self {
            endpoint: url,
            key: HmacSha256::new(&bytes),
            secrets: vec![key.to_owned(), encode_component(key)],
            database: database.to_owned(),
            timeout: Duration::from_secs(65),
            retry: Retry::attempts(10),
            in_flight: 8,
        })
    }

    /// The header `authorization` of a request ("Access control in the Azure Cosmos DB SQL API"). `link` is the resource with its
    /// names as they are, without a slash around them.
    pub(crate) fn authorization(&self, verb: &str, kind: &str, link: &str, date: &str) -> String {
        let text = format!(
            "{}\n{kind}\n{link}\n{}\n\n",
            verb.to_ascii_lowercase(),
            date.to_ascii_lowercase()
        );
        let digest = self.key.digests([text.as_bytes()].into_iter());
        let signature = BASE64_STANDARD.encode(digest);
        encode_component(&format!("type=master&ver=1.0&sig={signature}"))
    }

    /// A server may repeat what it was sent.
    pub(crate) fn without_secrets(&self, mut error: Error) -> Error {
        for secret in &self.secrets {
            error.message = error.message.replace(secret, "***");
        }
        error
    }

    /// `database.container`, for people and for the key of a checkpoint.
    pub fn namespace(&self, container: &str) -> String {
        format!("{}.{container}", self.database)
    }

    /// Where the account is, for people.
    pub fn shown(&self) -> String {
        self.endpoint.without_query()
    }
}

/// Whether the service takes this as the id of a database or container ("Create a collection"). A name becomes a part of
/// the path of a URL. Errors: `invalid_name`.
pub fn check_name(name: &str, what: &str) -> Result<()> {
    let refused = |why: &str| {
        let text = format!("{name:?} is not a name of a {what}: {why}");
        Err(Error::config("invalid_name", text)
            .hint("use 1 to 255 characters, without / \\ ? # and control characters, and no space at the end"))
    };
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
        return refused("it is empty or too long");
    }
    if name.contains(['/', '\\', '?', '#']) || name.contains(char::is_control) {
        return refused("it has a character that is not allowed");
    }
    if matches!(name, "." | "..") {
        return refused("in a URL it is a step in a path");
    }
    match name.ends_with(' ') {
        true => refused("it ends with a space"),
        false => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_as_the_reference_says() {
        // The example of "Access control in the Azure Cosmos DB SQL API".
        let key = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==";
        let account = Account::new("https://a.example.com:443/", key, "d").unwrap();
        let signed = account.authorization(
            "GET",
            "dbs",
            "dbs/ToDoList",
            "Thu, 27 Apr 2017 00:51:12 GMT",
        );
        let expected =
            "type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D";
        assert_eq!(signed, expected);
        assert!(!format!("{account:?}").contains("dsZQ"));
        let error = account.without_secrets(Error::internal(format!("x {key} y")));
        assert_eq!(error.message, "x *** y");
    }

    #[test]
    fn a_setting_that_cannot_be_is_refused_and_not_repeated() {
        for (endpoint, key, database, at) in [
            ("nowhere", "YQ==", "d", "config.endpoint"),
            ("https://a/", "se cret", "d", "config.key"),
            ("https://a/", "", "d", "config.key"),
            ("https://a/", "YQ==", "a/b", "config.database"),
            ("https://a/", "YQ==", "", "config.database"),
        ] {
            let error = Account::new(endpoint, key, database).unwrap_err();
            assert_eq!(error.location.as_deref(), Some(at));
            assert!(!error.message.contains("se cret"));
        }
    }

    #[test]
    fn a_name_that_would_be_another_path_is_refused() {
        let long = "ü".repeat(255);
        for name in ["a", "...", "a.b", "%2e%2e", "a b", "{x}", "'\"", &long] {
            assert!(check_name(name, "container").is_ok(), "{name}");
        }
        let longer = "a".repeat(256);
        for name in [
            "", ".", "..", "a/b", "../a", "a\\b", "a?b", "a#b", "a\0", "a\nb", "\u{85}", "a ",
            &longer,
        ] {
            let error = check_name(name, "database").unwrap_err();
            assert_eq!(error.code, "invalid_name", "{name:?}");
            assert!(error.hint.is_some());
        }
    }
}

//! `notify`: where a server sends messages about the runs of a pipeline.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use serde::{Serialize, Serializer};

use super::declare::{Kind, keys};
use super::error::Result;
use super::kinds::name;
use super::read::Spot;

/// A shorter secret could be guessed.
const MIN_SECRET_CHARS: usize = 16;
/// Longer values are a mistake.
const MAX_SECRET_CHARS: usize = 1024;
const MAX_URL_CHARS: usize = 4096;
const EXAMPLE: &str = "failure: https://hooks.example.com/rapidbyte";

keys! {
    /// `notify`: the URLs to which `rapidbyte serve` sends messages. No other command uses them.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Notify {
        /// The URL that is told about each run that succeeds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub success: Option<NotifyUrl> = url().optional(),
        /// The URL that is told about each run that fails.
        ///
        /// Of a pipeline with the source `ingest`: about streams that begin to fail, and about dead jobs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failure: Option<NotifyUrl> = url().optional(),
        /// The URL that is told about each run that changes the columns of a target.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub schema_change: Option<NotifyUrl> = url().optional(),
        /// The key of the signatures of these messages, of 16 to 1024 characters (default: no signatures).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub secret: Option<NotifySecret> = secret().optional(),
    }
}

/// A URL with the scheme `http` or `https`. Its user and password are secrets of the document.
#[derive(Clone, PartialEq, Eq)]
pub struct NotifyUrl(String);

impl NotifyUrl {
    /// The whole URL, with its user and its password.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The key of signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct NotifySecret(String);

impl NotifySecret {
    /// Its characters, which are a secret of the document.
    pub fn text(&self) -> &str {
        &self.0
    }
}

// A path may be as good as a password.
impl fmt::Debug for NotifyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotifyUrl")
    }
}

impl fmt::Debug for NotifySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NotifySecret")
    }
}

impl Serialize for NotifyUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl Serialize for NotifySecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// A mapping without a URL tells nobody.
pub(super) fn has_url(at: &Spot<'_>, notify: Notify) -> Result<Notify> {
    let urls = [&notify.success, &notify.failure, &notify.schema_change];
    if urls.iter().all(|url| url.is_none()) {
        let error = at.bad_value(format!("{at} has no URL"));
        return Err(error.hint(format!(
            "write success, failure or schema_change, such as {EXAMPLE}"
        )));
    }
    Ok(notify)
}

fn url() -> Kind<NotifyUrl> {
    let kind = name().then(|at: &Spot<'_>, text: String| {
        at.keep_credentials(&text);
        match problem_of(&text) {
            None => Ok(NotifyUrl(text)),
            // The value itself may be a secret.
            Some(problem) => {
                let error = at.bad_value(format!("{at}: the URL {problem}"));
                Err(error.hint(format!("write a URL such as {EXAMPLE}")))
            }
        }
    });
    kind.with("pattern", r"^https?://|\$\{.+\}")
}

fn problem_of(text: &str) -> Option<&'static str> {
    if text.len() > MAX_URL_CHARS {
        return Some("has more than 4096 characters");
    }
    if text.contains('#') {
        return Some("has a fragment (#), which no server receives");
    }
    let Ok(uri) = Uri::from_str(text) else {
        return Some("is not valid");
    };
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => {
            // The parser takes any number, and a connection would go to the usual port.
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let place = authority.rsplit('@').next().unwrap_or_default();
            let port = place
                .strip_prefix(host)
                .and_then(|rest| rest.strip_prefix(':'));
            let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
            match port.is_some_and(|port| !is_port(port)) {
                true => Some("has a port that does not exist (1 to 65535)"),
                false => None,
            }
        }
        (Some("http" | "https"), _) => Some("has no host"),
        _ => Some("does not begin with http:// or https://"),
    }
}

fn secret() -> Kind<NotifySecret> {
    let kind = name().then(|at: &Spot<'_>, text: String| {
        at.keep_secret(&text);
        let chars = text.chars().count();
        if (MIN_SECRET_CHARS..=MAX_SECRET_CHARS).contains(&chars) {
            return Ok(NotifySecret(text));
        }
        let error = at.bad_value(format!("{at} has {chars} characters"));
        Err(error.hint(format!(
            "write a secret of {MIN_SECRET_CHARS} to {MAX_SECRET_CHARS} characters, such as the output of: openssl rand -hex 32"
        )))
    });
    kind.with("maxLength", MAX_SECRET_CHARS)
}

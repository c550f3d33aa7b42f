//! libpq's keywords with their values and where each was written.

use std::collections::BTreeMap;

use rapidbyte_sdk::{Error, Result};

use super::Fields;

/// Every keyword we read. `dbname` and `ssl` are other spellings in a URL.
pub(super) const KNOWN: [&str; 14] = [
    "host",
    "port",
    "user",
    "password",
    "database",
    "application_name",
    "options",
    "connect_timeout",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "target_session_attrs",
];

/// Of the configuration, the key of the URL.
pub(super) const URL: &str = "config.url";
/// A longer value is not a setting.
const MAX_VALUE_BYTES: usize = 8 << 10;
/// How like a known word an unknown one must be for a suggestion; 1 is equal.
const SIMILAR: f64 = 0.75;

/// The values that were given; an empty one counts as absent.
#[derive(Default)]
pub(super) struct Keywords(BTreeMap<&'static str, (String, String)>);

impl Keywords {
    /// Takes a value that was written at `location`. It may not contradict an earlier one.
    pub fn set(&mut self, keyword: &'static str, value: String, location: String) -> Result<()> {
        if value.is_empty() {
            return Ok(());
        }
        let bad = |text: String| bad_at(&location, text);
        if value.contains('\0') {
            return Err(bad(format!("`{keyword}` contains a NUL byte")));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(bad(format!(
                "`{keyword}` is longer than {MAX_VALUE_BYTES} bytes"
            )));
        }
        match self.0.get(keyword) {
            Some((earlier, _)) if *earlier == value => Ok(()),
            Some((_, first)) => Err(bad(format!("`{keyword}` has another value at {first}"))
                .hint("set it once, either in the URL or as its own key")),
            None => {
                self.0.insert(keyword, (value, location));
                Ok(())
            }
        }
    }

    pub fn read_fields(&mut self, fields: Fields) -> Result<()> {
        let named = [
            ("host", fields.host),
            ("port", fields.port.map(|port| port.to_string())),
            ("user", fields.user),
            ("password", fields.password),
            ("database", fields.database),
            ("application_name", fields.application_name),
            ("options", fields.options),
            (
                "connect_timeout",
                fields.connect_timeout.map(|seconds| seconds.to_string()),
            ),
            ("sslmode", fields.sslmode),
            ("sslrootcert", fields.sslrootcert),
            ("sslcert", fields.sslcert),
            ("sslkey", fields.sslkey),
            ("channel_binding", fields.channel_binding),
            ("target_session_attrs", fields.target_session_attrs),
        ];
        for (keyword, value) in named {
            if let Some(value) = value {
                self.set(keyword, value, format!("config.{keyword}"))?;
            }
        }
        Ok(())
    }

    pub fn text(&self, keyword: &str) -> Option<&str> {
        self.0.get(keyword).map(|(value, _)| value.as_str())
    }

    /// Where a keyword was written, or would have been.
    pub fn location(&self, keyword: &str) -> String {
        match self.0.get(keyword) {
            Some((_, location)) => location.clone(),
            None if self.0.values().any(|(_, location)| location == URL) => URL.into(),
            None => format!("config.{keyword}"),
        }
    }

    pub fn bad(&self, keyword: &str, what: impl std::fmt::Display) -> Error {
        bad_at(&self.location(keyword), what)
    }

    pub fn required(&self, keyword: &str, what: &str) -> Result<String> {
        self.text(keyword).map(str::to_owned).ok_or_else(|| {
            self.bad(keyword, format!("{keyword} is missing: {what}"))
                .hint(
                    "write postgres://user:password@host:port/database, or the keys host, port, \
                 user, password, database",
                )
        })
    }

    pub fn number(&self, keyword: &str) -> Result<Option<u32>> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| self.bad(keyword, format!("`{text}` is not a number of seconds")))
        };
        self.text(keyword).map(parse).transpose()
    }

    /// One of a set of words.
    pub fn word<T: Copy>(&self, keyword: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(keyword) else {
            return Ok(None);
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(text, &all) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("use one of {}", all.join(", ")),
        };
        Err(self
            .bad(keyword, format!("`{text}` is not a valid {keyword}"))
            .hint(hint))
    }
}

pub(super) fn bad_at(location: &str, what: impl std::fmt::Display) -> Error {
    let code = if location == URL {
        "invalid_url"
    } else {
        "invalid_setting"
    };
    Error::config(code, what).at(location)
}

pub(super) fn nearest<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    words
        .iter()
        .map(|word| (strsim::jaro_winkler(text, word), *word))
        .filter(|(likeness, _)| *likeness >= SIMILAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, word)| word)
}

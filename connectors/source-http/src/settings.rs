//! A configuration without open questions.

use std::collections::BTreeMap;
use std::time::Duration;

use rapidbyte_formats::jsonl::{REST, UnknownKeys};
use rapidbyte_json_columns::Sample;
use rapidbyte_sdk::http::{Retry, Url};
use rapidbyte_sdk::prelude::*;

use crate::config::{
    Auth, AuthKind, Config, CursorFormat, MethodName, Nested, Pagination, PaginationKind, SendIn,
    StreamConfig,
};
use crate::json::Path;

/// The settings that all streams have in common.
#[derive(Clone)]
pub(crate) struct Server {
    pub base: Url,
    pub credentials: Credentials,
    pub headers: BTreeMap<String, String>,
    /// Between the beginnings of two requests.
    pub pause: Duration,
    pub retry: Retry,
    pub timeout: Duration,
    pub max_response_bytes: usize,
}

/// The credentials of requests.
#[derive(Clone)]
pub(crate) enum Credentials {
    None,
    /// A header and its value.
    Header(String, String),
    /// A token that must be asked for.
    Client(Client),
}

/// A client of OAuth 2.
#[derive(Clone)]
pub(crate) struct Client {
    pub token_url: Url,
    pub id: String,
    pub secret: String,
    pub scope: Option<String>,
    pub send_in: SendIn,
}

/// One stream.
#[derive(Clone)]
pub(crate) struct Settled {
    pub name: String,
    pub url: Url,
    pub method: MethodName,
    pub body: serde_json::Map<String, serde_json::Value>,
    pub headers: BTreeMap<String, String>,
    /// Absent: the body is the records.
    pub records: Option<Path>,
    pub pages: Pages,
    /// The declared columns, without the one for unknown keys.
    pub schema: Option<SchemaRef>,
    /// The columns that were declared while others are inferred.
    pub types: Option<SchemaRef>,
    pub unknown_keys: UnknownKeys,
    pub nested: Nested,
    pub primary_key: Vec<String>,
    pub incremental: Option<Cursor>,
}

impl Settled {
    /// Whether the configuration names a column so.
    pub fn names_column(&self, name: &str) -> bool {
        let mut declared = self.schema.iter().chain(&self.types);
        declared.any(|schema| schema.field_with_name(name).is_ok())
            || self.primary_key.iter().any(|key| key == name)
            || self
                .incremental
                .as_ref()
                .is_some_and(|cursor| cursor.field == name)
    }
}

/// How the next page is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Pages {
    One,
    /// `by_records`: it counts records, not pages.
    Numbered {
        param: String,
        start: u64,
        size: Option<(String, u64)>,
        by_records: bool,
        more: Option<Path>,
    },
    Cursor {
        param: String,
        next: Path,
        more: Option<Path>,
    },
    LinkHeader,
    NextUrl(Path),
}

/// How only what is new is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    pub field: String,
    pub param: String,
    pub format: CursorFormat,
}

const MAX_RETRIES: u32 = 5;
const TIMEOUT_SECONDS: u32 = 60;
const MAX_RESPONSE_BYTES: u64 = 16 << 20;
const SAMPLE_RECORDS: u64 = 1000;
/// Pages of a sample whose size nobody chose.
const SAMPLE_PAGES: u64 = 10;

fn invalid(message: impl std::fmt::Display, at: impl Into<String>) -> Error {
    Error::config("invalid_config", message).at(at)
}

impl Config {
    /// The server, the streams by name, and the sample that types are inferred from.
    pub(crate) fn settle(self) -> Result<(Server, Vec<Settled>, Sample)> {
        let base = url(&self.base_url, "config.base_url")?;
        if self.base_url.contains(['?', '#']) {
            let text = "the URL must not have a query or fragment";
            return Err(invalid(text, "config.base_url").hint("move it to a stream's query"));
        }
        let pause = match self.requests_per_second {
            None => Duration::ZERO,
            Some(rate) if rate >= 0.001 && rate.is_finite() => Duration::from_secs_f64(1.0 / rate),
            Some(rate) => {
                let text = format!("{rate} is not a valid number of requests: at least 0.001");
                return Err(invalid(text, "config.requests_per_second"));
            }
        };
        let at_least_1 = |key: &str, value: u64| match value {
            0 => Err(invalid(
                "0 is below the minimum of 1",
                format!("config.{key}"),
            )),
            value => Ok(value),
        };
        let timeout = self.timeout_seconds.unwrap_or(TIMEOUT_SECONDS);
        let timeout = at_least_1("timeout_seconds", timeout.into())?;
        let bytes = self
            .max_response_bytes
            .map_or(MAX_RESPONSE_BYTES, |size| size.0);
        let bytes = at_least_1("max_response_bytes", bytes)?;
        if self.sample_records == Some(0) {
            return Err(invalid(
                "0 records are not a sample",
                "config.sample_records",
            ));
        }
        let server = Server {
            credentials: self.auth.settle()?,
            headers: self.headers,
            pause,
            retry: Retry::attempts(self.max_retries.unwrap_or(MAX_RETRIES).saturating_add(1)),
            timeout: Duration::from_secs(timeout),
            // More than memory is no limit.
            max_response_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            base,
        };
        if self.streams.is_empty() {
            return Err(invalid("no stream is configured", "config.streams"));
        }
        let streams = self.streams.into_iter();
        let streams = streams.map(|(name, stream)| stream.settle(name, &server.base));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let sample = match self.sample_records {
            Some(records) => Sample {
                records,
                pages: u64::MAX,
            },
            None => Sample {
                records: SAMPLE_RECORDS,
                pages: SAMPLE_PAGES,
            },
        };
        Ok((server, streams, sample))
    }
}

fn url(text: &str, at: &str) -> Result<Url> {
    Url::parse(text).map_err(|error| error.at(at))
}

impl Auth {
    fn settle(self) -> Result<Credentials> {
        let kind = self.kind;
        let needs: &[&str] = match kind {
            AuthKind::None => &[],
            AuthKind::Header => &["name", "value"],
            AuthKind::Basic => &["username", "password"],
            AuthKind::Bearer => &["token"],
            AuthKind::Oauth2ClientCredentials => &["token_url", "client_id", "client_secret"],
        };
        let may: &[&str] = match kind {
            AuthKind::Oauth2ClientCredentials => &["scope", "send_in", "sslrootcert"],
            _ => &[],
        };
        let given = [
            ("name", self.name.is_some()),
            ("value", self.value.is_some()),
            ("username", self.username.is_some()),
            ("password", self.password.is_some()),
            ("token", self.token.is_some()),
            ("token_url", self.token_url.is_some()),
            ("client_id", self.client_id.is_some()),
            ("client_secret", self.client_secret.is_some()),
            ("scope", self.scope.is_some()),
            ("send_in", self.send_in.is_some()),
            ("sslrootcert", self.sslrootcert.is_some()),
        ];
        check_keys("auth", &format!("{kind:?}"), needs, may, &given)?;
        let text = Option::unwrap_or_default;
        Ok(match kind {
            AuthKind::None => Credentials::None,
            AuthKind::Header => {
                Credentials::Header(text(self.name).to_ascii_lowercase(), text(self.value))
            }
            AuthKind::Basic => {
                let value = crate::basic::credentials(&text(self.username), &text(self.password));
                Credentials::Header("authorization".into(), value)
            }
            AuthKind::Bearer => {
                let value = format!("Bearer {}", text(self.token));
                Credentials::Header("authorization".into(), value)
            }
            AuthKind::Oauth2ClientCredentials => Credentials::Client(Client {
                token_url: url(&text(self.token_url), "config.auth.token_url")?,
                id: text(self.client_id),
                secret: text(self.client_secret),
                scope: self.scope,
                send_in: self.send_in.unwrap_or(SendIn::Body),
            }),
        })
    }
}

/// Refuses keys that a type does not have, and the lack of those that it needs.
fn check_keys(
    at: &str,
    kind: &str,
    needs: &[&str],
    may: &[&str],
    given: &[(&str, bool)],
) -> Result<()> {
    let kind = snake(kind);
    for (key, is_given) in given {
        let is_needed = needs.contains(key);
        if is_needed && !is_given {
            let text = format!("{at} of type {kind} needs {key}");
            return Err(invalid(text, format!("config.{at}.{key}")));
        }
        if *is_given && !is_needed && !may.contains(key) {
            let text = format!("{at} of type {kind} has no {key}");
            return Err(Error::config("unused_option", text)
                .hint("remove it, or set another type")
                .at(format!("config.{at}.{key}")));
        }
    }
    Ok(())
}

/// `LinkHeader` as `link_header`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

impl StreamConfig {
    fn settle(self, name: String, base: &Url) -> Result<Settled> {
        let at = format!("config.streams.{name}");
        let path = base
            .under(&self.path)
            .map_err(|e| e.at(format!("{at}.path")))?;
        let query: Vec<(String, String)> = self
            .query
            .iter()
            .map(|(key, value)| (key.clone(), value.to_string()))
            .collect();
        let pairs = query
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let url = path
            .with_query(pairs)
            .map_err(|e| e.at(format!("{at}.query")))?;
        if self.body.is_some() && self.method == MethodName::Get {
            let text = "a body needs method: post";
            return Err(Error::config("unused_option", text).at(format!("{at}.body")));
        }
        let schema = self
            .schema
            .as_ref()
            .map(|columns| columns.schema(&format!("{at}.schema")))
            .transpose()?;
        let types = self
            .types
            .as_ref()
            .map(|columns| columns.schema(&format!("{at}.types")))
            .transpose()?;
        let unused = [
            ("types", types.is_some()),
            ("nested", self.nested.is_some()),
        ];
        for (key, is_given) in unused {
            if is_given && schema.is_some() {
                let text = format!(
                    "{key} has no effect together with schema, which names all \
                     columns"
                );
                return Err(Error::config("unused_option", text)
                    .hint(format!("remove {key} or schema"))
                    .at(format!("{at}.{key}")));
            }
        }
        let unknown_keys = self.unknown_keys.unwrap_or(match schema {
            Some(_) => UnknownKeys::Refuse,
            None => UnknownKeys::Collect,
        });
        for (key, declared) in [("schema", &schema), ("types", &types)] {
            let has_rest = declared
                .as_ref()
                .is_some_and(|s| s.field_with_name(REST).is_ok());
            if has_rest && unknown_keys == UnknownKeys::Collect {
                let text = format!("unknown_keys: collect creates the column {REST} itself");
                return Err(Error::config("invalid_config", text)
                    .hint(format!(
                        "remove {REST} from {key}, or write unknown_keys: refuse"
                    ))
                    .at(format!("{at}.{key}")));
            }
        }
        let records = self.records.as_deref().map(Path::parse);
        let records = records
            .transpose()
            .map_err(|e| invalid(e, format!("{at}.records")))?;
        Ok(Settled {
            url,
            method: self.method,
            body: self.body.unwrap_or_default(),
            headers: self.headers,
            records,
            pages: self.pagination.settle(&name)?,
            unknown_keys,
            schema,
            types,
            nested: self.nested.unwrap_or(Nested::Json),
            primary_key: self.primary_key,
            incremental: self.incremental.map(|incremental| Cursor {
                field: incremental.cursor_field,
                param: incremental.param,
                format: incremental.format.unwrap_or_default(),
            }),
            name,
        })
    }
}

impl Pagination {
    fn settle(self, stream: &str) -> Result<Pages> {
        let kind = self.kind;
        let (needs, may): (&[&str], &[&str]) = match kind {
            PaginationKind::None | PaginationKind::LinkHeader => (&[], &[]),
            PaginationKind::Page | PaginationKind::Offset => {
                (&[], &["param", "start", "size_param", "size", "more"])
            }
            PaginationKind::Cursor => (&["next"], &["param", "more"]),
            PaginationKind::NextUrl => (&["path"], &[]),
        };
        let given = [
            ("param", self.param.is_some()),
            ("start", self.start.is_some()),
            ("size_param", self.size_param.is_some()),
            ("size", self.size.is_some()),
            ("next", self.next.is_some()),
            ("path", self.path.is_some()),
            ("more", self.more.is_some()),
        ];
        let at = format!("streams.{stream}.pagination");
        check_keys(&at, &format!("{kind:?}"), needs, may, &given)?;
        let path = |key: &str, text: Option<String>| {
            Path::parse(&text.unwrap_or_default())
                .map_err(|error| invalid(error, format!("config.{at}.{key}")))
        };
        let more = match self.more {
            None => None,
            more => Some(path("more", more)?),
        };
        Ok(match kind {
            PaginationKind::None => Pages::One,
            PaginationKind::Page | PaginationKind::Offset => {
                let by_records = kind == PaginationKind::Offset;
                let (param, start) = if by_records {
                    ("offset", 0)
                } else {
                    ("page", 1)
                };
                let size = match (self.size_param, self.size) {
                    (None, None) => None,
                    (Some(param), Some(size)) if size > 0 => Some((param, size)),
                    _ => {
                        let text = "set both size_param and size (above 0), or neither";
                        return Err(invalid(text, format!("config.{at}.size")));
                    }
                };
                Pages::Numbered {
                    param: self.param.unwrap_or_else(|| param.into()),
                    start: self.start.unwrap_or(start),
                    size,
                    by_records,
                    more,
                }
            }
            PaginationKind::Cursor => Pages::Cursor {
                param: self.param.unwrap_or_else(|| "cursor".into()),
                next: path("next", self.next)?,
                more,
            },
            PaginationKind::LinkHeader => Pages::LinkHeader,
            PaginationKind::NextUrl => Pages::NextUrl(path("path", self.path)?),
        })
    }
}

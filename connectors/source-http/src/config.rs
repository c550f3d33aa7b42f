//! The keys under `config:`.

use std::collections::BTreeMap;
use std::fmt;

use rapidbyte_formats::jsonl::UnknownKeys;
use rapidbyte_sdk::bytes::Size;
use rapidbyte_sdk::declared::Columns;
use schemars::JsonSchema;

/// A REST API and what is read from it.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The URL to which paths are relative, such as `https://api.example.com/v1`, without user,
    /// query and fragment.
    #[schemars(extend("x-grant" = "url"))]
    pub base_url: String,
    /// The credentials.
    #[serde(default)]
    pub auth: Auth,
    /// Headers of every request. Put secrets under `auth`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A PEM file with the authorities to trust instead of the public ones.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The streams by name.
    #[schemars(extend("minProperties" = 1))]
    pub streams: BTreeMap<String, StreamConfig>,
    /// The maximum number of requests per second (default: as fast as the server responds).
    pub requests_per_second: Option<f64>,
    /// How often to retry a request after a transient error (default 5).
    pub max_retries: Option<u32>,
    /// The maximum wait in seconds for the start of an answer, and for each next piece of it
    /// (default 60).
    pub timeout_seconds: Option<u32>,
    /// The maximum size of a response in bytes, such as 64mb (default 16mb).
    pub max_response_bytes: Option<Size>,
    /// The number of records of each stream from which types are inferred (default 1000, on at most
    /// 10 pages).
    pub sample_records: Option<u64>,
}

/// The credentials.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// How requests authenticate (default `none`).
    #[serde(rename = "type", default)]
    pub kind: AuthKind,
    /// `header`: the header's name, such as `x-api-key`.
    pub name: Option<String>,
    /// `header`: the header's value.
    #[schemars(extend("x-secret" = true))]
    pub value: Option<String>,
    /// `basic`: the user.
    pub username: Option<String>,
    /// `basic`: the password.
    #[schemars(extend("x-secret" = true))]
    pub password: Option<String>,
    /// `bearer`: the token.
    #[schemars(extend("x-secret" = true))]
    pub token: Option<String>,
    /// `oauth2_client_credentials`: the URL that gives tokens.
    #[schemars(extend("x-grant" = "url"))]
    pub token_url: Option<String>,
    /// `oauth2_client_credentials`: the client's id.
    pub client_id: Option<String>,
    /// `oauth2_client_credentials`: the client's secret.
    #[schemars(extend("x-secret" = true))]
    pub client_secret: Option<String>,
    /// `oauth2_client_credentials`: the scope of the token.
    pub scope: Option<String>,
    /// `oauth2_client_credentials`: send client and secret in the `body` of the request (the
    /// default) or in a `header` (HTTP Basic).
    pub send_in: Option<SendIn>,
    /// `oauth2_client_credentials`: like the top-level `sslrootcert`, for `token_url`.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
}

/// How a request proves who sends it.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// It does not.
    #[default]
    None,
    /// By a header of any name.
    Header,
    /// By user and password.
    Basic,
    /// By a token.
    Bearer,
    /// By a token that is asked for with a client's secret.
    Oauth2ClientCredentials,
}

/// Where a client's secret stands.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SendIn {
    /// In the form that is posted.
    Body,
    /// In a header.
    Header,
}

/// One stream.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamConfig {
    /// The path, relative to `base_url`.
    pub path: String,
    /// The method of the requests (default `get`).
    #[serde(default)]
    pub method: MethodName,
    /// Parameters of every request, in the URL.
    #[serde(default)]
    pub query: BTreeMap<String, Scalar>,
    /// `post`: the JSON object to send. Pagination and `incremental` add their parameters to it.
    pub body: Option<serde_json::Map<String, serde_json::Value>>,
    /// Headers of this stream's requests.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The place of the records in the body: a dotted path such as `data.items`, or a JSON Pointer
    /// such as `/data/items` (default: the body itself). Each item of an array is a record. An
    /// object at an explicit path is one record, unless it contains arrays of objects and none of
    /// the columns in `schema`, `primary_key` or `incremental`. `null` means no records.
    pub records: Option<String>,
    /// How to ask for the next page.
    #[serde(default)]
    pub pagination: Pagination,
    /// The columns in order, as `name: type` or `name: type not null` (default: inferred from the
    /// first pages).
    pub schema: Option<Columns>,
    /// Types of single columns, as in `schema`; the others are inferred.
    pub types: Option<Columns>,
    /// Keys that are not columns: `add` them as columns, if the columns are inferred and `schema_changes`
    /// allows new columns; `collect` them as JSON in the column `_rest`; `ignore` or `refuse` them
    /// (default `collect`; with `schema`, `refuse`).
    pub unknown_keys: Option<UnknownKeys>,
    /// With inferred types, store objects and arrays as `json` text (the default) or as `columns`
    /// of structs and lists.
    pub nested: Option<Nested>,
    /// The columns that identify a record.
    #[serde(default)]
    pub primary_key: Vec<String>,
    /// How to ask for new records only.
    pub incremental: Option<Incremental>,
}

/// A text, a number or a boolean.
#[derive(JsonSchema, Debug, Clone)]
#[schemars(untagged)]
pub enum Scalar {
    /// A text.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// A number, as it is written.
    Number(serde_json::Number),
}

// An untagged enum would say nothing of what is allowed.
impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::{Error, Unexpected};
        use serde_json::Value;

        let what = match Value::deserialize(deserializer)? {
            Value::String(text) => return Ok(Self::Text(text)),
            Value::Bool(value) => return Ok(Self::Bool(value)),
            Value::Number(number) => return Ok(Self::Number(number)),
            Value::Null => Unexpected::Unit,
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        Err(D::Error::invalid_type(
            what,
            &"a string, a number or a boolean",
        ))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// How a stream is asked for.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum MethodName {
    /// By its URL.
    #[default]
    Get,
    /// By a JSON object.
    Post,
}

/// How to ask for the next page.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Pagination {
    /// How the API divides a list into pages (default `none`).
    #[serde(rename = "type", default)]
    pub kind: PaginationKind,
    /// `page`, `offset`, `cursor`: the parameter that selects the page (default `page`, `offset`
    /// and `cursor`, respectively).
    pub param: Option<String>,
    /// `page`, `offset`: the value for the first page (default 1 for `page`, 0 for `offset`).
    pub start: Option<u64>,
    /// `page`, `offset`: the parameter for the number of records per page (default: none).
    pub size_param: Option<String>,
    /// `page`, `offset`: the value of `size_param`.
    pub size: Option<u64>,
    /// `cursor`: the place of the next page's cursor in the body. On the last page it is missing,
    /// `null` or an empty string. `-1` stands for the last item of an array.
    pub next: Option<String>,
    /// `next_url`: the place of the next page's URL in the body.
    pub path: Option<String>,
    /// `page`, `offset`, `cursor`: the place of a boolean in the body that is `true` if there are
    /// more pages. Without it, source-http continues until a page is empty (`page`, `offset`) or
    /// has no next cursor (`cursor`).
    pub more: Option<String>,
}

/// How to ask for the next page.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum PaginationKind {
    /// There is one page.
    #[default]
    None,
    /// By its number.
    Page,
    /// By the number of records before it.
    Offset,
    /// By what the page before says.
    Cursor,
    /// By the URL in the header `link` with `rel="next"`.
    LinkHeader,
    /// By the URL in the body.
    NextUrl,
}

/// With inferred types, store objects and arrays as `json` text (the default) or as `columns` of
/// structs and lists.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Nested {
    /// Structs and lists.
    Columns,
    /// The JSON text.
    Json,
}

/// How to ask for new records only.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Incremental {
    /// The key of a record whose value grows: an integer, a date, a timestamp, or a string, ordered
    /// by its characters.
    pub cursor_field: String,
    /// The parameter that asks for records from a value on.
    pub param: String,
    /// The form of the value in the request: `as_is`, as the server wrote it (the default); for a
    /// timestamp also `date`, `unix_seconds` or `unix_millis`.
    pub format: Option<CursorFormat>,
}

/// How a cursor stands in a request.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum CursorFormat {
    /// As the server wrote it.
    #[default]
    AsIs,
    /// As the UTC date, `2026-11-21`.
    Date,
    /// As whole seconds since 1970.
    UnixSeconds,
    /// As whole milliseconds since 1970.
    UnixMillis,
}

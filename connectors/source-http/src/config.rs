//! What stands under `config:`.

use std::collections::BTreeMap;
use std::fmt;

use rapidbyte_sdk::declared::Columns;
use schemars::JsonSchema;

/// A REST API and what is read from it.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where all paths begin, such as `https://api.example.com/v1`. Without a user, a query or a
    /// fragment.
    #[schemars(extend("x-grant" = "url"))]
    pub base_url: String,
    /// Who is asking.
    #[serde(default)]
    pub auth: Auth,
    /// Headers of every request. A secret belongs under `auth`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A PEM file of authorities whose certificates are believed, instead of the public ones.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
    /// The streams by their names.
    #[schemars(extend("minProperties" = 1))]
    pub streams: BTreeMap<String, StreamConfig>,
    /// Requests in a second, at most. Without it as fast as the server answers.
    pub requests_per_second: Option<f64>,
    /// How often a request is made again that may succeed later: 5 if absent.
    pub max_retries: Option<u32>,
    /// Seconds until an answer begins, and between two pieces of it: 60 if absent.
    pub timeout_seconds: Option<u32>,
    /// Bytes of one answer: 16777216 if absent.
    pub max_response_bytes: Option<u32>,
    /// Records of each stream that types are inferred from. If absent 1000, on at most 10 pages.
    pub sample_records: Option<u64>,
}

/// Who is asking.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// `none`, `header`, `basic`, `bearer` or `oauth2_client_credentials`.
    #[serde(rename = "type", default)]
    pub kind: AuthKind,
    /// `header`: its name, such as `x-api-key`.
    pub name: Option<String>,
    /// `header`: its value.
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
    /// `oauth2_client_credentials`: who gives tokens.
    #[schemars(extend("x-grant" = "url"))]
    pub token_url: Option<String>,
    /// `oauth2_client_credentials`: the client.
    pub client_id: Option<String>,
    /// `oauth2_client_credentials`: its secret.
    #[schemars(extend("x-secret" = true))]
    pub client_secret: Option<String>,
    /// `oauth2_client_credentials`: what the token is for.
    pub scope: Option<String>,
    /// `oauth2_client_credentials`: client and secret stand in the `body` of the request, or in a
    /// `header` (HTTP Basic). `body` if absent.
    pub send_in: Option<SendIn>,
    /// `oauth2_client_credentials`: as `sslrootcert` beside `base_url`, for `token_url`.
    #[schemars(extend("x-grant" = "tls-root-cert"))]
    pub sslrootcert: Option<String>,
}

/// How a request says who is asking.
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
    /// Behind `base_url`.
    pub path: String,
    /// `get` or `post`. `get` if absent.
    #[serde(default)]
    pub method: MethodName,
    /// Parameters of every request, behind the path.
    #[serde(default)]
    pub query: BTreeMap<String, Scalar>,
    /// `post`: the JSON object that is sent. What pagination and `incremental` add stands in it.
    pub body: Option<serde_json::Map<String, serde_json::Value>>,
    /// Headers of this stream's requests.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Where the records stand in the body: a dotted path such as `data.items`, or a JSON Pointer
    /// such as `/data/items`. The body itself if absent. An array is its records; an object at a
    /// path that was written is one record, unless it holds arrays of objects and none of the
    /// columns that `schema`, `primary_key` or `incremental` name; `null` is none.
    pub records: Option<String>,
    /// How the next page is asked for.
    #[serde(default)]
    pub pagination: Pagination,
    /// The columns in order, as `name: type` or `name: type not null`. Inferred from the first
    /// pages if absent.
    pub schema: Option<Columns>,
    /// Types of single columns, as in `schema`; the others are inferred.
    pub types: Option<Columns>,
    /// What happens to keys that are not columns: `collect` them as JSON in the column `_rest`,
    /// `ignore` or `refuse` them. If absent `collect`, with `schema` `refuse`.
    pub unknown_keys: Option<UnknownKeys>,
    /// What objects and arrays become if types are inferred: `json` text, or `columns` of structs
    /// and lists. `json` if absent.
    pub nested: Option<Nested>,
    /// The columns that identify a record.
    #[serde(default)]
    pub primary_key: Vec<String>,
    /// How only what is new is asked for.
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

/// How the next page is asked for.
#[derive(serde::Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub struct Pagination {
    /// `none`, `page`, `offset`, `cursor`, `link_header` or `next_url`.
    #[serde(rename = "type", default)]
    pub kind: PaginationKind,
    /// `page`, `offset`, `cursor`: the parameter that names the page. If absent `page`, `offset`,
    /// and `cursor`.
    pub param: Option<String>,
    /// `page`, `offset`: the first page's value. 1 and 0 if absent.
    pub start: Option<u64>,
    /// `page`, `offset`: the parameter that asks for so many records a page. None if absent.
    pub size_param: Option<String>,
    /// `page`, `offset`: the value of `size_param`.
    pub size: Option<u64>,
    /// `cursor`: where the body names the next page; the last page has nothing, `null` or an empty
    /// text there. `-1` stands for the last item of an array.
    pub next: Option<String>,
    /// `next_url`: where the body holds the URL of the next page.
    pub path: Option<String>,
    /// `page`, `offset`, `cursor`: where the body says by `true` that there are more pages. Without
    /// it pages are asked for until one is empty (`page`, `offset`) or names no next one.
    pub more: Option<String>,
}

/// How the next page is asked for.
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

/// What happens to keys that are not columns.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum UnknownKeys {
    /// The column `_rest` takes them.
    Collect,
    /// The stream ends with an error.
    Refuse,
    /// They are left out.
    Ignore,
}

/// What objects and arrays become if types are inferred.
#[derive(serde::Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Nested {
    /// Structs and lists.
    Columns,
    /// The JSON text.
    Json,
}

/// How only what is new is asked for.
#[derive(serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Incremental {
    /// The key of a record that grows: a whole number, a date, a timestamp, or a text by its
    /// characters.
    pub cursor_field: String,
    /// The parameter that asks for records from a value on.
    pub param: String,
    /// How the value stands there: `as_is`, as the server wrote it; of a timestamp also `date`,
    /// `unix_seconds` or `unix_millis`. `as_is` if absent.
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

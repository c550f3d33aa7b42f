//! The configuration: a list of steps.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The configuration of the transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The steps, in this order.
    #[schemars(length(min = 1))]
    pub steps: Vec<Step>,
}

/// One step: it gets the columns and rows of the step before it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// New names of columns: old name to new name.
    Rename(#[schemars(with = "BTreeMap<String, String>")] Map<String, Value>),
    /// The columns to leave out.
    Drop(Vec<String>),
    /// New types of columns: name to type, as in SQL or in `columns` of a source.
    Cast(#[schemars(with = "BTreeMap<String, String>")] Map<String, Value>),
    /// New or changed columns: name to expression. All expressions see the columns before the step.
    Set(#[schemars(with = "BTreeMap<String, Value>")] Map<String, Value>),
    /// The condition of the rows that stay.
    Filter(String),
    /// Columns whose values are replaced by a keyed hash: HMAC-SHA-256 as 64 hexadecimal digits.
    Hash(Hash),
    /// Columns whose texts are hidden.
    Mask(Mask),
    /// Values in place of NULL: column to value.
    Default(#[schemars(with = "BTreeMap<String, Value>")] Map<String, Value>),
    /// Columns of type struct that are replaced by one column for each of their fields, such as address_city.
    Flatten(Vec<String>),
    /// A column of type list: one row for each element. A row whose list is NULL or empty stays, with NULL.
    Explode(String),
    /// Text columns without spaces at both ends.
    Trim(Vec<String>),
    /// Text columns in lower case.
    Lower(Vec<String>),
    /// Text columns in upper case.
    Upper(Vec<String>),
}

/// The hash of values under a secret key: equal values have equal hashes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// The columns.
    pub columns: Vec<String>,
    /// The secret key, at least 16 bytes, such as `${HASH_SALT}`.
    #[schemars(extend("x-secret" = true))]
    pub salt: String,
}

/// Which part of a text stays. Each other character becomes `*`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// The columns.
    pub columns: Vec<String>,
    /// The last characters stay, if the text has more than twice as many.
    pub keep_last: Option<u32>,
    /// The domain of an e-mail address stays.
    #[serde(default)]
    pub keep_domain: bool,
}

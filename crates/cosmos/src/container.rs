//! Containers, and the partition of a document.

use rapidbyte_sdk::http::encode_component;
use rapidbyte_sdk::{Error, Result};
use serde::Deserialize;
use serde_json::json;

use crate::client::{Answer, Call, Client, Repeat, Verb};
use crate::{error, json as values};

/// Bytes of the value of a partition key.
const MAX_VALUE_BYTES: usize = 2048;

/// A container as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Where its documents have the value of their partition.
    pub partition: PartitionKey,
    /// The version of its hashes.
    pub(crate) key_version: u32,
    /// Documents may end by themselves.
    pub has_ttl: bool,
}

/// The path of a partition key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionKey {
    path: Vec<String>,
    /// As it was written.
    text: String,
}

impl PartitionKey {
    /// Reads `/tenant/id`; a key with other characters is in quotes: `/"a/b"`. Errors: `invalid_partition_key`.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || {
            let what = format!("{text:?} is not a path of a partition key");
            Error::config("invalid_partition_key", what)
                .hint("write a path such as /tenant or /address/city")
        };
        let mut path = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.strip_prefix('/').ok_or_else(invalid)?;
            let key;
            (key, rest) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(invalid)?,
                None => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            };
            if key.is_empty() {
                return Err(invalid());
            }
            path.push(key.to_owned());
        }
        match path.is_empty() {
            true => Err(invalid()),
            false => Ok(Self {
                path,
                text: text.to_owned(),
            }),
        }
    }

    /// The keys from the document to the value.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// Whether each document is a partition of its own.
    pub fn is_id(&self) -> bool {
        self.path == ["id"]
    }

    /// The expression of the value in a query, such as `c["a"]["b"]`.
    pub fn expression(&self) -> String {
        let keys = self.path.iter().map(|key| format!("[{}]", json!(key)));
        format!("c{}", keys.collect::<String>())
    }

    /// The header with the partition of a document. Errors: `partition_key_refused`.
    pub fn of_document(&self, document: &str) -> Result<String> {
        self.of_value(values::find(document, &self.path))
    }

    /// The header of a value, given as JSON. Errors: `partition_key_refused`.
    pub fn of_value(&self, value: Option<&str>) -> Result<String> {
        let refused = |what: &str| {
            let text = format!("the partition key {} of the document is {what}", self.text);
            Error::data("partition_key_refused", text).hint(
                "give the field a string, a number or a boolean, or choose another partition key",
            )
        };
        let Some(value) = value else {
            return Ok("[{}]".to_owned());
        };
        if matches!(value.as_bytes().first(), Some(b'{' | b'[')) {
            return Err(refused("an object or an array"));
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(refused(&format!("longer than {MAX_VALUE_BYTES} bytes")));
        }
        // A header is ASCII.
        let mut header = String::from("[");
        for character in value.chars() {
            match character.is_ascii() {
                true => header.push(character),
                false => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        header.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
        header.push(']');
        Ok(header)
    }
}

impl std::fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Deserialize)]
struct Described {
    id: String,
    #[serde(rename = "partitionKey")]
    partition_key: Option<DescribedKey>,
    #[serde(rename = "defaultTtl")]
    default_ttl: Option<i64>,
}

#[derive(Deserialize)]
struct DescribedKey {
    paths: Vec<String>,
    /// Older containers do not have it.
    version: Option<u32>,
}

impl Client {
    fn resource(&self, verb: Verb, kind: &'static str, parts: &[&str], what: String) -> Call {
        let link = parts.join("/");
        let path: Vec<String> = parts.iter().map(|part| encode_component(part)).collect();
        let path = match kind
            == parts
                .get(parts.len().saturating_sub(2))
                .copied()
                .unwrap_or("")
        {
            // The resource itself.
            true => path.join("/"),
            // The feed of the resources below.
            false if kind.is_empty() => path.join("/"),
            false => [&path[..], &[kind.to_owned()]].concat().join("/"),
        };
        Call {
            verb,
            kind,
            link,
            path,
            headers: Vec::new(),
            body: Vec::new(),
            container: None,
            repeat: Repeat::Always,
            is_of_range: false,
            what,
        }
    }

    /// A call about what a container has, but its documents.
    pub(crate) fn of_container(
        &self,
        verb: Verb,
        kind: &'static str,
        container: &str,
        what: &str,
    ) -> Call {
        let database = self.account().database.clone();
        let namespace = self.account().namespace(container);
        let parts = ["dbs", &database, "colls", container];
        self.resource(verb, kind, &parts, format!("{what} {namespace}"))
    }

    /// A call about the documents of a container, or one of them.
    pub(crate) fn of_documents(
        &self,
        verb: Verb,
        container: &str,
        id: Option<&str>,
        what: &str,
    ) -> Call {
        let database = self.account().database.clone();
        let namespace = self.account().namespace(container);
        let mut parts = vec!["dbs", &database, "colls", container];
        if let Some(id) = id {
            parts.extend(["docs", id]);
        }
        let mut call = self.resource(verb, "docs", &parts, format!("{what} {namespace}"));
        call.container = Some(container.to_owned());
        call
    }

    /// Whether every region takes writes, so that a condition of a write may hold in two places.
    pub fn writes_anywhere(&mut self) -> Result<bool> {
        #[derive(Deserialize)]
        struct Account {
            #[serde(rename = "enableMultipleWriteLocations", default)]
            anywhere: bool,
        }
        let call = self.resource(Verb::Get, "", &[], "read the account".into());
        let answer = self.ask(call)?.expect_success()?;
        let account: Account = serde_json::from_slice(&answer.body)
            .map_err(|error| error::violation(&error.to_string()))?;
        Ok(account.anywhere)
    }

    /// Fails if the database does not exist. Errors: `cosmos_not_found`, `cosmos_unauthorized`.
    pub fn find_database(&mut self) -> Result<()> {
        self.read_database().map(drop)
    }

    /// The clock of the server when it was asked, in seconds since 1970: later changes of documents have this `_ts` or a
    /// greater one.
    pub fn server_seconds(&mut self) -> Result<u64> {
        let answer = self.read_database()?;
        let missing = "it does not have the header date";
        answer.date.ok_or_else(|| error::violation(missing))
    }

    fn read_database(&mut self) -> Result<Answer> {
        let database = self.account().database.clone();
        let call = self.resource(
            Verb::Get,
            "dbs",
            &["dbs", &database],
            format!("read the database {database}"),
        );
        let answer = self.ask(call)?.expect_success();
        answer.map_err(|error| of_database(error, &database))
    }

    /// The names of the containers of the database, in their order.
    pub fn containers(&mut self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Feed {
            #[serde(rename = "DocumentCollections")]
            containers: Vec<Described>,
        }
        let database = self.account().database.clone();
        let mut found = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let what = format!("list the containers of {database}");
            let mut call = self.resource(Verb::Get, "colls", &["dbs", &database], what);
            if let Some(token) = continuation.take() {
                call.headers.push(("x-ms-continuation", token));
            }
            let answer = self.ask(call)?.expect_success();
            let answer = answer.map_err(|error| of_database(error, &database))?;
            let feed: Feed = serde_json::from_slice(&answer.body)
                .map_err(|error| error::violation(&error.to_string()))?;
            let is_empty = feed.containers.is_empty();
            found.extend(feed.containers.into_iter().map(|described| described.id));
            continuation = answer.continuation;
            if continuation.is_none() || is_empty {
                break;
            }
        }
        found.sort();
        Ok(found)
    }

    /// The container, if it exists. Errors: `partition_key_unsupported`.
    pub fn container(&mut self, name: &str) -> Result<Option<Container>> {
        let database = self.account().database.clone();
        let what = format!("read the container {}", self.account().namespace(name));
        let parts = ["dbs", &database, "colls", name];
        let call = self.resource(Verb::Get, "colls", &parts, what);
        let answer = self.ask(call)?;
        if answer.status == 404 {
            return Ok(None);
        }
        let answer = answer.expect_success()?;
        let described: Described = serde_json::from_slice(&answer.body)
            .map_err(|error| error::violation(&error.to_string()))?;
        understand(described).map(Some)
    }

    /// Creates a container, unless somebody else has. `throughput`: request units a second; `None`: those of the database, or
    /// the server's default.
    pub fn create_container(
        &mut self,
        name: &str,
        partition: &PartitionKey,
        throughput: Option<u32>,
    ) -> Result<()> {
        let database = self.account().database.clone();
        let what = format!("create the container {}", self.account().namespace(name));
        let mut call = self.resource(Verb::Post, "colls", &["dbs", &database], what);
        let body = json!({
            "id": name,
            "partitionKey": { "paths": [partition.text], "kind": "Hash", "version": 2 },
        });
        call.body = body.to_string().into_bytes();
        call.headers
            .push(("content-type", "application/json".into()));
        if let Some(throughput) = throughput {
            call.headers
                .push(("x-ms-offer-throughput", throughput.to_string()));
        }
        let answer = self.ask(call)?;
        match answer.status {
            409 => Ok(()),
            _ => answer.expect_success().map(drop),
        }
    }
}

/// The error of a request about the database itself, at its key.
fn of_database(error: Error, database: &str) -> Error {
    match error.code.as_str() {
        "cosmos_not_found" => error
            .hint(format!(
                "correct database, or create the database {database}: Rapidbyte creates containers, and never a database"
            ))
            .at("config.database"),
        _ => error,
    }
}

fn understand(described: Described) -> Result<Container> {
    let key_version = described.partition_key.as_ref().and_then(|key| key.version);
    let paths = described.partition_key.map(|key| key.paths);
    let unsupported = |what: &str| {
        let text = format!("the container {} has {what}", described.id);
        Error::config("partition_key_unsupported", text)
            .hint("use a container with a partition key of one path")
    };
    let partition = match paths.as_deref() {
        Some([path]) => PartitionKey::parse(path)?,
        Some([]) | None => return Err(unsupported("no partition key")),
        Some(_) => return Err(unsupported("a partition key of several paths")),
    };
    Ok(Container {
        name: described.id,
        partition,
        key_version: key_version.unwrap_or(1),
        has_ttl: described.default_ttl.is_some(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_and_leads_to_the_value() {
        let key = PartitionKey::parse("/a/\"b/c\"").unwrap();
        assert_eq!(key.path(), ["a", "b/c"]);
        assert_eq!(key.expression(), r#"c["a"]["b/c"]"#);
        for (document, header) in [
            (r#"{"a":{"b/c":"é😀"}}"#, r#"["\u00e9\ud83d\ude00"]"#),
            (r#"{"a":{"b/c":1.50}}"#, "[1.50]"),
            (r#"{"a":{"b/c":null}}"#, "[null]"),
            (r#"{"a":{}}"#, "[{}]"),
        ] {
            assert_eq!(key.of_document(document).unwrap(), header);
        }
        for document in [r#"{"a":{"b/c":[1]}}"#, r#"{"a":{"b/c":{}}}"#] {
            let error = key.of_document(document).unwrap_err();
            assert_eq!(error.code, "partition_key_refused");
        }
        for text in ["", "a", "/", "//a", "/a/", "/\"a"] {
            let error = PartitionKey::parse(text).unwrap_err();
            assert_eq!(error.code, "invalid_partition_key", "{text}");
        }
        assert!(PartitionKey::parse("/id").unwrap().is_id());
    }
}

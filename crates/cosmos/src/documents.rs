//! Writes of documents, one by one or several of a partition in one request.

use rapidbyte_sdk::{Error, Result};
use serde::Deserialize;

use crate::client::{Answer, Call, Client, Verb};
use crate::error;
use crate::writes::Write;

/// Operations of a transactional batch ("Azure Cosmos DB service quotas"), and of a bulk request of Microsoft's clients.
pub(crate) const MAX_BATCH_OPERATIONS: usize = 100;
/// Bytes of a request, with room for its head.
pub(crate) const MAX_BATCH_BYTES: usize = (2 << 20) - (64 << 10);
/// Bytes of a bulk request. Microsoft's clients send no more: the server has a few seconds for all of it.
pub(crate) const MAX_BULK_BYTES: usize = 220_000;
/// Bytes of a document as JSON.
pub const MAX_DOCUMENT_BYTES: usize = 2 << 20;
/// Bytes of an id.
const MAX_ID_BYTES: usize = 1023;
/// Beside the document in an operation of a batch: names, and the partition key once more.
const OPERATION_BYTES: usize = 128;

/// What a write does with one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds it; 409 if the id is taken.
    Create {
        /// The text of the document.
        document: String,
    },
    /// Puts it into the place of the document with its id, or adds it.
    Upsert {
        /// The text of the document.
        document: String,
        /// Its id.
        id: String,
    },
    /// Deletes the document with this id; 404 if it is not there.
    Delete {
        /// Its id.
        id: String,
        /// Only this version; 412 if it is another one.
        if_match: Option<String>,
    },
}

/// What became of an operation: a status, such as 201.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The server refuses it.
    Refused {
        /// Such as 409.
        status: u16,
        /// The reason.
        error: Error,
    },
}

impl Operation {
    /// Bytes in a batch, at most.
    pub fn bytes(&self, partition: &str) -> usize {
        let own = match self {
            Self::Create { document } => document.len(),
            Self::Upsert { document, id } => document.len() + id.len(),
            Self::Delete { id, .. } => id.len(),
        };
        own + 2 * partition.len() + OPERATION_BYTES
    }

    /// As a batch or a bulk request has it.
    fn add_to(&self, partition: &str, is_bulk: bool, out: &mut String) {
        // In a batch, the operations beside `Create` name the partition once more, as those of Microsoft's clients.
        let partition = serde_json::Value::from(partition);
        match self {
            Self::Create { document } => {
                out.push_str(r#"{"operationType":"Create","#);
                if is_bulk {
                    out.push_str(r#""partitionKey":"#);
                    out.push_str(&partition.to_string());
                    out.push(',');
                }
                out.push_str(r#""resourceBody":"#);
                out.push_str(document);
            }
            Self::Upsert { document, .. } => {
                out.push_str(r#"{"operationType":"Upsert","partitionKey":"#);
                out.push_str(&partition.to_string());
                out.push_str(r#","resourceBody":"#);
                out.push_str(document);
            }
            Self::Delete { id, if_match } => {
                out.push_str(r#"{"operationType":"Delete","partitionKey":"#);
                out.push_str(&partition.to_string());
                out.push_str(r#","id":"#);
                out.push_str(&serde_json::Value::from(id.as_str()).to_string());
                if let Some(etag) = if_match {
                    out.push_str(r#","ifMatch":"#);
                    out.push_str(&serde_json::Value::from(etag.as_str()).to_string());
                }
            }
        }
        out.push('}');
    }
}

/// Errors: `invalid_id`.
pub fn check_id(id: &str) -> Result<()> {
    let refused = |why: &str| {
        let text = format!("{id:?} is not an id of a document: {why}");
        Err(Error::data("invalid_id", text)
            .hint("use 1 to 1,023 bytes without / \\ ? # and a space at the end"))
    };
    if id.is_empty() {
        return refused("it is empty");
    }
    if id.len() > MAX_ID_BYTES {
        return refused("it is longer than 1,023 bytes");
    }
    if id.contains(['/', '\\', '?', '#']) || id.contains(char::is_control) {
        return refused("it has a character that is not allowed");
    }
    match id.ends_with(' ') {
        true => refused("it ends with a space"),
        false => Ok(()),
    }
}

impl Client {
    fn partition_headers(partition: &str) -> Vec<(&'static str, String)> {
        vec![
            ("content-type", "application/json".into()),
            ("x-ms-documentdb-partitionkey", partition.to_owned()),
            // The answer does not repeat the document.
            ("prefer", "return=minimal".into()),
        ]
    }

    /// A request for one operation.
    pub fn single(&self, container: &str, partition: &str, operation: &Operation) -> Call {
        let mut headers = Self::partition_headers(partition);
        let (mut call, body) = match operation {
            Operation::Create { document } => (
                self.of_documents(Verb::Post, container, None, "create a document in"),
                document.as_str(),
            ),
            Operation::Upsert { document, .. } => {
                headers.push(("x-ms-documentdb-is-upsert", "True".into()));
                (
                    self.of_documents(Verb::Post, container, None, "upsert a document in"),
                    document.as_str(),
                )
            }
            Operation::Delete { id, if_match } => {
                headers.extend(if_match.clone().map(|etag| ("if-match", etag)));
                (
                    self.of_documents(Verb::Delete, container, Some(id), "delete a document of"),
                    "",
                )
            }
        };
        call.headers = headers;
        call.body = body.as_bytes().to_vec();
        call
    }

    /// A request to replace a document if it still has this version. It is not repeated when its answer is lost.
    pub fn replace(
        &self,
        container: &str,
        partition: &str,
        (id, etag): (&str, &str),
        document: &str,
    ) -> Call {
        let mut call = self.of_documents(Verb::Put, container, Some(id), "replace a document of");
        call.headers = Self::partition_headers(partition);
        call.headers.push(("if-match", etag.to_owned()));
        call.body = document.as_bytes().to_vec();
        call.once()
    }

    /// A request for several operations of one partition, all of them or none.
    pub(crate) fn batch(&self, container: &str, writes: &[Write<'_>]) -> Call {
        let partition = writes.first().map_or("[{}]", |write| write.partition);
        let mut call = self.several(container, writes, false);
        call.headers = Self::partition_headers(partition);
        call.headers.extend([
            ("x-ms-cosmos-is-batch-request", "True".to_owned()),
            ("x-ms-cosmos-batch-atomic", "True".to_owned()),
            ("x-ms-cosmos-batch-continue-on-error", "False".to_owned()),
        ]);
        call
    }

    /// A request for several operations of one range of partitions, each of which the server does or refuses by itself.
    pub(crate) fn bulk(&self, container: &str, range: &str, writes: &[Write<'_>]) -> Call {
        let mut call = self.several(container, writes, true);
        call.headers = vec![
            ("content-type", "application/json".to_owned()),
            ("x-ms-documentdb-partitionkeyrangeid", range.to_owned()),
            ("x-ms-cosmos-is-batch-request", "True".to_owned()),
            ("x-ms-cosmos-batch-atomic", "False".to_owned()),
            ("x-ms-cosmos-batch-continue-on-error", "True".to_owned()),
            ("prefer", "return=minimal".to_owned()),
        ];
        call.is_of_range = true;
        call
    }

    fn several(&self, container: &str, writes: &[Write<'_>], is_bulk: bool) -> Call {
        let mut call = self.of_documents(Verb::Post, container, None, "write documents to");
        let mut body = String::from("[");
        for (at, write) in writes.iter().enumerate() {
            if at > 0 {
                body.push(',');
            }
            write.operation.add_to(write.partition, is_bulk, &mut body);
        }
        body.push(']');
        call.body = body.into_bytes();
        call
    }
}

impl Answer {
    /// Whether each operation of a batch or a bulk request is done. `None`: the server refuses the request as a whole.
    /// Errors: `protocol_violation`.
    pub(crate) fn are_done(&self, operations: usize) -> Result<Option<Vec<bool>>> {
        #[derive(Deserialize)]
        struct Done {
            #[serde(rename = "statusCode")]
            status: u16,
        }
        if !(200..300).contains(&self.status) {
            return Ok(None);
        }
        let done: Vec<Done> = serde_json::from_slice(&self.body)
            .map_err(|error| error::violation(&error.to_string()))?;
        if done.len() != operations {
            let text = format!("{} answers to {operations} operations", done.len());
            return Err(error::violation(&text));
        }
        let done = done.iter().map(|one| (200..300).contains(&one.status));
        Ok(Some(done.collect()))
    }

    /// Whether all operations of a batch are done. Errors: `protocol_violation`.
    pub(crate) fn is_batch_done(&self, operations: usize) -> Result<bool> {
        let done = self.are_done(operations)?;
        Ok(done.is_some_and(|done| done.into_iter().all(|is_done| is_done)))
    }

    /// What became of a single operation.
    pub fn outcome(&self) -> Outcome {
        match self.status {
            200..=299 => Outcome::Done,
            status => Outcome::Refused {
                status,
                error: self.error(),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::Account;

    #[test]
    fn a_batch_has_the_form_of_microsofts_clients() {
        let account = Rc::new(Account::new("https://a/", "YQ==", "d").unwrap());
        let client = Client::new(&account);
        let operations = [
            Operation::Create {
                document: r#"{"id":"1"}"#.into(),
            },
            Operation::Upsert {
                document: r#"{"id":"2"}"#.into(),
                id: "2".into(),
            },
            Operation::Delete {
                id: "3\"".into(),
                if_match: Some("\"e\"".into()),
            },
        ];
        let partition = r#"["p"]"#;
        let writes = operations.each_ref().map(|operation| Write {
            partition,
            operation,
        });
        let call = client.batch("c x", &writes);
        assert_eq!(
            (call.path.as_str(), call.link.as_str()),
            ("dbs/d/colls/c%20x/docs", "dbs/d/colls/c x")
        );
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        let expected = serde_json::json!([
            { "operationType": "Create", "resourceBody": { "id": "1" } },
            { "operationType": "Upsert", "partitionKey": "[\"p\"]", "resourceBody": { "id": "2" } },
            { "operationType": "Delete", "partitionKey": "[\"p\"]", "id": "3\"", "ifMatch": "\"e\"" },
        ]);
        assert_eq!(body, expected);
        let bytes: usize = operations.iter().map(|one| one.bytes(partition)).sum();
        assert!(call.body.len() <= bytes);
        let call = client.bulk("c x", "7", &writes);
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        assert_eq!(body[0]["partitionKey"], "[\"p\"]");
        assert_eq!(
            body.as_array().unwrap()[1..],
            expected.as_array().unwrap()[1..]
        );
        assert!(call.body.len() <= bytes);
        let named = |name| call.headers.iter().find(|(known, _)| *known == name);
        assert_eq!(named("x-ms-documentdb-partitionkeyrangeid").unwrap().1, "7");
        assert_eq!(named("x-ms-cosmos-batch-atomic").unwrap().1, "False");
        assert_eq!(named("x-ms-documentdb-partitionkey"), None);
        let single = client.single("c", "[1]", &operations[2]);
        assert_eq!(single.path, "dbs/d/colls/c/docs/3%22");
    }

    #[test]
    fn an_id_that_the_server_does_not_take_is_refused() {
        for id in ["", "a/b", "a\\b", "a?", "#", "a ", "\n", &"x".repeat(1024)] {
            assert_eq!(check_id(id).unwrap_err().code, "invalid_id", "{id}");
        }
        check_id("a b|%é").unwrap();
    }
}

//! Queries, page by page.

use rapidbyte_sdk::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client::{Asked, Client, Verb};
use crate::error;

/// A parameter of a query, such as `@from`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Param {
    name: String,
    value: Value,
}

impl Param {
    /// The name begins with `@`.
    pub fn new(name: &str, value: impl Into<Value>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.into(),
        }
    }
}

/// One page of an answer.
#[derive(Debug)]
pub struct Page {
    /// The text of each document.
    pub documents: Vec<Box<RawValue>>,
    /// Where the next page begins. `None`: this is the last one.
    pub continuation: Option<String>,
}

impl Client {
    /// A page of a query. `partition`: the header of the only partition; `None`: all of them.
    pub fn query(
        &mut self,
        container: &str,
        query: (&str, &[Param]),
        partition: Option<&str>,
        page_items: u32,
        continuation: Option<&str>,
    ) -> Result<Page> {
        let asked = self.ask_page(container, query, partition, page_items, continuation)?;
        self.page(asked)
    }

    /// Asks for a page, as [`Client::query`] does, and does not wait for it.
    pub fn ask_page(
        &self,
        container: &str,
        (query, params): (&str, &[Param]),
        partition: Option<&str>,
        page_items: u32,
        continuation: Option<&str>,
    ) -> Result<Asked> {
        let mut call = self.of_documents(Verb::Post, container, None, "query");
        call.body = json!({ "query": query, "parameters": params })
            .to_string()
            .into_bytes();
        call.headers = vec![
            ("content-type", "application/query+json".into()),
            ("x-ms-documentdb-isquery", "True".into()),
            ("x-ms-max-item-count", page_items.to_string()),
        ];
        call.headers
            .push(("x-ms-documentdb-query-enablecrosspartition", "True".into()));
        if let Some(partition) = partition {
            call.headers
                .push(("x-ms-documentdb-partitionkey", partition.to_owned()));
        }
        if let Some(token) = continuation {
            call.headers.push(("x-ms-continuation", token.to_owned()));
        }
        self.begin(call)
    }

    /// The page that was asked for.
    pub fn page(&mut self, asked: Asked) -> Result<Page> {
        #[derive(Deserialize)]
        struct Answered {
            #[serde(rename = "Documents")]
            documents: Vec<Box<RawValue>>,
        }
        let answer = self.finish(asked)?.expect_success()?;
        let answered: Answered = serde_json::from_slice(&answer.body)
            .map_err(|error| error::violation(&error.to_string()))?;
        Ok(Page {
            documents: answered.documents,
            continuation: answer.continuation,
        })
    }

    /// The document with this id in a partition.
    pub fn find(
        &mut self,
        container: &str,
        partition: &str,
        id: &str,
    ) -> Result<Option<Box<RawValue>>> {
        let mut call = self.of_documents(Verb::Get, container, Some(id), "read a document of");
        call.headers = vec![
            ("x-ms-documentdb-partitionkey", partition.to_owned()),
            // Of no meaning here; the server of the tests fails on an unknown id without it.
            ("x-ms-documentdb-query-enablecrosspartition", "True".into()),
        ];
        let answer = self.ask(call)?;
        if answer.status == 404 {
            return Ok(None);
        }
        let answer = answer.expect_success()?;
        let found = serde_json::from_slice(&answer.body);
        found
            .map(Some)
            .map_err(|error| error::violation(&error.to_string()))
    }
}

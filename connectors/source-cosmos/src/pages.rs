//! The pages of a query, one after the other, as lines of JSON.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use rapidbyte_cosmos::{Asked, Client, Param, SYSTEM_FIELDS};
use rapidbyte_formats::write_string;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::Settled;
use crate::increment::Tracker;

/// Bytes of pages that are kept for the reads of all streams.
pub(crate) const MAX_KEPT_BYTES: usize = 8 << 20;
/// A run that begins later than this after its plan reads the first pages again.
const MAX_AGE: Duration = Duration::from_secs(60);
/// The search of a document that has a declared field.
const MAX_SEARCH: Duration = Duration::from_secs(10);

/// Asks for the pages of a stream.
pub(crate) struct Pages {
    client: Client,
    stream: String,
    container: String,
    query: String,
    params: Vec<Param>,
    origin: Origin,
    /// Of an incremental read.
    tracker: Option<Tracker>,
    page_items: u32,
    system_fields: bool,
    /// Where the next page begins.
    continuation: Option<String>,
    has_ended: bool,
    /// The next page is asked for while somebody uses the last one.
    reads_ahead: bool,
    ahead: Option<Asked>,
    /// Of the page that was read last, from 1.
    number: u64,
    /// Whether it keeps the pages that it reads.
    keeps: bool,
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    begun: Instant,
    /// Pages that were read before.
    again: VecDeque<Vec<u8>>,
}

/// Who has written the text of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The operator, all of it.
    Query,
    /// The operator has written its condition.
    Filter,
    Connector,
}

impl Pages {
    /// `tracker` has begun.
    pub fn new(
        client: Client,
        stream: &Settled,
        filter: Option<&str>,
        tracker: Option<Tracker>,
        (page_items, system_fields): (u32, bool),
    ) -> Self {
        let (mut conditions, params) = tracker
            .as_ref()
            .map(Tracker::conditions)
            .unwrap_or_default();
        // A comment may be at the end of a filter.
        conditions.extend(filter.map(|filter| format!("({filter}\n)")));
        let query = match conditions.is_empty() {
            false => format!("{} WHERE {}", stream.query, conditions.join(" AND ")),
            true => stream.query.clone(),
        };
        Self {
            client,
            stream: stream.name.clone(),
            container: stream.container.clone(),
            query,
            params,
            origin: match filter {
                _ if stream.has_query => Origin::Query,
                Some(_) => Origin::Filter,
                None => Origin::Connector,
            },
            tracker,
            page_items,
            system_fields,
            continuation: None,
            has_ended: false,
            reads_ahead: false,
            ahead: None,
            number: 0,
            keeps: false,
            kept: VecDeque::new(),
            kept_bytes: 0,
            begun: Instant::now(),
            again: VecDeque::new(),
        }
    }

    /// The same, which keep what they read, for [`Pages::again`]. If it becomes too large, nothing is kept.
    pub fn keeping(self) -> Self {
        Self {
            keeps: true,
            ..self
        }
    }

    /// The same, which ask for the next page while the last one is used. Only for a read of all pages: each costs request
    /// units.
    pub fn reading_ahead(self) -> Self {
        Self {
            reads_ahead: true,
            ..self
        }
    }

    fn keep(&mut self, lines: &[u8]) {
        self.kept_bytes += lines.len();
        match self.kept_bytes > MAX_KEPT_BYTES {
            true => self.kept.clear(),
            false => self.kept.push_back(lines.to_vec()),
        }
    }

    /// The bytes of the pages that were read to be kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether the first page is too old for a read.
    pub fn are_old(&self) -> bool {
        self.begun.elapsed() > MAX_AGE
    }

    /// The same pages from the first one, without asking for those that are kept. `None` if a page was not kept.
    pub fn again(self) -> Option<Self> {
        (self.number > 0 && self.kept.len() as u64 == self.number).then(|| Self {
            number: 0,
            keeps: false,
            kept: VecDeque::new(),
            again: self.kept,
            ..self
        })
    }

    /// The documents of the next page, one a line; none behind the last page.
    pub fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
        if let Some(lines) = self.again.pop_front() {
            self.number += 1;
            if self.again.is_empty() {
                self.look_ahead()?;
            }
            return Ok(Some(lines));
        }
        if self.has_ended {
            return Ok(None);
        }
        let page = {
            let _phase = phase::enter(Kind::Query);
            let asked = match self.ahead.take() {
                Some(asked) => asked,
                None => self.ask()?,
            };
            let page = self.client.page(asked);
            page.map_err(|error| self.refused(error))?
        };
        self.number += 1;
        self.has_ended = page.continuation.is_none();
        self.continuation = page.continuation;
        self.look_ahead()?;
        let _phase = phase::enter(Kind::Decode);
        let mut lines = Vec::new();
        for document in &page.documents {
            if let Some(tracker) = &mut self.tracker
                && !tracker.takes(document.get())?
            {
                continue;
            }
            match self.system_fields {
                true => push_line(document.get(), &mut lines),
                false => push_own(document, &mut lines)
                    .map_err(|error| Error::data("jsonl_broken_line", error))?,
            }
        }
        if self.keeps {
            self.keep(&lines);
        }
        Ok(Some(lines))
    }

    fn ask(&self) -> Result<Asked> {
        self.client.ask_page(
            &self.container,
            (&self.query, &self.params),
            None,
            self.page_items,
            self.continuation.as_deref(),
        )
    }

    fn look_ahead(&mut self) -> Result<()> {
        if self.reads_ahead && !self.has_ended {
            let _phase = phase::enter(Kind::Query);
            self.ahead = Some(self.ask()?);
        }
        Ok(())
    }

    /// The first answer alone, to find out whether the server accepts the query. Errors: `invalid_query`, also if the first
    /// row is not an object; `invalid_where`.
    pub fn try_query(mut self, stream: &Settled) -> Result<()> {
        self.page_items = 1;
        let lines = self.next_page()?.unwrap_or_default();
        match lines.first() {
            Some(b'{') | None => Ok(()),
            Some(_) => Err(no_objects(stream)),
        }
    }

    /// The cursor behind the read, of an incremental read.
    pub fn checkpoint(&self) -> Result<Option<String>> {
        let saved = self.tracker.as_ref().map(Tracker::checkpoint);
        Ok(saved.transpose()?.flatten())
    }

    /// Whether no document of the container has this field. False if a search of [`MAX_SEARCH`] does not say.
    pub fn lacks(&mut self, field: &str) -> Result<bool> {
        let begun = Instant::now();
        let mut name = Vec::new();
        write_string(field, &mut name);
        let name = String::from_utf8_lossy(&name);
        let query = format!("SELECT c.id FROM c WHERE IS_DEFINED(c[{name}])");
        let mut continuation = None;
        loop {
            let _phase = phase::enter(Kind::Query);
            let page = self.client.query(
                &self.container,
                (&query, &[]),
                None,
                1,
                continuation.as_deref(),
            )?;
            if !page.documents.is_empty() {
                return Ok(false);
            }
            continuation = page.continuation;
            if continuation.is_none() || begun.elapsed() > MAX_SEARCH {
                return Ok(continuation.is_none());
            }
        }
    }

    /// The error of a query that the server refuses, at the key of the pipeline file that has it.
    fn refused(&self, error: Error) -> Error {
        if error.code != "cosmos_refused" {
            return error;
        }
        match self.origin {
            Origin::Query => Error::config("invalid_query", &error.message)
                .hint(
                    "correct the query; an account answers queries over several partitions only without ORDER BY, \
                     DISTINCT, GROUP BY, TOP, OFFSET and aggregates",
                )
                .at(key_of_query(&self.stream)),
            Origin::Filter => Error::config("invalid_where", &error.message).hint(
                "write a condition in the language of Cosmos DB, in which c is the document, such as c.total > 100",
            ),
            Origin::Connector => error,
        }
    }

    /// The place of a document.
    pub fn location(&self, document: Option<u64>) -> String {
        let place = format!("{}, page {}", self.container, self.number);
        match document {
            Some(document) => format!("{place}, document {document}"),
            None => place,
        }
    }
}

fn key_of_query(stream: &str) -> String {
    format!("config.streams[{stream:?}].query")
}

/// The error of a query whose rows are not objects.
pub(crate) fn no_objects(stream: &Settled) -> Error {
    let text = "the query gives rows that are not objects, so they have no columns";
    Error::config("invalid_query", text)
        .hint("select fields without VALUE: SELECT c.id, c.total FROM c; or name a value: SELECT c.total AS total FROM c")
        .at(key_of_query(&stream.name))
}

/// Appends a value on one line.
pub(crate) fn push_line(value: &str, lines: &mut Vec<u8>) {
    let begin = lines.len();
    lines.extend_from_slice(value.as_bytes());
    end_line(begin, lines);
}

/// Makes one line of the text from `begin`: a line break in a JSON text is only between its parts.
fn end_line(begin: usize, lines: &mut Vec<u8>) {
    for byte in &mut lines[begin..] {
        if matches!(*byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    lines.push(b'\n');
}

/// The field by which dest-cosmos tells the runs of a `replace` apart.
const OF_DESTINATION: &str = "_rapidbyte";

/// Appends a document without the fields that the server and dest-cosmos set. What is not an object stays as it is.
fn push_own(document: &RawValue, lines: &mut Vec<u8>) -> serde_json::Result<()> {
    /// Without a copy, unless it is escaped.
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    struct Own<'a>(&'a mut Vec<u8>);
    impl<'de> Visitor<'de> for Own<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
            let mut is_first = true;
            while let Some((Name(key), value)) = map.next_entry::<Name<'_>, &RawValue>()? {
                // All of them begin with it.
                let is_set = key.starts_with('_')
                    && (SYSTEM_FIELDS.contains(&key.as_ref()) || key == OF_DESTINATION);
                if is_set {
                    continue;
                }
                if !std::mem::take(&mut is_first) {
                    self.0.push(b',');
                }
                write_string(&key, self.0);
                self.0.push(b':');
                self.0.extend_from_slice(value.get().as_bytes());
            }
            Ok(())
        }
    }
    if !document.get().starts_with('{') {
        push_line(document.get(), lines);
        return Ok(());
    }
    let begin = lines.len();
    lines.push(b'{');
    serde_json::Deserializer::from_str(document.get()).deserialize_map(Own(lines))?;
    lines.push(b'}');
    end_line(begin, lines);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_document_loses_the_servers_fields_alone() {
        let own = |text: &str| {
            let mut lines = Vec::new();
            push_own(serde_json::from_str(text).unwrap(), &mut lines).unwrap();
            String::from_utf8(lines).unwrap()
        };
        let document = "{\"_rid\":\"x\",\"a\\\"\":1.50,\n\"s\":{\"_ts\":1},\"_ts\":5,\"_own\":null,\"_etag\":\"e\"}";
        assert_eq!(
            own(document),
            "{\"a\\\"\":1.50,\"s\":{\"_ts\":1},\"_own\":null}\n"
        );
        assert_eq!(own("{\"_ts\":1}"), "{}\n");
        assert_eq!(own("[1]"), "[1]\n");
    }
}

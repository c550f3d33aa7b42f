//! The pages of a query, one after the other, as lines of JSON.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use rapidbyte_cosmos::{Client, SYSTEM_FIELDS};
use rapidbyte_formats::write_string;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::Settled;

/// Bytes of pages that are kept for the reads of all streams.
pub(crate) const MAX_KEPT_BYTES: usize = 8 << 20;
/// A run that begins later than this after its plan reads the first pages again.
const MAX_AGE: Duration = Duration::from_secs(60);

/// Asks for the pages of a stream.
pub(crate) struct Pages {
    client: Client,
    container: String,
    query: String,
    page_items: u32,
    system_fields: bool,
    /// Where the next page begins.
    continuation: Option<String>,
    has_ended: bool,
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

impl Pages {
    pub fn new(
        client: Client,
        stream: &Settled,
        filter: Option<&str>,
        (page_items, system_fields): (u32, bool),
    ) -> Self {
        let query = match filter {
            Some(filter) => format!("{} WHERE {filter}", stream.query),
            None => stream.query.clone(),
        };
        Self {
            client,
            container: stream.container.clone(),
            query,
            page_items,
            system_fields,
            continuation: None,
            has_ended: false,
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
            return Ok(Some(lines));
        }
        if self.has_ended {
            return Ok(None);
        }
        let page = {
            let _phase = phase::enter(Kind::Query);
            self.client.query(
                &self.container,
                (&self.query, &[]),
                None,
                self.page_items,
                self.continuation.as_deref(),
            )?
        };
        self.number += 1;
        self.has_ended = page.continuation.is_none();
        self.continuation = page.continuation;
        let _phase = phase::enter(Kind::Decode);
        let mut lines = Vec::new();
        for document in &page.documents {
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

    /// The place of a document.
    pub fn location(&self, document: Option<u64>) -> String {
        let place = format!("{}, page {}", self.container, self.number);
        match document {
            Some(document) => format!("{place}, document {document}"),
            None => place,
        }
    }
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
    struct Own<'a>(&'a mut Vec<u8>);
    impl<'de> Visitor<'de> for Own<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
            let mut is_first = true;
            while let Some((key, value)) = map.next_entry::<Cow<'_, str>, &RawValue>()? {
                if SYSTEM_FIELDS.contains(&key.as_ref()) || key == OF_DESTINATION {
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

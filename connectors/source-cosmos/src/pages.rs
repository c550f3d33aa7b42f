//! The pages of a query, one after the other, as lines of JSON.

use std::borrow::Cow;
use std::fmt;

use rapidbyte_cosmos::{Client, SYSTEM_FIELDS};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::config::Settled;

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
        }
    }

    /// The documents of the next page, one a line; none behind the last page.
    pub fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
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

/// Appends a value on one line: a line break in a JSON text is only between its parts.
pub(crate) fn push_line(value: &str, lines: &mut Vec<u8>) {
    lines.extend(value.bytes().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => byte,
    }));
    lines.push(b'\n');
}

/// The field by which dest-cosmos tells the runs of a `replace` apart.
const OF_DESTINATION: &str = "_rapidbyte";

/// Appends a document without the fields that the server and dest-cosmos set. What is not an object stays as it is.
fn push_own(document: &RawValue, lines: &mut Vec<u8>) -> serde_json::Result<()> {
    struct Own<'a>(&'a mut String);
    impl<'de> Visitor<'de> for Own<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
            while let Some((key, value)) = map.next_entry::<Cow<'_, str>, &RawValue>()? {
                if SYSTEM_FIELDS.contains(&key.as_ref()) || key == OF_DESTINATION {
                    continue;
                }
                if self.0.len() > 1 {
                    self.0.push(',');
                }
                self.0.push_str(&serde_json::Value::from(&*key).to_string());
                self.0.push(':');
                self.0.push_str(value.get());
            }
            Ok(())
        }
    }
    if !document.get().starts_with('{') {
        push_line(document.get(), lines);
        return Ok(());
    }
    let mut own = String::with_capacity(document.get().len());
    own.push('{');
    serde_json::Deserializer::from_str(document.get()).deserialize_map(Own(&mut own))?;
    own.push('}');
    push_line(&own, lines);
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

//! The pages of a stream, one after the other.

use crate::client::{Client, Param};
use crate::cursor::Tracker;
use crate::json::push_line;
use crate::page::{Pager, Place, document, records};
use crate::settings::Settled;
use rapidbyte_formats::jsonl::REST;
use rapidbyte_formats::{FormatError, Owner, Rejected};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use std::sync::Arc;

/// Asks for the pages of a stream and gives their records as lines of JSON.
pub(crate) struct Walk {
    client: Client,
    stream: Settled,
    pager: Pager,
    /// The page to be asked for; none behind the last one.
    place: Option<Place>,
    /// Of the page that was asked for last, from 1.
    number: u64,
    pub tracker: Option<Tracker>,
    /// The stream's columns, as far as they are known.
    columns: SchemaRef,
}

impl Walk {
    pub fn new(client: Client, stream: Settled, tracker: Option<Tracker>) -> Self {
        let pager = Pager::new(&stream.pages);
        Self {
            place: Some(pager.first()),
            pager,
            client,
            stream,
            number: 0,
            tracker,
            columns: Arc::new(Schema::empty()),
        }
    }

    /// The same for a stream of these columns.
    pub fn with_columns(self, columns: SchemaRef) -> Self {
        Self { columns, ..self }
    }

    pub fn stream(&self) -> &str {
        &self.stream.name
    }

    pub fn settled(&self) -> &Settled {
        &self.stream
    }

    /// The records of the next page, one a line; none behind the last page.
    pub fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(place) = self.place.take() else {
            return Ok(None);
        };
        let mut params: Vec<Param> = self.pager.params(&place);
        if let Some(tracker) = &self.tracker {
            params.extend(tracker.param()?);
        }
        let named = match &place {
            Place::Url(url) => Some(url),
            _ => None,
        };
        let answer = self.client.ask(&self.stream, named, &params)?;
        self.number += 1;
        let _phase = phase::enter(Kind::Decode);
        if answer.is_empty {
            return Ok(Some(Vec::new()));
        }
        let lines = self.lines(&place, &answer);
        lines.map(Some).map_err(|mut error| {
            error.location = error.location.or_else(|| Some(self.location(None)));
            error.in_stream(&self.stream.name)
        })
    }

    fn lines(&mut self, place: &Place, answer: &crate::client::Answer) -> Result<Vec<u8>> {
        let document = document(&answer.body)?;
        let records = records(&self.stream, document)?;
        let mut lines = Vec::with_capacity(answer.body.len());
        for record in &records {
            if let Some(tracker) = &mut self.tracker
                && !tracker.takes(record)?
            {
                continue;
            }
            push_line(record.get().as_bytes(), &mut lines);
        }
        self.place = self.pager.after(place, answer, document, &records)?;
        Ok(lines)
    }

    /// The place of a record.
    pub fn location(&self, record: Option<u64>) -> String {
        let url = self.stream.url.without_query();
        match record {
            Some(record) => format!("{url}, page {}, record {record}", self.number),
            None => format!("{url}, page {}", self.number),
        }
    }

    /// The hint for a key that is not a column.
    fn unknown_hint(&self, key: &str) -> String {
        let declare = self.declare(key, "json");
        format!(
            "write unknown_keys: collect under config.streams.{} to keep such keys in the column \
             {REST}, or {declare}",
            self.stream.name
        )
    }

    /// The hint for a value that its column does not hold.
    fn type_hint(&self, column: &str) -> String {
        let is_time = matches!(self.column_type(column), Some(DataType::Timestamp(..)));
        let advice = match is_time {
            true => format!(
                "{}, or json if some values are not strings",
                self.declare(column, "string")
            ),
            false => format!(
                "{}, because a json column holds every value",
                self.declare(column, "json")
            ),
        };
        match self.stream.names_column(column) {
            true => advice,
            false => format!(
                "{advice}; or raise config.sample_records so that the sample contains such \
                     values: the type was inferred from the first records"
            ),
        }
    }

    fn column_type(&self, column: &str) -> Option<&DataType> {
        let (_, field) = self.columns.fields().find(column)?;
        Some(field.data_type())
    }

    /// The place where a column gets a type.
    fn declare(&self, column: &str, ty: &str) -> String {
        let key = match self.stream.schema {
            Some(_) => "schema",
            None => "types",
        };
        let name = serde_json::Value::from(column).to_string();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = match column.chars().all(is_plain) && !column.is_empty() {
            true => column,
            false => &name,
        };
        format!(
            "write {key}: {{ {name}: {ty} }} under config.streams.{}",
            self.stream.name
        )
    }

    /// The error of the formats for the page that was read last.
    pub fn refuse(&self, error: FormatError) -> Error {
        let kind = match error.owner() {
            Owner::Config => ErrorKind::Config,
            Owner::Schema => ErrorKind::Schema,
            Owner::Data => ErrorKind::Data,
            Owner::Internal => ErrorKind::Internal,
        };
        let column = error.column.as_deref().unwrap_or_default();
        let hint = match error.code {
            "jsonl_unknown_field" if self.column_type(column).is_none() => {
                Some(self.unknown_hint(column))
            }
            // The key is in an object of a column.
            "jsonl_unknown_field" | "value_does_not_fit" => Some(self.type_hint(column)),
            _ => error.hint,
        };
        let location = match kind {
            ErrorKind::Config => None,
            _ => Some(self.location(error.line)),
        };
        Error {
            hint,
            column: error.column,
            location,
            ..Error::new(kind, error.code, &error.message).in_stream(&self.stream.name)
        }
    }

    /// A record of the page that was read last, which cannot be read.
    pub fn reject(&self, rejected: Rejected) -> Reject {
        let error = self.refuse(rejected.error);
        Reject {
            data: rejected.data,
            is_cut: rejected.is_cut,
            location: error.location,
            column: error.column,
            code: error.code,
            message: error.message,
            read_with: None,
        }
    }
}

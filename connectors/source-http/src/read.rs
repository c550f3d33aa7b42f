//! One read: the pages of a stream, one after the other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rapidbyte_formats::{Decoder, FormatError, Owner};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;
use serde_json::value::RawValue;

use crate::client::{Client, Param};
use crate::cursor::Tracker;
use crate::json::{entries, push_line};
use crate::page::{Pager, Place, document, records};
use crate::settings::Settled;

/// Asks for the pages of a stream and gives their records as lines of JSON.
pub(crate) struct Walk {
    client: Client,
    stream: Settled,
    pager: Pager,
    /// The page to be asked for; none behind the last one.
    place: Option<Place>,
    /// Of the page that was asked for last, from 1.
    number: u64,
    tracker: Option<Tracker>,
    /// Keys that stay, where others are left out.
    declared: Option<HashSet<String>>,
}

impl Walk {
    pub fn new(client: Client, stream: Settled, tracker: Option<Tracker>) -> Self {
        let pager = Pager::new(&stream.pages);
        let declared = stream.schema.as_ref().filter(|_| stream.ignores_unknown);
        let declared = declared.map(|schema| {
            let names = schema.fields().iter().map(|field| field.name().clone());
            names.collect()
        });
        Self {
            place: Some(pager.first()),
            pager,
            client,
            stream,
            number: 0,
            tracker,
            declared,
        }
    }

    pub fn stream(&self) -> &str {
        &self.stream.name
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
            match &self.declared {
                None => push_line(record.get(), &mut lines),
                Some(declared) => push_declared(record, declared, &mut lines)?,
            }
        }
        self.place = self.pager.after(place, answer, document, &records)?;
        Ok(lines)
    }

    /// Where a record stands.
    pub fn location(&self, record: Option<u64>) -> String {
        let url = self.stream.url.without_query();
        match record {
            Some(record) => format!("{url}, page {}, record {record}", self.number),
            None => format!("{url}, page {}", self.number),
        }
    }

    /// The error of the formats for the page that was read last.
    pub fn refuse(&self, error: FormatError) -> Error {
        let kind = match error.owner() {
            Owner::Config => ErrorKind::Config,
            Owner::Schema => ErrorKind::Schema,
            Owner::Data => ErrorKind::Data,
            Owner::Internal => ErrorKind::Internal,
        };
        let hint = match error.code {
            "jsonl_unknown_field" => Some(
                "declare it in the stream's schema, or write unknown_keys: ignore there; where the \
                 schema is inferred, raise sample_records"
                    .to_owned(),
            ),
            "value_does_not_fit" => Some(match self.stream.schema {
                Some(_) => "declare another type for it in the stream's schema: json holds whatever \
                     comes"
                    .to_owned(),
                None => "the type was inferred from the first records: declare the column's type in \
                     the stream's schema, or raise sample_records"
                    .to_owned(),
            }),
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
}

/// The record without the keys that nobody declared. What is no object stays, to be refused.
fn push_declared(record: &RawValue, declared: &HashSet<String>, lines: &mut Vec<u8>) -> Result<()> {
    let Ok(entries) = entries(record) else {
        push_line(record.get(), lines);
        return Ok(());
    };
    let mut object = String::from("{");
    for (key, value) in entries {
        if !declared.contains(&*key) {
            continue;
        }
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&serde_json::to_string(&key).map_err(Error::internal)?);
        object.push(':');
        object.push_str(value.get());
    }
    object.push('}');
    push_line(&object, lines);
    Ok(())
}

/// Reads the rows of one stream. Holds one page, one record and one batch.
pub struct Rows {
    walk: Walk,
    decoder: Decoder,
    lines: Vec<u8>,
    /// How much of the lines is decoded.
    at: usize,
    is_in_page: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    /// All rows were given.
    Read,
    /// Their checkpoint too.
    Told,
}

impl Rows {
    pub(crate) fn new(walk: Walk, decoder: Decoder) -> Self {
        Self {
            walk,
            decoder,
            lines: Vec::new(),
            at: 0,
            is_in_page: false,
            state: State::Reading,
        }
    }

    /// Goes on; false behind the last page.
    fn step(&mut self) -> Result<bool> {
        if !self.is_in_page {
            // The page before is let go first.
            self.lines = Vec::new();
            let Some(lines) = self.walk.next_page()? else {
                return Ok(false);
            };
            (self.lines, self.at, self.is_in_page) = (lines, 0, true);
            self.decoder.begin_file();
        }
        let _phase = phase::enter(Kind::Decode);
        let (walk, decoder) = (&self.walk, &mut self.decoder);
        if self.at == self.lines.len() {
            decoder.end_of_file().map_err(|e| walk.refuse(e))?;
            self.is_in_page = false;
            return Ok(true);
        }
        let taken = decoder.push(&self.lines[self.at..]);
        self.at += taken.map_err(|e| walk.refuse(e))?;
        Ok(true)
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        let _phase = phase::enter(Kind::Decode);
        let batch = self.decoder.take_batch();
        batch.map_err(|error| self.walk.refuse(error))
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema().clone()
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        let begun = Instant::now();
        while self.state == State::Reading && !self.decoder.is_full() {
            if !self.step()? {
                self.state = State::Read;
            } else if begun.elapsed() >= wait {
                break;
            }
        }
        if let Some(batch) = self.take()? {
            return Ok(Event::Batch(batch));
        }
        if self.state == State::Reading {
            return Ok(Event::Idle);
        }
        let is_told = std::mem::replace(&mut self.state, State::Told) == State::Told;
        let tracker = self.walk.tracker.as_ref().filter(|_| !is_told);
        match tracker.map(Tracker::checkpoint).transpose()?.flatten() {
            Some(cursor) => Ok(Event::Checkpoint(cursor)),
            None => Ok(Event::End),
        }
    }
}

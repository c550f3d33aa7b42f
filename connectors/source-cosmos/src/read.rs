//! One read: the rows of a query's pages.

use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rapidbyte_formats::{Decoder, FormatError, Owner, Rejected};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::config::Settled;
use crate::pages::{Pages, push_line};

/// Documents that cannot be read and are handed over at once. A step adds at most as many again.
const REJECTS: usize = 500;

/// Reads the rows of one stream. Holds one page, one document and one batch.
pub struct Rows {
    stream: Settled,
    pages: Pages,
    decoder: Decoder,
    lines: Vec<u8>,
    /// How much of the lines is decoded.
    at: usize,
    is_in_page: bool,
    has_ended: bool,
    /// The checkpoint behind the last row was given.
    is_told: bool,
    /// Documents that cannot be read, where the run keeps them.
    rejects: Vec<Reject>,
    /// The records to read instead of the pages.
    replay: Option<IntoIter<Reject>>,
}

/// The error of the formats for the page that was read last.
pub(crate) fn refuse(error: FormatError, pages: &Pages, stream: &Settled) -> Error {
    let kind = match error.owner() {
        Owner::Config => ErrorKind::Config,
        Owner::Schema => ErrorKind::Schema,
        Owner::Data => ErrorKind::Data,
        Owner::Internal => ErrorKind::Internal,
    };
    let hint = match error.code {
        "jsonl_unknown_field" => Some(format!(
            "declare the field, or write unknown_keys: collect under config.streams.{}",
            stream.name
        )),
        "jsonl_not_an_object" => Some(match stream.has_query {
            true => "each row of the query must be an object: select fields without VALUE, or leave such rows out by WHERE".to_owned(),
            false => "each document must be an object".to_owned(),
        }),
        "value_does_not_fit" => Some(format!(
            "declare another type for the column under config.streams.{}.types, such as json",
            stream.name
        )),
        _ => error.hint,
    };
    Error {
        hint,
        column: error.column,
        location: Some(pages.location(error.line)),
        ..Error::new(kind, error.code, &error.message)
    }
}

impl Rows {
    pub(crate) fn new(
        stream: Settled,
        pages: Pages,
        decoder: Decoder,
        records: Option<Vec<Reject>>,
    ) -> Self {
        Self {
            stream,
            pages,
            decoder,
            lines: Vec::new(),
            at: 0,
            is_in_page: false,
            has_ended: false,
            is_told: false,
            rejects: Vec::new(),
            replay: records.map(Vec::into_iter),
        }
    }

    fn refuse(&self, error: FormatError) -> Error {
        refuse(error, &self.pages, &self.stream)
    }

    fn reject(&self, rejected: Rejected) -> Reject {
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

    /// Reads the next record again; false behind the last one.
    fn replay_next(&mut self) -> Result<bool> {
        let Some(record) = self.replay.as_mut().and_then(Iterator::next) else {
            return Ok(false);
        };
        let _phase = phase::enter(Kind::Decode);
        let mut line = Vec::with_capacity(record.data.len() + 1);
        // A repaired record may have line breaks between its parts.
        push_line(&String::from_utf8_lossy(&record.data), &mut line);
        let pushed = self.decoder.push_record(&line);
        pushed.map_err(|error| Error {
            location: record.location.clone(),
            ..self.refuse(error)
        })?;
        for rejected in self.decoder.take_rejects() {
            let mut reject = self.reject(rejected);
            reject.location.clone_from(&record.location);
            self.rejects.push(reject);
        }
        Ok(true)
    }

    /// Reads on; false at the end.
    fn step(&mut self) -> Result<bool> {
        if self.replay.is_some() {
            return self.replay_next();
        }
        if !self.is_in_page {
            // The page before is let go first.
            self.lines = Vec::new();
            let Some(lines) = self.pages.next_page()? else {
                return Ok(false);
            };
            log::failpoint("source-cosmos.page")?;
            (self.lines, self.at, self.is_in_page) = (lines, 0, true);
            self.decoder.begin_file();
        }
        let _phase = phase::enter(Kind::Decode);
        let is_end = self.at == self.lines.len();
        let taken = match is_end {
            true => self.decoder.end_of_file().map(|()| 0),
            false => self.decoder.push(&self.lines[self.at..]),
        };
        self.at += taken.map_err(|error| self.refuse(error))?;
        self.is_in_page = !is_end;
        for rejected in self.decoder.take_rejects() {
            let reject = self.reject(rejected);
            self.rejects.push(reject);
        }
        Ok(true)
    }

    /// Says which fields the column of unknown fields has taken.
    fn tell_collected(&self) {
        let Some(collected) = self.decoder.collected().filter(|found| found.rows > 0) else {
            return;
        };
        log::warn(format!("stream {}: {collected}", self.stream.name));
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        self.decoder.schema().clone()
    }

    fn next(&mut self, wait: Duration) -> Result<Event> {
        let begun = Instant::now();
        while !self.has_ended && !self.decoder.is_full() && self.rejects.len() < REJECTS {
            let read = self.step();
            match read.map_err(|error| error.in_stream(&self.stream.name))? {
                false => {
                    self.tell_collected();
                    self.has_ended = true;
                }
                true if begun.elapsed() >= wait => break,
                true => {}
            }
        }
        if !self.rejects.is_empty() {
            return Ok(Event::Rejects(std::mem::take(&mut self.rejects)));
        }
        let batch = {
            let _phase = phase::enter(Kind::Decode);
            self.decoder.take_batch()
        };
        match batch.map_err(|error| self.refuse(error))? {
            Some(batch) => return Ok(Event::Batch(batch)),
            None if !self.has_ended => return Ok(Event::Idle),
            None => {}
        }
        let is_told = std::mem::replace(&mut self.is_told, true);
        match self.pages.checkpoint()?.filter(|_| !is_told) {
            Some(cursor) => {
                log::failpoint("source-cosmos.checkpoint")?;
                Ok(Event::Checkpoint(cursor))
            }
            None => Ok(Event::End),
        }
    }
}

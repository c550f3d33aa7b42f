//! One read: the pages of a stream, one after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rapidbyte_formats::jsonl::REST;
use rapidbyte_formats::{Decoder, FormatError, Owner, Rejected};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::client::{Client, Param};
use crate::cursor::Tracker;
use crate::following::Following;
use crate::json::push_line;
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
}

impl Walk {
    /// A record of the page that was read last, which cannot be read.
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
    /// Records that cannot be read, where the run keeps them.
    rejects: Vec<Reject>,
    /// The records to read instead of the pages.
    replay: Option<IntoIter<Reject>>,
    /// What to do about a record that the columns do not hold. `None`: it is an error, or a reject.
    following: Option<Following>,
}

/// Records that cannot be read and are handed over at once. A step adds at most as many again.
const REJECTS: usize = 500;

/// The outcome of one step.
enum Step {
    Forward,
    /// No page or record is left.
    AllRead,
    Changed(Box<Change>),
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
            rejects: Vec::new(),
            replay: None,
            following: None,
        }
    }

    /// Follows changes of the columns.
    pub(crate) fn following(mut self, following: Option<Following>) -> Self {
        self.following = following;
        self
    }

    /// Reads these records, which a run before kept as rejects, instead of the pages.
    pub(crate) fn replaying(mut self, records: Option<Vec<Reject>>) -> Self {
        self.replay = records.map(Vec::into_iter);
        self
    }

    /// Reads the next record again; false behind the last one.
    fn replay_next(&mut self) -> Result<bool> {
        let Some(record) = self.replay.as_mut().and_then(Iterator::next) else {
            return Ok(false);
        };
        let _phase = phase::enter(Kind::Decode);
        let mut line = Vec::with_capacity(record.data.len() + 1);
        // A repaired record may have line breaks between its parts.
        push_line(&record.data, &mut line);
        let pushed = self.decoder.push_record(&line);
        pushed.map_err(|error| {
            let error = self.walk.refuse(error);
            let location = record.location.clone();
            Error { location, ..error }
        })?;
        for rejected in self.decoder.take_rejects() {
            let mut reject = self.walk.reject(rejected);
            reject.location.clone_from(&record.location);
            self.rejects.push(reject);
        }
        Ok(true)
    }

    /// Goes on.
    fn step(&mut self) -> Result<Step> {
        if self.replay.is_some() {
            return Ok(match self.replay_next()? {
                true => Step::Forward,
                false => Step::AllRead,
            });
        }
        if !self.is_in_page {
            // The page before is let go first.
            self.lines = Vec::new();
            let Some(lines) = self.walk.next_page()? else {
                return Ok(Step::AllRead);
            };
            (self.lines, self.at, self.is_in_page) = (lines, 0, true);
            self.decoder.begin_file();
        }
        let _phase = phase::enter(Kind::Decode);
        let is_end = self.at == self.lines.len();
        let taken = match is_end {
            true => self.decoder.end_of_file().map(|()| 0),
            false => self.decoder.push(&self.lines[self.at..]),
        };
        match taken {
            Ok(taken) => self.at += taken,
            Err(error) => return self.refuse(error),
        }
        self.is_in_page = !is_end;
        self.take_rejects()
    }

    /// Ends the read: with a change of the columns, if other columns hold the record and the host follows that.
    fn refuse(&mut self, error: FormatError) -> Result<Step> {
        let following = self.following.take();
        let following = following.filter(|following| following.may_cure(&error));
        let cause = self.walk.refuse(error);
        let change = following.map(|following| following.change(&self.lines, cause.clone()));
        match change.transpose()?.flatten() {
            Some(change) => Ok(Step::Changed(Box::new(change))),
            None => Err(cause),
        }
    }

    /// Takes the records that could not be read, or ends the read with a change of the columns that may hold one of
    /// them.
    fn take_rejects(&mut self) -> Result<Step> {
        let rejects = self.decoder.take_rejects();
        let following = self.following.as_ref();
        let curable = following.and_then(|following| following.first_curable(&rejects));
        if let Some(error) = curable.map(|reject| reject.error.clone())
            && let Some(following) = self.following.take()
            && let Some(change) = following.change(&self.lines, self.walk.refuse(error))?
        {
            return Ok(Step::Changed(Box::new(change)));
        }
        let rejects = rejects.into_iter().map(|one| self.walk.reject(one));
        self.rejects.extend(rejects);
        Ok(Step::Forward)
    }

    /// Says which keys the column of unknown keys has taken.
    fn tell_collected(&self) {
        let Some(collected) = self.decoder.collected().filter(|found| found.rows > 0) else {
            return;
        };
        log::warn(format!("stream {}: {collected}", self.walk.stream()));
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
        while self.state == State::Reading
            && !self.decoder.is_full()
            && self.rejects.len() < REJECTS
        {
            match self.step()? {
                Step::AllRead => {
                    self.tell_collected();
                    self.state = State::Read;
                }
                Step::Changed(change) => return Ok(Event::Changed(change)),
                Step::Forward if begun.elapsed() >= wait => break,
                Step::Forward => {}
            }
        }
        if !self.rejects.is_empty() {
            return Ok(Event::Rejects(std::mem::take(&mut self.rejects)));
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

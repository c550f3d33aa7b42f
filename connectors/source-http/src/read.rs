//! One read: the rows of a stream's pages.

use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rapidbyte_formats::{Decoder, FormatError};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::cursor::Tracker;
use crate::following::Following;
use crate::json::push_line;
use crate::walk::Walk;

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
    /// How to treat a record that the columns do not hold. `None`: it is an error, or a reject.
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

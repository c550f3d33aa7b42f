//! One read: the files of a stream, one after the other, piece by piece.

use std::iter::Peekable;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rapidbyte_formats::{Compression, Decoder, FormatError};
use rapidbyte_sdk::log;
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::convert;
use crate::files::FileStream;
use crate::following::Following;
use crate::open::Text;
use crate::partition::{Partitions, Picked};

/// Reads the rows of one stream. Holds one piece of one file, one record and one batch.
pub struct Rows {
    stream: String,
    /// Files that are still to be read, the next one last.
    files: Vec<String>,
    decoder: Decoder,
    compression: Option<Compression>,
    max_window_bytes: usize,
    open: Option<Text>,
    folders: Option<Folders>,
    /// Records that could not be read, until they are handed over. Empty unless they are kept.
    rejects: Vec<Reject>,
    replay: Option<Replay>,
    /// How to treat a record that the columns do not hold. `None`: it is an error, or a reject.
    following: Option<Following>,
}

/// Records that are read instead of the files.
struct Replay {
    records: Peekable<IntoIter<Reject>>,
    /// The file of the record before, and what it was read with.
    begun: Option<(String, Option<String>)>,
}

/// Records that could not be read and are handed over at once. A step adds at most as many again.
const REJECTS: usize = 500;

/// Columns from the names of folders.
struct Folders {
    partitions: Partitions,
    picked: Picked,
    /// Of the file that was opened last, and its path.
    values: Vec<Option<String>>,
    path: String,
}

/// The outcome of one step.
enum Step {
    Forward,
    FileEnded,
    AllRead,
    Changed(Box<Change>),
}

impl Rows {
    pub(crate) fn new(
        stream: &FileStream,
        decoder: Decoder,
        compression: Option<Compression>,
        max_window_bytes: usize,
    ) -> Self {
        Self {
            stream: stream.name.clone(),
            files: stream.files.iter().rev().map(|f| f.0.clone()).collect(),
            decoder,
            compression,
            max_window_bytes,
            open: None,
            folders: None,
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

    /// Reads these records instead of the files, each with the columns and the folders of its file.
    pub(crate) fn replaying(mut self, records: Vec<Reject>) -> Self {
        self.files.clear();
        self.replay = Some(Replay {
            records: records.into_iter().peekable(),
            begun: None,
        });
        self
    }

    /// Adds columns from the names of folders; the decoder gives the columns of the files.
    pub(crate) fn with_folders(mut self, partitions: Partitions, picked: Picked) -> Self {
        self.folders = Some(Folders {
            partitions,
            picked,
            values: Vec::new(),
            path: String::new(),
        });
        self
    }

    /// Bytes in memory that depend on the data: the batch so far and pieces of a file.
    pub fn held_bytes(&self) -> usize {
        self.decoder.bytes() + self.open.as_ref().map_or(0, Text::held_bytes)
    }

    fn take(&mut self) -> Result<Option<RecordBatch>> {
        let _phase = phase::enter(Kind::Decode);
        let batch = self.decoder.take_batch();
        let batch = batch.map_err(|error| convert(error, &self.stream, None))?;
        match (batch, &self.folders) {
            (
                Some(batch),
                Some(Folders {
                    picked,
                    values,
                    path,
                    ..
                }),
            ) => picked
                .complete(&batch, values, &self.stream, path)
                .map(Some),
            (batch, _) => Ok(batch),
        }
    }

    fn step(&mut self) -> Result<Step> {
        if let Some(replay) = self.replay.take() {
            let mut replay = replay;
            let step = self.replay_next(&mut replay);
            self.replay = Some(replay);
            return step;
        }
        let Some(open) = &mut self.open else {
            let Some(path) = self.files.pop() else {
                return Ok(Step::AllRead);
            };
            if let Some(folders) = &mut self.folders {
                let values = folders.partitions.values(&path);
                folders.values = values.map_err(|error| error.in_stream(&self.stream))?;
                folders.path.clone_from(&path);
            }
            let window = self.max_window_bytes;
            self.open = Some(Text::open(&path, &self.stream, self.compression, window)?);
            self.decoder.begin_file();
            return Ok(Step::Forward);
        };
        let bytes = open.fill()?;
        let is_end = bytes.is_empty();
        let decoding = phase::enter(Kind::Decode);
        let taken = match is_end {
            true => self.decoder.end_of_file().map(|()| 0),
            false => self.decoder.push(bytes),
        };
        drop(decoding);
        match taken {
            Ok(taken) => open.consume(taken),
            Err(error) => return self.refuse(error),
        }
        if let Some(change) = self.take_rejects()? {
            return Ok(Step::Changed(change));
        }
        if is_end {
            self.open = None;
            return Ok(Step::FileEnded);
        }
        Ok(Step::Forward)
    }

    /// Ends the read: with a change of the columns, if other columns hold the record and the host follows that.
    fn refuse(&mut self, error: FormatError) -> Result<Step> {
        let following = self.following.take();
        let following = following.filter(|following| following.may_cure(&error));
        let cause = match &self.open {
            Some(open) => open.refuse(error),
            None => convert(error, &self.stream, None),
        };
        let change = following.map(|following| following.change(cause.clone()));
        match change.transpose()?.flatten() {
            Some(change) => Ok(Step::Changed(Box::new(change))),
            None => Err(cause),
        }
    }

    /// Reads the next record that is replayed.
    fn replay_next(&mut self, replay: &mut Replay) -> Result<Step> {
        let Some(next) = replay.records.peek() else {
            return Ok(Step::AllRead);
        };
        let location = next.location.clone().unwrap_or_default();
        let path = location.rsplit_once(':').map_or("", |(path, _)| path);
        let begun = (path.to_owned(), next.read_with.clone());
        if replay.begun.as_ref() != Some(&begun) {
            if replay.begun.take().is_some() {
                return Ok(Step::FileEnded);
            }
            self.begin_file_of_record(path, begun.1.as_deref())
                .map_err(|error| error.in_stream(&self.stream).at(&location))?;
            replay.begun = Some(begun);
        }
        let Some(record) = replay.records.next() else {
            return Ok(Step::AllRead);
        };
        let _phase = phase::enter(Kind::Decode);
        let pushed = self.decoder.push_record(&record.data);
        pushed.map_err(|error| convert(error, &self.stream, None).at(&location))?;
        for rejected in self.decoder.take_rejects() {
            let error = convert(rejected.error, &self.stream, None);
            self.rejects.push(Reject {
                data: rejected.data,
                is_cut: rejected.is_cut,
                location: record.location.clone(),
                column: error.column,
                code: error.code,
                message: error.message,
                read_with: record.read_with.clone(),
            });
        }
        Ok(Step::Forward)
    }

    /// Takes the columns of the record's file as they were, and the values of its folders. Errors:
    /// `replay_columns_unknown`.
    fn begin_file_of_record(&mut self, path: &str, read_with: Option<&str>) -> Result<()> {
        if let Some(folders) = &mut self.folders {
            folders.values = folders.partitions.values(path)?;
            path.clone_into(&mut folders.path);
        }
        if !self.decoder.has_positions() {
            self.decoder.begin_file();
            return Ok(());
        }
        let names = read_with.and_then(|names| serde_json::from_str::<Vec<String>>(names).ok());
        let Some(names) = names else {
            let text = format!(
                "a record of {path:?} cannot be replayed: the reject does not say the columns of its file in their order"
            );
            return Err(Error::data("replay_columns_unknown", text).hint(
                "write the columns into the column read_with of the reject as a JSON array, such as [\"id\",\"name\"], \
                 or repair the file and run the pipeline again",
            ));
        };
        let begun = self.decoder.begin_file_with(&names);
        begun.map_err(|error| {
            let error = convert(error, &self.stream, None);
            let text = format!("the columns of the record's file do not fit the stream any more: {}", error.message);
            Error::data("record_does_not_fit", text)
                .hint("repair the record at the source and run the pipeline again, or declare the columns as they were")
        })
    }

    /// Says which keys the column of unknown keys has taken.
    fn tell_collected(&self) {
        if let Some(collected) = self.decoder.collected().filter(|found| found.rows > 0) {
            log::warn(format!("stream {}: {collected}", self.stream));
        }
    }

    /// Takes the records of the open file that could not be read. Returns a change of the columns that may hold one of
    /// them.
    fn take_rejects(&mut self) -> Result<Option<Box<Change>>> {
        let Some(open) = &self.open else {
            return Ok(None);
        };
        let rejects = self.decoder.take_rejects();
        let following = self.following.as_ref();
        let curable = following.and_then(|following| following.first_curable(&rejects));
        let cause = curable.map(|reject| open.refuse(reject.error.clone()));
        if let Some(cause) = cause
            && let Some(following) = self.following.take()
            && let Some(change) = following.change(cause)?
        {
            return Ok(Some(Box::new(change)));
        }
        self.rejects
            .extend(rejects.into_iter().map(|one| open.reject(one)));
        Ok(None)
    }
}

impl Reader for Rows {
    fn schema(&self) -> SchemaRef {
        match &self.folders {
            Some(folders) => folders.picked.schema.clone(),
            None => self.decoder.schema().clone(),
        }
    }

    /// The rows so far once `wait` is over: many small files fill a batch slowly.
    fn next(&mut self, wait: Duration) -> Result<Event> {
        let begun = Instant::now();
        while !self.decoder.is_full() && self.rejects.len() < REJECTS {
            match self.step()? {
                Step::Forward => {}
                Step::AllRead if self.rejects.is_empty() => {
                    let batch = self.take()?;
                    if batch.is_none() {
                        self.tell_collected();
                    }
                    return Ok(batch.map_or(Event::End, Event::Batch));
                }
                // The end comes after the rejects.
                Step::AllRead => break,
                // The next file's rows have other values in the columns of folders.
                Step::FileEnded if self.folders.is_some() => {
                    if let Some(batch) = self.take()? {
                        return Ok(Event::Batch(batch));
                    }
                }
                Step::FileEnded => {}
                Step::Changed(change) => return Ok(Event::Changed(change)),
            }
            if begun.elapsed() >= wait {
                break;
            }
        }
        if !self.rejects.is_empty() {
            return Ok(Event::Rejects(std::mem::take(&mut self.rejects)));
        }
        Ok(self.take()?.map_or(Event::Idle, Event::Batch))
    }
}

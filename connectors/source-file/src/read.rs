//! One read: the files of a stream, one after the other, piece by piece.

use std::time::{Duration, Instant};

use rapidbyte_formats::{Compression, Decoder};
use rapidbyte_sdk::phase::{self, Kind};
use rapidbyte_sdk::prelude::*;

use crate::convert;
use crate::files::FileStream;
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
        }
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
        if bytes.is_empty() {
            self.decoder.end_of_file().map_err(|e| open.refuse(e))?;
            self.take_rejects();
            self.open = None;
            return Ok(Step::FileEnded);
        }
        let _phase = phase::enter(Kind::Decode);
        let taken = self.decoder.push(bytes).map_err(|e| open.refuse(e))?;
        open.consume(taken);
        self.take_rejects();
        Ok(Step::Forward)
    }

    /// Takes the records of the open file that could not be read.
    fn take_rejects(&mut self) {
        if let Some(open) = &self.open {
            let rejects = self.decoder.take_rejects().into_iter();
            self.rejects.extend(rejects.map(|one| open.reject(one)));
        }
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
                    return Ok(self.take()?.map_or(Event::End, Event::Batch));
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

//! The cursors of a pipeline's streams, in the destination.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rapidbyte_engine::{Class, Failure, did_you_mean};
use rapidbyte_runtime::Progress as TargetProgress;
use rapidbyte_state::State;
use serde_json::{Map, Value};

use crate::pipeline::Pipeline;

/// The key of a cursor that says what it was read from. Without it a source accepts what it finds.
pub const CURSOR_SOURCE: &str = "source";
/// The key of a cursor that is only valid for one server.
const CURSOR_SYSTEM: &str = "system";
const LIST_HINT: &str = "`rapidbyte state list PIPELINE` shows the streams";

/// Shows and moves the cursors of a pipeline. The destination has the authority; the history keeps a copy.
pub struct Cursors {
    pub(crate) pipeline: Pipeline,
    pub(crate) cursors: rapidbyte_engine::Cursors,
    /// The file of the history.
    pub(crate) file: PathBuf,
    /// The history, if a cursor is moved.
    pub(crate) history: Option<State>,
}

/// The position of one stream.
#[derive(Debug, Clone)]
pub struct StreamCursor {
    /// The stream.
    pub stream: String,
    /// Its progress as the destination knows it. `None`: no run has begun it.
    pub progress: Option<TargetProgress>,
    /// Why the next run refuses the stream.
    pub refused: Option<Failure>,
}

impl StreamCursor {
    /// The cursor from which the next run resumes.
    pub fn cursor(&self) -> Option<&str> {
        self.progress.as_ref()?.cursor.as_deref()
    }
}

/// A stream whose next run accepts another source or target.
#[derive(Debug, Clone)]
pub struct Rebound {
    /// The stream.
    pub stream: String,
    /// Its progress.
    pub progress: TargetProgress,
    /// The cursor is only valid for its own server: another server needs a full refresh.
    pub needs_same_server: bool,
}

impl Cursors {
    /// All streams that the pipeline names or that the history knows.
    ///
    /// # Errors
    /// Errors of the destination and of the history.
    pub fn list(&mut self) -> Result<Vec<StreamCursor>, Failure> {
        let names = self.names()?;
        let streams = names.into_iter().map(|stream| {
            Ok(StreamCursor {
                progress: self.progress(&stream)?,
                refused: self.refused_next(&stream)?,
                stream,
            })
        });
        streams.collect()
    }

    /// A stream that has a cursor.
    ///
    /// # Errors
    /// `unknown_stream`, `no_cursor`, and errors of the destination and of the history.
    pub fn get(&mut self, stream: &str) -> Result<StreamCursor, Failure> {
        let progress = self.progress(stream)?;
        let near = match progress {
            Some(_) => None,
            None => self.ensure_known(stream)?,
        };
        let found = StreamCursor {
            stream: stream.to_owned(),
            progress,
            refused: self.refused_next(stream)?,
        };
        if found.cursor().is_some() {
            return Ok(found);
        }
        let text = match &found.refused {
            Some(refused) => format!(
                "the stream has no cursor, and the next run is refused with {}: {}",
                refused.code, refused.message
            ),
            None => "the stream has no cursor: the next run begins with the first row".into(),
        };
        let hint = found.refused.and_then(|refused| refused.hint).or(near);
        let failure = Failure::new(Class::Config, "no_cursor", text)
            .in_stream(stream)
            .hint(hint.unwrap_or_else(|| LIST_HINT.into()));
        Err(self.redacted(failure))
    }

    /// The progress of a stream. `None`: no run has begun it. Changes nothing.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn progress(&mut self, stream: &str) -> Result<Option<TargetProgress>, Failure> {
        let progress = self.cursors.of(stream);
        progress.map_err(|failure| self.redacted(failure))
    }

    /// Refuses to move cursors while a run of the pipeline is active, because the move fences that run. With `force`
    /// it only names the run.
    ///
    /// # Errors
    /// `already_running`, and errors of the destination.
    pub fn refuse_active(&mut self, force: bool) -> Result<Option<String>, Failure> {
        let active = self.cursors.refuse_at_work(&self.file, force);
        active.map_err(|failure| self.redacted(failure))
    }

    /// The same, and opens the history: the step before a cursor moves.
    ///
    /// # Errors
    /// `already_running`, and errors of the destination and of the history.
    pub fn begin_move(&mut self, force: bool) -> Result<Option<String>, Failure> {
        let active = self.refuse_active(force)?;
        self.open_history()?;
        Ok(active)
    }

    /// Refuses an unknown stream, because nobody would read the cursor of a misspelt name. A name that only a pattern
    /// of the pipeline covers may be misspelt, too: returns a hint with similar names.
    ///
    /// # Errors
    /// `unknown_stream`, and errors of the history.
    pub fn ensure_known(&self, stream: &str) -> Result<Option<String>, Failure> {
        let known = self.names()?;
        if known.contains(stream) {
            return Ok(None);
        }
        let near = did_you_mean(stream, known.iter().map(String::as_str));
        if self.pipeline.document.source.entry_for(stream).is_some() {
            return Ok(near);
        }
        let text = format!("the pipeline has no stream {stream:?}");
        let hint = near.unwrap_or_else(|| LIST_HINT.into());
        let failure = Failure::new(Class::Config, "unknown_stream", text).hint(hint);
        Err(self.redacted(failure))
    }

    /// Asks the source whether it resumes the stream from a cursor. Returns why if the source cannot be asked.
    ///
    /// # Errors
    /// The source's reason to refuse the cursor, which would end the next run.
    pub fn refuse_unreadable(
        &self,
        stream: &str,
        cursor: &str,
    ) -> Result<Option<Failure>, Failure> {
        let readable = self.cursors.refuse_unreadable(stream, cursor);
        readable.map_err(|failure| self.redacted(failure))
    }

    /// Moves the cursor of a stream, or sets the stream to its first row. Fences an active run of the stream.
    ///
    /// # Errors
    /// `cursor_moved` where the stream has another commit than `shown`, and errors of the destination and of the
    /// history.
    pub fn put(
        &mut self,
        stream: &str,
        cursor: Option<&str>,
        shown: Option<&TargetProgress>,
    ) -> Result<TargetProgress, Failure> {
        self.open_history()?;
        let history = self.history.as_ref().expect("it was opened");
        let put = self.cursors.put(history, stream, cursor, shown);
        put.map_err(|failure| self.redacted(failure))
    }

    /// Lets the next run accept another source or another target, for one stream or for all that have a cursor. Calls
    /// `each` with each stream when it is done.
    ///
    /// # Errors
    /// `unknown_stream`, and errors of the destination and of the history. Streams that `each` got stay as they are.
    pub fn rebind(
        &mut self,
        stream: Option<&str>,
        mut each: impl FnMut(&Rebound),
    ) -> Result<(), Failure> {
        for stream in self.chosen(stream)? {
            let progress = self.progress(&stream)?;
            let cursor = progress.and_then(|progress| progress.cursor);
            let Some(mut cursor) = cursor.and_then(|cursor| keys_of(&cursor)) else {
                continue;
            };
            cursor.remove(CURSOR_SOURCE);
            // The destination forgets which table held the rows, too.
            let needs_same_server = cursor.contains_key(CURSOR_SYSTEM);
            let cursor = Value::Object(cursor).to_string();
            let progress = self.put(&stream, Some(&cursor), None)?;
            each(&Rebound {
                stream,
                progress,
                needs_same_server,
            });
        }
        Ok(())
    }

    /// Lets the next run start one stream, or all, with the first row. Calls `each` with each stream when it is done.
    ///
    /// # Errors
    /// `unknown_stream`, and errors of the destination and of the history. Streams that `each` got stay as they are.
    pub fn clear(
        &mut self,
        stream: Option<&str>,
        mut each: impl FnMut(&str, &TargetProgress),
    ) -> Result<(), Failure> {
        for name in self.chosen(stream)? {
            // A stream without a checkpoint begins with its first row as it is. One that is named is written down
            // all the same: that accepts rows which the target has already.
            if stream.is_none() && self.progress(&name)?.is_none() {
                continue;
            }
            let progress = self.put(&name, None, None)?;
            self.with_history(|history, pipeline, cursors| {
                history.forget_stream(pipeline, &name, &cursors.target_of(&name))
            })?;
            each(&name, &progress);
        }
        // If one stream is cleared, an interrupted run stays unfinished: it has appended other streams.
        if stream.is_none() {
            self.with_history(|history, pipeline, cursors| {
                history.give_up(pipeline, cursors.target())
            })?;
        }
        Ok(())
    }

    fn with_history(
        &mut self,
        work: impl FnOnce(&State, &str, &rapidbyte_engine::Cursors) -> rapidbyte_state::Result<()>,
    ) -> Result<(), Failure> {
        self.open_history()?;
        let history = self.history.as_ref().expect("it was opened");
        let pipeline = &self.pipeline.document.pipeline;
        let done = work(history, pipeline, &self.cursors).map_err(Failure::of_state);
        done.map_err(|failure| self.redacted(failure))
    }

    fn open_history(&mut self) -> Result<(), Failure> {
        if self.history.is_none() {
            let opened = State::open(&self.file).map_err(Failure::of_state);
            self.history = Some(opened.map_err(|failure| self.redacted(failure))?);
        }
        Ok(())
    }

    /// The stream, or all.
    fn chosen(&self, stream: Option<&str>) -> Result<BTreeSet<String>, Failure> {
        match stream {
            Some(stream) => {
                self.ensure_known(stream)?;
                Ok(BTreeSet::from([stream.to_owned()]))
            }
            None => self.names(),
        }
    }

    /// The streams that the pipeline names, or that the history knows.
    fn names(&self) -> Result<BTreeSet<String>, Failure> {
        let document = &self.pipeline.document;
        let known = match &self.history {
            Some(history) => history.streams(&document.pipeline),
            None => match State::look(&self.file) {
                Ok(Some(history)) => history.streams(&document.pipeline),
                Ok(None) => Ok(Vec::new()),
                Err(error) => Err(error),
            },
        };
        let known = known.map_err(|error| self.redacted(Failure::of_state(error)))?;
        let named = document.source.streams.iter();
        let named = named.filter(|entry| !entry.is_pattern());
        Ok(known
            .into_iter()
            .map(|record| record.stream)
            .chain(named.map(|entry| entry.name.clone()))
            .collect())
    }

    /// Why the next run of the stream is refused, if it is.
    fn refused_next(&mut self, stream: &str) -> Result<Option<Failure>, Failure> {
        match self.cursors.refuse_next(stream) {
            Ok(()) => Ok(None),
            Err(failure) if failure.class == Class::Contract => Ok(Some(self.redacted(failure))),
            Err(failure) => Err(self.redacted(failure)),
        }
    }

    fn redacted(&self, failure: Failure) -> Failure {
        failure.redacted(&self.pipeline.document)
    }
}

/// The keys of a cursor. `None` for one that is not a JSON object.
fn keys_of(cursor: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(cursor) {
        Ok(Value::Object(keys)) => Some(keys),
        _ => None,
    }
}

//! The cursors of a pipeline's streams, in the destination.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rapidbyte_engine::{Class, Failure, did_you_mean};
use rapidbyte_runtime::Progress as TargetProgress;
use rapidbyte_state::State;
use serde::{Deserialize, Serialize};
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

/// The progress of a stream, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownCursor {
    /// The stream.
    pub name: String,
    /// Whether a run has begun it.
    pub known: bool,
    /// Runs that have fenced. `None` as long as no run has begun the stream.
    pub epoch: Option<u64>,
    /// Commits.
    pub seq: Option<u64>,
    /// The run that fenced last.
    pub run_id: Option<String>,
    /// Whether that run has committed everything.
    pub complete: Option<bool>,
    /// The cursor of the last commit, as JSON.
    pub cursor: Option<Value>,
}

impl ShownCursor {
    /// The progress of this stream.
    pub fn of(stream: &str, progress: Option<&TargetProgress>) -> Self {
        Self {
            name: stream.to_owned(),
            known: progress.is_some(),
            epoch: progress.map(|progress| progress.epoch),
            seq: progress.map(|progress| progress.seq),
            run_id: progress.map(|progress| progress.run_id.clone()),
            complete: progress.map(|progress| progress.complete),
            cursor: progress
                .and_then(|progress| progress.cursor.as_deref())
                .map(json_of),
        }
    }
}

/// The progress of a stream, and why the next run refuses the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckedCursor {
    /// The progress.
    #[serde(flatten)]
    pub cursor: ShownCursor,
    /// Why the next run refuses the stream. `None`: it does not.
    pub refused: Option<RefusedNext>,
}

/// Why the next run refuses a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNext {
    /// A code from `docs/errors.md`.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl From<&StreamCursor> for CheckedCursor {
    fn from(found: &StreamCursor) -> Self {
        let refused = found.refused.as_ref();
        Self {
            cursor: ShownCursor::of(&found.stream, found.progress.as_ref()),
            refused: refused.map(|failure| RefusedNext {
                code: failure.code.clone(),
                message: failure.message.clone(),
                hint: failure.hint.clone(),
            }),
        }
    }
}

impl StreamCursor {
    /// The same for a list, from which nobody sets a cursor: its cursor does not have the secrets of the pipeline.
    #[must_use]
    pub fn redacted(self, pipeline: &Pipeline) -> Self {
        let progress = self.progress.map(|progress| TargetProgress {
            cursor: progress.cursor.map(|cursor| pipeline.redact(&cursor)),
            ..progress
        });
        Self { progress, ..self }
    }
}

/// A cursor is JSON; one that is not is shown as text.
fn json_of(cursor: &str) -> Value {
    serde_json::from_str(cursor).unwrap_or_else(|_| cursor.into())
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

    /// Fences all runs of a stream, and returns its progress: only a run that begins later can change it. An epoch of 0
    /// means that the destination does not fence runs of this target.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn fence(&mut self, stream: &str) -> Result<TargetProgress, Failure> {
        let progress = self.cursors.fence(stream);
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
    /// `cursor_moved` where the stream has had another number of commits than `seq`, if that is given, and errors of the
    /// destination and of the history.
    pub fn put(
        &mut self,
        stream: &str,
        cursor: Option<&str>,
        seq: Option<u64>,
    ) -> Result<TargetProgress, Failure> {
        self.open_history()?;
        let history = self.history.as_ref().expect("it was opened");
        // The engine compares the number of commits.
        let shown = seq.map(|seq| TargetProgress {
            epoch: 0,
            seq,
            cursor: None,
            run_id: String::new(),
            complete: false,
            lost_rows: None,
        });
        let put = (self.cursors).put(history, stream, cursor, shown.as_ref());
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

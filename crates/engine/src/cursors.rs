//! Shows and moves the cursor of a stream: in the destination, which has the authority, and then
//! in the local history.

use std::path::Path;

use arrow_schema::Schema;
use rapidbyte_runtime::{
    Clock, Destination, LoadRequest, Progress, Run, SchemaChanges, Selection, StreamCommit, Target,
    WriteMode,
};
use rapidbyte_state::State;
use rapidbyte_wire::ipc;

use crate::document::{self, Document};
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::known_as::{self, base};
use crate::ledger::known;
use crate::overlap;
use crate::plan::{asked_increment, lost_rows, open_destination, open_source, write_mode};

/// A destination that is asked how far its streams are.
pub struct Cursors {
    document: Document,
    host: Host,
    session: Destination,
    target: String,
}

/// The id of the run by which a verb of `state` moves a cursor.
pub(crate) const STATE: &str = "state";

impl Cursors {
    /// Opens the pipeline's destination. Only where the caller `changes` a cursor may it write files.
    ///
    /// # Errors
    /// The errors of opening the destination, and `keeps_no_cursor`.
    pub fn open(document: &Document, host: &Host, changes: bool) -> Result<Self, Failure> {
        let (stage, session) = open_destination(document, host, &Clock::new(), changes)?;
        if !stage.spec.supports_checkpoints {
            let text = format!("{} does not store cursors", stage.connector.name());
            let key = "destination.use";
            return Err(Failure::at_key(document, key, "keeps_no_cursor", text)
                .hint("there is nothing to show or change: each run moves whole streams"));
        }
        Ok(Self {
            target: known_as::target(&stage, document),
            document: document.clone(),
            host: host.clone(),
            session,
        })
    }

    /// The destination of the pipeline as the history knows it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The target of a stream as the history knows it.
    pub fn target_of(&self, stream: &str) -> String {
        known_as::target_of(&self.target, self.document.target_of(stream))
    }

    /// The progress of a stream. None: no run has fenced it yet. Changes nothing.
    pub fn of(&mut self, stream: &str) -> Result<Option<Progress>, Failure> {
        let target = target(&self.document, stream, false)?;
        let found = self.session.progress(&target, &self.document.pipeline);
        let found = found.map_err(|e| Failure::from_runtime(e, &self.document, "destination"))?;
        // As the history names the run.
        Ok(found.map(|progress| Progress {
            run_id: base(&progress.run_id).to_owned(),
            ..progress
        }))
    }

    /// Asks the destination what it says to the next run of an incremental stream.
    ///
    /// # Errors
    /// The reason for a refusal: `cursor_missing`, `target_lost_rows`, `checkpoint_invalid`; errors of the destination.
    pub fn refuse_next(&mut self, stream: &str) -> Result<(), Failure> {
        let document = &self.document;
        let Some(asked) = incremental(document, stream) else {
            return Ok(());
        };
        let asked = &document.source.streams[asked];
        let mut target = target(document, stream, true)?;
        target.write_mode = write_mode(document, asked);
        let deleted = asked.deleted_field.as_ref();
        target.deleted_field = deleted
            .or(document.destination.deleted_field.as_ref())
            .cloned();
        if target.write_mode == WriteMode::Append && asked.is_read_again() {
            target.dedup_fields.clone_from(&asked.cursor_field);
        }
        let found = self.session.progress(&target, &document.pipeline);
        let found = found
            .map_err(|e| Failure::from_runtime(e, document, "destination").in_stream(stream))?;
        match found.and_then(|found| found.cursor.and(found.lost_rows)) {
            Some(why) => Err(lost_rows(&why, stream)),
            None => Ok(()),
        }
    }

    /// Asks the source whether it resumes a stream from a cursor. Returns the reason if the source cannot be asked. It
    /// does not ask about a stream that the pipeline does not read incrementally.
    ///
    /// # Errors
    /// The source's reason to refuse the cursor.
    pub fn refuse_unreadable(
        &self,
        stream: &str,
        cursor: &str,
    ) -> Result<Option<Failure>, Failure> {
        let document = &self.document;
        let Some(entry) = incremental(document, stream) else {
            return Ok(None);
        };
        let mut source = match open_source(document, &self.host, &Clock::new()) {
            Ok((_, source)) => source,
            Err(failure) => return Ok(Some(failure)),
        };
        let asked = &document.source.streams[entry];
        let mut selection = Selection {
            stream: stream.to_owned(),
            columns: asked.columns.clone(),
            filter: asked.filter.clone(),
            query: asked.query.clone(),
            increment: Some(asked_increment(document, entry)),
            cursor: None,
        };
        let mut ask = |selection: &Selection| {
            let taken = source.snapshot(std::slice::from_ref(selection));
            taken.map_err(|e| Failure::from_runtime(e, document, "source").in_stream(stream))
        };
        // If the source also refuses the stream without a cursor, the cursor is not the reason.
        if let Err(failure) = ask(&selection) {
            return Ok(Some(failure));
        }
        selection.cursor = Some(cursor.to_owned());
        match ask(&selection) {
            Ok(_) => Ok(None),
            Err(failure) if failure.passes_after_ms.is_some() => Ok(Some(failure)),
            Err(failure) => Err(failure),
        }
    }

    /// Refuses to move cursors while a run of the pipeline is active, because the move would fence that run. The lock
    /// beside `history` or the destination shows an active run. With `force` only names the run.
    ///
    /// # Errors
    /// `already_running`, and errors of the destination.
    pub fn refuse_at_work(
        &mut self,
        history: &Path,
        force: bool,
    ) -> Result<Option<String>, Failure> {
        match overlap::at_work(&self.document, &mut self.session, history)? {
            Some(who) if !force => {
                let text = format!("{who} is running, and this command would fence it");
                Err(Failure::new(Class::Busy, overlap::CODE, text)
                    .hint("wait until that run has ended, or fence it with --force"))
            }
            who => Ok(who),
        }
    }

    /// Fences all runs of a stream, and returns its progress: only a run that begins later can change it.
    ///
    /// # Errors
    /// Errors of the destination.
    pub fn fence(&mut self, stream: &str) -> Result<Progress, Failure> {
        let (_, progress) = self.begin(stream)?;
        let aborted = self.session.abort();
        aborted.map_err(|e| Failure::from_runtime(e, &self.document, "destination"))?;
        self.session.finish();
        Ok(progress)
    }

    /// Begins a load of a stream, which fences its runs.
    fn begin(&mut self, stream: &str) -> Result<(Run, Progress), Failure> {
        let run = Run {
            pipeline: self.document.pipeline.clone(),
            id: STATE.into(),
        };
        let request = LoadRequest {
            target: target(&self.document, stream, true)?,
            run: run.clone(),
        };
        let begun = self.session.begin(&[request]);
        let mut begun =
            begun.map_err(|e| Failure::from_runtime(e, &self.document, "destination"))?;
        Ok((run, begun.remove(0)))
    }

    /// Moves the cursor of a stream to another place, or to the first row. Fences an active run of the
    /// stream.
    ///
    /// # Errors
    /// `cursor_moved` where the stream has another commit than `shown`, and errors of the destination.
    pub fn put(
        &mut self,
        history: &State,
        stream: &str,
        cursor: Option<&str>,
        shown: Option<&Progress>,
    ) -> Result<Progress, Failure> {
        let (run, mut progress) = self.begin(stream)?;
        if shown.is_some_and(|shown| shown.seq != progress.seq) {
            let text = format!(
                "{stream}: a run moved the cursor while it was edited, and it is now {}",
                progress.cursor.as_deref().unwrap_or("at the first row")
            );
            return Err(Failure::new(Class::Run, "cursor_moved", text)
                .hint("run `rapidbyte state edit` again; nothing was changed"));
        }
        let cursor = cursor.map(str::to_owned);
        let commit = StreamCommit {
            stream: 0,
            parts: Vec::new(),
            seq: progress.seq,
            cursor: cursor.clone(),
            complete: false,
        };
        let committed = self.session.commit(&[commit]);
        committed.map_err(|e| Failure::from_runtime(e, &self.document, "destination"))?;
        // Another stream may follow.
        self.session.finish();
        progress.seq += 1;
        progress.cursor = cursor;
        progress.complete = false;
        history
            .heal(&run.pipeline, stream, &run.id, known(&progress))
            .map_err(Failure::of_state)?;
        Ok(progress)
    }
}

/// The entry of a stream that the pipeline reads incrementally.
fn incremental(document: &Document, stream: &str) -> Option<usize> {
    let entry = document.source.entry_for(stream)?;
    let is_incremental =
        document.source.streams[entry].sync_mode == document::SyncMode::Incremental;
    is_incremental.then_some(entry)
}

/// A target without columns, to ask for a cursor or to set it. With `is_incremental` the destination treats it as the
/// target of a run that resumes.
pub(crate) fn target(
    document: &Document,
    stream: &str,
    is_incremental: bool,
) -> Result<Target, Failure> {
    let chosen = document.target_of(stream).cloned();
    let (name, namespace) = chosen.map_or((None, None), |chosen| (chosen.name, chosen.schema));
    let schema = ipc::encode_schema(&Schema::empty())
        .map_err(|error| Failure::new(Class::Run, "internal", error))?;
    Ok(Target {
        stream: stream.to_owned(),
        name,
        namespace,
        schema,
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        is_incremental,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    })
}

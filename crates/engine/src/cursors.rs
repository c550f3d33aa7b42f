//! Looking at the place where a stream goes on, and moving it: in the destination, which has the
//! authority, and then in the local history.

use std::path::Path;

use arrow_schema::Schema;
use rapidbyte_runtime::{Clock, Destination, Progress, Run, Target, WriteMode};
use rapidbyte_state::State;
use rapidbyte_wire::ipc;

use crate::document::Document;
use crate::failure::{Class, Failure};
use crate::host::Host;
use crate::ledger::known;
use crate::overlap;
use crate::plan::open_destination;

/// A destination that is asked how far its streams are.
pub struct Cursors<'a> {
    document: &'a Document,
    session: Destination,
}

impl<'a> Cursors<'a> {
    /// Opens the pipeline's destination.
    ///
    /// # Errors
    /// Those of opening, and `keeps_no_cursor`.
    pub fn open(document: &'a Document, host: &Host) -> Result<Self, Failure> {
        let (stage, session) = open_destination(document, host, &Clock::new())?;
        if !stage.spec.keeps_cursor {
            let text = format!("{} does not store cursors", stage.connector.name());
            let key = "destination.use";
            return Err(Failure::at_key(document, key, "keeps_no_cursor", text)
                .hint("there is nothing to show or change: each run moves whole streams"));
        }
        Ok(Self { document, session })
    }

    /// How far a stream is; none when no run was ever let in. Changes nothing.
    pub fn of(&mut self, stream: &str) -> Result<Option<Progress>, Failure> {
        let target = target(stream, false)?;
        self.session
            .progress(&target, &self.document.pipeline)
            .map_err(|e| Failure::from_runtime(e, self.document, "destination"))
    }

    /// Refuses to move cursors while a run of the pipeline is at work, which would be fenced: by the lock beside
    /// `history`, or as the destination says. With `force` that run is named and nothing refused.
    ///
    /// # Errors
    /// `already_running`, and those of the destination.
    pub fn refuse_at_work(
        &mut self,
        history: &Path,
        force: bool,
    ) -> Result<Option<String>, Failure> {
        match overlap::at_work(self.document, &mut self.session, history)? {
            Some(who) if !force => {
                let text = format!("{who} is at work, and this command would fence it");
                Err(Failure::new(Class::Busy, overlap::CODE, text)
                    .hint("wait until that run has ended, or fence it with --force"))
            }
            who => Ok(who),
        }
    }

    /// Puts a stream to another place, or to its beginning. A run of the stream that is at work is
    /// fenced.
    ///
    /// # Errors
    /// `cursor_moved` where the stream has another commit than `shown`, and those of the destination.
    pub fn put(
        &mut self,
        history: &State,
        stream: &str,
        cursor: Option<&str>,
        shown: Option<&Progress>,
    ) -> Result<Progress, Failure> {
        let failed = |e| Failure::from_runtime(e, self.document, "destination");
        let target = target(stream, true)?;
        let run = Run {
            pipeline: self.document.pipeline.clone(),
            id: "state".into(),
        };
        let mut progress = self.session.fence(&target, &run).map_err(failed)?;
        if shown.is_some_and(|shown| shown.seq != progress.seq) {
            let text = format!(
                "{stream}: a run moved the cursor while it was edited, and it is now {}",
                progress.cursor.as_deref().unwrap_or("at the first row")
            );
            return Err(Failure::new(Class::Run, "cursor_moved", text)
                .hint("run `rapidbyte state edit` again; nothing was changed"));
        }
        let cursor = cursor.map(str::to_owned);
        self.session
            .commit(stream, &[], progress.seq, cursor.as_ref(), false)
            .map_err(failed)?;
        progress.seq += 1;
        progress.cursor = cursor;
        progress.complete = false;
        history
            .heal(&run.pipeline, stream, &run.id, known(&progress))
            .map_err(Failure::of_state)?;
        Ok(progress)
    }
}

/// Who only looks at the cursor needs no columns, and brings no rows behind it (`keeps_cursor`).
fn target(stream: &str, keeps_cursor: bool) -> Result<Target, Failure> {
    let schema = ipc::encode_schema(&Schema::empty())
        .map_err(|error| Failure::new(Class::Run, "internal", error))?;
    Ok(Target {
        stream: stream.to_owned(),
        schema,
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        version_fields: Vec::new(),
        keeps_cursor,
    })
}

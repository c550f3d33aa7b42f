//! The load of one stream, which the script writes as a whole.

use std::rc::Rc;

use rapidbyte_rows::{Decoder, REPORT, Refusal, one};

use crate::part::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::part::contract::{
    self, Cursor, GuestLoad, LoadRequest, Progress, Receipt, StreamCommit,
};
use crate::part::script;
use crate::part::target::as_script;
use crate::part::writer::{Begun, Open, Writer};
use crate::part::{Error, of_host, refused};

/// The field of the spec that allows several streams in a load.
pub const TOGETHER: &str = "commits-together";

/// The load of one stream.
pub struct Load {
    script: Rc<script::Session>,
    request: LoadRequest,
    open: Open,
}

impl Load {
    pub fn new(script: Rc<script::Session>, request: LoadRequest) -> Self {
        let open = Open::default();
        Self {
            script,
            request,
            open,
        }
    }

    /// An error for a call that no host makes.
    fn internal(&self, code: &'static str, message: &str) -> Error {
        let refusal = Refusal::internal(code, message).hint(REPORT);
        refused(refusal, &self.request.target.stream)
    }
}

impl GuestLoad for Load {
    fn progress(&self) -> Vec<Progress> {
        vec![Progress {
            epoch: 0,
            seq: 0,
            cursor: None,
            run_id: self.request.run.id.clone(),
            complete: false,
            lost_rows: None,
        }]
    }

    fn open_writer(&self, stream: u32, cursor: Option<Cursor>) -> Result<contract::Writer, Error> {
        of_host(one::ensure_only(stream, TOGETHER))?;
        let target = self.request.target.clone();
        if cursor.is_some() {
            let text = "a cursor for a destination that cannot store it";
            return Err(self.internal("cursor_not_kept", text));
        }
        let wide_texts = script::describe().wide_texts;
        let decoder = Decoder::new(&target.schema, wide_texts);
        let decoder = decoder.map_err(|refusal| refused(refusal, &target.stream))?;
        let (_, target) = as_script(target)?;
        // If a write is open, the host gave it up.
        self.abort()?;
        let begun = Begun::new(self.script.begin(&target)?);
        *self.open.borrow_mut() = Some(begun);
        let writer = Writer::new(target.stream, Rc::clone(&self.open), decoder);
        Ok(contract::Writer::new(writer))
    }

    fn schema_changes(&self, _: u32) -> Vec<String> {
        Vec::new()
    }

    fn open_keys(&self, _: u32) -> Result<contract::Writer, Error> {
        let text = "keys for a destination that does not compare them";
        Err(self.internal("keys_not_compared", text))
    }

    fn commit(&self, commits: Vec<StreamCommit>) -> Result<Vec<Receipt>, Error> {
        phase::enter(Kind::Commit);
        let commit = of_host(one::only(commits, TOGETHER))?;
        of_host(one::ensure_only(commit.stream, TOGETHER))?;
        if !commit.complete {
            let text = "a commit in the middle of a stream, which is written as a whole";
            return Err(self.internal("commit_not_possible", text));
        }
        let mut open = self.open.borrow_mut();
        let Some(begun) = &*open else {
            let text = "a commit of a stream that was not begun";
            return Err(self.internal("nothing_begun", text));
        };
        // One that fails stays, so that it can be given up.
        let receipt = begun.script.commit()?;
        *open = None;
        let text_bytes = commit.parts.iter().map(|part| part.bytes).sum();
        Ok(vec![Receipt {
            rows: commit.parts.iter().map(|part| part.rows).sum(),
            bytes: receipt.bytes.unwrap_or(text_bytes),
            location: receipt.location,
            deleted: 0,
        }])
    }

    fn abort(&self) -> Result<(), Error> {
        let begun = self.open.borrow_mut().take();
        begun.map_or(Ok(()), |begun| begun.script.abort())
    }
}

//! A destination that was opened: what it would do, and the streams at work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rapidbyte_rows::{Decoder, Held, REPORT, Refusal, columns};

use crate::part::bindings::rapidbyte::connector::phase::{self, Kind};
use crate::part::contract::{
    self, CheckItem, ColumnPlan, Cursor, Fit, GuestSession, Part, Plan, Presence, Progress,
    Receipt, Run, Target, Worker, WriteMode,
};
use crate::part::script;
use crate::part::writer::{Begun, Open, Writer};
use crate::part::{Error, refused};

/// The script, opened with one configuration.
pub struct Session {
    script: script::Session,
    /// What was begun and is not committed, by stream.
    open: RefCell<BTreeMap<String, Open>>,
}

impl Session {
    pub fn new(script: script::Session) -> Self {
        let open = RefCell::default();
        Self { script, open }
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>, Error> {
        self.script.check()
    }

    fn plan(&self, target: Target) -> Result<Plan, Error> {
        let (held, target) = as_script(target)?;
        let plan = self.script.plan(&target)?;
        for refusal in &plan.refused {
            if !held.iter().any(|column| column.name == refusal.column) {
                let text = format!("`plan` refuses `{}`, which is not a column", refusal.column);
                let refusal = Refusal::internal("unknown_column", text)
                    .hint("refuse only columns of the target in `plan`");
                return Err(refused(refusal, &target.stream));
            }
        }
        let planned = held
            .into_iter()
            .map(|column| planned(column, &plan.refused));
        Ok(Plan {
            columns: planned.collect(),
            location: plan.location,
            statements: Vec::new(),
            notes: plan.notes,
            is_new: plan.is_new,
        })
    }

    fn progress(&self, _target: Target, _pipeline: String) -> Result<Option<Progress>, Error> {
        Ok(None)
    }

    fn working(&self, _pipeline: String) -> Result<Vec<Worker>, Error> {
        Ok(Vec::new())
    }

    fn beat(&self, _presence: Presence) -> Result<bool, Error> {
        Ok(false)
    }

    fn fence(&self, _target: Target, run: Run) -> Result<Progress, Error> {
        Ok(Progress {
            epoch: 0,
            seq: 0,
            cursor: None,
            run_id: run.id,
            complete: false,
            lost_rows: None,
        })
    }

    fn open_writer(
        &self,
        target: Target,
        _epoch: u64,
        cursor: Option<Cursor>,
    ) -> Result<contract::Writer, Error> {
        if cursor.is_some() {
            let text = "a cursor for a destination that cannot store it";
            return Err(internal("cursor_not_kept", text, &target.stream));
        }
        let wide_texts = script::describe().wide_texts;
        let decoder = Decoder::new(&target.schema, wide_texts);
        let decoder = decoder.map_err(|refusal| refused(refusal, &target.stream))?;
        let (_, target) = as_script(target)?;
        // A stream that is begun again was given up.
        self.abort(target.stream.clone())?;
        let begun = Begun::new(self.script.begin(&target)?);
        let open = Rc::new(RefCell::new(Some(begun)));
        let stream = target.stream;
        self.open
            .borrow_mut()
            .insert(stream.clone(), Rc::clone(&open));
        let writer = Writer::new(stream, open, decoder);
        Ok(contract::Writer::new(writer))
    }

    fn commit(
        &self,
        stream: String,
        parts: Vec<Part>,
        _seq: u64,
        _cursor: Option<Cursor>,
        complete: bool,
    ) -> Result<Receipt, Error> {
        phase::enter(Kind::Commit);
        if !complete {
            let text = "a commit in the middle of a stream, which is written as a whole";
            return Err(internal("commit_not_possible", text, &stream));
        }
        let mut streams = self.open.borrow_mut();
        let committed = streams.get(&stream).and_then(|open| {
            let mut open = open.borrow_mut();
            let receipt = open.as_ref()?.script.commit();
            // One that fails stays, so that it can be given up.
            if receipt.is_ok() {
                *open = None;
            }
            Some(receipt)
        });
        let Some(receipt) = committed else {
            let text = "a commit of a stream that was not begun";
            return Err(internal("nothing_begun", text, &stream));
        };
        let receipt = receipt?;
        streams.remove(&stream);
        let text_bytes = parts.iter().map(|part| part.bytes).sum();
        Ok(Receipt {
            rows: parts.iter().map(|part| part.rows).sum(),
            bytes: receipt.bytes.unwrap_or(text_bytes),
            location: receipt.location,
        })
    }

    fn abort(&self, stream: String) -> Result<(), Error> {
        let open = self.open.borrow_mut().remove(&stream);
        let begun = open.and_then(|open| open.borrow_mut().take());
        begun.map_or(Ok(()), |begun| begun.script.abort())
    }
}

/// What a script needs to know of a target.
fn as_script(target: Target) -> Result<(Vec<Held>, script::Target), Error> {
    let (held, columns) =
        columns(&target.schema).map_err(|refusal| refused(refusal, &target.stream))?;
    if target.write_mode == WriteMode::Upsert {
        let text = "a destination in Python or JavaScript cannot change existing rows";
        let refusal = Refusal::config("write_mode_not_possible", text)
            .hint("set write_mode: append or replace, as the connector offers");
        return Err(refused(refusal, &target.stream));
    }
    let target = script::Target {
        stream: target.stream,
        columns,
        write_mode: target.write_mode,
        primary_key: target.primary_key,
    };
    Ok((held, target))
}

fn planned(column: Held, refused: &[script::Refusal]) -> ColumnPlan {
    let by_script = refused.iter().find(|refusal| refusal.column == column.name);
    let why = column
        .refused
        .or_else(|| by_script.map(|refusal| refusal.why.clone()));
    ColumnPlan {
        column: column.name,
        target_type: column.type_name,
        fit: if why.is_some() {
            Fit::Refused
        } else {
            Fit::Exact
        },
        note: why,
    }
}

/// What no host does.
fn internal(code: &'static str, message: &str, stream: &str) -> Error {
    refused(Refusal::internal(code, message).hint(REPORT), stream)
}

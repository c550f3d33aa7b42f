//! Clauses for a destination: what becomes of rows that the host makes.

mod commit;
mod files;
mod kept;
mod load;
mod modes;
mod shapes;
mod types;
mod values;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rapidbyte_runtime::{Batch, Plan, Progress, SchemaChanges, Target, WriteMode};
use rapidbyte_wire::{counted, ipc};
use serde_json::{Map, Value};

use crate::bench::{Bench, Reach, Trouble, problems};
use crate::judges::Judges;
use crate::source::CANCELLED_WITHIN;
use crate::trial::Peer;
use crate::verdict::*;
use crate::{peer, same};
use load::{Load, Sight};

/// Rows that are written where it does not matter which.
const ROWS: usize = 10;
/// How the name of every stream of a test begins; the test's own mark follows.
const STREAMS_BEGIN: &str = "conformance_";
/// Under which a destination keeps how far the streams of the test are.
pub(crate) const PIPELINE: &str = "conformance";
/// Another one that moves a stream of the same name.
const OTHER_PIPELINE: &str = "conformance_other";

/// The destination under test.
pub(crate) struct Subject<'b> {
    pub bench: &'b Bench<'b>,
    /// In the name of each stream, so that tests do not meet each other's.
    tag: String,
    /// Rows can be written, so that it can be looked at what becomes of them.
    writes: Cell<bool>,
    /// The peer has read rows that were written.
    peer_sees: Cell<bool>,
    /// Columns of the types that were written and kept.
    taken: RefCell<Vec<Field>>,
    /// Clauses that failed, for those that would fail by the same fault.
    failed: RefCell<Vec<&'static str>>,
    /// Plan changes what a look shows.
    plan_writes: Cell<bool>,
}

/// Judges all clauses of a destination.
pub(crate) fn judge(bench: &Bench<'_>, judges: &mut Judges<'_>) {
    let subject = Subject::new(bench);
    let mut judge = |clause: &'static Clause, judge: &dyn Fn() -> Judged| {
        if judges.met_wrong_setup() {
            judges.stop_at_newest();
        }
        judges.judge(clause, || {
            let judged = judge();
            if let Err(Verdict::Fail { .. }) = judged {
                subject.failed.borrow_mut().push(clause.id);
            }
            judged
        });
    };
    judge(&PLAN, &|| subject.plan());
    judge(&WRITE, &|| subject.write());
    judge(&TYPES, &|| types::judge(&subject));
    judge(&EDGE_VALUES, &|| values::judge(&subject));
    judge(&EMPTY, &|| subject.empty());
    judge(&BATCHES_KEPT, &|| shapes::batches(&subject));
    judge(&PARTS, &|| shapes::parts(&subject));
    judge(&REPLACE, &|| modes::replace(&subject));
    judge(&APPEND, &|| modes::append(&subject));
    judge(&UPSERT, &|| modes::upsert(&subject));
    judge(&PLAN_AGAIN, &|| modes::plan_again(&subject));
    judge(&STREAMS, &|| shapes::streams(&subject));
    judge(&STAGED, &|| subject.staged());
    judge(&ABORT, &|| subject.abort());
    judge(&BAD_BATCH, &|| subject.bad_batch());
    judge(&PROGRESS, &|| commit::progress(&subject));
    judge(&COMMIT_ONCE, &|| commit::once(&subject));
    judge(&FENCE, &|| commit::fence(&subject));
    judge(&PIPELINES, &|| commit::pipelines(&subject));
    judge(&REJECTS, &|| kept::judge(&subject));
    // The last one: a session that is left in the middle may be in the way of others.
    judge(&DESTINATION_CANCEL, &|| subject.cancel());
}

/// Different for tests that begin at different times, or at the same time in two processes.
fn tag() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map(|since| since.as_nanos()).unwrap_or_default();
    let process = u128::from(std::process::id());
    format!("{:08x}", ((nanos / 1_000) ^ (process << 16)) & 0xffff_ffff)
}

/// Calls of a session that reaches nothing.
pub(crate) fn denied(bench: &Bench<'_>, config: &Map<String, Value>) -> Vec<Result<(), Trouble>> {
    let reach = Reach::Denied;
    let look = bench
        .destination(config, reach)
        .and_then(|mut destination| bench.note_as(reach, destination.check()))
        .and_then(problems);
    let subject = Subject::new(bench);
    let target = subject.target("denied", &simple(), false);
    let place = bench
        .destination(config, reach)
        .and_then(|mut destination| bench.note_as(reach, destination.plan(&target)))
        .map(drop);
    vec![look, place]
}

/// A number that tells rows apart, a text, and two numbers that are not in the order of their names.
pub(crate) fn simple() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(same::KEY, DataType::Int64, false),
        Field::new("t", DataType::Utf8, true),
        Field::new("b", DataType::Int64, false),
        Field::new("a", DataType::Int64, false),
    ]))
}

impl<'b> Subject<'b> {
    fn new(bench: &'b Bench<'b>) -> Self {
        Self {
            bench,
            tag: tag(),
            writes: Cell::new(false),
            peer_sees: Cell::new(false),
            taken: RefCell::default(),
            failed: RefCell::default(),
            plan_writes: Cell::new(false),
        }
    }

    /// Skips what cannot be judged where rows cannot be written.
    pub fn needs_write(&self) -> Result<(), Verdict> {
        self.bench.config()?;
        match self.writes.get() {
            true => Ok(()),
            false => Err(skip("rows cannot be written: see write")),
        }
    }

    /// Whether a clause failed before.
    pub fn has_failed(&self, clause: &Clause) -> bool {
        self.failed.borrow().contains(&clause.id)
    }

    /// Skips a clause about a stream without rows where plan itself changes the stream.
    fn needs_plan(&self) -> Result<(), Verdict> {
        self.needs_write()?;
        match self.plan_writes.get() {
            false => Ok(()),
            true => Err(skip("plan changes what can be seen: see plan")),
        }
    }

    /// How rows are written: what replaces can be written again.
    pub fn mode(&self) -> WriteMode {
        let modes = self
            .bench
            .spec
            .as_ref()
            .map(|spec| spec.write_modes.as_slice());
        let modes = modes.unwrap_or_default();
        let known = [WriteMode::Replace, WriteMode::Append];
        known
            .into_iter()
            .find(|mode| modes.contains(mode))
            .unwrap_or(WriteMode::Append)
    }

    /// A stream of this test. One that keeps its cursor is appended to where that is possible.
    pub fn target(&self, name: &str, schema: &SchemaRef, is_incremental: bool) -> Target {
        let modes = self
            .bench
            .spec
            .as_ref()
            .map(|spec| spec.write_modes.as_slice());
        let appends = modes.is_some_and(|modes| modes.contains(&WriteMode::Append));
        Target {
            stream: format!("{}{name}", self.prefix()),
            schema: ipc::encode_schema(schema).unwrap_or_default(),
            write_mode: match is_incremental && appends {
                true => WriteMode::Append,
                false => self.mode(),
            },
            primary_key: Vec::new(),
            deleted_field: None,
            dedup_fields: Vec::new(),
            name: None,
            namespace: None,
            is_incremental,
            schema_changes: SchemaChanges::default(),
            rejects: None,
            deletes: None,
            repairs: None,
            stages: false,
        }
    }

    /// A stream of this test that is written in a mode, without a cursor.
    pub fn target_as(&self, name: &str, schema: &SchemaRef, write_mode: WriteMode) -> Target {
        Target {
            write_mode,
            ..self.target(name, schema, false)
        }
    }

    /// The files below the granted places, without the files of other tests.
    pub fn files(&self) -> files::Listing {
        files::list(&self.bench.grants, &self.prefix())
    }

    /// How the names of this test's streams begin.
    pub fn prefix(&self) -> String {
        format!("{STREAMS_BEGIN}{}_", self.tag)
    }

    /// The id of a run of this test.
    pub fn run_id(&self, run: &str) -> String {
        format!("{}-{run}", self.tag)
    }

    /// How far a stream is, asked in a session of its own.
    pub fn progress(&self, target: &Target) -> Result<Option<Progress>, Trouble> {
        self.progress_of(target, PIPELINE)
    }

    /// The same of a stream of a pipeline.
    pub fn progress_of(
        &self,
        target: &Target,
        pipeline: &str,
    ) -> Result<Option<Progress>, Trouble> {
        let config = self.bench.config().cloned().unwrap_or_default();
        let mut destination = self.bench.destination(&config, Reach::Granted)?;
        self.bench.note(destination.progress(target, pipeline))
    }

    /// Writes and commits batches of simple rows as a whole; returns the plan.
    pub fn load(
        &self,
        target: &Target,
        run: &str,
        batches: &[RecordBatch],
    ) -> Result<Plan, Trouble> {
        let mut load = Load::begin(self, target, simple(), run)?;
        for batch in batches {
            load.write_rows(batch)?;
        }
        let part = load.flush()?;
        load.commit(&[part], None, true)?;
        Ok(load.plan.clone())
    }

    /// Whether the peer reads these rows of a stream and no others; how far that was compared.
    pub fn kept(&self, target: &Target, plan: &Plan, rows: &RecordBatch, action: &str) -> Judged {
        let Some(peer) = &self.bench.trial.peer else {
            return Ok(COUNTED.into());
        };
        let read = peer::rows(self.bench, peer, &target.stream);
        let read = match read.map_err(|trouble| trouble.fails_unless_settings(action))? {
            Some(read) => read,
            // Nothing need be there for no rows.
            None if rows.num_rows() == 0 => return Ok("no rows, as the peer reads".into()),
            None if self.peer_sees.get() && self.bench.peer_failed_of_others() => {
                return Err(outside(format!(
                    "the peer cannot be asked about {} alone, and fails{}: put {{stream}} into --peer-config",
                    target.stream,
                    self.bench.peer_error()
                )));
            }
            None => {
                let seen = format!(
                    "{} rows of {} are committed, and the peer does not find it{}",
                    rows.num_rows(),
                    target.stream,
                    self.bench.peer_error()
                );
                return Err(fail(seen, action));
            }
        };
        // Columns of a stream without rows may be unknown to a peer.
        if (rows.num_rows(), read.num_rows()) == (0, 0) {
            return Ok("no rows, as the peer reads".into());
        }
        if let Some(seen) = same::no_names(rows, &read) {
            return Err(setup(format!(
                "{}: {seen}. Values cannot be compared without names of columns: let the settings write them, give \
                 them in --peer-config, or test without a peer",
                target.stream
            )));
        }
        match same::compare(rows, plan, &read) {
            Ok(notes) if notes.is_empty() => Ok("every value as the peer reads it".into()),
            Ok(notes) => Ok(format!(
                "values as the peer reads them; {}",
                same::told(&notes)
            )),
            Err(seen) => Err(fail(format!("{}: {seen}", target.stream), action)),
        }
    }

    /// The plan for a target, from a session of its own.
    pub fn planned(&self, target: &Target) -> Result<Plan, Trouble> {
        self.planned_within(target, Reach::Granted)
    }

    fn planned_within(&self, target: &Target, reach: Reach) -> Result<Plan, Trouble> {
        let config = self.bench.config().cloned().unwrap_or_default();
        let mut destination = self.bench.destination(&config, reach)?;
        self.bench.note_as(reach, destination.plan(target))
    }

    fn plan(&self) -> Judged {
        const ACTION: &str =
            "answer plan with one line for each column, in order, and change nothing";
        self.bench.config()?;
        let target = self.target("plan", &simple(), false);
        let fails = |trouble: Trouble| trouble.fails_first_write(ACTION);
        // Before any look, which plans too: a file that every plan writes is there after the first one.
        let files = self.files();
        let plan = self.planned(&target).map_err(fails)?;
        if let Some(seen) = files::changed(&files, &self.files()) {
            self.plan_writes.set(true);
            return Err(fail(format!("after plan {seen}"), ACTION));
        }
        let names: Vec<&str> = plan
            .columns
            .iter()
            .map(|column| column.column.as_str())
            .collect();
        let schema = simple();
        let wanted: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        if names != wanted {
            let seen = format!("columns {} for {}", names.join(", "), wanted.join(", "));
            return Err(fail(seen, ACTION));
        }
        if plan.location.trim().is_empty() {
            return Err(fail(
                "no location",
                "name the table or file that will hold the rows",
            ));
        }
        // As a run plans: this session also denies a file that is created and given up.
        self.planned_within(&target, Reach::Looks)
            .map_err(|trouble| trouble.fails(ACTION))?;
        let before = self.look(&target).map_err(fails)?;
        self.planned(&target).map_err(fails)?;
        let after = self.look(&target).map_err(fails)?;
        if after != before {
            self.plan_writes.set(true);
            return Err(fail(
                format!("{before} before plan, {after} after it"),
                ACTION,
            ));
        }
        Ok(plan.location)
    }

    fn write(&self) -> Judged {
        const ACTION: &str =
            "write every row of every batch, and count them in the part and in the receipt";
        self.bench.config()?;
        let target = self.target("write", &simple(), false);
        let fails = |trouble: Trouble| trouble.fails_first_write(ACTION);
        let mut load = Load::begin(self, &target, simple(), "write").map_err(fails)?;
        load.write(0..ROWS).map_err(fails)?;
        load.write(ROWS..2 * ROWS).map_err(fails)?;
        let part = load.flush().map_err(fails)?;
        let rows = 2 * ROWS as u64;
        if part.rows != rows {
            return Err(fail(
                format!("{rows} rows were written, the part has {}", part.rows),
                ACTION,
            ));
        }
        let receipt = load.commit(&[part], None, true).map_err(fails)?;
        if receipt.rows != rows {
            let seen = format!(
                "{rows} rows were committed, the receipt has {}",
                receipt.rows
            );
            return Err(fail(seen, ACTION));
        }
        let kept = match &self.bench.trial.peer {
            Some(peer) => {
                let read = peer::rows(self.bench, peer, &target.stream).map_err(fails)?;
                if read.is_none() {
                    return Err(self.unfound(&target, rows));
                }
                let written = load.written().map_err(fails)?;
                let kept = self.kept(&target, &load.plan, &written, ACTION)?;
                drop(load);
                self.reads_apart(peer)?;
                self.peer_sees.set(true);
                kept
            }
            None => COUNTED.into(),
        };
        self.writes.set(true);
        Ok(format!(
            "{} to {}; {kept}",
            counted(rows, "row"),
            receipt.location
        ))
    }

    /// The peer does not find a stream after the first commit: either commit showed nothing, or the peer reads another
    /// place. The plan of a next run tells them apart, if the destination knows that nothing is there.
    fn unfound(&self, target: &Target, rows: u64) -> Verdict {
        let (stream, error) = (&target.stream, self.bench.peer_error());
        match self.planned(target) {
            Ok(next) if next.is_new => fail(
                format!(
                    "{rows} rows were committed, the peer does not find the stream {stream}{error}, and plan says that \
                     there is nothing at {}",
                    next.location
                ),
                "make the rows of the parts visible in commit",
            ),
            _ => outside(format!(
                "the peer does not find the stream {stream}{error}: correct --peer-config, or commit, if it shows no rows"
            )),
        }
    }

    /// Refuses a peer that reads the rows of several streams as one: every later clause would fail by that.
    fn reads_apart(&self, peer: &Peer) -> Result<(), Verdict> {
        if !peer::names_none(peer) {
            return Ok(());
        }
        let target = self.target("apart", &simple(), false);
        let rows = crate::values::batch(&simple(), 100..103).map_err(skip)?;
        // Another clause judges the second stream.
        let Ok(plan) = self.load(&target, "apart", std::slice::from_ref(&rows)) else {
            return Ok(());
        };
        match self.kept(&target, &plan, &rows, "") {
            Err(Verdict::Fail { seen, .. }) => Err(setup(format!(
                "{seen}. Nothing in --peer-config or --peer-stream holds the stream's name, so that the peer may read \
                 the rows of several streams as one: put {{stream}} there"
            ))),
            _ => Ok(()),
        }
    }

    fn empty(&self) -> Judged {
        const ACTION: &str = "take a part and a commit of no rows";
        self.needs_write()?;
        let target = self.target("empty", &simple(), false);
        let fails = |trouble: Trouble| trouble.fails_unless_settings(ACTION);
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let mut load = Load::begin(self, &target, simple(), "empty").map_err(blocks)?;
        let part = load.flush().map_err(fails)?;
        let receipt = load
            .commit(std::slice::from_ref(&part), None, true)
            .map_err(fails)?;
        if (part.rows, receipt.rows) != (0, 0) {
            let seen = format!(
                "a part of {} rows and a receipt of {}",
                part.rows, receipt.rows
            );
            return Err(fail(seen, ACTION));
        }
        if let Some(read) = self.look(&target).map_err(fails)?.rows
            && read.rows > 0
        {
            return Err(fail(format!("the peer reads {} rows", read.rows), ACTION));
        }
        drop(load);
        self.fill(&target);
        Ok(receipt.location)
    }

    /// Writes rows where none are: a peer that has to look at every stream may know no columns of one without
    /// rows. Whether it works is for other clauses to say.
    pub fn fill(&self, target: &Target) {
        let rows = crate::values::batch(&simple(), 0..ROWS);
        let _ = rows.map(|rows| self.load(target, "filled", &[rows]));
    }

    fn staged(&self) -> Judged {
        self.needs_plan()?;
        let target = self.target("staged", &simple(), self.is_incremental());
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let before = self.look(&target).map_err(blocks)?;
        let mut load = Load::begin(self, &target, simple(), "staged").map_err(blocks)?;
        load.write(0..ROWS).map_err(blocks)?;
        load.flush().map_err(blocks)?;
        let staged = self.look(&target).map_err(blocks)?;
        // Whether it worked is for another clause to say.
        let _ = load.abort();
        if staged != before {
            return Err(fail(
                format!("{before} before the first row, {staged} before the commit"),
                "keep rows aside until commit",
            ));
        }
        match before.tells(&target) || self.peer_sees.get() {
            true => Ok(before.to_string()),
            false => Err(skip(
                "the contract shows nothing of it here: give --peer and --peer-config",
            )),
        }
    }

    fn abort(&self) -> Judged {
        const ACTION: &str = "remove on abort what was written since the last commit";
        self.needs_plan()?;
        let target = self.target("abort", &simple(), self.is_incremental());
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let fails = |trouble: Trouble| trouble.fails(ACTION);
        let before = self.look(&target).map_err(blocks)?;
        let what = self.aborted(&target, "abort")?;
        if let Some(seen) = what {
            return Err(fail(seen, ACTION));
        }
        let after = self.look(&target).map_err(fails)?;
        if after != before {
            return Err(fail(
                format!("{before} before, {after} after the abort"),
                ACTION,
            ));
        }
        let detail = self.writes_again(&target, "abort-again", ACTION)?;
        // The same where rows are committed already.
        let before = self.look(&target).map_err(blocks)?;
        if let Some(seen) = self.aborted(&target, "abort-later")? {
            return Err(fail(seen, ACTION));
        }
        let mut after = self.look(&target).map_err(fails)?;
        // `complete` is about the newest run, and the newest run was aborted.
        after.complete = before.complete;
        match after == before {
            true => Ok(detail),
            false => Err(fail(
                format!("{before} committed before, {after} after an abort"),
                "leave on abort what is committed",
            )),
        }
    }

    /// Writes rows and gives them up; which file is there after it that was not before them.
    fn aborted(&self, target: &Target, run: &str) -> Result<Option<String>, Verdict> {
        const ACTION: &str = "remove on abort what was written since the last commit";
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let cancel = self.bench.trial.host.cancel.child();
        let load = Load::let_in(self, target, simple(), run, cancel).map_err(blocks)?;
        // Files that the fence made may stay, and none of the writer's.
        let before = self.files();
        let mut load = load.opened().map_err(blocks)?;
        load.write(ROWS..2 * ROWS).map_err(blocks)?;
        load.flush().map_err(blocks)?;
        load.write(2 * ROWS..3 * ROWS).map_err(blocks)?;
        load.abort().map_err(|trouble| trouble.fails(ACTION))?;
        drop(load);
        let more = files::more(&before, &self.files());
        Ok(more.map(|seen| format!("after the abort {seen}")))
    }

    /// A stream that was given up can be written by the next run, and has that run's rows alone.
    fn writes_again(&self, target: &Target, run: &str, action: &str) -> Judged {
        let fails = |trouble: Trouble| trouble.fails(action);
        let mut load = Load::begin(self, target, simple(), run).map_err(fails)?;
        load.write(0..3).map_err(fails)?;
        let part = load.flush().map_err(fails)?;
        let receipt = load
            .commit(&[part], cursor(target, 1), true)
            .map_err(fails)?;
        if receipt.rows != 3 {
            let text = format!("3 rows written again, the receipt has {}", receipt.rows);
            return Err(fail(text, action));
        }
        let written = load.written().map_err(fails)?;
        let kept = self.kept(target, &load.plan, &written, action)?;
        Ok(format!("written again; {kept}"))
    }

    fn bad_batch(&self) -> Judged {
        const ACTION: &str =
            "refuse with an error what does not decode, or has other rows than it says";
        self.needs_plan()?;
        let target = self.target("bad", &simple(), self.is_incremental());
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let before = self.look(&target).map_err(blocks)?;
        for (what, spoil) in [
            (
                "garbage",
                (|_| Batch {
                    data: b"this is no batch".to_vec(),
                    rows: 1,
                }) as fn(Batch) -> Batch,
            ),
            ("rows that are not there", |batch| Batch {
                rows: batch.rows + 1,
                ..batch
            }),
        ] {
            let mut load = Load::begin(self, &target, simple(), what).map_err(blocks)?;
            load.write(0..ROWS).map_err(blocks)?;
            let spoilt = spoil(load.batch(ROWS..ROWS + 3).map_err(blocks)?);
            match load.write_batch(&spoilt) {
                Ok(()) => return Err(fail(format!("{what}: write took it"), ACTION)),
                Err(Trouble::Error(..) | Trouble::Broken(_)) => {}
                Err(trouble) => return Err(trouble.blocks(&NO_TRAP)),
            }
            // Whether it worked is for another clause to say.
            let _ = load.abort();
        }
        let after = self.look(&target).map_err(blocks)?;
        if after != before {
            return Err(fail(format!("{before} before, {after} after it"), ACTION));
        }
        Ok("refused".into())
    }

    /// Leaves a write in the middle, and writes again.
    fn cancel(&self) -> Judged {
        const ACTION: &str = "leave nothing behind that the next session stumbles over: a session may end at any moment";
        self.needs_write()?;
        let target = self.target("cancel", &simple(), self.is_incremental());
        let blocks = |trouble: Trouble| trouble.blocks(&WRITE);
        let stop = self.bench.trial.host.cancel.child();
        let mut load = Load::begin_until(self, &target, simple(), "cancel", stop.clone());
        let load = load.as_mut().map_err(|trouble| trouble.blocks(&WRITE))?;
        load.write(0..ROWS).map_err(blocks)?;
        // A part that is visible already is for another clause.
        if !self.has_failed(&STAGED) {
            load.flush().map_err(blocks)?;
            load.write(ROWS..2 * ROWS).map_err(blocks)?;
        }
        stop.cancel();
        let begun = Instant::now();
        loop {
            match load.write(0..ROWS) {
                Err(Trouble::Cancelled) => break,
                Err(trouble) => return Err(trouble.blocks(&WRITE)),
                Ok(()) if begun.elapsed() > CANCELLED_WITHIN => {
                    let seen = "write went on after it was cancelled";
                    return Err(fail(seen, "tell us: the host lets that happen"));
                }
                Ok(()) => {}
            }
        }
        self.writes_again(&target, "cancel-again", ACTION)
    }

    /// Whether commits of a stream can carry a cursor, with these settings.
    pub fn is_incremental(&self) -> bool {
        let said = self
            .bench
            .spec
            .as_ref()
            .is_some_and(|spec| spec.supports_checkpoints);
        said && self.why_no_cursor().is_none()
    }

    /// Why plan refuses a target that keeps its cursor.
    pub fn why_no_cursor(&self) -> Option<Trouble> {
        let target = self.target("is_incremental", &simple(), true);
        self.planned(&target).err()
    }

    /// The visible state of a stream, from a session of its own.
    pub fn look(&self, target: &Target) -> Result<Sight, Trouble> {
        Sight::of(self, target)
    }
}

/// The cursor of the commit of this number, where the target keeps one.
pub(crate) fn cursor(target: &Target, number: u32) -> Option<String> {
    target
        .is_incremental
        .then(|| format!("{{\"conformance\":{number}}}"))
}

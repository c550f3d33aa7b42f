//! A destination that keeps the contract but for one clause, which `deed` names: each [`Deed`] proves
//! that `rapidbyte connector test` can fail that clause, and that one alone.
//!
//! Rows are values of Arrow, as they came. The committed rows of a stream are an Arrow file `rows`, for a
//! peer to read; a file `state` has its progress. Parts are staged in files of their own.

mod spoil;
mod state;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, UInt64Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use rapidbyte_sdk::bindings::exports_destination::{
    self as wit, Guest, GuestLoad, GuestSession, GuestWriter, StreamCommit,
};
use rapidbyte_sdk::ipc::Decoder;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use rapidbyte_sdk::{Spec, files, one};
use serde_json::{Map, Value};

use crate::state::{Kept, Place, State, part};

/// The JSON Schema of the settings.
const CONFIG_SCHEMA: &str = r#"{"type":"object","properties":{"deed":{"type":"string"},"rows":{"type":"string","x-grant":"write"},"again":{"type":"string","x-grant":"read"},"state":{"type":"string","x-grant":"write"},"look":{"type":"string","x-grant":"read"}},"required":["deed","rows","again","state","look"],"additionalProperties":false}"#;
const KEYS: [&str; 5] = ["deed", "rows", "again", "state", "look"];

/// The one thing that is wrong.
#[derive(serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// Nothing.
    None,
    /// `plan`: names the columns in another order.
    TurnsColumns,
    /// `write`: a row less in the receipt.
    MiscountsRows,
    /// `write`: a commit counts its rows and shows none.
    CommitsNothing,
    /// `types`: plans for bytes and fails to write them.
    FailsAtBytes,
    /// `empty`: a stream without rows is an error.
    FailsWithoutRows,
    /// `staged`: rows are visible when they are flushed.
    ShowsEarly,
    /// `abort`: what was flushed stays.
    KeepsAborted,
    /// `bad-batch`: drops what it cannot decode.
    TakesGarbage,
    /// `progress`: forgets the cursor.
    ForgetsCursor,
    /// `commit-once`: does not count commits.
    CommitsTwice,
    /// `fence`: older runs may commit too.
    LetsBothCommit,
    /// `cancel`: who writes locks the stream until it commits or aborts.
    LeavesALock,
    /// `write`: each digit 1 of a number becomes a 2.
    TurnsOnesIntoTwos,
    /// `write`: an empty text becomes NULL.
    EmptyTextToNull,
    /// `write`: a NULL becomes the text of the row before it.
    RepeatsUnderNull,
    /// `write`: assigns values to columns in the order of the column names.
    SortsColumns,
    /// `types`: a column whose type it does not know is left out.
    DropsColumn,
    /// `types`: milliseconds are taken for seconds.
    MixesUpUnits,
    /// `types`: an instant is written by the clock of another zone.
    ShiftsZone,
    /// `types`: a time loses its fraction.
    CutsTime,
    /// `values`: NaN becomes NULL.
    NanToNull,
    /// `values`: the infinities become the largest numbers.
    InfinityToMax,
    /// `values`: -0.0 becomes 0.0.
    LosesNegativeZero,
    /// `values`: an int64 goes through a double.
    RoundsThroughDouble,
    /// `values`: a uint64 goes through an int64.
    ClipsUnsigned,
    /// `values`: the sign of a decimal between -1 and 0 is lost.
    LosesSignBelowOne,
    /// `values`: of a decimal fifteen digits stay.
    CutsDecimals,
    /// `values`: a fraction of a second before 1970 is counted in the wrong direction.
    RoundsBeforeEpoch,
    /// `values`: a date before 1970 loses its sign.
    LosesSignOfDate,
    /// `values`: the text "NULL" becomes NULL.
    NullTextToNull,
    /// `values`: spaces at the end of a text are lost.
    TrimsText,
    /// `write`: a backslash is doubled.
    EscapesBackslash,
    /// `values`: a character of four bytes becomes a question mark.
    LosesWideCharacters,
    /// `values`: a text is cut after 255 characters.
    CutsLongText,
    /// `values`: bytes of length 0 become NULL.
    EmptyBytesToNull,
    /// `types`: NULL items of a list are left out.
    DropsNullItems,
    /// `values`: an empty list becomes NULL.
    EmptyListToNull,
    /// `values`: a struct whose members are all NULL becomes NULL.
    EmptyStructToNull,
    /// `types`: entries of a map with a NULL are left out.
    DropsNullEntries,
    /// `batch-sizes`: rows behind the last thousand of a large batch are lost.
    DropsRestOfChunk,
    /// `batch-sizes`: a batch without rows drops the rows before it.
    ForgetsBeforeEmpty,
    /// `parts`: of several parts the first is committed.
    CommitsFirstPart,
    /// `parts`: a part that is given in again is committed again.
    DoublesPart,
    /// `replace`: the older rows stay.
    ReplaceAppends,
    /// `append`: the older rows go.
    AppendReplaces,
    /// `upsert`: of several rows of a key the first stays.
    KeepsFirst,
    /// `upsert`: a NULL does not replace a value.
    KeepsOldForNull,
    /// `upsert`: parts are committed backwards.
    CommitsBackwards,
    /// `streams`: a stream has the rows of the one before it in the session, too.
    MixesStreams,
    /// `streams`: a stream has the columns of the first one of the session.
    KeepsFirstColumns,
    /// `plan`: makes the file.
    PlanCreates,
    /// `plan-again`: makes room for the rows to come.
    PlanEmpties,
    /// `abort`: what was staged stays.
    LeavesParts,
    /// `abort`: what was committed before is removed too.
    AbortsCommitted,
    /// `cancel`: a run commits what an older one left.
    TakesUpLeavings,
    /// `progress`: asking how far a stream is lets somebody in.
    ProgressLetsIn,
    /// `progress`: the first row that is written behind a cursor is lost.
    LosesRowBehindCursor,
    /// `pipelines`: a stream has one cursor, whichever pipeline moves it.
    SharesCursor,
    /// `plan`: leaves a file beside the target, each time the same.
    PlanLeavesFile,
    /// `plan`: begins a file and gives it up.
    PlanBeginsFile,
    /// `plan-again`: says that nothing is there, whatever is.
    SaysNew,
    /// `abort`: a file that is there since the writer was opened stays.
    LeavesFileOfWriter,
    /// `rejects`: loses them.
    LosesRejects,
    /// `rejects`: they are there before the commit.
    ShowsRejectsEarly,
    /// `rejects`: the text of a record that is not UTF-8 is another one.
    MendsRejects,
    /// `rejects`: a replay leaves them.
    KeepsReplayed,
    /// None: reverses the rows of each batch. Nothing promises an order.
    TurnsRows,
}

/// The connector's `config:`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Config {
    deed: Deed,
    rows: String,
    again: String,
    state: String,
    look: String,
}

/// The uncommitted load of one stream of this session.
struct Open {
    place: Place,
    epoch: u64,
    schema: SchemaRef,
    mode: WriteMode,
    key: Vec<String>,
    /// Names of the parts that are staged.
    parts: Vec<String>,
    /// How many were staged so far.
    number: u64,
    /// The rows that were visible before the parts, for a deed.
    before: Vec<RecordBatch>,
    /// The place for rejects, and those that are not committed.
    rejects_to: Option<Place>,
    rejects: Vec<Kept>,
    pipeline: String,
    run_id: String,
}

/// The state that all streams of the session share.
#[derive(Default)]
struct Shared {
    open: BTreeMap<String, Open>,
    /// The columns of the first stream, for a deed.
    first: Option<SchemaRef>,
    /// The stream of the last part and its rows, for a deed.
    last: (String, Vec<RecordBatch>),
}

/// The field of the spec that allows several streams in a load.
const TOGETHER: &str = "commits-together";

/// The connector, opened with one configuration.
#[derive(Clone)]
pub struct Session {
    config: Config,
    shared: Rc<RefCell<Shared>>,
}

/// The load of one stream.
pub struct Loading {
    session: Session,
    target: Target,
    progress: Progress,
}

/// Writes one stream.
pub struct Writing {
    deed: Deed,
    stream: String,
    shared: Rc<RefCell<Shared>>,
    decoder: Decoder,
    rows: RefCell<Vec<RecordBatch>>,
    count: RefCell<u64>,
    /// The next row is the first one behind a cursor, for a deed.
    loses_next: Cell<bool>,
}

/// The component's exports.
pub struct Export;

fn parse(text: &str) -> Result<Config> {
    let refused = |error: serde_json::Error| Error::config("invalid_config", error);
    let keys: Map<String, Value> = serde_json::from_str(text).map_err(refused)?;
    if let Some(key) = keys.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(Error::config("unknown_key", format!("{key} is not known")));
    }
    serde_json::from_value(Value::Object(keys)).map_err(refused)
}

impl Guest for Export {
    type Session = Session;
    type Load = Loading;
    type Writer = Writing;

    fn describe() -> Spec {
        Spec {
            write_modes: vec![WriteMode::Append, WriteMode::Replace, WriteMode::Upsert],
            supports_checkpoints: true,
            supports_rejects: true,
            ..Spec::plain(
                "dest-wrong",
                env!("CARGO_PKG_VERSION"),
                "Does one wrong thing, for tests of the tests",
                CONFIG_SCHEMA,
            )
        }
    }

    fn open(config: String) -> Result<wit::Session> {
        Ok(wit::Session::new(Session {
            config: parse(&config)?,
            shared: Rc::default(),
        }))
    }
}

impl Session {
    fn place(&self, stream: &str) -> Place {
        let Config {
            rows,
            again,
            state,
            look,
            ..
        } = &self.config;
        Place::new([rows, again, state, look], stream)
    }

    /// The same with the state of a pipeline.
    fn place_of(&self, stream: &str, pipeline: &str) -> Place {
        match self.config.deed {
            Deed::SharesCursor => self.place(stream),
            _ => self.place(stream).of(pipeline),
        }
    }

    fn answer(&self, state: &State) -> Progress {
        let forgets = self.config.deed == Deed::ForgetsCursor;
        Progress {
            epoch: state.epoch,
            seq: state.seq,
            cursor: state.cursor.clone().filter(|_| !forgets),
            run_id: state.run_id.clone(),
            complete: state.complete,
            lost_rows: None,
        }
    }
}

impl GuestSession for Session {
    fn check(&self) -> Result<Vec<CheckItem>> {
        let path = self.place("check").rows;
        Ok(vec![match files::probe(&path) {
            Ok(()) => CheckItem::ok("write", "a file can be created"),
            Err(error) => CheckItem::failed("write", error),
        }])
    }

    fn plan(&self, target: Target) -> Result<Plan> {
        let place = self.place(&target.stream);
        let schema = target.arrow_schema()?;
        let columns = schema.fields().iter().map(|field| ColumnPlan {
            column: field.name().clone(),
            target_type: type_name(field),
            fit: Fit::Exact,
            note: None,
            stored_type: None,
        });
        let mut columns: Vec<ColumnPlan> = columns.collect();
        if self.config.deed == Deed::TurnsColumns {
            columns.reverse();
        }
        let is_new = !place.has_rows()?;
        match self.config.deed {
            Deed::PlanCreates if is_new => place.show(&schema, &[])?,
            Deed::PlanLeavesFile => place.leave()?,
            Deed::PlanBeginsFile => drop(files::create(&place.rows)?),
            Deed::PlanEmpties if !is_new && target.write_mode == WriteMode::Replace => {
                place.show(&schema, &[])?;
            }
            _ => {}
        }
        Ok(Plan {
            is_new: is_new || self.config.deed == Deed::SaysNew,
            new_columns: Vec::new(),
            location: place.rows,
            columns,
            statements: Vec::new(),
            notes: Vec::new(),
        })
    }

    fn digest_recipe(&self, _: Target, _: Vec<String>) -> Result<String> {
        Err(Error::internal("it has no digests"))
    }

    fn digest(
        &self,
        _: Target,
        _: String,
        _: Vec<RowLimit>,
        _: Option<Buckets>,
        _: u8,
    ) -> Result<Vec<Bucket>> {
        Err(Error::internal("it has no digests"))
    }

    fn digest_rows(
        &self,
        _: Target,
        _: String,
        _: Vec<RowLimit>,
        _: ChosenRows,
        _: u32,
    ) -> Result<Vec<DigestedRow>> {
        Err(Error::internal("it has no digests"))
    }

    fn progress(&self, target: Target, pipeline: String) -> Result<Option<Progress>> {
        let place = self.place_of(&target.stream, &pipeline);
        let state = place.read()?;
        if self.config.deed == Deed::ProgressLetsIn && state.is_none() {
            let state = State {
                epoch: 1,
                ..State::default()
            };
            place.write(&state)?;
            return Ok(Some(self.answer(&state)));
        }
        Ok(state.map(|state| self.answer(&state)))
    }

    fn working(&self, _pipeline: String) -> Result<Vec<wit::Worker>> {
        Ok(Vec::new())
    }

    fn beat(&self, _presence: wit::Presence) -> Result<bool> {
        Ok(false)
    }

    fn rejects(
        &self,
        to: String,
        pipeline: String,
        after: Option<String>,
        with_data: bool,
    ) -> Result<Vec<wit::KeptReject>> {
        let state = self.place(&to).read()?.unwrap_or_default();
        let kept = state.rejects.into_iter();
        let kept = kept.filter(|kept| kept.pipeline == pipeline && Some(&kept.id) > after.as_ref());
        Ok(kept.map(|kept| listed(kept, with_data)).collect())
    }

    fn begin(&self, requests: Vec<LoadRequest>) -> Result<wit::Load> {
        let request = one::only(requests, TOGETHER).map_err(Error::internal)?;
        let LoadRequest { target, run } = request;
        let place = self.place_of(&target.stream, &run.pipeline);
        let mut state = place.read()?.unwrap_or_default();
        state.epoch += 1;
        state.complete &= state.run_id == run.id;
        state.run_id = run.id.clone();
        place.write(&state)?;
        let deed = self.config.deed;
        if !matches!(
            deed,
            Deed::TakesUpLeavings | Deed::LetsBothCommit | Deed::LeavesParts
        ) {
            for part in place.leavings(state.epoch)? {
                place.unstage(&part)?;
            }
        }
        let progress = self.answer(&state);
        let before = match deed {
            Deed::ShowsEarly => place.shown()?,
            _ => Vec::new(),
        };
        let schema = spoil::schema(deed, &target.arrow_schema()?)?;
        let mut shared = self.shared.borrow_mut();
        let first = shared.first.get_or_insert_with(|| schema.clone());
        let schema = match deed {
            Deed::KeepsFirstColumns => first.clone(),
            _ => schema,
        };
        let open = Open {
            place,
            epoch: state.epoch,
            schema,
            mode: target.write_mode,
            key: target.primary_key.clone(),
            parts: Vec::new(),
            number: 0,
            before,
            rejects_to: target
                .rejects
                .as_ref()
                .map(|rejects| self.place(&rejects.to)),
            rejects: Vec::new(),
            pipeline: run.pipeline,
            run_id: run.id,
        };
        shared.open.insert(target.stream.clone(), open);
        Ok(wit::Load::new(Loading {
            session: self.clone(),
            target,
            progress,
        }))
    }
}

impl GuestLoad for Loading {
    fn progress(&self) -> Vec<Progress> {
        vec![self.progress.clone()]
    }

    fn open_writer(&self, stream: u32, cursor: Option<String>) -> Result<wit::Writer> {
        one::ensure_only(stream, TOGETHER).map_err(Error::internal)?;
        let (session, stream) = (&self.session, &self.target.stream);
        let deed = session.config.deed;
        match deed {
            Deed::LeavesALock => session.place(stream).lock()?,
            Deed::LeavesFileOfWriter => session.place(stream).leave()?,
            _ => {}
        }
        Ok(wit::Writer::new(Writing {
            deed,
            decoder: Decoder::new(&self.target.schema)?,
            stream: stream.clone(),
            shared: Rc::clone(&session.shared),
            rows: RefCell::default(),
            count: RefCell::default(),
            loses_next: Cell::new(deed == Deed::LosesRowBehindCursor && cursor.is_some()),
        }))
    }

    fn schema_changes(&self, _: u32) -> Vec<String> {
        Vec::new()
    }

    fn open_keys(&self, _: u32) -> Result<wit::Writer> {
        Err(Error::internal("this destination does not compare keys"))
    }

    fn commit(&self, commits: Vec<StreamCommit>) -> Result<Vec<Receipt>> {
        let commit = one::only(commits, TOGETHER).map_err(Error::internal)?;
        one::ensure_only(commit.stream, TOGETHER).map_err(Error::internal)?;
        let StreamCommit {
            parts,
            seq,
            cursor,
            complete,
            ..
        } = commit;
        let deed = self.session.config.deed;
        let rows: u64 = parts.iter().map(|part| part.rows).sum();
        if deed == Deed::FailsWithoutRows && !parts.is_empty() && rows == 0 {
            return Err(Error::data("no_rows", "there is no row"));
        }
        let mut shared = self.session.shared.borrow_mut();
        let open = shared
            .open
            .get_mut(&self.target.stream)
            .ok_or_else(|| Error::internal("nobody was let in"))?;
        let mut state = open.place.read()?.unwrap_or_default();
        if state.epoch != open.epoch && deed != Deed::LetsBothCommit {
            let text = format!("the run {} was let in", state.run_id);
            return Err(Error::new(ErrorKind::Superseded, "run_superseded", text));
        }
        if state.seq != seq && deed != Deed::CommitsTwice {
            return Err(Error::internal(format!("{} commits, not {seq}", state.seq)));
        }
        let replayed = self.target.rejects.as_ref();
        let replayed = replayed.map_or(&[][..], |rejects| rejects.replayed.as_slice());
        open.keep(deed, replayed)?;
        (state.seq, state.cursor, state.complete) = (state.seq + 1, cursor, complete);
        if !parts.is_empty() && deed != Deed::CommitsNothing {
            open.commit(deed, &parts)?;
        }
        open.place.write(&state)?;
        if deed == Deed::LeavesALock {
            open.place.unlock()?;
        }
        Ok(vec![Receipt {
            rows: rows - u64::from(deed == Deed::MiscountsRows && rows > 0),
            bytes: rows,
            location: open.place.rows.clone(),
            deleted: 0,
        }])
    }

    fn abort(&self) -> Result<()> {
        let Session { config, shared } = &self.session;
        let deed = config.deed;
        let Some(open) = shared.borrow_mut().open.remove(&self.target.stream) else {
            return Ok(());
        };
        if deed == Deed::KeepsAborted && !open.parts.is_empty() {
            open.place.show(&open.schema, &open.staged()?)?;
        }
        if deed != Deed::LeavesParts {
            for part in &open.parts {
                open.place.unstage(part)?;
            }
        }
        match deed {
            Deed::LeavesALock => open.place.unlock(),
            Deed::ShowsEarly if open.before.is_empty() => open.place.hide(),
            Deed::ShowsEarly => open.place.show(&open.schema, &open.before),
            Deed::AbortsCommitted => open.place.hide(),
            _ => Ok(()),
        }
    }
}

/// A kept reject as the host lists it.
fn listed(kept: Kept, with_data: bool) -> wit::KeptReject {
    let data = if with_data { kept.data } else { Vec::new() };
    wit::KeptReject {
        version: if with_data { "1".into() } else { String::new() },
        id: kept.id,
        stream: kept.stream,
        run_id: kept.run_id,
        time: "2026-01-02 03:04:05 UTC".into(),
        origin: wit::RejectOrigin::Source,
        reject: wit::Reject {
            data,
            is_cut: kept.is_cut,
            location: kept.location,
            column: kept.column,
            code: kept.code,
            message: kept.message,
            read_with: kept.read_with,
        },
    }
}

impl Open {
    /// Keeps the rejects of the commit, and removes those that it replays.
    fn keep(&mut self, deed: Deed, replayed: &[(String, String)]) -> Result<()> {
        let Some(place) = &self.rejects_to else {
            return Ok(());
        };
        let mut state = place.read()?.unwrap_or_default();
        for (id, _) in replayed {
            let before = state.rejects.len();
            if deed != Deed::KeepsReplayed {
                state.rejects.retain(|kept| kept.id != *id);
                if state.rejects.len() == before {
                    return Err(Error::data("reject_missing", format!("{id} is gone")));
                }
            }
        }
        let new = self
            .rejects
            .drain(..)
            .filter(|_| deed != Deed::LosesRejects);
        state.rejects.extend(new);
        place.write(&state)
    }

    fn staged(&self) -> Result<Vec<RecordBatch>> {
        let parts = self.parts.iter().map(|part| self.place.staged(part));
        Ok(parts.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Puts the rows of parts beside, or in the place of, those that can be seen.
    fn commit(&mut self, deed: Deed, parts: &[Part]) -> Result<()> {
        let names = parts
            .iter()
            .map(|part| String::from_utf8_lossy(&part.data).into_owned());
        let mut names: Vec<String> = names.collect();
        let doubles = deed == Deed::DoublesPart;
        if deed == Deed::CommitsTwice {
            names.retain(|name| self.parts.contains(name));
        }
        if !doubles && names.iter().any(|name| !self.parts.contains(name)) {
            return Err(Error::internal(
                "a part that was committed, or never written",
            ));
        }
        match deed {
            Deed::CommitsFirstPart => names.truncate(1),
            Deed::CommitsBackwards => names.reverse(),
            Deed::TakesUpLeavings => names.extend(self.place.leavings(self.epoch)?),
            _ => {}
        }
        let new = names.iter().map(|part| self.place.staged(part));
        let new = new.collect::<Result<Vec<_>>>()?.concat();
        let old = match (deed, self.mode) {
            (Deed::ReplaceAppends, WriteMode::Replace) => self.place.shown()?,
            (_, WriteMode::Replace) => Vec::new(),
            (Deed::ShowsEarly, _) => std::mem::take(&mut self.before),
            (Deed::AppendReplaces, WriteMode::Append) => Vec::new(),
            _ => self.place.shown()?,
        };
        // Later parts of this run are appended to the replaced table.
        if self.mode == WriteMode::Replace {
            self.mode = WriteMode::Append;
        }
        let rows = [old, new].concat();
        let rows = match self.mode {
            WriteMode::Upsert => vec![self.newest(deed, &rows)?],
            _ => rows,
        };
        self.place.show(&self.schema, &rows)?;
        if deed == Deed::ShowsEarly {
            self.before = rows;
        }
        if !doubles {
            for part in self.parts.drain(..) {
                self.place.unstage(&part)?;
            }
        }
        Ok(())
    }

    /// One row of each key, which is a column of whole numbers.
    fn newest(&self, deed: Deed, rows: &[RecordBatch]) -> Result<RecordBatch> {
        let rows = concat_batches(&self.schema, rows)?;
        let key = self.key.first().and_then(|key| rows.column_by_name(key));
        let key = key.and_then(|key| key.as_primitive_opt::<Int64Type>());
        let key = key.ok_or_else(|| Error::config("no_key", "the key is no int64"))?;
        let mut places: HashMap<i64, usize> = HashMap::new();
        let mut newest: Vec<Vec<u64>> = vec![Vec::new(); rows.num_columns()];
        for (row, key) in key.values().iter().enumerate() {
            let at = places.get(key).copied();
            let next = places.len();
            for (column, newest) in rows.columns().iter().zip(&mut newest) {
                match at {
                    None => newest.push(row as u64),
                    Some(_) if deed == Deed::KeepsFirst => {}
                    Some(_) if deed == Deed::KeepsOldForNull && column.is_null(row) => {}
                    Some(at) => newest[at] = row as u64,
                }
            }
            if at.is_none() {
                places.insert(*key, next);
            }
        }
        let columns = rows.columns().iter().zip(newest);
        let columns =
            columns.map(|(column, newest)| take(column, &UInt64Array::from(newest), None));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }
}

impl GuestWriter for Writing {
    fn write(&self, batch: wit::Batch) -> Result<()> {
        let decoded = match self.decoder.decode(batch.data) {
            Ok(decoded) if decoded.num_rows() as u64 == batch.rows => decoded,
            _ if self.deed == Deed::TakesGarbage => return Ok(()),
            Ok(_) => return Err(Error::internal("another number of rows than was said")),
            Err(error) => return Err(error.into()),
        };
        let schema = decoded.schema();
        let bytes = schema
            .fields()
            .iter()
            .find(|field| field.data_type() == &DataType::Binary);
        if let (Deed::FailsAtBytes, Some(field)) = (self.deed, bytes) {
            return Err(Error::data(
                "no_bytes",
                format!("{} has bytes", field.name()),
            ));
        }
        let mut rows = self.rows.borrow_mut();
        if self.deed == Deed::ForgetsBeforeEmpty && batch.rows == 0 {
            rows.clear();
        }
        let shared = self.shared.borrow();
        let open = shared.open.get(&self.stream);
        let deed = match self.deed {
            // An upsert keeps the last row of a key, so the order matters.
            Deed::TurnsRows if open.is_some_and(|open| open.mode == WriteMode::Upsert) => {
                Deed::None
            }
            deed => deed,
        };
        let decoded = match batch.rows > 0 && self.loses_next.replace(false) {
            true => decoded.slice(1, decoded.num_rows() - 1),
            false => decoded,
        };
        rows.push(spoil::batch(deed, decoded)?);
        *self.count.borrow_mut() += batch.rows;
        Ok(())
    }

    fn reject(&self, _: wit::RejectOrigin, rejects: Vec<wit::Reject>) -> Result<()> {
        let mut shared = self.shared.borrow_mut();
        let open = shared.open.get_mut(&self.stream);
        let open = open.ok_or_else(|| Error::internal("nobody was let in"))?;
        for reject in rejects {
            let data = match self.deed {
                Deed::MendsRejects => String::from_utf8_lossy(&reject.data)
                    .into_owned()
                    .into_bytes(),
                _ => reject.data,
            };
            open.rejects.push(Kept {
                id: format!("{}-{:04}", open.run_id, open.rejects.len()),
                pipeline: open.pipeline.clone(),
                stream: self.stream.clone(),
                run_id: open.run_id.clone(),
                data,
                is_cut: reject.is_cut,
                location: reject.location,
                column: reject.column,
                code: reject.code,
                message: reject.message,
                read_with: reject.read_with,
            });
        }
        match self.deed {
            Deed::ShowsRejectsEarly => open.keep(self.deed, &[]),
            _ => Ok(()),
        }
    }

    fn refused(&self) -> wit::Refused {
        wit::Refused {
            rows: 0,
            first: Vec::new(),
        }
    }

    fn flush(&self) -> Result<Part> {
        let (mut rows, count) = (self.rows.take(), self.count.take());
        let mut shared = self.shared.borrow_mut();
        let Shared { open, last, .. } = &mut *shared;
        let open = open
            .get_mut(&self.stream)
            .ok_or_else(|| Error::internal("nobody was let in"))?;
        if self.deed == Deed::MixesStreams {
            if last.0 != self.stream {
                let mixed = last.1.iter().filter(|batch| batch.schema() == open.schema);
                rows.extend(mixed.cloned());
            }
            *last = (self.stream.clone(), rows.clone());
        }
        if self.deed == Deed::KeepsFirstColumns {
            let columns = open.schema.fields().iter().map(|field| field.name());
            let columns: Vec<&String> = columns.collect();
            for batch in &mut rows {
                let schema = batch.schema();
                let places = columns.iter().filter_map(|name| schema.index_of(name).ok());
                *batch = batch.project(&places.collect::<Vec<_>>())?;
            }
        }
        let name = part(open.epoch, open.number);
        open.place.stage(&name, &open.schema, &rows)?;
        open.number += 1;
        open.parts.push(name.clone());
        if self.deed == Deed::ShowsEarly {
            let rows = [open.before.clone(), open.staged()?].concat();
            open.place.show(&open.schema, &rows)?;
        }
        Ok(Part {
            data: name.into_bytes(),
            rows: count,
            bytes: count,
        })
    }
}

// A native shared library cannot carry the contract's symbol names.
#[cfg(target_family = "wasm")]
rapidbyte_sdk::bindings::destination_world::export_destination_world!(
    Export with_types_in rapidbyte_sdk::bindings::destination_world
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_as_the_schema_says() {
        let good = r#"{"deed": "none", "rows": "r", "again": "r", "state": "s", "look": "s"}"#;
        assert_eq!(parse(good).unwrap().deed, Deed::None);
        let missing =
            parse(r#"{"deed": "none", "rows": "r", "again": "r", "look": "s"}"#).unwrap_err();
        assert!(missing.message.contains("state"), "{}", missing.message);
        let unknown = parse(&good.replace("look", "more")).unwrap_err();
        assert!(unknown.message.contains("more"), "{}", unknown.message);
        assert!(serde_json::from_str::<Value>(CONFIG_SCHEMA).is_ok());
    }
}

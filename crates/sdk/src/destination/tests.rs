//! A session with a destination that writes down its calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::{Loading, Session};
use crate::prelude::*;

type Calls = Rc<RefCell<Vec<String>>>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {}

/// Fails in the named call.
#[derive(Clone)]
struct Notes<const CHECKPOINTS: bool> {
    calls: Calls,
    fails: Rc<RefCell<&'static str>>,
}

struct Note<const CHECKPOINTS: bool> {
    notes: Notes<CHECKPOINTS>,
    rows: u64,
}

impl<const CHECKPOINTS: bool> Notes<CHECKPOINTS> {
    fn note(&self, call: impl Into<String>) -> Result<()> {
        let call = call.into();
        let fails = *self.fails.borrow();
        let fails = !fails.is_empty() && call.starts_with(fails);
        self.calls.borrow_mut().push(call);
        match fails {
            true => Err(Error::data("on_purpose", "on purpose")),
            false => Ok(()),
        }
    }
}

impl<const CHECKPOINTS: bool> Destination for Notes<CHECKPOINTS> {
    type Config = Config;
    type Load = Note<CHECKPOINTS>;
    const NAME: &str = "dest-notes";
    const VERSION: &str = "0";
    const DESCRIPTION: &str = "Writes down its calls";
    const WRITE_MODES: &[WriteMode] = &[WriteMode::Append];
    const SUPPORTS_CHECKPOINTS: bool = CHECKPOINTS;

    fn open(_: Config) -> Result<Self> {
        Err(Error::internal("not from a configuration"))
    }

    fn check(&mut self) -> Result<Vec<CheckItem>> {
        Ok(Vec::new())
    }

    fn plan(&mut self, _: &Target) -> Result<Plan> {
        Err(Error::internal("no plan"))
    }

    fn begin(&mut self, target: &Target, run: &Run) -> Result<(Self::Load, Progress)> {
        self.note(format!("begin {} {}", target.stream, run.id))?;
        let progress = match CHECKPOINTS {
            true => Progress {
                epoch: 7,
                seq: 3,
                cursor: Some("c".into()),
                ..Progress::unfenced(&run.id)
            },
            false => Progress::unfenced(&run.id),
        };
        let notes = self.clone();
        Ok((Note { notes, rows: 0 }, progress))
    }
}

impl<const CHECKPOINTS: bool> Load for Note<CHECKPOINTS> {
    fn open_writer(&mut self, cursor: Option<&str>) -> Result<()> {
        self.notes
            .note(format!("open {}", cursor.unwrap_or_default()))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        self.notes.note("write")
    }

    fn flush(&mut self) -> Result<Part> {
        self.notes.note("flush")?;
        Ok(Part {
            data: Vec::new(),
            rows: std::mem::take(&mut self.rows),
            bytes: 0,
        })
    }

    fn commit(&mut self, commit: &Commit<'_>) -> Result<Receipt> {
        self.notes.note(format!("commit {}", commit.seq))?;
        Ok(Receipt {
            rows: commit.rows(),
            bytes: 0,
            location: "notes".into(),
            deleted: 0,
        })
    }

    fn abort(self) -> Result<()> {
        self.notes.note("abort")
    }
}

impl<const CHECKPOINTS: bool> Drop for Note<CHECKPOINTS> {
    fn drop(&mut self) {
        self.notes.calls.borrow_mut().push("drop".into());
    }
}

/// A session, and what its destination was asked.
struct Bench<const CHECKPOINTS: bool> {
    session: Session<Notes<CHECKPOINTS>>,
    notes: Notes<CHECKPOINTS>,
}

impl<const CHECKPOINTS: bool> Bench<CHECKPOINTS> {
    fn new() -> Self {
        let notes = Notes {
            calls: Calls::default(),
            fails: Rc::default(),
        };
        Self {
            session: Session::new(notes.clone()),
            notes,
        }
    }

    fn begin(&mut self, id: &str) -> Loading<Notes<CHECKPOINTS>> {
        self.session.begin(&[request("s", id)]).unwrap()
    }

    /// With a writer.
    fn begun() -> (Self, Loading<Notes<CHECKPOINTS>>) {
        let mut bench = Self::new();
        let mut load = bench.begin("r");
        load.open_writer(None).unwrap();
        (bench, load)
    }

    fn calls(&self) -> String {
        std::mem::take(&mut *self.notes.calls.borrow_mut()).join(", ")
    }

    /// The error of a call that the destination does not get.
    #[track_caller]
    fn refuses<T>(&self, called: Result<T>, why: &str) {
        let error = called.err().expect(why);
        assert!(matches!(error.kind, ErrorKind::Internal), "{error:?}");
        assert!(error.message.contains(why), "{error:?}");
        assert_eq!(error.stream.as_deref(), Some("s"));
        assert_eq!(self.calls(), "", "{why}");
    }
}

fn request(stream: &str, id: &str) -> LoadRequest {
    let run = Run {
        pipeline: "p".into(),
        id: id.into(),
    };
    let target = target(stream);
    LoadRequest { target, run }
}

fn commit<'a>(seq: u64, parts: Vec<Part>, complete: bool) -> Commit<'a> {
    Commit {
        stream: "s",
        parts,
        seq,
        cursor: None,
        complete,
    }
}

fn target(stream: &str) -> Target {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    Target {
        stream: stream.into(),
        schema: crate::ipc::encode_schema(&schema).unwrap(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        name: None,
        namespace: None,
        is_incremental: false,
        schema_changes: SchemaChanges::default(),
        rejects: None,
        deletes: None,
        repairs: None,
        stages: false,
    }
}

fn batch(rows: i64) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    RecordBatch::try_from_iter([("n", numbers)]).unwrap()
}

fn part(rows: u64) -> Part {
    Part {
        data: Vec::new(),
        rows,
        bytes: 0,
    }
}

#[test]
fn the_calls_of_a_stream_reach_its_load_in_order() {
    let mut bench = Bench::<true>::new();
    let mut load = bench.begin("r");
    let progress = load.progress();
    assert_eq!((progress.epoch, progress.seq), (7, 3));
    load.open_writer(Some("c")).unwrap();
    for (seq, complete) in [(3, false), (4, true)] {
        load.write(&batch(2)).unwrap();
        let first = load.flush().unwrap();
        load.write(&batch(3)).unwrap();
        let second = load.flush().unwrap();
        let receipt = load.commit(commit(seq, vec![first, second], complete));
        assert_eq!(receipt.unwrap().rows, 5);
    }
    assert_eq!(
        bench.calls(),
        "begin s r, open c, write, flush, write, flush, commit 3, write, flush, write, flush, commit 4, drop"
    );
    // The load is gone, and its writer says so.
    bench.refuses(load.write(&batch(1)), "already committed or aborted");
    bench.refuses(load.flush(), "already committed or aborted");
    let again = load.commit(commit(4, Vec::new(), true));
    bench.refuses(again, "already committed or aborted");
    load.abort().unwrap();
    assert_eq!(bench.calls(), "");
}

#[test]
fn a_load_has_one_stream() {
    let mut bench = Bench::<true>::new();
    for requests in [vec![], vec![request("s", "r"), request("t", "r")]] {
        let error = bench.session.begin(&requests).err().unwrap();
        assert!(matches!(error.kind, ErrorKind::Internal), "{error:?}");
        assert!(error.message.contains("`commits-together`"), "{error:?}");
    }
    assert_eq!(bench.calls(), "");
}

#[test]
fn a_stream_without_a_writer_gets_no_rows() {
    let mut bench = Bench::<true>::new();
    let mut load = bench.begin("r");
    bench.calls();
    bench.refuses(load.write(&batch(1)), "does not have a writer");
    bench.refuses(load.flush(), "does not have a writer");
    // A refused call changes nothing.
    load.open_writer(None).unwrap();
    assert_eq!(bench.calls(), "open ");
}

#[test]
fn a_stream_has_one_writer() {
    let (bench, mut load) = Bench::<true>::begun();
    bench.calls();
    let second = load.open_writer(None);
    bench.refuses(second, "already has a writer");
    load.write(&batch(1)).unwrap();
    let part = load.flush().unwrap();
    load.commit(commit(3, vec![part], false)).unwrap();
    bench.calls();
    let second = load.open_writer(None);
    bench.refuses(second, "already has a writer");
}

#[test]
fn a_commit_that_is_not_the_next_one_is_refused_and_the_next_one_is_taken() {
    let (bench, mut load) = Bench::<true>::begun();
    load.write(&batch(1)).unwrap();
    let first = load.flush().unwrap();
    bench.calls();
    let earlier = load.commit(commit(2, vec![first.clone()], false));
    bench.refuses(earlier, "the commit 2 has happened, and 3 is the next");
    let later = load.commit(commit(4, vec![first.clone()], false));
    bench.refuses(later, "number 4, and 3 is the next");
    load.commit(commit(3, vec![first.clone()], false)).unwrap();
    assert_eq!(bench.calls(), "commit 3");
    // The same one again.
    let again = load.commit(commit(3, vec![first.clone()], false));
    bench.refuses(again, "the commit 3 has happened, and 4 is the next");
    load.write(&batch(2)).unwrap();
    let second = load.flush().unwrap();
    load.commit(commit(4, vec![second], false)).unwrap();
    bench.calls();
    // A part again.
    let again = load.commit(commit(5, vec![first], false));
    assert!(again.unwrap_err().message.contains("but 0 were flushed"));
    assert_eq!(bench.calls(), "abort, drop");
}

#[test]
fn a_commit_of_other_rows_than_were_written_gives_the_load_up() {
    for (what, why) in [
        (
            "unflushed",
            "2 rows, but 2 were flushed, and 3 more were written",
        ),
        ("forgotten", "2 rows, but 5 were flushed, and 0 more"),
    ] {
        let (bench, mut load) = Bench::<true>::begun();
        load.write(&batch(2)).unwrap();
        let first = load.flush().unwrap();
        load.write(&batch(3)).unwrap();
        if what == "forgotten" {
            load.flush().unwrap();
        }
        bench.calls();
        let error = load.commit(commit(3, vec![first], true)).unwrap_err();
        assert!(error.message.contains(why), "{error:?}");
        assert_eq!(error.stream.as_deref(), Some("s"));
        assert_eq!(bench.calls(), "abort, drop", "{what}");
        bench.refuses(load.write(&batch(1)), "already committed or aborted");
        let again = load.commit(commit(3, Vec::new(), true));
        bench.refuses(again, "already committed or aborted");
    }
}

#[test]
fn a_commit_without_a_writer_moves_the_cursor_alone() {
    let mut bench = Bench::<true>::new();
    let mut load = bench.begin("r");
    bench.calls();
    let rows = load.commit(commit(3, vec![part(1)], false));
    bench.refuses(rows, "without written rows");
    load.commit(commit(3, Vec::new(), false)).unwrap();
    load.commit(commit(4, Vec::new(), false)).unwrap();
    load.open_writer(None).unwrap();
    load.commit(commit(5, Vec::new(), true)).unwrap();
    assert_eq!(bench.calls(), "commit 3, commit 4, open , commit 5, drop");
}

#[test]
fn after_an_error_only_an_abort_reaches_the_load() {
    for fails in ["open", "write", "flush", "commit"] {
        let mut bench = Bench::<true>::new();
        let mut load = bench.begin("r");
        *bench.notes.fails.borrow_mut() = fails;
        let opened = load.open_writer(None);
        let written = opened.and_then(|()| load.write(&batch(1)));
        let flushed = written.and_then(|()| load.flush());
        let committed = flushed.and_then(|part| load.commit(commit(3, vec![part], false)));
        let error = committed.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.stream.as_deref()),
            ("on_purpose", Some("s")),
            "{fails}"
        );
        *bench.notes.fails.borrow_mut() = "";
        bench.calls();
        bench.refuses(load.open_writer(None), "only an abort is left");
        bench.refuses(load.write(&batch(1)), "only an abort is left");
        bench.refuses(load.flush(), "only an abort is left");
        let committed = load.commit(commit(3, Vec::new(), false));
        bench.refuses(committed, "only an abort is left");
        load.abort().unwrap();
        assert_eq!(bench.calls(), "abort, drop", "{fails}");
    }
}

#[test]
fn an_abort_ends_the_load() {
    let (mut bench, mut older) = Bench::<true>::begun();
    bench.calls();
    older.abort().unwrap();
    let mut newer = bench.begin("again");
    assert_eq!(bench.calls(), "abort, drop, begin s again");
    bench.refuses(older.write(&batch(1)), "already committed or aborted");
    newer.open_writer(None).unwrap();
    newer.write(&batch(1)).unwrap();
    bench.calls();
    newer.abort().unwrap();
    assert_eq!(bench.calls(), "abort, drop");
    bench.refuses(newer.flush(), "already committed or aborted");
    bench.refuses(newer.open_writer(None), "already");
    *bench.notes.fails.borrow_mut() = "abort";
    let mut last = bench.begin("once more");
    let error = last.abort().unwrap_err();
    assert_eq!(error.code, "on_purpose");
    last.abort().unwrap();
}

#[test]
fn loads_of_a_session_are_apart() {
    let (mut bench, mut load) = Bench::<true>::begun();
    let mut other = bench.session.begin(&[request("t", "r")]).unwrap();
    other.open_writer(None).unwrap();
    load.write(&batch(1)).unwrap();
    other.write(&batch(2)).unwrap();
    other.abort().unwrap();
    let part = load.flush().unwrap();
    let receipt = load.commit(commit(3, vec![part], true)).unwrap();
    assert_eq!(receipt.rows, 1);
}

#[test]
fn a_destination_without_checkpoints_gets_one_commit_without_a_cursor() {
    let (mut bench, mut load) = Bench::<false>::begun();
    load.write(&batch(1)).unwrap();
    let part = load.flush().unwrap();
    bench.calls();
    let early = load.commit(commit(0, vec![part.clone()], false));
    bench.refuses(early, "does not support checkpoints");
    let with_cursor = load.commit(Commit {
        cursor: Some("c"),
        ..Commit::whole("s", vec![part.clone()])
    });
    bench.refuses(with_cursor, "does not support checkpoints");
    load.commit(commit(0, vec![part], true)).unwrap();
    let mut next = bench.begin("next");
    bench.calls();
    let cursor_alone = next.commit(commit(0, Vec::new(), true));
    bench.refuses(cursor_alone, "does not support checkpoints");
    let behind = next.open_writer(Some("c"));
    bench.refuses(behind, "does not support checkpoints");
    next.open_writer(None).unwrap();
    next.commit(commit(0, Vec::new(), true)).unwrap();
}

#[test]
fn a_place_belongs_to_one_stream_of_a_session() {
    let owners = super::Owners::default();
    for _ in 0..2 {
        owners.take("place".into(), "a", "the place").unwrap();
    }
    owners.take("other".into(), "b", "the other").unwrap();
    let error = owners.take("place".into(), "b", "the place").unwrap_err();
    assert_eq!(error.code, "shared_target");
    assert_eq!(error.message, "a and b would both be written to the place");
    assert_eq!(error.stream.as_deref(), Some("b"));
}

//! A session with a destination that writes down its calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::{Session, Writer};
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

    fn fence(&mut self, id: &str) -> Progress {
        let run = Run {
            pipeline: "p".into(),
            id: id.into(),
        };
        self.session.fence(&target("s"), &run).unwrap()
    }

    fn open(&mut self) -> Result<Writer<Notes<CHECKPOINTS>>> {
        let epoch = if CHECKPOINTS { 7 } else { 0 };
        self.session.open_writer(&target("s"), epoch, None)
    }

    /// Fenced and open.
    fn begun() -> (Self, Writer<Notes<CHECKPOINTS>>) {
        let mut bench = Self::new();
        bench.fence("r");
        let writer = bench.open().unwrap();
        (bench, writer)
    }

    fn commit(&mut self, seq: u64, parts: Vec<Part>, complete: bool) -> Result<Receipt> {
        self.session.commit(Commit {
            stream: "s",
            parts,
            seq,
            cursor: None,
            complete,
        })
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

fn target(stream: &str) -> Target {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    Target {
        stream: stream.into(),
        schema: crate::ipc::encode_schema(&schema).unwrap(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        deleted_field: None,
        dedup_fields: Vec::new(),
        is_incremental: false,
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
    let progress = bench.fence("r");
    assert_eq!((progress.epoch, progress.seq), (7, 3));
    let opened = bench.session.open_writer(&target("s"), 7, Some("c"));
    let mut writer = opened.unwrap();
    for (seq, complete) in [(3, false), (4, true)] {
        writer.write(&batch(2)).unwrap();
        let first = writer.flush().unwrap();
        writer.write(&batch(3)).unwrap();
        let second = writer.flush().unwrap();
        let receipt = bench.commit(seq, vec![first, second], complete).unwrap();
        assert_eq!(receipt.rows, 5);
    }
    assert_eq!(
        bench.calls(),
        "begin s r, open c, write, flush, write, flush, commit 3, write, flush, write, flush, commit 4, drop"
    );
    // The load is gone, and its writer says so.
    bench.refuses(writer.write(&batch(1)), "already committed or aborted");
    bench.refuses(writer.flush(), "already committed or aborted");
    let again = bench.commit(4, Vec::new(), true);
    bench.refuses(again, "already committed or aborted");
    bench.session.abort("s").unwrap();
    assert_eq!(bench.calls(), "");
}

#[test]
fn a_stream_that_no_run_fenced_is_neither_opened_nor_committed() {
    let mut bench = Bench::<true>::new();
    let opened = bench.open();
    bench.refuses(opened, "no run with epoch 7 fenced");
    let committed = bench.commit(0, Vec::new(), true);
    bench.refuses(committed, "no run fenced");
    bench.session.abort("s").unwrap();
    bench.fence("r");
    assert_eq!(bench.calls(), "begin s r");
    let older = bench.session.open_writer(&target("s"), 6, None);
    bench.refuses(older, "no run with epoch 6 fenced");
    let mut other = target("s");
    other.write_mode = WriteMode::Replace;
    let other = bench.session.open_writer(&other, 7, None);
    bench.refuses(other, "differs");
    // What was refused changed nothing.
    bench.open().unwrap();
    assert_eq!(bench.calls(), "open ");
}

#[test]
fn a_stream_has_one_writer() {
    let (mut bench, mut writer) = Bench::<true>::begun();
    bench.calls();
    let second = bench.open();
    bench.refuses(second, "already has a writer");
    writer.write(&batch(1)).unwrap();
    let part = writer.flush().unwrap();
    bench.commit(3, vec![part], false).unwrap();
    bench.calls();
    let second = bench.open();
    bench.refuses(second, "already has a writer");
}

#[test]
fn a_commit_that_is_not_the_next_one_is_refused_and_the_next_one_is_taken() {
    let (mut bench, mut writer) = Bench::<true>::begun();
    writer.write(&batch(1)).unwrap();
    let first = writer.flush().unwrap();
    bench.calls();
    let earlier = bench.commit(2, vec![first.clone()], false);
    bench.refuses(earlier, "the commit 2 has happened, and 3 is the next");
    let later = bench.commit(4, vec![first.clone()], false);
    bench.refuses(later, "number 4, and 3 is the next");
    bench.commit(3, vec![first.clone()], false).unwrap();
    assert_eq!(bench.calls(), "commit 3");
    // The same one again.
    let again = bench.commit(3, vec![first.clone()], false);
    bench.refuses(again, "the commit 3 has happened, and 4 is the next");
    writer.write(&batch(2)).unwrap();
    let second = writer.flush().unwrap();
    bench.commit(4, vec![second], false).unwrap();
    bench.calls();
    // A part again.
    let again = bench.commit(5, vec![first], false);
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
        let (mut bench, mut writer) = Bench::<true>::begun();
        writer.write(&batch(2)).unwrap();
        let first = writer.flush().unwrap();
        writer.write(&batch(3)).unwrap();
        if what == "forgotten" {
            writer.flush().unwrap();
        }
        bench.calls();
        let error = bench.commit(3, vec![first], true).unwrap_err();
        assert!(error.message.contains(why), "{error:?}");
        assert_eq!(bench.calls(), "abort, drop", "{what}");
        bench.refuses(writer.write(&batch(1)), "already committed or aborted");
        let again = bench.commit(3, Vec::new(), true);
        bench.refuses(again, "already committed or aborted");
    }
}

#[test]
fn a_commit_without_a_writer_moves_the_cursor_alone() {
    let mut bench = Bench::<true>::new();
    bench.fence("r");
    bench.calls();
    let rows = bench.commit(3, vec![part(1)], false);
    bench.refuses(rows, "without written rows");
    bench.commit(3, Vec::new(), false).unwrap();
    bench.commit(4, Vec::new(), false).unwrap();
    let _writer = bench.open().unwrap();
    bench.commit(5, Vec::new(), true).unwrap();
    assert_eq!(bench.calls(), "commit 3, commit 4, open , commit 5, drop");
}

#[test]
fn after_an_error_only_an_abort_reaches_the_load() {
    for fails in ["open", "write", "flush", "commit"] {
        let mut bench = Bench::<true>::new();
        bench.fence("r");
        *bench.notes.fails.borrow_mut() = fails;
        let mut opened = bench.open();
        let error = match &mut opened {
            Err(error) => error.clone(),
            Ok(writer) => {
                let written = writer.write(&batch(1)).and_then(|()| writer.flush());
                let committed = written.and_then(|part| bench.commit(3, vec![part], false));
                committed.unwrap_err()
            }
        };
        assert_eq!(
            (error.code.as_str(), error.stream.as_deref()),
            ("on_purpose", Some("s")),
            "{fails}"
        );
        *bench.notes.fails.borrow_mut() = "";
        bench.calls();
        let reopened = bench.open();
        assert!(reopened.is_err(), "{fails}");
        if let Ok(writer) = &mut opened {
            bench.refuses(writer.write(&batch(1)), "only an abort is left");
            bench.refuses(writer.flush(), "only an abort is left");
        }
        let committed = bench.commit(3, Vec::new(), false);
        assert!(committed.is_err(), "{fails}");
        bench.session.abort("s").unwrap();
        assert_eq!(bench.calls(), "abort, drop", "{fails}");
    }
}

#[test]
fn an_abort_and_a_new_fence_end_the_older_load() {
    let (mut bench, mut older) = Bench::<true>::begun();
    bench.calls();
    bench.fence("again");
    assert_eq!(bench.calls(), "abort, drop, begin s again");
    bench.refuses(older.write(&batch(1)), "already committed or aborted");
    let mut newer = bench.open().unwrap();
    newer.write(&batch(1)).unwrap();
    bench.calls();
    bench.session.abort("s").unwrap();
    assert_eq!(bench.calls(), "abort, drop");
    bench.refuses(newer.flush(), "already committed or aborted");
    let opened = bench.open();
    bench.refuses(opened, "no run with epoch 7 fenced");
    *bench.notes.fails.borrow_mut() = "abort";
    bench.fence("once more");
    let error = bench.session.abort("s").unwrap_err();
    assert_eq!(error.code, "on_purpose");
    bench.session.abort("s").unwrap();
}

#[test]
fn streams_of_a_session_are_apart() {
    let (mut bench, mut writer) = Bench::<true>::begun();
    let run = Run {
        pipeline: "p".into(),
        id: "r".into(),
    };
    bench.session.fence(&target("t"), &run).unwrap();
    let mut other = bench.session.open_writer(&target("t"), 7, None).unwrap();
    writer.write(&batch(1)).unwrap();
    other.write(&batch(2)).unwrap();
    bench.session.abort("t").unwrap();
    let part = writer.flush().unwrap();
    assert_eq!(bench.commit(3, vec![part], true).unwrap().rows, 1);
}

#[test]
fn a_destination_without_checkpoints_gets_one_commit_without_a_cursor() {
    let (mut bench, mut writer) = Bench::<false>::begun();
    writer.write(&batch(1)).unwrap();
    let part = writer.flush().unwrap();
    bench.calls();
    let early = bench.commit(0, vec![part.clone()], false);
    bench.refuses(early, "does not support checkpoints");
    let with_cursor = bench.session.commit(Commit {
        cursor: Some("c"),
        ..Commit::whole("s", vec![part.clone()])
    });
    bench.refuses(with_cursor, "does not support checkpoints");
    bench.commit(0, vec![part], true).unwrap();
    bench.fence("next");
    bench.calls();
    let cursor_alone = bench.commit(0, Vec::new(), true);
    bench.refuses(cursor_alone, "does not support checkpoints");
    let behind = bench.session.open_writer(&target("s"), 0, Some("c"));
    bench.refuses(behind, "does not support checkpoints");
    let _writer = bench.open().unwrap();
    bench.commit(0, Vec::new(), true).unwrap();
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

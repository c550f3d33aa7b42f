//! Reads that resume: from every checkpoint, exactly the remaining rows come.

use std::cell::{Cell, OnceCell};

use rapidbyte_runtime::{ErrorKind, Increment, LateRows, Stream, SyncMode};
use rapidbyte_wire::counted;
use serde_json::Value;

use super::Subject;
use crate::bench::Trouble;
use crate::digest::Digest;
use crate::order::Order;
use crate::read::{Asked, SMALL_BATCH_BYTES, Step};
use crate::verdict::*;

/// Checkpoints of a stream from which it is read on.
const MAX_RESUMED: usize = 12;
/// Checkpoints that are kept of one read; more are read over.
const MAX_KEPT: usize = 10_000;
/// A cursor is stored with each commit.
const MAX_CURSOR_BYTES: usize = 1 << 20;
/// A JSON document that no source makes.
const FOREIGN: &str = r#"{"conformance":["no cursor of this source"]}"#;

/// A place in a stream.
pub(super) struct Checkpoint {
    pub cursor: String,
    /// The rows before it.
    pub before: Digest,
    /// The greatest value of the cursor field before it, of a type that has one order everywhere.
    pub greatest: Option<i128>,
}

/// A stream that was read incrementally from its beginning.
pub(super) struct Followed {
    pub stream: String,
    pub asked: Asked,
    pub rows: Digest,
    order: Order,
    pub checkpoints: Vec<Checkpoint>,
    /// The breach of the contract, if there was one.
    wrong: Option<String>,
}

/// Incremental reads of the streams that have a cursor field.
pub(super) struct Increments<'s, 'b> {
    pub subject: &'s Subject<'b>,
    followed: OnceCell<Vec<Result<Followed, Trouble>>>,
    /// Checkpoints are good places to resume from, or the clause that tells why not.
    pub holds: Cell<Result<(), &'static Clause>>,
}

impl<'s, 'b> Increments<'s, 'b> {
    pub fn new(subject: &'s Subject<'b>) -> Self {
        Self {
            subject,
            followed: OnceCell::new(),
            holds: Cell::new(Err(&CHECKPOINTS)),
        }
    }

    /// The streams that incremental reads can resume, or why no stream is suitable.
    fn streams(&self) -> Result<Vec<&'s Stream>, Verdict> {
        let spec = self.subject.bench.spec()?;
        if !spec.sync_modes.contains(&SyncMode::Incremental) {
            return Err(skip("it does not read incrementally (sync_modes)"));
        }
        self.subject.streams()?;
        let streams = self.subject.reachable()?.into_iter();
        let streams = streams.map(|(stream, _)| stream);
        let streams: Vec<_> = streams.filter(|s| !s.cursor_fields.is_empty()).collect();
        match streams.is_empty() {
            true => Err(skip(
                "no stream has cursor-fields: give settings with one that has, or name it with --stream",
            )),
            false => Ok(streams),
        }
    }

    pub fn followed(&self) -> Result<&[Result<Followed, Trouble>], Verdict> {
        let streams = self.streams()?;
        let follow = || streams.iter().map(|stream| self.follow(stream)).collect();
        Ok(self.followed.get_or_init(follow))
    }

    fn follow(&self, stream: &Stream) -> Result<Followed, Trouble> {
        let asked = Asked {
            increment: Some(Increment {
                cursor_fields: stream.cursor_fields[..1].to_vec(),
                initial: None,
                late_rows: LateRows::Lag(None),
                allow_duplicates: false,
            }),
            batch_bytes: SMALL_BATCH_BYTES,
            ..Asked::whole(stream)
        };
        self.read(asked)
    }

    fn read(&self, asked: Asked) -> Result<Followed, Trouble> {
        let bench = self.subject.bench;
        bench.patiently(|| self.read_once(asked.clone()))
    }

    fn read_once(&self, asked: Asked) -> Result<Followed, Trouble> {
        let mut reading = self.subject.begin(&asked)?;
        let mut followed = Followed {
            stream: asked.stream.clone(),
            asked,
            rows: Digest::default(),
            order: Order::default(),
            checkpoints: Vec::new(),
            wrong: None,
        };
        let increment = followed.asked.increment.iter();
        let column = increment
            .flat_map(|increment| increment.cursor_fields.first())
            .next();
        let column = column.cloned().unwrap_or_default();
        // A read that gives no row needs no checkpoint.
        let mut is_behind_all = true;
        loop {
            match reading.next()? {
                Step::Rows(batch, _) => {
                    is_behind_all = false;
                    if let Err(text) = followed.rows.add(&batch) {
                        return Err(Trouble::Broken(text));
                    }
                    followed.order.add(&batch, &column);
                }
                Step::Checkpoint(cursor) => {
                    is_behind_all = true;
                    followed.order.checkpoint();
                    followed.wrong = followed.wrong.or_else(|| wrong_cursor(&cursor));
                    let before = followed.rows;
                    if followed.checkpoints.len() == MAX_KEPT {
                        followed.checkpoints.pop();
                    }
                    let greatest = followed.order.greatest();
                    followed.checkpoints.push(Checkpoint {
                        cursor,
                        before,
                        greatest,
                    });
                }
                Step::Idle => {}
                Step::End => break,
                Step::TooMuch(text) => return Err(Trouble::TooMuch(text)),
                Step::Bad(text) | Step::Spins(text) => return Err(Trouble::Broken(text)),
            }
        }
        if !is_behind_all && followed.wrong.is_none() {
            let text = "the end came without a checkpoint behind the last row";
            followed.wrong = Some(text.into());
        }
        Ok(followed)
    }

    pub fn checkpoints(&self) -> Judged {
        const ACTION: &str =
            "give a checkpoint with a JSON text now and then, and one before the end";
        let mut detail = Vec::new();
        self.streams()?;
        let ended = self.subject.repeated()?;
        for followed in self.followed()? {
            let followed = followed.as_ref().map_err(|trouble| trouble.fails(ACTION))?;
            let failed = |seen: &str| fail(format!("stream {:?}: {seen}", followed.stream), ACTION);
            if let Some(wrong) = &followed.wrong {
                return Err(failed(wrong));
            }
            let whole = ended
                .iter()
                .find(|(stream, _)| stream.name == followed.stream);
            if let Some((stream, whole)) = whole
                && whole.rows != followed.rows
            {
                let action = "without a cursor an incremental read gives the rows of a whole read";
                let found = self.subject.keep(&followed.asked);
                let found = found.map_err(|trouble| trouble.fails(action))?;
                let text = self.subject.told(stream, |_| true, &found);
                return Err(fail(format!("stream {:?}: {text}", stream.name), action));
            }
            detail.push(format!(
                "{} in {}",
                followed.checkpoints.len(),
                counted(followed.rows.rows, "row")
            ));
        }
        self.holds.set(Err(&RESUME));
        Ok(detail.join(", "))
    }

    /// A server that is asked for the rows behind a cursor would never give such a row.
    pub fn order(&self) -> Judged {
        const ACTION: &str =
            "order the rows by their cursor field, or give one checkpoint, behind the last row";
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        self.streams()?;
        for followed in self.followed()? {
            let followed = followed
                .as_ref()
                .map_err(|trouble| trouble.blocks(&CHECKPOINTS))?;
            let stream = followed.stream.as_str();
            if let Some(back) = followed.order.back() {
                return Err(fail(format!("stream {stream:?}: {back}"), ACTION));
            }
            match followed.order.unknown() {
                Some(type_name) => unknown.push(format!("{stream} by {type_name}")),
                None => known.push(stream),
            }
        }
        match known.is_empty() {
            true => Err(skip(format!(
                "the source alone knows the order: {}",
                unknown.join(", ")
            ))),
            false => Ok(known.join(", ")),
        }
    }

    pub fn resume(&self) -> Judged {
        let mut resumed = 0;
        self.streams()?;
        self.subject.repeated()?;
        for followed in self.followed()? {
            let followed = followed
                .as_ref()
                .map_err(|trouble| trouble.blocks(&CHECKPOINTS))?;
            for checkpoint in spread(&followed.checkpoints) {
                let asked = Asked {
                    cursor: Some(checkpoint.cursor.clone()),
                    ..followed.asked.clone()
                };
                let action = "let a cursor say exactly which rows lie before it";
                let rest = self.read(asked).map_err(|trouble| trouble.fails(action))?;
                if checkpoint.before.plus(rest.rows) != followed.rows {
                    let text = self.resumed_wrongly(followed, checkpoint, &rest);
                    return Err(fail(
                        format!(
                            "stream {:?}: {} rows before {} and {} from there, {} in all{text}",
                            followed.stream,
                            checkpoint.before.rows,
                            short(&checkpoint.cursor),
                            rest.rows.rows,
                            followed.rows.rows,
                        ),
                        action,
                    ));
                }
                resumed += 1;
            }
            self.acknowledge(followed)?;
        }
        if self.holds.get() == Err(&RESUME) {
            self.holds.set(Ok(()));
        }
        match resumed {
            0 => Err(skip("there is no checkpoint: see checkpoints")),
            _ => Ok(format!("from {resumed} checkpoints")),
        }
    }

    /// In what the rows from a checkpoint on differ from those behind it; empty where it is not known.
    fn resumed_wrongly(&self, followed: &Followed, from: &Checkpoint, rest: &Followed) -> String {
        let (all, rest) = (
            self.subject.keep(&followed.asked),
            self.subject.keep(&rest.asked),
        );
        let (Ok(all), Ok(rest)) = (all, rest) else {
            return String::new();
        };
        let is_behind = |row: usize| row as u64 >= from.before.rows;
        format!("; {}", all.difference(is_behind, &rest))
    }

    /// Only when nothing is read from an earlier place any more: a source may forget it then.
    fn acknowledge(&self, followed: &Followed) -> Result<(), Verdict> {
        let Some(last) = followed.checkpoints.last() else {
            return Ok(());
        };
        let asked = Asked {
            cursor: Some(last.cursor.clone()),
            ..followed.asked.clone()
        };
        let told = self.subject.bench.patiently(|| {
            let mut reading = self.subject.begin(&asked)?;
            while matches!(
                reading.next()?,
                Step::Rows(..) | Step::Checkpoint(_) | Step::Idle
            ) {}
            reading.acknowledge(&last.cursor)
        });
        told.map_err(|trouble| trouble.fails("take acknowledge of a cursor that you made"))
    }

    pub fn foreign_cursor(&self) -> Judged {
        const ACTION: &str = "refuse a text that is not one of your cursors with an error of kind config, schema or data";
        let streams = self.streams()?;
        self.subject.ended()?;
        let followed = self.followed()?;
        let first = followed[0]
            .as_ref()
            .map_err(|trouble| trouble.blocks(&CHECKPOINTS))?;
        let asked = Asked {
            cursor: Some(FOREIGN.into()),
            ..first.asked.clone()
        };
        let begun = self.subject.bench.patiently(|| {
            let mut reading = self.subject.begin(&asked)?;
            reading.next()?;
            Ok(reading.rows())
        });
        match begun {
            Ok(_) => Err(fail(
                format!("stream {:?} was read from {FOREIGN}", streams[0].name),
                ACTION,
            )),
            Err(Trouble::Error(_, error))
                if matches!(
                    error.kind,
                    ErrorKind::Config | ErrorKind::Schema | ErrorKind::Data
                ) =>
            {
                Ok(error.code)
            }
            Err(trouble) => Err(trouble.fails(ACTION)),
        }
    }
}

/// The fault of a cursor, if it has one.
fn wrong_cursor(cursor: &str) -> Option<String> {
    if cursor.len() > MAX_CURSOR_BYTES {
        return Some(format!("a cursor of {} bytes", cursor.len()));
    }
    let error = serde_json::from_str::<Value>(cursor).err()?;
    Some(format!("the cursor {} is not JSON: {error}", short(cursor)))
}

pub(super) fn short(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Some of them, evenly, with the first and the last.
fn spread(all: &[Checkpoint]) -> impl Iterator<Item = &Checkpoint> {
    let count = all.len().min(MAX_RESUMED);
    (0..count).map(move |n| &all[n * (all.len() - 1) / (count - 1).max(1)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_checkpoints_are_tried_with_the_first_and_the_last() {
        let all = |count: usize| -> Vec<Checkpoint> {
            let one = |at: usize| Checkpoint {
                cursor: at.to_string(),
                before: Digest::default(),
                greatest: None,
            };
            (0..count).map(one).collect()
        };
        let tried = |count: usize| -> Vec<String> {
            spread(&all(count)).map(|c| c.cursor.clone()).collect()
        };
        assert!(tried(0).is_empty());
        assert_eq!(tried(1), ["0"]);
        assert_eq!(tried(3), ["0", "1", "2"]);
        let many = tried(1000);
        assert_eq!(
            (many.len(), many[0].as_str(), many[11].as_str()),
            (12, "0", "999")
        );
    }
}

//! Clauses for a source: what it has, and what it gives.

mod beginnings;
mod chosen;
mod increment;
pub(crate) mod kept;
mod sessions;
mod sizes;
mod whole;

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use arrow_schema::Schema;
use rapidbyte_runtime::{ErrorKind, Increment, LateRows, Stream, SyncMode};
use rapidbyte_wire::{counted, ipc, types};

use crate::bench::{Bench, Reach, Trouble};
use crate::discovery::discovered;
use crate::judges::Judges;
use crate::read::{Asked, Reading, Step};
use crate::verdict::*;
use whole::Whole;

/// Streams that are read where none is named.
const MAX_STREAMS: usize = 4;
/// Names that no source has.
const NO_STREAM: &str = "conformance_no_such_stream";
const NO_COLUMN: &str = "conformance_no_such_column";
/// A cancelled call ends within this time.
pub(crate) const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// The source under test, with what was found of it.
pub(crate) struct Subject<'b> {
    pub bench: &'b Bench<'b>,
    /// The streams that are read.
    streams: OnceCell<Vec<Stream>>,
    /// A whole read of each.
    wholes: OnceCell<Vec<Result<Whole, Trouble>>>,
    /// The same in small batches, of the streams that came to their end.
    small: OnceCell<Vec<Result<Whole, Trouble>>>,
    /// The same rows come again, so that reads can be compared; or the clause that tells why not.
    repeats: Cell<Result<(), &'static Clause>>,
    /// Columns can be chosen; or the clause that tells why not.
    has_columns: Cell<Result<(), &'static Clause>>,
}

/// Judges all clauses of a source.
pub(crate) fn judge(bench: &Bench<'_>, judges: &mut Judges<'_>) {
    let subject = Subject {
        bench,
        streams: OnceCell::new(),
        wholes: OnceCell::new(),
        small: OnceCell::new(),
        repeats: Cell::new(Err(&READ_AGAIN)),
        has_columns: Cell::new(Err(&COLUMNS)),
    };
    judges.judge(&DISCOVER, || subject.discover());
    if judges.met_wrong_setup() {
        judges.stop(&DISCOVER);
    }
    judges.judge(&DISCOVER_AGAIN, || subject.discover_again());
    judges.judge(&READ, || subject.read());
    if judges.met_wrong_setup() && subject.reachable().is_err() {
        judges.stop(&READ);
    }
    judges.judge(&READ_SCHEMA, || {
        subject.all(
            |whole| whole.wrong_schema.clone(),
            "give the schema that discover gives",
        )
    });
    judges.judge(&BATCHES, || subject.batches());
    judges.judge(&BATCH_BYTES, || subject.batch_bytes());
    judges.judge(&WHOLE, || {
        subject.all(
            |whole| whole.unexpected.clone(),
            "without an increment give batches, then end, and end again when asked again",
        )
    });
    judges.judge(&WAIT, || {
        subject.all(
            |whole| whole.wrong_wait.clone(),
            "come back with idle when nothing came within the wait, and not before",
        )
    });
    judges.judge(&READ_AGAIN, || subject.read_again());
    judges.judge(&OTHER_BATCHES, || subject.other_batches());
    judges.judge(&MAX_RECORD, || subject.max_record());
    judges.judge(&FILTER, || subject.filter());
    judges.judge(&COLUMNS, || subject.columns());
    judges.judge(&SESSION, || subject.session());
    judges.judge(&SNAPSHOT, || subject.snapshot());
    judges.judge(&UNKNOWN_STREAM, || {
        subject.refuses(Asked::unknown(NO_STREAM), "a stream that is not there")
    });
    judges.judge(&UNKNOWN_COLUMN, || subject.unknown_column());
    let increments = increment::Increments::new(&subject);
    judges.judge(&CHECKPOINTS, || increments.checkpoints());
    judges.judge(&ORDER, || increments.order());
    judges.judge(&RESUME, || increments.resume());
    judges.judge(&CURSOR_COLUMNS, || increments.cursor_columns());
    judges.judge(&INITIAL, || increments.initial());
    judges.judge(&LATE_ROWS, || increments.late_rows());
    judges.judge(&OTHER_CURSOR, || increments.other_cursor());
    judges.judge(&FOREIGN_CURSOR, || increments.foreign_cursor());
    // The last one: a session that is left in the middle may be in the way of others.
    judges.judge(&SOURCE_CANCEL, || subject.cancel());
}

impl Subject<'_> {
    /// Begins to read in a session of its own.
    pub fn begin(&self, asked: &Asked) -> Result<Reading<'_>, Trouble> {
        let config = self.bench.config().cloned().unwrap_or_default();
        let source = self.bench.source(&config, Reach::Granted)?;
        Reading::begin(self.bench, source, asked)
    }

    /// The streams that are read, or which clause tells why there is none.
    pub fn streams(&self) -> Result<&[Stream], Verdict> {
        self.bench.config()?;
        let missing = || skip("no stream is known: see discover");
        self.streams.get().map(Vec::as_slice).ok_or_else(missing)
    }

    fn found(&self) -> Result<Vec<Stream>, Verdict> {
        const ACTION: &str = "answer discover with the streams that there are";
        let config = self.bench.config()?;
        let found = self.bench.patiently(|| {
            let source = self.bench.source(config, Reach::Granted);
            let mut source = match source {
                Ok(source) => source,
                Err(trouble) if trouble.passes_after().is_some() => return Err(trouble),
                Err(trouble) => return Ok(Err(trouble.blocks(&CHECK))),
            };
            discovered(self.bench, Reach::Granted, &mut source).map(Ok)
        });
        found.map_err(|trouble| trouble.fails_first(ACTION))?
    }

    fn discover(&self) -> Judged {
        let found = self.found()?;
        if found.is_empty() {
            return Err(skip(
                "there is no stream: give settings with which there is one",
            ));
        }
        for (at, stream) in found.iter().enumerate() {
            let twice = found[..at].iter().any(|other| other.name == stream.name);
            let wrong = match twice {
                true => Some("there are two of that name".to_owned()),
                false => wrong_stream(stream),
            };
            if let Some(wrong) = wrong {
                return Err(fail(
                    format!("stream {:?}: {wrong}", stream.name),
                    "give each stream a name, a portable schema, one source type a column, and keys among its columns",
                ));
            }
        }
        let asked = &self.bench.trial.streams;
        let missing = asked
            .iter()
            .find(|name| !found.iter().any(|s| &s.name == *name));
        if let Some(missing) = missing {
            return Err(setup(format!(
                "there is no stream {missing}: name another with --stream"
            )));
        }
        let count = found.len();
        let chosen = found.into_iter();
        let chosen = chosen.filter(|stream| asked.is_empty() || asked.contains(&stream.name));
        let chosen: Vec<Stream> = chosen.take(MAX_STREAMS.max(asked.len())).collect();
        let names: Vec<&str> = chosen.iter().map(|stream| stream.name.as_str()).collect();
        let detail = match count - names.len() {
            0 => names.join(", "),
            more => format!("{}; {more} more are not read", names.join(", ")),
        };
        // Set once: this clause is judged once.
        let _ = self.streams.set(chosen);
        Ok(detail)
    }

    fn discover_again(&self) -> Judged {
        let before = self.streams()?;
        let again = self.found().map_err(|verdict| match verdict {
            Verdict::Fail { seen, .. }
            | Verdict::Skip {
                reason: seen,
                setup: true,
                ..
            } => fail(seen, "answer each session alike"),
            other => other,
        })?;
        for stream in before {
            let same = again.iter().find(|other| other.name == stream.name);
            let what = match same {
                None => "is missing",
                Some(other) if fields(other) != fields(stream) => "has other columns",
                Some(other) if other.primary_key != stream.primary_key => "has another key",
                Some(other) if other.cursor_fields != stream.cursor_fields => {
                    "has other cursor fields"
                }
                Some(_) => continue,
            };
            return Err(fail(
                format!("stream {:?} {what} the second time", stream.name),
                "let what discover gives follow from the settings and the source alone",
            ));
        }
        Ok(counted(before.len(), "stream"))
    }

    /// The whole reads: done once, and looked at by several clauses.
    pub fn wholes(&self) -> Result<&[Result<Whole, Trouble>], Verdict> {
        let streams = self.streams()?;
        let read = || {
            streams
                .iter()
                .map(|stream| Whole::read(self, stream))
                .collect()
        };
        Ok(self.wholes.get_or_init(read))
    }

    /// The whole reads of the streams that nothing outside, and no wrong setting or value, keeps from being
    /// read.
    fn reachable(&self) -> Result<Vec<(&Stream, &Whole)>, Verdict> {
        let (mut reachable, mut outside) = (Vec::new(), None);
        for (stream, whole) in self.streams()?.iter().zip(self.wholes()?) {
            match whole {
                Ok(whole) => reachable.push((stream, whole)),
                Err(trouble) if trouble.is_outside() => outside = Some(trouble),
                Err(trouble) => return Err(trouble.blocks(&READ)),
            }
        }
        match outside.filter(|_| reachable.is_empty()) {
            Some(trouble) => Err(trouble.blocks(&READ)),
            None => Ok(reachable),
        }
    }

    /// The whole reads that came to their end without a mistake, with their streams.
    pub fn ended(&self) -> Result<Vec<(&Stream, &Whole)>, Verdict> {
        let mut ended = Vec::new();
        for (stream, whole) in self.reachable()? {
            if let Some(clause) = whole.why_unfinished() {
                let text = format!(
                    "{:?} was not read to its end: see {}",
                    stream.name, clause.id
                );
                return Err(skip(text));
            }
            ended.push((stream, whole));
        }
        Ok(ended)
    }

    /// The same, where rows come again as they were.
    pub fn repeated(&self) -> Result<Vec<(&Stream, &Whole)>, Verdict> {
        let ended = self.ended()?;
        match self.repeats.get() {
            Ok(()) => Ok(ended),
            Err(clause) => Err(skip(format!("reads cannot be compared: see {}", clause.id))),
        }
    }

    fn read(&self) -> Judged {
        const ACTION: &str = "give every row of a stream that discover has, and then the end";
        let mut rows = 0;
        for (stream, whole) in self.streams()?.iter().zip(self.wholes()?) {
            let whole = match whole {
                Ok(whole) => whole,
                // Another clause judges a broken batch.
                Err(trouble @ Trouble::Broken(_)) => return Err(trouble.blocks(&BATCHES)),
                Err(trouble) if self.refuses_as_unknown(trouble) => {
                    let seen = format!(
                        "stream {:?} is discovered, and refused as one that is not there: {}",
                        stream.name,
                        trouble.text()
                    );
                    return Err(fail(seen, ACTION));
                }
                Err(trouble) => {
                    let at = |reason| format!("stream {:?}: {reason}", stream.name);
                    return Err(match trouble.fails_first(ACTION) {
                        Verdict::Skip {
                            reason,
                            outside: true,
                            ..
                        } => outside(at(reason)),
                        Verdict::Skip {
                            reason,
                            setup: true,
                            ..
                        } => setup(at(reason)),
                        other => other,
                    });
                }
            };
            if let Some(text) = &whole.too_much {
                return Err(skip(format!(
                    "stream {:?}: {text}: give settings with less, or another with --stream",
                    stream.name
                )));
            }
            if let Some(clause) = whole.why_unfinished() {
                return Err(skip(format!("see {}", clause.id)));
            }
            rows += whole.rows.rows;
        }
        Ok(counted(rows, "row"))
    }

    /// Whether a read was refused with the code of a stream that nobody has. A server may say so of both.
    fn refuses_as_unknown(&self, trouble: &Trouble) -> bool {
        let Trouble::Error(_, error) = trouble else {
            return false;
        };
        if !matches!(error.kind, ErrorKind::Schema | ErrorKind::Config) || self.asks_over_http() {
            return false;
        }
        let unknown = self.begin(&Asked::unknown(NO_STREAM)).map(drop);
        matches!(unknown, Err(Trouble::Error(_, other)) if other.code == error.code)
    }

    /// Whether a server answers, which has its own way to understand what it is asked.
    pub(super) fn asks_over_http(&self) -> bool {
        let imports = self.bench.trial.connector.imports();
        imports.iter().any(|import| import == "http")
    }

    /// Looks at one finding of each whole read.
    fn all(&self, wrong: impl Fn(&Whole) -> Option<String>, action: &str) -> Judged {
        let mut detail = Vec::new();
        for (stream, whole) in self.reachable()? {
            if let Some(seen) = wrong(whole) {
                return Err(fail(format!("stream {:?}: {seen}", stream.name), action));
            }
            detail.push(match whole.batches {
                1 => "1 batch".to_owned(),
                batches => format!("{batches} batches"),
            });
        }
        Ok(detail.join(", "))
    }

    fn batches(&self) -> Judged {
        const ACTION: &str = "encode each batch with the reader's schema, and say its rows";
        let broken = self.wholes()?.iter().find_map(|whole| match whole {
            Err(Trouble::Broken(seen)) => Some(seen),
            _ => None,
        });
        match broken {
            Some(seen) => Err(fail(seen, ACTION)),
            None => self.all(|whole| whole.wrong_batch.clone(), ACTION),
        }
    }

    fn read_again(&self) -> Judged {
        let mut rows = 0;
        for (stream, whole) in self.ended()? {
            let again = Whole::read(self, stream).map_err(|t| t.fails("read as the first time"))?;
            if again.rows != whole.rows {
                // Two reads that are kept, the earlier one first: its rows are the expected ones.
                let first = self.keep_whole(stream);
                let first = first.map_err(|trouble| trouble.fails("read as the first time"))?;
                let found = self.keep(&Asked::whole(stream));
                let found = found.map_err(|trouble| trouble.fails("read as the first time"))?;
                let seen = first.difference(|_| true, &found);
                return Err(fail(
                    format!("stream {:?}: {seen}", stream.name),
                    "let rows follow from the source alone; or test where nobody else writes",
                ));
            }
            rows += again.rows.rows;
        }
        self.repeats.set(Ok(()));
        Ok(counted(rows, "row"))
    }

    /// Asks for what is not there, which must be refused before the first row.
    fn refuses(&self, asked: Asked, what: &str) -> Judged {
        self.streams()?;
        let action =
            format!("answer snapshot or read of {what} with an error of kind schema or config");
        match self.bench.patiently(|| self.begin(&asked).map(drop)) {
            Ok(()) => Err(fail(format!("{what} was taken"), action)),
            Err(trouble) if trouble.passes_after().is_some() && !self.is_reachable() => {
                Err(trouble.fails(action))
            }
            Err(Trouble::Error(_, error))
                if !matches!(error.kind, ErrorKind::Schema | ErrorKind::Config) =>
            {
                let text = format!("{:?}: {} [{}]", error.kind, error.message, error.code);
                Err(fail(text, action))
            }
            Err(Trouble::Error(_, error)) => Ok(error.code),
            Err(trouble) => Err(trouble.fails(action)),
        }
    }

    /// The first stream can be read at this moment.
    fn is_reachable(&self) -> bool {
        let read = |stream: &Stream| {
            let mut reading = self.begin(&Asked::whole(stream))?;
            reading.next().map(drop)
        };
        let streams = self.streams().unwrap_or_default();
        streams.first().is_some_and(|stream| read(stream).is_ok())
    }

    fn unknown_column(&self) -> Judged {
        let streams = self.streams()?;
        let asked = Asked {
            columns: Some(vec![NO_COLUMN.into()]),
            ..Asked::whole(&streams[0])
        };
        let refused = self.refuses(asked, "a column that is not there")?;
        let is_incremental = self
            .bench
            .spec()?
            .sync_modes
            .contains(&SyncMode::Incremental);
        let mut streams = streams.iter().filter(|s| !s.cursor_fields.is_empty());
        let Some(stream) = streams.next().filter(|_| is_incremental) else {
            return Ok(refused);
        };
        let asked = Asked {
            increment: Some(Increment {
                cursor_fields: vec![NO_COLUMN.into()],
                initial: None,
                late_rows: LateRows::Lag(None),
                allow_duplicates: false,
            }),
            ..Asked::whole(stream)
        };
        let field = self.refuses(asked, "a cursor field that is not there")?;
        Ok(format!("{refused}, {field}"))
    }

    /// Leaves a read in the middle, and reads again.
    fn cancel(&self) -> Judged {
        let stream = &self.streams()?[0];
        let asked = Asked::whole(stream);
        let config = self.bench.config()?;
        let blocked = |trouble: Trouble| trouble.blocks(&READ);
        let begun = self.bench.patiently(|| {
            let cancel = self.bench.trial.host.cancel.child();
            let source = self
                .bench
                .source_until(config, Reach::Granted, cancel.clone())?;
            let mut reading = Reading::begin(self.bench, source, &asked)?;
            reading.next()?;
            Ok((reading, cancel))
        });
        let (mut reading, cancel) = begun.map_err(blocked)?;
        cancel.cancel();
        let begun = Instant::now();
        let ended = loop {
            match reading.next() {
                Err(Trouble::Cancelled) => break begun.elapsed(),
                Err(trouble) => return Err(trouble.blocks(&READ)),
                Ok(_) if begun.elapsed() > CANCELLED_WITHIN => {
                    return Err(fail(
                        "next went on after it was cancelled",
                        "tell us: the host lets that happen",
                    ));
                }
                Ok(_) => {}
            }
        };
        drop(reading);
        let action = "leave nothing behind that the next session stumbles over: a session may end at any moment";
        let again = self.bench.patiently(|| {
            let mut reading = self.begin(&asked)?;
            while let Step::Idle | Step::Checkpoint(_) = reading.next()? {}
            Ok(())
        });
        again.map_err(|trouble| trouble.fails(action))?;
        Ok(format!("ended after {:.0} ms", ended.as_secs_f64() * 1e3))
    }
}

fn fields(stream: &Stream) -> Option<arrow_schema::Fields> {
    ipc::decode_schema(&stream.schema)
        .ok()
        .map(|schema: Schema| schema.fields)
}

/// The fault of a discovered stream, if it has one.
fn wrong_stream(stream: &Stream) -> Option<String> {
    if stream.name.trim().is_empty() {
        return Some("it has no name".into());
    }
    let schema = match ipc::decode_schema(&stream.schema) {
        Ok(schema) => schema,
        Err(error) => return Some(error.to_string()),
    };
    if let Err(error) = types::check_portable(&schema) {
        return Some(error.to_string());
    }
    let (columns, said) = (schema.fields().len(), stream.source_types.len());
    if columns != said {
        return Some(format!("{columns} columns and {said} source types"));
    }
    let keys = stream.primary_key.iter().chain(&stream.cursor_fields);
    let mut unknown = keys.filter(|column| schema.index_of(column).is_err());
    let unknown = unknown.next()?;
    Some(format!(
        "{unknown:?} is a key or cursor field and no column"
    ))
}

//! Clauses for a source: what it has, and what it gives.

mod increment;
mod whole;

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use arrow_schema::Schema;
use rapidbyte_runtime::{ErrorKind, Stream};
use rapidbyte_wire::{ipc, types};

use crate::bench::{Bench, Reach, Trouble};
use crate::read::{Asked, Reading, Step};
use crate::trial::Judges;
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
    /// The same rows come again, so that reads can be compared.
    repeats: Cell<bool>,
}

/// Judges all clauses of a source.
pub(crate) fn judge(bench: &Bench<'_>, judges: &mut Judges<'_>) {
    let subject = Subject {
        bench,
        streams: OnceCell::new(),
        wholes: OnceCell::new(),
        repeats: Cell::new(false),
    };
    judges.judge(&DISCOVER, || subject.discover());
    judges.judge(&DISCOVER_AGAIN, || subject.discover_again());
    judges.judge(&READ, || subject.read());
    judges.judge(&READ_SCHEMA, || {
        subject.all(
            |whole| whole.wrong_schema.clone(),
            "give the schema that discover gives",
        )
    });
    judges.judge(&BATCHES, || subject.batches());
    judges.judge(&BATCH_BYTES, || {
        subject.all(
            |whole| whole.too_large.clone(),
            "end a batch when it has about read-request.batch-bytes",
        )
    });
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
    judges.judge(&COLUMNS, || subject.columns());
    judges.judge(&UNKNOWN_STREAM, || {
        subject.refuses(Asked::whole(NO_STREAM), "a stream that is not there")
    });
    judges.judge(&UNKNOWN_COLUMN, || subject.unknown_column());
    let increments = increment::Increments::new(&subject);
    judges.judge(&CHECKPOINTS, || increments.checkpoints());
    judges.judge(&ORDER, || increments.order());
    judges.judge(&RESUME, || increments.resume());
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
        self.bench
            .source(config, Reach::Granted)
            .map_err(|trouble| trouble.blocks(&CHECK))
            .and_then(|mut source| {
                let found = self.bench.note(source.discover(&[]));
                found.map_err(|trouble| trouble.fails(ACTION))
            })
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
            return Err(skip(format!(
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
            Verdict::Fail { seen, .. } => fail(seen, "answer each session alike"),
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
        Ok(format!("{} streams", before.len()))
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

    /// The whole reads that came to their end without a mistake, with their streams.
    pub fn ended(&self) -> Result<Vec<(&Stream, &Whole)>, Verdict> {
        let mut ended = Vec::new();
        for (stream, whole) in self.streams()?.iter().zip(self.wholes()?) {
            let whole = whole.as_ref().map_err(|trouble| trouble.blocks(&READ))?;
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
            true => Ok(ended),
            false => Err(skip("reads cannot be compared: see read-again")),
        }
    }

    fn read(&self) -> Judged {
        const ACTION: &str = "give every row of a stream that discover has, and then the end";
        let mut rows = 0;
        for (stream, whole) in self.streams()?.iter().zip(self.wholes()?) {
            let whole = match whole {
                Ok(whole) => whole,
                // What is no batch is told by another clause.
                Err(trouble @ Trouble::Broken(_)) => return Err(trouble.blocks(&BATCHES)),
                Err(trouble) => return Err(trouble.fails(ACTION)),
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
        Ok(format!("{rows} rows"))
    }

    /// Looks at one finding of each whole read.
    fn all(&self, wrong: impl Fn(&Whole) -> Option<String>, action: &str) -> Judged {
        let mut detail = Vec::new();
        for (stream, whole) in self.streams()?.iter().zip(self.wholes()?) {
            let whole = whole.as_ref().map_err(|trouble| trouble.blocks(&READ))?;
            if let Some(seen) = wrong(whole) {
                return Err(fail(format!("stream {:?}: {seen}", stream.name), action));
            }
            detail.push(format!("{} batches", whole.batches));
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
                let seen = match again.rows.rows == whole.rows.rows {
                    true => format!("other values in {} rows", again.rows.rows),
                    false => format!("{} rows, then {}", whole.rows.rows, again.rows.rows),
                };
                return Err(fail(
                    format!("stream {:?}: {seen}", stream.name),
                    "let rows follow from the source alone; or test where nobody else writes",
                ));
            }
            rows += again.rows.rows;
        }
        self.repeats.set(true);
        Ok(format!("{rows} rows"))
    }

    fn columns(&self) -> Judged {
        let mut detail = Vec::new();
        for (stream, whole) in self.repeated()? {
            let Some((places, expected)) = &whole.some else {
                continue;
            };
            let all = whole.schema.fields();
            let names: Vec<String> = places.iter().map(|at| all[*at].name().clone()).collect();
            let asked = Asked {
                columns: Some(names.clone()),
                ..Asked::whole(&stream.name)
            };
            let action = "give the columns of read-request.columns, in that order, and no others";
            let failed = |seen: String| {
                fail(
                    format!(
                        "stream {:?}, columns {}: {seen}",
                        stream.name,
                        names.join(", ")
                    ),
                    action,
                )
            };
            let found = Whole::of(self, &asked, None).map_err(|trouble| trouble.fails(action))?;
            let given: Vec<String> = found
                .schema
                .fields()
                .iter()
                .map(|f| f.name().clone())
                .collect();
            if given != names {
                return Err(failed(format!("came {}", given.join(", "))));
            }
            if found.rows != *expected {
                return Err(failed(format!(
                    "{} rows with other values than in a whole read of {}",
                    found.rows.rows, expected.rows
                )));
            }
            detail.push(format!("{} of {}", names.len(), all.len()));
        }
        match detail.is_empty() {
            true => Err(skip("needs a stream with two columns or more")),
            false => Ok(detail.join(", ")),
        }
    }

    /// Asks for what is not there, which must be refused before the first row.
    fn refuses(&self, asked: Asked, what: &str) -> Judged {
        self.streams()?;
        let action =
            format!("answer snapshot or read of {what} with an error of kind schema or config");
        match self.begin(&asked) {
            Ok(_) => Err(fail(format!("{what} was taken"), action)),
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

    fn unknown_column(&self) -> Judged {
        let stream = &self.streams()?[0];
        let asked = Asked {
            columns: Some(vec![NO_COLUMN.into()]),
            ..Asked::whole(&stream.name)
        };
        self.refuses(asked, "a column that is not there")
    }

    /// Leaves a read in the middle, and reads again.
    fn cancel(&self) -> Judged {
        let stream = &self.streams()?[0];
        let asked = Asked::whole(&stream.name);
        let cancel = self.bench.trial.host.cancel.child();
        let config = self.bench.config()?;
        let source = self
            .bench
            .source_until(config, Reach::Granted, cancel.clone());
        let blocked = |trouble: Trouble| trouble.blocks(&READ);
        let source = source.map_err(blocked)?;
        let mut reading = Reading::begin(self.bench, source, &asked).map_err(blocked)?;
        reading.next().map_err(blocked)?;
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
        let mut reading = self
            .begin(&asked)
            .map_err(|trouble| trouble.fails(action))?;
        let fails = |trouble: Trouble| trouble.fails(action);
        while let Step::Idle | Step::Checkpoint(_) = reading.next().map_err(fails)? {}
        Ok(format!("ended after {:.0} ms", ended.as_secs_f64() * 1e3))
    }
}

fn fields(stream: &Stream) -> Option<arrow_schema::Fields> {
    ipc::decode_schema(&stream.schema)
        .ok()
        .map(|schema: Schema| schema.fields)
}

/// What does not fit in a discovered stream.
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

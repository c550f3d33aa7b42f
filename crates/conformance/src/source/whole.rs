//! A stream that is read as a whole, once, with everything that several clauses look at.

use arrow_schema::{Schema, SchemaRef};
use rapidbyte_runtime::Stream;
use rapidbyte_wire::ipc;

use super::Subject;
use crate::bench::Trouble;
use crate::digest::Digest;
use crate::read::{Asked, BATCH_BYTES, Reading, Step};
use crate::verdict::{BATCHES, Clause, READ, WAIT, WHOLE};

/// A batch of several rows has at most so many times what was asked for.
const TIMES: usize = 4;
/// What may come on top, whatever was asked: headers of wide batches.
const HEADERS: usize = 64 << 10;

/// In the host's words about a checkpoint that nobody asked for; everything else that it finds broken
/// is a batch or a schema.
const UNASKED: &str = "a checkpoint in a read";

/// What a whole read showed.
pub(crate) struct Whole {
    pub schema: SchemaRef,
    /// All rows.
    pub rows: Digest,
    /// The same of some columns, by their places: none with one column only.
    pub some: Option<(Vec<usize>, Digest)>,
    pub batches: u64,
    /// The schema is not the discovered one.
    pub wrong_schema: Option<String>,
    /// A batch is none.
    pub wrong_batch: Option<String>,
    /// A batch is larger than it should be.
    pub too_large: Option<String>,
    /// A checkpoint, or something behind the end.
    pub unexpected: Option<String>,
    /// `next` took too long, or did not wait.
    pub wrong_wait: Option<String>,
    /// There is more than a test reads.
    pub too_much: Option<String>,
    spins: bool,
    /// The host stopped it for what is unexpected.
    is_cut: bool,
}

impl Whole {
    /// Reads all columns of a stream.
    pub fn read(subject: &Subject<'_>, stream: &Stream) -> Result<Self, Trouble> {
        Self::of(subject, &Asked::whole(&stream.name), Some(stream))
    }

    /// Reads what is asked; compares its schema with that of `discovered`.
    pub fn of(
        subject: &Subject<'_>,
        asked: &Asked,
        discovered: Option<&Stream>,
    ) -> Result<Self, Trouble> {
        let mut reading = subject.begin(asked)?;
        let schema = reading.schema().clone();
        let columns = schema.fields().len();
        // Every second column, the last one first.
        let places: Vec<usize> = (0..columns).rev().step_by(2).collect();
        let mut whole = Self {
            wrong_schema: discovered.and_then(|stream| differs(stream, &schema)),
            schema,
            rows: Digest::default(),
            some: (columns > 1).then(|| (places, Digest::default())),
            batches: 0,
            wrong_batch: None,
            too_large: None,
            unexpected: None,
            wrong_wait: None,
            too_much: None,
            spins: false,
            is_cut: false,
        };
        loop {
            match reading.next() {
                Ok(step) => {
                    if !whole.take(step, &mut reading)? {
                        break;
                    }
                }
                Err(Trouble::Broken(text)) if text.contains(UNASKED) => {
                    whole.unexpected = Some(text);
                    whole.is_cut = true;
                    break;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        whole.wrong_wait = whole.wrong_wait.or(reading.slow.take());
        Ok(whole)
    }

    /// Looks at a step; true when there are more to come.
    fn take(&mut self, step: Step, reading: &mut Reading<'_>) -> Result<bool, Trouble> {
        match step {
            Step::Rows(batch, bytes) => {
                self.batches += 1;
                let rows = batch.num_rows();
                let limit = TIMES * BATCH_BYTES as usize + HEADERS;
                if rows > 1 && bytes > limit && self.too_large.is_none() {
                    self.too_large = Some(format!(
                        "a batch of {bytes} bytes with {rows} rows, asked for {BATCH_BYTES}"
                    ));
                }
                self.wrong_batch = self.add(&batch).err();
                return Ok(self.wrong_batch.is_none());
            }
            Step::Checkpoint(_) => {
                let text = "a checkpoint in a read without an increment";
                self.unexpected = Some(text.into());
                return Ok(true);
            }
            Step::Idle => return Ok(true),
            Step::End => {
                let behind = behind_end(reading)?;
                self.unexpected = self.unexpected.take().or(behind);
            }
            Step::Bad(text) => self.wrong_batch = Some(text),
            Step::TooMuch(text) => self.too_much = Some(text),
            Step::Spins(text) => {
                self.wrong_wait = Some(text);
                self.spins = true;
            }
        }
        Ok(false)
    }

    fn add(&mut self, batch: &arrow_array::RecordBatch) -> Result<(), String> {
        self.rows.add(batch)?;
        match &mut self.some {
            Some((places, rows)) => rows.add_some(batch, places),
            None => Ok(()),
        }
    }

    /// The clause that tells why not every row was seen; none when all were.
    pub fn why_unfinished(&self) -> Option<&'static Clause> {
        if self.wrong_batch.is_some() {
            Some(&BATCHES)
        } else if self.spins {
            Some(&WAIT)
        } else if self.is_cut {
            Some(&WHOLE)
        } else if self.too_much.is_some() {
            Some(&READ)
        } else {
            None
        }
    }
}

/// What comes behind the end; an error is as good as another end.
fn behind_end(reading: &mut Reading<'_>) -> Result<Option<String>, Trouble> {
    Ok(match reading.next() {
        Ok(Step::End) | Err(Trouble::Error(..)) => None,
        Ok(Step::Rows(batch, _)) => Some(format!("{} rows behind the end", batch.num_rows())),
        Ok(Step::Idle) => Some("idle behind the end".to_owned()),
        Ok(_) => Some("something else behind the end".to_owned()),
        Err(trouble) => return Err(trouble),
    })
}

/// In what the schema of a reader differs from the discovered one; what else it says of the stream may
/// change.
fn differs(stream: &Stream, found: &Schema) -> Option<String> {
    let said = ipc::decode_schema(&stream.schema).ok()?;
    if said.fields() == found.fields() {
        return None;
    }
    let name = |schema: &Schema| {
        let names = schema.fields().iter();
        let names = names.map(|field| {
            let null = if field.is_nullable() { "" } else { " not null" };
            format!(
                "{} {}{null}",
                field.name(),
                rapidbyte_wire::types::type_name(field)
            )
        });
        names.collect::<Vec<_>>().join(", ")
    };
    Some(format!(
        "({}) was discovered, ({}) is read",
        name(&said),
        name(found)
    ))
}

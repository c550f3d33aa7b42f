//! A stream that is read as a whole, once, with everything that several clauses look at.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use rapidbyte_runtime::Stream;
use rapidbyte_wire::ipc;

use super::Subject;
use crate::bench::Trouble;
use crate::digest::Digest;
use crate::read::{Asked, Reading, Step};
use crate::verdict::{BATCHES, Clause, READ, WAIT, WHOLE};

/// A batch of several rows has at most this many times the requested bytes.
const TIMES: usize = 4;
/// One answer of a server or one block of a file may be one batch, up to this many bytes.
const UNDIVIDED: usize = 64 << 10;
/// Bytes on top for each column, because its buffers are padded.
const PADDING: usize = 256;

/// In the host's words about a checkpoint that nobody asked for; everything else that it finds broken
/// is a batch or a schema.
const UNASKED: &str = "a checkpoint in a read";

/// The result of a whole read.
pub(crate) struct Whole {
    /// All rows.
    pub rows: Digest,
    pub batches: u64,
    /// Of all batches.
    pub bytes: usize,
    /// The rows of the first batch.
    pub first_rows: u64,
    /// The requested size of a batch, in bytes.
    pub asked_bytes: u32,
    /// The longest text or binary value: its bytes, and its column.
    pub longest: Option<(usize, String)>,
    /// The schema is not the discovered one.
    pub wrong_schema: Option<String>,
    /// A batch is not valid.
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
        Self::of(subject, &Asked::whole(stream), Some(stream))
    }

    /// Reads the request; compares its schema with the schema of `discovered`.
    pub fn of(
        subject: &Subject<'_>,
        asked: &Asked,
        discovered: Option<&Stream>,
    ) -> Result<Self, Trouble> {
        subject
            .bench
            .patiently(|| Self::once(subject, asked, discovered))
    }

    fn once(
        subject: &Subject<'_>,
        asked: &Asked,
        discovered: Option<&Stream>,
    ) -> Result<Self, Trouble> {
        let mut reading = subject.begin(asked)?;
        let schema = reading.schema().clone();
        let mut whole = Self {
            wrong_schema: discovered.and_then(|stream| differs(stream, &schema)),
            rows: Digest::default(),
            batches: 0,
            bytes: 0,
            first_rows: 0,
            asked_bytes: asked.batch_bytes,
            longest: None,
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
                if self.batches == 0 {
                    self.first_rows = batch.num_rows() as u64;
                }
                self.batches += 1;
                self.bytes += bytes;
                if self.too_large.is_none() {
                    self.too_large = too_large(&batch, bytes, self.asked_bytes);
                }
                self.longest = self.longest.take().max(longest(&batch));
                self.wrong_batch = self.rows.add(&batch).err();
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

/// Whether a batch is far above what was asked for. One row may have brought it there, wherever it stands: a
/// source that takes a page of rows cannot divide the row that is large.
fn too_large(batch: &RecordBatch, bytes: usize, asked: u32) -> Option<String> {
    let rows = batch.num_rows();
    if rows < 2 || bytes <= TIMES * asked as usize {
        return None;
    }
    let len = |batch: &RecordBatch| {
        let encoder = ipc::Encoder::new(batch.schema_ref());
        let message = encoder.and_then(|mut encoder| encoder.encode(batch));
        message.map_or(0, |message| message.len())
    };
    let headers = len(&batch.slice(0, 0)) + PADDING * batch.num_columns();
    // The half that has more, again and again, ends at the row that outweighs the others.
    let (mut at, mut count) = (0, rows);
    while count > 1 {
        let half = count / 2;
        let (first, second) = (batch.slice(at, half), batch.slice(at + half, count - half));
        (at, count) = match len(&first) > len(&second) {
            true => (at, half),
            false => (at + half, count - half),
        };
    }
    let others = len(&batch.slice(0, at)) + len(&batch.slice(at + 1, rows - at - 1));
    (others > (TIMES * asked as usize).max(UNDIVIDED) + 2 * headers)
        .then(|| format!("a batch of {bytes} bytes with {rows} rows, asked for {asked}"))
}

/// The longest text or binary value, with its column.
fn longest(batch: &RecordBatch) -> Option<(usize, String)> {
    fn most(lens: impl Iterator<Item = Option<usize>>) -> usize {
        lens.flatten().max().unwrap_or(0)
    }
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let lens = columns.filter_map(|(field, array)| {
        let len = match array.data_type() {
            DataType::Utf8 => most(array.as_string::<i32>().iter().map(|v| v.map(str::len))),
            DataType::LargeUtf8 => most(array.as_string::<i64>().iter().map(|v| v.map(str::len))),
            DataType::Binary => most(array.as_binary::<i32>().iter().map(|v| v.map(<[u8]>::len))),
            DataType::LargeBinary => {
                most(array.as_binary::<i64>().iter().map(|v| v.map(<[u8]>::len)))
            }
            _ => return None,
        };
        Some((len, field.name().clone()))
    });
    lens.max()
}

/// The unexpected event behind the end, if there is one; an error is as good as another end.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};

    use super::*;

    fn batch(lens: &[usize]) -> (RecordBatch, usize) {
        let texts = lens.iter().map(|len| Some("x".repeat(*len)));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let batch = RecordBatch::try_from_iter([("t", texts)]).unwrap();
        let mut encoder = ipc::Encoder::new(batch.schema_ref()).unwrap();
        let bytes = encoder.encode(&batch).unwrap().len();
        (batch, bytes)
    }

    #[test]
    fn one_large_row_makes_no_batch_too_large_wherever_it_stands() {
        const ASKED: u32 = 4 << 10;
        const LARGE: usize = 1 << 20;
        let wrong = |lens: &[usize]| {
            let (batch, bytes) = batch(lens);
            too_large(&batch, bytes, ASKED)
        };
        for lens in [
            &[LARGE, 10][..],
            &[10, LARGE],
            &[10, 10, LARGE, 10],
            &[LARGE],
        ] {
            assert_eq!(wrong(lens), None, "{lens:?}");
        }
        for lens in [&[LARGE, LARGE][..], &[LARGE, 10, LARGE], &[200; 5000]] {
            assert!(wrong(lens).is_some(), "{lens:?}");
        }
    }
}

//! Clauses about sizes: of batches, and of records.

use rapidbyte_runtime::{ErrorKind, Stream};
use rapidbyte_wire::counted;

use super::Subject;
use super::whole::Whole;
use crate::bench::Trouble;
use crate::read::Asked;
use crate::verdict::*;

/// The small sizes that are asked for lie between these, in bytes: a run asks for no less.
const SMALLEST: u32 = 4 << 10;
const SMALL: u32 = 16 << 10;
/// A stream that is small itself is asked for batches of this part of it.
const PART: u32 = 16;
/// A value that is shorter, in bytes, says nothing of a limit.
const LONG_VALUE: usize = 32;

impl Subject<'_> {
    /// Every stream in small batches: read once, and looked at by two clauses.
    fn small(&self) -> Result<Vec<(&Stream, &Whole, &Whole)>, Verdict> {
        let ended = self.ended()?;
        let read = |(stream, whole): &(&Stream, &Whole)| {
            let part = u32::try_from(whole.bytes).unwrap_or(u32::MAX) / PART;
            let asked = Asked {
                batch_bytes: part.clamp(SMALLEST, SMALL),
                ..Asked::whole(stream)
            };
            Whole::of(self, &asked, None)
        };
        let all = self.small.get_or_init(|| ended.iter().map(read).collect());
        let mut small = Vec::new();
        for ((stream, whole), found) in ended.into_iter().zip(all) {
            let found = found
                .as_ref()
                .map_err(|trouble| trouble.blocks(&OTHER_BATCHES))?;
            small.push((stream, whole, found));
        }
        Ok(small)
    }

    pub(super) fn batch_bytes(&self) -> Judged {
        const ACTION: &str = "end a batch when it has about read-request.batch-bytes";
        let mut detail = vec![self.all(|whole| whole.too_large.clone(), ACTION)?];
        for (stream, _, found) in self.small()? {
            if let Some(seen) = &found.too_large {
                return Err(fail(format!("stream {:?}: {seen}", stream.name), ACTION));
            }
            detail.push(format!("{} of {} bytes", found.batches, found.asked_bytes));
        }
        Ok(detail.join(", "))
    }

    /// Faults between two batches show when the batches end elsewhere.
    pub(super) fn other_batches(&self) -> Judged {
        const ACTION: &str = "let rows not depend on where a batch ends: look at the last row of a batch, \
                              at a last batch that is full, and at NULLs behind the first batch";
        self.repeated()?;
        self.repeats.set(Err(&OTHER_BATCHES));
        // The clause does not change the result of `ended`.
        let ended = self.ended()?;
        for (stream, whole) in &ended {
            let found = self
                .small_of(stream)
                .ok_or_else(|| skip("see batch-bytes"))?;
            let found = found.as_ref().map_err(|trouble| trouble.fails(ACTION))?;
            self.same_batches(stream, whole, found, ACTION)?;
            let Some(batch_bytes) = even(found) else {
                continue;
            };
            let asked = Asked {
                batch_bytes,
                ..Asked::whole(stream)
            };
            let even = Whole::of(self, &asked, None).map_err(|trouble| trouble.fails(ACTION))?;
            self.same_batches(stream, whole, &even, ACTION)?;
        }
        self.repeats.set(Ok(()));
        Ok(counted(ended.len(), "stream"))
    }

    fn small_of(&self, stream: &Stream) -> Option<&Result<Whole, Trouble>> {
        let _ = self.small();
        let ended = self.ended().ok()?;
        let at = ended
            .iter()
            .position(|(other, _)| other.name == stream.name)?;
        self.small.get()?.get(at)
    }

    fn same_batches(
        &self,
        stream: &Stream,
        whole: &Whole,
        found: &Whole,
        action: &str,
    ) -> Result<(), Verdict> {
        let name = &stream.name;
        if let Some(seen) = &found.wrong_batch {
            return Err(fail(format!("stream {name:?}: {seen}"), action));
        }
        if found.rows == whole.rows {
            return Ok(());
        }
        let batch_bytes = found.asked_bytes;
        let asked = Asked {
            batch_bytes,
            ..Asked::whole(stream)
        };
        let again = self.keep(&asked).map_err(|trouble| trouble.fails(action))?;
        let text = self.told(stream, |_| true, &again);
        Err(fail(
            format!(
                "stream {name:?}, in batches of {batch_bytes} bytes in place of {}: {text}",
                whole.asked_bytes
            ),
            action,
        ))
    }

    pub(super) fn max_record(&self) -> Judged {
        const ACTION: &str = "refuse a record above read-request.max-record-bytes with an error of kind data, \
                              or give it whole";
        let mut detail = Vec::new();
        for (stream, whole) in self.repeated()? {
            let Some((bytes, column)) = &whole.longest else {
                continue;
            };
            if *bytes < LONG_VALUE {
                continue;
            }
            let limit = *bytes as u64 / 2;
            let asked = Asked {
                max_record_bytes: limit,
                ..Asked::whole(stream)
            };
            let seen = |text: String| {
                format!(
                    "stream {:?}, with a value of {bytes} bytes in column {column:?} and a limit of \
                     {limit}: {text}",
                    stream.name
                )
            };
            match self.keep(&asked) {
                Ok(found) if found.digest == whole.rows => {
                    detail.push(format!("{bytes} bytes came whole"));
                }
                Ok(found) => {
                    let text = self.told(stream, |_| true, &found);
                    return Err(fail(seen(text), ACTION));
                }
                Err(Trouble::Error(_, error))
                    if matches!(
                        error.kind,
                        ErrorKind::Data | ErrorKind::Schema | ErrorKind::Config
                    ) =>
                {
                    detail.push(error.code);
                }
                Err(trouble) => return Err(trouble.fails(ACTION)),
            }
        }
        match detail.is_empty() {
            true => Err(skip(format!(
                "needs a stream with a text or binary value of {LONG_VALUE} bytes"
            ))),
            false => Ok(detail.join(", ")),
        }
    }
}

/// A size with which the last batch is as full as the others, going by the rows of the first one.
fn even(found: &Whole) -> Option<u32> {
    let (all, first) = (found.rows.rows, found.first_rows);
    if first == 0 || first >= all || all % first == 0 {
        return None;
    }
    let rows = (1..first).rev().find(|rows| all % rows == 0)?;
    let bytes = (u64::from(found.asked_bytes) * rows).div_ceil(first);
    u32::try_from(bytes).ok().filter(|bytes| *bytes >= SMALLEST)
}

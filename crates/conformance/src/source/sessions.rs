//! Clauses about sessions: a worker of a run keeps one for its next stream, and joins the moment that
//! another one fixed.

use rapidbyte_runtime::{Source, Stream};
use rapidbyte_wire::counted;

use super::Subject;
use super::kept::Kept;
use crate::bench::{Reach, Trouble};
use crate::read::{Asked, Reading};
use crate::verdict::*;

impl Subject<'_> {
    pub(super) fn session(&self) -> Judged {
        let streams = self.repeated()?;
        let mut detail = Vec::new();
        for (at, (stream, _)) in streams.iter().enumerate() {
            let (next, _) = streams[(at + 1) % streams.len()];
            match self.one_after_the_other(stream, next)? {
                true => detail.push(format!("{}, {}", stream.name, next.name)),
                false => {
                    return Err(skip(
                        "no session is kept: it holds too much memory at the end",
                    ));
                }
            }
        }
        Ok(detail.join("; "))
    }

    /// Reads `first`, the same in part, and `next` in one session; false if it could not be kept.
    fn one_after_the_other(&self, first: &Stream, next: &Stream) -> Result<bool, Verdict> {
        const ACTION: &str = "begin each read from what it asks for alone: keep no place, columns or \
                              rows of an earlier one in the session";
        let whole = Asked::whole(first);
        let columns: Vec<String> = self.columns_of(first).into_iter().rev().collect();
        let part = Asked {
            columns: Some(columns.into_iter().take(1).collect()),
            ..whole.clone()
        };
        let mut reads = vec![(first, whole)];
        // A stream without columns cannot be read in part.
        if part.columns.iter().flatten().next().is_some() {
            reads.push((first, part));
        }
        reads.push((next, Asked::whole(next)));
        let mut before = None;
        let done = self.bench.patiently(|| {
            before = None;
            let mut source = Some(self.open()?);
            let mut found = Vec::new();
            for (stream, asked) in &reads {
                let Some(session) = source.take() else {
                    return Ok(None);
                };
                let mut reading = Reading::begin(self.bench, session, asked)?;
                found.push(Kept::read(&mut reading)?);
                before = Some(stream.name.clone());
                source = reading.finish();
            }
            Ok(Some(found))
        });
        let found = match (done, before) {
            (Ok(None), _) => return Ok(false),
            (Ok(Some(found)), _) => found,
            (Err(trouble), None) => return Err(trouble.blocks(&READ)),
            (Err(trouble), Some(before)) => {
                return Err(match trouble.fails(ACTION) {
                    Verdict::Fail { seen, action } => fail(
                        format!("in a session that has read {before:?}: {seen}"),
                        action,
                    ),
                    other => other,
                });
            }
        };
        for ((stream, asked), found) in reads.iter().zip(&found) {
            let expected = self.keep(asked).map_err(|trouble| trouble.blocks(&READ))?;
            let text = if expected.schema.fields() != found.schema.fields() {
                format!(
                    "columns {} came for {}",
                    found.names().join(", "),
                    expected.names().join(", ")
                )
            } else if expected.digest != found.digest {
                expected.difference(|_| true, found)
            } else {
                continue;
            };
            let text = format!(
                "stream {:?}, in a session that has read {:?}: {text}",
                stream.name, first.name
            );
            return Err(fail(text, ACTION));
        }
        Ok(true)
    }

    fn open(&self) -> Result<Source, Trouble> {
        let config = self.bench.config().cloned().unwrap_or_default();
        self.bench.source(&config, Reach::Granted)
    }

    pub(super) fn snapshot(&self) -> Judged {
        const ACTION: &str =
            "let what snapshot gives say to every session of these settings what is read";
        let streams = self.repeated()?;
        let selections: Vec<_> = streams
            .iter()
            .map(|(stream, _)| Asked::whole(stream).selection())
            .collect();
        let found = self.bench.patiently(|| {
            let mut holder = self.open()?;
            let snapshot = self.bench.note(holder.snapshot(&selections))?;
            let mut found = Vec::new();
            for (stream, _) in &streams {
                let asked = Asked::whole(stream);
                let mut reading =
                    Reading::begin_at(self.bench, self.open()?, &asked, snapshot.clone())?;
                found.push(Kept::read(&mut reading)?);
            }
            Ok(found)
        });
        let found = found.map_err(|trouble| match trouble.fails(ACTION) {
            Verdict::Fail { seen, action } => fail(
                format!("with the snapshot of another session: {seen}"),
                action,
            ),
            other => other,
        })?;
        for ((stream, whole), found) in streams.iter().zip(&found) {
            if found.digest != whole.rows {
                let text = self.told(stream, |_| true, found);
                let text = format!(
                    "stream {:?}, with the snapshot of another session: {text}",
                    stream.name
                );
                return Err(fail(text, ACTION));
            }
        }
        Ok(counted(streams.len(), "stream"))
    }
}

//! Clauses about where an incremental read begins, and what it may be asked for beside.

use rapidbyte_runtime::{ErrorKind, Increment, LateRows, Stream};
use serde_json::Value;

use super::chosen::{is_refused, middle};
use super::increment::{Checkpoint, Followed, Increments};
use crate::bench::Trouble;
use crate::read::Asked;
use crate::verdict::*;

/// A text that is not a value of any integer column, and not a lag.
const NO_VALUE: &str = "conformance: no such value";

impl Increments<'_, '_> {
    /// The followed streams, where checkpoints and cursors are known to be good.
    fn sound(&self) -> Result<Vec<(&Stream, &Followed)>, Verdict> {
        self.subject.repeated()?;
        let mut sound = Vec::new();
        for followed in self.followed()? {
            let followed = followed
                .as_ref()
                .map_err(|trouble| trouble.blocks(&CHECKPOINTS))?;
            let streams = self.subject.repeated()?.into_iter();
            let mut streams = streams.filter(|(stream, _)| stream.name == followed.stream);
            if let Some((stream, _)) = streams.next() {
                sound.push((stream, followed));
            }
        }
        match self.holds.get() {
            Ok(()) => Ok(sound),
            Err(clause) => Err(skip(format!("see {}", clause.id))),
        }
    }

    pub fn cursor_columns(&self) -> Judged {
        const ACTION: &str = "give the columns of read-request.columns alone: a cursor field that is not among \
                              them is read for the checkpoints only";
        let mut detail = Vec::new();
        let sound = self.sound()?;
        self.subject
            .has_columns
            .get()
            .map_err(|clause| skip(format!("see {}", clause.id)))?;
        for (stream, followed) in sound {
            let field = followed.field();
            let names = self.subject.columns_of(stream).into_iter();
            let Some(name) = names.rev().find(|name| name != field) else {
                continue;
            };
            let asked = Asked {
                columns: Some(vec![name.clone()]),
                ..followed.asked.clone()
            };
            let failed = |seen: String| {
                let text = format!("stream {:?}, column {name:?} alone: {seen}", stream.name);
                fail(text, ACTION)
            };
            let found = self.subject.keep(&asked);
            let found = found.map_err(|trouble| match trouble.fails(ACTION) {
                Verdict::Fail { seen, .. } => failed(seen),
                other => other,
            })?;
            if found.names() != [name.clone()] {
                return Err(failed(format!("came {}", found.names().join(", "))));
            }
            let whole = self.subject.keep_whole(stream);
            let whole = whole.map_err(|trouble| trouble.blocks(&READ))?;
            let expected = whole.digest_of(&found.names(), |_| true);
            if found.digest != expected.map_err(|trouble| trouble.blocks(&BATCHES))? {
                return Err(failed(whole.difference(|_| true, &found)));
            }
            detail.push(format!("{} without {field}", stream.name));
        }
        match detail.is_empty() {
            true => Err(skip("needs a stream with a column beside its cursor field")),
            false => Ok(detail.join(", ")),
        }
    }

    pub fn initial(&self) -> Judged {
        const ACTION: &str = "without a cursor begin with the rows that have increment.initial, with a cursor behind \
                              the cursor; refuse a value that the column cannot have, kind config, schema or data";
        let mut detail = Vec::new();
        for (stream, followed) in self.sound()? {
            let field = followed.field();
            let whole = self.subject.keep_whole(stream);
            let whole = whole.map_err(|trouble| trouble.blocks(&READ))?;
            let Some(values) = whole.integers(field) else {
                continue;
            };
            let Some(first) = middle(&values) else {
                continue;
            };
            let failed = |initial: &str, seen: String| {
                let text = format!(
                    "stream {:?}, {field} from {initial} on: {seen}",
                    stream.name
                );
                fail(text, ACTION)
            };
            let asked = |initial: &str| {
                followed.with(|increment| {
                    increment.initial = Some(vec![initial.to_owned()]);
                })
            };
            let text = first.to_string();
            let found = self.subject.keep(&asked(&text));
            let found = found.map_err(|trouble| trouble.fails(ACTION))?;
            let is_meant = |row: usize| values.get(row).is_some_and(|value| *value >= first);
            let is_behind = |row: usize| values.get(row).is_some_and(|value| *value > first);
            let broken = |trouble: Trouble| trouble.blocks(&BATCHES);
            let names = whole.names();
            let expected = whole.digest_of(&names, is_meant).map_err(broken)?;
            if found.digest != expected {
                let behind = whole.digest_of(&names, is_behind).map_err(broken)?;
                if found.digest == behind && self.subject.asks_over_http() {
                    return Err(skip(format!(
                        "stream {:?}, {field} from {text} on: all rows behind {text} came, and none with it. The \
                         server may answer rows after the value that it is asked for: test with one that answers \
                         rows from the value on",
                        stream.name
                    )));
                }
                return Err(failed(&text, whole.difference(is_meant, &found)));
            }
            self.after_cursor(followed, &values, &asked, &failed, ACTION)?;
            match self.subject.keep(&asked(NO_VALUE)) {
                Ok(found) => {
                    let rows = found.digest.rows;
                    return Err(failed(
                        &format!("{NO_VALUE:?}"),
                        format!("{rows} rows came, and no error"),
                    ));
                }
                Err(trouble) if is_refused(&trouble) => {}
                Err(trouble) => return Err(trouble.fails(ACTION)),
            }
            detail.push(format!(
                "{}: {} of {} rows",
                stream.name,
                found.digest.rows,
                values.len()
            ));
        }
        match detail.is_empty() {
            true => Err(skip(
                "needs a stream with different whole numbers, and no NULL, in its cursor field",
            )),
            false => Ok(detail.join(", ")),
        }
    }

    /// With a cursor the initial value says nothing any more.
    fn after_cursor(
        &self,
        followed: &Followed,
        values: &[i128],
        asked: &dyn Fn(&str) -> Asked,
        failed: &dyn Fn(&str, String) -> Verdict,
        action: &str,
    ) -> Result<(), Verdict> {
        let inner = followed.checkpoints.iter();
        let mut inner = inner.filter(|checkpoint| checkpoint.before.rows > 0);
        let (Some(checkpoint), Some(least)) = (inner.next(), values.iter().min()) else {
            return Ok(());
        };
        let initial = least.to_string();
        let asked = Asked {
            cursor: Some(checkpoint.cursor.clone()),
            ..asked(&initial)
        };
        let found = self.subject.keep(&asked);
        let found = found.map_err(|trouble| trouble.fails(action))?;
        if checkpoint.before.plus(found.digest) == followed.rows {
            return Ok(());
        }
        Err(failed(
            &initial,
            format!(
                "{} rows came behind a cursor with {} of {} rows before it",
                found.digest.rows, checkpoint.before.rows, followed.rows.rows
            ),
        ))
    }

    pub fn late_rows(&self) -> Judged {
        const LAG: &str = "refuse a lag that cannot be read, and any lag where there is none, with an error of kind \
                           config, schema or data before the first row";
        const EXACT: &str = "refuse late-rows.exact with an error of kind config before the first row; where it is \
                             known, mark its cursors, such as by \"exact\": true, and refuse those of an ordered read";
        let mut detail = Vec::new();
        let mut untold = None;
        for (stream, followed) in self.sound()? {
            let name = &stream.name;
            let lag = followed.with(|increment| {
                increment.late_rows = LateRows::Lag(Some(NO_VALUE.into()));
                increment.allow_duplicates = true;
            });
            match self.subject.keep(&lag) {
                Ok(found) => {
                    let rows = found.digest.rows;
                    let text = format!(
                        "stream {name:?}, a lag of {NO_VALUE:?}: {rows} rows came, and no error"
                    );
                    return Err(fail(text, LAG));
                }
                Err(trouble) if is_refused(&trouble) => {}
                Err(trouble) => return Err(trouble.fails(LAG)),
            }
            let exact = followed.with(|increment| increment.late_rows = LateRows::Exact);
            let found = match self.subject.keep(&exact) {
                Ok(found) => found,
                Err(Trouble::Error(_, error))
                    if matches!(
                        error.kind,
                        ErrorKind::Config | ErrorKind::Schema | ErrorKind::Auth
                    ) =>
                {
                    detail.push(format!("{name}: {}", error.code));
                    continue;
                }
                Err(trouble) => return Err(trouble.fails(EXACT)),
            };
            let failed =
                |seen: String| fail(format!("stream {name:?}, late-rows.exact: {seen}"), EXACT);
            let same = |checkpoint: &Checkpoint| Some(&checkpoint.cursor) == found.cursor.as_ref();
            if let Some(checkpoint) = followed.checkpoints.iter().find(|c| same(c))
                && followed.rows.rows > 0
            {
                let text = format!(
                    "it was taken, and its cursor {} is also that of a read in the order of {}",
                    super::increment::short(&checkpoint.cursor),
                    followed.field()
                );
                if is_position(checkpoint) {
                    untold.get_or_insert(format!(
                        "stream {name:?}, late-rows.exact: {text}. The cursor does not hold the value of that column: \
                         a log has one position for both, and a source that ignores exact has so too"
                    ));
                    continue;
                }
                return Err(failed(format!(
                    "{text}: it was ignored, or a run that changes from one to the other misses the rows that were \
                     committed late before"
                )));
            }
            // Rows that wait for a transaction of somebody else come with a later read.
            if found.digest.rows >= followed.rows.rows && found.digest != followed.rows {
                return Err(failed(self.subject.told(stream, |_| true, &found)));
            }
            detail.push(format!(
                "{name}: exact, {} of {} rows",
                found.digest.rows, followed.rows.rows
            ));
        }
        match untold {
            Some(text) => Err(skip(text)),
            None => Ok(detail.join(", ")),
        }
    }

    pub fn other_cursor(&self) -> Judged {
        const ACTION: &str = "let a cursor say of which stream it is, and refuse that of another one with an error of \
                              kind config, schema or data; or begin behind the value that it has";
        let sound = self.sound()?;
        if sound.len() < 2 {
            return Err(skip("needs two streams that are read incrementally"));
        }
        let mut detail = Vec::new();
        for (at, (other, given)) in sound.iter().enumerate() {
            let (stream, followed) = sound[(at + 1) % sound.len()];
            let whole = self.subject.keep_whole(stream);
            let whole = whole.map_err(|trouble| trouble.blocks(&READ))?;
            let values = whole.integers(followed.field());
            // A checkpoint near the middle of the stream's values tells the most.
            let aim = values.as_deref().and_then(middle).unwrap_or(0);
            let checkpoints = given.checkpoints.iter().filter(|c| c.greatest.is_some());
            let near =
                checkpoints.min_by_key(|c| c.greatest.map_or(i128::MAX, |v| (v - aim).abs()));
            let Some(checkpoint) = near.or(given.checkpoints.last()) else {
                continue;
            };
            let asked = Asked {
                cursor: Some(checkpoint.cursor.clone()),
                ..followed.asked.clone()
            };
            let found = match self.subject.keep(&asked) {
                Ok(found) => found,
                Err(Trouble::Error(_, error)) if is_refused(&Trouble::Error("", error.clone())) => {
                    detail.push(error.code);
                    continue;
                }
                Err(trouble) => return Err(trouble.fails(ACTION)),
            };
            let (Some(values), Some(behind)) = (values, checkpoint.greatest) else {
                return Err(skip(
                    "it was taken, and what lies behind it is known for whole numbers only",
                ));
            };
            // Rows with the cursor's own value may come or not.
            let came = found.integers(followed.field()).unwrap_or_default();
            let early = came.iter().find(|value| **value < behind);
            let expected = values.iter().filter(|value| **value > behind).count();
            let behind_it = came.iter().filter(|value| **value > behind).count();
            let text = match early {
                Some(early) => format!("a row with {} {early} came", followed.field()),
                None if behind_it != expected => {
                    format!("{behind_it} of {expected} rows behind it came")
                }
                None => {
                    detail.push(format!("{} behind {behind}", stream.name));
                    continue;
                }
            };
            let text = format!(
                "stream {:?}, with the cursor {} of {:?}, which stands behind {behind}: {text}",
                stream.name,
                super::increment::short(&checkpoint.cursor),
                other.name
            );
            return Err(fail(text, ACTION));
        }
        match detail.is_empty() {
            true => Err(skip("there is no checkpoint: see checkpoints")),
            false => Ok(detail.join(", ")),
        }
    }
}

/// Whether a cursor holds neither the greatest value of the cursor field before it nor the next one: then it is
/// a place that the source alone understands, such as in a log.
fn is_position(checkpoint: &Checkpoint) -> bool {
    fn holds(value: &Value, wanted: &[String]) -> bool {
        match value {
            Value::String(text) => wanted.contains(text),
            Value::Number(number) => wanted.contains(&number.to_string()),
            Value::Array(items) => items.iter().any(|item| holds(item, wanted)),
            Value::Object(keys) => keys.values().any(|value| holds(value, wanted)),
            Value::Null | Value::Bool(_) => false,
        }
    }
    let Some(greatest) = checkpoint.greatest else {
        return false;
    };
    let wanted = [greatest.to_string(), greatest.saturating_add(1).to_string()];
    let cursor = serde_json::from_str(&checkpoint.cursor);
    cursor.is_ok_and(|cursor| !holds(&cursor, &wanted))
}

impl Followed {
    /// The column by which it is read.
    fn field(&self) -> &str {
        let increment = self.asked.increment.as_ref();
        let field = increment.and_then(|increment| increment.cursor_fields.first());
        field.map_or("", String::as_str)
    }

    /// The same request with another increment.
    fn with(&self, change: impl FnOnce(&mut Increment)) -> Asked {
        let mut asked = self.asked.clone();
        if let Some(increment) = &mut asked.increment {
            change(increment);
        }
        asked
    }
}

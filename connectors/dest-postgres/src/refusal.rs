//! Which row and column the server means when it refuses a text.
//!
//! The server's message for a failed cast names neither. So the rows are cast again after the failure: half
//! of them, half of the half, until one row is left, then half of its columns. A load that does not fail
//! pays nothing for this.

use std::ops::Range;

use rapidbyte_pg::Column;
use rapidbyte_pg::cast::{self, Read};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;

/// The search returns to it after each cast that fails.
pub(crate) const SAVEPOINT: &str = "rapidbyte_cast";
/// Characters of a text that an error shows.
const MAX_TEXT_CHARS: usize = 100;
/// Classes of PostgreSQL's error codes that a cast of a text may raise: values, constraints of domains, names
/// (`regclass`), what is declared, limits, what is not supported.
const CAST_CLASSES: [&str; 6] = ["22", "23", "3F", "42", "54", "0A"];

/// Casts some of the rows again.
pub(crate) trait Trial {
    /// Casts these of the columns that are cast, of these rows. Gives the error where the server refuses a
    /// value. Errors: the connection's.
    fn cast(&mut self, rows: Range<u64>, casts: Range<usize>) -> Result<Option<Error>>;

    /// The first characters of a text; nothing for NULL.
    fn text(&mut self, row: u64, cast: usize) -> Result<Option<String>>;
}

/// A text that the server refuses.
struct Refused {
    row: u64,
    /// Its place among the columns that are cast.
    cast: usize,
    text: Option<String>,
    error: Error,
}

/// The columns of a load, and where its rows are in the stream.
#[derive(Clone, Copy)]
pub(crate) struct Casts<'a> {
    pub targets: &'a [Column],
    /// Places of the targets that the server reads from text.
    pub places: &'a [usize],
    /// The number in the stream of the row that a trial calls 0.
    pub first_row: u64,
}

impl Casts<'_> {
    /// True for an error of the server that a cast may have raised and that does not name its row.
    pub(crate) fn may_have_raised(&self, error: &Error) -> bool {
        let class = error
            .code
            .strip_prefix("pg_")
            .and_then(|code| code.get(..2));
        !self.places.is_empty()
            && class.is_some_and(|class| CAST_CLASSES.contains(&class))
            && cast::refusal(&error.message).is_none()
    }

    /// The error with the row, the column and the text that it is about. `trial` has these rows. Where no
    /// cast fails alone, the error of the server stays.
    pub(crate) fn located(&self, error: Error, trial: &mut impl Trial, rows: Range<u64>) -> Error {
        match first_refused(trial, rows, self.places.len()) {
            Ok(Some(refused)) => self.explained(refused),
            // No cast failed alone, or the connection has ended: the first error is the cause.
            Ok(None) | Err(_) => self.explained_alone(error),
        }
    }

    /// The error where the message itself names its place.
    pub(crate) fn explained_alone(&self, error: Error) -> Error {
        let Some(refused) = cast::refusal(&error.message) else {
            return error;
        };
        match self.targets.get(refused.place) {
            Some(column) => does_not_fit(refused.row, column, refused.text),
            None => error,
        }
    }

    fn explained(&self, refused: Refused) -> Error {
        let Refused {
            row,
            cast,
            text,
            error,
        } = refused;
        let place = self
            .places
            .get(cast)
            .and_then(|place| self.targets.get(*place));
        let Some(column) = place.filter(|_| cast::refusal(&error.message).is_none()) else {
            return self.explained_alone(error);
        };
        let (name, ty, row) = (&column.name, &column.type_text, row + self.first_row);
        if let Some(text) = &text
            && cast::is_astronomical(text, column)
        {
            return does_not_fit(row, column, text);
        }
        let value = match &text {
            Some(text) if text.chars().count() > MAX_TEXT_CHARS => {
                let shown: String = text.chars().take(MAX_TEXT_CHARS).collect();
                format!("the text {shown:?}… as {ty}")
            }
            Some(text) => format!("the text {text:?} as {ty}"),
            None => format!("NULL as {ty}"),
        };
        let said = format!(
            "row {row}, column {name:?}: the server refuses {value}: {}",
            error.message
        );
        // The server's one hint is about a setting of its own, which a session of ours fixes.
        let hint = error
            .hint
            .clone()
            .filter(|hint| !hint.contains("datestyle"));
        let hint = hint.unwrap_or_else(|| {
            "give the target's column another type (text holds it), or repair the value in the source; rejects \
             keeps such rows, and a type that is declared in the source may read it"
                .into()
        });
        Error::new(error.kind, &error.code, said)
            .hint(hint)
            .in_column(name)
    }
}

/// The server casts the text, or would, to a value that does not say the same.
fn does_not_fit(row: u64, column: &Column, text: &str) -> Error {
    let (name, ty) = (&column.name, &column.type_text);
    let said = format!("row {row}, column {name:?}: {ty} does not hold the text {text:?} as it is");
    let hint = match cast::is_astronomical(text, column) {
        true => {
            "the server does not read a year that has a sign or is zero: declare the column as a date or a \
             timestamp in the source's schema, which reads it, or convert the text in the source"
        }
        false => {
            "the server would cut, round, reinterpret or respell it: give the target's column another type (text \
             holds it), or convert the text in the source"
        }
    };
    Error::data("value_does_not_fit", said)
        .hint(hint)
        .in_column(name)
}

/// The error of a cast in the transaction that is open, which has [`SAVEPOINT`].
pub(crate) fn refused(client: &mut Client, asked: Result<()>) -> Result<Option<Error>> {
    let Err(error) = asked else {
        return Ok(None);
    };
    if !client.is_usable() {
        return Err(error);
    }
    client.execute(&format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}"))?;
    let class = error
        .code
        .strip_prefix("pg_")
        .and_then(|code| code.get(..2));
    match class.is_some_and(|class| CAST_CLASSES.contains(&class)) {
        true => Ok(Some(error)),
        false => Err(error),
    }
}

/// The first characters of a staged text, one more than an error shows.
pub(crate) fn shown(rows: &str, place: usize) -> String {
    format!("pg_catalog.left({rows}.c{place}, {})", MAX_TEXT_CHARS + 1)
}

/// Reads every text of the rows of `from`, which names them `alias`, and gives one row.
pub(crate) fn counted(alias: &str, from: &str, reads: &[Read]) -> String {
    let counted: Vec<String> = reads
        .iter()
        .map(|read| format!("pg_catalog.count({})", read.expression))
        .collect();
    let source = cast::source(alias, from, reads);
    format!("SELECT {} FROM {source}", counted.join(", "))
}

/// The first row that holds a text which the server refuses, and in it the first column.
fn first_refused(
    trial: &mut impl Trial,
    rows: Range<u64>,
    casts: usize,
) -> Result<Option<Refused>> {
    let row = halved(rows, &mut |rows| Ok(trial.cast(rows, 0..casts)?.is_some()))?;
    let Some(row) = row else {
        return Ok(None);
    };
    let column = halved(0..casts as u64, &mut |some| {
        let some = some.start as usize..some.end as usize;
        Ok(trial.cast(row..row + 1, some)?.is_some())
    })?;
    let Some(cast) = column.map(|column| column as usize) else {
        return Ok(None);
    };
    let Some(error) = trial.cast(row..row + 1, cast..cast + 1)? else {
        return Ok(None);
    };
    let text = trial.text(row, cast)?;
    Ok(Some(Refused {
        row,
        cast,
        text,
        error,
    }))
}

/// The first place in `all` at which `fails` is true of a range that holds it; 65 questions at most.
fn halved(
    all: Range<u64>,
    fails: &mut dyn FnMut(Range<u64>) -> Result<bool>,
) -> Result<Option<u64>> {
    if all.is_empty() || !fails(all.clone())? {
        return Ok(None);
    }
    let Range { mut start, mut end } = all;
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        match fails(start..middle)? {
            true => end = middle,
            false => start = middle,
        }
    }
    Ok(Some(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two columns; these cells are refused.
    struct Cells<'a>(&'a [(u64, usize)], usize);

    impl Trial for Cells<'_> {
        fn cast(&mut self, rows: Range<u64>, casts: Range<usize>) -> Result<Option<Error>> {
            self.1 += 1;
            let is_in = |(row, cast): &&(u64, usize)| rows.contains(row) && casts.contains(cast);
            let found = self.0.iter().find(is_in);
            Ok(found.map(|(row, cast)| Error::data("pg_22P02", format!("{row} {cast}"))))
        }

        fn text(&mut self, row: u64, cast: usize) -> Result<Option<String>> {
            Ok(Some(format!("t{row}{cast}")))
        }
    }

    #[test]
    fn the_first_refused_row_and_its_first_column_are_found_in_few_questions() {
        for (cells, expected) in [
            (&[][..], None),
            (&[(0, 0)], Some((0, 0))),
            (&[(9_999, 1)], Some((9_999, 1))),
            (&[(7, 1), (7, 0), (8, 0)], Some((7, 0))),
            (&[(8, 0), (7, 1)], Some((7, 1))),
        ] {
            let mut trial = Cells(cells, 0);
            let found = first_refused(&mut trial, 0..10_000, 2).unwrap();
            let place = found.as_ref().map(|found| (found.row, found.cast));
            assert_eq!(place, expected, "{cells:?}");
            assert!(trial.1 < 25, "{} questions", trial.1);
            if let Some(found) = found {
                let text = format!("t{}{}", found.row, found.cast);
                assert_eq!(found.text, Some(text));
            }
        }
        assert!(
            first_refused(&mut Cells(&[(0, 0)], 0), 3..3, 2)
                .unwrap()
                .is_none()
        );
    }
}

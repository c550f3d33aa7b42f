//! Deletes without change capture: the keys of the source are staged in a temporary table, and the rows of the target
//! whose keys are not among them are deleted or marked, in the transaction of the stream's last commit.
//!
//! The server alone compares keys, as in `upsert`. Rows of the target with NULL in a key stay: no row of the stream can
//! have such a key. A key that is there removes the mark of its row.

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::{BOOL, TIMESTAMP, TIMESTAMPTZ};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DeleteAction, Deletes, counted};

use crate::checkpoint::Key;
use crate::config::{Name, Settings};
use crate::look::TableFacts;
use crate::upsert::{Stage, count, raise_work_mem, run};

/// The temporary table of the source's keys, as they came.
pub(crate) const STAGED: &str = "pg_temp.rapidbyte_keys";
/// The same keys, read from text, if a column of the key is.
const READ: &str = "pg_temp.rapidbyte_read_keys";
/// The keys of the target that the source does not have.
const GONE: &str = "pg_temp.rapidbyte_gone_keys";
/// Parts of a whole share.
const WHOLE: u128 = 1_000_000;

/// How the rows of a table that is there are compared.
#[derive(Debug, Clone)]
pub(crate) struct Compare {
    /// The column that marks deleted rows. `None`: they are deleted.
    mark: Option<Mark>,
    /// In millionths.
    max_share: u32,
}

/// The column that marks deleted rows.
#[derive(Debug, Clone)]
struct Mark {
    /// Quoted.
    column: String,
    kind: MarkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkKind {
    Flag,
    Time,
    /// Without a time zone: in UTC.
    LocalTime,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compared {
    /// Rows that were deleted or marked.
    pub(crate) rows: u64,
    /// All rows of the table are gone.
    pub(crate) is_empty: bool,
}

/// Whether rows may be deleted because the source does not have their keys.
pub(crate) fn removes(target: &Target) -> bool {
    let action = target.deletes.as_ref().map(|deletes| &deletes.action);
    matches!(action, Some(DeleteAction::Delete))
}

/// The column that marks deleted rows.
pub(crate) fn mark_column(target: &Target) -> Option<&String> {
    match &target.deletes.as_ref()?.action {
        DeleteAction::Mark(column) => Some(column),
        DeleteAction::Delete => None,
    }
}

/// For a table that is about to be made: the statement that adds the column of marks. Says in `notes` what the run does.
pub(crate) fn fresh(target: &Target, name: &Name, notes: &mut Vec<String>) -> Option<String> {
    notes.push(note(target.deletes.as_ref()?));
    let column = quote_ident(mark_column(target)?);
    Some(format!(
        "ALTER TABLE {name} ADD COLUMN {column} {}",
        TIMESTAMPTZ.sql
    ))
}

/// For a table that is there. Says in `notes` what the run does. Errors: `deletes_not_possible`.
pub(crate) fn existing(
    target: &Target,
    name: &Name,
    columns: &[Column],
    table: &TableFacts,
    notes: &mut Vec<String>,
) -> Result<Option<Compare>> {
    let Some(deletes) = &target.deletes else {
        return Ok(None);
    };
    let mark = mark_column(target);
    let mark = mark.map(|column| Mark::of(column, name, columns));
    notes.push(note(deletes));
    if removes(target) && target.deleted_field.is_none() && !table.cascading_keys.is_empty() {
        notes.push(cascade_note(table));
    }
    Ok(Some(Compare {
        mark: mark.transpose()?,
        max_share: deletes.max_share,
    }))
}

/// Foreign keys by which rows of other tables change with the rows that are deleted.
pub(crate) fn cascade_note(table: &TableFacts) -> String {
    format!(
        "deleting rows deletes or changes rows in other tables through the foreign keys {}",
        table.cascading_keys.join(", ")
    )
}

fn note(deletes: &Deletes) -> String {
    let does = match &deletes.action {
        DeleteAction::Delete => "deletes the rows whose keys it does not have".to_owned(),
        DeleteAction::Mark(column) => format!(
            "marks the rows whose keys it does not have in {}",
            quote_ident(column)
        ),
    };
    format!(
        "the last commit compares all keys of the table with those of the source and {does}, whoever wrote them; it \
         refuses more than {} of the rows",
        percent(deletes.max_share)
    )
}

/// `10 %`, of millionths.
fn percent(share: u32) -> String {
    let text = format!("{}.{:04}", share / 10_000, share % 10_000);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

fn refused(name: &Name, what: &str, hint: impl std::fmt::Display) -> Error {
    let text = format!("{name} cannot mark deleted rows: {what}");
    Error::schema("deletes_not_possible", text).hint(hint.to_string())
}

impl Compare {
    /// The condition that a row `t` is not marked as deleted, if rows are marked.
    pub(crate) fn is_living(&self) -> Option<String> {
        self.mark.as_ref().map(Mark::is_absent)
    }
}

impl Mark {
    fn of(column: &str, name: &Name, columns: &[Column]) -> Result<Self> {
        let quoted = quote_ident(column);
        let Some(found) = columns.iter().find(|found| found.name == *column) else {
            let what = format!("it has no column {quoted}");
            let add = format!(
                "run on the target: ALTER TABLE {name} ADD COLUMN {quoted} {}",
                TIMESTAMPTZ.sql
            );
            return Err(refused(name, &what, add).in_column(column));
        };
        let oid = found.stripped().0.oid;
        let kinds = [
            (BOOL.oid, MarkKind::Flag),
            (TIMESTAMPTZ.oid, MarkKind::Time),
            (TIMESTAMP.oid, MarkKind::LocalTime),
        ];
        let kind = kinds.into_iter().find(|(known, _)| *known == oid);
        let Some((_, kind)) = kind.filter(|_| !found.is_computed()) else {
            let what = format!("{quoted} of type {} cannot hold a mark", found.type_text);
            let hint = "name a column of type timestamp with time zone, timestamp or boolean that \
                 the server does not compute";
            return Err(refused(name, &what, hint).in_column(column));
        };
        if found.not_null && kind != MarkKind::Flag {
            let what = format!("{quoted} is NOT NULL, and rows that are not deleted have NULL");
            let drop = format!(
                "run on the target: ALTER TABLE {name} ALTER COLUMN {quoted} DROP NOT NULL"
            );
            return Err(refused(name, &what, drop).in_column(column));
        }
        Ok(Self {
            column: quoted,
            kind,
        })
    }

    /// The condition that a row `t` is not marked.
    fn is_absent(&self) -> String {
        match self.kind {
            MarkKind::Flag => format!("t.{} IS NOT TRUE", self.column),
            MarkKind::Time | MarkKind::LocalTime => format!("t.{} IS NULL", self.column),
        }
    }

    fn set(&self) -> &'static str {
        match self.kind {
            MarkKind::Flag => "true",
            MarkKind::Time => "pg_catalog.now()",
            MarkKind::LocalTime => "(pg_catalog.now() AT TIME ZONE 'UTC')",
        }
    }

    fn unset(&self) -> &'static str {
        match self.kind {
            MarkKind::Flag => "false",
            MarkKind::Time | MarkKind::LocalTime => "NULL",
        }
    }
}

/// One comparison, in the open transaction of the last commit.
pub(crate) struct Comparison<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) settings: &'a Settings,
    pub(crate) name: &'a Name,
    /// The row of this stream in the table of checkpoints.
    pub(crate) checkpoint: &'a Key,
    /// Has the keys of the source.
    pub(crate) stage: &'a Stage,
    /// The number of these keys.
    pub(crate) keys: u64,
    /// The answer of [`Compare::count`] before the rows of this commit.
    pub(crate) rows_before: Option<u64>,
}

impl Compare {
    /// The rows of the table that are not marked, if their number limits the rows that are deleted.
    pub(crate) fn count(&self, client: &mut Client, name: &Name) -> Result<Option<u64>> {
        if u128::from(self.max_share) >= WHOLE {
            return Ok(None);
        }
        let living = self.mark.as_ref().map(Mark::is_absent);
        let living = living.map(|condition| format!(" WHERE {condition}"));
        let all = format!(
            "SELECT count(*) FROM {name} AS t{}",
            living.unwrap_or_default()
        );
        count(client, &all).map(Some)
    }
}

impl Comparison<'_> {
    /// Deletes or marks the rows whose keys did not come. Errors: `mass_delete`; `target_has_other_writer`; `rows_kept`; the
    /// server's.
    pub(crate) fn apply(mut self, compare: &Compare) -> Result<Compared> {
        let keys = self.keys()?;
        failpoint("dest-postgres.keys_staged")?;
        let gone = self.find_gone(compare, keys)?;
        // The rows of another pipeline that are among them were committed before. Its row is there, too.
        self.checkpoint.refuse_others(self.client)?;
        if let Some(mark) = &compare.mark {
            self.unmark(mark, keys)?;
        }
        if gone == 0 {
            return Ok(Compared::default());
        }
        self.refuse_mass(compare, gone)?;
        let rows = self.act(compare, gone)?;
        failpoint("dest-postgres.compared")?;
        let name = self.name;
        let is_empty = compare.mark.is_none()
            && count(
                self.client,
                &format!("SELECT count(*) FROM (SELECT FROM {name} LIMIT 1) AS t"),
            )? == 0;
        Ok(Compared { rows, is_empty })
    }

    /// The table of keys to compare with. Texts are read once: the planner could not join by a cast otherwise.
    fn keys(&mut self) -> Result<&'static str> {
        let mut keys = STAGED;
        if self.stage.has_casts() {
            let read = self.stage.read();
            keys = READ;
            let table = in_session(READ);
            let make = format!(
                "CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT s.* FROM {read} AS s"
            );
            run(self.client, self.settings, &make)?;
        }
        let analyze = format!("{}; ANALYZE {keys}", raise_work_mem());
        self.client.simple_query(&analyze)?;
        Ok(keys)
    }

    /// Stages the keys of the rows that the source does not have, and counts them.
    fn find_gone(&mut self, compare: &Compare, keys: &str) -> Result<u64> {
        let (name, table) = (self.name, in_session(GONE));
        let columns: Vec<String> = self
            .key_columns()
            .map(|(at, column)| format!("{column} AS c{at}"))
            .collect();
        let has_key = self
            .key_columns()
            .map(|(_, column)| format!("{column} IS NOT NULL"));
        let is_living = compare.mark.iter().map(Mark::is_absent);
        let conditions: Vec<String> = has_key.chain(is_living).collect();
        let make = format!(
            "CREATE TEMPORARY TABLE {table} ON COMMIT DROP AS SELECT {} FROM {name} AS t WHERE {} AND NOT EXISTS \
             (SELECT FROM {keys} AS s WHERE {})",
            columns.join(", "),
            conditions.join(" AND "),
            self.stage.same_key()
        );
        let gone = run(self.client, self.settings, &make)?;
        self.client.simple_query(&format!("ANALYZE {GONE}"))?;
        Ok(gone)
    }

    /// The columns of the key of a row `t`, by their places among the keys.
    fn key_columns(&self) -> impl Iterator<Item = (usize, String)> {
        let columns = self.stage.key_names().into_iter().enumerate();
        columns.map(|(at, column)| (at, format!("t.{}", quote_ident(&column))))
    }

    /// Errors: `mass_delete`.
    fn refuse_mass(&mut self, compare: &Compare, gone: u64) -> Result<()> {
        let name = self.name;
        let Some(rows) = self.rows_before else {
            return Ok(());
        };
        let most = most_rows(compare.max_share, rows);
        let (before, after) = match &compare.mark {
            Some(_) => ("mark", " as deleted"),
            None => ("delete", ""),
        };
        let share = percent(compare.max_share);
        let text = if self.keys == 0 {
            format!(
                "the source has no row of the stream, and the run would {before} all {} of {name}{after}",
                counted(gone, "row")
            )
        } else if gone > most {
            format!(
                "the source does not have the keys of {gone} of the {} of {name}, and the run would {before} them{after}; \
                 deletes.max_share allows {share}, which is {}",
                counted(rows, "row"),
                counted(most, "row")
            )
        } else {
            return Ok(());
        };
        Err(Error::data("mass_delete", text).hint(
            "check the source: is it the right one, and complete? If the rows are meant to go, raise deletes.max_share \
             for one run (1 allows all rows)",
        ))
    }

    /// Deletes or marks the rows that are gone.
    fn act(&mut self, compare: &Compare, gone: u64) -> Result<u64> {
        let (name, same) = (self.name, self.stage.same_key());
        let (sql, left) = match &compare.mark {
            None => (
                format!("DELETE FROM {name} AS t USING {GONE} AS s WHERE {same}"),
                String::new(),
            ),
            Some(mark) => {
                let (column, set, living) = (&mark.column, mark.set(), mark.is_absent());
                (
                    format!(
                        "UPDATE {name} AS t SET {column} = {set} FROM {GONE} AS s WHERE {same} AND {living}"
                    ),
                    format!(" AND {living}"),
                )
            }
        };
        let done =
            run(self.client, self.settings, &sql).map_err(|error| referenced(error, name))?;
        // Another session may have deleted rows in the meantime. A trigger may have kept rows, or taken marks away.
        if done != gone || compare.mark.is_some() {
            let kept = format!("SELECT count(*) FROM {name} AS t, {GONE} AS s WHERE {same}{left}");
            if count(self.client, &kept)? > 0 {
                let text = match &compare.mark {
                    None => format!("deleted rows of {name} are still there"),
                    Some(mark) => format!("rows of {name} have no mark in {} yet", mark.column),
                };
                return Err(Error::schema("rows_kept", text).hint(
                    "drop the BEFORE trigger that keeps the rows as they are, or write to another table",
                ));
            }
        }
        Ok(done)
    }

    /// Removes the marks of rows whose keys the source has again, also of rows that this run did not read.
    fn unmark(&mut self, mark: &Mark, keys: &str) -> Result<()> {
        let (name, same) = (self.name, self.stage.same_key());
        let is_marked = format!("NOT ({})", mark.is_absent());
        let back = format!(
            "UPDATE {name} AS t SET {} = {} WHERE {is_marked} AND EXISTS (SELECT FROM {keys} AS s WHERE {same})",
            mark.column,
            mark.unset()
        );
        let back = run(self.client, self.settings, &back)?;
        if back > 0 {
            log::info(format!(
                "the source has the keys of {} of {name} again, which lost their mark",
                counted(back, "marked row")
            ));
        }
        Ok(())
    }
}

/// The most rows that a run may delete or mark: the share of all rows, rounded up.
fn most_rows(share: u32, rows: u64) -> u64 {
    let parts = u128::from(share) * u128::from(rows);
    u64::try_from(parts.div_ceil(WHOLE)).unwrap_or(u64::MAX)
}

/// The name of a temporary table in the statement that makes it.
fn in_session(table: &str) -> &str {
    table.trim_start_matches("pg_temp.")
}

/// Rows of other tables that refer to a row which the source has deleted.
fn referenced(error: Error, name: &Name) -> Error {
    if !matches!(error.code.as_str(), "pg_23503" | "pg_23001") {
        return error;
    }
    error.hint(format!(
        "rows of another table refer to rows of {name} that the source has deleted: let the same run delete those \
         rows first, make the foreign key ON DELETE CASCADE or DEFERRABLE, or keep the rows with action: mark"
    ))
}

#[cfg(test)]
mod tests {
    use super::{most_rows, percent};

    #[test]
    fn the_share_of_the_rows_is_rounded_up_and_exact() {
        for (share, rows, most) in [
            (100_000, 0, 0),
            (100_000, 1, 1),
            (100_000, 10, 1),
            (100_000, 11, 2),
            (100_000, 30, 3),
            (0, 1_000_000, 0),
            (1, 1_000_001, 2),
            (1_000_000, 7, 7),
        ] {
            assert_eq!(most_rows(share, rows), most, "{share} of {rows}");
        }
        assert!(most_rows(999_999, u64::MAX) < u64::MAX);
    }

    #[test]
    fn a_share_is_shown_without_zeros_behind() {
        for (share, shown) in [
            (100_000, "10 %"),
            (1_000_000, "100 %"),
            (0, "0 %"),
            (1, "0.0001 %"),
            (5_500, "0.55 %"),
        ] {
            assert_eq!(percent(share), shown);
        }
    }
}

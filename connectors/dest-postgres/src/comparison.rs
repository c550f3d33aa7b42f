//! The comparison of deletes: the keys of the source are staged in a temporary table, and the rows of the target whose
//! keys are not among them are deleted or marked, in the transaction of the stream's last commit.
//!
//! The server alone compares keys, as in `stage.rs`. Rows of the target with NULL in a key stay: no row of the stream can
//! have such a key. A key that is there removes the mark of its row.

use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::counted;
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;

use crate::checkpoint::Key;
use crate::config::{Name, Settings};
use crate::deletes::{Compare, Mark, percent};
use crate::stage::{STAGED_KEYS, Stage, count, raise_work_mem, run};

/// The keys of [`STAGED_KEYS`], read from text, if a column of the key is.
const READ: &str = "pg_temp.rapidbyte_read_keys";
/// The keys of the target that the source does not have.
const GONE: &str = "pg_temp.rapidbyte_gone_keys";
/// Parts of a whole share.
const WHOLE: u128 = 1_000_000;

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compared {
    /// Rows that were deleted or marked.
    pub(crate) rows: u64,
    /// All rows of the table are gone.
    pub(crate) is_empty: bool,
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
        let mut keys = STAGED_KEYS;
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
    use super::most_rows;

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
}

//! Rows that are staged in a temporary table, and how they get into the target: the last version of each key replaces
//! the row there, and of rows that may come again those are added which it does not have. The keys of the source are
//! staged in the same way.
//!
//! The server alone compares keys: the staged columns have the types and collations of the table, so
//! two keys that are equal there (`1.0` and `1.00`) are one key here.

use std::ops::Range;

use rapidbyte_pg::cast::{self, Read, Texts};
use rapidbyte_pg::ident::{quote_ident, quote_literal};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, fit};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::log::{self, failpoint};
use rapidbyte_sdk::prelude::*;

use crate::commit::answer;
use crate::config::{Name, Settings};
use crate::convert;
use crate::deletes::Compare;
use crate::kept::ensure_all;
use crate::refusal::{self, Casts, SAVEPOINT, Trial, counted};
use crate::upsert::Merge;

/// The temporary table of the rows. Its columns are `c0`, `c1` … and `n`, the row's number.
const STAGED: &str = "pg_temp.rapidbyte_staged";
/// The temporary table of the source's keys, as they came.
pub(crate) const STAGED_KEYS: &str = "pg_temp.rapidbyte_keys";
/// Rows that were deleted from the temporary table, or rolled back, before it is truncated.
const MAX_DEAD: u64 = 10_000;
/// Of the advisory locks on tables that rows are added to: "rbyt" in ASCII.
const LOCK_CLASS: i32 = 0x7262_7974;
/// Of a server that allows it: what is staged is sorted once.
const MIN_WORK_MEM: &str = "65536";

/// The staged rows: the columns of the temporary table, without the row's number.
pub(crate) struct Stage {
    /// The temporary table.
    table: &'static str,
    pub merge: Merge,
    targets: Vec<Column>,
    /// Where the texts are from, for those that the server reads from text.
    casts: Vec<Option<Texts>>,
    /// Rows of the stream in earlier transactions.
    before: u64,
}

impl Stage {
    /// For the keys of the source. `schema` has the columns of the key alone.
    pub(crate) fn of_keys(rows: &Self, schema: &Schema) -> Result<Self> {
        let place = |field: &std::sync::Arc<Field>| {
            let is_it = |target: &Column| target.name == *field.name();
            let place = rows.targets.iter().position(is_it)?;
            let key = rows.merge.key.iter().find(|(at, _)| *at == place)?;
            Some((rows.targets[place].clone(), key.1.clone()))
        };
        let found: Option<Vec<_>> = schema.fields().iter().map(place).collect();
        let found = found.ok_or_else(|| Error::internal("a key that the table does not have"))?;
        let (targets, operators): (Vec<Column>, Vec<String>) = found.into_iter().unzip();
        let merge = Merge {
            key: operators.into_iter().enumerate().collect(),
            deleted: None,
            version: None,
            counts: false,
            compare: None,
        };
        let mut stage = Self::new(merge, schema, &targets, 0)?;
        stage.table = STAGED_KEYS;
        Ok(stage)
    }

    /// How the keys of the source are compared.
    pub(crate) fn compare(&self) -> Option<&Compare> {
        self.merge.compare.as_ref()
    }

    /// The columns of the table that the staged rows fill.
    pub(crate) fn targets(&self) -> &[Column] {
        &self.targets
    }

    /// Whether the server reads some columns from text.
    pub(crate) fn has_casts(&self) -> bool {
        self.casts.iter().any(Option::is_some)
    }

    /// The names of the columns of the key, in its order.
    pub(crate) fn key_names(&self) -> Vec<String> {
        let key = self.merge.key.iter();
        key.map(|(at, _)| self.targets[*at].name.clone()).collect()
    }

    /// The condition that a row `t` of the table has the key of a staged row `s`.
    pub(crate) fn same_key(&self) -> String {
        let equal = |(at, equal): &(usize, String)| {
            let column = quote_ident(&self.targets[*at].name);
            format!("t.{column} OPERATOR({equal}) s.c{at}")
        };
        let key: Vec<String> = self.merge.key.iter().map(equal).collect();
        key.join(" AND ")
    }

    pub(crate) fn new(
        merge: Merge,
        schema: &Schema,
        targets: &[Column],
        before: u64,
    ) -> Result<Self> {
        let is_cast = |(field, column): (&std::sync::Arc<Field>, &Column)| {
            let fit = fit(field, column).map_err(convert)?;
            Ok(matches!(fit, PgFit::Cast(_)).then(|| Texts::of(field)))
        };
        let pairs = schema.fields().iter().zip(targets);
        Ok(Self {
            table: STAGED,
            merge,
            before,
            casts: pairs.map(is_cast).collect::<Result<_>>()?,
            targets: targets.to_vec(),
        })
    }

    /// The columns to encode for, with the row's number last.
    pub(crate) fn columns(&self) -> Vec<Column> {
        let staged = self.targets.iter().zip(&self.casts);
        let staged = staged.map(|(column, texts)| match texts.is_some() {
            true => column.as_text(),
            false => column.clone(),
        });
        let number = rapidbyte_pg::builtin::INT8.column("n");
        staged.chain([number]).collect()
    }

    /// Makes the temporary table. It ends with the transaction, so it works behind poolers.
    pub(crate) fn make(&self, client: &mut Client) -> Result<()> {
        let columns: Vec<String> = (self.targets.iter().zip(&self.casts).enumerate())
            .map(|(place, (column, texts))| {
                let collation = column.collation.as_deref().filter(|_| texts.is_none());
                let collation = collation.map(|name| format!(" COLLATE {name}"));
                let ty = if texts.is_some() {
                    "text"
                } else {
                    &column.type_text
                };
                format!("c{place} {ty}{}", collation.unwrap_or_default())
            })
            .collect();
        client.simple_query(&format!(
            "CREATE TEMPORARY TABLE {} ({}, n bigint) ON COMMIT DROP",
            self.table.trim_start_matches("pg_temp."),
            columns.join(", ")
        ))?;
        failpoint("dest-postgres.stage_made")
    }

    pub(crate) fn copy_statement(&self) -> String {
        format!("COPY {} FROM STDIN (FORMAT binary)", self.table)
    }

    /// The place of the first row with a NULL in any column of the key, and the error for it: it names that row's first
    /// such column. `first` is the number of the batch's first row.
    pub(crate) fn null_key(&self, batch: &RecordBatch, first: u64) -> Option<(usize, Error)> {
        let first_null = |place: &usize| {
            let nulls = batch.column(*place).logical_nulls()?;
            let row = nulls.iter().position(|is_valid| !is_valid)?;
            Some((row, *place))
        };
        let places = self.merge.key.iter().map(|(place, _)| place);
        let (row, place) = places.filter_map(first_null).min_by_key(|found| found.0)?;
        let column = &self.targets[place].name;
        let number = first + row as u64;
        let text = format!("row {number}, column {column:?}: NULL in a key");
        let error = Error::data("null_key", text)
            .hint("leave such rows out with `where:`, or name another key")
            .in_column(column);
        Some((row, error))
    }

    /// Merges the `rows` staged rows into the table. Errors: the server's; `rows_not_kept`; `rows_kept`;
    /// `commit_stalled`.
    pub(crate) fn merge(
        &self,
        client: &mut Client,
        settings: &Settings,
        name: &Name,
        rows: u64,
    ) -> Result<()> {
        let savepoint = match self.has_casts() {
            true => format!("SAVEPOINT {SAVEPOINT}; "),
            false => String::new(),
        };
        client.simple_query(&format!("{savepoint}{}", raise_work_mem()))?;
        if let Some(version) = &self.merge.version {
            client.simple_query(&format!("ANALYZE {STAGED}"))?;
            self.add(client, settings, name, version, rows)?;
            return failpoint("dest-postgres.merged");
        }
        if self.merge.deleted.is_some() {
            client.simple_query(&format!("ANALYZE {STAGED}"))?;
            run(client, settings, &self.delete(name))?;
            if self.merge.counts && count(client, &self.count_deleted(name))? > 0 {
                let text = format!("deleted rows of {name} are still there");
                return Err(Error::schema("rows_kept", text).hint(
                    "drop the BEFORE DELETE trigger that keeps them, or write to another table",
                ));
            }
            failpoint("dest-postgres.deleted")?;
        }
        let written = run(client, settings, &self.insert(name))?;
        if self.merge.counts && !self.set_columns().is_empty() {
            let wanted = count(client, &format!("SELECT count(*) {}", self.living()))?;
            ensure_all(name, wanted, written)?;
        }
        failpoint("dest-postgres.merged")
    }

    /// The statement that leaves no row staged. `dead` are the rows since the last TRUNCATE, which the server still scans.
    /// A TRUNCATE leaves a file until the commit, and a transaction with thousands of them becomes slow.
    pub(crate) fn empty(&self, dead: &mut u64) -> String {
        match *dead > MAX_DEAD {
            true => {
                *dead = 0;
                format!("TRUNCATE {STAGED}")
            }
            false => format!("DELETE FROM {STAGED}"),
        }
    }

    /// The error of a merge with the staged row that it is about, which is one of `rows`.
    pub(crate) fn located(
        &self,
        client: &mut Client,
        casts: Casts<'_>,
        error: Error,
        rows: Range<u64>,
    ) -> Error {
        let back = format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}");
        if !casts.may_have_raised(&error) {
            return casts.explained_alone(error);
        }
        if !client.is_usable() || client.execute(&back).is_err() {
            return error;
        }
        casts.located(error, &mut StagedRows { client, casts }, rows)
    }

    /// Adds the rows whose key and version are not in the table.
    fn add(
        &self,
        client: &mut Client,
        settings: &Settings,
        name: &Name,
        version: &[(usize, String)],
        rows: u64,
    ) -> Result<()> {
        // The lock waits until other runs that add to the table in this way have committed. The next
        // statement sees their rows.
        let table = quote_literal(&name.to_string());
        client.simple_query(&format!(
            "SELECT pg_catalog.pg_advisory_xact_lock({LOCK_CLASS}, \
             ({table}::pg_catalog.regclass::pg_catalog.oid::int8 - 2147483648)::int4)"
        ))?;
        let missing = self.missing(name, version);
        let wanted = match self.merge.counts {
            true => Some(count(client, &format!("SELECT count(*) {missing}"))?),
            false => None,
        };
        let into = self.insert_into(name);
        let written = run(client, settings, &format!("{into} {missing} ORDER BY s.n"))?;
        ensure_all(name, wanted.unwrap_or(written), written)?;
        if written < rows {
            let known = rows - written;
            log::info(format!(
                "{known} of {} that were read again are already in {name}",
                rapidbyte_sdk::counted(rows, "row")
            ));
        }
        Ok(())
    }

    /// The staged rows, one of each key and version, that the table does not have.
    fn missing(&self, name: &Name, version: &[(usize, String)]) -> String {
        let equal = |(at, equal): &(usize, String), may_be_null: bool| {
            let column = &self.targets[*at];
            let (here, there) = (
                format!("s.c{at}"),
                format!("t.{}", quote_ident(&column.name)),
            );
            let equals = format!("{there} OPERATOR({equal}) {here}");
            match may_be_null && !column.not_null {
                true => format!("({equals} OR {there} IS NULL AND {here} IS NULL)"),
                false => equals,
            }
        };
        let key = self.merge.key.iter().map(|column| equal(column, false));
        let conditions: Vec<String> = key
            .chain(version.iter().map(|column| equal(column, true)))
            .collect();
        format!(
            "FROM ({}) AS s WHERE NOT EXISTS (SELECT FROM {name} AS t WHERE {})",
            self.last(),
            conditions.join(" AND ")
        )
    }

    /// `SELECT` of the last version of each key, or the last of the rows of each key and version: the
    /// columns as they go into the table.
    fn last(&self) -> String {
        let from = match self.has_casts() {
            true => self.read(),
            false => self.table.to_owned(),
        };
        let version = self.merge.version.iter().flatten();
        let key: Vec<String> = (self.merge.key.iter().chain(version))
            .map(|(at, _)| format!("s.c{at}"))
            .collect();
        let key = key.join(", ");
        format!("SELECT DISTINCT ON ({key}) s.* FROM {from} AS s ORDER BY {key}, s.n DESC")
    }

    /// A subquery of the staged rows, their texts read.
    pub(crate) fn read(&self) -> String {
        let row = format!("s.n + {}", self.before + 1);
        let columns = self.targets.iter().zip(&self.casts).enumerate();
        let reads: Vec<Option<Read>> = columns
            .map(|(place, (column, texts))| Some(cast::read("s", &row, place, column, (*texts)?)))
            .collect();
        let columns: Vec<String> = (self.targets.iter().zip(&reads).enumerate())
            .map(|(place, (column, read))| match read {
                Some(Read { expression, .. }) => {
                    let collation = column.collation.as_ref();
                    let collation = collation.map(|name| format!(" COLLATE {name}"));
                    format!(
                        "({expression}){} AS c{place}",
                        collation.unwrap_or_default()
                    )
                }
                None => format!("s.c{place}"),
            })
            .collect();
        let staged = format!("{} AS s", self.table);
        let from = cast::source("s", &staged, reads.iter().flatten());
        format!("(SELECT {}, s.n FROM {from})", columns.join(", "))
    }

    /// The last versions that are not deleted.
    fn living(&self) -> String {
        let deleted = match self.merge.deleted {
            Some((at, true)) => format!(" WHERE s.c{at} IS NOT TRUE"),
            Some((at, false)) => format!(" WHERE s.c{at} IS NULL"),
            None => String::new(),
        };
        format!("FROM ({}) AS s{deleted}", self.last())
    }

    /// The condition that a row `t` of the table has a key whose last version is deleted.
    fn gone(&self) -> String {
        let is_deleted = match self.merge.deleted {
            Some((at, true)) => format!("s.c{at} IS TRUE"),
            Some((at, false)) => format!("s.c{at} IS NOT NULL"),
            None => "false".into(),
        };
        format!("{} AND {is_deleted}", self.same_key())
    }

    fn delete(&self, name: &Name) -> String {
        let (last, gone) = (self.last(), self.gone());
        format!("DELETE FROM {name} AS t USING ({last}) AS s WHERE {gone}")
    }

    fn count_deleted(&self, name: &Name) -> String {
        let (last, gone) = (self.last(), self.gone());
        format!("SELECT count(*) FROM {name} AS t, ({last}) AS s WHERE {gone}")
    }

    /// The columns that an update sets, quoted.
    fn set_columns(&self) -> Vec<String> {
        let is_key = |place: usize| self.merge.key.iter().any(|(at, _)| *at == place);
        let set = self.targets.iter().enumerate();
        set.filter(|(place, _)| !is_key(*place))
            .map(|(_, column)| quote_ident(&column.name))
            .collect()
    }

    /// `INSERT INTO` the table, and the `SELECT` list of the staged rows, without where they come from.
    fn insert_into(&self, name: &Name) -> String {
        let names: Vec<String> = self.targets.iter().map(|c| quote_ident(&c.name)).collect();
        let given: Vec<String> = (0..names.len())
            .map(|place| format!("s.c{place}"))
            .collect();
        let always = |column: &Column| column.generated == Generated::IdentityAlways;
        let overriding = match self.targets.iter().any(always) {
            true => " OVERRIDING SYSTEM VALUE",
            false => "",
        };
        format!(
            "INSERT INTO {name} ({}){overriding} SELECT {}",
            names.join(", "),
            given.join(", ")
        )
    }

    fn insert(&self, name: &Name) -> String {
        let key: Vec<String> = (self.merge.key.iter())
            .map(|(at, _)| quote_ident(&self.targets[*at].name))
            .collect();
        let set: Vec<String> = (self.set_columns().iter())
            .map(|column| format!("{column} = EXCLUDED.{column}"))
            .collect();
        let action = match set.as_slice() {
            [] => "NOTHING".to_owned(),
            set => format!("UPDATE SET {}", set.join(", ")),
        };
        format!(
            "{} {} ON CONFLICT ({}) DO {action}",
            self.insert_into(name),
            self.living(),
            key.join(", ")
        )
    }
}

/// The rows in the temporary table.
struct StagedRows<'a> {
    client: &'a mut Client,
    casts: Casts<'a>,
}

impl Trial for StagedRows<'_> {
    fn cast(&mut self, rows: Range<u64>, casts: Range<usize>) -> Result<Option<Error>> {
        let Casts {
            targets,
            places,
            first_row,
        } = self.casts;
        let row = format!("s.n + {first_row}");
        let some = places.get(casts).unwrap_or_default();
        let reads: Vec<Read> = some
            .iter()
            .filter_map(|place| {
                // The error of any other refusal names its row, and needs no search.
                let texts = Texts::Plain;
                Some(cast::read("s", &row, *place, targets.get(*place)?, texts))
            })
            .collect();
        let from = format!(
            "{STAGED} AS s WHERE s.n >= {} AND s.n < {}",
            rows.start, rows.end
        );
        let asked = self.client.simple_query(&counted("s", &from, &reads));
        refusal::refused(self.client, asked.map(drop))
    }

    fn text(&mut self, row: u64, cast: usize) -> Result<Option<String>> {
        let place = self.casts.places.get(cast).copied().unwrap_or_default();
        let text = refusal::shown("s", place);
        let sql = format!("SELECT {text} FROM {STAGED} AS s WHERE s.n = {row}");
        let answers = self.client.simple_query(&sql)?;
        let row = answers.first().and_then(|rows| rows.rows.first());
        let text = row.map(|row| row.text(0)).transpose()?;
        Ok(text.flatten().map(str::to_owned))
    }
}

/// The statement that gives a sort or a join of staged rows enough memory, where the server allows it.
pub(crate) fn raise_work_mem() -> String {
    format!(
        "SELECT pg_catalog.set_config('work_mem', '{MIN_WORK_MEM}', true) FROM pg_catalog.pg_settings \
         WHERE name = 'work_mem' AND setting::int8 < {MIN_WORK_MEM}"
    )
}

pub(crate) fn run(client: &mut Client, settings: &Settings, sql: &str) -> Result<u64> {
    client.send(sql)?;
    answer(client, settings)
}

pub(crate) fn count(client: &mut Client, sql: &str) -> Result<u64> {
    let answers = client.simple_query(sql)?;
    let count = answers.first().map(Rows::single).transpose()?;
    let count = count.and_then(|count| count.parse().ok());
    count.ok_or_else(|| Error::internal("a count that is no number"))
}

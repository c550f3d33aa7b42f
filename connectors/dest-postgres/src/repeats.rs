//! Append of rows that come again: skips rows that the table already has.
//!
//! A lag reads rows again that were delivered before. The table has a row already if a row there has
//! the same key and the same version (the columns of the cursor). The server compares the values by
//! the columns' types; NULL in a version equals NULL. So a changed row with another version is added,
//! and a changed row with the same version is not.

use rapidbyte_pg::Column;
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;
use crate::look::{Found, Index, RepeatFacts, TableFacts};
use crate::target::rows_may_come_again;
use crate::upsert::Merge;

const HOW: &str = "COPY loads the rows into a temporary table; each commit adds the rows whose \
     key and cursor are not in the table yet, and of duplicates only the last";

/// The index by which rows are found that are there.
fn index(name: &Name, target: &Target) -> String {
    let columns: Vec<String> = target.primary_key.iter().map(|c| quote_ident(c)).collect();
    format!("CREATE INDEX ON {name} ({})", columns.join(", "))
}

/// For a table that is about to be made: gives the index that it needs.
pub(crate) fn fresh(target: &Target, name: &Name, notes: &mut Vec<String>) -> String {
    if rows_may_come_again(target) {
        notes.push(HOW.into());
    }
    index(name, target)
}

/// For a table that is there; `targets` are the columns to fill. None where the plan refuses one of
/// the columns. Errors: `lag_not_possible`.
pub(crate) fn existing(
    target: &Target,
    name: &Name,
    table: &TableFacts,
    targets: &[Column],
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<Option<Merge>> {
    let Some(facts) = &found.repeats else {
        return Err(Error::internal("an append of repeats without its facts"));
    };
    let is_key = |column: &&String| target.primary_key.contains(column);
    let key = target.primary_key.iter();
    let version = target.dedup_fields.iter().filter(|column| !is_key(column));
    let place = |column: &String| facts.place_of(column, name, targets);
    let key: Option<Vec<_>> = key.map(place).collect::<Result<_>>()?;
    let version: Option<Vec<_>> = version.map(place).collect::<Result<_>>()?;
    let (Some(key), Some(version)) = (key, version) else {
        return Ok(None);
    };
    notes.push(HOW.into());
    if table.kind != 'p' && facts.has_row_triggers {
        notes.push(format!(
            "a BEFORE trigger of {name} sees each row first: if it changes the key or the \
                 cursor, rows that are read again look new"
        ));
    }
    notes.extend(facts.about_indexes(target, name));
    Ok(Some(Merge {
        key,
        deleted: None,
        version: Some(version),
        counts: facts.has_row_triggers,
        compare: None,
    }))
}

fn refused(name: &Name, what: &str, hint: &str) -> Error {
    let text = format!("{name} does not support append with a lag: {what}");
    Error::schema("lag_not_possible", text).hint(format!("{hint}, or remove lag"))
}

pub(crate) fn refuse_table(name: &Name, table: &TableFacts) -> Result<()> {
    if !matches!(table.kind, 'r' | 'p') {
        let what = "it is not a table of this server";
        return Err(refused(name, what, "write to the table itself"));
    }
    if table.row_security {
        let what = "row-level security may hide rows from this role";
        let hint = "run as the table's owner, or as a role with BYPASSRLS";
        return Err(refused(name, what, hint));
    }
    if table.insert_rules > 0 {
        let hint = "drop the rules, or write to another table";
        return Err(refused(name, "it has rules", hint));
    }
    Ok(())
}

impl RepeatFacts {
    /// A column's place among `targets` and its operator of equality. `None` where the table lacks it.
    fn place_of(
        &self,
        column: &String,
        name: &Name,
        targets: &[Column],
    ) -> Result<Option<(usize, String)>> {
        let Some(place) = targets.iter().position(|target| target.name == *column) else {
            return Ok(None);
        };
        let compared = self.columns.iter().find(|found| found.name == *column);
        match compared.and_then(|found| found.equal.clone()) {
            Some(equal) => Ok(Some((place, equal))),
            None => {
                let ty = &targets[place].type_text;
                let what = format!(
                    "values of {}, of type {ty}, cannot be compared",
                    quote_ident(column)
                );
                Err(refused(name, &what, "name another column").in_column(column))
            }
        }
    }

    /// Notes: an index that would make commits fast, and a unique index that refuses a second version.
    fn about_indexes(&self, target: &Target, name: &Name) -> Vec<String> {
        let key = &target.primary_key;
        let is_of_key = |index: &Index| {
            let first = index.columns.iter().take(key.len());
            index.columns.len() >= key.len() && first.clone().all(|column| key.contains(column))
        };
        let mut notes = Vec::new();
        if !self.indexes.iter().any(is_of_key) {
            notes.push(format!(
                "each commit reads the whole table, because no index starts with the key; create \
                     one: {}",
                index(name, target)
            ));
        }
        let is_whole = |index: &&Index| index.is_unique && index.columns.len() == key.len();
        if self.indexes.iter().filter(is_whole).any(is_of_key) {
            notes.push(
                "its unique index allows one row for each key: a changed row with a higher \
                     cursor is refused"
                    .into(),
            );
        }
        notes
    }
}

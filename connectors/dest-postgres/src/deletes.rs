//! Deletes without change capture: what becomes of the rows of a table whose keys the source does not have, decided
//! before anything is changed. `comparison.rs` finds these rows.

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::{BOOL, TIMESTAMP, TIMESTAMPTZ};
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DeleteAction, Deletes};

use crate::config::Name;
use crate::look::TableFacts;

/// How the rows of a table that is there are compared.
#[derive(Debug, Clone)]
pub(crate) struct Compare {
    /// The column that marks deleted rows. `None`: they are deleted.
    pub mark: Option<Mark>,
    /// In millionths.
    pub max_share: u32,
}

/// The column that marks deleted rows.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// Quoted.
    pub column: String,
    kind: MarkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MarkKind {
    Flag,
    Time,
    /// Without a time zone: in UTC.
    LocalTime,
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
    if removes(target) && target.deleted_field.is_none() {
        tell_cascades(table, notes)?;
    }
    Ok(Some(Compare {
        mark: mark.transpose()?,
        max_share: deletes.max_share,
    }))
}

/// Names the foreign keys by which rows of other tables change with the rows that are deleted.
pub(crate) fn tell_cascades(table: &TableFacts, notes: &mut Vec<String>) -> Result<()> {
    let cascading = &table.foreign_keys()?.cascading;
    if !cascading.is_empty() {
        notes.push(format!(
            "deleting rows deletes or changes rows in other tables through the foreign keys {}",
            cascading.join(", ")
        ));
    }
    Ok(())
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
pub(crate) fn percent(share: u32) -> String {
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
    pub(crate) fn is_absent(&self) -> String {
        match self.kind {
            MarkKind::Flag => format!("t.{} IS NOT TRUE", self.column),
            MarkKind::Time | MarkKind::LocalTime => format!("t.{} IS NULL", self.column),
        }
    }

    pub(crate) fn set(&self) -> &'static str {
        match self.kind {
            MarkKind::Flag => "true",
            MarkKind::Time => "pg_catalog.now()",
            MarkKind::LocalTime => "(pg_catalog.now() AT TIME ZONE 'UTC')",
        }
    }

    pub(crate) fn unset(&self) -> &'static str {
        match self.kind {
            MarkKind::Flag => "false",
            MarkKind::Time | MarkKind::LocalTime => "NULL",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

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

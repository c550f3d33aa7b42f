//! Upsert: whether the last version of each key can replace the row in a table, and what the run needs to know of the
//! table for it. The rows go there as `stage.rs` says.

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::BOOL;
use rapidbyte_pg::ident::quote_ident;
use rapidbyte_pg::model::Generated;
use rapidbyte_sdk::prelude::*;

use crate::config::Name;
use crate::deletes::{self, Compare};
use crate::look::{Found, KeyColumn, TableFacts, UniqueKey, UpsertFacts};

/// How what is staged gets into the table.
#[derive(Debug, Clone)]
pub(crate) struct Merge {
    /// Places of the key among the columns, and the operators of equality.
    pub(crate) key: Vec<(usize, String)>,
    /// The column that says that a row is deleted, and whether it is boolean.
    pub(crate) deleted: Option<(usize, bool)>,
    /// For append: the places of the columns that tell versions of a key apart, and their operators of
    /// equality. Rows that are there stay, and only versions that are not there are added.
    pub(crate) version: Option<Vec<(usize, String)>>,
    /// Whether something may silently drop rows, so that they are counted.
    pub(crate) counts: bool,
    /// How the keys of the source are compared with the keys of the table.
    pub(crate) compare: Option<Compare>,
}

/// Refuses a stream that cannot be upserted wherever it goes.
pub(crate) fn refuse_stream(target: &Target, schema: &Schema) -> Result<()> {
    if target.primary_key.is_empty() {
        return Err(
            Error::config("key_missing", "upsert needs a key, and the stream has none")
                .hint("name the columns of the key: `primary_key: [id]`"),
        );
    }
    match &target.deleted_field {
        Some(field) if schema.field_with_name(field).is_err() => {
            let text = format!(
                "deleted_field names {field:?}, which is not a column of the \
                 stream"
            );
            Err(Error::config("unknown_column", text).in_column(field))
        }
        Some(field) if target.primary_key.contains(field) => {
            let text = format!("deleted_field names {field:?}, which is in the key");
            Err(Error::config("unknown_column", text).in_column(field))
        }
        _ => Ok(()),
    }
}

/// For a table that is about to be made with the key. Says it in `notes`.
pub(crate) fn fresh(notes: &mut Vec<String>) {
    notes.push(HOW.into());
}

const HOW: &str = "COPY loads the rows into a temporary table; each commit writes the last \
     version of each key with INSERT … ON CONFLICT";

/// For a table that is there; `targets` are the columns to fill.
pub(crate) fn existing(
    target: &Target,
    name: &Name,
    schema: &Schema,
    table: &TableFacts,
    targets: &[Column],
    found: &Found,
    notes: &mut Vec<String>,
) -> Result<Option<Merge>> {
    let Some(facts) = &found.upsert else {
        return Err(Error::internal("upsert without its facts"));
    };
    let place = |column: &str| targets.iter().position(|target| target.name == column);
    if target
        .primary_key
        .iter()
        .any(|column| place(column).is_none())
    {
        // The plan refuses the column.
        return Ok(None);
    }
    let key = find_key(target, name, facts, &found.renamed)?;
    let key: Vec<(usize, String)> = key
        .iter()
        .filter_map(|column| Some((place(&column.name)?, column.equal.clone())))
        .collect();
    refuse_identity(name, targets, &key)?;
    let deleted = target.deleted_field.as_deref();
    let deleted = deleted.and_then(|field| {
        let place = place(field)?;
        let is_boolean = *schema.field_with_name(field).ok()?.data_type() == DataType::Boolean;
        // The text `f` becomes false there, which is not NULL.
        let becomes_boolean = targets[place].stripped().0.oid == BOOL.oid;
        Some((place, is_boolean || becomes_boolean))
    });
    notes.push(HOW.into());
    if deleted.is_some() {
        deletes::tell_cascades(table, notes)?;
    }
    let columns = found.relation.as_ref().map(|relation| &relation.columns);
    let columns = columns.map(Vec::as_slice).unwrap_or_default();
    let compare = deletes::existing(target, name, columns, table, notes)?;
    Ok(Some(Merge {
        key,
        deleted,
        version: None,
        counts: facts.has_row_triggers,
        compare,
    }))
}

fn refused(name: &Name, what: &str, hint: &str) -> Error {
    let text = format!("{name} cannot be upserted: {what}");
    Error::schema("upsert_not_possible", text).hint(hint)
}

pub(crate) fn refuse_table(
    target: &Target,
    name: &Name,
    table: &TableFacts,
    facts: &UpsertFacts,
) -> Result<()> {
    if !matches!(table.kind, 'r' | 'p') {
        let what = "it is not a table of this server";
        return Err(refused(name, what, "write to the table itself"));
    }
    if table.children > 0 {
        let what = "other tables inherit from it, and may have a row of the key";
        return Err(refused(name, what, "write to another table"));
    }
    if table.row_security {
        let what = "row-level security may hide rows from this role";
        let hint = "run as the table's owner, or as a role with BYPASSRLS";
        return Err(refused(name, what, hint));
    }
    let deletes = target.deleted_field.is_some() || deletes::removes(target);
    if facts.write_rules > 0 || deletes && table.delete_rules > 0 {
        let hint = "drop the rules, or write to another table";
        return Err(refused(name, "it has rules", hint));
    }
    Ok(())
}

/// The unique index of exactly the key's columns, in any order. `renamed` has the columns that the source renamed.
fn find_key<'a>(
    target: &Target,
    name: &Name,
    facts: &'a UpsertFacts,
    renamed: &[(String, String)],
) -> Result<&'a [KeyColumn]> {
    let wanted = &target.primary_key;
    let is_within =
        |key: &&UniqueKey| (key.columns.iter()).all(|column| wanted.contains(&column.name));
    let is_it = |key: &&UniqueKey| key.columns.len() == wanted.len() && is_within(key);
    if let Some(key) = facts.unique_keys.iter().find(is_it) {
        return Ok(&key.columns);
    }
    let columns: Vec<_> = wanted.iter().map(|column| quote_ident(column)).collect();
    let columns = columns.join(", ");
    let text = format!(
        "{name} has no unique index on exactly ({columns}) that is neither partial nor on \
             expressions nor deferrable"
    );
    let create = format!("CREATE UNIQUE INDEX ON {name} ({columns})");
    let stricter: Vec<&UniqueKey> = facts.unique_keys.iter().filter(is_within).collect();
    let hint = match stricter.is_empty() {
        true => format!("run on the target: {create}"),
        false => {
            let drops: Vec<String> = stricter.iter().map(|key| key.drop(name)).collect();
            let stricter: Vec<String> = stricter.iter().map(|key| key.to_string()).collect();
            format!(
                "run on the target: {}; {create}. Rows that differ only in the new columns of the key would be \
                 refused by {}, which therefore goes first",
                drops.join("; "),
                stricter.join(" and ")
            )
        }
    };
    let hint = match renamed_key(wanted, facts, renamed) {
        Some(key) => format!(
            "set primary_key: [{}]: the source renamed the columns of the key ({}). Or, if the columns that have these \
             names now are the key: {hint}",
            key.join(", "),
            shown(renamed, wanted)
        ),
        None => hint,
    };
    Err(Error::schema("no_unique_index", text).hint(hint))
}

/// The names of now of a key that is named as before, if a unique index has these columns.
fn renamed_key(
    wanted: &[String],
    facts: &UpsertFacts,
    renamed: &[(String, String)],
) -> Option<Vec<String>> {
    let now = |column: &String| {
        let new = renamed.iter().find(|(old, _)| old == column);
        new.map_or(column, |(_, new)| new).clone()
    };
    let key: Vec<String> = wanted.iter().map(now).collect();
    let is_it = |unique: &UniqueKey| {
        let mut columns = unique.columns.iter();
        unique.columns.len() == key.len() && columns.all(|column| key.contains(&column.name))
    };
    facts.unique_keys.iter().any(is_it).then_some(key)
}

/// The renamed columns of a key, such as `id is now k`.
fn shown(renamed: &[(String, String)], key: &[String]) -> String {
    let of_key = renamed.iter().filter(|(old, _)| key.contains(old));
    let texts: Vec<String> = of_key
        .map(|(old, new)| format!("{old} is now {new}"))
        .collect();
    texts.join(", ")
}

/// The server updates such a column to its default alone.
fn refuse_identity(name: &Name, targets: &[Column], key: &[(usize, String)]) -> Result<()> {
    let is_key = |place: usize| key.iter().any(|(at, _)| *at == place);
    let stands = targets
        .iter()
        .enumerate()
        .find(|(place, column)| column.generated == Generated::IdentityAlways && !is_key(*place));
    let Some((_, column)) = stands else {
        return Ok(());
    };
    let quoted = quote_ident(&column.name);
    let hint = format!(
        "leave it out with `columns:`, or run on the target: ALTER TABLE {name} ALTER COLUMN \
             {quoted} SET GENERATED BY DEFAULT"
    );
    let what = format!(
        "its column {quoted} is GENERATED ALWAYS AS IDENTITY, which no update can \
         set"
    );
    Err(refused(name, &what, &hint).in_column(&column.name))
}

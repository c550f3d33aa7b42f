//! Where the columns of a stream and of its table differ: the statements that change the table, and the table as it is
//! after them.
//!
//! They run in a short transaction of their own before the load, so that readers wait for a moment and not for the
//! load. The load then decides anew, from the catalog alone: a run that is killed in between leaves a table that the
//! next run understands.

use std::sync::Arc;

use rapidbyte_pg::catalog::Relation;
use rapidbyte_pg::form::{Origin, carried};
use rapidbyte_pg::ident::{check_column_name, qualified, quote_ident, quote_literal};
use rapidbyte_pg::model::{Generated, Kind};
use rapidbyte_pg::widen::{Widening, is_same_order, missing_labels, other_labels, widening};
use rapidbyte_pg::{Column, ddl};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DroppedColumn, NewColumn, RenamedColumn, TypeChange, WARNING_NOTE, log};

use crate::checkpoint::Key;
use crate::columns::{has_no_filler, has_type_default, is_own, refuses_null, with_collation};
use crate::config::{CHANGE_TABLE, Name, Settings};
use crate::convert;
use crate::deletes;
use crate::lease::Lease;
use crate::look::{self, Differences, Found, TableFacts, Tie, Within};
use crate::origins::{self, Known};
use crate::place::Place;

/// The table of changes, which lists what runs changed.
const COLUMNS: &str = "(
    changed_at timestamp with time zone NOT NULL,
    pipeline text COLLATE \"C\" NOT NULL,
    run_id text NOT NULL,
    stream text COLLATE \"C\" NOT NULL,
    target text COLLATE \"C\" NOT NULL,
    statement text NOT NULL
)";
const SAVEPOINT: &str = "SAVEPOINT rapidbyte_changes";
const ROLLBACK: &str = "ROLLBACK TO SAVEPOINT rapidbyte_changes";
const RELEASE: &str = "RELEASE SAVEPOINT rapidbyte_changes";

/// The changes of a table that a run makes before its first row.
pub(crate) struct Changes {
    /// The statements, in order.
    pub statements: Vec<String>,
    /// The table after them, as far as the plan needs it: the server's numbers of its types may differ.
    pub relation: Relation,
    /// The fields of the stream that go to the table. `None`: all of them.
    pub kept: Option<Vec<usize>>,
    /// The columns that are added.
    pub added: Vec<String>,
    /// The columns whose older rows hold the values of another column of the source.
    pub moved: Vec<String>,
    /// The columns that the stream lacks and that `notes` speaks of.
    pub told: Vec<String>,
    pub notes: Vec<String>,
}

/// Whether a policy decides on a difference between the stream's columns and the columns of an existing table.
/// `source`: the columns at the source.
pub(crate) fn may_change(
    schema: &Schema,
    new: &[Result<Column, String>],
    source: Option<&Origin>,
    found: &mut Found,
) -> Result<bool> {
    let Some(relation) = &found.relation else {
        return Ok(false);
    };
    if let (Some(source), Some(rows)) = (source, found.origins.take()) {
        found.differences.known = origins::known(&rows, source, relation)?;
    }
    let differs = |(field, new): (&Arc<Field>, &Result<Column, String>)| {
        let column = relation.columns.iter().find(|c| c.name == *field.name());
        match (column, new) {
            (None, _) => true,
            (Some(_), Err(_)) => false,
            (Some(column), Ok(new)) => {
                widening(column, new).is_some() || missing_labels(new, column).is_some()
            }
        }
    };
    let unfilled =
        |column: &Column| !is_own(column) && schema.field_with_name(&column.name).is_err();
    if schema.fields().iter().zip(new).any(differs) || relation.columns.iter().any(unfilled) {
        return Ok(true);
    }
    Ok(!moved(schema, source, &found.differences.known)?.is_empty())
}

/// The fields that come from another column of the source than the values that the table has under their name.
fn moved<'a>(
    schema: &'a Schema,
    source: Option<&Origin>,
    known: &Known,
) -> Result<Vec<&'a String>> {
    let mut moved = Vec::new();
    for field in schema.fields() {
        if let (Some(source), Some(known)) = (source, known.columns.get(field.name()))
            && let Some(number) = source.number(field).map_err(convert)?
            && number != *known
        {
            moved.push(field.name());
        }
    }
    Ok(moved)
}

/// Asks the server for what decides on the changes. If the source renamed columns, `found` has their new names
/// afterwards.
pub(crate) fn look(
    client: &mut Client,
    within: &mut Within<'_>,
    place: &Place<'_>,
    source: Option<Origin>,
    found: &mut Found,
) -> Result<()> {
    let (Some(relation), Some(table)) = (&found.relation, &found.facts.table) else {
        return Ok(());
    };
    found.differences.ties = look::ties(client, within, relation)?;
    let is_detected = place.target.schema_changes.renamed == RenamedColumn::Detect;
    let (renamed, blocked) = match &source {
        Some(source) if is_detected => renamed(place.schema, source, relation, &found.differences)?,
        _ => Default::default(),
    };
    found.differences.source = source;
    found.differences.blocked = blocked;
    let may_alter = table.may_alter;
    if !may_alter {
        found.differences.denied.clone_from(&renamed);
    }
    match renamed.is_empty() || !may_alter {
        true => Ok(()),
        false => look::rename(client, within, place.target, renamed, found),
    }
}

/// Pairs of the old and the new name of a column.
type Renames = Vec<(String, String)>;

/// The columns that the source renamed, and the renamed columns whose new name another column of the table has. Columns
/// may exchange their names.
fn renamed(
    schema: &Schema,
    source: &Origin,
    relation: &Relation,
    differences: &Differences,
) -> Result<(Renames, Renames)> {
    let Known {
        columns, shared, ..
    } = &differences.known;
    let (mut renamed, mut blocked) = (Renames::new(), Renames::new());
    for field in schema.fields() {
        let (new, number) = (field.name(), source.number(field).map_err(convert)?);
        let is_held = |name: &String| {
            let mut ties = differences.ties.iter();
            ties.any(|tie| tie.column == *name && tie.holds_name)
        };
        let is_it = |name: &&String| {
            number.is_some()
                && columns.get(*name) == number.as_ref()
                && !shared.contains(*name)
                && !is_held(name)
                && !renamed.iter().any(|(old, _)| old == *name)
        };
        let mut found = relation
            .columns
            .iter()
            .map(|column| &column.name)
            .filter(is_it);
        // If two columns have the number, nothing tells which of them it is.
        if let (Some(old), None) = (found.next(), found.next())
            && old != new
            && check_column_name(new).is_ok()
        {
            renamed.push((old.clone(), new.clone()));
        }
    }
    // A name is only free if its column has a new one, too.
    let is_there = |name: &String| relation.columns.iter().any(|column| column.name == *name);
    loop {
        let all = renamed.clone();
        let is_free = |name: &String| !is_there(name) || all.iter().any(|(old, _)| old == name);
        blocked.extend(renamed.extract_if(.., |(_, new)| !is_free(new)));
        if renamed.len() == all.len() {
            return Ok((renamed, blocked));
        }
    }
}

/// The statements that rename columns, each after the statement that frees its name.
fn renaming(name: &Name, renamed: &[(String, String)]) -> Vec<String> {
    /// Between two columns that exchange their names.
    const BETWEEN: &str = "_rapidbyte_renamed";
    let mut statements = Vec::new();
    let mut rename = |old: &str, new: &str| {
        let (old, new) = (quote_ident(old), quote_ident(new));
        statements.push(format!("ALTER TABLE {name} RENAME COLUMN {old} TO {new}"));
    };
    let mut left = renamed.to_vec();
    while let Some(first) = left.first().cloned() {
        let is_free = |(_, new): &(String, String)| !left.iter().any(|(old, _)| old == new);
        match left.iter().position(is_free) {
            Some(place) => {
                let (old, new) = left.remove(place);
                rename(&old, &new);
            }
            None => {
                rename(&first.0, BETWEEN);
                left[0].0 = BETWEEN.into();
            }
        }
    }
    statements
}

/// Decides what is changed. `new` are the columns that a table made for the stream would have. Errors:
/// `column_dropped`, if the stream lacks a column and a policy refuses that.
pub(crate) fn decide(
    target: &Target,
    name: &Name,
    schema: &Schema,
    new: &[Result<Column, String>],
    (relation, table): (&Relation, &TableFacts),
    found: &Found,
) -> Result<Changes> {
    let policy = &target.schema_changes;
    let Differences { source, known, .. } = &found.differences;
    let adds_labels = relation.columns.iter().any(|column| {
        let mut columns = new.iter().flatten().filter(|new| new.name == column.name);
        columns.any(|new| missing_labels(new, column).is_some())
    });
    let moved = match target.write_mode {
        // All rows are new.
        WriteMode::Replace => Vec::new(),
        _ => {
            let moved = moved(schema, source.as_ref(), known)?;
            refuse_mixed(target, name, (relation, table), &moved, found)?;
            moved
        }
    };
    let mut changes = Changes {
        statements: Vec::new(),
        relation: relation.clone(),
        kept: None,
        added: Vec::new(),
        moved: Vec::new(),
        told: Vec::new(),
        notes: Vec::new(),
    };
    changes.statements.extend(renaming(name, &found.renamed));
    for (old, new) in &found.renamed {
        changes.notes.push(format!(
            "{} becomes {}, because the source renamed the column",
            quote_ident(old),
            quote_ident(new)
        ));
    }
    changes.notes.extend(moved.iter().map(|name| {
        format!(
            "{WARNING_NOTE}another column of the source was called {} before: older rows hold its values there",
            quote_ident(name)
        )
    }));
    // Of ALTER TABLE.
    let mut actions = Vec::new();
    let mut added = Vec::new();
    let mut without_default = Vec::new();
    let mut ignored = Vec::new();
    let mut rewrites = false;
    for (place, (field, new)) in schema.fields().iter().zip(new).enumerate() {
        let columns = &mut changes.relation.columns;
        let Some(at) = columns.iter().position(|c| c.name == *field.name()) else {
            match policy.new_column {
                NewColumn::Ignore if !is_needed(target, field) => ignored.push(place),
                NewColumn::Add if let Ok(new) = new => {
                    if table.may_alter && check_column_name(&new.name).is_ok() {
                        let column = ddl::column_with_type(new).map_err(convert)?;
                        let added_column = Column {
                            // Rows that are there may have nothing in it.
                            not_null: false,
                            ..found.as_it_is_there(new)
                        };
                        match older_value(target, field, &added_column, found, adds_labels)? {
                            // A column that somebody adds meanwhile keeps its own default.
                            Some(value) => {
                                let quoted = quote_ident(&new.name);
                                let value = quote_literal(value);
                                actions.push(format!("ADD COLUMN {column} DEFAULT {value}"));
                                without_default.push(format!("ALTER COLUMN {quoted} DROP DEFAULT"));
                                changes.notes.push(format!(
                                    "{WARNING_NOTE}older rows get {value} in {quoted}, the default that the source gave its \
                                     rows when the column was added; rows that the source has changed since keep it until \
                                     they are read again"
                                ));
                            }
                            // Nobody has written the default of a domain into these rows.
                            None if has_type_default(&added_column.ty)
                                && !refuses_null(&added_column.ty) =>
                            {
                                let quoted = quote_ident(&new.name);
                                actions.push(format!("ADD COLUMN {column} DEFAULT NULL"));
                                without_default.push(format!("ALTER COLUMN {quoted} DROP DEFAULT"));
                            }
                            None => {
                                actions.push(format!("ADD COLUMN IF NOT EXISTS {column}"));
                                if has_type_default(&added_column.ty) {
                                    changes.notes.push(format!(
                                        "{WARNING_NOTE}older rows get the default of the domain {} in {}, because it \
                                         refuses NULL",
                                        added_column.type_text,
                                        quote_ident(&new.name)
                                    ));
                                }
                            }
                        }
                        added.push(added_column);
                    }
                }
                NewColumn::Add | NewColumn::Ignore | NewColumn::Fail => {}
            }
            continue;
        };
        let Ok(new) = new else { continue };
        if let Some((statements, column)) = missing_labels(new, &columns[at])
            && policy.type_change != TypeChange::Fail
        {
            if !is_same_order(new, &column) {
                changes.notes.push(format!(
                    "the labels of {} are in another order than those of the source, so < and ORDER BY differ",
                    column.type_text
                ));
            }
            let others = other_labels(new, &columns[at]);
            if !others.is_empty() {
                changes.notes.push(format!(
                    "{WARNING_NOTE}{} gets new labels, and the source does not have {}: if the source renamed a label, \
                     older rows keep its old name",
                    column.type_text,
                    others.join(", ")
                ));
            }
            for statement in statements {
                // Another column may have the same enum.
                if !changes.statements.contains(&statement) {
                    changes.statements.push(statement);
                }
            }
            columns[at] = column;
        } else if let Some((how, column)) =
            widened(policy.type_change, field, &columns[at], new, table)?
        {
            let quoted = quote_ident(&column.name);
            if let Some(tie) = found.holds_type(&column.name) {
                changes.notes.push(format!(
                    "{quoted} keeps the type {}, because this depends on it: {}",
                    columns[at].type_text, tie.what
                ));
                continue;
            }
            rewrites |= how == Widening::Rewrite;
            actions.push(format!(
                "ALTER COLUMN {quoted} TYPE {}",
                with_collation(&column)
            ));
            columns[at] = column;
        }
    }
    // A new column of an enum that gets labels, because another column has it, has them too.
    for column in &mut added {
        let mut columns = changes.relation.columns.iter();
        let like = |other: &&Column| {
            (&other.ty.schema, &other.ty.name) == (&column.ty.schema, &column.ty.name)
        };
        if let Some(other) = columns.find(like) {
            column.ty.clone_from(&other.ty);
        }
    }
    // The run itself fills the column that marks deleted rows.
    let is_mark = |column: &Column| deletes::mark_column(target) == Some(&column.name);
    let unfilled =
        |column: &&Column| schema.field_with_name(&column.name).is_err() && !is_mark(column);
    for column in relation.columns.iter().filter(unfilled) {
        if is_own(column) {
            continue;
        }
        let quoted = quote_ident(&column.name);
        let stays = stays(relation, table, found, column);
        match (policy.dropped_column, &stays) {
            (DroppedColumn::Fail, _) => return Err(refused(name, column, found)),
            (DroppedColumn::Drop, None) => {
                actions.push(format!("DROP COLUMN IF EXISTS {quoted}"));
                changes
                    .relation
                    .columns
                    .retain(|other| other.name != column.name);
            }
            (DroppedColumn::Drop, Some(why)) => {
                changes.told.push(column.name.clone());
                changes.notes.push(format!(
                    "{WARNING_NOTE}{quoted} stays, although schema_changes.dropped_column is drop: {}",
                    why.text()
                ));
            }
            (DroppedColumn::Keep, _) => {}
        }
        let is_dropped = policy.dropped_column == DroppedColumn::Drop && stays.is_none();
        let is_gone = matches!(stays, None | Some(Stays::Tied(_)));
        if is_gone
            && !is_dropped
            && has_no_filler(column)
            && column.not_null
            && policy.type_change != TypeChange::Fail
        {
            actions.push(format!("ALTER COLUMN {quoted} DROP NOT NULL"));
            let columns = changes.relation.columns.iter_mut();
            columns
                .filter(|other| other.name == column.name)
                .for_each(|other| other.not_null = false);
            changes.notes.push(format!(
                "{WARNING_NOTE}{quoted} becomes nullable, because the source dropped the column"
            ));
        }
    }
    if !actions.is_empty() {
        let alter = format!("ALTER TABLE {name} {}", actions.join(", "));
        changes.statements.push(alter);
    }
    if !without_default.is_empty() {
        let alter = format!("ALTER TABLE {name} {}", without_default.join(", "));
        changes.statements.push(alter);
    }
    changes
        .statements
        .extend(ddl::comments(&name.schema, &name.table, None, &added));
    if rewrites {
        changes.notes.push(
            "a transaction before the load writes all rows and indexes of the table anew: readers and writers wait for \
             it, which takes long for a large table; the changes stay if the load is aborted"
                .into(),
        );
    } else if !changes.statements.is_empty() {
        changes.notes.push(
            "a short transaction before the load changes the table, and readers wait for it; the changes stay if the \
             load is aborted"
                .into(),
        );
    }
    changes.added = added.iter().map(|column| column.name.clone()).collect();
    changes.moved = moved.into_iter().cloned().collect();
    changes.relation.columns.extend(added);
    if !ignored.is_empty() {
        let fields = schema.fields();
        let names: Vec<String> = ignored
            .iter()
            .map(|place| quote_ident(fields[*place].name()))
            .collect();
        changes.notes.push(format!(
            "{WARNING_NOTE}{name} lacks columns of the stream, and their values are left out, because \
             schema_changes.new_column is ignore: {}",
            names.join(", ")
        ));
        changes.kept = Some(
            (0..fields.len())
                .filter(|place| !ignored.contains(place))
                .collect(),
        );
    }
    Ok(changes)
}

/// The value that the rows of the table have at the source in a column that the source added: all of them were read
/// before, so the server of the source gives them its default. `None` if that is not proved, or if the column of the
/// table has another type. `adds_labels`: the changes add labels to enums, which nothing may use before they are
/// committed.
fn older_value<'a>(
    target: &Target,
    field: &Field,
    column: &Column,
    found: &'a Found,
    adds_labels: bool,
) -> Result<Option<&'a String>> {
    let Differences {
        source,
        known,
        older,
        ..
    } = &found.differences;
    let (Some(source), Some(newest)) = (source, known.newest) else {
        return Ok(None);
    };
    let Some(number) = source.number(field).map_err(convert)? else {
        return Ok(None);
    };
    let mut names = source.columns.iter();
    let name = names.find(|(_, there)| **there == number);
    let value = name.and_then(|(name, _)| older.get(name));
    let carried = carried(field).map_err(convert)?;
    let is_like_source = carried
        .is_some_and(|(carried, _)| (&carried.ty, carried.typmod) == (&column.ty, column.typmod));
    let is_enum = matches!(column.ty.kind, Kind::Enum { .. } | Kind::Array { .. });
    let is_proved = number > newest
        && target.write_mode != WriteMode::Replace
        && is_like_source
        && !(adds_labels && is_enum);
    Ok(value.filter(|_| is_proved))
}

/// Refuses to write values under the name of a column whose older rows hold the values of another column of the source.
/// `moved` are the fields for which that is so. Errors: `columns_renamed`.
fn refuse_mixed(
    target: &Target,
    name: &Name,
    (relation, table): (&Relation, &TableFacts),
    moved: &[&String],
    found: &Found,
) -> Result<()> {
    let refuse = |column: &str, text: String, hint: String| {
        Err(Error::schema("columns_renamed", text)
            .hint(hint)
            .in_column(column))
    };
    let Differences {
        denied, blocked, ..
    } = &found.differences;
    let by_name = "schema_changes: { renamed: off } writes by name";
    let is_there = |column: &String| relation.columns.iter().any(|there| there.name == *column);
    let taken = denied.iter().find(|(_, new)| is_there(new));
    if let Some((old, new)) = taken.or(blocked.first()) {
        let (old_quoted, quoted) = (quote_ident(old), quote_ident(new));
        let text = format!(
            "the source renamed {old_quoted} to {quoted}, and {name} has another column {quoted}: older rows would hold \
             other values there"
        );
        let hint = match found.is_gone(new) {
            _ if !table.may_alter => {
                let statements = renaming(name, denied).join("; ");
                format!("have the owner run: {statements}; {by_name}")
            }
            true => format!(
                "the source dropped the older {quoted}; run on the target: ALTER TABLE {name} DROP COLUMN {quoted}; \
                 ALTER TABLE {name} RENAME COLUMN {old_quoted} TO {quoted}; {by_name}"
            ),
            false => format!("rename or drop the column {quoted} of {name}; {by_name}"),
        };
        return refuse(new, text, hint);
    }
    let mut pairs = found.renamed.iter().chain(denied);
    if let Some((old, new)) = pairs.find(|(old, _)| target.deleted_field.as_ref() == Some(old)) {
        let text =
            format!("deleted_field names {old:?}, and the source calls this column {new:?} now");
        return refuse(old, text, format!("set deleted_field: {new}"));
    }
    let policy = &target.schema_changes;
    let is_fixed =
        policy.dropped_column == DroppedColumn::Fail || policy.new_column == NewColumn::Fail;
    match moved.first() {
        Some(column) if is_fixed => {
            let quoted = quote_ident(column);
            let text = format!(
                "another column of the source is called {quoted} now than when the older rows of {name} were written, and \
                 schema_changes has dropped_column or new_column: fail"
            );
            let hint = format!(
                "rename the column {quoted} of {name}, or set both to their defaults: new rows then get the new values \
                 under the old name"
            );
            refuse(column, text, hint)
        }
        _ => Ok(()),
    }
}

/// The reason why a column stays in the table although the stream lacks it.
enum Stays {
    /// The source does not prove that it dropped the column.
    Unproven(String),
    /// The run may not change it.
    Held(String),
    /// Something depends on it.
    Tied(String),
}

impl Stays {
    fn text(&self) -> &str {
        match self {
            Self::Unproven(text) | Self::Held(text) | Self::Tied(text) => text,
        }
    }
}

/// Returns `None` if the source proves that it dropped the column and nothing depends on it.
fn stays(relation: &Relation, table: &TableFacts, found: &Found, column: &Column) -> Option<Stays> {
    let name = &column.name;
    let unproven = |text: &str| Some(Stays::Unproven(text.to_owned()));
    if found.differences.source.is_none() {
        return unproven("the source does not tell dropped columns from columns that it left out");
    }
    if found.differences.known.shared.contains(name) {
        return unproven("another stream fills it, too");
    }
    if !found.differences.known.columns.contains_key(name) {
        return unproven("no run has recorded that it came from this source");
    }
    if let Some(there) = found.still_there(name) {
        let there = quote_ident(there);
        return unproven(&format!("the source still has the column, as {there}"));
    }
    if table.children > 0 {
        return Some(Stays::Held("other tables inherit it".into()));
    }
    if !table.may_alter {
        let text = "this role does not own the table, or another table defines its columns";
        return Some(Stays::Held(text.into()));
    }
    if relation.primary_key.contains(name) {
        return Some(Stays::Held("the primary key has it".into()));
    }
    let tie = found
        .differences
        .ties
        .iter()
        .find(|tie| tie.column == *name);
    tie.map(|tie| Stays::Tied(format!("this depends on it: {}", tie.what)))
}

impl Found {
    /// The first thing that keeps the server from changing the type of a column.
    fn holds_type(&self, column: &str) -> Option<&Tie> {
        let mut ties = self.differences.ties.iter();
        ties.find(|tie| tie.column == column && tie.holds_type)
    }

    /// The name at the source of a column that the stream lacks. `None` if the source dropped it, or if nothing is
    /// known of it.
    pub(crate) fn still_there(&self, column: &str) -> Option<&str> {
        let Differences { source, known, .. } = &self.differences;
        let number = known.columns.get(column)?;
        let mut columns = source.as_ref()?.columns.iter();
        columns
            .find(|(_, there)| *there == number)
            .map(|(name, _)| name.as_str())
    }

    /// Whether the source dropped the column that filled this column of the table.
    fn is_gone(&self, column: &str) -> bool {
        let Differences { source, known, .. } = &self.differences;
        source.is_some() && known.columns.contains_key(column) && self.still_there(column).is_none()
    }

    /// The old and the new name of a column that this role may not rename.
    pub(crate) fn denied(&self, new: &str) -> Option<(&str, &str)> {
        let mut denied = self.differences.denied.iter();
        let found = denied.find(|(_, name)| name == new);
        found.map(|(old, new)| (old.as_str(), new.as_str()))
    }

    /// The column with the existing type of the same name, which may have another definition.
    pub(crate) fn as_it_is_there(&self, column: &Column) -> Column {
        let there = self
            .there_types
            .iter()
            .find(|(name, _)| *name == column.name);
        let mut column = column.clone();
        if let Some((_, ty)) = there {
            column.ty.clone_from(ty);
        }
        column
    }
}

impl Changes {
    /// Whether the values of a field are left out.
    pub(crate) fn leaves_out(&self, place: usize) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| !kept.contains(&place))
    }
}

/// Whether the load needs the column for more than its values.
fn is_needed(target: &Target, field: &Field) -> bool {
    // A plain append uses no key.
    let is_key = target.write_mode == WriteMode::Upsert || !target.dedup_fields.is_empty();
    let key = target.primary_key.iter().filter(|_| is_key);
    let mut named = key.chain(&target.dedup_fields).chain(&target.deleted_field);
    named.any(|name| name == field.name())
}

/// The column with a wider type and how it gets it, if the policy allows it and the table may be changed.
fn widened(
    policy: TypeChange,
    field: &Field,
    column: &Column,
    new: &Column,
    table: &TableFacts,
) -> Result<Option<(Widening, Column)>> {
    // The texts of a file have no declared length.
    let is_declared = || carried(field).map(|carried| carried.is_some() || !new.ty.is_textual());
    let how = widening(column, new);
    let wider = match (how, policy) {
        _ if !table.may_alter || column.generated != Generated::No => false,
        (Some(Widening::InPlace), TypeChange::Widen | TypeChange::Rewrite)
        | (Some(Widening::Rewrite), TypeChange::Rewrite) => is_declared().map_err(convert)?,
        _ => false,
    };
    let column = Column {
        name: column.name.clone(),
        not_null: column.not_null,
        default: column.default.clone(),
        comment: column.comment.clone(),
        collation: column.collation.clone(),
        ..new.clone()
    };
    Ok(how.filter(|_| wider).map(|how| (how, column)))
}

/// Returns the policy that would widen a refused column, as words that follow the reason.
pub(crate) fn way_out(
    target: &Target,
    table: &TableFacts,
    found: &Found,
    column: &Column,
    new: &Column,
) -> String {
    if let (Some(_), Some(tie)) = (widening(column, new), found.holds_type(&column.name)) {
        return format!(
            "; the server does not change its type while this depends on it: {}",
            tie.what
        );
    }
    let way = match (widening(column, new), target.schema_changes.type_change) {
        (Some(Widening::Rewrite), TypeChange::Widen | TypeChange::Fail) if table.may_alter => {
            "; set schema_changes: { type_change: rewrite } to let the run change the type and write all rows anew"
        }
        (Some(Widening::InPlace), TypeChange::Fail) if table.may_alter => {
            "; set schema_changes: { type_change: widen } to let the run change the type"
        }
        _ => "",
    };
    way.to_owned()
}

/// Why a column that the table lacks is not added, behind the words that say that it lacks it.
pub(crate) fn why_not(
    target: &Target,
    name: &Name,
    field: &Field,
    table: &TableFacts,
    found: &Found,
) -> String {
    match target.schema_changes.new_column {
        NewColumn::Fail => ", and schema_changes.new_column is fail".into(),
        NewColumn::Ignore if is_needed(target, field) => {
            ", and the load needs it: it identifies rows, or marks them as deleted".into()
        }
        NewColumn::Add if !table.may_alter && matches!(table.kind, 'r' | 'p') => format!(
            ", and {} may not change the columns of {name}, because it does not own the table, or because another \
             table defines them",
            quote_ident(&found.facts.user)
        ),
        NewColumn::Add if !table.may_alter => format!(", and {name} is not a table of this server"),
        NewColumn::Add | NewColumn::Ignore => String::new(),
    }
}

fn refused(name: &Name, column: &Column, found: &Found) -> Error {
    let quoted = quote_ident(&column.name);
    let text = format!(
        "no column of the stream fills the column {quoted} of {name}, and schema_changes.dropped_column is fail"
    );
    let statement = match found.still_there(&column.name) {
        Some(there) => format!(
            "follow the source, which renamed it: ALTER TABLE {name} RENAME COLUMN {quoted} TO {}",
            quote_ident(there)
        ),
        None => format!("run on the target: ALTER TABLE {name} DROP COLUMN {quoted}"),
    };
    Error::schema("column_dropped", text)
        .hint(format!(
            "set dropped_column: keep, which leaves NULL there in new rows, or drop; or {statement}"
        ))
        .in_column(&column.name)
}

/// Lists the statements in the table of changes, in the transaction that is open. A role that may not make the table
/// changes its target all the same.
pub(crate) fn record(
    client: &mut Client,
    settings: &Settings,
    lease: &Lease,
    statements: &[String],
) -> Result<()> {
    let table = qualified(&settings.checkpoint_schema, CHANGE_TABLE);
    let insert = insert(&table, &lease.key, &lease.run_id, statements);
    let make = format!("CREATE TABLE IF NOT EXISTS {table} {COLUMNS}");
    for sql in [&insert, &format!("{make}; {insert}")] {
        match client.simple_query(&format!("{SAVEPOINT}; {sql}; {RELEASE}")) {
            Ok(_) => return Ok(()),
            Err(error) if !client.is_usable() => return Err(error),
            Err(error) => {
                client.simple_query(ROLLBACK)?;
                log::debug(format!("{table}: {}", error.message));
            }
        }
    }
    log::warn(format!(
        "the changes of {} are not listed in {table}, because this role may not make or write that table",
        lease.key.target
    ));
    Ok(())
}

fn insert(table: &str, key: &Key, run_id: &str, statements: &[String]) -> String {
    let rows = statements.iter().map(|statement| {
        let texts = [&key.pipeline, run_id, &key.stream, &key.target, statement];
        let texts = texts.map(quote_literal).join(", ");
        format!("(pg_catalog.clock_timestamp(), {texts})")
    });
    let rows: Vec<String> = rows.collect();
    format!(
        "INSERT INTO {table} (changed_at, pipeline, run_id, stream, target, statement) VALUES {}",
        rows.join(", ")
    )
}

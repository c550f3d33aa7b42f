//! Where the columns of a stream and of its table differ: the statements that change the table, and the table as it is
//! after them.
//!
//! They run in a short transaction of their own before the load, so that readers wait for a moment and not for the load.
//! The load then decides anew, from the catalog alone: a run that is killed in between leaves a table that the next run
//! understands.

use rapidbyte_pg::catalog::Relation;
use rapidbyte_pg::form::carried;
use rapidbyte_pg::ident::{check_column_name, qualified, quote_ident, quote_literal};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::widen::{Widening, missing_labels, widening};
use rapidbyte_pg::{Column, ddl};
use rapidbyte_pg_client::Client;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DroppedColumn, NewColumn, TypeChange, WARNING_NOTE, log};

use crate::checkpoint::{Key, Lease};
use crate::columns::{has_no_filler, is_own};
use crate::config::{CHANGE_TABLE, Name, Settings};
use crate::convert;
use crate::look::{Found, TableFacts};

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

/// What a run changes in a table before its rows come.
pub(crate) struct Changes {
    /// The statements, in order.
    pub statements: Vec<String>,
    /// The table after them, as far as the plan needs it: the server's numbers of its types may differ.
    pub relation: Relation,
    /// The fields of the stream that go to the table. `None`: all of them.
    pub kept: Option<Vec<usize>>,
    pub notes: Vec<String>,
}

/// Decides what is changed. `new` are the columns that a table made for the stream would have. Errors:
/// `column_dropped`, if the stream lacks a column and a policy refuses that.
pub(crate) fn decide(
    target: &Target,
    name: &Name,
    schema: &Schema,
    new: &[Result<Column, String>],
    relation: &Relation,
    table: &TableFacts,
) -> Result<Changes> {
    let policy = &target.schema_changes;
    let mut changes = Changes {
        statements: Vec::new(),
        relation: relation.clone(),
        kept: None,
        notes: Vec::new(),
    };
    // Of ALTER TABLE.
    let mut actions = Vec::new();
    let mut added = Vec::new();
    let mut ignored = Vec::new();
    let mut has_new = false;
    for (place, (field, new)) in schema.fields().iter().zip(new).enumerate() {
        let columns = &mut changes.relation.columns;
        let Some(at) = columns.iter().position(|c| c.name == *field.name()) else {
            has_new = true;
            match policy.new_column {
                NewColumn::Ignore if !is_needed(target, field) => ignored.push(place),
                NewColumn::Add if let Ok(new) = new => {
                    if table.may_alter && check_column_name(&new.name).is_ok() {
                        let column = ddl::column_with_type(new).map_err(convert)?;
                        actions.push(format!("ADD COLUMN IF NOT EXISTS {column}"));
                        // Rows that are there have nothing in it.
                        let not_null = false;
                        added.push(Column {
                            not_null,
                            ..new.clone()
                        });
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
            changes.statements.extend(statements);
            columns[at] = column;
        } else if let Some(column) = widened(policy.type_change, field, &columns[at], new, table)? {
            let (quoted, ty) = (quote_ident(&column.name), &column.type_text);
            actions.push(format!("ALTER COLUMN {quoted} TYPE {ty}"));
            columns[at] = column;
        }
    }
    let unfilled = |column: &&Column| schema.field_with_name(&column.name).is_err();
    for column in relation.columns.iter().filter(unfilled) {
        let quoted = quote_ident(&column.name);
        let is_key = relation.primary_key.contains(&column.name);
        if is_own(column) {
            continue;
        }
        match policy.dropped_column {
            DroppedColumn::Fail => return Err(refused(name, column)),
            DroppedColumn::Drop if table.may_alter && !is_key => {
                actions.push(format!("DROP COLUMN IF EXISTS {quoted}"));
                changes
                    .relation
                    .columns
                    .retain(|other| other.name != column.name);
            }
            DroppedColumn::Keep
                if has_no_filler(column)
                    && column.not_null
                    && table.may_alter
                    && !is_key
                    // A new column beside it may be the same one under a new name: somebody has to say so.
                    && !has_new
                    && policy.type_change != TypeChange::Fail =>
            {
                actions.push(format!("ALTER COLUMN {quoted} DROP NOT NULL"));
                let columns = changes.relation.columns.iter_mut();
                columns
                    .filter(|other| other.name == column.name)
                    .for_each(|other| other.not_null = false);
                changes.notes.push(format!(
                    "{WARNING_NOTE}{quoted} becomes nullable, because no column of the stream fills it"
                ));
            }
            DroppedColumn::Keep | DroppedColumn::Drop => {}
        }
    }
    if !actions.is_empty() {
        let alter = format!("ALTER TABLE {name} {}", actions.join(", "));
        changes.statements.push(alter);
    }
    changes
        .statements
        .extend(ddl::comments(&name.schema, &name.table, None, &added));
    if !added.is_empty() && target.write_mode != WriteMode::Replace {
        let names: Vec<String> = added
            .iter()
            .map(|column| quote_ident(&column.name))
            .collect();
        changes.notes.push(format!(
            "rows that are in the table have NULL in the new columns: {}",
            names.join(", ")
        ));
    }
    if !changes.statements.is_empty() {
        changes.notes.push(
            "a short transaction before the load changes the table, and readers wait for it; the changes stay if the \
             load is aborted"
                .into(),
        );
    }
    changes.relation.columns.extend(added);
    if !ignored.is_empty() {
        let all = 0..schema.fields().len();
        changes.kept = Some(all.filter(|place| !ignored.contains(place)).collect());
    }
    Ok(changes)
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
    let named = [&target.primary_key, &target.dedup_fields];
    let mut named = named.into_iter().flatten().chain(&target.deleted_field);
    named.any(|name| name == field.name())
}

/// The column with a wider type, if the policy allows it and the table may be changed.
fn widened(
    policy: TypeChange,
    field: &Field,
    column: &Column,
    new: &Column,
    table: &TableFacts,
) -> Result<Option<Column>> {
    // A text of a file has no length that somebody declared.
    let is_declared = || carried(field).map(|carried| carried.is_some() || !new.ty.is_textual());
    let wider = match (widening(column, new), policy) {
        _ if !table.may_alter || column.generated != Generated::No => false,
        (Some(Widening::InPlace), TypeChange::Widen | TypeChange::Rewrite)
        | (Some(Widening::Rewrite), TypeChange::Rewrite) => is_declared().map_err(convert)?,
        _ => false,
    };
    Ok(wider.then(|| Column {
        name: column.name.clone(),
        not_null: column.not_null,
        default: column.default.clone(),
        comment: column.comment.clone(),
        ..new.clone()
    }))
}

/// What would widen a column that is refused, behind the reason: the policy that allows it.
pub(crate) fn way_out(
    target: &Target,
    table: &TableFacts,
    column: &Column,
    new: &Column,
) -> &'static str {
    match (widening(column, new), target.schema_changes.type_change) {
        (Some(Widening::Rewrite), TypeChange::Widen | TypeChange::Fail) if table.may_alter => {
            "; set schema_changes: { type_change: rewrite } to let the run change the type and write all rows anew"
        }
        (Some(Widening::InPlace), TypeChange::Fail) if table.may_alter => {
            "; set schema_changes: { type_change: widen } to let the run change the type"
        }
        _ => "",
    }
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
        NewColumn::Add | NewColumn::Ignore => String::new(),
    }
}

fn refused(name: &Name, column: &Column) -> Error {
    let quoted = quote_ident(&column.name);
    let text = format!(
        "no column of the stream fills the column {quoted} of {name}, and schema_changes.dropped_column is fail"
    );
    Error::schema("column_dropped", text)
        .hint(format!(
            "set dropped_column: keep, which leaves NULL there in new rows, or drop; or run on the target: \
             ALTER TABLE {name} DROP COLUMN {quoted}"
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
    let insert = insert(&table, lease.key(), lease.run_id(), statements);
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
        lease.key().target()
    ));
    Ok(())
}

fn insert(table: &str, key: &Key, run_id: &str, statements: &[String]) -> String {
    let rows = statements.iter().map(|statement| {
        let texts = [
            key.pipeline(),
            run_id,
            key.stream(),
            key.target(),
            statement,
        ];
        let texts = texts.map(quote_literal).join(", ");
        format!("(pg_catalog.clock_timestamp(), {texts})")
    });
    let rows: Vec<String> = rows.collect();
    format!(
        "INSERT INTO {table} (changed_at, pipeline, run_id, stream, target, statement) VALUES {}",
        rows.join(", ")
    )
}

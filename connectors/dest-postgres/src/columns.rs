//! Compares the columns of a table with the columns of a stream: what becomes of each, and what to do
//! about columns that do not fit.

use rapidbyte_pg::builtin::Builtin;
use rapidbyte_pg::fit::column_for;
use rapidbyte_pg::form;
use rapidbyte_pg::ident::{check_column_name, quote_ident};
use rapidbyte_pg::model::Generated;
use rapidbyte_pg::{Column, Fit as PgFit, Kind, PgType, builtin, fit};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use rapidbyte_sdk::{Fit, WARNING_NOTE};

use crate::config::Name;
use crate::convert;

/// `there`: the table, if it is there.
pub(crate) fn column_plan(
    there: Option<&Name>,
    field: &Field,
    column: &Column,
    fit: PgFit,
) -> Result<ColumnPlan> {
    // The host may have the source read JSON as these texts.
    let is_text = there.is_some() && column.ty.is_textual();
    let mut stored_type = is_text.then(|| type_name(&form::field(column, false)));
    if matches!(fit, PgFit::Checked(_) | PgFit::Cast(_)) {
        // The host may know texts that the server is certain to refuse.
        stored_type = stored_type.or_else(|| there.map(|_| held_type(column)));
    }
    let (fit, note) = match fit {
        PgFit::Direct => (Fit::Exact, None),
        PgFit::Converted(note) => (Fit::Exact, Some(note)),
        PgFit::Widened(note) => {
            // The host may have the source read numbers as wide as the column is.
            stored_type = stored_type.or_else(|| there.map(|_| held_type(column)));
            (Fit::Widened, Some(note))
        }
        PgFit::Checked(note) => (
            Fit::Checked,
            Some(format!(
                "the server casts the text to {}; {note}",
                column.type_text
            )),
        ),
        PgFit::Cast(ty) => (
            Fit::Checked,
            Some(format!(
                "the server casts the text to {ty}; a text that would not keep its value is \
                     refused"
            )),
        ),
        PgFit::Refused(reason) if column.is_computed() => {
            let hint = "leave the column out with `columns:`";
            (Fit::Refused, Some(format!("{reason}: {hint}")))
        }
        PgFit::Refused(reason) => {
            stored_type = there.map(|_| held_type(column));
            let change = there.map(|name| change_of_type(name, field, column));
            let change = change.transpose()?.flatten();
            let note = change.map(|sql| format!("{reason}; {sql}"));
            (Fit::Refused, Some(note.unwrap_or(reason)))
        }
    };
    Ok(ColumnPlan {
        column: field.name().clone(),
        target_type: column.type_text.clone(),
        fit,
        note,
        stored_type,
    })
}

/// The type whose values a column holds exactly. Times of fewer than six digits of a second have a coarser unit.
fn held_type(column: &Column) -> String {
    let name = type_name(&form::field(column, false));
    let (ty, digits) = column.stripped();
    let (element, digits) = match &ty.kind {
        Kind::Array { element } => element.stripped(digits),
        _ => (ty, digits),
    };
    let unit = match digits {
        0..=2 => "s",
        3..=5 => "ms",
        _ => return name,
    };
    let times = [
        (builtin::TIME, "time", format!("time({unit})")),
        (
            builtin::TIMESTAMP,
            "timestamp",
            format!("timestamp({unit})"),
        ),
        (
            builtin::TIMESTAMPTZ,
            "timestamptz",
            format!("timestamp({unit}, UTC)"),
        ),
    ];
    match times.iter().find(|(time, ..)| time.oid == element.oid) {
        Some((_, plain, coarse)) => name.replace(plain, coarse),
        None => name,
    }
}

/// The statement that gives a column the type that the stream's values have, where that would do and
/// holds every value that may be there, or stops at one that it does not hold.
fn change_of_type(name: &Name, field: &Field, column: &Column) -> Result<Option<String>> {
    let Ok(new) = column_for(field).map_err(convert)? else {
        return Ok(None);
    };
    let is_new = new.type_text != column.type_text;
    if !is_new || matches!(fit(field, &new).map_err(convert)?, PgFit::Refused(_)) {
        return Ok(None);
    }
    let holds_all = fit(&form::field(column, true), &new).map_err(convert)?;
    let quoted = quote_ident(&column.name);
    let (value, stops) = if matches!(holds_all, PgFit::Direct | PgFit::Widened(_)) {
        (format!("{quoted}::{}", new.type_text), "")
    } else if let Some(value) = exact_cast(&quoted, column, &new) {
        (
            value,
            ", which stops at a value that the new type does not hold",
        )
    } else {
        // The statement might round or cut existing values, so no hint suggests it.
        return Ok(None);
    };
    if matches!(column.ty.kind, Kind::Domain { .. }) {
        // Its owner chose the limits, and another type would lose them.
        return Ok(None);
    }
    let ty = with_collation(&Column {
        collation: column.collation.clone(),
        ..new
    });
    Ok(Some(format!(
        "run on the target{stops}: ALTER TABLE {name} ALTER COLUMN {quoted} TYPE {ty} USING {value}"
    )))
}

/// The values of a column, which has a type that a file's values are inferred as, in another type; SQL that fails at a
/// value that would be another one. None where what a text means depends on settings, as a date does, or where the
/// column has a type that somebody chose.
fn exact_cast(quoted: &str, column: &Column, new: &Column) -> Option<String> {
    const NUMBERS: [Builtin; 6] = [
        builtin::INT2,
        builtin::INT4,
        builtin::INT8,
        builtin::FLOAT4,
        builtin::FLOAT8,
        builtin::NUMERIC,
    ];
    let is = |column: &Column, types: &[Builtin]| types.iter().any(|ty| ty.oid == column.ty.oid);
    let ty = &new.type_text;
    let cast = format!("{quoted}::{ty}");
    let checked = |is_same: String| {
        format!("CASE WHEN {is_same} THEN {cast} ELSE ('would change: ' || {quoted})::{ty} END")
    };
    let is_text = is(column, &[builtin::TEXT]);
    if is_text && is(new, &[builtin::FLOAT4, builtin::FLOAT8, builtin::NUMERIC]) {
        return Some(checked(format!(
            "{cast}::numeric IS NOT DISTINCT FROM {quoted}::numeric"
        )));
    }
    if is_text && (is(new, &NUMBERS) || is(new, &[builtin::BOOL, builtin::UUID])) {
        return Some(cast);
    }
    let narrows = is(column, &[builtin::INT8, builtin::FLOAT8]) && is(new, &NUMBERS)
        || is(column, &[builtin::TIMESTAMP]) && is(new, &[builtin::DATE]);
    let back = &column.type_text;
    narrows.then(|| checked(format!("{cast}::{back} IS NOT DISTINCT FROM {quoted}")))
}

const EMPTY_NAME: &str = "a column of the stream has an empty name, and no table can have such a column: a header may end in a \
    delimiter; give it a name with `rename:`, or leave it out with `columns:`";

/// A column that the table has under its old name, which this role may not change.
pub(crate) fn denied(name: &Name, field: &Field, old: &str, new: &str) -> ColumnPlan {
    let (old, new) = (quote_ident(old), quote_ident(new));
    ColumnPlan {
        column: field.name().clone(),
        target_type: String::new(),
        fit: Fit::Refused,
        note: Some(format!(
            "{name} has it under its old name, and this role may not rename it; have the owner run: ALTER TABLE {name} \
             RENAME COLUMN {old} TO {new}"
        )),
        stored_type: None,
    }
}

/// A column that the table lacks, and that the policy leaves out.
pub(crate) fn ignored(name: &Name, field: &Field) -> ColumnPlan {
    ColumnPlan {
        column: field.name().clone(),
        target_type: String::new(),
        fit: Fit::Ignored,
        note: Some(format!(
            "{name} does not have it, and schema_changes.new_column is ignore"
        )),
        stored_type: None,
    }
}

/// A column that the table lacks, and that the run does not add: `why` says why not.
pub(crate) fn absent(name: &Name, field: &Field, why: &str) -> Result<ColumnPlan> {
    let column = column_for(field).map_err(convert)?;
    let target_type = column.map_or_else(|_| String::new(), |column| column.type_text);
    let column = quote_ident(field.name());
    let unfit = check_column_name(field.name()).err();
    let note = match (target_type.as_str(), unfit) {
        _ if field.name().is_empty() => EMPTY_NAME.to_owned(),
        (_, Some(unfit)) => format!("{}; {}", unfit.message, unfit.hint.unwrap_or_default()),
        ("", None) => format!("{name} has no column {column}"),
        (ty, None) => format!(
            "{name} has no column {column}{why}; run on the target: ALTER TABLE {name} ADD COLUMN \
                 {column} {ty}; or leave it out with `columns:`"
        ),
    };
    Ok(ColumnPlan {
        column: field.name().clone(),
        target_type,
        fit: Fit::Refused,
        note: Some(note),
        stored_type: None,
    })
}

/// Columns of the table that the stream does not have must get along without it. `new`: columns of the stream that
/// the table does not have. `key`: the primary key of the table.
pub(crate) fn refuse_unfilled(
    name: &Name,
    unfilled: &[&Column],
    new: &[&str],
    key: &[String],
) -> Result<()> {
    let needs =
        |column: &&&Column| has_no_filler(column) && (column.not_null || refuses_null(&column.ty));
    let Some(column) = unfilled.iter().find(needs) else {
        return Ok(());
    };
    let quoted = quote_ident(&column.name);
    let renamed = match new {
        [] => String::new(),
        [new] => format!(
            "if the source renamed the column, its new name is {}, which the table lacks: run on the target: \
             ALTER TABLE {name} RENAME COLUMN {quoted} TO {}; or keep the old name with `rename:`. Otherwise ",
            quote_ident(new),
            quote_ident(new)
        ),
        new => {
            let names: Vec<String> = new.iter().map(|new| quote_ident(new)).collect();
            format!(
                "if the source renamed the column, its new name is one of those that the table lacks ({}): run on the \
                 target: ALTER TABLE {name} RENAME COLUMN {quoted} TO that name; or keep the old name with `rename:`. \
                 Otherwise ",
                names.join(", ")
            )
        }
    };
    Err(Error::schema(
        "unfilled_column",
        format!("the column {quoted} of {name} is NOT NULL without a default, and the stream \
             does not fill it"),
    )
    .hint(match key.contains(&column.name) {
        true => format!(
            "{renamed}give the column a default, or drop the primary key, which has it, and then run on the target: \
             ALTER TABLE {name} ALTER COLUMN {quoted} DROP NOT NULL"
        ),
        false => format!(
            "{renamed}run on the target: ALTER TABLE {name} ALTER COLUMN {quoted} DROP NOT NULL, or give it a default"
        ),
    })
    .in_column(&column.name))
}

/// The note about a column that the stream does not have. It is a warning: the source may have dropped the column, and
/// its values are then old, or gone after `replace`. The target's owner added a column with a default, such as
/// `loaded_at DEFAULT now()`, so its note is not a warning. `there`: the source still has the column, under this name.
pub(crate) fn unfilled_note(column: &Column, mode: WriteMode, there: Option<&str>) -> String {
    let gets = match column.generated {
        _ if column.is_computed() => "a value that the server computes",
        Generated::IdentityAlways | Generated::IdentityByDefault => "the next number",
        _ if column.default.is_some() || has_type_default(&column.ty) => "its default",
        _ => "NULL",
    };
    let name = quote_ident(&column.name);
    let rows = match mode {
        WriteMode::Replace => "all",
        WriteMode::Append | WriteMode::Upsert => "new",
    };
    let note = format!(
        "no column of the stream fills the target's column {name}: {rows} rows get {gets} there"
    );
    let (kept, rest) = match mode {
        WriteMode::Upsert => (
            ", and updated rows keep their old value",
            ", once nobody needs the old values",
        ),
        WriteMode::Append => ("", ", once nobody needs the values of older rows"),
        WriteMode::Replace => ("", ""),
    };
    if is_own(column) {
        return note;
    }
    if let Some(there) = there {
        let there = quote_ident(there);
        return format!("{WARNING_NOTE}{note}{kept}; the source still has the column, as {there}");
    }
    format!(
        "{WARNING_NOTE}{note}{kept}; if the source dropped the column, drop it at the target too{rest}"
    )
}

/// Whether the server lacks a value for rows without one.
pub(crate) fn has_no_filler(column: &Column) -> bool {
    column.default.is_none() && column.generated == Generated::No && !has_type_default(&column.ty)
}

/// Whether the target's owner added the column: the server has a value of its own for it.
pub(crate) fn is_own(column: &Column) -> bool {
    column.is_computed() || has_sequence(column) || column.default.is_some()
}

pub(crate) fn refuses_null(ty: &PgType) -> bool {
    match &ty.kind {
        Kind::Domain { not_null, base, .. } => *not_null || refuses_null(base),
        _ => false,
    }
}

/// Whether a domain has a default, its own or that of a domain below it.
pub(crate) fn has_type_default(ty: &PgType) -> bool {
    match &ty.kind {
        Kind::Domain { default, base, .. } => default.is_some() || has_type_default(base),
        _ => false,
    }
}

/// Values that a sequence would else give do not move it.
pub(crate) fn sequence_note(column: &Column) -> Option<String> {
    has_sequence(column).then(|| {
        let column = quote_ident(&column.name);
        format!("{column} keeps the stream's values, and its sequence does not advance")
    })
}

/// True for a column whose values come from a sequence where nobody gives them.
fn has_sequence(column: &Column) -> bool {
    let default = column.default.as_deref().unwrap_or_default();
    let is_identity = matches!(
        column.generated,
        Generated::IdentityAlways | Generated::IdentityByDefault
    );
    is_identity || default.contains("nextval(")
}

/// Warns of a source that has proved before which of its columns is which, and does not any more: columns that exchange
/// their names then go unnoticed. `replace` mixes nothing, because no row stays.
pub(crate) fn unproved_note(name: &Name, mode: WriteMode, is_unproved: bool) -> Option<String> {
    let mixes = is_unproved && mode != WriteMode::Replace;
    mixes.then(|| {
        format!(
            "{WARNING_NOTE}the source does not prove any more which of its columns is which: if columns exchanged their \
             names, {name} mixes their values. Run on the source: GRANT EXECUTE ON FUNCTION \
             pg_catalog.pg_control_system() TO its role"
        )
    })
}

/// The type of a column for ALTER COLUMN, with its collation: without it, the server resets the collation.
pub(crate) fn with_collation(column: &Column) -> String {
    match &column.collation {
        Some(collation) => format!("{} COLLATE {collation}", column.type_text),
        None => column.type_text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_adds_a_column_that_no_table_can_have() {
        let name = Name {
            schema: "s".into(),
            table: "t".into(),
        };
        let note = |field| {
            let field = Field::new(field, DataType::Utf8, true);
            absent(&name, &field, "").unwrap().note.unwrap()
        };
        assert!(note("a").contains("ADD COLUMN a text"), "{}", note("a"));
        assert!(!note("").contains("ALTER TABLE"), "{}", note(""));
        assert!(note("").contains("empty name"), "{}", note(""));
        let long = "ü".repeat(32);
        for (name, says) in [
            (long.as_str(), "more than 63 bytes"),
            ("a\0", "NUL"),
            ("xmin", "system column"),
        ] {
            let note = note(name);
            assert!(
                note.contains(says) && !note.contains("ALTER TABLE"),
                "{note}"
            );
        }
    }
}

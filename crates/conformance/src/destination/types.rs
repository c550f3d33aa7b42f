//! Which types a destination takes, and whether it keeps its word.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use rapidbyte_runtime::{ErrorKind, Fit, Plan};

use super::{Load, Subject};
use crate::bench::Trouble;
use crate::same::KEY;
use crate::values;
use crate::verdict::*;

/// Rows of each type, NULLs among them.
const ROWS: usize = 6;

/// Asks about each type alone, then writes all that are taken.
pub(super) fn judge(subject: &Subject<'_>) -> Judged {
    const ACTION: &str = "refuse a type in plan, by its column (fit refused, or an error of kind schema or config), or write it";
    subject.needs_write()?;
    let mut taken = Vec::new();
    let mut refused = Vec::new();
    for name in values::TYPES {
        let field = values::column(name).map_err(skip)?;
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        let target = subject.target("types", &schema, false);
        match takes(subject.planned(&target), &field) {
            Ok(true) => taken.push((*name, field)),
            Ok(false) => refused.push(*name),
            Err(Trouble::Error(call, error)) => {
                let seen = format!("{name}: {} [{}]", error.message, error.code);
                let trouble = Trouble::Error(call, error);
                return Err(match trouble.fails_unless_settings(ACTION) {
                    Verdict::Fail { action, .. } => fail(seen, action),
                    other => other,
                });
            }
            Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
        }
    }
    if taken.is_empty() {
        return Err(fail("every type is refused", "take at least one type"));
    }
    let fields: Vec<Field> = taken.iter().map(|(_, field)| field.clone()).collect();
    let types = fields.clone();
    let key = Field::new(KEY, DataType::Int64, false);
    let fields: Vec<Field> = std::iter::once(key).chain(fields).collect();
    let schema = Arc::new(Schema::new(fields));
    let target = subject.target("types", &schema, false);
    let written = Load::begin(subject, &target, schema, "types").and_then(|mut load| {
        load.write(0..ROWS)?;
        let part = load.flush()?;
        let receipt = load.commit(&[part], None, true)?;
        Ok((receipt, load.plan.clone(), load.written()?))
    });
    let (receipt, plan, rows) = written.map_err(|trouble| match trouble {
        // Where simple rows cannot be written either, another clause says so.
        Trouble::Error(call, error) if !matches!(error.kind, ErrorKind::Config) => fail(
            format!(
                "planned, and then {call}: {} [{}]",
                error.message, error.code
            ),
            ACTION,
        ),
        trouble => trouble.fails_unless_settings(ACTION),
    })?;
    if receipt.rows != ROWS as u64 {
        let seen = format!("{ROWS} rows of all types, the receipt has {}", receipt.rows);
        return Err(fail(seen, ACTION));
    }
    let kept = subject.kept(&target, &plan, &rows, ACTION)?;
    *subject.taken.borrow_mut() = types;
    Ok(match refused.is_empty() {
        true => format!("{} types; {kept}", taken.len()),
        false => format!(
            "{} types; refused: {}; {kept}",
            taken.len(),
            refused.join(", ")
        ),
    })
}

/// Whether a plan takes the column; an error that does not refuse it by name stays one.
fn takes(planned: Result<Plan, Trouble>, field: &Field) -> Result<bool, Trouble> {
    match planned {
        Ok(plan) => Ok(plan.columns.iter().all(|column| column.fit != Fit::Refused)),
        Err(Trouble::Error(call, error)) => {
            let is_theirs = matches!(
                error.kind,
                ErrorKind::Schema | ErrorKind::Config | ErrorKind::Data
            );
            let column = error.column.as_deref();
            let names = column == Some(field.name()) || error.message.contains(field.name());
            match is_theirs && names {
                true => Ok(false),
                false => Err(Trouble::Error(call, error)),
            }
        }
        Err(trouble) => Err(trouble),
    }
}

//! Values at the edges of the types: each is kept as plan says, or refused by its column.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte_runtime::{ConnectorError, ErrorKind, Plan};

use super::{Load, Subject};
use crate::bench::Trouble;
use crate::same::KEY;
use crate::values::{EDGES, edges};
use crate::verdict::*;

const ACTION: &str = "keep the value as plan says of its column, or refuse it with an error of kind data that names the column";

/// Rows of each column that are left out, because the destination refuses their values.
type Refused = BTreeMap<String, BTreeSet<usize>>;

pub(super) fn judge(subject: &Subject<'_>) -> Judged {
    subject.needs_write()?;
    let fields = subject.taken.borrow().clone();
    if fields.is_empty() {
        return Err(skip("no type can be written: see types"));
    }
    let mut refused = Refused::new();
    // Each round finds the values that one column refuses.
    for _ in 0..=fields.len() {
        match write(subject, "values", &fields, &refused) {
            Ok((target, plan, rows)) => {
                let kept = subject.kept(&target, &plan, &rows, ACTION)?;
                return Ok(format!("{}{kept}", told(&refused)));
            }
            Err(Trouble::Error(_, error)) => {
                let column = column(&fields, &error)?;
                if refused.contains_key(column.name()) {
                    let seen = format!(
                        "column {}: {} [{}], where each value by itself is taken or left out",
                        column.name(),
                        error.message,
                        error.code
                    );
                    return Err(fail(seen, ACTION));
                }
                let rows = alone(subject, &column)?;
                refused.insert(column.name().clone(), rows);
            }
            Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
        }
    }
    Err(skip("more values are refused than a test tries"))
}

fn told(refused: &Refused) -> String {
    let columns = refused.iter().filter(|(_, rows)| !rows.is_empty());
    let columns = columns.map(|(column, rows)| format!("{column} refuses {}", rows.len()));
    let columns: Vec<String> = columns.collect();
    match columns.is_empty() {
        true => String::new(),
        false => format!("{}; ", columns.join(", ")),
    }
}

/// The column of a refusal, which is an error of kind data.
fn column(fields: &[Field], error: &ConnectorError) -> Result<Field, Verdict> {
    let text = format!("{:?}: {} [{}]", error.kind, error.message, error.code);
    if !matches!(error.kind, ErrorKind::Data) {
        return Err(fail(text, ACTION));
    }
    let by_name = |name: &str| fields.iter().find(|field| field.name() == name);
    let named = error.column.as_deref().and_then(by_name);
    // Whole words: c_int8 is not c_int8_more.
    let in_message = || {
        let mut words = error
            .message
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.find_map(by_name)
    };
    let field = named.or_else(in_message);
    field.cloned().ok_or_else(|| fail(text, ACTION))
}

/// The rows of the values that a column refuses by themselves.
fn alone(subject: &Subject<'_>, field: &Field) -> Result<BTreeSet<usize>, Verdict> {
    let all = edges(field, &BTreeSet::new()).map_err(skip)?;
    let mut found = BTreeSet::new();
    for row in (0..EDGES).filter(|row| all.is_valid(*row)) {
        let others: BTreeSet<usize> = (0..EDGES).filter(|other| *other != row).collect();
        let left_out = Refused::from([(field.name().clone(), others)]);
        let stream = format!("value_{row}_{}", field.name());
        match write(subject, &stream, std::slice::from_ref(field), &left_out) {
            Ok(_) => {}
            Err(Trouble::Error(_, error)) => {
                column(std::slice::from_ref(field), &error)?;
                found.insert(row);
            }
            Err(trouble) => return Err(trouble.fails_unless_settings(ACTION)),
        }
    }
    match found.is_empty() {
        false => Ok(found),
        true => {
            let seen = format!(
                "column {}: refused together, and each value by itself is taken",
                field.name()
            );
            Err(fail(seen, ACTION))
        }
    }
}

/// Commits the edges of these columns.
fn write(
    subject: &Subject<'_>,
    stream: &str,
    fields: &[Field],
    refused: &Refused,
) -> Result<(rapidbyte_runtime::Target, Plan, RecordBatch), Trouble> {
    let key = Field::new(KEY, DataType::Int64, false);
    let all: Vec<Field> = std::iter::once(key).chain(fields.iter().cloned()).collect();
    let schema = Arc::new(Schema::new(all));
    let keys: ArrayRef = Arc::new((0..EDGES as i64).map(Some).collect::<Int64Array>());
    let mut columns = vec![keys];
    let none = BTreeSet::new();
    for field in fields {
        let dropped = refused.get(field.name()).unwrap_or(&none);
        columns.push(edges(field, dropped).map_err(Trouble::Broken)?);
    }
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns);
    let rows = rows.map_err(|error| Trouble::Broken(error.to_string()))?;
    // A destination that only appends gets a stream of its own for each round.
    let round = refused.len();
    let target = subject.target(&format!("{stream}_{round}"), &schema, false);
    let mut load = Load::begin(subject, &target, schema, stream)?;
    load.write_rows(&rows)?;
    let part = load.flush()?;
    load.commit(&[part], None, true)?;
    Ok((target, load.plan.clone(), rows))
}

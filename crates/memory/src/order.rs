//! Incremental reads: the rows of a table in the order of some of its columns, from a cursor on.
//!
//! The columns that order the rows are 64-bit integers and not nullable. The cursor is JSON:
//!
//! ```json
//! {"fields":["changed_at","id"],"values":[1767225600,7]}
//! ```

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::{DataType, Schema};
use arrow_select::interleave::interleave_record_batch;
use rapidbyte_runtime::{ConnectorError, ErrorKind, Increment, LateRows, broken};
use serde::{Deserialize, Serialize};

use crate::Table;

/// The number of rows in one step.
const STEP_ROWS: usize = 256;

/// A step of a read.
pub(crate) enum Step {
    /// Rows.
    Rows(RecordBatch),
    /// The cursor of all rows before it.
    Checkpoint(String),
}

/// The place where a stream resumes: the values of the last row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    fields: Vec<String>,
    values: Vec<i64>,
}

/// The order of a read, and its first row.
pub(crate) struct Order {
    fields: Vec<String>,
    /// The indexes of the fields in the table.
    columns: Vec<usize>,
    from: From,
}

/// The first row of a read.
enum From {
    First,
    /// Rows with these values or higher ones.
    At(Vec<i64>),
    /// Rows with higher values.
    Behind(Vec<i64>),
}

/// The columns that can order a table.
pub(crate) fn fields(table: &Table) -> Vec<String> {
    let fields = table.schema.fields().iter();
    let fields =
        fields.filter(|field| *field.data_type() == DataType::Int64 && !field.is_nullable());
    fields.map(|field| field.name().clone()).collect()
}

/// The index of a column.
pub(crate) fn index_of(schema: &Schema, column: &str) -> Result<usize, ConnectorError> {
    schema.index_of(column).map_err(|_| {
        let text = format!("no column {column:?}");
        ConnectorError::new(ErrorKind::Schema, "unknown_column", text)
    })
}

impl Order {
    /// The order of an incremental read from a cursor on. Errors: `unknown_column`, `unsupported_cursor_field`,
    /// `unsupported_change_detection`, `lag_needs_upsert`, `invalid_cursor_initial`, `invalid_lag`,
    /// `cursor_unreadable`, `cursor_changed`.
    pub fn of(
        table: &Table,
        increment: &Increment,
        cursor: Option<&str>,
    ) -> Result<Self, ConnectorError> {
        let fields = increment.cursor_fields.clone();
        let known = self::fields(table);
        let column = |field: &String| {
            let index = index_of(&table.schema, field)?;
            match known.contains(field) {
                true => Ok(index),
                false => {
                    let text = format!("{field:?} is not of 64-bit integers, or is nullable");
                    Err(refused("unsupported_cursor_field", text))
                }
            }
        };
        let columns = fields.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        if columns.is_empty() {
            return Err(refused(
                "unsupported_cursor_field",
                "no column orders the rows",
            ));
        }
        let lag = match &increment.late_rows {
            LateRows::Exact => {
                let text = "tables in memory know no transactions";
                return Err(refused("unsupported_change_detection", text));
            }
            LateRows::Lag(Some(_)) if !increment.allow_duplicates => {
                let text = "the rows up to the cursor would be written twice";
                return Err(refused("lag_needs_upsert", text));
            }
            LateRows::Lag(lag) => lag.as_deref().map_or(Ok(0), lag_of)?,
        };
        let initial = increment.initial.as_deref();
        let initial = initial.map(|values| initial_of(values, fields.len()));
        let initial = initial.transpose()?;
        let from = match cursor
            .map(|cursor| Cursor::of(cursor, &fields))
            .transpose()?
        {
            None => initial.map_or(From::First, From::At),
            Some(Cursor { values, .. }) if increment.allow_duplicates => {
                let low = values[0].saturating_sub(lag);
                // The read starts at the lowest value of every other field.
                let low = std::iter::once(low)
                    .chain(vec![i64::MIN; fields.len() - 1])
                    .collect();
                From::At(initial.into_iter().chain([low]).max().unwrap_or_default())
            }
            Some(Cursor { values, .. }) => From::Behind(values),
        };
        Ok(Self {
            fields,
            columns,
            from,
        })
    }

    /// The rows in their order. A checkpoint falls between two rows with different values, and after the last row.
    pub fn steps(&self, table: &Table) -> Result<Vec<Step>, ConnectorError> {
        let mut rows: Vec<(Vec<i64>, (usize, usize))> = Vec::new();
        for (of, batch) in table.batches.iter().enumerate() {
            let arrays = self.columns.iter().map(|column| batch.column(*column));
            let arrays: Vec<_> = arrays
                .map(|array| array.as_primitive::<Int64Type>())
                .collect();
            for row in 0..batch.num_rows() {
                let values: Vec<i64> = arrays.iter().map(|array| array.value(row)).collect();
                let is_wanted = match &self.from {
                    From::First => true,
                    From::At(first) => values >= *first,
                    From::Behind(last) => values > *last,
                };
                if is_wanted {
                    rows.push((values, (of, row)));
                }
            }
        }
        rows.sort();
        let batches: Vec<&RecordBatch> = table.batches.iter().collect();
        let mut steps = Vec::new();
        let mut chunks = rows.chunks(STEP_ROWS).peekable();
        while let Some(chunk) = chunks.next() {
            let places: Vec<(usize, usize)> = chunk.iter().map(|(_, place)| *place).collect();
            let rows = interleave_record_batch(&batches, &places).map_err(broken)?;
            steps.push(Step::Rows(rows));
            let (last, next) = (chunk.last(), chunks.peek().and_then(|chunk| chunk.first()));
            if let Some((values, _)) = last
                && next.is_none_or(|(next, _)| next != values)
            {
                steps.push(Step::Checkpoint(self.cursor(values)?));
            }
        }
        Ok(steps)
    }

    fn cursor(&self, values: &[i64]) -> Result<String, ConnectorError> {
        let cursor = Cursor {
            fields: self.fields.clone(),
            values: values.to_vec(),
        };
        serde_json::to_string(&cursor).map_err(broken)
    }
}

impl Cursor {
    fn of(text: &str, fields: &[String]) -> Result<Self, ConnectorError> {
        let cursor: Self = serde_json::from_str(text)
            .map_err(|error| refused("cursor_unreadable", format!("the stored cursor: {error}")))?;
        match cursor.fields == fields && cursor.values.len() == fields.len() {
            true => Ok(cursor),
            false => {
                let text = format!("the cursor is of {}", cursor.fields.join(", "));
                Err(refused("cursor_changed", text))
            }
        }
    }
}

fn lag_of(text: &str) -> Result<i64, ConnectorError> {
    let lag = text.parse().ok().filter(|lag| *lag >= 0);
    lag.ok_or_else(|| {
        refused(
            "invalid_lag",
            format!("lag {text:?} is not a number from 0 on"),
        )
    })
}

fn initial_of(values: &[String], fields: usize) -> Result<Vec<i64>, ConnectorError> {
    let parsed = values.iter().map(|value| value.parse().ok());
    let parsed: Option<Vec<i64>> = parsed.collect();
    parsed
        .filter(|parsed| parsed.len() == fields)
        .ok_or_else(|| {
            let text = format!(
                "cursor_initial {} is not one integer for each field",
                values.join(", ")
            );
            refused("invalid_cursor_initial", text)
        })
}

fn refused(code: &str, text: impl std::fmt::Display) -> ConnectorError {
    ConnectorError::new(ErrorKind::Config, code, text)
}

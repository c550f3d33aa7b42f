//! Rows in the types of the table that they go to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Schema, SchemaRef};
use rapidbyte::batches::ConnectorError;
use rapidbyte_formats::{Format, Limits, Picked};
use rapidbyte_wire::types::data_type_name;

use crate::refusal::{Refusal, Result};

/// Gives batches, one after the other, the columns of the target. A value that would change is refused, with its row.
pub fn converter() -> impl Fn(&RecordBatch, &SchemaRef) -> Result<RecordBatch, ConnectorError> {
    let before = AtomicU64::new(0);
    move |batch, stored| {
        let rows = before.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        convert(batch, stored).map_err(|refusal| refusal.after(rows).into_connector())
    }
}

/// By way of JSON text, whose reader knows which values a column holds exactly.
fn convert(batch: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = batch.columns().to_vec();
    for (column, field) in columns.iter_mut().zip(stored.fields()) {
        if *column.data_type() == DataType::Float64 {
            let made = float(column.as_primitive(), field.data_type());
            if let Some(made) = made.map_err(|refusal| refusal.in_column(field.name()))? {
                *column = made;
            }
        }
    }
    let is_other = |at: &usize| columns[*at].data_type() != stored.field(*at).data_type();
    let places: Vec<usize> = (0..batch.num_columns()).filter(is_other).collect();
    if !places.is_empty() && batch.num_rows() > 0 {
        let part = batch.project(&places).map_err(internal)?;
        let wanted = Arc::new(stored.project(&places).map_err(internal)?);
        let read = through_text(&part, &wanted)?;
        for (place, column) in places.iter().zip(read.columns()) {
            columns[*place] = Arc::clone(column);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(stored), columns, &options).map_err(internal)
}

/// Of floats, which JSON does not have all, as `float32`. `None` for other types.
fn float(values: &Float64Array, to: &DataType) -> Result<Option<ArrayRef>> {
    let does_not_fit = |value: f64| match to {
        DataType::Float32 => value.is_finite() && !(value as f32).is_finite(),
        _ => !value.is_finite(),
    };
    let is_wrong = |(_, value): &(usize, Option<f64>)| value.is_some_and(does_not_fit);
    if let Some((row, value)) = values.iter().enumerate().find(is_wrong)
        && *to != DataType::Float64
    {
        let (value, kind) = (value.unwrap_or_default(), data_type_name(to));
        let text = format!("{value} does not fit into a column of {kind}");
        return Err(Refusal::data("value_does_not_fit", text).at_row(row as u64));
    }
    let shorter = || values.unary::<_, Float32Type>(|value| value as f32);
    Ok((*to == DataType::Float32).then(|| Arc::new(shorter()) as ArrayRef))
}

fn through_text(part: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch> {
    let encoder = Format::Jsonl.encoder(without_marks(part))?;
    let mut text = Vec::new();
    let mut at = 0;
    while at < part.num_rows() {
        at = encoder.encode(Picked::all(part), at, &mut text, usize::MAX)?;
    }
    let limits = Limits {
        batch_bytes: usize::MAX,
        batch_rows: usize::MAX,
        max_record_bytes: usize::MAX,
    };
    let mut decoder = Format::Jsonl.decoder(Arc::clone(wanted), None, limits)?;
    decoder = decoder.inferred();
    decoder.begin_file();
    decoder.push(&text)?;
    decoder.end_of_file()?;
    decoder.take_batch()?.ok_or_else(|| internal("no rows"))
}

fn without_marks(part: &RecordBatch) -> SchemaRef {
    Arc::new(Schema::new(part.schema().fields().clone()))
}

fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal::data("internal", error)
}

//! Rows in the types of the table that they go to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use rapidbyte::batches::ConnectorError;
use rapidbyte_formats::{Format, Limits, Picked};

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
    let given = batch.schema();
    let is_other = |at: &usize| given.field(*at).data_type() != stored.field(*at).data_type();
    let places: Vec<usize> = (0..batch.num_columns()).filter(is_other).collect();
    let mut columns = batch.columns().to_vec();
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

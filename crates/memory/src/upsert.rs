//! Upsert: keeps the last row of each key, or drops it if it is marked as deleted.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use rapidbyte_runtime::{ConnectorError, ErrorKind, Target, broken};
use rapidbyte_wire::ipc::Encoder;

use crate::order;

/// The number of rows in a batch of the table.
const BATCH_ROWS: usize = 8192;

/// The rows of a table after an upsert of `written` into `there`.
///
/// # Errors
/// `null_key`, `unknown_column`.
pub(crate) fn merged(
    schema: &SchemaRef,
    target: &Target,
    there: &[RecordBatch],
    written: &[RecordBatch],
) -> Result<Vec<RecordBatch>, ConnectorError> {
    let index = |column: &String| order::index_of(schema, column);
    let keys = target
        .primary_key
        .iter()
        .map(index)
        .collect::<Result<Vec<_>, _>>()?;
    let deleted = target.deleted_field.as_ref().map(index).transpose()?;
    let batches: Vec<&RecordBatch> = there.iter().chain(written).collect();
    let mut encoder = Encoder::new(&schema.project(&keys).map_err(broken)?).map_err(broken)?;
    // The rows, in the order in which their keys first appear. `None` if the last row of a key is marked as deleted.
    let mut rows: Vec<Option<(usize, usize)>> = Vec::new();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    for (of, batch) in batches.iter().enumerate() {
        let of_key = batch.project(&keys).map_err(broken)?;
        for row in 0..batch.num_rows() {
            if let Some(null) = of_key
                .columns()
                .iter()
                .position(|column| column.is_null(row))
            {
                return Err(null_key(&target.primary_key[null]));
            }
            // Each key is encoded as a batch of its own, so that equal keys have equal bytes.
            let key = interleave_record_batch(&[&of_key], &[(0, row)]).map_err(broken)?;
            let key = encoder.encode(&key).map_err(broken)?;
            let is_deleted = deleted.is_some_and(|column| marks(batch.column(column), row));
            let place = (!is_deleted).then_some((of, row));
            match known.get(&key) {
                Some(at) => rows[*at] = place,
                None => {
                    known.insert(key, rows.len());
                    rows.push(place);
                }
            }
        }
    }
    let rows: Vec<(usize, usize)> = rows.into_iter().flatten().collect();
    let batch = |places: &[(usize, usize)]| interleave_record_batch(&batches, places);
    let merged = rows
        .chunks(BATCH_ROWS)
        .map(|places| batch(places).map_err(broken));
    merged.collect()
}

/// Whether the column marks the row as deleted: it is true, or not NULL if the column is not boolean.
fn marks(column: &dyn Array, row: usize) -> bool {
    let is_true = match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row),
        _ => true,
    };
    column.is_valid(row) && is_true
}

fn null_key(column: &str) -> ConnectorError {
    let text = format!("{column:?} is part of the key and NULL");
    ConnectorError::new(ErrorKind::Data, "null_key", text)
}

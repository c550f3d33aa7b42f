//! A column that says of each row that it is deleted, for `mode="delete"`.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use rapidbyte::batches::{Batches, ConnectorError, ErrorKind};

use crate::refusal::{Refusal, Result};

/// The columns of the rows, and behind them the column of this name. Errors: `invalid_name` if the rows have it.
pub fn columns(schema: &SchemaRef, name: &str) -> Result<SchemaRef> {
    if schema.index_of(name).is_ok() {
        let text = format!("the rows have a column {name:?}, which mode=\"delete\" adds");
        return Err(Refusal::config("invalid_name", text)
            .in_column(name)
            .hint("give the columns of the key alone"));
    }
    let mark = Field::new(name, DataType::Boolean, false);
    let fields = schema.fields().iter().cloned().chain([Arc::new(mark)]);
    Ok(Arc::new(Schema::new_with_metadata(
        fields.collect::<Vec<_>>(),
        schema.metadata().clone(),
    )))
}

/// The batches with that column, which is true in each row.
pub fn batches(batches: Batches, schema: &SchemaRef) -> Batches {
    let schema = Arc::clone(schema);
    let mark = move |given| {
        batch(&given, &schema).map_err(|error| {
            ConnectorError::new(ErrorKind::Internal, "internal", error.to_string())
        })
    };
    Box::new(batches.map(move |given| given.and_then(&mark)))
}

/// One batch with that column.
pub fn batch(given: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let mut columns = given.columns().to_vec();
    columns.push(Arc::new(BooleanArray::from(vec![true; given.num_rows()])));
    RecordBatch::try_new(Arc::clone(schema), columns)
}

//! Arrow columns in the types that rows of Python with the same values have: structs are documents, as dicts are, and
//! `arrow.bool8` are booleans.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, GenericListArray, OffsetSizeTrait, RecordBatch,
    RecordBatchOptions,
};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use pyo3::prelude::*;
use rapidbyte_wire::types::is_json;

use crate::objects::{Makers, is_bool8, values};
use crate::refusal::{Refusal, Result};
use crate::shape::Shape;
use crate::value::{Documents, Known, write_json};

/// The rows whose values are objects of Python at a time.
const PIECE_ROWS: usize = 1 << 10;

/// The columns of rows, for columns in their Arrow types.
pub fn of_rows(given: &Schema, documents: Documents) -> Result<SchemaRef> {
    let fields = given.fields().iter().map(|field| of_row(field, documents));
    let fields = fields.collect::<Result<Vec<FieldRef>>>()?;
    let schema = Schema::new_with_metadata(fields, given.metadata().clone());
    Ok(Arc::new(schema))
}

fn of_row(field: &FieldRef, documents: Documents) -> Result<FieldRef> {
    let (name, is_nullable) = (field.name(), field.is_nullable());
    Ok(match field.data_type() {
        _ if has_twins(field) => {
            let text = "a struct with two fields of one name, of which a document keeps one";
            let refusal = Refusal::data("unsupported_type", text).hint("rename one of them");
            return Err(refusal.in_column(name));
        }
        _ if has_struct(field) && documents == Documents::Extended => Arc::clone(field),
        _ if has_struct(field) => Arc::new(Shape::Json.field(name)?.with_nullable(is_nullable)),
        _ if is_bool8(field) => Arc::new(Field::new(name, DataType::Boolean, is_nullable)),
        DataType::List(item) => with_type(field, DataType::List(of_row(item, documents)?)),
        DataType::LargeList(item) => {
            with_type(field, DataType::LargeList(of_row(item, documents)?))
        }
        _ => Arc::clone(field),
    })
}

fn with_type(field: &Field, data_type: DataType) -> FieldRef {
    Arc::new(field.clone().with_data_type(data_type))
}

fn has_struct(field: &Field) -> bool {
    match field.data_type() {
        DataType::Struct(_) => true,
        DataType::List(item) | DataType::LargeList(item) => has_struct(item),
        _ => false,
    }
}

/// Whether a struct at any depth has two fields of one name.
fn has_twins(field: &Field) -> bool {
    match field.data_type() {
        DataType::Struct(fields) => {
            let names: HashSet<&String> = fields.iter().map(|field| field.name()).collect();
            names.len() < fields.len() || fields.iter().any(|field| has_twins(field))
        }
        DataType::List(item) | DataType::LargeList(item) => has_twins(item),
        _ => false,
    }
}

/// Whether a column needs [`converted`] to get the type of `to`: Arrow has no cast for it.
pub fn is_converted(from: &Field, to: &Field) -> bool {
    match (from.data_type(), to.data_type()) {
        (DataType::Struct(_) | DataType::List(_) | DataType::LargeList(_), _) if is_json(to) => {
            true
        }
        (_, DataType::Boolean) => is_bool8(from),
        (DataType::List(from), DataType::List(to))
        | (DataType::LargeList(from), DataType::LargeList(to)) => is_converted(from, to),
        _ => false,
    }
}

/// The rows in these columns. An error names the column and the row of the batch.
pub fn converted(batch: RecordBatch, to: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == to {
        return Ok(batch);
    }
    let given = batch.schema();
    let columns = batch.columns().iter().enumerate().map(|(at, array)| {
        let to = to.field(at);
        column(array, given.field(at), to).map_err(|error| error.in_column(to.name()))
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(to), columns, &options)
        .map_err(|error| Refusal::data("internal", error))
}

fn column(array: &ArrayRef, from: &Field, to: &Field) -> Result<ArrayRef> {
    if !is_converted(from, to) {
        return Ok(Arc::clone(array));
    }
    match to.data_type() {
        DataType::Boolean => {
            let bytes = array.as_primitive::<Int8Type>().iter();
            let flags = bytes.map(|byte| byte.map(|byte| byte != 0));
            Ok(Arc::new(flags.collect::<BooleanArray>()))
        }
        DataType::List(item) => list(array.as_list::<i32>(), item),
        DataType::LargeList(item) => list(array.as_list::<i64>(), item),
        _ => Python::attach(|py| documents(py, array, from)),
    }
}

fn list<O: OffsetSizeTrait>(lists: &GenericListArray<O>, item: &FieldRef) -> Result<ArrayRef> {
    let (from, offsets, values, nulls) = lists.clone().into_parts();
    let values = column(&values, &from, item)?;
    let made = GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls);
    Ok(Arc::new(
        made.map_err(|error| Refusal::data("internal", error))?,
    ))
}

/// Each value as the JSON text of the Python value that it stands for.
fn documents(py: Python<'_>, array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let (known, makers) = (Known::get(py)?, Makers::of_documents(py)?);
    let mut texts = StringBuilder::with_capacity(array.len(), 0);
    let mut text = Vec::new();
    for start in (0..array.len()).step_by(PIECE_ROWS) {
        let piece = array.slice(start, PIECE_ROWS.min(array.len() - start));
        let objects = values(&makers, field, &piece).map_err(|error| {
            let row = first_refused(&makers, field, &piece).unwrap_or_default();
            let message = error
                .value(py)
                .getattr("message")
                .map(|text| text.to_string());
            let message = message.unwrap_or_else(|_| error.to_string());
            Refusal::data("value_does_not_fit", message)
                .at_row((start + row) as u64)
                .hint("convert it, or leave it out")
        })?;
        for (row, value) in objects.iter().enumerate() {
            if value.is_none() {
                texts.append_null();
                continue;
            }
            text.clear();
            write_json(value, known, &mut text)
                .map_err(|error| error.at_row((start + row) as u64))?;
            texts.append_value(String::from_utf8_lossy(&text));
        }
    }
    Ok(Arc::new(texts.finish()))
}

/// The first row that Python cannot hold.
fn first_refused(makers: &Makers<'_>, field: &Field, array: &ArrayRef) -> Option<usize> {
    (0..array.len()).find(|row| values(makers, field, &array.slice(*row, 1)).is_err())
}

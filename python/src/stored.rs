//! Rows in the types of the table that they go to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, ListArray, RecordBatch, RecordBatchOptions,
    make_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rapidbyte::batches::ConnectorError;
use rapidbyte_formats::{Format, Limits, Picked};
use rapidbyte_wire::types::{is_uuid, mark_stored, type_name};

use crate::column::ensure_filled;
use crate::refusal::{Refusal, Result};

/// Gives batches, one after the other, the columns of the target. A value that would change is refused, with its row.
pub fn converter() -> impl Fn(&RecordBatch, &SchemaRef) -> Result<RecordBatch, ConnectorError> {
    let before = AtomicU64::new(0);
    move |batch, stored| {
        let rows = before.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        convert(batch, stored).map_err(|refusal| refusal.after(rows).into_connector())
    }
}

/// Each column whose type differs, in the type of the target.
fn convert(batch: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch> {
    let given = batch.schema();
    let is_other = |at: &usize| given.field(*at).data_type() != stored.field(*at).data_type();
    let places: Vec<usize> = (0..batch.num_columns()).filter(is_other).collect();
    let mut columns = batch.columns().to_vec();
    if batch.num_rows() > 0 {
        let is_list = |at: &usize| are_lists_of_reals(given.field(*at), stored.field(*at));
        let (lists, others): (Vec<usize>, Vec<usize>) = places.into_iter().partition(is_list);
        for place in lists {
            columns[place] = lists_of_reals(&columns[place], stored.field(place))?;
        }
        convert_others(&mut columns, &others, &given, stored)?;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(stored), columns, &options).map_err(internal)
}

/// By way of JSON text, whose reader knows which values a column holds exactly.
fn convert_others(
    columns: &mut [ArrayRef],
    places: &[usize],
    given: &Schema,
    stored: &Schema,
) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let (mut fields, mut arrays, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        let (field, to) = (given.field(*place), stored.field(*place));
        refuse_other_values(&columns[*place], field, to)?;
        let others = without_reals(&columns[*place], to);
        let others = others.map_err(|refusal| refusal.in_column(to.name()))?;
        let is_whole = others.null_count() == columns[*place].null_count();
        fields.push(field.clone().with_nullable(true));
        wanted.push(to.clone().with_nullable(to.is_nullable() || !is_whole));
        arrays.push(others);
    }
    let part = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(internal)?;
    let read = through_text(&part, &Arc::new(Schema::new(wanted)))?;
    for (place, column) in places.iter().zip(read.columns()) {
        let column = with_reals(column, &columns[*place]);
        ensure_filled(&column, stored.field(*place))?;
        columns[*place] = column;
    }
    Ok(())
}

/// Whether both are lists, at any depth, of `float64` and of `float32`.
fn are_lists_of_reals(given: &Field, to: &Field) -> bool {
    let DataType::List(to) = to.data_type() else {
        return false;
    };
    let (DataType::List(given) | DataType::LargeList(given)) = given.data_type() else {
        return false;
    };
    let items = (given.data_type(), to.data_type());
    items == (&DataType::Float64, &DataType::Float32) || are_lists_of_reals(given, to)
}

/// The lists with their items converted as a column of their own, which takes exact `float32` numbers and infinities.
fn lists_of_reals(column: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    let DataType::List(to_item) = to.data_type() else {
        return Err(internal("no list"));
    };
    let (values, ends) = match column.as_list_opt::<i64>() {
        Some(lists) => {
            let ends = lists.offsets().iter().map(|end| *end as usize);
            (lists.values().to_data(), ends.collect::<Vec<_>>())
        }
        None => {
            let lists = column.as_list::<i32>();
            let ends = lists.offsets().iter().map(|end| *end as usize);
            (lists.values().to_data(), ends.collect())
        }
    };
    i32::try_from(values.len()).map_err(internal)?;
    let mut filled = MutableArrayData::new(vec![&values], false, 0);
    let mut lengths = Vec::with_capacity(column.len());
    for (row, ends) in ends.windows(2).enumerate() {
        let start = ends[0];
        let end = if column.is_null(row) { start } else { ends[1] };
        filled.try_extend(0, start, end).map_err(internal)?;
        lengths.push(end - start);
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let items = make_array(filled.freeze());
    let stored = mark_stored(Field::clone(to_item).with_name(to.name()));
    let item = Field::new(to.name(), items.data_type().clone(), true);
    let items = RecordBatch::try_new(Arc::new(Schema::new(vec![item])), vec![items]);
    let read = convert(
        &items.map_err(internal)?,
        &Arc::new(Schema::new(vec![stored])),
    );
    let row_of = |item: u64| {
        let is_before = |end: &i32| u64::try_from(*end).is_ok_and(|end| end <= item);
        offsets.partition_point(is_before) as u64 - 1
    };
    let read = read.map_err(|refusal| refusal.in_row_of(row_of))?;
    let nulls = column.nulls().cloned();
    let lists = ListArray::try_new(
        Arc::clone(to_item),
        offsets.clone(),
        Arc::clone(read.column(0)),
        nulls,
    );
    let lists: ArrayRef = Arc::new(lists.map_err(internal)?);
    ensure_filled(&lists, to)?;
    Ok(lists)
}

/// Refuses text for bytes, and bytes for text: `\x41` may be four characters, or PostgreSQL's text of one byte.
fn refuse_other_values(column: &ArrayRef, given: &Field, to: &Field) -> Result<()> {
    if has_bytes(to) == has_bytes(given) {
        return Ok(());
    }
    let Some(row) = (0..column.len()).find(|row| has_value(&column.slice(*row, 1))) else {
        return Ok(());
    };
    let text = format!(
        "a value of {} for a column of {}",
        type_name(given),
        type_name(to)
    );
    Err(Refusal::data("value_does_not_fit", text)
        .in_column(to.name())
        .at_row(row as u64)
        .hint(match has_bytes(to) {
            true => "give bytes, such as text.encode(); JSON text has none, unless schema= declares the column as binary",
            false => "decode the bytes first",
        }))
}

/// Whether a value is there, in a list at any depth.
fn has_value(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::List(_) => {
            let mut lists = column.as_list::<i32>().iter().flatten();
            lists.any(|items| has_value(&items))
        }
        DataType::LargeList(_) => {
            let mut lists = column.as_list::<i64>().iter().flatten();
            lists.any(|items| has_value(&items))
        }
        _ => column.logical_null_count() < column.len(),
    }
}

/// Whether the values of a column, or of its lists, are bytes.
fn has_bytes(field: &Field) -> bool {
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) => has_bytes(item),
        DataType::FixedSizeBinary(_) => !is_uuid(field),
        DataType::Binary | DataType::LargeBinary => true,
        _ => false,
    }
}

/// The column without the numbers that `float32` holds exactly, whose JSON may have more digits, and without NaN and
/// infinities, which JSON does not have: `float32` gets them [afterwards](with_reals), other types refuse infinities.
fn without_reals(column: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    let Some(floats) = column.as_primitive_opt::<Float64Type>() else {
        return Ok(Arc::clone(column));
    };
    if *to.data_type() == DataType::Float32 {
        let others = floats
            .iter()
            .map(|value| value.filter(|value| !is_of_float32(*value)));
        return Ok(Arc::new(others.collect::<Float64Array>()));
    }
    let is_infinite = |value: Option<f64>| value.is_some_and(|value| !value.is_finite());
    let Some(row) = floats.iter().position(is_infinite) else {
        return Ok(Arc::clone(column));
    };
    let text = format!(
        "{} does not fit into a column of {}",
        floats.value(row),
        type_name(to)
    );
    Err(Refusal::data("value_does_not_fit", text).at_row(row as u64))
}

/// NaN, and numbers that do not change.
fn is_of_float32(value: f64) -> bool {
    value.is_nan() || f64::from(value as f32) == value
}

/// The read column with the values of the given one that were left out.
fn with_reals(read: &ArrayRef, given: &ArrayRef) -> ArrayRef {
    let (read_floats, given) = (
        read.as_primitive_opt::<Float32Type>(),
        given.as_primitive_opt::<Float64Type>(),
    );
    let (Some(floats), Some(given)) = (read_floats, given) else {
        return Arc::clone(read);
    };
    let values = floats.iter().zip(given).map(|(read, given)| match given {
        Some(value) if is_of_float32(value) => Some(value as f32),
        _ => read,
    });
    Arc::new(values.collect::<Float32Array>())
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

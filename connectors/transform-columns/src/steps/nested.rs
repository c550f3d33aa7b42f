//! Steps that take nested columns apart.

use std::sync::Arc;

use arrow_buffer::NullBuffer;
use arrow_select::take::take;
use rapidbyte_sdk::prelude::arrow_array::cast::AsArray;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types;

use super::{Columns, Fault, Moved, Problem, Run, positions, problem, refuse_twins};

/// One column for each field of a struct, in its place.
pub(super) fn flatten(names: &[String], columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let named = positions(columns, names, "flatten")?;
    let mut fields = Vec::new();
    let mut source_types = Vec::new();
    for (index, field) in columns.fields().into_iter().enumerate() {
        if !named.contains(&index) {
            fields.push(field);
            source_types.push(columns.source_types[index].clone());
            continue;
        }
        let DataType::Struct(children) = field.data_type() else {
            let reason = format!(
                "the column {} is {}, not a struct",
                field.name(),
                types::type_name(&field)
            );
            return Err(problem("flatten", reason));
        };
        for child in children {
            let name = format!("{}_{}", field.name(), child.name());
            let is_nullable = field.is_nullable() || child.is_nullable();
            let child = child
                .as_ref()
                .clone()
                .with_name(name)
                .with_nullable(is_nullable);
            fields.push(Arc::new(child));
            source_types.push(String::new());
        }
        let name = field.name().clone();
        columns.computed(&name);
    }
    refuse_twins(&fields, "flatten")?;
    columns.source_types = source_types;
    columns.set_fields(fields);
    Ok(Box::new(move |batch, schema| {
        let mut all = Vec::new();
        for (index, column) in batch.columns().iter().enumerate() {
            if !named.contains(&index) {
                all.push(Arc::clone(column));
                continue;
            }
            let parent = column.as_struct();
            for child in parent.columns() {
                all.push(below(parent.nulls(), child)?);
            }
        }
        super::batch_of(all, schema)
    }))
}

/// A child is NULL where its parent is.
fn below(parent: Option<&NullBuffer>, child: &ArrayRef) -> Result<ArrayRef, Fault> {
    let nulls = NullBuffer::union(parent, child.nulls());
    let data = child.to_data().into_builder().nulls(nulls);
    Ok(arrow_array::make_array(
        data.build().map_err(Fault::internal)?,
    ))
}

/// One row for each element of a list.
pub(super) fn explode(name: &str, columns: &mut Columns) -> Result<Box<Run>, Problem> {
    let index = columns
        .find(name)
        .map_err(|reason| problem("explode", reason))?;
    let mut fields = columns.fields();
    let (DataType::List(item) | DataType::LargeList(item)) = fields[index].data_type() else {
        let reason = format!(
            "the column {name} is {}, not a list",
            types::type_name(&fields[index])
        );
        return Err(problem("explode", reason));
    };
    fields[index] = Arc::new(item.as_ref().clone().with_name(name).with_nullable(true));
    columns.source_types[index].clear();
    columns.set_fields(fields);
    // Each row may come several times.
    columns.primary_key.clear();
    Ok(Box::new(move |batch, schema| {
        let column = batch.column(index);
        let (values, ends): (&ArrayRef, Vec<usize>) = match column.data_type() {
            DataType::LargeList(_) => {
                let list = column.as_list::<i64>();
                let ends = list.value_offsets().iter();
                (
                    list.values(),
                    ends.map(|end| usize::try_from(*end).unwrap_or(0)).collect(),
                )
            }
            _ => {
                let list = column.as_list::<i32>();
                let ends = list.value_offsets().iter();
                (
                    list.values(),
                    ends.map(|end| usize::try_from(*end).unwrap_or(0)).collect(),
                )
            }
        };
        let (mut rows, mut elements) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let (begin, end) = (ends[row], ends[row + 1]);
            if column.is_null(row) || begin == end {
                rows.push(row as u32);
                elements.push(None);
                continue;
            }
            for element in begin..end {
                rows.push(row as u32);
                // A batch has fewer elements than bytes.
                elements.push(Some(element as u32));
            }
        }
        let (rows, elements) = (UInt32Array::from(rows), UInt32Array::from(elements));
        let all = batch
            .columns()
            .iter()
            .enumerate()
            .map(|(at, column)| match at == index {
                true => take(values, &elements, None),
                false => take(column, &rows, None),
            });
        let all = all
            .collect::<Result<Vec<_>, _>>()
            .map_err(Fault::internal)?;
        let batch = RecordBatch::try_new(Arc::clone(schema), all).map_err(Fault::internal)?;
        Ok(Moved {
            batch,
            rows: Some(rows),
        })
    }))
}

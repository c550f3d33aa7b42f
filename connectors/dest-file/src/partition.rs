//! Which folder each row belongs to, by the values of the partition columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use rapidbyte_formats::Texts;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{hive, types};

use crate::convert;

/// The partition columns of a stream.
pub(crate) struct Partitions {
    /// The place of each in a batch, in the order of the directories.
    columns: Vec<usize>,
    /// The places of the other columns.
    kept: Vec<usize>,
    schema: SchemaRef,
}

impl Partitions {
    /// The columns of these names, and the schema of the others.
    /// `key` is the setting that names them.
    pub(crate) fn new(
        names: &[String],
        schema: &SchemaRef,
        key: &str,
    ) -> Result<(Self, SchemaRef)> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let Some((at, field)) = schema.fields().find(name) else {
                return Err(Error::config(
                    "unknown_column",
                    format!("the stream does not have a column {name:?}"),
                )
                .hint("name columns of the stream in partition_by")
                .in_column(name)
                .at(key));
            };
            if let Some(why) = refusal(field) {
                return Err(
                    Error::config("partition_type", format!("column {name:?}: {why}"))
                        .hint(
                            "partition by a column of dates, integers, decimals, strings or \
                         booleans",
                        )
                        .in_column(name)
                        .at(key),
                );
            }
            columns.push(at);
        }
        let kept: Vec<usize> = (0..schema.fields().len())
            .filter(|at| !columns.contains(at))
            .collect();
        if kept.is_empty() {
            let text = "every column is a partition column, so the rows have no values left";
            return Err(Error::config("no_columns", text).at(key));
        }
        let rest = schema
            .project(&kept)
            .map_err(|error| Error::internal(format!("arrow: {error}")))?;
        let partitions = Self {
            columns,
            kept,
            schema: schema.clone(),
        };
        Ok((partitions, Arc::new(rest)))
    }

    /// The rows of each folder, by the folder's path with a slash at its end; `before` rows of the
    /// stream came before the batch.
    pub(crate) fn group(
        &self,
        batch: &RecordBatch,
        before: u64,
    ) -> Result<BTreeMap<String, Vec<u32>>> {
        let texts = self
            .columns
            .iter()
            .map(|at| Texts::new(&self.schema.fields()[*at], batch.column(*at)).map_err(convert))
            .collect::<Result<Vec<_>>>()?;
        let mut rows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut key = String::new();
        let mut value = Vec::new();
        for row in 0..batch.num_rows() {
            key.clear();
            for (texts, at) in texts.iter().zip(&self.columns) {
                value.clear();
                let name = self.schema.field(*at).name();
                let text = match texts.is_null(row) {
                    true => None,
                    false => {
                        texts.write(row, &mut value).map_err(convert)?;
                        // Text forms are UTF-8.
                        Some(
                            std::str::from_utf8(&value)
                                .map_err(|_| refused(name, "is not UTF-8", before, row))?,
                        )
                    }
                };
                folder(name, text, &mut key).map_err(|why| refused(name, &why, before, row))?;
            }
            // A batch is far below 2^32 rows.
            let row = row as u32;
            match rows.get_mut(&key) {
                Some(rows) => rows.push(row),
                None => drop(rows.insert(key.clone(), vec![row])),
            }
        }
        Ok(rows)
    }

    /// The batch as the files hold it.
    pub(crate) fn without_columns(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        batch
            .project(&self.kept)
            .map_err(|error| Error::internal(format!("arrow: {error}")))
    }
}

fn refused(column: &str, why: &str, before: u64, row: usize) -> Error {
    let row = before + row as u64 + 1;
    let text = format!("row {row}: column {column:?}: {why}");
    Error::data("partition_value", text)
        .hint("partition by another column: a directory's name cannot hold this value")
        .in_column(column)
}

/// Appends the folder of one value.
fn folder(column: &str, value: Option<&str>, path: &mut String) -> Result<(), String> {
    let value = match value {
        None => hive::NULL.to_owned(),
        Some(hive::NULL) => return Err(format!("the string {} means NULL", hive::NULL)),
        Some(value) => hive::escape(value),
    };
    let start = path.len();
    path.push_str(&hive::escape(column));
    path.push('=');
    path.push_str(&value);
    let len = path.len() - start;
    if len > hive::MAX_NAME_BYTES {
        return Err(format!(
            "the directory's name would have {len} bytes, and at most {} are possible",
            hive::MAX_NAME_BYTES
        ));
    }
    path.push('/');
    Ok(())
}

/// Why a column's values cannot name folders.
fn refusal(field: &Field) -> Option<String> {
    let exact = match field.data_type() {
        DataType::Boolean
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Date32
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::LargeUtf8 => true,
        DataType::Utf8 => types::extension_name(field).is_none(),
        DataType::FixedSizeBinary(16) => types::is_uuid(field),
        other => other.is_integer(),
    };
    (!exact).then(|| format!("it has the type {}", types::type_name(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_as_hive_does() {
        let named = |column: &str, value: Option<&str>| {
            let mut path = String::from("a=1/");
            folder(column, value, &mut path).map(|()| path)
        };
        assert_eq!(named("d", Some("x/../y")).unwrap(), "a=1/d=x%2F..%2Fy/");
        assert_eq!(
            named("a b", None).unwrap(),
            format!("a=1/a b={}/", hive::NULL)
        );
        assert_eq!(named("d", Some("..")).unwrap(), "a=1/d=../");
        // An empty string is not NULL, and pyarrow, DuckDB and polars agree.
        assert_eq!(named("d", Some("")).unwrap(), "a=1/d=/");
        for value in [hive::NULL, &"ä".repeat(127)] {
            assert!(named("d", Some(value)).is_err(), "{value}");
        }
        assert!(named("d", Some(&"x".repeat(253))).is_ok());
    }
}

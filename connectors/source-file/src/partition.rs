//! Columns whose values are in the names of folders: `day=2026-11-21`, as Hive and Spark write.
//!
//! Their types are declared, never guessed. They follow the columns of the files, in the order of the declaration.

use std::sync::Arc;

use rapidbyte_formats::repeat;
use rapidbyte_sdk::hive;
use rapidbyte_sdk::prelude::*;

use crate::convert;

/// The declared columns.
#[derive(Debug, Clone)]
pub(crate) struct Partitions {
    fields: SchemaRef,
}

/// Where a column of a batch comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// The files, by the place among the columns that are read from them.
    File(usize),
    /// The folders, by the place among the declared columns.
    Folder(usize),
}

impl Partitions {
    pub(crate) fn new(fields: SchemaRef) -> Self {
        Self { fields }
    }

    /// The columns of the files, then the columns of the folders.
    pub(crate) fn add_to(&self, files: &SchemaRef) -> Result<SchemaRef> {
        let both = files.fields().iter().find(|f| self.is_partition(f.name()));
        if let Some(field) = both {
            let text = format!("the files also have a column {:?}", field.name());
            return Err(Error::schema("duplicate_column", text)
                .hint("remove it from partitions:, or from the files")
                .in_column(field.name())
                .at("config.partitions"));
        }
        let all = files.fields().iter().chain(self.fields.fields()).cloned();
        let all: Vec<_> = all.collect();
        Ok(Arc::new(Schema::new_with_metadata(
            all,
            files.metadata().clone(),
        )))
    }

    /// The columns of the files among all columns.
    pub(crate) fn take_from(&self, all: &Schema) -> SchemaRef {
        let of_files = all
            .fields()
            .iter()
            .filter(|field| !self.is_partition(field.name()));
        let of_files: Vec<_> = of_files.cloned().collect();
        Arc::new(Schema::new_with_metadata(of_files, all.metadata().clone()))
    }

    /// The first declared column that is wanted.
    pub(crate) fn find(&self, wanted: &dyn Fn(&Field) -> bool) -> Option<&str> {
        let field = self.fields.fields().iter().find(|field| wanted(field));
        field.map(|field| field.name().as_str())
    }

    pub(crate) fn is_partition(&self, name: &str) -> bool {
        self.fields.fields().find(name).is_some()
    }

    /// The value of each column in a file's path, `None` for NULL.
    pub(crate) fn values(&self, path: &str) -> Result<Vec<Option<String>>> {
        let value = |field: &Arc<Field>| {
            let name = hive::escape(field.name());
            let folders = path.rsplit('/').skip(1);
            let found = folders
                .filter_map(|folder| folder.split_once('='))
                .find(|(column, _)| {
                    *column == name || hive::unescape(column).as_ref() == Some(field.name())
                });
            let refused = |text: String| {
                Error::schema("partition_folder", text)
                    .hint(
                        "put every file below a directory for each column that partitions: \
                         names",
                    )
                    .in_column(field.name())
                    .at(path)
            };
            match found {
                None => Err(refused(format!(
                    "the file is not below a directory {name}=…"
                ))),
                Some((_, hive::NULL)) => Ok(None),
                Some((_, value)) => hive::unescape(value)
                    .map(Some)
                    .ok_or_else(|| refused(format!("the directory {name}=… is not UTF-8"))),
            }
        };
        self.fields.fields().iter().map(value).collect()
    }

    /// The columns of a read: `wanted` among all, in the wanted order.
    pub(crate) fn pick(&self, all: &SchemaRef, wanted: Option<&[String]>) -> Picked {
        let names: Vec<String> = match wanted {
            Some(names) => names.to_vec(),
            None => all.fields().iter().map(|f| f.name().clone()).collect(),
        };
        let mut from_files = Vec::new();
        let mut fields = Vec::new();
        let mut origins = Vec::new();
        for name in names {
            match self.fields.fields().find(&name) {
                Some((at, field)) => {
                    origins.push(Origin::Folder(at));
                    fields.push(field.clone());
                }
                None => {
                    origins.push(Origin::File(from_files.len()));
                    // A name that nobody has is refused by the decoder.
                    fields.extend(all.fields().find(&name).map(|(_, field)| field.clone()));
                    from_files.push(name);
                }
            }
        }
        Picked {
            from_files,
            fields: self.fields.clone(),
            origins,
            schema: Arc::new(Schema::new_with_metadata(fields, all.metadata().clone())),
        }
    }
}

/// The columns of one read.
pub(crate) struct Picked {
    /// The names of those that the files have.
    pub from_files: Vec<String>,
    pub schema: SchemaRef,
    fields: SchemaRef,
    origins: Vec<Origin>,
}

impl Picked {
    /// The rows of a file with the values of its folders.
    pub(crate) fn complete(
        &self,
        batch: &RecordBatch,
        values: &[Option<String>],
        stream: &str,
        path: &str,
    ) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |origin: &Origin| match origin {
            Origin::File(at) => Ok(batch.column(*at).clone()),
            Origin::Folder(at) => repeat(&self.fields.fields()[*at], values[*at].as_deref(), rows)
                .map_err(|error| convert(error, stream, Some(path))),
        };
        let columns = self.origins.iter().map(column).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal(format!("arrow: {error}")).in_stream(stream))
    }
}

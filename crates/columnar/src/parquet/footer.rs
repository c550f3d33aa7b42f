//! A Parquet file's footer, checked against the file.

use std::sync::Arc;

use arrow_schema::{Field, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::basic::{Compression, Type as Physical};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};

use super::read::ParquetReader;
use super::schema::{self, FileSchema};
use super::{MAGIC, malformed, thrift};
use crate::read_at::{fetch, find};
use crate::{ColumnarError, Limits, MAX_BARE_ROWS, ReadAt};

/// Length and magic at the end of a file.
const TAIL_BYTES: u64 = 8;
/// The end of a file with the start of another file behind it.
const SEAM: &[u8] = b"PAR1PAR1";
/// 64 MiB of metadata describe some 100,000 column chunks; in memory they take several times that.
const MAX_METADATA_BYTES: u64 = 64 << 20;
/// Groups within each other: two or three for each level of the 64 that a type may have.
const MAX_SCHEMA_DEPTH: usize = 200;

/// An open Parquet file.
pub(crate) struct ParquetFile<R> {
    source: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    schema: FileSchema,
}

impl<R: ReadAt> ParquetFile<R> {
    /// Reads and checks the footer.
    pub(crate) fn open(source: Arc<R>) -> Result<Self, ColumnarError> {
        let size = source.size();
        let (metadata, footer_at) = read_metadata(&*source, size)?;
        for (at, group) in metadata.row_groups().iter().enumerate() {
            check_group(group, size).map_err(|text| wrong(text).group(at))?;
        }
        // The footer of the last file has positions that lie in the first one.
        if let Some(at) = find(&*source, SEAM, used_bytes(&metadata), footer_at)? {
            let text = format!(
                "another Parquet file follows at byte {}",
                at + MAGIC.len() as u64
            );
            return Err(wrong(text).hint("write each of them to a file of its own"));
        }
        let rows = rows_of(&metadata);
        let descriptor = metadata.file_metadata().schema_descr_ptr();
        if i64::try_from(rows).is_err() || (descriptor.num_columns() == 0 && rows > MAX_BARE_ROWS) {
            return Err(wrong(format!("{rows} rows")));
        }
        let arrow = metadata.file_metadata().key_value_metadata();
        Ok(Self {
            schema: schema::read(&descriptor, arrow)?,
            metadata: Arc::new(metadata),
            source,
        })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema.portable
    }

    pub(crate) fn source_types(&self) -> &[String] {
        &self.schema.source_types
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.schema.notes
    }

    pub(crate) fn rows(&self) -> u64 {
        rows_of(&self.metadata)
    }

    /// Begins to read the columns at these places of the schema, in this order.
    pub(crate) fn read(
        &self,
        wanted: &[usize],
        schema: SchemaRef,
        limits: Limits,
    ) -> Result<ParquetReader<R>, ColumnarError> {
        for place in wanted {
            self.check_codecs(*place)?;
        }
        ParquetReader::new(
            self.source.clone(),
            self.metadata.clone(),
            &self.schema,
            wanted,
            schema,
            limits,
        )
    }

    /// Refuses a codec that is not built in before anything is read.
    fn check_codecs(&self, column: usize) -> Result<(), ColumnarError> {
        let descriptor = self.metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::roots(descriptor, [column]);
        for group in self.metadata.row_groups() {
            for (leaf, chunk) in group.columns().iter().enumerate() {
                if mask.leaf_included(leaf) && chunk.compression() == Compression::LZO {
                    let name = self.schema.portable.field(column).name();
                    return Err(ColumnarError::unsupported(
                        name,
                        "it is compressed with LZO",
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The name of a field's type in a file that is written here.
pub(crate) fn written_type(field: &Field) -> Result<String, ColumnarError> {
    schema::written_type(field)
}

fn rows_of(metadata: &ParquetMetaData) -> u64 {
    let groups = metadata.row_groups().iter();
    let rows = groups.map(|group| group.num_rows().unsigned_abs());
    rows.fold(0, u64::saturating_add)
}

fn wrong(text: impl Into<String>) -> ColumnarError {
    ColumnarError::new("parquet_malformed", text)
        .hint("copy the file again: it is damaged or incomplete")
}

/// The metadata, and the place of the file where its bytes begin.
fn read_metadata<R: ReadAt>(
    source: &R,
    size: u64,
) -> Result<(ParquetMetaData, u64), ColumnarError> {
    // The magic at the beginning, and the tail.
    if size < 4 + TAIL_BYTES {
        return Err(wrong(format!(
            "a file of {size} bytes is not a Parquet file"
        )));
    }
    let tail = fetch(source, size - TAIL_BYTES, TAIL_BYTES as usize)?;
    let (length, magic) = tail.split_at(4);
    if magic == b"PARE" {
        return Err(ColumnarError::new(
            "parquet_encrypted",
            "the file is encrypted",
        ));
    }
    if magic != MAGIC {
        return Err(wrong("the file does not end like a Parquet file"));
    }
    let length = length
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte));
    if length + TAIL_BYTES + 4 > size {
        let text = format!("metadata of {length} bytes in a file of {size}");
        return Err(wrong(text));
    }
    if length > MAX_METADATA_BYTES {
        let text = format!("metadata of {length} bytes, the limit is {MAX_METADATA_BYTES}");
        return Err(ColumnarError::new("page_too_large", text)
            .hint("write the file with fewer and larger row groups"));
    }
    // At most `MAX_METADATA_BYTES`.
    let footer_at = size - TAIL_BYTES - length;
    let bytes = fetch(source, footer_at, length as usize)?;
    match thrift::schema_depth(&bytes) {
        Ok(depth) if depth <= MAX_SCHEMA_DEPTH => {}
        Ok(depth) => return Err(wrong(format!("columns of {depth} levels"))),
        Err(_) => return Err(wrong("its metadata cannot be read")),
    }
    // Statistics are not used, and may be most of the metadata.
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let metadata = ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&options));
    Ok((metadata.map_err(|error| malformed(&error))?, footer_at))
}

/// The place behind the last value and the last index that the metadata names.
fn used_bytes(metadata: &ParquetMetaData) -> u64 {
    let chunks = metadata.row_groups().iter().flat_map(|g| g.columns());
    let end = |at: Option<i64>, length: Option<i64>| {
        let at = u64::try_from(at?).ok()?;
        Some(at.saturating_add(u64::try_from(length.unwrap_or(0)).ok()?))
    };
    let ends = chunks.flat_map(|chunk| {
        let start = chunk.dictionary_page_offset();
        let start = start.unwrap_or(chunk.data_page_offset());
        [
            end(Some(start), Some(chunk.compressed_size())),
            end(
                chunk.bloom_filter_offset(),
                chunk.bloom_filter_length().map(i64::from),
            ),
            end(
                chunk.column_index_offset(),
                chunk.column_index_length().map(i64::from),
            ),
            end(
                chunk.offset_index_offset(),
                chunk.offset_index_length().map(i64::from),
            ),
        ]
    });
    ends.flatten().max().unwrap_or(0)
}

/// Checks the facts that later steps rely on: numbers are not negative, chunks lie inside the file.
fn check_group(group: &RowGroupMetaData, size: u64) -> Result<(), String> {
    let rows = group.num_rows();
    if rows < 0 || usize::try_from(rows).is_err() {
        return Err(format!("{rows} rows"));
    }
    if group.num_columns() != group.schema_descr().num_columns() {
        return Err("the number of columns differs from the schema".into());
    }
    for chunk in group.columns() {
        check_chunk(chunk, rows, size)
            .map_err(|text| format!("column {}: {text}", chunk.column_path().string()))?;
    }
    Ok(())
}

fn check_chunk(chunk: &ColumnChunkMetaData, rows: i64, size: u64) -> Result<(), String> {
    if chunk.file_path().is_some() {
        return Err("its values are in another file".into());
    }
    let start = chunk
        .dictionary_page_offset()
        .unwrap_or(chunk.data_page_offset());
    let (Ok(start), Ok(length)) = (u64::try_from(start), u64::try_from(chunk.compressed_size()))
    else {
        return Err("a negative position in the file".into());
    };
    if start.checked_add(length).is_none_or(|end| end > size) {
        return Err(format!("{length} bytes at {start} in a file of {size}"));
    }
    let descriptor = chunk.column_descr();
    let values = chunk.num_values();
    if values < 0 || (descriptor.max_rep_level() == 0 && values != rows) {
        return Err(format!("{values} values for {rows} rows"));
    }
    if chunk.uncompressed_size() < 0 {
        return Err("a negative size".into());
    }
    if chunk.column_type() != descriptor.physical_type() {
        return Err(format!(
            "values of {} for {}",
            chunk.column_type(),
            descriptor.physical_type()
        ));
    }
    if descriptor.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && descriptor.type_length() < 0
    {
        return Err("values of a negative length".into());
    }
    Ok(())
}

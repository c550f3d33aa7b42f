//! Files in memory.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_columnar::{
    ColumnarError, Compression, File, FileWriter, Kind, Limits, ReadAt, WriteOptions,
};
use rapidbyte_testkit::batches::random;
use rapidbyte_wire::types::parse_field;

/// Types that both formats give back as they were.
pub const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(5, 2)",
    "decimal(15, 3)",
    "decimal(38, 0)",
    "decimal(38, 38)",
    "decimal(76, 10)",
    "string",
    "large_string",
    "binary",
    "large_binary",
    "fixed_binary(3)",
    "date",
    "time(ms)",
    "time(us)",
    "time(ns)",
    "timestamp(ms)",
    "timestamp",
    "timestamp(ns)",
    "timestamptz",
    "timestamp(ms, Europe/Berlin)",
    "timestamp(ns, +02:00)",
    "duration(s)",
    "duration(us)",
    "duration(ns)",
    "uuid",
    "json",
    "null",
    "list<int64>",
    "list<list<string>>",
    "large_list<float64>",
    "struct<a: int64, b: string>",
    "map<string, json>",
    "map<int32, list<uuid>>",
    "map<timestamptz, struct<x: binary, y: decimal(50, 3)>>",
    "list<struct<a: list<bool>, b: large_string>>",
];

/// A schema from names and types; `!` behind a type means NOT NULL.
pub fn schema(columns: &[(&str, &str)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, type_name)| {
        let nullable = !type_name.ends_with('!');
        parse_field(name, type_name.trim_end_matches('!'), nullable).expect(type_name)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A batch of random values of these types.
pub fn random_batch(schema: &SchemaRef, rows: usize, seed: &[u64]) -> RecordBatch {
    random(schema, rows, seed, false)
}

pub fn options(compression: Compression) -> WriteOptions {
    WriteOptions {
        compression: Some(compression),
        ..WriteOptions::default()
    }
}

/// The file of these batches.
pub fn write(kind: Kind, batches: &[RecordBatch], options: &WriteOptions) -> Vec<u8> {
    let mut writer = FileWriter::new(kind, batches[0].schema(), options, Vec::new()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap()
}

/// All batches of a file.
pub fn read<R: ReadAt>(
    kind: Kind,
    source: R,
    wanted: Option<&[&str]>,
    limits: Limits,
) -> Result<Vec<RecordBatch>, ColumnarError> {
    let file = File::open(kind, Arc::new(source))?;
    let wanted: Option<Vec<String>> =
        wanted.map(|names| names.iter().map(|n| (*n).into()).collect());
    let mut reader = file.read(wanted.as_deref(), limits)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        assert_eq!(&batch.schema(), reader.schema());
        batches.push(batch);
    }
    Ok(batches)
}

/// The batches as one.
pub fn joined(schema: &SchemaRef, batches: &[RecordBatch]) -> RecordBatch {
    arrow_select::concat::concat_batches(schema, batches).unwrap()
}

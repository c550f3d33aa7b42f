//! The limits of reading: pages, projections, records, places beyond 4 GiB.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{joined, options, random_batch, read, schema, write};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow_schema::Schema;
use parquet::file::metadata::{
    ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use rapidbyte_columnar::{Compression, File, FileWriter, Kind, Limits, ReadAt, WriteOptions};

/// Counts what is read.
struct Counted(Vec<u8>, Arc<AtomicU64>);

impl ReadAt for Counted {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        let bytes = self.0.read(offset, len)?;
        self.1.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

fn limits(batch_bytes: usize, max_record_bytes: usize) -> Limits {
    Limits {
        batch_bytes,
        max_record_bytes,
    }
}

/// 20,000 short texts, then 60 of 100,000 bytes, then short ones again.
fn skewed() -> RecordBatch {
    let rows = 40_060;
    let texts = (0..rows).map(|row| match row {
        20_000..20_060 => format!("{row} ").repeat(16_700),
        _ => row.to_string(),
    });
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(rows)));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap()
}

/// The same as batches of about the size that the host gives.
fn skewed_batches() -> Vec<RecordBatch> {
    let all = skewed();
    let large = (0..6).map(|at| (20_000 + at * 10, 10));
    let parts = std::iter::once((0, 20_000))
        .chain(large)
        .chain([(20_060, 20_000)]);
    parts.map(|(at, rows)| all.slice(at, rows)).collect()
}

#[test]
fn batches_have_about_the_bytes_that_were_asked_for() {
    let expected = skewed();
    for (kind, compression) in [
        (Kind::Parquet, Compression::None),
        (Kind::Parquet, Compression::Zstd),
        (Kind::Arrow, Compression::None),
    ] {
        let batches: Vec<_> = (0..expected.num_rows())
            .step_by(4006)
            .map(|at| expected.slice(at, 4006))
            .collect();
        let file = write(kind, &batches, &options(compression));
        let found = read(kind, file, None, limits(150_000, 1 << 20)).unwrap();
        assert_eq!(joined(&expected.schema(), &found), expected, "{kind:?}");
        let mut large = 0;
        for batch in &found {
            let bytes: usize =
                batch.column(1).as_string::<i32>().values().len() + batch.num_rows() * 12;
            assert!(bytes <= 150_000 || batch.num_rows() == 1, "{bytes}");
            large += usize::from(bytes > 90_000);
        }
        assert!(large >= 60, "{kind:?}: {large} of {}", found.len());
        assert!(found.len() < 300, "{kind:?}: {}", found.len());
    }
}

#[test]
fn steps_that_are_repeated_with_fewer_rows_read_little_again() {
    let count = Arc::new(AtomicU64::default());
    let file = write(
        Kind::Parquet,
        &skewed_batches(),
        &options(Compression::None),
    );
    let size = file.len() as u64;
    let found = read(
        Kind::Parquet,
        Counted(file, count.clone()),
        None,
        limits(20_000, 1 << 20),
    );
    let rows: usize = found.unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 40_060);
    let read = count.load(Ordering::Relaxed);
    assert!(read < 8 * size, "{read} bytes of a file of {size}");
}

#[test]
fn only_the_wanted_columns_are_read() {
    let columns = [
        ("a", "int64"),
        ("b", "string"),
        ("c", "string"),
        ("d", "list<string>"),
        ("e", "uuid"),
    ];
    let schema = schema(&columns);
    let batch = random_batch(&schema, 20_000, &[5]);
    for kind in [Kind::Parquet, Kind::Arrow] {
        let file = write(
            kind,
            std::slice::from_ref(&batch),
            &options(Compression::None),
        );
        let size = file.len() as u64;
        let count = Arc::new(AtomicU64::default());
        let wanted = ["c", "a"];
        let found = read(
            kind,
            Counted(file, count.clone()),
            Some(&wanted),
            Limits::default(),
        )
        .unwrap();
        let expected = batch.project(&[2, 0]).unwrap();
        assert_eq!(joined(&expected.schema(), &found), expected);
        let read = count.load(Ordering::Relaxed);
        if kind == Kind::Parquet {
            assert!(read < size / 2, "{read} of {size}");
        }
    }
    let file = write(Kind::Parquet, &[batch], &WriteOptions::default());
    let error = read(Kind::Parquet, file.clone(), Some(&["x"]), Limits::default()).unwrap_err();
    assert_eq!(
        (error.code, error.column.as_deref()),
        ("unknown_column", Some("x"))
    );
    let error = read(Kind::Parquet, file, Some(&["a", "a"]), Limits::default()).unwrap_err();
    assert_eq!(error.code, "unknown_column");
}

#[test]
fn a_record_above_the_limit_is_refused_at_its_row() {
    for kind in [Kind::Parquet, Kind::Arrow] {
        let file = write(kind, &[skewed()], &WriteOptions::default());
        let error = read(kind, file, None, limits(10_000, 90_000)).unwrap_err();
        assert_eq!(
            (error.code, error.row),
            ("record_too_large", Some(20_001)),
            "{error}"
        );
        assert!(
            error
                .hint
                .is_some_and(|hint| hint.contains("max_record_bytes"))
        );
    }
}

#[test]
fn a_page_above_the_limit_is_refused_before_it_is_read() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(70 << 20)]));
    let batch = RecordBatch::try_from_iter([("t", text)]).unwrap();
    let expected = [
        (Kind::Parquet, "page_too_large"),
        (Kind::Arrow, "batch_too_large"),
    ];
    for (kind, code) in expected {
        // Large for its row group it would not be compressed.
        let written = WriteOptions {
            row_group_bytes: 1 << 30,
            ..options(Compression::Zstd)
        };
        let file = write(kind, std::slice::from_ref(&batch), &written);
        assert!(file.len() < 1 << 20);
        let count = Arc::new(AtomicU64::default());
        let error = read(kind, Counted(file, count), None, limits(1 << 20, 1 << 20)).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.to_string().contains("row group 1"), "{error}");
        // A piece of 70 MiB and a few bytes.
        let hint = error.hint.unwrap_or_default();
        let named = "resources.max_record_bytes: 18mb and resources.memory: 281mb";
        assert!(hint.contains(named), "{hint}");
    }
}

#[test]
fn the_memory_of_a_writer_is_bounded() {
    let columns: Vec<String> = (0..200).map(|at| format!("c{at}")).collect();
    let value: ArrayRef = Arc::new(StringArray::from_iter_values((0..20).map(|at| {
        // Nothing that a dictionary or a codec makes small.
        let seed = u64::from(at as u32);
        (0..150_u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).to_string())
            .collect::<String>()
    })));
    let batch =
        RecordBatch::try_from_iter(columns.iter().map(|name| (name.as_str(), value.clone())))
            .unwrap();
    let options = WriteOptions {
        row_group_bytes: 8 << 20,
        ..options(Compression::None)
    };
    let mut writer = FileWriter::new(Kind::Parquet, batch.schema(), &options, Vec::new()).unwrap();
    let mut most = 0;
    for _ in 0..20 {
        writer.write(&batch).unwrap();
        most = most.max(writer.held_bytes());
    }
    let file = writer.finish().unwrap();
    assert!(most < 12 << 20, "{most}");
    let found = File::open(Kind::Parquet, Arc::new(file)).unwrap();
    assert_eq!(found.rows(), 400);
}

/// A file with a hole after its first 4 bytes.
struct Sparse {
    file: Vec<u8>,
    hole: u64,
}

impl ReadAt for Sparse {
    fn size(&self) -> u64 {
        self.file.size() + self.hole
    }
    fn read(&self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        assert!(offset >= 4 + self.hole, "the hole is read at {offset}");
        self.file.read(offset - self.hole, len)
    }
}

/// The Parquet file with every chunk so much further on.
fn moved(file: &[u8], hole: i64) -> Vec<u8> {
    let tail = file.len() - 8;
    let length = u32::from_le_bytes(file[tail..tail + 4].try_into().unwrap()) as usize;
    let metadata = ParquetMetaDataReader::decode_metadata(&file[tail - length..tail]).unwrap();
    let mut builder = ParquetMetaDataBuilder::new(metadata.file_metadata().clone());
    for group in metadata.row_groups() {
        let chunks = group.columns().iter().map(|chunk| {
            chunk
                .clone()
                .into_builder()
                .set_data_page_offset(chunk.data_page_offset() + hole)
                .set_dictionary_page_offset(chunk.dictionary_page_offset().map(|at| at + hole))
                .set_column_index_offset(None)
                .set_column_index_length(None)
                .set_offset_index_offset(None)
                .set_offset_index_length(None)
                .build()
                .unwrap()
        });
        let group = group
            .clone()
            .into_builder()
            .set_column_metadata(chunks.collect());
        builder = builder.add_row_group(group.build().unwrap());
    }
    let mut moved = file[..tail - length].to_vec();
    ParquetMetaDataWriter::new(&mut moved, &builder.build())
        .finish()
        .unwrap();
    moved
}

#[test]
fn places_beyond_4_gib_are_read() {
    let batch = random_batch(&schema(&[("a", "int64"), ("s", "string")]), 5000, &[9]);
    let file = write(
        Kind::Parquet,
        std::slice::from_ref(&batch),
        &WriteOptions::default(),
    );
    for hole in [5_i64 << 30, 5 << 40] {
        let sparse = Sparse {
            file: moved(&file, hole),
            hole: hole.unsigned_abs(),
        };
        let found = read(Kind::Parquet, sparse, None, Limits::default()).unwrap();
        assert_eq!(joined(&batch.schema(), &found), batch);
    }
}

#[test]
fn many_small_row_groups_make_batches_together() {
    let batch = random_batch(&schema(&[("a", "int64!")]), 10, &[2]);
    let batches = vec![batch.clone(); 500];
    let options = WriteOptions {
        row_group_bytes: 1,
        ..WriteOptions::default()
    };
    let file = write(Kind::Parquet, &batches, &options);
    let found = read(Kind::Parquet, file, None, Limits::default()).unwrap();
    assert_eq!(found.len(), 1);
    let sum = |batches: &[RecordBatch]| -> i64 {
        let columns = batches
            .iter()
            .map(|batch| batch.column(0).as_primitive::<Int64Type>());
        columns
            .flat_map(|column| column.values())
            .fold(0, |sum, value| sum.wrapping_add(*value))
    };
    assert_eq!(sum(&found), sum(&batches));
    assert_eq!(found[0].column(0).null_count(), 0);
}

#[test]
fn small_batches_of_many_columns_read_each_page_once() {
    let names: Vec<String> = (0..30).map(|at| format!("c{at}")).collect();
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..30_000).map(|row| format!("value {}", row % 700)),
    ));
    let columns = names.iter().map(|name| (name.as_str(), texts.clone()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = write(
        Kind::Parquet,
        std::slice::from_ref(&batch),
        &options(Compression::None),
    );
    let size = file.len() as u64;
    let count = Arc::new(AtomicU64::default());
    let found = read(
        Kind::Parquet,
        Counted(file, count.clone()),
        None,
        limits(2000, 1 << 20),
    )
    .unwrap();
    assert_eq!(joined(&batch.schema(), &found), batch);
    let read = count.load(Ordering::Relaxed);
    assert!(
        read < 2 * size,
        "{read} bytes were read of a file of {size}"
    );
}

#[test]
fn rows_that_take_no_bytes_are_bounded() {
    let rows = |rows: usize| {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap()
    };
    let written = |batches: &[RecordBatch]| write(Kind::Arrow, batches, &WriteOptions::default());
    let file = written(&[rows(10), rows(1 << 33)]);
    let error = read(Kind::Arrow, file, None, Limits::default()).unwrap_err();
    assert_eq!(error.code, "arrow_malformed");
    assert!(error.message.contains("no bytes"), "{error}");
    let found = read(
        Kind::Arrow,
        written(&[rows(100_000)]),
        None,
        Limits::default(),
    )
    .unwrap();
    assert_eq!(
        found.iter().map(RecordBatch::num_rows).sum::<usize>(),
        100_000
    );
    // Their sum is more than any number.
    let many = written(&vec![rows(usize::MAX >> 1); 3]);
    let file = File::open(Kind::Arrow, Arc::new(many)).unwrap();
    assert_eq!(file.rows(), u64::MAX);
}

#[test]
fn huge_values_are_written_without_copies_for_dictionaries_and_statistics() {
    let rows = 3000;
    let texts = (0..rows).map(|row| match row {
        1000..1004 | 2000 => format!("{row} ").repeat(1_200_000),
        _ => row.to_string(),
    });
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let all = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let parts = [(0, 1000), (1000, 2), (1002, 1), (1003, 997), (2000, 1000)];
    let batches: Vec<_> = parts.map(|(at, rows)| all.slice(at, rows)).into();
    let file = write(Kind::Parquet, &batches, &options(Compression::Zstd));
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&bytes::Bytes::from(file.clone()))
        .unwrap();
    let mut plain = 0;
    for group in metadata.row_groups() {
        let text = group.column(1);
        plain += usize::from(text.statistics().is_none());
        assert_eq!(
            text.statistics().is_none(),
            text.dictionary_page_offset().is_none()
        );
        let longest = text.statistics().and_then(|s| s.max_bytes_opt());
        assert!(longest.is_none_or(|max| max.len() < 1000));
    }
    assert!((1..metadata.num_row_groups()).contains(&plain), "{plain}");
    let found = read(Kind::Parquet, file, None, limits(1 << 20, 8 << 20)).unwrap();
    assert_eq!(joined(&all.schema(), &found), all);
}

#[test]
fn many_columns_are_written_within_the_memory_of_a_row_group() {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..100).map(|row| format!("v{row}")),
    ));
    let columns = (0..1600).map(|at| (format!("c{at}"), texts.clone()));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let written = options(Compression::Zstd);
    let mut writer = FileWriter::new(Kind::Parquet, batch.schema(), &written, Vec::new()).unwrap();
    for _ in 0..20 {
        writer.write(&batch).unwrap();
        let held = writer.held_bytes();
        assert!(held <= written.row_group_bytes, "{held}");
    }
    let file = writer.finish().unwrap();
    let found = read(Kind::Parquet, file, None, limits(1 << 20, 1 << 20)).unwrap();
    let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 2000);
}

#[test]
fn wide_files_with_several_pages_of_a_column_are_read_whole() {
    let rows = 45_000;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..rows).map(|row| format!("v{}", row % 500)),
    ));
    let columns = (0..100).map(|at| {
        let values = if at % 2 == 0 { &ids } else { &texts };
        (format!("c{at}"), values.clone())
    });
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let written = WriteOptions {
        row_group_bytes: 1 << 28,
        ..options(Compression::Zstd)
    };
    let file = write(Kind::Parquet, std::slice::from_ref(&batch), &written);
    let found = read(Kind::Parquet, file, None, limits(1 << 20, 1 << 20)).unwrap();
    assert_eq!(joined(&batch.schema(), &found), batch);
}

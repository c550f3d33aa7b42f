//! Damaged files give an error, or other values: never a panic, never a huge allocation.

use std::sync::LazyLock;

use arrow_ipc::writer::StreamWriter;

use crate::support::{options, random_batch, read, schema, write};
use proptest::prelude::*;
use rapidbyte_columnar::{Compression, Kind, Limits, WriteOptions};

/// Small files of both kinds, some pages without compression, some dictionaries.
static FILES: LazyLock<Vec<(Kind, Vec<u8>)>> = LazyLock::new(|| {
    let columns = [
        ("i", "int64"),
        ("s", "string!"),
        ("d", "decimal(50, 3)"),
        ("u", "uuid"),
        ("b", "bool"),
        ("l", "list<struct<a: string, b: list<int16>>>"),
        ("m", "map<string, json>"),
        ("t", "timestamptz"),
    ];
    let schema = schema(&columns);
    let batches = [
        random_batch(&schema, 90, &[3]),
        random_batch(&schema, 60, &[4]),
    ];
    let codecs = [
        Compression::None,
        Compression::Snappy,
        Compression::Zstd,
        Compression::Lz4,
    ];
    let mut files = Vec::new();
    for compression in codecs {
        for kind in [Kind::Parquet, Kind::Arrow] {
            if compression.fits(kind) {
                let options = WriteOptions {
                    row_group_bytes: 4096,
                    ..options(compression)
                };
                files.push((kind, write(kind, &batches, &options)));
            }
        }
    }
    files
});

/// Any result is right, as long as the reader ends. An error has one line.
fn end(kind: Kind, file: Vec<u8>) {
    let limits = Limits {
        batch_bytes: 4096,
        max_record_bytes: 1 << 20,
    };
    match read(kind, file, None, limits) {
        Ok(_) => {}
        Err(error) => {
            let text = &error.message;
            assert!(!text.is_empty() && !text.contains('\n'), "{text}");
            assert_ne!(error.code, "schema_mismatch");
        }
    }
}

#[test]
fn every_truncated_file_is_refused() {
    for (kind, file) in FILES.iter() {
        for cut in (1..file.len()).step_by(7) {
            let result = read(
                *kind,
                file[..file.len() - cut].to_vec(),
                None,
                Limits::default(),
            );
            assert!(result.is_err(), "{kind:?} without its last {cut} bytes");
        }
    }
}

/// The footer of the last file has positions that lie in the first one: its rows would be read twice or lost.
#[test]
fn a_file_behind_another_is_refused() {
    for (kind, file) in FILES.iter() {
        assert!(read(*kind, file.clone(), None, Limits::default()).is_ok());
        let two = [&file[..], file].concat();
        let error = read(*kind, two, None, Limits::default()).unwrap_err();
        assert!(error.code.ends_with("_malformed"), "{error}");
        let place = format!("file follows at byte {}", file.len());
        assert!(error.message.contains(&place), "{error}");
    }
}

#[test]
fn bytes_behind_the_end_of_an_arrow_stream_are_refused() {
    let schema = schema(&[("i", "int64"), ("s", "string")]);
    let rows = random_batch(&schema, 5, &[1]);
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &schema).unwrap();
    writer.write(&rows).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let found = read(Kind::Arrow, stream.clone(), None, Limits::default()).unwrap();
    assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), 5);
    for behind in [&stream[..], b"junkjunk", b"\0"] {
        let file = [&stream[..], behind].concat();
        let error = read(Kind::Arrow, file, None, Limits::default()).unwrap_err();
        assert_eq!(error.code, "arrow_malformed");
        let bytes = format!("{} bytes follow the end marker", behind.len());
        assert!(error.message.contains(&bytes), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn changed_bytes_end_in_an_error_or_in_values(
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_footer in any::<bool>(),
    ) {
        let (kind, file) = file.get(&FILES);
        let mut file = file.clone();
        for (at, value) in changes {
            let from = if in_footer { file.len() * 2 / 3 } else { 0 };
            let at = from + at.index(file.len() - from);
            file[at] = value;
        }
        end(*kind, file);
    }

    #[test]
    fn parts_moved_around_end_too(
        file in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        len in 1_usize..64,
    ) {
        let (kind, file) = file.get(&FILES);
        let mut file = file.clone();
        let (from, to) = (from.index(file.len()), to.index(file.len()));
        let len = len.min(file.len() - from.max(to));
        file.copy_within(from..from + len, to);
        end(*kind, file);
    }
}

//! Folders of files: split, partitioned, replaced as a whole; and compressed ones.

use std::path::Path;
use std::sync::Arc;

use crate::common::{self, begin};
use dest_file::Files;
use rapidbyte_sdk::destination::{self, Session};
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Date32Array, Int64Array, StringArray};
use rapidbyte_sdk::prelude::*;
use serde_json::{Value, json};

fn open(folder: &Path, mut config: Value) -> Result<Session<Files>> {
    let path = folder.join(config["path"].as_str().unwrap());
    config["path"] = json!(path.to_str().unwrap());
    destination::open::<Files>(&config.to_string())
}

/// Rows of an id, a day and a text.
fn batch(rows: &[(i64, Option<i32>, Option<&str>)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<Date32Array>()),
        Arc::new(rows.iter().map(|row| row.2).collect::<StringArray>()),
    ];
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("day", DataType::Date32, true),
        Field::new("t", DataType::Utf8, true),
    ]);
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn ids(ids: std::ops::Range<i64>) -> RecordBatch {
    batch(&ids.map(|id| (id, None, None)).collect::<Vec<_>>())
}

fn target(stream: &str, write_mode: WriteMode) -> Target {
    common::target(stream, &ids(0..0).schema(), write_mode)
}

fn write(files: &mut Session<Files>, mode: WriteMode, batches: &[RecordBatch]) -> Result<Receipt> {
    let mut load = begin(files, &target("s", mode))?;
    for batch in batches {
        load.write(batch)?;
    }
    let part = load.flush()?;
    load.commit(Commit::whole("s", vec![part]))
}

fn replace(folder: &Path, config: Value, batches: &[RecordBatch]) -> Result<Receipt> {
    write(&mut open(folder, config)?, WriteMode::Replace, batches)
}

/// Every file below a folder with its text, `path: text`, and hidden ones.
fn tree(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(folder).unwrap().display().to_string();
            let bytes = std::fs::read(&path).unwrap();
            found.push(format!("{inside}: {}", String::from_utf8_lossy(&bytes)));
        }
    }
    found.sort();
    found
}

#[test]
fn a_file_ends_at_its_rows_whatever_the_batches_are() {
    for sizes in [&[7][..], &[1, 1, 5], &[3, 0, 4], &[6, 1]] {
        let folder = tempfile::tempdir().unwrap();
        let mut from = 0;
        let batches: Vec<_> = sizes
            .iter()
            .map(|rows| {
                from += rows;
                ids(from - rows..from)
            })
            .collect();
        let config = json!({"path": "o/{stream}-{part}.csv", "split": {"rows": 3}});
        let receipt = replace(folder.path(), config, &batches).unwrap();
        assert_eq!(
            tree(folder.path()),
            [
                "o/s-00000.csv: id,day,t\n0,,\n1,,\n2,,\n",
                "o/s-00001.csv: id,day,t\n3,,\n4,,\n5,,\n",
                "o/s-00002.csv: id,day,t\n6,,\n",
            ]
        );
        assert_eq!((receipt.rows, receipt.bytes), (7, 55));
        assert!(receipt.location.ends_with("/o/s-*.csv"));
    }
}

#[test]
fn a_file_ends_with_the_row_that_brings_it_to_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "o/{part}.jsonl", "split": {"bytes": "1kb"}});
    replace(folder.path(), config, &[ids(0..100), ids(100..200)]).unwrap();
    let files = tree(folder.path());
    let row = "{\"id\":100,\"day\":null,\"t\":null}\n".len();
    for (at, file) in files.iter().enumerate() {
        let len = file.split_once(": ").unwrap().1.len();
        let last = at + 1 == files.len();
        assert!(last || (1024..1024 + row).contains(&len), "{at}: {len}");
    }
    assert_eq!(files.len(), 6);
}

#[test]
fn a_stream_without_rows_has_one_file_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "o/{part}.csv", "split": {"rows": 3}});
    replace(folder.path(), config, &[ids(0..0)]).unwrap();
    assert_eq!(tree(folder.path()), ["o/00000.csv: id,day,t\n"]);
}

#[test]
fn partition_columns_become_folders_and_leave_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "{stream}/a.csv", "partition_by": ["t", "day"]});
    let rows = [
        (1, Some(20_778), Some("x/../../y")),
        (2, None, Some("..")),
        (3, Some(20_778), Some("x/../../y")),
        (4, Some(20_779), None),
        (5, Some(20_778), Some("=*%:")),
        (6, Some(20_779), Some("")),
    ];
    replace(
        folder.path(),
        config,
        &[batch(&rows[..3]), batch(&rows[3..])],
    )
    .unwrap();
    let null = "__HIVE_DEFAULT_PARTITION__";
    assert_eq!(
        tree(folder.path()),
        [
            "s/t=%3D%2A%25%3A/day=2026-11-21/a.csv: id\n5\n".to_owned(),
            format!("s/t=../day={null}/a.csv: id\n2\n"),
            "s/t=/day=2026-11-22/a.csv: id\n6\n".to_owned(),
            format!("s/t={null}/day=2026-11-22/a.csv: id\n4\n"),
            "s/t=x%2F..%2F..%2Fy/day=2026-11-21/a.csv: id\n1\n3\n".to_owned(),
        ]
    );
}

#[test]
fn values_that_no_folder_can_be_named_after_are_refused_at_their_row() {
    for value in ["__HIVE_DEFAULT_PARTITION__", &"x".repeat(300)] {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({"path": "{stream}/a.csv", "partition_by": ["t"]});
        let rows = [
            batch(&[(1, None, Some("a")), (2, None, Some("b"))]),
            batch(&[(3, None, Some(value))]),
        ];
        let error = replace(folder.path(), config, &rows).unwrap_err();
        assert_eq!(error.code, "partition_value");
        assert!(
            error.message.starts_with("row 3: column \"t\""),
            "{}",
            error.message
        );
        assert_eq!(error.column.as_deref(), Some("t"));
        assert_eq!(tree(folder.path()), [""; 0]);
    }
}

#[test]
fn more_partitions_than_open_files_need_a_counter_in_the_name() {
    let rows: Vec<_> = (0..9)
        .map(|id| (id, Some(20_000 + (id as i32) % 3), None))
        .collect();
    let batches: Vec<_> = rows
        .iter()
        .map(|row| batch(std::slice::from_ref(row)))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let config = |path: &str| json!({"path": path, "partition_by": ["day"], "open_files": 2});
    let error = replace(folder.path(), config("{stream}/a.csv"), &batches).unwrap_err();
    assert_eq!(error.code, "too_many_partitions");
    assert_eq!(tree(folder.path()), [""; 0]);

    replace(folder.path(), config("{stream}/a-{part}.csv"), &batches).unwrap();
    let files = tree(folder.path());
    let mut found: Vec<i64> = files
        .iter()
        .flat_map(|file| file.lines().skip(1))
        .map(|line| line.trim_end_matches(',').parse().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, (0..9).collect::<Vec<_>>());
    assert!(
        files.len() > 3 && files[0].contains("/a-00000.csv: "),
        "{files:?}"
    );

    // Rows of one batch are put together first.
    let folder = tempfile::tempdir().unwrap();
    replace(
        folder.path(),
        config("{stream}/a-{part}.csv"),
        &[batch(&rows)],
    )
    .unwrap();
    assert_eq!(tree(folder.path()).len(), 3);
}

#[test]
fn too_many_files_are_refused_before_any_of_the_batch_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..60_000).map(|id| (id, Some(id as i32), None)).collect();
    for (config, part) in [
        (
            json!({"path": "o/{part}.csv", "partition_by": ["day"]}),
            "files; the first 60001 rows have 60000 or more values of day",
        ),
        (
            json!({"path": "o/{part}.csv", "split": {"rows": 1}}),
            "more than 50000 files",
        ),
    ] {
        let mut files = open(folder.path(), config).unwrap();
        let mut load = begin(&mut files, &target("s", WriteMode::Replace)).unwrap();
        load.write(&batch(&rows[..1])).unwrap();
        let error = load.write(&batch(&rows)).unwrap_err();
        assert_eq!(error.code, "too_many_parts");
        assert!(error.message.ends_with(part), "{}", error.message);
        drop((load, files));
        assert_eq!(tree(folder.path()), [""; 0]);
    }
}

#[test]
fn partitions_are_split_too() {
    let rows: Vec<_> = (0..10)
        .map(|id| (id, Some(20_000 + (id as i32) % 2), None))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "o/{part}.csv", "partition_by": ["day"], "split": {"rows": 2}});
    replace(folder.path(), config, &[batch(&rows)]).unwrap();
    let files = tree(folder.path());
    assert_eq!(files.len(), 6);
    assert_eq!(files[0], "o/day=2024-10-04/00000.csv: id,t\n0,\n2,\n");
    assert_eq!(files[5], "o/day=2024-10-05/00002.csv: id,t\n9,\n");
}

#[test]
fn no_older_file_stays_beside_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let config = || json!({"path": "o/{part}.csv", "split": {"rows": 1}});
    replace(folder.path(), config(), &[ids(0..5)]).unwrap();
    assert_eq!(tree(folder.path()).len(), 5);
    replace(folder.path(), config(), &[ids(7..9)]).unwrap();
    assert_eq!(
        tree(folder.path()),
        [
            "o/00000.csv: id,day,t\n7,,\n",
            "o/00001.csv: id,day,t\n8,,\n"
        ]
    );
}

#[test]
fn a_set_that_is_given_up_leaves_the_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = || json!({"path": "o/{part}.csv", "split": {"rows": 1}});
    replace(folder.path(), config(), &[ids(0..2)]).unwrap();
    let before = tree(folder.path());
    let mut files = open(folder.path(), config()).unwrap();
    let mut load = begin(&mut files, &target("s", WriteMode::Replace)).unwrap();
    load.write(&ids(5..9)).unwrap();
    load.abort().unwrap();
    assert_eq!(tree(folder.path()), before);
    drop((files, load));
    assert_eq!(tree(folder.path()), before);
}

#[test]
fn strangers_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let config = || json!({"path": "o/{part}.csv", "split": {"rows": 1}});
    replace(folder.path(), config(), &[ids(0..2)]).unwrap();
    std::fs::write(folder.path().join("o/notes.txt"), "mine").unwrap();
    let error = replace(folder.path(), config(), &[ids(0..1)]).unwrap_err();
    assert_eq!(error.code, "foreign_file");
    assert_eq!(tree(folder.path()).len(), 3);
}

#[test]
fn two_streams_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": "o/{stream}-{part}.csv", "split": {"rows": 1}});
    let mut files = open(folder.path(), config).unwrap();
    let _first = begin(&mut files, &target("a", WriteMode::Replace)).unwrap();
    let error = begin(&mut files, &target("b", WriteMode::Replace))
        .err()
        .unwrap();
    assert_eq!(error.code, "shared_target");
    assert!(error.hint.unwrap().contains("a folder of the path"));
    // A plan says so, too, also where the partitions of the streams differ.
    let config = json!({"path": "p/rows.csv", "partition_by_stream": {"a": ["day"], "b": ["id"]}});
    let mut files = open(folder.path(), config).unwrap();
    for _ in 0..2 {
        files.plan(&target("a", WriteMode::Replace)).unwrap();
    }
    let error = files.plan(&target("b", WriteMode::Replace)).unwrap_err();
    assert_eq!(error.code, "shared_target");
}

#[test]
fn wrong_configurations_name_their_key() {
    let split = json!({"rows": 5});
    for (config, code, key) in [
        (
            json!({"path": "o/a.csv", "split": split}),
            "missing_part",
            "path",
        ),
        (
            json!({"path": "{part}/a.csv", "split": split}),
            "invalid_path",
            "path",
        ),
        (
            json!({"path": "o/{part}-{part}.csv", "split": split}),
            "invalid_path",
            "path",
        ),
        (
            json!({"path": "../{part}.csv", "split": split}),
            "invalid_path",
            "path",
        ),
        (
            json!({"path": "o/{part}.csv", "split": {}}),
            "invalid_config",
            "split",
        ),
        (
            json!({"path": "o/{part}.csv", "split": {"rows": 0}}),
            "invalid_config",
            "split",
        ),
        (
            json!({"path": "o/{part}.csv", "split": {"bytes": "1 pound"}}),
            "invalid_config",
            "split",
        ),
        (
            json!({"path": "o/a.csv", "open_files": 3}),
            "unused_option",
            "open_files",
        ),
        (
            json!({"path": "o/a.csv", "partition_by": ["day"], "open_files": 100_000}),
            "invalid_config",
            "open_files",
        ),
        (
            json!({"path": "o/a.csv", "partition_by": ["day", "day"]}),
            "invalid_config",
            "partition_by",
        ),
        (
            json!({"path": "o/a.csv", "compression": "brotli"}),
            "invalid_config",
            "compression",
        ),
    ] {
        let shown = config.to_string();
        let error = destination::open::<Files>(&shown).err().expect(&shown);
        assert_eq!(error.code, code, "{shown}");
        let location = error.location.expect(&shown);
        assert!(
            location.starts_with(&format!("config.{key}")),
            "{shown}: {location}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    for (columns, code) in [
        (json!(["nope"]), "unknown_column"),
        (json!(["id", "day", "t"]), "no_columns"),
    ] {
        let config = json!({"path": "o/a.csv", "partition_by": columns});
        let mut files = open(folder.path(), config).unwrap();
        let error = files.plan(&target("s", WriteMode::Replace)).unwrap_err();
        assert_eq!(error.code, code);
        let error = begin(&mut files, &target("s", WriteMode::Replace))
            .err()
            .unwrap();
        assert_eq!(error.code, code);
    }
}

#[test]
fn wrong_numbers_and_names_are_explained_in_words() {
    let folder = tempfile::tempdir().unwrap();
    for (config, part) in [
        (
            json!({"split": {"rows": -1}}),
            "expected a number of rows, 1 or more",
        ),
        (
            json!({"partition_by": ["day", "day"]}),
            "column \"day\" is named twice",
        ),
        (
            json!({"partition_by": [""]}),
            "a column's name cannot be empty",
        ),
    ] {
        let mut config = config;
        config["path"] = json!("o/{part}.csv");
        let error = open(folder.path(), config).err().unwrap();
        assert_eq!(error.code, "invalid_config");
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn a_plan_says_where_the_columns_go() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "path": "{stream}/{part}.csv.zst", "partition_by": ["day"], "split": {"bytes": "1mb"},
    });
    let mut files = open(folder.path(), config).unwrap();
    let plan = files.plan(&target("s", WriteMode::Replace)).unwrap();
    assert!(
        plan.location.ends_with("/s/day=*/*.csv.zst"),
        "{}",
        plan.location
    );
    assert_eq!(plan.columns[1].target_type, "folder name");
    let notes = plan.notes.join("; ");
    for part in [
        "directory of files",
        "1048576 bytes",
        "__HIVE_DEFAULT_PARTITION__",
        "zstd",
    ] {
        assert!(notes.contains(part), "{notes}");
    }
    assert!(files.check().unwrap()[0].problem.is_none());
    assert_eq!(tree(folder.path()), [""; 0], "a plan changes nothing");
}

#[test]
fn compressed_files_are_the_same_for_the_same_rows() {
    for (ending, magic) in [
        ("gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0][..]),
        ("zst", &[0x28, 0xb5, 0x2f, 0xfd]),
        ("lz4", &[4, 0x22, 0x4d, 0x18]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
        for name in ["a", "b"] {
            let config = json!({"path": format!("{name}.csv.{ending}")});
            let receipt = replace(folder.path(), config, &[ids(0..50_000), ids(0..9)]).unwrap();
            let file = read(&format!("{name}.csv.{ending}"));
            assert_eq!(receipt.bytes, file.len() as u64);
            assert!(
                file.starts_with(magic) && file.len() < 250_000,
                "{}",
                file.len()
            );
        }
        let same = read(&format!("a.csv.{ending}")) == read(&format!("b.csv.{ending}"));
        assert!(same, "{ending}");
    }
}

//! Streams whose columns differ from the columns of the directory that they add files to.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::common::{self, begin};
use dest_file::Files;
use rapidbyte_sdk::prelude::arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{DroppedColumn, NewColumn, TypeChange, destination};
use serde_json::{Value, json};

fn open(folder: &Path, format: &str) -> destination::Session<Files> {
    let path = folder.join(format!("o/p-{{part}}.{format}"));
    destination::open::<Files>(&json!({"path": path}).to_string()).unwrap()
}

fn ints(name: &str, values: &[i32]) -> (Field, ArrayRef) {
    let field = Field::new(name, DataType::Int32, true);
    (field, Arc::new(Int32Array::from(values.to_vec())))
}

fn longs(name: &str, values: &[i64]) -> (Field, ArrayRef) {
    let field = Field::new(name, DataType::Int64, true);
    (field, Arc::new(Int64Array::from(values.to_vec())))
}

fn texts(name: &str, values: &[&str]) -> (Field, ArrayRef) {
    let field = Field::new(name, DataType::Utf8, true);
    (field, Arc::new(StringArray::from(values.to_vec())))
}

fn target(columns: &[(Field, ArrayRef)], mode: WriteMode, changes: SchemaChanges) -> Target {
    let fields: Vec<Field> = columns.iter().map(|(field, _)| field.clone()).collect();
    Target {
        schema_changes: changes,
        ..common::target("s", &Schema::new(fields), mode)
    }
}

/// The plan of a run, and what the run wrote.
fn run(
    folder: &Path,
    format: &str,
    columns: &[(Field, ArrayRef)],
    mode: WriteMode,
    changes: SchemaChanges,
) -> Result<Plan> {
    run_in(open(folder, format), columns, mode, changes)
}

fn run_in(
    mut files: destination::Session<Files>,
    columns: &[(Field, ArrayRef)],
    mode: WriteMode,
    changes: SchemaChanges,
) -> Result<Plan> {
    let target = target(columns, mode, changes);
    let plan = files.plan(&target)?;
    let mut load = begin(&mut files, &target)?;
    let progress = load.progress().clone();
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    let batch = RecordBatch::try_new(target.arrow_schema()?, arrays).unwrap();
    load.write(&batch)?;
    let parts = vec![load.flush()?];
    load.commit(Commit {
        stream: "s",
        parts,
        seq: progress.seq,
        cursor: None,
        complete: true,
    })?;
    Ok(plan)
}

/// The columns of the newest manifest.
fn columns(folder: &Path) -> String {
    let folder = folder.join("o/_manifest");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    names.sort();
    let newest: Value = serde_json::from_slice(&fs::read(names.pop().unwrap()).unwrap()).unwrap();
    let column = |column: &Value| format!("{} {}", column["name"], column["type"]).replace('"', "");
    let columns = newest["columns"].as_array().unwrap().iter();
    columns.map(column).collect::<Vec<_>>().join(", ")
}

const ADD: SchemaChanges = SchemaChanges {
    new_column: NewColumn::Add,
    dropped_column: DroppedColumn::Keep,
    type_change: TypeChange::Widen,
    renamed: rapidbyte_sdk::RenamedColumn::Detect,
};

#[test]
fn the_manifest_has_the_columns_of_all_files() {
    for format in ["parquet", "arrow", "jsonl", "csv"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let append = WriteMode::Append;
        let plan = run(
            folder,
            format,
            &[ints("id", &[1]), texts("a", &["x"])],
            append,
            ADD,
        )
        .unwrap();
        assert!(plan.is_new);
        assert_eq!(plan.new_columns, ["id", "a"]);
        assert_eq!(columns(folder), "id int32, a string");
        let second = [longs("id", &[2]), texts("b", &["y"])];
        let plan = run(folder, format, &second, append, ADD).unwrap();
        assert_eq!(
            (plan.is_new, plan.new_columns),
            (false, vec!["b".to_owned()])
        );
        let notes = plan.notes.join("\n");
        assert!(
            notes.contains("new files lack columns that older files have: a"),
            "{notes}"
        );
        assert!(notes.contains("older files lack new columns: b"), "{notes}");
        assert_eq!(columns(folder), "id int64, a string, b string", "{format}");
        // A narrower type changes nothing, and a replace begins anew.
        let third = [ints("id", &[3])];
        run(folder, format, &third, append, ADD).unwrap();
        assert_eq!(columns(folder), "id int64, a string, b string", "{format}");
        let plan = run(folder, format, &third, WriteMode::Replace, ADD).unwrap();
        assert_eq!(plan.new_columns, ["id"]);
        assert_eq!(columns(folder), "id int32", "{format}");
    }
}

#[test]
fn a_policy_refuses_or_leaves_out_what_the_files_lack() {
    let append = WriteMode::Append;
    for format in ["parquet", "csv"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        run(
            folder,
            format,
            &[ints("id", &[1]), texts("a", &["x"])],
            append,
            ADD,
        )
        .unwrap();
        let wider = [ints("id", &[2]), texts("new", &["n"]), texts("a", &["y"])];
        let fit = |changes| {
            let plan = open(folder, format).plan(&target(&wider, append, changes))?;
            Ok::<_, Error>(
                plan.columns
                    .into_iter()
                    .map(|column| column.fit)
                    .collect::<Vec<_>>(),
            )
        };
        let fail = SchemaChanges {
            new_column: NewColumn::Fail,
            ..ADD
        };
        assert_eq!(fit(fail).unwrap()[1], Fit::Refused);
        let error = run(folder, format, &wider, append, fail).unwrap_err();
        assert_eq!(error.code, "column_refused");
        let ignore = SchemaChanges {
            new_column: NewColumn::Ignore,
            ..ADD
        };
        assert_eq!(fit(ignore).unwrap()[1], Fit::Ignored);
        let plan = run(folder, format, &wider, append, ignore).unwrap();
        assert!(
            plan.notes
                .iter()
                .any(|note| note.starts_with("warning: ") && note.ends_with("new"))
        );
        assert_eq!(columns(folder), "id int32, a string");
        if format == "csv" {
            let mut files: Vec<_> = fs::read_dir(folder.join("o"))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            files.retain(|path| path.is_file());
            files.sort();
            assert_eq!(fs::read_to_string(&files[1]).unwrap(), "id,a\n2,y\n");
        }
        let fail = SchemaChanges {
            dropped_column: DroppedColumn::Fail,
            ..ADD
        };
        let error = run(folder, format, &[ints("id", &[3])], append, fail).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.column.as_deref()),
            ("column_dropped", Some("a"))
        );
        let drop = SchemaChanges {
            dropped_column: DroppedColumn::Drop,
            ..ADD
        };
        let error = run(folder, format, &[ints("id", &[3])], append, drop).unwrap_err();
        assert_eq!(error.code, "schema_changes_unsupported");
    }
}

#[test]
fn a_type_that_does_not_go_with_the_files_is_refused() {
    let append = WriteMode::Append;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "parquet", &[ints("id", &[1])], append, ADD).unwrap();
    let plan = open(folder, "parquet")
        .plan(&target(&[texts("id", &["x"])], append, ADD))
        .unwrap();
    assert_eq!(plan.columns[0].fit, Fit::Refused);
    assert_eq!(plan.columns[0].stored_type.as_deref(), Some("int32"));
    let note = plan.columns[0].note.clone().unwrap();
    assert!(
        note.contains("as int32, and the stream has string: no type holds the values of both"),
        "{note}"
    );
    let error = run(folder, "parquet", &[texts("id", &["x"])], append, ADD).unwrap_err();
    assert_eq!(error.code, "column_refused");
    let fail = SchemaChanges {
        type_change: TypeChange::Fail,
        ..ADD
    };
    let plan = open(folder, "parquet")
        .plan(&target(&[longs("id", &[1])], append, fail))
        .unwrap();
    assert_eq!(plan.columns[0].fit, Fit::Refused);
    let plan = open(folder, "parquet")
        .plan(&target(&[longs("id", &[1])], append, ADD))
        .unwrap();
    assert_eq!(plan.columns[0].fit, Fit::Exact);
    // Text files have no types.
    let other = tempfile::tempdir().unwrap();
    run(other.path(), "csv", &[ints("id", &[1])], append, ADD).unwrap();
    run(other.path(), "csv", &[texts("id", &["x"])], append, ADD).unwrap();
    assert_eq!(columns(other.path()), "id string");
}

#[test]
fn columns_that_no_reader_brings_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("o/p-{part}.csv");
    let config = json!({"path": path, "header": false}).to_string();
    let refused = |columns: &[(Field, ArrayRef)]| {
        let mut files = destination::open::<Files>(&config).unwrap();
        files.plan(&target(columns, WriteMode::Append, ADD)).err()
    };
    let both = [ints("a", &[1]), ints("b", &[10])];
    let first = destination::open::<Files>(&config).unwrap();
    run_in(first, &both, WriteMode::Append, ADD).unwrap();
    assert!(refused(&both).is_none());
    for other in [
        vec![ints("b", &[10]), ints("a", &[1])],
        vec![ints("a", &[1])],
        vec![ints("a", &[1]), ints("b", &[1]), ints("c", &[1])],
    ] {
        let error = refused(&other).unwrap();
        assert_eq!(error.code, "column_refused");
        assert!(
            error.message.contains("told by their places: a, b"),
            "{error:?}"
        );
    }
    // With a header the names tell.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "csv", &both, WriteMode::Append, ADD).unwrap();
    let turned = [ints("b", &[10]), ints("a", &[1])];
    run(folder, "csv", &turned, WriteMode::Append, ADD).unwrap();
    let error = run(folder, "csv", &[ints("z", &[1])], WriteMode::Append, ADD).unwrap_err();
    assert_eq!(error.code, "column_refused");
    assert!(error.message.contains("none of the columns"), "{error:?}");
}

/// An earlier version named no columns.
#[test]
fn a_manifest_never_names_the_columns_of_some_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let append = WriteMode::Append;
    run(folder, "csv", &[ints("a", &[1])], append, ADD).unwrap();
    let newest = folder.join("o/_manifest/00000002.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&newest).unwrap()).unwrap();
    manifest.as_object_mut().unwrap().remove("columns").unwrap();
    fs::write(&newest, manifest.to_string()).unwrap();
    run(folder, "csv", &[texts("b", &["x"])], append, ADD).unwrap();
    let newest = folder.join("o/_manifest/00000004.json");
    let manifest: Value = serde_json::from_slice(&fs::read(&newest).unwrap()).unwrap();
    assert_eq!(manifest["columns"], Value::Null);
    run(
        folder,
        "csv",
        &[texts("b", &["x"])],
        WriteMode::Replace,
        ADD,
    )
    .unwrap();
    assert_eq!(columns(folder), "b string");
}

#[test]
fn all_files_of_a_directory_have_one_form() {
    let both = [ints("a", &[1]), texts("b", &["x"])];
    let folder = tempfile::tempdir().unwrap();
    let config = |settings: Value| {
        let mut config = json!({"path": folder.path().join("o/p-{part}.csv")});
        let settings = settings.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(settings);
        config
    };
    let session =
        |settings: Value| destination::open::<Files>(&config(settings).to_string()).unwrap();
    run_in(session(json!({})), &both, WriteMode::Append, ADD).unwrap();
    for (key, value, is_replaced) in [
        ("partition_by", json!(["a"]), false),
        ("format", json!("jsonl"), true),
        ("path", json!(folder.path().join("o/q-{part}.csv")), false),
        (
            "path",
            json!(folder.path().join("o/p-{part}.csv.gz")),
            false,
        ),
        ("compression", json!("gzip"), true),
        ("delimiter", json!(";"), true),
        ("quote", json!("'"), true),
        ("header", json!(false), true),
        ("null_text", json!("NULL"), true),
    ] {
        let settings = json!({key: value});
        let plan = |mode| session(settings.clone()).plan(&target(&both, mode, ADD));
        let error = plan(WriteMode::Append).unwrap_err();
        assert_eq!(error.code, "format_changed");
        assert!(matches!(error.kind, ErrorKind::Config), "{error:?}");
        assert_eq!(error.location, Some(format!("config.{key}")), "{error:?}");
        // A run that replaces the files removes only files with the same names.
        assert_eq!(plan(WriteMode::Replace).is_ok(), is_replaced, "{key}");
        let mut files = session(settings.clone());
        let begun = begin(&mut files, &target(&both, WriteMode::Append, ADD));
        assert_eq!(
            begun.err().map(|error| error.code),
            Some("format_changed".into())
        );
    }
    let tabs = json!({"delimiter": "\t"});
    run_in(session(tabs.clone()), &both, WriteMode::Replace, ADD).unwrap();
    run_in(session(tabs), &both, WriteMode::Append, ADD).unwrap();
    let error = session(json!({})).plan(&target(&both, WriteMode::Append, ADD));
    let error = error.unwrap_err();
    assert!(
        error
            .message
            .contains("with delimiter: '\\t', and the pipeline has ','"),
        "{error:?}"
    );
}

#[test]
fn columns_of_text_files_take_every_type() {
    let columns = [ints("a", &[1])];
    for (format, taken) in [
        ("csv", Some("any")),
        ("jsonl", Some("any")),
        ("parquet", None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let plan = || run(folder.path(), format, &columns, WriteMode::Append, ADD).unwrap();
        assert_eq!(plan().columns[0].stored_type, None);
        assert_eq!(plan().columns[0].stored_type.as_deref(), taken, "{format}");
    }
}

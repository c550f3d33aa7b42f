//! Streams of several Parquet and Arrow files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rapidbyte_columnar::{FileWriter, Kind, WriteOptions};
use rapidbyte_sdk::ipc;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{parse_field, type_name};
use serde_json::json;
use source_file::Files;

/// Its name, type and values.
type Column<'a> = (&'a str, &'a str, ArrayRef);

/// A file of these columns, `!` for NOT NULL, with as many rows as values.
fn write(path: &Path, columns: &[Column]) {
    let fields = columns.iter().map(|(name, type_name, _)| {
        let nullable = !type_name.ends_with('!');
        parse_field(name, type_name.trim_end_matches('!'), nullable).unwrap()
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.iter().map(|(_, _, array)| array.clone()).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
    let kind = match path.extension().unwrap().to_str() {
        Some("arrow") => Kind::Arrow,
        _ => Kind::Parquet,
    };
    let sink = std::fs::File::create(path).unwrap();
    let mut writer = FileWriter::new(kind, schema, &WriteOptions::default(), sink).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

fn ids(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn open(folder: &Path, ending: &str) -> Files {
    open_as(folder, ending, "same")
}

fn open_as(folder: &Path, ending: &str, headers: &str) -> Files {
    let path = folder.join(format!("*.{ending}"));
    let config = json!({"path": path.to_str(), "stream": "s", "headers": headers});
    Files::open(serde_json::from_value(config).unwrap()).unwrap()
}

fn request(source: &mut Files, columns: Option<&[&str]>) -> ReadRequest {
    let described = source.discover(&[]).unwrap_or_default().into_iter().next();
    let described = described.unwrap_or_else(|| Stream::new("s", &Schema::empty()).unwrap());
    ReadRequest {
        columns: columns.map(|names| names.iter().map(|name| (*name).into()).collect()),
        ..ReadRequest::of(&described)
    }
}

fn read(source: &mut Files, columns: Option<&[&str]>) -> Result<Vec<RecordBatch>> {
    let request = request(source, columns);
    let mut reader = source.read(&request)?;
    let mut batches = Vec::new();
    loop {
        match reader.next(Duration::ZERO)? {
            Event::Batch(batch) => {
                assert_eq!(batch.schema(), reader.schema());
                batches.push(batch);
            }
            Event::End => return Ok(batches),
            _ => {}
        }
    }
}

fn shown(schema: &Schema) -> String {
    let shown = |field: &Arc<Field>| {
        let required = if field.is_nullable() { "" } else { "!" };
        format!("{} {}{required}", field.name(), type_name(field))
    };
    let fields: Vec<_> = schema.fields().iter().map(shown).collect();
    fields.join(", ")
}

#[test]
fn metadata_that_is_not_trusted_describes_nothing() {
    for ending in ["parquet", "arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("1.{ending}"));
        let own = "rapidbyte.postgresql";
        let field = parse_field("t", "string", true).unwrap();
        let field = field.with_metadata([(own, "{}"), ("unit", "m")]);
        let schema = Schema::new_with_metadata(vec![field], [(own, "{}")]);
        let rows = RecordBatch::try_new(Arc::new(schema), vec![texts(&[Some("a")])]).unwrap();
        let kind = if ending == "arrow" {
            Kind::Arrow
        } else {
            Kind::Parquet
        };
        let sink = std::fs::File::create(&path).unwrap();
        let mut writer =
            FileWriter::new(kind, rows.schema(), &WriteOptions::default(), sink).unwrap();
        writer.write(&rows).unwrap();
        writer.finish().unwrap();
        for (trusts, expected) in [(None, true), (Some(true), true), (Some(false), false)] {
            let mut config = json!({"path": path.to_str(), "stream": "s"});
            if let Some(trusts) = trusts {
                config["trust_metadata"] = json!(trusts);
            }
            let mut source = Files::open(serde_json::from_value(config).unwrap()).unwrap();
            let found = ipc::decode_schema(&source.discover(&[]).unwrap()[0].schema).unwrap();
            let batches = read(&mut source, None).unwrap();
            assert_eq!(batches[0].column(0), &texts(&[Some("a")]));
            for schema in [&found, &*batches[0].schema()] {
                let of_field = schema.field(0).metadata();
                assert_eq!(of_field.contains_key(own), expected, "{ending} {trusts:?}");
                assert!(of_field.contains_key("unit"), "{ending} {trusts:?}");
                let is_described = schema.metadata().contains_key(own);
                assert!(expected || !is_described, "{ending} {trusts:?}");
            }
        }
    }
}

#[test]
fn columns_are_matched_by_name_and_nullable_if_one_file_says_so() {
    for ending in ["parquet", "arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(format!("{name}.{ending}"));
        let (a, b) = (texts(&[Some("a")]), texts(&[None]));
        write(
            &at("1"),
            &[("id", "int64!", ids(&[1])), ("t", "string!", a)],
        );
        write(&at("2"), &[("t", "string", b), ("id", "int64!", ids(&[2]))]);
        let mut source = open(folder.path(), ending);
        let schema = ipc::decode_schema(&source.discover(&[]).unwrap()[0].schema).unwrap();
        assert_eq!(shown(&schema), "id int64!, t string");
        let batches = read(&mut source, None).unwrap();
        assert_eq!(batches.len(), 2);
        for (batch, id, text) in [(&batches[0], 1, Some("a")), (&batches[1], 2, None)] {
            assert_eq!(batch.column(0), &ids(&[id]), "{ending}");
            assert_eq!(batch.column(1), &texts(&[text]), "{ending}");
        }
        let batches = read(&mut source, Some(&["t"])).unwrap();
        assert_eq!(shown(&batches[0].schema()), "t string");
    }
}

#[test]
fn missing_and_new_columns_and_other_types_name_file_and_column() {
    let cases: [(&[Column], &str, &str); 3] = [
        (&[("id", "int64!", ids(&[2]))], "t", "it is missing here"),
        (
            &[
                ("more", "int64!", ids(&[2])),
                ("t", "string", texts(&[None])),
                ("id", "int64!", ids(&[2])),
            ],
            "more",
            "does not have it",
        ),
        (
            &[("t", "int64", ids(&[2])), ("id", "int64!", ids(&[2]))],
            "t",
            "it is int64 here, and",
        ),
    ];
    for (columns, column, part) in cases {
        let folder = tempfile::tempdir().unwrap();
        let first = [
            ("id", "int64!", ids(&[1])),
            ("t", "string!", texts(&[Some("a")])),
        ];
        write(&folder.path().join("1.parquet"), &first);
        write(&folder.path().join("2.parquet"), columns);
        let mut source = open(folder.path(), "parquet");
        let found = source.discover(&[]).unwrap();
        assert_eq!(
            ipc::decode_schema(&found[0].schema).unwrap().fields().len(),
            0
        );
        let wanted = Selection {
            stream: found[0].name.clone(),
            columns: None,
            filter: None,
            query: None,
            increment: None,
            cursor: None,
        };
        let error = source.snapshot(&[wanted]).err().unwrap();
        assert_eq!(error.code, "schema_differs", "{error:?}");
        assert_eq!(error.column.as_deref(), Some(column));
        assert!(error.message.contains(part), "{}", error.message);
        assert!(error.message.contains("1.parquet"), "{}", error.message);
        assert!(error.location.unwrap().ends_with("2.parquet"));
    }
}

#[test]
fn a_union_has_all_columns_and_null_where_a_file_lacks_one() {
    for ending in ["parquet", "arrow"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(format!("{name}.{ending}"));
        write(
            &at("1"),
            &[
                ("id", "int64!", ids(&[1, 2])),
                ("old", "int64!", ids(&[7, 8])),
            ],
        );
        let more = texts(&[Some("m")]);
        write(
            &at("2"),
            &[("more", "string!", more), ("id", "int64!", ids(&[3]))],
        );
        let mut source = open_as(folder.path(), ending, "union");
        let found = source.discover(&[]).unwrap();
        let schema = ipc::decode_schema(&found[0].schema).unwrap();
        assert_eq!(
            shown(&schema),
            "id int64!, old int64, more string",
            "{ending}"
        );
        assert_eq!(found[0].estimated_rows, Some(3));
        assert_eq!(found[0].source_types.len(), 3);
        let batches = read(&mut source, None).unwrap();
        assert_eq!(batches[0].column(0), &ids(&[1, 2]));
        assert_eq!(batches[0].column(1), &ids(&[7, 8]));
        assert_eq!(batches[0].column(2), &texts(&[None, None]));
        assert_eq!(batches[1].column(0), &ids(&[3]));
        assert_eq!(batches[1].column(1).null_count(), 1);
        assert_eq!(batches[1].column(2), &texts(&[Some("m")]));
        // In the wanted order, and from files that have none of the wanted columns.
        let batches = read(&mut source, Some(&["more", "id"])).unwrap();
        assert_eq!(shown(&batches[0].schema()), "more string, id int64!");
        let batches = read(&mut source, Some(&["more"])).unwrap();
        assert_eq!(shown(&batches[0].schema()), "more string");
        let rows: Vec<_> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!((rows, batches[0].column(0).null_count()), (vec![2, 1], 2));
        // A file of another table.
        write(&at("3"), &[("other", "string", texts(&[Some("x")]))]);
        let mut source = open_as(folder.path(), ending, "union");
        let stranger = source.discover(&[]).unwrap().remove(0);
        assert!(
            stranger.notes[0].contains("none of the columns"),
            "{stranger:?}"
        );
        // A union refuses a column that has two types.
        write(&at("3"), &[("id", "string", texts(&[Some("x")]))]);
        let mut source = open_as(folder.path(), ending, "union");
        let request = request(&mut source, None);
        let error = source.read(&request).err().unwrap();
        assert_eq!(
            (error.code.as_str(), error.column.as_deref()),
            ("schema_differs", Some("id"))
        );
    }
}

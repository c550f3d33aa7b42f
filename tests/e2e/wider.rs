//! Numbers behind the sample that the column of the target holds, and the sample did not need.

use rapidbyte_testkit::mongodb;
use rapidbyte_testkit::postgres::{Database, shared};

use crate::mongodb::{insert, pipeline};
use crate::support::Folder;

const TABLE: &str = "CREATE TABLE raw.t (id bigint, n numeric(24, 2), whole numeric(20, 0))";

fn target() -> Database<'static> {
    let database = shared().database();
    let sql = format!("CREATE SCHEMA raw; {TABLE}");
    database.client().batch_execute(&sql).expect("a table");
    database
}

fn destination(database: &Database<'_>) -> String {
    format!(
        "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw, table: t }}\n  write_mode: append",
        database.url()
    )
}

fn rows(database: &Database<'_>) -> String {
    let sql = "SELECT string_agg(t::text, ' ' ORDER BY id) FROM raw.t";
    let row = database.client().query_one(sql, &[]);
    row.expect("a row").get(0)
}

#[test]
fn a_number_behind_the_sample_of_a_file_arrives_as_the_target_holds_it() {
    let jsonl = "{\"id\":1,\"n\":1,\"whole\":1}\n{\"id\":2,\"n\":1.25,\"whole\":12345678901234567890}\n\
                 {\"id\":3,\"n\":-1234567890123456789012,\"whole\":null}\n";
    let csv = "id,n,whole\n1,1,1\n2,1.25,12345678901234567890\n3,-1234567890123456789012,\n";
    for (name, text) in [("t.jsonl", jsonl), ("t.csv", csv)] {
        let (database, folder) = (target(), Folder::new());
        folder.write(name, text);
        let document = |sample: &str| {
            format!(
                "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: {{ path: {name}{sample} }}\n  \
                 streams: [t]\ndestination:\n  {}\n",
                destination(&database)
            )
        };
        let report = folder.report(&document(", sample_rows: 1"));
        assert_eq!(report["rows"], 3, "{report:#}");
        let expected = "(1,1.00,1) (2,1.25,12345678901234567890) (3,-1234567890123456789012.00,)";
        assert_eq!(rows(&database), expected, "{name}");
        // A value that the column does not hold stays an error.
        let more = match name {
            "t.csv" => "4,1.255,1\n",
            _ => "{\"id\":4,\"n\":1.255,\"whole\":1}\n",
        };
        folder.write(name, [text, more].concat());
        let document = document(", sample_rows: 1");
        folder.refuses(&document, "value_does_not_fit", 4, &["1.255"]);
        assert_eq!(rows(&database), expected, "{name}");
    }
}

/// A column of numeric without a precision is not a type of a pipeline file.
#[test]
fn a_number_beyond_an_inferred_type_says_which_setting_helps() {
    let (database, folder) = (target(), Folder::new());
    let sql = "ALTER TABLE raw.t ALTER n TYPE numeric";
    database.client().batch_execute(sql).expect("another type");
    folder.write("t.jsonl", "{\"n\":1}\n{\"n\":12345678901234567890}\n");
    let document = |more: &str| {
        format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: {{ path: t.jsonl{more} }}\n  \
             streams: [t]\ndestination:\n  {}\n",
            destination(&database)
        )
    };
    let sampled = document(", sample_rows: 1");
    folder.refuses(&sampled, "value_does_not_fit", 4, &["schema"]);
    folder.report(&document(", schema: { n: \"decimal(38, 0)\" }"));
    let sql = "SELECT string_agg(n::text, ' ' ORDER BY n) FROM raw.t";
    let row = database.client().query_one(sql, &[]).expect("a row");
    assert_eq!(row.get::<_, String>(0), "1 12345678901234567890");
}

#[test]
fn a_number_behind_the_sample_of_a_collection_arrives_as_the_target_holds_it() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (from, to, folder) = (server.database(), target(), Folder::new());
    let documents = [
        r#"{"_id": 1, "id": 1, "n": 1, "whole": 1}"#,
        r#"{"_id": 2, "id": {"$numberLong": "5000000000"}, "n": {"$numberDecimal": "1.25"}, "whole": {"$numberLong": "9000000000000000000"}}"#,
    ];
    insert(&from, "t", &documents);
    let source = format!("url: \"{}\", sample_documents: 1", from.url());
    let streams = "[{ name: t, columns: [id, n, whole] }]";
    folder.report(&pipeline(&source, streams, &destination(&to)));
    assert_eq!(
        rows(&to),
        "(1,1.00,1) (5000000000,1.25,9000000000000000000)"
    );
}

//! XML from table to table: every declaration stays as it is.

use rapidbyte_testkit::postgres::{Client, shared};
use serde_json::Value;

use crate::support::Folder;

/// `xml_send` and the output function drop or rewrite most of these declarations; the cast to
/// `text` shows them. The last value declares an encoding that is not the database's.
const VALUES: [&str; 12] = [
    "<a/>",
    "<?xml version=\"1.0\"?><a/>",
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>é</a>",
    "<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"no\"?>\n<a/>",
    "<?xml version=\"1.0\" standalone=\"yes\"?><a/>",
    "<?xml version=\"1.1\"?><a/>",
    "<?xml version='1.0'?>content, \"quoted\", \\ and <b/>",
    " \n<a/>\n ",
    "<!DOCTYPE a><a/>",
    "",
    "a, <b/>",
    "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>é</a>",
];

/// All values as they are stored, those in arrays too.
fn stored(client: &mut Client, table: &str) -> Vec<Option<String>> {
    let sql = format!(
        "SELECT coalesce(x::text, '-') || '|' || coalesce(d::text, '-') || '|' || coalesce(a::text[]::text, '-') \
         || '|' || coalesce(b::text[]::text, '-') FROM {table} ORDER BY id"
    );
    let rows = client.query(&sql, &[]).expect("values");
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn xml_keeps_its_declarations_by_copy_insert_and_upsert() {
    let (source, target) = (shared().database(), shared().database());
    let (mut from, mut to) = (source.client(), target.client());
    from.batch_execute(
        "CREATE SCHEMA app; CREATE DOMAIN app.page AS xml; CREATE TYPE app.pair AS (n int, x xml); \
         CREATE TABLE t (id int PRIMARY KEY, x xml, d app.page, a xml[], b app.page[]); \
         CREATE TABLE pairs (id int, p app.pair[])",
    )
    .expect("tables");
    for (id, value) in (0..).zip(VALUES) {
        let sql = "INSERT INTO t SELECT $1, v::xml, v::xml, ARRAY[[v::xml, NULL]], ARRAY[v::xml::app.page] \
                   FROM (SELECT $2::text AS v) AS given";
        from.execute(sql, &[&id, &value]).expect("a value");
    }
    from.batch_execute("INSERT INTO t (id) VALUES (99)")
        .expect("NULL");
    let expected = stored(&mut from, "t");
    assert!(
        expected[3]
            .as_ref()
            .is_some_and(|text| text.starts_with(VALUES[3]))
    );
    let folder = Folder::new();
    let pipeline = |schema: &str, method: &str, mode: &str| {
        format!(
            "version: 1\npipeline: {schema}\n\
             source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: {schema}, load_method: {method} }}, \
             write_mode: {mode} }}\n",
            source.url(),
            target.url()
        )
    };
    for (schema, method, mode) in [
        ("copied", "copy", "replace"),
        ("inserted", "insert", "append"),
        ("merged", "copy", "upsert"),
    ] {
        let text = pipeline(schema, method, mode);
        folder.report(&text);
        if mode == "upsert" {
            // Into a table that is there.
            folder.report(&text);
        }
        assert_eq!(
            stored(&mut to, &format!("{schema}.t")),
            expected,
            "{schema}"
        );
    }
    // A file gets the value as it is stored, too.
    folder.report(&format!(
        "version: 1\npipeline: files\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.jsonl\" }}, write_mode: replace }}\n",
        source.url()
    ));
    let files = folder.files("out");
    let lines = folder.read(&format!("out/{}", files[0]));
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    for (row, value) in rows.iter().zip(VALUES) {
        assert_eq!(row["x"], value);
    }
    // A row type's text does not hold the declarations of the xml in it.
    to.batch_execute("CREATE TYPE app.pair AS (n int, x xml)")
        .expect("the same type");
    let pairs = pipeline("copied", "copy", "replace").replace("public.t", "public.pairs");
    folder.refuses(&pairs, "column_refused", 4, &["declarations of the xml"]);
}

#[test]
fn a_target_whose_settings_read_text_in_another_way_keeps_every_value() {
    let (source, target) = (shared().database(), shared().database());
    let (mut from, mut to) = (source.client(), target.client());
    let create = "CREATE TABLE t (id int PRIMARY KEY, a xml[]); INSERT INTO t VALUES (1, ARRAY['<a/>'::xml, NULL])";
    from.batch_execute(create).expect("a table");
    let set = "DO $$ BEGIN \
        EXECUTE format('ALTER DATABASE %I SET array_nulls = off', current_database()); \
        EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database()); END $$; \
        CREATE TABLE f (id bigint, a text[], at timestamptz, m money)";
    to.batch_execute(set).expect("settings");
    let folder = Folder::new();
    folder.report(&format!(
        "version: 1\npipeline: arrays\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: replace }}\n",
        source.url(),
        target.url()
    ));
    folder.write(
        "f.csv",
        "id,a,at,m\n1,\"{a,NULL,\"\"\\\\\"\"}\",2020-02-01 03:04:05+00,1.50\n",
    );
    folder.report(&format!(
        "version: 1\npipeline: files\n\
         source: {{ use: source-file, config: {{ path: f.csv, schema: {{ id: int64, a: string, at: string, m: string }} }}, streams: [f] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: public }}, write_mode: append }}\n",
        target.url()
    ));
    let sql = "SELECT t.a[2] IS NULL AND f.a[2] IS NULL AND f.a[3] = chr(92) AND f.m = 1.5::money \
        FROM raw.t AS t, f";
    let row = to.query_one(sql, &[]).expect("rows");
    assert_eq!(row.get::<_, Option<bool>>(0), Some(true));
}

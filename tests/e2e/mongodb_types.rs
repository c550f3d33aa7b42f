//! Values of every type from MongoDB through a Parquet file and back, and from PostgreSQL through MongoDB and back.

use rapidbyte_bson::Document;
use rapidbyte_testkit::{mongodb, postgres};

use crate::mongodb::{EVERYTHING, insert, stored};
use crate::postgres::content;
use crate::support::Folder;

/// A pipeline with these ends.
fn pipeline(name: &str, source: &str, destination: &str) -> String {
    format!("version: 1\npipeline: {name}\nsource:\n  {source}\ndestination:\n  {destination}\n")
}

/// The fields of a document that are not the same in another one, with both values.
fn different(one: &[u8], other: &[u8]) -> Vec<String> {
    let (one, other) = (Document::parse(one), Document::parse(other));
    let (one, other) = (one.expect("BSON"), other.expect("BSON"));
    let fields = one.elements().map(|field| field.expect("BSON"));
    let fields = fields.filter(|(name, value)| other.get(name).expect("BSON") != Some(*value));
    fields
        .map(|(name, value)| format!("{name}: {value:?}, {:?}", other.get(name)))
        .collect()
}

#[test]
fn documents_come_back_from_parquet_with_every_type() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (from, back, folder) = (server.database(), server.database(), Folder::new());
    let document = EVERYTHING.replace(
        r#"{"z": 1, "a": "x"}"#,
        r#"{"$oid": "0123456789abcdef01234567"}"#,
    );
    insert(&from, "c", &[&document]);
    for (columns, keys) in [
        ("columns", "streams: { c: { unknown_keys: ignore } }"),
        ("json", "documents: json"),
    ] {
        let source = format!(
            "use: source-mongodb\n  config: {{ url: \"{}\", json: canonical, {keys} }}\n  streams: [c]",
            from.url()
        );
        let file = format!(
            "use: dest-file\n  config: {{ path: \"{columns}.parquet\" }}\n  write_mode: replace"
        );
        folder.report(&pipeline(&format!("to_{columns}"), &source, &file));
        let source = format!(
            "use: source-file\n  config: {{ path: {columns}.parquet, stream: {columns} }}\n  streams: [{columns}]"
        );
        let destination = format!(
            "use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: replace",
            back.url()
        );
        folder.report(&pipeline(&format!("from_{columns}"), &source, &destination));
    }
    let [expected] = &stored(&from, "c")[..] else {
        panic!("one document");
    };
    // NaN is not equal to itself: bytes are compared.
    let [found] = &stored(&back, "columns")[..] else {
        panic!("one document");
    };
    assert_eq!(found, expected, "{:#?}", different(expected, found));
    // A whole document becomes a field.
    let [found] = &stored(&back, "json")[..] else {
        panic!("one document");
    };
    let found = Document::parse(found).expect("BSON");
    let whole = found.get("document").expect("BSON");
    let expected = Document::parse(expected).expect("BSON");
    assert_eq!(whole, Some(rapidbyte_bson::Value::Document(expected)));
    let id = expected.get("_id").expect("BSON");
    assert_eq!(found.get("_id").expect("BSON"), id);
}

/// Types that a document holds in another form: the columns of the way back are declared.
const DECLARED: &str = "\
CREATE TABLE t (id bigint PRIMARY KEY, s smallint, r real, n numeric(18, 4), day date, at timestamp(3), j jsonb,
    l int[], w text[], b boolean, f double precision, u uuid, x bytea);
INSERT INTO t SELECT i, i - 500, i / 7.0, i / 3.0, date '1900-01-01' + i::int, timestamp '1950-01-01' + i * interval '37 days 11 ms',
    jsonb_build_object('i', i, 'l', jsonb_build_array('x', NULL, true), 'o', jsonb_build_object('t', 'ü' || i)),
    ARRAY[i::int, NULL, -i::int], ARRAY['a', repeat('é', i::int % 9)], i % 2 = 0, i / 9.0, md5(i::text)::uuid, decode(md5(i::text), 'hex')
    FROM generate_series(1, 1000) i;
INSERT INTO t VALUES (9223372036854775807, 32767, 'Infinity', 99999999999999.9999, '9999-12-31', '9999-12-31 23:59:59.999', '[]', '{}', '{}',
        true, 'NaN', gen_random_uuid(), ''),
    (-9223372036854775808, -32768, '-0', -99999999999999.9999, '0001-01-01', '0001-01-01', '{}', '{0}', '{\"\"}', false, '-0',
        gen_random_uuid(), '\\x00'),
    (0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);";

#[test]
fn rows_of_types_that_are_declared_come_back_from_mongodb_as_they_went() {
    let Some(server) = mongodb::shared() else {
        return;
    };
    let (from, back) = (postgres::shared().database(), postgres::shared().database());
    let (target, folder) = (server.database(), Folder::new());
    from.client().batch_execute(DECLARED).expect("a table");
    let source = format!(
        "use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [public.t]",
        from.url()
    );
    let destination = format!(
        "use: dest-mongodb\n  config: {{ url: \"{}\" }}\n  write_mode: append",
        target.url()
    );
    folder.report(&pipeline("there", &source, &destination));
    let columns = "id: int64, s: int16, r: float32, n: \"decimal(18, 4)\", day: date, at: \"timestamp(ms)\", j: json, \
                   l: \"list<int32>\", w: \"list<string>\", b: bool, f: float64, u: uuid, x: binary";
    let source = format!(
        "use: source-mongodb\n  config: {{ url: \"{}\", streams: {{ t: {{ unknown_keys: ignore, schema: {{ {columns} }} }} }} }}\n  \
         streams: [t]",
        target.url()
    );
    let destination = format!(
        "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace",
        back.url()
    );
    folder.report(&pipeline("back", &source, &destination));
    // Each column alone, so that a failure names it. JSON comes back as the same JSON in a column of the type json, which
    // keeps its own spaces.
    let mut different = Vec::new();
    for column in [
        "s", "r", "n", "day", "at", "j::jsonb", "l", "w", "b", "f", "u", "x",
    ] {
        let of = |table: &str| format!("(SELECT id, {column} FROM {table})");
        let expected = content(&mut from.client(), &of("t"));
        assert_eq!(expected.0, 1003);
        if content(&mut back.client(), &of("raw.t")) != expected {
            different.push(column);
        }
    }
    assert!(different.is_empty(), "{different:?}");
}

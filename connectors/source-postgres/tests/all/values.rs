//! Spot checks of values; the crate `rapidbyte-pg` has all of them.

use crate::common::*;
use rapidbyte_pg::form::table_of;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::type_name;
use rapidbyte_testkit::postgres::shared;

const TABLE: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (a int, b text);
    CREATE TABLE v (
        b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric(12,2), big numeric,
        t text, vc varchar(10), c char(4), bin bytea, u uuid, j json, jb jsonb,
        d date, tm time, ts timestamp, tz timestamptz, iv interval,
        ia int[], inet inet, r int4range, p pair, m mood, pos positive, money money,
        bits bit(3), vec tsvector, reg regclass);
    INSERT INTO v VALUES (
        true, -2, 4, 8, 1.5, -2.25, 12.34, 1e30,
        'é', 'vc', 'c', '\\x00ff', '00000000-0000-0000-0000-000000000001', '{\"a\": 1}', '[1]',
        '2000-01-02', '01:02:03', '2001-01-01 00:00:01', '2001-01-01 00:00:01+02', '1 mon 2 days',
        '{1,NULL,3}', '10.0.0.1', '[1,5)', '(1,x)', 'ok', 5, 1.5, '101', 'cat rat',
        'pg_catalog.pg_class');
    INSERT INTO v DEFAULT VALUES";

/// Each column as `name type value`, of the first row; the second is NULL throughout.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let [batch] = batches else {
        panic!("one batch");
    };
    assert_eq!(batch.num_rows(), 2);
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let one = |(field, array): (&std::sync::Arc<Field>, &ArrayRef)| {
        assert!(array.is_null(1) && !array.is_null(0), "{}", field.name());
        let text = format!("{:?}", array.slice(0, 1));
        let value = text.split_once('[').unwrap().1.trim_end_matches(']');
        let value: Vec<&str> = value.split_whitespace().collect();
        format!("{} {} {}", field.name(), type_name(field), value.join(" "))
    };
    columns.map(one).collect()
}

#[test]
fn each_type_has_its_portable_form() {
    let database = shared().database();
    database.client().batch_execute(TABLE).unwrap();
    let mut source = open(&database.url());
    let shown = shown(&read(&mut source, &request("public.v")).unwrap());
    for line in &shown {
        eprintln!("{line}");
    }
    for expected in [
        "b bool true,",
        "i2 int16 -2,",
        "i8 int64 8,",
        "f8 float64 -2.25,",
        "t string \"é\",",
        "bin binary [0, 255],",
        "m string \"ok\",",
        "pos int32 5,",
        "inet string \"10.0.0.1\",",
        "r string \"[1,5)\",",
        "p string \"(1,x)\",",
        "vec string \"'cat' 'rat'\",",
        "reg string \"pg_class\",",
        "big string \"1000000000000000000000000000000\",",
    ] {
        let found = shown
            .iter()
            .any(|line| line.starts_with(expected.trim_end_matches(',')));
        assert!(found, "{expected} in {shown:#?}");
    }
}

#[test]
fn each_type_has_its_native_form() {
    let database = shared().database();
    database.client().batch_execute(TABLE).unwrap();
    let mut source = open(&database.url());
    let portable = source.discover(&[]).unwrap();
    let natives = source.discover(&["postgresql".into()]).unwrap();
    let batches = read(&mut source, &native("public.v")).unwrap();
    assert_eq!(shown(&batches).len(), 30);
    assert_eq!(
        at_any_time(&batches[0].schema()),
        at_any_time(&schema(&natives[0]))
    );
    let origin = table_of(&batches[0].schema()).unwrap().origin.unwrap();
    assert_eq!(origin.columns["b"], 1, "{origin:?}");
    let reader = source.read(&request("public.v")).unwrap();
    assert_eq!(
        at_any_time(&reader.schema()),
        at_any_time(&schema(&portable[0]))
    );
    let schema = batches[0].schema();
    for (name, extension) in [
        ("i4", None),
        ("big", Some("arrow.opaque")),
        ("tz", Some("arrow.opaque")),
        ("ia", Some("arrow.opaque")),
        ("p", Some("arrow.opaque")),
        ("u", Some("arrow.uuid")),
        ("reg", None),
    ] {
        let field = schema.field_with_name(name).unwrap();
        let found = field.metadata().get("ARROW:extension:name");
        assert_eq!(found.map(String::as_str), extension, "{name}");
        assert!(field.metadata().contains_key("rapidbyte.postgresql"));
    }
}

/// Settings that a database gives its sessions must not show in values.
#[test]
fn settings_of_the_database_do_not_change_texts() {
    let database = shared().database();
    let sql = "CREATE TABLE v AS SELECT 'pg_catalog.pg_class'::regclass AS r, 'int4'::regtype AS ty,
            'pg_catalog.now()'::regprocedure AS p, '1 mon -1 day'::interval AS iv, date '2020-02-01' AS d,
            ARRAY[0.1::float8] AS f, ARRAY['\\x00ff'::bytea] AS b, ARRAY[NULL, 'NULL'] AS n, xml 'a<b/>c' AS x;
        INSERT INTO v VALUES (NULL)";
    database.client().batch_execute(sql).unwrap();
    let read_now = || shown(&read(&mut open(&database.url()), &request("public.v")).unwrap());
    let before = read_now();
    assert!(before[0].contains("\"pg_class\""), "{before:?}");
    for setting in [
        "quote_all_identifiers = on",
        "DateStyle = 'German, DMY'",
        "IntervalStyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -3",
        "array_nulls = off",
        "xmloption = 'document'",
        "xmlbinary = 'hex'",
        "TimeZone = 'Asia/Kolkata'",
        "standard_conforming_strings = off",
        "search_path = 'pg_catalog'",
    ] {
        let sql = format!("ALTER DATABASE {} SET {setting}", database.name());
        database.client().batch_execute(&sql).unwrap();
        assert_eq!(read_now(), before, "{setting}");
    }
}

//! `rapidbyte verify`: the rows of targets beside the rows of their sources.

use rapidbyte_testkit::postgres::{Client, Database, shared};
use serde_json::{Value, json};

use crate::support::Folder;

/// Types whose values have several texts, and a key of two columns.
pub(crate) const SHOP: &str = "CREATE TABLE orders (shop int, id bigint, name varchar(40), code char(6), amount numeric(12, 2), \
    f real, b bytea, ts timestamptz, j jsonb, tags text[], PRIMARY KEY (shop, id)); \
    INSERT INTO orders SELECT i % 3, i, CASE WHEN i % 7 > 0 THEN 'name ' || i END, 'c' || i % 50, i * 1.37, i * 0.1, \
    int4send(i), '2026-01-01'::timestamptz + i * interval '1 second', jsonb_build_object('n', i), \
    ARRAY['a', NULL, i::text] FROM generate_series(1, 25000) AS i";

pub(crate) struct Shop {
    pub(crate) database: Database<'static>,
    pub(crate) client: Client,
    pub(crate) folder: Folder,
}

impl Shop {
    /// Tables in `public`, to be copied to `raw`.
    pub(crate) fn new(sql: &str) -> Self {
        let database = shared().database();
        let mut client = database.client();
        client.batch_execute("CREATE SCHEMA raw").expect("a schema");
        client.batch_execute(sql).expect("tables");
        Self {
            database,
            client,
            folder: Folder::new(),
        }
    }

    /// Writes the pipeline: `stream` is one line of YAML.
    pub(crate) fn pipeline(&self, stream: &str, mode: &str) {
        let url = self.database.url();
        self.folder.write(
            "p.yaml",
            format!(
                "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-postgres\n  config: {{ \
                 url: \"{url}\" }}\n  streams:\n    - {stream}\ndestination:\n  use: dest-postgres\n  config: {{ url: \
                 \"{url}\", schema: raw }}\n  write_mode: {mode}\n"
            ),
        );
    }

    pub(crate) fn copy(&self, stream: &str, mode: &str) {
        self.pipeline(stream, mode);
        let ended = self.folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    pub(crate) fn sql(&mut self, sql: &str) {
        self.client.batch_execute(sql).expect(sql);
    }

    /// The first document that `verify` prints, after this exit code.
    pub(crate) fn verify(&self, more: &[&str], code: i32) -> Value {
        let arguments = [&["verify", "p.yaml", "--output", "json"], more].concat();
        let ended = self.folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(code), "{}{}", ended.stdout, ended.stderr);
        serde_json::from_str(&ended.stdout).expect("JSON")
    }
}

/// The rows that differ: key, difference and columns in one text each.
pub(crate) fn differing(verified: &Value) -> Vec<String> {
    let rows = verified["streams"][0]["rows"].as_array().expect("rows");
    let words = |list: &Value| {
        let list = list.as_array().expect("a list").iter();
        list.filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    };
    rows.iter()
        .map(|row| {
            let difference = row["difference"].as_str().expect("a difference");
            format!(
                "{} {difference} {}",
                words(&row["key"]),
                words(&row["columns"])
            )
        })
        .collect()
}

#[test]
fn every_kind_of_difference_is_found_among_many_rows_and_named() {
    let mut shop = Shop::new(SHOP);
    shop.pipeline("public.orders", "replace");
    let verified = shop.verify(&[], 4);
    assert_eq!(verified["error"]["code"], "no_target", "{verified:#}");
    shop.copy("public.orders", "replace");
    let verified = shop.verify(&["--receipt", "r.json"], 0);
    let stream = &verified["streams"][0];
    assert_eq!(stream["equal"], true, "{verified:#}");
    assert_eq!(stream["source"]["rows"], 25_000);
    assert_eq!(stream["source"], stream["target"]);
    assert_eq!(
        stream["source"]["checksum"].as_str().map(str::len),
        Some(32)
    );
    let receipt: Value = serde_json::from_str(&shop.folder.read("r.json")).expect("JSON");
    assert_eq!(receipt["streams"][0]["target"], stream["target"]);
    assert_eq!(receipt["verified_at"].as_str().map(str::len), Some(24));
    // The order of rows and their place in the table say nothing.
    shop.sql("UPDATE raw.orders SET name = name WHERE id % 5 = 0");
    assert_eq!(
        shop.verify(&[], 0)["streams"][0]["target"],
        stream["target"]
    );
    shop.sql(
        "UPDATE raw.orders SET b = set_bit(b, 0, 1 - get_bit(b, 0)) WHERE id = 11;
         UPDATE raw.orders SET name = '' WHERE id = 14;
         UPDATE raw.orders a SET f = o.f FROM public.orders o WHERE a.id + o.id = 41 AND a.id IN (20, 21);
         DELETE FROM raw.orders WHERE id = 30;
         INSERT INTO raw.orders (shop, id) VALUES (9, 0);
         UPDATE raw.orders SET amount = amount + 0.01, tags = '{a,NULL}' WHERE id = 50",
    );
    let verified = shop.verify(&[], 1);
    assert_eq!(
        differing(&verified),
        [
            "0,30 only_in_source ",
            "0,21 changed f",
            "2,11 changed b",
            "2,14 changed name",
            "2,20 changed f",
            "2,50 changed amount,tags",
            "9,0 only_in_target "
        ]
        .map(str::to_owned)
        .into_iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
    );
    assert_eq!(verified["error"]["code"], "rows_differ");
    let ended = shop.folder.rapidbyte(&["verify", "p.yaml"]);
    assert_eq!(ended.code, Some(1));
    for part in [
        "public.orders → raw.orders: 7 rows differ; the source has 25,000 rows, the target 25,000",
        "shop=2, id=50  has other values in amount, tags",
        "shop=0, id=30  is only in the source",
        "shop=9, id=0   is only in the target",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    // Only a part of the rows, and nobody knows which part.
    let sampled = shop.verify(&["--sample", "100"], 1);
    assert_eq!(differing(&sampled).len(), 7);
    shop.copy("public.orders", "replace");
    let sampled = shop.verify(&["--sample", "5"], 0);
    let rows = sampled["streams"][0]["source"]["rows"]
        .as_u64()
        .expect("rows");
    assert!((500..2_500).contains(&rows), "{rows}");
    // All rows differ: some are named, and it says that there are more.
    shop.sql("UPDATE raw.orders SET amount = -amount");
    let verified = shop.verify(&[], 1);
    let stream = &verified["streams"][0];
    assert_eq!(stream["has_more"], true);
    assert_eq!(
        stream["rows"].as_array().map(Vec::len),
        Some(1000),
        "{stream:#}"
    );
    assert_eq!(stream["rows"][0]["columns"], json!(["amount"]));
}

#[test]
fn rows_without_a_key_are_counted_each_time_they_occur() {
    let mut shop = Shop::new(
        "CREATE TABLE t (a int, b text); INSERT INTO t SELECT i % 10, 'x' FROM generate_series(1, 100) i",
    );
    shop.copy("public.t", "replace");
    shop.verify(&[], 0);
    // One doubled row, one missing row.
    shop.sql(
        "INSERT INTO raw.t VALUES (3, 'x');
         DELETE FROM raw.t WHERE ctid = (SELECT min(ctid) FROM raw.t WHERE a = 5)",
    );
    let verified = shop.verify(&[], 1);
    assert_eq!(
        differing(&verified),
        [" only_in_source ", " only_in_target "]
    );
    let ended = shop.folder.rapidbyte(&["verify", "p.yaml"]);
    assert!(
        ended.stdout.contains("  1 row is only in the target"),
        "{}",
        ended.stdout
    );
    // A key without a value names no row.
    shop.sql(
        "CREATE TABLE u AS SELECT 1 AS a, 'x' AS b; CREATE TABLE raw.u (a int UNIQUE, b text)",
    );
    shop.copy("{ name: public.u, primary_key: [a] }", "upsert");
    shop.verify(&[], 0);
    shop.sql("INSERT INTO raw.u VALUES (NULL, 'y')");
    assert_eq!(differing(&shop.verify(&[], 1)), [" only_in_target "]);
    shop.pipeline("public.t", "replace");
    // An empty table is equal to an empty table.
    shop.sql("TRUNCATE raw.t, public.t");
    assert_eq!(shop.verify(&[], 0)["streams"][0]["source"]["rows"], 0);
}

#[test]
fn values_are_compared_in_the_types_of_the_target() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, n smallint, r real, v varchar(5), c char(5), d numeric(10, 2), day date);
         INSERT INTO t VALUES (1, 7, 0.1, 'a', 'b', 1.5, '2026-01-01'), (2, -1, 'NaN', '', '', -0.01, NULL),
             (3, NULL, '-0', 'x ', 'y', 0, 'infinity');
         CREATE TABLE raw.t (id bigint PRIMARY KEY, n int, r float8, v text, c text, d numeric(20, 4), day date,
             loaded timestamptz DEFAULT now());",
    );
    let stream = "{ name: public.t, rename: { day: on_day } }";
    shop.sql("ALTER TABLE raw.t RENAME day TO on_day");
    shop.copy(stream, "upsert");
    shop.verify(&[], 0);
    shop.sql("UPDATE raw.t SET d = 1.5001 WHERE id = 1; UPDATE raw.t SET v = 'x' WHERE id = 3");
    assert_eq!(
        differing(&shop.verify(&[], 1)),
        ["1 changed d", "3 changed v"]
    );
    // Digits and spaces that the target does not keep do not count.
    shop.sql(
        "UPDATE raw.t SET d = 1.5, v = v WHERE id = 1; UPDATE raw.t SET v = 'x ' WHERE id = 3",
    );
    shop.pipeline(
        "{ name: public.t, rename: { day: on_day }, where: \"id < 3\" }",
        "upsert",
    );
    assert_eq!(differing(&shop.verify(&[], 1)), ["3 only_in_target "]);
    shop.pipeline("{ name: public.t, columns: [id, n] }", "upsert");
    shop.verify(&[], 0);
    // Rows that the target marks as deleted are not among its rows.
    let marks = "{ name: public.t, rename: { day: on_day }, deletes: { mode: compare, action: mark, column: loaded } }";
    shop.sql("UPDATE raw.t SET loaded = NULL; DELETE FROM public.t WHERE id = 2");
    shop.pipeline(marks, "upsert");
    assert_eq!(differing(&shop.verify(&[], 1)), ["2 only_in_target "]);
    shop.sql("UPDATE raw.t SET loaded = now() WHERE id = 2");
    shop.verify(&[], 0);
}

#[test]
fn documents_keep_their_declaration_and_texts_are_read_by_the_type_of_the_target() {
    let declared = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a/>";
    let mut shop = Shop::new(&format!(
        "CREATE DOMAIN doc AS xml;
         CREATE TABLE t (id int PRIMARY KEY, x xml, l xml[], d doc);
         INSERT INTO t VALUES (1, '{declared}', ARRAY['{declared}'::xml], '{declared}');
         CREATE TABLE u (id text PRIMARY KEY, n text, l text, c text);
         INSERT INTO u VALUES ('1.0', '1.50', '{{1.50,2}}', '{{a}}'), ('2', '100', NULL, NULL);
         CREATE TABLE raw.u (id numeric(6, 2) PRIMARY KEY, n numeric(5, 1), l numeric(5, 1)[], c char(3)[])"
    ));
    shop.copy("public.t", "replace");
    shop.verify(&[], 0);
    for (set, column) in [
        ("x = '<a/>'", "x"),
        ("l = ARRAY['<a/>'::xml]", "l"),
        ("d = '<a/>'", "d"),
    ] {
        shop.copy("public.t", "replace");
        shop.sql(&format!("UPDATE raw.t SET {set}"));
        assert_eq!(
            differing(&shop.verify(&[], 1)),
            [format!("1 changed {column}")]
        );
    }
    shop.copy("public.u", "replace");
    shop.verify(&[], 0);
    shop.sql(
        "UPDATE raw.u SET n = 1.6, l = '{1.5}' WHERE id = 1; UPDATE raw.u SET n = 10 WHERE id = 2",
    );
    assert_eq!(
        differing(&shop.verify(&[], 1)),
        ["1 changed n,l", "2 changed n"]
    );
}

/// The server would cast these texts to the values of the target, and a run refuses each of them.
#[test]
fn texts_that_a_run_refuses_are_not_equal_to_what_the_server_makes_of_them() {
    let mut shop = Shop::new(
        "CREATE TABLE w (id int PRIMARY KEY, d text, r text, ts text, i text, g text, l text, n varchar(9), m text, a text);
         INSERT INTO w VALUES (1, '2020-01-01', '1.5', '2020-01-01 10:00:00', '1 day', '[1,5)', '{2020-01-01}', '2', '$1.50'), \
         (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
         CREATE TABLE raw.w (id int PRIMARY KEY, d date, r real, ts timestamp, i interval, g tsrange, l date[], n int, m money, a numeric(6, 2)[])",
    );
    shop.sql("UPDATE w SET g = '[\"2020-01-01 00:00:00\",\"2020-01-02 00:00:00\")' WHERE id = 1");
    shop.copy("public.w", "replace");
    shop.verify(&[], 0);
    for (column, text) in [
        ("d", "2020-01-01 13:00:00"),
        ("r", "1.50000000001"),
        ("ts", "2020-01-01 10:00:00+05"),
        ("i", "1 day 0.0000001 s"),
        ("g", "[2020-01-01,2020-01-02)"),
        ("l", "{2020-01-01 13:00:00}"),
    ] {
        shop.sql(&format!("UPDATE w SET {column} = '{text}' WHERE id = 1"));
        let differs = differing(&shop.verify(&[], 1));
        assert_eq!(differs, [format!("1 changed {column}")], "{text}");
        shop.sql(&format!(
            "UPDATE w SET {column} = (SELECT {column} FROM raw.w WHERE id = 1)::text WHERE id = 1"
        ));
        shop.verify(&[], 0);
    }
    // The server rounds the elements of an array to the digits of its type.
    shop.sql(
        "UPDATE w SET a = '{1.505}' WHERE id = 1; UPDATE raw.w SET a = '{1.505}' WHERE id = 1",
    );
    assert_eq!(differing(&shop.verify(&[], 1)), ["1 changed a"]);
    shop.sql("UPDATE w SET a = '{1.51}' WHERE id = 1");
    // Spellings that lose nothing.
    shop.sql("UPDATE w SET d = '20200101', r = '15e-1', n = ' 2 ' WHERE id = 1");
    shop.verify(&[], 0);
}

#[test]
fn an_incremental_stream_is_compared_up_to_its_cursor() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL, v text);
         INSERT INTO t SELECT i, '2026-01-01'::timestamptz + i * interval '1 minute', 'v' FROM generate_series(1, 50) i",
    );
    let stream = "{ name: public.t, sync_mode: incremental, cursor_field: at }";
    shop.pipeline(stream, "upsert");
    let verified = shop.verify(&[], 4);
    assert_eq!(verified["error"]["code"], "no_target", "{verified:#}");
    shop.copy(stream, "upsert");
    shop.verify(&[], 0);
    // New rows, and a row that the source changed: no run has read them.
    shop.sql(
        "INSERT INTO t VALUES (51, '2026-02-01', 'new');
         UPDATE t SET v = 'newer', at = '2026-02-02' WHERE id = 3",
    );
    let verified = shop.verify(&[], 0);
    assert_eq!(verified["streams"][0]["newer"], 1, "{verified:#}");
    assert_eq!(verified["streams"][0]["source"]["rows"], 49);
    // A row that came late, below the cursor: no run will read it.
    shop.sql(
        "INSERT INTO t VALUES (60, '2026-01-01 00:00:30', 'late'); DELETE FROM t WHERE id = 7",
    );
    let late = ["60 only_in_source ", "7 only_in_target "];
    assert_eq!(differing(&shop.verify(&[], 1)), late);
    // With a lag, the next run reads the rows just below the cursor again.
    let lag = stream.replace("cursor_field: at", "cursor_field: at, lag: 10 minutes");
    shop.pipeline(&lag, "upsert");
    shop.sql("UPDATE t SET v = 'late' WHERE id = 45");
    assert_eq!(differing(&shop.verify(&[], 1)), late);
}

#[test]
fn streams_that_cannot_be_compared_are_refused_by_name() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    );
    let refused = |shop: &Shop, code: &str, exit: i32, parts: &[&str]| {
        let verified = shop.verify(&[], exit);
        let error = &verified["error"];
        assert_eq!(error["code"], code, "{verified:#}");
        for part in parts {
            let text = format!("{} {}", error["message"], error["hint"]);
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(error["stream"], "public.t", "{verified:#}");
    };
    shop.sql("CREATE TABLE raw.t (id int, v text)");
    shop.copy("public.t", "append");
    shop.verify(&[], 0);
    shop.copy("public.t", "append");
    refused(
        &shop,
        "unsupported_verify",
        2,
        &["has 4 rows, and the source has 2 rows", "append"],
    );
    shop.copy("public.t", "replace");
    for choice in [["--select", "public.t.id"], ["--exclude", "public.t.v"]] {
        let verified = shop.verify(&choice, 2);
        assert_eq!(
            verified["error"]["code"], "unsupported_verify",
            "{verified:#}"
        );
    }
    let verified = shop.verify(&["--receipt", "none/r.json"], 3);
    assert_eq!(verified["error"]["code"], "receipt_not_written");
    shop.pipeline(
        "{ name: public.t, sync_mode: incremental, cursor_field: id, target: { name: y }, transforms: [{ upper: [v] }] }",
        "upsert",
    );
    let parts = ["its transforms", "incremental"];
    refused(&shop, "unsupported_verify", 2, &parts);
    let exact = "{ name: public.t, sync_mode: incremental, change_detection: xmin, write_mode: upsert, target: { name: x } }";
    shop.copy(exact, "upsert");
    refused(&shop, "unsupported_verify", 2, &["transaction ids"]);
    shop.sql("ALTER TABLE t ADD COLUMN more int");
    shop.pipeline("public.t", "replace");
    refused(
        &shop,
        "target_would_change",
        4,
        &["ADD COLUMN", "run the pipeline"],
    );
    shop.folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: \
             [public.t]\ndestination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}.csv\" }}\n",
            shop.database.url()
        ),
    );
    refused(
        &shop,
        "unsupported_verify",
        2,
        &["dest-file does not compute digests"],
    );
    assert!(
        !shop.folder.path().join("out").exists(),
        "nothing is written"
    );
    for (sample, part) in [
        ("0", "above 0"),
        ("101", "at most 100"),
        ("0.00001", "four digits"),
        ("x", "percentage"),
    ] {
        let ended = shop
            .folder
            .rapidbyte(&["verify", "p.yaml", "--sample", sample]);
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_row_that_is_different_each_time_is_called_changing() {
    let mut shop = Shop::new(
        "CREATE VIEW v AS SELECT i AS id, CASE i WHEN 2 THEN clock_timestamp() END AS at FROM generate_series(1, 3) AS i",
    );
    shop.copy("{ name: public.v, primary_key: [id] }", "upsert");
    assert_eq!(differing(&shop.verify(&[], 1)), ["2 changing at"]);
    shop.sql("DELETE FROM raw.v WHERE id = 3");
    let found = ["2 changing at", "3 only_in_source "];
    assert_eq!(differing(&shop.verify(&[], 1)), found);
}

#[test]
fn a_source_with_several_rows_of_a_key_is_not_compared() {
    let mut shop = Shop::new(
        "CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'a'), (1, 'b'), (2, 'c')",
    );
    shop.copy("{ name: public.t, primary_key: [id] }", "upsert");
    for more in [&[][..], &["--repair"]] {
        let verified = shop.verify(more, 4);
        assert_eq!(verified["error"]["code"], "key_not_unique", "{verified:#}");
        let message = verified["error"]["message"].to_string();
        assert!(message.contains("2 rows with id=1"), "{message}");
    }
    shop.sql("DELETE FROM t WHERE v = 'a'");
    shop.verify(&[], 0);
}

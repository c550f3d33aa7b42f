//! The built-in transforms, from a source to a destination.

use rapidbyte_testkit::postgres::shared;

use crate::support::Folder;

/// A table of a server that goes through these steps.
fn pipeline(url: &str, more: &str, steps: &str) -> String {
    format!(
        "version: 1\npipeline: t\nretry: {{ max_attempts: 1 }}\nsource:\n  use: source-postgres\n  \
         config: {{ url: \"{url}\" }}\n  streams:\n    - name: public.t\n{more}      transforms:\n{steps}\
         destination:\n  use: dest-postgres\n  config: {{ url: \"{url}\", schema: raw }}\n  write_mode: append\n"
    )
}

#[test]
fn columns_are_computed_and_all_others_arrive_as_they_are() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE SCHEMA raw; \
        CREATE TABLE t (id int PRIMARY KEY, email text, n numeric, money numeric(10, 2), at timestamptz, r int4range); \
        INSERT INTO t VALUES (1, 'a@x.io', 'NaN', 10.50, 'infinity', '[1,5)'), (2, NULL, 1.500, 3, now(), NULL), \
        (3, 'b@x.io', 1e-30, 0.01, '2026-11-21 10:00+02', 'empty')";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let steps = "        - filter: \"money >= 0.02 OR email IS NULL\"\n        \
                 - set: { gross: \"money * 1.19\", domain: \"split_part(email, '@', 2)\" }\n        \
                 - mask: { columns: [email], keep_domain: true }\n";
    let text = pipeline(&database.url(), "", steps);
    let report = folder.report(&text);
    assert_eq!(report["rows"], 2, "{report:#}");
    let sql = "SELECT string_agg(concat_ws(' ', id, email, n, money, isfinite(at), r, gross, domain), ';' ORDER BY id) FROM raw.t";
    let found: String = client.query_one(sql, &[]).expect("rows").get(0);
    assert_eq!(
        found,
        "1 *@x.io NaN 10.50 f [1,5) 12.4950 x.io;2 1.500 3.00 t 3.5700"
    );
    let same = "SELECT count(*) FROM raw.t a JOIN t b USING (id) WHERE a.at = b.at";
    let same: i64 = client.query_one(same, &[]).expect("rows").get(0);
    assert_eq!(same, 2);
    let types = "SELECT string_agg(format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute \
                 WHERE attrelid = 'raw.t'::regclass AND attnum > 0";
    let types: String = client.query_one(types, &[]).expect("types").get(0);
    assert_eq!(
        types,
        "integer, text, numeric, numeric(10,2), timestamp with time zone, int4range, numeric(13,4), text"
    );
    // A value that only PostgreSQL's own form holds cannot be computed with.
    let steps = "        - filter: \"at < TIMESTAMPTZ '2027-01-01 00:00:00Z'\"\n";
    let (error, exit) = folder.error(&pipeline(&database.url(), "", steps));
    assert_eq!(
        (error["code"].as_str(), exit),
        (Some("transform_failed"), 4),
        "{error:#}"
    );
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("row 1 of the stream"), "{message}");
    assert_eq!(error["location"], "p.yaml:10:11", "{error:#}");
    assert_eq!(error["key"], "source.streams[0].transforms[0]", "{error:#}");
}

#[test]
fn a_computed_key_has_to_be_named() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE SCHEMA raw; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let salt = "0123456789abcdef-salt";
    let steps = format!("        - hash: {{ columns: [id], salt: {salt} }}\n");
    let upsert = |more: &str| {
        pipeline(&database.url(), more, &steps).replace("write_mode: append", "write_mode: upsert")
    };
    let (error, _) = folder.error(&upsert(""));
    assert_eq!(error["code"], "no_primary_key", "{error:#}");
    let keyed = upsert("      primary_key: [id]\n");
    for _ in 0..2 {
        folder.report(&keyed);
    }
    let rows: i64 = client
        .query_one(
            "SELECT count(*) FROM raw.t WHERE id ~ '^[0-9a-f]{64}$'",
            &[],
        )
        .expect("rows")
        .get(0);
    assert_eq!(rows, 2);
}

#[test]
fn a_mistake_in_a_step_has_its_line() {
    let folder = Folder::new();
    folder.write("in.csv", "id,name\n1,a\n");
    let refuses = |steps: &str, code: &str, parts: &[&str]| {
        let text = format!(
            "version: 1\npipeline: t\nsource:\n  use: source-file\n  config: {{ path: in.csv }}\n  streams:\n    \
             - name: in\n      transforms:\n{steps}destination:\n  use: dest-file\n  \
             config: {{ path: \"out/{{stream}}.jsonl\" }}\n"
        );
        folder.refuses(&text, code, 2, parts);
    };
    refuses(
        "        - drop: [id]\n        - filter: \"nam = 'a'\"\n",
        "wrong_step",
        &["p.yaml:10:", "did you mean name?", "transforms[1].filter"],
    );
    refuses(
        "        - drop: [id]\n        - sett: { a: 1 }\n",
        "invalid_config",
        &["p.yaml:10:", "`sett` does not exist", "write rename, drop"],
    );
    refuses(
        "        - drop: [id]\n          set: { a: 1 }\n",
        "invalid_value",
        &["p.yaml:9:", "several keys: drop, set", "one step"],
    );
    refuses("        - trim: name\n", "invalid_config", &["p.yaml:9:"]);
}

#[test]
fn types_with_rules_of_their_own_are_computed_by_their_text_or_refused() {
    let database = shared().database();
    let mut client = database.client();
    let sql = "CREATE SCHEMA raw; CREATE TYPE size AS ENUM ('small', 'large'); CREATE DOMAIN land AS char(5); \
        CREATE TABLE t (id int, c char(5), l land, s size, n numeric, at time); \
        INSERT INTO t VALUES (1, 'DE', 'FR', 'large', 1.25, '10:11:12.5'), (2, '', '', 'small', 'NaN', NULL)";
    client.batch_execute(sql).expect("a table");
    let folder = Folder::new();
    let filter = |condition: &str| {
        let steps = format!("        - filter: \"{condition}\"\n");
        pipeline(&database.url(), "", &steps)
    };
    for (condition, parts) in [
        ("c = 'DE'", ["CAST(c AS text)", "p.yaml:10:"]),
        ("l = 'FR'", ["CAST(l AS text)", "p.yaml:10:"]),
        ("s >= 'large'", ["CAST(s AS text)", "p.yaml:10:"]),
        ("n > 1", ["CAST(n AS numeric(38, 10))", "p.yaml:10:"]),
    ] {
        folder.refuses(&filter(condition), "wrong_step", 2, &parts);
    }
    let steps = "        - filter: \"CAST(c AS text) = 'DE' AND l::text = 'FR' AND CAST(n AS numeric(10, 2)) = 1.25\"\n        \
                 - set: { length: \"length(c::text)\", o: \"at::text\" }\n        - lower: [c]\n        - mask: { columns: [l] }\n        \
                 - hash: { columns: [s], salt: 0123456789abcdef }\n";
    folder.report(&pipeline(&database.url(), "", steps).replace("append", "replace"));
    let sql = "SELECT concat_ws(' ', id, c || '|', l || '|', n, length, o, left(s, 8)) FROM raw.t";
    let found: String = client.query_one(sql, &[]).expect("a row").get(0);
    assert_eq!(found, "1 de| **| 1.25 2 10:11:12.5 48df6530");
}

#[test]
fn a_computed_cursor_of_an_append_with_a_lag_is_refused() {
    let database = shared().database();
    let sql = "CREATE SCHEMA raw; CREATE TABLE t (id int PRIMARY KEY, upd timestamptz)";
    database.client().batch_execute(sql).expect("a table");
    let more = "      sync_mode: incremental\n      cursor_field: upd\n      lag: 1 day\n      primary_key: [id]\n";
    let folder = Folder::new();
    let steps = "        - set: { upd: \"CAST(NULL AS timestamptz)\" }\n";
    let text = pipeline(&database.url(), more, steps);
    folder.refuses(&text, "cursor_computed", 2, &["p.yaml:13:", "upd"]);
    folder.report(&pipeline(
        &database.url(),
        more,
        &steps.replace("{ upd", "{ other"),
    ));
}

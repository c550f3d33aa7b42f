//! From Azure Cosmos DB to files and back to PostgreSQL. The server is the one of the test kit, where it has it.

use rapidbyte_testkit::cosmosdb::{self, CosmosDatabase, KEY};
use rapidbyte_testkit::http::{Reply, Server};
use rapidbyte_testkit::postgres;
use serde_json::{Value, json};

use crate::postgres::content;
use crate::support::Folder;

/// A pipeline into `out/<stream>.jsonl`. `config` are lines below `config:`.
fn pipeline(endpoint: &str, database: &str, config: &str, streams: &str) -> String {
    format!(
        "version: 1\npipeline: p\nsource:\n  use: source-cosmos\n  config:\n    endpoint: \"{endpoint}\"\n    \
         key: \"{KEY}\"\n    database: {database}\n{config}  streams: [{streams}]\n\
         destination:\n  use: dest-file\n  config: {{ path: \"out/{{stream}}.jsonl\" }}\n  write_mode: replace\n\
         retry: {{ max_attempts: 1 }}\n"
    )
}

fn of(target: &CosmosDatabase<'_>, config: &str, streams: &str) -> String {
    pipeline(&target.endpoint(), target.name(), config, streams)
}

/// The rows of a file, in the order of `id`.
fn rows(folder: &Folder, file: &str) -> Vec<Value> {
    let text = folder.read(file);
    let rows = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut rows: Vec<Value> = rows.collect();
    rows.sort_by_key(|row| row["id"].to_string());
    rows
}

/// Documents with fields of several types, and a container without documents.
fn filled() -> Option<CosmosDatabase<'static>> {
    let target = cosmosdb::shared()?.database();
    target.make("c", "/p", None);
    target.add(
        "c",
        r#"{"id":"1","p":"a","n":1,"s":"x\ny","o":{"b":[1,{}]},"d":1.5}"#,
    );
    target.add("c", r#"{"id":"2","p":"b","n":-2,"s":null,"more":true}"#);
    target.add("c", r#"{"id":"3","p":"é","n":3,"s":"","d":2}"#);
    Some(target)
}

#[test]
fn documents_become_rows_without_the_servers_fields() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    folder.report(&of(
        &target,
        "    page_items: 2\n    sample_documents: 1\n",
        "c",
    ));
    // `more` is in no document of the sample.
    let expected = json!([
        { "id": "1", "p": "a", "n": 1, "s": "x\ny", "o": { "b": [1, {}] }, "d": 1.5, "_rest": null },
        { "id": "2", "p": "b", "n": -2, "s": null, "o": null, "d": null, "_rest": { "more": true } },
        { "id": "3", "p": "é", "n": 3, "s": "", "o": null, "d": 2.0, "_rest": null },
    ]);
    assert_eq!(Value::Array(rows(&folder, "out/c.jsonl")), expected);
    folder.report(&of(&target, "    system_fields: true\n", "c"));
    let all = rows(&folder, "out/c.jsonl");
    assert!(
        all.iter().all(|row| row["_ts"].as_i64() > Some(0)),
        "{all:?}"
    );
}

/// The plan of `p.yaml` names the code and the line of the key with `at`.
#[track_caller]
fn plan_refuses_at(folder: &Folder, code: &str, at: &str) -> String {
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    let told = format!("{}{}", plan.stdout, plan.stderr);
    assert_eq!(plan.code, Some(2), "{told}");
    let text = folder.read("p.yaml");
    let line = text.lines().position(|line| line.contains(at));
    let place = format!("p.yaml:{}:", line.expect("the line") + 1);
    for part in [code, &place] {
        assert!(told.contains(part), "{part}: {told}");
    }
    told
}

/// The same with the answer of the server.
#[track_caller]
fn plan_refuses(folder: &Folder, code: &str, at: &str) {
    let told = plan_refuses_at(folder, code, at);
    assert!(told.contains("400"), "{told}");
}

#[test]
fn conditions_and_queries_are_left_to_the_server() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let streams = "    streams:\n      few: { container: c, query: \"SELECT c.id, c.n * 2 AS twice FROM c WHERE c.n < 3\", \
                   schema: { id: string not null, twice: int32 } }\n";
    let both = "{ name: c, where: \"c.n > 1\" }, few";
    folder.report(&of(&target, streams, both));
    let expected = json!([{ "id": "1", "twice": 2 }, { "id": "2", "twice": -4 }]);
    assert_eq!(Value::Array(rows(&folder, "out/few.jsonl")), expected);
    let found = rows(&folder, "out/c.jsonl");
    assert_eq!((found.len(), &found[0]["id"]), (1, &json!("3")));
    folder.refuses(
        &of(&target, streams, "{ name: few, where: \"c.n > 1\" }"),
        "filter_refused",
        2,
        &["few"],
    );
    let wrong = of(&target, "", "{ name: c, where: \"c.n >\" }");
    folder.refuses(&wrong, "invalid_where", 2, &["query", "p.yaml:", "400"]);
    plan_refuses(&folder, "invalid_where", "where: ");
    let wrong = "    streams:\n      few: { container: c, query: \"SELECT * FRM c\" }\n";
    let text = of(&target, wrong, "c, few");
    folder.refuses(
        &text,
        "invalid_query",
        2,
        &["few", "query", "p.yaml:", "400"],
    );
    plan_refuses(&folder, "invalid_query", "few: ");
    // The other stream can be read.
    assert_eq!(rows(&folder, "out/c.jsonl").len(), 3);
    let declared = wrong.replace("FRM c\"", "FRM c\", schema: { id: string }");
    folder.refuses(&of(&target, &declared, "few"), "invalid_query", 2, &["few"]);
    folder.refuses(
        &of(&target, "", "missing"),
        "unknown_stream",
        2,
        &["missing"],
    );
}

#[test]
fn a_name_or_a_query_that_cannot_be_meant_is_refused_at_its_key() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let refuses = |config: &str, streams: &str, code: &str, place: &str, parts: &[&str]| {
        folder.refuses(&of(&target, config, streams), code, 2, parts);
        plan_refuses_at(&folder, code, place);
    };
    let values = "    streams:\n      few:\n        container: c\n        query: \"SELECT VALUE c.n FROM c\"\n";
    refuses(
        values,
        "few",
        "invalid_query",
        "query: ",
        &["few", "without VALUE"],
    );
    let declared = values.replace("\"\n", "\"\n        schema: { n: int64 }\n");
    refuses(
        &declared,
        "few",
        "invalid_query",
        "query: ",
        &["few", "without VALUE"],
    );
    let listed = "    containers:\n      - c\n      - typo\n";
    refuses(
        listed,
        "\"*\"",
        "cosmos_not_found",
        "- typo",
        &["typo does not exist", "has c"],
    );
    // The other stream can be read.
    assert_eq!(rows(&folder, "out/c.jsonl").len(), 3);
    let named = "    streams:\n      few:\n        container: typo\n";
    refuses(
        named,
        "few",
        "cosmos_not_found",
        "container: typo",
        &["has c"],
    );
    let types = "    streams:\n      c:\n        types:\n          typo: int64\n";
    refuses(
        types,
        "c",
        "unknown_column",
        "typo: ",
        &["the sample has id"],
    );
    let unknown = "    streams:\n      c:\n        unknown_keys: add\n";
    refuses(
        unknown,
        "c",
        "invalid_config",
        "unknown_keys: ",
        &["collect, ignore, refuse"],
    );
    let missing = pipeline(&target.endpoint(), "typo", "", "c");
    folder.refuses(
        &missing,
        "cosmos_not_found",
        2,
        &["create the database typo"],
    );
    plan_refuses_at(&folder, "cosmos_not_found", "database: ");
}

#[test]
fn a_cursor_by_a_field_of_the_server_names_the_setting_that_makes_it_a_column() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let by_ts = "{ name: c, sync_mode: incremental, cursor_field: _ts }";
    let parts = ["system_fields: true", "cursor_field"];
    let text = of(&target, "", by_ts).replace("write_mode: replace", "write_mode: append");
    folder.refuses(&text, "unknown_column", 2, &parts);
    let columns = "{ name: c, columns: [id, _etag] }";
    folder.refuses(
        &of(&target, "", columns),
        "unknown_column",
        2,
        &["system_fields: true"],
    );
    // It is set already: the documents do not have the field.
    let missing = "{ name: c, columns: [id, _lsn] }";
    let text = of(&target, "    system_fields: true\n", missing);
    folder.refuses(&text, "unknown_column", 2, &["_lsn"]);
    let (error, _) = folder.error(&text);
    assert!(
        !error.to_string().contains("set system_fields"),
        "{error:#}"
    );
    let near = "{ name: c, columns: [ide] }";
    folder.refuses(
        &of(&target, "", near),
        "unknown_column",
        2,
        &["did you mean"],
    );
}

#[test]
fn only_the_containers_that_are_named_are_streams() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    target.make("other", "/p", None);
    target.add("other", r#"{"id":"1"}"#);
    let names = |config: &str| -> Vec<String> {
        let report = folder.report(&of(&target, config, "\"*\""));
        let streams = report["streams"].as_array().expect("streams").iter();
        streams
            .filter_map(|stream| stream["name"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(names(""), ["c", "other"]);
    assert_eq!(names("    containers: [other]\n"), ["other"]);
    let query = "    containers: []\n    streams: { all: { container: c } }\n";
    assert_eq!(names(query), ["all"]);
}

#[test]
fn a_sample_of_several_pages_is_read_once() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let config = "    page_items: 1\n    sample_documents: 2\n";
    folder.report(&of(&target, config, "c"));
    let found = rows(&folder, "out/c.jsonl");
    let ids: Vec<&Value> = found.iter().map(|row| &row["id"]).collect();
    assert_eq!(ids, ["1", "2", "3"]);
}

#[test]
fn documents_that_the_columns_do_not_hold_are_kept() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    target.add("c", r#"{"id":"4","p":"a","n":"four"}"#);
    let declared = "    streams: { c: { types: { n: int64 } } }\n";
    folder.refuses(
        &of(&target, declared, "c"),
        "value_does_not_fit",
        4,
        &["four", "document 4"],
    );
    let pipeline = of(&target, declared, "c")
        .replace("{stream}.jsonl", "{part}.jsonl")
        .replace("write_mode: replace", "write_mode: append");
    let report = folder.report(&format!("{pipeline}rejects: {{ max_rows: 5, to: bad }}\n"));
    let stream = &report["streams"][0];
    assert_eq!(
        (&stream["rows"], &stream["rejected"]),
        (&json!(3), &json!(1)),
        "{report:#}"
    );
}

#[test]
fn rows_come_back_from_cosmos_db_as_they_went() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    let (from, back, target) = (
        postgres::shared().database(),
        postgres::shared().database(),
        server.database(),
    );
    let setup = "CREATE TABLE t (k bigint PRIMARY KEY, i int, d double precision, b boolean, v text, at timestamptz, day date, \
                 u uuid, x bytea, m numeric(30, 5), j jsonb);
        INSERT INTO t SELECT i, i - 500, i / 7.0, i % 3 = 0, repeat('ü\"\\', i % 50) || i,
            timestamptz '1950-01-01' + i * interval '37 days 11 microseconds', date '1900-01-01' + i, md5(i::text)::uuid,
            decode(md5(i::text), 'hex'), i * 1000000000000000000.00001, jsonb_build_object('a', i, 'b', ARRAY[i::float8 / 4, NULL])
            FROM generate_series(1, 500) i;
        INSERT INTO t (k) VALUES (9223372036854775807);";
    from.client().batch_execute(setup).expect("a table");
    let folder = Folder::new();
    for (mode, key) in [
        ("append", ""),
        ("upsert", "\n  primary_key: [k]"),
        ("replace", ""),
    ] {
        let copy = |name: &str, source: &str, destination: &str| {
            folder.report(&format!(
                "version: 1\npipeline: {name}_{mode}\nsource:\n  {source}\ndestination:\n  {destination}\n"
            ));
        };
        let account = format!(
            "endpoint: \"{}\", key: \"{KEY}\", database: {}",
            target.endpoint(),
            target.name()
        );
        copy(
            "there",
            &format!(
                "use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams: [public.t]",
                from.url()
            ),
            &format!(
                "use: dest-cosmos\n  config: {{ {account}, container: {mode}, integers: text, decimals: text }}\n  write_mode: {mode}{key}"
            ),
        );
        let types = "k: string, i: int32, d: float64, b: bool, v: string, at: timestamptz, day: date, u: uuid, x: binary, m: string, j: json";
        copy(
            "back",
            &format!(
                "use: source-cosmos\n  config: {{ {account}, streams: {{ {mode}: {{ schema: {{ {types} }}, unknown_keys: ignore }} }} }}\n  \
                 streams: [{mode}]"
            ),
            &format!(
                "use: dest-postgres\n  config: {{ url: \"{}\", schema: raw }}\n  write_mode: replace",
                back.url()
            ),
        );
        let client = &mut back.client();
        let json = format!(
            "ALTER TABLE raw.{mode} ALTER j TYPE jsonb, ALTER k TYPE bigint USING k::bigint, ALTER m TYPE numeric(30, 5) USING m::numeric"
        );
        client.batch_execute(&json).expect("types");
        let expected = content(&mut from.client(), "t");
        assert_eq!(expected.0, 501);
        assert_eq!(content(client, &format!("raw.{mode}")), expected, "{mode}");
    }
}

#[test]
fn a_server_that_is_no_account_is_refused_by_name() {
    let folder = Folder::new();
    for (reply, code, exit, part) in [
        (
            || Reply::status(401, "{\"message\":\"wrong key\"}"),
            "cosmos_unauthorized",
            3,
            "wrong key",
        ),
        (
            || Reply::status(404, "{\"message\":\"no such database\"}"),
            "cosmos_not_found",
            2,
            "database",
        ),
        (
            || Reply::json("{\"hello\":1}"),
            "protocol_violation",
            3,
            "endpoint",
        ),
    ] as [(fn() -> Reply, &str, i32, &str); 3]
    {
        let server = Server::start(move |_| reply());
        let pipeline = pipeline(&server.url("/"), "d", "", "c");
        folder.refuses(&pipeline, code, exit, &[part]);
    }
    for (config, part) in [
        ("    page_items: 0\n", "page_items"),
        ("    streams: { c: { query: \" \" } }\n", "query"),
    ] {
        let pipeline = pipeline("http://127.0.0.1:1/", "d", config, "c");
        folder.refuses(&pipeline, "invalid_setting", 2, &[part]);
    }
}

#[test]
fn the_source_keeps_the_contract() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    for number in 4..3000 {
        target.add(
            "c",
            &format!("{{\"id\":\"{number}\",\"p\":\"a\",\"n\":{number},\"s\":\"row {number}\"}}"),
        );
    }
    let config = json!({
        "endpoint": target.endpoint(), "key": KEY, "database": target.name(), "page_items": 700,
    });
    let arguments = [
        "connector",
        "test",
        "source-cosmos",
        "--config",
        &config.to_string(),
    ];
    let ended = folder.rapidbyte(&arguments);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains(" 0 failed"), "{}", ended.stdout);
}

/// A name under `types` that is misspelled would be a column of NULL.
#[test]
fn a_declared_field_that_no_document_has_is_refused_by_name() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let types = |name: &str, more: &str| {
        let config = format!("    streams: {{ c: {{ types: {{ {name}: int64 }} }} }}\n{more}");
        of(&target, &config, "c")
    };
    for more in ["", "    sample_documents: 1\n"] {
        let parts = ["types names mroe", "the sample has id"];
        folder.refuses(&types("mroe", more), "unknown_column", 2, &parts);
        let plan = folder.rapidbyte(&["plan", "p.yaml"]);
        assert_eq!(plan.code, Some(2), "{plan:?}");
    }
    // The only document with the field is behind the sample.
    let found = types("more", "    sample_documents: 1\n").replace("int64", "bool");
    folder.report(&found);
    assert_eq!(rows(&folder, "out/c.jsonl")[1]["more"], true);
}

#[test]
fn a_sample_that_the_table_does_not_hold_is_refused_by_the_plan() {
    let Some(target) = filled() else { return };
    let folder = Folder::new();
    let database = postgres::shared().database();
    let made = "CREATE TABLE c (id text, d int)";
    database.client().batch_execute(made).expect("a table");
    let into = format!(
        "destination:\n  use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: append\n",
        database.url()
    );
    let text = of(&target, "", "{ name: c, columns: [id, d] }");
    let source = text.split("destination:").next().expect("a source");
    let text = format!("{source}{into}");
    folder.refuses(&text, "column_refused", 4, &["type_change: rewrite"]);
    let plan = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(plan.code, Some(4), "{plan:?}");
}

/// An account whose clock a test sets: the answers of the server have this date.
fn with_clock(target: &CosmosDatabase<'_>, date: &'static str) -> Server {
    let endpoint = target.endpoint();
    let port = endpoint.trim_end_matches('/').rsplit(':').next();
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
    Server::start(move |request| cosmosdb::forward(port, request).header("date", date))
}

/// A clock that is far ahead, so that every document is older than a read.
const LATER: &str = "Thu, 01 Jan 2099 00:00:00 GMT";
/// A clock that is behind, so that every document was written after a read has begun.
const EARLIER: &str = "Tue, 01 Jan 2019 00:00:00 GMT";

/// From a container with the stream's keys into the table `c` of PostgreSQL.
fn into_table(
    endpoint: &str,
    from: &CosmosDatabase<'_>,
    stream: &str,
    target: &postgres::Database<'_>,
    mode: &str,
) -> String {
    let streams = format!("{{ name: c, sync_mode: incremental, {stream} }}");
    let text = pipeline(endpoint, from.name(), "    system_fields: true\n", &streams);
    let source = text.split("destination:").next().expect("a source");
    format!(
        "{source}destination:\n  use: dest-postgres\n  config: {{ url: \"{}\" }}\n  write_mode: {mode}\n  primary_key: [id]\n",
        target.url()
    )
}

/// The ids in the table `c`.
fn ids(target: &postgres::Database<'_>) -> String {
    let sql = "SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM c";
    target.client().query_one(sql, &[]).expect("a row").get(0)
}

#[test]
fn an_incremental_read_moves_each_new_document_once() {
    let Some(target) = filled() else { return };
    for (field, add) in [("_ts", ""), ("n", ""), ("s", "")] {
        let from = cosmosdb::shared().expect("the server").database();
        from.make("c", "/p", None);
        let document = |id: u32, n: u32| {
            format!("{{\"id\":\"{id}\",\"p\":\"p{id}\",\"n\":{n},\"s\":\"s{n}\"{add}}}")
        };
        for (id, n) in [(1, 5), (2, 7), (3, 7)] {
            from.add("c", &document(id, n));
        }
        let folder = Folder::new();
        let table = postgres::shared().database();
        let clock = with_clock(&from, LATER);
        let stream = format!("cursor_field: {field}");
        let text = into_table(&clock.url("/"), &from, &stream, &table, "append")
            .replace("  primary_key: [id]\n", "");
        assert_eq!(folder.report(&text)["streams"][0]["rows"], 3, "{field}");
        assert_eq!(folder.report(&text)["streams"][0]["rows"], 0, "{field}");
        // One with the greatest value, and one behind it.
        if field != "_ts" {
            from.add("c", &document(4, 7));
            from.add("c", &document(5, 8));
            assert_eq!(folder.report(&text)["streams"][0]["rows"], 2, "{field}");
            assert_eq!(ids(&table), "1 2 3 4 5", "{field}");
        }
    }
    drop(target);
}

/// The second of a document does not say whether it was written before a read or after it.
#[test]
fn documents_of_the_second_in_which_a_read_begins_are_neither_lost_nor_doubled() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    for (mode, at_first) in [("append", ""), ("upsert", "1 2")] {
        let (from, table) = (server.database(), postgres::shared().database());
        from.make("c", "/p", None);
        let folder = Folder::new();
        let add = |id: &str| from.add("c", &format!("{{\"id\":\"{id}\",\"p\":\"{id}\"}}"));
        add("1");
        add("2");
        let (before, after) = (with_clock(&from, EARLIER), with_clock(&from, LATER));
        let text = |clock: &Server| {
            let text = into_table(&clock.url("/"), &from, "cursor_field: _ts", &table, mode);
            match mode {
                "append" => text.replace("  primary_key: [id]\n", ""),
                _ => text,
            }
        };
        folder.report(&text(&before));
        // `append` waits until no document of the same second can come; `upsert` reads them again.
        assert_eq!(ids(&table), at_first, "{mode}");
        add("3");
        folder.report(&text(&before));
        folder.report(&text(&after));
        assert_eq!(ids(&table), "1 2 3", "{mode}");
        let again = folder.report(&text(&after));
        let rows = again["streams"][0]["rows"].as_u64().expect("a number");
        assert!(rows <= 3, "{again:#}");
        assert_eq!(ids(&table), "1 2 3", "{mode}");
    }
}

#[test]
fn an_incremental_run_that_is_killed_in_the_source_is_made_good_by_the_next() {
    let Some(server) = cosmosdb::shared() else {
        return;
    };
    for (point, hit) in [
        ("source-cosmos.page", 1),
        ("source-cosmos.page", 3),
        ("source-cosmos.checkpoint", 1),
    ] {
        for field in ["_ts", "n"] {
            let (from, table) = (server.database(), postgres::shared().database());
            from.make("c", "/p", None);
            let add = |ids: std::ops::Range<u32>| {
                for id in ids {
                    let n = id / 7;
                    from.add(
                        "c",
                        &format!("{{\"id\":\"{id}\",\"p\":\"{}\",\"n\":{n}}}", id % 3),
                    );
                }
            };
            add(0..40);
            let folder = Folder::new();
            let clock = with_clock(&from, LATER);
            let stream = format!("cursor_field: {field}");
            let text = into_table(&clock.url("/"), &from, &stream, &table, "append")
                .replace("  primary_key: [id]\n", "")
                .replace(
                    "system_fields: true",
                    "system_fields: true\n    page_items: 10",
                );
            folder.write("p.yaml", &text);
            let mut command = folder.command(&["run", "p.yaml", "--quiet"]);
            let fault = format!("{point}=kill@{hit}");
            let killed = command.env("RAPIDBYTE_FAULTS", &fault).output();
            let killed = killed.expect("the program starts");
            assert_eq!(killed.status.code(), None, "{fault}: it was not killed");
            let report = folder.report(&text);
            assert_eq!(report["streams"][0]["rows"], 40, "{fault}");
            if field == "n" {
                add(40..45);
                assert_eq!(folder.report(&text)["streams"][0]["rows"], 5, "{fault}");
            }
            let sql = "SELECT count(*), count(DISTINCT id) FROM c";
            let row = table.client().query_one(sql, &[]).expect("a row");
            let wanted = if field == "n" { 45 } else { 40 };
            let found: (i64, i64) = (row.get(0), row.get(1));
            assert_eq!(found, (wanted, wanted), "{fault} {field}");
        }
    }
}

#[test]
fn an_incremental_read_that_cannot_be_is_refused_before_anything_moves() {
    let Some(from) = filled() else { return };
    let table = postgres::shared().database();
    let folder = Folder::new();
    let refuses = |stream: &str, code: &str, exit: i32, parts: &[&str]| {
        let text = into_table(&from.endpoint(), &from, stream, &table, "upsert");
        folder.refuses(&text, code, exit, parts);
    };
    refuses("cursor_field: [n, d]", "too_many_cursor_fields", 2, &["c"]);
    refuses("cursor_field: n, lag: 5 minutes", "invalid_lag", 2, &["n"]);
    refuses(
        "cursor_field: n, cursor_initial: x",
        "invalid_cursor_initial",
        2,
        &["x"],
    );
    let text = into_table(
        &from.endpoint(),
        &from,
        "cursor_field: _ts",
        &table,
        "upsert",
    );
    let plain = text.replace("    system_fields: true\n", "");
    folder.refuses(&plain, "unknown_column", 2, &["_ts"]);
    let query = text.replace(
        "    system_fields: true\n",
        "    streams: { c: { query: \"SELECT c.id, c.n FROM c\" } }\n",
    );
    folder.refuses(
        &query.replace("cursor_field: _ts", "cursor_field: n"),
        "filter_refused",
        2,
        &["query"],
    );
    // A value of another type, behind which nobody would look again.
    from.add("c", r#"{"id":"4","p":"a","n":"four"}"#);
    let mixed = text.replace("cursor_field: _ts", "cursor_field: n");
    folder.refuses(&mixed, "cosmos_cursor_value", 4, &["several types"]);
}

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
    folder.refuses(
        &of(&target, "", "{ name: c, where: \"c.n >\" }"),
        "cosmos_refused",
        4,
        &["query"],
    );
    folder.refuses(
        &of(&target, "", "missing"),
        "unknown_stream",
        2,
        &["missing"],
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
        (
            "    streams: { c: { unknown_keys: add } }\n",
            "unknown_keys",
        ),
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

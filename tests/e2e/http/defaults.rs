//! A plain API needs no option, and what a stop says leads on.

use rapidbyte_testkit::postgres::shared;

use super::*;

/// The pages after the sample, which ends at the tenth, begin here.
const LATE: u64 = 11;

/// A page of an ordinary API: objects, arrays, timestamps, and on the last page a new key.
fn page(number: u64) -> String {
    let new = match number {
        LATE => r#", "new": {"a": [1.10]}, "more": 1"#,
        _ => "",
    };
    let (id, day) = (2 * number, number + 1);
    format!(
        r#"[{{"id": {id}, "at": "2026-11-{day:02}T10:00:00Z", "day": "2026-11-{day:02}", "who": {{"name": "x", "tags": ["a", {{"b": null}}]}}, "tags": [], "n": null{new}}},
           {{"id": {}, "at": "2026-11-{day:02}T12:00:00.25+02:00", "day": "", "who": null, "tags": ["a", "b"], "n": null}}]"#,
        id + 1
    )
}

#[test]
fn a_plain_api_loads_into_postgresql_and_files_without_any_option() {
    let server = Server::start(|request| match number(request, "page") {
        Some(number @ 1..=LATE) => Reply::json(page(number)),
        _ => Reply::json("[]"),
    });
    let paged = ["pagination: { type: page }"];
    let text = pipeline(&server.url(""), &[], &paged);

    let database = shared().database();
    let folder = Folder::new();
    let into_table = text.replace(
        "use: dest-file\n  config: { path: \"out/{stream}.jsonl\" }",
        &format!(
            "use: dest-postgres\n  config: {{ url: \"{}\" }}",
            database.url()
        ),
    );
    folder.write("p.yaml", &into_table);
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = "1 record has keys that are not columns (more, new); the column _rest keeps them";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    let mut client = database.client();
    let types = client
        .query_one(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) \
             FROM pg_attribute WHERE attrelid = 'items'::regclass AND attnum > 0",
            &[],
        )
        .expect("the columns");
    assert_eq!(
        types.get::<_, String>(0),
        "id bigint, at timestamp with time zone, day text, who json, tags json, n text, _rest json"
    );
    let row = client
        .query_one(
            "SELECT count(*), count(*) FILTER (WHERE at = '2026-11-12T10:00:00.25Z'), \
             max(who #>> '{tags,1}'), max(_rest::text) FROM items",
            &[],
        )
        .expect("a row");
    let counts: (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(counts, (22, 1));
    assert_eq!(row.get::<_, String>(2), r#"{"b": null}"#);
    assert_eq!(row.get::<_, String>(3), r#"{"new":{"a": [1.10]},"more":1}"#);
    // The table is there now.
    folder.report(&into_table);

    for ending in ["csv", "jsonl", "parquet"] {
        let folder = Folder::new();
        let report =
            folder.report(&text.replace("{stream}.jsonl", &format!("{{stream}}.{ending}")));
        assert_eq!(report["streams"][0]["rows"], 22, "{ending}: {report:#}");
    }
}

/// Runs the pipeline, which stops with this code, and gives the hint.
#[track_caller]
fn stops(folder: &Folder, text: &str, code: &str) -> String {
    let (error, _) = folder.error(&format!("{text}schema_changes: {{ type_change: fail }}\n"));
    assert_eq!(error["code"], code, "{error:#}");
    error["hint"].as_str().expect("a hint").to_owned()
}

/// The option between "write " and what ends it.
#[track_caller]
fn advised(hint: &str) -> &str {
    let (_, advice) = hint.split_once("write ").expect(hint);
    let (option, place) = advice.split_once(" under ").expect(hint);
    assert!(place.starts_with("config.streams.items"), "{hint}");
    option
}

#[test]
fn the_hint_of_every_stop_leads_to_a_run_that_ends_well() {
    let paged = "pagination: { type: page }";
    for (first, second, stream, code) in [
        (
            r#"{"id": 1}"#,
            r#"{"id": "x"}"#,
            vec![],
            "value_does_not_fit",
        ),
        (
            r#"{"id": 0.5}"#,
            r#"{"id": 0.12345678901234567890}"#,
            vec![],
            "value_does_not_fit",
        ),
        (
            r#"{"the time": "2026-11-21T10:00:00Z"}"#,
            r#"{"the time": "never"}"#,
            vec![],
            "value_does_not_fit",
        ),
        (
            r#"{"id": {"a": 1}}"#,
            r#"{"id": {"a": 1, "b": 2}}"#,
            vec!["nested: columns"],
            "jsonl_unknown_field",
        ),
        (
            r#"{"id": 1}"#,
            r#"{"id": 2, "new": {}}"#,
            vec!["unknown_keys: refuse"],
            "jsonl_unknown_field",
        ),
        (
            r#"{"id": 1}"#,
            r#"{"id": 2, "new": {}}"#,
            vec!["schema: { id: int64 }"],
            "jsonl_unknown_field",
        ),
    ] {
        let server = Server::start(move |request| match number(request, "page") {
            Some(1) => Reply::json(format!("[{first}]")),
            Some(2) => Reply::json(format!("[{second}]")),
            _ => Reply::json("[]"),
        });
        let folder = Folder::new();
        let sample = ["sample_records: 1"];
        let with = |more: &[&str]| {
            let options: Vec<&str> = [paged].iter().chain(more).copied().collect();
            pipeline(&server.url(""), &sample, &options)
        };
        let hint = stops(&folder, &with(&stream), code);
        let option = advised(&hint);
        let key = option.split(':').next().unwrap_or_default();
        let begins = format!("{key}:");
        let kept = stream
            .iter()
            .copied()
            .filter(|line| !line.starts_with(&begins));
        let followed: Vec<&str> = kept.chain([option]).collect();
        let found = rows(&folder, &with(&followed));
        assert_eq!(found.len(), 2, "{hint}");
    }
}

#[test]
fn a_chosen_sample_reaches_beyond_ten_pages() {
    let server = Server::start(|request| match number(request, "page") {
        Some(12) => Reply::json(r#"[{"id": 12, "new": 1}]"#),
        Some(number @ 1..12) => Reply::json(ids([number])),
        _ => Reply::json("[]"),
    });
    let paged = ["pagination: { type: page }", "unknown_keys: refuse"];
    let text = |config: &[&str]| pipeline(&server.url(""), config, &paged);
    Folder::new().refuses(&text(&[]), "jsonl_unknown_field", 4, &["new"]);
    let found = rows(&Folder::new(), &text(&["sample_records: 1000"]));
    assert_eq!(found[11]["new"], 1);
}

#[test]
fn options_without_an_effect_are_refused() {
    for (stream, code, part) in [
        (
            ["schema: { id: int64 }", "types: { a: json }"],
            "unused_option",
            "remove types or schema",
        ),
        (
            ["schema: { id: int64 }", "nested: json"],
            "unused_option",
            "remove nested or schema",
        ),
        (
            ["types: { _rest: json }", "unknown_keys: collect"],
            "invalid_config",
            "remove _rest from types",
        ),
    ] {
        let text = pipeline("http://127.0.0.1:1", &[], &stream);
        Folder::new().refuses(&text, code, 2, &[part, "config.streams.items"]);
    }
}

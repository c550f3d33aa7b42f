//! Only what is new, and into a table.

use rapidbyte_testkit::postgres::shared;

use super::*;

/// A server whose records have a time, and which gives those from `since` on.
fn growing(all: std::sync::Arc<std::sync::Mutex<Vec<(u64, &'static str)>>>) -> Server {
    Server::start(move |request| {
        let since = request.param("since").unwrap_or("").to_owned();
        let all = all.lock().expect("records");
        let new = all.iter().filter(|(_, at)| *at >= since.as_str());
        let items: Vec<String> = new
            .map(|(id, at)| format!("{{\"id\": {id}, \"at\": {at:?}}}"))
            .collect();
        Reply::json(format!("[{}]", items.join(",")))
    })
}

const INCREMENTAL: &str = "incremental: { cursor_field: at, param: since }";

fn incremental(server: &Server, destination: &str) -> String {
    let schema = "schema: { id: int64 not null, at: timestamptz }";
    let text = pipeline(
        &server.url(""),
        &[],
        &[schema, INCREMENTAL, "primary_key: [id]"],
    );
    let (source, _) = text.split_once("  streams: [items]\n").expect("a source");
    format!(
        "{source}  streams: [{{ name: items, sync_mode: incremental, cursor_field: at }}]\n{destination}"
    )
}

#[test]
fn a_run_resumes_where_the_last_run_ended_and_repeats_no_record() {
    let all = std::sync::Arc::<std::sync::Mutex<Vec<_>>>::default();
    let server = growing(std::sync::Arc::clone(&all));
    let to_files = "destination:\n  use: dest-file\n  config: { path: \"out/p-{part}.jsonl\" }\n  write_mode: append\n";
    let folder = Folder::new();
    let text = incremental(&server, to_files);
    // A server without records gives the next run no cursor.
    assert_eq!(folder.report(&text)["rows"], 0);
    all.lock().expect("records").extend([
        (1, "2026-11-21T10:00:00Z"),
        (3, "2026-11-21T12:00:00Z"),
        (2, "2026-11-21T11:00:00Z"),
    ]);
    assert_eq!(folder.report(&text)["rows"], 3);
    // Nothing new; then a record of the same moment and a later one.
    assert_eq!(folder.report(&text)["rows"], 0);
    all.lock()
        .expect("records")
        .extend([(4, "2026-11-21T12:00:00Z"), (5, "2026-11-22T00:00:00Z")]);
    assert_eq!(folder.report(&text)["rows"], 2);
    let asked = server.requests();
    let last = asked
        .last()
        .expect("a request")
        .param("since")
        .map(str::to_owned);
    assert_eq!(last.as_deref(), Some("2026-11-21T12:00:00Z"));
    let mut ids: Vec<u64> = folder
        .files("out")
        .iter()
        .filter(|name| name.ends_with(".jsonl"))
        .flat_map(|name| written(&folder, &format!("out/{name}")))
        .filter_map(|row| row["id"].as_u64())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

#[test]
fn rows_become_a_table_and_change_it() {
    let database = shared().database();
    let all = std::sync::Arc::new(std::sync::Mutex::new(vec![
        (1, "2026-11-21T10:00:00Z"),
        (2, "2026-11-21T11:00:00Z"),
    ]));
    let server = growing(std::sync::Arc::clone(&all));
    let to_table = format!(
        "destination:\n  use: dest-postgres\n  config: {{ url: {:?} }}\n  write_mode: upsert\n  primary_key: [id]\n",
        database.url()
    );
    let folder = Folder::new();
    let text = incremental(&server, &to_table);
    folder.report(&text);
    *all.lock().expect("records") = vec![
        (1, "2026-11-23T00:00:00Z"),
        (2, "2026-11-21T11:00:00Z"),
        (3, "2026-11-21T11:00:00Z"),
    ];
    folder.report(&text);
    let mut client = database.client();
    let sql = "SELECT string_agg(id || ' ' || (at AT TIME ZONE 'UTC')::date, ', ' ORDER BY id) FROM items";
    let found: String = client.query_one(sql, &[]).expect("rows").get(0);
    assert_eq!(found, "1 2026-11-23, 2 2026-11-21, 3 2026-11-21");
}

#[test]
fn a_stream_that_cannot_resume_is_refused() {
    let server = growing(std::sync::Arc::default());
    let to_files = "destination:\n  use: dest-file\n  config: { path: \"out/p-{part}.jsonl\" }\n  write_mode: append\n";
    let text = incremental(&server, to_files);
    let refuses = |from: &str, to: &str, code: &str, exit: i32| {
        let text = text.replace(from, to);
        Folder::new().refuses(&text, code, exit, &["items"]);
    };
    refuses(
        "cursor_field: at }]",
        "cursor_field: id }]",
        "http_cursor_field",
        2,
    );
    refuses(INCREMENTAL, "query: {}", "no_cursor", 2);
    refuses(
        "cursor_field: at }]",
        "cursor_field: at, change_detection: xmin }]",
        "http_no_lag",
        2,
    );
}

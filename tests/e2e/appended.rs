//! Incremental reads into folders of files: new rows, listed and moved cursors, full refreshes.

use rapidbyte_testkit::postgres::shared;

use crate::support::Folder;

fn pipeline(url: &str, path: &str) -> String {
    format!(
        "version: 1\npipeline: t\nsource:\n  use: source-postgres\n  config: {{ url: \"{url}\" }}\n  \
         streams: [{{ name: public.t, sync_mode: incremental, cursor_field: id }}]\n\
         destination:\n  use: dest-file\n  config: {{ path: \"{path}\" }}\n  write_mode: append\n"
    )
}

fn runs(folder: &Folder, arguments: &[&str]) -> String {
    let ended = folder.rapidbyte(arguments);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stderr, ended.stdout);
    ended.stdout
}

/// The ids in all files that a pattern finds, in their order.
fn ids(folder: &Folder) -> Vec<u64> {
    let entries = std::fs::read_dir(folder.path().join("out")).expect("a folder");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
    let mut ids: Vec<u64> = files
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).expect("UTF-8");
            let id = |line: &str| {
                let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
                row["id"].as_u64().expect("an id")
            };
            text.lines().map(id).collect::<Vec<_>>()
        })
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn a_directory_grows_keeps_its_cursor_and_can_start_anew() {
    let database = shared().database();
    let mut client = database.client();
    let sql = |client: &mut rapidbyte_testkit::postgres::Client, sql: &str| {
        client.batch_execute(sql).expect("changed");
    };
    sql(
        &mut client,
        "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)",
    );
    let folder = Folder::new();
    folder.write("p.yaml", pipeline(&database.url(), "out/p-{part}.jsonl"));
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    sql(&mut client, "INSERT INTO t VALUES (4), (5)");
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    assert_eq!(ids(&folder), [1, 2, 3, 4, 5]);
    let state = runs(&folder, &["state", "list", "p.yaml"]);
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let lines: Vec<Vec<String>> = state.lines().map(words).collect();
    assert_eq!(lines[0], ["stream", "commits", "last", "run", "cursor"]);
    assert_eq!(lines[1], ["public.t", "2", "complete", "id", "=", "5"]);
    // Nothing new: nothing is added.
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    assert_eq!(ids(&folder), [1, 2, 3, 4, 5]);
    // From the first row on, in the place of the others.
    sql(&mut client, "DELETE FROM t WHERE id = 1");
    runs(&folder, &["run", "p.yaml", "--quiet", "--full-refresh"]);
    assert_eq!(ids(&folder), [2, 3, 4, 5]);
    sql(&mut client, "INSERT INTO t VALUES (6)");
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    assert_eq!(ids(&folder), [2, 3, 4, 5, 6]);
    // `--full-refresh` also works for a new directory.
    let other =
        pipeline(&database.url(), "new/p-{part}.jsonl").replace("pipeline: t", "pipeline: o");
    folder.write("o.yaml", other);
    runs(&folder, &["run", "o.yaml", "--quiet", "--full-refresh"]);
    let state = runs(&folder, &["state", "list", "o.yaml"]);
    let line = words(state.lines().last().unwrap_or_default());
    assert_eq!(line[1..3], ["1", "complete"], "{state}");
    // A single file keeps no cursor.
    folder.write("q.yaml", pipeline(&database.url(), "one.jsonl"));
    for verb in ["plan", "run"] {
        let ended = folder.rapidbyte(&[verb, "q.yaml"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let told = &ended.stderr;
        assert!(told.contains("cursor_needs_folder"), "{verb} {told}");
    }
    assert!(!folder.path().join("one.jsonl").exists());
}

#[test]
fn a_manifest_without_its_cursor_does_not_append_all_rows_again() {
    let database = shared().database();
    let sql = "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)";
    database.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    folder.write("p.yaml", pipeline(&database.url(), "out/p-{part}.jsonl"));
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    let manifests = folder.path().join("out/_manifest");
    let count = std::fs::read_dir(&manifests).expect("a folder").count();
    let newest = manifests.join(format!("{count:08}.json"));
    let text = std::fs::read_to_string(&newest).expect("a manifest");
    let mut manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let cursor = manifest["cursor"].take();
    std::fs::write(&newest, manifest.to_string()).expect("an edited manifest");
    for command in ["plan", "run"] {
        let ended = folder.rapidbyte(&[command, "p.yaml"]);
        assert_eq!(ended.code, Some(4), "{}", ended.stderr);
        for told in [
            "cursor_missing",
            "out has 3 rows, and the manifest",
            "in out/_manifest has no cursor",
            "state set",
            "--full-refresh",
        ] {
            assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
        }
    }
    let cursor = cursor.as_str().expect("a cursor");
    runs(&folder, &["state", "set", "p.yaml", "public.t", cursor]);
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    assert_eq!(ids(&folder), [1, 2, 3]);
    runs(&folder, &["state", "clear", "p.yaml", "public.t"]);
    runs(&folder, &["run", "p.yaml", "--quiet"]);
    assert_eq!(ids(&folder), [1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_folder_is_read_as_a_whole_after_its_stream_got_a_column() {
    for ending in ["parquet", "arrow"] {
        let database = shared().database();
        let mut client = database.client();
        let table = "CREATE TABLE t (id bigint PRIMARY KEY, old text NOT NULL); INSERT INTO t VALUES (1, 'x')";
        client.batch_execute(table).expect("a table");
        let folder = Folder::new();
        let path = format!("out/p-{{part}}.{ending}");
        folder.write("p.yaml", pipeline(&database.url(), &path));
        runs(&folder, &["run", "p.yaml", "--quiet"]);
        let change = "ALTER TABLE t ADD note text, DROP old; INSERT INTO t VALUES (2, 'n')";
        client.batch_execute(change).expect("a change");
        runs(&folder, &["run", "p.yaml", "--quiet"]);
        let back = format!(
            "version: 1\npipeline: b\n\
             source: {{ use: source-file, config: {{ path: \"out/*.{ending}\", stream: s }}, streams: [s] }}\n\
             destination: {{ use: dest-file, config: {{ path: back.jsonl }}, write_mode: replace }}\n"
        );
        folder.report(&back);
        let rows =
            "{\"id\":1,\"old\":\"x\",\"note\":null}\n{\"id\":2,\"old\":null,\"note\":\"n\"}\n";
        assert_eq!(folder.read("back.jsonl"), rows, "{ending}");
    }
}

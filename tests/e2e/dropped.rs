//! The source drops a column that the target keeps: every run warns the operator.

use rapidbyte_testkit::postgres::shared;

use crate::support::Folder;

#[test]
fn a_column_dropped_at_the_source_is_a_warning_of_each_run() {
    let (source, target) = (shared().database(), shared().database());
    let mut from = source.client();
    from.batch_execute(
        "CREATE TABLE t (id int PRIMARY KEY, old text); INSERT INTO t VALUES (1, 'x'), (2, 'y')",
    )
    .expect("a table");
    let folder = Folder::new();
    let pipeline = |schema: &str, stream: &str, mode: &str| {
        format!(
            "version: 1\npipeline: {schema}\n\
             source:\n  use: source-postgres\n  config: {{ url: \"{}\" }}\n  streams:\n  - {{ {stream} }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: {schema} }}, write_mode: {mode} }}\n",
            source.url(),
            target.url()
        )
    };
    let grown = "name: public.t, sync_mode: incremental, cursor_field: id";
    let cases = [
        (
            pipeline("merged", "name: public.t", "upsert"),
            "updated rows keep their old value",
        ),
        (
            pipeline("added", grown, "append"),
            "new rows get NULL there",
        ),
        (
            pipeline("written", "name: public.t", "replace"),
            "all rows get NULL there",
        ),
    ];
    for (text, _) in &cases {
        let report = folder.report(text);
        assert_eq!(report["warnings"].as_array().map(Vec::len), Some(0));
    }
    from.batch_execute("ALTER TABLE t DROP COLUMN old; INSERT INTO t VALUES (3)")
        .expect("a change");
    for (text, expected) in &cases {
        folder.write("p.yaml", text);
        let arguments = ["run", "p.yaml", "--report", "r.html", "--output", "json"];
        let ended = folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let warning = &report["warnings"][0];
        assert_eq!(warning["stream"], "public.t", "{report:#}");
        let message = warning["message"].as_str().expect("a message");
        assert!(message.contains("column old"), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(ended.stderr.contains("warning"), "{}", ended.stderr);
        let page = folder.read("r.html");
        assert!(page.contains("<h2>Warnings</h2>"));
        assert!(
            page.contains(
                "<li>public.t: no column of the stream fills the target&#39;s column old"
            ),
            "{page}"
        );
    }
}

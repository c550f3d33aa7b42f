//! What two roles lack is told at once, with a script for whoever may grant.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::Folder;

/// The statements of one side in the script of a hint.
fn part(script: &str, side: &str) -> String {
    let (_, rest) = script.split_once(&format!("-- {side}\n")).expect(script);
    let end = rest.find("\n-- destination\n").unwrap_or(rest.len());
    rest[..end].to_owned()
}

#[test]
fn one_script_grants_all_that_both_roles_lack() {
    let (source, target) = (shared().database(), shared().database());
    let (mut from, mut to) = (source.client(), target.client());
    from.batch_execute(
        "CREATE SCHEMA s; CREATE TABLE s.a (id int PRIMARY KEY, v text); INSERT INTO s.a VALUES (1, 'x'); \
         CREATE TABLE s.b (id int PRIMARY KEY, v text, secret text); INSERT INTO s.b VALUES (2, 'y', 'z'); \
         CREATE ROLE g_reader LOGIN PASSWORD 'r'; CREATE ROLE g_writer LOGIN PASSWORD 'w'",
    )
    .expect("tables");
    to.batch_execute("CREATE SCHEMA raw; CREATE TABLE raw.a (id int PRIMARY KEY, v text)")
        .expect("a table");
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: granted\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [s.a, {{ name: s.b, columns: [id, v] }}] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw }}, write_mode: upsert }}\n",
        source.url_of("g_reader", "r"),
        target.url_of("g_writer", "w")
    );
    folder.write("p.yaml", &pipeline);
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let error = &document["error"];
    assert_eq!(error["code"], "no_privilege", "{error:#}");
    let script = error["hint"].as_str().expect("a script");
    // `check` has the same script.
    let checked = folder.rapidbyte(&["check", "p.yaml", "--output", "json"]);
    assert_eq!(checked.code, Some(3), "{}", checked.stdout);
    let line = "GRANT SELECT, INSERT, UPDATE ON raw.a TO g_writer;";
    assert!(script.contains(line), "{script}");
    assert!(checked.stdout.contains(line), "{}", checked.stdout);
    assert!(checked.stdout.contains("GRANT SELECT ON s.b TO g_reader;"));
    // One run of the script by an administrator is enough.
    from.batch_execute(&part(script, "source")).expect("source");
    to.batch_execute(&part(script, "destination"))
        .expect("destination");
    let report = folder.report(&pipeline);
    assert_eq!(report["rows"], 2);
    for (client, role) in [(&mut from, "g_reader"), (&mut to, "g_writer")] {
        client
            .batch_execute(&format!("DROP OWNED BY {role}"))
            .expect("the privileges");
    }
    from.batch_execute("DROP ROLE g_reader; DROP ROLE g_writer")
        .expect("the roles");
}

//! One error names all privileges that two roles lack, with a script for an administrator.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::Folder;

/// The statements of one side in the script of a hint.
fn part(script: &str, side: &str) -> String {
    let (_, rest) = script.split_once(&format!("-- {side}\n")).expect(script);
    let end = rest.find("\n-- destination\n").unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// The JSON document of `plan` where privileges are missing.
#[track_caller]
fn refused(folder: &Folder) -> Value {
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let error = &document["error"];
    assert_eq!(error["code"], "no_privilege", "{error:#}");
    document
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
    let document = refused(&folder);
    let error = &document["error"];
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

#[test]
fn the_script_has_what_views_conditions_and_loads_by_insert_need_too() {
    let (source, target) = (shared().database(), shared().database());
    let (mut from, mut to) = (source.client(), target.client());
    from.batch_execute(
        "CREATE ROLE v_owner; CREATE ROLE v_reader LOGIN PASSWORD 'r'; CREATE ROLE v_writer LOGIN PASSWORD 'w'; \
         CREATE SCHEMA s; CREATE SCHEMA f; GRANT USAGE ON SCHEMA s TO v_reader; \
         CREATE TABLE s.base (id int, v text); CREATE TABLE s.more (id int); \
         CREATE TABLE s.t (id int, v text); CREATE TABLE s.allowed (id int); \
         INSERT INTO s.base VALUES (1, '7'); INSERT INTO s.more VALUES (1); \
         INSERT INTO s.t VALUES (1, '8'), (2, '9'); INSERT INTO s.allowed VALUES (1); \
         CREATE FUNCTION s.shout(x text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN x; END'; \
         CREATE FUNCTION f.is_good(x int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN true; END'; \
         REVOKE EXECUTE ON FUNCTION s.shout(text), f.is_good(int) FROM PUBLIC; \
         CREATE VIEW s.inner AS SELECT id FROM s.more; \
         CREATE VIEW s.seen AS SELECT b.id, s.shout(b.v) AS v FROM s.base b JOIN s.inner i ON i.id = b.id; \
         ALTER VIEW s.inner OWNER TO v_owner; ALTER VIEW s.seen OWNER TO v_owner; \
         GRANT SELECT ON s.seen, s.t TO v_reader",
    )
    .expect("tables");
    to.batch_execute(
        "CREATE SCHEMA raw; CREATE TABLE raw.seen (id int, v int); CREATE TABLE raw.t (id int, v int); \
         DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$",
    )
    .expect("tables");
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: granted\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [s.seen, \
         {{ name: s.t, where: \"f.is_good(id) AND id IN (SELECT a.id FROM s.allowed a)\" }}] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\", schema: raw, load_method: insert }} }}\n",
        source.url_of("v_reader", "r"),
        target.url_of("v_writer", "w")
    );
    folder.write("p.yaml", &pipeline);
    let document = refused(&folder);
    let error = &document["error"];
    let script = error["hint"].as_str().expect("a script");
    let checked = folder.rapidbyte(&["check", "p.yaml", "--output", "json"]);
    assert_eq!(checked.code, Some(3), "{}", checked.stdout);
    for line in [
        "GRANT SELECT ON s.base TO v_owner;",
        "GRANT SELECT ON s.more TO v_owner;",
        "GRANT EXECUTE ON FUNCTION s.shout(x text) TO v_reader;",
        "GRANT USAGE ON SCHEMA f TO v_reader;",
        "GRANT EXECUTE ON FUNCTION f.is_good(x integer) TO v_reader;",
        "GRANT SELECT ON s.allowed TO v_reader;",
        "GRANT INSERT ON raw.seen TO v_writer;",
        "GRANT INSERT ON raw.t TO v_writer;",
        "GRANT TEMPORARY ON DATABASE ",
    ] {
        assert!(script.contains(line), "{line}: {script}");
        assert!(checked.stdout.contains(line), "{line}: {}", checked.stdout);
    }
    // One run of the script by an administrator is enough.
    from.batch_execute(&part(script, "source")).expect("source");
    to.batch_execute(&part(script, "destination"))
        .expect("destination");
    let report = folder.report(&pipeline);
    assert_eq!(report["rows"], 2, "{report:#}");
    to.batch_execute("DROP OWNED BY v_writer")
        .expect("the privileges");
    from.batch_execute("DROP OWNED BY v_reader, v_owner; DROP ROLE v_reader, v_writer, v_owner")
        .expect("the roles");
}

//! `run --plan FILE`.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::{Ended, Folder};

fn pipeline(config: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-file, config: {{ path: \"in/{{stream}}.csv\", {config} }}, streams: [\"*\"] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.jsonl\" }}, write_mode: replace }}\n"
    )
}

/// A folder with two files to read, and the plan `saved.json`.
#[track_caller]
fn planned() -> Folder {
    let folder = Folder::new();
    folder.write("p.yaml", pipeline(""));
    folder.write("in/a.csv", "id,name\n1,x\n");
    folder.write("in/b.csv", "id\n1\n");
    save(&folder);
    folder
}

#[track_caller]
fn save(folder: &Folder) {
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    folder.write("saved.json", ended.stdout);
}

fn run(folder: &Folder) -> Ended {
    folder.rapidbyte(&["run", "p.yaml", "--plan", "saved.json"])
}

#[test]
fn a_run_of_a_saved_plan_moves_what_the_plan_says() {
    let folder = planned();
    let compared = ["run", "p.yaml", "--dry-run", "--plan", "saved.json"];
    assert_eq!(folder.rapidbyte(&compared).code, Some(0));
    assert!(!folder.path().join("out").exists());
    let ended = run(&folder);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.files("out"), ["a.jsonl", "b.jsonl"]);
    // More rows do not change the plan.
    folder.write("in/a.csv", "id,name\n1,x\n2,y\n");
    save(&folder);
    folder.write("in/a.csv", format!("id,name\n{}", "1,x\n".repeat(1000)));
    let ended = run(&folder);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(folder.read("out/a.jsonl").lines().count(), 1000);
}

#[test]
fn a_run_of_a_plan_that_has_changed_moves_nothing_and_says_what_differs() {
    let elsewhere = pipeline("").replace("out/", "other/");
    let changes: [(&str, &str, &[&str]); 4] = [
        (
            "in/a.csv",
            "id,name,note\n1.5,x,y\n",
            &[
                "streams.a.columns.note: new",
                "streams.a.columns.id.type: \"decimal(38, 1)\" instead of \"int64\"",
            ],
        ),
        (
            "in/a.csv",
            "name,id\nx,1\n",
            &["streams.a.columns: in another order"],
        ),
        ("in/c.csv", "id\n1\n", &["streams.c: new"]),
        (
            "p.yaml",
            &elsewhere,
            &["destination.grants: [", "streams.b.location: "],
        ),
    ];
    for (file, text, parts) in changes {
        let folder = planned();
        folder.write(file, text);
        let ended = run(&folder);
        assert_eq!(ended.code, Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains("plan_changed"), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
        assert!(!folder.path().join("out").exists() && !folder.path().join("other").exists());
    }
}

/// The text of the plan shows `***` for both values.
#[test]
fn other_values_of_variables_are_another_plan() {
    let folder = planned();
    let text = pipeline("").replace("out/", "${PLACE}/");
    folder.write("p.yaml", text);
    folder.write(".env", "PLACE=first_place\n");
    save(&folder);
    folder.write(".env", "PLACE=second_place\n");
    let compared = folder.rapidbyte(&["run", "p.yaml", "--dry-run", "--plan", "saved.json"]);
    assert_eq!(compared.code, Some(4), "{}", compared.stderr);
    let ended = run(&folder);
    let part = "destination.settings_hash: ";
    assert!(ended.stderr.contains(part), "{}", ended.stderr);
    assert!(!ended.stderr.contains("second_place"), "{}", ended.stderr);
}

/// Neither the condition nor the steps of a transform are in the plan as they are.
#[test]
fn other_rows_are_another_plan() {
    let text = |more: &str, dialect: &str| {
        let source = format!("config: {{ path: \"in/{{stream}}.csv\"{dialect} }}");
        format!(
            "version: 1\npipeline: t\nsource: {{ use: source-file, {source}, streams: [{{ name: a{more} }}] }}\n\
             destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.jsonl\" }}, write_mode: replace }}\n"
        )
    };
    let steps = |steps: &str| format!(", transforms: [{steps}]");
    let hashed = |salt: &str| steps(&format!("{{ hash: {{ columns: [name], salt: {salt} }} }}"));
    let folder = planned();
    for (before, after, part) in [
        (
            text(&steps("filter: id > 0"), ""),
            text(&steps("filter: id > 1"), ""),
            Some("streams.a.request_hash: "),
        ),
        (
            text("", ""),
            text("", ", null_text: x"),
            Some("source.settings_hash: "),
        ),
        (
            text(&hashed("0123456789abcdef"), ""),
            text(&hashed("fedcba9876543210"), ""),
            None,
        ),
    ] {
        folder.write("p.yaml", before);
        save(&folder);
        folder.write("p.yaml", after);
        let ended = run(&folder);
        match part {
            Some(part) => assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr),
            None => assert_eq!(ended.code, Some(0), "{}", ended.stderr),
        }
    }
}

#[test]
fn a_file_that_is_not_a_plan_is_refused_before_anything_is_opened() {
    let folder = planned();
    let report = "{\"status\": \"ok\", \"streams\": []}";
    let failed = folder
        .read("saved.json")
        .replacen("\"ok\"", "\"failed\"", 1);
    for text in ["", "version: 1\n", report, &failed] {
        folder.write("saved.json", text);
        let ended = run(&folder);
        assert_eq!(ended.code, Some(2), "{text}: {}", ended.stderr);
        assert!(ended.stderr.contains("plan_unreadable"), "{}", ended.stderr);
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_column_of_the_target_is_part_of_the_plan() {
    let database = shared().database();
    let folder = Folder::new();
    folder.write("in.csv", "id,name\n1,x\n");
    let url = database.url();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-file, config: {{ path: in.csv }}, streams: [in] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n"
        ),
    );
    save(&folder);
    let made = "create table \"in\" (id bigint, name text)";
    database.client().batch_execute(made).expect("a table");
    let ended = run(&folder);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("streams.in.statements: "),
        "{}",
        ended.stderr
    );
    save(&folder);
    let ended = folder.rapidbyte(&["run", "p.yaml", "--plan", "saved.json", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    assert_eq!(report["rows"], 1);
}

/// A table and a type of a schema cannot have one name, and the run moves the first stream alone.
#[test]
fn no_type_takes_the_name_of_a_target_that_the_run_leaves_out() {
    let (source, target) = (shared().database(), shared().database());
    let sql = "CREATE SCHEMA app; CREATE TYPE app.orders AS ENUM ('a'); CREATE TABLE public.first (c app.orders); \
        CREATE TABLE public.second (id int)";
    source.client().batch_execute(sql).expect("tables");
    let folder = Folder::new();
    let pipeline = |name: &str| {
        let streams = format!(
            "[public.first, {{ name: public.second, target: {{ schema: app, name: {name} }} }}]"
        );
        crate::postgres::copy(&source, &target, &streams, "")
    };
    let types = "SELECT count(*) FROM pg_type WHERE typtype = 'e'";
    for (name, code, made) in [("orders", 4, 0), ("others", 0, 1)] {
        folder.write("p.yaml", pipeline(name));
        let ended = folder.rapidbyte(&["run", "p.yaml", "--select", "public.first"]);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        let refused = ended.stderr.contains("error[reserved_type_name]");
        assert_eq!(refused, code == 4, "{}", ended.stderr);
        let row = target.client().query_one(types, &[]).expect("a count");
        assert_eq!(row.get::<_, i64>(0), made, "{name}");
    }
}

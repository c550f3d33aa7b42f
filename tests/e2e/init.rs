//! `init`.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::Folder;

#[test]
fn the_pipeline_that_init_writes_runs() {
    let folder = Folder::new();
    let flags = [
        "--source",
        "file",
        "--destination",
        "file",
        "--name",
        "shop",
    ];
    let ended = folder.rapidbyte(&[&["init", "--dir", "new/place"], &flags[..]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for part in ["new/place/shop.yaml", "rapidbyte plan", "new/place/data"] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in {}",
            ended.stdout
        );
    }
    assert_eq!(folder.files("new/place"), [".gitignore", "shop.yaml"]);
    assert_eq!(
        folder.read("new/place/.gitignore"),
        ".env\n.rapidbyte/\nout/\n"
    );
    folder.write("new/place/data/orders.csv", "id,total\n1,2.50\n");
    for verb in ["check", "plan", "run"] {
        let ended = folder.rapidbyte(&[verb, "new/place/shop.yaml"]);
        assert_eq!(
            ended.code,
            Some(0),
            "{verb}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
    assert_eq!(folder.files("new/place/out"), ["orders.jsonl"]);
}

#[test]
fn a_pipeline_between_databases_needs_its_variables_only() {
    let (source, target) = (shared().database(), shared().database());
    source
        .client()
        .batch_execute("CREATE TABLE t AS SELECT 1 AS n")
        .expect("a table");
    let folder = Folder::new();
    let ended = folder.rapidbyte(&["init", "--source", "postgres", "--destination", "postgres"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let example = folder.read(".env.example");
    assert!(
        example.contains("SOURCE_URL=") && example.contains("TARGET_URL="),
        "{example}"
    );
    let ended = folder.rapidbyte(&["check", "pipeline.yaml"]);
    assert!(ended.stderr.contains("unset_variable"), "{}", ended.stderr);
    folder.write(
        ".env",
        format!("SOURCE_URL={}\nTARGET_URL={}\n", source.url(), target.url()),
    );
    for verb in ["check", "plan"] {
        let ended = folder.rapidbyte(&[verb, "pipeline.yaml"]);
        assert_eq!(
            ended.code,
            Some(0),
            "{verb}: {}{}",
            ended.stdout,
            ended.stderr
        );
    }
}

#[test]
fn generated_rows_are_planned_too() {
    let folder = Folder::new();
    let flags = [
        "--source",
        "generate",
        "--destination",
        "file",
        "--output",
        "json",
    ];
    let ended = folder.rapidbyte(&[&["init"], &flags[..]].concat());
    let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
    assert_eq!(document["pipeline"], "pipeline.yaml");
    assert_eq!(folder.rapidbyte(&["plan", "pipeline.yaml"]).code, Some(0));
}

#[test]
fn nothing_is_overwritten_unless_it_is_forced() {
    let folder = Folder::new();
    folder
        .write("shop.yaml", "mine\n")
        .write(".gitignore", "target\n.env")
        .write(".env.example", "SOURCE_URL=mine\n");
    let flags = [
        "init",
        "--source",
        "postgres",
        "--destination",
        "file",
        "--name",
        "shop",
    ];
    let ended = folder.rapidbyte(&flags);
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(
        ended.stderr.contains("file_exists") && ended.stderr.contains("--force"),
        "{}",
        ended.stderr
    );
    assert_eq!(folder.read("shop.yaml"), "mine\n");
    assert_eq!(folder.read(".gitignore"), "target\n.env");
    let ended = folder.rapidbyte(&[&flags[..], &["--force"]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(folder.read("shop.yaml").contains("pipeline: shop"));
    assert_eq!(
        folder.read(".gitignore"),
        "target\n.env\n.rapidbyte/\nout/\n"
    );
    assert_eq!(folder.read(".env.example"), "SOURCE_URL=mine\n");
}

#[test]
fn missing_flags_are_reported_without_a_terminal() {
    let folder = Folder::new();
    for (flags, part) in [
        (
            &["init"][..],
            "postgres, file, http, mongodb, ingest, generate",
        ),
        (&["init", "--source", "file"], "--destination"),
        (&["init", "--source", "sap", "--destination", "file"], "sap"),
        (
            &[
                "init",
                "--source",
                "file",
                "--destination",
                "file",
                "--name",
                "a b",
            ],
            "letters",
        ),
        (
            &[
                "init",
                "--source",
                "file",
                "--destination",
                "file",
                "--name",
                "../a",
            ],
            "letters",
        ),
    ] {
        let ended = folder.rapidbyte(flags);
        assert_eq!(ended.code, Some(2), "{}", ended.stdout);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    assert_eq!(folder.files("."), [""; 0]);
}

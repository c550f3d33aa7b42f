//! Connectors from elsewhere: the template, one in Python, and what the program says of them.

use rapidbyte_runtime::CONTRACT;
use serde_json::Value;

use crate::support::{Folder, generate, testkit};

#[test]
fn bundled_connectors_are_listed_and_inspected() {
    let folder = Folder::new();
    let list = folder.rapidbyte(&["connector", "list", "--output", "json"]);
    let list: Value = serde_json::from_str(&list.stdout).expect("one document");
    let names: Vec<_> = list["connectors"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    for name in ["dest-file", "source-file", "source-generate"] {
        assert!(names.iter().any(|c| c["name"] == name), "{list:#}");
        let inspected = folder.rapidbyte(&["connector", "inspect", name]);
        assert_eq!(inspected.code, Some(0), "{}", inspected.stderr);
        assert!(inspected.stdout.contains("config:"), "{}", inspected.stdout);
    }
    let inspected = folder
        .rapidbyte(&["connector", "inspect", "source-http"])
        .stdout;
    for key in [
        "streams.NAME.path ",
        "streams.NAME.pagination.type ",
        "streams.NAME.incremental.param ",
        "auth.token ",
    ] {
        let line = inspected
            .lines()
            .find(|line| line.trim_start().starts_with(key));
        assert!(
            line.is_some_and(|line| line.len() > 60),
            "{key}: {inspected}"
        );
    }
    assert_eq!(
        folder.rapidbyte(&["connector", "inspect", "nothing"]).code,
        Some(2)
    );
}

#[test]
fn a_connector_in_python_runs_through_the_same_host() {
    let folder = Folder::new();
    let pipeline = format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, config: {{ batches: 3 }}, streams: [numbers] }}\n\
         destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n",
        testkit("source-python")
    );
    let report = folder.report(&pipeline);
    assert_eq!(report["rows"], 12);
    assert_eq!(folder.read("out/numbers.csv").lines().count(), 13);
    folder.refuses(
        &pipeline.replace("batches: 3", "batchs: 3"),
        "unknown_key",
        2,
        &["batches"],
    );
}

#[test]
fn a_connector_of_another_contract_is_refused_before_it_is_compiled() {
    let folder = Folder::new();
    let mut wasm = std::fs::read(testkit("dest-null")).expect("the test kit");
    let ours = format!("rapidbyte:connector/destination@{CONTRACT}");
    let other = "rapidbyte:connector/destination@0.1.0";
    let places: Vec<usize> = wasm
        .windows(ours.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == ours.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty());
    for at in places {
        wasm[at..at + other.len()].copy_from_slice(other.as_bytes());
    }
    folder.write("older.wasm", wasm);
    let pipeline = generate(1, "").replace(&testkit("dest-null"), "./older.wasm");
    folder.write("p.yaml", pipeline);
    let ended = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in [
        "other_contract",
        "contract 0.1.0",
        CONTRACT,
        "build the connector again",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    }
    assert!(!ended.stderr.contains("compiling"), "{ended:?}");
}

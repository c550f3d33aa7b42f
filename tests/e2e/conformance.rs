//! `rapidbyte connector test`: what is bundled keeps the contract, and each clause can fail.

use rapidbyte_testkit::http::{Reply, Server};
use serde_json::{Value, json};

use crate::support::{Folder, built, testkit};

mod bundled;
mod deeds;
mod outside;
mod setup;

/// Tests a connector with settings and further arguments; gives the document and the exit code.
#[track_caller]
fn test(folder: &Folder, name: &str, config: &Value, more: &[&str]) -> (Value, i32) {
    let config = config.to_string();
    let mut arguments = vec!["connector", "test", name, "--output", "json"];
    arguments.extend(["--config", &config]);
    arguments.extend(more);
    let ended = folder.rapidbyte(&arguments);
    let document = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr));
    (document, ended.code.expect("an exit code"))
}

/// The clauses with a verdict.
fn with(document: &Value, verdict: &str) -> Vec<String> {
    let clauses = document["clauses"].as_array().expect("clauses");
    let found = clauses.iter().filter(|clause| clause["verdict"] == verdict);
    found
        .map(|clause| clause["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn lines_for_people_and_one_document_for_programs() {
    let folder = Folder::new();
    let config = "{ rows: 1000, preset: narrow }";
    let arguments = ["connector", "test", "source-generate", "--config", config];
    let ended = folder.rapidbyte(&arguments);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[0].starts_with("PASS  describe        says what"),
        "{}",
        lines[0]
    );
    let last = lines[lines.len() - 1];
    assert!(last.starts_with("source-generate "), "{last}");
    assert!(last.ends_with("passed, 0 failed, 9 skipped"), "{last}");
    let (document, code) = test(
        &folder,
        "source-generate",
        &json!({ "rows": 10, "preset": "narrow" }),
        &[],
    );
    assert_eq!(
        (document["status"].as_str(), code),
        (Some("ok"), 0),
        "{document:#}"
    );
    assert_eq!(document["kind"], "source");
    assert_eq!(document["failed"], 0);
    // A clause that fails says what the test saw and what to do.
    let wrong = testkit("source-wrong");
    let config = "{ deed: checks_nothing, rows: 10 }";
    let ended = folder.rapidbyte(&["connector", "test", &wrong, "--config", config]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stdout.contains("FAIL  check"), "{}", ended.stdout);
    assert!(
        ended
            .stdout
            .contains("\n      seen:  no item\n      to do: "),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stderr.starts_with("error[not_conforming]: 1 of "),
        "{}",
        ended.stderr
    );
}

#[test]
fn without_settings_what_needs_none_is_judged_and_the_rest_says_what_to_give() {
    let folder = Folder::new();
    for (name, passed) in [
        (
            "source-file",
            vec!["describe", "config-schema", "grant-marks", "missing-key"],
        ),
        (
            "dest-file",
            vec!["describe", "config-schema", "grant-marks", "missing-key"],
        ),
    ] {
        let ended = folder.rapidbyte(&["connector", "test", name, "--output", "json"]);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
        assert_eq!(ended.code, Some(0), "{document:#}");
        let found = with(&document, "pass");
        assert!(
            passed.iter().all(|id| found.iter().any(|f| f == id)),
            "{found:?}"
        );
        let skipped = document["clauses"].as_array().expect("clauses");
        let check = skipped
            .iter()
            .find(|clause| clause["id"] == "check")
            .expect("check");
        assert!(
            check["reason"].as_str().expect("why").contains("--config"),
            "{check}"
        );
    }
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    let folder = Folder::new();
    folder.write("bad.yaml", "[1]");
    let refused = |arguments: &[&str], code: &str| {
        let all = [&["connector", "test"], arguments, &["--output", "json"]].concat();
        let ended = folder.rapidbyte(&all);
        let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
        assert_eq!(
            document["error"]["code"], code,
            "{arguments:?}: {document:#}"
        );
        assert_eq!(ended.code, Some(2), "{arguments:?}");
    };
    refused(&["nothing"], "unknown_connector");
    refused(&["source-file", "--config", "{ a: 1"], "yaml_syntax");
    refused(
        &["source-file", "--config-file", "bad.yaml"],
        "invalid_type",
    );
    refused(
        &["source-file", "--config-file", "none.yaml"],
        "file_not_found",
    );
    refused(&["dest-file", "--stream", "a"], "invalid_argument");
    let peer = ["--peer", "source-generate", "--peer-config", "{ rows: 1 }"];
    for more in [
        &["--stream", "a"][..],
        &[&peer[..], &["--peer-stream", "a"]].concat(),
        &[&peer[..], &["--stream", "a", "--stream", "b"]].concat(),
    ] {
        let arguments = [&["transform-columns"], more].concat();
        refused(&arguments, "invalid_argument");
    }
    refused(
        &[
            "source-file",
            "--peer",
            "source-file",
            "--peer-config",
            "{}",
        ],
        "invalid_argument",
    );
    refused(
        &["dest-file", "--peer", "dest-file", "--peer-config", "{}"],
        "invalid_world",
    );
}

#[test]
fn secrets_of_the_settings_are_not_shown() {
    let folder = Folder::new();
    let server = Server::start(|_| Reply::status(401, "no"));
    let config = json!({
        "base_url": server.url("/v1"), "auth": { "type": "bearer", "token": "${TOKEN}" },
        "streams": { "items": { "path": "items" } }, "max_retries": 0,
    });
    let mut command = folder.command(&["connector", "test", "source-http", "--config"]);
    command
        .arg(config.to_string())
        .env("TOKEN", "very-secret-indeed");
    let ended: crate::support::Ended = command.output().expect("the program starts").into();
    assert_eq!(ended.code, Some(2), "{}", ended.stdout);
    assert!(ended.stdout.contains("SKIP  check"), "{}", ended.stdout);
    crate::support::assert_no_secret(
        "standard output",
        ended.stdout.as_bytes(),
        "very-secret-indeed",
    );
    crate::support::assert_no_secret(
        "standard error",
        ended.stderr.as_bytes(),
        "very-secret-indeed",
    );
}

/// A copy of a component in which `from` is `to`, which is as long.
fn changed(folder: &Folder, name: &str, from: &str, to: &str) -> String {
    assert_eq!(from.len(), to.len());
    let path = built("RAPIDBYTE_TESTKIT").join(format!("{name}.wasm"));
    let mut bytes = std::fs::read(path).expect("a component");
    let places: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, window)| *window == from.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "{from:?} is not in {name}");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    folder.write("changed.wasm", bytes);
    "./changed.wasm".into()
}

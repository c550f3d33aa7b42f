//! `doctor`.

use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::{Ended, Folder, built, copy};
use crate::wat::Guest;

fn doctor(folder: &Folder, arguments: &[&str]) -> Ended {
    folder.rapidbyte(&[&["doctor"], arguments].concat())
}

/// `doctor` as JSON with its cache and state in a folder of the test. Small connectors have the names of
/// the bundled ones, because compiling the bundled ones takes longer than all checks.
fn alone(folder: &Folder) -> Ended {
    let mut command = folder.command(&["doctor", "--output", "json"]);
    command
        .env("RAPIDBYTE_CONNECTORS", folder.path().join("small"))
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .env("XDG_STATE_HOME", folder.path().join("state"));
    command.output().expect("the program starts").into()
}

#[track_caller]
fn findings(ended: &Ended) -> Vec<Value> {
    let document: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", ended.stdout, ended.stderr));
    document["findings"].as_array().expect("findings").clone()
}

/// The state of the first finding whose area and name contain these.
#[track_caller]
fn state(findings: &[Value], area: &str, name: &str) -> String {
    let found = findings.iter().find(|finding| {
        finding["area"] == area && finding["name"].as_str().is_some_and(|n| n.contains(name))
    });
    let found = found.unwrap_or_else(|| panic!("no {area} {name} in {findings:#?}"));
    found["state"].as_str().expect("a state").to_owned()
}

#[test]
fn a_good_installation_is_well() {
    let ended = doctor(&Folder::new(), &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in ["rapidbyte", "source-file", "blake3", "compiled", "free"] {
        assert!(
            ended.stdout.contains(part),
            "{part:?} is not in {}",
            ended.stdout
        );
    }
}

/// The worlds and names of the connectors that the program carries, but its transform.
const SMALL: [(&str, &str); 6] = [
    ("source", "source-file"),
    ("source", "source-generate"),
    ("source", "source-http"),
    ("source", "source-postgres"),
    ("destination", "dest-file"),
    ("destination", "dest-postgres"),
];

#[test]
fn damaged_entries_and_a_missing_cache_are_warnings() {
    let folder = Folder::new();
    for (n, (world, name)) in SMALL.into_iter().enumerate() {
        // Each is another file, and has an entry of its own.
        let patches = vec![(32, vec![n as u8])];
        let guest = Guest {
            patches,
            ..Guest::good(world)
        };
        folder.write(&format!("small/{name}.wasm"), guest.build());
    }
    let pass = std::fs::read(built("RAPIDBYTE_TESTKIT").join("transform-pass.wasm"));
    folder.write("small/transform-columns.wasm", pass.expect("a component"));
    let ended = alone(&folder);
    let found = findings(&ended);
    assert_eq!(state(&found, "cache", "entries"), "ok");
    assert_eq!(state(&found, "connectors", "dest-postgres"), "ok");
    assert!(ended.stdout.contains("compiled now"), "{}", ended.stdout);
    let connector = found.iter().find(|f| f["name"] == "source-file");
    let sha = connector
        .and_then(|f| f["blake3"].as_str())
        .expect("a hash");
    assert_eq!(sha.len(), 64);
    let name = folder.files("cache/rapidbyte/code").remove(0);
    folder.write(&format!("cache/rapidbyte/code/{name}"), "cut");
    let ended = alone(&folder);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    assert_eq!(state(&findings(&ended), "cache", "damaged"), "warning");
    assert!(ended.stdout.contains(&name), "{}", ended.stdout);
    assert!(ended.stdout.contains("compiled before"), "{}", ended.stdout);
    let mut command = folder.command(&["doctor"]);
    command
        .env("RAPIDBYTE_CONNECTORS", folder.path().join("small"))
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_STATE_HOME");
    let ended: Ended = command.output().expect("the program starts").into();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("warning"), "{}", ended.stdout);
}

#[test]
fn a_connector_that_cannot_be_loaded_fails() {
    let folder = Folder::new();
    // A folder wins over what the program carries inside.
    folder.write("broken/source-file.wasm", "no component");
    let mut command = folder.command(&["doctor", "--output", "json"]);
    command.env("RAPIDBYTE_CONNECTORS", folder.path().join("broken"));
    let ended: Ended = command.output().expect("the program starts").into();
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let document: Value = serde_json::from_str(&ended.stdout).expect("one document");
    assert_eq!(document["error"]["code"], "unhealthy");
    assert!(
        document["error"].to_string().contains("source-file"),
        "{document:#}"
    );
    let found = findings(&ended);
    assert_eq!(state(&found, "connectors", "source-file"), "failed");
    assert_eq!(state(&found, "connectors", "source-postgres"), "ok");
}

#[test]
fn a_pipeline_is_checked_too() {
    let folder = Folder::new();
    folder
        .write("in.csv", "a\n1\n")
        .write(".env", "A=1\n")
        .write("p.yaml", copy("csv", "csv"));
    folder.set_mode(".env", 0o644);
    let ended = doctor(&folder, &["p.yaml", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let found = findings(&ended);
    assert_eq!(state(&found, "pipeline", ".env"), "warning");
    assert_eq!(state(&found, "pipeline", "plan"), "ok");
    assert!(folder.files("out").is_empty());
    folder.write(
        "p.yaml",
        copy("csv", "csv").replace("in.csv", "nowhere.csv"),
    );
    let ended = doctor(&folder, &["p.yaml"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("nowhere.csv"), "{}", ended.stdout);
    folder.write("p.yaml", "version: 2\n");
    assert_eq!(doctor(&folder, &["p.yaml"]).code, Some(2));
}

#[test]
fn a_server_that_cannot_be_reached_is_exit_code_3() {
    let folder = Folder::new();
    let database = shared().database();
    let pipeline = |url: &str| {
        format!(
            "version: 1\npipeline: t\n\
             source: {{ use: source-postgres, config: {{ url: \"{url}\" }}, streams: [\"public.*\"] }}\n\
             destination: {{ use: dest-file, config: {{ path: \"out/{{stream}}.csv\" }}, write_mode: replace }}\n"
        )
    };
    // Nobody listens there once the listener is dropped.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    folder.write(
        "p.yaml",
        pipeline(&format!("postgres://u:p@127.0.0.1:{port}/d")),
    );
    let ended = doctor(&folder, &["p.yaml"]);
    assert_eq!(ended.code, Some(3), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("failed"), "{}", ended.stdout);
    database
        .client()
        .batch_execute("CREATE TABLE t (a int)")
        .expect("a table");
    folder.write("p.yaml", pipeline(&database.url()));
    let ended = doctor(&folder, &["p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for line in ended.stdout.lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

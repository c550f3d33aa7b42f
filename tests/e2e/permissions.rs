//! `permissions:` and `rapidbyte.lock`: what an operator adds, takes away and pins.

use std::net::TcpListener;

use serde_json::Value;

use crate::support::{Ended, Folder, built, generate, testkit};

/// A source that does one thing, with lines of its own beside its `config`.
fn stage(used: &str, how: &str, permissions: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source:\n  use: {used}\n  streams: [rows]\n  config: {{ how: {how} }}\n  {permissions}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("dest-null")
    )
}

fn misbehave(how: &str, permissions: &str) -> String {
    stage(&testkit("source-misbehave"), how, permissions)
}

#[test]
fn permissions_add_to_what_the_configuration_names_and_take_it_away() {
    let folder = Folder::new();
    folder.write("secret/a.txt", "a\n").write("in.csv", "a\n");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    // The test kit's connector says `was_allowed` where it expected to be refused.
    let file = "forbidden_file, ungranted_path: secret/a.txt";
    folder.refuses(&misbehave(file, ""), "file_not_granted", 2, &["secret"]);
    let read = "permissions: { files: { read: [\"secret/*.txt\"] } }";
    folder.refuses(&misbehave(file, read), "was_allowed", 1, &[]);
    // A grant to write a file is not a grant to read it.
    let write = "permissions: { files: { write: [\"secret/*.txt\"] } }";
    folder.refuses(&misbehave(file, write), "file_not_granted", 2, &[]);
    let named = "file, path: in.csv";
    folder.report(&misbehave(named, ""));
    let none = "permissions: { files: none }";
    folder.refuses(&misbehave(named, none), "file_not_granted", 2, &["in.csv"]);

    let connect = format!("forbidden_connect, ungranted_host: 127.0.0.1, ungranted_port: {port}");
    folder.refuses(&misbehave(&connect, ""), "network_not_granted", 2, &[]);
    for entry in ["127.0.0.1", "127.0.0.0/8", "0.0.0.0/0"] {
        let network = format!("permissions: {{ network: [\"{entry}:{port}\"] }}");
        folder.refuses(&misbehave(&connect, &network), "was_allowed", 1, &[]);
    }
    let other = format!("permissions: {{ network: [\"10.0.0.0/8:{port}\", \"*.0.0.1:{port}\"] }}");
    folder.refuses(&misbehave(&connect, &other), "network_not_granted", 2, &[]);
    let named = format!("connect, host: localhost, port: {port}");
    folder.report(&misbehave(&named, ""));
    let none = "permissions: { network: none }";
    folder.refuses(&misbehave(&named, none), "network_not_granted", 2, &[]);
}

#[test]
fn a_connector_sees_the_variables_that_are_named_and_hides_their_values() {
    let folder = Folder::new();
    folder.write(".env", "SHOP_TOKEN=abcdefgh\nOTHER=ijklmnop\n");
    folder.report(&misbehave("env", ""));
    let env = "permissions: { env: [SHOP_TOKEN] }";
    folder.refuses(&misbehave("env", env), "was_allowed", 1, &["SHOP_TOKEN"]);
    let missing = "permissions: { env: [MISSING] }";
    folder.refuses(
        &misbehave("env", missing),
        "unset_variable",
        2,
        &["MISSING"],
    );
}

#[test]
fn plan_and_inspect_show_what_is_given_and_asked_for() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n");
    let permissions = "permissions: { network: [\"*.example.com:443\"], files: { read: [x] } }";
    folder.write("p.yaml", misbehave("nothing, path: in.csv", permissions));
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--output", "json"]);
    let plan: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    assert_eq!(
        plan["source"]["grants"],
        serde_json::json!(["connect *.example.com:443", "read in.csv", "read x"]),
        "{plan:#}"
    );
    let text = folder.rapidbyte(&["plan", "p.yaml"]).stdout;
    assert!(text.contains("connect *.example.com:443"), "{text}");
    let used = testkit("source-misbehave");
    let ended = folder.rapidbyte(&["connector", "inspect", &used, "--output", "json"]);
    let shown: Value = serde_json::from_str(&ended.stdout).expect("one JSON document");
    let wishes = shown["asks_for"].as_array().expect("a list");
    for wish in [
        "config.host host",
        "config.path read",
        "import connection",
        "import files",
    ] {
        assert!(wishes.contains(&wish.into()), "{wish}: {shown:#}");
    }
}

/// A pipeline whose source is `a.wasm` in the folder.
fn locked(folder: &Folder) -> String {
    let wasm = std::fs::read(testkit("source-misbehave")).expect("a component");
    folder.write("a.wasm", wasm);
    stage("./a.wasm", "nothing", "")
}

fn lock(folder: &Folder, flags: &[&str]) -> (Value, Ended) {
    let ended = folder.rapidbyte(&[&["lock", "p.yaml", "--output", "json"], flags].concat());
    let document = serde_json::from_str(&ended.stdout).expect("one JSON document");
    (document, ended)
}

#[test]
fn a_changed_connector_is_refused_until_the_lock_is_updated() {
    let folder = Folder::new();
    let pipeline = locked(&folder);
    folder.report(&pipeline);
    let (made, ended) = lock(&folder, &[]);
    assert_eq!(ended.code, Some(0), "{made:#}");
    let changes = |document: &Value| -> Vec<String> {
        let found = document["connectors"].as_array().expect("a list");
        let change = |c: &Value| c["change"].as_str().expect("a word").to_owned();
        found.iter().map(change).collect()
    };
    assert_eq!(changes(&made), ["locked", "locked"]);
    folder.report(&pipeline);
    assert_eq!(changes(&lock(&folder, &[]).0), ["unchanged", "unchanged"]);

    // A custom section without a meaning: it is another file all the same.
    let mut wasm = std::fs::read(folder.path().join("a.wasm")).expect("a component");
    wasm.extend([0, 2, 1, b'x']);
    folder.write("a.wasm", wasm);
    folder.refuses(
        &pipeline,
        "connector_changed",
        2,
        &["differs from the file", "source.use", "--update"],
    );
    for verb in ["check", "plan", "discover"] {
        let ended = folder.rapidbyte(&[verb, "p.yaml"]);
        assert_eq!(ended.code, Some(2), "{verb}");
        assert!(
            ended.stderr.contains("connector_changed"),
            "{}",
            ended.stderr
        );
    }
    let (refused, ended) = lock(&folder, &[]);
    assert_eq!(ended.code, Some(2), "{refused:#}");
    assert_eq!(refused["error"]["code"], "connector_changed");
    assert_eq!(
        changes(&lock(&folder, &["--update"]).0),
        ["updated", "unchanged"]
    );
    folder.report(&pipeline);
}

#[test]
fn a_connector_that_asks_for_more_is_refused() {
    let folder = Folder::new();
    let pipeline = locked(&folder);
    folder.write("p.yaml", &pipeline);
    lock(&folder, &[]);
    let text = folder.read("rapidbyte.lock");
    // As if it had been locked when it wanted less.
    let mut less: Value = serde_json::from_str(&text).expect("JSON");
    let wishes = less["connectors"]["a.wasm"]["asks_for"]
        .as_array_mut()
        .expect("a list");
    wishes.retain(|wish| wish != "config.host host");
    folder.write("rapidbyte.lock", less.to_string());
    folder.refuses(
        &pipeline,
        "connector_changed",
        2,
        &["asks for further grants", "config.host host"],
    );
    folder.write("rapidbyte.lock", text);
    folder.report(&pipeline);
    // One that wants other things in the same place.
    let file = built("RAPIDBYTE_CONNECTORS").join("source-file.wasm");
    folder.write("a.wasm", std::fs::read(file).expect("a component"));
    let (refused, _) = lock(&folder, &[]);
    let message = refused["error"]["message"].as_str().expect("a text");
    assert!(message.contains("config.path beside"), "{message}");
}

#[test]
fn a_bundled_name_that_leads_to_another_file_is_refused() {
    let folder = Folder::new();
    folder.write("connectors/x", "");
    let dir = folder.path().join("connectors");
    for name in ["source-generate", "dest-file"] {
        let name = format!("{name}.wasm");
        let file = built("RAPIDBYTE_CONNECTORS").join(&name);
        std::fs::copy(file, dir.join(name)).expect("a copy");
    }
    let pipeline = generate(10, "").replace(&testkit("dest-null"), "dest-file");
    let pipeline = pipeline.replace("dest-file,", "dest-file, config: { path: o.csv },");
    folder.write("p.yaml", pipeline);
    let rapidbyte = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        command.env("RAPIDBYTE_CONNECTORS", &dir);
        Ended::from(command.output().expect("the program starts"))
    };
    assert_eq!(rapidbyte(&["lock", "p.yaml"]).code, Some(0));
    assert_eq!(rapidbyte(&["run", "p.yaml"]).code, Some(0));
    let path = dir.join("source-generate.wasm");
    let mut wasm = std::fs::read(&path).expect("a component");
    wasm.extend([0, 2, 1, b'x']);
    std::fs::write(path, wasm).expect("replaced");
    let ended = rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("connector_changed"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_lock_holds_for_all_that_is_not_inside_the_program() {
    let folder = Folder::new();
    let pipeline = locked(&folder);
    folder.write("rapidbyte.lock", "{\"version\": 1, \"connectors\": {}}");
    folder.refuses(
        &pipeline,
        "connector_not_locked",
        2,
        &["a.wasm", "rapidbyte lock"],
    );
    // The tests load bundled connectors from a folder, so a bundled name is a file like any other.
    let bundled = generate(10, "").replace(&testkit("dest-null"), "dest-file");
    let bundled = bundled.replace("dest-file,", "dest-file, config: { path: o.csv },");
    folder.refuses(
        &bundled,
        "connector_not_locked",
        2,
        &["source-generate", "rapidbyte lock"],
    );
    let (made, _) = lock(&folder, &[]);
    let names = made["connectors"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|one| one["connector"].as_str()).collect();
    assert_eq!(names, [Some("source-generate"), Some("dest-file")]);
    folder.report(&bundled);
    folder.write("rapidbyte.lock", "<<<<<<< HEAD\n");
    folder.refuses(&pipeline, "lock_unreadable", 2, &["rapidbyte.lock"]);
}

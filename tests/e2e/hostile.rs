//! A connector that does one wrong thing: the host names it, and the next run is good.

use std::os::unix::fs::symlink;

use crate::support::{Folder, copy, generate, testkit};

fn misbehave(how: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: {}, streams: [rows], config: {{ how: {how}, at_batch: 2, path: in.csv, \
         ungranted_path: /etc/passwd, ungranted_host: 127.0.0.1, ungranted_port: 1 }} }}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("source-misbehave"),
        testkit("dest-null")
    )
}

#[test]
fn each_wrong_thing_has_its_code() {
    let folder = Folder::new();
    for (how, code, exit, part) in [
        ("panic", "panicked", 1, "a panic on purpose"),
        ("trap", "trapped", 1, "unreachable"),
        ("stack", "trapped", 1, "recursion"),
        ("garbage", "contract_broken", 1, "tell its author"),
        ("truncated", "contract_broken", 1, "body of"),
        ("lie_rows", "contract_broken", 1, "1000 rows in the header"),
        ("other_schema", "contract_broken", 1, "field nodes"),
        ("garbage_schema", "contract_broken", 1, "schema message"),
        ("bad_offsets", "malformed_batch", 1, "offset"),
        ("huge_batch", "memory_limit", 1, "resources.memory"),
        ("error", "misbehave", 4, "an error on purpose"),
        ("forbidden_file", "file_not_granted", 2, "/etc/passwd"),
        ("forbidden_connect", "network_not_granted", 2, "127.0.0.1:1"),
    ] {
        folder.refuses(&misbehave(how), code, exit, &[part]);
        assert_eq!(folder.report(&generate(10, ""))["rows"], 10, "after {how}");
    }
}

#[test]
fn a_granted_name_does_not_lead_to_this_machine() {
    let folder = Folder::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("an address").port();
    for host in ["127.1", "2130706433", "0x7f.1", "0177.0.0.1"] {
        let pipeline = misbehave(&format!("connect, host: \"{host}\", port: {port}"));
        folder.refuses(&pipeline, "address_not_granted", 2, &["loopback", host]);
    }
    server.set_nonblocking(true).expect("set");
    assert!(server.accept().is_err(), "somebody connected");
    for host in ["127.0.0.1", "localhost"] {
        folder.report(&misbehave(&format!("connect, host: {host}, port: {port}")));
        server.accept().expect("a connection");
    }
}

#[test]
fn what_a_connector_sees_of_the_machine_is_nothing() {
    let folder = Folder::new();
    assert_eq!(folder.report(&misbehave("env"))["rows"], 2_000);
}

#[test]
fn floods_of_messages_are_cut() {
    let folder = Folder::new();
    folder.report(&misbehave("stderr_flood"));
    folder.write("p.yaml", misbehave("log_flood"));
    let ended = folder.rapidbyte(&["run", "-v", "p.yaml"]);
    assert_eq!(ended.code, Some(0));
    let lines = ended.stderr.lines().count();
    assert!((10_000..10_100).contains(&lines), "{lines}");
    assert!(ended.stderr.contains("the rest is dropped"));
}

#[test]
fn a_huge_message_is_cut() {
    let folder = Folder::new();
    folder.write("p.yaml", misbehave("log_huge"));
    let ended = folder.rapidbyte(&["run", "-v", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let said = ended.stderr.matches('x').count();
    assert!((8 << 10..9 << 10).contains(&said), "{said}");
}

#[test]
fn each_kind_of_error_has_its_exit_code_from_each_call() {
    let folder = Folder::new();
    for (kind, exit, class) in [
        ("config", 2, "config"),
        ("auth", 3, "environment"),
        ("connection", 3, "environment"),
        ("transient", 1, "run"),
        ("rate_limited", 1, "run"),
        ("data", 4, "contract"),
        ("schema", 4, "contract"),
        ("internal", 1, "run"),
    ] {
        for (how, export) in [
            ("open_error", "open"),
            ("discover_error", "session.discover"),
            ("read_error", "session.read"),
            ("error", "reader.next"),
        ] {
            let pipeline = misbehave(&format!("{how}, kind: {kind}"));
            let (error, code) = folder.error(&pipeline);
            assert_eq!(code, exit, "{kind} {how}: {error:#}");
            for (key, value) in [
                ("class", class),
                ("export", export),
                ("code", "misbehave"),
                ("hint", "expect it"),
                ("stream", "rows"),
                ("column", "n"),
                ("location", "here:1"),
            ] {
                assert_eq!(error[key], value, "{kind} {how}: {error:#}");
            }
        }
    }
}

#[test]
fn a_link_does_not_lead_out_of_a_granted_folder() {
    let folder = Folder::new();
    folder
        .write("outside.csv", "a\nsecret\n")
        .write("d/in.csv", "a\n1\n");
    symlink("../outside.csv", folder.path().join("d/link.csv")).expect("a link");
    let pipeline = copy("csv", "csv").replace("in.csv", "d/*.csv\n    stream: in");
    let (error, code) = folder.error(&pipeline);
    assert_ne!(code, 0, "{error:#}");
    let exact = copy("csv", "csv").replace("in.csv", "d/link.csv\n    stream: in");
    let (error, code) = folder.error(&exact);
    assert_ne!(code, 0, "{error:#}");
    assert!(!error.to_string().contains("secret"), "{error:#}");
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn a_damaged_cache_is_compiled_again() {
    let folder = Folder::new();
    folder.write("p.yaml", generate(10, ""));
    let run = || {
        let mut command = folder.command(&["run", "p.yaml", "--output", "json"]);
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.env("XDG_STATE_HOME", folder.path().join("state"));
        let output = command.output().expect("the program starts");
        assert!(output.status.success());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
        report["connectors"][0]["from_cache"]
            .as_bool()
            .expect("a flag")
    };
    assert!(!run() && run());
    for name in folder.files("cache/rapidbyte/code") {
        let path = folder.path().join("cache/rapidbyte/code").join(name);
        let mut code = std::fs::read(&path).expect("an entry");
        let middle = code.len() / 2;
        code[middle] ^= 1;
        std::fs::write(&path, code).expect("an entry");
    }
    assert!(!run() && run());
}

//! A connector that does one wrong thing: the host names it, and the next run is good.

use std::os::unix::fs::symlink;

use crate::support::{Folder, copy, generate, testkit};
use crate::wat::{Guest, MORE_OF_WASI, list};

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
        ("garbage", "contract_broken", 1, "the connector's author"),
        ("truncated", "contract_broken", 1, "body of"),
        ("lie_rows", "contract_broken", 1, "1000 rows in the header"),
        ("other_schema", "contract_broken", 1, "field nodes"),
        ("garbage_schema", "contract_broken", 1, "schema message"),
        ("bad_offsets", "contract_broken", 1, "offset"),
        (
            "wide_decimal",
            "value_does_not_fit",
            4,
            "17000000.00 does not fit decimal(5, 2)",
        ),
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
fn a_connector_sees_nothing_of_the_machine() {
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
fn limits_of_messages_and_of_what_the_host_holds_can_be_set() {
    let folder = Folder::new();
    folder.write("in.csv", "a\n");
    let limited = |how: &str, limits: &str| {
        let stage = format!("permissions: {{ limits: {{ {limits} }} }}, streams: [rows]");
        misbehave(how).replace("streams: [rows]", &stage)
    };
    folder.write("p.yaml", limited("log_flood", "log_bytes: 1kb"));
    let ended = folder.rapidbyte(&["run", "-v", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let lines = ended.stderr.matches("flood ").count();
    assert!((50..200).contains(&lines), "{lines}");
    assert!(ended.stderr.contains("the rest is dropped"));

    let handles = limited("handles", "open_files: 1000000, host_memory: 100kb");
    folder.refuses(
        &handles,
        "host_memory_limit",
        1,
        &["102400 bytes", "host_memory"],
    );
    let handles = limited("handles", "open_files: 1000000, handles: 100");
    folder.refuses(&handles, "too_many_handles", 1, &["100 handles", "limits"]);
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
    // One link does not fail the pattern. A warning names it.
    folder.write("p.yaml", pipeline);
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("d/link.csv"), "{}", ended.stderr);
    let written = folder.files("out");
    let written: String = written
        .iter()
        .map(|file| folder.read(&format!("out/{file}")))
        .collect();
    assert!(
        written.contains('1') && !written.contains("secret"),
        "{written}"
    );
    std::fs::remove_dir_all(folder.path().join("out")).expect("removed");
    let exact = copy("csv", "csv").replace("in.csv", "d/link.csv\n    stream: in");
    let (error, code) = folder.error(&exact);
    assert_ne!(code, 0, "{error:#}");
    assert!(!error.to_string().contains("secret"), "{error:#}");
    assert_eq!(folder.files("out"), [""; 0]);
}

#[test]
fn nothing_that_a_connector_says_steers_the_terminal() {
    let folder = Folder::new();
    let steers = |text: &str| {
        let bad = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
        text.chars().any(bad)
    };
    for (how, part) in [("log_control", "two"), ("error_control", "three")] {
        folder.write("p.yaml", misbehave(how));
        for arguments in [
            ["run", "-v", "p.yaml", "--log-format", "text"].as_slice(),
            &["run", "-v", "p.yaml", "--log-format", "json"],
            &["run", "-v", "p.yaml", "--output", "json"],
        ] {
            let ended = folder.rapidbyte(arguments);
            let said = format!("{}{}", ended.stdout, ended.stderr);
            assert!(said.contains(part), "{how} {arguments:?}: {said}");
            assert!(!steers(&said), "{how} {arguments:?}: {said:?}");
            // A second line would look like a message of somebody else.
            assert!(!said.contains("\n\\u{1b}[2Jtwo"), "{said}");
        }
    }
}

/// A source from text with a text of its own at 16384.
fn guest(at: u32, text: &str) -> Guest {
    let bytes = text.as_bytes();
    let len = u32::try_from(bytes.len()).expect("a short text");
    Guest {
        patches: vec![(16_384, bytes.to_vec()), (at, list(16_384, len))],
        ..Guest::good("source")
    }
}

/// Reads all streams of `guest.wasm`.
fn all_of_guest() -> String {
    format!(
        "version: 1\npipeline: t\nsource: {{ use: ./guest.wasm, streams: [\"*\"] }}\n\
         destination: {{ use: {}, write_mode: replace }}\n",
        testkit("dest-null")
    )
}

#[test]
fn a_stream_cannot_be_named_so_that_it_steers_the_terminal() {
    let folder = Folder::new();
    let mut named = guest(5120, "a\u{1b}[2J\r\nb\u{202e}c");
    // Its reader says something when it is asked.
    named.at = 9;
    named.deed = "(call $log (i32.const 1) (i32.const 128) (i32.const 3))".into();
    named.imports = MORE_OF_WASI;
    folder.write("guest.wasm", named.build());
    folder.write("p.yaml", all_of_guest());
    for arguments in [
        ["run", "-v", "p.yaml"].as_slice(),
        &["run", "-v", "p.yaml", "--log-format", "json"],
        &["plan", "p.yaml"],
        &["discover", "p.yaml"],
    ] {
        let ended = folder.rapidbyte(arguments);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(said.contains("[2J"), "{arguments:?}: {said}");
        assert!(!said.contains("\nb"), "{arguments:?}: {said}");
        assert!(!said.chars().any(steers), "{arguments:?}: {said:?}");
    }
    let ended = folder.rapidbyte(&["run", "p.yaml"]);
    assert!(ended.stderr.contains("]: wat"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("\nb"), "{}", ended.stderr);
}

#[test]
fn an_endless_config_schema_is_refused_where_all_of_it_is_searched() {
    let folder = Folder::new();
    let keys: Vec<String> = (0..20)
        .map(|n| format!("\"k{n}\":{{\"$ref\":\"#\"}}"))
        .collect();
    let schema = format!("{{\"properties\":{{{}}},\"default\":{{}}}}", keys.join(","));
    folder.write("guest.wasm", guest(2072, &schema).build());
    let inspect = ["connector", "inspect", "./guest.wasm", "--output", "json"];
    let ended = folder.rapidbyte(&inspect);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.contains("contract_broken"), "{}", ended.stdout);
    // A run reads only the settings that the operator wrote, and they have an end.
    folder.report(&all_of_guest());
    folder.write("p.yaml", all_of_guest());
    let ended = folder.rapidbyte(&["lock", "p.yaml"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}

#[test]
fn the_default_of_a_schema_is_not_granted() {
    let folder = Folder::new();
    folder.write("secret.txt", "s\n");
    let schema = r#"{"properties":{"path":{"x-grant":"read","default":"secret.txt"}}}"#;
    let mut reads = guest(2072, schema);
    reads.patches.push((32_768, b"secret.txt".to_vec()));
    reads.at = 2;
    // Without an error its answer begins with 0.
    reads.deed = "(call $open_file (i32.const 32768) (i32.const 10) (i32.const 512)) \
        (if (i32.eqz (i32.load8_u (i32.const 512))) (then unreachable))"
        .into();
    reads.imports = OPEN_FILE;
    folder.write("guest.wasm", reads.build());
    folder.report(&all_of_guest());
    let granted =
        all_of_guest().replace("guest.wasm,", "guest.wasm, config: { path: secret.txt },");
    folder.refuses(&granted, "trapped", 1, &[]);
}

const OPEN_FILE: &str = r#"
    (import "rapidbyte:connector/files@0.2.0" "open" (func $open_file (param i32 i32 i32)))"#;

const CREATE_FILE: &str = r#"
    (import "rapidbyte:connector/files@0.2.0" "create" (func $create (param i32 i32 i32)))"#;

#[test]
fn nothing_is_written_before_anybody_has_seen_what_is_granted() {
    let folder = Folder::new();
    folder.write("kept.txt", "kept\n");
    let schema = r#"{"properties":{"path":{"x-grant":"write"}}}"#;
    let mut writes = guest(2072, schema);
    writes.patches.push((32_768, b"kept.txt".to_vec()));
    writes.at = 2;
    // Its `open` begins the granted file; an answer without an error begins with 0.
    writes.deed = "(call $create (i32.const 32768) (i32.const 8) (i32.const 512)) \
        (if (i32.eqz (i32.load8_u (i32.const 512))) (then unreachable))"
        .into();
    writes.imports = CREATE_FILE;
    folder.write("guest.wasm", writes.build());
    let granted = all_of_guest().replace("guest.wasm,", "guest.wasm, config: { path: kept.txt },");
    folder.write("p.yaml", granted);
    for arguments in [
        ["plan", "p.yaml"].as_slice(),
        &["plan", "p.yaml", "--grants-only"],
        &["check", "p.yaml"],
        &["discover", "p.yaml"],
        &["doctor", "p.yaml"],
    ] {
        let ended = folder.rapidbyte(arguments);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains("trapped"), "{arguments:?}: {said}");
        assert_eq!(folder.read("kept.txt"), "kept\n");
        if arguments[0] == "plan" {
            assert!(ended.stdout.contains("may write kept.txt"), "{said}");
        }
    }
}

#[test]
fn a_query_for_progress_lets_the_destination_write_nothing() {
    let folder = Folder::new();
    folder.write("kept.txt", "kept\n");
    let schema = r#"{"properties":{"path":{"x-grant":"write"}}}"#;
    let len = u32::try_from(schema.len()).expect("a short text");
    let mut writes = Guest::good("destination");
    writes.patches = vec![
        (16_384, schema.as_bytes().to_vec()),
        (2072, list(16_384, len)),
        (32_768, b"kept.txt".to_vec()),
    ];
    writes.at = 2;
    // Its `open` begins the granted file; an answer without an error begins with 0.
    writes.deed = "(call $create (i32.const 32768) (i32.const 8) (i32.const 512)) \
        (if (i32.eqz (i32.load8_u (i32.const 512))) (then unreachable))"
        .into();
    writes.imports = CREATE_FILE;
    folder.write("guest.wasm", writes.build());
    let pipeline = generate(1, "").replace(
        &testkit("dest-null"),
        "./guest.wasm, config: { path: kept.txt }",
    );
    assert!(pipeline.contains("guest.wasm"), "{pipeline}");
    folder.write("p.yaml", pipeline);
    for (arguments, begins) in [
        (["state", "list", "p.yaml"].as_slice(), false),
        (&["state", "get", "p.yaml", "rows"], false),
        // A command that changes a cursor lets the destination write, so the guest does its deed.
        (&["state", "clear", "p.yaml", "rows"], true),
    ] {
        let ended = folder.rapidbyte(arguments);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert_ne!(ended.code, Some(0), "{arguments:?}: {said}");
        assert_eq!(said.contains("trapped"), begins, "{arguments:?}: {said}");
    }
}

#[test]
fn grants_are_shown_before_a_connector_is_opened() {
    let folder = Folder::new();
    let pipeline = misbehave("open_error, kind: config, host: db.example, port: 5432");
    folder.write("p.yaml", pipeline);
    let ended = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("may connect db.example:5432"),
        "{}",
        ended.stdout
    );
    let ended = folder.rapidbyte(&["plan", "p.yaml", "--grants-only", "--output", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let shown: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one document");
    let grants = shown["source"]["grants"].to_string();
    assert!(grants.contains("connect db.example:5432"), "{shown:#}");
}

#[test]
fn a_pipe_in_the_place_of_the_lock_is_not_waited_for() {
    let folder = Folder::new();
    let pipe = folder.path().join("rapidbyte.lock");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).expect("a pipe");
    folder.refuses(&generate(10, ""), "lock_unreadable", 2, &["regular file"]);
}

#[test]
fn a_hard_link_is_read_where_nobody_else_can_have_put_it() {
    let folder = Folder::new();
    folder.write("outside.csv", "a\nsecret\n").write("d/x", "");
    std::fs::hard_link(
        folder.path().join("outside.csv"),
        folder.path().join("d/in.csv"),
    )
    .expect("a link");
    let pipeline = copy("csv", "csv").replace("in.csv", "d/*.csv\n    stream: in");
    folder.set_mode("d", 0o755);
    assert_eq!(folder.report(&pipeline)["rows"], 1);
    folder.set_mode("d", 0o777);
    folder.refuses(&pipeline, "hard_link_refused", 3, &["d/in.csv", "copy"]);
    // A run replaces the name in `out`, and the file behind its other hard link stays.
    std::fs::remove_file(folder.path().join("out/in.csv")).expect("removed");
    std::fs::hard_link(
        folder.path().join("outside.csv"),
        folder.path().join("out/in.csv"),
    )
    .expect("a link");
    folder.write("d/in2.csv", "a\n2\n");
    let other = pipeline.replace("d/*.csv", "d/in2.csv");
    assert_eq!(folder.report(&other)["rows"], 1);
    assert_eq!(folder.read("outside.csv"), "a\nsecret\n");
    assert_eq!(folder.read("out/in.csv"), "a\n2\n");
}

/// A pipeline of two guests that take no time to compile.
fn small(folder: &Folder) {
    for world in ["source", "destination"] {
        folder.write(&format!("{world}.wasm"), Guest::good(world).build());
    }
    let pipeline = "version: 1\npipeline: t\nsource: { use: ./source.wasm, streams: [rows] }\n\
                    destination: { use: ./destination.wasm, write_mode: replace }\n";
    folder.write("p.yaml", pipeline);
}

/// Runs with a cache in the folder: whether the source's code came from it.
fn from_cache(folder: &Folder) -> bool {
    let mut command = folder.command(&["run", "p.yaml", "--output", "json"]);
    command.env("XDG_CACHE_HOME", folder.path().join("cache"));
    command.env("XDG_STATE_HOME", folder.path().join("state"));
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    report["connectors"][0]["from_cache"]
        .as_bool()
        .expect("a flag")
}

const CACHE: &str = "cache/rapidbyte/code";

#[test]
fn planted_cache_entries_are_compiled_again() {
    let folder = Folder::new();
    small(&folder);
    assert!(!from_cache(&folder) && from_cache(&folder));
    let entries = || {
        let names = folder.files(CACHE).into_iter();
        let paths = names.map(|name| folder.path().join(CACHE).join(name));
        paths.collect::<Vec<_>>()
    };
    let good: Vec<Vec<u8>> = entries()
        .iter()
        .map(|p| std::fs::read(p).expect("it"))
        .collect();
    // Entries that another key wrote, as if they came from another user.
    let other = Folder::new();
    small(&other);
    assert!(!from_cache(&other));
    for path in entries() {
        let name = path.file_name().expect("a name");
        std::fs::copy(other.path().join(CACHE).join(name), &path).expect("planted");
    }
    assert!(!from_cache(&folder) && from_cache(&folder), "another key");
    type Change = fn(&std::path::Path, &[u8]);
    let changes: [(&str, Change); 4] = [
        ("a bit", |path, code| {
            let mut code = code.to_vec();
            let middle = code.len() / 2;
            code[middle] ^= 1;
            std::fs::write(path, code).expect("written");
        }),
        ("cut off", |path, code| {
            std::fs::write(path, &code[..code.len() / 3]).expect("written");
        }),
        ("empty", |path, _| {
            std::fs::write(path, "").expect("written")
        }),
        ("a link", |path, code| {
            let real = path.with_extension("real");
            std::fs::write(&real, code).expect("written");
            std::fs::remove_file(path).expect("removed");
            symlink(real, path).expect("a link");
        }),
    ];
    for (what, change) in changes {
        let now: Vec<_> = entries()
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "cwasm"))
            .collect();
        assert_eq!(now.len(), good.len(), "{what}");
        for path in now {
            let code = std::fs::read(&path).expect("an entry");
            change(&path, &code);
        }
        assert!(!from_cache(&folder), "{what}");
        assert!(from_cache(&folder), "after {what}");
    }
    // Entries under each other's names.
    let paths: Vec<_> = entries()
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "cwasm"))
        .collect();
    let codes: Vec<_> = paths
        .iter()
        .map(|p| std::fs::read(p).expect("it"))
        .collect();
    for (path, code) in paths.iter().zip(codes.iter().rev()) {
        std::fs::write(path, code).expect("written");
    }
    assert!(!from_cache(&folder) && from_cache(&folder), "exchanged");
}

#[test]
fn a_cache_that_others_may_write_to_is_not_one() {
    let folder = Folder::new();
    small(&folder);
    assert!(!from_cache(&folder));
    // Nobody but this user can have written what authenticates; the folder is its own again.
    folder.set_mode(CACHE, 0o777);
    assert!(from_cache(&folder));
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::metadata(folder.path().join(CACHE)).expect("a folder");
    assert_eq!(found.permissions().mode() & 0o777, 0o700);
    // A folder that is a link is none, and a key that others can read authenticates nothing.
    let real = folder.path().join("real");
    std::fs::rename(folder.path().join(CACHE), &real).expect("moved");
    symlink(&real, folder.path().join(CACHE)).expect("a link");
    assert!(!from_cache(&folder) && !from_cache(&folder));
    std::fs::remove_file(folder.path().join(CACHE)).expect("removed");
    std::fs::rename(&real, folder.path().join(CACHE)).expect("moved");
    assert!(from_cache(&folder));
    let keys = folder.files("state/rapidbyte");
    let key = keys
        .iter()
        .find(|name| name.contains("key"))
        .expect("a key");
    folder.set_mode(&format!("state/rapidbyte/{key}"), 0o644);
    assert!(!from_cache(&folder) && !from_cache(&folder));
}

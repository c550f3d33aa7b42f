//! `rapidbyte serve`: the commands of its guide, its messages, its end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rapidbyte_testkit::postgres::shared;
use rustix::process::{Pid, Signal};

use crate::support::{Folder, built};

/// The address of the guide.
const ADDRESS: &str = "127.0.0.1:8465";

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(path.join(name)).expect("UTF-8")
}

/// An address that is free now.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

/// The commands of the guide's console blocks, as a script.
fn script(page: &str) -> String {
    let blocks = page.split("\n```console\n").skip(1);
    let blocks = blocks.filter_map(|block| Some(block.split_once("\n```")?.0));
    let lines = blocks.flat_map(str::lines);
    let lines = lines.map(|line| line.strip_prefix("$ ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_command_of_the_guide_works() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIPPED: the guide needs curl, which is not installed");
        return;
    }
    let database = shared().database();
    let folder = Folder::new();
    folder.write("bin/.keep", "");
    let program = folder.path().join("bin/rapidbyte");
    std::os::unix::fs::symlink(built("RAPIDBYTE_BIN"), program).expect("a link");
    let address = free_address();
    let script = script(&page("guides/serve.md"))
        .replace(
            "rapidbyte serve . &",
            &format!("rapidbyte serve . --listen {ADDRESS} &"),
        )
        .replace(ADDRESS, &address);
    // The last line ends the server, also after a command that fails.
    let script = format!("trap 'kill $(jobs -p); wait' EXIT\n{script}\n");
    let path = std::env::var("PATH").expect("PATH");
    let base = folder.command(&[]);
    let mut shell = Command::new("bash");
    shell
        .current_dir(folder.path())
        .env_clear()
        .envs(base.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env(
            "PATH",
            format!("{}:{path}", folder.path().join("bin").display()),
        )
        .env("TARGET_URL", database.url())
        .args(["-euo", "pipefail", "-c", &script]);
    let ended = shell.output().expect("bash");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert!(ended.status.success(), "{stdout}\n{stderr}");
    let rows = database
        .client()
        .query("SELECT id, price::text FROM public.orders ORDER BY id", &[])
        .expect("rows");
    let rows: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [(1, "4.20"), (2, "1.10"), (3, "2.95"), (4, "0.80")];
    let expected = expected.map(|(id, price)| (id, price.to_owned()));
    assert_eq!(rows, expected, "{stdout}\n{stderr}");
    assert!(stdout.contains("\"value_does_not_fit\""), "{stdout}");
    assert!(stdout.contains("rb_"), "{stdout}");
}

/// Types the commands of a page that begin with `begin`, in a folder.
fn types(folder: &Folder, page: &str, begin: &str, address: &str) -> String {
    let script = script(page).replace(ADDRESS, address);
    let lines = script.lines().filter(|line| line.starts_with(begin));
    let script: Vec<&str> = lines.collect();
    assert!(!script.is_empty(), "{begin}");
    let mut shell = Command::new("bash");
    shell
        .current_dir(folder.path())
        .args(["-euo", "pipefail", "-c", &script.join("\n")]);
    let ended = shell.output().expect("bash");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{script:?}: {stderr}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

#[test]
fn a_server_is_operated_as_its_guide_says() {
    for program in ["curl", "sqlite3"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("SKIPPED: the guide needs {program}, which is not installed");
            return;
        }
    }
    let page = page("guides/serve-operate.md");
    let database = shared().database();
    let folder = Folder::new();
    let text = format!(
        "version: 1\npipeline: orders\nsource: {{ use: ingest, config: {{ schema: {{ id: int64 }} }}, streams: [orders] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
        database.url()
    );
    folder.write("pipelines/orders.yaml", text);
    let start = |data: &str| {
        let address = free_address();
        // As the unit of the guide starts it.
        let unit = page
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let line = unit.expect("a command");
        let line = line.replace("/etc/rapidbyte", "pipelines");
        let line = line.replace("/var/lib/rapidbyte", data);
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let words = [&words[..], &["--listen", &address]].concat();
        let mut server = Running::start(&folder, &words);
        server.listens();
        (server, address)
    };
    let send = |address: &str, id: i64, query: &str| {
        let path = format!("/v1/ingest/orders/orders{query}");
        post(address, &path, &format!("{{\"id\":{id}}}"))
    };
    let (mut server, address) = start("data");
    send(&address, 1, "?wait=true");
    for begin in ["mkdir", "sqlite3", "cp"] {
        types(&folder, &page, begin, &address);
    }
    send(&address, 2, "?wait=true");
    send(&address, 3, "?wait=true");
    assert_eq!(server.terminate(), Some(0));
    // The rows of the first job are there already.
    let (mut restored, address) = start("backup");
    send(&address, 3, "");
    send(&address, 4, "");
    let get = |path: &str| {
        let url = format!("http://{address}{path}");
        let got = Command::new("curl").args(["-sS", &url]).output();
        String::from_utf8(got.expect("curl").stdout).expect("UTF-8")
    };
    while !get("/v1/pipelines/orders").contains("queue_restored") {
        std::thread::yield_now();
    }
    let told = types(&folder, &page, "curl", &address);
    assert!(told.contains("\"cancelled\""), "{told}");
    while get("/v1/jobs?state=pending").contains("\"pending\"") {
        std::thread::yield_now();
    }
    assert_eq!(restored.terminate(), Some(0));
    let rows = database
        .client()
        .query("SELECT id FROM public.orders ORDER BY id", &[])
        .expect("rows");
    let rows: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, [1, 2, 3, 4]);
}

/// A server in the background. A test that fails leaves none.
struct Running {
    child: Child,
    messages: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let mut command = folder.command(&[&["serve"], arguments].concat());
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let messages = BufReader::new(child.stderr.take().expect("messages"));
        Self { child, messages }
    }

    /// Waits until it listens. Returns its messages up to then.
    fn listens(&mut self) -> String {
        let mut told = String::new();
        while !told.contains("listening on ") {
            let read = self.messages.read_line(&mut told).expect("UTF-8");
            assert_ne!(read, 0, "{told}");
        }
        told
    }

    /// Ends it as a service manager does. Gives its exit code.
    fn terminate(&mut self) -> Option<i32> {
        let (id, signal) = (Pid::from_child(&self.child), Signal::TERM);
        rustix::process::kill_process(id, signal).expect("a signal");
        self.child.wait().expect("ended").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_ends_with_a_signal_and_the_next_one_has_its_jobs() {
    let folder = Folder::new();
    // Nobody listens there: the job stays pending.
    folder.write(
        "orders.yaml",
        "version: 1\npipeline: orders\nsource: { use: ingest, streams: [orders] }\n\
         destination: { use: dest-postgres, config: { url: \"postgres://x@127.0.0.1:1/x\" }, write_mode: append }\n",
    );
    folder.write("broken.yaml", "pipeline: [");
    let address = free_address();
    for id in 1..=2 {
        let mut server = Running::start(&folder, &[".", "--listen", &address]);
        let mut told = server.listens();
        assert!(told.contains("broken.yaml is wrong"), "{told}");
        let second = folder.rapidbyte(&["serve", ".", "--listen", "127.0.0.1:0"]);
        assert_eq!(second.code, Some(5), "{}", second.stderr);
        assert!(
            second.stderr.contains("error[server_running]"),
            "{}",
            second.stderr
        );
        let answer = post(&address, "/v1/ingest/orders/orders", "{\"id\":1}");
        assert!(answer.starts_with("HTTP/1.0 202 "), "{answer}");
        assert!(answer.contains(&format!("\"id\":{id},")), "{answer}");
        assert_eq!(server.terminate(), Some(0));
        server.messages.read_to_string(&mut told).expect("UTF-8");
        assert!(told.contains("no new connections"), "{told}");
    }
}

fn post(address: &str, path: &str, body: &str) -> String {
    post_as(address, path, "application/x-ndjson", body.as_bytes())
}

fn post_as(address: &str, path: &str, kind: &str, body: &[u8]) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), body].concat())
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Files of Arrow describe columns of PostgreSQL, and whoever sends one may describe anything.
#[test]
fn a_server_runs_the_pipeline_that_init_writes() {
    let folder = Folder::new();
    let flags = ["--source", "ingest", "--destination", "file"];
    let ended =
        folder.rapidbyte(&[&["init", "--dir", "in", "--name", "shop"], &flags[..]].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let path = "/v1/ingest/shop/orders?wait=true";
    for part in ["rapidbyte serve in\n", path] {
        assert!(ended.stdout.contains(part), "{}", ended.stdout);
    }
    let address = free_address();
    let mut server = Running::start(&folder, &["in", "--listen", &address]);
    server.listens();
    let answer = post(&address, path, "{\"id\": 1, \"item\": \"tea\"}");
    assert!(answer.contains("\"state\":\"done\""), "{answer}");
    assert_eq!(server.terminate(), Some(0));
    let files = folder.files("in/out/orders");
    let part = files.iter().find(|file| file.ends_with(".jsonl"));
    let rows = folder.read(&format!("in/out/orders/{}", part.expect("a file")));
    assert_eq!(rows, "{\"id\":1,\"item\":\"tea\",\"price\":null}\n");
}

#[test]
fn a_forged_description_of_a_column_has_no_effect_or_is_refused() {
    let (from, to) = (shared().database(), shared().database());
    // Names as long as the texts that are put in their place.
    let long = "v".repeat(60);
    let sql = format!(
        "CREATE DOMAIN orders AS text CHECK (VALUE <> ''); CREATE TABLE t (id int, {long} text, d orders); \
         INSERT INTO t VALUES (1, 'x', 'y')"
    );
    from.client().batch_execute(&sql).expect("a table");
    to.client()
        .batch_execute("CREATE TABLE precious (a int)")
        .expect("a table");
    let folder = Folder::new();
    folder.report(&format!(
        "version: 1\npipeline: out\n\
         source: {{ use: source-postgres, config: {{ url: \"{}\" }}, streams: [public.t] }}\n\
         destination: {{ use: dest-file, config: {{ format: arrow, path: t.arrow }}, write_mode: replace }}\n",
        from.url()
    ));
    let genuine = std::fs::read(folder.path().join("t.arrow")).expect("a file");
    let forged = |from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), format!("{to:<width$}", width = from.len()));
        let mut bytes = genuine.clone();
        let mut at = 0;
        let mut found = 0;
        while let Some(next) = bytes[at..]
            .windows(from.len())
            .position(|part| part == from)
        {
            at += next;
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            (at, found) = (at + from.len(), found + 1);
        }
        assert!(found > 0 && to.len() == from.len(), "{to}");
        bytes
    };
    let described = |name: &str, text: &str| {
        format!(
            "{{\"name\":\"{name}\",\"type\":{{\"oid\":25,\"schema\":\"pg_catalog\",\"name\":\"text\",\"kind\":\"base\",\
             \"send\":\"text\"}},\"typmod\":-1,\"type_text\":\"{text}\"}}"
        )
    };
    let drops = "text);DROP TABLE precious;CREATE TABLE z(a int";
    let bodies = [
        forged(&described(&long, "text"), &described("v", drops)),
        forged("\"kind\":\"base\"", "\"kind\":\"basf\""),
    ];
    let target = format!(
        "destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
        to.url()
    );
    for body in &bodies {
        folder.write("forged.arrow", body);
        let source = "source: { use: source-file, config: { format: arrow, path: forged.arrow }, streams: [forged] }";
        let text = format!("version: 1\npipeline: in\n{source}\n{target}");
        folder.refuses(&text, "invalid_metadata", 4, &[]);
    }
    let folder = Folder::new();
    for (name, config) in [
        ("p", ""),
        ("trusting", "config: { trust_metadata: true }, "),
    ] {
        let source = format!("source: {{ use: ingest, {config}streams: [s, orders] }}");
        let target = target.replace("}, write", &format!(", schema: {name} }}, write"));
        let text = format!("version: 1\npipeline: {name}\n{source}\n{target}");
        folder.write(&format!("{name}.yaml"), text);
    }
    let address = free_address();
    let mut server = Running::start(&folder, &[".", "--listen", &address]);
    server.listens();
    let kind = "application/vnd.apache.arrow.stream";
    for round in 0..2 {
        for body in &bodies {
            let answer = post_as(&address, "/v1/ingest/trusting/s?wait=true", kind, body);
            assert!(answer.starts_with("HTTP/1.0 422 "), "{round}: {answer}");
            assert!(answer.contains("\"code\":\"invalid_metadata\""), "{answer}");
            let answer = post_as(&address, "/v1/ingest/p/s?wait=true", kind, body);
            assert!(answer.starts_with("HTTP/1.0 200 "), "{round}: {answer}");
        }
        for name in ["p", "trusting"] {
            let path = format!("/v1/ingest/{name}/s?wait=true");
            let answer = post(&address, &path, "{\"id\":1}");
            assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
        }
    }
    // The domain has the name of a table that another stream needs.
    let types =
        "SELECT count(*) FROM pg_type WHERE typtype <> 'b' AND typname = 'orders' AND typrelid = 0";
    let types = || {
        to.client()
            .query_one(types, &[])
            .expect("a row")
            .get::<_, i64>(0)
    };
    for name in ["p", "trusting"] {
        let path = format!("/v1/ingest/{name}/s?wait=true");
        let renamed = forged("\"schema\":\"public\"", "\"schema\":\"p\"");
        let body = if name == "p" { &renamed } else { &genuine };
        let answer = post_as(&address, &path, kind, body);
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
        assert_eq!(types(), i64::from(name == "trusting"), "{name}");
    }
    let answer = post(&address, "/v1/ingest/p/orders?wait=true", "{\"id\":1}");
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
    assert_eq!(server.terminate(), Some(0));
    let sql = "SELECT to_regclass('precious') IS NOT NULL AND to_regclass('z') IS NULL";
    let left: bool = to.client().query_one(sql, &[]).expect("a row").get(0);
    assert!(left);
}

/// Inferred columns are those of the bodies that come together, so nobody has dropped one that a body lacks.
#[test]
fn a_body_without_a_column_of_a_frozen_table_is_the_same_alone_and_beside_others() {
    let database = shared().database();
    let sql = "CREATE TABLE s (id bigint NOT NULL, item text)";
    database.client().batch_execute(sql).expect("a table");
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        format!(
            "version: 1\npipeline: p\nsource: {{ use: ingest, streams: [s] }}\nschema_changes: frozen\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
            database.url()
        ),
    );
    let address = free_address();
    let mut server = Running::start(&folder, &[".", "--listen", &address]);
    server.listens();
    for (body, expected) in [
        ("{\"id\":1}", Ok(())),
        ("{\"id\":2}\n{\"id\":3,\"item\":\"a\"}", Ok(())),
        ("{\"id\":4,\"more\":1}", Err("column_refused")),
        ("{\"item\":\"b\"}", Err("unfilled_column")),
    ] {
        let answer = post(&address, "/v1/ingest/p/s?wait=true", body);
        let status = if expected.is_ok() { "200" } else { "422" };
        let begin = format!("HTTP/1.0 {status} ");
        assert!(answer.starts_with(&begin), "{body}: {answer}");
        if let Err(code) = expected {
            assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
        }
    }
    assert_eq!(server.terminate(), Some(0));
    let sql = "SELECT string_agg(concat_ws(':', id, item), ',' ORDER BY id) FROM s";
    let rows: String = database.client().query_one(sql, &[]).expect("a row").get(0);
    assert_eq!(rows, "1,2,3:a");
}

#[test]
fn wrong_arguments_of_a_server_are_refused_before_it_starts() {
    let folder = Folder::new();
    for (arguments, code, text) in [
        (vec!["serve", "nowhere"], 2, "error[invalid_argument]"),
        (
            vec!["serve", ".", "--listen", "0.0.0.0:0"],
            2,
            "error[token_required]",
        ),
        (
            vec!["serve", ".", "--max-body", "many"],
            2,
            "expected a size",
        ),
        (vec!["serve", ".", "--tls-cert", "a.pem"], 2, "--tls-key"),
        (
            vec!["serve", "token", "add", "--scope", "write"],
            2,
            "not a scope",
        ),
        (
            vec!["serve", "token", "remove", "x"],
            2,
            "error[unknown_token]",
        ),
    ] {
        let ended = folder.rapidbyte(&arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?} {}", ended.stderr);
        assert!(
            ended.stderr.contains(text),
            "{arguments:?} {}",
            ended.stderr
        );
    }
    let made = folder.rapidbyte(&["serve", "token", "add", "--scope", "read:a", "--name", "me"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(
        made.stderr.contains("has a pipeline \"a\""),
        "{}",
        made.stderr
    );
    let open = folder.rapidbyte(&["serve", ".", "--listen", "0.0.0.0:0"]);
    assert!(
        open.stderr.contains("error[certificate_required]"),
        "{}",
        open.stderr
    );
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    let taken = folder.rapidbyte(&["serve", ".", "--listen", &address]);
    let says = format!("cannot listen on {address}");
    assert_eq!(taken.code, Some(3), "{}", taken.stderr);
    assert!(taken.stderr.contains(&says), "{}", taken.stderr);
    let listed = folder.rapidbyte(&["serve", "token", "list"]);
    assert!(listed.stdout.contains("read:a"), "{}", listed.stdout);
    let id = listed.stdout.split_whitespace().next().expect("an id");
    assert_eq!(
        folder.rapidbyte(&["serve", "token", "remove", id]).code,
        Some(0)
    );
}

#[test]
fn a_token_for_a_pipeline_that_does_not_exist_is_made_with_a_warning() {
    let folder = Folder::new();
    let text = "version: 1\npipeline: orders\nsource: { use: ingest, streams: [orders] }\n\
                destination: { use: dest-postgres, config: { url: \"${NO_VARIABLE}\" }, write_mode: append }\n";
    folder.write("pipelines/file.yaml", text);
    folder.write("pipelines/broken.yaml", "pipeline: [");
    let add = |more: &[&str]| {
        let made = folder.rapidbyte(&[&["serve", "token", "add"], more].concat());
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert!(made.stdout.starts_with("rb_"), "{}", made.stdout);
        made.stderr
    };
    let here = ["--pipelines", "pipelines"];
    for scopes in [&["--scope", "ingest:orders"][..], &["--scope", "read"]] {
        assert_eq!(add(&[&here, scopes].concat()), "");
    }
    let told = add(&[
        &here[..],
        &["--scope", "ingest:order", "--scope", "read:order"],
    ]
    .concat());
    assert_eq!(
        told,
        "warning: no file of pipelines has a pipeline \"order\": the token is for this name only\n"
    );
    // The secret is all that a quiet command prints.
    let quiet = folder.rapidbyte(&["serve", "token", "add", "--scope", "read", "-q"]);
    assert_eq!(quiet.code, Some(0), "{}", quiet.stderr);
    let secret = quiet.stdout.trim_end();
    assert!(
        secret.starts_with("rb_") && !secret.contains(char::is_whitespace),
        "{secret}"
    );
    // With --data alone the folder of the pipelines may be any.
    assert_eq!(add(&["--data", "data", "--scope", "ingest:order"]), "");
}

#[test]
fn commands_that_need_a_source_refuse_a_pipeline_of_the_queue() {
    let folder = Folder::new();
    let text = "version: 1\npipeline: orders\nsource: { use: ingest, streams: [orders] }\n\
                destination: { use: dest-file, config: { path: out, format: jsonl }, write_mode: append }\n";
    folder.write("orders.yaml", text);
    let cursor = "{\"id\":1}";
    for command in [
        &["run"][..],
        &["plan"],
        &["check"],
        &["discover"],
        &["verify"],
        &["state", "set", "orders.yaml", "orders", cursor],
        &["rejects", "replay", "orders.yaml", "--stream", "orders"],
    ] {
        let file = (command.len() == 1).then_some("orders.yaml");
        let words: Vec<&str> = command.iter().copied().chain(file).collect();
        let refused = folder.rapidbyte(&words);
        assert_eq!(refused.code, Some(2), "{words:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("error[reads_queue]"),
            "{words:?}: {}",
            refused.stderr
        );
        assert!(
            refused.stderr.contains("rapidbyte serve FOLDER"),
            "{}",
            refused.stderr
        );
    }
}

/// Each code with which the server refuses a request is in the page of the API, with its status.
#[test]
fn the_page_of_the_api_has_every_code() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/src");
    let mut found = BTreeSet::new();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("UTF-8");
            let refusals = text.split("Refusal::new(").skip(1);
            for call in refusals.chain(text.split("Self::new(").skip(1)) {
                let call = call.split(");").next().unwrap_or_default();
                let code = call.split('"').nth(1).unwrap_or_default();
                let is_code = |c: char| c.is_ascii_lowercase() || c == '_';
                if code.contains('_') && code.chars().all(is_code) || code == "unauthorized" {
                    found.insert(code.to_owned());
                }
            }
        }
    }
    assert!(found.len() > 20, "{found:?}");
    let page = page("serve-api.md");
    let missing: Vec<_> = found
        .iter()
        .filter(|code| !page.contains(&format!("| `{code}` |")))
        .collect();
    assert!(missing.is_empty(), "docs/serve-api.md lacks {missing:?}");
}

//! Messages of `notify`, received by a real server, and signed.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rapidbyte_serve::{Log, Server, Settings};
use rapidbyte_testkit::postgres::shared;
use serde_json::{Value, json};

use crate::served::{self, Told};
use crate::support::{self, Client};

const SECRET: &str = "a-secret-of-many-characters";
const PASSWORD: &str = "hunter-of-hooks";
/// A test that waits longer fails.
const LIMIT: Duration = Duration::from_secs(60);

/// A message as it was received, and its connection, which waits for an answer.
struct Received {
    head: String,
    body: String,
    connection: TcpStream,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    fn answer(mut self, status: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        self.connection.write_all(answer.as_bytes()).expect("sent");
    }
}

/// A server that gives each request to the test.
struct Hook {
    address: SocketAddr,
    received: Receiver<Received>,
}

impl Hook {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, received) = channel();
        std::thread::spawn(move || receive(&listener, &sender));
        Self { address, received }
    }

    fn next(&self) -> Received {
        self.received.recv_timeout(LIMIT).expect("a message")
    }

    /// A URL with a user and a password.
    fn url(&self, path: &str) -> String {
        format!("http://me:{PASSWORD}@{}{path}", self.address)
    }

    fn notify(&self) -> String {
        format!(
            "notify: {{ success: \"{}\", failure: \"{}\", schema_change: \"{}\", secret: {SECRET} }}\n",
            self.url("/success?a=1"),
            self.url("/failure"),
            self.url("/changed")
        )
    }
}

fn receive(listener: &TcpListener, sender: &Sender<Received>) {
    for connection in listener.incoming() {
        let connection = connection.expect("a connection");
        let mut reader = BufReader::new(connection.try_clone().expect("a connection"));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).expect("a line") == 0 {
                break;
            }
        }
        let lower = head.to_lowercase();
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        reader.read_exact(&mut body).expect("a body");
        let body = String::from_utf8(body).expect("UTF-8");
        let received = Received {
            head,
            body,
            connection,
        };
        if sender.send(received).is_err() {
            return;
        }
    }
}

/// A code block of the guide.
fn guide(language: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/serve-notify.md");
    let guide = std::fs::read_to_string(path).expect("a guide");
    let (_, rest) = guide
        .split_once(&format!("\n```{language}\n"))
        .expect("a block");
    rest.split_once("\n```").expect("its end").0.to_owned()
}

/// Whether the programs of the guide take a message, which both do or neither does.
fn is_genuine(signature: &str, body: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("body.json"), body).expect("a file");
    let run = |program: &str, flags: &[&str], text: String| {
        let mut command = Command::new(program);
        let command = command.args(flags).arg(text).current_dir(folder.path());
        let command = command
            .env("NOTIFY_SECRET", SECRET)
            .env("signature", signature);
        command.status().expect("a program").success()
    };
    let check = "import os, sys\n\
                 body = open('body.json', 'rb').read()\n\
                 sys.exit(not is_genuine(os.environ['NOTIFY_SECRET'], os.environ['signature'], body))\n";
    let python = run("python3", &["-c"], format!("{}\n{check}", guide("python")));
    let shell = run("bash", &["-euo", "pipefail", "-c"], guide("bash"));
    assert_eq!(python, shell, "{signature} {body}");
    python
}

fn ensure_signed(received: &Received) {
    let signature = received.header("rapidbyte-signature");
    let signature = signature.expect("a signature");
    assert!(is_genuine(signature, &received.body), "{signature}");
    assert!(!is_genuine(signature, &received.body.replacen('1', "2", 1)));
}

fn start(folder: &Path, text: &str, log: Log) -> Server {
    let settings = Settings {
        drain: Duration::ZERO,
        ..served::settings(folder)
    };
    served::serve(folder, text, settings, log)
}

/// Asks until the messages of a pipeline are as they should be.
fn until(client: &mut Client, pipeline: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let limit = Instant::now() + LIMIT;
    loop {
        let answer = client.get(&format!("/v1/pipelines/{pipeline}"));
        let notify = answer.body["pipeline"]["notify"].clone();
        if is_right(&notify) {
            return notify;
        }
        assert!(Instant::now() < limit, "{}", answer.body);
        std::thread::yield_now();
    }
}

#[test]
fn ends_of_runs_are_told_with_a_signature_and_nothing_shows_the_secrets() {
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let told = Told::default();
    // The path of the source has the secret in it, and so has the error about it.
    let text = format!("{}{}", rapidbyte::EXAMPLE, hook.notify());
    let text = text.replace("path: in.csv", &format!("path: {SECRET}/in.csv"));
    let path = folder.path().join(SECRET);
    std::fs::create_dir(&path).expect("a folder");
    std::fs::write(path.join("in.csv"), "id\n1\n2\n").expect("a file");
    let server = start(folder.path(), &text, told.log());
    let mut client = Client::new(server.address());
    let ended = client.post("/v1/pipelines/copy/runs?wait=true", "", b"");
    assert_eq!(ended.status, 200, "{}", ended.body);
    let success = hook.next();
    assert!(
        success.head.starts_with("POST /success?a=1 HTTP/1.1\r\n"),
        "{}",
        success.head
    );
    assert_eq!(success.header("rapidbyte-event"), Some("success"));
    assert_eq!(success.header("content-type"), Some("application/json"));
    assert_eq!(success.header("host"), Some(&*hook.address.to_string()));
    // me:hunter-of-hooks
    assert_eq!(
        success.header("authorization"),
        Some("Basic bWU6aHVudGVyLW9mLWhvb2tz")
    );
    ensure_signed(&success);
    let body = success.json();
    assert_eq!(
        (&body["id"], &body["event"], &body["pipeline"]),
        (
            &json!(success.header("rapidbyte-delivery")),
            &json!("success"),
            &json!("copy")
        )
    );
    let run = &body["run"];
    assert_eq!(
        (&run["state"], &run["id"], &run["counts"]["rows"]),
        (&json!("succeeded"), &json!(1), &json!(2))
    );
    assert!(
        run["report"].is_null() && run["ended_ms"].is_i64(),
        "{run:#}"
    );
    success.answer("204 No Content");
    until(&mut client, "copy", |notify| notify["waiting"] == 0);

    std::fs::remove_dir_all(&path).expect("no folder");
    let failed = client.post("/v1/pipelines/copy/runs?wait=true", "", b"");
    assert_eq!(failed.status, 422, "{}", failed.body);
    let failure = hook.next();
    assert!(
        failure.head.starts_with("POST /failure "),
        "{}",
        failure.head
    );
    ensure_signed(&failure);
    let body = failure.json();
    let error = &body["run"]["error"];
    assert_eq!(error["code"], failed.body["run"]["error"]["code"]);
    assert!(
        error["hint"].is_string() || error["message"].is_string(),
        "{error:#}"
    );
    let waits = client.get("/v1/pipelines/copy");
    let notify = &waits.body["pipeline"]["notify"];
    assert_eq!(
        (&notify["waiting"], &notify["is_signed"]),
        (&json!(1), &json!(true)),
        "{notify}"
    );
    // This status is for good.
    let text = failure.body.clone();
    failure.answer("404 Not Found");
    let gone = until(&mut client, "copy", |notify| notify["waiting"] == 0);
    let last = &gone["last_failure"];
    assert_eq!(
        (&last["status"], &last["given_up"], &last["attempts"]),
        (&json!(404), &json!(true), &json!(1)),
        "{last}"
    );
    let mut shown = format!("{text}{}{}", told.text(), gone);
    for path in [
        "/v1/pipelines",
        "/v1/pipelines/copy",
        "/v1/runs",
        "/v1/runs/2",
    ] {
        shown += &client.get(path).body.to_string();
    }
    server.stop();
    shown += &told.text();
    assert!(
        shown.contains("***")
            && shown.contains("notify_failed")
            && shown.contains("copy: the run 2 failed: error["),
        "{shown}"
    );
    // The line says what to do, too.
    let told = told.text();
    let line = told.lines().find(|line| line.contains("the run 2 failed"));
    assert!(line.is_some_and(|line| line.contains("; ")), "{told}");
    let store = std::fs::read(folder.path().join("server/runs.db")).expect("a store");
    shown += &String::from_utf8_lossy(&store);
    for secret in [SECRET, PASSWORD] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

#[test]
fn a_receiver_that_fails_gets_the_message_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let told = Told::default();
    let text = format!("{}{}", rapidbyte::EXAMPLE, hook.notify());
    let server = start(folder.path(), &text, told.log());
    let mut client = Client::new(server.address());
    // The source is missing.
    assert_eq!(
        client
            .post("/v1/pipelines/copy/runs?wait=true", "", b"")
            .status,
        422
    );
    let first = hook.next();
    let (id, body) = (
        first.header("rapidbyte-delivery").map(str::to_owned),
        first.body.clone(),
    );
    first.answer("500 Internal Server Error");
    let second = hook.next();
    assert_eq!(
        (second.header("rapidbyte-delivery"), &second.body),
        (id.as_deref(), &body)
    );
    let waits = client.get("/v1/pipelines/copy").body["pipeline"]["notify"].clone();
    let last = &waits["last_failure"];
    assert_eq!(
        (&waits["waiting"], &last["status"], &last["given_up"]),
        (&json!(1), &json!(500), &json!(false)),
        "{waits}"
    );
    assert_eq!(last["id"], json!(id));
    // A connection that breaks is one more attempt.
    drop(second);
    let third = hook.next();
    ensure_signed(&third);
    third.answer("200 OK");
    until(&mut client, "copy", |notify| notify["waiting"] == 0);
    // A redirect leads nowhere.
    assert_eq!(
        client
            .post("/v1/pipelines/copy/runs?wait=true", "", b"")
            .status,
        422
    );
    let other = Hook::new();
    hook.next().answer(&format!(
        "307 Temporary Redirect\r\nLocation: http://{}/x",
        other.address
    ));
    let last = until(&mut client, "copy", |notify| notify["waiting"] == 0)["last_failure"].clone();
    assert_eq!(
        (&last["status"], &last["given_up"]),
        (&json!(307), &json!(true))
    );
    assert!(other.received.try_recv().is_err());
    server.stop();
    assert!(told.text().contains("notify_delayed"), "{}", told.text());
}

#[test]
fn a_test_reaches_each_url_once_and_says_what_became_of_it() {
    const TEST: &str = "/v1/pipelines/copy/notify/test";
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let text = |notify: &str| format!("{}{notify}", rapidbyte::EXAMPLE);
    let two = format!(
        "notify: {{ success: \"{0}\", failure: \"{1}\", schema_change: \"{1}\", secret: {SECRET} }}\n",
        hook.url("/success"),
        hook.url("/others")
    );
    let server = start(folder.path(), &text(&two), Told::default().log());
    let answers = |answers: [&str; 2]| {
        let address = server.address();
        let test = std::thread::spawn(move || Client::new(address).post(TEST, "", b""));
        let received = answers.map(|status| {
            let received = hook.next();
            ensure_signed(&received);
            assert_eq!(received.header("rapidbyte-event"), Some("test"));
            let body = received.json();
            assert_eq!(body["id"].as_str(), received.header("rapidbyte-delivery"));
            received.answer(status);
            body["events"].clone()
        });
        assert_eq!(
            received,
            [json!(["success"]), json!(["failure", "schema_change"])]
        );
        test.join().expect("an answer")
    };
    let taken = answers(["200 OK", "204 No Content"]);
    let origin = format!("http://{}", hook.address);
    let of = |events: Value| json!({ "url": origin, "events": events });
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert_eq!(
        taken.body["receivers"],
        json!([
            of(json!(["success"])),
            of(json!(["failure", "schema_change"]))
        ])
    );
    let asked = Client::new(server.address()).post(&format!("{TEST}?dry=true"), "", b"");
    assert_eq!(
        (asked.status, &asked.body["error"]["code"]),
        (400, &"invalid_query".into())
    );
    // It is not sent again.
    let refused = answers(["200 OK", "500 Internal Server Error"]);
    assert_eq!(
        (refused.status, &refused.body["error"]["code"]),
        (502, &"notify_failed".into())
    );
    let message = refused.body["error"]["message"].to_string();
    assert!(
        message.contains("answers 500") && !message.contains(PASSWORD),
        "{message}"
    );
    server.stop();
    assert!(hook.received.try_recv().is_err());

    let other = tempfile::tempdir().expect("a folder");
    let server = start(other.path(), &text(""), Told::default().log());
    let none = Client::new(server.address()).post(TEST, "", b"");
    assert_eq!(
        (none.status, &none.body["error"]["code"]),
        (409, &"no_notify".into())
    );
    server.stop();
}

#[test]
fn a_receiver_that_does_not_answer_holds_up_no_other_and_gets_one_message_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let text = format!("{}{}", rapidbyte::EXAMPLE, hook.notify());
    let server = start(folder.path(), &text, Log::default());
    let mut client = Client::new(server.address());
    let input = folder.path().join("in.csv");
    let mut run = |status: u16| {
        match status {
            200 => std::fs::write(&input, "id\n1\n").expect("a file"),
            _ => std::fs::remove_file(&input).unwrap_or_default(),
        }
        let ended = client.post("/v1/pipelines/copy/runs?wait=true", "", b"");
        assert_eq!(ended.status, status, "{}", ended.body);
    };
    run(422);
    let held = hook.next();
    assert_eq!(held.header("rapidbyte-event"), Some("failure"));
    // Another message for the one that does not answer, and then one for another.
    run(422);
    run(200);
    // On a slow machine the first one comes again.
    let next = |run: i64| loop {
        let received = hook.next();
        match received.json()["run"]["id"] == run {
            true => break received,
            false => assert_eq!(received.json()["run"]["id"], 1),
        }
        received.answer("200 OK");
    };
    next(3).answer("200 OK");
    held.answer("200 OK");
    next(2).answer("200 OK");
    until(&mut client, "copy", |notify| notify["waiting"] == 0);
    server.stop();
}

/// A row of this many columns.
fn table(columns: usize) -> String {
    let names: Vec<String> = (0..columns).map(|number| format!("c{number}")).collect();
    let ones = vec!["1"; columns];
    format!("{}\n{}\n", names.join(","), ones.join(","))
}

#[test]
fn a_run_that_changes_columns_is_told_with_the_statements() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let url = hook.url("/changed");
    let text = format!(
        "version: 1\npipeline: copy\nsource: {{ use: source-file, config: {{ path: in.csv }}, streams: [in] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n\
         notify: {{ schema_change: \"{url}\" }}\n",
        database.url()
    );
    std::fs::write(folder.path().join("in.csv"), table(1)).expect("a file");
    let server = start(folder.path(), &text, Log::default());
    let mut client = Client::new(server.address());
    let run = "/v1/pipelines/copy/runs?wait=true";
    assert_eq!(client.post(run, "", b"").status, 200);
    std::fs::write(folder.path().join("in.csv"), table(2)).expect("a file");
    let ended = client.post(run, "", b"");
    assert_eq!(ended.status, 200, "{}", ended.body);
    // Neither the first run nor the success of this one.
    let changed = hook.next();
    assert_eq!(changed.header("rapidbyte-event"), Some("schema_change"));
    assert_eq!(changed.header("rapidbyte-signature"), None);
    let body = changed.json();
    assert_eq!(
        (&body["run"]["id"], &body["schema_changes"][0]["stream"]),
        (&json!(2), &json!("in")),
        "{body:#}"
    );
    let statement = body["schema_changes"][0]["statements"][0].as_str();
    assert!(
        statement.is_some_and(|text| text.contains("c1")),
        "{body:#}"
    );
    changed.answer("200 OK");
    until(&mut client, "copy", |notify| notify["waiting"] == 0);
    // The page and the API have it without notify, too.
    let changes = &client.get("/v1/changes").body["changes"];
    assert_eq!(
        (&changes[0]["run"], &changes[0]["statement"]),
        (&json!(2), &json!(statement)),
        "{changes}"
    );
    assert_eq!(
        client.get("/v1/changes?before=1").body["changes"],
        json!([])
    );
    server.stop();
}

#[test]
fn a_queue_tells_of_a_change_of_its_target() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let url = hook.url("/changed");
    let text = format!(
        "version: 1\npipeline: q\nsource: {{ use: ingest, streams: [s] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n\
         notify: {{ schema_change: \"{url}\" }}\n",
        database.url()
    );
    let server = start(folder.path(), &text, Log::default());
    let mut client = Client::new(server.address());
    let path = "/v1/ingest/q/s?wait=true";
    let json_lines = "Content-Type: application/x-ndjson\r\n";
    for body in ["{\"id\":1}", "{\"id\":2,\"x\":2}"] {
        let answer = client.post(path, json_lines, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let changed = hook.next();
    assert_eq!(changed.header("rapidbyte-event"), Some("schema_change"));
    let body = changed.json();
    assert_eq!(
        (
            &body["queue"]["stream"],
            &body["schema_changes"][0]["stream"]
        ),
        (&json!("s"), &json!("s")),
        "{body:#}"
    );
    let statement = body["schema_changes"][0]["statements"][0].as_str();
    assert!(
        statement.is_some_and(|text| text.ends_with(" x bigint")),
        "{body:#}"
    );
    changed.answer("200 OK");
    server.stop();
}

#[test]
fn a_queue_tells_of_the_first_failure_of_a_stream_and_counts_dead_jobs() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let text = |url: &str| {
        format!(
            "version: 1\npipeline: orders\n\
             source: {{ use: ingest, config: {{ schema: {{ id: int64 }} }}, streams: [orders] }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n{}",
            hook.notify()
        )
    };
    let rows = "Content-Type: application/x-ndjson\r\n";
    let server = start(folder.path(), &text(&database.url()), Log::default());
    let mut client = Client::new(server.address());
    for job in 1..=3 {
        let path = "/v1/ingest/orders/orders?wait=true";
        let dead = client.post(path, rows, b"{\"id\":\"x\"}");
        assert_eq!(
            (dead.status, &dead.body["job"]["id"]),
            (422, &json!(job)),
            "{}",
            dead.body
        );
    }
    let first = hook.next();
    let body = first.json();
    let queue = &body["queue"];
    assert_eq!(
        (
            &queue["stream"],
            &queue["dead_jobs"],
            &queue["last_dead_job"]
        ),
        (&json!("orders"), &json!(1), &json!(1)),
        "{body:#}"
    );
    assert_eq!(
        (&queue["error"]["code"], first.header("rapidbyte-event")),
        (&json!("value_does_not_fit"), Some("failure"))
    );
    first.answer("200 OK");
    // The other two are one message, which is due in a minute.
    let waits = until(&mut client, "orders", |notify| notify["waiting"] == 1);
    assert!(waits["last_failure"].is_null(), "{waits}");
    server.stop();
    let store = rusqlite::Connection::open(folder.path().join("server/runs.db")).expect("a store");
    let body: String = store
        .query_row("SELECT body FROM message", [], |row| row.get(0))
        .expect("a message");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (&body["queue"]["dead_jobs"], &body["queue"]["last_dead_job"]),
        (&json!(2), &json!(3)),
        "{body:#}"
    );
    store.execute("DELETE FROM message", []).expect("deleted");
    drop(store);

    // Nobody listens there: the stream fails again and again, and is told once.
    let server = start(
        folder.path(),
        &text("postgres://x@127.0.0.1:1/x"),
        Log::default(),
    );
    let mut client = Client::new(server.address());
    assert_eq!(
        client
            .post("/v1/ingest/orders/orders", rows, b"{\"id\":1}")
            .status,
        202
    );
    let failing = hook.next();
    let body = failing.json();
    assert_eq!(
        (&body["queue"]["dead_jobs"], &body["queue"]["stream"]),
        (&json!(0), &json!("orders")),
        "{body:#}"
    );
    assert!(body["queue"]["error"]["code"].is_string(), "{body:#}");
    failing.answer("200 OK");
    let limit = Instant::now() + LIMIT;
    loop {
        let shown = client.get("/v1/pipelines/orders").body["pipeline"].clone();
        if shown["streams"][0]["failures"].as_u64() >= Some(3) {
            assert_eq!(shown["notify"]["waiting"], 0, "{shown:#}");
            break;
        }
        assert!(Instant::now() < limit, "{shown:#}");
        std::thread::yield_now();
    }
    assert!(hook.received.try_recv().is_err());
    server.stop();
}

const FOLDER: &str = "RAPIDBYTE_SERVE_NOTIFY";

/// Not a test of its own: the server that the next test kills.
#[test]
fn server_of_a_folder() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let text = std::fs::read_to_string(folder.join("copy.yaml")).expect("a pipeline");
    let server = start(folder, &text, Log::default());
    println!("listens on {}", server.address());
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

#[test]
fn a_server_that_is_killed_while_it_sends_sends_the_same_message_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let hook = Hook::new();
    let text = format!("{}{}", rapidbyte::EXAMPLE, hook.notify());
    std::fs::write(folder.path().join("copy.yaml"), text).expect("a file");
    let spawn = || {
        let variables = [(FOLDER, folder.path().as_os_str())];
        support::spawn("notify::server_of_a_folder", &variables)
    };
    let ids = Cell::new(None);
    for attempt in 0..3 {
        let (mut server, address) = spawn();
        let mut client = Client::new(address);
        if attempt == 0 {
            // The source is missing.
            assert_eq!(
                client
                    .post("/v1/pipelines/copy/runs?wait=true", "", b"")
                    .status,
                422
            );
        }
        let message = hook.next();
        ensure_signed(&message);
        let this = Some((
            message.header("rapidbyte-delivery").map(str::to_owned),
            message.body.clone(),
        ));
        let before = ids.replace(this.clone());
        assert!(before.is_none() || before == this, "{before:?} {this:?}");
        if attempt == 2 {
            message.answer("200 OK");
            until(&mut client, "copy", |notify| notify["waiting"] == 0);
        }
        server.kill().expect("killed");
        server.wait().expect("ended");
    }
    assert!(hook.received.try_recv().is_err());
}

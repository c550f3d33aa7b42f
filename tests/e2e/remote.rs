//! `run --server` and `runs --server`: the program as a client of a server of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, Folder};

/// A test that waits longer fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A server of a folder.
pub(crate) struct Server {
    _program: Ends,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(folder: &Folder, more: &[&str]) -> Self {
        let mut command = folder.command(&["serve", "pipelines", "--drain-seconds", "0"]);
        let mut child = command
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut messages = BufReader::new(child.stderr.take().expect("messages"));
        let mut told = String::new();
        let url = loop {
            let mut line = String::new();
            assert_ne!(messages.read_line(&mut line).expect("UTF-8"), 0, "{told}");
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.trim().to_owned();
            }
            told.push_str(&line);
        };
        // Nobody reads the rest, and the server must not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
        Self {
            _program: Ends(child),
            url,
        }
    }
}

/// A program that a test which fails does not leave.
pub(crate) struct Ends(pub(crate) Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const COPY: &str = "version: 1\npipeline: copy\n\
    source: { use: source-file, config: { path: in.csv }, streams: [in] }\n\
    destination: { use: dest-file, config: { path: 'out/{stream}.jsonl' }, write_mode: replace }\n";
const MANY: &str = "version: 1\npipeline: many\n\
    source: { use: source-generate, config: { preset: narrow, rows: 1000000000000 }, streams: ['*'] }\n\
    destination: { use: dest-file, config: { path: 'out/{stream}.csv' }, write_mode: replace }\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("pipelines/copy.yaml", COPY);
    folder.write("pipelines/many.yaml", MANY);
    folder.write("pipelines/in.csv", "id\n1\n2\n3\n");
    folder
}

pub(crate) fn run(folder: &Folder, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let mut command = folder.command(arguments);
    command.envs(variables.iter().copied());
    command.output().expect("the program starts").into()
}

pub(crate) fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

#[test]
fn a_run_on_a_server_ends_as_a_run_on_this_machine() {
    let folder = folder();
    let server = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
    let of = |arguments: &[&str]| run(&folder, &[("RAPIDBYTE_SERVER", &server.url)], arguments);
    let ended = of(&["run", "copy", "--select", "in"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let local = folder.rapidbyte(&["run", "pipelines/copy.yaml"]);
    assert_eq!(local.code, Some(0), "{}", local.stderr);
    // The same stream, rows, size and place, and the same last line but for the time.
    let parts = |ended: &Ended| {
        let lines: Vec<String> = ended.stdout.lines().map(str::to_owned).collect();
        let stream: Vec<String> = lines[0]
            .split("  ")
            .map(|cell| cell.trim().to_owned())
            .collect();
        let done = lines
            .last()
            .expect("a line")
            .split(" in ")
            .next()
            .expect("rows");
        (
            stream[..3].to_vec(),
            stream.last().cloned(),
            done.to_owned(),
        )
    };
    assert_eq!(
        parts(&ended),
        parts(&local),
        "{}\n{}",
        ended.stdout,
        local.stdout
    );
    assert!(
        ended.stdout.contains("done: 3 rows in "),
        "{}",
        ended.stdout
    );
    assert!(
        ended
            .stderr
            .contains(&format!("run 1 of copy on {}", server.url)),
        "{}",
        ended.stderr
    );

    let document = json(&of(&["run", "copy", "--output", "json", "--full-refresh"]));
    assert_eq!(
        (
            &document["status"],
            &document["rows"],
            &document["run"]["id"]
        ),
        (&"ok".into(), &3.into(), &2.into()),
        "{document:#}"
    );
    assert_eq!(document["run"]["options"]["full_refresh"], true);
    assert_eq!(document["streams"][0]["name"], "in");

    // An error has the code, the hint and the exit code of a run on this machine.
    folder.write("pipelines/in.csv", "id\n1\n2,3\n");
    let (here, there) = (
        folder.rapidbyte(&["run", "pipelines/copy.yaml", "--output", "json"]),
        of(&["run", "copy", "--output", "json"]),
    );
    assert_ne!(there.code, Some(0));
    let (local, remote) = (json(&here), json(&there));
    for key in ["class", "code", "message", "hint", "location", "stream"] {
        assert_eq!(
            remote["error"][key], local["error"][key],
            "{key}: {remote:#}"
        );
    }
    assert_eq!(
        (there.code, &remote["run"]["state"]),
        (here.code, &"failed".into())
    );
    let told = of(&["run", "copy"]);
    let code = local["error"]["code"].as_str().expect("a code");
    assert!(
        told.stderr.contains(&format!("error[{code}]")),
        "{}",
        told.stderr
    );

    let listed = of(&["runs", "copy", "--last", "2"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", listed.stdout);
    assert!(
        lines[1].starts_with("4 ") && lines[1].contains("failed") && lines[1].ends_with(code),
        "{}",
        listed.stdout
    );
    let document = json(&of(&["runs", "copy", "--output", "json"]));
    assert_eq!(
        document["runs"].as_array().map(Vec::len),
        Some(4),
        "{document:#}"
    );
    let unknown = of(&["runs", "any"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("error[unknown_pipeline]"),
        "{}",
        unknown.stderr
    );
    let none = of(&["runs", "many"]);
    assert_eq!(
        (none.code, none.stdout.contains("has no run of many")),
        (Some(0), true)
    );
}

#[test]
fn a_signal_cancels_the_run_on_the_server() {
    let folder = folder();
    let server = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
    let command = folder
        .command(&["run", "-v", "many", "--server", &server.url])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut client = Ends(command.expect("the program starts"));
    let messages = BufReader::new(client.0.stderr.take().expect("messages"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in messages.lines() {
            // Nobody listens after a test that failed.
            let _ = sender.send(line.expect("UTF-8"));
        }
    });
    let mut told = String::new();
    // A message of the engine, which comes as an event.
    while !told.contains("started") {
        told += &lines.recv_timeout(LIMIT).expect("a message");
    }
    let busy = folder.rapidbyte(&["run", "many", "--server", &server.url]);
    assert_eq!(busy.code, Some(5), "{}", busy.stderr);
    assert!(
        busy.stderr.contains("error[already_running]"),
        "{}",
        busy.stderr
    );
    kill_process(Pid::from_child(&client.0), Signal::INT).expect("a signal");
    let until = Instant::now() + LIMIT;
    // Its end ends its messages.
    let ended = loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) => told += &line,
            Err(error) => break error,
        }
        assert!(Instant::now() < until, "{told}");
    };
    assert_eq!(ended, RecvTimeoutError::Disconnected, "{told}");
    let code = client.0.wait().expect("ended").code();
    assert_eq!(code, Some(130), "{told}");
    assert!(told.contains("cancelling run 1"), "{told}");
    assert!(told.contains("error[cancelled]"), "{told}");
    let runs =
        json(&folder.rapidbyte(&["runs", "many", "--server", &server.url, "--output", "json"]));
    assert_eq!(runs["runs"][0]["state"], "cancelled", "{runs:#}");
}

#[test]
fn a_run_during_which_the_server_dies_names_the_run_that_resumes_it() {
    let folder = folder();
    let server = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
    let url = server.url.clone();
    let command = folder
        .command(&["run", "-v", "many", "--server", &url])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut client = Ends(command.expect("the program starts"));
    let mut messages = BufReader::new(client.0.stderr.take().expect("messages"));
    let mut told = String::new();
    while !told.contains("started") {
        assert_ne!(messages.read_line(&mut told).expect("UTF-8"), 0, "{told}");
    }
    // SIGKILL: no process of the server says how the run ended.
    drop(server);
    let address = url.strip_prefix("http://").expect("a URL");
    let _again = Server::start(&folder, &["--listen", address]);
    messages.read_to_string(&mut told).expect("UTF-8");
    let code = client.0.wait().expect("ended").code();
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("error[interrupted]"), "{told}");
    let hint = format!("run 2 resumes it: rapidbyte runs many --server {url}");
    assert!(told.contains(&hint), "{told}");
}

#[test]
fn a_url_that_names_no_server_is_refused_before_a_connection() {
    let folder = folder();
    for (url, what) in [
        ("http://127.0.0.1:65537", "has a port that does not exist"),
        ("http://127.0.0.1:1#x", "has a fragment"),
        ("http://127.0.0.1:1/x", "has a path"),
    ] {
        for command in ["run", "runs"] {
            let ended = folder.rapidbyte(&[command, "copy", "--server", url]);
            assert_eq!(ended.code, Some(2), "{url}: {}", ended.stderr);
            let text = format!("error[invalid_argument]: the URL of the server {what}");
            assert!(ended.stderr.contains(&text), "{url}: {}", ended.stderr);
        }
    }
}

#[test]
fn options_that_a_server_does_not_take_are_refused_by_name() {
    let folder = folder();
    // Nobody listens there: the options are looked at first.
    let url = "http://127.0.0.1:1";
    for option in [
        &["--limit", "3"][..],
        &["--exclude", "a"],
        &["--dry-run"],
        &["--plan", "p.json"],
        &["--fail-fast"],
        &["--state", "s.db"],
        &["--report", "r.html"],
        &["--env-file", ".env"],
    ] {
        let ended = folder.rapidbyte(&[&["run", "copy", "--server", url], option].concat());
        assert_eq!(ended.code, Some(2), "{option:?} {}", ended.stderr);
        let expected = format!(
            "error[invalid_argument]: {} does not work with a server",
            option[0]
        );
        assert!(
            ended.stderr.contains(&expected),
            "{option:?} {}",
            ended.stderr
        );
    }
    for option in [&["--state", "s.db"][..], &["--page", "r.html"]] {
        let ended = folder.rapidbyte(&[&["runs", "copy", "--server", url], option].concat());
        assert_eq!(ended.code, Some(2), "{option:?} {}", ended.stderr);
        assert!(
            ended.stderr.contains(option[0]),
            "{option:?} {}",
            ended.stderr
        );
    }
    let gone = folder.rapidbyte(&["run", "copy", "--server", url]);
    assert_eq!(gone.code, Some(3), "{}", gone.stderr);
    assert!(
        gone.stderr.contains("error[server_unreachable]"),
        "{}",
        gone.stderr
    );
    for wrong in ["127.0.0.1:1", "https://me:hidden-word@127.0.0.1:1"] {
        let ended = folder.rapidbyte(&["run", "copy", "--server", wrong]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("error[invalid_argument]"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains("hidden-word"), "{}", ended.stderr);
    }
}

#[test]
fn a_token_is_taken_from_its_variable_and_is_not_shown() {
    let folder = folder();
    let made = folder.rapidbyte(&[
        "serve",
        "token",
        "add",
        "--data",
        "pipelines/.rapidbyte/serve",
        "--name",
        "me",
        "--scope",
        "operate:copy",
        "--output",
        "json",
    ]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let secret = made
        .stdout
        .split('"')
        .find(|part| part.starts_with("rb_"))
        .expect("a token");
    let server = Server::start(&folder, &["--listen", "127.0.0.1:0"]);
    let of = |token: &str, name: &str| {
        let variables = [
            ("RAPIDBYTE_SERVER", &*server.url),
            ("RAPIDBYTE_TOKEN", token),
        ];
        run(&folder, &variables, &["run", name])
    };
    let ended = of(secret, "copy");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains(secret));
    for (token, name, code) in [
        ("", "copy", "unauthorized"),
        ("rb_wrong", "copy", "unauthorized"),
        (secret, "many", "scope_missing"),
    ] {
        let refused = of(token, name);
        assert_eq!(refused.code, Some(3), "{token} {}", refused.stderr);
        assert!(
            refused.stderr.contains(&format!("error[{code}]")),
            "{}",
            refused.stderr
        );
        assert!(!refused.stderr.contains(secret));
    }
    let unknown = folder.rapidbyte(&["run", "copy", "--server", &server.url, "--token", secret]);
    assert_eq!(unknown.code, Some(2), "a token is not an argument");
}

/// A server that answers what a test says, one request after the other. Gives the heads of the requests.
fn answers(texts: Vec<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, heads) = channel();
    std::thread::spawn(move || {
        for text in texts {
            let (mut connection, _) = listener.accept().expect("a connection");
            let head = head_of(&connection);
            connection.write_all(text.as_bytes()).expect("sent");
            if sender.send(head).is_err() {
                return;
            }
        }
    });
    (url, heads)
}

/// The head of a request. Its body is not longer than what is read with it.
fn head_of(connection: &TcpStream) -> String {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "{head}");
    }
    let lower = head.to_lowercase();
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    reader.read_exact(&mut vec![0; length]).expect("a body");
    head
}

#[test]
fn a_stream_of_events_that_breaks_is_continued_behind_its_last_line() {
    let folder = Folder::new();
    let body = r#"{"status":"ok","run":{"id":7}}"#;
    let begun = format!(
        "HTTP/1.1 202 Accepted\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let line = |id: u32, text: &str| {
        format!(
            "event: log\nid: {id}\ndata: {{\"from\":\"source-x\",\"level\":\"warn\",\"message\":\"{text}\"}}\n\n"
        )
    };
    let progress = |state: &str, rows: u32| {
        format!(
            "event: progress\ndata: {{\"rows\":{rows},\"bytes\":8,\"streams\":[{{\"name\":\"in\",\"state\":\"{state}\",\
             \"rows\":{rows},\"bytes\":8,\"estimated_rows\":null}}]}}\n\n"
        )
    };
    let end = "event: end\ndata: {\"id\":7,\"state\":\"succeeded\",\"report\":{\"rows\":1,\"total_secs\":1.0}}\n\n";
    let (url, heads) = answers(vec![
        begun,
        format!(
            "{head}: hello\n\n{}{}event: log\nid: 9",
            line(0, "one"),
            line(1, "two")
        ),
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(),
        format!(
            "{head}{}{}{}{end}",
            progress("running", 0),
            line(2, "three"),
            progress("done", 1)
        ),
    ]);
    let ended = folder.rapidbyte(&["run", "shop and more", "--server", &url]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("done: 1 row in 1.000 s"),
        "{}",
        ended.stdout
    );
    for text in ["one", "two", "three"] {
        let found = ended
            .stderr
            .matches(&format!("warn [source-x]: {text}"))
            .count();
        assert_eq!(found, 1, "{text}: {}", ended.stderr);
    }
    assert_eq!(
        ended.stderr.matches("connecting again").count(),
        1,
        "{}",
        ended.stderr
    );
    assert_eq!(
        ended.stderr.matches("in: done, 1 row").count(),
        1,
        "{}",
        ended.stderr
    );
    let heads: Vec<String> = (0..4)
        .map(|_| heads.recv_timeout(LIMIT).expect("a request"))
        .collect();
    assert!(
        heads[0].starts_with("POST /v1/pipelines/shop%20and%20more/runs HTTP/1.1"),
        "{}",
        heads[0]
    );
    assert!(
        !heads[1].to_lowercase().contains("last-event-id"),
        "{}",
        heads[1]
    );
    for head in &heads[2..] {
        assert!(
            head.to_lowercase().contains("\r\nlast-event-id: 1\r\n"),
            "{head}"
        );
    }
}

#[test]
fn another_program_at_the_url_is_named() {
    let folder = Folder::new();
    let (url, _heads) = answers(vec![
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello".into(),
    ]);
    let ended = folder.rapidbyte(&["run", "shop", "--server", &url]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("error[server_unknown]"),
        "{}",
        ended.stderr
    );
}

/// The token does not follow a redirect to another server.
#[test]
fn a_redirect_is_not_followed() {
    let folder = Folder::new();
    let (other, heads) = answers(vec![String::new()]);
    let (url, _heads) = answers(vec![format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {other}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )]);
    let ended = run(
        &folder,
        &[("RAPIDBYTE_TOKEN", "rb_secret")],
        &["run", "shop", "--server", &url],
    );
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("error[server_unknown]"),
        "{}",
        ended.stderr
    );
    assert!(heads.try_recv().is_err());
}

/// The receiver is another server, which takes the message as a body.
#[test]
fn a_receiver_of_messages_is_trusted_by_a_file() {
    let receiver = Folder::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    receiver.write("cert.pem", made.cert.pem());
    receiver.write("key.pem", made.signing_key.serialize_pem());
    let text = "version: 1\npipeline: told\nsource: { use: ingest, streams: [told] }\n\
                destination: { use: dest-file, config: { path: out, format: jsonl }, write_mode: append }\n";
    receiver.write("pipelines/told.yaml", text);
    let tls = [
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "cert.pem",
        "--tls-key",
        "key.pem",
    ];
    let received = Server::start(&receiver, &tls);
    let url = received.url.replace("127.0.0.1", "localhost");
    let folder = folder();
    let file = folder.path().join("pipelines/copy.yaml");
    let text = std::fs::read_to_string(&file).expect("a pipeline");
    let notify = format!("notify: {{ success: \"{url}/v1/ingest/told/told\" }}\n");
    std::fs::write(&file, text + &notify).expect("written");
    let cert = receiver.path().join("cert.pem");
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--notify-ca",
        cert.to_str().expect("UTF-8"),
    ];
    let server = Server::start(&folder, &more);
    let ran = run(&folder, &[], &["run", "copy", "--server", &server.url]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let outbox = || {
        let address = server.url.strip_prefix("http://").expect("an address");
        let mut stream = TcpStream::connect(address).expect("a connection");
        let request = b"GET /v1/pipelines/copy HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let answer: Value = serde_json::from_str(body).expect("JSON");
        answer["pipeline"]["notify"].clone()
    };
    while outbox()["waiting"] != 0 {
        std::thread::yield_now();
    }
    assert_eq!(outbox()["last_failure"], Value::Null);
    let arguments = [
        "serve",
        "pipelines",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "other",
        "--notify-ca",
    ];
    let wrong = run(
        &folder,
        &[],
        &[&arguments[..], &["pipelines/copy.yaml"]].concat(),
    );
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("no certificate"), "{}", wrong.stderr);
}

#[test]
fn a_server_with_a_certificate_of_its_own_is_trusted_by_a_file() {
    let folder = folder();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    folder.write("cert.pem", made.cert.pem());
    folder.write("key.pem", made.signing_key.serialize_pem());
    let more = [
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        "cert.pem",
        "--tls-key",
        "key.pem",
    ];
    let server = Server::start(&folder, &more);
    let url = server.url.replace("127.0.0.1", "localhost");
    let refused = run(&folder, &[], &["run", "copy", "--server", &url]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("error[server_unreachable]"),
        "{}",
        refused.stderr
    );
    let trusted = run(
        &folder,
        &[("RAPIDBYTE_CA_FILE", "cert.pem")],
        &["run", "copy", "--server", &url],
    );
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    let wrong = run(
        &folder,
        &[("RAPIDBYTE_CA_FILE", "key.pem")],
        &["run", "copy", "--server", &url],
    );
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("no certificate"), "{}", wrong.stderr);
}

//! Runs of pipelines with any source: over HTTP, with real connectors, and with servers that are killed.

use std::cell::RefCell;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rapidbyte::{Engine, Environment, Pipeline};
use rapidbyte_serve::{Log, Pipelines, Run, RunState, Runs, RunsError, Server, Settings};
use rapidbyte_testkit::postgres::shared;
use serde_json::Value;

use crate::support::{self, Client};

const JSON: &str = "Content-Type: application/json\r\n";
const HOUR_MS: i64 = 3_600_000;
/// A test that waits longer fails.
const LIMIT: Duration = Duration::from_secs(30);

/// A server with pipelines. Its runs stay readable after its end.
struct Running {
    server: RefCell<Option<Server>>,
    address: SocketAddr,
    runs: Arc<Runs>,
}

impl Running {
    fn stop(&self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }

    fn last(&self, pipeline: Option<&str>, limit: u32) -> Result<Vec<Run>, RunsError> {
        self.runs.last(pipeline, limit)
    }
}

fn start(folder: &Path, texts: &[&str]) -> Running {
    let environment = Environment::from_fn(|_| None).without_env_file();
    let read = |text: &&str| Pipeline::from_str(text, folder, &environment).expect("a pipeline");
    let pipelines = Pipelines::new(texts.iter().map(read)).expect("names");
    let cache = rapidbyte::user_cache().ok();
    let engine = Engine::builder().cache(cache).build().expect("an engine");
    let mut settings = Settings::new(folder);
    settings.drain = Duration::ZERO;
    let server = Server::run(settings, engine, pipelines, Log::default()).expect("a server");
    Running {
        address: server.address(),
        runs: server.runs().expect("runs"),
        server: RefCell::new(Some(server)),
    }
}

fn serve(running: &Running) -> SocketAddr {
    running.address
}

/// `in.csv` with two rows to `out/in.jsonl`.
fn copy(folder: &Path, more: &str) -> String {
    std::fs::write(folder.join("in.csv"), "id\n1\n2\n").expect("a file");
    format!("{}{more}", rapidbyte::EXAMPLE)
}

/// Asks until an answer is as it should be.
fn until(client: &mut Client, path: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let limit = Instant::now() + LIMIT;
    loop {
        let answer = client.get(path);
        if is_right(&answer.body) {
            return answer.body;
        }
        assert!(Instant::now() < limit, "{}", answer.body);
        std::thread::yield_now();
    }
}

/// Follows a run to its end. `seen` gets each event, by its name.
fn follow(address: SocketAddr, id: &Value, mut seen: impl FnMut(&str, &Value)) -> Value {
    follow_behind(address, id, "", |name, _, data| seen(name, data))
}

/// The same with headers. `seen` also gets the numbers of lines.
fn follow_behind(
    address: SocketAddr,
    id: &Value,
    headers: &str,
    mut seen: impl FnMut(&str, &str, &Value),
) -> Value {
    let stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let mut client = std::io::BufReader::new(stream);
    let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    client
        .get_mut()
        .write_all(request.as_bytes())
        .expect("sent");
    // A run that does not end tells its progress for ever.
    let until = Instant::now() + LIMIT;
    let (mut line, mut name, mut number) = (String::new(), String::new(), String::new());
    loop {
        line.clear();
        assert!(Instant::now() < until, "the run does not end");
        assert!(
            client.read_line(&mut line).expect("a line") > 0,
            "the stream ended"
        );
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.trim().to_owned();
            number.clear();
        }
        if let Some(id) = line.strip_prefix("id: ") {
            number = id.trim().to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).expect("JSON");
            seen(&name, &number, &data);
            if name == "end" {
                // The body of the answer ends with the run.
                let mut rest = [0; 8];
                client.read_exact(&mut rest).expect("the end");
                assert!(rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
                return data;
            }
        }
    }
}

#[test]
fn a_request_becomes_a_run_with_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = start(folder.path(), &[&copy(folder.path(), "")]);
    let mut client = Client::new(serve(&runs));
    let ended = client.post("/v1/pipelines/copy/runs?wait=true", "", b"");
    let run = &ended.body["run"];
    assert_eq!(
        (ended.status, &run["state"], &run["rows"]),
        (200, &"succeeded".into(), &2.into()),
        "{run:#}"
    );
    assert_eq!(
        (&run["trigger"], &run["report"]["status"]),
        (&"manual".into(), &"ok".into())
    );
    assert_eq!(run["report"]["streams"][0]["rows"], 2);
    assert!(
        ended.head.contains("location: /v1/runs/1\r\n"),
        "{}",
        ended.head
    );
    let moved = std::fs::read_to_string(folder.path().join("out/in.jsonl")).expect("a file");
    assert_eq!(moved.lines().count(), 2);
    // A part of the pipeline, and one that it does not have.
    let some = br#"{"select": ["in"], "full_refresh": true}"#;
    let some = client.post("/v1/pipelines/copy/runs?wait=true", JSON, some);
    assert_eq!(
        (some.status, &some.body["run"]["options"]["select"][0]),
        (200, &"in".into()),
        "{}",
        some.body
    );
    let none = client.post(
        "/v1/pipelines/copy/runs?wait=true",
        JSON,
        br#"{"select": ["out"]}"#,
    );
    let error = &none.body["run"]["error"];
    assert_eq!(
        (none.status, &none.body["run"]["state"]),
        (422, &"failed".into())
    );
    assert!(
        error["code"].is_string() && error["hint"].is_string(),
        "{error:#}"
    );
    for limit in ["0", "1001", "-1", "+1", "01", "many"] {
        let refused = client.get(&format!("/v1/runs?limit={limit}"));
        let error = &refused.body["error"];
        assert_eq!(
            (refused.status, &error["code"]),
            (400, &"invalid_query".into()),
            "{error}"
        );
        let limit = limit.replace('+', " ");
        let text = format!("limit={limit:?} is not a whole number from 1 to 1000");
        assert_eq!(error["message"], text);
    }
    let address = runs_address(&mut client);
    let text = crate::pages::get(address, "/v1/runs?limit=2", "").text;
    assert!(text.ends_with("}\n"), "{text:?}");
    let page = client.get("/v1/runs?limit=2");
    let ids: Vec<_> = page.body["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| run["id"].clone())
        .collect();
    assert_eq!(
        (ids, &page.body["next"]),
        (vec![3.into(), 2.into()], &2.into())
    );
    let rest = client.get("/v1/runs?before=2&pipeline=copy&state=succeeded");
    assert_eq!(
        (&rest.body["runs"][0]["id"], &rest.body["next"]),
        (&1.into(), &Value::Null)
    );
    assert_eq!(client.get("/v1/runs/1").body["run"]["report"]["rows"], 2);
    // An id has one spelling.
    for path in ["/v1/runs/01", "/v1/runs/+1", "/v1/runs/01/events"] {
        let other = client.get(path);
        assert_eq!(
            (other.status, &other.body["error"]["code"]),
            (404, &"unknown_run".into()),
            "{path}"
        );
    }
    // The events of a run that has ended are its end.
    let end = follow(runs_address(&mut client), &1.into(), |name, _| {
        assert_eq!(name, "end")
    });
    assert_eq!(end["state"], "succeeded");
    let large = vec![b' '; 70 << 10];
    for (path, body, status, code) in [
        ("/v1/pipelines/none/runs", &b""[..], 404, "unknown_pipeline"),
        ("/v1/pipelines/copy/runs", b"{", 400, "invalid_options"),
        (
            "/v1/pipelines/copy/runs",
            b"[[\"rows\"], true]",
            400,
            "invalid_options",
        ),
        (
            "/v1/pipelines/copy/runs",
            b"{\"limit\": 1}",
            400,
            "invalid_options",
        ),
        (
            "/v1/pipelines/copy/runs",
            b"{\"select\": [\"\"]}",
            400,
            "invalid_options",
        ),
        ("/v1/runs/9/cancel", b"", 404, "unknown_run"),
        ("/v1/runs/1/cancel", b"", 409, "run_ended"),
        ("/v1/pipelines/copy/runs", &large, 413, "body_too_large"),
    ] {
        let refused = client.post(path, JSON, body);
        assert_eq!(
            (refused.status, &refused.body["error"]["code"]),
            (status, &code.into()),
            "{}",
            refused.body
        );
        assert!(refused.body["error"]["hint"].is_string());
    }
    runs.stop();
}

fn runs_address(client: &mut Client) -> SocketAddr {
    client.0.get_mut().peer_addr().expect("an address")
}

#[test]
fn a_run_is_followed_and_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = start(folder.path(), &[rapidbyte::EXAMPLE_OF_MANY_ROWS]);
    let address = serve(&runs);
    let mut client = Client::new(address);
    let begun = client.post("/v1/pipelines/many/runs", "", b"");
    assert_eq!(begun.status, 202, "{}", begun.body);
    let second = client.post("/v1/pipelines/many/runs", "", b"");
    assert_eq!(
        (second.status, &second.body["error"]["code"]),
        (409, &"already_running".into())
    );
    let (mut numbers, mut is_cancelled) = (Vec::new(), false);
    let id = &begun.body["run"]["id"];
    // A client that comes back has the first line already.
    let come_back = |id: Value| {
        std::thread::spawn(move || {
            let mut numbers = Vec::new();
            let last = "Last-Event-ID: 0\r\n";
            follow_behind(address, &id, last, |_, number, _| {
                numbers.push(number.to_owned())
            });
            numbers
        })
    };
    let mut back = None;
    let end = follow_behind(address, id, "", |name, number, data| {
        if name == "log" {
            numbers.push(number.to_owned());
            back.get_or_insert_with(|| come_back(id.clone()));
        }
        if name == "progress" && data["rows"].as_u64() > Some(0) && !is_cancelled {
            let shown = client.get(&format!("/v1/runs/{id}"));
            assert!(
                shown.body["run"]["progress"]["streams"][0]["rows"].as_u64() > Some(0),
                "{}",
                shown.body
            );
            let cancelled = client.post(&format!("/v1/runs/{id}/cancel"), "", b"");
            assert_eq!(cancelled.status, 202, "{}", cancelled.body);
            is_cancelled = true;
        }
    });
    assert_eq!(
        (&end["state"], &end["error"]["code"]),
        (&"cancelled".into(), &"cancelled".into()),
        "{end:#}"
    );
    assert_eq!(
        (numbers.first().map(String::as_str), is_cancelled),
        (Some("0"), true)
    );
    let back = back.expect("a client").join().expect("a client");
    assert!(!back.contains(&"0".to_owned()), "{back:?}");
    let again = client.post(&format!("/v1/runs/{id}/cancel"), "", b"");
    assert_eq!(
        (again.status, &again.body["error"]["code"]),
        (409, &"run_ended".into())
    );
    runs.stop();
}

#[test]
fn a_newer_run_replaces_the_one_at_work() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "version: 1\npipeline: many\nwhen_running: replace\n\
         source: {{ use: source-generate, config: {{ preset: narrow, rows: 1000000000000 }}, streams: ['*'] }}\n\
         destination: {{ use: dest-postgres, config: {{ url: \"{}\" }}, write_mode: append }}\n",
        database.url()
    );
    let runs = start(folder.path(), &[&text]);
    let address = serve(&runs);
    let mut client = Client::new(address);
    assert_eq!(client.post("/v1/pipelines/many/runs", "", b"").status, 202);
    let works = |id: u32| {
        move |body: &Value| {
            let run = &body["run"];
            assert!(run["id"] == id && run["error"].is_null(), "{run:#}");
            run["progress"]["rows"].as_u64() > Some(0)
        }
    };
    until(&mut client, "/v1/runs/1", works(1));
    assert_eq!(client.post("/v1/pipelines/many/runs", "", b"").status, 202);
    let first = follow(address, &1.into(), |_, _| ());
    assert_eq!(
        (&first["state"], &first["error"]["code"]),
        (&"cancelled".into(), &"run_replaced".into()),
        "{first:#}"
    );
    until(&mut client, "/v1/runs/2", works(2));
    runs.stop();
    assert_eq!(
        runs.last(None, 2).expect("runs")[1].state,
        RunState::Interrupted
    );
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    since.as_millis() as i64
}

/// As if the server had been down since some hours.
fn set_back(folder: &Path, hours: i64) {
    let store = rusqlite::Connection::open(folder.join("runs.db")).expect("a store");
    let changed = store.execute(
        "UPDATE schedule SET last_ms = last_ms - ?1",
        [hours * HOUR_MS],
    );
    assert_eq!(changed.expect("a schedule"), 1);
}

/// Starts and stops, so that the schedule is known.
fn begin_schedule(folder: &Path, text: &str) {
    let runs = start(folder, &[text]);
    let store = rusqlite::Connection::open(folder.join("runs.db")).expect("a store");
    let known = || {
        store.query_row("SELECT count(*) FROM schedule", [], |row| {
            row.get::<_, i64>(0)
        })
    };
    while known().expect("a store") == 0 {
        std::thread::yield_now();
    }
    runs.stop();
    assert_eq!(runs.last(None, 1).expect("runs"), []);
}

#[test]
fn a_restart_runs_each_missed_time_and_the_next_restart_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = copy(
        folder.path(),
        "schedule: { cron: '17 * * * *', timezone: Europe/Berlin, catchup: all }\n",
    );
    begin_schedule(folder.path(), &text);
    set_back(folder.path(), 3);
    let runs = start(folder.path(), &[&text]);
    let mut client = Client::new(serve(&runs));
    let all = until(&mut client, "/v1/runs?state=succeeded", |body| {
        body["runs"].as_array().is_some_and(|runs| runs.len() == 3)
    });
    let all = all["runs"].as_array().expect("runs");
    for pair in all.windows(2) {
        let time = |run: &Value| run["scheduled_ms"].as_i64().expect("a time");
        assert_eq!(time(&pair[0]) - time(&pair[1]), HOUR_MS);
        // One after the other, in their order.
        assert!(
            pair[0]["started_ms"].as_i64() >= pair[1]["ended_ms"].as_i64(),
            "{pair:#?}"
        );
    }
    let newest = all[0]["scheduled_ms"].as_i64().expect("a time");
    assert!((0..HOUR_MS).contains(&(now_ms() - newest)), "{newest}");
    runs.stop();
    let runs = start(folder.path(), &[&text]);
    let ended = Client::new(serve(&runs)).post("/v1/pipelines/copy/runs?wait=true", "", b"");
    assert_eq!((ended.status, &ended.body["run"]["id"]), (200, &4.into()));
    runs.stop();
}

#[test]
fn a_run_of_the_schedule_that_takes_too_long_is_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let schedule = "schedule: { cron: '17 * * * *', timeout_seconds: 1 }\n";
    let text = format!("{}{schedule}", rapidbyte::EXAMPLE_OF_MANY_ROWS);
    begin_schedule(folder.path(), &text);
    set_back(folder.path(), 5);
    let runs = start(folder.path(), &[&text]);
    let address = serve(&runs);
    until(&mut Client::new(address), "/v1/runs/1", |body| {
        body["status"] == "ok"
    });
    let end = follow(address, &1.into(), |_, _| ());
    assert_eq!(
        (&end["state"], &end["error"]["code"]),
        (&"failed".into(), &"run_timeout".into()),
        "{end:#}"
    );
    assert_eq!(end["trigger"], "schedule");
    // One run for five times.
    runs.stop();
    assert_eq!(runs.last(None, 9).expect("runs").len(), 1);
}

const FOLDER: &str = "RAPIDBYTE_SERVE_SCHEDULES";

/// Not a test of its own: the server that the next test kills.
#[test]
fn server_of_a_folder() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let runs = start(folder, &[rapidbyte::EXAMPLE_OF_MANY_ROWS]);
    println!("listens on {}", serve(&runs));
    // Until it is killed.
    loop {
        std::thread::park();
    }
}

#[test]
fn a_run_of_a_server_that_is_killed_is_interrupted_and_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let spawn = || {
        let variables = [(FOLDER, folder.path().as_os_str())];
        support::spawn("schedules::server_of_a_folder", &variables)
    };
    for kills in 0..3 {
        let (mut server, address) = spawn();
        let mut client = Client::new(address);
        if kills == 0 {
            assert_eq!(client.post("/v1/pipelines/many/runs", "", b"").status, 202);
        }
        let id = kills + 1;
        let works = until(&mut client, &format!("/v1/runs/{id}"), |body| {
            body["run"]["progress"]["rows"].as_u64() > Some(0)
        });
        let run = &works["run"];
        assert_eq!(
            (&run["state"], &run["attempt"]),
            (&"running".into(), &id.into()),
            "{run:#}"
        );
        let resumes = if kills == 0 {
            Value::Null
        } else {
            kills.into()
        };
        assert_eq!(
            (&run["resumes"], &run["trigger"]),
            (&resumes, &"manual".into())
        );
        let page = client.get("/v1/runs?state=interrupted");
        assert_eq!(page.body["runs"].as_array().map(Vec::len), Some(kills));
        server.kill().expect("killed");
        server.wait().expect("ended");
    }
}

//! Pages and metrics of runs, over real connections and with real connectors.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rapidbyte::{Engine, Environment, Pipeline};
use rapidbyte_serve::{Log, NewToken, Pipelines, Scope, Server, Settings, TokenFile};

use crate::pages::{HOSTILE, HTML, Shown, browser, get, location, post, samples};

/// A test that waits longer fails.
const LIMIT: Duration = Duration::from_secs(20);
/// Once a year: no run of the schedule begins during a test that does not run at this moment.
const SCHEDULE: &str = "schedule: { cron: '30 2 29 2 *', timezone: Europe/Berlin }\n";

/// A server of `copy`, which has two rows and a schedule, and of `many`, which does not end.
fn start(folder: &Path) -> Server {
    let files = folder.join("pipelines");
    std::fs::create_dir_all(&files).expect("a folder");
    std::fs::write(files.join("in.csv"), "id\n1\n2\n").expect("a file");
    let copy = format!("{}{SCHEDULE}", rapidbyte::EXAMPLE);
    std::fs::write(files.join("copy.yaml"), copy).expect("a file");
    let many = rapidbyte::EXAMPLE_OF_MANY_ROWS;
    std::fs::write(files.join("many.yaml"), many).expect("a file");
    let cache = rapidbyte::user_cache().ok();
    let engine = Engine::builder().cache(cache).build().expect("an engine");
    let pipelines = Pipelines::of_folder(&files, |path| {
        Pipeline::from_file(path, &Environment::from_fn(|_| None).without_env_file())
    });
    let mut settings = Settings::new(&folder.join("server"));
    settings.drain = Duration::ZERO;
    Server::run(settings, engine, pipelines, Log::default()).expect("a server")
}

/// Asks until a page has this text.
fn until(address: SocketAddr, path: &str, headers: &str, text: &str) -> String {
    let limit = Instant::now() + LIMIT;
    loop {
        let page = get(address, path, headers);
        if page.text.contains(text) {
            return page.text;
        }
        assert!(Instant::now() < limit, "no {text}: {}", page.text);
        std::thread::yield_now();
    }
}

#[track_caller]
fn assert_has(page: &Shown, parts: &[&str]) {
    assert_eq!(page.status, 200, "{}", page.text);
    for part in parts {
        assert!(page.text.contains(part), "no {part}: {}", page.text);
    }
    assert!(!page.text.contains(HOSTILE), "{}", page.text);
}

#[test]
fn pages_show_runs_and_their_forms_begin_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let address = server.address();
    let begun = post(address, "/pipelines/copy/run", "", "select=");
    assert_eq!((begun.status, location(&begun)), (303, "/runs/1"));
    let ended = until(address, "/runs/1", HTML, ">succeeded<");
    for part in [
        "the whole pipeline",
        "action=\"/runs/1/again\"",
        "Where the time went",
        "class=\"lane\"",
        "<i class=\"outside\"",
        "out/in.jsonl",
        "data-name=\"rows\">2</td>",
    ] {
        assert!(ended.contains(part), "no {part}: {ended}");
    }
    assert!(
        !ended.contains("data-run") && !ended.contains("data-live"),
        "{ended}"
    );
    // Patterns that match nothing fail the run, and are shown as they were typed.
    let form =
        "select=%3Cscript%3Ealert(1)%3C%2Fscript%3E%0D%0A+other+%0D%0A%0D%0A&full_refresh=true";
    let begun = post(address, "/pipelines/copy/run", "", form);
    assert_eq!((begun.status, location(&begun)), (303, "/runs/2"));
    until(address, "/runs/2", HTML, ">failed<");
    let options =
        "<code>&lt;script&gt;alert(1)&lt;/script&gt;</code>, <code>other</code>; full refresh";
    let failed = get(address, "/runs/2", HTML);
    assert_has(
        &failed,
        &[
            options,
            "Why the run failed",
            "class=\"hint\"",
            "unknown_selection",
        ],
    );
    let again = post(address, "/runs/2/again", "", "");
    assert_eq!((again.status, location(&again)), (303, "/runs/3"));
    until(address, "/runs/3", HTML, options);
    until(address, "/runs/3", HTML, ">failed<");
    for (path, parts) in [
        (
            "/",
            &[
                "href=\"/runs\"",
                "<code class=\"cron\">30 2 29 2 *</code> Europe/Berlin",
                "class=\"spark\"",
                "2 rows; 0 rows, failed",
                "href=\"/runs/3\"",
                "queued runs",
            ][..],
        ),
        (
            "/pipelines/copy",
            &[
                "-02-29 02:30 CET",
                "-02-29 01:30:00 UTC",
                "on time",
                "action=\"/pipelines/copy/run\"",
                "name=\"full_refresh\"",
                "/runs?pipeline=copy&amp;state=failed",
                "href=\"/runs/1\"",
            ],
        ),
        ("/pipelines/many", &["none: a request begins a run"]),
        (
            "/runs",
            &[
                "href=\"/runs/1\"",
                "href=\"/runs/3\"",
                "manual",
                "unknown_selection",
            ],
        ),
        (
            "/runs?pipeline=copy&state=failed",
            &["href=\"/runs/2\"", "selected>failed"],
        ),
        ("/runs?before=2", &["href=\"/runs/1\"", "Newest runs"]),
        ("/runs?state=queued", &["No run is like this."]),
    ] {
        assert_has(&get(address, path, HTML), parts);
    }
    let failed = get(address, "/runs?state=failed", HTML);
    assert!(!failed.text.contains("href=\"/runs/1\""), "{}", failed.text);
    // What does not work is an error page.
    for (path, form, status, code) in [
        ("/runs/1/cancel", "", 409, "run_ended"),
        ("/runs/99/again", "", 404, "unknown_run"),
        ("/pipelines/none/run", "select=", 404, "unknown_pipeline"),
        ("/pipelines/copy/run", "full_refresh=x", 422, "invalid_form"),
    ] {
        let page = post(address, path, HTML, form);
        assert!(page.text.contains(code), "{path}: {}", page.text);
        assert!(page.text.starts_with("<!doctype html>"), "{}", page.text);
        assert_eq!(page.status / 100, status / 100, "{path}: {}", page.text);
    }
    for path in ["/runs?state=lost", "/runs?x=1"] {
        assert_eq!(get(address, path, HTML).status, 400);
    }
    let foreign = "Origin: http://evil.example\r\n";
    let foreign = post(address, "/pipelines/copy/run", foreign, "select=");
    assert_eq!(foreign.status, 403);
    server.stop();
}

#[test]
fn a_run_at_work_is_shown_as_it_goes_and_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let address = server.address();
    let begun = post(address, "/pipelines/many/run", "", "select=");
    assert_eq!(begun.status, 303);
    // Without the script, the page shows what it is told so far.
    let page = until(
        address,
        "/runs/1",
        HTML,
        "<span class=\"badge running\">running</span></td>",
    );
    for part in [
        "data-run=\"1\"",
        "id=\"progress-table\"",
        "id=\"log\"",
        "action=\"/runs/1/cancel\"",
    ] {
        assert!(page.contains(part), "no {part}: {page}");
    }
    let second = post(address, "/pipelines/many/run", HTML, "select=");
    assert_eq!(second.status, 409);
    assert!(second.text.contains("already_running"), "{}", second.text);
    let list = get(address, "/", HTML);
    assert_has(&list, &["<dt>runs at work</dt><dd>1</dd>"]);
    let cancelled = post(address, "/runs/1/cancel", "", "");
    assert_eq!((cancelled.status, location(&cancelled)), (303, "/runs/1"));
    until(address, "/runs/1", HTML, "Why the run was cancelled");
    let page = until(address, "/runs/1", HTML, "action=\"/runs/1/again\"");
    assert!(!page.contains("data-run"), "{page}");
    server.stop();
}

#[test]
fn a_token_sees_the_runs_of_its_pipelines() {
    use base64::Engine as _;
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("server");
    std::fs::create_dir_all(&state).expect("a folder");
    let basic = |scope: &str| {
        let new = NewToken {
            name: "test".into(),
            scopes: vec![Scope::try_from(scope.to_owned()).expect("a scope")],
            requests_per_second: None,
            bytes_per_second: None,
            rows_per_second: None,
            open_jobs: None,
        };
        let secret = TokenFile::of(&state).add(new).expect("a token").1;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("me:{secret}"));
        format!("{HTML}Authorization: Basic {basic}\r\n")
    };
    let (reader, of_many) = (basic("read"), basic("read:many"));
    let (operator, of_copy) = (basic("operate"), basic("operate:copy"));
    let server = start(folder.path());
    let address = server.address();
    for (who, headers, expected) in [
        ("read", &reader, 403),
        ("read:many", &of_many, 403),
        ("operate:copy", &of_copy, 303),
    ] {
        let begun = post(address, "/pipelines/copy/run", headers, "select=");
        assert_eq!(begun.status, expected, "{who}");
    }
    until(address, "/runs/1", &reader, ">succeeded<");
    let paths = ["/runs", "/runs?pipeline=copy", "/runs/1", "/pipelines/copy"];
    for (who, headers, expected) in [
        ("read", &reader, [200; 4]),
        ("operate", &operator, [200; 4]),
        ("operate:copy", &of_copy, [200; 4]),
        ("read:many", &of_many, [200, 403, 404, 403]),
    ] {
        let found = paths.map(|path| get(address, path, headers).status);
        assert_eq!(found, expected, "{who}");
    }
    for path in ["/", "/runs"] {
        let page = get(address, path, &of_many);
        assert!(!page.text.contains("copy"), "{path}: {}", page.text);
        assert!(!page.text.contains("queued runs"), "{path}: {}", page.text);
    }
    let seen = get(address, "/runs", &of_copy);
    assert!(seen.text.contains("href=\"/runs/1\""), "{}", seen.text);
    for path in ["/runs/1", "/pipelines/copy"] {
        let page = get(address, path, &reader);
        assert!(!page.text.contains("<form"), "{path}: {}", page.text);
    }
    assert_eq!(post(address, "/runs/1/again", &reader, "").status, 403);
    assert_eq!(post(address, "/runs/1/cancel", &reader, "").status, 403);
    assert_eq!(post(address, "/runs/1/again", &of_many, "").status, 404);
    assert_eq!(post(address, "/runs/1/again", &operator, "").status, 303);
    server.stop();
}

#[test]
fn rejects_are_shown_and_their_values_only_to_operators() {
    use base64::Engine as _;
    let folder = tempfile::tempdir().expect("a folder");
    let files = folder.path().join("pipelines");
    std::fs::create_dir_all(&files).expect("a folder");
    let rows = "{\"id\":1}\n{\"id\":\"<script>alert(1)</script>\"}\n{\"id\":\"two\"}\n{\"id\":4}\n";
    std::fs::write(files.join("rows.jsonl"), rows).expect("a file");
    let text = "version: 1\npipeline: typed\n\
                source: { use: source-file, config: { path: rows.jsonl, schema: { id: int64 } }, streams: [rows] }\n\
                destination: { use: dest-file, config: { path: 'typed/{stream}/{part}.jsonl' }, write_mode: append }\n\
                rejects: { max_rows: 10, to: rejects }\n";
    std::fs::write(files.join("typed.yaml"), text).expect("a file");
    let state = folder.path().join("server");
    std::fs::create_dir_all(&state).expect("a folder");
    let basic = |scope: &str| {
        let new = NewToken {
            name: "test".into(),
            scopes: vec![Scope::try_from(scope.to_owned()).expect("a scope")],
            requests_per_second: None,
            bytes_per_second: None,
            rows_per_second: None,
            open_jobs: None,
        };
        let secret = TokenFile::of(&state).add(new).expect("a token").1;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("me:{secret}"));
        format!("{HTML}Authorization: Basic {basic}\r\n")
    };
    let (reader, operator, other) = (basic("read"), basic("operate:typed"), basic("read:copy"));
    let server = start(folder.path());
    let address = server.address();
    post(address, "/pipelines/typed/run", &operator, "select=");
    until(address, "/runs/1", &reader, ">succeeded<");
    let run = get(address, "/runs/1", &reader);
    assert_has(&run, &["data-name=\"rejects\">2</td>"]);
    let pipeline = get(address, "/pipelines/typed", &reader);
    assert_has(&pipeline, &["href=\"/pipelines/typed/rejects\""]);
    let path = "/pipelines/typed/rejects";
    let counts = "data-name=\"rejects\">2</td>";
    let seen = get(address, path, &operator);
    assert_has(
        &seen,
        &[counts, "rows.jsonl", "two", "&lt;script&gt;", ">record<"],
    );
    let seen = get(address, path, &reader);
    assert_has(&seen, &[counts, "rows.jsonl", "2 in all"]);
    for value in ["two", "&lt;script&gt;", ">record<"] {
        assert!(!seen.text.contains(value), "{value}: {}", seen.text);
    }
    assert_eq!(get(address, path, &other).status, 403);
    let none = get(address, "/pipelines/copy/rejects", &other);
    assert_eq!(none.status, 404);
    assert!(none.text.contains("no_rejects"), "{}", none.text);
    server.stop();
}

#[test]
fn metrics_tell_how_scheduled_pipelines_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let address = server.address();
    let before = samples(&get(address, "/metrics", "").text);
    let success = "rapidbyte_runs_last_success_timestamp_seconds{pipeline=\"copy\"}";
    assert_eq!(before.get(success), None);
    post(address, "/pipelines/copy/run", "", "select=");
    until(address, "/runs/1", HTML, ">succeeded<");
    post(address, "/pipelines/copy/run", "", "select=none");
    until(address, "/runs/2", HTML, ">failed<");
    post(address, "/pipelines/many/run", "", "select=");
    until(address, "/runs/3", HTML, ">running<");
    // A run is counted just after its end is recorded.
    for state in ["succeeded", "failed"] {
        let counted =
            format!("rapidbyte_runs_ended_total{{pipeline=\"copy\",state=\"{state}\"}} 1\n");
        until(address, "/metrics", "", &counted);
    }
    let text = get(address, "/metrics", "").text;
    let found = samples(&text);
    for (series, expected) in [
        ("runs_running{pipeline=\"copy\"}", Some(0.0)),
        ("runs_running{pipeline=\"many\"}", Some(1.0)),
        ("runs_queued{pipeline=\"many\"}", Some(0.0)),
        (
            "runs_last_success_timestamp_seconds{pipeline=\"many\"}",
            None,
        ),
        ("schedule_lag_seconds{pipeline=\"copy\"}", Some(0.0)),
        ("schedule_lag_seconds{pipeline=\"many\"}", None),
        ("schedule_next_run_seconds{pipeline=\"many\"}", None),
        ("runs_store_up", Some(1.0)),
    ] {
        let series = format!("rapidbyte_{series}");
        assert_eq!(found.get(&series).copied(), expected, "{series}: {text}");
    }
    // The last second of the year 2025, as a date in the past of each test.
    assert!(found[success] > 1_767_225_599.0, "{text}");
    let next = found["rapidbyte_schedule_next_run_seconds{pipeline=\"copy\"}"];
    assert!(next > 0.0 && next < 8.0 * 366.0 * 86_400.0, "{text}");
    server.stop();
}

#[test]
fn a_browser_follows_a_run_to_its_end() {
    let Some(browser) = browser() else {
        println!("SKIPPED: no Chromium is installed");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path());
    let address = server.address();
    post(address, "/pipelines/many/run", "", "select=");
    until(address, "/runs/1", HTML, ">running<");
    let profile = folder.path().join("browser");
    // Its time does not pass while it waits for events: it writes the page that follows the end of the run.
    let log = folder.path().join("browser.log");
    let mut drawing = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=10000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("http://{address}/runs/1"))
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("a browser");
    let followed = "rapidbyte_http_requests_total{route=\"/v1/runs/{id}/events\",status=\"2xx\"} 1";
    until(address, "/metrics", "", followed);
    post(address, "/runs/1/cancel", "", "");
    let mut output = drawing.stdout.take().expect("an output");
    let (send, drawn) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut page = String::new();
        let read = output.read_to_string(&mut page);
        // Nobody listens if the test has failed.
        let _ = send.send(read.map(|_| page));
    });
    let page = drawn.recv_timeout(LIMIT);
    // A browser that follows a run for ever ends here.
    let _ = drawing.kill();
    drawing.wait().expect("an end");
    let page = page.expect("a page within the limit").expect("text");
    reader.join().expect("a reader");
    let log = std::fs::read_to_string(log).expect("a log");
    for part in [
        "role=\"status\">The run has ended</span>",
        "Why the run was cancelled",
        "action=\"/runs/1/again\"",
    ] {
        assert!(page.contains(part), "no {part}: {page}\n{log}");
    }
    assert!(!log.contains("CONSOLE"), "{log}");
    server.stop();
}

//! Pages and metrics over real connections.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use rapidbyte::{Engine, Environment, Pipeline};
use rapidbyte_serve::{Log, NewToken, Pipelines, Scope, Server, Settings, TokenFile};
use rapidbyte_testkit::postgres::shared;

use crate::support::{Client, request};

const JSON_LINES: &str = "Content-Type: application/x-ndjson\r\n";
pub const HTML: &str = "Accept: text/html\r\n";
pub const HOSTILE: &str = "<script>alert(1)</script>";

/// A server of the pipelines `orders` and `others` and of a broken file.
fn start(folder: &Path, url: &str) -> Server {
    let pipelines = folder.join("pipelines");
    std::fs::create_dir_all(&pipelines).expect("a folder");
    for (name, streams) in [("orders", "[orders, \"a<b\"]"), ("others", "[others]")] {
        let text = format!(
            "version: 1\npipeline: {name}\n\
             source: {{ use: ingest, config: {{ schema: {{ id: int64 }} }}, streams: {streams} }}\n\
             destination: {{ use: dest-postgres, config: {{ url: \"{url}\" }}, write_mode: append }}\n"
        );
        std::fs::write(pipelines.join(format!("{name}.yaml")), text).expect("written");
    }
    let broken = pipelines.join("broken<i>.yaml");
    std::fs::write(broken, "version: 1\npipeline: [").expect("written");
    let cache = rapidbyte::user_cache().ok();
    let engine = Engine::builder().cache(cache).build().expect("an engine");
    let pipelines = Pipelines::of_folder(&pipelines, |path| {
        Pipeline::from_file(path, &Environment::from_fn(|_| None).without_env_file())
    });
    let settings = Settings::new(&folder.join("server"));
    Server::run(settings, engine, pipelines, Log::default()).expect("a server")
}

pub struct Shown {
    pub status: u16,
    pub head: String,
    pub text: String,
}

/// One request with a connection of its own.
fn send(address: SocketAddr, request: &str) -> Shown {
    let mut client = Client::new(address);
    let stream = client.0.get_mut();
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).expect("an answer");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    Shown {
        status: head[9..12].parse().expect("a status"),
        head: head.to_lowercase(),
        text: text.to_owned(),
    }
}

pub fn get(address: SocketAddr, path: &str, headers: &str) -> Shown {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    send(address, &request)
}

pub fn post(address: SocketAddr, path: &str, headers: &str, form: &str) -> Shown {
    let headers = format!(
        "Connection: close\r\nContent-Type: application/x-www-form-urlencoded\r\n{headers}"
    );
    let request = request(path, &headers, form.as_bytes());
    send(address, &String::from_utf8(request).expect("text"))
}

pub fn location(shown: &Shown) -> &str {
    let place = shown
        .head
        .lines()
        .find_map(|line| line.strip_prefix("location: "));
    place.expect("a place")
}

#[test]
fn pages_show_jobs_and_their_forms_work() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let address = server.address();
    let mut client = Client::new(address);
    let good = client.post(
        "/v1/ingest/orders/orders?wait=true",
        JSON_LINES,
        b"{\"id\":1}",
    );
    assert_eq!(good.status, 200, "{}", good.body);
    // The reason of the dead job has a part of its body.
    let body = format!("{{\"id\":\"{HOSTILE}\"}}");
    let keyed = format!("{JSON_LINES}Idempotency-Key: {HOSTILE}\r\n");
    let dead = client.post(
        "/v1/ingest/orders/orders?wait=true",
        &keyed,
        body.as_bytes(),
    );
    assert_eq!(dead.status, 422, "{}", dead.body);
    for (path, parts) in [
        (
            "/",
            &[
                "href=\"/pipelines/orders\"",
                "ingest → dest-postgres",
                "idle",
                "broken&lt;i&gt;.yaml",
            ][..],
        ),
        (
            "/pipelines/orders",
            &[
                "a&lt;b",
                "1 row of 1 job in",
                "/jobs?pipeline=orders&amp;state=dead",
            ],
        ),
        (
            "/jobs",
            &[
                "href=\"/jobs/1\"",
                "href=\"/jobs/2\"",
                "value_does_not_fit",
                "of 10.0 GiB",
            ],
        ),
        (
            "/jobs?pipeline=orders&state=dead",
            &["href=\"/jobs/2\"", "selected>dead"],
        ),
        ("/jobs?pipeline=others", &["No job is like this."]),
        ("/jobs?before=2", &["href=\"/jobs/1\"", "Newest jobs"]),
        (
            "/jobs/2",
            &[
                "value_does_not_fit",
                "&lt;script&gt;",
                "action=\"/jobs/2/replay\"",
                "<dt>line</dt><dd>1</dd>",
            ],
        ),
        ("/changes", &["Schema changes", "No run has changed"]),
        ("/connectors", &["dest-postgres", "source-file", "connect"]),
        ("/settings", &["127.0.0.1:0", "10.0 GiB", "14 days"]),
    ] {
        let page = get(address, path, HTML);
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert!(
            page.head.contains("content-type: text/html; charset=utf-8"),
            "{}",
            page.head
        );
        assert!(page.head.contains("script-src 'self'"), "{}", page.head);
        assert!(
            !page.text.contains(HOSTILE) && !page.text.contains("a<b"),
            "{path}: {}",
            page.text
        );
        for part in ["<html lang=\"en\">", "class=\"skip\"", "<main id=\"main\""]
            .iter()
            .chain(parts)
        {
            assert!(
                page.text.contains(part),
                "{path} has no {part}: {}",
                page.text
            );
        }
    }
    let second = get(address, "/jobs?state=dead", HTML);
    assert!(!second.text.contains("href=\"/jobs/1\""), "{}", second.text);
    let script = get(address, "/app.js", "");
    assert!(script.head.contains("text/javascript") && script.text.contains("fetch"));
    // Forms lead to the page that shows what they did.
    let replayed = post(address, "/jobs/2/replay", "", "");
    assert_eq!((replayed.status, location(&replayed)), (303, "/jobs/3"));
    let discarded = post(address, "/jobs/2/discard", "", "");
    assert_eq!((discarded.status, location(&discarded)), (303, "/jobs/2"));
    assert!(
        get(address, "/jobs/2", HTML)
            .text
            .contains("not kept any more")
    );
    let again = post(address, "/jobs/2/discard", HTML, "");
    assert_eq!(again.status, 410);
    assert!(again.text.contains("body_forgotten") && again.text.starts_with("<!doctype html>"));
    let retried = post(address, "/pipelines/orders/retry", "", "stream=a%3Cb");
    assert_eq!(
        (retried.status, location(&retried)),
        (303, "/pipelines/orders?did=retry")
    );
    assert!(
        get(address, location(&retried), HTML)
            .text
            .contains("role=\"status\"")
    );
    assert_eq!(
        post(address, "/pipelines/orders/retry", "", "stream=x").status,
        404
    );
    assert_eq!(
        post(address, "/pipelines/orders/retry", "", "x").status,
        400
    );
    // A form of another site does nothing.
    let foreign = post(
        address,
        "/jobs/1/replay",
        "Origin: http://evil.example\r\n",
        "",
    );
    assert_eq!(foreign.status, 403);
    let page = client.get("/v1/jobs?limit=9");
    assert_eq!(
        page.body["jobs"].as_array().map(Vec::len),
        Some(3),
        "{}",
        page.body
    );
    server.stop();
}

#[test]
fn errors_are_pages_for_browsers_and_json_for_programs() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let address = server.address();
    for (path, status) in [
        ("/nothing", 404),
        ("/pipelines/nothing", 404),
        ("/jobs/99", 404),
        ("/jobs/x", 404),
        ("/jobs?state=lost", 400),
        ("/jobs?x=1", 400),
        ("/jobs/1/replay", 405),
    ] {
        let page = get(address, path, HTML);
        assert_eq!(page.status, status, "{path}");
        assert!(
            page.text.starts_with("<!doctype html>"),
            "{path}: {}",
            page.text
        );
        let json = get(address, path, "");
        assert_eq!(json.status, status, "{path}");
        assert!(
            json.text.starts_with("{\"status\":\"error\""),
            "{path}: {}",
            json.text
        );
    }
    let program = get(address, "/v1/nothing", HTML);
    assert!(
        program.text.starts_with("{\"status\":\"error\""),
        "{}",
        program.text
    );
    server.stop();
}

#[test]
fn a_token_sees_the_pages_of_its_scopes() {
    use base64::Engine as _;
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("server");
    std::fs::create_dir_all(&state).expect("a folder");
    let basic = |scopes: &[&str]| {
        let scope = |text: &&str| Scope::try_from((*text).to_owned()).expect("a scope");
        let new = NewToken {
            name: "test".into(),
            scopes: scopes.iter().map(scope).collect(),
            requests_per_second: None,
            bytes_per_second: None,
            rows_per_second: None,
            open_jobs: None,
        };
        let secret = TokenFile::of(&state).add(new).expect("a token").1;
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("me:{secret}"));
        format!("{HTML}Authorization: Basic {basic}\r\n")
    };
    let (reader, others) = (basic(&["read"]), basic(&["read:others"]));
    let (operator, writer) = (basic(&["operate"]), basic(&["ingest"]));
    let server = start(folder.path(), &database.url());
    let address = server.address();
    let mut client = Client::new(address);
    for stream in ["orders", "others"] {
        let path = format!("/v1/ingest/{stream}/{stream}?wait=true");
        let answer = client.post(&path, &format!("{JSON_LINES}{writer}"), b"{}");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let paths = [
        "/",
        "/pipelines/orders",
        "/jobs",
        "/jobs?pipeline=orders",
        "/jobs/1",
        "/changes",
        "/changes?pipeline=orders",
        "/connectors",
        "/settings",
        "/metrics",
    ];
    for (who, headers, expected) in [
        ("nobody", HTML, [401; 10]),
        ("read", &reader, [200; 10]),
        ("operate", &operator, [200; 10]),
        (
            "read:others",
            &others,
            [200, 403, 200, 403, 404, 200, 403, 200, 403, 403],
        ),
        // Who sends a job may follow it.
        (
            "ingest",
            &writer,
            [200, 403, 403, 403, 200, 403, 403, 200, 403, 403],
        ),
    ] {
        let found = paths.map(|path| get(address, path, headers).status);
        assert_eq!(found, expected, "{who}");
    }
    let login = get(address, "/", HTML);
    assert!(
        login.head.contains("www-authenticate: basic"),
        "{}",
        login.head
    );
    assert!(login.text.starts_with("<!doctype html>"), "{}", login.text);
    for path in ["/", "/jobs", "/connectors"] {
        let page = get(address, path, &others);
        let foreign = [
            "/pipelines/orders",
            "orders.<wbr>orders",
            "broken",
            "orders.yaml",
        ];
        assert!(page.text.contains("others"), "{}", page.text);
        assert!(
            !foreign.iter().any(|text| page.text.contains(text)),
            "{}",
            page.text
        );
    }
    assert!(!get(address, "/jobs/1", &reader).text.contains("<form"));
    assert_eq!(post(address, "/jobs/1/replay", &reader, "").status, 403);
    assert_eq!(
        post(address, "/pipelines/orders/retry", &reader, "stream=orders").status,
        403
    );
    assert_eq!(post(address, "/jobs/1/replay", &operator, "").status, 303);
    server.stop();
}

/// The samples of a text by name and labels, after a check of the format (version 0.0.4).
pub fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut help, mut family, mut kind) = ("", "", "");
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').expect("a help").0;
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(help, family, "no help: {line}");
            assert!(families.insert(family), "twice: {family}");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
            assert!(
                family
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{line}"
            );
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        let endings: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let is_of_family = endings
            .iter()
            .any(|ending| name.strip_suffix(ending) == Some(family));
        assert!(is_of_family, "{line} below {family}");
        if let Some(labels) = series
            .strip_prefix(name)
            .filter(|labels| !labels.is_empty())
        {
            check_labels(labels);
        }
        let value = value.parse().expect("a number");
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "twice: {series}"
        );
    }
    samples
}

/// `{name="value",…}`, where a value has no quote, backslash or line break that is not escaped.
fn check_labels(labels: &str) {
    let mut rest = labels.strip_prefix('{').expect("a brace");
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{labels}"
        );
        let mut end = None;
        let mut chars = after.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => assert!(
                    matches!(chars.next(), Some((_, '\\' | '"' | 'n'))),
                    "{labels}"
                ),
                '"' => {
                    end = Some(at + 1);
                    break;
                }
                _ => {}
            }
        }
        rest = &after[end.expect("an end")..];
        match rest {
            "}" => return,
            _ => rest = rest.strip_prefix(',').expect("a comma"),
        }
    }
}

#[test]
fn metrics_count_what_happened() {
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let address = server.address();
    let mut client = Client::new(address);
    let path = "/v1/ingest/orders/orders?wait=true";
    let keyed = format!("{JSON_LINES}Idempotency-Key: k\r\n");
    assert_eq!(
        client.post(path, &keyed, b"{\"id\":1}\n{\"id\":2}").status,
        200
    );
    assert_eq!(
        client.post(path, &keyed, b"{\"id\":1}\n{\"id\":2}").status,
        200
    );
    assert_eq!(client.post(path, JSON_LINES, b"?").status, 422);
    assert_eq!(client.post(path, "", b"{}").status, 415);
    assert_eq!(client.get("/nothing").status, 404);
    let scraped = get(address, "/metrics", HTML);
    assert!(
        scraped
            .head
            .contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{}",
        scraped.head
    );
    let samples = samples(&scraped.text);
    let of = |labels: &str| format!("{{pipeline=\"orders\",stream=\"orders\"{labels}}}");
    let ingest = "route=\"/v1/ingest/{pipeline}/{stream}\"";
    for (series, expected) in [
        (
            "rapidbyte_ingest_bodies_total{outcome=\"admitted\"}".to_owned(),
            2.0,
        ),
        (
            "rapidbyte_ingest_bodies_total{outcome=\"known\"}".to_owned(),
            1.0,
        ),
        (
            "rapidbyte_ingest_refused_total{code=\"unknown_format\"}".to_owned(),
            1.0,
        ),
        ("rapidbyte_ingest_received_bytes_total".to_owned(), 35.0),
        (
            format!("rapidbyte_http_requests_total{{{ingest},status=\"2xx\"}}"),
            2.0,
        ),
        (
            format!("rapidbyte_http_requests_total{{{ingest},status=\"4xx\"}}"),
            2.0,
        ),
        (
            "rapidbyte_http_requests_total{route=\"none\",status=\"4xx\"}".to_owned(),
            1.0,
        ),
        (
            format!("rapidbyte_http_request_duration_seconds_count{{{ingest}}}"),
            4.0,
        ),
        ("rapidbyte_http_connections".to_owned(), 2.0),
        ("rapidbyte_queue_jobs".to_owned(), 0.0),
        ("rapidbyte_queue_jobs_limit".to_owned(), 1e6),
        ("rapidbyte_queue_bytes".to_owned(), 1.0),
        (format!("rapidbyte_dead_jobs{}", of("")), 1.0),
        (
            format!("rapidbyte_runs_total{}", of(",result=\"committed\"")),
            1.0,
        ),
        (
            format!("rapidbyte_runs_total{}", of(",result=\"failed\"")),
            1.0,
        ),
        (format!("rapidbyte_committed_rows_total{}", of("")), 2.0),
        ("rapidbyte_run_duration_seconds_count".to_owned(), 2.0),
        (
            format!("rapidbyte_stream_consecutive_failures{}", of("")),
            0.0,
        ),
        ("rapidbyte_pipelines".to_owned(), 2.0),
        ("rapidbyte_pipelines_with_problem".to_owned(), 0.0),
        ("rapidbyte_pipeline_files_broken".to_owned(), 1.0),
        ("rapidbyte_store_up".to_owned(), 1.0),
    ] {
        assert_eq!(
            samples.get(&series),
            Some(&expected),
            "{series}: {}",
            scraped.text
        );
    }
    for series in ["rapidbyte_disk_free_bytes", "process_start_time_seconds"] {
        assert!(samples[series] > 1e6, "{series}: {}", scraped.text);
    }
    if cfg!(target_os = "linux") {
        assert!(
            samples["process_resident_memory_bytes"] > 1e6,
            "{}",
            scraped.text
        );
    }
    server.stop();
}

/// The name of a browser that can draw a page without a screen.
pub fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|version| version.status.success())
    })
}

#[test]
fn a_browser_runs_the_script_and_reports_no_violation() {
    let Some(browser) = browser() else {
        println!("SKIPPED: no Chromium is installed");
        return;
    };
    let database = shared().database();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(folder.path(), &database.url());
    let drawn = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("browser").display()
        ))
        .arg(format!("http://{}/", server.address()))
        .output()
        .expect("a browser");
    let (page, log) = (
        String::from_utf8_lossy(&drawn.stdout),
        String::from_utf8_lossy(&drawn.stderr),
    );
    // Only the script makes this box, and only if the policy lets it run.
    assert!(
        page.contains("<label class=\"live\"><input type=\"checkbox\">"),
        "{page}\n{log}"
    );
    assert!(!log.contains("CONSOLE"), "{log}");
    server.stop();
}

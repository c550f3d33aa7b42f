//! Servers that are busy, broken or hostile.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::*;

/// Answers `first` once and then well; the rows must come all the same.
#[track_caller]
fn recovers(first: Reply, config: &[&str]) {
    let asked = AtomicU64::new(0);
    let shown = format!("{first:?}");
    let server = Server::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => first.clone(),
        _ => Reply::json(ids(1..=3)),
    });
    let stream = ["schema: { id: int64 not null }"];
    let found = rows(&Folder::new(), &pipeline(&server.url(""), config, &stream));
    assert_eq!(found.len(), 3, "{shown}");
    assert!(server.requests().len() >= 2, "{shown}");
}

#[test]
fn transient_answers_are_retried() {
    recovers(
        Reply::status(429, "slow down").header("retry-after", "0"),
        &[],
    );
    recovers(
        Reply::status(503, "soon").header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
        &[],
    );
    recovers(Reply::status(500, "oops"), &[]);
    // The connection ends before the body does, before the head does, and before anything.
    recovers(Reply::lying(ids(1..=3), 1000), &[]);
    recovers(Reply::raw("HTTP/1.1 200 OK\r\ncontent-le"), &[]);
    recovers(Reply::raw(""), &[]);
    recovers(
        Reply::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n[{\"i"),
        &[],
    );
    recovers(Reply::stalled("[{\"id\""), &["timeout_seconds: 1"]);
}

#[test]
fn a_long_wait_is_reported_and_a_short_wait_is_not() {
    for (after, is_told) in [("0", false), ("1", true)] {
        let asked = AtomicU64::new(0);
        let server = Server::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::status(429, "slow down").header("retry-after", after),
            _ => Reply::json(ids(1..=3)),
        });
        let folder = Folder::new();
        folder.write("p.yaml", pipeline(&server.url(""), &[], &[]));
        let ended = folder.rapidbyte(&["run", "p.yaml"]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let told = ended.stderr.contains("slow down; retries in 1 s");
        assert_eq!(told, is_told, "{}", ended.stderr);
    }
}

#[test]
fn bodies_of_every_framing_are_read() {
    for reply in [
        Reply::chunked(["[{\"id\"", ": 1}", "]"]),
        Reply::until_closed("[{\"id\": 1}]"),
        Reply::json("[{\"id\": 1}]").header("x-long", "y".repeat(20_000)),
    ] {
        let server = Server::start(move |_| reply.clone());
        assert_eq!(
            rows(&Folder::new(), &pipeline(&server.url(""), &[], &[])).len(),
            1
        );
    }
    let empty = Server::start(|_| Reply::status(204, ""));
    let stream = ["schema: { id: int64 }"];
    let report = Folder::new().report(&pipeline(&empty.url(""), &[], &stream));
    assert_eq!(report["rows"], 0);
}

#[test]
fn permanent_failures_have_their_own_codes() {
    let long = Reply::status(429, "tomorrow").header("retry-after", "86400");
    let head = Reply::json("[]").header("x-long", "y".repeat(300_000));
    let many = (0..150).fold(Reply::json("[]"), |reply, n| {
        reply.header(&format!("x-{n}"), "y")
    });
    let no_http = Reply::raw("220 mail.example ESMTP ready\r\n");
    let encoded = Reply::json("[]").header("content-encoding", "gzip");
    for (reply, code, exit, part) in [
        (long, "http_rate_limited", 1, "tomorrow"),
        (
            Reply::status(500, "oops"),
            "http_unavailable",
            1,
            "500: oops",
        ),
        (Reply::status(403, "no"), "http_unauthorized", 3, "403"),
        (
            Reply::status(404, "<html>\r\nno\u{7}</html>"),
            "http_not_found",
            2,
            "404: <html> no </html>",
        ),
        (Reply::status(422, "no"), "http_refused", 2, "422"),
        (Reply::status(304, ""), "http_unexpected_status", 4, "304"),
        (Reply::json("<html>"), "http_not_json", 4, "<html>"),
        (Reply::json("[{\"id\": 1}"), "http_not_json", 4, "page 1"),
        (Reply::json("{\"data\": []}"), "http_no_records", 4, "data"),
        (Reply::json(""), "http_not_json", 4, "JSON"),
        (Reply::lying("[]", 1000), "connection_lost", 3, "127.0.0.1"),
        (Reply::stalled("["), "timeout", 1, "did not arrive"),
        (
            Reply::endless("[1, ".repeat(1000)),
            "http_body_too_large",
            4,
            "max_response_bytes",
        ),
        (head, "http_head_too_large", 4, "64 KiB"),
        (many, "http_head_too_large", 4, "100 headers"),
        (no_http, "http_protocol", 3, "HTTP/1.1"),
        (encoded, "http_encoding", 4, "gzip"),
    ] {
        let shown = format!("{reply:?}");
        println!("{code}: {}", &shown[..shown.len().min(200)]);
        let server = Server::start(move |_| reply.clone());
        let config = [
            "max_retries: 0",
            "timeout_seconds: 1",
            "max_response_bytes: 900kb",
        ];
        let stream = ["schema: { id: int64 }"];
        let text = pipeline(&server.url(""), &config, &stream);
        Folder::new().refuses(&text, code, exit, &[part]);
    }
    let text = pipeline("http://127.0.0.1:1", &["max_retries: 0"], &[]);
    Folder::new().refuses(&text, "connect_failed", 3, &["127.0.0.1:1"]);
}

/// A pipeline whose columns are inferred, and which tries so often.
fn inferred(server: &Server, attempts: u32) -> String {
    let text = pipeline(&server.url(""), &["max_retries: 0"], &[]);
    text.replace("max_attempts: 1", &format!("max_attempts: {attempts}"))
}

#[test]
fn transient_failures_of_planning_are_retried() {
    for broken in [
        Reply::status(500, "oops"),
        Reply::status(429, "slow down").header("retry-after", "0"),
        Reply::raw(""),
    ] {
        let asked = std::sync::Arc::new(AtomicU64::new(0));
        let (count, shown) = (std::sync::Arc::clone(&asked), format!("{broken:?}"));
        let server = Server::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => broken.clone(),
            _ => Reply::json(ids(1..=3)),
        });
        for verb in ["run", "plan", "discover"] {
            asked.store(0, Ordering::SeqCst);
            let folder = Folder::new();
            folder.write("p.yaml", inferred(&server, 2));
            let ended = folder.rapidbyte(&[verb, "p.yaml"]);
            assert_eq!(ended.code, Some(0), "{verb}: {shown}: {}", ended.stderr);
            for part in ["no row has moved yet", "retries in"] {
                assert!(ended.stderr.contains(part), "{verb}: {}", ended.stderr);
            }
            assert!(asked.load(Ordering::SeqCst) >= 2, "{verb}: {shown}");
        }
    }
    // `check` tells how it is now.
    let server = Server::start(|_| Reply::status(500, "oops"));
    let folder = Folder::new();
    folder.write("p.yaml", inferred(&server, 2));
    let ended = folder.rapidbyte(&["check", "p.yaml"]);
    assert!(
        ended.code != Some(0) && !ended.stderr.contains("retries in"),
        "{}",
        ended.stderr
    );
}

#[test]
fn permanent_failures_of_planning_end_the_run() {
    let server = Server::start(|_| Reply::status(500, "oops"));
    Folder::new().refuses(
        &inferred(&server, 2),
        "http_unavailable",
        1,
        &["tried 2 times"],
    );
    assert_eq!(server.requests().len(), 2);
    let server = Server::start(|_| Reply::status(404, "no"));
    Folder::new().refuses(&inferred(&server, 4), "http_not_found", 2, &["404"]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_plan_does_not_wait_for_an_hour() {
    let server = Server::start(|_| Reply::status(429, "later").header("retry-after", "3600"));
    let folder = Folder::new();
    folder.write("p.yaml", pipeline(&server.url(""), &[], &["nested: json"]));
    let ended = folder.rapidbyte(&["plan", "p.yaml"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("http_rate_limited") && ended.stderr.contains("wait 3600 s"),
        "{}",
        ended.stderr
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_long_wait_is_reported_the_same_with_and_without_a_schema() {
    let server = Server::start(|_| Reply::status(429, "tomorrow").header("retry-after", "86400"));
    let told = ["schema: { id: int64 }", "nested: json"].map(|stream| {
        let text = pipeline(&server.url(""), &[], &[stream]);
        let (error, exit) = Folder::new().error(&text);
        assert_eq!(
            (error["code"].as_str(), exit),
            (Some("http_rate_limited"), 1)
        );
        error["message"].clone()
    });
    assert_eq!(told[0], told[1]);
    assert!(
        told[0]
            .to_string()
            .contains("answers 429 and asks to wait 86400 s: tomorrow"),
        "{told:?}"
    );
    // It is not asked again before: the run could wait (`retry`), the connector does not.
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_run_that_waits_for_an_answer_is_interrupted() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let (asked, was_asked) = std::sync::mpsc::channel();
    let server = Server::start(move |_| {
        let _ = asked.send(());
        Reply::stalled("[")
    });
    let folder = Folder::new();
    folder.write(
        "p.yaml",
        pipeline(&server.url(""), &[], &["schema: { id: int64 }"]),
    );
    let mut child = folder
        .command(&["run", "-v", "p.yaml"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    was_asked
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("a request");
    let begun = std::time::Instant::now();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let said: Vec<String> = BufReader::new(child.stderr.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok)
        .collect();
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said:?}");
    // The connector itself would wait for a minute.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn a_busy_server_fails_no_read_of_a_hundred_pages() {
    let asked = AtomicU64::new(0);
    let server = Server::start(move |request| {
        if (asked.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(37) {
            return Reply::status(503, "busy").header("retry-after", "0");
        }
        match number(request, "page") {
            Some(page @ 1..=100) => Reply::json(ids([page])),
            _ => Reply::json("[]"),
        }
    });
    let text = pipeline(&server.url(""), &[], &["pagination: { type: page }"]);
    assert_eq!(rows(&Folder::new(), &text).len(), 100);
}

/// One page that is gone, and one that fails each time.
#[test]
fn a_page_that_cannot_be_sampled_does_not_stop_the_other_streams() {
    let server = Server::start(|request| match request.path.as_str() {
        "/gone" => Reply::status(404, "no"),
        "/fails" => Reply::status(500, "oops"),
        _ => Reply::json(ids(1..=3)),
    });
    let folder = Folder::new();
    let text = inferred(&server, 2)
        .replace("      items:\n        path: items\n", "      items: { path: items }\n      gone: { path: gone }\n      fails: { path: fails }\n")
        .replace("[items]", "[gone, fails, items]")
        + "\n";
    let (error, _) = folder.error(&text);
    let failures = error["failures"].as_array().expect("a list").iter();
    let failures: Vec<_> = failures.map(|f| (&f["stream"], &f["code"])).collect();
    assert_eq!(
        failures,
        [
            (&json!("gone"), &json!("http_not_found")),
            (&json!("fails"), &json!("http_unavailable"))
        ],
        "{error:#}"
    );
    assert_eq!(error["committed"], json!(["items"]), "{error:#}");
    let ended = folder.rapidbyte(&["run", "p.yaml", "--exclude", "gone", "--exclude", "fails"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

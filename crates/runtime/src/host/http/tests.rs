//! Requests against servers of this machine, without a guest.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::pin::Pin;
use std::time::Instant;

use http_body_util::{BodyExt, Empty};
use serde_json::json;
use wasmtime_wasi::runtime::in_tokio;

use super::*;
use crate::{Cancel, Clock, Limits, MemoryBudget};

/// HTTP of an instance whose configuration names `url`, of at most two connections.
fn http(url: &str, cancel: &Cancel) -> Http {
    let schema = json!({"properties": {"url": {"x-grant": "url"}}});
    let config = json!({"url": url});
    let config = config.as_object().expect("an object");
    let sandbox = Sandbox {
        grants: Arc::new(Grants::from_config(&schema, config, Path::new("/"))),
        memory: MemoryBudget::new(1 << 20),
        limits: Limits {
            connections: 2,
            ..Limits::default()
        },
        clock: Clock::new(),
        cancel: cancel.clone(),
        log: Arc::new(|_, _, _, _| {}),
        redact: crate::no_secrets(),
        stream: None,
    };
    Http::new("test", &sandbox, Arc::default())
}

fn request(method: &str, url: &str) -> Request<WasiBody> {
    let body = Empty::new().map_err(|never| match never {});
    let request = Request::builder().method(method).uri(url);
    request.body(body.boxed_unsync()).expect("a request")
}

/// The answer's body, or the error for the guest.
fn ask(
    http: &mut Http,
    method: &str,
    url: &str,
    options: RequestOptions,
) -> Result<String, String> {
    let ended: Ending = Box::new(async { Ok(()) });
    let sent = http
        .requests
        .send_request(request(method, url), Some(options), ended);
    let text = |error: HttpError| match error {
        HttpError::InternalError(Some(text)) => text,
        other => panic!("{other}"),
    };
    in_tokio(async move {
        let (answer, ending) = Pin::from(sent).await.map_err(text)?;
        let body = answer.into_body().collect().await.map_err(text)?;
        Pin::from(ending).await.map_err(text)?;
        Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
    })
}

#[test]
fn a_request_keeps_no_handle() {
    use wasmtime_wasi_http::p2::bindings::http::types::{
        HostFields, HostFutureIncomingResponse, HostOutgoingRequest, HostRequestOptions,
    };

    // The host sends no request: the URL lacks a server.
    let mut http = http("http://127.0.0.1:1", &Cancel::new());
    let mut table = wasmtime_wasi::ResourceTable::new();
    table.set_max_capacity(4);
    let mut view = WasiHttpCtxView {
        hooks: &mut http.requests,
        table: &mut table,
        ctx: &mut http.context,
    };
    for _ in 0..20 {
        let fields = HostFields::new(&mut view).expect("fields");
        let request = HostOutgoingRequest::new(&mut view, fields).expect("a request");
        let options = HostRequestOptions::new(&mut view).expect("options");
        let handled = handle::handle(&mut view, request, Some(options)).expect("no trap");
        if let Ok(future) = handled {
            HostFutureIncomingResponse::drop(&mut view, future).expect("dropped");
        }
    }
}

/// A server that answers each connection with these bytes and then, unless `stays`, ends it.
fn server(answer: &'static str, stays: bool) -> String {
    telling_server(answer, stays, || ())
}

/// The same, which says when it has answered.
fn telling_server(answer: &'static str, stays: bool, told: impl Fn() + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 1024];
            if stream.read(&mut bytes).is_ok_and(|len| len > 0) {
                let _ = stream.write_all(answer.as_bytes());
                told();
                while stays && stream.read(&mut bytes).is_ok_and(|len| len > 0) {}
            }
        }
    });
    format!("http://{at}")
}

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood";

fn soon() -> RequestOptions {
    RequestOptions {
        first_byte_timeout: Some(Duration::from_millis(50)),
        between_bytes_timeout: Some(Duration::from_millis(50)),
        ..RequestOptions::default()
    }
}

#[test]
fn a_granted_server_answers_and_its_place_is_given_back() {
    // The server closes each connection without a notice.
    let url = server(GOOD, false);
    let mut http = http(&url, &Cancel::new());
    for _ in 0..5 {
        let answer = ask(&mut http, "GET", &url, RequestOptions::default());
        assert_eq!(answer.as_deref(), Ok("good"));
    }
    http.requests.idle.clear();
    assert!(http.has_moved() && !http.has_moved());
    let places: Vec<_> = (0..2)
        .map(|_| Place::take(&http.requests.taken, 2))
        .collect();
    assert!(places.iter().all(Option::is_some), "a place was kept");
    let refused = ask(&mut http, "GET", &url, RequestOptions::default());
    assert!(
        refused
            .expect_err("full")
            .starts_with("too_many_connections: ")
    );
}

#[test]
fn a_refused_server_is_named_with_the_key_that_grants_it() {
    let url = server(GOOD, false);
    let mut http = http(&url, &Cancel::new());
    let port = url.rsplit(':').next().expect("a port");
    for (method, asked, code, part) in [
        (
            "GET",
            "http://169.254.169.254/".to_owned(),
            "network_not_granted",
            "[\"169.254.169.254:80\"]",
        ),
        (
            "GET",
            "https://169.254.169.254/".into(),
            "network_not_granted",
            ":443",
        ),
        (
            "GET",
            "http://[::1]:1/".into(),
            "network_not_granted",
            "[\"[::1]:1\"]",
        ),
        (
            "GET",
            format!("http://localhost:{port}/"),
            "network_not_granted",
            "localhost",
        ),
        (
            "GET",
            format!("http://127.0.0.1.evil:{port}/"),
            "network_not_granted",
            "evil",
        ),
        (
            "GET",
            format!("http://u@127.0.0.1:{port}/"),
            "http_invalid_request",
            "user",
        ),
        (
            "GET",
            format!("http://127.0.0.1:{port}@evil/"),
            "http_invalid_request",
            "user",
        ),
        (
            "CONNECT",
            format!("http://127.0.0.1:{port}/"),
            "http_invalid_request",
            "CONNECT",
        ),
    ] {
        let said = ask(&mut http, method, &asked, RequestOptions::default()).expect_err(&asked);
        assert!(said.starts_with(&format!("{code}: ")), "{asked}: {said}");
        assert!(said.contains(part), "{asked}: {said}");
    }
}

#[test]
fn a_name_that_leads_to_this_machine_is_refused() {
    let url = server(GOOD, false).replace("127.0.0.1", "127.1");
    let said = ask(
        &mut http(&url, &Cancel::new()),
        "GET",
        &url,
        RequestOptions::default(),
    );
    assert!(
        said.expect_err("loopback")
            .starts_with("address_not_granted: ")
    );
}

#[test]
fn a_server_that_was_promised_tls_is_not_asked_without() {
    let url = server(GOOD, false);
    let mut http = http(&url.replace("http://", "https://"), &Cancel::new());
    let said = ask(&mut http, "GET", &url, RequestOptions::default());
    assert!(said.expect_err("plaintext").starts_with("tls_required: "));
}

#[test]
fn a_server_without_tls_is_named_as_one() {
    let url = server(GOOD, false).replace("http://", "https://");
    let said = ask(
        &mut http(&url, &Cancel::new()),
        "GET",
        &url,
        RequestOptions::default(),
    );
    let said = said.expect_err("plaintext");
    assert!(said.starts_with("tls_handshake: "), "{said}");
    assert!(said.contains("\nthe server answers without TLS"), "{said}");
}

#[test]
fn waiting_ends_with_the_time_that_was_asked_for() {
    for (answer, part) in [
        ("", "no response within 50 ms"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ngood",
            "did not arrive within 50 ms",
        ),
    ] {
        let url = server(answer, true);
        let said = ask(&mut http(&url, &Cancel::new()), "GET", &url, soon()).expect_err("late");
        assert!(
            said.starts_with("timeout: ") && said.contains(part),
            "{said}"
        );
    }
}

#[test]
fn cancelling_ends_a_request_that_waits() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ngood"] {
        let (sender, answered) = std::sync::mpsc::channel();
        let url = telling_server(answer, true, move || {
            let _ = sender.send(());
        });
        let cancel = Cancel::new();
        let mut http = http(&url, &cancel);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&mut http, "GET", &url, RequestOptions::default()));
            answered.recv().expect("a request");
            cancel.cancel();
            let said = asked.join().expect("no panic").expect_err("cancelled");
            assert!(said.starts_with("cancelled: "), "{said}");
        });
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_connection_is_used_again_once_its_answer_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, connections) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = sender.send(());
            std::thread::spawn(move || {
                while stream.read(&mut [0; 1024]).is_ok_and(|len| len > 0) {
                    let _ = stream.write_all(GOOD.as_bytes());
                }
            });
        }
    });
    let mut http = http(&url, &Cancel::new());
    for _ in 0..5 {
        let answer = ask(&mut http, "GET", &url, RequestOptions::default());
        assert_eq!(answer.as_deref(), Ok("good"));
    }
    assert_eq!(connections.try_iter().count(), 1);
    http.requests.idle.clear();
    ask(&mut http, "GET", &url, RequestOptions::default()).expect("an answer");
    assert_eq!(connections.try_iter().count(), 1);
}

//! Credentials for a server, and that nobody else hears them. [`Folder`] searches the output for the secret.

use rapidbyte_testkit::postgres::PASSWORD;

use super::*;

/// A server that accepts only requests with this header.
fn guarded(name: &'static str, value: String) -> Server {
    Server::start(
        move |request| match request.header(name) == Some(value.as_str()) {
            true => Reply::json(ids([1])),
            false => Reply::status(401, format!("who is {:?}?", request.header(name))),
        },
    )
}

#[track_caller]
fn passes(server: &Server, auth: &str) {
    let auth = format!("auth: {auth}");
    let found = rows(&Folder::new(), &pipeline(&server.url(""), &[&auth], &[]));
    assert_eq!(found.len(), 1, "{auth}");
}

#[test]
fn a_header_a_password_and_a_token() {
    let server = guarded("x-api-key", PASSWORD.into());
    passes(
        &server,
        &format!("{{ type: header, name: X-Api-Key, value: {PASSWORD:?} }}"),
    );
    let server = guarded("authorization", format!("Bearer {PASSWORD}"));
    passes(&server, &format!("{{ type: bearer, token: {PASSWORD:?} }}"));
    let server = guarded("authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".into());
    passes(
        &server,
        "{ type: basic, username: Aladdin, password: open sesame }",
    );
}

#[test]
fn a_wrong_secret_is_refused_and_not_repeated() {
    let server = guarded("authorization", "Bearer x".into());
    let auth = format!("auth: {{ type: bearer, token: {PASSWORD:?} }}");
    let text = pipeline(&server.url(""), &[&auth], &[]);
    // The server says in its answer what it was sent.
    let parts = ["/items answers 401: who is Some(\"***", "credentials"];
    Folder::new().refuses(&text, "http_unauthorized", 3, &parts);
}

/// A server that gives tokens, for a while, and rows for the newest one.
fn with_tokens(in_header: bool) -> Server {
    let given = std::sync::atomic::AtomicU64::new(0);
    Server::start(move |request| {
        let count = given.load(std::sync::atomic::Ordering::SeqCst);
        if request.path != "/token" {
            let token = format!("Bearer token-{count}");
            return match request.header("authorization") == Some(token.as_str()) {
                true => Reply::json(ids([1])),
                false => Reply::status(401, "an old token"),
            };
        }
        let form = rapidbyte_testkit::http::pairs(&request.text());
        let value = |name: &str| {
            form.iter()
                .find(|(key, _)| key == name)
                .map(|(_, v)| v.as_str())
        };
        assert_eq!(value("grant_type"), Some("client_credentials"));
        assert_eq!(value("scope"), Some("read all"));
        let is_known = match in_header {
            true => request.header("authorization") == Some("Basic bWU6cyUyNjM="),
            false => (value("client_id"), value("client_secret")) == (Some("me"), Some("s&3")),
        };
        if !is_known {
            return Reply::status(400, r#"{"error": "invalid_client"}"#);
        }
        given.store(count + 1, std::sync::atomic::Ordering::SeqCst);
        let token = count + 1;
        Reply::json(format!(
            r#"{{"access_token": "token-{token}", "token_type": "bearer", "expires_in": 3600}}"#
        ))
    })
}

fn oauth(server: &Server, more: &str) -> String {
    let url = server.url("/token");
    format!(
        "{{ type: oauth2_client_credentials, token_url: {url:?}, client_id: me, scope: read all, {more} }}"
    )
}

#[test]
fn a_token_for_a_clients_secret() {
    for (in_header, send_in) in [(false, "body"), (true, "header")] {
        let server = with_tokens(in_header);
        passes(
            &server,
            &oauth(
                &server,
                &format!("client_secret: \"s&3\", send_in: {send_in}"),
            ),
        );
        let asked = server.requests();
        let tokens = asked
            .iter()
            .filter(|request| request.path == "/token")
            .count();
        assert!(
            tokens >= 1 && tokens < asked.len(),
            "{tokens} of {}",
            asked.len()
        );
    }
    let server = with_tokens(false);
    let auth = format!("auth: {}", oauth(&server, "client_secret: wrong"));
    let text = pipeline(&server.url(""), &[&auth], &[]);
    Folder::new().refuses(
        &text,
        "http_unauthorized",
        3,
        &["/token", "invalid_client", "client_secret"],
    );
}

#[test]
fn keys_of_another_kind_are_refused() {
    for (auth, code, key) in [
        ("{ type: bearer }", "invalid_config", "config.auth.token"),
        (
            "{ type: bearer, token: abcdef, password: abcdef }",
            "unused_option",
            "config.auth.password",
        ),
        ("{ token: abcdef }", "unused_option", "config.auth.token"),
    ] {
        let auth = format!("auth: {auth}");
        let text = pipeline("http://127.0.0.1:1", &[&auth], &[]);
        Folder::new().refuses(&text, code, 2, &[key.rsplit('.').next().expect("a key")]);
    }
}

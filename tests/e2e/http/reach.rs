//! Which servers are reached, and how: grants, redirects, TLS.

use super::*;
use crate::tls::authority;

#[test]
fn a_server_that_was_taken_away_or_is_another_is_not_reached() {
    let server = Server::start(|_| Reply::json(ids([1])));
    let text = pipeline(&server.url(""), &[], &[]);
    let none = text.replace(
        "  streams: [items]\n",
        "  streams: [items]\n  permissions: { network: none }\n",
    );
    let at = format!("127.0.0.1:{}", server.port());
    Folder::new().refuses(
        &none,
        "network_not_granted",
        2,
        &[&at, "permissions", "source-http"],
    );
    // A name that leads to this machine.
    let other = text.replace("127.0.0.1", "127.1");
    Folder::new().refuses(&other, "address_not_granted", 2, &["127.1", "loopback"]);
    assert!(server.requests().is_empty(), "somebody asked");
}

#[test]
fn a_redirect_leads_only_to_what_is_granted() {
    let inner = Server::start(|_| Reply::json(ids([1])));
    let port = inner.port();
    for (to, code, part) in [
        (
            "http://169.254.169.254/latest/meta-data".to_owned(),
            "network_not_granted",
            "169.254.169.254:80",
        ),
        (
            format!("http://localhost:{port}/items"),
            "network_not_granted",
            "redirected from",
        ),
        (
            format!("http://127.0.0.1:{port}/items"),
            "network_not_granted",
            "permissions",
        ),
        (
            "http://[::1]:9/".to_owned(),
            "network_not_granted",
            "[::1]:9",
        ),
        (
            "file:///etc/passwd".to_owned(),
            "http_redirect",
            "not a URL",
        ),
        ("/items".to_owned(), "http_redirect", "more than 5 times"),
    ] {
        let outer = Server::start(move |_| Reply::redirect(to.clone()));
        let text = pipeline(&outer.url(""), &[], &[]);
        Folder::new().refuses(&text, code, 2, &[part]);
    }
    assert!(inner.requests().is_empty(), "somebody asked");
}

#[test]
fn a_granted_redirect_is_followed_without_the_secret() {
    let inner = Server::start(|_| Reply::json(ids([1, 2])));
    let to = inner.url("/elsewhere?x=1");
    let outer = Server::start(move |request| match request.path.as_str() {
        "/items" => Reply::redirect("/moved"),
        _ => Reply::redirect(to.clone()),
    });
    let auth = "auth: { type: header, name: x-key, value: hidden-key }";
    let text = pipeline(&outer.url(""), &[auth], &[]);
    let granted = format!(
        "  streams: [items]\n  permissions: {{ network: [\"127.0.0.1:{}\"] }}\n",
        inner.port()
    );
    let found = rows(
        &Folder::new(),
        &text.replace("  streams: [items]\n", &granted),
    );
    assert_eq!(found.len(), 2);
    let key = |server: &Server, path: &str| {
        let seen = server
            .requests()
            .into_iter()
            .find(|request| request.path == path);
        seen.expect("a request").header("x-key").map(str::to_owned)
    };
    assert_eq!(key(&outer, "/moved").as_deref(), Some("hidden-key"));
    assert_eq!(key(&inner, "/elsewhere"), None);
}

#[test]
fn tls_believes_the_authority_that_was_named() {
    let good = authority().issue("localhost", |_| ());
    let server = Server::start_tls(&good, |_| Reply::json(ids(1..=4)));
    let folder = Folder::new();
    folder.write("ca.pem", authority().pem());
    let text = |config: &[&str]| pipeline(&server.url(""), config, &[]);
    assert_eq!(rows(&folder, &text(&["sslrootcert: ca.pem"])).len(), 4);
    folder.refuses(
        &text(&[]),
        "tls_unknown_ca",
        3,
        &["localhost", "sslrootcert"],
    );
    folder.refuses(
        &text(&["sslrootcert: no.pem"]),
        "tls_bad_file",
        2,
        &["no.pem"],
    );
    let other = Server::start_tls(&authority().issue("other.example", |_| ()), |_| {
        Reply::json("[]")
    });
    let text = pipeline(&other.url(""), &["sslrootcert: ca.pem"], &[]);
    folder.refuses(&text, "tls_wrong_name", 3, &["other.example"]);
    assert!(other.requests().is_empty(), "somebody asked");
    // A server that does not speak TLS.
    let plain = Server::start(|_| Reply::json("[]"));
    let url = plain.url("").replace("http://", "https://");
    folder.refuses(&pipeline(&url, &[], &[]), "tls_handshake", 3, &["TLS"]);
    // A TLS server refuses a request without TLS.
    let secure = server
        .url("")
        .replace("https://localhost", "http://127.0.0.1");
    let (error, exit) = folder.error(&pipeline(&secure, &[], &[]));
    assert_eq!(exit, 3, "{error:#}");
}

#[test]
fn a_secure_server_does_not_lead_out_of_tls() {
    let plain = Server::start(|_| Reply::json(ids([1])));
    let to = plain.url("/items");
    let secure = Server::start_tls(&authority().issue("localhost", |_| ()), move |_| {
        Reply::redirect(to.clone())
    });
    let folder = Folder::new();
    folder.write("ca.pem", authority().pem());
    let text = pipeline(&secure.url(""), &["sslrootcert: ca.pem"], &[]);
    let granted = format!(
        "  streams: [items]\n  permissions: {{ network: [\"127.0.0.1:{}\"] }}\n",
        plain.port()
    );
    let text = text.replace("  streams: [items]\n", &granted);
    folder.refuses(&text, "http_redirect", 2, &["without TLS"]);
    assert!(plain.requests().is_empty(), "somebody asked");
}

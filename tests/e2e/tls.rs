//! TLS between the host and a real PostgreSQL, with certificates made here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

use rapidbyte_testkit::postgres::{Options, PASSWORD, Server, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use crate::support::Folder;

/// An authority and its certificate as PEM.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "a test's authority");
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Its certificate as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Certificate and key as PEM.
    pub(crate) fn issue(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let mut params = params(name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new([name.to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The authority that the tests trust.
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

/// A server whose certificate passes every check of those that connect to `localhost`.
pub(crate) fn certified_server() -> Server {
    server(authority().issue("localhost", |_| {}))
}

/// A server that shows this certificate, lets `certified` in by a certificate and `bare` by
/// nothing but without TLS, and has a view of the session that reads it.
fn server((certificate, key): (String, String)) -> Server {
    let server = Server::start(&Options {
        hba: vec![
            "hostssl all certified 127.0.0.1/32 cert".into(),
            "hostssl all bare 127.0.0.1/32 reject".into(),
            "hostnossl all bare 127.0.0.1/32 trust".into(),
        ],
        tls: Some(Tls {
            certificate,
            key,
            client_authority: Some(authority().pem.clone()),
        }),
        ..Options::default()
    });
    let server = server.unwrap_or_else(|failure| panic!("{failure}"));
    server
        .client("postgres")
        .batch_execute(
            "CREATE ROLE certified LOGIN; CREATE ROLE bare LOGIN;
             CREATE VIEW session AS SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid();
             GRANT SELECT ON session TO PUBLIC",
        )
        .expect("roles and a view");
    server
}

/// A pipeline that reads the view over a connection with these parameters.
fn pipeline(server: &Server, role: &str, parameters: &str) -> String {
    let url = server.url_of(role, PASSWORD, "postgres");
    let url = url.replace("127.0.0.1", "localhost");
    reading(&format!("{url}?{parameters}"))
}

fn reading(url: &str) -> String {
    format!(
        "version: 1\npipeline: t\n\
         source: {{ use: source-postgres, config: {{ url: \"{url}\" }}, streams: [public.session] }}\n\
         destination: {{ use: dest-file, config: {{ path: s.jsonl }}, write_mode: replace }}\n\
         retry: {{ max_attempts: 1 }}\n"
    )
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("ca.pem", &authority().pem);
    folder.write("other.pem", Authority::new().pem);
    folder
}

/// Runs and answers whether the server saw TLS.
#[track_caller]
fn is_encrypted(server: &Server, parameters: &str) -> bool {
    let folder = folder();
    folder.report(&pipeline(server, "postgres", parameters));
    let row: serde_json::Value = serde_json::from_str(&folder.read("s.jsonl")).expect("one row");
    row["ssl"].as_bool().expect("true or false")
}

#[track_caller]
fn refused(server: &Server, parameters: &str, code: &str, exit: i32) {
    folder().refuses(&pipeline(server, "postgres", parameters), code, exit, &[]);
}

#[test]
fn the_right_certificate_passes_every_check() {
    let server = certified_server();
    for parameters in [
        "sslmode=verify-full&sslrootcert=ca.pem",
        "sslmode=verify-ca&sslrootcert=ca.pem",
        "sslrootcert=ca.pem",
        "sslmode=require",
        "sslmode=prefer",
        "channel_binding=require",
    ] {
        assert!(is_encrypted(&server, parameters), "{parameters}");
    }
    assert!(!is_encrypted(&server, "sslmode=disable"));
    // A public authority did not sign it, nor another one.
    refused(&server, "sslmode=verify-full", "tls_unknown_ca", 3);
    for mode in ["verify-full", "verify-ca", "require", "prefer"] {
        let parameters = format!("sslmode={mode}&sslrootcert=other.pem");
        refused(&server, &parameters, "tls_unknown_ca", 3);
    }
    refused(
        &server,
        "sslmode=disable&channel_binding=require",
        "channel_binding_missing",
        3,
    );
    let address = pipeline(
        &server,
        "postgres",
        "sslmode=verify-full&sslrootcert=ca.pem",
    )
    .replace("localhost", "127.0.0.1");
    folder().refuses(&address, "tls_wrong_name", 3, &["localhost"]);
    // The server lets `bare` in without TLS only: `prefer` obeys, as in libpq, `require` does not.
    let bare = |mode: &str| pipeline(&server, "bare", &format!("sslmode={mode}"));
    folder().refuses(&bare("require"), "pg_28000", 3, &[]);
    for mode in ["disable", "allow", "prefer"] {
        folder().report(&bare(mode));
    }
}

#[test]
fn a_client_is_known_by_its_certificate() {
    let server = certified_server();
    let issue = |issuer: &Authority| {
        issuer.issue("certified", |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    };
    let parameters = "sslrootcert=ca.pem&sslcert=client.pem&sslkey=client.key";
    let given = |(certificate, key): (String, String), mode: u32| {
        let folder = folder();
        folder.write("client.pem", certificate);
        folder.write("client.key", key);
        folder.set_mode("client.key", mode);
        folder
    };
    let text = pipeline(&server, "certified", parameters);
    given(issue(authority()), 0o600).report(&text);
    given(issue(authority()), 0o644).refuses(&text, "tls_bad_file", 2, &["client.key"]);
    given(issue(&Authority::new()), 0o600).refuses(&text, "tls_handshake", 3, &[]);
    let none = pipeline(&server, "certified", "sslrootcert=ca.pem");
    folder().refuses(&none, "pg_28000", 3, &[]);
}

#[test]
fn a_certificate_for_another_name_passes_where_the_name_does_not_matter() {
    let server = server(authority().issue("db.example.com", |_| {}));
    assert!(is_encrypted(
        &server,
        "sslmode=verify-ca&sslrootcert=ca.pem"
    ));
    assert!(is_encrypted(&server, "sslmode=require"));
    folder().refuses(
        &pipeline(
            &server,
            "postgres",
            "sslmode=verify-full&sslrootcert=ca.pem",
        ),
        "tls_wrong_name",
        3,
        &["db.example.com"],
    );
}

#[test]
fn an_expired_certificate_passes_no_check() {
    let server = server(authority().issue("localhost", |params| {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }));
    for mode in ["verify-full", "verify-ca", "require"] {
        let parameters = format!("sslmode={mode}&sslrootcert=ca.pem");
        refused(&server, &parameters, "tls_expired", 3);
    }
    assert!(is_encrypted(&server, "sslmode=require"));
}

#[test]
fn a_certificate_that_signs_itself_is_believed_when_it_is_named() {
    let key = KeyPair::generate().expect("a key");
    let certificate = params("localhost")
        .self_signed(&key)
        .expect("a certificate");
    let pem = certificate.pem();
    let server = server((pem.clone(), key.serialize_pem()));
    assert!(is_encrypted(&server, "sslmode=require"));
    let checked = "sslmode=verify-full&sslrootcert=ca.pem";
    folder().refuses(
        &pipeline(&server, "postgres", checked),
        "tls_self_signed",
        3,
        &[],
    );
    let folder = folder();
    folder.write("ca.pem", pem);
    folder.report(&pipeline(&server, "postgres", checked));
}

#[test]
fn without_tls_on_the_server_the_mode_decides() {
    let server = Server::start(&Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
    server
        .client("postgres")
        .batch_execute(
            "CREATE VIEW session AS SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        )
        .expect("a view");
    for mode in ["disable", "allow", "prefer"] {
        assert!(!is_encrypted(&server, &format!("sslmode={mode}")));
    }
    for parameters in [
        "sslmode=require",
        "sslmode=verify-ca&sslrootcert=ca.pem",
        "sslmode=verify-full&sslrootcert=ca.pem",
    ] {
        refused(&server, parameters, "tls_required", 2);
    }
}

/// Listens in place of a server: gives the port, and at the end the bytes that the program sent.
fn listener(
    serve: impl FnOnce(&mut TcpStream) -> Vec<u8> + Send + 'static,
) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = thread::spawn(move || serve(&mut listener.accept().expect("a connection").0));
    (port, thread)
}

/// The request for TLS: a length of 8 and the number 80877103 (PostgreSQL manual, "Message
/// Formats", SSLRequest).
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

fn request(stream: &mut TcpStream) {
    let mut request = [0; 8];
    stream.read_exact(&mut request).expect("a request");
    assert_eq!(request, REQUEST);
}

#[test]
fn bytes_put_in_before_tls_are_fatal() {
    for mode in ["prefer", "require"] {
        let (port, thread) = listener(|stream| {
            request(stream);
            // In one segment: the answer, and what the server never said.
            stream.write_all(b"SN").expect("an answer");
            Vec::new()
        });
        let url = format!("postgres://postgres:secret@127.0.0.1:{port}/postgres?sslmode={mode}");
        folder().refuses(&reading(&url), "tls_injected", 3, &[]);
        thread.join().expect("the listener");
    }
}

#[test]
fn nothing_but_the_request_leaves_before_tls_has_begun() {
    let (port, thread) = listener(|stream| {
        request(stream);
        stream.write_all(b"N").expect("an answer");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("the end");
        rest
    });
    let url = format!("postgres://postgres:secret@127.0.0.1:{port}/postgres?sslmode=require");
    folder().refuses(&reading(&url), "tls_required", 2, &[]);
    assert_eq!(thread.join().expect("the listener"), b"");
}

#[test]
fn the_name_is_told_to_the_server_and_the_password_is_not_in_the_clear() {
    let (port, thread) = listener(|stream| {
        request(stream);
        stream.write_all(b"S").expect("an answer");
        let mut hello = vec![0; 4096];
        let read = stream.read(&mut hello).expect("a hello");
        hello.truncate(read);
        hello
    });
    let url = format!("postgres://postgres:secret@localhost:{port}/postgres?sslmode=require");
    let (error, _) = folder().error(&reading(&url));
    assert_eq!(error["code"], "tls_handshake", "{error:#}");
    let hello = thread.join().expect("the listener");
    let holds = |what: &[u8]| hello.windows(what.len()).any(|window| window == what);
    assert!(holds(b"localhost") && !holds(b"secret"));
}

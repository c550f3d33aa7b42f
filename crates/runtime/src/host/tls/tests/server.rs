//! Certificates made in a test, a server on a thread, and a guest that talks to it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use wasmtime::component::Resource;

use crate::bindings::connection::{Host, HostConnection, TlsInfo};
use crate::bindings::types::Error;
use crate::host::connection::Connection;
use crate::state::{Sandbox, State};
use crate::{Cancel, Clock, Grants, Limits, MemoryBudget};

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: Certificate,
}

/// A certificate with its key.
pub struct Pair {
    pub certificate: CertificateDer<'static>,
    pub key: KeyPair,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "a test's authority");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        Self {
            issuer,
            certificate,
        }
    }

    /// A certificate for these names, changed by `change`.
    pub fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = params(names);
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pair {
            certificate: certificate.der().clone(),
            key,
        }
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("parameters");
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    params
}

/// A certificate that signs itself; as `openssl req -x509` makes it when it is an authority.
pub fn self_signed(names: &[&str], authority: bool) -> Pair {
    let mut params = params(names);
    if authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    Pair {
        certificate: certificate.der().clone(),
        key,
    }
}

/// For a client.
pub fn for_client(params: &mut CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
}

impl Pair {
    /// A server that shows this certificate, in TLS 1.3 or 1.2, and asks clients for one of
    /// `clients` if there is such an authority. Whether key and certificate fit is not looked at.
    pub fn server(&self, tls13: bool, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let version = if tls13 { &TLS13 } else { &TLS12 };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("a version");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                let root = authority.certificate.der().clone();
                roots.add(root).expect("a root");
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let key = any_supported_type(&key).expect("a key");
        let shown = CertifiedKey::new(vec![self.certificate.clone()], key);
        Arc::new(builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(shown))))
    }
}

/// The server's side of a connection.
pub type Served = StreamOwned<ServerConnection, TcpStream>;

/// Accepts one connection on a thread of its own; gives the port. The thread ends with `serve`.
pub fn listen(serve: impl FnOnce(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || serve(listener.accept().expect("a connection").0));
    port
}

/// Takes the eight bytes of the request and answers.
pub fn answer(mut stream: &TcpStream, with: &[u8]) {
    let mut request = [0; 8];
    stream.read_exact(&mut request).expect("a request");
    assert_eq!(request, REQUEST);
    stream.write_all(with).expect("an answer");
}

/// Answers the request, does TLS and calls `talk`. The guest reports a failed handshake.
pub fn serve(config: Arc<ServerConfig>, talk: impl FnOnce(&mut Served) + Send + 'static) -> u16 {
    listen(move |stream| {
        answer(&stream, b"S");
        let session = ServerConnection::new(config).expect("a session");
        let mut served = StreamOwned::new(session, stream);
        while served.conn.is_handshaking() {
            if served.conn.complete_io(&mut served.sock).is_err() {
                return;
            }
        }
        talk(&mut served);
    })
}

/// PostgreSQL's `SSLRequest`.
pub const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A guest with a configuration.
pub struct Guest {
    pub state: State,
    pub cancel: Cancel,
    connection: u32,
    host: String,
}

/// Milliseconds that a call waits at most where the test is not about waiting.
pub const LONG: u32 = 20_000;

impl Guest {
    /// A guest with a grant of `host:port` and these parameters, in a pipeline whose folder is `folder`.
    pub fn new(host: &str, port: u16, query: &str, folder: &Path) -> Self {
        let schema = json!({"properties": {"url": {"x-grant": "url"}}});
        let config = json!({"url": format!("postgres://u:p@{host}:{port}/db?{query}")});
        let config = config.as_object().expect("an object");
        let cancel = Cancel::new();
        let sandbox = Sandbox {
            grants: Arc::new(Grants::from_config(&schema, config, folder)),
            memory: MemoryBudget::new(1 << 20),
            limits: Limits::default(),
            clock: Clock::new(),
            cancel: cancel.clone(),
            log: Arc::new(|_, _, _, _| {}),
            redact: crate::no_secrets(),
            stream: None,
        };
        let mut guest = Self {
            state: State::new("test".into(), sandbox),
            cancel,
            connection: 0,
            host: host.to_owned(),
        };
        let connected = guest
            .state
            .connect(host.into(), port, LONG)
            .expect("not cancelled");
        guest.connection = connected.expect("connects").rep();
        guest
    }

    pub fn this(&self) -> Resource<Connection> {
        Resource::new_borrow(self.connection)
    }

    pub fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        self.state
            .write(self.this(), data.to_vec(), LONG)
            .expect("not cancelled")
    }

    pub fn read(&mut self, max: u32) -> Result<Vec<u8>, Error> {
        self.state
            .read(self.this(), max, LONG)
            .expect("not cancelled")
    }

    pub fn start_tls(&mut self) -> Result<TlsInfo, Error> {
        let host = self.host.clone();
        self.state
            .start_tls(self.this(), host, LONG)
            .expect("not cancelled")
    }

    /// Asks for TLS as a PostgreSQL client does, and begins it when the server says yes.
    pub fn secure(&mut self) -> Result<TlsInfo, Error> {
        self.write(&REQUEST)?;
        assert_eq!(self.read(4096)?, b"S");
        self.start_tls()
    }

    /// Reads until there are `len` bytes.
    pub fn read_exact(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        while all.len() < len {
            let some = self.read(65536)?;
            assert!(!some.is_empty(), "the end after {} bytes", all.len());
            all.extend(some);
        }
        Ok(all)
    }
}

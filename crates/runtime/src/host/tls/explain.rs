//! Says what went wrong with TLS, for the person who set it up.

use rustls::{AlertDescription, CertificateError, Error as Tls};

use super::Broken;
use super::opening::Blocked;
use super::verify::Refusal;
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::tls::{Policy, Roots};

const MODE: &str = "sslmode=verify-ca checks the authority without the name";

impl Broken {
    /// The error for `peer`, as `host:port`.
    pub fn explain(&self, peer: &str, policy: &Policy) -> Error {
        match self {
            Self::Io(error) => {
                let text = match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        "the connection was cut off without the end that TLS asks for".to_owned()
                    }
                    _ => error.to_string(),
                };
                connection("connection_lost", format!("{peer}: {text}"))
            }
            Self::ClosedInHandshake => connection(
                "tls_handshake",
                format!("{peer}: the server closed the connection while TLS began"),
            )
            .hint("the server's log says why"),
            Self::Tls(Tls::InvalidCertificate(CertificateError::Other(other))) => {
                match other.0.downcast_ref::<Refusal>() {
                    Some(refusal) => refused(refusal, peer, policy),
                    None => handshake(peer, &other.0),
                }
            }
            Self::Tls(Tls::AlertReceived(alert)) => alerted(*alert, peer, policy),
            Self::Tls(error) => handshake(peer, error),
        }
    }
}

impl Blocked {
    /// The error for `peer`, as `host:port`.
    pub fn explain(self, peer: &str, policy: &Policy) -> Error {
        let mode = policy.mode.as_str();
        match self {
            Self::ServerHasNone => auth(
                "tls_required",
                format!("{peer} does no TLS, and sslmode={mode} requires it"),
            )
            .hint("turn TLS on at the server (ssl = on), or set sslmode=prefer to go without"),
            Self::GuestGoesOn => auth(
                "tls_required",
                format!("{peer}: sslmode={mode} lets nothing pass before TLS but the request"),
            )
            .hint("the connector does no TLS here: set sslmode=prefer to go without"),
        }
    }
}

/// The server sent something between its answer and TLS.
pub fn injected(peer: &str) -> Error {
    auth(
        "tls_injected",
        format!("{peer} sent bytes in plaintext where TLS was to begin"),
    )
    .hint("somebody between here and the server may have put them there; do not go on without TLS")
}

/// TLS was switched off.
pub fn disabled(peer: &str) -> Error {
    let text = format!("{peer}: sslmode=disable forbids TLS");
    Error::new(ErrorKind::Config, "tls_disabled", text)
        .hint("set sslmode=prefer, or a stricter one, to allow it")
}

fn auth(code: &str, message: String) -> Error {
    Error::new(ErrorKind::Auth, code, message)
}

fn connection(code: &str, message: String) -> Error {
    Error::new(ErrorKind::Connection, code, message)
}

/// Characters of what rustls says; it may hold long lists of bytes.
const MAX_DETAIL: usize = 200;

fn handshake(peer: &str, error: &dyn std::fmt::Display) -> Error {
    let detail: String = error.to_string().chars().take(MAX_DETAIL).collect();
    connection("tls_handshake", format!("{peer}: no TLS: {detail}"))
        .hint("the server must speak TLS 1.2 or 1.3; its log may say more")
}

fn refused(refusal: &Refusal, peer: &str, policy: &Policy) -> Error {
    let error = |code| auth(code, format!("{peer}: {refusal}"));
    let believed = match &policy.roots {
        Roots::File(file) => format!("sslrootcert names {}", file.text),
        _ => "without sslrootcert only public authorities are believed".to_owned(),
    };
    let own_ca = format!("{believed}: name the certificate of the server's authority there");
    match refusal {
        Refusal::WrongName(_) => error("tls_wrong_name").hint(format!(
            "connect by one of those names, or have the certificate made for this one; {MODE}"
        )),
        Refusal::NoSan => error("tls_no_san").hint(format!(
            "a common name does not count: make the certificate again with subjectAltName; {MODE}"
        )),
        Refusal::Version1 => error("tls_no_san")
            .hint("make the certificate again, as X.509 version 3 with subjectAltName"),
        Refusal::Expired => error("tls_expired").hint(
            "the server needs a new certificate; if it has one, look at this machine's clock",
        ),
        Refusal::NotYet => error("tls_expired").hint("look at the clocks of both machines"),
        Refusal::UnknownCa => error("tls_unknown_ca").hint(own_ca),
        Refusal::SelfSigned => error("tls_self_signed").hint(format!(
            "{believed}: name a copy of the server's certificate there to believe exactly it"
        )),
        Refusal::Unusable(_) => error("tls_handshake").hint("the server needs another certificate"),
    }
}

fn alerted(alert: AlertDescription, peer: &str, policy: &Policy) -> Error {
    use AlertDescription as Alert;
    let text = format!("{peer}: the server refused TLS: {alert:?}");
    let hint = match (alert, &policy.identity) {
        (Alert::ProtocolVersion, _) => "the server must speak TLS 1.2 or 1.3",
        (Alert::CertificateRequired, None) | (Alert::HandshakeFailure, None) => {
            "the server may ask for a client certificate: set sslcert and sslkey"
        }
        (
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError,
            _,
        ) => "the server does not accept the certificate of sslcert: its log says why",
        _ => "the server's log may say why",
    };
    auth("tls_handshake", text).hint(hint)
}

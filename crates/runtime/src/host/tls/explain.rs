//! Says what went wrong with TLS, for the person who set it up.

use rustls::{AlertDescription, CertificateError, Error as Tls, InvalidMessage};

use super::Broken;
use super::opening::Blocked;
use super::verify::Refusal;
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::tls::{Policy, Roots};

impl Broken {
    /// The error for `peer`, as `host:port`.
    pub fn explain(&self, peer: &str, policy: &Policy) -> Error {
        match self {
            Self::Io(error) => {
                let text = match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => {
                        "the connection ended without the end that TLS requires".to_owned()
                    }
                    _ => error.to_string(),
                };
                connection("connection_lost", format!("{peer}: {text}"))
            }
            Self::ClosedInHandshake => connection(
                "tls_handshake",
                format!("{peer}: the server closed the connection during the TLS handshake"),
            )
            .hint("read the server's log"),
            Self::Tls(Tls::InvalidCertificate(CertificateError::Other(other))) => {
                match other.0.downcast_ref::<Refusal>() {
                    Some(refusal) => refused(refusal, peer, policy),
                    None => handshake(peer, &other.0),
                }
            }
            Self::Tls(Tls::AlertReceived(alert)) => alerted(*alert, peer, policy),
            // Its first byte is no record of TLS.
            Self::Tls(error @ Tls::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                handshake(peer, error).hint(
                    "the server answers without TLS: check the port, or connect without TLS, such as by http://",
                )
            }
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
                format!("{peer} does not offer TLS, and sslmode={mode} requires it"),
            )
            .hint(
                "turn TLS on at the server (ssl = on), or set sslmode=prefer to connect \
                 without TLS",
            ),
            Self::GuestGoesOn => auth(
                "tls_required",
                format!("{peer}: with sslmode={mode}, only the request for TLS may precede TLS"),
            )
            .hint(
                "set sslmode=prefer to connect without TLS: the connector does not start it \
                 here",
            ),
        }
    }
}

/// The server sent something between its answer and TLS.
pub fn injected(peer: &str) -> Error {
    auth(
        "tls_injected",
        format!("{peer} sent plaintext bytes before the TLS handshake"),
    )
    .hint(
        "do not continue without TLS: somebody between client and server may have injected the \
         bytes",
    )
}

/// TLS was switched off.
pub fn disabled(peer: &str) -> Error {
    let text = format!("{peer}: sslmode=disable forbids TLS");
    Error::new(ErrorKind::Config, "tls_disabled", text)
        .hint("set sslmode=prefer or a stricter mode to allow it")
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
    let text = error.to_string();
    let mut detail: String = text.chars().take(MAX_DETAIL).collect();
    if detail.len() < text.len() {
        detail.push('…');
    }
    connection(
        "tls_handshake",
        format!("{peer}: the TLS handshake failed: {detail}"),
    )
    .hint("check that the server supports TLS 1.2 or 1.3; its log may say more")
}

fn refused(refusal: &Refusal, peer: &str, policy: &Policy) -> Error {
    let error = |code| auth(code, format!("{peer}: {refusal}"));
    let root_cert = policy.names.root_cert();
    let believed = match &policy.roots {
        Roots::File(file) => format!("{root_cert} names {}", file.text),
        _ => format!("without {root_cert}, only public authorities are trusted"),
    };
    let any_name = policy.names.any_name();
    let unnamed = format!("{any_name} checks the authority but not the name");
    let own_ca = format!("{believed}: set it to the certificate of the server's authority");
    match refusal {
        Refusal::WrongName(_) => error("tls_wrong_name").hint(format!(
            "connect by one of those names, or add this name to the certificate; {unnamed}"
        )),
        Refusal::NoSan => error("tls_no_san").hint(format!(
            "issue the certificate again with subjectAltName, because a common name does not \
                 count; {unnamed}"
        )),
        Refusal::Version1 => error("tls_no_san")
            .hint("issue the certificate again as X.509 version 3 with subjectAltName"),
        Refusal::Expired => error("tls_expired")
            .hint("renew the server's certificate; if it was renewed, check this machine's clock"),
        Refusal::NotYet => error("tls_expired").hint("check the clocks of both machines"),
        Refusal::UnknownCa => error("tls_unknown_ca").hint(own_ca),
        Refusal::SelfSigned => error("tls_self_signed").hint(format!(
            "{believed}: set it to a copy of the server's certificate to trust exactly this one"
        )),
        Refusal::Unusable(_) => error("tls_handshake").hint("give the server another certificate"),
    }
}

fn alerted(alert: AlertDescription, peer: &str, policy: &Policy) -> Error {
    use AlertDescription as Alert;
    let text = format!("{peer}: the server refused TLS: {alert:?}");
    let names = policy.names;
    let hint = match (alert, &policy.identity) {
        (Alert::ProtocolVersion, _) => "check that the server supports TLS 1.2 or 1.3".to_owned(),
        (Alert::CertificateRequired, None) | (Alert::HandshakeFailure, None) => {
            let identity = names.identity();
            format!("set {identity}: the server may require a client certificate")
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
        ) => {
            let cert = names.cert();
            format!("read the server's log: the server does not accept the certificate of {cert}")
        }
        _ => "read the server's log".to_owned(),
    };
    auth("tls_handshake", text).hint(hint)
}

//! Decides about a server's certificate, by the policy that the operator wrote.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, PeerMisbehaved, SignatureScheme,
};
use webpki::{EndEntityCert, KeyUsage, RawPublicKeyEntity};

use super::certificate::Parts;

/// Why a certificate is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("its certificate is for {}", .0.join(", "))]
    WrongName(Vec<String>),
    #[error("its certificate has no subject alternative name")]
    NoSan,
    #[error("its certificate is X.509 version 1, which has no subject alternative name")]
    Version1,
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet")]
    NotYet,
    #[error("an unknown authority signed its certificate")]
    UnknownCa,
    #[error("its certificate is self-signed")]
    SelfSigned,
    #[error("its certificate cannot be used: {0}")]
    Unusable(String),
}

/// The authorities to trust.
#[derive(Debug)]
pub(super) struct Trust {
    pub anchors: Vec<TrustAnchor<'static>>,
    /// The anchors' certificates, where they came from a file.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// Checks what the policy asks for. The signature of the handshake is checked in every mode:
/// the channel binding means nothing without.
#[derive(Debug)]
pub(super) struct Verifier {
    /// None: any certificate will do.
    pub trust: Option<Trust>,
    pub checks_name: bool,
    pub algorithms: WebPkiSupportedAlgorithms,
}

/// Names of a certificate that a message shows.
const SHOWN_NAMES: usize = 8;
/// Characters of a name that a message shows; a name comes from the other side.
const SHOWN_NAME_CHARS: usize = 80;

impl Verifier {
    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let Some(trust) = &self.trust else {
            return Ok(());
        };
        let parsed = EndEntityCert::try_from(certificate).map_err(refusal)?;
        let chain = parsed.verify_for_usage(
            self.algorithms.all,
            &trust.anchors,
            intermediates,
            now,
            KeyUsage::server_auth(),
            None,
            None,
        );
        match chain {
            Ok(_) => {}
            // A self-signed certificate that is its own authority, as `openssl req -x509` makes
            // it, and that the operator named. webpki has checked its validity in time before.
            Err(webpki::Error::CaUsedAsEndEntity) if trust.certificates.contains(certificate) => {}
            Err(webpki::Error::CaUsedAsEndEntity | webpki::Error::UnknownIssuer)
                if Parts::of(certificate).is_some_and(|parts| parts.issuer == parts.subject) =>
            {
                return Err(Refusal::SelfSigned);
            }
            Err(error) => return Err(refusal(error)),
        }
        if self.checks_name {
            parsed
                .verify_is_valid_for_subject_name(name)
                .map_err(refusal)?;
        }
        Ok(())
    }

    /// For a certificate that webpki does not read (X.509 version 1) where none is checked.
    fn verify_by_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let parts = Parts::of(certificate).ok_or_else(bad)?;
        let key = SubjectPublicKeyInfoDer::from(parts.public_key);
        if tls13 {
            return rustls::crypto::verify_tls13_signature_with_raw_key(
                message,
                &key,
                signed,
                &self.algorithms,
            );
        }
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| bad())?;
        let mut mapping = self.algorithms.mapping.iter();
        let (_, candidates) = mapping
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let verified = candidates.iter().any(|algorithm| {
            key.verify_signature(*algorithm, message, signed.signature())
                .is_ok()
        });
        if verified {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        }
    }

    /// True for a certificate that may go through though webpki does not read its version.
    fn is_old_and_unchecked(&self, certificate: &CertificateDer<'_>) -> bool {
        let version = EndEntityCert::try_from(certificate).err();
        self.trust.is_none() && version == Some(webpki::Error::UnsupportedCertVersion)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, server_name, now)
            .map(|()| ServerCertVerified::assertion())
            .map_err(|refusal| {
                let other = OtherError(Arc::new(refusal));
                Error::InvalidCertificate(CertificateError::Other(other))
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.is_old_and_unchecked(cert) {
            return self.verify_by_key(message, cert, dss, false);
        }
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.is_old_and_unchecked(cert) {
            return self.verify_by_key(message, cert, dss, true);
        }
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn refusal(error: webpki::Error) -> Refusal {
    match error {
        webpki::Error::CertExpired { .. } => Refusal::Expired,
        webpki::Error::CertNotValidYet { .. } => Refusal::NotYet,
        // The second: an authority of the same name, with another key.
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            Refusal::UnknownCa
        }
        webpki::Error::CertNotValidForName(context) if context.presented.is_empty() => {
            Refusal::NoSan
        }
        webpki::Error::CertNotValidForName(context) => {
            let names = context.presented.iter().take(SHOWN_NAMES);
            Refusal::WrongName(names.map(|name| shown(name)).collect())
        }
        webpki::Error::UnsupportedCertVersion => Refusal::Version1,
        error => {
            // The name of the variant; what follows are long lists of bytes.
            let text = format!("{error:?}");
            let name = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
            Refusal::Unusable(name.unwrap_or_default().to_owned())
        }
    }
}

/// `DnsName("a")` as `a`.
fn shown(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, inner)| inner.strip_suffix(')'))
        .unwrap_or(name);
    inner
        .trim_matches('"')
        .chars()
        .filter(|c| !c.is_control())
        .take(SHOWN_NAME_CHARS)
        .collect()
}

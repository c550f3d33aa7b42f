//! Reads the PEM files that the operator named. The host reads them; a guest never sees them.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};

use super::verify::Trust;
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::Grants;
use crate::grants::tls::{Identity, Names, Policy, Roots, Written};
use crate::regular;

/// A file of certificates above this size is none.
const MAX_BYTES: u64 = 4 << 20;

/// A client's certificate with its chain, and its key.
pub(super) type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The authorities to trust; none when no signature is checked. Error: `tls_bad_file`.
pub(super) fn trust(policy: &Policy, grants: &Grants) -> Result<Option<Trust>, Error> {
    let setting = policy.names.root_cert();
    let written = match &policy.roots {
        Roots::Unchecked => return Ok(None),
        Roots::Public => {
            return Ok(Some(Trust {
                anchors: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
                certificates: Vec::new(),
            }));
        }
        Roots::File(written) => written,
    };
    let bytes = read(setting, written, grants, false)?;
    let certificates = certificates(setting, written, &bytes)?;
    let anchors: Result<Vec<TrustAnchor<'static>>, _> = certificates
        .iter()
        .map(|certificate| webpki::anchor_from_trusted_cert(certificate).map(|a| a.to_owned()))
        .collect();
    let anchors = anchors.map_err(|error| {
        let what = format!("has a certificate that cannot be used: {error:?}");
        bad_file(setting, written, &what)
    })?;
    Ok(Some(Trust {
        anchors,
        certificates,
    }))
}

/// The client's certificate. Error: `tls_bad_file`.
pub(super) fn identity(identity: &Identity, names: Names, grants: &Grants) -> Result<Chain, Error> {
    let setting = names.cert();
    let bytes = read(setting, &identity.cert, grants, false)?;
    let chain = certificates(setting, &identity.cert, &bytes)?;
    let setting = names.key();
    let bytes = read(setting, &identity.key, grants, true)?;
    // The parser's error may contain a line of the file, so it is not passed on.
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        let encrypted = contains(&bytes, b"ENCRYPTED");
        let what = if encrypted {
            "contains a key with a password, and Rapidbyte cannot ask for it"
        } else {
            "contains no private key in PEM form"
        };
        let hint = "write the key without a password: openssl pkey -in KEY -out NEW";
        let error = bad_file(setting, &identity.key, what);
        if encrypted { error.hint(hint) } else { error }
    })?;
    Ok((chain, key))
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// The file named by `setting` is not what it should be.
pub(super) fn bad_file(setting: &str, written: &Written, what: &str) -> Error {
    let text = format!("{setting}: {} {what}", written.text);
    let mut error = Error::new(ErrorKind::Config, "tls_bad_file", text)
        .hint(format!("set {setting} to a readable file in PEM form"));
    error.location = Some(written.at.clone());
    error
}

fn certificates(
    setting: &str,
    written: &Written,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    // The parser's error may contain a line of the file, so it is not passed on.
    let found = found.map_err(|_| bad_file(setting, written, "is damaged: not PEM"))?;
    if found.is_empty() {
        return Err(bad_file(
            setting,
            written,
            "contains no certificate in PEM form",
        ));
    }
    Ok(found)
}

fn read(setting: &str, written: &Written, grants: &Grants, secret: bool) -> Result<Vec<u8>, Error> {
    let bad = |what: &str| bad_file(setting, written, what);
    let failed = |error: std::io::Error| bad(&format!("cannot be read: {error}"));
    let wrong_size = || bad("is not a regular file with the size of a certificate");
    let file =
        regular::open(&grants.beside(&written.text)).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => wrong_size(),
            _ => failed(error),
        })?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.len() > MAX_BYTES {
        return Err(wrong_size());
    }
    if secret && others_may_use(metadata.uid(), metadata.mode()) {
        let hint = format!(
            "run: chmod 600 {} (a key that root owns may be readable by its group)",
            written.text
        );
        return Err(bad("can be read by other users").hint(hint));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// libpq's rule: 0600 or less, and 0640 or less for root's.
fn others_may_use(owner: u32, mode: u32) -> bool {
    mode & if owner == 0 { 0o037 } else { 0o077 } != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_owners_alone() {
        for (owner, mode, others) in [
            (1000, 0o100600, false),
            (1000, 0o100400, false),
            (1000, 0o100640, true),
            (1000, 0o100604, true),
            (0, 0o100640, false),
            (0, 0o100660, true),
            (0, 0o100644, true),
        ] {
            assert_eq!(others_may_use(owner, mode), others, "{owner} {mode:o}");
        }
    }
}

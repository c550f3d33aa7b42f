//! The few parts of an X.509 certificate that the verifier does not give: who signed whom, the
//! public key, and the hash for channel binding.
//!
//! A malformed certificate gives none. This module never decides about a certificate's validity.

use ring::digest::{self, SHA256, SHA384, SHA512};

/// The parts of a certificate, each with its DER header.
pub(super) struct Parts<'a> {
    pub issuer: &'a [u8],
    pub subject: &'a [u8],
    pub public_key: &'a [u8],
    /// `AlgorithmIdentifier` of the signature.
    algorithm: &'a [u8],
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0] EXPLICIT`: the version of a certificate, the hash among the parameters of RSA-PSS.
const CONTEXT_0: u8 = 0xa0;

/// One element: its tag, its content and the whole of it.
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// Reads elements one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            // A certificate is below 16 MiB.
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let len = bytes.iter().fold(0, |len, b| len << 8 | usize::from(*b));
                (len, rest)
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(len)?;
        let (whole, _) = self.0.split_at_checked(self.0.len() - after.len())?;
        self.0 = after;
        Some(Element {
            tag,
            content,
            whole,
        })
    }

    fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }
}

impl<'a> Parts<'a> {
    /// Of a DER certificate (RFC 5280, 4.1).
    pub fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut certificate = Reader(Reader(certificate).expect(SEQUENCE)?.content);
        let mut signed = Reader(certificate.expect(SEQUENCE)?.content);
        let algorithm = certificate.expect(SEQUENCE)?;
        // The version is left out in version 1; then comes the serial number.
        if signed.next()?.tag == CONTEXT_0 {
            signed.next()?;
        }
        let _signature = signed.expect(SEQUENCE)?;
        let issuer = signed.expect(SEQUENCE)?;
        let _validity = signed.expect(SEQUENCE)?;
        let subject = signed.expect(SEQUENCE)?;
        let public_key = signed.expect(SEQUENCE)?;
        Some(Self {
            issuer: issuer.whole,
            subject: subject.whole,
            public_key: public_key.whole,
            algorithm: algorithm.content,
        })
    }
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];

/// The channel binding `tls-server-end-point` of a DER certificate (RFC 5929, 4.1). Empty where
/// its signature algorithm names no single hash, as Ed25519 does not.
pub(super) fn end_point(certificate: &[u8]) -> Vec<u8> {
    let hash = Parts::of(certificate).and_then(|parts| hash_of(parts.algorithm));
    hash.map_or_else(Vec::new, |hash| {
        digest::digest(hash, certificate).as_ref().to_vec()
    })
}

/// The hash of a signature algorithm; SHA-256 in the place of MD5 and SHA-1.
fn hash_of(algorithm: &[u8]) -> Option<&'static digest::Algorithm> {
    let mut algorithm = Reader(algorithm);
    let name = algorithm.expect(OBJECT_IDENTIFIER)?.content;
    let (family, last) = name.split_at_checked(name.len().checked_sub(1)?)?;
    match (family, last) {
        // md5, sha1, sha256, sha384, sha512 with RSA
        (RSA, [4 | 5 | 11]) => Some(&SHA256),
        (RSA, [12]) => Some(&SHA384),
        (RSA, [13]) => Some(&SHA512),
        // RSA-PSS, with its hash among the parameters
        (RSA, [10]) => hash_of_pss(algorithm.expect(SEQUENCE)?.content),
        // ecdsa-with-SHA1, whose identifier ends with 4.1; the others end with 4.3.x
        (_, [1]) if family == ECDSA => Some(&SHA256),
        _ => match name.strip_prefix(ECDSA)? {
            [3, 2] => Some(&SHA256),
            [3, 3] => Some(&SHA384),
            [3, 4] => Some(&SHA512),
            _ => None,
        },
    }
}

fn hash_of_pss(parameters: &[u8]) -> Option<&'static digest::Algorithm> {
    let Some(hash) = Reader(parameters).expect(CONTEXT_0) else {
        // SHA-1 is the default.
        return Some(&SHA256);
    };
    let hash = Reader(hash.content).expect(SEQUENCE)?.content;
    let name = Reader(hash).expect(OBJECT_IDENTIFIER)?.content;
    if name == SHA1 {
        return Some(&SHA256);
    }
    match name.strip_prefix(SHA2)? {
        [1] => Some(&SHA256),
        [2] => Some(&SHA384),
        [3] => Some(&SHA512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `AlgorithmIdentifier`s without their header, as the openssl program writes them.
    #[test]
    fn the_hash_is_that_of_the_signature() {
        let rsa = |last| [&[6, 9], RSA, &[last, 5, 0]].concat();
        let ecdsa = |last: &[u8]| [&[6, 6 + last.len() as u8], ECDSA, last].concat();
        let pss = |hash: &[u8]| {
            let hash = [&[0x30, 2 + hash.len() as u8, 6, hash.len() as u8], hash].concat();
            let hash = [&[0xa0, hash.len() as u8], &hash[..]].concat();
            [&[6, 9], RSA, &[10, 0x30, hash.len() as u8], &hash].concat()
        };
        let ed25519 = vec![6, 3, 0x2b, 0x65, 0x70];
        for (algorithm, hash) in [
            (rsa(4), Some(&SHA256)),
            (rsa(5), Some(&SHA256)),
            (rsa(11), Some(&SHA256)),
            (rsa(12), Some(&SHA384)),
            (rsa(13), Some(&SHA512)),
            (rsa(14), None),
            (ecdsa(&[1]), Some(&SHA256)),
            (ecdsa(&[3, 2]), Some(&SHA256)),
            (ecdsa(&[3, 3]), Some(&SHA384)),
            (ecdsa(&[3, 4]), Some(&SHA512)),
            (pss(SHA1), Some(&SHA256)),
            (pss(&[SHA2, &[3]].concat()), Some(&SHA512)),
            ([&[6, 9], RSA, &[10, 0x30, 0]].concat(), Some(&SHA256)),
            (ed25519, None),
            (vec![6, 0], None),
            (vec![], None),
        ] {
            assert_eq!(hash_of(&algorithm), hash, "{algorithm:x?}");
        }
    }

    #[test]
    fn damage_gives_nothing() {
        let key = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
        let whole: &[u8] = key.cert.der();
        let parts = Parts::of(whole).expect("parts");
        assert_eq!(parts.issuer, parts.subject);
        assert_eq!(end_point(whole), digest::digest(&SHA256, whole).as_ref());
        for len in 0..whole.len() {
            assert!(Parts::of(&whole[..len]).is_none());
        }
        for at in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 0x81;
            let _ = end_point(&damaged);
        }
    }
}

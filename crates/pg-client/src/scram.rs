//! SCRAM-SHA-256, the client's side: RFC 5802 and RFC 7677, channel binding by RFC 5929, and what
//! PostgreSQL makes of them (manual, "SASL Authentication"): no user name, and a password that is no
//! UTF-8 is taken as it is.
//!
//! A library does the same, keys its hash anew in each of the thousands of iterations, which takes
//! twice as long in the sandbox (10 ms of the 70 of a run of one row), and refuses what servers may ask.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

type HmacSha256 = Hmac<Sha256>;
type Hash = [u8; 32];

/// Makes 24 characters.
const NONCE_BYTES: usize = 18;

/// How the exchange is bound to the TLS session around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    /// We cannot.
    Unsupported,
    /// We could, and believe that the server cannot: it refuses if it can, so that nobody in between
    /// hides its offer.
    Unoffered,
    /// By the hash of the server's certificate, `tls-server-end-point`.
    EndPoint(Vec<u8>),
}

impl Binding {
    fn header(&self) -> &'static str {
        match self {
            Self::Unsupported => "n,,",
            Self::Unoffered => "y,,",
            Self::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }

    /// What `c=` says.
    fn text(&self) -> String {
        let data = match self {
            Self::Unsupported | Self::Unoffered => &[][..],
            Self::EndPoint(hash) => hash,
        };
        BASE64.encode([self.header().as_bytes(), data].concat())
    }
}

/// An exchange whose first message is made.
pub(crate) struct Scram {
    binding: Binding,
    /// `n=,r=NONCE`
    bare: String,
}

/// An exchange in which the server has still to prove itself.
pub(crate) struct Proven {
    server_signature: HmacSha256,
    /// The client's last message.
    pub message: String,
}

/// What is wrong with a message of the server.
pub(crate) type Wrong = String;

impl Scram {
    /// Errors: the system gives no random numbers.
    pub(crate) fn new(binding: Binding) -> Result<Self, Wrong> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Self::with(binding, "", &BASE64.encode(nonce)))
    }

    fn with(binding: Binding, user: &str, nonce: &str) -> Self {
        let bare = format!("n={user},r={nonce}");
        Self { binding, bare }
    }

    /// The client's first message.
    pub(crate) fn message(&self) -> String {
        format!("{}{}", self.binding.header(), self.bare)
    }

    /// Answers the server's first message, `r=…,s=…,i=…`, at most `max_iterations` long. Errors: the
    /// message is none, belongs to another exchange or asks for more.
    pub(crate) fn prove(
        &self,
        password: &str,
        first: &[u8],
        max_iterations: u32,
    ) -> Result<Proven, Wrong> {
        let first = text(first)?;
        let mut attributes = first.split(',');
        let [nonce, salt, count] = ["r=", "s=", "i="].map(|name| {
            let attribute = attributes.next().and_then(|text| text.strip_prefix(name));
            attribute.ok_or_else(|| format!("a first message without {name} in its place"))
        });
        let (nonce, salt, count) = (nonce?, salt?, count?);
        let own = self.bare.split_once(",r=").map_or("", |(_, nonce)| nonce);
        if !nonce.starts_with(own) || nonce.len() == own.len() {
            return Err("its nonce does not go on ours".into());
        }
        let salt = BASE64.decode(salt).map_err(|error| error.to_string())?;
        let count: u32 = count.parse().map_err(|_| "no count of iterations")?;
        if !(1..=max_iterations).contains(&count) {
            return Err(format!("it asks for {count} iterations"));
        }
        let salted = salted(&prepared(password), &salt, count);
        let client_key = mac(&salted, &[b"Client Key"]);
        let without_proof = format!("c={},r={nonce}", self.binding.text());
        let parts = [&self.bare, first, &without_proof].map(str::as_bytes);
        let [bare, first, last] = parts;
        let exchange: &[&[u8]] = &[bare, b",", first, b",", last];
        let mut proof = mac(&Sha256::digest(client_key).into(), exchange);
        proof
            .iter_mut()
            .zip(client_key)
            .for_each(|(p, key)| *p ^= key);
        let server_key = mac(&salted, &[b"Server Key"]);
        Ok(Proven {
            server_signature: keyed(&server_key, exchange),
            message: format!("{without_proof},p={}", BASE64.encode(proof)),
        })
    }
}

impl Proven {
    /// Whether the server's last message proves that it knows the password, too.
    pub(crate) fn verify(self, last: &[u8]) -> Result<(), Wrong> {
        let last = text(last)?;
        if let Some(error) = last.strip_prefix("e=") {
            return Err(error.into());
        }
        // Extensions may stand behind it.
        let proof = last
            .split(',')
            .next()
            .and_then(|text| text.strip_prefix("v="));
        let proof = proof.ok_or("a last message without v=")?;
        let proof = BASE64.decode(proof).map_err(|error| error.to_string())?;
        // In constant time.
        let verified = self.server_signature.verify_slice(&proof);
        verified.map_err(|_| "its proof is wrong".into())
    }
}

fn text(message: &[u8]) -> Result<&str, Wrong> {
    std::str::from_utf8(message).map_err(|_| "a message that is not UTF-8".into())
}

/// What SASLprep (RFC 4013) makes of a password; itself where that refuses it, as the server does.
fn prepared(password: &str) -> String {
    stringprep::saslprep(password).map_or_else(|_| password.to_owned(), Into::into)
}

/// `Hi`, which is PBKDF2 of one block. Each iteration begins with the key that is hashed once.
fn salted(password: &str, salt: &[u8], count: u32) -> Hash {
    let key = keyed(password.as_bytes(), &[]);
    let of = |parts: &[&[u8]]| {
        let mut mac = key.clone();
        parts.iter().for_each(|part| mac.update(part));
        Hash::from(mac.finalize().into_bytes())
    };
    let mut last = of(&[salt, &1_u32.to_be_bytes()]);
    let mut all = last;
    for _ in 1..count {
        last = of(&[&last]);
        all.iter_mut()
            .zip(last)
            .for_each(|(all, last)| *all ^= last);
    }
    all
}

fn mac(key: &Hash, parts: &[&[u8]]) -> Hash {
    keyed(key, parts).finalize().into_bytes().into()
}

/// HMAC takes keys of any length.
fn keyed(key: &[u8], parts: &[&[u8]]) -> HmacSha256 {
    let mut mac = match HmacSha256::new_from_slice(key) {
        Ok(mac) => mac,
        Err(never) => unreachable!("{never}"),
    };
    parts.iter().for_each(|part| mac.update(part));
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn begun() -> Scram {
        Scram::with(Binding::Unsupported, "user", NONCE)
    }

    #[test]
    fn the_exchange_of_the_rfc() {
        let scram = begun();
        assert_eq!(scram.message(), format!("n,,n=user,r={NONCE}"));
        let proven = scram.prove("pencil", FIRST.as_bytes(), 4096).unwrap();
        assert_eq!(
            proven.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        proven.verify(LAST.as_bytes()).unwrap();
        // With an extension behind it.
        let proven = scram.prove("pencil", format!("{FIRST},x=y").as_bytes(), 4096);
        assert!(proven.unwrap().verify(LAST.as_bytes()).is_err());
    }

    #[test]
    fn a_server_that_proves_nothing_is_not_believed() {
        let proven = || begun().prove("pencil", FIRST.as_bytes(), 4096).unwrap();
        for last in [
            "e=other-error",
            "v=",
            "v=AAAA",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
            "",
        ] {
            assert!(proven().verify(last.as_bytes()).is_err(), "{last}");
        }
        assert!(proven().verify(b"v=\xff").is_err());
        let other = begun().prove("pencil2", FIRST.as_bytes(), 4096).unwrap();
        assert!(other.verify(LAST.as_bytes()).is_err());
    }

    #[test]
    fn a_first_message_that_is_none_is_refused() {
        for first in [
            "",
            "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            // No nonce of its own.
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4097",
            "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1",
            "m=x,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        ] {
            assert!(
                begun().prove("pencil", first.as_bytes(), 4096).is_err(),
                "{first}"
            );
        }
    }

    #[test]
    fn the_binding_is_what_the_server_hashes() {
        assert_eq!(Binding::Unsupported.text(), "biws");
        assert_eq!(Binding::Unoffered.text(), "eSws");
        let bound = Binding::EndPoint(vec![1, 2, 3]);
        assert_eq!(
            BASE64.decode(bound.text()).unwrap(),
            b"p=tls-server-end-point,,\x01\x02\x03"
        );
        let nonces = [(); 2].map(|()| Scram::new(Binding::Unsupported).unwrap().message());
        assert_ne!(nonces[0], nonces[1]);
        assert_eq!(nonces[0].len(), "n,,n=,r=".len() + 24);
    }

    #[test]
    fn passwords_are_prepared_where_that_can_be() {
        assert_eq!(prepared("I\u{ad}X"), "IX");
        assert_eq!(prepared("\u{7}"), "\u{7}");
    }
}

//! SCRAM-SHA-256, the client's side: RFC 5802 and RFC 7677, channel binding by RFC 5929, and what
//! PostgreSQL makes of them (manual, "SASL Authentication"): no user name, and a SASLprep of its own.
//!
//! A library does the same, but keys its hash anew in each of the thousands of iterations, which takes
//! twice as long in the sandbox (10 ms of the 70 of a run of one row), refuses counts that servers may
//! ask for, and prepares some passwords in another way than the server did.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

type HmacSha256 = Hmac<Sha256>;
type Hash = [u8; 32];

/// Makes 24 characters.
const NONCE_BYTES: usize = 18;

/// How the exchange is bound to the TLS session around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    /// We cannot.
    Unsupported,
    /// We could, and assume that the server cannot: it refuses if it can, so that nobody in between
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

    /// The value of `c=`.
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

/// The answer to the server's first message, in an exchange in which the server has still to prove itself.
pub(crate) struct Answer {
    server_signature: HmacSha256,
    /// The client's last message.
    pub message: String,
}

/// Why an exchange ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A message of the server is none, or proves nothing.
    Message(String),
    /// It asks for more iterations than we allow; its own text of their number.
    Iterations(String),
    /// It says that it refuses us, and why.
    Refused(String),
    /// The system gives no random numbers.
    NoNonce(String),
}

fn message(what: impl Into<String>) -> Wrong {
    Wrong::Message(what.into())
}

impl Scram {
    /// An exchange with a nonce of its own.
    pub(crate) fn new(binding: Binding) -> Result<Self, Wrong> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| Wrong::NoNonce(error.to_string()))?;
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

    /// Answers the server's first message, `r=…,s=…,i=…`, with at most `max_iterations` iterations.
    pub(crate) fn prove(
        &self,
        password: &str,
        first: &[u8],
        max_iterations: u32,
    ) -> Result<Answer, Wrong> {
        let first = text(first)?;
        let mut attributes = first.split(',');
        let [nonce, salt, count] = ["r=", "s=", "i="].map(|name| {
            let attribute = attributes.next().and_then(|text| text.strip_prefix(name));
            attribute.ok_or_else(|| message(format!("a first message without {name} in its place")))
        });
        let (nonce, salt, count) = (nonce?, salt?, count?);
        let own = self.bare.split_once(",r=").map_or("", |(_, nonce)| nonce);
        if !nonce.starts_with(own) || nonce.len() == own.len() {
            return Err(message("its nonce does not go on ours"));
        }
        let salt = BASE64.decode(salt);
        let salt = salt.map_err(|error| message(format!("its salt: {error}")))?;
        let count = match count.parse() {
            _ if count.is_empty() || !count.bytes().all(|c| c.is_ascii_digit()) => {
                return Err(message("no count of iterations"));
            }
            Ok(0) => return Err(message("no iteration")),
            Ok(count) if count <= max_iterations => count,
            _ => return Err(Wrong::Iterations(count.into())),
        };
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
        Ok(Answer {
            server_signature: keyed(&server_key, exchange),
            message: format!("{without_proof},p={}", BASE64.encode(proof)),
        })
    }
}

impl Answer {
    /// Whether the server's last message proves that it knows the password, too.
    pub(crate) fn verify(self, last: &[u8]) -> Result<(), Wrong> {
        let last = text(last)?;
        if let Some(error) = last.strip_prefix("e=") {
            return Err(Wrong::Refused(error.into()));
        }
        // Extensions may follow it.
        let proof = last
            .split(',')
            .next()
            .and_then(|text| text.strip_prefix("v="));
        let proof = proof.ok_or_else(|| message("a last message without v="))?;
        let proof = BASE64.decode(proof);
        let proof = proof.map_err(|error| message(format!("its proof: {error}")))?;
        // In constant time.
        let verified = self.server_signature.verify_slice(&proof);
        verified.map_err(|_| message("its proof is wrong"))
    }
}

fn text(bytes: &[u8]) -> Result<&str, Wrong> {
    std::str::from_utf8(bytes).map_err(|_| message("a message that is not UTF-8"))
}

/// A password as PostgreSQL prepares it (RFC 4013; its source, `saslprep.c`). The text is checked for
/// prohibited characters before it is normalized. A password with such characters, or with nothing left, stays
/// as it is.
fn prepared(password: &str) -> String {
    if password.is_ascii() {
        return password.into();
    }
    let spaces = password
        .chars()
        .map(|c| match tables::non_ascii_space_character(c) {
            true => ' ',
            false => c,
        });
    let mapped: Vec<char> = spaces
        .filter(|c| !tables::commonly_mapped_to_nothing(*c))
        .collect();
    let is_prohibited = |c: &char| {
        // RFC 3454, C.1.2 to C.9 and A.1.
        [
            tables::non_ascii_space_character,
            tables::ascii_control_character,
            tables::non_ascii_control_character,
            tables::private_use,
            tables::non_character_code_point,
            tables::surrogate_code,
            tables::inappropriate_for_plain_text,
            tables::inappropriate_for_canonical_representation,
            tables::change_display_properties_or_deprecated,
            tables::tagging_character,
            tables::unassigned_code_point,
        ]
        .iter()
        .any(|has| has(*c))
    };
    let (Some(first), Some(last)) = (mapped.first(), mapped.last()) else {
        return password.into();
    };
    let has_right_to_left = mapped.iter().any(|c| tables::bidi_r_or_al(*c));
    let is_mixed = has_right_to_left
        && (mapped.iter().any(|c| tables::bidi_l(*c))
            || ![first, last].iter().all(|c| tables::bidi_r_or_al(**c)));
    if is_mixed || mapped.iter().any(is_prohibited) {
        return password.into();
    }
    mapped.into_iter().nfkc().collect()
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
    fn iterations_are_bounded_whatever_their_number() {
        for (count, is_too_many) in [
            ("4097", true),
            ("99999999999", true),
            ("0", false),
            ("+1", false),
            ("", false),
            ("-1", false),
        ] {
            let first = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={count}");
            let wrong = begun()
                .prove("pencil", first.as_bytes(), 4096)
                .err()
                .unwrap();
            assert_eq!(
                matches!(wrong, Wrong::Iterations(_)),
                is_too_many,
                "{count}"
            );
        }
    }

    #[test]
    fn passwords_are_prepared_as_the_server_does() {
        for (password, expected) in [
            ("I\u{ad}X", "IX"),
            ("a\u{a0}b", "a b"),
            ("\u{7}", "\u{7}"),
            ("a\u{308}", "\u{e4}"),
            // Nothing is left; newer than Unicode 3.2; prohibited; of two directions.
            ("\u{ad}", "\u{ad}"),
            ("\u{2c7c}", "\u{2c7c}"),
            ("\u{340}x", "\u{340}x"),
            ("\u{627}1", "\u{627}1"),
        ] {
            assert_eq!(prepared(password), expected, "{password:?}");
        }
    }
}

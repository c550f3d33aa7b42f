//! SCRAM, the client's side: RFC 5802 (with SHA-1) and RFC 7677 (with SHA-256), and channel binding by RFC 5929.
//!
//! No I/O: the messages of an exchange come in and go out as text. PostgreSQL and MongoDB use it, each with rules of its
//! own for names and passwords, which belong to their clients; [`prepared`] is the rule that both know.
//!
//! A library does the same, but keys its hash anew in each of the thousands of iterations, which takes
//! twice as long in the sandbox (10 ms of the 70 of a run of one row), refuses counts that servers may
//! ask for, and prepares some passwords in another way than the server did.

use std::marker::PhantomData;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Digest as _;
use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

/// Makes 24 characters.
const NONCE_BYTES: usize = 18;

/// The hash of a mechanism.
pub trait Hash {
    /// The keyed hash, HMAC (RFC 2104).
    type Keyed: Mac + KeyInit + Clone;
    /// The hash of these bytes.
    fn of(bytes: &[u8]) -> Vec<u8>;
}

/// The hash of SCRAM-SHA-256.
#[derive(Debug)]
pub enum Sha256 {}

impl Hash for Sha256 {
    type Keyed = Hmac<sha2::Sha256>;
    fn of(bytes: &[u8]) -> Vec<u8> {
        sha2::Sha256::digest(bytes).to_vec()
    }
}

/// The hash of SCRAM-SHA-1.
#[derive(Debug)]
pub enum Sha1 {}

impl Hash for Sha1 {
    type Keyed = Hmac<sha1::Sha1>;
    fn of(bytes: &[u8]) -> Vec<u8> {
        sha1::Sha1::digest(bytes).to_vec()
    }
}

/// How the exchange is bound to the TLS session around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
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
#[derive(Debug)]
pub struct Scram<H> {
    binding: Binding,
    /// `n=USER,r=NONCE`
    bare: String,
    hash: PhantomData<H>,
}

/// The answer to the server's first message, in an exchange in which the server has still to prove itself.
pub struct Answer<H: Hash> {
    server_signature: H::Keyed,
    /// The client's last message.
    pub message: String,
}

/// Why an exchange ends.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A message of the server is none, or proves nothing.
    #[error("{0}")]
    Message(String),
    /// It asks for fewer or more iterations than we allow; its own text of their number.
    #[error("{0} iterations")]
    Iterations(String),
    /// It says that it refuses us, and why.
    #[error("{0}")]
    Refused(String),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    NoNonce(String),
}

fn message(what: impl Into<String>) -> Wrong {
    Wrong::Message(what.into())
}

impl<H: Hash> Scram<H> {
    /// An exchange with a nonce of its own, for this user. PostgreSQL knows the user already: its name is empty.
    ///
    /// # Errors
    /// [`Wrong::NoNonce`].
    pub fn new(binding: Binding, user: &str) -> Result<Self, Wrong> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| Wrong::NoNonce(error.to_string()))?;
        Ok(Self::with(binding, user, &BASE64.encode(nonce)))
    }

    fn with(binding: Binding, user: &str, nonce: &str) -> Self {
        // RFC 5802, 5.1: the two characters that separate attributes.
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Self {
            binding,
            bare,
            hash: PhantomData,
        }
    }

    /// The client's first message.
    pub fn message(&self) -> String {
        format!("{}{}", self.binding.header(), self.bare)
    }

    /// Answers the server's first message, `r=…,s=…,i=…`, if the number of iterations is in `iterations`. The password is
    /// hashed as it is given: see [`prepared`].
    ///
    /// # Errors
    /// [`Wrong::Message`], [`Wrong::Iterations`].
    pub fn prove(
        &self,
        password: &str,
        first: &[u8],
        iterations: RangeInclusive<u32>,
    ) -> Result<Answer<H>, Wrong> {
        let first = text(first)?;
        let mut attributes = first.split(',');
        let [nonce, salt, count] = ["r=", "s=", "i="].map(|name| {
            let attribute = attributes.next().and_then(|text| text.strip_prefix(name));
            attribute.ok_or_else(|| message(format!("a first message without {name} in its place")))
        });
        let (nonce, salt, count) = (nonce?, salt?, count?);
        let own = self.bare.rsplit_once(",r=").map_or("", |(_, nonce)| nonce);
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
            Ok(count) if iterations.contains(&count) => count,
            _ => return Err(Wrong::Iterations(count.into())),
        };
        let salted = salted::<H>(password, &salt, count);
        let client_key = mac::<H>(&salted, &[b"Client Key"]);
        let without_proof = format!("c={},r={nonce}", self.binding.text());
        let parts = [&self.bare, first, &without_proof].map(str::as_bytes);
        let [bare, first, last] = parts;
        let exchange: &[&[u8]] = &[bare, b",", first, b",", last];
        let mut proof = mac::<H>(&H::of(&client_key), exchange);
        proof
            .iter_mut()
            .zip(client_key)
            .for_each(|(p, key)| *p ^= key);
        let server_key = mac::<H>(&salted, &[b"Server Key"]);
        Ok(Answer {
            server_signature: keyed::<H>(&server_key, exchange),
            message: format!("{without_proof},p={}", BASE64.encode(proof)),
        })
    }
}

impl<H: Hash> Answer<H> {
    /// Whether the server's last message proves that it knows the password, too.
    ///
    /// # Errors
    /// [`Wrong::Message`], [`Wrong::Refused`].
    pub fn verify(self, last: &[u8]) -> Result<(), Wrong> {
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

/// A password as PostgreSQL prepares it (RFC 4013; its source, `saslprep.c`), and MongoDB where it takes the password at
/// all. The text is checked for prohibited characters before it is normalized. A password with such characters, or with
/// nothing left, stays as it is.
pub fn prepared(password: &str) -> String {
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
fn salted<H: Hash>(password: &str, salt: &[u8], count: u32) -> Vec<u8> {
    let key = keyed::<H>(password.as_bytes(), &[]);
    let of = |parts: &[&[u8]]| {
        let mut mac = key.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes()
    };
    let mut last = of(&[salt, &1_u32.to_be_bytes()]);
    let mut all = last.to_vec();
    for _ in 1..count {
        last = of(&[last.as_slice()]);
        all.iter_mut()
            .zip(last.as_slice())
            .for_each(|(all, last)| *all ^= last);
    }
    all
}

fn mac<H: Hash>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    keyed::<H>(key, parts).finalize().into_bytes().to_vec()
}

/// HMAC takes keys of any length.
fn keyed<H: Hash>(key: &[u8], parts: &[&[u8]]) -> H::Keyed {
    let mut mac = match <H::Keyed as KeyInit>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(never) => unreachable!("{never}"),
    };
    parts.iter().for_each(|part| mac.update(part));
    mac
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    /// Iterations of the exchanges here.
    const ALLOWED: RangeInclusive<u32> = 2..=4096;
    const LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn begun() -> Scram<Sha256> {
        Scram::with(Binding::Unsupported, "user", NONCE)
    }

    #[test]
    fn the_exchange_of_the_rfc() {
        let scram = begun();
        assert_eq!(scram.message(), format!("n,,n=user,r={NONCE}"));
        let proven = scram.prove("pencil", FIRST.as_bytes(), ALLOWED).unwrap();
        assert_eq!(
            proven.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        proven.verify(LAST.as_bytes()).unwrap();
        // With an extension behind it.
        let proven = scram.prove("pencil", format!("{FIRST},x=y").as_bytes(), ALLOWED);
        assert!(proven.unwrap().verify(LAST.as_bytes()).is_err());
    }

    #[test]
    fn the_exchange_of_the_rfc_with_sha_1() {
        // RFC 5802, section 5.
        let scram = Scram::<Sha1>::with(Binding::Unsupported, "user", "fyko+d2lbbFgONRv9qkxdawL");
        let first = "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
        let proven = scram.prove("pencil", first.as_bytes(), ALLOWED).unwrap();
        assert_eq!(
            proven.message,
            "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,\
             p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
        );
        proven.verify(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=").unwrap();
    }

    #[test]
    fn a_name_does_not_end_its_attribute() {
        let scram = Scram::<Sha256>::with(Binding::Unsupported, "a,r==b", "N");
        assert_eq!(scram.message(), "n,,n=a=2Cr=3D=3Db,r=N");
        let salt = "r=Nx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1";
        assert!(scram.prove("p", salt.as_bytes(), 1..=1).is_ok());
    }

    #[test]
    fn a_server_that_proves_nothing_is_not_believed() {
        let proven = || begun().prove("pencil", FIRST.as_bytes(), ALLOWED).unwrap();
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
        let other = begun().prove("pencil2", FIRST.as_bytes(), ALLOWED).unwrap();
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
                begun().prove("pencil", first.as_bytes(), ALLOWED).is_err(),
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
        let nonces = [(); 2].map(|()| {
            Scram::<Sha256>::new(Binding::Unsupported, "")
                .unwrap()
                .message()
        });
        assert_ne!(nonces[0], nonces[1]);
        assert_eq!(nonces[0].len(), "n,,n=,r=".len() + 24);
    }

    #[test]
    fn iterations_are_bounded_on_both_sides() {
        for (count, is_outside) in [
            ("4097", true),
            ("1", true),
            ("99999999999", true),
            ("0", false),
            ("+1", false),
            ("", false),
            ("-1", false),
        ] {
            let first = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={count}");
            let wrong = begun()
                .prove("pencil", first.as_bytes(), ALLOWED)
                .err()
                .unwrap();
            assert_eq!(matches!(wrong, Wrong::Iterations(_)), is_outside, "{count}");
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

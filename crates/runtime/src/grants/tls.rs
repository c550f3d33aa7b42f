//! The operator's TLS settings for a server, and the policy that follows from them.
//!
//! The names and meanings are libpq's (PostgreSQL manual, "SSL Support"), with the differences
//! that `docs/guides/tls.md` names.

use crate::bindings::types::{Error, ErrorKind};

/// `sslmode`, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Whose names the settings have, for errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Names {
    #[default]
    Libpq,
    MongoDb,
}

impl Names {
    pub fn root_cert(self) -> &'static str {
        match self {
            Self::Libpq => "sslrootcert",
            Self::MongoDb => "tlsCAFile",
        }
    }

    pub fn cert(self) -> &'static str {
        match self {
            Self::Libpq => "sslcert",
            Self::MongoDb => "tlsCertificateKeyFile",
        }
    }

    pub fn key(self) -> &'static str {
        match self {
            Self::Libpq => "sslkey",
            Self::MongoDb => "tlsCertificateKeyFile",
        }
    }

    /// The settings of the client's certificate and its key.
    pub fn identity(self) -> &'static str {
        match self {
            Self::Libpq => "sslcert and sslkey",
            Self::MongoDb => "tlsCertificateKeyFile",
        }
    }

    /// The setting that checks all but the server's name.
    pub fn any_name(self) -> &'static str {
        match self {
            Self::Libpq => "sslmode=verify-ca",
            Self::MongoDb => "tlsAllowInvalidHostnames=true",
        }
    }
}

/// A value and its key in the configuration, such as `config.url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Written {
    pub text: String,
    pub at: String,
}

/// The settings as they were written; what is empty counts as absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    mode: Option<Written>,
    root_cert: Option<Written>,
    cert: Option<Written>,
    key: Option<Written>,
    names: Names,
    /// The scheme of the URL promises TLS with a checked certificate.
    pub promised: bool,
}

/// The authorities whose signature on a server's certificate is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The signature is not checked.
    Unchecked,
    /// The public authorities that browsers trust.
    Public,
    /// The authorities of a PEM file.
    File(Written),
}

/// A client certificate and its key, both PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub cert: Written,
    pub key: Written,
}

/// The settings without contradiction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub mode: Mode,
    pub roots: Roots,
    pub identity: Option<Identity>,
    pub names: Names,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "allow" => Self::Allow,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl Policy {
    /// True if nothing may be sent without TLS.
    pub fn requires_tls(&self) -> bool {
        self.mode >= Mode::Require
    }

    /// True when the certificate must carry the server's name.
    pub fn checks_name(&self) -> bool {
        self.mode == Mode::VerifyFull
    }
}

/// The value of `sslrootcert` that means the public authorities.
const SYSTEM: &str = "system";

impl Settings {
    /// The settings in the query of a URL: `sslmode=…&sslrootcert=…`. If a name repeats, its last value counts.
    pub fn from_query(query: &str, at: &str) -> Self {
        let mut settings = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (decoded(name).as_str(), decoded(value).as_str()) {
                // JDBC's spelling, which libpq takes too.
                ("ssl", "true") => settings.set("sslmode", "require", at),
                (name, text) => settings.set(name, text, at),
            }
        }
        settings
    }

    /// The settings in the query of a `mongodb://` URL, by the names of its drivers (MongoDB manual, "Connection String
    /// Options"), which are not case-sensitive. Without `tls=true` there is no TLS, and with it the certificate is
    /// checked unless an option says otherwise. `sslmode` and its kin are passed over.
    pub fn from_mongodb_query(query: &str, at: &str) -> Self {
        let mut settings = Self {
            names: Names::MongoDb,
            ..Self::default()
        };
        let (mut is_on, mut checks_name, mut checks_authority) = (false, true, true);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name).to_ascii_lowercase(), decoded(value));
            let is_true = value == "true";
            match name.as_str() {
                "tls" | "ssl" => is_on = is_true,
                "tlsinsecure" | "tlsallowinvalidcertificates" => checks_authority &= !is_true,
                "tlsallowinvalidhostnames" => checks_name &= !is_true,
                "tlscafile" => settings.set("sslrootcert", &value, at),
                "tlscertificatekeyfile" => {
                    settings.set("sslcert", &value, at);
                    settings.set("sslkey", &value, at);
                }
                _ => {}
            }
        }
        let mode = match (is_on, checks_authority, checks_name) {
            (false, ..) => Mode::Disable,
            (true, false, _) => Mode::Require,
            (true, true, false) => Mode::VerifyCa,
            (true, true, true) => Mode::VerifyFull,
        };
        settings.set("sslmode", mode.as_str(), at);
        settings
    }

    /// Sets one setting by its name in libpq; another name is passed over.
    pub fn set(&mut self, name: &str, text: &str, at: &str) {
        let slot = match name {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root_cert,
            "sslcert" => &mut self.cert,
            "sslkey" => &mut self.key,
            _ => return,
        };
        let (text, at) = (text.to_owned(), at.to_owned());
        *slot = (!text.is_empty()).then_some(Written { text, at });
    }

    /// The files that they name.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let written = [&self.root_cert, &self.cert, &self.key];
        let files = written.into_iter().flatten();
        files
            .map(|written| written.text.as_str())
            .filter(|text| *text != SYSTEM)
    }

    /// The mode that was written, or that `https` promises.
    pub fn shown_mode(&self) -> Option<&str> {
        let promised = self.promised.then(|| Mode::VerifyFull.as_str());
        self.mode
            .as_ref()
            .map(|mode| mode.text.as_str())
            .or(promised)
    }

    /// These, and the others where these are silent.
    pub fn or(mut self, other: &Self) -> Self {
        self.mode = self.mode.or_else(|| other.mode.clone());
        self.root_cert = self.root_cert.or_else(|| other.root_cert.clone());
        self.cert = self.cert.or_else(|| other.cert.clone());
        self.key = self.key.or_else(|| other.key.clone());
        self
    }

    /// The same for `https`: `verify-full` unless another mode was written. Error:
    /// `tls_bad_setting`.
    pub fn https(&self) -> Result<Policy, Error> {
        let promised = true;
        Self {
            promised,
            ..self.clone()
        }
        .policy()
    }

    /// The policy of these settings. Without a mode it is `prefer`, as in libpq; but `verify-full` where a
    /// root certificate is named or the scheme promises it. Error: `tls_bad_setting`.
    pub fn policy(&self) -> Result<Policy, Error> {
        let mode = match &self.mode {
            None if self.root_cert.is_some() || self.promised => Mode::VerifyFull,
            None => Mode::Prefer,
            Some(written) => Mode::parse(&written.text).ok_or_else(|| {
                bad(
                    &written.at,
                    format!("`{}` is not a valid sslmode", written.text),
                )
                .hint(
                    "set sslmode to disable, allow, prefer, require, verify-ca or \
                         verify-full",
                )
            })?,
        };
        Ok(Policy {
            mode,
            roots: self.roots(mode)?,
            identity: self.identity()?,
            names: self.names,
        })
    }

    fn roots(&self, mode: Mode) -> Result<Roots, Error> {
        match &self.root_cert {
            Some(written) if written.text == SYSTEM && mode < Mode::VerifyFull => {
                let text = format!(
                    "sslrootcert=system cannot be used with sslmode={}",
                    mode.as_str()
                );
                Err(bad(&written.at, text).hint(
                    "use sslmode=verify-full, or remove sslmode: anybody can get a certificate \
                         from a public authority",
                ))
            }
            Some(written) if written.text != SYSTEM => Ok(Roots::File(written.clone())),
            None if mode < Mode::VerifyCa => Ok(Roots::Unchecked),
            Some(_) | None => Ok(Roots::Public),
        }
    }

    fn identity(&self) -> Result<Option<Identity>, Error> {
        match (self.cert.clone(), self.key.clone()) {
            (Some(cert), Some(key)) => Ok(Some(Identity { cert, key })),
            (None, None) => Ok(None),
            (Some(one), None) | (None, Some(one)) => {
                let text = "of sslcert and sslkey, one is missing";
                Err(bad(&one.at, text).hint("name both files, or none"))
            }
        }
    }
}

fn bad(at: &str, message: impl std::fmt::Display) -> Error {
    let mut error = Error::new(ErrorKind::Config, "tls_bad_setting", message);
    error.location = Some(at.to_owned());
    error
}

/// Undoes percent-encoding; text that is not well encoded stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        match after.get(..2).and_then(hex).filter(|_| byte == b'%') {
            Some(value) => {
                bytes.push(value);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn hex(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0, |value: u8, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value * 16 + u8::try_from(digit).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(query: &str) -> Result<Policy, Error> {
        Settings::from_query(query, "config.url").policy()
    }

    #[test]
    fn the_mode_and_what_it_checks() {
        use {Mode::*, Roots::*};
        let root = |text: &str| {
            let (text, at) = (text.into(), "config.url".into());
            File(Written { text, at })
        };
        for (query, mode, roots) in [
            ("", Prefer, Unchecked),
            ("sslmode=", Prefer, Unchecked),
            ("a=b&sslmode=disable", Disable, Unchecked),
            ("sslmode=require", Require, Unchecked),
            ("ssl=true", Require, Unchecked),
            ("sslmode=require&sslrootcert=b.pem", Require, root("b.pem")),
            ("sslrootcert=%2Fa%20b.pem", VerifyFull, root("/a b.pem")),
            ("sslmode=disable&ssl%6Dode=verify%2Dca", VerifyCa, Public),
            ("sslmode=verify-full", VerifyFull, Public),
            ("sslrootcert=system", VerifyFull, Public),
        ] {
            let policy = policy(query).unwrap_or_else(|e| panic!("{query}: {}", e.message));
            assert_eq!((policy.mode, policy.roots), (mode, roots), "{query}");
        }
    }

    #[test]
    fn the_options_of_mongodb_say_the_same() {
        let policy = |query: &str| {
            let policy = Settings::from_mongodb_query(query, "config.url").policy();
            policy.unwrap_or_else(|e| panic!("{query}: {}", e.message))
        };
        for (query, mode) in [
            ("", Mode::Disable),
            ("tls=false", Mode::Disable),
            ("sslmode=require", Mode::Disable),
            ("tls=true", Mode::VerifyFull),
            ("replicaSet=a&SSL=true", Mode::VerifyFull),
            ("tls=true&tlsAllowInvalidHostnames=true", Mode::VerifyCa),
            ("tls=true&tlsAllowInvalidCertificates=true", Mode::Require),
            ("tlsInsecure=true&tls=true", Mode::Require),
            ("tlsInsecure=false&tls=true", Mode::VerifyFull),
            ("tlsInsecure=true", Mode::Disable),
        ] {
            assert_eq!(policy(query).mode, mode, "{query}");
        }
        let policy = policy("tls=true&tlsCAFile=a%20b.pem&tlscertificatekeyfile=c.pem");
        let written = |text: &str| {
            let (text, at) = (text.into(), "config.url".into());
            Written { text, at }
        };
        assert_eq!(policy.roots, Roots::File(written("a b.pem")));
        let identity = policy.identity.expect("a certificate");
        assert_eq!(
            (identity.cert, identity.key),
            (written("c.pem"), written("c.pem"))
        );
    }

    #[test]
    fn invalid_tls_settings_are_refused() {
        for (query, part) in [
            ("sslmode=verify", "`verify`"),
            ("sslmode=VERIFY-FULL", "VERIFY-FULL"),
            ("sslmode=verify-full#x", "verify-full#x"),
            ("sslmode=%zz", "%zz"),
            ("sslmode=require&sslrootcert=system", "system"),
            ("sslcert=c.pem", "sslkey"),
            ("sslkey=k.pem", "sslcert"),
        ] {
            let error = policy(query).expect_err(query);
            assert_eq!(error.code, "tls_bad_setting", "{query}");
            assert_eq!(error.location.as_deref(), Some("config.url"));
            assert!(error.message.contains(part), "{query}: {}", error.message);
            assert!(error.hint.is_some(), "{query}");
        }
    }
}

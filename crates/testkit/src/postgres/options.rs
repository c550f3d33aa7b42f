//! How a test's server is set up.

use std::path::PathBuf;

/// The superuser's password unless a test chooses another. It has what has to be escaped in URLs,
/// YAML, JSON and SQL, so that no spelling of it is harmless, and it is nowhere else by chance:
/// tests look for it in everything that the program prints and writes.
pub const PASSWORD: &str = "c4nary \"ü\\' +/%:@";

/// How clients prove who they are when they come over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Nothing is asked.
    Trust,
    /// The password itself is sent.
    Password,
    /// The password's MD5 hash is kept and asked for.
    Md5,
    /// SCRAM, PostgreSQL's own default.
    ScramSha256,
}

impl Auth {
    /// The word of `pg_hba.conf`.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Password => "password",
            Self::Md5 => "md5",
            Self::ScramSha256 => "scram-sha-256",
        }
    }

    /// How passwords are kept: `password_encryption` of `postgresql.conf`.
    pub(super) fn encryption(self) -> &'static str {
        if self == Self::Md5 {
            "md5"
        } else {
            "scram-sha-256"
        }
    }
}

/// The server's certificate and key, as PEM text.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate, and those between it and the authority.
    pub certificate: String,
    /// Its key, without a password.
    pub key: String,
    /// Certificates of the authorities that sign clients' certificates.
    pub client_authority: Option<String>,
}

/// How a server is set up. The default is what tests of anything but the set-up need.
#[derive(Debug, Clone)]
pub struct Options {
    /// For every user over TCP, after the lines of `hba`.
    pub auth: Auth,
    /// Of the superuser `postgres`.
    pub password: String,
    /// Lines for `postgresql.conf`, such as `wal_level = logical`.
    pub conf: Vec<String>,
    /// Lines for the beginning of `pg_hba.conf`, such as `host all reader all reject`.
    pub hba: Vec<String>,
    /// Keeps what it commits, as PostgreSQL does by default, for measurements; else a crash of the
    /// machine may lose it, which tests do not mind.
    pub durable: bool,
    /// Makes the server speak TLS; needs server programs that were built with it.
    pub tls: Option<Tls>,
    /// The folder of `initdb` and `postgres`, if not that of every other server.
    pub programs: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            auth: Auth::ScramSha256,
            password: PASSWORD.into(),
            conf: Vec::new(),
            hba: Vec::new(),
            durable: false,
            tls: None,
            programs: None,
        }
    }
}

//! Where servers are and how to come to them, from a `mongodb://` URL (MongoDB manual, "Connection Strings" and
//! "Connection String Options"). Nothing is read from the environment or from files.

use std::fmt;
use std::time::Duration;

use rapidbyte_sdk::Result;

mod options;
mod url;

/// As the drivers have it.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_PORT: u16 = 27017;
/// More servers than a replica set has (50 members).
const MAX_HOSTS: usize = 64;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// A name or an address, an IPv6 address without brackets.
    pub name: String,
    /// Its TCP port.
    pub port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') {
            write!(f, "[{name}]:{port}")
        } else {
            write!(f, "{name}:{port}")
        }
    }
}

/// A user and how it proves who it is. Its `Debug` leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user.
    pub user: String,
    /// Never shown.
    pub password: String,
    /// The database that has the user: `authSource`, or else the database of the URL, or else `admin`.
    pub source: String,
    /// `None`: the stronger one of those that the server has for the user.
    pub mechanism: Option<Mechanism>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("source", &self.source)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

/// How a user proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// RFC 7677.
    ScramSha256,
    /// RFC 5802.
    ScramSha1,
}

impl Mechanism {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha1 => "SCRAM-SHA-1",
        }
    }
}

/// Whether TLS is used. The host of the sandbox reads the same options, and checks the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    Off,
    /// Always.
    On,
}

/// A way to compress messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are MongoDB's")]
pub enum Compressor {
    Snappy,
    Zlib,
    Zstd,
}

impl Compressor {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Snappy, Self::Zlib, Self::Zstd]
            .into_iter()
            .find(|compressor| compressor.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// Which members of a replica set are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are MongoDB's")]
pub enum ReadPreference {
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

impl ReadPreference {
    /// The mode that a command names. `None`: the default.
    pub(crate) fn sent(self) -> Option<&'static str> {
        match self {
            Self::Primary => None,
            Self::PrimaryPreferred => Some("primaryPreferred"),
            Self::Secondary => Some("secondary"),
            Self::SecondaryPreferred => Some("secondaryPreferred"),
            Self::Nearest => Some("nearest"),
        }
    }
}

/// How many members must have a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum W {
    /// A number of members, at least 1.
    Members(i32),
    /// `majority`, or the name of a concern that the replica set defines.
    Named(String),
}

/// What a write waits for; absent is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w`.
    pub w: Option<W>,
    /// `journal`: the members have written the journal.
    pub journal: Option<bool>,
    /// `wtimeoutMS`: the longest wait, in milliseconds.
    pub timeout_ms: Option<i32>,
}

/// Everything that a connection needs. Its `Debug` leaves the password out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// At least one, tried in order.
    pub hosts: Vec<Host>,
    /// `None`: the server is not told who we are.
    pub login: Option<Login>,
    /// The database of the URL.
    pub database: Option<String>,
    /// `tls`.
    pub tls: Tls,
    /// `connectTimeoutMS`: for each host connecting, TLS and the login together.
    pub connect_timeout: Duration,
    /// `socketTimeoutMS`: the longest wait for an answer.
    pub reply_timeout: Duration,
    /// `replicaSet`: a server of another set is refused.
    pub replica_set: Option<String>,
    /// `directConnection`: whatever server answers will do.
    pub is_direct: bool,
    /// `readPreference`.
    pub read_preference: ReadPreference,
    /// `readConcernLevel`, such as `majority`.
    pub read_concern: Option<String>,
    /// `w`, `journal` and `wtimeoutMS`.
    pub write_concern: WriteConcern,
    /// `compressors`, in the order of preference.
    pub compressors: Vec<Compressor>,
    /// `zlibCompressionLevel`, 0 to 9.
    pub zlib_level: u32,
    /// `appName`: shown in the server's log.
    pub app_name: String,
    /// The key of the configuration that has the URL, for errors: `config.url`.
    pub location: String,
}

impl Settings {
    /// Reads `mongodb://user:password@host:27017,host/database?option=…`. Errors: `invalid_url`, at `config.url`.
    pub fn from_url(url: &str) -> Result<Self> {
        let parts = url::Parts::read(url)?;
        options::settings(parts)
    }
}

/// For people: user, hosts and database.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(login) = &self.login {
            write!(f, "{}@", login.user)?;
        }
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(f, "{}/", hosts.join(","))?;
        f.write_str(self.database.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;

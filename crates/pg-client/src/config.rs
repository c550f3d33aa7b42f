//! Where a server is and how to come to it.
//!
//! A URL and separate keys say the same under libpq's names (PostgreSQL manual, "Connection
//! Strings"); both are read into one list of keywords, and each keyword is read in one place.
//! Nothing is read from the environment or from files.

use std::fmt;
use std::time::Duration;

use rapidbyte_sdk::Result;

mod keywords;
mod url;

use keywords::Keywords;

/// libpq waits for ever; a pipeline should not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_PORT: u16 = 5432;
/// More servers than a cluster has.
const MAX_HOSTS: usize = 32;

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

/// When TLS is used and what is checked; weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never.
    Disable,
    /// Only where the server refuses us without.
    Allow,
    /// Where the server has it.
    Prefer,
    /// Always.
    Require,
    /// Always, and the certificate comes from a known authority.
    VerifyCa,
    /// Always, and the certificate is this server's.
    VerifyFull,
}

/// Whether SCRAM is bound to the TLS session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where both sides can.
    Prefer,
    /// Always, which only SCRAM over TLS can.
    Require,
}

/// Which of several servers will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSession {
    /// The first that lets us in.
    Any,
    /// One where transactions may write.
    ReadWrite,
    /// One where transactions may not write.
    ReadOnly,
    /// One that is not in recovery.
    Primary,
    /// One that is in recovery.
    Standby,
    /// A standby, or else any.
    PreferStandby,
}

/// Everything that a connection needs. Its `Debug` leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// At least one, tried in order.
    pub hosts: Vec<Host>,
    /// The role to log in as.
    pub user: String,
    /// Never shown.
    pub password: Option<String>,
    /// The user's name unless it was given, as in libpq.
    pub database: String,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// Command-line options for the server, such as `-c statement_timeout=5min`.
    pub options: Option<String>,
    /// For each host: connecting, TLS and authentication together.
    pub connect_timeout: Duration,
    /// The host of the sandbox enforces the same mode.
    pub sslmode: SslMode,
    /// Whether SCRAM must be bound to TLS.
    pub channel_binding: ChannelBinding,
    /// Which of the hosts will do.
    pub target_session: TargetSession,
    /// The key of the configuration that says where the server is, for errors: `config.url`.
    pub location: String,
}

/// The separate keys of a configuration, by their names there; absent is `None`.
#[derive(Clone, Default)]
pub struct Fields {
    /// One name, or several with commas between.
    pub host: Option<String>,
    /// One for all hosts. Several ports need a URL.
    pub port: Option<u16>,
    /// The role.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// The database.
    pub database: Option<String>,
    /// `sslmode`.
    pub sslmode: Option<String>,
    /// `sslrootcert`; only that it is there matters here, the host reads the file.
    pub sslrootcert: Option<String>,
    /// `sslcert`; the host reads the file.
    pub sslcert: Option<String>,
    /// `sslkey`; the host reads the file.
    pub sslkey: Option<String>,
    /// `channel_binding`.
    pub channel_binding: Option<String>,
    /// `target_session_attrs`.
    pub target_session_attrs: Option<String>,
    /// `application_name`.
    pub application_name: Option<String>,
    /// `options`.
    pub options: Option<String>,
    /// Seconds.
    pub connect_timeout: Option<u32>,
}

impl Settings {
    /// True if `options` names this parameter of the server: the operator's word then stays.
    pub fn sets(&self, parameter: &str) -> bool {
        let options = self.options.as_deref().unwrap_or_default();
        options.contains(parameter)
    }

    /// Reads `postgres://user:password@host:port/database?sslmode=…`. Errors: `invalid_url`, at
    /// `config.url`.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::from_config(Some(url), Fields::default())
    }

    /// Reads separate keys. Errors: `invalid_setting`, at `config.` and the key.
    pub fn from_fields(fields: Fields) -> Result<Self> {
        Self::from_config(None, fields)
    }

    /// Reads a URL with separate keys beside it; what both name must be the same.
    pub fn from_config(url: Option<&str>, fields: Fields) -> Result<Self> {
        let mut keywords = Keywords::default();
        if let Some(url) = url {
            url::read(url, &mut keywords)?;
        }
        keywords.read_fields(fields)?;
        Self::build(&keywords)
    }

    fn build(keywords: &Keywords) -> Result<Self> {
        let user = keywords.required("user", "the role to log in as")?;
        let database = keywords.text("database").unwrap_or(&user).to_owned();
        for (a, b) in [("sslcert", "sslkey"), ("sslkey", "sslcert")] {
            if keywords.text(a).is_some() && keywords.text(b).is_none() {
                let text = format!("`{a}` without `{b}`");
                return Err(keywords
                    .bad(a, text)
                    .hint("a client certificate needs both: name both files, or none"));
            }
        }
        // As the host has it: whoever names an authority wants it checked.
        let default_mode = if keywords.text("sslrootcert").is_some() {
            SslMode::VerifyFull
        } else {
            SslMode::Prefer
        };
        let seconds = keywords.number("connect_timeout")?;
        Ok(Self {
            hosts: hosts(keywords)?,
            database,
            user,
            password: keywords.text("password").map(str::to_owned),
            application_name: keywords
                .text("application_name")
                .unwrap_or("rapidbyte")
                .to_owned(),
            options: keywords.text("options").map(str::to_owned),
            connect_timeout: seconds.map_or(CONNECT_TIMEOUT, timeout),
            sslmode: keywords
                .word("sslmode", &SSL_MODES)?
                .unwrap_or(default_mode),
            channel_binding: keywords
                .word("channel_binding", &CHANNEL_BINDINGS)?
                .unwrap_or(ChannelBinding::Prefer),
            target_session: keywords
                .word("target_session_attrs", &TARGET_SESSIONS)?
                .unwrap_or(TargetSession::Any),
            location: keywords.location("host"),
        })
    }
}

const SSL_MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];
const CHANNEL_BINDINGS: [(&str, ChannelBinding); 3] = [
    ("disable", ChannelBinding::Disable),
    ("prefer", ChannelBinding::Prefer),
    ("require", ChannelBinding::Require),
];
const TARGET_SESSIONS: [(&str, TargetSession); 6] = [
    ("any", TargetSession::Any),
    ("read-write", TargetSession::ReadWrite),
    ("read-only", TargetSession::ReadOnly),
    ("primary", TargetSession::Primary),
    ("standby", TargetSession::Standby),
    ("prefer-standby", TargetSession::PreferStandby),
];

/// As libpq: zero is for ever, and one second is too short to mean it.
fn timeout(seconds: u32) -> Duration {
    match seconds {
        0 => Duration::from_secs(u64::from(u32::MAX / 1000)),
        seconds => Duration::from_secs(u64::from(seconds.max(2))),
    }
}

/// `a,b` with `1,2`, or with one port for all, or with none.
fn hosts(keywords: &Keywords) -> Result<Vec<Host>> {
    let names = keywords.required("host", "where the server is")?;
    let names: Vec<&str> = names.split(',').collect();
    let ports: Vec<&str> = match keywords.text("port") {
        Some(ports) => ports.split(',').collect(),
        None => vec![""],
    };
    if names.len() > MAX_HOSTS {
        return Err(keywords.bad("host", format!("more than {MAX_HOSTS} hosts")));
    }
    if ports.len() != 1 && ports.len() != names.len() {
        let (names, ports) = (names.len(), ports.len());
        return Err(keywords
            .bad("port", format!("{ports} ports for {names} hosts"))
            .hint("give one port for all hosts, or one for each"));
    }
    let host = |(at, name): (usize, &&str)| {
        if name.is_empty() || name.starts_with(['/', '@']) {
            let what = if name.is_empty() {
                "no host"
            } else {
                "a Unix socket"
            };
            return Err(keywords.bad("host", what).hint(
                "a connector reaches servers over TCP only: name a host, such as localhost, \
                 and let the server listen there",
            ));
        }
        let text = ports[if ports.len() == 1 { 0 } else { at }];
        let port = match text {
            "" => DEFAULT_PORT,
            text => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                keywords
                    .bad("port", format!("`{text}` is no port"))
                    .hint("a port is a number of 1 to 65535; PostgreSQL's own is 5432")
            })?,
        };
        let name = (*name).to_owned();
        Ok(Host { name, port })
    };
    names.iter().enumerate().map(host).collect()
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("application_name", &self.application_name)
            .field("options", &self.options)
            .field("connect_timeout", &self.connect_timeout)
            .field("sslmode", &self.sslmode)
            .field("channel_binding", &self.channel_binding)
            .field("target_session", &self.target_session)
            .finish_non_exhaustive()
    }
}

/// For people: user, hosts and database.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        write!(f, "{}@{}/{}", self.user, hosts.join(","), self.database)
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

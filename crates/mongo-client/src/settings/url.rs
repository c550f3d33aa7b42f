//! Cuts a connection URL into its parts.
//!
//! The host of the sandbox cuts the URL in the same way when it derives the grant: the query begins at the first `?`,
//! the hosts end at the first `/` after the scheme and begin after the last `@` before that. No message repeats the URL,
//! because it may hold a password.

use percent_encoding::percent_decode_str;
use rapidbyte_sdk::{Error, Result};

use super::{DEFAULT_PORT, Host, MAX_HOSTS};

/// Of the configuration, the key of the URL.
pub(super) const LOCATION: &str = "config.url";
const FORM: &str = "write mongodb://user:password@host:27017/database";
const ENCODE: &str = "in a user, a password or a database, write / as %2F, ? as %3F, # as %23, @ \
     as %40, : as %3A, % as %25";
/// A longer value is not a setting.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// The decoded parts of a URL.
#[derive(Debug)]
pub(super) struct Parts {
    pub hosts: Vec<Host>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: Option<String>,
    /// Names and values in their order.
    pub options: Vec<(String, String)>,
}

impl Parts {
    pub fn read(url: &str) -> Result<Self> {
        if url.starts_with("mongodb+srv://") {
            return Err(bad(
                "mongodb+srv:// is not supported: the host does not resolve SRV records",
            )
            .hint(
                "write mongodb:// with the servers themselves; `nslookup -type=SRV \
                     _mongodb._tcp.NAME` lists them, and add tls=true",
            ));
        }
        let Some(rest) = url.strip_prefix("mongodb://") else {
            return Err(bad("not a URL that begins with mongodb://").hint(FORM));
        };
        if rest.contains('#') {
            return Err(bad("a # that is not encoded").hint(ENCODE));
        }
        let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = before.split_once('/').unwrap_or((before, ""));
        if database.contains('@') {
            return Err(bad("an @ after a /").hint(ENCODE));
        }
        let (login, addresses) = match authority.rsplit_once('@') {
            Some((login, addresses)) => (Some(login), addresses),
            None => (None, authority),
        };
        let (mut user, mut password) = (None, None);
        if let Some(login) = login {
            let (name, secret) = match login.split_once(':') {
                Some((name, secret)) => (name, Some(secret)),
                None => (login, None),
            };
            user = Some(decoded(name, "the user")?).filter(|user| !user.is_empty());
            let secret = secret.map(|secret| decoded(secret, "the password"));
            password = secret.transpose()?;
            if user.is_none() {
                return Err(bad("an @ without a user before it").hint(ENCODE));
            }
        }
        let database = Some(decoded(database, "the database")?);
        Ok(Self {
            hosts: hosts(addresses)?,
            user,
            password,
            database: database.filter(|database| !database.is_empty()),
            options: options(query)?,
        })
    }
}

pub(super) fn bad(what: impl std::fmt::Display) -> Error {
    Error::config("invalid_url", what).at(LOCATION)
}

/// `a:1,b,[::1]:3`.
fn hosts(addresses: &str) -> Result<Vec<Host>> {
    let addresses: Vec<&str> = addresses.split(',').collect();
    if addresses.len() > MAX_HOSTS {
        return Err(bad(format!("more than {MAX_HOSTS} hosts")));
    }
    addresses.into_iter().map(host).collect()
}

fn host(address: &str) -> Result<Host> {
    let (name, port) = match address.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .and_then(|(name, port)| match port {
                "" => Some((name, None)),
                port => Some((name, Some(port.strip_prefix(':')?))),
            })
            .ok_or_else(|| bad("an IPv6 address without its closing bracket"))?,
        None => match address.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (address, None),
        },
    };
    if port.is_some_and(|port| port.contains(':')) {
        return Err(bad("an IPv6 address without brackets").hint("write [::1]:27017"));
    }
    let name = decoded(name, "a host")?;
    if name.is_empty() {
        return Err(bad("a host is missing").hint(FORM));
    }
    if name.contains('/') {
        return Err(bad("a Unix socket").hint(
            "name a host, such as localhost, and let the server listen there: a connector reaches \
             servers over TCP only",
        ));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(text) => text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            bad("a port that is not a number from 1 to 65535")
                .hint("the default of MongoDB is 27017")
        })?,
    };
    Ok(Host { name, port })
}

fn options(query: &str) -> Result<Vec<(String, String)>> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(
                    bad("an option without `=`").hint("write name=value, with & between options")
                );
            };
            let name = decoded(name, "the name of an option")?;
            let value = decoded(value, &format!("the option `{name}`"))?;
            Ok((name, value))
        })
        .collect()
}

fn decoded(text: &str, what: &str) -> Result<String> {
    // Bytes that look encoded and are not would stand for themselves.
    let is_encoded =
        |after: &[u8]| after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let mut percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if percents.any(|(at, _)| !is_encoded(&bytes[at + 1..])) {
        return Err(bad(format!("a % in {what} that encodes nothing")).hint(ENCODE));
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| bad(format!("{what} is not UTF-8")))?;
    if decoded.contains('\0') {
        return Err(bad(format!("{what} contains a NUL byte")));
    }
    if decoded.len() > MAX_VALUE_BYTES {
        return Err(bad(format!(
            "{what} is longer than {MAX_VALUE_BYTES} bytes"
        )));
    }
    Ok(decoded.into_owned())
}

//! Servers that may be reached: the servers of the configuration and of `permissions.network`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::address::{Class, class};
use super::tls::{Mode, Settings};

/// Which servers may be reached, and how they are spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    host: Hosts,
    port: u16,
    pub(super) tls: Settings,
    /// The connector can speak TLS there as the settings say.
    pub(super) speaks_tls: bool,
}

/// The hosts of one grant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// A name or an address, as it was written, in lower case.
    Named(String),
    /// Every name that ends with this, which begins with a point.
    Below(String),
    /// The addresses whose first bits are these.
    Range { network: IpAddr, bits: u8 },
}

impl Server {
    /// The server that the configuration names.
    pub(super) fn named(host: &str, port: u16, tls: Settings) -> Self {
        Self {
            host: Hosts::Named(host.to_ascii_lowercase()),
            port,
            tls,
            speaks_tls: false,
        }
    }

    /// An entry of `permissions.network`: `db.internal:5432`, `10.1.2.3:5432`, `[fd00::1]:5432`,
    /// `*.example.com:443` (names below it, at any depth) or `10.0.0.0/8:5432` (addresses, also
    /// the addresses that granted names may resolve to).
    ///
    /// # Errors
    /// The problem, in words.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or("it does not end with a port from 1 to 65535")?;
        let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(Some(host)) => host,
            None if !host.contains(':') => host,
            _ => return Err("an IPv6 address needs brackets, such as [fd00::1]:5432"),
        };
        Ok(Self {
            host: Hosts::parse(host)?,
            port,
            tls: Settings::default(),
            speaks_tls: false,
        })
    }

    /// How the server is spoken to, as `plan` shows it; nothing where no setting decides on it.
    pub(super) fn security(&self) -> String {
        match self.tls.shown_mode() {
            Some(mode) => format!(", TLS {mode}"),
            None if self.speaks_tls => format!(", TLS {}", Mode::Prefer.as_str()),
            None => String::new(),
        }
    }

    /// True when this host may be asked for at this port.
    pub(super) fn allows(&self, host: &str, port: u16) -> bool {
        port == self.port && self.host.holds(host)
    }

    /// True when a name may resolve to this address, whatever its class.
    fn reaches(&self, host: &str, address: SocketAddr) -> bool {
        let named = |text: &str| {
            let is_it = text.parse() == Ok(address.ip());
            let is_local = text == "localhost" && class(address.ip()) == Some(Class::Loopback);
            text.eq_ignore_ascii_case(host) && (is_it || is_local)
        };
        self.port == address.port()
            && match &self.host {
                Hosts::Named(text) => named(text),
                Hosts::Below(_) => false,
                Hosts::Range { network, bits } => is_within(address.ip(), *network, *bits),
            }
    }
}

/// Why `host`, which was resolved to `address`, may not be reached there. `None` where it may.
pub(super) fn forbidden(servers: &[Server], host: &str, address: SocketAddr) -> Option<Class> {
    class(address.ip()).filter(|_| !servers.iter().any(|server| server.reaches(host, address)))
}

impl Hosts {
    fn parse(host: &str) -> Result<Self, &'static str> {
        if let Some((network, bits)) = host.split_once('/') {
            let network: IpAddr = network
                .parse()
                .map_err(|_| "its network is not an address")?;
            let most = if network.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most);
            let bits = bits.ok_or("its network has no valid number of bits")?;
            return Ok(Self::Range { network, bits });
        }
        let host = host.to_ascii_lowercase();
        match host.strip_prefix('*') {
            Some(rest) if rest.len() > 1 && rest.starts_with('.') && !rest.contains('*') => {
                Ok(Self::Below(rest.to_owned()))
            }
            Some(_) => Err("a wildcard must be the first part of a name, such as \
                 *.example.com:443"),
            None if host.is_empty() => Err("it does not name a host"),
            None if host.contains(['*', '?', '/', '@', ' ']) => Err("its host is not a valid name"),
            None => Ok(Self::Named(host)),
        }
    }

    fn holds(&self, host: &str) -> bool {
        match self {
            Self::Named(named) => named.eq_ignore_ascii_case(host),
            Self::Below(end) => {
                let host = host.to_ascii_lowercase();
                let before = host.strip_suffix(end.as_str());
                before.is_some_and(|before| !before.is_empty()) && host.parse::<IpAddr>().is_err()
            }
            // Only what is an address in its usual spelling: a name is not looked up for it.
            Self::Range { network, bits } => host
                .parse()
                .is_ok_and(|address| is_within(address, *network, *bits)),
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            address.to_bits() & mask == network.to_bits() & mask
        }
        _ => false,
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Hosts::Named(host) => write!(f, "{host}:{}", self.port),
            Hosts::Below(end) => write!(f, "*{end}:{}", self.port),
            Hosts::Range { network, bits } => write!(f, "{network}/{bits}:{}", self.port),
        }
    }
}

/// `scheme://user:password@host:port,host:port/…?…` by its hosts and ports, with what its
/// parameters say about TLS; `at` is its place.
pub(super) fn servers(url: &str, at: &str) -> Vec<Server> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = before.split(['/', '#']).next().unwrap_or_default();
    let addresses = authority
        .rsplit_once('@')
        .map_or(authority, |(_, addresses)| addresses);
    let default = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        "postgres" | "postgresql" => Some(5432),
        "mongodb" => Some(27017),
        _ => None,
    };
    let mut tls = match scheme {
        "mongodb" => Settings::from_mongodb_query(query, at),
        _ => Settings::from_query(query, at),
    };
    tls.promised = scheme == "https";
    addresses
        .split(',')
        .filter_map(|text| address(text, default))
        .map(|(host, port)| Server {
            speaks_tls: scheme.starts_with("postgres"),
            ..Server::named(&host, port, tls.clone())
        })
        .collect()
}

fn address(text: &str, default_port: Option<u16>) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (text, default_port),
    };
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Server {
        Server::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn an_entry_allows_what_it_says_and_nothing_beside() {
        for (entry, host, port, expected) in [
            ("db.internal:5432", "DB.internal", 5432, true),
            ("db.internal:5432", "db.internal", 5433, false),
            ("db.internal:5432", "x.db.internal", 5432, false),
            ("*.Example.com:443", "a.example.com", 443, true),
            ("*.example.com:443", "a.b.EXAMPLE.com", 443, true),
            ("*.example.com:443", "example.com", 443, false),
            ("*.example.com:443", ".example.com", 443, false),
            ("*.example.com:443", "aexample.com", 443, false),
            ("*.example.com:443", "a.example.com.evil", 443, false),
            ("10.0.0.0/8:5432", "10.255.0.1", 5432, true),
            ("10.0.0.0/8:5432", "11.0.0.1", 5432, false),
            ("10.0.0.0/8:5432", "10.0.0.1.evil.com", 5432, false),
            // Octal, decimal and hexadecimal spellings are names, and no name is in a range.
            ("10.0.0.0/8:5432", "012.0.0.1", 5432, false),
            ("10.0.0.0/8:5432", "167772161", 5432, false),
            ("10.0.0.0/8:5432", "0xa000001", 5432, false),
            ("10.0.0.0/8:5432", "::ffff:10.0.0.1", 5432, false),
            ("0.0.0.0/0:5432", "8.8.8.8", 5432, true),
            ("10.1.2.3/32:1", "10.1.2.3", 1, true),
            ("10.1.2.3/32:1", "10.1.2.2", 1, false),
            ("[fd00::/8]:5432", "fd12::1", 5432, true),
            ("[fd00::1]:5432", "fd00::1", 5432, true),
            ("[::/0]:5432", "2001:db8::1", 5432, true),
        ] {
            assert_eq!(parsed(entry).allows(host, port), expected, "{entry} {host}");
        }
    }

    #[test]
    fn a_text_that_is_not_an_entry_is_refused() {
        for text in [
            "",
            "db",
            "db:",
            "db:0",
            "db:65536",
            "db:*",
            ":5432",
            "*:5432",
            "*.:1",
            "a.*.com:1",
            "*.*.com:1",
            "fd00::1:5432",
            "[fd00::1:5432",
            "10.0.0.0/33:1",
            "10.0.0/8:1",
            "[fd00::/129]:1",
            "user@db:1",
            "http://db:80",
            "d?:1",
            "10.0.0.0/:1",
        ] {
            assert!(Server::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_does_not_lead_where_the_operator_did_not() {
        let servers = [
            "db:1",
            "localhost:1",
            "127.0.0.2:1",
            "[::1]:1",
            "*.corp:1",
            "127.1:1",
            "2130706433:1",
            "0x7f.1:1",
            "0177.0.0.1:1",
            "[::ffff:127.0.0.1]:1",
            "loc.lan:1",
            "169.254.1.0/24:1",
        ];
        let servers: Vec<Server> = servers.iter().map(|text| parsed(text)).collect();
        let allowed = |host: &str, address: &str| {
            let address = SocketAddr::new(address.parse().expect("an address"), 1);
            forbidden(&servers, host, address).is_none()
        };
        for (host, address, expected) in [
            ("db", "10.0.0.1", true),
            ("db", "127.0.0.1", false),
            ("db", "::1", false),
            ("db", "::ffff:127.0.0.1", false),
            ("db", "64:ff9b::7f00:1", false),
            ("db", "169.254.169.254", false),
            ("db", "fd00:ec2::254", false),
            ("db", "0.0.0.0", false),
            ("db", "255.255.255.255", false),
            ("db", "ff02::1", false),
            // Within a range that is granted for this port.
            ("db", "169.254.1.7", true),
            ("a.corp", "127.0.0.1", false),
            ("localhost", "127.0.0.1", true),
            ("LOCALHOST", "::1", true),
            ("localhost", "169.254.169.254", false),
            // Written as it is.
            ("127.0.0.2", "127.0.0.2", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", true),
            // Only granted under its own text.
            ("db", "127.0.0.2", false),
            // Spellings that only a resolver understands are names.
            ("127.1", "127.0.0.1", false),
            ("2130706433", "127.0.0.1", false),
            ("0x7f.1", "127.0.0.1", false),
            ("0177.0.0.1", "127.0.0.1", false),
        ] {
            assert_eq!(allowed(host, address), expected, "{host} {address}");
        }
        let other_port = SocketAddr::new("169.254.1.7".parse().expect("an address"), 2);
        assert_eq!(
            forbidden(&servers, "db", other_port),
            Some(Class::LinkLocal)
        );
    }
}

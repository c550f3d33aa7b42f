//! From a granted name to a connection. The host resolves the name once, checks each address, and
//! connects to exactly the address that it checked.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::Grants;
use crate::bindings::types::{Error, ErrorKind};
use crate::grants::address::Class;

/// Addresses of one name that are checked; servers have a few.
const MAX_ADDRESSES: usize = 64;

/// Why a connection failed.
#[derive(Debug)]
pub enum Refused {
    /// The name stands for nothing but addresses that are out of reach: the first of them.
    Address(SocketAddr, Class),
    /// It could not be looked up, or nobody answered.
    Io(io::Error),
}

impl Refused {
    /// Too many names are being looked up.
    pub fn too_many(host: &str, port: u16) -> Error {
        let text = format!("{host}:{port}: too many name lookups are waiting");
        Error::new(ErrorKind::Transient, "too_many_lookups", text).hint(
            "check the name server, or lower the number of servers that the connector connects \
                 to at the same time",
        )
    }

    /// Nobody answered in time.
    pub fn late(timeout_ms: u32) -> Self {
        let text = format!("no response within {timeout_ms} ms");
        Self::Io(io::Error::other(text))
    }

    /// The error for the guest.
    pub fn explain(&self, host: &str, port: u16) -> Error {
        match self {
            Self::Address(address, class) => {
                let ip = address.ip();
                let text = format!("{host}:{port}: the name resolves to {ip}, {class}");
                let bracketed = if ip.is_ipv6() {
                    format!("[{ip}/128]")
                } else {
                    format!("{ip}/32")
                };
                Error::new(ErrorKind::Config, "address_not_granted", text).hint(format!(
                    "if you intend this, write the address itself as the host (or localhost), or \
                         add permissions: {{ network: [\"{bracketed}:{port}\"] }}"
                ))
            }
            Self::Io(error) => {
                let text = format!("{host}:{port}: {error}");
                Error::new(ErrorKind::Connection, "connect_failed", text).hint(
                    "check the name, the port, and that the server accepts connections from here",
                )
            }
        }
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The system's answer for a name.
pub fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Connects to the first address of `host` that may be reached and answers. `resolve` is asked
/// once: what it says a moment later changes nothing.
///
/// # Errors
/// [`Refused::Address`] where no address is left, else what the last one answered.
pub fn connect(
    host: &str,
    port: u16,
    grants: &Grants,
    resolve: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    deadline: Instant,
) -> Result<TcpStream, Refused> {
    let mut last = Refused::Io(io::Error::other("the name has no address"));
    let addresses = resolve(host, port)?;
    // The error of an address that was tried says more than the refusal of a forbidden address.
    let mut tried = false;
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        if let Some(class) = grants.forbidden(host, address) {
            if !tried {
                last = Refused::Address(address, class);
            }
            continue;
        }
        match dial(address, deadline.saturating_duration_since(Instant::now())) {
            Ok(stream) => return Ok(stream),
            Err(error) => (last, tried) = (Refused::Io(error), true),
        }
    }
    Err(last)
}

fn dial(address: SocketAddr, left: Duration) -> io::Result<TcpStream> {
    if left.is_zero() {
        return Err(io::Error::other("no time left to try another address"));
    }
    let stream = TcpStream::connect_timeout(&address, left)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpListener;
    use std::path::Path;

    /// Grants of the configuration `host` and `port`.
    fn grants(host: &str, port: u16) -> Grants {
        let schema = json!({"properties": {
            "host": {"x-grant": "host"}, "port": {"x-grant": "port"},
        }});
        let config = json!({"host": host, "port": port});
        Grants::from_config(
            &schema,
            config.as_object().expect("an object"),
            Path::new("/"),
        )
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_name_that_answers_with_loopback_is_refused_without_a_connection() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("an address");
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{}", at.port())
            .parse()
            .expect("it");
        for answers in [vec![at], vec![mapped, at]] {
            let granted = grants("db", at.port());
            let refused = connect("db", at.port(), &granted, |_, _| Ok(answers), soon());
            let error = refused.expect_err("loopback").explain("db", at.port());
            assert_eq!(error.code, "address_not_granted");
            assert!(error.message.contains("loopback"), "{}", error.message);
        }
        server.set_nonblocking(true).expect("set");
        assert!(server.accept().is_err(), "somebody connected");
        let local = grants("localhost", at.port());
        connect("localhost", at.port(), &local, |_, _| Ok(vec![at]), soon()).expect("named");
        server.accept().expect("a connection");
    }

    #[test]
    fn spellings_that_the_system_turns_into_loopback_do_not_get_round_it() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("an address").port();
        for host in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "0x7f.0.0.1",
        ] {
            let refused = connect(host, port, &grants(host, port), resolve, soon());
            // Some systems do not know them at all.
            match refused.expect_err(host) {
                Refused::Address(_, class) => assert_eq!(class, Class::Loopback, "{host}"),
                Refused::Io(error) => assert!(resolve(host, port).is_err(), "{host}: {error}"),
            }
        }
        connect(
            "127.0.0.1",
            port,
            &grants("127.0.0.1", port),
            resolve,
            soon(),
        )
        .expect("named");
    }

    #[test]
    fn a_name_that_changes_its_answer_is_asked_once() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = server.local_addr().expect("an address").port();
        let mut asked = 0;
        // The answer is where nobody listens; a later one would have been where somebody does.
        let granted = grants("localhost", port);
        let answer = |_: &str, port| {
            asked += 1;
            Ok(vec![SocketAddr::from(([127, 0, 0, 2], port))])
        };
        let refused = connect("localhost", port, &granted, answer, soon()).expect_err("nobody");
        assert!(matches!(refused, Refused::Io(_)), "{refused:?}");
        assert_eq!(asked, 1);
        server.set_nonblocking(true).expect("set");
        assert!(server.accept().is_err(), "somebody connected");
    }

    #[test]
    fn of_several_addresses_those_out_of_reach_are_passed_over() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = server.local_addr().expect("an address");
        let link: SocketAddr = format!("169.254.169.254:{}", at.port())
            .parse()
            .expect("it");
        let local = grants("localhost", at.port());
        let both = |_: &str, _| Ok(vec![link, at]);
        connect("localhost", at.port(), &local, both, soon()).expect("the second");
    }
}

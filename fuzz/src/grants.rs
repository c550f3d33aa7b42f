//! A connector reaches only granted files and hosts, for any request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use rapidbyte_runtime::{Grants, Permissions, is_forbidden, readable, tls_is_settled, writable};
use serde_json::json;

const PORT: u16 = 5432;

/// The input: a byte that says which kind of address follows, 16 bytes of it, and lines: entries of
/// `permissions.network`, then an empty line, then the host, the path and the URL of a configuration.
pub fn run(data: &[u8]) {
    let mut data = data;
    let kind = crate::byte(&mut data);
    let address = address(kind, &mut data);
    let text = String::from_utf8_lossy(data);
    let (entries, asked) = text.split_once("\n\n").unwrap_or(("", &text));
    let mut asked = asked.lines();
    let mut line = || asked.next().unwrap_or_default();
    let (host, path, url) = (line(), line(), line());
    let mut permissions = Permissions::default();
    let entries: Vec<&str> = entries
        .lines()
        .filter(|entry| permissions.add_network(entry).is_ok())
        .collect();
    let grants = Grants::none().with(&permissions);
    network(&grants, &entries, host, address);
    configured(host, path, url, address);
}

fn address(kind: u8, data: &mut &[u8]) -> IpAddr {
    let mut bytes = [0; 16];
    bytes.fill_with(|| crate::byte(data));
    let tail = [bytes[12], bytes[13], bytes[14], bytes[15]];
    match kind % 4 {
        0 => Ipv4Addr::from(tail).into(),
        1 => Ipv6Addr::from(bytes).into(),
        // Few of all addresses are of a form that hides another one.
        2 => Ipv4Addr::from(tail).to_ipv6_mapped().into(),
        _ => {
            bytes[..12].copy_from_slice(&[0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
            Ipv6Addr::from(bytes).into()
        }
    }
}

/// Nothing is granted that no entry says, and no forbidden address is reached unless an entry
/// says that one.
fn network(grants: &Grants, entries: &[&str], host: &str, address: IpAddr) {
    let entries: Vec<(&str, &str)> = entries.iter().filter_map(|e| e.rsplit_once(':')).collect();
    let bare = |written: &'_ str| {
        written
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_ascii_lowercase()
    };
    for (_, port) in &entries {
        let port: u16 = port.parse().expect("an entry has a port");
        if !grants.allows_network(host, port) {
            continue;
        }
        let _ = tls_is_settled(grants, host, port);
        let asked = host.to_ascii_lowercase();
        let is_said = entries.iter().any(|(written, of_port)| {
            let written = bare(written);
            let is_below = written
                .strip_prefix('*')
                .is_some_and(|end| asked.ends_with(end));
            let is_within = asked.parse().is_ok_and(|address| within(&written, address));
            of_port.parse() == Ok(port) && (written == asked || is_below || is_within)
        });
        assert!(is_said, "{host}:{port} by {entries:?}");
    }
    for (_, port) in &entries {
        let port: u16 = port.parse().expect("an entry has a port");
        if !is_of_a_class(address) || is_forbidden(grants, host, SocketAddr::new(address, port)) {
            continue;
        }
        let is_said = entries.iter().any(|(written, of_port)| {
            let written = bare(written);
            let is_it = written.parse() == Ok(address) && host.eq_ignore_ascii_case(&written);
            let is_local = written == "localhost" && host.eq_ignore_ascii_case("localhost");
            of_port.parse() == Ok(port) && (is_it || is_local || within(&written, address))
        });
        assert!(is_said, "{host} at {address}, port {port}, by {entries:?}");
    }
}

/// True for an address in `network/bits`.
fn within(range: &str, address: IpAddr) -> bool {
    let Some((network, bits)) = range.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let prefix = |address: IpAddr| -> Vec<bool> {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let all = bytes
            .iter()
            .flat_map(|byte| (0..8).map(move |bit| byte & (0x80 >> bit) != 0));
        all.take(bits as usize).collect()
    };
    network.is_ipv4() == address.is_ipv4() && prefix(network) == prefix(address)
}

/// Written apart from the runtime's own rules: an address that nobody reaches by accident.
fn is_of_a_class(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_v4_of_a_class(address),
        IpAddr::V6(address) => {
            let bytes = address.octets();
            let tail = Ipv4Addr::from([bytes[12], bytes[13], bytes[14], bytes[15]]);
            let mapped = address.to_ipv4_mapped().is_some();
            let nat64 = bytes[..12] == [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
            let six_to_four = bytes[..2] == [0x20, 0x02];
            let inner = Ipv4Addr::from([bytes[2], bytes[3], bytes[4], bytes[5]]);
            let teredo = bytes[..4] == [0x20, 0x01, 0, 0];
            let client = Ipv4Addr::from([!bytes[12], !bytes[13], !bytes[14], !bytes[15]]);
            address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || bytes[0] == 0xfe && bytes[1] & 0xc0 == 0x80
                || (mapped || nat64) && is_v4_of_a_class(tail)
                || six_to_four && is_v4_of_a_class(inner)
                || teredo && is_v4_of_a_class(client)
        }
    }
}

fn is_v4_of_a_class(address: Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
        || address.octets()[0] >= 240
        || address.octets() == [100, 100, 100, 200]
}

/// For any configuration, no path leads out of the folders that the operator wrote, and a URL grants
/// no forbidden address by a name.
fn configured(host: &str, path: &str, url: &str, address: IpAddr) {
    let schema = json!({"properties": {
        "url": {"x-grant": "url"},
        "in": {"x-grant": "read"},
        "out": {"x-grant": "write"},
    }});
    let config =
        json!({"url": url, "in": ["in/*.csv", "in/{stream}.csv"], "out": "out/x-{part}.csv"});
    let config = config.as_object().expect("an object");
    let grants = Grants::from_config(&schema, config, Path::new("/p"));
    for (granted, folder, begin) in [
        (readable(&grants, path), "/p/in", "/p/in/"),
        (writable(&grants, path), "/p/out", "/p/out/x-"),
    ] {
        let Some((granted, root)) = granted else {
            continue;
        };
        let is_inside = granted.starts_with(begin) && granted.ends_with(".csv");
        let is_plain = granted
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."));
        assert!(
            is_inside && is_plain && root == folder,
            "{path:?} as {granted:?} in {root}"
        );
        // Asked for by its own name it is granted as itself.
        let again = if folder == "/p/in" {
            readable(&grants, &granted)
        } else {
            writable(&grants, &granted)
        };
        assert_eq!(again, Some((granted, root)));
    }
    let is_named = url.to_ascii_lowercase().contains("localhost") || host.parse::<IpAddr>().is_ok();
    if is_of_a_class(address) && !is_named && url.is_ascii() {
        assert!(is_forbidden(&grants, host, SocketAddr::new(address, PORT)));
    }
    let _ = grants.describe();
}

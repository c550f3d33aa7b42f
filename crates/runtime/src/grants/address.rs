//! Which addresses nobody reaches by accident: the machine itself, its neighbours, the services
//! that clouds keep for it.
//!
//! A DNS server, not the operator, decides about the addresses of a name. So an address of one of these
//! classes is reached only if the operator wrote the address itself, `localhost` for this machine, or a
//! range of `permissions.network` that contains it. Private ranges are where databases live: they are not
//! a class. IPv6 addresses that stand for an IPv4 address (mapped, compatible, translated, NAT64, 6to4,
//! Teredo, ISATAP) are also checked as this IPv4 address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is out of reach by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// This machine: 127.0.0.0/8, ::1.
    Loopback,
    /// The neighbours on the wire: 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// The service that gives a cloud's machine its credentials.
    Metadata,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// This host, whichever it is: 0.0.0.0/8, ::.
    Unspecified,
    /// 255.255.255.255 and the reserved 240.0.0.0/4.
    Broadcast,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "the unspecified address",
            Self::Broadcast => "a broadcast or reserved address",
        })
    }
}

/// Metadata services that are not at a link-local address, of Alibaba, Azure and Oracle.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same: the first 32 bits of what the clouds use within fc00::/7, of Amazon (fd00:ec2::254),
/// Oracle (fd00:c1::a9fe:a9fe) and Google (fd20:ce::254).
const METADATA_V6: [[u16; 2]; 3] = [[0xfd00, 0x0ec2], [0xfd00, 0x00c1], [0xfd20, 0x00ce]];

/// The class of an address, or of an IPv4 address that it stands for. `None` where it is one like
/// any other.
pub(crate) fn class(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => {
            let embedded = embedded(address).into_iter().flatten();
            class_v6(address).or_else(|| embedded.filter_map(class_v4).next())
        }
    }
}

fn class_v4(address: Ipv4Addr) -> Option<Class> {
    if address == Ipv4Addr::new(169, 254, 169, 254) || METADATA_V4.contains(&address) {
        return Some(Class::Metadata);
    }
    Some(match address.octets() {
        [127, ..] => Class::Loopback,
        [169, 254, ..] => Class::LinkLocal,
        [224..=239, ..] => Class::Multicast,
        [0, ..] => Class::Unspecified,
        [240..=255, ..] => Class::Broadcast,
        _ => return None,
    })
}

fn class_v6(address: Ipv6Addr) -> Option<Class> {
    let segments = address.segments();
    if METADATA_V6.contains(&[segments[0], segments[1]]) {
        return Some(Class::Metadata);
    }
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Unspecified,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        _ => return None,
    })
}

/// The IPv4 addresses that an IPv6 address stands for, by every rule that there is for it.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let of = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // Loopback and unspecified are not IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        // Compatible (RFC 4291, 2.5.5.1), mapped (2.5.5.2), translated (RFC 2765).
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        // NAT64, the well-known prefix (RFC 6052) and the local one (RFC 8215).
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        // ISATAP (RFC 5214).
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => [of(high, low), None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [of(high, low), None],
        // Teredo (RFC 4380): the server, and the client with its bits turned.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            [of(server_high, server_low), of(!high, !low)]
        }
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Class> {
        class(text.parse().unwrap_or_else(|e| panic!("{text}: {e}")))
    }

    #[test]
    fn every_class_is_known_by_its_first_and_last_address() {
        for (class, addresses) in [
            (
                Class::Loopback,
                ["127.0.0.0", "127.255.255.255", "::1"].as_slice(),
            ),
            (
                Class::LinkLocal,
                &["169.254.0.0", "169.254.255.255", "fe80::", "febf:ffff::1"],
            ),
            (
                Class::Metadata,
                &[
                    "169.254.169.254",
                    "fd00:ec2::254",
                    "fd20:ce::254",
                    "100.100.100.200",
                ],
            ),
            (
                Class::Metadata,
                &["168.63.129.16", "192.0.0.192", "fd00:c1::a9fe:a9fe"],
            ),
            (
                Class::Multicast,
                &["224.0.0.0", "239.255.255.255", "ff00::", "ff02::1"],
            ),
            (Class::Unspecified, &["0.0.0.0", "0.255.255.255", "::"]),
            (Class::Broadcast, &["240.0.0.0", "255.255.255.255"]),
        ] {
            for address in addresses {
                assert_eq!(of(address), Some(class), "{address}");
            }
        }
    }

    #[test]
    fn servers_live_at_the_other_addresses() {
        for address in [
            "1.1.1.1",
            "10.0.0.1",
            "172.17.0.2",
            "192.168.1.1",
            "100.64.0.1",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "223.255.255.255",
            "1.0.0.0",
            "2001:db8::1",
            "fd00::1",
            "fd12:3456::1",
            "fec0::1",
            "fe7f::1",
            "2606:4700::1111",
            "::ffff:10.0.0.1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "::8.8.8.8",
        ] {
            assert_eq!(of(address), None, "{address}");
        }
    }

    #[test]
    fn an_ipv4_address_is_found_in_every_ipv6_spelling() {
        for address in [
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::127.0.0.1",
            "64:ff9b:1:ffff:ffff:ffff:7f00:1",
            "2002:7f00:1::",
            "2002:7f00:1:1:2:3:4:5",
            "2001:0:7f00:1::",
            "2001:0:808:808:0:0:80ff:fffe",
            "2001:db8::5efe:127.0.0.1",
            "2001:db8::200:5efe:7f00:1",
        ] {
            assert_eq!(of(address), Some(Class::Loopback), "{address}");
        }
        for address in [
            "::ffff:169.254.169.254",
            "::ffff:a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001:0:808:808:0:0:5601:5601",
        ] {
            assert_eq!(of(address), Some(Class::Metadata), "{address}");
        }
    }
}

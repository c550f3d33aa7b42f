//! Bytes, addresses, shapes and documents.

use super::Case;

const HEX: &[&str] = &[
    "0", "f", "A", "-", ":", "{", "}", " ", ".", "x", "\\", "/", "12", "%",
];

pub(super) const CASES: &[Case] = &[
    Case {
        sql: "uuid",
        accepted: &[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ],
        refused: &["a0eebc99", "", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
        pieces: HEX,
        says: |text, stored| hex_digits(text) == hex_digits(stored),
    },
    Case {
        sql: "bytea",
        accepted: &["\\xDEADbeef", "\\x", "abc", "\\000\\\\a", "", "\\xde ad"],
        refused: &["\\x1", "\\9", "\\xgg"],
        pieces: &["\\x", "0", "f", "A", "\\\\", "\\101", " ", "a", "12"],
        says: bytea,
    },
    Case {
        sql: "bit(3)",
        accepted: &["101", "B101", "b000"],
        refused: &["1010", "10", "xF", "102", ""],
        pieces: &["0", "1", "B", "x", " "],
        says: bits,
    },
    Case {
        sql: "bit varying",
        accepted: &["101", "", "xF0", "B1"],
        refused: &["2", " 1", "xg"],
        pieces: &["0", "1", "B", "x", " ", "F", "a"],
        says: bits,
    },
    Case {
        sql: "bit varying(3)",
        accepted: &["101", ""],
        refused: &["1010", "xF"],
        pieces: &["0", "1", "B", "x"],
        says: bits,
    },
    Case {
        sql: "pg_lsn",
        accepted: &["16/B374D848", "0/0", "0/00000001", "ffffffff/FFFFFFFF"],
        refused: &["1", "/", "100000000/0", "0/g", " 0/1"],
        pieces: HEX,
        says: lsn,
    },
    Case {
        sql: "inet",
        accepted: &[
            "10.0.0.1",
            "10.0.0.1/32",
            "10.0.0.1/8",
            "::1",
            "2001:DB8::1/64",
            "::ffff:1.2.3.4",
        ],
        refused: &["10.0.0.256", "10.0.0.1/33", "", "::1/129", "a"],
        pieces: &["0", "1", ".", "/", ":", "f", "25", "::", "8", "10"],
        says: inet,
    },
    Case {
        sql: "cidr",
        accepted: &[
            "10.0.0.0/8",
            "10.0.0.1",
            "2001:db8::/32",
            "2001:db8::1",
            "192.168/16",
        ],
        refused: &[
            "10.0.0.1/8",
            "10.0.0.1/33",
            "2001:db8::1/32",
            "192.168.1",
            "192.168",
            "10",
            "224",
        ],
        pieces: &["0", "1", ".", "/", ":", "f", "25", "::", "8", "10"],
        says: inet,
    },
    Case {
        sql: "macaddr",
        accepted: &[
            "08:00:2b:01:02:03",
            "08-00-2B-01-02-03",
            "0800.2b01.0203",
            "08002b010203",
            "08002b:010203",
        ],
        refused: &[
            "08:00:2b:01:02",
            "08:00:2b:01:02:03:04:05",
            "g8:00:2b:01:02:03",
            "",
        ],
        pieces: HEX,
        says: mac,
    },
    Case {
        sql: "macaddr8",
        accepted: &[
            "08:00:2b:01:02:03:04:05",
            "08002B0102030405",
            "08-00-2b-01-02-03-04-05",
        ],
        refused: &["08:00:2b:01:02:03", "08:00:2b:01:02:03:04", ""],
        pieces: HEX,
        says: mac,
    },
    Case {
        sql: "point",
        accepted: &["(1,2)", "(1.5, 2)", "(1,NaN)"],
        refused: &[
            "1,2",
            "(1.50,2)",
            "(0.12345678901234567890,1)",
            "(1)",
            "(16777217.00,1)",
        ],
        pieces: &["(", ")", ",", "1", "0", ".", " ", "-", "e"],
        says: same_without_blanks,
    },
    Case {
        sql: "line",
        accepted: &["{1,2,3}"],
        refused: &["{0,0,1}", "(1,2),(3,4)"],
        pieces: &["{", "}", ",", "1", "0", ".", " ", "-"],
        says: same_without_blanks,
    },
    Case {
        sql: "lseg",
        accepted: &["[(1,2),(3,4)]", "[(1,2), (3,4)]"],
        refused: &["(1,2),(3,4)", "1,2,3,4", "[(1,2)]"],
        pieces: &["[", "]", "(", ")", ",", "1", "0", " "],
        says: same_without_blanks,
    },
    Case {
        sql: "box",
        accepted: &["(3,4),(1,2)"],
        refused: &["(1,2),(3,4)", "(1,4),(3,2)"],
        pieces: &["(", ")", ",", "1", "0", " ", "9"],
        says: same_without_blanks,
    },
    Case {
        sql: "path",
        accepted: &["((1,2),(3,4))", "[(1,2),(3,4)]"],
        refused: &["(1,2),(3,4)", "1,2,3,4"],
        pieces: &["(", ")", ",", "1", "0", " ", "["],
        says: same_without_blanks,
    },
    Case {
        sql: "polygon",
        accepted: &["((1,2),(3,4))"],
        refused: &["(1,2),(3,4)"],
        pieces: &["(", ")", ",", "1", "0", " "],
        says: same_without_blanks,
    },
    Case {
        sql: "circle",
        accepted: &["<(1,2),3>"],
        refused: &["((1,2),3)", "1,2,3", "<(1,2),-3>"],
        pieces: &["<", ">", "(", ")", ",", "1", "0", " ", "-"],
        says: same_without_blanks,
    },
    Case {
        sql: "json",
        accepted: &["{\"a\": 1,  \"a\": 2}", "null", "[1e400]", "\"\""],
        refused: &["{", "", "{a:1}", "nul"],
        pieces: &["{", "}", "\"a\"", ":", "1", ",", "[", "]", " ", "null"],
        says: |text, stored| text == stored,
    },
];

fn hex_digits(text: &str) -> String {
    let digits = text.chars().filter(char::is_ascii_hexdigit);
    digits.collect::<String>().to_ascii_lowercase()
}

fn mac(text: &str, stored: &str) -> bool {
    hex_digits(text) == hex_digits(stored)
}

fn bytea(text: &str, stored: &str) -> bool {
    let mut bytes = Vec::new();
    if let Some(hex) = text.strip_prefix("\\x") {
        return stored.strip_prefix("\\x") == Some(&hex_digits(hex));
    }
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            (b'\\', _) => return false,
            (other, _) => bytes.push(*other),
        }
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    stored == format!("\\x{hex}")
}

fn bits(text: &str, stored: &str) -> bool {
    match text.split_at_checked(1) {
        Some(("x" | "X", hex)) => {
            let bits = hex
                .chars()
                .map(|c| c.to_digit(16).map(|d| format!("{d:04b}")));
            bits.collect::<Option<String>>().as_deref() == Some(stored)
        }
        Some(("b" | "B", bits)) => bits == stored,
        _ => text == stored,
    }
}

fn lsn(text: &str, stored: &str) -> bool {
    let parts = |text: &str| {
        let (high, low) = text.split_once('/')?;
        Some((
            u32::from_str_radix(high, 16).ok()?,
            u32::from_str_radix(low, 16).ok()?,
        ))
    };
    parts(text).is_some() && parts(text) == parts(stored)
}

/// The address, with zeros for octets that a cidr may leave out before its mask, and the bits of the mask; without
/// one it is a host.
fn inet(text: &str, stored: &str) -> bool {
    let parts = |text: &str| -> Option<(std::net::IpAddr, Option<u8>)> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask.parse().ok()?)),
            None => (text, None),
        };
        let mut address = match address.contains(':') {
            true => address.to_owned(),
            // Rust reads no octets with zeros before them.
            false => {
                let octets: Option<Vec<String>> = address
                    .trim_end_matches('.')
                    .split('.')
                    .map(|o| Some(o.parse::<u8>().ok()?.to_string()))
                    .collect();
                octets?.join(".")
            }
        };
        while !address.contains(':') && address.matches('.').count() < 3 {
            address.push_str(".0");
        }
        Some((address.parse().ok()?, mask))
    };
    let (Some((said, mask)), Some((held, held_mask))) = (parts(text), parts(stored)) else {
        return false;
    };
    let whole = if held.is_ipv4() { 32 } else { 128 };
    said == held && mask.unwrap_or(whole) == held_mask.unwrap_or(whole)
}

fn same_without_blanks(text: &str, stored: &str) -> bool {
    text.split_whitespace().collect::<String>() == stored
}

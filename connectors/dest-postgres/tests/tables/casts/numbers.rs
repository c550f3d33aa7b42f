//! Booleans and numbers.

use super::Case;

const DIGITS: &[&str] = &["0", "1", "9", "5", ".", "-", "+", "e", "E", " ", "00", "7"];

pub(super) const CASES: &[Case] = &[
    Case {
        sql: "boolean",
        accepted: &[
            "t", "f", "true", "FALSE", "yes", "no", "on", "off", "1", "0", " t ", "tr", "of",
        ],
        refused: &["", "2", "o", "maybe", "01"],
        pieces: &[
            "t", "r", "u", "e", "f", "o", "n", "y", "s", "1", "0", " ", "T",
        ],
        says: boolean,
    },
    Case {
        sql: "smallint",
        accepted: &["0", "-32768", "32767", " 7 ", "+7", "007", "-0"],
        refused: &["32768", "1.0", "1e3", "", "1.5", "-32769", "0x"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "integer",
        accepted: &["0", "-2147483648", "2147483647", " 7 ", "+7", "007"],
        refused: &["2147483648", "1.0", "1e3", ""],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "bigint",
        accepted: &[
            "0",
            "-9223372036854775808",
            "9223372036854775807",
            "0000000000000000000001",
        ],
        refused: &["9223372036854775808", "1.5", "1e3", "nan"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "numeric",
        accepted: &[
            "1.50",
            "1e3",
            "-0",
            "NaN",
            ".5",
            "5.",
            "1E-20",
            "123456789012345678901234567890.123",
            "Infinity",
        ],
        refused: &["", "1,5", "1.2.3", "$1"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "numeric(4,2)",
        accepted: &["1.5", "1.50", "1.5000", "1e1", "NaN", "-99.99"],
        refused: &["1.239", "100", "1e-3", "Infinity", "99.999"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "real",
        accepted: &[
            "1.5",
            "1.50",
            "1e3",
            "0.1",
            "-0",
            "16777216",
            "NaN",
            "-Infinity",
            "inf",
            "3.4028235e38",
            "1e-45",
        ],
        refused: &[
            "16777217",
            "0.123456789",
            "3.4028234e38",
            "1e39",
            "1e-46",
            "1.00000001",
            "",
        ],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "double precision",
        accepted: &[
            "1.5",
            "1.50",
            "1e3",
            "0.1",
            "9007199254740992",
            "1.7976931348623157e308",
            "5e-324",
            "nan",
        ],
        refused: &[
            "9007199254740993",
            "0.12345678901234567890",
            "12345678901234567890",
            "1e309",
            "1e-400",
        ],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "money",
        accepted: &[
            "$1.05",
            "1",
            "1.5",
            "$1,000.00",
            "-$2.00",
            "-2",
            "1234567.89",
            "-1234.50",
        ],
        refused: &[
            "$1.005",
            "1,00",
            "12,34.5",
            "1,2345",
            "1.999",
            "1e3",
            "92233720368547758.08",
            "€1",
        ],
        pieces: &["0", "1", "9", "$", ",", ".", "-", "+", " ", "5", "(", ")"],
        says: money,
    },
    Case {
        sql: "oid",
        accepted: &["0", "4294967295", "007", " 7"],
        refused: &["-1", "4294967296", "1.5", "", "-2147483648"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "xid",
        accepted: &["0", "4294967295", "007"],
        refused: &["-1", "5000000000", "1.5", "0x10", "", "7a", "4294967296"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "cid",
        accepted: &["0", "4294967295"],
        refused: &["-1", "5000000000", "1.5", "010x", "7 a"],
        pieces: DIGITS,
        says: decimal,
    },
    Case {
        sql: "xid8",
        accepted: &["0", "18446744073709551615", "5000000000"],
        refused: &["-1", "18446744073709551616", "1.5", "7a", "0x7"],
        pieces: DIGITS,
        says: decimal,
    },
];

/// A decimal number: whether it is negative, its digits without zeros around them, and the power
/// of ten of the last one. Words for no number are kept as digits.
pub(super) fn number(text: &str) -> Option<(bool, String, i64)> {
    let text = text.trim().to_ascii_lowercase();
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    match rest {
        "nan" => return Some((false, "nan".into(), 0)),
        "inf" | "infinity" => return Some((negative, "infinity".into(), 0)),
        _ => {}
    }
    let (mantissa, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let exponent: i64 = exponent.parse::<i64>().ok()? - part.len() as i64;
    let digits = digits.trim_start_matches('0');
    let short = digits.trim_end_matches('0');
    match short {
        "" => Some((false, String::new(), 0)),
        _ => Some((
            negative,
            short.to_owned(),
            exponent + (digits.len() - short.len()) as i64,
        )),
    }
}

pub(super) fn decimal(text: &str, stored: &str) -> bool {
    number(text).is_some() && number(text) == number(stored)
}

fn money(text: &str, stored: &str) -> bool {
    let plain = |text: &str| text.replace(['$', ',', ' '], "");
    decimal(&plain(text), &plain(stored))
}

fn boolean(text: &str, stored: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let truth = match text.as_str() {
        "1" | "on" => true,
        "0" | "of" | "off" => false,
        "" => return false,
        text if "true".starts_with(text) || "yes".starts_with(text) => true,
        text if "false".starts_with(text) || "no".starts_with(text) => false,
        _ => return false,
    };
    stored == if truth { "t" } else { "f" }
}

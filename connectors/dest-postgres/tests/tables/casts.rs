//! Text that the server reads: what a column holds afterwards says what the text said, or the text
//! was refused. Every built-in type takes 200 texts: known ones, and random changes of them.
//!
//! An oracle of its own decides, which reads numbers, days and spans in Rust. An accepted text that
//! the oracle does not understand is a failure too.

use crate::common::*;
use rapidbyte_pg::{cast, catalog};

/// Texts for each type, the random ones included.
const TEXTS: usize = 200;

/// The texts of one type.
struct Case {
    sql: &'static str,
    accepted: &'static [&'static str],
    refused: &'static [&'static str],
    /// What random changes put in.
    pieces: &'static [&'static str],
    /// True if the value that is stored (right) says what the text (left) says.
    says: fn(&str, &str) -> bool,
}

const DIGITS: &[&str] = &["0", "1", "9", "5", ".", "-", "+", "e", "E", " ", "00", "7"];
const CLOCK: &[&str] = &[
    "0", "1", "9", ":", ".", "-", "+", " ", "5", "Z", "AM", "PM", "T", "BC", "/", "+05", "0000",
    "60", "24", " UTC", "infinity", "now", "12:00", "PST", "AD", "July", "J", "\t",
];
const HEX: &[&str] = &[
    "0", "f", "A", "-", ":", "{", "}", " ", ".", "x", "\\", "/", "12", "%",
];
const PLAIN: &[&str] = &[
    "a", " ", "'", "(", ")", "1", ",", ":", "A", "\\", "<", ">", "&", "é",
];

const CASES: &[Case] = &[
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
    Case {
        sql: "date",
        accepted: &[
            "2020-01-01",
            "2020/01/02",
            "20200102",
            "2020-01-01 00:00:00",
            "0044-03-15 BC",
            "infinity",
            "2020-1-2",
            "5874897-12-31",
            "2020-02-29",
        ],
        refused: &[
            "now",
            "today",
            "2020-01-01 10:00:00",
            "2021-02-29",
            "epoch",
            "J2451187",
            "1/8/1999",
            "January 8, 1999",
            "99-01-08",
            "2020-01-01 00:00:00+05",
            "2020.123",
            "-infinityx",
            "-4712-01-01",
            "+12345-01-01",
            "0000-01-01",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "time",
        accepted: &[
            "12:00",
            "10:00:00",
            "10:00:00.123456",
            "10:00:00.1234560",
            "04:05 PM",
            "24:00:00",
            "12:00 AM",
        ],
        refused: &[
            "10:00:00+05",
            "10:00:00.1234567",
            "now",
            "2020-01-01 10:00:00",
            "10:00 UTC",
            "23:59:60",
            "allballs",
            "25:00",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "time(1)",
        accepted: &["12:00", "10:00:00.5"],
        refused: &["10:00:00.55"],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timetz",
        accepted: &[
            "12:00+05",
            "10:00:00-03:30",
            "10:00:00.123456Z",
            "10:00:00",
            "04:05 PM +01",
            "10:00:00+05:30:15",
        ],
        refused: &[
            "10:00:00.1234567Z",
            "10:00:00 Europe/Berlin",
            "now",
            "2020-01-01 10:00:00+05",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamp",
        accepted: &[
            "2020-01-01 10:00",
            "2020-01-01",
            "2020-01-01T10:00:00.123456",
            "0044-03-15 10:00:00 BC",
            "-infinity",
            "20200101 10:00:00",
            "2020-01-01 24:00:00",
        ],
        refused: &[
            "2020-01-01 00:00:00+05",
            "2020-01-01T00:00:00Z",
            "2020-01-01 00:00:00.1234567",
            "now",
            "yesterday",
            "2020-01-01 00:00:00 UTC",
            "epoch",
            "2020-01-01 10",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamp(0)",
        accepted: &["2020-01-01 10:00:00.0"],
        refused: &["2020-01-01 10:00:00.5"],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "timestamptz",
        accepted: &[
            "2020-01-01 00:00:00+05",
            "2020-01-01T00:00:00Z",
            "2020-01-01 10:00:00.5-03:30",
            "2020-01-01 10:00:00",
            "2020-01-01",
            "infinity",
            "2020-01-01 10:00:00 UTC",
            "0044-03-15 10:00:00+00 BC",
        ],
        refused: &[
            "2020-01-01 00:00:00.1234567Z",
            "now",
            "tomorrow",
            "2020-01-01 00:00:00 PST",
            "2020-01-01 00:00:00 Europe/Berlin",
            "2020-01-01 00:00:60Z",
        ],
        pieces: CLOCK,
        says: moment_equal,
    },
    Case {
        sql: "interval",
        accepted: &[
            "1 day",
            "1 mon 2 days 03:04:05.678901",
            "P1Y2M3DT4H5M6.5S",
            "-1 year",
            "2 weeks",
            "1 hour 30 minutes",
            "1 day ago",
            "@ 1 minute",
            "00:00:00",
            "-00:00:01",
            "1.5 seconds",
            "3 decades",
            "PT36H",
        ],
        refused: &[
            "0.0000001 s",
            "1.5 years",
            "00:00:00.1234567",
            "0.00000011 hours",
            "1 day 1 day",
            "P0.5M",
            "x",
            "",
            "1.1 days",
        ],
        pieces: &[
            "1", "0", " ", "day", "s", "years", "mon", "-", "+", ":", ".", "5", "ago", "P", "T",
            "H", "M", "week", "hours", "@", "00", "min",
        ],
        says: interval,
    },
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
    Case {
        sql: "int4range",
        accepted: &[
            "[1,3]", "(1,3)", "[1,3)", "empty", "(,)", "[1,]", " [1,3] ", "[1,1)",
        ],
        refused: &["[3,1]", "1,3", "[1.5,2]", "[1,2147483648]", ""],
        pieces: &["[", "]", "(", ")", ",", "1", "0", "-", "9", "empty", " "],
        says: integer_range,
    },
    Case {
        sql: "int8range",
        accepted: &["[1,3]", "(-5,3)", "empty"],
        refused: &["[3,1]", "[1.5,2]"],
        pieces: &["[", "]", "(", ")", ",", "1", "0", "-", "9", " "],
        says: integer_range,
    },
    Case {
        sql: "numrange",
        accepted: &["[1.50,3]", "(1,3)", "[1,1]", "empty", "[1,1)"],
        refused: &["[3,1]", "1,3"],
        pieces: &["[", "]", "(", ")", ",", "1", "0", "-", "9", "."],
        says: number_range,
    },
    Case {
        sql: "daterange",
        accepted: &["[2020-01-01,2020-02-01)"],
        refused: &[
            "[2020-01-01,2020-02-01]",
            "[now,)",
            "[2020-01-01 10:00,2020-02-01)",
        ],
        pieces: CLOCK,
        says: |text, stored| text == stored,
    },
    Case {
        sql: "tsrange",
        accepted: &["[\"2020-01-01 00:00:00\",\"2020-02-01 00:00:00\")"],
        refused: &["[2020-01-01 00:00:00+05,)"],
        pieces: CLOCK,
        says: |text, stored| text == stored,
    },
    Case {
        sql: "int4multirange",
        accepted: &["{[1,3],[3,9)}", "{}", "{(1,2]}", "{[5,7),[1,2)}"],
        refused: &["[1,2)", "{[3,1]}"],
        pieces: &[
            "[", "]", "(", ")", ",", "1", "0", "-", "9", "{", "}", " ", "empty",
        ],
        says: integer_sets,
    },
    Case {
        sql: "integer[]",
        accepted: &[
            "{1,2}",
            "{ 1 , 02 }",
            "{NULL}",
            "{}",
            "{{1},{2}}",
            "[2:3]={1,2}",
            "{\"7\"}",
        ],
        refused: &["{1.5}", "{2147483648}", "1", "{1"],
        pieces: &["{", "}", ",", "1", "0", "NULL", " ", "-", "\""],
        says: |text, stored| lists(text, stored, decimal),
    },
    Case {
        sql: "real[]",
        accepted: &["{1.50,0.1}", "{NaN}", "{}"],
        refused: &["{16777217}", "{1,16777217}", "{x}"],
        pieces: &["{", "}", ",", "1", "0", "NULL", " ", "-", "7", ".", "9"],
        says: |text, stored| lists(text, stored, decimal),
    },
    Case {
        sql: "date[]",
        accepted: &["{2020-01-01,20200102}", "{\"2020-01-01\"}", "{NULL}", "{}"],
        refused: &[
            "{now}",
            "{2020-01-01,2020-01-01 10:00:00}",
            "{today,NULL}",
            "{NULL,now}",
        ],
        pieces: &[
            "{",
            "}",
            ",",
            "1",
            "0",
            "NULL",
            " ",
            "-",
            "now",
            "2020-01-01",
            "T10:00",
        ],
        says: |text, stored| lists(text, stored, moment_equal),
    },
    Case {
        sql: "xid[]",
        accepted: &["{1,007}"],
        refused: &["{1,5000000000}", "{-1}"],
        pieces: &["{", "}", ",", "1", "0", "NULL", " ", "-", "9", "5000000000"],
        says: |text, stored| lists(text, stored, decimal),
    },
    Case {
        sql: "regclass[]",
        accepted: &["{pg_class}", "{pg_class,pg_type}", "{-}", "{}"],
        refused: &["{1259}", "{999999}", "{pg_class,999999}", "{x}"],
        pieces: &["{", "}", ",", "pg_class", "1", "9", "-"],
        says: |text, stored| text.replace(' ', "") == stored,
    },
    Case {
        sql: "character(3)[]",
        accepted: &[
            "{abc,ab}",
            "{\"a  \"}",
            "{\"\"}",
            "{NULL}",
            "{{a},{b}}",
            "{}",
        ],
        refused: &["{abcd}", "{ab,\"a \"}", "{\"abc \"}", "{\"    \"}"],
        pieces: &["{", "}", ",", "a", "é", "NULL", " ", "\"", "\" \"", "  "],
        says: |text, stored| lists(text, stored, padded),
    },
    Case {
        sql: "timestamp(0)[]",
        accepted: &["{\"2020-01-01 10:00:00\"}"],
        refused: &[
            "{\"2020-01-01 10:00:00.5\"}",
            "{\"2020-01-01 10:00:00+05\"}",
        ],
        pieces: CLOCK,
        says: |text, stored| lists(text, stored, moment_equal),
    },
];

/// The types without spellings: their own output alone.
const OWN: Case = Case {
    sql: "",
    accepted: &[],
    refused: &[],
    pieces: PLAIN,
    says: |text, stored| text.replace("[,", "(,") == stored.replace("[,", "(,"),
};

/// The types that name an object: each server reads several names for one.
const NAMES: Case = Case {
    says: |text, stored| stored == text || text == "0" || !text.bytes().all(|b| b.is_ascii_digit()),
    ..OWN
};

/// Texts of those types, of which some say more than the type holds.
const OWN_TEXTS: &[&str] = &[
    "a",
    "'a' 'b'",
    "'a':1 'b':2",
    "b a",
    "a & b",
    "'a' & 'b'",
    "<a/>",
    "<a />",
    "<?xml version=\"1.0\"?><a/>",
    "$.\"a\"",
    "$.a",
    "(0,1)",
    "(0, 1)",
    "1 2",
    "01 2",
    "10:20:10,14",
    "ab",
    "",
    "pg_class",
    "99999",
    "-",
    "integer",
    "int4",
    "pg_catalog.int4",
    "0",
    "length(text)",
    "english",
    "\"C\"",
    "postgres=r/postgres",
    "0123456789012345678901234567890123456789012345678901234567890123456789",
    "\\x01",
    "{}",
    "{1}",
    "{[1,2)}",
    "empty",
    "[1.50,2)",
    "[2020-01-01,)",
    "{[2020-01-01,2020-01-03)}",
    "1:1:1",
    "  a",
    "a ",
];

/// Numbers as always: what a test found, it finds again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    /// A known text with one to three changes.
    fn text(&mut self, known: &[&str], pieces: &[&str]) -> String {
        let mut chars: Vec<char> = known[self.below(known.len())].chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(chars.len() + 1);
            let piece = pieces[self.below(pieces.len())].chars();
            match self.below(4) {
                0 if at < chars.len() => {
                    chars.remove(at);
                }
                1 if at < chars.len() => {
                    chars.splice(at..=at, piece);
                }
                2 => chars.extend(piece),
                _ => {
                    chars.splice(at..at, piece);
                }
            }
        }
        chars.into_iter().collect()
    }
}

#[test]
fn what_a_column_holds_says_what_its_text_said_in_every_type() {
    let database = database();
    let mut client = database.client();
    client.batch_execute("CREATE SCHEMA raw").unwrap();
    let others: Vec<String> = client
        .query(
            "SELECT format_type(oid, NULL) FROM pg_type WHERE oid < 10000 AND typtype IN ('b', 'r', 'm') \
             AND typcategory <> 'A' AND oid <> ALL ('{18,25,1042,1043,194,3361,3642,3402,4600,4601,5017,3802}') ORDER BY oid",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .filter(|name: &String| !is_listed(name))
        .collect();
    assert!(others.len() > 20, "{others:?}");
    let mut failures = Vec::new();
    let (mut looked_at, mut held) = (0, 0);
    for case in CASES {
        let known: Vec<&str> = [case.accepted, case.refused].concat();
        let (accepted, tried) = try_texts(&database, case.sql, case, &known, &mut failures);
        looked_at += tried;
        held += accepted;
    }
    for sql in &others {
        looked_at += {
            let case = if sql.starts_with("reg") { &NAMES } else { &OWN };
            try_texts(&database, sql, case, OWN_TEXTS, &mut failures).1
        };
    }
    assert_eq!(looked_at, (CASES.len() + others.len()) * TEXTS);
    // Most changes make a text that no type reads.
    assert!(
        held > 1000,
        "only {held} of {looked_at} texts were accepted"
    );
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn is_listed(name: &str) -> bool {
    let long = |sql: &str| match sql {
        "time" => "time without time zone".to_owned(),
        "timetz" => "time with time zone".to_owned(),
        "timestamp" => "timestamp without time zone".to_owned(),
        "timestamptz" => "timestamp with time zone".to_owned(),
        "bit(3)" => "bit".to_owned(),
        other => other.to_owned(),
    };
    CASES.iter().any(|case| long(case.sql) == name)
}

/// Stores the texts as a load does; gives how many were accepted, and of how many.
fn try_texts(
    database: &rapidbyte_testkit::postgres::Database<'_>,
    sql: &str,
    case: &Case,
    known: &[&str],
    failures: &mut Vec<String>,
) -> (usize, usize) {
    let mut client = database.client();
    client.batch_execute(catalog::SESSION_SETTINGS).unwrap();
    client
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS raw.t CASCADE; CREATE TABLE raw.t (v {sql})"
        ))
        .unwrap();
    let oid: u32 = client
        .query_one("SELECT 'raw.t'::regclass::oid", &[])
        .unwrap()
        .get(0);
    let mut texts = |sql: &str| -> Vec<String> {
        let rows = client.query(sql, &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let described = texts(&catalog::columns_query(&[oid]));
    let described = catalog::Described::parse(described.iter().map(String::as_str)).unwrap();
    let types = match described.types_query() {
        Some(query) => texts(&query),
        None => Vec::new(),
    };
    let types = catalog::Types::parse(types.iter().map(String::as_str)).unwrap();
    let column = described
        .relations(&types)
        .remove(0)
        .unwrap()
        .columns
        .remove(0);
    // The output of xml leaves a declaration out; its value has it.
    let written = match sql {
        "xml" => "r.v::pg_catalog.text",
        _ => "pg_catalog.format('%s', r.v)",
    };
    let read = cast::read("u", "1", 0, &column);
    let from = "pg_catalog.unnest(ARRAY[given]) AS u (c0)";
    let (from, read) = (cast::source("u", from, [&read]), read.expression);
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION raw.store(given text) RETURNS text LANGUAGE plpgsql AS $f$ DECLARE \
             stored text; BEGIN INSERT INTO raw.t AS r SELECT {read} FROM {from} \
             RETURNING {written} INTO stored; RETURN stored; \
             EXCEPTION WHEN OTHERS THEN RETURN NULL; END $f$"
        ))
        .unwrap();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut given: Vec<String> = known.iter().map(|&text| text.to_owned()).collect();
    assert!(given.len() < TEXTS);
    while given.len() < TEXTS {
        let text = random.text(known, case.pieces);
        if !given.contains(&text) || random.below(20) == 0 {
            given.push(text);
        }
    }
    let rows = client
        .query(
            "SELECT t, raw.store(t) FROM pg_catalog.unnest($1::text[]) AS t",
            &[&given],
        )
        .unwrap();
    let mut accepted = 0;
    for row in &rows {
        let (text, stored): (&str, Option<&str>) = (row.get(0), row.get(1));
        match stored {
            Some(stored) => {
                accepted += 1;
                if case.refused.contains(&text) || !(case.says)(text, stored) {
                    failures.push(format!("{sql}: {text:?} was stored as {stored:?}"));
                }
            }
            None if case.accepted.contains(&text) => {
                failures.push(format!("{sql}: {text:?} was refused"));
            }
            None => {}
        }
    }
    (accepted, rows.len())
}

/// A decimal number: whether it is negative, its digits without zeros around them, and the power
/// of ten of the last one. Words for no number are kept as digits.
fn number(text: &str) -> Option<(bool, String, i64)> {
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

fn decimal(text: &str, stored: &str) -> bool {
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

/// Days since 2000-01-01 in the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
    let lengths = [
        31,
        if leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    if !(1..=12).contains(&month) || !(1..=lengths[month as usize - 1]).contains(&day) {
        return None;
    }
    let before = year - 1;
    let in_years =
        before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let in_months: i64 = lengths[..month as usize - 1].iter().sum();
    Some(in_years + in_months + day)
}

/// A day and a time of day as a text says them.
#[derive(Debug, PartialEq)]
struct Moment {
    /// A word that stands for no moment.
    word: Option<String>,
    day: Option<i64>,
    /// Nanoseconds of a day; finer digits must be zeros.
    nanos: Option<i64>,
    /// Seconds east of UTC.
    offset: Option<i64>,
}

fn moment(text: &str) -> Option<Moment> {
    let upper = text.trim().to_ascii_uppercase();
    let mut rest = upper.as_str();
    let unsigned = rest.strip_prefix('+').unwrap_or(rest);
    if matches!(unsigned, "INFINITY" | "-INFINITY") {
        let word = Some(unsigned.to_owned());
        return Some(Moment {
            word,
            day: None,
            nanos: None,
            offset: None,
        });
    }
    let mut is_bc = false;
    for (era, bc) in [("BC", true), ("AD", false)] {
        if let Some(before) = rest.strip_suffix(era) {
            (rest, is_bc) = (before.trim_end(), bc);
            break;
        }
    }
    let mut day = None;
    let date_end = rest.find(['T', ' ']).unwrap_or(rest.len());
    if !rest[..date_end].contains(':') {
        let date = rest[..date_end].replace('/', "-");
        let parts: Vec<String> = match date.split('-').map(str::to_owned).collect::<Vec<_>>() {
            whole
                if whole.len() == 1
                    && date.len() == 8
                    && date.bytes().all(|b| b.is_ascii_digit()) =>
            {
                vec![date[..4].into(), date[4..6].into(), date[6..].into()]
            }
            parts => parts,
        };
        let [year, month, of_month] = parts.try_into().ok()?;
        let year: i64 = year.parse().ok()?;
        let year = if is_bc { 1 - year } else { year };
        day = Some(days(year, month.parse().ok()?, of_month.parse().ok()?)?);
        rest = rest[date_end..].trim_start_matches(['T', ' ']);
    } else if is_bc {
        return None;
    }
    let (mut nanos, mut offset) = (None, None);
    if !rest.is_empty() {
        for zone in ["UTC", "GMT", "Z"] {
            if let Some(before) = rest.strip_suffix(zone) {
                (rest, offset) = (before.trim_end(), Some(0));
                break;
            }
        }
        if let Some(at) = rest.rfind(['+', '-']) {
            if offset.is_some() {
                return None;
            }
            offset = Some(zone_seconds(&rest[at..])?);
            rest = rest[..at].trim_end();
        }
        let mut noon = None;
        for (half, is_afternoon) in [("AM", false), ("PM", true)] {
            if let Some(before) = rest.strip_suffix(half) {
                (rest, noon) = (before.trim_end(), Some(is_afternoon));
                break;
            }
        }
        let mut parts = rest.split(':');
        let mut hour: i64 = parts.next()?.parse().ok()?;
        let minute: i64 = parts.next()?.parse().ok()?;
        let (second, fraction) = parts
            .next()
            .map_or(("0", ""), |s| s.split_once('.').unwrap_or((s, "")));
        if parts.next().is_some() || minute > 59 || fraction.len() > 9 {
            return None;
        }
        let second: i64 = second.parse().ok()?;
        let fraction: i64 = format!("{fraction:0<9}").parse().ok()?;
        if let Some(is_afternoon) = noon {
            hour = hour % 12 + if is_afternoon { 12 } else { 0 };
        }
        if second > 59 || hour > 24 {
            return None;
        }
        nanos = Some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + fraction);
    }
    Some(Moment {
        word: None,
        day,
        nanos,
        offset,
    })
}

fn zone_seconds(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text[1..].chars().filter(|&c| c != ':').collect();
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 6 {
        return None;
    }
    let digits = if digits.len() % 2 == 1 {
        format!("0{digits}")
    } else {
        digits
    };
    let part = |n: usize| {
        digits
            .get(n * 2..n * 2 + 2)
            .map_or(Some(0), |s| s.parse::<i64>().ok())
    };
    Some(sign * (part(0)? * 3600 + part(1)? * 60 + part(2)?))
}

/// The same instant, or the same day, or the same time of day and offset. Without an offset a text
/// means UTC, as the session's time zone is.
fn moment_equal(text: &str, stored: &str) -> bool {
    let (Some(said), Some(held)) = (moment(text), moment(stored)) else {
        return false;
    };
    if said.word.is_some() || held.word.is_some() {
        return said == held;
    }
    match (said.day, held.day) {
        (Some(day), Some(held_day)) => {
            if held.offset.is_none() && said.offset.is_some() {
                return false;
            }
            let instant = |day: i64, m: &Moment| {
                let nanos = i128::from(m.nanos.unwrap_or(0))
                    - i128::from(m.offset.unwrap_or(0)) * 1_000_000_000;
                i128::from(day) * 86_400_000_000_000 + nanos
            };
            instant(day, &said) == instant(held_day, &held)
        }
        (None, None) => {
            said.nanos.is_some()
                && said.nanos == held.nanos
                && match held.offset {
                    Some(offset) => said.offset.unwrap_or(0) == offset,
                    None => said.offset.is_none(),
                }
        }
        _ => false,
    }
}

/// Months, days and nanoseconds of a span.
fn span(text: &str) -> Option<(i64, i64, i128)> {
    let lower = text.trim().to_ascii_lowercase();
    let (mut months, mut days, mut nanos) = (0_i64, 0_i64, 0_i128);
    let fine = |number: &str, unit: i128| -> Option<i128> {
        let (sign, number) = match number.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if part.len() > 9 || whole.is_empty() || !whole.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let part: i128 = format!("{part:0<9}").parse().ok()?;
        Some(sign * (whole.parse::<i128>().ok()? * unit + part * unit / 1_000_000_000))
    };
    const SECOND: i128 = 1_000_000_000;
    if let Some(rest) = lower.strip_prefix('p').or_else(|| lower.strip_prefix("+p")) {
        let (date, time) = rest.split_once('t').unwrap_or((rest, ""));
        for (part, is_time) in [(date, false), (time, true)] {
            let mut number = String::new();
            for c in part.chars() {
                if c.is_ascii_digit() || "+-.".contains(c) {
                    number.push(c);
                    continue;
                }
                match (c, is_time) {
                    ('y', false) => months += number.parse::<i64>().ok()? * 12,
                    ('m', false) => months += number.parse::<i64>().ok()?,
                    ('w', false) => days += number.parse::<i64>().ok()? * 7,
                    ('d', false) => days += number.parse::<i64>().ok()?,
                    ('h', true) => nanos += fine(&number, 3600 * SECOND)?,
                    ('m', true) => nanos += fine(&number, 60 * SECOND)?,
                    ('s', true) => nanos += fine(&number, SECOND)?,
                    _ => return None,
                }
                number.clear();
            }
            if !number.is_empty() {
                return None;
            }
        }
        return Some((months, days, nanos));
    }
    let mut rest = lower.strip_prefix('@').unwrap_or(&lower).trim();
    let mut sign = 1;
    if let Some(before) = rest.strip_suffix("ago") {
        (rest, sign) = (before.trim_end(), -1);
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || "+-.:".contains(c)))
            .unwrap_or(rest.len());
        let number = &rest[..end];
        rest = rest[end..].trim_start();
        if number.contains(':') {
            let (clock_sign, clock) = match number.strip_prefix('-') {
                Some(clock) => (-1, clock),
                None => (1, number.strip_prefix('+').unwrap_or(number)),
            };
            let mut parts = clock.split(':');
            let hours = fine(parts.next()?, 3600 * SECOND)?;
            let minutes = fine(parts.next()?, 60 * SECOND)?;
            let seconds = parts.next().map_or(Some(0), |s| fine(s, SECOND))?;
            if parts.next().is_some() {
                return None;
            }
            nanos += clock_sign * (hours + minutes + seconds);
            continue;
        }
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let unit = &rest[..end];
        rest = rest[end..].trim_start();
        let whole = || number.parse::<i64>().ok();
        let singular = if unit.len() > 1 {
            unit.strip_suffix('s').unwrap_or(unit)
        } else {
            unit
        };
        match singular {
            "millennium" => months += whole()? * 12_000,
            "millennia" => months += whole()? * 12_000,
            "century" | "centurie" => months += whole()? * 1_200,
            "decade" => months += whole()? * 120,
            "year" | "yr" | "y" => months += whole()? * 12,
            "mon" | "month" => months += whole()?,
            "week" | "w" => days += whole()? * 7,
            "day" | "d" => days += whole()?,
            "hour" | "hr" | "h" => nanos += i128::from(whole()?) * 3600 * SECOND,
            "minute" | "min" | "m" => nanos += i128::from(whole()?) * 60 * SECOND,
            "second" | "sec" | "s" => nanos += fine(number, SECOND)?,
            _ => return None,
        }
    }
    Some((months * sign, days * sign, nanos * i128::from(sign)))
}

fn interval(text: &str, stored: &str) -> bool {
    !text.trim().is_empty() && span(text).is_some() && span(text) == span(stored)
}

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

type Bound = Option<(bool, bool, String, i64)>;

/// The two ends of a range: whether it holds the end, and the number. `None` for an empty range.
fn ends(text: &str) -> Option<Option<(Bound, Bound)>> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("empty") {
        return Some(None);
    }
    let inner = text.strip_prefix(['[', '('])?.strip_suffix([']', ')'])?;
    let (low, high) = inner.split_once(',')?;
    let bound = |text: &str, closed: bool| -> Option<Bound> {
        if text.is_empty() {
            return Some(None);
        }
        let (negative, digits, exponent) = number(text)?;
        Some(Some((closed, negative, digits, exponent)))
    };
    Some(Some((
        bound(low, text.starts_with('['))?,
        bound(high, text.ends_with(']'))?,
    )))
}

fn number_range(text: &str, stored: &str) -> bool {
    let (Some(said), Some(held)) = (ends(text), ends(stored)) else {
        return false;
    };
    let is_empty = |range: &Option<(Bound, Bound)>| match range {
        None => true,
        Some((Some(low), Some(high))) => {
            (&low.1, &low.2, low.3) == (&high.1, &high.2, high.3) && !(low.0 && high.0)
        }
        Some(_) => false,
    };
    said == held || (is_empty(&said) && is_empty(&held))
}

/// The first number inside and the first one behind; `None` for no end.
fn integers(text: &str) -> Option<Option<(Option<i128>, Option<i128>)>> {
    let Some((low, high)) = ends(text)? else {
        return Some(None);
    };
    let value = |bound: &Bound, step_if_closed: bool| -> Option<Option<i128>> {
        let Some((closed, negative, digits, exponent)) = bound else {
            return Some(None);
        };
        let zeros = "0".repeat(usize::try_from(*exponent).ok()?);
        let value: i128 = format!("0{digits}{zeros}").parse().ok()?;
        let value = if *negative { -value } else { value };
        Some(Some(value + i128::from(*closed == step_if_closed)))
    };
    let (low, high) = (value(&low, false)?, value(&high, true)?);
    Some(match (low, high) {
        (Some(low), Some(high)) if low >= high => None,
        both => Some(both),
    })
}

fn integer_range(text: &str, stored: &str) -> bool {
    integers(text).is_some() && integers(text) == integers(stored)
}

/// The same numbers are in both.
fn integer_sets(text: &str, stored: &str) -> bool {
    let parts = |text: &str| -> Option<Vec<(i128, i128)>> {
        let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let mut parts = Vec::new();
        let mut rest = inner.trim();
        while !rest.is_empty() {
            let end = match rest.get(..5) {
                Some(word) if word.eq_ignore_ascii_case("empty") => 5,
                _ => rest.find([']', ')'])? + 1,
            };
            if let Some((low, high)) = integers(&rest[..end])? {
                parts.push((low.unwrap_or(i128::MIN), high.unwrap_or(i128::MAX)));
            }
            rest = rest[end..].trim_start();
            rest = match rest.strip_prefix(',') {
                Some(rest) => rest.trim_start(),
                None if rest.is_empty() => rest,
                None => return None,
            };
        }
        parts.sort_unstable();
        let mut merged: Vec<(i128, i128)> = Vec::new();
        for (low, high) in parts {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Some(merged)
    };
    parts(text).is_some() && parts(text) == parts(stored)
}

/// A value of `character(3)`: with the blanks of the text, or filled up where the text ends with none.
fn padded(text: &str, stored: &str) -> bool {
    text == stored || !text.ends_with(' ') && format!("{text:<3}") == stored
}

/// The same elements in lists of the same shape.
fn lists(text: &str, stored: &str, says: fn(&str, &str) -> bool) -> bool {
    let (Some(said), Some(held)) = (tokens(text), tokens(stored)) else {
        return false;
    };
    said.len() == held.len()
        && said.iter().zip(&held).all(|pair| match pair {
            (Token::Element(said), Token::Element(held)) => says(said, held),
            (said, held) => said == held,
        })
}

#[derive(Debug, PartialEq)]
enum Token {
    Sign(char),
    /// What stands before the first brace.
    Bounds(String),
    Null,
    Element(String),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let text = text.trim();
    let begin = text.find('{')?;
    let mut tokens = Vec::new();
    let bounds: String = text[..begin].split_whitespace().collect();
    let bounds = bounds.trim_end_matches('=');
    tokens.push(Token::Bounds(if bounds.starts_with("[1:") {
        String::new()
    } else {
        bounds.to_owned()
    }));
    let mut chars = text[begin..].chars().peekable();
    let mut word: Option<(String, bool)> = None;
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' | ',' => {
                if let Some((word, quoted)) = word.take() {
                    let is_null = !quoted && word.trim().eq_ignore_ascii_case("null");
                    let element = if quoted { word } else { word.trim().to_owned() };
                    tokens.push(if is_null {
                        Token::Null
                    } else {
                        Token::Element(element)
                    });
                }
                tokens.push(Token::Sign(c));
            }
            '"' => {
                let (word, quoted) = word.get_or_insert_with(Default::default);
                *quoted = true;
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => word.push(chars.next()?),
                        c => word.push(c),
                    }
                }
            }
            c if c.is_whitespace() && word.as_ref().is_none_or(|(_, quoted)| *quoted) => {}
            c => word.get_or_insert_with(Default::default).0.push(c),
        }
    }
    Some(tokens)
}

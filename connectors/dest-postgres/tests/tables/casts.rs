//! Text that the server reads: the column then holds the value of the text, or the text
//! was refused. Every built-in type takes 200 texts: known ones, and random changes of them.
//!
//! An oracle of its own decides, which reads numbers, days and spans in Rust. An accepted text that
//! the oracle does not understand is a failure too.

mod composed;
mod datetime;
mod native;
mod numbers;

use std::sync::LazyLock;

use crate::common::*;
use rapidbyte_pg::{cast, catalog};

/// Texts for each type, the random ones included.
const TEXTS: usize = 200;

/// The texts of one type.
struct Case {
    sql: &'static str,
    accepted: &'static [&'static str],
    refused: &'static [&'static str],
    /// The pieces that random changes insert.
    pieces: &'static [&'static str],
    /// True if the value that is stored (right) says what the text (left) says.
    says: fn(&str, &str) -> bool,
}

const CLOCK: &[&str] = &[
    "0", "1", "9", ":", ".", "-", "+", " ", "5", "Z", "AM", "PM", "T", "BC", "/", "+05", "0000",
    "60", "24", " UTC", "infinity", "now", "12:00", "PST", "AD", "July", "J", "\t",
];
const PLAIN: &[&str] = &[
    "a", " ", "'", "(", ")", "1", ",", ":", "A", "\\", "<", ">", "&", "é",
];

static CASES: LazyLock<Vec<&Case>> = LazyLock::new(|| {
    let families = [
        numbers::CASES,
        datetime::CASES,
        native::CASES,
        composed::CASES,
    ];
    families.into_iter().flatten().collect()
});

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

/// Texts for the types without spellings. Some texts say more than the type holds.
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
fn a_column_of_every_type_holds_the_value_of_its_text() {
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
    for case in CASES.iter() {
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
    let read = cast::read("u", "1", 0, &column, cast::Texts::Plain);
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

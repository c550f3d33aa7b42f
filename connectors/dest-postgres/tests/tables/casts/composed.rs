//! Ranges and arrays.

use super::datetime::moment_equal;
use super::numbers::{decimal, number};
use super::{CLOCK, Case};

pub(super) const CASES: &[Case] = &[
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
    /// The text before the first brace.
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

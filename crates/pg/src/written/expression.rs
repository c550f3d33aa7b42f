//! Checks and defaults of domains: expressions that compute and compare with well-known means.

use rapidbyte_wire::name::shown;

use super::matching::problem_of_patterns;
use super::tokens::{Token, take_name, take_tokens, take_type, tokens};

/// Functions that compute something from their arguments, and touch nothing.
const FUNCTIONS: [&str; 59] = [
    "abs",
    "array_length",
    "array_lower",
    "array_ndims",
    "array_position",
    "array_upper",
    "bit_length",
    "btrim",
    "cardinality",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "clock_timestamp",
    "coalesce",
    "date_part",
    "date_trunc",
    "extract",
    "floor",
    "gen_random_uuid",
    "greatest",
    "initcap",
    "isempty",
    "isfinite",
    "json_typeof",
    "jsonb_typeof",
    "least",
    "left",
    "length",
    "like_escape",
    "lower",
    "lower_inf",
    "ltrim",
    "mod",
    "now",
    "nullif",
    "octet_length",
    "overlay",
    "position",
    "regexp_like",
    "replace",
    "reverse",
    "right",
    "round",
    "rtrim",
    "sign",
    "similar_escape",
    "similar_to_escape",
    "split_part",
    "starts_with",
    "statement_timestamp",
    "strpos",
    "substr",
    "substring",
    "timezone",
    "trim",
    "trunc",
    "upper",
    "upper_inf",
];

/// The words of expressions, apart from the names of types and functions.
const WORDS: [&str; 52] = [
    "all",
    "and",
    "any",
    "array",
    "at",
    "between",
    "both",
    "case",
    "current_date",
    "current_time",
    "current_timestamp",
    "day",
    "distinct",
    "dow",
    "doy",
    "else",
    "end",
    "epoch",
    "false",
    "for",
    "from",
    "hour",
    "ilike",
    "in",
    "is",
    "isodow",
    "isoyear",
    "leading",
    "like",
    "localtime",
    "localtimestamp",
    "minute",
    "month",
    "not",
    "null",
    "or",
    "quarter",
    "second",
    "similar",
    "some",
    "symmetric",
    "then",
    "time",
    "to",
    "trailing",
    "true",
    "unknown",
    "value",
    "week",
    "when",
    "year",
    "zone",
];

/// Types whose casts do what the manual says.
const TYPES: [&str; 32] = [
    "bigint",
    "bit",
    "boolean",
    "bpchar",
    "bytea",
    "character",
    "cidr",
    "date",
    "daterange",
    "double",
    "inet",
    "int4range",
    "int8range",
    "integer",
    "interval",
    "json",
    "jsonb",
    "macaddr",
    "macaddr8",
    "money",
    "name",
    "numeric",
    "numrange",
    "real",
    "smallint",
    "text",
    "time",
    "timestamp",
    "tsrange",
    "tstzrange",
    "uuid",
    "varbit",
];

/// Words in front of a bracket that does not begin the arguments of a function.
const BEFORE_BRACKETS: [&str; 21] = [
    "all", "and", "any", "between", "both", "case", "else", "for", "from", "ilike", "in", "is",
    "leading", "like", "not", "or", "some", "then", "trailing", "when", "zone",
];

const OPERATORS: [&str; 34] = [
    "!=", "!~", "!~*", "!~~", "!~~*", "#", "%", "&", "&&", "*", "+", "-", "->", "->>", "/", "<",
    "<<", "<=", "<>", "<@", "=", ">", ">=", ">>", "?", "?&", "?|", "@>", "|", "||", "~", "~*",
    "~~", "~~*",
];

/// Why a constraint of a domain is not a check that compares and computes with well-known means. Any other may do
/// something when a value is checked: a person decides whether the target gets it.
pub(crate) fn problem_of_check(text: &str, base: Option<&str>) -> Option<String> {
    let base = base.and_then(tokens);
    let tokens = tokens(text);
    match tokens.as_deref() {
        Some(
            [
                Token::Word(check),
                Token::Mark(b'('),
                inner @ ..,
                Token::Mark(b')'),
            ],
        ) if check.eq_ignore_ascii_case("check") => {
            problem_of_expression(inner.to_vec(), base.as_deref())
        }
        _ => Some(format!("{} is not a plain check", shown(text))),
    }
}

/// The same for a default.
pub(crate) fn problem_of_default(text: &str, base: Option<&str>) -> Option<String> {
    let base = base.and_then(tokens);
    let is_not =
        |token: &Token<'_>| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case("not"));
    match tokens(text) {
        // Behind a default, it would be a constraint.
        Some(tokens) if tokens.iter().any(is_not) => {
            Some("NOT is not among the words of defaults".to_owned())
        }
        Some(tokens) => problem_of_expression(tokens, base.as_deref()),
        None => Some(format!("{} is not a plain default", shown(text))),
    }
}

/// `of_base`: the tokens of the type of `VALUE`, if that is an enum, or an array of one.
fn problem_of_expression(tokens: Vec<Token<'_>>, of_base: Option<&[Token<'_>]>) -> Option<String> {
    if let Some(problem) = problem_of_patterns(&tokens) {
        return Some(problem);
    }
    let mut tokens = tokens.into_iter().peekable();
    let mut open = Vec::new();
    let mut is_empty = true;
    while let Some(token) = tokens.next() {
        is_empty = false;
        let next_opens = tokens.peek() == Some(&Token::Mark(b'('));
        let is_right = match token {
            Token::Number(_) | Token::Text(_) => true,
            Token::Operator(operator) => OPERATORS.contains(&operator),
            Token::Cast => match tokens.peek() {
                // Casts of other types may call functions of the target, and casts to reg* read its catalog.
                Some(Token::Word(name)) if TYPES.contains(&name.to_ascii_lowercase().as_str()) => {
                    take_type(&mut tokens).is_some()
                }
                Some(Token::Quoted("\"bit\"" | "\"char\"")) => take_type(&mut tokens).is_some(),
                _ => of_base.is_some_and(|base| {
                    let element = base.strip_suffix(&[Token::Mark(b'['), Token::Mark(b']')]);
                    take_tokens(&mut tokens, base)
                        || element.is_some_and(|element| take_tokens(&mut tokens, element))
                }),
            },
            Token::Word(word) => {
                let word = word.to_ascii_lowercase();
                let word = word.as_str();
                match word {
                    "collate" => take_name(&mut tokens).is_some(),
                    _ if next_opens => FUNCTIONS.contains(&word) || BEFORE_BRACKETS.contains(&word),
                    _ => WORDS.contains(&word),
                }
            }
            // The server quotes a function's name that is a keyword, too.
            Token::Quoted(name) => next_opens && FUNCTIONS.contains(&name.trim_matches('"')),
            Token::Mark(mark @ (b'(' | b'[')) => {
                open.push(mark);
                true
            }
            Token::Mark(b')') => open.pop() == Some(b'('),
            Token::Mark(b']') => open.pop() == Some(b'['),
            Token::Mark(b',') => !open.is_empty(),
            Token::Mark(_) => false,
        };
        if !is_right {
            let what = match token {
                Token::Word(text) | Token::Quoted(text) | Token::Operator(text) => text.to_owned(),
                Token::Mark(mark) => char::from(mark).to_string(),
                _ => "a cast to a type of its own".to_owned(),
            };
            return Some(format!(
                "{what} is not among the well-known functions, operators and words"
            ));
        }
    }
    let is_complete = open.is_empty() && !is_empty;
    (!is_complete).then(|| "it is not a whole expression".to_owned())
}

/// The expression with its backslashes in `E'…'`: what they mean in a plain literal is a setting of the session.
pub(crate) fn with_escapes(text: &str) -> String {
    let (mut written, mut done) = (String::with_capacity(text.len()), 0);
    for token in tokens(text).unwrap_or_default() {
        let Token::Text(literal) = token else {
            continue;
        };
        if literal.starts_with('\'') && literal.contains('\\') {
            let at = literal.as_ptr() as usize - text.as_ptr() as usize;
            written += &text[done..at];
            written += &format!("E{}", literal.replace('\\', "\\\\"));
            done = at + literal.len();
        }
    }
    written + &text[done..]
}

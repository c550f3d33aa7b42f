//! The patterns in an expression, and other parts of it that could take long or make a text longer.

use rapidbyte_wire::name::shown;

use super::tokens::Token;
use crate::patterns;

/// The right operand is a regular expression.
const MATCHES: [&str; 4] = ["~", "~*", "!~", "!~*"];

/// Functions with a pattern behind the first argument, or in it.
const WITH_PATTERNS: [(&str, bool); 4] = [
    ("regexp_like", false),
    ("substring", false),
    ("similar_escape", true),
    ("similar_to_escape", true),
];

/// The longest text with quotes that `replace` puts in the place of another: longer ones would make any value large.
const MAX_REPLACEMENT_BYTES: usize = 3;

/// Of a text in an expression that is more than a text.
const MAX_TEXT_BYTES: usize = 2_000;

/// Why comparing with the patterns of an expression may take long, or making a text longer.
pub(super) fn problem_of_patterns(tokens: &[Token<'_>]) -> Option<String> {
    let is_plain = |token: &Token<'_>| is_constant(token);
    for (at, token) in tokens.iter().enumerate() {
        let behind = &tokens[at + 1..];
        let name = match token {
            // The server compares it at each place of the value. A default is nothing but a text.
            Token::Text(text) if text.len() > MAX_TEXT_BYTES && !tokens.iter().all(is_plain) => {
                return Some(format!("it has a text of more than {MAX_TEXT_BYTES} bytes"));
            }
            Token::Operator(operator) if MATCHES.contains(operator) => {
                if let Some(problem) = problem_of_pattern(up_to_bracket(behind)) {
                    return Some(problem);
                }
                continue;
            }
            // SIMILAR TO
            Token::Word(word) if word.eq_ignore_ascii_case("similar") => {
                let is_to =
                    matches!(behind, [Token::Word(to), ..] if to.eq_ignore_ascii_case("to"));
                let pattern = up_to_bracket(&behind[usize::from(is_to)..]);
                if let Some(problem) = problem_of_pattern(pattern) {
                    return Some(problem);
                }
                continue;
            }
            Token::Word(name) => name.to_ascii_lowercase(),
            Token::Quoted(name) => name.trim_matches('"').to_owned(),
            _ => continue,
        };
        let Some((Token::Mark(b'('), arguments)) = behind.split_first() else {
            continue;
        };
        let arguments = split(up_to_bracket(arguments));
        let pattern = WITH_PATTERNS.iter().find(|(function, _)| *function == name);
        if let Some((_, is_first)) = pattern {
            let patterns = arguments.iter().skip(usize::from(!is_first));
            if let Some(problem) = patterns.copied().find_map(problem_of_pattern) {
                return Some(problem);
            }
        }
        if name == "regexp_like" && arguments.get(2).copied().is_some_and(changes_syntax) {
            return Some("the flags of regexp_like change the syntax".to_owned());
        }
        let is_short = |replacement: &&[Token<'_>]| {
            matches!(replacement, [Token::Text(text), ..] if text.len() <= MAX_REPLACEMENT_BYTES)
                && replacement.iter().all(is_constant)
        };
        if name == "replace" && !arguments.last().is_some_and(is_short) {
            return Some("replace may make the value much longer".to_owned());
        }
    }
    None
}

/// Whether flags mean a syntax that [`patterns`] does not read.
fn changes_syntax(flags: &[Token<'_>]) -> bool {
    let flags = match flags {
        [Token::Text(literal), ..] => unquoted(literal),
        _ => None,
    };
    !flags.is_some_and(|flags| flags.bytes().all(|flag| patterns::OPTIONS.contains(&flag)))
}

/// Why a pattern is not a constant, or one that takes long.
fn problem_of_pattern(tokens: &[Token<'_>]) -> Option<String> {
    // [`problem_of_patterns`] checks the arguments of each function that makes patterns.
    let makes =
        |token: &Token<'_>| matches!(token, Token::Word(word) if word.starts_with("similar_"));
    let is_constant = |token: &Token<'_>| is_constant(token) || makes(token);
    if !tokens.iter().all(is_constant) {
        return Some("a pattern is not a constant".to_owned());
    }
    tokens.iter().find_map(|token| {
        let Token::Text(literal) = token else {
            return None;
        };
        let problem = match unquoted(literal) {
            Some(pattern) => patterns::problem(&pattern),
            None => Some("it has unusual escapes"),
        };
        Some(format!("the pattern {}: {}", shown(literal), problem?))
    })
}

/// A part of an expression that only consists of literals, casts of them, and arrays.
fn is_constant(token: &Token<'_>) -> bool {
    const WORDS: [&str; 10] = [
        "all",
        "any",
        "array",
        "bpchar",
        "character",
        "for",
        "from",
        "null",
        "text",
        "varying",
    ];
    match token {
        Token::Word(word) => WORDS.contains(&word.to_ascii_lowercase().as_str()),
        Token::Text(_) | Token::Number(_) | Token::Cast | Token::Mark(_) => true,
        Token::Quoted(_) | Token::Operator(_) => false,
    }
}

/// The tokens in front of the bracket that ends them, or all.
fn up_to_bracket<'a, 'b>(tokens: &'b [Token<'a>]) -> &'b [Token<'a>] {
    let mut depth = 0_usize;
    let end = tokens.iter().position(|token| match token {
        Token::Mark(b'(' | b'[') => {
            depth += 1;
            false
        }
        Token::Mark(b')' | b']') if depth == 0 => true,
        Token::Mark(b')' | b']') => {
            depth -= 1;
            false
        }
        _ => false,
    });
    &tokens[..end.unwrap_or(tokens.len())]
}

/// The arguments of a function, which commas or the words of SQL separate.
fn split<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let mut depth = 0_usize;
    let separates = |token: &Token<'a>| {
        match token {
            Token::Mark(b'(' | b'[') => depth += 1,
            Token::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_word = |word: &str| {
            ["from", "for", "similar"]
                .iter()
                .any(|one| one.eq_ignore_ascii_case(word))
        };
        depth == 0
            && match token {
                Token::Mark(b',') => true,
                Token::Word(word) => is_word(word),
                _ => false,
            }
    };
    tokens.split(separates).collect()
}

/// The text of a literal. `None` where a backslash does more than to quote the next character.
fn unquoted(literal: &str) -> Option<String> {
    let (prefix, text) = literal.strip_suffix('\'')?.split_once('\'')?;
    let text = text.replace("''", "'");
    match prefix {
        "" => Some(text),
        "e" | "E" => {
            let mut plain = String::with_capacity(text.len());
            let mut chars = text.chars();
            while let Some(char) = chars.next() {
                plain.push(match char {
                    '\\' => chars.next().filter(|next| matches!(next, '\\' | '\''))?,
                    char => char,
                });
            }
            Some(plain)
        }
        _ => None,
    }
}

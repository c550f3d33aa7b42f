//! The tokens of types and expressions, and what is made of them: names and types.

use std::iter::Peekable;
use std::vec::IntoIter;

/// Longer texts are not read: no server writes such a type.
pub(super) const MAX_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name or a word without quotes.
    Word(&'a str),
    /// A name in double quotes, with them.
    Quoted(&'a str),
    Number(&'a str),
    /// A literal in single quotes, with them and its prefix.
    Text(&'a str),
    Operator(&'a str),
    /// `::`
    Cast,
    /// A bracket, a comma or a dot.
    Mark(u8),
}

pub(super) type Tokens<'a> = Peekable<IntoIter<Token<'a>>>;

pub(super) fn take_mark(tokens: &mut Tokens<'_>, mark: u8) -> Option<()> {
    tokens.next_if_eq(&Token::Mark(mark)).map(|_| ())
}

/// Takes these, or nothing.
pub(super) fn take_tokens(tokens: &mut Tokens<'_>, all: &[Token<'_>]) -> bool {
    let mut ahead = tokens.clone();
    let is_there = all.iter().all(|one| ahead.next().as_ref() == Some(one));
    if is_there {
        *tokens = ahead;
    }
    is_there
}

/// Takes one of these words.
pub(super) fn take_word(tokens: &mut Tokens<'_>, words: &[&str]) -> Option<()> {
    let is_one = |token: &Token<'_>| match token {
        Token::Word(word) => words.iter().any(|one| one.eq_ignore_ascii_case(word)),
        _ => false,
    };
    tokens.next_if(is_one).map(|_| ())
}

/// Takes a name, with a schema or without.
pub(super) fn take_name(tokens: &mut Tokens<'_>) -> Option<()> {
    let mut one = || tokens.next_if(|token| matches!(token, Token::Word(_) | Token::Quoted(_)));
    one()?;
    if take_mark(tokens, b'.').is_some() {
        tokens.next_if(|token| matches!(token, Token::Word(_) | Token::Quoted(_)))?;
    }
    Some(())
}

/// Takes a type.
pub(super) fn take_type(tokens: &mut Tokens<'_>) -> Option<()> {
    const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "minute", "second"];
    let is = |token: Option<&Token<'_>>, words: &[&str]| match token {
        Some(Token::Word(word)) => words.iter().any(|one| one.eq_ignore_ascii_case(word)),
        _ => false,
    };
    let first = *tokens.peek()?;
    let first = Some(&first);
    take_name(tokens)?;
    if is(first, &["character", "bit"]) {
        take_word(tokens, &["varying"]);
    } else if is(first, &["double"]) {
        take_word(tokens, &["precision"])?;
    } else if is(first, &["interval"])
        && take_word(tokens, &FIELDS).is_some()
        && take_word(tokens, &["to"]).is_some()
    {
        take_word(tokens, &FIELDS)?;
    }
    take_modifiers(tokens)?;
    if is(first, &["time", "timestamp"]) && take_word(tokens, &["with", "without"]).is_some() {
        take_word(tokens, &["time"])?;
        take_word(tokens, &["zone"])?;
    }
    while take_mark(tokens, b'[').is_some() {
        tokens.next_if(|token| matches!(token, Token::Number(_)));
        take_mark(tokens, b']')?;
    }
    Some(())
}

/// Takes the modifiers of a type in their brackets, if there are any: numbers and, of the types of extensions, names.
pub(super) fn take_modifiers(tokens: &mut Tokens<'_>) -> Option<()> {
    if take_mark(tokens, b'(').is_none() {
        return Some(());
    }
    loop {
        tokens.next_if_eq(&Token::Operator("-"));
        tokens.next_if(|token| {
            matches!(token, Token::Number(_) | Token::Word(_) | Token::Quoted(_))
        })?;
        if take_mark(tokens, b',').is_none() {
            return take_mark(tokens, b')');
        }
    }
}

/// The tokens of a text (section "Lexical Structure" of the PostgreSQL manual). `None` if it has others than the tokens of
/// types and expressions, such as comments, semicolons, parameters and literals that depend on settings.
pub(super) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let (token, len) = match first {
            b' ' | b'\n' | b'\t' => {
                rest = &rest[1..];
                continue;
            }
            b'\'' => {
                let len = literal(rest, false)?;
                (Token::Text(&rest[..len]), len)
            }
            b'e' | b'E' | b'b' | b'B' | b'x' | b'X' if rest.as_bytes().get(1) == Some(&b'\'') => {
                let len = 1 + literal(&rest[1..], first.eq_ignore_ascii_case(&b'e'))?;
                (Token::Text(&rest[..len]), len)
            }
            b'"' => {
                let len = quoted(rest)?;
                (Token::Quoted(&rest[..len]), len)
            }
            b'0'..=b'9' => {
                let len = number(rest);
                (Token::Number(&rest[..len]), len)
            }
            b':' if rest.starts_with("::") => (Token::Cast, 2),
            b'(' | b')' | b'[' | b']' | b',' | b'.' => (Token::Mark(first), 1),
            _ if is_letter(first) => {
                let len = length(rest, |byte| is_letter(byte) || byte.is_ascii_digit());
                // The prefix of a literal, such as U&'…' and N'…', or the name of a parameter.
                if rest[len..].starts_with(['\'', '&', '$']) {
                    return None;
                }
                (Token::Word(&rest[..len]), len)
            }
            _ => match length(rest, |byte| b"+-*/<>=~!@#%^&|?".contains(&byte)) {
                0 => return None,
                // It would begin a comment.
                len if rest[..len].contains("--") || rest[..len].contains("/*") => return None,
                len => (Token::Operator(&rest[..len]), len),
            },
        };
        tokens.push(token);
        rest = &rest[len..];
    }
    Some(tokens)
}

/// Bytes beyond ASCII are letters, as they are for the server.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn length(text: &str, is_in: impl Fn(u8) -> bool) -> usize {
    let end = text.bytes().position(|byte| !is_in(byte));
    end.unwrap_or(text.len())
}

fn number(text: &str) -> usize {
    let digits = |text: &str| length(text, |byte| byte.is_ascii_digit());
    let whole = digits(text);
    match text[whole..].strip_prefix('.') {
        Some(rest) => whole + 1 + digits(rest),
        None => whole,
    }
}

/// The length of a literal in single quotes. A backslash is a character in a plain one: sources have
/// `standard_conforming_strings = on`, and [`super::with_escapes`] makes it so for targets.
fn literal(text: &str, has_escapes: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return Some(at + 1),
            b'\\' if has_escapes => at += 2,
            0 => return None,
            _ => at += 1,
        }
    }
}

/// The length of a name in double quotes.
fn quoted(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' if bytes.get(at + 1) == Some(&b'"') => at += 2,
            b'"' => return Some(at + 1).filter(|end| *end > 2),
            0 => return None,
            _ => at += 1,
        }
    }
}

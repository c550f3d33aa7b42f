//! SQL that a source has written, which a target would run.
//!
//! The description of a column travels in the metadata of its field, and metadata can come from a file or a body that
//! anybody wrote. So its texts are types and names and nothing else, and the expressions of a domain compute and nothing
//! else, before any of them becomes a part of a statement.

use std::collections::HashSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use rapidbyte_wire::name::shown;

use crate::builtin;
use crate::ident::check_name;
use crate::model::{self, CATALOG, Column, Kind, MAX_PARTS, PgType};
use crate::patterns;
use crate::types;

/// Longer texts are not read: no server writes such a type.
const MAX_BYTES: usize = 64 << 10;

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

/// Words in front of a bracket that is not that of a function's arguments.
const BEFORE_BRACKETS: [&str; 21] = [
    "all", "and", "any", "between", "both", "case", "else", "for", "from", "ilike", "in", "is",
    "leading", "like", "not", "or", "some", "then", "trailing", "when", "zone",
];

const OPERATORS: [&str; 34] = [
    "!=", "!~", "!~*", "!~~", "!~~*", "#", "%", "&", "&&", "*", "+", "-", "->", "->>", "/", "<",
    "<<", "<=", "<>", "<@", "=", ">", ">=", ">>", "?", "?&", "?|", "@>", "|", "||", "~", "~*",
    "~~", "~~*",
];

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
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

/// Why the description of a column cannot be a part of a statement, or disagrees with itself. `None` if it can.
///
/// The type comes from its text, and the values are checked against the rest. So both have to be one type.
pub(crate) fn problem(column: &Column) -> Option<String> {
    let collation = column.collation.as_deref();
    if let Some(text) = collation.filter(|text| !is_name(text)) {
        return Some(format!("{} is not a collation", shown(text)));
    }
    if column
        .comment
        .as_deref()
        .is_some_and(|text| text.contains('\0'))
    {
        return Some("its comment has a NUL character".to_owned());
    }
    let problem = problem_of_text(&column.type_text, &column.ty, column.typmod);
    problem.or_else(|| problem_of_parts(&column.ty))
}

fn problem_of_text(text: &str, ty: &PgType, typmod: i32) -> Option<String> {
    let tokens = tokens(text);
    let is_of = |tokens: Vec<Token<'_>>| of_type(tokens, ty, typmod).is_some();
    let is_right = tokens.is_some_and(is_of);
    let name = || {
        let name = shown(&ty.display_name());
        match typmod {
            -1 => name,
            _ => format!("{name} with the modifier {typmod}"),
        }
    };
    (!is_right).then(|| format!("{} is not the type {}", shown(text), name()))
}

fn problem_of_parts(ty: &PgType) -> Option<String> {
    let known = model::type_of(ty.oid);
    let is_right = match ty.is_builtin() {
        true => ty.schema == CATALOG && known.is_none_or(|known| known == *ty),
        false => true,
    };
    if !is_right {
        let name = shown(&ty.display_name());
        return Some(format!("the type {} is not {name}", ty.oid));
    }
    let is_right = |name: &String| check_name(name).is_ok();
    if let Some(name) = [&ty.schema, &ty.name]
        .into_iter()
        .find(|name| !is_right(name))
    {
        return Some(format!("{} is not the name of a type", shown(name)));
    }
    if let Some(name) = wrong_name(&ty.kind) {
        let name = shown(name);
        return Some(format!(
            "{name} cannot be a label, a field or a check of a type, or is one twice"
        ));
    }
    let problem = match &ty.kind {
        Kind::Enum { labels } if labels.len() > MAX_PARTS => {
            Some(format!("an enum of more than {MAX_PARTS} labels"))
        }
        Kind::Domain {
            base,
            typmod,
            base_text,
            ..
        } => problem_of_text(base_text, base, *typmod),
        Kind::Composite { fields } => fields
            .iter()
            .find_map(|field| problem_of_text(&field.type_text, &field.ty, field.typmod)),
        Kind::Array { element } => match element.kind {
            // An array has any number of dimensions, and no type is an array of arrays.
            Kind::Array { .. } => Some("an array of arrays is not a type".to_owned()),
            _ => None,
        },
        _ => None,
    };
    problem.or_else(|| ty.parts().into_iter().find_map(problem_of_parts))
}

/// A name inside a type that the server does not take, or takes only once.
fn wrong_name(kind: &Kind) -> Option<&str> {
    let names: Vec<&str> = match kind {
        Kind::Enum { labels } => labels.iter().map(String::as_str).collect(),
        Kind::Domain { checks, .. } => checks.iter().map(|check| check.name.as_str()).collect(),
        Kind::Composite { fields } => fields.iter().map(|field| field.name.as_str()).collect(),
        _ => Vec::new(),
    };
    let mut known = HashSet::new();
    let is_label = matches!(kind, Kind::Enum { .. });
    let mut names = names.into_iter();
    names.find(|name| {
        let is_name = check_name(name).is_ok() || (is_label && name.is_empty());
        !is_name || !known.insert(*name)
    })
}

/// Whether the tokens are the type with this modifier, as `format_type` writes it where `search_path` is empty.
fn of_type(tokens: Vec<Token<'_>>, ty: &PgType, typmod: i32) -> Option<()> {
    let (ty, brackets) = match &ty.kind {
        Kind::Array { element } => (&**element, true),
        _ => (ty, false),
    };
    let mut rest = tokens.into_iter().peekable();
    match builtin::by_oid(ty.oid) {
        Some(builtin) => {
            let text = types::text(builtin, typmod)?;
            take_tokens(&mut rest, &self::tokens(&text)?).then_some(())?;
        }
        None => take_user_type(&mut rest, ty, typmod)?,
    }
    if brackets {
        take_mark(&mut rest, b'[')?;
        take_mark(&mut rest, b']')?;
    }
    rest.next().is_none().then_some(())
}

/// Takes the name of a type, and of the types of extensions the modifiers: only the extension knows what they mean.
fn take_user_type(tokens: &mut Tokens<'_>, ty: &PgType, typmod: i32) -> Option<()> {
    let named = |token: Token<'_>, name: &str| match token {
        Token::Word(word) => word == name && !word.bytes().any(|byte| byte.is_ascii_uppercase()),
        Token::Quoted(quoted) => quoted[1..quoted.len() - 1].replace("\"\"", "\"") == name,
        _ => false,
    };
    if named(*tokens.peek()?, &ty.schema) {
        tokens.next();
        take_mark(tokens, b'.')?;
    } else if ty.schema != CATALOG {
        return None;
    }
    named(tokens.next()?, &ty.name).then_some(())?;
    match (typmod, &ty.kind) {
        (-1, _) => Some(()),
        (0.., Kind::Base { .. }) => take_modifiers(tokens),
        _ => None,
    }
}

/// Whether a text is a name, with a schema or without.
fn is_name(text: &str) -> bool {
    tokens(text).is_some_and(|tokens| {
        let mut tokens = tokens.into_iter().peekable();
        take_name(&mut tokens).is_some() && tokens.next().is_none()
    })
}

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
                // Casts of other types may call functions of the target, and those of reg* look into its catalog.
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

/// Of a text in an expression that is more than a text.
const MAX_TEXT_BYTES: usize = 2_000;

/// Why comparing with the patterns of an expression may take long, or making a text longer.
fn problem_of_patterns(tokens: &[Token<'_>]) -> Option<String> {
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

/// Whether flags mean another syntax than the one that [`patterns`] reads.
fn changes_syntax(flags: &[Token<'_>]) -> bool {
    let flags = match flags {
        [Token::Text(literal), ..] => unquoted(literal),
        _ => None,
    };
    !flags.is_some_and(|flags| flags.bytes().all(|flag| patterns::OPTIONS.contains(&flag)))
}

/// Why a pattern is not a constant, or one that takes long.
fn problem_of_pattern(tokens: &[Token<'_>]) -> Option<String> {
    // Each function that makes patterns is looked at by itself.
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

type Tokens<'a> = Peekable<IntoIter<Token<'a>>>;

fn take_mark(tokens: &mut Tokens<'_>, mark: u8) -> Option<()> {
    tokens.next_if_eq(&Token::Mark(mark)).map(|_| ())
}

/// Takes these, or nothing.
fn take_tokens(tokens: &mut Tokens<'_>, all: &[Token<'_>]) -> bool {
    let mut ahead = tokens.clone();
    let is_there = all.iter().all(|one| ahead.next().as_ref() == Some(one));
    if is_there {
        *tokens = ahead;
    }
    is_there
}

/// Takes one of these words.
fn take_word(tokens: &mut Tokens<'_>, words: &[&str]) -> Option<()> {
    let is_one = |token: &Token<'_>| match token {
        Token::Word(word) => words.iter().any(|one| one.eq_ignore_ascii_case(word)),
        _ => false,
    };
    tokens.next_if(is_one).map(|_| ())
}

/// Takes a name, with a schema or without.
fn take_name(tokens: &mut Tokens<'_>) -> Option<()> {
    let mut one = || tokens.next_if(|token| matches!(token, Token::Word(_) | Token::Quoted(_)));
    one()?;
    if take_mark(tokens, b'.').is_some() {
        tokens.next_if(|token| matches!(token, Token::Word(_) | Token::Quoted(_)))?;
    }
    Some(())
}

/// Takes a type.
fn take_type(tokens: &mut Tokens<'_>) -> Option<()> {
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
fn take_modifiers(tokens: &mut Tokens<'_>) -> Option<()> {
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

/// The tokens of a text (section "Lexical Structure" of the PostgreSQL manual). `None` if it has others than those of
/// types and expressions, such as comments, semicolons, parameters and literals that depend on settings.
fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
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
/// `standard_conforming_strings = on`, and [`with_escapes`] makes it so for targets.
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

#[cfg(test)]
mod tests;

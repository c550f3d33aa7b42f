//! SQL that a source has written, which a target would run.
//!
//! The description of a column travels in the metadata of its field, and metadata can come from a file or a body that
//! anybody wrote. So its texts are types and names and nothing else, and the expressions of a domain compute and nothing
//! else, before any of them becomes a part of a statement.

mod expression;
mod matching;
mod tokens;

use std::collections::HashSet;

use rapidbyte_wire::name::shown;

pub(crate) use expression::{problem_of_check, problem_of_default, with_escapes};
use tokens::{Token, Tokens, take_mark, take_modifiers, take_name, take_tokens, tokens};

use crate::builtin;
use crate::ident::check_name;
use crate::model::{self, CATALOG, Column, Kind, MAX_PARTS, PgType};
use crate::types;

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

#[cfg(test)]
mod tests;

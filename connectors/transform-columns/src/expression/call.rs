//! Functions: their names, their arguments, the types of their results.

use super::build::{case, cast, in_common, not};
use super::kind::Kind;
use super::literal;
use super::tree::{Call, Node, Typed};

/// The functions by their names; `coalesce` is none of them, because it may leave arguments out.
const NAMES: [(&str, Call); 25] = [
    ("abs", Call::Abs),
    ("btrim", Call::Trim),
    ("ceil", Call::Ceil),
    ("ceiling", Call::Ceil),
    ("char_length", Call::Length),
    ("character_length", Call::Length),
    ("concat", Call::Concat),
    ("floor", Call::Floor),
    ("greatest", Call::Greatest),
    ("least", Call::Least),
    ("left", Call::Left),
    ("length", Call::Length),
    ("lower", Call::Lower),
    ("ltrim", Call::TrimStart),
    ("nullif", Call::NullIf),
    ("replace", Call::Replace),
    ("right", Call::Right),
    ("round", Call::Round),
    ("rtrim", Call::TrimEnd),
    ("split_part", Call::SplitPart),
    ("starts_with", Call::StartsWith),
    ("substr", Call::Substring),
    ("substring", Call::Substring),
    ("trim", Call::Trim),
    ("upper", Call::Upper),
];

/// The function does not exist: names the nearest one, or all.
pub fn unknown(name: &str) -> String {
    let names = NAMES.iter().map(|(name, _)| *name).chain(["coalesce"]);
    match crate::columns::nearest(name, names.clone()) {
        Some(near) => format!("the function {name} does not exist; did you mean {near}?"),
        None => {
            let mut names: Vec<&str> = names.collect();
            names.sort_unstable();
            format!(
                "the function {name} does not exist; the functions are {}",
                names.join(", ")
            )
        }
    }
}

/// The call of the function of a name.
pub fn named(name: &str, arguments: Vec<Typed>) -> Result<Typed, String> {
    if name == "coalesce" {
        return coalesce(arguments);
    }
    let call = NAMES.iter().find(|(known, _)| *known == name);
    let (_, call) = call.ok_or_else(|| unknown(name))?;
    typed(*call, arguments).map_err(|reason| format!("{name}: {reason}"))
}

/// The first argument that is not NULL.
pub fn coalesce(arguments: Vec<Typed>) -> Result<Typed, String> {
    let arguments = in_common(arguments)?;
    let first = arguments.first().ok_or("coalesce needs an argument")?;
    Ok(Typed {
        kind: first.kind,
        is_nullable: arguments.iter().all(|argument| argument.is_nullable),
        node: Node::Coalesce(arguments),
    })
}

/// A call whose arguments fit.
pub fn typed(call: Call, arguments: Vec<Typed>) -> Result<Typed, String> {
    let any_null = arguments.iter().any(|argument| argument.is_nullable);
    let (kind, arguments) = match call {
        Call::Greatest | Call::Least => {
            let arguments = in_common(arguments)?;
            let first = arguments.first().ok_or("needs an argument")?;
            let (kind, all_null) = (first.kind, arguments.iter().all(|one| one.is_nullable));
            return Ok(with(call, kind, all_null, arguments));
        }
        Call::NullIf => {
            let [_, _] = arguments.as_slice() else {
                return Err("takes two arguments".into());
            };
            let arguments = in_common(arguments)?;
            return Ok(with(call, arguments[0].kind, true, arguments));
        }
        Call::Concat if arguments.is_empty() => return Err("needs an argument".into()),
        Call::Concat => {
            let texts = arguments.into_iter().map(|one| match one.kind {
                Kind::Bool => letter(one),
                _ => cast(one, Kind::Text),
            });
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            return Ok(with(call, Kind::Text, false, texts));
        }
        Call::Abs | Call::Ceil | Call::Floor => {
            let [number] = one_of(arguments, "one number")?;
            let kind = match (call, number.kind) {
                (Call::Abs, kind) if kind.is_number() => kind,
                // 9.9 is rounded to 10: one digit more.
                (_, Kind::Decimal(precision, scale)) => {
                    Kind::Decimal((precision - scale + 1).min(super::kind::MAX_DIGITS), 0)
                }
                (_, kind) if kind.is_number() => Kind::Float8,
                (_, kind) => return Err(format!("takes a number, and this is {kind}")),
            };
            let number = match (call, kind) {
                (Call::Abs, _) | (_, Kind::Decimal(..)) => number,
                (_, kind) => cast(number, kind)?,
            };
            (kind, vec![number])
        }
        Call::Round => return round(arguments),
        Call::Length => (Kind::Int4, of_kinds(arguments, &[Kind::Text], 1)?),
        Call::Lower | Call::Upper => (Kind::Text, of_kinds(arguments, &[Kind::Text], 1)?),
        Call::Join => (Kind::Text, of_kinds(arguments, &[Kind::Text; 2], 2)?),
        Call::Trim | Call::TrimEnd | Call::TrimStart => {
            (Kind::Text, of_kinds(arguments, &[Kind::Text; 2], 1)?)
        }
        Call::Left | Call::Right => (
            Kind::Text,
            of_kinds(arguments, &[Kind::Text, Kind::Int4], 2)?,
        ),
        Call::Replace => (Kind::Text, of_kinds(arguments, &[Kind::Text; 3], 3)?),
        Call::SplitPart => {
            let kinds = [Kind::Text, Kind::Text, Kind::Int4];
            (Kind::Text, of_kinds(arguments, &kinds, 3)?)
        }
        Call::StartsWith => (Kind::Bool, of_kinds(arguments, &[Kind::Text; 2], 2)?),
        Call::Substring => {
            let kinds = [Kind::Text, Kind::Int4, Kind::Int4];
            (Kind::Text, of_kinds(arguments, &kinds, 2)?)
        }
    };
    Ok(with(call, kind, any_null, arguments))
}

/// A boolean as concat writes it.
fn letter(one: Typed) -> Result<Typed, String> {
    let branches = vec![
        (one.clone(), literal::text("t")),
        (not(one), literal::text("f")),
    ];
    case(branches, None)
}

fn with(call: Call, kind: Kind, is_nullable: bool, arguments: Vec<Typed>) -> Typed {
    Typed {
        kind,
        is_nullable,
        node: Node::Call(call, arguments),
    }
}

/// `round(numeric, digits)`, `round(numeric)`, `round(double precision)`.
fn round(mut arguments: Vec<Typed>) -> Result<Typed, String> {
    let digits = match arguments.len() {
        1 => None,
        2 => arguments.pop(),
        _ => return Err("takes a number, and the digits behind the point".into()),
    };
    let number = arguments.remove(0);
    let kind = match (number.kind, &digits) {
        (Kind::Decimal(precision, scale), _) => {
            let wanted = match &digits {
                Some(digits) => constant_digits(digits)?,
                None => 0,
            };
            let scale = wanted.min(scale);
            let whole = precision - number.kind.digits().1;
            Kind::Decimal((whole + scale + 1).min(super::kind::MAX_DIGITS), scale)
        }
        (kind, None) if kind.is_number() => Kind::Float8,
        (kind, Some(_)) if kind.is_number() => {
            return Err(format!(
                "takes numeric with digits, and this is {kind}: cast it"
            ));
        }
        (kind, _) => return Err(format!("takes a number, and this is {kind}")),
    };
    let is_nullable = number.is_nullable;
    let number = match kind {
        Kind::Float8 => cast(number, kind)?,
        _ => number,
    };
    Ok(with(Call::Round, kind, is_nullable, vec![number]))
}

/// Digits that are known before the run, because the type of the result has them.
fn constant_digits(digits: &Typed) -> Result<u8, String> {
    let value = match &digits.node {
        Node::Constant(cells) if digits.kind.is_integer() => cells.ints()(0),
        _ => None,
    };
    let value = value.and_then(|value| u8::try_from(value).ok());
    value.ok_or_else(|| "the digits must be written as a number from 0 to 38".into())
}

fn one_of<const N: usize>(arguments: Vec<Typed>, what: &str) -> Result<[Typed; N], String> {
    arguments.try_into().map_err(|_| format!("takes {what}"))
}

/// Checks arguments against these types. The first `least` arguments are required. An integer may be smaller. A text
/// constant, or NULL, may become any of the types.
fn of_kinds(arguments: Vec<Typed>, kinds: &[Kind], least: usize) -> Result<Vec<Typed>, String> {
    if !(least..=kinds.len()).contains(&arguments.len()) {
        let kinds = kinds.iter().map(ToString::to_string).collect::<Vec<_>>();
        let optional = if least < kinds.len() { " at most" } else { "" };
        return Err(format!("takes{optional} ({})", kinds.join(", ")));
    }
    let fitting = arguments.into_iter().zip(kinds).map(|(argument, kind)| {
        let is_open = literal::is_null(&argument)
            || *kind != Kind::Text && literal::written(&argument).is_some();
        let is_smaller = *kind == Kind::Int4 && argument.kind == Kind::Int2;
        match argument.kind == *kind || is_open || is_smaller {
            true => cast(argument, *kind),
            false => Err(format!(
                "takes {kind}, and this is {}: cast it",
                argument.kind
            )),
        }
    });
    fitting.collect()
}

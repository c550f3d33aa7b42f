//! Makes trees whose types fit.

use rapidbyte_sdk::prelude::*;

use super::kind::{Kind, MAX_DIGITS};
use super::rows::Rows;
use super::tree::{Arithmetic, Compare, Node, Typed};
use super::{compute, literal};

/// An expression as one of another type. A constant is cast at once.
///
/// # Errors
/// The cast does not exist, or the constant is not a value of the type.
pub fn cast(typed: Typed, kind: Kind) -> Result<Typed, String> {
    if typed.kind == kind {
        return Ok(typed);
    }
    if literal::is_null(&typed) {
        return Ok(literal::null(kind));
    }
    if !exists(typed.kind, kind) {
        return Err(format!("{} cannot be cast to {kind}", typed.kind));
    }
    let is_constant = matches!(typed.node, Node::Constant(_));
    let mut made = Typed {
        kind,
        is_nullable: typed.is_nullable,
        node: Node::Cast(Box::new(typed)),
    };
    if is_constant {
        let nothing = RecordBatch::new_empty(Schema::empty().into());
        let rows = Rows {
            batch: &nothing,
            wanted: None,
        };
        let value = compute::cells(&made, rows).map_err(|misfit| misfit.reason)?;
        made.node = Node::Constant(value);
    }
    Ok(made)
}

/// Whether a cast from one type to another exists.
fn exists(from: Kind, to: Kind) -> bool {
    match (from, to) {
        (_, Kind::Text) | (Kind::Text, _) => true,
        (Kind::Bool, Kind::Int4) | (Kind::Int4, Kind::Bool) => true,
        (Kind::Date, Kind::Timestamp) | (Kind::Timestamp, Kind::Date) => true,
        (from, to) => from.is_number() && to.is_number(),
    }
}

/// A node that never gives NULL.
pub fn known(kind: Kind, node: Node) -> Typed {
    Typed {
        kind,
        is_nullable: false,
        node,
    }
}

pub fn not(inner: Typed) -> Typed {
    Typed {
        kind: Kind::Bool,
        is_nullable: inner.is_nullable,
        node: Node::Not(Box::new(inner)),
    }
}

pub fn negated_if(negated: bool, inner: Typed) -> Typed {
    match negated {
        true => not(inner),
        false => inner,
    }
}

/// A number with the other sign.
pub fn negated(inner: Typed) -> Typed {
    Typed {
        kind: inner.kind,
        is_nullable: inner.is_nullable,
        node: Node::Negate(Box::new(inner)),
    }
}

pub fn logical(
    node: impl FnOnce(Box<Typed>, Box<Typed>) -> Node,
    left: Typed,
    right: Typed,
) -> Typed {
    Typed {
        kind: Kind::Bool,
        is_nullable: left.is_nullable || right.is_nullable,
        node: node(Box::new(left), Box::new(right)),
    }
}

/// An expression that a condition can be.
pub fn boolean(typed: Typed) -> Result<Typed, String> {
    if literal::is_null(&typed) {
        return Ok(literal::null(Kind::Bool));
    }
    match typed.kind {
        Kind::Bool => Ok(typed),
        other => Err(format!("a condition must be boolean, and this is {other}")),
    }
}

/// Gives all of them one type.
pub fn in_common(all: Vec<Typed>) -> Result<Vec<Typed>, String> {
    let mut kind: Option<Kind> = None;
    for typed in all.iter().filter(|typed| !literal::is_open(typed)) {
        kind = Some(match kind {
            Some(kind) => kind.common(typed.kind)?,
            None => typed.kind,
        });
    }
    let kind = kind.unwrap_or(Kind::Text);
    all.into_iter().map(|typed| cast(typed, kind)).collect()
}

fn both(left: Typed, right: Typed) -> Result<(Box<Typed>, Box<Typed>), String> {
    let mut both = in_common(vec![left, right])?.into_iter();
    let (left, right) = (both.next(), both.next());
    let pair = left.zip(right).ok_or("two sides")?;
    Ok((Box::new(pair.0), Box::new(pair.1)))
}

pub fn compare(how: Compare, left: Typed, right: Typed) -> Result<Typed, String> {
    let (left, right) = both(left, right)?;
    Ok(Typed {
        kind: Kind::Bool,
        is_nullable: left.is_nullable || right.is_nullable,
        node: Node::Compare(how, left, right),
    })
}

pub fn distinct(left: Typed, right: Typed) -> Result<Typed, String> {
    let (left, right) = both(left, right)?;
    Ok(known(Kind::Bool, Node::Distinct(left, right)))
}

pub fn case(branches: Vec<(Typed, Typed)>, rest: Option<Typed>) -> Result<Typed, String> {
    let (conditions, mut results): (Vec<Typed>, Vec<Typed>) = branches.into_iter().unzip();
    let has_rest = rest.is_some();
    results.extend(rest);
    let mut results = in_common(results)?;
    let kind = results.first().map_or(Kind::Text, |first| first.kind);
    let is_nullable = !has_rest || results.iter().any(|result| result.is_nullable);
    let rest = match has_rest {
        true => results.pop().map(Box::new),
        false => None,
    };
    Ok(Typed {
        kind,
        is_nullable,
        node: Node::Case(conditions.into_iter().zip(results).collect(), rest),
    })
}

/// The type of a result and of both sides before it, by PostgreSQL's rules.
pub fn arithmetic(operation: Arithmetic, left: Typed, right: Typed) -> Result<Typed, String> {
    let days = |typed: Typed| cast(typed, Kind::Int4);
    let (kind, left, right) = match (left.kind, operation, right.kind) {
        (Kind::Date, Arithmetic::Add | Arithmetic::Subtract, Kind::Int2 | Kind::Int4) => {
            (Kind::Date, left, days(right)?)
        }
        (Kind::Int2 | Kind::Int4, Arithmetic::Add, Kind::Date) => (Kind::Date, days(left)?, right),
        (Kind::Date, Arithmetic::Subtract, Kind::Date) => (Kind::Int4, left, right),
        _ => {
            let (left, right) = match (literal::is_open(&left), literal::is_open(&right)) {
                (true, false) => (cast(left, right.kind)?, right),
                (false, true) => {
                    let kind = left.kind;
                    (left, cast(right, kind)?)
                }
                _ => (left, right),
            };
            let (a, b) = (left.kind, right.kind);
            if !a.is_number() || !b.is_number() {
                return Err(format!("{a} and {b} are not numbers"));
            }
            if a.is_integer() && b.is_integer() {
                let kind = a.common(b)?;
                (kind, cast(left, kind)?, cast(right, kind)?)
            } else if a.is_float() || b.is_float() {
                let kind = a.common(b)?;
                if operation == Arithmetic::Remainder {
                    return Err(format!("{kind} has no remainder"));
                }
                (kind, cast(left, kind)?, cast(right, kind)?)
            } else {
                let kind = of_decimals(operation, a.digits(), b.digits())?;
                let decimal = |typed: Typed| {
                    let (precision, scale) = typed.kind.digits();
                    cast(typed, Kind::Decimal(precision, scale))
                };
                (kind, decimal(left)?, decimal(right)?)
            }
        }
    };
    Ok(Typed {
        kind,
        is_nullable: left.is_nullable || right.is_nullable,
        node: Node::Arithmetic(operation, Box::new(left), Box::new(right)),
    })
}

/// The result keeps every digit.
fn of_decimals(
    operation: Arithmetic,
    (p1, s1): (u8, u8),
    (p2, s2): (u8, u8),
) -> Result<Kind, String> {
    let scale = s1.max(s2);
    let whole = (p1 - s1).max(p2 - s2);
    let (precision, scale) = match operation {
        Arithmetic::Add | Arithmetic::Subtract => (whole + scale + 1, scale),
        Arithmetic::Multiply => (p1 + p2, s1 + s2),
        Arithmetic::Remainder => (whole + scale, scale),
        Arithmetic::Divide => {
            return Err(
                "numeric values are not divided, because PostgreSQL chooses the digits of each result: cast one side to \
                 double precision"
                    .into(),
            );
        }
    };
    if scale > MAX_DIGITS {
        return Err(format!("the result has more than {MAX_DIGITS} digits"));
    }
    // A larger value stops the run at its row.
    Ok(Kind::Decimal(precision.min(MAX_DIGITS), scale))
}

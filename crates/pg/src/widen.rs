//! Types that hold all values of another: what a column may become so that nothing in it changes.
//!
//! | from | to | stored rows |
//! | --- | --- | --- |
//! | `varchar(n)` | `varchar(m)` with m > n, `varchar`, `text` | stay |
//! | `varbit(n)` | `varbit(m)` with m > n, `varbit` | stay |
//! | `numeric(p,s)` | `numeric(q,s)` with q > p, `numeric` | stay |
//! | `numeric(p,s)` | `numeric(q,t)` with t > s and q − t ≥ p − s | are written anew |
//! | `timestamp(p)`, `timestamptz(p)`, `time(p)`, `timetz(p)` | the same type with more digits | stay |
//! | `interval(p)`, `interval` with fewer fields | `interval` | are written anew |
//! | `smallint` | `integer`, `bigint`, `numeric` with enough digits | are written anew |
//! | `integer` | `bigint`, `numeric` with enough digits | are written anew |
//! | `bigint` | `numeric` with enough digits | are written anew |
//! | `smallint` | `real`, `double precision` | are written anew |
//! | `integer`, `real` | `double precision` | are written anew |
//! | an enum | the same enum with more labels | stay |
//!
//! `ALTER TABLE` in the PostgreSQL manual says when a table is written anew.

use crate::builtin::{self, Builtin, numeric_typmod};
use crate::ident::{qualified, quote_literal};
use crate::model::{Column, Kind, PgType};
use crate::types;

/// How a column is widened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widening {
    /// The stored rows stay as they are.
    InPlace,
    /// The server writes the whole table anew.
    Rewrite,
}

/// Whether `to` holds all values of `from`, which does not hold all of `to`. `None` if not, or if nobody knows.
///
/// A domain is not widened, because its owner chose its limits.
pub fn widening(from: &Column, to: &Column) -> Option<Widening> {
    let is_domain = |column: &Column| matches!(column.ty.kind, Kind::Domain { .. });
    if is_domain(from) || is_domain(to) {
        return None;
    }
    let is = |ty: &PgType, builtin: Builtin| ty.oid == builtin.oid;
    let (old, new) = (&from.ty, &to.ty);
    // Their modifier is a length.
    if is(old, builtin::VARCHAR) || is(old, builtin::VARBIT) {
        let has_limit = from.typmod >= 0;
        let is_longer = has_limit && (to.typmod < 0 || to.typmod > from.typmod);
        let is_text = is(old, builtin::VARCHAR) && is(new, builtin::TEXT);
        let holds = old.oid == new.oid && is_longer || is_text && has_limit;
        return holds.then_some(Widening::InPlace);
    }
    if old.oid == new.oid {
        let modifier = types::modifier(old)?;
        let holds = |from, to| to < 0 || (modifier.fits)(from, to).is_ok();
        if !holds(from.typmod, to.typmod) || holds(to.typmod, from.typmod) {
            return None;
        }
        let scale = |typmod| numeric_typmod(typmod).map(|(_, scale)| scale);
        let has_more_digits = [
            builtin::TIMESTAMP,
            builtin::TIMESTAMPTZ,
            builtin::TIME,
            builtin::TIMETZ,
        ];
        let stays = match is(old, builtin::NUMERIC) {
            true => scale(to.typmod).is_none_or(|to| scale(from.typmod) == Some(to)),
            false => has_more_digits.iter().any(|ty| is(old, *ty)),
        };
        return Some(match stays {
            true => Widening::InPlace,
            false => Widening::Rewrite,
        });
    }
    const INTEGERS: [(Builtin, i32); 3] =
        [(builtin::INT2, 5), (builtin::INT4, 10), (builtin::INT8, 19)];
    let rank = |ty: &PgType| INTEGERS.iter().position(|(integer, _)| is(ty, *integer));
    let holds = match (rank(old), rank(new)) {
        (Some(old), Some(new)) => old < new,
        (Some(old), None) if is(new, builtin::NUMERIC) => {
            let digits = numeric_typmod(to.typmod).map(|(p, s)| i32::from(p) - i32::from(s));
            digits.is_none_or(|digits| digits >= INTEGERS[old].1)
        }
        // Their mantissas have 24 and 53 bits.
        (Some(0), None) if is(new, builtin::FLOAT4) => true,
        (Some(0 | 1), None) => is(new, builtin::FLOAT8),
        _ => is(old, builtin::FLOAT4) && is(new, builtin::FLOAT8),
    };
    holds.then_some(Widening::Rewrite)
}

/// The statements that add the labels of `from`'s enum which `to`'s lacks, each beside the label that it follows;
/// and `to` with them. Nothing if they are neither enums nor arrays of enums, or none is missing.
pub fn missing_labels(from: &Column, to: &Column) -> Option<(Vec<String>, Column)> {
    let mut column = to.clone();
    let statements = add_labels(&from.ty, &mut column.ty)?;
    (!statements.is_empty()).then_some((statements, column))
}

/// The labels of `to`, an enum or an array of an enum, that `from` does not have.
pub fn other_labels(from: &Column, to: &Column) -> Vec<String> {
    fn labels(ty: &PgType) -> &[String] {
        match &ty.kind {
            Kind::Array { element } => labels(element),
            Kind::Enum { labels } => labels,
            _ => &[],
        }
    }
    let known = labels(&from.ty);
    let others = labels(&to.ty).iter().filter(|label| !known.contains(label));
    others.cloned().collect()
}

fn add_labels(from: &PgType, to: &mut PgType) -> Option<Vec<String>> {
    let name = qualified(&to.schema, &to.name);
    match (&from.kind, &mut to.kind) {
        (Kind::Array { element: from }, Kind::Array { element: to }) => add_labels(from, to),
        (Kind::Enum { labels: given }, Kind::Enum { labels }) => {
            Some(labels_beside(&name, given, labels))
        }
        _ => None,
    }
}

/// Adds to `labels` what is `given`.
fn labels_beside(ty: &str, given: &[String], labels: &mut Vec<String>) -> Vec<String> {
    let mut statements = Vec::new();
    for (place, label) in given.iter().enumerate() {
        if labels.contains(label) {
            continue;
        }
        let before = place.checked_sub(1).and_then(|before| given.get(before));
        let beside = match before {
            Some(before) => format!(" AFTER {}", quote_literal(before)),
            None => match labels.first() {
                Some(first) => format!(" BEFORE {}", quote_literal(first)),
                None => String::new(),
            },
        };
        statements.push(format!(
            "ALTER TYPE {ty} ADD VALUE IF NOT EXISTS {}{beside}",
            quote_literal(label)
        ));
        let at = before.and_then(|before| labels.iter().position(|other| other == before));
        labels.insert(at.map_or(0, |at| at + 1), label.clone());
    }
    statements
}

/// True if the labels that both enums have are in the same order, or if one of the types is not an enum.
pub fn is_same_order(from: &Column, to: &Column) -> bool {
    let (Kind::Enum { labels: from }, Kind::Enum { labels: to }) = (&from.ty.kind, &to.ty.kind)
    else {
        return true;
    };
    let there = from.iter().filter(|label| to.contains(label));
    there.eq(to.iter().filter(|label| from.contains(label)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(builtin: Builtin, typmod: i32) -> Column {
        Column {
            typmod,
            ..builtin.column("c")
        }
    }

    #[test]
    fn only_a_type_that_holds_every_value_is_wider() {
        let numeric =
            |precision: i32, scale: i32| column(builtin::NUMERIC, ((precision << 16) | scale) + 4);
        let unlimited = || column(builtin::NUMERIC, -1);
        let varchar = |n: i32| column(builtin::VARCHAR, n + 4);
        let of = |builtin| column(builtin, -1);
        let (stays, anew) = (Some(Widening::InPlace), Some(Widening::Rewrite));
        for (from, to, expected) in [
            (varchar(3), varchar(4), stays),
            (varchar(3), of(builtin::TEXT), stays),
            (varchar(4), varchar(3), None),
            (varchar(3), varchar(3), None),
            (of(builtin::TEXT), varchar(3), None),
            (of(builtin::VARCHAR), of(builtin::TEXT), None),
            (numeric(5, 2), numeric(7, 2), stays),
            (numeric(5, 2), unlimited(), stays),
            (numeric(5, 2), numeric(7, 4), anew),
            (numeric(5, 2), numeric(6, 4), None),
            (numeric(5, 2), numeric(5, 2), None),
            (unlimited(), numeric(5, 2), None),
            (
                column(builtin::TIMESTAMP, 0),
                column(builtin::TIMESTAMP, 3),
                stays,
            ),
            (column(builtin::TIMESTAMP, 0), of(builtin::TIMESTAMP), stays),
            (of(builtin::TIMESTAMP), column(builtin::TIMESTAMP, 0), None),
            (of(builtin::TIMESTAMP), column(builtin::TIMESTAMP, 6), None),
            (of(builtin::INT2), of(builtin::INT8), anew),
            (of(builtin::INT4), of(builtin::INT2), None),
            (of(builtin::INT4), numeric(10, 0), anew),
            (of(builtin::INT4), numeric(9, 0), None),
            (of(builtin::INT8), unlimited(), anew),
            (of(builtin::INT2), of(builtin::FLOAT4), anew),
            (of(builtin::INT2), of(builtin::FLOAT8), anew),
            (of(builtin::INT4), of(builtin::FLOAT8), anew),
            (of(builtin::INT4), of(builtin::FLOAT4), None),
            (of(builtin::INT8), of(builtin::FLOAT8), None),
            (of(builtin::FLOAT8), of(builtin::INT4), None),
            (of(builtin::FLOAT4), of(builtin::FLOAT8), anew),
            (of(builtin::FLOAT8), of(builtin::FLOAT4), None),
            (of(builtin::INT4), of(builtin::TEXT), None),
            (of(builtin::DATE), of(builtin::TIMESTAMP), None),
        ] {
            assert_eq!(widening(&from, &to), expected, "{from:?} {to:?}");
        }
    }

    #[test]
    fn labels_are_added_where_they_stand() {
        let of = |labels: &[&str]| {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            let ty = PgType {
                oid: 20_000,
                schema: "s".into(),
                name: "e".into(),
                kind: Kind::Enum { labels },
            };
            Column::new("c", ty, "s.e")
        };
        let (statements, after) =
            missing_labels(&of(&["x", "a", "y", "b", "z"]), &of(&["a", "b"])).unwrap();
        assert_eq!(
            statements,
            [
                "ALTER TYPE s.e ADD VALUE IF NOT EXISTS 'x' BEFORE 'a'",
                "ALTER TYPE s.e ADD VALUE IF NOT EXISTS 'y' AFTER 'a'",
                "ALTER TYPE s.e ADD VALUE IF NOT EXISTS 'z' AFTER 'b'",
            ]
        );
        assert_eq!(after.ty.kind, of(&["x", "a", "y", "b", "z"]).ty.kind);
        assert_eq!(missing_labels(&of(&["a"]), &of(&["b", "a"])), None);
        assert!(is_same_order(&of(&["a", "b", "c"]), &of(&["a", "c"])));
        assert!(!is_same_order(&of(&["a", "b", "c"]), &of(&["c", "a"])));
        let array = |labels: &[&str]| {
            let mut column = of(labels);
            let element = Box::new(column.ty.clone());
            column.ty.kind = Kind::Array { element };
            column
        };
        let (statements, after) = missing_labels(&array(&["a", "b"]), &array(&["a"])).unwrap();
        assert_eq!(
            statements,
            ["ALTER TYPE s.e ADD VALUE IF NOT EXISTS 'b' AFTER 'a'"]
        );
        assert_eq!(after, array(&["a", "b"]));
        assert_eq!(missing_labels(&array(&["a"]), &of(&["b"])), None);
    }
}

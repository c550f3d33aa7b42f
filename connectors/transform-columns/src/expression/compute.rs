//! Evaluates a tree for the rows of a batch, node by node.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use rapidbyte_formats::Texts;
use rapidbyte_sdk::prelude::*;

use super::cells::{Cells, Values};
use super::kind::Kind;
use super::rows::{Misfit, Rows};
use super::tree::{Arithmetic, Call, Compare, Node, Typed};
use super::{cast, like, text};

/// The values of an expression.
pub fn cells(typed: &Typed, rows: Rows<'_>) -> Result<Cells, Misfit> {
    match &typed.node {
        Node::Constant(cells) => Ok(cells.clone()),
        Node::Column(index) => column(*index, rows),
        Node::TextOfColumn(index) => text_of_column(*index, rows),
        Node::Numeric(index) => {
            let schema = rows.batch.schema_ref();
            let array = rows.batch.column(*index);
            let digits = typed.kind.digits();
            let decoded = crate::native::decode_numeric(schema.field(*index), digits, array, rows)?;
            crate::columns::cells(&decoded)
        }
        Node::OneOf(value, list) => one_of(value, list, rows),
        Node::Cast(inner) => cast::apply(&cells(inner, rows)?, inner.kind, typed.kind, rows),
        Node::Negate(inner) => negate(&cells(inner, rows)?, typed.kind, rows),
        Node::Arithmetic(operation, left, right) => {
            let (a, b) = (cells(left, rows)?, cells(right, rows)?);
            arithmetic(
                *operation,
                typed.kind,
                (left.kind, &a),
                (right.kind, &b),
                rows,
            )
        }
        Node::Compare(how, left, right) => {
            let (a, b) = (cells(left, rows)?, cells(right, rows)?);
            let order = order(&a, &b);
            rows.bools(both(&a, &b), |row| {
                Ok(order(row).map(|order| holds(*how, order)))
            })
        }
        Node::Distinct(left, right) => {
            let (a, b) = (cells(left, rows)?, cells(right, rows)?);
            let order = order(&a, &b);
            rows.bools(both(&a, &b), |row| {
                Ok(Some(match (a.is_null(row), b.is_null(row)) {
                    (false, false) => order(row) != Some(Ordering::Equal),
                    (a, b) => a != b,
                }))
            })
        }
        Node::And(left, right) => logical(left, right, rows, false),
        Node::Or(left, right) => logical(left, right, rows, true),
        Node::Not(inner) => {
            let inner = cells(inner, rows)?;
            let value = inner.bools();
            rows.bools(inner.is_constant, |row| Ok(value(row).map(|value| !value)))
        }
        Node::IsNull(inner) => {
            let inner = cells(inner, rows)?;
            rows.bools(inner.is_constant, |row| Ok(Some(inner.is_null(row))))
        }
        Node::IsNullColumn(index) => {
            let column = rows.batch.column(*index);
            rows.bools(false, |row| Ok(Some(column.is_null(row))))
        }
        Node::Like {
            text: value,
            pattern,
            folds_case,
        } => {
            let (a, b) = (cells(value, rows)?, cells(pattern, rows)?);
            let (value, pattern) = (a.texts(), b.texts());
            rows.bools(both(&a, &b), |row| match (value(row), pattern(row)) {
                (Some(value), Some(pattern)) if *folds_case => {
                    like::matches(&text::lower(value), &text::lower(pattern)).map(Some)
                }
                (Some(value), Some(pattern)) => like::matches(value, pattern).map(Some),
                _ => Ok(None),
            })
        }
        Node::Case(branches, rest) => case(branches, rest.as_deref(), typed.kind, rows),
        Node::Coalesce(arguments) => coalesce(arguments, typed.kind, rows),
        Node::Call(call, arguments) => {
            let all = arguments.iter().map(|argument| cells(argument, rows));
            let all = all.collect::<Result<Vec<_>, _>>()?;
            called(*call, typed.kind, arguments, &all, rows)
        }
    }
}

/// True if the value is equal to one of the list; NULL if it is equal to none and one of them is NULL.
fn one_of(value: &Typed, list: &[Typed], rows: Rows<'_>) -> Result<Cells, Misfit> {
    let value = cells(value, rows)?;
    let list = list.iter().map(|one| cells(one, rows));
    let list = list.collect::<Result<Vec<_>, _>>()?;
    let constant = value.is_constant && list.iter().all(|one| one.is_constant);
    let orders: Vec<_> = list.iter().map(|one| order(&value, one)).collect();
    rows.bools(constant, |row| {
        let mut found = Some(false);
        for order in &orders {
            match order(row) {
                Some(Ordering::Equal) => return Ok(Some(true)),
                Some(_) => {}
                None => found = None,
            }
        }
        Ok(found)
    })
}

fn both(a: &Cells, b: &Cells) -> bool {
    a.is_constant && b.is_constant
}

fn column(index: usize, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let schema = rows.batch.schema_ref();
    let column = crate::native::decode(schema.field(index), rows.batch.column(index), rows)?;
    crate::columns::cells(&column)
}

fn text_of_column(index: usize, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let field = &rows.batch.schema_ref().fields()[index];
    let column = crate::native::decode(field, rows.batch.column(index), rows)?;
    let is_padded = crate::native::text_of(field) == Some(crate::native::Texts::Padded);
    let portable = crate::native::portable(field).map_or_else(|| Arc::clone(field), Arc::new);
    let texts = Texts::new(&portable, &column);
    let texts = texts.map_err(|error| Misfit {
        row: 0,
        reason: error.to_string(),
    })?;
    rows.texts(false, |row, text| {
        if texts.is_null(row) {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        texts
            .write(row, &mut bytes)
            .map_err(|error| error.to_string())?;
        let written = String::from_utf8_lossy(&bytes);
        text.push_str(match portable.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 if is_padded => written.trim_end_matches(' '),
            DataType::Time32(_) | DataType::Time64(_) if written.contains('.') => {
                written.trim_end_matches('0')
            }
            _ => &written,
        });
        Ok(true)
    })
}

fn negate(inner: &Cells, kind: Kind, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let constant = inner.is_constant;
    if kind.is_float() {
        let value = inner.floats();
        return rows.floats(constant, |row| Ok(value(row).map(|value| -value)));
    }
    if let Kind::Decimal(..) = kind {
        let value = inner.decimals();
        return rows.decimals(constant, |row| Ok(value(row).map(|value| -value)));
    }
    let value = inner.ints();
    rows.ints(constant, |row| {
        let Some(value) = value(row) else {
            return Ok(None);
        };
        let negated = value
            .checked_neg()
            .ok_or_else(|| cast::out_of_range(kind))?;
        cast::within(negated, kind).map(Some)
    })
}

const BY_ZERO: &str = "division by zero";

fn arithmetic(
    operation: Arithmetic,
    kind: Kind,
    (left, a): (Kind, &Cells),
    (right, b): (Kind, &Cells),
    rows: Rows<'_>,
) -> Result<Cells, Misfit> {
    let constant = both(a, b);
    match kind {
        Kind::Float4 | Kind::Float8 => {
            let (a, b) = (a.floats(), b.floats());
            rows.floats(constant, |row| match (a(row), b(row)) {
                (Some(a), Some(b)) => of_floats(operation, a, b, kind).map(Some),
                _ => Ok(None),
            })
        }
        Kind::Decimal(precision, scale) => {
            let (a, b) = (a.decimals(), b.decimals());
            let scales = (left.digits().1, right.digits().1);
            rows.decimals(constant, |row| match (a(row), b(row)) {
                (Some(a), Some(b)) => {
                    let units = of_decimals(operation, (a, b), scales, scale)?;
                    let units = cast::fits(units, precision);
                    units.ok_or_else(|| cast::out_of_range(kind)).map(Some)
                }
                _ => Ok(None),
            })
        }
        _ => {
            let (a, b) = (a.ints(), b.ints());
            rows.ints(constant, |row| match (a(row), b(row)) {
                (Some(a), Some(b)) => of_integers(operation, a, b, kind).map(Some),
                _ => Ok(None),
            })
        }
    }
}

fn of_integers(operation: Arithmetic, a: i64, b: i64, kind: Kind) -> Result<i64, String> {
    let value = match operation {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide | Arithmetic::Remainder if b == 0 => return Err(BY_ZERO.into()),
        Arithmetic::Divide => a.checked_div(b),
        // The remainder of the smallest integer by -1 is 0.
        Arithmetic::Remainder => Some(a.wrapping_rem(b)),
    };
    let value = value.ok_or_else(|| cast::out_of_range(kind))?;
    match kind {
        // Days that 32 bits hold.
        Kind::Date => cast::within(value, Kind::Int4).map_err(|_| cast::out_of_range(kind)),
        _ => cast::within(value, kind),
    }
}

fn of_floats(operation: Arithmetic, a: f64, b: f64, kind: Kind) -> Result<f64, String> {
    let value = match operation {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide if b == 0.0 && !a.is_nan() => return Err(BY_ZERO.into()),
        Arithmetic::Divide => a / b,
        Arithmetic::Remainder => return Err(format!("{kind} has no remainder")),
    };
    let value = match kind {
        Kind::Float4 => f64::from(value as f32),
        _ => value,
    };
    let overflows = value.is_infinite() && a.is_finite() && b.is_finite();
    let is_product = matches!(operation, Arithmetic::Multiply | Arithmetic::Divide);
    let vanishes = is_product && value == 0.0 && a != 0.0 && b.is_finite() && b != 0.0;
    match overflows || vanishes {
        true => Err(cast::out_of_range(kind)),
        false => Ok(value),
    }
}

fn of_decimals(
    operation: Arithmetic,
    (a, b): (i128, i128),
    (left, right): (u8, u8),
    scale: u8,
) -> Result<Option<i128>, String> {
    if operation == Arithmetic::Multiply {
        return Ok(a.checked_mul(b));
    }
    if operation == Arithmetic::Remainder && b == 0 {
        return Err(BY_ZERO.into());
    }
    let sides = cast::rescaled(a, left, scale).zip(cast::rescaled(b, right, scale));
    Ok(sides.and_then(|(a, b)| match operation {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Remainder => a.checked_rem(b),
        // `parse` refuses a division of decimals.
        Arithmetic::Multiply | Arithmetic::Divide => None,
    }))
}

/// How the values of two sides of one type are ordered; none where one is NULL. NaN is equal to itself and greater than
/// all other numbers; texts are ordered by their bytes.
fn order<'a>(a: &'a Cells, b: &'a Cells) -> Box<dyn Fn(usize) -> Option<Ordering> + 'a> {
    match (&a.values, &b.values) {
        (Values::Bool(_), Values::Bool(_)) => {
            let (a, b) = (a.bools(), b.bools());
            Box::new(move |row| Some(a(row)?.cmp(&b(row)?)))
        }
        (Values::Int(_), Values::Int(_)) => {
            let (a, b) = (a.ints(), b.ints());
            Box::new(move |row| Some(a(row)?.cmp(&b(row)?)))
        }
        (Values::Float(_), Values::Float(_)) => {
            let (a, b) = (a.floats(), b.floats());
            Box::new(move |row| Some(of_two_floats(a(row)?, b(row)?)))
        }
        (Values::Decimal(_), Values::Decimal(_)) => {
            let (a, b) = (a.decimals(), b.decimals());
            Box::new(move |row| Some(a(row)?.cmp(&b(row)?)))
        }
        (Values::Text(_), Values::Text(_)) => {
            let (a, b) = (a.texts(), b.texts());
            Box::new(move |row| Some(a(row)?.cmp(b(row)?)))
        }
        // `parse` gives both sides one type.
        _ => Box::new(|_| None),
    }
}

fn of_two_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn holds(how: Compare, order: Ordering) -> bool {
    match how {
        Compare::Equal => order.is_eq(),
        Compare::NotEqual => order.is_ne(),
        Compare::Less => order.is_lt(),
        Compare::LessOrEqual => order.is_le(),
        Compare::Greater => order.is_gt(),
        Compare::GreaterOrEqual => order.is_ge(),
    }
}

/// `AND` and `OR` of three values. The right side is computed where the left one does not decide, so that it may rely on
/// the left one.
fn logical(left: &Typed, right: &Typed, rows: Rows<'_>, deciding: bool) -> Result<Cells, Misfit> {
    let a = cells(left, rows)?;
    let value = a.bools();
    let wanted = |row: usize| rows.is_wanted(row) && value(row) != Some(deciding);
    let wanted = BooleanBuffer::collect_bool(rows.batch.num_rows(), wanted);
    // A constant of no rows must be computed too.
    let right = match rows.batch.num_rows() {
        0 => cells(right, rows)?,
        _ => cells(right, rows.only(&wanted))?,
    };
    let other = right.bools();
    rows.bools(both(&a, &right), |row| {
        Ok(match (value(row), other(row)) {
            (Some(a), _) if a == deciding => Some(deciding),
            (_, Some(b)) if b == deciding => Some(deciding),
            (Some(_), Some(_)) => Some(!deciding),
            _ => None,
        })
    })
}

/// Of each row the value of one of several expressions.
struct Chosen {
    parts: Vec<Cells>,
    /// The part of each row.
    of: Vec<Option<usize>>,
}

impl Chosen {
    fn into_cells(self, kind: Kind, rows: Rows<'_>) -> Result<Cells, Misfit> {
        let Self { parts, of } = self;
        let at = |row: usize| of.get(row).copied().flatten().map(|part| &parts[part]);
        match kind {
            Kind::Bool => rows.bools(false, |row| Ok(at(row).and_then(|part| part.bools()(row)))),
            Kind::Float4 | Kind::Float8 => {
                rows.floats(false, |row| Ok(at(row).and_then(|part| part.floats()(row))))
            }
            Kind::Decimal(..) => rows.decimals(false, |row| {
                Ok(at(row).and_then(|part| part.decimals()(row)))
            }),
            Kind::Text => rows.texts(false, |row, text| {
                let Some(part) = at(row) else {
                    return Ok(false);
                };
                let value = part.texts();
                let value = value(row);
                text.push_str(value.unwrap_or_default());
                Ok(value.is_some())
            }),
            _ => rows.ints(false, |row| Ok(at(row).and_then(|part| part.ints()(row)))),
        }
    }
}

fn case(
    branches: &[(Typed, Typed)],
    rest: Option<&Typed>,
    kind: Kind,
    rows: Rows<'_>,
) -> Result<Cells, Misfit> {
    let count = rows.batch.num_rows();
    let mut chosen = Chosen {
        parts: Vec::new(),
        of: vec![None; count],
    };
    let mut left = BooleanBuffer::collect_bool(count, |row| rows.is_wanted(row));
    for (condition, result) in branches {
        let condition = cells(condition, rows.only(&left))?;
        let value = condition.bools();
        let taken = |row| left.value(row) && value(row) == Some(true);
        let taken = BooleanBuffer::collect_bool(count, taken);
        chosen.parts.push(cells(result, rows.only(&taken))?);
        let part = Some(chosen.parts.len() - 1);
        taken.set_indices().for_each(|row| chosen.of[row] = part);
        left = BooleanBuffer::collect_bool(count, |row| left.value(row) && !taken.value(row));
    }
    if let Some(rest) = rest {
        chosen.parts.push(cells(rest, rows.only(&left))?);
        let part = Some(chosen.parts.len() - 1);
        left.set_indices().for_each(|row| chosen.of[row] = part);
    }
    chosen.into_cells(kind, rows)
}

fn coalesce(arguments: &[Typed], kind: Kind, rows: Rows<'_>) -> Result<Cells, Misfit> {
    let count = rows.batch.num_rows();
    let mut chosen = Chosen {
        parts: Vec::new(),
        of: vec![None; count],
    };
    let mut left = BooleanBuffer::collect_bool(count, |row| rows.is_wanted(row));
    for argument in arguments {
        let part = cells(argument, rows.only(&left))?;
        let taken = |row| left.value(row) && !part.is_null(row);
        let taken = BooleanBuffer::collect_bool(count, taken);
        let number = Some(chosen.parts.len());
        taken.set_indices().for_each(|row| chosen.of[row] = number);
        left = BooleanBuffer::collect_bool(count, |row| left.value(row) && !taken.value(row));
        chosen.parts.push(part);
        if left.count_set_bits() == 0 {
            break;
        }
    }
    chosen.into_cells(kind, rows)
}

fn called(
    call: Call,
    kind: Kind,
    arguments: &[Typed],
    all: &[Cells],
    rows: Rows<'_>,
) -> Result<Cells, Misfit> {
    let constant = all.iter().all(|one| one.is_constant);
    let first = &all[0];
    match call {
        Call::Greatest | Call::Least => best(call, kind, all, rows),
        Call::NullIf => {
            let order = order(first, &all[1]);
            let of = (0..rows.batch.num_rows().max(1))
                .map(|row| (order(row) != Some(Ordering::Equal)).then_some(0));
            let chosen = Chosen {
                of: of.collect(),
                parts: vec![first.clone()],
            };
            chosen.into_cells(kind, rows)
        }
        Call::Abs | Call::Ceil | Call::Floor | Call::Round => {
            rounded(call, kind, arguments[0].kind, first, rows)
        }
        Call::Length => {
            let value = first.texts();
            rows.ints(constant, |row| Ok(value(row).map(text::characters)))
        }
        Call::StartsWith => {
            let (value, start) = (first.texts(), all[1].texts());
            rows.bools(constant, |row| {
                Ok(value(row)
                    .zip(start(row))
                    .map(|(value, start)| value.starts_with(start)))
            })
        }
        _ => rows.texts(constant, |row, out| written(call, all, row, out)),
    }
}

/// The greatest or the least of the values that are not NULL.
fn best(call: Call, kind: Kind, all: &[Cells], rows: Rows<'_>) -> Result<Cells, Misfit> {
    let wanted = match call {
        Call::Greatest => Ordering::Greater,
        _ => Ordering::Less,
    };
    let mut of = vec![None; rows.batch.num_rows()];
    for (index, part) in all.iter().enumerate() {
        for (row, best) in of.iter_mut().enumerate() {
            if part.is_null(row) {
                continue;
            }
            let is_better = match *best {
                Some(before) => order(part, &all[before])(row) == Some(wanted),
                None => true,
            };
            if is_better {
                *best = Some(index);
            }
        }
    }
    let parts = all.to_vec();
    Chosen { parts, of }.into_cells(kind, rows)
}

fn rounded(
    call: Call,
    kind: Kind,
    from: Kind,
    number: &Cells,
    rows: Rows<'_>,
) -> Result<Cells, Misfit> {
    let constant = number.is_constant;
    match (from, kind) {
        (Kind::Decimal(_, before), Kind::Decimal(precision, scale)) => {
            let value = number.decimals();
            rows.decimals(constant, |row| {
                let Some(units) = value(row) else {
                    return Ok(None);
                };
                let step = 10_i128.pow((before - scale).into());
                let units = match call {
                    Call::Abs => Some(units.abs()),
                    Call::Floor => Some(units.div_euclid(step)),
                    Call::Ceil => Some(-(-units).div_euclid(step)),
                    _ => cast::rescaled(units, before, scale),
                };
                let units = cast::fits(units, precision);
                units.ok_or_else(|| cast::out_of_range(kind)).map(Some)
            })
        }
        (_, Kind::Float4 | Kind::Float8) => {
            let value = number.floats();
            let of = |value: f64| match call {
                Call::Abs => value.abs(),
                Call::Floor => value.floor(),
                Call::Ceil => value.ceil(),
                _ => value.round_ties_even(),
            };
            rows.floats(constant, |row| Ok(value(row).map(of)))
        }
        _ => {
            let value = number.ints();
            rows.ints(constant, |row| {
                let Some(value) = value(row) else {
                    return Ok(None);
                };
                let size = value
                    .checked_abs()
                    .ok_or_else(|| cast::out_of_range(kind))?;
                cast::within(size, kind).map(Some)
            })
        }
    }
}

/// Appends the text that a function gives; false for NULL.
fn written(call: Call, all: &[Cells], row: usize, out: &mut String) -> Result<bool, String> {
    if call == Call::Concat {
        for part in all {
            out.push_str(part.texts()(row).unwrap_or_default());
        }
        return Ok(true);
    }
    if all.iter().any(|argument| argument.is_null(row)) {
        return Ok(false);
    }
    let (one, two, three) = (all.first(), all.get(1), all.get(2));
    let text_at = |cells: Option<&'_ Cells>, or: &str| -> String {
        let found = cells.and_then(|cells| cells.texts()(row).map(str::to_owned));
        found.unwrap_or_else(|| or.to_owned())
    };
    let number_at = |cells: Option<&Cells>| cells.and_then(|cells| cells.ints()(row));
    let one = one.map(Cells::texts);
    let value = one.as_ref().and_then(|one| one(row)).unwrap_or_default();
    match call {
        Call::Join => {
            out.push_str(value);
            out.push_str(&text_at(two, ""));
        }
        Call::Lower => out.push_str(&text::lower(value)),
        Call::Upper => out.push_str(&text::upper(value)),
        Call::Trim => out.push_str(text::trim(value, &text_at(two, " "), true, true)),
        Call::TrimStart => out.push_str(text::trim(value, &text_at(two, " "), true, false)),
        Call::TrimEnd => out.push_str(text::trim(value, &text_at(two, " "), false, true)),
        Call::Left => out.push_str(text::left(value, number_at(two).unwrap_or_default())),
        Call::Right => out.push_str(text::right(value, number_at(two).unwrap_or_default())),
        Call::Replace => text::replace(value, &text_at(two, ""), &text_at(three, ""), out),
        Call::SplitPart => {
            let number = number_at(three).unwrap_or_default();
            out.push_str(text::split_part(value, &text_at(two, ""), number)?);
        }
        _ => {
            let from = number_at(two).unwrap_or(1);
            out.push_str(text::substring(value, from, number_at(three))?);
        }
    }
    Ok(true)
}

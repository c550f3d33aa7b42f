//! The columns that order an incremental read, and the conditions that they make.
//!
//! The server compares all values, by the default operators of the column's own type and in its own collation. A string
//! is only ever cast back to the type that wrote it. This module only compares whether two neighbouring rows are equal,
//! see [`Key::is_same`].

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::{self, Builtin};
use rapidbyte_pg::catalog::oid_array;
use rapidbyte_pg::ident::{qualified, quote_ident, quote_literal};
use rapidbyte_pg_client::{Client, Rows};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::saved::unreadable;
use serde::Deserialize;

use crate::ask::query;
use crate::cursor::{Field, shown};
use crate::relation::{self, Relation};

/// Names of columns in a hint.
const MAX_NAMED: usize = 20;
/// PostgreSQL takes more in an ORDER BY, and nobody needs more.
const MAX_FIELDS: usize = 16;

/// How values of a type behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Whole numbers from here on.
    Integer(i64),
    Numeric,
    Float,
    /// `date`, `timestamp`, `timestamptz`.
    Moment,
    Text,
    /// `uuid` and `time`: ordered, and nothing can be subtracted (a time would wrap at midnight).
    Plain,
}

/// One column of the order.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub field: Field,
    class: Class,
    /// The column's name in SQL, qualified by its table. In an ORDER BY, a bare name would mean the query's output of
    /// that name, such as our text of the value.
    column: String,
    /// The type's name in SQL, without a modifier: nothing is cut or rounded.
    ty: String,
    pub is_nullable: bool,
}

/// The rule that orders a column.
#[derive(Debug, Deserialize)]
pub(crate) struct Collation {
    relation: u32,
    column: String,
    is_deterministic: bool,
    /// Its name and version.
    rule: String,
}

/// The database defines the default collation. The columns of `pg_database` that name it depend on the server's
/// version.
const COLLATIONS: &str = "\
SELECT pg_catalog.json_build_object('relation', a.attrelid::int8, 'column', a.attname,
    'is_deterministic', co.collisdeterministic,
    'rule', pg_catalog.concat_ws(' ',
        CASE WHEN co.collprovider = 'd' THEN pg_catalog.concat_ws(' ', 'default', d.datcollate,
            pg_catalog.to_jsonb(d) ->> 'daticulocale', pg_catalog.to_jsonb(d) ->> 'datlocale')
        ELSE n.nspname || '.' || co.collname END,
        pg_catalog.pg_collation_actual_version(co.oid)))::text
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
JOIN pg_catalog.pg_namespace n ON n.oid = co.collnamespace
JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
WHERE a.attrelid = ANY ($RELATIONS)
  AND a.attnum > 0 AND NOT a.attisdropped AND $WANTED";

/// Whether any collation calls different texts equal: one text, `true` or `false`.
pub(crate) const HAS_VAGUE: &str = "SELECT EXISTS (
    SELECT FROM pg_catalog.pg_collation co WHERE NOT co.collisdeterministic)::text";

/// The query for the collations of the columns of these relations (an array in SQL). Without `all`, only for collations
/// that treat different strings as equal.
pub(crate) fn collations(relations: &str, all: bool) -> String {
    let wanted = if all {
        "true"
    } else {
        "NOT co.collisdeterministic"
    };
    COLLATIONS
        .replace("$RELATIONS", relations)
        .replace("$WANTED", wanted)
}

/// The answer to [`collations`].
pub(crate) fn parse_collations(rows: &Rows) -> Result<Vec<Collation>> {
    let parse = |text: &str| {
        serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("a row of the catalog: {error}")))
    };
    relation::texts(rows)?.into_iter().map(parse).collect()
}

fn class(column: &Column) -> Option<(&'static Builtin, Class)> {
    let (base, _) = column.stripped();
    let ty = builtin::by_oid(base.oid)?;
    let class = match *ty {
        builtin::INT2 => Class::Integer(i16::MIN.into()),
        builtin::INT4 => Class::Integer(i32::MIN.into()),
        builtin::INT8 => Class::Integer(i64::MIN),
        builtin::NUMERIC => Class::Numeric,
        builtin::FLOAT4 | builtin::FLOAT8 => Class::Float,
        builtin::DATE | builtin::TIMESTAMP | builtin::TIMESTAMPTZ => Class::Moment,
        builtin::TEXT | builtin::VARCHAR | builtin::BPCHAR => Class::Text,
        builtin::UUID | builtin::TIME => Class::Plain,
        _ => return None,
    };
    Some((ty, class))
}

/// The columns that could order a read. `collations` need hold only those that call different
/// texts equal.
pub(crate) fn candidates(
    relation: u32,
    columns: &[Column],
    collations: &[Collation],
) -> Vec<String> {
    let is_vague = |column: &Column| {
        collations
            .iter()
            .any(|c| c.relation == relation && c.column == column.name && !c.is_deterministic)
    };
    columns
        .iter()
        .filter(|column| class(column).is_some() && !is_vague(column))
        .map(|column| column.name.clone())
        .collect()
}

/// The keys of a read. Errors: `no_cursor_field`, `unknown_cursor_field`, `unusable_cursor_field`,
/// `duplicate_cursor_field`, `too_many_cursor_fields`.
pub(crate) fn keys(
    client: &mut Client,
    relation: &Relation,
    columns: &[Column],
    wanted: &[String],
) -> Result<Vec<Key>> {
    let collations = query(client, &collations(&oid_array(&[relation.oid]), true))?;
    let collations = parse_collations(&collations)?;
    let hint = || usable(&candidates(relation.oid, columns, &collations));
    if wanted.is_empty() {
        let text = "cursor_field does not name a column that orders the rows";
        return Err(Error::config("no_cursor_field", text)
            .hint(format!("set cursor_field to a column; {}", hint())));
    }
    if wanted.len() > MAX_FIELDS {
        let text = format!(
            "{} columns, but at most {MAX_FIELDS} are allowed",
            wanted.len()
        );
        return Err(Error::config("too_many_cursor_fields", text)
            .hint("name only the columns that identify a row: a time and a key suffice"));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(wanted.len());
    for name in wanted {
        let Some(column) = columns.iter().find(|column| column.name == *name) else {
            let text = format!("the column {name:?} does not exist");
            return Err(Error::config("unknown_cursor_field", text)
                .hint(hint())
                .in_column(name));
        };
        if keys.iter().any(|key| key.field.name == *name) {
            let text = format!("the column {name:?} is named twice");
            return Err(Error::config("duplicate_cursor_field", text)
                .hint("name it once")
                .in_column(name));
        }
        let collation = collations.iter().find(|c| c.column == *name);
        let key = Key::new(relation, column, collation).map_err(|why| {
            Error::config("unusable_cursor_field", why)
                .hint(hint())
                .in_column(name)
        })?;
        keys.push(key);
    }
    Ok(keys)
}

/// Says which columns can order a read.
fn usable(names: &[String]) -> String {
    if names.is_empty() {
        return "it has no column that orders rows; use sync_mode: full_refresh, or for a table \
             change_detection: xmin"
            .to_owned();
    }
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    let names: Vec<&str> = names.iter().map(|n| &**n).take(MAX_NAMED).collect();
    format!("these columns can: {}{more}", names.join(", "))
}

impl Key {
    /// Gives why not, if the column cannot order rows.
    fn new(
        relation: &Relation,
        column: &Column,
        collation: Option<&Collation>,
    ) -> Result<Self, String> {
        let Some((ty, class)) = class(column) else {
            let ty = &column.type_text;
            return Err(format!("a column of type {ty} cannot order rows"));
        };
        if let Some(Collation { rule, .. }) = collation.filter(|c| !c.is_deterministic) {
            return Err(format!(
                "its collation {rule} treats different strings as equal"
            ));
        }
        Ok(Self {
            field: Field {
                name: column.name.clone(),
                ty: ty.name.into(),
                collation: collation.map(|collation| collation.rule.clone()),
            },
            class,
            column: format!("{}.{}", relation.sql(), quote_ident(&column.name)),
            ty: qualified("pg_catalog", ty.name),
            is_nullable: !column.not_null,
        })
    }

    /// The value as text; [`Key::literal`] turns the text back into the value.
    pub fn text(&self) -> String {
        format!("{}::pg_catalog.text", self.column)
    }

    /// A text as a value of the type.
    pub fn literal(&self, text: &str) -> String {
        // Neither a statement nor a value can contain a NUL.
        format!("{}::{}", quote_literal(&text.replace('\0', "")), self.ty)
    }

    /// Whether two texts are of equal values. They are the same text, but for numbers of other
    /// scales and the zero with a sign; the blanks of a `bpchar` are gone in its text.
    pub fn is_same(&self, a: &str, b: &str) -> bool {
        match self.class {
            Class::Numeric => without_scale(a) == without_scale(b),
            Class::Float => without_sign(a) == without_sign(b),
            _ => a == b,
        }
    }

    /// Whether no value of the type is above this one, of those that are not mere numbers.
    pub fn is_last(&self, text: &str) -> bool {
        match self.class {
            Class::Numeric | Class::Float => text == "NaN",
            Class::Moment => text == "infinity",
            _ => false,
        }
    }

    /// The type of a lag, if values of this type can have one.
    fn lag_type(&self) -> Option<&'static str> {
        Some(match self.class {
            Class::Integer(_) => "int8",
            Class::Numeric => "numeric",
            Class::Float => "float8",
            Class::Moment => "interval",
            Class::Text | Class::Plain => return None,
        })
    }

    /// The value of `text` minus `lag`.
    pub fn below(&self, text: &str, lag: &str) -> String {
        let (value, lag) = (self.literal(text), quote_literal(lag));
        match self.class {
            // Below the smallest number of the type is the smallest.
            Class::Integer(min) => format!(
                "GREATEST({value}::pg_catalog.numeric - {lag}::pg_catalog.numeric, {min})::{}",
                self.ty
            ),
            Class::Float => format!("({value}::pg_catalog.float8 - {lag}::pg_catalog.float8)"),
            // A date less some hours is the day before, and that whole day.
            Class::Moment => format!("({value} - {lag}::pg_catalog.\"interval\")::{}", self.ty),
            _ => format!("({value} - {lag}::pg_catalog.numeric)"),
        }
    }
}

/// Refuses a lag that the first column's type does not take. Errors: `invalid_lag`.
pub(crate) fn check_lag(client: &mut Client, key: &Key, lag: &str) -> Result<()> {
    let name = &key.field.name;
    let invalid = |text: String, hint: &str| {
        Err(Error::config("invalid_lag", text)
            .hint(hint)
            .in_column(name))
    };
    let Some(ty) = key.lag_type() else {
        let text = format!("a {} does not support subtraction", key.field.ty);
        return invalid(
            text,
            "remove the lag, or order by a number, a date or a timestamp",
        );
    };
    let (form, example) = match ty {
        "interval" => ("a duration with its unit", "5 minutes"),
        "int8" => ("a whole number", "1000"),
        _ => ("a number", "1000"),
    };
    let is_number = lag.trim().parse::<f64>().is_ok();
    let is_formed = match ty {
        // 5 would be five seconds to the server.
        "interval" => !is_number,
        _ => is_number,
    };
    let wrong = format!("{lag:?} is not {form}");
    let hint = format!("write, for example, lag: {example}");
    if !is_formed || lag.contains('\0') {
        return invalid(wrong, &hint);
    }
    let literal = quote_literal(lag);
    let sql = format!("SELECT ({literal}::pg_catalog.{ty} >= '0'::pg_catalog.{ty})::text");
    match query(client, &sql) {
        Ok(answer) if answer.single()? == "true" => Ok(()),
        Ok(_) => invalid(format!("{lag:?} is negative"), &hint),
        Err(error) if error.code.starts_with("pg_22") => invalid(wrong, &hint),
        Err(error) => Err(error),
    }
}

/// Refuses values that the columns' types do not read. Errors: `invalid_cursor_initial`.
pub(crate) fn check_initial(client: &mut Client, keys: &[Key], values: &[String]) -> Result<()> {
    if values.len() != keys.len() {
        let (values, keys) = (values.len(), keys.len());
        let text = format!("{values} values for {keys} columns");
        return Err(Error::config("invalid_cursor_initial", text)
            .hint("give one value for each cursor field, in their order"));
    }
    for (key, value) in keys.iter().zip(values) {
        let Some(reason) = why_not_read(client, key, value)? else {
            continue;
        };
        let text = format!("{value:?} is not a valid {}: {reason}", key.field.ty);
        return Err(Error::config("invalid_cursor_initial", text)
            .hint(
                "write it as the server prints it, such as 2026-11-21 10:11:12+00; a time \
                 without a zone is UTC",
            )
            .in_column(&key.field.name));
    }
    Ok(())
}

/// Refuses values of a cursor that the columns' types do not read: somebody edited it. Errors:
/// `cursor_unreadable`.
pub(crate) fn check_values(client: &mut Client, keys: &[Key], values: &[String]) -> Result<()> {
    for (key, value) in keys.iter().zip(values) {
        if let Some(reason) = why_not_read(client, key, value)? {
            let (name, value, ty) = (&key.field.name, shown(value), &key.field.ty);
            let text = format!("the cursor's value {value:?} is not of type {ty}: {reason}");
            return Err(unreadable(text).in_column(name));
        }
    }
    Ok(())
}

/// Why a type does not read a value. The transaction that is open has failed then.
fn why_not_read(client: &mut Client, key: &Key, value: &str) -> Result<Option<String>> {
    match query(client, &format!("SELECT ({}) IS NULL", key.literal(value))) {
        Ok(_) if value.contains('\0') => Ok(Some("a NUL character is in it".to_owned())),
        Ok(_) => Ok(None),
        Err(error) if error.code.starts_with("pg_22") => Ok(Some(error.message)),
        Err(error) => Err(error),
    }
}

/// `a, b`.
fn columns(keys: &[Key]) -> String {
    let columns: Vec<&str> = keys.iter().map(|key| &*key.column).collect();
    columns.join(", ")
}

/// ` ORDER BY a, b`.
pub(crate) fn order_by(keys: &[Key]) -> String {
    format!(" ORDER BY {}", columns(keys))
}

/// Rows that lack a value; nothing when no row can.
pub(crate) fn is_null(keys: &[Key]) -> Option<String> {
    let nullable = keys.iter().filter(|key| key.is_nullable);
    let conditions: Vec<_> = nullable
        .map(|key| format!("{} IS NULL", key.column))
        .collect();
    (!conditions.is_empty()).then(|| conditions.join(" OR "))
}

/// Rows that have all values.
fn is_not_null(keys: &[Key]) -> Vec<String> {
    let nullable = keys.iter().filter(|key| key.is_nullable);
    nullable
        .map(|key| format!("{} IS NOT NULL", key.column))
        .collect()
}

/// Rows whose values compare so with these, as a whole: the first column decides, then the next.
fn compare(keys: &[Key], operator: &str, values: &[String]) -> String {
    let literals: Vec<_> = keys.iter().zip(values).map(|(k, v)| k.literal(v)).collect();
    match (keys, &literals[..]) {
        ([key], [value]) => format!("{} {operator} {value}", key.column),
        _ => format!("({}) {operator} ({})", columns(keys), literals.join(", ")),
    }
}

/// Rows with all values, from or behind these.
pub(crate) fn from(keys: &[Key], bound: Option<(&str, &[String])>) -> Option<String> {
    let mut conditions = is_not_null(keys);
    if let Some((operator, values)) = bound {
        conditions.push(compare(keys, operator, values));
    }
    (!conditions.is_empty()).then(|| conditions.join(" AND "))
}

/// Rows with all values, none of them above these.
pub(crate) fn not_above(keys: &[Key], values: &[String]) -> String {
    let mut conditions = is_not_null(keys);
    conditions.push(compare(keys, "<=", values));
    conditions.join(" AND ")
}

/// Rows up to these values whose first one is at most `lag` below, and none below `initial`.
pub(crate) fn up_to(
    keys: &[Key],
    values: &[String],
    lag: Option<&str>,
    initial: Option<&[String]>,
) -> Option<String> {
    let (key, value) = (keys.first()?, values.first()?);
    let low = match lag {
        Some(lag) => key.below(value, lag),
        None => key.literal(value),
    };
    let mut conditions = is_not_null(keys);
    conditions.push(format!("{} >= {low}", key.column));
    conditions.push(compare(keys, "<=", values));
    if let Some(initial) = initial {
        conditions.push(compare(keys, ">=", initial));
    }
    Some(conditions.join(" AND "))
}

/// `1.50` and `1.5` are one number; `NaN` and `Infinity` have no point.
fn without_scale(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// The negative zero equals the other.
fn without_sign(text: &str) -> &str {
    if text == "-0" { "0" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_known_by_their_texts() {
        let key = |class| Key {
            field: Field {
                name: "k".into(),
                ty: "x".into(),
                collation: None,
            },
            class,
            column: "k".into(),
            ty: "x".into(),
            is_nullable: false,
        };
        for (a, b) in [
            ("1.50", "1.5"),
            ("100", "100.00"),
            ("0.00", "0"),
            ("NaN", "NaN"),
        ] {
            assert!(key(Class::Numeric).is_same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("100", "1"),
            ("0.10", "0.01"),
            ("Infinity", "-Infinity"),
            ("10", "100"),
        ] {
            assert!(!key(Class::Numeric).is_same(a, b), "{a} {b}");
        }
        assert!(key(Class::Float).is_same("-0", "0"));
        assert!(!key(Class::Float).is_same("-1", "1"));
        assert!(!key(Class::Text).is_same("1.0", "1.00"));
    }
}

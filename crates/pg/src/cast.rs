//! Text that the server reads into a column of another type.
//!
//! A cast from text rounds, cuts and guesses silently: `'1.239'::numeric(4,2)` is 1.24,
//! `'2020-01-01 00:00:00+05'::timestamp` has lost its zone, `'5000000000'::xid` is 705032704, `'now'::date` is
//! today. So the statement checks each text together with its cast, and fails where the value would differ from
//! the text. One rule serves every type: a text that the value's own output repeats is accepted. Other texts
//! are accepted only in the spellings of this table, which lose nothing:
//!
//! | types | accepted spellings | refused, for example |
//! | --- | --- | --- |
//! | boolean, integers, numeric, uuid, bytea, json, bit, pg_lsn | all that the server reads | digits beyond modifiers |
//! | real, double precision | any decimal number equal to the value's shortest form | `16777217` as real |
//! | oid, xid, cid, xid8 | decimal digits, with leading zeros | `-1`, `5000000000` as xid |
//! | money | a number, with `$`, with `,` between thousands | `$1.005`, `1,00` |
//! | date | `YYYY-MM-DD`, `YYYY/MM/DD`, `YYYYMMDD`, midnight behind it, `BC` | `now`, a time of day, `-4712-01-01` |
//! | time, timetz | `HH:MM`, seconds, six digits, `AM`; timetz: an offset | a zone for time, a date |
//! | timestamp, timestamptz | date and time as above; timestamptz: an offset, `Z`, `UTC` | a zone for timestamp |
//! | interval | whole numbers with units, `HH:MM:SS`, ISO 8601; six digits of seconds | `0.0000001 s`, `1.5 years` |
//! | inet | all that the server reads, with four octets behind a colon or none | `1::.2`, `::1.0` |
//! | cidr | the same with a mask, and whole addresses | `192.168`, whose mask would come from its class |
//! | macaddr, macaddr8 | twelve or sixteen hexadecimal digits | `8:0:2b:1:2:3`, a macaddr as macaddr8 |
//! | geometric types | blanks | numbers of other spelling |
//! | ranges of integer and numeric | all that the server reads | |
//! | arrays | the spellings of the elements; character(n) as for a single value | `{"a "}` as character(3)[] |
//! | xml, tsvector, composites, types of extensions, others | the type's own output alone | |
//!
//! JSON has numbers and booleans of its own, so a string of digits may be a postal code. Strings from JSON
//! ([`Texts::Json`]) have fewer spellings: boolean, integers, real, double precision, oid, xid, cid, xid8 and date take
//! the type's own output alone, and numeric a number without an exponent, blanks, `+` and leading zeros.
//!
//! A number of an inferred column ([`Texts::Inferred`]) may be the -0 of a float, which numeric does not have.
//!
//! `reg*` values are read by name only: a number is what the source writes for an object that is gone, and means
//! another one here. Text into jsonb is not a cast: the encoder refuses repeated keys.
//!
//! Sources: PostgreSQL's manual, "Data Types" and "Date/Time Input"; `float8in`, `oidin`, `xidin`, `interval_in`.

use arrow_schema::Field;
use rapidbyte_wire::types::{is_json_strings, is_stored};

use crate::builtin::{
    self, BOOL, BPCHAR, CID, DATE, FLOAT4, FLOAT8, INT2, INT4, INT8, NUMERIC, OID, TIMESTAMP,
    TIMESTAMPTZ, XID, XID8, is_reg,
};
use crate::ident::qualified;
use crate::model::{Column, Kind, PgType};
use crate::types::{self, family::Spelling};

/// Stands before the column's place and the text in the server's error.
const MARK: &str = "\"rapidbyte:";
/// `regclass`: the only `reg*` type whose cast from text does not call its input function, and
/// does not know `-`.
const REGCLASS: u32 = 2205;

/// The SQL that reads one column's texts in two steps, so that each is cast once: a subquery casts them, and
/// what is around it checks the values.
pub struct Read {
    /// The cast, and the name that the subquery gives it; nothing where no check is needed.
    value: Option<String>,
    /// The value, an expression around [`source`]. It fails where the value would not be what the text says;
    /// [`refusal`] knows the error.
    pub expression: String,
}

/// Where texts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texts {
    /// From a format or a system whose values are texts, such as CSV.
    Plain,
    /// Strings from JSON, which has numbers and booleans beside them.
    Json,
    /// Values of an inferred column, which come as texts because the target's type has no other form.
    Inferred,
}

impl Texts {
    /// Those of a field.
    pub fn of(field: &Field) -> Self {
        if is_json_strings(field) {
            Self::Json
        } else if is_stored(field) {
            Self::Inferred
        } else {
            Self::Plain
        }
    }
}

/// Reads the column `{alias}.c{place}`, of type `text`, as the type of `column`. An error names `place` and the
/// value of `row`, an expression of an integer type.
pub fn read(alias: &str, row: &str, place: usize, column: &Column, texts: Texts) -> Read {
    let target = &column.type_text;
    let (ty, typmod) = column.stripped();
    let text = &format!("{alias}.c{place}");
    let cast = match ty.oid {
        REGCLASS => format!(
            "CASE {text} WHEN '-' THEN 0::pg_catalog.oid::pg_catalog.regclass::{target} ELSE \
             {text}::{target} END"
        ),
        _ => format!("{text}::{target}"),
    };
    let value = format!("{alias}.v{place}");
    let Some(condition) = condition(text, &value, ty, typmod, texts) else {
        return Read {
            value: None,
            expression: cast,
        };
    };
    // Not a number: the cast to one fails, whatever the column's type is.
    let refuse = format!(
        "('rapidbyte:{place}:' || ({row}) || ':' || \
         pg_catalog.left({text}, 100))::pg_catalog.numeric::pg_catalog.text::{target}"
    );
    // The check comes before the cast here, because the server would look for an object with this number as its name.
    if is_reg(ty.oid) {
        return Read {
            value: None,
            expression: format!(
                "CASE WHEN ({condition}) IS NOT FALSE THEN {cast} ELSE {refuse} END"
            ),
        };
    }
    Read {
        value: Some(format!("{cast} AS v{place}")),
        expression: format!("CASE WHEN ({condition}) IS NOT FALSE THEN {value} ELSE {refuse} END"),
    }
}

/// The source of a FROM clause: `from`, which names its rows `alias`, with the values that `reads` need.
pub fn source<'a>(alias: &str, from: &str, reads: impl IntoIterator<Item = &'a Read>) -> String {
    let values = reads.into_iter().filter_map(|read| read.value.as_deref());
    let values: Vec<&str> = values.collect();
    if values.is_empty() {
        return from.to_owned();
    }
    // OFFSET keeps the planner from putting the cast in each place that names its value.
    format!(
        "(SELECT {alias}.*, {} FROM {from} OFFSET 0) AS {alias}",
        values.join(", ")
    )
}

fn has_years(ty: &PgType) -> bool {
    [DATE, TIMESTAMP, TIMESTAMPTZ]
        .iter()
        .any(|builtin| builtin.oid == ty.oid)
}

/// True for a text that a column of dates or timestamps refuses for its year alone, and that a source with
/// this declared column reads. The year has a sign or is zero, as ISO 8601 and files write years before 1 and after
/// 9999: -4712 is 4713 BC. The server does not know a year 0, and takes the sign for the sign of a time zone.
pub fn is_astronomical(text: &str, column: &Column) -> bool {
    let (ty, _) = column.stripped();
    let text = text.trim_start();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let year = digits.split('-').next().unwrap_or_default();
    let is_number = !year.is_empty() && year.bytes().all(|byte| byte.is_ascii_digit());
    let has_sign = digits.len() < text.len();
    has_years(ty) && is_number && (has_sign || year.bytes().all(|byte| byte == b'0'))
}

/// A condition that holds if the value keeps everything that the text says; `None` if every accepted text does.
pub(crate) fn condition(
    text: &str,
    value: &str,
    ty: &PgType,
    typmod: i32,
    texts: Texts,
) -> Option<String> {
    if is_reg(ty.oid) {
        return Some(format!("{text} !~ '^[1-9][0-9]*$'"));
    }
    let modifier = modifier_condition(text, value, ty, typmod);
    let others: Vec<String> = match accepted(text, value, ty, texts) {
        // The output of such an array may repeat the number of a dropped object, so it proves nothing.
        Accepted::Also(condition) if is_array_of_reg(ty) => return Some(condition),
        // If the output repeats the text, the modifier has changed nothing.
        Accepted::Own => return Some(repeats(text, value, ty)),
        Accepted::Any => modifier.into_iter().collect(),
        Accepted::Also(condition) => [condition].into_iter().chain(modifier).collect(),
    };
    if others.is_empty() {
        return None;
    }
    // CASE keeps the order: a cast in the second condition may fail on what the first accepts.
    Some(format!(
        "CASE WHEN {} THEN true ELSE {} END",
        repeats(text, value, ty),
        others.join(" AND ")
    ))
}

fn is_array_of_reg(ty: &PgType) -> bool {
    matches!(&ty.kind, Kind::Array { element } if is_reg(element.stripped(-1).0.oid))
}

/// A condition that holds for the most frequent texts: those that the type itself writes.
fn repeats(text: &str, value: &str, ty: &PgType) -> String {
    match ty.oid == builtin::MONEY.oid {
        // The currency sign and the commas between thousands are left out.
        true => format!("pg_catalog.translate({value}::pg_catalog.text, '$,', '') = {text}"),
        false => format!("{value}::pg_catalog.text = {text}"),
    }
}

/// The elements of a `box[]` are separated by `;`, which `text[]` does not know.
fn has_own_separator(element: &PgType) -> bool {
    element.oid == builtin::BOX.oid
}

/// The texts of a type and those it is made of: [`Spelling`] with its condition written out.
enum Accepted {
    Any,
    Also(String),
    Own,
}

fn accepted(text: &str, value: &str, ty: &PgType, texts: Texts) -> Accepted {
    if let Kind::Enum { .. } = ty.kind {
        return Accepted::Any;
    }
    if let Kind::Range { subtype } = &ty.kind {
        return match builtin::by_oid(subtype.oid).copied() {
            Some(builtin::INT4 | builtin::INT8 | NUMERIC) => Accepted::Any,
            _ => Accepted::Own,
        };
    }
    if let Kind::Multirange { range } = &ty.kind {
        return match accepted(text, value, range, texts) {
            Accepted::Any => Accepted::Any,
            _ => Accepted::Own,
        };
    }
    // Its elements are cut where no check sees it.
    if has_inner_modifier(ty) {
        return Accepted::Own;
    }
    if let Kind::Array { element } = &ty.kind
        && !has_own_separator(element)
    {
        let (element, _) = element.stripped(-1);
        let name = qualified(&element.schema, &element.name);
        return match condition("e", &format!("e::{name}"), element, -1, texts) {
            // The elements are checked in the text of the array, before the server has read them.
            Some(each) => Accepted::Also(format!(
                "(SELECT pg_catalog.bool_and(({each}) IS NOT FALSE) FROM \
                 pg_catalog.unnest({text}::pg_catalog.text[]) AS e) IS NOT FALSE"
            )),
            None => Accepted::Any,
        };
    }
    let fewer = match texts {
        Texts::Plain => None,
        Texts::Json => json_spelling(ty),
        Texts::Inferred => inferred_spelling(ty),
    };
    match fewer.unwrap_or_else(|| types::spelling(ty)) {
        Spelling::Any => Accepted::Any,
        Spelling::Own => Accepted::Own,
        Spelling::Also(condition) => Accepted::Also(condition(text, value)),
        Spelling::Pattern(pattern) => {
            Accepted::Also(format!(r"{text} ~* '^\s*({})\s*$'", pattern()))
        }
    }
}

/// The spellings of a string from JSON, if they are fewer than those of other texts.
fn json_spelling(ty: &PgType) -> Option<Spelling> {
    let is_own = [
        BOOL, INT2, INT4, INT8, FLOAT4, FLOAT8, OID, XID, CID, XID8, DATE,
    ];
    match ty.oid {
        oid if oid == NUMERIC.oid => Some(Spelling::Also(|text, _| {
            // The sign of a zero would be lost. A modifier may add zeros behind the point.
            format!(r"{text} ~ '^-?(0|[1-9]\d*)(\.\d+)?$' AND {text} !~ '^-[0.]*$'")
        })),
        oid if is_own.iter().any(|own| own.oid == oid) => Some(Spelling::Own),
        _ => None,
    }
}

/// The spellings of an inferred value, if they are fewer than those of other texts.
fn inferred_spelling(ty: &PgType) -> Option<Spelling> {
    match ty.oid == NUMERIC.oid {
        true => Some(Spelling::Also(|text, _| {
            format!(r"{text} !~* '^\s*-[0.]+(e[-+]?\d+)?\s*$'")
        })),
        false => None,
    }
}

/// A condition that holds if the type's modifier cuts and rounds nothing of a text; `None` without a modifier.
fn modifier_condition(text: &str, value: &str, ty: &PgType, typmod: i32) -> Option<String> {
    if typmod < 0 {
        return None;
    }
    let (base, array) = match &ty.kind {
        Kind::Array { element } => (&**element, "[]"),
        _ => (ty, ""),
    };
    // Qualified, so that `bit` is not read as `bit(1)`.
    let whole = format!("{text}::{}{array}", qualified(&base.schema, &base.name));
    // Equal although they are written differently: 1.2 and 1.20, with and without blanks.
    let by_value = types::modifier(base).is_some_and(|modifier| modifier.by_value);
    Some(if base.oid == BPCHAR.oid && !array.is_empty() {
        // A single text is checked by the encoder: blanks at the end of a shorter one are refused, because the
        // padding hides them. Equality ignores them.
        let chars = typmod - types::text::HEADER;
        format!(
            "{value} = {whole} AND NOT EXISTS (SELECT FROM pg_catalog.unnest({text}::pg_catalog.text[]) AS e \
             WHERE pg_catalog.right(e, 1) = ' ' AND pg_catalog.char_length(e) <> {chars})"
        )
    } else if by_value {
        format!("{value} = {whole}")
    } else {
        format!("{value}::pg_catalog.text = {whole}::pg_catalog.text")
    })
}

/// A text that a [`read`] refused, from the server's error.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The column's place.
    pub place: usize,
    /// The value of the row's expression.
    pub row: u64,
    /// The text, cut to 100 characters.
    pub text: &'a str,
}

/// Reads the server's error to a [`read`]; nothing for other errors.
pub fn refusal(message: &str) -> Option<Refusal<'_>> {
    let (_, rest) = message.split_once(MARK)?;
    let (place, rest) = rest.split_once(':')?;
    let (row, text) = rest.split_once(':')?;
    Some(Refusal {
        place: place.parse().ok()?,
        row: row.parse().ok()?,
        text: text.strip_suffix('"').unwrap_or(text),
    })
}

/// True if parts of a type have modifiers that [`read`] does not see: the fields of a composite,
/// and domains below an array or a range.
pub(crate) fn has_inner_modifier(ty: &PgType) -> bool {
    let is_modified = |ty: &PgType, typmod: i32| {
        let (ty, typmod) = ty.stripped(typmod);
        typmod >= 0 || has_inner_modifier(ty)
    };
    match &ty.kind {
        Kind::Array { element } => is_modified(element, -1),
        Kind::Composite { fields } => fields.iter().any(|f| is_modified(&f.ty, f.typmod)),
        Kind::Range { subtype } => is_modified(subtype, -1),
        Kind::Multirange { range } => has_inner_modifier(range),
        Kind::Domain { base, .. } => has_inner_modifier(base),
        Kind::Base { .. } | Kind::Enum { .. } | Kind::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::{TEXT, to_numeric_typmod};

    #[test]
    fn the_server_message_about_a_refused_text_is_parsed() {
        let says = "invalid input syntax for type numeric: \"rapidbyte:12:34:a:\"b\"\"";
        let expected = Refusal {
            place: 12,
            row: 34,
            text: "a:\"b\"",
        };
        assert_eq!(refusal(says), Some(expected));
        assert_eq!(
            refusal("invalid input syntax for type numeric: \"1,2\""),
            None
        );
        assert_eq!(refusal("\"rapidbyte:x:1:y\""), None);
        assert_eq!(refusal("\"rapidbyte:1:x:y\""), None);
    }

    #[test]
    fn only_types_that_may_change_a_text_are_checked() {
        let column = |typmod| Column {
            typmod,
            type_text: "numeric(4,2)".into(),
            ..NUMERIC.column("n")
        };
        let as_it_is = read("u", "u.row", 0, &TEXT.column("n"), Texts::Plain);
        assert_eq!(as_it_is.expression, "u.c0::text");
        assert_eq!(source("u", "t AS u", [&as_it_is]), "t AS u");
        let cast = read("u", "u.row", 0, &column(-1), Texts::Plain);
        assert_eq!(cast.expression, "u.c0::numeric(4,2)");
        let checked = read(
            "u",
            "u.row",
            7,
            &column(to_numeric_typmod(4, 2)),
            Texts::Plain,
        );
        let sql = &checked.expression;
        let begin = "CASE WHEN (CASE WHEN u.v7::pg_catalog.text = u.c7 THEN true ELSE u.v7 = u.c7::pg_catalog.\"numeric\" END) IS NOT FALSE THEN";
        assert!(sql.starts_with(begin), "{sql}");
        assert!(sql.contains("'rapidbyte:7:' || (u.row) ||"), "{sql}");
        assert_eq!(
            source("u", "t AS u", [&cast, &checked]),
            "(SELECT u.*, u.c7::numeric(4,2) AS v7 FROM t AS u OFFSET 0) AS u"
        );
        assert!(is_reg(REGCLASS));
    }
}

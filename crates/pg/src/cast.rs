//! Text that the server reads into a column of another type.
//!
//! A cast that is written down is explicit, and an explicit cast rounds and cuts without a word:
//! `'1.239'::text::numeric(4,2)` is 1.24, `'101'::text::bit(2)` is 10. So where a type has a modifier
//! the value is compared with what the type without it makes of the text, and the statement fails
//! where they differ. `reg*` values are read by name only: a number is what the source writes for
//! an object that is gone, and means another one here.

use crate::builtin::{BPCHAR, CHAR, NUMERIC, TIME, TIMESTAMP, TIMESTAMPTZ, TIMETZ, is_reg};
use crate::ident::qualified;
use crate::model::{Column, Kind, PgType};

/// Stands before the column's place and the text in the server's error.
const MARK: &str = "\"rapidbyte:";
/// `regclass`: of the `reg*` types the only one whose cast from text is no call of its input
/// function, and does not know `-`.
const REGCLASS: u32 = 2205;

/// The SQL that reads `text`, an expression of type `text`, as the column's type. It fails where the
/// value would not be what the text says; [`refusal`] knows the error, which names `place`.
pub fn expression(text: &str, place: usize, column: &Column) -> String {
    let target = &column.type_text;
    let (ty, typmod) = column.stripped();
    let cast = match ty.oid {
        REGCLASS => format!(
            "CASE {text} WHEN '-' THEN 0::pg_catalog.oid::pg_catalog.regclass::{target} ELSE \
             {text}::{target} END"
        ),
        _ => format!("{text}::{target}"),
    };
    let Some(condition) = condition(text, ty, typmod, target) else {
        return cast;
    };
    // No number: the cast to one fails, whatever the column's type is.
    format!(
        "CASE WHEN ({condition}) IS NOT FALSE THEN {cast} ELSE ('rapidbyte:{place}:' || \
         pg_catalog.left({text}, 100))::pg_catalog.numeric::pg_catalog.text::{target} END"
    )
}

/// True for a text that the type holds as it is.
fn condition(text: &str, ty: &PgType, typmod: i32, target: &str) -> Option<String> {
    if is_reg(ty.oid) {
        return Some(format!("{text} !~ '^[1-9][0-9]*$'"));
    }
    if ty.oid == CHAR.oid {
        return Some(format!("{text}::{target}::pg_catalog.text = {text}"));
    }
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
    let by_value = [NUMERIC, BPCHAR, TIME, TIMETZ, TIMESTAMP, TIMESTAMPTZ];
    Some(if by_value.iter().any(|builtin| builtin.oid == base.oid) {
        format!("{text}::{target} = {whole}")
    } else {
        format!("{text}::{target}::pg_catalog.text = {whole}::pg_catalog.text")
    })
}

/// The place of the column and the text, if this is the server's error to an [`expression`].
pub fn refusal(message: &str) -> Option<(usize, &str)> {
    let (_, rest) = message.split_once(MARK)?;
    let (place, text) = rest.split_once(':')?;
    Some((place.parse().ok()?, text.strip_suffix('"').unwrap_or(text)))
}

/// True if parts of a type have modifiers that [`expression`] does not see: those of a composite's
/// fields, and of domains below an array or a range.
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
    fn what_the_server_says_to_a_refused_text_is_known() {
        let says = "invalid input syntax for type numeric: \"rapidbyte:12:a:\"b\"\"";
        assert_eq!(refusal(says), Some((12, "a:\"b\"")));
        assert_eq!(
            refusal("invalid input syntax for type numeric: \"1,2\""),
            None
        );
        assert_eq!(refusal("\"rapidbyte:x:y\""), None);
    }

    #[test]
    fn only_types_that_may_change_a_text_are_looked_at() {
        let column = |typmod| Column {
            typmod,
            type_text: "numeric(4,2)".into(),
            ..NUMERIC.column("n")
        };
        assert_eq!(expression("u.n", 0, &TEXT.column("n")), "u.n::text");
        assert_eq!(expression("u.n", 0, &column(-1)), "u.n::numeric(4,2)");
        let sql = expression("u.n", 7, &column(to_numeric_typmod(4, 2)));
        let begin = "CASE WHEN (u.n::numeric(4,2) = u.n::pg_catalog.\"numeric\") IS NOT FALSE";
        assert!(sql.starts_with(begin), "{sql}");
        assert!(sql.contains("rapidbyte:7:"), "{sql}");
        assert!(is_reg(REGCLASS));
    }
}

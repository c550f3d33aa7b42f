//! Which types read the values of a sample of texts: of CSV fields, and of JSON values.

use arrow_schema::{Field, TimeUnit};
use rapidbyte_wire::sampled::{Float, Integer, Narrowest, Unit};

use crate::spelling::is_plain_number;
use crate::text::{self, Reason, decimal, number, time};

/// A value of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sampled<'a> {
    /// A field of CSV.
    Text(&'a [u8]),
    /// A field of CSV that the operator has listed as true or false.
    Listed(&'a [u8]),
    /// A number of JSON.
    Number(&'a [u8]),
    /// A boolean of JSON.
    Boolean,
    /// A string of JSON, without its quotes.
    String(&'a [u8]),
    /// Any other value of JSON.
    Other,
}

/// The values of a column in a sample.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen(Option<Narrowest>);

impl Seen {
    /// What a field of an older sample says.
    pub(crate) fn of_field(field: &Field) -> Self {
        Self(Narrowest::of(field))
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: Sampled<'_>) {
        // Most texts are no values of these types, and nothing is left to find out then.
        if ![Some(Narrowest::NONE), Some(Narrowest::TEXT)].contains(&self.0) {
            let found = narrowest(value, self.0);
            self.0 = Some(self.0.map_or(found, |before| before.join(found)));
        }
    }

    /// The field with the mark of its sample; without values, the field.
    pub(crate) fn mark(self, field: Field) -> Field {
        match self.0 {
            Some(narrowest) => narrowest.mark(field),
            None => field,
        }
    }
}

/// The types that read a value. Families of types that do not hold the sample `before` are left out.
fn narrowest(value: Sampled<'_>, before: Option<Narrowest>) -> Narrowest {
    let may = |held: fn(&Narrowest) -> bool| before.as_ref().is_none_or(held);
    let mut all = Narrowest::NONE;
    let (Sampled::Text(text)
    | Sampled::Listed(text)
    | Sampled::Number(text)
    | Sampled::String(text)) = value
    else {
        all.boolean = matches!(value, Sampled::Boolean);
        return all;
    };
    let is_number = matches!(value, Sampled::Number(_));
    let is_field = matches!(value, Sampled::Text(_) | Sampled::Listed(_));
    if is_field {
        all.integer_texts = Some(may_be_integer(text));
        all.boolean = matches!(value, Sampled::Listed(_))
            || (may(|all| all.boolean) && text::parse_bool(text).is_ok());
    }
    // A zero with a sign is a float.
    let is_exact = !number::is_negative_zero(text);
    if (is_number || is_field) && is_exact && may(|all| all.integer.is_some()) {
        all.integer = number::parse_i64(text).ok().map(Integer::of);
    }
    if (is_number || is_field) && may(|all| all.float.is_some()) {
        all.float = if number::float32_keeps_digits(text) {
            Some(Float::Float32)
        } else {
            number::float_keeps_digits(text).then_some(Float::Float64)
        };
    }
    let may_be_decimal = is_number || is_field || is_plain_number(text);
    if may_be_decimal && is_exact && may(|all| all.decimal.is_some()) {
        all.decimal = decimal::digits(text);
    }
    if is_number {
        return all;
    }
    all.date = may(|all| all.date) && time::parse_date(text).is_ok();
    if may(|all| all.timestamp.is_some()) {
        all.timestamp = unit(|unit| time::parse_timestamp(text, unit, false));
    }
    if may(|all| all.timestamptz.is_some()) {
        all.timestamptz = unit(|unit| time::parse_timestamp(text, unit, true));
    }
    all
}

/// Whether a server may read a text as an integer: with blanks around it, a sign, zeros in front, an underscore between
/// digits, or in another base, as newer versions of PostgreSQL do.
fn may_be_integer(text: &[u8]) -> bool {
    // The vertical tab is a blank to PostgreSQL.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = text.iter().position(|byte| !is_blank(byte));
    let end = text.iter().rposition(|byte| !is_blank(byte));
    let Some((begin, end)) = begin.zip(end) else {
        return false;
    };
    let text = &text[begin..=end];
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+"));
    match digits.unwrap_or(text) {
        [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', more @ ..] => {
            let is_digit = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'_';
            !more.is_empty() && more.iter().all(is_digit)
        }
        [b'0'..=b'9', more @ ..] => {
            let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'_';
            more.iter().all(is_digit)
        }
        _ => false,
    }
}

/// The coarsest unit in which a timestamp is read.
fn unit(parse: impl Fn(TimeUnit) -> Result<i64, Reason>) -> Option<Unit> {
    // The coarsest unit also refuses what is no timestamp at all.
    const UNITS: [(TimeUnit, Unit); 4] = [
        (TimeUnit::Second, Unit::Second),
        (TimeUnit::Millisecond, Unit::Milli),
        (TimeUnit::Microsecond, Unit::Micro),
        (TimeUnit::Nanosecond, Unit::Nano),
    ];
    for (unit, found) in UNITS {
        match parse(unit) {
            Ok(_) => return Some(found),
            Err(time::TOO_FINE) => {}
            Err(_) => return None,
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_schema::DataType;
    use rapidbyte_wire::sampled::holds_sampled;

    use super::*;

    fn holds(values: &[Sampled<'_>], ty: &str) -> bool {
        let mut seen = Seen::default();
        values.iter().for_each(|value| seen.add(*value));
        holds_sampled(&seen.mark(Field::new("a", DataType::Utf8, true)), ty)
    }

    #[test]
    fn a_sample_is_held_by_the_types_that_read_it() {
        use Sampled::{Boolean, Listed, Number, Other, String, Text};
        for (values, held, refused) in [
            (&[Text(b"7"), Text(b"-12.50")][..], "decimal(3, 1)", "int64"),
            (&[Text(b"007"), Text(b"200")], "int16", "int8"),
            (&[Text(b"0.123456789")], "float64", "float32"),
            (&[Text(b"1e3")], "decimal(4, 0)", "decimal(3, 0)"),
            (&[Text(b"0.001")], "decimal(3, 3)", "decimal(3, 2)"),
            (&[Text(b"-0")], "float32", "int8"),
            (&[Number(b"-0.0")], "float32", "decimal(3, 1)"),
            (&[Text(b"NaN")], "float64", "decimal(38, 2)"),
            (&[Text(b"1"), Text(b"f")], "bool", "int8"),
            (&[Text(b"x")], "string", "float64"),
            (&[Listed(b"Y"), Text(b"0")], "bool", "int8"),
            (&[Text(b"2026-01-01")], "date", "timestamp"),
            (
                &[Text(b"2026-01-01T10:00:00.5")],
                "timestamp(ms)",
                "timestamp(s)",
            ),
            (&[Text(b"2026-01-01T10:00:00Z")], "timestamptz", "timestamp"),
            (&[Number(b"1"), Number(b"1.5")], "float64", "int64"),
            (&[Number(b"1.0")], "decimal(1, 0)", "int64"),
            (&[Number(b"1")], "int8", "bool"),
            (&[Number(b"9007199254740993")], "int64", "float64"),
            (&[String(b"7.5")], "decimal(2, 1)", "float64"),
            (&[String(b"007")], "uuid", "decimal(3, 0)"),
            (&[String(b"2026-01-01")], "date", "bool"),
            (&[Boolean], "bool", "int8"),
            (&[Other], "json", "bool"),
        ] {
            assert!(holds(values, held), "{values:?} {held}");
            assert!(!holds(values, refused), "{values:?} {refused}");
        }
        assert!(holds(&[], "int8"));
    }
}

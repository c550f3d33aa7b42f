//! Which types hold the values of a sample.
//!
//! A source that infers the type of a column marks the column with this. A host gives such a column the type of an
//! existing target only if that type holds the sample: a run with another type would fail at a value that the source has
//! already seen.

use arrow_schema::{DataType, Field, TimeUnit};

use crate::types::parse_field;

/// The key of a field's metadata that has the mark.
const SAMPLED: &str = "rapidbyte.sampled";

/// Of each family of types, the narrowest one that holds all values of a sample. `None`: no type of the family does.
///
/// A source may name a type that is too narrow, but never one that is too wide: the mark rules out only what is certain
/// to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Narrowest {
    /// Signed integers.
    pub integer: Option<Integer>,
    /// Decimals: how many digits are before the point, and how many behind it.
    pub decimal: Option<(u16, u16)>,
    /// Floats.
    pub float: Option<Float>,
    /// Timestamps without a zone.
    pub timestamp: Option<Unit>,
    /// Timestamps with a zone.
    pub timestamptz: Option<Unit>,
    /// Whether dates hold the sample.
    pub date: bool,
    /// Whether booleans hold the sample.
    pub boolean: bool,
    /// Of texts: whether a server may read each of them as an integer. Servers read more spellings than connectors do.
    /// `None`: the source does not say, or not all values are texts.
    pub integer_texts: Option<bool>,
}

/// Types of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integer {
    /// `int8`
    Int8,
    /// `int16`
    Int16,
    /// `int32`
    Int32,
    /// `int64`
    Int64,
}

/// Types of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Float {
    /// `float32`
    Float32,
    /// `float64`
    Float64,
}

/// Units of timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// `s`
    Second,
    /// `ms`
    Milli,
    /// `us`
    Micro,
    /// `ns`
    Nano,
}

const INTEGERS: [(Integer, &str); 4] = [
    (Integer::Int8, "int8"),
    (Integer::Int16, "int16"),
    (Integer::Int32, "int32"),
    (Integer::Int64, "int64"),
];
const FLOATS: [(Float, &str); 2] = [(Float::Float32, "float32"), (Float::Float64, "float64")];
const TIMESTAMPS: [(Unit, &str); 4] = [
    (Unit::Second, "timestamp(s)"),
    (Unit::Milli, "timestamp(ms)"),
    (Unit::Micro, "timestamp(us)"),
    (Unit::Nano, "timestamp(ns)"),
];
const ZONED: [(Unit, &str); 4] = [
    (Unit::Second, "timestamp(s, UTC)"),
    (Unit::Milli, "timestamp(ms, UTC)"),
    (Unit::Micro, "timestamp(us, UTC)"),
    (Unit::Nano, "timestamp(ns, UTC)"),
];
const DATE: &str = "date";
const BOOLEAN: &str = "bool";
/// Texts that a server may read as integers, and texts of which it is certain to refuse one.
const INTEGER_TEXTS: &str = "texts of integers";
const TEXTS: &str = "texts";

impl Integer {
    /// The narrowest type that holds a number.
    pub fn of(number: i64) -> Self {
        if i8::try_from(number).is_ok() {
            Self::Int8
        } else if i16::try_from(number).is_ok() {
            Self::Int16
        } else if i32::try_from(number).is_ok() {
            Self::Int32
        } else {
            Self::Int64
        }
    }
}

impl Unit {
    /// The coarsest unit of a fraction of a second in nanoseconds.
    pub fn of_nanos(nanos: i64) -> Self {
        if nanos % 1_000_000_000 == 0 {
            Self::Second
        } else if nanos % 1_000_000 == 0 {
            Self::Milli
        } else if nanos % 1_000 == 0 {
            Self::Micro
        } else {
            Self::Nano
        }
    }

    fn of(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::Second,
            TimeUnit::Millisecond => Self::Milli,
            TimeUnit::Microsecond => Self::Micro,
            TimeUnit::Nanosecond => Self::Nano,
        }
    }
}

/// The wider of two types; none if one is missing.
fn wider<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.zip(b).map(|(a, b)| a.max(b))
}

fn name<T: PartialEq>(names: &[(T, &'static str)], found: Option<T>) -> Option<String> {
    let found = found?;
    let mut names = names.iter();
    names
        .find(|(one, _)| *one == found)
        .map(|(_, name)| (*name).to_owned())
}

fn named<T: Copy>(names: &[(T, &str)], name: &str) -> Option<T> {
    let mut names = names.iter();
    names.find(|(_, one)| *one == name).map(|(one, _)| *one)
}

impl Narrowest {
    /// For a value that is of none of these families.
    pub const NONE: Self = Self {
        integer: None,
        decimal: None,
        float: None,
        timestamp: None,
        timestamptz: None,
        date: false,
        boolean: false,
        integer_texts: None,
    };

    /// For a text that is of none of these families, however a server reads it.
    pub const TEXT: Self = Self {
        integer_texts: Some(false),
        ..Self::NONE
    };

    /// The same for the values of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let digits = |(a, b): ((u16, u16), (u16, u16))| (a.0.max(b.0), a.1.max(b.1));
        Self {
            integer: wider(self.integer, other.integer),
            decimal: self.decimal.zip(other.decimal).map(digits),
            float: wider(self.float, other.float),
            timestamp: wider(self.timestamp, other.timestamp),
            timestamptz: wider(self.timestamptz, other.timestamptz),
            date: self.date && other.date,
            boolean: self.boolean && other.boolean,
            integer_texts: self
                .integer_texts
                .zip(other.integer_texts)
                .map(|(a, b)| a && b),
        }
    }

    /// Marks a field with an inferred type.
    #[must_use]
    pub fn mark(self, field: Field) -> Field {
        let decimal = self
            .decimal
            .map(|(whole, fraction)| format!("decimal({}, {fraction})", whole + fraction));
        let names = [
            name(&INTEGERS, self.integer),
            decimal,
            name(&FLOATS, self.float),
            name(&TIMESTAMPS, self.timestamp),
            name(&ZONED, self.timestamptz),
            self.date.then(|| DATE.to_owned()),
            self.boolean.then(|| BOOLEAN.to_owned()),
            self.integer_texts.map(|may_be| {
                let name = if may_be { INTEGER_TEXTS } else { TEXTS };
                name.to_owned()
            }),
        ];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let mut metadata = field.metadata().clone();
        metadata.insert(SAMPLED.to_owned(), names.join("; "));
        field.with_metadata(metadata)
    }

    /// The mark of a field. `None` for a field without a mark.
    pub fn of(field: &Field) -> Option<Self> {
        let mut all = Self::NONE;
        for name in field.metadata().get(SAMPLED)?.split("; ") {
            let digits = name.strip_prefix("decimal(");
            if let Some(digits) = digits.and_then(|text| text.strip_suffix(')')) {
                let (all_digits, fraction) = digits.split_once(", ")?;
                let (all_digits, fraction) = (all_digits.parse().ok()?, fraction.parse().ok()?);
                all.decimal = Some((u16::checked_sub(all_digits, fraction)?, fraction));
            }
            all.integer = all.integer.or_else(|| named(&INTEGERS, name));
            all.float = all.float.or_else(|| named(&FLOATS, name));
            all.timestamp = all.timestamp.or_else(|| named(&TIMESTAMPS, name));
            all.timestamptz = all.timestamptz.or_else(|| named(&ZONED, name));
            all.date |= name == DATE;
            all.boolean |= name == BOOLEAN;
            all.integer_texts = match name {
                INTEGER_TEXTS => Some(true),
                TEXTS => Some(false),
                _ => all.integer_texts,
            };
        }
        Some(all)
    }

    /// False if a type of these families does not hold the sample. True for all other types.
    fn fits(self, ty: &DataType) -> bool {
        let at_most = |integer| self.integer.is_some_and(|needed| needed <= integer);
        match ty {
            DataType::Boolean => self.boolean,
            DataType::Int8 => at_most(Integer::Int8),
            DataType::Int16 => at_most(Integer::Int16),
            DataType::Int32 => at_most(Integer::Int32),
            DataType::Int64 => at_most(Integer::Int64),
            DataType::Float32 => self.float == Some(Float::Float32),
            DataType::Float64 => self.float.is_some(),
            DataType::Decimal128(digits, scale) | DataType::Decimal256(digits, scale) => {
                let (digits, scale) = (i32::from(*digits), i32::from(*scale));
                self.decimal.is_some_and(|(whole, fraction)| {
                    i32::from(whole) <= (digits - scale).max(0)
                        && i32::from(fraction) <= scale.max(0)
                })
            }
            DataType::Date32 => self.date,
            DataType::Timestamp(unit, zone) => {
                let needed = match zone {
                    None => self.timestamp,
                    Some(_) => self.timestamptz,
                };
                needed.is_some_and(|needed| needed <= Unit::of(*unit))
            }
            _ => true,
        }
    }
}

/// False if the field is [marked](Narrowest::mark), and the type with this name does not hold the sample.
pub fn holds_sampled(field: &Field, type_name: &str) -> bool {
    let Some(narrowest) = Narrowest::of(field) else {
        return true;
    };
    let stored = parse_field("", type_name, true);
    stored.is_ok_and(|stored| narrowest.fits(stored.data_type()))
}

/// True if the field holds texts, and a server that reads them as integers of the type with this name is certain to refuse
/// one of the sample.
pub fn refuses_texts(field: &Field, type_name: &str) -> bool {
    let (Some(narrowest), Ok(stored)) = (Narrowest::of(field), parse_field("", type_name, true))
    else {
        return false;
    };
    let Some(may_be_integers) = narrowest.integer_texts else {
        return false;
    };
    let is_text = *field.data_type() == DataType::Utf8;
    let holds = match narrowest.integer {
        Some(_) => narrowest.fits(stored.data_type()),
        None => may_be_integers,
    };
    is_text && stored.data_type().is_signed_integer() && !holds
}

/// The field without its [mark](Narrowest::mark): for people and programs that have no sample.
#[must_use]
pub fn unsampled(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(SAMPLED);
    field.clone().with_metadata(metadata)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn field() -> Field {
        Field::new("n", DataType::Float64, true)
    }

    #[test]
    fn a_mark_comes_back_and_goes() {
        let all = Narrowest {
            integer: Some(Integer::Int16),
            decimal: Some((3, 2)),
            float: Some(Float::Float32),
            timestamp: Some(Unit::Milli),
            timestamptz: Some(Unit::Nano),
            date: true,
            boolean: true,
            integer_texts: Some(true),
        };
        for narrowest in [all, Narrowest::NONE, Narrowest::TEXT] {
            let marked = narrowest.mark(field());
            assert_eq!(Narrowest::of(&marked), Some(narrowest));
            assert_eq!(unsampled(&marked), field());
        }
        assert_eq!(Narrowest::of(&field()), None);
    }

    #[test]
    fn texts_are_refused_where_no_server_reads_one_of_them_as_an_integer() {
        let number = |integer| Narrowest {
            integer: Some(integer),
            integer_texts: Some(true),
            ..Narrowest::NONE
        };
        let spelled = Narrowest {
            integer_texts: Some(true),
            ..Narrowest::NONE
        };
        let text = Field::new("t", DataType::Utf8, true);
        for (narrowest, ty, refuses) in [
            (number(Integer::Int16), "int16", false),
            (number(Integer::Int32), "int16", true),
            (spelled, "int16", false),
            (Narrowest::TEXT, "int64", true),
            (Narrowest::TEXT, "string", false),
            (Narrowest::TEXT, "float64", false),
            (Narrowest::NONE, "int64", false),
            (spelled.join(Narrowest::TEXT), "int64", true),
            (spelled.join(Narrowest::NONE), "int64", false),
        ] {
            let found = refuses_texts(&narrowest.mark(text.clone()), ty);
            assert_eq!(found, refuses, "{narrowest:?} {ty}");
        }
        assert!(!refuses_texts(&text, "int64"));
        assert!(!refuses_texts(&Narrowest::TEXT.mark(field()), "int64"));
    }

    #[test]
    fn a_sample_is_held_by_wide_types_alone() {
        let number = |integer, digits, float| Narrowest {
            integer,
            decimal: Some(digits),
            float: Some(float),
            ..Narrowest::NONE
        };
        let small = number(Some(Integer::Int8), (1, 0), Float::Float32);
        let large = number(Some(Integer::Int64), (19, 0), Float::Float64);
        let price = number(None, (2, 3), Float::Float64);
        let date = Narrowest {
            date: true,
            ..Narrowest::NONE
        };
        let zoned = |unit| Narrowest {
            timestamptz: Some(unit),
            ..Narrowest::NONE
        };
        for (narrowest, held, refused) in [
            (small, "int8", "bool"),
            (small, "decimal(5, 4)", "decimal(5, 5)"),
            (small, "float32", "date"),
            (large, "int64", "int32"),
            (large, "float64", "float32"),
            (small.join(large), "decimal(19, 0)", "decimal(19, 1)"),
            (price, "decimal(5, 3)", "decimal(5, 2)"),
            (price, "json", "int64"),
            (small.join(price), "float64", "int64"),
            (date, "date", "timestamp"),
            (zoned(Unit::Milli), "timestamptz", "timestamp(s, UTC)"),
            (zoned(Unit::Second), "timestamp(s, UTC)", "timestamp(s)"),
            (date.join(small), "string", "date"),
            (Narrowest::NONE, "string", "bool"),
        ] {
            let marked = narrowest.mark(field());
            assert!(holds_sampled(&marked, held), "{narrowest:?} {held}");
            assert!(!holds_sampled(&marked, refused), "{narrowest:?} {refused}");
        }
        assert!(holds_sampled(&field(), "int8"));
    }

    #[test]
    fn the_narrowest_types_of_values_are_found() {
        for (number, integer) in [
            (-128, Integer::Int8),
            (128, Integer::Int16),
            (32_768, Integer::Int32),
            (i64::MIN, Integer::Int64),
        ] {
            assert_eq!(Integer::of(number), integer);
        }
        for (nanos, unit) in [
            (-1_000_000_000, Unit::Second),
            (1_000_000, Unit::Milli),
            (1_001_000, Unit::Micro),
            (1, Unit::Nano),
        ] {
            assert_eq!(Unit::of_nanos(nanos), unit);
        }
    }
}

//! Whether a peer reads the values that were written, though its column may have another type.
//!
//! Values of one type are compared as they are. Values of two types are compared in the type that was
//! written: the read value becomes its text (`rapidbyte-formats`), and the text becomes a value of that
//! type. A number of a type that holds fewer digits is compared in that type, JSON and nested values as
//! JSON. Two types that have nothing in common are not compared; the columns are named.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, TimeUnit};
use rapidbyte_formats::{Texts, repeat};
use rapidbyte_runtime::{Fit, Plan};
use rapidbyte_wire::types::{is_json, is_uuid, type_name};
use serde_json::{Map, Value};

/// Tells rows apart: a whole number, different in each row.
pub(crate) const KEY: &str = "n";
/// Characters of a value that are shown.
const SHOWN: usize = 60;
/// Names that are shown.
const SHOWN_NAMES: usize = 8;
/// A day of an interval, in nanoseconds.
const DAY_NANOS: i128 = 86_400_000_000_000;
/// The part of a number by which a conversion may change it.
const NEAR: f64 = 1e-5;

/// Notes by column, for columns that were not compared as they were written.
pub(crate) type Notes = BTreeMap<String, String>;

/// Compares rows in any order, by their keys.
///
/// # Errors
/// The first difference: the column, the row, the written value and the read value.
pub(crate) fn compare(
    written: &RecordBatch,
    plan: &Plan,
    read: &RecordBatch,
) -> Result<Notes, String> {
    let places = places(written, read)?;
    let mut notes = Notes::new();
    for (field, values) in written.schema().fields().iter().zip(written.columns()) {
        let name = field.name();
        let (seen, at) = column(read, name).ok_or_else(|| {
            format!("column {name} was written, and is not among the columns that are read")
        })?;
        let fit = plan.columns.iter().find(|column| column.column == *name);
        let pair = Pair {
            written: Side::new(field, values)?,
            read: Side::new(&seen, read.column(at))?,
            is_lossy: fit.is_some_and(|column| column.fit == Fit::Lossy),
        };
        if let Some(note) = pair.note() {
            notes.insert(name.clone(), note);
        }
        for (row, (key, there)) in places.iter().enumerate() {
            match pair.same(row, *there)? {
                Same::Yes => {}
                Same::Converted(note) => {
                    notes.entry(name.clone()).or_insert(note);
                }
                Same::No => {
                    return Err(format!(
                        "column {name}, row {key}: written {}, read {}",
                        pair.written.shown(row),
                        pair.read.shown(*there)
                    ));
                }
            }
        }
    }
    Ok(notes)
}

/// Tells that not one of the written columns has its name among those that are read.
pub(crate) fn no_names(written: &RecordBatch, read: &RecordBatch) -> Option<String> {
    let names = |rows: &RecordBatch| {
        let schema = rows.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        names.take(SHOWN_NAMES).collect::<Vec<_>>()
    };
    let wanted = names(written);
    let has_one = wanted.iter().any(|name| column(read, name).is_some());
    (!has_one).then(|| {
        format!(
            "the peer reads the columns {}, and none of {}",
            names(read).join(", "),
            wanted.join(", ")
        )
    })
}

/// The column of a name, in whatever case where no other has the name.
fn column(read: &RecordBatch, name: &str) -> Option<(Arc<Field>, usize)> {
    let schema = read.schema();
    let fields = schema.fields();
    let exact = fields.iter().position(|field| field.name() == name);
    let at = exact.or_else(|| {
        let is_it = |field: &Arc<Field>| field.name().eq_ignore_ascii_case(name);
        fields.iter().position(is_it)
    })?;
    Some((Arc::clone(&fields[at]), at))
}

/// The key of each written row, and where the row is among those that were read.
fn places(written: &RecordBatch, read: &RecordBatch) -> Result<Vec<(i128, usize)>, String> {
    let keys = |rows: &RecordBatch| -> Result<Vec<String>, String> {
        let missing = || format!("column {KEY} was written, and is not among those that are read");
        let (field, at) = column(rows, KEY).ok_or_else(missing)?;
        let side = Side::new(&field, rows.column(at))?;
        (0..rows.num_rows()).map(|row| side.text(row)).collect()
    };
    let number = |text: &str| {
        let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
        whole.parse::<i128>().ok()
    };
    let mut found: BTreeMap<i128, Vec<usize>> = BTreeMap::new();
    for (row, text) in keys(read)?.iter().enumerate() {
        let key = number(text)
            .ok_or_else(|| format!("column {KEY}: written whole numbers, read {}", short(text)))?;
        found.entry(key).or_default().push(row);
    }
    let mut places = Vec::new();
    for text in keys(written)? {
        let key = number(&text).ok_or_else(|| format!("a key {text:?} of the test"))?;
        match found.remove(&key).as_deref() {
            Some([row]) => places.push((key, *row)),
            None => {
                let more = found
                    .keys()
                    .find(|key| !places.iter().any(|(k, _)| k == *key));
                let more = more.map_or(String::new(), |key| {
                    format!("; a row with {KEY} {key} is there")
                });
                return Err(format!(
                    "column {KEY}, row {key}: written {key}, and no row with it is among the {} that are read{more}",
                    read.num_rows()
                ));
            }
            Some(rows) => {
                return Err(format!(
                    "column {KEY}, row {key}: written once, read {} times",
                    rows.len()
                ));
            }
        }
    }
    match found.first_key_value() {
        None => Ok(places),
        Some((key, _)) => Err(format!(
            "column {KEY}: a row {key} is read, and was not to be there; {} rows are read, {} written",
            read.num_rows(),
            written.num_rows()
        )),
    }
}

enum Same {
    Yes,
    /// In the form of a type that holds less, or as a plan says that it changes.
    Converted(String),
    No,
}

/// A column on one side.
struct Side {
    field: Arc<Field>,
    values: ArrayRef,
    texts: Option<Texts>,
}

impl Side {
    fn new(field: &Arc<Field>, values: &ArrayRef) -> Result<Self, String> {
        Ok(Self {
            // A value without a text is compared with its own type only.
            texts: Texts::new(field, values).ok(),
            field: Arc::clone(field),
            values: Arc::clone(values),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        let nulls = self.values.logical_nulls();
        nulls.is_some_and(|nulls| nulls.is_null(row))
    }

    fn text(&self, row: usize) -> Result<String, String> {
        let texts = self.texts.as_ref();
        let texts = texts.ok_or_else(|| format!("column {} has no text", self.field.name()))?;
        let mut text = Vec::new();
        match texts.write(row, &mut text) {
            Ok(()) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) => Err(format!("column {}: {error}", self.field.name())),
        }
    }

    fn shown(&self, row: usize) -> String {
        if self.is_null(row) {
            return "NULL".into();
        }
        let text = self.text(row).unwrap_or_else(|error| error);
        match is_text(self.field.data_type()) {
            true => short(&text),
            false => text.chars().take(SHOWN).collect(),
        }
    }

    fn float(&self, row: usize) -> Option<f64> {
        match self.field.data_type() {
            DataType::Float64 => Some(self.values.as_primitive::<Float64Type>().value(row)),
            DataType::Float32 => Some(f64::from(
                self.values.as_primitive::<Float32Type>().value(row),
            )),
            _ => None,
        }
    }
}

fn short(text: &str) -> String {
    let characters = text.chars().count();
    match characters > SHOWN {
        true => {
            let begin: String = text.chars().take(SHOWN).collect();
            format!("{begin:?}… ({characters} characters)")
        }
        false => format!("{text:?}"),
    }
}

/// The families of types that can be compared.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
enum Family {
    Bool,
    Number,
    Text,
    Bytes,
    Date,
    Time,
    Moment { zoned: bool },
    Duration,
    Interval,
    Uuid,
    Json,
    Nested,
    Other,
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8)
}

fn family(field: &Field) -> Family {
    match field.data_type() {
        _ if is_json(field) => Family::Json,
        _ if is_uuid(field) => Family::Uuid,
        DataType::Boolean => Family::Bool,
        kind if is_text(kind) => Family::Text,
        kind if kind.is_numeric() => Family::Number,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => Family::Bytes,
        DataType::Date32 => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Timestamp(_, zone) => Family::Moment {
            zoned: zone.is_some(),
        },
        DataType::Duration(_) => Family::Duration,
        DataType::Interval(_) => Family::Interval,
        kind if kind.is_nested() => Family::Nested,
        _ => Family::Other,
    }
}

/// A column as it was written and as it is read.
struct Pair {
    written: Side,
    read: Side,
    is_lossy: bool,
}

impl Pair {
    fn families(&self) -> (Family, Family) {
        (family(&self.written.field), family(&self.read.field))
    }

    fn can_compare(&self) -> bool {
        use Family::*;
        let (written, read) = self.families();
        written == read && written != Other
            || matches!(read, Text | Json)
            || matches!(
                (written, read),
                (Json | Nested, Json | Nested)
                    | (Uuid, Bytes)
                    | (Bool, Number)
                    | (Duration, Interval)
                    // Plain texts of JSON documents, and documents that are a single text.
                    | (Json, _)
            )
    }

    /// A peer has all entries of maps as members of a struct, and NULL for a missing entry.
    fn is_sparse(&self) -> bool {
        let (written, read) = (self.written.field.data_type(), self.read.field.data_type());
        let (family, _) = self.families();
        let is_struct = matches!(read, DataType::Struct(_));
        is_struct && (family == Family::Json || matches!(written, DataType::Map(..)))
    }

    /// How the column is compared, where that is not as it was written.
    fn note(&self) -> Option<String> {
        let (written, read) = (type_name(&self.written.field), type_name(&self.read.field));
        if self.is_sparse() {
            return Some("compared as a struct, which has NULL for a missing entry".into());
        }
        (!self.can_compare()).then(|| format!("not compared: written {written}, read {read}"))
    }

    fn same(&self, row: usize, there: usize) -> Result<Same, String> {
        match (self.written.is_null(row), self.read.is_null(there)) {
            (true, true) => return Ok(Same::Yes),
            (false, false) if !self.can_compare() => return Ok(Same::Yes),
            (false, false) => {}
            _ => return Ok(self.unless_lossy(row, there, false)),
        }
        if self.is_equal(row, there)? {
            return Ok(Same::Yes);
        }
        if let Some(same) = self.as_less(row, there) {
            return Ok(same);
        }
        Ok(self.unless_lossy(row, there, true))
    }

    /// A difference that plan spoke of. A number stays near even so.
    fn unless_lossy(&self, row: usize, there: usize, both: bool) -> Same {
        let float = |side: &Side, row| side.text(row).ok().and_then(|t| t.parse::<f64>().ok());
        let is_far = both
            && match (float(&self.written, row), float(&self.read, there)) {
                (Some(a), Some(b)) if a.is_finite() => (a - b).abs() > a.abs() * NEAR,
                _ => false,
            };
        match self.is_lossy && !is_far {
            true => Same::Converted("changed, as plan says".into()),
            false => Same::No,
        }
    }

    fn is_equal(&self, row: usize, there: usize) -> Result<bool, String> {
        let (written, read) = (&self.written, &self.read);
        if let (Some(a), Some(b)) = (written.float(row), read.float(there))
            && a.is_nan()
            && b.is_nan()
        {
            return Ok(true);
        }
        let kinds = (written.field.data_type(), read.field.data_type());
        let families = self.families();
        if kinds.0 == kinds.1 && families.0 == families.1 && families.0 != Family::Json {
            let slice = |side: &Side, row| side.values.slice(row, 1).to_data();
            if slice(written, row) == slice(read, there) {
                return Ok(true);
            }
            if !kinds.0.is_nested() {
                return Ok(false);
            }
        }
        if families == (Family::Duration, Family::Interval) {
            let spans = read.values.as_primitive_opt::<IntervalMonthDayNanoType>();
            let span = spans.map(|spans| spans.value(there));
            let span = span.filter(|span| span.months == 0);
            let span =
                span.map(|span| i128::from(span.days) * DAY_NANOS + i128::from(span.nanoseconds));
            return Ok(span.is_some() && span == nanos(written, row));
        }
        let (a, mut b) = (written.text(row)?, read.text(there)?);
        if matches!(families.0, Family::Json | Family::Nested) {
            let is_document = families.0 == Family::Json;
            return Ok(same_json(&a, &b, is_document, self.is_sparse()));
        }
        if families.1 == Family::Json
            && let Ok(text) = serde_json::from_str::<String>(&b)
        {
            b = text;
        }
        if families == (Family::Bool, Family::Number) {
            return Ok((a == "true") == (b != "0"));
        }
        if a == b && !matches!(families.1, Family::Number) {
            return Ok(true);
        }
        Ok(self.parsed(&b).is_some_and(|read| {
            let written = written.values.slice(row, 1);
            written.to_data() == read.to_data()
        }))
    }

    /// A text as a value of the written type.
    fn parsed(&self, text: &str) -> Option<ArrayRef> {
        let field = &self.written.field;
        let whole = text
            .split_once('.')
            .filter(|(_, rest)| rest.bytes().all(|b| b == b'0'));
        let hex = text.strip_prefix("\\x");
        let texts = [Some(text), whole.map(|(whole, _)| whole), hex];
        let mut texts = texts.into_iter().flatten();
        texts.find_map(|text| repeat(field, Some(text), 1).ok())
    }

    /// The same in a type that holds fewer digits, because the peer's column has only this type.
    fn as_less(&self, row: usize, there: usize) -> Option<Same> {
        let (written, read) = (&self.written, &self.read);
        let read_type = type_name(&read.field);
        let text = written.text(row).ok()?;
        match (self.families(), read.field.data_type()) {
            ((Family::Number, Family::Number), DataType::Float64 | DataType::Float32) => {
                let seen = read.float(there)?;
                let same = match (written.float(row), read.field.data_type()) {
                    // The shortest text of a float32 is another float64.
                    (Some(float), DataType::Float64) => {
                        (float as f32).to_bits() == (seen as f32).to_bits()
                            && written.field.data_type() == &DataType::Float32
                    }
                    (Some(_), _) => false,
                    (None, DataType::Float32) => {
                        let float: f32 = text.parse().ok()?;
                        float.to_bits() == (seen as f32).to_bits()
                    }
                    (None, _) => text.parse::<f64>().ok()?.to_bits() == seen.to_bits(),
                };
                same.then(|| Same::Converted(format!("compared as {read_type}")))
            }
            ((Family::Time | Family::Moment { .. }, found), _) if found == self.families().0 => {
                if !self.is_lossy {
                    return None;
                }
                let (a, b) = (nanos(written, row)?, nanos(read, there)?);
                let unit = unit_nanos(read.field.data_type())?;
                let same = (a - b).abs() < unit;
                same.then(|| Same::Converted(format!("compared as {read_type}")))
            }
            _ => None,
        }
    }
}

fn unit_nanos(kind: &DataType) -> Option<i128> {
    let (DataType::Timestamp(unit, _)
    | DataType::Time32(unit)
    | DataType::Time64(unit)
    | DataType::Duration(unit)) = kind
    else {
        return None;
    };
    Some(match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    })
}

fn nanos(side: &Side, row: usize) -> Option<i128> {
    let unit = unit_nanos(side.field.data_type())?;
    let data = side.values.slice(row, 1).to_data();
    let ticks = match data.data_type() {
        DataType::Time32(_) => i128::from(data.buffer::<i32>(0).first().copied()?),
        _ => i128::from(data.buffer::<i64>(0).first().copied()?),
    };
    Some(ticks * unit)
}

/// Two JSON texts of one value. `document`: what was written is JSON. `sparse`: no entry is like NULL.
fn same_json(written: &str, read: &str, document: bool, sparse: bool) -> bool {
    let (Ok(a), Ok(b)) = (
        serde_json::from_str::<Value>(written),
        serde_json::from_str::<Value>(read),
    ) else {
        // A peer that reads a document that is one text gives the text.
        return document
            && serde_json::from_str::<Value>(written)
                .is_ok_and(|value| value.as_str() == Some(read));
    };
    same_value(&a, &b, sparse)
}

fn same_value(a: &Value, b: &Value, sparse: bool) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b, sparse))
        }
        (Value::Object(a), Value::Object(b)) if sparse => {
            let member =
                |object: &Map<String, Value>, key| object.get(key).cloned().unwrap_or(Value::Null);
            let mut keys = a.keys().chain(b.keys());
            keys.all(|key| same_value(&member(a, key), &member(b, key), true))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b, false)))
        }
        (Value::Number(a), Value::Number(b)) => {
            a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a))
        }
        (a, b) => a == b,
    }
}

/// The notes of a comparison, as one text.
pub(crate) fn told(notes: &Notes) -> String {
    let notes = notes
        .iter()
        .map(|(column, note)| format!("{column} {note}"));
    notes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow_schema::Schema;
    use rapidbyte_runtime::ColumnPlan;
    use rapidbyte_wire::types::parse_field;

    /// A batch of column `n` and these columns, each of one type.
    fn rows(columns: &[(&str, &str, ArrayRef)]) -> RecordBatch {
        let count = columns[0].2.len() as i64;
        let keys: ArrayRef = Arc::new((0..count).map(Some).collect::<Int64Array>());
        let mut fields = vec![parse_field(KEY, "int64", false).unwrap()];
        let mut arrays = vec![keys];
        for (name, kind, array) in columns {
            fields.push(parse_field(name, kind, true).unwrap());
            arrays.push(Arc::clone(array));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
    }

    fn plan(fit: Fit) -> Plan {
        Plan {
            location: String::new(),
            columns: vec![ColumnPlan {
                column: "c".into(),
                target_type: String::new(),
                fit,
                note: None,
                stored_type: None,
            }],
            statements: Vec::new(),
            notes: Vec::new(),
            is_new: false,
            new_columns: Vec::new(),
        }
    }

    fn texts(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    fn parsed(kind: &str, values: &[Option<&str>]) -> ArrayRef {
        let field = Arc::new(parse_field("c", kind, true).unwrap());
        let arrays = values.iter().map(|text| repeat(&field, *text, 1).unwrap());
        let arrays: Vec<ArrayRef> = arrays.collect();
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        arrow_select::concat::concat(&arrays).unwrap()
    }

    fn told_of(
        written: (&str, ArrayRef),
        read: (&str, ArrayRef),
        fit: Fit,
    ) -> Result<Notes, String> {
        let written = rows(&[("c", written.0, written.1)]);
        let read = rows(&[("c", read.0, read.1)]);
        compare(&written, &plan(fit), &read)
    }

    #[test]
    fn texts_are_compared_as_the_values_that_they_spell() {
        for (kind, value, same, other) in [
            ("int64", "-7", "-7", "7"),
            (
                "uint64",
                "18446744073709551615",
                "18446744073709551615",
                "9223372036854775807",
            ),
            ("decimal(10, 2)", "-0.50", "-0.5", "0.50"),
            ("float64", "NaN", "NaN", "0"),
            ("date", "1969-12-31", "1969-12-31", "1970-01-02"),
            (
                "timestamp(us)",
                "1969-12-31T23:59:59.5",
                "1969-12-31T23:59:59.500",
                "1970-01-01T00:00:00.5",
            ),
            ("binary", "\\x00ff", "\\x00ff", "\\x00"),
            (
                "uuid",
                "00000000-0000-0000-0000-0000000000ff",
                "00000000-0000-0000-0000-0000000000FF",
                "00000000-0000-0000-0000-0000000000fe",
            ),
            ("list<int32>", "[1,null]", "[1, null]", "[1]"),
            ("json", "{\"a\":1}", "{ \"a\": 1 }", "{\"a\":2}"),
        ] {
            let written = || (kind, parsed(kind, &[Some(value), None]));
            let good = told_of(
                written(),
                ("string", texts(&[Some(same), None])),
                Fit::Exact,
            );
            assert_eq!(good, Ok(Notes::new()), "{kind}");
            let bad = told_of(
                written(),
                ("string", texts(&[Some(other), None])),
                Fit::Exact,
            );
            assert!(
                bad.unwrap_err().starts_with("column c, row 0: written "),
                "{kind}"
            );
            let null = told_of(written(), ("string", texts(&[None, None])), Fit::Exact);
            assert!(null.unwrap_err().ends_with("read NULL"), "{kind}");
        }
    }

    #[test]
    fn numbers_are_equal_with_their_sign_and_all_their_digits() {
        let floats = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
        let exact = |a, b| told_of(("float64", a), ("float64", b), Fit::Exact);
        assert_eq!(
            exact(floats(&[f64::NAN, -0.0]), floats(&[f64::NAN, -0.0])),
            Ok(Notes::new())
        );
        let zero = exact(floats(&[-0.0]), floats(&[0.0])).unwrap_err();
        assert_eq!(zero, "column c, row 0: written -0.0, read 0.0");
        // A peer that only has float64 is compared as float64, and a note says so.
        let large = parsed("int64", &[Some("9007199254740993")]);
        let notes = told_of(
            ("int64", large.clone()),
            ("float64", floats(&[9007199254740992.0])),
            Fit::Exact,
        );
        assert_eq!(told(&notes.unwrap()), "c compared as float64");
        let other = told_of(
            ("int64", large),
            ("float64", floats(&[9007199254740994.0])),
            Fit::Exact,
        );
        assert!(other.is_err());
    }

    #[test]
    fn columns_that_cannot_be_compared_are_named_and_their_nulls_count() {
        let moment = || parsed("timestamptz", &[Some("2026-01-01T00:00:00Z")]);
        let plain: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(0)]));
        let notes = told_of(("timestamptz", moment()), ("timestamp", plain), Fit::Exact);
        assert_eq!(
            told(&notes.unwrap()),
            "c not compared: written timestamptz, read timestamp"
        );
        let none: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![None]));
        assert!(told_of(("timestamptz", moment()), ("timestamp", none), Fit::Exact).is_err());
    }

    #[test]
    fn a_lossy_column_stays_near() {
        let written = || {
            (
                "float64",
                Arc::new(Float64Array::from(vec![1.0 / 3.0])) as ArrayRef,
            )
        };
        let read = |value: f64| {
            (
                "float64",
                Arc::new(Float64Array::from(vec![value])) as ArrayRef,
            )
        };
        assert!(told_of(written(), read(0.333_333), Fit::Exact).is_err());
        let notes = told_of(written(), read(0.333_333), Fit::Lossy).unwrap();
        assert_eq!(told(&notes), "c changed, as plan says");
        assert!(told_of(written(), read(0.4), Fit::Lossy).is_err());
    }

    #[test]
    fn rows_are_found_by_their_keys_in_any_order() {
        let all = rows(&[("c", "string", texts(&[Some("a"), Some("b"), Some("c")]))]);
        let none = plan(Fit::Exact);
        let pick = |places: &[u64]| {
            let places = arrow_array::UInt64Array::from(places.to_vec());
            arrow_select::take::take_record_batch(&all, &places).unwrap()
        };
        assert_eq!(compare(&all, &none, &pick(&[2, 0, 1])), Ok(Notes::new()));
        for (places, seen) in [
            (
                &[0, 2][..],
                "column n, row 1: written 1, and no row with it is among the 2",
            ),
            (&[0, 1, 2, 2], "column n, row 2: written once, read 2 times"),
        ] {
            let told = compare(&all, &none, &pick(places)).unwrap_err();
            assert!(told.starts_with(seen), "{told}");
        }
        let more = compare(&pick(&[0, 1]), &none, &all).unwrap_err();
        assert!(more.starts_with("column n: a row 2 is read"), "{more}");
        let lacks = all.project(&[0]).unwrap();
        let told = compare(&all, &none, &lacks).unwrap_err();
        assert!(told.starts_with("column c was written"), "{told}");
    }
}

//! Finds columns in a sample of documents: the union of the types of each field.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use rapidbyte_bson::{BsonError, Document, Kind, Value};
use rapidbyte_wire::sampled::{Float, Integer, Narrowest, Unit};
use rapidbyte_wire::types::{parse_field, type_name};

use crate::form::{self, ID};

/// Fields of more names than this are not columns: documents whose keys are data have too many.
const MAX_COLUMNS: usize = 2_000;

/// A set of types, a bit for each.
type Kinds = u32;

/// The columns of documents, in the order in which their fields come first.
#[derive(Debug, Default)]
pub struct Sampler {
    names: HashMap<String, usize>,
    fields: Vec<(String, Seen)>,
    documents: u64,
    is_full: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    kinds: Kinds,
    /// Binary values of other subtypes than 4, and of subtype 4.
    has_bytes: bool,
    has_uuids: bool,
    has_subtypes: bool,
    /// Which types hold the values that are not null.
    narrowest: Option<Narrowest>,
}

/// What a sample says.
#[derive(Debug, Clone)]
pub struct Sampled {
    /// A column for each field. Each is nullable but `_id`.
    pub schema: Schema,
    /// The BSON types of each column, such as `int, long`.
    pub types: Vec<String>,
    /// Decisions and their reasons, for people.
    pub notes: Vec<String>,
    /// The documents of the sample.
    pub documents: u64,
}

impl Sampler {
    /// An empty sample.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a document.
    ///
    /// # Errors
    /// The document is malformed.
    pub fn push(&mut self, document: Document<'_>) -> Result<(), BsonError> {
        self.documents += 1;
        for element in document.elements() {
            let (name, value) = element?;
            let at = match self.names.get(name) {
                Some(at) => *at,
                None if self.fields.len() == MAX_COLUMNS => {
                    self.is_full = true;
                    continue;
                }
                None => {
                    self.names.insert(name.to_owned(), self.fields.len());
                    self.fields.push((name.to_owned(), Seen::default()));
                    self.fields.len() - 1
                }
            };
            self.fields[at].1.add(&value);
        }
        Ok(())
    }

    /// The columns.
    pub fn finish(self) -> Sampled {
        let mut notes = Vec::new();
        let fields = self.fields.iter().map(|(name, seen)| {
            let (field, note) = seen.field(name);
            notes.extend(note.map(|note| format!("{name}: {} ({note})", type_name(&field))));
            field
        });
        let fields: Vec<Field> = fields.collect();
        if self.is_full {
            notes.push(format!("only the first {MAX_COLUMNS} keys are columns"));
        }
        Sampled {
            schema: Schema::new(fields),
            types: self.fields.iter().map(|(_, seen)| seen.names()).collect(),
            notes,
            documents: self.documents,
        }
    }
}

fn bit(kind: Kind) -> Kinds {
    let place = match kind {
        Kind::MaxKey => 20,
        Kind::MinKey => 21,
        kind => kind.byte(),
    };
    1 << place
}

/// The types that hold a value exactly. `None` for a value of a column that is not compared: null, and a Decimal128.
fn narrowest(value: &Value<'_>) -> Option<Narrowest> {
    const DAY_MS: i64 = 86_400_000;
    Some(match value {
        Value::Null | Value::Decimal128(_) => return None,
        Value::Int32(number) => of_whole(i64::from(*number)),
        Value::Int64(number) => of_whole(*number),
        Value::Double(number) => {
            #[expect(clippy::cast_possible_truncation, reason = "compared behind it")]
            let narrow = f64::from(*number as f32);
            let is_narrow = narrow == *number || number.is_nan();
            let float = match is_narrow {
                true => Float::Float32,
                false => Float::Float64,
            };
            Narrowest {
                float: Some(float),
                ..whole(*number).map_or(Narrowest::NONE, of_whole)
            }
        }
        Value::Boolean(_) => Narrowest {
            boolean: true,
            ..Narrowest::NONE
        },
        Value::DateTime(ms) => {
            let unit = match ms % 1000 {
                0 => Unit::Second,
                _ => Unit::Milli,
            };
            Narrowest {
                timestamp: Some(unit),
                timestamptz: Some(unit),
                date: ms % DAY_MS == 0,
                ..Narrowest::NONE
            }
        }
        _ => Narrowest::NONE,
    })
}

fn of_whole(number: i64) -> Narrowest {
    let is_exact = |float: f64| float as i128 == i128::from(number);
    #[expect(clippy::cast_precision_loss, reason = "compared behind it")]
    let float = if is_exact(f64::from(number as f32)) {
        Some(Float::Float32)
    } else {
        is_exact(number as f64).then_some(Float::Float64)
    };
    let digits = number.unsigned_abs().checked_ilog10();
    Narrowest {
        integer: Some(Integer::of(number)),
        // At most 19.
        decimal: digits.map_or(Some((0, 0)), |digits| Some((digits as u16 + 1, 0))),
        float,
        ..Narrowest::NONE
    }
}

/// The integer that a double is. `None` for fractions, -0, and numbers beyond 64 bits.
fn whole(number: f64) -> Option<i64> {
    /// 2^63
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    let is_negative_zero = number == 0.0 && number.is_sign_negative();
    let is_whole = number.fract() == 0.0 && (-BEYOND..BEYOND).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "checked")]
    (is_whole && !is_negative_zero).then_some(number as i64)
}

impl Seen {
    fn add(&mut self, value: &Value<'_>) {
        self.kinds |= bit(value.kind());
        if let Some(found) = narrowest(value) {
            let all = self.narrowest.map_or(found, |before| before.join(found));
            self.narrowest = Some(all);
        }
        if let Value::Binary { subtype, bytes } = value {
            match subtype {
                0 => self.has_bytes = true,
                4 if bytes.len() == 16 => self.has_uuids = true,
                _ => self.has_subtypes = true,
            }
        }
    }

    /// The names of its types.
    fn names(&self) -> String {
        let kinds = (0..=u8::MAX).filter_map(Kind::from_byte);
        let seen = kinds.filter(|kind| self.kinds & bit(*kind) != 0);
        seen.map(Kind::name).collect::<Vec<_>>().join(", ")
    }

    /// The column, marked with its sample, and why it is JSON.
    fn field(&self, name: &str) -> (Field, Option<String>) {
        let (field, note) = self.plain_field(name);
        match self.narrowest {
            Some(narrowest) => (narrowest.mark(field), note),
            None => (field, note),
        }
    }

    fn plain_field(&self, name: &str) -> (Field, Option<String>) {
        let is_nullable = name != ID;
        let all = |kinds: &[Kind]| {
            let allowed = kinds
                .iter()
                .fold(bit(Kind::Null), |all, kind| all | bit(*kind));
            self.kinds & !allowed == 0
        };
        let plain = |ty: DataType| (Field::new(name, ty, is_nullable), None);
        let named = |ty: &str, note: Option<String>| {
            let field = parse_field(name, ty, is_nullable);
            let field = field.unwrap_or_else(|_| Field::new(name, DataType::Utf8, is_nullable));
            (field, note)
        };
        if self.kinds & !bit(Kind::Null) == 0 {
            return named("json", Some("every value in the sample is null".into()));
        }
        let numbers = [Kind::Int32, Kind::Int64, Kind::Double];
        if all(&[Kind::Int32]) {
            plain(DataType::Int32)
        } else if all(&numbers[..2]) {
            plain(DataType::Int64)
        } else if all(&numbers) {
            plain(DataType::Float64)
        } else if all(&[Kind::String]) {
            plain(DataType::Utf8)
        } else if all(&[Kind::Boolean]) {
            plain(DataType::Boolean)
        } else if all(&[Kind::DateTime]) {
            plain(DataType::Timestamp(
                TimeUnit::Millisecond,
                Some("UTC".into()),
            ))
        } else if all(&[Kind::ObjectId]) || all(&[Kind::Decimal128]) {
            let kind = match all(&[Kind::ObjectId]) {
                true => Kind::ObjectId,
                false => Kind::Decimal128,
            };
            (form::mark(plain(DataType::Utf8).0, kind), None)
        } else if all(&[Kind::Binary]) && !self.has_subtypes && self.has_bytes != self.has_uuids {
            match self.has_uuids {
                true => named("uuid", None),
                false => plain(DataType::Binary),
            }
        } else {
            named("json", Some(format!("the values are of {}", self.names())))
        }
    }
}

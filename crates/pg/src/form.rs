//! How a column is held in Arrow: the one table that reading, writing and DDL share.
//!
//! | type | portable form | native form |
//! | --- | --- | --- |
//! | `bool`, `int2`, `int4`, `int8`, `float4`, `float8` | Boolean, Int16 … Float64 | the same |
//! | `oid` | UInt32 | the same |
//! | `text`, `varchar`, `bpchar`, `name` and others sent as text, enums | Utf8 | the same |
//! | `bytea` | Binary | the same |
//! | `uuid` | FixedSizeBinary(16), `arrow.uuid` | the same |
//! | `json`, `jsonb` | Utf8, `arrow.json` | the same |
//! | `numeric(p,s)` with 0 ≤ s ≤ p ≤ 76 | Decimal128, Decimal256 from 39 digits | opaque |
//! | `date`, `time` | Date32, Time64(µs) | opaque |
//! | `timestamp`, `timestamptz` | Timestamp(µs), with zone UTC | opaque |
//! | `interval` | Interval(MonthDayNano) | opaque |
//! | arrays whose elements have a portable form | List, for one dimension | opaque |
//! | every other type with binary send and receive | Utf8, cast to text by the server | opaque |
//! | `reg*`, `int2vector`, `oidvector`, `tsquery` and types without binary send or receive | Utf8, cast to text by the server | the same |
//!
//! A domain is held like the type below it. "Opaque" is the canonical extension type
//! `arrow.opaque` over the bytes of the type's send function. A value that the portable form
//! cannot hold (NaN, infinity, BC years beyond Arrow's range, 24:00:00, two dimensions) stops
//! the decoder at that row. See "Data Types" in the PostgreSQL manual and "Canonical Extension
//! Types" in the Arrow documentation.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use rapidbyte_wire::types;
use serde::{Deserialize, Serialize};

use crate::builtin::{self, numeric_typmod};
use crate::ident::quote_ident;
use crate::model::{Column, Kind, MAX_DEPTH, PgType};
use crate::{Owner, PgError};

/// The name of the native forms, in a connector's `native-forms` list.
pub const NATIVE_FORM: &str = "postgresql";
/// The key of a field's metadata that holds its [`Column`] as JSON, and of a schema's that holds its
/// [`Table`].
pub const METADATA_KEY: &str = "rapidbyte.postgresql";
/// The extension name of values in a system's own bytes.
pub const OPAQUE: &str = "arrow.opaque";
const VENDOR: &str = "PostgreSQL";

/// How a column's values are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// Boolean.
    Bool,
    /// Int16.
    Int2,
    /// Int32.
    Int4,
    /// Int64.
    Int8,
    /// UInt32.
    Oid,
    /// Float32.
    Float4,
    /// Float64.
    Float8,
    /// Utf8; the binary form is the text.
    Text,
    /// Binary.
    Bytea,
    /// FixedSizeBinary(16).
    Uuid,
    /// Utf8 document text.
    Json,
    /// Utf8 document text; the binary form has a version byte before it.
    Jsonb,
    /// Decimal128 (precision, scale).
    Decimal128(u8, i8),
    /// Decimal256 (precision, scale).
    Decimal256(u8, i8),
    /// Date32: days since 1970-01-01.
    Date,
    /// Time64: µs since midnight.
    Time,
    /// Timestamp: µs since 1970-01-01, no zone.
    Timestamp,
    /// Timestamp: µs since 1970-01-01 UTC.
    Timestamptz,
    /// Months, days, nanoseconds.
    Interval,
    /// A list of nullable elements.
    List(Box<Form>),
    /// The bytes of the send function; their number where it is always the same.
    Opaque(Option<i32>),
    /// Utf8: the server's text of the value. The column must be selected as `col::text`.
    TextCast,
}

impl Form {
    /// True if the source must select `col::text`.
    pub fn needs_text_cast(&self) -> bool {
        matches!(self, Self::TextCast)
    }

    /// The Arrow type.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 => DataType::Int64,
            Self::Oid => DataType::UInt32,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Text | Self::Json | Self::Jsonb | Self::TextCast => DataType::Utf8,
            Self::Bytea | Self::Opaque(None) => DataType::Binary,
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Opaque(Some(length)) => DataType::FixedSizeBinary(*length),
            Self::Decimal128(p, s) => DataType::Decimal128(*p, *s),
            Self::Decimal256(p, s) => DataType::Decimal256(*p, *s),
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::List(element) => {
                let item = Field::new("item", element.data_type(), true);
                DataType::List(Arc::new(item.with_metadata(element.extension(None))))
            }
        }
    }

    /// The extension type's entries of the field's metadata. An opaque form names `ty`.
    fn extension(&self, ty: Option<&PgType>) -> HashMap<String, String> {
        let (name, metadata) = match self {
            Self::Uuid => (types::UUID, String::new()),
            Self::Json | Self::Jsonb => (types::JSON, String::new()),
            Self::Opaque(_) => {
                let type_name = ty.map(PgType::display_name).unwrap_or_default();
                let metadata =
                    serde_json::json!({"type_name": type_name, "vendor_name": VENDOR}).to_string();
                (OPAQUE, metadata)
            }
            _ => return HashMap::new(),
        };
        HashMap::from([
            (EXTENSION_TYPE_NAME_KEY.to_owned(), name.to_owned()),
            (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata),
        ])
    }
}

/// Chooses the form of a column. `native`: the destination takes [`NATIVE_FORM`] values.
pub fn form(column: &Column, native: bool) -> Form {
    if !column.ty.has_binary() {
        return Form::TextCast;
    }
    if let Some(form) = exact(&column.ty) {
        return form;
    }
    if native {
        let (base, _) = column.stripped();
        let length = builtin::by_oid(base.oid).and_then(|builtin| builtin.length);
        return Form::Opaque(length);
    }
    portable(&column.ty, column.typmod).unwrap_or(Form::TextCast)
}

/// The form of the types that Arrow holds exactly.
fn exact(ty: &PgType) -> Option<Form> {
    let (base, _) = ty.stripped(-1);
    if base.is_textual() || matches!(base.kind, Kind::Enum { .. }) {
        return Some(Form::Text);
    }
    Some(match *builtin::by_oid(base.oid)? {
        builtin::BOOL => Form::Bool,
        builtin::INT2 => Form::Int2,
        builtin::INT4 => Form::Int4,
        builtin::INT8 => Form::Int8,
        builtin::OID => Form::Oid,
        builtin::FLOAT4 => Form::Float4,
        builtin::FLOAT8 => Form::Float8,
        builtin::BYTEA => Form::Bytea,
        builtin::UUID => Form::Uuid,
        builtin::JSON => Form::Json,
        builtin::JSONB => Form::Jsonb,
        _ => return None,
    })
}

/// The form of the types of which Arrow holds some values.
fn portable(ty: &PgType, typmod: i32) -> Option<Form> {
    let (base, typmod) = ty.stripped(typmod);
    if let Kind::Array { element } = &base.kind {
        let element = exact(element).or_else(|| portable(element, typmod))?;
        let nested = matches!(element, Form::List(_));
        return (!nested).then(|| Form::List(Box::new(element)));
    }
    Some(match *builtin::by_oid(base.oid)? {
        builtin::NUMERIC => decimal(typmod)?,
        builtin::DATE => Form::Date,
        builtin::TIME => Form::Time,
        builtin::TIMESTAMP => Form::Timestamp,
        builtin::TIMESTAMPTZ => Form::Timestamptz,
        builtin::INTERVAL => Form::Interval,
        _ => return None,
    })
}

fn decimal(typmod: i32) -> Option<Form> {
    let (precision, scale) = numeric_typmod(typmod)?;
    let digits = u8::try_from(precision)
        .ok()
        .filter(|p| (1..=76).contains(p))?;
    let scale = i8::try_from(scale).ok()?;
    if scale < 0 || i16::from(scale) > i16::from(digits) {
        return None;
    }
    Some(if digits <= 38 {
        Form::Decimal128(digits, scale)
    } else {
        Form::Decimal256(digits, scale)
    })
}

/// The Arrow field of a column, with the column itself in its metadata.
pub fn field(column: &Column, native: bool) -> Field {
    let form = form(column, native);
    let mut metadata = form.extension(Some(&column.ty));
    if let Ok(json) = serde_json::to_string(column) {
        metadata.insert(METADATA_KEY.to_owned(), json);
    }
    Field::new(&column.name, form.data_type(), !column.not_null).with_metadata(metadata)
}

/// What travels of a table or view beside its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// What `COMMENT ON TABLE` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Which table it is: equal for the same table of the same database of the same running server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// The schema of a relation's columns, with what else travels of it in its metadata.
pub fn schema(columns: &[Column], native: bool, table: &Table) -> Schema {
    let fields: Vec<_> = columns.iter().map(|column| field(column, native)).collect();
    let mut metadata = HashMap::new();
    if *table != Table::default()
        && let Ok(json) = serde_json::to_string(table)
    {
        metadata.insert(METADATA_KEY.to_owned(), json);
    }
    Schema::new_with_metadata(fields, metadata)
}

/// The table that a schema came from; nothing is known of one that is not PostgreSQL's.
///
/// `invalid_metadata` when the entry does not parse.
pub fn table_of(schema: &Schema) -> Result<Table, PgError> {
    let Some(json) = schema.metadata().get(METADATA_KEY) else {
        return Ok(Table::default());
    };
    serde_json::from_str(json).map_err(|error| {
        let text = format!("the PostgreSQL metadata of the schema: {error}");
        PgError::new(Owner::Internal, "invalid_metadata", text)
    })
}

/// The expression that selects the column in its form.
pub fn select_expression(column: &Column, native: bool) -> String {
    let name = quote_ident(&column.name);
    let (base, _) = column.ty.stripped(-1);
    if !form(column, native).needs_text_cast() {
        name
    } else if base.is_xml() && matches!(base.kind, Kind::Array { .. }) {
        // The output of an xml[] drops its elements' declarations; that of a text[] keeps them.
        format!("{name}::text[]::text")
    } else if base.oid == builtin::INET.oid {
        // Its cast to text is a function of its own, which adds the length of the mask to a host.
        format!("pg_catalog.textin(pg_catalog.inet_out({name}))")
    } else {
        format!("{name}::text")
    }
}

/// The column that a field came from, if it came from PostgreSQL, under the field's name.
///
/// `invalid_metadata` when the entry does not parse or is nested too deep.
pub fn column_of(field: &Field) -> Result<Option<Column>, PgError> {
    let Some(json) = field.metadata().get(METADATA_KEY) else {
        return Ok(None);
    };
    let bad = |what: String| {
        PgError::new(
            Owner::Internal,
            "invalid_metadata",
            format!(
                "the PostgreSQL metadata of field {:?}: {what}",
                field.name()
            ),
        )
        .in_column(field.name())
    };
    let mut column: Column = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
    if column.ty.depth() > MAX_DEPTH {
        return Err(bad(format!("its type is nested deeper than {MAX_DEPTH}")));
    }
    // The field may have been renamed on its way.
    column.name.clone_from(field.name());
    Ok(Some(column))
}

/// The column a field came from and its form, if the field still has one of the column's forms.
///
/// A field whose Arrow type was changed on the way has neither any more.
pub fn carried(field: &Field) -> Result<Option<(Column, Form)>, PgError> {
    let Some(column) = column_of(field)? else {
        return Ok(None);
    };
    let extension = types::extension_name(field);
    let found = [true, false]
        .into_iter()
        .map(|native| form(&column, native))
        .find(|form| {
            let name = form.extension(None);
            let name = name.get(EXTENSION_TYPE_NAME_KEY).map(String::as_str);
            form.data_type() == *field.data_type() && name == extension
        });
    Ok(found.map(|form| (column, form)))
}

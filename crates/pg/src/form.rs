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
//! | `reg*`, `int2vector`, `oidvector`, `tsquery` | Utf8, cast to text by the server | the same |
//! | types without binary send or receive | Utf8, cast to text by the server | the same |
//!
//! A domain is held like the type below it. "Opaque" is the canonical extension type
//! `arrow.opaque` over the bytes of the type's send function. A value that the portable form
//! cannot hold (NaN, infinity, BC years beyond Arrow's range, 24:00:00, two dimensions) stops
//! the decoder at that row. See "Data Types" in the PostgreSQL manual and "Canonical Extension
//! Types" in the Arrow documentation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Schema};
use rapidbyte_wire::types::OLDER_VALUES;
use serde::{Deserialize, Serialize};

use crate::builtin::{self, Builtin};
use crate::ident::quote_ident;
use crate::model::{Column, Kind, MAX_DEPTH, PgType};
use crate::types;
use crate::written;
use crate::{Owner, PgError};

/// The name of the native forms, in a connector's `native-forms` list.
pub const NATIVE_FORM: &str = "postgresql";
/// The key of a field's metadata that holds its [`Column`] as JSON, and of a schema's that holds its
/// [`Table`].
pub const METADATA_KEY: &str = "rapidbyte.postgresql";
pub use rapidbyte_wire::types::OPAQUE;
const VENDOR: &str = "PostgreSQL";

/// How a column's values are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The values of this built-in type as Arrow values of this type.
    Value(Builtin, DataType),
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
            Self::Value(_, data_type) => data_type.clone(),
            Self::TextCast => DataType::Utf8,
            Self::Opaque(Some(width)) => DataType::FixedSizeBinary(*width),
            Self::Opaque(None) => DataType::Binary,
            Self::List(element) => {
                let item = Field::new("item", element.data_type(), true);
                DataType::List(Arc::new(item.with_metadata(element.extension(None))))
            }
        }
    }

    /// The extension type's entries of the field's metadata. An opaque form names `ty`.
    fn extension(&self, ty: Option<&PgType>) -> HashMap<String, String> {
        let (name, metadata) = match self {
            Self::Opaque(_) => {
                let type_name = ty.map(PgType::display_name).unwrap_or_default();
                let metadata =
                    serde_json::json!({"type_name": type_name, "vendor_name": VENDOR}).to_string();
                (OPAQUE, metadata)
            }
            Self::Value(ty, _) => match types::held(*ty).and_then(|held| held.extension) {
                Some(name) => (name, String::new()),
                None => return HashMap::new(),
            },
            Self::List(_) | Self::TextCast => return HashMap::new(),
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
    let value = value(&column.ty, column.typmod);
    if let Some((form, true)) = value {
        return form;
    }
    if native {
        let (base, _) = column.stripped();
        let length = builtin::by_oid(base.oid).and_then(|builtin| builtin.length);
        return Form::Opaque(length);
    }
    // A list holds arrays of one dimension, and these have more.
    if column.is_nested() {
        return Form::TextCast;
    }
    let (base, typmod) = column.stripped();
    let form = match &base.kind {
        Kind::Array { element } => {
            self::value(element, typmod).map(|(element, _)| Form::List(Box::new(element)))
        }
        _ => value.map(|(form, _)| form),
    };
    form.unwrap_or(Form::TextCast)
}

/// The form of a single value of a type, and whether it holds every value.
fn value(ty: &PgType, typmod: i32) -> Option<(Form, bool)> {
    let (base, typmod) = ty.stripped(typmod);
    let is_text = base.is_textual() || matches!(base.kind, Kind::Enum { .. });
    let ty = match is_text {
        true => builtin::TEXT,
        false => *builtin::by_oid(base.oid)?,
    };
    let held = types::held(ty)?;
    Some((Form::Value(ty, (held.data_type)(typmod)?), held.exact))
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

/// The facts of a table or view that travel besides its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The text of `COMMENT ON TABLE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Which table it is: equal for the same table of the same database of the same running server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Tells its columns apart, whatever they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The values of rows that are older than a column, as texts by the column's name: the default that `ADD COLUMN` had.
    /// A schema has them under a key of their own, [`OLDER_VALUES`].
    #[serde(skip)]
    pub older: BTreeMap<String, String>,
}

/// All columns of a relation by their numbers. A server uses no number again, so the numbers prove that a column was
/// renamed or dropped. Unknown where the role may not read the identity of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `system_identifier` of `pg_control_system()`, the OID of the database and the OID of the relation, with `/`
    /// between them. A relation that was created again has another one.
    pub relation: String,
    /// A transaction id that the server has not reached yet. A copy of the server that was restored from a backup has a
    /// smaller one for a while, and may give numbers to other columns.
    #[serde(default)]
    pub xid: i64,
    /// `pg_attribute.attnum` by name.
    pub columns: BTreeMap<String, i16>,
}

impl Origin {
    /// The highest number of a column. A column that the relation gets later has a higher one.
    pub fn newest(&self) -> Option<i16> {
        self.columns.values().max().copied()
    }

    /// The number of the column that a field came from, whatever the field is called now.
    ///
    /// `invalid_metadata` when the entry of the field does not parse.
    pub fn number(&self, field: &Field) -> Result<Option<i16>, PgError> {
        let column = column_as_read(field)?;
        Ok(column.and_then(|column| self.columns.get(&column.name).copied()))
    }
}

/// The schema of a relation's columns, with what else travels of it in its metadata.
pub fn schema(columns: &[Column], native: bool, table: &Table) -> Schema {
    let fields: Vec<_> = columns.iter().map(|column| field(column, native)).collect();
    let mut metadata = HashMap::new();
    let is_known = table.comment.is_some() || table.identity.is_some() || table.origin.is_some();
    if let (true, Ok(json)) = (is_known, serde_json::to_string(table)) {
        metadata.insert(METADATA_KEY.to_owned(), json);
    }
    if let (false, Ok(json)) = (table.older.is_empty(), serde_json::to_string(&table.older)) {
        metadata.insert(OLDER_VALUES.to_owned(), json);
    }
    Schema::new_with_metadata(fields, metadata)
}

/// The table that a schema came from; nothing is known of one that is not PostgreSQL's.
///
/// `invalid_metadata` when the entry does not parse.
pub fn table_of(schema: &Schema) -> Result<Table, PgError> {
    let invalid = |error: serde_json::Error| {
        let text = format!("the PostgreSQL metadata of the schema: {error}");
        PgError::new(Owner::Schema, "invalid_metadata", text)
    };
    let Some(json) = schema.metadata().get(METADATA_KEY) else {
        return Ok(Table::default());
    };
    let mut table: Table = serde_json::from_str(json).map_err(invalid)?;
    if let Some(json) = schema.metadata().get(OLDER_VALUES) {
        table.older = serde_json::from_str(json).map_err(invalid)?;
    }
    Ok(table)
}

/// The expression that selects the column in its form.
pub fn select_expression(column: &Column, native: bool) -> String {
    let name = quote_ident(&column.name);
    let (base, _) = column.ty.stripped(-1);
    if !form(column, native).needs_text_cast() {
        name
    } else if base.is_xml() && matches!(base.kind, Kind::Array { .. }) {
        // The output of an xml[] drops its elements' declarations; the output of a text[] keeps them.
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
/// `invalid_metadata` when the entry does not parse, is nested too deep, or has a text that is not a type where one has to
/// be: whoever wrote a file may have written anything there.
pub fn column_of(field: &Field) -> Result<Option<Column>, PgError> {
    let mut column = column_as_read(field)?;
    if let Some(column) = &mut column {
        // The field may have been renamed on its way.
        column.name.clone_from(field.name());
    }
    Ok(column)
}

/// As [`column_of`], under the name that it has at its source.
fn column_as_read(field: &Field) -> Result<Option<Column>, PgError> {
    let Some(json) = field.metadata().get(METADATA_KEY) else {
        return Ok(None);
    };
    let bad = |what: String| {
        PgError::new(
            Owner::Schema,
            "invalid_metadata",
            format!(
                "the PostgreSQL metadata of field {:?}: {what}",
                field.name()
            ),
        )
        .in_column(field.name())
    };
    let column: Column = serde_json::from_str(json).map_err(|error| bad(error.to_string()))?;
    if column.ty.depth() > MAX_DEPTH {
        return Err(bad(format!("its type is nested deeper than {MAX_DEPTH}")));
    }
    if let Some(problem) = written::problem(&column) {
        return Err(bad(problem));
    }
    Ok(Some(column))
}

/// The column a field came from and its form, if the field still has one of the column's forms.
///
/// A field whose Arrow type was changed on the way has neither any more.
pub fn carried(field: &Field) -> Result<Option<(Column, Form)>, PgError> {
    let Some(column) = column_of(field)? else {
        return Ok(None);
    };
    let extension = rapidbyte_wire::types::extension_name(field);
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

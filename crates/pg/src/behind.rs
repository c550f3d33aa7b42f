//! The columns at the source behind the columns of rows that are kept as JSON objects, and are read again later.

use std::collections::BTreeMap;

use arrow_schema::{DataType, Field, Schema};
use rapidbyte_wire::types::extension_name;

use crate::PgError;
use crate::form;

/// The identity of columns, as text.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Of rows before the transforms. `None` if nobody knows.
    before: Option<String>,
    /// Of rows behind the transforms.
    behind: Option<String>,
}

/// The content of such a text.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Numbers {
    relation: String,
    /// `pg_attribute.attnum` at the source, by the names in the record.
    columns: BTreeMap<String, i16>,
    /// The types of columns whose values could be others in another type: all but booleans, whole numbers, `text` and
    /// `varchar`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    types: BTreeMap<String, String>,
}

impl Columns {
    /// Of rows with this schema, as they come to a destination.
    ///
    /// `invalid_metadata` when an entry of the schema does not parse.
    pub fn of(schema: &Schema) -> Result<Self, PgError> {
        let Some(origin) = form::table_of(schema)?.origin else {
            return Ok(Self::default());
        };
        let (mut behind, mut types) = (BTreeMap::new(), BTreeMap::new());
        for field in schema.fields() {
            if let Some(number) = origin.number(field)? {
                behind.insert(field.name().clone(), number);
            }
            let column = form::column_of(field)?;
            if let Some(column) = column.filter(|column| !is_plain(field, &column.type_text)) {
                types.insert(field.name().clone(), column.type_text);
            }
        }
        let written = |columns, types| {
            let relation = origin.relation.clone();
            let numbers = Numbers {
                relation,
                columns,
                types,
            };
            let text = serde_json::to_string(&numbers).ok();
            text.filter(|text| text.len() <= MAX_BYTES)
        };
        Ok(Self {
            // The types before the transforms are not known here, and such rows have portable values.
            before: written(origin.columns.clone(), BTreeMap::new()),
            behind: written(behind, types),
        })
    }

    /// The identity of the columns of rows from `source`, `transform` or `destination`. Records of a source have none.
    pub fn of_origin(&self, origin: &str) -> Option<&str> {
        match origin {
            "transform" => self.before.as_deref(),
            "destination" => self.behind.as_deref(),
            _ => None,
        }
    }

    /// The name of a column that was another column of the same table, or had another type, when [`Self::of_origin`] gave
    /// `then`.
    pub fn changed(&self, origin: &str, then: &str) -> Option<String> {
        let parsed = |text: &str| serde_json::from_str::<Numbers>(text).ok();
        let (now, then) = (parsed(self.of_origin(origin)?)?, parsed(then)?);
        let is_changed = |(name, number): &(&String, &i16)| {
            now.columns.get(*name).is_some_and(|now| now != *number)
        };
        let mut columns = then
            .columns
            .iter()
            .filter(|_| now.relation == then.relation);
        let moved = columns.find(is_changed).map(|(name, _)| name);
        let is_in_both =
            |name: &&String| now.columns.contains_key(*name) && then.columns.contains_key(*name);
        let mut typed = then.types.keys().chain(now.types.keys()).filter(is_in_both);
        let typed = typed.find(|name| now.types.get(*name) != then.types.get(*name));
        moved.or(typed).cloned()
    }
}

/// Whether the values of a field of a type of PostgreSQL are the same in a wider type.
fn is_plain(field: &Field, type_text: &str) -> bool {
    let is_text = type_text == "text" || type_text.starts_with("character varying");
    let is_simple = match field.data_type() {
        DataType::Boolean => true,
        DataType::Utf8 | DataType::LargeUtf8 => is_text,
        other => other.is_integer(),
    };
    is_simple && extension_name(field) != Some(form::OPAQUE)
}

/// The columns of a wider table are not compared.
const MAX_BYTES: usize = 64 << 10;

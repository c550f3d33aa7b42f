//! How columns say that they came from BSON: the native forms, and the types of portable columns.

use std::collections::HashMap;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field};
use rapidbyte_bson::Kind;
use rapidbyte_wire::types::extension_name;

/// The name of the native forms, in a connector's `native-forms` list.
pub const NATIVE_FORM: &str = "mongodb";
/// The key of a field's metadata that has the name of the BSON type behind a `string`: `objectId` or `decimal`.
pub const METADATA_KEY: &str = "rapidbyte.mongodb";
/// The column of whole documents, in their native form or as JSON.
pub const DOCUMENT: &str = "document";
/// The key of every document.
pub const ID: &str = "_id";

const OPAQUE: &str = "arrow.opaque";
const VENDOR: &str = "MongoDB";

/// What a native column holds, as `Binary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// The bytes of a whole document, from its length to its end.
    Document,
    /// A single value: the byte of its type, then its bytes.
    Value,
}

impl Native {
    fn type_name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Value => "value",
        }
    }

    /// A column of this form.
    pub fn field(self, name: &str, nullable: bool) -> Field {
        let type_name = self.type_name();
        let metadata = serde_json::json!({"type_name": type_name, "vendor_name": VENDOR});
        Field::new(name, DataType::Binary, nullable).with_metadata(HashMap::from([
            (EXTENSION_TYPE_NAME_KEY.to_owned(), OPAQUE.to_owned()),
            (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata.to_string()),
        ]))
    }

    /// The native form of a column. `None` for a column of another system or a portable column.
    pub fn of(field: &Field) -> Option<Self> {
        if extension_name(field) != Some(OPAQUE) || *field.data_type() != DataType::Binary {
            return None;
        }
        let metadata = field.metadata().get(EXTENSION_TYPE_METADATA_KEY)?;
        let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
        if metadata.get("vendor_name")?.as_str()? != VENDOR {
            return None;
        }
        let type_name = metadata.get("type_name")?.as_str()?;
        let mut forms = [Self::Document, Self::Value].into_iter();
        forms.find(|form| form.type_name() == type_name)
    }
}

/// True for a column in the native form of any system.
pub(crate) fn is_opaque(field: &Field) -> bool {
    extension_name(field) == Some(OPAQUE)
}

/// Says that the strings of a column are values of this type: ObjectIds or Decimal128s. [`crate::Encoder`] writes them as
/// such.
#[must_use]
pub fn mark(field: Field, kind: Kind) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(METADATA_KEY.to_owned(), kind.name().to_owned());
    field.with_metadata(metadata)
}

/// The type that the strings of a column are [marked](mark) with.
pub fn marked(field: &Field) -> Option<Kind> {
    let name = field.metadata().get(METADATA_KEY)?;
    let mut kinds = [Kind::ObjectId, Kind::Decimal128].into_iter();
    kinds.find(|kind| kind.name() == name)
}

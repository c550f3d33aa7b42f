//! The plan of a stream: its collection, and what each column becomes.

use rapidbyte_document_store::{IdOf, Naming as _};
use rapidbyte_mongo::form::{self, Native};
use rapidbyte_mongo::{EncodeOptions, Encoder, JsonDocuments, SubMillisecond};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, is_uuid};

use crate::config::Settings;
use crate::layout::convert;

/// The digits of a Decimal128.
const DECIMAL_DIGITS: u8 = 34;

/// The type that each column gets, in order.
pub(crate) fn columns(schema: &Schema, options: EncodeOptions) -> Vec<ColumnPlan> {
    let plan = |field: &std::sync::Arc<Field>| {
        let alone = Schema::new(vec![field.clone()]);
        match Encoder::new(&alone, options) {
            Ok(_) => {
                let (fit, note) = fit(field, options);
                ColumnPlan {
                    column: field.name().clone(),
                    target_type: type_of(field, options),
                    fit,
                    note: note.map(str::to_owned),
                    stored_type: Some("any".to_owned()),
                }
            }
            Err(error) => ColumnPlan {
                column: field.name().clone(),
                target_type: String::new(),
                fit: Fit::Refused,
                note: Some(convert(error).message),
                stored_type: None,
            },
        }
    };
    schema.fields().iter().map(plan).collect()
}

fn fit(field: &Field, options: EncodeOptions) -> (Fit, Option<&'static str>) {
    use arrow_schema::TimeUnit::{Microsecond, Nanosecond};
    match field.data_type() {
        DataType::UInt64 => (Fit::Checked, Some("a value above 2^63 - 1 is refused")),
        DataType::Decimal128(digits, _) | DataType::Decimal256(digits, _)
            if *digits > DECIMAL_DIGITS =>
        {
            (
                Fit::Checked,
                Some("a value with more than 34 digits is refused"),
            )
        }
        DataType::Timestamp(Microsecond | Nanosecond, _) => match options.sub_millisecond {
            SubMillisecond::Refuse => (
                Fit::Checked,
                Some("a time that is finer than a millisecond is refused; see sub_millisecond"),
            ),
            SubMillisecond::Cut => (Fit::Lossy, Some("times are cut to milliseconds")),
            SubMillisecond::Text => (Fit::Exact, Some("written as strings")),
        },
        _ if is_json(field) && options.json == JsonDocuments::Values => {
            (Fit::Checked, Some("a text that is not JSON is refused"))
        }
        _ => (Fit::Exact, None),
    }
}

/// The name that MongoDB's `$type` has for the values of a column.
fn type_of(field: &Field, options: EncodeOptions) -> String {
    use DataType::*;
    let is_text = options.sub_millisecond == SubMillisecond::Text;
    match Native::of(field) {
        Some(Native::Document) => return "object".to_owned(),
        Some(Native::Value) => return "any".to_owned(),
        None => {}
    }
    if let Some(kind) = form::marked(field) {
        return kind.name().to_owned();
    }
    let name = match field.data_type() {
        Null => "null",
        Boolean => "bool",
        Int8 | Int16 | Int32 | UInt8 | UInt16 => "int",
        Int64 | UInt32 | UInt64 => "long",
        Float16 | Float32 | Float64 => "double",
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => "decimal",
        Utf8 | LargeUtf8 | Utf8View if is_json(field) && options.json == JsonDocuments::Values => {
            "any"
        }
        Binary | LargeBinary | BinaryView => "binData",
        FixedSizeBinary(_) if is_uuid(field) => "binData (UUID)",
        FixedSizeBinary(_) => "binData",
        Timestamp(unit, _) if is_text && *unit > arrow_schema::TimeUnit::Millisecond => "string",
        Date32 | Date64 | Timestamp(..) => "date",
        List(_) | LargeList(_) | FixedSizeList(..) => "array",
        Struct(_) | Map(..) => "object",
        _ => "string",
    };
    name.to_owned()
}

/// The notes of a plan.
pub(crate) fn notes(
    target: &Target,
    settings: &Settings,
    id_of: &IdOf,
    is_new: bool,
) -> Vec<String> {
    let mut notes = vec![match id_of {
        IdOf::Column(_) => "the column _id is the _id of each document".to_owned(),
        IdOf::Keys(keys) if keys.len() == 1 => {
            format!("_id is the value of {}", target.primary_key.concat())
        }
        IdOf::Keys(_) => format!("_id is a document of {}", target.primary_key.join(", ")),
        IdOf::Made => "the connector makes the _id of each document".to_owned(),
    }];
    match target.write_mode {
        _ if is_new => notes.push(
            "the rows of the first commit go to a collection that gets its name at the commit".to_owned(),
        ),
        WriteMode::Append => notes.push(
            "rows are visible before the commit; rows of an attempt that fails are deleted when the next run begins"
                .to_owned(),
        ),
        WriteMode::Upsert => notes.push(
            "each row replaces the whole document with its _id, and is visible before the commit".to_owned(),
        ),
        WriteMode::Replace => {
            notes.push("a new collection is filled, and replaces the target at the commit".to_owned());
        }
    }
    notes.push(format!(
        "the cursor is kept in {}",
        settings.namespace(&settings.checkpoint_collection)
    ));
    notes
}

//! The plan of a stream: its container, and what each column becomes.

use rapidbyte_cosmos::Container;
use rapidbyte_document_store::{IdOf, Naming as _};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::is_json;

use crate::config::{Decimals, Settings};
use crate::layout::{ID, MARK, refusal};

/// The type that each column gets, in order.
pub(crate) fn columns(schema: &Schema, settings: &Settings, id_of: &IdOf) -> Vec<ColumnPlan> {
    let allows_decimals = settings.decimals == Decimals::Text;
    let plan = |(place, field): (usize, &std::sync::Arc<Field>)| {
        let refused = match *id_of == IdOf::Column(place) {
            true => None,
            false => refusal(field, allows_decimals),
        };
        let (target_type, fit, note) = match refused {
            Some(error) => {
                let hint = error.hint.map(|hint| format!(": {hint}"));
                let note = error.message + &hint.unwrap_or_default();
                (String::new(), Fit::Refused, Some(note))
            }
            None if *id_of == IdOf::Column(place) => {
                let note = "the id of a document is a string";
                ("string".to_owned(), Fit::Exact, Some(note.to_owned()))
            }
            None => {
                let (ty, fit, note) = fit(field, settings);
                (ty.to_owned(), fit, note.map(str::to_owned))
            }
        };
        ColumnPlan {
            column: field.name().clone(),
            stored_type: (fit != Fit::Refused).then(|| "any".to_owned()),
            target_type,
            fit,
            note,
        }
    };
    schema.fields().iter().enumerate().map(plan).collect()
}

fn fit(field: &Field, settings: &Settings) -> (&'static str, Fit, Option<&'static str>) {
    use DataType::*;
    match field.data_type() {
        Null => ("null", Fit::Exact, None),
        Boolean => ("boolean", Fit::Exact, None),
        Int64 | UInt64 if settings.documents.text_integers => {
            ("string", Fit::Exact, Some("written as strings"))
        }
        Int64 | UInt64 => (
            "number",
            Fit::Checked,
            Some("a value beyond 2^53 - 1 is refused; see integers"),
        ),
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => ("number", Fit::Exact, None),
        Float16 | Float32 | Float64 => (
            "number",
            Fit::Checked,
            Some("a value that is not finite, and -0.0, are refused"),
        ),
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => {
            ("string", Fit::Exact, Some("written as strings"))
        }
        _ if is_json(field) && !settings.documents.text_json => (
            "any",
            Fit::Checked,
            Some("a document that would come back changed is refused; see json"),
        ),
        List(_) | LargeList(_) | FixedSizeList(..) => ("array", Fit::Checked, None),
        Struct(_) | Map(..) => ("object", Fit::Checked, None),
        _ => ("string", Fit::Exact, None),
    }
}

/// A new container keeps its partition key for ever. Errors: `partition_key_missing` if no column has its values.
pub(crate) fn ensure_partition_column(schema: &Schema, settings: &Settings) -> Result<()> {
    let Some(key) = &settings.partition_key else {
        return Ok(());
    };
    let column = key.path().first().map_or("", String::as_str);
    if column == ID || schema.index_of(column).is_ok() {
        return Ok(());
    }
    let text = format!(
        "the stream does not have the column {column:?}, which the partition key {key} needs"
    );
    Err(Error::schema("partition_key_missing", text)
        .hint("name a column of the stream: Azure cannot change the partition key of a container later")
        .at("config.partition_key"))
}

/// The notes of a plan.
pub(crate) fn notes(
    target: &Target,
    settings: &Settings,
    id_of: &IdOf,
    found: Option<&Container>,
) -> Vec<String> {
    let mut notes = vec![match id_of {
        IdOf::Column(_) => format!("the column {ID} is the id of each document"),
        IdOf::Keys(_) => format!("the id is the text of {}", target.primary_key.join(" | ")),
        IdOf::Made => "the connector makes the id of each document".to_owned(),
    }];
    match target.write_mode {
        WriteMode::Append => notes.push(
            "rows are visible before the commit; rows of an attempt that fails are deleted when the next run begins"
                .to_owned(),
        ),
        WriteMode::Upsert => notes.push(
            "each row replaces the whole document with its id in its partition, and is visible before the commit".to_owned(),
        ),
        WriteMode::Replace => {
            notes.push("rows are visible before the commit, which deletes the documents that were there before".to_owned());
            if *id_of != IdOf::Made {
                notes.push(format!("the field {MARK} of each document says which run wrote it"));
            }
        }
    }
    let partition = match found {
        None => {
            let made = settings.partition_key.clone();
            let text = made.as_ref().map_or(format!("/{ID}"), ToString::to_string);
            notes.push(format!("the container gets the partition key {text}"));
            made
        }
        Some(found) => {
            if found.has_ttl {
                notes.push("documents of the container end by themselves (defaultTtl)".to_owned());
            }
            Some(found.partition.clone())
        }
    };
    if let Some(partition) = partition {
        let column = partition.path().first().map_or("", String::as_str);
        let is_key = column == ID || target.primary_key.iter().any(|key| key == column);
        if *id_of != IdOf::Made && !is_key {
            notes.push(format!(
                "an id is unique in its partition only: a row whose {partition} changes becomes a second document"
            ));
        }
        if column == ID {
            notes.push(
                "each document is a partition of its own, so no batch has several".to_owned(),
            );
        }
    }
    notes.push(format!(
        "the cursor is kept in {}",
        settings.namespace(&settings.checkpoint_container)
    ));
    notes
}

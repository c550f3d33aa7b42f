//! The columns of a stream: declared, or inferred from its first documents.

use std::sync::Arc;

use rapidbyte_formats::jsonl::{Inferred, REST, Sampler, UnknownKeys};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{mark_json_strings, parse_field, type_name};

use crate::config::{Nested, Settled};
use crate::pages::Pages;
use crate::read::refuse;

/// A stream's columns and how they became known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub schema: SchemaRef,
    pub notes: Vec<String>,
    /// Nobody declared them.
    pub inferred: bool,
}

/// The declared columns; without a declaration the inferred ones.
pub(crate) fn know(pages: &mut Pages, stream: &Settled, documents: u32) -> Result<Known> {
    let mut known = match &stream.schema {
        Some(schema) => Known {
            schema: schema.clone(),
            notes: Vec::new(),
            inferred: false,
        },
        None => infer(pages, stream, documents)?,
    };
    if stream.unknown_keys == UnknownKeys::Collect {
        let rest = parse_field(REST, "json", true).map_err(Error::internal)?;
        let fields = known.schema.fields().iter().cloned();
        let fields: Vec<_> = fields.chain([Arc::new(rest)]).collect();
        known.schema = Arc::new(Schema::new(fields));
        known
            .notes
            .push(format!("{REST}: json (fields that are not columns)"));
    }
    known.schema = Arc::new(mark_json_strings(&known.schema));
    Ok(known)
}

fn infer(pages: &mut Pages, stream: &Settled, documents: u32) -> Result<Known> {
    let mut sampler = Sampler::new(documents.into(), usize::MAX).with_times();
    while let Some(lines) = pages.next_page()? {
        sampler.begin_file();
        let pushed = sampler.push(&lines).and_then(|()| match sampler.is_done() {
            true => {
                sampler.end_of_sample();
                Ok(())
            }
            false => sampler.end_of_file(),
        });
        pushed.map_err(|error| refuse(error, pages, stream))?;
        if sampler.is_done() {
            break;
        }
    }
    let inferred = sampler
        .finish()
        .map_err(|error| refuse(error, pages, stream))?;
    let known = columns_of(stream, &inferred)?;
    if known.schema.fields().is_empty() {
        let text = "no document has a field, so the columns cannot be inferred";
        return Err(Error::schema("no_columns", text).hint(format!(
            "declare them under config.streams.{}.schema",
            stream.name
        )));
    }
    Ok(known)
}

/// The inferred columns with the declared types, and then the columns that are only declared.
fn columns_of(stream: &Settled, inferred: &Inferred) -> Result<Known> {
    let (mut fields, mut notes) = (Vec::new(), Vec::new());
    for (field, note) in inferred.schema.fields().iter().zip(&inferred.notes) {
        let is_nested = matches!(field.data_type(), DataType::Struct(_) | DataType::List(_));
        let name = field.name();
        // Where unknown fields are collected, a field of that column's name is one of them.
        if name == REST && stream.unknown_keys == UnknownKeys::Collect {
            continue;
        }
        if let Some(declared) = declared(stream, name) {
            fields.push(declared.clone());
            notes.push(format!("{name}: {} (declared)", type_name(declared)));
        } else if is_nested && stream.nested == Nested::Json {
            let json = parse_field(name, "json", field.is_nullable()).map_err(Error::internal)?;
            fields.push(Arc::new(json));
            notes.push(format!("{name}: json (the values are objects or arrays)"));
        } else {
            fields.push(field.clone());
            notes.push(note.clone());
        }
    }
    for declared in stream.types.iter().flat_map(|schema| schema.fields()) {
        if inferred.schema.field_with_name(declared.name()).is_err() {
            fields.push(declared.clone());
            let ty = type_name(declared);
            notes.push(format!("{}: {ty} (declared)", declared.name()));
        }
    }
    Ok(Known {
        schema: Arc::new(Schema::new(fields)),
        notes,
        inferred: true,
    })
}

/// The columns that nobody has declared.
pub(crate) fn inferred_names(stream: &Settled, schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter().map(|field| field.name());
    let inferred = fields.filter(|name| declared(stream, name).is_none() && *name != REST);
    inferred.cloned().collect()
}

/// The column's declaration under `types`.
fn declared<'a>(stream: &'a Settled, name: &str) -> Option<&'a Arc<Field>> {
    let types = stream.types.as_ref()?;
    types.fields().find(name).map(|(_, field)| field)
}

//! The columns of a collection: declared, or inferred from a sample.

use std::sync::Arc;

use rapidbyte_bson::{Builder, Kind};
use rapidbyte_mongo::form::{self, DOCUMENT, ID};
use rapidbyte_mongo::{DecodeOptions, Decoder, Native, Sampled, Sampler, UnknownKeys};
use rapidbyte_mongo_client::{Client, number_of};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, mark_json_strings, parse_field, type_name};

use crate::collection::Collection;
use crate::config::{Documents, Settled, SettledStream, Unknown};
use crate::error::{convert, malformed};
use crate::{increment, query};

/// The column of fields without a column.
pub(crate) const REST: &str = "_rest";
/// Bytes of a sample: more documents of such a size say little more.
const MAX_SAMPLE_BYTES: usize = 4 << 20;
/// Documents of one answer to a sample.
const SAMPLE_BATCH: u32 = 250;
/// For the search of a document that has a declared field, in milliseconds.
const MAX_SEARCH_MS: i32 = 10_000;
/// The server's number for a command that took longer than it was given.
const MAX_TIME_EXPIRED: i32 = 50;

/// The columns of a collection, and how they became known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub schema: SchemaRef,
    /// The names of each column's BSON types. Empty for a column that no field is in.
    pub types: Vec<String>,
    pub notes: Vec<String>,
    /// Columns whose types nobody declared.
    pub inferred: Vec<String>,
}

/// Finds the columns out. A collection whose documents are whole is sampled for its `_id` alone.
pub(crate) fn know(
    client: &mut Client,
    settings: &Settled,
    collection: &Collection,
    documents: Documents,
) -> Result<Known> {
    let stream = settings.stream(&collection.name);
    let mut known = match documents {
        Documents::Columns => columns(client, settings, collection, &stream)?,
        Documents::Json => {
            let document = json(DOCUMENT, false)?;
            let id = match declares(&stream, ID) {
                true => None,
                false => Some(sampled_id(client, settings, collection)?),
            };
            whole(&stream, id, document)
        }
        Documents::Bson => {
            let id = Native::Value.field(ID, collection.is_view);
            let document = Native::Document.field(DOCUMENT, false);
            let id = (!declares(&stream, ID)).then(|| (id, String::new()));
            whole(&stream, id, document)
        }
    };
    known.schema = Arc::new(as_strings(&known.schema));
    Ok(known)
}

/// Columns of strings are marked so that a column of JSON has them as strings: "5" is not the number 5. A Decimal128 is a
/// number.
fn as_strings(schema: &Schema) -> Schema {
    let marked = mark_json_strings(schema);
    let fields = schema.fields().iter().zip(marked.fields());
    let fields = fields.map(|(plain, marked)| match form::marked(plain) {
        Some(Kind::Decimal128) => plain.clone(),
        _ => marked.clone(),
    });
    Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())
}

/// How documents become the `chosen` ones of the columns of a stream.
pub(crate) fn decoding(
    settings: &Settled,
    stream: &str,
    documents: Documents,
    (schema, chosen): (&Schema, &Schema),
) -> DecodeOptions {
    let settled = settings.stream(stream);
    let is_columns = documents == Documents::Columns;
    let unknown = unknown_keys(&settled);
    let names = schema.fields().iter().map(|field| field.name());
    let special = match documents {
        Documents::Columns if unknown == Unknown::Collect => REST,
        Documents::Columns => "",
        Documents::Json | Documents::Bson => DOCUMENT,
    };
    let unwanted = names.filter(|name| *name != special && chosen.field_with_name(name).is_err());
    DecodeOptions {
        json: settings.json,
        rest: (is_columns && unknown == Unknown::Collect).then(|| REST.to_owned()),
        whole: (documents == Documents::Json).then(|| DOCUMENT.to_owned()),
        unwanted: unwanted.cloned().collect(),
        unknown_keys: match is_columns && unknown == Unknown::Refuse {
            true => UnknownKeys::Refuse,
            false => UnknownKeys::Ignore,
        },
    }
}

fn unknown_keys(stream: &SettledStream) -> Unknown {
    let default = match stream.schema {
        Some(_) => Unknown::Refuse,
        None => Unknown::Collect,
    };
    stream.unknown_keys.unwrap_or(default)
}

fn declares(stream: &SettledStream, name: &str) -> bool {
    let schema = stream.schema.as_ref();
    schema.is_some_and(|schema| schema.field_with_name(name).is_ok())
}

fn json(name: &str, nullable: bool) -> Result<Field> {
    parse_field(name, "json", nullable).map_err(Error::internal)
}

fn columns(
    client: &mut Client,
    settings: &Settled,
    collection: &Collection,
    stream: &SettledStream,
) -> Result<Known> {
    let mut known = match &stream.schema {
        Some(schema) => Known {
            types: vec![String::new(); schema.fields().len()],
            schema: schema.clone(),
            notes: Vec::new(),
            inferred: Vec::new(),
        },
        None => inferred(client, settings, collection, stream)?,
    };
    // A type that no value of BSON has is refused before the run.
    Decoder::new(&known.schema, DecodeOptions::default()).map_err(convert)?;
    if unknown_keys(stream) == Unknown::Collect {
        let fields = known.schema.fields().iter().cloned();
        let fields: Vec<_> = fields.chain([Arc::new(json(REST, true)?)]).collect();
        known.schema = Arc::new(Schema::new(fields));
        known.types.push(String::new());
        known
            .notes
            .push(format!("{REST}: json (fields that are not columns)"));
    }
    Ok(known)
}

/// The columns of a sample with the types that are declared for single fields, and then the fields that are only declared.
fn inferred(
    client: &mut Client,
    settings: &Settled,
    collection: &Collection,
    stream: &SettledStream,
) -> Result<Known> {
    let sampled = sample(client, settings, collection)?;
    let declared = |name: &str| {
        let types = stream.types.as_ref()?;
        types.fields().find(name).map(|(_, field)| field)
    };
    let (mut fields, mut types, mut inferred) = (Vec::new(), Vec::new(), Vec::new());
    let mut notes = sampled.notes.clone();
    let collects = unknown_keys(stream) == Unknown::Collect;
    for (field, of) in sampled.schema.fields().iter().zip(&sampled.types) {
        let name = field.name();
        // A field of the name of the rest is a part of the rest.
        if collects && name == REST {
            continue;
        }
        fields.push(match declared(name) {
            Some(declared) => {
                let of_column = format!("{name}: ");
                notes.retain(|note| !note.starts_with(&of_column));
                // Each document has an `_id`.
                let is_nullable = declared.is_nullable() && field.is_nullable();
                Arc::new(declared.as_ref().clone().with_nullable(is_nullable))
            }
            None => {
                inferred.push(name.clone());
                field.clone()
            }
        });
        types.push(of.clone());
    }
    for field in stream.types.iter().flat_map(|types| types.fields()) {
        let mut reason = "declared";
        if sampled.schema.field_with_name(field.name()).is_err() {
            if sampled.documents > 0 && !exists(client, settings, collection, field.name())? {
                return Err(unknown_field(field.name(), &sampled.schema));
            }
            reason = "declared; no document of the sample has the field";
            fields.push(field.clone());
            types.push(String::new());
        }
        notes.push(format!("{}: {} ({reason})", field.name(), type_name(field)));
    }
    Ok(Known {
        schema: Arc::new(Schema::new(fields)),
        types,
        notes,
        inferred,
    })
}

/// Whether a document of the collection has the field. Without an index the server looks at all documents: if that takes
/// too long, nobody knows better than the operator.
fn exists(
    client: &mut Client,
    settings: &Settled,
    collection: &Collection,
    field: &str,
) -> Result<bool> {
    // In a condition, it would be a path or an operator.
    if field.is_empty() || field.contains('.') || field.starts_with('$') {
        return Ok(false);
    }
    let mut command = Builder::new();
    command.string("find", &collection.name);
    command.open_document("filter").open_document(field);
    command.boolean("$exists", true).close().close();
    command.open_document("projection").int32(ID, 1).close();
    command.int32("limit", 1).int32("batchSize", 1);
    command.int32("maxTimeMS", MAX_SEARCH_MS);
    let found = client.find(&settings.database, command);
    let found = found.and_then(|mut cursor| {
        let batch = cursor.next(client, 1)?;
        let found = batch.map(|batch| batch.documents().map(Iterator::count));
        cursor.close(client)?;
        Ok(found.transpose()?.unwrap_or(0) > 0)
    });
    match found {
        Err(error) if number_of(&error) == Some(MAX_TIME_EXPIRED) => Ok(true),
        found => found,
    }
}

fn unknown_field(name: &str, sampled: &Schema) -> Error {
    let names = sampled.fields().iter().map(|field| field.name().as_str());
    let names: Vec<_> = names.take(query::MAX_NAMED).collect();
    let text = format!("types names the field {name}, which no document of the collection has");
    let hint = match name.split_once('.') {
        Some((outer, _)) => format!(
            "types names fields of the document itself: declare {outer} as json, or as struct<…>"
        ),
        None => format!(
            "correct the name, or remove it: the sample has {}",
            names.join(", ")
        ),
    };
    Error::config("unknown_column", text)
        .hint(hint)
        .in_column(name)
}

/// `_id`, the declared columns and the document.
fn whole(stream: &SettledStream, id: Option<(Field, String)>, document: Field) -> Known {
    let mut fields = Vec::new();
    let mut types = Vec::new();
    if let Some((id, of)) = id {
        fields.push(Arc::new(id));
        types.push(of);
    }
    let declared = stream.schema.iter().flat_map(|schema| schema.fields());
    for field in declared.filter(|field| field.name() != DOCUMENT) {
        fields.push(field.clone());
        types.push(String::new());
    }
    fields.push(Arc::new(document));
    types.push("object".to_owned());
    Known {
        schema: Arc::new(Schema::new(fields)),
        types,
        notes: Vec::new(),
        inferred: Vec::new(),
    }
}

/// The column of `_id`, and its types.
fn sampled_id(
    client: &mut Client,
    settings: &Settled,
    collection: &Collection,
) -> Result<(Field, String)> {
    let sampled = sample(client, settings, collection)?;
    Ok(match sampled.schema.index_of(ID) {
        Ok(at) => {
            let field = sampled.schema.field(at).clone();
            (
                field.with_nullable(collection.is_view),
                sampled.types[at].clone(),
            )
        }
        // No document, or a view without it.
        Err(_) => (json(ID, true)?, String::new()),
    })
}

/// Half of the documents from each end, because older documents often lack newer fields. Of a view, all from its
/// beginning: sorting it may take long.
fn sample(client: &mut Client, settings: &Settled, collection: &Collection) -> Result<Sampled> {
    let wanted = settings.sample_documents;
    let halves = match collection.is_view {
        true => vec![(wanted, false)],
        false => vec![(wanted.div_ceil(2), false), (wanted / 2, true)],
    };
    let mut sampler = Sampler::new();
    for (limit, is_backward) in halves.into_iter().filter(|(limit, _)| *limit > 0) {
        let mut command = Builder::new();
        command.string("find", &collection.name);
        command.int32("limit", i32::try_from(limit).unwrap_or(i32::MAX));
        command.int32(
            "batchSize",
            i32::try_from(limit.min(SAMPLE_BATCH)).unwrap_or(i32::MAX),
        );
        if is_backward {
            command.open_document("sort").int32(ID, -1).close();
        }
        let mut cursor = client.find(&settings.database, command)?;
        let mut bytes = 0;
        let mut batch = cursor.next(client, SAMPLE_BATCH)?;
        while let Some(documents) = batch {
            bytes += documents.bytes()?;
            for document in documents.documents()? {
                sampler.push(document?).map_err(malformed)?;
            }
            if bytes >= MAX_SAMPLE_BYTES {
                break;
            }
            batch = cursor.next(client, SAMPLE_BATCH)?;
        }
        cursor.close(client)?;
    }
    let mut sampled = sampler.finish();
    if collection.is_view || sampled.documents == 0 {
        let fields = sampled.schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        sampled.schema = Schema::new(fields.collect::<Vec<_>>());
    }
    if sampled.documents == 0 {
        sampled
            .notes
            .push("no document, so no inferred column".to_owned());
    }
    Ok(sampled)
}

/// The stream that a collection is.
pub(crate) fn stream(collection: &Collection, mut known: Known) -> Result<Stream> {
    let mut stream = Stream::new(&collection.name, &known.schema)?;
    let types = known.types.iter().zip(known.schema.fields());
    stream.source_types = types
        .map(|(found, field)| match found.is_empty() {
            true => type_name(field),
            false => found.clone(),
        })
        .collect();
    let id = known.schema.field_with_name(ID).ok();
    // The _id of a view is what its pipeline makes of it.
    if let Some(id) = id.filter(|_| !collection.is_view) {
        match is_json(id) {
            false => stream.primary_key = vec![ID.to_owned()],
            // JSON documents are equal in many spellings, and databases have no keys of them.
            true => known.notes.push(format!("no key: {ID} is json")),
        }
    }
    stream.cursor_fields = increment::candidates(&known.schema, &known.types);
    stream.notes = known.notes;
    if collection.is_view {
        stream.notes.push("a view".to_owned());
    }
    stream.inferred = known.inferred;
    Ok(stream)
}

/// The columns that a read gives: those of the plan, in the wanted order.
pub(crate) fn chosen(schema: &Schema, wanted: Option<&[String]>) -> Result<SchemaRef> {
    let Some(wanted) = wanted else {
        return Ok(Arc::new(schema.clone()));
    };
    let fields = wanted
        .iter()
        .map(|name| match schema.field_with_name(name) {
            Ok(field) => Ok(field.clone()),
            Err(_) => {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                let names: Vec<_> = names.take(query::MAX_NAMED).collect();
                let text = format!("the column {name} does not exist");
                Err(Error::schema("unknown_column", text)
                    .hint(format!(
                        "use columns of the collection: {}",
                        names.join(", ")
                    ))
                    .in_column(name))
            }
        });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>>>()?)))
}

/// Whether a read needs whole documents: a column has them or a part of them, or fields without a column are refused.
/// Where the columns were chosen, other fields were, too.
pub(crate) fn needs_all(
    schema: &Schema,
    chosen: &Schema,
    options: &DecodeOptions,
    is_chosen: bool,
) -> bool {
    let has = |name: &Option<String>| {
        let name = name.as_deref();
        name.is_some_and(|name| chosen.field_with_name(name).is_ok())
    };
    let has_native = || {
        let mut fields = chosen.fields().iter();
        fields.any(|field| Native::of(field) == Some(Native::Document))
    };
    let all = schema.fields().len() == chosen.fields().len();
    let refuses = options.unknown_keys == UnknownKeys::Refuse && (all || !is_chosen);
    has(&options.rest) || has(&options.whole) || has_native() || refuses
}

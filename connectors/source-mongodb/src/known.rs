//! The columns of a collection: declared, or inferred from a sample.

use std::sync::Arc;

use rapidbyte_bson::Builder;
use rapidbyte_mongo::form::{DOCUMENT, ID};
use rapidbyte_mongo::{DecodeOptions, Native, Sampled, Sampler, UnknownKeys};
use rapidbyte_mongo_client::Client;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{is_json, parse_field, type_name};

use crate::collection::Collection;
use crate::config::{Documents, Settled, SettledStream, Unknown};
use crate::error::malformed;
use crate::{increment, query};

/// The column of fields without a column.
pub(crate) const REST: &str = "_rest";
/// Bytes of a sample: more documents of such a size say little more.
const MAX_SAMPLE_BYTES: usize = 4 << 20;
/// Documents of one answer to a sample.
const SAMPLE_BATCH: u32 = 250;

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
    match documents {
        Documents::Columns => columns(client, settings, collection, &stream),
        Documents::Json => {
            let document = json(DOCUMENT, false)?;
            let id = match declares(&stream, ID) {
                true => None,
                false => Some(sampled_id(client, settings, collection)?),
            };
            Ok(whole(&stream, id, document))
        }
        Documents::Bson => {
            let id = Native::Value.field(ID, collection.is_view);
            let document = Native::Document.field(DOCUMENT, false);
            let id = (!declares(&stream, ID)).then(|| (id, String::new()));
            Ok(whole(&stream, id, document))
        }
    }
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
    let collects = unknown_keys(stream) == Unknown::Collect;
    let mut known = match &stream.schema {
        Some(schema) => Known {
            types: vec![String::new(); schema.fields().len()],
            schema: schema.clone(),
            notes: Vec::new(),
            inferred: Vec::new(),
        },
        None => {
            let sampled = sample(client, settings, collection)?;
            // A field of the name of the rest is a part of the rest.
            let names = sampled.schema.fields().iter().map(|field| field.name());
            let kept: Vec<bool> = names.map(|name| !(collects && name == REST)).collect();
            let keep = |at: &usize| kept[*at];
            let fields = sampled.schema.fields();
            let fields = (0..fields.len()).filter(keep).map(|at| fields[at].clone());
            let fields: Vec<_> = fields.collect();
            Known {
                types: (0..kept.len())
                    .filter(keep)
                    .map(|at| sampled.types[at].clone())
                    .collect(),
                inferred: fields.iter().map(|field| field.name().clone()).collect(),
                schema: Arc::new(Schema::new(fields)),
                notes: sampled.notes,
            }
        }
    };
    if collects {
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
    let documents = sampler.documents();
    let mut sampled = sampler.finish();
    if collection.is_view || documents == 0 {
        let fields = sampled.schema.fields().iter();
        let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
        sampled.schema = Schema::new(fields.collect::<Vec<_>>());
    }
    if documents == 0 {
        sampled
            .notes
            .push("no document, so no column but the one for the rest".to_owned());
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

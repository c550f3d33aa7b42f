//! The columns of a stream: declared, or inferred from its first pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use rapidbyte_formats::jsonl::{REST, Sampler, UnknownKeys};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{mark_json_strings, parse_field, type_name};

use crate::client::Client;
use crate::config::Nested;
use crate::read::Walk;
use crate::settings::{Sample, Settled};

/// A stream's columns and how they became known.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub schema: SchemaRef,
    pub notes: Vec<String>,
    /// Nobody declared them.
    pub inferred: bool,
}

/// The declared columns; without a declaration the inferred ones.
pub(crate) fn know(client: &Client, stream: &Settled, sample: Sample) -> Result<Known> {
    let mut known = match &stream.schema {
        Some(schema) => Known {
            schema: schema.clone(),
            notes: Vec::new(),
            inferred: false,
        },
        None => infer(client, stream, sample)?,
    };
    if stream.unknown_keys == UnknownKeys::Collect {
        let rest = parse_field(REST, "json", true).map_err(Error::internal)?;
        let fields = known.schema.fields().iter().cloned();
        let fields: Vec<_> = fields.chain([Arc::new(rest)]).collect();
        known.schema = Arc::new(Schema::new(fields));
        known
            .notes
            .push(format!("{REST}: json (keys that are not columns)"));
    }
    known.schema = Arc::new(mark_json_strings(&known.schema));
    Ok(known)
}

fn infer(client: &Client, stream: &Settled, sample: Sample) -> Result<Known> {
    let mut walk = Walk::new(client.clone(), stream.clone(), None);
    let mut sampler = Sampler::new(sample.records, usize::MAX).with_times();
    for _ in 0..sample.pages {
        let Some(lines) = walk.next_page()? else {
            break;
        };
        sampler.begin_file();
        let pushed = sampler.push(&lines).and_then(|()| match sampler.is_done() {
            true => {
                sampler.end_of_sample();
                Ok(())
            }
            false => sampler.end_of_file(),
        });
        pushed.map_err(|error| walk.refuse(error))?;
        if sampler.is_done() {
            break;
        }
    }
    let inferred = sampler.finish().map_err(|error| walk.refuse(error))?;
    let mut fields = Vec::new();
    let mut notes = Vec::new();
    for (field, note) in inferred.schema.fields().iter().zip(inferred.notes) {
        let is_nested = matches!(field.data_type(), DataType::Struct(_) | DataType::List(_));
        let name = field.name();
        // Where unknown keys are collected, a key of that column's name is one of them.
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
            notes.push(note);
        }
    }
    for declared in stream.types.iter().flat_map(|schema| schema.fields()) {
        if inferred.schema.field_with_name(declared.name()).is_err() {
            fields.push(declared.clone());
            let ty = type_name(declared);
            notes.push(format!("{}: {ty} (declared)", declared.name()));
        }
    }
    if fields.is_empty() {
        let text = "no record has a key, so the columns cannot be inferred";
        return Err(Error::schema("no_columns", text)
            .hint("declare the columns under the stream's schema:")
            .in_stream(walk.stream()));
    }
    Ok(Known {
        schema: Arc::new(Schema::new(fields)),
        notes,
        inferred: true,
    })
}

/// The column's declaration under `types`.
fn declared<'a>(stream: &'a Settled, name: &str) -> Option<&'a Arc<Field>> {
    let types = stream.types.as_ref()?;
    types.fields().find(name).map(|(_, field)| field)
}

/// The inferred columns of streams: name, type, and whether NULL may stand there.
type Token = BTreeMap<String, Vec<(String, String, bool)>>;

/// Writes the inferred columns down, so that every reader has the ones that were planned with.
pub(crate) fn write_token<'a>(
    streams: impl IntoIterator<Item = (&'a str, &'a Known)>,
) -> Result<String> {
    let mut token = Token::new();
    for (name, known) in streams {
        if known.inferred {
            let fields = known.schema.fields().iter();
            let columns = fields.map(|f| (f.name().clone(), type_name(f), f.is_nullable()));
            token.insert(name.to_owned(), columns.collect());
        }
    }
    serde_json::to_string(&token).map_err(Error::internal)
}

/// The columns of a stream that a token names.
pub(crate) fn read_token(token: &str, stream: &str) -> Result<Option<Known>> {
    if token.is_empty() {
        return Ok(None);
    }
    let mut token: Token = serde_json::from_str(token).map_err(Error::internal)?;
    let Some(columns) = token.remove(stream) else {
        return Ok(None);
    };
    let fields = columns
        .iter()
        .map(|(name, text, nullable)| parse_field(name, text, *nullable).map_err(Error::internal));
    let schema = Schema::new(fields.collect::<Result<Vec<_>>>()?);
    Ok(Some(Known {
        schema: Arc::new(mark_json_strings(&schema)),
        notes: Vec::new(),
        inferred: true,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_gives_back_what_was_planned() {
        let columns = [
            ("a b", "int64"),
            ("c", "json"),
            ("d", "struct<\"x y\": list<float64>>"),
            ("e", "string"),
        ];
        let fields = columns.map(|(name, text)| parse_field(name, text, true).unwrap());
        let known = Known {
            schema: Arc::new(mark_json_strings(&Schema::new(fields.to_vec()))),
            notes: Vec::new(),
            inferred: true,
        };
        let token = write_token([("s", &known)]).unwrap();
        let found = read_token(&token, "s").unwrap().expect("the stream");
        assert_eq!(found.schema, known.schema);
        assert!(read_token(&token, "t").unwrap().is_none());
    }
}

//! The columns of a stream of JSON records that come in pages, for source-http and source-cosmos: declared, or inferred
//! from the first pages. The connector owns the requests for pages and their errors ([`Pages`]).

use std::sync::Arc;

use rapidbyte_formats::jsonl::{Inferred, REST, Sampler, UnknownKeys};
use rapidbyte_formats::{Decoder, Format, FormatError, Limits};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::types::{mark_json_strings, parse_field, type_name};

/// The declarations of the operator for the columns of a stream.
#[derive(Debug, Clone)]
pub struct Columns {
    /// All columns, without the column for unknown keys.
    pub schema: Option<SchemaRef>,
    /// Columns that are declared while others are inferred.
    pub types: Option<SchemaRef>,
    /// The treatment of a key that is not a column.
    pub unknown_keys: UnknownKeys,
    /// Inferred objects and arrays are JSON text, and not structs and lists.
    pub nests_as_text: bool,
    /// The connector's word for the keys of a record, such as `fields`.
    pub keys: &'static str,
}

/// A stream's columns and how they became known.
#[derive(Debug, Clone)]
pub struct Known {
    /// The columns, with the column for unknown keys.
    pub schema: SchemaRef,
    /// For the plan: the type of each column that is not declared alone, and the reason.
    pub notes: Vec<String>,
    /// The operator has not declared all of them.
    pub inferred: bool,
}

/// How much of a stream is read to infer its columns.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Records at most.
    pub records: u64,
    /// Pages at most.
    pub pages: u64,
}

/// The pages of a stream from its first one on.
pub trait Pages {
    /// The records of the next page, one a line. `None` behind the last page.
    fn next_page(&mut self) -> Result<Option<Vec<u8>>>;

    /// The error of the formats for the page that was read last.
    fn refuse(&self, error: FormatError) -> Error;

    /// The error for pages without a key.
    fn no_columns(&self) -> Error;

    /// Whether no record has this key, which is declared and is not in the sample. `is_whole`: the sample has all records.
    /// False if nobody knows.
    fn lacks(&mut self, name: &str, is_whole: bool) -> Result<bool> {
        let _ = (name, is_whole);
        Ok(false)
    }
}

impl Columns {
    /// The declared columns; without a declaration the columns that are inferred from `pages`. Errors: of the pages;
    /// `no_columns`; `unknown_column` for a declared type of a key that no record has.
    pub fn know(&self, pages: &mut impl Pages, sample: Sample) -> Result<Known> {
        let known = match &self.schema {
            Some(schema) => Known {
                schema: schema.clone(),
                notes: Vec::new(),
                inferred: false,
            },
            None => self.infer(pages, sample)?,
        };
        self.finished(known)
    }

    /// All columns of the records that a sampler has seen.
    pub fn seen(&self, inferred: &Inferred) -> Result<SchemaRef> {
        Ok(self.finished(self.with_declared(inferred)?)?.schema)
    }

    /// The columns that are not declared.
    pub fn inferred_names(&self, schema: &Schema) -> Vec<String> {
        let fields = schema.fields().iter().map(|field| field.name());
        let inferred = fields.filter(|name| self.declared(name).is_none() && *name != REST);
        inferred.cloned().collect()
    }

    /// Makes rows of the records. `wanted`: the columns to decode.
    pub fn decoder(
        &self,
        known: Known,
        wanted: Option<&[String]>,
        limits: Limits,
    ) -> Result<Decoder, FormatError> {
        let decoder = Format::Jsonl.decoder(known.schema, wanted, limits)?;
        let decoder = match (known.inferred, &self.types) {
            (false, _) => decoder,
            (true, None) => decoder.inferred(),
            (true, Some(types)) => {
                let names = types.fields().iter().map(|field| field.name().clone());
                decoder.inferred_except(&names.collect::<Vec<_>>())
            }
        };
        decoder.unknown_keys(self.unknown_keys)
    }

    fn infer(&self, pages: &mut impl Pages, sample: Sample) -> Result<Known> {
        let mut sampler = Sampler::new(sample.records, usize::MAX).with_times();
        let mut is_whole = false;
        for _ in 0..sample.pages {
            let Some(lines) = pages.next_page()? else {
                is_whole = true;
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
            pushed.map_err(|error| pages.refuse(error))?;
            if sampler.is_done() {
                break;
            }
        }
        let inferred = sampler.finish().map_err(|error| pages.refuse(error))?;
        let declared = self.types.iter().flat_map(|types| types.fields());
        let is_unseen =
            |field: &&Arc<Field>| inferred.schema.field_with_name(field.name()).is_err();
        // Nobody knows the keys of records that will come.
        for field in declared.filter(is_unseen).filter(|_| inferred.rows > 0) {
            if pages.lacks(field.name(), is_whole)? {
                return Err(unknown_key(field.name(), &inferred.schema, self.keys));
            }
        }
        let known = self.with_declared(&inferred)?;
        match known.schema.fields().is_empty() {
            true => Err(pages.no_columns()),
            false => Ok(known),
        }
    }

    /// The columns as a read has them.
    fn finished(&self, mut known: Known) -> Result<Known> {
        if self.unknown_keys == UnknownKeys::Collect {
            let rest = parse_field(REST, "json", true).map_err(Error::internal)?;
            let fields = known.schema.fields().iter().cloned();
            let fields: Vec<_> = fields.chain([Arc::new(rest)]).collect();
            known.schema = Arc::new(Schema::new(fields));
            let keys = self.keys;
            known
                .notes
                .push(format!("{REST}: json ({keys} that are not columns)"));
        }
        known.schema = Arc::new(mark_json_strings(&known.schema));
        Ok(known)
    }

    /// The inferred columns with the declared types, and then the columns that are only declared.
    fn with_declared(&self, inferred: &Inferred) -> Result<Known> {
        let (mut fields, mut notes) = (Vec::new(), Vec::new());
        for (field, note) in inferred.schema.fields().iter().zip(&inferred.notes) {
            let is_nested = matches!(field.data_type(), DataType::Struct(_) | DataType::List(_));
            let name = field.name();
            // Where unknown keys are collected, a key with the name of that column is one of them.
            if name == REST && self.unknown_keys == UnknownKeys::Collect {
                continue;
            }
            if let Some(declared) = self.declared(name) {
                fields.push(declared.clone());
                notes.push(format!("{name}: {} (declared)", type_name(declared)));
            } else if is_nested && self.nests_as_text {
                let json =
                    parse_field(name, "json", field.is_nullable()).map_err(Error::internal)?;
                fields.push(Arc::new(json));
                notes.push(format!("{name}: json (the values are objects or arrays)"));
            } else {
                fields.push(field.clone());
                notes.push(note.clone());
            }
        }
        for declared in self.types.iter().flat_map(|schema| schema.fields()) {
            if inferred.schema.field_with_name(declared.name()).is_err() {
                fields.push(declared.clone());
                let ty = type_name(declared);
                notes.push(format!(
                    "{}: {ty} (declared; no sampled record has it)",
                    declared.name()
                ));
            }
        }
        Ok(Known {
            schema: Arc::new(Schema::new(fields)),
            notes,
            inferred: true,
        })
    }

    /// The column's declaration under `types`.
    fn declared(&self, name: &str) -> Option<&Arc<Field>> {
        let types = self.types.as_ref()?;
        types.fields().find(name).map(|(_, field)| field)
    }
}

fn unknown_key(name: &str, sampled: &Schema, keys: &str) -> Error {
    /// Names in a hint.
    const MAX_NAMED: usize = 20;
    let names = sampled.fields().iter().map(|field| field.name().as_str());
    let names: Vec<&str> = names.take(MAX_NAMED).collect();
    let text = format!("types names {name}, which no record has among its {keys}");
    let hint = match name.split_once('.') {
        Some((outer, _)) => {
            format!("types names {keys} of the record itself: declare {outer} as json")
        }
        None => format!(
            "correct the name, or remove it: the sample has {}",
            names.join(", ")
        ),
    };
    Error::config("unknown_column", text)
        .hint(hint)
        .in_column(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Pages of a program.
    struct Fixed(Vec<&'static str>);

    impl Pages for Fixed {
        fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
            Ok((!self.0.is_empty()).then(|| self.0.remove(0).into()))
        }

        fn refuse(&self, error: FormatError) -> Error {
            Error::data(error.code, &error.message)
        }

        fn no_columns(&self) -> Error {
            Error::schema("no_columns", "none")
        }
    }

    /// The same, of a source that knows all of its records.
    struct Searched(Fixed, &'static [&'static str]);

    impl Pages for Searched {
        fn next_page(&mut self) -> Result<Option<Vec<u8>>> {
            self.0.next_page()
        }

        fn refuse(&self, error: FormatError) -> Error {
            self.0.refuse(error)
        }

        fn no_columns(&self) -> Error {
            self.0.no_columns()
        }

        fn lacks(&mut self, name: &str, is_whole: bool) -> Result<bool> {
            Ok(is_whole || !self.1.contains(&name))
        }
    }

    #[test]
    fn a_declared_key_that_no_record_has_is_refused_by_name() {
        let later = parse_field("later", "int64", true).unwrap();
        let columns = Columns {
            types: Some(Arc::new(Schema::new(vec![later]))),
            ..columns()
        };
        let know = |lines: &[&'static str], has: &'static [&'static str]| {
            columns.know(&mut Searched(Fixed(lines.to_vec()), has), SAMPLE)
        };
        let lines = "{\"a\":1}\n{\"a\":2}\n";
        let refused = know(&[lines], &[]).unwrap_err();
        assert_eq!(refused.code, "unknown_column");
        assert_eq!(refused.column.as_deref(), Some("later"));
        assert!(refused.hint.unwrap().contains("the sample has a"));
        // The sample is everything, so nobody searches.
        let refused = know(&["{\"a\":1}\n"], &["later"]).unwrap_err();
        assert_eq!(refused.code, "unknown_column");
        assert!(know(&[lines], &["later"]).is_ok());
        // Without a record, nobody knows.
        assert!(know(&[], &[]).is_ok());
    }

    const SAMPLE: Sample = Sample {
        records: 2,
        pages: 3,
    };

    fn columns() -> Columns {
        Columns {
            schema: None,
            types: None,
            unknown_keys: UnknownKeys::Collect,
            nests_as_text: true,
            keys: "fields",
        }
    }

    #[test]
    fn columns_come_from_the_sample_the_declared_types_and_the_rest() {
        let declared = parse_field("n", "string", true).unwrap();
        let only = parse_field("later", "int64", true).unwrap();
        let columns = Columns {
            types: Some(Arc::new(Schema::new(vec![declared, only]))),
            ..columns()
        };
        let pages = vec![
            "{\"n\":1,\"o\":{\"a\":2},\"_rest\":1}\n",
            "{\"n\":2,\"b\":true}\n{\"unread\":1}\n",
            "{\"unread\":1}\n",
        ];
        let mut pages = Fixed(pages);
        let known = columns.know(&mut pages, SAMPLE).unwrap();
        assert_eq!(pages.0.len(), 1, "the sample ends within the second page");
        let names: Vec<&String> = known.schema.fields().iter().map(|f| f.name()).collect();
        assert_eq!(names, ["n", "o", "b", "later", "_rest"]);
        assert_eq!(known.notes[0], "n: string (declared)");
        assert_eq!(known.notes[1], "o: json (the values are objects or arrays)");
        assert_eq!(
            known.notes[3],
            "later: int64 (declared; no sampled record has it)"
        );
        assert_eq!(known.notes[4], "_rest: json (fields that are not columns)");
        assert!(known.inferred);
        assert_eq!(columns.inferred_names(&known.schema), ["o", "b"]);
    }

    #[test]
    fn pages_without_a_key_are_refused_and_declared_columns_need_no_page() {
        let mut empty = Fixed(vec!["{}\n", "", "{}\n", "{\"a\":1}\n"]);
        let refused = columns().know(&mut empty, SAMPLE).unwrap_err();
        assert_eq!(refused.code, "no_columns");
        let one = parse_field("a", "int64", false).unwrap();
        let declared = Columns {
            schema: Some(Arc::new(Schema::new(vec![one]))),
            unknown_keys: UnknownKeys::Refuse,
            ..columns()
        };
        let known = declared.know(&mut Fixed(Vec::new()), SAMPLE).unwrap();
        assert_eq!((known.schema.fields().len(), known.inferred), (1, false));
        let broken = columns().know(&mut Fixed(vec!["{\"a\":\n"]), SAMPLE);
        assert!(matches!(broken.unwrap_err().kind, ErrorKind::Data));
    }
}

//! A source on a database of the shared server.

use std::time::Duration;

use arrow_array::cast::AsArray;
use rapidbyte_bson::{Builder, Document};
use rapidbyte_mongo::{EncodeOptions, Encoder, NATIVE_FORM, extjson};
use rapidbyte_mongo_client::{Client, Settings};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{ipc, source};
use rapidbyte_testkit::mongodb::MongoDatabase;
use source_mongodb::{Mongo, Rows};

const WAIT: Duration = Duration::from_secs(20);

/// A source with these keys beside the URL.
pub fn open(database: &MongoDatabase<'_>, keys: &str) -> Mongo {
    try_open(database, keys).unwrap()
}

pub fn try_open(database: &MongoDatabase<'_>, keys: &str) -> Result<Mongo> {
    let comma = if keys.is_empty() { "" } else { "," };
    source::open(&format!(r#"{{"url": "{}"{comma}{keys}}}"#, database.url()))
}

/// A document from Extended JSON.
pub fn bson(json: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    extjson::parse_document(json, &mut bytes).unwrap();
    bytes
}

/// Inserts documents that are Extended JSON.
pub fn insert(database: &MongoDatabase<'_>, collection: &str, documents: &[&str]) {
    let documents: Vec<Vec<u8>> = documents.iter().map(|json| bson(json)).collect();
    insert_bytes(database, collection, &documents.concat());
}

pub fn insert_bytes(database: &MongoDatabase<'_>, collection: &str, documents: &[u8]) {
    let mut command = Builder::new();
    command.string("insert", collection);
    let written = client(database).write(database.name(), command, "documents", documents);
    assert!(written.unwrap().errors.is_empty());
}

pub fn client(database: &MongoDatabase<'_>) -> Client {
    Client::connect(&Settings::from_url(&database.url()).unwrap()).unwrap()
}

/// A read of a stream as it is described.
pub fn request(source: &mut Mongo, stream: &str, forms: &[&str]) -> ReadRequest {
    let forms: Vec<String> = forms.iter().map(|form| (*form).to_owned()).collect();
    let streams = source.discover(&forms).unwrap();
    let found = streams.iter().find(|one| one.name == stream).unwrap();
    ReadRequest {
        forms,
        ..ReadRequest::of(found)
    }
}

pub fn native(source: &mut Mongo, stream: &str) -> ReadRequest {
    request(source, stream, &[NATIVE_FORM])
}

/// Everything that a read gives.
#[derive(Default)]
pub struct Given {
    pub batches: Vec<RecordBatch>,
    /// Each with the number of rows before it.
    pub checkpoints: Vec<(usize, String)>,
    pub rejects: Vec<Reject>,
}

impl Given {
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The rows as documents of relaxed JSON.
    pub fn json(&self) -> Vec<String> {
        let mut documents = Vec::new();
        for batch in &self.batches {
            let encoder = Encoder::new(&batch.schema(), EncodeOptions::default()).unwrap();
            let rows = encoder.rows(batch).unwrap();
            for row in 0..rows.len() {
                let (mut bytes, mut json) = (Vec::new(), Vec::new());
                rows.document(row, &mut bytes).unwrap();
                let document = Document::parse(&bytes).unwrap();
                extjson::write_document(document, extjson::Style::Relaxed, &mut json).unwrap();
                documents.push(String::from_utf8(json).unwrap());
            }
        }
        documents
    }

    /// The values of a column of strings or bytes.
    pub fn bytes(&self, column: &str) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        for batch in &self.batches {
            let array = batch.column_by_name(column).unwrap();
            for row in 0..array.len() {
                values.push(match array.data_type() {
                    DataType::Binary => array.as_binary::<i32>().value(row).to_vec(),
                    _ => array.as_string::<i32>().value(row).as_bytes().to_vec(),
                });
            }
        }
        values
    }
}

pub fn drain(reader: &mut Rows) -> Result<Given> {
    let mut given = Given::default();
    loop {
        match reader.next(WAIT)? {
            Event::Batch(batch) => {
                assert_eq!(batch.schema(), reader.schema());
                given.batches.push(batch);
            }
            Event::Rejects(rejects) => given.rejects.extend(rejects),
            Event::Checkpoint(cursor) => given.checkpoints.push((given.rows(), cursor)),
            Event::Idle => {}
            Event::End => return Ok(given),
            Event::Changed(_) => panic!("nobody asked for it"),
        }
    }
}

pub fn read(source: &mut Mongo, request: &ReadRequest) -> Result<Given> {
    drain(&mut source.read(request)?)
}

/// The error of a read, at its beginning or later.
pub fn refused(source: &mut Mongo, request: &ReadRequest) -> Error {
    match read(source, request) {
        Ok(_) => panic!("must be refused"),
        Err(error) => error,
    }
}

/// Names and types of the columns of a request.
pub fn columns(request: &ReadRequest) -> Vec<String> {
    let schema = ipc::decode_schema(&request.schema).unwrap();
    let named = schema.fields().iter().map(|field| {
        let ty = rapidbyte_sdk::types::type_name(field);
        format!("{} {ty}", field.name())
    });
    named.collect()
}

pub fn increment(field: &str) -> Increment {
    Increment {
        cursor_fields: vec![field.to_owned()],
        initial: None,
        late_rows: LateRows::Lag(None),
        allow_duplicates: false,
    }
}

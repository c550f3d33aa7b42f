//! Every type of BSON into a Parquet file and back, as columns and as whole documents.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod values;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bson::doc;
use rapidbyte_bson::{Document, Value};
use rapidbyte_columnar::{File, FileWriter, Kind, Limits, WriteOptions};
use rapidbyte_mongo::extjson::Style;
use rapidbyte_mongo::{DecodeOptions, Decoder, EncodeOptions, Encoder, Sampler};
use rapidbyte_wire::types::parse_field;
use values::{every_value, everything};

/// The batch as a file has it.
fn through_parquet(batch: &RecordBatch) -> RecordBatch {
    let options = WriteOptions::default();
    let mut writer = FileWriter::new(Kind::Parquet, batch.schema(), &options, Vec::new()).unwrap();
    writer.write(batch).unwrap();
    let bytes = writer.finish().unwrap();
    let file = File::open(Kind::Parquet, Arc::new(bytes)).unwrap();
    let mut reader = file.read(None, Limits::default()).unwrap();
    reader.next_batch().unwrap().unwrap()
}

/// The first row of the documents of a batch, as JSON or as values.
fn document(batch: &RecordBatch) -> Vec<u8> {
    let encoder = Encoder::new(&batch.schema(), EncodeOptions::default()).unwrap();
    let mut out = Vec::new();
    encoder.rows(batch).unwrap().document(0, &mut out).unwrap();
    out
}

fn decoded(schema: &Schema, options: DecodeOptions, bytes: &[u8]) -> RecordBatch {
    let mut decoder = Decoder::new(schema, options).unwrap();
    decoder.push(Document::parse(bytes).unwrap()).unwrap();
    decoder.take_batch().unwrap().unwrap()
}

fn canonical() -> DecodeOptions {
    DecodeOptions {
        json: Style::Canonical,
        ..DecodeOptions::default()
    }
}

#[test]
fn a_column_of_each_type_comes_back_exactly() {
    let mut changed = Vec::new();
    for (name, value) in every_value() {
        let bytes = doc! {"v": value}.to_vec().unwrap();
        let mut sampler = Sampler::new();
        sampler.push(Document::parse(&bytes).unwrap()).unwrap();
        let batch = decoded(&sampler.finish().schema, canonical(), &bytes);
        let back = document(&through_parquet(&batch));
        if back != bytes {
            changed.push(name);
        }
    }
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn whole_documents_as_canonical_json_come_back_exactly() {
    let json = parse_field("document", "json", false).unwrap();
    let options = DecodeOptions {
        whole: Some("document".to_owned()),
        ..canonical()
    };
    let bytes = everything();
    let batch = decoded(&Schema::new(vec![json]), options, &bytes);
    let back = document(&through_parquet(&batch));
    let back = Document::parse(&back).unwrap().get("document").unwrap();
    let Some(Value::Document(back)) = back else {
        panic!("{back:?}");
    };
    assert_eq!(back.as_bytes(), bytes);
}

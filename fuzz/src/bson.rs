//! Documents of MongoDB: to columns and back, and to JSON and back.

use std::sync::LazyLock;

use arrow_schema::Schema;
use rapidbyte_bson::Document;
use rapidbyte_mongo::extjson::{self, Style};
use rapidbyte_mongo::{
    DecodeOptions, Decoder, EncodeOptions, Encoder, Native, Sampler, UnknownKeys,
};
use rapidbyte_wire::types::parse_field;

/// Columns that a person may declare for fields of these names.
static DECLARED: LazyLock<Schema> = LazyLock::new(|| {
    let columns = [
        ("a", "int64"),
        ("b", "decimal(18, 4)"),
        ("c", "list<struct<a: int32, b: string>>"),
        ("d", "map<string, float64>"),
        ("e", "timestamp(ns)"),
        ("f", "decimal(76, 10)"),
        ("g", "date"),
        ("h", "binary"),
        ("i", "float32"),
        ("j", "list<list<json>>"),
        ("k", "uuid"),
        ("l", "large_string"),
        ("m", "fixed_binary(3)"),
        ("n", "uint64"),
        ("_rest", "json"),
    ];
    let fields = columns.map(|(name, ty)| parse_field(name, ty, true).expect("a type"));
    Schema::new(fields.to_vec())
});

/// A document whose length is right, or JSON. What was read is written as the same.
pub fn run(data: &[u8]) {
    let mut data = data;
    let choice = crate::byte(&mut data);
    if choice & 1 == 1 {
        return json(data);
    }
    let mut bytes = data.to_vec();
    if choice & 2 == 0
        && let (Some(head), Ok(length)) =
            (bytes.get(..4).map(<[u8]>::len), i32::try_from(data.len()))
    {
        // The rest would be met rarely otherwise.
        bytes[..head].copy_from_slice(&length.to_le_bytes());
    }
    let Ok(document) = Document::parse(&bytes) else {
        return;
    };
    let is_good = document.check().is_ok();
    decode(&DECLARED, document, "_rest");
    native(document);
    let mut sampler = Sampler::new();
    if sampler.push(document).is_err() {
        assert!(!is_good);
        return;
    }
    decode(&sampler.finish().schema, document, "");
    let mut text = Vec::new();
    let written = extjson::write_document(document, Style::Canonical, &mut text);
    if written.is_err() || !is_good {
        return;
    }
    let text = String::from_utf8(text).expect("JSON");
    let mut parsed = Vec::new();
    extjson::parse_document(&text, &mut parsed).unwrap_or_else(|error| panic!("{error}: {text}"));
    let parsed = Document::parse(&parsed).expect("a document");
    parsed.check().expect("a good document");
    let mut again = Vec::new();
    extjson::write_document(parsed, Style::Canonical, &mut again).expect("JSON once more");
    assert_eq!(text.as_bytes(), again);
    let mut relaxed = Vec::new();
    extjson::write_document(document, Style::Relaxed, &mut relaxed).expect("the other style");
    extjson::parse_document(
        std::str::from_utf8(&relaxed).expect("JSON"),
        &mut Vec::new(),
    )
    .expect("what we wrote");
}

/// A document that becomes a row is written as a good document.
fn decode(schema: &Schema, document: Document<'_>, rest: &str) {
    let options = DecodeOptions {
        rest: (!rest.is_empty()).then(|| rest.to_owned()),
        unknown_keys: UnknownKeys::Ignore,
        ..DecodeOptions::default()
    };
    let mut decoder = Decoder::new(schema, options).expect("columns of BSON");
    // The second time behind a failure, if there is one.
    let first = decoder.push(document).is_ok();
    assert_eq!(first, decoder.push(document).is_ok());
    assert_eq!(decoder.rows(), if first { 2 } else { 0 });
    while let Some(batch) = decoder.take_batch().expect("a batch") {
        let encoder = Encoder::new(&batch.schema(), EncodeOptions::default()).expect("an encoder");
        let rows = encoder.rows(&batch).expect("rows");
        let mut out = Vec::new();
        for row in 0..rows.len() {
            out.clear();
            if rows.document(row, &mut out).is_ok() {
                let written = Document::parse(&out).expect("a document");
                written.check().expect("a good document");
            }
        }
    }
}

/// A native column gives the bytes back.
fn native(document: Document<'_>) {
    let schema = Schema::new(vec![Native::Document.field("document", false)]);
    let mut decoder = Decoder::new(&schema, DecodeOptions::default()).expect("a native column");
    if decoder.push(document).is_err() {
        return;
    }
    let batch = decoder.take_batch().expect("a batch").expect("a row");
    let encoder = Encoder::new(&schema, EncodeOptions::default()).expect("an encoder");
    let mut out = Vec::new();
    let rows = encoder.rows(&batch).expect("rows");
    rows.document(0, &mut out).expect("the document");
    assert_eq!(out, document.as_bytes());
}

/// JSON that is read is a good document.
fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut out = vec![1];
    match extjson::parse_value(text, &mut out) {
        Err(_) => assert_eq!(out, [1]),
        Ok(kind) => {
            let length = i32::try_from(out.len() + 7).expect("a short text");
            let element = [&[kind.byte(), b'v', 0], &out[1..], &[0]].concat();
            let bytes = [&length.to_le_bytes()[..], &element].concat();
            let document = Document::parse(&bytes).expect("a document");
            // One level more than the text has.
            assert!(!matches!(
                document.check(),
                Err(error) if error != rapidbyte_bson::BsonError::TooDeep
            ));
        }
    }
}

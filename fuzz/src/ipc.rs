//! Messages from a guest: the header that the host looks at, and the batch that a guest decodes.

use std::sync::{Arc, LazyLock};

use arrow_schema::{Schema, SchemaRef};
use rapidbyte_wire::ipc::{Decoder, Encoder, decode_schema, encode_schema};
use rapidbyte_wire::types::parse_field;
use rapidbyte_wire::verify::Layout;

/// The columns of streams, by the name of their type.
pub const STREAMS: [&[&str]; 5] = [
    &["int64", "string"],
    &[
        "bool",
        "decimal(38, 3)",
        "uuid",
        "timestamptz",
        "interval",
        "null",
    ],
    &["list<int32>", "large_list<string>", "map<string, json>"],
    &[
        "struct<a: int8, b: struct<c: binary>>",
        "fixed_binary(3)",
        "large_binary",
    ],
    &[],
];

static SCHEMAS: LazyLock<Vec<(SchemaRef, Vec<u8>)>> = LazyLock::new(|| {
    let schema = |types: &&[&str]| {
        let fields = types.iter().enumerate().map(|(at, name)| {
            parse_field(&format!("c{at}"), name, true).expect("a type of the contract")
        });
        let schema = Schema::new(fields.collect::<Vec<_>>());
        let message = encode_schema(&schema).expect("portable");
        (Arc::new(schema), message)
    };
    STREAMS.iter().map(schema).collect()
});

/// The schema of a stream.
pub fn schema(stream: usize) -> SchemaRef {
    Arc::clone(&SCHEMAS[stream % STREAMS.len()].0)
}

/// A batch that the host accepts can be cut to its first rows. A guest decodes or refuses the batch, and
/// a decoded batch comes back the same.
pub fn run(data: &[u8]) {
    let mut data = data;
    let (choice, rows) = (crate::byte(&mut data), u64::from(crate::byte(&mut data)));
    if choice & 0x80 != 0 {
        return schema_message(data);
    }
    let (schema, message) = &SCHEMAS[usize::from(choice) % STREAMS.len()];
    let layout = Layout::of(schema).expect("portable");
    if layout.verify(data, rows).is_err() {
        let mut cut = data.to_vec();
        let _ = layout.truncate(&mut cut, rows);
        return;
    }
    for fewer in [0, rows / 2, rows, rows + 1] {
        let mut cut = data.to_vec();
        if layout.truncate(&mut cut, fewer).is_ok() {
            layout
                .verify(&cut, fewer.min(rows))
                .expect("the first rows of a good message");
        }
    }
    let decoder = Decoder::new(message).expect("our own schema");
    let Ok(batch) = decoder.decode(data.to_vec()) else {
        return;
    };
    assert_eq!(batch.num_rows() as u64, rows);
    let encoded = Encoder::new(schema).and_then(|mut encoder| encoder.encode(&batch));
    let encoded = encoded.expect("a batch of the stream");
    let again = decoder.decode(encoded).expect("our own message");
    assert_eq!(again, batch);
}

/// A schema that is taken is written and read as the same.
fn schema_message(data: &[u8]) {
    let Ok(schema) = decode_schema(data) else {
        return;
    };
    if Layout::of(&schema).is_err() {
        return;
    }
    let Ok(message) = encode_schema(&schema) else {
        return;
    };
    let again = decode_schema(&message).expect("our own message");
    assert_eq!(again.fields(), schema.fields());
}

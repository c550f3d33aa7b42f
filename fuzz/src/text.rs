//! CSV, JSON Lines and JSON documents.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use rapidbyte_formats::csv::Dialect;
use rapidbyte_formats::{Format, FormatError, Limits, Picked};
use rapidbyte_wire::types::parse_field;

const LIMITS: Limits = Limits {
    batch_bytes: 4096,
    batch_rows: 64,
    max_record_bytes: 1 << 16,
};

const COLUMNS: [&[&str]; 4] = [
    &["int64", "string", "bool"],
    &[
        "decimal(18, 4)",
        "date",
        "timestamptz",
        "time(us)",
        "float64",
        "uuid",
    ],
    &[
        "list<int32>",
        "struct<a: string, b: int8>",
        "map<string, json>",
        "binary",
    ],
    &["string"],
];

static SCHEMAS: LazyLock<Vec<SchemaRef>> = LazyLock::new(|| {
    let schema = |types: &&[&str]| {
        let fields = types.iter().enumerate().map(|(at, name)| {
            let name_of_column = char::from(b'a' + at as u8).to_string();
            parse_field(&name_of_column, name, true).expect("a type of the contract")
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    };
    COLUMNS.iter().map(schema).collect()
});

/// CSV of some dialects.
pub fn csv(data: &[u8]) {
    let mut data = data;
    let choice = crate::byte(&mut data);
    let null_text = match choice >> 6 {
        0 => vec![String::new()],
        1 => vec!["NULL".to_owned(), String::new()],
        _ => vec!["\\N".to_owned()],
    };
    let dialect = Dialect {
        delimiter: if choice & 0x20 != 0 { b';' } else { b',' },
        header: choice & 0x10 == 0,
        null_text,
        ..Dialect::default()
    };
    run(&Format::Csv(dialect), usize::from(choice & 0x0f), data);
}

/// JSON Lines.
pub fn jsonl(data: &[u8]) {
    let mut data = data;
    let choice = crate::byte(&mut data);
    run(&Format::Jsonl, usize::from(choice), data);
}

/// JSON documents. What is written again is JSON Lines.
pub fn json(data: &[u8]) {
    let mut data = data;
    let choice = crate::byte(&mut data);
    run(&Format::Json, usize::from(choice), data);
}

/// Wherever a file is cut it says the same; rows that were read are written and read as the same;
/// and a schema that is guessed does not turn the file into something else.
fn run(format: &Format, schema: usize, data: &[u8]) {
    let mut data = data;
    let cut = crate::piece(crate::byte(&mut data));
    let schema = &SCHEMAS[schema % SCHEMAS.len()];
    guess(format, data, cut);
    let whole = decode(format, schema, data, usize::MAX, false);
    let pieces = decode(format, schema, data, cut, false);
    let format = match format {
        Format::Json => &Format::Jsonl,
        written => written,
    };
    let batches = match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(
                encode(format, schema, &whole),
                encode(format, schema, &pieces)
            );
            whole
        }
        (Err(_), Err(_)) => return,
        (whole, pieces) => panic!("whole: {whole:?}, in pieces: {pieces:?}"),
    };
    let bytes = encode(format, schema, &batches);
    let again = decode(format, schema, &bytes, cut, false).expect("our own file");
    assert_eq!(rows(&again), rows(&batches));
    assert_eq!(encode(format, schema, &again), bytes);
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

fn decode(
    format: &Format,
    schema: &SchemaRef,
    data: &[u8],
    cut: usize,
    inferred: bool,
) -> Result<Vec<RecordBatch>, FormatError> {
    let mut decoder = format.decoder(Arc::clone(schema), None, LIMITS)?;
    if inferred {
        decoder = decoder.inferred();
    }
    let mut batches = Vec::new();
    decoder.begin_file();
    for mut piece in data.chunks(cut) {
        while !piece.is_empty() {
            let taken = decoder.push(piece)?;
            piece = &piece[taken..];
            if decoder.is_full() {
                batches.extend(decoder.take_batch()?);
            } else {
                assert!(taken > 0, "nothing is taken and nothing is full");
            }
        }
    }
    decoder.end_of_file()?;
    batches.extend(decoder.take_batch()?);
    Ok(batches)
}

fn encode(format: &Format, schema: &SchemaRef, batches: &[RecordBatch]) -> Vec<u8> {
    let encoder = format
        .encoder(Arc::clone(schema))
        .expect("a schema of the contract");
    let mut out = Vec::new();
    encoder.write_header(&mut out);
    for batch in batches {
        let mut from = 0;
        while from < batch.num_rows() {
            from = encoder
                .encode(Picked::all(batch), from, &mut out, usize::MAX)
                .expect("what was decoded can be encoded");
        }
    }
    out
}

fn guess(format: &Format, data: &[u8], cut: usize) {
    let Ok(mut sampler) = format.sampler(100, LIMITS.max_record_bytes) else {
        return;
    };
    sampler.begin_file();
    for piece in data.chunks(cut) {
        if sampler.push(piece).is_err() {
            return;
        }
    }
    let ended = match sampler.is_done() {
        true => {
            sampler.end_of_sample();
            Ok(())
        }
        false => sampler.end_of_file(),
    };
    let sampled = sampler.rows();
    let Some(inferred) = ended.ok().and_then(|()| sampler.finish().ok()) else {
        return;
    };
    if let Ok(batches) = decode(format, &inferred.schema, data, cut, true) {
        assert!(rows(&batches) as u64 >= sampled.min(1));
    }
}

//! Prints what a row of seven columns costs in each direction: bigint, integer, text of 20,
//! numeric(12,2) and timestamptz in their native forms, double precision, boolean. The rows come
//! in CopyData messages of one row, in reads of 64 KiB, as from a server.
//!
//! `cargo run --release -p rapidbyte-pg --example timing`

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{Field, Schema};
use rapidbyte_pg::builtin::{
    BOOL, FLOAT8, INT4, INT8, NUMERIC, TEXT, TIMESTAMPTZ, to_numeric_typmod,
};
use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::{Column, PgError};

const ROWS: usize = 128 * 1024;
const READ: usize = 64 * 1024;
const BATCH: usize = 1 << 20;
const ROUNDS: usize = 5;

fn main() -> Result<(), PgError> {
    let mut total = NUMERIC.column("total");
    total.typmod = to_numeric_typmod(12, 2);
    let columns = [
        INT8.column("id"),
        INT4.column("count"),
        TEXT.column("name"),
        total,
        TIMESTAMPTZ.column("at"),
        FLOAT8.column("ratio"),
        BOOL.column("flag"),
    ];
    let rows = messages(&columns)?;
    for native in [true, false] {
        let mut best = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let batches = decode(&columns, native, &rows)?;
            best.0 = best.0.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            encode(&columns, &batches)?;
            best.1 = best.1.min(start.elapsed().as_secs_f64());
        }
        let nanos = |seconds: f64| seconds * 1e9 / ROWS as f64;
        println!(
            "native forms: {native}; decode {:.1} ns a row, encode {:.1} ns a row",
            nanos(best.0),
            nanos(best.1)
        );
    }
    Ok(())
}

fn decode(columns: &[Column], native: bool, bytes: &[u8]) -> Result<Vec<RecordBatch>, PgError> {
    let mut decoder = Decoder::new(columns, native, 1 << 26);
    let mut batches = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + READ);
        at += decoder.push_messages(&bytes[at..end])?;
        if decoder.bytes() >= BATCH {
            batches.push(decoder.take_batch()?);
        }
    }
    decoder.finish()?;
    batches.push(decoder.take_batch()?);
    Ok(batches)
}

fn encode(columns: &[Column], batches: &[RecordBatch]) -> Result<usize, PgError> {
    let mut encoder = Encoder::new(batches[0].schema_ref(), columns)?;
    let mut out = Vec::with_capacity(READ * 2);
    let mut bytes = 0;
    for batch in batches {
        let rows = encoder.bind(batch)?;
        let mut row = 0;
        while row < rows.len() {
            out.clear();
            row = rows.encode(row, READ, &mut out)?;
            bytes += out.len();
        }
    }
    Ok(bytes)
}

/// The rows as a server sends them.
fn messages(columns: &[Column]) -> Result<Vec<u8>, PgError> {
    let numbers = || 0..ROWS as i64;
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(numbers())),
        Arc::new(Int32Array::from_iter_values(
            numbers().map(|n| n as i32 * 7),
        )),
        Arc::new(StringArray::from_iter_values(
            numbers().map(|n| format!("customer {n:011}")),
        )),
        Arc::new(
            Decimal128Array::from_iter_values(numbers().map(|n| i128::from(n) * 4567))
                .with_data_type(arrow_schema::DataType::Decimal128(12, 2)),
        ),
        Arc::new(
            TimestampMicrosecondArray::from_iter_values(numbers().map(|n| n * 1_000_003))
                .with_timezone("UTC"),
        ),
        Arc::new(Float64Array::from_iter_values(
            numbers().map(|n| n as f64 / 3.0),
        )),
        Arc::new(BooleanArray::from_iter(numbers().map(|n| Some(n % 3 == 0)))),
    ];
    let field = |(column, array): (&Column, &ArrayRef)| {
        Field::new(&column.name, array.data_type().clone(), true)
    };
    let fields: Vec<_> = columns.iter().zip(&arrays).map(field).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .expect("the arrays are as long as the schema says");
    let mut encoder = Encoder::new(batch.schema_ref(), columns)?;
    let mut out = Vec::new();
    let mut message = Vec::new();
    encoder.header(&mut message);
    let rows = encoder.bind(&batch)?;
    for row in 0..rows.len() {
        rows.encode(row, 1, &mut message)?;
        send(&mut message, &mut out);
    }
    message.extend([0xff, 0xff]);
    send(&mut message, &mut out);
    Ok(out)
}

fn send(message: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.push(b'd');
    out.extend((message.len() as u32 + 4).to_be_bytes());
    out.append(message);
}

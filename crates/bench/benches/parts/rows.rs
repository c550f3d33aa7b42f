//! Rows as the server sends them, and the batches that they make.

use std::io::Read;

use rapidbyte_bench::failure::Failure;
use rapidbyte_pg::copy::Decoder;
use rapidbyte_pg::{Column, builtin, select_expression};
use rapidbyte_sdk::prelude::RecordBatch;
use rapidbyte_testkit::postgres::Client;

/// Rows of one batch, about as many as a connector makes.
pub const ROWS: usize = 10_000;
const MAX_RECORD_BYTES: usize = 64 << 20;

/// The narrow workload's columns.
pub fn narrow() -> Vec<Column> {
    vec![
        builtin::INT8.column("id"),
        builtin::TEXT.column("name"),
        builtin::FLOAT8.column("amount"),
        builtin::INT4.column("quantity"),
        builtin::BOOL.column("active"),
        builtin::TIMESTAMPTZ.column("created_at"),
        builtin::TEXT.column("note"),
    ]
}

/// Rows of the narrow workload as the server sends them.
pub fn narrow_bytes(client: &mut Client, rows: usize) -> Result<Vec<u8>, Failure> {
    let select = "i::bigint AS id, 'customer ' || i AS name, i * 0.37::float8 AS amount, \
                  i % 1000 AS quantity, i % 3 = 0 AS active, \
                  timestamptz '2020-01-01Z' + i * interval '17 seconds' AS created_at, \
                  substr(md5(i::text), 1, 20) AS note";
    copied(client, &narrow(), select, false, rows)
}

/// The same as a batch.
pub fn narrow_batch(client: &mut Client, rows: usize) -> Result<RecordBatch, Failure> {
    decoded(&narrow(), false, &narrow_bytes(client, rows)?)
}

/// Rows as the server sends them, in CopyData messages; `select` gives the columns from the row's
/// number `i`.
pub fn copied(
    client: &mut Client,
    columns: &[Column],
    select: &str,
    native: bool,
    rows: usize,
) -> Result<Vec<u8>, Failure> {
    let expressions: Vec<String> = columns
        .iter()
        .map(|column| select_expression(column, native))
        .collect();
    let query = format!(
        "COPY (SELECT {} FROM (SELECT {select} FROM generate_series(1, {rows}) AS i) AS t) \
         TO STDOUT (FORMAT binary)",
        expressions.join(", ")
    );
    let mut bytes = Vec::new();
    client.copy_out(query.as_str())?.read_to_end(&mut bytes)?;
    messages(&bytes).ok_or_else(|| Failure("a COPY that is cut off".into()))
}

/// A COPY in the messages of a server: one for each row, the first with the header, the last with the
/// trailer (PostgreSQL manual, "Message Formats" and "COPY, Binary Format").
fn messages(mut copy: &[u8]) -> Option<Vec<u8>> {
    /// Signature, flags and the length of the extension, which is empty.
    const HEADER: usize = 11 + 4 + 4;
    let (mut messages, mut before) = (Vec::with_capacity(copy.len() * 2), HEADER);
    while !copy.is_empty() {
        let mut end = before;
        let count = i16::from_be_bytes(*copy.get(end..)?.first_chunk()?);
        end += 2;
        for _ in 0..count {
            let length = i32::from_be_bytes(*copy.get(end..)?.first_chunk()?);
            end += 4 + usize::try_from(length).unwrap_or(0);
        }
        let (message, rest) = copy.split_at_checked(end)?;
        messages.push(b'd');
        messages.extend(u32::try_from(4 + message.len()).ok()?.to_be_bytes());
        messages.extend_from_slice(message);
        (copy, before) = (rest, 0);
    }
    Some(messages)
}

/// Decodes the messages of a COPY into one batch.
pub fn decoded(columns: &[Column], native: bool, bytes: &[u8]) -> Result<RecordBatch, Failure> {
    let mut decoder = Decoder::new(columns, native, MAX_RECORD_BYTES);
    let taken = decoder.push_messages(bytes)?;
    if taken < bytes.len() {
        return Err(Failure("more than is decoded at once".into()));
    }
    decoder.finish()?;
    Ok(decoder.take_batch()?)
}

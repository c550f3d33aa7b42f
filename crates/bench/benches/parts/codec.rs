//! Decoding and encoding the binary COPY format, type by type.

use std::io::Read;

use rapidbyte_pg::builtin::{self, Builtin};
use rapidbyte_pg::copy::{Decoder, Encoder};
use rapidbyte_pg::{Column, select_expression};
use rapidbyte_sdk::prelude::RecordBatch;
use rapidbyte_testkit::postgres::{Client, Server};

use rapidbyte_bench::failure::Failure;

use super::Parts;
use super::guest::{CODEC, Guest};
use super::stages::{narrow, narrow_bytes};

/// Rows of one batch, about as many as a connector makes.
pub const ROWS: usize = 10_000;
const MAX_RECORD_BYTES: usize = 64 << 20;

/// A column of one type, and its value in row `i`.
struct Sample {
    name: &'static str,
    column: Column,
    value: &'static str,
}

fn of(builtin: Builtin, value: &'static str) -> Sample {
    Sample {
        name: builtin.sql,
        column: builtin.column("v"),
        value,
    }
}

fn samples() -> Vec<Sample> {
    let mut numeric = of(builtin::NUMERIC, "(i * 7919 % 1000000007)::numeric / 10000");
    numeric.name = "numeric(18,4)";
    numeric.column.typmod = builtin::to_numeric_typmod(18, 4);
    let texts = Sample {
        name: "text[]",
        column: Column::new("v", builtin::TEXT.array_ty(), "text[]"),
        value: "ARRAY['label ' || i % 100, NULL, 'x']",
    };
    let integers = Sample {
        name: "integer[]",
        column: Column::new("v", builtin::INT4.array_ty(), "integer[]"),
        value: "ARRAY[i, i + 1, i + 2]",
    };
    vec![
        of(builtin::BOOL, "i % 3 = 0"),
        of(builtin::INT2, "i % 1000"),
        of(builtin::INT4, "i"),
        of(builtin::INT8, "i"),
        of(builtin::FLOAT4, "i * 0.5"),
        of(builtin::FLOAT8, "i * 0.37"),
        numeric,
        of(builtin::TEXT, "'customer ' || i"),
        of(builtin::BYTEA, "decode(md5(i::text), 'hex')"),
        of(builtin::UUID, "md5(i::text)"),
        of(builtin::DATE, "date '2000-01-01' + i % 10000"),
        of(builtin::TIME, "time '00:00' + i * interval '1 second'"),
        of(
            builtin::TIMESTAMP,
            "timestamp '2020-01-01' + i * interval '17 seconds'",
        ),
        of(
            builtin::TIMESTAMPTZ,
            "timestamptz '2020-01-01Z' + i * interval '17 seconds'",
        ),
        of(builtin::INTERVAL, "i * interval '1 hour'"),
        of(
            builtin::JSON,
            "json_build_object('id', i, 'tag', md5(i::text))",
        ),
        of(
            builtin::JSONB,
            "jsonb_build_object('id', i, 'tag', md5(i::text))",
        ),
        texts,
        integers,
    ]
}

pub fn run(parts: &mut Parts, server: &Server) -> Result<(), Failure> {
    let mut client = server.client("postgres");
    let guest = Guest::load(CODEC)?;
    for sample in samples() {
        let columns = [sample.column];
        let select = format!("(({}))::{} AS v", sample.value, sample.name);
        // The native form is the bytes of the server, so decoding and encoding copy them.
        for (form, native) in [("", false), (", native form", true)] {
            let bytes = copied(&mut client, &columns, &select, native, ROWS)?;
            let name = format!("{}{form}", sample.name);
            values(parts, guest.as_ref(), &name, (&columns, native, &bytes))?;
        }
    }
    let bytes = narrow_bytes(&mut client, ROWS)?;
    let columns = narrow();
    let rows = (columns.as_slice(), false, bytes.as_slice());
    values(parts, guest.as_ref(), "rows of narrow", rows)
}

/// Decodes and encodes the values of a COPY, here and in the sandbox.
fn values(
    parts: &mut Parts,
    guest: Option<&Guest>,
    name: &str,
    (columns, native, bytes): (&[Column], bool, &[u8]),
) -> Result<(), Failure> {
    let count = ROWS * columns.len();
    let batch = decoded(columns, native, bytes)?;
    parts.measure(&format!("decode {name}"), "value", count, || {
        decoded(columns, native, bytes)
    })?;
    let mut encoder = Encoder::new(&batch.schema(), columns)?;
    let mut out = Vec::with_capacity(bytes.len());
    parts.measure(&format!("encode {name}"), "value", count, || {
        out.clear();
        Ok(encoder.encode(&batch, &mut out)?)
    })?;
    match guest {
        Some(guest) => in_sandbox(parts, guest, name, (columns, native, bytes)),
        None => Ok(()),
    }
}

/// The same work inside the sandbox; a value's share of the call is less than a nanosecond.
fn in_sandbox(
    parts: &mut Parts,
    guest: &Guest,
    name: &str,
    (columns, native, bytes): (&[Column], bool, &[u8]),
) -> Result<(), Failure> {
    for work in ["decode", "encode"] {
        parts.prepared(
            &format!("{work} {name}, sandbox"),
            "value",
            ROWS * columns.len(),
            || guest.session(columns, native, bytes, work),
            |session| Ok(session.check()?),
        )?;
    }
    Ok(())
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

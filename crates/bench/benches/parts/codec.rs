//! Decoding and encoding the binary COPY format, type by type.

use rapidbyte_pg::Column;
use rapidbyte_pg::builtin::{self, Builtin};
use rapidbyte_pg::copy::Encoder;
use rapidbyte_testkit::postgres::Server;

use rapidbyte_bench::failure::Failure;

use super::Parts;
use super::guest::{CODEC, Guest};
use super::rows::{ROWS, copied, decoded, narrow, narrow_bytes};

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

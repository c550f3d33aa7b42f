//! The cost of a row alone and in larger batches: a row in a batch must never cost more.

use rapidbyte_bench::failure::Failure;
use rapidbyte_bench::parts::{COUNTS, bulk_name};
use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg::insert::Parameter;
use rapidbyte_pg::model::CompositeField;
use rapidbyte_pg::{Kind, PgType};
use rapidbyte_sdk::ipc;
use rapidbyte_testkit::postgres::{Client, Server};

use super::Parts;
use super::rows::{decoded, narrow, narrow_batch, narrow_bytes};

/// The OID of a table's row type, as a user's table might have it.
const ROW_OID: u32 = 16_400;
/// As the INSERT of the connector fills a message.
const FULL_BYTES: usize = 1 << 20;

/// Measures a path with this many rows at a time.
type Measure = fn(&mut Parts, &str, &mut Client, usize) -> Result<(), Failure>;
const PATHS: [(&str, Measure); 5] = [
    ("bulk: decode COPY", decode),
    ("bulk: encode COPY", encode),
    ("bulk: encode INSERT", insert),
    ("bulk: IPC encode", ipc_encode),
    ("bulk: IPC decode", ipc_decode),
];

/// Measures all paths.
pub fn run(parts: &mut Parts, server: &Server) -> Result<(), Failure> {
    let mut client = server.client("postgres");
    for (name, measure) in PATHS {
        for rows in COUNTS {
            measure(parts, &bulk_name(name, rows), &mut client, rows)?;
        }
    }
    Ok(())
}

/// The names of all paths.
pub fn paths() -> [&'static str; PATHS.len()] {
    PATHS.map(|(name, _)| name)
}

fn decode(parts: &mut Parts, name: &str, client: &mut Client, rows: usize) -> Result<(), Failure> {
    let (columns, bytes) = (narrow(), narrow_bytes(client, rows)?);
    parts.measure(name, "row", rows, || decoded(&columns, false, &bytes))
}

fn encode(parts: &mut Parts, name: &str, client: &mut Client, rows: usize) -> Result<(), Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = Encoder::new(&batch.schema(), &narrow())?;
    let mut out = Vec::new();
    let work = || {
        out.clear();
        Ok(encoder.encode(&batch, &mut out)?)
    };
    parts.measure(name, "row", rows, work)
}

fn insert(parts: &mut Parts, name: &str, client: &mut Client, rows: usize) -> Result<(), Failure> {
    let batch = narrow_batch(client, rows)?;
    let columns = narrow();
    let fields = columns.iter().map(|column| CompositeField {
        name: column.name.clone(),
        ty: column.ty.clone(),
        typmod: column.typmod,
        type_text: column.type_text.clone(),
    });
    let row_type = PgType {
        oid: ROW_OID,
        schema: "bench".into(),
        name: "items".into(),
        kind: Kind::Composite {
            fields: fields.collect(),
        },
    };
    let mut parameter = Parameter::new(&batch.schema(), &columns, &row_type)?;
    let mut out = Vec::new();
    let work = || {
        out.clear();
        let bound = parameter.bind(&batch)?;
        let written = bound.encode(0..rows, FULL_BYTES, &mut out)?;
        match written == rows {
            true => Ok(()),
            false => Err(Failure(format!("{written} of {rows} rows were written"))),
        }
    };
    parts.measure(name, "row", rows, work)
}

fn ipc_encode(
    parts: &mut Parts,
    name: &str,
    client: &mut Client,
    rows: usize,
) -> Result<(), Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = ipc::Encoder::new(&batch.schema())?;
    parts.measure(name, "row", rows, || Ok(encoder.encode(&batch)?))
}

fn ipc_decode(
    parts: &mut Parts,
    name: &str,
    client: &mut Client,
    rows: usize,
) -> Result<(), Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = ipc::Encoder::new(&batch.schema())?;
    let decoder = ipc::Decoder::new(encoder.schema_message())?;
    let message = encoder.encode(&batch)?;
    let work = || Ok(decoder.decode(message.clone())?);
    parts.measure(name, "row", rows, work)
}

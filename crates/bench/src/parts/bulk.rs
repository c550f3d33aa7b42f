//! What a row costs by itself and among others: many at a time must never cost more for each.

use rapidbyte_pg::copy::Encoder;
use rapidbyte_pg::insert::Parameter;
use rapidbyte_pg::model::CompositeField;
use rapidbyte_pg::{Kind, PgType};
use rapidbyte_sdk::ipc;
use rapidbyte_testkit::postgres::{Client, Server};

use super::codec::decoded;
use super::nanos;
use super::stages::{narrow, narrow_batch, narrow_bytes};
use crate::failure::Failure;
use crate::figures::render;

/// One row at a time, and rows together.
const COUNTS: [usize; 6] = [1, 10, 50, 100, 500, 1000];
/// The OID of a table's row type, as a user's table might have it.
const ROW_OID: u32 = 16_400;
/// As the INSERT of the connector fills a message.
const FULL_BYTES: usize = 1 << 20;

/// A path and the nanoseconds of a row, for each of [`COUNTS`]: of the least sample, which what else
/// the machine does disturbs least.
struct Path {
    name: &'static str,
    nanos: Vec<f64>,
}

/// Measures all paths and fails when one is dearer in bulk.
pub fn run(server: &Server, filter: &str) -> Result<(), Failure> {
    let mut client = server.client("postgres");
    let mut paths = Vec::new();
    for (name, measure) in PATHS {
        if name.contains(filter) {
            let cost = |rows: usize| measure(&mut client, rows);
            let nanos = COUNTS.into_iter().map(cost).collect::<Result<_, _>>()?;
            paths.push(Path { name, nanos });
        }
    }
    if paths.is_empty() {
        return Ok(());
    }
    println!("{}", shown(&paths));
    let dearer: Vec<&str> = paths
        .iter()
        .filter(|path| path.is_dearer_in_bulk())
        .map(|path| path.name)
        .collect();
    match dearer.as_slice() {
        [] => Ok(()),
        names => Err(Failure(format!(
            "a row costs more in bulk than alone: {}",
            names.join(", ")
        ))),
    }
}

type Measure = fn(&mut Client, usize) -> Result<f64, Failure>;
const PATHS: [(&str, Measure); 5] = [
    ("bulk: decode COPY", decode),
    ("bulk: encode COPY", encode),
    ("bulk: encode INSERT", insert),
    ("bulk: IPC encode", ipc_encode),
    ("bulk: IPC decode", ipc_decode),
];

impl Path {
    /// Beyond what two measurements of the same differ by.
    fn is_dearer_in_bulk(&self) -> bool {
        const TOLERANCE: f64 = 1.1;
        match self.nanos.split_first() {
            Some((single, bulk)) => bulk.iter().any(|nanos| *nanos > single * TOLERANCE),
            None => false,
        }
    }
}

fn shown(paths: &[Path]) -> String {
    let mut head = vec!["ns a row, rows at a time".to_owned()];
    head.extend(COUNTS.map(|count| count.to_string()));
    let mut lines = vec![head];
    for path in paths {
        let mut line = vec![path.name.to_owned()];
        line.extend(path.nanos.iter().map(|nanos| format!("{nanos:.0}")));
        lines.push(line);
    }
    render(&lines)
}

fn decode(client: &mut Client, rows: usize) -> Result<f64, Failure> {
    let (columns, bytes) = (narrow(), narrow_bytes(client, rows)?);
    let work = || decoded(&columns, false, &bytes);
    Ok(nanos(work, rows)?.min)
}

fn encode(client: &mut Client, rows: usize) -> Result<f64, Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = Encoder::new(&batch.schema(), &narrow())?;
    let mut out = Vec::new();
    let work = || {
        out.clear();
        Ok(encoder.encode(&batch, &mut out)?)
    };
    Ok(nanos(work, rows)?.min)
}

fn insert(client: &mut Client, rows: usize) -> Result<f64, Failure> {
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
    Ok(nanos(work, rows)?.min)
}

fn ipc_encode(client: &mut Client, rows: usize) -> Result<f64, Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = ipc::Encoder::new(&batch.schema())?;
    Ok(nanos(|| Ok(encoder.encode(&batch)?), rows)?.min)
}

fn ipc_decode(client: &mut Client, rows: usize) -> Result<f64, Failure> {
    let batch = narrow_batch(client, rows)?;
    let mut encoder = ipc::Encoder::new(&batch.schema())?;
    let decoder = ipc::Decoder::new(encoder.schema_message())?;
    let message = encoder.encode(&batch)?;
    let work = || Ok(decoder.decode(message.clone())?);
    Ok(nanos(work, rows)?.min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_dearer_in_bulk_is_found() {
        let path = |nanos: &[f64]| Path {
            name: "a",
            nanos: nanos.to_vec(),
        };
        assert!(!path(&[100.0, 60.0, 50.0]).is_dearer_in_bulk());
        assert!(!path(&[100.0, 105.0, 50.0]).is_dearer_in_bulk());
        assert!(path(&[100.0, 60.0, 120.0]).is_dearer_in_bulk());
    }
}

//! A source on a fresh database of the shared server.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{ipc, source};
use source_postgres::{Postgres, Rows};

pub const WAIT: Duration = Duration::from_secs(20);

pub fn open(url: &str) -> Postgres {
    source::open(&format!(r#"{{"url": "{url}"}}"#)).unwrap()
}

/// As the role `name`, who has no password: the server must trust.
pub fn as_role(url: &str, name: &str) -> String {
    let (_, at) = url.split_once('@').unwrap();
    format!("postgres://{name}:secret@{at}")
}

pub fn request(stream: &str) -> ReadRequest {
    ReadRequest {
        stream: stream.into(),
        snapshot: String::new(),
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        forms: Vec::new(),
        batch_bytes: 1 << 20,
        max_record_bytes: 64 << 20,
    }
}

pub fn columns(stream: &str, names: &[&str]) -> ReadRequest {
    ReadRequest {
        columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..request(stream)
    }
}

pub fn filtered(stream: &str, condition: &str) -> ReadRequest {
    ReadRequest {
        filter: Some(condition.into()),
        ..request(stream)
    }
}

pub fn native(stream: &str) -> ReadRequest {
    ReadRequest {
        forms: vec!["postgresql".into()],
        ..request(stream)
    }
}

/// All batches to the end.
pub fn drain(reader: &mut Rows) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    loop {
        match reader.next(WAIT)? {
            Event::Batch(batch) => {
                assert_eq!(batch.schema(), reader.schema());
                batches.push(batch);
            }
            Event::End => return Ok(batches),
            Event::Idle => {}
            Event::Checkpoint(_) => panic!("a checkpoint"),
        }
    }
}

pub fn read(source: &mut Postgres, request: &ReadRequest) -> Result<Vec<RecordBatch>> {
    drain(&mut source.read(request)?)
}

/// The error of beginning to read.
pub fn refused(source: &mut Postgres, request: &ReadRequest) -> Error {
    match source.read(request) {
        Ok(_) => panic!("must be refused"),
        Err(error) => error,
    }
}

pub fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// The values of a column of type Int32, sorted.
pub fn ints(batches: &[RecordBatch], column: usize) -> Vec<i32> {
    let mut values: Vec<i32> = batches
        .iter()
        .flat_map(|batch| {
            let array = batch.column(column).as_any();
            let array = array.downcast_ref::<Int32Array>().unwrap();
            array.values().to_vec()
        })
        .collect();
    values.sort_unstable();
    values
}

pub fn schema(stream: &Stream) -> Schema {
    ipc::decode_schema(&stream.schema).unwrap()
}

pub fn find<'a>(streams: &'a [Stream], name: &str) -> &'a Stream {
    let found = streams.iter().find(|stream| stream.name == name);
    found.unwrap_or_else(|| panic!("{name} is not listed"))
}

/// Who acts: the contract's kinds have no equality.
pub fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).replace("ErrorKind::", "")
}

/// All columns and rows of a stream.
pub fn whole(stream: &str) -> Selection {
    Selection {
        stream: stream.into(),
        columns: None,
        filter: None,
        increment: None,
        cursor: None,
    }
}

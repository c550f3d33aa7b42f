//! A source on a fresh database of the shared server.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(dead_code, reason = "each test file uses a part")]

use std::time::Duration;

use rapidbyte_pg::form::{METADATA_KEY, table_of};
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{ipc, source};
use rapidbyte_testkit::postgres::Client;
use source_postgres::{Postgres, Rows};

pub const WAIT: Duration = Duration::from_secs(20);

pub fn open(url: &str) -> Postgres {
    source::open(&format!(r#"{{"url": "{url}"}}"#)).unwrap()
}

/// The URL for the role `name` with the password `secret`; a server with `Auth::Trust` ignores the password.
pub fn as_role(url: &str, name: &str) -> String {
    let (_, at) = url.split_once('@').unwrap();
    format!("postgres://{name}:secret@{at}")
}

pub fn request(stream: &str) -> ReadRequest {
    ReadRequest::of(&Stream::new(stream, &Schema::empty()).unwrap())
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
            Event::Checkpoint(_) | Event::Rejects(_) | Event::Changed(_) => {
                panic!("nobody asked for it")
            }
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

/// The schema without the transaction id of the moment when it was read. Other tests on the server raise that id.
pub fn at_any_time(schema: &Schema) -> Schema {
    let mut table = table_of(schema).unwrap();
    let Some(origin) = table.origin.as_mut() else {
        return schema.clone();
    };
    assert!(origin.xid > 0, "{origin:?}");
    origin.xid = 0;
    let mut metadata = schema.metadata().clone();
    let table = serde_json::to_string(&table).unwrap();
    metadata.insert(METADATA_KEY.to_owned(), table);
    Schema::new_with_metadata(schema.fields().clone(), metadata)
}

pub fn find<'a>(streams: &'a [Stream], name: &str) -> &'a Stream {
    let found = streams.iter().find(|stream| stream.name == name);
    found.unwrap_or_else(|| panic!("{name} is not listed"))
}

/// The error's kind as a string, because the contract's kinds have no equality.
pub fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).replace("ErrorKind::", "")
}

/// All columns and rows of a stream.
pub fn whole(stream: &str) -> Selection {
    Selection {
        stream: stream.into(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    }
}

/// By the order of these columns, from the cursor on.
pub fn ordered(fields: &[&str], allow_duplicates: bool) -> Increment {
    Increment {
        cursor_fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        initial: None,
        late_rows: LateRows::Lag(None),
        allow_duplicates,
    }
}

/// By windows of transaction ids.
pub fn exact(allow_duplicates: bool) -> Increment {
    Increment {
        late_rows: LateRows::Exact,
        ..ordered(&[], allow_duplicates)
    }
}

/// The column `id` of what is new.
pub fn news(stream: &str, increment: &Increment, cursor: Option<&str>) -> ReadRequest {
    ReadRequest {
        increment: Some(increment.clone()),
        cursor: cursor.map(Into::into),
        // As small as the connection gives them.
        batch_bytes: 1,
        ..columns(stream, &["id"])
    }
}

/// The outcome of an incremental read.
#[derive(Debug, Default)]
pub struct Given {
    /// Of the first column, in their order.
    pub ids: Vec<i32>,
    /// Each with the number of rows before it.
    pub checkpoints: Vec<(usize, String)>,
    pub batches: usize,
}

impl Given {
    /// The last checkpoint, which must come after the last row.
    pub fn cursor(&self) -> &str {
        let (rows, cursor) = self.checkpoints.last().unwrap();
        assert_eq!(*rows, self.ids.len(), "no checkpoint behind the last row");
        cursor
    }

    pub fn sorted(&self) -> Vec<i32> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids
    }
}

/// Reads what is new to the end.
pub fn increase(source: &mut Postgres, request: &ReadRequest) -> Result<Given> {
    let mut reader = source.read(request)?;
    let mut given = Given::default();
    loop {
        match reader.next(WAIT)? {
            Event::Batch(batch) => {
                assert_eq!(batch.schema(), reader.schema());
                assert!(batch.num_rows() > 0);
                given.batches += 1;
                let ids = batch.column(0).as_any();
                let ids = ids.downcast_ref::<Int32Array>().unwrap();
                given.ids.extend(ids.values());
            }
            Event::Checkpoint(cursor) => given.checkpoints.push((given.ids.len(), cursor)),
            Event::End => return Ok(given),
            Event::Idle | Event::Rejects(_) | Event::Changed(_) => {}
        }
    }
}

/// Reads a stream from the beginning and resumes at every checkpoint: nothing may be missing, and
/// nothing come twice where rows may not. Gives the first read.
pub fn resumes_everywhere(source: &mut Postgres, stream: &str, increment: &Increment) -> Given {
    let first = increase(source, &news(stream, increment, None)).unwrap();
    let all = first.sorted();
    first.cursor();
    for (rows, cursor) in &first.checkpoints {
        let rest = increase(source, &news(stream, increment, Some(cursor))).unwrap();
        rest.cursor();
        let mut union = [&first.ids[..*rows], &rest.ids].concat();
        union.sort_unstable();
        if increment.allow_duplicates {
            union.dedup();
        }
        assert_eq!(union, all, "{stream} from {cursor}");
    }
    first
}

/// Numbers that only depend on the seed, which can be given and is shown.
pub struct Random(u64);

impl Random {
    pub fn seeded() -> Self {
        let seed = std::env::var("RAPIDBYTE_SEED").map_or(20_261_121, |seed| seed.parse().unwrap());
        eprintln!("RAPIDBYTE_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Reads the rows that are new since `cursor`, and moves the cursor.
pub fn step(source: &mut Postgres, stream: &str, cursor: &mut Option<String>) -> Vec<i32> {
    let given = increase(source, &news(stream, &exact(false), cursor.as_deref())).unwrap();
    assert_eq!(given.checkpoints.len(), 1, "{given:?}");
    *cursor = Some(given.cursor().to_owned());
    given.sorted()
}

/// Runs statements.
pub fn run(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

/// Few bytes at a time, so that ties reach over batches.
pub fn open_narrow(url: &str) -> Postgres {
    let config = format!(r#"{{"url": "{url}", "fetch_bytes": 4096}}"#);
    rapidbyte_sdk::source::open(&config).unwrap()
}

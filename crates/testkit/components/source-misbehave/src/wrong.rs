//! The wrong things themselves.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use misdeeds::HUNDRED_MB;
use rapidbyte_sdk::bindings::exports_source::{Batch, Event, Position};
use rapidbyte_sdk::connection::Connection;
use rapidbyte_sdk::prelude::*;
use rapidbyte_sdk::{files, ipc, log};

use crate::config::{Call, Config, How};

const MINUTE: Duration = Duration::from_secs(60);
/// How often a flood says something.
const FLOOD: u32 = 1_000_000;
const HUGE_BYTES: usize = 300_000_000;

/// Does the wrong thing if it is due in this call.
pub fn act_at(call: Call, config: &Config) -> Result<()> {
    match config.at == call {
        true => act(config).map(drop),
        false => Ok(()),
    }
}

/// Does the wrong thing. `Ok` is what `next` gives; it can be asked again.
pub fn act(config: &Config) -> Result<Event> {
    match config.how {
        How::Deed(deed) => deed.act(),
        How::Idle => return Ok(Event::Idle),
        How::CheckpointFlood => return Ok(checkpoint("{}".into())),
        How::Connect => drop(connect(config)?),
        How::Read => {
            connect(config)?.read(1 << 16, MINUTE)?;
        }
        How::EmptyBatches => return good(0, 0).map(rows_of),
        How::HugeCursor => return Ok(checkpoint("c".repeat(HUNDRED_MB))),
        How::LongCursor => return Ok(checkpoint(format!("{:?}", "c".repeat(2_000_000)))),
        How::CursorBackwards => return Ok(checkpoint(cursor(config.batch_rows.into()))),
        How::CursorGarbage => return Ok(checkpoint("{\"n\": ".into())),
        How::HugeError => return Err(Error::data("misbehave", "e".repeat(HUNDRED_MB))),
        How::LongError => return Err(Error::data("misbehave", "e".repeat(HUNDRED_MB / 5))),
        How::ErrorControl => return Err(drawing()),
        How::ReadNothing => match &config.path {
            Some(path) => {
                let file = files::open(path)?;
                while file.read(1 << 40, 1 << 20)?.is_empty() {}
            }
            None => {
                let server = connect(config)?;
                while server.read(1 << 16, MINUTE)?.is_empty() {}
            }
        },
        How::FindAgain => {
            let path = wanted(&config.path, "path")?;
            loop {
                black_box(files::find(&path)?);
            }
        }
        How::LogControl => log::info("one\r\n\u{1b}[2Jtwo\u{7}\u{202e}three"),
        How::Handles => {
            let path = wanted(&config.path, "path")?;
            let opened = (0..FLOOD).map(|_| files::open(&path));
            black_box(opened.collect::<Result<Vec<_>>>()?);
        }
        How::Hoard => {
            let opened = (0..FLOOD).map(|_| connect(config));
            black_box(opened.collect::<Result<Vec<_>>>()?);
        }
        How::HugeValue => return encode(&value(config.batch_rows as usize)).map(rows_of),
        How::WideDecimal => return decimals(config.batch_rows, WIDE).map(rows_of),
        How::LieRows | How::Garbage | How::Truncated | How::BadOffsets | How::OtherSchema => {
            return lie(config).map(rows_of);
        }
        How::HugeBatch => {
            let rows = HUGE_BYTES / 8;
            return batch(&Int64Array::from(vec![7; rows])).map(rows_of);
        }
        How::HugeGarbage => {
            let data = vec![0; HUGE_BYTES];
            return Ok(rows_of(Batch { data, rows: 1 }));
        }
        How::Error => return Err(config.kind.error()),
        How::LogFlood => (0..FLOOD).for_each(|n| log::info(format_args!("flood {n}"))),
        How::LogHuge => log::info("x".repeat(64 << 20)),
        // Each line is several calls: a million of them take a minute on a busy machine, which is as long as a run may
        // stand still.
        How::StderrFlood => (0..FLOOD / 8).for_each(|n| eprintln!("flood {n}")),
        How::File => {
            files::open(&wanted(&config.path, "path")?)?.read(0, 1)?;
        }
        How::ForbiddenFile => {
            let path = wanted(&config.ungranted_path, "ungranted_path")?;
            files::open(&path)?;
            return Err(was_allowed(&format!("opening {path}")));
        }
        How::ForbiddenConnect => {
            let host = wanted(&config.ungranted_host, "ungranted_host")?;
            let port = wanted(&config.ungranted_port, "ungranted_port")?;
            Connection::connect(&host, port, MINUTE)?;
            return Err(was_allowed(&format!("connecting to {host}:{port}")));
        }
        How::Env => look_around()?,
        How::Nothing
        | How::EndTwice
        | How::GarbageSchema
        | How::OpenError
        | How::DiscoverError
        | How::ReadError
        | How::CheckpointFirst
        | How::CheckpointMissing => {}
    }
    Ok(Event::End)
}

/// One good batch of the numbers `first..first + rows`.
pub fn good(first: u64, rows: u32) -> Result<Batch> {
    let first = first as i64;
    batch(&Int64Array::from_iter_values(
        first..first + i64::from(rows),
    ))
}

/// A good batch of strings of one letter, for the reader that will give wrong ones.
pub fn good_strings(rows: u32) -> Result<Batch> {
    encode(&strings(rows))
}

/// The schema of the batches that [`good`] gives, or [`good_strings`].
pub fn schema(how: How) -> Schema {
    let (name, data_type) = match how {
        How::BadOffsets | How::HugeValue => ("s", DataType::Utf8),
        How::WideDecimal => ("d", DataType::Decimal128(5, 2)),
        _ => ("n", DataType::Int64),
    };
    Schema::new(vec![Field::new(name, data_type, false)])
}

/// The event with these rows of the only stream.
pub fn rows_of(batch: Batch) -> Event {
    Event::Batch((0, batch))
}

/// The event with this cursor of the only stream.
pub fn checkpoint(cursor: String) -> Event {
    Event::Checkpoint(Position { stream: 0, cursor })
}

/// The place behind the number before `n`.
pub fn cursor(n: u64) -> String {
    format!("{{\"n\":{n}}}")
}

/// A batch of one value of `bytes` bytes.
fn value(bytes: usize) -> RecordBatch {
    let column = StringArray::from_iter_values(["v".repeat(bytes)]);
    RecordBatch::try_new(Arc::new(schema(How::HugeValue)), vec![Arc::new(column)])
        .expect("one column of the schema's type")
}

/// An error that would draw on a terminal.
fn drawing() -> Error {
    const DRAWING: &str = "one\r\n\u{1b}[2Jtwo\u{7}\u{9b}1m\u{202e}three";
    let mut error = Error::data(DRAWING, DRAWING).hint(DRAWING);
    error = error.in_stream(DRAWING).in_column(DRAWING);
    error.at(DRAWING)
}

fn lie(config: &Config) -> Result<Batch> {
    let rows = config.batch_rows;
    let mut batch = match config.how {
        How::Garbage => Batch {
            data: b"these are no Arrow bytes".repeat(100),
            rows: rows.into(),
        },
        How::BadOffsets => {
            let mut batch = good_strings(rows)?;
            break_last_offset(&mut batch.data, rows)?;
            batch
        }
        How::OtherSchema => {
            let n: ArrayRef = Arc::new(Int64Array::from(vec![7; rows as usize]));
            let columns = [("n", Arc::clone(&n)), ("m", n)];
            encode(&RecordBatch::try_from_iter(columns)?)?
        }
        _ => good(0, rows)?,
    };
    match config.how {
        How::LieRows => batch.rows += 1,
        How::Truncated => batch.data.truncate(batch.data.len() / 2),
        _ => {}
    }
    Ok(batch)
}

/// Strings of one letter have the offsets 0, 1, 2 …, which are easily found.
fn break_last_offset(message: &mut [u8], rows: u32) -> Result<()> {
    let last_two = [(rows - 1).to_le_bytes(), rows.to_le_bytes()].concat();
    let at = message
        .windows(8)
        .rposition(|window| window == last_two)
        .ok_or_else(|| Error::internal("no offsets in the message"))?;
    message[at + 4..at + 8].copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
    Ok(())
}

fn batch(numbers: &Int64Array) -> Result<Batch> {
    let columns = vec![Arc::new(numbers.clone()) as ArrayRef];
    encode(&RecordBatch::try_new(
        Arc::new(schema(How::Nothing)),
        columns,
    )?)
}

/// The last value of [`How::WideDecimal`], in hundredths.
const WIDE: i128 = 1_700_000_000;

/// A batch of decimals; the last one is `last` hundredths.
pub fn decimals(rows: u32, last: i128) -> Result<Batch> {
    let values = (1..rows).map(|_| -99_999).chain([last]);
    let column =
        Decimal128Array::from_iter_values(values).with_data_type(DataType::Decimal128(5, 2));
    let batch = RecordBatch::try_new(Arc::new(schema(How::WideDecimal)), vec![Arc::new(column)]);
    encode(&batch.expect("one column of the schema's type"))
}

fn strings(rows: u32) -> RecordBatch {
    let column = StringArray::from_iter_values((0..rows).map(|_| "x"));
    RecordBatch::try_new(Arc::new(schema(How::BadOffsets)), vec![Arc::new(column)])
        .expect("one column of the schema's type")
}

fn encode(batch: &RecordBatch) -> Result<Batch> {
    let mut encoder = ipc::Encoder::new(batch.schema_ref())?;
    Ok(Batch {
        data: encoder.encode(batch)?,
        rows: batch.num_rows() as u64,
    })
}

fn connect(config: &Config) -> Result<Connection> {
    let host = wanted(&config.host, "host")?;
    Connection::connect(&host, wanted(&config.port, "port")?, MINUTE)
}

fn wanted<T: Clone>(value: &Option<T>, key: &str) -> Result<T> {
    value.clone().ok_or_else(|| {
        Error::config("missing_key", format!("this way needs {key:?}")).at(format!("config.{key}"))
    })
}

fn was_allowed(what: &str) -> Error {
    Error::new(
        ErrorKind::Internal,
        "was_allowed",
        format!("{what} was allowed"),
    )
}

/// Everything that the standard WASI set must answer empty or denied.
fn look_around() -> Result<()> {
    if let Some((name, _)) = std::env::vars_os().next() {
        return Err(was_allowed(&format!("reading variable {name:?}")));
    }
    if let Some(argument) = std::env::args_os().nth(1) {
        return Err(was_allowed(&format!("reading argument {argument:?}")));
    }
    for path in ["/", ".", "..", "/etc", "/tmp"] {
        if std::fs::read_dir(path).is_ok() {
            return Err(was_allowed(&format!("listing {path}")));
        }
    }
    if std::fs::File::open("/etc/passwd").is_ok() {
        return Err(was_allowed("opening /etc/passwd"));
    }
    if std::fs::write("misbehave.txt", "x").is_ok() {
        return Err(was_allowed("writing a file"));
    }
    // Whether something listens there does not matter to a sandbox without sockets: only the
    // refusal of the sandbox is "not supported" or "denied".
    match std::net::TcpStream::connect(("127.0.0.1", 1)) {
        Ok(_) => Err(was_allowed("a socket")),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(was_allowed("trying to connect"))
        }
        Err(_) if std::net::TcpListener::bind(("127.0.0.1", 0)).is_ok() => {
            Err(was_allowed("listening"))
        }
        Err(_) => Ok(()),
    }
}

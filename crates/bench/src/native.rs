//! The PostgreSQL connectors as native code: what the same copy costs without a sandbox.
//!
//! The same sources as the components', compiled for this machine and connected as the engine
//! connects them: Arrow IPC from one, a channel of the engine's size, Arrow IPC into the other, on
//! two threads. It is a process of its own, so that it starts and connects as the program does.

use std::time::{Duration, Instant};

use dest_postgres::Postgres as Target;
use rapidbyte_engine::channel::{Received, Receiver, Sender, channel};
use rapidbyte_sdk::prelude::{
    Commit, Destination, Event, ReadRequest, Reader, Run, Selection, Source, WriteMode, Writer,
};
use rapidbyte_sdk::{Target as Stream, destination, ipc, source};
use serde_json::{Value, json};
use source_postgres::Postgres as Origin;

use crate::failure::Failure;
use crate::run::{TABLE, TARGET_SCHEMA};

/// As the engine's defaults: a sixteenth of 256 MiB, and messages.
const CHANNEL_BYTES: usize = 16 << 20;
const MAX_MESSAGES: usize = 1024;
/// As `resources.batch_bytes` and `resources.max_record_bytes`.
const BATCH_BYTES: u32 = 1 << 20;
const MAX_RECORD_BYTES: u64 = 32 << 20;
const WAIT: Duration = Duration::from_millis(250);
/// What both connectors know.
const FORM: &str = "postgresql";

/// What is copied, and how: from the environment of the process.
struct Job {
    source: String,
    target: String,
    write_mode: WriteMode,
    primary_key: Vec<String>,
}

/// A batch on its way.
struct Message {
    data: Vec<u8>,
    rows: usize,
}

/// Where a stage's time went, in seconds.
#[derive(Default)]
struct Times {
    wall: f64,
    ipc: f64,
    channel: f64,
    commit: f64,
}

fn of_connector(error: rapidbyte_sdk::Error) -> Failure {
    Failure::of_connector(&error)
}

/// Copies and gives a report with the same keys as the program's, as far as they apply.
pub fn copy() -> Result<Value, Failure> {
    let begun = Instant::now();
    let job = Job::from_environment()?;
    let config = json!({ "url": job.source }).to_string();
    let mut source = source::open::<Origin>(&config).map_err(of_connector)?;
    let selection = Selection {
        stream: TABLE.into(),
        columns: None,
        filter: None,
        increment: None,
        cursor: None,
    };
    let snapshot = source.snapshot(&[selection]).map_err(of_connector)?;
    let request = ReadRequest {
        stream: TABLE.into(),
        snapshot,
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        forms: vec![FORM.into()],
        batch_bytes: BATCH_BYTES,
        max_record_bytes: MAX_RECORD_BYTES,
    };
    let reader = source.read(&request).map_err(of_connector)?;
    let encoder = ipc::Encoder::new(&reader.schema())?;
    let target = Stream {
        stream: TABLE.into(),
        schema: encoder.schema_message().to_vec(),
        write_mode: job.write_mode,
        primary_key: job.primary_key.clone(),
        deleted_field: None,
        version_fields: Vec::new(),
        keeps_cursor: false,
    };
    let (sender, receiver) = channel(CHANNEL_BYTES, MAX_MESSAGES);
    let (read, written) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&job, &target, receiver));
        let read = read_all(begun, reader, encoder, sender);
        let written = writing.join().expect("the writing stage does not panic");
        (read, written)
    });
    // The destination's failure is the cause when the channel was closed on the source.
    let (written, rows) = written?;
    let read = read?;
    Ok(json!({
        "rows": rows,
        "cpu_secs": crate::machine::cpu_secs(),
        "peak_rss_bytes": crate::machine::peak_rss_bytes(),
        "timing": {
            "source_arrow_encode_secs": read.ipc,
            "channel_wait_secs": read.channel,
            "dest_recv_secs": written.channel,
            "dest_arrow_decode_secs": written.ipc,
            "dest_commit_secs": written.commit,
        },
        "streams": [{"source": {"wall_secs": read.wall}, "destination": {"wall_secs": written.wall}}],
    }))
}

fn read_all(
    begun: Instant,
    mut reader: impl Reader,
    mut encoder: ipc::Encoder,
    mut sender: Sender<Message>,
) -> Result<Times, Failure> {
    let mut times = Times::default();
    loop {
        match reader.next(WAIT).map_err(of_connector)? {
            Event::Batch(batch) => {
                let data = timed(&mut times.ipc, || encoder.encode(&batch))?;
                let bytes = data.len();
                let rows = batch.num_rows();
                timed(&mut times.channel, || {
                    sender.send(Message { data, rows }, bytes)
                })?;
            }
            Event::End => {
                sender.end()?;
                times.wall = begun.elapsed().as_secs_f64();
                return Ok(times);
            }
            Event::Idle | Event::Checkpoint(_) => {}
        }
    }
}

fn write(
    job: &Job,
    target: &Stream,
    mut receiver: Receiver<Message>,
) -> Result<(Times, u64), Failure> {
    let begun = Instant::now();
    let mut times = Times::default();
    let config = json!({"url": job.target, "schema": TARGET_SCHEMA}).to_string();
    let mut destination = destination::open::<Target>(&config).map_err(of_connector)?;
    destination.plan(target).map_err(of_connector)?;
    let run = Run {
        pipeline: "bench-native".into(),
        id: format!("{}-{}", crate::machine::unix_secs(), std::process::id()),
    };
    let progress = destination.fence(target, &run).map_err(of_connector)?;
    let mut writer = destination
        .open_writer(target, progress.epoch, None)
        .map_err(of_connector)?;
    let decoder = ipc::Decoder::new(&target.schema)?;
    loop {
        match timed(&mut times.channel, || receiver.recv()) {
            Received::Item(Message { data, rows }) => {
                let batch = timed(&mut times.ipc, || decoder.decode(data))?;
                if batch.num_rows() != rows {
                    return Err(Failure("a batch changed its number of rows".into()));
                }
                writer.write(&batch).map_err(of_connector)?;
            }
            Received::End => break,
            Received::Aborted | Received::Cancelled => {
                return Err(Failure("the source stopped early".into()));
            }
        }
    }
    let receipt = timed(&mut times.commit, || {
        let part = writer.flush()?;
        destination.commit(Commit {
            seq: progress.seq,
            ..Commit::whole(&target.stream, vec![part])
        })
    })
    .map_err(of_connector)?;
    times.wall = begun.elapsed().as_secs_f64();
    Ok((times, receipt.rows))
}

fn timed<T>(secs: &mut f64, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let given = work();
    *secs += begun.elapsed().as_secs_f64();
    given
}

impl Job {
    fn from_environment() -> Result<Self, Failure> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| Failure(format!("{name} is not set for `native`")))
        };
        let upserts = variable("BENCH_WRITE_MODE")? == "upsert";
        Ok(Self {
            source: variable("BENCH_SOURCE")?,
            target: variable("BENCH_TARGET")?,
            write_mode: if upserts {
                WriteMode::Upsert
            } else {
                WriteMode::Append
            },
            primary_key: if upserts {
                vec!["id".into()]
            } else {
                Vec::new()
            },
        })
    }
}

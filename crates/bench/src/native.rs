//! The PostgreSQL connectors as native code: what the same copy costs without a sandbox.
//!
//! The same sources as the components', compiled for this machine and connected as the engine
//! connects them: Arrow IPC from one, a channel of the engine's size, Arrow IPC into the other, on
//! two threads. It is a process of its own, so that it starts and connects as the program does. The
//! time of each stage is split by the same clock, which here the SDK moves instead of the host.

use std::sync::mpsc;
use std::time::Duration;

use dest_postgres::Postgres as Target;
use rapidbyte_engine::channel::{
    BATCH_EXCESS, MAX_BATCHES, MAX_MESSAGES, Received, Receiver, Sender, channel,
};
use rapidbyte_engine::report::{Side, StageReport};
use rapidbyte_runtime::{Clock, Phase};
use rapidbyte_sdk::phase::{self, Kind, Outside};
use rapidbyte_sdk::prelude::{
    Commit, Event, LoadRequest, ReadRequest, Reader, Run, Selection, Source, WriteMode,
};
use rapidbyte_sdk::{SchemaChanges, Target as Stream, destination, ipc, source};
use serde_json::{Map, Value, json};
use source_postgres::Postgres as Origin;

use crate::failure::Failure;
use crate::run::{Method, TABLE, TARGET_SCHEMA};

/// As `resources.batch_bytes` and `resources.max_record_bytes`.
const BATCH_BYTES: u32 = 1 << 20;
const MAX_RECORD_BYTES: u64 = 32 << 20;
const CHANNEL_BYTES: usize = (BATCH_BYTES as usize + BATCH_EXCESS) * MAX_BATCHES;
const WAIT: Duration = Duration::from_millis(250);
/// The native form that both connectors know.
const FORM: &str = "postgresql";

/// The copy to make, from the environment of the process.
struct Job {
    source: String,
    target: String,
    method: Method,
    write_mode: WriteMode,
    primary_key: Vec<String>,
}

/// A batch on its way.
struct Message {
    data: Vec<u8>,
    rows: usize,
}

/// The result of the writing stage.
struct Written {
    stage: StageReport,
    rows: u64,
    /// Of Arrow IPC.
    bytes: u64,
}

/// Copies and gives a report with the same keys as the program's, as far as they apply. Both
/// connectors log in at the same time, as the engine has them do.
pub fn copy() -> Result<Value, Failure> {
    let job = Job::from_environment()?;
    let (sender, receiver) = channel(CHANNEL_BYTES, MAX_MESSAGES);
    let (schema_sender, schema) = mpsc::sync_channel(1);
    let (read, written) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&job, schema, receiver));
        let read = read_all(&job, schema_sender, sender);
        let written = writing.join().expect("the writing stage does not panic");
        (read, written)
    });
    // The destination's failure is the cause when the channel was closed on the source.
    let written = written?;
    let source = read?;
    let Written { stage, rows, bytes } =
        written.ok_or_else(|| Failure("the source stopped early".into()))?;
    Ok(report(source, stage, rows, bytes))
}

/// The reading stage; it sends the schema to the writing stage as soon as the schema is known.
fn read_all(
    job: &Job,
    schema: mpsc::SyncSender<Vec<u8>>,
    sender: Sender<Message>,
) -> Result<StageReport, Failure> {
    let clock = clock();
    let config = json!({ "url": job.source }).to_string();
    let mut source = source::open::<Origin>(&config).map_err(Failure::of_connector)?;
    let selection = Selection {
        stream: TABLE.into(),
        columns: None,
        filter: None,
        query: None,
        increment: None,
        cursor: None,
    };
    let snapshot = source
        .snapshot(&[selection])
        .map_err(Failure::of_connector)?;
    let request = ReadRequest {
        stream: TABLE.into(),
        snapshot,
        increment: None,
        cursor: None,
        columns: None,
        filter: None,
        query: None,
        forms: vec![FORM.into()],
        batch_bytes: BATCH_BYTES,
        max_record_bytes: MAX_RECORD_BYTES,
        keeps_rejects: false,
        records: None,
        rows: None,
    };
    let reader = source.read(&request).map_err(Failure::of_connector)?;
    let encoder = ipc::Encoder::new(&reader.schema())?;
    // Where the other stage has failed, the channel is closed, too.
    let _ = schema.send(encoder.schema_message().to_vec());
    send_all(&clock, reader, encoder, sender)
}

/// With the sums of both stages' parts, without those that native code does not have.
fn report(source: StageReport, destination: StageReport, rows: u64, bytes: u64) -> Value {
    let mut timing = Map::new();
    for (key, value) in source.parts.iter().chain(&destination.parts) {
        let secs = value.as_f64().unwrap_or_default();
        let before = timing.get(key).and_then(Value::as_f64).unwrap_or_default();
        if before + secs > 0.0 {
            timing.insert(key.clone(), json!(before + secs));
        }
    }
    json!({
        "rows": rows,
        "cpu_secs": crate::machine::cpu_secs(),
        "peak_rss_bytes": crate::machine::peak_rss_bytes(),
        "timing": timing,
        "streams": [{"bytes": bytes, "source": source, "destination": destination}],
    })
}

/// A stage's clock, which from now on follows what the connector on this thread does.
fn clock() -> Clock {
    let clock = Clock::new();
    let followed = clock.clone();
    phase::watch(move |kind, outside| {
        followed.enter(phase_of(kind, outside));
    });
    clock
}

/// As the host counts it for a component: a call to the outside belongs to what the connector is
/// about, or else is one of its own.
fn phase_of(kind: Kind, outside: Option<Outside>) -> Phase {
    match (kind, outside) {
        (Kind::Connect, _) => Phase::Connect,
        (Kind::Query, _) => Phase::Query,
        (Kind::Flush, _) => Phase::Flush,
        (Kind::Commit, _) => Phase::Commit,
        (_, Some(Outside::Connect)) => Phase::Connect,
        (_, Some(Outside::Read)) => Phase::Fetch,
        (_, Some(Outside::Write)) => Phase::Flush,
        (Kind::Decode, None) => Phase::Decode,
        (Kind::Transform, None) => Phase::Transform,
        (Kind::Encode, None) => Phase::Encode,
        (Kind::ArrowEncode, None) => Phase::ArrowEncode,
        (Kind::ArrowDecode, None) => Phase::ArrowDecode,
        (Kind::Other, None) => Phase::Other,
    }
}

fn send_all(
    clock: &Clock,
    mut reader: impl Reader,
    mut encoder: ipc::Encoder,
    mut sender: Sender<Message>,
) -> Result<StageReport, Failure> {
    loop {
        match reader.next(WAIT).map_err(Failure::of_connector)? {
            Event::Batch(batch) => {
                let data = {
                    let _phase = phase::enter(Kind::ArrowEncode);
                    encoder.encode(&batch)?
                };
                let (bytes, rows) = (data.len(), batch.num_rows());
                waiting(clock, || sender.send(Message { data, rows }, bytes))?;
            }
            Event::End => {
                sender.end()?;
                return Ok(StageReport::new(clock, Side::Source));
            }
            Event::Idle | Event::Checkpoint(_) | Event::Rejects(_) => {}
        }
    }
}

/// The writing stage; nothing where the reading one has stopped early.
fn write(
    job: &Job,
    schema: mpsc::Receiver<Vec<u8>>,
    mut receiver: Receiver<Message>,
) -> Result<Option<Written>, Failure> {
    let clock = clock();
    let mut destination =
        destination::open::<Target>(&job.target_config()).map_err(Failure::of_connector)?;
    let Ok(schema) = waiting(&clock, || schema.recv()) else {
        return Ok(None);
    };
    let target = job.target_stream(schema);
    destination.plan(&target).map_err(Failure::of_connector)?;
    let decoder = ipc::Decoder::new(&target.schema)?;
    let run = Run {
        pipeline: "bench-native".into(),
        id: format!("{}-{}", crate::machine::unix_secs(), std::process::id()),
    };
    let begun = destination.begin(&[LoadRequest { target, run }]);
    let mut load = begun.map_err(Failure::of_connector)?;
    load.open_writer(None).map_err(Failure::of_connector)?;
    let mut bytes = 0;
    loop {
        match waiting(&clock, || receiver.recv()) {
            Received::Item(Message { data, rows }) => {
                bytes += data.len() as u64;
                let batch = {
                    let _phase = phase::enter(Kind::ArrowDecode);
                    decoder.decode(data)?
                };
                if batch.num_rows() != rows {
                    return Err(Failure("a batch changed its number of rows".into()));
                }
                load.write(&batch).map_err(Failure::of_connector)?;
            }
            Received::End => break,
            Received::Aborted | Received::Cancelled => return Ok(None),
        }
    }
    let part = load.flush().map_err(Failure::of_connector)?;
    let commit = Commit {
        seq: load.progress().seq,
        ..Commit::whole(TABLE, vec![part])
    };
    let receipt = load.commit(commit).map_err(Failure::of_connector)?;
    Ok(Some(Written {
        stage: StageReport::new(&clock, Side::Destination),
        rows: receipt.rows,
        bytes,
    }))
}

/// Time for the other stage.
fn waiting<T>(clock: &Clock, work: impl FnOnce() -> T) -> T {
    let before = clock.enter(Phase::ChannelWait);
    let given = work();
    clock.enter(before);
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
            method: Method::named(&variable("BENCH_METHOD")?)?,
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

    /// Of the destination.
    fn target_config(&self) -> String {
        let method = self.method.key();
        json!({"url": self.target, "schema": TARGET_SCHEMA, "load_method": method}).to_string()
    }

    fn target_stream(&self, schema: Vec<u8>) -> Stream {
        Stream {
            stream: TABLE.into(),
            schema,
            write_mode: self.write_mode,
            primary_key: self.primary_key.clone(),
            deleted_field: None,
            dedup_fields: Vec::new(),
            name: None,
            namespace: None,
            is_incremental: false,
            schema_changes: SchemaChanges::default(),
            rejects: None,
            deletes: None,
            repairs: None,
            stages: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_the_server_is_no_work_on_values() {
        let waits = |kind| phase_of(kind, Some(Outside::Read));
        assert_eq!(waits(Kind::Decode), Phase::Fetch);
        assert_eq!(waits(Kind::Other), Phase::Fetch);
        assert_eq!(waits(Kind::Commit), Phase::Commit);
        assert_eq!(phase_of(Kind::Encode, Some(Outside::Write)), Phase::Flush);
        assert_eq!(phase_of(Kind::Encode, None), Phase::Encode);
    }

    #[test]
    fn the_clock_follows_the_connector_of_its_thread() {
        let clock = clock();
        {
            let _phase = phase::enter(Kind::ArrowEncode);
            std::hint::black_box((0..10_000).sum::<u64>());
        }
        assert!(clock.spent(Phase::ArrowEncode) > Duration::ZERO);
        assert_eq!(clock.spent(Phase::ArrowDecode), Duration::ZERO);
        let stage = StageReport::new(&clock, Side::Source);
        let shown = report(stage.clone(), stage, 1, 10);
        assert!(shown["timing"]["source_arrow_encode_secs"].as_f64() > Some(0.0));
        assert_eq!(shown["timing"].get("module_load_secs"), None);
        assert_eq!(shown.pointer("/streams/0/bytes"), Some(&json!(10)));
    }
}

//! The stages of a batch of the narrow table between its connectors.

use rapidbyte_bench::failure::Failure;
use rapidbyte_engine::channel::{MAX_MESSAGES, Received, channel};
use rapidbyte_engine::compress::{Compression, Compressor, Decompressor};
use rapidbyte_runtime::Batch;
use rapidbyte_sdk::ipc;
use rapidbyte_testkit::postgres::Server;
use rapidbyte_wire::verify::Layout;

use super::Parts;
use super::guest::{Guest, NULL};
use super::rows::{ROWS, narrow_batch};

/// Messages of one measurement of the channel.
const MESSAGES: usize = 10_000;

pub fn run(parts: &mut Parts, server: &Server) -> Result<(), Failure> {
    let mut client = server.client("postgres");
    let batch = narrow_batch(&mut client, ROWS)?;
    let schema = batch.schema();
    let mut encoder = ipc::Encoder::new(&schema)?;
    let decoder = ipc::Decoder::new(encoder.schema_message())?;
    let message = encoder.encode(&batch)?;
    parts.measure("IPC encode", "row", ROWS, || Ok(encoder.encode(&batch)?))?;
    parts.measure("copy of a message", "row", ROWS, || Ok(message.clone()))?;
    parts.measure("IPC decode, with that copy", "row", ROWS, || {
        Ok(decoder.decode(message.clone())?)
    })?;
    let layout = Layout::of(&schema)?;
    parts.measure("header check", "batch", 1, || {
        Ok(layout.verify(&message, ROWS as u64)?)
    })?;
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut compressor = Compressor::new(compression)?;
        let frame = compressor.compress(message.clone())?;
        let mut decompressor = Decompressor::new(message.len());
        let name = |what: &str| format!("{what} {compression}, with a copy");
        parts.measure(&name("compress"), "row", ROWS, || {
            Ok(compressor.compress(message.clone())?)
        })?;
        parts.measure(&name("decompress"), "row", ROWS, || {
            Ok(decompressor.decompress(frame.clone())?)
        })?;
    }
    crossing(parts, encoder.schema_message(), message)?;
    parts.measure(
        "channel between two threads",
        "message",
        MESSAGES,
        through_channel,
    )
}

/// A message into a component, which decodes it without a copy, counts its rows and drops it.
fn crossing(parts: &mut Parts, schema_message: &[u8], data: Vec<u8>) -> Result<(), Failure> {
    let Some(guest) = Guest::load(NULL)? else {
        return Ok(());
    };
    let batch = Batch {
        rows: ROWS as u64,
        data,
    };
    parts.prepared(
        "message into a component",
        "row",
        ROWS,
        || guest.writer(schema_message),
        |destination| Ok(destination.write(0, &batch)?),
    )
}

fn through_channel() -> Result<(), Failure> {
    let (mut sender, mut receiver) = channel::<usize>(MESSAGES, MAX_MESSAGES);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for message in 0..MESSAGES {
                sender.send(message, 1)?;
            }
            sender.end()
        });
        let mut received = 0;
        while let Received::Item(_) = receiver.recv() {
            received += 1;
        }
        sending.join().expect("the sender does not panic")?;
        match received {
            MESSAGES => Ok(()),
            other => Err(Failure(format!("{other} of {MESSAGES} messages arrived"))),
        }
    })
}

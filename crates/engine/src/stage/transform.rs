//! The stage between two channels.

use rapidbyte_runtime::{Batch, Cancel, Clock, Phase};

use super::{
    Message, Stopped, Work, compress_failed, decompress_failed, has_same_columns, message_bytes,
};
use crate::channel::{Received, Receiver, Sender};
use crate::compress::{Compressor, Decompressor};
use crate::failure::{Class, Failure};
use crate::plan::Step;

/// Transforms every batch until the end and passes the checkpoints on. An early return drops the sender, which aborts
/// the stage behind.
pub(crate) fn pump_transform(
    work: &Work<'_>,
    step: &Step,
    (mut receiver, mut sender): (Receiver<Message>, Sender<Message>),
    clock: &Clock,
    cancel: &Cancel,
) -> Result<(), Stopped> {
    let failed = |e| Stopped::because(work.failed(e, &step.stage.key));
    let sandbox = work.sandbox(&step.stage, clock, cancel);
    let mut transform = step.stage.connector.transform(sandbox).map_err(failed)?;
    transform.open(&step.stage.config).map_err(failed)?;
    let schema = transform.begin(&step.input).map_err(failed)?;
    if !has_same_columns(&schema, &step.output) {
        return Err(Stopped::because(other_columns(work, step)));
    }
    let compression = work.plan.document.resources.compression;
    let mut compressor = Compressor::new(compression).map_err(compress_failed)?;
    let mut decompressor = Decompressor::new(work.batch_limit());
    let mut send = |message: Message| {
        let bytes = message_bytes(&message);
        let before = clock.enter(Phase::ChannelWait);
        let sent = sender.send(message, bytes);
        clock.enter(before);
        sent.map_err(|_| Stopped::Peer)
    };
    loop {
        let before = clock.enter(Phase::ChannelWait);
        let received = receiver.recv();
        clock.enter(before);
        match received {
            Received::Item(Message::Batch { frame, rows }) => {
                let before = clock.enter(Phase::Decompress);
                let data = decompressor.decompress(frame);
                clock.enter(before);
                let data = data.map_err(decompress_failed)?;
                work.point("engine.transform")?;
                transform.put(&Batch { data, rows }).map_err(failed)?;
                while let Some(Batch { data, rows }) = transform.next().map_err(failed)? {
                    let before = clock.enter(Phase::Compress);
                    let frame = compressor.compress(data);
                    clock.enter(before);
                    let frame = frame.map_err(compress_failed)?;
                    send(Message::Batch { frame, rows })?;
                }
            }
            Received::Item(checkpoint) => send(checkpoint)?,
            Received::End => break,
            // The stage before knows the cause.
            Received::Aborted => return Err(Stopped::Peer),
            Received::Cancelled => return Err(Stopped::because(Failure::cancelled())),
        }
    }
    transform.close();
    sender.end().map_err(|_| Stopped::Peer)
}

fn other_columns(work: &Work<'_>, step: &Step) -> Failure {
    let text = "the transformer has other columns than the plan";
    let failure = Failure::new(Class::Run, "contract_broken", text);
    let mut failure = failure.in_stream(&work.stream.name);
    failure.connector = Some(step.stage.connector.name().into());
    failure.export = Some("transformer.schema");
    failure.hint("report it to the connector's author: the connector has a bug")
}
